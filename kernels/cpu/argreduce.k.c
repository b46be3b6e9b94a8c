/* @kernel  argreduce
 * @what    y[o...] = epi(index of the largest or smallest of pro[o..., r]) as i64; NaN counts as largest; T is f32, i64 or i32
 * @param   WORK 16384 {4096,16384,65536} elements of a work unit, about
 * @tol     exact
 * @source  own work
 *
 * The renderer defines T, LARGEST, LAST (of equal values the last index, else the first), OPERANDS, OUTER_FIXED, INNER_FIXED
 * and outer, inner, row, epi, epi_to as for kernels/cpu/reduce.k.c; inner has one axis. */

#define STRIP 64
#define PIECE 512

/* Does b, found later, replace a? */
K_INLINE int K_FN(replaces)(T a, T b)
{
    const int equal = a == b || (a != a && b != b);
    const int above = b > a || (b != b && a == a), below = b < a || (a != a && b == b);
    return (LARGEST ? above : below) | (LAST && equal);
}

K_INLINE void K_FN(setup)(const int64_t *arg, k_nest *o, k_nest *r)
{
    K_FN(outer)(arg, o);
    K_FN(inner)(arg, r);
    k_nest_fold(o, OUTER_FIXED);
}

K_INLINE int64_t K_FN(share)(const k_nest *r) { return K_MAX(1, K_MIN(STRIP, WORK / (r->dim[0] + 1))); }

static int64_t K_FN(one)(const k_call *c, const int64_t *base, const k_nest *r)
{
    K_ALIGN(64) T buf[PIECE];
    int64_t at[OPERANDS], step[OPERANDS], best = 0;
    T value = 0;
    for (int i = 0; i < OPERANDS; i++) step[i] = r->stride[i][0];
    for (int64_t k = 0, n; k < r->dim[0]; k += n) {
        n = K_MIN(r->dim[0] - k, PIECE);
        for (int i = 0; i < OPERANDS; i++) at[i] = base[i] + k * step[i];
        const T *x = K_FN(row)(c, at, step, n, buf);
        if (k == 0) value = x[0];
        for (int64_t j = 0; j < n; j++)
            if (K_FN(replaces)(value, x[j])) {
                value = x[j];
                best = k + j;
            }
    }
    return best;
}

void K_FN(plan)(const int64_t *arg, int64_t ways, k_plan *out)
{
    k_nest o, r;
    (void)ways;
    K_FN(setup)(arg, &o, &r);
    out->units = K_CEIL_DIV(k_nest_elems(&o), K_FN(share)(&r));
    out->scratch_bytes = 0;
}

void K_FN(run)(const k_call *c, int64_t begin, int64_t end)
{
    k_nest o, r;
    int64_t step[OPERANDS], at[OPERANDS], buf[STRIP];
    K_FN(setup)(c->arg, &o, &r);
    const int last = o.axes - 1;
    const int64_t share = K_FN(share)(&r), stop = K_MIN(end * share, k_nest_elems(&o));
    for (int i = 0; i < OPERANDS; i++) step[i] = o.stride[i][last];
    k_nest_seek(&o, begin * share);
    for (int64_t i = begin * share, n; i < stop; i += n) {
        n = K_MIN(o.dim[last] - o.index[last], share - i % share);
        n = K_MIN(n, stop - i);
        int64_t *y = K_FN(epi_to)(c, o.at, step, buf);
        for (int64_t w = 0; w < n; w++) {
            for (int s = 0; s < OPERANDS; s++) at[s] = o.at[s] + w * step[s];
            y[w] = K_FN(one)(c, at, &r);
        }
        K_FN(epi)(c, o.at, step, n, y);
        k_nest_step(&o, n);
    }
}
