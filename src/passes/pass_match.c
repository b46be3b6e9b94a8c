/* Matching helpers: views, products, polynomials, index arithmetic, and the fixed-point frame.
 *   layer    L2 passes; may include base, format, ir
 *   see      pass_match.h for what each question means */
#include "pass_match.h"
#include <math.h>

/* ---- emitting ---- */

ir_id pm_un(ir_graph *g, ir_op op, ir_id a) { return pass_emit(g, op, &a, 1, NULL); }

ir_id pm_bin(ir_graph *g, ir_op op, ir_id a, ir_id b)
{
    return pass_emit(g, op, (ir_id[]){a, b}, 2, NULL);
}

static ir_id emit_dims(ir_graph *g, ir_op op, ir_id x, const fmt_dim *dims, uint32_t rank)
{
    ir_attrs a = {.n_dims = (uint8_t)rank};
    if (rank)
        memcpy(a.dims, dims, rank * sizeof *dims);
    return pass_emit(g, op, &x, 1, &a);
}

ir_id pm_reshape(ir_graph *g, ir_id x, const fmt_dim *dims, uint32_t rank)
{
    return emit_dims(g, IR_reshape, x, dims, rank);
}

ir_id pm_broadcast(ir_graph *g, ir_id x, const fmt_dim *dims, uint32_t rank)
{
    return emit_dims(g, IR_broadcast, x, dims, rank);
}

ir_id pm_permute(ir_graph *g, ir_id x, const int64_t *perm)
{
    ir_attrs a = {.n_list = ir_type_of(g, x)->rank};
    memcpy(a.list, perm, a.n_list * sizeof *perm);
    return pass_emit(g, IR_permute, &x, 1, &a);
}

ir_id pm_swap_last(ir_graph *g, ir_id x)
{
    int64_t perm[FMT_RANK_MAX] = {0};
    int rank = ir_type_of(g, x)->rank;
    for (int j = 0; j < rank; j++)
        perm[j] = j < rank - 2 ? j : 2 * rank - 3 - j;
    return pm_permute(g, x, perm);
}

ir_id pm_slice(ir_graph *g, ir_id x, const fmt_dim *start, const fmt_dim *size, const int64_t *step)
{
    uint8_t rank = ir_type_of(g, x)->rank;
    ir_attrs a = {.n_list = rank, .n_dims = rank, .n_sizes = rank};
    memcpy(a.dims, start, rank * sizeof *start);
    memcpy(a.sizes, size, rank * sizeof *size);
    memcpy(a.list, step, rank * sizeof *step);
    return pass_emit(g, IR_slice, &x, 1, &a);
}

ir_id pm_splat(ir_graph *g, fmt_dtype t, double v, const fmt_dim *dims, uint32_t rank)
{
    return pm_broadcast(g, ir_scalar(g, t, v), dims, rank);
}

ir_id pm_scaled(ir_graph *g, ir_id x, double scale)
{
    if (scale == 1.0 || !x)
        return x;
    ir_type t = *ir_type_of(g, x);
    return pm_bin(g, IR_mul, x, pm_splat(g, t.dtype, scale, t.dim, t.rank));
}

ir_id pm_first(const pm_rule *rules, size_t n_rules, ir_graph *g, const pm_node *n)
{
    for (size_t i = 0; i < n_rules; i++) {
        ir_id r = rules[i](g, n);
        if (r || g->err.code)
            return r;
    }
    return 0;
}

/* ---- fixed point ---- */

bool pm_same_graph(const ir_graph *a, const ir_graph *b)
{
    if (a->n_nodes != b->n_nodes || a->n_outputs != b->n_outputs)
        return false;
    for (ir_id id = 1; id < a->n_nodes; id++) {
        const ir_node *x = ir_node_get(a, id), *y = ir_node_get(b, id);
        if (x->op != y->op || x->n_in != y->n_in || !ir_type_eq(&x->type, &y->type) ||
            memcmp(ir_attrs_of(a, id), ir_attrs_of(b, id), sizeof(ir_attrs)) != 0)
            return false;
        for (uint32_t k = 0; k < x->n_in; k++)
            if (ir_in(a, id, k) != ir_in(b, id, k))
                return false;
    }
    for (uint32_t i = 0; i < a->n_outputs; i++)
        if (a->outputs[i].id != b->outputs[i].id)
            return false;
    return true;
}

static ir_id copy_rule(void *ctx, const ir_graph *old, ir_id old_id, ir_graph *g, const ir_id *in)
{
    (void)ctx;
    return ir_copy_node(g, old, old_id, in);
}

/* One round: the rule, then a plain copy that leaves out what the rule no longer uses. */
static rtx_status one_round(const ir_graph *g, ir_rule rule, void *ctx, ir_graph **out,
                            rtx_err *err)
{
    ir_graph *next = NULL;
    TRY(ir_rewrite(g, rule, ctx, &next, err));
    rtx_status s = ir_rewrite(next, copy_rule, NULL, out, err);
    ir_graph_free(next);
    return s;
}

rtx_status pm_fixed_point(const ir_graph *g, ir_rule rule, void *ctx, int max_rounds,
                          ir_graph **out, rtx_err *err)
{
    ir_graph *cur = NULL;
    for (int round = 0; round < max_rounds; round++) {
        ir_graph *next = NULL;
        rtx_status s = one_round(cur ? cur : g, rule, ctx, &next, err);
        bool same = s == RTX_OK && cur && pm_same_graph(cur, next);
        ir_graph_free(cur);
        cur = next;
        if (s != RTX_OK)
            return s;
        if (same)
            break;
    }
    *out = cur;
    return RTX_OK;
}

/* ---- small questions ---- */

bool pm_near(double a, double b)
{
    return a == b || (isfinite(a) && isfinite(b) && fabs(a - b) <= 1e-6 * fmax(fabs(a), fabs(b)));
}

bool pm_same_dims(const ir_type *a, const ir_type *b)
{
    return a->rank == b->rank &&
           (a->rank == 0 || memcmp(a->dim, b->dim, a->rank * sizeof a->dim[0]) == 0);
}

bool pm_elems_const(const ir_graph *g, const ir_type *t, int64_t *out_elems)
{
    int64_t n = 1;
    for (int j = 0; j < t->rank; j++) {
        int64_t d;
        if (!fmt_dim_is_const(g->dims, t->dim[j], &d) || d < 0 || (d && n > FMT_DIM_LIMIT / d))
            return false;
        n *= d;
    }
    *out_elems = n;
    return true;
}

bool pm_unit_map(const ir_graph *g, const ir_type *from, const ir_type *to, int8_t *map)
{
    int f = 0;
    for (int t = 0; t < to->rank; t++) {
        map[t] = -1;
        if (pm_unit(g, to->dim[t]))
            continue;
        while (f < from->rank && pm_unit(g, from->dim[f]))
            f++;
        if (f >= from->rank || from->dim[f] != to->dim[t])
            return false;
        map[t] = (int8_t)f++;
    }
    while (f < from->rank && pm_unit(g, from->dim[f]))
        f++;
    return f == from->rank;
}

/* ---- behind views ---- */

/* Step of pm_look: the axis of the input that axis `a` of view `id` reads, -1 for none. */
static int view_axis(const ir_graph *g, ir_id id, int a, const int8_t *unit_map)
{
    const ir_type *out = ir_type_of(g, id), *in = ir_type_of(g, ir_in(g, id, 0));
    switch (ir_op_of(g, id)) {
    case IR_permute:
        return (int)ir_attrs_of(g, id)->list[a];
    case IR_broadcast: {
        int b = a - (out->rank - in->rank);
        return b < 0 || pm_unit(g, in->dim[b]) ? -1 : b;
    }
    default:
        return unit_map[a];
    }
}

pm_view pm_look(const ir_graph *g, ir_id id)
{
    pm_view v = {.core = id, .rank = ir_type_of(g, id)->rank};
    for (int j = 0; j < v.rank; j++)
        v.axis[j] = pm_unit(g, ir_type_of(g, id)->dim[j]) ? -1 : (int8_t)j;
    for (;;) {
        ir_op op = ir_op_of(g, v.core);
        int8_t unit_map[FMT_RANK_MAX];
        if (op == IR_reshape) {
            if (!pm_unit_map(g, ir_type_of(g, ir_in(g, v.core, 0)), ir_type_of(g, v.core),
                             unit_map))
                return v;
        } else if (op != IR_broadcast && op != IR_permute) {
            return v;
        }
        for (int j = 0; j < v.rank; j++)
            if (v.axis[j] >= 0)
                v.axis[j] = (int8_t)view_axis(g, v.core, v.axis[j], unit_map);
        v.core = ir_in(g, v.core, 0);
    }
}

static bool keeps_rows(const ir_graph *g, ir_id id)
{
    if (!pm_is(g, id, IR_reshape))
        return false;
    const ir_type *out = ir_type_of(g, id), *in = ir_type_of(g, ir_in(g, id, 0));
    return out->rank && in->rank && out->dim[out->rank - 1] == in->dim[in->rank - 1];
}

ir_id pm_rows(const ir_graph *g, ir_id id)
{
    while (keeps_rows(g, id))
        id = ir_in(g, id, 0);
    return id;
}

bool pm_row_value(const ir_graph *g, ir_id id, ir_id *out_core)
{
    if (!pm_is(g, id, IR_broadcast))
        return false;
    const ir_type *out = ir_type_of(g, id);
    ir_id core = ir_in(g, id, 0);
    const ir_type *in = ir_type_of(g, core);
    if (in->rank == 0 || !pm_unit(g, in->dim[in->rank - 1]))
        return false;
    for (int j = 0; j < out->rank - 1; j++) {
        int from = j - (out->rank - in->rank);
        if (from < 0 ? !pm_unit(g, out->dim[j]) : in->dim[from] != out->dim[j])
            return false;
    }
    while (pm_is(g, core, IR_reshape))
        core = ir_in(g, core, 0);
    *out_core = core;
    return true;
}

bool pm_col_vector(ir_graph *g, ir_id id, ir_id *out_vec)
{
    pm_view v = pm_look(g, id);
    if (v.rank == 0)
        return false;
    for (int j = 0; j < v.rank - 1; j++)
        if (v.axis[j] >= 0)
            return false;
    /* axes of the core that the outside does not read have size 1 */
    fmt_dim last = ir_type_of(g, id)->dim[v.rank - 1], one = fmt_dim_const(g->dims, 1);
    ir_id vec = pm_reshape(g, v.core, v.axis[v.rank - 1] >= 0 ? &last : &one, 1);
    *out_vec = vec ? pm_broadcast(g, vec, &last, 1) : 0;
    return *out_vec != 0;
}

/* ---- products, lines, polynomials ---- */

bool pm_take(ir_id *list, uint8_t *n, ir_id id)
{
    for (uint8_t i = 0; i < *n; i++)
        if (list[i] == id) {
            list[i] = list[--*n];
            return true;
        }
    return false;
}

static bool is_float(const ir_graph *g, ir_id id)
{
    return fmt_dtype_class(ir_type_of(g, id)->dtype) == 'F';
}

typedef struct collect_how {
    ir_id stop;
    bool rows;
} collect_how;

static bool collect(const ir_graph *g, ir_id id, collect_how how, bool below, int depth,
                    pm_product *p)
{
    double v;
    if (how.rows)
        id = pm_rows(g, id);
    ir_op op = ir_op_of(g, id);
    if (ir_is_splat(g, id, &v)) {
        p->scale = below ? p->scale / v : p->scale * v;
        return true;
    }
    if (id != how.stop && depth < 16) {
        if (op == IR_mul || op == IR_div)
            return collect(g, ir_in(g, id, 0), how, below, depth + 1, p) &&
                   collect(g, ir_in(g, id, 1), how, op == IR_div ? !below : below, depth + 1, p);
        if (op == IR_neg) {
            p->scale = -p->scale;
            return collect(g, ir_in(g, id, 0), how, below, depth + 1, p);
        }
        if (op == IR_recip)
            return collect(g, ir_in(g, id, 0), how, !below, depth + 1, p);
    }
    uint8_t *n = below ? &p->n_den : &p->n_num;
    if (*n == PM_FACTORS)
        return false;
    (below ? p->den : p->num)[(*n)++] = id;
    return true;
}

bool pm_product_of(const ir_graph *g, ir_id id, ir_id stop, pm_product *out)
{
    *out = (pm_product){.scale = 1.0};
    return is_float(g, id) && collect(g, id, (collect_how){stop, false}, false, 0, out);
}

bool pm_row_product_of(const ir_graph *g, ir_id id, ir_id stop, pm_product *out)
{
    *out = (pm_product){.scale = 1.0};
    return is_float(g, id) && collect(g, id, (collect_how){stop, true}, false, 0, out);
}

pm_line pm_line_of(const ir_graph *g, ir_id id)
{
    pm_line l = {.core = id, .mul = 1.0, .add = 0.0};
    while (is_float(g, l.core)) {
        ir_op op = ir_op_of(g, l.core);
        double v;
        if (op == IR_neg) {
            l.mul = -l.mul;
            l.core = ir_in(g, l.core, 0);
            continue;
        }
        if (op != IR_add && op != IR_sub && op != IR_mul && op != IR_div)
            break;
        ir_id a = ir_in(g, l.core, 0), b = ir_in(g, l.core, 1);
        bool right = ir_is_splat(g, b, &v);
        if (!right && (op == IR_div || !ir_is_splat(g, a, &v)))
            break;
        if (op == IR_mul)
            l.mul *= v;
        else if (op == IR_div)
            l.mul /= v;
        else if (op == IR_add)
            l.add += l.mul * v;
        else if (right)
            l.add -= l.mul * v;
        else /* v - x */
            l.add += l.mul * v, l.mul = -l.mul;
        l.core = right ? a : b;
    }
    return l;
}

static bool poly_mul(const double a[4], const double b[4], double c[4])
{
    double r[7] = {0};
    for (int i = 0; i < 4; i++)
        for (int j = 0; j < 4; j++)
            r[i + j] += a[i] * b[j];
    memcpy(c, r, 4 * sizeof *c);
    return r[4] == 0 && r[5] == 0 && r[6] == 0;
}

static bool poly(const ir_graph *g, ir_id id, ir_id x, int depth, double c[4])
{
    double v, a[4], b[4];
    ir_op op = ir_op_of(g, id);
    memset(c, 0, 4 * sizeof *c);
    if (id == x)
        return c[1] = 1.0, true;
    if (ir_is_splat(g, id, &v))
        return c[0] = v, true;
    if (depth > 8 || !is_float(g, id))
        return false;
    if (op == IR_neg) {
        if (!poly(g, ir_in(g, id, 0), x, depth + 1, c))
            return false;
        for (int i = 0; i < 4; i++)
            c[i] = -c[i];
        return true;
    }
    if (op == IR_pow) {
        if (!ir_is_splat(g, ir_in(g, id, 1), &v) || (v != 2 && v != 3) ||
            !poly(g, ir_in(g, id, 0), x, depth + 1, a))
            return false;
        return poly_mul(a, a, c) && (v == 2 || (memcpy(b, c, sizeof b), poly_mul(a, b, c)));
    }
    if (op != IR_add && op != IR_sub && op != IR_mul && op != IR_div)
        return false;
    if (!poly(g, ir_in(g, id, 0), x, depth + 1, a) || !poly(g, ir_in(g, id, 1), x, depth + 1, b))
        return false;
    if (op == IR_mul)
        return poly_mul(a, b, c);
    if (op == IR_div && (b[1] != 0 || b[2] != 0 || b[3] != 0 || b[0] == 0))
        return false;
    for (int i = 0; i < 4; i++)
        c[i] = op == IR_add ? a[i] + b[i] : op == IR_sub ? a[i] - b[i] : a[i] / b[0];
    return true;
}

bool pm_poly_of(const ir_graph *g, ir_id id, ir_id x, double c[4]) { return poly(g, id, x, 0, c); }

/* ---- integers that are a function of their position ---- */

static int64_t const_int(const ir_graph *g, ir_id id, int64_t at)
{
    const ir_const *c = ir_const_of(g, id);
    if (ir_type_of(g, id)->dtype == FMT_I64) {
        int64_t v;
        memcpy(&v, (const char *)c->data + 8 * at, 8);
        return v;
    }
    int32_t v;
    memcpy(&v, (const char *)c->data + 4 * at, 4);
    return v;
}

/* A constant table whose entries step evenly along every axis (position ids: 0, 1, 2, …). */
static bool index_const(const ir_graph *g, ir_id id, pm_index *out)
{
    const ir_type *t = ir_type_of(g, id);
    int64_t n, stride[FMT_RANK_MAX], dim[FMT_RANK_MAX], step[FMT_RANK_MAX], s = 1;
    if ((t->dtype != FMT_I64 && t->dtype != FMT_I32) || !pm_elems_const(g, t, &n) || n == 0 ||
        n > 65536)
        return false;
    int64_t base = const_int(g, id, 0);
    for (int j = t->rank - 1; j >= 0; j--) {
        if (!fmt_dim_is_const(g->dims, t->dim[j], &dim[j]))
            return false;
        stride[j] = s;
        step[j] = dim[j] > 1 ? const_int(g, id, s) - base : 0;
        s *= dim[j];
    }
    for (int64_t at = 0; at < n; at++) {
        int64_t want = base;
        for (int j = 0; j < t->rank; j++)
            want =
                (int64_t)((uint64_t)want + (uint64_t)step[j] * (uint64_t)(at / stride[j] % dim[j]));
        if (const_int(g, id, at) != want)
            return false;
    }
    if (base > FMT_DIM_LIMIT || base < -FMT_DIM_LIMIT)
        return false;
    out->base = fmt_dim_const(g->dims, base);
    for (int j = 0; j < t->rank; j++) {
        if (step[j] > FMT_DIM_LIMIT || step[j] < -FMT_DIM_LIMIT)
            return false;
        out->step[j] = fmt_dim_const(g->dims, step[j]);
    }
    return true;
}

static bool is_level(const ir_graph *g, const pm_index *x) /* the same value everywhere */
{
    for (int j = 0; j < x->rank; j++)
        if (!fmt_dim_is(g->dims, x->step[j], 0))
            return false;
    return true;
}

/* out = a * ka + b * kb with constants ka, kb of +1 or -1 for sums, or a level b for products. */
static bool index_combine(const ir_graph *g, ir_op op, const pm_index *a, const pm_index *b,
                          pm_index *out)
{
    fmt_dims *p = g->dims;
    if (op == IR_mul) {
        if (!is_level(g, b)) {
            const pm_index *swap = a;
            a = b, b = swap;
        }
        if (!is_level(g, b))
            return false;
        out->base = fmt_dim_mul(p, a->base, b->base);
        for (int j = 0; j < out->rank; j++)
            out->step[j] = fmt_dim_mul(p, a->step[j], b->base);
        return true;
    }
    fmt_dim_op d = op == IR_add ? FMT_ADD : FMT_SUB;
    out->base = fmt_dim_bin(p, d, a->base, b->base);
    for (int j = 0; j < out->rank; j++)
        out->step[j] = fmt_dim_bin(p, d, a->step[j], b->step[j]);
    return true;
}

/* A view of an index table reads another axis of it, or starts elsewhere in it. */
static bool index_view(const ir_graph *g, ir_id id, const pm_index *in, pm_index *out)
{
    const ir_attrs *a = ir_attrs_of(g, id);
    int8_t unit_map[FMT_RANK_MAX] = {0};
    out->base = in->base;
    if (ir_op_of(g, id) == IR_slice) {
        for (int j = 0; j < out->rank; j++) {
            out->base =
                fmt_dim_add(g->dims, out->base, fmt_dim_mul(g->dims, in->step[j], a->dims[j]));
            out->step[j] = fmt_dim_mul(g->dims, in->step[j], fmt_dim_const(g->dims, a->list[j]));
        }
        return true;
    }
    if (ir_op_of(g, id) == IR_reshape && is_level(g, in)) {
        for (int j = 0; j < out->rank; j++)
            out->step[j] = fmt_dim_const(g->dims, 0);
        return true;
    }
    if (ir_op_of(g, id) == IR_reshape &&
        !pm_unit_map(g, ir_type_of(g, ir_in(g, id, 0)), ir_type_of(g, id), unit_map))
        return false;
    for (int j = 0; j < out->rank; j++) {
        int from = view_axis(g, id, j, unit_map);
        out->step[j] = from < 0 ? fmt_dim_const(g->dims, 0) : in->step[from];
    }
    return true;
}

/* Sum of the lowest and of the highest values that base and steps reach, where a size counts as at most `cap`. */
static void index_ends(const ir_graph *g, const pm_index *x, const ir_type *t, double cap,
                       double *out_lo, double *out_hi)
{
    int64_t lo, hi;
    fmt_dim_range(g->dims, x->base, &lo, &hi);
    bool fixed = lo == hi;
    *out_lo = fixed ? (double)lo : MAX((double)lo, -cap);
    *out_hi = fixed ? (double)hi : MIN((double)hi, cap);
    for (int j = 0; j < x->rank; j++) {
        int64_t step_lo, step_hi, dim_lo, dim_hi;
        fmt_dim_range(g->dims, x->step[j], &step_lo, &step_hi);
        fmt_dim_range(g->dims, t->dim[j], &dim_lo, &dim_hi);
        double far = (double)MAX(dim_hi - 1, 0);
        if (dim_lo != dim_hi)
            far = MIN(far, cap);
        *out_lo += MIN(0.0, (double)step_lo * far);
        *out_hi += MAX(0.0, (double)step_hi * far);
    }
}

/* i32 wraps, the index does not. Free sizes count as below 2^30: an axis that i32 could not number is taken for no model's. */
static bool fits_i32(const ir_graph *g, const pm_index *x, const ir_type *t)
{
    double lo, hi;
    index_ends(g, x, t, 0x1p30 - 1, &lo, &hi);
    return lo >= INT32_MIN && hi <= INT32_MAX;
}

static bool index_rec(const ir_graph *g, ir_id id, int depth, pm_index *out)
{
    const ir_type *t = ir_type_of(g, id);
    const ir_attrs *attrs = ir_attrs_of(g, id);
    pm_index a, b;
    bool ok = false;
    if (fmt_dtype_class(t->dtype) != 'I' || depth > 24)
        return false;
    *out = (pm_index){.rank = t->rank, .base = fmt_dim_const(g->dims, 0)};
    for (int j = 0; j < t->rank; j++)
        out->step[j] = fmt_dim_const(g->dims, 0);
    switch (ir_op_of(g, id)) {
    case IR_const:
        ok = index_const(g, id, out);
        break;
    case IR_iota:
        out->step[attrs->i[0]] = fmt_dim_const(g->dims, 1);
        ok = true;
        break;
    case IR_dimvals:
        out->base = attrs->dims[0];
        ok = attrs->n_dims == 1;
        break;
    case IR_cast:
        ok = index_rec(g, ir_in(g, id, 0), depth + 1, out);
        break;
    case IR_add:
    case IR_sub:
    case IR_mul:
        ok = index_rec(g, ir_in(g, id, 0), depth + 1, &a) &&
             index_rec(g, ir_in(g, id, 1), depth + 1, &b) &&
             index_combine(g, ir_op_of(g, id), &a, &b, out);
        break;
    case IR_reshape:
    case IR_broadcast:
    case IR_permute:
    case IR_slice:
        ok = index_rec(g, ir_in(g, id, 0), depth + 1, &a) && index_view(g, id, &a, out);
        break;
    default:
        break;
    }
    for (int j = 0; ok && j < out->rank; j++) {
        if (pm_unit(g, t->dim[j]))
            out->step[j] = fmt_dim_const(g->dims, 0);
        ok = out->step[j] != FMT_DIM_BAD;
    }
    return ok && out->base != FMT_DIM_BAD && (t->dtype != FMT_I32 || fits_i32(g, out, t));
}

bool pm_index_of(const ir_graph *g, ir_id id, pm_index *out) { return index_rec(g, id, 0, out); }

bool pm_index_sub(const ir_graph *g, const pm_index *a, const pm_index *b, pm_index *out)
{
    *out = (pm_index){.rank = a->rank};
    return a->rank == b->rank && index_combine(g, IR_sub, a, b, out);
}

static int64_t clamp(double v)
{
    return v >= (double)FMT_DIM_LIMIT    ? FMT_DIM_LIMIT
           : v <= -(double)FMT_DIM_LIMIT ? -FMT_DIM_LIMIT
                                         : (int64_t)v;
}

void pm_index_range(const ir_graph *g, const pm_index *x, const ir_type *t, int64_t *out_lo,
                    int64_t *out_hi)
{
    double from, to;
    index_ends(g, x, t, HUGE_VAL, &from, &to);
    *out_lo = clamp(from);
    *out_hi = clamp(to);
}
