/* pass raise: named operations are recognised by meaning. This file: the driver, and activations.
 *   layer    L2 passes; may include base, format, ir
 *   entry    pass_raise
 *   method   every node is first simplified by the rules of fold, so matchers see views outermost and constants gathered;
 *            then the rules ask what the node computes: which factors, which line, which polynomial, of which tensor.
 *            A cast inside a pattern is a factor like any other, so rounding to another type keeps the parts apart
 *   files    pass_raise_norm.c, pass_raise_attention.c, pass_raise_rope.c hold the other rules */
#include "pass_match.h"
#include <math.h>

enum { RAISE_ROUNDS_MAX = 4 };

#define ROOT_HALF 0.70710678118654752 /* 1/√2 */
#define ROOT_2_PI 0.79788456080286536 /* √(2/π) */
#define GELU_CUBE 0.044715

/* ---- gates: y times a function of y that goes from 0 to 1 ---- */

/* A factor add + mul * fn(arg); or, below the line, add + mul * exp(arg). */
typedef struct gate {
    ir_id factor, arg;
    ir_op fn;
    double mul, add;
    bool below;
} gate;

static bool gate_of(const ir_graph *g, ir_id factor, bool below, gate *out)
{
    pm_line l = pm_line_of(g, factor);
    ir_op fn = ir_op_of(g, l.core);
    if (below ? fn != IR_exp : fn != IR_erf && fn != IR_tanh && fn != IR_sigmoid)
        return false;
    *out = (gate){factor, ir_in(g, l.core, 0), fn, l.mul, l.add, below};
    return true;
}

/* scale * y * gate = r * op(k y), for a gate whose argument is the polynomial c of y. */
typedef struct activation {
    ir_op op;
    double k, r;
} activation;

static bool cubic(double c1, double c3, double unit, double *out_k)
{
    *out_k = c1 / unit;
    return pm_near(c3, unit * GELU_CUBE * *out_k * *out_k * *out_k);
}

/* 1 + erf and 1 + tanh: gelu. Both functions are odd, so 1 - f(-u) is the same gate. */
static bool odd_gate(const gate *q, const double c[4], double scale, activation *out)
{
    if (q->add == 0 || !pm_near(fabs(q->mul), fabs(q->add)))
        return false;
    double sign = q->mul * q->add > 0 ? 1.0 : -1.0;
    if (q->fn == IR_erf) {
        out->op = IR_gelu;
        out->k = sign * c[1] / ROOT_HALF;
        if (c[3] != 0)
            return false;
    } else {
        out->op = IR_gelu_tanh;
        if (!cubic(sign * c[1], sign * c[3], ROOT_2_PI, &out->k))
            return false;
    }
    out->r = 2.0 * scale * q->add / out->k;
    return true;
}

/* sigmoid(u), or 1/(1 + exp(-u)): silu; with the cubic, gelu_tanh, since (1 + tanh z)/2 = sigmoid(2z). */
static bool sigmoid_gate(const gate *q, const double c[4], double scale, activation *out)
{
    double sign = q->below ? -1.0 : 1.0;
    if (q->below ? q->add == 0 || !pm_near(q->mul, q->add) : q->add != 0)
        return false;
    double height = q->below ? 1.0 / q->add : q->mul;
    out->op = IR_silu;
    out->k = sign * c[1];
    if (c[3] != 0) {
        out->op = IR_gelu_tanh;
        if (!cubic(sign * c[1], sign * c[3], 2 * ROOT_2_PI, &out->k))
            return false;
    }
    out->r = scale * height / out->k;
    return true;
}

static bool activation_of(const ir_graph *g, const gate *q, ir_id y, double scale, activation *out)
{
    double c[4];
    if (!pm_poly_of(g, q->arg, y, c) || c[0] != 0 || c[2] != 0 || c[1] == 0)
        return false;
    bool odd = q->fn == IR_erf || q->fn == IR_tanh;
    return (odd ? odd_gate(q, c, scale, out) : sigmoid_gate(q, c, scale, out)) &&
           pm_near(out->r, 1.0);
}

/* op(k y) times what is left of the product. silu times one tensor is swiglu. */
static ir_id emit_activation(ir_graph *g, const activation *a, ir_id y, const pm_product *rest)
{
    ir_id x = pm_scaled(g, y, pm_near(a->k, 1.0) ? 1.0 : a->k);
    if (!x)
        return 0;
    if (a->op == IR_silu && rest->n_num == 1 && rest->n_den == 0)
        return pm_bin(g, IR_swiglu, x, rest->num[0]);
    x = pm_un(g, a->op, x);
    for (uint8_t i = 0; x && i < rest->n_num; i++)
        x = pm_bin(g, IR_mul, x, rest->num[i]);
    for (uint8_t i = 0; x && i < rest->n_den; i++)
        x = pm_bin(g, IR_div, x, rest->den[i]);
    return x;
}

/* Nodes that the argument of a gate is made of: candidates for y, outermost first. */
enum { PARTS_MAX = 24 };
static int parts_of(const ir_graph *g, ir_id arg, ir_id *parts)
{
    int n = 0;
    parts[n++] = arg;
    for (int at = 0; at < n; at++) {
        ir_op op = ir_op_of(g, parts[at]);
        if (op != IR_add && op != IR_sub && op != IR_mul && op != IR_div && op != IR_pow &&
            op != IR_neg)
            continue;
        for (uint32_t k = 0; k < ir_node_get(g, parts[at])->n_in; k++) {
            ir_id in = ir_in(g, parts[at], k);
            bool known = n == PARTS_MAX;
            for (int i = 0; i < n && !known; i++)
                known = parts[i] == in;
            if (!known)
                parts[n++] = in;
        }
    }
    return n;
}

/* y * gate(y) * scale, the factors in any order. */
static ir_id raise_gated(ir_graph *g, ir_id id, const gate *q)
{
    ir_id parts[PARTS_MAX];
    int n = parts_of(g, q->arg, parts);
    for (int i = 0; i < n; i++) {
        pm_product p;
        activation a;
        if (!pm_product_of(g, id, parts[i], &p) || !pm_take(p.num, &p.n_num, parts[i]) ||
            !pm_take(q->below ? p.den : p.num, q->below ? &p.n_den : &p.n_num, q->factor))
            continue;
        if (activation_of(g, q, parts[i], p.scale, &a))
            return emit_activation(g, &a, parts[i], &p);
    }
    return 0;
}

static ir_id raise_product(ir_graph *g, ir_id id)
{
    pm_product p;
    gate q;
    if ((!pm_is(g, id, IR_mul) && !pm_is(g, id, IR_div)) || !pm_product_of(g, id, 0, &p))
        return 0;
    for (uint8_t i = 0; i < p.n_num + p.n_den; i++) {
        bool below = i >= p.n_num;
        ir_id r = gate_of(g, below ? p.den[i - p.n_num] : p.num[i], below, &q)
                      ? raise_gated(g, id, &q)
                      : 0;
        if (r || g->err.code)
            return r;
    }
    return 0;
}

/* a y + m y f(u) = y (a + m f(u)): the gate multiplied out. */
static ir_id raise_sum(ir_graph *g, ir_id id)
{
    if (!pm_is(g, id, IR_add))
        return 0;
    for (uint32_t k = 0; k < 2; k++) {
        pm_product whole;
        if (!pm_product_of(g, ir_in(g, id, k), 0, &whole))
            continue;
        for (uint8_t i = 0; i < whole.n_num; i++) {
            ir_id f = whole.num[i], parts[PARTS_MAX];
            if (!pm_is(g, f, IR_erf) && !pm_is(g, f, IR_tanh))
                continue;
            int n = parts_of(g, ir_in(g, f, 0), parts);
            for (int j = 0; j < n; j++) {
                pm_product p, y, none = {.scale = 1.0};
                activation a;
                if (!pm_product_of(g, ir_in(g, id, k), parts[j], &p) ||
                    !pm_product_of(g, ir_in(g, id, 1 - k), parts[j], &y) || p.n_num != 2 ||
                    p.n_den || y.n_num != 1 || y.n_den || y.num[0] != parts[j] ||
                    !pm_take(p.num, &p.n_num, f) || p.num[0] != parts[j])
                    continue;
                gate q = {f, ir_in(g, f, 0), ir_op_of(g, f), p.scale, y.scale, false};
                if (activation_of(g, &q, parts[j], 1.0, &a))
                    return emit_activation(g, &a, parts[j], &none);
            }
        }
    }
    return 0;
}

/* 1/(1 + exp(-x)) = sigmoid(x). */
static ir_id raise_sigmoid(ir_graph *g, ir_id id)
{
    pm_product p;
    gate q;
    if ((!pm_is(g, id, IR_div) && !pm_is(g, id, IR_recip)) || !pm_product_of(g, id, 0, &p) ||
        p.n_num || p.n_den != 1 || !gate_of(g, p.den[0], true, &q) || q.add == 0 ||
        !pm_near(q.mul, q.add) || !pm_near(p.scale, q.add))
        return 0;
    pm_line u = pm_line_of(g, q.arg);
    ir_id x = u.add == 0 ? pm_scaled(g, u.core, -u.mul) : pm_un(g, IR_neg, q.arg);
    return x ? pm_un(g, IR_sigmoid, x) : 0;
}

/* silu(a) * b = swiglu(a, b) for a full tensor b. */
static ir_id raise_swiglu(ir_graph *g, ir_id id)
{
    if (!pm_is(g, id, IR_mul))
        return 0;
    for (uint32_t k = 0; k < 2; k++) {
        ir_id a = ir_in(g, id, k), b = ir_in(g, id, 1 - k);
        if (pm_is(g, a, IR_silu) && !pm_is(g, b, IR_broadcast) && !pm_is(g, b, IR_const))
            return pm_bin(g, IR_swiglu, ir_in(g, a, 0), b);
    }
    return 0;
}

ir_id pass_raise_activation(ir_graph *g, ir_id id)
{
    static ir_id (*const rules[])(ir_graph *, ir_id) = {raise_product, raise_sum, raise_sigmoid,
                                                        raise_swiglu};
    for (size_t i = 0; i < COUNT_OF(rules); i++) {
        ir_id r = rules[i](g, id);
        if (r || g->err.code)
            return r;
    }
    return 0;
}

/* ---- driver ---- */

static ir_id raise_node(void *ctx, const ir_graph *old, ir_id old_id, ir_graph *g, const ir_id *in)
{
    static ir_id (*const groups[])(ir_graph *, ir_id) = {pass_raise_norm, pass_raise_activation,
                                                         pass_raise_rope, pass_raise_attention};
    (void)ctx;
    ir_id id = pass_emit_copy(g, old, old_id, in);
    for (size_t i = 0; id && i < COUNT_OF(groups); i++) {
        ir_id r = groups[i](g, id);
        if (g->err.code)
            return 0;
        id = r ? r : id;
    }
    return id;
}

rtx_status pass_raise(const ir_graph *g, ir_graph **out, rtx_err *err)
{
    return pm_fixed_point(g, raise_node, NULL, RAISE_ROUNDS_MAX, out, err);
}
