/* rtx cache, profile, zoo: what is kept on this machine, what it can do, and the models that come along.
 *   layer   top */
#include "cli.h"

const char cli_cache_usage[] = "stat|verify|gc [--cache DIR] [--max-bytes N]";
const char cli_cache_text[] =
    "stat    entries and bytes\n"
    "verify  read every entry and check its hash; exit 1 if one is damaged\n"
    "gc      delete the oldest entries beyond --max-bytes\n";
const cli_option cli_cache_options[] = {
    {"cache", 0, CLI_TEXT, false, "DIR", "the cache (default: `rtx info` shows it)"},
    {"max-bytes", 0, CLI_BYTES, false, "N", "for gc: what may stay, such as 500M (default 512M)"},
    {"remove", 0, CLI_FLAG, false, NULL, "for verify: delete damaged entries"},
};
const size_t cli_cache_n_options = COUNT_OF(cli_cache_options);

const char cli_profile_usage[] = "[--device cpu] [--redo]";
const char cli_profile_text[] =
    "Arithmetic peak, memory bandwidth and latency, cache sizes as measured, hand-off between "
    "threads. "
    "Measured once (10 s at most) and kept in the cache; the tuner reads them from there.\n";
const cli_option cli_profile_options[] = {
    {"device", 0, CLI_TEXT, false, "cpu", "what to measure; only cpu in this version"},
    {"redo", 0, CLI_FLAG, false, NULL, "measure again"},
    {"cache", 0, CLI_TEXT, false, "DIR", "where the facts are kept"},
};
const size_t cli_profile_n_options = COUNT_OF(cli_profile_options);

const char cli_zoo_usage[] = "list | export zoo:NAME [--OPTION N]... -o X.onnx";
const char cli_zoo_text[] =
    "list    the built-in models with their options and defaults\n"
    "export  write one as ONNX; every option of the model is one here, such as --hidden 256\n"
    "Weights are seeded, so that the same options give the same file.\n";
const cli_option cli_zoo_options[] = {
    {"file", 'o', CLI_TEXT, false, "FILE", "where the ONNX file goes; - for standard output"},
};
const size_t cli_zoo_n_options = COUNT_OF(cli_zoo_options);

/* ---- cache ---- */

enum { NAMES_SHOWN = 10 };

typedef struct damaged {
    json_t *paths; /* NULL: nobody looked */
    uint64_t left; /* not removed */
} damaged;

static void note_damaged(void *ctx, const char *path, bool removed)
{
    damaged *d = ctx;
    json_array_append_new(d->paths, cli_json_text(path));
    d->left += !removed;
}

static void print_damaged(const damaged *d)
{
    size_t n = json_array_size(d->paths);
    for (size_t i = 0; i < MIN(n, NAMES_SHOWN); i++)
        printf("  %s\n", json_string_value(json_array_get(d->paths, i)));
    if (n > NAMES_SHOWN)
        printf("  and %zu more\n", n - NAMES_SHOWN);
}

static rtx_status put_cache(const cli_args *a, const tun_cache_stat *st, const damaged *d,
                            rtx_err *err)
{
    char size[16];
    if (a->json)
        return cli_put_json(json_pack("{s:o, s:I, s:I, s:I, s:O*}", "path", cli_json_text(st->path),
                                      "entries", (json_int_t)st->entries, "bytes",
                                      (json_int_t)st->bytes, "bad", (json_int_t)st->bad, "damaged",
                                      d->paths),
                            err);
    printf("%s: %llu entries, %s", st->path, (unsigned long long)st->entries,
           cli_human((double)st->bytes, size));
    if (d->paths != NULL)
        printf(", %llu damaged%s", (unsigned long long)st->bad,
               st->bad && !d->left ? " (removed)" : "");
    puts("");
    print_damaged(d);
    return RTX_OK;
}

/* Damaged entries that stay are an error; those that were removed are measured again when they are wanted. */
static rtx_status verify(const cli_args *a, const char *dir, rtx_err *err)
{
    tun_cache_stat st;
    bool remove = cli_has(a, "remove");
    damaged d = {.paths = json_array()};
    TRY_ALLOC(d.paths, err);
    rtx_status s = tun_cache_verify(dir, remove, note_damaged, &d, &st, err);
    if (s == RTX_OK)
        s = put_cache(a, &st, &d, err);
    json_decref(d.paths);
    TRY(s);
    if (d.left > 0)
        return FAIL(err, INVALID, "%llu of %llu entries are damaged%s", (unsigned long long)d.left,
                    (unsigned long long)st.entries,
                    remove ? " and cannot be removed; may this user write there?"
                           : "; `rtx cache verify --remove` deletes them");
    return RTX_OK;
}

rtx_status cli_cache(cli_args *a, rtx_err *err)
{
    const char *what = a->pos[0], *dir;
    tun_cache_stat st = {0};
    TRY(cli_cache_dir(a, &dir, err));
    if (dir != NULL && *dir == '\0')
        return cli_usage(err, "--cache '' means no cache, so there is nothing to do; name a folder "
                              "or leave it away");
    if (strcmp(what, "verify") == 0)
        return verify(a, dir, err);
    if (strcmp(what, "stat") == 0)
        TRY(tun_cache_stat_get(dir, &st, err));
    else if (strcmp(what, "gc") == 0)
        TRY(tun_cache_gc(dir, cli_has(a, "max-bytes") ? MAX(cli_bytes(a, "max-bytes", 0), 1) : 0,
                         &st, err)); /* 0 = the tuner's default */
    else
        return cli_usage(err, "rtx cache knows stat, verify and gc, not '%.60s'", what);
    return put_cache(a, &st, &(damaged){0}, err);
}

/* ---- profile ---- */

rtx_status cli_profile(cli_args *a, rtx_err *err)
{
    const char *device = cli_text(a, "device"), *cache;
    char l1[16], l2[16], l3[16];
    tun_hw hw;
    if (device && strcmp(device, "cpu") != 0)
        return FAIL(err, UNSUPPORTED, "UNSUPPORTED: device %.40s: this version knows cpu only",
                    device);
    TRY(cli_cache_dir(a, &cache, err));
    TRY(tun_profile(cache, cli_has(a, "redo"), &hw, err));
    if (a->json) {
        AUTO_BUF base_buf text;
        base_buf_init(&text, BASE_TAG_CLI, (size_t)1 << 20);
        tun_profile_json(&hw, &text);
        TRY(base_buf_ok(&text, err));
        return cli_put_json(json_loads(text.data ? text.data : "", 0, NULL), err);
    }
    printf("%s, %d cpus, level v%d\n", hw.cpu, hw.cores, (int)hw.isa);
    printf("  multiply-add peak      %8.1f GFLOP/s on one thread, %.1f on all\n", hw.fma_gflops[0],
           hw.fma_gflops[1]);
    printf("  memory read            %8.1f GB/s on one thread, %.1f on all\n", hw.read_gbps[0],
           hw.read_gbps[1]);
    printf("  memory latency         %8.1f ns\n", hw.latency_ns);
    printf("  thread hand-off        %8.1f ns spinning, %.1f ns to wake one\n", hw.handoff_ns,
           hw.wake_ns);
    printf("  register cliff         %8d accumulator vectors\n", hw.cliff_vectors);
    printf("  cache knees            %s, %s, %s\n", cli_human((double)hw.l1_bytes, l1),
           cli_human((double)hw.l2_bytes, l2), cli_human((double)hw.l3_bytes, l3));
    printf("  while measuring        %8d rounds, %.1f %% below the best\n", hw.rounds,
           100 * hw.spread);
    puts("  read bandwidth by size");
    for (int i = 0; i < hw.read_curve.n && i < (int)COUNT_OF(hw.read_curve.bytes); i++)
        printf("    %9s  %7.1f GB/s\n", cli_human(hw.read_curve.bytes[i], l1),
               hw.read_curve.gbps[i]);
    return RTX_OK;
}

/* ---- zoo ---- */

const cli_option *cli_zoo_more(const char *name, size_t len)
{
    static cli_option made[64]; /* one an option name; the parser keeps pointers */
    static size_t n_made;
    size_t n;
    const fe_zoo_entry *z = fe_zoo_table(&n);
    for (size_t i = 0; i < n_made; i++)
        if (strlen(made[i].name) == len && memcmp(made[i].name, name, len) == 0)
            return &made[i];
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < z[i].n_options; k++) {
            const fe_zoo_option *o = &z[i].options[k];
            if (strlen(o->name) != len || memcmp(o->name, name, len) != 0 ||
                n_made == COUNT_OF(made))
                continue;
            made[n_made] = (cli_option){o->name, 0, CLI_COUNT, false, "N", o->doc};
            return &made[n_made++];
        }
    return NULL;
}

static rtx_status zoo_list(const cli_args *a, rtx_err *err)
{
    size_t n;
    const fe_zoo_entry *z = fe_zoo_table(&n);
    json_t *all = json_array();
    for (size_t i = 0; i < n; i++) {
        json_t *options = json_object();
        for (size_t k = 0; k < z[i].n_options; k++)
            json_object_set_new(options, z[i].options[k].name,
                                json_pack("{s:I, s:s}", "default",
                                          (json_int_t)z[i].options[k].value, "doc",
                                          z[i].options[k].doc));
        json_array_append_new(all, json_pack("{s:s, s:s, s:o}", "name", z[i].name, "doc", z[i].doc,
                                             "options", options));
    }
    if (a->json)
        return cli_put_json(json_pack("{s:o}", "models", all), err);
    json_decref(all);
    for (size_t i = 0; i < n; i++) {
        printf("zoo:%s\n", z[i].name);
        cli_wrap(stdout, 2, z[i].doc);
        for (size_t k = 0; k < z[i].n_options; k++)
            printf("    %-10s %8lld  %s\n", z[i].options[k].name, (long long)z[i].options[k].value,
                   z[i].options[k].doc);
    }
    return RTX_OK;
}

/* "zoo:encoder" and --hidden 64 become "zoo:encoder,hidden=64"; the frontend checks which options a model has. */
static rtx_status zoo_export(cli_args *a, rtx_err *err)
{
    const char *out = cli_text(a, "file");
    if (a->n_pos < 2 || out == NULL)
        return cli_usage(err, "usage: rtx zoo %s", cli_zoo_usage);
    TRY(cli_check_binary(a, out, err));
    AUTO_BUF base_buf name, file;
    base_buf_init(&name, BASE_TAG_CLI, 4096);
    base_buf_init(&file, BASE_TAG_CLI, (size_t)3 << 30);
    base_buf_printf(&name, "%s%s", strncmp(a->pos[1], "zoo:", 4) == 0 ? "" : "zoo:", a->pos[1]);
    for (int i = 0; i < a->n_given; i++) {
        const cli_option *o = a->given[i].option;
        if (o == cli_zoo_more(o->name, strlen(o->name)))
            base_buf_printf(&name, ",%s=%s", o->name, a->given[i].value);
    }
    TRY(base_buf_ok(&name, err));
    fe_model *m = NULL;
    TRY(fe_open(name.data, NULL, &m, err));
    rtx_status s = fe_onnx_write(fe_graph(m), name.data + 4, &file, err);
    fe_close(m);
    TRY(s);
    TRY(base_buf_ok(&file, err));
    TRY(cli_write_file(out, file.data, file.len, err));
    char size[16];
    if (a->json)
        return cli_put_json(json_pack("{s:o, s:o, s:I}", "model", cli_json_text(name.data), "out",
                                      cli_json_text(out), "bytes", (json_int_t)file.len),
                            err);
    fprintf(strcmp(out, "-") == 0 ? stderr : stdout, "%s: %s, %s\n", out, name.data,
            cli_human((double)file.len, size));
    return RTX_OK;
}

rtx_status cli_zoo(cli_args *a, rtx_err *err)
{
    if (strcmp(a->pos[0], "list") == 0)
        return a->n_pos == 1 ? zoo_list(a, err)
                             : cli_usage(err, "rtx zoo list takes no more words");
    if (strcmp(a->pos[0], "export") == 0)
        return zoo_export(a, err);
    return cli_usage(err, "rtx zoo knows list and export, not '%.60s'", a->pos[0]);
}
