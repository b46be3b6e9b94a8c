/* The evaluator, the oracle that kernels are judged by: binds symbols to sizes and walks the live nodes in order.
 *   layer    L1 ir; may include base, format
 *   owner    a walk owns every value that is no input; a value is dropped after its last use, outputs move out
 *   memory   8 bytes an element; constants are expanded at their first use only */
#include "ir_eval.h"

typedef struct eval {
    const ir_graph *g;
    const ir_tensor *inputs;
    const int64_t *syms;
    ir_tensor *values; /* by node; data NULL = not there */
    ir_tensor *abs;    /* by node: sums of magnitudes, where asked for */
    uint8_t *want_abs;
    uint8_t *live;
    uint32_t *uses; /* by live nodes and outputs, still to come */
    size_t held_bytes, max_bytes;
    ir_visit visit;
    void *ctx;
    rtx_err *err;
} eval;

/* ---- sizes ---- */

static rtx_status dim_value(const ir_graph *g, fmt_dim d, const int64_t *syms, const char *what,
                            int64_t *out, rtx_err *err)
{
    if (fmt_dim_eval(g->dims, d, syms, out))
        return RTX_OK;
    AUTO_BUF base_buf text;
    base_buf_init(&text, BASE_TAG_IR, 200);
    fmt_dim_print(g->dims, d, &text);
    return FAIL(err, INVALID, "%s: size %s has no value for these inputs", what,
                text.data ? text.data : "");
}

static const char *port_name(const ir_graph *g, uint32_t input) { return g->inputs[input].name; }

static rtx_status check_type(const ir_graph *g, uint32_t input, const ir_tensor *x, rtx_err *err)
{
    const ir_type *t = ir_type_of(g, g->inputs[input].id);
    if (x->dtype != t->dtype || x->rank != t->rank)
        return FAIL(err, INVALID, "input '%s' is %s of rank %d, needs %s of rank %d",
                    port_name(g, input), fmt_dtype_name(x->dtype), x->rank,
                    fmt_dtype_name(t->dtype), t->rank);
    return RTX_OK;
}

/* Symbols that are the whole size of an input's axis. */
static rtx_status bind_bare(const ir_graph *g, uint32_t input, const ir_tensor *x, int64_t *values,
                            rtx_err *err)
{
    const ir_type *t = ir_type_of(g, g->inputs[input].id);
    TRY(check_type(g, input, x, err));
    for (int k = 0; k < t->rank; k++) {
        uint32_t sym;
        if (!fmt_dim_is_sym(g->dims, fmt_dim_resolve(g->dims, t->dim[k]), &sym) || values[sym] >= 0)
            continue;
        const fmt_sym *s = fmt_sym_get(g->dims, sym);
        if (x->dim[k] < s->lo || x->dim[k] > s->hi)
            return FAIL(err, INVALID, "input '%s': %s = %lld is not in [%lld, %lld]",
                        port_name(g, input), s->name, (long long)x->dim[k], (long long)s->lo,
                        (long long)s->hi);
        values[sym] = x->dim[k];
    }
    return RTX_OK;
}

static rtx_status check_dims(const ir_graph *g, uint32_t input, const ir_tensor *x,
                             const int64_t *values, rtx_err *err)
{
    const ir_type *t = ir_type_of(g, g->inputs[input].id);
    for (int k = 0; k < t->rank; k++) {
        int64_t v;
        TRY(dim_value(g, fmt_dim_resolve(g->dims, t->dim[k]), values, port_name(g, input), &v,
                      err));
        if (v != x->dim[k]) {
            AUTO_BUF base_buf text;
            base_buf_init(&text, BASE_TAG_IR, 200);
            fmt_dim_print(g->dims, t->dim[k], &text);
            return FAIL(err, INVALID, "input '%s': axis %d has size %lld, needs %s = %lld",
                        port_name(g, input), k, (long long)x->dim[k], text.data ? text.data : "",
                        (long long)v);
        }
    }
    return RTX_OK;
}

rtx_status ir_bind(const ir_graph *g, const ir_tensor *inputs, int64_t *values, rtx_err *err)
{
    TRY(ir_ok(g, err));
    for (uint32_t s = 0; s < fmt_sym_count(g->dims); s++)
        values[s] = -1;
    for (uint32_t k = 0; k < g->n_inputs; k++)
        TRY(bind_bare(g, k, &inputs[k], values, err));
    for (uint32_t k = 0; k < g->n_inputs; k++)
        TRY(check_dims(g, k, &inputs[k], values, err));
    return fmt_dims_ok(g->dims, err);
}

/* ---- values ---- */

static bool has_value(const ir_tensor *t) { return t->f || t->i; }

static void drop(eval *e, ir_tensor *t)
{
    if (has_value(t))
        e->held_bytes -= (size_t)t->elems * 8;
    ir_tensor_done(t);
}

/* Zeroed tensor of a node's type for the bound sizes, within the cap. */
static rtx_status make(eval *e, ir_id id, ir_tensor *out)
{
    const ir_type *t = ir_type_of(e->g, id);
    const char *op = ir_op_get(ir_op_of(e->g, id))->name;
    int64_t dim[FMT_RANK_MAX] = {0}, elems = 1;
    bool empty = false;
    for (int k = 0; k < t->rank; k++) {
        TRY(dim_value(e->g, t->dim[k], e->syms, op, &dim[k], e->err));
        if (dim[k] < 0)
            return FAIL(e->err, INVALID, "%s: axis %d has size %lld", op, k, (long long)dim[k]);
        empty = empty || dim[k] == 0;
    }
    for (int k = 0; k < t->rank && !empty; k++)
        if (__builtin_mul_overflow(elems, dim[k], &elems) || elems > FMT_DIM_LIMIT)
            return FAIL(e->err, LIMIT, "%s: more than %lld elements", op, (long long)FMT_DIM_LIMIT);
    size_t bytes = empty ? 0 : (size_t)elems * 8;
    if (e->max_bytes && (e->held_bytes > e->max_bytes || bytes > e->max_bytes - e->held_bytes))
        return FAIL(e->err, LIMIT, "%s: %zu bytes on top of %zu exceed the evaluator's cap of %zu",
                    op, bytes, e->held_bytes, e->max_bytes);
    TRY(ir_tensor_new(t->dtype, t->rank, dim, out, e->err));
    e->held_bytes += bytes;
    return RTX_OK;
}

static rtx_status visit(eval *e, ir_id id, const ir_tensor *value)
{
    if (e->visit && !e->visit(e->ctx, id, value))
        return FAIL(e->err, CANCELLED, "stopped by the caller");
    return RTX_OK;
}

static rtx_status load_const(eval *e, ir_id id)
{
    ir_tensor *out = &e->values[id];
    TRY(make(e, id, out));
    ir_tensor_load(ir_const_of(e->g, id)->data, out);
    return visit(e, id, out);
}

/* The value of a node that stands before the current one. */
static rtx_status fetch(eval *e, ir_id id, const ir_tensor **out)
{
    if (ir_op_of(e->g, id) == IR_const && !has_value(&e->values[id]))
        TRY(load_const(e, id));
    *out = &e->values[id];
    if (ir_op_of(e->g, id) == IR_input)
        for (uint32_t k = 0; k < e->g->n_inputs; k++)
            if (e->g->inputs[k].id == id)
                *out = &e->inputs[k];
    return RTX_OK;
}

static rtx_status magnitude(const ir_tensor *x, ir_tensor *out, rtx_err *err)
{
    TRY(ir_tensor_new(x->dtype, x->rank, x->dim, out, err));
    for (int64_t k = 0; k < x->elems; k++) {
        if (x->f)
            out->f[k] = x->f[k] < 0 ? -x->f[k] : x->f[k];
        else
            out->i[k] = x->i[k] < 0 ? (int64_t)(0 - (uint64_t)x->i[k]) : x->i[k];
    }
    return RTX_OK;
}

static bool sums(ir_op op)
{
    return op == IR_dot || op == IR_reduce_sum || op == IR_reduce_mean || op == IR_cumsum;
}

/* The same op over magnitudes: of the inputs where it sums, of the sums before it where it is a view. */
static rtx_status eval_abs(eval *e, ir_id id, const ir_eval_call *call)
{
    ir_tensor inputs[2] = {0}, *out = &e->abs[id];
    ir_eval_call c = *call;
    c.out = out;
    rtx_status status = make(e, id, out);
    for (uint32_t k = 0; k < c.n_in && status == RTX_OK; k++) {
        c.in[k] = &e->abs[ir_in(e->g, id, k)];
        if (sums(c.op)) {
            status = magnitude(call->in[k], &inputs[k], e->err);
            c.in[k] = &inputs[k];
        }
    }
    if (status == RTX_OK)
        status = ir_eval_get(c.op)(&c);
    ir_tensor_done(&inputs[0]);
    ir_tensor_done(&inputs[1]);
    return status;
}

static rtx_status eval_node(eval *e, ir_id id)
{
    const ir_node *n = ir_node_get(e->g, id);
    ir_eval_call c = {.op = (ir_op)n->op,
                      .n_in = n->n_in,
                      .attrs = ir_attrs_of(e->g, id),
                      .out = &e->values[id],
                      .err = e->err};
    const char *name = ir_op_get(c.op)->name;
    for (int k = 0; k < c.attrs->n_dims; k++)
        TRY(dim_value(e->g, c.attrs->dims[k], e->syms, name, &c.dims[k], e->err));
    for (int k = 0; k < c.attrs->n_sizes; k++)
        TRY(dim_value(e->g, c.attrs->sizes[k], e->syms, name, &c.sizes[k], e->err));
    for (uint32_t k = 0; k < n->n_in; k++)
        TRY(fetch(e, ir_in(e->g, id, k), &c.in[k]));
    TRY(make(e, id, c.out));
    TRY(ir_eval_get(c.op)(&c));
    if (e->want_abs[id])
        TRY(eval_abs(e, id, &c));
    return visit(e, id, c.out);
}

static void release_inputs(eval *e, ir_id id)
{
    for (uint32_t k = 0; k < e->g->nodes[id].n_in; k++) {
        ir_id in = ir_in(e->g, id, k);
        if (--e->uses[in] == 0) {
            drop(e, &e->values[in]);
            drop(e, &e->abs[in]);
        }
    }
}

static rtx_status walk_nodes(eval *e)
{
    const ir_graph *g = e->g;
    for (uint32_t k = 0; k < g->n_inputs; k++)
        TRY(visit(e, g->inputs[k].id, &e->inputs[k]));
    for (ir_id id = 1; id < g->n_nodes; id++) {
        ir_op op = ir_op_of(g, id);
        if (!e->live[id] || op == IR_input || op == IR_const)
            continue;
        TRY(eval_node(e, id));
        release_inputs(e, id);
    }
    return RTX_OK;
}

/* ---- the walk's tables ---- */

static rtx_status prepare(eval *e, bool with_abs)
{
    const ir_graph *g = e->g;
    TRY_ALLOC(e->values = base_zalloc_array(BASE_TAG_IR, g->n_nodes, sizeof *e->values), e->err);
    TRY_ALLOC(e->abs = base_zalloc_array(BASE_TAG_IR, g->n_nodes, sizeof *e->abs), e->err);
    TRY_ALLOC(e->want_abs = base_zalloc(BASE_TAG_IR, g->n_nodes), e->err);
    TRY_ALLOC(e->live = base_zalloc(BASE_TAG_IR, g->n_nodes), e->err);
    TRY_ALLOC(e->uses = base_zalloc_array(BASE_TAG_IR, g->n_nodes, sizeof *e->uses), e->err);
    for (uint32_t k = 0; k < g->n_outputs; k++) {
        e->live[g->outputs[k].id] = 1;
        e->uses[g->outputs[k].id]++;
        e->want_abs[g->outputs[k].id] = with_abs;
    }
    for (ir_id id = g->n_nodes - 1; id > 0; id--) {
        if (!e->live[id])
            continue;
        bool view = ir_op_get(ir_op_of(g, id))->view;
        for (uint32_t k = 0; k < g->nodes[id].n_in; k++) {
            e->live[ir_in(g, id, k)] = 1;
            e->uses[ir_in(g, id, k)]++;
            e->want_abs[ir_in(g, id, k)] |= view && e->want_abs[id];
        }
    }
    for (ir_id id = 1; id < g->n_nodes; id++) { /* views of no sum have no sums of magnitudes */
        ir_op op = ir_op_of(g, id);
        e->want_abs[id] &= sums(op) || (ir_op_get(op)->view && e->want_abs[ir_in(g, id, 0)]);
    }
    return RTX_OK;
}

static void finish(eval *e)
{
    for (ir_id id = 1; id < e->g->n_nodes; id++) {
        if (e->values)
            drop(e, &e->values[id]);
        if (e->abs)
            drop(e, &e->abs[id]);
    }
    void *parts[] = {e->values, e->abs, e->want_abs, e->live, e->uses};
    for (size_t k = 0; k < COUNT_OF(parts); k++)
        base_free(parts[k]);
}

static rtx_status copy_tensor(const ir_tensor *x, ir_tensor *out, rtx_err *err)
{
    TRY(ir_tensor_new(x->dtype, x->rank, x->dim, out, err));
    if (x->elems)
        memcpy(x->f ? (void *)out->f : (void *)out->i, x->f ? (void *)x->f : (void *)x->i,
               (size_t)x->elems * 8);
    return RTX_OK;
}

/* Move the value of an output out of the table, or copy it while the table or the caller still needs it. */
static rtx_status take_output(eval *e, ir_id id, ir_tensor *out, ir_tensor *out_abs)
{
    const ir_tensor *x;
    TRY(fetch(e, id, &x));
    bool last = --e->uses[id] == 0, own = x == &e->values[id];
    ir_tensor *from[2] = {own ? &e->values[id] : NULL, &e->abs[id]}, *to[2] = {out, out_abs};
    for (int k = 0; k < 2; k++) {
        const ir_tensor *src = k ? &e->abs[id] : x;
        if (!to[k] || !has_value(src))
            continue;
        if (!last || !from[k]) {
            TRY(copy_tensor(src, to[k], e->err));
            continue;
        }
        *to[k] = *src;
        e->held_bytes -= (size_t)src->elems * 8;
        *from[k] = (ir_tensor){0};
    }
    return RTX_OK;
}

static rtx_status run(eval *e, ir_tensor *outputs, ir_tensor *abs_out)
{
    TRY(prepare(e, abs_out != NULL));
    TRY(walk_nodes(e));
    for (uint32_t k = 0; k < e->g->n_outputs; k++)
        TRY(take_output(e, e->g->outputs[k].id, &outputs[k], abs_out ? &abs_out[k] : NULL));
    return RTX_OK;
}

static void publish(ir_tensor *from, ir_tensor *to, uint32_t n, bool good)
{
    for (uint32_t k = 0; k < n; k++) {
        if (good && to)
            to[k] = from[k];
        else
            ir_tensor_done(&from[k]);
    }
}

/* All inputs against sizes that the caller gives. */
static rtx_status check_given(const ir_graph *g, const ir_tensor *inputs, const int64_t *syms,
                              rtx_err *err)
{
    TRY(ir_ok(g, err));
    for (uint32_t k = 0; k < g->n_inputs; k++) {
        TRY(check_type(g, k, &inputs[k], err));
        TRY(check_dims(g, k, &inputs[k], syms, err));
    }
    return RTX_OK;
}

rtx_status ir_eval(const ir_graph *g, const ir_tensor *inputs, const int64_t *syms,
                   ir_tensor *outputs, ir_tensor *abs_out, size_t max_bytes, ir_visit visit_fn,
                   void *ctx, rtx_err *err)
{
    uint32_t n = g->n_outputs;
    AUTO_FREE int64_t *bound = NULL;
    AUTO_FREE ir_tensor *results = NULL;
    TRY_ALLOC(results = base_zalloc_array(BASE_TAG_IR, 2 * (size_t)n, sizeof *results), err);
    if (syms) {
        TRY(check_given(g, inputs, syms, err));
    } else {
        TRY_ALLOC(bound = base_alloc_array(BASE_TAG_IR, fmt_sym_count(g->dims), sizeof *bound),
                  err);
        TRY(ir_bind(g, inputs, bound, err));
        syms = bound;
    }
    eval e = {.g = g,
              .inputs = inputs,
              .syms = syms,
              .max_bytes = max_bytes,
              .visit = visit_fn,
              .ctx = ctx,
              .err = err};
    rtx_status status = run(&e, results, abs_out ? results + n : NULL);
    finish(&e);
    publish(results, outputs, n, status == RTX_OK);
    publish(results + n, abs_out, n, status == RTX_OK);
    return status;
}
