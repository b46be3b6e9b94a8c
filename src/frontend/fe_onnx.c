/* Opening a model: file or bytes to a graph. Imports in passes until no symbol learns anything new. */
#include "fe_onnx.h"
#include "fe_zoo.h"
#include <fcntl.h>
#include <unistd.h>

enum { PASSES_MAX = 64 };
#define ARENA_MAX ((size_t)512 << 20) /* views and values of one pass; tensors are not in it */

static _Thread_local char *last_report;

char *fe_take_report(void) { return TAKE(last_report); }

/* ---- inputs ---- */

/* A free symbol of this name. ONNX leaves the spelling of dim_param open: what is no name or expression of ours is
 * spelled with underscores. */
static fmt_dim named_dim(fe_imp *m, const char *text, size_t len)
{
    char name[64];
    size_t n = 0;
    bool plain = true;
    for (size_t i = 0; i < len && n < sizeof name - 1; i++) {
        char c = text[i];
        bool ok = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
                  (n > 0 && c >= '0' && c <= '9');
        plain &= ok;
        name[n++] = ok ? c : '_';
    }
    name[n] = 0;
    if (!plain) {
        fmt_dim d = fmt_dim_parse(m->d, text, MIN(len, 200));
        if (d != FMT_DIM_BAD)
            return d;
    }
    uint32_t sym = fmt_sym_find(m->d, name, n);
    if (sym == UINT32_MAX)
        sym = fmt_sym_new(m->d, name, 0, FMT_DIM_LIMIT);
    return sym == UINT32_MAX ? FMT_DIM_BAD : fmt_dim_sym(m->d, sym);
}

/* Sizes of an input; of an output only the constants are taken: names there are labels, not symbols of the graph. */
static rtx_status value_dims(fe_imp *m, const fe_pb_value *v, const fe_pb_tensor_type *tt,
                             bool is_input, ir_type *t, rtx_err *err)
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
        char fresh[64];
        int n = snprintf(fresh, sizeof fresh, "%.40s_%u", v->name.len ? "" : "dim", i);
        if (v->name.len)
            n = snprintf(fresh, sizeof fresh, "%.*s_%u", (int)MIN(v->name.len, 40),
                         (const char *)v->name.at, i);
        if (dim.has_value && dim.value >= 0)
            t->dim[i] = fmt_dim_const(m->d, dim.value);
        else if (!is_input)
            t->dim[i] = FMT_DIM_BAD;
        else if (dim.param.len && !fe_span_is(dim.param, "?"))
            t->dim[i] = named_dim(m, (const char *)dim.param.at, dim.param.len);
        else
            t->dim[i] = named_dim(m, fresh, (size_t)n);
        TRY(fmt_dims_ok(m->d, err));
    }
    return RTX_OK;
}

/* UNSUPPORTED texts say what of the input is not supported. */
static rtx_status value_type(fe_imp *m, const fe_pb_value *v, bool is_input, ir_type *t,
                             bool *out_shaped, rtx_err *err)
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
                    FE_SHOW(v->name), fmt_dtype_name(dt), (long long)tt.elem);
    *out_shaped = tt.has_shape;
    return tt.has_shape ? value_dims(m, v, &tt, is_input, t, err) : RTX_OK;
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

static rtx_status import_input(fe_imp *m, fe_scope *s, fe_span message, rtx_err *err)
{
    fe_pb_value pv;
    ir_type t;
    bool found, shaped;
    fe_val **slot, *v;
    TRY(fe_read_value(message, &m->arena, &pv, err));
    TRY_ALLOC(slot = fe_name_put(m, &s->names, pv.name, &found), err);
    if (found && (*slot)->tensor.at)
        return RTX_OK; /* an initializer gives its content */
    if (found)
        return FAIL(err, INVALID, "two inputs are named '%.*s'", FE_SHOW(pv.name));
    TRY_ALLOC(*slot = v = base_arena_alloc(&m->arena, sizeof *v), err);
    rtx_err why = {0};
    rtx_status st = value_type(m, &pv, true, &t, &shaped, &why);
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
        return FAIL(err, INVALID, "an input has an unusable name '%.*s'", FE_SHOW(pv.name));
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
        TRY_ALLOC(slot = fe_name_put(m, &s->names, t.name, &found), err);
        if (found)
            return FAIL(err, INVALID, "two initializers are named '%.*s'", FE_SHOW(t.name));
        TRY_ALLOC(*slot = v = base_arena_alloc(&m->arena, sizeof *v), err);
        v->tensor = list->at[i];
    }
    return RTX_OK;
}

/* ---- outputs ---- */

static rtx_status check_output(fe_imp *m, const fe_pb_value *pv, ir_id id, rtx_err *err)
{
    ir_type want;
    bool shaped;
    const ir_type *have = ir_type_of(m->g, id);
    if (!pv->has_type)
        return RTX_OK;
    TRY(value_type(m, pv, false, &want, &shaped, err));
    if (want.dtype != have->dtype)
        return FAIL(err, INVALID, "output '%.*s' is declared %s but computed as %s",
                    FE_SHOW(pv->name), fmt_dtype_name((fmt_dtype)want.dtype),
                    fmt_dtype_name((fmt_dtype)have->dtype));
    if (!shaped)
        return RTX_OK;
    if (want.rank != have->rank)
        return FAIL(err, INVALID, "output '%.*s' is declared with %d axes but computed with %d",
                    FE_SHOW(pv->name), want.rank, have->rank);
    for (uint32_t i = 0; i < want.rank; i++) {
        int64_t w, h;
        if (want.dim[i] != FMT_DIM_BAD && fmt_dim_is_const(m->d, want.dim[i], &w) &&
            fmt_dim_is_const(m->d, have->dim[i], &h) && w != h)
            return FAIL(err, INVALID,
                        "output '%.*s': axis %u is declared as %lld but computed as %lld",
                        FE_SHOW(pv->name), i, (long long)w, (long long)h);
    }
    return RTX_OK;
}

static rtx_status import_outputs(fe_imp *m, fe_scope *s, const fe_list *list, rtx_err *err)
{
    if (list->n == 0)
        return FAIL(err, INVALID, "the model has no outputs");
    for (size_t i = 0; i < list->n; i++) {
        fe_pb_value pv;
        TRY(fe_read_value(list->at[i], &m->arena, &pv, err));
        fe_val **slot = fe_name_find(&s->names, pv.name), *v = slot ? *slot : NULL;
        if (!v)
            return FAIL(err, INVALID, "output '%.*s' is made by no node", FE_SHOW(pv.name));
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
        TRY(check_output(m, &pv, id, err));
        for (uint32_t k = 0; k < m->g->n_outputs; k++)
            if (strcmp(m->g->outputs[k].name, name) == 0)
                return FAIL(err, INVALID, "two outputs are named '%s'", name);
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
        TRY_ALLOC(slot = fe_name_put(m, &m->function_names, m->functions[i].name, &found), err);
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
        return FAIL(err, INVALID, "the model names no ONNX opset");
    TRY(fe_read_graph(m->pb.graph, &m->arena, &graph, err));
    if (graph.inputs.n > FE_PORTS_MAX + graph.initializers.n || graph.outputs.n > FE_PORTS_MAX)
        return FAIL(err, LIMIT, "%zu inputs and %zu outputs; the limit is %d", graph.inputs.n,
                    graph.outputs.n, FE_PORTS_MAX);
    if (graph.sparse.n)
        fe_report(m, "sparse initializer, opset %lld, sparse tensors are not supported",
                  (long long)s.opset);
    TRY(import_initializers(m, &s, &graph.initializers, err));
    for (size_t i = 0; i < graph.inputs.n; i++)
        TRY(import_input(m, &s, graph.inputs.at[i], err));
    TRY(fe_import_nodes(m, &s, &graph.nodes, err));
    if (m->n_refused)
        return refuse_all(m, err);
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
    if (strncmp(path, "zoo:", 4) == 0)
        return fe_zoo_build(path + 4, m->dims, &m->graph, err);
    TRY(base_map_open(path, &m->map, err));
    if (is_text(path))
        return fe_text_read(m, opt, err);
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
