/* The graph builder: nodes, interning, sources and outputs, questions about nodes, and rebuilding for passes.
 *   layer    L1 ir; may include base, format
 *   owner    arrays are base_alloc blocks that grow; names and copied constants lie in the graph's arena
 *   sticky   the first failure stays in g->err; later emits return 0 */
#include "ir_rules.h"
#include "base_sys.h"
#include <stdio.h>

static const ir_op_info ops[IR_OP_COUNT] = {
    {.name = "none", .attrs = "", .fexpr = "", .iexpr = ""},
#define PRIM   IR_PRIM
#define RAISED IR_RAISED
#define TENSOR IR_TENSOR
#define DATA   IR_DATA
#define OP(name, lo, hi, shape, attrs, level, dialect, fexpr, iexpr)                               \
    {#name,                                                                                        \
     attrs,                                                                                        \
     fexpr,                                                                                        \
     iexpr,                                                                                        \
     lo,                                                                                           \
     hi,                                                                                           \
     level,                                                                                        \
     dialect,                                                                                      \
     sizeof fexpr > 1 || sizeof iexpr > 1 || IR_##name == IR_cast,                                 \
     IR_##name == IR_reshape || IR_##name == IR_broadcast || IR_##name == IR_permute ||            \
         IR_##name == IR_slice},
#include "ops.def"
#undef OP
#undef PRIM
#undef RAISED
#undef TENSOR
#undef DATA
};

const ir_op_info *ir_op_get(ir_op op) { return &ops[(unsigned)op < IR_OP_COUNT ? op : IR_NONE]; }

ir_op ir_op_find(const char *name, size_t len)
{
    for (unsigned op = IR_NONE + 1; op < IR_OP_COUNT; op++)
        if (strlen(ops[op].name) == len && memcmp(ops[op].name, name, len) == 0)
            return (ir_op)op;
    return IR_NONE;
}

/* ---- failure and growth ---- */

/* Sizes that could not be formed compare as different: what kept them from it is the reason, not the shapes. */
ir_id ir_bad(ir_graph *g, rtx_status code, const char *fmt, ...)
{
    if (g->err.code == RTX_OK && fmt_dims_ok(g->dims, &g->err) == RTX_OK) {
        char text[sizeof g->err.text];
        va_list args;
        va_start(args, fmt);
        vsnprintf(text, sizeof text, fmt, args);
        va_end(args);
        base_fail(&g->err, code, __FILE__, __LINE__, "%s", text);
    }
    return 0;
}

rtx_status ir_ok(const ir_graph *g, rtx_err *err)
{
    if (g->err.code != RTX_OK && err)
        *err = g->err;
    return g->err.code != RTX_OK ? g->err.code : fmt_dims_ok(g->dims, err);
}

static bool grow(ir_graph *g, void **items, uint32_t n, uint32_t *cap, uint32_t more,
                 size_t elem_bytes)
{
    if (more <= *cap - n)
        return true;
    uint64_t want = MAX((uint64_t)n + more, MAX(UINT64_C(16), (uint64_t)*cap * 2));
    void *p =
        want < UINT32_MAX / 2 ? base_realloc(BASE_TAG_IR, *items, (size_t)want * elem_bytes) : NULL;
    if (!p)
        return ir_bad(g, RTX_NOMEM, "out of memory"), false;
    *items = p;
    *cap = (uint32_t)want;
    return true;
}

/* Room for `more` items in the array g->field with g->n_field used. */
#define ROOM(g, field, more)                                                                       \
    __extension__({                                                                                \
        void *items_ = (g)->field;                                                                 \
        bool ok_ =                                                                                 \
            grow((g), &items_, (g)->n_##field, &(g)->cap_##field, (more), sizeof *(g)->field);     \
        (g)->field = items_;                                                                       \
        ok_;                                                                                       \
    })

ir_graph *ir_graph_new(fmt_dims *dims)
{
    ir_graph *g = base_zalloc(BASE_TAG_IR, sizeof *g);
    if (!g)
        return NULL;
    g->dims = dims;
    base_arena_init(&g->arena, BASE_TAG_IR, 0);
    void *names = NULL;
    if (ROOM(g, nodes, 1) && ROOM(g, attrs, 1) && ROOM(g, consts, 1) &&
        grow(g, &names, 0, &g->cap_names, 1, sizeof *g->node_names)) {
        g->node_names = names;
        g->nodes[0] = (ir_node){0};
        g->attrs[0] = (ir_attrs){0};
        g->consts[0] = (ir_const){0};
        g->node_names[0] = "";
        g->n_nodes = g->n_attrs = g->n_consts = g->n_names = 1;
        return g;
    }
    ir_graph_free(g);
    return NULL;
}

void ir_graph_free(ir_graph *g)
{
    if (!g)
        return;
    base_arena_done(&g->arena);
    void *parts[] = {g->nodes,   g->refs,   g->attrs,      g->consts, g->inputs,
                     g->outputs, g->intern, g->node_names, g};
    for (size_t i = 0; i < COUNT_OF(parts); i++)
        base_free(parts[i]);
}

/* ---- interning ---- */

#define CONTENT_BYTES 4096 /* constants up to here are equal by content, larger ones by address */

static uint64_t mix(uint64_t h, uint64_t v)
{
    h = (h ^ v) * UINT64_C(0x9e3779b97f4a7c15);
    return h ^ h >> 32;
}

static uint64_t hash_type(const ir_type *t)
{
    uint64_t h = mix(t->dtype, t->rank);
    for (int k = 0; k < t->rank; k++)
        h = mix(h, (uint64_t)t->dim[k]);
    return h;
}

static uint64_t hash_const(const ir_const *c)
{
    return mix(c->bytes, c->bytes <= CONTENT_BYTES && c->bytes ? base_xxh3(c->data, c->bytes)
                                                               : (uintptr_t)c->data);
}

static uint64_t hash_node(const ir_graph *g, const ir_node *n)
{
    uint64_t h = mix(n->op, n->n_in);
    for (uint32_t k = 0; k < n->n_in; k++)
        h = mix(h, g->refs[n->in + k]);
    if (n->attr)
        h = mix(h, base_xxh3(&g->attrs[n->attr], sizeof(ir_attrs)));
    if (n->op == IR_const)
        h = mix(hash_type(&n->type), hash_const(&g->consts[n->data]));
    return h;
}

static bool const_equal(const ir_const *a, const ir_const *b)
{
    if (a->bytes != b->bytes)
        return false;
    return a->data == b->data || a->bytes == 0 ||
           (a->bytes <= CONTENT_BYTES && memcmp(a->data, b->data, a->bytes) == 0);
}

static bool node_equal(const ir_graph *g, const ir_node *a, const ir_node *b)
{
    if (a->op != b->op || a->n_in != b->n_in)
        return false;
    for (uint32_t k = 0; k < a->n_in; k++)
        if (g->refs[a->in + k] != g->refs[b->in + k])
            return false;
    if (memcmp(&g->attrs[a->attr], &g->attrs[b->attr], sizeof(ir_attrs)) != 0)
        return false;
    return a->op != IR_const || (ir_type_eq(&a->type, &b->type) &&
                                 const_equal(&g->consts[a->data], &g->consts[b->data]));
}

static bool intern_room(ir_graph *g)
{
    if (2 * (g->n_nodes + 1) <= g->cap_intern)
        return true;
    uint32_t cap = g->cap_intern ? 2 * g->cap_intern : 128;
    uint32_t *slots = base_zalloc_array(BASE_TAG_IR, cap, sizeof *slots);
    if (!slots)
        return ir_bad(g, RTX_NOMEM, "out of memory"), false;
    for (uint32_t i = 0; i < g->cap_intern; i++) {
        if (!g->intern[i])
            continue;
        uint64_t at = hash_node(g, &g->nodes[g->intern[i]]) & (cap - 1);
        while (slots[at])
            at = (at + 1) & (cap - 1);
        slots[at] = g->intern[i];
    }
    base_free(g->intern);
    g->intern = slots;
    g->cap_intern = cap;
    return true;
}

static uint32_t name_index(ir_graph *g)
{
    const char *name = g->current_name;
    if (!name || !*name)
        return 0;
    if (strcmp(name, g->node_names[g->n_names - 1]) == 0)
        return g->n_names - 1;
    void *names = g->node_names;
    if (!grow(g, &names, g->n_names, &g->cap_names, 1, sizeof *g->node_names))
        return 0;
    g->node_names = names;
    char *copy = base_arena_strn(&g->arena, name, strlen(name));
    if (!copy)
        return ir_bad(g, RTX_NOMEM, "out of memory");
    g->node_names[g->n_names] = copy;
    return g->n_names++;
}

/* Append node n, whose inputs, attributes and constant are the newest entries of their arrays, or drop those entries and
 * return the equal node that exists. */
static ir_id commit(ir_graph *g, ir_node n)
{
    if (g->n_nodes >= IR_NODES_MAX)
        return ir_bad(g, RTX_LIMIT, "more than %u nodes", IR_NODES_MAX);
    if (!ROOM(g, nodes, 1) || !intern_room(g))
        return 0;
    uint64_t at = 0;
    if (n.op != IR_input) {
        at = hash_node(g, &n) & (g->cap_intern - 1);
        for (; g->intern[at]; at = (at + 1) & (g->cap_intern - 1)) {
            if (!node_equal(g, &g->nodes[g->intern[at]], &n))
                continue;
            g->n_refs = n.n_in ? n.in : g->n_refs;
            g->n_attrs = n.attr ? n.attr : g->n_attrs;
            g->n_consts = n.data ? n.data : g->n_consts;
            return g->intern[at];
        }
    }
    n.name = name_index(g);
    if (g->err.code != RTX_OK)
        return 0;
    g->nodes[g->n_nodes] = n;
    if (n.op != IR_input)
        g->intern[at] = g->n_nodes;
    return g->n_nodes++;
}

/* ---- emit ---- */

/* Only the fields that the op has, so that equal attributes are equal bytes, also in the padding. */
static void clean_attrs(fmt_dims *dims, ir_op op, const ir_attrs *from, ir_attrs *out)
{
    memset(out, 0, sizeof *out);
    if (!from)
        return;
    ir_field f;
    for (const char *spec = ir_op_get(op)->attrs; ir_field_next(&spec, &f);) {
        switch (f.kind) {
        case IR_FIELD_INT:
            out->i[f.index] = from->i[f.index];
            break;
        case IR_FIELD_FLOAT:
            out->f[f.index] = from->f[f.index];
            break;
        case IR_FIELD_TYPE:
            out->type = from->type;
            break;
        case IR_FIELD_LIST:
            out->n_list = from->n_list;
            memcpy(out->list, from->list, MIN(from->n_list, FMT_RANK_MAX) * sizeof *out->list);
            break;
        case IR_FIELD_DIMS:
            out->n_dims = from->n_dims;
            for (int k = 0; k < MIN(from->n_dims, FMT_RANK_MAX); k++)
                out->dims[k] = fmt_dim_resolve(dims, from->dims[k]);
            break;
        case IR_FIELD_SIZES:
            out->n_sizes = from->n_sizes;
            for (int k = 0; k < MIN(from->n_sizes, FMT_RANK_MAX); k++)
                out->sizes[k] = fmt_dim_resolve(dims, from->sizes[k]);
            break;
        }
    }
}

bool ir_field_next(const char **spec, ir_field *out)
{
    const char *s = *spec;
    while (*s == ' ')
        s++;
    if (!*s)
        return false;
    const char *eq = strchr(s, '='), *place = eq + 1;
    size_t len = strcspn(place, " ");
    *out = (ir_field){.name = s, .name_len = (size_t)(eq - s)};
    if (len == 2) {
        out->kind = place[0] == 'i' ? IR_FIELD_INT : IR_FIELD_FLOAT;
        out->index = place[1] - '0';
    } else {
        out->kind = place[0] == 'l'   ? IR_FIELD_LIST
                    : place[0] == 'd' ? IR_FIELD_DIMS
                    : place[0] == 's' ? IR_FIELD_SIZES
                                      : IR_FIELD_TYPE;
    }
    *spec = place + len;
    return true;
}

ir_id ir_emit(ir_graph *g, ir_op op, const ir_id *in, uint32_t n_in, const ir_attrs *attrs)
{
    if (g->err.code != RTX_OK)
        return 0;
    ir_rule_call c = {.dims = g->dims,
                      .op = op,
                      .name = g->current_name,
                      .n_in = n_in,
                      .may_bind = true,
                      .err = &g->err};
    if (n_in > IR_IN_MAX)
        return ir_bad(g, RTX_INVALID, "%s: %u inputs", ir_op_get(op)->name, n_in);
    for (uint32_t k = 0; k < n_in; k++) {
        if (in[k] == 0 || in[k] >= g->n_nodes)
            return ir_bad(g, RTX_INVALID, "%s: input %u is not a node", ir_op_get(op)->name, k);
        c.in[k] = &g->nodes[in[k]].type;
    }
    clean_attrs(g->dims, op, attrs, &c.attrs);
    if (ir_rule_apply(&c) != RTX_OK)
        return 0;
    ir_node n = {.op = (uint16_t)op, .n_in = (uint16_t)n_in, .in = g->n_refs, .type = c.out};
    if (!ROOM(g, refs, n_in) || !ROOM(g, attrs, 1))
        return 0;
    for (uint32_t k = 0; k < n_in; k++)
        g->refs[g->n_refs++] = in[k];
    clean_attrs(g->dims, op, &c.attrs, &g->attrs[g->n_attrs]);
    if (memcmp(&g->attrs[g->n_attrs], &g->attrs[0], sizeof(ir_attrs)) != 0)
        n.attr = g->n_attrs++;
    return commit(g, n);
}

ir_id ir_emit1(ir_graph *g, ir_op op, ir_id a) { return ir_emit(g, op, &a, 1, NULL); }

ir_id ir_emit2(ir_graph *g, ir_op op, ir_id a, ir_id b)
{
    return ir_emit(g, op, (const ir_id[2]){a, b}, 2, NULL);
}

ir_id ir_emit3(ir_graph *g, ir_op op, ir_id a, ir_id b, ir_id c)
{
    return ir_emit(g, op, (const ir_id[3]){a, b, c}, 3, NULL);
}

/* ---- sources and outputs ---- */

/* The type with unused axes zero and bound symbols replaced; false after recording why it is illegal. */
static bool clean_type(ir_graph *g, const char *what, const ir_type *t, ir_type *out)
{
    *out = (ir_type){.dtype = t->dtype, .rank = t->rank, .residency = t->residency};
    for (int k = 0; k < MIN(t->rank, FMT_RANK_MAX); k++)
        out->dim[k] = fmt_dim_resolve(g->dims, t->dim[k]);
    return ir_type_check(g->dims, what, out, &g->err) == RTX_OK;
}

static bool add_port(ir_graph *g, ir_port **ports, uint32_t *n, uint32_t *cap, const char *what,
                     const char *name, ir_id id)
{
    if (!base_utf8_ok(name, strlen(name)))
        return ir_bad(g, RTX_INVALID, "the name of %s %u is not UTF-8", what, *n), false;
    for (uint32_t i = 0; i < *n; i++)
        if (strcmp((*ports)[i].name, name) == 0)
            return ir_bad(g, RTX_INVALID, "two %ss named '%s'", what, name), false;
    void *items = *ports;
    if (!grow(g, &items, *n, cap, 1, sizeof **ports))
        return false;
    *ports = items;
    char *copy = base_arena_strn(&g->arena, name, strlen(name));
    if (!copy)
        return ir_bad(g, RTX_NOMEM, "out of memory"), false;
    (*ports)[(*n)++] = (ir_port){id, copy};
    return true;
}

ir_id ir_input(ir_graph *g, const char *name, const ir_type *type)
{
    ir_node n = {.op = IR_input};
    if (g->err.code != RTX_OK || !clean_type(g, name, type, &n.type))
        return 0;
    ir_id id = commit(g, n);
    return id && add_port(g, &g->inputs, &g->n_inputs, &g->cap_inputs, "input", name, id) ? id : 0;
}

void ir_output(ir_graph *g, const char *name, ir_id id)
{
    if (g->err.code != RTX_OK)
        return;
    if (id == 0 || id >= g->n_nodes)
        ir_bad(g, RTX_INVALID, "output '%s' is not a node", name);
    else
        add_port(g, &g->outputs, &g->n_outputs, &g->cap_outputs, "output", name, id);
}

static ir_id add_const(ir_graph *g, const ir_type *type, const void *data, size_t bytes, bool copy)
{
    ir_node n = {.op = IR_const};
    int64_t elems;
    if (g->err.code != RTX_OK || !clean_type(g, "const", type, &n.type))
        return 0;
    if (!fmt_dim_is_const(g->dims, ir_elems(g, &n.type), &elems))
        return fmt_dims_ok(g->dims, &g->err) == RTX_OK
                   ? ir_bad(g, RTX_INVALID, "const: sizes must be numbers")
                   : 0;
    if ((uint64_t)elems * fmt_dtype_bytes(n.type.dtype) != bytes || (!data && bytes))
        return ir_bad(g, RTX_INVALID, "const: %zu bytes for %lld elements of %s", bytes,
                      (long long)elems, fmt_dtype_name(n.type.dtype));
    if (!ROOM(g, consts, 1))
        return 0;
    n.data = g->n_consts++;
    g->consts[n.data] = (ir_const){data, bytes, false};
    ir_id id = commit(g, n);
    if (!copy || id == 0 || g->nodes[id].data != n.data || g->n_consts == n.data)
        return id;
    void *own = base_arena_alloc(&g->arena, bytes);
    g->consts[n.data] = (ir_const){own, bytes, true};
    if (!own)
        return ir_bad(g, RTX_NOMEM, "out of memory");
    if (bytes)
        memcpy(own, data, bytes);
    return id;
}

ir_id ir_const_borrow(ir_graph *g, const ir_type *type, const void *data, size_t bytes)
{
    return add_const(g, type, data, bytes, false);
}

ir_id ir_const_copy(ir_graph *g, const ir_type *type, const void *data, size_t bytes)
{
    return add_const(g, type, data, bytes, true);
}

ir_id ir_scalar(ir_graph *g, fmt_dtype t, double v)
{
    uint64_t elem = 0;
    ir_store_element(t, v, &elem);
    return ir_const_copy(g, &(ir_type){.dtype = t}, &elem, fmt_dtype_bytes(t));
}

/* ---- shorthands ---- */

/* The type of x, or NULL when the graph has failed or x is no node. */
static const ir_type *type_or_null(ir_graph *g, ir_id x)
{
    if (g->err.code != RTX_OK)
        return NULL;
    if (x == 0 || x >= g->n_nodes)
        return ir_bad(g, RTX_INVALID, "not a node"), NULL;
    return &g->nodes[x].type;
}

static bool same_dims(const ir_type *t, const fmt_dim *dims, uint32_t rank)
{
    return t->rank == rank && (rank == 0 || memcmp(t->dim, dims, rank * sizeof *dims) == 0);
}

static ir_id emit_dims(ir_graph *g, ir_op op, ir_id x, const fmt_dim *dims, uint32_t rank)
{
    const ir_type *t = type_or_null(g, x);
    if (!t)
        return 0;
    if (rank > FMT_RANK_MAX)
        return ir_bad(g, RTX_UNSUPPORTED, "%s: more than %d axes", ir_op_get(op)->name,
                      FMT_RANK_MAX);
    ir_attrs a = {.n_dims = (uint8_t)rank};
    for (uint32_t k = 0; k < rank; k++)
        a.dims[k] = fmt_dim_resolve(g->dims, dims[k]);
    return same_dims(t, a.dims, rank) ? x : ir_emit(g, op, &x, 1, &a);
}

ir_id ir_reshape(ir_graph *g, ir_id x, const fmt_dim *dims, uint32_t rank)
{
    return emit_dims(g, IR_reshape, x, dims, rank);
}

ir_id ir_broadcast(ir_graph *g, ir_id x, const fmt_dim *dims, uint32_t rank)
{
    return emit_dims(g, IR_broadcast, x, dims, rank);
}

ir_id ir_permute(ir_graph *g, ir_id x, const int64_t *perm)
{
    const ir_type *t = type_or_null(g, x);
    if (!t)
        return 0;
    ir_attrs a = {.n_list = t->rank};
    bool identity = true;
    for (int k = 0; k < t->rank; k++) {
        a.list[k] = perm[k];
        identity = identity && (perm[k] == k || perm[k] == k - t->rank);
    }
    return identity ? x : ir_emit(g, IR_permute, &x, 1, &a);
}

ir_id ir_slice(ir_graph *g, ir_id x, const fmt_dim *start, const fmt_dim *size, const int64_t *step)
{
    const ir_type *t = type_or_null(g, x);
    if (!t)
        return 0;
    ir_attrs a = {.n_dims = t->rank, .n_sizes = t->rank, .n_list = t->rank};
    bool whole = true;
    for (int k = 0; k < t->rank; k++) {
        a.dims[k] = start[k];
        a.sizes[k] = size[k];
        a.list[k] = step[k];
        whole = whole && step[k] == 1 && fmt_dim_is(g->dims, start[k], 0) && size[k] == t->dim[k];
    }
    return whole ? x : ir_emit(g, IR_slice, &x, 1, &a);
}

ir_id ir_reduce(ir_graph *g, ir_op op, ir_id x, const int64_t *axes, uint32_t n_axes, bool keepdims)
{
    const ir_type *t = type_or_null(g, x);
    if (!t || n_axes == 0)
        return t ? x : 0;
    if (n_axes > FMT_RANK_MAX)
        return ir_bad(g, RTX_INVALID, "%s: %u axes", ir_op_get(op)->name, n_axes);
    ir_type kept = *t;
    ir_attrs a = {.n_list = (uint8_t)n_axes};
    for (uint32_t k = 0; k < n_axes; k++) {
        a.list[k] = axes[k];
        int64_t axis = axes[k] + (axes[k] < 0 ? t->rank : 0);
        if (axis >= 0 && axis < t->rank)
            kept.dim[axis] = fmt_dim_const(g->dims, 1);
    }
    ir_id y = ir_emit(g, op, &x, 1, &a);
    return keepdims && y ? ir_reshape(g, y, kept.dim, kept.rank) : y;
}

ir_id ir_cast(ir_graph *g, ir_id x, fmt_dtype to)
{
    const ir_type *t = type_or_null(g, x);
    if (!t || t->dtype == to)
        return t ? x : 0;
    return ir_emit(g, IR_cast, &x, 1, &(ir_attrs){.type = (uint8_t)to});
}

ir_id ir_dimvals(ir_graph *g, const fmt_dim *dims, uint32_t n, bool scalar)
{
    if (n > FMT_RANK_MAX)
        return ir_bad(g, RTX_UNSUPPORTED, "dimvals: more than %d sizes", FMT_RANK_MAX);
    ir_attrs a = {.i = {scalar}, .n_dims = (uint8_t)n};
    if (n)
        memcpy(a.dims, dims, n * sizeof *dims);
    return ir_emit(g, IR_dimvals, NULL, 0, &a);
}

bool ir_broadcast_dims(ir_graph *g, const ir_type *a, const ir_type *b, ir_type *out)
{
    ir_type t = {.dtype = a->dtype, .rank = MAX(a->rank, b->rank), .residency = a->residency};
    for (int k = 1; k <= t.rank; k++) { /* from the right */
        fmt_dim da = k <= a->rank ? a->dim[a->rank - k] : FMT_DIM_BAD,
                db = k <= b->rank ? b->dim[b->rank - k] : FMT_DIM_BAD;
        fmt_dim d = da;
        if (k > a->rank || (k <= b->rank && fmt_dim_is(g->dims, da, 1)))
            d = db;
        else if (k <= b->rank && !fmt_dim_is(g->dims, db, 1) && !fmt_dim_unify(g->dims, da, db))
            return false;
        t.dim[t.rank - k] = fmt_dim_resolve(g->dims, d);
    }
    *out = t;
    return true;
}

ir_id ir_ew(ir_graph *g, ir_op op, const ir_id *in, uint32_t n_in)
{
    ir_id same[IR_IN_MAX];
    ir_type common = {0};
    for (uint32_t k = 0; k < MIN(n_in, IR_IN_MAX); k++) {
        const ir_type *t = type_or_null(g, in[k]);
        if (!t)
            return 0;
        ir_type joined = *t;
        if (k && !ir_broadcast_dims(g, &common, t, &joined)) {
            AUTO_BUF base_buf text;
            base_buf_init(&text, BASE_TAG_IR, 300);
            ir_type_print(g->dims, &common, &text);
            base_buf_puts(&text, " and ");
            ir_type_print(g->dims, t, &text);
            return ir_bad(g, RTX_INVALID, "%s%s%.60s: %s do not broadcast", ir_op_get(op)->name,
                          g->current_name ? " " : "", g->current_name ? g->current_name : "",
                          text.data ? text.data : "shapes");
        }
        common = joined;
    }
    for (uint32_t k = 0; k < MIN(n_in, IR_IN_MAX); k++)
        same[k] = ir_broadcast(g, in[k], common.dim, common.rank);
    return ir_emit(g, op, same, n_in, NULL);
}

/* ---- questions ---- */

const char *ir_name_of(const ir_graph *g, ir_id id) { return g->node_names[g->nodes[id].name]; }

bool ir_type_eq(const ir_type *a, const ir_type *b)
{
    return a->dtype == b->dtype && a->residency == b->residency && same_dims(a, b->dim, b->rank);
}

fmt_dim ir_elems(const ir_graph *g, const ir_type *t)
{
    fmt_dim n = fmt_dim_const(g->dims, 1);
    for (int k = 0; k < t->rank; k++)
        n = fmt_dim_mul(g->dims, n, t->dim[k]);
    return n;
}

static bool const_splat(const ir_const *c, fmt_dtype t, double *out_v)
{
    size_t size = fmt_dtype_bytes(t);
    const char *data = c->data;
    if (c->bytes == 0 || (c->bytes > size && memcmp(data, data + size, c->bytes - size) != 0))
        return false;
    if (t == FMT_I64) { /* only integers that a double holds */
        int64_t v;
        memcpy(&v, data, 8);
        if (v > INT64_C(1) << 53 || v < -(INT64_C(1) << 53))
            return false;
    }
    *out_v = ir_load_element(t, data);
    return true;
}

bool ir_is_splat(const ir_graph *g, ir_id id, double *out_v)
{
    const ir_node *n = ir_node_get(g, id);
    if (n->op == IR_const)
        return const_splat(ir_const_of(g, id), n->type.dtype, out_v);
    if (!(ir_op_get((ir_op)n->op)->view || n->op == IR_cast) ||
        !ir_is_splat(g, ir_in(g, id, 0), out_v))
        return false;
    if (n->op == IR_cast) {
        uint64_t elem = 0;
        ir_store_element(n->type.dtype, *out_v, &elem);
        *out_v = ir_load_element(n->type.dtype, &elem);
    }
    return true;
}

void ir_type_print(const fmt_dims *p, const ir_type *t, base_buf *b)
{
    base_buf_puts(b, fmt_dtype_name(t->dtype));
    base_buf_puts(b, "[");
    for (int k = 0; k < t->rank; k++) {
        base_buf_puts(b, k ? "," : "");
        fmt_dim_print(p, t->dim[k], b);
    }
    base_buf_puts(b, "]");
}

uint32_t *ir_use_counts(const ir_graph *g)
{
    uint32_t *uses = base_zalloc_array(BASE_TAG_IR, g->n_nodes, sizeof *uses);
    if (!uses)
        return NULL;
    for (ir_id id = 1; id < g->n_nodes; id++)
        for (uint32_t k = 0; k < g->nodes[id].n_in; k++)
            uses[ir_in(g, id, k)]++;
    for (uint32_t k = 0; k < g->n_outputs; k++)
        uses[g->outputs[k].id]++;
    return uses;
}

/* ---- rebuilding ---- */

static const char *input_name(const ir_graph *g, ir_id id)
{
    for (uint32_t k = 0; k < g->n_inputs; k++)
        if (g->inputs[k].id == id)
            return g->inputs[k].name;
    return "";
}

ir_id ir_copy_node(ir_graph *g, const ir_graph *old, ir_id old_id, const ir_id *in)
{
    const ir_node *n = ir_node_get(old, old_id);
    if (n->op == IR_input)
        return ir_input(g, input_name(old, old_id), &n->type);
    if (n->op != IR_const)
        return ir_emit(g, (ir_op)n->op, in, n->n_in, ir_attrs_of(old, old_id));
    const ir_const *c = ir_const_of(old, old_id);
    return c->owned ? ir_const_copy(g, &n->type, c->data, c->bytes)
                    : ir_const_borrow(g, &n->type, c->data, c->bytes);
}

static void mark_live(const ir_graph *g, uint8_t *live)
{
    for (uint32_t k = 0; k < g->n_outputs; k++)
        live[g->outputs[k].id] = 1;
    for (ir_id id = g->n_nodes - 1; id > 0; id--)
        for (uint32_t k = 0; live[id] && k < g->nodes[id].n_in; k++)
            live[ir_in(g, id, k)] = 1;
}

static void rewrite_nodes(const ir_graph *old, ir_rule rule, void *ctx, ir_graph *g,
                          const uint8_t *live, ir_id *map)
{
    for (ir_id id = 1; id < old->n_nodes && g->err.code == RTX_OK; id++) {
        ir_id in[IR_IN_MAX];
        if (!live[id] && ir_op_of(old, id) != IR_input)
            continue;
        for (uint32_t k = 0; k < old->nodes[id].n_in; k++)
            in[k] = map[ir_in(old, id, k)];
        g->current_name = ir_name_of(old, id);
        map[id] = live[id] ? rule(ctx, old, id, g, in) : ir_copy_node(g, old, id, in);
        if (map[id] == 0)
            ir_bad(g, RTX_INTERNAL, "no replacement for %s", ir_op_get(ir_op_of(old, id))->name);
    }
    g->current_name = NULL;
    for (uint32_t k = 0; k < old->n_outputs; k++)
        ir_output(g, old->outputs[k].name, map[old->outputs[k].id]);
}

rtx_status ir_rewrite(const ir_graph *old, ir_rule rule, void *ctx, ir_graph **out, rtx_err *err)
{
    TRY(ir_ok(old, err));
    AUTO_FREE uint8_t *live = NULL;
    AUTO_FREE ir_id *map = NULL;
    ir_graph *g;
    TRY_ALLOC(live = base_zalloc(BASE_TAG_IR, old->n_nodes), err);
    TRY_ALLOC(map = base_zalloc_array(BASE_TAG_IR, old->n_nodes, sizeof *map), err);
    TRY_ALLOC(g = ir_graph_new(old->dims), err);
    mark_live(old, live);
    rewrite_nodes(old, rule, ctx, g, live, map);
    rtx_status status = ir_ok(g, err);
    if (status == RTX_OK)
        *out = g;
    else
        ir_graph_free(g);
    return status;
}
