/* @kernel  cumsum
 * @what    y[o, a, i] = sum of x[o, a', i] over a' <= a (EXCLUSIVE: a' < a; REVERSE: >= and >); f32, i64 or i32
 * @param   STRIP 64 {16,64} columns i of a work unit
 * @tol     1e-6 norm-wise; f32 sums in double: |error| <= 2^-24 |y| + A 2^-53 sum |x|
 * @source  own work
 *
 * The renderer defines T, SUM (double, or the unsigned type: integers wrap), DIM_O DIM_A DIM_I, strides X_O X_A X_I,
 * Y_O Y_A Y_I, X_IDX, Y_IDX, EXCLUSIVE, REVERSE. The order is that of the axis. */

void K_FN(plan)(const int64_t *arg, int64_t ways, k_plan *out)
{
    (void)ways;
    out->units = DIM_A > 0 ? DIM_O * K_CEIL_DIV(DIM_I, STRIP) : 0;
    out->scratch_bytes = 0;
}

void K_FN(run)(const k_call *c, int64_t begin, int64_t end)
{
    const int64_t *arg = c->arg, strips = K_CEIL_DIV(DIM_I, STRIP);
    for (int64_t u = begin; u < end; u++) {
        const int64_t o = u / strips, i = u % strips * STRIP, n = K_MIN(DIM_I - i, STRIP);
        const T *x = (const T *)c->buf[X_IDX] + o * X_O + i * X_I;
        T *y = (T *)c->buf[Y_IDX] + o * Y_O + i * Y_I;
        SUM sum[STRIP];
        for (int64_t j = 0; j < n; j++) sum[j] = 0;
        for (int64_t k = 0; k < DIM_A; k++) {
            const int64_t a = REVERSE ? DIM_A - 1 - k : k;
            for (int64_t j = 0; j < n; j++) {
                const SUM before = sum[j];
                sum[j] += (SUM)x[a * X_A + j * X_I];
                y[a * Y_A + j * Y_I] = (T)(EXCLUSIVE ? before : sum[j]);
            }
        }
    }
}
