/* Rule of pass raise for attention: softmax(scale q kᵀ + mask) v, wherever scale, mask and views stand.
 *   layer     L2 passes; may include base, format, ir
 *   entry     pass_raise_attention
 *   method    from dot(p, v) down: p is a softmax of the last axis (maybe with NaN replaced by 0); the scores below it are
 *             read as a sum of one dot and masks, each with a constant factor; the factors of q and k are taken out from
 *             below their views; everything is then brought to [B,H,S,D]
 *   masks     where(m, s, v) becomes s + where(m, 0, v) for v ≤ -1e30, because such a v absorbs every finite score in f32
 *             (and in f64: it is beyond 2^53 times any score below 1e13). A score that is itself NaN or infinite would pass
 *             the sum but not the where; then q or k holds NaN or infinities, and v mostly too. Not over further masks,
 *             unless v is -inf: in a row that is masked altogether v + v weighs less than v, where both should weigh the same
 *   causal    only when no row can be masked altogether: -inf anywhere, or a finite lowest as the only mask, with Sk ≥ Sq
 *             proven. A finite value in a row with no visible key spreads the weights over all keys, visible or not, which
 *             a causal kernel would not */
#include "pass_match.h"
#include <math.h>

enum { MASKS_MAX = 4 };
#define LOWEST_MAX (-1e30)

typedef struct mask_term {
    ir_id id; /* f32, added to the scores */
    double scale;
    bool minus_inf; /* its low value is -inf */
    bool causal;
} mask_term;

typedef struct scores {
    ir_id dot;    /* q · kᵀ */
    double scale; /* of the dot */
    mask_term mask[MASKS_MAX];
    int n_masks;
    ir_type shape; /* where the masks are added; that of the dot without masks */
} scores;

/* ---- scores as a sum ---- */

static bool add_mask(const ir_graph *g, scores *s, ir_id id, double scale)
{
    const ir_type *t = ir_type_of(g, id);
    if (s->n_masks == MASKS_MAX || (s->n_masks && !pm_same_dims(t, &s->shape)))
        return false;
    s->shape = *t;
    s->mask[s->n_masks++] = (mask_term){.id = id, .scale = scale};
    return true;
}

/* A reshape that splits, joins or adds batch axes and keeps rows and columns. */
static bool batch_reshape(const ir_graph *g, ir_id id)
{
    if (!pm_is(g, id, IR_reshape))
        return false;
    const ir_type *a = ir_type_of(g, ir_in(g, id, 0)), *b = ir_type_of(g, id);
    return a->rank >= 2 && b->rank >= 2 && a->dim[a->rank - 1] == b->dim[b->rank - 1] &&
           a->dim[a->rank - 2] == b->dim[b->rank - 2];
}

static bool read_scores(ir_graph *g, ir_id id, double scale, int depth, scores *s);

/* where(m, x, v), v very low: x plus a mask. */
static bool read_select(ir_graph *g, ir_id id, double scale, int depth, scores *s)
{
    for (uint32_t k = 1; k < 3; k++) {
        double low;
        ir_id x = ir_in(g, id, k), value = ir_in(g, id, 3 - k), cond = ir_in(g, id, 0);
        if (!ir_is_splat(g, value, &low) || !(low <= LOWEST_MAX))
            continue;
        ir_type t = *ir_type_of(g, id);
        ir_id zero = pm_splat(g, t.dtype, 0.0, t.dim, t.rank);
        ir_id mask =
            zero ? pass_emit(g, IR_select,
                             k == 1 ? (ir_id[]){cond, zero, value} : (ir_id[]){cond, value, zero},
                             3, NULL)
                 : 0;
        if (!mask || !add_mask(g, s, mask, scale))
            return false;
        int above = s->n_masks;
        return read_scores(g, x, scale, depth + 1, s) && (low == -INFINITY || s->n_masks == above);
    }
    return false;
}

static bool read_sum(ir_graph *g, ir_id id, double scale, int depth, scores *s)
{
    bool sub = pm_is(g, id, IR_sub);
    for (uint32_t k = 0; k < (sub ? 1u : 2u); k++) {
        scores t = *s;
        if (add_mask(g, &t, ir_in(g, id, 1 - k), sub ? -scale : scale) &&
            read_scores(g, ir_in(g, id, k), scale, depth + 1, &t)) {
            *s = t;
            return true;
        }
    }
    return false;
}

static bool read_scores(ir_graph *g, ir_id id, double scale, int depth, scores *s)
{
    double v;
    if (depth > 10 || g->err.code)
        return false;
    switch (ir_op_of(g, id)) {
    case IR_dot:
        s->dot = id;
        s->scale = scale;
        if (!s->n_masks)
            s->shape = *ir_type_of(g, id);
        return true;
    case IR_neg:
        return read_scores(g, ir_in(g, id, 0), -scale, depth + 1, s);
    case IR_mul:
        for (uint32_t k = 0; k < 2; k++)
            if (ir_is_splat(g, ir_in(g, id, k), &v))
                return read_scores(g, ir_in(g, id, 1 - k), scale * v, depth + 1, s);
        return false;
    case IR_div:
        return ir_is_splat(g, ir_in(g, id, 1), &v) &&
               read_scores(g, ir_in(g, id, 0), scale / v, depth + 1, s);
    case IR_reshape:
        return batch_reshape(g, id) && read_scores(g, ir_in(g, id, 0), scale, depth + 1, s);
    case IR_select:
        return read_select(g, id, scale, depth, s);
    case IR_add:
    case IR_sub:
        return read_sum(g, id, scale, depth, s);
    default:
        return false;
    }
}

/* ---- masks ---- */

static bool const_element(const ir_graph *g, ir_id id, int64_t at, double *out)
{
    const char *data = ir_const_of(g, id)->data;
    switch (ir_type_of(g, id)->dtype) {
    case FMT_BOOL:
        *out = data[at] != 0;
        return true;
    case FMT_F32: {
        float f;
        memcpy(&f, data + 4 * at, 4);
        *out = f;
        return true;
    }
    default:
        return false;
    }
}

/* A constant table of 2 axes (others 1) that is *out_low where j ≤ i + *out_off and *out_high elsewhere:
 * below and above a diagonal. */
static bool const_triangle(const ir_graph *g, ir_id id, int64_t *out_off, double *out_low,
                           double *out_high)
{
    const ir_type *t = ir_type_of(g, id);
    int64_t n, rows, cols;
    if (!pm_is(g, id, IR_const) || t->rank < 2 || !pm_elems_const(g, t, &n) ||
        !fmt_dim_is_const(g->dims, t->dim[t->rank - 2], &rows) ||
        !fmt_dim_is_const(g->dims, t->dim[t->rank - 1], &cols) || n != rows * cols || n < 2 ||
        n > 1 << 24)
        return false;
    double first, v;
    int64_t off = 0; /* columns of row 0 that equal its first element, less one */
    if (!const_element(g, id, 0, &first))
        return false;
    while (off + 1 < cols && const_element(g, id, off + 1, &v) && v == first)
        off++;
    if (off + 1 == cols || !const_element(g, id, off + 1, out_high))
        return false;
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < cols; j++)
            if (!const_element(g, id, i * cols + j, &v) || v != (j <= i + off ? first : *out_high))
                return false;
    *out_off = off;
    *out_low = first;
    return true;
}

/* The last two axes of the outside are those of the core, in that order. */
static bool keeps_last_two(const ir_graph *g, const pm_view *v)
{
    int rank = ir_type_of(g, v->core)->rank;
    return v->rank >= 2 && rank >= 2 && v->axis[v->rank - 2] == rank - 2 &&
           v->axis[v->rank - 1] == rank - 1;
}

/* The table element [i, j] of the last two axes behind views and cuts: start of rows and columns. */
static bool behind_cut(const ir_graph *g, ir_id id, ir_id *out_core, fmt_dim *out_shift)
{
    pm_view v = pm_look(g, id);
    *out_core = v.core;
    *out_shift = fmt_dim_const(g->dims, 0);
    if (!keeps_last_two(g, &v))
        return false;
    for (int j = 0; j < v.rank - 2; j++)
        if (v.axis[j] >= 0)
            return false;
    if (!pm_is(g, v.core, IR_slice))
        return true;
    const ir_attrs *a = ir_attrs_of(g, v.core);
    int r = a->n_dims;
    if (a->list[r - 1] != 1 || a->list[r - 2] != 1)
        return false;
    *out_shift = fmt_dim_sub(g->dims, a->dims[r - 2], a->dims[r - 1]);
    *out_core = ir_in(g, v.core, 0);
    for (int j = 0; j < r - 2; j++)
        if (!pm_unit(g, ir_type_of(g, *out_core)->dim[j]))
            return false;
    return true;
}

/* Condition on [i, j] that is j ≤ i + *out_off, or its opposite (*out_in = false). */
static bool triangle(const ir_graph *g, ir_id cond, fmt_dim *out_off, bool *out_in)
{
    fmt_dims *p = g->dims;
    ir_id core;
    fmt_dim shift;
    if (pm_is(g, cond, IR_not))
        return triangle(g, ir_in(g, cond, 0), out_off, out_in) && (*out_in = !*out_in, true);
    int64_t off;
    double in, out;
    if (behind_cut(g, cond, &core, &shift) && const_triangle(g, core, &off, &in, &out)) {
        *out_off = fmt_dim_add(p, shift, fmt_dim_const(p, off));
        *out_in = in != 0;
        return (in != 0) != (out != 0);
    }
    ir_op op = ir_op_of(g, cond);
    if (pm_is(g, cond, IR_broadcast) ||
        pm_is(g, cond, IR_reshape)) { /* batch axes added outside the comparison */
        pm_view v = pm_look(g, cond);
        bool square = keeps_last_two(g, &v);
        for (int j = 0; j < v.rank - 2; j++)
            square = square && v.axis[j] < 0;
        return square && v.core != cond && triangle(g, v.core, out_off, out_in);
    }
    pm_index a, b, d;
    if (op < IR_lt || op > IR_ge || !pm_index_of(g, ir_in(g, cond, 0), &a) ||
        !pm_index_of(g, ir_in(g, cond, 1), &b) || a.rank < 2 || !pm_index_sub(g, &a, &b, &d))
        return false;
    for (int j = 0; j < d.rank - 2; j++)
        if (!fmt_dim_is(p, d.step[j], 0))
            return false;
    /* d = base + (±1)(j - i) against 0 */
    bool up = fmt_dim_is(p, d.step[d.rank - 1], 1) && fmt_dim_is(p, d.step[d.rank - 2], -1);
    bool down = fmt_dim_is(p, d.step[d.rank - 1], -1) && fmt_dim_is(p, d.step[d.rank - 2], 1);
    if (!up && !down)
        return false;
    bool less = op == IR_lt || op == IR_le, strict = op == IR_lt || op == IR_gt;
    *out_in = less == up;
    /* up: j - i ≤ -base; down: j - i ≤ base. A strict "inside" or a non-strict "outside" ends one earlier. */
    *out_off = up ? fmt_dim_sub(p, fmt_dim_const(p, 0), d.base) : d.base;
    if (*out_in == strict)
        *out_off = fmt_dim_sub(p, *out_off, fmt_dim_const(p, 1));
    return true;
}

/* The offset is that of a causal mask of this shape: Sk - Sq, and no row is empty. */
static bool causal_offset(const ir_graph *g, fmt_dim off, const ir_type *shape)
{
    fmt_dim want = fmt_dim_sub(g->dims, shape->dim[shape->rank - 1], shape->dim[shape->rank - 2]);
    int64_t lo, hi;
    fmt_dim_range(g->dims, want, &lo, &hi);
    return off == want && lo >= 0;
}

/* The mask is 0 where j ≤ i + Sk - Sq and *out_low elsewhere. */
static bool causal_mask(const ir_graph *g, ir_id mask, const ir_type *shape, double *out_low)
{
    fmt_dim off, shift;
    bool in;
    ir_id core;
    double zero;
    int64_t c;
    if (behind_cut(g, mask, &core, &shift) && const_triangle(g, core, &c, &zero, out_low))
        return zero == 0 &&
               causal_offset(g, fmt_dim_add(g->dims, shift, fmt_dim_const(g->dims, c)), shape);
    pm_view view = pm_look(g, mask);
    core = view.core;
    double a, b;
    if (!keeps_last_two(g, &view) || !pm_is(g, core, IR_select) ||
        !ir_is_splat(g, ir_in(g, core, 1), &a) || !ir_is_splat(g, ir_in(g, core, 2), &b) ||
        !triangle(g, ir_in(g, core, 0), &off, &in) || !causal_offset(g, off, shape))
        return false;
    *out_low = in ? b : a;
    return (in ? a : b) == 0;
}

/* where(causal & m, 0, -inf) = causal and where(m, 0, -inf): split the condition into its parts. */
static void split_mask(ir_graph *g, scores *s, int k)
{
    pm_view v = pm_look(g, s->mask[k].id);
    double yes, no;
    fmt_dim off;
    bool in;
    if (!pm_is(g, v.core, IR_select) || s->n_masks == MASKS_MAX || s->mask[k].scale <= 0 ||
        !ir_is_splat(g, ir_in(g, v.core, 1), &yes) || !ir_is_splat(g, ir_in(g, v.core, 2), &no) ||
        yes != 0 || no != -INFINITY)
        return;
    ir_id cond = ir_in(g, v.core, 0), low = ir_in(g, v.core, 2);
    bool direct = v.core == s->mask[k].id ||
                  (pm_is(g, s->mask[k].id, IR_broadcast) && ir_in(g, s->mask[k].id, 0) == v.core);
    if (!pm_is(g, cond, IR_and) || !direct || !keeps_last_two(g, &v))
        return;
    for (uint32_t side = 0; side < 2; side++)
        if (triangle(g, ir_in(g, cond, side), &off, &in) && in &&
            causal_offset(g, off, &s->shape)) {
            ir_id in3[3] = {ir_in(g, cond, 1 - side), ir_in(g, v.core, 1), low};
            ir_id other = pass_emit(g, IR_select, in3, 3, NULL);
            other = other ? pm_broadcast(g, other, s->shape.dim, s->shape.rank) : 0;
            if (!other)
                return;
            s->mask[k] = (mask_term){.id = other, .scale = 1.0};
            s->mask[s->n_masks++] = (mask_term){.causal = true, .minus_inf = true};
            return;
        }
}

/* Find the causal term; a finite one counts only when it is alone. */
static bool take_causal(ir_graph *g, scores *s)
{
    for (int k = 0, n = s->n_masks; k < n; k++)
        split_mask(g, s, k);
    for (int k = 0; k < s->n_masks; k++) {
        mask_term *m = &s->mask[k];
        double low = -INFINITY;
        if (!m->causal && (m->scale <= 0 || !causal_mask(g, m->id, &s->shape, &low)))
            continue;
        if (low != -INFINITY && (s->n_masks > 1 || !(low * m->scale <= LOWEST_MAX)))
            continue;
        *m = s->mask[--s->n_masks];
        return true;
    }
    return false;
}

/* The sum of the masks, or 0 for none; *out_ok false when one cannot be written. */
static ir_id sum_masks(ir_graph *g, const scores *s, bool *out_ok)
{
    ir_id sum = 0;
    *out_ok = true;
    for (int k = 0; k < s->n_masks && *out_ok; k++) {
        ir_id m = pm_scaled(g, s->mask[k].id, s->mask[k].scale);
        sum = m && sum ? pm_bin(g, IR_add, m, sum) : m;
        *out_ok = sum != 0;
    }
    return sum;
}

/* ---- operands ---- */

/* Take constant factors out of x, also from below views: x = *scale * result. */
static ir_id take_scale(ir_graph *g, ir_id id, int depth, double *scale)
{
    double v;
    ir_op op = ir_op_of(g, id);
    if (depth > 12)
        return id;
    if (op == IR_neg) {
        *scale = -*scale;
        return take_scale(g, ir_in(g, id, 0), depth + 1, scale);
    }
    if (op == IR_mul || op == IR_div)
        for (uint32_t k = 0; k < (op == IR_mul ? 2u : 1u); k++)
            if (ir_is_splat(g, ir_in(g, id, 1 - k), &v) && isfinite(v) && v != 0) {
                *scale = op == IR_mul ? *scale * v : *scale / v;
                return take_scale(g, ir_in(g, id, k), depth + 1, scale);
            }
    if (!ir_op_get(op)->view)
        return id;
    ir_id x = ir_in(g, id, 0), y = take_scale(g, x, depth + 1, scale);
    if (y == x || !y)
        return y ? id : 0;
    ir_attrs a = *ir_attrs_of(g, id);
    return pass_emit(g, op, &y, 1, &a);
}

/* [batch…, S, D] as [B, H, S, D] with the batch sizes of the scores; rank 2 and 3 get sizes 1. */
static bool batch_dims(const ir_graph *g, const ir_type *shape, fmt_dim out[2])
{
    fmt_dim one = fmt_dim_const(g->dims, 1);
    out[0] = shape->rank >= 3 ? shape->dim[0] : one;
    out[1] = shape->rank >= 4 ? shape->dim[1] : one;
    for (int j = 2; j < shape->rank - 2; j++) /* grouped heads [B, Hk, G] are one axis */
        out[1] = fmt_dim_mul(g->dims, out[1], shape->dim[j]);
    return shape->rank >= 2;
}

static ir_id to_rank4(ir_graph *g, ir_id x, const fmt_dim batch[2])
{
    ir_type t = *ir_type_of(g, x);
    return pm_reshape(g, x, (fmt_dim[]){batch[0], batch[1], t.dim[t.rank - 2], t.dim[t.rank - 1]},
                      4);
}

/* Heads that repeat: broadcast over a group axis and merged gives k[B,Hk,S,D] back; 0 when they do not repeat. */
static ir_id ungroup(ir_graph *g, ir_id x)
{
    ir_type t = *ir_type_of(g, x);
    fmt_dim one = fmt_dim_const(g->dims, 1);
    if (pm_is(g, x, IR_broadcast)) { /* one head for all: [B,1,S,D] */
        ir_id y = ir_in(g, x, 0);
        ir_type s = *ir_type_of(g, y);
        bool heads = s.rank < 3 || (s.rank == 4 && pm_unit(g, s.dim[1])) ||
                     (s.rank == 3 && pm_unit(g, s.dim[0]));
        if (!heads || pm_unit(g, t.dim[1]) || s.rank < 2)
            return 0;
        return pm_broadcast(g, y, (fmt_dim[]){t.dim[0], one, t.dim[2], t.dim[3]}, 4);
    }
    if (!pm_is(g, x, IR_reshape) || !pm_is(g, ir_in(g, x, 0), IR_broadcast))
        return 0;
    ir_id wide = ir_in(g, x, 0), y = ir_in(g, wide, 0);
    ir_type w = *ir_type_of(g, wide), s = *ir_type_of(g, y);
    if (w.rank != 5 || w.dim[0] != t.dim[0] || w.dim[3] != t.dim[2] || w.dim[4] != t.dim[3])
        return 0;
    int lead = w.rank - s.rank; /* axis 2 is the group: stretched there */
    if (lead > 2 || !pm_unit(g, s.dim[2 - lead]))
        return 0;
    fmt_dim kept[5] = {w.dim[0], w.dim[1], one, w.dim[3], w.dim[4]};
    y = pm_broadcast(g, y, kept, 5);
    return y ? pm_reshape(g, y, (fmt_dim[]){w.dim[0], w.dim[1], w.dim[3], w.dim[4]}, 4) : 0;
}

static void ungroup_both(ir_graph *g, ir_id *k, ir_id *v)
{
    ir_id gk = ungroup(g, *k), gv = gk ? ungroup(g, *v) : 0;
    int64_t heads;
    if (!gv || ir_type_of(g, gk)->dim[1] != ir_type_of(g, gv)->dim[1] ||
        !fmt_dim_is_const(g->dims, ir_type_of(g, *k)->dim[1], &heads) ||
        !fmt_dim_is_const(g->dims, ir_type_of(g, gk)->dim[1], &heads))
        return;
    *k = gk;
    *v = gv;
}

/* ---- the whole ---- */

/* p without where(isnan(p), 0, p). */
static ir_id below_nan_zero(const ir_graph *g, ir_id p, bool *out_zeroed)
{
    double v;
    *out_zeroed = false;
    while (batch_reshape(g, p))
        p = ir_in(g, p, 0);
    if (!pm_is(g, p, IR_select))
        return p;
    ir_id test = ir_in(g, p, 0), kept = ir_in(g, p, 2);
    if (!pm_is(g, test, IR_isnan) || ir_in(g, test, 0) != kept ||
        !ir_is_splat(g, ir_in(g, p, 1), &v) || v != 0)
        return p;
    *out_zeroed = true;
    while (batch_reshape(g, kept))
        kept = ir_in(g, kept, 0);
    return kept;
}

static ir_id emit_attention(ir_graph *g, const scores *s, ir_id mask, ir_id v, bool causal,
                            bool nan_zero)
{
    fmt_dim batch[2];
    double scale = s->scale;
    ir_id q = take_scale(g, ir_in(g, s->dot, 0), 0, &scale),
          k = q ? take_scale(g, ir_in(g, s->dot, 1), 0, &scale) : 0;
    if (!k || !batch_dims(g, &s->shape, batch))
        return 0;
    k = pm_swap_last(g, k);
    q = k ? to_rank4(g, q, batch) : 0;
    k = q ? to_rank4(g, k, batch) : 0;
    v = k ? to_rank4(g, v, batch) : 0;
    if (!v)
        return 0;
    ungroup_both(g, &k, &v);
    ir_id in[4] = {q, k, v, mask ? to_rank4(g, mask, batch) : 0};
    ir_attrs a = {.i = {causal, nan_zero}, .f = {scale}};
    return g->err.code ? 0 : pass_emit(g, IR_attention, in, mask ? 4 : 3, &a);
}

ir_id pass_raise_attention(ir_graph *g, ir_id id)
{
    bool nan_zero, ok;
    if (!pm_is(g, id, IR_dot))
        return 0;
    ir_id p = below_nan_zero(g, ir_in(g, id, 0), &nan_zero), v = ir_in(g, id, 1);
    scores s = {.n_masks = 0};
    if (!pm_is(g, p, IR_softmax) || !read_scores(g, ir_in(g, p, 0), 1.0, 0, &s))
        return 0;
    ir_type out = *ir_type_of(g, id), value = *ir_type_of(g, v);
    if (s.shape.dim[s.shape.rank - 1] != value.dim[value.rank - 2])
        return 0;
    bool causal = take_causal(g, &s);
    ir_id mask = sum_masks(g, &s, &ok);
    ir_id y = ok && !g->err.code ? emit_attention(g, &s, mask, v, causal, nan_zero) : 0;
    return y ? pm_reshape(g, y, out.dim, out.rank) : 0;
}
