/* Dumps what protobuf-c sees of ONNX files, with ONNX's own schema; see wire_dump.h. Built by test_onnx_wire.py. */
#include "wire_dump.h"
#include "onnx.pb-c.h"
#include <stdbool.h>
#include <stdlib.h>

static void text(const char *label, const char *s)
{
    dump_text(label, s ? s : "", s ? strlen(s) : 0);
}

static void texts(const char *label, size_t n, char **s)
{
    for (size_t i = 0; i < n; i++)
        text(label, s[i]);
}

static void bytes(const char *label, ProtobufCBinaryData b) { dump_bytes(label, b.data, b.len); }

static void floats(const char *label, size_t n, const float *v)
{
    for (size_t i = 0; i < n; i++)
        dump_int(label, (int64_t)dump_bits(v[i]));
}

static void ints(const char *label, size_t n, const int64_t *v)
{
    for (size_t i = 0; i < n; i++)
        dump_int(label, v[i]);
}

static void tensor(const Onnx__TensorProto *t)
{
    text("tensor", t->name);
    dump_int("type", t->has_data_type ? t->data_type : 0);
    dump_int("location", t->has_data_location ? (int32_t)t->data_location : 0);
    ints("dim", t->n_dims, t->dims);
    bytes("raw", t->raw_data);
    floats("f32", t->n_float_data, t->float_data);
    for (size_t i = 0; i < t->n_int32_data; i++)
        dump_int("i32", t->int32_data[i]);
    ints("i64", t->n_int64_data, t->int64_data);
    ints("f64", t->n_double_data, (const int64_t *)t->double_data);
    ints("u64", t->n_uint64_data, (const int64_t *)t->uint64_data);
    for (size_t i = 0; i < t->n_external_data; i++) {
        text("key", t->external_data[i]->key);
        text("value", t->external_data[i]->value);
    }
}

static void attr(const Onnx__AttributeProto *a)
{
    text("attr", a->name);
    text("ref", a->ref_attr_name);
    dump_int("f", (int64_t)dump_bits(a->has_f ? a->f : 0));
    dump_int("i", a->has_i ? a->i : 0);
    bytes("s", a->s);
    ints("ints", a->n_ints, a->ints);
    floats("floats", a->n_floats, a->floats);
    dump_int("strings", (int64_t)a->n_strings);
    dump_int("graphs", (int64_t)a->n_graphs);
    if (a->t)
        tensor(a->t);
}

static void nodes(size_t count, Onnx__NodeProto **n)
{
    for (size_t i = 0; i < count; i++) {
        text("\nnode", n[i]->op_type);
        text("name", n[i]->name);
        text("domain", n[i]->domain);
        texts("in", n[i]->n_input, n[i]->input);
        texts("out", n[i]->n_output, n[i]->output);
        for (size_t k = 0; k < n[i]->n_attribute; k++)
            attr(n[i]->attribute[k]);
    }
}

static void values(size_t count, Onnx__ValueInfoProto **v)
{
    for (size_t i = 0; i < count; i++) {
        const Onnx__TypeProto *t = v[i]->type;
        bool is_tensor = t && t->value_case == ONNX__TYPE_PROTO__VALUE_TENSOR_TYPE;
        const Onnx__TypeProto__Tensor *tt = is_tensor ? t->tensor_type : NULL;
        text("\nvalue", v[i]->name);
        dump_int("elem", tt && tt->has_elem_type ? tt->elem_type : 0);
        for (size_t k = 0; tt && tt->shape && k < tt->shape->n_dim; k++) {
            const Onnx__TensorShapeProto__Dimension *d = tt->shape->dim[k];
            bool is_value = d->value_case == ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_VALUE;
            bool is_param = d->value_case == ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_PARAM;
            dump_int("dim", is_value ? d->dim_value : 0);
            text("param", is_param ? d->dim_param : NULL);
        }
    }
}

static void model(const Onnx__ModelProto *m)
{
    static const Onnx__GraphProto none = ONNX__GRAPH_PROTO__INIT;
    const Onnx__GraphProto *g = m->graph ? m->graph : &none;
    dump_int("ir", m->has_ir_version ? m->ir_version : 0);
    for (size_t i = 0; i < m->n_opset_import; i++) {
        text("domain", m->opset_import[i]->domain);
        dump_int("opset", m->opset_import[i]->has_version ? m->opset_import[i]->version : 0);
    }
    for (size_t i = 0; i < m->n_functions; i++) {
        const Onnx__FunctionProto *f = m->functions[i];
        text("\nfunction", f->name);
        text("domain", f->domain);
        texts("in", f->n_input, f->input);
        texts("out", f->n_output, f->output);
        texts("attr", f->n_attribute, f->attribute);
        nodes(f->n_node, f->node);
    }
    text("\ngraph", g->name);
    values(g->n_input, g->input);
    values(g->n_output, g->output);
    nodes(g->n_node, g->node);
    for (size_t i = 0; i < g->n_initializer; i++) {
        printf("\n");
        tensor(g->initializer[i]);
    }
}

int main(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        FILE *f = fopen(argv[i], "rb");
        if (!f || fseek(f, 0, SEEK_END) != 0)
            return 1;
        size_t n = (size_t)ftell(f);
        uint8_t *data = malloc(n + 1);
        rewind(f);
        if (!data || fread(data, 1, n, f) != n)
            return 1;
        fclose(f);
        printf("== %s\n", argv[i]);
        Onnx__ModelProto *m = onnx__model_proto__unpack(NULL, n, data);
        if (m)
            model(m);
        printf("\n%s\n", m ? "accepted" : "refused");
        if (m)
            onnx__model_proto__free_unpacked(m, NULL);
        free(data);
    }
    return 0;
}
