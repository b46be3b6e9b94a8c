/* A hand-made program for tests of format, loader and executor: kernels in plain C, compiled when the test starts.
 *   program  x f32[batch,8], ids i64[batch] -> y = x W + T[ids], z = 2 x W, both f32[batch,16]
 *   shape    four steps, two temporaries, one of them an offset into a shared value; levels v2 to v4; rows for 1 and 2 threads */
#ifndef RUN_FIXTURE_H
#define RUN_FIXTURE_H

#include "fmt_bundle.h"
#include "rtx/run.h"
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define FIX_K    8
#define FIX_N    16
#define FIX_ROWS 5
#define FIX_MAX  512 /* bound of batch */

/* Paths are relative to the scratch folder that fix_enter makes current. */
int fix_enter(void **state);
int fix_leave(void **state);

/* Shared object of C text; base_free. NULL: no compiler here. */
char *fix_compile(const char *text, const char *extra_flags, size_t *out_bytes);

typedef struct fix_options {
    const char *manifest;      /* NULL = "{}" */
    int lowest, highest;       /* levels with rows; 0 = v2 to v4 */
    int second_lowest;         /* a second plan for levels from here up to `lowest` - 1; 0 = none */
    uint32_t kabi;             /* 0 = ours */
    bool tuned, source;        /* kernels are tuned; their source is kept */
    uint32_t pad_consts_bytes; /* further constant bytes, to make a large file */
    uint32_t stream_bytes;     /* further bytes of W, which then belongs on large pages */
    bool bad_code_hash;
} fix_options;
fmt_plan *fix_plan(const fix_options *o, int lowest, int highest, fmt_span code,
                   const uint32_t entries[6]);
void fix_write(const char *path, const fix_options *o);

/* What the program should give. y and z hold batch * FIX_N floats. */
void fix_expect(const float *x, const int64_t *ids, int64_t batch, float *y, float *z);
void fix_fill(float *x, int64_t *ids, int64_t batch, unsigned seed);
static inline rtx_tensor fix_x(const float *x, int64_t batch)
{
    return (rtx_tensor){"x", (void *)(uintptr_t)x, RTX_F32, 2, {batch, FIX_K}};
}
static inline rtx_tensor fix_ids(const int64_t *ids, int64_t batch)
{
    return (rtx_tensor){"ids", (void *)(uintptr_t)ids, RTX_I64, 1, {batch}};
}
static inline rtx_tensor fix_out(const char *name, float *y, int64_t batch)
{
    return (rtx_tensor){name, y, RTX_F32, 2, {batch, FIX_N}};
}

#endif
