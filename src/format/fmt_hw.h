/* What a measurement of the machine tells those who choose kernels: synth and passes get it by pointer, never from tune.
 *   layer    L0 format; may include base_core.h, fmt_plan.h
 *   NULL     no profile: documented defaults, so that choices that must be reproducible depend on no machine
 *   keys     expressions see facts through hw_fact_value alone, which rounds: what was read is written into a key as it was
 *            seen, and noise of the measurement changes neither */
#ifndef FMT_HW_H
#define FMT_HW_H

#include "fmt_plan.h"

typedef struct hw_facts {
    int cliff_vectors;                    /* accumulators that run at full speed */
    int64_t l1_bytes, l2_bytes, l3_bytes; /* knees of the measured read curve */
    double fma_gflops, read_gbps;         /* one thread; memory */
    double latency_ns, handoff_ns;        /* memory load; barrier while spinning */
} hw_facts;

/* name in expressions, default */
#define HW_FACT_TABLE(X)                                                                           \
    X(L1, INT64_C(32) << 10)                                                                       \
    X(L2, INT64_C(1) << 20)                                                                        \
    X(L3, INT64_C(32) << 20)                                                                       \
    X(CLIFF, 0) /* 32 at level v4, 14 below */

typedef enum hw_fact {
#define HW_ENUM(name, value) HW_##name,
    HW_FACT_TABLE(HW_ENUM)
#undef HW_ENUM
        HW_FACTS
} hw_fact;

const char *hw_fact_name(hw_fact f);
/* Bytes to the nearest power of two; CLIFF at most the registers of the level. hw NULL or a fact of 0: the default. */
int64_t hw_fact_value(const hw_facts *hw, fmt_isa isa, hw_fact f);

#endif
