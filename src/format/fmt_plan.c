/* Building a plan: growable tables, interned strings, and the rule that picks a kernel for given sizes.
 *   layer    L0 format; may include base
 *   sticky   after a failed allocation every call answers FMT_NONE or 0; fmt_plan_ok reports it once at the end */
#include "base_sys.h"
#include "fmt_plan_priv.h"

_Static_assert(COUNT_OF(((fmt_plan *)0)->cap) == FMT_TABLE_COUNT, "a capacity a table");

/* ---- life ---- */

fmt_plan *fmt_plan_new(fmt_dims *dims_taken)
{
    fmt_plan *p = base_zalloc(BASE_TAG_FORMAT, sizeof *p);
    if (!p)
        return NULL;
    base_buf_init(&p->strs, BASE_TAG_FORMAT, INT32_MAX);
    base_buf_put(&p->strs, "", 1);
    if (p->strs.failed) {
        fmt_plan_free(p);
        return NULL;
    }
    p->dims = dims_taken;
    p->kabi = FMT_KABI_VERSION;
    return p;
}

void fmt_plan_free(fmt_plan *p)
{
    if (!p)
        return;
    fmt_dims_free(p->dims);
    base_buf_done(&p->strs);
    base_free(p->intern);
#define FREE_TABLE(table, type, bytes) base_free(p->table);
    FMT_PLAN_TABLES(FREE_TABLE)
#undef FREE_TABLE
    base_free(p);
}

rtx_status fmt_plan_ok(const fmt_plan *p, rtx_err *err)
{
    TRY(base_buf_ok(&p->strs, err));
    TRY(fmt_dims_ok(p->dims, err));
    return p->failed ? FAIL(err, NOMEM, "out of memory for the plan") : RTX_OK;
}

/* ---- strings ---- */

static bool intern_grow(fmt_plan *p)
{
    uint32_t cap = p->intern_cap ? p->intern_cap * 2 : 256;
    fmt_str *slots = base_zalloc_array(BASE_TAG_FORMAT, cap, sizeof *slots);
    if (!slots)
        return false;
    for (uint32_t i = 0; i < p->intern_cap; i++) {
        if (!p->intern[i])
            continue;
        const char *s = fmt_str_get(p, p->intern[i]);
        uint32_t at = (uint32_t)base_xxh3(s, strlen(s)) & (cap - 1);
        while (slots[at])
            at = (at + 1) & (cap - 1);
        slots[at] = p->intern[i];
    }
    base_free(p->intern);
    p->intern = slots;
    p->intern_cap = cap;
    return true;
}

fmt_str fmt_plan_str(fmt_plan *p, const char *s)
{
    size_t len = s ? strlen(s) : 0;
    if (!len || p->failed)
        return 0;
    if (p->n_intern * 2 >= p->intern_cap && !intern_grow(p)) {
        p->failed = true;
        return 0;
    }
    uint32_t at = (uint32_t)base_xxh3(s, len) & (p->intern_cap - 1);
    for (; p->intern[at]; at = (at + 1) & (p->intern_cap - 1)) {
        if (strcmp(fmt_str_get(p, p->intern[at]), s) == 0)
            return p->intern[at];
    }
    fmt_str id = (fmt_str)p->strs.len;
    base_buf_put(&p->strs, s, len + 1);
    if (p->strs.failed) {
        p->failed = true;
        return 0;
    }
    p->intern[at] = id;
    p->n_intern++;
    return id;
}

rtx_status fmt_plan_trim(fmt_plan *p, rtx_err *err)
{
    base_buf had = p->strs;
    base_buf_init(&p->strs, BASE_TAG_FORMAT, INT32_MAX);
    base_buf_put(&p->strs, "", 1);
    base_free(p->intern);
    p->intern = NULL;
    p->n_intern = p->intern_cap = 0;
#define KEEP(field)                                                                                \
    if ((field) < had.len)                                                                         \
        (field) = fmt_plan_str(p, had.data + (field));
    for (uint32_t i = 0; i < p->n_steps; i++)
        KEEP(p->steps[i].name)
    for (uint32_t i = 0; i < p->n_slots; i++)
        KEEP(p->slots[i].problem)
    for (uint32_t i = 0; i < p->n_inputs; i++)
        KEEP(p->inputs[i].name)
    for (uint32_t i = 0; i < p->n_outputs; i++)
        KEEP(p->outputs[i].name)
    for (uint32_t i = 0; i < p->n_kernels; i++) {
        fmt_kernel *k = &p->kernels[i];
        KEEP(k->name)
        KEEP(k->templ)
        KEEP(k->params)
        KEEP(k->source)
        KEEP(k->flags)
    }
#undef KEEP
    base_buf_done(&had);
    return fmt_plan_ok(p, err);
}

/* ---- tables ---- */

bool fmt_plan_reserve(fmt_plan *p, fmt_table_id table, uint32_t more)
{
    uint32_t *cap = &p->cap[table];
    uint64_t want;
    switch (table) {
#define RESERVE(name, type, bytes)                                                                 \
    case FMT_TABLE_##name:                                                                         \
        want = (uint64_t)p->n_##name + more;                                                       \
        if (want > *cap && !p->failed) {                                                           \
            want = MAX(want, MAX(UINT64_C(16), (uint64_t)*cap * 2));                               \
            type *grown = want < INT32_MAX ? base_realloc(BASE_TAG_FORMAT, p->name,                \
                                                          (size_t)want * sizeof(type))             \
                                           : NULL;                                                 \
            p->failed = !grown;                                                                    \
            if (grown) {                                                                           \
                p->name = grown;                                                                   \
                *cap = (uint32_t)want;                                                             \
            }                                                                                      \
        }                                                                                          \
        break;
        FMT_PLAN_TABLES(RESERVE)
#undef RESERVE
    case FMT_TABLE_COUNT:
        break;
    }
    return !p->failed;
}

#define APPEND(p, table, record)                                                                   \
    (fmt_plan_reserve((p), FMT_TABLE_##table, 1)                                                   \
         ? ((p)->table[(p)->n_##table] = (record), (p)->n_##table++)                               \
         : FMT_NONE)

uint32_t fmt_plan_add_value(fmt_plan *p, const fmt_value *v) { return APPEND(p, values, *v); }
uint32_t fmt_plan_add_slot(fmt_plan *p, const fmt_slot *s) { return APPEND(p, slots, *s); }
uint32_t fmt_plan_add_row(fmt_plan *p, const fmt_row *r) { return APPEND(p, rows, *r); }
uint32_t fmt_plan_add_kernel(fmt_plan *p, const fmt_kernel *k) { return APPEND(p, kernels, *k); }

void fmt_plan_add_limit(fmt_plan *p, fmt_dim d)
{
    for (uint32_t i = 0; i < p->n_limits; i++)
        if (p->limits[i] == d)
            return;
    (void)APPEND(p, limits, d);
}

uint32_t fmt_plan_add_port(fmt_plan *p, bool output, const fmt_port *port)
{
    return output ? APPEND(p, outputs, *port) : APPEND(p, inputs, *port);
}

uint32_t fmt_plan_add_step(fmt_plan *p, const fmt_step *s, const fmt_operand *operands,
                           const fmt_dim *args)
{
    if (!fmt_plan_reserve(p, FMT_TABLE_operands, s->n_operands) ||
        !fmt_plan_reserve(p, FMT_TABLE_args, s->n_args))
        return FMT_NONE;
    fmt_step step = *s;
    step.operand = p->n_operands;
    step.arg = p->n_args;
    uint32_t id = APPEND(p, steps, step);
    if (id == FMT_NONE)
        return id;
    for (uint32_t i = 0; i < s->n_operands; i++)
        p->operands[p->n_operands++] = operands[i];
    for (uint32_t i = 0; i < s->n_args; i++)
        p->args[p->n_args++] = args[i];
    return id;
}

/* ---- choice of a row ---- */

/* Rows [*first, *end) share everything up to size[k-1]. Keep those of the bucket that holds v: the smallest size ≥ v, else
 * the largest. This is fmt_bucket_pick over the distinct sizes; a test holds the two against each other. */
static void narrow_size(const fmt_row *rows, uint32_t *first, uint32_t *end, int k, int64_t v)
{
    uint32_t a = *first;
    while (a + 1 < *end && rows[a].size[k] < v)
        a++;
    int64_t size = rows[a].size[k];
    while (a > *first &&
           rows[a - 1].size[k] == size) /* beyond the last size: back to its first row */
        a--;
    uint32_t b = a + 1;
    while (b < *end && rows[b].size[k] == size)
        b++;
    *first = a;
    *end = b;
}

const fmt_row *fmt_plan_pick(const fmt_plan *p, const fmt_slot *s, fmt_isa isa, int threads,
                             const int64_t measure[2])
{
    const fmt_row *rows = p->rows;
    uint32_t first = s->row, end = s->row + s->n_rows;
    while (first < end && rows[first].isa != isa)
        first++;
    if (first == end)
        return NULL;
    uint16_t count = rows[first].threads; /* the smallest of the level */
    for (uint32_t i = first; i < end && rows[i].isa == isa; i++) {
        if (rows[i].threads > count && rows[i].threads <= threads) {
            count = rows[i].threads;
            first = i;
        }
    }
    uint32_t last = first;
    while (last < end && rows[last].isa == isa && rows[last].threads == count)
        last++;
    narrow_size(rows, &first, &last, 0, measure[0]);
    narrow_size(rows, &first, &last, 1, measure[1]);
    return &rows[first];
}
