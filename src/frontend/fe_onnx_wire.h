/* ONNX files read in place: protobuf wire format to views of spans, nothing copied.
 *   layer      L2 frontend, private to it; may include base
 *   owner      spans point into the file; arrays live in the arena given
 *   threads    plain data
 *   trust      every length is checked by subtraction; arrays are counted before they are allocated and hold 16 bytes for at
 *              least 2 of the file; messages are opened one level at a time, so nesting in the file costs no stack */
#ifndef FE_ONNX_WIRE_H
#define FE_ONNX_WIRE_H

#include "base_core.h"

typedef struct fe_span {
    const uint8_t *at;
    size_t len;
} fe_span;
typedef struct fe_list {
    fe_span *at;
    size_t n;
} fe_list; /* repeated strings or messages */
/* Repeated numbers stay where they are, packed or not: `in` is the whole message, read again by fe_nums_next. */
typedef struct fe_nums {
    fe_span in;
    uint32_t field, elem_bytes;
    size_t n;
} fe_nums; /* elem_bytes 0 = varints */

typedef struct fe_pb_opset {
    fe_span domain;
    int64_t version;
} fe_pb_opset;
typedef struct fe_pb_model {
    int64_t ir_version;
    fe_span graph;
    fe_list opsets, functions;
    bool has_graph;
} fe_pb_model;
typedef struct fe_pb_graph {
    fe_span name;
    fe_list nodes, initializers, sparse, inputs, outputs, infos;
} fe_pb_graph;
typedef struct fe_pb_node {
    fe_span name, op, domain, overload;
    fe_list inputs, outputs, attrs;
} fe_pb_node;
typedef struct fe_pb_attr {
    fe_span name, s, t, g, ref, sparse;
    float f;
    int64_t i, type;
    fe_nums ints, floats;
    fe_list strings, tensors, graphs;
    bool has_t;
} fe_pb_attr;
enum {
    FE_ATTR_FLOAT = 1,
    FE_ATTR_INT,
    FE_ATTR_STRING,
    FE_ATTR_TENSOR,
    FE_ATTR_GRAPH,
    FE_ATTR_FLOATS,
    FE_ATTR_INTS,
    FE_ATTR_STRINGS,
    FE_ATTR_TENSORS,
    FE_ATTR_GRAPHS,
    FE_ATTR_SPARSE
};
typedef struct fe_pb_tensor {
    fe_span name, raw, segment;
    int64_t dtype, location;
    fe_nums dims, f32s, i32s, i64s, f64s, u64s;
    fe_list strings, external;
    bool has_raw, has_segment;
} fe_pb_tensor;
typedef struct fe_pb_pair {
    fe_span key, value;
} fe_pb_pair;
typedef struct fe_pb_value {
    fe_span name, type;
    bool has_type;
} fe_pb_value;
typedef struct fe_pb_type {
    fe_span tensor, sequence, map, optional, sparse;
    bool has_tensor;
} fe_pb_type;
typedef struct fe_pb_tensor_type {
    int64_t elem;
    fe_span shape;
    bool has_shape;
} fe_pb_tensor_type;
typedef struct fe_pb_shape {
    fe_list dims;
} fe_pb_shape;
typedef struct fe_pb_dim {
    int64_t value;
    fe_span param;
    bool has_value, has_param;
} fe_pb_dim;
typedef struct fe_pb_function {
    fe_span name, domain, overload;
    fe_list inputs, outputs, attrs, attr_defaults, nodes, opsets;
} fe_pb_function;

/* One reader a message: CORRUPT names the message, NOMEM and LIMIT come from the arena. *out is cleared first. */
#define FE_PB_MESSAGES(X)                                                                          \
    X(opset)                                                                                       \
    X(model)                                                                                       \
    X(graph)                                                                                       \
    X(node) X(attr) X(tensor) X(pair) X(value) X(type) X(tensor_type) X(shape) X(dim) X(function)
#define FE_PB_DECLARE(m)                                                                           \
    RTX_MUST_CHECK rtx_status fe_read_##m(fe_span s, base_arena *a, fe_pb_##m *out, rtx_err *err);
FE_PB_MESSAGES(FE_PB_DECLARE)
#undef FE_PB_DECLARE

/* Walk repeated numbers: bits of each as u64 (varints, or the 4 or 8 bytes of fixed ones). False at the end. */
typedef struct fe_nums_at {
    base_reader msg, pack;
    uint32_t field, elem_bytes;
} fe_nums_at;
fe_nums_at fe_nums_begin(const fe_nums *n);
bool fe_nums_next(fe_nums_at *it, uint64_t *out_bits);
/* The bytes of fixed-size numbers when they lie in one packed run, else NULL. */
const uint8_t *fe_nums_run(const fe_nums *n);

static inline bool fe_span_is(fe_span s, const char *text)
{
    size_t n = strlen(text);
    return s.len == n && (n == 0 || memcmp(s.at, text, n) == 0);
}
static inline bool fe_span_eq(fe_span a, fe_span b)
{
    return a.len == b.len && (a.len == 0 || memcmp(a.at, b.at, a.len) == 0);
}
/* For messages: "%.*s", FE_SHOW(span); long names are cut. */
#define FE_SHOW(s) (int)MIN((s).len, 80), (s).len ? (const char *)(s).at : ""

#endif
