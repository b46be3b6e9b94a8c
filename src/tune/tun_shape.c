/* A problem at one size: how its operands lie in memory.
 *   strides    constants as the problem says; those known only at run time get the tightest row-major layout plus
 *              `pad` spare elements, and one more an operand: a kernel that ignores or confuses stride arguments is seen */
#include "tun_int.h"

#define WEIGHT_BYTES ((int64_t)64 << 10) /* constants from here on count as streamed */

/* ---- what an operand is for ---- */

static bool has_symbols(const fmt_dims *dims, const ir_type *t)
{
    for (uint32_t d = 0; d < t->rank; d++)
        if (!fmt_dim_is_const(dims, t->dim[d], NULL))
            return true;
    return false;
}

/* Largest index that is valid along every axis that a component of the indices may address. */
static int64_t index_bound(const tun_shape *s, const ir_graph *g, ir_id gather, const int64_t *xdim,
                           int xrank, const tun_operand *idx)
{
    const ir_attrs *a = ir_attrs_of(g, gather);
    (void)s;
    if (ir_op_of(g, gather) != IR_gather_nd)
        return xrank ? xdim[MIN(MAX(a->i[0], 0), xrank - 1)] : 1;
    int64_t batch = a->i[0], r = idx->rank ? idx->dim[idx->rank - 1] : 1, bound = INT64_MAX;
    for (int64_t c = 0; c < r && batch + c < xrank; c++)
        bound = MIN(bound, xdim[batch + c]);
    return bound == INT64_MAX ? 1 : bound;
}

static uint32_t input_of(const ir_graph *g, ir_id id)
{
    for (uint32_t i = 0; i < g->n_inputs; i++)
        if (g->inputs[i].id == id)
            return i;
    return UINT32_MAX;
}

/* Masks and indices are recognised by the node that uses them. */
static void classify(const syn_problem *p, tun_shape *s)
{
    const ir_graph *g = p->region;
    for (ir_id id = 1; id < g->n_nodes; id++) {
        ir_op op = ir_op_of(g, id);
        uint32_t n_in = g->nodes[id].n_in;
        if (op == IR_attention && n_in == 4) {
            uint32_t m = input_of(g, ir_in(g, id, 3));
            if (m != UINT32_MAX)
                s->op[m].values = TUN_MASK;
        }
        if (op != IR_gather && op != IR_gather_nd && op != IR_gather_elements)
            continue;
        uint32_t x = input_of(g, ir_in(g, id, 0)), i = input_of(g, ir_in(g, id, 1));
        if (i == UINT32_MAX || x == UINT32_MAX)
            continue;
        s->op[i].values = TUN_INDEX;
        s->op[i].bound = index_bound(s, g, id, s->op[x].dim, s->op[x].rank, &s->op[i]);
    }
}

/* Longest sum of the region: decides how far one element may be off. */
static int64_t longest_sum(const syn_problem *p, const int64_t *sym)
{
    const ir_graph *g = p->region;
    int64_t depth = 1;
    for (ir_id id = 1; id < g->n_nodes; id++) {
        if (g->nodes[id].n_in == 0)
            continue;
        const ir_type *x = ir_type_of(g, ir_in(g, id, 0));
        const ir_op_info *info = ir_op_get(ir_op_of(g, id));
        if (info->elementwise || info->view || x->rank == 0)
            continue;
        int64_t n = 1, k = 1;
        for (uint32_t d = 0; d < x->rank; d++)
            if (fmt_dim_eval(p->dims, x->dim[d], sym, &k))
                n = MAX(n, k); /* an upper bound that needs no rule an op */
        if (ir_op_of(g, id) == IR_attention &&
            fmt_dim_eval(p->dims, ir_type_of(g, ir_in(g, id, 1))->dim[2], sym, &k))
            n = MAX(n, k);
        else if (ir_op_of(g, id) == IR_dot && fmt_dim_eval(p->dims, x->dim[x->rank - 1], sym, &k))
            n = k;
        depth = MAX(depth, n);
    }
    return depth;
}

/* ---- layout ---- */

static rtx_status lay_out(const syn_problem *p, uint32_t index, const int64_t *sym, int64_t pad,
                          tun_operand *o, rtx_err *err)
{
    const ir_graph *g = p->region;
    const ir_type *t =
        ir_type_of(g, index < p->n_in ? g->inputs[index].id : g->outputs[index - p->n_in].id);
    *o = (tun_operand){.dtype = t->dtype,
                       .rank = t->rank,
                       .packed = p->packed[index],
                       .output = index >= p->n_in,
                       .elems = 1,
                       .bound = 1};
    for (int d = 0; d < o->rank; d++) {
        if (!fmt_dim_eval(p->dims, t->dim[d], sym, &o->dim[d]) || o->dim[d] < 0)
            return FAIL(err, INVALID, "operand %u: size %d has no value", index, d);
        if (o->dim[d] && o->elems > FMT_DIM_LIMIT / o->dim[d])
            return FAIL(err, INVALID, "operand %u is too large", index);
        o->elems *= o->dim[d];
    }
    int64_t above = 0, reach = 1; /* reach: span of the axes whose strides are known */
    bool known[FMT_RANK_MAX];
    for (int d = 0; d < o->rank; d++) {
        known[d] = p->stride[index][d] != FMT_DIM_BAD &&
                   fmt_dim_eval(p->dims, p->stride[index][d], sym, &o->stride[d]);
        if (known[d] && o->dim[d] > 0)
            reach += (o->dim[d] - 1) * (o->stride[d] < 0 ? -o->stride[d] : o->stride[d]);
    }
    for (int d = o->rank - 1; d >= 0; d--) {
        if (known[d])
            continue;
        o->stride[d] = reach + (reach > 1 && pad ? pad + index : 0);
        reach += MAX(o->dim[d] - 1, 0) * o->stride[d];
    }
    for (int d = 0; d < o->rank; d++) {
        int64_t far = MAX(o->dim[d] - 1, 0) * o->stride[d];
        *(far < 0 ? &o->below : &above) += far < 0 ? -far : far;
    }
    if (!o->elems) /* nothing lies below nothing */
        o->below = 0;
    o->extent = o->elems ? o->below + above + 1 : 0;
    if (o->packed) {
        int64_t k = o->dim[o->rank - 2], n = o->dim[o->rank - 1];
        int64_t batch = k && n ? o->elems / (k * n) : 0;
        o->below = 0;
        o->extent = batch * (int64_t)syn_pack_floats(k, n);
    }
    o->weight = !o->output && (o->packed || !has_symbols(p->dims, t)) &&
                o->extent * (int64_t)fmt_dtype_bytes(o->dtype) >= WEIGHT_BYTES;
    return RTX_OK;
}

rtx_status tun_shape_init(const syn_problem *p, const int64_t *sym, int64_t pad, tun_shape *out,
                          rtx_err *err)
{
    tun_shape *s = out;
    memset(s, 0, sizeof *s);
    s->n_sym = fmt_sym_count(p->dims);
    s->n_in = p->n_in;
    s->n_op = p->n_in + p->n_out;
    s->n_arg = syn_arg_count(p);
    if (s->n_sym > SYN_SYMS_MAX || s->n_op > SYN_OPERANDS_MAX || s->n_arg > FMT_WORK_ARGS)
        return FAIL(err, UNSUPPORTED,
                    "the problem has more symbols, operands or arguments than can be tested");
    memcpy(s->sym, sym, s->n_sym * sizeof *sym);
    memcpy(s->arg, sym, s->n_sym * sizeof *sym);
    for (uint32_t i = 0; i < s->n_op; i++) {
        TRY(lay_out(p, i, s->sym, pad, &s->op[i], err));
        for (int d = 0; d < s->op[i].rank; d++)
            s->arg[syn_arg_stride(p, i, (uint32_t)d)] = s->op[i].stride[d];
        s->op[i].values = fmt_dtype_class(s->op[i].dtype) == 'B'   ? TUN_BIT
                          : fmt_dtype_class(s->op[i].dtype) == 'I' ? TUN_SMALL_INT
                                                                   : TUN_NORMAL;
    }
    classify(p, s);
    tun_values_classify(p, s);
    s->depth = longest_sum(p, s->sym);
    syn_cost(p, s->sym, &s->flops, &s->bytes);
    return RTX_OK;
}

size_t tun_operand_bytes(const tun_operand *o)
{
    return (size_t)o->extent * fmt_dtype_bytes(o->dtype);
}

/* ---- walking ---- */

tun_walk tun_walk_of(const tun_operand *o)
{
    tun_walk w = {.offset = o->below};
    return w;
}

void tun_walk_next(const tun_operand *o, tun_walk *w)
{
    w->i++;
    for (int d = o->rank - 1; d >= 0; d--) {
        w->offset += o->stride[d];
        if (++w->at[d] < o->dim[d])
            return;
        w->offset -= o->dim[d] * o->stride[d];
        w->at[d] = 0;
    }
}
