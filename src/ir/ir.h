/* The graph: typed SSA over tensors with symbolic sizes, its text form, its verifier and its fp64 evaluator.
 *   layer      L1 ir; may include base, format
 *   owner      a graph owns its nodes and names; constant data is borrowed unless made by ir_const_copy; the pool of
 *              dimensions is borrowed and may be shared by several graphs
 *   threads    one thread a graph
 *   order      nodes only refer to nodes before them, so index order is a topological order; graphs are append-only and
 *              passes build new ones
 *   sticky     after a failed emit every emit returns 0 and ir_ok reports the first cause, so builders need no checks */
#ifndef IR_H
#define IR_H

#include "fmt_type.h"

typedef uint32_t ir_id; /* node index; 0 = none */

typedef enum ir_op {
    IR_NONE,
#define OP(name, lo, hi, shape, attrs, level, dialect, fexpr, iexpr) IR_##name,
#include "ops.def"
#undef OP
    IR_OP_COUNT
} ir_op;

typedef enum ir_level { IR_PRIM, IR_RAISED } ir_level;
typedef enum ir_dialect { IR_TENSOR, IR_DATA } ir_dialect;
typedef enum ir_residency { IR_HOST, IR_PINNED, IR_DEVICE } ir_residency;

typedef struct ir_op_info {
    const char *name, *attrs, *fexpr, *iexpr;
    uint8_t min_in, max_in;
    ir_level level;
    ir_dialect dialect;
    bool elementwise; /* has an expression, or is cast */
    bool view;        /* reshape, broadcast, permute, slice */
} ir_op_info;
const ir_op_info *ir_op_get(ir_op op); /* never NULL */
ir_op ir_op_find(const char *name, size_t len);

typedef struct ir_type {
    fmt_dtype dtype;
    uint8_t rank;
    uint8_t residency; /* ir_residency; host in this stage */
    fmt_dim dim[FMT_RANK_MAX];
} ir_type;

/* Which fields an op uses is its attribute text in ops.def; unused ones are zero, so attributes compare by memcmp. */
typedef struct ir_attrs {
    int64_t i[3];
    double f[2];
    int64_t list[FMT_RANK_MAX];
    fmt_dim dims[FMT_RANK_MAX], sizes[FMT_RANK_MAX];
    uint8_t n_list, n_dims, n_sizes, type;
} ir_attrs;

typedef struct ir_const {
    const void *data; /* row-major elements; NULL only for zero elements */
    size_t bytes;
    bool owned; /* lies in the graph's arena, so that a graph built from this one copies it */
} ir_const;

typedef struct ir_node {
    uint16_t op, n_in;
    uint32_t in;   /* first input in graph->refs */
    uint32_t attr; /* index in graph->attrs; 0 = all zero */
    uint32_t name; /* index in graph->node_names; 0 = unnamed. Model node name, for messages only */
    uint32_t data; /* index in graph->consts for const */
    ir_type type;
} ir_node;

typedef struct ir_port {
    ir_id id;
    const char *name;
} ir_port;

typedef struct ir_graph {
    fmt_dims *dims; /* borrowed */
    base_arena arena;
    ir_node *nodes; /* nodes[0] is unused */
    uint32_t n_nodes, cap_nodes;
    ir_id *refs;
    uint32_t n_refs, cap_refs;
    ir_attrs *attrs;
    uint32_t n_attrs, cap_attrs;
    ir_const *consts;
    uint32_t n_consts, cap_consts;
    ir_port *inputs, *outputs;
    uint32_t n_inputs, cap_inputs, n_outputs, cap_outputs;
    uint32_t *intern; /* hash set of node ids */
    uint32_t cap_intern;
    const char **node_names;
    uint32_t n_names, cap_names;
    const char *current_name; /* given to nodes emitted from now on; borrowed while set */
    rtx_err err;              /* first failure; code OK while good */
} ir_graph;

ir_graph *ir_graph_new(fmt_dims *dims); /* NULL = out of memory */
void ir_graph_free(ir_graph *g);
rtx_status ir_ok(const ir_graph *g, rtx_err *err);
/* Record a failure found by the caller of the builder; keeps the first. Returns 0 so that `return ir_bad(…)` reads well. */
ir_id ir_bad(ir_graph *g, rtx_status code, const char *fmt, ...) RTX_PRINTF(3, 4);

/* Append a node, or return the equal node that exists (except inputs). Type by the op's shape rule; NULL attrs = zero. */
ir_id ir_emit(ir_graph *g, ir_op op, const ir_id *in, uint32_t n_in, const ir_attrs *attrs);
ir_id ir_emit1(ir_graph *g, ir_op op, ir_id a);
ir_id ir_emit2(ir_graph *g, ir_op op, ir_id a, ir_id b);
ir_id ir_emit3(ir_graph *g, ir_op op, ir_id a, ir_id b, ir_id c);

ir_id ir_input(ir_graph *g, const char *name, const ir_type *type);
/* Constants: borrowed data outlives the graph. */
ir_id ir_const_borrow(ir_graph *g, const ir_type *type, const void *data, size_t bytes);
ir_id ir_const_copy(ir_graph *g, const ir_type *type, const void *data, size_t bytes);
ir_id ir_scalar(ir_graph *g, fmt_dtype t, double v); /* rank-0 constant */
void ir_output(ir_graph *g, const char *name, ir_id id);

/* Shorthands of common nodes. Lists have one entry per axis. No-op forms return their input. */
ir_id ir_reshape(ir_graph *g, ir_id x, const fmt_dim *dims, uint32_t rank);
ir_id ir_broadcast(ir_graph *g, ir_id x, const fmt_dim *dims, uint32_t rank);
ir_id ir_permute(ir_graph *g, ir_id x, const int64_t *perm);
ir_id ir_slice(ir_graph *g, ir_id x, const fmt_dim *start, const fmt_dim *size,
               const int64_t *step);
ir_id ir_reduce(ir_graph *g, ir_op op, ir_id x, const int64_t *axes, uint32_t n_axes,
                bool keepdims);
ir_id ir_cast(ir_graph *g, ir_id x, fmt_dtype to);
ir_id ir_dimvals(ir_graph *g, const fmt_dim *dims, uint32_t n, bool scalar);
/* Elementwise op after NumPy broadcasting of all inputs to their common shape. */
ir_id ir_ew(ir_graph *g, ir_op op, const ir_id *in, uint32_t n_in);
/* Common broadcast shape of two types; false (no message) if they cannot be made equal. Sizes that differ are
 * unified (fmt_dim_unify), so a symbol meeting a constant other than 1 becomes that constant. */
bool ir_broadcast_dims(ir_graph *g, const ir_type *a, const ir_type *b, ir_type *out);

static inline const ir_node *ir_node_get(const ir_graph *g, ir_id id) { return &g->nodes[id]; }
static inline const ir_type *ir_type_of(const ir_graph *g, ir_id id) { return &g->nodes[id].type; }
static inline ir_id ir_in(const ir_graph *g, ir_id id, uint32_t k)
{
    return g->refs[g->nodes[id].in + k];
}
static inline const ir_attrs *ir_attrs_of(const ir_graph *g, ir_id id)
{
    return &g->attrs[g->nodes[id].attr];
}
static inline const ir_const *ir_const_of(const ir_graph *g, ir_id id)
{
    return &g->consts[g->nodes[id].data];
}
static inline ir_op ir_op_of(const ir_graph *g, ir_id id) { return (ir_op)g->nodes[id].op; }
const char *ir_name_of(const ir_graph *g, ir_id id); /* "" if unnamed */
bool ir_type_eq(const ir_type *a, const ir_type *b);
/* Elements of a type as an expression (1 for rank 0). */
fmt_dim ir_elems(const ir_graph *g, const ir_type *t);
/* True and the value if the node is a constant whose elements are all equal (also behind views and cast). */
bool ir_is_splat(const ir_graph *g, ir_id id, double *out_v);
void ir_type_print(const fmt_dims *p, const ir_type *t, base_buf *b); /* f32[batch,seq,384] */
/* Number of uses of each node, outputs included; caller frees with base_free. NULL = out of memory. */
uint32_t *ir_use_counts(const ir_graph *g);

/* ---- rebuilding (ir_graph.c): the frame of every pass ---- */

/* Called for each live node in order; in[] are the new ids of its inputs. Returns the new id (0 = failure is in g->err).
 * ir_copy_node is the rule that changes nothing. */
typedef ir_id (*ir_rule)(void *ctx, const ir_graph *old, ir_id old_id, ir_graph *g,
                         const ir_id *in);
ir_id ir_copy_node(ir_graph *g, const ir_graph *old, ir_id old_id, const ir_id *in);
/* New graph over the same pool from the live nodes of old. Inputs keep their order even when dead. */
RTX_MUST_CHECK rtx_status ir_rewrite(const ir_graph *old, ir_rule rule, void *ctx, ir_graph **out,
                                     rtx_err *err);

/* ---- verifier (ir_verify.c) ---- */
/* Every node's type is what its rule gives; order; arity. */
RTX_MUST_CHECK rtx_status ir_verify(const ir_graph *g, rtx_err *err);

/* ---- text (ir_text.c): print then parse gives an equal graph, parse then print equal text ---- */
enum {
    IR_TEXT_DATA = 1,  /* else constants above 64 elements print as #hash, which does not parse */
    IR_TEXT_NAMES = 2, /* model node names as comments */
};
void ir_print(const ir_graph *g, const char *func_name, int flags, base_buf *b);
RTX_MUST_CHECK rtx_status ir_parse(const char *text, size_t len, fmt_dims *dims, ir_graph **out,
                                   rtx_err *err);

/* ---- evaluator (ir_eval.c): the oracle ---- */

/* Floats are doubles, integers and bool int64. Constants and inputs are taken as their rounded values; nothing between is
 * rounded unless the graph casts. */
typedef struct ir_tensor {
    fmt_dtype dtype;
    int rank;
    int64_t dim[FMT_RANK_MAX];
    int64_t elems;
    double *f;  /* F class */
    int64_t *i; /* I and B class */
} ir_tensor;

void ir_tensor_done(ir_tensor *t);
rtx_status ir_tensor_from(const void *data, fmt_dtype t, int rank, const int64_t *dim,
                          ir_tensor *out, rtx_err *err);
/* Rounds to dtype; the caller provides elems * size bytes. */
void ir_tensor_store(const ir_tensor *t, void *out_data);

/* Evaluate outputs for inputs (one per graph input, in order). syms: the value of every symbol; NULL = the shapes of the inputs
 * bind them. Contradictions are INVALID.
 * visit, if not NULL, sees every evaluated node (for `rtx compare`); returning false stops with CANCELLED.
 * max_bytes caps what is held at once (LIMIT; 0 = no cap); values are dropped after their last use. Kernels judge themselves by
 * abs_out when it is not NULL: for each output the same computation with every term of each sum replaced by its
 * magnitude (the denominator where terms cancel); it is filled for outputs that are dot, reduce_sum, reduce_mean
 * or cumsum, or views of these, and left empty (elems 0) otherwise. */
typedef bool (*ir_visit)(void *ctx, ir_id id, const ir_tensor *value);
RTX_MUST_CHECK rtx_status ir_eval(const ir_graph *g, const ir_tensor *inputs, const int64_t *syms,
                                  ir_tensor *outputs, ir_tensor *abs_out, size_t max_bytes,
                                  ir_visit visit, void *ctx, rtx_err *err);
/* Symbol values from input shapes; every other dimension is checked. values has fmt_sym_count entries; unbound = -1. */
RTX_MUST_CHECK rtx_status ir_bind(const ir_graph *g, const ir_tensor *inputs, int64_t *values,
                                  rtx_err *err);

#endif
