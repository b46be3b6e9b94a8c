/* Graph to graph passes before tuning. Each takes a graph and gives a new one over the same pool of dimensions.
 *   layer      L2 passes; may include base, format, ir
 *   owner      *out belongs to the caller (ir_graph_free); constant data is borrowed from the input graph's model, or
 *              owned by the new graph where a pass computed it
 *   threads    one thread a graph
 *   names      a pass is one word: file pass_<word>.c, function pass_<word>, `rtx opt --pass=<word>`, tests/golden/<word> */
#ifndef PASS_H
#define PASS_H

#include "ir.h"

/* X(word, why it stands where it stands in the default order) */
#define PASS_TABLE(X)                                                                              \
    X(fold, "shape arithmetic and constants disappear, views compose, broadcasts sink below "      \
            "elementwise work")                                                                    \
    X(raise,                                                                                       \
      "named operations are recognised by meaning while their primitive parts are still visible")  \
    X(layout, "dots that share an operand merge and weights get their packed form, before "        \
              "regions are cut")

#define PASS_ROW(word, why)                                                                        \
    RTX_MUST_CHECK rtx_status pass_##word(const ir_graph *g, ir_graph **out, rtx_err *err);
PASS_TABLE(PASS_ROW)
#undef PASS_ROW

typedef struct pass_info {
    const char *name, *why;
    rtx_status (*run)(const ir_graph *g, ir_graph **out, rtx_err *err);
} pass_info;
/* All passes in default order. */
const pass_info *pass_table(size_t *out_count);

#endif
