/* ONNX operators that compute element by element or multiply matrices. */
#include "fe_onnx.h"
#include <float.h>
#include <math.h>

/* ---- contents of 32 bits ---- */

/* Sizes that a model computes in i32 it takes to fit, so that free ones count as small; what it does to them may not fit. */
static bool sizes_fit(fe_node *n, fmt_dim v)
{
    int64_t lo, hi;
    fmt_dim_range(n->d, v, &lo, &hi);
    if (lo >= INT32_MIN && hi <= INT32_MAX)
        return true;
    uint32_t n_sym = fmt_sym_count(n->d);
    AUTO_FREE int64_t *small = base_alloc_array(BASE_TAG_FRONTEND, n_sym + 1, sizeof *small);
    if (!small) {
        ir_bad(n->g, RTX_NOMEM, "out of memory");
        return false;
    }
    for (uint32_t i = 0; i < n_sym; i++)
        small[i] = MIN(fmt_sym_get(n->d, i)->hi, MAX(fmt_sym_get(n->d, i)->lo, 16));
    return fmt_dim_eval(n->d, v, small, &lo) && lo >= INT32_MIN && lo <= INT32_MAX;
}

bool fe_wrap_content(fe_node *n, fmt_dtype t, fmt_dim *content, uint32_t count)
{
    for (uint32_t i = 0; t == FMT_I32 && i < count; i++) {
        int64_t v;
        if (!fmt_dim_is_const(n->d, content[i], &v)) {
            if (!sizes_fit(n, content[i]))
                return false;
            continue;
        }
        if (v == FMT_DIM_LIMIT || v == -FMT_DIM_LIMIT) /* INT64_MAX, INT64_MIN */
            v = v > 0 ? -1 : 0;
        content[i] = fmt_dim_const(n->d, (int32_t)v);
    }
    return true;
}

/* fe_known_ew where 32 bits hold the result. */
static bool known_ew(fe_node *n, ir_op op, uint32_t n_in)
{
    if (!fe_known_ew(n, op, n_in))
        return false;
    fe_val *v = n->out[0];
    if (!v || fe_wrap_content(n, (fmt_dtype)v->type.dtype, v->content, v->n))
        return true;
    *v = (fe_val){.maker = v->maker};
    return false;
}

/* ---- elementwise ---- */

static void op_unary(fe_node *n)
{
    if (known_ew(n, (ir_op)n->op->arg, 1))
        return;
    fe_set(n, 0, ir_emit1(n->g, (ir_op)n->op->arg, fe_in(n, 0)));
}

static void op_binary(fe_node *n)
{
    if (known_ew(n, (ir_op)n->op->arg, 2))
        return;
    fe_set(n, 0, fe_ew2(n, (ir_op)n->op->arg, fe_in(n, 0), fe_in(n, 1)));
}

static void op_select(fe_node *n)
{
    if (known_ew(n, IR_select, 3))
        return;
    fe_set(n, 0, fe_ew(n, IR_select, (ir_id[]){fe_in(n, 0), fe_in(n, 1), fe_in(n, 2)}, 3));
}

/* Max, Min, Sum: any number of operands, broadcast together. */
static void op_variadic(fe_node *n)
{
    ir_op op = (ir_op)n->op->arg;
    if (n->n_in == 2 && known_ew(n, op, 2))
        return;
    ir_id x = fe_in(n, 0);
    for (uint32_t k = 1; k < n->n_in && fe_good(n); k++)
        x = fe_ew2(n, op, x, fe_in(n, k));
    fe_set(n, 0, x);
}

static void op_mean(fe_node *n)
{
    ir_id x = fe_in(n, 0);
    for (uint32_t k = 1; k < n->n_in && fe_good(n); k++)
        x = fe_ew2(n, IR_add, x, fe_in(n, k));
    fe_set(n, 0, fe_ew2(n, IR_div, x, fe_const_like(n, x, n->n_in)));
}

static void op_identity(fe_node *n)
{
    if (n->out[0]) {
        uint32_t maker = n->out[0]->maker;
        *n->out[0] = *n->in[0];
        n->out[0]->maker = maker;
    }
}

static void op_cast(fe_node *n)
{
    fmt_dtype to =
        n->op->arg ? (fmt_dtype)fe_type(n, 1)->dtype : fmt_dtype_of_onnx(fe_attr_i(n, "to", 0));
    uint32_t count;
    const fmt_dim *c = fe_content(n, 0, &count);
    if (fmt_dtype_class(to) == 'N') {
        fe_refuse(n, "casts to %s (ONNX code %lld)", fmt_dtype_name(to),
                  (long long)fe_attr_i(n, "to", 0));
        return;
    }
    if (c && (to == FMT_I64 || to == FMT_I32)) {
        ir_type t = *fe_type(n, 0);
        fmt_dim as[FE_CONTENT_MAX];
        t.dtype = to;
        memcpy(as, c, count * sizeof *c);
        if (fe_wrap_content(n, to, as, count)) {
            fe_set_known(n, 0, &t, as, count);
            return;
        }
    }
    fe_set(n, 0, ir_cast(n->g, fe_in(n, 0), to));
}

static bool is_float(const fe_node *n, uint32_t k)
{
    return fmt_dtype_class((fmt_dtype)fe_type(n, k)->dtype) == 'F';
}

/* The result has the base's type; an integer base under a real exponent is computed in f32. */
static void op_pow(fe_node *n)
{
    fmt_dtype base = (fmt_dtype)fe_type(n, 0)->dtype, in = base;
    if (!is_float(n, 0) && is_float(n, 1))
        in = (fmt_dtype)fe_type(n, 1)->dtype;
    ir_id x = ir_cast(n->g, fe_in(n, 0), in), y = ir_cast(n->g, fe_in(n, 1), in);
    if (fe_good(n))
        fe_set(n, 0, ir_cast(n->g, fe_ew2(n, IR_pow, x, y), base));
}

/* The remainder with the sign of y: that of fmod, plus y where the signs differ. */
static ir_id floor_mod(fe_node *n, ir_id x, ir_id y)
{
    ir_id r = fe_ew2(n, IR_fmod, x, y), zero = fe_const_like(n, x, 0);
    ir_id crosses = fe_ew2(
        n, IR_lt, fe_ew2(n, IR_mul, ir_emit1(n->g, IR_sign, r), ir_emit1(n->g, IR_sign, y)), zero);
    if (!fe_good(n))
        return 0;
    return fe_ew(n, IR_select, (ir_id[]){crosses, fe_ew2(n, IR_add, r, y), r}, 3);
}

static void op_mod(fe_node *n)
{
    bool fmod = fe_attr_i(n, "fmod", 0) != 0;
    ir_op op = fmod ? IR_fmod : IR_mod;
    if (!fmod && is_float(n, 0)) {
        if (n->opset < 28)
            fe_bad(n, "real numbers need the attribute fmod = 1");
        else
            fe_set(n, 0, floor_mod(n, fe_in(n, 0), fe_in(n, 1)));
        return;
    }
    if (known_ew(n, op, 2))
        return;
    fe_set(n, 0, fe_ew2(n, op, fe_in(n, 0), fe_in(n, 1)));
}

static void op_isinf(fe_node *n)
{
    int64_t neg = fe_attr_i(n, "detect_negative", 1), pos = fe_attr_i(n, "detect_positive", 1);
    ir_id x = fe_in(n, 0);
    if (neg && pos) {
        fe_set(n, 0, ir_emit1(n->g, IR_isinf, x));
    } else if (neg || pos) {
        fe_set(n, 0, fe_ew2(n, IR_eq, x, fe_const_like(n, x, neg ? -INFINITY : INFINITY)));
    } else {
        fe_set(n, 0,
               fe_expand(n, ir_scalar(n->g, FMT_BOOL, 0), fe_type(n, 0)->dim, fe_type(n, 0)->rank));
    }
}

/* Bounds are attributes before opset 11, by default the largest numbers, so that infinities are cut; and optional inputs
 * since. Where they cross, the upper one wins. */
static void op_clip(fe_node *n)
{
    ir_id x = fe_in(n, 0);
    if (n->opset < 11) {
        x = fe_ew2(n, IR_max, x, fe_const_like(n, x, fe_attr_f(n, "min", -(double)FLT_MAX)));
        x = fe_ew2(n, IR_min, x, fe_const_like(n, x, fe_attr_f(n, "max", (double)FLT_MAX)));
    } else {
        if (fe_has(n, 1))
            x = fe_ew2(n, IR_max, x, fe_in(n, 1));
        if (fe_has(n, 2) && fe_good(n))
            x = fe_ew2(n, IR_min, x, fe_in(n, 2));
    }
    fe_set(n, 0, x);
}

static void op_gelu(fe_node *n)
{
    fe_span how = fe_attr_s(n, "approximate");
    if (how.len && !fe_span_is(how, "none") && !fe_span_is(how, "tanh"))
        fe_bad(n, "approximate = '%.*s' is neither none nor tanh", FE_SHOW(how));
    fe_set(n, 0, ir_emit1(n->g, fe_span_is(how, "tanh") ? IR_gelu_tanh : IR_gelu, fe_in(n, 0)));
}

static void op_leaky(fe_node *n)
{
    ir_id x = fe_in(n, 0), slope = fe_const_like(n, x, fe_attr_f(n, "alpha", 0.01));
    ir_id test = fe_ew2(n, IR_ge, x, fe_const_like(n, x, 0));
    if (fe_good(n))
        fe_set(n, 0, fe_ew(n, IR_select, (ir_id[]){test, x, fe_ew2(n, IR_mul, x, slope)}, 3));
}

/* x * sigmoid(alpha x) */
static void op_swish(fe_node *n)
{
    ir_id x = fe_in(n, 0);
    double alpha = fe_attr_f(n, "alpha", 1);
    ir_id y = alpha == 1 ? x : fe_ew2(n, IR_mul, x, fe_const_like(n, x, alpha));
    fe_set(n, 0, fe_ew2(n, IR_mul, x, ir_emit1(n->g, IR_sigmoid, y)));
}

/* Inference keeps everything; the mask is then all true. */
static void op_dropout(fe_node *n)
{
    double training = 0, ratio = 0.5;
    uint32_t count;
    bool known = !fe_has(n, 2) || fe_number(n, 2, &training);
    if (!known) {
        (void)fe_need(n, 2, "training_mode", &count);
        return;
    }
    if (training != 0 && fe_has(n, 1) && !fe_number(n, 1, &ratio)) {
        (void)fe_need(n, 1, "ratio", &count);
        return;
    }
    bool drops = training != 0 && ratio != 0;
    if (drops) {
        fe_refuse(n,
                  "training_mode is true: it would drop at random; export the model for inference");
        return;
    }
    op_identity(n);
    if (n->n_out > 1 && n->out[1])
        fe_set(n, 1,
               fe_expand(n, ir_scalar(n->g, FMT_BOOL, 1), fe_type(n, 0)->dim, fe_type(n, 0)->rank));
}

/* ---- softmax ---- */

/* x with `axis` moved to the end, by the permutation that is its own inverse. */
static ir_id swap_last(fe_node *n, ir_id x, uint32_t axis)
{
    if (!fe_good(n))
        return 0;
    uint32_t rank = ir_type_of(n->g, x)->rank;
    int64_t perm[FMT_RANK_MAX];
    for (uint32_t i = 0; i < rank; i++)
        perm[i] = i;
    perm[axis] = rank - 1;
    perm[rank - 1] = axis;
    return axis == rank - 1 ? x : ir_permute(n->g, x, perm);
}

static ir_id softmax_last(fe_node *n, ir_id x, bool take_log)
{
    if (!take_log)
        return ir_emit1(n->g, IR_softmax, x);
    int64_t last = ir_type_of(n->g, x)->rank - 1;
    ir_id shifted = fe_ew2(n, IR_sub, x, ir_reduce(n->g, IR_reduce_max, x, &last, 1, true));
    ir_id sum = ir_reduce(n->g, IR_reduce_sum, ir_emit1(n->g, IR_exp, shifted), &last, 1, true);
    return fe_ew2(n, IR_sub, shifted, ir_emit1(n->g, IR_log, sum));
}

static void op_softmax(fe_node *n)
{
    const ir_type t = *fe_type(n, 0);
    uint32_t axis;
    ir_id x = fe_in(n, 0);
    if (t.rank == 0)
        fe_bad(n, "softmax of a scalar");
    if (!fe_good(n) || !fe_axis(n, fe_attr_i(n, "axis", n->opset < 13 ? 1 : -1), t.rank, &axis))
        return;
    if (n->opset >= 13) {
        fe_set(n, 0, swap_last(n, softmax_last(n, swap_last(n, x, axis), n->op->arg), axis));
        return;
    }
    /* before opset 13 all axes from `axis` on are one */
    fmt_dim flat[2] = {fe_dim_product(n->d, t.dim, axis),
                       fe_dim_product(n->d, t.dim + axis, t.rank - axis)};
    if (axis + 1u < t.rank)
        x = ir_reshape(n->g, x, flat, 2);
    x = softmax_last(n, x, n->op->arg);
    fe_set(n, 0, ir_reshape(n->g, x, t.dim, t.rank));
}

/* ---- matrices ---- */

static ir_id transpose_last(fe_node *n, ir_id x) { return ir_permute(n->g, x, (int64_t[]){1, 0}); }

bool fe_same_dim(fe_node *n, fmt_dim a, fmt_dim b, const char *what)
{
    fmt_dim x, y;
    if (!fe_good(n) || fmt_dim_unify(n->d, a, b))
        return fe_good(n);
    AUTO_BUF base_buf text;
    base_buf_init(&text, BASE_TAG_FRONTEND, 160);
    fmt_dim_print(n->d, a, &text);
    base_buf_puts(&text, " and ");
    fmt_dim_print(n->d, b, &text);
    if (fmt_dims_take_unproven(n->d, &x, &y))
        fe_refuse(n, "%s: %s cannot be proven equal", what, text.data ? text.data : "sizes");
    else
        fe_bad(n, "%s: %s differ", what, text.data ? text.data : "sizes");
    return false;
}

/* Leading axes that stretch to no common shape: wrong, or only not proven. */
static void no_common_shape(fe_node *n, const ir_type *a, const ir_type *b)
{
    for (int i = a->rank - 1, j = b->rank - 1; i >= 0 && j >= 0; i--, j--)
        if (!fmt_dim_is(n->d, a->dim[i], 1) && !fmt_dim_is(n->d, b->dim[j], 1) &&
            !fe_same_dim(n, a->dim[i], b->dim[j], "leading axes"))
            return;
    fe_bad(n, "the leading axes of its operands do not match");
}

/* a[…,M,K] · b[K,N]: one matrix product over all rows. */
static ir_id rows_by_matrix(fe_node *n, ir_id a, ir_id b)
{
    ir_type t = *ir_type_of(n->g, a);
    fmt_dim flat[2] = {fe_dim_product(n->d, t.dim, t.rank - 1), t.dim[t.rank - 1]};
    ir_id y = ir_emit2(n->g, IR_dot, ir_reshape(n->g, a, flat, 2), b);
    t.dim[t.rank - 1] = ir_type_of(n->g, b)->dim[1];
    return ir_reshape(n->g, y, t.dim, t.rank);
}

/* Batch axes of both stretched to their common shape. */
static ir_id batched(fe_node *n, ir_id a, ir_id b)
{
    ir_type ta = *ir_type_of(n->g, a), tb = *ir_type_of(n->g, b), out;
    const ir_type ma = ta, mb = tb;
    ta.rank -= 2, tb.rank -= 2;
    if (!ir_broadcast_dims(n->g, &ta, &tb, &out)) {
        no_common_shape(n, &ta, &tb);
        return 0;
    }
    if (out.rank + 2u > FMT_RANK_MAX)
        return ir_bad(n->g, RTX_UNSUPPORTED, "more than %d axes", FMT_RANK_MAX);
    ir_type wide = out;
    wide.rank += 2;
    memcpy(&wide.dim[out.rank], &ma.dim[ma.rank - 2], 2 * sizeof(fmt_dim));
    a = ir_broadcast(n->g, a, wide.dim, wide.rank);
    memcpy(&wide.dim[out.rank], &mb.dim[mb.rank - 2], 2 * sizeof(fmt_dim));
    b = ir_broadcast(n->g, b, wide.dim, wide.rank);
    return ir_emit2(n->g, IR_dot, a, b);
}

/* NumPy's matmul: a vector operand gets an axis of 1 that the result loses. */
static void op_matmul(fe_node *n)
{
    ir_id a = fe_in(n, 0), b = fe_in(n, 1);
    const ir_type ta = *fe_type(n, 0), tb = *fe_type(n, 1);
    fmt_dim one = fmt_dim_const(n->d, 1);
    if (ta.rank == 0 || tb.rank == 0)
        fe_bad(n, "an operand is a scalar");
    if (!fe_good(n))
        return;
    if (ta.rank == 1)
        a = ir_reshape(n->g, a, (fmt_dim[]){one, ta.dim[0]}, 2);
    if (tb.rank == 1)
        b = ir_reshape(n->g, b, (fmt_dim[]){tb.dim[0], one}, 2);
    if (!fe_same_dim(n, ta.dim[ta.rank - 1], tb.dim[MAX(tb.rank - 2, 0)], "the sizes summed over"))
        return;
    ir_id y = ta.rank > 2 && tb.rank <= 2    ? rows_by_matrix(n, a, b)
              : ta.rank <= 2 && tb.rank <= 2 ? ir_emit2(n->g, IR_dot, a, b)
                                             : batched(n, a, b);
    if (!fe_good(n))
        return;
    ir_type t = *ir_type_of(n->g, y);
    if (tb.rank == 1)
        t.rank--;
    if (ta.rank == 1) {
        t.dim[t.rank - 2 + (tb.rank == 1)] = t.dim[t.rank - 1];
        t.rank--;
    }
    fe_set(n, 0, ir_reshape(n->g, y, t.dim, t.rank));
}

static ir_id scaled(fe_node *n, ir_id x, double by)
{
    return by == 1 || !fe_good(n) ? x : fe_ew2(n, IR_mul, x, fe_const_like(n, x, by));
}

/* y + beta * C, C stretched to y and never the other way. As in BLAS, nothing is left of C times 0, not even NaN. */
static ir_id plus_bias(fe_node *n, ir_id y)
{
    const ir_type t = *ir_type_of(n->g, y), *c = fe_type(n, 2);
    if (c->rank > t.rank)
        fe_bad(n, "C has %u axes, the result has %u", c->rank, t.rank);
    double beta = fe_attr_f(n, "beta", 1);
    ir_id sum = fe_ew2(n, IR_add, y, scaled(n, fe_in(n, 2), beta));
    for (uint32_t i = 0; i < t.rank && fe_good(n); i++)
        fe_same_dim(n, ir_type_of(n->g, sum)->dim[i], t.dim[i], "C and the result");
    return beta == 0 ? y : sum;
}

static void op_gemm(fe_node *n)
{
    if (fe_type(n, 0)->rank != 2 || fe_type(n, 1)->rank != 2) {
        fe_bad(n, "its operands must be matrices");
        return;
    }
    ir_id a = fe_in(n, 0), b = fe_in(n, 1);
    if (fe_attr_i(n, "transA", 0))
        a = transpose_last(n, a);
    if (fe_attr_i(n, "transB", 0))
        b = transpose_last(n, b);
    if (!fe_good(n) || !fe_same_dim(n, ir_type_of(n->g, a)->dim[1], ir_type_of(n->g, b)->dim[0],
                                    "the sizes summed over"))
        return;
    ir_id y = scaled(n, ir_emit2(n->g, IR_dot, a, b), fe_attr_f(n, "alpha", 1));
    if (fe_has(n, 2) && fe_good(n))
        y = plus_bias(n, y);
    fe_set(n, 0, y);
}

/* ---- einsum of one or two operands ---- */

typedef struct labels {
    char at[FMT_RANK_MAX];
    uint32_t n;
    int dots; /* where "..." stands among them; -1: nowhere */
} labels;

static bool has_label(const labels *l, char c) { return memchr(l->at, c, l->n) != NULL; }

static bool parse_labels(const uint8_t **s, const uint8_t *end, labels *l)
{
    *l = (labels){.dots = -1};
    for (; *s < end; ++*s) {
        char c = (char)**s;
        if (c == ' ')
            continue;
        if (c == ',' || c == '-')
            break;
        if (c == '.' && l->dots < 0 && end - *s >= 3 && (*s)[1] == '.' && (*s)[2] == '.') {
            l->dots = (int)l->n;
            *s += 2;
            continue;
        }
        bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
        if (!letter || l->n == FMT_RANK_MAX || has_label(l, c))
            return false;
        l->at[l->n++] = c;
    }
    return true;
}

/* What an equation without "->" leaves out: the labels of one operand only, in alphabetical order behind "...". */
static bool implied_labels(const labels *in, labels *out)
{
    *out = (labels){.dots = in[0].dots >= 0 || in[1].dots >= 0 ? 0 : -1};
    for (char c = 'A'; c <= 'z'; c++)
        if (has_label(&in[0], c) != has_label(&in[1], c)) {
            if (out->n == FMT_RANK_MAX)
                return false;
            out->at[out->n++] = c;
        }
    return true;
}

static bool parse_einsum(fe_span eq, labels in[2], uint32_t n_in, labels *out)
{
    if (eq.len == 0)
        return false;
    const uint8_t *s = eq.at, *end = eq.at + eq.len;
    for (uint32_t k = 0; k < n_in; k++)
        if (!parse_labels(&s, end, &in[k]) || (k + 1 < n_in && (s == end || *s++ != ',')))
            return false;
    if (s == end)
        return implied_labels(in, out);
    return end - s >= 2 && s[0] == '-' && s[1] == '>' && (s += 2, parse_labels(&s, end, out)) &&
           s == end;
}

/* "..." becomes digits, the last axis it stands for always the last one. */
static bool expand_dots(labels *l, uint32_t axes)
{
    if (l->dots < 0)
        return axes == 0;
    if (l->n + axes > FMT_RANK_MAX)
        return false;
    memmove(l->at + l->dots + axes, l->at + l->dots, l->n - (uint32_t)l->dots);
    for (uint32_t i = 0; i < axes; i++)
        l->at[(uint32_t)l->dots + i] = (char)('0' + FMT_RANK_MAX - axes + i);
    l->n += axes;
    return true;
}

static bool read_einsum(fe_node *n, labels in[2], labels *out)
{
    uint32_t axes = 0;
    if (n->n_in > 2 || !parse_einsum(fe_attr_s(n, "equation"), in, n->n_in, out))
        return false;
    for (uint32_t k = 0; k < n->n_in; k++) {
        uint32_t rank = fe_type(n, k)->rank, rest = rank - MIN(in[k].n, rank);
        if (in[k].n > rank || !expand_dots(&in[k], rest))
            return false;
        axes = MAX(axes, rest);
    }
    if (!expand_dots(out, axes))
        return false;
    for (uint32_t i = 0; i < out->n; i++)
        if (!has_label(&in[0], out->at[i]) && !has_label(&in[1], out->at[i]))
            return false;
    return true;
}

/* An axis of 1 that meets a longer one of the same label leaves: the other alone has it then. */
static ir_id drop_units(fe_node *n, ir_id x, labels *l, const ir_type *other, const labels *there)
{
    ir_type t = *ir_type_of(n->g, x);
    uint32_t kept = 0;
    for (uint32_t i = 0; i < l->n; i++) {
        const char *at = memchr(there->at, l->at[i], there->n);
        if (at && fmt_dim_is(n->d, t.dim[i], 1) && !fmt_dim_is(n->d, other->dim[at - there->at], 1))
            continue;
        t.dim[kept] = t.dim[i];
        l->at[kept++] = l->at[i];
    }
    l->n = kept;
    return kept == t.rank ? x : ir_reshape(n->g, x, t.dim, kept);
}

/* Sum away the labels that nobody else has. */
static ir_id sum_private(fe_node *n, ir_id x, labels *l, const labels *other, const labels *out)
{
    int64_t axes[FMT_RANK_MAX];
    uint32_t n_axes = 0, kept = 0;
    for (uint32_t i = 0; i < l->n; i++) {
        if (has_label(other, l->at[i]) || has_label(out, l->at[i]))
            l->at[kept++] = l->at[i];
        else
            axes[n_axes++] = i;
    }
    l->n = kept;
    return n_axes ? ir_reduce(n->g, IR_reduce_sum, x, axes, n_axes, false) : x;
}

static ir_id permute_to(fe_node *n, ir_id x, const labels *from, const labels *to)
{
    int64_t perm[FMT_RANK_MAX] = {0};
    for (uint32_t i = 0; i < to->n; i++)
        perm[i] = (const char *)memchr(from->at, to->at[i], from->n) - from->at;
    return ir_permute(n->g, x, perm);
}

static void take_labels(labels *to, const labels *from, const labels *other, const labels *out,
                        bool in_other, bool in_out)
{
    for (uint32_t i = 0; i < from->n; i++)
        if (has_label(other, from->at[i]) == in_other && has_label(out, from->at[i]) == in_out)
            to->at[to->n++] = from->at[i];
}

/* Axes of one label have one size. */
static void unify_labels(fe_node *n, ir_id a, ir_id b, const labels *la, const labels *lb)
{
    const ir_type ta = *ir_type_of(n->g, a), tb = *ir_type_of(n->g, b);
    for (uint32_t i = 0; i < la->n; i++) {
        const char *there = memchr(lb->at, la->at[i], lb->n);
        if (there)
            fe_same_dim(n, ta.dim[i], tb.dim[there - lb->at], "axes of one label");
    }
}

/* One operand as [batch…, rows, columns]: the groups of labels, merged. */
static ir_id grouped(fe_node *n, ir_id x, const labels *l, const labels *batch, const labels *p,
                     const labels *q)
{
    labels order = *batch;
    for (uint32_t i = 0; i < p->n; i++)
        order.at[order.n++] = p->at[i];
    for (uint32_t i = 0; i < q->n; i++)
        order.at[order.n++] = q->at[i];
    x = permute_to(n, x, l, &order);
    if (!fe_good(n))
        return 0;
    const ir_type t = *ir_type_of(n->g, x);
    fmt_dim dims[FMT_RANK_MAX + 2];
    memcpy(dims, t.dim, sizeof t.dim);
    dims[batch->n] = fe_dim_product(n->d, t.dim + batch->n, p->n);
    dims[batch->n + 1] = fe_dim_product(n->d, t.dim + batch->n + p->n, q->n);
    return ir_reshape(n->g, x, dims, batch->n + 2);
}

static ir_id einsum_dot(fe_node *n, ir_id a, ir_id b, const labels *la, const labels *lb,
                        const labels *out, labels *result)
{
    labels batch = {.n = 0}, m = {.n = 0}, nn = {.n = 0}, k = {.n = 0};
    unify_labels(n, a, b, la, lb);
    if (!fe_good(n))
        return 0;
    take_labels(&batch, la, lb, out, true, true);
    take_labels(&k, la, lb, out, true, false);
    take_labels(&m, la, lb, out, false, true);
    take_labels(&nn, lb, la, out, false, true);
    if (batch.n + m.n + nn.n > FMT_RANK_MAX || batch.n + 2 > FMT_RANK_MAX)
        return ir_bad(n->g, RTX_UNSUPPORTED, "more than %d axes", FMT_RANK_MAX);
    fmt_dim dims[FMT_RANK_MAX];
    *result = (labels){.n = 0};
    const labels *groups[] = {&batch, &m, &nn};
    for (int gi = 0; gi < 3; gi++)
        for (uint32_t i = 0; i < groups[gi]->n; i++) {
            char c = groups[gi]->at[i];
            const labels *from = gi == 2 ? lb : la;
            const ir_type *t = ir_type_of(n->g, gi == 2 ? b : a);
            dims[result->n] = t->dim[(const char *)memchr(from->at, c, from->n) - from->at];
            result->at[result->n++] = c;
        }
    ir_id x = grouped(n, a, la, &batch, &m, &k), y = grouped(n, b, lb, &batch, &k, &nn);
    if (!fe_good(n))
        return 0;
    return ir_reshape(n->g, ir_emit2(n->g, IR_dot, x, y), dims, result->n);
}

static void op_einsum(fe_node *n)
{
    labels in[2] = {{.dots = -1}, {.dots = -1}}, out, have;
    if (!read_einsum(n, in, &out)) {
        fe_span eq = fe_attr_s(n, "equation");
        fe_refuse(n, "only products of two operands, each label once in each: '%.*s'", FE_SHOW(eq));
        return;
    }
    ir_id a = fe_in(n, 0), b = fe_in(n, 1);
    if (n->n_in == 2 && fe_good(n)) {
        const ir_type ta = *fe_type(n, 0), tb = *fe_type(n, 1);
        const labels whole = in[0];
        a = drop_units(n, a, &in[0], &tb, &in[1]);
        b = drop_units(n, b, &in[1], &ta, &whole);
    }
    if (!fe_good(n))
        return;
    a = sum_private(n, a, &in[0], &in[1], &out);
    have = in[0];
    if (n->n_in == 2 && fe_good(n)) {
        b = sum_private(n, b, &in[1], &in[0], &out);
        a = fe_good(n) ? einsum_dot(n, a, b, &in[0], &in[1], &out, &have) : 0;
    }
    if (fe_good(n))
        fe_set(n, 0, permute_to(n, a, &have, &out));
}

/* ---- the table ---- */

#define MANY UINT8_MAX
const fe_op fe_ops_math[] = {
    {"Abs", 1, 1, 1, op_unary, IR_abs},
    {"Add", 7, 2, 2, op_binary, IR_add},
    {"And", 7, 2, 2, op_binary, IR_and},
    {"Cast", 6, 1, 1, op_cast, 0},
    {"CastLike", 15, 2, 2, op_cast, 1},
    {"Ceil", 1, 1, 1, op_unary, IR_ceil},
    {"Clip", 1, 1, 3, op_clip, 0},
    {"Cos", 7, 1, 1, op_unary, IR_cos},
    {"Div", 7, 2, 2, op_binary, IR_div},
    {"Dropout", 7, 1, 3, op_dropout, 0},
    {"Einsum", 12, 1, MANY, op_einsum, 0},
    {"Equal", 7, 2, 2, op_binary, IR_eq},
    {"Erf", 9, 1, 1, op_unary, IR_erf},
    {"Exp", 1, 1, 1, op_unary, IR_exp},
    {"Floor", 1, 1, 1, op_unary, IR_floor},
    {"Gelu", 20, 1, 1, op_gelu, 0},
    {"Gemm", 7, 2, 3, op_gemm, 0},
    {"Greater", 7, 2, 2, op_binary, IR_gt},
    {"GreaterOrEqual", 12, 2, 2, op_binary, IR_ge},
    {"Identity", 1, 1, 1, op_identity, 0},
    {"IsInf", 10, 1, 1, op_isinf, 0},
    {"IsNaN", 9, 1, 1, op_unary, IR_isnan},
    {"LeakyRelu", 6, 1, 1, op_leaky, 0},
    {"Less", 7, 2, 2, op_binary, IR_lt},
    {"LessOrEqual", 12, 2, 2, op_binary, IR_le},
    {"Log", 1, 1, 1, op_unary, IR_log},
    {"LogSoftmax", 1, 1, 1, op_softmax, 1},
    {"MatMul", 1, 2, 2, op_matmul, 0},
    {"Max", 6, 1, MANY, op_variadic, IR_max},
    {"Mean", 6, 1, MANY, op_mean, 0},
    {"Min", 6, 1, MANY, op_variadic, IR_min},
    {"Mod", 10, 2, 2, op_mod, 0},
    {"Mul", 7, 2, 2, op_binary, IR_mul},
    {"Neg", 1, 1, 1, op_unary, IR_neg},
    {"Not", 1, 1, 1, op_unary, IR_not},
    {"Or", 7, 2, 2, op_binary, IR_or},
    {"Pow", 7, 2, 2, op_pow, 0},
    {"Reciprocal", 6, 1, 1, op_unary, IR_recip},
    {"Relu", 6, 1, 1, op_unary, IR_relu},
    {"Round", 11, 1, 1, op_unary, IR_round},
    {"Sigmoid", 6, 1, 1, op_unary, IR_sigmoid},
    {"Sign", 9, 1, 1, op_unary, IR_sign},
    {"Sin", 7, 1, 1, op_unary, IR_sin},
    {"Softmax", 1, 1, 1, op_softmax, 0},
    {"Sqrt", 6, 1, 1, op_unary, IR_sqrt},
    {"Sub", 7, 2, 2, op_binary, IR_sub},
    {"Sum", 6, 1, MANY, op_variadic, IR_add},
    {"Swish", 24, 1, 1, op_swish, 0},
    {"Tanh", 6, 1, 1, op_unary, IR_tanh},
    {"Where", 9, 3, 3, op_select, 0},
    {"Xor", 7, 2, 2, op_binary, IR_xor},
    {NULL, 0, 0, 0, NULL, 0},
};
