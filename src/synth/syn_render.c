/* The renderer: a problem and a variant become kernel text, by defines, generated functions and the template's body.
 *   layer    L3 synth; may include base, format, ir
 *   text     unit = LEVEL, preludes, then kernels. Kernel = #define K_NAME, parameters and what the template's header says
 *            the renderer defines; generated functions; the body; #undef of all of these and of the body's own macros, so
 *            that the next kernel starts clean */
#include "syn_form.h"
#include <ctype.h>
#include <stdio.h>

typedef struct render {
    base_buf *b;
    const syn_problem *p;
    const ir_graph *g;
    const syn_form *f;
    base_buf undefs;
} render;

/* ---- defines ---- */

static void define(render *r, const char *name, const char *value)
{
    base_buf_printf(r->b, "#define %s %s\n", name, value);
    base_buf_printf(&r->undefs, "#undef %s\n", name);
}

static void define_int(render *r, const char *name, int64_t v)
{
    char text[24];
    snprintf(text, sizeof text, v < 0 ? "(%lld)" : "%lld", (long long)v);
    define(r, name, text);
}

static void define_dim(render *r, const char *name, fmt_dim d)
{
    define(r, name, syn_dim_text(r->p, d).s);
}

/* A float attribute: a literal, or the k-th free argument. */
static void define_float(render *r, const char *name, double v, uint32_t k)
{
    char text[64];
    if (r->p->free_attrs)
        snprintf(text, sizeof text, "k_float((int32_t)arg[%u])",
                 syn_arg_stride(r->p, r->f->n_ops, 0) + k);
    else
        snprintf(text, sizeof text, "(%.9ef)", (double)(float)v);
    define(r, name, text);
}

/* <prefix>_<axis name> for each axis of an operand, and <prefix>_IDX. names holds one word an axis, separated by blanks. */
static void define_strides(render *r, const char *prefix, uint32_t o, const char *names)
{
    char name[32];
    int rank = syn_operand_type(r->p, o)->rank, k = 0;
    for (const char *s = names; *s && k < rank; k++) {
        size_t n = strcspn(s, " ");
        snprintf(name, sizeof name, "%s_%.*s", prefix, (int)n, s);
        define(r, name, syn_stride_text(r->p, o, k).s);
        s += n + (s[n] == ' ');
    }
    snprintf(name, sizeof name, "%s_IDX", prefix);
    define_int(r, name, o);
}

static void define_bytes(render *r, uint32_t o)
{
    define_int(r, "BYTES", (int64_t)fmt_dtype_bytes(syn_operand_type(r->p, o)->dtype));
}

/* Every slot's axis for a loop over axes [from, to) of operands of the given rank; other operands do not move. */
static void map_axes(const render *r, int rank, int from, int to, int8_t (*axis)[SYN_SLOTS_MAX])
{
    for (int l = from; l < to; l++)
        for (uint32_t s = 0; s < r->f->n_slots; s++) {
            ir_id id = s < r->f->n_ops ? syn_operand_id(r->p, s) : r->f->slot_node[s];
            int own = ir_type_of(r->g, id)->rank;
            axis[l - from][s] = (int8_t)(own == rank || l < own ? l : -1);
        }
}

static void run(render *r, const char *name, ir_id given, ir_id wanted,
                const int8_t axis[SYN_SLOTS_MAX], bool fixed)
{
    syn_run x = {.name = name, .given = given, .wanted = wanted, .fixed = fixed};
    memcpy(x.axis, axis, sizeof x.axis);
    syn_emit_run(r->b, r->p, r->f, &x);
}

/* ---- families ---- */

static void render_eltwise(render *r)
{
    const ir_type *t = syn_operand_type(r->p, r->p->n_in);
    int8_t axis[FMT_RANK_MAX + 1][SYN_SLOTS_MAX];
    memset(axis, -1, sizeof axis);
    map_axes(r, t->rank, 0, t->rank, axis);
    syn_emit_nest(r->b, r->p, r->f, "nest", t->rank, t->dim, axis);
    if (r->f->family == SYN_COPY) {
        define_bytes(r, 0);
        return;
    }
    bool fixed = t->rank > 0 && syn_run_is_fixed(r->p, r->f, axis[t->rank - 1]);
    define_int(r, "LINE_FIXED", fixed);
    run(r, "line", 0, 0, axis[t->rank ? t->rank - 1 : 0], fixed);
}

/* Lowest and highest value of a dtype as text. */
static const char *lowest(fmt_dtype t)
{
    return t == FMT_F32   ? "(-K_INF)"
           : t == FMT_I64 ? "(-0x7fffffffffffffff - 1)"
                          : "(-0x7fffffff - 1)";
}

static const char *highest(fmt_dtype t)
{
    return t == FMT_F32 ? "K_INF" : t == FMT_I64 ? "0x7fffffffffffffff" : "0x7fffffff";
}

static void render_reduce(render *r)
{
    ir_id anchor = r->f->anchor, in = ir_in(r->g, anchor, 0);
    const ir_type *x = ir_type_of(r->g, in);
    int outer = r->f->outer;
    int8_t axis[FMT_RANK_MAX + 1][SYN_SLOTS_MAX], inner[FMT_RANK_MAX][SYN_SLOTS_MAX];
    memset(axis, -1, sizeof axis);
    map_axes(r, x->rank, 0, outer, axis);
    map_axes(r, x->rank, outer, x->rank, inner);
    syn_emit_nest(r->b, r->p, r->f, "outer", outer, x->dim, axis);
    syn_emit_nest(r->b, r->p, r->f, "inner", x->rank - outer, x->dim + outer, inner);
    const int8_t *last_outer = axis[outer ? outer - 1 : 0],
                 *last_inner = inner[x->rank - outer - 1];
    bool outer_fixed = outer && syn_run_is_fixed(r->p, r->f, last_outer),
         inner_fixed = syn_run_is_fixed(r->p, r->f, last_inner);
    define_int(r, "OUTER_FIXED", outer_fixed);
    define_int(r, "INNER_FIXED", inner_fixed);
    define(r, "T", syn_ctype(x->dtype));
    run(r, "row", 0, in, last_inner, inner_fixed);
    run(r, "epi", anchor, 0, last_outer, outer_fixed);
    if (r->f->family == SYN_ARGREDUCE) {
        define_int(r, "LARGEST", r->f->op == IR_argmax);
        define_int(r, "LAST", ir_attrs_of(r->g, anchor)->i[1]);
        return;
    }
    run(r, "column", 0, in, last_outer, outer_fixed);
    ir_op op = r->f->op;
    syn_emit_combine(r->b,
                     op == IR_reduce_max    ? IR_max
                     : op == IR_reduce_min  ? IR_min
                     : op == IR_reduce_prod ? IR_mul
                                            : IR_add,
                     x->dtype);
    define(r, "START",
           op == IR_reduce_max    ? lowest(x->dtype)
           : op == IR_reduce_min  ? highest(x->dtype)
           : op == IR_reduce_prod ? "1"
                                  : "0");
    define_int(r, "MEAN", op == IR_reduce_mean);
}

/* The nests "outer" and "line" of operands whose last axis is one run. */
static void emit_row_nests(render *r, const ir_type *t, int8_t line[1][SYN_SLOTS_MAX])
{
    int8_t axis[FMT_RANK_MAX + 1][SYN_SLOTS_MAX];
    memset(axis, -1, sizeof axis);
    for (uint32_t s = 0; s < r->f->n_slots; s++) {
        ir_id id = s < r->f->n_ops ? syn_operand_id(r->p, s) : r->f->slot_node[s];
        bool param = ir_type_of(r->g, id)->rank != t->rank;
        for (uint32_t k = 1; r->f->family == SYN_ROW && k < ir_node_get(r->g, r->f->anchor)->n_in;
             k++)
            param |= ir_in(r->g, r->f->anchor, k) == id; /* also where rows are all there is */
        for (int l = 0; l < t->rank - 1; l++)
            axis[l][s] = (int8_t)(param ? -1 : l);
        line[0][s] = (int8_t)(param ? -1 : t->rank - 1);
    }
    syn_emit_nest(r->b, r->p, r->f, "outer", t->rank - 1, t->dim, axis);
    syn_emit_nest(r->b, r->p, r->f, "line", 1, t->dim + t->rank - 1, line);
}

static void render_row(render *r)
{
    ir_id anchor = r->f->anchor;
    const ir_type *t = ir_type_of(r->g, anchor);
    const ir_node *n = ir_node_get(r->g, anchor);
    int8_t line[1][SYN_SLOTS_MAX];
    emit_row_nests(r, t, line);
    bool fixed = syn_run_is_fixed(r->p, r->f, line[0]);
    run(r, "pro", 0, ir_in(r->g, anchor, 0), line[0], fixed);
    run(r, "epi", anchor, 0, line[0], fixed);
    define_dim(r, "DIM_C", t->dim[t->rank - 1]);
    define_int(r, "SOFTMAX", r->f->op == IR_softmax);
    define_int(r, "CENTER", r->f->op == IR_layernorm);
    define_int(r, "HAS_GAMMA", n->n_in > 1);
    define_int(r, "HAS_BETA", n->n_in > 2);
    define_float(r, "EPS", ir_attrs_of(r->g, anchor)->f[0], 0);
    if (n->n_in > 1)
        define_strides(r, "GAMMA", syn_operand_of(r->p, ir_in(r->g, anchor, 1)), "C");
    if (n->n_in > 2)
        define_strides(r, "BETA", syn_operand_of(r->p, ir_in(r->g, anchor, 2)), "C");
}

static void render_gemm(render *r)
{
    uint32_t a = syn_operand_of(r->p, ir_in(r->g, r->f->anchor, 0)),
             b = syn_operand_of(r->p, ir_in(r->g, r->f->anchor, 1));
    const ir_type *ta = syn_operand_type(r->p, a), *tc = ir_type_of(r->g, r->f->anchor);
    int nb = tc->rank - 2;
    int64_t v;
    fmt_dim one = fmt_dim_const(r->p->dims, 1);
    define_dim(r, "DIM_B0", nb > 1 ? tc->dim[0] : one);
    define_dim(r, "DIM_B1", nb > 0 ? tc->dim[nb - 1] : one);
    define_dim(r, "DIM_M", tc->dim[nb]);
    define_dim(r, "DIM_N", tc->dim[nb + 1]);
    define_dim(r, "DIM_K", ta->dim[nb + 1]);
    static const char *const axes_a[3] = {"M K", "B1 M K", "B0 B1 M K"},
                             *const axes_b[3] = {"K N", "B1 K N", "B0 B1 K N"},
                             *const axes_c[3] = {"M", "B1 M", "B0 B1 M"};
    const struct {
        const char *name;
        uint32_t o;
        const char *axes;
    } operand[3] = {{"A", a, axes_a[nb]}, {"B", b, axes_b[nb]}, {"C", r->p->n_in, axes_c[nb]}};
    for (int k = 0; k < 3; k++) {
        char name[16];
        for (int batch = 0; batch < 2 - nb; batch++) {
            snprintf(name, sizeof name, "%s_B%d", operand[k].name, batch);
            define(r, name, "0");
        }
        define_strides(r, operand[k].name, operand[k].o, operand[k].axes);
    }
    define_int(r, "B_PACKED", r->p->packed[b]);
    define_int(r, "A_KANY", !syn_stride_const(r->p, a, nb + 1, &v) || v != 1);
    syn_emit_tile_epilogue(r->b, r->p, r->f);
}

static void render_attention(render *r)
{
    const ir_attrs *at = ir_attrs_of(r->g, r->f->anchor);
    const fmt_dim *q = syn_operand_type(r->p, 0)->dim, *k = syn_operand_type(r->p, 1)->dim,
                  *v = syn_operand_type(r->p, 2)->dim;
    static const char *const name[5] = {"Q", "K", "V", "M", "O"}, *const axes[5] = {
                                                                      "B H S D", "B H S D",
                                                                      "B H S D", "B H Q K",
                                                                      "B H S D"};
    bool mask = r->p->n_in == 4;
    define_dim(r, "DIM_B", q[0]);
    define_dim(r, "DIM_H", q[1]);
    define_dim(r, "DIM_SQ", q[2]);
    define_dim(r, "DIM_SK", k[2]);
    define_dim(r, "DIM_D", q[3]);
    define_dim(r, "DIM_DV", v[3]);
    char heads[32], nan_zero[32];
    snprintf(heads, sizeof heads, "(arg[%u])", syn_arg_stride(r->p, r->f->n_ops, 0) + 1);
    snprintf(nan_zero, sizeof nan_zero, "(arg[%u])", syn_arg_stride(r->p, r->f->n_ops, 0) + 2);
    define(r, "DIM_HK", r->p->free_attrs ? heads : syn_dim_text(r->p, k[1]).s);
    for (uint32_t o = 0, which = 0; which < 5; which++) {
        int64_t step;
        char any[8];
        if (which == 3 && !mask)
            continue;
        snprintf(any, sizeof any, "%s_DANY", name[which]);
        if (which != 3)
            define_int(r, any, !syn_stride_const(r->p, o, 3, &step) || step != 1);
        define_strides(r, name[which], o++, axes[which]);
    }
    define_float(r, "SCALE", at->f[0], 0);
    define_int(r, "CAUSAL", at->i[0]);
    define(r, "NAN_ZERO", r->p->free_attrs ? nan_zero : at->i[1] ? "1" : "0");
    define_int(r, "HAS_MASK", mask);
}

static void render_rope(render *r)
{
    const ir_type *t = syn_operand_type(r->p, 0);
    int8_t line[1][SYN_SLOTS_MAX];
    emit_row_nests(r, t, line);
    define_dim(r, "DIM_D", t->dim[t->rank - 1]);
    define_int(r, "INTERLEAVED", ir_attrs_of(r->g, r->f->anchor)->i[0]);
}

static void render_gather(render *r)
{
    const ir_type *x = syn_operand_type(r->p, 0), *ix = syn_operand_type(r->p, 1),
                  *y = syn_operand_type(r->p, 2);
    define_bytes(r, 0);
    define(r, "INDEX", syn_ctype(ix->dtype));
    if (r->f->family == SYN_GATHER) {
        define_dim(r, "DIM_O", x->dim[0]);
        define_dim(r, "DIM_A", x->dim[1]);
        define_dim(r, "DIM_J", ix->dim[0]);
        define_dim(r, "DIM_I", x->dim[2]);
        define_strides(r, "X", 0, "O A I");
        define_strides(r, "IX", 1, "J");
        define_strides(r, "Y", 2, "O J I");
        return;
    }
    int8_t axis[FMT_RANK_MAX][SYN_SLOTS_MAX];
    memset(axis, -1, sizeof axis);
    if (r->f->family == SYN_GATHER_ND) {
        int depth = x->rank - 2;
        for (int k = 0; k < depth; k++)
            axis[k][0] = (int8_t)(k + 1);
        syn_emit_nest(r->b, r->p, r->f, "space", depth, x->dim + 1, axis);
        define_int(r, "DEPTH", depth);
        define_dim(r, "DIM_B", x->dim[0]);
        define_dim(r, "DIM_J", ix->dim[1]);
        define_dim(r, "DIM_I", x->dim[x->rank - 1]);
        define(r, "X_B", syn_stride_text(r->p, 0, 0).s);
        define(r, "X_I", syn_stride_text(r->p, 0, x->rank - 1).s);
        define_strides(r, "IX", 1, "B J R");
        define_strides(r, "Y", 2, "B J I");
        return;
    }
    int along = (int)ir_attrs_of(r->g, r->f->anchor)->i[0];
    for (int k = 0; k < y->rank; k++)
        for (uint32_t s = 0; s < 3; s++)
            axis[k][s] = (int8_t)(s == 0 && k == along ? -1 : k);
    syn_emit_nest(r->b, r->p, r->f, "nest", y->rank, y->dim, axis);
    define_dim(r, "DIM_A", x->dim[along]);
    define(r, "X_A", syn_stride_text(r->p, 0, along).s);
}

static void render_scan(render *r)
{
    const ir_type *x = syn_operand_type(r->p, 0), *y = syn_operand_type(r->p, 1);
    const ir_attrs *at = ir_attrs_of(r->g, r->f->anchor);
    define(r, "T", syn_ctype(x->dtype));
    define_dim(r, "DIM_O", x->dim[0]);
    define_dim(r, "DIM_A", x->dim[1]);
    define_dim(r, "DIM_I", x->dim[2]);
    define_strides(r, "X", 0, "O A I");
    define_strides(r, "Y", 1, "O A I");
    if (r->f->family == SYN_TOPK) {
        define_dim(r, "DIM_K", y->dim[1]);
        define_int(r, "LARGEST", at->i[1]);
        return;
    }
    define(r, "SUM",
           x->dtype == FMT_F32   ? "double"
           : x->dtype == FMT_I64 ? "uint64_t"
                                 : "uint32_t");
    define_int(r, "EXCLUSIVE", at->i[1]);
    define_int(r, "REVERSE", at->i[2]);
}

static void render_dimvals(render *r)
{
    const ir_attrs *at = ir_attrs_of(r->g, r->f->anchor);
    bool scalar = syn_operand_type(r->p, 0)->rank == 0;
    base_buf_puts(r->b, "K_INLINE void K_FN(fill)(const int64_t *arg, int64_t *y)\n{\n");
    for (int k = 0; k < at->n_dims; k++)
        base_buf_printf(r->b, "    y[%d * %s] = %s;\n", k,
                        scalar ? "0" : syn_stride_text(r->p, 0, 0).s,
                        syn_dim_text(r->p, at->dims[k]).s);
    base_buf_puts(r->b, "}\n");
}

static void (*const families[SYN_FAMILY_COUNT])(render *) = {
    [SYN_ELTWISE] = render_eltwise,
    [SYN_COPY] = render_eltwise,
    [SYN_REDUCE] = render_reduce,
    [SYN_ARGREDUCE] = render_reduce,
    [SYN_ROW] = render_row,
    [SYN_GEMM] = render_gemm,
    [SYN_ATTENTION] = render_attention,
    [SYN_ROPE] = render_rope,
    [SYN_GATHER] = render_gather,
    [SYN_GATHER_ND] = render_gather,
    [SYN_GATHER_ELEMENTS] = render_gather,
    [SYN_CUMSUM] = render_scan,
    [SYN_TOPK] = render_scan,
    [SYN_DIMVALS] = render_dimvals,
};

/* ---- units ---- */

static void put_file(base_buf *b, const char *file, uint32_t line, const char *text, size_t bytes)
{
    base_buf_printf(b, "#line %u \"%s\"\n", line, file);
    base_buf_put(b, text, bytes);
    if (bytes && text[bytes - 1] != '\n')
        base_buf_puts(b, "\n");
}

/* #undef every macro that the body defines. */
static void undef_body(render *r, const syn_template *t)
{
    for (const char *s = t->text, *end = s + t->text_bytes; s < end; s++) {
        while (s < end && (*s == ' ' || *s == '#'))
            s++;
        if (end - s > 7 && memcmp(s, "define ", 7) == 0) {
            s += 7;
            int n = 0;
            while (s + n < end && (isalnum((unsigned char)s[n]) || s[n] == '_'))
                n++;
            base_buf_printf(&r->undefs, "#undef %.*s\n", n, s);
        }
        s = memchr(s, '\n', (size_t)(end - s));
        if (s == NULL)
            return;
    }
}

void syn_unit_begin(base_buf *text, fmt_isa isa)
{
    size_t n;
    const syn_prelude *p = syn_prelude_table(&n);
    base_buf_puts(
        text,
        "#ifndef __clang__\n#pragma GCC optimize(\"no-tree-loop-distribute-patterns\")\n#endif\n");
    base_buf_printf(text, "#define LEVEL %d\n", isa);
    for (size_t i = 0; i < n; i++)
        put_file(text, p[i].file, 1, p[i].text, p[i].text_bytes);
}

rtx_status syn_unit_add(base_buf *text, const syn_problem *p, const syn_variant *v, fmt_isa isa,
                        const char *kernel_name, rtx_err *err)
{
    syn_form f;
    (void)isa;
    TRY(syn_form_of(p, &f, err));
    if (strcmp(v->templ->name, syn_family_template(f.family)) != 0)
        return FAIL(err, INVALID, "%s cannot serve a problem of %s", v->templ->name,
                    syn_family_template(f.family));
    render r = {.b = text, .p = p, .g = p->region, .f = &f};
    base_buf_init(&r.undefs, BASE_TAG_SYNTH, SIZE_MAX);
    base_buf_printf(text, "#line 1 \"%s\"\n", kernel_name);
    define(&r, "K_NAME", kernel_name);
    define_int(&r, "OPERANDS", f.n_slots);
    for (uint32_t i = 0; i < v->templ->n_params; i++)
        define_int(&r, v->templ->params[i].name, v->value[i]);
    families[f.family](&r);
    put_file(text, v->templ->file, v->templ->text_line, v->templ->text, v->templ->text_bytes);
    undef_body(&r, v->templ);
    base_buf_put(text, r.undefs.data, r.undefs.len);
    rtx_status status = base_buf_ok(&r.undefs, err);
    base_buf_done(&r.undefs);
    TRY(status);
    return base_buf_ok(text, err);
}

/* -ffreestanding, and for gcc the pragma in syn_unit_begin, keep calls of memset and memcpy out; gcc and clang accept all of
 * these. -fno-trapping-math lets selections become blends. Contraction to FMA is wanted (CPU.md A1.2), reassociation is not. */
#define COMMON_FLAGS                                                                               \
    " -mtune=generic -std=gnu17 -O3 -w -fPIC -shared -nostdlib -ffreestanding -fno-math-errno "    \
    "-fno-trapping-math"                                                                           \
    " -ffp-contract=fast -fno-jump-tables -fno-asynchronous-unwind-tables"                         \
    " -fno-stack-protector -fno-ident -g0 -s -Wl,--build-id=none -Wl,-z,noseparate-code "          \
    "-Wl,-z,norelro"

const char *syn_flags(fmt_isa isa)
{
    switch (isa) {
    case FMT_ISA_V4:
        return "-march=x86-64-v4 -mprefer-vector-width=512" COMMON_FLAGS;
    case FMT_ISA_V3:
        return "-march=x86-64-v3" COMMON_FLAGS;
    default:
        return "-march=x86-64-v2" COMMON_FLAGS;
    }
}
