/* Questions about one region by itself, asked before it has a place in a plan: is it one kernel, is it denied, what is its
 * work. Answers depend on shape and ops alone. */
#include "lower.h"

/* The problem of a region whose operands are contiguous. */
static rtx_status build_alone(const ir_graph *g, const pass_region *r, lower_mode mode,
                              lower_built *out, rtx_err *err)
{
    AUTO_FREE lower_view *views = base_zalloc_array(BASE_TAG_PASSES, g->n_nodes, sizeof *views);
    if (views == NULL)
        return FAIL(err, NOMEM, "out of memory");
    for (uint32_t i = 0; i < r->n_nodes; i++)
        for (uint32_t k = 0; k <= ir_node_get(g, r->nodes[i])->n_in; k++) {
            ir_id id =
                k < ir_node_get(g, r->nodes[i])->n_in ? ir_in(g, r->nodes[i], k) : r->nodes[i];
            views[id].constant = ir_op_of(g, id) == IR_const ? id : 0;
            views[id].offset = fmt_dim_const(g->dims, 0);
            lower_row_major(g->dims, ir_type_of(g, id), views[id].stride);
        }
    return lower_build(g, r, views, &views[r->root], mode != LOWER_READY, out, err);
}

/* Is the built region in reach of its mode? */
static rtx_status served(const lower_built *b, lower_mode mode)
{
    TRY(syn_problem_check(b->problem, NULL));
    if (mode != LOWER_READY)
        return RTX_OK;
    syn_problem *general = NULL;
    const syn_ready *ready = NULL;
    syn_source from[COUNT_OF(b->arg)];
    uint32_t n;
    TRY(syn_problem_general(b->problem, &general, from, &n, COUNT_OF(from), NULL));
    rtx_status s = syn_ready_lookup(general, FMT_ISA_V3, &ready, NULL);
    syn_problem_free(general);
    return s == RTX_OK && ready == NULL ? RTX_UNSUPPORTED : s;
}

bool lower_legal(void *ctx, const ir_graph *g, const pass_region *candidate)
{
    lower_ask *ask = ctx;
    lower_built b;
    rtx_status s = build_alone(g, candidate, ask->mode, &b, NULL);
    if (s == RTX_OK) {
        s = served(&b, ask->mode);
        lower_built_done(&b);
    }
    ask->nomem |= s == RTX_NOMEM;
    return s == RTX_OK;
}

rtx_status lower_region_text(const ir_graph *g, const pass_region *r, lower_mode mode,
                             base_buf *out, rtx_err *err)
{
    lower_built b;
    TRY(build_alone(g, r, mode, &b, err));
    rtx_status s = syn_problem_text(b.problem, out, err);
    lower_built_done(&b);
    return s == RTX_OK ? base_buf_ok(out, err) : s;
}

bool lower_whole(void *ctx, const ir_graph *g, const pass_region *finished)
{
    lower_ask *ask = ctx;
    if (ask->deny == NULL || ask->deny->n == 0)
        return true;
    AUTO_BUF base_buf text;
    base_buf_init(&text, BASE_TAG_PASSES, 1 << 20);
    rtx_status s = lower_region_text(g, finished, ask->mode, &text, NULL);
    ask->nomem |= s == RTX_NOMEM;
    for (uint32_t i = 0; s == RTX_OK && i < ask->deny->n; i++)
        if (strcmp(ask->deny->text[i], text.data) == 0)
            return false;
    return true;
}

/* ---- work ---- */

/* The node that the region took last: the end of its epilogue, else the far end of its prologue; 0 = none. */
static ir_id last_grown(const ir_graph *r)
{
    ir_id root = r->outputs[0].id, first = 0;
    bool anchor = false;
    for (ir_id id = 1; id < r->n_nodes; id++) {
        ir_op op = ir_op_of(r, id);
        const ir_op_info *info = ir_op_get(op);
        if (info->elementwise && first == 0)
            first = id;
        anchor |= !info->elementwise && !info->view && op != IR_input && op != IR_const;
    }
    return !anchor ? 0 : ir_op_get(ir_op_of(r, root))->elementwise ? root : first;
}

bool lower_region_work(const syn_problem *p, const int64_t *sym, pass_work *out)
{
    ir_id last = last_grown(p->region);
    if (last == 0)
        return false;
    memset(out, 0, sizeof *out);
    syn_cost(p, sym, &out->flops, &out->bytes);
    syn_node_cost(p, last, sym, &out->cut_flops, &out->spill_bytes);
    out->flops -= out->cut_flops;
    return true;
}
