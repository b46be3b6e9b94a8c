/* pass fold: constants are computed, size arithmetic becomes values of sizes, exact algebra disappears.
 *   layer     L2 passes; may include base, format, ir
 *   entry     pass_fold; pass_emit is the same set of rules for other passes
 *   rules     a rule looks at one operation over already simplified inputs and returns a simpler node or 0. Views are in
 *             pass_fold_view.c, index arithmetic in pass_fold_index.c
 *   rounding  a folded constant is computed in double and rounded once, as the operation alone would be at run time */
#include "pass_match.h"
#include <math.h>

enum { FOLD_ROUNDS_MAX = 8, FOLD_FREE_BYTES = 1 << 20, FOLD_SMALL_BYTES = 64 << 10 };

/* ---- constants ---- */

/* Small tables that are not stored: broadcast, iota. Written out only when something constant consumes them. */
static ir_id as_const(ir_graph *g, ir_id id);

static bool may_fold(const ir_graph *g, const ir_type *t, int64_t limit_bytes)
{
    int64_t n;
    return pm_elems_const(g, t, &n) && n * (int64_t)fmt_dtype_bytes(t->dtype) <= limit_bytes &&
           fmt_dtype_class(t->dtype) != 'N';
}

/* Evaluate one operation over constants in a graph of its own; 0 if it cannot be, or would grow beyond max_bytes. */
static ir_id eval_op(ir_graph *g, ir_op op, const ir_id *in, uint32_t n_in, const ir_attrs *attrs,
                     int64_t max_bytes)
{
    ir_graph *one = ir_graph_new(g->dims);
    if (!one)
        return ir_bad(g, RTX_NOMEM, "out of memory");
    ir_id args[64], y, folded = 0;
    for (uint32_t k = 0; k < n_in; k++)
        args[k] = ir_const_borrow(one, ir_type_of(g, in[k]), ir_const_of(g, in[k])->data,
                                  ir_const_of(g, in[k])->bytes);
    y = ir_emit(one, op, args, n_in, attrs);
    ir_output(one, "y", y);
    rtx_err err = {0};
    if (ir_ok(one, &err) == RTX_OK && may_fold(one, ir_type_of(one, y), max_bytes)) {
        ir_tensor t = {0};
        rtx_status s = ir_eval(one, NULL, NULL, &t, NULL, SIZE_MAX, NULL, NULL, &err);
        if (s == RTX_OK) {
            size_t bytes = (size_t)t.elems * fmt_dtype_bytes(t.dtype);
            AUTO_FREE void *data = base_alloc(BASE_TAG_PASSES, bytes);
            if (data) {
                ir_tensor_store(&t, data);
                folded = ir_const_copy(g, ir_type_of(one, y), data, bytes);
            } else {
                err.code = RTX_NOMEM;
            }
            ir_tensor_done(&t);
        }
    }
    ir_graph_free(one);
    if (err.code == RTX_NOMEM)
        return ir_bad(g, RTX_NOMEM, "out of memory");
    return folded;
}

static ir_id as_const(ir_graph *g, ir_id id)
{
    ir_op op = ir_op_of(g, id);
    if (op == IR_const)
        return id;
    if (op != IR_iota && op != IR_broadcast)
        return 0;
    if (op == IR_broadcast && !pm_is(g, ir_in(g, id, 0), IR_const))
        return 0;
    ir_id in = op == IR_broadcast ? ir_in(g, id, 0) : 0;
    ir_attrs attrs = *ir_attrs_of(g, id);
    return eval_op(g, op, &in, op == IR_broadcast, &attrs, FOLD_SMALL_BYTES);
}

/* f(constants) is a constant, unless that makes the model larger. A broadcast stays: it is smaller unwritten. */
static ir_id fold_constant(ir_graph *g, const pm_node *n)
{
    if (n->n_in == 0 || n->op == IR_broadcast)
        return 0;
    bool elementwise = ir_op_get(n->op)->elementwise, stored = false;
    for (uint32_t k = 0; k < n->n_in; k++) {
        ir_op op = ir_op_of(g, n->in[k]);
        if (op != IR_const && (elementwise || (op != IR_iota && op != IR_broadcast)))
            return 0;
        stored |= op == IR_const;
    }
    if (!stored) /* index tables alone are better understood as such */
        return 0;
    ir_id in[64];
    int64_t max_bytes = FOLD_FREE_BYTES;
    for (uint32_t k = 0; k < n->n_in; k++) {
        if (!(in[k] = as_const(g, n->in[k])))
            return 0;
        max_bytes = MAX(max_bytes, (int64_t)ir_const_of(g, in[k])->bytes);
    }
    return eval_op(g, n->op, in, n->n_in, n->attrs, max_bytes);
}

/* dimvals of constants is a constant. */
static ir_id fold_dimvals(ir_graph *g, const pm_node *n)
{
    int64_t v[FMT_RANK_MAX];
    if (n->op != IR_dimvals)
        return 0;
    for (int k = 0; k < n->attrs->n_dims; k++)
        if (!fmt_dim_is_const(g->dims, n->attrs->dims[k], &v[k]))
            return 0;
    ir_type t = {.dtype = FMT_I64, .rank = n->attrs->i[0] ? 0 : 1};
    t.dim[0] = t.rank ? fmt_dim_const(g->dims, n->attrs->n_dims) : 0;
    return ir_const_copy(g, &t, v, n->attrs->n_dims * sizeof *v);
}

/* ---- sizes as values ---- */

typedef struct dim_list {
    fmt_dim v[FMT_RANK_MAX];
    uint32_t n;
} dim_list;

/* The entries of an i64 vector or scalar of at most eight sizes or constants. */
static bool dims_of(const ir_graph *g, ir_id id, dim_list *out)
{
    const ir_type *t = ir_type_of(g, id);
    int64_t n;
    if (pm_is(g, id, IR_dimvals)) {
        const ir_attrs *a = ir_attrs_of(g, id);
        out->n = a->n_dims;
        memcpy(out->v, a->dims, sizeof out->v);
        return true;
    }
    if (pm_is(g, id, IR_broadcast) && t->rank == 1 && fmt_dim_is_const(g->dims, t->dim[0], &n) &&
        n <= FMT_RANK_MAX) {
        dim_list one;
        if (!dims_of(g, ir_in(g, id, 0), &one) || one.n != 1)
            return false;
        for (out->n = 0; out->n < (uint32_t)n; out->n++)
            out->v[out->n] = one.v[0];
        return true;
    }
    if (!pm_is(g, id, IR_const) || t->dtype != FMT_I64 || t->rank > 1 ||
        !pm_elems_const(g, t, &n) || n > FMT_RANK_MAX)
        return false;
    for (out->n = 0; out->n < (uint32_t)n; out->n++) {
        int64_t v;
        memcpy(&v, (const char *)ir_const_of(g, id)->data + 8 * out->n, 8);
        if (v > FMT_DIM_LIMIT || v < -FMT_DIM_LIMIT)
            return false;
        out->v[out->n] = fmt_dim_const(g->dims, v);
    }
    return true;
}

static bool nonneg(const ir_graph *g, fmt_dim d, int64_t least)
{
    int64_t lo, hi;
    fmt_dim_range(g->dims, d, &lo, &hi);
    return lo >= least;
}

/* The size operation of an integer op; division only where truncation is floor. */
static bool dim_op_of(const ir_graph *g, ir_op op, fmt_dim a, fmt_dim b, fmt_dim_op *out)
{
    switch (op) {
    case IR_add:
        return *out = FMT_ADD, true;
    case IR_sub:
        return *out = FMT_SUB, true;
    case IR_mul:
        return *out = FMT_MUL, true;
    case IR_min:
        return *out = FMT_MIN, true;
    case IR_max:
        return *out = FMT_MAX, true;
    case IR_div:
        return *out = FMT_DIV, nonneg(g, a, 0) && nonneg(g, b, 1);
    case IR_mod:
        return *out = FMT_MOD, nonneg(g, a, 0) && nonneg(g, b, 1);
    default:
        return false;
    }
}

static bool sizes_select(const ir_graph *g, const pm_node *n, const dim_list *a, dim_list *out)
{
    int64_t at = 0, count;
    out->n = 0;
    if (n->op == IR_slice) {
        if (!fmt_dim_is_const(g->dims, n->attrs->dims[0], &at) ||
            !fmt_dim_is_const(g->dims, n->attrs->sizes[0], &count))
            return false;
        for (; count > 0 && at >= 0 && at < a->n; count--, at += n->attrs->list[0])
            out->v[out->n++] = a->v[at];
        return count == 0;
    }
    dim_list pick; /* gather */
    if (!dims_of(g, n->in[1], &pick))
        return false;
    for (; out->n < pick.n; out->n++) {
        if (!fmt_dim_is_const(g->dims, pick.v[out->n], &at))
            return false;
        at += at < 0 ? a->n : 0;
        if (at < 0 || at >= a->n)
            return false;
        out->v[out->n] = a->v[at];
    }
    return true;
}

static bool sizes_of(const ir_graph *g, const pm_node *n, dim_list *out)
{
    dim_list a, b;
    if (!dims_of(g, n->in[0], &a))
        return false;
    switch (n->op) {
    case IR_reshape:
        return *out = a, n->attrs->n_dims <= 1;
    case IR_slice:
        return ir_type_of(g, n->in[0])->rank == 1 && sizes_select(g, n, &a, out);
    case IR_gather:
        return ir_type_of(g, n->in[0])->rank == 1 && sizes_select(g, n, &a, out);
    case IR_concat:
        *out = a;
        for (uint32_t k = 1; k < n->n_in; k++) {
            if (!dims_of(g, n->in[k], &b) || out->n + b.n > FMT_RANK_MAX)
                return false;
            memcpy(out->v + out->n, b.v, b.n * sizeof *b.v);
            out->n += b.n;
        }
        return true;
    default:
        if (n->n_in != 2 || !dims_of(g, n->in[1], &b) || a.n != b.n)
            return false;
        for (out->n = 0; out->n < a.n; out->n++) {
            fmt_dim_op op;
            if (!dim_op_of(g, n->op, a.v[out->n], b.v[out->n], &op))
                return false;
            out->v[out->n] = fmt_dim_bin(g->dims, op, a.v[out->n], b.v[out->n]);
            if (out->v[out->n] == FMT_DIM_BAD)
                return false;
        }
        return true;
    }
}

/* Arithmetic, selection and joining of sizes gives sizes: dimvals(a) op dimvals(b) = dimvals(a op b). */
static ir_id fold_sizes(ir_graph *g, const pm_node *n)
{
    static const ir_op ops[] = {IR_add, IR_sub,   IR_mul,    IR_div,    IR_mod,    IR_min,
                                IR_max, IR_slice, IR_gather, IR_concat, IR_reshape};
    bool listed = false, sizes = false;
    for (size_t k = 0; k < COUNT_OF(ops); k++)
        listed |= ops[k] == n->op;
    if (!listed)
        return 0;
    for (uint32_t k = 0; k < n->n_in; k++) {
        const ir_type *t = ir_type_of(g, n->in[k]);
        if (t->dtype != FMT_I64 || t->rank > 1)
            return 0;
        sizes |= pm_is(g, pm_look(g, n->in[k]).core, IR_dimvals);
    }
    dim_list r;
    if (!sizes || !sizes_of(g, n, &r) || r.n == 0)
        return 0;
    bool scalar = n->op == IR_reshape  ? n->attrs->n_dims == 0
                  : n->op == IR_gather ? ir_type_of(g, n->in[1])->rank == 0
                                       : ir_type_of(g, n->in[0])->rank == 0;
    ir_attrs a = {.n_dims = (uint8_t)r.n, .i = {scalar}};
    memcpy(a.dims, r.v, r.n * sizeof *r.v);
    return pass_emit(g, IR_dimvals, NULL, 0, &a);
}

/* ---- exact algebra ---- */

static bool splat_is(const ir_graph *g, ir_id id, double v)
{
    double s;
    return ir_is_splat(g, id, &s) && s == v;
}

/* x + 0 = x (-0 stays -0: docs/numerics.md), x - 0 = x, x * 1 = x, x / 1 = x. */
static ir_id fold_neutral(ir_graph *g, const pm_node *n)
{
    double unit = n->op == IR_add || n->op == IR_sub ? 0.0 : 1.0;
    if (n->op != IR_add && n->op != IR_sub && n->op != IR_mul && n->op != IR_div)
        return 0;
    if (splat_is(g, n->in[1], unit))
        return n->in[0];
    if ((n->op == IR_add || n->op == IR_mul) && splat_is(g, n->in[0], unit))
        return n->in[1];
    return 0;
}

/* -(-x) = x, !!x = x, |-x| = |x|, ||x|| = |x|, relu(relu x) = relu x. */
static ir_id fold_twice(ir_graph *g, const pm_node *n)
{
    static const struct {
        ir_op outer, inner, result; /* result none = the operand itself */
    } table[] = {
        {IR_neg, IR_neg, IR_NONE}, {IR_not, IR_not, IR_NONE},   {IR_abs, IR_neg, IR_abs},
        {IR_abs, IR_abs, IR_abs},  {IR_relu, IR_relu, IR_relu},
    };
    if (n->n_in != 1)
        return 0;
    for (size_t k = 0; k < COUNT_OF(table); k++)
        if (table[k].outer == n->op && pm_is(g, n->in[0], table[k].inner)) {
            ir_id x = ir_in(g, n->in[0], 0);
            return table[k].result == IR_NONE ? x : pm_un(g, table[k].result, x);
        }
    return 0;
}

/* x without its minus sign, which may stand below broadcasts and reshapes; 0 if it has none. */
static ir_id unsigned_of(ir_graph *g, ir_id x)
{
    if (pm_is(g, x, IR_neg))
        return ir_in(g, x, 0);
    if (!pm_is(g, x, IR_broadcast) && !pm_is(g, x, IR_reshape))
        return 0;
    ir_id y = unsigned_of(g, ir_in(g, x, 0));
    ir_attrs view = *ir_attrs_of(g, x);
    return y ? pass_emit(g, ir_op_of(g, x), &y, 1, &view) : 0;
}

/* a + (-b) = a - b, a - (-b) = a + b, x * -1 = x / -1 = -x. */
static ir_id fold_minus(ir_graph *g, const pm_node *n)
{
    if ((n->op == IR_mul || n->op == IR_div) && splat_is(g, n->in[1], -1.0))
        return pm_un(g, IR_neg, n->in[0]);
    if (n->op == IR_mul && splat_is(g, n->in[0], -1.0))
        return pm_un(g, IR_neg, n->in[1]);
    if (n->op != IR_add && n->op != IR_sub)
        return 0;
    for (int k = 1; k >= (n->op == IR_add ? 0 : 1); k--) {
        ir_id y = unsigned_of(g, n->in[k]);
        if (y || g->err.code)
            return y ? pm_bin(g, n->op == IR_add ? IR_sub : IR_add, n->in[1 - k], y) : 0;
    }
    return 0;
}

/* Every value of type a is a value of type b. */
static bool widens(fmt_dtype a, fmt_dtype b)
{
    static const struct {
        fmt_dtype from, to;
    } table[] = {{FMT_I32, FMT_I64}, {FMT_I32, FMT_F64},  {FMT_F32, FMT_F64}, {FMT_F16, FMT_F32},
                 {FMT_F16, FMT_F64}, {FMT_BF16, FMT_F32}, {FMT_BF16, FMT_F64}};
    for (size_t k = 0; k < COUNT_OF(table); k++)
        if (table[k].from == a && table[k].to == b)
            return true;
    return a == FMT_BOOL || a == b;
}

/* cast to the type it has = x; cast(cast x) = cast x when the inner one loses nothing. */
static ir_id fold_cast(ir_graph *g, const pm_node *n)
{
    if (n->op != IR_cast)
        return 0;
    ir_id x = n->in[0];
    fmt_dtype to = (fmt_dtype)n->attrs->type;
    if (ir_type_of(g, x)->dtype == to)
        return x;
    if (!pm_is(g, x, IR_cast))
        return 0;
    ir_id y = ir_in(g, x, 0);
    if (!widens(ir_type_of(g, y)->dtype, ir_type_of(g, x)->dtype))
        return 0;
    return pass_emit(g, IR_cast, &y, 1, n->attrs);
}

/* select(true, a, b) = a, select(c, a, a) = a, select(!c, a, b) = select(c, b, a). */
static ir_id fold_select(ir_graph *g, const pm_node *n)
{
    double c;
    if (n->op != IR_select)
        return 0;
    if (n->in[1] == n->in[2])
        return n->in[1];
    if (ir_is_splat(g, n->in[0], &c))
        return n->in[c != 0 ? 1 : 2];
    if (pm_is(g, n->in[0], IR_not))
        return pass_emit(g, IR_select, (ir_id[]){ir_in(g, n->in[0], 0), n->in[2], n->in[1]}, 3,
                         NULL);
    return 0;
}

/* x & true = x, x & false = false, x | false = x, x | true = true, x ^ false = x, x ^ true = !x, x & x = x, x | x = x. */
static ir_id fold_logic(ir_graph *g, const pm_node *n)
{
    double c;
    if (n->op != IR_and && n->op != IR_or && n->op != IR_xor)
        return 0;
    if (n->in[0] == n->in[1] && n->op != IR_xor)
        return n->in[0];
    for (int k = 0; k < 2; k++) {
        if (!ir_is_splat(g, n->in[k], &c))
            continue;
        ir_id splat = n->in[k], x = n->in[1 - k];
        if (n->op == IR_xor)
            return c != 0 ? pm_un(g, IR_not, x) : x;
        return (n->op == IR_and) == (c != 0) ? x : splat;
    }
    return 0;
}

/* Is it proven to be +0, above, or NaN? At -0 and -inf roots and powers differ. */
static bool is_positive(const ir_graph *g, ir_id id, int depth)
{
    double c;
    if (ir_is_splat(g, id, &c))
        return c > 0 || (c == 0 && !signbit(c));
    switch (depth > 8 ? IR_NONE : ir_op_of(g, id)) {
    case IR_abs:
    case IR_exp:
    case IR_sigmoid:
        return true;
    case IR_mul: /* a square, or of two such */
        return ir_in(g, id, 0) == ir_in(g, id, 1) || (is_positive(g, ir_in(g, id, 0), depth + 1) &&
                                                      is_positive(g, ir_in(g, id, 1), depth + 1));
    case IR_add:
    case IR_div:
    case IR_max:
        return is_positive(g, ir_in(g, id, 0), depth + 1) &&
               is_positive(g, ir_in(g, id, 1), depth + 1);
    case IR_sqrt:
    case IR_recip:
    case IR_rsqrt:
    case IR_reduce_sum:
    case IR_reduce_mean:
    case IR_reshape:
    case IR_broadcast:
    case IR_permute:
    case IR_slice:
    case IR_cast:
        return is_positive(g, ir_in(g, id, 0), depth + 1);
    default:
        return false;
    }
}

/* x^1 = x, x^2 = x x, x^-1 = 1/x; for x from +0: x^½ = √x, x^-½ = 1/√x. */
static ir_id fold_pow(ir_graph *g, const pm_node *n)
{
    double e;
    if (n->op != IR_pow || !ir_is_splat(g, n->in[1], &e))
        return 0;
    ir_id x = n->in[0];
    bool real = fmt_dtype_class(ir_type_of(g, x)->dtype) == 'F';
    if (e == 1.0)
        return x;
    if (e == 2.0)
        return pm_bin(g, IR_mul, x, x);
    if (real && e == -1.0)
        return pm_un(g, IR_recip, x);
    if (real && (e == 0.5 || e == -0.5) && is_positive(g, x, 0))
        return pm_un(g, e > 0 ? IR_sqrt : IR_rsqrt, x);
    return 0;
}

/* 1/x as 1 / x; 1/√x as a reciprocal of a root or, for x from +0, a root of a reciprocal: one name each. */
static ir_id fold_recip(ir_graph *g, const pm_node *n)
{
    if (n->op == IR_div && splat_is(g, n->in[0], 1.0) &&
        fmt_dtype_class(ir_type_of(g, n->in[0])->dtype) == 'F')
        return pm_un(g, IR_recip, n->in[1]);
    if (n->op == IR_recip && pm_is(g, n->in[0], IR_sqrt))
        return pm_un(g, IR_rsqrt, ir_in(g, n->in[0], 0));
    if (n->op == IR_sqrt && pm_is(g, n->in[0], IR_recip) &&
        is_positive(g, ir_in(g, n->in[0], 0), 0))
        return pm_un(g, IR_rsqrt, ir_in(g, n->in[0], 0));
    return 0;
}

/* a + b = b + a: constants and broadcasts stand second, so that equal work has one text. */
static ir_id fold_order(ir_graph *g, const pm_node *n)
{
    static const ir_op commutative[] = {IR_add, IR_mul, IR_min, IR_max, IR_eq,
                                        IR_ne,  IR_and, IR_or,  IR_xor};
    for (size_t k = 0; k < COUNT_OF(commutative); k++) {
        if (commutative[k] != n->op)
            continue;
        bool moves[2];
        for (int i = 0; i < 2; i++)
            moves[i] = pm_is(g, n->in[i], IR_broadcast) || pm_is(g, n->in[i], IR_const);
        return moves[0] && !moves[1] ? pm_bin(g, n->op, n->in[1], n->in[0]) : 0;
    }
    return 0;
}

/* ---- driver ---- */

static const pm_rule rules[] = {
    fold_dimvals, fold_constant,   fold_sizes,        fold_neutral, fold_twice,
    fold_minus,   fold_cast,       fold_select,       fold_logic,   fold_pow,
    fold_recip,   pass_fold_views, pass_fold_indices, fold_order,
};

ir_id pass_emit(ir_graph *g, ir_op op, const ir_id *in, uint32_t n_in, const ir_attrs *attrs)
{
    pm_node n = {.op = op, .n_in = n_in};
    ir_attrs copy = {0};
    if (g->err.code || n_in > COUNT_OF(n.in))
        return ir_emit(g, op, in, n_in, attrs);
    for (uint32_t k = 0; k < n_in; k++)
        if (!(n.in[k] = in[k]))
            return ir_bad(g, RTX_INTERNAL, "%s: input %u is missing", ir_op_get(op)->name,
                          (unsigned)k);
    if (attrs)
        copy = *attrs;
    for (int k = 0; k < copy.n_dims; k++)
        copy.dims[k] = fmt_dim_resolve(g->dims, copy.dims[k]);
    for (int k = 0; k < copy.n_sizes; k++)
        copy.sizes[k] = fmt_dim_resolve(g->dims, copy.sizes[k]);
    n.attrs = &copy;
    ir_id r = pm_first(rules, COUNT_OF(rules), g, &n);
    if (r || g->err.code)
        return g->err.code ? 0 : r;
    return ir_emit(g, op, n.in, n_in, &copy);
}

ir_id pass_emit_copy(ir_graph *g, const ir_graph *old, ir_id old_id, const ir_id *in)
{
    const ir_node *node = ir_node_get(old, old_id);
    if (node->op == IR_input || node->op == IR_const)
        return ir_copy_node(g, old, old_id, in);
    return pass_emit(g, (ir_op)node->op, in, node->n_in, ir_attrs_of(old, old_id));
}

static ir_id fold_node(void *ctx, const ir_graph *old, ir_id old_id, ir_graph *g, const ir_id *in)
{
    (void)ctx;
    return pass_emit_copy(g, old, old_id, in);
}

rtx_status pass_fold(const ir_graph *g, ir_graph **out, rtx_err *err)
{
    return pm_fixed_point(g, fold_node, NULL, FOLD_ROUNDS_MAX, out, err);
}
