/* Cutting the graph into regions: at most one anchor with the elementwise work around it.
 *   layer      L2 passes; may include base, format, ir
 *   owner      pass_regions owns its arrays; ids refer to the graph it was made from
 *   order      a region runs at the place of its root; roots are in topological order, and every operand of a region is
 *              a root, a source or a view of one that stands before it */
#ifndef PASS_FUSE_H
#define PASS_FUSE_H

#include "ir.h"

typedef enum pass_anchor {
    PASS_ANCHOR_NONE, /* elementwise only */
    PASS_ANCHOR_DOT,
    PASS_ANCHOR_ROW,    /* softmax, layernorm, rmsnorm */
    PASS_ANCHOR_REDUCE, /* reduce_*, argmax, argmin */
    PASS_ANCHOR_ALONE /* attention, gather…, concat, rope, scans, iota, dimvals: nothing fuses */
} pass_anchor;

typedef struct pass_region {
    pass_anchor kind;
    ir_id anchor,
        root; /* anchor 0 for elementwise regions; root is the one value that leaves the region */
    ir_id *nodes; /* members in topological order, root last */
    uint32_t n_nodes;
} pass_region;

typedef struct pass_regions {
    pass_region *items; /* in the order of their roots */
    uint32_t n;
    base_arena arena;
} pass_regions;

/* May this region be one kernel? Called for every growth step; the region as it would be after it. NULL = never grow
 * beyond one op (the baseline). The callback keeps legality (a table of precompiled kernels, or a template's limits)
 * out of the passes. */
typedef bool (*pass_legal)(void *ctx, const ir_graph *g, const pass_region *candidate);

/* May this finished region stay whole? false undoes its last growth step and asks again; what was undone is free for other
 * regions. NULL = yes. */
typedef bool (*pass_whole)(void *ctx, const ir_graph *g, const pass_region *finished);

RTX_MUST_CHECK rtx_status pass_fuse(const ir_graph *g, pass_legal legal, pass_whole whole,
                                    void *ctx, pass_regions *out, rtx_err *err);
void pass_regions_done(pass_regions *r);
pass_anchor pass_anchor_of(ir_op op); /* kind of a node that is neither source nor view */

#endif
