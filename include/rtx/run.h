/* Run a compiled program: open an .rtxgc file, ask what it expects, run it.
 *   layer      public; includes rtx/status.h
 *   owner      the caller owns tensors and their data; rtx_program owns everything it maps
 *   threads    a program may be run from many threads at once; open and close are the caller's to order
 *   links      librtx-run alone (libc only); also part of librtx */
#ifndef RTX_RUN_H
#define RTX_RUN_H

#include "rtx/status.h"
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define RTX_RANK_MAX 8

typedef enum rtx_dtype {
    RTX_F32 = 1,
    RTX_I64 = 2,
    RTX_I32 = 3,
    RTX_BOOL = 4, /* one byte an element, 0 or 1 */
    RTX_F16 = 5,
    RTX_BF16 = 6,
    RTX_F64 = 7
} rtx_dtype;

typedef struct rtx_program rtx_program;

/* One input or output as the model declares it. dim[i] < 0 is free; dim_name[i] then holds its expression ("batch"). */
typedef struct rtx_port {
    const char *name;
    rtx_dtype dtype;
    int rank;
    int64_t dim[RTX_RANK_MAX];
    const char *dim_name[RTX_RANK_MAX];
    int64_t lo[RTX_RANK_MAX], hi[RTX_RANK_MAX]; /* bounds of each dimension */
} rtx_port;

/* A tensor of the caller. name NULL = by position. data is row-major and contiguous. */
typedef struct rtx_tensor {
    const char *name;
    void *data; /* not written for inputs */
    rtx_dtype dtype;
    int rank;
    int64_t dim[RTX_RANK_MAX];
} rtx_tensor;

/* Open and check every byte of a bundle. threads: default number of threads of its runs; 0 = RTX_THREADS, else the CPUs
 * this process may use. Errors: NOT_FOUND, IO, CORRUPT (names the section), UNSUPPORTED (names field, built for, found). */
RTX_API RTX_MUST_CHECK rtx_status rtx_program_open(const char *path, int threads, rtx_program **out,
                                                   rtx_err *err);
RTX_API void rtx_program_close(rtx_program *p); /* NULL allowed; no run may be in progress */

RTX_API size_t rtx_program_input_count(const rtx_program *p);
RTX_API size_t rtx_program_output_count(const rtx_program *p);
/* Borrowed text, valid until close. INVALID if i is out of range. */
RTX_API RTX_MUST_CHECK rtx_status rtx_program_input(const rtx_program *p, size_t i, rtx_port *out,
                                                    rtx_err *err);
RTX_API RTX_MUST_CHECK rtx_status rtx_program_output(const rtx_program *p, size_t i, rtx_port *out,
                                                     rtx_err *err);

/* Shapes and dtypes of the outputs for these inputs (data is not touched), so that the caller can allocate. */
RTX_API RTX_MUST_CHECK rtx_status rtx_program_shapes(rtx_program *p, const rtx_tensor *inputs,
                                                     size_t n_inputs, rtx_tensor *out_outputs,
                                                     size_t n_outputs, rtx_err *err);
/* Run. outputs carry data, dtype and shape as rtx_program_shapes gave them. threads 0 = the program's default.
 * INVALID names the input, what was given and what is wanted. Bits do not depend on the number of threads.
 * From the second run on, packed weights of 4 MB and more move from the mapped file to large pages of this process, in
 * 1/32 of the time of runs; with RTX_HUGE_PAGES=0 they stay. */
RTX_API RTX_MUST_CHECK rtx_status rtx_program_run(rtx_program *p, const rtx_tensor *inputs,
                                                  size_t n_inputs, rtx_tensor *outputs,
                                                  size_t n_outputs, int threads, rtx_err *err);

/* 1 once no weights are left to move: from then on runs cost what they will go on costing. 0 before. Benchmarks wait for it. */
RTX_API int rtx_program_settled(const rtx_program *p);

/* Manifest (JSON) of the bundle; borrowed. */
RTX_API const char *rtx_program_manifest(const rtx_program *p);
/* "0.1.0 (commit abc1234), isa v4" */
RTX_API const char *rtx_version(void);

#ifdef __cplusplus
}
#endif
#endif
