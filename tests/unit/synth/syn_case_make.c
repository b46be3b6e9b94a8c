/* Random structures: one maker a family. */
#include "syn_case.h"
#include "base_sys.h"
#include <stdio.h>

static const fmt_dtype all_dtypes[] = {FMT_F32, FMT_I64,  FMT_I32, FMT_BOOL,
                                       FMT_F16, FMT_BF16, FMT_F64};

/* ---- sizes and operands ---- */

/* A size: a number when baked (three times in four), else a symbol of that range. */
static fmt_dim size(test_case *c, int lo, int hi)
{
    fmt_dims *d = c->p->dims;
    uint32_t n = fmt_sym_count(d);
    if ((c->baked && !rng_one_in(c->r, 4)) || n == SYN_SYMS_MAX)
        return fmt_dim_const(d, rng_int(c->r, lo, hi));
    char name[8];
    snprintf(name, sizeof name, "s%u", n);
    c->small[n] = lo;
    c->large[n] = hi;
    return fmt_dim_sym(d, fmt_sym_new(d, name, 0, FMT_DIM_LIMIT));
}

enum { UNIT_LAST = 1, NO_ZERO = 2, UNIT_OR_ZERO_LAST = 4 };

/* Layout of operand o and which of its strides the problem knows. */
static void lay_out(test_case *c, uint32_t o, const ir_type *t, int flags)
{
    case_layout *l = &c->lay[o];
    int n = t->rank;
    memset(l, 0, sizeof *l);
    for (int i = 0; i < n; i++)
        l->order[i] = (int8_t)(n - 1 - i); /* last axis first: row-major */
    bool shuffle = rng_one_in(c->r, 3);
    for (int i = n - 1; i > (flags & (UNIT_LAST | UNIT_OR_ZERO_LAST) ? 1 : 0) && shuffle; i--) {
        int j = rng_int(c->r, flags & (UNIT_LAST | UNIT_OR_ZERO_LAST) ? 1 : 0, i);
        int8_t x = l->order[i];
        l->order[i] = l->order[j];
        l->order[j] = x;
    }
    bool odd = rng_one_in(c->r, 2);
    for (int i = 0; i < n; i++) {
        int k = l->order[i];
        bool last = k == n - 1 && flags & (UNIT_LAST | UNIT_OR_ZERO_LAST);
        l->gap[k] = (int8_t)(odd && !last && rng_one_in(c->r, 4) ? rng_int(c->r, 1, 3) : 0);
        l->negative[k] = odd && !last && rng_one_in(c->r, 6);
        l->zero[k] =
            odd && !(flags & NO_ZERO) && !(last && flags & UNIT_LAST) && rng_one_in(c->r, 5);
    }
    /* A stride is a number as long as all it stems from are. */
    int64_t step = 1, v;
    bool known = true;
    for (int i = 0; i < n; i++) {
        int k = l->order[i];
        step += l->zero[k] ? 0 : l->gap[k];
        bool forced = k == n - 1 && flags & (UNIT_LAST | UNIT_OR_ZERO_LAST);
        if (forced || (c->baked && known && !rng_one_in(c->r, 5)))
            c->p->stride[o][k] = fmt_dim_const(c->p->dims, l->zero[k]       ? 0
                                                           : l->negative[k] ? -step
                                                                            : step);
        if (l->zero[k])
            continue;
        known = known && fmt_dim_is_const(c->p->dims, t->dim[k], &v);
        step *= known ? MAX(v, 1) : 1;
    }
}

static ir_id operand(test_case *c, fmt_dtype dtype, int rank, const fmt_dim *dims, int flags)
{
    ir_type t = {.dtype = dtype, .rank = (uint8_t)rank};
    if (rank)
        memcpy(t.dim, dims, (size_t)rank * sizeof *dims);
    uint32_t o = c->p->n_in++;
    lay_out(c, o, &t, flags);
    return ir_input(c->p->region, syn_port_name(false, o), &t);
}

static void output(test_case *c, ir_id id, int flags)
{
    if (ir_ok(c->p->region, NULL) != RTX_OK)
        return;
    ir_output(c->p->region, syn_port_name(true, c->p->n_out), id);
    lay_out(c, c->p->n_in + c->p->n_out, ir_type_of(c->p->region, id), flags | NO_ZERO);
    c->p->n_out++;
}

/* Outputs are laid out after all inputs exist. */
static void dims_of(const test_case *c, ir_id id, fmt_dim *dims, int *rank)
{
    const ir_type *t = ir_type_of(c->p->region, id);
    *rank = t->rank;
    memcpy(dims, t->dim, sizeof t->dim);
}

/* ---- random elementwise work on f32 ---- */

static ir_id constant(test_case *c, fmt_dtype t, double v, const fmt_dim *dims, int rank)
{
    ir_graph *g = c->p->region;
    return ir_broadcast(g, ir_scalar(g, t, v), dims, (uint32_t)rank);
}

/* n nodes on top of v (or of fresh operands when v is 0). Operations that jump look at operands only. */
static ir_id grow(test_case *c, ir_id v, int n, const fmt_dim *dims, int rank, int flags)
{
    static const ir_op unary[] = {IR_neg,  IR_abs,  IR_tanh, IR_sigmoid, IR_gelu, IR_gelu_tanh,
                                  IR_silu, IR_relu, IR_erf,  IR_sin,     IR_cos};
    static const ir_op binary[] = {IR_add, IR_sub, IR_mul, IR_max, IR_min, IR_swiglu};
    static const ir_op compare[] = {IR_lt, IR_le, IR_gt, IR_ge, IR_eq, IR_ne};
    ir_graph *g = c->p->region;
    ir_id kept = 0;
    if (v == 0)
        v = operand(c, FMT_F32, rank, dims, flags);
    for (int i = 0; i < n; i++) {
        bool room = c->p->n_in < 8;
        ir_id w = room && rng_one_in(c->r, 2) ? operand(c, FMT_F32, rank, dims, flags)
                  : kept && rng_one_in(c->r, 2)
                      ? kept
                      : constant(c, FMT_F32, (double)rng_int(c->r, -8, 8) / 8, dims, rank);
        switch (rng_int(c->r, 0, 6)) {
        case 0:
        case 1:
            v = ir_emit1(g, unary[rng_int(c->r, 0, COUNT_OF(unary) - 1)], v);
            break;
        case 2: {
            if (!room)
                break;
            ir_id a = operand(c, FMT_I32, rank, dims, flags);
            ir_id b = ir_emit2(g, compare[rng_int(c->r, 0, COUNT_OF(compare) - 1)], a,
                               constant(c, FMT_I32, rng_int(c->r, -3, 3), dims, rank));
            v = ir_emit3(g, IR_select, b, v, w);
            break;
        }
        case 3:
            v = ir_emit2(g, IR_add, v,
                         ir_cast(g,
                                 room ? operand(c, FMT_BOOL, rank, dims, flags)
                                      : constant(c, FMT_BOOL, 1, dims, rank),
                                 FMT_F32));
            break;
        default: {
            ir_op op = binary[rng_int(c->r, 0, COUNT_OF(binary) - 1)];
            v = rng_one_in(c->r, 3) ? ir_emit2(g, op, w, v) : ir_emit2(g, op, v, w);
        }
        }
        if (rng_one_in(c->r, 3))
            kept = v;
    }
    return v;
}

static int nodes(const test_case *c) { return c->fused ? rng_int(c->r, 0, 6) : 0; }

/* ---- families ---- */

static void make_eltwise(test_case *c)
{
    ir_graph *g = c->p->region;
    int rank = rng_int(c->r, 0, c->baked ? 4 : 5);
    fmt_dim d[FMT_RANK_MAX];
    for (int k = 0; k < rank; k++)
        d[k] = size(c, 0, k == rank - 1 && rng_one_in(c->r, 2) ? 300 : 9);
    if (c->fused && rng_one_in(c->r, 5) && rank) { /* integers and an index */
        ir_id a = operand(c, FMT_I64, rank, d, 0);
        ir_attrs at = {.n_dims = (uint8_t)rank, .i = {rng_int(c->r, 0, rank - 1)}};
        memcpy(at.dims, d, sizeof at.dims);
        ir_id i = ir_emit(g, IR_iota, NULL, 0, &at), b = operand(c, FMT_I64, rank, d, 0);
        ir_id v = ir_emit2(g, IR_mul, ir_emit2(g, IR_sub, a, i), b);
        output(c, ir_emit2(g, IR_div, v, constant(c, FMT_I64, rng_int(c->r, -2, 3), d, rank)), 0);
        return;
    }
    if (c->fused) {
        ir_id v = grow(c, 0, rng_int(c->r, 1, 8), d, rank, 0);
        if (rng_one_in(c->r, 3)) {
            ir_id w = grow(c, v, 2, d, rank, 0);
            output(c, v, 0);
            if (w != v)
                output(c, w, 0);
        } else {
            output(c, v, 0);
        }
        return;
    }
    for (;;) { /* one op of ops.def */
        ir_op op = (ir_op)rng_int(c->r, IR_NONE + 1, IR_OP_COUNT - 1);
        const ir_op_info *info = ir_op_get(op);
        fmt_dtype t = all_dtypes[rng_int(c->r, 0, 3)];
        bool smooth = op != IR_pow || t != FMT_F32;
        if (!info->elementwise || !smooth)
            continue;
        if (op == IR_cast) {
            fmt_dtype from = all_dtypes[rng_int(c->r, 0, 6)], to = all_dtypes[rng_int(c->r, 0, 6)];
            if (from != to) {
                output(c, ir_cast(g, operand(c, from, rank, d, 0), to), 0);
                return;
            }
            continue;
        }
        const char *expr = t == FMT_F32 ? info->fexpr : info->iexpr;
        bool ok = op == IR_select || expr[0];
        if (t == FMT_BOOL && op != IR_not && op != IR_and && op != IR_or && op != IR_xor &&
            op != IR_eq && op != IR_ne && op != IR_select)
            ok = false;
        if (t != FMT_BOOL && (op == IR_not || op == IR_and || op == IR_or || op == IR_xor))
            ok = false;
        if (!ok)
            continue;
        ir_id in[3];
        for (int k = 0; k < info->max_in; k++)
            in[k] = operand(c, op == IR_select && k == 0 ? FMT_BOOL : t, rank, d, 0);
        output(c, ir_emit(g, op, in, info->max_in, NULL), 0);
        return;
    }
}

static void make_copy(test_case *c)
{
    int rank = rng_int(c->r, 0, 5);
    fmt_dim d[FMT_RANK_MAX];
    for (int k = 0; k < rank; k++)
        d[k] = size(c, 0, rng_one_in(c->r, 3) ? 40 : 7);
    output(c, operand(c, all_dtypes[rng_int(c->r, 0, 6)], rank, d, 0), 0);
}

static void make_reduce(test_case *c)
{
    bool arg = c->family == CASE_ARGREDUCE;
    int outer = rng_int(c->r, 0, 3), inner = arg ? 1 : rng_int(c->r, 1, 3), rank;
    fmt_dim d[FMT_RANK_MAX], y[FMT_RANK_MAX];
    for (int k = 0; k < outer; k++)
        d[k] = size(c, 0, k == outer - 1 && rng_one_in(c->r, 3) ? 150 : 6);
    bool long_row = rng_one_in(c->r, 8) && outer < 2;
    for (int k = 0; k < inner; k++)
        d[outer + k] = size(c, arg, k == inner - 1 ? (long_row ? 5000 : 70) : 4);
    fmt_dtype t = c->fused ? FMT_F32 : all_dtypes[rng_int(c->r, 0, 2)];
    c->exact = arg;
    ir_graph *g = c->p->region;
    ir_id x = operand(c, t, outer + inner, d, 0);
    if (arg) { /* exact prologue: no ties by rounding */
        if (c->fused && rng_one_in(c->r, 2))
            x = ir_emit2(g, IR_add, x, operand(c, t, outer + inner, d, 0));
        x = ir_emit(g, rng_one_in(c->r, 2) ? IR_argmax : IR_argmin, &x, 1,
                    &(ir_attrs){.i = {outer, rng_int(c->r, 0, 1)}});
        if (c->fused && rng_one_in(c->r, 2))
            x = ir_cast(g, x, FMT_I32);
        output(c, x, 0);
        return;
    }
    x = grow(c, x, nodes(c), d, outer + inner, 0);
    int64_t axes[FMT_RANK_MAX];
    for (int k = 0; k < inner; k++)
        axes[k] = outer + k;
    ir_op op = (ir_op)rng_int(c->r, IR_reduce_sum, IR_reduce_prod);
    if ((op == IR_reduce_mean && t != FMT_F32) || (op == IR_reduce_prod && c->fused))
        op = IR_reduce_sum;
    c->powers = op == IR_reduce_prod;
    x = ir_reduce(g, op, x, axes, (uint32_t)inner, false);
    dims_of(c, x, y, &rank);
    output(c, grow(c, x, c->fused ? rng_int(c->r, 0, 3) : 0, y, rank, 0), 0);
}

static void make_row(test_case *c)
{
    int rank = rng_int(c->r, 1, 4);
    fmt_dim d[FMT_RANK_MAX];
    for (int k = 0; k < rank; k++)
        d[k] = size(c, k == rank - 1 ? 8 : 0, k == rank - 1 ? (rng_one_in(c->r, 4) ? 700 : 50) : 5);
    ir_id x = grow(c, 0, nodes(c), d, rank, 0), in[3] = {x};
    ir_op op = rng_one_in(c->r, 3) ? IR_softmax : rng_one_in(c->r, 2) ? IR_layernorm : IR_rmsnorm;
    int params = op == IR_softmax ? 0 : rng_int(c->r, 0, op == IR_layernorm ? 2 : 1);
    for (int k = 0; k < params; k++)
        in[1 + k] = operand(c, FMT_F32, 1, d + rank - 1, 0);
    x = ir_emit(c->p->region, op, in, 1 + (uint32_t)params,
                &(ir_attrs){.f = {op == IR_softmax ? 0 : 1e-3}});
    output(c, grow(c, x, nodes(c), d, rank, 0), 0);
}

static void make_gemm(test_case *c)
{
    static const char *const menu[] = {"",         "",     "add", "add add", "add gelu",
                                       "add tanh", "silu", "mul", "swiglu",  "add relu"};
    ir_graph *g = c->p->region;
    int nb = rng_int(c->r, 0, 2);
    bool packed = rng_one_in(c->r, 2);
    fmt_dim b[2], a_dim[4], b_dim[4], y[4];
    for (int k = 0; k < nb; k++)
        b[k] = size(c, 0, 3);
    fmt_dim m = size(c, 0, 40), k = size(c, 0, rng_one_in(c->r, 10) ? 1100 : 40),
            n = size(c, 0, rng_one_in(c->r, 4) ? 150 : 40);
    for (int i = 0; i < nb; i++)
        a_dim[i] = b_dim[i] = y[i] = b[i];
    a_dim[nb] = y[nb] = m;
    a_dim[nb + 1] = b_dim[nb] = k;
    b_dim[nb + 1] = y[nb + 1] = n;
    bool any_k = rng_one_in(c->r, 4);
    ir_id a = operand(c, FMT_F32, nb + 2, a_dim,
                      NO_ZERO | (any_k ? 0 : UNIT_LAST)); /* equal products would err all one way */
    uint32_t o = c->p->n_in;
    ir_id w = operand(c, FMT_F32, nb + 2, b_dim, 0);
    if (packed) {
        c->p->packed[o] = true;
        memset(&c->lay[o], 0, sizeof c->lay[o]);
        for (int i = 0; i < nb + 2; i++) {
            c->lay[o].order[i] = (int8_t)(nb + 1 - i);
            c->lay[o].zero[i] = true; /* one matrix for every batch */
            c->p->stride[o][i] = FMT_DIM_BAD;
        }
    }
    ir_id v = ir_emit2(g, IR_dot, a, w);
    if (c->fused) {
        v = grow(c, v, rng_int(c->r, 0, 5), y, nb + 2, 0);
    } else if (!any_k) {
        const char *s =
            packed ? menu[rng_int(c->r, 0, COUNT_OF(menu) - 1)] : menu[rng_int(c->r, 0, 2)];
        while (*s) {
            size_t len = strcspn(s, " ");
            ir_op op = ir_op_find(s, len);
            if (ir_op_get(op)->max_in == 2) {
                ir_id x = operand(c, FMT_F32, nb + 2, y, UNIT_LAST);
                v = rng_one_in(c->r, 2) && op != IR_swiglu ? ir_emit2(g, op, x, v)
                                                           : ir_emit2(g, op, v, x);
            } else {
                v = ir_emit1(g, op, v);
            }
            s += len + (s[len] == ' ');
        }
    }
    output(c, v, UNIT_LAST);
}

static void make_attention(test_case *c)
{
    fmt_dims *p = c->p->dims;
    fmt_dim b = size(c, 0, 2), h = size(c, 1, 4), hk = h, sq = size(c, 0, 40), sk = size(c, 0, 40),
            d = size(c, 1, 24), dv = size(c, 1, 40);
    if (rng_one_in(c->r, 3)) {
        h = fmt_dim_const(p, 4);
        hk = fmt_dim_const(p, 1 << rng_int(c->r, 0, 2));
    }
    bool mask = rng_one_in(c->r, 2), adjacent = !rng_one_in(c->r, 4);
    int flags = adjacent ? UNIT_LAST : 0;
    ir_id q = operand(c, FMT_F32, 4, (fmt_dim[]){b, h, sq, d},
                      flags | NO_ZERO); /* equal terms make scores that exp magnifies */
    ir_id k = operand(c, FMT_F32, 4, (fmt_dim[]){b, hk, sk, d}, flags | NO_ZERO);
    ir_id v = operand(c, FMT_F32, 4, (fmt_dim[]){b, hk, sk, dv}, flags);
    ir_id in[4] = {q, k, v, mask ? operand(c, FMT_F32, 4, (fmt_dim[]){b, h, sq, sk}, 0) : 0};
    output(c,
           ir_emit(c->p->region, IR_attention, in, 3 + mask,
                   &(ir_attrs){.f = {0.4}, .i = {rng_int(c->r, 0, 1), rng_int(c->r, 0, 1)}}),
           flags);
}

static void make_rope(test_case *c)
{
    int rank = rng_int(c->r, 1, 4);
    fmt_dim d[FMT_RANK_MAX];
    for (int k = 0; k < rank - 1; k++)
        d[k] = size(c, 0, 6);
    d[rank - 1] = fmt_dim_const(c->p->dims, 2 * rng_int(c->r, 0, 20));
    ir_id in[3];
    for (int k = 0; k < 3; k++)
        in[k] = operand(c, FMT_F32, rank, d, 0);
    output(c, ir_emit(c->p->region, IR_rope, in, 3, &(ir_attrs){.i = {rng_int(c->r, 0, 1)}}), 0);
}

static fmt_dtype index_type(test_case *c) { return rng_one_in(c->r, 2) ? FMT_I64 : FMT_I32; }

static void make_gather(test_case *c)
{
    ir_graph *g = c->p->region;
    fmt_dtype t = all_dtypes[rng_int(c->r, 0, 6)];
    fmt_dim o = size(c, 0, 5), a = size(c, 1, 9), i = size(c, 0, rng_one_in(c->r, 3) ? 80 : 6),
            j = size(c, 0, 9);
    ir_id x, ix;
    if (c->family == CASE_GATHER_ND) {
        int depth = rng_int(c->r, 1, 4);
        fmt_dim d[FMT_RANK_MAX] = {o};
        for (int k = 1; k <= depth; k++)
            d[k] = a; /* one limit for all */
        d[depth + 1] = i;
        x = operand(c, t, depth + 2, d, 0);
        c->index_limit[c->p->n_in] = a;
        ix = operand(c, c->baked ? index_type(c) : FMT_I64, 3,
                     (fmt_dim[]){o, j, fmt_dim_const(c->p->dims, depth)}, 0);
        output(c, ir_emit(g, IR_gather_nd, (ir_id[]){x, ix}, 2, &(ir_attrs){.i = {1}}), 0);
    } else if (c->family == CASE_GATHER_ELEMENTS) {
        int rank = rng_int(c->r, 1, 4), along = rng_int(c->r, 0, rank - 1);
        fmt_dim d[FMT_RANK_MAX];
        for (int k = 0; k < rank; k++)
            d[k] = k == along ? a : size(c, 0, 6);
        x = operand(c, t, rank, d, 0);
        d[along] = j;
        c->index_limit[c->p->n_in] = a;
        ix = operand(c, index_type(c), rank, d, 0);
        output(c, ir_emit(g, IR_gather_elements, (ir_id[]){x, ix}, 2, &(ir_attrs){.i = {along}}),
               0);
    } else {
        x = operand(c, t, 3, (fmt_dim[]){o, a, i}, 0);
        c->index_limit[c->p->n_in] = a;
        ix = operand(c, index_type(c), 1, &j, 0);
        output(c, ir_emit(g, IR_gather, (ir_id[]){x, ix}, 2, &(ir_attrs){.i = {1}}), 0);
    }
}

static void make_scan(test_case *c)
{
    fmt_dtype t = all_dtypes[rng_int(c->r, 0, 2)];
    fmt_dim o = size(c, 0, 4), a = size(c, 0, 50), i = size(c, 0, rng_one_in(c->r, 4) ? 100 : 5);
    ir_id x = operand(c, t, 3, (fmt_dim[]){o, a, i}, 0);
    ir_attrs at = {.i = {1, rng_int(c->r, 0, 1), rng_int(c->r, 0, 1)}};
    if (c->family == CASE_CUMSUM) {
        output(c, ir_emit(c->p->region, IR_cumsum, &x, 1, &at), 0);
        return;
    }
    int64_t n;
    fmt_dim k = fmt_dim_is_const(c->p->dims, a, &n)
                    ? fmt_dim_const(c->p->dims, rng_int(c->r, 0, (int)n))
                    : size(c, 0, 50);
    if (fmt_dim_is_sym(c->p->dims, k, &c->k_sym))
        (void)fmt_dim_is_sym(c->p->dims, a, &c->k_of);
    else if (!fmt_dim_is_const(c->p->dims, a, &n)) /* k a number, the axis a symbol: at least k */
        k = a;
    c->exact = true;
    at.dims[0] = k;
    at.n_dims = 1;
    output(c, ir_emit(c->p->region, IR_topk, &x, 1, &at), 0);
}

static void make_dimvals(test_case *c)
{
    fmt_dim d[FMT_RANK_MAX];
    int n = rng_int(c->r, 1, FMT_RANK_MAX);
    for (int k = 0; k < n; k++)
        d[k] = size(c, 0, 100);
    output(c, ir_dimvals(c->p->region, d, (uint32_t)n, n == 1 && rng_one_in(c->r, 2)), 0);
}

static void (*const makers[CASE_COUNT])(test_case *) = {
    [CASE_ELTWISE] = make_eltwise,
    [CASE_COPY] = make_copy,
    [CASE_REDUCE] = make_reduce,
    [CASE_ARGREDUCE] = make_reduce,
    [CASE_ROW] = make_row,
    [CASE_GEMM] = make_gemm,
    [CASE_ATTENTION] = make_attention,
    [CASE_ROPE] = make_rope,
    [CASE_GATHER] = make_gather,
    [CASE_GATHER_ND] = make_gather,
    [CASE_GATHER_ELEMENTS] = make_gather,
    [CASE_CUMSUM] = make_scan,
    [CASE_TOPK] = make_scan,
    [CASE_DIMVALS] = make_dimvals,
};

static ir_id same(void *ctx, const ir_graph *old, ir_id old_id, ir_graph *g, const ir_id *in)
{
    (void)ctx;
    return ir_copy_node(g, old, old_id, in);
}

test_case *case_new(case_family family, bool baked, bool fused, rng *r)
{
    test_case *c = base_zalloc(BASE_TAG_SYNTH, sizeof *c);
    rtx_err err = {0};
    *c = (test_case){.p = syn_problem_new(),
                     .r = r,
                     .family = family,
                     .baked = baked,
                     .fused = fused,
                     .k_sym = FMT_NONE,
                     .k_of = FMT_NONE};
    for (int o = 0; o < SYN_OPERANDS_MAX; o++)
        c->index_limit[o] = FMT_DIM_BAD;
    makers[family](c);
    if (ir_ok(c->p->region, &err) == RTX_OK && syn_problem_check(c->p, &err) == RTX_OK &&
        ir_rewrite(c->p->region, same, NULL, &c->eval, &err) == RTX_OK) {
        for (uint32_t s = 0; s < fmt_sym_count(c->p->dims); s++) {
            ir_type t = {.dtype = FMT_BOOL, .rank = 1, .dim = {fmt_dim_sym(c->p->dims, s)}};
            (void)ir_input(c->eval, fmt_sym_get(c->p->dims, s)->name, &t);
        }
        return c;
    }
    printf("%s: no problem: %s\n", case_name(family), err.text);
    case_free(c);
    return NULL;
}

void case_free(test_case *c)
{
    if (c == NULL)
        return;
    ir_graph_free(c->eval);
    syn_problem_free(c->p);
    base_free(c);
}
