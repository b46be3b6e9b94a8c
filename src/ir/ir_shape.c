/* Shape and dtype rules: one function per rule name in ops.def, and the table that joins them.
 *   layer    L1 ir; may include base, format
 *   entry    ir_rule_apply, used by the builder on new nodes and by the verifier on all of them */
#include "ir_rules.h"
#include <stdio.h>

/* ---- failure messages: op 'model node': reason; inputs with their types ---- */

static rtx_status fail(const ir_rule_call *c, rtx_status code, int line, const char *fmt, ...)
    RTX_PRINTF(4, 5);

static rtx_status fail(const ir_rule_call *c, rtx_status code, int line, const char *fmt, ...)
{
    TRY(fmt_dims_ok(c->dims, c->err)); /* sizes that could not be formed compare as different */
    char reason[200];
    va_list args;
    va_start(args, fmt);
    vsnprintf(reason, sizeof reason, fmt, args);
    va_end(args);
    AUTO_BUF base_buf types;
    base_buf_init(&types, BASE_TAG_IR, 200);
    for (uint32_t k = 0; k < c->n_in; k++) {
        base_buf_puts(&types, k ? ", " : "; inputs ");
        ir_type_print(c->dims, c->in[k], &types);
    }
    bool named = c->name && *c->name;
    return base_fail(c->err, code, "ir_shape.c", line, "%s%s%.60s%s: %s%s%s",
                     ir_op_get(c->op)->name, named ? " '" : "", named ? c->name : "",
                     named ? "'" : "", reason, types.data ? types.data : "",
                     types.over_max ? "…" : "");
}
#define BAD(c, code, ...) fail((c), RTX_##code, __LINE__, __VA_ARGS__)

/* ---- parts of rules ---- */

/* Sizes a and b are one; a size bound on the way takes effect. */
static bool same_dim(const ir_rule_call *c, fmt_dim a, fmt_dim b)
{
    if (a == b)
        return true;
    if (c->may_bind)
        return fmt_dim_unify(c->dims, a, b);
    return fmt_dim_resolve(c->dims, a) == fmt_dim_resolve(c->dims, b);
}

static bool same_shape(const ir_rule_call *c, const ir_type *a, const ir_type *b)
{
    bool same = a->rank == b->rank;
    for (int k = 0; same && k < a->rank; k++)
        same = same_dim(c, a->dim[k], b->dim[k]);
    return same;
}

static rtx_status inputs_alike(const ir_rule_call *c, uint32_t from)
{
    for (uint32_t k = from + 1; k < c->n_in; k++) {
        if (c->in[k]->dtype != c->in[from]->dtype)
            return BAD(c, INVALID, "dtypes differ");
        if (!same_shape(c, c->in[from], c->in[k]))
            return BAD(c, INVALID, "shapes differ");
    }
    return RTX_OK;
}

enum { F32 = 1, INT = 2, BOOL = 4, HALF = 8, ANY = 15 };

static int dtype_bit(fmt_dtype t)
{
    switch (t) {
    case FMT_F32:
        return F32;
    case FMT_I64:
    case FMT_I32:
        return INT;
    case FMT_BOOL:
        return BOOL;
    case FMT_F16:
    case FMT_BF16:
    case FMT_F64:
        return HALF;
    default:
        return 0;
    }
}

static rtx_status need(const ir_rule_call *c, uint32_t k, int dtypes)
{
    fmt_dtype t = c->in[k]->dtype;
    if (dtype_bit(t) & dtypes)
        return RTX_OK;
    if (dtype_bit(t) == BOOL)
        return BAD(c, INVALID, "not defined for bool");
    return BAD(c, UNSUPPORTED, "dtype %s is not supported here", fmt_dtype_name(t));
}

static rtx_status fix_axis(const ir_rule_call *c, int64_t *axis, int rank)
{
    if (*axis < -rank || *axis >= rank)
        return BAD(c, INVALID, "axis %lld is not in [%d, %d)", (long long)*axis, -rank, rank);
    *axis += *axis < 0 ? rank : 0;
    return RTX_OK;
}

static void drop_axis(ir_type *t, int64_t axis)
{
    t->rank--;
    for (int k = (int)axis; k < t->rank; k++)
        t->dim[k] = t->dim[k + 1];
}

static rtx_status push_dim(const ir_rule_call *c, ir_type *t, fmt_dim d)
{
    if (t->rank == FMT_RANK_MAX)
        return BAD(c, UNSUPPORTED, "result has more than %d axes", FMT_RANK_MAX);
    t->dim[t->rank++] = d;
    return RTX_OK;
}

/* The expression never falls below v, or never rises above it. */
static bool at_least(const ir_rule_call *c, fmt_dim d, int64_t v)
{
    int64_t lo, hi;
    fmt_dim_range(c->dims, d, &lo, &hi);
    return lo >= v;
}

static bool at_most(const ir_rule_call *c, fmt_dim d, int64_t v)
{
    int64_t lo, hi;
    fmt_dim_range(c->dims, d, &lo, &hi);
    return hi <= v;
}

static void set_dims(ir_rule_call *c, fmt_dtype t, const fmt_dim *dims, int rank)
{
    c->out = (ir_type){.dtype = t, .rank = (uint8_t)rank};
    if (rank)
        memcpy(c->out.dim, dims, (size_t)rank * sizeof *dims);
}

static fmt_dim product(fmt_dims *p, const fmt_dim *dims, int rank)
{
    fmt_dim n = fmt_dim_const(p, 1);
    for (int k = 0; k < rank; k++)
        n = fmt_dim_mul(p, n, dims[k]);
    return n;
}

/* ---- sources ---- */

static rtx_status shape_given(ir_rule_call *c)
{
    return BAD(c, INVALID, "made by ir_input and ir_const only");
}

static rtx_status shape_dimvals(ir_rule_call *c)
{
    bool scalar = c->attrs.i[0] != 0;
    if (scalar && c->attrs.n_dims != 1)
        return BAD(c, INVALID, "a scalar has one value, not %d", c->attrs.n_dims);
    c->attrs.i[0] = scalar;
    fmt_dim n = fmt_dim_const(c->dims, c->attrs.n_dims);
    set_dims(c, FMT_I64, &n, !scalar);
    return RTX_OK;
}

static rtx_status shape_iota(ir_rule_call *c)
{
    TRY(fix_axis(c, &c->attrs.i[0], c->attrs.n_dims));
    set_dims(c, FMT_I64, c->attrs.dims, c->attrs.n_dims);
    return RTX_OK;
}

/* ---- elementwise ---- */

static rtx_status shape_same(ir_rule_call *c)
{
    const ir_op_info *info = ir_op_get(c->op);
    TRY(need(c, 0, F32 | INT));
    char cls = fmt_dtype_class(c->in[0]->dtype);
    if (info->elementwise && !*(cls == 'F' ? info->fexpr : info->iexpr))
        return BAD(c, INVALID, "not defined for %s", fmt_dtype_name(c->in[0]->dtype));
    TRY(inputs_alike(c, 0));
    c->out = *c->in[0];
    return RTX_OK;
}

static rtx_status shape_same_float(ir_rule_call *c)
{
    if (dtype_bit(c->in[0]->dtype) & (INT | BOOL))
        return BAD(c, INVALID, "needs a float, not %s", fmt_dtype_name(c->in[0]->dtype));
    TRY(need(c, 0, F32));
    TRY(inputs_alike(c, 0));
    if (c->op == IR_softmax && c->in[0]->rank == 0)
        return BAD(c, INVALID, "needs at least one axis");
    c->out = *c->in[0];
    return RTX_OK;
}

static rtx_status shape_logic(ir_rule_call *c)
{
    for (uint32_t k = 0; k < c->n_in; k++)
        if (c->in[k]->dtype != FMT_BOOL)
            return BAD(c, INVALID, "needs bool, not %s", fmt_dtype_name(c->in[k]->dtype));
    TRY(inputs_alike(c, 0));
    c->out = *c->in[0];
    return RTX_OK;
}

static rtx_status shape_test_float(ir_rule_call *c)
{
    TRY(shape_same_float(c));
    c->out.dtype = FMT_BOOL;
    return RTX_OK;
}

static rtx_status shape_compare(ir_rule_call *c)
{
    TRY(need(c, 0, c->op == IR_eq || c->op == IR_ne ? F32 | INT | BOOL : F32 | INT));
    TRY(inputs_alike(c, 0));
    c->out = *c->in[0];
    c->out.dtype = FMT_BOOL;
    return RTX_OK;
}

static rtx_status shape_cast(ir_rule_call *c)
{
    fmt_dtype to = (fmt_dtype)c->attrs.type;
    TRY(need(c, 0, ANY));
    if (!dtype_bit(to))
        return BAD(c, UNSUPPORTED, "cast to %s is not supported", fmt_dtype_name(to));
    c->out = *c->in[0];
    c->out.dtype = to;
    return RTX_OK;
}

static rtx_status shape_select(ir_rule_call *c)
{
    if (c->in[0]->dtype != FMT_BOOL)
        return BAD(c, INVALID, "the condition is bool, not %s", fmt_dtype_name(c->in[0]->dtype));
    TRY(need(c, 1, F32 | INT | BOOL));
    TRY(inputs_alike(c, 1));
    if (!same_shape(c, c->in[0], c->in[1]))
        return BAD(c, INVALID, "shapes differ");
    c->out = *c->in[1];
    return RTX_OK;
}

/* ---- views ---- */

static rtx_status shape_reshape(ir_rule_call *c)
{
    TRY(need(c, 0, ANY));
    set_dims(c, c->in[0]->dtype, c->attrs.dims, c->attrs.n_dims);
    fmt_dim from = product(c->dims, c->in[0]->dim, c->in[0]->rank),
            to = product(c->dims, c->out.dim, c->out.rank);
    TRY(fmt_dims_ok(c->dims, c->err));
    if (same_dim(c, from, to))
        return RTX_OK;
    AUTO_BUF base_buf text;
    base_buf_init(&text, BASE_TAG_IR, 160);
    ir_type_print(c->dims, &c->out, &text);
    if (fmt_dim_is_const(c->dims, from, NULL) && fmt_dim_is_const(c->dims, to, NULL))
        return BAD(c, INVALID, "to %s changes the number of elements", text.data ? text.data : "");
    return BAD(c, UNSUPPORTED, "to %s: equal element counts cannot be proven",
               text.data ? text.data : "");
}

static rtx_status shape_broadcast(ir_rule_call *c)
{
    const ir_type *x = c->in[0];
    TRY(need(c, 0, ANY));
    set_dims(c, x->dtype, c->attrs.dims, c->attrs.n_dims);
    if (c->out.rank < x->rank)
        return BAD(c, INVALID, "to fewer axes (%d)", c->out.rank);
    for (int k = 0; k < x->rank; k++) {
        fmt_dim to = c->out.dim[c->out.rank - x->rank + k];
        if (!fmt_dim_is(c->dims, x->dim[k], 1) && !same_dim(c, x->dim[k], to)) {
            AUTO_BUF base_buf text;
            base_buf_init(&text, BASE_TAG_IR, 160);
            ir_type_print(c->dims, &c->out, &text);
            return BAD(c, INVALID, "does not fit %s", text.data ? text.data : "");
        }
    }
    return RTX_OK;
}

static rtx_status shape_permute(ir_rule_call *c)
{
    const ir_type *x = c->in[0];
    TRY(need(c, 0, ANY));
    if (c->attrs.n_list != x->rank)
        return BAD(c, INVALID, "perm has %d entries for %d axes", c->attrs.n_list, x->rank);
    c->out = *x;
    unsigned seen = 0;
    for (int k = 0; k < x->rank; k++) {
        TRY(fix_axis(c, &c->attrs.list[k], x->rank));
        seen |= 1u << c->attrs.list[k];
        c->out.dim[k] = x->dim[c->attrs.list[k]];
    }
    return seen == (1u << x->rank) - 1 ? RTX_OK : BAD(c, INVALID, "perm names an axis twice");
}

/* Elements start, start + step, … (size of them) lie inside, as far as ranges can tell. */
static rtx_status slice_axis(const ir_rule_call *c, int k)
{
    fmt_dims *p = c->dims;
    fmt_dim start = c->attrs.dims[k], size = c->attrs.sizes[k], dim = c->in[0]->dim[k];
    int64_t step = c->attrs.list[k];
    if (step == 0 || step > FMT_DIM_LIMIT || step < -FMT_DIM_LIMIT)
        return BAD(c, INVALID, "step %lld on axis %d", (long long)step, k);
    if (fmt_dim_is(p, size, 0) || !at_least(c, size, 1))
        return at_most(c, size, -1) ? BAD(c, INVALID, "negative size on axis %d", k) : RTX_OK;
    fmt_dim last = fmt_dim_add(
        p, start,
        fmt_dim_mul(p, fmt_dim_sub(p, size, fmt_dim_const(p, 1)), fmt_dim_const(p, step)));
    fmt_dim ends[2] = {start, last};
    for (int e = 0; e < 2; e++)
        if (at_most(c, ends[e], -1) || at_least(c, fmt_dim_sub(p, ends[e], dim), 0))
            return BAD(c, INVALID, "reaches outside axis %d", k);
    return RTX_OK;
}

static rtx_status shape_slice(ir_rule_call *c)
{
    const ir_type *x = c->in[0];
    TRY(need(c, 0, ANY));
    if (c->attrs.n_dims != x->rank || c->attrs.n_sizes != x->rank || c->attrs.n_list != x->rank)
        return BAD(c, INVALID, "start, size and step need %d entries", x->rank);
    for (int k = 0; k < x->rank; k++)
        TRY(slice_axis(c, k));
    set_dims(c, x->dtype, c->attrs.sizes, x->rank);
    return RTX_OK;
}

/* ---- movement ---- */

static rtx_status shape_concat(ir_rule_call *c)
{
    TRY(need(c, 0, ANY));
    TRY(fix_axis(c, &c->attrs.i[0], c->in[0]->rank));
    int axis = (int)c->attrs.i[0];
    c->out = *c->in[0];
    for (uint32_t k = 1; k < c->n_in; k++) {
        const ir_type *x = c->in[k];
        if (x->dtype != c->out.dtype || x->rank != c->out.rank)
            return BAD(c, INVALID, "dtypes or ranks differ");
        for (int a = 0; a < x->rank; a++)
            if (a != axis && !same_dim(c, c->out.dim[a], x->dim[a]))
                return BAD(c, INVALID, "sizes of axis %d differ", a);
        c->out.dim[axis] = fmt_dim_add(c->dims, c->out.dim[axis], x->dim[axis]);
    }
    return RTX_OK;
}

static rtx_status need_indices(const ir_rule_call *c)
{
    TRY(need(c, 0, ANY));
    if (dtype_bit(c->in[1]->dtype) != INT)
        return BAD(c, INVALID, "indices are i64 or i32, not %s", fmt_dtype_name(c->in[1]->dtype));
    return RTX_OK;
}

static rtx_status shape_gather(ir_rule_call *c)
{
    const ir_type *x = c->in[0], *idx = c->in[1];
    TRY(need_indices(c));
    TRY(fix_axis(c, &c->attrs.i[0], x->rank));
    int axis = (int)c->attrs.i[0];
    set_dims(c, x->dtype, x->dim, axis);
    for (int k = 0; k < idx->rank; k++)
        TRY(push_dim(c, &c->out, idx->dim[k]));
    for (int k = axis + 1; k < x->rank; k++)
        TRY(push_dim(c, &c->out, x->dim[k]));
    return RTX_OK;
}

static rtx_status shape_gather_nd(ir_rule_call *c)
{
    const ir_type *x = c->in[0], *idx = c->in[1];
    int64_t batch = c->attrs.i[0], depth;
    TRY(need_indices(c));
    if (idx->rank == 0 || batch < 0 || batch >= MIN(idx->rank, x->rank))
        return BAD(c, INVALID, "%lld batch axes", (long long)batch);
    if (!fmt_dim_is_const(c->dims, idx->dim[idx->rank - 1], &depth))
        return BAD(c, UNSUPPORTED, "the last size of the indices is not constant");
    if (depth < 1 || depth > x->rank - batch)
        return BAD(c, INVALID, "the last size of the indices is not in [1, %lld]",
                   (long long)(x->rank - batch));
    for (int k = 0; k < batch; k++)
        if (!same_dim(c, x->dim[k], idx->dim[k]))
            return BAD(c, INVALID, "sizes of batch axis %d differ", k);
    set_dims(c, x->dtype, idx->dim, idx->rank - 1);
    for (int k = (int)(batch + depth); k < x->rank; k++)
        TRY(push_dim(c, &c->out, x->dim[k]));
    return RTX_OK;
}

static rtx_status shape_gather_elements(ir_rule_call *c)
{
    const ir_type *x = c->in[0], *idx = c->in[1];
    TRY(need_indices(c));
    if (x->rank != idx->rank)
        return BAD(c, INVALID, "ranks differ");
    TRY(fix_axis(c, &c->attrs.i[0], x->rank));
    for (int k = 0; k < x->rank; k++) { /* ONNX lets the indices be smaller on the other axes */
        bool fits = k == c->attrs.i[0] || x->dim[k] == idx->dim[k] ||
                    at_most(c, fmt_dim_sub(c->dims, idx->dim[k], x->dim[k]), 0) ||
                    same_dim(c, x->dim[k], idx->dim[k]);
        if (!fits)
            return BAD(c, INVALID, "indices are larger on axis %d", k);
    }
    c->out = *idx;
    c->out.dtype = x->dtype;
    return RTX_OK;
}

/* ---- reductions ---- */

static rtx_status shape_reduce(ir_rule_call *c)
{
    TRY(need(c, 0, F32 | INT));
    const ir_type *x = c->in[0];
    unsigned axes = 0;
    for (int k = 0; k < c->attrs.n_list; k++) {
        TRY(fix_axis(c, &c->attrs.list[k], x->rank));
        if (axes & 1u << c->attrs.list[k])
            return BAD(c, INVALID, "axis %lld is listed twice", (long long)c->attrs.list[k]);
        axes |= 1u << c->attrs.list[k];
    }
    c->out = (ir_type){.dtype = x->dtype};
    int n = 0;
    for (int k = 0; k < x->rank; k++) {
        if (axes & 1u << k)
            c->attrs.list[n++] = k;
        else
            c->out.dim[c->out.rank++] = x->dim[k];
    }
    return RTX_OK;
}

static rtx_status shape_reduce_float(ir_rule_call *c)
{
    TRY(need(c, 0, F32));
    return shape_reduce(c);
}

static rtx_status shape_arg_reduce(ir_rule_call *c)
{
    TRY(need(c, 0, F32 | INT));
    TRY(fix_axis(c, &c->attrs.i[0], c->in[0]->rank));
    if (fmt_dim_is(c->dims, c->in[0]->dim[c->attrs.i[0]], 0))
        return BAD(c, INVALID, "the axis is empty");
    c->attrs.i[1] = c->attrs.i[1] != 0;
    c->out = *c->in[0];
    c->out.dtype = FMT_I64;
    drop_axis(&c->out, c->attrs.i[0]);
    return RTX_OK;
}

static rtx_status shape_same_axis(ir_rule_call *c)
{
    TRY(need(c, 0, F32 | INT));
    TRY(fix_axis(c, &c->attrs.i[0], c->in[0]->rank));
    c->attrs.i[1] = c->attrs.i[1] != 0;
    c->attrs.i[2] = c->attrs.i[2] != 0;
    c->out = *c->in[0];
    return RTX_OK;
}

static rtx_status shape_topk(ir_rule_call *c)
{
    TRY(need(c, 0, F32 | INT));
    TRY(fix_axis(c, &c->attrs.i[0], c->in[0]->rank));
    if (c->attrs.n_dims != 1)
        return BAD(c, INVALID, "k is one size");
    fmt_dim k = c->attrs.dims[0], dim = c->in[0]->dim[c->attrs.i[0]];
    if (at_most(c, k, -1) || at_least(c, fmt_dim_sub(c->dims, k, dim), 1))
        return BAD(c, INVALID, "k is larger than the axis");
    c->attrs.i[1] = c->attrs.i[1] != 0;
    c->out = *c->in[0];
    c->out.dtype = FMT_I64;
    c->out.dim[c->attrs.i[0]] = k;
    return RTX_OK;
}

static rtx_status shape_dot(ir_rule_call *c)
{
    const ir_type *a = c->in[0], *b = c->in[1];
    TRY(need(c, 0, F32));
    TRY(need(c, 1, F32));
    int r = a->rank;
    if (r < 2 || r != b->rank)
        return BAD(c, INVALID, "needs equal ranks of at least 2");
    if (!same_dim(c, a->dim[r - 1], b->dim[r - 2]))
        return BAD(c, INVALID, "inner sizes differ");
    for (int k = 0; k < r - 2; k++)
        if (!same_dim(c, a->dim[k], b->dim[k]))
            return BAD(c, INVALID, "sizes of batch axis %d differ", k);
    c->out = *a;
    c->out.dim[r - 1] = b->dim[r - 1];
    return RTX_OK;
}

/* ---- raised ---- */

static rtx_status shape_norm(ir_rule_call *c)
{
    const ir_type *x = c->in[0];
    for (uint32_t k = 0; k < c->n_in; k++)
        TRY(need(c, k, F32));
    if (x->rank == 0)
        return BAD(c, INVALID, "needs at least one axis");
    for (uint32_t k = 1; k < c->n_in; k++)
        if (c->in[k]->rank != 1 || !same_dim(c, c->in[k]->dim[0], x->dim[x->rank - 1]))
            return BAD(c, INVALID, "gamma and beta have the size of the last axis");
    c->out = *x;
    return RTX_OK;
}

static rtx_status shape_attention(ir_rule_call *c)
{
    enum { B, H, S, D };
    const ir_type *q = c->in[0], *k = c->in[1], *v = c->in[2];
    for (uint32_t n = 0; n < c->n_in; n++) {
        TRY(need(c, n, F32));
        if (c->in[n]->rank != 4)
            return BAD(c, INVALID, "needs rank 4");
    }
    if (!same_dim(c, q->dim[B], k->dim[B]) || !same_dim(c, q->dim[B], v->dim[B]) ||
        !same_dim(c, k->dim[H], v->dim[H]) || !same_dim(c, k->dim[S], v->dim[S]) ||
        !same_dim(c, q->dim[D], k->dim[D]))
        return BAD(c, INVALID, "sizes of q, k and v do not fit");
    int64_t heads, groups;
    bool grouped = fmt_dim_is_const(c->dims, q->dim[H], &heads) &&
                   fmt_dim_is_const(c->dims, k->dim[H], &groups);
    if (grouped ? groups < 1 || heads % groups : !same_dim(c, q->dim[H], k->dim[H]))
        return BAD(c, INVALID, "heads of q are not a multiple of heads of k");
    if (c->n_in == 4) {
        const ir_type *m = c->in[3];
        if (!same_dim(c, m->dim[B], q->dim[B]) || !same_dim(c, m->dim[H], q->dim[H]) ||
            !same_dim(c, m->dim[2], q->dim[S]) || !same_dim(c, m->dim[3], k->dim[S]))
            return BAD(c, INVALID, "the mask is not [B,H,Sq,Sk]");
    }
    c->attrs.i[0] = c->attrs.i[0] != 0;
    c->attrs.i[1] = c->attrs.i[1] != 0;
    c->out = *q;
    c->out.dim[D] = v->dim[D];
    return RTX_OK;
}

static rtx_status shape_rope(ir_rule_call *c)
{
    TRY(need(c, 0, F32));
    TRY(inputs_alike(c, 0));
    const ir_type *x = c->in[0];
    int64_t d;
    if (x->rank == 0 || (fmt_dim_is_const(c->dims, x->dim[x->rank - 1], &d) && d % 2))
        return BAD(c, INVALID, "the last size must be even");
    c->attrs.i[0] = c->attrs.i[0] != 0;
    c->out = *x;
    return RTX_OK;
}

/* ---- application ---- */

static rtx_status (*const rules[IR_OP_COUNT])(ir_rule_call *) = {
    NULL,
#define OP(name, lo, hi, shape, attrs, level, dialect, fexpr, iexpr) shape_##shape,
#include "ops.def"
#undef OP
};

rtx_status ir_type_check(fmt_dims *dims, const char *what, const ir_type *t, rtx_err *err)
{
    TRY(fmt_dims_ok(dims, err));
    if (t->rank > FMT_RANK_MAX)
        return FAIL(err, UNSUPPORTED, "%s: rank %d is above %d", what, t->rank, FMT_RANK_MAX);
    if (!dtype_bit(t->dtype))
        return FAIL(err, UNSUPPORTED, "%s: dtype %s is not supported", what,
                    fmt_dtype_name(t->dtype));
    int64_t elems = 1;
    for (int k = 0; k < t->rank; k++) {
        int64_t lo, hi;
        if (t->dim[k] < 0)
            return FAIL(err, INVALID, "%s: size of axis %d is not given", what, k);
        fmt_dim_range(dims, t->dim[k], &lo, &hi);
        if (hi < 0)
            return FAIL(err, INVALID, "%s: size of axis %d is negative", what, k);
        if (__builtin_mul_overflow(elems, MAX(lo, 0), &elems) || elems > FMT_DIM_LIMIT)
            return FAIL(err, LIMIT, "%s: more than %lld elements", what, (long long)FMT_DIM_LIMIT);
    }
    return RTX_OK;
}

rtx_status ir_rule_apply(ir_rule_call *c)
{
    const ir_op_info *info = ir_op_get(c->op);
    if (c->op <= IR_NONE || c->op >= IR_OP_COUNT)
        return FAIL(c->err, INVALID, "no op number %d", (int)c->op);
    if (c->n_in < info->min_in || c->n_in > info->max_in)
        return FAIL(c->err, INVALID, "%s: %u inputs, needs %d to %d", info->name, c->n_in,
                    info->min_in, info->max_in);
    if (c->attrs.n_list > FMT_RANK_MAX || c->attrs.n_dims > FMT_RANK_MAX ||
        c->attrs.n_sizes > FMT_RANK_MAX)
        return FAIL(c->err, INVALID, "%s: attribute list above %d entries", info->name,
                    FMT_RANK_MAX);
    for (int k = 0; k < c->attrs.n_dims + c->attrs.n_sizes; k++)
        if ((k < c->attrs.n_dims ? c->attrs.dims[k] : c->attrs.sizes[k - c->attrs.n_dims]) < 0)
            return fmt_dims_ok(c->dims, c->err) == RTX_OK ? BAD(c, INVALID, "a size is not given")
                                                          : fmt_dims_ok(c->dims, c->err);
    TRY(rules[c->op](c));
    for (int k = 0; k < c->out.rank; k++)
        c->out.dim[k] = fmt_dim_resolve(c->dims, c->out.dim[k]);
    return ir_type_check(c->dims, info->name, &c->out, c->err);
}
