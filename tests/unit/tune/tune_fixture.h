/* Problems that the tuner's tests share, and where the worker of this build lies.
 *   owner    each problem belongs to the caller (syn_problem_free) */
#ifndef TUNE_FIXTURE_H
#define TUNE_FIXTURE_H

#include "tun_int.h"

/* C[s0,n] = A[s0,k] B[k,n] (packed) [+ bias[n]] [gelu]; constants k, n. */
syn_problem *fixture_gemm(int64_t k, int64_t n, bool bias, bool gelu);
/* out[s0,h,s1,d] = attention(q, k, v), self attention of h heads in one [s0,s1,3 h d] buffer. */
syn_problem *fixture_attention(int64_t heads, int64_t d, bool mask);
/* y[s0,c] = layernorm(x + r) gamma beta. */
syn_problem *fixture_layernorm(int64_t c);
/* y[s0] = a + b. */
syn_problem *fixture_add(void);
/* y[1,s0,c] = table[1,rows,c] at index[s0]. */
syn_problem *fixture_gather(int64_t rows, int64_t c);

/* A fresh empty folder under TMPDIR; base_free. */
char *fixture_folder(void);
void fixture_remove(const char *folder);

#endif
