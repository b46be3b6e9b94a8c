/* The last stage: kernels and evidence joined to the plans, manifest, file.
 *   layer      top, beside pipeline.c
 *   owner      a seal owns its code buffer and evidence; plans stay their lower_result's
 *   threads    one thread */
#ifndef PIPE_SEAL_H
#define PIPE_SEAL_H

#include "pipeline.h"
#include <jansson.h>

typedef struct seal {
    const ir_graph *graph;
    const pipe_options *opt;
    const pipe_buckets *buckets;
    fmt_plan *plans[2]; /* borrowed */
    size_t n_plans;
    const tun_hw *hw; /* for the floor of each kernel's time, borrowed; NULL = not known */
    base_buf code;
    json_t *fusion;   /* array of choices about the cut, borrowed; NULL = none was made */
    json_t *evidence; /* array of kernels, as `rtx explain --json` prints them */
} seal;

RTX_MUST_CHECK rtx_status seal_init(seal *s, const ir_graph *g, const pipe_options *o,
                                    const pipe_buckets *b, rtx_err *err);
void seal_done(seal *s); /* zeroed allowed */
/* Rows, kernels and evidence of the tuned plan; items stand in the order of its slots. */
RTX_MUST_CHECK rtx_status seal_tuned(seal *s, lower_result *low, const tun_item *items,
                                     pipe_report *rep, rtx_err *err);
/* Rows and kernels of the precompiled plan, for every level. */
RTX_MUST_CHECK rtx_status seal_ready(seal *s, lower_result *low, pipe_report *rep, rtx_err *err);
RTX_MUST_CHECK rtx_status seal_write(seal *s, const lower_consts *consts, const char *path,
                                     pipe_report *rep, rtx_err *err);
/* JSON text through our own buffer; takes the reference (NULL: NOMEM). */
RTX_MUST_CHECK rtx_status pipe_json_text(json_t *taken, int flags, base_buf *out, rtx_err *err);

#endif
