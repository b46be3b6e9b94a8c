/* Opening a model: file or bytes to a graph. Imports in passes until no symbol learns anything new. */
#include "fe_onnx.h"
#include "fe_zoo.h"
#include <fcntl.h>
#include <unistd.h>

enum { PASSES_MAX = 64 };
#define ARENA_MAX ((size_t)512 << 20) /* views and values of one pass; tensors are not in it */

static _Thread_local char *last_report;

char *fe_take_report(void) { return TAKE(last_report); }

/* ---- sizes of inputs ---- */

static bool has_size(const fe_pb_dim *d) { return d->has_value && d->value >= 0; }
static bool is_label(const fe_pb_dim *d) { return d->param.len && !fe_span_is(d->param, "?"); }

static bool name_char(uint8_t c, bool first)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
           (!first && ((c >= '0' && c <= '9') || c == '.'));
}

static bool plain_name(fe_span s)
{
    for (size_t i = 0; i < s.len; i++)
        if (!name_char(s.at[i], i == 0))
            return false;
    return s.len > 0 && s.len <= 200;
}

/* Sizes are one if their keys are: all of the dim_param, or axis and input. */
static rtx_status size_key(fe_imp *m, fe_span input, uint32_t axis, const fe_pb_dim *dim,
                           fe_span *out, rtx_err *err)
{
    fe_span text = is_label(dim) ? dim->param : input;
    uint8_t *key;
    TRY_ALLOC(key = base_arena_alloc(&m->arena, text.len + 1), err);
    key[0] = is_label(dim) ? UINT8_MAX : (uint8_t)axis;
    if (text.len)
        memcpy(key + 1, text.at, text.len);
    *out = (fe_span){key, text.len + 1};
    return RTX_OK;
}

/* A symbol whose name resembles the text and is no other's. */
static uint32_t fresh_sym(fmt_dims *d, fe_span text, const char *suffix)
{
    char name[96];
    size_t stem = 0;
    for (; stem < MIN(text.len, 48); stem++)
        name[stem] = (char)(name_char(text.at[stem], stem == 0) ? text.at[stem] : '_');
    stem += (size_t)snprintf(name + stem, sizeof name - stem, "%s", suffix);
    size_t n = stem;
    for (uint32_t k = fmt_sym_count(d); n == 0 || fmt_sym_find(d, name, n) != UINT32_MAX; k++)
        n = stem + (size_t)snprintf(name + stem, sizeof name - stem, "_%u", k);
    return fmt_sym_new(d, name, 0, FMT_DIM_LIMIT);
}

/* Of a name or an expression over names; of another text FMT_DIM_BAD. */
static fmt_dim dim_of_label(fmt_dims *d, fe_span text)
{
    int64_t lo, hi;
    if (plain_name(text)) {
        uint32_t sym = fmt_sym_find(d, (const char *)text.at, text.len);
        char name[201];
        memcpy(name, text.at, text.len);
        name[text.len] = 0;
        return fmt_dim_sym(d, sym != UINT32_MAX ? sym : fmt_sym_new(d, name, 0, FMT_DIM_LIMIT));
    }
    fmt_dim e = text.len <= 200 ? fmt_dim_parse(d, (const char *)text.at, text.len) : FMT_DIM_BAD;
    fmt_dim_range(d, e, &lo, &hi);
    return hi < 0 ? FMT_DIM_BAD : e;
}

static rtx_status name_size(fe_imp *m, fe_span input, uint32_t axis, const fe_pb_dim *dim,
                            bool invent, rtx_err *err)
{
    fe_span key;
    bool found;
    fe_val **slot, *v;
    fmt_dim d = FMT_DIM_BAD;
    TRY(size_key(m, input, axis, dim, &key, err));
    if (fe_name_find(&m->model->sizes, key))
        return RTX_OK;
    if (!invent && is_label(dim))
        d = dim_of_label(m->d, dim->param);
    if (invent) {
        char suffix[8];
        snprintf(suffix, sizeof suffix, "_%u", axis);
        uint32_t sym =
            is_label(dim)
                ? fresh_sym(m->d, dim->param, "")
                : fresh_sym(m->d, input.len ? input : (fe_span){(const uint8_t *)"dim", 3}, suffix);
        d = fmt_dim_sym(m->d, sym);
    }
    TRY(fmt_dims_ok(m->d, err));
    if (d == FMT_DIM_BAD)
        return RTX_OK;
    base_arena *a = &m->model->arena;
    TRY_ALLOC(key.at = (const uint8_t *)base_arena_strn(a, (const char *)key.at, key.len), err);
    TRY_ALLOC(v = base_arena_alloc(a, sizeof *v), err);
    v->type.dim[0] = d;
    TRY_ALLOC(slot = fe_name_put(a, &m->model->sizes, key, &found), err);
    *slot = v;
    return RTX_OK;
}

static rtx_status name_sizes_of(fe_imp *m, const fe_scope *s, fe_span message, bool invent,
                                rtx_err *err)
{
    fe_pb_value v;
    fe_pb_type type;
    fe_pb_tensor_type tt;
    fe_pb_shape shape;
    TRY(fe_read_value(message, &m->arena, &v, err));
    if (fe_name_find(&s->names, v.name)) /* an initializer */
        return RTX_OK;
    TRY(fe_read_type(v.type, &m->arena, &type, err));
    TRY(fe_read_tensor_type(type.tensor, &m->arena, &tt, err));
    TRY(fe_read_shape(tt.shape, &m->arena, &shape, err));
    for (uint32_t i = 0; i < MIN(shape.dims.n, FMT_RANK_MAX); i++) {
        fe_pb_dim dim;
        TRY(fe_read_dim(shape.dims.at[i], &m->arena, &dim, err));
        if (!has_size(&dim))
            TRY(name_size(m, v.name, i, &dim, invent, err));
    }
    return RTX_OK;
}

/* Names that the model gives come first, so that no invented one meets them. */
static rtx_status name_sizes(fe_imp *m, const fe_scope *s, const fe_list *inputs, rtx_err *err)
{
    for (int invent = 0; invent < 2 && !m->model->sizes_named; invent++)
        for (size_t i = 0; i < inputs->n; i++)
            TRY(name_sizes_of(m, s, inputs->at[i], invent, err));
    m->model->sizes_named = true;
    return RTX_OK;
}

static rtx_status named_dim(fe_imp *m, fe_span input, uint32_t axis, const fe_pb_dim *dim,
                            fmt_dim *out, rtx_err *err)
{
    fe_span key;
    TRY(size_key(m, input, axis, dim, &key, err));
    fe_val **v = fe_name_find(&m->model->sizes, key);
    *out = v ? fmt_dim_resolve(m->d, (*v)->type.dim[0]) : FMT_DIM_BAD;
    return RTX_OK;
}

/* ---- inputs ---- */

static rtx_status value_dims(fe_imp *m, const fe_pb_value *v, const fe_pb_tensor_type *tt,
                             ir_type *t, rtx_err *err)
{
    fe_pb_shape shape;
    TRY(fe_read_shape(tt->shape, &m->arena, &shape, err));
    if (shape.dims.n > FMT_RANK_MAX)
        return FAIL(err, UNSUPPORTED, "'%.*s' has %zu axes; the limit is %d", FE_SHOW(v->name),
                    shape.dims.n, FMT_RANK_MAX);
    t->rank = (uint8_t)shape.dims.n;
    for (uint32_t i = 0; i < t->rank; i++) {
        fe_pb_dim dim;
        TRY(fe_read_dim(shape.dims.at[i], &m->arena, &dim, err));
        if (dim.has_value && dim.value > FMT_DIM_LIMIT)
            return FAIL(err, INVALID, "'%.*s': axis %u has size %lld; the limit is 2^48",
                        FE_SHOW(v->name), i, (long long)dim.value);
        if (has_size(&dim))
            t->dim[i] = fmt_dim_const(m->d, dim.value);
        else
            TRY(named_dim(m, v->name, i, &dim, &t->dim[i], err));
        TRY(fmt_dims_ok(m->d, err));
    }
    return RTX_OK;
}

/* UNSUPPORTED texts say what of the input is not supported. */
static rtx_status value_type(fe_imp *m, const fe_pb_value *v, ir_type *t, bool *out_shaped,
                             rtx_err *err)
{
    fe_pb_type type;
    fe_pb_tensor_type tt;
    *t = (ir_type){0};
    *out_shaped = false;
    TRY(fe_read_type(v->type, &m->arena, &type, err));
    if (!type.has_tensor)
        return FAIL(err, UNSUPPORTED, "'%.*s' is not a tensor", FE_SHOW(v->name));
    TRY(fe_read_tensor_type(type.tensor, &m->arena, &tt, err));
    fmt_dtype dt = fmt_dtype_of_onnx(tt.elem);
    t->dtype = dt;
    if (fmt_dtype_class(dt) == 'N')
        return FAIL(err, UNSUPPORTED, "'%.*s' has element type %s (ONNX code %lld)",
                    FE_SHOW(v->name), fmt_onnx_type_name(tt.elem), (long long)tt.elem);
    *out_shaped = tt.has_shape;
    return tt.has_shape ? value_dims(m, v, &tt, t, err) : RTX_OK;
}

/* ---- what is declared and what is there ---- */

static rtx_status check_dims(fe_imp *m, const char *what, const fe_pb_value *pv, fe_span message,
                             const ir_type *have, rtx_err *err)
{
    fe_pb_shape shape;
    TRY(fe_read_shape(message, &m->arena, &shape, err));
    if (shape.dims.n != have->rank)
        return FAIL(err, INVALID, "%s '%.*s' is declared with %zu axes but has %d" FE_ADVICE, what,
                    FE_SHOW(pv->name), shape.dims.n, have->rank);
    for (uint32_t i = 0; i < have->rank; i++) {
        fe_pb_dim dim;
        int64_t h;
        TRY(fe_read_dim(shape.dims.at[i], &m->arena, &dim, err));
        if (has_size(&dim) && fmt_dim_is_const(m->d, have->dim[i], &h) && dim.value != h)
            return FAIL(err, INVALID,
                        "%s '%.*s': axis %u is declared as %lld but is %lld" FE_ADVICE, what,
                        FE_SHOW(pv->name), i, (long long)dim.value, (long long)h);
    }
    return RTX_OK;
}

/* Element type, number of axes, and sizes that are numbers on both sides. Names of sizes are labels here, not symbols of
 * the graph; a type that is left out, or undefined, fits all. */
static rtx_status check_declared(fe_imp *m, const char *what, const fe_pb_value *pv,
                                 const ir_type *have, rtx_err *err)
{
    fe_pb_type type;
    fe_pb_tensor_type tt;
    if (pv->type.len == 0)
        return RTX_OK;
    TRY(fe_read_type(pv->type, &m->arena, &type, err));
    if (!type.has_tensor)
        return FAIL(err, INVALID, "%s '%.*s' is not declared as a tensor but is one" FE_ADVICE,
                    what, FE_SHOW(pv->name));
    TRY(fe_read_tensor_type(type.tensor, &m->arena, &tt, err));
    if (tt.elem && tt.elem != fmt_dtype_to_onnx((fmt_dtype)have->dtype))
        return FAIL(err, INVALID, "%s '%.*s' is declared %s but is %s" FE_ADVICE, what,
                    FE_SHOW(pv->name), fmt_onnx_type_name(tt.elem),
                    fmt_dtype_name((fmt_dtype)have->dtype));
    return tt.has_shape ? check_dims(m, what, pv, tt.shape, have, err) : RTX_OK;
}

/* What is said of values between nodes; names that nothing has are of functions, or left over. */
static rtx_status check_infos(fe_imp *m, const fe_scope *s, const fe_list *infos, rtx_err *err)
{
    for (size_t i = 0; i < infos->n; i++) {
        fe_pb_value pv;
        TRY(fe_read_value(infos->at[i], &m->arena, &pv, err));
        fe_val **slot = fe_name_find(&s->names, pv.name);
        const fe_val *v = slot ? *slot : NULL;
        if (v && !v->lost && v->type.dtype != FMT_NONE)
            TRY(check_declared(m, "value", &pv, &v->type, err));
    }
    return RTX_OK;
}

static rtx_status bind_input(fe_imp *m, const fe_bind *b, const ir_type *declared, fe_val *v,
                             rtx_err *err)
{
    ir_type t = {.dtype = b->dtype, .rank = (uint8_t)b->rank};
    size_t elems = 1;
    if (b->dtype != declared->dtype || b->rank != declared->rank)
        return FAIL(err, INVALID, "bound input '%s' is %s with %d axes; the model wants %s with %d",
                    b->name, fmt_dtype_name(b->dtype), b->rank,
                    fmt_dtype_name((fmt_dtype)declared->dtype), declared->rank);
    for (int i = 0; i < b->rank; i++) {
        t.dim[i] = fmt_dim_const(m->d, b->dim[i]);
        elems *= (size_t)b->dim[i];
        if (!fmt_dim_unify(m->d, declared->dim[i], t.dim[i]))
            return FAIL(err, INVALID,
                        "bound input '%s': axis %d has size %lld, which contradicts the model",
                        b->name, i, (long long)b->dim[i]);
    }
    return fe_value_of_data(m, &t, b->data, elems * fmt_dtype_bytes(b->dtype), false, v, err);
}

static const fe_bind *find_bind(const fe_options *opt, fe_span name)
{
    for (size_t i = 0; opt && i < opt->n_binds; i++)
        if (fe_span_is(name, opt->binds[i].name))
            return &opt->binds[i];
    return NULL;
}

/* A bind that nothing takes is a slip of the pen. Names hold inputs and initializers so far. */
static rtx_status check_binds(const fe_options *opt, const fe_scope *s, rtx_err *err)
{
    for (size_t i = 0; opt && i < opt->n_binds; i++) {
        const char *name = opt->binds[i].name;
        fe_val **v = fe_name_find(&s->names, (fe_span){(const uint8_t *)name, strlen(name)});
        if (v == NULL || (*v)->tensor.at)
            return FAIL(err, INVALID, "binds names '%s', which is %s", name,
                        v ? "an initializer: the model holds its value" : "no input of the model");
    }
    return RTX_OK;
}

static rtx_status import_input(fe_imp *m, fe_scope *s, fe_span message, rtx_err *err)
{
    fe_pb_value pv;
    ir_type t;
    bool found, shaped;
    fe_val **slot, *v;
    TRY(fe_read_value(message, &m->arena, &pv, err));
    TRY_ALLOC(slot = fe_name_put(&m->arena, &s->names, pv.name, &found), err);
    if (found && (*slot)->tensor.at) /* an initializer gives its content */
        return (*slot)->type.dtype == FMT_NONE
                   ? RTX_OK
                   : check_declared(m, "initializer", &pv, &(*slot)->type, err);
    if (found)
        return FAIL(err, INVALID, "two inputs are named '%.*s'" FE_ADVICE, FE_SHOW(pv.name));
    TRY_ALLOC(*slot = v = base_arena_alloc(&m->arena, sizeof *v), err);
    rtx_err why = {0};
    rtx_status st = value_type(m, &pv, &t, &shaped, &why);
    if (st == RTX_OK && !shaped)
        st = FAIL(&why, UNSUPPORTED, "'%.*s' has no declared shape, not even its number of axes",
                  FE_SHOW(pv.name));
    if (st == RTX_UNSUPPORTED) {
        fe_report(m, "input, opset %lld, %s", (long long)s->opset, why.text);
        v->lost = true;
        return RTX_OK;
    }
    if (st != RTX_OK)
        return FAIL_AS(err, st, "%s", why.text);
    const fe_bind *b = find_bind(m->opt, pv.name);
    if (b)
        return bind_input(m, b, &t, v, err);
    char *name;
    TRY_ALLOC(name = base_arena_strn(&m->model->arena, (const char *)pv.name.at, pv.name.len), err);
    if (strlen(name) != pv.name.len || !*name)
        return FAIL(err, INVALID, "an input has an unusable name '%.*s'" FE_ADVICE,
                    FE_SHOW(pv.name));
    v->type = t;
    v->id = ir_input(m->g, name, &t);
    return ir_ok(m->g, err);
}

static rtx_status import_initializers(fe_imp *m, fe_scope *s, const fe_list *list, rtx_err *err)
{
    for (size_t i = 0; i < list->n; i++) {
        fe_pb_tensor t;
        bool found;
        fe_val **slot, *v;
        TRY(fe_read_tensor(list->at[i], &m->arena, &t, err));
        TRY_ALLOC(slot = fe_name_put(&m->arena, &s->names, t.name, &found), err);
        if (found)
            return FAIL(err, INVALID, "two initializers are named '%.*s'" FE_ADVICE,
                        FE_SHOW(t.name));
        TRY_ALLOC(*slot = v = base_arena_alloc(&m->arena, sizeof *v), err);
        TRY(fe_tensor_check(m, list->at[i], &v->type, err)); /* also of one that nothing reads */
        v->tensor = list->at[i];
    }
    return RTX_OK;
}

/* ---- outputs ---- */

static rtx_status import_outputs(fe_imp *m, fe_scope *s, const fe_list *list, rtx_err *err)
{
    if (list->n == 0)
        return FAIL(err, INVALID, "the model has no outputs" FE_ADVICE);
    for (size_t i = 0; i < list->n; i++) {
        fe_pb_value pv;
        TRY(fe_read_value(list->at[i], &m->arena, &pv, err));
        fe_val **slot = fe_name_find(&s->names, pv.name), *v = slot ? *slot : NULL;
        if (!v)
            return FAIL(err, INVALID, "output '%.*s' is made by no node" FE_ADVICE,
                        FE_SHOW(pv.name));
        if (v->lost)
            continue;
        if (v->tensor.at) {
            TRY(fe_tensor_value(m, v->tensor, "tensor", v, err));
            v->tensor = (fe_span){0};
        }
        char *name;
        TRY_ALLOC(name = base_arena_strn(&m->model->arena, (const char *)pv.name.at, pv.name.len),
                  err);
        ir_id id = fe_id(m, v);
        TRY(ir_ok(m->g, err));
        TRY(check_declared(m, "output", &pv, ir_type_of(m->g, id), err));
        for (uint32_t k = 0; k < m->g->n_outputs; k++)
            if (strcmp(m->g->outputs[k].name, name) == 0)
                return FAIL(err, INVALID, "two outputs are named '%s'" FE_ADVICE, name);
        ir_output(m->g, name, id);
    }
    return ir_ok(m->g, err);
}

/* ---- passes ---- */

static rtx_status refuse_all(fe_imp *m, rtx_err *err)
{
    TRY(base_buf_ok(&m->report, err));
    base_free(last_report);
    last_report = base_strdup(BASE_TAG_FRONTEND, m->report.data);
    if (m->report.len < sizeof err->text - 1)
        return FAIL(err, UNSUPPORTED, "%s", m->report.data);
    return FAIL(err, UNSUPPORTED, "%.380s… (%u in all)", m->report.data, m->n_refused);
}

static rtx_status read_functions(fe_imp *m, rtx_err *err)
{
    size_t n = m->pb.functions.n;
    TRY_ALLOC(m->functions = base_arena_array(&m->arena, n + 1, sizeof *m->functions), err);
    TRY_ALLOC(m->older = base_arena_array(&m->arena, n + 1, sizeof *m->older), err);
    for (size_t i = 0; i < n; i++) {
        fe_val **slot;
        bool found;
        TRY(fe_read_function(m->pb.functions.at[i], &m->arena, &m->functions[i], err));
        TRY_ALLOC(slot = fe_name_put(&m->arena, &m->function_names, m->functions[i].name, &found),
                  err);
        if (!found)
            TRY_ALLOC(*slot = base_arena_alloc(&m->arena, sizeof **slot), err);
        m->older[i] = (*slot)->maker;
        (*slot)->maker = (uint32_t)i + 1;
    }
    return RTX_OK;
}

static rtx_status import_graph(fe_imp *m, fe_span file, rtx_err *err)
{
    fe_scope s = {0};
    fe_pb_graph graph;
    TRY(fe_read_model(file, &m->arena, &m->pb, err));
    if (!m->pb.has_graph)
        return FAIL(err, CORRUPT, "no graph in %zu bytes; is this an ONNX model?", file.len);
    TRY(read_functions(m, err));
    TRY(fe_opset_of(m, &m->pb.opsets, "model", &s.opset, err));
    if (m->pb.opsets.n == 0)
        return FAIL(err, INVALID, "the model names no ONNX opset" FE_ADVICE);
    TRY(fe_read_graph(m->pb.graph, &m->arena, &graph, err));
    if (graph.inputs.n > FE_PORTS_MAX + graph.initializers.n || graph.outputs.n > FE_PORTS_MAX)
        return FAIL(err, LIMIT, "%zu inputs and %zu outputs; the limit is %d", graph.inputs.n,
                    graph.outputs.n, FE_PORTS_MAX);
    if (graph.sparse.n)
        fe_report(m, "sparse initializer, opset %lld, sparse tensors are not supported",
                  (long long)s.opset);
    TRY(import_initializers(m, &s, &graph.initializers, err));
    TRY(name_sizes(m, &s, &graph.inputs, err));
    for (size_t i = 0; i < graph.inputs.n; i++)
        TRY(import_input(m, &s, graph.inputs.at[i], err));
    TRY(check_binds(m->opt, &s, err));
    TRY(fe_import_nodes(m, &s, &graph.nodes, err));
    if (m->n_refused)
        return refuse_all(m, err);
    TRY(check_infos(m, &s, &graph.infos, err));
    TRY(import_outputs(m, &s, &graph.outputs, err));
    if (m->n_refused)
        return refuse_all(m, err);
    return fmt_dims_ok(m->d, err);
}

static rtx_status one_pass(fe_model *model, fe_span file, const fe_options *opt,
                           uint64_t *inout_nodes, bool *out_learned, rtx_err *err)
{
    fe_imp m = {.model = model, .opt = opt, .d = model->dims};
    uint32_t bound = fmt_dims_bound(model->dims);
    ir_graph_free(model->graph);
    TRY_ALLOC(model->graph = m.g = ir_graph_new(model->dims), err);
    base_arena_init(&m.arena, BASE_TAG_FRONTEND, ARENA_MAX);
    base_buf_init(&m.report, BASE_TAG_FRONTEND, (FE_REPORT_MAX + 1) * 600);
    rtx_status st = import_graph(&m, file, err);
    if (st == RTX_NOMEM && m.arena.used_bytes > ARENA_MAX / 2)
        st = FAIL(err, LIMIT, "reading the model takes more than %zu MiB beside its tensors",
                  ARENA_MAX >> 20);
    base_buf_done(&m.report);
    base_arena_done(&m.arena);
    *inout_nodes += m.n_nodes;
    *out_learned = m.learned || fmt_dims_bound(model->dims) != bound;
    return st;
}

static rtx_status import_all(fe_model *model, fe_span file, const fe_options *opt, rtx_err *err)
{
    uint64_t n_nodes = 0;
    for (int i = 0; i < PASSES_MAX && n_nodes <= 8 * FE_NODES_MAX; i++) {
        bool learned = false;
        rtx_status st = one_pass(model, file, opt, &n_nodes, &learned, err);
        if (!learned || st == RTX_NOMEM || st == RTX_LIMIT)
            return st;
    }
    return FAIL(err, LIMIT,
                "sizes are still being narrowed down after reading the model many times");
}

/* ---- models ---- */

static rtx_status model_new(fe_model **out, rtx_err *err)
{
    fe_model *m;
    base_free(TAKE(last_report));
    TRY_ALLOC(m = base_zalloc(BASE_TAG_FRONTEND, sizeof *m), err);
    base_arena_init(&m->arena, BASE_TAG_FRONTEND, 0);
    m->folder_fd = -1;
    m->dims = fmt_dims_new();
    *out = m;
    return m->dims ? RTX_OK : FAIL(err, NOMEM, "out of memory");
}

void fe_close(fe_model *m)
{
    if (!m)
        return;
    ir_graph_free(m->graph);
    fmt_dims_free(m->dims);
    fe_external_close(m);
    base_map_close(&m->map);
    base_arena_done(&m->arena);
    base_free(m);
}

const ir_graph *fe_graph(const fe_model *m) { return m->graph; }
fmt_dims *fe_dims(const fe_model *m) { return m->dims; }
static void open_folder(fe_model *m, const char *path)
{
    const char *slash = strrchr(path, '/');
    char *folder = slash ? base_arena_strn(&m->arena, path, (size_t)(slash - path) + 1)
                         : base_arena_strn(&m->arena, ".", 1);
    if (folder)
        m->folder_fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

static bool is_text(const char *path)
{
    size_t n = strlen(path);
    return n > 4 && strcmp(path + n - 4, ".rtx") == 0;
}

static rtx_status open_into(fe_model *m, const char *path, const fe_options *opt, rtx_err *err)
{
    bool zoo = strncmp(path, "zoo:", 4) == 0;
    if (opt && opt->n_binds > 0 && (zoo || is_text(path)))
        return FAIL(err, UNSUPPORTED,
                    "UNSUPPORTED: binds of %s; they are for inputs of ONNX models%s", path,
                    zoo ? "" : ": write a const instead");
    if (zoo)
        return fe_zoo_build(path + 4, m->dims, &m->graph, err);
    TRY(base_map_open(path, &m->map, err));
    if (is_text(path))
        return fe_text_read(m, err);
    open_folder(m, path);
    return import_all(m, (fe_span){m->map.data, m->map.bytes}, opt, err);
}

rtx_status fe_open(const char *path, const fe_options *opt, fe_model **out, rtx_err *err)
{
    fe_model *m = NULL;
    rtx_status st = model_new(&m, err);
    if (st == RTX_OK)
        st = open_into(m, path, opt, err);
    if (st != RTX_OK) {
        fe_close(m);
        return st;
    }
    *out = m;
    return RTX_OK;
}

rtx_status fe_open_bytes(const void *data, size_t bytes, const char *folder, const fe_options *opt,
                         fe_model **out, rtx_err *err)
{
    fe_model *m = NULL;
    rtx_status st = model_new(&m, err);
    if (st == RTX_OK) {
        if (folder)
            m->folder_fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        st = import_all(m, (fe_span){data ? data : (const uint8_t *)"", bytes}, opt, err);
    }
    if (st != RTX_OK) {
        fe_close(m);
        return st;
    }
    *out = m;
    return RTX_OK;
}
