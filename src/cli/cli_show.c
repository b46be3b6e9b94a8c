/* rtx inspect, explain, info: what is in a bundle, why, and what this build and machine are.
 *   layer   top
 *   rule    a bundle that cannot run here can still be shown */
#include "cli.h"
#include "dev_cpu.h"
#include "run_verdict.h"
#include <sys/utsname.h>

const char cli_inspect_usage[] = "BUNDLE [--json]";
const char cli_inspect_text[] =
    "Check every byte of BUNDLE and show its manifest, whether it fits this machine, the kernels "
    "that "
    "would run here (tuned here or precompiled), and the size of each part.\n";
const cli_option cli_inspect_options[] = {
    {"source", 0, CLI_TEXT, false, "KERNEL", "print the C text of a tuned kernel instead"},
};
const size_t cli_inspect_n_options = COUNT_OF(cli_inspect_options);

const char cli_explain_usage[] = "BUNDLE [KERNEL] [--json]";
const char cli_explain_text[] =
    "For each kernel: the winner, its gain over the static rule, and why every other candidate "
    "lost. "
    "Then what decided where regions are cut. "
    "KERNEL selects those whose name, step or template contains it.\n";
const cli_option cli_explain_options[] = {
    {"all", 'a', CLI_FLAG, false, NULL, "list every candidate instead of counting them by reason"},
};
const size_t cli_explain_n_options = COUNT_OF(cli_explain_options);

const char cli_info_usage[] = "[--json]";
const char cli_info_text[] = "Version and commit, processor, compiler, cache, and every "
                             "environment variable that rtx reads.\n";
const cli_option cli_info_options[] = {
    {"cache", 0, CLI_TEXT, false, "DIR", "cache folder to describe"},
};
const size_t cli_info_n_options = COUNT_OF(cli_info_options);

static const char *text_of(const json_t *o, const char *key)
{
    const char *t = json_string_value(json_object_get(o, key));
    return t ? t : "";
}

/* ---- inspect ---- */

static const char *const section_name[FMT_SEC_COUNT] = {
    [FMT_SEC_MANIFEST] = "manifest", [FMT_SEC_PLAN] = "plan",   [FMT_SEC_CODE] = "code",
    [FMT_SEC_CONSTS] = "constants",  [FMT_SEC_GRAPH] = "graph", [FMT_SEC_EVIDENCE] = "evidence"};

typedef struct shown {
    fmt_bundle bundle;
    const fmt_plan *plan; /* that this machine would run */
    fmt_isa isa;
    run_verdict verdict;
    json_t *manifest;
} shown;

static void shown_done(shown *s)
{
    run_verdict_done(&s->verdict);
    json_decref(s->manifest);
    fmt_bundle_close(&s->bundle);
}

static rtx_status open_bundle(const char *path, fmt_bundle *out, rtx_err *err)
{
    cli_scratch scratch = {0};
    rtx_status s = cli_bundle_file(&path, &scratch, err);
    if (s == RTX_OK)
        s = fmt_bundle_open(path, base_cpu_count(), out, err);
    cli_scratch_done(&scratch);
    return s;
}

static rtx_status shown_open(const char *path, shown *s, rtx_err *err)
{
    memset(s, 0, sizeof *s);
    TRY(open_bundle(path, &s->bundle, err));
    AUTO_BUF base_buf facts, manifest;
    base_buf_init(&facts, BASE_TAG_CLI, 65536);
    base_buf_init(&manifest, BASE_TAG_CLI, (size_t)1 << 26);
    dev_cpu_facts(&facts);
    base_buf_put(&manifest, s->bundle.section[FMT_SEC_MANIFEST].data,
                 s->bundle.section[FMT_SEC_MANIFEST].bytes);
    TRY(base_buf_ok(&facts, err));
    TRY(base_buf_ok(&manifest, err));
    fmt_isa host;
    if (dev_isa_allowed(&host, NULL) != RTX_OK)
        host = FMT_ISA_V2;
    s->manifest = manifest.data ? json_loads(manifest.data, 0, NULL) : NULL;
    run_machine m = {host, facts.data};
    TRY(run_verdict_of(&s->bundle, manifest.data, &m, &s->verdict, err));
    s->plan = s->verdict.plan;
    s->isa = s->verdict.isa;
    return RTX_OK;
}

static json_t *kernels_json(const shown *s)
{
    json_t *all = json_array();
    const fmt_plan *p = s->plan;
    for (uint32_t i = 0; i < p->n_kernels; i++) {
        const fmt_kernel *k = &p->kernels[i];
        if (k->isa != s->isa)
            continue;
        json_array_append_new(
            all, json_pack("{s:o, s:o, s:o, s:s, s:s, s:I, s:s}", "name",
                           cli_json_text(fmt_str_get(p, k->name)), "template",
                           cli_json_text(fmt_str_get(p, k->templ)), "params",
                           cli_json_text(fmt_str_get(p, k->params)), "origin",
                           k->origin == FMT_TUNED ? "tuned" : "precompiled", "isa",
                           dev_isa_name(k->isa), "code_bytes", (json_int_t)k->code_bytes, "fit",
                           i < s->verdict.n_kernels ? run_fit_name((run_fit)s->verdict.kernel[i])
                                                    : "exact"));
    }
    return all;
}

static json_t *sections_json(const shown *s)
{
    json_t *o = json_object();
    for (int i = 1; i < FMT_SEC_COUNT; i++)
        json_object_set_new(o, section_name[i],
                            json_integer((json_int_t)s->bundle.section[i].bytes));
    json_object_set_new(o, "file", json_integer((json_int_t)s->bundle.map.bytes));
    return o;
}

static rtx_status inspect_json(const shown *s, rtx_err *err)
{
    AUTO_BUF base_buf verdict;
    base_buf_init(&verdict, BASE_TAG_CLI, (size_t)1 << 26);
    run_verdict_json(&s->verdict, &verdict);
    json_t *v = verdict.data ? json_loads(verdict.data, 0, NULL) : NULL;
    return cli_put_json(json_pack("{s:o, s:O?, s:o, s:o?, s:i, s:i, s:i}", "kernels",
                                  kernels_json(s), "manifest", s->manifest, "sections",
                                  sections_json(s), "verdict", v, "plans", (int)s->bundle.n_plans,
                                  "steps", (int)s->plan->n_steps, "problems",
                                  (int)s->plan->n_slots),
                        err);
}

/* "batch 1,8; seq 1,2,4" */
static void print_sizes(const char *title, const json_t *o, bool range)
{
    AUTO_BUF base_buf b;
    const char *name;
    json_t *list;
    base_buf_init(&b, BASE_TAG_CLI, 65536);
    json_object_foreach((json_t *)o, name, list)
    {
        base_buf_printf(&b, "%s%s", b.len ? "; " : "", name);
        for (size_t i = 0; i < json_array_size(list); i++) {
            json_int_t v = json_integer_value(json_array_get(list, i));
            if (range && i == 1 && v >= FMT_DIM_LIMIT)
                base_buf_puts(&b, " or more");
            else
                base_buf_printf(&b,
                                range && i == 1 ? " to %lld"
                                : i             ? ", %lld"
                                                : " %lld",
                                (long long)v);
        }
    }
    if (b.len > 0) {
        printf("%s\n", title);
        cli_wrap(stdout, 2, b.data);
    }
}

static void print_ports(const shown *s, const char *key)
{
    size_t i;
    json_t *port, *dim;
    printf("%s\n", key);
    json_array_foreach(json_object_get(s->manifest, key), i, port)
    {
        size_t k;
        printf("  %-24s %s[", text_of(port, "name"), text_of(port, "dtype"));
        json_array_foreach(json_object_get(port, "shape"), k, dim)
        {
            if (json_is_integer(dim))
                printf("%s%lld", k ? ", " : "", (long long)json_integer_value(dim));
            else
                printf("%s%s", k ? ", " : "", json_string_value(dim));
        }
        puts("]");
    }
}

static void print_kernels(const shown *s)
{
    const fmt_plan *p = s->plan;
    printf("kernels at %s, in %u steps of %u problems\n", dev_isa_name(s->isa), p->n_steps,
           p->n_slots);
    for (uint32_t i = 0; i < p->n_kernels; i++) {
        const fmt_kernel *k = &p->kernels[i];
        char size[16];
        if (k->isa != s->isa)
            continue;
        printf("  ");
        cli_put_name(fmt_str_get(p, k->name), 44);
        printf(" %-12s %9s%s%s\n", k->origin == FMT_TUNED ? "tuned" : "precompiled",
               cli_human((double)k->code_bytes, size),
               i < s->verdict.n_kernels && s->verdict.kernel[i] > RUN_SUPERSET ? "  " : "",
               i < s->verdict.n_kernels && s->verdict.kernel[i] > RUN_SUPERSET
                   ? run_fit_name((run_fit)s->verdict.kernel[i])
                   : "");
        if (k->params)
            cli_wrap(stdout, 6, fmt_str_get(p, k->params));
    }
}

static void inspect_text(const char *path, const shown *s)
{
    char size[16];
    cli_make_printable(s->manifest);
    const char *tuned_for = text_of(s->manifest, "tuned_for");
    printf("%s: %s, made by rtx %s\n", path, cli_human((double)s->bundle.map.bytes, size),
           text_of(s->manifest, "rtx"));
    printf("tuned: %s%s%s\n", text_of(s->manifest, "tune"), *tuned_for ? ", on " : "", tuned_for);
    printf("here: %s, %s\n", run_fit_name(s->verdict.worst), run_fit_action(s->verdict.worst));
    for (uint32_t i = 0; i < s->verdict.n_checks; i++) {
        const run_check *c = &s->verdict.checks[i];
        if (c->fit != RUN_EXACT)
            printf("  %s: built for %s, found %s: %s\n", c->field, c->built_for, c->found,
                   run_fit_name(c->fit));
    }
    print_ports(s, "inputs");
    print_ports(s, "outputs");
    print_sizes("ranges", json_object_get(s->manifest, "bounds"), true);
    print_sizes("buckets", json_object_get(s->manifest, "buckets"), false);
    print_kernels(s);
    puts("sizes");
    for (int i = 1; i < FMT_SEC_COUNT; i++)
        printf("  %-12s %10s\n", section_name[i],
               cli_human((double)s->bundle.section[i].bytes, size));
}

static rtx_status inspect_source(const cli_args *a, const shown *s, const char *name, rtx_err *err)
{
    for (uint32_t i = 0; i < s->plan->n_kernels; i++) {
        const fmt_kernel *k = &s->plan->kernels[i];
        if (strcmp(fmt_str_get(s->plan, k->name), name) != 0)
            continue;
        if (k->source == 0)
            return FAIL(err, NOT_FOUND,
                        "kernel %.100s is precompiled; its text is %s in the source tree", name,
                        fmt_str_get(s->plan, k->templ));
        const char *text = fmt_str_get(s->plan, k->source);
        return a->json ? cli_put_json(
                             json_pack("{s:o, s:o, s:o, s:o}", "name", cli_json_text(name),
                                       "template", cli_json_text(fmt_str_get(s->plan, k->templ)),
                                       "params", cli_json_text(fmt_str_get(s->plan, k->params)),
                                       "source", cli_json_text(text)),
                             err)
                       : cli_write_file("-", text, strlen(text), err);
    }
    return FAIL(err, NOT_FOUND, "the bundle has no kernel %.100s; `rtx inspect` lists them", name);
}

rtx_status cli_inspect(cli_args *a, rtx_err *err)
{
    shown s;
    rtx_status st = shown_open(a->pos[0], &s, err);
    if (st == RTX_OK && cli_text(a, "source"))
        st = inspect_source(a, &s, cli_text(a, "source"), err);
    else if (st == RTX_OK && a->json)
        st = inspect_json(&s, err);
    else if (st == RTX_OK)
        inspect_text(a->pos[0], &s);
    shown_done(&s);
    return st;
}

/* ---- explain ---- */

static void params_text(const json_t *v, base_buf *b)
{
    const char *key;
    json_t *e;
    if (json_is_string(v))
        base_buf_puts(b, json_string_value(v));
    json_object_foreach((json_t *)v, key, e)
        base_buf_printf(b, "%s%s=%g", b->len ? " " : "", key, json_number_value(e));
}

static void candidate_line(const json_t *c)
{
    AUTO_BUF base_buf b;
    base_buf_init(&b, BASE_TAG_CLI, 65536);
    double ns = json_number_value(json_object_get(c, "ns"));
    if (ns > 0)
        base_buf_printf(&b, "%.2f us ", ns * 1e-3);
    base_buf_printf(&b, "%s: ", text_of(c, "verdict"));
    params_text(json_object_get(c, "params"), &b);
    if (b.data)
        cli_wrap(stdout, 4, b.data);
}

/* Verdicts begin with a reason word or phrase; details follow a colon. */
static void count_reasons(const json_t *candidates, json_t *counts)
{
    size_t i;
    json_t *c;
    json_array_foreach((json_t *)candidates, i, c)
    {
        char reason[96];
        const char *v = text_of(c, "verdict");
        if (strcmp(v, "winner") == 0)
            continue;
        size_t n = MIN(strcspn(v, ":;(0123456789"), sizeof reason - 1);
        while (n > 1 && v[n - 1] == ' ')
            n--;
        snprintf(reason, sizeof reason, "%.*s", (int)n, v);
        json_object_set_new(counts, reason,
                            json_integer(json_integer_value(json_object_get(counts, reason)) + 1));
    }
}

static void print_floor(double floor_ns, double ns, double before_ns)
{
    if (floor_ns < 5) /* prints as 0.00 us */
        puts("  floor below 0.01 us");
    else if (floor_ns / ns >= 1.005)
        printf("  floor %.2f us, which does not bind: the operands stayed in a cache\n",
               floor_ns * 1e-3);
    else
        printf("  floor %.2f us: %.2f of its rate reached, %.2f by the static rule\n",
               floor_ns * 1e-3, floor_ns / ns, floor_ns / before_ns);
}

static void explain_one(const json_t *k, bool all)
{
    json_t *candidates = json_object_get(k, "candidates"), *c, *counts = json_object(), *n;
    size_t i;
    const char *reason;
    double ns = json_number_value(json_object_get(k, "ns")),
           before = json_number_value(json_object_get(k, "default_ns")),
           floor_ns = json_number_value(json_object_get(k, "floor_ns"));
    printf("%s  %s", text_of(k, "name"), text_of(k, "template"));
    json_array_foreach(json_object_get(k, "sizes"), i, c)
        printf("%s%lld", i ? "x" : "  at ", (long long)json_integer_value(c));
    if (json_object_get(k, "threads"))
        printf(" on %lld", (long long)json_integer_value(json_object_get(k, "threads")));
    puts("");
    if (*text_of(k, "step"))
        printf("  first used by %s (%lld uses)\n", text_of(k, "step"),
               (long long)json_integer_value(json_object_get(k, "uses")));
    AUTO_BUF base_buf b;
    base_buf_init(&b, BASE_TAG_CLI, 65536);
    params_text(json_object_get(k, "params"), &b);
    printf("  winner ");
    cli_wrap(stdout, 0, b.len ? b.data : "(no parameters)");
    if (ns > 0 && before > 0)
        printf("  %.2f us; the static rule takes %.2f us, ratio %.2f\n", ns * 1e-3, before * 1e-3,
               before / ns);
    if (ns > 0 && before > 0 && floor_ns > 0)
        print_floor(floor_ns, ns, before);
    if (json_object_get(k, "cache")) {
        char *cache = json_is_string(json_object_get(k, "cache"))
                          ? base_strdup(BASE_TAG_CLI, text_of(k, "cache"))
                          : NULL;
        if (cache)
            printf("  cache: %s\n", cache);
        base_free(cache);
    }
    count_reasons(candidates, counts);
    json_object_foreach(counts, reason, n)
        printf("  %4lld lost: %s\n", (long long)json_integer_value(n), reason);
    json_decref(counts);
    if (*text_of(k, "few"))
        cli_wrap_at(stdout, printf("  few were timed: "), 4, text_of(k, "few"));
    if (all)
        json_array_foreach(candidates, i, c) candidate_line(c);
}

/* The model may say more than all of it. */
static double percent(const json_t *o, const char *key)
{
    return 100 * MIN(json_number_value(json_object_get(o, key)), 1);
}

/* The choices about where regions are cut, with their numbers. */
static void explain_cut(const json_t *fusion)
{
    size_t i;
    json_t *f;
    if (json_array_size(fusion) > 0)
        puts("cut");
    json_array_foreach((json_t *)fusion, i, f)
    {
        double fused = json_number_value(json_object_get(f, "fused_ns")),
               split = json_number_value(json_object_get(f, "split_ns"));
        AUTO_BUF base_buf b;
        base_buf_init(&b, BASE_TAG_CLI, 65536);
        base_buf_printf(&b, "%s: %s", text_of(f, "chosen"), text_of(f, "why"));
        if (split > 0)
            base_buf_printf(&b, "; the program takes %.3f ms fused, %.3f ms split", fused * 1e-6,
                            split * 1e-6);
        else if (json_number_value(json_object_get(f, "ns")) > 0)
            base_buf_printf(&b, "; fusing saves %.1f%%, cutting at most %.1f%% of the program",
                            percent(f, "saves"), percent(f, "bound"));
        int column = printf("  %s (%lld uses)  ", text_of(f, "region"),
                            (long long)json_integer_value(json_object_get(f, "uses")));
        cli_wrap_at(stdout, column, 6, b.data ? b.data : "");
    }
}

static bool selected(const json_t *k, const char *word)
{
    return word == NULL || strstr(text_of(k, "name"), word) || strstr(text_of(k, "step"), word) ||
           strstr(text_of(k, "template"), word);
}

rtx_status cli_explain(cli_args *a, rtx_err *err)
{
    fmt_bundle b;
    TRY(open_bundle(a->pos[0], &b, err));
    json_t *ev = json_loadb(b.section[FMT_SEC_EVIDENCE].data, b.section[FMT_SEC_EVIDENCE].bytes, 0,
                            NULL),
           *all = json_object_get(ev, "kernels"), *kept = json_array(), *k;
    fmt_bundle_close(&b);
    size_t i;
    const char *word = a->n_pos > 1 ? a->pos[1] : NULL;
    json_array_foreach(all, i, k) if (selected(k, word)) json_array_append(kept, k);
    rtx_status s = RTX_OK;
    if (ev == NULL)
        s = FAIL(err, CORRUPT, "%s holds no evidence that can be read", a->pos[0]);
    else if (word != NULL && json_array_size(kept) == 0)
        s = FAIL(err, NOT_FOUND,
                 "no kernel's name, step or template contains '%.100s'; `rtx inspect` lists them",
                 word);
    if (s != RTX_OK || !a->json) {
        cli_make_printable(ev);
        json_array_foreach(s == RTX_OK ? kept : NULL, i, k) explain_one(k, cli_has(a, "all"));
        if (s == RTX_OK && word == NULL)
            explain_cut(json_object_get(ev, "fusion"));
        json_decref(kept);
    } else {
        json_object_set_new(ev, "kernels", kept);
        s = cli_put_json(json_incref(ev), err);
    }
    json_decref(ev);
    return s;
}

/* ---- info ---- */

static json_t *env_json(void)
{
    size_t n;
    const base_env_row *rows = base_env_table(&n);
    json_t *all = json_array();
    for (size_t i = 0; i < n; i++)
        json_array_append_new(all, json_pack("{s:s, s:o, s:b, s:s, s:b, s:s}", "name", rows[i].name,
                                             "value", cli_json_text(base_env((base_env_id)i)),
                                             "set", base_env_is_set((base_env_id)i), "default",
                                             rows[i].default_text, "changes_code",
                                             rows[i].changes_code, "doc", rows[i].doc));
    return all;
}

rtx_status cli_info(cli_args *a, rtx_err *err)
{
    const dev_cpu *cpu = dev_cpu_get();
    const char *dir;
    char cc[256] = "";
    rtx_err why = {0};
    tun_cache_stat cache = {0};
    fmt_isa isa;
    bool have_cc = tun_have_compiler(cc, sizeof cc, &why);
    TRY(cli_cache_dir(a, &dir, err));
    rtx_status cs = tun_cache_stat_get(dir, &cache, NULL);
    TRY(dev_isa_allowed(&isa, err));
    struct utsname u = {0};
    uname(&u);
    if (a->json)
        return cli_put_json(
            json_pack("{s:s, s:s, s:s, s:o, s:i, s:[i, i, i], s:o, s:o, s:o}", "version",
                      rtx_version(), "isa", dev_isa_name(isa), "cpu_isa", dev_isa_name(cpu->isa),
                      "cpu", cli_json_text(cpu->name), "cores", base_cpu_count(), "cache_kib",
                      (int)cpu->l1d_kib, (int)cpu->l2_kib, (int)cpu->l3_kib, "compiler",
                      cli_json_text(have_cc ? cc : ""), "cache",
                      cli_json_text(cs == RTX_OK ? cache.path : ""), "environment", env_json()),
            err);
    printf("rtx       %s\n", rtx_version());
    printf("system    %s %s\n", u.sysname, u.release);
    printf("cpu       %s\n", cpu->name);
    printf("level     %s%s%s\n", dev_isa_name(isa),
           isa != (fmt_isa)cpu->isa ? ", lowered by RTX_ISA from " : "",
           isa != (fmt_isa)cpu->isa ? dev_isa_name(cpu->isa) : "");
    printf("cpus      %d usable by this process\n", base_cpu_count());
    printf("caches    L1d %u KiB, L2 %u KiB, L3 %u KiB\n", cpu->l1d_kib, cpu->l2_kib, cpu->l3_kib);
    printf("compiler  %s\n", have_cc       ? cc
                             : why.text[0] ? why.text
                                           : "none: precompiled kernels are used");
    printf("cache     %s\n", cs == RTX_OK && cache.path[0] ? cache.path : "none");
    puts("environment");
    size_t n;
    const base_env_row *rows = base_env_table(&n);
    for (size_t i = 0; i < n; i++) {
        enum { ENV_SHOWN = 78 };
        char left[256];
        int n = snprintf(left, sizeof left, "%s=%s", rows[i].name, base_env((base_env_id)i));
        if (n > ENV_SHOWN)
            snprintf(left + ENV_SHOWN - 3, 4, "..."); /* --json has all of it */
        printf("  %s%s\n", left, base_env_is_set((base_env_id)i) ? "" : "  (unset)");
        cli_wrap(stdout, 6, rows[i].doc);
    }
    return RTX_OK;
}
