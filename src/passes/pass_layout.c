/* pass layout: dots that share their left operand become one dot over joined weights.
 *   layer    L2 passes; may include base, format, ir
 *   entry    pass_layout
 *   why      q, k and v (or gate and up) read the same rows: one product reads them once and has more columns to spread
 *   form     dot(a, w1), dot(a, w2) → slices of dot(a, [w1 w2]); with a bias after every one: of dot(a, [w1 w2]) + [b1 b2] */
#include "pass_match.h"

typedef struct member {
    ir_id dot, add; /* add = 0 without bias */
    ir_id weight, bias;
    int64_t first, cols;
} member;

typedef struct group {
    ir_id left;
    uint32_t first, n; /* members, in order of their dots */
    int64_t cols;
    bool biased;
    ir_id merged; /* in the new graph, made at its first use */
} group;

typedef struct plan {
    member *members;
    group *groups;
    uint32_t n_members, n_groups;
    uint32_t *member_of; /* old id of a dot or of its bias add → member + 1 */
    uint32_t *group_of;  /* member → group + 1 */
} plan;

/* ---- finding ---- */

/* id = dot(a, constant [K,N]) of rank 2. */
static bool weight_dot(const ir_graph *g, ir_id id)
{
    return pm_is(g, id, IR_dot) && pm_is(g, ir_in(g, id, 1), IR_const) &&
           ir_type_of(g, id)->rank == 2 && !pm_is(g, ir_in(g, id, 0), IR_const);
}

/* id = dot + broadcast of a constant vector; gives both. */
static bool bias_add(const ir_graph *g, ir_id id, ir_id *out_dot, ir_id *out_bias)
{
    if (!pm_is(g, id, IR_add))
        return false;
    for (uint32_t k = 0; k < 2; k++) {
        ir_id dot = ir_in(g, id, k), b = ir_in(g, id, 1 - k);
        if (!weight_dot(g, dot) || !pm_is(g, b, IR_broadcast) ||
            !pm_is(g, ir_in(g, b, 0), IR_const))
            continue;
        const ir_type *t = ir_type_of(g, ir_in(g, b, 0));
        *out_dot = dot;
        *out_bias = ir_in(g, b, 0);
        return t->rank == 1 && t->dim[0] == ir_type_of(g, dot)->dim[1];
    }
    return false;
}

static void list_members(const ir_graph *g, const uint32_t *uses, plan *p)
{
    for (ir_id id = 1; id < g->n_nodes; id++) {
        ir_id dot, bias;
        if (weight_dot(g, id)) {
            member m = {.dot = id, .weight = ir_in(g, id, 1)};
            fmt_dim_is_const(g->dims, ir_type_of(g, id)->dim[1], &m.cols);
            p->members[p->n_members] = m;
            p->member_of[id] = ++p->n_members;
        } else if (bias_add(g, id, &dot, &bias) && uses[dot] == 1) {
            member *m = &p->members[p->member_of[dot] - 1];
            m->add = id;
            m->bias = bias;
            p->member_of[id] = p->member_of[dot];
        }
    }
}

static int by_left(const ir_graph *g, const member *a, const member *b)
{
    ir_id x = ir_in(g, a->dot, 0), y = ir_in(g, b->dot, 0);
    return x != y ? (x < y ? -1 : 1) : a->dot < b->dot ? -1 : 1;
}

/* Members with one left operand stand together; insertion keeps it short, and there are few dots. */
static void sort_members(const ir_graph *g, plan *p)
{
    for (uint32_t i = 1; i < p->n_members; i++) {
        member m = p->members[i];
        uint32_t at = i;
        for (; at > 0 && by_left(g, &m, &p->members[at - 1]) < 0; at--)
            p->members[at] = p->members[at - 1];
        p->members[at] = m;
    }
}

static void form_groups(const ir_graph *g, plan *p)
{
    sort_members(g, p);
    for (uint32_t i = 0, end; i < p->n_members; i = end) {
        group q = {.left = ir_in(g, p->members[i].dot, 0), .first = i, .biased = true};
        for (end = i; end < p->n_members && ir_in(g, p->members[end].dot, 0) == q.left; end++) {
            member *m = &p->members[end];
            m->first = q.cols;
            q.cols += m->cols;
            q.biased &= m->add != 0;
        }
        q.n = end - i;
        for (uint32_t k = i; k < end; k++) {
            const member *m = &p->members[k];
            p->member_of[m->dot] = k + 1;
            if (m->add)
                p->member_of[m->add] = k + 1;
            p->group_of[k] = q.n >= 2 ? p->n_groups + 1 : 0;
        }
        if (q.n >= 2)
            p->groups[p->n_groups++] = q;
    }
}

/* ---- rewriting ---- */

/* Join constants of the members column by column: rows × Σ cols. */
static ir_id join_columns(ir_graph *g, const ir_graph *old, const plan *p, const group *q,
                          bool bias)
{
    ir_id first = bias ? p->members[q->first].bias : p->members[q->first].weight;
    ir_type t = *ir_type_of(old, first);
    int64_t rows = 1;
    if (!bias)
        fmt_dim_is_const(g->dims, t.dim[0], &rows);
    size_t bytes = (size_t)(rows * q->cols) * sizeof(float);
    AUTO_FREE char *data = base_alloc(BASE_TAG_PASSES, bytes);
    if (!data)
        return ir_bad(g, RTX_NOMEM, "out of memory");
    for (uint32_t k = 0; k < q->n; k++) {
        const member *m = &p->members[q->first + k];
        const char *from = ir_const_of(old, bias ? m->bias : m->weight)->data;
        size_t row = (size_t)m->cols * sizeof(float);
        for (int64_t r = 0; row && r < rows; r++)
            memcpy(data + (size_t)(r * q->cols + m->first) * sizeof(float), from + (size_t)r * row,
                   row);
    }
    t.dim[t.rank - 1] = fmt_dim_const(g->dims, q->cols);
    return ir_const_copy(g, &t, data, bytes);
}

static ir_id merged(ir_graph *g, const ir_graph *old, const plan *p, group *q, ir_id left)
{
    if (q->merged)
        return q->merged;
    ir_id w = join_columns(g, old, p, q, false), y = w ? pm_bin(g, IR_dot, left, w) : 0;
    if (y && q->biased) {
        ir_type t = *ir_type_of(g, y);
        ir_id b = join_columns(g, old, p, q, true);
        b = b ? pm_broadcast(g, b, t.dim, t.rank) : 0;
        y = b ? pm_bin(g, IR_add, y, b) : 0;
    }
    return q->merged = y;
}

static ir_id columns(ir_graph *g, ir_id x, const member *m)
{
    fmt_dim rows = ir_type_of(g, x)->dim[0], zero = fmt_dim_const(g->dims, 0);
    fmt_dim start[2] = {zero, fmt_dim_const(g->dims, m->first)},
            size[2] = {rows, fmt_dim_const(g->dims, m->cols)};
    return pm_slice(g, x, start, size, (int64_t[]){1, 1});
}

static ir_id merge_node(void *ctx, const ir_graph *old, ir_id id, ir_graph *g, const ir_id *in)
{
    plan *p = ctx;
    uint32_t m = p->member_of[id], q = m ? p->group_of[m - 1] : 0;
    if (!q)
        return ir_copy_node(g, old, id, in);
    group *grp = &p->groups[q - 1];
    if (pm_is(old, id, IR_add)) {
        if (!grp->biased)
            return ir_copy_node(g, old, id, in);
        /* the dot before it made the merged node; its slice holds dot + bias already */
        return in[pm_is(old, ir_in(old, id, 0), IR_dot) ? 0 : 1];
    }
    ir_id y = merged(g, old, p, grp, in[0]);
    return y ? columns(g, y, &p->members[m - 1]) : 0;
}

rtx_status pass_layout(const ir_graph *g, ir_graph **out, rtx_err *err)
{
    plan p = {0};
    AUTO_FREE uint32_t *uses = NULL, *member_of = NULL, *group_of = NULL;
    AUTO_FREE member *members = NULL;
    AUTO_FREE group *groups = NULL;
    TRY_ALLOC(uses = ir_use_counts(g), err);
    TRY_ALLOC(member_of = base_zalloc_array(BASE_TAG_PASSES, g->n_nodes, sizeof *member_of), err);
    TRY_ALLOC(group_of = base_zalloc_array(BASE_TAG_PASSES, g->n_nodes, sizeof *group_of), err);
    TRY_ALLOC(members = base_zalloc_array(BASE_TAG_PASSES, g->n_nodes, sizeof *members), err);
    TRY_ALLOC(groups = base_zalloc_array(BASE_TAG_PASSES, g->n_nodes, sizeof *groups), err);
    p = (plan){.members = members, .groups = groups, .member_of = member_of, .group_of = group_of};
    list_members(g, uses, &p);
    form_groups(g, &p);
    return pm_fixed_point(g, merge_node, &p, 1, out, err);
}
