/* Readers and builders of graphs: ONNX files, safetensors, the model zoo; and the ONNX writer.
 *   layer      L2 frontend; may include base, format, ir
 *   owner      fe_model owns the file mapping, the pool and the graph; constants of the graph point into the mapping
 *   threads    one thread a model
 *   trust      files are hostile: bounds by subtraction, caps before allocation, external data stays in the model's folder */
#ifndef FE_H
#define FE_H

#include "ir.h"

typedef struct fe_model fe_model;

/* A graph input that must be known when compiling because a shape depends on its content ("bind"). */
typedef struct fe_bind {
    const char *name;
    const void *data;
    fmt_dtype dtype;
    int rank;
    int64_t dim[FMT_RANK_MAX];
} fe_bind;

typedef struct fe_options {
    const fe_bind *binds;
    size_t n_binds;
} fe_options;

/* Read an ONNX file. path_or_name may be "zoo:NAME[,key=value…]" or FILE.rtx, the text form of ir.h, symbols as
 * written. UNSUPPORTED lists every unsupported node at once: "UNSUPPORTED: op, opset, reason (node 'name')" lines. opt NULL = none.
 * An operand that a shape depends on is reported with " bind=NAME" for every graph input that must be bound for it: call
 * again with those in opt->binds. A bound input is a constant and no longer an input of the graph; a bind that names no input is
 * INVALID. Only ONNX models take binds. */
RTX_MUST_CHECK rtx_status fe_open(const char *path_or_name, const fe_options *opt, fe_model **out,
                                  rtx_err *err);
/* The same from memory (borrowed while the model lives); folder NULL = external data refused. */
RTX_MUST_CHECK rtx_status fe_open_bytes(const void *data, size_t bytes, const char *folder,
                                        const fe_options *opt, fe_model **out, rtx_err *err);
void fe_close(fe_model *m); /* NULL allowed */
const ir_graph *fe_graph(const fe_model *m);
fmt_dims *fe_dims(const fe_model *m);

/* Full text of the last UNSUPPORTED answer (rtx_err holds only its beginning); caller frees with base_free. */
char *fe_take_report(void);

/* ---- zoo (fe_zoo.c): models built with the C builder, seeded weights, every dimension an option ---- */
typedef struct fe_zoo_option {
    const char *name;
    int64_t value;
    const char *doc;
} fe_zoo_option;
typedef struct fe_zoo_entry {
    const char *name, *doc;
    const fe_zoo_option *options;
    size_t n_options;
} fe_zoo_entry;
const fe_zoo_entry *fe_zoo_table(size_t *out_count);

/* ---- ONNX writer (fe_onnx_write.c): a primitive-level graph as an ONNX file (opset 17) ---- */
RTX_MUST_CHECK rtx_status fe_onnx_write(const ir_graph *g, const char *graph_name, base_buf *out,
                                        rtx_err *err);

/* ---- safetensors (fe_safetensors.c): tensors point into the file, in file order, unaligned ---- */
typedef struct fe_st fe_st;
typedef struct fe_st_tensor {
    const char *name;
    fmt_dtype dtype;
    int rank;
    int64_t dim[FMT_RANK_MAX];
    const void *data;
    size_t bytes;
} fe_st_tensor;
RTX_MUST_CHECK rtx_status fe_st_open(const char *path, fe_st **out, rtx_err *err);
void fe_st_close(fe_st *s); /* NULL allowed */
const fe_st_tensor *fe_st_table(const fe_st *s, size_t *out_count);
const fe_st_tensor *fe_st_find(const fe_st *s, const char *name); /* NULL = not there */

#endif
