/* A region and where its operands lie → a problem in synth's normal form, with the arguments that a step passes to it.
 * Axes come in groups (all axes of elementwise work; outer axes of rows; batch and m of a gemm). Within a group an axis of
 * size 1 goes, and two neighbours merge when every operand steps through them as through one. */
#include "lower.h"
#include <stdio.h>

enum { GROUPS_MAX = 2 };

typedef struct axes {
    int n;
    fmt_dim dim[FMT_RANK_MAX];
    fmt_dim stride[SYN_OPERANDS_MAX][FMT_RANK_MAX];
    bool rows; /* how many there are does not change what one of them computes */
} axes;

typedef struct builder {
    const ir_graph *g;
    const pass_region *r;
    const lower_view *views, *out_view;
    lower_built *b;
    fmt_dims *d;                       /* of the graph */
    ir_id *map;                        /* node of g → node of the region */
    bool outer_only[SYN_OPERANDS_MAX]; /* reduce: operand of the epilogue */
    bool
        baked; /* equal operands are one, scalars are text; else each use is an operand, as the precompiled set has it */
    ir_id user[SYN_OPERANDS_MAX]; /* the node and the input of it that an operand stands for */
    uint32_t place[SYN_OPERANDS_MAX];
    int n_outer; /* reduce: outer axes after collapsing */
} builder;

static bool in_region(const builder *b, ir_id id)
{
    for (uint32_t i = 0; i < b->r->n_nodes; i++)
        if (b->r->nodes[i] == id)
            return true;
    return false;
}

/* A scalar that kernel text can hold exactly. The precompiled set has no such kernels: there scalars are operands. */
static bool inline_scalar(const builder *b, ir_id id, double *v)
{
    if (!b->baked)
        return false;
    fmt_dtype t = ir_type_of(b->g, id)->dtype;
    return ir_is_splat(b->g, id, v) &&
           (t == FMT_F32 || t == FMT_BOOL ||
            (*v > -9e15 && *v < 9e15 && (t == FMT_I64 || t == FMT_I32)));
}

/* The operand that serves input k of a node; FMT_NONE if there is none. */
static uint32_t find_operand(const builder *b, ir_id node, uint32_t k, bool outer_only)
{
    /* templates know an anchor's operands by place: attention(x, x, x) has three, gamma is never x */
    bool placed = b->r->kind == PASS_ANCHOR_ROW ? k > 0 : b->r->kind != PASS_ANCHOR_REDUCE;
    bool exact = !b->baked || (node == b->r->anchor && placed);
    for (uint32_t i = 0; i < b->b->n_in; i++)
        if (!exact ? b->b->operand[i] == ir_in(b->g, node, k) && b->outer_only[i] == outer_only
                   : b->user[i] == node && b->place[i] == k)
            return i;
    return FMT_NONE;
}

static rtx_status add_operand(builder *b, ir_id id, ir_id user, uint32_t k, bool outer_only,
                              rtx_err *err)
{
    if (user != 0 && find_operand(b, user, k, outer_only) != FMT_NONE)
        return RTX_OK;
    if (b->b->n_in + 2 > SYN_OPERANDS_MAX)
        return FAIL(err, LIMIT, "a region of %u nodes reads more than %d operands", b->r->n_nodes,
                    SYN_OPERANDS_MAX - 1);
    b->outer_only[b->b->n_in] = outer_only;
    b->user[b->b->n_in] = user;
    b->place[b->b->n_in] = k;
    b->b->operand[b->b->n_in++] = id;
    return RTX_OK;
}

/* Operands in order: the anchor's own (gemm, attention, row parameters in their places), then the others as they appear. */
static rtx_status collect_operands(builder *b, rtx_err *err)
{
    const pass_region *r = b->r;
    double v;
    if (r->n_nodes == 0) /* copy */
        TRY(add_operand(b, r->root, 0, 0, false, err));
    if (r->anchor != 0 && r->kind != PASS_ANCHOR_REDUCE && r->kind != PASS_ANCHOR_ROW)
        for (uint32_t k = 0; k < ir_node_get(b->g, r->anchor)->n_in; k++)
            TRY(add_operand(b, ir_in(b->g, r->anchor, k), r->anchor, k, false, err));
    bool after_anchor = false;
    for (uint32_t i = 0; i < r->n_nodes; i++) {
        ir_id id = r->nodes[i];
        bool anchor = id == r->anchor;
        for (uint32_t k = 0; k < ir_node_get(b->g, id)->n_in; k++) {
            ir_id in = ir_in(b->g, id, k);
            if (in_region(b, in) || (!anchor && inline_scalar(b, in, &v)))
                continue;
            if (anchor && r->kind != PASS_ANCHOR_REDUCE && r->kind != PASS_ANCHOR_ROW)
                continue;
            TRY(add_operand(b, in, id, k, r->kind == PASS_ANCHOR_REDUCE && after_anchor && !anchor,
                            err));
        }
        after_anchor |= anchor;
    }
    b->b->n_out = r->root != 0;
    b->b->operand[b->b->n_in] = r->root;
    return RTX_OK;
}

/* ---- axes ---- */

static const lower_view *view_at(const builder *b, uint32_t operand)
{
    return operand == b->b->n_in ? b->out_view : &b->views[b->b->operand[operand]];
}

static bool mergeable(const builder *b, const axes *a, int i)
{
    for (uint32_t o = 0; o <= b->b->n_in; o++)
        if (a->stride[o][i] != fmt_dim_mul(b->d, a->stride[o][i + 1], a->dim[i + 1]))
            return false;
    return true;
}

static void drop_axis(const builder *b, axes *a, int i)
{
    for (int j = i; j + 1 < a->n; j++) {
        a->dim[j] = a->dim[j + 1];
        for (uint32_t o = 0; o <= b->b->n_in; o++)
            a->stride[o][j] = a->stride[o][j + 1];
    }
    a->n--;
}

/* keep_last: the last axis (a gemm's m) stays even when its size is 1. An empty group becomes one axis of size 1. */
static void collapse(const builder *b, axes *a, bool keep_last)
{
    for (int i = a->n - 1 - keep_last; i >= 0; i--)
        if (fmt_dim_is(b->d, a->dim[i], 1))
            drop_axis(b, a, i);
    for (int i = a->n - 2; i >= 0; i--) {
        if (!mergeable(b, a, i))
            continue;
        a->dim[i] = fmt_dim_mul(b->d, a->dim[i], a->dim[i + 1]);
        for (uint32_t o = 0; o <= b->b->n_in; o++)
            a->stride[o][i] = a->stride[o][i + 1];
        fmt_dim keep = a->dim[i];
        drop_axis(b, a, i + 1);
        a->dim[i] = keep;
    }
    if (a->n == 0) {
        a->n = 1;
        a->dim[0] = fmt_dim_const(b->d, 1);
        for (uint32_t o = 0; o <= b->b->n_in; o++)
            a->stride[o][0] = fmt_dim_const(b->d, 0);
    }
}

/* ---- region emission ---- */

/* A fixed number of rows above this is a size of the call like a free one: kernels are checked at small sizes, and the
 * reference of a large fixed problem would take minutes. */
#define ROWS_FIXED 256

static fmt_dim region_dim(builder *b, fmt_dim d, bool rows)
{
    int64_t c;
    fmt_dims *to = b->b->problem->dims;
    rows &= b->baked && b->b->n_sym < SYN_SYMS_MAX / 2;
    if (fmt_dim_is_const(b->d, d, &c) && !(rows && c > ROWS_FIXED))
        return fmt_dim_const(to, c);
    for (uint32_t i = 0; i < b->b->n_sym; i++)
        if (b->b->sym[i] == d)
            return fmt_dim_sym(to, i);
    if (b->b->n_sym == SYN_SYMS_MAX)
        return ir_bad(b->b->problem->region, RTX_LIMIT, "a region with more than %d free sizes",
                      SYN_SYMS_MAX),
               FMT_DIM_BAD;
    char name[16];
    snprintf(name, sizeof name, "s%u", b->b->n_sym);
    b->b->sym[b->b->n_sym++] = d;
    return fmt_dim_sym(to, fmt_sym_new(to, name, 0, FMT_DIM_LIMIT));
}

typedef struct part {
    const axes *group;
    int from, n;
} part; /* axes from…from+n-1 of a group */

/* The region's type and strides of one operand, from parts of the groups. */
static ir_type operand_type(builder *b, uint32_t o, const part *parts, int n_parts)
{
    ir_type t = {.dtype = ir_type_of(b->g, b->b->operand[o])->dtype};
    for (int p = 0; p < n_parts; p++)
        for (int i = parts[p].from; i < parts[p].from + parts[p].n; i++) {
            fmt_dim s = parts[p].group->stride[o][i];
            int64_t c;
            b->b->problem->stride[o][t.rank] =
                fmt_dim_is_const(b->d, s, &c) ? fmt_dim_const(b->b->problem->dims, c) : FMT_DIM_BAD;
            b->b->arg[b->b->n_arg++] = s; /* moved behind the symbols at the end */
            t.dim[t.rank++] = region_dim(b, parts[p].group->dim[i], parts[p].group->rows);
        }
    return t;
}

static ir_id region_input(builder *b, uint32_t o, const part *parts, int n_parts)
{
    ir_type t = operand_type(b, o, parts, n_parts);
    return ir_input(b->b->problem->region, syn_port_name(false, o), &t);
}

/* Region node for input k of a node: inner node, operand, or inlined scalar of the given shape. */
static ir_id region_value(builder *b, ir_id node, uint32_t k, const ir_id *inputs, bool outer_only,
                          const ir_type *shape)
{
    ir_id in = ir_in(b->g, node, k);
    if (b->map[in] != 0)
        return b->map[in];
    uint32_t o = find_operand(b, node, k, outer_only);
    if (o != FMT_NONE)
        return inputs[o];
    double v = 0;
    (void)inline_scalar(b, in, &v);
    ir_graph *rg = b->b->problem->region;
    return ir_broadcast(rg, ir_scalar(rg, ir_type_of(b->g, in)->dtype, v), shape->dim, shape->rank);
}

/* Emit the members; the anchor through `anchor`, which sees its first input. */
typedef ir_id (*emit_anchor)(builder *b, const ir_id *inputs, ir_id x);

static void emit_members(builder *b, const ir_id *inputs, const ir_type *before,
                         const ir_type *after, emit_anchor anchor)
{
    const pass_region *r = b->r;
    ir_graph *rg = b->b->problem->region;
    bool seen = r->anchor == 0;
    for (uint32_t i = 0; i < r->n_nodes; i++) {
        ir_id id = r->nodes[i];
        const ir_type *shape = seen ? after : before;
        if (id == r->anchor) {
            ir_id x = region_value(b, id, 0, inputs, false, before);
            b->map[id] = anchor(b, inputs, x);
            seen = true;
            continue;
        }
        /* Prologue nodes are ancestors of the anchor, so position tells them from the epilogue. */
        ir_id in[3];
        uint32_t n = ir_node_get(b->g, id)->n_in;
        for (uint32_t k = 0; k < n && k < 3; k++)
            in[k] = region_value(b, id, k, inputs, r->kind == PASS_ANCHOR_REDUCE && seen, shape);
        b->map[id] = ir_emit(rg, ir_op_of(b->g, id), in, n, ir_attrs_of(b->g, id));
    }
    ir_output(rg, syn_port_name(true, 0), b->map[r->root]);
}

/* ---- one builder a normal form ---- */

static void fill_axes(builder *b, axes *a, uint32_t o, const int *from, int n)
{
    const lower_view *v = view_at(b, o);
    for (int i = 0; i < n; i++)
        a->stride[o][i] = from[i] < 0 ? fmt_dim_const(b->d, 0) : v->stride[from[i]];
}

static void build_elementwise(builder *b)
{
    const ir_type *t = ir_type_of(b->g, b->r->root);
    axes a = {.n = t->rank, .rows = true};
    memcpy(a.dim, t->dim, sizeof a.dim);
    int id[FMT_RANK_MAX] = {0, 1, 2, 3, 4, 5, 6, 7};
    for (uint32_t o = 0; o <= b->b->n_in; o++)
        fill_axes(b, &a, o, id, t->rank);
    collapse(b, &a, false);
    part all = {&a, 0, a.n};
    ir_id inputs[SYN_OPERANDS_MAX];
    ir_type shape = {0};
    for (uint32_t o = 0; o < b->b->n_in; o++)
        inputs[o] = region_input(b, o, &all, 1);
    shape = operand_type(b, b->b->n_in, &all, 1);
    if (b->r->n_nodes == 0)
        ir_output(b->b->problem->region, syn_port_name(true, 0), inputs[0]);
    else
        emit_members(b, inputs, &shape, &shape, NULL);
}

static ir_id anchor_row(builder *b, const ir_id *inputs, ir_id x)
{
    ir_id in[3] = {x};
    uint32_t n = ir_node_get(b->g, b->r->anchor)->n_in;
    for (uint32_t k = 1; k < n; k++)
        in[k] = inputs[find_operand(b, b->r->anchor, k, false)];
    return ir_emit(b->b->problem->region, ir_op_of(b->g, b->r->anchor), in, n,
                   ir_attrs_of(b->g, b->r->anchor));
}

/* Rows and rope: outer axes collapse, the last stays. Parameters of one axis are [C]. */
static void build_row(builder *b)
{
    const ir_type *t = ir_type_of(b->g, b->r->root);
    int outer = t->rank - 1, from[FMT_RANK_MAX] = {0, 1, 2, 3, 4, 5, 6, 7}, last[1] = {outer},
        only[1] = {0};
    axes a = {.n = outer, .rows = true}, c = {.n = 1, .dim = {t->dim[outer]}};
    memcpy(a.dim, t->dim, sizeof a.dim);
    bool param[SYN_OPERANDS_MAX] = {false};
    for (uint32_t o = 0; o <= b->b->n_in; o++) {
        if (o < b->b->n_in)
            for (uint32_t k = 1; k < ir_node_get(b->g, b->r->anchor)->n_in; k++)
                param[o] |=
                    b->r->kind == PASS_ANCHOR_ROW && find_operand(b, b->r->anchor, k, false) == o;
        int none[FMT_RANK_MAX] = {-1, -1, -1, -1, -1, -1, -1, -1};
        fill_axes(b, &a, o, param[o] ? none : from, outer);
        fill_axes(b, &c, o, param[o] ? only : last, 1);
    }
    collapse(b, &a, false);
    part full[2] = {{&a, 0, a.n}, {&c, 0, 1}};
    ir_id inputs[SYN_OPERANDS_MAX];
    for (uint32_t o = 0; o < b->b->n_in; o++)
        inputs[o] = param[o] ? region_input(b, o, full + 1, 1) : region_input(b, o, full, 2);
    ir_type shape = operand_type(b, b->b->n_in, full, 2);
    emit_members(b, inputs, &shape, &shape, anchor_row);
}

static ir_id anchor_reduce(builder *b, const ir_id *inputs, ir_id x)
{
    (void)inputs;
    ir_graph *rg = b->b->problem->region;
    ir_op op = ir_op_of(b->g, b->r->anchor);
    ir_attrs at = *ir_attrs_of(b->g, b->r->anchor);
    if (op == IR_argmax || op == IR_argmin) {
        at.i[0] = b->n_outer;
    } else {
        memset(at.list, 0, sizeof at.list);
        at.n_list = 0;
        for (int i = b->n_outer; i < ir_type_of(rg, x)->rank; i++)
            at.list[at.n_list++] = i;
    }
    return ir_emit(rg, op, &x, 1, &at);
}

static void build_reduce(builder *b)
{
    ir_id anchor = b->r->anchor;
    const ir_type *in = ir_type_of(b->g, ir_in(b->g, anchor, 0)),
                  *res = ir_type_of(b->g, b->r->root);
    const ir_attrs *at = ir_attrs_of(b->g, anchor);
    bool arg = ir_op_of(b->g, anchor) == IR_argmax || ir_op_of(b->g, anchor) == IR_argmin,
         reduced[FMT_RANK_MAX] = {false};
    for (int i = 0; i < (arg ? 1 : at->n_list); i++)
        reduced[arg ? at->i[0] : at->list[i]] = true;
    axes o = {0}, r = {0};
    int outer[FMT_RANK_MAX], red[FMT_RANK_MAX],
        none[FMT_RANK_MAX] = {-1, -1, -1, -1, -1, -1, -1, -1};
    int plain[FMT_RANK_MAX] = {0, 1, 2, 3, 4, 5, 6, 7};
    for (int i = 0; i < in->rank; i++) {
        axes *a = reduced[i] ? &r : &o;
        (reduced[i] ? red : outer)[a->n] = i;
        a->dim[a->n++] = in->dim[i];
    }
    for (uint32_t k = 0; k <= b->b->n_in; k++) {
        bool only = k == b->b->n_in || b->outer_only[k];
        fill_axes(b, &o, k, only ? plain : outer, res->rank);
        fill_axes(b, &r, k, only ? none : red, r.n);
    }
    collapse(b, &o, false);
    collapse(b, &r, false);
    b->n_outer = o.n;
    part full[2] = {{&o, 0, o.n}, {&r, 0, r.n}};
    ir_id inputs[SYN_OPERANDS_MAX];
    ir_type before = {0}, after;
    for (uint32_t k = 0; k < b->b->n_in; k++) {
        inputs[k] = region_input(b, k, full, b->outer_only[k] ? 1 : 2);
        if (!b->outer_only[k])
            before = *ir_type_of(b->b->problem->region, inputs[k]);
    }
    after = operand_type(b, b->b->n_in, full, 1);
    emit_members(b, inputs, &before, &after, anchor_reduce);
}

static ir_id anchor_same(builder *b, const ir_id *inputs, ir_id x)
{
    (void)x;
    return ir_emit(b->b->problem->region, ir_op_of(b->g, b->r->anchor), inputs,
                   ir_node_get(b->g, b->r->anchor)->n_in, ir_attrs_of(b->g, b->r->anchor));
}

/* A constant b without batch that the packed form serves. */
static bool packable(const builder *b, const axes *bm)
{
    const lower_view *v = &b->views[b->b->operand[1]];
    const ir_type *t = ir_type_of(b->g, b->b->operand[1]);
    if (v->constant == 0 || t->dtype != FMT_F32)
        return false;
    for (int i = 0; i < bm->n; i++)
        if (!fmt_dim_is(b->d, bm->stride[1][i], 0))
            return false;
    int64_t k, n;
    return fmt_dim_is_const(b->d, t->dim[t->rank - 2], &k) &&
           fmt_dim_is_const(b->d, t->dim[t->rank - 1], &n) && k > 0 && n > 0;
}

static void build_gemm(builder *b, rtx_err *err, rtx_status *status)
{
    ir_id dot = b->r->anchor;
    int rank = ir_type_of(b->g, dot)->rank;
    const ir_type *ta = ir_type_of(b->g, ir_in(b->g, dot, 0)), *tc = ir_type_of(b->g, dot);
    axes bm = {.n = rank - 1, .rows = true}, k = {.n = 1, .dim = {ta->dim[rank - 1]}},
         n = {.n = 1, .dim = {tc->dim[rank - 1]}};
    memcpy(bm.dim, tc->dim, sizeof bm.dim);
    int lead[FMT_RANK_MAX] = {0, 1, 2, 3, 4, 5, 6, 7},
        lead_b[FMT_RANK_MAX] = {0, 1, 2, 3, 4, 5, 6, 7};
    int last[1] = {rank - 1}, row[1] = {rank - 2}, none[1] = {-1};
    lead_b[rank - 2] = -1;
    for (uint32_t o = 0; o <= b->b->n_in; o++) {
        fill_axes(b, &bm, o, o == 1 ? lead_b : lead, rank - 1);
        fill_axes(b, &k, o, o == 0 ? last : o == 1 ? row : none, 1);
        fill_axes(b, &n, o, o == 0 ? none : last, 1);
    }
    collapse(b, &bm, true);
    if (bm.n > 3) {
        *status = FAIL(err, UNSUPPORTED, "matmul with %d batch axes that do not merge", bm.n - 1);
        return;
    }
    if (packable(b, &bm)) {
        b->b->packed = 1;
        b->b->problem->packed[1] = true;
        k.stride[1][0] = n.stride[1][0] = fmt_dim_const(b->d, 0);
    }
    part pa[2] = {{&bm, 0, bm.n}, {&k, 0, 1}}, pb[3] = {{&bm, 0, bm.n - 1}, {&k, 0, 1}, {&n, 0, 1}},
         pc[2] = {{&bm, 0, bm.n}, {&n, 0, 1}};
    ir_id inputs[SYN_OPERANDS_MAX];
    for (uint32_t o = 0; o < b->b->n_in; o++)
        inputs[o] = o == 0   ? region_input(b, o, pa, 2)
                    : o == 1 ? region_input(b, o, pb, 3)
                             : region_input(b, o, pc, 2);
    ir_type shape = operand_type(b, b->b->n_in, pc, 2);
    emit_members(b, inputs, &shape, &shape, anchor_same);
}

/* Product of axes from…to-1 of a type. */
static fmt_dim product(const builder *b, const ir_type *t, int from, int to)
{
    fmt_dim p = fmt_dim_const(b->d, 1);
    for (int i = from; i < to; i++)
        p = fmt_dim_mul(b->d, p, t->dim[i]);
    return p;
}

/* Movement over contiguous operands, in the forms [o, A, i], [j] and, for gather_nd, [b, d…, i], [b, j, r]. */
static bool flat_shape(const builder *b, uint32_t o, ir_type *t)
{
    const ir_type *x = ir_type_of(b->g, ir_in(b->g, b->r->anchor, 0)),
                  *own = ir_type_of(b->g, b->b->operand[o]);
    const ir_attrs *at = ir_attrs_of(b->g, b->r->anchor);
    ir_op op = ir_op_of(b->g, b->r->anchor);
    int axis = (int)at->i[0];
    t->rank = 0;
    if (op == IR_gather_nd) {
        const ir_type *idx = ir_type_of(b->g, ir_in(b->g, b->r->anchor, 1));
        int64_t r;
        if (!fmt_dim_is_const(b->d, idx->dim[idx->rank - 1], &r) || axis + r > x->rank ||
            r + 2 > FMT_RANK_MAX)
            return false;
        t->dim[t->rank++] = product(b, x, 0, axis);
        if (o == 0)
            for (int i = axis; i < axis + r; i++)
                t->dim[t->rank++] = x->dim[i];
        else
            t->dim[t->rank++] = product(b, idx, axis, idx->rank - 1);
        t->dim[t->rank++] =
            o == 1 ? idx->dim[idx->rank - 1] : product(b, x, axis + (int)r, x->rank);
        return true;
    }
    if (op == IR_gather && o == 1) {
        t->dim[t->rank++] = product(b, own, 0, own->rank);
        return true;
    }
    t->dim[t->rank++] = product(b, x, 0, axis);
    t->dim[t->rank++] = op == IR_gather && o == 2
                            ? product(b, ir_type_of(b->g, ir_in(b->g, b->r->anchor, 1)), 0,
                                      ir_type_of(b->g, ir_in(b->g, b->r->anchor, 1))->rank)
                            : own->dim[axis];
    t->dim[t->rank++] = product(b, x, axis + 1, x->rank);
    return true;
}

static void build_flat(builder *b)
{
    ir_graph *rg = b->b->problem->region;
    ir_id inputs[SYN_OPERANDS_MAX];
    axes a[3] = {0};
    fmt_dim k = FMT_DIM_BAD;
    for (uint32_t o = 0; o <= b->b->n_in; o++) {
        ir_type t = {0};
        if (!flat_shape(b, o, &t)) {
            ir_bad(rg, RTX_UNSUPPORTED, "gather_nd with an index depth that is not constant");
            return;
        }
        a[o].n = t.rank;
        memcpy(a[o].dim, t.dim, sizeof a[o].dim);
        lower_row_major(b->d, &t, a[o].stride[o]);
        part all = {&a[o], 0, t.rank};
        if (o < b->b->n_in)
            inputs[o] = region_input(b, o, &all, 1);
        else
            k = operand_type(b, o, &all, 1).dim[1];
    }
    ir_op op = ir_op_of(b->g, b->r->anchor);
    ir_attrs at = *ir_attrs_of(b->g, b->r->anchor);
    at.i[0] = 1; /* the axis, or the one batch axis of gather_nd */
    if (op == IR_topk)
        at.dims[0] = k;
    ir_output(rg, syn_port_name(true, 0), ir_emit(rg, op, inputs, b->b->n_in, &at));
}

/* Operands keep their axes: attention, gather_elements, iota, dimvals. */
static void build_plain(builder *b)
{
    ir_id inputs[SYN_OPERANDS_MAX];
    axes a[SYN_OPERANDS_MAX];
    int id[FMT_RANK_MAX] = {0, 1, 2, 3, 4, 5, 6, 7};
    for (uint32_t o = 0; o <= b->b->n_in; o++) {
        const ir_type *t = ir_type_of(b->g, b->b->operand[o]);
        a[o] = (axes){.n = t->rank, .rows = ir_op_of(b->g, b->r->anchor) == IR_attention};
        memcpy(a[o].dim, t->dim, sizeof a[o].dim);
        fill_axes(b, &a[o], o, id, t->rank);
        part all = {&a[o], 0, t->rank};
        if (o < b->b->n_in)
            inputs[o] = region_input(b, o, &all, 1);
        else
            (void)operand_type(b, o, &all, 1);
    }
    ir_attrs at = *ir_attrs_of(b->g, b->r->anchor);
    for (int i = 0; i < at.n_dims; i++)
        at.dims[i] = region_dim(b, at.dims[i], false);
    for (int i = 0; i < at.n_sizes; i++)
        at.sizes[i] = region_dim(b, at.sizes[i], false);
    ir_graph *rg = b->b->problem->region;
    ir_output(rg, syn_port_name(true, 0),
              ir_emit(rg, ir_op_of(b->g, b->r->anchor), inputs, b->b->n_in, &at));
}

rtx_status lower_build(const ir_graph *g, const pass_region *r, const lower_view *views,
                       const lower_view *out_view, bool baked, lower_built *out, rtx_err *err)
{
    memset(out, 0, sizeof *out);
    out->packed = -1;
    TRY_ALLOC(out->problem = syn_problem_new(), err);
    AUTO_FREE ir_id *map = base_zalloc_array(BASE_TAG_PASSES, g->n_nodes, sizeof *map);
    if (map == NULL) {
        lower_built_done(out);
        return FAIL(err, NOMEM, "out of memory");
    }
    builder b = {.g = g,
                 .r = r,
                 .views = views,
                 .out_view = out_view,
                 .b = out,
                 .d = g->dims,
                 .map = map,
                 .baked = baked};
    rtx_status status = collect_operands(&b, err);
    if (status == RTX_OK) {
        ir_op op = r->anchor ? ir_op_of(g, r->anchor) : IR_NONE;
        if (r->kind == PASS_ANCHOR_NONE)
            build_elementwise(&b);
        else if (r->kind == PASS_ANCHOR_ROW || op == IR_rope)
            build_row(&b);
        else if (r->kind == PASS_ANCHOR_REDUCE)
            build_reduce(&b);
        else if (r->kind == PASS_ANCHOR_DOT)
            build_gemm(&b, err, &status);
        else if (op == IR_gather || op == IR_gather_nd || op == IR_cumsum || op == IR_topk)
            build_flat(&b);
        else
            build_plain(&b);
    }
    if (status == RTX_OK)
        status = ir_ok(out->problem->region, err);
    if (status == RTX_OK)
        status = fmt_dims_ok(g->dims, err);
    out->problem->n_in = out->n_in;
    out->problem->n_out = out->n_out;
    /* Arguments: the symbols come first. */
    memmove(out->arg + out->n_sym, out->arg, out->n_arg * sizeof *out->arg);
    memcpy(out->arg, out->sym, out->n_sym * sizeof *out->arg);
    out->n_arg += out->n_sym;
    if (status != RTX_OK)
        lower_built_done(out);
    return status;
}

void lower_built_done(lower_built *b)
{
    syn_problem_free(b->problem);
    b->problem = NULL;
}
