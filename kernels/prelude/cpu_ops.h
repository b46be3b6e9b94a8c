/* CPU prelude, second part: what generated expressions and the loops around them need beside cpu.h.
 *   layer      kernel text; follows cpu.h in every unit
 *   integers   wrap around; x / 0 = x mod 0 = 0, as src/ir/ops.def says
 *   casts      float to integer truncates and saturates, NaN gives 0; half types round to nearest even in software
 *   nests      a k_nest walks up to K_AXES axes and keeps the element offset of every operand beside the index */

/* ---- expressions of ops.def ---- */

#define k_fabs(a) k_abs(a)
#define k_idiv(a, b) _Generic((a) + (b), int32_t: k_idiv_32, default: k_idiv_64)(a, b)
#define k_imod(a, b) _Generic((a) + (b), int32_t: k_imod_32, default: k_imod_64)(a, b)
#define k_irem(a, b) _Generic((a) + (b), int32_t: k_irem_32, default: k_irem_64)(a, b)
#define k_ipow(a, b) _Generic((a) + (b), int32_t: k_ipow_32, default: k_ipow_64)(a, b)

K_INLINE float k_sign(float a) { return a > 0.0f ? 1.0f : a < 0.0f ? -1.0f : a; }

/* A divisor of -1 is a negation: the quotient of the lowest integer does not fit. */
K_INLINE int32_t k_idiv_32(int32_t a, int32_t b) { return b == 0 ? 0 : b == -1 ? (int32_t)(0 - (uint32_t)a) : a / b; }
K_INLINE int64_t k_idiv_64(int64_t a, int64_t b) { return b == 0 ? 0 : b == -1 ? (int64_t)(0 - (uint64_t)a) : a / b; }
K_INLINE int32_t k_irem_32(int32_t a, int32_t b) { return b == 0 || b == -1 ? 0 : a % b; }
K_INLINE int64_t k_irem_64(int64_t a, int64_t b) { return b == 0 || b == -1 ? 0 : a % b; }

/* Remainder with the sign of the divisor. */
K_INLINE int32_t k_imod_32(int32_t a, int32_t b)
{
    const int32_t r = k_irem_32(a, b);
    return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}
K_INLINE int64_t k_imod_64(int64_t a, int64_t b)
{
    const int64_t r = k_irem_64(a, b);
    return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}

/* A negative power is the truncated reciprocal: 0 except for bases 1 and -1. */
K_INLINE int64_t k_ipow_64(int64_t a, int64_t b)
{
    if (b < 0) return a == 1 ? 1 : a == -1 ? (b & 1 ? -1 : 1) : 0;
    uint64_t r = 1, x = (uint64_t)a;
    for (; b; b >>= 1, x *= x) r = b & 1 ? r * x : r;
    return (int64_t)r;
}
K_INLINE int32_t k_ipow_32(int32_t a, int32_t b) { return (int32_t)k_ipow_64(a, b); }

/* Exact remainder with the sign of x: mantissas as integers, 40 bits of the exponent difference at a time. */
K_INLINE float k_fmod(float x, float y)
{
    const uint32_t ux = (uint32_t)k_bits(x) & 0x7fffffff, uy = (uint32_t)k_bits(y) & 0x7fffffff;
    if (uy == 0 || uy > 0x7f800000 || ux >= 0x7f800000) return K_NAN;
    if (ux < uy) return x;
    const int32_t ex = K_MAX((int32_t)(ux >> 23), 1), ey = K_MAX((int32_t)(uy >> 23), 1);
    const uint64_t my = (uy & 0x7fffff) | (uint64_t)(uy >> 23 != 0) << 23;
    uint64_t r = ((ux & 0x7fffff) | (uint64_t)(ux >> 23 != 0) << 23) % my;
    for (int32_t d = ex - ey; d > 0 && r != 0; d -= 40) r = (r << K_MIN(d, 40)) % my;
    const float v = (float)((double)(int64_t)r * k_double((int64_t)(ey - 150 + 1023) << 52));
    return k_copysign(v, x);
}

/* ---- casts ---- */

#define k_to_i32(a) _Generic((a), float: k_i32_f32, default: k_i32_f64)(a)
#define k_to_i64(a) _Generic((a), float: k_i64_f32, default: k_i64_f64)(a)

K_INLINE int32_t k_i32_f64(double a)
{
    a = a >= 2147483647.0 ? 2147483647.0 : a;
    a = a <= -2147483648.0 ? -2147483648.0 : a;
    return a == a ? (int32_t)a : 0;
}
K_INLINE int32_t k_i32_f32(float a)
{
    const int32_t v = (int32_t)(a < 2147483648.0f ? a : 0.0f);
    return a >= 2147483648.0f ? 2147483647 : a <= -2147483648.0f ? -2147483647 - 1 : v;
}
K_INLINE int64_t k_i64_f64(double a)
{
    const int64_t v = (int64_t)(a < 0x1p63 && a > -0x1p63 ? a : 0.0);
    return a >= 0x1p63 ? 0x7fffffffffffffff : a <= -0x1p63 ? -0x7fffffffffffffff - 1 : v;
}
K_INLINE int64_t k_i64_f32(float a) { return k_i64_f64(a); }

K_INLINE float k_f32_bf16(uint16_t h) { return k_float((int32_t)((uint32_t)h << 16)); }
K_INLINE uint16_t k_bf16_f32(float f)
{
    const uint32_t u = (uint32_t)k_bits(f), even = u >> 16 & 1;
    return (uint16_t)(f != f ? u >> 16 | 0x40 : (u + 0x7fff + even) >> 16);
}

/* The exponent moves by 112; as a factor this also makes denormals right. */
K_INLINE float k_f32_f16(uint16_t h)
{
    const int32_t m = (h & 0x7fff) << 13, sign = (int32_t)((uint32_t)(h & 0x8000) << 16);
    const int32_t v = (h & 0x7c00) == 0x7c00 ? m | 0x7f800000 : k_bits(k_float(m) * 0x1p112f);
    return k_float(v | sign);
}
K_INLINE uint16_t k_f16_f32(float f)
{
    const uint32_t u = (uint32_t)k_bits(f) & 0x7fffffff, sign = (uint32_t)k_bits(f) >> 16 & 0x8000;
    const uint32_t normal = (u + 0xfff + (u >> 13 & 1) - (112u << 23)) >> 13;
    const uint32_t small = (uint32_t)k_bits(k_float((int32_t)u) + 0.5f) - 0x3f000000; /* the sum rounds for us */
    const uint32_t large = u > 0x7f800000 ? 0x7e00 : 0x7c00;
    return (uint16_t)((u >= 0x47800000 ? large : u < 0x38800000 ? small : normal) | sign);
}
/* Through float with the last bit made odd when inexact, so that rounding happens once. */
K_INLINE float k_f32_odd(double d)
{
    const float f = (float)d;
    const int32_t i = k_bits(f);
    const int away = (double)k_abs(f) > (d < 0 ? -d : d);
    return f == d || d != d || (i & 0x7f800000) == 0x7f800000 ? f : k_float((i - (away & 1)) | 1);
}
K_INLINE uint16_t k_f16_f64(double d) { return k_f16_f32(k_f32_odd(d)); }
K_INLINE uint16_t k_bf16_f64(double d) { return k_bf16_f32(k_f32_odd(d)); }

/* Set-up and strided work, compiled for size: it runs once a call, once a line, or element by element anyway. */
#ifdef __clang__
#define K_SMALL static __attribute__((noinline, minsize))
#else
#define K_SMALL static __attribute__((noinline, optimize("Os")))
#endif

/* ---- runs: n elements of `bytes` bytes (a literal), strides in elements ---- */

#define K_BLOCK 128 /* elements of a staged run */

K_INLINE void k_copy(const int bytes, void *dst, int64_t ds, const void *src, int64_t ss, int64_t n)
{
    char *d = dst;
    const char *s = src;
    if (ss == 1 && ds == 1) {
        K_VECTOR_LOOP
        for (int64_t j = 0; j < n; j++) __builtin_memcpy(d + j * bytes, s + j * bytes, bytes);
    } else if (ss == 0 && ds == 1) {
        K_VECTOR_LOOP
        for (int64_t j = 0; j < n; j++) __builtin_memcpy(d + j * bytes, s, bytes);
    } else {
        K_VECTOR_LOOP
        for (int64_t j = 0; j < n; j++) __builtin_memcpy(d + j * ds * bytes, s + j * ss * bytes, bytes);
    }
}
K_SMALL void k_copy_1(void *d, int64_t ds, const void *s, int64_t ss, int64_t n) { k_copy(1, d, ds, s, ss, n); }
K_SMALL void k_copy_2(void *d, int64_t ds, const void *s, int64_t ss, int64_t n) { k_copy(2, d, ds, s, ss, n); }
K_SMALL void k_copy_4(void *d, int64_t ds, const void *s, int64_t ss, int64_t n) { k_copy(4, d, ds, s, ss, n); }
K_SMALL void k_copy_8(void *d, int64_t ds, const void *s, int64_t ss, int64_t n) { k_copy(8, d, ds, s, ss, n); }

/* The run as adjacent elements: where it lies if it is so already, else copied to buf. These and k_copy_* are for strided
 * runs; what is adjacent on both sides goes through k_copy, inlined. */
K_INLINE const void *k_stage_1(const void *s, int64_t step, int64_t n, void *buf)
{
    return step == 1 ? s : (k_copy_1(buf, 1, s, step, n), buf);
}
K_INLINE const void *k_stage_2(const void *s, int64_t step, int64_t n, void *buf)
{
    return step == 1 ? s : (k_copy_2(buf, 1, s, step, n), buf);
}
K_INLINE const void *k_stage_4(const void *s, int64_t step, int64_t n, void *buf)
{
    return step == 1 ? s : (k_copy_4(buf, 1, s, step, n), buf);
}
K_INLINE const void *k_stage_8(const void *s, int64_t step, int64_t n, void *buf)
{
    return step == 1 ? s : (k_copy_8(buf, 1, s, step, n), buf);
}

/* ---- nests ---- */

#define K_AXES 8
#define K_OPERANDS 32

typedef struct k_nest {
    int axes, operands; /* axes >= 1; the last one is walked in runs */
    int64_t dim[K_AXES], index[K_AXES];
    int64_t stride[K_OPERANDS][K_AXES], at[K_OPERANDS];
} k_nest;

K_SMALL int64_t k_nest_elems(const k_nest *t)
{
    int64_t n = 1;
    for (int d = 0; d < t->axes; d++) n *= t->dim[d];
    return n;
}

/* Axis d steps on where axis `to` before it ends, for every operand. */
K_SMALL int k_nest_joins(const k_nest *t, int to, int d)
{
    int joins = 1;
    for (int i = 0; i < t->operands; i++) joins &= t->stride[i][to] == t->stride[i][d] * t->dim[d];
    return joins;
}

/* Drop axes of size 1 and merge neighbours that lie as one. keep_last: the strides of the last axis are compiled in, so
 * it may grow but not go. */
K_SMALL void k_nest_fold(k_nest *t, int keep_last)
{
    int n = 0;
    for (int d = 0; d < t->axes; d++) {
        const int last = d == t->axes - 1;
        if (t->dim[d] == 1 && !(last && keep_last) && !(last && n == 0)) continue;
        const int joins = n > 0 && k_nest_joins(t, n - 1, d);
        const int64_t before = joins ? t->dim[n - 1] : 1;
        n -= joins;
        t->dim[n] = before * t->dim[d];
        for (int i = 0; i < t->operands; i++) t->stride[i][n] = t->stride[i][d];
        n++;
    }
    t->axes = n;
}

/* To the element with the given number in row-major order. */
K_SMALL void k_nest_seek(k_nest *t, int64_t number)
{
    for (int i = 0; i < t->operands; i++) t->at[i] = 0;
    for (int d = t->axes - 1; d >= 0; d--) {
        t->index[d] = d ? number % t->dim[d] : number;
        if (d) number /= t->dim[d];
        for (int i = 0; i < t->operands; i++) t->at[i] += t->index[d] * t->stride[i][d];
    }
}

/* n elements on, at most to the end of the last axis. */
K_SMALL void k_nest_step(k_nest *t, int64_t n)
{
    int d = t->axes - 1;
    t->index[d] += n;
    for (int i = 0; i < t->operands; i++) t->at[i] += n * t->stride[i][d];
    for (; d > 0 && t->index[d] == t->dim[d]; d--) {
        t->index[d] = 0;
        t->index[d - 1]++;
        for (int i = 0; i < t->operands; i++) t->at[i] += t->stride[i][d - 1] - t->dim[d] * t->stride[i][d];
    }
}

/* ---- indices of gathers: negative ones count from the end; others out of range are clamped and reported ---- */

K_INLINE int64_t k_index(const k_call *c, int64_t i, int64_t n)
{
    i += i < 0 ? n : 0;
    if (i >= 0 && i < n) return i;
    __atomic_store_n(c->trap, 1u, __ATOMIC_RELAXED);
    return i < 0 || n <= 0 ? 0 : n - 1;
}
