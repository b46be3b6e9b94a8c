/* The table of commands, the one option parser, and help text made from both.
 *   layer   top
 *   idea    a command is a row; its options are rows; nothing else parses argv */
#include "cli.h"
#include "dev_cpu.h"
#include <errno.h>
#include <math.h>
#include <stdlib.h>

static const cli_option common_options[] = {
    {"json", 0, CLI_FLAG, false, NULL, "one JSON object on stdout"},
    {"quiet", 'q', CLI_FLAG, false, NULL, "no progress"},
    {"help", 'h', CLI_FLAG, false, NULL, "this text"},
};

static cli_command commands[] = {
#define ROW(name, doc, lo, hi, stop)                                                               \
    {                                                                                              \
        #name,                                                                                     \
        doc,                                                                                       \
        cli_##name##_usage,                                                                        \
        cli_##name##_text,                                                                         \
        cli_##name##_options,                                                                      \
        0,                                                                                         \
        lo,                                                                                        \
        hi,                                                                                        \
        stop,                                                                                      \
        cli_##name,                                                                                \
        NULL},
    CLI_COMMANDS(ROW)
#undef ROW
};

const cli_command *cli_command_table(size_t *out_count)
{
    size_t i = 0; /* sizes of arrays of other files are no constant expressions */
#define ROW(name, doc, lo, hi, stop) commands[i++].n_options = cli_##name##_n_options;
    CLI_COMMANDS(ROW)
#undef ROW
    for (i = 0; i < COUNT_OF(commands); i++)
        if (strcmp(commands[i].name, "zoo") == 0)
            commands[i].more = cli_zoo_more;
    *out_count = COUNT_OF(commands);
    return commands;
}

/* Edits between two words, swaps of neighbours counted once. */
static int edit_distance(const char *a, const char *b)
{
    int d[24][24];
    int n = (int)strnlen(a, 22), m = (int)strnlen(b, 22);
    for (int i = 0; i <= n; i++)
        for (int j = 0; j <= m; j++) {
            if (i == 0 || j == 0) {
                d[i][j] = i + j;
                continue;
            }
            int same = a[i - 1] == b[j - 1] ? 0 : 1;
            d[i][j] = MIN(MIN(d[i - 1][j], d[i][j - 1]) + 1, d[i - 1][j - 1] + same);
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                d[i][j] = MIN(d[i][j], d[i - 2][j - 2] + 1);
        }
    return d[n][m];
}

static const char *nearer(const char *word, const char *candidate, const char *best)
{
    int now = edit_distance(word, candidate), limit = (int)strlen(candidate) / 2;
    if (now > limit || (best != NULL && edit_distance(word, best) <= now))
        return best;
    return candidate;
}

const cli_command *cli_command_find(const char *name, const char **out_near)
{
    size_t n;
    const cli_command *c = cli_command_table(&n);
    *out_near = NULL;
    for (size_t i = 0; i < n; i++) {
        if (strcmp(c[i].name, name) == 0)
            return &c[i];
        *out_near = nearer(name, c[i].name, *out_near);
    }
    return NULL;
}

/* ---- usage errors ---- */

static bool usage_failed;
bool cli_usage_failed(void) { return usage_failed; }

rtx_status cli_usage(rtx_err *err, const char *fmt, ...)
{
    char text[400];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    usage_failed = true;
    return FAIL(err, INVALID, "%s", text);
}

/* ---- parsing ---- */

static const cli_option *find_in(const cli_option *o, size_t n, const char *name, size_t len)
{
    for (size_t i = 0; i < n; i++)
        if (strlen(o[i].name) == len && memcmp(o[i].name, name, len) == 0)
            return &o[i];
    return NULL;
}

static const cli_option *find_long(const cli_command *c, const char *name, size_t len)
{
    const cli_option *o = find_in(c->options, c->n_options, name, len);
    if (o == NULL)
        o = find_in(common_options, COUNT_OF(common_options), name, len);
    if (o == NULL && c->more != NULL)
        o = c->more(name, len);
    return o;
}

static const cli_option *find_letter(const cli_command *c, char letter)
{
    for (size_t i = 0; i < c->n_options; i++)
        if (c->options[i].letter == letter)
            return &c->options[i];
    for (size_t i = 0; i < COUNT_OF(common_options); i++)
        if (common_options[i].letter == letter)
            return &common_options[i];
    return NULL;
}

static const char *near_option(const cli_command *c, const char *name)
{
    const char *best = NULL;
    for (size_t i = 0; i < c->n_options; i++)
        best = nearer(name, c->options[i].name, best);
    for (size_t i = 0; i < COUNT_OF(common_options); i++)
        best = nearer(name, common_options[i].name, best);
    return best;
}

static bool parse_bytes(const char *text, uint64_t *out)
{
    char *end;
    errno = 0;
    if (*text < '0' || *text > '9')
        return false;
    unsigned long long v = strtoull(text, &end, 10);
    int shift = *end == 'K' ? 10 : *end == 'M' ? 20 : *end == 'G' ? 30 : 0;
    if (shift)
        end++;
    if (errno || *end || v > UINT64_MAX >> shift)
        return false;
    *out = v << shift;
    return true;
}

static bool parse_count(const char *text, int64_t *out)
{
    char *end;
    errno = 0;
    long long v = strtoll(text, &end, 10);
    if (errno || end == text || *end || v < 0)
        return false;
    *out = v;
    return true;
}

static bool parse_seconds(const char *text, double *out)
{
    char *end;
    errno = 0;
    double v = strtod(text, &end);
    if (errno || end == text || *end || !(v > 0) || !isfinite(v))
        return false;
    *out = v;
    return true;
}

static bool is_choice(const char *words, const char *value)
{
    size_t len = strlen(value);
    for (const char *w = words; len > 0; w++) {
        size_t n = strcspn(w, "|");
        if (n == len && memcmp(w, value, n) == 0)
            return true;
        w += n;
        if (*w == '\0')
            return false;
    }
    return false;
}

static rtx_status check_value(const cli_option *o, const char *v, rtx_err *err)
{
    int64_t i;
    uint64_t u;
    double d;
    switch ((cli_kind)o->kind) {
    case CLI_COUNT:
        return parse_count(v, &i)
                   ? RTX_OK
                   : cli_usage(err, "--%s wants an integer of at least 0, not '%.60s'", o->name, v);
    case CLI_SECONDS:
        return parse_seconds(v, &d)
                   ? RTX_OK
                   : cli_usage(err, "--%s wants a number above 0, not '%.60s'", o->name, v);
    case CLI_BYTES:
        return parse_bytes(v, &u)
                   ? RTX_OK
                   : cli_usage(err, "--%s wants bytes such as 500M or 2G, not '%.60s'", o->name, v);
    case CLI_CHOICE:
        return is_choice(o->arg, v)
                   ? RTX_OK
                   : cli_usage(err, "--%s wants one of %s, not '%.60s'", o->name, o->arg, v);
    default:
        return RTX_OK;
    }
}

static rtx_status give(cli_args *a, const cli_option *o, const char *value, rtx_err *err)
{
    if (value != NULL)
        TRY(check_value(o, value, err));
    if (!o->many && o->kind != CLI_FLAG && cli_has(a, o->name))
        return cli_usage(err, "--%s is given twice", o->name);
    if (a->n_given == CLI_GIVEN_MAX)
        return cli_usage(err, "more than %d options", CLI_GIVEN_MAX);
    a->given[a->n_given++] = (cli_given){o, value};
    return RTX_OK;
}

static bool looks_like_file(const char *word)
{
    size_t n = word ? strlen(word) : 0;
    return word && (strcmp(word, "-") == 0 || (n > 5 && strcmp(word + n - 5, ".json") == 0));
}

static rtx_status parse_option(const cli_command *c, int argc, char **argv, int *at, cli_args *a,
                               rtx_err *err)
{
    const char *word = argv[*at], *value = NULL;
    const cli_option *o;
    if (word[1] == '-') {
        size_t len = strcspn(word + 2, "=");
        o = find_long(c, word + 2, len);
        if (word[2 + len] == '=')
            value = word + 2 + len + 1;
        if (o == NULL) {
            const char *near = near_option(c, word + 2);
            return cli_usage(err, "rtx %s has no option %.60s%s%s%s", c->name, word,
                             near ? "; did you mean --" : "", near ? near : "", near ? "?" : "");
        }
    } else {
        o = find_letter(c, word[1]);
        if (o == NULL)
            return cli_usage(err, "rtx %s has no option -%c", c->name, word[1]);
        if (word[2] != '\0')
            value = word + 2;
    }
    if (o->kind == CLI_FLAG && value != NULL)
        return cli_usage(err, "--%s takes no value", o->name);
    if (o->kind == CLI_FILE_OPT && value == NULL && *at + 1 < argc &&
        (looks_like_file(argv[*at + 1]) || (a->n_pos == c->max_pos && argv[*at + 1][0] != '-')))
        value = argv[++*at];
    if (o->kind != CLI_FLAG && o->kind != CLI_FILE_OPT && value == NULL) {
        if (*at + 1 >= argc)
            return cli_usage(err, "--%s wants a value: --%s %s", o->name, o->name, o->arg);
        value = argv[++*at];
    }
    return give(a, o, value, err);
}

/* Standard input is read to its end by the first that takes it. */
static rtx_status check_stdin(const cli_args *a, rtx_err *err)
{
    int takes = 0;
    for (int i = 0; i < a->n_pos; i++)
        takes += strcmp(a->pos[i], "-") == 0;
    for (int i = 0; i < a->n_given; i++) {
        const char *v = a->given[i].value;
        size_t n = a->given[i].option->kind == CLI_READS ? strlen(v) : 0;
        takes += n > 0 && v[n - 1] == '-' && (n == 1 || v[n - 2] == '=');
    }
    return takes < 2 ? RTX_OK : cli_usage(err, "standard input can be read once");
}

static rtx_status one_too_many(const cli_args *a, const char *word, rtx_err *err)
{
    const cli_command *c = a->command;
    for (int i = 0; i < a->n_given; i++)
        if (a->given[i].option->kind == CLI_FILE_OPT && a->given[i].value == NULL)
            return cli_usage(err, "one word too many: '%.100s'; a file of --%s here is --%s=FILE",
                             word, a->given[i].option->name, a->given[i].option->name);
    return cli_usage(err, "one word too many: '%.100s'; usage: rtx %s %s", word, c->name, c->usage);
}

rtx_status cli_parse(const cli_command *c, int argc, char **argv, cli_args *a, rtx_err *err)
{
    memset(a, 0, sizeof *a);
    a->command = c;
    base_arena_init(&a->mem, BASE_TAG_CLI, (size_t)1 << 24);
    bool only_words = false;
    for (int i = 0; i < argc; i++) { /* help wins over every mistake beside it */
        if (strcmp(argv[i], "--") == 0)
            break;
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
            a->given[a->n_given++] = (cli_given){find_letter(c, 'h'), NULL};
            return RTX_OK;
        }
    }
    for (int i = 0; i < argc; i++) {
        const char *word = argv[i];
        if (!only_words && strcmp(word, "--") == 0)
            only_words = true;
        else if (!only_words && word[0] == '-' && word[1] != '\0')
            TRY(parse_option(c, argc, argv, &i, a, err));
        else if (a->n_pos == c->max_pos)
            return one_too_many(a, word, err);
        else
            a->pos[a->n_pos++] = word;
    }
    a->json = cli_has(a, "json");
    a->quiet = cli_has(a, "quiet");
    if (a->n_pos < c->min_pos)
        return cli_usage(err, "rtx %s wants more; usage: rtx %s %s", c->name, c->name, c->usage);
    return check_stdin(a, err);
}

/* ---- values ---- */

static const cli_given *last_given(const cli_args *a, const char *name)
{
    for (int i = a->n_given; i-- > 0;)
        if (strcmp(a->given[i].option->name, name) == 0)
            return &a->given[i];
    return NULL;
}

bool cli_has(const cli_args *a, const char *name) { return last_given(a, name) != NULL; }

const char *cli_text(const cli_args *a, const char *name)
{
    const cli_given *g = last_given(a, name);
    return g ? g->value : NULL;
}

int64_t cli_count(const cli_args *a, const char *name, int64_t without)
{
    const char *t = cli_text(a, name);
    return t && parse_count(t, &without) ? without : without;
}

double cli_seconds(const cli_args *a, const char *name, double without)
{
    const char *t = cli_text(a, name);
    return t && parse_seconds(t, &without) ? without : without;
}

uint64_t cli_bytes(const cli_args *a, const char *name, uint64_t without)
{
    const char *t = cli_text(a, name);
    return t && parse_bytes(t, &without) ? without : without;
}

const char *cli_next(const cli_args *a, const char *name, int *at)
{
    while (*at < a->n_given) {
        const cli_given *g = &a->given[(*at)++];
        if (strcmp(g->option->name, name) == 0)
            return g->value;
    }
    return NULL;
}

/* Numbers of at least `lo`, joined by sep. */
static bool parse_list(const char *text, char sep, int64_t *out, int *out_n)
{
    *out_n = 0;
    if (*text == '\0')
        return true;
    for (;;) {
        char *end;
        errno = 0;
        long long v = strtoll(text, &end, 10);
        if (errno || end == text || v < 0 || *out_n == PIPE_VALUES_MAX)
            return false;
        out[(*out_n)++] = v;
        if (*end == '\0')
            return true;
        if (*end != sep)
            return false;
        text = end + 1;
    }
}

rtx_status cli_sizes(cli_args *a, const char *option, const char *text, char sep, pipe_sizes *out,
                     rtx_err *err)
{
    const char *eq = strrchr(text, '=');
    *out = (pipe_sizes){0};
    if (eq == NULL || eq == text || !parse_list(eq + 1, sep, out->value, &out->n))
        return cli_usage(err, "--%s wants NAME=SIZES joined by '%c' (at most %d), not '%.100s'",
                         option, sep, PIPE_VALUES_MAX, text);
    TRY_ALLOC(out->name = base_arena_strn(&a->mem, text, (size_t)(eq - text)), err);
    return RTX_OK;
}

static rtx_status read_sizes(cli_args *a, const char *option, char sep, pipe_sizes *out, int *out_n,
                             rtx_err *err)
{
    const char *text;
    for (int at = 0; (text = cli_next(a, option, &at)) != NULL;) {
        if (*out_n == PIPE_LIST_MAX)
            return cli_usage(err, "--%s is given more than %d times", option, PIPE_LIST_MAX);
        TRY(cli_sizes(a, option, text, sep, &out[(*out_n)++], err));
    }
    return RTX_OK;
}

static int by_size(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return x < y ? -1 : x > y;
}

/* Sorted and each once, as the rows of a plan are. */
static int sort_unique(int64_t *v, int n)
{
    int kept = 0;
    qsort(v, (size_t)n, sizeof *v, by_size);
    for (int i = 0; i < n; i++)
        if (i == 0 || v[i] != v[i - 1])
            v[kept++] = v[i];
    return kept;
}

static rtx_status read_threads(const char *text, pipe_options *o, rtx_err *err)
{
    int64_t v[PIPE_VALUES_MAX];
    int n;
    bool ok = parse_list(text, ',', v, &n) && n > 0;
    n = ok ? sort_unique(v, n) : 0;
    if (!ok || v[0] < 1 || v[n - 1] > BASE_POOL_MAX)
        return cli_usage(err, "--threads wants counts from 1 to %d joined by ',', not '%.60s'",
                         BASE_POOL_MAX, text);
    for (int i = 0; i < n; i++)
        o->threads[o->n_threads++] = (int)v[i];
    return RTX_OK;
}

rtx_status cli_pipe_options(cli_args *a, pipe_options *o, rtx_err *err)
{
    memset(o, 0, sizeof *o);
    TRY(read_sizes(a, "shape", 'x', o->shapes, &o->n_shapes, err));
    TRY(read_sizes(a, "bucket", ',', o->buckets, &o->n_buckets, err));
    TRY(read_sizes(a, "bound", ':', o->bounds, &o->n_bounds, err));
    for (int i = 0; i < o->n_buckets; i++) {
        pipe_sizes *b = &o->buckets[i];
        b->n = sort_unique(b->value, b->n);
        if (b->n == 0 || b->value[0] < 1)
            return cli_usage(err, "--bucket %s wants sizes of at least 1", b->name);
    }
    for (int i = 0; i < o->n_bounds; i++)
        if (o->bounds[i].n != 2 || o->bounds[i].value[0] > o->bounds[i].value[1])
            return cli_usage(err, "--bound %s wants LO:HI with LO at most HI", o->bounds[i].name);
    if (cli_text(a, "threads"))
        TRY(read_threads(cli_text(a, "threads"), o, err));
    const char *precision = cli_text(a, "precision"), *tune = cli_text(a, "tune"),
               *isa = cli_text(a, "isa");
    if (precision && strcmp(precision, "fp32") != 0)
        return FAIL(err, UNSUPPORTED,
                    "UNSUPPORTED: precision %.40s: this version computes in fp32 only; leave "
                    "--precision away",
                    precision);
    o->tune = tune == NULL || *tune == 'q' ? PIPE_QUICK : *tune == 'f' ? PIPE_FULL : PIPE_OFF;
    o->isa = isa ? (fmt_isa)(isa[1] - '0') : (fmt_isa)0;
    o->budget_s = cli_seconds(a, "budget", 0);
    o->deterministic = cli_has(a, "deterministic");
    TRY(cli_cache_dir(a, &o->cache, err));
    o->progress = cli_progress;
    return RTX_OK;
}

rtx_status cli_cache_dir(const cli_args *a, const char **out, rtx_err *err)
{
    const char *dir = cli_text(a, "cache");
    if (dir && strlen(dir) >= CLI_CACHE_MAX)
        return FAIL(err, LIMIT, "--cache names a folder of %zu bytes; at most %d are allowed",
                    strlen(dir), CLI_CACHE_MAX - 1);
    *out = dir;
    return RTX_OK;
}

rtx_status cli_host_isa(fmt_isa *out, rtx_err *err) { return dev_isa_allowed(out, err); }

/* ---- help ---- */

enum { HELP_INDENT = 29, USAGE_INDENT = 10 };

static void help_option(FILE *to, const cli_option *o)
{
    char left[80];
    int n = o->letter ? snprintf(left, sizeof left, "-%c, --%s", o->letter, o->name)
                      : snprintf(left, sizeof left, "--%s", o->name);
    if (o->arg != NULL)
        snprintf(left + n, sizeof left - (size_t)n, o->kind == CLI_FILE_OPT ? " [%s]" : " %s",
                 o->arg);
    char doc[256];
    snprintf(doc, sizeof doc, "%s%s", o->doc, o->many ? " (repeatable)" : "");
    n = fprintf(to, "  %-26s ", left);
    if (n > HELP_INDENT)
        n = fprintf(to, "\n%*s", HELP_INDENT, "") - 1;
    cli_wrap_at(to, n, HELP_INDENT, doc);
}

/* Broken before an option, never within its brackets. */
static void help_usage(FILE *to, const cli_command *c)
{
    int column = fprintf(to, "usage: rtx %s", c->name);
    for (const char *word = c->usage; *word;) {
        int n = 0;
        for (int depth = 0; word[n] && (depth > 0 || word[n] != ' '); n++)
            depth += word[n] == '[' ? 1 : word[n] == ']' ? -1 : 0;
        if (column + 1 + n > 80)
            column = fprintf(to, "\n%*s", USAGE_INDENT, "") - 1;
        column += fprintf(to, " %.*s", n, word);
        word += n + (word[n] == ' ');
    }
    fputs("\n\n", to);
}

/* Lines that fit stay as they are: lists are aligned by spaces. */
static void help_text(FILE *to, const char *text)
{
    while (*text) {
        char line[1024];
        size_t n = strcspn(text, "\n");
        snprintf(line, sizeof line, "%.*s", (int)n, text);
        if (n > 80)
            cli_wrap(to, 0, line);
        else
            fprintf(to, "%s\n", line);
        text += n + (text[n] == '\n');
    }
}

void cli_help(FILE *to, const cli_command *c)
{
    if (c == NULL) {
        size_t n;
        const cli_command *all = cli_command_table(&n);
        fputs("usage: rtx COMMAND [WORDS] [--options]\n\n"
              "Compile a model for exactly this machine and run it from one file.\n\n"
              "  rtx compile model.onnx            writes model.rtxgc\n"
              "  rtx run model.rtxgc               shows what the program expects\n\ncommands:\n",
              to);
        for (size_t i = 0; i < n; i++)
            fprintf(to, "  %-10s %s\n", all[i].name, all[i].doc);
        fputs("\n`rtx COMMAND --help` explains one command; `rtx --version` names this build.\n",
              to);
        cli_wrap_at(to, 0, 12,
                    "exit codes: 0 ok, 1 error, 2 usage, 3 unsupported, 4 signature or policy, 130 "
                    "Ctrl-C");
        return;
    }
    help_usage(to, c);
    help_text(to, c->text);
    fputs("\noptions:\n", to);
    for (size_t i = 0; i < c->n_options; i++)
        help_option(to, &c->options[i]);
    for (size_t i = 0; i < COUNT_OF(common_options); i++)
        if (find_in(c->options, c->n_options, common_options[i].name,
                    strlen(common_options[i].name)) == NULL)
            help_option(to, &common_options[i]);
}
