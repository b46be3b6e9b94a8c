/* The contract between a generated kernel and its caller: two functions and one call record.
 *   layer      L0 format; kernels see the same text through kernels/prelude/cpu.h
 *   operands   a kernel computes one region (a small graph, see syn_problem.h). buf[] holds one pointer per region
 *              operand: inputs in order, then outputs. Pointers address the first element; nothing is promised about
 *              alignment beyond the element size, except packed constants (64 bytes).
 *   arguments  arg[] holds, in this order: the values of the region's symbols s0…; then for each operand (inputs, then
 *              outputs) one stride per dimension, in elements (0 = broadcast). A baked kernel may ignore entries that
 *              it was compiled for; the array is always complete, so kernels for one region are interchangeable.
 *   work       *_plan says how many units of work there are for these arguments and how many bytes of scratch each
 *              thread needs. *_run does units [begin, end). Any split of the units gives equal bits: no unit writes
 *              what another unit reads or writes, and no reduction crosses units.
 *   threads    *_run is called from many threads at once with disjoint ranges and separate scratch */
#ifndef FMT_KABI_H
#define FMT_KABI_H

#include <stdint.h>

#define FMT_KABI_VERSION 1

typedef struct k_call {
    void *const *buf;
    const int64_t *arg;
    void *scratch;    /* 64-byte aligned, at least *_plan's bytes */
    const char *next; /* hint: the constant that the next step will stream; NULL = none */
    int64_t next_bytes;
    uint32_t *
        trap; /* set to non-zero (relaxed store) when an index operand is out of range; the access is clamped */
} k_call;

typedef struct k_plan {
    int64_t units;         /* 0 = nothing to do */
    int64_t scratch_bytes; /* per thread */
} k_plan;

typedef void (*k_plan_fn)(const int64_t *arg, int64_t ways, k_plan *out);
typedef void (*k_run_fn)(const k_call *c, int64_t begin, int64_t end);

#endif
