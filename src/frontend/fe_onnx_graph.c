/* Nodes of a graph or function body: names, order, operands, dispatch, and inlining of model-local functions. */
#include "fe_onnx.h"

/* ---- names ---- */

static const uint8_t no_name[1];
enum { LABEL_MAX = 200 }; /* bytes of a node's name that the graph keeps */

static rtx_status names_grow(base_arena *a, fe_names *t)
{
    fe_names bigger = {.cap = t->cap ? t->cap * 2 : 16, .n = t->n};
    bigger.key = base_arena_array(a, bigger.cap, sizeof *bigger.key);
    bigger.val = base_arena_array(a, bigger.cap, sizeof *bigger.val);
    if (!bigger.key || !bigger.val)
        return RTX_NOMEM;
    for (uint32_t i = 0; i < t->cap; i++) {
        if (!t->key[i].at)
            continue;
        uint32_t at = (uint32_t)base_xxh3(t->key[i].at, t->key[i].len) & (bigger.cap - 1);
        while (bigger.key[at].at)
            at = (at + 1) & (bigger.cap - 1);
        bigger.key[at] = t->key[i];
        bigger.val[at] = t->val[i];
    }
    *t = bigger;
    return RTX_OK;
}

fe_val **fe_name_find(const fe_names *t, fe_span key)
{
    if (!t->cap)
        return NULL;
    for (uint32_t at = (uint32_t)base_xxh3(key.len ? key.at : no_name, key.len);; at++) {
        at &= t->cap - 1;
        if (!t->key[at].at)
            return NULL;
        if (fe_span_eq(t->key[at], key))
            return &t->val[at];
    }
}

fe_val **fe_name_put(base_arena *a, fe_names *t, fe_span key, bool *out_found)
{
    fe_val **there = fe_name_find(t, key);
    *out_found = there != NULL;
    if (there)
        return there;
    if (t->n * 2 >= t->cap && names_grow(a, t) != RTX_OK)
        return NULL;
    key.at = key.len ? key.at : no_name; /* a key at NULL is a free slot */
    uint32_t at = (uint32_t)base_xxh3(key.at, key.len) & (t->cap - 1);
    while (t->key[at].at)
        at = (at + 1) & (t->cap - 1);
    t->key[at] = key;
    t->n++;
    return &t->val[at];
}

void fe_report(fe_imp *m, const char *fmt, ...)
{
    char line[512];
    va_list ap;
    if (m->n_refused++ >= FE_REPORT_MAX)
        return;
    va_start(ap, fmt);
    vsnprintf(line, sizeof line, fmt, ap);
    va_end(ap);
    base_buf_printf(&m->report, "%sUNSUPPORTED: %s", m->report.len ? "\n" : "", line);
}

static bool utf8_ok(fe_span s) { return base_utf8_ok((const char *)s.at, s.len); }
static bool default_domain(fe_span d) { return d.len == 0 || fe_span_is(d, "ai.onnx"); }

rtx_status fe_opset_of(fe_imp *m, const fe_list *opsets, const char *what, int64_t *out,
                       rtx_err *err)
{
    *out = 0;
    for (size_t i = 0; i < opsets->n; i++) {
        fe_pb_opset o;
        TRY(fe_read_opset(opsets->at[i], &m->arena, &o, err));
        if (default_domain(o.domain))
            *out = o.version;
    }
    if (*out != 0 && (*out < FE_OPSET_MIN || *out > FE_OPSET_MAX))
        return FAIL(
            err, UNSUPPORTED,
            "UNSUPPORTED: %s, opset %lld, only opsets %d to %d are known; export the model again",
            what, (long long)*out, FE_OPSET_MIN, FE_OPSET_MAX);
    return RTX_OK;
}

/* ---- order ---- */

typedef struct body {
    fe_pb_node *node;
    uint32_t n;
    uint32_t *order;
} body;

static fe_val *value_named(const fe_scope *s, fe_span name)
{
    fe_val **v = fe_name_find(&s->names, name);
    return v ? *v : NULL;
}

/* Give every output its value; names are made once. */
static rtx_status declare_outputs(fe_imp *m, fe_scope *s, const body *b, rtx_err *err)
{
    for (uint32_t i = 0; i < b->n; i++)
        for (size_t k = 0; k < b->node[i].outputs.n; k++) {
            fe_span name = b->node[i].outputs.at[k];
            bool found;
            if (name.len == 0)
                continue;
            fe_val **slot = fe_name_put(&m->arena, &s->names, name, &found), *v;
            if (found)
                return FAIL(err, INVALID,
                            "node '%.*s' makes '%.*s', a name that exists already; names are given "
                            "once" FE_ADVICE,
                            FE_SHOW(b->node[i].name), FE_SHOW(name));
            TRY_ALLOC(v = slot ? base_arena_alloc(&m->arena, sizeof *v) : NULL, err);
            v->maker = i + 1;
            *slot = v;
        }
    return RTX_OK;
}

/* The files we meet are in order already; others are sorted by counting the operands not yet made. */
static rtx_status sort_nodes(fe_imp *m, const fe_scope *s, body *b, rtx_err *err)
{
    uint32_t *missing, *first, *user, n_edges = 0, n_done = 0;
    TRY_ALLOC(missing = base_arena_array(&m->arena, b->n + 1, sizeof *missing), err);
    TRY_ALLOC(first = base_arena_array(&m->arena, b->n + 2, sizeof *first), err);
    bool sorted = true;
    for (uint32_t i = 0; i < b->n; i++)
        for (size_t k = 0; k < b->node[i].inputs.n; k++) {
            fe_span name = b->node[i].inputs.at[k];
            if (name.len == 0)
                continue;
            if (!fe_name_find(&s->names, name))
                return FAIL(err, INVALID,
                            "node '%.*s' (%.*s) reads '%.*s', which nothing makes" FE_ADVICE,
                            FE_SHOW(b->node[i].name), FE_SHOW(b->node[i].op), FE_SHOW(name));
            const fe_val *v = value_named(s, name);
            if (!v || !v->maker)
                continue;
            sorted &= v->maker <= i;
            missing[i]++;
            first[v->maker]++;
            n_edges++;
        }
    for (uint32_t i = 0; i < b->n; i++)
        b->order[i] = i;
    if (sorted)
        return RTX_OK;
    TRY_ALLOC(user = base_arena_array(&m->arena, n_edges + 1, sizeof *user), err);
    for (uint32_t i = 0; i < b->n; i++)
        first[i + 1] += first[i];
    for (uint32_t i = b->n; i-- > 0;)
        for (size_t k = 0; k < b->node[i].inputs.n; k++) {
            const fe_val *v = value_named(s, b->node[i].inputs.at[k]);
            if (v && v->maker)
                user[--first[v->maker]] = i;
        }
    /* users of node i now lie between first[i + 1] and first[i + 2] */
    first[b->n + 1] = n_edges;
    for (uint32_t i = 0; i < b->n; i++)
        if (!missing[i])
            b->order[n_done++] = i;
    for (uint32_t at = 0; at < n_done; at++)
        for (uint32_t e = first[b->order[at] + 1]; e < first[b->order[at] + 2]; e++)
            if (--missing[user[e]] == 0)
                b->order[n_done++] = user[e];
    for (uint32_t i = 0; i < b->n && n_done < b->n; i++)
        if (missing[i])
            return FAIL(err, INVALID, "the graph has a cycle through node '%.*s' (%.*s)" FE_ADVICE,
                        FE_SHOW(b->node[i].name), FE_SHOW(b->node[i].op));
    return RTX_OK;
}

/* ---- one node ---- */

static const fe_op *find_op(fe_span name)
{
    const fe_op *tables[] = {fe_ops_math, fe_ops_shape, fe_ops_slice, fe_ops_reduce};
    for (size_t t = 0; t < COUNT_OF(tables); t++)
        for (const fe_op *op = tables[t]; op->name; op++)
            if (fe_span_is(name, op->name))
                return op;
    return NULL;
}

static const fe_pb_function *find_function(const fe_imp *m, const fe_pb_node *pb)
{
    fe_val **v = fe_name_find(&m->function_names, pb->op);
    for (uint32_t at = v ? (*v)->maker : 0; at; at = m->older[at - 1]) {
        const fe_pb_function *f = &m->functions[at - 1];
        bool same_domain = fe_span_eq(f->domain, pb->domain) ||
                           (default_domain(f->domain) && default_domain(pb->domain));
        if (same_domain && fe_span_eq(f->overload, pb->overload))
            return f;
    }
    return NULL;
}

static const fe_pb_attr *attr_named(const fe_pb_attr *a, uint32_t n, fe_span name)
{
    for (uint32_t i = 0; i < n; i++)
        if (fe_span_eq(a[i].name, name))
            return &a[i];
    return NULL;
}

/* In a function body an attribute may stand for one of the call, or for the function's default. False: it is absent. */
static rtx_status resolve_ref(fe_imp *m, const fe_scope *s, fe_pb_attr *a, bool *out_there,
                              rtx_err *err)
{
    *out_there = true;
    if (a->ref.len == 0 || !s->func)
        return RTX_OK;
    fe_span name = a->name, ref = a->ref;
    const fe_pb_attr *given = attr_named(s->call->attrs, s->call->n_attrs, ref);
    if (given) {
        *a = *given;
        a->name = name;
        return RTX_OK;
    }
    for (size_t i = 0; i < s->func->attr_defaults.n; i++) {
        TRY(fe_read_attr(s->func->attr_defaults.at[i], &m->arena, a, err));
        bool it = fe_span_eq(a->name, ref);
        a->name = name;
        if (it)
            return RTX_OK;
    }
    *out_there = false;
    return RTX_OK;
}

static rtx_status read_attrs(fe_imp *m, const fe_scope *s, const fe_pb_node *pb, fe_node *n,
                             rtx_err *err)
{
    if (pb->attrs.n > FE_ATTRS_MAX)
        return FAIL(err, LIMIT, "node '%.*s' has %zu attributes; the limit is %d",
                    FE_SHOW(pb->name), pb->attrs.n, FE_ATTRS_MAX);
    TRY_ALLOC(n->attrs = base_arena_array(&m->arena, pb->attrs.n + 1, sizeof *n->attrs), err);
    for (size_t i = 0; i < pb->attrs.n; i++) {
        fe_pb_attr *a = &n->attrs[n->n_attrs];
        bool there;
        TRY(fe_read_attr(pb->attrs.at[i], &m->arena, a, err));
        if (attr_named(n->attrs, n->n_attrs, a->name))
            return FAIL(err, INVALID, "node '%.*s': attribute '%.*s' is given twice" FE_ADVICE,
                        FE_SHOW(pb->name), FE_SHOW(a->name));
        TRY(resolve_ref(m, s, a, &there, err));
        n->n_attrs += there;
    }
    return RTX_OK;
}

static rtx_status read_operands(fe_imp *m, fe_scope *s, const fe_pb_node *pb, fe_node *n,
                                bool *out_lost, rtx_err *err)
{
    n->n_in = (uint32_t)pb->inputs.n, n->n_out = (uint32_t)pb->outputs.n;
    TRY_ALLOC(n->in = base_arena_array(&m->arena, pb->inputs.n + 1, sizeof(fe_val *)), err);
    TRY_ALLOC(n->out = base_arena_array(&m->arena, pb->outputs.n + 1, sizeof(fe_val *)), err);
    for (uint32_t k = 0; k < n->n_in; k++) {
        fe_val *v = n->in[k] = pb->inputs.at[k].len ? value_named(s, pb->inputs.at[k]) : NULL;
        if (v && v->tensor.at) {
            rtx_err why = {0};
            rtx_status st = fe_tensor_value(m, v->tensor, "tensor", v, &why);
            v->tensor = (fe_span){0};
            if (st == RTX_UNSUPPORTED) {
                v->lost = true;
                fe_report(m, "%.*s, opset %lld, %s (node '%.*s')", FE_SHOW(pb->op),
                          (long long)s->opset, why.text, FE_SHOW(pb->name));
            } else if (st != RTX_OK) {
                return FAIL_AS(err, st, "%s", why.text);
            }
        }
        *out_lost |= v && v->lost;
    }
    while (n->n_in && !n->in[n->n_in - 1])
        n->n_in--; /* trailing omitted inputs */
    for (uint32_t k = 0; k < n->n_out; k++)
        n->out[k] = pb->outputs.at[k].len ? value_named(s, pb->outputs.at[k]) : NULL;
    return RTX_OK;
}

static void lose_outputs(fe_node *n)
{
    for (uint32_t k = 0; k < n->n_out; k++)
        if (n->out[k])
            n->out[k]->lost = true;
}

/* Sizes that may be equal or not are no fault of the model. */
static bool refuse_unproven(fe_node *n)
{
    fmt_dim a, b;
    if (!fmt_dims_take_unproven(n->d, &a, &b))
        return false;
    AUTO_BUF base_buf ta, tb;
    base_buf_init(&ta, BASE_TAG_FRONTEND, 400);
    base_buf_init(&tb, BASE_TAG_FRONTEND, 400);
    fmt_dim_print(n->d, a, &ta);
    fmt_dim_print(n->d, b, &tb);
    fe_refuse(n, "sizes %.80s and %.80s cannot be proven equal; export the model with fixed sizes",
              ta.data ? ta.data : "", tb.data ? tb.data : "");
    return true;
}

/* Turn a failure that an op's rules reported into a line of the report, or into the error of the import. */
static rtx_status settle(fe_imp *m, fe_node *n, rtx_err *err)
{
    ir_graph *g = n->g;
    rtx_status st = g->err.code;
    if (m->wrong[0])
        return FAIL(err, INVALID, "node '%.*s' (%.*s): %s" FE_ADVICE, FE_SHOW(n->name),
                    FE_SHOW(n->op_name), m->wrong);
    if (st == RTX_UNSUPPORTED)
        fe_refuse(n, "%s", g->err.text);
    if (st == RTX_UNSUPPORTED || (st == RTX_INVALID && refuse_unproven(n))) {
        g->err = (rtx_err){0};
    } else if (st != RTX_OK) {
        return FAIL_AS(err, st, "node '%.*s' (%.*s): %.280s%s", FE_SHOW(n->name),
                       FE_SHOW(n->op_name), g->err.text, st == RTX_INVALID ? FE_ADVICE : "");
    }
    TRY(fmt_dims_ok(m->d, err));
    if (n->refused) {
        lose_outputs(n);
        return RTX_OK;
    }
    for (uint32_t k = 0; k < n->n_out; k++)
        if (n->out[k] && !n->out[k]->id && !n->out[k]->content && !n->out[k]->lost) {
            fe_refuse(n, "output %u is not computed", k);
            n->out[k]->lost = true;
        }
    return RTX_OK;
}

static rtx_status inline_call(fe_imp *m, fe_node *n, const fe_pb_function *f, rtx_err *err)
{
    fe_scope s = {.caller = n->scope, .func = f, .call = n, .depth = n->scope->depth + 1};
    for (const fe_scope *c = n->scope; c; c = c->caller)
        if (c->func == f)
            return FAIL(err, INVALID, "function '%.*s' calls itself" FE_ADVICE, FE_SHOW(f->name));
    if (s.depth > FE_CALL_DEPTH_MAX)
        return FAIL(err, LIMIT, "functions call each other more than %d deep, at '%.*s'",
                    FE_CALL_DEPTH_MAX, FE_SHOW(f->name));
    TRY(fe_opset_of(m, &f->opsets, "function", &s.opset, err));
    if (s.opset == 0)
        s.opset = n->scope->opset;
    if (n->n_in > f->inputs.n || n->n_out > f->outputs.n)
        return FAIL(
            err, INVALID,
            "node '%.*s' passes %u inputs and %u outputs to function '%.*s', which has %zu and "
            "%zu" FE_ADVICE,
            FE_SHOW(n->name), n->n_in, n->n_out, FE_SHOW(f->name), f->inputs.n, f->outputs.n);
    for (size_t k = 0; k < f->inputs.n; k++) {
        bool found;
        fe_val **slot;
        TRY_ALLOC(slot = fe_name_put(&m->arena, &s.names, f->inputs.at[k], &found), err);
        if (found)
            return FAIL(err, INVALID, "function '%.*s' has two inputs of one name" FE_ADVICE,
                        FE_SHOW(f->name));
        *slot = NULL; /* omitted */
        if (!fe_has(n, (uint32_t)k))
            continue;
        TRY_ALLOC(*slot = base_arena_alloc(&m->arena, sizeof **slot), err);
        **slot = *n->in[k];
        (*slot)->maker = 0; /* no node of this body */
    }
    TRY(fe_import_nodes(m, &s, &f->nodes, err));
    for (uint32_t k = 0; k < n->n_out; k++) {
        fe_val *v = value_named(&s, f->outputs.at[k]);
        if (!n->out[k])
            continue;
        if (!v)
            return FAIL(err, INVALID, "function '%.*s' does not make its output '%.*s'" FE_ADVICE,
                        FE_SHOW(f->name), FE_SHOW(f->outputs.at[k]));
        uint32_t maker = n->out[k]->maker;
        *n->out[k] = *v;
        n->out[k]->maker = maker;
    }
    return RTX_OK;
}

static rtx_status run_op(fe_imp *m, fe_node *n, const fe_pb_node *pb, bool lost, rtx_err *err)
{
    n->op = default_domain(pb->domain) ? find_op(pb->op) : NULL;
    if (!n->op) {
        static const char *const nested[] = {"If", "Loop", "Scan", "SequenceMap"};
        bool has_graph = false;
        for (size_t i = 0; i < COUNT_OF(nested); i++)
            has_graph |= fe_span_is(pb->op, nested[i]);
        if (default_domain(pb->domain))
            fe_refuse(n, "%s",
                      has_graph ? "control flow is not supported" : "no such operation is known");
        else
            fe_refuse(n, "domain '%.*s' is not known", FE_SHOW(pb->domain));
    } else if (n->opset < n->op->since) {
        fe_refuse(n, "it exists from opset %d", n->op->since);
    } else if (lost) {
        lose_outputs(n);
        return RTX_OK;
    } else if (n->n_in < n->op->min_in ||
               n->n_in > (n->op->max_in == UINT8_MAX ? FE_IN_MAX : n->op->max_in)) {
        return FAIL(err, INVALID, "node '%.*s' (%.*s) has %u inputs, wanted %u to %u" FE_ADVICE,
                    FE_SHOW(n->name), FE_SHOW(n->op_name), n->n_in, n->op->min_in,
                    n->op->max_in == UINT8_MAX ? FE_IN_MAX : n->op->max_in);
    } else {
        bool all = true;
        for (uint32_t k = 0; k < n->op->min_in; k++)
            all &= n->in[k] != NULL;
        if (!all)
            return FAIL(err, INVALID, "node '%.*s' (%.*s) lacks an input" FE_ADVICE,
                        FE_SHOW(n->name), FE_SHOW(n->op_name));
        fmt_dim a, b;
        (void)fmt_dims_take_unproven(m->d, &a, &b); /* of an earlier node */
        if (fe_attrs_ok(n))
            n->op->run(n);
    }
    return settle(m, n, err);
}

static rtx_status run_node(fe_imp *m, fe_scope *s, const fe_pb_node *pb, rtx_err *err)
{
    if (++m->n_nodes > FE_NODES_MAX)
        return FAIL(err, LIMIT, "more than %d nodes after inlining functions", FE_NODES_MAX);
    fe_node n = {.m = m, .g = m->g, .d = m->d, .scope = s, .op_name = pb->op, .opset = s->opset};
    n.name = pb->name;
    bool lost = false;
    TRY(read_attrs(m, s, pb, &n, err));
    TRY(read_operands(m, s, pb, &n, &lost, err));
    const fe_pb_function *f = find_function(m, pb);
    const char *label;
    size_t cut = MIN(pb->name.len, LABEL_MAX);
    while (cut > 0 && cut < pb->name.len && (pb->name.at[cut] & 0xc0) == 0x80)
        cut--; /* not inside a character */
    TRY_ALLOC(label = base_arena_strn(&m->arena, (const char *)pb->name.at, cut), err);
    m->g->current_name = label;
    rtx_status st = f ? inline_call(m, &n, f, err) : run_op(m, &n, pb, lost, err);
    m->g->current_name = NULL;
    return st;
}

/* Names of nodes, and of values they stand in for, go into reports and bundles. */
static bool names_ok(const fe_pb_node *pb)
{
    bool ok = utf8_ok(pb->name) && utf8_ok(pb->op);
    for (size_t k = 0; k < pb->outputs.n; k++)
        ok &= utf8_ok(pb->outputs.at[k]);
    return ok;
}

rtx_status fe_import_nodes(fe_imp *m, fe_scope *s, const fe_list *nodes, rtx_err *err)
{
    if (nodes->n > FE_NODES_MAX)
        return FAIL(err, LIMIT, "%zu nodes; the limit is %d", nodes->n, FE_NODES_MAX);
    body b = {.n = (uint32_t)nodes->n};
    TRY_ALLOC(b.node = base_arena_array(&m->arena, nodes->n + 1, sizeof *b.node), err);
    TRY_ALLOC(b.order = base_arena_array(&m->arena, nodes->n + 1, sizeof *b.order), err);
    for (uint32_t i = 0; i < b.n; i++) {
        fe_pb_node *pb = &b.node[i];
        TRY(fe_read_node(nodes->at[i], &m->arena, pb, err));
        if (!names_ok(pb))
            return FAIL(err, INVALID, "a name in node %u of the model is not UTF-8" FE_ADVICE, i);
        if (pb->name.len == 0) /* names are optional; messages want one */
            pb->name = pb->outputs.n && pb->outputs.at[0].len ? pb->outputs.at[0] : pb->op;
        if (pb->inputs.n > FE_IN_MAX || pb->op.len == 0)
            return FAIL(err, CORRUPT, "node '%.*s' has no operation, or %zu inputs" FE_ADVICE,
                        FE_SHOW(pb->name), pb->inputs.n);
    }
    TRY(declare_outputs(m, s, &b, err));
    TRY(sort_nodes(m, s, &b, err));
    for (uint32_t i = 0; i < b.n; i++)
        TRY(run_node(m, s, &b.node[b.order[i]], err));
    return RTX_OK;
}
