/* Writes a graph as an ONNX file, opset 17: a small protobuf writer, sizes as Shape arithmetic, and one rule an op.
 * Broadcasts that ONNX makes by itself are left out, and a product of rows by a matrix is written as one MatMul. */
#include "fe.h"
#include <math.h>
#include <stdio.h>

enum { OPSET = 17, IR_VERSION = 8, INS_MAX = 64 };

typedef struct name { char s[128]; } name;

typedef struct writer {
    const ir_graph *g;
    base_buf nodes, inits; /* fields of GraphProto */
    char prefix[64];       /* of names we make; no input or output begins with it */
    bool *needed;
    const char **out_name; /* by node: the graph output that it is, or NULL */
    fmt_dim *sizes;        /* expressions that have a value already; their names are numbered */
    uint32_t n_sizes, cap_sizes, n_made;
    rtx_err err;
} writer;

/* ---- protobuf ---- */

static void put_varint(base_buf *b, uint64_t v)
{
    uint8_t bytes[10];
    size_t n = 0;
    for (; v >= 0x80; v >>= 7)
        bytes[n++] = (uint8_t)(v | 0x80);
    bytes[n++] = (uint8_t)v;
    base_buf_put(b, bytes, n);
}

static void put_int(base_buf *b, uint32_t field, int64_t v)
{
    put_varint(b, (uint64_t)field << 3);
    put_varint(b, (uint64_t)v);
}

static void put_bytes(base_buf *b, uint32_t field, const void *p, size_t n)
{
    put_varint(b, (uint64_t)field << 3 | 2);
    put_varint(b, n);
    base_buf_put(b, p, n);
}

static void put_text(base_buf *b, uint32_t field, const char *s) { put_bytes(b, field, s, strlen(s)); }

/* Take the finished message `from` as a field of `to`. */
static void put_message(base_buf *to, uint32_t field, base_buf *from)
{
    if (from->failed)
        to->failed = true;
    put_bytes(to, field, from->data ? from->data : "", from->len);
    base_buf_done(from);
}

static base_buf message(void)
{
    base_buf b;
    base_buf_init(&b, BASE_TAG_FRONTEND, SIZE_MAX);
    return b;
}

static void attr_i(base_buf *node, const char *key, int64_t v)
{
    base_buf a = message();
    put_text(&a, 1, key);
    put_int(&a, 3, v);
    put_int(&a, 20, 2);
    put_message(node, 5, &a);
}

static void attr_ints(base_buf *node, const char *key, const int64_t *v, uint32_t n)
{
    base_buf a = message();
    put_text(&a, 1, key);
    for (uint32_t i = 0; i < n; i++)
        put_int(&a, 8, v[i]);
    put_int(&a, 20, 7);
    put_message(node, 5, &a);
}

static void attr_f(base_buf *node, const char *key, double v)
{
    base_buf a = message();
    float f = (float)v;
    put_text(&a, 1, key);
    put_varint(&a, 2 << 3 | 5);
    base_buf_put(&a, &f, 4);
    put_int(&a, 20, 1);
    put_message(node, 5, &a);
}

/* ---- names, nodes, constants ---- */

static void refuse(writer *w, const char *what)
{
    if (w->err.code == RTX_OK)
        base_fail(&w->err, RTX_UNSUPPORTED, __FILE__, __LINE__, "UNSUPPORTED: %s, opset %d, it cannot be written as ONNX", what,
                  OPSET);
}

static name value_name(const writer *w, ir_id id)
{
    name n;
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

static name made_name(writer *w)
{
    name n;
    snprintf(n.s, sizeof n.s, "%s_%u", w->prefix, w->n_made++);
    return n;
}

/* Open node message with its operands; attributes may follow, then end_node. */
static base_buf begin_node(const char *op, const name *in, uint32_t n_in, const name *out, uint32_t n_out)
{
    base_buf b = message();
    for (uint32_t k = 0; k < n_in; k++)
        put_text(&b, 1, in[k].s);
    for (uint32_t k = 0; k < n_out; k++)
        put_text(&b, 2, out[k].s);
    put_text(&b, 4, op);
    return b;
}

static void end_node(writer *w, base_buf *node) { put_message(&w->nodes, 1, node); }

static void emit(writer *w, const char *op, const name *in, uint32_t n_in, name out)
{
    base_buf b = begin_node(op, in, n_in, &out, 1);
    end_node(w, &b);
}

static name calc(writer *w, const char *op, name a, name b)
{
    name out = made_name(w);
    emit(w, op, (name[]){a, b}, 2, out);
    return out;
}

static name calc1(writer *w, const char *op, name a)
{
    name out = made_name(w);
    emit(w, op, &a, 1, out);
    return out;
}

static void put_tensor(writer *w, const char *key, fmt_dtype t, const int64_t *dims, uint32_t rank, const void *data,
                       size_t bytes)
{
    base_buf b = message();
    for (uint32_t i = 0; i < rank; i++)
        put_int(&b, 1, dims[i]);
    put_int(&b, 2, fmt_dtype_to_onnx(t));
    put_text(&b, 8, key);
    put_bytes(&b, 9, data ? data : "", bytes);
    put_message(&w->inits, 5, &b);
}

static name const_ints(writer *w, const int64_t *v, uint32_t n)
{
    name out = made_name(w);
    put_tensor(w, out.s, FMT_I64, (int64_t[]){n}, 1, v, n * sizeof *v);
    return out;
}

static name const_float(writer *w, double v)
{
    name out = made_name(w);
    float f = (float)v;
    put_tensor(w, out.s, FMT_F32, NULL, 0, &f, sizeof f);
    return out;
}

/* ---- sizes: the text of an expression, evaluated by nodes over i64[1] values ---- */

typedef struct parser { writer *w; const char *at; } parser;
static name parse_sum(parser *p);

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

static name symbol_value(writer *w, const char *text, size_t len)
{
    const ir_graph *g = w->g;
    uint32_t sym = fmt_sym_find(g->dims, text, len), s;
    for (uint32_t i = 0; i < g->n_inputs; i++) {
        const ir_type *t = ir_type_of(g, g->inputs[i].id);
        for (int64_t ax = 0; ax < t->rank; ax++)
            if (fmt_dim_is_sym(g->dims, t->dim[ax], &s) && s == sym) {
                name in, out = made_name(w);
                snprintf(in.s, sizeof in.s, "%s", g->inputs[i].name);
                base_buf b = begin_node("Shape", &in, 1, &out, 1);
                attr_i(&b, "start", ax);
                attr_i(&b, "end", ax + 1);
                end_node(w, &b);
                return out;
            }
    }
    refuse(w, "a size that no input has");
    return made_name(w);
}

static name parse_unary(parser *p)
{
    if (accept(p, "-"))
        return calc1(p->w, "Neg", parse_unary(p));
    bool is_min = accept(p, "min("), is_max = !is_min && accept(p, "max(");
    if (is_min || is_max) {
        name a = parse_sum(p);
        accept(p, ",");
        name b = parse_sum(p);
        accept(p, ")");
        return calc(p->w, is_min ? "Min" : "Max", a, b);
    }
    if (accept(p, "(")) {
        name a = parse_sum(p);
        accept(p, ")");
        return a;
    }
    skip(p);
    if (*p->at >= '0' && *p->at <= '9') {
        int64_t v = 0;
        for (; *p->at >= '0' && *p->at <= '9'; p->at++)
            v = v * 10 + (*p->at - '0');
        return const_ints(p->w, &v, 1);
    }
    size_t len = strcspn(p->at, " +-*/%(),\"");
    if (len == 0) {
        refuse(p->w, "a size with an unusual name");
        p->at = "";
        return made_name(p->w);
    }
    const char *at = p->at;
    p->at += len;
    return symbol_value(p->w, at, len);
}

static name parse_product(parser *p)
{
    name a = parse_unary(p);
    for (;;) {
        const char *op = accept(p, "*") ? "Mul" : accept(p, "/") ? "Div" : accept(p, "%") ? "Mod" : NULL;
        if (!op)
            return a;
        a = calc(p->w, op, a, parse_unary(p));
    }
}

static name parse_sum(parser *p)
{
    name a = parse_product(p);
    for (;;) {
        const char *op = accept(p, "+") ? "Add" : accept(p, "-") ? "Sub" : NULL;
        if (!op)
            return a;
        a = calc(p->w, op, a, parse_product(p));
    }
}

/* i64[1] with the value of d; each expression is computed once. */
static name size_value(writer *w, fmt_dim d)
{
    int64_t c;
    name out;
    if (fmt_dim_is_const(w->g->dims, d, &c))
        return const_ints(w, &c, 1);
    for (uint32_t i = 0; i < w->n_sizes; i++)
        if (w->sizes[i] == d) {
            snprintf(out.s, sizeof out.s, "%s_size%u", w->prefix, i);
            return out;
        }
    AUTO_BUF base_buf text;
    base_buf_init(&text, BASE_TAG_FRONTEND, 1 << 14);
    fmt_dim_print(w->g->dims, d, &text);
    if (base_buf_ok(&text, &w->err) != RTX_OK)
        return made_name(w);
    name v = parse_sum(&(parser){w, text.data});
    if (w->n_sizes == w->cap_sizes) {
        uint32_t cap = w->cap_sizes ? 2 * w->cap_sizes : 16;
        fmt_dim *more = base_realloc(BASE_TAG_FRONTEND, w->sizes, cap * sizeof *more);
        if (!more)
            return v;
        w->sizes = more, w->cap_sizes = cap;
    }
    snprintf(out.s, sizeof out.s, "%s_size%u", w->prefix, w->n_sizes);
    w->sizes[w->n_sizes++] = d;
    emit(w, "Identity", &v, 1, out);
    return out;
}

static name size_vector(writer *w, const fmt_dim *dims, uint32_t n)
{
    int64_t ints[FMT_RANK_MAX] = {0};
    bool all = true;
    for (uint32_t i = 0; i < n; i++)
        all &= fmt_dim_is_const(w->g->dims, dims[i], &ints[i]);
    if (all)
        return const_ints(w, ints, n);
    name parts[FMT_RANK_MAX], out;
    for (uint32_t i = 0; i < n; i++)
        parts[i] = size_value(w, dims[i]);
    if (n == 1)
        return parts[0];
    out = made_name(w);
    base_buf b = begin_node("Concat", parts, n, &out, 1);
    attr_i(&b, "axis", 0);
    end_node(w, &b);
    return out;
}

/* ---- operands as ONNX reads them ---- */

/* x of broadcast(x); other nodes are themselves. */
static ir_id peel(const ir_graph *g, ir_id id) { return ir_op_of(g, id) == IR_broadcast ? ir_in(g, id, 0) : id; }

/* Every axis of out before `upto` has its size in one of the operands, so that broadcasting them gives it. */
static bool covers(const ir_graph *g, const ir_type *out, int upto, const ir_id *in, uint32_t n_in)
{
    for (int ax = 0; ax < upto; ax++) {
        bool found = fmt_dim_is(g->dims, out->dim[ax], 1);
        for (uint32_t k = 0; k < n_in && !found; k++) {
            const ir_type *t = ir_type_of(g, in[k]);
            int at = ax - (out->rank - t->rank);
            found = at >= 0 && t->dim[at] == out->dim[ax];
        }
        if (!found)
            return false;
    }
    return true;
}

/* reshape(dot(reshape(x, [rows,K]), W), x's leading axes + N) is x W. */
static bool is_rows_by_matrix(const ir_graph *g, ir_id id, ir_id out[2])
{
    if (ir_op_of(g, id) != IR_reshape || ir_op_of(g, ir_in(g, id, 0)) != IR_dot)
        return false;
    ir_id dot = ir_in(g, id, 0), rows = ir_in(g, dot, 0);
    const ir_type *t = ir_type_of(g, id);
    if (ir_type_of(g, dot)->rank != 2 || ir_op_of(g, rows) != IR_reshape)
        return false;
    out[0] = ir_in(g, rows, 0), out[1] = ir_in(g, dot, 1);
    const ir_type *x = ir_type_of(g, out[0]), *m = ir_type_of(g, out[1]);
    if (x->rank != t->rank || x->rank < 2 || x->dim[x->rank - 1] != m->dim[0] || t->dim[t->rank - 1] != m->dim[1])
        return false;
    return memcmp(x->dim, t->dim, (t->rank - 1u) * sizeof *t->dim) == 0;
}

static uint32_t operands(const ir_graph *g, ir_id id, ir_id *in)
{
    uint32_t n = ir_node_get(g, id)->n_in;
    const ir_type *t = ir_type_of(g, id);
    ir_op op = ir_op_of(g, id);
    if (is_rows_by_matrix(g, id, in))
        return 2;
    for (uint32_t k = 0; k < n; k++)
        in[k] = ir_in(g, id, k);
    if (ir_op_get(op)->elementwise && n > 1) {
        for (uint32_t k = 0; k < n; k++)
            in[k] = peel(g, in[k]);
        if (!covers(g, t, t->rank, in, n))
            in[0] = ir_in(g, id, 0);
    } else if (op == IR_dot) {
        for (uint32_t k = 0; k < 2; k++)
            if (ir_type_of(g, peel(g, in[k]))->rank >= 2 &&
                memcmp(&ir_type_of(g, peel(g, in[k]))->dim[ir_type_of(g, peel(g, in[k]))->rank - 2],
                       &ir_type_of(g, in[k])->dim[t->rank - 2], 2 * sizeof(fmt_dim)) == 0)
                in[k] = peel(g, in[k]);
        if (!covers(g, t, t->rank - 2, in, 2))
            in[0] = ir_in(g, id, 0);
    }
    return n;
}

/* ---- one rule an op ---- */

/* Ops that ONNX has with the same operands and no attributes. */
static const struct { ir_op op; const char *onnx; } same[] = {
    {IR_neg, "Neg"}, {IR_abs, "Abs"}, {IR_sign, "Sign"}, {IR_exp, "Exp"}, {IR_log, "Log"}, {IR_sqrt, "Sqrt"},
    {IR_recip, "Reciprocal"}, {IR_erf, "Erf"}, {IR_tanh, "Tanh"}, {IR_sigmoid, "Sigmoid"}, {IR_sin, "Sin"}, {IR_cos, "Cos"},
    {IR_floor, "Floor"}, {IR_ceil, "Ceil"}, {IR_round, "Round"}, {IR_relu, "Relu"}, {IR_not, "Not"}, {IR_isnan, "IsNaN"},
    {IR_isinf, "IsInf"}, {IR_add, "Add"}, {IR_sub, "Sub"}, {IR_mul, "Mul"}, {IR_div, "Div"}, {IR_pow, "Pow"},
    {IR_mod, "Mod"}, {IR_min, "Min"}, {IR_max, "Max"}, {IR_eq, "Equal"}, {IR_lt, "Less"}, {IR_le, "LessOrEqual"},
    {IR_gt, "Greater"}, {IR_ge, "GreaterOrEqual"}, {IR_and, "And"}, {IR_or, "Or"}, {IR_xor, "Xor"}, {IR_select, "Where"},
    {IR_dot, "MatMul"}, {IR_softmax, "Softmax"}};

static void write_reshape(writer *w, ir_id id, name x, name out)
{
    const ir_type *t = ir_type_of(w->g, id), *from = ir_type_of(w->g, ir_in(w->g, id, 0));
    int64_t shape[FMT_RANK_MAX];
    bool inferred = false, simple = true;
    for (int i = 0; i < t->rank; i++) {
        if (fmt_dim_is_const(w->g->dims, t->dim[i], &shape[i])) {
            simple &= shape[i] != 0;
        } else if (i < from->rank && from->dim[i] == t->dim[i]) {
            shape[i] = 0;
        } else {
            simple &= !inferred;
            inferred = true;
            shape[i] = -1;
        }
    }
    name in[2] = {x, simple ? const_ints(w, shape, t->rank) : size_vector(w, t->dim, t->rank)};
    base_buf b = begin_node("Reshape", in, 2, &out, 1);
    if (!simple)
        attr_i(&b, "allowzero", 1);
    end_node(w, &b);
}

static void write_slice(writer *w, ir_id id, name x, name out)
{
    const ir_attrs *a = ir_attrs_of(w->g, id);
    const ir_type *from = ir_type_of(w->g, ir_in(w->g, id, 0));
    fmt_dim starts[FMT_RANK_MAX], ends[FMT_RANK_MAX];
    int64_t axes[FMT_RANK_MAX], steps[FMT_RANK_MAX], lo, hi;
    uint32_t n = 0;
    fmt_dims *d = w->g->dims;
    for (int i = 0; i < from->rank; i++) {
        if (a->sizes[i] == from->dim[i] && a->list[i] == 1)
            continue;
        starts[n] = a->dims[i];
        ends[n] = fmt_dim_add(d, a->dims[i], fmt_dim_mul(d, a->sizes[i], fmt_dim_const(d, a->list[i])));
        fmt_dim_range(d, ends[n], &lo, &hi);
        if (hi < 0) /* a walk down past the first entry */
            ends[n] = fmt_dim_const(d, -FMT_DIM_LIMIT);
        else if (lo < 0)
            refuse(w, "slice");
        axes[n] = i;
        steps[n++] = a->list[i];
    }
    if (n == 0) {
        emit(w, "Identity", &x, 1, out);
        return;
    }
    name in[5] = {x, size_vector(w, starts, n), size_vector(w, ends, n), const_ints(w, axes, n), const_ints(w, steps, n)};
    emit(w, "Slice", in, 5, out);
}

static void write_iota(writer *w, ir_id id, name out)
{
    const ir_attrs *a = ir_attrs_of(w->g, id);
    int64_t column[FMT_RANK_MAX], zero = 0, one = 1;
    for (int i = 0; i < a->n_dims; i++)
        column[i] = i == a->i[0] ? -1 : 1;
    name scalar = const_ints(w, NULL, 0), n = size_value(w, a->dims[a->i[0]]), range = made_name(w), in[3];
    in[1] = made_name(w);
    emit(w, "Reshape", (name[]){n, scalar}, 2, in[1]);
    in[0] = made_name(w), in[2] = made_name(w);
    put_tensor(w, in[0].s, FMT_I64, NULL, 0, &zero, 8);
    put_tensor(w, in[2].s, FMT_I64, NULL, 0, &one, 8);
    emit(w, "Range", in, 3, range);
    name view = calc(w, "Reshape", range, const_ints(w, column, a->n_dims));
    emit(w, "Expand", (name[]){view, size_vector(w, a->dims, a->n_dims)}, 2, out);
}

static void write_reduce(writer *w, ir_id id, name x, name out)
{
    static const struct { ir_op op; const char *onnx; } ops[] = {{IR_reduce_sum, "ReduceSum"},
        {IR_reduce_mean, "ReduceMean"}, {IR_reduce_max, "ReduceMax"}, {IR_reduce_min, "ReduceMin"}, {IR_reduce_prod, "ReduceProd"}};
    const ir_attrs *a = ir_attrs_of(w->g, id);
    for (size_t i = 0; i < COUNT_OF(ops); i++) {
        if (ops[i].op != ir_op_of(w->g, id))
            continue;
        bool as_input = ops[i].op == IR_reduce_sum; /* others take axes as input from opset 18 */
        name in[2] = {x, {""}};
        if (as_input)
            in[1] = const_ints(w, a->list, a->n_list);
        base_buf b = begin_node(ops[i].onnx, in, as_input ? 2 : 1, &out, 1);
        if (!as_input)
            attr_ints(&b, "axes", a->list, a->n_list);
        attr_i(&b, "keepdims", 0);
        end_node(w, &b);
    }
}

static void write_topk(writer *w, ir_id id, name x, name out)
{
    const ir_attrs *a = ir_attrs_of(w->g, id);
    name in[2] = {x, size_value(w, a->dims[0])}, both[2] = {made_name(w), out};
    base_buf b = begin_node("TopK", in, 2, both, 2);
    attr_i(&b, "axis", a->i[0]);
    attr_i(&b, "largest", a->i[1]);
    end_node(w, &b);
}

static void write_raised(writer *w, ir_id id, const name *in, name out)
{
    name half, t;
    switch (ir_op_of(w->g, id)) {
    case IR_gelu:
        t = calc(w, "Add", calc1(w, "Erf", calc(w, "Mul", in[0], const_float(w, sqrt(0.5)))), const_float(w, 1));
        half = calc(w, "Mul", in[0], const_float(w, 0.5));
        emit(w, "Mul", (name[]){half, t}, 2, out);
        break;
    case IR_gelu_tanh:
        t = calc(w, "Mul", calc(w, "Pow", in[0], const_float(w, 3)), const_float(w, 0.044715));
        t = calc(w, "Mul", calc(w, "Add", in[0], t), const_float(w, sqrt(2 / 3.14159265358979323846)));
        t = calc(w, "Add", calc1(w, "Tanh", t), const_float(w, 1));
        half = calc(w, "Mul", in[0], const_float(w, 0.5));
        emit(w, "Mul", (name[]){half, t}, 2, out);
        break;
    case IR_silu: emit(w, "Mul", (name[]){in[0], calc1(w, "Sigmoid", in[0])}, 2, out); break;
    case IR_swiglu:
        t = calc(w, "Mul", in[0], calc1(w, "Sigmoid", in[0]));
        emit(w, "Mul", (name[]){t, in[1]}, 2, out);
        break;
    case IR_layernorm: {
        uint32_t n = ir_node_get(w->g, id)->n_in;
        if (n < 2)
            refuse(w, "layernorm without a scale");
        base_buf b = begin_node("LayerNormalization", in, n, &out, 1);
        attr_f(&b, "epsilon", ir_attrs_of(w->g, id)->f[0]);
        end_node(w, &b);
        break;
    }
    default: refuse(w, ir_op_get(ir_op_of(w->g, id))->name);
    }
}

static void write_indexed(writer *w, ir_id id, const char *op, const char *key, const name *in, uint32_t n, name out)
{
    const ir_attrs *a = ir_attrs_of(w->g, id);
    base_buf b = begin_node(op, in, n, &out, 1);
    attr_i(&b, key, a->i[0]);
    if (ir_op_of(w->g, id) == IR_argmax || ir_op_of(w->g, id) == IR_argmin) {
        attr_i(&b, "select_last_index", a->i[1]);
        attr_i(&b, "keepdims", 0);
    }
    end_node(w, &b);
}

static void write_const(writer *w, ir_id id, name out)
{
    const ir_type *t = ir_type_of(w->g, id);
    const ir_const *c = ir_const_of(w->g, id);
    int64_t dims[FMT_RANK_MAX] = {0};
    for (int i = 0; i < t->rank; i++)
        fmt_dim_is_const(w->g->dims, t->dim[i], &dims[i]);
    put_tensor(w, out.s, (fmt_dtype)t->dtype, dims, t->rank, c->data, c->bytes);
}

static void write_views(writer *w, ir_id id, const name *in, uint32_t n, name out)
{
    const ir_graph *g = w->g;
    const ir_attrs *a = ir_attrs_of(g, id);
    const ir_type *t = ir_type_of(g, id);
    ir_id pair[2];
    base_buf b;
    switch (ir_op_of(g, id)) {
    case IR_reshape:
        if (is_rows_by_matrix(g, id, pair))
            emit(w, "MatMul", in, n, out);
        else
            write_reshape(w, id, in[0], out);
        break;
    case IR_broadcast: emit(w, "Expand", (name[]){in[0], size_vector(w, t->dim, t->rank)}, 2, out); break;
    case IR_permute:
        b = begin_node("Transpose", in, 1, &out, 1);
        attr_ints(&b, "perm", a->list, a->n_list);
        end_node(w, &b);
        break;
    default: write_slice(w, id, in[0], out);
    }
}

static void write_cumsum(writer *w, ir_id id, name x, name out)
{
    const ir_attrs *a = ir_attrs_of(w->g, id);
    name in[2] = {x, const_ints(w, &a->i[0], 1)};
    base_buf b = begin_node("CumSum", in, 2, &out, 1);
    attr_i(&b, "exclusive", a->i[1]);
    attr_i(&b, "reverse", a->i[2]);
    end_node(w, &b);
}

static void write_op(writer *w, ir_id id, const name *in, uint32_t n, name out)
{
    const ir_attrs *a = ir_attrs_of(w->g, id);
    base_buf b;
    switch (ir_op_of(w->g, id)) {
    case IR_const: write_const(w, id, out); break;
    case IR_iota: write_iota(w, id, out); break;
    case IR_dimvals: {
        name v = size_vector(w, a->dims, a->n_dims);
        if (a->i[0])
            emit(w, "Reshape", (name[]){v, const_ints(w, NULL, 0)}, 2, out);
        else
            emit(w, "Identity", &v, 1, out);
        break;
    }
    case IR_cast:
        b = begin_node("Cast", in, 1, &out, 1);
        attr_i(&b, "to", fmt_dtype_to_onnx((fmt_dtype)a->type));
        end_node(w, &b);
        break;
    case IR_rsqrt: emit(w, "Reciprocal", (name[]){calc1(w, "Sqrt", in[0])}, 1, out); break;
    case IR_ne: emit(w, "Not", (name[]){calc(w, "Equal", in[0], in[1])}, 1, out); break;
    case IR_fmod:
        b = begin_node("Mod", in, 2, &out, 1);
        attr_i(&b, "fmod", 1);
        end_node(w, &b);
        break;
    case IR_concat: write_indexed(w, id, "Concat", "axis", in, n, out); break;
    case IR_gather: write_indexed(w, id, "Gather", "axis", in, n, out); break;
    case IR_gather_nd: write_indexed(w, id, "GatherND", "batch_dims", in, n, out); break;
    case IR_gather_elements: write_indexed(w, id, "GatherElements", "axis", in, n, out); break;
    case IR_argmax: write_indexed(w, id, "ArgMax", "axis", in, n, out); break;
    case IR_argmin: write_indexed(w, id, "ArgMin", "axis", in, n, out); break;
    case IR_cumsum: write_cumsum(w, id, in[0], out); break;
    case IR_topk: write_topk(w, id, in[0], out); break;
    default:
        if (ir_op_get(ir_op_of(w->g, id))->view)
            write_views(w, id, in, n, out);
        else if (strncmp(ir_op_get(ir_op_of(w->g, id))->name, "reduce_", 7) == 0)
            write_reduce(w, id, in[0], out);
        else
            write_raised(w, id, in, out);
    }
}

static void write_node(writer *w, ir_id id)
{
    ir_id in[INS_MAX];
    name names[INS_MAX], out = value_name(w, id);
    uint32_t n = operands(w->g, id, in);
    ir_op op = ir_op_of(w->g, id);
    if (op == IR_input)
        return;
    for (uint32_t k = 0; k < n; k++)
        names[k] = value_name(w, in[k]);
    for (size_t i = 0; i < COUNT_OF(same); i++)
        if (same[i].op == op) {
            emit(w, same[i].onnx, names, n, out);
            return;
        }
    write_op(w, id, names, n, out);
}

/* ---- the file ---- */

static void put_port(base_buf *graph, uint32_t field, const ir_graph *g, const ir_port *p)
{
    const ir_type *t = ir_type_of(g, p->id);
    base_buf shape = message(), tensor = message(), type = message(), value = message();
    for (int i = 0; i < t->rank; i++) {
        int64_t c;
        base_buf dim = message();
        if (fmt_dim_is_const(g->dims, t->dim[i], &c)) {
            put_int(&dim, 1, c);
        } else {
            base_buf text = message();
            fmt_dim_print(g->dims, t->dim[i], &text);
            put_message(&dim, 2, &text);
        }
        put_message(&shape, 1, &dim);
    }
    put_int(&tensor, 1, fmt_dtype_to_onnx((fmt_dtype)t->dtype));
    put_message(&tensor, 2, &shape);
    put_message(&type, 1, &tensor);
    put_text(&value, 1, p->name);
    put_message(&value, 2, &type);
    put_message(graph, field, &value);
}

static void choose_prefix(writer *w)
{
    const ir_graph *g = w->g;
    snprintf(w->prefix, sizeof w->prefix, "v");
    for (uint32_t i = 0; i < g->n_inputs + g->n_outputs; i++) {
        const char *s = i < g->n_inputs ? g->inputs[i].name : g->outputs[i - g->n_inputs].name;
        while (strncmp(s, w->prefix, strlen(w->prefix)) == 0 && strlen(w->prefix) < sizeof w->prefix - 2)
            strcat(w->prefix, "_");
    }
}

static void mark_needed(writer *w)
{
    const ir_graph *g = w->g;
    for (uint32_t i = 0; i < g->n_outputs; i++) {
        ir_id id = g->outputs[i].id;
        w->needed[id] = true;
        if (!w->out_name[id] && ir_op_of(g, id) != IR_input)
            w->out_name[id] = g->outputs[i].name;
    }
    for (ir_id id = g->n_nodes - 1; id > 0; id--) {
        ir_id in[INS_MAX];
        uint32_t n = w->needed[id] ? operands(g, id, in) : 0;
        for (uint32_t k = 0; k < n; k++)
            w->needed[in[k]] = true;
    }
}

static rtx_status write_model(writer *w, const char *graph_name, base_buf *out, rtx_err *err)
{
    const ir_graph *g = w->g;
    base_buf graph = message(), opset = message();
    put_bytes(&graph, 2, graph_name, strlen(graph_name));
    for (uint32_t i = 0; i < g->n_inputs; i++)
        put_port(&graph, 11, g, &g->inputs[i]);
    for (uint32_t i = 0; i < g->n_outputs; i++)
        put_port(&graph, 12, g, &g->outputs[i]);
    base_buf_put(&graph, w->nodes.data ? w->nodes.data : "", w->nodes.len);
    base_buf_put(&graph, w->inits.data ? w->inits.data : "", w->inits.len);
    graph.failed |= w->nodes.failed | w->inits.failed;
    put_text(&opset, 1, "");
    put_int(&opset, 2, OPSET);
    put_int(out, 1, IR_VERSION);
    put_text(out, 2, "rtx");
    put_message(out, 8, &opset);
    put_message(out, 7, &graph);
    return base_buf_ok(out, err);
}

static rtx_status write_all(writer *w, const char *graph_name, base_buf *out, rtx_err *err)
{
    const ir_graph *g = w->g;
    TRY_ALLOC(w->needed = base_zalloc_array(BASE_TAG_FRONTEND, g->n_nodes, sizeof *w->needed), err);
    TRY_ALLOC(w->out_name = base_zalloc_array(BASE_TAG_FRONTEND, g->n_nodes, sizeof *w->out_name), err);
    choose_prefix(w);
    mark_needed(w);
    for (ir_id id = 1; id < g->n_nodes; id++)
        if (w->needed[id])
            write_node(w, id);
    for (uint32_t i = 0; i < g->n_outputs; i++) { /* outputs that are inputs, or a second name of a value */
        name from = value_name(w, g->outputs[i].id), to;
        snprintf(to.s, sizeof to.s, "%s", g->outputs[i].name);
        if (strcmp(from.s, to.s) != 0)
            emit(w, "Identity", &from, 1, to);
    }
    if (w->err.code != RTX_OK)
        return FAIL(err, UNSUPPORTED, "%s", w->err.text);
    return write_model(w, graph_name, out, err);
}

rtx_status fe_onnx_write(const ir_graph *g, const char *graph_name, base_buf *out, rtx_err *err)
{
    writer w = {.g = g, .nodes = message(), .inits = message()};
    TRY(ir_ok(g, err));
    rtx_status st = write_all(&w, graph_name, out, err);
    base_buf_done(&w.nodes);
    base_buf_done(&w.inits);
    base_free(w.needed);
    base_free(w.out_name);
    base_free(w.sizes);
    return st;
}
