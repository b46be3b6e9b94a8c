/* Tuning: for each problem the fastest validated kernel on this machine, with the evidence, from the cache where possible.
 *   layer      L4 tune; may include base, format, ir, synth, device
 *   owner      results belong to the job until tun_job_free
 *   threads    one job at a time per process; uses one worker process and up to `cores` compilers
 *   trust      candidates run only in rtx-worker; the parent owns oracle, comparison, poison, redzones, clock and verdict */
#ifndef TUN_H
#define TUN_H

#include "base_sys.h"
#include "syn.h"

typedef enum tun_mode { TUN_QUICK, TUN_FULL } tun_mode;

/* ---- hardware facts, kept in the cache ---- */
typedef struct tun_curve {
    double bytes[24], gbps[24];
    int n;
} tun_curve;
#define TUN_CLIFFS 8
typedef struct tun_hw {
    char cpu[64];
    int cores;
    fmt_isa isa;
    double fma_gflops[2];                 /* 1 thread, all threads */
    double read_gbps[2];                  /* memory, 1 thread and all */
    double latency_ns;                    /* memory load */
    double handoff_ns, wake_ns;           /* barrier while spinning; waking a parked worker */
    int cliff_vectors;                    /* accumulators before the register cliff */
    int64_t l1_bytes, l2_bytes, l3_bytes; /* knees of the measured curve */
    tun_curve read_curve;
    double cliff_gflops[TUN_CLIFFS]; /* with 8, 12, 14, 16, 20, 24, 28, 32 accumulators */
    double sentinel[2];              /* median GFLOP/s and GB/s beside the rounds */
    double spread; /* how far those lie below the best, the worse of the two: 0 = undisturbed */
    int rounds;
} tun_hw;

/* ---- a run ---- */

typedef struct tun_progress {
    const char *stage, *op;
    uint32_t done, total;
    double seconds_left;
} tun_progress;

typedef struct tun_options {
    tun_mode mode;
    fmt_isa isa;
    double budget_s;    /* 0 = mode's default (quick 90 s in all) */
    const char *cache;  /* folder; NULL = default; "" = no cache */
    bool deterministic; /* admit bit-stable kernels only */
    bool redo;          /* measure again even where the cache has an answer */
    bool
        static_rule; /* each size gets the static choice, validated and timed but not compared: the baseline */
    void (*progress)(void *ctx, const tun_progress *p);
    void *progress_ctx;
    const char *strategy; /* row of tun_strategy_table; NULL = "bandit" */
    /* May add, drop or reorder the variants of a problem (at most cap; the first is the default); NULL = none. What it
     * adds passes the same checks as everything else. Pins and tests use it. The hook's name is part of every key. */
    size_t (*variants)(void *ctx, const syn_problem *p, fmt_isa isa, syn_variant *list, size_t n,
                       size_t cap);
    void *variants_ctx;
    const char *variants_name;
    const tun_hw *hw; /* facts of a run before this one; NULL = from the cache, else measured */
    bool quiet;       /* trouble with the cache was told before */
} tun_options;

/* One size at which a problem is tuned. */
typedef struct tun_point {
    int64_t sym[SYN_SYMS_MAX];
    int threads;
    double weight; /* how often a program run executes it; orders the budget */
} tun_point;

typedef struct tun_pick { /* answer for one point */
    uint32_t
        kernel; /* index in tun_result.kernels; FMT_NONE = use the precompiled kernel (no candidate could be had) */
    int ways;          /* 1 or threads */
    double ns;         /* confirmed median of the winner; 0 = precompiled, not timed */
    double default_ns; /* the static rule's variant in the same rounds */
    bool cached;
} tun_pick;

typedef struct tun_kernel {
    syn_variant variant;
    char *source; /* text that was compiled */
    uint8_t *code;
    size_t code_bytes;
    uint32_t plan_entry, run_entry;
} tun_kernel;

typedef struct tun_result {
    tun_pick *picks; /* one a point */
    tun_kernel *kernels;
    uint32_t n_kernels;
    bool rejected; /* there is none, and each candidate that was tried fell by its own fault */
    char *
        evidence; /* JSON object: candidates, verdicts, errors, times, cache state; what explain prints */
} tun_result;

typedef struct tun_item {
    const syn_problem *problem;
    const tun_point *points;
    uint32_t n_points;
    tun_result result; /* filled */
} tun_item;

typedef struct tun_report {
    uint32_t keys, hits, candidates, rejected, compiled;
    double wall_s, compile_s, validate_s, measure_s,
        other_s; /* the ledger: parts sum to ≥ 95 % of wall */
    uint32_t warnings;
    double budget_s;   /* what the run could spend */
    tun_hw hw;         /* n 0 in its curve: the machine is not known */
    char stopped[240]; /* why the search ended early, for the caller's warning; "" = it did not */
} tun_report;

/* Tune all items; rounds interleave over all keys. Answers in the cache need neither compiler nor worker. Where there is
 * no answer and no compiler, a kernel tuned for another size of the same problem serves; UNSUPPORTED (with the reason)
 * when some item has none at all and no precompiled kernel either: the caller then cuts to the precompiled set. Results stand
 * then, too, as far as there are any. */
RTX_MUST_CHECK rtx_status tun_run(tun_item *items, uint32_t n_items, const tun_options *opt,
                                  tun_report *report, rtx_err *err);
void tun_result_done(tun_result *r);
bool tun_have_compiler(char *out_version, size_t cap, rtx_err *why);

/* ---- one candidate on its own (tun_repro.c): what a rejection leaves behind, and `rtx repro` ---- */

#define TUN_REPRO_POINTS 64
typedef struct tun_repro { /* not to be copied: a template of its own points into it */
    const syn_problem *problem;
    fmt_isa isa; /* 0 = this machine's */
    syn_variant variant;
    tun_point point[TUN_REPRO_POINTS]; /* one number of threads for all */
    uint32_t n_points;
    char expect[256]; /* the verdict that a kept file demands; "" = none */
    char *body;       /* of a template that is not in the table; NULL = it is */
    char templ[64], name[SYN_PARAMS_MAX][32];
    syn_template own;
    syn_param param[SYN_PARAMS_MAX];
} tun_repro;
typedef struct tun_verdict {
    rtx_err why;      /* code OK = accepted */
    double error, ns; /* norm-wise; of one call at the last point */
} tun_verdict;
/* INVALID: no such file, and what is wrong; UNSUPPORTED: a template or parameters that this version does not have. */
RTX_MUST_CHECK rtx_status tun_repro_parse(const char *text, size_t len, tun_repro *out,
                                          rtx_err *err);
void tun_repro_done(tun_repro *r); /* zeroed allowed */
RTX_MUST_CHECK rtx_status tun_repro_print(const tun_repro *r, base_buf *out, rtx_err *err);
/* The C text; UNSUPPORTED: the variant is not legal for the problem, or not at this machine's level. */
RTX_MUST_CHECK rtx_status tun_repro_source(const tun_repro *r, base_buf *out, rtx_err *err);
/* Compile, validate and time it, as a tuning run would. A rejection is an answer: OK, with the reason in the verdict. */
RTX_MUST_CHECK rtx_status tun_repro_check(const tun_repro *r, tun_verdict *out, rtx_err *err);
/* Where the cache (NULL = default) keeps the file that a rejection names. */
RTX_MUST_CHECK rtx_status tun_repro_path(const char *cache, const char *name, char *out, size_t cap,
                                         rtx_err *err);

/* ---- profile (tun_profile.c) ---- */
RTX_MUST_CHECK rtx_status tun_profile(const char *cache, bool redo, tun_hw *out,
                                      rtx_err *err); /* ≤ 10 s when measured */
void tun_profile_json(const tun_hw *hw, base_buf *out);
hw_facts tun_hw_facts(const tun_hw *hw);
/* (tun_model.c) Least time of a step on `threads` threads, ns: its arithmetic at the measured peak, or its bytes at the measured rate of what
 * holds them (memory if it streams weights, else the nearest cache that they fit). 0 = the machine is not known. */
double tun_floor_ns(const tun_hw *hw, double flops, double bytes, bool streams, int threads);

/* ---- choices made from measured times (tun_choice.c) ---- */

/* Kept in the cache under the question, and under all that the times depend on. get: the answer (base_free) or NULL. The
 * caller vouches that the times are real. Trouble with the cache is silent: the run itself tells it. */
char *tun_choice_get(const tun_options *opt, const char *question);
void tun_choice_put(const tun_options *opt, const char *question, const char *answer);

/* ---- cache (tun_cache.c) ---- */
typedef struct tun_cache_stat {
    uint64_t entries, bytes, bad;
    char path[512];
} tun_cache_stat;
RTX_MUST_CHECK rtx_status tun_cache_stat_get(const char *cache, tun_cache_stat *out, rtx_err *err);
/* Read every entry; `bad` (NULL = nobody) hears of each damaged one and whether it is gone now. */
typedef void tun_cache_bad(void *ctx, const char *path, bool removed);
RTX_MUST_CHECK rtx_status tun_cache_verify(const char *cache, bool remove_bad, tun_cache_bad *bad,
                                           void *ctx, tun_cache_stat *out, rtx_err *err);
RTX_MUST_CHECK rtx_status tun_cache_gc(const char *cache, uint64_t max_bytes, tun_cache_stat *out,
                                       rtx_err *err);

#endif
