/* What the tuner and rtx-worker say to each other: one request, one reply, fixed records over a SEQPACKET socket pair.
 *   layer      L0 format; may include base_core.h, fmt_kabi.h
 *   memory     one memory file of sealed size, mapped by both sides, carries code and the operands of checked launches.
 *              The parent decides every offset; the worker maps operands page by page between guard pages
 *   state      each request is complete: the worker only caches (code by hash, mappings by equality), so that a worker
 *              that was killed is replaced without telling anybody
 *   trust      the parent never follows anything a reply says: it compares memory, clocks and exit states itself */
#ifndef FMT_WORK_H
#define FMT_WORK_H

#include "base_core.h"
#include "fmt_kabi.h"

#define FMT_WORK_VERSION  3
#define FMT_WORK_OPERANDS 24
#define FMT_WORK_ARGS     (16 + FMT_WORK_OPERANDS * 8)
#define FMT_WORK_PAGE     4096u
#define FMT_WORK_SOCK_FD  3 /* descriptors that the worker is started with */
#define FMT_WORK_MEM_FD   4
#define FMT_WORK_SCRATCH_MAX                                                                       \
    (INT64_C(256) << 20) /* bytes of scratch a kernel may ask for, per thread */
#define FMT_WORK_UNITS_MAX (INT64_C(1) << 40)
#define FMT_WORK_PROBES    32

typedef enum fmt_work_cmd {
    FMT_WORK_PING = 1,
    FMT_WORK_RUN,  /* one checked launch on guarded operands */
    FMT_WORK_TIME, /* one timing sample on the worker's own buffers */
    FMT_WORK_PROBE /* one measurement of the machine */
} fmt_work_cmd;

typedef enum fmt_work_status {
    FMT_WORK_OK,
    FMT_WORK_BAD_REQUEST,
    FMT_WORK_NO_MEMORY, /* mapping or allocation failed */
    FMT_WORK_BAD_PLAN,  /* the kernel's plan asks for negative or absurd units or scratch */
    FMT_WORK_STRAYED    /* RUN: it wrote beside its scratch: reply.stray */
} fmt_work_status;

typedef struct fmt_work_code {
    uint8_t sha256[32]; /* names the bytes; all zero = none loaded */
    uint64_t offset, bytes;
    uint32_t plan_entry, run_entry;
} fmt_work_code;

/* RUN: pages of the memory file that hold one operand and its redzone; a guard page lies on both sides. */
typedef struct fmt_work_span {
    uint64_t offset, bytes; /* whole pages */
    uint64_t first;         /* byte of the first element in them */
    uint32_t writable, pad;
} fmt_work_span;

typedef enum fmt_work_order {
    FMT_WORK_WHOLE,  /* plan for one way, all units in one call */
    FMT_WORK_SPLIT,  /* plan for `ways`, ranges at once on that many threads */
    FMT_WORK_REVERSE /* plan for one way, small ranges from the last to the first */
} fmt_work_order;

/* TIME: the worker makes the operands itself: nobody looks at the results of a timing sample. */
typedef enum fmt_work_role { FMT_WORK_INPUT, FMT_WORK_WEIGHT, FMT_WORK_OUTPUT } fmt_work_role;
typedef enum fmt_work_fill {
    FMT_FILL_F32,
    FMT_FILL_ZERO,
    FMT_FILL_I64,
    FMT_FILL_I32,
    FMT_FILL_BOOL,
    FMT_FILL_F16
} fmt_work_fill;
typedef struct fmt_work_made {
    uint64_t bytes, first; /* extent, and the first element in it */
    int64_t bound;         /* integers lie in [0, bound) */
    uint8_t role, fill, pad[6];
} fmt_work_made;

typedef enum fmt_work_probe {
    FMT_PROBE_SENTINEL, /* out: GFLOP/s, GB/s; about 1 ms together */
    FMT_PROBE_FMA,      /* a = threads, b = level; out: GFLOP/s */
    FMT_PROBE_BUSY, /* after more than a second of work; a = threads, b = level; out: GFLOP/s, GB/s from memory */
    FMT_PROBE_READ,    /* a = threads, b = bytes a thread; out: GB/s of all threads */
    FMT_PROBE_LATENCY, /* b = bytes; out: ns a load */
    FMT_PROBE_HANDOFF, /* a = threads; out: ns of a barrier while all spin */
    FMT_PROBE_WAKE,    /* a = threads; out: ns of a pool run after idling (median) */
    FMT_PROBE_CLIFF /* b = level; out: live accumulators, GFLOP/s for 8, 12, 14, 16, 20, 24, 28, 32 of them */
} fmt_work_probe;

typedef struct fmt_work_req {
    uint32_t version, cmd;
    uint32_t n_operands, n_args;
    fmt_work_code code;
    int64_t arg[FMT_WORK_ARGS];
    union {
        fmt_work_span span[FMT_WORK_OPERANDS]; /* RUN */
        fmt_work_made made[FMT_WORK_OPERANDS]; /* TIME */
    } u;
    uint32_t ways, order; /* RUN and TIME; order for RUN */
    uint32_t
        poison; /* RUN: word that fills scratch, a margin around it, and the stack below each call */
    uint32_t max_calls; /* TIME */
    uint64_t least_ns;  /* TIME: repeat until a sample is about this long */
    int64_t a, b;       /* PROBE */
} fmt_work_req;

typedef struct fmt_work_rep {
    uint32_t status, trap;
    int64_t units, scratch_bytes;
    int64_t stray;      /* RUN: byte of the first write beside the scratch, from its start */
    uint64_t ns, calls; /* TIME: duration of the sample and the calls in it */
    uint64_t first_ns,
        total_ns; /* TIME: the first, untimed call; everything between receipt and reply */
    double value[FMT_WORK_PROBES];
} fmt_work_rep;

#endif
