/* ONNX operators that make, move or reshape data; most of them also follow known contents (shape arithmetic). */
#include "fe_onnx.h"
#include <math.h>

static void vec_type(fe_node *n, fmt_dtype dt, uint32_t count, ir_type *out)
{
    *out = (ir_type){.dtype = dt, .rank = 1};
    out->dim[0] = fmt_dim_const(n->d, count);
}

/* The same elements under another shape: contents stay known. */
static void set_reshaped(fe_node *n, const fmt_dim *dims, uint32_t rank)
{
    uint32_t count;
    const fmt_dim *c = fe_content(n, 0, &count);
    if (!fe_good(n))
        return;
    if (c) {
        ir_type t = {.dtype = fe_type(n, 0)->dtype, .rank = (uint8_t)rank};
        if (rank)
            memcpy(t.dim, dims, rank * sizeof *dims);
        fe_set_known(n, 0, &t, c, count);
        return;
    }
    fe_set(n, 0, ir_reshape(n->g, fe_in(n, 0), dims, rank));
}

/* ---- sources ---- */

static void set_data(fe_node *n, fmt_dtype dt, bool scalar, const void *data, size_t elems)
{
    ir_type t;
    vec_type(n, dt, (uint32_t)elems, &t);
    t.rank = scalar ? 0 : 1;
    fe_val v = {.maker = n->out[0]->maker};
    rtx_err err = {0};
    if (fe_value_of_data(n->m, &t, data, elems * fmt_dtype_bytes(dt), false, &v, &err) == RTX_OK)
        *n->out[0] = v;
    else
        ir_bad(n->g, err.code, "%s", err.text);
}

static void set_list(fe_node *n, const fe_nums *nums, fmt_dtype dt)
{
    size_t each = fmt_dtype_bytes(dt);
    AUTO_FREE uint8_t *p = base_alloc_array(BASE_TAG_FRONTEND, nums->n + 1, each);
    if (!p) {
        ir_bad(n->g, RTX_NOMEM, "out of memory");
        return;
    }
    fe_nums_at it = fe_nums_begin(nums);
    size_t i = 0;
    for (uint64_t bits; i < nums->n && fe_nums_next(&it, &bits); i++)
        memcpy(p + i * each, &bits, each);
    set_data(n, dt, false, p, i);
}

static void set_tensor(fe_node *n, fe_span tensor)
{
    fe_val v = {.maker = n->out[0]->maker};
    rtx_err err = {0};
    if (fe_tensor_value(n->m, tensor, "constant", &v, &err) == RTX_OK)
        *n->out[0] = v;
    else
        ir_bad(n->g, err.code, "%s", err.text);
}

static void op_constant(fe_node *n)
{
    const fe_pb_attr *a = n->n_attrs ? &n->attrs[0] : NULL;
    if (!n->n_out || !n->out[0])
        return;
    if (!a || n->n_attrs != 1)
        fe_bad(n, "a constant has exactly one value; this one has %u", n->n_attrs);
    else if (fe_span_is(a->name, "value"))
        set_tensor(n, a->t);
    else if (fe_span_is(a->name, "value_int"))
        set_data(n, FMT_I64, true, &a->i, 1);
    else if (fe_span_is(a->name, "value_float"))
        set_data(n, FMT_F32, true, &a->f, 1);
    else if (fe_span_is(a->name, "value_ints"))
        set_list(n, &a->ints, FMT_I64);
    else if (fe_span_is(a->name, "value_floats"))
        set_list(n, &a->floats, FMT_F32);
    else
        fe_refuse(n, "constants of kind '%.*s' are not supported", FE_SHOW(a->name));
}

/* Elements of a constant shape of at most FE_CONTENT_MAX elements. */
static bool small_shape(const fe_node *n, const fmt_dim *dims, uint32_t rank, uint32_t *out_elems)
{
    int64_t elems = 1, c;
    for (uint32_t i = 0; i < rank; i++) {
        if (!fmt_dim_is_const(n->d, dims[i], &c) || c < 0 || c > FE_CONTENT_MAX ||
            (elems *= c) > FE_CONTENT_MAX)
            return false;
    }
    *out_elems = (uint32_t)elems;
    return true;
}

static void op_constant_of_shape(fe_node *n)
{
    uint32_t rank, elems;
    const fmt_dim *dims = fe_need(n, 0, "the shape", &rank);
    const fe_pb_attr *a = fe_attr(n, "value");
    fe_val v = {0};
    rtx_err err = {0};
    if (!dims || !fe_check_sizes(n, dims, rank))
        return;
    if (a && fe_tensor_value(n->m, a->t, "value", &v, &err) != RTX_OK) {
        ir_bad(n->g, err.code, "%s", err.text);
        return;
    }
    ir_type t = {.dtype = a ? v.type.dtype : FMT_F32, .rank = (uint8_t)rank};
    memcpy(t.dim, dims, rank * sizeof *dims);
    if (v.content && v.n == 1 && small_shape(n, dims, rank, &elems)) {
        fmt_dim c[FE_CONTENT_MAX];
        for (uint32_t i = 0; i < elems; i++)
            c[i] = v.content[0];
        fe_set_known(n, 0, &t, c, elems);
        return;
    }
    ir_id x = a ? ir_reshape(n->g, fe_id(n->m, &v), NULL, 0) : ir_scalar(n->g, FMT_F32, 0);
    fe_set(n, 0, ir_broadcast(n->g, x, dims, rank));
}

static void op_shape(fe_node *n)
{
    const ir_type *t = fe_type(n, 0);
    int64_t r = t->rank, start = fe_attr_i(n, "start", 0), end = fe_attr_i(n, "end", r);
    start = start < -r ? 0 : start < 0 ? start + r : MIN(start, r);
    end = end < -r ? 0 : end < 0 ? end + r : MIN(end, r);
    fe_set_vec(n, 0, t->dim + start, (uint32_t)MAX(end - start, 0));
}

static void op_size(fe_node *n)
{
    ir_type t = {.dtype = FMT_I64};
    fmt_dim elems = fe_dim_product(n->d, fe_type(n, 0)->dim, fe_type(n, 0)->rank);
    fe_set_known(n, 0, &t, &elems, 1);
}

/* start + i * delta for i below the count */
static void set_range(fe_node *n, fmt_dim count, ir_id start, ir_id delta)
{
    ir_attrs a = {.n_dims = 1, .dims = {count}};
    fmt_dtype dt = (fmt_dtype)fe_type(n, 0)->dtype;
    ir_id x = ir_cast(n->g, ir_emit(n->g, IR_iota, NULL, 0, &a), dt);
    double v;
    if (!(fe_number(n, 2, &v) && v == 1))
        x = fe_ew2(n, IR_mul, x, delta);
    if (fe_good(n) && !(fe_number(n, 0, &v) && v == 0))
        x = fe_ew2(n, IR_add, x, start);
    fe_set(n, 0, x);
}

static void range_of_floats(fe_node *n)
{
    double v[3];
    for (uint32_t k = 0; k < 3; k++)
        if (!fe_number(n, k, &v[k])) {
            uint32_t count;
            (void)fe_need(n, k, k == 0 ? "start" : k == 1 ? "limit" : "delta", &count);
            return;
        }
    double count = v[2] != 0 ? ceil((v[1] - v[0]) / v[2]) : NAN;
    if (!(count < (double)FMT_DIM_LIMIT)) {
        fe_bad(n, "range of %g steps", count);
        return;
    }
    set_range(n, fmt_dim_const(n->d, count > 0 ? (int64_t)count : 0), fe_in(n, 0), fe_in(n, 2));
}

static void op_range(fe_node *n)
{
    fmt_dim v[3];
    uint32_t count;
    if (fmt_dtype_class((fmt_dtype)fe_type(n, 0)->dtype) == 'F') {
        range_of_floats(n);
        return;
    }
    for (uint32_t k = 0; k < 3; k++) {
        const fmt_dim *c = fe_need(n, k, k == 0 ? "start" : k == 1 ? "limit" : "delta", &count);
        if (!c || count != 1)
            return;
        v[k] = c[0];
    }
    int64_t delta, lo, hi;
    if (!fmt_dim_is_const(n->d, v[2], &delta) || delta == 0) {
        fe_refuse(n, "delta must be a constant other than 0");
        return;
    }
    fmt_dim span = delta > 0 ? fmt_dim_sub(n->d, v[1], v[0]) : fmt_dim_sub(n->d, v[0], v[1]);
    int64_t step = delta > 0 ? delta : -delta;
    fmt_dim_range(n->d, span, &lo, &hi);
    if (lo < 0)
        span = fe_dim_max(n->d, span, fmt_dim_const(n->d, 0));
    if (step > 1)
        span = fmt_dim_div(n->d, fmt_dim_add(n->d, span, fmt_dim_const(n->d, step - 1)),
                           fmt_dim_const(n->d, step));
    set_range(n, span, fe_in(n, 0), fe_in(n, 2));
}

/* ---- views ---- */

static void op_reshape(fe_node *n)
{
    uint32_t rank, minus = UINT32_MAX;
    const fmt_dim *want = fe_need(n, 1, "the shape", &rank);
    const ir_type t = *fe_type(n, 0);
    fmt_dim dims[FMT_RANK_MAX], rest = fmt_dim_const(n->d, 1);
    bool keep_zero = fe_attr_i(n, "allowzero", 0) != 0;
    if (!want || !fe_check_rank(n, rank))
        return;
    for (uint32_t i = 0; i < rank; i++) {
        int64_t c = 1;
        dims[i] = want[i];
        bool is_const = fmt_dim_is_const(n->d, want[i], &c);
        if (is_const && c == 0 && !keep_zero) {
            if (i >= t.rank) {
                fe_bad(n, "size 0 copies axis %u, which its input of %u axes lacks", i, t.rank);
                return;
            }
            dims[i] = t.dim[i];
        } else if (is_const && c < 0) {
            if (c != -1 || minus != UINT32_MAX) {
                fe_bad(n, "axis %u of the shape is %lld; one axis at most may be -1", i,
                       (long long)c);
                return;
            }
            minus = i;
            continue;
        }
        rest = fmt_dim_mul(n->d, rest, dims[i]);
    }
    if (minus != UINT32_MAX) {
        if (fmt_dim_is(n->d, rest, 0)) {
            fe_bad(n, "axis %u cannot be inferred beside a size of 0", minus);
            return;
        }
        dims[minus] = fmt_dim_div(n->d, fe_dim_product(n->d, t.dim, t.rank), rest);
    }
    set_reshaped(n, dims, rank);
}

static void op_flatten(fe_node *n)
{
    const ir_type t = *fe_type(n, 0);
    int64_t axis = fe_attr_i(n, "axis", 1);
    if (axis < -(int64_t)t.rank || axis > t.rank) {
        fe_bad(n, "axis %lld is outside a tensor of %u axes", (long long)axis, t.rank);
        return;
    }
    uint32_t at = (uint32_t)(axis < 0 ? axis + t.rank : axis);
    fmt_dim dims[2] = {fe_dim_product(n->d, t.dim, at),
                       fe_dim_product(n->d, t.dim + at, t.rank - at)};
    set_reshaped(n, dims, 2);
}

/* 1 for some sizes and not for others. */
static bool may_be_one(const fmt_dims *d, fmt_dim v)
{
    int64_t lo, hi;
    fmt_dim_range(d, v, &lo, &hi);
    return !fmt_dim_is_const(d, v, NULL) && lo <= 1 && hi >= 1;
}

static void op_squeeze(fe_node *n)
{
    const ir_type t = *fe_type(n, 0);
    int64_t axes[FMT_RANK_MAX];
    uint32_t n_axes, rank = 0;
    bool drop[FMT_RANK_MAX] = {0};
    bool given = fe_axes(n, 1, axes, &n_axes) && n_axes > 0; /* an empty list names all of them */
    fmt_dim dims[FMT_RANK_MAX];
    if (!fe_good(n))
        return;
    for (uint32_t i = 0; given && i < n_axes; i++) {
        uint32_t ax;
        if (!fe_axis(n, axes[i], t.rank, &ax))
            return;
        if (!fe_same_dim(n, t.dim[ax], fmt_dim_const(n->d, 1), "the size of an axis that goes"))
            return;
        drop[ax] = true;
    }
    for (uint32_t i = 0; i < t.rank; i++) {
        if (!given && may_be_one(n->d, t.dim[i])) {
            fe_refuse(n, "without axes, whether axis %u goes depends on a free size", i);
            return;
        }
        if (!(given ? drop[i] : fmt_dim_is(n->d, t.dim[i], 1)))
            dims[rank++] = t.dim[i];
    }
    set_reshaped(n, dims, rank);
}

static void op_unsqueeze(fe_node *n)
{
    const ir_type t = *fe_type(n, 0);
    int64_t axes[FMT_RANK_MAX];
    uint32_t n_axes, at = 0;
    bool added[FMT_RANK_MAX] = {0};
    fmt_dim dims[FMT_RANK_MAX];
    if (!fe_axes(n, 1, axes, &n_axes)) {
        if (fe_good(n))
            fe_bad(n, "it has no axes");
        return;
    }
    uint32_t rank = t.rank + n_axes;
    if (!fe_check_rank(n, rank))
        return;
    for (uint32_t i = 0; i < n_axes; i++) {
        uint32_t ax;
        if (!fe_axis(n, axes[i], rank, &ax))
            return;
        if (added[ax])
            fe_bad(n, "axis %u is added twice", ax);
        added[ax] = true;
    }
    for (uint32_t i = 0; i < rank && fe_good(n); i++)
        dims[i] = added[i] ? fmt_dim_const(n->d, 1) : t.dim[at++];
    set_reshaped(n, dims, rank);
}

static void op_transpose(fe_node *n)
{
    const ir_type t = *fe_type(n, 0);
    int64_t perm[FMT_RANK_MAX];
    uint32_t n_perm, seen = 0;
    if (!fe_attr_ints(n, "perm", perm, FMT_RANK_MAX, &n_perm)) {
        n_perm = t.rank;
        for (uint32_t i = 0; i < t.rank; i++)
            perm[i] = t.rank - 1 - i;
    }
    for (uint32_t i = 0; i < n_perm; i++)
        if (perm[i] >= 0 && perm[i] < t.rank) /* unlike an axis, it does not count from the end */
            seen |= 1u << perm[i];
    if (n_perm != t.rank || seen != (1u << t.rank) - 1) {
        fe_bad(n, "perm does not name each of its %u axes once", t.rank);
        return;
    }
    if (t.rank < 2)
        set_reshaped(n, t.dim, t.rank);
    else
        fe_set(n, 0, ir_permute(n->g, fe_in(n, 0), perm));
}

static void op_expand(fe_node *n)
{
    uint32_t rank, count, elems;
    const fmt_dim *dims = fe_need(n, 1, "the shape", &rank);
    if (!dims || !fe_check_sizes(n, dims, rank))
        return;
    const fmt_dim *c = fe_content(n, 0, &count);
    if (c && count == 1 && fe_type(n, 0)->rank <= rank && small_shape(n, dims, rank, &elems)) {
        ir_type t = {.dtype = fe_type(n, 0)->dtype, .rank = (uint8_t)rank};
        fmt_dim all[FE_CONTENT_MAX];
        memcpy(t.dim, dims, rank * sizeof *dims);
        for (uint32_t i = 0; i < elems; i++)
            all[i] = c[0];
        fe_set_known(n, 0, &t, all, elems);
        return;
    }
    fe_set(n, 0, fe_expand(n, fe_in(n, 0), dims, rank));
}

static void op_tile(fe_node *n)
{
    uint32_t rank;
    const fmt_dim *times = fe_need(n, 1, "repeats", &rank);
    ir_type t = *fe_type(n, 0);
    if (times && rank != t.rank)
        fe_bad(n, "%u repeats for %u axes", rank, t.rank);
    if (!times || !fe_check_sizes(n, times, rank))
        return;
    ir_id x = fe_in(n, 0);
    for (uint32_t i = 0; i < rank && fe_good(n); i++) {
        if (fmt_dim_is(n->d, times[i], 1))
            continue;
        fmt_dim view[3] = {fe_dim_product(n->d, t.dim, i), fmt_dim_const(n->d, 1),
                           fe_dim_product(n->d, t.dim + i, rank - i)};
        x = ir_reshape(n->g, x, view, 3);
        view[1] = times[i];
        x = ir_broadcast(n->g, x, view, 3);
        t.dim[i] = fmt_dim_mul(n->d, t.dim[i], times[i]);
        x = ir_reshape(n->g, x, t.dim, rank);
    }
    fe_set(n, 0, x);
}

/* ---- joining and picking ---- */

static bool concat_known(fe_node *n)
{
    fmt_dim all[FE_CONTENT_MAX];
    uint32_t total = 0, count;
    for (uint32_t k = 0; k < n->n_in; k++) {
        const fmt_dim *c = fe_content(n, k, &count);
        if (!c || fe_type(n, k)->rank != 1 || total + count > FE_CONTENT_MAX)
            return false;
        memcpy(all + total, c, count * sizeof *c);
        total += count;
    }
    ir_type t;
    vec_type(n, (fmt_dtype)fe_type(n, 0)->dtype, total, &t);
    fe_set_known(n, 0, &t, all, total);
    return true;
}

static void op_concat(fe_node *n)
{
    enum { PER_NODE = 64 };
    ir_attrs a = {0};
    uint32_t axis, count = 0;
    ir_id in[PER_NODE];
    for (uint32_t k = 0; k < n->n_in; k++)
        if (!n->in[k])
            fe_bad(n, "input %u is missing", k);
    if (!fe_good(n) ||
        !fe_axis(n, fe_attr_i(n, "axis", n->opset < 4 ? 1 : 0), fe_type(n, 0)->rank, &axis))
        return;
    if (concat_known(n))
        return;
    a.i[0] = axis;
    for (uint32_t k = 0; k < n->n_in && fe_good(n); k++) {
        if (count == PER_NODE) {
            in[0] = ir_emit(n->g, IR_concat, in, count, &a);
            count = 1;
        }
        in[count++] = fe_in(n, k);
    }
    if (fe_good(n))
        fe_set(n, 0, count == 1 ? in[0] : ir_emit(n->g, IR_concat, in, count, &a));
}

static bool gather_known(fe_node *n)
{
    uint32_t n_data, n_index;
    const fmt_dim *data = fe_content(n, 0, &n_data), *index = fe_content(n, 1, &n_index);
    fmt_dim picked[FE_CONTENT_MAX];
    if (!data || !index || fe_type(n, 0)->rank != 1)
        return false;
    for (uint32_t i = 0; i < n_index; i++) {
        int64_t at;
        if (!fmt_dim_is_const(n->d, index[i], &at))
            return false;
        at += at < 0 ? n_data : 0;
        if (at < 0 || at >= n_data) {
            fe_bad(n, "index %lld is outside %u entries", (long long)at, n_data);
            return true;
        }
        picked[i] = data[at];
    }
    ir_type t = *fe_type(n, 1);
    t.dtype = fe_type(n, 0)->dtype;
    fe_set_known(n, 0, &t, picked, n_index);
    return true;
}

static void op_gather(fe_node *n)
{
    ir_attrs a = {0};
    uint32_t axis;
    if (!fe_axis(n, fe_attr_i(n, "axis", 0), fe_type(n, 0)->rank, &axis) || gather_known(n))
        return;
    a.i[0] = axis;
    fe_set(n, 0, ir_emit(n->g, (ir_op)n->op->arg, (ir_id[]){fe_in(n, 0), fe_in(n, 1)}, 2, &a));
}

static void op_gather_elements(fe_node *n)
{
    ir_attrs a = {0};
    uint32_t axis;
    if (!fe_axis(n, fe_attr_i(n, "axis", 0), fe_type(n, 0)->rank, &axis))
        return;
    a.i[0] = axis;
    fe_set(n, 0, ir_emit(n->g, IR_gather_elements, (ir_id[]){fe_in(n, 0), fe_in(n, 1)}, 2, &a));
}

static void op_gather_nd(fe_node *n)
{
    ir_attrs a = {0};
    a.i[0] = fe_attr_i(n, "batch_dims", 0);
    fe_set(n, 0, ir_emit(n->g, IR_gather_nd, (ir_id[]){fe_in(n, 0), fe_in(n, 1)}, 2, &a));
}

/* ---- the table ---- */

const fe_op fe_ops_shape[] = {
    {"Concat", 4, 1, UINT8_MAX, op_concat, 0},
    {"Constant", 1, 0, 0, op_constant, 0},
    {"ConstantOfShape", 9, 1, 1, op_constant_of_shape, 0},
    {"Expand", 8, 2, 2, op_expand, 0},
    {"Flatten", 1, 1, 1, op_flatten, 0},
    {"Gather", 1, 2, 2, op_gather, IR_gather},
    {"GatherElements", 11, 2, 2, op_gather_elements, 0},
    {"GatherND", 11, 2, 2, op_gather_nd, 0},
    {"Range", 11, 3, 3, op_range, 0},
    {"Reshape", 5, 2, 2, op_reshape, 0},
    {"Shape", 1, 1, 1, op_shape, 0},
    {"Size", 1, 1, 1, op_size, 0},
    {"Squeeze", 1, 1, 2, op_squeeze, 0},
    {"Tile", 6, 2, 2, op_tile, 0},
    {"Transpose", 1, 1, 1, op_transpose, 0},
    {"Unsqueeze", 1, 1, 2, op_unsqueeze, 0},
    {NULL, 0, 0, 0, NULL, 0},
};
