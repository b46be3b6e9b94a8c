/* Matching helpers shared by the rewriting passes: what a node means behind views, scales and index arithmetic.
 *   layer      L2 passes; may include base, format, ir
 *   owner      everything here is a value; ids belong to the graph that is being built
 *   threads    one thread a graph
 *   note       emitting may move a graph's arrays: copy a type before emitting, never keep a pointer across */
#ifndef PASS_MATCH_H
#define PASS_MATCH_H

#include "pass.h"

/* ---- emitting ---- */

/* ir_emit through the rules of pass_fold: what comes back is already simplified. 0 = failure, kept in g->err. */
ir_id pass_emit(ir_graph *g, ir_op op, const ir_id *in, uint32_t n_in, const ir_attrs *attrs);
/* Copy a node of another graph through the same rules, keeping its name; the base of every rule callback. */
ir_id pass_emit_copy(ir_graph *g, const ir_graph *old, ir_id old_id, const ir_id *in);
ir_id pm_un(ir_graph *g, ir_op op, ir_id a);
ir_id pm_bin(ir_graph *g, ir_op op, ir_id a, ir_id b);
ir_id pm_reshape(ir_graph *g, ir_id x, const fmt_dim *dims, uint32_t rank);
ir_id pm_broadcast(ir_graph *g, ir_id x, const fmt_dim *dims, uint32_t rank);
ir_id pm_permute(ir_graph *g, ir_id x, const int64_t *perm);
ir_id pm_swap_last(ir_graph *g, ir_id x); /* exchange the last two axes */
ir_id pm_slice(ir_graph *g, ir_id x, const fmt_dim *start, const fmt_dim *size,
               const int64_t *step);
ir_id pm_splat(ir_graph *g, fmt_dtype t, double v, const fmt_dim *dims, uint32_t rank);
ir_id pm_scaled(ir_graph *g, ir_id x, double scale); /* x * scale; x itself for 1 */
/* True when two graphs are node for node the same: a fixed point. */
bool pm_same_graph(const ir_graph *a, const ir_graph *b);
/* Apply rule until nothing changes, at most max_rounds times, dropping dead nodes after each round. */
RTX_MUST_CHECK rtx_status pm_fixed_point(const ir_graph *g, ir_rule rule, void *ctx, int max_rounds,
                                         ir_graph **out, rtx_err *err);

/* ---- small questions ---- */

static inline bool pm_is(const ir_graph *g, ir_id id, ir_op op)
{
    return id && ir_op_of(g, id) == op;
}
static inline bool pm_unit(const ir_graph *g, fmt_dim d) { return fmt_dim_is(g->dims, d, 1); }
static inline bool pm_elementwise(const ir_graph *g, ir_id id)
{
    return ir_op_get(ir_op_of(g, id))->elementwise;
}
bool pm_near(
    double a,
    double b); /* equal to 1e-6 relative: a constant written in f32, or computed in another order */
bool pm_same_dims(const ir_type *a, const ir_type *b);
bool pm_elems_const(const ir_graph *g, const ir_type *t,
                    int64_t *out_elems); /* true when every size is a constant */
/* For each axis of `to` the axis of `from` it comes from, -1 for sizes 1, when the two differ only in sizes 1. */
bool pm_unit_map(const ir_graph *g, const ir_type *from, const ir_type *to, int8_t *map);

/* ---- behind views ---- */

/* The node below broadcasts, permutes and reshapes that only move sizes 1: element [o…] of the outside is core at
 * index axis[j] = o[j]; axis[j] = -1 where the outside does not depend on o[j]. */
typedef struct pm_view {
    ir_id core;
    uint8_t rank;
    int8_t axis[FMT_RANK_MAX];
} pm_view;
pm_view pm_look(const ir_graph *g, ir_id id);
/* The node below reshapes that keep the last axis: the same rows in the same order. Rows are compared by this id. */
ir_id pm_rows(const ir_graph *g, ir_id id);
/* id = one value a row of the last axis, spread over the row; gives the node that holds the values, below reshapes. */
bool pm_row_value(const ir_graph *g, ir_id id, ir_id *out_core);
/* id = a vector of the last axis, spread over the others; *out_vec has rank 1 (emits a reshape where needed). */
bool pm_col_vector(ir_graph *g, ir_id id, ir_id *out_vec);

/* ---- products, lines, polynomials ---- */

#define PM_FACTORS 8
/* id = scale * num[0] * … / den[0] / …; constants that are all one value go into scale. */
typedef struct pm_product {
    double scale;
    uint8_t n_num, n_den;
    ir_id num[PM_FACTORS], den[PM_FACTORS];
} pm_product;
/* Flatten mul, div, neg and recip, not going below `stop`. False if there are too many factors. */
bool pm_product_of(const ir_graph *g, ir_id id, ir_id stop, pm_product *out);
/* The same, looking through reshapes that keep the last axis: factors may differ in shape, but not in rows. */
bool pm_row_product_of(const ir_graph *g, ir_id id, ir_id stop, pm_product *out);
bool pm_take(ir_id *list, uint8_t *n, ir_id id); /* remove one occurrence */

/* id = mul * core + add with constants. */
typedef struct pm_line {
    ir_id core;
    double mul, add;
} pm_line;
pm_line pm_line_of(const ir_graph *g, ir_id id);

/* id = c[0] + c[1] x + c[2] x² + c[3] x³. */
bool pm_poly_of(const ir_graph *g, ir_id id, ir_id x, double c[4]);

/* ---- integers that are a function of their position ---- */

/* Element [i…] = base + Σ step[j] i[j]. Steps of axes of size 1 are 0. */
typedef struct pm_index {
    uint8_t rank;
    fmt_dim base, step[FMT_RANK_MAX];
} pm_index;
bool pm_index_of(const ir_graph *g, ir_id id, pm_index *out);
bool pm_index_sub(const ir_graph *g, const pm_index *a, const pm_index *b, pm_index *out);
/* Proven range of all elements, clamped to ± FMT_DIM_LIMIT. */
void pm_index_range(const ir_graph *g, const pm_index *x, const ir_type *t, int64_t *out_lo,
                    int64_t *out_hi);

/* ---- rule sets in files of their own ---- */

typedef struct pm_node {
    ir_op op;
    uint32_t n_in;
    ir_id in[64];
    const ir_attrs *attrs; /* a copy of the caller: stable while rules emit */
} pm_node;
typedef ir_id (*pm_rule)(ir_graph *g,
                         const pm_node *n); /* the simpler node, or 0 = does not apply */
/* The first rule that applies, or 0. */
ir_id pm_first(const pm_rule *rules, size_t n_rules, ir_graph *g, const pm_node *n);
ir_id pass_fold_views(ir_graph *g, const pm_node *n);   /* pass_fold_view.c */
ir_id pass_fold_indices(ir_graph *g, const pm_node *n); /* pass_fold_index.c */
/* Raise the node `id` of the graph being built, or 0 (pass_raise_*.c). */
ir_id pass_raise_norm(ir_graph *g, ir_id id);
ir_id pass_raise_activation(ir_graph *g, ir_id id);
ir_id pass_raise_rope(ir_graph *g, ir_id id);
ir_id pass_raise_attention(ir_graph *g, ir_id id);

#endif
