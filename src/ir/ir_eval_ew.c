/* Elementwise operations of the evaluator: one row an op, in double and in wrapping 64-bit integers.
 *   layer      L1 ir; may include base, format
 *   integers   computed as uint64 and wrapped to the result's width; bool is 0 or 1
 *   floats     formulas in double by libm; NaN propagates through min, max, relu and sign, as in NumPy */
#include "ir_eval.h"
#include <math.h>

typedef double (*float_fn)(double a, double b);
typedef int64_t (*int_fn)(int64_t a, int64_t b);
typedef int64_t (*test_fn)(double a, double b);

/* What an op computes: float to float, float to bool, and integer to integer or bool. */
typedef struct ew_row {
    float_fn f;
    test_fn t;
    int_fn i;
} ew_row;

/* clang-format off */
#define U(x) ((uint64_t)(x))
#define FLOAT(name, expr) static double f_##name(double a, double b) { (void)a; (void)b; return (expr); }
#define INT(name, expr) static int64_t i_##name(int64_t a, int64_t b) { (void)a; (void)b; return (int64_t)(expr); }
#define TEST(name, expr) static int64_t t_##name(double a, double b) { (void)a; (void)b; return (expr); }
/* clang-format on */

static double sigmoid(double x) { return 1 / (1 + exp(-x)); }

static int64_t int_div(int64_t a, int64_t b)
{
    return b == 0 ? 0 : b == -1 ? (int64_t)(0 - U(a)) : a / b;
}

static int64_t int_rem(int64_t a, int64_t b) { return b == 0 || b == -1 ? 0 : a % b; }

static int64_t int_mod(int64_t a, int64_t b)
{
    int64_t r = int_rem(a, b);
    return r && (r < 0) != (b < 0) ? r + b : r;
}

/* Wrapping power; a negative exponent gives the truncated quotient 1 / a^-b, and 0 for a = 0. */
static int64_t int_pow(int64_t a, int64_t b)
{
    if (b < 0)
        return a == 1 ? 1 : a == -1 ? (b & 1 ? -1 : 1) : 0;
    uint64_t result = 1, base = U(a);
    for (uint64_t e = U(b); e; e >>= 1, base *= base)
        result *= e & 1 ? base : 1;
    return (int64_t)result;
}

static const double root_half = 0.70710678118654752440, root_two_by_pi = 0.79788456080286535588;

/* clang-format off */
FLOAT(neg, -a)                                        INT(neg, 0 - U(a))
FLOAT(abs, fabs(a))                                   INT(abs, a < 0 ? 0 - U(a) : U(a))
FLOAT(sign, isnan(a) ? a : (a > 0) - (a < 0))         INT(sign, (a > 0) - (a < 0))
FLOAT(relu, a > 0 || isnan(a) ? a : 0)                INT(relu, a > 0 ? a : 0)
FLOAT(exp, exp(a))
FLOAT(log, log(a))
FLOAT(sqrt, sqrt(a))
FLOAT(rsqrt, 1 / sqrt(a))
FLOAT(recip, 1 / a)
FLOAT(erf, erf(a))
FLOAT(tanh, tanh(a))
FLOAT(sigmoid, sigmoid(a))
FLOAT(sin, sin(a))
FLOAT(cos, cos(a))
FLOAT(floor, floor(a))
FLOAT(ceil, ceil(a))
FLOAT(round, nearbyint(a))
FLOAT(add, a + b)                                     INT(add, U(a) + U(b))
FLOAT(sub, a - b)                                     INT(sub, U(a) - U(b))
FLOAT(mul, a * b)                                     INT(mul, U(a) * U(b))
FLOAT(div, a / b)                                     INT(div, int_div(a, b))
FLOAT(pow, pow(a, b))                                 INT(pow, int_pow(a, b))
FLOAT(fmod, fmod(a, b))                               INT(fmod, int_rem(a, b))
FLOAT(min, a < b || isnan(a) ? a : b)                 INT(min, a < b ? a : b)
FLOAT(max, a > b || isnan(a) ? a : b)                 INT(max, a > b ? a : b)
/* 1 + erf(z) = erfc(-z) and 1 + tanh(z) = 2 sigmoid(2 z), without the cancellation below zero. */
FLOAT(gelu, 0.5 * a * erfc(-a * root_half))
FLOAT(gelu_tanh, a * sigmoid(2 * root_two_by_pi * (a + 0.044715 * a * a * a)))
FLOAT(silu, a * sigmoid(a))
FLOAT(swiglu, a * sigmoid(a) * b)
INT(mod, int_mod(a, b))
INT(not, !a)
INT(and, a & b)
INT(or, a | b)
INT(xor, a ^ b)
TEST(isnan, isnan(a) != 0)
TEST(isinf, isinf(a) != 0)
TEST(eq, a == b)                                      INT(eq, a == b)
TEST(ne, a != b)                                      INT(ne, a != b)
TEST(lt, a < b)                                       INT(lt, a < b)
TEST(le, a <= b)                                      INT(le, a <= b)
TEST(gt, a > b)                                       INT(gt, a > b)
TEST(ge, a >= b)                                      INT(ge, a >= b)

#define F_(name) [IR_##name] = {.f = f_##name}
#define I_(name) [IR_##name] = {.i = i_##name}
#define FI(name) [IR_##name] = {.f = f_##name, .i = i_##name}
#define T_(name) [IR_##name] = {.t = t_##name}
#define TI(name) [IR_##name] = {.t = t_##name, .i = i_##name}
static const ew_row rows[IR_OP_COUNT] = {
    FI(neg), FI(abs), FI(sign), FI(relu), FI(add), FI(sub), FI(mul), FI(div), FI(pow), FI(fmod), FI(min), FI(max),
    F_(exp), F_(log), F_(sqrt), F_(rsqrt), F_(recip), F_(erf), F_(tanh), F_(sigmoid), F_(sin), F_(cos),
    F_(floor), F_(ceil), F_(round), F_(gelu), F_(gelu_tanh), F_(silu), F_(swiglu),
    I_(mod), I_(not), I_(and), I_(or), I_(xor),
    T_(isnan), T_(isinf), TI(eq), TI(ne), TI(lt), TI(le), TI(gt), TI(ge),
};
/* clang-format on */

static rtx_status eval_select(const ir_eval_call *c)
{
    const int64_t *pick = c->in[0]->i;
    ir_tensor *out = c->out;
    for (int64_t k = 0; k < out->elems; k++) {
        const ir_tensor *from = c->in[pick[k] ? 1 : 2];
        if (out->f)
            out->f[k] = from->f[k];
        else
            out->i[k] = from->i[k];
    }
    return RTX_OK;
}

static rtx_status eval_cast(const ir_eval_call *c)
{
    const ir_tensor *x = c->in[0];
    ir_tensor *out = c->out;
    fmt_dtype to = out->dtype;
    for (int64_t k = 0; k < out->elems; k++) {
        if (x->f && out->f)
            out->f[k] = ir_round_to(to, x->f[k]);
        else if (x->f)
            out->i[k] = ir_float_to_int(to, x->f[k]);
        else if (out->f) /* one rounding: an i64 may not fit a double */
            out->f[k] = to == FMT_F32 ? (double)(float)x->i[k] : ir_round_to(to, (double)x->i[k]);
        else
            out->i[k] = ir_wrap_int(to, x->i[k]);
    }
    return RTX_OK;
}

rtx_status ir_eval_elementwise(const ir_eval_call *c)
{
    if (c->op == IR_select || c->op == IR_cast)
        return c->op == IR_select ? eval_select(c) : eval_cast(c);
    const ew_row *row = &rows[c->op];
    const ir_tensor *a = c->in[0], *b = c->in[c->n_in > 1];
    ir_tensor *out = c->out;
    if (a->f ? !(out->f ? row->f != NULL : row->t != NULL) : !row->i)
        return FAIL(c->err, INTERNAL, "%s has no evaluation for %s", ir_op_get(c->op)->name,
                    fmt_dtype_name(a->dtype));
    if (a->f && out->f)
        for (int64_t k = 0; k < out->elems; k++)
            out->f[k] = row->f(a->f[k], b->f[k]);
    else if (a->f)
        for (int64_t k = 0; k < out->elems; k++)
            out->i[k] = row->t(a->f[k], b->f[k]);
    else
        for (int64_t k = 0; k < out->elems; k++)
            out->i[k] = ir_wrap_int(out->dtype, row->i(a->i[k], b->i[k]));
    return RTX_OK;
}
