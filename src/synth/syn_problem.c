/* Problems: making them, their text (the key of everything), their arguments and their cost; and packed B.
 *   layer    L3 synth; may include base, format, ir
 *   text     "problem 1", one line each for symbols, strides ('?' = run time), packed operands and free attributes, then the
 *            region as IR text with ports named i0…, o0…. Equal problems have equal text when they were built in one order */
#include "syn_form.h"
#include <stdio.h>
#include <stdlib.h>

#define TEXT_MAX (1u << 20)

const char *syn_port_name(bool output, uint32_t index)
{
    static const char *const in[] = {"i0",  "i1",  "i2",  "i3",  "i4",  "i5",  "i6",  "i7",
                                     "i8",  "i9",  "i10", "i11", "i12", "i13", "i14", "i15",
                                     "i16", "i17", "i18", "i19", "i20", "i21", "i22", "i23"};
    static const char *const out[] = {"o0",  "o1",  "o2",  "o3",  "o4",  "o5",  "o6",  "o7",
                                      "o8",  "o9",  "o10", "o11", "o12", "o13", "o14", "o15",
                                      "o16", "o17", "o18", "o19", "o20", "o21", "o22", "o23"};
    _Static_assert(COUNT_OF(in) == SYN_OPERANDS_MAX && COUNT_OF(out) == SYN_OPERANDS_MAX,
                   "one name a port");
    return index < SYN_OPERANDS_MAX ? (output ? out : in)[index] : "";
}

syn_problem *syn_problem_new(void)
{
    syn_problem *p = base_zalloc(BASE_TAG_SYNTH, sizeof *p);
    if (p == NULL)
        return NULL;
    p->dims = fmt_dims_new();
    p->region = p->dims ? ir_graph_new(p->dims) : NULL;
    for (int o = 0; o < SYN_OPERANDS_MAX; o++)
        for (int k = 0; k < FMT_RANK_MAX; k++)
            p->stride[o][k] = FMT_DIM_BAD;
    if (p->region)
        return p;
    syn_problem_free(p);
    return NULL;
}

void syn_problem_free(syn_problem *p)
{
    if (p == NULL)
        return;
    ir_graph_free(p->region);
    fmt_dims_free(p->dims);
    base_free(p);
}

uint32_t syn_operand_of(const syn_problem *p, ir_id input)
{
    for (uint32_t o = 0; o < p->n_in; o++)
        if (p->region->inputs[o].id == input)
            return o;
    return FMT_NONE;
}

bool syn_stride_const(const syn_problem *p, uint32_t o, int axis, int64_t *out_v)
{
    fmt_dim s = p->stride[o][axis];
    return s != FMT_DIM_BAD && fmt_dim_is_const(p->dims, s, out_v);
}

/* ---- text ---- */

static void print_strides(const syn_problem *p, base_buf *out)
{
    base_buf_puts(out, "strides");
    for (uint32_t o = 0; o < p->n_in + p->n_out; o++) {
        int64_t v;
        for (int k = 0; k < syn_operand_type(p, o)->rank; k++)
            if (syn_stride_const(p, o, k, &v))
                base_buf_printf(out, " %lld", (long long)v);
            else
                base_buf_puts(out, " ?");
        base_buf_puts(out, p->packed[o] ? " packed;" : " ;");
    }
    base_buf_puts(out, "\n");
}

rtx_status syn_problem_text(const syn_problem *p, base_buf *out, rtx_err *err)
{
    TRY(ir_ok(p->region, err));
    if (p->n_in != p->region->n_inputs || p->n_out != p->region->n_outputs ||
        p->n_in + p->n_out > SYN_OPERANDS_MAX)
        return FAIL(err, INVALID, "region and problem differ in operands");
    /* The region with the ports' names of its own place. */
    ir_graph view = *p->region;
    ir_port in[SYN_OPERANDS_MAX], outs[SYN_OPERANDS_MAX];
    for (uint32_t k = 0; k < p->n_in; k++)
        in[k] = (ir_port){view.inputs[k].id, syn_port_name(false, k)};
    for (uint32_t k = 0; k < p->n_out; k++)
        outs[k] = (ir_port){view.outputs[k].id, syn_port_name(true, k)};
    view.inputs = in;
    view.outputs = outs;
    base_buf_printf(out, "problem 1\nsyms %u free %d\n", fmt_sym_count(p->dims), p->free_attrs);
    print_strides(p, out);
    ir_print(&view, "region", IR_TEXT_DATA, out);
    return base_buf_ok(out, err);
}

/* One line of text; the reader moves behind it. */
static bool take_line(const char **at, const char *end, const char **line, size_t *len)
{
    const char *nl = *at < end ? memchr(*at, '\n', (size_t)(end - *at)) : NULL;
    if (nl == NULL)
        return false;
    *line = *at;
    *len = (size_t)(nl - *at);
    *at = nl + 1;
    return true;
}

/* The strides line against the operands of the parsed region. */
static bool parse_strides(syn_problem *p, const char *s)
{
    if (strncmp(s, "strides", 7) != 0)
        return false;
    s += 7;
    for (uint32_t o = 0; o < p->n_in + p->n_out; o++) {
        for (int k = 0; k < syn_operand_type(p, o)->rank; k++) {
            if (s[0] == ' ' && s[1] == '?') {
                p->stride[o][k] = FMT_DIM_BAD;
                s += 2;
                continue;
            }
            char *rest;
            long long v = strtoll(s, &rest, 10);
            if (rest == s || v > FMT_DIM_LIMIT || v < -FMT_DIM_LIMIT)
                return false;
            p->stride[o][k] = fmt_dim_const(p->dims, v);
            s = rest;
        }
        p->packed[o] = strncmp(s, " packed;", 8) == 0;
        if (!p->packed[o] && strncmp(s, " ;", 2) != 0)
            return false;
        s += p->packed[o] ? 8 : 2;
    }
    return *s == 0;
}

static rtx_status parse_into(syn_problem *p, const char *text, size_t len, rtx_err *err)
{
    const char *at = text, *line, *end = text + len;
    size_t n;
    unsigned syms = 0;
    int free_attrs = 0, used = 0;
    if (!take_line(&at, end, &line, &n) || n != 9 || memcmp(line, "problem 1", 9) != 0)
        return FAIL(err, INVALID, "not the text of a problem of version 1");
    if (!take_line(&at, end, &line, &n) || n > 60)
        return FAIL(err, INVALID, "problem text: no line of symbols");
    char head[64];
    memcpy(head, line, n);
    head[n] = 0;
    if (sscanf(head, "syms %u free %d%n", &syms, &free_attrs, &used) != 2 || (size_t)used != n ||
        syms > SYN_SYMS_MAX)
        return FAIL(err, INVALID, "problem text: bad line of symbols");
    p->free_attrs = free_attrs != 0;
    for (unsigned i = 0; i < syms; i++) {
        char name[16];
        snprintf(name, sizeof name, "s%u", i);
        (void)fmt_sym_new(p->dims, name, 0, FMT_DIM_LIMIT);
    }
    if (!take_line(&at, end, &line, &n))
        return FAIL(err, INVALID, "problem text: no line of strides");
    ir_graph_free(p->region);
    p->region = NULL;
    TRY(ir_parse(at, (size_t)(end - at), p->dims, &p->region, err));
    if (fmt_sym_count(p->dims) != syms) /* others would stand where the text names them first */
        return FAIL(err, INVALID, "problem text: %u symbols, where its line of symbols says %u",
                    fmt_sym_count(p->dims), syms);
    p->n_in = p->region->n_inputs;
    p->n_out = p->region->n_outputs;
    if (p->n_in + p->n_out > SYN_OPERANDS_MAX)
        return FAIL(err, LIMIT, "a problem of more than %d operands", SYN_OPERANDS_MAX);
    AUTO_BUF base_buf strides;
    base_buf_init(&strides, BASE_TAG_SYNTH, TEXT_MAX);
    base_buf_put(&strides, line, n);
    TRY(base_buf_ok(&strides, err));
    return parse_strides(p, strides.data) ? fmt_dims_ok(p->dims, err)
                                          : FAIL(err, INVALID, "problem text: strides do not fit");
}

rtx_status syn_problem_parse(const char *text, size_t len, syn_problem **out, rtx_err *err)
{
    syn_problem *p = syn_problem_new();
    if (p == NULL)
        return FAIL(err, NOMEM, "out of memory");
    rtx_status status = parse_into(p, text, len, err);
    if (status == RTX_OK)
        *out = p;
    else
        syn_problem_free(p);
    return status;
}

/* ---- arguments ---- */

uint32_t syn_arg_stride(const syn_problem *p, uint32_t operand, uint32_t axis)
{
    uint32_t n = fmt_sym_count(p->dims);
    for (uint32_t o = 0; o < operand; o++)
        n += syn_operand_type(p, o)->rank;
    return n + axis;
}

uint32_t syn_free_count(const syn_problem *p, const syn_form *f)
{
    return !p->free_attrs                                 ? 0
           : f->op == IR_attention                        ? 3
           : f->op == IR_layernorm || f->op == IR_rmsnorm ? 1
                                                          : 0;
}

uint32_t syn_arg_count(const syn_problem *p)
{
    syn_form f = {0};
    uint32_t n = syn_arg_stride(p, p->n_in + p->n_out, 0);
    return p->free_attrs && syn_form_of(p, &f, NULL) == RTX_OK ? n + syn_free_count(p, &f) : n;
}

/* The argument of a size; -1 when it is a constant. */
static int16_t size_arg(const syn_problem *p, fmt_dim d)
{
    uint32_t sym;
    return fmt_dim_is_sym(p->dims, d, &sym) ? (int16_t)sym : -1;
}

rtx_status syn_measure(const syn_problem *p, int16_t out[2], rtx_err *err)
{
    syn_form f;
    out[0] = out[1] = -1;
    rtx_status s = syn_form_of(p, &f, NULL);
    if (s != RTX_OK)
        return s == RTX_NOMEM ? FAIL(err, NOMEM, "out of memory") : RTX_OK;
    int n = 0;
    if (f.family == SYN_GEMM) {
        const ir_type *t = ir_type_of(p->region, f.anchor);
        for (int k = t->rank - 2; k >= 0 && n < 2;
             k--) /* m, then the nearest batch axis that may vary */
            if (size_arg(p, t->dim[k]) >= 0)
                out[n++] = size_arg(p, t->dim[k]);
    } else if (f.family == SYN_ATTENTION) {
        int16_t batch = size_arg(p, syn_operand_type(p, 0)->dim[0]),
                keys = size_arg(p, syn_operand_type(p, 1)->dim[2]);
        if (batch >= 0)
            out[n++] = batch;
        if (keys >= 0 && keys != batch)
            out[n++] = keys;
    } else {
        for (uint32_t s = 0; s < fmt_sym_count(p->dims) && n < 2; s++)
            out[n++] = (int16_t)s;
    }
    return RTX_OK;
}

/* ---- cost ---- */

static double size_of(const syn_problem *p, fmt_dim d, const int64_t *sym)
{
    int64_t v;
    return fmt_dim_eval(p->dims, d, sym, &v) ? (double)v : 0.0;
}

static double elems_of(const syn_problem *p, const ir_type *t, const int64_t *sym)
{
    double n = 1;
    for (int k = 0; k < t->rank; k++)
        n *= size_of(p, t->dim[k], sym);
    return n;
}

double syn_op_weight(ir_op op)
{
    switch (op) {
    case IR_input:
    case IR_const:
    case IR_broadcast:
    case IR_iota:
    case IR_cast:
        return 0;
    case IR_exp:
    case IR_log:
    case IR_erf:
    case IR_tanh:
    case IR_sigmoid:
    case IR_gelu:
    case IR_gelu_tanh:
    case IR_silu:
    case IR_swiglu:
        return 15;
    case IR_pow:
    case IR_sin:
    case IR_cos:
        return 40;
    case IR_softmax:
        return 18;
    case IR_layernorm:
        return 8;
    case IR_rmsnorm:
        return 4;
    default:
        return 1;
    }
}

static double node_flops(const syn_problem *p, ir_id id, const int64_t *sym)
{
    const ir_graph *g = p->region;
    ir_op op = ir_op_of(g, id);
    double n = elems_of(p, ir_type_of(g, id), sym);
    if (op == IR_dot) {
        const ir_type *a = ir_type_of(g, ir_in(g, id, 0));
        return 2 * n * size_of(p, a->dim[a->rank - 1], sym);
    }
    if (op == IR_attention) {
        const ir_type *q = ir_type_of(g, ir_in(g, id, 0)), *v = ir_type_of(g, ir_in(g, id, 2));
        double scores =
            elems_of(p, q, sym) / MAX(size_of(p, q->dim[3], sym), 1) * size_of(p, v->dim[2], sym);
        double flops =
            2 * scores * (size_of(p, q->dim[3], sym) + size_of(p, v->dim[3], sym)) + 18 * scores;
        return ir_attrs_of(g, id)->i[0] ? flops / 2 : flops;
    }
    bool reduces = op >= IR_reduce_sum && op <= IR_argmin;
    return syn_op_weight(op) * (reduces ? elems_of(p, ir_type_of(g, ir_in(g, id, 0)), sym) : n);
}

/* Of the table of a gather only what is taken moves. */
static bool is_table(const syn_problem *p, uint32_t o)
{
    for (ir_id id = 1; id < p->region->n_nodes; id++) {
        ir_op op = ir_op_of(p->region, id);
        if ((op == IR_gather || op == IR_gather_nd || op == IR_gather_elements) && o < p->n_in &&
            ir_in(p->region, id, 0) == p->region->inputs[o].id)
            return true;
    }
    return false;
}

void syn_cost(const syn_problem *p, const int64_t *sym, double *out_flops, double *out_bytes)
{
    double flops = 0, bytes = 0;
    for (ir_id id = 1; id < p->region->n_nodes; id++)
        flops += node_flops(p, id, sym);
    for (uint32_t o = 0; o < p->n_in + p->n_out; o++) {
        const ir_type *t = syn_operand_type(p, is_table(p, o) ? p->n_in : o);
        double n = 1;
        int64_t v;
        for (int k = 0; k < t->rank; k++)
            n *= p->packed[o] || !syn_stride_const(p, o, k, &v) || v != 0
                     ? size_of(p, t->dim[k], sym)
                     : 1;
        bytes += n * (double)fmt_dtype_bytes(t->dtype);
    }
    *out_flops = flops;
    *out_bytes = bytes;
}

void syn_node_cost(const syn_problem *p, ir_id id, const int64_t *sym, double *out_flops,
                   double *out_bytes)
{
    const ir_type *t = ir_type_of(p->region, id);
    *out_flops = node_flops(p, id, sym);
    *out_bytes = elems_of(p, t, sym) * (double)fmt_dtype_bytes(t->dtype);
}

/* ---- packed B ---- */

uint64_t syn_pack_floats(int64_t k, int64_t n)
{
    return (uint64_t)k * ((uint64_t)(n + SYN_PACK_COLS - 1) / SYN_PACK_COLS * SYN_PACK_COLS);
}

/* b may come straight from a model file, at any address. */
static float load_float(const float *b, int64_t index)
{
    float v;
    memcpy(&v, (const char *)b + index * (int64_t)sizeof v, sizeof v);
    return v;
}

void syn_pack_b(const float *b, int64_t k, int64_t n, int64_t stride_k, int64_t stride_n,
                float *out)
{
    for (int64_t n0 = 0; n0 < n; n0 += SYN_PACK_COLS)
        for (int64_t i = 0; i < k; i++)
            for (int64_t j = n0; j < n0 + SYN_PACK_COLS; j++)
                *out++ = j < n ? load_float(b, i * stride_k + j * stride_n) : 0.0f;
}
