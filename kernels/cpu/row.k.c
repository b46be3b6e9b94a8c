/* @kernel  row
 * @what    y[o..., :] = epi(f(pro[o..., :])) over rows of C floats, where f is one of
 *            softmax    e / sum(e), e = exp(x - max x)
 *            layernorm  (x - mean) / sqrt(mean((x - mean)^2) + EPS) * gamma + beta
 *            rmsnorm    x / sqrt(mean(x^2) + EPS) * gamma
 * @param   WORK 4096 {1024,4096,16384} elements of a work unit, about
 * @tol     1e-6 norm-wise; f32 accumulators: |error| <= (8 + 32 + C / 1024) 2^-24 relative to the terms of each sum
 * @source  own work
 *
 * The renderer defines DIM_C; SOFTMAX and CENTER (layernorm; neither: rmsnorm); EPS; HAS_GAMMA, HAS_BETA with GAMMA_IDX,
 * GAMMA_C (stride), BETA_IDX, BETA_C; OPERANDS, and the functions
 *   outer(arg, nest), line(arg, nest)                 the axes o... and the row
 *   pro(c, at, step, n, buf)                          a row of prologue values -> pointer to them
 *   epi(c, at, step, n, x), epi_to(c, at, step, buf)  a row of outputs from x; where x is best put
 *
 * Two passes for layernorm, since sum(x^2) - sum(x)^2 / C loses digits when the mean is large; the second also sums what
 * rounding left of the mean, which EPS would magnify in rows of nearly equal values. Sums run in 32 lanes
 * (element k in lane k mod 32), cut every 1024 elements and joined by halves: the order depends on C alone, so any split gives equal bits. NaN anywhere in
 * a row makes all of it NaN, as the formulas do. */

#define LANES 32
#define BLOCK (LANES * 32)

K_INLINE void K_FN(clear)(float *lane, float v)
{
    for (int l = 0; l < LANES; l++) lane[l] = v;
}

K_INLINE float K_FN(sum)(const float *restrict x, int64_t n)
{
    float lane[LANES], total[LANES];
    K_FN(clear)(total, 0.0f);
    for (int64_t k = 0; k < n;) {
        const int64_t cut = K_MIN(n, k + BLOCK);
        K_FN(clear)(lane, 0.0f);
        for (; k + LANES <= cut; k += LANES)
            for (int l = 0; l < LANES; l++) lane[l] += x[k + l];
        for (int l = 0; k < cut; k++, l++) lane[l] += x[k];
        for (int l = 0; l < LANES; l++) total[l] += lane[l];
    }
    return k_join32(total);
}

#if SOFTMAX
K_INLINE float K_FN(top)(const float *restrict x, int64_t n)
{
    float lane[LANES];
    int64_t k = 0;
    K_FN(clear)(lane, -K_INF);
    for (; k + LANES <= n; k += LANES)
        for (int l = 0; l < LANES; l++) lane[l] = k_fmax(lane[l], x[k + l]);
    for (int l = 0; k < n; k++, l++) lane[l] = k_fmax(lane[l], x[k]);
    for (int h = LANES / 2; h > 0; h /= 2)
        for (int l = 0; l < h; l++) lane[l] = k_fmax(lane[l], lane[h + l]);
    return lane[0];
}

K_INLINE void K_FN(apply)(const k_call *c, const float *x, float *y, const float *gamma, const float *beta)
{
    const int64_t *arg = c->arg, n = DIM_C;
    const float top = K_FN(top)(x, n);
    K_VECTOR_LOOP
    for (int64_t j = 0; j < n; j++) y[j] = k_exp(x[j] - top);
    const float scale = 1.0f / K_FN(sum)(y, n);
    K_VECTOR_LOOP
    for (int64_t j = 0; j < n; j++) y[j] *= scale;
    (void)arg, (void)gamma, (void)beta;
}
#else
/* sum (x - mean)^2, and into *rest sum (x - mean): what rounding left of the mean */
K_INLINE float K_FN(squares)(const float *restrict x, int64_t n, float mean, float *rest)
{
    float lane[LANES], total[LANES], first[LANES];
    K_FN(clear)(total, 0.0f);
    K_FN(clear)(first, 0.0f);
    for (int64_t k = 0; k < n;) {
        const int64_t cut = K_MIN(n, k + BLOCK);
        K_FN(clear)(lane, 0.0f);
        for (; k + LANES <= cut; k += LANES)
            for (int l = 0; l < LANES; l++) {
                const float d = x[k + l] - mean;
                first[l] += d;
                lane[l] = k_fma(d, d, lane[l]);
            }
        for (int l = 0; k < cut; k++, l++) {
            const float d = x[k] - mean;
            first[l] += d;
            lane[l] = k_fma(d, d, lane[l]);
        }
        for (int l = 0; l < LANES; l++) total[l] += lane[l];
    }
    *rest = CENTER ? k_join32(first) : 0.0f;
    return k_join32(total);
}

K_INLINE void K_FN(apply)(const k_call *c, const float *x, float *y, const float *gamma, const float *beta)
{
    const int64_t *arg = c->arg, n = DIM_C;
    float rest;
    const float mean = CENTER ? K_FN(sum)(x, n) / (float)n : 0.0f, squares = K_FN(squares)(x, n, mean, &rest);
    const float shift = rest / (float)n, scale = 1.0f / k_sqrt((squares - rest * shift) / (float)n + EPS);
    K_VECTOR_LOOP
    for (int64_t j = 0; j < n; j++) {
        float v = ((x[j] - mean) - shift) * scale;
        if (HAS_GAMMA) v *= gamma[j];
        y[j] = HAS_BETA ? v + beta[j] : v;
    }
    (void)arg, (void)gamma, (void)beta;
}
#endif

K_INLINE int64_t K_FN(share)(const int64_t *arg) { return K_MAX(1, WORK / (DIM_C + 1)); }
K_INLINE int64_t K_FN(pitch)(const int64_t *arg) { return K_CEIL_DIV(DIM_C, 16) * 16; }

void K_FN(plan)(const int64_t *arg, int64_t ways, k_plan *out)
{
    k_nest o;
    (void)ways;
    K_FN(outer)(arg, &o);
    out->units = DIM_C > 0 ? K_CEIL_DIV(k_nest_elems(&o), K_FN(share)(arg)) : 0;
    out->scratch_bytes = (2 + HAS_GAMMA + HAS_BETA) * K_FN(pitch)(arg) * (int64_t)sizeof(float);
}

void K_FN(run)(const k_call *c, int64_t begin, int64_t end)
{
    const int64_t *arg = c->arg, n = DIM_C, pitch = K_FN(pitch)(arg);
    k_nest o, row;
    int64_t step[OPERANDS];
    const float *gamma = 0, *beta = 0;
    float *x_buf = c->scratch, *y_buf = x_buf + pitch;
    K_FN(outer)(arg, &o);
    K_FN(line)(arg, &row);
    k_nest_fold(&o, 0);
    for (int i = 0; i < OPERANDS; i++) step[i] = row.stride[i][0];
#if HAS_GAMMA
    gamma = k_stage_4(c->buf[GAMMA_IDX], GAMMA_C, n, y_buf + pitch);
#endif
#if HAS_BETA
    beta = k_stage_4(c->buf[BETA_IDX], BETA_C, n, y_buf + 2 * pitch);
#endif
    const int64_t share = K_FN(share)(arg), stop = K_MIN(end * share, k_nest_elems(&o));
    k_nest_seek(&o, begin * share);
    for (int64_t i = begin * share; i < stop; i++) {
        const float *x = K_FN(pro)(c, o.at, step, n, x_buf);
        float *y = K_FN(epi_to)(c, o.at, step, y_buf);
        K_FN(apply)(c, x, y, gamma, beta);
        K_FN(epi)(c, o.at, step, n, y);
        k_nest_step(&o, 1);
    }
}
