/* @kernel  attention
 * @what    out[b,h,i,:] = sum_j softmax_j(SCALE q[b,h,i,:].k[b,g,j,:] + mask[b,h,i,j]) v[b,g,j,:], g = h HK / H; fp32
 * @param   NP 1 {1,2,3,4,6} panels of 16 queries of a work unit, one lane per query
 * @param   KR 3 {1,2,3,4,6,8,12} keys of a score tile
 * @param   QR 3 {1,2,3,4,6,8,12,14} queries of a value tile
 * @param   VP 1 {1,2,3,4} panels of 16 value columns of a value tile
 * @param   KU 1 {1,2,4} steps per loop turn
 * @require KR * NP * (LEVEL == 4 ? 1 : LEVEL == 3 ? 2 : 4) <= CLIFF * 7 / 8
 * @require QR * VP * (LEVEL == 4 ? 1 : LEVEL == 3 ? 2 : 4) <= CLIFF * 7 / 8
 * @seed    LEVEL=4 SQ<=16 NP=1 KR=8 QR=8 VP=2 KU=1
 * @seed    LEVEL=4 NP=4 KR=6 QR=12 VP=2 KU=1
 * @seed    LEVEL=4 NP=4 KR=6 QR=6 VP=4 KU=1
 * @seed    LEVEL=4 NP=3 KR=8 QR=14 VP=2 KU=2
 * @seed    LEVEL=4 SK>L1/256-D NP=2 KR=12 QR=12 VP=2 KU=1
 * @seed    LEVEL=4 SK>L2/512-D NP=1 KR=12 QR=14 VP=2 KU=1
 * @seed    LEVEL=3 NP=1 KR=6 QR=6 VP=1 KU=4
 * @seed    LEVEL=3 NP=1 KR=6 QR=2 VP=3 KU=4
 * @seed    LEVEL=3 NP=1 KR=6 QR=3 VP=2 KU=4
 * @seed    LEVEL=2 NP=1 KR=3 QR=3 VP=1 KU=1
 * @tol     1e-6 norm-wise; |error| <= (D + 12 + min(Sk, 512) + Sk / 512) 2^-24 max |v| for scores of order one
 * @source  own work
 *
 * The renderer defines, each a constant or an (arg[i]): DIM_B DIM_H DIM_HK DIM_SQ DIM_SK DIM_D DIM_DV; strides in
 * elements Q_B Q_H Q_S Q_D, K_B K_H K_S K_D, V_B V_H V_S V_D, O_B O_H O_S O_D, and with HAS_MASK M_B M_H M_Q M_K;
 * operand numbers Q_IDX K_IDX V_IDX O_IDX M_IDX; SCALE; the switches HAS_MASK, CAUSAL (key j counts for query i when
 * j <= i + Sk - Sq; others are never read), NAN_ZERO (probabilities that are NaN become 0) and, per operand, Q_DANY
 * K_DANY V_DANY O_DANY (the inner stride may differ from 1).
 *
 * A unit is one head and a block of 16 NP queries. The block is transposed once, so that 16 queries fill a vector;
 * scores lie as s[key][query]. Maximum, exp and sum then run down the keys without crossing lanes, and k and v are
 * read where they lie. No online softmax: scratch holds Sk rows of the block.
 *
 * Order of sums: q.k one chain in d; the softmax sum per query in four chains (key mod 4) combined as (0+1)+(2+3), cut
 * every 512 keys; p.v one chain in j cut every 512 keys; blocks added in order; one division per query. No order
 * depends on parameters, units or threads, so all choices give equal bits at one LEVEL. */

#define CUT   512
#define WIDTH (NP * K_PANEL)
#define V_LD  (VP * K_PANEL)

#define ZERO_1(r, p, h) k_vec c_##r##_##p##_##h = {0};
#define ZERO_P(r, p)    K_VECS(ZERO_1, r, p)
#define LOAD_1(r, p, h)                                                                            \
    const k_vec b_##p##_##h = k_load(b + (p < panels ? p * K_PANEL + h * K_VL : 0));
#define LOAD_P(r, p) K_VECS(LOAD_1, r, p)
#define FMA_1(r, p, h)                                                                             \
    if (p < panels)                                                                                \
        c_##r##_##p##_##h += a_##r * b_##p##_##h;
#define FMA_P(r, p) K_VECS(FMA_1, r, p)

/* s[r][lane] = SCALE sum_d key[r][d] query[d][lane] + mask, and top[lane] = max(top, s). The mask is mask[r * ldm] for
 * every lane, or what s holds already when mask_in_s. rows and panels are literals at every call. */
K_INLINE void K_FN(score)(const int rows, const int panels, const float *a, int64_t lda,
                          const float *b, K_ARG, const float *mask, int64_t ldm, int mask_in_s,
                          float *s, float *top)
{
    const int64_t ldb = panels * K_PANEL;
#define ZERO_S(r) K_CAT(K_PANELS_, NP)(ZERO_P, r)
    K_CAT(K_ROWS_, KR)(ZERO_S);
    K_UNROLL(KU)
    for (int64_t d = 0; d < DIM_D; d++, a += K_DANY ? K_D : 1, b += ldb) {
        K_CAT(K_PANELS_, NP)(LOAD_P, 0);
#define FMA_S(r)                                                                                   \
    if (r < rows) {                                                                                \
        const k_vec a_##r = k_splat(a[r * lda]);                                                   \
        K_CAT(K_PANELS_, NP)(FMA_P, r)                                                             \
    }
        K_CAT(K_ROWS_, KR)(FMA_S);
    }
#define TOP_1(r, p, h) k_vec t_##p##_##h = k_load(top + p * K_PANEL + h * K_VL);
#define TOP_P(r, p)    K_VECS(TOP_1, r, p)
    K_CAT(K_PANELS_, NP)(TOP_P, 0);
#define END_1(r, p, h)                                                                             \
    if (p < panels) {                                                                              \
        float *to = s + r * ldb + p * K_PANEL + h * K_VL;                                          \
        const k_vec v =                                                                            \
            HAS_MASK ? c_##r##_##p##_##h * k_splat(SCALE) + (mask_in_s ? k_load(to) : m_##r)       \
                     : c_##r##_##p##_##h * k_splat(SCALE);                                         \
        k_store(to, v);                                                                            \
        t_##p##_##h = k_vmax(v, t_##p##_##h);                                                      \
    }
#define END_P(r, p) K_VECS(END_1, r, p)
#define END_S(r)                                                                                   \
    if (r < rows) {                                                                                \
        const k_vec m_##r = k_splat(HAS_MASK && !mask_in_s ? mask[r * ldm] : 0.0f);                \
        (void)m_##r;                                                                               \
        K_CAT(K_PANELS_, NP)(END_P, r)                                                             \
    }
    K_CAT(K_ROWS_, KR)(END_S);
#define KEEP_1(r, p, h)                                                                            \
    if (p < panels)                                                                                \
        k_store(top + p * K_PANEL + h * K_VL, t_##p##_##h);
#define KEEP_P(r, p) K_VECS(KEEP_1, r, p)
    K_CAT(K_PANELS_, NP)(KEEP_P, 0);
    (void)mask, (void)ldm, (void)mask_in_s;
}

/* Can a block of queries have this many panels, split into value tiles of this many rows? Can keys be split so? Sizes
 * known to the compiler rule most literal tiles out. */
K_INLINE int K_FN(has_queries)(K_ARG, int64_t panels, int64_t rows)
{
    const int64_t rest = DIM_SQ % WIDTH;
    return !__builtin_constant_p(DIM_SQ) ||
           (rest != DIM_SQ && (!panels || panels == NP) &&
            (!rows || k_splits_to(WIDTH, QR, rows))) ||
           (rest && (!panels || panels == K_CEIL_DIV(rest, K_PANEL)) &&
            (!rows || k_splits_to(rest, QR, rows)));
}
K_INLINE int K_FN(has_keys)(K_ARG, int64_t rows)
{
    return CAUSAL || !__builtin_constant_p(DIM_SK) || k_splits_to(DIM_SK, KR, rows);
}
K_INLINE int K_FN(has_values)(K_ARG, int64_t panels)
{
    return !__builtin_constant_p(DIM_DV) || (panels == VP && DIM_DV > (VP - 1) * K_PANEL) ||
           panels == K_CEIL_DIV(DIM_DV, K_PANEL) % VP;
}

/* The literal score tile for run-time rows in 1..KR and panels in 1..NP. */
K_NOINLINE void K_FN(scores)(int64_t rows, int64_t panels, const float *a, int64_t lda,
                             const float *b, K_ARG, const float *mask, int64_t ldm, int mask_in_s,
                             float *s, float *top)
{
#define CASE_S(r)                                                                                  \
    case r + 1:                                                                                    \
        if (!K_FN(has_keys)(arg, r + 1) || !K_FN(has_queries)(arg, nq, 0))                         \
            break;                                                                                 \
        K_FN(score)(r + 1, nq, a, lda, b, arg, mask, ldm, mask_in_s, s, top);                      \
        break;
#define CASE_N(x, p)                                                                               \
    case p + 1: {                                                                                  \
        enum { nq = p + 1 };                                                                       \
        switch (rows) {                                                                            \
            K_CAT(K_ROWS_, KR)(CASE_S)                                                             \
        }                                                                                          \
    } break;
    switch (panels) {
        K_CAT(K_PANELS_, NP)(CASE_N, 0)
    }
}

/* out[rows][V_LD] = sum over keys j of p[j][row] * v[j][:]. Row r sees keys j < seen + r (seen >= keys: all). */
K_INLINE void K_FN(value)(const int rows, const int panels, const float *a, int64_t lda,
                          const float *b, int64_t ldb, int64_t keys, int64_t seen, float *out)
{
    int64_t j0 = 0;
    do {
        const int64_t j1 = K_MIN(j0 + CUT, keys), common = CAUSAL ? K_MIN(j1, seen) : j1;
        int64_t j = j0;
#define ZERO_V(r) K_CAT(K_PANELS_, VP)(ZERO_P, r)
        K_CAT(K_ROWS_, QR)(ZERO_V);
        K_UNROLL(KU)
        for (; j < common; j++, a += lda, b += ldb) {
            K_CAT(K_PANELS_, VP)(LOAD_P, 0);
#define FMA_V(r)                                                                                   \
    if (r < rows) {                                                                                \
        const k_vec a_##r = k_splat(a[r]);                                                         \
        K_CAT(K_PANELS_, VP)(FMA_P, r)                                                             \
    }
            K_CAT(K_ROWS_, QR)(FMA_V);
        }
#if CAUSAL
        for (; j < j1; j++, a += lda, b += ldb) {
            K_CAT(K_PANELS_, VP)(LOAD_P, 0);
#define DIAG_V(r)                                                                                  \
    if (r < rows && j < seen + r) {                                                                \
        const k_vec a_##r = k_splat(a[r]);                                                         \
        K_CAT(K_PANELS_, VP)(FMA_P, r)                                                             \
    }
            K_CAT(K_ROWS_, QR)(DIAG_V);
        }
#endif
#define STORE_1(r, p, h)                                                                           \
    if (r < rows && p < panels) {                                                                  \
        float *o = out + r * V_LD + p * K_PANEL + h * K_VL;                                        \
        k_store(o, j0 ? k_load(o) + c_##r##_##p##_##h : c_##r##_##p##_##h);                        \
    }
#define STORE_P(r, p) K_VECS(STORE_1, r, p)
#define STORE_V(r)    K_CAT(K_PANELS_, VP)(STORE_P, r)
        K_CAT(K_ROWS_, QR)(STORE_V);
        j0 = j1;
    } while (j0 < keys);
    (void)seen;
}

/* The literal value tile for run-time rows in 1..QR and panels in 1..VP. */
K_NOINLINE void K_FN(values)(K_ARG, int64_t rows, int64_t panels, const float *a, int64_t lda,
                             const float *b, int64_t ldb, int64_t keys, int64_t seen, float *out)
{
#define CASE_V(r)                                                                                  \
    case r + 1:                                                                                    \
        if (K_FN(has_queries)(arg, 0, r + 1) && K_FN(has_values)(arg, nv))                         \
            K_FN(value)(r + 1, nv, a, lda, b, ldb, keys, seen, out);                               \
        break;
#define CASE_P(x, p)                                                                               \
    case p + 1: {                                                                                  \
        enum { nv = p + 1 };                                                                       \
        switch (rows) {                                                                            \
            K_CAT(K_ROWS_, QR)(CASE_V)                                                             \
        }                                                                                          \
    } break;
    switch (panels) {
        K_CAT(K_PANELS_, VP)(CASE_P, 0)
    }
}

/* s[keys][width] becomes exp(s - top), sum[lane] its sum. */
K_NOINLINE void K_FN(softmax)(float *restrict s, int64_t keys, int64_t width,
                              const float *restrict top, float *restrict sum)
{
    float part[4 * WIDTH];
    for (int64_t i = 0; i < width; i++)
        sum[i] = 0.0f;
    for (int64_t j = 0; j < keys;) {
        const int64_t cut = K_MIN(j + CUT, keys);
        for (int64_t i = 0; i < 4 * WIDTH; i++)
            part[i] = 0.0f;
        for (; j < cut; j++) {
            float *restrict acc = part + (j & 3) * WIDTH;
            for (int64_t i0 = 0; i0 < width; i0 += K_PANEL, s += K_PANEL)
                for (int i = 0; i < K_PANEL; i++) {
                    s[i] = k_exp(s[i] - top[i0 + i]);
                    acc[i0 + i] += s[i];
                }
        }
        for (int64_t i = 0; i < width; i++)
            sum[i] += (part[i] + part[WIDTH + i]) + (part[2 * WIDTH + i] + part[3 * WIDTH + i]);
    }
}

K_INLINE int64_t K_FN(blocks)(K_ARG) { return K_CEIL_DIV(DIM_SQ, WIDTH); }
K_INLINE int64_t K_FN(v_panels)(K_ARG) { return K_CEIL_DIV(DIM_DV, K_PANEL); }
/* Value rows that cannot be read 16 columns at a time are copied to scratch. */
K_INLINE int K_FN(v_copied)(K_ARG) { return DIM_DV % K_PANEL != 0 || (V_DANY && V_D != 1); }

void K_FN(plan)(K_ARG, int64_t ways, k_plan *out)
{
    (void)ways;
    out->units = DIM_DV > 0 ? DIM_B * DIM_H * K_FN(blocks)(arg) : 0;
    out->scratch_bytes = (int64_t)sizeof(float) *
                         ((DIM_D + DIM_SK) * WIDTH +
                          (K_FN(v_copied)(arg) ? DIM_SK * K_FN(v_panels)(arg) * K_PANEL : 0));
}

void K_FN(run)(const k_call *c, int64_t begin, int64_t end)
{
    const int64_t *arg = c->arg;
    const int64_t blocks = K_FN(blocks)(arg), vp = K_FN(v_panels)(arg);
    float *query = c->scratch, *s = query + DIM_D * WIDTH, *v_copy = s + DIM_SK * WIDTH;
    K_ALIGN(64) float tile[QR * V_LD], top[WIDTH], sum[WIDTH], unused[WIDTH];
    int64_t held = -1; /* b * HK + g of the values in v_copy */
    for (int64_t u = begin; u < end; u++) {
        const int64_t q0 = u % blocks * WIDTH, h = u / blocks % DIM_H, n_b = u / blocks / DIM_H;
        const int64_t g = h * DIM_HK / DIM_H, n = K_MIN(DIM_SQ - q0, WIDTH);
        const int64_t panels = K_CEIL_DIV(n, K_PANEL), width = panels * K_PANEL;
        const float *q = (const float *)c->buf[Q_IDX] + n_b * Q_B + h * Q_H + q0 * Q_S;
        const float *k = (const float *)c->buf[K_IDX] + n_b * K_B + g * K_H;
        const float *v = (const float *)c->buf[V_IDX] + n_b * V_B + g * V_H;
        float *o = (float *)c->buf[O_IDX] + n_b * O_B + h * O_H + q0 * O_S;

        /* Keys [0, all) are seen by every query of the block, keys [all, keys) by some. */
        const int64_t first = q0 + DIM_SK - DIM_SQ + 1; /* keys seen by query q0 */
        const int64_t all = CAUSAL ? K_MAX(0, K_MIN(first, DIM_SK)) : DIM_SK;
        const int64_t keys = CAUSAL ? K_MAX(0, K_MIN(first + n - 1, DIM_SK)) : DIM_SK;

        /* query[d][lane], zero in lanes past n */
        for (int64_t i = 0; i < width; i += K_PANEL) {
            if (n - i >= K_PANEL && !(Q_DANY && Q_D != 1)) {
                k_transpose16(query + i, width, q + i * Q_S, Q_S, DIM_D);
            } else {
                for (int64_t d = 0; d < DIM_D; d++)
                    for (int64_t l = i; l < i + K_PANEL; l++)
                        query[d * width + l] = l < n ? q[l * Q_S + d * Q_D] : 0.0f;
            }
        }
        for (int64_t i = 0; i < width; i++)
            top[i] = unused[i] = -K_INF;

        const float *mask = 0;
        int64_t ldm = 0;
        int mask_in_s = 0;
#if HAS_MASK
        mask = (const float *)c->buf[M_IDX] + n_b * M_B + h * M_H + q0 * M_Q;
        ldm = M_K;
        mask_in_s = M_Q != 0;
        for (int64_t i = 0; mask_in_s && i < width; i += K_PANEL) {
            if (n - i >= K_PANEL && M_K == 1) {
                k_transpose16(s + i, width, mask + i * M_Q, M_Q, keys);
            } else {
                for (int64_t j = 0; j < keys; j++)
                    for (int64_t l = i; l < i + K_PANEL; l++)
                        s[j * width + l] = l < n ? mask[l * M_Q + j * M_K] : 0.0f;
            }
        }
#endif
        /* Score tiles as equal as they can be, apart for the keys that all queries see and the rest. */
        for (int part = 0; part < (CAUSAL ? 2 : 1); part++) {
            const int64_t from = part ? all : 0, count = (part ? keys : all) - from;
            const int64_t tiles = K_CEIL_DIV(count, KR);
            for (int64_t t = 0, j = from, rows; t < tiles; t++, j += rows) {
                rows = count / tiles + (t < count % tiles);
                K_FN(scores)
                (rows, panels, k + j * K_S, K_S, query, arg, mask ? mask + j * ldm : 0, ldm,
                 mask_in_s, s + j * width, part ? unused : top);
            }
        }
        for (int64_t j = all; j < keys; j++)
            for (int64_t l = 0; l < width; l++) {
                const float x = j < first + l ? s[j * width + l] : -K_INF;
                s[j * width + l] = x;
                top[l] = x > top[l] ? x : top[l];
            }

        K_FN(softmax)(s, keys, width, top, sum);
        for (int64_t l = 0; l < n; l++) {
            if (DIM_SK == 0)
                sum[l] = 1.0f;
            if (NAN_ZERO && !(sum[l] > 0.0f)) {
                for (int64_t j = 0; j < keys; j++)
                    s[j * width + l] = 0.0f;
                sum[l] = 1.0f;
            }
            sum[l] = 1.0f / sum[l];
        }

        int64_t ldv = V_S;
        if (K_FN(v_copied)(arg)) {
            if (held != n_b * DIM_HK + g) {
                for (int64_t j = 0; j < DIM_SK; j++)
                    for (int64_t d = 0; d < vp * K_PANEL; d++)
                        v_copy[j * vp * K_PANEL + d] = d < DIM_DV ? v[j * V_S + d * V_D] : 0.0f;
                held = n_b * DIM_HK + g;
            }
            v = v_copy;
            ldv = vp * K_PANEL;
        }
        const int64_t tiles = K_CEIL_DIV(n, QR);
        for (int64_t p = 0; p < vp; p += VP) {
            const int64_t cols = K_MIN(V_LD, DIM_DV - p * K_PANEL);
            for (int64_t t = 0, i = 0, rows; t < tiles; t++, i += rows) {
                rows = n / tiles + (t < n % tiles);
                const int64_t seen = CAUSAL ? first + i : keys;
                K_FN(values)
                (arg, rows, K_MIN(vp - p, VP), s + i, width, v + p * K_PANEL, ldv,
                 CAUSAL ? K_MAX(0, K_MIN(keys, seen + rows - 1)) : keys, seen, tile);
                for (int64_t r = 0; r < rows; r++) {
                    float *restrict to = o + (i + r) * O_S + p * K_PANEL * (O_DANY ? O_D : 1);
                    const float x = sum[i + r];
                    for (int64_t d = 0; d < cols; d++)
                        to[d * (O_DANY ? O_D : 1)] = tile[r * V_LD + d] * x;
                }
            }
        }
    }
}
