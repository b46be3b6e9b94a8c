/* Rules of pass fold for index arithmetic: comparisons that sizes decide, and gathers whose indices count upwards, which
 * are slices, reshapes and broadcasts of the table (exporters select masks and positions this way).
 *   layer    L2 passes; may include base, format, ir
 *   entry    pass_fold_indices */
#include "pass_match.h"

/* ---- comparisons ---- */

/* Truth of (lo ≤ a - b ≤ hi) op 0: 1, 0, or -1 for "depends". */
static int decide(ir_op op, int64_t lo, int64_t hi)
{
    switch (op) {
    case IR_lt:
        return hi < 0 ? 1 : lo >= 0 ? 0 : -1;
    case IR_le:
        return hi <= 0 ? 1 : lo > 0 ? 0 : -1;
    case IR_gt:
        return lo > 0 ? 1 : hi <= 0 ? 0 : -1;
    case IR_ge:
        return lo >= 0 ? 1 : hi < 0 ? 0 : -1;
    case IR_eq:
        return lo == 0 && hi == 0 ? 1 : lo > 0 || hi < 0 ? 0 : -1;
    case IR_ne:
        return lo == 0 && hi == 0 ? 0 : lo > 0 || hi < 0 ? 1 : -1;
    default:
        return -1;
    }
}

/* A comparison of positions and sizes that holds for all of them, or for none: iota ≥ 0 = true. */
static ir_id fold_compare(ir_graph *g, const pm_node *n)
{
    pm_index a, b, d;
    int64_t lo, hi;
    if (n->op < IR_eq || n->op > IR_ge || !pm_index_of(g, n->in[0], &a) ||
        !pm_index_of(g, n->in[1], &b) || !pm_index_sub(g, &a, &b, &d))
        return 0;
    ir_type t = *ir_type_of(g, n->in[0]);
    pm_index_range(g, &d, &t, &lo, &hi);
    int truth = decide(n->op, lo, hi);
    return truth < 0 ? 0 : pm_splat(g, FMT_BOOL, truth, t.dim, t.rank);
}

/* ---- picking a view out of a table ---- */

/* One indexed axis of the table: which part of it is read, and which axis of the indices walks along it (-1 = none). */
typedef struct pick_axis {
    fmt_dim start, size;
    int64_t step;
    int along;
} pick_axis;

typedef struct pick {
    ir_id x;
    int axis, n; /* the first indexed axis of x, and how many */
    pick_axis part[FMT_RANK_MAX];
    int rank; /* of the indices, without an index-depth axis */
    fmt_dim dim[FMT_RANK_MAX];
} pick;

static ir_id pick_slice(ir_graph *g, const pick *p)
{
    ir_type t = *ir_type_of(g, p->x);
    fmt_dim start[FMT_RANK_MAX], size[FMT_RANK_MAX];
    int64_t step[FMT_RANK_MAX];
    for (int j = 0; j < t.rank; j++) {
        const pick_axis *a = j >= p->axis && j < p->axis + p->n ? &p->part[j - p->axis] : NULL;
        start[j] = a ? a->start : fmt_dim_const(g->dims, 0);
        size[j] = a ? a->size : t.dim[j];
        step[j] = a ? a->step : 1;
    }
    return pm_slice(g, p->x, start, size, step);
}

/* table[…, indices, …] as slice, permute, reshape, broadcast. */
static ir_id pick_emit(ir_graph *g, const pick *p)
{
    ir_id y = pick_slice(g, p);
    if (!y)
        return 0;
    ir_type t = *ir_type_of(g, y);
    int from[FMT_RANK_MAX], n = 0, out = 0, tail = t.rank - p->axis - p->n;
    int64_t perm[FMT_RANK_MAX] = {0};
    fmt_dim small[FMT_RANK_MAX], wide[FMT_RANK_MAX];
    if (p->axis + p->rank + tail > FMT_RANK_MAX)
        return 0;
    for (int j = 0; j < p->rank; j++) {
        from[j] = -1;
        for (int k = 0; k < p->n; k++)
            if (p->part[k].along == j)
                from[j] = k;
    }
    for (int j = 0; j < p->axis; j++, out++) {
        perm[n++] = j;
        small[out] = wide[out] = t.dim[j];
    }
    for (int j = 0; j < p->rank; j++, out++) { /* axes in the order of the indices */
        if (from[j] >= 0)
            perm[n++] = p->axis + from[j];
        small[out] = from[j] >= 0 ? p->part[from[j]].size : fmt_dim_const(g->dims, 1);
        wide[out] = p->dim[j];
    }
    for (int k = 0; k < p->n;
         k++) /* axes of size 1 that no index walks: they vanish in the reshape */
        if (p->part[k].along < 0)
            perm[n++] = p->axis + k;
    for (int j = 0; j < tail; j++, out++) {
        perm[n++] = p->axis + p->n + j;
        small[out] = wide[out] = t.dim[p->axis + p->n + j];
    }
    y = pm_permute(g, y, perm);
    y = y ? pm_reshape(g, y, small, (uint32_t)out) : 0;
    return y ? pm_broadcast(g, y, wide, (uint32_t)out) : 0;
}

/* Indices base + step i, proven to lie in [0, size): one part of the axis. More than one stepping axis: no. */
static bool pick_line(const ir_graph *g, const pm_index *ix, const fmt_dim *dims, fmt_dim size,
                      pick_axis *out)
{
    int64_t step = 1, lo, hi, unused;
    int along = -1;
    for (int j = 0; j < ix->rank; j++) {
        if (fmt_dim_is(g->dims, ix->step[j], 0))
            continue;
        if (along >= 0 || !fmt_dim_is_const(g->dims, ix->step[j], &step) || step < 1)
            return false;
        along = j;
    }
    fmt_dim one = fmt_dim_const(g->dims, 1), count = along < 0 ? one : dims[along],
            start = ix->base;
    int64_t first;
    if (along < 0 && fmt_dim_is_const(g->dims, start, &first) && first < 0)
        start = fmt_dim_add(g->dims, start, size);
    fmt_dim last =
        fmt_dim_mul(g->dims, fmt_dim_const(g->dims, step), fmt_dim_sub(g->dims, count, one));
    last = fmt_dim_add(g->dims, start, last);
    fmt_dim_range(g->dims, start, &lo, &unused);
    fmt_dim_range(g->dims, fmt_dim_sub(g->dims, size, last), &hi, &unused);
    *out = (pick_axis){start, count, step, along};
    return lo >= 0 && hi >= 1;
}

/* Indices that count through all of an axis as digits of a number: i_b * S + i_s over B * S. The axis is split. */
static bool pick_digits(ir_graph *g, const pm_index *ix, pick *p)
{
    ir_type t = *ir_type_of(g, p->x);
    fmt_dim have = fmt_dim_const(g->dims, 1);
    int along[FMT_RANK_MAX], n = 0;
    bool done[FMT_RANK_MAX] = {0};
    if (!fmt_dim_is(g->dims, ix->base, 0))
        return false;
    for (bool found = true; found;) {
        found = false;
        for (int j = 0; j < ix->rank && !found; j++)
            if (!done[j] && ix->step[j] == have) {
                along[n++] = j;
                done[j] = found = true;
                have = fmt_dim_mul(g->dims, have, p->dim[j]);
            }
    }
    for (int j = 0; j < ix->rank; j++)
        if (!done[j] && !fmt_dim_is(g->dims, ix->step[j], 0))
            return false;
    if (n < 2 || have != t.dim[p->axis] || t.rank + n - 1 > FMT_RANK_MAX)
        return false;
    fmt_dim dims[FMT_RANK_MAX];
    int rank = 0;
    for (int j = 0; j < t.rank; j++)
        for (int k = j == p->axis ? n : 1; k-- > 0;)
            dims[rank++] = j == p->axis ? p->dim[along[k]] : t.dim[j];
    p->x = pm_reshape(g, p->x, dims, (uint32_t)rank);
    p->n = n;
    for (int k = 0; k < n; k++) {
        int j = along[n - 1 - k];
        p->part[k] = (pick_axis){fmt_dim_const(g->dims, 0), p->dim[j], 1, j};
    }
    return p->x != 0;
}

/* gather by positions is a view. */
static ir_id fold_gather(ir_graph *g, const pm_node *n)
{
    pm_index ix;
    if (n->op != IR_gather || !pm_index_of(g, n->in[1], &ix))
        return 0;
    ir_type t = *ir_type_of(g, n->in[0]), i = *ir_type_of(g, n->in[1]);
    int64_t axis = n->attrs->i[0] + (n->attrs->i[0] < 0 ? t.rank : 0);
    pick p = {.x = n->in[0], .axis = (int)axis, .n = 1, .rank = i.rank};
    memcpy(p.dim, i.dim, sizeof p.dim);
    if (!pick_line(g, &ix, p.dim, t.dim[axis], &p.part[0]) && !pick_digits(g, &ix, &p))
        return 0;
    return pick_emit(g, &p);
}

/* gather_nd whose index columns each walk along one axis of their own. */
static ir_id fold_gather_nd(ir_graph *g, const pm_node *n)
{
    if (n->op != IR_gather_nd || n->attrs->i[0] != 0)
        return 0;
    ir_type t = *ir_type_of(g, n->in[0]), i = *ir_type_of(g, n->in[1]);
    int64_t depth;
    if (i.rank == 0 || !fmt_dim_is_const(g->dims, i.dim[i.rank - 1], &depth) || depth > t.rank)
        return 0;
    pick p = {.x = n->in[0], .n = (int)depth, .rank = i.rank - 1};
    memcpy(p.dim, i.dim, sizeof p.dim);
    bool joined = pm_is(g, n->in[1], IR_concat) && ir_attrs_of(g, n->in[1])->i[0] == i.rank - 1;
    if (!joined && depth != 1)
        return 0;
    unsigned walked = 0;
    for (int k = 0; k < depth; k++) {
        ir_id column = joined ? ir_in(g, n->in[1], (uint32_t)k) : n->in[1];
        pm_index ix;
        if (joined && ir_node_get(g, n->in[1])->n_in != (uint32_t)depth)
            return 0;
        if (!pm_index_of(g, column, &ix) || !pick_line(g, &ix, p.dim, t.dim[k], &p.part[k]))
            return 0;
        int along = p.part[k].along;
        if (along >= 0 && walked & 1u << along)
            return 0; /* a diagonal */
        walked |= along >= 0 ? 1u << along : 0;
    }
    return pick_emit(g, &p);
}

static const pm_rule rules[] = {fold_compare, fold_gather, fold_gather_nd};

ir_id pass_fold_indices(ir_graph *g, const pm_node *n)
{
    return pm_first(rules, COUNT_OF(rules), g, n);
}
