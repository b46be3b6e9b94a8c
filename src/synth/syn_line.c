/* Text of elementwise work: one generator of scalar expressions, and the functions over runs of elements made from it.
 *   layer    L3 synth; may include base, format, ir
 *   values   each needed node of the region becomes one `const T vN = …;` in topological order inside a loop over j, with the
 *            expression that ops.def gives. How the loop reads operands depends on what is known about strides:
 *            a constant is compiled in (1: p[j], 0: once before the loop, s: p[j * s]); otherwise the run is cut into
 *            blocks and k_stage_* brings each block to stride 1, so that one vector loop serves all strides
 *   types    f32 float, i64 and i32 as such, bool uint8_t with 0 or 1; f16 and bf16 stay bits until a cast */
#include "syn_form.h"
#include <ctype.h>
#include <math.h>
#include <stdio.h>

/* ---- sizes, strides, types ---- */

syn_text syn_dim_text(const syn_problem *p, fmt_dim d)
{
    syn_text t = {"0"};
    int64_t v;
    uint32_t sym;
    if (fmt_dim_is_const(p->dims, d, &v))
        snprintf(t.s, sizeof t.s, "%lld", (long long)v);
    else if (fmt_dim_is_sym(p->dims, d, &sym))
        snprintf(t.s, sizeof t.s, "(arg[%u])", sym);
    return t;
}

syn_text syn_stride_text(const syn_problem *p, uint32_t o, int axis)
{
    syn_text t = {"0"};
    int64_t v;
    if (axis < 0)
        return t;
    if (syn_stride_const(p, o, axis, &v))
        snprintf(t.s, sizeof t.s, v < 0 ? "(%lld)" : "%lld", (long long)v);
    else
        snprintf(t.s, sizeof t.s, "(arg[%u])", syn_arg_stride(p, o, (uint32_t)axis));
    return t;
}

const char *syn_ctype(fmt_dtype t)
{
    switch (t) {
    case FMT_F32:
        return "float";
    case FMT_F64:
        return "double";
    case FMT_I64:
        return "int64_t";
    case FMT_I32:
        return "int32_t";
    case FMT_F16:
    case FMT_BF16:
        return "uint16_t";
    default:
        return "uint8_t"; /* bool */
    }
}

/* ---- expressions ---- */

static const char *unsigned_type(fmt_dtype t)
{
    return t == FMT_I64 ? "uint64_t" : t == FMT_I32 ? "uint32_t" : "uint8_t";
}

/* The dtype that decides the class of a node: that of its inputs (of its branches for select). */
static fmt_dtype class_dtype(const ir_graph *g, ir_id id)
{
    return ir_type_of(g, ir_in(g, id, ir_op_of(g, id) == IR_select))->dtype;
}

static const char *op_expr(ir_op op, fmt_dtype t)
{
    const ir_op_info *info = ir_op_get(op);
    if (op == IR_select)
        return info->fexpr;
    return t == FMT_F32                                    ? info->fexpr
           : t == FMT_I64 || t == FMT_I32 || t == FMT_BOOL ? info->iexpr
                                                           : "";
}

bool syn_expr_exists(const ir_graph *g, ir_id id)
{
    ir_op op = ir_op_of(g, id);
    if (op == IR_input || op == IR_const || op == IR_broadcast || op == IR_iota || op == IR_cast)
        return true;
    return op_expr(op, class_dtype(g, id))[0] != 0;
}

/* Put the operands' texts for a, b, c and the unsigned type for U; other names (k_exp) stay. */
static void put_expr(base_buf *out, const char *expr, const char *const operand[3], fmt_dtype t)
{
    for (const char *s = expr; *s;) {
        size_t n = 1;
        if (isalpha((unsigned char)*s) || *s == '_')
            while (isalnum((unsigned char)s[n]) || s[n] == '_')
                n++;
        else if (isdigit((unsigned char)*s)) /* 0.0f is no name */
            while (isalnum((unsigned char)s[n]) || s[n] == '.')
                n++;
        if (n == 1 && *s >= 'a' && *s <= 'c')
            base_buf_puts(out, operand[*s - 'a']);
        else if (n == 1 && *s == 'U')
            base_buf_puts(out, unsigned_type(t));
        else
            base_buf_put(out, s, n);
        s += n;
    }
}

static bool is_half(fmt_dtype t) { return t == FMT_F16 || t == FMT_BF16; }

/* to(a) for a value of dtype from; half types go through float. */
static void put_cast(base_buf *out, fmt_dtype from, fmt_dtype to, const char *a)
{
    char value[64];
    if (is_half(from) && to == FMT_BOOL) {
        base_buf_printf(out, "(%s & 0x7fff) != 0", a);
        return;
    }
    snprintf(value, sizeof value,
             from == FMT_F16    ? "k_f32_f16(%s)"
             : from == FMT_BF16 ? "k_f32_bf16(%s)"
                                : "%s",
             a);
    bool from_float = is_half(from) || from == FMT_F32 || from == FMT_F64;
    if (from == to)
        base_buf_puts(out, a);
    else if (to == FMT_BOOL)
        base_buf_printf(out, "%s != 0", value);
    else if (is_half(to) && from == FMT_F64)
        base_buf_printf(out, "k_%s_f64(%s)", fmt_dtype_name(to), value);
    else if (is_half(to) && (from == FMT_I64 || from == FMT_I32))
        base_buf_printf(out, "k_%s_f64((double)%s)", fmt_dtype_name(to), value);
    else if (is_half(to))
        base_buf_printf(out, "k_%s_f32(%s%s)", fmt_dtype_name(to),
                        from == FMT_BOOL ? "(float)" : "", value);
    else if (from_float && (to == FMT_I32 || to == FMT_I64))
        base_buf_printf(out, "k_to_%s(%s)", fmt_dtype_name(to), value);
    else
        base_buf_printf(out, "(%s)%s", syn_ctype(to), value);
}

bool syn_expr(const ir_graph *g, ir_id id, const char *const operand[3], base_buf *out)
{
    ir_op op = ir_op_of(g, id);
    fmt_dtype t = class_dtype(g, id), result = ir_type_of(g, id)->dtype;
    if (op == IR_cast) {
        put_cast(out, t, result, operand[0]);
        return true;
    }
    const char *expr = op_expr(op, t);
    bool wraps = result == t && t != FMT_F32 &&
                 op != IR_select; /* back from the unsigned type, or to 0 and 1 */
    if (wraps && t == FMT_BOOL)
        base_buf_puts(out, "(");
    else if (wraps)
        base_buf_printf(out, "(%s)(", syn_ctype(t));
    put_expr(out, expr, operand, t);
    base_buf_puts(out, wraps && t == FMT_BOOL ? ") != 0" : wraps ? ")" : "");
    return expr[0] != 0;
}

static void put_float(base_buf *b, double v, fmt_dtype t)
{
    if (isnan(v))
        base_buf_puts(b, "K_NAN");
    else if (isinf(v))
        base_buf_puts(b, v < 0 ? "-K_INF" : "K_INF");
    else
        base_buf_printf(b, t == FMT_F32 ? "%.9ef" : "%.17e", v);
}

/* The one element of a rank-0 constant. */
static void put_literal(base_buf *b, const ir_graph *g, ir_id id)
{
    fmt_dtype t = ir_type_of(g, id)->dtype;
    const void *data = ir_const_of(g, id)->data;
    float f;
    double d;
    int64_t i64;
    int32_t i32;
    uint16_t h;
    switch (t) {
    case FMT_F32:
        memcpy(&f, data, 4), put_float(b, f, t);
        break;
    case FMT_F64:
        memcpy(&d, data, 8), put_float(b, d, t);
        break;
    case FMT_I64:
        memcpy(&i64, data, 8);
        base_buf_printf(b, i64 == INT64_MIN ? "(-%lld - 1)" : "%lld",
                        (long long)(i64 == INT64_MIN ? INT64_MAX : i64));
        break;
    case FMT_I32:
        memcpy(&i32, data, 4), base_buf_printf(b, "(int32_t)%lld", (long long)i32);
        break;
    case FMT_F16:
    case FMT_BF16:
        memcpy(&h, data, 2), base_buf_printf(b, "%u", h);
        break;
    default:
        base_buf_printf(b, "%d", *(const uint8_t *)data != 0);
        break;
    }
}

void syn_emit_combine(base_buf *b, ir_op op, fmt_dtype t)
{
    const char *const operand[3] = {"a", "b", ""}, *type = syn_ctype(t);
    base_buf_printf(b, "K_INLINE %s K_FN(combine)(%s a, %s b) { return ", type, type, type);
    put_expr(b, op_expr(op, t), operand, t);
    base_buf_puts(b, "; }\n");
}

/* ---- values of a loop body ---- */

typedef struct access {
    char s[48];
} access;

typedef struct body {
    base_buf *b;
    const syn_problem *p;
    const syn_form *f;
    const ir_graph *g;
    ir_id given;
    uint16_t *number;           /* of each node: 0 = not needed, else v(number - 1) */
    access read[SYN_SLOTS_MAX]; /* how the loop reads a slot */
    const char *read_given;
} body;

static bool body_init(body *y, base_buf *b, const syn_problem *p, const syn_form *f, ir_id given)
{
    *y = (body){.b = b, .p = p, .f = f, .g = p->region, .given = given, .read_given = "x[j]"};
    y->number = base_zalloc_array(BASE_TAG_SYNTH, p->region->n_nodes, sizeof *y->number);
    if (y->number == NULL)
        b->failed = true;
    return y->number != NULL;
}

static void need(body *y, ir_id id)
{
    y->number[id] = 1;
    for (; id > 0; id--) {
        if (y->number[id] == 0 || id == y->given || ir_op_of(y->g, id) == IR_broadcast)
            continue;
        for (uint32_t k = 0; k < ir_node_get(y->g, id)->n_in; k++)
            y->number[ir_in(y->g, id, k)] = 1;
    }
}

static void need_outputs(body *y)
{
    for (uint32_t k = 0; k < y->p->n_out; k++)
        need(y, y->g->outputs[k].id);
}

static uint32_t slot_of(const body *y, ir_id id)
{
    for (uint32_t s = y->f->n_ops; s < y->f->n_slots; s++)
        if (y->f->slot_node[s] == id)
            return s;
    return syn_operand_of(y->p, id);
}

static bool needs_slot(const body *y, uint32_t s)
{
    if (s >= y->p->n_in && s < y->f->n_ops)
        return false;
    ir_id id = s < y->p->n_in ? syn_operand_id(y->p, s) : y->f->slot_node[s];
    return y->number[id] != 0 && id != y->given;
}

static void put_values(body *y, const char *indent)
{
    uint16_t next = 0;
    for (ir_id id = 1; id < y->g->n_nodes; id++) {
        if (y->number[id] == 0)
            continue;
        ir_op op = ir_op_of(y->g, id);
        y->number[id] = ++next;
        base_buf_printf(y->b, "%sconst %s v%d = ", indent, syn_ctype(ir_type_of(y->g, id)->dtype),
                        next - 1);
        if (id == y->given) {
            base_buf_puts(y->b, y->read_given);
        } else if (op == IR_input || op == IR_iota) {
            base_buf_puts(y->b, y->read[slot_of(y, id)].s);
        } else if (op == IR_const || op == IR_broadcast) {
            put_literal(y->b, y->g, op == IR_const ? id : ir_in(y->g, id, 0));
        } else {
            char name[3][12] = {"", "", ""};
            for (uint32_t k = 0; k < 3 && k < ir_node_get(y->g, id)->n_in; k++)
                snprintf(name[k], sizeof name[k], "v%d", y->number[ir_in(y->g, id, k)] - 1);
            (void)syn_expr(y->g, id, (const char *const[3]){name[0], name[1], name[2]}, y->b);
        }
        base_buf_puts(y->b, ";\n");
    }
}

/* ---- runs ---- */

bool syn_run_is_fixed(const syn_problem *p, const syn_form *f, const int8_t axis[SYN_SLOTS_MAX])
{
    int64_t v;
    for (uint32_t s = 0; s < f->n_ops; s++)
        if (axis[s] >= 0 && syn_stride_const(p, s, axis[s], &v))
            return true;
    return false;
}

/* Constant step of a slot along the run, if it is compiled in. */
static bool known_step(const body *y, const syn_run *r, uint32_t s, int64_t *out_v)
{
    if (!r->fixed)
        return false;
    *out_v = 0;
    if (s >= y->f->n_ops) {
        *out_v = r->axis[s] >= 0 && ir_attrs_of(y->g, y->f->slot_node[s])->i[0] == r->axis[s];
        return true;
    }
    return r->axis[s] < 0 || syn_stride_const(y->p, s, r->axis[s], out_v);
}

static const char *slot_type(const body *y, uint32_t s)
{
    return s < y->f->n_ops ? syn_ctype(syn_operand_type(y->p, s)->dtype) : "int64_t";
}

static void put_index(access *a, char base, uint32_t s, int64_t step)
{
    if (step == 1)
        snprintf(a->s, sizeof a->s, "%c%u[j]", base, s);
    else if (step == 0)
        snprintf(a->s, sizeof a->s, "u%u", s);
    else
        snprintf(a->s, sizeof a->s, "%c%u[j * %lld]", base, s, (long long)step);
}

/* Pointers before the loops; known steps of 0 are read here, once. Fills read[]. Returns whether blocks must be staged. */
static bool put_pointers(body *y, const syn_run *r)
{
    bool staged = false;
    for (uint32_t s = 0; s < y->f->n_slots; s++) {
        bool output = s >= y->p->n_in && s < y->f->n_ops;
        if (output ? r->wanted != 0 : !needs_slot(y, s))
            continue;
        int64_t step = 0;
        bool known = known_step(y, r, s, &step);
        const char *type = slot_type(y, s);
        if (s >= y->f->n_ops) { /* the offset of an iota is its value */
            if (known)
                snprintf(y->read[s].s, sizeof y->read[s].s, step ? "at[%u] + j" : "at[%u]", s);
            else
                snprintf(y->read[s].s, sizeof y->read[s].s, "at[%u] + (i + j) * step[%u]", s, s);
            staged |= !known;
            continue;
        }
        staged |= !known;
        base_buf_printf(y->b, "    %s%s *p%u = (%s%s *)c->buf[%u] + at[%u];\n",
                        output ? "" : "const ", type, s, output ? "" : "const ", type, s, s);
        if (known && step == 0 && !output)
            base_buf_printf(y->b, "    const %s u%u = *p%u;\n", type, s, s);
        if (known && (step != 0 || !output))
            put_index(&y->read[s], 'p', s, step);
        else if (known)
            snprintf(y->read[s].s, sizeof y->read[s].s, "*p%u", s);
        else
            put_index(&y->read[s], 'q', s, 1);
    }
    return staged;
}

/* Inside a block loop: slots with unknown steps as adjacent elements q; known ones move along. */
static void put_stages(body *y, const syn_run *r)
{
    for (uint32_t s = 0; s < y->f->n_slots; s++) {
        bool output = s >= y->p->n_in && s < y->f->n_ops;
        if (output ? r->wanted != 0 : !needs_slot(y, s))
            continue;
        int64_t step = 0;
        const char *type = slot_type(y, s);
        if (s >= y->f->n_ops) {
            if (known_step(y, r, s, &step) && step == 1)
                snprintf(y->read[s].s, sizeof y->read[s].s, "at[%u] + i + j", s);
        } else if (known_step(y, r, s, &step)) {
            if (step == 0)
                continue;
            base_buf_printf(y->b, "        %s%s *q%u = p%u + i * %lld;\n", output ? "" : "const ",
                            type, s, s, (long long)step);
            put_index(&y->read[s], 'q', s, step);
        } else if (output) {
            base_buf_printf(y->b, "        %s *q%u = step[%u] == 1 ? p%u + i : t%u;\n", type, s, s,
                            s, s);
        } else {
            base_buf_printf(y->b,
                            "        const %s *q%u = i && step[%u] == 0 ? t%u : k_stage_%zu(p%u + "
                            "i * step[%u], step[%u], m, t%u);\n",
                            type, s, s, s, fmt_dtype_bytes(syn_operand_type(y->p, s)->dtype), s, s,
                            s, s);
        }
    }
}

static void put_buffers(body *y, const syn_run *r)
{
    int64_t step;
    for (uint32_t s = 0; s < y->f->n_ops; s++)
        if ((s >= y->p->n_in ? r->wanted == 0 : needs_slot(y, s)) && !known_step(y, r, s, &step))
            base_buf_printf(y->b, "    K_ALIGN(64) %s t%u[K_BLOCK];\n", slot_type(y, s), s);
}

static void put_unstage(body *y, const syn_run *r)
{
    int64_t step;
    for (uint32_t s = y->p->n_in; s < y->f->n_ops && r->wanted == 0; s++)
        if (!known_step(y, r, s, &step))
            base_buf_printf(
                y->b,
                "        if (q%u == t%u) k_copy_%zu(p%u + i * step[%u], step[%u], t%u, 1, m);\n", s,
                s, fmt_dtype_bytes(syn_operand_type(y->p, s)->dtype), s, s, s, s);
}

static void put_stores(body *y, const syn_run *r, const char *indent, bool staged)
{
    if (r->wanted) {
        base_buf_printf(y->b, "%sy[%s] = v%d;\n", indent, staged ? "i + j" : "j",
                        y->number[r->wanted] - 1);
        return;
    }
    for (uint32_t k = 0; k < y->p->n_out; k++)
        base_buf_printf(y->b, "%s%s = v%d;\n", indent, y->read[y->p->n_in + k].s,
                        y->number[y->g->outputs[k].id] - 1);
}

/* The wanted node is an operand itself: say where its values lie. */
static void put_operand_run(body *y, const syn_run *r)
{
    uint32_t s = syn_operand_of(y->p, r->wanted);
    int64_t step = 0;
    const char *type = slot_type(y, s);
    size_t bytes = fmt_dtype_bytes(syn_operand_type(y->p, s)->dtype);
    base_buf_printf(y->b, "    const %s *p%u = (const %s *)c->buf[%u] + at[%u];\n", type, s, type,
                    s, s);
    if (known_step(y, r, s, &step) && step == 1)
        base_buf_printf(y->b, "    return p%u;\n}\n", s);
    else if (known_step(y, r, s, &step))
        base_buf_printf(y->b, "    return k_stage_%zu(p%u, %lld, n, y);\n}\n", bytes, s,
                        (long long)step);
    else
        base_buf_printf(y->b, "    return k_stage_%zu(p%u, step[%u], n, y);\n}\n", bytes, s, s);
}

/* The only output is the given node itself: values are best put there at once, where it is adjacent. */
static void put_direct_run(body *y, const syn_run *r)
{
    uint32_t s = y->p->n_in;
    int64_t step = 0;
    const char *type = slot_type(y, s);
    size_t bytes = fmt_dtype_bytes(syn_operand_type(y->p, s)->dtype);
    bool known = known_step(y, r, s, &step);
    base_buf_printf(y->b,
                    "K_INLINE %s *K_FN(%s_to)(const k_call *c, const int64_t *at, const int64_t "
                    "*step, %s *y)\n{\n",
                    type, r->name, type);
    if (known)
        base_buf_printf(
            y->b, step == 1 ? "    return (%s *)c->buf[%u] + at[%u];\n}\n" : "    return y;\n}\n",
            type, s, s);
    else
        base_buf_printf(y->b, "    return step[%u] == 1 ? (%s *)c->buf[%u] + at[%u] : y;\n}\n", s,
                        type, s, s);
    base_buf_printf(y->b,
                    "K_INLINE void K_FN(%s)(const k_call *c, const int64_t *at, const int64_t "
                    "*step, int64_t n, const %s *x)\n"
                    "{\n    %s *p%u = (%s *)c->buf[%u] + at[%u];\n",
                    r->name, type, type, s, type, s, s);
    if (known)
        base_buf_printf(y->b, "    if (x != p%u) k_copy_%zu(p%u, %lld, x, 1, n);\n}\n", s, bytes, s,
                        (long long)step);
    else
        base_buf_printf(y->b, "    if (x != p%u) k_copy_%zu(p%u, step[%u], x, 1, n);\n}\n", s,
                        bytes, s, s);
}

static void put_signature(body *y, const syn_run *r)
{
    const char *common = "const k_call *c, const int64_t *at, const int64_t *step, int64_t n";
    if (r->wanted) {
        const char *type = syn_ctype(ir_type_of(y->g, r->wanted)->dtype);
        base_buf_printf(y->b, "K_INLINE const %s *K_FN(%s)(%s, %s *y)\n{\n", type, r->name, common,
                        type);
    } else if (r->given) {
        const char *type = syn_ctype(ir_type_of(y->g, r->given)->dtype);
        base_buf_printf(y->b,
                        "K_INLINE %s *K_FN(%s_to)(const k_call *c, const int64_t *at, const "
                        "int64_t *step, %s *y) { return y; }\n",
                        type, r->name, type);
        base_buf_printf(y->b, "K_INLINE void K_FN(%s)(%s, const %s *x)\n{\n", r->name, common,
                        type);
    } else {
        base_buf_printf(y->b, "K_INLINE void K_FN(%s)(%s)\n{\n", r->name, common);
    }
}

static void put_computed_run(body *y, const syn_run *r)
{
    bool staged = put_pointers(y, r);
    const char *indent = staged ? "            " : "        ";
    if (staged) {
        put_buffers(y, r);
        base_buf_puts(y->b, "    for (int64_t i = 0; i < n; i += K_BLOCK) {\n        const int64_t "
                            "m = K_MIN(n - i, K_BLOCK);\n");
        put_stages(y, r);
        y->read_given = "x[i + j]";
    }
    base_buf_printf(y->b, "%.*sK_VECTOR_LOOP\n%.*sfor (int64_t j = 0; j < %c; j++) {\n",
                    (int)strlen(indent) - 4, indent, (int)strlen(indent) - 4, indent,
                    staged ? 'm' : 'n');
    put_values(y, indent);
    put_stores(y, r, indent, staged);
    base_buf_printf(y->b, "%.*s}\n", (int)strlen(indent) - 4, indent);
    if (staged) {
        put_unstage(y, r);
        base_buf_puts(y->b, "    }\n");
    }
    base_buf_puts(y->b, r->wanted ? "    return y;\n}\n" : "}\n");
}

void syn_emit_run(base_buf *b, const syn_problem *p, const syn_form *f, const syn_run *r)
{
    body y;
    if (!body_init(&y, b, p, f, r->given))
        return;
    if (r->wanted)
        need(&y, r->wanted);
    else
        need_outputs(&y);
    if (r->given && p->n_out == 1 && p->region->outputs[0].id == r->given) {
        put_direct_run(&y, r);
    } else {
        put_signature(&y, r);
        if (r->wanted && ir_op_of(p->region, r->wanted) == IR_input)
            put_operand_run(&y, r);
        else
            put_computed_run(&y, r);
    }
    base_free(y.number);
}

/* ---- nests and tiles ---- */

void syn_emit_nest(base_buf *b, const syn_problem *p, const syn_form *f, const char *name,
                   int n_axes, const fmt_dim *dims, int8_t (*axis)[SYN_SLOTS_MAX])
{
    base_buf_printf(b,
                    "K_SMALL void K_FN(%s)(const int64_t *arg, k_nest *t)\n{\n    t->axes = %d;\n  "
                    "  t->operands = %u;\n",
                    name, MAX(n_axes, 1), f->n_slots);
    for (int l = 0; l < MAX(n_axes, 1); l++) {
        base_buf_printf(b, "    t->dim[%d] = %s;\n", l,
                        l < n_axes ? syn_dim_text(p, dims[l]).s : "1");
        for (uint32_t s = 0; s < f->n_slots; s++) {
            const char *text = "0";
            syn_text t;
            if (l < n_axes && s < f->n_ops)
                text = (t = syn_stride_text(p, s, axis[l][s])).s;
            else if (l < n_axes && axis[l][s] >= 0)
                text = ir_attrs_of(p->region, f->slot_node[s])->i[0] == axis[l][s] ? "1" : "0";
            base_buf_printf(b, "    t->stride[%u][%d] = %s;\n", s, l, text);
        }
    }
    base_buf_puts(b, "}\n");
}

/* Offset of the first element of row m of tile (b0, b1, n) in an operand with the axes of the output. */
static void put_tile_offset(base_buf *b, const syn_problem *p, uint32_t o)
{
    int rank = syn_operand_type(p, o)->rank;
    const char *const name[4] = {"b0", "b1", "m", "n"};
    for (int k = 0; k < rank; k++)
        base_buf_printf(b, " + %s * %s", name[4 - rank + k], syn_stride_text(p, o, k).s);
}

/* A short epilogue works on sums in registers when its loop over rows is unrolled; of a long one (GELU) that makes three times
 * the code and no speed. */
#define SHORT_WORK 12

static bool is_short(const syn_problem *p, const syn_form *f)
{
    double work = 0;
    for (ir_id id = 1; id < p->region->n_nodes; id++)
        if (id != f->anchor)
            work += syn_op_weight(ir_op_of(p->region, id));
    return work <= SHORT_WORK;
}

void syn_emit_tile_epilogue(base_buf *b, const syn_problem *p, const syn_form *f)
{
    body y;
    if (!body_init(&y, b, p, f, f->anchor))
        return;
    need_outputs(&y);
    base_buf_puts(
        b,
        "K_INLINE void K_FN(epi)(const k_call *c, const int64_t *arg, const float *tile, int64_t "
        "tile_ld, int64_t b0,\n"
        "                        int64_t b1, int64_t m, int64_t n, int64_t rows, int64_t "
        "cols)\n{\n");
    base_buf_puts(b, is_short(p, f) ? "" : "    K_UNROLL(1)\n");
    base_buf_puts(b, "    for (int64_t r = 0; r < rows; r++, m++) {\n"
                     "        const float *x = tile + r * tile_ld;\n");
    for (uint32_t o = 0; o < f->n_ops; o++) {
        bool output = o >= p->n_in;
        if (!output && !needs_slot(&y, o))
            continue;
        const char *type = slot_type(&y, o), *kind = output ? "" : "const ";
        int64_t step;
        bool known = syn_stride_const(p, o, syn_operand_type(p, o)->rank - 1, &step);
        base_buf_printf(b, "        %s%s *p%u = (%s%s *)c->buf[%u]", kind, type, o, kind, type, o);
        put_tile_offset(b, p, o);
        base_buf_puts(b, ";\n");
        if (known && step == 0)
            base_buf_printf(b, "        const %s u%u = *p%u;\n", type, o, o);
        if (known)
            put_index(&y.read[o], 'p', o, step);
        else
            snprintf(y.read[o].s, sizeof y.read[o].s, "p%u[j * %.20s]", o,
                     syn_stride_text(p, o, syn_operand_type(p, o)->rank - 1).s);
    }
    base_buf_puts(b, "        K_VECTOR_LOOP\n        for (int64_t j = 0; j < cols; j++) {\n");
    put_values(&y, "            ");
    put_stores(&y, &(syn_run){.given = f->anchor}, "            ", false);
    base_buf_puts(b, "        }\n    }\n}\n");
    base_free(y.number);
}
