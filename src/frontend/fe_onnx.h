/* Inside the ONNX importer: values, the node being read, and what op handlers may call.
 *   layer      L2 frontend, private to it; may include base, format, ir
 *   owner      values, views and labels live in the arena of one import pass; the model owns what outlives it
 *   threads    one thread a model
 *   sticky     handlers return nothing: errors go to the graph (ir_bad), unsupported nodes to the report; a handler may go
 *              on with id 0 after a failure */
#ifndef FE_ONNX_H
#define FE_ONNX_H

#include "base_sys.h"
#include "fe.h"
#include "fe_onnx_wire.h"

enum {
    FE_CONTENT_MAX =
        64, /* elements of a value whose content is followed through shape arithmetic */
    FE_NODES_MAX = 1 << 18, /* nodes imported, those of inlined functions included */
    FE_REPORT_MAX = 1000,   /* lines of the report */
    FE_ATTRS_MAX = 256,     /* attributes of one node */
    FE_PORTS_MAX = 4096,    /* inputs or outputs of the model */
    FE_CALL_DEPTH_MAX = 32, /* functions calling functions */
    FE_IN_MAX = 4096,       /* inputs of one node */
    FE_OPSET_MIN = 7,
    FE_OPSET_MAX = 28
};

/* One tensor of the model. Integers and booleans may be known by content: expressions over symbols, from which the node
 * is made only when computing code asks for it (fe_id). ±FMT_DIM_LIMIT stands for INT64_MAX and INT64_MIN. */
typedef struct fe_val {
    ir_id id;  /* 0 = not made yet */
    bool lost; /* an unsupported node made it: its readers are skipped without a word */
    ir_type type;
    fmt_dim *content; /* NULL = unknown */
    uint32_t n;
    uint32_t maker; /* 1 + index of the node that makes it; 0 = none */
    fe_span tensor; /* initializer not yet read */
} fe_val;

typedef struct fe_names {
    fe_span *key;
    fe_val **val;
    uint32_t cap, n;
} fe_names;

typedef struct fe_scope {
    struct fe_scope *caller; /* NULL for the main graph */
    const fe_pb_function *func;
    const struct fe_node *call; /* the node that calls func */
    fe_names names;
    int64_t opset;
    uint32_t depth;
} fe_scope;

typedef struct fe_ext {
    struct fe_ext *next;
    char *location;
    const uint8_t *data;
    size_t bytes;
} fe_ext;

struct fe_model {
    base_map map;
    int folder_fd; /* -1: external data refused */
    fe_ext *external;
    base_arena arena; /* lives as long as the model: names and files */
    fmt_dims *dims;
    fe_names
        sizes; /* what sizes of inputs without a number stand for: type.dim[0]; made by the first pass */
    bool sizes_named;
    ir_graph *graph;
};

/* One pass over the file. Symbols learned in it (unified or bounded) call for another. */
typedef struct fe_imp {
    fe_model *model;
    const fe_options *opt;
    base_arena arena;
    ir_graph *g;
    fmt_dims *d;
    fe_pb_model pb;
    fe_pb_function *functions;
    fe_names function_names; /* the newest function of a name; maker = index + 1 */
    uint32_t *older;         /* by function: 1 + index of another of its name; 0 = none */
    base_buf report;         /* UNSUPPORTED lines */
    uint32_t n_refused, n_nodes;
    bool learned;    /* bounds, not counted by fmt_dims_bound */
    char wrong[128]; /* attribute of the node being read that is of another kind than asked for */
} fe_imp;

/* Ends messages about models that no reader could take. */
#define FE_ADVICE "; export the model again, onnx.checker names such faults"
/* FAIL with a status known only at run time. */
#define FAIL_AS(err, status, ...) base_fail((err), (status), __FILE__, __LINE__, __VA_ARGS__)

struct fe_op;
typedef struct fe_node {
    fe_imp *m;
    ir_graph *g;
    fmt_dims *d;
    fe_scope *scope;
    const struct fe_op *op;
    fe_span name, op_name;
    int64_t opset;
    fe_pb_attr *attrs;
    uint32_t n_attrs, n_in, n_out;
    fe_val **in, **out; /* NULL = omitted, or nobody wants it */
    bool refused;
} fe_node;

typedef void (*fe_handler)(fe_node *n);
typedef struct fe_op {
    const char *name;
    uint8_t since; /* first opset that has it */
    uint8_t min_in, max_in;
    fe_handler run;
    int arg; /* ir_op, or what the handler makes of it */
} fe_op;
extern const fe_op fe_ops_math[], fe_ops_shape[], fe_ops_slice[],
    fe_ops_reduce[]; /* each ends with a NULL name */

/* ---- inputs and outputs of a node ---- */
bool fe_has(const fe_node *n, uint32_t k);
const ir_type *fe_type(const fe_node *n, uint32_t k); /* of a present input */
ir_id fe_in(fe_node *n, uint32_t k);                  /* made if need be; 0 if absent */
ir_id fe_id(fe_imp *m, fe_val *v);
const fmt_dim *fe_content(const fe_node *n, uint32_t k,
                          uint32_t *out_n); /* NULL = unknown or absent */
/* The same for an operand that must be known: refuses with "bind=NAME" for each input it depends on. */
const fmt_dim *fe_need(fe_node *n, uint32_t k, const char *what, uint32_t *out_n);
bool fe_need_ints(fe_node *n, uint32_t k, const char *what, int64_t *out,
                  uint32_t *inout_n);                        /* constants only */
bool fe_number(const fe_node *n, uint32_t k, double *out_v); /* constant of one element */
void fe_set(fe_node *n, uint32_t k, ir_id id);
void fe_set_known(fe_node *n, uint32_t k, const ir_type *type, const fmt_dim *content,
                  uint32_t count);
void fe_set_vec(fe_node *n, uint32_t k, const fmt_dim *content, uint32_t count); /* i64[count] */

/* ---- attributes ---- */
const fe_pb_attr *fe_attr(const fe_node *n, const char *name); /* NULL if absent */
/* Of another kind than asked for: counts as absent, and the node is bad once its handler is through. */
int64_t fe_attr_i(const fe_node *n, const char *name, int64_t otherwise);
double fe_attr_f(const fe_node *n, const char *name, double otherwise);
fe_span fe_attr_s(const fe_node *n, const char *name); /* len 0 if absent */
/* Integers of an attribute; absent: false. More than max: refuses the node. */
bool fe_attr_ints(fe_node *n, const char *name, int64_t *out, uint32_t max, uint32_t *out_n);
/* The kinds of attributes that handlers read in place, through fe_attr; bad if one is of another. */
bool fe_attrs_ok(const fe_node *n);
/* Negative axes count from the end; INVALID outside the rank. */
bool fe_axis(fe_node *n, int64_t axis, uint32_t rank, uint32_t *out_axis);

/* Axes given by input k or, in older opsets, by the attribute; false: none given. */
bool fe_axes(fe_node *n, uint32_t k, int64_t *axes, uint32_t *out_n);
/* At most FMT_RANK_MAX axes, and none of negative size; else the node is refused or bad. */
bool fe_check_rank(fe_node *n, uint32_t rank);
bool fe_check_sizes(fe_node *n, const fmt_dim *dims, uint32_t rank);

/* ---- verdicts ---- */
void fe_refuse(fe_node *n, const char *fmt, ...)
    RTX_PRINTF(2, 3); /* UNSUPPORTED, the import goes on */
void fe_bad(fe_node *n, const char *fmt, ...) RTX_PRINTF(2, 3); /* INVALID, the import ends */
/* a and b are one size from here on; else the node is bad where they always differ, and refused where that is not known. */
bool fe_same_dim(fe_node *n, fmt_dim a, fmt_dim b, const char *what);
/* False once the node was refused or the graph failed. */
bool fe_good(const fe_node *n);

/* ---- building ---- */
ir_id fe_ew(fe_node *n, ir_op op, const ir_id *in,
            uint32_t n_in); /* ir_ew that learns bounds from min(s, c) against s */
ir_id fe_ew2(fe_node *n, ir_op op, ir_id a, ir_id b);
ir_id fe_const_like(fe_node *n, ir_id x, double v); /* rank-0 constant of x's dtype */
ir_id fe_expand(fe_node *n, ir_id x, const fmt_dim *dims,
                uint32_t rank);                        /* to the common broadcast shape */
fmt_dim fe_dim_min(fmt_dims *d, fmt_dim a, fmt_dim b); /* simplified by proven ranges */
fmt_dim fe_dim_max(fmt_dims *d, fmt_dim a, fmt_dim b);
fmt_dim fe_dim_product(fmt_dims *d, const fmt_dim *dims, uint32_t n);
/* One integer operation on contents; false where it is not an expression that holds for all sizes. */
bool fe_dim_calc(fmt_dims *d, ir_op op, fmt_dim a, fmt_dim b, fmt_dim *out);
/* Elementwise operation on known contents with broadcasting; false if it must be computed. Sets output 0. */
bool fe_known_ew(fe_node *n, ir_op op, uint32_t n_in);
/* Contents as a tensor of this type holds them: constants wrap. False if an expression over sizes may leave the type. */
bool fe_wrap_content(fe_node *n, fmt_dtype t, fmt_dim *content, uint32_t count);

/* ---- tensors in the file (fe_onnx_data.c) ---- */
RTX_MUST_CHECK rtx_status fe_tensor_value(fe_imp *m, fe_span tensor, const char *what, fe_val *out,
                                          rtx_err *err);
/* The same without making a value: type and sizes, and that data in the file is of that size. Tensors that are not
 * supported are no fault; those with too many axes, or of a type without a name here, get dtype NONE. */
RTX_MUST_CHECK rtx_status fe_tensor_check(fe_imp *m, fe_span tensor, ir_type *out_type,
                                          rtx_err *err);
RTX_MUST_CHECK rtx_status fe_value_of_data(fe_imp *m, const ir_type *type, const void *data,
                                           size_t bytes, bool borrow, fe_val *out, rtx_err *err);
void fe_external_close(fe_model *model);

/* ---- text of the IR (fe_text.c): the mapped file becomes the model's graph ---- */
RTX_MUST_CHECK rtx_status fe_text_read(fe_model *m, rtx_err *err);

/* ---- graph (fe_onnx_graph.c) ---- */
/* The slot of a name, made if absent; NULL = out of memory. *out_found says which. */
fe_val **fe_name_put(base_arena *a, fe_names *names, fe_span key, bool *out_found);
fe_val **fe_name_find(const fe_names *names, fe_span key);
RTX_MUST_CHECK rtx_status fe_import_nodes(fe_imp *m, fe_scope *s, const fe_list *nodes,
                                          rtx_err *err);
RTX_MUST_CHECK rtx_status fe_opset_of(fe_imp *m, const fe_list *opsets, const char *what,
                                      int64_t *out, rtx_err *err);
void fe_report(fe_imp *m, const char *fmt, ...) RTX_PRINTF(2, 3); /* one UNSUPPORTED line */

#endif
