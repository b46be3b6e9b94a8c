/* See mutant_beds.h. */
#include "mutant_beds.h"
#include <stdlib.h>

/* ---- problems ---- */

static fmt_dim dim_of(syn_problem *p, const char *word)
{
    if (*word == '?')
        return FMT_DIM_BAD;
    if (*word != 's')
        return fmt_dim_const(p->dims, atoll(word));
    while (fmt_sym_count(p->dims) <= (uint32_t)(word[1] - '0'))
        fmt_sym_new(p->dims, (const char *[]){"s0", "s1", "s2"}[fmt_sym_count(p->dims)], 0,
                    FMT_DIM_LIMIT);
    return fmt_dim_sym(p->dims, (uint32_t)(word[1] - '0'));
}

static uint32_t dims_of(syn_problem *p, const char *text, fmt_dim *out)
{
    uint32_t n = 0;
    for (const char *w = text; *w; w += strcspn(w, " "), w += strspn(w, " "))
        out[n++] = dim_of(p, w);
    return n;
}

/* An input of these sizes and strides: numbers, symbols, "?" for a stride known at run time. */
static ir_id in(syn_problem *p, fmt_dtype t, const char *dims, const char *strides)
{
    ir_type type = {.dtype = t};
    type.rank = (uint8_t)dims_of(p, dims, type.dim);
    dims_of(p, strides, p->stride[p->n_in]);
    return ir_input(p->region, syn_port_name(false, p->n_in++), &type);
}

static void out(syn_problem *p, ir_id id, const char *strides)
{
    dims_of(p, strides, p->stride[p->n_in + p->n_out]);
    ir_output(p->region, syn_port_name(true, p->n_out++), id);
}

static void gemm_packed(syn_problem *p)
{
    ir_id a = in(p, FMT_F32, "s0 530", "? 1"), b = in(p, FMT_F32, "530 45", "45 1");
    p->packed[1] = true;
    ir_id c = ir_emit2(p->region, IR_dot, a, b), d = in(p, FMT_F32, "s0 45", "0 1");
    out(p, ir_emit1(p->region, IR_gelu, ir_emit2(p->region, IR_add, c, d)), "? 1");
}

static void gemm_batch(syn_problem *p)
{
    ir_id a = in(p, FMT_F32, "s0 3 s1 40", "? ? ? 1"), b = in(p, FMT_F32, "s0 3 40 37", "? ? ? 1");
    out(p, ir_emit2(p->region, IR_dot, a, b), "? ? ? 1");
}

static void gemm_turned(syn_problem *p) /* columns of b are contiguous, rows of a are not */
{
    ir_id a = in(p, FMT_F32, "s0 33", "1 ?"), b = in(p, FMT_F32, "33 s1", "1 ?");
    out(p, ir_emit2(p->region, IR_dot, a, b), "? 1");
}

static void gemm_strided(syn_problem *p) /* nothing is contiguous */
{
    ir_id a = in(p, FMT_F32, "s0 29", "? 2"), b = in(p, FMT_F32, "29 35", "111 3");
    out(p, ir_emit2(p->region, IR_dot, a, b), "? 1");
}

static void gemm_fixed(syn_problem *p) /* rows are known to the compiler */
{
    ir_id a = in(p, FMT_F32, "s0 37 40", "? ? 1"), b = in(p, FMT_F32, "s0 40 45", "? ? 1");
    out(p, ir_emit2(p->region, IR_dot, a, b), "? ? 1");
}

static void gemm_one_over(syn_problem *p) /* one column in the last panel, known to the compiler */
{
    ir_id a = in(p, FMT_F32, "s0 40", "? 1"), b = in(p, FMT_F32, "40 33", "? 1");
    out(p, ir_emit2(p->region, IR_dot, a, b), "? 1");
}

static void attention(syn_problem *p, const char *v_dims, const char *mask, int causal,
                      int nan_zero)
{
    ir_id q = in(p, FMT_F32, "s0 4 s1 20", "? ? ? 1"), k = in(p, FMT_F32, "s0 2 s2 20", "? ? ? 1"),
          v = in(p, FMT_F32, v_dims, "? ? ? 1");
    ir_id x[4] = {q, k, v, mask ? in(p, FMT_F32, "s0 4 s1 s2", mask) : 0};
    ir_attrs at = {.f = {0.4}, .i = {causal, nan_zero}};
    out(p, ir_emit(p->region, IR_attention, x, mask ? 4 : 3, &at), "? ? ? 1");
}
static void attention_row(syn_problem *p) { attention(p, "s0 2 s2 47", "? 0 0 1", 0, 1); }
static void attention_full(syn_problem *p) { attention(p, "s0 2 s2 45", "? ? ? 1", 0, 0); }
static void attention_causal(syn_problem *p) { attention(p, "s0 2 s2 33", NULL, 1, 1); }
static void attention_guard(syn_problem *p) /* causal, and the scores end where scratch does */
{
    ir_id q = in(p, FMT_F32, "s0 2 s1 24", "? ? ? 1"), k = in(p, FMT_F32, "s0 2 s1 24", "? ? ? 1"),
          v = in(p, FMT_F32, "s0 2 s1 32", "? ? ? 1"), x[] = {q, k, v};
    ir_attrs at = {.f = {0.4}, .i = {1}};
    out(p, ir_emit(p->region, IR_attention, x, 3, &at), "? ? ? 1");
}
static void
attention_plain(syn_problem *p) /* values read in place, inner strides not 1, a mask of queries */
{
    ir_id q = in(p, FMT_F32, "s0 2 s1 24", "? ? ? 2"), k = in(p, FMT_F32, "s0 2 s1 24", "? ? ? 2"),
          v = in(p, FMT_F32, "s0 2 s1 32", "? ? ? 1"), m = in(p, FMT_F32, "s0 2 s1 s1", "? 0 1 0"),
          x[] = {q, k, v, m};
    ir_attrs at = {.f = {0.4}};
    out(p, ir_emit(p->region, IR_attention, x, 4, &at), "? ? ? 2");
}

/* Queries are known to the compiler, and with NP = 2 the last block has fewer panels; values are narrow. */
static void attention_fixed(syn_problem *p)
{
    ir_id q = in(p, FMT_F32, "s0 2 35 24", "? ? ? 1"), k = in(p, FMT_F32, "s0 2 s1 24", "? ? ? 1"),
          v = in(p, FMT_F32, "s0 2 s1 10", "? ? ? 1"), x[] = {q, k, v};
    ir_attrs at = {.f = {0.4}};
    out(p, ir_emit(p->region, IR_attention, x, 3, &at), "? ? ? 1");
}

static void reduce_mean(syn_problem *p)
{
    ir_id x = in(p, FMT_F32, "s0 s1", "? 1"), y = in(p, FMT_F32, "s0 s1", "? 1");
    x = ir_emit2(p->region, IR_mul, x, y);
    out(p, ir_reduce(p->region, IR_reduce_mean, x, (int64_t[]){1}, 1, false), "?");
}
static void reduce_column(syn_problem *p)
{
    ir_id x = in(p, FMT_F32, "3 s0 s1", "? 1 ?"), y = in(p, FMT_F32, "3 s0 s1", "? 1 ?");
    x = ir_emit2(p->region, IR_mul, x, y);
    out(p, ir_reduce(p->region, IR_reduce_sum, x, (int64_t[]){2}, 1, false), "? 1");
}
static void reduce_axes(syn_problem *p)
{
    ir_id x = in(p, FMT_F32, "s0 5 s1", "? ? 1");
    out(p, ir_reduce(p->region, IR_reduce_sum, x, (int64_t[]){1, 2}, 2, false), "2");
}

static void reduce_all(syn_problem *p)
{
    ir_id x = in(p, FMT_F32, "s0 5 s1", "? ? 1");
    out(p, ir_reduce(p->region, IR_reduce_sum, x, (int64_t[]){0, 1, 2}, 3, false), "");
}

static void row_softmax(syn_problem *p)
{
    ir_id x = in(p, FMT_F32, "s0 s1", "? 1");
    out(p, ir_emit1(p->region, IR_softmax, x), "? 2");
}
static void row_layernorm(syn_problem *p)
{
    ir_id x = in(p, FMT_F32, "s0 s1", "? 2"), y = in(p, FMT_F32, "s0 s1", "? 1"),
          g = in(p, FMT_F32, "s1", "2"), b = in(p, FMT_F32, "s1", "1");
    ir_attrs at = {.f = {1e-3}};
    x = ir_emit2(p->region, IR_add, x, y);
    out(p, ir_emit(p->region, IR_layernorm, (ir_id[]){x, g, b}, 3, &at), "? 1");
}
static void row_rmsnorm(syn_problem *p)
{
    ir_id x = in(p, FMT_F32, "s0 48", "? ?"), g = in(p, FMT_F32, "48", "2");
    ir_attrs at = {.f = {1e-1}};
    out(p, ir_emit(p->region, IR_rmsnorm, (ir_id[]){x, g}, 2, &at), "? 2");
}

static void eltwise_line(syn_problem *p)
{
    ir_id a = in(p, FMT_F32, "s0", "1"), b = in(p, FMT_F32, "s0", "1");
    out(p, ir_emit2(p->region, IR_sub, a, b), "1");
}
static void eltwise_nest(syn_problem *p)
{
    ir_id a = in(p, FMT_F32, "s0 7 s1", "? ? 1"), b = in(p, FMT_F32, "s0 7 s1", "0 ? 1");
    out(p, ir_emit2(p->region, IR_mul, a, b), "? ? 2");
}

static void gather_rows(syn_problem *p)
{
    ir_id x = in(p, FMT_F32, "3 11 s1", "? ? 1"), i = in(p, FMT_I64, "s0", "2");
    ir_attrs at = {.i = {1}};
    out(p, ir_emit(p->region, IR_gather, (ir_id[]){x, i}, 2, &at), "? ? 1");
}
static void gather_nd(syn_problem *p)
{
    ir_id x = in(p, FMT_F32, "3 7 9 s1", "? ? ? 1"), i = in(p, FMT_I64, "3 s0 2", "? ? 1");
    ir_attrs at = {.i = {1}};
    out(p, ir_emit(p->region, IR_gather_nd, (ir_id[]){x, i}, 2, &at), "? ? 1");
}
static void gather_elements(syn_problem *p)
{
    ir_id x = in(p, FMT_F32, "s1 11", "? 1"), i = in(p, FMT_I64, "s1 s0", "? 1");
    ir_attrs at = {.i = {1}};
    out(p, ir_emit(p->region, IR_gather_elements, (ir_id[]){x, i}, 2, &at), "? 2");
}

static void cumsum(syn_problem *p, fmt_dtype t, int exclusive, int reverse)
{
    ir_id x = in(p, t, "3 s0 s1", "? ? 1");
    ir_attrs at = {.i = {1, exclusive, reverse}};
    out(p, ir_emit(p->region, IR_cumsum, &x, 1, &at), "? ? 1");
}
static void cumsum_plain(syn_problem *p) { cumsum(p, FMT_F32, 0, 0); }
static void cumsum_back(syn_problem *p) { cumsum(p, FMT_I64, 1, 1); }

static void topk(syn_problem *p, fmt_dtype t, int64_t k, int largest)
{
    ir_id x = in(p, t, "s0 40 3", "? ? 1");
    ir_attrs at = {.i = {1, largest}, .n_dims = 1, .dims = {fmt_dim_const(p->dims, k)}};
    out(p, ir_emit(p->region, IR_topk, &x, 1, &at), "? ? 1");
}
static void topk_ties(syn_problem *p) { topk(p, FMT_I32, 7, 1); }
static void topk_all(syn_problem *p) { topk(p, FMT_F32, 40, 0); }

static void rope(syn_problem *p, int interleaved, const char *dims, const char *strides)
{
    ir_id x = in(p, FMT_F32, dims, strides), c = in(p, FMT_F32, dims, "? 0 1"),
          s = in(p, FMT_F32, dims, interleaved ? "? 0 2" : "? 0 1"), all[] = {x, c, s};
    out(p, ir_emit(p->region, IR_rope, all, 3, &(ir_attrs){.i = {interleaved}}), strides);
}
static void rope_halves(syn_problem *p) { rope(p, 0, "s0 3 24", "? ? 1"); }
static void rope_pairs(syn_problem *p) /* rows longer than a unit */
{
    rope(p, 1, "s0 3 1100", "? ? 2");
}

static void argreduce(syn_problem *p, fmt_dtype t, ir_op op, int last)
{
    ir_id x = in(p, t, "s0 s1", "? 1");
    ir_attrs at = {.i = {1, last}};
    out(p, ir_emit(p->region, op, &x, 1, &at), "2");
}
static void argmax_ties(syn_problem *p) { argreduce(p, FMT_I32, IR_argmax, 0); }
static void argmin_last(syn_problem *p)
{
    ir_id x = in(p, FMT_I32, "s0 100 s1", "? ? 1");
    ir_attrs at = {.i = {2, 1}};
    out(p, ir_emit(p->region, IR_argmin, &x, 1, &at), "? 2");
}
static void argmax_float(syn_problem *p) { argreduce(p, FMT_F32, IR_argmax, 0); }

static void copy_turned(syn_problem *p) { out(p, in(p, FMT_F32, "s0 3 s1", "1 ? ?"), "? ? 1"); }
static void copy_rows(syn_problem *p) { out(p, in(p, FMT_I64, "s0 s1", "? 1"), "? 2"); }

const bed mutant_beds[] = {
    {"cpu/gemm", gemm_packed, NULL, {40}, {97}},
    {"cpu/gemm", gemm_packed, "MR=2 NP=2 MB=16 NB=2 ORDER=1 PF=2 KU=2", {70}, {97}},
    {"cpu/gemm", gemm_batch, "MR=3 NP=1 MB=0 NB=3 ORDER=0 PF=1 KU=1", {4, 40}, {2, 97}},
    {"cpu/gemm", gemm_turned, "MR=2 NP=2 MB=16 NB=2 ORDER=0 PF=0 KU=1", {40, 70}, {97, 48}},
    {"cpu/gemm", gemm_strided, NULL, {40}, {97}},
    {"cpu/gemm", gemm_fixed, "MR=6 NP=1 MB=32 NB=2 ORDER=0 PF=0 KU=1", {4}, {5}},
    {"cpu/gemm", gemm_one_over, NULL, {40}, {97}},
    {"cpu/attention", attention_row, NULL, {2, 40, 40}, {1, 20, 530}},
    {"cpu/attention", attention_full, "NP=2 KR=3 QR=3 VP=2 KU=1", {2, 130, 40}, {1, 50, 530}},
    {"cpu/attention", attention_causal, NULL, {2, 130, 130}, {1, 33, 530}},
    {"cpu/attention", attention_guard, NULL, {2, 130}, {1, 64}},
    {"cpu/attention", attention_plain, NULL, {2, 70}, {1, 101}},
    {"cpu/attention", attention_fixed, NULL, {2, 70}, {2, 101}},
    {"cpu/attention", attention_fixed, "NP=2 KR=3 QR=3 VP=2 KU=1", {2, 70}, {2, 101}},
    {"cpu/reduce", reduce_mean, NULL, {40, 130}, {3, 16897}},
    {"cpu/reduce", reduce_column, NULL, {130, 40}, {70, 1100}},
    {"cpu/reduce", reduce_axes, NULL, {40, 130}, {3, 700}},
    {"cpu/reduce", reduce_all, NULL, {16, 95}, {30, 97}},
    {"cpu/row", row_softmax, NULL, {70, 130}, {3, 5000}},
    {"cpu/row", row_layernorm, NULL, {70, 130}, {70, 2100}},
    {"cpu/row", row_rmsnorm, NULL, {130, 0}, {170}},
    {"cpu/eltwise", eltwise_line, "CHUNK=1024", {130}, {1100003}},
    {"cpu/eltwise", eltwise_nest, NULL, {40, 70}, {30, 97}},
    {"cpu/gather", gather_rows, NULL, {130, 70}, {97, 5000}},
    {"cpu/gather_nd", gather_nd, NULL, {130, 70}, {97, 5000}},
    {"cpu/gather_elements", gather_elements, NULL, {130, 70}, {97, 101}},
    {"cpu/cumsum", cumsum_plain, NULL, {130, 130}, {97, 150}},
    {"cpu/cumsum", cumsum_back, NULL, {130, 130}, {97, 150}},
    {"cpu/topk", topk_ties, NULL, {70}, {70}},
    {"cpu/topk", topk_all, NULL, {70}, {70}},
    {"cpu/rope", rope_halves, NULL, {130}, {200}},
    {"cpu/rope", rope_pairs, "WORK=1024", {20}, {30}},
    {"cpu/argreduce", argmax_ties, NULL, {130, 130}, {3, 17000}},
    {"cpu/argreduce", argmin_last, NULL, {20, 40}, {60, 33}},
    {"cpu/argreduce", argmax_float, NULL, {130, 130}, {2000, 1100}},
    {"cpu/copy", copy_turned, NULL, {130, 130}, {40, 2100}},
    {"cpu/copy", copy_rows, NULL, {130, 130}, {40, 2100}},
};

const size_t mutant_bed_count = COUNT_OF(mutant_beds);
