/* Dumps what our wire reader sees of ONNX files; see wire_dump.h. A damaged file prints "refused". */
#include "wire_dump.h"
#include "base_sys.h"
#include "fe_onnx_wire.h"

static base_arena arena;
static bool bad;

/* A message that is refused is shown as empty. */
#define READ(kind, span, out)                                                                      \
    do {                                                                                           \
        if (fe_read_##kind((span), &arena, (out), NULL) != RTX_OK) {                               \
            memset((out), 0, sizeof *(out));                                                       \
            bad = true;                                                                            \
        }                                                                                          \
    } while (0)
#define TEXT(label, s) dump_text((label), (s).at, (s).len)

static void texts(const char *label, const fe_list *l)
{
    for (size_t i = 0; i < l->n; i++)
        TEXT(label, l->at[i]);
}

static void nums(const char *label, const fe_nums *n, bool narrow)
{
    fe_nums_at it = fe_nums_begin(n);
    for (uint64_t v; fe_nums_next(&it, &v);)
        dump_int(label, narrow ? (int64_t)(int32_t)v : (int64_t)v);
}

static void tensor(fe_span s)
{
    fe_pb_tensor t;
    READ(tensor, s, &t);
    TEXT("tensor", t.name);
    dump_int("type", (int32_t)t.dtype);
    dump_int("location", (int32_t)t.location);
    nums("dim", &t.dims, false);
    dump_bytes("raw", t.raw.at, t.raw.len);
    nums("f32", &t.f32s, false);
    nums("i32", &t.i32s, true);
    nums("i64", &t.i64s, false);
    nums("f64", &t.f64s, false);
    nums("u64", &t.u64s, false);
    for (size_t i = 0; i < t.external.n; i++) {
        fe_pb_pair kv;
        READ(pair, t.external.at[i], &kv);
        TEXT("key", kv.key);
        TEXT("value", kv.value);
    }
}

static void attr(fe_span s)
{
    fe_pb_attr a;
    READ(attr, s, &a);
    TEXT("attr", a.name);
    TEXT("ref", a.ref);
    dump_int("f", (int64_t)dump_bits(a.f));
    dump_int("i", a.i);
    dump_bytes("s", a.s.at, a.s.len);
    nums("ints", &a.ints, false);
    nums("floats", &a.floats, false);
    dump_int("strings", (int64_t)a.strings.n);
    dump_int("graphs", (int64_t)a.graphs.n);
    if (a.has_t)
        tensor(a.t);
}

static void nodes(const fe_list *l)
{
    for (size_t i = 0; i < l->n; i++) {
        fe_pb_node n;
        READ(node, l->at[i], &n);
        TEXT("\nnode", n.op);
        TEXT("name", n.name);
        TEXT("domain", n.domain);
        texts("in", &n.inputs);
        texts("out", &n.outputs);
        for (size_t k = 0; k < n.attrs.n; k++)
            attr(n.attrs.at[k]);
    }
}

static void values(const fe_list *l)
{
    for (size_t i = 0; i < l->n; i++) {
        fe_pb_value v;
        fe_pb_type t;
        fe_pb_tensor_type tt;
        fe_pb_shape shape;
        READ(value, l->at[i], &v);
        READ(type, v.type, &t);
        READ(tensor_type, t.tensor, &tt);
        READ(shape, tt.shape, &shape);
        TEXT("\nvalue", v.name);
        dump_int("elem", (int32_t)tt.elem);
        for (size_t k = 0; k < shape.dims.n; k++) {
            fe_pb_dim d;
            READ(dim, shape.dims.at[k], &d);
            dump_int("dim", d.value);
            TEXT("param", d.param);
        }
    }
}

static void model(fe_span file)
{
    fe_pb_model m;
    fe_pb_graph g;
    READ(model, file, &m);
    dump_int("ir", m.ir_version);
    for (size_t i = 0; i < m.opsets.n; i++) {
        fe_pb_opset o;
        READ(opset, m.opsets.at[i], &o);
        TEXT("domain", o.domain);
        dump_int("opset", o.version);
    }
    for (size_t i = 0; i < m.functions.n; i++) {
        fe_pb_function f;
        READ(function, m.functions.at[i], &f);
        TEXT("\nfunction", f.name);
        TEXT("domain", f.domain);
        texts("in", &f.inputs);
        texts("out", &f.outputs);
        texts("attr", &f.attrs);
        nodes(&f.nodes);
    }
    READ(graph, m.graph, &g);
    TEXT("\ngraph", g.name);
    values(&g.inputs);
    values(&g.outputs);
    nodes(&g.nodes);
    for (size_t i = 0; i < g.initializers.n; i++) {
        printf("\n");
        tensor(g.initializers.at[i]);
    }
}

int main(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        char *data = NULL;
        size_t bytes = 0;
        if (base_read_file(argv[i], SIZE_MAX, &data, &bytes, NULL) != RTX_OK)
            return 1;
        base_arena_init(&arena, BASE_TAG_CLI, 0);
        bad = false;
        printf("== %s\n", argv[i]);
        model((fe_span){(const uint8_t *)data, bytes});
        printf("\n%s\n", bad ? "refused" : "accepted");
        base_arena_done(&arena);
        base_free(data);
    }
    return 0;
}
