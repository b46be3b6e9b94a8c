/* Element types, half-precision conversion in software, and the bucket function.
 *   layer    L0 format; may include base
 *   threads  pure functions over constant tables */
#include "fmt_type.h"

typedef struct dtype_row {
    const char *name;
    uint8_t bytes;
    char cls;
    int8_t onnx;
} dtype_row;

static const dtype_row dtypes[FMT_DTYPE_COUNT] = {
#define ROW(name, text, bytes, cls, onnx) {text, bytes, #cls[0], onnx},
    FMT_DTYPE_TABLE(ROW)
#undef ROW
};

static const dtype_row *row_of(fmt_dtype t)
{
    return &dtypes[(unsigned)t < FMT_DTYPE_COUNT ? t : FMT_NONE];
}

const char *fmt_dtype_name(fmt_dtype t) { return row_of(t)->name; }

size_t fmt_dtype_bytes(fmt_dtype t) { return row_of(t)->bytes; }

char fmt_dtype_class(fmt_dtype t) { return row_of(t)->cls; }

int fmt_dtype_to_onnx(fmt_dtype t) { return row_of(t)->onnx; }

fmt_dtype fmt_dtype_parse(const char *s, size_t len)
{
    for (unsigned t = FMT_NONE + 1; t < FMT_DTYPE_COUNT; t++)
        if (strlen(dtypes[t].name) == len && memcmp(dtypes[t].name, s, len) == 0)
            return (fmt_dtype)t;
    return FMT_NONE;
}

fmt_dtype fmt_dtype_of_onnx(int64_t code)
{
    for (unsigned t = FMT_NONE + 1; t < FMT_DTYPE_COUNT; t++)
        if (dtypes[t].onnx == code)
            return (fmt_dtype)t;
    return FMT_NONE;
}

/* TensorProto.DataType codes that have no row above. */
const char *fmt_onnx_type_name(int64_t code)
{
    static const char *const names[] = {[0] = "undefined",
                                        [14] = "complex64",
                                        [15] = "complex128",
                                        [17] = "float8e4m3fn",
                                        [18] = "float8e4m3fnuz",
                                        [19] = "float8e5m2",
                                        [20] = "float8e5m2fnuz",
                                        [21] = "uint4",
                                        [22] = "int4",
                                        [23] = "float4e2m1",
                                        [24] = "float8e8m0",
                                        [25] = "uint2",
                                        [26] = "int2"};
    fmt_dtype t = fmt_dtype_of_onnx(code);
    if (t != FMT_NONE)
        return fmt_dtype_name(t);
    bool named = code >= 0 && code < (int64_t)COUNT_OF(names) && names[code];
    return named ? names[code] : "of no known name";
}

/* ---- half types ---- */

static uint32_t bits_of(float f)
{
    uint32_t u;
    memcpy(&u, &f, 4);
    return u;
}

static float float_of(uint32_t u)
{
    float f;
    memcpy(&f, &u, 4);
    return f;
}

/* Shift right by n (1…31) and round to nearest, ties to even. */
static uint32_t shift_rne(uint32_t v, unsigned n)
{
    uint32_t half = UINT32_C(1) << (n - 1), rest = v & ((half << 1) - 1);
    v >>= n;
    return v + (rest > half || (rest == half && (v & 1)));
}

/* f16: 1 sign, 5 exponent (bias 15), 10 fraction. */
float fmt_f16_to_f32(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000) << 16, exponent = (h >> 10) & 31, fraction = h & 1023;
    if (exponent == 31)
        return float_of(sign | 0x7f800000 | fraction << 13);
    if (exponent == 0) { /* zero and subnormals: fraction * 2^-24 is exact in f32 */
        float v = (float)fraction * 0x1p-24f;
        return sign ? -v : v;
    }
    return float_of(sign | (exponent + 112) << 23 | fraction << 13);
}

uint16_t fmt_f32_to_f16(float f)
{
    uint32_t u = bits_of(f), sign = u >> 16 & 0x8000, magnitude = u & 0x7fffffff;
    if (magnitude > 0x7f800000) /* NaN: keep the high payload, force it quiet */
        return (uint16_t)(sign | 0x7e00 | (magnitude >> 13 & 0x3ff));
    if (magnitude >= 0x47800000) /* 2^16 and above */
        return (uint16_t)(sign | 0x7c00);
    if (magnitude >=
        0x38800000) /* 2^-14: normal; a carry into the exponent is right, also into infinity */
        return (uint16_t)(sign | shift_rne(magnitude - (UINT32_C(112) << 23), 13));
    if (magnitude < 0x33000000) /* below half of the least subnormal 2^-24 */
        return (uint16_t)sign;
    uint32_t significand = (magnitude & 0x7fffff) | 0x800000;
    return (uint16_t)(sign | shift_rne(significand, 126 - (magnitude >> 23)));
}

uint16_t fmt_f32_to_bf16(float f)
{
    uint32_t u = bits_of(f);
    if ((u & 0x7fffffff) > 0x7f800000)
        return (uint16_t)(u >> 16 | 0x40);
    return (uint16_t)shift_rne(u, 16);
}

/* ---- buckets ---- */

size_t fmt_bucket_pick(const int64_t *sizes, size_t n, int64_t v)
{
    size_t lo = 0, hi = n - 1; /* the answer is in [lo, hi] */
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        if (sizes[mid] >= v)
            hi = mid;
        else
            lo = mid + 1;
    }
    return lo;
}
