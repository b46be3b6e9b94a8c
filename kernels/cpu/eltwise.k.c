/* @kernel  eltwise
 * @what    outputs[d0,...] = expressions of inputs[d0,...], element by element; any strides, broadcast included
 * @param   CHUNK 4096 {1024,2048,4096,8192,16384,65536} elements of a work unit
 * @tol     each operation rounds once in its own type (f32, i64, i32, bool); named functions as kernels/prelude/cpu.h says
 * @source  own work
 *
 * The renderer defines OPERANDS (slots of the nest: inputs, outputs, iotas), LINE_FIXED (the last axis has strides that are
 * compiled in) and the functions
 *   nest(arg, nest)         sizes and strides of all axes
 *   line(c, at, step, n)    n elements from offsets at[] on, along strides step[]
 *
 * Axes that lie as one are merged first, so that a contiguous problem is one long line whatever its rank. A unit is a range
 * of elements in row-major order. Elements do not depend on one another: any cut gives equal bits. */

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
    k_nest t;
    int64_t step[OPERANDS];
    K_FN(nest)(c->arg, &t);
    k_nest_fold(&t, LINE_FIXED);
    const int last = t.axes - 1;
    const int64_t stop = K_MIN(end * CHUNK, k_nest_elems(&t));
    for (int i = 0; i < OPERANDS; i++) step[i] = t.stride[i][last];
    k_nest_seek(&t, begin * CHUNK);
    for (int64_t i = begin * CHUNK, n; i < stop; i += n) {
        n = K_MIN(t.dim[last] - t.index[last], CHUNK - i % CHUNK); /* not over the end of a unit */
        n = K_MIN(n, stop - i);
        K_FN(line)(c, t.at, step, n);
        k_nest_step(&t, n);
    }
}
