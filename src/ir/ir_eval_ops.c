/* Evaluator functions of views, movement, reductions, dot and the raised operations.
 *   layer    L1 ir; may include base, format
 *   rule     plain loops over the definition; results arrive zeroed and of the right shape
 *   checks   shape rules ran before; here only what depends on run-time sizes and on index values */
#include "ir_eval.h"
#include <math.h>
#include <stdlib.h>

/* ---- strides ---- */

static void strides_of(const ir_tensor *t, int64_t *out)
{
    int64_t stride = 1;
    for (int k = t->rank - 1; k >= 0; k--) {
        out[k] = stride;
        stride *= t->dim[k];
    }
}

/* Walk over the index space of a shape in row-major order, with the offset that strides give to each index. */
typedef struct walk {
    int rank;
    int64_t dim[FMT_RANK_MAX], stride[FMT_RANK_MAX], index[FMT_RANK_MAX];
    int64_t offset;
} walk;

static walk walk_of(const ir_tensor *shape, const int64_t *stride, int64_t offset)
{
    walk w = {.rank = shape->rank, .offset = offset};
    memcpy(w.dim, shape->dim, sizeof w.dim);
    memcpy(w.stride, stride, (size_t)shape->rank * sizeof *stride);
    return w;
}

static void walk_next(walk *w)
{
    for (int k = w->rank - 1; k >= 0; k--) {
        w->offset += w->stride[k];
        if (++w->index[k] < w->dim[k])
            return;
        w->offset -= w->dim[k] * w->stride[k];
        w->index[k] = 0;
    }
}

static void copy_elem(ir_tensor *out, int64_t to, const ir_tensor *x, int64_t from)
{
    if (out->f)
        out->f[to] = x->f[from];
    else
        out->i[to] = x->i[from];
}

static void copy_run(ir_tensor *out, int64_t to, const ir_tensor *x, int64_t from, int64_t n)
{
    if (n && out->f)
        memcpy(out->f + to, x->f + from, (size_t)n * sizeof *out->f);
    else if (n)
        memcpy(out->i + to, x->i + from, (size_t)n * sizeof *out->i);
}

static rtx_status copy_strided(const ir_eval_call *c, const int64_t *stride, int64_t offset)
{
    walk w = walk_of(c->out, stride, offset);
    for (int64_t k = 0; k < c->out->elems; k++, walk_next(&w))
        copy_elem(c->out, k, c->in[0], w.offset);
    return RTX_OK;
}

ir_lines ir_lines_of(const ir_tensor *t, int64_t axis)
{
    ir_lines l = {1, t->dim[axis], 1};
    for (int k = 0; k < t->rank; k++)
        *(k < axis ? &l.outer : &l.inner) *= k == axis ? 1 : t->dim[k];
    return l;
}

/* ---- sources and views ---- */

static rtx_status eval_dimvals(const ir_eval_call *c)
{
    memcpy(c->out->i, c->dims, (size_t)c->out->elems * sizeof *c->dims);
    return RTX_OK;
}

static rtx_status eval_iota(const ir_eval_call *c)
{
    int64_t stride[FMT_RANK_MAX] = {0};
    stride[c->attrs->i[0]] = 1;
    walk w = walk_of(c->out, stride, 0);
    for (int64_t k = 0; k < c->out->elems; k++, walk_next(&w))
        c->out->i[k] = w.offset;
    return RTX_OK;
}

static rtx_status eval_reshape(const ir_eval_call *c)
{
    if (c->out->elems != c->in[0]->elems)
        return FAIL(c->err, INVALID, "reshape of %lld elements to %lld", (long long)c->in[0]->elems,
                    (long long)c->out->elems);
    copy_run(c->out, 0, c->in[0], 0, c->out->elems);
    return RTX_OK;
}

static rtx_status eval_broadcast(const ir_eval_call *c)
{
    const ir_tensor *x = c->in[0];
    int64_t from[FMT_RANK_MAX], stride[FMT_RANK_MAX] = {0};
    strides_of(x, from);
    for (int k = 0, lead = c->out->rank - x->rank; k < x->rank; k++) {
        if (x->dim[k] != 1 && x->dim[k] != c->out->dim[lead + k])
            return FAIL(c->err, INVALID, "broadcast of size %lld to %lld on axis %d",
                        (long long)x->dim[k], (long long)c->out->dim[lead + k], lead + k);
        stride[lead + k] = x->dim[k] == 1 ? 0 : from[k];
    }
    return copy_strided(c, stride, 0);
}

static rtx_status eval_permute(const ir_eval_call *c)
{
    int64_t from[FMT_RANK_MAX], stride[FMT_RANK_MAX];
    strides_of(c->in[0], from);
    for (int k = 0; k < c->out->rank; k++)
        stride[k] = from[c->attrs->list[k]];
    return copy_strided(c, stride, 0);
}

static rtx_status eval_slice(const ir_eval_call *c)
{
    const ir_tensor *x = c->in[0];
    int64_t from[FMT_RANK_MAX], stride[FMT_RANK_MAX], offset = 0;
    if (c->out->elems == 0)
        return RTX_OK;
    strides_of(x, from);
    for (int k = 0; k < x->rank; k++) {
        int64_t start = c->dims[k], step = c->attrs->list[k], span;
        bool inside = start >= 0 && start < x->dim[k] &&
                      !__builtin_mul_overflow(c->out->dim[k] - 1, step, &span) && span >= -start &&
                      span < x->dim[k] - start;
        if (!inside)
            return FAIL(c->err, INVALID,
                        "slice start %lld step %lld size %lld reaches outside size %lld of axis %d",
                        (long long)start, (long long)step, (long long)c->out->dim[k],
                        (long long)x->dim[k], k);
        offset += start * from[k];
        stride[k] = from[k] * step;
    }
    return copy_strided(c, stride, offset);
}

/* ---- movement ---- */

static rtx_status eval_concat(const ir_eval_call *c)
{
    int64_t axis = c->attrs->i[0], at = 0;
    ir_lines to = ir_lines_of(c->out, axis);
    for (uint32_t k = 0; k < c->n_in; k++) {
        ir_lines from = ir_lines_of(c->in[k], axis);
        int64_t run = from.n * from.inner;
        for (int64_t o = 0; o < to.outer; o++)
            copy_run(c->out, (o * to.n + at) * to.inner, c->in[k], o * run, run);
        at += from.n;
    }
    return RTX_OK;
}

/* Index value v on an axis of n elements, counted from the end when negative. */
static rtx_status wrap_index(const ir_eval_call *c, int64_t v, int64_t n, int64_t *out)
{
    if (v < -n || v >= n)
        return FAIL(c->err, INVALID, "%s: index %lld is not in [%lld, %lld)",
                    ir_op_get(c->op)->name, (long long)v, (long long)-n, (long long)n);
    *out = v < 0 ? v + n : v;
    return RTX_OK;
}

static rtx_status eval_gather(const ir_eval_call *c)
{
    const ir_tensor *x = c->in[0], *idx = c->in[1];
    ir_lines l = ir_lines_of(x, c->attrs->i[0]);
    for (int64_t o = 0; o < l.outer; o++)
        for (int64_t j = 0; j < idx->elems; j++) {
            int64_t at = 0;
            TRY(wrap_index(c, idx->i[j], l.n, &at));
            copy_run(c->out, (o * idx->elems + j) * l.inner, x, (o * l.n + at) * l.inner, l.inner);
        }
    return RTX_OK;
}

static rtx_status eval_gather_nd(const ir_eval_call *c)
{
    const ir_tensor *x = c->in[0], *idx = c->in[1];
    int64_t stride[FMT_RANK_MAX], batch = c->attrs->i[0], depth = idx->dim[idx->rank - 1];
    strides_of(x, stride);
    int64_t tuples = idx->elems / depth, batches = 1;
    for (int64_t k = 0; k < batch; k++)
        batches *= x->dim[k];
    int64_t run = stride[batch + depth - 1],
            block = batch ? stride[batch - 1] : 0; /* elements per tuple, per batch */
    for (int64_t t = 0; t < tuples; t++) {
        int64_t from = t / (tuples / batches) * block;
        for (int64_t d = 0; d < depth; d++) {
            int64_t at = 0;
            TRY(wrap_index(c, idx->i[t * depth + d], x->dim[batch + d], &at));
            from += at * stride[batch + d];
        }
        copy_run(c->out, t * run, x, from, run);
    }
    return RTX_OK;
}

static rtx_status eval_gather_elements(const ir_eval_call *c)
{
    const ir_tensor *x = c->in[0], *idx = c->in[1];
    int64_t stride[FMT_RANK_MAX] = {0}, axis = c->attrs->i[0];
    strides_of(x, stride);
    int64_t along = stride[axis];
    for (int k = 0; k < x->rank; k++)
        if (k != axis && idx->dim[k] > x->dim[k])
            return FAIL(c->err, INVALID, "gather_elements: %lld indices on axis %d of size %lld",
                        (long long)idx->dim[k], k, (long long)x->dim[k]);
    stride[axis] = 0;
    walk w = walk_of(idx, stride, 0);
    for (int64_t k = 0; k < idx->elems; k++, walk_next(&w)) {
        int64_t at = 0;
        TRY(wrap_index(c, idx->i[k], x->dim[axis], &at));
        copy_elem(c->out, k, x, w.offset + at * along);
    }
    return RTX_OK;
}

/* ---- reductions ---- */

static double nan_max(double a, double b) { return a > b || isnan(a) ? a : b; }

static double nan_min(double a, double b) { return a < b || isnan(a) ? a : b; }

static void accumulate_float(ir_op op, double *sum, double v)
{
    switch (op) {
    case IR_reduce_max:
        *sum = nan_max(*sum, v);
        break;
    case IR_reduce_min:
        *sum = nan_min(*sum, v);
        break;
    case IR_reduce_prod:
        *sum *= v;
        break;
    default:
        *sum += v;
        break;
    }
}

static void accumulate_int(ir_op op, int64_t *sum, int64_t v)
{
    switch (op) {
    case IR_reduce_max:
        *sum = MAX(*sum, v);
        break;
    case IR_reduce_min:
        *sum = MIN(*sum, v);
        break;
    case IR_reduce_prod:
        *sum = (int64_t)((uint64_t)*sum * (uint64_t)v);
        break;
    default:
        *sum = (int64_t)((uint64_t)*sum + (uint64_t)v);
        break;
    }
}

static void reduce_start(const ir_eval_call *c)
{
    ir_tensor *out = c->out;
    bool narrow = out->dtype == FMT_I32;
    double f = c->op == IR_reduce_max   ? -INFINITY
               : c->op == IR_reduce_min ? INFINITY
                                        : c->op == IR_reduce_prod;
    int64_t i = c->op == IR_reduce_max   ? (narrow ? INT32_MIN : INT64_MIN)
                : c->op == IR_reduce_min ? (narrow ? INT32_MAX : INT64_MAX)
                                         : c->op == IR_reduce_prod;
    for (int64_t k = 0; k < out->elems; k++) {
        if (out->f)
            out->f[k] = f;
        else
            out->i[k] = i;
    }
}

static rtx_status eval_reduce(const ir_eval_call *c)
{
    const ir_tensor *x = c->in[0];
    ir_tensor *out = c->out;
    int64_t to[FMT_RANK_MAX], stride[FMT_RANK_MAX] = {0}, count = 1;
    strides_of(out, to);
    for (int k = 0, kept = 0, listed = 0; k < x->rank; k++) {
        bool gone = listed < c->attrs->n_list && c->attrs->list[listed] == k;
        stride[k] = gone ? 0 : to[kept];
        count *= gone ? x->dim[k] : 1;
        *(gone ? &listed : &kept) += 1;
    }
    reduce_start(c);
    walk w = walk_of(x, stride, 0);
    for (int64_t k = 0; k < x->elems; k++, walk_next(&w)) {
        if (out->f)
            accumulate_float(c->op, &out->f[w.offset], x->f[k]);
        else
            accumulate_int(c->op, &out->i[w.offset], x->i[k]);
    }
    for (int64_t k = 0; k < out->elems; k++) {
        if (c->op == IR_reduce_mean)
            out->f[k] /= (double)count;
        else if (out->i)
            out->i[k] = ir_wrap_int(out->dtype, out->i[k]);
    }
    return RTX_OK;
}

/* Order of two elements: -1, 0, 1; NaN is the largest and equal to itself. */
static int order(const ir_tensor *x, int64_t a, int64_t b)
{
    if (x->i)
        return (x->i[a] > x->i[b]) - (x->i[a] < x->i[b]);
    double va = x->f[a], vb = x->f[b];
    if (isnan(va) || isnan(vb))
        return (isnan(va) != 0) - (isnan(vb) != 0);
    return (va > vb) - (va < vb);
}

static rtx_status eval_arg(const ir_eval_call *c)
{
    const ir_tensor *x = c->in[0];
    ir_lines l = ir_lines_of(x, c->attrs->i[0]);
    bool last = c->attrs->i[1] != 0;
    int sign = c->op == IR_argmax ? 1 : -1;
    if (l.n == 0 && c->out->elems)
        return FAIL(c->err, INVALID, "%s: the axis is empty", ir_op_get(c->op)->name);
    for (int64_t k = 0; k < c->out->elems; k++) {
        int64_t line = k / l.inner * l.n * l.inner + k % l.inner, best = 0;
        for (int64_t a = 1; a < l.n; a++)
            if (sign * order(x, line + a * l.inner, line + best * l.inner) >= (last ? 0 : 1))
                best = a;
        c->out->i[k] = best;
    }
    return RTX_OK;
}

static rtx_status eval_cumsum(const ir_eval_call *c)
{
    const ir_tensor *x = c->in[0];
    ir_lines l = ir_lines_of(x, c->attrs->i[0]);
    bool exclusive = c->attrs->i[1] != 0, reverse = c->attrs->i[2] != 0;
    for (int64_t line = 0; line < l.outer * l.inner; line++) {
        int64_t first = line / l.inner * l.n * l.inner + line % l.inner;
        double f = 0;
        uint64_t i = 0;
        for (int64_t a = 0; a < l.n; a++) {
            int64_t at = first + (reverse ? l.n - 1 - a : a) * l.inner;
            double old_f = f;
            uint64_t old_i = i;
            f += x->f ? x->f[at] : 0;
            i += x->i ? (uint64_t)x->i[at] : 0;
            if (x->f)
                c->out->f[at] = exclusive ? old_f : f;
            else
                c->out->i[at] = ir_wrap_int(x->dtype, (int64_t)(exclusive ? old_i : i));
        }
    }
    return RTX_OK;
}

typedef struct ranked {
    const ir_tensor *x;
    int64_t at, index;
    int sign;
} ranked;

static int ranked_cmp(const void *pa, const void *pb)
{
    const ranked *a = pa, *b = pb;
    int c = a->sign * order(a->x, a->at, b->at);
    return c ? c : (a->index > b->index) - (a->index < b->index);
}

static rtx_status eval_topk(const ir_eval_call *c)
{
    const ir_tensor *x = c->in[0];
    ir_lines l = ir_lines_of(x, c->attrs->i[0]);
    int64_t k = c->dims[0];
    if (k > l.n)
        return FAIL(c->err, INVALID, "topk: k = %lld of %lld elements", (long long)k,
                    (long long)l.n);
    AUTO_FREE ranked *line = NULL;
    TRY_ALLOC(line = base_alloc_array(BASE_TAG_IR, (size_t)l.n, sizeof *line), c->err);
    for (int64_t n = 0; n < l.outer * l.inner; n++) {
        int64_t o = n / l.inner, i = n % l.inner;
        for (int64_t a = 0; a < l.n; a++)
            line[a] = (ranked){x, (o * l.n + a) * l.inner + i, a, c->attrs->i[1] ? -1 : 1};
        qsort(line, (size_t)l.n, sizeof *line, ranked_cmp);
        for (int64_t a = 0; a < k; a++)
            c->out->i[(o * k + a) * l.inner + i] = line[a].index;
    }
    return RTX_OK;
}

/* ---- dot ---- */

/* c[M,N] += a[M,K] b[K,N], rows of b outermost inside a row of c, so that the inner loop runs along both. */
static void gemm(const double *a, const double *b, double *restrict c, int64_t m, int64_t k,
                 int64_t n)
{
    for (int64_t i = 0; i < m; i++)
        for (int64_t p = 0; p < k; p++) {
            double v = a[i * k + p];
            for (int64_t j = 0; j < n; j++)
                c[i * n + j] += v * b[p * n + j];
        }
}

static rtx_status eval_dot(const ir_eval_call *c)
{
    const ir_tensor *a = c->in[0], *b = c->in[1];
    int r = a->rank;
    int64_t m = a->dim[r - 2], k = a->dim[r - 1], n = b->dim[r - 1], batches = 1;
    for (int axis = 0; axis < r - 2; axis++)
        batches *= a->dim[axis];
    for (int64_t s = 0; s < batches; s++)
        gemm(a->f + s * m * k, b->f + s * k * n, c->out->f + s * m * n, m, k, n);
    return RTX_OK;
}

/* ---- raised ---- */

/* Probabilities of one row in place: exp(x - max) / sum. */
static void softmax_row(double *row, int64_t n)
{
    double top = -INFINITY, sum = 0;
    for (int64_t k = 0; k < n; k++)
        top = nan_max(top, row[k]);
    for (int64_t k = 0; k < n; k++)
        sum += row[k] = exp(row[k] - top);
    for (int64_t k = 0; k < n; k++)
        row[k] /= sum;
}

static rtx_status eval_softmax(const ir_eval_call *c)
{
    ir_tensor *out = c->out;
    int64_t n = out->dim[out->rank - 1];
    copy_run(out, 0, c->in[0], 0, out->elems);
    for (int64_t at = 0; at < out->elems; at += n)
        softmax_row(out->f + at, n);
    return RTX_OK;
}

static rtx_status eval_norm(const ir_eval_call *c)
{
    const ir_tensor *x = c->in[0];
    int64_t n = x->dim[x->rank - 1];
    for (int64_t at = 0; at < x->elems; at += n) {
        const double *row = x->f + at;
        double mean = 0, square = 0;
        for (int64_t k = 0; k < n && c->op == IR_layernorm; k++)
            mean += row[k] / (double)n;
        for (int64_t k = 0; k < n; k++)
            square += (row[k] - mean) * (row[k] - mean) / (double)n;
        for (int64_t k = 0; k < n; k++) {
            double v = (row[k] - mean) / sqrt(square + c->attrs->f[0]);
            if (c->n_in > 1)
                v *= c->in[1]->f[k];
            if (c->n_in > 2)
                v += c->in[2]->f[k];
            c->out->f[at + k] = v;
        }
    }
    return RTX_OK;
}

/* One query row: scores over the keys into p, then probabilities, then the weighted sum of values into out. */
typedef struct attention_row {
    const double *q, *k, *v, *mask; /* mask may be NULL */
    double *p, *out;
    int64_t keys, visible, depth, value_depth; /* keys from `visible` on are hidden by causality */
} attention_row;

static void attend(const attention_row *r, double scale, bool nan_zero)
{
    for (int64_t j = 0; j < r->keys; j++) {
        double dot = 0;
        for (int64_t d = 0; d < r->depth; d++)
            dot += r->q[d] * r->k[j * r->depth + d];
        r->p[j] = j < r->visible ? scale * dot + (r->mask ? r->mask[j] : 0) : -INFINITY;
    }
    softmax_row(r->p, r->keys);
    for (int64_t j = 0; j < r->keys; j++) {
        double p = nan_zero && isnan(r->p[j]) ? 0 : r->p[j];
        for (int64_t d = 0; d < r->value_depth; d++)
            r->out[d] += p * r->v[j * r->value_depth + d];
    }
}

static rtx_status eval_attention(const ir_eval_call *c)
{
    const ir_tensor *q = c->in[0], *k = c->in[1], *v = c->in[2];
    int64_t heads = q->dim[1], groups = k->dim[1], rows = q->dim[2], keys = k->dim[2];
    int64_t depth = q->dim[3], value_depth = v->dim[3];
    if (c->out->elems == 0)
        return RTX_OK;
    if (groups == 0 || heads % groups)
        return FAIL(c->err, INVALID, "attention: %lld heads over %lld", (long long)heads,
                    (long long)groups);
    AUTO_FREE double *p = NULL;
    TRY_ALLOC(p = base_alloc_array(BASE_TAG_IR, (size_t)keys, sizeof *p), c->err);
    for (int64_t bh = 0; bh < q->dim[0] * heads; bh++) {
        int64_t kv = bh / heads * groups + bh % heads / (heads / groups);
        for (int64_t i = 0; i < rows; i++) {
            int64_t row = bh * rows + i, visible = c->attrs->i[0] ? i + keys - rows + 1 : keys;
            attention_row r = {q->f + row * depth,
                               k->f + kv * keys * depth,
                               v->f + kv * keys * value_depth,
                               c->n_in == 4 ? c->in[3]->f + row * keys : NULL,
                               p,
                               c->out->f + row * value_depth,
                               keys,
                               visible,
                               depth,
                               value_depth};
            attend(&r, c->attrs->f[0], c->attrs->i[1] != 0);
        }
    }
    return RTX_OK;
}

static rtx_status eval_rope(const ir_eval_call *c)
{
    const ir_tensor *x = c->in[0], *cosine = c->in[1], *sine = c->in[2];
    int64_t n = x->dim[x->rank - 1];
    if (n % 2)
        return FAIL(c->err, INVALID, "rope: the last size %lld is odd", (long long)n);
    for (int64_t at = 0; at < x->elems; at++) {
        int64_t k = at % n;
        bool first = c->attrs->i[0] ? k % 2 == 0 : k < n / 2;
        int64_t apart = c->attrs->i[0] ? 1 : n / 2;
        double rotated = first ? -x->f[at + apart] : x->f[at - apart];
        c->out->f[at] = x->f[at] * cosine->f[at] + rotated * sine->f[at];
    }
    return RTX_OK;
}

ir_eval_fn ir_eval_get(ir_op op)
{
    static const ir_eval_fn fns[IR_OP_COUNT] = {
        [IR_dimvals] = eval_dimvals,     [IR_iota] = eval_iota,
        [IR_reshape] = eval_reshape,     [IR_broadcast] = eval_broadcast,
        [IR_permute] = eval_permute,     [IR_slice] = eval_slice,
        [IR_concat] = eval_concat,       [IR_gather] = eval_gather,
        [IR_gather_nd] = eval_gather_nd, [IR_gather_elements] = eval_gather_elements,
        [IR_reduce_sum] = eval_reduce,   [IR_reduce_mean] = eval_reduce,
        [IR_reduce_max] = eval_reduce,   [IR_reduce_min] = eval_reduce,
        [IR_reduce_prod] = eval_reduce,  [IR_argmax] = eval_arg,
        [IR_argmin] = eval_arg,          [IR_cumsum] = eval_cumsum,
        [IR_topk] = eval_topk,           [IR_dot] = eval_dot,
        [IR_softmax] = eval_softmax,     [IR_layernorm] = eval_norm,
        [IR_rmsnorm] = eval_norm,        [IR_attention] = eval_attention,
        [IR_rope] = eval_rope,
    };
    return ir_op_get(op)->elementwise ? ir_eval_elementwise : fns[op];
}
