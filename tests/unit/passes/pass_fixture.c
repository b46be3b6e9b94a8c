/* See pass_fixture.h. */
#include "pass_fixture.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>
#include <stdio.h>

void fx_open(fx *f, uint64_t seed)
{
    *f = (fx){.seed = seed * UINT64_C(0x9e3779b97f4a7c15) + 1};
    assert_non_null(f->dims = fmt_dims_new());
    assert_non_null(f->g = ir_graph_new(f->dims));
}

void fx_close(fx *f)
{
    ir_graph_free(f->g);
    fmt_dims_free(f->dims);
}

static uint64_t next(fx *f)
{
    uint64_t z = f->seed += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

int fx_pick(fx *f, int n) { return f->plain ? 0 : (int)(next(f) % (uint64_t)n); }

double fx_real(fx *f)
{
    double s = 0;
    for (int i = 0; i < 4; i++)
        s += (double)(next(f) >> 11) / (double)(UINT64_C(1) << 53);
    return (s - 2.0) * 1.7;
}

fmt_dim fx_const(fx *f, int64_t v) { return fmt_dim_const(f->dims, v); }

fmt_dim fx_sym(fx *f, const char *name, int64_t hi)
{
    uint32_t s = fmt_sym_find(f->dims, name, strlen(name));
    return fmt_dim_sym(f->dims, s != UINT32_MAX ? s : fmt_sym_new(f->dims, name, 1, hi));
}

ir_id fx_input(fx *f, const char *name, fmt_dtype t, int rank, const fmt_dim *dim)
{
    ir_type ty = {.dtype = t, .rank = (uint8_t)rank};
    memcpy(ty.dim, dim, (size_t)rank * sizeof *dim);
    return ir_input(f->g, name, &ty);
}

ir_id fx_weight(fx *f, int rank, const int64_t *dim)
{
    ir_type t = {.dtype = FMT_F32, .rank = (uint8_t)rank};
    size_t n = 1;
    for (int j = 0; j < rank; j++) {
        t.dim[j] = fx_const(f, dim[j]);
        n *= (size_t)dim[j];
    }
    float *v = base_alloc_array(BASE_TAG_BASE, n, sizeof *v);
    assert_non_null(v);
    for (size_t i = 0; i < n; i++)
        v[i] = (float)fx_real(f);
    ir_id id = ir_const_copy(f->g, &t, v, n * sizeof *v);
    base_free(v);
    return id;
}

ir_id fx_num(fx *f, double v)
{
    ir_id s = ir_scalar(f->g, FMT_F32, v);
    fmt_dim one = fx_const(f, 1);
    return fx_pick(f, 2) ? ir_reshape(f->g, s, &one, 1) : s;
}

static ir_id ew(fx *f, ir_op op, ir_id a, ir_id b) { return ir_ew(f->g, op, (ir_id[]){a, b}, 2); }

ir_id fx_same(fx *f, ir_id x)
{
    ir_graph *g = f->g;
    ir_type t = *ir_type_of(g, x), u = t;
    int64_t perm[FMT_RANK_MAX], back[FMT_RANK_MAX];
    switch (fx_pick(f, 9)) {
    case 1:
        return ir_cast(g, ir_cast(g, x, FMT_F64), FMT_F32);
    case 2: /* rotate the axes and back */
        for (int j = 0; j < t.rank; j++) {
            perm[j] = (j + 1) % t.rank;
            back[perm[j]] = j;
        }
        return ir_permute(g, ir_permute(g, x, perm), back);
    case 3: /* flatten and back */
        u.dim[0] = ir_elems(g, &t);
        return ir_reshape(g, ir_reshape(g, x, u.dim, 1), t.dim, t.rank);
    case 4: /* unsqueeze and back */
        if (t.rank == FMT_RANK_MAX)
            return x;
        u.dim[0] = fx_const(f, 1);
        memcpy(u.dim + 1, t.dim, sizeof t.dim - sizeof t.dim[0]);
        return ir_reshape(g, ir_reshape(g, x, u.dim, t.rank + 1u), t.dim, t.rank);
    case 5:
        return ew(f, IR_mul, x, fx_num(f, 1.0));
    case 6:
        return ew(f, IR_sub, x, fx_num(f, 0.0));
    default:
        return x;
    }
}

ir_id fx_mul(fx *f, ir_id a, ir_id b)
{
    return fx_pick(f, 2) ? ew(f, IR_mul, fx_same(f, b), a) : ew(f, IR_mul, a, fx_same(f, b));
}

ir_id fx_add(fx *f, ir_id a, ir_id b)
{
    switch (fx_pick(f, 3)) {
    case 1:
        return ew(f, IR_add, b, a);
    default:
        return ew(f, IR_add, a, b);
    }
}

ir_id fx_sub(fx *f, ir_id a, ir_id b)
{
    switch (fx_pick(f, 4)) {
    case 1:
        return ew(f, IR_add, a, ir_emit1(f->g, IR_neg, b));
    case 2:
        return ew(f, IR_add, ir_emit1(f->g, IR_neg, b), a);
    default:
        return ew(f, IR_sub, a, b);
    }
}

static ir_id reciprocal(fx *f, ir_id x)
{
    return fx_pick(f, 2) ? ew(f, IR_div, fx_num(f, 1.0), x) : ir_emit1(f->g, IR_recip, x);
}

ir_id fx_div(fx *f, ir_id a, ir_id b)
{
    return fx_pick(f, 2) ? fx_mul(f, a, reciprocal(f, b)) : ew(f, IR_div, a, fx_same(f, b));
}

ir_id fx_scale(fx *f, ir_id x, double c)
{
    switch (fx_pick(f, 6)) {
    case 1:
        return ew(f, IR_mul, fx_num(f, c), x);
    case 2:
        return ew(f, IR_div, x, fx_num(f, 1.0 / c));
    case 3:
        return ew(f, IR_mul, ir_emit1(f->g, IR_neg, x), fx_num(f, -c));
    case 4:
        return ew(f, IR_mul, ew(f, IR_mul, x, fx_num(f, 2.0)), fx_num(f, c / 2.0));
    default:
        return ew(f, IR_mul, fx_same(f, x), fx_num(f, c));
    }
}

ir_id fx_offset(fx *f, ir_id x, double c)
{
    switch (fx_pick(f, 3)) {
    case 1:
        return ew(f, IR_add, fx_num(f, c), x);
    case 2:
        return ew(f, IR_sub, x, fx_num(f, -c));
    default:
        return ew(f, IR_add, x, fx_num(f, c));
    }
}

ir_id fx_square(fx *f, ir_id x)
{
    return fx_pick(f, 2) ? ew(f, IR_pow, x, fx_num(f, 2.0)) : ew(f, IR_mul, x, x);
}

ir_id fx_mean(fx *f, ir_id x, int axis)
{
    ir_type t = *ir_type_of(f->g, x);
    int64_t n, at = axis < 0 ? axis + t.rank : axis;
    if (!fmt_dim_is_const(f->dims, t.dim[at], &n))
        return ir_reduce(f->g, IR_reduce_mean, x, &at, 1, true);
    switch (fx_pick(f, 4)) {
    case 1:
        return ew(f, IR_div, ir_reduce(f->g, IR_reduce_sum, x, &at, 1, true), fx_num(f, (double)n));
    case 2:
        return ew(f, IR_mul, fx_num(f, 1.0 / (double)n),
                  ir_reduce(f->g, IR_reduce_sum, x, &at, 1, true));
    default:
        return ir_reduce(f->g, IR_reduce_mean, x, &at, 1, true);
    }
}

ir_id fx_inv_root(fx *f, ir_id x)
{
    switch (fx_pick(f, 5)) {
    case 1:
        return ir_emit1(f->g, IR_rsqrt, x);
    case 2:
        return ew(f, IR_pow, x, fx_num(f, -0.5));
    case 3:
        return reciprocal(f, ew(f, IR_pow, x, fx_num(f, 0.5)));
    case 4:
        return ir_emit1(f->g, IR_sqrt, reciprocal(f, x));
    default:
        return reciprocal(f, ir_emit1(f->g, IR_sqrt, x));
    }
}

ir_id fx_softmax(fx *f, ir_id x, int axis)
{
    int64_t at = axis < 0 ? axis + ir_type_of(f->g, x)->rank : axis;
    ir_id e = ir_emit1(f->g, IR_exp, fx_sub(f, x, ir_reduce(f->g, IR_reduce_max, x, &at, 1, true)));
    return fx_div(f, e, ir_reduce(f->g, IR_reduce_sum, e, &at, 1, true));
}

ir_id fx_permute(fx *f, ir_id x, int a, int b, int c, int d)
{
    return ir_permute(f->g, x, (int64_t[]){a, b, c, d});
}

ir_id fx_swap(fx *f, ir_id x)
{
    int64_t perm[FMT_RANK_MAX];
    int r = ir_type_of(f->g, x)->rank;
    for (int j = 0; j < r; j++)
        perm[j] = j < r - 2 ? j : 2 * r - 3 - j;
    return ir_permute(f->g, x, perm);
}

int fx_count(const ir_graph *g, ir_op op)
{
    int n = 0;
    for (ir_id id = 1; id < g->n_nodes; id++)
        n += ir_op_of(g, id) == op;
    return n;
}

static void random_tensor(fx *f, const ir_graph *g, ir_id id, const int64_t *syms, ir_tensor *out)
{
    const ir_type *t = ir_type_of(g, id);
    int64_t dim[FMT_RANK_MAX], n = 1;
    for (int j = 0; j < t->rank; j++) {
        assert_true(fmt_dim_eval(f->dims, t->dim[j], syms, &dim[j]));
        n *= dim[j];
    }
    size_t size = fmt_dtype_bytes(t->dtype);
    char *data = base_zalloc(BASE_TAG_BASE, (size_t)n * size);
    assert_non_null(data);
    for (int64_t i = 0; i < n; i++) {
        float x = f->nan && i == 1 ? NAN : (float)fx_real(f);
        int64_t v = (int64_t)(next(f) & 1);
        memcpy(data + (size_t)i * size, t->dtype == FMT_F32 ? (void *)&x : (void *)&v, size);
    }
    assert_int_equal(ir_tensor_from(data, t->dtype, t->rank, dim, out, NULL), RTX_OK);
    base_free(data);
}

static double distance(const ir_tensor *a, const ir_tensor *b)
{
    double diff = 0, top = 1e-30;
    if (a->elems != b->elems || a->dtype != b->dtype || a->rank != b->rank)
        return INFINITY;
    for (int64_t i = 0; i < a->elems; i++) {
        double x = a->f ? a->f[i] : (double)a->i[i], y = b->f ? b->f[i] : (double)b->i[i];
        if (isnan(x) && isnan(y))
            continue;
        if (isnan(x) || isnan(y))
            return INFINITY;
        if (x == y && isinf(x))
            continue;
        diff = fmax(diff, fabs(x - y));
        top = fmax(top, fabs(x));
    }
    return diff / top;
}

double fx_difference(fx *f, const ir_graph *a, const ir_graph *b)
{
    enum { PORTS_MAX = 16 };
    static const int64_t sizes[] = {2, 3, 5, 7, 4, 6};
    int64_t syms[16];
    ir_tensor in[PORTS_MAX] = {0}, x[PORTS_MAX] = {0}, y[PORTS_MAX] = {0};
    rtx_err err = {0};
    assert_true(a->n_inputs <= PORTS_MAX && a->n_inputs == b->n_inputs &&
                a->n_outputs == b->n_outputs);
    for (uint32_t s = 0; s < COUNT_OF(syms); s++)
        syms[s] = sizes[s % COUNT_OF(sizes)];
    for (uint32_t i = 0; i < a->n_inputs; i++)
        random_tensor(f, a, a->inputs[i].id, syms, &in[i]);
    if (ir_eval(a, in, NULL, x, NULL, SIZE_MAX, NULL, NULL, &err) != RTX_OK)
        fail_msg("before: %s", err.text);
    if (ir_eval(b, in, NULL, y, NULL, SIZE_MAX, NULL, NULL, &err) != RTX_OK)
        fail_msg("after: %s", err.text);
    double worst = 0;
    for (uint32_t i = 0; i < a->n_outputs; i++) {
        worst = fmax(worst, distance(&x[i], &y[i]));
        ir_tensor_done(&x[i]);
        ir_tensor_done(&y[i]);
    }
    for (uint32_t i = 0; i < a->n_inputs; i++)
        ir_tensor_done(&in[i]);
    return worst;
}

ir_graph *fx_pass(const ir_graph *g, const char *name)
{
    size_t n;
    const pass_info *table = pass_table(&n);
    for (size_t i = 0; i < n; i++) {
        ir_graph *out = NULL;
        rtx_err err = {0};
        if (strcmp(table[i].name, name) != 0)
            continue;
        if (table[i].run(g, &out, &err) != RTX_OK)
            fail_msg("pass %s: %s %s", name, err.where, err.text);
        if (ir_verify(out, &err) != RTX_OK)
            fail_msg("pass %s gives a bad graph: %s", name, err.text);
        return out;
    }
    fail_msg("no pass %s", name);
    return NULL;
}

ir_graph *fx_raise(const ir_graph *g)
{
    ir_graph *folded = fx_pass(g, "fold"), *raised = fx_pass(folded, "raise");
    ir_graph_free(folded);
    return raised;
}

uint64_t fx_digest(const ir_graph *g)
{
    uint64_t h = g->n_nodes;
    for (ir_id id = 1; id < g->n_nodes; id++) {
        const ir_node *n = ir_node_get(g, id);
        h = (h ^ n->op) * UINT64_C(0x100000001b3);
        for (uint32_t k = 0; k < n->n_in; k++)
            h = (h ^ ir_in(g, id, k)) * UINT64_C(0x100000001b3);
    }
    return h;
}
