/* ONNX operators that cut tensors or put them into larger ones: Slice, Split, Pad, Trilu. */
#include "fe_onnx.h"

/* ---- slices ---- */

typedef struct cut {
    fmt_dim start, size;
    int64_t step;
} cut;

/* An index of a slice inside [lo, hi] of an axis of n entries; false if its sign depends on a free size. */
static bool clamp_index(fmt_dims *d, fmt_dim v, fmt_dim n, fmt_dim lo, fmt_dim hi, fmt_dim *out)
{
    int64_t c, vlo, vhi;
    if (fmt_dim_is_const(d, v, &c) && c >= INT32_MAX)
        *out = hi; /* "to the end", as exporters write it */
    else if (fmt_dim_is_const(d, v, &c) && c <= -INT32_MAX)
        *out = fe_dim_min(d, lo, hi); /* an empty axis has no first entry */
    else {
        fmt_dim_range(d, v, &vlo, &vhi);
        if (vlo < 0 && vhi >= 0)
            return false;
        fmt_dim at = vlo >= 0 ? v : fmt_dim_add(d, n, v);
        *out = fe_dim_min(d, fe_dim_max(d, at, lo), hi);
    }
    return true;
}

static bool make_cut(fmt_dims *d, fmt_dim n, fmt_dim start, fmt_dim end, int64_t step, cut *out)
{
    fmt_dim zero = fmt_dim_const(d, 0), one = fmt_dim_const(d, 1), s, e, span;
    if (step > 0) {
        if (!clamp_index(d, start, n, zero, n, &s) || !clamp_index(d, end, n, zero, n, &e))
            return false;
        span = fmt_dim_sub(d, e, s);
    } else {
        fmt_dim last = fmt_dim_sub(d, n, one), before = fmt_dim_const(d, -1);
        if (!clamp_index(d, start, n, zero, last, &s) || !clamp_index(d, end, n, before, last, &e))
            return false;
        span = fmt_dim_sub(d, s, e);
    }
    int64_t by = step > 0 ? step : -step;
    span = fe_dim_max(d, span, zero);
    if (by > 1)
        span = fmt_dim_div(d, fmt_dim_add(d, span, fmt_dim_const(d, by - 1)), fmt_dim_const(d, by));
    int64_t lo, hi;
    fmt_dim_range(d, span, &lo, &hi);
    *out = (cut){s, span, hi > 1 ? step : 1}; /* large steps reach one entry */
    return true;
}

/* The elements of a cut, all of them inside an axis of n entries. */
static bool is_inside(const fmt_dims *d, const cut *c, uint32_t n, int64_t *out_start,
                      int64_t *out_size)
{
    if (!fmt_dim_is_const(d, c->start, out_start) || !fmt_dim_is_const(d, c->size, out_size))
        return false;
    if (*out_size == 0)
        return true;
    if (*out_size < 0 || *out_size > n || *out_start < 0 || *out_start >= n)
        return false;
    int64_t last = *out_start + (*out_size - 1) * c->step;
    return last >= 0 && last < n;
}

/* Emit the slice of one axis range per entry of cuts (one per axis), or pick from known contents. */
static void set_slice(fe_node *n, uint32_t k, const cut *cuts)
{
    const ir_type t = *fe_type(n, 0);
    uint32_t count;
    const fmt_dim *c = fe_content(n, 0, &count);
    int64_t start, size;
    if (c && t.rank == 1 && is_inside(n->d, &cuts[0], count, &start, &size)) {
        fmt_dim picked[FE_CONTENT_MAX];
        ir_type out = t;
        for (int64_t i = 0; i < size; i++)
            picked[i] = c[start + i * cuts[0].step];
        out.dim[0] = cuts[0].size;
        fe_set_known(n, k, &out, picked, (uint32_t)size);
        return;
    }
    fmt_dim starts[FMT_RANK_MAX], sizes[FMT_RANK_MAX];
    int64_t steps[FMT_RANK_MAX];
    for (uint32_t i = 0; i < t.rank; i++)
        starts[i] = cuts[i].start, sizes[i] = cuts[i].size, steps[i] = cuts[i].step;
    fe_set(n, k, ir_slice(n->g, fe_in(n, 0), starts, sizes, steps));
}

static void whole_axes(fe_node *n, const ir_type *t, cut *cuts)
{
    for (uint32_t i = 0; i < t->rank; i++)
        cuts[i] = (cut){fmt_dim_const(n->d, 0), t->dim[i], 1};
}

/* Constants beyond 2^48, whose content is not followed, cut like 2^48: no axis is longer. */
static void clamp_constant(fe_node *n, uint32_t k)
{
    ir_id id = fe_has(n, k) && !n->in[k]->content ? n->in[k]->id : 0;
    if (ir_op_of(n->g, id) != IR_const || fe_type(n, k)->dtype != FMT_I64 ||
        ir_const_of(n->g, id)->bytes > FE_CONTENT_MAX * sizeof(int64_t))
        return;
    const int64_t *data = ir_const_of(n->g, id)->data;
    uint32_t count = (uint32_t)(ir_const_of(n->g, id)->bytes / sizeof *data);
    fe_val *v = base_arena_alloc(&n->m->arena, sizeof *v);
    fmt_dim *c = base_arena_array(&n->m->arena, count + 1, sizeof *c);
    if (!v || !c) {
        ir_bad(n->g, RTX_NOMEM, "out of memory");
        return;
    }
    for (uint32_t i = 0; i < count; i++)
        c[i] = fmt_dim_const(n->d, MAX(-FMT_DIM_LIMIT, MIN(data[i], FMT_DIM_LIMIT)));
    *v = (fe_val){.id = id, .type = *fe_type(n, k), .content = c, .n = count};
    n->in[k] = v; /* of this node alone */
}

static bool slice_operands(fe_node *n, fmt_dim *starts, fmt_dim *ends, int64_t *axes,
                           int64_t *steps, uint32_t *out_n)
{
    uint32_t n_starts = FMT_RANK_MAX, n_ends = FMT_RANK_MAX, n_axes = FMT_RANK_MAX,
             n_steps = FMT_RANK_MAX;
    int64_t ints[2][FMT_RANK_MAX];
    if (n->opset < 10) {
        fe_attr_ints(n, "starts", ints[0], FMT_RANK_MAX, &n_starts);
        fe_attr_ints(n, "ends", ints[1], FMT_RANK_MAX, &n_ends);
        for (uint32_t i = 0; i < MIN(n_starts, n_ends); i++) {
            starts[i] = fmt_dim_const(n->d, MAX(-FMT_DIM_LIMIT, MIN(ints[0][i], FMT_DIM_LIMIT)));
            ends[i] = fmt_dim_const(n->d, MAX(-FMT_DIM_LIMIT, MIN(ints[1][i], FMT_DIM_LIMIT)));
        }
    } else {
        clamp_constant(n, 1), clamp_constant(n, 2), clamp_constant(n, 4);
        const fmt_dim *s = fe_need(n, 1, "starts", &n_starts), *e = fe_need(n, 2, "ends", &n_ends);
        if (!s || !e)
            return false;
        if (n_starts <= FMT_RANK_MAX && n_ends <= FMT_RANK_MAX) {
            memcpy(starts, s, n_starts * sizeof *s);
            memcpy(ends, e, n_ends * sizeof *e);
        }
    }
    bool has_axes = fe_axes(n, 3, axes, &n_axes),
         has_steps = fe_has(n, 4) && fe_need_ints(n, 4, "steps", steps, &n_steps);
    for (uint32_t i = 0; i < FMT_RANK_MAX; i++) {
        axes[i] = has_axes ? axes[i] : i;
        steps[i] = has_steps ? steps[i] : 1;
    }
    bool fits = n_starts == n_ends && n_starts <= FMT_RANK_MAX &&
                (!has_axes || n_axes == n_starts) && (!has_steps || n_steps == n_starts);
    if (fe_good(n) && !fits)
        fe_bad(n, "starts, ends, axes and steps differ in length");
    *out_n = n_starts;
    return fe_good(n);
}

static void op_slice(fe_node *n)
{
    const ir_type t = *fe_type(n, 0);
    fmt_dim starts[FMT_RANK_MAX], ends[FMT_RANK_MAX];
    int64_t axes[FMT_RANK_MAX], steps[FMT_RANK_MAX];
    uint32_t count, seen = 0;
    cut cuts[FMT_RANK_MAX];
    if (!slice_operands(n, starts, ends, axes, steps, &count))
        return;
    whole_axes(n, &t, cuts);
    for (uint32_t i = 0; i < count; i++) {
        uint32_t ax;
        if (!fe_axis(n, axes[i], t.rank, &ax))
            return;
        if (seen & 1u << ax) {
            fe_bad(n, "axis %u is cut twice", ax);
            return;
        }
        seen |= 1u << ax;
        if (steps[i] == 0) {
            fe_bad(n, "the step of axis %u is 0", ax);
            return;
        }
        if (!make_cut(n->d, t.dim[ax], starts[i], ends[i], steps[i], &cuts[ax])) {
            fe_refuse(n, "whether it counts from the end of axis %u depends on a free size", ax);
            return;
        }
    }
    set_slice(n, 0, cuts);
}

/* Parts of a free axis: equal ones, or from opset 18 on smaller last ones too; what does not divide is wrong before. */
static bool equal_parts(fe_node *n, fmt_dim whole, fmt_dim *sizes)
{
    uint32_t count = n->n_out;
    fmt_dim parts = fmt_dim_const(n->d, count), each = fmt_dim_div(n->d, whole, parts);
    bool even = fmt_dim_mul(n->d, each, parts) == whole;
    if (!even && n->opset < 18) {
        fe_refuse(n, "whether the axis has %u equal parts depends on a free size", count);
        return false;
    }
    if (!even) /* rounded up: the first part never exceeds the whole, later ones may be cut or empty */
        each = fmt_dim_div(n->d, fmt_dim_add(n->d, whole, fmt_dim_const(n->d, count - 1)), parts);
    fmt_dim start = fmt_dim_const(n->d, 0);
    for (uint32_t i = 0; i < count; i++) {
        fmt_dim end = fmt_dim_mul(n->d, each, fmt_dim_const(n->d, i + 1));
        if (!even && i > 0)
            end = i + 1 < count ? fe_dim_min(n->d, end, whole) : whole;
        sizes[i] = fmt_dim_sub(n->d, end, start);
        start = end;
    }
    return fe_good(n);
}

/* Sizes of the parts: given, or equal with a smaller last one. */
static bool split_sizes(fe_node *n, fmt_dim whole, fmt_dim *sizes)
{
    uint32_t count = 0;
    int64_t ints[FE_CONTENT_MAX], c;
    if (fe_has(n, 1)) {
        const fmt_dim *given = fe_need(n, 1, "the sizes", &count);
        if (!given)
            return false;
        memcpy(sizes, given, count * sizeof *sizes);
    } else if (fe_attr_ints(n, "split", ints, FE_CONTENT_MAX, &count)) {
        for (uint32_t i = 0; i < count; i++)
            sizes[i] = fmt_dim_const(n->d, ints[i]);
    } else {
        count = n->n_out;
        if (fmt_dim_is_const(n->d, whole, &c)) {
            int64_t each = (c + count - 1) / count;
            if (n->opset < 18 && c % count)
                fe_bad(n, "an axis of %lld has no %u equal parts; sizes or opset 18 allow others",
                       (long long)c, count);
            for (uint32_t i = 0; i < count; i++)
                sizes[i] = fmt_dim_const(n->d, MAX(0, MIN(each, c - each * i)));
        } else {
            return equal_parts(n, whole, sizes);
        }
    }
    if (count != n->n_out)
        fe_bad(n, "%u sizes for %u outputs", count, n->n_out);
    fmt_dim sum = fmt_dim_const(n->d, 0);
    for (uint32_t i = 0; i < count && fe_good(n); i++) {
        if (fmt_dim_is_const(n->d, sizes[i], &c) && (c < 0 || c >= FMT_DIM_LIMIT))
            fe_bad(n, "part %u would have size %lld", i, (long long)c);
        sum = fmt_dim_add(n->d, sum, sizes[i]);
    }
    return fe_same_dim(n, sum, whole, "the sum of the sizes and the axis");
}

static void op_split(fe_node *n)
{
    const ir_type t = *fe_type(n, 0);
    uint32_t axis;
    fmt_dim sizes[FE_CONTENT_MAX];
    cut cuts[FMT_RANK_MAX];
    if (n->n_out == 0 || n->n_out > FE_CONTENT_MAX) {
        fe_refuse(n, "%u outputs", n->n_out);
        return;
    }
    int64_t declared = fe_attr_i(n, "num_outputs", n->n_out);
    if (declared != n->n_out)
        fe_bad(n, "num_outputs is %lld, but it has %u outputs", (long long)declared, n->n_out);
    if (!fe_axis(n, fe_attr_i(n, "axis", 0), t.rank, &axis) || !split_sizes(n, t.dim[axis], sizes))
        return;
    whole_axes(n, &t, cuts);
    for (uint32_t k = 0; k < n->n_out && fe_good(n); k++) {
        cuts[axis].size = sizes[k];
        set_slice(n, k, cuts);
        cuts[axis].start = fmt_dim_add(n->d, cuts[axis].start, sizes[k]);
    }
}

/* k, kept below every size so that row + k cannot overflow. */
static ir_id diagonal(fe_node *n)
{
    double k, end = (double)FMT_DIM_LIMIT;
    if (fe_number(n, 1, &k))
        return ir_scalar(n->g, FMT_I64, MAX(-end, MIN(k, end)));
    ir_id x = ir_cast(n->g, ir_reshape(n->g, fe_in(n, 1), NULL, 0), FMT_I64);
    x = fe_ew2(n, IR_max, x, fe_const_like(n, x, -end));
    return fe_ew2(n, IR_min, x, fe_const_like(n, x, end));
}

/* Keeps the lower or upper triangle of the last two axes: row + k compared with column. */
static void op_trilu(fe_node *n)
{
    const ir_type t = *fe_type(n, 0);
    if (t.rank < 2) {
        fe_bad(n, "a triangle of %u axes", t.rank);
        return;
    }
    ir_attrs a = {.n_dims = 2, .dims = {t.dim[t.rank - 2], t.dim[t.rank - 1]}};
    ir_id row = ir_emit(n->g, IR_iota, NULL, 0, &a);
    a.i[0] = 1;
    ir_id column = ir_emit(n->g, IR_iota, NULL, 0, &a), x = fe_in(n, 0);
    if (fe_has(n, 1))
        row = fe_ew2(n, IR_add, row, diagonal(n));
    ir_id keep = fe_ew2(n, fe_attr_i(n, "upper", 1) ? IR_ge : IR_le, column, row);
    if (fe_good(n))
        fe_set(n, 0, fe_ew(n, IR_select, (ir_id[]){keep, x, fe_const_like(n, x, 0)}, 3));
}

/* ---- pad with a constant: blocks of it before and after each axis; negative pads cut ---- */

static ir_id pad_axis(fe_node *n, ir_id x, uint32_t axis, int64_t before, int64_t after,
                      ir_id value)
{
    ir_type t = *ir_type_of(n->g, x);
    ir_id parts[3];
    uint32_t count = 0;
    if (before < 0 || after < 0) {
        fmt_dim starts[FMT_RANK_MAX], sizes[FMT_RANK_MAX];
        int64_t steps[FMT_RANK_MAX], drop = MAX(-before, 0) + MAX(-after, 0);
        for (uint32_t i = 0; i < t.rank; i++)
            starts[i] = fmt_dim_const(n->d, 0), sizes[i] = t.dim[i], steps[i] = 1;
        starts[axis] = fmt_dim_const(n->d, MAX(-before, 0));
        sizes[axis] = fmt_dim_sub(n->d, t.dim[axis], fmt_dim_const(n->d, drop));
        x = ir_slice(n->g, x, starts, sizes, steps);
    }
    ir_attrs a = {0};
    a.i[0] = axis;
    t.dim[axis] = fmt_dim_const(n->d, MAX(before, 0));
    if (before > 0)
        parts[count++] = ir_broadcast(n->g, value, t.dim, t.rank);
    parts[count++] = x;
    t.dim[axis] = fmt_dim_const(n->d, MAX(after, 0));
    if (after > 0)
        parts[count++] = ir_broadcast(n->g, value, t.dim, t.rank);
    return count == 1 ? x : ir_emit(n->g, IR_concat, parts, count, &a);
}

static void op_pad(fe_node *n)
{
    const ir_type t = *fe_type(n, 0);
    int64_t pads[2 * FMT_RANK_MAX], axes[FMT_RANK_MAX];
    uint32_t n_pads = 2 * FMT_RANK_MAX, n_axes = FMT_RANK_MAX;
    fe_span mode = fe_attr_s(n, "mode");
    if (mode.len && !fe_span_is(mode, "constant")) {
        fe_refuse(n, "mode '%.*s'", FE_SHOW(mode));
        return;
    }
    if (n->opset >= 11 ? !fe_need_ints(n, 1, "pads", pads, &n_pads)
                       : !fe_attr_ints(n, "pads", pads, n_pads, &n_pads))
        return;
    bool some = fe_has(n, 3) && fe_need_ints(n, 3, "axes", axes, &n_axes);
    n_axes = some ? n_axes : t.rank;
    ir_id x = fe_in(n, 0), value = fe_has(n, 2) ? ir_reshape(n->g, fe_in(n, 2), NULL, 0)
                                                : fe_const_like(n, x, fe_attr_f(n, "value", 0));
    if (fe_good(n) && n_pads != 2 * n_axes)
        fe_bad(n, "%u pads for %u axes", n_pads, n_axes);
    for (uint32_t i = 0; i < n_axes && fe_good(n); i++) {
        uint32_t ax;
        int64_t b = pads[i], e = pads[n_axes + i];
        if (b <= -FMT_DIM_LIMIT || b >= FMT_DIM_LIMIT || e <= -FMT_DIM_LIMIT || e >= FMT_DIM_LIMIT)
            fe_bad(n, "pads beyond 2^48");
        else if (fe_axis(n, some ? axes[i] : i, t.rank, &ax))
            x = pad_axis(n, x, ax, b, e, value);
    }
    fe_set(n, 0, x);
}

/* ---- the table ---- */

const fe_op fe_ops_slice[] = {
    {"Pad", 2, 1, 4, op_pad, 0},     {"Slice", 1, 1, 5, op_slice, 0},
    {"Split", 2, 1, 2, op_split, 0}, {"Trilu", 14, 1, 2, op_trilu, 0},
    {NULL, 0, 0, 0, NULL, 0},
};
