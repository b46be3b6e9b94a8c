/* @kernel  topk
 * @what    y[o, :, i] = indices (i64) of the K largest or smallest of x[o, :, i], best first; of equal values the lower
 *          index is better; NaN counts as largest; T is f32, i64 or i32
 * @tol     exact
 * @source  own work
 *
 * The renderer defines T, LARGEST, DIM_O DIM_A DIM_I DIM_K, strides X_O X_A X_I, Y_O Y_A Y_I (Y_A along K), X_IDX, Y_IDX.
 *
 * A heap of the K best so far, worst on top: A log K comparisons, and few where values come in random order. "Better" is a
 * total order, so the answer does not depend on how it is found. */

/* Is element a better than b? */
K_INLINE int K_FN(better)(const T *x, int64_t step, int64_t a, int64_t b)
{
    const T p = x[a * step], q = x[b * step];
    const int above = p > q || (p != p && q == q), below = p < q || (q != q && p == p);
    return above == below ? a < b : LARGEST ? above : below;
}

/* Let the element at `at` of a heap of n sink to its place. */
K_INLINE void K_FN(sink)(const T *x, int64_t step, int64_t *heap, int64_t n, int64_t at)
{
    const int64_t e = heap[at];
    for (int64_t child; (child = 2 * at + 1) < n; at = child) {
        if (child + 1 < n && K_FN(better)(x, step, heap[child], heap[child + 1])) child++;
        if (!K_FN(better)(x, step, e, heap[child])) break;
        heap[at] = heap[child];
    }
    heap[at] = e;
}

void K_FN(plan)(const int64_t *arg, int64_t ways, k_plan *out)
{
    (void)ways;
    out->units = DIM_K > 0 ? DIM_O * DIM_I : 0;
    out->scratch_bytes = DIM_K * (int64_t)sizeof(int64_t);
}

void K_FN(run)(const k_call *c, int64_t begin, int64_t end)
{
    const int64_t *arg = c->arg, k = DIM_K;
    int64_t *heap = c->scratch;
    for (int64_t u = begin; u < end; u++) {
        const int64_t o = u / DIM_I, i = u % DIM_I;
        const T *x = (const T *)c->buf[X_IDX] + o * X_O + i * X_I;
        int64_t *y = (int64_t *)c->buf[Y_IDX] + o * Y_O + i * Y_I;
        for (int64_t a = 0; a < k; a++) heap[a] = a;
        for (int64_t a = k / 2; a-- > 0;) K_FN(sink)(x, X_A, heap, k, a);
        for (int64_t a = k; a < DIM_A; a++)
            if (K_FN(better)(x, X_A, a, heap[0])) {
                heap[0] = a;
                K_FN(sink)(x, X_A, heap, k, 0);
            }
        for (int64_t n = k; n > 0; n--) { /* the worst goes last */
            y[(n - 1) * Y_A] = heap[0];
            heap[0] = heap[n - 1];
            K_FN(sink)(x, X_A, heap, n - 1, 0);
        }
    }
}
