/* From a cut graph to a plan: views become strides, regions become problems, values become buffers.
 *   layer      L4 lower; may include base, format, ir, passes, synth; never tune or run
 *   owner      lower_result owns plan, problems and packed constants; unpacked constants are borrowed from the model
 *   threads    one thread a graph; packing may use the pool
 *   why        ARCHITECTURE has lower among the passes; it builds synth's problems, so it stands above both (ADR 0006) */
#ifndef LOWER_H
#define LOWER_H

#include "fmt_bundle.h"
#include "pass_cost.h"
#include "pass_fuse.h"
#include "syn.h"

/* Constants of a bundle: each distinct (data, form) once, 64-byte aligned, shared by every plan of the file. */
typedef struct lower_const {
    const void *data; /* borrowed, or owned when packed */
    uint64_t offset, bytes;
    const void *key;     /* source data and packing of it, for deduplication */
    int64_t k, n, batch; /* packed form: 0 = as is */
    void *owned;
} lower_const;

typedef struct lower_consts {
    lower_const *items;
    uint32_t n, cap;
    uint64_t bytes; /* end of the section so far */
} lower_consts;
void lower_consts_done(lower_consts *c);
/* The section as pieces with padding between, for fmt_bundle_write. Caller frees out->items with base_free. */
RTX_MUST_CHECK rtx_status lower_consts_pieces(const lower_consts *c, fmt_pieces *out, rtx_err *err);

typedef enum lower_mode {
    LOWER_BAKED,  /* regions as fused, sizes that are constant are baked: for tuning */
    LOWER_READY,  /* regions cut to the precompiled set, problems generalised */
    LOWER_UNFUSED /* each op alone, baked: the baseline */
} lower_mode;

/* One distinct problem of the plan; index = slot. */
typedef struct lower_slot {
    syn_problem *problem;
    fmt_dim sym[SYN_SYMS_MAX]; /* size expression of the plan behind each region symbol */
    uint32_t n_sym;
    uint32_t uses; /* steps that call it */
    fmt_str name;  /* of its first step */
    char *region;  /* where work was fused: the region's own text (lower_region_text); else NULL */
    bool anchored; /* it was fused onto something that is not elementwise */
} lower_slot;

typedef struct lower_result {
    fmt_plan *plan; /* steps, values, ports, slots; rows and kernels are added after tuning */
    lower_slot *slots;
    uint32_t n_slots, cap_slots;
} lower_result;

/* The plan has its own copy of the pool, so both plans of a bundle and the graph stay independent. */
RTX_MUST_CHECK rtx_status lower_graph(const ir_graph *g, lower_mode mode, lower_consts *consts,
                                      lower_result *out, rtx_err *err);
void lower_result_done(lower_result *r);

/* The same, where the regions of these texts are cut at their last step of growth. consts NULL: a plan to look at, whose
 * constants have no place. */
typedef struct lower_deny {
    const char *text[16];
    uint32_t n;
} lower_deny;
RTX_MUST_CHECK rtx_status lower_graph_cut(const ir_graph *g, lower_mode mode,
                                          const lower_deny *deny, lower_consts *consts,
                                          lower_result *out, rtx_err *err);

/* ---- one region by itself (lower_region.c); operands count as contiguous, constants as constants ---- */

/* Callbacks of pass_fuse; ctx = lower_ask *. Would lowering accept this region as one kernel? Is it not denied? */
typedef struct lower_ask {
    lower_mode mode;
    const lower_deny *deny; /* NULL = nothing */
    bool nomem;             /* an answer was false for lack of memory */
} lower_ask;
bool lower_legal(void *ctx, const ir_graph *g, const pass_region *candidate);
bool lower_whole(void *ctx, const ir_graph *g, const pass_region *finished);
/* Text of the problem that the region is by itself: its name in a deny set, whatever views it reads. */
RTX_MUST_CHECK rtx_status lower_region_text(const ir_graph *g, const pass_region *r,
                                            lower_mode mode, base_buf *out, rtx_err *err);
/* Work of a problem for symbol values, parted where its region grew last; false when it is an anchor alone or none. */
bool lower_region_work(const syn_problem *p, const int64_t *sym, pass_work *out);

/* ---- within the module ---- */

/* Where a node's elements lie: in one value, with a stride per axis, all in elements. */
typedef struct lower_view {
    uint32_t value; /* FMT_NONE = not materialised */
    ir_id constant; /* the const node when the value is not yet placed in the section */
    fmt_dim offset;
    fmt_dim stride[FMT_RANK_MAX];
} lower_view;

/* One operand of a region before its dimensions are collapsed. Axes are the logical ones of the region's normal form. */
typedef struct lower_operand {
    fmt_dtype dtype;
    int rank;
    fmt_dim dim[FMT_RANK_MAX], stride[FMT_RANK_MAX];
} lower_operand;

fmt_dim lower_row_major(fmt_dims *d, const ir_type *t,
                        fmt_dim *out_stride); /* strides; returns the element count */
bool lower_contiguous(fmt_dims *d, const ir_type *t, const lower_view *v);
/* The view of a view node, from the view of its input; false when strides cannot say it (reshape of a strided view). */
bool lower_view_of(const ir_graph *g, ir_id id, const lower_view *in, lower_view *out);

/* Build the problem of a region whose outside operands lie as `views` (indexed by node id) says; out_view is where the root
 * is to be written. baked: splat constants become scalars of the kernel text and equal
 * operands are one; else every use is an operand, as the precompiled kernels have it. Gives the operands in order and the kernel arguments as expressions of the graph's pool. */
typedef struct lower_built {
    syn_problem *problem;
    ir_id operand[SYN_OPERANDS_MAX]; /* node ids, inputs first; outputs are the root */
    uint32_t n_in, n_out;
    fmt_dim sym[SYN_SYMS_MAX];
    uint32_t n_sym;
    fmt_dim arg[SYN_SYMS_MAX + SYN_OPERANDS_MAX * FMT_RANK_MAX];
    uint32_t n_arg;
    int packed; /* operand that wants the packed form, or -1 */
} lower_built;
RTX_MUST_CHECK rtx_status lower_build(const ir_graph *g, const pass_region *r,
                                      const lower_view *views, const lower_view *out_view,
                                      bool baked, lower_built *out, rtx_err *err);
void lower_built_done(lower_built *b);

#endif
