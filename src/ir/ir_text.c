/* Printing a graph as text; ir_parse.c reads it back.
 *   layer    L1 ir; may include base, format
 *   form     sym NAME LO..HI                    one line a free symbol, HI empty when there is no bound
 *            func @NAME(%0 "input": TYPE, …) {
 *              %2 = op %0 %1 {attribute=value …} : TYPE
 *              %3 = const TYPE {1, 2.5, nan, …}  or  hex"bytes"  or  #hash, which does not parse
 *              return %2 "output", …
 *            }
 *            '#' starts a comment
 *   TYPE     f32[batch,4], then where the value lives unless on the host: @pinned or @device
 *   numbers  inputs come first, other nodes follow in graph order, so that print and parse are inverse */
#include "ir_rules.h"
#include "base_sys.h"
#include <math.h>
#include <stdio.h>

#define LIST_ELEMS 64 /* constants up to here print as numbers */

static void print_quoted(const char *s, base_buf *b)
{
    base_buf_puts(b, "\"");
    for (; *s; s++) {
        if (*s == '"' || *s == '\\')
            base_buf_printf(b, "\\%c", *s);
        else if ((unsigned char)*s < 32 || *s == 127)
            base_buf_printf(b, "\\x%02x", (unsigned)*s);
        else
            base_buf_put(b, s, 1);
    }
    base_buf_puts(b, "\"");
}

/* Only letters, digits, '_' and '.'. */
static void print_word(const char *s, base_buf *b)
{
    for (; *s; s++) {
        bool plain = (*s >= 'a' && *s <= 'z') || (*s >= 'A' && *s <= 'Z') ||
                     (*s >= '0' && *s <= '9') || *s == '.';
        base_buf_put(b, plain ? s : "_", 1);
    }
}

static void print_comment(const char *s, base_buf *b)
{
    base_buf_puts(b, "  # ");
    for (; *s; s++)
        base_buf_put(b, (unsigned char)*s < 32 ? "?" : s, 1);
}

const char *const ir_residency_names[IR_RESIDENCY_COUNT] = {
    [IR_HOST] = "host", [IR_PINNED] = "pinned", [IR_DEVICE] = "device"};

static void print_type(const ir_graph *g, const ir_type *t, base_buf *b)
{
    ir_type resolved = *t;
    for (int k = 0; k < t->rank; k++)
        resolved.dim[k] = fmt_dim_resolve(g->dims, t->dim[k]);
    ir_type_print(g->dims, &resolved, b);
    if (t->residency != IR_HOST && t->residency < IR_RESIDENCY_COUNT)
        base_buf_printf(b, "@%s", ir_residency_names[t->residency]);
}

static void print_float(double v, int digits, base_buf *b)
{
    if (isnan(v)) /* of either sign */
        base_buf_puts(b, "nan");
    else
        base_buf_printf(b, "%.*g", digits, v);
}

/* ---- constants ---- */

static bool prints_as_numbers(fmt_dtype t, const ir_const *c)
{
    static const uint64_t quiet_nan[FMT_DTYPE_COUNT] = {[FMT_F32] = 0x7fc00000,
                                                        [FMT_F16] = 0x7e00,
                                                        [FMT_BF16] = 0x7fc0,
                                                        [FMT_F64] = UINT64_C(0x7ff8000000000000)};
    size_t size = fmt_dtype_bytes(t);
    if (c->bytes / size > LIST_ELEMS)
        return false;
    for (size_t at = 0; at < c->bytes;
         at += size) { /* "nan" and 0, 1 must give back the same bytes */
        uint64_t bits = 0;
        memcpy(&bits, (const char *)c->data + at, size);
        if (t == FMT_BOOL ? bits > 1
                          : fmt_dtype_class(t) == 'F' && isnan(ir_load_element(t, &bits)) &&
                                bits != quiet_nan[t])
            return false;
    }
    return true;
}

static void print_numbers(fmt_dtype t, const ir_const *c, base_buf *b)
{
    size_t size = fmt_dtype_bytes(t);
    base_buf_puts(b, "{");
    for (size_t at = 0; at < c->bytes; at += size) {
        const char *elem = (const char *)c->data + at;
        int64_t v;
        base_buf_puts(b, at ? ", " : "");
        if (fmt_dtype_class(t) == 'F') {
            print_float(ir_load_element(t, elem), t == FMT_F64 ? 17 : 9, b);
        } else if (t == FMT_I64) {
            memcpy(&v, elem, 8);
            base_buf_printf(b, "%lld", (long long)v);
        } else {
            base_buf_printf(b, "%lld", (long long)ir_load_element(t, elem));
        }
    }
    base_buf_puts(b, "}");
}

static void print_const(const ir_graph *g, ir_id id, int flags, base_buf *b)
{
    const ir_const *c = ir_const_of(g, id);
    fmt_dtype t = ir_type_of(g, id)->dtype;
    print_type(g, ir_type_of(g, id), b);
    base_buf_puts(b, " ");
    if (prints_as_numbers(t, c)) {
        print_numbers(t, c, b);
    } else if (flags & IR_TEXT_DATA || c->bytes / fmt_dtype_bytes(t) <= LIST_ELEMS) {
        char hex[2 * 32 + 1];
        base_buf_puts(b, "hex\"");
        for (size_t at = 0; at < c->bytes; at += 32) {
            base_hex((const uint8_t *)c->data + at, MIN(c->bytes - at, 32), hex);
            base_buf_puts(b, hex);
        }
        base_buf_puts(b, "\"");
    } else {
        base_buf_printf(b, "#%016llx", (unsigned long long)base_xxh3(c->data, c->bytes));
    }
}

/* ---- nodes ---- */

static void print_dims(const ir_graph *g, const fmt_dim *dims, int n, base_buf *b)
{
    base_buf_puts(b, "[");
    for (int k = 0; k < n; k++) {
        base_buf_puts(b, k ? "," : "");
        fmt_dim_print(g->dims, fmt_dim_resolve(g->dims, dims[k]), b);
    }
    base_buf_puts(b, "]");
}

static void print_attrs(const ir_graph *g, ir_id id, base_buf *b)
{
    const char *spec = ir_op_get(ir_op_of(g, id))->attrs;
    const ir_attrs *a = ir_attrs_of(g, id);
    ir_field f;
    for (bool first = true; ir_field_next(&spec, &f); first = false) {
        base_buf_puts(b, first ? " {" : " ");
        base_buf_put(b, f.name, f.name_len);
        base_buf_puts(b, "=");
        switch (f.kind) {
        case IR_FIELD_INT:
            base_buf_printf(b, "%lld", (long long)a->i[f.index]);
            break;
        case IR_FIELD_FLOAT:
            print_float(a->f[f.index], 17, b);
            break;
        case IR_FIELD_TYPE:
            base_buf_puts(b, fmt_dtype_name((fmt_dtype)a->type));
            break;
        case IR_FIELD_DIMS:
            print_dims(g, a->dims, a->n_dims, b);
            break;
        case IR_FIELD_SIZES:
            print_dims(g, a->sizes, a->n_sizes, b);
            break;
        case IR_FIELD_LIST:
            base_buf_puts(b, "[");
            for (int k = 0; k < a->n_list; k++)
                base_buf_printf(b, "%s%lld", k ? "," : "", (long long)a->list[k]);
            base_buf_puts(b, "]");
            break;
        }
    }
    base_buf_puts(b, *ir_op_get(ir_op_of(g, id))->attrs ? "}" : "");
}

static void print_node(const ir_graph *g, ir_id id, const uint32_t *number, int flags, base_buf *b)
{
    ir_op op = ir_op_of(g, id);
    base_buf_printf(b, "  %%%u = %s", number[id], ir_op_get(op)->name);
    if (op == IR_const) {
        base_buf_puts(b, " ");
        print_const(g, id, flags, b);
    } else {
        for (uint32_t k = 0; k < g->nodes[id].n_in; k++)
            base_buf_printf(b, " %%%u", number[ir_in(g, id, k)]);
        print_attrs(g, id, b);
        base_buf_puts(b, " : ");
        print_type(g, ir_type_of(g, id), b);
    }
    if (flags & IR_TEXT_NAMES && *ir_name_of(g, id))
        print_comment(ir_name_of(g, id), b);
    base_buf_puts(b, "\n");
}

static void print_syms(fmt_dims *dims, base_buf *b)
{
    for (uint32_t s = 0; s < fmt_sym_count(dims); s++) {
        fmt_dim d = fmt_dim_sym(dims, s);
        uint32_t self;
        if (!fmt_dim_is_sym(dims, d, &self) || self != s) /* bound: no longer in the text */
            continue;
        const fmt_sym *sym = fmt_sym_get(dims, s);
        base_buf_puts(b, "sym ");
        fmt_dim_print(dims, d, b);
        base_buf_printf(b, " %lld..", (long long)sym->lo);
        if (sym->hi < FMT_DIM_LIMIT)
            base_buf_printf(b, "%lld", (long long)sym->hi);
        base_buf_puts(b, "\n");
    }
}

void ir_print(const ir_graph *g, const char *func_name, int flags, base_buf *b)
{
    AUTO_FREE uint32_t *number = base_alloc_array(BASE_TAG_IR, g->n_nodes, sizeof *number);
    if (!number) {
        b->failed = true;
        return;
    }
    uint32_t next = g->n_inputs;
    for (ir_id id = 1; id < g->n_nodes; id++)
        number[id] = ir_op_of(g, id) == IR_input ? 0 : next++;
    for (uint32_t k = 0; k < g->n_inputs; k++)
        number[g->inputs[k].id] = k;
    print_syms(g->dims, b);
    base_buf_puts(b, "func @");
    print_word(func_name && *func_name ? func_name : "main", b);
    for (uint32_t k = 0; k < g->n_inputs; k++) {
        base_buf_printf(b, "%s%%%u ", k ? ", " : "(", k);
        print_quoted(g->inputs[k].name, b);
        base_buf_puts(b, ": ");
        print_type(g, ir_type_of(g, g->inputs[k].id), b);
    }
    base_buf_puts(b, g->n_inputs ? ") {\n" : "() {\n");
    for (ir_id id = 1; id < g->n_nodes; id++)
        if (ir_op_of(g, id) != IR_input)
            print_node(g, id, number, flags, b);
    base_buf_puts(b, "  return");
    for (uint32_t k = 0; k < g->n_outputs; k++) {
        base_buf_printf(b, "%s%%%u ", k ? ", " : " ", number[g->outputs[k].id]);
        print_quoted(g->outputs[k].name, b);
    }
    base_buf_puts(b, "\n}\n");
}
