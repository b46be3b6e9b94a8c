/* CPU prelude: the only place with compiler spelling. A kernel is defines + this file + epilogue + template body.
 *   layer    kernel text, compiled with no headers; must leave no import, relocation or writable datum in the object
 *   needs    LEVEL 2, 3 or 4 (x86-64-v2 without FMA, -v3 with AVX2 and FMA, -v4 with AVX-512) and K_NAME
 *   vectors  k_vec is the widest vector of the level; a 16-column panel row is K_PV of them
 *   math     scalar, branch-free functions that the compiler vectorises when they are inlined into a loop. Products
 *            that feed a sum go through k_fma, so vector body and scalar remainder of a loop give equal bits.
 *            Largest errors below are over dense sweeps against long double libm (bench/NOTES.md, "CPU kernels") */

typedef signed char int8_t;
typedef short int16_t;
typedef int int32_t;
typedef long int64_t;
typedef unsigned char uint8_t;
typedef unsigned short uint16_t;
typedef unsigned int uint32_t;
typedef unsigned long uint64_t;

/* Same layout and meaning as src/format/fmt_kabi.h. */
typedef struct k_call {
    void *const *buf;
    const int64_t *arg;
    void *scratch;
    const char *next;
    int64_t next_bytes;
    uint32_t *trap;
} k_call;

typedef struct k_plan {
    int64_t units;
    int64_t scratch_bytes;
} k_plan;

#define K_INLINE         static inline __attribute__((always_inline))
#define K_NOINLINE       static __attribute__((noinline))
#define K_ARG            const int64_t *arg __attribute__((unused))
#define K_ALIGN(n)       __attribute__((aligned(n)))
#define K_CAT2(a, b)     a##b
#define K_CAT(a, b)      K_CAT2(a, b)
#define K_FN(x)          K_CAT(K_NAME, K_CAT(_, x))
#define K_MIN(a, b)      ((a) < (b) ? (a) : (b))
#define K_MAX(a, b)      ((a) > (b) ? (a) : (b))
#define K_CEIL_DIV(a, b) (((a) + (b)-1) / (b))
#define K_PRAGMA(x)      _Pragma(#x)
#define K_UNROLL(n)      K_PRAGMA(GCC unroll n)
/* Before a loop to be vectorised: its turns are independent, and a short known trip count must not unroll it into scalars
 * before the vectoriser sees it. */
#define K_VECTOR_LOOP    _Pragma("GCC ivdep") _Pragma("GCC unroll 1")
#define K_PREFETCH_L2(p) __builtin_prefetch(p, 0, 2)
#define K_NAN            __builtin_nanf("")
#define K_INF            __builtin_inff()

/* ---- vectors ---- */

#define K_PANEL 16 /* columns of a packed panel, the same at every level */
#if LEVEL == 4
#define K_VL 16
#define K_PV 1
#define K_SPLAT(x)                                                                                 \
    (k_vec) { x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x }
#elif LEVEL == 3
#define K_VL 8
#define K_PV 2
#define K_SPLAT(x)                                                                                 \
    (k_vec) { x, x, x, x, x, x, x, x }
#else
#define K_VL 4
#define K_PV 4
#define K_SPLAT(x)                                                                                 \
    (k_vec) { x, x, x, x }
#endif
typedef float k_vec __attribute__((vector_size(4 * K_VL)));
typedef float k_vecu __attribute__((vector_size(4 * K_VL), aligned(4), may_alias));

K_INLINE k_vec k_load(const float *p) { return *(const k_vecu *)p; }
K_INLINE void k_store(float *p, k_vec v) { *(k_vecu *)p = v; }
K_INLINE k_vec k_splat(float x) { return K_SPLAT(x); }

/* The larger of each pair; b where either is NaN. */
#if LEVEL == 4 && defined(__clang__)
K_INLINE k_vec k_vmax(k_vec a, k_vec b) { return __builtin_ia32_maxps512(a, b, 4); }
#elif LEVEL == 4
K_INLINE k_vec k_vmax(k_vec a, k_vec b) { return __builtin_ia32_maxps512_mask(a, b, a, -1, 4); }
#elif LEVEL == 3
K_INLINE k_vec k_vmax(k_vec a, k_vec b) { return __builtin_ia32_maxps256(a, b); }
#else
K_INLINE k_vec k_vmax(k_vec a, k_vec b) { return __builtin_ia32_maxps(a, b); }
#endif

typedef float k_quad __attribute__((vector_size(16)));
typedef float k_quadu __attribute__((vector_size(16), aligned(4), may_alias));
typedef int k_quadi __attribute__((vector_size(16)));
#ifdef __clang__
#define K_SHUFFLE(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
#define K_SHUFFLE(a, b, ...) __builtin_shuffle(a, b, (k_quadi){__VA_ARGS__})
#endif

/* Sum of 32 lanes, joined by halves: lane l takes lane l + 16, then l + 8, and so on. */
K_INLINE float k_join32(const float *lane)
{
#define QUAD(i) (*(const k_quadu *)(lane + 4 * (i)))
    const k_quad a0 = QUAD(0) + QUAD(4), a1 = QUAD(1) + QUAD(5), a2 = QUAD(2) + QUAD(6),
                 a3 = QUAD(3) + QUAD(7);
#undef QUAD
    const k_quad b = (a0 + a2) + (a1 + a3), s = b + K_SHUFFLE(b, b, 2, 3, 2, 3);
    return s[0] + s[1];
}

/* dst[c][16] = src[16][c] for c < cols; rows of src are ld apart, rows of dst ldd. */
K_INLINE void k_transpose16(float *dst, int64_t ldd, const float *src, int64_t ld, int64_t cols)
{
    for (int r = 0; r < 16; r += 4, src += 4 * ld, dst += 4) {
        int64_t c = 0;
        for (; c + 4 <= cols; c += 4) {
            const k_quad x0 = *(const k_quadu *)(src + c), x1 = *(const k_quadu *)(src + ld + c);
            const k_quad x2 = *(const k_quadu *)(src + 2 * ld + c),
                         x3 = *(const k_quadu *)(src + 3 * ld + c);
            const k_quad lo01 = K_SHUFFLE(x0, x1, 0, 4, 1, 5);
            const k_quad hi01 = K_SHUFFLE(x0, x1, 2, 6, 3, 7);
            const k_quad lo23 = K_SHUFFLE(x2, x3, 0, 4, 1, 5);
            const k_quad hi23 = K_SHUFFLE(x2, x3, 2, 6, 3, 7);
            *(k_quadu *)(dst + c * ldd) = K_SHUFFLE(lo01, lo23, 0, 1, 4, 5);
            *(k_quadu *)(dst + (c + 1) * ldd) = K_SHUFFLE(lo01, lo23, 2, 3, 6, 7);
            *(k_quadu *)(dst + (c + 2) * ldd) = K_SHUFFLE(hi01, hi23, 0, 1, 4, 5);
            *(k_quadu *)(dst + (c + 3) * ldd) = K_SHUFFLE(hi01, hi23, 2, 3, 6, 7);
        }
        for (; c < cols; c++)
            for (int i = 0; i < 4; i++)
                dst[c * ldd + i] = src[i * ld + c];
    }
}

/* Does an even split of count rows into the fewest tiles of at most `most` make a tile of this many rows? With baked
 * sizes this lets the compiler drop the literal tiles that cannot occur. */
K_INLINE int k_splits_to(int64_t count, int64_t most, int64_t rows)
{
    const int64_t tiles = K_MAX(K_CEIL_DIV(count, most), 1);
    return rows == count / tiles || rows == K_CEIL_DIV(count, tiles);
}

/* Ladders for named accumulators. Arrays of vectors spill, so register tiles spell out every vector: a ladder repeats
 * F(r) for the rows r of a tile, F(r, p) for its panels, F(r, p, h) for the vectors of one panel. */
#define K_VECS_1(F, r, p) F(r, p, 0)
#define K_VECS_2(F, r, p) F(r, p, 0) F(r, p, 1)
#define K_VECS_4(F, r, p) F(r, p, 0) F(r, p, 1) F(r, p, 2) F(r, p, 3)
#define K_VECS(F, r, p)   K_CAT(K_VECS_, K_PV)(F, r, p)
#define K_PANELS_1(F, r)  F(r, 0)
#define K_PANELS_2(F, r)  K_PANELS_1(F, r) F(r, 1)
#define K_PANELS_3(F, r)  K_PANELS_2(F, r) F(r, 2)
#define K_PANELS_4(F, r)  K_PANELS_3(F, r) F(r, 3)
#define K_PANELS_5(F, r)  K_PANELS_4(F, r) F(r, 4)
#define K_PANELS_6(F, r)  K_PANELS_5(F, r) F(r, 5)
#define K_PANELS_7(F, r)  K_PANELS_6(F, r) F(r, 6)
#define K_PANELS_8(F, r)  K_PANELS_7(F, r) F(r, 7)
#define K_ROWS_1(F)       F(0)
#define K_ROWS_2(F)       K_ROWS_1(F) F(1)
#define K_ROWS_3(F)       K_ROWS_2(F) F(2)
#define K_ROWS_4(F)       K_ROWS_3(F) F(3)
#define K_ROWS_5(F)       K_ROWS_4(F) F(4)
#define K_ROWS_6(F)       K_ROWS_5(F) F(5)
#define K_ROWS_7(F)       K_ROWS_6(F) F(6)
#define K_ROWS_8(F)       K_ROWS_7(F) F(7)
#define K_ROWS_9(F)       K_ROWS_8(F) F(8)
#define K_ROWS_10(F)      K_ROWS_9(F) F(9)
#define K_ROWS_11(F)      K_ROWS_10(F) F(10)
#define K_ROWS_12(F)      K_ROWS_11(F) F(11)
#define K_ROWS_13(F)      K_ROWS_12(F) F(12)
#define K_ROWS_14(F)      K_ROWS_13(F) F(13)
#define K_ROWS_15(F)      K_ROWS_14(F) F(14)
#define K_ROWS_16(F)      K_ROWS_15(F) F(15)

/* ---- numbers ---- */

#if LEVEL >= 3
K_INLINE float k_fma(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
K_INLINE double k_fmad(double a, double b, double c) { return __builtin_fma(a, b, c); }
#else /* no FMA: a call to libm would be an import */
K_INLINE float k_fma(float a, float b, float c) { return a * b + c; }
K_INLINE double k_fmad(double a, double b, double c) { return a * b + c; }
#endif

typedef union k_word {
    float f;
    int32_t i;
} k_word;
typedef union k_dword {
    double f;
    int64_t i;
} k_dword;
K_INLINE int32_t k_bits(float x) { return (k_word){.f = x}.i; }
K_INLINE float k_float(int32_t i) { return (k_word){.i = i}.f; }
K_INLINE int64_t k_bitsd(double x) { return (k_dword){.f = x}.i; }
K_INLINE double k_double(int64_t i) { return (k_dword){.i = i}.f; }

K_INLINE float k_abs(float x) { return __builtin_fabsf(x); }
K_INLINE float k_copysign(float x, float s)
{
    return k_float((k_bits(x) & 0x7fffffff) | (k_bits(s) & (int32_t)0x80000000));
}
K_INLINE float k_sqrt(float x) { return __builtin_sqrtf(x); }
K_INLINE float k_rsqrt(float x) { return 1.0f / __builtin_sqrtf(x); }
K_INLINE float k_floor(float x) { return __builtin_floorf(x); }
K_INLINE float k_ceil(float x) { return __builtin_ceilf(x); }
/* half to even: kernels run in the default rounding mode */
K_INLINE float k_round(float x) { return __builtin_rintf(x); }

/* NaN in either operand gives NaN. */
K_INLINE float k_fmin(float a, float b) { return a < b || a != a ? a : b; }
K_INLINE float k_fmax(float a, float b) { return a > b || a != a ? a : b; }

/* Adding K_MAGIC rounds to an integer (half to even) and leaves it in the low bits. */
#define K_MAGIC  12582912.0f        /* 1.5 * 2^23 */
#define K_MAGICD 6755399441055744.0 /* 1.5 * 2^52 */

/* x = n ln2 + r with |r| <= ln2/2. The high part of ln2 has 9 trailing zero bits, so n * high is exact. */
K_INLINE float k_exp_reduce(float x, int32_t *n)
{
    float t = k_fma(x, 1.44269504f, K_MAGIC), f = t - K_MAGIC;
    *n = (int32_t)((uint32_t)k_bits(t) - 0x4b400000u);
    return k_fma(f, -1.42860677e-6f, k_fma(f, -0.693145752f, x));
}

/* e^r - 1 for |r| <= ln2/2, as r + r^2 (1/2 + ...). */
K_INLINE float k_expm1_core(float r)
{
    float p = 1.3814458e-3f;
    p = k_fma(p, r, 8.3687812e-3f);
    p = k_fma(p, r, 4.1668394e-2f);
    p = k_fma(p, r, 1.6666520e-1f);
    p = k_fma(p, r, 4.9999993e-1f);
    return k_fma(p, r * r, r);
}

/* 2^n for -126 <= n <= 127 */
K_INLINE float k_pow2(int32_t n) { return k_float((int32_t)((uint32_t)(n + 127) << 23)); }

/* n is added to the exponent. Outside the range the arithmetic is nonsense and replaced: by 0 where the result would
 * be denormal (a denormal costs tens of cycles), by inf, or by NaN. At most 1.0 ulp. */
K_INLINE float k_exp(float x)
{
    int32_t n;
    float p = 1.0f + k_expm1_core(k_exp_reduce(x, &n));
    p = k_float((int32_t)((uint32_t)k_bits(p) + ((uint32_t)n << 23)));
    p = x < -87.336f ? 0.0f : p;
    return x <= 88.7228394f ? p : x + K_INF;
}

/* log(m 2^n) = n ln2 + log1p(m - 1), sqrt(1/2) <= m < sqrt(2). At most 0.9 ulp. */
K_INLINE float k_log(float x)
{
    int tiny = x < 1.17549435e-38f;
    int32_t i = k_bits(tiny ? x * 8388608.0f : x) - 0x3f3504f3; /* bits of sqrt(1/2) */
    float n = (float)(i >> 23) - (tiny ? 23.0f : 0.0f);
    float f = k_float((i & 0x7fffff) + 0x3f3504f3) - 1.0f, z = f * f;
    float p = -7.6342255e-2f;
    p = k_fma(p, f, 1.2761468e-1f);
    p = k_fma(p, f, -1.3160234e-1f);
    p = k_fma(p, f, 1.4201776e-1f);
    p = k_fma(p, f, -1.6623354e-1f);
    p = k_fma(p, f, 2.0001226e-1f);
    p = k_fma(p, f, -2.5000821e-1f);
    p = k_fma(p, f, 3.3333332e-1f);
    p = k_fma(z, k_fma(p, f, -0.5f), n * 1.42860677e-6f);
    p = k_fma(n, 0.693145752f, p + f);
    p = x < K_INF ? p : x; /* inf and NaN */
    p = x == 0.0f ? -K_INF : p;
    return x < 0.0f ? K_NAN : p;
}

/* erf: x + x P(x^2) up to 1.2, then a polynomial in |x| centred on the rest; erf is 1 in float from 3.92
 * on. At most 1.9 ulp. */
K_INLINE float k_erf(float x)
{
    float a = k_abs(x), u = x * x;
    float p = 6.52737183e-05f;
    p = k_fma(p, u, -0.000756218177f);
    p = k_fma(p, u, 0.00513127202f);
    p = k_fma(p, u, -0.0268201694f);
    p = k_fma(p, u, 0.112826854f);
    p = k_fma(p, u, -0.376125376f);
    p = k_fma(p, u, 0.128379152f);
    float w = k_fma(a, 1.0f / 1.36f, -2.56f / 1.36f);
    float q = -0.000355978471f;
    q = k_fma(q, w, 0.000412754509f);
    q = k_fma(q, w, 0.00156768517f);
    q = k_fma(q, w, -0.00375478799f);
    q = k_fma(q, w, 0.00174159822f);
    q = k_fma(q, w, 0.005764095f);
    q = k_fma(q, w, -0.0161758786f);
    q = k_fma(q, w, 0.0239025782f);
    q = k_fma(q, w, -0.0237122439f);
    q = k_fma(q, w, 0.0163318675f);
    q = k_fma(q, w, -0.00761405311f);
    q = k_fma(q, w, 0.00218646673f);
    q = k_fma(q, w, 0.999705844f);
    q = a >= 3.92f ? 1.0f : q;
    return a < 1.2f ? k_fma(x, p, x) : k_copysign(q, x);
}

/* tanh x = -t / (t + 2), t = e^(-2|x|) - 1 in (-1, 0]: no cancellation at either end. At most 2.5 ulp. */
K_INLINE float k_tanh(float x)
{
    int32_t n;
    float a = k_abs(x), q = k_expm1_core(k_exp_reduce(-2.0f * a, &n)), s = k_pow2(n);
    float t = k_fma(s, q, s - 1.0f);
    t = a > 9.5f ? 1.0f : -t / (t + 2.0f);
    return k_copysign(t, x);
}

/* At most 2.4 ulp each; sigmoid is 0 from -88.7 down. */
K_INLINE float k_sigmoid(float x) { return 1.0f / (1.0f + k_exp(-x)); }
K_INLINE float k_silu(float x) { return x / (1.0f + k_exp(-x)); }

/* x (1 + erf(x / sqrt 2)) / 2: at most 5e-7 absolute, the cancellation of the formula itself. */
K_INLINE float k_gelu(float x)
{
    float h = 0.5f * x;
    return k_fma(h, k_erf(x * 0.707106781f), h);
}

/* x sigmoid(2z), z = sqrt(2/pi) (x + 0.044715 x^3): equals x (1 + tanh z) / 2. */
K_INLINE float k_gelu_tanh(float x)
{
    return x / (1.0f + k_exp(x * k_fma(x * x, -0.0713548163f, -1.59576912f)));
}

/* x^y = e^(y log|x|) in double; then the special cases of IEEE pow. At most 6e-8 relative. */
K_INLINE float k_pow(float x, float y)
{
    float ax = k_abs(x);
    double a = ax; /* exact, and a normal number also where x is denormal */
    int64_t i = k_bitsd(a) - 0x3fe6a09e667f3bcd; /* bits of sqrt(1/2) */
    int64_t top = (i >> 52);
    double m = k_double((i & 0xfffffffffffff) + 0x3fe6a09e667f3bcd);
    double s = (m - 1.0) / (m + 1.0), z = s * s;
    double p = 2.0 / 15;
    p = k_fmad(p, z, 2.0 / 13);
    p = k_fmad(p, z, 2.0 / 11);
    p = k_fmad(p, z, 2.0 / 9);
    p = k_fmad(p, z, 2.0 / 7);
    p = k_fmad(p, z, 2.0 / 5);
    p = k_fmad(p, z, 2.0 / 3);
    p = k_fmad(p, z, 2.0) * s;
    double n = k_double(top + k_bitsd(K_MAGICD)) - K_MAGICD;
    double e = (double)y * k_fmad(n, 0.69314718055994530942, p);
    e = -200.0 > e ? -200.0 : e;
    e = 200.0 < e ? 200.0 : e;
    double t = k_fmad(e, 1.44269504088896340736, K_MAGICD), f = t - K_MAGICD;
    double r = k_fmad(f, -0.69314718055994530942, e), q = 1.0 / 362880;
    q = k_fmad(q, r, 1.0 / 40320);
    q = k_fmad(q, r, 1.0 / 5040);
    q = k_fmad(q, r, 1.0 / 720);
    q = k_fmad(q, r, 1.0 / 120);
    q = k_fmad(q, r, 1.0 / 24);
    q = k_fmad(q, r, 1.0 / 6);
    q = k_fmad(q, r, 0.5);
    q = k_fmad(q, r, 1.0);
    q = k_fmad(q, r, 1.0);
    float v = (float)(q * k_double((k_bitsd(t) - k_bitsd(K_MAGICD) + 1023) << 52));
    int whole = k_floor(y) == y, odd = whole & (k_floor(0.5f * y) != 0.5f * y);
    v = ((ax == 0.0f) | (ax == K_INF)) ? ((ax == 0.0f) == (y > 0.0f) ? 0.0f : K_INF) : v;
    v = k_abs(y) == K_INF ? (ax == 1.0f ? 1.0f : (ax > 1.0f) == (y > 0.0f) ? K_INF : 0.0f) : v;
    v = ((x < 0.0f) & !whole & (ax != K_INF)) ? K_NAN : v;
    v = ((k_bits(x) < 0) & odd) ? -v : v;
    v = ((x != x) | (y != y)) ? K_NAN : v;
    return ((x == 1.0f) | (y == 0.0f)) ? 1.0f : v;
}

/* sin (quarter = 0) and cos (quarter = 1): n = round(2x/pi) and the rest in double: at most 0.53 ulp up to |x| = 1e5.
 * Above, the error grows with x 2^-53; above 2^50 the result is only bounded. */
K_INLINE float k_sincos(float x, int64_t quarter)
{
    double t = k_fmad(x, 0.63661977236758134308, K_MAGICD), n = t - K_MAGICD;
    double r = k_fmad(n, -6.07710050650619224932e-11, k_fmad(n, -1.57079632673412561417, x));
    r = -0.7854 > r ? -0.7854 : r;
    r = 0.7854 < r ? 0.7854 : r;
    int64_t k = k_bitsd(t) + quarter;
    double z = r * r;
    double c = -1.0 / 3628800, s = 1.0 / 362880;
    c = k_fmad(c, z, 1.0 / 40320);
    s = k_fmad(s, z, -1.0 / 5040);
    c = k_fmad(c, z, -1.0 / 720);
    s = k_fmad(s, z, 1.0 / 120);
    c = k_fmad(c, z, 1.0 / 24);
    s = k_fmad(s, z, -1.0 / 6);
    c = k_fmad(c, z, -0.5);
    s = k_fmad(s * z, r, r);
    c = k_fmad(c, z, 1.0);
    double v = k & 1 ? c : s;
    return (float)(k & 2 ? -v : v);
}
K_INLINE float k_sin(float x) { return k_sincos(x, 0); }
K_INLINE float k_cos(float x) { return k_sincos(x, 1); }
