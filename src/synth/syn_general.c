/* The general form of a problem: every size a symbol, every stride unknown, ranks padded to those of the precompiled set.
 *   layer    L3 synth; may include base, format, ir
 *   forms    elementwise, copy, row, rope, argreduce and gather_elements have rank 8 (padded in front with axes of size 1);
 *            reduce has 4 outer and 4 reduced axes; gemm has 2 batch axes; the others keep their ranks. Kernels merge axes
 *            when they run, so padding costs tens of nanoseconds a call, and each op needs one kernel instead of one a rank
 *   kept     strides: the k stride of gemm's a and the inner strides of attention, when they are 1; the column strides of a
 *            gemm's outputs and epilogue operands, when they are 1 or 0. Literal constants of a region stay literal: for the
 *            precompiled set, make a constant an operand with strides 0
 *   order    commutative operations take the value that stems from the anchor first
 *   dtypes   work that only moves elements is done on bool, bf16, f32 or i64 by size */
#include "syn_form.h"
#include <stdio.h>

/* How one operand or inner value gets its new shape. */
typedef struct layout {
    int rank;
    int8_t from[FMT_RANK_MAX]; /* axis of the old shape; -1 = padding */
    fmt_dim dim[FMT_RANK_MAX]; /* in the new pool */
} layout;

typedef struct general {
    const syn_problem *p;
    const ir_graph *g;
    syn_form f;
    syn_problem *q;
    syn_source *args;
    uint32_t n_args, cap_args;
    layout operand[SYN_OPERANDS_MAX], before, after; /* shapes of prologue and epilogue */
    int64_t axis;                                    /* of the anchor, in the new shape */
    fmt_dim sizes[FMT_RANK_MAX];                     /* of topk and dimvals */
    rtx_err *err;
} general;

/* ---- sizes ---- */

static syn_source constant(int64_t v) { return (syn_source){true, v}; }
static syn_source argument(int64_t i) { return (syn_source){false, i}; }

/* Where the value of an old size comes from. */
static syn_source size_source(const general *w, fmt_dim d)
{
    int64_t v = 0;
    uint32_t sym = 0;
    if (fmt_dim_is_sym(w->p->dims, d, &sym))
        return argument(sym);
    (void)fmt_dim_is_const(w->p->dims, d, &v);
    return constant(v);
}

static void push_arg(general *w, syn_source source)
{
    if (w->n_args < w->cap_args)
        w->args[w->n_args] = source;
    w->n_args++;
}

/* A new symbol for an old size. */
static fmt_dim new_size(general *w, syn_source source)
{
    char name[16];
    snprintf(name, sizeof name, "s%u", fmt_sym_count(w->q->dims));
    push_arg(w, source);
    return fmt_dim_sym(w->q->dims, fmt_sym_new(w->q->dims, name, 0, FMT_DIM_LIMIT));
}

static fmt_dim old_size(general *w, fmt_dim d) { return new_size(w, size_source(w, d)); }

/* Append old axes [from, to) of t to l, padded in front to n axes; `moved` (or -1) goes last. False if they are too many. */
static bool append_axes(general *w, layout *l, const ir_type *t, int from, int to, int n, int moved)
{
    if (to - from > n)
        return false;
    for (int k = to - from; k < n; k++) {
        l->from[l->rank] = -1;
        l->dim[l->rank++] = new_size(w, constant(1));
    }
    for (int k = from; k < to; k++) {
        if (k == moved)
            continue;
        l->from[l->rank] = (int8_t)k;
        l->dim[l->rank++] = old_size(w, t->dim[k]);
    }
    if (moved >= 0) {
        l->from[l->rank] = (int8_t)moved;
        l->dim[l->rank++] = old_size(w, t->dim[moved]);
    }
    return true;
}

static layout part_of(const layout *l, int from, int to)
{
    layout out = {.rank = to - from};
    for (int k = from; k < to; k++) {
        out.from[k - from] = l->from[k];
        out.dim[k - from] = l->dim[k];
    }
    return out;
}

static void all_operands(general *w, const layout *l)
{
    for (uint32_t o = 0; o < w->f.n_ops; o++)
        w->operand[o] = *l;
    w->before = w->after = *l;
}

/* ---- shapes by family ---- */

#define TOO_MANY(w) FAIL((w)->err, UNSUPPORTED, "more axes than the precompiled set has")

static rtx_status shape_eltwise(general *w)
{
    const ir_type *t = syn_operand_type(w->p, w->p->n_in);
    layout l = {0};
    int moved =
        w->f.n_slots > w->f.n_ops ? (int)ir_attrs_of(w->g, w->f.slot_node[w->f.n_ops])->i[0] : -1;
    if (!append_axes(w, &l, t, 0, t->rank, FMT_RANK_MAX, moved))
        return TOO_MANY(w);
    all_operands(w, &l);
    return RTX_OK;
}

static rtx_status shape_reduce(general *w)
{
    const ir_type *x = ir_type_of(w->g, ir_in(w->g, w->f.anchor, 0));
    int outer = w->f.outer, n_outer = w->f.family == SYN_REDUCE ? 4 : 7;
    layout l = {0};
    if (!append_axes(w, &l, x, 0, outer, n_outer, -1) ||
        !append_axes(w, &l, x, outer, x->rank, FMT_RANK_MAX - n_outer, -1))
        return TOO_MANY(w);
    all_operands(w, &l);
    w->axis = n_outer;
    w->after = part_of(&l, 0, n_outer);
    for (uint32_t o = 0; o < w->f.n_ops; o++)
        if (syn_operand_type(w->p, o)->rank != x->rank)
            w->operand[o] = w->after;
    return RTX_OK;
}

static rtx_status shape_row(general *w)
{
    const ir_type *t = ir_type_of(w->g, w->f.anchor);
    layout l = {0};
    if (!append_axes(w, &l, t, 0, t->rank, FMT_RANK_MAX, -1))
        return TOO_MANY(w);
    all_operands(w, &l);
    if (w->f.family == SYN_ROPE)
        return RTX_OK;
    for (uint32_t k = 1; k < ir_node_get(w->g, w->f.anchor)->n_in; k++) {
        layout *param = &w->operand[syn_operand_of(w->p, ir_in(w->g, w->f.anchor, k))];
        *param = part_of(&l, FMT_RANK_MAX - 1, FMT_RANK_MAX);
        param->from[0] = 0;
    }
    return RTX_OK;
}

/* Axes of size 1 in front, as many as old batch axes lack. */
static layout batched(const layout *batch, int missing, const fmt_dim *dims)
{
    layout l = *batch;
    for (int k = 0; k < 2; k++) {
        l.from[l.rank] = (int8_t)(l.rank - missing);
        l.dim[l.rank++] = dims[k];
    }
    return l;
}

static rtx_status shape_gemm(general *w)
{
    const ir_type *t = ir_type_of(w->g, w->f.anchor),
                  *a = ir_type_of(w->g, ir_in(w->g, w->f.anchor, 0));
    int nb = t->rank - 2;
    layout batch = {0};
    (void)append_axes(w, &batch, t, 0, nb, 2, -1);
    fmt_dim m = old_size(w, t->dim[nb]), k = old_size(w, a->dim[nb + 1]),
            n = old_size(w, t->dim[nb + 1]);
    layout c = batched(&batch, 2 - nb, (fmt_dim[2]){m, n});
    all_operands(w, &c);
    w->operand[syn_operand_of(w->p, ir_in(w->g, w->f.anchor, 0))] =
        batched(&batch, 2 - nb, (fmt_dim[2]){m, k});
    w->operand[syn_operand_of(w->p, ir_in(w->g, w->f.anchor, 1))] =
        batched(&batch, 2 - nb, (fmt_dim[2]){k, n});
    return RTX_OK;
}

/* Operands keep their axes; equal letters are one size. Upper case: a new symbol at the first use. */
static void keep_axes(general *w, uint32_t o, const char *letters, fmt_dim by_letter[26])
{
    const ir_type *t = syn_operand_type(w->p, o);
    layout *l = &w->operand[o];
    *l = (layout){.rank = t->rank};
    for (int k = 0; k < t->rank; k++) {
        fmt_dim *d = &by_letter[letters[k] - 'A'];
        if (*d == FMT_DIM_BAD)
            *d = old_size(w, t->dim[k]);
        l->from[k] = (int8_t)k;
        l->dim[k] = *d;
    }
}

static rtx_status shape_named(general *w)
{
    static const char *const attention[5] = {"BHQD", "BHKD", "BHKV", "BHQK", "BHQV"},
                             *const gather[3] = {"OAI", "J", "OJI"},
                             *const cumsum[2] = {"OAI", "OAI"}, *const topk[2] = {"OAI", "OKI"};
    fmt_dim by_letter[26];
    for (int i = 0; i < 26; i++)
        by_letter[i] = FMT_DIM_BAD;
    const char *const *names = w->f.family == SYN_ATTENTION ? attention
                               : w->f.family == SYN_GATHER  ? gather
                               : w->f.family == SYN_CUMSUM  ? cumsum
                                                            : topk;
    for (uint32_t o = 0; o < w->f.n_ops;
         o++) /* attention without mask: the output is the fifth name all the same */
        keep_axes(w, o, names[w->f.family == SYN_ATTENTION && o == w->p->n_in ? 4 : o], by_letter);
    w->axis = 1;
    w->sizes[0] = by_letter['K' - 'A'];
    return RTX_OK;
}

static rtx_status shape_gather_nd(general *w)
{
    const ir_type *x = syn_operand_type(w->p, 0);
    fmt_dim by_letter[26];
    for (int i = 0; i < 26; i++)
        by_letter[i] = FMT_DIM_BAD;
    by_letter['R' - 'A'] = fmt_dim_const(w->q->dims, x->rank - 2);
    char letters[FMT_RANK_MAX + 1] = "BCDEFGHI"; /* the inner axis is I, whatever the depth */
    letters[x->rank - 1] = 'I';
    keep_axes(w, 0, letters, by_letter);
    keep_axes(w, 1, "BJR", by_letter);
    keep_axes(w, 2, "BJI", by_letter);
    w->axis = 1;
    return RTX_OK;
}

static rtx_status shape_gather_elements(general *w)
{
    const ir_type *x = syn_operand_type(w->p, 0), *y = syn_operand_type(w->p, 2);
    int along = (int)ir_attrs_of(w->g, w->f.anchor)->i[0];
    layout l = {0}; /* the kernel walks y; x may be larger on the other axes */
    if (!append_axes(w, &l, y, 0, y->rank, FMT_RANK_MAX, along))
        return TOO_MANY(w);
    w->operand[1] = w->operand[2] = l;
    l.dim[FMT_RANK_MAX - 1] = old_size(w, x->dim[along]);
    w->operand[0] = l;
    w->axis = FMT_RANK_MAX - 1;
    return RTX_OK;
}

static rtx_status shape_dimvals(general *w)
{
    const ir_attrs *at = ir_attrs_of(w->g, w->f.anchor);
    const ir_type *t = syn_operand_type(w->p, 0);
    for (int k = 0; k < at->n_dims; k++)
        w->sizes[k] = old_size(w, at->dims[k]);
    w->operand[0] = (layout){.rank = t->rank};
    w->operand[0].dim[0] = fmt_dim_const(w->q->dims, at->n_dims);
    return RTX_OK;
}

static rtx_status (*const shapes[SYN_FAMILY_COUNT])(general *) = {
    [SYN_ELTWISE] = shape_eltwise,
    [SYN_COPY] = shape_eltwise,
    [SYN_REDUCE] = shape_reduce,
    [SYN_ARGREDUCE] = shape_reduce,
    [SYN_ROW] = shape_row,
    [SYN_ROPE] = shape_row,
    [SYN_GEMM] = shape_gemm,
    [SYN_ATTENTION] = shape_named,
    [SYN_GATHER] = shape_named,
    [SYN_GATHER_ND] = shape_gather_nd,
    [SYN_GATHER_ELEMENTS] = shape_gather_elements,
    [SYN_CUMSUM] = shape_named,
    [SYN_TOPK] = shape_named,
    [SYN_DIMVALS] = shape_dimvals,
};

/* ---- region ---- */

static bool moves_only(syn_family f)
{
    return f == SYN_COPY || f == SYN_GATHER || f == SYN_GATHER_ND || f == SYN_GATHER_ELEMENTS;
}

static fmt_dtype by_size(fmt_dtype t)
{
    size_t n = fmt_dtype_bytes(t);
    return n == 1 ? FMT_BOOL : n == 2 ? FMT_BF16 : n == 4 ? FMT_F32 : FMT_I64;
}

static ir_id new_input(general *w, uint32_t o)
{
    const layout *l = &w->operand[o];
    ir_type t = {.dtype = syn_operand_type(w->p, o)->dtype, .rank = (uint8_t)l->rank};
    if (moves_only(w->f.family) && o == 0)
        t.dtype = by_size(t.dtype);
    memcpy(t.dim, l->dim, sizeof t.dim);
    return ir_input(w->q->region, syn_port_name(false, o), &t);
}

static ir_id new_anchor(general *w, ir_id id, const ir_id *in)
{
    ir_attrs at = *ir_attrs_of(w->g, id);
    uint32_t n_in = ir_node_get(w->g, id)->n_in;
    switch (w->f.family) {
    case SYN_REDUCE:
        at.n_list = (uint8_t)(FMT_RANK_MAX - w->axis);
        for (int k = 0; k < at.n_list; k++)
            at.list[k] = w->axis + k;
        break;
    case SYN_ROW:
        at.f[0] = 1.0;
        break;
    case SYN_ATTENTION:
        at.f[0] = 1.0;
        at.i[1] = 0;
        break;
    case SYN_ROPE:
    case SYN_GEMM:
        break;
    case SYN_TOPK:
        at.dims[0] = w->sizes[0];
        at.i[0] = w->axis;
        break;
    case SYN_DIMVALS:
        memcpy(at.dims, w->sizes, sizeof at.dims);
        break;
    default:
        at.i[0] = w->axis;
        break;
    }
    return ir_emit(w->q->region, w->f.op, in, n_in, &at);
}

static bool commutes(ir_op op)
{
    return op == IR_add || op == IR_mul || op == IR_max || op == IR_min || op == IR_eq ||
           op == IR_ne || op == IR_and || op == IR_or || op == IR_xor;
}

static ir_id new_node(general *w, ir_id id, const ir_id *map, bool before)
{
    ir_graph *r = w->q->region;
    const layout *l = before ? &w->before : &w->after;
    ir_op op = ir_op_of(w->g, id);
    ir_id in[8] = {0};
    uint32_t n = MIN(ir_node_get(w->g, id)->n_in, 8u);
    for (uint32_t k = 0; k < n; k++)
        in[k] = map[ir_in(w->g, id, k)];
    if (id == w->f.anchor)
        return new_anchor(w, id, in);
    if (op == IR_const) {
        const ir_const *c = ir_const_of(w->g, id);
        return ir_const_copy(r, ir_type_of(w->g, id), c->data, c->bytes);
    }
    for (uint32_t k = 0; k < n;
         k++) /* also where the old shape was a scalar's and needed no broadcast */
        if (in[k] != 0 && ir_op_of(r, in[k]) == IR_const)
            in[k] = ir_broadcast(r, in[k], l->dim, (uint32_t)l->rank);
    if (op == IR_broadcast)
        return in[0];
    if (op == IR_iota) {
        ir_attrs at = {.n_dims = (uint8_t)l->rank};
        memcpy(at.dims, l->dim, sizeof at.dims);
        for (int k = 0; k < l->rank; k++)
            if (l->from[k] == ir_attrs_of(w->g, id)->i[0])
                at.i[0] = k;
        return ir_emit(r, IR_iota, NULL, 0, &at);
    }
    if (commutes(op) && in[1] > in[0] && syn_operand_of(w->q, in[0]) != FMT_NONE &&
        syn_operand_of(w->q, in[1]) == FMT_NONE) {
        ir_id first = in[0];
        in[0] = in[1];
        in[1] = first;
    }
    return ir_emit(r, op, in, n, ir_attrs_of(w->g, id));
}

static rtx_status new_region(general *w)
{
    ir_graph *r = w->q->region;
    AUTO_FREE ir_id *map = base_zalloc_array(BASE_TAG_SYNTH, w->g->n_nodes, sizeof *map);
    AUTO_FREE uint8_t *state =
        base_zalloc(BASE_TAG_SYNTH, w->g->n_nodes); /* 1 live, 2 before the anchor */
    if (map == NULL || state == NULL)
        return FAIL(w->err, NOMEM, "out of memory");
    for (uint32_t k = 0; k < w->p->n_out; k++)
        state[w->g->outputs[k].id] = 1;
    for (ir_id id = w->g->n_nodes - 1; id > 0; id--)
        for (uint32_t k = 0; state[id] && k < ir_node_get(w->g, id)->n_in; k++)
            state[ir_in(w->g, id, k)] |= id == w->f.anchor ? 2 : state[id];
    w->q->n_in = w->p->n_in;
    w->q->n_out = w->p->n_out;
    for (uint32_t o = 0; o < w->p->n_in; o++)
        map[syn_operand_id(w->p, o)] = new_input(w, o);
    for (ir_id id = 1; id < w->g->n_nodes; id++)
        if (state[id] && ir_op_of(w->g, id) != IR_input)
            map[id] = new_node(w, id, map, state[id] & 2);
    for (uint32_t k = 0; k < w->p->n_out; k++)
        ir_output(r, syn_port_name(true, k), map[w->g->outputs[k].id]);
    return ir_ok(r, w->err);
}

/* ---- strides and free attributes ---- */

static bool is_one(const general *w, uint32_t o, int axis)
{
    int64_t v;
    return syn_stride_const(w->p, o, axis, &v) && v == 1;
}

/* A stride that the kernel has compiled in. */
static bool keeps_stride(const general *w, uint32_t o, int old_axis, int64_t *v)
{
    const ir_type *t = syn_operand_type(w->p, o);
    bool last =
        old_axis == t->rank - 1 && !w->p->packed[o] && syn_stride_const(w->p, o, old_axis, v);
    if (!last)
        return false;
    if (w->f.family == SYN_ATTENTION) {
        bool all = true;
        for (uint32_t k = 0; k < w->f.n_ops; k++)
            all &= (w->p->n_in == 4 && k == 3) || is_one(w, k, 3);
        return all && !(w->p->n_in == 4 && o == 3);
    }
    if (w->f.family != SYN_GEMM || syn_operand_id(w->p, o) == ir_in(w->g, w->f.anchor, 1))
        return false;
    return *v == 1 || (*v == 0 && syn_operand_id(w->p, o) != ir_in(w->g, w->f.anchor, 0));
}

static void new_strides(general *w)
{
    int64_t v;
    for (uint32_t o = 0; o < w->f.n_ops; o++) {
        w->q->packed[o] = w->p->packed[o];
        for (int k = 0; k < w->operand[o].rank; k++) {
            int old = w->operand[o].from[k];
            push_arg(w, old < 0 ? constant(0) : argument(syn_arg_stride(w->p, o, (uint32_t)old)));
            w->q->stride[o][k] = old >= 0 && keeps_stride(w, o, old, &v)
                                     ? fmt_dim_const(w->q->dims, v)
                                     : FMT_DIM_BAD;
        }
    }
}

static void free_attributes(general *w)
{
    uint32_t bits;
    if (w->f.op != IR_attention && w->f.op != IR_layernorm && w->f.op != IR_rmsnorm)
        return;
    w->q->free_attrs = true;
    if (w->p->free_attrs) { /* already general: pass on */
        uint32_t n = syn_arg_stride(w->p, w->f.n_ops, 0);
        for (uint32_t k = 0; k < syn_free_count(w->p, &w->f); k++)
            push_arg(w, argument(n + k));
        return;
    }
    float v = (float)ir_attrs_of(w->g, w->f.anchor)->f[0];
    memcpy(&bits, &v, sizeof bits);
    push_arg(w, constant(bits));
    if (w->f.op != IR_attention)
        return;
    push_arg(w, size_source(w, syn_operand_type(w->p, 1)->dim[1]));
    push_arg(w, constant(ir_attrs_of(w->g, w->f.anchor)->i[1]));
}

static rtx_status build(general *w)
{
    TRY(shapes[w->f.family](w));
    TRY(fmt_dims_ok(w->q->dims, w->err));
    if (fmt_sym_count(w->q->dims) > SYN_SYMS_MAX)
        return TOO_MANY(w);
    TRY(new_region(w));
    new_strides(w);
    free_attributes(w);
    if (w->n_args > w->cap_args)
        return FAIL(w->err, LIMIT, "a general problem takes %u arguments, room for %u", w->n_args,
                    w->cap_args);
    return fmt_dims_ok(w->q->dims, w->err);
}

rtx_status syn_problem_general(const syn_problem *p, syn_problem **out, syn_source *new_args,
                               uint32_t *n_args, uint32_t cap_args, rtx_err *err)
{
    general w = {.p = p, .g = p->region, .args = new_args, .cap_args = cap_args, .err = err};
    TRY(syn_form_of(p, &w.f, err));
    w.q = syn_problem_new();
    if (w.q == NULL)
        return FAIL(err, NOMEM, "out of memory");
    rtx_status status = build(&w);
    if (status != RTX_OK) {
        syn_problem_free(w.q);
        return status;
    }
    *out = w.q;
    *n_args = w.n_args;
    return RTX_OK;
}
