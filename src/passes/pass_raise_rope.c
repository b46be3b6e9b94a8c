/* Rules of pass raise for rotary position embedding: x cos + rot(x) sin, written with the rotated tensor or by halves.
 *   layer    L2 passes; may include base, format, ir */
#include "pass_match.h"

/* ---- parts of x along the last axis ---- */

/* Elements start, start + step, … of the last axis of x, everything of the others, times scale. */
typedef struct part {
    ir_id x;
    double scale;
    fmt_dim start, size;
    int64_t step;
} part;

/* Only the last axis of slice `id` is cut. */
static bool last_slice(const ir_graph *g, ir_id id)
{
    if (!pm_is(g, id, IR_slice))
        return false;
    const ir_attrs *a = ir_attrs_of(g, id);
    const ir_type *t = ir_type_of(g, ir_in(g, id, 0));
    for (int j = 0; j < t->rank - 1; j++)
        if (!fmt_dim_is(g->dims, a->dims[j], 0) || a->sizes[j] != t->dim[j] || a->list[j] != 1)
            return false;
    return t->rank > 0;
}

/* x seen as pairs: reshape(x, […, D/2, 2]). */
static bool pairs_of(const ir_graph *g, ir_id id, ir_id *out_x)
{
    if (!pm_is(g, id, IR_reshape))
        return false;
    *out_x = ir_in(g, id, 0);
    const ir_type *p = ir_type_of(g, id), *t = ir_type_of(g, *out_x);
    if (p->rank != t->rank + 1 || !fmt_dim_is(g->dims, p->dim[p->rank - 1], 2))
        return false;
    return t->rank == 1 || memcmp(p->dim, t->dim, (t->rank - 1u) * sizeof t->dim[0]) == 0;
}

static bool part_of(const ir_graph *g, ir_id id, part *out)
{
    pm_product p;
    if (!pm_product_of(g, id, 0, &p) || p.n_num != 1 || p.n_den != 0)
        return false;
    ir_id s = p.num[0];
    if (pm_is(g, s,
              IR_reshape)) { /* a size 1 added or dropped after the cut; the sign may be below it */
        int8_t map[FMT_RANK_MAX];
        if (!pm_unit_map(g, ir_type_of(g, ir_in(g, s, 0)), ir_type_of(g, s), map) ||
            !part_of(g, ir_in(g, s, 0), out))
            return false;
        out->scale *= p.scale;
        return true;
    }
    if (!last_slice(g, s))
        return false;
    const ir_attrs *a = ir_attrs_of(g, s);
    int last = a->n_dims - 1;
    *out = (part){ir_in(g, s, 0), p.scale, a->dims[last], a->sizes[last], a->list[last]};
    ir_id x;
    if (pairs_of(g, out->x, &x) && fmt_dim_is(g->dims, out->size, 1)) {
        const ir_type *pairs = ir_type_of(g, out->x);
        *out = (part){x, p.scale, a->dims[last], pairs->dim[pairs->rank - 2], 2};
    }
    return true;
}

/* Parts a, b of x: its two halves (interleaved 0) or its even and odd elements (1); -1 if neither. */
static int split_kind(const ir_graph *g, const part *a, const part *b)
{
    if (a->x != b->x || a->step != b->step || a->size != b->size)
        return -1;
    const ir_type *t = ir_type_of(g, a->x);
    fmt_dim two = fmt_dim_const(g->dims, 2), dim = t->dim[t->rank - 1];
    if (fmt_dim_mul(g->dims, a->size, two) != dim || !fmt_dim_is(g->dims, a->start, 0))
        return -1;
    if (a->step == 1 && b->start == a->size)
        return 0;
    return a->step == 2 && fmt_dim_is(g->dims, b->start, 1) ? 1 : -1;
}

/* ---- x cos + rot(x) sin ---- */

/* id = rot(x): -second half, first half; or -odd, even in pairs. */
static bool rotated(const ir_graph *g, ir_id id, ir_id *out_x, int *out_interleaved)
{
    bool stacked = pm_is(g, id, IR_reshape);
    ir_id x;
    if (stacked) { /* pairs laid flat */
        id = ir_in(g, id, 0);
        const ir_type *t = ir_type_of(g, id);
        if (t->rank == 0 || !fmt_dim_is(g->dims, t->dim[t->rank - 1], 2))
            return false;
    }
    part first, second;
    if (!pm_is(g, id, IR_concat) || ir_node_get(g, id)->n_in != 2 ||
        ir_attrs_of(g, id)->i[0] != ir_type_of(g, id)->rank - 1 ||
        !part_of(g, ir_in(g, id, 0), &first) || !part_of(g, ir_in(g, id, 1), &second))
        return false;
    *out_interleaved = split_kind(g, &second, &first);
    x = first.x;
    *out_x = x;
    return first.scale == -1.0 && second.scale == 1.0 && *out_interleaved == stacked;
}

static ir_id emit_rope(ir_graph *g, ir_id x, ir_id cos, ir_id sin, int interleaved)
{
    return pass_emit(g, IR_rope, (ir_id[]){x, cos, sin}, 3, &(ir_attrs){.i = {interleaved}});
}

/* x * cos + rot(x) * sin. */
static ir_id rope_sum(ir_graph *g, ir_id id)
{
    pm_product a, b;
    if (!pm_is(g, id, IR_add))
        return 0;
    for (uint32_t k = 0; k < 2; k++) {
        if (!pm_product_of(g, ir_in(g, id, k), 0, &b) || b.n_num != 2 || b.n_den ||
            !pm_near(b.scale, 1.0))
            continue;
        for (int r = 0; r < 2; r++) {
            ir_id x, sin = b.num[1 - r];
            int interleaved;
            if (!rotated(g, b.num[r], &x, &interleaved) ||
                !pm_product_of(g, ir_in(g, id, 1 - k), x, &a) || a.n_num != 2 || a.n_den ||
                !pm_near(a.scale, 1.0) || !pm_take(a.num, &a.n_num, x))
                continue;
            if (pm_same_dims(ir_type_of(g, x), ir_type_of(g, id)))
                return emit_rope(g, x, a.num[0], sin, interleaved);
        }
    }
    return 0;
}

/* ---- by halves: (x1 c - x2 s, x2 c + x1 s) ---- */

/* id = p * c + sign * q * s with p, q parts of one x; c and s are the other factors. */
typedef struct half_sum {
    part p, q;
    double sign;
    ir_id c, s;
} half_sum;

static bool half_term(const ir_graph *g, ir_id id, part *out_part, ir_id *out_factor,
                      double *out_scale)
{
    pm_product p;
    if (!pm_product_of(g, id, 0, &p) || p.n_num != 2 || p.n_den)
        return false;
    for (int k = 0; k < 2; k++)
        if (part_of(g, p.num[k], out_part)) {
            *out_factor = p.num[1 - k];
            *out_scale = p.scale * out_part->scale;
            return true;
        }
    return false;
}

static bool half_of(const ir_graph *g, ir_id id, bool first, half_sum *out)
{
    bool sub = pm_is(g, id, IR_sub);
    double a, b;
    if ((!sub && !pm_is(g, id, IR_add)) || !half_term(g, ir_in(g, id, 0), &out->p, &out->c, &a) ||
        !half_term(g, ir_in(g, id, 1), &out->q, &out->s, &b))
        return false;
    b = sub ? -b : b;
    bool p_first = fmt_dim_is(g->dims, out->p.start, 0);
    if (p_first != first) { /* the cosine term is the part of the same place */
        part t = out->p;
        ir_id f = out->c;
        double v = a;
        out->p = out->q, out->c = out->s, a = b;
        out->q = t, out->s = f, b = v;
    }
    out->sign = b;
    return a == 1.0;
}

static ir_id join_last(ir_graph *g, ir_id a, ir_id b)
{
    ir_attrs axis = {.i = {ir_type_of(g, a)->rank - 1}};
    return pass_emit(g, IR_concat, (ir_id[]){a, b}, 2, &axis);
}

static ir_id rope_halves(ir_graph *g, ir_id id)
{
    half_sum a, b;
    if (!pm_is(g, id, IR_concat) || ir_node_get(g, id)->n_in != 2 ||
        ir_attrs_of(g, id)->i[0] != ir_type_of(g, id)->rank - 1 ||
        !half_of(g, ir_in(g, id, 0), true, &a) || !half_of(g, ir_in(g, id, 1), false, &b))
        return 0;
    if (split_kind(g, &a.p, &a.q) != 0 || split_kind(g, &b.q, &b.p) != 0 || a.p.x != b.p.x ||
        a.sign != -1.0 || b.sign != 1.0 || !pm_same_dims(ir_type_of(g, a.p.x), ir_type_of(g, id)))
        return 0;
    ir_id x = a.p.x, cos = join_last(g, a.c, b.c), sin = cos ? join_last(g, a.s, b.s) : 0;
    return sin ? emit_rope(g, x, cos, sin, 0) : 0;
}

ir_id pass_raise_rope(ir_graph *g, ir_id id)
{
    ir_id r = rope_sum(g, id);
    return r || g->err.code ? r : rope_halves(g, id);
}
