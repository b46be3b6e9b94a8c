/* Random problems with operands between guard pages, run by a kernel and judged by ir_eval: shared by the tests of synth.
 *   structure  a problem and how each operand's axes are laid out; sizes are numbers or symbols
 *   instance   values of the symbols, hence strides; buffers filled and placed against a guard page at their end or start */
#ifndef SYN_CASE_H
#define SYN_CASE_H

#include "fmt_bundle.h"
#include "syn_ready_set.h"

/* splitmix64 */
typedef struct rng {
    uint64_t s;
} rng;
static inline uint64_t rng_next(rng *r)
{
    uint64_t z = r->s += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}
static inline int rng_int(rng *r, int lo, int hi)
{
    return lo + (int)(rng_next(r) % (uint64_t)(hi - lo + 1));
}
static inline bool rng_one_in(rng *r, int n) { return rng_next(r) % (uint64_t)n == 0; }

/* X(NAME, template): what a random structure is drawn for. */
#define CASE_TABLE(X)                                                                              \
    X(ELTWISE, "eltwise")                                                                          \
    X(COPY, "copy")                                                                                \
    X(REDUCE, "reduce")                                                                            \
    X(ARGREDUCE, "argreduce")                                                                      \
    X(ROW, "row")                                                                                  \
    X(GEMM, "gemm")                                                                                \
    X(ATTENTION, "attention")                                                                      \
    X(ROPE, "rope")                                                                                \
    X(GATHER, "gather")                                                                            \
    X(GATHER_ND, "gather_nd")                                                                      \
    X(GATHER_ELEMENTS, "gather_elements")                                                          \
    X(CUMSUM, "cumsum")                                                                            \
    X(TOPK, "topk")                                                                                \
    X(DIMVALS, "dimvals")
typedef enum case_family {
#define CASE_ROW(name, text) CASE_##name,
    CASE_TABLE(CASE_ROW)
#undef CASE_ROW
        CASE_COUNT
} case_family;
const char *case_name(case_family f);

typedef struct case_layout {
    int8_t order[FMT_RANK_MAX];
    int8_t gap[FMT_RANK_MAX];
    bool zero[FMT_RANK_MAX], negative[FMT_RANK_MAX];
} case_layout;

typedef struct test_case {
    syn_problem *p;
    ir_graph *eval; /* the region with one more input [s] for each symbol, so that all are bound */
    rng *r;
    case_family family;
    bool baked, fused; /* some sizes and strides are numbers; work beside the anchor */
    int64_t small[SYN_SYMS_MAX], large[SYN_SYMS_MAX]; /* range of each symbol */
    case_layout lay[SYN_OPERANDS_MAX];
    fmt_dim index_limit[SYN_OPERANDS_MAX]; /* operand holds indices into an axis of this size */
    uint32_t k_sym;                        /* topk: this symbol is at most the other */
    uint32_t k_of;
    bool exact, powers; /* operands are small integers; are ±1 */
} test_case;

/* A random structure. The general form of an unfused one is in the precompiled set. */
test_case *case_new(case_family family, bool baked, bool fused, rng *r);
void case_free(test_case *c);

/* Kernel code that can be called. */
typedef struct case_code {
    void *map;
    size_t bytes;
    k_plan_fn plan;
    k_run_fn run;
} case_code;
bool case_map(const uint8_t *code, size_t bytes, uint32_t plan, uint32_t run, case_code *out);
void case_unmap(case_code *c);

/* Run one random instance with the kernel and compare. q and from: general form and its arguments, or NULL to pass the
 * problem's own. Returns false after printing what differs. */
bool case_check(test_case *c, const case_code *code, const syn_source *from, uint32_t n_from);

/* Levels that this CPU has, lowest first; what it has not is printed. */
int case_levels(fmt_isa out[3]);
/* Compile a unit; objects' bytes (base_free). */
bool case_compile(const char *text, size_t len, fmt_isa isa, char **out_elf, size_t *out_bytes);

#endif
