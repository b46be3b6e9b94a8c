/* Inside the tuner: the stages that tun_run.c puts together, in the order of the data.
 *   layer      L4 tune; may include base, format, ir, synth, device
 *   owner      each struct has init/open and done/close; strings are borrowed unless said otherwise
 *   threads    the thread of tun_run only; the worker runs kernels in its own process */
#ifndef TUN_INT_H
#define TUN_INT_H

#include "fmt_bundle.h"
#include "fmt_work.h"
#include "tun.h"
#include <spawn.h>

#define TUN_SCHEMA                                                                                 \
    1 /* of the cache: what an entry means; raise it with any change of key or payload */
#define TUN_POLICY                                                                                 \
    "rotate96M large pages best interleaved sentinel 2" /* how times are taken: part of every key */
#define TUN_ERROR_F32 1e-6
#define TUN_ERROR_F16 1e-3
#define TUN_UNIT_F32  5.9604644775390625e-08

/* ---- tun_worker.c: the other process ---- */

typedef struct tun_worker {
    char path[512];
    int pid, sock, mem_fd; /* pid 0: none running */
    uint8_t *mem;          /* the shared memory file */
    size_t mem_bytes;
    uint32_t respawns; /* deaths and timeouts so far */
    uint32_t killed;   /* of them from outside: nobody's fault here */
} tun_worker;

#define TUN_WORKER_MEM ((size_t)2 << 30) /* address space; pages exist once touched */
/* NOT_FOUND: no rtx-worker (names the places looked at). */
RTX_MUST_CHECK rtx_status tun_worker_find(char *out, size_t cap, rtx_err *err);
RTX_MUST_CHECK rtx_status tun_worker_open(tun_worker *w, rtx_err *err);
/* For our children: a session of their own, so that Ctrl-C is ours to handle, and none of the caller's signal settings. */
void tun_spawn_attr(posix_spawnattr_t *at);
void tun_worker_close(tun_worker *w);   /* zeroed allowed */
void tun_worker_restart(tun_worker *w); /* the next call starts a fresh process */
void tun_worker_forget(tun_worker *w, size_t offset,
                       size_t bytes); /* give pages back; their content becomes zero */
/* One request. DEVICE: the process died ("crashed: signal 11") or gave no answer in time and was killed; the next call
 * starts a new one. A process that somebody else killed is no verdict: the request is sent again a few times, then IO. out_wall_ns is the parent's own clock around the exchange. */
RTX_MUST_CHECK rtx_status tun_worker_call(tun_worker *w, fmt_work_req *req, uint64_t timeout_ns,
                                          fmt_work_rep *out, uint64_t *out_wall_ns, rtx_err *err);
/* The same where no candidate is in it: the trouble is the worker's, which is named. */
RTX_MUST_CHECK rtx_status tun_worker_ask(tun_worker *w, fmt_work_req *req, uint64_t timeout_ns,
                                         fmt_work_rep *out, rtx_err *err);

/* ---- tun_compile.c: text to code ---- */

typedef struct tun_cc {
    char path[512], version[160]; /* version: first line of --version, size of the program */
    char dir[512];                /* scratch folder, mode 0700; "" = none */
    int lock;                     /* on it, while there is one */
    char supervisor[512];         /* rtx-worker */
    bool dead;                    /* it hung once: not asked again */
    double seconds;               /* spent waiting */
} tun_cc;

typedef struct tun_unit { /* one text, one object */
    const char *text;
    const char *flags;
    bool must; /* the deadline does not count */
    char *elf; /* filled: base_free */
    size_t elf_bytes;
    rtx_err err; /* COMPILE with the compiler's first line, or OK */
    int pid;
    uint64_t start_ns;
    bool done;
} tun_unit;

RTX_MUST_CHECK rtx_status tun_cc_find(char *out_path, size_t cap,
                                      rtx_err *err); /* UNSUPPORTED: none, and why */
RTX_MUST_CHECK rtx_status tun_cc_open(tun_cc *cc, rtx_err *err);
void tun_cc_close(tun_cc *cc); /* removes the scratch folder */
/* Compile all units, `parallel` at a time. Failures of single units are in the units; COMPILE if the compiler hangs,
 * CANCELLED when told to stop (base_go_on). Units not reached by deadline_ns have CANCELLED: no verdict about their text. */
RTX_MUST_CHECK rtx_status tun_cc_run(tun_cc *cc, tun_unit *units, size_t n, int parallel,
                                     uint64_t deadline_ns, rtx_err *err);

/* ---- tun_shape.c: a problem at one size; tun_values.c: what is in it ---- */

typedef enum tun_values { TUN_NORMAL, TUN_MASK, TUN_INDEX, TUN_SMALL_INT, TUN_BIT } tun_values;

/* What the awkward case may put into an operand, by what its elements meet first. */
typedef enum tun_hard {
    TUN_HARD_NONE,  /* values as ever */
    TUN_HARD_PLAIN, /* beside awkward rows: sums with them are exact */
    TUN_HARD_SOFTMAX,
    TUN_HARD_NORM,
    TUN_HARD_SUM,
    TUN_HARD_ORDER, /* comparisons whose result is exact */
    TUN_HARD_MOVED, /* moves, choices, one operation */
    TUN_HARD_LEFT,  /* rows of a matrix product */
    TUN_HARD_QUERY,
    TUN_HARD_KEY
} tun_hard;

typedef struct tun_operand {
    fmt_dtype dtype;
    int rank;
    int64_t dim[FMT_RANK_MAX], stride[FMT_RANK_MAX]; /* elements */
    int64_t elems;                                   /* logical */
    int64_t below;  /* elements of the extent before the first one (negative strides) */
    int64_t extent; /* elements from the lowest to past the highest address */
    int64_t bound;  /* TUN_INDEX: valid are [-bound, bound) */
    tun_values values;
    tun_hard hard;
    int level; /* of TUN_HARD_NORM and TUN_HARD_QUERY: a power of two that matters */
    bool packed, output, weight; /* weight: a constant large enough to stream */
} tun_operand;

typedef struct tun_shape {
    int64_t sym[SYN_SYMS_MAX], arg[FMT_WORK_ARGS];
    uint32_t n_sym, n_arg, n_in, n_op;
    tun_operand op[SYN_OPERANDS_MAX];
    double flops, bytes;
    int64_t depth; /* longest reduction */
    bool hard;     /* its values are awkward; set by the validator */
} tun_shape;

/* Strides that are known at run time only get `pad` > 0 spare elements each, plus the operand's number. INVALID: sizes out of range. */
RTX_MUST_CHECK rtx_status tun_shape_init(const syn_problem *p, const int64_t *sym, int64_t pad,
                                         tun_shape *out, rtx_err *err);
size_t tun_operand_bytes(const tun_operand *o); /* of the extent */
/* Element of operand o at logical index i, as an offset in elements from the extent's start. A walk: start with
 * {0}, call tun_walk_next elems times. */
typedef struct tun_walk {
    int64_t at[FMT_RANK_MAX], offset, i;
} tun_walk;
tun_walk tun_walk_of(const tun_operand *o);
void tun_walk_next(const tun_operand *o, tun_walk *w);
void tun_values_classify(const syn_problem *p, tun_shape *s); /* fills operands' `hard`, `level` */
/* Seeded values of input `index`: the extent's image (gaps stay as they are) and, in row-major order, the logical
 * elements (NULL = not wanted; packed operands need it). Equal memory locations get equal values. */
RTX_MUST_CHECK rtx_status tun_shape_input(const tun_shape *s, uint32_t index, uint64_t seed,
                                          void *image, void *logical, rtx_err *err);

uint64_t tun_hash(uint64_t seed, uint64_t place);

/* ---- tun_vector.c: a large product times a random vector ---- */

typedef struct tun_vector {
    double *want; /* a sum for each row; NULL: the check does not apply */
    int64_t rows, cols, depth;
} tun_vector;
bool tun_vector_applies(const syn_problem *p);
/* logical: the inputs' elements in row-major order. */
RTX_MUST_CHECK rtx_status tun_vector_init(tun_vector *v, const syn_problem *p, const tun_shape *s,
                                          uint8_t *const *logical, rtx_err *err);
void tun_vector_done(tun_vector *v); /* zeroed allowed */
/* c: the whole output, row-major; rms: of what it should be, about. NUMERIC: a row is wrong. */
RTX_MUST_CHECK rtx_status tun_vector_check(const tun_vector *v, const float *c, double rms,
                                           rtx_err *why);

/* ---- tun_validate.c: may this kernel be used at all ---- */

typedef struct tun_code {
    const uint8_t *bytes;
    size_t n_bytes;
    uint8_t sha256[32];
    uint32_t plan_entry, run_entry;
} tun_code;

typedef struct tun_case { /* one size with its reference, shared by all candidates */
    tun_shape shape;
    ir_tensor ref[SYN_OPERANDS_MAX],
        mag[SYN_OPERANDS_MAX];               /* outputs; mag: sum of |terms|, elems 0 = none */
    fmt_work_span span[2][SYN_OPERANDS_MAX]; /* flush to the end guard, flush to the start guard */
    uint64_t seed;
    bool sampled; /* the reference holds rows `pick` along symbol `sample_sym` only */
    uint32_t sample_sym, n_pick;
    int64_t pick[24];
} tun_case;

#define TUN_CASES 5
typedef struct tun_validator {
    tun_worker *worker;
    const syn_problem *problem;
    tun_case cases[TUN_CASES];
    uint32_t n_cases;
    size_t mem_used; /* of the shared memory: operands from the front, code at the end */
    uint8_t *first
        [SYN_OPERANDS_MAX]; /* outputs of the first launch, for the comparison between launches */
    size_t first_bytes[SYN_OPERANDS_MAX];
    uint8_t *other
        [SYN_OPERANDS_MAX]; /* outputs of the first kernel judged, where the reference is sampled */
    tun_vector vector;      /* where the reference is sampled */
    uint64_t launch_ns;     /* limit of a small launch; 0 = the usual one */
    double seconds;
} tun_validator;

#define TUN_CODE_ROOM ((size_t)16 << 20) /* end of the shared memory */
/* Small cases around the sizes of the points, and their references. UNSUPPORTED: nothing small enough can be evaluated. */
RTX_MUST_CHECK rtx_status tun_validator_init(tun_validator *v, tun_worker *w, const syn_problem *p,
                                             const tun_point *points, uint32_t n_points,
                                             rtx_err *err);
/* One case at full size, its reference sampled where it is large. */
RTX_MUST_CHECK rtx_status tun_validator_init_at(tun_validator *v, tun_worker *w,
                                                const syn_problem *p, const int64_t *sym,
                                                rtx_err *err);
void tun_validator_done(tun_validator *v); /* zeroed allowed */
/* The shared memory serves one validator at a time: leave it, keeping the references, and come back. */
void tun_validator_detach(tun_validator *v);
RTX_MUST_CHECK rtx_status tun_validator_attach(tun_validator *v, rtx_err *err);
/* Three launches a case. RTX_OK and the largest norm-wise error, or the reason of the rejection: NUMERIC (wrong numbers,
 * not repeatable, writes outside), DEVICE (crash, no answer), LIMIT (absurd plan). IO and NOMEM are no verdicts. */
RTX_MUST_CHECK rtx_status tun_validate(tun_validator *v, const tun_code *code, double *out_error,
                                       rtx_err *why);
/* The candidate's own fault, or trouble that ends the run? */
static inline bool tun_is_verdict(rtx_status s)
{
    return s == RTX_NUMERIC || s == RTX_DEVICE || s == RTX_LIMIT || s == RTX_INVALID;
}
/* Put code where the worker can read it. */
RTX_MUST_CHECK rtx_status tun_code_place(tun_worker *w, const tun_code *code, fmt_work_code *out,
                                         rtx_err *err);

/* ---- tun_measure.c: how fast is it ---- */

typedef struct
    tun_clock { /* tests replace it; what a clock that is not real measured cannot be stored */
    uint64_t (*now_ns)(void);
    bool real;
} tun_clock;

typedef struct tun_sentinel {
    double fma, read;           /* best seen */
    uint32_t rounds, disturbed; /* disturbed: rounds measured again or with a warning */
} tun_sentinel;

typedef struct tun_timer {
    tun_worker *worker;
    const tun_clock *clock;
    fmt_isa isa;
    tun_sentinel sentinel;
    double seconds;
} tun_timer;

const tun_clock *tun_real_clock(void);
void tun_timer_init(tun_timer *t, tun_worker *w, fmt_isa isa);
/* ns of one call, from one sample of about least_ns. DEVICE: crash or hang, twice. INVALID: three samples that
 * cannot be believed (the child's clock disagrees with ours, or it stalls). */
RTX_MUST_CHECK rtx_status tun_time(tun_timer *t, const tun_shape *shape, const tun_code *code,
                                   int ways, uint64_t least_ns, double *out_ns, rtx_err *why);
/* True if the machine was as fast as ever just now; call before and after a round. */
bool tun_sentinel_ok(tun_timer *t);

/* ---- tun_search.c: which variants to try ---- */

typedef enum tun_state {
    TUN_UNSEEN,
    TUN_ASKED,
    TUN_GOOD,
    TUN_BAD,
    TUN_PRUNED /* asked for, but predicted hopeless: not compiled */
} tun_state;

typedef struct tun_space { /* variants of one problem in canonical order, seeds first */
    const syn_variant *variant;
    uint8_t *state; /* tun_state */
    double *score;  /* geometric mean over points of time / best time of the point; 0 = not timed */
    uint32_t n, n_seeds;
    uint64_t rng;
    const double *guess; /* predicted time / best prediction; NULL = no model */
} tun_space;

/* Choose up to `want` unseen variants; returns how many. They become TUN_ASKED. */
typedef struct tun_strategy {
    const char *name, *doc;
    uint32_t (*propose)(tun_space *s, uint32_t want, uint32_t *out);
    bool all; /* asked for the whole space at once */
} tun_strategy;
const tun_strategy *tun_strategy_table(size_t *out_count);
const tun_strategy *tun_strategy_find(const char *name); /* NULL if unknown */

/* ---- tun_model.c: what the facts say beforehand ---- */

#define TUN_MODEL    "1" /* raise it with the formula: part of every key */
#define TUN_HOPELESS 2.0 /* predicted times the best prediction */
#define TUN_TIMED_LEAST                                                                            \
    8               /* candidates that a gemm or attention key above 1 MFLOP must have timed */
#define TUN_KEEP 16 /* variants of a problem that pruning leaves at least */

typedef enum tun_model_kind { TUN_MODEL_NONE, TUN_MODEL_GEMM, TUN_MODEL_ATTENTION } tun_model_kind;
typedef struct tun_model { /* one problem at one size */
    tun_model_kind kind;
    double size[5]; /* gemm: B M N K; attention: B H SQ SK D */
    bool packed;    /* weights stream from memory */
} tun_model;
void tun_model_open(const syn_problem *p, const syn_template *t, const int64_t *sym,
                    tun_model *out);
/* ns of one call; 0 = no prediction. */
double tun_model_ns(const tun_model *q, const tun_hw *hw, fmt_isa isa, const syn_variant *v,
                    int ways);
/* Of the variants in list, those hopeless at every size (least, one a variant; NULL = no model) become TUN_PRUNED and leave
 * it; seeds stay, and at least TUN_KEEP variants of the space. Returns how many stay. */
uint32_t tun_model_prune(tun_space *s, const double *least, uint32_t *list, uint32_t n);
/* Where some, but fewer than TUN_TIMED_LEAST are good: ask for the best predicted ones among those left out. Returns how
 * many. None good: the problem itself is at fault. */
uint32_t tun_model_reopen(tun_space *s, const double *least);

#define TUN_ROUNDS 24 /* of confirmation, repeated ones included, at most */

/* Samples of one candidate at one point. */
typedef struct tun_samples {
    double best, sum;
    double last[8]; /* newest first come, for the spread */
    uint32_t n;
    float round[TUN_ROUNDS]; /* ns in each round of confirmation: 0 = not timed in it */
} tun_samples;
void tun_samples_add(tun_samples *s, double ns);
/* Rounds that timed both, and in how many of them a was faster. */
uint32_t tun_samples_rounds(const tun_samples *a, const tun_samples *b, uint32_t *out_faster);
double tun_samples_spread(const tun_samples *s); /* median absolute deviation over the median */
#define TUN_TIE 0.005                            /* closer times are equal */
#define TUN_UNSURE                                                                                 \
    0.08 /* so they are where not almost all rounds agree that the default is slower */
/* Index of the winner among n times (0 = not timed): within the tie band of the best `base`, else the first in order. */
uint32_t tun_winner(const double *ns, const double *spread, uint32_t n, uint32_t base);

/* ---- tun_cache.c ---- */

typedef enum tun_kind { TUN_PLAN, TUN_MEAS, TUN_BIN, TUN_BAD_KIND, TUN_KINDS } tun_kind;

typedef struct tun_cache {
    char root[400], env[40];
    bool on;
    bool warned;
    bool quiet; /* trouble is no warning */
    uint32_t written, quarantined;
} tun_cache;

/* Fields in order, each a line "name=value"; the identity is what names the file, the rest must be equal too. */
typedef struct tun_key {
    base_buf text;
    size_t identity;    /* bytes of text that are identity */
    char compiler[176]; /* compared only when known (not "") */
} tun_key;
void tun_key_init(tun_key *k);
void tun_key_done(tun_key *k);
void tun_key_add(tun_key *k, const char *name, const char *value);
void tun_key_mark_identity(tun_key *k);

/* Evidence that numbers are real: made by tun_measure and the validator, required by tun_cache_put. */
typedef struct tun_origin {
    bool real_clock, real_device;
} tun_origin;

/* folder: NULL = default place, "" = none. Never fails: trouble is one warning and an uncached run. */
void tun_cache_open(tun_cache *c, const char *folder, const char *cpu);
void tun_cache_open_quiet(tun_cache *c, const char *folder, const char *cpu);
/* Hit: payload (base_free). Miss: false and, if why is not NULL, "miss" or the first differing field. */
bool tun_cache_get(tun_cache *c, tun_kind kind, const tun_key *k, char **out, size_t *out_bytes,
                   char *why, size_t cap);
/* INVALID (and nothing is written) if the origin is not real. Trouble with the disk is a warning. */
rtx_status tun_cache_put(tun_cache *c, tun_kind kind, const tun_key *k, const void *data,
                         size_t bytes, const tun_origin *origin);
/* A text beside the entry of a key, NAME.repro; false if it is not there afterwards. out_name: NAME, 33 bytes. */
bool tun_cache_put_repro(tun_cache *c, tun_kind kind, const tun_key *k, const base_buf *text,
                         const tun_origin *origin, char *out_name);
/* One entry's bytes against a key (NULL: only whether it is whole). For tests and tun_cache_verify. */
rtx_status tun_entry_check(const void *data, size_t bytes, const tun_key *k,
                           const char **out_payload, size_t *out_bytes, char *why, size_t cap);

/* ---- tun_profile.c ---- */

typedef struct tun_prober { /* who measures: the worker, or a test */
    rtx_status (*ask)(void *ctx, fmt_work_probe what, int64_t a, int64_t b, fmt_work_rep *out,
                      rtx_err *err);
    void *ctx;
    const tun_clock *clock;
    tun_origin origin;
} tun_prober;
tun_prober tun_prober_of(tun_worker *w, const tun_clock *clock);
/* From the cache; with `by` also measured, where there is none, it is outdated, or redo. by NULL: NOT_FOUND without one.
 * INVALID: the prober's origin is not real; nothing is stored. */
RTX_MUST_CHECK rtx_status tun_profile_with(const tun_prober *by, tun_cache *c, fmt_isa isa,
                                           bool redo, tun_hw *out, rtx_err *err);

#endif
