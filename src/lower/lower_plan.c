/* A cut graph → a plan: places for values, one step a region, copies only where strides cannot say it. */
#include "lower.h"
#include <stdio.h>

typedef struct lowering {
    const ir_graph *g;
    fmt_dims *d;
    lower_mode mode;
    lower_consts *consts;
    lower_result *res;
    fmt_plan *plan;
    lower_view *view; /* per node */
    lower_view *flat; /* contiguous copy of a node's view, once made; value FMT_NONE = none */
    const pass_region **region_at; /* by root */
    const pass_region **region_of; /* by member */
    fmt_dim *to_plan_sym;
} lowering;

/* Dimensions of the graph's pool in the plan's pool (same symbols in the same order). */
static fmt_dim plan_dim(lowering *l, fmt_dim d)
{
    return fmt_dim_subst(l->d, d, l->plan->dims, l->to_plan_sym);
}

/* ---- constants ---- */

static rtx_status consts_add(lower_consts *c, lower_const item, uint64_t *out_offset,
                             uint64_t *out_bytes, rtx_err *err)
{
    for (uint32_t i = 0; i < c->n; i++) {
        const lower_const *x = &c->items[i];
        if (x->key == item.key && x->k == item.k && x->n == item.n &&
            (item.k != 0 || x->bytes == item.bytes)) {
            *out_offset = x->offset;
            *out_bytes = x->bytes;
            return RTX_OK;
        }
    }
    if (c->n == c->cap) {
        uint32_t cap = c->cap ? 2 * c->cap : 64;
        lower_const *grown = base_realloc(BASE_TAG_PASSES, c->items, cap * sizeof *grown);
        TRY_ALLOC(grown, err);
        c->items = grown;
        c->cap = cap;
    }
    if (item.k != 0) { /* pack now that it is known to be new */
        float *packed;
        TRY(base_go_on(err));
        item.bytes = 4 * syn_pack_floats(item.k, item.n);
        TRY_ALLOC(packed = base_alloc(BASE_TAG_PASSES, item.bytes), err);
        syn_pack_b(item.data, item.k, item.n, item.n, 1, packed);
        item.data = item.owned = packed;
    }
    item.offset = (c->bytes + 63) & ~UINT64_C(63);
    c->bytes = item.offset + item.bytes;
    c->items[c->n++] = item;
    *out_offset = item.offset;
    *out_bytes = item.bytes;
    return RTX_OK;
}

void lower_consts_done(lower_consts *c)
{
    for (uint32_t i = 0; i < c->n; i++)
        base_free(c->items[i].owned);
    base_free(c->items);
    memset(c, 0, sizeof *c);
}

rtx_status lower_consts_pieces(const lower_consts *c, fmt_pieces *out, rtx_err *err)
{
    static const uint8_t zeros[64];
    fmt_span *s;
    TRY_ALLOC(s = base_alloc_array(BASE_TAG_PASSES, 2 * (size_t)c->n + 1, sizeof *s), err);
    size_t n = 0;
    uint64_t at = 0;
    for (uint32_t i = 0; i < c->n; i++) {
        if (c->items[i].offset > at)
            s[n++] = (fmt_span){zeros, c->items[i].offset - at};
        if (c->items[i].bytes > 0)
            s[n++] = (fmt_span){c->items[i].data, c->items[i].bytes};
        at = c->items[i].offset + c->items[i].bytes;
    }
    *out = (fmt_pieces){s, n};
    return RTX_OK;
}

/* The plan's value for constant bytes; one value a constant and form. */
static rtx_status const_value(lowering *l, ir_id id, bool packed, uint32_t *out, rtx_err *err)
{
    const ir_const *c = ir_const_of(l->g, id);
    const ir_type *t = ir_type_of(l->g, id);
    lower_const item = {.data = c->data, .key = c->data, .bytes = c->bytes};
    if (packed) {
        int64_t k = 0, n = 0;
        fmt_dim_is_const(l->d, t->dim[t->rank - 2], &k);
        fmt_dim_is_const(l->d, t->dim[t->rank - 1], &n);
        item.k = k;
        item.n = n;
    }
    uint64_t offset = 0, bytes = item.bytes;
    if (l->consts != NULL)
        TRY(consts_add(l->consts, item, &offset, &bytes, err));
    for (uint32_t i = 0; i < l->plan->n_values; i++) {
        const fmt_value *v = &l->plan->values[i];
        if (v->kind == FMT_VAL_CONST && v->offset == offset && v->bytes == bytes &&
            v->dtype == t->dtype) {
            *out = i;
            return RTX_OK;
        }
    }
    fmt_value v = {.kind = FMT_VAL_CONST, .dtype = t->dtype, .offset = offset, .bytes = bytes};
    v.elems = fmt_dim_const(l->plan->dims, (int64_t)(bytes / MAX(fmt_dtype_bytes(t->dtype), 1)));
    *out = fmt_plan_add_value(l->plan, &v);
    return fmt_plan_ok(l->plan, err);
}

/* ---- values and steps ---- */

static lower_view view_new(lowering *l, ir_id id, fmt_value_kind kind, uint32_t index)
{
    const ir_type *t = ir_type_of(l->g, id);
    lower_view v = {.offset = fmt_dim_const(l->d, 0)};
    fmt_value val = {
        .kind = (uint8_t)kind, .dtype = (uint8_t)t->dtype, .index = index, .first = FMT_NONE};
    val.huge = kind == FMT_VAL_TEMP;
    val.elems = plan_dim(l, lower_row_major(l->d, t, v.stride));
    v.value = fmt_plan_add_value(l->plan, &val);
    return v;
}

static void touch(lowering *l, uint32_t value, uint32_t step)
{
    fmt_value *v = &l->plan->values[value];
    if (v->first == FMT_NONE)
        v->first = step;
    v->last = step;
}

static rtx_status find_slot(lowering *l, const syn_problem *p, const char *text, fmt_str name,
                            uint32_t *out, rtx_err *err)
{
    for (uint32_t i = 0; i < l->plan->n_slots; i++)
        if (strcmp(fmt_str_get(l->plan, l->plan->slots[i].problem), text) == 0) {
            *out = i;
            l->res->slots[i].uses++;
            return RTX_OK;
        }
    fmt_slot s = {.problem = fmt_plan_str(l->plan, text)};
    TRY(syn_measure(p, s.measure, err));
    *out = fmt_plan_add_slot(l->plan, &s);
    TRY(fmt_plan_ok(l->plan, err));
    if (l->res->n_slots == l->res->cap_slots) {
        uint32_t cap = l->res->cap_slots ? 2 * l->res->cap_slots : 32;
        lower_slot *grown = base_realloc(BASE_TAG_PASSES, l->res->slots, cap * sizeof *grown);
        TRY_ALLOC(grown, err);
        l->res->slots = grown;
        l->res->cap_slots = cap;
    }
    l->res->slots[l->res->n_slots++] = (lower_slot){.uses = 1, .name = name};
    return RTX_OK;
}

/* The problem as the plan calls it (generalised for the precompiled set), its arguments, its slot. */
static rtx_status place_problem(lowering *l, lower_built *b, fmt_str name, uint32_t *out_slot,
                                fmt_dim *arg, uint32_t *n_arg, rtx_err *err)
{
    AUTO_BUF base_buf text;
    base_buf_init(&text, BASE_TAG_PASSES, 1 << 20);
    syn_source from[COUNT_OF(b->arg)];
    if (l->mode == LOWER_READY) {
        syn_problem *general = NULL;
        TRY(syn_problem_general(b->problem, &general, from, n_arg, COUNT_OF(from), err));
        for (uint32_t i = 0; i < *n_arg; i++)
            arg[i] = from[i].constant ? fmt_dim_const(l->d, from[i].value) : b->arg[from[i].value];
        syn_problem_free(b->problem);
        b->problem = general;
        b->n_sym = fmt_sym_count(general->dims);
    } else {
        *n_arg = b->n_arg;
        memcpy(arg, b->arg, b->n_arg * sizeof *arg);
    }
    TRY(syn_problem_text(b->problem, &text, err));
    TRY(base_buf_ok(&text, err));
    uint32_t before = l->res->n_slots;
    TRY(find_slot(l, b->problem, text.data, name, out_slot, err));
    if (l->res->n_slots > before) {
        lower_slot *s = &l->res->slots[*out_slot];
        s->problem = TAKE(b->problem);
        s->n_sym = b->n_sym;
        for (uint32_t i = 0; i < b->n_sym; i++)
            s->sym[i] = plan_dim(l, arg[i]);
    }
    return RTX_OK;
}

/* Regions of one problem that differ in their views share a slot and the first one's name. */
static rtx_status name_region(const lowering *l, const pass_region *r, lower_slot *s, rtx_err *err)
{
    if (l->mode != LOWER_BAKED || r->n_nodes < 2 || s->region != NULL)
        return RTX_OK;
    s->anchored = r->anchor != 0;
    AUTO_BUF base_buf text;
    base_buf_init(&text, BASE_TAG_PASSES, 1 << 20);
    TRY(lower_region_text(l->g, r, l->mode, &text, err));
    TRY_ALLOC(s->region = base_buf_take(&text, NULL), err);
    return RTX_OK;
}

/* Where a view begins in its value. One without elements touches nothing and may lie outside, as x[:, 2:9] of x[0,4] does:
 * it begins at 0. */
static fmt_dim view_begin(lowering *l, ir_id id, const lower_view *v)
{
    const ir_type *t = ir_type_of(l->g, id);
    for (int i = 0; i < t->rank; i++)
        if (fmt_dim_is(l->d, t->dim[i], 0))
            return fmt_dim_const(l->plan->dims, 0);
    return plan_dim(l, v->offset);
}

static rtx_status emit_step(lowering *l, const pass_region *r, const lower_view *out_view,
                            rtx_err *err)
{
    lower_built b;
    TRY(lower_build(l->g, r, l->view, out_view, l->mode != LOWER_READY, &b, err));
    fmt_operand ops[SYN_OPERANDS_MAX];
    fmt_dim arg[COUNT_OF(b.arg)];
    fmt_step step = {.next = FMT_NONE, .n_operands = b.n_in + b.n_out};
    const char *name = ir_name_of(l->g, r->anchor ? r->anchor : r->root);
    step.name = fmt_plan_str(
        l->plan, name[0] ? name : ir_op_get(ir_op_of(l->g, r->anchor ? r->anchor : r->root))->name);
    rtx_status s = place_problem(l, &b, step.name, &step.slot, arg, &step.n_args, err);
    if (s == RTX_OK)
        s = name_region(l, r, &l->res->slots[step.slot], err);
    for (uint32_t i = 0; s == RTX_OK && i < b.n_in; i++) {
        const lower_view *v = &l->view[b.operand[i]];
        uint32_t value = v->value;
        if (v->constant != 0)
            s = const_value(l, v->constant, b.packed == (int)i, &value, err);
        ops[i] = (fmt_operand){value, view_begin(l, b.operand[i], v)};
        if (s == RTX_OK)
            touch(l, value, l->plan->n_steps);
    }
    lower_built_done(&b);
    TRY(s);
    ops[b.n_in] = (fmt_operand){out_view->value, view_begin(l, r->root, out_view)};
    touch(l, out_view->value, l->plan->n_steps);
    for (uint32_t i = 0; i < step.n_args; i++)
        arg[i] = plan_dim(l, arg[i]);
    fmt_plan_add_step(l->plan, &step, ops, arg);
    return fmt_plan_ok(l->plan, err);
}

static rtx_status emit_copy(lowering *l, ir_id id, const lower_view *to, rtx_err *err)
{
    pass_region copy = {.kind = PASS_ANCHOR_NONE, .root = id};
    return emit_step(l, &copy, to, err);
}

/* Make the node's view contiguous, by a copy made at most once. */
static rtx_status make_flat(lowering *l, ir_id id, rtx_err *err)
{
    if (lower_contiguous(l->d, ir_type_of(l->g, id), &l->view[id]))
        return RTX_OK;
    if (l->flat[id].value == FMT_NONE) {
        lower_view v = view_new(l, id, FMT_VAL_TEMP, 0);
        TRY(emit_copy(l, id, &v, err));
        l->flat[id] = v;
    }
    l->view[id] = l->flat[id];
    return RTX_OK;
}

/* ---- nodes ---- */

static rtx_status lower_concat(lowering *l, ir_id id, rtx_err *err)
{
    int axis = (int)ir_attrs_of(l->g, id)->i[0];
    fmt_dim at = fmt_dim_const(l->d, 0);
    for (uint32_t k = 0; k < ir_node_get(l->g, id)->n_in; k++) {
        ir_id in = ir_in(l->g, id, k);
        lower_view part = l->view[id];
        part.offset = fmt_dim_add(l->d, part.offset, fmt_dim_mul(l->d, at, part.stride[axis]));
        TRY(emit_copy(l, in, &part, err));
        at = fmt_dim_add(l->d, at, ir_type_of(l->g, in)->dim[axis]);
    }
    return RTX_OK;
}

/* Attention writes [B,Sq,H,D] in memory, which the usual transpose and reshape behind it then read as one matrix. */
static void layout_attention(lowering *l, ir_id id)
{
    const ir_type *t = ir_type_of(l->g, id);
    fmt_dim *s = l->view[id].stride;
    s[3] = fmt_dim_const(l->d, 1);
    s[1] = t->dim[3];
    s[2] = fmt_dim_mul(l->d, t->dim[1], t->dim[3]);
    s[0] = fmt_dim_mul(l->d, s[2], t->dim[2]);
}

static rtx_status prepare_operands(lowering *l, const pass_region *r, rtx_err *err)
{
    ir_op op = ir_op_of(l->g, r->anchor);
    uint32_t n = ir_node_get(l->g, r->anchor)->n_in;
    if (op == IR_attention) { /* rows of q, k, v must be contiguous; a mask may have any strides */
        for (uint32_t k = 0; k < 3; k++)
            if (!fmt_dim_is(l->d, l->view[ir_in(l->g, r->anchor, k)].stride[3], 1))
                TRY(make_flat(l, ir_in(l->g, r->anchor, k), err));
    } else if (op != IR_concat && op != IR_rope) {
        for (uint32_t k = 0; k < n; k++)
            TRY(make_flat(l, ir_in(l->g, r->anchor, k), err));
    }
    return RTX_OK;
}

/* A gemm reads rows of a with adjacent elements; the precompiled ones read adjacent columns in their epilogues too. */
static rtx_status prepare_dot(lowering *l, const pass_region *r, rtx_err *err)
{
    for (uint32_t i = 0; i < r->n_nodes; i++) {
        bool anchor = r->nodes[i] == r->anchor;
        for (uint32_t k = 0; k < ir_node_get(l->g, r->nodes[i])->n_in; k++) {
            ir_id in = ir_in(l->g, r->nodes[i], k);
            int last = ir_type_of(l->g, in)->rank - 1;
            bool wanted = anchor ? k == 0 : l->mode == LOWER_READY;
            bool inside = l->region_of[in] == r;
            if (wanted && !inside && last >= 0 && !fmt_dim_is(l->d, l->view[in].stride[last], 1))
                TRY(make_flat(l, in, err));
        }
    }
    return RTX_OK;
}

static rtx_status lower_region(lowering *l, const pass_region *r, rtx_err *err)
{
    if (r->kind == PASS_ANCHOR_ALONE)
        TRY(prepare_operands(l, r, err));
    if (r->kind == PASS_ANCHOR_DOT)
        TRY(prepare_dot(l, r, err));
    uint32_t output = FMT_NONE;
    for (uint32_t i = 0; i < l->g->n_outputs && output == FMT_NONE; i++)
        if (l->g->outputs[i].id == r->root)
            output = i;
    bool attention = r->anchor != 0 && ir_op_of(l->g, r->anchor) == IR_attention;
    l->view[r->root] =
        view_new(l, r->root, output != FMT_NONE && !attention ? FMT_VAL_OUTPUT : FMT_VAL_TEMP,
                 output == FMT_NONE ? 0 : output);
    if (attention)
        layout_attention(l, r->root);
    TRY(fmt_plan_ok(l->plan, err));
    if (r->anchor != 0 && ir_op_of(l->g, r->anchor) == IR_concat)
        return lower_concat(l, r->root, err);
    return emit_step(l, r, &l->view[r->root], err);
}

static rtx_status lower_node(lowering *l, ir_id id, rtx_err *err)
{
    ir_op op = ir_op_of(l->g, id);
    if (op == IR_const) {
        l->view[id] =
            (lower_view){.value = FMT_NONE, .constant = id, .offset = fmt_dim_const(l->d, 0)};
        lower_row_major(l->d, ir_type_of(l->g, id), l->view[id].stride);
        return RTX_OK;
    }
    if (ir_op_get(op)->view) {
        ir_id in = ir_in(l->g, id, 0);
        if (!lower_view_of(l->g, id, &l->view[in], &l->view[id])) {
            TRY(make_flat(l, in, err));
            if (!lower_view_of(l->g, id, &l->view[in], &l->view[id]))
                return FAIL(err, INTERNAL, "%s of a contiguous value has no strides",
                            ir_op_get(op)->name);
        }
        return RTX_OK;
    }
    return l->region_at[id] ? lower_region(l, l->region_at[id], err) : RTX_OK;
}

static rtx_status lower_ports(lowering *l, bool outputs, rtx_err *err)
{
    uint32_t n = outputs ? l->g->n_outputs : l->g->n_inputs;
    const ir_port *p = outputs ? l->g->outputs : l->g->inputs;
    for (uint32_t i = 0; i < n; i++) {
        const ir_type *t = ir_type_of(l->g, p[i].id);
        fmt_port port = {
            .name = fmt_plan_str(l->plan, p[i].name), .dtype = (uint8_t)t->dtype, .rank = t->rank};
        for (int k = 0; k < t->rank; k++)
            port.dim[k] = plan_dim(l, t->dim[k]);
        fmt_plan_add_port(l->plan, outputs, &port);
        if (!outputs)
            l->view[p[i].id] = view_new(l, p[i].id, FMT_VAL_INPUT, i);
    }
    return fmt_plan_ok(l->plan, err);
}

/* Outputs that are views, inputs, constants or second names of one value are copied to their own buffers. */
static rtx_status lower_outputs(lowering *l, rtx_err *err)
{
    for (uint32_t i = 0; i < l->g->n_outputs; i++) {
        ir_id id = l->g->outputs[i].id;
        const lower_view *v = &l->view[id];
        if (v->constant == 0 && l->plan->values[v->value].kind == FMT_VAL_OUTPUT &&
            l->plan->values[v->value].index == i && l->region_at[id])
            continue;
        lower_view to = view_new(l, id, FMT_VAL_OUTPUT, i);
        TRY(fmt_plan_ok(l->plan, err));
        TRY(emit_copy(l, id, &to, err));
    }
    return RTX_OK;
}

/* Each step names the packed constant that comes next, so that its kernel can prefetch across the boundary. These are the
 * constants that a run streams. */
static void set_hints(lowering *l)
{
    uint32_t next = FMT_NONE;
    for (uint32_t i = l->plan->n_steps; i-- > 0;) {
        fmt_step *s = &l->plan->steps[i];
        s->next = next;
        const lower_slot *slot = &l->res->slots[s->slot];
        for (uint32_t k = 0; k < slot->problem->n_in && k < s->n_operands; k++)
            if (slot->problem->packed[k]) {
                next = l->plan->operands[s->operand + k].value;
                l->plan->values[next].huge = 1;
            }
    }
}

static rtx_status copy_symbols(lowering *l, rtx_err *err)
{
    uint32_t n = fmt_sym_count(l->d);
    TRY_ALLOC(l->to_plan_sym = base_alloc_array(BASE_TAG_PASSES, n + 1, sizeof *l->to_plan_sym),
              err);
    for (uint32_t i = 0; i < n; i++) {
        const fmt_sym *s = fmt_sym_get(l->d, i);
        l->to_plan_sym[i] =
            fmt_dim_sym(l->plan->dims, fmt_sym_new(l->plan->dims, s->name, s->lo, s->hi));
    }
    return fmt_dims_ok(l->plan->dims, err);
}

/* Sizes of a node that may come out below 0: a product of two such would pass for a count. A top-k takes no more than there
 * is. */
static void limit_sizes(lowering *l, ir_id id)
{
    const ir_type *t = ir_type_of(l->g, id);
    fmt_dim need[FMT_RANK_MAX + 1];
    int n = t->rank;
    memcpy(need, t->dim, (size_t)n * sizeof *need);
    if (ir_op_of(l->g, id) == IR_topk) {
        int64_t axis = ir_attrs_of(l->g, id)->i[0];
        need[n++] =
            fmt_dim_sub(l->d, ir_type_of(l->g, ir_in(l->g, id, 0))->dim[axis], t->dim[axis]);
    }
    for (int k = 0; k < n; k++) {
        int64_t lo, hi;
        fmt_dim d = fmt_dim_resolve(l->d, need[k]);
        fmt_dim_range(l->d, d, &lo, &hi);
        if (lo < 0)
            fmt_plan_add_limit(l->plan, plan_dim(l, d));
    }
}

static rtx_status lower_nodes(lowering *l, const pass_regions *cut, rtx_err *err)
{
    const ir_graph *g = l->g;
    TRY(copy_symbols(l, err));
    TRY_ALLOC(l->view = base_zalloc_array(BASE_TAG_PASSES, g->n_nodes, sizeof *l->view), err);
    TRY_ALLOC(l->flat = base_zalloc_array(BASE_TAG_PASSES, g->n_nodes, sizeof *l->flat), err);
    TRY_ALLOC(l->region_at = base_zalloc_array(BASE_TAG_PASSES, g->n_nodes, sizeof *l->region_at),
              err);
    for (uint32_t i = 0; i < g->n_nodes; i++)
        l->flat[i].value = FMT_NONE;
    TRY_ALLOC(l->region_of = base_zalloc_array(BASE_TAG_PASSES, g->n_nodes, sizeof *l->region_of),
              err);
    for (uint32_t i = 0; i < cut->n; i++) {
        l->region_at[cut->items[i].root] = &cut->items[i];
        for (uint32_t k = 0; k < cut->items[i].n_nodes; k++)
            l->region_of[cut->items[i].nodes[k]] = &cut->items[i];
    }
    TRY(lower_ports(l, false, err));
    AUTO_FREE uint32_t *uses = ir_use_counts(g);
    if (uses == NULL)
        return FAIL(err, NOMEM, "out of memory");
    for (ir_id id = 1; id < g->n_nodes; id++)
        if (uses[id] > 0 && ir_op_of(g, id) != IR_input) {
            limit_sizes(l, id);
            TRY(lower_node(l, id, err));
        }
    TRY(lower_ports(l, true, err));
    TRY(lower_outputs(l, err));
    set_hints(l);
    return RTX_OK;
}

rtx_status lower_graph(const ir_graph *g, lower_mode mode, lower_consts *consts, lower_result *out,
                       rtx_err *err)
{
    return lower_graph_cut(g, mode, NULL, consts, out, err);
}

rtx_status lower_graph_cut(const ir_graph *g, lower_mode mode, const lower_deny *deny,
                           lower_consts *consts, lower_result *out, rtx_err *err)
{
    memset(out, 0, sizeof *out);
    pass_regions cut;
    lower_ask ask = {.mode = mode, .deny = deny};
    rtx_status s =
        pass_fuse(g, mode == LOWER_UNFUSED ? NULL : lower_legal, lower_whole, &ask, &cut, err);
    if (s == RTX_OK && ask.nomem)
        s = FAIL(err, NOMEM, "out of memory");
    if (s == RTX_OK) {
        fmt_dims *dims = fmt_dims_new();
        out->plan = dims ? fmt_plan_new(dims) : NULL;
        if (out->plan == NULL) {
            fmt_dims_free(dims);
            s = FAIL(err, NOMEM, "out of memory");
        }
    }
    lowering l = {
        .g = g, .d = g->dims, .mode = mode, .consts = consts, .res = out, .plan = out->plan};
    if (s == RTX_OK)
        s = lower_nodes(&l, &cut, err);
    base_free(l.view);
    base_free(l.flat);
    base_free(l.region_at);
    base_free(l.region_of);
    base_free(l.to_plan_sym);
    pass_regions_done(&cut);
    if (s != RTX_OK)
        lower_result_done(out);
    return s;
}

void lower_result_done(lower_result *r)
{
    for (uint32_t i = 0; i < r->n_slots; i++) {
        syn_problem_free(r->slots[i].problem);
        base_free(r->slots[i].region);
    }
    base_free(r->slots);
    fmt_plan_free(r->plan);
    memset(r, 0, sizeof *r);
}
