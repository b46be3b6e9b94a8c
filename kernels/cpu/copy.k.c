/* @kernel  copy
 * @what    y[d0,...] = x[d0,...] for any strides: transposition, slice, broadcast, concatenation into a part of y
 * @param   ROWS 16 {8,16,32} rows of a tile
 * @param   COLS 1024 {128,256,1024,4096} elements of a row in a tile
 * @tol     exact
 * @source  own work
 *
 * The renderer defines BYTES (of an element), OPERANDS (2: x, y) and nest(arg, nest).
 *
 * After merging axes, the axis along which x is adjacent becomes the last but one when it is not the last. A work unit is a
 * tile of these two axes; inside it, blocks of ROWS by ROWS keep both the lines read and the lines written in L1. */

/* Axes in working order: the last one adjacent in y (or what is last), before it the one adjacent in x. */
K_INLINE void K_FN(order)(const int64_t *arg, k_nest *t)
{
    K_FN(nest)(arg, t);
    k_nest_fold(t, 0);
    if (t->axes == 1) { /* make room for the second axis of the tile */
        t->dim[1] = t->dim[0];
        t->dim[0] = 1;
        for (int i = 0; i < OPERANDS; i++) {
            t->stride[i][1] = t->stride[i][0];
            t->stride[i][0] = 0;
        }
        t->axes = 2;
    }
    const int last = t->axes - 1;
    int from = last - 1;
    for (int d = 0; t->stride[0][last] != 1 && d < last; d++)
        if (t->stride[0][d] == 1) from = d;
    for (; from < last - 1; from++) { /* bubble it behind the others */
        const int64_t n = t->dim[from];
        t->dim[from] = t->dim[from + 1];
        t->dim[from + 1] = n;
        for (int i = 0; i < OPERANDS; i++) {
            const int64_t s = t->stride[i][from];
            t->stride[i][from] = t->stride[i][from + 1];
            t->stride[i][from + 1] = s;
        }
    }
}

K_INLINE void K_FN(tile)(char *y, const char *x, int64_t rows, int64_t cols, int64_t y_row, int64_t y_col, int64_t x_row,
                         int64_t x_col)
{
    if (x_col == 1 || x_row != 1) {
        for (int64_t r = 0; r < rows; r++)
            k_copy(BYTES, y + r * y_row * BYTES, y_col, x + r * x_row * BYTES, x_col, cols);
        return;
    }
    for (int64_t j0 = 0; j0 < cols; j0 += ROWS) {
        const int64_t n = K_MIN(cols - j0, ROWS);
        for (int64_t r = 0; r < rows; r++)
            for (int64_t j = j0; j < j0 + n; j++)
                __builtin_memcpy(y + (r * y_row + j * y_col) * BYTES, x + (r + j * x_col) * BYTES, BYTES);
    }
}

void K_FN(plan)(const int64_t *arg, int64_t ways, k_plan *out)
{
    k_nest t;
    (void)ways;
    K_FN(order)(arg, &t);
    out->units = K_CEIL_DIV(t.dim[t.axes - 2], ROWS) * K_CEIL_DIV(t.dim[t.axes - 1], COLS);
    for (int d = 0; d < t.axes - 2; d++) out->units *= t.dim[d];
    out->scratch_bytes = 0;
}

void K_FN(run)(const k_call *c, int64_t begin, int64_t end)
{
    k_nest t;
    K_FN(order)(c->arg, &t);
    const int last = t.axes - 1;
    const int64_t rows = t.dim[last - 1], cols = t.dim[last];
    const int64_t row_tiles = K_CEIL_DIV(rows, ROWS), col_tiles = K_CEIL_DIV(cols, COLS);
    t.dim[last - 1] = row_tiles; /* the nest now counts tiles; their offsets are found below */
    t.dim[last] = col_tiles;
    k_nest_seek(&t, begin);
    for (int64_t u = begin; u < end; u++) {
        const int64_t r = t.index[last - 1] * (ROWS - 1), j = t.index[last] * (COLS - 1); /* the rest of tile * ROWS */
        const int64_t x = t.at[0] + r * t.stride[0][last - 1] + j * t.stride[0][last];
        const int64_t y = t.at[1] + r * t.stride[1][last - 1] + j * t.stride[1][last];
        K_FN(tile)((char *)c->buf[1] + y * BYTES, (const char *)c->buf[0] + x * BYTES,
                   K_MIN(rows - t.index[last - 1] * ROWS, ROWS), K_MIN(cols - t.index[last] * COLS, COLS),
                   t.stride[1][last - 1], t.stride[1][last], t.stride[0][last - 1], t.stride[0][last]);
        k_nest_step(&t, 1);
    }
}
