/* rtx run: a program, its inputs from .npy files, its outputs to .npy files, its time.
 *   layer   top; goes through include/rtx/run.h only, as any user of the library does */
#include "cli.h"
#include <errno.h>
#include <sys/stat.h>

const char cli_run_usage[] = "BUNDLE [--input NAME=FILE.npy]... [--output DIR] [--repeat N]";
const char cli_run_text[] =
    "Open BUNDLE, check every byte of it, and run it on the inputs. Without inputs, print what "
    "the "
    "program expects: name, type and shape, with the range of each free size. FILE may be - for "
    "standard input. Each output is written to DIR/NAME.npy. "
    "With --repeat, the program runs N times; first, median and 95th percentile are printed.\n";
const cli_option cli_run_options[] = {
    {"input", 'i', CLI_READS, true, "NAME=FILE", "input of the program, a .npy file"},
    {"output", 'o', CLI_TEXT, false, "DIR", "folder for the outputs"},
    {"repeat", 'n', CLI_COUNT, false, "N", "number of runs (default 1)"},
    {"threads", 0, CLI_COUNT, false, "N", "threads (default RTX_THREADS, else all CPUs)"},
};
const size_t cli_run_n_options = COUNT_OF(cli_run_options);

typedef struct job {
    rtx_program *program;
    size_t n_in, n_out;
    rtx_tensor *in, *out;
    double open_ms, first_ms, min_ms, median_ms, p95_ms;
    int64_t repeat, threads;
} job;

/* ---- what it expects ---- */

static json_t *port_json(const rtx_port *p)
{
    json_t *shape = json_array(), *bounds = json_array();
    for (int k = 0; k < p->rank; k++) {
        json_array_append_new(shape, p->dim[k] >= 0 ? json_integer(p->dim[k])
                                                    : cli_json_text(p->dim_name[k]));
        json_array_append_new(bounds,
                              json_pack("[I, I]", (json_int_t)p->lo[k], (json_int_t)p->hi[k]));
    }
    return json_pack("{s:o, s:s, s:o, s:o}", "name", cli_json_text(p->name), "dtype",
                     fmt_dtype_name((fmt_dtype)p->dtype), "shape", shape, "bounds", bounds);
}

static void port_print(const rtx_port *p, base_buf *b)
{
    size_t from = b->len;
    base_buf_printf(b, "  %-24s %s[", p->name, fmt_dtype_name((fmt_dtype)p->dtype));
    for (int k = 0; k < p->rank; k++)
        if (p->dim[k] >= 0)
            base_buf_printf(b, "%s%lld", k ? ", " : "", (long long)p->dim[k]);
        else
            base_buf_printf(b, "%s%s", k ? ", " : "", p->dim_name[k]);
    base_buf_puts(b, "]");
    const char *sep = "   ";
    for (int k = 0; k < p->rank; k++) {
        if (p->dim[k] >= 0)
            continue;
        if (p->hi[k] >= FMT_DIM_LIMIT)
            base_buf_printf(b, "%s%s %lld or more", sep, p->dim_name[k], (long long)p->lo[k]);
        else
            base_buf_printf(b, "%s%s %lld to %lld", sep, p->dim_name[k], (long long)p->lo[k],
                            (long long)p->hi[k]);
        sep = ", ";
    }
    if (b->data)
        base_make_printable(b->data + from);
    base_buf_puts(b, "\n");
}

static rtx_status show_ports(const cli_args *a, const job *j, rtx_err *err)
{
    AUTO_BUF base_buf text;
    base_buf_init(&text, BASE_TAG_CLI, (size_t)1 << 24);
    json_t *in = json_array(), *out = json_array();
    rtx_status s = RTX_OK;
    for (size_t i = 0; s == RTX_OK && i < j->n_in + j->n_out; i++) {
        rtx_port p;
        bool input = i < j->n_in;
        s = input ? rtx_program_input(j->program, i, &p, err)
                  : rtx_program_output(j->program, i - j->n_in, &p, err);
        if (s != RTX_OK)
            break;
        if (i == 0 || i == j->n_in)
            base_buf_puts(&text, input ? "inputs\n" : "outputs\n");
        port_print(&p, &text);
        json_array_append_new(input ? in : out, port_json(&p));
    }
    if (s == RTX_OK && a->json)
        return cli_put_json(
            json_pack("{s:o, s:o, s:f}", "inputs", in, "outputs", out, "open_ms", j->open_ms), err);
    json_decref(in);
    json_decref(out);
    TRY(s);
    TRY(base_buf_ok(&text, err));
    printf("%sopened and checked in %.1f ms; run it with --input NAME=FILE.npy for each input\n",
           text.data ? text.data : "", j->open_ms);
    return RTX_OK;
}

/* ---- inputs ---- */

static rtx_status input_names(const job *j, base_buf *out, bool only_missing, rtx_err *err)
{
    for (size_t i = 0; i < j->n_in; i++) {
        rtx_port p;
        TRY(rtx_program_input(j->program, i, &p, err));
        if (!only_missing || j->in[i].data == NULL)
            base_buf_printf(out, "%s%s", out->len ? ", " : "", p.name);
    }
    return base_buf_ok(out, err);
}

static rtx_status read_input(job *j, const char *spec, rtx_err *err)
{
    for (size_t i = 0; i < j->n_in; i++) { /* names may hold '=', so they are matched whole */
        rtx_port p;
        TRY(rtx_program_input(j->program, i, &p, err));
        size_t n = strlen(p.name);
        if (strncmp(spec, p.name, n) != 0 || spec[n] != '=')
            continue;
        if (j->in[i].data != NULL)
            return cli_usage(err, "input %s is given twice", p.name);
        TRY(cli_npy_read(spec + n + 1, &j->in[i], err));
        j->in[i].name = p.name;
        return RTX_OK;
    }
    AUTO_BUF base_buf names;
    base_buf_init(&names, BASE_TAG_CLI, 65536);
    if (strchr(spec, '=') == NULL)
        return cli_usage(err, "--input wants NAME=FILE.npy, not '%.100s'", spec);
    TRY(input_names(j, &names, false, err));
    return FAIL(err, INVALID, "the program has no input %.*s; it has %s", (int)strcspn(spec, "="),
                spec, names.data ? names.data : "none");
}

static rtx_status read_inputs(const cli_args *a, job *j, rtx_err *err)
{
    const char *spec;
    for (int at = 0; (spec = cli_next(a, "input", &at)) != NULL;)
        TRY(read_input(j, spec, err));
    AUTO_BUF base_buf missing;
    base_buf_init(&missing, BASE_TAG_CLI, 65536);
    TRY(input_names(j, &missing, true, err));
    if (missing.len > 0)
        return FAIL(err, INVALID,
                    "inputs without --input: %s; `rtx run BUNDLE` alone shows what each must be",
                    missing.data);
    return RTX_OK;
}

/* ---- run ---- */

static rtx_status run_all(job *j, rtx_err *err)
{
    TRY(rtx_program_shapes(j->program, j->in, j->n_in, j->out, j->n_out, err));
    for (size_t i = 0; i < j->n_out; i++)
        TRY_ALLOC(j->out[i].data = base_alloc(BASE_TAG_CLI, cli_tensor_bytes(&j->out[i])), err);
    AUTO_FREE double *ms = base_alloc_array(BASE_TAG_CLI, (size_t)j->repeat, sizeof *ms);
    TRY_ALLOC(ms, err);
    for (int64_t i = 0; i < j->repeat; i++) {
        uint64_t t = base_now_ns();
        TRY(rtx_program_run(j->program, j->in, j->n_in, j->out, j->n_out, (int)j->threads, err));
        ms[i] = (double)(base_now_ns() - t) * 1e-6;
    }
    j->first_ms = ms[0];
    cli_sort(ms, (size_t)j->repeat);
    j->min_ms = ms[0];
    j->median_ms = cli_quantile(ms, (size_t)j->repeat, 0.5);
    j->p95_ms = cli_quantile(ms, (size_t)j->repeat, 0.95);
    return RTX_OK;
}

static rtx_status make_folder(const char *dir, rtx_err *err)
{
    char path[1024];
    size_t n = strlen(dir);
    if (n == 0 || n >= sizeof path)
        return cli_usage(err, "--output wants a folder of at most %zu characters", sizeof path - 1);
    memcpy(path, dir, n + 1);
    for (size_t i = 1; i <= n; i++) {
        if (path[i] != '/' && path[i] != '\0')
            continue;
        char kept = path[i];
        path[i] = '\0';
        if (mkdir(path, 0777) != 0 && errno != EEXIST)
            return FAIL(err, IO, "cannot make folder %s: %s", path, strerror(errno));
        path[i] = kept;
    }
    return RTX_OK;
}

/* Names of outputs come from the model: no separators, so that the file stays in its folder. */
static rtx_status output_path(const char *dir, const char *name, char *out, size_t cap,
                              rtx_err *err)
{
    int n = snprintf(out, cap, "%s/%s.npy", dir, *name ? name : "output");
    if (n < 0 || (size_t)n >= cap)
        return FAIL(err, INVALID, "the path of output %.60s is too long", name);
    for (char *c = out + strlen(dir) + 1; *c; c++)
        if (*c == '/' || *c == '\\' || (unsigned char)*c < 0x20)
            *c = '_';
    return RTX_OK;
}

/* Before the run: the folder is there, and each output has a file of its own. */
static rtx_status check_outputs(const job *j, const char *dir, rtx_err *err)
{
    char path[2048], other[2048];
    rtx_port p, q;
    TRY(make_folder(dir, err));
    for (size_t i = 0; i < j->n_out; i++) {
        TRY(rtx_program_output(j->program, i, &p, err));
        TRY(output_path(dir, p.name, path, sizeof path, err));
        TRY(cli_check_out(path, err));
        for (size_t k = 0; k < i; k++) {
            TRY(rtx_program_output(j->program, k, &q, err));
            TRY(output_path(dir, q.name, other, sizeof other, err));
            if (strcmp(path, other) == 0)
                return FAIL(err, INVALID,
                            "outputs %.60s and %.60s would both be written to %.200s; rename one "
                            "of them in the model",
                            q.name, p.name, path);
        }
    }
    return RTX_OK;
}

static rtx_status write_outputs(const cli_args *a, const job *j, json_t *list, rtx_err *err)
{
    const char *dir = cli_text(a, "output");
    for (size_t i = 0; i < j->n_out; i++) {
        char path[2048] = "";
        const rtx_tensor *t = &j->out[i];
        rtx_port p;
        TRY(rtx_program_output(j->program, i, &p, err));
        if (dir) {
            TRY(output_path(dir, p.name, path, sizeof path, err));
            TRY(cli_npy_write(path, t, err));
        }
        json_t *shape = json_array();
        for (int k = 0; k < t->rank; k++)
            json_array_append_new(shape, json_integer(t->dim[k]));
        json_t *o = json_pack("{s:o, s:s, s:o}", "name", cli_json_text(p.name), "dtype",
                              fmt_dtype_name((fmt_dtype)t->dtype), "shape", shape);
        if (dir && o)
            json_object_set_new(o, "file", cli_json_text(path));
        json_array_append_new(list, o);
        if (a->json)
            continue;
        cli_put_name(p.name, 24);
        printf(" %s[", fmt_dtype_name((fmt_dtype)t->dtype));
        for (int k = 0; k < t->rank; k++)
            printf("%s%lld", k ? ", " : "", (long long)t->dim[k]);
        printf("]%s%s\n", dir ? "  -> " : "", path);
    }
    return RTX_OK;
}

static rtx_status run_job(const cli_args *a, job *j, rtx_err *err)
{
    if (!cli_has(a, "input") && j->n_in > 0)
        return show_ports(a, j, err);
    TRY(read_inputs(a, j, err));
    if (cli_text(a, "output"))
        TRY(check_outputs(j, cli_text(a, "output"), err));
    TRY(run_all(j, err));
    json_t *list = json_array();
    rtx_status s = write_outputs(a, j, list, err);
    if (s != RTX_OK || !a->json)
        json_decref(list);
    TRY(s);
    if (a->json)
        return cli_put_json(json_pack("{s:o, s:f, s:I, s:f, s:f, s:f, s:f}", "outputs", list,
                                      "open_ms", j->open_ms, "repeat", (json_int_t)j->repeat,
                                      "first_ms", j->first_ms, "min_ms", j->min_ms, "median_ms",
                                      j->median_ms, "p95_ms", j->p95_ms),
                            err);
    printf("open %.2f ms, first %.3f ms, median %.3f ms, p95 %.3f ms (%lld run%s)\n", j->open_ms,
           j->first_ms, j->median_ms, j->p95_ms, (long long)j->repeat, j->repeat == 1 ? "" : "s");
    return RTX_OK;
}

static rtx_status open_program(const char *bundle, job *j, rtx_err *err)
{
    cli_scratch scratch = {0};
    rtx_status s = cli_bundle_file(&bundle, &scratch, err);
    uint64_t t = base_now_ns();
    if (s == RTX_OK)
        s = rtx_program_open(bundle, (int)j->threads, &j->program, err);
    j->open_ms = (double)(base_now_ns() - t) * 1e-6;
    cli_scratch_done(&scratch);
    return s;
}

rtx_status cli_run(cli_args *a, rtx_err *err)
{
    job j = {.repeat = cli_count(a, "repeat", 1), .threads = cli_count(a, "threads", 0)};
    if (j.repeat < 1 || j.repeat > 100000000)
        return cli_usage(err, "--repeat wants a count from 1 to 100000000");
    if (j.threads > BASE_POOL_MAX || (cli_has(a, "threads") && j.threads < 1))
        return cli_usage(err, "--threads wants a count from 1 to %d", BASE_POOL_MAX);
    const char *dir = cli_text(a, "output");
    if (dir && strcmp(dir, "-") == 0)
        return cli_usage(err, "--output wants a folder, as outputs may be several; ./- is a folder "
                              "of that name");
    TRY(open_program(a->pos[0], &j, err));
    j.n_in = rtx_program_input_count(j.program);
    j.n_out = rtx_program_output_count(j.program);
    j.in = base_zalloc_array(BASE_TAG_CLI, j.n_in + 1, sizeof *j.in);
    j.out = base_zalloc_array(BASE_TAG_CLI, j.n_out + 1, sizeof *j.out);
    rtx_status s = j.in && j.out ? run_job(a, &j, err) : FAIL(err, NOMEM, "out of memory");
    for (size_t i = 0; j.in && i < j.n_in; i++)
        base_free(j.in[i].data);
    for (size_t i = 0; j.out && i < j.n_out; i++)
        base_free(j.out[i].data);
    base_free(j.in);
    base_free(j.out);
    rtx_program_close(j.program);
    return s;
}
