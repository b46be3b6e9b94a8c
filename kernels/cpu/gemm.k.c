/* @kernel  gemm
 * @what    C[b0,b1,m,n] = epi(sum_k A[b0,b1,m,k] * B[b0,b1,k,n]), fp32 in, fp32 accumulators, fp32 out
 * @param   MR 3 {1,2,3,4,5,6,7,8,9,10,12,14,16} rows of a register tile
 * @param   NP 1 {1,2,3,4,6} panels of 16 columns of a register tile
 * @param   MB 0 {0,16,32,64,96,128,256} rows of a work unit, 0 = all
 * @param   NB 1 {1,2,3,4,6,8,12,16,24} panels of a work unit
 * @param   ORDER 0 {0,1} consecutive units: 0 = walk m under the same weights, 1 = walk n under the same rows
 * @param   PF 1 {0,1,2,3,4} most lines of the coming weights fetched into L2 per k step, 0 = none
 * @param   KU 1 {1,2,4} k steps per loop turn
 * @require NB % NP == 0
 * @require MR * NP * (LEVEL == 4 ? 1 : LEVEL == 3 ? 2 : 4) <= CLIFF * 7 / 8
 * @seed    LEVEL=4 M>=64 MR=6 NP=4 MB=0 NB=4 ORDER=0 PF=1 KU=1
 * @seed    LEVEL=4 MR=16 NP=1 MB=0 NB=1 ORDER=0 PF=1 KU=1
 * @seed    LEVEL=4 M<=8 MR=8 NP=1 MB=0 NB=1 ORDER=0 PF=1 KU=1
 * @seed    LEVEL=4 M<=24 MR=12 NP=2 MB=0 NB=2 ORDER=0 PF=2 KU=1
 * @seed    LEVEL=4 MR=8 NP=3 MB=0 NB=3 ORDER=0 PF=3 KU=1
 * @seed    LEVEL=4 MR=8 NP=2 MB=0 NB=2 ORDER=0 PF=2 KU=1
 * @seed    LEVEL=4 MR=6 NP=4 MB=64 NB=4 ORDER=0 PF=1 KU=1
 * @seed    LEVEL=4 K<=L2/1024 MR=9 NP=3 MB=128 NB=3 ORDER=0 PF=1 KU=1
 * @seed    LEVEL=4 K>L2/1024 K<=L2/512 MR=9 NP=3 MB=64 NB=3 ORDER=0 PF=1 KU=1
 * @seed    LEVEL=4 K>L2/512 MR=9 NP=3 MB=32 NB=3 ORDER=0 PF=1 KU=1
 * @seed    LEVEL=4 MR=8 NP=3 MB=0 NB=12 ORDER=0 PF=0 KU=1
 * @seed    LEVEL=4 MR=14 NP=2 MB=128 NB=8 ORDER=1 PF=1 KU=2
 * @seed    LEVEL=3 MR=6 NP=1 MB=0 NB=1 ORDER=0 PF=1 KU=4
 * @seed    LEVEL=3 MR=3 NP=2 MB=0 NB=2 ORDER=0 PF=1 KU=1
 * @seed    LEVEL=2 M<=16 MR=3 NP=1 MB=0 NB=1 ORDER=0 PF=1 KU=4
 * @seed    LEVEL=2 MR=1 NP=3 MB=0 NB=3 ORDER=0 PF=1 KU=2
 * @tol     1e-6 norm-wise; |error| <= (min(K, 512) + K / 512 + 1) 2^-24 sum_k |A B|, plus the epilogue
 * @source  own work
 *
 * The renderer defines, each a constant or an (arg[i]): DIM_B0 DIM_B1 DIM_M DIM_N DIM_K; strides in elements A_B0 A_B1
 * A_M A_K, B_B0 B_B1 B_K B_N, C_B0 C_B1 C_M (columns of C are adjacent); operand numbers A_IDX B_IDX C_IDX; switches
 * A_KANY (A_K may differ from 1) and B_PACKED; and the function
 *   epi(c, arg, tile, ld, b0, b1, m, n, rows, cols): write C[b0,b1,m..m+rows,n..n+cols] from the finished sums in tile.
 * Packed B is ceil(N/16) panels of K rows of 16 columns, zero past N. Any other B is packed by the unit that needs it.
 *
 * Order of the sum: one chain in k inside each block of KC, then the blocks in order. It depends on K alone, so every
 * choice of parameters, of units per thread and of thread count gives equal bits at one LEVEL (3 and 4 also agree). */

#define KC      512
#define TILE_LD (NP * K_PANEL)

/* Has every panel 16 columns, as far as the compiler can know? */
K_INLINE int K_FN(whole)(K_ARG) { return __builtin_constant_p(DIM_N) && DIM_N % K_PANEL == 0; }

/* One register tile: where its operands lie, what to fetch meanwhile, where the finished sums go. */
typedef struct K_FN(spot_t) {
    const k_call *c;
    const float *a, *b; /* first row of A, first panel of B */
    int64_t ak;         /* elements from one k to the next in A */
    const char *
        ahead; /* each k step fetches `lines` <= PF lines of 64 bytes, one panel apart, and moves on by `step` */
    int64_t step, lines;
    int64_t b0, b1, m, n, cols; /* of C; cols <= panels * 16 */
} K_FN(spot_t);

/* C[rows][cols] = epi(a[rows][k] * b[panels][k][16]). rows and panels are literals at every call, so that the compiler
 * keeps the sums in registers until a short epilogue has them. */
K_INLINE void K_FN(tile)(const int rows, const int panels, K_ARG, const K_FN(spot_t) * s)
{
    const int64_t depth = DIM_K, lda = A_M, ldp = depth * K_PANEL, ak = s->ak, step = s->step,
                  lines = s->lines;
    const float *a = s->a, *b = s->b;
    const char *ahead = s->ahead;
    K_ALIGN(64) float out[MR * TILE_LD];
    int64_t k0 = 0;
    do {
        const int64_t k1 = K_MIN(k0 + KC, depth);
#define ZERO_1(r, p, h) k_vec c_##r##_##p##_##h = {0};
#define ZERO_P(r, p)    K_VECS(ZERO_1, r, p)
#define ZERO(r)         K_CAT(K_PANELS_, NP)(ZERO_P, r)
        K_CAT(K_ROWS_, MR)(ZERO);
        K_UNROLL(KU)
        for (int64_t k = k0; k < k1; k++) {
#define LOAD_1(r, p, h) const k_vec b_##p##_##h = k_load(b + (p < panels ? p * ldp + h * K_VL : 0));
#define LOAD_P(r, p)    K_VECS(LOAD_1, r, p)
            K_CAT(K_PANELS_, NP)(LOAD_P, 0);
#define FMA_1(r, p, h)                                                                             \
    if (p < panels)                                                                                \
        c_##r##_##p##_##h += a_##r * b_##p##_##h;
#define FMA_P(r, p) K_VECS(FMA_1, r, p)
#define FMA(r)                                                                                     \
    if (r < rows) {                                                                                \
        const k_vec a_##r = k_splat(a[r * lda]);                                                   \
        K_CAT(K_PANELS_, NP)(FMA_P, r)                                                             \
    }
            K_CAT(K_ROWS_, MR)(FMA);
            for (int i = 0; i < PF; i++)
                K_PREFETCH_L2(ahead + (i < lines ? i * ldp * 4 : 0));
            ahead += step;
            a += ak;
            b += K_PANEL;
        }
#define STORE_1(r, p, h)                                                                           \
    if (r < rows && p < panels) {                                                                  \
        float *o = out + r * TILE_LD + p * K_PANEL + h * K_VL;                                     \
        k_store(o, k0 ? k_load(o) + c_##r##_##p##_##h : c_##r##_##p##_##h);                        \
    }
#define STORE_P(r, p) K_VECS(STORE_1, r, p)
#define STORE(r)      K_CAT(K_PANELS_, NP)(STORE_P, r)
        K_CAT(K_ROWS_, MR)(STORE);
        k0 = k1;
    } while (k0 < depth);
    if (K_FN(whole)(arg) || s->cols == panels * K_PANEL)
        K_FN(epi)(s->c, arg, out, TILE_LD, s->b0, s->b1, s->m, s->n, rows, panels * K_PANEL);
    else
        K_FN(epi)(s->c, arg, out, TILE_LD, s->b0, s->b1, s->m, s->n, rows, s->cols);
}

/* One work unit: rows [m0, m1) and panels [p0, p1) of batch (b0, b1). */
typedef struct K_FN(unit_t) {
    int64_t b0, b1, m0, m1, p0, p1;
} K_FN(unit_t);

K_INLINE int64_t K_FN(m_blocks)(K_ARG) { return MB ? K_CEIL_DIV(DIM_M, MB + !MB) : 1; }
K_INLINE int64_t K_FN(n_panels)(K_ARG) { return K_CEIL_DIV(DIM_N, K_PANEL); }
K_INLINE int64_t K_FN(n_blocks)(K_ARG) { return K_CEIL_DIV(K_FN(n_panels)(arg), NB); }

K_INLINE K_FN(unit_t) K_FN(unit)(K_ARG, int64_t u)
{
    const int64_t nm = K_FN(m_blocks)(arg), nn = K_FN(n_blocks)(arg), batch = u / (nm * nn),
                  i = u % (nm * nn);
    const int64_t m = ORDER ? i / nn : i % nm, n = ORDER ? i % nn : i / nm;
    return (K_FN(unit_t)){batch / DIM_B1, batch % DIM_B1,
                          DIM_M * m / nm, DIM_M * (m + 1) / nm,
                          n * NB,         K_MIN(n * NB + NB, K_FN(n_panels)(arg))};
}

/* Can this literal tile occur? Sizes known to the compiler rule most of them out. */
K_INLINE int K_FN(has_rows)(K_ARG, int64_t rows)
{
    const int64_t nm = K_FN(m_blocks)(arg);
    return !__builtin_constant_p(DIM_M) || k_splits_to(DIM_M / nm, MR, rows) ||
           k_splits_to(K_CEIL_DIV(DIM_M, nm), MR, rows);
}
K_INLINE int K_FN(has_panels)(K_ARG, int64_t panels)
{
    return !__builtin_constant_p(DIM_N) || panels == NP || panels == K_FN(n_panels)(arg) % NP;
}

K_INLINE void K_FN(tile_rows)(K_ARG, int64_t rows, const int panels, const K_FN(spot_t) * s)
{
    if (!K_FN(has_panels)(arg, panels))
        return;
#define CASE_ROWS(r)                                                                               \
    case r + 1:                                                                                    \
        if (K_FN(has_rows)(arg, r + 1))                                                            \
            K_FN(tile)(r + 1, panels, arg, s);                                                     \
        break;
    switch (rows) {
        K_CAT(K_ROWS_, MR)(CASE_ROWS)
    }
}

/* The literal tile for run-time rows in 1..MR and panels in 1..NP. A call of its own: inlined into the loops over tiles,
 * an epilogue's constants are hoisted out of them and take the registers of the accumulators (GELU: 115 instead of 240
 * GF/s). */
K_NOINLINE void K_FN(tiles)(K_ARG, int64_t rows, int64_t panels, const K_FN(spot_t) * s)
{
#define CASE_PANELS(r, q)                                                                          \
    case q + 1:                                                                                    \
        K_FN(tile_rows)(arg, rows, q + 1, s);                                                      \
        break;
    switch (panels) {
        K_CAT(K_PANELS_, NP)(CASE_PANELS, 0)
    }
}

#if !B_PACKED
/* dst[p1 - p0][K][16] = columns 16 p0 ... of b, zero past N */
static void K_FN(pack)(K_ARG, const float *b, int64_t p0, int64_t p1, float *restrict dst)
{
    const int64_t panel = DIM_K * K_PANEL, whole = K_MIN(p1, DIM_N / K_PANEL);
    b += p0 * K_PANEL * B_N;
    if (B_N == 1) { /* rows of b are contiguous: read them in the order in which they lie */
        for (int64_t k = 0; k < DIM_K; k++)
            for (int64_t p = 0; p < whole - p0; p++)
                for (int j = 0; j < K_PANEL; j++)
                    dst[p * panel + k * K_PANEL + j] = b[k * B_K + p * K_PANEL + j];
    } else {
        for (int64_t p = 0; p < whole - p0; p++) {
            const float *src = b + p * K_PANEL * B_N;
            if (B_K == 1) {
                k_transpose16(dst + p * panel, K_PANEL, src, B_N, DIM_K);
                continue;
            }
            for (int64_t k = 0; k < DIM_K; k++)
                for (int j = 0; j < K_PANEL; j++)
                    dst[p * panel + k * K_PANEL + j] = src[k * B_K + j * B_N];
        }
    }
    if (whole < p1) {
        const int64_t p = whole - p0;
        for (int64_t k = 0; k < DIM_K; k++)
            for (int64_t j = 0; j < K_PANEL; j++)
                dst[p * panel + k * K_PANEL + j] =
                    j < DIM_N % K_PANEL ? b[k * B_K + (p * K_PANEL + j) * B_N] : 0.0f;
    }
}
#endif

void K_FN(plan)(K_ARG, int64_t ways, k_plan *out)
{
    (void)ways;
    out->units =
        DIM_M > 0 && DIM_N > 0 ? DIM_B0 * DIM_B1 * K_FN(m_blocks)(arg) * K_FN(n_blocks)(arg) : 0;
    out->scratch_bytes = B_PACKED ? 0 : (int64_t)sizeof(float) * NB * K_PANEL * DIM_K;
}

void K_FN(run)(const k_call *c, int64_t begin, int64_t end)
{
    const int64_t *arg = c->arg;
    const float *a_all = c->buf[A_IDX], *b_all = c->buf[B_IDX];
    const int64_t panel = DIM_K * K_PANEL, ak = A_KANY ? A_K : 1;
#if B_PACKED
    const int64_t units = DIM_B0 * DIM_B1 * K_FN(m_blocks)(arg) * K_FN(n_blocks)(arg);
    const char *next = c->next ? c->next + (c->next_bytes / units * begin & -64)
                               : 0; /* my share of the next step */
#else
    int64_t held = -1; /* block of B that scratch holds, as batch * n_blocks + n */
#endif
    for (int64_t u = begin; u < end; u++) {
        const K_FN(unit_t) w = K_FN(unit)(arg, u);
        const float *a = a_all + w.b0 * A_B0 + w.b1 * A_B1, *b = b_all + w.b0 * B_B0 + w.b1 * B_B1;
#if B_PACKED
        b += w.p0 * panel;
        const char *then = next; /* what follows this unit's last group */
        if (u + 1 < end) {
            const K_FN(unit_t) v = K_FN(unit)(arg, u + 1);
            const float *first = b_all + v.b0 * B_B0 + v.b1 * B_B1 + v.p0 * panel;
            then = first == b ? 0 : (const char *)first;
        }
#else
        const int64_t block = (w.b0 * DIM_B1 + w.b1) * K_FN(n_blocks)(arg) + w.p0 / NB;
        if (block != held)
            K_FN(pack)(arg, b, w.p0, w.p1, c->scratch);
        held = block;
        b = c->scratch;
        const char *then = 0;
#endif
        /* Row tiles as equal as they can be: a tile of 1 row would keep one FMA chain per vector. */
        const int64_t tiles = K_CEIL_DIV(w.m1 - w.m0, MR), base = (w.m1 - w.m0) / tiles,
                      more = (w.m1 - w.m0) % tiles;
        for (int64_t p = w.p0; p < w.p1; p += NP, b += NP * panel) {
            const char *ahead = !B_PACKED       ? 0
                                : p + NP < w.p1 ? (const char *)(b + NP * panel)
                                                : then;
            const int64_t n = p * K_PANEL, cols = K_MIN(DIM_N - n, TILE_LD);
            for (int64_t t = 0, m = w.m0, rows; t < tiles; t++, m += rows) {
                rows = base + (t < more);
                /* Every tile fetches its part of the next group, until all is on its way; few tiles fetch faster. */
                const int lines = K_MIN(K_MAX(PF, 1), K_CEIL_DIV(NP, tiles));
                const int64_t step = ahead && t * lines < NP ? 64 : 0;
                const K_FN(spot_t) spot = {c,
                                           a + m * A_M,
                                           b,
                                           ak,
                                           step ? ahead + t * lines * panel * 4 : (const char *)b,
                                           step,
                                           lines,
                                           w.b0,
                                           w.b1,
                                           m,
                                           n,
                                           cols};
                K_FN(tiles)(arg, rows, K_MIN(w.p1 - p, NP), &spot);
            }
        }
    }
}
