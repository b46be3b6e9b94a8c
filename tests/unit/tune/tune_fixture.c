/* See tune_fixture.h. */
#include "tune_fixture.h"
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static fmt_dim sym(syn_problem *p, uint32_t s)
{
    static const char *const names[] = {"s0", "s1", "s2"};
    while (fmt_sym_count(p->dims) <= s)
        fmt_sym_new(p->dims, names[fmt_sym_count(p->dims)], 0, FMT_DIM_LIMIT);
    return fmt_dim_sym(p->dims, s);
}

static ir_id input(syn_problem *p, fmt_dtype t, uint32_t rank, const fmt_dim *dim)
{
    ir_type type = {.dtype = t, .rank = (uint8_t)rank};
    memcpy(type.dim, dim, rank * sizeof *dim);
    return ir_input(p->region, syn_port_name(false, p->n_in++), &type);
}

static void output(syn_problem *p, ir_id id)
{
    ir_output(p->region, syn_port_name(true, p->n_out++), id);
}

static void strides(syn_problem *p, uint32_t operand, const int64_t *s, uint32_t rank)
{
    for (uint32_t d = 0; d < rank; d++)
        p->stride[operand][d] = s[d] == INT64_MIN ? FMT_DIM_BAD : fmt_dim_const(p->dims, s[d]);
}
#define UNKNOWN INT64_MIN
#define STRIDES(p, operand, ...)                                                                   \
    strides(p, operand, (int64_t[]){__VA_ARGS__},                                                  \
            sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t))

syn_problem *fixture_gemm(int64_t k, int64_t n, bool bias, bool gelu)
{
    syn_problem *p = syn_problem_new();
    fmt_dim m = sym(p, 0), kd = fmt_dim_const(p->dims, k), nd = fmt_dim_const(p->dims, n);
    ir_id a = input(p, FMT_F32, 2, (fmt_dim[]){m, kd}),
          b = input(p, FMT_F32, 2, (fmt_dim[]){kd, nd});
    ir_id bias_in = bias ? input(p, FMT_F32, 2, (fmt_dim[]){m, nd}) : 0;
    ir_id c = ir_emit2(p->region, IR_dot, a, b);
    if (bias)
        c = ir_emit2(p->region, IR_add, c, bias_in);
    if (gelu)
        c = ir_emit1(p->region, IR_gelu, c);
    output(p, c);
    STRIDES(p, 0, k, 1);
    STRIDES(p, 1, n, 1);
    p->packed[1] = true;
    if (bias)
        STRIDES(p, 2, 0, 1);
    STRIDES(p, 2 + bias, n, 1);
    return p;
}

syn_problem *fixture_attention(int64_t h, int64_t d, bool mask)
{
    syn_problem *p = syn_problem_new();
    fmt_dim b = sym(p, 0), s = sym(p, 1), hd = fmt_dim_const(p->dims, h),
            dd = fmt_dim_const(p->dims, d);
    ir_id in[4];
    for (int i = 0; i < 3; i++) {
        in[i] = input(p, FMT_F32, 4, (fmt_dim[]){b, hd, s, dd});
        STRIDES(p, (uint32_t)i, UNKNOWN, d, 3 * h * d, 1);
    }
    if (mask) {
        in[3] = input(p, FMT_F32, 4, (fmt_dim[]){b, hd, s, s});
        STRIDES(p, 3, UNKNOWN, 0, 0, 1);
    }
    ir_attrs at = {.f = {0.17677669529663687, 0}};
    output(p, ir_emit(p->region, IR_attention, in, mask ? 4 : 3, &at));
    STRIDES(p, 3u + mask, UNKNOWN, d, h * d, 1);
    return p;
}

syn_problem *fixture_layernorm(int64_t c)
{
    syn_problem *p = syn_problem_new();
    fmt_dim r = sym(p, 0), cd = fmt_dim_const(p->dims, c);
    ir_id x = input(p, FMT_F32, 2, (fmt_dim[]){r, cd}),
          y = input(p, FMT_F32, 2, (fmt_dim[]){r, cd});
    ir_id g = input(p, FMT_F32, 1, &cd), be = input(p, FMT_F32, 1, &cd);
    ir_id sum = ir_emit2(p->region, IR_add, x, y);
    ir_attrs at = {.f = {1e-12, 0}};
    output(p, ir_emit(p->region, IR_layernorm, (ir_id[]){sum, g, be}, 3, &at));
    STRIDES(p, 0, c, 1);
    STRIDES(p, 1, c, 1);
    STRIDES(p, 2, 1);
    STRIDES(p, 3, 1);
    STRIDES(p, 4, c, 1);
    return p;
}

syn_problem *fixture_add(void)
{
    syn_problem *p = syn_problem_new();
    fmt_dim n = sym(p, 0);
    ir_id a = input(p, FMT_F32, 1, &n), b = input(p, FMT_F32, 1, &n);
    output(p, ir_emit2(p->region, IR_add, a, b));
    STRIDES(p, 0, 1);
    STRIDES(p, 1, 1);
    STRIDES(p, 2, 1);

    return p;
}

syn_problem *fixture_gather(int64_t rows, int64_t c)
{
    syn_problem *p = syn_problem_new();
    fmt_dim n = sym(p, 0), one = fmt_dim_const(p->dims, 1);
    ir_id x = input(p, FMT_F32, 3,
                    (fmt_dim[]){one, fmt_dim_const(p->dims, rows), fmt_dim_const(p->dims, c)});
    ir_id i = input(p, FMT_I64, 1, &n);
    ir_attrs at = {.i = {1, 0, 0}};
    output(p, ir_emit(p->region, IR_gather, (ir_id[]){x, i}, 2, &at));
    STRIDES(p, 0, rows * c, c, 1);
    STRIDES(p, 1, 1);
    STRIDES(p, 2, UNKNOWN, c, 1);
    return p;
}

char *fixture_folder(void)
{
    char path[256];
    snprintf(path, sizeof path, "%s/rtx-test-XXXXXX", base_env(BASE_ENV_TMPDIR));
    return mkdtemp(path) ? base_strdup(BASE_TAG_TUNE, path) : NULL;
}

void fixture_remove(const char *folder)
{
    char command[320];
    snprintf(command, sizeof command, "chmod -R u+rwx '%s'; rm -rf '%s'", folder, folder);
    if (system(command) != 0)
        fprintf(stderr, "cannot remove %s\n", folder);
}
