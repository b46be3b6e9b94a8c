/* The plan section of a bundle: one description of each record serves writing and reading, so they cannot drift apart.
 *   layer     L0 format; may include base
 *   layout    docs/adr/0004-artifact-format.md; little-endian, packed, no padding between fields
 *   trust     counts are checked against the bytes left before anything is allocated; fmt_plan_check does the rest */
#include "fmt_dim.h"
#include "fmt_plan_priv.h"

#define PLAN_MAGIC 0x4e4c5052u /* "RPLN" */

/* Either end of a transfer: exactly one of the two is set. */
typedef struct io {
    base_buf *w;
    base_reader *r;
} io;

#define IO_FIELD(bits)                                                                             \
    static void io_u##bits(io *x, uint##bits##_t *v)                                               \
    {                                                                                              \
        if (x->w)                                                                                  \
            base_buf_put(x->w, v, sizeof *v);                                                      \
        else                                                                                       \
            *v = base_reader_u##bits(x->r);                                                        \
    }
IO_FIELD(8)
IO_FIELD(16)
IO_FIELD(32)
IO_FIELD(64)
#undef IO_FIELD

static void io_i16(io *x, int16_t *v)
{
    uint16_t u = (uint16_t)*v;
    io_u16(x, &u);
    *v = (int16_t)u;
}

static void io_i64(io *x, int64_t *v)
{
    uint64_t u = (uint64_t)*v;
    io_u64(x, &u);
    *v = (int64_t)u;
}

static void io_dim(io *x, fmt_dim *d)
{
    uint32_t u = (uint32_t)*d;
    io_u32(x, &u);
    *d = (fmt_dim)u;
}

static void io_bytes(io *x, uint8_t *v, size_t n)
{
    if (x->w) {
        base_buf_put(x->w, v, n);
        return;
    }
    const uint8_t *from = base_reader_bytes(x->r, n);
    if (from)
        memcpy(v, from, n);
}

/* ---- records ---- */

static void io_fmt_port(io *x, fmt_port *v)
{
    io_u32(x, &v->name);
    io_u8(x, &v->dtype);
    io_u8(x, &v->rank);
    for (int i = 0; i < v->rank && i < FMT_RANK_MAX; i++)
        io_dim(x, &v->dim[i]);
}

static void io_fmt_value(io *x, fmt_value *v)
{
    io_u8(x, &v->kind);
    io_u8(x, &v->dtype);
    io_u32(x, &v->index);
    io_dim(x, &v->elems);
    io_u64(x, &v->offset);
    io_u64(x, &v->bytes);
    io_u32(x, &v->first);
    io_u32(x, &v->last);
    io_u8(x, &v->huge);
}

static void io_fmt_operand(io *x, fmt_operand *v)
{
    io_u32(x, &v->value);
    io_dim(x, &v->offset);
}

static void io_fmt_dim(io *x, fmt_dim *v) { io_dim(x, v); }

static void io_fmt_step(io *x, fmt_step *v)
{
    io_u32(x, &v->slot);
    io_u32(x, &v->operand);
    io_u32(x, &v->n_operands);
    io_u32(x, &v->arg);
    io_u32(x, &v->n_args);
    io_u32(x, &v->next);
    io_u32(x, &v->name);
    uint32_t reserved = 0;
    io_u32(x, &reserved);
}

static void io_fmt_slot(io *x, fmt_slot *v)
{
    io_u32(x, &v->problem);
    io_i16(x, &v->measure[0]);
    io_i16(x, &v->measure[1]);
    io_u32(x, &v->row);
    io_u32(x, &v->n_rows);
}

static void io_fmt_row(io *x, fmt_row *v)
{
    io_u8(x, &v->isa);
    io_u16(x, &v->threads);
    io_u16(x, &v->ways);
    io_i64(x, &v->size[0]);
    io_i64(x, &v->size[1]);
    io_u32(x, &v->kernel);
}

static void io_fmt_kernel(io *x, fmt_kernel *v)
{
    io_u32(x, &v->name);
    io_u32(x, &v->templ);
    io_u32(x, &v->params);
    io_u32(x, &v->source);
    io_u32(x, &v->flags);
    io_u8(x, &v->isa);
    io_u8(x, &v->origin);
    io_u64(x, &v->code_offset);
    io_u64(x, &v->code_bytes);
    io_u32(x, &v->plan_entry);
    io_u32(x, &v->run_entry);
    io_bytes(x, v->code_hash, sizeof v->code_hash);
}

/* ---- write ---- */

void fmt_plan_write(const fmt_plan *p, base_buf *b)
{
    io x = {.w = b};
    base_buf_u32(b, PLAN_MAGIC);
    base_buf_u32(b, FMT_PLAN_VERSION);
    base_buf_u32(b, p->kabi);
    base_buf_u32(b, FMT_BUCKET_VERSION);
    base_buf_u64(b, p->consts_bytes);
    base_buf_u64(b, p->code_bytes);
    base_buf_u32(b, (uint32_t)p->strs.len);
    base_buf_put(b, p->strs.data, p->strs.len);
    fmt_dims_write(p->dims, b);
#define WRITE_TABLE(table, type, bytes)                                                            \
    base_buf_u32(b, p->n_##table);                                                                 \
    for (uint32_t i = 0; i < p->n_##table; i++) {                                                  \
        type record = p->table[i];                                                                 \
        io_##type(&x, &record);                                                                    \
    }
    FMT_PLAN_TABLES(WRITE_TABLE)
#undef WRITE_TABLE
}

/* ---- read ---- */

static rtx_status read_head(base_reader *r, fmt_plan *p, rtx_err *err)
{
    uint32_t magic = base_reader_u32(r), version = base_reader_u32(r);
    if (r->failed || magic != PLAN_MAGIC)
        return FAIL(err, CORRUPT, "plan: not a plan");
    if (version != FMT_PLAN_VERSION)
        return FAIL(err, UNSUPPORTED,
                    "plan: version: built for %u, found %d; compile the model again", version,
                    FMT_PLAN_VERSION);
    p->kabi = base_reader_u32(r);
    uint32_t bucket = base_reader_u32(r);
    if (!r->failed && bucket != FMT_BUCKET_VERSION)
        return FAIL(err, UNSUPPORTED,
                    "plan: bucket function: built for %u, found %d; compile the model again",
                    bucket, FMT_BUCKET_VERSION);
    p->consts_bytes = base_reader_u64(r);
    p->code_bytes = base_reader_u64(r);
    return r->failed ? FAIL(err, CORRUPT, "plan: cut short in its head") : RTX_OK;
}

static rtx_status read_strings(base_reader *r, fmt_plan *p, rtx_err *err)
{
    uint32_t bytes = base_reader_u32(r);
    const uint8_t *text = base_reader_bytes(r, bytes);
    if (!text || bytes == 0 || text[0] != 0 || text[bytes - 1] != 0)
        return FAIL(err, CORRUPT, "plan: string pool of %u bytes is cut short or not closed",
                    bytes);
    base_buf_done(&p->strs);
    base_buf_init(&p->strs, BASE_TAG_FORMAT, INT32_MAX);
    base_buf_put(&p->strs, text, bytes);
    return base_buf_ok(&p->strs, err);
}

static rtx_status read_tables(base_reader *r, fmt_plan *p, rtx_err *err)
{
    io x = {.r = r};
#define READ_TABLE(table, type, bytes)                                                             \
    {                                                                                              \
        uint32_t n = base_reader_u32(r);                                                           \
        if (r->failed || n > base_reader_left(r) / (bytes))                                        \
            return FAIL(err, CORRUPT, "plan: table " #table " claims %u records", n);              \
        if (!fmt_plan_reserve(p, FMT_TABLE_##table, n))                                            \
            return FAIL(err, NOMEM, "out of memory for the plan");                                 \
        for (uint32_t i = 0; i < n; i++) {                                                         \
            p->table[i] = (type){0};                                                               \
            io_##type(&x, &p->table[i]);                                                           \
        }                                                                                          \
        p->n_##table = n;                                                                          \
    }
    FMT_PLAN_TABLES(READ_TABLE)
#undef READ_TABLE
    return r->failed ? FAIL(err, CORRUPT, "plan: cut short in its tables") : RTX_OK;
}

static void auto_plan(fmt_plan **p) { fmt_plan_free(*p); }
#define AUTO_PLAN __attribute__((cleanup(auto_plan)))

rtx_status fmt_plan_read(base_reader *r, fmt_plan **out, rtx_err *err)
{
    AUTO_PLAN fmt_plan *p = NULL;
    TRY_ALLOC(p = fmt_plan_new(NULL), err);
    TRY(read_head(r, p, err));
    TRY(read_strings(r, p, err));
    TRY(fmt_dims_read(r, &p->dims, err));
    TRY(read_tables(r, p, err));
    TRY(fmt_plan_check(p, err));
    *out = TAKE(p);
    return RTX_OK;
}
