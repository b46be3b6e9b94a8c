/* Rules of pass raise for rows of the last axis: softmax, layernorm, rmsnorm, and the affine parts that follow them.
 *   layer    L2 passes; may include base, format, ir
 *   method   the root is read as a product of factors; one factor is a statistic of the row, and the statistic says of
 *            which tensor. Reshapes that keep the rows do not matter; operand order, mul or div, mean or sum do not either */
#include "pass_match.h"
#include <math.h>

/* ---- reductions over the last axis ---- */

/* id = op over the last axis of *out_arg. */
static bool last_reduce(const ir_graph *g, ir_id id, ir_op op, ir_id *out_arg)
{
    if (!pm_is(g, id, op))
        return false;
    const ir_attrs *a = ir_attrs_of(g, id);
    *out_arg = ir_in(g, id, 0);
    return a->n_list == 1 && a->list[0] == ir_type_of(g, *out_arg)->rank - 1;
}

static ir_id below_reshapes(const ir_graph *g, ir_id id)
{
    while (pm_is(g, id, IR_reshape))
        id = ir_in(g, id, 0);
    return id;
}

/* id = *out_scale * mean over the last axis of *out_arg, written with a mean or a sum. */
static bool scaled_mean(const ir_graph *g, ir_id id, ir_id *out_arg, double *out_scale)
{
    pm_product p;
    int64_t n;
    if (!pm_product_of(g, below_reshapes(g, id), 0, &p) || p.n_num != 1 || p.n_den != 0)
        return false;
    ir_id r = below_reshapes(g, p.num[0]);
    *out_scale = p.scale;
    if (last_reduce(g, r, IR_reduce_mean, out_arg))
        return true;
    if (!last_reduce(g, r, IR_reduce_sum, out_arg))
        return false;
    const ir_type *t = ir_type_of(g, *out_arg);
    if (!fmt_dim_is_const(g->dims, t->dim[t->rank - 1], &n))
        return false;
    *out_scale *= (double)n;
    return true;
}

/* id = x - mean(x). */
static bool centred(const ir_graph *g, ir_id id, ir_id *out_x)
{
    ir_id c = pm_rows(g, id), m, arg;
    double scale;
    if (!pm_is(g, c, IR_sub) || !pm_row_value(g, ir_in(g, c, 1), &m) ||
        !scaled_mean(g, m, &arg, &scale))
        return false;
    *out_x = ir_in(g, c, 0);
    return pm_near(scale, 1.0) && pm_rows(g, arg) == pm_rows(g, *out_x);
}

/* id = y². */
static bool square(const ir_graph *g, ir_id id, ir_id *out_y)
{
    pm_product p;
    ir_id m = pm_rows(g, id);
    if (pm_is(g, m, IR_mul) && ir_in(g, m, 0) == ir_in(g, m, 1)) {
        *out_y = pm_rows(g, ir_in(g, m, 0));
        return true;
    }
    if (!pm_row_product_of(g, m, 0, &p) || p.n_num != 2 || p.n_den != 0 || !pm_near(p.scale, 1.0) ||
        p.num[0] != p.num[1])
        return false;
    *out_y = p.num[0];
    return true;
}

/* ---- the statistic 1/√(spread + eps) ---- */

typedef struct stat {
    ir_id y;   /* spread = mean(y²) */
    ir_id raw; /* or mean(x²) - mean(x)² of this x; y is 0 then */
    double eps;
} stat;

/* id = mean(x²) - mean(x)². */
static bool moments(const ir_graph *g, ir_id id, ir_id *out_x)
{
    ir_id arg;
    double scale;
    pm_product p;
    if (!pm_is(g, id, IR_sub) || !scaled_mean(g, ir_in(g, id, 0), &arg, &scale) ||
        !pm_near(scale, 1.0) || !square(g, arg, out_x) ||
        !pm_product_of(g, ir_in(g, id, 1), 0, &p) || p.n_num != 2 || p.n_den != 0)
        return false;
    ir_id a, b; /* the constants of both means are together in p.scale */
    double sa, sb;
    return p.num[0] == p.num[1] && scaled_mean(g, p.num[0], &a, &sa) &&
           scaled_mean(g, p.num[1], &b, &sb) && pm_near(p.scale * sa * sb, 1.0) &&
           pm_rows(g, a) == pm_rows(g, *out_x);
}

static bool spread(const ir_graph *g, ir_id id, stat *out)
{
    ir_id arg;
    double scale;
    pm_line l = pm_line_of(g, below_reshapes(g, id));
    ir_id core = below_reshapes(g, l.core);
    *out = (stat){.eps = l.add};
    if (pm_near(l.mul, 1.0) && moments(g, core, &out->raw))
        return true;
    return scaled_mean(g, core, &arg, &scale) && pm_near(scale * l.mul, 1.0) &&
           square(g, arg, &out->y);
}

/* id = √v, or 1/√v in any of its forms. They differ at -0 and -inf alone, which no spread is. */
static bool root(const ir_graph *g, ir_id id, bool *out_inverse, ir_id *out_v)
{
    double e;
    ir_op op = ir_op_of(g, id);
    if (op == IR_pow && ir_is_splat(g, ir_in(g, id, 1), &e) && fabs(e) == 0.5) {
        *out_inverse = e < 0;
    } else if (op == IR_sqrt || op == IR_rsqrt) {
        *out_inverse = op == IR_rsqrt;
    } else {
        return false;
    }
    *out_v = ir_in(g, id, 0);
    ir_id below = below_reshapes(g, *out_v);
    if (pm_is(g, below, IR_recip)) {
        *out_inverse = !*out_inverse;
        *out_v = ir_in(g, below, 0);
    }
    return true;
}

/* Factor f of a product is 1/√(spread + eps), as a row value above or, as a root, below. */
static bool inverse_root(const ir_graph *g, ir_id f, bool below, stat *out)
{
    ir_id core, v;
    bool inverse;
    pm_product p;
    if (!pm_row_value(g, f, &core) || !pm_product_of(g, core, 0, &p) || !pm_near(p.scale, 1.0))
        return false;
    bool up = p.n_num == 1 && p.n_den == 0;
    if (!up && (p.n_num != 0 || p.n_den != 1))
        return false;
    ir_id r = below_reshapes(g, up ? p.num[0] : p.den[0]);
    return root(g, r, &inverse, &v) && inverse == (below != up) && spread(g, v, out);
}

/* ---- norms ---- */

static ir_id emit_norm(ir_graph *g, ir_op op, ir_id x, ir_id gamma, double eps, const ir_type *out)
{
    ir_attrs a = {.f = {eps}};
    x = pm_reshape(g, x, out->dim, out->rank);
    return x ? pass_emit(g, op, (ir_id[]){x, gamma}, gamma ? 2 : 1, &a) : 0;
}

/* What is left of a product may be one vector of the last axis: gamma. */
static bool only_gamma(ir_graph *g, const pm_product *p, ir_id *out_gamma)
{
    *out_gamma = 0;
    return pm_near(p->scale, 1.0) && p->n_den == 0 && p->n_num <= 1 &&
           (p->n_num == 0 || pm_col_vector(g, p->num[0], out_gamma));
}

/* Take the factor with the rows of y out of the product. */
static bool take_rows(const ir_graph *g, pm_product *p, ir_id y, ir_id *out_factor)
{
    for (uint8_t i = 0; i < p->n_num; i++)
        if (pm_rows(g, p->num[i]) == pm_rows(g, y)) {
            *out_factor = p->num[i];
            return pm_take(p->num, &p->n_num, p->num[i]);
        }
    return false;
}

/* The product without its statistic: x - mean(x) times 1/√(var + eps) is layernorm, x times 1/√(mean x² + eps) rmsnorm. */
static ir_id norm_of(ir_graph *g, const ir_type *out, pm_product p, const stat *s)
{
    ir_id f, x, gamma;
    if (s->raw) {
        for (uint8_t i = 0; i < p.n_num; i++)
            if (centred(g, p.num[i], &x) && pm_rows(g, x) == pm_rows(g, s->raw)) {
                pm_take(p.num, &p.n_num, p.num[i]);
                return only_gamma(g, &p, &gamma) ? emit_norm(g, IR_layernorm, x, gamma, s->eps, out)
                                                 : 0;
            }
        return 0;
    }
    if (!take_rows(g, &p, s->y, &f) || !only_gamma(g, &p, &gamma))
        return 0;
    bool layer = centred(g, f, &x);
    return emit_norm(g, layer ? IR_layernorm : IR_rmsnorm, layer ? x : f, gamma, s->eps, out);
}

/* (x - mean) / √(var + eps) [* gamma] and x / √(mean x² + eps) [* gamma], in any order of factors. */
static ir_id raise_norm(ir_graph *g, ir_id id)
{
    pm_product p;
    if ((!pm_is(g, id, IR_mul) && !pm_is(g, id, IR_div)) || !pm_row_product_of(g, id, 0, &p))
        return 0;
    ir_type out = *ir_type_of(g, id);
    for (int below = 0; below < 2; below++) {
        uint8_t n = below ? p.n_den : p.n_num;
        for (uint8_t i = 0; i < n; i++) {
            stat s;
            pm_product rest;
            ir_id f = below ? p.den[i] : p.num[i];
            if (!inverse_root(g, f, below, &s) || !pm_row_product_of(g, id, s.y, &rest))
                continue;
            pm_take(below ? rest.den : rest.num, below ? &rest.n_den : &rest.n_num, f);
            ir_id r = norm_of(g, &out, rest, &s);
            if (r || g->err.code)
                return r;
        }
    }
    return 0;
}

/* norm(x) * vector = norm(x, vector) when it has no gamma yet. */
static ir_id raise_gamma(ir_graph *g, ir_id id)
{
    pm_product p;
    if (!pm_is(g, id, IR_mul) || !pm_row_product_of(g, id, 0, &p) || p.n_num != 2)
        return 0;
    for (int k = 0; k < 2; k++) {
        ir_id n = p.num[k], gamma;
        ir_op op = ir_op_of(g, n);
        pm_product rest = p;
        if ((op != IR_layernorm && op != IR_rmsnorm) || ir_node_get(g, n)->n_in != 1 ||
            !pm_take(rest.num, &rest.n_num, n))
            continue;
        ir_type out = *ir_type_of(g, id);
        double eps = ir_attrs_of(g, n)->f[0];
        if (only_gamma(g, &rest, &gamma) && gamma)
            return emit_norm(g, op, ir_in(g, n, 0), gamma, eps, &out);
    }
    return 0;
}

static ir_id ones(ir_graph *g, fmt_dim d)
{
    ir_type t = {.dtype = FMT_F32, .rank = 1, .dim = {d}};
    int64_t n;
    if (!fmt_dim_is_const(g->dims, d, &n))
        return pm_splat(g, FMT_F32, 1.0, &d, 1);
    AUTO_FREE float *v = base_alloc_array(BASE_TAG_PASSES, (size_t)n, sizeof *v);
    if (!v)
        return ir_bad(g, RTX_NOMEM, "out of memory");
    for (int64_t i = 0; i < n; i++)
        v[i] = 1.0f;
    return ir_const_copy(g, &t, v, (size_t)n * sizeof *v);
}

/* layernorm(x[, gamma]) + vector = layernorm(x, gamma or 1, vector). */
static ir_id raise_beta(ir_graph *g, ir_id id)
{
    if (!pm_is(g, id, IR_add))
        return 0;
    for (uint32_t k = 0; k < 2; k++) {
        ir_id n = ir_in(g, id, k), beta, gamma;
        if (!pm_is(g, n, IR_layernorm) || ir_node_get(g, n)->n_in == 3 ||
            !pm_col_vector(g, ir_in(g, id, 1 - k), &beta))
            continue;
        ir_attrs a = *ir_attrs_of(g, n);
        ir_type vec = *ir_type_of(g, beta);
        gamma = ir_node_get(g, n)->n_in == 2 ? ir_in(g, n, 1) : ones(g, vec.dim[0]);
        return gamma ? pass_emit(g, IR_layernorm, (ir_id[]){ir_in(g, n, 0), gamma, beta}, 3, &a)
                     : 0;
    }
    return 0;
}

/* ---- softmax ---- */

/* e = exp(x - max(x)) over the rows of x. */
static bool shifted_exp(const ir_graph *g, ir_id e, ir_id *out_x)
{
    ir_id m, arg;
    if (!pm_is(g, e, IR_exp))
        return false;
    ir_id z = pm_rows(g, ir_in(g, e, 0));
    if (!pm_is(g, z, IR_sub) || !pm_row_value(g, ir_in(g, z, 1), &m) ||
        !last_reduce(g, m, IR_reduce_max, &arg))
        return false;
    *out_x = ir_in(g, z, 0);
    return pm_rows(g, arg) == pm_rows(g, *out_x);
}

/* Factor f (above or below the line) is 1/Σ e over the rows of e. */
static bool inverse_sum(const ir_graph *g, ir_id f, bool below, ir_id e)
{
    ir_id core, arg;
    if (!pm_row_value(g, f, &core))
        return false;
    if (!below) {
        if (!pm_is(g, core, IR_recip))
            return false;
        core = below_reshapes(g, ir_in(g, core, 0));
    }
    return last_reduce(g, core, IR_reduce_sum, &arg) && pm_rows(g, arg) == pm_rows(g, e);
}

/* exp(x - max) / Σ exp(x - max). */
static ir_id raise_softmax(ir_graph *g, ir_id id)
{
    pm_product p;
    ir_id x;
    if ((!pm_is(g, id, IR_mul) && !pm_is(g, id, IR_div)) || !pm_row_product_of(g, id, 0, &p) ||
        !pm_near(p.scale, 1.0) || p.n_num + p.n_den != 2)
        return 0;
    for (uint8_t i = 0; i < p.n_num; i++) {
        ir_id other = p.n_den ? p.den[0] : p.num[1 - i];
        if (!shifted_exp(g, p.num[i], &x) || !inverse_sum(g, other, p.n_den == 1, p.num[i]))
            continue;
        ir_type out = *ir_type_of(g, id);
        x = pm_reshape(g, x, out.dim, out.rank);
        return x ? pm_un(g, IR_softmax, x) : 0;
    }
    return 0;
}

ir_id pass_raise_norm(ir_graph *g, ir_id id)
{
    static ir_id (*const rules[])(ir_graph *, ir_id) = {raise_softmax, raise_norm, raise_gamma,
                                                        raise_beta};
    for (size_t i = 0; i < COUNT_OF(rules); i++) {
        ir_id r = rules[i](g, id);
        if (r || g->err.code)
            return r;
    }
    return 0;
}
