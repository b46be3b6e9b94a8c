/* @kernel  gather_elements
 * @what    y[d...] = x[d... with the index on one axis replaced by indices[d...]]; elements of BYTES bytes
 * @param   CHUNK 4096 {1024,4096,16384} elements of a work unit
 * @tol     exact; an index out of range is clamped and sets *c->trap
 * @source  own work
 *
 * The renderer defines DIM_A and X_A (size and stride of that axis in x), BYTES, INDEX, OPERANDS (3: x, indices, y) and
 * nest(arg, nest) over the axes of y, in which x does not move along the indexed axis. */

void K_FN(plan)(const int64_t *arg, int64_t ways, k_plan *out)
{
    k_nest t;
    (void)ways;
    K_FN(nest)(arg, &t);
    out->units = K_CEIL_DIV(k_nest_elems(&t), CHUNK);
    out->scratch_bytes = 0;
}

void K_FN(run)(const k_call *c, int64_t begin, int64_t end)
{
    const int64_t *arg = c->arg;
    const char *x = c->buf[0];
    const INDEX *ix = c->buf[1];
    char *y = c->buf[2];
    k_nest t;
    K_FN(nest)(arg, &t);
    k_nest_fold(&t, 0);
    const int last = t.axes - 1;
    const int64_t stop = K_MIN(end * CHUNK, k_nest_elems(&t));
    const int64_t sx = t.stride[0][last], si = t.stride[1][last], sy = t.stride[2][last];
    k_nest_seek(&t, begin * CHUNK);
    for (int64_t i = begin * CHUNK, n; i < stop; i += n) {
        n = K_MIN(t.dim[last] - t.index[last], stop - i);
        for (int64_t j = 0; j < n; j++) {
            const int64_t a = k_index(c, ix[t.at[1] + j * si], DIM_A);
            if (DIM_A == 0) return; /* no element to clamp to; trap is set */
            __builtin_memcpy(y + (t.at[2] + j * sy) * BYTES, x + (t.at[0] + j * sx + a * X_A) * BYTES, BYTES);
        }
        k_nest_step(&t, n);
    }
}
