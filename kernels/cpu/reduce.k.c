/* @kernel  reduce
 * @what    y[o...] = epi(combine over r... of pro[o..., r...]): sum, mean, max, min or product of T; T is f32, i64 or i32
 * @param   STRIP 64 {16,32,64} outputs worked on together where they are adjacent and reduced elements are not
 * @param   WORK 16384 {4096,16384,65536} elements of a work unit, about
 * @tol     1e-6 norm-wise; f32 sums: |error| <= (5 + 32 + R / 1024) 2^-24 sum |x|, R elements reduced
 * @source  own work
 *
 * The renderer defines T, START (the value of an empty reduction), MEAN, OPERANDS, OUTER_FIXED and INNER_FIXED (the last axis
 * of that nest has strides that are compiled in) and the functions
 *   outer(arg, nest), inner(arg, nest)   the axes o... and r...
 *   row(c, at, step, n, buf)             n prologue values along the last r axis -> pointer to them
 *   column(c, at, step, n, buf)          n prologue values along the last o axis -> pointer to them
 *   combine(a, b)
 *   epi(c, at, step, n, x), epi_to(c, at, step, buf)   n outputs along the last o axis from x; where x is best put
 *
 * Order, for element k of r... in row-major order: lane k mod 32 takes it; a lane's partial result joins its total every
 * 1024 elements; at the end lanes combine by halves (16, 8, 4, 2, 1). It depends on the number of elements alone, so rows,
 * columns, parameters, LEVEL and threads give equal bits. */

#define LANES 32
#define BLOCK (LANES * 32)
#define PIECE 512

K_INLINE void K_FN(setup)(const int64_t *arg, k_nest *o, k_nest *r)
{
    K_FN(outer)(arg, o);
    K_FN(inner)(arg, r);
    k_nest_fold(o, OUTER_FIXED);
    k_nest_fold(r, INNER_FIXED);
}

/* Walk along outputs rather than along reduced elements? */
K_INLINE int K_FN(by_column)(const k_nest *o, const k_nest *r)
{
    int adjacent = 0;
    for (int i = 0; i < OPERANDS; i++) adjacent |= r->stride[i][r->axes - 1] == 1;
    return o->dim[o->axes - 1] > 1 && (!adjacent || k_nest_elems(r) < 16);
}

/* Outputs of a work unit. */
K_INLINE int64_t K_FN(share)(const k_nest *o, const k_nest *r)
{
    return K_FN(by_column)(o, r) ? STRIP : K_MAX(1, K_MIN(STRIP, WORK / (k_nest_elems(r) + 1)));
}

/* x[0...n) are elements k... of one output. */
K_INLINE void K_FN(add_row)(T *restrict lane, const T *restrict x, int64_t k, int64_t n)
{
    int64_t j = 0;
    for (; j < n && (k + j) % LANES; j++) lane[(k + j) % LANES] = K_FN(combine)(lane[(k + j) % LANES], x[j]);
    for (; j + LANES <= n; j += LANES)
        for (int l = 0; l < LANES; l++) lane[l] = K_FN(combine)(lane[l], x[j + l]);
    for (int l = 0; j < n; j++, l++) lane[l] = K_FN(combine)(lane[l], x[j]);
}

/* total[l] takes lane[l], which starts again; each of width w. */
K_INLINE void K_FN(carry)(T *restrict total, T *restrict lane, int64_t w)
{
    for (int64_t i = 0; i < LANES * w; i++) {
        total[i] = K_FN(combine)(total[i], lane[i]);
        lane[i] = START;
    }
}

/* Lanes of width w to y[w]. */
K_INLINE void K_FN(join)(T *restrict lane, int64_t w, T *restrict y, int64_t elems)
{
    for (int64_t h = LANES / 2; h > 0; h /= 2)
        for (int64_t i = 0; i < h * w; i++) lane[i] = K_FN(combine)(lane[i], lane[h * w + i]);
    for (int64_t i = 0; i < w; i++) y[i] = MEAN ? lane[i] / (T)elems : lane[i];
    (void)elems;
}

/* One output at offsets `base`. */
static void K_FN(one)(const k_call *c, const int64_t *base, k_nest *r, T *y)
{
    K_ALIGN(64) T lane[LANES], total[LANES], buf[PIECE];
    int64_t at[OPERANDS], step[OPERANDS];
    const int last = r->axes - 1;
    const int64_t elems = k_nest_elems(r);
    for (int i = 0; i < OPERANDS; i++) step[i] = r->stride[i][last];
    for (int l = 0; l < LANES; l++) lane[l] = total[l] = START;
    if (elems > 0) k_nest_seek(r, 0);
    for (int64_t k = 0, n; k < elems; k += n) {
        n = K_MIN(r->dim[last] - r->index[last], PIECE);
        n = K_MIN(n, BLOCK - k % BLOCK);
        for (int i = 0; i < OPERANDS; i++) at[i] = base[i] + r->at[i];
        K_FN(add_row)(lane, K_FN(row)(c, at, step, n, buf), k, n);
        k_nest_step(r, n);
        if ((k + n) % BLOCK == 0) K_FN(carry)(total, lane, 1);
    }
    K_FN(carry)(total, lane, 1);
    K_FN(join)(total, 1, y, elems);
}

/* w adjacent outputs, the first at offsets `base`, along step. */
static void K_FN(strip)(const k_call *c, const int64_t *base, const int64_t *step, int64_t w, k_nest *r, T *y)
{
    K_ALIGN(64) T lane[LANES * STRIP], total[LANES * STRIP], buf[STRIP];
    int64_t at[OPERANDS];
    const int64_t elems = k_nest_elems(r);
    for (int64_t i = 0; i < LANES * w; i++) lane[i] = total[i] = START;
    if (elems > 0) k_nest_seek(r, 0);
    for (int64_t k = 0; k < elems; k++) {
        for (int i = 0; i < OPERANDS; i++) at[i] = base[i] + r->at[i];
        const T *restrict x = K_FN(column)(c, at, step, w, buf);
        T *restrict sum = lane + k % LANES * w;
        for (int64_t i = 0; i < w; i++) sum[i] = K_FN(combine)(sum[i], x[i]);
        k_nest_step(r, 1);
        if ((k + 1) % BLOCK == 0) K_FN(carry)(total, lane, w);
    }
    K_FN(carry)(total, lane, w);
    K_FN(join)(total, w, y, elems);
}

void K_FN(plan)(const int64_t *arg, int64_t ways, k_plan *out)
{
    k_nest o, r;
    (void)ways;
    K_FN(setup)(arg, &o, &r);
    out->units = K_CEIL_DIV(k_nest_elems(&o), K_FN(share)(&o, &r));
    out->scratch_bytes = 0;
}

void K_FN(run)(const k_call *c, int64_t begin, int64_t end)
{
    k_nest o, r;
    K_ALIGN(64) T buf[STRIP];
    int64_t step[OPERANDS], at[OPERANDS];
    K_FN(setup)(c->arg, &o, &r);
    const int last = o.axes - 1, columns = K_FN(by_column)(&o, &r);
    const int64_t share = K_FN(share)(&o, &r), stop = K_MIN(end * share, k_nest_elems(&o));
    for (int i = 0; i < OPERANDS; i++) step[i] = o.stride[i][last];
    k_nest_seek(&o, begin * share);
    for (int64_t i = begin * share, n; i < stop; i += n) {
        n = K_MIN(o.dim[last] - o.index[last], share - i % share);
        n = K_MIN(n, stop - i);
        T *y = K_FN(epi_to)(c, o.at, step, buf);
        if (columns) {
            K_FN(strip)(c, o.at, step, n, &r, y);
        } else {
            for (int64_t w = 0; w < n; w++) {
                for (int s = 0; s < OPERANDS; s++) at[s] = o.at[s] + w * step[s];
                K_FN(one)(c, at, &r, y + w);
            }
        }
        K_FN(epi)(c, o.at, step, n, y);
        k_nest_step(&o, n);
    }
}
