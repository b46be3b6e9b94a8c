/* Writes a graph as an ONNX file, opset 17: one rule an op. Broadcasts that ONNX makes by itself are left out, and a
 * product of rows by a matrix is written as one MatMul. */
#include "fe_onnx_emit.h"
#include <math.h>
#include <stdio.h>

enum { IR_VERSION = 8, INS_MAX = 64 };

/* ---- operands as ONNX reads them ---- */

/* x of broadcast(x); other nodes are themselves. */
static ir_id peel(const ir_graph *g, ir_id id)
{
    return ir_op_of(g, id) == IR_broadcast ? ir_in(g, id, 0) : id;
}

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
    if (x->rank != t->rank || x->rank < 2 || x->dim[x->rank - 1] != m->dim[0] ||
        t->dim[t->rank - 1] != m->dim[1])
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
static const struct {
    ir_op op;
    const char *onnx;
} same[] = {{IR_neg, "Neg"},          {IR_abs, "Abs"},
            {IR_sign, "Sign"},        {IR_exp, "Exp"},
            {IR_log, "Log"},          {IR_sqrt, "Sqrt"},
            {IR_recip, "Reciprocal"}, {IR_erf, "Erf"},
            {IR_tanh, "Tanh"},        {IR_sigmoid, "Sigmoid"},
            {IR_sin, "Sin"},          {IR_cos, "Cos"},
            {IR_floor, "Floor"},      {IR_ceil, "Ceil"},
            {IR_round, "Round"},      {IR_relu, "Relu"},
            {IR_not, "Not"},          {IR_isnan, "IsNaN"},
            {IR_isinf, "IsInf"},      {IR_add, "Add"},
            {IR_sub, "Sub"},          {IR_mul, "Mul"},
            {IR_div, "Div"},          {IR_pow, "Pow"},
            {IR_mod, "Mod"},          {IR_min, "Min"},
            {IR_max, "Max"},          {IR_eq, "Equal"},
            {IR_lt, "Less"},          {IR_le, "LessOrEqual"},
            {IR_gt, "Greater"},       {IR_ge, "GreaterOrEqual"},
            {IR_and, "And"},          {IR_or, "Or"},
            {IR_xor, "Xor"},          {IR_select, "Where"},
            {IR_dot, "MatMul"},       {IR_softmax, "Softmax"}};

static void write_reshape(fe_writer *w, ir_id id, fe_name x, fe_name out)
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
    fe_name in[2] = {x,
                     simple ? fe_emit_ints(w, shape, t->rank) : fe_emit_sizes(w, t->dim, t->rank)};
    base_buf b = fe_emit_begin("Reshape", in, 2, &out, 1);
    if (!simple)
        fe_put_attr_i(&b, "allowzero", 1);
    fe_emit_end(w, &b);
}

static void write_slice(fe_writer *w, ir_id id, fe_name x, fe_name out)
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
        ends[n] =
            fmt_dim_add(d, a->dims[i], fmt_dim_mul(d, a->sizes[i], fmt_dim_const(d, a->list[i])));
        fmt_dim_range(d, ends[n], &lo, &hi);
        if (hi < 0) /* a walk down past the first entry */
            ends[n] = fmt_dim_const(d, -FMT_DIM_LIMIT);
        else if (lo < 0)
            fe_emit_refuse(w, "slice");
        axes[n] = i;
        steps[n++] = a->list[i];
    }
    if (n == 0) {
        fe_emit(w, "Identity", &x, 1, out);
        return;
    }
    fe_name in[5] = {x, fe_emit_sizes(w, starts, n), fe_emit_sizes(w, ends, n),
                     fe_emit_ints(w, axes, n), fe_emit_ints(w, steps, n)};
    fe_emit(w, "Slice", in, 5, out);
}

static void write_iota(fe_writer *w, ir_id id, fe_name out)
{
    const ir_attrs *a = ir_attrs_of(w->g, id);
    int64_t column[FMT_RANK_MAX], zero = 0, one = 1;
    for (int i = 0; i < a->n_dims; i++)
        column[i] = i == a->i[0] ? -1 : 1;
    fe_name scalar = fe_emit_ints(w, NULL, 0), n = fe_emit_size(w, a->dims[a->i[0]]),
            range = fe_emit_fresh(w), in[3];
    in[1] = fe_emit_fresh(w);
    fe_emit(w, "Reshape", (fe_name[]){n, scalar}, 2, in[1]);
    in[0] = fe_emit_fresh(w), in[2] = fe_emit_fresh(w);
    fe_emit_tensor(w, in[0].s, FMT_I64, NULL, 0, &zero, 8);
    fe_emit_tensor(w, in[2].s, FMT_I64, NULL, 0, &one, 8);
    fe_emit(w, "Range", in, 3, range);
    fe_name view = fe_emit2(w, "Reshape", range, fe_emit_ints(w, column, a->n_dims));
    fe_emit(w, "Expand", (fe_name[]){view, fe_emit_sizes(w, a->dims, a->n_dims)}, 2, out);
}

static void write_reduce(fe_writer *w, ir_id id, fe_name x, fe_name out)
{
    static const struct {
        ir_op op;
        const char *onnx;
    } ops[] = {{IR_reduce_sum, "ReduceSum"},
               {IR_reduce_mean, "ReduceMean"},
               {IR_reduce_max, "ReduceMax"},
               {IR_reduce_min, "ReduceMin"},
               {IR_reduce_prod, "ReduceProd"}};
    const ir_attrs *a = ir_attrs_of(w->g, id);
    for (size_t i = 0; i < COUNT_OF(ops); i++) {
        if (ops[i].op != ir_op_of(w->g, id))
            continue;
        bool as_input = ops[i].op == IR_reduce_sum; /* others take axes as input from opset 18 */
        fe_name in[2] = {x, {""}};
        if (as_input)
            in[1] = fe_emit_ints(w, a->list, a->n_list);
        base_buf b = fe_emit_begin(ops[i].onnx, in, as_input ? 2 : 1, &out, 1);
        if (!as_input)
            fe_put_attr_ints(&b, "axes", a->list, a->n_list);
        fe_put_attr_i(&b, "keepdims", 0);
        fe_emit_end(w, &b);
    }
}

static void write_topk(fe_writer *w, ir_id id, fe_name x, fe_name out)
{
    const ir_attrs *a = ir_attrs_of(w->g, id);
    fe_name in[2] = {x, fe_emit_size(w, a->dims[0])}, both[2] = {fe_emit_fresh(w), out};
    base_buf b = fe_emit_begin("TopK", in, 2, both, 2);
    fe_put_attr_i(&b, "axis", a->i[0]);
    fe_put_attr_i(&b, "largest", a->i[1]);
    fe_emit_end(w, &b);
}

static void write_raised(fe_writer *w, ir_id id, const fe_name *in, fe_name out)
{
    fe_name half, t;
    switch (ir_op_of(w->g, id)) {
    case IR_gelu:
        t = fe_emit2(w, "Add",
                     fe_emit1(w, "Erf", fe_emit2(w, "Mul", in[0], fe_emit_float(w, sqrt(0.5)))),
                     fe_emit_float(w, 1));
        half = fe_emit2(w, "Mul", in[0], fe_emit_float(w, 0.5));
        fe_emit(w, "Mul", (fe_name[]){half, t}, 2, out);
        break;
    case IR_gelu_tanh:
        t = fe_emit2(w, "Mul", fe_emit2(w, "Pow", in[0], fe_emit_float(w, 3)),
                     fe_emit_float(w, 0.044715));
        t = fe_emit2(w, "Mul", fe_emit2(w, "Add", in[0], t),
                     fe_emit_float(w, sqrt(2 / 3.14159265358979323846)));
        t = fe_emit2(w, "Add", fe_emit1(w, "Tanh", t), fe_emit_float(w, 1));
        half = fe_emit2(w, "Mul", in[0], fe_emit_float(w, 0.5));
        fe_emit(w, "Mul", (fe_name[]){half, t}, 2, out);
        break;
    case IR_silu:
        fe_emit(w, "Mul", (fe_name[]){in[0], fe_emit1(w, "Sigmoid", in[0])}, 2, out);
        break;
    case IR_swiglu:
        t = fe_emit2(w, "Mul", in[0], fe_emit1(w, "Sigmoid", in[0]));
        fe_emit(w, "Mul", (fe_name[]){t, in[1]}, 2, out);
        break;
    case IR_layernorm: {
        uint32_t n = ir_node_get(w->g, id)->n_in;
        if (n < 2)
            fe_emit_refuse(w, "layernorm without a scale");
        base_buf b = fe_emit_begin("LayerNormalization", in, n, &out, 1);
        fe_put_attr_f(&b, "epsilon", ir_attrs_of(w->g, id)->f[0]);
        fe_emit_end(w, &b);
        break;
    }
    default:
        fe_emit_refuse(w, ir_op_get(ir_op_of(w->g, id))->name);
    }
}

static void write_indexed(fe_writer *w, ir_id id, const char *op, const char *key,
                          const fe_name *in, uint32_t n, fe_name out)
{
    const ir_attrs *a = ir_attrs_of(w->g, id);
    base_buf b = fe_emit_begin(op, in, n, &out, 1);
    fe_put_attr_i(&b, key, a->i[0]);
    if (ir_op_of(w->g, id) == IR_argmax || ir_op_of(w->g, id) == IR_argmin) {
        fe_put_attr_i(&b, "select_last_index", a->i[1]);
        fe_put_attr_i(&b, "keepdims", 0);
    }
    fe_emit_end(w, &b);
}

static void write_const(fe_writer *w, ir_id id, fe_name out)
{
    const ir_type *t = ir_type_of(w->g, id);
    const ir_const *c = ir_const_of(w->g, id);
    int64_t dims[FMT_RANK_MAX] = {0};
    for (int i = 0; i < t->rank; i++)
        fmt_dim_is_const(w->g->dims, t->dim[i], &dims[i]);
    fe_emit_tensor(w, out.s, (fmt_dtype)t->dtype, dims, t->rank, c->data, c->bytes);
}

static void write_views(fe_writer *w, ir_id id, const fe_name *in, uint32_t n, fe_name out)
{
    const ir_graph *g = w->g;
    const ir_attrs *a = ir_attrs_of(g, id);
    const ir_type *t = ir_type_of(g, id);
    ir_id pair[2];
    base_buf b;
    switch (ir_op_of(g, id)) {
    case IR_reshape:
        if (is_rows_by_matrix(g, id, pair))
            fe_emit(w, "MatMul", in, n, out);
        else
            write_reshape(w, id, in[0], out);
        break;
    case IR_broadcast:
        fe_emit(w, "Expand", (fe_name[]){in[0], fe_emit_sizes(w, t->dim, t->rank)}, 2, out);
        break;
    case IR_permute:
        b = fe_emit_begin("Transpose", in, 1, &out, 1);
        fe_put_attr_ints(&b, "perm", a->list, a->n_list);
        fe_emit_end(w, &b);
        break;
    default:
        write_slice(w, id, in[0], out);
    }
}

static void write_cumsum(fe_writer *w, ir_id id, fe_name x, fe_name out)
{
    const ir_attrs *a = ir_attrs_of(w->g, id);
    fe_name in[2] = {x, fe_emit_ints(w, &a->i[0], 1)};
    base_buf b = fe_emit_begin("CumSum", in, 2, &out, 1);
    fe_put_attr_i(&b, "exclusive", a->i[1]);
    fe_put_attr_i(&b, "reverse", a->i[2]);
    fe_emit_end(w, &b);
}

static void write_op(fe_writer *w, ir_id id, const fe_name *in, uint32_t n, fe_name out)
{
    const ir_attrs *a = ir_attrs_of(w->g, id);
    base_buf b;
    switch (ir_op_of(w->g, id)) {
    case IR_const:
        write_const(w, id, out);
        break;
    case IR_iota:
        write_iota(w, id, out);
        break;
    case IR_dimvals: {
        fe_name v = fe_emit_sizes(w, a->dims, a->n_dims);
        if (a->i[0])
            fe_emit(w, "Reshape", (fe_name[]){v, fe_emit_ints(w, NULL, 0)}, 2, out);
        else
            fe_emit(w, "Identity", &v, 1, out);
        break;
    }
    case IR_cast:
        b = fe_emit_begin("Cast", in, 1, &out, 1);
        fe_put_attr_i(&b, "to", fmt_dtype_to_onnx((fmt_dtype)a->type));
        fe_emit_end(w, &b);
        break;
    case IR_rsqrt:
        fe_emit(w, "Reciprocal", (fe_name[]){fe_emit1(w, "Sqrt", in[0])}, 1, out);
        break;
    case IR_ne:
        fe_emit(w, "Not", (fe_name[]){fe_emit2(w, "Equal", in[0], in[1])}, 1, out);
        break;
    case IR_fmod:
        b = fe_emit_begin("Mod", in, 2, &out, 1);
        fe_put_attr_i(&b, "fmod", 1);
        fe_emit_end(w, &b);
        break;
    case IR_concat:
        write_indexed(w, id, "Concat", "axis", in, n, out);
        break;
    case IR_gather:
        write_indexed(w, id, "Gather", "axis", in, n, out);
        break;
    case IR_gather_nd:
        write_indexed(w, id, "GatherND", "batch_dims", in, n, out);
        break;
    case IR_gather_elements:
        write_indexed(w, id, "GatherElements", "axis", in, n, out);
        break;
    case IR_argmax:
        write_indexed(w, id, "ArgMax", "axis", in, n, out);
        break;
    case IR_argmin:
        write_indexed(w, id, "ArgMin", "axis", in, n, out);
        break;
    case IR_cumsum:
        write_cumsum(w, id, in[0], out);
        break;
    case IR_topk:
        write_topk(w, id, in[0], out);
        break;
    default:
        if (ir_op_get(ir_op_of(w->g, id))->view)
            write_views(w, id, in, n, out);
        else if (strncmp(ir_op_get(ir_op_of(w->g, id))->name, "reduce_", 7) == 0)
            write_reduce(w, id, in[0], out);
        else
            write_raised(w, id, in, out);
    }
}

static void write_node(fe_writer *w, ir_id id)
{
    ir_id in[INS_MAX];
    fe_name names[INS_MAX], out = fe_emit_name(w, id);
    uint32_t n = operands(w->g, id, in);
    ir_op op = ir_op_of(w->g, id);
    if (op == IR_input)
        return;
    for (uint32_t k = 0; k < n; k++)
        names[k] = fe_emit_name(w, in[k]);
    for (size_t i = 0; i < COUNT_OF(same); i++)
        if (same[i].op == op) {
            fe_emit(w, same[i].onnx, names, n, out);
            return;
        }
    write_op(w, id, names, n, out);
}

/* ---- the file ---- */

static void put_port(base_buf *graph, uint32_t field, const ir_graph *g, const ir_port *p)
{
    const ir_type *t = ir_type_of(g, p->id);
    base_buf shape = fe_message(), tensor = fe_message(), type = fe_message(), value = fe_message();
    for (int i = 0; i < t->rank; i++) {
        int64_t c;
        base_buf dim = fe_message();
        if (fmt_dim_is_const(g->dims, t->dim[i], &c)) {
            fe_put_int(&dim, 1, c);
        } else {
            base_buf text = fe_message();
            fmt_dim_print(g->dims, t->dim[i], &text);
            fe_put_message(&dim, 2, &text);
        }
        fe_put_message(&shape, 1, &dim);
    }
    fe_put_int(&tensor, 1, fmt_dtype_to_onnx((fmt_dtype)t->dtype));
    fe_put_message(&tensor, 2, &shape);
    fe_put_message(&type, 1, &tensor);
    fe_put_text(&value, 1, p->name);
    fe_put_message(&value, 2, &type);
    fe_put_message(graph, field, &value);
}

static void choose_prefix(fe_writer *w)
{
    const ir_graph *g = w->g;
    snprintf(w->prefix, sizeof w->prefix, "v");
    for (uint32_t i = 0; i < g->n_inputs + g->n_outputs; i++) {
        const char *s = i < g->n_inputs ? g->inputs[i].name : g->outputs[i - g->n_inputs].name;
        while (strncmp(s, w->prefix, strlen(w->prefix)) == 0 &&
               strlen(w->prefix) < sizeof w->prefix - 2)
            w->prefix[strlen(w->prefix)] = '_'; /* zero-filled behind it */
    }
}

static void mark_needed(fe_writer *w)
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

static rtx_status write_model(fe_writer *w, const char *graph_name, base_buf *out, rtx_err *err)
{
    const ir_graph *g = w->g;
    base_buf graph = fe_message(), opset = fe_message();
    fe_put_bytes(&graph, 2, graph_name, strlen(graph_name));
    for (uint32_t i = 0; i < g->n_inputs; i++)
        put_port(&graph, 11, g, &g->inputs[i]);
    for (uint32_t i = 0; i < g->n_outputs; i++)
        put_port(&graph, 12, g, &g->outputs[i]);
    base_buf_put(&graph, w->nodes.data ? w->nodes.data : "", w->nodes.len);
    base_buf_put(&graph, w->inits.data ? w->inits.data : "", w->inits.len);
    graph.failed |= w->nodes.failed | w->inits.failed;
    fe_put_text(&opset, 1, "");
    fe_put_int(&opset, 2, FE_WRITE_OPSET);
    fe_put_int(out, 1, IR_VERSION);
    fe_put_text(out, 2, "rtx");
    fe_put_message(out, 8, &opset);
    fe_put_message(out, 7, &graph);
    return base_buf_ok(out, err);
}

static rtx_status write_all(fe_writer *w, const char *graph_name, base_buf *out, rtx_err *err)
{
    const ir_graph *g = w->g;
    TRY_ALLOC(w->needed = base_zalloc_array(BASE_TAG_FRONTEND, g->n_nodes, sizeof *w->needed), err);
    TRY_ALLOC(w->out_name = base_zalloc_array(BASE_TAG_FRONTEND, g->n_nodes, sizeof *w->out_name),
              err);
    choose_prefix(w);
    mark_needed(w);
    for (ir_id id = 1; id < g->n_nodes; id++)
        if (w->needed[id])
            write_node(w, id);
    for (uint32_t i = 0; i < g->n_outputs;
         i++) { /* outputs that are inputs, or a second fe_name of a value */
        fe_name from = fe_emit_name(w, g->outputs[i].id), to;
        snprintf(to.s, sizeof to.s, "%s", g->outputs[i].name);
        if (strcmp(from.s, to.s) != 0)
            fe_emit(w, "Identity", &from, 1, to);
    }
    if (w->err.code != RTX_OK)
        return FAIL(err, UNSUPPORTED, "%s", w->err.text);
    return write_model(w, graph_name, out, err);
}

rtx_status fe_onnx_write(const ir_graph *g, const char *graph_name, base_buf *out, rtx_err *err)
{
    fe_writer w = {.g = g, .nodes = fe_message(), .inits = fe_message()};
    TRY(ir_ok(g, err));
    rtx_status st = write_all(&w, graph_name, out, err);
    base_buf_done(&w.nodes);
    base_buf_done(&w.inits);
    base_free(w.needed);
    base_free(w.out_name);
    base_free(w.sizes);
    return st;
}
