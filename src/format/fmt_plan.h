/* The plan: what a compiled program does, as flat records that compiler, tuner, bundle and runtime share.
 *   layer      L0 format; may include base, fmt_type.h, fmt_kabi.h
 *   owner      fmt_plan owns its arrays and strings; constant and code bytes are borrowed (bundle mapping or builder)
 *   threads    read-only after building or reading
 *   shape      values are buffers; steps call one kernel each on operands inside values; a slot is one distinct problem;
 *              its rows say which kernel serves it per instruction level, thread count and size */
#ifndef FMT_PLAN_H
#define FMT_PLAN_H

#include "fmt_kabi.h"
#include "fmt_type.h"

#define FMT_PLAN_VERSION      3
#define FMT_NONE              UINT32_MAX
#define FMT_STEP_OPERANDS_MAX 72

typedef uint32_t fmt_str; /* offset of a NUL-terminated string in fmt_plan.strs; 0 = "" */

typedef enum fmt_isa {
    FMT_ISA_V2 = 2,
    FMT_ISA_V3 = 3,
    FMT_ISA_V4 = 4
} fmt_isa; /* x86-64-v2, -v3, -v4 */

typedef enum fmt_value_kind {
    FMT_VAL_INPUT,
    FMT_VAL_OUTPUT,
    FMT_VAL_CONST,
    FMT_VAL_TEMP
} fmt_value_kind;

typedef struct fmt_value {
    uint8_t kind, dtype;
    uint32_t index;         /* INPUT, OUTPUT: its number */
    fmt_dim elems;          /* element count */
    uint64_t offset, bytes; /* CONST: place in the constant section */
    uint32_t first, last; /* TEMP: alive from step first (written) to step last (read), inclusive */
    uint8_t
        huge; /* 1: belongs on large pages: a TEMP, or a CONST that a run reads from end to end */
} fmt_value;

typedef struct fmt_operand {
    uint32_t value;
    fmt_dim offset; /* elements from the value's start; ≥ 0 */
} fmt_operand;

typedef struct fmt_step {
    uint32_t slot;
    uint32_t operand, n_operands; /* run in fmt_plan.operands: region inputs, then outputs */
    uint32_t arg, n_args; /* run in fmt_plan.args: region symbols, then strides (see fmt_kabi.h) */
    uint32_t next; /* CONST value that a later step streams first (prefetch hint), or FMT_NONE */
    fmt_str name;  /* model node it stems from, for messages */
} fmt_step;

typedef struct fmt_slot {
    fmt_str problem;      /* canonical problem text (region and operand access) */
    int16_t measure[2];   /* argument indices whose values choose the row; -1 = unused */
    uint32_t row, n_rows; /* run in fmt_plan.rows */
} fmt_slot;

/* Sorted by isa, threads, size[0], size[1]. Chosen: rows of the level; of the largest threads ≤ wanted, else the smallest;
 * then fmt_bucket_pick on size[0], then on size[1]. Every slot has at least one row for each level of the plan. */
typedef struct fmt_row {
    uint8_t isa;
    uint16_t threads; /* thread count this was tuned for */
    uint16_t
        ways; /* parts the work is cut into: 1, or threads (then it scales with the threads of the run) */
    int64_t size[2]; /* measured sizes; 0 where the slot has no such measure */
    uint32_t kernel;
} fmt_row;

typedef enum fmt_origin { FMT_PRECOMPILED, FMT_TUNED } fmt_origin;

typedef struct fmt_kernel {
    fmt_str name;   /* unique: "gemm_384x1536_bias_gelu.3" */
    fmt_str templ;  /* "cpu/gemm" */
    fmt_str params; /* "MR=6 NP=4 …"; "" = none */
    fmt_str source; /* rendered text for re-JIT; "" = not kept (precompiled) */
    fmt_str flags;  /* compiler options of source */
    uint8_t isa, origin;
    uint64_t code_offset, code_bytes; /* in the code section: one position-independent blob */
    uint32_t plan_entry, run_entry;   /* offsets in the blob */
    uint8_t code_hash[32];            /* SHA-256 of the blob */
} fmt_kernel;

typedef struct fmt_port {
    fmt_str name;
    uint8_t dtype, rank;
    fmt_dim dim[FMT_RANK_MAX];
} fmt_port;

typedef struct fmt_plan {
    fmt_dims *dims;
    base_buf strs;
    fmt_port *inputs, *outputs;
    fmt_value *values;
    fmt_operand *operands;
    fmt_dim *args;
    fmt_dim *limits; /* sizes that cannot be proven: a run is refused where one is below 0 */
    fmt_step *steps;
    fmt_slot *slots;
    fmt_row *rows;
    fmt_kernel *kernels;
    uint32_t n_inputs, n_outputs, n_values, n_operands, n_args, n_limits, n_steps, n_slots, n_rows,
        n_kernels;
    uint32_t cap[10];      /* capacities, in the order of the counts */
    const uint8_t *consts; /* constant section */
    uint64_t consts_bytes;
    const uint8_t *code; /* code section */
    uint64_t code_bytes;
    uint32_t kabi; /* call contract its kernels were built for; FMT_KABI_VERSION when built here */
    bool failed;   /* sticky allocation failure while building */
    fmt_str *intern; /* index of strs while building: open addressing by hash, 0 = free */
    uint32_t intern_cap, n_intern;
} fmt_plan;

fmt_plan *
fmt_plan_new(fmt_dims *dims_taken); /* NULL = out of memory (dims then still the caller's) */
void fmt_plan_free(fmt_plan *p);    /* frees dims and arrays; consts and code are borrowed */
rtx_status fmt_plan_ok(const fmt_plan *p, rtx_err *err);
fmt_str fmt_plan_str(fmt_plan *p, const char *s); /* interned append; 0 for "" or failure */
/* Drop the strings that no record names: of kernels that were taken out. Ids change. */
RTX_MUST_CHECK rtx_status fmt_plan_trim(fmt_plan *p, rtx_err *err);
static inline const char *fmt_str_get(const fmt_plan *p, fmt_str s)
{
    return s < p->strs.len ? p->strs.data + s : "";
}
/* Append records; each returns its index, FMT_NONE on failure. */
uint32_t fmt_plan_add_value(fmt_plan *p, const fmt_value *v);
uint32_t fmt_plan_add_slot(fmt_plan *p, const fmt_slot *s);
uint32_t fmt_plan_add_row(fmt_plan *p,
                          const fmt_row *r); /* rows of one slot are added together, sorted */
uint32_t fmt_plan_add_kernel(fmt_plan *p, const fmt_kernel *k);
void fmt_plan_add_limit(fmt_plan *p, fmt_dim d); /* once, however often it is given */
uint32_t fmt_plan_add_port(fmt_plan *p, bool output, const fmt_port *port);
uint32_t fmt_plan_add_step(fmt_plan *p, const fmt_step *s, const fmt_operand *operands,
                           const fmt_dim *args);

/* The row that serves a step: see fmt_row. NULL if the slot has none for the level. */
const fmt_row *fmt_plan_pick(const fmt_plan *p, const fmt_slot *s, fmt_isa isa, int threads,
                             const int64_t measure[2]);

/* Plan section of a bundle. read checks every index, count, name and range, and that every step's operand lies inside
 * its value for all sizes it can prove; CORRUPT names the record. */
void fmt_plan_write(const fmt_plan *p, base_buf *b);
RTX_MUST_CHECK rtx_status fmt_plan_read(base_reader *r, fmt_plan **out, rtx_err *err);

#endif
