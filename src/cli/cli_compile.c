/* rtx compile and rtx tune: a model, or the model inside a bundle, becomes a tuned bundle.
 *   layer   top
 *   rule    nothing is left at the output path unless all of it is */
#include "cli.h"
#include "dev_cpu.h"
#include "pipe_api.h"
#include <sys/stat.h>

const char cli_compile_usage[] =
    "MODEL [-o OUT.rtxgc] [--shape NAME=1x128]... [--tune off|quick|full]";
const char cli_compile_text[] =
    "Read MODEL (an ONNX file, - for standard input, or zoo:NAME[,k=v]...), fuse it, choose for "
    "each "
    "kernel the fastest variant that passed validation on this machine, and write one file that "
    "runs "
    "without a compiler. OUT is replaced atomically; it defaults to MODEL's name with .rtxgc, in "
    "the "
    "current folder. - writes to standard output.\n\n"
    "Sizes that the model leaves free stay free: buckets say where plans are tuned, not what may "
    "run. "
    "Answers are kept in the cache, so that a second compilation takes seconds.\n";
const cli_option cli_compile_options[] = {
    {"out", 'o', CLI_TEXT, false, "FILE", "where the bundle goes"},
    CLI_MODEL_OPTIONS("off|quick|full"),
    {"baseline", 0, CLI_FLAG, false, NULL, "the baseline program that `rtx bench` compares with"},
    {"pin", 0, CLI_READS, false, "FILE", "offer only what won in an earlier bundle"},
};
const size_t cli_compile_n_options = COUNT_OF(cli_compile_options);

const char cli_tune_usage[] = "BUNDLE|MODEL [--tune quick|full] [--budget SECONDS]";
const char cli_tune_text[] =
    "Measure again on this machine, whatever the cache says, and take the new answers. A bundle "
    "is "
    "replaced atomically; from a model, MODEL.rtxgc is written as `rtx compile` does.\n";
const cli_option cli_tune_options[] = {
    {"out", 'o', CLI_TEXT, false, "FILE", "where the bundle goes (default: in place)"},
    CLI_MODEL_OPTIONS("quick|full"),
};
const size_t cli_tune_n_options = COUNT_OF(cli_tune_options);

/* ---- output ---- */

static rtx_status default_out(cli_args *a, const char *model, const char **out, rtx_err *err)
{
    bool zoo = strncmp(model, "zoo:", 4) == 0;
    const char *slash = strrchr(model, '/'), *base = zoo ? model + 4 : slash ? slash + 1 : model;
    size_t n = zoo ? strcspn(base, ",") : strlen(base);
    for (size_t i = n; !zoo && i-- > 1;)
        if (base[i] == '.') {
            n = i;
            break;
        }
    if (strcmp(model, "-") == 0 || n == 0)
        return cli_usage(err, "there is no name to make the output's from; give -o FILE");
    TRY_ALLOC(*out = base_arena_printf(&a->mem, "%.*s.rtxgc", (int)n, base), err);
    return RTX_OK;
}

static bool same_file(const char *a, const char *b)
{
    struct stat x, y;
    return stat(a, &x) == 0 && stat(b, &y) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

static double number(const json_t *o, const char *key)
{
    return json_number_value(json_object_get(o, key));
}

static void print_report(FILE *to, const char *out, const json_t *r)
{
    char size[16], line[160];
    const json_t *k = json_object_get(r, "kernels"), *l = json_object_get(r, "ledger");
    double parts =
        number(l, "tune_compile") + number(l, "tune_validate") + number(l, "tune_measure");
    snprintf(line, sizeof line, "%s, %.0f problems, %.0f kernels tuned here, %.0f precompiled",
             cli_human(number(r, "file_bytes"), size), number(r, "problems"), number(k, "tuned"),
             number(k, "precompiled"));
    cli_wrap_at(to, fprintf(to, "%s: ", out), 2, line);
    if (json_object_get(r, "untuned"))
        fprintf(to, "not tuned: %s\n", json_string_value(json_object_get(r, "untuned")));
    else if (number(r, "cache_keys") > 0)
        fprintf(to, "%.0f keys, %.0f from the cache; %.0f candidates, %.0f rejected\n",
                number(r, "cache_keys"), number(r, "cache_hits"), number(r, "candidates"),
                number(r, "rejected"));
    fprintf(to, "%.2f s: passes %.2f, lower %.2f, tune %.2f, write %.2f\n", number(r, "seconds"),
            number(l, "passes"), number(l, "lower"), number(l, "tune"), number(l, "write"));
    if (parts > 0)
        fprintf(to, "tune: compile %.1f, validate %.1f, measure %.1f, other %.1f\n",
                number(l, "tune_compile"), number(l, "tune_validate"), number(l, "tune_measure"),
                MAX(number(l, "tune") - parts, 0));
}

/* file: where the bundle lies; standard output gets it only when all of it is there. */
static rtx_status put_report(cli_args *a, json_t *report, const char *out, const char *file,
                             rtx_err *err)
{
    cli_progress_end();
    bool to_stdout = strcmp(out, "-") == 0;
    base_map map = {0};
    rtx_status s = base_map_open(file, &map, err);
    if (s == RTX_OK && to_stdout)
        s = cli_write_file("-", map.data, map.bytes, err);
    json_object_set_new(report, "file_bytes", json_integer((json_int_t)map.bytes));
    json_object_set_new(report, "out", cli_json_text(out));
    base_map_close(&map);
    if (s == RTX_OK && a->json)
        return cli_put_json(report, err);
    if (s == RTX_OK)
        print_report(to_stdout ? stderr : stdout, to_stdout ? "standard output" : out, report);
    json_decref(report);
    return s;
}

static rtx_status check_isa(const pipe_options *o, rtx_err *err)
{
    fmt_isa allowed;
    TRY(dev_isa_allowed(&allowed, err));
    if (o->isa > allowed && o->tune != PIPE_OFF)
        return FAIL(err, UNSUPPORTED,
                    "UNSUPPORTED: --isa %s: this machine has %s and cannot measure above it; every "
                    "bundle holds precompiled kernels of all levels",
                    dev_isa_name(o->isa), dev_isa_name(allowed));
    return RTX_OK;
}

static rtx_status compile_to(cli_args *a, const char *model, pipe_options *o, const char *file,
                             json_t **report, rtx_err *err)
{
    if (same_file(model, file))
        return cli_usage(err, "the output %.200s is the model itself; give -o another FILE", file);
    TRY(check_isa(o, err));
    o->without = cli_has(a, "baseline") ? PIPE_BASELINE : 0;
    return pipe_compile_report(model, o, file, report, err);
}

/* A bundle is tuned in place, where that is allowed; all else is a model. */
static rtx_status build(cli_args *a, pipe_options *o, bool tune, cli_scratch *scratch, rtx_err *err)
{
    const char *in = a->pos[0], *out = cli_text(a, "out");
    if (out == NULL && tune && cli_is_bundle(in))
        out = in;
    if (out == NULL)
        TRY(default_out(a, in, &out, err));
    TRY(cli_check_binary(a, out, err));
    TRY(cli_spool(&o->pin, scratch, err));
    if (tune)
        TRY(cli_spool(&in, scratch, err));
    else
        TRY(cli_model_file(&in, scratch, err));
    const char *file = out;
    if (strcmp(out, "-") == 0) {
        if (scratch->dir[0] == '\0')
            TRY(cli_scratch_new(scratch, err));
        file = cli_scratch_path(scratch, "out.rtxgc");
    }
    json_t *report = NULL;
    TRY(cli_is_bundle(in) ? cli_retune(o, in, file, &report, err)
                          : compile_to(a, in, o, file, &report, err));
    return put_report(a, report, out, file, err);
}

static rtx_status build_in_scratch(cli_args *a, pipe_options *o, bool tune, rtx_err *err)
{
    cli_scratch scratch = {0};
    rtx_status s = build(a, o, tune, &scratch, err);
    cli_scratch_done(&scratch);
    return s;
}

rtx_status cli_compile(cli_args *a, rtx_err *err)
{
    pipe_options o;
    TRY(cli_pipe_options(a, &o, err));
    o.pin = cli_text(a, "pin");
    if (o.pin != NULL && o.tune == PIPE_OFF)
        return cli_usage(err, "--pin says what the tuner is offered; --tune off leaves it out");
    return build_in_scratch(a, &o, false, err);
}

rtx_status cli_tune(cli_args *a, rtx_err *err)
{
    pipe_options o;
    TRY(cli_pipe_options(a, &o, err));
    o.redo = true;
    return build_in_scratch(a, &o, true, err);
}
