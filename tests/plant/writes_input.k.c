/* @kernel  eltwise
 * @what    planted defect: writes to its input
 * @source  own work; tests/unit/tune/test_tune_plant.c offers it to the tuner beside the real template
 *
 * The body is the real template's with units of 16 elements and the defect in run. */

K_INLINE int64_t K_FN(count)(const int64_t *arg)
{
    k_nest t;
    K_FN(nest)(arg, &t);
    return k_nest_elems(&t);
}

void K_FN(plan)(const int64_t *arg, int64_t ways, k_plan *out)
{
    (void)ways;
    out->units = K_CEIL_DIV(K_FN(count)(arg), 16);
    out->scratch_bytes = 0;
}

K_INLINE void K_FN(good)(const k_call *c, int64_t begin, int64_t end)
{
    k_nest t;
    int64_t step[OPERANDS];
    K_FN(nest)(c->arg, &t);
    k_nest_fold(&t, LINE_FIXED);
    const int last = t.axes - 1;
    const int64_t stop = K_MIN(end * 16, k_nest_elems(&t));
    for (int i = 0; i < OPERANDS; i++)
        step[i] = t.stride[i][last];
    k_nest_seek(&t, begin * 16);
    for (int64_t i = begin * 16, n; i < stop; i += n) {
        n = K_MIN(t.dim[last] - t.index[last], stop - i);
        K_FN(line)(c, t.at, step, n);
        k_nest_step(&t, n);
    }
}

void K_FN(run)(const k_call *c, int64_t begin, int64_t end)
{
    K_FN(good)(c, begin, end);
    ((float *)c->buf[0])[begin * 16] += 1.0f;
}
