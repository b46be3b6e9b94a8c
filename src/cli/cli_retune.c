/* rtx tune BUNDLE: a bundle holds its problems, sizes and constants, so it can be tuned again without its model.
 *   layer   top
 *   kept    the precompiled plan, constants, graph and ports, byte for byte; new are kernels, rows, evidence and the manifest's
 *           facts about where it was tuned */
#include "cli.h"
#include "dev_cpu.h"
#include "pipe_api.h"
#include "pipe_seal.h"

typedef struct retune {
    fmt_bundle from, twin; /* the same file twice: the plan of `twin` gets the new rows */
    json_t *manifest;
    pipe_buckets buckets;
    pipe_options o;
    lower_result low;
    pipe_tuned tuned;
    seal seal;
    pipe_report report;
} retune;

static void retune_done(retune *r)
{
    for (uint32_t i = 0; r->low.slots && i < r->low.n_slots; i++)
        syn_problem_free(r->low.slots[i].problem);
    base_free(r->low.slots);
    pipe_tuned_done(&r->tuned);
    seal_done(&r->seal);
    json_decref(r->manifest);
    fmt_bundle_close(&r->from);
    fmt_bundle_close(&r->twin);
}

/* ---- what the manifest says ---- */

static rtx_status read_counts(retune *r, rtx_err *err)
{
    json_t *threads = json_object_get(r->manifest, "threads"),
           *buckets = json_object_get(r->manifest, "buckets"), *sizes;
    const char *name;
    for (size_t i = 0; r->o.n_threads < PIPE_VALUES_MAX && i < json_array_size(threads); i++)
        r->o.threads[r->o.n_threads++] = (int)json_integer_value(json_array_get(threads, i));
    json_object_foreach(buckets, name, sizes)
    {
        pipe_buckets *b = &r->buckets;
        uint32_t sym = fmt_sym_find(r->twin.plan[0]->dims, name, strlen(name));
        if (sym == UINT32_MAX || b->n_sym == COUNT_OF(b->sym))
            continue;
        b->sym[b->n_sym] = sym;
        for (size_t i = 0; i < json_array_size(sizes) && i < PIPE_VALUES_MAX; i++)
            b->size[b->n_sym][b->n_size[b->n_sym]++] = json_integer_value(json_array_get(sizes, i));
        if (b->n_size[b->n_sym] > 0)
            b->n_sym++;
    }
    return r->o.n_threads > 0
               ? RTX_OK
               : FAIL(err, CORRUPT, "the manifest names no thread counts; compile the model again");
}

static rtx_status change_counts(retune *r, const pipe_options *given, rtx_err *err)
{
    if (given->n_threads > 0) {
        memcpy(r->o.threads, given->threads, sizeof r->o.threads);
        r->o.n_threads = given->n_threads;
    }
    for (int i = 0; i < given->n_buckets; i++) {
        const pipe_sizes *s = &given->buckets[i];
        uint32_t sym = fmt_sym_find(r->twin.plan[0]->dims, s->name, strlen(s->name)), j = 0;
        while (j < r->buckets.n_sym && r->buckets.sym[j] != sym)
            j++;
        if (sym == UINT32_MAX || j == r->buckets.n_sym)
            return FAIL(
                err, INVALID,
                "--bucket names %s, which is no free size of the bundle; `rtx inspect` lists them",
                s->name);
        const fmt_sym *range = fmt_sym_get(r->twin.plan[0]->dims, sym);
        for (int k = 0; k < s->n; k++)
            if (s->value[k] < range->lo || s->value[k] > range->hi)
                return FAIL(err, INVALID, "--bucket %s=%lld lies outside its range, %lld to %lld",
                            s->name, (long long)s->value[k], (long long)range->lo,
                            (long long)range->hi);
        memcpy(r->buckets.size[j], s->value, sizeof r->buckets.size[j]);
        r->buckets.n_size[j] = s->n;
    }
    return RTX_OK;
}

/* ---- problems and their sizes ---- */

static rtx_status read_slots(retune *r, rtx_err *err)
{
    fmt_plan *p = r->twin.plan[0];
    r->low.plan = p;
    p->n_rows = p->n_kernels = 0;
    TRY(fmt_plan_trim(p, err));
    TRY_ALLOC(r->low.slots = base_zalloc_array(BASE_TAG_CLI, p->n_slots + 1, sizeof *r->low.slots),
              err);
    r->low.n_slots = p->n_slots;
    for (uint32_t i = 0; i < p->n_slots; i++) {
        const char *text = fmt_str_get(p, p->slots[i].problem);
        TRY(syn_problem_parse(text, strlen(text), &r->low.slots[i].problem, err));
        p->slots[i].n_rows = 0;
    }
    for (uint32_t i = 0; i < p->n_steps; i++) {
        const fmt_step *st = &p->steps[i];
        lower_slot *s = &r->low.slots[st->slot];
        if (s->uses++ > 0)
            continue;
        s->name = st->name;
        s->n_sym = MIN(fmt_sym_count(s->problem->dims), SYN_SYMS_MAX);
        if (s->n_sym > st->n_args)
            return FAIL(err, CORRUPT, "step %u has fewer arguments than its problem", i);
        for (uint32_t k = 0; k < s->n_sym; k++)
            s->sym[k] = p->args[st->arg + k];
    }
    return RTX_OK;
}

/* ---- writing ---- */

/* The precompiled plan is always last. Its code moves, as the section is written anew. */
static rtx_status keep_ready(retune *r, rtx_err *err)
{
    fmt_plan *p = r->from.plan[r->from.n_plans - 1];
    for (uint32_t i = 0; i < p->n_kernels; i++) {
        fmt_kernel *k = &p->kernels[i];
        uint32_t same = 0;
        while (same < i &&
               memcmp(p->kernels[same].code_hash, k->code_hash, sizeof k->code_hash) != 0)
            same++;
        if (same < i) {
            k->code_offset = p->kernels[same].code_offset;
            continue;
        }
        base_buf_align(&r->seal.code, 64);
        uint64_t at = r->seal.code.len;
        base_buf_put(&r->seal.code, p->code + k->code_offset, k->code_bytes);
        k->code_offset = at;
    }
    r->seal.plans[r->seal.n_plans++] = p;
    r->report.n_kernels_ready = p->n_kernels;
    return base_buf_ok(&r->seal.code, err);
}

static void update_manifest(retune *r)
{
    json_t *threads = json_array(), *buckets = json_object();
    for (int i = 0; i < r->o.n_threads; i++)
        json_array_append_new(threads, json_integer(r->o.threads[i]));
    for (uint32_t j = 0; j < r->buckets.n_sym; j++) {
        json_t *sizes = json_array();
        for (int i = 0; i < r->buckets.n_size[j]; i++)
            json_array_append_new(sizes, json_integer(r->buckets.size[j][i]));
        json_object_set_new(buckets, fmt_sym_get(r->low.plan->dims, r->buckets.sym[j])->name,
                            sizes);
    }
    json_object_set_new(r->manifest, "threads", threads);
    json_object_set_new(r->manifest, "buckets", buckets);
    json_object_set_new(r->manifest, "tune",
                        json_string(r->o.tune == PIPE_FULL ? "full" : "quick"));
    json_object_set_new(r->manifest, "isa", json_string(dev_isa_name(r->o.isa)));
    json_object_set_new(r->manifest, "tuned_for", json_string(dev_cpu_get()->name));
    AUTO_BUF base_buf facts;
    base_buf_init(&facts, BASE_TAG_CLI, 65536);
    dev_cpu_facts(&facts);
    json_t *built = facts.data ? json_loads(facts.data, 0, NULL) : NULL;
    if (built != NULL)
        json_object_set(r->manifest, "built", built);
    json_decref(built);
}

static int put_chunk(const char *data, size_t n, void *buf)
{
    base_buf_put(buf, data, n);
    return 0;
}

/* New kernels; the cut is the bundle's, and so are the choices that led to it. */
static json_t *evidence_json(const retune *r)
{
    fmt_span had = r->from.section[FMT_SEC_EVIDENCE];
    json_t *old = json_loadb(had.data, had.bytes, 0, NULL),
           *all = json_pack("{s:O, s:O*}", "kernels", r->seal.evidence, "fusion",
                            json_object_get(old, "fusion"));
    json_decref(old);
    return all;
}

static rtx_status write_bundle(retune *r, const char *out, rtx_err *err)
{
    AUTO_BUF base_buf manifest, evidence, graph;
    base_buf_init(&manifest, BASE_TAG_CLI, (size_t)1 << 26);
    base_buf_init(&evidence, BASE_TAG_CLI, (size_t)1 << 30);
    base_buf_init(&graph, BASE_TAG_CLI, (size_t)1 << 30);
    update_manifest(r);
    json_dump_callback(r->manifest, put_chunk, &manifest, JSON_COMPACT | JSON_SORT_KEYS);
    TRY(pipe_json_text(evidence_json(r), JSON_COMPACT, &evidence, err));
    base_buf_put(&graph, r->from.section[FMT_SEC_GRAPH].data, r->from.section[FMT_SEC_GRAPH].bytes);
    base_buf_puts(&graph, "");
    TRY(base_buf_ok(&manifest, err));
    TRY(base_buf_ok(&evidence, err));
    TRY(base_buf_ok(&graph, err));
    TRY(base_buf_ok(&r->seal.code, err));
    fmt_span consts = r->from.section[FMT_SEC_CONSTS];
    fmt_plan *plans[2] = {r->low.plan, r->from.plan[r->from.n_plans - 1]};
    for (size_t i = 0; i < COUNT_OF(plans); i++) {
        plans[i]->consts_bytes = consts.bytes;
        plans[i]->code_bytes = r->seal.code.len;
    }
    r->report.const_bytes = consts.bytes;
    r->report.code_bytes = r->seal.code.len;
    return fmt_bundle_write(out, (const fmt_plan *const *)r->seal.plans, r->seal.n_plans,
                            (fmt_pieces){&consts, 1},
                            (fmt_span){r->seal.code.data, r->seal.code.len}, manifest.data,
                            graph.data ? graph.data : "", evidence.data, err);
}

static rtx_status retune_all(retune *r, const char *path, const pipe_options *given,
                             const char *out, rtx_err *err)
{
    TRY(fmt_bundle_open(path, base_cpu_count(), &r->from, err));
    TRY(fmt_bundle_open(path, base_cpu_count(), &r->twin, err));
    r->manifest = json_loadb(r->from.section[FMT_SEC_MANIFEST].data,
                             r->from.section[FMT_SEC_MANIFEST].bytes, 0, NULL);
    if (r->manifest == NULL)
        return FAIL(err, CORRUPT, "%s: the manifest is no JSON", path);
    if (r->from.n_plans < 2)
        return FAIL(err, UNSUPPORTED,
                    "%s was compiled without tuning and holds precompiled kernels alone, which are "
                    "the same everywhere; tune the model instead: rtx tune MODEL",
                    path);
    TRY(dev_isa_allowed(&r->o.isa, err));
    TRY(read_counts(r, err));
    TRY(change_counts(r, given, err));
    TRY(read_slots(r, err));
    r->o.redo = true;
    r->o.progress = cli_progress;
    TRY(pipe_tune_slots(&r->low, &r->buckets, &r->o, &r->tuned, &r->report.tuning, err));
    TRY(seal_init(&r->seal, NULL, &r->o, &r->buckets, err));
    TRY(seal_tuned(&r->seal, &r->low, r->tuned.items, &r->report, err));
    TRY(keep_ready(r, err));
    return write_bundle(r, out, err);
}

rtx_status cli_retune(const pipe_options *o, const char *in, const char *out, json_t **out_report,
                      rtx_err *err)
{
    if (o->n_shapes > 0 || o->n_bounds > 0 || o->isa != 0)
        return cli_usage(err, "--shape, --bound and --isa are fixed when a bundle is compiled; "
                              "give the model instead");
    retune *r = base_zalloc(BASE_TAG_CLI, sizeof *r);
    TRY_ALLOC(r, err);
    uint64_t t = base_now_ns();
    json_t *warnings = json_array();
    r->o.tune = o->tune;
    r->o.budget_s = o->budget_s;
    r->o.cache = o->cache;
    r->o.deterministic = o->deterministic;
    cli_warnings(warnings);
    rtx_status s = retune_all(r, in, o, out, err);
    cli_warnings(NULL);
    r->report.total_s = r->report.tune_s = (double)(base_now_ns() - t) * 1e-9;
    if (s == RTX_OK && (*out_report = pipe_report_object(&r->report)) == NULL)
        s = FAIL(err, NOMEM, "out of memory");
    if (s == RTX_OK)
        json_object_set(*out_report, "warnings", warnings);
    json_decref(warnings);
    retune_done(r);
    base_free(r);
    return s;
}
