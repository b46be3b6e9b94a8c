/* Parts of an ONNX file being written: protobuf fields, nodes, constants, and sizes as Shape arithmetic.
 *   layer      L2 frontend, private to it; may include base, format, ir
 *   owner      the writer owns its buffers; a fe_name is a value
 *   threads    one thread a writer
 *   sticky     the first failure stays in err or in a buffer; the file is checked once at the end */
#ifndef FE_ONNX_EMIT_H
#define FE_ONNX_EMIT_H

#include "fe.h"

enum { FE_WRITE_OPSET = 17 };

typedef struct fe_name {
    char s[128];
} fe_name;

typedef struct fe_writer {
    const ir_graph *g;
    base_buf nodes, inits; /* fields of GraphProto */
    char prefix[64];       /* of names we make; no input or output begins with it */
    bool *needed;
    const char **out_name; /* by node: the graph output that it is, or NULL */
    fmt_dim *sizes;        /* expressions that have a value already; their names are numbered */
    uint32_t n_sizes, cap_sizes, n_made;
    rtx_err err;
} fe_writer;

/* ---- protobuf ---- */
base_buf fe_message(void);
void fe_put_varint(base_buf *b, uint64_t v);
void fe_put_int(base_buf *b, uint32_t field, int64_t v);
void fe_put_bytes(base_buf *b, uint32_t field, const void *p, size_t n);
void fe_put_text(base_buf *b, uint32_t field, const char *s);
/* Take the finished message `from` as a field of `to`. */
void fe_put_message(base_buf *to, uint32_t field, base_buf *from);

/* ---- nodes and constants ---- */
void fe_emit_refuse(fe_writer *w, const char *what); /* UNSUPPORTED: it cannot be written */
fe_name fe_emit_name(const fe_writer *w, ir_id id);
fe_name fe_emit_fresh(fe_writer *w);
/* Open node message with its operands; attributes may follow, then fe_emit_end. */
base_buf fe_emit_begin(const char *op, const fe_name *in, uint32_t n_in, const fe_name *out,
                       uint32_t n_out);
void fe_put_attr_i(base_buf *node, const char *key, int64_t v);
void fe_put_attr_ints(base_buf *node, const char *key, const int64_t *v, uint32_t n);
void fe_put_attr_f(base_buf *node, const char *key, double v);
void fe_emit_end(fe_writer *w, base_buf *node);
/* Whole nodes without attributes; 1 and 2 make a fresh value. */
void fe_emit(fe_writer *w, const char *op, const fe_name *in, uint32_t n_in, fe_name out);
fe_name fe_emit1(fe_writer *w, const char *op, fe_name a);
fe_name fe_emit2(fe_writer *w, const char *op, fe_name a, fe_name b);
void fe_emit_tensor(fe_writer *w, const char *key, fmt_dtype t, const int64_t *dims, uint32_t rank,
                    const void *data, size_t bytes);
fe_name fe_emit_ints(fe_writer *w, const int64_t *v, uint32_t n);
fe_name fe_emit_float(fe_writer *w, double v);

/* ---- sizes ---- */
fe_name fe_emit_size(fe_writer *w,
                     fmt_dim d); /* i64[1] with the value of d; each expression is computed once */
fe_name fe_emit_sizes(fe_writer *w, const fmt_dim *dims, uint32_t n);

#endif
