/* An open program and what a run needs: shared by the files of this module, and by tools that show a program.
 *   layer      L3 run; may include base, format, device
 *   owner      rtx_program owns everything below; launches are shared by reference count, contexts by a free list
 *   threads    everything but cache and contexts is read-only after open; those two are guarded by `lock`
 *   terms      launch: all steps resolved for one tuple of symbol values and one thread count. context: memory of one run */
#ifndef RUN_PROGRAM_H
#define RUN_PROGRAM_H

#include "dev_code.h"
#include "fmt_bundle.h"
#include "rtx/run.h"
#include "run_verdict.h"
#include <pthread.h>
#include <stdatomic.h>

#define RUN_LAUNCHES 16 /* prepared launches kept a program */
#define RUN_SKEW_BYTES                                                                             \
    320 /* between buffers, so that equal sizes do not share their offset within a page */

typedef struct run_kernel { /* NULL for kernels of other levels */
    k_plan_fn plan;
    k_run_fn run;
} run_kernel;

/* How a dimension of an input is bound. */
#define RUN_DIM_CONST (-1)
#define RUN_DIM_EXPR  (-2)
typedef struct run_port {
    rtx_port pub;
    fmt_dim dim[RTX_RANK_MAX];
    int32_t sym[RTX_RANK_MAX]; /* symbol that the dimension is, or one of the two above */
} run_port;

typedef struct run_step {
    k_run_fn run;
    const int64_t *arg;
    int64_t units;
    int32_t ways;     /* threads t < ways share the units */
    uint32_t share;   /* ways > 1: first of its shares in run_context.shares */
    bool barrier;     /* all threads meet after this step */
    uint32_t operand; /* first of its pointers in run_context.bufs */
    uint32_t id;      /* in the plan */
    int64_t next_bytes;
} run_step;

/* Pointer of one operand that depends on the caller's buffers. */
typedef struct run_patch {
    uint32_t operand, port;
    bool output;
    int64_t offset_bytes;
} run_patch;

typedef struct run_launch {
    base_arena mem; /* of all arrays */
    _Atomic uint32_t refs;
    uint64_t used; /* tick of the last use; guarded by the program's lock */
    int threads, ways;
    const int64_t *syms;
    run_step *steps; /* those with work to do */
    uint32_t n_steps, n_shares;
    int64_t *operand_bytes; /* offset of each operand from its value's start */
    int64_t *place;         /* TEMP values: byte offset in the arena */
    run_patch *patches;
    uint32_t n_patches;
    rtx_tensor *outputs;                 /* name, type and shape; no data */
    int64_t *port_bytes;                 /* inputs, then outputs */
    uint64_t arena_bytes, scratch_bytes; /* scratch: of each thread */
} run_launch;

typedef struct run_context {
    struct run_context *next;
    run_launch *launch; /* that bufs was filled for; holds a reference */
    int64_t *syms;
    const void **in;
    void **out;
    void **bufs;        /* one pointer an operand of the plan */
    const char **ahead; /* one a step of the plan: weights that come next, NULL = none */
    uint32_t placed;    /* generation of the places that constants were taken from */
    uint32_t *trap;     /* one word a step of the plan */
    uint8_t *arena, *scratch;
    uint64_t arena_bytes, scratch_bytes;
    base_barrier barrier;
    base_share *shares; /* those of steps with more than one way */
    uint64_t shares_bytes;
} run_context;

/* Large pages for temporary values and streamed weights; zeroed = everything stays on small ones. */
typedef struct run_place {
    bool temps;
    _Atomic(const uint8_t *) *moved; /* a value: its copy, NULL while it lies in the file */
    uint32_t *todo, n_todo,
        at;                 /* constants that belong there, in order of use; how many have moved */
    uint64_t bytes, copied; /* of all; of the one at hand */
    uint8_t *block, *to;
    _Atomic uint32_t generation; /* counts moves */
    _Atomic bool busy, idle;     /* a thread is copying; nothing is left to do */
    bool started;
    int64_t credit_ns; /* time that moving may take, ahead of what it took */
} run_place;

struct rtx_program {
    fmt_bundle bundle;
    const fmt_plan *plan; /* the bundle's plan for our level */
    dev_code code;
    run_verdict verdict;
    run_kernel *kernels;
    int threads;
    char *manifest;
    base_arena mem; /* ports and their texts */
    run_port *inputs, *outputs;
    uint32_t n_syms, n_dims; /* n_dims: one more than the largest dimension id in the plan */
    pthread_mutex_t lock;
    run_launch *cache[RUN_LAUNCHES];
    uint64_t tick;
    run_context *contexts; /* free ones */
    run_place place;
};

/* ---- run_bind.c: the caller's tensors against the ports ---- */

/* Fill syms (n_syms values) and in (one pointer an input) from the caller's inputs. data may be NULL if !need_data. */
RTX_MUST_CHECK rtx_status run_bind_inputs(const rtx_program *p, const rtx_tensor *given, size_t n,
                                          bool need_data, int64_t *syms, const void **in,
                                          rtx_err *err);
/* Fill out (one pointer an output); shapes must be those of the launch, and no buffer may overlap another. */
RTX_MUST_CHECK rtx_status run_bind_outputs(const rtx_program *p, const run_launch *l,
                                           const rtx_tensor *given, size_t n, const void *const *in,
                                           void **out, rtx_err *err);

/* ---- run_launch.c: from symbol values to resolved steps ---- */

/* The launch for these symbol values, from the cache or prepared now. The caller gets a reference. */
RTX_MUST_CHECK rtx_status run_launch_get(rtx_program *p, const int64_t *syms, int threads,
                                         run_launch **out, rtx_err *err);
void run_launch_unref(run_launch *l); /* NULL allowed */

/* ---- run_memory.c ---- */

typedef struct run_life {
    uint64_t bytes;
    uint32_t first, last; /* steps, inclusive */
    uint64_t offset;      /* result */
} run_life;
/* Offsets such that buffers alive at one time do not overlap: largest first, each at the lowest place that is free during its
 * whole life. Offsets are multiples of 64. */
RTX_MUST_CHECK rtx_status run_memory_place(run_life *lives, uint32_t n, uint64_t *out_bytes,
                                           rtx_err *err);

/* ---- run_place.c ---- */

/* What belongs on large pages. Arrays live in mem; nothing moves yet. */
RTX_MUST_CHECK rtx_status run_place_init(run_place *w, const fmt_plan *plan, base_arena *mem,
                                         rtx_err *err);
void run_place_done(run_place *w);
/* Bytes to allocate for `bytes` of temporary values, and where in that block they begin. */
uint64_t run_place_room(const run_place *w, uint64_t bytes);
uint8_t *run_place_temps(const run_place *w, uint8_t *block, uint64_t bytes);
/* Where constant `value` lies now. It may lie elsewhere after the next generation, and stays readable here. */
const uint8_t *run_place_const(run_place *w, const fmt_plan *plan, uint32_t value);
/* Nothing is left to move. */
bool run_place_settled(const run_place *w);
/* After a run that took run_ns: move the next piece, from the second run on, as long as that takes little of the time. */
void run_place_more(run_place *w, const fmt_plan *plan, const base_map *file, uint64_t run_ns);

/* ---- run_exec.c ---- */
void run_contexts_free(rtx_program *p);

/* ---- run_program.c: for tools ---- */
const run_verdict *run_program_verdict(const rtx_program *p);
const fmt_bundle *run_program_bundle(const rtx_program *p);
/* Open as rtx_program_open does, on a machine that the caller describes (for tests). */
RTX_MUST_CHECK rtx_status run_program_open_on(const char *path, int threads,
                                              const run_machine *machine, rtx_program **out,
                                              rtx_err *err);

#endif
