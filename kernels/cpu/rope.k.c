/* @kernel  rope
 * @what    y[o..., D] = x cos + rot(x) sin, all f32 of one shape; rot(x) = (-x[D/2...], x[...D/2]), or with INTERLEAVED
 *          rot(x)[2i] = -x[2i+1], rot(x)[2i+1] = x[2i]
 * @param   WORK 4096 {1024,4096,16384} elements of a work unit, about
 * @tol     1e-6 norm-wise; |error| <= 3 2^-24 (|x cos| + |rot(x) sin|)
 * @source  own work
 *
 * The renderer defines DIM_D (even), INTERLEAVED, OPERANDS (4: x, cos, sin, y), outer(arg, nest) and line(arg, nest).
 * Each row is staged to stride 1 where it is not so already. */

K_INLINE int64_t K_FN(share)(const int64_t *arg) { return K_MAX(1, WORK / (DIM_D + 1)); }

void K_FN(plan)(const int64_t *arg, int64_t ways, k_plan *out)
{
    k_nest o;
    (void)ways;
    K_FN(outer)(arg, &o);
    out->units = DIM_D > 1 ? K_CEIL_DIV(k_nest_elems(&o), K_FN(share)(arg)) : 0;
    out->scratch_bytes = 4 * DIM_D * (int64_t)sizeof(float);
}

K_INLINE void K_FN(turn)(const float *restrict x, const float *restrict co, const float *restrict si, float *restrict y,
                         int64_t d)
{
    const int64_t half = d / 2;
    for (int64_t j = 0; j < half; j++) {
        const int64_t a = INTERLEAVED ? 2 * j : j, b = INTERLEAVED ? 2 * j + 1 : j + half;
        y[a] = x[a] * co[a] - x[b] * si[a];
        y[b] = x[b] * co[b] + x[a] * si[b];
    }
}

void K_FN(run)(const k_call *c, int64_t begin, int64_t end)
{
    const int64_t *arg = c->arg, d = DIM_D;
    k_nest o, row;
    float *buf = c->scratch;
    K_FN(outer)(arg, &o);
    K_FN(line)(arg, &row);
    k_nest_fold(&o, 0);
    const int64_t share = K_FN(share)(arg), stop = K_MIN(end * share, k_nest_elems(&o)), y_step = row.stride[3][0];
    k_nest_seek(&o, begin * share);
    for (int64_t i = begin * share; i < stop; i++) {
        const float *x = k_stage_4((const float *)c->buf[0] + o.at[0], row.stride[0][0], d, buf);
        const float *co = k_stage_4((const float *)c->buf[1] + o.at[1], row.stride[1][0], d, buf + d);
        const float *si = k_stage_4((const float *)c->buf[2] + o.at[2], row.stride[2][0], d, buf + 2 * d);
        float *out = (float *)c->buf[3] + o.at[3], *y = y_step == 1 ? out : buf + 3 * d;
        K_FN(turn)(x, co, si, y, d);
        if (y != out) k_copy_4(out, y_step, y, 1, d);
        k_nest_step(&o, 1);
    }
}
