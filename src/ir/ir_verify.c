/* The verifier: a graph is what the builder could have made.
 *   layer    L1 ir; may include base, format
 *   checks   indices before use, order of nodes, then every node against its shape rule; binds no symbol */
#include "ir_rules.h"

static rtx_status check_indices(const ir_graph *g, ir_id id, rtx_err *err)
{
    const ir_node *n = ir_node_get(g, id);
    if (n->op == IR_NONE || n->op >= IR_OP_COUNT)
        return FAIL(err, INTERNAL, "%%%u: no op number %u", id, n->op);
    const ir_op_info *info = ir_op_get((ir_op)n->op);
    if (n->n_in < info->min_in || n->n_in > info->max_in)
        return FAIL(err, INTERNAL, "%%%u: %s has %u inputs, needs %d to %d", id, info->name,
                    n->n_in, info->min_in, info->max_in);
    if (n->in > g->n_refs || n->n_in > g->n_refs - n->in || n->attr >= g->n_attrs ||
        n->name >= g->n_names || n->data >= g->n_consts)
        return FAIL(err, INTERNAL, "%%%u: %s refers outside the graph's tables", id, info->name);
    for (uint32_t k = 0; k < n->n_in; k++) {
        ir_id in = ir_in(g, id, k);
        if (in == 0 || in >= id)
            return FAIL(err, INTERNAL, "%%%u: %s reads %%%u, which is not before it", id,
                        info->name, in);
    }
    return RTX_OK;
}

static bool same_type(fmt_dims *dims, const ir_type *a, const ir_type *b)
{
    bool same = a->dtype == b->dtype && a->rank == b->rank && a->residency == b->residency;
    for (int k = 0; same && k < a->rank; k++)
        same = fmt_dim_resolve(dims, a->dim[k]) == fmt_dim_resolve(dims, b->dim[k]);
    return same;
}

static rtx_status check_const(const ir_graph *g, ir_id id, rtx_err *err)
{
    const ir_type *t = ir_type_of(g, id);
    const ir_const *c = ir_const_of(g, id);
    int64_t elems;
    if (!fmt_dim_is_const(g->dims, ir_elems(g, t), &elems) ||
        (uint64_t)elems * fmt_dtype_bytes(t->dtype) != c->bytes || (!c->data && c->bytes))
        return FAIL(err, INTERNAL, "%%%u: constant with %zu bytes of data does not fit its type",
                    id, c->bytes);
    return RTX_OK;
}

static rtx_status check_rule(const ir_graph *g, ir_id id, rtx_err *err)
{
    const ir_node *n = ir_node_get(g, id);
    ir_rule_call c = {.dims = g->dims,
                      .op = (ir_op)n->op,
                      .name = ir_name_of(g, id),
                      .n_in = n->n_in,
                      .attrs = *ir_attrs_of(g, id),
                      .err = err};
    for (uint32_t k = 0; k < n->n_in; k++)
        c.in[k] = ir_type_of(g, ir_in(g, id, k));
    TRY(ir_rule_apply(&c));
    if (memcmp(&c.attrs, ir_attrs_of(g, id), sizeof c.attrs) != 0)
        return FAIL(err, INTERNAL, "%%%u: %s has attributes that are not in canonical form", id,
                    ir_op_get(c.op)->name);
    if (same_type(g->dims, &c.out, &n->type))
        return RTX_OK;
    AUTO_BUF base_buf text;
    base_buf_init(&text, BASE_TAG_IR, 300);
    ir_type_print(g->dims, &n->type, &text);
    base_buf_puts(&text, ", its rule gives ");
    ir_type_print(g->dims, &c.out, &text);
    return FAIL(err, INTERNAL, "%%%u: %s has type %s", id, ir_op_get(c.op)->name,
                text.data ? text.data : "");
}

static rtx_status check_ports(const ir_graph *g, rtx_err *err)
{
    uint32_t inputs = 0;
    for (ir_id id = 1; id < g->n_nodes; id++)
        inputs += ir_op_of(g, id) == IR_input;
    if (inputs != g->n_inputs)
        return FAIL(err, INTERNAL, "%u input nodes, %u inputs", inputs, g->n_inputs);
    for (uint32_t k = 0; k < g->n_inputs; k++)
        if (g->inputs[k].id == 0 || g->inputs[k].id >= g->n_nodes ||
            ir_op_of(g, g->inputs[k].id) != IR_input ||
            (k && g->inputs[k].id <= g->inputs[k - 1].id))
            return FAIL(err, INTERNAL, "input '%s' is not an input node of its own",
                        g->inputs[k].name);
    for (uint32_t k = 0; k < g->n_outputs; k++)
        if (g->outputs[k].id == 0 || g->outputs[k].id >= g->n_nodes)
            return FAIL(err, INTERNAL, "output '%s' is not a node", g->outputs[k].name);
    return RTX_OK;
}

rtx_status ir_verify(const ir_graph *g, rtx_err *err)
{
    TRY(ir_ok(g, err));
    for (ir_id id = 1; id < g->n_nodes; id++) {
        TRY(check_indices(g, id, err));
        ir_op op = ir_op_of(g, id);
        if (op == IR_input || op == IR_const)
            TRY(ir_type_check(g->dims, ir_op_get(op)->name, ir_type_of(g, id), err));
        else
            TRY(check_rule(g, id, err));
        if (op == IR_const)
            TRY(check_const(g, id, err));
    }
    return check_ports(g, err);
}
