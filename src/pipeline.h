/* The whole chain as data: options in, bundle and report out. The only place that sees frontend to tune.
 *   layer      top; the CLI and the public API sit on it
 *   owner      options are borrowed for the call; the report owns its texts until pipe_report_done
 *   threads    one compilation at a time */
#ifndef PIPELINE_H
#define PIPELINE_H

#include "fe.h"
#include "lower.h"
#include "pass.h"
#include "tun.h"

typedef enum pipe_tune { PIPE_OFF, PIPE_QUICK, PIPE_FULL } pipe_tune;

enum { PIPE_LIST_MAX = 32, PIPE_VALUES_MAX = 24 };

typedef struct pipe_sizes {
    const char *name;
    int64_t value[PIPE_VALUES_MAX];
    int n;
} pipe_sizes;

/* What a tuned program has over the baseline, apart. */
enum {
    PIPE_FUSION = 1,      /* without: each raised op is a kernel of its own, dots do not merge */
    PIPE_PARAMETERS = 2,  /* without: the best static rule's variant of each template */
    PIPE_MEMORY_PLAN = 4, /* without: every value keeps a buffer of its own for the whole run */
    PIPE_LARGE_PAGES =
        8, /* without: values lie where the allocator puts them, weights in the mapped file */
    PIPE_BASELINE = PIPE_FUSION | PIPE_PARAMETERS | PIPE_MEMORY_PLAN | PIPE_LARGE_PAGES
};

typedef struct pipe_options {
    pipe_tune tune;
    int threads[PIPE_VALUES_MAX], n_threads; /* 0 = 1 and all CPUs */
    pipe_sizes shapes[PIPE_LIST_MAX], buckets[PIPE_LIST_MAX],
        bounds[PIPE_LIST_MAX]; /* input; symbol; symbol lo, hi */
    int n_shapes, n_buckets, n_bounds;
    double budget_s;
    bool deterministic, redo;
    unsigned without;  /* pipe_gain bits that are left out: what `rtx bench` compares with */
    const char *cache; /* NULL = default, "" = none */
    const char *pin;   /* bundle or evidence whose choices are offered alone; NULL = none */
    fmt_isa isa;       /* 0 = host */
    fe_bind binds[PIPE_LIST_MAX];
    int n_binds;
    void (*progress)(void *ctx, const tun_progress *p);
    void *progress_ctx;
    /* In tun_run's place; tests plant times with it. What it says is never stored as a choice. NULL = tun_run. */
    rtx_status (*tuner)(tun_item *items, uint32_t n_items, const tun_options *opt,
                        tun_report *report, rtx_err *err);
} pipe_options;

typedef struct pipe_report {
    tun_report tuning;
    uint32_t n_slots, n_kernels_tuned, n_kernels_ready;
    uint64_t file_bytes, const_bytes, code_bytes;
    double read_s, passes_s, lower_s, tune_s, write_s, total_s;
    bool no_compiler;
    char why_untuned[200];
    double predicted_ns; /* of the first bucket and thread count, sum over steps; 0 = untuned */
} pipe_report;

RTX_MUST_CHECK rtx_status pipe_compile(const char *model, const pipe_options *opt,
                                       const char *out_path, pipe_report *report, rtx_err *err);
void pipe_report_json(const pipe_report *r, base_buf *out);

/* Read a model and run the passes before tuning; used by compare, bench and opt too. *out_graph belongs to the caller and
 * lives no longer than the model. */
RTX_MUST_CHECK rtx_status pipe_front(const char *model, const pipe_options *opt,
                                     fe_model **out_model, ir_graph **out_graph, rtx_err *err);

/* The sizes at which a graph is tuned: every combination of its symbols' buckets. */
typedef struct pipe_buckets {
    uint32_t n_sym;
    int64_t size[16][PIPE_VALUES_MAX];
    int n_size[16];
    uint32_t sym[16]; /* symbol of the graph's pool */
} pipe_buckets;
RTX_MUST_CHECK rtx_status pipe_buckets_of(const ir_graph *g, const pipe_options *opt,
                                          pipe_buckets *out, rtx_err *err);

/* Kernels for every slot of a lowered graph at every bucket and thread count; items stand in the order of the slots. Without
 * PIPE_PARAMETERS only the static rule's variant is offered. UNSUPPORTED when a slot is left without a kernel (no compiler, or
 * every candidate refused): the caller then uses the precompiled plan. */
typedef struct pipe_tuned {
    tun_item *items;
    uint32_t n;
} pipe_tuned;
RTX_MUST_CHECK rtx_status pipe_tune_slots(const lower_result *low, const pipe_buckets *b,
                                          const pipe_options *opt, pipe_tuned *out,
                                          tun_report *report, rtx_err *err);
void pipe_tuned_done(pipe_tuned *t);
/* Its parts: items with their points but without results; the run that fills them. */
RTX_MUST_CHECK rtx_status pipe_tune_items(const lower_result *low, const pipe_buckets *b,
                                          const pipe_options *opt, pipe_tuned *out, rtx_err *err);
RTX_MUST_CHECK rtx_status pipe_tune_run(const lower_result *low, const pipe_options *opt,
                                        pipe_tuned *tuned, tun_report *report, rtx_err *err);
/* Has each of its points a kernel? UNSUPPORTED naming the first slot where one has none. */
bool pipe_tuned_whole(const tun_item *it);
RTX_MUST_CHECK rtx_status pipe_tuned_all(const lower_result *low, const pipe_tuned *t,
                                         const tun_report *report, rtx_err *err);
tun_options pipe_tun_options(const pipe_options *opt); /* without hooks */
/* Sizes of a slot for one combination of bucket sizes, one thread; false when they cannot be told. */
bool pipe_point_at(const lower_result *low, const lower_slot *s, const pipe_buckets *b,
                   uint32_t combo, tun_point *out);
bool pipe_point_known(const tun_point *points, uint32_t n, const tun_point *p);
uint32_t pipe_combos(const pipe_buckets *b);
/* Threads and level where the options leave them open. */
RTX_MUST_CHECK rtx_status pipe_defaults(pipe_options *o, rtx_err *err);

#endif
