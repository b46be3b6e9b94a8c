/* ONNX operators that reduce, normalise, scan or select along axes. */
#include "fe_onnx.h"

/* ---- reductions ---- */

/* What happens around the sum, maximum, …: in this order, before and after it. */
enum { R_PLAIN, R_ABS = 1, R_SQUARE = 2, R_SQRT = 4, R_LOG = 8, R_EXP = 16 };
#define R(op, how) ((int)(op) | (how) << 16)

static bool reduce_axes(fe_node *n, uint32_t rank, int64_t *out, uint32_t *out_n)
{
    int64_t axes[FMT_RANK_MAX];
    uint32_t count = FMT_RANK_MAX;
    bool given = fe_has(n, 1) ? fe_need_ints(n, 1, "axes", axes, &count)
                              : fe_attr_ints(n, "axes", axes, FMT_RANK_MAX, &count);
    bool on[FMT_RANK_MAX] = {0};
    if (!fe_good(n))
        return false;
    if (!given)
        count = 0;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t ax;
        if (!fe_axis(n, axes[i], rank, &ax))
            return false;
        on[ax] = true;
    }
    bool all = count == 0 && !fe_attr_i(n, "noop_with_empty_axes", 0);
    *out_n = 0;
    for (uint32_t i = 0; i < rank; i++)
        if (on[i] || all)
            out[(*out_n)++] = i;
    return true;
}

/* Booleans: any and all; integers: a mean that truncates. */
static ir_id reduce_by_type(fe_node *n, ir_op op, ir_id x, const int64_t *axes, uint32_t n_axes,
                            bool keep)
{
    const ir_type t = *ir_type_of(n->g, x);
    char cls = fmt_dtype_class((fmt_dtype)t.dtype);
    if (n_axes == 0)
        return x;
    if (cls == 'B') {
        op = op == IR_reduce_max ? IR_reduce_sum : IR_reduce_prod;
        return ir_cast(n->g, ir_reduce(n->g, op, ir_cast(n->g, x, FMT_I64), axes, n_axes, keep),
                       FMT_BOOL);
    }
    if (cls == 'I' && op == IR_reduce_mean) {
        fmt_dim over = fmt_dim_const(n->d, 1);
        for (uint32_t i = 0; i < n_axes; i++)
            over = fmt_dim_mul(n->d, over, t.dim[axes[i]]);
        ir_id count = ir_cast(n->g, ir_dimvals(n->g, &over, 1, true), (fmt_dtype)t.dtype);
        x = ir_reduce(n->g, IR_reduce_sum, x, axes, n_axes, keep);
        return fe_good(n) ? fe_ew2(n, IR_div, x, count) : 0;
    }
    return ir_reduce(n->g, op, x, axes, n_axes, keep);
}

/* log(sum(exp(x))) without overflow: the maximum is taken out first. An infinite one stays, as inf - inf is no number. */
static ir_id log_sum_exp(fe_node *n, ir_id x, const int64_t *axes, uint32_t n_axes, bool keep)
{
    ir_id top = ir_reduce(n->g, IR_reduce_max, x, axes, n_axes, true),
          endless = ir_emit1(n->g, IR_isinf, top), zero = fe_const_like(n, top, 0);
    if (!fe_good(n))
        return 0;
    top = fe_ew(n, IR_select, (ir_id[]){endless, zero, top}, 3);
    ir_id rest = ir_emit1(n->g, IR_exp, fe_ew2(n, IR_sub, x, top));
    rest = ir_emit1(n->g, IR_log, ir_reduce(n->g, IR_reduce_sum, rest, axes, n_axes, keep));
    if (!fe_good(n))
        return 0;
    const ir_type t = *ir_type_of(n->g, rest);
    return fe_ew2(n, IR_add, rest, ir_reshape(n->g, top, t.dim, t.rank));
}

static bool prod_known(fe_node *n)
{
    uint32_t count;
    const fmt_dim *c = fe_content(n, 0, &count);
    if (!c || n->op->arg != R(IR_reduce_prod, R_PLAIN) || fe_type(n, 0)->rank != 1)
        return false;
    bool keep = fe_attr_i(n, "keepdims", 1) != 0;
    ir_type t = {.dtype = fe_type(n, 0)->dtype, .rank = keep};
    t.dim[0] = fmt_dim_const(n->d, 1);
    fmt_dim product = fmt_dim_const(n->d, 1);
    for (uint32_t i = 0; i < count; i++)
        if (!fe_dim_calc(n->d, IR_mul, product, c[i], &product))
            return false;
    if (!fe_wrap_content(n, (fmt_dtype)t.dtype, &product, 1))
        return false;
    fe_set_known(n, 0, &t, &product, 1);
    return true;
}

static void op_reduce(fe_node *n)
{
    ir_op op = (ir_op)(n->op->arg & 0xffff);
    int how = n->op->arg >> 16;
    int64_t axes[FMT_RANK_MAX];
    uint32_t n_axes;
    bool keep = fe_attr_i(n, "keepdims", 1) != 0;
    if (!reduce_axes(n, fe_type(n, 0)->rank, axes, &n_axes))
        return;
    if (n_axes && prod_known(n))
        return;
    fmt_dtype dt = (fmt_dtype)fe_type(n, 0)->dtype;
    if (fmt_dtype_class(dt) == 'I' && (how & (R_SQRT | R_LOG | R_EXP))) {
        fe_refuse(n, "of %s, where f32 is supported; cast its input to float and the result back",
                  fmt_dtype_name(dt));
        return;
    }
    ir_id x = fe_in(n, 0);
    if (n_axes == 0 && (how & R_EXP)) {
        fe_set(n, 0, x);
        return;
    }
    if (how & R_EXP) {
        fe_set(n, 0, log_sum_exp(n, x, axes, n_axes, keep));
        return;
    }
    if (how & R_ABS)
        x = ir_emit1(n->g, IR_abs, x);
    if (how & R_SQUARE)
        x = ir_emit2(n->g, IR_mul, x, x);
    x = reduce_by_type(n, op, x, axes, n_axes, keep);
    if (how & R_SQRT)
        x = ir_emit1(n->g, IR_sqrt, x);
    if (how & R_LOG)
        x = ir_emit1(n->g, IR_log, x);
    fe_set(n, 0, x);
}

/* ---- scans and selections ---- */

static void op_arg(fe_node *n)
{
    ir_type t = *fe_type(n, 0);
    ir_attrs a = {0};
    uint32_t axis;
    if (!fe_axis(n, fe_attr_i(n, "axis", 0), t.rank, &axis))
        return;
    a.i[0] = axis;
    a.i[1] = fe_attr_i(n, "select_last_index", 0) != 0;
    ir_id x = fe_in(n, 0), y = ir_emit(n->g, (ir_op)n->op->arg, &x, 1, &a);
    t.dim[axis] = fmt_dim_const(n->d, 1);
    fe_set(n, 0, fe_attr_i(n, "keepdims", 1) ? ir_reshape(n->g, y, t.dim, t.rank) : y);
}

static void op_cumsum(fe_node *n)
{
    int64_t ax;
    uint32_t one = 1, axis;
    ir_attrs a = {0};
    if (!fe_need_ints(n, 1, "the axis", &ax, &one) || one != 1 ||
        !fe_axis(n, ax, fe_type(n, 0)->rank, &axis))
        return;
    a.i[0] = axis;
    a.i[1] = fe_attr_i(n, "exclusive", 0) != 0;
    a.i[2] = fe_attr_i(n, "reverse", 0) != 0;
    ir_id x = fe_in(n, 0);
    fe_set(n, 0, ir_emit(n->g, IR_cumsum, &x, 1, &a));
}

static void op_topk(fe_node *n)
{
    uint32_t axis, count = 1;
    ir_attrs a = {.n_dims = 1};
    if (!fe_axis(n, fe_attr_i(n, "axis", -1), fe_type(n, 0)->rank, &axis))
        return;
    if (n->opset < 10) {
        a.dims[0] = fmt_dim_const(n->d, MAX(0, MIN(fe_attr_i(n, "k", 0), FMT_DIM_LIMIT - 1)));
    } else {
        const fmt_dim *k = fe_need(n, 1, "k", &count);
        if (!k || count != 1)
            return;
        a.dims[0] = k[0];
    }
    a.i[0] = axis;
    a.i[1] = fe_attr_i(n, "largest", 1) != 0;
    ir_id x = fe_in(n, 0), at = ir_emit(n->g, IR_topk, &x, 1, &a);
    fe_set(n, 1, at);
    ir_attrs take = {0};
    take.i[0] = axis;
    fe_set(n, 0, ir_emit(n->g, IR_gather_elements, (ir_id[]){x, at}, 2, &take));
}

/* ---- normalisation ---- */

/* Scale or bias as one row over the normalised axes. */
static ir_id norm_row(fe_node *n, uint32_t k, const ir_type *t, uint32_t axis, fmt_dtype dt)
{
    ir_id w = ir_cast(n->g, fe_in(n, k), dt);
    fmt_dim row = fe_dim_product(n->d, t->dim + axis, t->rank - axis);
    w = fe_expand(n, w, t->dim + axis, t->rank - axis);
    return fe_good(n) ? ir_reshape(n->g, w, &row, 1) : 0;
}

/* Outputs of training: the mean and 1/sqrt(var + eps), with the normalised axes kept as 1. */
static void norm_statistics(fe_node *n, ir_id x, uint32_t axis, double eps)
{
    const ir_type t = *ir_type_of(n->g, x);
    int64_t axes[FMT_RANK_MAX];
    uint32_t n_axes = 0;
    bool wanted = (n->n_out > 1 && n->out[1]) || (n->n_out > 2 && n->out[2]);
    for (uint32_t i = axis; i < t.rank; i++)
        axes[n_axes++] = i;
    if (!wanted || !fe_good(n))
        return;
    ir_id mean = ir_reduce(n->g, IR_reduce_mean, x, axes, n_axes, true),
          off = fe_ew2(n, IR_sub, x, mean);
    ir_id var =
        ir_reduce(n->g, IR_reduce_mean, ir_emit2(n->g, IR_mul, off, off), axes, n_axes, true);
    if (!fe_good(n))
        return;
    fe_set(n, 1, mean);
    fe_set(n, 2, ir_emit1(n->g, IR_rsqrt, fe_ew2(n, IR_add, var, fe_const_like(n, var, eps))));
}

/* LayerNormalization and RMSNormalization: the axes from `axis` on are one row of the raised op. */
static void op_norm(fe_node *n)
{
    const ir_type t = *fe_type(n, 0);
    fmt_dtype dt = (fmt_dtype)t.dtype;
    ir_attrs a = {0};
    uint32_t axis, n_in = 1;
    if (!fe_axis(n, fe_attr_i(n, "axis", -1), t.rank, &axis))
        return;
    if (fe_attr_i(n, "stash_type", 1) == 1 && (dt == FMT_F16 || dt == FMT_BF16))
        dt = FMT_F32;
    a.f[0] = fe_attr_f(n, "epsilon", 1e-5);
    fmt_dim flat[2] = {fe_dim_product(n->d, t.dim, axis),
                       fe_dim_product(n->d, t.dim + axis, t.rank - axis)};
    ir_id x = ir_cast(n->g, fe_in(n, 0), dt), in[3] = {x};
    if (axis + 1u < t.rank)
        in[0] = ir_reshape(n->g, x, flat, 2);
    in[n_in++] = norm_row(n, 1, &t, axis, dt);
    if (fe_has(n, 2) && fe_good(n))
        in[n_in++] = norm_row(n, 2, &t, axis, dt);
    if (!fe_good(n))
        return;
    ir_id y = ir_emit(n->g, (ir_op)n->op->arg, in, n_in, &a);
    fe_set(n, 0, ir_cast(n->g, ir_reshape(n->g, y, t.dim, t.rank), (fmt_dtype)t.dtype));
    if (n->op->arg == IR_layernorm)
        norm_statistics(n, x, axis, a.f[0]);
}

/* ---- the table ---- */

const fe_op fe_ops_reduce[] = {
    {"ArgMax", 1, 1, 1, op_arg, IR_argmax},
    {"ArgMin", 1, 1, 1, op_arg, IR_argmin},
    {"CumSum", 11, 2, 2, op_cumsum, 0},
    {"LayerNormalization", 17, 2, 3, op_norm, IR_layernorm},
    {"RMSNormalization", 23, 2, 2, op_norm, IR_rmsnorm},
    {"ReduceL1", 1, 1, 2, op_reduce, R(IR_reduce_sum, R_ABS)},
    {"ReduceL2", 1, 1, 2, op_reduce, R(IR_reduce_sum, R_SQUARE | R_SQRT)},
    {"ReduceLogSum", 1, 1, 2, op_reduce, R(IR_reduce_sum, R_LOG)},
    {"ReduceLogSumExp", 1, 1, 2, op_reduce, R(IR_reduce_sum, R_EXP)},
    {"ReduceMax", 1, 1, 2, op_reduce, R(IR_reduce_max, R_PLAIN)},
    {"ReduceMean", 1, 1, 2, op_reduce, R(IR_reduce_mean, R_PLAIN)},
    {"ReduceMin", 1, 1, 2, op_reduce, R(IR_reduce_min, R_PLAIN)},
    {"ReduceProd", 1, 1, 2, op_reduce, R(IR_reduce_prod, R_PLAIN)},
    {"ReduceSum", 1, 1, 2, op_reduce, R(IR_reduce_sum, R_PLAIN)},
    {"ReduceSumSquare", 1, 1, 2, op_reduce, R(IR_reduce_sum, R_SQUARE)},
    {"TopK", 1, 1, 2, op_topk, 0},
    {NULL, 0, 0, 0, NULL, 0},
};
