/* Files named on the command line: standard input as one of them, bundles and models told apart, outputs that can be written;
 * and the scratch folder.
 *   layer   top
 *   rule    what can be known of an output is known before the work for it begins */
#include "cli.h"
#include "fmt_bundle.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

/* ---- scratch ---- */

rtx_status cli_scratch_new(cli_scratch *s, rtx_err *err)
{
    memset(s, 0, sizeof *s);
    int n = snprintf(s->dir, sizeof s->dir, "%s/rtx-XXXXXX", base_env(BASE_ENV_TMPDIR));
    if (n < 0 || (size_t)n >= sizeof s->dir) {
        s->dir[0] = '\0';
        return FAIL(err, LIMIT, "TMPDIR has %zu bytes; set it to a folder of at most %zu",
                    strlen(base_env(BASE_ENV_TMPDIR)), sizeof s->dir - sizeof "/rtx-XXXXXX");
    }
    if (mkdtemp(s->dir) == NULL) {
        int e = errno;
        s->dir[0] = '\0';
        return FAIL(err, IO, "cannot make a folder in %s: %s; set TMPDIR to another place",
                    base_env(BASE_ENV_TMPDIR), strerror(e));
    }
    return RTX_OK;
}

const char *cli_scratch_path(cli_scratch *s, const char *name)
{
    char dir[sizeof s->dir], *path = s->path[s->n < (int)COUNT_OF(s->path) - 1 ? s->n++ : s->n];
    memcpy(dir, s->dir, sizeof dir);
    snprintf(path, sizeof s->path[0], "%s/%.80s", dir, name);
    return path;
}

void cli_scratch_done(cli_scratch *s)
{
    if (s->dir[0] == '\0')
        return;
    for (int i = 0; i < (int)COUNT_OF(s->path); i++)
        if (s->path[i][0])
            unlink(s->path[i]);
    rmdir(s->dir);
    s->dir[0] = '\0';
}

/* ---- inputs ---- */

#define STDIN_MOST ((size_t)4 << 30)

static char spooled[CLI_DIR_MAX + 128]; /* where standard input lies, for messages */

const char *cli_stdin_name(const char **text)
{
    size_t n = strlen(spooled);
    if (n == 0 || strncmp(*text, spooled, n) != 0)
        return "";
    *text += n;
    return "standard input";
}

static bool is_magic(const char *data, size_t bytes)
{
    return bytes >= sizeof FMT_BUNDLE_MAGIC - 1 &&
           memcmp(data, FMT_BUNDLE_MAGIC, sizeof FMT_BUNDLE_MAGIC - 1) == 0;
}

static bool begins_as_bundle(const char *path)
{
    char head[sizeof FMT_BUNDLE_MAGIC - 1];
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    ssize_t got = fd >= 0 ? read(fd, head, sizeof head) : 0;
    if (fd >= 0)
        close(fd);
    return got > 0 && is_magic(head, (size_t)got);
}

static bool ends_with(const char *path, const char *end)
{
    size_t n = strlen(path), m = strlen(end);
    return n > m && strcmp(path + n - m, end) == 0;
}

bool cli_is_bundle(const char *path)
{
    return begins_as_bundle(path) || (ends_with(path, ".rtxgc") && access(path, F_OK) == 0);
}

rtx_status cli_spool(const char **path, cli_scratch *s, rtx_err *err)
{
    if (*path == NULL || strcmp(*path, "-") != 0)
        return RTX_OK;
    AUTO_FREE char *data = NULL;
    size_t bytes;
    TRY(base_read_file("-", STDIN_MOST, &data, &bytes, err));
    if (s->dir[0] == '\0')
        TRY(cli_scratch_new(s, err));
    *path = cli_scratch_path(s, is_magic(data, bytes) ? "stdin.rtxgc" : "stdin.onnx");
    snprintf(spooled, sizeof spooled, "%s", *path);
    return base_publish(*path, &(base_part){data, bytes}, 1, err);
}

rtx_status cli_model_file(const char **path, cli_scratch *s, rtx_err *err)
{
    const char *given = *path;
    TRY(cli_spool(path, s, err));
    if (cli_is_bundle(*path))
        return FAIL(err, INVALID,
                    "%s is a bundle, where a model is wanted; `rtx tune` tunes a bundle again, "
                    "`rtx run` runs it",
                    strcmp(given, "-") == 0 ? "standard input" : given);
    return RTX_OK;
}

rtx_status cli_bundle_file(const char **path, cli_scratch *s, rtx_err *err)
{
    const char *given = *path;
    bool zoo = strncmp(given, "zoo:", 4) == 0, onnx = ends_with(given, ".onnx");
    TRY(cli_spool(path, s, err));
    if (zoo || ((onnx || ends_with(given, ".rtx")) && access(given, F_OK) == 0 &&
                !begins_as_bundle(given)))
        return FAIL(err, INVALID, "%s is %s, not a bundle; `rtx compile %s` makes a bundle of it",
                    given, onnx ? "an ONNX model" : "a model", given);
    return RTX_OK;
}

/* ---- outputs ---- */

rtx_status cli_check_out(const char *path, rtx_err *err)
{
    if (strcmp(path, "-") == 0)
        return RTX_OK;
    if (*path == '\0')
        return cli_usage(err, "the output's name is empty; name a file, or - for standard output");
    return base_publish_check(path, err);
}

rtx_status cli_check_binary(const cli_args *a, const char *path, rtx_err *err)
{
    bool to_stdout = strcmp(path, "-") == 0;
    if (to_stdout && a->json)
        return cli_usage(err, "--json and -o - both want standard output");
    if (to_stdout && isatty(STDOUT_FILENO))
        return cli_usage(err, "the result is no text for a terminal; redirect standard output");
    return cli_check_out(path, err);
}
