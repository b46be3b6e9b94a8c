/* Reading the text form of a graph; the grammar is in ir_text.c.
 *   layer    L1 ir; may include base, format
 *   trust    text may be hostile: it drives only the builder, no recursion, every list and count is capped
 *   strict   types are checked against the shape rules; sizes that would have to be bound to fit are an error
 *   errors   line and column in every message */
#include "ir_rules.h"
#include <stdio.h>
#include <stdlib.h>

#define LABEL_MAX      (2 * IR_NODES_MAX)
#define NAME_MAX_BYTES 4096

typedef struct parser {
    const char *text, *at, *end;
    ir_graph *g;
    ir_id *labels;              /* node of %N, 0 = none */
    uint32_t n_labels, n_bound; /* bindings in the pool before parsing */
    rtx_err *err;
} parser;

static rtx_status fail(const parser *p, rtx_status code, const char *fmt, ...) RTX_PRINTF(3, 4);

static rtx_status fail(const parser *p, rtx_status code, const char *fmt, ...)
{
    char why[sizeof p->err->text - 40];
    va_list args;
    va_start(args, fmt);
    vsnprintf(why, sizeof why, fmt, args);
    va_end(args);
    size_t line = 1, column = 1;
    for (const char *s = p->text; s < p->at; s++) {
        column = *s == '\n' ? 1 : column + 1;
        line += *s == '\n';
    }
    return base_fail(p->err, code, "ir_parse.c", __LINE__, "line %zu, column %zu: %s", line, column,
                     why);
}

/* Say where in the text the builder or the pool refused. */
static rtx_status check(const parser *p)
{
    rtx_err cause = {0};
    rtx_status status = ir_ok(p->g, &cause);
    if (status == RTX_OK && fmt_dims_bound(p->g->dims) != p->n_bound)
        return fail(p, RTX_INVALID, "sizes differ");
    return status == RTX_OK ? RTX_OK : fail(p, status, "%s", cause.text);
}

/* ---- tokens ---- */

static void skip(parser *p)
{
    while (p->at < p->end) {
        if (*p->at == '#')
            while (p->at < p->end && *p->at != '\n')
                p->at++;
        else if (*p->at == ' ' || *p->at == '\t' || *p->at == '\n' || *p->at == '\r')
            p->at++;
        else
            break;
    }
}

static char peek(parser *p)
{
    skip(p);
    return p->at < p->end ? *p->at : '\0';
}

/* The next character of this line, after spaces. */
static char peek_line(parser *p)
{
    while (p->at < p->end && (*p->at == ' ' || *p->at == '\t'))
        p->at++;
    return p->at < p->end ? *p->at : '\0';
}

static bool accept(parser *p, char c)
{
    if (peek(p) != c || p->at == p->end)
        return false;
    p->at++;
    return true;
}

static rtx_status expect(parser *p, char c)
{
    return accept(p, c) ? RTX_OK : fail(p, RTX_INVALID, "expected '%c'", c);
}

static bool word_char(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

/* Letters, digits and '_'; may be empty. */
static size_t word(parser *p, const char **out)
{
    skip(p);
    *out = p->at;
    while (p->at < p->end && word_char(*p->at))
        p->at++;
    return (size_t)(p->at - *out);
}

static bool keyword(parser *p, const char *what)
{
    const char *s, *start = (skip(p), p->at);
    size_t n = word(p, &s);
    if (n == strlen(what) && memcmp(s, what, n) == 0)
        return true;
    p->at = start;
    return false;
}

static rtx_status integer(parser *p, int64_t *out)
{
    skip(p);
    bool minus = p->at < p->end && *p->at == '-';
    const char *s = p->at + minus;
    int64_t v = 0;
    if (s == p->end || *s < '0' || *s > '9')
        return fail(p, RTX_INVALID, "expected an integer");
    for (; s < p->end && *s >= '0' && *s <= '9'; s++) {
        int64_t digit = minus ? -(*s - '0') : *s - '0';
        if (__builtin_mul_overflow(v, 10, &v) || __builtin_add_overflow(v, digit, &v))
            return fail(p, RTX_INVALID, "integer does not fit 64 bits");
    }
    p->at = s;
    *out = v;
    return RTX_OK;
}

static rtx_status number(parser *p, double *out)
{
    char token[64];
    size_t n = 0;
    skip(p);
    while (n < sizeof token - 1 && p->at + n < p->end &&
           (word_char(p->at[n]) || (p->at[n] && strchr("+-.", p->at[n])))) {
        token[n] = p->at[n];
        n++;
    }
    token[n] = '\0';
    char *stop = token;
    double v = strtod(token, &stop);
    if (n == 0 || *stop)
        return fail(p, RTX_INVALID, "expected a number");
    p->at += n;
    *out = v;
    return RTX_OK;
}

static int hex_digit(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* "text" with \" \\ \xHH, NUL-terminated in out. */
static rtx_status quoted(parser *p, base_buf *out)
{
    TRY(expect(p, '"'));
    base_buf_puts(out, "");
    while (p->at < p->end && *p->at != '"') {
        char c = *p->at++;
        if (c == '\\' && p->at < p->end) {
            c = *p->at++;
            if (c == 'x') {
                if (p->end - p->at < 2 || hex_digit(p->at[0]) < 0 || hex_digit(p->at[1]) < 0)
                    return fail(p, RTX_INVALID, "expected two hexadecimal digits");
                c = (char)(hex_digit(p->at[0]) * 16 + hex_digit(p->at[1]));
                p->at += 2;
            }
        }
        if (c == '\0' || c == '\n')
            return fail(p, RTX_INVALID, "name with a line break or a zero byte");
        base_buf_put(out, &c, 1);
    }
    if (out->failed)
        return out->over_max ? fail(p, RTX_LIMIT, "name above %d bytes", NAME_MAX_BYTES)
                             : base_buf_ok(out, p->err);
    return accept(p, '"') ? RTX_OK : fail(p, RTX_INVALID, "name without end");
}

/* ---- sizes and types ---- */

/* One size expression: up to ',' or ']' outside of brackets and quotes. */
static rtx_status size(parser *p, fmt_dim *out)
{
    const char *s = (skip(p), p->at);
    bool quote = false;
    for (int depth = 0; s < p->end && *s != '\n'; s++) {
        if (*s == '\\' && quote && s + 1 < p->end)
            s++;
        else if (*s == '"')
            quote = !quote;
        else if (!quote && depth == 0 && (*s == ',' || *s == ']'))
            break;
        else if (!quote)
            depth += (*s == '(') - (*s == ')');
    }
    fmt_dim d = fmt_dim_parse(p->g->dims, p->at, (size_t)(s - p->at));
    TRY(check(p));
    if (d == FMT_DIM_BAD)
        return fail(p, RTX_INVALID, "expected a size");
    p->at = s;
    *out = d;
    return RTX_OK;
}

static rtx_status size_list(parser *p, fmt_dim *out, uint8_t *out_n)
{
    uint8_t n = 0;
    TRY(expect(p, '['));
    while (!accept(p, ']')) {
        if (n)
            TRY(expect(p, ','));
        if (n == FMT_RANK_MAX)
            return fail(p, RTX_UNSUPPORTED, "more than %d entries", FMT_RANK_MAX);
        TRY(size(p, &out[n++]));
    }
    *out_n = n;
    return RTX_OK;
}

static rtx_status integer_list(parser *p, int64_t *out, uint8_t *out_n)
{
    uint8_t n = 0;
    TRY(expect(p, '['));
    while (!accept(p, ']')) {
        if (n)
            TRY(expect(p, ','));
        if (n == FMT_RANK_MAX)
            return fail(p, RTX_UNSUPPORTED, "more than %d entries", FMT_RANK_MAX);
        TRY(integer(p, &out[n++]));
    }
    *out_n = n;
    return RTX_OK;
}

static rtx_status dtype(parser *p, fmt_dtype *out)
{
    const char *s;
    size_t n = word(p, &s);
    *out = fmt_dtype_parse(s, n);
    return *out ? RTX_OK : fail(p, RTX_INVALID, "expected a dtype");
}

static rtx_status type(parser *p, ir_type *out)
{
    fmt_dtype t = FMT_NONE;
    *out = (ir_type){0};
    TRY(dtype(p, &t));
    out->dtype = t;
    TRY(size_list(p, out->dim, &out->rank));
    if (p->at == p->end || *p->at != '@')
        return RTX_OK;
    p->at++;
    for (uint8_t r = IR_HOST; r < IR_RESIDENCY_COUNT; r++)
        if (keyword(p, ir_residency_names[r])) {
            out->residency = r;
            return RTX_OK;
        }
    return fail(p, RTX_INVALID, "expected host, pinned or device");
}

/* ---- labels ---- */

static rtx_status label(parser *p, uint32_t *out)
{
    int64_t v;
    TRY(expect(p, '%'));
    TRY(integer(p, &v));
    if (v < 0 || v >= LABEL_MAX)
        return fail(p, RTX_LIMIT, "label above %u", LABEL_MAX);
    *out = (uint32_t)v;
    return RTX_OK;
}

static rtx_status define(parser *p, uint32_t at, ir_id id)
{
    TRY(check(p));
    if (at >= p->n_labels) {
        uint32_t n = MIN(MAX(2 * at, 64), LABEL_MAX);
        ir_id *grown;
        TRY_ALLOC(grown = base_realloc(BASE_TAG_IR, p->labels, n * sizeof *grown), p->err);
        memset(grown + p->n_labels, 0, (n - p->n_labels) * sizeof *grown);
        p->labels = grown;
        p->n_labels = n;
    }
    if (p->labels[at])
        return fail(p, RTX_INVALID, "%%%u is defined twice", at);
    p->labels[at] = id;
    return RTX_OK;
}

static rtx_status use(parser *p, ir_id *out)
{
    uint32_t at = 0;
    TRY(label(p, &at));
    *out = at < p->n_labels ? p->labels[at] : 0;
    return *out ? RTX_OK : fail(p, RTX_INVALID, "%%%u is not defined before this line", at);
}

/* ---- constants ---- */

static rtx_status elements(parser *p, fmt_dtype t, int64_t n, base_buf *data)
{
    TRY(expect(p, '{'));
    for (int64_t k = 0; k < n; k++) {
        uint64_t elem = 0;
        double f;
        int64_t i;
        if (k)
            TRY(expect(p, ','));
        if (fmt_dtype_class(t) == 'F') {
            TRY(number(p, &f));
            ir_store_element(t, f, &elem);
        } else {
            TRY(integer(p, &i));
            if (i != ir_wrap_int(t, i))
                return fail(p, RTX_INVALID, "%lld is no %s", (long long)i, fmt_dtype_name(t));
            memcpy(&elem, &i, 8); /* the low bytes, little-endian */
        }
        base_buf_put(data, &elem, fmt_dtype_bytes(t));
    }
    return expect(p, '}');
}

static rtx_status hex_bytes(parser *p, size_t n, base_buf *data)
{
    TRY(expect(p, '"'));
    for (size_t k = 0; k < n; k++, p->at += 2) {
        if (p->end - p->at < 2 || hex_digit(p->at[0]) < 0 || hex_digit(p->at[1]) < 0)
            return fail(p, RTX_INVALID, "expected %zu bytes in hexadecimal", n);
        uint8_t byte = (uint8_t)(hex_digit(p->at[0]) * 16 + hex_digit(p->at[1]));
        base_buf_put(data, &byte, 1);
    }
    return expect(p, '"');
}

static rtx_status constant(parser *p, ir_id *out)
{
    ir_type t;
    int64_t elems = 0;
    TRY(type(p, &t));
    rtx_err cause = {0};
    if (ir_type_check(p->g->dims, "const", &t, &cause) != RTX_OK)
        return fail(p, cause.code, "%s", cause.text);
    if (!fmt_dim_is_const(p->g->dims, ir_elems(p->g, &t), &elems) || elems < 0)
        return fail(p, RTX_INVALID, "a constant needs sizes that are numbers");
    size_t bytes = (size_t)elems * fmt_dtype_bytes(t.dtype);
    AUTO_BUF base_buf
        data; /* grows with the text that is there, not with the size that it claims */
    base_buf_init(&data, BASE_TAG_IR, bytes);
    if (keyword(p, "hex"))
        TRY(hex_bytes(p, bytes, &data));
    else
        TRY(elements(p, t.dtype, elems, &data));
    TRY(base_buf_ok(&data, p->err));
    *out = ir_const_copy(p->g, &t, data.data, bytes);
    return check(p);
}

/* ---- nodes ---- */

static rtx_status attribute(parser *p, const ir_field *f, ir_attrs *a)
{
    fmt_dtype t = FMT_NONE;
    switch (f->kind) {
    case IR_FIELD_INT:
        return integer(p, &a->i[f->index]);
    case IR_FIELD_FLOAT:
        return number(p, &a->f[f->index]);
    case IR_FIELD_LIST:
        return integer_list(p, a->list, &a->n_list);
    case IR_FIELD_DIMS:
        return size_list(p, a->dims, &a->n_dims);
    case IR_FIELD_SIZES:
        return size_list(p, a->sizes, &a->n_sizes);
    default:
        TRY(dtype(p, &t));
        a->type = (uint8_t)t;
        return RTX_OK;
    }
}

/* {name=value …}; what is left out is zero. */
static rtx_status attributes(parser *p, ir_op op, ir_attrs *out)
{
    unsigned seen = 0;
    *out = (ir_attrs){0};
    if (!accept(p, '{'))
        return RTX_OK;
    while (!accept(p, '}')) {
        const char *name, *spec = ir_op_get(op)->attrs;
        size_t n = word(p, &name);
        ir_field f;
        unsigned bit = 1;
        bool found = false;
        while (ir_field_next(&spec, &f)) {
            found = f.name_len == n && memcmp(f.name, name, n) == 0;
            if (found)
                break;
            bit <<= 1;
        }
        if (!found || seen & bit)
            return fail(p, RTX_INVALID, "%s has no attribute of this name left",
                        ir_op_get(op)->name);
        seen |= bit;
        TRY(expect(p, '='));
        TRY(attribute(p, &f, out));
    }
    return RTX_OK;
}

/* The operands, attributes and type of an op whose name stands at `start`. */
static rtx_status operation(parser *p, ir_op op, const char *start, ir_id *out)
{
    ir_id in[IR_IN_MAX];
    uint32_t n_in = 0;
    ir_attrs a;
    ir_type said;
    while (peek_line(p) == '%') { /* a line that starts with '%' is the next node */
        if (n_in == IR_IN_MAX)
            return fail(p, RTX_LIMIT, "more than %d operands", IR_IN_MAX);
        TRY(use(p, &in[n_in++]));
    }
    TRY(attributes(p, op, &a));
    const char *behind = p->at;
    p->at = start; /* a refusal is about the whole node */
    *out = ir_emit(p->g, op, in, n_in, &a);
    TRY(check(p));
    p->at = behind;
    if (!accept(p, ':'))
        return RTX_OK; /* the type may be left out by hand */
    TRY(type(p, &said));
    if (ir_type_eq(&said, ir_type_of(p->g, *out)))
        return RTX_OK;
    AUTO_BUF base_buf text;
    base_buf_init(&text, BASE_TAG_IR, 300);
    ir_type_print(p->g->dims, ir_type_of(p->g, *out), &text);
    return fail(p, RTX_INVALID, "%s gives %s", ir_op_get(op)->name,
                text.data ? text.data : "another type");
}

/* %N = op … */
static rtx_status node(parser *p)
{
    const char *name;
    uint32_t at = 0;
    ir_id id = 0;
    TRY(label(p, &at));
    TRY(expect(p, '='));
    size_t n = word(p, &name);
    ir_op op = ir_op_find(name, n);
    if (op == IR_NONE || op == IR_input) {
        p->at = name;
        return fail(p, RTX_INVALID, "expected an operation");
    }
    TRY(op == IR_const ? constant(p, &id) : operation(p, op, name, &id));
    return define(p, at, id);
}

/* ---- whole text ---- */

/* sym NAME LO..HI */
static rtx_status symbol(parser *p)
{
    const char *s = (skip(p), p->at);
    bool quote = false;
    for (; s < p->end && *s != '\n' && (quote || *s != ' '); s++) {
        if (*s == '\\' && quote && s + 1 < p->end)
            s++;
        else if (*s == '"')
            quote = !quote;
    }
    uint32_t sym;
    int64_t lo, hi = FMT_DIM_LIMIT;
    fmt_dim d = fmt_dim_parse(p->g->dims, p->at, (size_t)(s - p->at));
    TRY(check(p));
    if (!fmt_dim_is_sym(p->g->dims, d, &sym))
        return fail(p, RTX_INVALID, "expected the name of a symbol");
    p->at = s;
    TRY(integer(p, &lo));
    if (p->end - p->at < 2 || memcmp(p->at, "..", 2) != 0)
        return fail(p, RTX_INVALID, "expected '..'");
    p->at += 2;
    if (p->at < p->end && *p->at >= '0' && *p->at <= '9')
        TRY(integer(p, &hi));
    const fmt_sym *now = fmt_sym_get(p->g->dims, sym);
    if (lo < 0 || hi > FMT_DIM_LIMIT || MAX(lo, now->lo) > MIN(hi, now->hi))
        return fail(p, RTX_INVALID, "bounds of %s leave no value", now->name);
    fmt_sym_bound(p->g->dims, sym, lo, hi);
    return RTX_OK;
}

/* %N "name": TYPE */
static rtx_status input(parser *p)
{
    AUTO_BUF base_buf name;
    base_buf_init(&name, BASE_TAG_IR, NAME_MAX_BYTES);
    uint32_t at = 0;
    ir_type t;
    TRY(label(p, &at));
    TRY(quoted(p, &name));
    TRY(expect(p, ':'));
    TRY(type(p, &t));
    return define(p, at, ir_input(p->g, name.data, &t));
}

/* return %N "name", … */
static rtx_status outputs(parser *p)
{
    for (bool first = true; peek(p) == '%' || !first; first = false) {
        AUTO_BUF base_buf name;
        base_buf_init(&name, BASE_TAG_IR, NAME_MAX_BYTES);
        ir_id id;
        TRY(use(p, &id));
        TRY(quoted(p, &name));
        ir_output(p->g, name.data, id);
        TRY(check(p));
        if (!accept(p, ','))
            break;
    }
    return RTX_OK;
}

static rtx_status function(parser *p)
{
    while (keyword(p, "sym"))
        TRY(symbol(p));
    if (!keyword(p, "func"))
        return fail(p, RTX_INVALID, "expected 'func'");
    TRY(expect(p, '@'));
    while (p->at < p->end && (word_char(*p->at) || *p->at == '.'))
        p->at++;
    TRY(expect(p, '('));
    for (bool first = true; !accept(p, ')'); first = false) {
        if (!first)
            TRY(expect(p, ','));
        TRY(input(p));
    }
    TRY(expect(p, '{'));
    while (!keyword(p, "return"))
        TRY(node(p));
    TRY(outputs(p));
    TRY(expect(p, '}'));
    return peek(p) || p->at < p->end ? fail(p, RTX_INVALID, "text behind the function") : RTX_OK;
}

rtx_status ir_parse(const char *text, size_t len, fmt_dims *dims, ir_graph **out, rtx_err *err)
{
    rtx_err local;
    parser p = {.text = text,
                .at = text,
                .end = text + len,
                .err = err ? err : &local,
                .n_bound = fmt_dims_bound(dims)};
    TRY_ALLOC(p.g = ir_graph_new(dims), p.err);
    rtx_status status = function(&p);
    base_free(p.labels);
    if (status == RTX_OK)
        *out = p.g;
    else
        ir_graph_free(p.g);
    return status;
}
