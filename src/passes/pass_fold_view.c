/* Rules of pass fold for views: they compose, and move outward over elementwise work (broadcast outermost, then reshape
 * and permute, then arithmetic), so that arithmetic is done on the smallest shape and masks have one form.
 *   layer    L2 passes; may include base, format, ir
 *   entry    pass_fold_views */
#include "pass_match.h"

static const ir_attrs *attrs_of(const ir_graph *g, ir_id id) { return ir_attrs_of(g, id); }

static ir_type type_of(const ir_graph *g, ir_id id) { return *ir_type_of(g, id); }

/* Number of trailing sizes that two types share. */
static int common_tail(const ir_type *a, const ir_type *b)
{
    int k = 0;
    while (k < a->rank && k < b->rank && a->dim[a->rank - 1 - k] == b->dim[b->rank - 1 - k])
        k++;
    return k;
}

/* ---- views that do nothing, views of views ---- */

static bool full_slice(const ir_graph *g, const pm_node *n, const ir_type *t)
{
    for (int j = 0; j < t->rank; j++)
        if (!fmt_dim_is(g->dims, n->attrs->dims[j], 0) || n->attrs->list[j] != 1 ||
            n->attrs->sizes[j] != t->dim[j])
            return false;
    return true;
}

static bool in_order(const ir_attrs *permute)
{
    for (int j = 0; j < permute->n_list; j++)
        if (permute->list[j] != j)
            return false;
    return true;
}

/* A view that gives back its input. concat(x) = x. */
static ir_id view_identity(ir_graph *g, const pm_node *n)
{
    ir_type t = type_of(g, n->in[0]), to = {.rank = n->attrs->n_dims};
    bool same;
    memcpy(to.dim, n->attrs->dims, sizeof to.dim);
    switch (n->op) {
    case IR_concat:
        same = n->n_in == 1;
        break;
    case IR_slice:
        same = full_slice(g, n, &t);
        break;
    case IR_permute:
        same = in_order(n->attrs);
        break;
    case IR_reshape:
    case IR_broadcast:
        same = pm_same_dims(&t, &to);
        break;
    default:
        return 0;
    }
    return same ? n->in[0] : 0;
}

/* reshape(reshape x) = reshape x, broadcast(broadcast x) = broadcast x. */
static ir_id view_twice(ir_graph *g, const pm_node *n)
{
    if ((n->op != IR_reshape && n->op != IR_broadcast) || !pm_is(g, n->in[0], n->op))
        return 0;
    ir_id x = ir_in(g, n->in[0], 0);
    return pass_emit(g, n->op, &x, 1, n->attrs);
}

/* permute(permute x) = permute x. */
static ir_id permute_twice(ir_graph *g, const pm_node *n)
{
    if (n->op != IR_permute || !pm_is(g, n->in[0], IR_permute))
        return 0;
    int64_t perm[FMT_RANK_MAX] = {0};
    for (int j = 0; j < n->attrs->n_list; j++)
        perm[j] = attrs_of(g, n->in[0])->list[n->attrs->list[j]];
    return pm_permute(g, ir_in(g, n->in[0], 0), perm);
}

/* A permute that only moves axes of size 1 is a reshape. */
static ir_id permute_units(ir_graph *g, const pm_node *n)
{
    if (n->op != IR_permute)
        return 0;
    ir_type t = type_of(g, n->in[0]);
    fmt_dim dims[FMT_RANK_MAX];
    int64_t last = -1;
    for (int j = 0; j < t.rank; j++) {
        int64_t from = n->attrs->list[j];
        dims[j] = t.dim[from];
        if (pm_unit(g, dims[j]))
            continue;
        if (from < last)
            return 0;
        last = from;
    }
    return pm_reshape(g, n->in[0], dims, t.rank);
}

/* slice(slice x): starts add, steps multiply, while they stay in range. */
static ir_id slice_twice(ir_graph *g, const pm_node *n)
{
    if (n->op != IR_slice || !pm_is(g, n->in[0], IR_slice))
        return 0;
    const ir_attrs *in = attrs_of(g, n->in[0]), *out = n->attrs;
    fmt_dim start[FMT_RANK_MAX], size[FMT_RANK_MAX];
    int64_t step[FMT_RANK_MAX];
    for (int j = 0; j < out->n_dims; j++) {
        if (__builtin_mul_overflow(in->list[j], out->list[j], &step[j]) ||
            step[j] > FMT_DIM_LIMIT || step[j] < -FMT_DIM_LIMIT)
            return 0;
        fmt_dim inner = fmt_dim_const(g->dims, in->list[j]);
        start[j] = fmt_dim_add(g->dims, in->dims[j], fmt_dim_mul(g->dims, out->dims[j], inner));
        size[j] = out->sizes[j];
    }
    return pm_slice(g, ir_in(g, n->in[0], 0), start, size, step);
}

/* slice(broadcast x) = broadcast(slice x). */
static ir_id slice_broadcast(ir_graph *g, const pm_node *n)
{
    if (n->op != IR_slice || !pm_is(g, n->in[0], IR_broadcast))
        return 0;
    ir_id x = ir_in(g, n->in[0], 0);
    ir_type t = type_of(g, x);
    int lead = n->attrs->n_dims - t.rank;
    fmt_dim start[FMT_RANK_MAX], size[FMT_RANK_MAX], one = fmt_dim_const(g->dims, 1);
    int64_t step[FMT_RANK_MAX];
    for (int j = 0; j < t.rank; j++) {
        bool stretched = pm_unit(g, t.dim[j]);
        start[j] = stretched ? fmt_dim_const(g->dims, 0) : n->attrs->dims[lead + j];
        size[j] = stretched ? one : n->attrs->sizes[lead + j];
        step[j] = stretched ? 1 : n->attrs->list[lead + j];
    }
    return pm_broadcast(g, pm_slice(g, x, start, size, step), n->attrs->sizes, n->attrs->n_sizes);
}

/* A slice inside one piece of a concat is a slice of that piece. */
static ir_id slice_concat(ir_graph *g, const pm_node *n)
{
    if (n->op != IR_slice || !pm_is(g, n->in[0], IR_concat))
        return 0;
    int64_t axis = attrs_of(g, n->in[0])->i[0];
    if (n->attrs->list[axis] != 1)
        return 0;
    fmt_dim at = fmt_dim_const(g->dims, 0),
            end = fmt_dim_add(g->dims, n->attrs->dims[axis], n->attrs->sizes[axis]);
    for (uint32_t k = 0; k < ir_node_get(g, n->in[0])->n_in; k++) {
        ir_id piece = ir_in(g, n->in[0], k);
        fmt_dim next = fmt_dim_add(g->dims, at, ir_type_of(g, piece)->dim[axis]);
        int64_t lo, hi, unused;
        fmt_dim_range(g->dims, fmt_dim_sub(g->dims, n->attrs->dims[axis], at), &lo, &unused);
        fmt_dim_range(g->dims, fmt_dim_sub(g->dims, next, end), &hi, &unused);
        if (lo >= 0 && hi >= 0) {
            fmt_dim start[FMT_RANK_MAX];
            memcpy(start, n->attrs->dims, sizeof start);
            start[axis] = fmt_dim_sub(g->dims, start[axis], at);
            return pm_slice(g, piece, start, n->attrs->sizes, n->attrs->list);
        }
        at = next;
    }
    return 0;
}

/* ---- broadcast in one form: outermost, from a source without leading sizes 1 ---- */

/* A broadcast that only adds leading sizes 1 is a reshape; leading sizes 1 below a broadcast are dropped. */
static ir_id broadcast_form(ir_graph *g, const pm_node *n)
{
    if (n->op != IR_broadcast)
        return 0;
    ir_type t = type_of(g, n->in[0]);
    int lead = n->attrs->n_dims - t.rank, units = 0;
    bool stretches = false;
    for (int j = 0; j < n->attrs->n_dims; j++)
        stretches |=
            j < lead ? !pm_unit(g, n->attrs->dims[j]) : n->attrs->dims[j] != t.dim[j - lead];
    if (!stretches)
        return pm_reshape(g, n->in[0], n->attrs->dims, n->attrs->n_dims);
    while (units < t.rank && pm_unit(g, t.dim[units]))
        units++;
    if (!units)
        return 0;
    return pm_broadcast(g, pm_reshape(g, n->in[0], t.dim + units, t.rank - units), n->attrs->dims,
                        n->attrs->n_dims);
}

/* reshape(broadcast x) = broadcast(reshape x) when only sizes 1 move, or x lives in the trailing sizes that stay. */
static ir_id reshape_broadcast(ir_graph *g, const pm_node *n)
{
    if (n->op != IR_reshape || !pm_is(g, n->in[0], IR_broadcast))
        return 0;
    ir_id x = ir_in(g, n->in[0], 0);
    ir_type wide = type_of(g, n->in[0]), t = type_of(g, x), out = {.rank = n->attrs->n_dims};
    memcpy(out.dim, n->attrs->dims, sizeof out.dim);
    if (t.rank <= common_tail(&wide, &out))
        return pm_broadcast(g, x, out.dim, out.rank);
    int8_t map[FMT_RANK_MAX];
    if (!pm_unit_map(g, &wide, &out, map))
        return 0;
    fmt_dim dims[FMT_RANK_MAX];
    for (int j = 0; j < out.rank; j++) {
        int from = map[j] - (wide.rank - t.rank);
        dims[j] = map[j] < 0 || from < 0 ? fmt_dim_const(g->dims, 1) : t.dim[from];
    }
    return pm_broadcast(g, pm_reshape(g, x, dims, out.rank), out.dim, out.rank);
}

/* permute(broadcast x) = broadcast(permute x). */
static ir_id permute_broadcast(ir_graph *g, const pm_node *n)
{
    if (n->op != IR_permute || !pm_is(g, n->in[0], IR_broadcast))
        return 0;
    ir_id x = ir_in(g, n->in[0], 0);
    ir_type wide = type_of(g, n->in[0]), t = type_of(g, x);
    fmt_dim full[FMT_RANK_MAX], out[FMT_RANK_MAX];
    for (int j = 0; j < wide.rank; j++) {
        int from = j - (wide.rank - t.rank);
        full[j] = from < 0 ? fmt_dim_const(g->dims, 1) : t.dim[from];
        out[j] = wide.dim[n->attrs->list[j]];
    }
    ir_id y = pm_permute(g, pm_reshape(g, x, full, wide.rank), n->attrs->list);
    return y ? pm_broadcast(g, y, out, wide.rank) : 0;
}

/* permute(reshape x) = reshape(permute x) when the reshape merges runs of axes, which then move as a block. */
static ir_id permute_merge(ir_graph *g, const pm_node *n)
{
    if (n->op != IR_permute || !pm_is(g, n->in[0], IR_reshape))
        return 0;
    ir_id x = ir_in(g, n->in[0], 0);
    ir_type t = type_of(g, x), m = type_of(g, n->in[0]);
    int first[FMT_RANK_MAX + 1], at = 0;
    for (int j = 0; j < m.rank; j++) { /* axes first[j] … first[j + 1] - 1 of x make axis j */
        first[j] = at;
        fmt_dim have = fmt_dim_const(g->dims, 1);
        while (have != m.dim[j]) {
            if (at == t.rank)
                return 0;
            have = fmt_dim_mul(g->dims, have, t.dim[at++]);
        }
    }
    for (first[m.rank] = t.rank; at < t.rank; at++)
        if (!pm_unit(g, t.dim[at]))
            return 0;
    int64_t perm[FMT_RANK_MAX] = {0};
    fmt_dim dims[FMT_RANK_MAX];
    int k = 0;
    for (int j = 0; j < m.rank; j++) {
        int64_t block = n->attrs->list[j];
        dims[j] = m.dim[block];
        for (int a = first[block]; a < first[block + 1]; a++)
            perm[k++] = a;
    }
    ir_id y = pm_permute(g, x, perm);
    return y ? pm_reshape(g, y, dims, m.rank) : 0;
}

/* ---- elementwise work below views ---- */

/* A constant of one value, in the given shape. */
static ir_id splat_as(ir_graph *g, ir_id id, double v, const fmt_dim *dims, uint32_t rank)
{
    return pm_splat(g, ir_type_of(g, id)->dtype, v, dims, rank);
}

/* f(broadcast x, broadcast y) = broadcast f(x, y) along every axis where no operand differs. */
static ir_id sink_broadcast(ir_graph *g, const pm_node *n)
{
    if (!ir_op_get(n->op)->elementwise)
        return 0;
    ir_type t = type_of(g, n->in[0]);
    bool used[FMT_RANK_MAX] = {0}, gain = false;
    int top = 0;
    for (uint32_t k = 0; k < n->n_in; k++) {
        double v;
        if (ir_is_splat(g, n->in[k], &v))
            continue;
        if (!pm_is(g, n->in[k], IR_broadcast))
            return 0;
        ir_type s = type_of(g, ir_in(g, n->in[k], 0));
        top = MAX(top, s.rank);
        for (int j = 0; j < s.rank; j++)
            used[t.rank - s.rank + j] |= !pm_unit(g, s.dim[j]);
    }
    fmt_dim small[FMT_RANK_MAX];
    for (int j = 0; j < t.rank; j++) {
        small[j] = used[j] ? t.dim[j] : fmt_dim_const(g->dims, 1);
        gain |= small[j] != t.dim[j];
    }
    if (!gain)
        return 0;
    ir_id in[3];
    const fmt_dim *dims = small + t.rank - top;
    for (uint32_t k = 0; k < n->n_in; k++) {
        double v;
        in[k] = ir_is_splat(g, n->in[k], &v)
                    ? splat_as(g, n->in[k], v, dims, (uint32_t)top)
                    : pm_broadcast(g, ir_in(g, n->in[k], 0), dims, (uint32_t)top);
        if (!in[k])
            return 0;
    }
    ir_id y = pass_emit(g, n->op, in, n->n_in, n->attrs);
    return y ? pm_broadcast(g, y, t.dim, t.rank) : 0;
}

/* The operand as it is before view `lead` (a reshape or permute), if that costs nothing; 0 if not. */
static ir_id before_view(ir_graph *g, ir_id lead, ir_id id)
{
    ir_type src = type_of(g, ir_in(g, lead, 0)), out = type_of(g, lead);
    double v;
    if (ir_is_splat(g, id, &v))
        return splat_as(g, id, v, src.dim, src.rank);
    ir_op op = ir_op_of(g, lead);
    if (pm_is(g, id, op)) {
        ir_type other = type_of(g, ir_in(g, id, 0));
        bool alike =
            op == IR_reshape || memcmp(attrs_of(g, id), attrs_of(g, lead), sizeof(ir_attrs)) == 0;
        return alike && pm_same_dims(&other, &src) ? ir_in(g, id, 0) : 0;
    }
    if (op == IR_reshape && pm_is(g, id, IR_broadcast)) {
        ir_id x = ir_in(g, id, 0);
        return ir_type_of(g, x)->rank <= common_tail(&src, &out)
                   ? pm_broadcast(g, x, src.dim, src.rank)
                   : 0;
    }
    return 0;
}

/* f(view x, view y) = view f(x, y) for one reshape or permute; constants of one value and trailing vectors follow. */
static ir_id hoist_view(ir_graph *g, const pm_node *n)
{
    if (!ir_op_get(n->op)->elementwise)
        return 0;
    ir_id lead = 0, in[3];
    for (uint32_t k = 0; k < n->n_in && !lead; k++)
        if (pm_is(g, n->in[k], IR_reshape) || pm_is(g, n->in[k], IR_permute))
            lead = n->in[k];
    if (!lead)
        return 0;
    for (uint32_t k = 0; k < n->n_in; k++)
        if (!(in[k] = before_view(g, lead, n->in[k])))
            return 0;
    ir_type out = type_of(g, lead);
    ir_attrs view = *attrs_of(g, lead);
    ir_op op = ir_op_of(g, lead);
    ir_id y = pass_emit(g, n->op, in, n->n_in, n->attrs);
    if (!y)
        return 0;
    return op == IR_permute ? pm_permute(g, y, view.list) : pm_reshape(g, y, out.dim, out.rank);
}

/* ---- reductions and dots ---- */

/* A reduction leaves out axes of size 1. */
static ir_id reduce_units(ir_graph *g, const pm_node *n)
{
    if (n->op < IR_reduce_sum || n->op > IR_reduce_prod)
        return 0;
    ir_type t = type_of(g, n->in[0]);
    bool gone[FMT_RANK_MAX] = {0};
    ir_attrs rest = {0};
    fmt_dim mid[FMT_RANK_MAX];
    int rank = 0, units = 0;
    for (int k = 0; k < n->attrs->n_list; k++) {
        int64_t axis = n->attrs->list[k];
        axis += axis < 0 ? t.rank : 0;
        gone[axis] = true;
    }
    for (int j = 0; j < t.rank; j++) {
        if (gone[j] && pm_unit(g, t.dim[j])) {
            units++;
            continue;
        }
        if (gone[j])
            rest.list[rest.n_list++] = rank;
        mid[rank++] = t.dim[j];
    }
    if (n->attrs->n_list && !units)
        return 0;
    ir_id x = pm_reshape(g, n->in[0], mid, (uint32_t)rank);
    return rest.n_list && x ? pass_emit(g, n->op, &x, 1, &rest) : x;
}

/* reduce(reshape x) = reshape(reduce x) when the reduced axes are among the trailing sizes that stay. Of x without elements
 * the leading sizes may differ in product. */
static ir_id reduce_reshape(ir_graph *g, const pm_node *n)
{
    if (n->op < IR_reduce_sum || n->op > IR_reduce_prod || !pm_is(g, n->in[0], IR_reshape))
        return 0;
    ir_id x = ir_in(g, n->in[0], 0);
    ir_type out = type_of(g, n->in[0]), in = type_of(g, x), left = {.rank = 0};
    int tail = common_tail(&in, &out);
    for (int j = 0; j < out.rank; j++)
        if (fmt_dim_is(g->dims, out.dim[j], 0))
            return 0;
    ir_attrs a = {.n_list = n->attrs->n_list};
    bool gone[FMT_RANK_MAX] = {0};
    for (int k = 0; k < a.n_list; k++) {
        int64_t axis = n->attrs->list[k] + (n->attrs->list[k] < 0 ? out.rank : 0);
        if (axis < out.rank - tail)
            return 0;
        gone[axis] = true;
        a.list[k] = axis + in.rank - out.rank;
    }
    for (int j = 0; j < out.rank; j++)
        if (!gone[j])
            left.dim[left.rank++] = out.dim[j];
    ir_id y = pass_emit(g, n->op, &x, 1, &a);
    return y ? pm_reshape(g, y, left.dim, left.rank) : 0;
}

/* a[…,M,K] · broadcast w[K,N] = (a as [… M, K]) · w: one flat product for weights shared by the batch. */
static ir_id dot_flat(ir_graph *g, const pm_node *n)
{
    if (n->op != IR_dot || !pm_is(g, n->in[1], IR_broadcast))
        return 0;
    ir_id w = ir_in(g, n->in[1], 0);
    ir_type a = type_of(g, n->in[0]), b = type_of(g, w);
    if (b.rank != 2 || a.rank <= 2 || b.dim[0] != a.dim[a.rank - 1] ||
        b.dim[1] != type_of(g, n->in[1]).dim[a.rank - 1])
        return 0;
    fmt_dim flat[2] = {a.dim[0], a.dim[a.rank - 1]};
    for (int j = 1; j < a.rank - 1; j++)
        flat[0] = fmt_dim_mul(g->dims, flat[0], a.dim[j]);
    ir_id x = pm_reshape(g, n->in[0], flat, 2), y = x ? pm_bin(g, IR_dot, x, w) : 0;
    a.dim[a.rank - 1] = b.dim[1];
    return y ? pm_reshape(g, y, a.dim, a.rank) : 0;
}

static const pm_rule rules[] = {
    view_identity,     view_twice,        permute_twice,  permute_units,
    slice_twice,       slice_broadcast,   slice_concat,   broadcast_form,
    reshape_broadcast, permute_broadcast, permute_merge,  sink_broadcast,
    hoist_view,        reduce_units,      reduce_reshape, dot_flat,
};

ir_id pass_fold_views(ir_graph *g, const pm_node *n)
{
    return pm_first(rules, COUNT_OF(rules), g, n);
}
