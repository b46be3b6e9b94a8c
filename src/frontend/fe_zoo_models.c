/* Builders of the zoo, written as an exporter would write the models: primitive operations, and softmax. */
#include "fe_zoo.h"
#include <math.h>

/* ---- parts ---- */

static fmt_dim num(fe_zoo *z, int64_t v) { return fmt_dim_const(z->d, v); }
static ir_id ew2(fe_zoo *z, ir_op op, ir_id a, ir_id b)
{
    return ir_ew(z->g, op, (ir_id[]){a, b}, 2);
}
static ir_id by(fe_zoo *z, ir_op op, ir_id x, double v)
{
    return ew2(z, op, x, ir_scalar(z->g, FMT_F32, v));
}
static ir_type type_of(const fe_zoo *z, ir_id x)
{
    return *ir_type_of(z->g, x);
} /* the empty node's after a failure */

static fmt_dim free_size(fe_zoo *z, const char *name, int64_t hi)
{
    uint32_t sym = fmt_sym_new(z->d, name, 0, hi);
    return sym == UINT32_MAX ? FMT_DIM_BAD : fmt_dim_sym(z->d, sym);
}

static ir_id input(fe_zoo *z, const char *name, fmt_dtype t, const fmt_dim *dims, uint32_t rank)
{
    ir_type type = {.dtype = t, .rank = (uint8_t)rank};
    memcpy(type.dim, dims, rank * sizeof *dims);
    return ir_input(z->g, name, &type);
}

/* x[…,in] W[in,out] (+ b): one matrix product over all rows. */
static ir_id linear(fe_zoo *z, ir_id x, int64_t in, int64_t out, bool bias)
{
    ir_type t = type_of(z, x);
    ir_id w = fe_zoo_weight(z, (int64_t[]){in, out}, 2, 0, sqrt(3.0 / (double)in));
    fmt_dim rows = num(z, 1);
    for (int i = 0; i + 1 < t.rank; i++)
        rows = fmt_dim_mul(z->d, rows, t.dim[i]);
    ir_id y = ir_emit2(z->g, IR_dot, ir_reshape(z->g, x, (fmt_dim[]){rows, num(z, in)}, 2), w);
    if (t.rank)
        t.dim[t.rank - 1] = num(z, out);
    y = ir_reshape(z->g, y, t.dim, t.rank);
    return bias ? ew2(z, IR_add, y, fe_zoo_weight(z, &out, 1, 0, 0.1)) : y;
}

static ir_id mean_last(fe_zoo *z, ir_id x)
{
    int64_t axis = type_of(z, x).rank - 1;
    return ir_reduce(z->g, IR_reduce_mean, x, &axis, 1, true);
}

static ir_id layernorm(fe_zoo *z, ir_id x, int64_t width, double eps)
{
    ir_id off = ew2(z, IR_sub, x, mean_last(z, x)), var = mean_last(z, by(z, IR_pow, off, 2));
    ir_id y = ew2(z, IR_div, off, ir_emit1(z->g, IR_sqrt, by(z, IR_add, var, eps)));
    y = ew2(z, IR_mul, y, fe_zoo_weight(z, &width, 1, 1, 0.1));
    return ew2(z, IR_add, y, fe_zoo_weight(z, &width, 1, 0, 0.1));
}

static ir_id rmsnorm(fe_zoo *z, ir_id x, int64_t width, double eps)
{
    ir_id square = mean_last(z, by(z, IR_pow, x, 2));
    ir_id y = ew2(z, IR_mul, x,
                  ir_emit1(z->g, IR_recip, ir_emit1(z->g, IR_sqrt, by(z, IR_add, square, eps))));
    return ew2(z, IR_mul, fe_zoo_weight(z, &width, 1, 1, 0.1), y);
}

static ir_id gelu_erf(fe_zoo *z, ir_id x)
{
    ir_id e = by(z, IR_add, ir_emit1(z->g, IR_erf, by(z, IR_div, x, sqrt(2))), 1);
    return by(z, IR_mul, ew2(z, IR_mul, x, e), 0.5);
}

static ir_id gelu_tanh(fe_zoo *z, ir_id x)
{
    ir_id inner = ew2(z, IR_add, x, by(z, IR_mul, by(z, IR_pow, x, 3), 0.044715));
    ir_id t =
        by(z, IR_add,
           ir_emit1(z->g, IR_tanh, by(z, IR_mul, inner, sqrt(2 / 3.14159265358979323846))), 1);
    return ew2(z, IR_mul, by(z, IR_mul, x, 0.5), t);
}

/* ---- attention ---- */

typedef struct attn {
    fmt_dim batch, seq;
    int64_t hidden, heads, kv_heads, head;
} attn;

static attn attention_of(fe_zoo *z, fmt_dim batch, fmt_dim seq)
{
    attn a = {
        batch, seq, fe_zoo_get(z, "hidden"), fe_zoo_get(z, "heads"), fe_zoo_get(z, "kv-heads"), 0};
    a.kv_heads = a.kv_heads ? a.kv_heads : a.heads;
    a.head = a.hidden / a.heads;
    return a;
}

/* [batch,seq,heads*head] to [batch,heads,seq,head] */
static ir_id split_heads(fe_zoo *z, const attn *a, ir_id x, int64_t heads)
{
    x = ir_reshape(z->g, x, (fmt_dim[]){a->batch, a->seq, num(z, heads), num(z, a->head)}, 4);
    return ir_permute(z->g, x, (int64_t[]){0, 2, 1, 3});
}

/* Each head of keys or values serves heads / kv_heads heads of queries. */
static ir_id repeat_heads(fe_zoo *z, const attn *a, ir_id x)
{
    int64_t times = a->heads / a->kv_heads;
    fmt_dim wide[5] = {a->batch, num(z, a->kv_heads), num(z, 1), a->seq, num(z, a->head)};
    if (times == 1)
        return x;
    x = ir_reshape(z->g, x, wide, 5);
    wide[2] = num(z, times);
    x = ir_broadcast(z->g, x, wide, 5);
    return ir_reshape(z->g, x, (fmt_dim[]){a->batch, num(z, a->heads), a->seq, num(z, a->head)}, 4);
}

/* softmax(q k' / sqrt(head) + mask) v, heads merged again */
static ir_id attend(fe_zoo *z, const attn *a, ir_id q, ir_id k, ir_id v, ir_id mask)
{
    ir_id scores = ir_emit2(z->g, IR_dot, q, ir_permute(z->g, k, (int64_t[]){0, 1, 3, 2}));
    scores = by(z, IR_div, scores, sqrt((double)a->head));
    if (mask)
        scores = ew2(z, IR_add, scores, mask);
    ir_id y = ir_emit2(z->g, IR_dot, ir_emit1(z->g, IR_softmax, scores), v);
    y = ir_permute(z->g, y, (int64_t[]){0, 2, 1, 3});
    return ir_reshape(z->g, y, (fmt_dim[]){a->batch, a->seq, num(z, a->hidden)}, 3);
}

static ir_id self_attention(fe_zoo *z, const attn *a, ir_id x, ir_id mask)
{
    ir_id q = split_heads(z, a, linear(z, x, a->hidden, a->hidden, true), a->heads);
    ir_id k = split_heads(z, a, linear(z, x, a->hidden, a->hidden, true), a->heads);
    ir_id v = split_heads(z, a, linear(z, x, a->hidden, a->hidden, true), a->heads);
    return linear(z, attend(z, a, q, k, v, mask), a->hidden, a->hidden, true);
}

/* 0 where the key may be seen, else the lowest float: [seq,seq] */
static ir_id causal_mask(fe_zoo *z, const attn *a)
{
    ir_attrs at = {.n_dims = 2, .dims = {a->seq, a->seq}};
    ir_id row = ir_emit(z->g, IR_iota, NULL, 0, &at);
    at.i[0] = 1;
    ir_id column = ir_emit(z->g, IR_iota, NULL, 0, &at), seen = ew2(z, IR_le, column, row);
    ir_id zero = ir_scalar(z->g, FMT_F32, 0),
          low = ir_scalar(z->g, FMT_F32, -3.4028234663852886e38);
    return ir_ew(z->g, IR_select, (ir_id[]){seen, zero, low}, 3);
}

/* ---- rotary positions ---- */

/* cos or sin of position * theta^(-2i/head), the half row twice, cut to the sequence: [seq,head] */
static ir_id rope_table(fe_zoo *z, const attn *a, bool cosine)
{
    int64_t rows = fe_zoo_get(z, "positions"), half = a->head / 2;
    double theta = (double)fe_zoo_get(z, "theta");
    ir_type t = {.dtype = FMT_F32, .rank = 2};
    t.dim[0] = num(z, rows), t.dim[1] = num(z, a->head);
    if (z->g->err.code != RTX_OK)
        return 0;
    float *w = base_arena_array(&z->g->arena, (size_t)(rows * a->head), sizeof *w);
    if (!w)
        return ir_bad(z->g, RTX_NOMEM, "out of memory");
    for (int64_t p = 0; p < rows; p++)
        for (int64_t i = 0; i < a->head; i++) {
            double angle = (double)p * pow(theta, -2.0 * (double)(i % half) / (double)a->head);
            w[p * a->head + i] = (float)(cosine ? cos(angle) : sin(angle));
        }
    ir_id table = ir_const_borrow(z->g, &t, w, (size_t)(rows * a->head) * sizeof *w);
    fmt_dim zero = num(z, 0);
    return ir_slice(z->g, table, (fmt_dim[]){zero, zero}, (fmt_dim[]){a->seq, t.dim[1]},
                    (int64_t[]){1, 1});
}

/* x cos + (-second half, first half) sin, x[batch,heads,seq,head] */
static ir_id rotate(fe_zoo *z, ir_id x, ir_id cos_t, ir_id sin_t)
{
    ir_type t = type_of(z, x);
    int64_t head, step[] = {1, 1, 1, 1};
    if (t.rank != 4 || !fmt_dim_is_const(z->d, t.dim[3], &head))
        return 0;
    fmt_dim zero = num(z, 0), half = num(z, head / 2),
            size[] = {t.dim[0], t.dim[1], t.dim[2], half};
    ir_id first = ir_slice(z->g, x, (fmt_dim[]){zero, zero, zero, zero}, size, step);
    ir_id second = ir_slice(z->g, x, (fmt_dim[]){zero, zero, zero, half}, size, step);
    ir_attrs axis = {0};
    axis.i[0] = 3;
    ir_id turned =
        ir_emit(z->g, IR_concat, (ir_id[]){ir_emit1(z->g, IR_neg, second), first}, 2, &axis);
    return ew2(z, IR_add, ew2(z, IR_mul, x, cos_t), ew2(z, IR_mul, turned, sin_t));
}

/* ---- models ---- */

void fe_zoo_mlp(fe_zoo *z)
{
    int64_t in = fe_zoo_get(z, "in"), hidden = fe_zoo_get(z, "hidden"),
            layers = fe_zoo_get(z, "layers");
    ir_id x =
        input(z, "x", FMT_F32, (fmt_dim[]){free_size(z, "batch", FMT_DIM_LIMIT), num(z, in)}, 2);
    for (int64_t i = 0; i < layers && z->g->err.code == RTX_OK; i++) {
        bool last = i + 1 == layers;
        x = linear(z, x, i ? hidden : in, last ? fe_zoo_get(z, "out") : hidden, true);
        x = last ? x : ir_emit1(z->g, IR_relu, x);
    }
    ir_output(z->g, "y", x);
}

static ir_id feed_forward(fe_zoo *z, ir_id x, bool by_tanh)
{
    int64_t hidden = fe_zoo_get(z, "hidden"), ffn = fe_zoo_get(z, "ffn");
    x = linear(z, x, hidden, ffn, true);
    return linear(z, by_tanh ? gelu_tanh(z, x) : gelu_erf(z, x), ffn, hidden, true);
}

void fe_zoo_encoder(fe_zoo *z)
{
    fmt_dim batch = free_size(z, "batch", FMT_DIM_LIMIT), seq = free_size(z, "seq", FMT_DIM_LIMIT);
    attn a = attention_of(z, batch, seq);
    ir_id x = input(z, "x", FMT_F32, (fmt_dim[]){batch, seq, num(z, a.hidden)}, 3);
    ir_id mask =
        ir_cast(z->g, input(z, "attention_mask", FMT_I64, (fmt_dim[]){batch, seq}, 2), FMT_F32);
    mask = ir_reshape(z->g, mask, (fmt_dim[]){batch, num(z, 1), num(z, 1), seq}, 4);
    mask = ew2(z, IR_sub, ir_scalar(z->g, FMT_F32, 1), mask);
    mask = by(z, IR_mul, mask, -3.4028234663852886e38);
    for (int64_t i = 0; i < fe_zoo_get(z, "layers") && z->g->err.code == RTX_OK; i++) {
        x = layernorm(z, ew2(z, IR_add, self_attention(z, &a, x, mask), x), a.hidden, 1e-12);
        x = layernorm(z, ew2(z, IR_add, feed_forward(z, x, false), x), a.hidden, 1e-12);
    }
    ir_output(z->g, "y", x);
}

void fe_zoo_gpt_block(fe_zoo *z)
{
    fmt_dim batch = free_size(z, "batch", FMT_DIM_LIMIT), seq = free_size(z, "seq", FMT_DIM_LIMIT);
    attn a = attention_of(z, batch, seq);
    ir_id x = input(z, "x", FMT_F32, (fmt_dim[]){batch, seq, num(z, a.hidden)}, 3),
          mask = causal_mask(z, &a);
    for (int64_t i = 0; i < fe_zoo_get(z, "layers") && z->g->err.code == RTX_OK; i++) {
        x = ew2(z, IR_add, x, self_attention(z, &a, layernorm(z, x, a.hidden, 1e-5), mask));
        x = ew2(z, IR_add, x,
                feed_forward(z, layernorm(z, x, a.hidden, 1e-5), fe_zoo_get(z, "tanh") != 0));
    }
    ir_output(z->g, "y", x);
}

static ir_id llama_attention(fe_zoo *z, const attn *a, ir_id x, ir_id mask, ir_id cos_t,
                             ir_id sin_t)
{
    int64_t kv = a->kv_heads * a->head;
    ir_id q = split_heads(z, a, linear(z, x, a->hidden, a->hidden, false), a->heads);
    ir_id k = split_heads(z, a, linear(z, x, a->hidden, kv, false), a->kv_heads);
    ir_id v = split_heads(z, a, linear(z, x, a->hidden, kv, false), a->kv_heads);
    q = rotate(z, q, cos_t, sin_t);
    k = repeat_heads(z, a, rotate(z, k, cos_t, sin_t));
    return linear(z, attend(z, a, q, k, repeat_heads(z, a, v), mask), a->hidden, a->hidden, false);
}

static ir_id swiglu(fe_zoo *z, ir_id x)
{
    int64_t hidden = fe_zoo_get(z, "hidden"), ffn = fe_zoo_get(z, "ffn");
    ir_id gate = linear(z, x, hidden, ffn, false), up = linear(z, x, hidden, ffn, false);
    gate = ew2(z, IR_mul, gate, ir_emit1(z->g, IR_sigmoid, gate));
    return linear(z, ew2(z, IR_mul, gate, up), ffn, hidden, false);
}

void fe_zoo_llama_block(fe_zoo *z)
{
    fmt_dim batch = free_size(z, "batch", FMT_DIM_LIMIT),
            seq = free_size(z, "seq", fe_zoo_get(z, "positions"));
    attn a = attention_of(z, batch, seq);
    ir_id x = input(z, "x", FMT_F32, (fmt_dim[]){batch, seq, num(z, a.hidden)}, 3),
          mask = causal_mask(z, &a);
    ir_id cos_t = rope_table(z, &a, true), sin_t = rope_table(z, &a, false);
    for (int64_t i = 0; i < fe_zoo_get(z, "layers") && z->g->err.code == RTX_OK; i++) {
        x = ew2(z, IR_add, x,
                llama_attention(z, &a, rmsnorm(z, x, a.hidden, 1e-5), mask, cos_t, sin_t));
        x = ew2(z, IR_add, x, swiglu(z, rmsnorm(z, x, a.hidden, 1e-5)));
    }
    ir_output(z->g, "y", x);
}

void fe_zoo_vit(fe_zoo *z)
{
    int64_t rows = fe_zoo_get(z, "positions"), cls = fe_zoo_get(z, "class"),
            patch = fe_zoo_get(z, "patch");
    fmt_dim batch = free_size(z, "batch", FMT_DIM_LIMIT), n = free_size(z, "n", rows),
            zero = num(z, 0);
    attn a = attention_of(z, batch, fmt_dim_add(z->d, n, num(z, cls)));
    ir_id x = input(z, "x", FMT_F32, (fmt_dim[]){batch, n, num(z, patch)}, 3);
    x = linear(z, x, patch, a.hidden, true);
    if (cls) {
        ir_id token = fe_zoo_weight(z, (int64_t[]){1, 1, a.hidden}, 3, 0, 0.1);
        token = ir_broadcast(z->g, token, (fmt_dim[]){batch, num(z, 1), num(z, a.hidden)}, 3);
        ir_attrs axis = {0};
        axis.i[0] = 1;
        x = ir_emit(z->g, IR_concat, (ir_id[]){token, x}, 2, &axis);
    }
    ir_id table = fe_zoo_weight(z, (int64_t[]){rows + cls, a.hidden}, 2, 0, 0.1);
    table = ir_slice(z->g, table, (fmt_dim[]){zero, zero}, (fmt_dim[]){a.seq, num(z, a.hidden)},
                     (int64_t[]){1, 1});
    x = ew2(z, IR_add, x, table);
    for (int64_t i = 0; i < fe_zoo_get(z, "layers") && z->g->err.code == RTX_OK; i++) {
        x = ew2(z, IR_add, x, self_attention(z, &a, layernorm(z, x, a.hidden, 1e-6), 0));
        x = ew2(z, IR_add, x, feed_forward(z, layernorm(z, x, a.hidden, 1e-6), false));
    }
    ir_output(z->g, "y", layernorm(z, x, a.hidden, 1e-6));
}
