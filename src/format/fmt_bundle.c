/* Writing and opening `.rtxgc` containers.
 *   layer     L0 format; may include base
 *   layout    head (fixed part, section table, chunk sums) · zero padding · sections in ascending order, zero padding between
 *             them; all little-endian. docs/adr/0004-artifact-format.md has the byte table
 *   check     every byte belongs to the head, a section or padding, and each of the three is checked. Plan and code carry
 *             SHA-256; other sections carry XXH3 sums of 1 MiB chunks, which the head's SHA-256 covers in turn
 *   threads   sums are computed by a list of jobs that the threads of the pool take from */
#include "fmt_bundle.h"
#include "fmt_plan_priv.h"
#include <errno.h>
#include <stdatomic.h>
#include <unistd.h>

#define VERSION       1u
#define HEAD_BYTES    64u /* fixed part */
#define ENTRY_BYTES   72u
#define CHUNK_BYTES   (UINT64_C(1) << 20)
#define ALIGN_TEXT    64u
#define ALIGN_PAGE    4096u
#define SECTIONS_MAX  64u
#define FLAG_REQUIRED 1u /* a reader that does not know the type must refuse */
#define FLAG_SHA256   2u /* sum is SHA-256 of the section; else its chunks have XXH3 sums */

typedef struct entry {
    uint32_t type, flags;
    uint64_t offset, bytes;
    uint32_t align;
    uint32_t first_chunk; /* index of its first chunk sum */
    uint8_t sha[32];
} entry;

typedef struct head {
    uint64_t file_bytes;
    uint32_t n_entries, n_chunks;
    base_sha256_sum sum; /* over the head with these 32 bytes zero */
    entry entries[SECTIONS_MAX];
} head;

static const char *section_name(uint32_t type)
{
    static const char *const names[FMT_SEC_COUNT] = {"",          "manifest", "plan",    "code",
                                                     "constants", "graph",    "evidence"};
    return type > 0 && type < FMT_SEC_COUNT ? names[type] : "unknown";
}

static uint64_t align_up(uint64_t v, uint64_t align) { return (v + align - 1) / align * align; }
static uint64_t chunk_count(uint64_t bytes)
{
    return bytes / CHUNK_BYTES + (bytes % CHUNK_BYTES != 0);
}
static uint64_t head_bytes(const head *h)
{
    return HEAD_BYTES + (uint64_t)h->n_entries * ENTRY_BYTES + (uint64_t)h->n_chunks * 8;
}

/* ---- write ---- */

/* The fixed part and the table; chunk sums follow. */
static void put_head(base_buf *b, const head *h)
{
    base_buf_put(b, FMT_BUNDLE_MAGIC, 8);
    base_buf_u32(b, VERSION);
    base_buf_u32(b, h->n_entries);
    base_buf_u32(b, h->n_chunks);
    base_buf_u32(b, 0);
    base_buf_u64(b, h->file_bytes);
    base_buf_put(b, h->sum.b, sizeof h->sum.b);
    for (uint32_t i = 0; i < h->n_entries; i++) {
        const entry *e = &h->entries[i];
        base_buf_u32(b, e->type);
        base_buf_u32(b, e->flags);
        base_buf_u64(b, e->offset);
        base_buf_u64(b, e->bytes);
        base_buf_u32(b, e->align);
        base_buf_u32(b, e->first_chunk);
        base_buf_put(b, e->sha, sizeof e->sha);
        base_buf_u64(b, 0);
    }
}

/* XXH3 sums of the chunks of all pieces in a row. A chunk inside one piece is hashed where it lies. */
static rtx_status sum_pieces(fmt_pieces pieces, base_buf *sums, rtx_err *err)
{
    AUTO_FREE uint8_t *joined = NULL;
    uint64_t held = 0;
    for (size_t i = 0; i < pieces.n; i++) {
        const uint8_t *at = pieces.items[i].data;
        uint64_t left = pieces.items[i].bytes;
        while (left > 0) {
            uint64_t n = MIN(left, CHUNK_BYTES - held);
            if (held == 0 && n == CHUNK_BYTES) {
                base_buf_u64(sums, base_xxh3(at, (size_t)n));
            } else {
                if (!joined)
                    TRY_ALLOC(joined = base_alloc(BASE_TAG_FORMAT, CHUNK_BYTES), err);
                memcpy(joined + held, at, (size_t)n);
                held += n;
                if (held == CHUNK_BYTES) {
                    base_buf_u64(sums, base_xxh3(joined, (size_t)held));
                    held = 0;
                }
            }
            at += n;
            left -= n;
        }
    }
    if (held)
        base_buf_u64(sums, base_xxh3(joined, (size_t)held));
    return base_buf_ok(sums, err);
}

static uint64_t pieces_bytes(fmt_pieces pieces)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < pieces.n; i++)
        sum += pieces.items[i].bytes;
    return sum;
}

/* One section to be written. */
typedef struct source {
    uint32_t type, flags, align;
    fmt_pieces pieces;
} source;

static rtx_status sum_source(const source *s, entry *e, base_buf *sums, rtx_err *err)
{
    *e = (entry){
        .type = s->type, .flags = s->flags, .align = s->align, .bytes = pieces_bytes(s->pieces)};
    e->first_chunk = (uint32_t)(sums->len / 8);
    if (!(s->flags & FLAG_SHA256))
        return sum_pieces(s->pieces, sums, err);
    base_sha256 sha;
    base_sha256_init(&sha);
    for (size_t i = 0; i < s->pieces.n; i++)
        base_sha256_add(&sha, s->pieces.items[i].data, (size_t)s->pieces.items[i].bytes);
    base_sha256_sum sum = base_sha256_end(&sha);
    memcpy(e->sha, sum.b, sizeof e->sha);
    return RTX_OK;
}

/* Places, sums and the finished bytes of the head. */
static rtx_status make_head(const source *sources, uint32_t n, base_buf *b, head *h, rtx_err *err)
{
    AUTO_BUF base_buf sums;
    base_buf_init(&sums, BASE_TAG_FORMAT, SIZE_MAX);
    h->n_entries = n;
    for (uint32_t i = 0; i < n; i++)
        TRY(sum_source(&sources[i], &h->entries[i], &sums, err));
    h->n_chunks = (uint32_t)(sums.len / 8);
    uint64_t at = head_bytes(h);
    for (uint32_t i = 0; i < n; i++) {
        h->entries[i].offset = align_up(at, h->entries[i].align);
        at = h->entries[i].offset + h->entries[i].bytes;
    }
    h->file_bytes = at;
    for (int pass = 0; pass < 2; pass++) { /* first with an empty sum, then with the sum of that */
        base_buf_done(b);
        base_buf_init(b, BASE_TAG_FORMAT, SIZE_MAX);
        put_head(b, h);
        base_buf_put(b, sums.data, sums.len);
        TRY(base_buf_ok(b, err));
        if (pass == 0)
            h->sum = base_sha256_of(b->data, b->len);
    }
    return RTX_OK;
}

static rtx_status write_stdout(const base_part *parts, size_t n, rtx_err *err)
{
    for (size_t i = 0; i < n; i++) {
        const char *at = parts[i].data;
        for (size_t left = parts[i].bytes; left > 0;) {
            ssize_t put = write(STDOUT_FILENO, at, MIN(left, (size_t)1 << 30));
            if (put < 0 && errno == EINTR)
                continue;
            if (put < 0)
                return FAIL(err, IO, "standard output: cannot write: %s", strerror(errno));
            at += put;
            left -= (size_t)put;
        }
    }
    return RTX_OK;
}

static rtx_status write_parts(const char *path, const base_buf *head_text, const head *h,
                              const source *sources, rtx_err *err)
{
    static const char zeros[ALIGN_PAGE];
    size_t n_parts = 1;
    for (uint32_t i = 0; i < h->n_entries; i++)
        n_parts += 1 + sources[i].pieces.n;
    AUTO_FREE base_part *parts = NULL;
    TRY_ALLOC(parts = base_alloc_array(BASE_TAG_FORMAT, n_parts, sizeof *parts), err);
    size_t at = 0;
    uint64_t offset = head_text->len;
    parts[at++] = (base_part){head_text->data, head_text->len};
    for (uint32_t i = 0; i < h->n_entries; i++) {
        const entry *e = &h->entries[i];
        parts[at++] = (base_part){zeros, (size_t)(e->offset - offset)};
        for (size_t k = 0; k < sources[i].pieces.n; k++)
            parts[at++] = (base_part){sources[i].pieces.items[k].data,
                                      (size_t)sources[i].pieces.items[k].bytes};
        offset = e->offset + e->bytes;
    }
    return strcmp(path, "-") == 0 ? write_stdout(parts, at, err)
                                  : base_publish(path, parts, at, err);
}

static fmt_span text_span(const char *s) { return (fmt_span){s ? s : "", s ? strlen(s) : 0}; }

/* Nothing is written that open would refuse. */
static rtx_status check_plans(const fmt_plan *const *plans, size_t n_plans, uint64_t consts_bytes,
                              uint64_t code_bytes, rtx_err *err)
{
    if (n_plans == 0 || n_plans > FMT_PLANS_MAX)
        return FAIL(err, INTERNAL, "%zu plans for a bundle; 1 to %d are possible", n_plans,
                    FMT_PLANS_MAX);
    for (size_t i = 0; i < n_plans; i++) {
        if (plans[i]->consts_bytes != consts_bytes || plans[i]->code_bytes != code_bytes)
            return FAIL(err, INTERNAL,
                        "plan %zu says %llu constant and %llu code bytes; there are %llu and %llu",
                        i, (unsigned long long)plans[i]->consts_bytes,
                        (unsigned long long)plans[i]->code_bytes, (unsigned long long)consts_bytes,
                        (unsigned long long)code_bytes);
        rtx_err why = {0};
        rtx_status s = fmt_plan_check(plans[i], &why);
        if (s != RTX_OK)
            return s == RTX_NOMEM
                       ? FAIL(err, NOMEM, "%s", why.text)
                       : FAIL(err, INTERNAL, "plan %zu was made wrong: %.300s", i, why.text);
    }
    return RTX_OK;
}

/* Bytes of all plans in a row; ends[i] is where plan i stops. */
static rtx_status write_plans(const fmt_plan *const *plans, size_t n_plans, base_buf *b,
                              size_t *ends, rtx_err *err)
{
    for (size_t i = 0; i < n_plans; i++) {
        fmt_plan_write(plans[i], b);
        ends[i] = b->len;
    }
    return base_buf_ok(b, err);
}

rtx_status fmt_bundle_write(const char *path, const fmt_plan *const *plans, size_t n_plans,
                            fmt_pieces consts, fmt_span code, const char *manifest,
                            const char *graph_text, const char *evidence, rtx_err *err)
{
    TRY(check_plans(plans, n_plans, pieces_bytes(consts), code.bytes, err));
    AUTO_BUF base_buf records, text;
    base_buf_init(&records, BASE_TAG_FORMAT, INT32_MAX);
    base_buf_init(&text, BASE_TAG_FORMAT, SIZE_MAX);
    size_t ends[FMT_PLANS_MAX];
    TRY(write_plans(plans, n_plans, &records, ends, err));
    fmt_span spans[FMT_PLANS_MAX + 3] = {text_span(manifest), text_span(graph_text),
                                         text_span(evidence)};
    source sources[FMT_PLANS_MAX + 5];
    uint32_t n = 0;
    sources[n++] = (source){FMT_SEC_MANIFEST, FLAG_REQUIRED, ALIGN_TEXT, {&spans[0], 1}};
    for (size_t i = 0, from = 0; i < n_plans; from = ends[i++]) {
        spans[3 + i] = (fmt_span){records.data + from, ends[i] - from};
        sources[n++] =
            (source){FMT_SEC_PLAN, FLAG_REQUIRED | FLAG_SHA256, ALIGN_TEXT, {&spans[3 + i], 1}};
    }
    sources[n++] = (source){FMT_SEC_GRAPH, 0, ALIGN_TEXT, {&spans[1], 1}};
    sources[n++] = (source){FMT_SEC_EVIDENCE, 0, ALIGN_TEXT, {&spans[2], 1}};
    sources[n++] = (source){FMT_SEC_CODE, FLAG_REQUIRED | FLAG_SHA256, ALIGN_PAGE, {&code, 1}};
    sources[n++] = (source){FMT_SEC_CONSTS, FLAG_REQUIRED, ALIGN_PAGE, consts};
    AUTO_FREE head *h = NULL;
    TRY_ALLOC(h = base_zalloc(BASE_TAG_FORMAT, sizeof *h), err);
    TRY(make_head(sources, n, &text, h, err));
    return write_parts(path, &text, h, sources, err);
}

/* ---- open: head and table ---- */

static void get_entry(base_reader *r, entry *e)
{
    e->type = base_reader_u32(r);
    e->flags = base_reader_u32(r);
    e->offset = base_reader_u64(r);
    e->bytes = base_reader_u64(r);
    e->align = base_reader_u32(r);
    e->first_chunk = base_reader_u32(r);
    const uint8_t *sha = base_reader_bytes(r, sizeof e->sha);
    if (sha)
        memcpy(e->sha, sha, sizeof e->sha);
    base_reader_u64(r);
}

static rtx_status check_head_sum(const base_map *m, const head *h, rtx_err *err)
{
    static const uint8_t zeros[32];
    base_sha256 sha;
    base_sha256_init(&sha);
    base_sha256_add(&sha, m->data, 32);
    base_sha256_add(&sha, zeros, 32);
    base_sha256_add(&sha, m->data + HEAD_BYTES, (size_t)head_bytes(h) - HEAD_BYTES);
    base_sha256_sum sum = base_sha256_end(&sha);
    return memcmp(&sum, &h->sum, sizeof sum) == 0
               ? RTX_OK
               : FAIL(err, CORRUPT, "header: sum does not match");
}

static rtx_status read_head(const base_map *m, head *h, rtx_err *err)
{
    base_reader r = base_reader_of(m->data, m->bytes);
    const uint8_t *magic = base_reader_bytes(&r, 8);
    if (!magic || memcmp(magic, FMT_BUNDLE_MAGIC, 8) != 0)
        return FAIL(err, CORRUPT, "header: not an .rtxgc file");
    uint32_t version = base_reader_u32(&r);
    h->n_entries = base_reader_u32(&r);
    h->n_chunks = base_reader_u32(&r);
    base_reader_u32(&r);
    h->file_bytes = base_reader_u64(&r);
    const uint8_t *sum = base_reader_bytes(&r, sizeof h->sum);
    if (!sum)
        return FAIL(err, CORRUPT, "header: cut short");
    memcpy(&h->sum, sum, sizeof h->sum);
    if (version != VERSION)
        return FAIL(err, UNSUPPORTED,
                    "header: format: built for %u, found %u; compile the model again", version,
                    VERSION);
    if (h->file_bytes != m->bytes)
        return FAIL(err, CORRUPT, "header: file has %zu bytes, should have %llu", m->bytes,
                    (unsigned long long)h->file_bytes);
    if (h->n_entries > SECTIONS_MAX || head_bytes(h) > m->bytes)
        return FAIL(err, CORRUPT, "header: table does not fit into the file");
    TRY(check_head_sum(m, h, err));
    for (uint32_t i = 0; i < h->n_entries; i++)
        get_entry(&r, &h->entries[i]);
    return RTX_OK;
}

/* Sections ascend, do not overlap and end with the file; gaps are at most an alignment and zero. */
static rtx_status check_table(const base_map *m, const head *h, rtx_err *err)
{
    uint64_t at = head_bytes(h), chunk = 0;
    for (uint32_t i = 0; i < h->n_entries; i++) {
        const entry *e = &h->entries[i];
        const char *name = section_name(e->type);
        if ((e->align != ALIGN_TEXT && e->align != ALIGN_PAGE) ||
            e->offset != align_up(at, e->align) || e->offset > m->bytes ||
            e->bytes > m->bytes - e->offset)
            return FAIL(err, CORRUPT, "%s section: out of place", name);
        for (; at < e->offset; at++) {
            if (m->data[at])
                return FAIL(err, CORRUPT, "padding before the %s section: not zero at byte %llu",
                            name, (unsigned long long)at);
        }
        if (e->first_chunk != chunk)
            return FAIL(err, CORRUPT, "%s section: its sums are out of place", name);
        if (!(e->flags & FLAG_SHA256))
            chunk += chunk_count(e->bytes);
        if ((e->flags & FLAG_REQUIRED) && (e->type == 0 || e->type >= FMT_SEC_COUNT))
            return FAIL(
                err, UNSUPPORTED,
                "section of type %u: built for a newer version of rtx, found %u; update rtx",
                e->type, VERSION);
        at = e->offset + e->bytes;
    }
    if (at != m->bytes || chunk != h->n_chunks)
        return FAIL(err, CORRUPT, "header: sections do not fill the file");
    return RTX_OK;
}

/* ---- open: sums ---- */

/* Jobs 0…n_entries-1 are the sections with SHA-256, which take longest; then all chunks. */
typedef struct summing {
    const base_map *map;
    const head *head;
    const uint8_t *sums; /* n_chunks of 8 bytes */
    _Atomic uint32_t next;
    _Atomic uint32_t bad_type; /* 0 = all good; else 1 + type of a damaged section */
} summing;

static void sum_section(summing *s, const entry *e)
{
    base_sha256_sum sum = base_sha256_of(s->map->data + e->offset, (size_t)e->bytes);
    if (memcmp(sum.b, e->sha, sizeof e->sha) != 0)
        atomic_store(&s->bad_type, 1 + e->type);
}

static void sum_chunk(summing *s, uint32_t chunk)
{
    const entry *e = s->head->entries;
    while ((e->flags & FLAG_SHA256) || chunk - e->first_chunk >= chunk_count(e->bytes))
        e++;
    uint64_t at = (chunk - e->first_chunk) * CHUNK_BYTES;
    const uint8_t *data = s->map->data + e->offset + at;
    size_t n = (size_t)MIN(e->bytes - at, CHUNK_BYTES);
    uint64_t want;
    memcpy(&want, s->sums + (size_t)chunk * 8, 8);
    if (base_xxh3(data, n) != want)
        atomic_store(&s->bad_type, 1 + e->type);
}

static void sum_jobs(void *ctx, int t, int n)
{
    (void)t, (void)n;
    summing *s = ctx;
    uint32_t n_entries = s->head->n_entries;
    for (;;) {
        uint32_t job = atomic_fetch_add_explicit(&s->next, 1, memory_order_relaxed);
        if (job >= n_entries + s->head->n_chunks)
            return;
        if (job >= n_entries)
            sum_chunk(s, job - n_entries);
        else if (s->head->entries[job].flags & FLAG_SHA256)
            sum_section(s, &s->head->entries[job]);
    }
}

static rtx_status check_sums(const base_map *m, const head *h, int threads, rtx_err *err)
{
    summing s = {
        .map = m, .head = h, .sums = m->data + HEAD_BYTES + (size_t)h->n_entries * ENTRY_BYTES};
    int n = (int)MIN((uint64_t)MAX(threads, 1),
                     MAX(m->bytes / (4 * CHUNK_BYTES), 1)); /* a small file is not worth a thread */
    TRY(base_pool_run(MIN(n, BASE_POOL_MAX), sum_jobs, &s, err));
    uint32_t bad = atomic_load(&s.bad_type);
    return bad ? FAIL(err, CORRUPT, "%s section: sum does not match", section_name(bad - 1))
               : RTX_OK;
}

/* ---- open: sections ---- */

static rtx_status check_section(const entry *e, rtx_err *err)
{
    const char *name = section_name(e->type);
    if ((e->type == FMT_SEC_PLAN || e->type == FMT_SEC_CODE) && !(e->flags & FLAG_SHA256))
        return FAIL(err, CORRUPT, "%s section: has no SHA-256", name);
    if ((e->type == FMT_SEC_CONSTS || e->type == FMT_SEC_CODE) && e->align != ALIGN_PAGE)
        return FAIL(err, CORRUPT, "%s section: not on a page", name);
    return RTX_OK;
}

static rtx_status read_plan(fmt_bundle *b, fmt_span span, rtx_err *err)
{
    base_reader r = base_reader_of(span.data, (size_t)span.bytes);
    if (b->n_plans == FMT_PLANS_MAX)
        return FAIL(err, CORRUPT, "plan section: more than %d", FMT_PLANS_MAX);
    TRY(fmt_plan_read(&r, &b->plan[b->n_plans], err));
    b->n_plans++;
    return base_reader_left(&r)
               ? FAIL(err, CORRUPT, "plan section: %zu bytes too many", base_reader_left(&r))
               : RTX_OK;
}

static rtx_status find_sections(fmt_bundle *b, const head *h, rtx_err *err)
{
    bool seen[FMT_SEC_COUNT] = {false};
    for (uint32_t i = 0; i < h->n_entries; i++) {
        const entry *e = &h->entries[i];
        if (e->type == 0 || e->type >= FMT_SEC_COUNT)
            continue; /* optional and newer than us */
        TRY(check_section(e, err));
        fmt_span span = {b->map.data + e->offset, e->bytes};
        if (e->type == FMT_SEC_PLAN)
            TRY(read_plan(b, span, err));
        else if (seen[e->type])
            return FAIL(err, CORRUPT, "%s section: occurs twice", section_name(e->type));
        if (!seen[e->type])
            b->section[e->type] = span;
        seen[e->type] = true;
    }
    for (uint32_t type = FMT_SEC_MANIFEST; type <= FMT_SEC_CONSTS; type++) {
        if (!seen[type])
            return FAIL(err, CORRUPT, "%s section: missing", section_name(type));
    }
    return RTX_OK;
}

/* ---- open: plans ---- */

static bool same_ports(const fmt_plan *a, const fmt_port *x, const fmt_plan *b, const fmt_port *y,
                       uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        if (x[i].dtype != y[i].dtype || x[i].rank != y[i].rank ||
            strcmp(fmt_str_get(a, x[i].name), fmt_str_get(b, y[i].name)) != 0)
            return false;
    }
    return true;
}

static rtx_status join_plans(fmt_bundle *b, rtx_err *err)
{
    for (size_t i = 0; i < b->n_plans; i++) {
        fmt_plan *p = b->plan[i], *first = b->plan[0];
        if (p->consts_bytes != b->section[FMT_SEC_CONSTS].bytes ||
            p->code_bytes != b->section[FMT_SEC_CODE].bytes)
            return FAIL(err, CORRUPT, "plan section: made for other constants or code");
        if (p->n_inputs != first->n_inputs || p->n_outputs != first->n_outputs ||
            !same_ports(p, p->inputs, first, first->inputs, p->n_inputs) ||
            !same_ports(p, p->outputs, first, first->outputs, p->n_outputs))
            return FAIL(err, CORRUPT, "plan section: plans have different inputs or outputs");
        p->consts = b->section[FMT_SEC_CONSTS].data;
        p->code = b->section[FMT_SEC_CODE].data;
    }
    return RTX_OK;
}

/* fmt_plan_check has made sure that all slots of a plan have rows for the same levels. */
const fmt_plan *fmt_bundle_plan(const fmt_bundle *b, fmt_isa isa)
{
    for (size_t i = 0; i < b->n_plans; i++) {
        const fmt_plan *p = b->plan[i];
        bool has = p->n_slots == 0;
        for (uint32_t r = 0; r < p->n_rows && !has; r++)
            has = p->rows[r].isa == isa;
        if (has)
            return p;
    }
    return NULL;
}

/* ---- open ---- */

static rtx_status open_mapped(fmt_bundle *b, head *h, int threads, rtx_err *err)
{
    TRY(read_head(&b->map, h, err));
    TRY(check_table(&b->map, h, err));
    TRY(check_sums(&b->map, h, threads, err));
    TRY(find_sections(b, h, err));
    return join_plans(b, err);
}

rtx_status fmt_bundle_open(const char *path, int threads, fmt_bundle *out, rtx_err *err)
{
    AUTO_FREE head *h = NULL;
    TRY_ALLOC(h = base_zalloc(BASE_TAG_FORMAT, sizeof *h), err);
    fmt_bundle b = {0};
    TRY(base_map_open(path, &b.map, err));
    rtx_err inner = {.code = RTX_OK};
    rtx_status status = open_mapped(&b, h, threads, &inner);
    if (status != RTX_OK) {
        fmt_bundle_close(&b);
        base_fail(err, status, __FILE__, __LINE__, "%s: %s", path, inner.text);
        if (err)
            memcpy(err->where, inner.where, sizeof err->where);
        return status;
    }
    *out = b;
    return RTX_OK;
}

void fmt_bundle_close(fmt_bundle *b)
{
    for (size_t i = 0; i < b->n_plans; i++)
        fmt_plan_free(b->plan[i]);
    base_map_close(&b->map);
    *b = (fmt_bundle){0};
}
