/* Everything that reaches the user: JSON, files, progress, warnings, errors.
 *   layer     top
 *   streams   stdout is the result; a progress line on stderr is cleared before anything else is written there
 *   terminal  one rewritten line of plain ASCII, no colour anywhere, so NO_COLOR changes nothing; elsewhere a line every 5 s */
#include "cli.h"
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <unistd.h>

/* ---- progress ---- */

static struct {
    bool quiet, terminal;
    int shown; /* characters of the line that stands there */
    uint64_t last_ns;
    char stage[32];
} progress;

void cli_out_init(bool quiet)
{
    progress.quiet = quiet;
    progress.terminal = isatty(STDERR_FILENO) == 1;
    progress.last_ns = base_now_ns(); /* elsewhere than on a terminal, short work says nothing */
}

static int terminal_columns(void)
{
    struct winsize w;
    return ioctl(STDERR_FILENO, TIOCGWINSZ, &w) == 0 && w.ws_col > 20 ? w.ws_col : 80;
}

void cli_progress_end(void)
{
    if (progress.shown > 0)
        fprintf(stderr, "\r%*s\r", progress.shown, "");
    progress.shown = 0;
    fflush(stderr);
}

static void show(const char *line)
{
    if (!progress.terminal) {
        fprintf(stderr, "rtx: %s\n", line);
        return;
    }
    int n = MIN((int)strlen(line), terminal_columns() - 1);
    fprintf(stderr, "\r%.*s%*s", n, line, MAX(progress.shown - n, 0), "");
    progress.shown = n;
    fflush(stderr);
}

void cli_progress(void *ctx, const tun_progress *p)
{
    (void)ctx;
    const char *stage = p->stage ? p->stage : "work", *op = p->op ? p->op : "";
    uint64_t now = base_now_ns(), wait = progress.terminal ? 100000000u : 5000000000u;
    bool same = strncmp(stage, progress.stage, sizeof progress.stage - 1) == 0;
    if (progress.quiet || ((same || !progress.terminal) && now - progress.last_ns < wait))
        return;
    snprintf(progress.stage, sizeof progress.stage, "%s", stage);
    progress.last_ns = now;
    char line[256];
    int n = snprintf(line, sizeof line, "%s", stage);
    if (p->total > 0)
        n += snprintf(line + n, sizeof line - (size_t)n, " %u/%u", p->done, p->total);
    if (p->seconds_left >= 0)
        n += snprintf(line + n, sizeof line - (size_t)n, ", %.0f s left", p->seconds_left);
    if (*op)
        snprintf(line + n, sizeof line - (size_t)n, "  %.120s", op);
    show(line);
}

void cli_step(const char *stage, const char *what, uint32_t done, uint32_t total)
{
    cli_progress(NULL,
                 &(tun_progress){stage, what, done, total, .seconds_left = -1}); /* no budget */
}

/* ---- messages ---- */

static struct {
    pthread_mutex_t lock;
    json_t *into; /* NULL = nobody asks */
} warnings = {.lock = PTHREAD_MUTEX_INITIALIZER};

void cli_warnings(json_t *into)
{
    pthread_mutex_lock(&warnings.lock);
    warnings.into = into;
    pthread_mutex_unlock(&warnings.lock);
}

void cli_log(void *user, int level, const char *line)
{
    (void)user;
    pthread_mutex_lock(&warnings.lock);
    if (level == 0 && warnings.into != NULL)
        json_array_append_new(warnings.into, cli_json_text(line));
    pthread_mutex_unlock(&warnings.lock);
    cli_progress_end();
    if (level == 0)
        fprintf(stderr, "rtx: warning: %s\n", line);
    else
        fprintf(stderr, "rtx: debug%d: %s\n", level, line);
}

static const char *next_step(rtx_status s)
{
    switch (s) {
    case RTX_CORRUPT:
        return "the file is damaged or no file of this kind: make it again or copy it anew";
    case RTX_UNSUPPORTED:
        return "nothing is wrong with the command; this version cannot do it (docs/cli.md, exit "
               "code 3)";
    case RTX_NOMEM:
        return "free some memory or lower the sizes, then try again";
    case RTX_NOT_FOUND:
        return "check the name and the folder it is looked for in";
    case RTX_INTERNAL:
        return "this is a fault of rtx: please report it with the command and the file";
    default:
        return NULL;
    }
}

void cli_error(const rtx_err *e, const char *command)
{
    cli_progress_end();
    char *full = e->code == RTX_UNSUPPORTED ? fe_take_report() : NULL;
    const char *text = e->text[0] ? e->text : rtx_status_text(e->code),
               *stdin_name = cli_stdin_name(&text);
    if (full != NULL && *full != '\0')
        fprintf(stderr, "rtx: error: the model uses what this version cannot do\n%s%s", full,
                full[strlen(full) - 1] == '\n' ? "" : "\n");
    else
        fprintf(stderr, "rtx: error: %s%s\n", stdin_name, text);
    base_free(full);
    if (base_env_int(BASE_ENV_DEBUG, 0, 7) > 0 && e->where[0])
        fprintf(stderr, "rtx: debug1: %s at %s\n", rtx_status_name(e->code), e->where);
    if (cli_usage_failed() && command)
        fprintf(stderr, "rtx: hint: `rtx %s --help` explains it\n", command);
    else if (next_step(e->code))
        fprintf(stderr, "rtx: hint: %s\n", next_step(e->code));
}

/* ---- results ---- */

rtx_status cli_flush(rtx_err *err)
{
    errno = 0;
    if (fflush(stdout) != 0 || ferror(stdout))
        return FAIL(err, IO, "cannot write to standard output: %s",
                    errno ? strerror(errno) : "an earlier write failed");
    return RTX_OK;
}

static atomic_bool text_lost; /* memory was wanted: what holds it is incomplete */

static json_t *json_of(const char *text, size_t len)
{
    json_t *v = text ? json_stringn(text, len) : NULL;
    if (v == NULL)
        text_lost = true;
    return v;
}

json_t *cli_json_text(const char *text)
{
    size_t left = strlen(text);
    if (base_utf8_ok(text, left))
        return json_of(text, left);
    AUTO_BUF base_buf b;
    base_buf_init(&b, BASE_TAG_CLI, SIZE_MAX);
    for (size_t n; left > 0; text += n, left -= n) {
        n = base_utf8_size(text, left);
        base_buf_put(&b, n ? text : "\xef\xbf\xbd", n ? n : 3);
        n = MAX(n, 1);
    }
    return json_of(b.failed ? NULL : b.data, b.len);
}

static int put_chunk(const char *data, size_t n, void *buf)
{
    base_buf_put(buf, data, n);
    return 0;
}

rtx_status cli_write_json(json_t *taken, const char *path, rtx_err *err)
{
    AUTO_BUF base_buf text;
    base_buf_init(&text, BASE_TAG_CLI, (size_t)1 << 30);
    if (text_lost || (taken == NULL && errno == ENOMEM)) {
        json_decref(taken);
        return FAIL(err, NOMEM, "out of memory");
    }
    if (taken == NULL)
        return FAIL(err, INTERNAL, "the result cannot be made into JSON");
    int failed =
        json_dump_callback(taken, put_chunk, &text, JSON_INDENT(1) | JSON_REAL_PRECISION(9));
    json_decref(taken);
    base_buf_puts(&text, "\n");
    TRY(base_buf_ok(&text, err));
    return failed ? FAIL(err, INTERNAL, "the result cannot be written as JSON")
                  : cli_write_file(path, text.data, text.len, err);
}

rtx_status cli_put_json(json_t *taken, rtx_err *err) { return cli_write_json(taken, "-", err); }

rtx_status cli_write_file(const char *path, const void *data, size_t bytes, rtx_err *err)
{
    if (strcmp(path, "-") != 0)
        return base_publish(path, &(base_part){data, bytes}, 1, err);
    if (bytes > 0 && fwrite(data, 1, bytes, stdout) != bytes)
        return FAIL(err, IO, "cannot write to standard output: %s", strerror(errno));
    return RTX_OK;
}

const char *cli_human(double bytes, char out[16])
{
    static const char *const unit[] = {"B", "KB", "MB", "GB", "TB"};
    size_t u = 0;
    while (bytes >= 1000 && u + 1 < COUNT_OF(unit)) {
        bytes /= 1000;
        u++;
    }
    snprintf(out, 16, u == 0 ? "%.0f %s" : "%.1f %s", bytes, unit[u]);
    return out;
}

void cli_put_name(const char *name, int width)
{
    for (; *name; name++, width--)
        fputc(base_printable(*name), stdout);
    printf("%*s", MAX(width, 0), "");
}

void cli_make_printable(json_t *v)
{
    size_t i;
    json_t *e;
    const char *key;
    if (json_is_string(v)) /* the bytes are v's own, and stay UTF-8 */
        base_make_printable((char *)(uintptr_t)json_string_value(v));
    json_array_foreach(v, i, e) cli_make_printable(e);
    json_object_foreach(v, key, e) cli_make_printable(e);
}

void cli_wrap_at(FILE *to, int column, int indent, const char *text)
{
    bool first = true;
    while (*text) {
        int n = (int)strcspn(text, " ");
        if (!first && column + 1 + n > 80) {
            fprintf(to, "\n%*s", indent, "");
            column = indent;
        } else if (!first) {
            fputc(' ', to);
            column++;
        }
        for (int i = 0; i < n; i++)
            fputc(base_printable(text[i]), to);
        column += n;
        text += n;
        text += strspn(text, " ");
        first = false;
    }
    fputc('\n', to);
}

void cli_wrap(FILE *to, int indent, const char *text)
{
    fprintf(to, "%*s", indent, "");
    cli_wrap_at(to, indent, indent, text);
}

/* ---- statistics ---- */

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

void cli_sort(double *v, size_t n) { qsort(v, n, sizeof *v, by_value); }

double cli_quantile(const double *sorted, size_t n, double q)
{
    if (n == 0)
        return 0;
    double at = q * (double)(n - 1);
    size_t i = (size_t)at;
    return i + 1 < n ? sorted[i] + (at - (double)i) * (sorted[i + 1] - sorted[i]) : sorted[n - 1];
}
