/* Inside of synth: which normal form a problem has, and the pieces of text that every family of templates shares.
 *   layer    L3 synth, private to it; may include base, format, ir
 *   terms    family = normal form; slot = operand or iota of a region: what a loop nest keeps an offset for; run = elements
 *            along one axis handled by one generated function */
#ifndef SYN_FORM_H
#define SYN_FORM_H

#include "syn.h"

/* X(NAME, template). The order is that of the headers in kernels/cpu. */
#define SYN_FAMILY_TABLE(X)                                                                        \
    X(ELTWISE, "cpu/eltwise")                                                                      \
    X(COPY, "cpu/copy")                                                                            \
    X(REDUCE, "cpu/reduce")                                                                        \
    X(ARGREDUCE, "cpu/argreduce")                                                                  \
    X(ROW, "cpu/row")                                                                              \
    X(GEMM, "cpu/gemm")                                                                            \
    X(ATTENTION, "cpu/attention")                                                                  \
    X(ROPE, "cpu/rope")                                                                            \
    X(GATHER, "cpu/gather")                                                                        \
    X(GATHER_ND, "cpu/gather_nd")                                                                  \
    X(GATHER_ELEMENTS, "cpu/gather_elements")                                                      \
    X(CUMSUM, "cpu/cumsum")                                                                        \
    X(TOPK, "cpu/topk")                                                                            \
    X(DIMVALS, "cpu/dimvals")

typedef enum syn_family {
#define SYN_FAMILY_ROW(name, templ) SYN_##name,
    SYN_FAMILY_TABLE(SYN_FAMILY_ROW)
#undef SYN_FAMILY_ROW
        SYN_FAMILY_COUNT
} syn_family;

#define SYN_SLOTS_MAX 32 /* K_OPERANDS of the prelude */

typedef struct syn_form {
    syn_family family;
    ir_op op;     /* of the anchor; IR_NONE for elementwise work */
    ir_id anchor; /* 0 for elementwise work */
    uint8_t
        outer; /* axes before the line (eltwise: all but the last) or, for reduce, before the reduced ones */
    uint32_t n_ops, n_slots;        /* operands; operands and iotas */
    ir_id slot_node[SYN_SLOTS_MAX]; /* iota of a slot ≥ n_ops */
} syn_form;

/* Classify and check; UNSUPPORTED with the reason. */
RTX_MUST_CHECK rtx_status syn_form_of(const syn_problem *p, syn_form *out, rtx_err *err);
const char *syn_family_template(syn_family f);

/* ---- operands (syn_problem.c) ---- */

static inline ir_id syn_operand_id(const syn_problem *p, uint32_t o)
{
    return o < p->n_in ? p->region->inputs[o].id : p->region->outputs[o - p->n_in].id;
}
static inline const ir_type *syn_operand_type(const syn_problem *p, uint32_t o)
{
    return ir_type_of(p->region, syn_operand_id(p, o));
}
uint32_t syn_operand_of(const syn_problem *p, ir_id input); /* FMT_NONE if it is no input */
bool syn_stride_const(const syn_problem *p, uint32_t o, int axis, int64_t *out_v);
uint32_t syn_free_count(const syn_problem *p, const syn_form *f); /* arguments after the strides */

/* ---- text of sizes, strides and values (syn_line.c) ---- */

typedef struct syn_text {
    char s[40];
} syn_text;
syn_text syn_dim_text(const syn_problem *p, fmt_dim d);               /* "384" or "(arg[0])" */
syn_text syn_stride_text(const syn_problem *p, uint32_t o, int axis); /* axis < 0 = "0" */
const char *syn_ctype(fmt_dtype t); /* "float", "uint16_t"…; how it is stored */
/* The expression of an elementwise node over operand texts a, b, c; false when the op has none for the dtype. */
bool syn_expr(const ir_graph *g, ir_id id, const char *const operand[3], base_buf *out);
bool syn_expr_exists(const ir_graph *g, ir_id id);
double syn_op_weight(ir_op op); /* floating-point operations of one element */

/* A generated function over a run of n elements along one axis of the operands:
 *   wanted == 0, given == 0  void name(c, at, step, n)          stores the outputs
 *   wanted                   const T *name(c, at, step, n, y)   values of that node: in y, or where they lie already
 *   given                    void name(c, at, step, n, x)       stores the outputs from that node's values, and
 *                            T *name_to(c, at, step, y)         where they are best put: y, or the output itself
 * at[] and step[] hold offset and stride of every slot. */
typedef struct syn_run {
    const char *name;
    ir_id given, wanted;
    int8_t axis[SYN_SLOTS_MAX]; /* that the run follows in each slot; -1 = the slot does not move */
    bool fixed;                 /* constant strides are compiled in; else all come from step[] */
} syn_run;
void syn_emit_run(base_buf *b, const syn_problem *p, const syn_form *f, const syn_run *r);
/* Has any slot that the run moves along a constant stride? Then the nest must keep that axis (fixed). */
bool syn_run_is_fixed(const syn_problem *p, const syn_form *f, const int8_t axis[SYN_SLOTS_MAX]);
/* void name(arg, nest): sizes and strides of loop axes. axis[l][slot] is the slot's axis for loop axis l, -1 = none. */
void syn_emit_nest(base_buf *b, const syn_problem *p, const syn_form *f, const char *name,
                   int n_axes, const fmt_dim *dims, int8_t (*axis)[SYN_SLOTS_MAX]);
/* The epilogue function of gemm: prelude contract in kernels/cpu/gemm.k.c. */
void syn_emit_tile_epilogue(base_buf *b, const syn_problem *p, const syn_form *f);
/* T combine(T a, T b) from the expression of an op. */
void syn_emit_combine(base_buf *b, ir_op op, fmt_dtype t);

/* ---- the prelude, from kgen ---- */

typedef struct syn_prelude {
    const char *file, *text;
    size_t text_bytes;
} syn_prelude;
const syn_prelude *syn_prelude_table(size_t *out_count);

/* ---- small integer expressions of template headers (syn_variant.c) ---- */

typedef bool (*syn_lookup)(void *ctx, const char *name, size_t len, int64_t *out_v);
/* C operators on integers; unknown name, bad syntax or division by zero is false. "" evaluates to 1. */
bool syn_eval(const char *text, syn_lookup lookup, void *ctx, int64_t *out_v);

#endif
