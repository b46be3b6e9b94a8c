/* Synthesis: a problem (one region of the graph with its operand access) is matched to templates and rendered to C text.
 *   layer      L3 synth; may include base, format, ir; never tune
 *   owner      a problem owns its region graph and pool; rendered text goes into the caller's buf
 *   threads    one thread a problem; tables are constant
 *   terms      problem, template, parameter, variant (template + parameter values), legality */
#ifndef SYN_H
#define SYN_H

#include "fmt_hw.h"
#include "fmt_plan.h"
#include "ir.h"

#define SYN_OPERANDS_MAX 24
#define SYN_PARAMS_MAX   12
#define SYN_SYMS_MAX     12

/* A region in one of the normal forms below. region inputs, then outputs, are the operands. All shapes are logical shapes
 * after views; how an operand lies in memory is its strides: a constant, or FMT_DIM_BAD for "known at run time only".
 * region->dims is the problem's own pool with symbols s0, s1, … in order; their values are the first kernel arguments.
 *
 * Normal forms (T = any computed dtype; views and multi-dimensional batches are gone, dimensions are collapsed):
 *   elementwise  inputs T[d0…], nodes elementwise/cast/iota and rank-0 const + broadcast, ≥ 1 outputs of the same shape.
 *                No node at all = copy (any dtype with a size).
 *   reduce       elementwise prologue on [o…, r…], one reduce_* or argmax/argmin over the trailing axes r…, elementwise
 *                epilogue on [o…]
 *   row          elementwise prologue on [o…, C], softmax | layernorm | rmsnorm over C, elementwise epilogue on [o…, C].
 *                gamma and beta are operands [C]
 *   gemm         dot of a[b…, m, k] and b[b…, k, n] (0 to 2 batch axes), elementwise epilogue on [b…, m, n]; b may be packed
 *   attention    one attention node, mask optional
 *   rope         one rope node
 *   gather       gather with x[o, A, i], indices [j] -> [o, j, i] (axis 1); gather_nd with x[b, d0…, i…], indices [b, j, r];
 *                gather_elements as the op defines it
 *   scan         cumsum on [o, A, i] axis 1;  topk on [o, A, i] axis 1;  dimvals -> [n] or []
 * A dimension of an operand is a constant or one symbol, never an expression. Anchors of gemm, attention, rope, gather* and
 * scan read operands directly. Names of ports do not matter: syn_port_name gives ones that serve. */
typedef struct syn_problem {
    ir_graph *region;
    fmt_dims *dims;
    uint32_t n_in, n_out;
    fmt_dim stride[SYN_OPERANDS_MAX][FMT_RANK_MAX]; /* constant ids of `dims`, or FMT_DIM_BAD */
    bool packed[SYN_OPERANDS_MAX]; /* constant in packed-B form (SYN_PACK_COLS columns a panel) */
    bool
        free_attrs; /* general form: the float attribute of layernorm, rmsnorm and attention (as bits of an f32) and then, for
                        attention, the number of key heads and nan_zero are arguments after the strides; the region's do not count */
} syn_problem;

const char *syn_port_name(bool output, uint32_t index); /* "i0", "o0"…; static */

#define SYN_PACK_COLS                                                                              \
    16 /* packed B: ceil(N/16) panels, each K rows of 16 floats, zero-padded; 64-byte aligned */
/* Floats of a packed [K,N] matrix, and the packing itself (b row-major with the given strides in elements). */
uint64_t syn_pack_floats(int64_t k, int64_t n);
void syn_pack_b(const float *b, int64_t k, int64_t n, int64_t stride_k, int64_t stride_n,
                float *out);

syn_problem *syn_problem_new(void); /* empty region over a fresh pool; NULL = out of memory */
void syn_problem_free(syn_problem *p);
/* Canonical text (the key of everything) and its inverse. */
rtx_status syn_problem_text(const syn_problem *p, base_buf *out, rtx_err *err);
RTX_MUST_CHECK rtx_status syn_problem_parse(const char *text, size_t len, syn_problem **out,
                                            rtx_err *err);
/* Check that the problem is in a normal form; UNSUPPORTED with the reason if not. */
RTX_MUST_CHECK rtx_status syn_problem_check(const syn_problem *p, rtx_err *err);
/* The same problem with every size a symbol and every stride unknown (inner strides that a template requires to be 1 stay),
 * padded to the ranks of the precompiled set. new_args[i] tells where argument i of the general problem comes from. Kernels of
 * both are interchangeable this way. */
typedef struct syn_source {
    bool constant;
    int64_t value; /* of the constant, else index of an argument of p */
} syn_source;
RTX_MUST_CHECK rtx_status syn_problem_general(const syn_problem *p, syn_problem **out,
                                              syn_source *new_args, uint32_t *n_args,
                                              uint32_t cap_args, rtx_err *err);
/* Arguments: symbols, then strides of every operand (rank entries each), as fmt_kabi.h says; then free attributes. */
uint32_t syn_arg_count(const syn_problem *p);
uint32_t syn_arg_stride(const syn_problem *p, uint32_t operand,
                        uint32_t axis); /* its argument index */
/* Argument indices of the sizes that choose among tuned rows: gemm m (and batch), attention batch and keys, else the two
 * most significant symbols; -1 = unused. */
RTX_MUST_CHECK rtx_status syn_measure(const syn_problem *p, int16_t out[2],
                                      rtx_err *err); /* NOMEM only */
/* Work of the problem for symbol values: floating-point operations and bytes that must move at least once. */
void syn_cost(const syn_problem *p, const int64_t *sym, double *out_flops, double *out_bytes);
/* Of one node of the region; bytes of its value. */
void syn_node_cost(const syn_problem *p, ir_id id, const int64_t *sym, double *out_flops,
                   double *out_bytes);

/* ---- templates: parsed at build time from the headers in kernels/ ---- */

typedef struct syn_param {
    const char *name;
    int64_t def;
    const int64_t *values;
    uint32_t n_values;
    const char *doc;
} syn_param;
typedef struct syn_seed {
    const char *condition; /* over LEVEL, symbols by role (M, N, K, S…), or "" */
    int64_t value[SYN_PARAMS_MAX];
} syn_seed;
typedef struct syn_template {
    const char *name; /* "cpu/gemm" */
    const char *file; /* "kernels/cpu/gemm.k.c" */
    const char *text; /* body, without the header comment */
    size_t text_bytes;
    uint32_t text_line; /* line of the file on which the body begins */
    uint8_t sha256[32]; /* of body and header */
    const syn_param *params;
    uint32_t n_params;
    const char *require; /* conjunction of the @require lines */
    const syn_seed *seeds;
    uint32_t n_seeds;
} syn_template;
const syn_template *syn_template_table(size_t *out_count);
uint8_t const *syn_prelude_sha256(void); /* prelude and renderer version together */

typedef struct syn_variant {
    const syn_template *templ;
    int64_t value[SYN_PARAMS_MAX];
} syn_variant;

/* The template that serves a problem (one family a normal form); UNSUPPORTED with the reason when none does. */
RTX_MUST_CHECK rtx_status syn_match(const syn_problem *p, const syn_template **out, rtx_err *err);
/* May this variant be compiled for the problem at this level, whatever the machine? false gives a reason (static text or
 * in err). */
bool syn_variant_legal(const syn_problem *p, const syn_variant *v, fmt_isa isa, rtx_err *err);
/* Best static rule: the first seed whose condition holds for these symbol values (NULL = at large sizes). It knows no
 * machine, so that what is built without tuning is reproducible. */
void syn_variant_default(const syn_problem *p, fmt_isa isa, const int64_t *sym, syn_variant *out);
/* Distinct legal variants in canonical order, seeds first; at most cap. Returns how many. hw may be NULL. */
size_t syn_variant_list(const syn_problem *p, fmt_isa isa, const hw_facts *hw, const int64_t *sym,
                        syn_variant *out, size_t cap);
/* Facts that the list depends on, a bit for each hw_fact: recorded while every expression of the template is evaluated
 * once. One evaluation reads all, since operators have no short cut. */
uint32_t syn_facts_read(const syn_problem *p, fmt_isa isa);
/* A size by its role name (HOWTO.md); false when the problem's family has no such role. sym NULL = large sizes. */
bool syn_role(const syn_problem *p, const int64_t *sym, const char *name, int64_t *out_v);
void syn_variant_print(const syn_variant *v, base_buf *b); /* "MR=6 NP=4 …" */
bool syn_variant_parse(const syn_template *t, const char *text, syn_variant *out);

/* One compilation unit: prelude once, then kernels. A kernel named f exports f_plan and f_run (fmt_kabi.h). */
void syn_unit_begin(base_buf *text, fmt_isa isa);
RTX_MUST_CHECK rtx_status syn_unit_add(base_buf *text, const syn_problem *p, const syn_variant *v,
                                       fmt_isa isa, const char *kernel_name, rtx_err *err);
const char *syn_flags(fmt_isa isa); /* compiler options, space separated; part of every key */

/* ---- precompiled set: the same renderer, run at build time ---- */
typedef struct syn_ready {
    const char *name, *templ, *params;
    const uint8_t *code;
    size_t code_bytes;
    uint32_t plan_entry, run_entry;
} syn_ready;
/* The precompiled kernel of a general problem; NULL if the set has none (then fuse must cut further). */
const syn_ready *syn_ready_find(const syn_problem *general, fmt_isa isa);
/* The same, telling a set without it (OK, *out = NULL) from NOMEM. */
RTX_MUST_CHECK rtx_status syn_ready_lookup(const syn_problem *general, fmt_isa isa,
                                           const syn_ready **out, rtx_err *err);

#endif
