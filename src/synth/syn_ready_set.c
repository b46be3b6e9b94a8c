/* The precompiled set as problems: one problem a kernel, in its general form.
 *   layer    L3 synth, build time only (linked into the program that compiles the set)
 *   entry    syn_ready_each
 *   why      single ops come from ops.def by asking the graph builder which dtypes each accepts, so that a new elementwise op
 *            is in the set without another table; only the epilogue menu is a list, in syn_ready.def */
#include "syn_ready_set.h"
#include <stdio.h>

typedef struct set {
    syn_ready_fn fn;
    void *ctx;
    rtx_err *err;
    rtx_status status;
    uint32_t n;
    bool rare; /* of the problem being made */
} set;

/* A problem being made: operands are inputs of free sizes. */
typedef struct maker {
    syn_problem *p;
    ir_graph *g;
    fmt_dim dim[8]; /* s0… */
} maker;

static const fmt_dtype dtypes[] = {FMT_F32, FMT_I64, FMT_I32, FMT_BOOL, FMT_F16, FMT_BF16, FMT_F64};
static const fmt_dtype by_size[] = {FMT_BOOL, FMT_BF16, FMT_F32, FMT_I64};
static const fmt_dtype indices[] = {FMT_I64, FMT_I32};

static bool start(set *s, maker *m)
{
    m->p = s->status == RTX_OK ? syn_problem_new() : NULL;
    if (m->p == NULL) {
        if (s->status == RTX_OK)
            s->status = FAIL(s->err, NOMEM, "out of memory");
        return false;
    }
    m->g = m->p->region;
    for (int i = 0; i < 8; i++) {
        char name[16];
        snprintf(name, sizeof name, "s%d", i);
        m->dim[i] = fmt_dim_sym(m->p->dims, fmt_sym_new(m->p->dims, name, 0, FMT_DIM_LIMIT));
    }
    return true;
}

/* The next input; sizes are indices of m->dim. */
static ir_id input(maker *m, fmt_dtype t, int rank, const int *sizes)
{
    ir_type type = {.dtype = t, .rank = (uint8_t)rank};
    for (int k = 0; k < rank; k++)
        type.dim[k] = m->dim[sizes[k]];
    return ir_input(m->g, syn_port_name(false, m->p->n_in++), &type);
}
#define INPUT(m, t, ...)                                                                           \
    input((m), (t), (int)COUNT_OF(((const int[]){__VA_ARGS__})), (const int[]){__VA_ARGS__})

/* Make the general form and hand it on. A graph that the builder refused is no member of the set. */
static void finish(set *s, maker *m, ir_id out)
{
    syn_source args[SYN_SYMS_MAX + SYN_OPERANDS_MAX * FMT_RANK_MAX + 2];
    uint32_t n;
    syn_problem *q = NULL;
    if (ir_ok(m->g, NULL) == RTX_OK) {
        m->p->n_out = 1;
        ir_output(m->g, syn_port_name(true, 0), out);
        if (syn_problem_check(m->p, NULL) == RTX_OK) {
            s->status = syn_problem_general(m->p, &q, args, &n, COUNT_OF(args), s->err);
            if (s->status == RTX_OK)
                s->status = s->fn(s->ctx, q, s->n++, s->rare, s->err);
        }
    }
    syn_problem_free(q);
    syn_problem_free(m->p);
}

static void stride(maker *m, uint32_t o, int axis, int64_t v)
{
    m->p->stride[o][axis] = fmt_dim_const(m->p->dims, v);
}

/* ---- elementwise ---- */

static void add_elementwise(set *s)
{
    maker m;
    for (unsigned op = IR_NONE + 1; op < IR_OP_COUNT; op++) {
        const ir_op_info *info = ir_op_get((ir_op)op);
        if (!info->elementwise || op == IR_cast || op == IR_select)
            continue;
        for (int t = 0; t < 4; t++)
            if (start(s, &m)) {
                ir_id a = INPUT(&m, dtypes[t], 0),
                      b = info->max_in > 1 ? INPUT(&m, dtypes[t], 0) : 0;
                finish(s, &m, ir_emit(m.g, (ir_op)op, (const ir_id[2]){a, b}, info->max_in, NULL));
            }
    }
    for (size_t t = 0; t < COUNT_OF(by_size); t++)
        if (start(s, &m)) {
            ir_id c = INPUT(&m, FMT_BOOL, 0), a = INPUT(&m, by_size[t], 0),
                  b = INPUT(&m, by_size[t], 0);
            finish(s, &m, ir_emit3(m.g, IR_select, c, a, b));
        }
    if (start(s, &m)) {
        ir_id c = INPUT(&m, FMT_BOOL, 0), a = INPUT(&m, FMT_I32, 0), b = INPUT(&m, FMT_I32, 0);
        finish(s, &m, ir_emit3(m.g, IR_select, c, a, b));
    }
    for (size_t from = 0; from < COUNT_OF(dtypes); from++)
        for (size_t to = 0; to < COUNT_OF(dtypes); to++)
            if (from != to && start(s, &m))
                finish(s, &m, ir_cast(m.g, INPUT(&m, dtypes[from], 0), dtypes[to]));
    for (size_t t = 0; t < COUNT_OF(by_size); t++)
        if (start(s, &m))
            finish(s, &m, INPUT(&m, by_size[t], 0));
    if (start(s, &m))
        finish(s, &m, ir_emit(m.g, IR_iota, NULL, 0, &(ir_attrs){.dims = {m.dim[0]}, .n_dims = 1}));
}

/* ---- reductions and rows ---- */

static void add_reductions(set *s)
{
    maker m;
    for (unsigned op = IR_reduce_sum; op <= IR_reduce_prod; op++)
        for (int t = 0; t < 3; t++)
            if (start(s, &m))
                finish(s, &m,
                       ir_reduce(m.g, (ir_op)op, INPUT(&m, dtypes[t], 0, 1), (const int64_t[]){1},
                                 1, false));
    for (unsigned op = IR_argmax; op <= IR_argmin; op++)
        for (int t = 0; t < 3; t++)
            for (int last = 0; last < 2; last++)
                if (start(s, &m)) {
                    ir_id x = INPUT(&m, dtypes[t], 0, 1);
                    finish(s, &m, ir_emit(m.g, (ir_op)op, &x, 1, &(ir_attrs){.i = {1, last}}));
                }
    static const struct {
        ir_op op;
        uint32_t n;
    } rows[] = {{IR_softmax, 1},   {IR_layernorm, 1}, {IR_layernorm, 2},
                {IR_layernorm, 3}, {IR_rmsnorm, 1},   {IR_rmsnorm, 2}};
    for (size_t k = 0; k < COUNT_OF(rows); k++)
        if (start(s, &m)) {
            ir_id in[3] = {INPUT(&m, FMT_F32, 0, 1)};
            for (uint32_t i = 1; i < rows[k].n; i++)
                in[i] = INPUT(&m, FMT_F32, 1);
            finish(s, &m,
                   ir_emit(m.g, rows[k].op, in, rows[k].n,
                           &(ir_attrs){.f = {rows[k].n > 0 ? 1.0 : 0.0}}));
        }
    for (int interleaved = 0; interleaved < 2; interleaved++)
        if (start(s, &m)) {
            ir_id in[3];
            for (int i = 0; i < 3; i++)
                in[i] = INPUT(&m, FMT_F32, 0, 1);
            finish(s, &m, ir_emit(m.g, IR_rope, in, 3, &(ir_attrs){.i = {interleaved}}));
        }
}

/* ---- movement and scans ---- */

static void add_movement(set *s)
{
    maker m;
    for (size_t t = 0; t < COUNT_OF(by_size); t++)
        for (size_t i = 0; i < COUNT_OF(indices); i++) {
            if (start(s, &m)) {
                ir_id x = INPUT(&m, by_size[t], 0, 1, 2), ix = INPUT(&m, indices[i], 3);
                finish(s, &m,
                       ir_emit(m.g, IR_gather, (const ir_id[2]){x, ix}, 2, &(ir_attrs){.i = {1}}));
            }
            if (start(s, &m)) {
                ir_id x = INPUT(&m, by_size[t], 0), ix = INPUT(&m, indices[i], 0);
                finish(s, &m, ir_emit2(m.g, IR_gather_elements, x, ix));
            }
            for (int depth = 1; depth <= 4 && indices[i] == FMT_I64; depth++) /* as ONNX has it */
                if (start(s, &m)) {
                    ir_id x = input(&m, by_size[t], depth + 2, (const int[]){0, 1, 2, 3, 4, 5});
                    m.dim[7] = fmt_dim_const(m.p->dims, depth);
                    ir_id in[2] = {x, INPUT(&m, indices[i], 0, 6, 7)};
                    finish(s, &m, ir_emit(m.g, IR_gather_nd, in, 2, &(ir_attrs){.i = {1}}));
                }
        }
    for (int t = 0; t < 3; t++)
        for (int k = 0; k < 4; k++)
            if (start(s, &m)) {
                ir_id x = INPUT(&m, dtypes[t], 0, 1, 2);
                finish(s, &m, ir_emit(m.g, IR_cumsum, &x, 1, &(ir_attrs){.i = {1, k & 1, k >> 1}}));
            }
    for (int t = 0; t < 3; t++)
        for (int largest = 0; largest < 2; largest++)
            if (start(s, &m)) {
                ir_id x = INPUT(&m, dtypes[t], 0, 1, 2);
                finish(s, &m,
                       ir_emit(m.g, IR_topk, &x, 1,
                               &(ir_attrs){.i = {1, largest}, .dims = {m.dim[3]}, .n_dims = 1}));
            }
    for (uint32_t n = 1; n <= FMT_RANK_MAX; n++)
        if (start(s, &m))
            finish(s, &m, ir_dimvals(m.g, m.dim, n, false));
    if (start(s, &m))
        finish(s, &m, ir_dimvals(m.g, m.dim, 1, true));
}

/* ---- dot and attention ---- */

static void add_gemm(set *s, bool packed, bool any_k, const char *epilogue)
{
    maker m;
    if (!start(s, &m))
        return;
    ir_id a = INPUT(&m, FMT_F32, 0, 1), b = INPUT(&m, FMT_F32, 1, 2),
          v = ir_emit2(m.g, IR_dot, a, b);
    m.p->packed[1] = packed;
    if (!any_k)
        stride(&m, 0, 1, 1);
    for (const char *w = epilogue; *w;) {
        size_t n = strcspn(w, " "), dot = strcspn(w, ".");
        bool before = dot == 1 && dot<n, behind = dot> 1 && dot < n;
        const char *name = before ? w + 2 : w;
        ir_op op = ir_op_find(name, before ? n - 2 : MIN(dot, n));
        if (before || behind) {
            stride(&m, m.p->n_in, 1, (before ? w[0] : w[dot + 1]) == 'x');
            ir_id x = INPUT(&m, FMT_F32, 0, 2);
            v = before ? ir_emit2(m.g, op, x, v) : ir_emit2(m.g, op, v, x);
        } else {
            v = ir_emit1(m.g, op, v);
        }
        w += n + (w[n] == ' ');
    }
    stride(&m, m.p->n_in, 1, 1);
    s->rare = any_k;
    finish(s, &m, v);
    s->rare = false;
}

static void add_attention(set *s, bool mask, int causal, bool adjacent)
{
    maker m;
    if (!start(s, &m))
        return;
    ir_id q = INPUT(&m, FMT_F32, 0, 1, 2, 3), k = INPUT(&m, FMT_F32, 0, 1, 4, 3),
          v = INPUT(&m, FMT_F32, 0, 1, 4, 5);
    ir_id in[4] = {q, k, v, mask ? INPUT(&m, FMT_F32, 0, 1, 2, 4) : 0};
    for (uint32_t o = 0; adjacent && o < 4u + mask; o++)
        if (!(mask && o == 3))
            stride(&m, o, 3, 1);
    s->rare = !adjacent;
    finish(s, &m, ir_emit(m.g, IR_attention, in, 3 + mask, &(ir_attrs){.f = {1.0}, .i = {causal}}));
    s->rare = false;
}

rtx_status syn_ready_each(syn_ready_fn fn, void *ctx, rtx_err *err)
{
    set s = {.fn = fn, .ctx = ctx, .err = err};
#define GEMM(packed, any_k, epilogue) add_gemm(&s, packed, any_k, epilogue);
#define RARE(templ, params)
#include "syn_ready.def"
#undef GEMM
#undef RARE
    for (int k = 0; k < 8; k++)
        add_attention(&s, k & 1, k >> 1 & 1, k < 4);
    add_reductions(&s);
    add_movement(&s);
    add_elementwise(&s);
    return s.status;
}
