/* A generator writes each raised operation in many algebraically equal ways: all must reach it and keep its values. Near
 * misses, each wrong in one place, must not. */
#include "pass_fixture.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>
#include <stdio.h>

enum { WANT = 60, SEEDS_MAX = 4000, D = 8 };
static const double eps = 1e-5;

static ir_id un(fx *f, ir_op op, ir_id x) { return ir_emit1(f->g, op, x); }
static ir_id ew(fx *f, ir_op op, ir_id a, ir_id b) { return ir_ew(f->g, op, (ir_id[]){a, b}, 2); }

static ir_id rows_input(fx *f, const char *name)
{
    fmt_dim dim[3] = {fx_sym(f, "B", 64), fx_sym(f, "S", 512), fx_const(f, D)};
    return fx_input(f, name, FMT_F32, 3, dim);
}

/* ---- activations: `wrong` 0 is the operation, others are near misses ---- */

static ir_id gate_arg(fx *f, ir_id x, double c)
{
    return fx_pick(f, 3) ? fx_scale(f, x, c) : fx_div(f, x, fx_num(f, 1 / c));
}

static ir_id gelu(fx *f, int wrong)
{
    ir_id x = rows_input(f, "x");
    if (fx_pick(f, 4) == 3)
        x = fx_mul(f, x, rows_input(f, "y")); /* a product itself */
    double root = wrong == 1 ? sqrt(3.0) : sqrt(2.0), part = wrong == 2 ? 0.49 : 0.5;
    ir_id u = gate_arg(f, wrong == 5 ? fx_offset(f, x, 0.25) : x, 1 / root),
          e = un(f, wrong == 3 ? IR_tanh : IR_erf, u);
    if (wrong == 4)
        return fx_mul(f, x, fx_scale(f, fx_offset(f, e, 0.9), 0.5));
    switch (fx_pick(f, 5)) {
    case 1:
        return fx_mul(f, fx_scale(f, x, part), fx_offset(f, e, 1));
    case 2:
        return fx_scale(f, fx_mul(f, x, fx_offset(f, e, 1)), part);
    case 3:
        return fx_mul(f, fx_scale(f, fx_offset(f, e, 1), part), x);
    case 4:
        return fx_add(f, fx_scale(f, x, part), fx_mul(f, fx_scale(f, x, part), e));
    default:
        return fx_mul(f, x, fx_offset(f, fx_scale(f, e, part), part));
    }
}

static ir_id gelu_tanh(fx *f, int wrong)
{
    ir_id x = rows_input(f, "x");
    double c = wrong == 1 ? 0.8 : sqrt(2 / acos(-1.0)), cube = wrong == 2 ? 0.0447 : 0.044715,
           part = wrong == 3 ? 0.6 : 0.5;
    ir_id x3 = fx_pick(f, 2) ? ew(f, IR_pow, x, fx_num(f, wrong == 4 ? 2.0 : 3.0))
                             : fx_mul(f, x, wrong == 4 ? x : fx_square(f, x));
    ir_id u =
        fx_pick(f, 2) && wrong != 4
            ? fx_mul(f, fx_scale(f, x, c), fx_offset(f, fx_scale(f, fx_square(f, x), cube), 1))
            : fx_scale(f, fx_add(f, x, fx_scale(f, x3, cube)), c);
    if (fx_pick(f, 4) == 3 && !wrong)
        return fx_mul(f, x, un(f, IR_sigmoid, fx_scale(f, u, 2)));
    ir_id t = fx_offset(f, un(f, IR_tanh, u), 1);
    return fx_pick(f, 2) ? fx_mul(f, fx_scale(f, x, part), t) : fx_scale(f, fx_mul(f, t, x), part);
}

static ir_id sigmoid(fx *f, ir_id x, double k)
{
    ir_id down = fx_offset(f, un(f, IR_exp, fx_scale(f, x, -k)), 1);
    return fx_pick(f, 2) ? un(f, IR_sigmoid, k == 1 ? fx_same(f, x) : fx_scale(f, x, k))
                         : fx_div(f, fx_num(f, 1), down);
}

static ir_id silu(fx *f, int wrong)
{
    ir_id x = rows_input(f, "x");
    double k = wrong == 1 ? 1.702 : wrong == 2 ? -1 : 1;
    if (wrong == 3)
        return fx_mul(f, x, fx_offset(f, sigmoid(f, x, 1), 0.5));
    if (wrong == 4)
        return fx_div(f, x, fx_offset(f, un(f, IR_exp, un(f, IR_neg, x)), 2));
    if (wrong == 5)
        return fx_mul(f, x, sigmoid(f, un(f, IR_abs, x), 1));
    if (fx_pick(f, 3) == 2)
        return fx_div(f, x, fx_offset(f, un(f, IR_exp, fx_scale(f, x, -k)), 1));
    return fx_mul(f, x, sigmoid(f, x, k));
}

static ir_id swiglu(fx *f, int wrong)
{
    ir_id a = rows_input(f, "a"), b = rows_input(f, "b"),
          s = sigmoid(f, wrong == 1 ? fx_offset(f, a, 1) : a, 1);
    if (fx_pick(f, 3) == 2)
        return fx_mul(f, fx_mul(f, a, b), s);
    return fx_pick(f, 2) ? fx_mul(f, fx_mul(f, s, a), b) : fx_mul(f, b, fx_mul(f, a, s));
}

/* ---- rows ---- */

static ir_id gamma_of(fx *f)
{
    ir_id w = fx_weight(f, 1, (int64_t[]){D});
    return fx_pick(f, 3)
               ? w
               : ir_reshape(f->g, w, (fmt_dim[]){fx_const(f, 1), fx_const(f, 1), fx_const(f, D)},
                            3);
}

static ir_id source_rows(fx *f)
{
    ir_id x = rows_input(f, "x");
    switch (fx_pick(f, 4)) {
    case 1:
        return fx_add(f, x, rows_input(f, "r"));
    case 2:
        return ir_reshape(f->g, x,
                          (fmt_dim[]){ir_elems(f->g, &(ir_type){.rank = 2,
                                                                .dim = {fx_sym(f, "B", 64),
                                                                        fx_sym(f, "S", 512)}}),
                                      fx_const(f, D)},
                          2);
    default:
        return x;
    }
}

static ir_id layernorm(fx *f, int wrong)
{
    ir_id x = source_rows(f), mean = fx_mean(f, x, wrong == 1 ? 0 : -1), c = fx_sub(f, x, mean),
          var, r;
    int axis = wrong == 1 ? 0 : -1;
    if (wrong == 2) { /* ddof 1 */
        int64_t last = ir_type_of(f->g, x)->rank - 1;
        var = ew(f, IR_div, ir_reduce(f->g, IR_reduce_sum, fx_square(f, c), &last, 1, true),
                 fx_num(f, D - 1));
    } else if (fx_pick(f, 4) == 3 && !wrong) {
        var = ew(f, IR_sub, fx_mean(f, fx_square(f, x), -1), fx_square(f, mean));
    } else {
        var = fx_mean(f, fx_square(f, fx_pick(f, 2) ? c : fx_sub(f, x, mean)), axis);
    }
    if (wrong == 3) /* eps outside the root */
        r = un(f, IR_recip, fx_offset(f, un(f, IR_sqrt, var), eps));
    else if (fx_pick(f, 3) == 2)
        r = 0;
    else
        r = fx_inv_root(f, fx_offset(f, var, eps));
    if (wrong == 4) /* one mean too few */
        c = x;
    ir_id y = r ? 0 : ew(f, IR_div, c, un(f, IR_sqrt, fx_offset(f, var, eps)));
    switch (fx_pick(f, 4)) {
    case 1:
        y = y ? fx_mul(f, y, gamma_of(f)) : fx_mul(f, fx_mul(f, c, gamma_of(f)), r);
        break;
    case 2:
        y = y ? fx_mul(f, y, gamma_of(f)) : fx_mul(f, c, fx_mul(f, r, gamma_of(f)));
        break;
    default:
        y = y ? y : fx_mul(f, c, r);
        break;
    }
    return fx_pick(f, 2) ? fx_add(f, y, gamma_of(f)) : y;
}

static ir_id rmsnorm(fx *f, int wrong)
{
    ir_id x = source_rows(f), sq = wrong == 2 ? un(f, IR_abs, x) : fx_square(f, x), r;
    ir_id m = wrong == 1 ? fx_mean(f, sq, 0) : fx_mean(f, sq, -1);
    if (wrong == 4) {
        int64_t last = ir_type_of(f->g, x)->rank - 1;
        m = ir_reduce(f->g, IR_reduce_sum, sq, &last, 1, true);
    }
    r = wrong == 3 ? un(f, IR_recip, fx_offset(f, un(f, IR_sqrt, m), eps))
                   : fx_inv_root(f, fx_offset(f, m, eps));
    switch (fx_pick(f, 4)) {
    case 1:
        return fx_mul(f, fx_mul(f, x, r), gamma_of(f));
    case 2:
        return fx_mul(f, fx_mul(f, gamma_of(f), x), r);
    case 3:
        return wrong ? fx_mul(f, x, r) : ew(f, IR_div, x, un(f, IR_sqrt, fx_offset(f, m, eps)));
    default:
        return fx_mul(f, x, r);
    }
}

static ir_id softmax(fx *f, int wrong)
{
    ir_id x = fx_pick(f, 2) ? fx_scale(f, source_rows(f), 0.7) : source_rows(f);
    int64_t last = ir_type_of(f->g, x)->rank - 1, first = 0;
    if (wrong == 1)
        return fx_softmax(f, x, 0);
    if (wrong == 2) { /* max of one axis, sum of another */
        ir_id e = un(f, IR_exp, fx_sub(f, x, ir_reduce(f->g, IR_reduce_max, x, &first, 1, true)));
        return fx_div(f, e, ir_reduce(f->g, IR_reduce_sum, e, &last, 1, true));
    }
    if (wrong == 3) { /* no max */
        ir_id e = un(f, IR_exp, x);
        return fx_div(f, e, ir_reduce(f->g, IR_reduce_sum, e, &last, 1, true));
    }
    return fx_softmax(f, fx_same(f, x), -1);
}

/* ---- rope ---- */

static ir_id cut(fx *f, ir_id x, int64_t start, int64_t size, int64_t step)
{
    ir_type t = *ir_type_of(f->g, x);
    fmt_dim at[FMT_RANK_MAX], n[FMT_RANK_MAX];
    int64_t by[FMT_RANK_MAX];
    for (int j = 0; j < t.rank; j++) {
        bool last = j == t.rank - 1;
        at[j] = fx_const(f, last ? start : 0);
        n[j] = last ? fx_const(f, size) : t.dim[j];
        by[j] = last ? step : 1;
    }
    return ir_slice(f->g, x, at, n, by);
}

static ir_id join(fx *f, ir_id a, ir_id b)
{
    return ir_emit(f->g, IR_concat, (ir_id[]){a, b}, 2,
                   &(ir_attrs){.i = {ir_type_of(f->g, a)->rank - 1}});
}

static ir_id minus(fx *f, ir_id x)
{
    return fx_pick(f, 2) ? un(f, IR_neg, x) : ew(f, IR_mul, x, fx_num(f, -1));
}

static ir_id rope(fx *f, int wrong)
{
    fmt_dim dim[4] = {fx_sym(f, "B", 64), fx_const(f, 3), fx_sym(f, "S", 512), fx_const(f, D)};
    fmt_dim tab[2] = {dim[2], dim[3]};
    ir_id x = fx_input(f, "x", FMT_F32, 4, dim), cos = fx_input(f, "cos", FMT_F32, 2, tab),
          sin = fx_input(f, "sin", FMT_F32, 2, tab);
    if (fx_pick(f, 2)) {
        fmt_dim flat[4] = {dim[0], dim[2], dim[1], dim[3]};
        x = fx_permute(f, ir_reshape(f->g, fx_scale(f, fx_permute(f, x, 0, 2, 1, 3), 0.5), flat, 4),
                       0, 2, 1, 3);
    }
    ir_id rot;
    if (wrong < 2 && fx_pick(f, 2)) { /* interleaved */
        fmt_dim pair[5] = {dim[0], dim[1], dim[2], fx_const(f, D / 2), fx_const(f, 1)};
        ir_id even, odd;
        if (fx_pick(f, 2)) {
            even = ir_reshape(f->g, cut(f, x, 0, D / 2, 2), pair, 5);
            odd = ir_reshape(f->g, cut(f, x, 1, D / 2, 2), pair, 5);
        } else {
            fmt_dim both[5] = {dim[0], dim[1], dim[2], fx_const(f, D / 2), fx_const(f, 2)};
            ir_id p = ir_reshape(f->g, x, both, 5);
            even = cut(f, p, 0, 1, 1);
            odd = cut(f, p, 1, 1, 1);
        }
        rot = ir_reshape(
            f->g, wrong == 1 ? join(f, odd, minus(f, even)) : join(f, minus(f, odd), even), dim, 4);
    } else {
        ir_id lo = cut(f, x, 0, D / 2, 1), hi = cut(f, x, D / 2, D / 2, 1);
        if (wrong == 2)
            hi = cut(f, x, D / 2 - 1, D / 2, 1);
        rot = wrong == 1   ? join(f, hi, minus(f, lo))
              : wrong == 3 ? join(f, minus(f, lo), hi)
                           : join(f, minus(f, hi), lo);
        if (!wrong && fx_pick(f, 3) == 2) { /* by halves */
            ir_id c = cut(f, cos, 0, D / 2, 1), s = cut(f, sin, 0, D / 2, 1);
            return join(f, ew(f, IR_sub, fx_mul(f, lo, c), fx_mul(f, hi, s)),
                        fx_add(f, fx_mul(f, hi, c), fx_mul(f, lo, s)));
        }
    }
    return fx_add(f, fx_mul(f, x, cos), fx_mul(f, rot, sin));
}

/* ---- attention ---- */

enum { H = 4, DH = 6 };

typedef struct heads {
    ir_id q, kt, v;
    fmt_dim b, s;
    double cq, ck, cs; /* factors of q, k and the scores */
} heads;

/* A tensor [B,H,S,DH] as its projections give it: straight, or from [B,S,H*DH]. */
static ir_id head_input(fx *f, const char *name, const heads *h)
{
    fmt_dim straight[4] = {h->b, fx_const(f, H), h->s, fx_const(f, DH)},
            rows[3] = {h->b, h->s, fx_const(f, H * DH)};
    fmt_dim split[4] = {h->b, h->s, fx_const(f, H), fx_const(f, DH)};
    if (fx_pick(f, 2))
        return fx_input(f, name, FMT_F32, 4, straight);
    return fx_permute(f, ir_reshape(f->g, fx_input(f, name, FMT_F32, 3, rows), split, 4), 0, 2, 1,
                      3);
}

/* Keys or values of H/2 heads, repeated. `tile` repeats the whole instead: not what grouped heads mean. */
static ir_id grouped_input(fx *f, const char *name, const heads *h, bool tile)
{
    fmt_dim one = fx_const(f, 1), two = fx_const(f, 2), hk = fx_const(f, H / 2),
            d = fx_const(f, DH);
    ir_id x = fx_input(f, name, FMT_F32, 4, (fmt_dim[]){h->b, hk, h->s, d});
    ir_id y = ir_reshape(
        f->g, x, tile ? (fmt_dim[]){h->b, one, hk, h->s, d} : (fmt_dim[]){h->b, hk, one, h->s, d},
        5);
    y = ir_broadcast(
        f->g, y, tile ? (fmt_dim[]){h->b, two, hk, h->s, d} : (fmt_dim[]){h->b, hk, two, h->s, d},
        5);
    return ir_reshape(f->g, y, (fmt_dim[]){h->b, fx_const(f, H), h->s, d}, 4);
}

static ir_id scaled(fx *f, ir_id x, double c) { return c == 1 ? x : fx_scale(f, x, c); }

static ir_id merge_batch(fx *f, ir_id x)
{
    ir_type t = *ir_type_of(f->g, x);
    return ir_reshape(f->g, x,
                      (fmt_dim[]){fmt_dim_mul(f->dims, t.dim[0], t.dim[1]), t.dim[2], t.dim[3]}, 3);
}

static ir_id position(fx *f, const heads *h, int axis)
{
    ir_attrs a = {.dims = {h->s, h->s}, .n_dims = 2, .i = {axis}};
    if (fx_pick(f, 2))
        return ir_emit(f->g, IR_iota, NULL, 0, &a);
    ir_id i = ir_emit(f->g, IR_iota, NULL, 0, &(ir_attrs){.dims = {h->s}, .n_dims = 1});
    return ir_broadcast(
        f->g,
        ir_reshape(f->g, i, (fmt_dim[]){axis ? fx_const(f, 1) : h->s, axis ? h->s : fx_const(f, 1)},
                   2),
        a.dims, 2);
}

/* j ≤ i + off as a condition [S,S]. */
static ir_id visible(fx *f, const heads *h, int off)
{
    ir_id i = position(f, h, 0), j = position(f, h, 1);
    if (off)
        i = ew(f, IR_add, i, ir_scalar(f->g, FMT_I64, off));
    ir_id next = ew(f, IR_add, i, ir_scalar(f->g, FMT_I64, 1));
    switch (fx_pick(f, 5)) {
    case 1:
        return ew(f, IR_ge, i, j);
    case 2:
        return un(f, IR_not, ew(f, IR_gt, j, i));
    case 3:
        return ew(f, IR_lt, j, next);
    case 4:
        return ew(f, IR_le, ew(f, IR_sub, j, i), ir_scalar(f->g, FMT_I64, 0));
    default:
        return ew(f, IR_le, j, i);
    }
}

static ir_id low_where_not(fx *f, ir_id keep, ir_id x, double low)
{
    ir_id v = ir_scalar(f->g, FMT_F32, low);
    if (fx_pick(f, 2))
        return ir_ew(f->g, IR_select, (ir_id[]){un(f, IR_not, keep), v, x}, 3);
    return ir_ew(f->g, IR_select, (ir_id[]){keep, x, v}, 3);
}

static ir_id key_mask(fx *f, const heads *h)
{
    ir_id m = ir_cast(f->g, fx_input(f, "mask", FMT_I64, 2, (fmt_dim[]){h->b, h->s}), FMT_BOOL);
    return ir_reshape(f->g, m, (fmt_dim[]){h->b, fx_const(f, 1), fx_const(f, 1), h->s}, 4);
}

/* wrong: 1 softmax over the wrong axis, 2 mask after the softmax, 3 causal off by one, 4 causal the other way, 5 sigmoid for
 * softmax, 6 p scaled, 7 cast to f16 inside, 8 mask value not low enough, 9 heads tiled instead of repeated, 10 causal along the other axis. */
static ir_id attention(fx *f, int wrong)
{
    heads h = {.b = fx_sym(f, "B", 64), .s = fx_sym(f, "S", 512), .cq = 1, .ck = 1, .cs = 1};
    double c = 1 / sqrt(DH);
    bool group = wrong == 9 || (!wrong && fx_pick(f, 5) == 4);
    switch (fx_pick(f, 5)) {
    case 1:
        h.cq = c;
        break;
    case 2:
        h.ck = c;
        break;
    case 3:
        h.cq = h.ck = sqrt(c);
        break;
    case 4:
        break;
    default:
        h.cs = c;
        break;
    }
    h.q = scaled(f, head_input(f, "q", &h), h.cq);
    ir_id k = group ? grouped_input(f, "k", &h, wrong == 9) : head_input(f, "k", &h);
    h.v = group ? grouped_input(f, "v", &h, wrong == 9) : head_input(f, "v", &h);
    h.kt = fx_pick(f, 2) ? fx_swap(f, scaled(f, k, h.ck)) : scaled(f, fx_swap(f, k), h.ck);
    bool flat = fx_pick(f, 4) == 3;
    ir_id s = flat ? ir_emit2(f->g, IR_dot, merge_batch(f, h.q), merge_batch(f, h.kt))
                   : ir_emit2(f->g, IR_dot, h.q, h.kt);
    if (flat)
        s = ir_reshape(f->g, s, (fmt_dim[]){h.b, fx_const(f, H), h.s, h.s}, 4);
    int mask = wrong == 3 || wrong == 4 || wrong == 10 ? 4
               : wrong == 8                            ? 3
               : wrong == 2                            ? 0
                                                       : fx_pick(f, 6);
    double low = fx_pick(f, 2) ? -INFINITY : -3.4028234663852886e38;
    if (wrong == 8)
        low = -1e4;
    s = scaled(f, s, h.cs);
    if (wrong == 7)
        s = ir_cast(f->g, ir_cast(f->g, s, FMT_F16), FMT_F32);
    switch (mask) {
    case 1:
        s = fx_add(
            f, s,
            fx_input(f, "bias", FMT_F32, 4, (fmt_dim[]){h.b, fx_const(f, 1), fx_const(f, 1), h.s}));
        break;
    case 2:
        s = fx_add(f, s, low_where_not(f, key_mask(f, &h), fx_num(f, 0), low));
        break;
    case 3:
        s = low_where_not(f, key_mask(f, &h), s, low);
        break;
    case 4:
        s = low_where_not(f,
                          wrong == 4    ? un(f, IR_not, visible(f, &h, 0))
                          : wrong == 10 ? fx_swap(f, visible(f, &h, 0))
                                        : visible(f, &h, wrong == 3),
                          s, low);
        break;
    case 5:
        s = fx_add(f, s, low_where_not(f, visible(f, &h, 0), fx_num(f, 0), low));
        break;
    default:
        break;
    }
    ir_id p = wrong == 5      ? un(f, IR_sigmoid, s)
              : wrong == 1    ? fx_softmax(f, s, 2)
              : fx_pick(f, 2) ? fx_softmax(f, s, -1)
                              : un(f, IR_softmax, s);
    if (wrong == 2)
        p = ir_ew(f->g, IR_select, (ir_id[]){key_mask(f, &h), p, fx_num(f, 0)}, 3);
    if (wrong == 6)
        p = fx_scale(f, p, 1.5);
    if (fx_pick(f, 3) == 2)
        p = ir_ew(f->g, IR_select, (ir_id[]){un(f, IR_isnan, p), ir_scalar(f->g, FMT_F32, 0), p},
                  3);
    if (flat)
        return ir_emit2(f->g, IR_dot, merge_batch(f, p), merge_batch(f, h.v));
    return ir_emit2(f->g, IR_dot, p, h.v);
}

/* ---- tables ---- */

typedef ir_id (*builder)(fx *f, int wrong);

static const struct family {
    const char *name;
    builder build;
    ir_op op;
    int misses;
} families[] = {
    {"gelu", gelu, IR_gelu, 5},
    {"gelu_tanh", gelu_tanh, IR_gelu_tanh, 4},
    {"silu", silu, IR_silu, 5},
    {"swiglu", swiglu, IR_swiglu, 1},
    {"layernorm", layernorm, IR_layernorm, 4},
    {"rmsnorm", rmsnorm, IR_rmsnorm, 4},
    {"softmax", softmax, IR_softmax, 3},
    {"rope", rope, IR_rope, 3},
    {"attention", attention, IR_attention, 10},
};

static ir_id build(fx *f, const struct family *fam, uint64_t seed, int wrong)
{
    rtx_err err = {0};
    fx_open(f, seed);
    ir_id y = fam->build(f, wrong);
    y = fx_same(f, y);
    ir_output(f->g, "y", y);
    if (ir_ok(f->g, &err) != RTX_OK)
        fail_msg("%s seed %llu wrong %d: %s", fam->name, (unsigned long long)seed, wrong, err.text);
    return y;
}

static void show(const ir_graph *g)
{
    AUTO_BUF base_buf b;
    base_buf_init(&b, BASE_TAG_BASE, SIZE_MAX);
    ir_print(g, "main", 0, &b);
    fprintf(stderr, "%s\n", b.data);
}

/* Parts that must be gone once the whole is raised. */
static int leftovers(const ir_graph *g, ir_op op)
{
    static const ir_op parts[] = {IR_erf,   IR_tanh,        IR_exp,        IR_sqrt,
                                  IR_rsqrt, IR_reduce_mean, IR_reduce_sum, IR_reduce_max};
    int n =
        op == IR_softmax || op != IR_attention ? 0 : fx_count(g, IR_softmax) + fx_count(g, IR_dot);
    for (size_t i = 0; i < COUNT_OF(parts); i++)
        n += fx_count(g, parts[i]);
    return n;
}

static void test_variants(void **state)
{
    (void)state;
    for (size_t k = 0; k < COUNT_OF(families); k++) {
        const struct family *fam = &families[k];
        uint64_t seen[SEEDS_MAX];
        int n = 0, causal = 0, grouped = 0;
        for (uint64_t seed = 1;
             seed < SEEDS_MAX && n < (fam->op == IR_attention ? 6 * WANT : 2 * WANT); seed++) {
            fx f;
            build(&f, fam, seed, 0);
            uint64_t digest = fx_digest(f.g);
            bool known = false;
            for (int i = 0; i < n && !known; i++)
                known = seen[i] == digest;
            if (!known) {
                seen[n++] = digest;
                ir_graph *r = fx_raise(f.g);
                double d = fx_difference(&f, f.g, r);
                if (fx_count(r, fam->op) != 1 || leftovers(r, fam->op) || !(d <= 1e-6)) {
                    show(f.g);
                    show(r);
                    fail_msg("%s seed %llu: %d raised, %d parts left, difference %g", fam->name,
                             (unsigned long long)seed, fx_count(r, fam->op), leftovers(r, fam->op),
                             d);
                }
                f.nan =
                    fam->op !=
                    IR_attention; /* a where-mask hides NaN that a sum keeps: see pass_raise_attention.c */
                assert_true(fx_difference(&f, f.g, r) <= 1e-6);
                for (ir_id id = 1; id < r->n_nodes; id++)
                    if (ir_op_of(r, id) == IR_attention) {
                        causal += ir_attrs_of(r, id)->i[0] != 0;
                        grouped +=
                            ir_type_of(r, ir_in(r, id, 1))->dim[1] != ir_type_of(r, id)->dim[1];
                    }
                ir_graph_free(r);
            }
            fx_close(&f);
        }
        printf("%-10s %3d spellings reach it", fam->name, n);
        printf(fam->op == IR_attention ? ", %d causal, %d grouped\n" : "\n", causal, grouped);
        assert_true(n >= WANT);
        assert_true(fam->op != IR_attention || (causal > 20 && grouped > 20));
    }
}

/* The wrong one must not become the operation: causal misses may become attention with a mask, tiled heads ungrouped. */
static bool reached(const ir_graph *g, const struct family *fam, int wrong)
{
    bool mask_ok = fam->op == IR_attention && (wrong == 3 || wrong == 4 || wrong == 10),
         heads_ok = fam->op == IR_attention && wrong == 9;
    for (ir_id id = 1; id < g->n_nodes; id++) {
        if (ir_op_of(g, id) != fam->op)
            continue;
        if (mask_ok && !ir_attrs_of(g, id)->i[0])
            continue;
        if (heads_ok && ir_type_of(g, ir_in(g, id, 1))->dim[1] == ir_type_of(g, id)->dim[1])
            continue;
        return true;
    }
    return false;
}

static void test_near_misses(void **state)
{
    (void)state;
    int kinds = 0, graphs = 0;
    for (size_t k = 0; k < COUNT_OF(families); k++)
        for (int wrong = 1; wrong <= families[k].misses; wrong++, kinds++)
            for (uint64_t seed = 1; seed <= 25; seed++, graphs++) {
                fx f;
                build(&f, &families[k], seed, wrong);
                ir_graph *r = fx_raise(f.g);
                double d = fx_difference(&f, f.g, r);
                /* f16 inside the scores is kept, so both sides round alike */
                if (reached(r, &families[k], wrong) || !(d <= 1e-6)) {
                    show(f.g);
                    show(r);
                    fail_msg("%s miss %d seed %llu: raised or difference %g", families[k].name,
                             wrong, (unsigned long long)seed, d);
                }
                ir_graph_free(r);
                fx_close(&f);
            }
    printf("%d kinds of near misses, %d graphs\n", kinds, graphs);
    assert_true(kinds >= 20);
}

/* Fold, then raise, with the n-th allocation failing: NOMEM, nothing left behind, for every n. */
static void test_every_allocation_fails_once(void **state)
{
    (void)state;
    int64_t total = 0;
    for (size_t k = 0; k < COUNT_OF(families); k++)
        for (int64_t n = 0, done = 0; !done; n++, total++) {
            fx f;
            ir_graph *folded = NULL, *raised = NULL;
            build(&f, &families[k], 5, 0);
            size_t live =
                base_alloc_live_bytes(BASE_TAG_IR) + base_alloc_live_bytes(BASE_TAG_PASSES);
            base_alloc_fail_at(n);
            rtx_status s = pass_fold(f.g, &folded, NULL);
            s = s == RTX_OK ? pass_raise(folded, &raised, NULL) : s;
            base_alloc_fail_at(-1);
            done = s == RTX_OK;
            assert_true(done || (s == RTX_NOMEM && !raised));
            ir_graph_free(folded);
            ir_graph_free(raised);
            assert_int_equal(
                base_alloc_live_bytes(BASE_TAG_IR) + base_alloc_live_bytes(BASE_TAG_PASSES), live);
            fx_close(&f);
        }
    printf("%lld allocations failed\n", (long long)total);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_variants),
                                       cmocka_unit_test(test_near_misses),
                                       cmocka_unit_test(test_every_allocation_fails_once)};
    return cmocka_run_group_tests_name("pass_raise", tests, NULL, NULL);
}
