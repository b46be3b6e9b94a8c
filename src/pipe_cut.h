/* Where regions are cut, as a measured choice: a program is tuned with every legal fusion, then again with the costliest
 * doubtful regions cut in two, and the cut that is predicted faster is kept. A region of which no candidate is accepted is cut
 * without that question.
 *   layer    top, beside pipeline.c
 *   owner    what it gives belongs to the caller; what it is given stays the caller's
 *   replay   the choices are an entry of the tuning cache: a compilation that finds it searches nothing */
#ifndef PIPE_CUT_H
#define PIPE_CUT_H

#include "pipeline.h"
#include <jansson.h>

typedef struct pipe_cut {
    const ir_graph *graph;
    const pipe_buckets *buckets;
    const pipe_options *opt;
    lower_consts *consts; /* of the bundle */
} pipe_cut;

/* Kernels for every slot of *low, which is lowered with every legal fusion and may be replaced by a lowering with another
 * cut. *out_fusion: the choices as `rtx explain --json` prints them; NULL when the cut was no question. As pipe_tune_slots
 * otherwise. Nothing is searched without fusion or without the choice of parameters; with a pin its cut is taken. */
RTX_MUST_CHECK rtx_status pipe_cut_tune(const pipe_cut *c, lower_result *low, pipe_tuned *tuned,
                                        json_t **out_fusion, tun_report *report, rtx_err *err);

#endif
