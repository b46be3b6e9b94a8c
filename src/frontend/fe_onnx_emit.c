/* Protobuf fields, nodes, constants and sizes of an ONNX file being written. */
#include "fe_onnx_emit.h"
#include <stdio.h>

/* ---- protobuf ---- */

void fe_put_varint(base_buf *b, uint64_t v)
{
    uint8_t bytes[10];
    size_t n = 0;
    for (; v >= 0x80; v >>= 7)
        bytes[n++] = (uint8_t)(v | 0x80);
    bytes[n++] = (uint8_t)v;
    base_buf_put(b, bytes, n);
}

void fe_put_int(base_buf *b, uint32_t field, int64_t v)
{
    fe_put_varint(b, (uint64_t)field << 3);
    fe_put_varint(b, (uint64_t)v);
}

void fe_put_bytes(base_buf *b, uint32_t field, const void *p, size_t n)
{
    fe_put_varint(b, (uint64_t)field << 3 | 2);
    fe_put_varint(b, n);
    base_buf_put(b, p, n);
}

void fe_put_text(base_buf *b, uint32_t field, const char *s)
{
    fe_put_bytes(b, field, s, strlen(s));
}

void fe_put_message(base_buf *to, uint32_t field, base_buf *from)
{
    if (from->failed)
        to->failed = true;
    fe_put_bytes(to, field, from->data ? from->data : "", from->len);
    base_buf_done(from);
}

base_buf fe_message(void)
{
    base_buf b;
    base_buf_init(&b, BASE_TAG_FRONTEND, SIZE_MAX);
    return b;
}

void fe_put_attr_i(base_buf *node, const char *key, int64_t v)
{
    base_buf a = fe_message();
    fe_put_text(&a, 1, key);
    fe_put_int(&a, 3, v);
    fe_put_int(&a, 20, 2);
    fe_put_message(node, 5, &a);
}

void fe_put_attr_ints(base_buf *node, const char *key, const int64_t *v, uint32_t n)
{
    base_buf a = fe_message();
    fe_put_text(&a, 1, key);
    for (uint32_t i = 0; i < n; i++)
        fe_put_int(&a, 8, v[i]);
    fe_put_int(&a, 20, 7);
    fe_put_message(node, 5, &a);
}

void fe_put_attr_f(base_buf *node, const char *key, double v)
{
    base_buf a = fe_message();
    float f = (float)v;
    fe_put_text(&a, 1, key);
    fe_put_varint(&a, 2 << 3 | 5);
    base_buf_put(&a, &f, 4);
    fe_put_int(&a, 20, 1);
    fe_put_message(node, 5, &a);
}

/* ---- names, nodes, constants ---- */

void fe_emit_refuse(fe_writer *w, const char *what)
{
    if (w->err.code == RTX_OK)
        base_fail(&w->err, RTX_UNSUPPORTED, __FILE__, __LINE__,
                  "UNSUPPORTED: %s, opset %d, it cannot be written as ONNX", what, FE_WRITE_OPSET);
}

fe_name fe_emit_name(const fe_writer *w, ir_id id)
{
    fe_name n;
    if (w->out_name[id]) {
        snprintf(n.s, sizeof n.s, "%s", w->out_name[id]);
        return n;
    }
    for (uint32_t i = 0; i < w->g->n_inputs; i++)
        if (w->g->inputs[i].id == id) {
            snprintf(n.s, sizeof n.s, "%s", w->g->inputs[i].name);
            return n;
        }
    snprintf(n.s, sizeof n.s, "%s%u", w->prefix, id);
    return n;
}

fe_name fe_emit_fresh(fe_writer *w)
{
    fe_name n;
    snprintf(n.s, sizeof n.s, "%s_%u", w->prefix, w->n_made++);
    return n;
}

base_buf fe_emit_begin(const char *op, const fe_name *in, uint32_t n_in, const fe_name *out,
                       uint32_t n_out)
{
    base_buf b = fe_message();
    for (uint32_t k = 0; k < n_in; k++)
        fe_put_text(&b, 1, in[k].s);
    for (uint32_t k = 0; k < n_out; k++)
        fe_put_text(&b, 2, out[k].s);
    fe_put_text(&b, 4, op);
    return b;
}

void fe_emit_end(fe_writer *w, base_buf *node) { fe_put_message(&w->nodes, 1, node); }

void fe_emit(fe_writer *w, const char *op, const fe_name *in, uint32_t n_in, fe_name out)
{
    base_buf b = fe_emit_begin(op, in, n_in, &out, 1);
    fe_emit_end(w, &b);
}

fe_name fe_emit2(fe_writer *w, const char *op, fe_name a, fe_name b)
{
    fe_name out = fe_emit_fresh(w);
    fe_emit(w, op, (fe_name[]){a, b}, 2, out);
    return out;
}

fe_name fe_emit1(fe_writer *w, const char *op, fe_name a)
{
    fe_name out = fe_emit_fresh(w);
    fe_emit(w, op, &a, 1, out);
    return out;
}

void fe_emit_tensor(fe_writer *w, const char *key, fmt_dtype t, const int64_t *dims, uint32_t rank,
                    const void *data, size_t bytes)
{
    base_buf b = fe_message();
    for (uint32_t i = 0; i < rank; i++)
        fe_put_int(&b, 1, dims[i]);
    fe_put_int(&b, 2, fmt_dtype_to_onnx(t));
    fe_put_text(&b, 8, key);
    fe_put_bytes(&b, 9, data ? data : "", bytes);
    fe_put_message(&w->inits, 5, &b);
}

fe_name fe_emit_ints(fe_writer *w, const int64_t *v, uint32_t n)
{
    fe_name out = fe_emit_fresh(w);
    fe_emit_tensor(w, out.s, FMT_I64, (int64_t[]){n}, 1, v, n * sizeof *v);
    return out;
}

fe_name fe_emit_float(fe_writer *w, double v)
{
    fe_name out = fe_emit_fresh(w);
    float f = (float)v;
    fe_emit_tensor(w, out.s, FMT_F32, NULL, 0, &f, sizeof f);
    return out;
}

/* ---- sizes: the text of an expression, evaluated by nodes over i64[1] values ---- */

typedef struct parser {
    fe_writer *w;
    const char *at;
} parser;
static fe_name parse_sum(parser *p);

static void skip(parser *p)
{
    while (*p->at == ' ')
        p->at++;
}

static bool accept(parser *p, const char *text)
{
    skip(p);
    size_t n = strlen(text);
    bool is = strncmp(p->at, text, n) == 0;
    p->at += is ? n : 0;
    return is;
}

static fe_name symbol_value(fe_writer *w, const char *text, size_t len)
{
    const ir_graph *g = w->g;
    uint32_t sym = fmt_sym_find(g->dims, text, len), s;
    for (uint32_t i = 0; i < g->n_inputs; i++) {
        const ir_type *t = ir_type_of(g, g->inputs[i].id);
        for (int64_t ax = 0; ax < t->rank; ax++)
            if (fmt_dim_is_sym(g->dims, t->dim[ax], &s) && s == sym) {
                fe_name in, out = fe_emit_fresh(w);
                snprintf(in.s, sizeof in.s, "%s", g->inputs[i].name);
                base_buf b = fe_emit_begin("Shape", &in, 1, &out, 1);
                fe_put_attr_i(&b, "start", ax);
                fe_put_attr_i(&b, "end", ax + 1);
                fe_emit_end(w, &b);
                return out;
            }
    }
    fe_emit_refuse(w, "a size that no input has");
    return fe_emit_fresh(w);
}

static fe_name parse_unary(parser *p)
{
    if (accept(p, "-"))
        return fe_emit1(p->w, "Neg", parse_unary(p));
    bool is_min = accept(p, "min("), is_max = !is_min && accept(p, "max(");
    if (is_min || is_max) {
        fe_name a = parse_sum(p);
        accept(p, ",");
        fe_name b = parse_sum(p);
        accept(p, ")");
        return fe_emit2(p->w, is_min ? "Min" : "Max", a, b);
    }
    if (accept(p, "(")) {
        fe_name a = parse_sum(p);
        accept(p, ")");
        return a;
    }
    skip(p);
    if (*p->at >= '0' && *p->at <= '9') {
        int64_t v = 0;
        for (; *p->at >= '0' && *p->at <= '9'; p->at++)
            v = v * 10 + (*p->at - '0');
        return fe_emit_ints(p->w, &v, 1);
    }
    size_t len = strcspn(p->at, " +-*/%(),\"");
    if (len == 0) {
        fe_emit_refuse(p->w, "a size with an unusual name");
        p->at = "";
        return fe_emit_fresh(p->w);
    }
    const char *at = p->at;
    p->at += len;
    return symbol_value(p->w, at, len);
}

static fe_name parse_product(parser *p)
{
    fe_name a = parse_unary(p);
    for (;;) {
        const char *op = accept(p, "*")   ? "Mul"
                         : accept(p, "/") ? "Div"
                         : accept(p, "%") ? "Mod"
                                          : NULL;
        if (!op)
            return a;
        a = fe_emit2(p->w, op, a, parse_unary(p));
    }
}

static fe_name parse_sum(parser *p)
{
    fe_name a = parse_product(p);
    for (;;) {
        const char *op = accept(p, "+") ? "Add" : accept(p, "-") ? "Sub" : NULL;
        if (!op)
            return a;
        a = fe_emit2(p->w, op, a, parse_product(p));
    }
}

fe_name fe_emit_size(fe_writer *w, fmt_dim d)
{
    int64_t c;
    fe_name out;
    if (fmt_dim_is_const(w->g->dims, d, &c))
        return fe_emit_ints(w, &c, 1);
    for (uint32_t i = 0; i < w->n_sizes; i++)
        if (w->sizes[i] == d) {
            snprintf(out.s, sizeof out.s, "%s_size%u", w->prefix, i);
            return out;
        }
    AUTO_BUF base_buf text;
    base_buf_init(&text, BASE_TAG_FRONTEND, 1 << 14);
    fmt_dim_print(w->g->dims, d, &text);
    if (base_buf_ok(&text, &w->err) != RTX_OK)
        return fe_emit_fresh(w);
    fe_name v = parse_sum(&(parser){w, text.data});
    if (w->n_sizes == w->cap_sizes) {
        uint32_t cap = w->cap_sizes ? 2 * w->cap_sizes : 16;
        fmt_dim *more = base_realloc(BASE_TAG_FRONTEND, w->sizes, cap * sizeof *more);
        if (!more)
            return v;
        w->sizes = more, w->cap_sizes = cap;
    }
    snprintf(out.s, sizeof out.s, "%s_size%u", w->prefix, w->n_sizes);
    w->sizes[w->n_sizes++] = d;
    fe_emit(w, "Identity", &v, 1, out);
    return out;
}

fe_name fe_emit_sizes(fe_writer *w, const fmt_dim *dims, uint32_t n)
{
    int64_t ints[FMT_RANK_MAX] = {0};
    bool all = true;
    for (uint32_t i = 0; i < n; i++)
        all &= fmt_dim_is_const(w->g->dims, dims[i], &ints[i]);
    if (all)
        return fe_emit_ints(w, ints, n);
    fe_name parts[FMT_RANK_MAX], out;
    for (uint32_t i = 0; i < n; i++)
        parts[i] = fe_emit_size(w, dims[i]);
    if (n == 1)
        return parts[0];
    out = fe_emit_fresh(w);
    base_buf b = fe_emit_begin("Concat", parts, n, &out, 1);
    fe_put_attr_i(&b, "axis", 0);
    fe_emit_end(w, &b);
    return out;
}
