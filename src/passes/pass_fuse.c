/* Region growing. Owns the cut; knows nothing of templates: legality is the caller's callback.
 * Every anchor first takes its prologue (producers used once, for reductions and rows) and then its epilogue (the chain of
 * single uses); what elementwise work is left forms regions of its own, each node joining its only consumer. */
#include "pass_fuse.h"
#include <stdlib.h>

pass_anchor pass_anchor_of(ir_op op)
{
    switch (op) {
    case IR_dot:
        return PASS_ANCHOR_DOT;
    case IR_softmax:
    case IR_layernorm:
    case IR_rmsnorm:
        return PASS_ANCHOR_ROW;
    case IR_reduce_sum:
    case IR_reduce_mean:
    case IR_reduce_max:
    case IR_reduce_min:
    case IR_reduce_prod:
    case IR_argmax:
    case IR_argmin:
        return PASS_ANCHOR_REDUCE;
    default:
        return ir_op_get(op)->elementwise ? PASS_ANCHOR_NONE : PASS_ANCHOR_ALONE;
    }
}

typedef struct fuse {
    const ir_graph *g;
    pass_legal legal;
    pass_whole whole;
    void *ctx;
    pass_regions *out;
    uint32_t *uses;  /* per node, from live consumers and outputs */
    ir_id *consumer; /* the last live consumer of each node; meaningful where uses == 1 */
    uint32_t *owner; /* region number + 1 of each node; 0 = none */
    bool *live;
    ir_id *trial;        /* scratch for a candidate's nodes */
    pass_region *before; /* the region at hand before each step of its growth */
    ir_id *added;        /* by each step */
    uint32_t n_steps;
} fuse;

static bool is_source(ir_op op) { return op == IR_input || op == IR_const; }
static bool is_work(ir_op op) { return !is_source(op) && !ir_op_get(op)->view; }
static bool is_ew(const fuse *f, ir_id id) { return ir_op_get(ir_op_of(f->g, id))->elementwise; }

static rtx_status count_uses(fuse *f, rtx_err *err)
{
    const ir_graph *g = f->g;
    uint32_t n = g->n_nodes;
    TRY_ALLOC(f->uses = base_arena_array(&f->out->arena, n, sizeof *f->uses), err);
    TRY_ALLOC(f->consumer = base_arena_array(&f->out->arena, n, sizeof *f->consumer), err);
    TRY_ALLOC(f->owner = base_arena_array(&f->out->arena, n, sizeof *f->owner), err);
    TRY_ALLOC(f->live = base_arena_array(&f->out->arena, n, sizeof *f->live), err);
    TRY_ALLOC(f->trial = base_arena_array(&f->out->arena, n, sizeof *f->trial), err);
    TRY_ALLOC(f->before = base_arena_array(&f->out->arena, n, sizeof *f->before), err);
    TRY_ALLOC(f->added = base_arena_array(&f->out->arena, n, sizeof *f->added), err);
    for (uint32_t i = 0; i < g->n_outputs; i++) {
        f->live[g->outputs[i].id] = true;
        f->uses[g->outputs[i].id]++;
    }
    for (ir_id id = n - 1; id > 0; id--) {
        if (!f->live[id])
            continue;
        for (uint32_t k = 0; k < ir_node_get(g, id)->n_in; k++) {
            ir_id in = ir_in(g, id, k);
            f->live[in] = true;
            f->uses[in]++;
            f->consumer[in] = id;
        }
    }
    return RTX_OK;
}

static bool same_shape(const fuse *f, ir_id a, ir_id b)
{
    const ir_type *x = ir_type_of(f->g, a), *y = ir_type_of(f->g, b);
    return x->rank == y->rank && memcmp(x->dim, y->dim, x->rank * sizeof x->dim[0]) == 0;
}

/* Add one node to a region, in topological place, if the result is legal. */
static bool grow(fuse *f, pass_region *r, ir_id id, ir_id root)
{
    if (f->legal == NULL || f->owner[id] != 0)
        return false;
    uint32_t n = 0;
    bool placed = false;
    for (uint32_t i = 0; i < r->n_nodes; i++) {
        if (!placed && r->nodes[i] > id) {
            f->trial[n++] = id;
            placed = true;
        }
        f->trial[n++] = r->nodes[i];
    }
    if (!placed)
        f->trial[n++] = id;
    pass_region candidate = {r->kind, r->anchor, root, f->trial, n};
    if (!f->legal(f->ctx, f->g, &candidate))
        return false;
    ir_id *nodes = base_arena_array(&f->out->arena, n, sizeof *nodes);
    if (nodes == NULL)
        return false;
    memcpy(nodes, f->trial, n * sizeof *nodes);
    f->before[f->n_steps] = *r;
    f->added[f->n_steps++] = id;
    *r = candidate;
    r->nodes = nodes;
    f->owner[id] = (uint32_t)(r - f->out->items) + 1;
    return true;
}

/* Elementwise producers of `id` that nothing else reads, and theirs. `shape` is the anchor's input shape. */
static void grow_prologue(fuse *f, pass_region *r, ir_id id, ir_id shape)
{
    for (uint32_t k = 0; k < ir_node_get(f->g, id)->n_in; k++) {
        ir_id in = ir_in(f->g, id, k);
        if (f->uses[in] == 1 && is_ew(f, in) && same_shape(f, in, shape) && grow(f, r, in, r->root))
            grow_prologue(f, r, in, shape);
    }
}

static void grow_epilogue(fuse *f, pass_region *r)
{
    while (f->uses[r->root] == 1 && f->consumer[r->root] != 0) {
        ir_id next = f->consumer[r->root];
        if (!is_ew(f, next) || !same_shape(f, next, r->root) || !grow(f, r, next, next))
            return;
    }
}

static void finish(fuse *f, pass_region *r)
{
    while (f->n_steps > 0 && f->whole != NULL && !f->whole(f->ctx, f->g, r)) {
        *r = f->before[--f->n_steps];
        f->owner[f->added[f->n_steps]] = 0;
    }
}

static rtx_status new_region(fuse *f, ir_id id, pass_region **out, rtx_err *err)
{
    pass_region *r = &f->out->items[f->out->n];
    *r = (pass_region){.kind = pass_anchor_of(ir_op_of(f->g, id)), .root = id, .n_nodes = 1};
    r->anchor = r->kind == PASS_ANCHOR_NONE ? 0 : id;
    TRY_ALLOC(r->nodes = base_arena_array(&f->out->arena, 1, sizeof *r->nodes), err);
    r->nodes[0] = id;
    f->owner[id] = ++f->out->n;
    f->n_steps = 0;
    *out = r;
    return RTX_OK;
}

static int by_root(const void *a, const void *b)
{
    ir_id x = ((const pass_region *)a)->root, y = ((const pass_region *)b)->root;
    return x < y ? -1 : x > y;
}

rtx_status pass_fuse(const ir_graph *g, pass_legal legal, pass_whole whole, void *ctx,
                     pass_regions *out, rtx_err *err)
{
    memset(out, 0, sizeof *out);
    base_arena_init(&out->arena, BASE_TAG_PASSES, 0);
    fuse f = {.g = g, .legal = legal, .whole = whole, .ctx = ctx, .out = out};
    TRY(count_uses(&f, err));
    TRY_ALLOC(out->items = base_arena_array(&out->arena, g->n_nodes, sizeof *out->items), err);
    /* Dots choose first: an epilogue saves a pass over memory where it matters most. */
    for (int round = 0; round < 2; round++) {
        for (ir_id id = 1; id < g->n_nodes; id++) {
            ir_op op = ir_op_of(g, id);
            if (!f.live[id] || !is_work(op) || is_ew(&f, id) || (op == IR_dot) != (round == 0))
                continue;
            pass_region *r;
            TRY(new_region(&f, id, &r, err));
            if (r->kind == PASS_ANCHOR_ROW || r->kind == PASS_ANCHOR_REDUCE)
                grow_prologue(&f, r, id, ir_in(g, id, 0));
            if (r->kind != PASS_ANCHOR_ALONE)
                grow_epilogue(&f, r);
            finish(&f, r);
        }
    }
    for (ir_id id = g->n_nodes - 1; id > 0; id--) {
        if (!f.live[id] || f.owner[id] != 0 || !is_ew(&f, id))
            continue;
        pass_region *r;
        TRY(new_region(&f, id, &r, err));
        grow_prologue(&f, r, id, id);
        finish(&f, r);
    }
    qsort(out->items, out->n, sizeof *out->items, by_root);
    if (out->arena.failed)
        return FAIL(err, NOMEM, "out of memory while cutting %u nodes into regions", g->n_nodes);
    return RTX_OK;
}

void pass_regions_done(pass_regions *r)
{
    base_arena_done(&r->arena);
    memset(r, 0, sizeof *r);
}
