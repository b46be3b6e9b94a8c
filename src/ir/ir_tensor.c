/* Tensors of the evaluator and the conversion of single elements: the one place that rounds and saturates.
 *   layer     L1 ir; may include base, format
 *   owner     an ir_tensor owns f or i until ir_tensor_done
 *   rounding  to nearest even, straight from double (no step over f32 on the way to a half type)
 *   casts     float to integer truncates, saturates outside the range, NaN gives 0; integer to narrower integer wraps */
#include "ir_rules.h"
#include <math.h>

/* f32 that differs from v only below its last bit, with that bit odd where v is not exact: rounding it once more to a
 * type with at least two bits less gives what rounding v itself gives. */
static float round_odd(double v)
{
    float f = (float)v;
    uint32_t bits;
    memcpy(&bits, &f, 4);
    if (isnan(v) || isinf(f) || (double)f == v || bits & 1)
        return f;
    bool towards_zero = fabs((double)f) > fabs(v);
    bits += towards_zero ? UINT32_MAX : 1;
    memcpy(&f, &bits, 4);
    return f;
}

double ir_round_to(fmt_dtype t, double v)
{
    switch (t) {
    case FMT_F32:
        return (double)(float)v;
    case FMT_F16:
        return (double)fmt_f16_to_f32(fmt_f32_to_f16(round_odd(v)));
    case FMT_BF16:
        return (double)fmt_bf16_to_f32(fmt_f32_to_bf16(round_odd(v)));
    default:
        return v;
    }
}

int64_t ir_float_to_int(fmt_dtype t, double v)
{
    if (t == FMT_BOOL)
        return v != 0;
    double limit = t == FMT_I32 ? 0x1p31 : 0x1p63;
    int64_t lowest = t == FMT_I32 ? INT32_MIN : INT64_MIN;
    if (isnan(v))
        return 0;
    return v >= limit ? -(lowest + 1) : v < -limit ? lowest : (int64_t)v;
}

int64_t ir_wrap_int(fmt_dtype t, int64_t v)
{
    return t == FMT_BOOL ? v != 0 : t == FMT_I32 ? (int64_t)(int32_t)(uint32_t)(uint64_t)v : v;
}

/* ---- elements in memory ---- */

static double load_float(fmt_dtype t, const void *elem)
{
    uint16_t h;
    float f;
    double d;
    switch (t) {
    case FMT_F16:
        return memcpy(&h, elem, 2), (double)fmt_f16_to_f32(h);
    case FMT_BF16:
        return memcpy(&h, elem, 2), (double)fmt_bf16_to_f32(h);
    case FMT_F32:
        return memcpy(&f, elem, 4), (double)f;
    default:
        return memcpy(&d, elem, 8), d;
    }
}

static int64_t load_int(fmt_dtype t, const void *elem)
{
    uint8_t b;
    int32_t w;
    int64_t v;
    switch (t) {
    case FMT_BOOL:
        return memcpy(&b, elem, 1), b != 0;
    case FMT_I32:
        return memcpy(&w, elem, 4), w;
    default:
        return memcpy(&v, elem, 8), v;
    }
}

static void store_float(fmt_dtype t, double v, void *out)
{
    float f = (float)v;
    uint16_t h = t == FMT_F16 ? fmt_f32_to_f16(round_odd(v)) : fmt_f32_to_bf16(round_odd(v));
    switch (t) {
    case FMT_F16:
    case FMT_BF16:
        memcpy(out, &h, 2);
        break;
    case FMT_F32:
        memcpy(out, &f, 4);
        break;
    default:
        memcpy(out, &v, 8);
        break;
    }
}

static void store_int(fmt_dtype t, int64_t v, void *out)
{
    uint8_t b = v != 0;
    uint32_t w = (uint32_t)(uint64_t)v;
    switch (t) {
    case FMT_BOOL:
        memcpy(out, &b, 1);
        break;
    case FMT_I32:
        memcpy(out, &w, 4);
        break;
    default:
        memcpy(out, &v, 8);
        break;
    }
}

double ir_load_element(fmt_dtype t, const void *elem)
{
    return fmt_dtype_class(t) == 'F' ? load_float(t, elem) : (double)load_int(t, elem);
}

void ir_store_element(fmt_dtype t, double v, void *out)
{
    char cls = fmt_dtype_class(t);
    if (cls == 'F')
        store_float(t, v, out);
    else if (cls != 'N')
        store_int(t, ir_float_to_int(t, v), out);
}

/* ---- tensors ---- */

void ir_tensor_done(ir_tensor *t)
{
    base_free(t->f);
    base_free(t->i);
    t->f = NULL;
    t->i = NULL;
    t->elems = 0;
}

rtx_status ir_tensor_new(fmt_dtype t, int rank, const int64_t *dim, ir_tensor *out, rtx_err *err)
{
    char cls = fmt_dtype_class(t);
    if (cls == 'N')
        return FAIL(err, UNSUPPORTED, "tensor of %s", fmt_dtype_name(t));
    if (rank < 0 || rank > FMT_RANK_MAX)
        return FAIL(err, INVALID, "tensor of rank %d", rank);
    ir_tensor x = {.dtype = t, .rank = rank, .elems = 1};
    bool empty = false;
    for (int k = 0; k < rank; k++) {
        if (dim[k] < 0)
            return FAIL(err, INVALID, "tensor with size %lld on axis %d", (long long)dim[k], k);
        x.dim[k] = dim[k];
        empty = empty || dim[k] == 0;
    }
    for (int k = 0; k < rank && !empty; k++)
        if (__builtin_mul_overflow(x.elems, dim[k], &x.elems) || x.elems > FMT_DIM_LIMIT)
            return FAIL(err, LIMIT, "tensor with more than %lld elements",
                        (long long)FMT_DIM_LIMIT);
    x.elems = empty ? 0 : x.elems;
    void *data;
    TRY_ALLOC(data = base_zalloc_array(BASE_TAG_IR, (size_t)x.elems, sizeof(int64_t)), err);
    if (cls == 'F')
        x.f = data;
    else
        x.i = data;
    *out = x;
    return RTX_OK;
}

void ir_tensor_load(const void *data, ir_tensor *t)
{
    size_t size = fmt_dtype_bytes(t->dtype);
    const char *at = data;
    for (int64_t k = 0; k < t->elems; k++, at += size) {
        if (t->f)
            t->f[k] = load_float(t->dtype, at);
        else
            t->i[k] = load_int(t->dtype, at);
    }
}

rtx_status ir_tensor_from(const void *data, fmt_dtype t, int rank, const int64_t *dim,
                          ir_tensor *out, rtx_err *err)
{
    TRY(ir_tensor_new(t, rank, dim, out, err));
    ir_tensor_load(data, out);
    return RTX_OK;
}

void ir_tensor_store(const ir_tensor *t, void *out_data)
{
    size_t size = fmt_dtype_bytes(t->dtype);
    char *at = out_data;
    for (int64_t k = 0; k < t->elems; k++, at += size) {
        if (t->f)
            store_float(t->dtype, t->f[k], at);
        else
            store_int(t->dtype, t->i[k], at);
    }
}
