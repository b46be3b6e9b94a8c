/* Facts of the machine that cost models use, as plain data: measured by the tuner, passed down by pointer.
 *   layer      L1 format; includes nothing
 *   owner      values only */
#ifndef FMT_HW_H
#define FMT_HW_H

#include <stdint.h>

#define FMT_HW_CURVE 24

typedef struct fmt_hw {
    int cores;
    double fma_gflops[2]; /* 1 thread, all threads */
    double read_gbps[2];  /* memory, 1 thread and all */
    double curve_bytes[FMT_HW_CURVE],
        curve_gbps[FMT_HW_CURVE]; /* 1 thread; ascending bytes, from nearest cache to memory */
    int n_curve;
    int64_t l1_bytes, l2_bytes, l3_bytes; /* knees of the curve */
    double handoff_ns;                    /* barrier while spinning */
} fmt_hw;

#endif
