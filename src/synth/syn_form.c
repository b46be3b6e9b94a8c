/* Classification of a problem: which normal form its region has, or why it has none.
 *   layer    L3 synth; may include base, format, ir
 *   entry    syn_form_of, syn_problem_check */
#include "syn_form.h"

static const char *const family_templates[SYN_FAMILY_COUNT] = {
#define SYN_FAMILY_ROW(name, templ) [SYN_##name] = templ,
    SYN_FAMILY_TABLE(SYN_FAMILY_ROW)
#undef SYN_FAMILY_ROW
};

const char *syn_family_template(syn_family f) { return family_templates[f]; }

#define NO(...) FAIL(err, UNSUPPORTED, __VA_ARGS__)

typedef enum part {
    PART_DEAD,
    PART_EPILOGUE,
    PART_PROLOGUE
} part; /* prologue: the anchor needs it */

typedef struct checker {
    const syn_problem *p;
    const ir_graph *g;
    syn_form *f;
    uint8_t *part; /* of each node */
    rtx_err *err;
} checker;

static bool is_scalar_const(const ir_graph *g, ir_id id)
{
    return ir_op_of(g, id) == IR_const && ir_type_of(g, id)->rank == 0;
}

/* Sources, constants spread over a shape, and elementwise work; everything else anchors. */
static bool is_plain(const ir_graph *g, ir_id id)
{
    ir_op op = ir_op_of(g, id);
    if (op == IR_input || op == IR_iota || ir_op_get(op)->elementwise)
        return true;
    return is_scalar_const(g, id) || (op == IR_broadcast && is_scalar_const(g, ir_in(g, id, 0)));
}

static void mark(const checker *c, ir_id from, part what)
{
    c->part[from] = (uint8_t)what;
    for (ir_id id = from; id > 0; id--)
        for (uint32_t k = 0; c->part[id] >= what && k < ir_node_get(c->g, id)->n_in; k++)
            c->part[ir_in(c->g, id, k)] = (uint8_t)what;
}

/* Find the anchor and what is live. Symbols must be named s0, s1…, since the text of a problem holds only their order. */
static rtx_status find_anchor(checker *c)
{
    rtx_err *err = c->err;
    for (uint32_t k = 0; k < c->g->n_outputs; k++)
        mark(c, c->g->outputs[k].id, PART_EPILOGUE);
    for (ir_id id = 1; id < c->g->n_nodes; id++) {
        if (c->part[id] == PART_DEAD || is_plain(c->g, id))
            continue;
        if (c->f->anchor)
            return NO("a region with both %s and %s", ir_op_get(c->f->op)->name,
                      ir_op_get(ir_op_of(c->g, id))->name);
        c->f->anchor = id;
        c->f->op = ir_op_of(c->g, id);
    }
    if (c->f->anchor) {
        mark(c, c->f->anchor, PART_PROLOGUE);
        c->part[c->f->anchor] = PART_EPILOGUE;
    }
    return RTX_OK;
}

static rtx_status check_dims(const checker *c)
{
    rtx_err *err = c->err;
    const syn_problem *p = c->p;
    if (fmt_sym_count(p->dims) > SYN_SYMS_MAX)
        return NO("a region with more than %d free sizes", SYN_SYMS_MAX);
    for (uint32_t o = 0; o < c->f->n_ops; o++) {
        const ir_type *t = syn_operand_type(p, o);
        if (fmt_dtype_bytes(t->dtype) == 0)
            return NO("operand %u has dtype %s", o, fmt_dtype_name(t->dtype));
        for (int k = 0; k < t->rank; k++)
            if (!fmt_dim_is_const(p->dims, t->dim[k], NULL) &&
                !fmt_dim_is_sym(p->dims, t->dim[k], NULL))
                return NO("axis %d of operand %u is neither a number nor a symbol", k, o);
    }
    return RTX_OK;
}

static bool same_dims(const ir_type *t, const fmt_dim *dims, int rank)
{
    return t->rank == rank && (rank == 0 || memcmp(t->dim, dims, (size_t)rank * sizeof *dims) == 0);
}

/* Every elementwise node of a part has the given shape and an expression for its dtype. */
static rtx_status check_part(const checker *c, part which, const fmt_dim *dims, int rank)
{
    rtx_err *err = c->err;
    for (ir_id id = 1; id < c->g->n_nodes; id++) {
        if (c->part[id] != which || id == c->f->anchor || ir_op_of(c->g, id) == IR_input ||
            is_scalar_const(c->g, id))
            continue;
        const char *name = ir_op_get(ir_op_of(c->g, id))->name;
        if (!is_plain(c->g, id))
            return NO("%s inside a fused region", name);
        if (!same_dims(ir_type_of(c->g, id), dims, rank))
            return NO("%s has another shape than its region", name);
        if (!syn_expr_exists(c->g, id))
            return NO("%s of %s", name,
                      fmt_dtype_name(ir_type_of(c->g, ir_in(c->g, id, 0))->dtype));
        if (ir_op_of(c->g, id) != IR_iota)
            continue;
        if (c->f->n_slots == SYN_SLOTS_MAX)
            return NO("more than %d operands and iotas", SYN_SLOTS_MAX);
        c->f->slot_node[c->f->n_slots++] = id;
    }
    return RTX_OK;
}

/* Inputs that a part reads have the given shape. */
static rtx_status check_inputs(const checker *c, part which, const fmt_dim *dims, int rank)
{
    rtx_err *err = c->err;
    for (uint32_t o = 0; o < c->p->n_in; o++) {
        ir_id id = syn_operand_id(c->p, o);
        if (c->part[id] == which && !same_dims(ir_type_of(c->g, id), dims, rank))
            return NO("operand %u has another shape than its region", o);
    }
    return RTX_OK;
}

/* Outputs and what computes them from the anchor. */
static rtx_status check_epilogue(const checker *c, const fmt_dim *dims, int rank)
{
    rtx_err *err = c->err;
    TRY(check_part(c, PART_EPILOGUE, dims, rank));
    for (uint32_t k = 0; k < c->p->n_out; k++)
        if (!same_dims(syn_operand_type(c->p, c->p->n_in + k), dims, rank))
            return NO("output %u has another shape than its region", k);
    return RTX_OK;
}

static rtx_status check_eltwise(const checker *c)
{
    const ir_type *t = syn_operand_type(c->p, c->p->n_in);
    const ir_graph *g = c->g;
    bool copy = c->p->n_in == 1 && c->p->n_out == 1 && g->outputs[0].id == g->inputs[0].id;
    c->f->family = copy ? SYN_COPY : SYN_ELTWISE;
    c->f->outer = (uint8_t)MAX(t->rank - 1, 0);
    TRY(check_inputs(c, PART_EPILOGUE, t->dim, t->rank));
    return check_epilogue(c, t->dim, t->rank);
}

static rtx_status check_reduce(const checker *c)
{
    rtx_err *err = c->err;
    const ir_attrs *at = ir_attrs_of(c->g, c->f->anchor);
    const ir_type *x = ir_type_of(c->g, ir_in(c->g, c->f->anchor, 0)),
                  *y = ir_type_of(c->g, c->f->anchor);
    bool arg = c->f->op == IR_argmax || c->f->op == IR_argmin;
    c->f->family = arg ? SYN_ARGREDUCE : SYN_REDUCE;
    c->f->outer = y->rank;
    if (arg && at->i[0] != x->rank - 1)
        return NO("%s over another axis than the last", ir_op_get(c->f->op)->name);
    for (int k = 0; !arg && k < at->n_list; k++)
        if (at->list[k] != y->rank + k)
            return NO("%s over axes that are not the last ones", ir_op_get(c->f->op)->name);
    if (x->rank == y->rank)
        return NO("%s over no axis", ir_op_get(c->f->op)->name);
    TRY(check_part(c, PART_PROLOGUE, x->dim, x->rank));
    TRY(check_inputs(c, PART_PROLOGUE, x->dim, x->rank));
    TRY(check_inputs(c, PART_EPILOGUE, y->dim, y->rank));
    return check_epilogue(c, y->dim, y->rank);
}

static rtx_status check_row(const checker *c)
{
    rtx_err *err = c->err;
    const ir_graph *g = c->g;
    const ir_type *y = ir_type_of(g, c->f->anchor);
    if (y->rank == 0)
        return NO("%s of a scalar", ir_op_get(c->f->op)->name);
    c->f->family = SYN_ROW;
    c->f->outer = (uint8_t)(y->rank - 1);
    /* Parameters are operands [C], read by the anchor only. */
    for (uint32_t k = 1; k < ir_node_get(g, c->f->anchor)->n_in; k++)
        if (ir_op_of(g, ir_in(g, c->f->anchor, k)) != IR_input)
            return NO("gamma or beta of %s is computed", ir_op_get(c->f->op)->name);
    TRY(check_part(c, PART_PROLOGUE, y->dim, y->rank));
    for (uint32_t o = 0; o < c->p->n_in; o++) {
        ir_id id = syn_operand_id(c->p, o);
        bool param = false;
        for (uint32_t k = 1; k < ir_node_get(g, c->f->anchor)->n_in; k++)
            param |= ir_in(g, c->f->anchor, k) == id;
        if (!param && c->part[id] != PART_DEAD && !same_dims(ir_type_of(g, id), y->dim, y->rank))
            return NO("operand %u has another shape than its region", o);
        if (param && ir_type_of(g, id)->rank != 1)
            return NO("gamma or beta is not one axis");
    }
    return check_epilogue(c, y->dim, y->rank);
}

static rtx_status anchor_reads_operands(const checker *c)
{
    rtx_err *err = c->err;
    for (uint32_t k = 0; k < ir_node_get(c->g, c->f->anchor)->n_in; k++)
        if (syn_operand_of(c->p, ir_in(c->g, c->f->anchor, k)) == FMT_NONE)
            return NO("input %u of %s is computed", k, ir_op_get(c->f->op)->name);
    return RTX_OK;
}

static rtx_status check_gemm(const checker *c)
{
    rtx_err *err = c->err;
    const ir_type *y = ir_type_of(c->g, c->f->anchor);
    int64_t v;
    c->f->family = SYN_GEMM;
    c->f->outer = (uint8_t)(y->rank - 1);
    TRY(anchor_reads_operands(c));
    if (y->rank > 4)
        return NO("dot with %d batch axes", y->rank - 2);
    for (uint32_t k = 0; k < c->p->n_out; k++)
        if (!syn_stride_const(c->p, c->p->n_in + k, y->rank - 1, &v) || v != 1)
            return NO("columns of output %u are not adjacent", k);
    for (uint32_t o = 0; o < c->p->n_in; o++) {
        ir_id id = syn_operand_id(c->p, o);
        bool own = id == ir_in(c->g, c->f->anchor, 0) || id == ir_in(c->g, c->f->anchor, 1);
        if (!own && c->part[id] != PART_DEAD && !same_dims(ir_type_of(c->g, id), y->dim, y->rank))
            return NO("operand %u has another shape than its region", o);
        if (c->p->packed[o] && id != ir_in(c->g, c->f->anchor, 1))
            return NO("operand %u is packed, but is not b of a dot", o);
    }
    TRY(check_epilogue(c, y->dim, y->rank));
    return c->f->n_slots > c->f->n_ops ? NO("iota after dot") : RTX_OK;
}

/* Anchors that take operands as they are and give the one output. */
static rtx_status check_alone(const checker *c)
{
    rtx_err *err = c->err;
    const ir_graph *g = c->g;
    const ir_attrs *at = ir_attrs_of(g, c->f->anchor);
    const char *name = ir_op_get(c->f->op)->name;
    uint32_t n = ir_node_get(g, c->f->anchor)->n_in;
    if (c->p->n_out != 1 || c->p->n_in != n || g->outputs[0].id != c->f->anchor)
        return NO("%s with work fused to it", name);
    for (uint32_t k = 0; k < n; k++)
        if (ir_in(g, c->f->anchor, k) != g->inputs[k].id)
            return NO("%s does not read its operands in order", name);
    const ir_type *x = n ? ir_type_of(g, g->inputs[0].id) : NULL;
    switch (c->f->family) {
    case SYN_ROPE:
        c->f->outer = (uint8_t)(x->rank - 1);
        return x->rank ? RTX_OK : NO("rope of a scalar");
    case SYN_GATHER:
        return x->rank == 3 && at->i[0] == 1 && ir_type_of(g, g->inputs[1].id)->rank == 1
                   ? RTX_OK
                   : NO("gather in another form than [o,A,i] by [j]");
    case SYN_GATHER_ND: {
        const ir_type *idx = ir_type_of(g, g->inputs[1].id);
        return at->i[0] == 1 && idx->rank == 3 && fmt_dim_is(c->p->dims, idx->dim[2], x->rank - 2)
                   ? RTX_OK
                   : NO("gather_nd in another form than [b,d…,i] by [b,j,r]");
    }
    case SYN_CUMSUM:
    case SYN_TOPK:
        return x->rank == 3 && at->i[0] == 1 ? RTX_OK
                                             : NO("%s in another form than [o,A,i] axis 1", name);
    default:
        return RTX_OK;
    }
}

static rtx_status classify(const checker *c)
{
    rtx_err *err = c->err;
    switch (c->f->op) {
    case IR_NONE:
        return check_eltwise(c);
    case IR_reduce_sum:
    case IR_reduce_mean:
    case IR_reduce_max:
    case IR_reduce_min:
    case IR_reduce_prod:
    case IR_argmax:
    case IR_argmin:
        return check_reduce(c);
    case IR_softmax:
    case IR_layernorm:
    case IR_rmsnorm:
        return check_row(c);
    case IR_dot:
        return check_gemm(c);
    case IR_attention:
        c->f->family = SYN_ATTENTION;
        break;
    case IR_rope:
        c->f->family = SYN_ROPE;
        break;
    case IR_gather:
        c->f->family = SYN_GATHER;
        break;
    case IR_gather_nd:
        c->f->family = SYN_GATHER_ND;
        break;
    case IR_gather_elements:
        c->f->family = SYN_GATHER_ELEMENTS;
        break;
    case IR_cumsum:
        c->f->family = SYN_CUMSUM;
        break;
    case IR_topk:
        c->f->family = SYN_TOPK;
        break;
    case IR_dimvals:
        c->f->family = SYN_DIMVALS;
        break;
    default:
        return NO("no template for %s", ir_op_get(c->f->op)->name);
    }
    return check_alone(c);
}

rtx_status syn_form_of(const syn_problem *p, syn_form *out, rtx_err *err)
{
    const ir_graph *g = p->region;
    TRY(ir_ok(g, err));
    if (p->n_in != g->n_inputs || p->n_out != g->n_outputs || p->n_out == 0 ||
        p->n_in + p->n_out > SYN_OPERANDS_MAX)
        return FAIL(err, INVALID, "a region of %u inputs and %u outputs does not fit its problem",
                    g->n_inputs, g->n_outputs);
    AUTO_FREE uint8_t *parts = base_zalloc(BASE_TAG_SYNTH, g->n_nodes);
    if (parts == NULL)
        return FAIL(err, NOMEM, "out of memory");
    syn_form f = {.n_ops = p->n_in + p->n_out, .n_slots = p->n_in + p->n_out};
    checker c = {p, g, &f, parts, err};
    TRY(find_anchor(&c));
    TRY(check_dims(&c));
    TRY(classify(&c));
    *out = f;
    return RTX_OK;
}

rtx_status syn_problem_check(const syn_problem *p, rtx_err *err)
{
    syn_form f;
    return syn_form_of(p, &f, err);
}
