/* @kernel  gather_nd
 * @what    y[b, j, i] = x[b, indices[b, j, 0], ..., indices[b, j, DEPTH - 1], i]; elements of BYTES bytes
 * @param   WORK 4096 {1024,4096,16384} elements of a work unit, about
 * @tol     exact; an index out of range is clamped and sets *c->trap
 * @source  own work
 *
 * The renderer defines DIM_B DIM_J DIM_I, DEPTH (indices of one element), strides X_B X_I, IX_B IX_J IX_R, Y_B Y_J Y_I,
 * operand numbers IX_IDX Y_IDX (x is 0), BYTES, INDEX, and space(arg, nest): sizes and strides of the indexed axes of x. */

K_INLINE int64_t K_FN(share)(const int64_t *arg) { return K_MAX(1, WORK / (DIM_I + 1)); }

void K_FN(plan)(const int64_t *arg, int64_t ways, k_plan *out)
{
    (void)ways;
    out->units = DIM_I > 0 ? K_CEIL_DIV(DIM_B * DIM_J, K_FN(share)(arg)) : 0;
    out->scratch_bytes = 0;
}

void K_FN(run)(const k_call *c, int64_t begin, int64_t end)
{
    const int64_t *arg = c->arg;
    const char *x = c->buf[0];
    char *y = c->buf[Y_IDX];
    k_nest space;
    K_FN(space)(arg, &space);
    const int64_t share = K_FN(share)(arg), stop = K_MIN(end * share, DIM_B * DIM_J);
    for (int64_t l = begin * share; l < stop; l++) {
        const int64_t b = l / DIM_J, j = l % DIM_J;
        const INDEX *ix = (const INDEX *)c->buf[IX_IDX] + b * IX_B + j * IX_J;
        int64_t at = b * X_B, some = 1;
        for (int r = 0; r < DEPTH; r++) {
            at += k_index(c, ix[r * IX_R], space.dim[r]) * space.stride[0][r];
            some &= space.dim[r] > 0;
        }
        if (!some) return; /* no element to clamp to; trap is set */
        k_copy(BYTES, y + (b * Y_B + j * Y_J) * BYTES, Y_I, x + at * BYTES, X_I, DIM_I);
    }
}
