/* @kernel  gather
 * @what    y[o, j, i] = x[o, indices[j], i]; elements of BYTES bytes; negative indices count from the end
 * @param   WORK 4096 {1024,4096,16384} elements of a work unit, about
 * @tol     exact; an index out of range is clamped and sets *c->trap
 * @source  own work
 *
 * The renderer defines DIM_O DIM_A DIM_J DIM_I, strides X_O X_A X_I, IX_J, Y_O Y_J Y_I, operand numbers X_IDX IX_IDX Y_IDX,
 * BYTES and INDEX (type of an index). */

K_INLINE int64_t K_FN(share)(const int64_t *arg) { return K_MAX(1, WORK / (DIM_I + 1)); }

void K_FN(plan)(const int64_t *arg, int64_t ways, k_plan *out)
{
    (void)ways;
    out->units = DIM_I > 0 ? K_CEIL_DIV(DIM_O * DIM_J, K_FN(share)(arg)) : 0;
    out->scratch_bytes = 0;
}

void K_FN(run)(const k_call *c, int64_t begin, int64_t end)
{
    const int64_t *arg = c->arg;
    const char *x = c->buf[X_IDX];
    char *y = c->buf[Y_IDX];
    const INDEX *ix = c->buf[IX_IDX];
    const int64_t share = K_FN(share)(arg), stop = K_MIN(end * share, DIM_O * DIM_J);
    for (int64_t l = begin * share; l < stop; l++) {
        const int64_t o = l / DIM_J, j = l % DIM_J, a = k_index(c, ix[j * IX_J], DIM_A);
        if (DIM_A == 0) return; /* no element to clamp to; trap is set */
        k_copy(BYTES, y + (o * Y_O + j * Y_J) * BYTES, Y_I, x + (o * X_O + a * X_A) * BYTES, X_I, DIM_I);
    }
}
