/* Measurements of the machine itself: peaks, curves, latencies, hand-off. The tuner turns them into tun_hw.
 *   method     best of a few short samples; loops are inline assembly or vector code whose results are kept, so that no
 *              compiler removes or reorders them. Sources and pitfalls: docs/tuning.md */
#include "worker.h"
#include <sys/mman.h>

#define SAMPLES 3                 /* the tuner asks again in later rounds */
#define REST_NS UINT64_C(2000000) /* between samples: neighbours come and go */

static _Thread_local volatile float sink_f;
static _Thread_local volatile uint64_t sink_u;

/* ---- multiply-add peak ---- */

/* Twelve independent chains: enough for latency 4 on two pipes (and 5 on most). flops per turn = 12 * lanes * 2. */
#define CHAINS_ASM(op, reg)                                                                        \
    __asm__ volatile("1:\n" op " %%" reg "15,%%" reg "14,%%" reg "0\n" op " %%" reg "15,%%" reg    \
                     "14,%%" reg "1\n" op " %%" reg "15,%%" reg "14,%%" reg "2\n" op " %%" reg     \
                     "15,%%" reg "14,%%" reg "3\n" op " %%" reg "15,%%" reg "14,%%" reg "4\n" op   \
                     " %%" reg "15,%%" reg "14,%%" reg "5\n" op " %%" reg "15,%%" reg "14,%%" reg  \
                     "6\n" op " %%" reg "15,%%" reg "14,%%" reg "7\n" op " %%" reg "15,%%" reg     \
                     "14,%%" reg "8\n" op " %%" reg "15,%%" reg "14,%%" reg "9\n" op " %%" reg     \
                     "15,%%" reg "14,%%" reg "10\n" op " %%" reg "15,%%" reg "14,%%" reg "11\n"    \
                     "dec %0\n jnz 1b\n"                                                           \
                     : "+r"(n)                                                                     \
                     :                                                                             \
                     : "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8",     \
                       "xmm9", "xmm10", "xmm11", "xmm14", "xmm15", "cc")

#if defined(__x86_64__)
static void chains_v4(uint64_t n)
{
    __asm__ volatile("vpxorq %%zmm14,%%zmm14,%%zmm14\n vpxorq %%zmm15,%%zmm15,%%zmm15" ::
                         : "xmm14", "xmm15");
    CHAINS_ASM("vfmadd231ps", "zmm");
    __asm__ volatile("vzeroupper" ::: "memory");
}
static void chains_v3(uint64_t n)
{
    __asm__ volatile("vxorps %%ymm14,%%ymm14,%%ymm14\n vxorps %%ymm15,%%ymm15,%%ymm15" ::
                         : "xmm14", "xmm15");
    CHAINS_ASM("vfmadd231ps", "ymm");
    __asm__ volatile("vzeroupper" ::: "memory");
}
#endif
/* Without fused multiply-add: a product and a sum in turn on vectors of four. */
static void chains_v2(uint64_t n)
{
    typedef float v4 __attribute__((vector_size(16)));
    v4 c[12], a = {0.5f, 0.5f, 0.5f, 0.5f}, b = {0.25f, 0.25f, 0.25f, 0.25f};
    for (int i = 0; i < 12; i++)
        c[i] = a;
    while (n--)
        for (int i = 0; i < 12; i++)
            c[i] = c[i] * a + b;
    float sum = 0;
    for (int i = 0; i < 12; i++)
        sum += c[i][0];
    sink_f = sum;
}

static double fma_turn(int level, uint64_t n)
{
#if defined(__x86_64__)
    if (level >= 4) {
        chains_v4(n);
        return 12 * 16 * 2;
    }
    if (level >= 3) {
        chains_v3(n);
        return 12 * 8 * 2;
    }
#endif
    (void)level;
    chains_v2(n);
    return 12 * 4 * 2;
}

/* ---- bandwidth ---- */

/* OR of all vectors: loads are the only work. Wide vectors, or the nearest cache is limited by instructions. */
#define READ_FN(name, isa, bytes_a_vector)                                                         \
    isa static void name(const void *p, size_t bytes)                                              \
    {                                                                                              \
        typedef uint64_t v __attribute__((vector_size(bytes_a_vector)));                           \
        const v *x = p;                                                                            \
        v a = {0}, b = {0}, c = {0}, d = {0};                                                      \
        for (size_t i = 0; i + 4 <= bytes / sizeof(v); i += 4) {                                   \
            a |= x[i];                                                                             \
            b |= x[i + 1];                                                                         \
            c |= x[i + 2];                                                                         \
            d |= x[i + 3];                                                                         \
        }                                                                                          \
        a |= b | c | d;                                                                            \
        sink_u = a[0] | a[1];                                                                      \
    }
READ_FN(read_16, , 16)
#if defined(__x86_64__)
READ_FN(read_32, __attribute__((target("avx2"))), 32)
READ_FN(read_64, __attribute__((target("avx512f"))), 64)
#endif

static void read_all(const void *p, size_t bytes)
{
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512f"))
        read_64(p, bytes);
    else if (__builtin_cpu_supports("avx2"))
        read_32(p, bytes);
    else
#endif
        read_16(p, bytes);
}

static uint8_t *area; /* grows, shared by all probes */
static size_t area_bytes;
static bool area_reserve(size_t bytes)
{
    if (bytes <= area_bytes)
        return true;
    uint8_t *p = worker_pages(bytes);
    if (!p)
        return false;
    memset(p, 1, bytes);
    if (area)
        munmap(area, area_bytes);
    area = p;
    area_bytes = bytes;
    return true;
}

/* ---- work on several threads ---- */

typedef struct team {
    fmt_work_probe what;
    int level;
    uint64_t n;
    size_t bytes;
} team;

static void team_party(void *ctx, int t, int n)
{
    (void)n;
    const team *m = ctx;
    if (m->what == FMT_PROBE_FMA)
        fma_turn(m->level, m->n);
    else if (m->what == FMT_PROBE_READ)
        for (uint64_t i = 0; i < m->n; i++)
            read_all(area + (size_t)t * m->bytes, m->bytes);
}

/* Shortest of a few runs in ns; 0 = no threads. */
static uint64_t team_best_ns(team *m, int threads, int samples)
{
    uint64_t best = UINT64_MAX;
    for (int i = 0; i < samples; i++) {
        uint64_t t_ns = base_now_ns();
        if (base_pool_run(threads, team_party, m, NULL) != RTX_OK)
            return 0;
        best = MIN(best, base_now_ns() - t_ns);
        if (threads > 1)
            base_sleep_ns(REST_NS);
    }
    return MAX(best, 1);
}

static uint32_t probe_fma(const fmt_work_req *req, fmt_work_rep *rep)
{
    int threads = (int)MAX(req->a, 1);
    team m = {.what = FMT_PROBE_FMA, .level = (int)req->b, .n = 1000};
    double per_turn = fma_turn(m.level, 1);
    uint64_t once = team_best_ns(&m, threads, 3);
    m.n = 2000000u * 1000u / MAX(once, 1);
    uint64_t ns = team_best_ns(&m, threads, SAMPLES);
    if (!ns)
        return FMT_WORK_NO_MEMORY;
    rep->value[0] = per_turn * (double)m.n * threads / (double)ns;
    return FMT_WORK_OK;
}

static uint32_t probe_read(const fmt_work_req *req, fmt_work_rep *rep)
{
    int threads = (int)MAX(req->a, 1);
    size_t bytes = (size_t)MAX(req->b, 4096) / 128 * 128;
    if (!area_reserve(bytes * (size_t)threads))
        return FMT_WORK_NO_MEMORY;
    team m = {.what = FMT_PROBE_READ, .n = MAX(((size_t)16 << 20) / bytes, 1), .bytes = bytes};
    uint64_t ns = team_best_ns(&m, threads, bytes >= (size_t)32 << 20 ? 3 : SAMPLES);
    if (!ns)
        return FMT_WORK_NO_MEMORY;
    rep->value[0] = (double)m.n * (double)bytes * threads / (double)ns;
    return FMT_WORK_OK;
}

#define BUSY_NS     UINT64_C(1300000000) /* idle virtual processors share a core for about a second */
#define BUSY_FMA    50
#define BUSY_READ   6
#define BUSY_MEMORY ((size_t)128 << 20)

/* Best of at least n runs, without rests, and until the clock says `until_ns`; 0 = no threads. */
static uint64_t busy_best_ns(team *m, int threads, int n, uint64_t until_ns)
{
    uint64_t best = UINT64_MAX;
    for (int i = 0; i < n || base_now_ns() < until_ns; i++) {
        uint64_t t_ns = base_now_ns();
        if (base_pool_run(threads, team_party, m, NULL) != RTX_OK)
            return 0;
        best = MIN(best, base_now_ns() - t_ns);
    }
    return MAX(best, 1);
}

static uint32_t probe_busy(const fmt_work_req *req, fmt_work_rep *rep)
{
    int threads = (int)MAX(req->a, 1);
    team fma = {.what = FMT_PROBE_FMA, .level = (int)req->b, .n = 100000};
    team read = {
        .what = FMT_PROBE_READ, .n = 1, .bytes = BUSY_MEMORY / (size_t)threads / 128 * 128};
    if (!area_reserve(read.bytes * (size_t)threads))
        return FMT_WORK_NO_MEMORY;
    uint64_t fma_ns = busy_best_ns(&fma, threads, BUSY_FMA, base_now_ns() + BUSY_NS),
             read_ns = busy_best_ns(&read, threads, BUSY_READ, 0);
    if (!fma_ns || !read_ns)
        return FMT_WORK_NO_MEMORY;
    rep->value[0] = fma_turn(fma.level, 1) * (double)fma.n * threads / (double)fma_ns;
    rep->value[1] = (double)read.bytes * threads / (double)read_ns;
    return FMT_WORK_OK;
}

/* A random cycle through all lines of the area: each load waits for the one before. */
static uint32_t probe_latency(const fmt_work_req *req, fmt_work_rep *rep)
{
    size_t lines = (size_t)MAX(req->b, 65536) / 64;
    if (!area_reserve(lines * 64))
        return FMT_WORK_NO_MEMORY;
    uint64_t seed = 1;
    for (size_t i = 0; i < lines; i++)
        *(uint64_t *)(void *)(area + i * 64) = i;
    for (size_t i = lines; i-- > 1;) { /* Sattolo: one single cycle */
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        size_t j = (size_t)(((seed >> 33) * (uint64_t)i) >> 31);
        uint64_t *a = (uint64_t *)(void *)(area + i * 64), *b = (uint64_t *)(void *)(area + j * 64),
                 t = *a;
        *a = *b;
        *b = t;
    }
    size_t steps = 200000;
    uint64_t at = 0, best = UINT64_MAX;
    for (int s = 0; s < 3; s++) {
        uint64_t t_ns = base_now_ns();
        for (size_t i = 0; i < steps; i++)
            at = *(const uint64_t *)(const void *)(area + at * 64);
        best = MIN(best, base_now_ns() - t_ns);
    }
    sink_u = at;
    rep->value[0] = (double)best / (double)steps;
    return FMT_WORK_OK;
}

/* ---- threads ---- */

static void barrier_party(void *ctx, int t, int n)
{
    (void)t;
    (void)n;
    for (int i = 0; i < 500; i++)
        base_barrier_wait(ctx);
}

static void nothing(void *ctx, int t, int n)
{
    (void)ctx;
    (void)t;
    (void)n;
}

static uint32_t probe_threads(const fmt_work_req *req, fmt_work_rep *rep)
{
    int threads = (int)MAX(req->a, 1);
    if (req->cmd == FMT_WORK_PROBE && req->order == FMT_PROBE_HANDOFF) {
        uint64_t best = UINT64_MAX;
        for (int i = 0; i < 12; i++) {
            base_barrier b;
            base_sleep_ns(REST_NS);
            base_barrier_init(&b, (uint32_t)threads);
            uint64_t t_ns = base_now_ns();
            if (base_pool_run(threads, barrier_party, &b, NULL) != RTX_OK)
                return FMT_WORK_NO_MEMORY;
            best = MIN(best, base_now_ns() - t_ns);
        }
        rep->value[0] = (double)best / 500;
        return FMT_WORK_OK;
    }
    uint64_t t[15];
    for (size_t i = 0; i < COUNT_OF(t); i++) {
        base_sleep_ns(3000000); /* long enough for the workers to park */
        uint64_t t_ns = base_now_ns();
        if (base_pool_run(threads, nothing, NULL, NULL) != RTX_OK)
            return FMT_WORK_NO_MEMORY;
        t[i] = base_now_ns() - t_ns;
        for (size_t j = i; j > 0 && t[j - 1] > t[j]; j--) {
            uint64_t swap = t[j];
            t[j] = t[j - 1];
            t[j - 1] = swap;
        }
    }
    rep->value[0] = (double)t[COUNT_OF(t) / 2];
    return FMT_WORK_OK;
}

/* ---- register cliff: the same product with more and more live sums ---- */

#define CLIFF_1(i) v c##i = z;
#define CLIFF_2(i) c##i += a[(i)&7] * b;
#define CLIFF_3(i) sum += c##i;
#define LIST_8(X)  X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7)
#define LIST_12(X) LIST_8(X) X(8) X(9) X(10) X(11)
#define LIST_14(X) LIST_12(X) X(12) X(13)
#define LIST_16(X) LIST_14(X) X(14) X(15)
#define LIST_20(X) LIST_16(X) X(16) X(17) X(18) X(19)
#define LIST_24(X) LIST_20(X) X(20) X(21) X(22) X(23)
#define LIST_28(X) LIST_24(X) X(24) X(25) X(26) X(27)
#define LIST_32(X) LIST_28(X) X(28) X(29) X(30) X(31)
/* a: 8 broadcast rows of the tile (one scalar each), b: the next vector of a panel. */
#define CLIFF_FN(level, isa, bytes, n)                                                             \
    __attribute__((target(isa), noinline)) static void cliff_##level##_##n(                        \
        const float *a, const float *p, uint64_t turns, float *out)                                \
    {                                                                                              \
        typedef float v __attribute__((vector_size(bytes)));                                       \
        const v z = {0};                                                                           \
        LIST_##n(CLIFF_1) for (uint64_t k = 0; k < turns; k++)                                     \
        {                                                                                          \
            v b;                                                                                   \
            memcpy(&b, p + (k & 63) * (bytes) / 4, sizeof b);                                      \
            LIST_##n(CLIFF_2)                                                                      \
        }                                                                                          \
        v sum = z;                                                                                 \
        LIST_##n(CLIFF_3) memcpy(out, &sum, sizeof sum);                                           \
    }
#define CLIFF_SET(level, isa, bytes)                                                               \
    CLIFF_FN(level, isa, bytes, 8)                                                                 \
    CLIFF_FN(level, isa, bytes, 12)                                                                \
    CLIFF_FN(level, isa, bytes, 14)                                                                \
    CLIFF_FN(level, isa, bytes, 16)                                                                \
    CLIFF_FN(level, isa, bytes, 20)                                                                \
    CLIFF_FN(level, isa, bytes, 24)                                                                \
    CLIFF_FN(level, isa, bytes, 28)                                                                \
    CLIFF_FN(level, isa, bytes, 32)
#if defined(__x86_64__)
CLIFF_SET(v4, "avx512f,avx512vl,fma", 64)
CLIFF_SET(v3, "avx2,fma", 32)
CLIFF_SET(v2, "sse4.2", 16)
#define CLIFF_ROW(n)                                                                               \
    {                                                                                              \
        n, { cliff_v2_##n, cliff_v3_##n, cliff_v4_##n }                                            \
    }
typedef void (*cliff_fn)(const float *, const float *, uint64_t, float *);
static const struct {
    int vectors;
    cliff_fn fn[3];
} cliff[] = {CLIFF_ROW(8),  CLIFF_ROW(12), CLIFF_ROW(14), CLIFF_ROW(16),
             CLIFF_ROW(20), CLIFF_ROW(24), CLIFF_ROW(28), CLIFF_ROW(32)};
#endif

static uint32_t probe_cliff(const fmt_work_req *req, fmt_work_rep *rep)
{
#if defined(__x86_64__)
    int level = (int)MIN(MAX(req->b, 2), 4);
    _Alignas(64) static float a[8], p[64 * 16];
    _Alignas(64) float out[16];
    for (size_t i = 0; i < COUNT_OF(cliff); i++) {
        uint64_t turns = 40000, best = UINT64_MAX;
        for (int s = 0; s < SAMPLES; s++) {
            uint64_t t_ns = base_now_ns();
            cliff[i].fn[level - 2](a, p, turns, out);
            best = MIN(best, base_now_ns() - t_ns);
        }
        sink_f = out[0];
        rep->value[i] =
            2.0 * (4 << (level - 2)) * cliff[i].vectors * (double)turns / (double)MAX(best, 1);
    }
    return FMT_WORK_OK;
#else
    (void)req;
    (void)rep;
    return FMT_WORK_BAD_REQUEST;
#endif
}

/* About 0.3 ms of arithmetic and 8 MiB of memory behind the usable caches. */
static uint32_t probe_sentinel(const fmt_work_req *req, fmt_work_rep *rep)
{
    static size_t at;
    const size_t step = (size_t)8 << 20, all = (size_t)64 << 20;
    if (!area_reserve(all))
        return FMT_WORK_NO_MEMORY;
    uint64_t n = 3000, t_ns = base_now_ns();
    double per_turn = fma_turn((int)req->b, n);
    rep->value[0] = per_turn * (double)n / (double)MAX(base_now_ns() - t_ns, 1);
    t_ns = base_now_ns();
    read_all(area + at, step);
    rep->value[1] = (double)step / (double)MAX(base_now_ns() - t_ns, 1);
    at = (at + step) % all;
    return FMT_WORK_OK;
}

uint32_t worker_probe(const fmt_work_req *req, fmt_work_rep *rep)
{
    if (req->a > BASE_POOL_MAX || req->b > (INT64_C(1) << 32))
        return FMT_WORK_BAD_REQUEST;
    switch ((fmt_work_probe)req->order) {
    case FMT_PROBE_SENTINEL:
        return probe_sentinel(req, rep);
    case FMT_PROBE_FMA:
        return probe_fma(req, rep);
    case FMT_PROBE_BUSY:
        return probe_busy(req, rep);
    case FMT_PROBE_READ:
        return probe_read(req, rep);
    case FMT_PROBE_LATENCY:
        return probe_latency(req, rep);
    case FMT_PROBE_HANDOFF:
    case FMT_PROBE_WAKE:
        return probe_threads(req, rep);
    case FMT_PROBE_CLIFF:
        return probe_cliff(req, rep);
    }
    return FMT_WORK_BAD_REQUEST;
}
