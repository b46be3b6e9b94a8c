/* rtx compile and rtx tune: a model, or the model inside a bundle, becomes a tuned bundle.
 *   layer   top
 *   rule    nothing is left at the output path unless all of it is */
#include "cli.h"
#include "dev_cpu.h"
#include "pipe_api.h"
#include <sys/stat.h>
#include <unistd.h>

const char cli_compile_usage[] =
    "MODEL [-o OUT.rtxgc] [--shape NAME=1x128]... [--tune off|quick|full]";
const char cli_compile_text[] =
    "Read MODEL (an ONNX file, - for standard input, or zoo:NAME[,k=v]...), fuse it, choose for "
    "each\n"
    "kernel the fastest variant that passed validation on this machine, and write one file that "
    "runs\n"
    "without a compiler. OUT is replaced atomically; it defaults to MODEL's name with .rtxgc, in "
    "the\n"
    "current folder. - writes to standard output.\n\n"
    "Sizes that the model leaves free stay free: buckets say where plans are tuned, not what may "
    "run.\n"
    "Answers are kept in the cache, so that a second compilation takes seconds.\n";
const cli_option cli_compile_options[] = {
    {"out", 'o', CLI_TEXT, false, "FILE", "where the bundle goes"},
    CLI_MODEL_OPTIONS,
    {"baseline", 0, CLI_FLAG, false, NULL, "the baseline program that `rtx bench` compares with"},
    {"pin", 0, CLI_TEXT, false, "FILE", "offer only what won in an earlier bundle"},
};
const size_t cli_compile_n_options = COUNT_OF(cli_compile_options);

const char cli_tune_usage[] = "BUNDLE|MODEL [--tune quick|full] [--budget SECONDS]";
const char cli_tune_text[] =
    "Measure again on this machine, whatever the cache says, and take the new answers. A bundle "
    "is\n"
    "replaced atomically; from a model, MODEL.rtxgc is written as `rtx compile` does.\n";
const cli_option cli_tune_options[] = {
    {"out", 'o', CLI_TEXT, false, "FILE", "where the bundle goes (default: in place)"},
    CLI_MODEL_OPTIONS,
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
    char size[16];
    const json_t *k = json_object_get(r, "kernels"), *l = json_object_get(r, "ledger");
    fprintf(to, "%s: %s, %.0f problems, %.0f kernels tuned here, %.0f precompiled\n", out,
            cli_human(number(r, "file_bytes"), size), number(r, "problems"), number(k, "tuned"),
            number(k, "precompiled"));
    if (json_object_get(r, "untuned"))
        fprintf(to, "not tuned: %s\n", json_string_value(json_object_get(r, "untuned")));
    else if (number(r, "cache_keys") > 0)
        fprintf(to, "%.0f keys, %.0f from the cache; %.0f candidates, %.0f rejected\n",
                number(r, "cache_keys"), number(r, "cache_hits"), number(r, "candidates"),
                number(r, "rejected"));
    fprintf(to,
            "%.2f s: passes %.2f, lower %.2f, tune %.2f (compile %.1f, validate %.1f, measure "
            "%.1f), write %.2f\n",
            number(r, "seconds"), number(l, "passes"), number(l, "lower"), number(l, "tune"),
            number(l, "tune_compile"), number(l, "tune_validate"), number(l, "tune_measure"),
            number(l, "write"));
}

static rtx_status put_report(cli_args *a, json_t *report, const char *out, rtx_err *err)
{
    cli_progress_end();
    struct stat st;
    if (strcmp(out, "-") != 0 && stat(out, &st) == 0)
        json_object_set_new(report, "file_bytes", json_integer(st.st_size));
    json_object_set_new(report, "out", json_string(out));
    if (a->json)
        return cli_put_json(report, err);
    print_report(strcmp(out, "-") == 0 ? stderr : stdout, out, report);
    json_decref(report);
    return RTX_OK;
}

static rtx_status compile_to(cli_args *a, const char *model, const pipe_options *o, const char *out,
                             rtx_err *err)
{
    json_t *report = NULL;
    pipe_options with = *o;
    with.without = cli_has(a, "baseline") ? PIPE_BASELINE : 0;
    TRY(pipe_compile_report(model, &with, out, &report, err));
    return put_report(a, report, out, err);
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

static rtx_status compile_model(cli_args *a, pipe_options *o, const char *out, rtx_err *err)
{
    const char *model = a->pos[0];
    if (out == NULL)
        TRY(default_out(a, model, &out, err));
    if (strcmp(out, "-") == 0 && a->json)
        return cli_usage(err, "--json and -o - both want standard output");
    if (strcmp(out, "-") == 0 && isatty(STDOUT_FILENO))
        return cli_usage(err, "a bundle is no text for a terminal; redirect standard output");
    if (same_file(model, out))
        return cli_usage(err, "the output %.200s is the model itself; give -o another FILE", out);
    TRY(check_isa(o, err));
    cli_scratch scratch = {0};
    rtx_status s = cli_model_stdin(&model, &scratch, err);
    if (s == RTX_OK)
        s = compile_to(a, model, o, out, err);
    cli_scratch_done(&scratch);
    return s;
}

rtx_status cli_compile(cli_args *a, rtx_err *err)
{
    pipe_options o;
    TRY(cli_pipe_options(a, &o, err));
    o.pin = cli_text(a, "pin");
    return compile_model(a, &o, cli_text(a, "out"), err);
}

/* ---- tune ---- */

static bool is_bundle(const char *path)
{
    size_t n = strlen(path);
    return n > 6 && strcmp(path + n - 6, ".rtxgc") == 0;
}

rtx_status cli_tune(cli_args *a, rtx_err *err)
{
    pipe_options o;
    TRY(cli_pipe_options(a, &o, err));
    if (o.tune == PIPE_OFF)
        return cli_usage(err, "rtx tune measures; --tune off belongs to rtx compile");
    o.redo = true;
    if (!is_bundle(a->pos[0]))
        return compile_model(a, &o, cli_text(a, "out"), err);
    json_t *report = NULL;
    TRY(cli_retune(a, &o, &report, err));
    return put_report(a, report, cli_text(a, "out") ? cli_text(a, "out") : a->pos[0], err);
}
