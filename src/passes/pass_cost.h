/* What fusing is worth: time of one region as one kernel, against the same region cut at its last step of growth.
 *   layer      L2 passes; may include base, format, ir
 *   owner      pure functions of their arguments
 *   model      the work grown onto an anchor is computed beside it, from registers. Cut off, it reads a value that the anchor
 *              had to write: twice its bytes at the rate of the cache that holds them, and one more step */
#ifndef PASS_COST_H
#define PASS_COST_H

#include <stdint.h>

enum { PASS_CURVE = 24 };

typedef struct pass_machine { /* as the tuner's profile measured it */
    double fma_gflops[2];     /* 1 thread, all threads */
    double read_gbps[2];      /* memory, 1 thread and all */
    double curve_bytes[PASS_CURVE],
        curve_gbps[PASS_CURVE]; /* 1 thread; ascending bytes, from nearest cache to memory */
    int n_curve;
    int64_t l3_bytes;  /* where memory begins */
    double handoff_ns; /* barrier while spinning */
} pass_machine;

typedef struct pass_work { /* a region at one size */
    double flops, bytes;   /* of what stays together; bytes it must move */
    double cut_flops;      /* of what would stand alone */
    double spill_bytes;    /* of the value between the two */
    int threads;
} pass_work;

/* ns to move bytes once. They lie in equal shares in the caches of the threads. */
double pass_cost_move_ns(const pass_machine *hw, double bytes, int threads);
double pass_cost_step_ns(const pass_machine *hw, int threads); /* of one more step in a plan */
/* Most that a cut can give back: the step computed one lane at a time, as spilled registers would have it. */
double pass_cost_relief_ns(const pass_machine *hw, const pass_work *w);
void pass_cost(const pass_machine *hw, const pass_work *w, double *out_fused_ns,
               double *out_split_ns);

/* The share of a region's time that fusing saves, below which only a measurement can tell: what the fused work takes from the
 * anchor is not in the model. */
#define PASS_COST_CLEAR 0.10

#endif
