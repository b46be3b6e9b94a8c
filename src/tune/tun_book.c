/* What is written down: keys complete by construction, records of picks and code, and the evidence that explain prints.
 *   plan       params, ways, times of a spot      meas   its candidates as JSON
 *   bin        code and source of a variant       bad    why a variant was rejected, and a file to have it again
 *   compiler   is part of an entry but compared only while a compiler is there: a machine without one may use what
 *              another compiled */
#include "tun_session.h"
#include "dev_cpu.h"
#include <stdlib.h>

/* ---- keys ---- */

static void add_sha(tun_key *k, const char *name, const uint8_t *sha)
{
    char hex[65];
    base_hex(sha, 32, hex);
    tun_key_add(k, name, hex);
}

static void add_int(tun_key *k, const char *name, long long v)
{
    char text[24];
    snprintf(text, sizeof text, "%lld", v);
    tun_key_add(k, name, text);
}

/* What made the code of a kernel, besides problem and parameters. */
static void add_origin(const tun_session *s, tun_key *k, const syn_template *t)
{
    add_sha(k, "template text", t->sha256);
    add_sha(k, "prelude and renderer", syn_prelude_sha256());
    tun_key_add(k, "flags", syn_flags(s->opt->isa));
    add_int(k, "kernel interface", FMT_KABI_VERSION);
    if (s->have_cc)
        snprintf(k->compiler, sizeof k->compiler, "%s", s->cc.version);
}

/* The facts that the variants depend on, as they were seen. */
static void add_facts(const tun_session *s, tun_key *k, const syn_problem *p)
{
    uint32_t read = syn_facts_read(p, s->opt->isa);
    for (int f = 0; f < HW_FACTS; f++)
        if (read >> f & 1)
            add_int(k, hw_fact_name((hw_fact)f),
                    hw_fact_value(s->known ? &s->facts : NULL, s->opt->isa, (hw_fact)f));
}

static void spot_key(const tun_session *s, const tun_job *j, tun_spot *p)
{
    tun_key *k = &p->key;
    tun_key_init(k);
    tun_key_add(k, "problem", j->problem);
    for (uint32_t i = 0; i < p->shape.n_sym; i++)
        add_int(k, "size", p->point->sym[i]);
    add_int(k, "threads", p->point->threads);
    add_int(k, "isa", s->opt->isa);
    tun_key_mark_identity(k);
    tun_key_add(k, "template", j->templ->name);
    add_origin(s, k, j->templ);
    tun_key_add(k, "cpu", s->hw.cpu);
    add_int(k, "cores", s->hw.cores);
    add_facts(s, k, j->item->problem);
    tun_key_add(k, "model", TUN_MODEL);
    tun_key_add(k, "search", s->opt->mode == TUN_FULL ? "full" : "quick");
    tun_key_add(k, "strategy", s->opt->strategy ? s->opt->strategy : "bandit");
    tun_key_add(k, "variants hook",
                s->opt->static_rule ? "static rule"
                : s->opt->variants  ? s->opt->variants_name ? s->opt->variants_name : "?"
                                    : "");
    tun_key_add(k, "class", s->opt->deterministic ? "bit-stable only" : "any");
    tun_key_add(k, "measurement", TUN_POLICY);
    add_int(k, "buckets", FMT_BUCKET_VERSION);
}

rtx_status tun_book_keys(tun_session *s, tun_job *j, rtx_err *err)
{
    for (uint32_t i = 0; i < j->n_spots; i++) {
        spot_key(s, j, &j->spots[i]);
        TRY(base_buf_ok(&j->spots[i].key.text, err));
    }
    return RTX_OK;
}

static void cand_key(const tun_session *s, const tun_job *j, const tun_cand *c, tun_key *k)
{
    tun_key_init(k);
    tun_key_add(k, "problem", j->problem);
    add_sha(k, "template", c->variant.templ->sha256);
    tun_key_add(k, "params", c->params);
    add_int(k, "isa", s->opt->isa);
    tun_key_mark_identity(k);
    add_origin(s, k, c->variant.templ);
}

/* ---- code and rejections ---- */

uint8_t *tun_blob_keep(tun_session *s, const void *bytes, size_t n)
{
    if (s->n_blobs == s->cap_blobs) {
        uint32_t cap = MAX(s->cap_blobs * 2, 32);
        tun_blob *grown = base_realloc(BASE_TAG_TUNE, s->blobs, cap * sizeof *grown);
        if (!grown)
            return NULL;
        s->blobs = grown;
        s->cap_blobs = cap;
    }
    uint8_t *copy = base_alloc(BASE_TAG_TUNE, n);
    if (!copy)
        return NULL;
    memcpy(copy, bytes, n);
    s->blobs[s->n_blobs++] = (tun_blob){copy, n};
    return copy;
}

bool tun_book_bin_get(tun_session *s, tun_job *j, tun_cand *c)
{
    tun_key k;
    cand_key(s, j, c, &k);
    AUTO_FREE char *data = NULL;
    size_t bytes = 0;
    bool hit = tun_cache_get(&s->cache, TUN_BIN, &k, &data, &bytes, NULL, 0);
    tun_key_done(&k);
    if (!hit)
        return false;
    base_reader r = base_reader_of(data, bytes);
    tun_code code = {.plan_entry = base_reader_u32(&r), .run_entry = base_reader_u32(&r)};
    uint64_t error_bits = base_reader_u64(&r), n = base_reader_u64(&r);
    const uint8_t *blob = base_reader_bytes(&r, n);
    size_t text = base_reader_left(&r);
    if (r.failed || code.plan_entry >= n || code.run_entry >= n)
        return false;
    code.bytes = tun_blob_keep(s, blob, n);
    code.n_bytes = n;
    char *source = base_alloc(BASE_TAG_TUNE, text + 1);
    if (!code.bytes || !source) {
        base_free(source);
        return false;
    }
    memcpy(source, r.at, text);
    source[text] = 0;
    memcpy(code.sha256, base_sha256_of(code.bytes, n).b, 32);
    memcpy(&c->error, &error_bits, 8);
    base_free(c->source);
    c->code = code;
    c->source = source;
    c->sealed = true;
    return true;
}

void tun_book_bin_put(tun_session *s, tun_job *j, const tun_cand *c)
{
    tun_key k;
    AUTO_BUF base_buf b;
    base_buf_init(&b, BASE_TAG_TUNE, SIZE_MAX);
    uint64_t error_bits;
    memcpy(&error_bits, &c->error, 8);
    base_buf_u32(&b, c->code.plan_entry);
    base_buf_u32(&b, c->code.run_entry);
    base_buf_u64(&b, error_bits);
    base_buf_u64(&b, c->code.n_bytes);
    base_buf_put(&b, c->code.bytes, c->code.n_bytes);
    base_buf_puts(&b, c->source ? c->source : "");
    cand_key(s, j, c, &k);
    if (base_buf_ok(&b, NULL) == RTX_OK)
        (void)tun_cache_put(&s->cache, TUN_BIN, &k, b.data, b.len, &s->origin);
    tun_key_done(&k);
}

bool tun_book_bad_get(tun_session *s, tun_job *j, tun_cand *c)
{
    tun_key k;
    cand_key(s, j, c, &k);
    AUTO_FREE char *data = NULL;
    size_t bytes = 0;
    bool hit = tun_cache_get(&s->cache, TUN_BAD_KIND, &k, &data, &bytes, NULL, 0);
    tun_key_done(&k);
    if (hit) {
        char *end;
        c->why.code = (rtx_status)strtol(data, &end, 10);
        snprintf(c->why.text, sizeof c->why.text, "%s", *end == ' ' ? end + 1 : end);
    }
    return hit;
}

static uint32_t known_point(const tun_repro *r, const tun_point *p)
{
    for (uint32_t i = 0; i < r->n_points; i++)
        if (memcmp(r->point[i].sym, p->sym, sizeof p->sym) == 0)
            return i;
    return r->n_points;
}

/* The file from which the rejection can be had again. */
static bool put_repro(tun_session *s, const tun_job *j, const tun_cand *c, const tun_key *k,
                      char *out_name)
{
    tun_repro r = {.problem = j->item->problem, .variant = c->variant, .isa = s->opt->isa};
    int threads = 1;
    for (uint32_t i = 0; i < j->item->n_points; i++) {
        uint32_t at = known_point(&r, &j->item->points[i]);
        threads = MAX(threads, j->item->points[i].threads);
        if (at == r.n_points && at < TUN_REPRO_POINTS)
            r.point[r.n_points++] = j->item->points[i];
    }
    r.point[0].threads = threads;
    AUTO_BUF base_buf text;
    base_buf_init(&text, BASE_TAG_TUNE, (size_t)16 << 20);
    return tun_repro_print(&r, &text, NULL) == RTX_OK &&
           tun_cache_put_repro(&s->cache, TUN_BAD_KIND, k, &text, &s->origin, out_name);
}

/* Trouble of this machine (memory, the disk, no time left) is no verdict. Where the machine may have been the reason (INVALID:
 * samples that others spoilt; COMPILE: a compiler also fails for lack of memory or disk) a repro file is left, but no entry. */
void tun_book_bad_put(tun_session *s, tun_job *j, tun_cand *c)
{
    if (c->why.code == RTX_NOMEM || c->why.code == RTX_IO || c->why.code == RTX_CANCELLED)
        return;
    char name[33], text[480];
    tun_key k;
    cand_key(s, j, c, &k);
    if (put_repro(s, j, c, &k, name)) {
        size_t n = MIN(strlen(c->why.text), sizeof c->why.text - sizeof name - 16);
        snprintf(c->why.text + n, sizeof c->why.text - n, " (repro %s)", name);
    }
    snprintf(text, sizeof text, "%d %s", (int)c->why.code, c->why.text);
    if (c->why.code != RTX_INVALID && c->why.code != RTX_COMPILE)
        (void)tun_cache_put(&s->cache, TUN_BAD_KIND, &k, text, strlen(text), &s->origin);
    tun_key_done(&k);
}

/* ---- picks ---- */

void tun_book_store(tun_session *s, tun_spot *p)
{
    char text[400];
    snprintf(text, sizeof text, "%d %.17g %.17g %s", p->ways, p->ns, p->base_ns, p->params);
    if (!p->evidence)
        return;
    (void)tun_cache_put(&s->cache, TUN_MEAS, &p->key, p->evidence, strlen(p->evidence), &s->origin);
    (void)tun_cache_put(&s->cache, TUN_PLAN, &p->key, text, strlen(text), &s->origin);
}

static uint32_t variant_index(const tun_job *j, const char *params)
{
    for (uint32_t v = 0; v < j->space.n; v++)
        if (strcmp(j->cands[v].params, params) == 0)
            return v;
    return FMT_NONE;
}

static bool parse_plan(const char *text, tun_spot *p)
{
    char *at, *end;
    long ways = strtol(text, &at, 10);
    double ns = strtod(at, &end), base_ns = strtod(end, &at);
    if (ways < 1 || ways > BASE_POOL_MAX || !(ns > 0) || *at != ' ' ||
        strlen(at + 1) >= sizeof p->params)
        return false;
    p->ways = (int)ways;
    p->ns = ns;
    p->base_ns = base_ns;
    snprintf(p->params, sizeof p->params, "%s", at + 1);
    return true;
}

bool tun_book_load(tun_session *s, tun_spot *p)
{
    AUTO_FREE char *plan = NULL;
    AUTO_FREE char *meas = NULL;
    size_t n;
    if (!tun_cache_get(&s->cache, TUN_PLAN, &p->key, &plan, &n, p->cache, sizeof p->cache))
        return false;
    if (!parse_plan(plan, p) || !tun_cache_get(&s->cache, TUN_MEAS, &p->key, &meas, &n, NULL, 0)) {
        snprintf(p->cache, sizeof p->cache, "miss: its evidence is gone");
        return false;
    }
    base_free(p->evidence);
    p->evidence = TAKE(meas);
    return true;
}

bool tun_book_code(tun_session *s, tun_spot *p)
{
    uint32_t v = variant_index(p->job, p->params);
    tun_cand *c = v == FMT_NONE ? NULL : &p->job->cands[v];
    if (!c || (!c->sealed && !tun_book_bin_get(s, p->job, c))) {
        snprintf(p->cache, sizeof p->cache,
                 c ? "miss: its code is gone" : "miss: its variant is no more");
        return false;
    }
    p->winner = v;
    return true;
}

/* ---- evidence ---- */

static void put_text(base_buf *b, const char *text)
{
    base_buf_put(b, "\"", 1);
    for (const unsigned char *c = (const unsigned char *)text; *c; c++)
        if (*c == '"' || *c == '\\')
            base_buf_printf(b, "\\%c", *c);
        else if (*c < ' ')
            base_buf_printf(b, "\\u%04x", *c);
        else
            base_buf_put(b, c, 1);
    base_buf_put(b, "\"", 1);
}

static void put_params(base_buf *b, const tun_job *j, const syn_variant *v)
{
    base_buf_puts(b, "{");
    if (v->templ != j->templ)
        base_buf_printf(b, "\"file\":\"%s\"%s", v->templ->file, v->templ->n_params ? "," : "");
    for (uint32_t i = 0; i < v->templ->n_params; i++)
        base_buf_printf(b, "%s\"%s\":%lld", i ? "," : "", v->templ->params[i].name,
                        (long long)v->value[i]);
    base_buf_puts(b, "}");
}

static void put_verdict(base_buf *b, const tun_spot *p, uint32_t v, double ns)
{
    const tun_cand *c = &p->job->cands[v];
    char text[520];
    uint32_t rounds, faster;
    if (v == p->winner)
        snprintf(text, sizeof text, "winner");
    else if (p->job->state[v] == TUN_BAD && c->why.code == RTX_CANCELLED)
        snprintf(text, sizeof text, "not timed: %s", c->why.text);
    else if (p->job->state[v] == TUN_BAD)
        snprintf(text, sizeof text, "rejected: %s", c->why.text);
    else if (ns > 0 && ns <= p->ns && !tun_spot_sure(p, v, &rounds, &faster))
        snprintf(text, sizeof text,
                 "unsure: %.1f%% faster, but beats the default in %u of %u rounds only",
                 100 * (1 - ns / p->ns), faster, rounds);
    else if (ns > 0 && ns <= p->ns)
        snprintf(text, sizeof text, "within tie band (%.1f%% faster), later in order",
                 100 * (1 - ns / p->ns));
    else if (ns > 0 && ns <= p->ns * (1 + TUN_TIE))
        snprintf(text, sizeof text, "within tie band (%.1f%% slower)", 100 * (ns / p->ns - 1));
    else if (ns > 0)
        snprintf(text, sizeof text, "slower: %.2fx", ns / p->ns);
    else if (p->job->state[v] == TUN_PRUNED)
        snprintf(text, sizeof text, "pruned: predicted %.1fx", p->job->least[v]);
    else if (p->predicted && p->predicted[v] > 0)
        snprintf(text, sizeof text, "pruned: predicted %.1fx from the next smaller size",
                 p->predicted[v]);
    else
        snprintf(text, sizeof text, "not timed: the budget ended");
    put_text(b, text);
}

rtx_status tun_book_candidates(const tun_spot *p, char **out, rtx_err *err)
{
    const tun_job *j = p->job;
    AUTO_BUF base_buf b;
    base_buf_init(&b, BASE_TAG_TUNE, SIZE_MAX);
    base_buf_puts(&b, "[");
    for (uint32_t v = 0, n = 0; v < j->space.n; v++) {
        const tun_cand *c = &j->cands[v];
        if (j->state[v] == TUN_UNSEEN || (j->state[v] == TUN_ASKED && v != p->winner))
            continue;
        double ns = tun_spot_ns(p, v, NULL);
        base_buf_puts(&b, n++ ? ",{\"params\":" : "{\"params\":");
        put_params(&b, j, &c->variant);
        base_buf_puts(&b, ",\"verdict\":");
        put_verdict(&b, p, v, ns);
        if (ns > 0 && j->state[v] == TUN_GOOD)
            base_buf_printf(&b, ",\"ns\":%.1f", ns);
        if (c->error >= 0 && j->state[v] == TUN_GOOD)
            base_buf_printf(&b, ",\"error\":%.3g", c->error);
        base_buf_puts(&b, "}");
    }
    base_buf_puts(&b, "]");
    TRY(base_buf_ok(&b, err));
    TRY_ALLOC(*out = base_buf_take(&b, NULL), err);
    return RTX_OK;
}

rtx_status tun_book_evidence(const tun_job *j, char **out, rtx_err *err)
{
    AUTO_BUF base_buf b;
    base_buf_init(&b, BASE_TAG_TUNE, SIZE_MAX);
    base_buf_puts(&b, "{\"problem\":");
    put_text(&b, j->problem);
    base_buf_puts(&b, ",\"template\":");
    put_text(&b, j->templ->name);
    base_buf_puts(&b, ",\"points\":[");
    for (uint32_t i = 0; i < j->n_spots; i++) {
        const tun_spot *p = &j->spots[i];
        base_buf_puts(&b, i ? ",{\"sizes\":[" : "{\"sizes\":[");
        for (uint32_t k = 0; k < p->shape.n_sym; k++)
            base_buf_printf(&b, "%s%lld", k ? "," : "", (long long)p->point->sym[k]);
        base_buf_printf(&b, "],\"threads\":%d,\"ways\":%d,\"cache\":", p->point->threads, p->ways);
        put_text(&b, p->hit ? "hit" : p->cache);
        if (p->ns > 0)
            base_buf_printf(&b, ",\"ns\":%.1f,\"default_ns\":%.1f", p->ns, p->base_ns);
        base_buf_puts(&b, ",\"candidates\":");
        base_buf_puts(&b, p->evidence ? p->evidence : "[{\"params\":{},\"verdict\":\"winner\"}]");
        if (!p->evidence && j->why.text[0]) {
            base_buf_puts(&b, ",\"note\":");
            put_text(&b, j->why.text);
        }
        base_buf_puts(&b, "}");
    }
    base_buf_puts(&b, "]}");
    TRY(base_buf_ok(&b, err));
    TRY_ALLOC(*out = base_buf_take(&b, NULL), err);
    return RTX_OK;
}
