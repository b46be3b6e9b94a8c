/* What op handlers call: inputs, outputs, attributes, verdicts, and arithmetic on known contents. */
#include "fe_onnx.h"

/* ---- verdicts ---- */

bool fe_good(const fe_node *n) { return !n->refused && n->g->err.code == RTX_OK; }

void fe_refuse(fe_node *n, const char *fmt, ...)
{
    if (n->refused)
        return;
    n->refused = true;
    char reason[256];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(reason, sizeof reason, fmt, ap);
    va_end(ap);
    fe_report(n->m, "%.*s, opset %lld, %s (node '%.*s')", FE_SHOW(n->op_name), (long long)n->opset,
              reason, FE_SHOW(n->name));
}

void fe_bad(fe_node *n, const char *fmt, ...)
{
    char text[256];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    ir_bad(n->g, RTX_INVALID, "%s", text);
}

/* ---- values ---- */

static ir_id const_of_content(fe_imp *m, const fe_val *v, const int64_t *ints)
{
    union {
        int64_t i64[FE_CONTENT_MAX];
        int32_t i32[FE_CONTENT_MAX];
        uint8_t b[FE_CONTENT_MAX];
    } u;
    for (uint32_t i = 0; i < v->n; i++) {
        int64_t x = ints[i] == FMT_DIM_LIMIT    ? INT64_MAX
                    : ints[i] == -FMT_DIM_LIMIT ? INT64_MIN
                                                : ints[i];
        switch (v->type.dtype) {
        case FMT_I64:
            u.i64[i] = x;
            break;
        case FMT_I32:
            u.i32[i] = (int32_t)x;
            break;
        default:
            u.b[i] = x != 0;
        }
    }
    return ir_const_copy(m->g, &v->type, v->n ? &u : NULL, v->n * fmt_dtype_bytes(v->type.dtype));
}

ir_id fe_id(fe_imp *m, fe_val *v)
{
    if (v->id || !v->content)
        return v->id;
    int64_t ints[FE_CONTENT_MAX];
    bool all_const = true, endless = false;
    for (uint32_t i = 0; i < v->n; i++) {
        bool c = fmt_dim_is_const(m->d, v->content[i], &ints[i]);
        all_const &= c;
        endless |= c && (ints[i] == FMT_DIM_LIMIT || ints[i] == -FMT_DIM_LIMIT);
    }
    if (all_const)
        return v->id = const_of_content(m, v, ints);
    if (endless)
        return ir_bad(m->g, RTX_UNSUPPORTED, "a tensor mixes sizes with values beyond 2^48");
    if (v->n > FMT_RANK_MAX)
        return ir_bad(m->g, RTX_UNSUPPORTED,
                      "data of %u numbers of which some depend on free sizes; the limit is %d: "
                      "export the model with fixed sizes",
                      v->n, FMT_RANK_MAX);
    bool scalar = v->type.rank == 0;
    ir_id id = ir_dimvals(m->g, v->content, v->n, scalar);
    if (v->type.rank > 1)
        id = ir_reshape(m->g, id, v->type.dim, v->type.rank);
    return v->id = ir_cast(m->g, id, (fmt_dtype)v->type.dtype);
}

bool fe_has(const fe_node *n, uint32_t k) { return k < n->n_in && n->in[k]; }
const ir_type *fe_type(const fe_node *n, uint32_t k) { return &n->in[k]->type; }
ir_id fe_in(fe_node *n, uint32_t k) { return fe_has(n, k) ? fe_id(n->m, n->in[k]) : 0; }

const fmt_dim *fe_content(const fe_node *n, uint32_t k, uint32_t *out_n)
{
    if (!fe_has(n, k) || !n->in[k]->content)
        return NULL;
    *out_n = n->in[k]->n;
    return n->in[k]->content;
}

/* An integer vector or scalar of unknown content. */
static bool other_operand(const fe_node *n, uint32_t k)
{
    return fe_has(n, k) && !n->in[k]->content && n->in[k]->type.rank <= 1 &&
           fmt_dtype_class((fmt_dtype)n->in[k]->type.dtype) == 'I';
}

/* " bind=NAME" for every graph input that operand k depends on, and other operands of its kind: who calls again with
 * these bound should not come back for each of them. */
static void list_binds(fe_node *n, uint32_t k, base_buf *b)
{
    ir_id top = fe_in(n, k);
    for (uint32_t j = 1; j < n->n_in; j++)
        if (other_operand(n, j))
            top = MAX(top, fe_in(n, j));
    const ir_graph *g = n->g;
    bool *seen = base_arena_array(&n->m->arena, top + 1, sizeof *seen);
    if (!seen || !fe_good(n))
        return;
    seen[fe_in(n, k)] = true;
    for (uint32_t j = 1; j < n->n_in; j++)
        if (other_operand(n, j))
            seen[fe_in(n, j)] = true;
    for (ir_id i = top; i > 0; i--) {
        const ir_node *node = ir_node_get(g, i);
        for (uint32_t k = 0; seen[i] && k < node->n_in; k++)
            seen[ir_in(g, i, k)] = true;
    }
    for (uint32_t i = 0; i < g->n_inputs; i++)
        if (g->inputs[i].id <= top && seen[g->inputs[i].id])
            base_buf_printf(b, " bind=%.60s", g->inputs[i].name);
}

const fmt_dim *fe_need(fe_node *n, uint32_t k, const char *what, uint32_t *out_n)
{
    *out_n = 0;
    if (!fe_has(n, k)) {
        fe_bad(n, "input %u (%s) is missing", k, what);
        return NULL;
    }
    const fmt_dim *c = fe_content(n, k, out_n);
    if (c || !fe_good(n))
        return c;
    AUTO_BUF base_buf binds;
    base_buf_init(&binds, BASE_TAG_FRONTEND, 160);
    list_binds(n, k, &binds);
    if (binds.len || binds.over_max)
        fe_refuse(n, "%s depends on the content of an input, which must be bound when compiling:%s",
                  what, binds.data ? binds.data : "");
    else
        fe_refuse(n, "%s must be known when compiling", what);
    return NULL;
}

bool fe_need_ints(fe_node *n, uint32_t k, const char *what, int64_t *out, uint32_t *inout_n)
{
    uint32_t count;
    const fmt_dim *c = fe_need(n, k, what, &count);
    if (!c)
        return false;
    if (count > *inout_n) {
        fe_bad(n, "%s has %u entries; at most %u make sense", what, count, *inout_n);
        return false;
    }
    for (uint32_t i = 0; i < count; i++)
        if (!fmt_dim_is_const(n->d, c[i], &out[i])) {
            fe_refuse(n, "%s depends on a free size", what);
            return false;
        }
    *inout_n = count;
    return true;
}

bool fe_number(const fe_node *n, uint32_t k, double *out_v)
{
    if (!fe_has(n, k))
        return false;
    const fe_val *v = n->in[k];
    int64_t c;
    if (v->content && v->n == 1 && fmt_dim_is_const(n->d, v->content[0], &c)) {
        *out_v = (double)c;
        return true;
    }
    return v->id && v->n <= 1 && ir_is_splat(n->g, v->id, out_v);
}

void fe_set(fe_node *n, uint32_t k, ir_id id)
{
    if (k >= n->n_out || !n->out[k] || !id)
        return;
    n->out[k]->id = id;
    n->out[k]->type = *ir_type_of(n->g, id);
}

void fe_set_known(fe_node *n, uint32_t k, const ir_type *type, const fmt_dim *content,
                  uint32_t count)
{
    if (k >= n->n_out || !n->out[k])
        return;
    fmt_dim *c = base_arena_array(&n->m->arena, count + 1, sizeof *c);
    if (!c) {
        ir_bad(n->g, RTX_NOMEM, "out of memory");
        return;
    }
    if (count)
        memcpy(c, content, count * sizeof *c);
    *n->out[k] = (fe_val){.type = *type, .content = c, .n = count, .maker = n->out[k]->maker};
}

void fe_set_vec(fe_node *n, uint32_t k, const fmt_dim *content, uint32_t count)
{
    ir_type t = {.dtype = FMT_I64, .rank = 1};
    t.dim[0] = fmt_dim_const(n->d, count);
    fe_set_known(n, k, &t, content, count);
}

/* ---- attributes ---- */

const fe_pb_attr *fe_attr(const fe_node *n, const char *name)
{
    for (uint32_t i = 0; i < n->n_attrs; i++)
        if (fe_span_is(n->attrs[i].name, name))
            return &n->attrs[i];
    return NULL;
}

static const char *kind_name(int64_t kind)
{
    static const char *const names[] = {"of no known kind",
                                        [FE_ATTR_FLOAT] = "a float",
                                        [FE_ATTR_INT] = "an int",
                                        [FE_ATTR_STRING] = "a string",
                                        [FE_ATTR_TENSOR] = "a tensor",
                                        [FE_ATTR_GRAPH] = "a graph",
                                        [FE_ATTR_FLOATS] = "floats",
                                        [FE_ATTR_INTS] = "ints",
                                        [FE_ATTR_STRINGS] = "strings"};
    return names[kind > 0 && kind < (int64_t)COUNT_OF(names) ? kind : 0];
}

/* Old files do not say: what is there tells, and 0 is left where nothing is. */
static int64_t kind_of(const fe_pb_attr *a)
{
    return a->type        ? a->type
           : a->has_t     ? FE_ATTR_TENSOR
           : a->g.len     ? FE_ATTR_GRAPH
           : a->ints.n    ? FE_ATTR_INTS
           : a->floats.n  ? FE_ATTR_FLOATS
           : a->strings.n ? FE_ATTR_STRINGS
           : a->s.len     ? FE_ATTR_STRING
           : a->f != 0    ? FE_ATTR_FLOAT
           : a->i         ? FE_ATTR_INT
                          : 0;
}

static const fe_pb_attr *attr_of_kind(const fe_node *n, const char *name, int64_t kind)
{
    const fe_pb_attr *a = fe_attr(n, name);
    int64_t have = a ? kind_of(a) : 0;
    if (have == 0 || have == kind)
        return a;
    snprintf(n->m->wrong, sizeof n->m->wrong, "attribute %s is %s, wanted %s", name,
             kind_name(have), kind_name(kind));
    return NULL;
}

bool fe_attrs_ok(const fe_node *n)
{
    static const struct {
        const char *op, *name;
        int64_t kind;
    } in_place[] = {
        {"Constant", "value", FE_ATTR_TENSOR},        {"Constant", "value_int", FE_ATTR_INT},
        {"Constant", "value_ints", FE_ATTR_INTS},     {"Constant", "value_float", FE_ATTR_FLOAT},
        {"Constant", "value_floats", FE_ATTR_FLOATS}, {"ConstantOfShape", "value", FE_ATTR_TENSOR}};
    for (size_t i = 0; i < COUNT_OF(in_place); i++)
        if (fe_span_is(n->op_name, in_place[i].op))
            (void)attr_of_kind(n, in_place[i].name, in_place[i].kind);
    return !n->m->wrong[0];
}

int64_t fe_attr_i(const fe_node *n, const char *name, int64_t otherwise)
{
    const fe_pb_attr *a = attr_of_kind(n, name, FE_ATTR_INT);
    return a ? a->i : otherwise;
}

double fe_attr_f(const fe_node *n, const char *name, double otherwise)
{
    const fe_pb_attr *a = attr_of_kind(n, name, FE_ATTR_FLOAT);
    return a ? (double)a->f : otherwise;
}

fe_span fe_attr_s(const fe_node *n, const char *name)
{
    const fe_pb_attr *a = attr_of_kind(n, name, FE_ATTR_STRING);
    return a ? a->s : (fe_span){0};
}

bool fe_attr_ints(fe_node *n, const char *name, int64_t *out, uint32_t max, uint32_t *out_n)
{
    const fe_pb_attr *a = attr_of_kind(n, name, FE_ATTR_INTS);
    *out_n = 0;
    if (!a)
        return false;
    if (a->ints.n > max) {
        fe_bad(n, "attribute %s has %zu entries; at most %u make sense", name, a->ints.n, max);
        return false;
    }
    fe_nums_at it = fe_nums_begin(&a->ints);
    for (uint64_t v; *out_n < max && fe_nums_next(&it, &v);)
        out[(*out_n)++] = (int64_t)v;
    return true;
}

bool fe_axis(fe_node *n, int64_t axis, uint32_t rank, uint32_t *out_axis)
{
    *out_axis = 0;
    if (axis < -(int64_t)rank || axis >= (int64_t)rank) {
        fe_bad(n, "axis %lld is outside a tensor of %u axes", (long long)axis, rank);
        return false;
    }
    *out_axis = (uint32_t)(axis < 0 ? axis + rank : axis);
    return true;
}

/* Axes of the attribute (older opsets) or of input k; false: none given. */
bool fe_axes(fe_node *n, uint32_t k, int64_t *axes, uint32_t *out_n)
{
    *out_n = FMT_RANK_MAX;
    if (fe_has(n, k))
        return fe_need_ints(n, k, "axes", axes, out_n);
    return fe_attr_ints(n, "axes", axes, FMT_RANK_MAX, out_n);
}

bool fe_check_rank(fe_node *n, uint32_t rank)
{
    if (rank > FMT_RANK_MAX)
        fe_refuse(n, "a result of %u axes; the limit is %d", rank, FMT_RANK_MAX);
    return fe_good(n);
}

/* Sizes must not be negative constants. */
bool fe_check_sizes(fe_node *n, const fmt_dim *dims, uint32_t rank)
{
    int64_t c;
    for (uint32_t i = 0; i < rank; i++)
        if (fmt_dim_is_const(n->d, dims[i], &c) && (c < 0 || c >= FMT_DIM_LIMIT))
            fe_bad(n, "axis %u would have size %lld", i, (long long)c);
    return fe_check_rank(n, rank);
}

/* ---- dimensions ---- */

static bool at_most(const fmt_dims *d, fmt_dim a, fmt_dim b)
{
    int64_t alo, ahi, blo, bhi;
    fmt_dim_range(d, a, &alo, &ahi);
    fmt_dim_range(d, b, &blo, &bhi);
    return ahi <= blo;
}

fmt_dim fe_dim_min(fmt_dims *d, fmt_dim a, fmt_dim b)
{
    if (at_most(d, a, b))
        return a;
    return at_most(d, b, a) ? b : fmt_dim_bin(d, FMT_MIN, a, b);
}

fmt_dim fe_dim_max(fmt_dims *d, fmt_dim a, fmt_dim b)
{
    if (at_most(d, a, b))
        return b;
    return at_most(d, b, a) ? a : fmt_dim_bin(d, FMT_MAX, a, b);
}

fmt_dim fe_dim_product(fmt_dims *d, const fmt_dim *dims, uint32_t n)
{
    fmt_dim p = fmt_dim_const(d, 1);
    for (uint32_t i = 0; i < n; i++)
        p = fmt_dim_mul(d, p, dims[i]);
    return p;
}

static bool calc_const(ir_op op, int64_t a, int64_t b, int64_t *out)
{
    switch (op) {
    case IR_add:
        *out = a + b;
        return true; /* both below 2^48 */
    case IR_sub:
        *out = a - b;
        return true;
    case IR_mul:
        return !__builtin_mul_overflow(a, b, out);
    case IR_div:
        *out = b ? a / b : 0;
        return b != 0;
    case IR_mod:
        *out = b ? ((a % b) + b) % b : 0;
        return b != 0;
    case IR_fmod:
        *out = b ? a % b : 0;
        return b != 0;
    case IR_min:
        *out = MIN(a, b);
        return true;
    case IR_max:
        *out = MAX(a, b);
        return true;
    case IR_neg:
        *out = -a;
        return true;
    case IR_abs:
        *out = a < 0 ? -a : a;
        return true;
    case IR_sign:
        *out = (a > 0) - (a < 0);
        return true;
    case IR_not:
        *out = !a;
        return true;
    case IR_and:
        *out = a & b;
        return true;
    case IR_or:
        *out = a | b;
        return true;
    case IR_xor:
        *out = a ^ b;
        return true;
    case IR_eq:
        *out = a == b;
        return true;
    case IR_ne:
        *out = a != b;
        return true;
    case IR_lt:
        *out = a < b;
        return true;
    case IR_le:
        *out = a <= b;
        return true;
    case IR_gt:
        *out = a > b;
        return true;
    case IR_ge:
        *out = a >= b;
        return true;
    default:
        return false;
    }
}

static bool is_test(ir_op op)
{
    return op == IR_eq || op == IR_ne || op == IR_lt || op == IR_le || op == IR_gt || op == IR_ge;
}

/* A comparison that has one answer for all sizes: 0, 1, or -1 for none. */
static int compare(fmt_dims *d, ir_op op, fmt_dim a, fmt_dim b)
{
    int64_t lo, hi;
    if (a == b)
        return op == IR_eq || op == IR_le || op == IR_ge;
    fmt_dim_range(d, fmt_dim_sub(d, a, b), &lo, &hi);
    switch (op) {
    case IR_eq:
        return lo > 0 || hi < 0 ? 0 : -1;
    case IR_ne:
        return lo > 0 || hi < 0 ? 1 : -1;
    case IR_lt:
        return hi < 0 ? 1 : lo >= 0 ? 0 : -1;
    case IR_le:
        return hi <= 0 ? 1 : lo > 0 ? 0 : -1;
    case IR_gt:
        return lo > 0 ? 1 : hi <= 0 ? 0 : -1;
    case IR_ge:
        return lo >= 0 ? 1 : hi < 0 ? 0 : -1;
    default:
        return -1;
    }
}

static bool calc_symbolic(fmt_dims *d, ir_op op, fmt_dim a, fmt_dim b, fmt_dim *out)
{
    int64_t alo, ahi, blo, bhi;
    fmt_dim_range(d, a, &alo, &ahi);
    fmt_dim_range(d, b, &blo, &bhi);
    switch (op) {
    case IR_add:
        *out = fmt_dim_add(d, a, b);
        return true;
    case IR_sub:
        *out = fmt_dim_sub(d, a, b);
        return true;
    case IR_mul:
        *out = fmt_dim_mul(d, a, b);
        return true;
    case IR_min:
        *out = fe_dim_min(d, a, b);
        return true;
    case IR_max:
        *out = fe_dim_max(d, a, b);
        return true;
    case IR_neg:
        *out = fmt_dim_sub(d, fmt_dim_const(d, 0), a);
        return true;
    case IR_abs:
        *out = a;
        return alo >= 0;
    case IR_sign:
        *out = fmt_dim_const(d, alo > 0 ? 1 : -1);
        return alo > 0 || ahi < 0;
    case IR_div: /* truncation is flooring only where nothing is negative */
        *out = alo >= 0 && blo > 0 ? fmt_dim_div(d, a, b) : FMT_DIM_BAD;
        return *out != FMT_DIM_BAD;
    case IR_mod:
    case IR_fmod:
        *out = alo >= 0 && blo > 0 ? fmt_dim_bin(d, FMT_MOD, a, b) : FMT_DIM_BAD;
        return *out != FMT_DIM_BAD;
    default: {
        int c = is_test(op) ? compare(d, op, a, b) : -1;
        *out = fmt_dim_const(d, c > 0);
        return c >= 0;
    }
    }
}

bool fe_dim_calc(fmt_dims *d, ir_op op, fmt_dim a, fmt_dim b, fmt_dim *out)
{
    int64_t x, y, z = 0;
    bool xc = fmt_dim_is_const(d, a, &x), yc = fmt_dim_is_const(d, b, &y);
    bool endless = (xc && (x >= FMT_DIM_LIMIT || x <= -FMT_DIM_LIMIT)) ||
                   (yc && (y >= FMT_DIM_LIMIT || y <= -FMT_DIM_LIMIT));
    if (endless)
        return false;
    if (xc && yc) {
        if (!calc_const(op, x, y, &z) || z >= FMT_DIM_LIMIT || z <= -FMT_DIM_LIMIT)
            return false;
        *out = fmt_dim_const(d, z);
        return true;
    }
    return calc_symbolic(d, op, a, b, out);
}

/* ---- elementwise on known contents ---- */

/* Index into an operand of n elements for element i of the result, right-aligned; shapes are constants. */
static uint32_t operand_index(const fmt_dims *d, const ir_type *out, const ir_type *in, uint32_t i)
{
    uint32_t index = 0, stride = 1;
    for (int ax = out->rank - 1, k = in->rank - 1; k >= 0; ax--, k--) {
        int64_t on = 1, in_n = 1;
        fmt_dim_is_const(d, out->dim[ax], &on);
        fmt_dim_is_const(d, in->dim[k], &in_n);
        uint32_t pos = i % (uint32_t)on;
        i /= (uint32_t)on;
        index += in_n == 1 ? 0 : pos * stride;
        stride *= (uint32_t)in_n;
    }
    return index;
}

static bool known_shape(fe_node *n, uint32_t n_in, ir_type *out, uint32_t *out_elems)
{
    *out = *fe_type(n, n_in - 1);
    for (uint32_t k = 0; k < n_in; k++) {
        uint32_t count;
        const ir_type t = *out;
        if (!fe_content(n, k, &count) || !ir_broadcast_dims(n->g, &t, fe_type(n, k), out))
            return false;
    }
    out->dtype = fe_type(n, n_in - 1)->dtype;
    *out_elems = 1;
    for (uint32_t i = 0; i < out->rank; i++) {
        int64_t c;
        if (!fmt_dim_is_const(n->d, out->dim[i], &c) || c < 0 || c > FE_CONTENT_MAX ||
            (*out_elems *= (uint32_t)c) > FE_CONTENT_MAX)
            return false;
    }
    return true;
}

bool fe_known_ew(fe_node *n, ir_op op, uint32_t n_in)
{
    ir_type t;
    uint32_t elems;
    fmt_dim c[FE_CONTENT_MAX];
    if (!fe_good(n) || !known_shape(n, n_in, &t, &elems))
        return false;
    for (uint32_t i = 0; i < elems; i++) {
        fmt_dim x[3] = {0};
        for (uint32_t k = 0; k < n_in; k++)
            x[k] = n->in[k]->content[operand_index(n->d, &t, fe_type(n, k), i)];
        if (op == IR_select) {
            int64_t cond;
            if (!fmt_dim_is_const(n->d, x[0], &cond))
                return false;
            c[i] = cond ? x[1] : x[2];
        } else if (!fe_dim_calc(n->d, op, x[0], n_in > 1 ? x[1] : x[0], &c[i])) {
            return false;
        }
    }
    if (is_test(op))
        t.dtype = FMT_BOOL;
    fe_set_known(n, 0, &t, c, elems);
    return true;
}

/* ---- elementwise in the graph ---- */

/* The symbol s of an expression s + c. */
static bool is_shifted_sym(fmt_dims *d, fmt_dim whole, uint32_t *out_sym, int64_t *out_c)
{
    for (uint32_t s = 0; s < fmt_sym_count(d); s++)
        if (fmt_dim_uses(d, whole, s) &&
            fmt_dim_is_const(d, fmt_dim_sub(d, whole, fmt_dim_sym(d, s)), out_c)) {
            *out_sym = s;
            return true;
        }
    return false;
}

/* A slice [0:s] of c rows has min(s, c) rows; meeting s rows proves s <= c. Such a bound calls for a new pass. */
static bool learn_bound(fe_imp *m, fmt_dim whole, fmt_dim part)
{
    int64_t lo, hi, c;
    uint32_t sym;
    fmt_dim_range(m->d, part, &lo, &hi);
    if (hi >= FMT_DIM_LIMIT || hi < 0 ||
        fmt_dim_bin(m->d, FMT_MIN, whole, fmt_dim_const(m->d, hi)) != part ||
        !is_shifted_sym(m->d, whole, &sym, &c) || hi - c < fmt_sym_get(m->d, sym)->lo)
        return false;
    fmt_sym_bound(m->d, sym, fmt_sym_get(m->d, sym)->lo, hi - c);
    return m->learned = true;
}

static bool learn_bounds(fe_imp *m, const ir_type *a, const ir_type *b)
{
    bool any = false;
    for (int i = a->rank - 1, j = b->rank - 1; i >= 0 && j >= 0; i--, j--)
        if (a->dim[i] != b->dim[j])
            any |= learn_bound(m, a->dim[i], b->dim[j]) || learn_bound(m, b->dim[j], a->dim[i]);
    if (any)
        ir_bad(m->g, RTX_INVALID,
               "a size is bounded by a table"); /* never shown: the pass is repeated */
    return any;
}

ir_id fe_ew(fe_node *n, ir_op op, const ir_id *in, uint32_t n_in)
{
    for (uint32_t i = 0; i < n_in; i++)
        for (uint32_t j = i + 1; j < n_in && fe_good(n); j++)
            learn_bounds(n->m, ir_type_of(n->g, in[i]), ir_type_of(n->g, in[j]));
    return fe_good(n) ? ir_ew(n->g, op, in, n_in) : 0;
}

ir_id fe_ew2(fe_node *n, ir_op op, ir_id a, ir_id b) { return fe_ew(n, op, (ir_id[]){a, b}, 2); }

ir_id fe_const_like(fe_node *n, ir_id x, double v)
{
    return fe_good(n) ? ir_scalar(n->g, (fmt_dtype)ir_type_of(n->g, x)->dtype, v) : 0;
}

ir_id fe_expand(fe_node *n, ir_id x, const fmt_dim *dims, uint32_t rank)
{
    if (!fe_good(n))
        return 0;
    ir_type target = *ir_type_of(n->g, x), out;
    target.rank = (uint8_t)rank;
    if (rank)
        memcpy(target.dim, dims, rank * sizeof *dims);
    if (learn_bounds(n->m, ir_type_of(n->g, x), &target))
        return 0;
    if (!ir_broadcast_dims(n->g, ir_type_of(n->g, x), &target, &out)) {
        fe_bad(n, "its shape cannot be stretched to the one asked for");
        return 0;
    }
    return ir_broadcast(n->g, x, out.dim, out.rank);
}
