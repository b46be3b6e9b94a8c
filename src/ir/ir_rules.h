/* Rules over ops.def shared by builder, verifier and text: shapes and dtypes, and the fields of attributes.
 *   layer    L1 ir, private to it; may include base, format
 *   threads  as ir.h */
#ifndef IR_RULES_H
#define IR_RULES_H

#include "ir.h"

#define IR_IN_MAX          64
#define IR_NODES_MAX       (1u << 20)
#define IR_RESIDENCY_COUNT (IR_DEVICE + 1)

extern const char *const ir_residency_names[IR_RESIDENCY_COUNT];

/* One application of a shape rule. A rule reads in[] and attrs, brings attrs into canonical form (axes counted from the
 * front, lists sorted) and fills out; or fails with a message. */
typedef struct ir_rule_call {
    fmt_dims *dims;
    ir_op op;
    const char *name; /* of the model node, for messages; may be "" */
    const ir_type *in[IR_IN_MAX];
    uint32_t n_in;
    ir_attrs attrs;
    ir_type out;
    bool
        may_bind; /* sizes that differ may bind symbols (builder), or must be equal already (verifier) */
    rtx_err *err;
} ir_rule_call;

/* Arity, dtypes and shape of one node. */
rtx_status ir_rule_apply(ir_rule_call *c);
/* Legal for an input, a constant or any other tensor: dtype known to the graph, rank, sizes. */
rtx_status ir_type_check(fmt_dims *dims, const char *what, const ir_type *t, rtx_err *err);

/* Attributes of an op one by one, from its text in ops.def: "axes=list", "eps=f0"… */
typedef struct ir_field {
    const char *name;
    size_t name_len;
    enum {
        IR_FIELD_INT,
        IR_FIELD_FLOAT,
        IR_FIELD_LIST,
        IR_FIELD_DIMS,
        IR_FIELD_SIZES,
        IR_FIELD_TYPE
    } kind;
    int index; /* of i[] and f[] */
} ir_field;
bool ir_field_next(const char **spec, ir_field *out);

/* ---- elements (ir_tensor.c) ---- */

/* One element in memory from and to a number. Rounds and saturates as cast does. */
void ir_store_element(fmt_dtype t, double v, void *out);
double ir_load_element(fmt_dtype t, const void *elem);
double ir_round_to(fmt_dtype t, double v); /* nearest value of a float type */
int64_t ir_float_to_int(fmt_dtype t, double v);
int64_t ir_wrap_int(fmt_dtype t, int64_t v);
/* Zeroed tensor; out untouched on failure. */
rtx_status ir_tensor_new(fmt_dtype t, int rank, const int64_t *dim, ir_tensor *out, rtx_err *err);
void ir_tensor_load(const void *data, ir_tensor *t); /* elems elements of its dtype */

#endif
