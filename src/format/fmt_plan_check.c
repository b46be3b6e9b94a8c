/* What a plan must satisfy before anything acts on it. Hashes catch accidents; this catches a file that lies.
 *   layer      L0 format; may include base
 *   proves     every index, range, name and lifetime; operands whose offset and size are constant lie inside their value
 *   leaves     the extent of an operand, which only the problem text tells: the compiler's verifier proves it, and the
 *              runtime checks the offset against the value's size for the shapes of each run */
#include "fmt_dim.h"
#include "fmt_plan_priv.h"
#include <stdlib.h>

#define BAD(...) FAIL(err, CORRUPT, "plan: " __VA_ARGS__)

/* first + n ≤ count, without overflow */
static bool range_ok(uint32_t first, uint32_t n, uint32_t count)
{
    return first <= count && n <= count - first;
}

static bool dim_ok(const fmt_plan *p, fmt_dim d) { return d >= 0 && (uint32_t)d < p->dims->recs.n; }

static bool str_ok(const fmt_plan *p, fmt_str s) { return s == 0 || s < p->strs.len; }

static bool dtype_ok(uint8_t t) { return t < FMT_DTYPE_COUNT && fmt_dtype_bytes((fmt_dtype)t) > 0; }

/* ---- ports and values ---- */

static rtx_status check_ports(const fmt_plan *p, const char *what, const fmt_port *ports,
                              uint32_t n, rtx_err *err)
{
    for (uint32_t i = 0; i < n; i++) {
        const fmt_port *port = &ports[i];
        if (!str_ok(p, port->name) || port->name == 0)
            return BAD("%s %u has no name", what, i);
        const char *name = fmt_str_get(p, port->name);
        if (!base_utf8_ok(name, strlen(name)))
            return BAD("the name of %s %u is not UTF-8", what, i);
        if (!dtype_ok(port->dtype) || port->dtype > FMT_F64)
            return BAD("%s %u has element type %u", what, i, port->dtype);
        if (port->rank > FMT_RANK_MAX)
            return BAD("%s %u has rank %u", what, i, port->rank);
        for (int d = 0; d < port->rank; d++) {
            int64_t v;
            if (!dim_ok(p, port->dim[d]) || (fmt_dim_is_const(p->dims, port->dim[d], &v) && v < 0))
                return BAD("%s %u has a bad dimension %d", what, i, d);
        }
        for (uint32_t j = 0; j < i; j++) {
            if (strcmp(fmt_str_get(p, ports[j].name), name) == 0)
                return BAD("%s name '%s' occurs twice", what, name);
        }
    }
    return RTX_OK;
}

static rtx_status check_const(const fmt_plan *p, uint32_t i, rtx_err *err)
{
    const fmt_value *v = &p->values[i];
    int64_t elems;
    if (!fmt_dim_is_const(p->dims, v->elems, &elems))
        return BAD("constant %u has no constant size", i);
    if (v->offset % 64 || v->offset > p->consts_bytes || v->bytes > p->consts_bytes - v->offset)
        return BAD("constant %u lies at %llu, %llu bytes, outside its section", i,
                   (unsigned long long)v->offset, (unsigned long long)v->bytes);
    if (elems < 0 || (uint64_t)elems > v->bytes / fmt_dtype_bytes((fmt_dtype)v->dtype))
        return BAD("constant %u claims %lld elements in %llu bytes", i, (long long)elems,
                   (unsigned long long)v->bytes);
    return RTX_OK;
}

static rtx_status check_value(const fmt_plan *p, uint32_t i, rtx_err *err)
{
    const fmt_value *v = &p->values[i];
    int64_t elems;
    if (!dtype_ok(v->dtype) || !dim_ok(p, v->elems))
        return BAD("value %u has a bad element type or size", i);
    if (fmt_dim_is_const(p->dims, v->elems, &elems) && (elems < 0 || elems > FMT_DIM_LIMIT))
        return BAD("value %u has %lld elements", i, (long long)elems);
    if (v->huge > (v->kind == FMT_VAL_TEMP || v->kind == FMT_VAL_CONST))
        return BAD("value %u has %u as its mark for large pages", i, v->huge);
    switch (v->kind) {
    case FMT_VAL_INPUT:
        if (v->index >= p->n_inputs || p->inputs[v->index].dtype != v->dtype)
            return BAD("value %u is no input of the program", i);
        return RTX_OK;
    case FMT_VAL_OUTPUT:
        if (v->index >= p->n_outputs || p->outputs[v->index].dtype != v->dtype)
            return BAD("value %u is no output of the program", i);
        return RTX_OK;
    case FMT_VAL_CONST:
        return check_const(p, i, err);
    case FMT_VAL_TEMP:
        if (v->first > v->last || v->last >= p->n_steps)
            return BAD("value %u lives from step %u to %u of %u", i, v->first, v->last, p->n_steps);
        return RTX_OK;
    default:
        return BAD("value %u is of kind %u", i, v->kind);
    }
}

/* Each output is produced by one value, each input feeds at most one. */
static rtx_status check_values(const fmt_plan *p, rtx_err *err)
{
    AUTO_FREE uint32_t *seen = NULL;
    TRY_ALLOC(
        seen = base_zalloc_array(BASE_TAG_FORMAT, (size_t)p->n_inputs + p->n_outputs, sizeof *seen),
        err);
    for (uint32_t i = 0; i < p->n_values; i++) {
        TRY(check_value(p, i, err));
        const fmt_value *v = &p->values[i];
        if (v->kind != FMT_VAL_INPUT && v->kind != FMT_VAL_OUTPUT)
            continue;
        uint32_t *count = &seen[v->kind == FMT_VAL_INPUT ? v->index : p->n_inputs + v->index];
        if ((*count)++)
            return BAD("value %u repeats a port that another value stands for", i);
    }
    for (uint32_t i = 0; i < p->n_outputs; i++) {
        if (!seen[p->n_inputs + i])
            return BAD("output '%s' has no value", fmt_str_get(p, p->outputs[i].name));
    }
    return RTX_OK;
}

/* ---- kernels, rows, slots ---- */

static int cmp_name(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static rtx_status check_kernels(const fmt_plan *p, rtx_err *err)
{
    AUTO_FREE const char **names = NULL;
    TRY_ALLOC(names = base_zalloc_array(BASE_TAG_FORMAT, p->n_kernels, sizeof *names), err);
    for (uint32_t i = 0; i < p->n_kernels; i++) {
        const fmt_kernel *k = &p->kernels[i];
        if (k->name == 0 || !str_ok(p, k->name) || !str_ok(p, k->templ) || !str_ok(p, k->params) ||
            !str_ok(p, k->source) || !str_ok(p, k->flags))
            return BAD("kernel %u has a bad name or text", i);
        if (k->isa < FMT_ISA_V2 || k->isa > FMT_ISA_V4 || k->origin > FMT_TUNED)
            return BAD("kernel %u is for level %u, origin %u", i, k->isa, k->origin);
        if (k->code_bytes == 0 || k->code_offset > p->code_bytes ||
            k->code_bytes > p->code_bytes - k->code_offset)
            return BAD("kernel %u lies outside the code section", i);
        if (k->plan_entry >= k->code_bytes || k->run_entry >= k->code_bytes)
            return BAD("kernel %u has an entry outside its code", i);
        names[i] = fmt_str_get(p, k->name);
    }
    qsort(names, p->n_kernels, sizeof *names, cmp_name);
    for (uint32_t i = 1; i < p->n_kernels; i++) {
        if (strcmp(names[i - 1], names[i]) == 0)
            return BAD("kernel name '%s' occurs twice", names[i]);
    }
    return RTX_OK;
}

static int cmp_row(const fmt_row *a, const fmt_row *b)
{
#define BY(field)                                                                                  \
    if (a->field != b->field)                                                                      \
        return a->field < b->field ? -1 : 1;
    BY(isa)
    BY(threads)
    BY(size[0])
    BY(size[1])
#undef BY
    return 0;
}

static unsigned row_level(const fmt_row *r) { return 1u << r->isa; }

static rtx_status check_slot(const fmt_plan *p, uint32_t i, unsigned levels, rtx_err *err)
{
    const fmt_slot *s = &p->slots[i];
    if (!str_ok(p, s->problem) || s->measure[0] < -1 || s->measure[1] < -1)
        return BAD("slot %u has a bad problem or measure", i);
    if (s->n_rows == 0 || !range_ok(s->row, s->n_rows, p->n_rows))
        return BAD("slot %u has rows outside the table", i);
    unsigned seen = 0;
    for (uint32_t r = s->row; r < s->row + s->n_rows; r++) {
        seen |= row_level(&p->rows[r]);
        if (r > s->row && cmp_row(&p->rows[r - 1], &p->rows[r]) >= 0)
            return BAD("slot %u: row %u is out of order", i, r);
    }
    return seen == levels ? RTX_OK : BAD("slot %u lacks a kernel for one of the plan's levels", i);
}

static rtx_status check_slots(const fmt_plan *p, rtx_err *err)
{
    unsigned levels = 0;
    for (uint32_t i = 0; i < p->n_rows; i++) {
        const fmt_row *r = &p->rows[i];
        if (r->isa < FMT_ISA_V2 || r->isa > FMT_ISA_V4 || r->kernel >= p->n_kernels ||
            p->kernels[r->kernel].isa > r->isa)
            return BAD("row %u names no kernel of its level", i);
        if (r->threads == 0 || (r->ways != 1 && r->ways != r->threads))
            return BAD("row %u cuts its work into %u parts for %u threads", i, r->ways, r->threads);
        levels |= row_level(r);
    }
    for (uint32_t i = 0; i < p->n_slots; i++)
        TRY(check_slot(p, i, levels, err));
    return RTX_OK;
}

/* ---- steps ---- */

static rtx_status check_operand(const fmt_plan *p, uint32_t step, uint32_t i, rtx_err *err)
{
    const fmt_operand *o = &p->operands[i];
    if (o->value >= p->n_values || !dim_ok(p, o->offset))
        return BAD("step %u: operand %u names no value", step, i);
    const fmt_value *v = &p->values[o->value];
    if (v->kind == FMT_VAL_TEMP && (step < v->first || step > v->last))
        return BAD("step %u uses value %u, which lives from step %u to %u", step, o->value,
                   v->first, v->last);
    int64_t offset, elems;
    if (!fmt_dim_is_const(p->dims, o->offset, &offset))
        return RTX_OK;
    if (offset < 0 || (fmt_dim_is_const(p->dims, v->elems, &elems) && offset > elems))
        return BAD("step %u: operand %u starts at element %lld, outside its value", step, i,
                   (long long)offset);
    return RTX_OK;
}

static rtx_status check_step(const fmt_plan *p, uint32_t i, rtx_err *err)
{
    const fmt_step *s = &p->steps[i];
    if (s->slot >= p->n_slots || !str_ok(p, s->name))
        return BAD("step %u names no slot", i);
    if (s->n_operands > FMT_STEP_OPERANDS_MAX ||
        !range_ok(s->operand, s->n_operands, p->n_operands))
        return BAD("step %u has operands outside the table", i);
    if (!range_ok(s->arg, s->n_args, p->n_args))
        return BAD("step %u has arguments outside the table", i);
    if (s->next != FMT_NONE && (s->next >= p->n_values || p->values[s->next].kind != FMT_VAL_CONST))
        return BAD("step %u announces value %u, which is no constant", i, s->next);
    const int16_t *measure = p->slots[s->slot].measure;
    if (measure[0] >= (int64_t)s->n_args || measure[1] >= (int64_t)s->n_args)
        return BAD("step %u has too few arguments for its slot", i);
    for (uint32_t o = s->operand; o < s->operand + s->n_operands; o++)
        TRY(check_operand(p, i, o, err));
    for (uint32_t a = s->arg; a < s->arg + s->n_args; a++) {
        if (!dim_ok(p, p->args[a]))
            return BAD("step %u: argument %u is no dimension", i, a - s->arg);
    }
    return RTX_OK;
}

rtx_status fmt_plan_check(const fmt_plan *p, rtx_err *err)
{
    TRY(check_ports(p, "input", p->inputs, p->n_inputs, err));
    TRY(check_ports(p, "output", p->outputs, p->n_outputs, err));
    TRY(check_values(p, err));
    TRY(check_kernels(p, err));
    TRY(check_slots(p, err));
    for (uint32_t i = 0; i < p->n_limits; i++)
        if (!dim_ok(p, p->limits[i]))
            return BAD("limit %u is no dimension", i);
    for (uint32_t i = 0; i < p->n_steps; i++)
        TRY(check_step(p, i, err));
    return RTX_OK;
}
