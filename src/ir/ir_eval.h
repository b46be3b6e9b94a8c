/* Between the evaluator's walk over the graph (ir_eval.c) and its functions of one op each (ir_eval_ops.c, _ew.c).
 *   layer    L1 ir, private to it; may include base, format */
#ifndef IR_EVAL_H
#define IR_EVAL_H

#include "ir_rules.h"

/* One node to compute: inputs, attributes with sizes as numbers, and a zeroed result of the right type. */
typedef struct ir_eval_call {
    ir_op op;
    const ir_tensor *in[IR_IN_MAX];
    uint32_t n_in;
    const ir_attrs *attrs;
    int64_t dims[FMT_RANK_MAX], sizes[FMT_RANK_MAX];
    ir_tensor *out;
    rtx_err *err;
} ir_eval_call;

typedef rtx_status (*ir_eval_fn)(const ir_eval_call *c);
ir_eval_fn ir_eval_get(ir_op op); /* NULL: input and const */
rtx_status
ir_eval_elementwise(const ir_eval_call *c); /* every op with an expression in ops.def, and cast */

/* A tensor seen as [outer, axis, inner]: element (o, a, i) lies at (o * n + a) * inner + i. */
typedef struct ir_lines {
    int64_t outer, n, inner;
} ir_lines;
ir_lines ir_lines_of(const ir_tensor *t, int64_t axis);

#endif
