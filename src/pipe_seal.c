/* Kernels and evidence joined to the plans. Blobs are stored once however many kernels share them. */
#include "pipe_seal.h"
#include "dev_cpu.h"
#include "rtx/run.h"
#include <stdio.h>
#include <stdlib.h>

rtx_status seal_init(seal *s, const ir_graph *g, const pipe_options *o, const pipe_buckets *b,
                     rtx_err *err)
{
    memset(s, 0, sizeof *s);
    s->graph = g;
    s->opt = o;
    s->buckets = b;
    base_buf_init(&s->code, BASE_TAG_FORMAT, (size_t)1 << 30);
    TRY_ALLOC(s->evidence = json_array(), err);
    return RTX_OK;
}

void seal_done(seal *s)
{
    base_buf_done(&s->code);
    json_decref(s->evidence);
    memset(s, 0, sizeof *s);
}

/* Place of a blob in the code section, appended if its bytes are new. */
static uint64_t place_code(seal *s, const fmt_plan *p, const uint8_t *code, size_t bytes,
                           const uint8_t hash[32])
{
    for (uint32_t i = 0; i < p->n_kernels; i++)
        if (memcmp(p->kernels[i].code_hash, hash, 32) == 0 && p->kernels[i].code_bytes == bytes)
            return p->kernels[i].code_offset;
    base_buf_align(&s->code, 64);
    uint64_t at = s->code.len;
    base_buf_put(&s->code, code, bytes);
    return at;
}

static uint32_t add_kernel(seal *s, fmt_plan *p, fmt_kernel k, const uint8_t *code, size_t bytes)
{
    base_sha256_sum h = base_sha256_of(code, bytes);
    memcpy(k.code_hash, h.b, 32);
    k.code_bytes = bytes;
    k.code_offset = place_code(s, p, code, bytes, h.b);
    return fmt_plan_add_kernel(p, &k);
}

/* ---- tuned ---- */

typedef struct row_src {
    fmt_row row;
    uint32_t point;
} row_src;

static int by_row(const void *a, const void *b)
{
    const fmt_row *x = &((const row_src *)a)->row, *y = &((const row_src *)b)->row;
    if (x->threads != y->threads)
        return x->threads < y->threads ? -1 : 1;
    for (int i = 0; i < 2; i++)
        if (x->size[i] != y->size[i])
            return x->size[i] < y->size[i] ? -1 : 1;
    return 0;
}

static rtx_status add_tuned_kernels(seal *s, lower_result *low, uint32_t slot, const tun_item *item,
                                    uint32_t *first, rtx_err *err)
{
    AUTO_BUF base_buf params;
    base_buf_init(&params, BASE_TAG_FORMAT, 4096);
    char name[64];
    *first = low->plan->n_kernels;
    for (uint32_t i = 0; i < item->result.n_kernels; i++) {
        const tun_kernel *k = &item->result.kernels[i];
        params.len = 0;
        syn_variant_print(&k->variant, &params);
        snprintf(name, sizeof name, "%s.k%u.%u", k->variant.templ->name, slot, i);
        fmt_kernel rec = {.name = fmt_plan_str(low->plan, name),
                          .templ = fmt_plan_str(low->plan, k->variant.templ->name),
                          .params = fmt_plan_str(low->plan, params.data ? params.data : ""),
                          .source = fmt_plan_str(low->plan, k->source ? k->source : ""),
                          .flags = fmt_plan_str(low->plan, syn_flags(s->opt->isa)),
                          .isa = (uint8_t)s->opt->isa,
                          .origin = FMT_TUNED,
                          .plan_entry = k->plan_entry,
                          .run_entry = k->run_entry};
        add_kernel(s, low->plan, rec, k->code, k->code_bytes);
    }
    TRY(base_buf_ok(&params, err));
    return fmt_plan_ok(low->plan, err);
}

static rtx_status add_rows(seal *s, lower_result *low, uint32_t slot, const tun_item *item,
                           uint32_t first_kernel, rtx_err *err)
{
    AUTO_FREE row_src *rows = base_zalloc_array(BASE_TAG_FORMAT, item->n_points + 1, sizeof *rows);
    if (rows == NULL)
        return FAIL(err, NOMEM, "out of memory");
    fmt_slot *fs = &low->plan->slots[slot];
    for (uint32_t i = 0; i < item->n_points; i++) {
        const tun_pick *p = &item->result.picks[i];
        rows[i].point = i;
        rows[i].row = (fmt_row){.isa = (uint8_t)s->opt->isa,
                                .threads = (uint16_t)item->points[i].threads,
                                .ways = (uint16_t)p->ways,
                                .kernel = first_kernel + p->kernel};
        for (int m = 0; m < 2; m++)
            rows[i].row.size[m] = fs->measure[m] >= 0 && fs->measure[m] < SYN_SYMS_MAX
                                      ? item->points[i].sym[fs->measure[m]]
                                      : 0;
    }
    qsort(rows, item->n_points, sizeof *rows, by_row);
    fs->row = low->plan->n_rows;
    for (uint32_t i = 0; i < item->n_points; i++)
        if (i == 0 || by_row(&rows[i - 1], &rows[i]) != 0) {
            fmt_plan_add_row(low->plan, &rows[i].row);
            fs->n_rows++;
        }
    return fmt_plan_ok(low->plan, err);
}

/* Why fewer than eight candidates were timed; NULL if they were not, or nothing was measured. */
static const char *few_reason(const json_t *candidates, const char *templ)
{
    const json_t *c;
    size_t i, timed = 0, rejected = 0, late = 0;
    json_array_foreach((json_t *)candidates, i, c)
    {
        const char *verdict = json_string_value(json_object_get(c, "verdict"));
        timed += json_object_get(c, "ns") != NULL;
        rejected += verdict && strncmp(verdict, "rejected", 8) == 0;
        late += verdict && strncmp(verdict, "not timed", 9) == 0;
    }
    if (timed == 0 || timed >= 8)
        return NULL;
    if (strcmp(templ, "cpu/gemm") != 0 && strcmp(templ, "cpu/attention") != 0)
        return "only products and attention are searched widely";
    return late ? "the budget ended" : rejected ? "others were rejected" : "no more were offered";
}

static bool streams_weights(const syn_problem *p)
{
    bool any = false;
    for (uint32_t k = 0; k < p->n_in; k++)
        any |= p->packed[k];
    return any;
}

/* One record a tuned point, in the form that `rtx explain --json` promises. */
static rtx_status add_evidence(seal *s, const lower_result *low, uint32_t slot,
                               const tun_item *item, uint32_t first_kernel, rtx_err *err)
{
    json_error_t je;
    json_t *ev = json_loads(item->result.evidence ? item->result.evidence : "{}", 0, &je),
           *points = json_object_get(ev, "points");
    rtx_status st =
        ev ? RTX_OK : FAIL(err, INTERNAL, "evidence of slot %u is not JSON: %s", slot, je.text);
    for (uint32_t i = 0; st == RTX_OK && i < item->n_points; i++) {
        const tun_pick *p = &item->result.picks[i];
        const fmt_kernel *k = &low->plan->kernels[first_kernel + p->kernel];
        json_t *e = json_object();
        json_object_set_new(e, "name", json_sprintf("%s@%u", fmt_str_get(low->plan, k->name), i));
        json_object_set_new(e, "step", json_string(fmt_str_get(low->plan, low->slots[slot].name)));
        json_object_set_new(e, "uses", json_integer(low->slots[slot].uses));
        json_object_set_new(e, "template", json_string(fmt_str_get(low->plan, k->templ)));
        json_object_set_new(e, "problem",
                            json_string(fmt_str_get(low->plan, low->plan->slots[slot].problem)));
        json_object_set_new(e, "params", json_string(fmt_str_get(low->plan, k->params)));
        json_object_set_new(e, "ways", json_integer(p->ways));
        json_object_set_new(e, "ns", json_real(p->ns));
        json_object_set_new(e, "default_ns", json_real(p->default_ns));
        double flops, bytes;
        syn_cost(item->problem, item->points[i].sym, &flops, &bytes);
        json_object_set_new(e, "flops", json_real(flops));
        json_object_set_new(e, "bytes", json_real(bytes));
        double floor_ns = s->hw ? tun_floor_ns(s->hw, flops, bytes, streams_weights(item->problem),
                                               item->points[i].threads)
                                : 0;
        if (floor_ns > 0)
            json_object_set_new(e, "floor_ns", json_real(floor_ns));
        json_object_update_missing(e, json_array_get(points, i));
        const char *few =
            few_reason(json_object_get(e, "candidates"), fmt_str_get(low->plan, k->templ));
        if (few != NULL)
            json_object_set_new(e, "few", json_string(few));
        if (json_array_append_new(s->evidence, e) != 0)
            st = FAIL(err, NOMEM, "out of memory");
    }
    json_decref(ev);
    return st;
}

rtx_status seal_tuned(seal *s, lower_result *low, const tun_item *items, pipe_report *rep,
                      rtx_err *err)
{
    s->hw = &rep->tuning.hw;
    for (uint32_t i = 0; i < low->n_slots; i++) {
        uint32_t first;
        TRY(add_tuned_kernels(s, low, i, &items[i], &first, err));
        TRY(add_rows(s, low, i, &items[i], first, err));
        TRY(add_evidence(s, low, i, &items[i], first, err));
        rep->n_kernels_tuned += items[i].result.n_kernels;
        if (items[i].n_points > 0)
            rep->predicted_ns += items[i].result.picks[0].ns * low->slots[i].uses;
    }
    rep->n_slots = low->n_slots;
    s->plans[s->n_plans++] = low->plan;
    return RTX_OK;
}

/* ---- precompiled ---- */

static rtx_status ready_kernel(seal *s, lower_result *low, uint32_t slot, fmt_isa isa,
                               uint32_t *out, rtx_err *err)
{
    const syn_ready *r = NULL;
    TRY(syn_ready_lookup(low->slots[slot].problem, isa, &r, err));
    if (r == NULL)
        return FAIL(err, UNSUPPORTED, "UNSUPPORTED: no precompiled kernel for %s at v%d: %.200s",
                    fmt_str_get(low->plan, low->slots[slot].name), isa,
                    fmt_str_get(low->plan, low->plan->slots[slot].problem));
    base_sha256_sum code = base_sha256_of(r->code, r->code_bytes);
    fmt_str id = 0;
    bool taken =
        true; /* several kernels of the set may share a name: casts to different types, gather_nd by depth */
    for (uint32_t n = 1; taken; n++) {
        char name[160];
        snprintf(name, sizeof name, n > 1 ? "%s.v%d.%u" : "%s.v%d", r->name, isa, n);
        id = fmt_plan_str(low->plan, name);
        taken = false;
        for (uint32_t i = 0; i < low->plan->n_kernels && !taken; i++) {
            const fmt_kernel *k = &low->plan->kernels[i];
            taken = k->name == id;
            if (taken && memcmp(k->code_hash, code.b, sizeof code.b) == 0) {
                *out = i;
                return RTX_OK;
            }
        }
    }
    fmt_kernel rec = {.name = id,
                      .templ = fmt_plan_str(low->plan, r->templ),
                      .params = fmt_plan_str(low->plan, r->params),
                      .isa = (uint8_t)isa,
                      .origin = FMT_PRECOMPILED,
                      .plan_entry = r->plan_entry,
                      .run_entry = r->run_entry};
    *out = add_kernel(s, low->plan, rec, r->code, r->code_bytes);
    return fmt_plan_ok(low->plan, err);
}

static rtx_status ready_evidence(seal *s, const lower_result *low, uint32_t slot, uint32_t kernel,
                                 rtx_err *err)
{
    const fmt_kernel *k = &low->plan->kernels[kernel];
    json_t *e = json_pack(
        "{s:s, s:s, s:i, s:s, s:s, s:s, s:s, s:[{s:s, s:s}]}", "name",
        fmt_str_get(low->plan, k->name), "step", fmt_str_get(low->plan, low->slots[slot].name),
        "uses", (int)low->slots[slot].uses, "template", fmt_str_get(low->plan, k->templ), "problem",
        fmt_str_get(low->plan, low->plan->slots[slot].problem), "params",
        fmt_str_get(low->plan, k->params), "cache", "precompiled", "candidates", "params",
        fmt_str_get(low->plan, k->params), "verdict", "winner");
    if (e == NULL || json_array_append_new(s->evidence, e) != 0)
        return FAIL(err, NOMEM, "out of memory");
    return RTX_OK;
}

rtx_status seal_ready(seal *s, lower_result *low, pipe_report *rep, rtx_err *err)
{
    bool alone =
        s->n_plans == 0; /* nothing was tuned: this plan is the one that `explain` describes */
    for (uint32_t i = 0; i < low->n_slots; i++) {
        fmt_slot *fs = &low->plan->slots[i];
        fs->row = low->plan->n_rows;
        for (int isa = FMT_ISA_V2; isa <= FMT_ISA_V4; isa++) {
            uint32_t k = 0;
            TRY(ready_kernel(s, low, i, (fmt_isa)isa, &k, err));
            if (alone && (fmt_isa)isa == s->opt->isa)
                TRY(ready_evidence(s, low, i, k, err));
            for (int t = 1; t <= 2; t++) { /* one thread, and any number above it */
                fmt_plan_add_row(low->plan, &(fmt_row){.isa = (uint8_t)isa,
                                                       .threads = (uint16_t)t,
                                                       .ways = (uint16_t)t,
                                                       .kernel = k});
                fs->n_rows++;
            }
        }
    }
    TRY(fmt_plan_ok(low->plan, err));
    rep->n_kernels_ready = low->plan->n_kernels;
    if (alone)
        rep->n_slots = low->n_slots;
    s->plans[s->n_plans++] = low->plan;
    return RTX_OK;
}

/* ---- manifest and file ---- */

static json_t *ports_json(const fmt_plan *p, const fmt_port *ports, uint32_t n)
{
    json_t *all = json_array();
    for (uint32_t i = 0; i < n; i++) {
        json_t *shape = json_array();
        for (int k = 0; k < ports[i].rank; k++) {
            int64_t c;
            base_buf text;
            base_buf_init(&text, BASE_TAG_FORMAT, 4096);
            if (fmt_dim_is_const(p->dims, ports[i].dim[k], &c)) {
                json_array_append_new(shape, json_integer(c));
            } else {
                fmt_dim_print(p->dims, ports[i].dim[k], &text);
                json_array_append_new(shape, json_string(text.data ? text.data : ""));
            }
            bool failed = text.failed;
            base_buf_done(&text);
            if (failed) {
                json_decref(shape);
                json_decref(all);
                return NULL; /* which fails json_pack */
            }
        }
        json_array_append_new(
            all, json_pack("{s:s, s:s, s:o}", "name", fmt_str_get(p, ports[i].name), "dtype",
                           fmt_dtype_name((fmt_dtype)ports[i].dtype), "shape", shape));
    }
    return all;
}

static json_t *manifest_json(const seal *s)
{
    static const char *const tune[] = {"off", "quick", "full"};
    const fmt_plan *p = s->plans[0];
    json_t *buckets = json_object(), *threads = json_array(), *bounds = json_object();
    for (uint32_t j = 0; j < s->buckets->n_sym; j++) {
        json_t *sizes = json_array();
        const fmt_sym *sym = fmt_sym_get(s->graph->dims, s->buckets->sym[j]);
        for (int i = 0; i < s->buckets->n_size[j]; i++)
            json_array_append_new(sizes, json_integer(s->buckets->size[j][i]));
        json_object_set_new(buckets, sym->name, sizes);
        json_object_set_new(bounds, sym->name,
                            json_pack("[I, I]", (json_int_t)sym->lo, (json_int_t)sym->hi));
    }
    for (int i = 0; i < s->opt->n_threads; i++)
        json_array_append_new(threads, json_integer(s->opt->threads[i]));
    bool tuned = s->n_plans > 1;
    return json_pack("{s:i, s:s, s:o, s:o, s:o, s:o, s:o, s:s, s:s, s:s}", "format",
                     FMT_PLAN_VERSION, "rtx", rtx_version(), "inputs",
                     ports_json(p, p->inputs, p->n_inputs), "outputs",
                     ports_json(p, p->outputs, p->n_outputs), "buckets", buckets, "bounds", bounds,
                     "threads", threads, "tune", tune[tuned ? s->opt->tune : PIPE_OFF], "isa",
                     s->opt->isa == FMT_ISA_V4   ? "v4"
                     : s->opt->isa == FMT_ISA_V3 ? "v3"
                                                 : "v2",
                     "tuned_for", tuned ? dev_cpu_get()->name : "");
}

/* What tuned kernels depend on; left out of untuned files, which are then equal bytes wherever they are made. */
static rtx_status add_facts(json_t *manifest, rtx_err *err)
{
    AUTO_BUF base_buf facts;
    base_buf_init(&facts, BASE_TAG_FORMAT, 1 << 16);
    dev_cpu_facts(&facts);
    TRY(base_buf_ok(&facts, err));
    if (json_object_set_new(manifest, "built", json_loads(facts.data, 0, NULL)) != 0)
        return FAIL(err, NOMEM, "out of memory");
    return RTX_OK;
}

static int put_chunk(const char *text, size_t n, void *buf)
{
    base_buf_put(buf, text, n);
    return 0;
}

rtx_status pipe_json_text(json_t *taken, int flags, base_buf *out, rtx_err *err)
{
    bool good = taken != NULL && json_dump_callback(taken, put_chunk, out, flags) == 0;
    json_decref(taken);
    return good ? base_buf_ok(out, err) : FAIL(err, NOMEM, "out of memory");
}

rtx_status seal_write(seal *s, const lower_consts *consts, const char *path, pipe_report *rep,
                      rtx_err *err)
{
    AUTO_BUF base_buf graph, manifest, evidence;
    base_buf_init(&graph, BASE_TAG_FORMAT, (size_t)64 << 20);
    base_buf_init(&manifest, BASE_TAG_FORMAT, (size_t)64 << 20);
    base_buf_init(&evidence, BASE_TAG_FORMAT, (size_t)64 << 20);
    json_t *m = manifest_json(s);
    rtx_status st = m == NULL        ? FAIL(err, NOMEM, "out of memory")
                    : s->n_plans > 1 ? add_facts(m, err)
                                     : RTX_OK;
    if (st == RTX_OK)
        st = pipe_json_text(json_incref(m), JSON_COMPACT | JSON_SORT_KEYS, &manifest, err);
    json_decref(m);
    if (st == RTX_OK)
        st = pipe_json_text(json_pack("{s:O, s:O*}", "kernels", s->evidence, "fusion", s->fusion),
                            JSON_COMPACT, &evidence, err);
    ir_print(s->graph, "main", 0, &graph);
    fmt_pieces pieces = {0};
    for (size_t i = 0; i < s->n_plans; i++) {
        s->plans[i]->consts_bytes = consts->bytes;
        s->plans[i]->code_bytes = s->code.len;
    }
    if (st == RTX_OK)
        st = base_buf_ok(&graph, err);
    if (st == RTX_OK)
        st = base_buf_ok(&s->code, err);
    if (st == RTX_OK)
        st = lower_consts_pieces(consts, &pieces, err);
    if (st == RTX_OK)
        st = fmt_bundle_write(path, (const fmt_plan *const *)s->plans, s->n_plans, pieces,
                              (fmt_span){s->code.data, s->code.len}, manifest.data, graph.data,
                              evidence.data, err);
    rep->const_bytes = consts->bytes;
    rep->code_bytes = s->code.len;
    base_free((void *)pieces.items);
    return st;
}
