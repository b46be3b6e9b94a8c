/* What the commands share: the command table, parsed arguments, results, progress.
 *   layer      top; commands call the pipeline and the runtime, nothing calls them
 *   owner      parsed arguments and the texts made from them live until the process ends (cli_args.mem)
 *   streams    results go to stdout, everything else to stderr; with --json stdout holds one JSON object
 *   exit       rtx_status_exit of what the command returned; 2 after cli_usage */
#ifndef CLI_H
#define CLI_H

#include "pipeline.h"
#include <jansson.h>

typedef enum cli_kind {
    CLI_FLAG,
    CLI_TEXT,
    CLI_COUNT,   /* integer of at least 0 */
    CLI_SECONDS, /* number above 0 */
    CLI_BYTES,   /* integer with an optional K, M or G */
    CLI_CHOICE,  /* one of the words of `arg`, separated by | */
    CLI_READS,   /* file that is read, or NAME=FILE; - is standard input */
    CLI_FILE_OPT /* value may be missing: taken after =, or if the next word is - or ends in .json, or is no other word */
} cli_kind;

typedef struct cli_option {
    const char *name;
    char letter; /* of the short form, or 0 */
    uint8_t kind;
    bool many; /* may be given several times */
    const char *arg, *doc;
} cli_option;

typedef struct cli_given {
    const cli_option *option;
    const char *value;
} cli_given;

enum { CLI_GIVEN_MAX = 256, CLI_POS_MAX = 8 };

struct cli_command;
typedef struct cli_args {
    const struct cli_command *command;
    const char *pos[CLI_POS_MAX];
    int n_pos;
    cli_given given[CLI_GIVEN_MAX];
    int n_given;
    bool json, quiet;
    base_arena mem;
} cli_args;

typedef rtx_status (*cli_fn)(cli_args *a, rtx_err *err);
/* Options that depend on other tables (`zoo export`): the option of a name, or NULL. */
typedef const cli_option *(*cli_more_fn)(const char *name, size_t len);

typedef struct cli_command {
    const char *name, *doc;
    const char *usage; /* words after the name */
    const char *text;  /* of the help: a line is a paragraph and is wrapped, unless it fits */
    const cli_option *options;
    size_t n_options;
    int min_pos, max_pos;
    bool clean_stop; /* asks base_go_on; others end at once on Ctrl-C */
    cli_fn run;
    cli_more_fn more;
} cli_command;

/* X(name, one line, smallest and largest number of words, stops cleanly) — texts and options stand in the file of the command. */
#define CLI_COMMANDS(X)                                                                            \
    X(compile, "compile a model into one .rtxgc file, tuned for this machine", 1, 1, true)         \
    X(run, "run a compiled program, or show what it expects", 1, 1, false)                         \
    X(compare, "error of every output and node against the fp64 oracle", 1, 2, true)               \
    X(tune, "tune a bundle in place, or a model, on this machine", 1, 1, true)                     \
    X(inspect, "manifest, buckets, kernels and sizes of a bundle", 1, 1, false)                    \
    X(explain, "why each kernel was chosen, and why the others lost", 1, 2, false)                 \
    X(bench, "tuned against baseline, as a ratio with its interval", 1, 1, true)                   \
    X(profile, "measure this machine: peaks, caches, latencies", 0, 0, true)                       \
    X(cache, "tuning cache: stat, verify or gc", 1, 1, false)                                      \
    X(info, "version, processor, compiler, cache, environment", 0, 0, false)                       \
    X(zoo, "built-in models: list them, or export one as ONNX", 1, 2, false)                       \
    X(opt, "run single passes on IR text", 1, 1, false)                                            \
    X(repro, "run the repro file of a crashed or rejected kernel again", 1, 1, false)

#define CLI_COMMAND(name, doc, lo, hi, stop)                                                       \
    rtx_status cli_##name(cli_args *a, rtx_err *err);                                              \
    extern const char cli_##name##_usage[], cli_##name##_text[];                                   \
    extern const cli_option cli_##name##_options[];                                                \
    extern const size_t cli_##name##_n_options;
CLI_COMMANDS(CLI_COMMAND)
#undef CLI_COMMAND
const cli_option *cli_zoo_more(const char *name, size_t len);

/* ---- arguments (cli_args.c) ---- */

const cli_command *cli_command_table(size_t *out_count);
/* The command of a name; NULL if there is none, then *out_near is the closest name or NULL. */
const cli_command *cli_command_find(const char *name, const char **out_near);
RTX_MUST_CHECK rtx_status cli_parse(const cli_command *c, int argc, char **argv, cli_args *out,
                                    rtx_err *err);
void cli_help(FILE *to, const cli_command *c); /* NULL = of rtx itself */

/* Record a wrong use of the command line: the process ends with 2 and a hint. */
rtx_status cli_usage(rtx_err *err, const char *fmt, ...) RTX_PRINTF(2, 3);
bool cli_usage_failed(void);

bool cli_has(const cli_args *a, const char *name);
const char *cli_text(const cli_args *a, const char *name); /* last value, NULL if not given */
int64_t cli_count(const cli_args *a, const char *name, int64_t without);
double cli_seconds(const cli_args *a, const char *name, double without);
uint64_t cli_bytes(const cli_args *a, const char *name, uint64_t without);
/* Next value of a repeatable option; *at starts at 0. */
const char *cli_next(const cli_args *a, const char *name, int *at);
/* NAME=1x128 with the separator 'x': the last '=' splits. */
RTX_MUST_CHECK rtx_status cli_sizes(cli_args *a, const char *option, const char *text, char sep,
                                    pipe_sizes *out, rtx_err *err);

/* Options that say how a model is compiled, with their reading. */
#define CLI_MODEL_OPTIONS(tuning)                                                                    \
    {"shape", 0, CLI_TEXT, true, "NAME=1x128", "fix the shape of an input"},                         \
        {"bucket", 0, CLI_TEXT, true, "SYM=32,64", "sizes of a symbol to tune at"},                  \
        {"bound", 0, CLI_TEXT, true, "SYM=1:2048", "range of a symbol; beyond it a run is refused"}, \
        {"threads", 0,     CLI_TEXT,                                                                 \
         false,     "1,2", "thread counts to tune for (default: 1 and all CPUs)"},                   \
        {"precision", 0, CLI_TEXT, false, "fp32", "arithmetic; only fp32 in this version"},          \
        {"tune", 0, CLI_CHOICE, false, tuning, "how much to measure (default quick)"},               \
        {"budget", 0, CLI_SECONDS, false, "SECONDS", "time for tuning (default 90 with quick)"},     \
        {"deterministic", 0,    CLI_FLAG,                                                            \
         false,           NULL, "use only kernels whose results repeat bit for bit"},                \
        {"cache", 0,     CLI_TEXT,                                                                   \
         false,   "DIR", "tuning cache; '' = none (default: `rtx info` shows it)"},                  \
    {                                                                                                \
        "isa", 0, CLI_CHOICE, false, "v2|v3|v4", "highest instruction level to tune for"             \
    }
RTX_MUST_CHECK rtx_status cli_pipe_options(cli_args *a, pipe_options *out, rtx_err *err);
/* --cache: NULL = the default, "" = none. */
RTX_MUST_CHECK rtx_status cli_cache_dir(const cli_args *a, const char **out, rtx_err *err);

RTX_MUST_CHECK rtx_status
cli_host_isa(fmt_isa *out, rtx_err *err); /* level of this machine, lowered by RTX_ISA */

/* ---- output (cli_out.c) ---- */

void cli_out_init(bool quiet);
/* Bytes of the user or of a file as a JSON string: what is no UTF-8 becomes U+FFFD. NULL = out of memory. */
json_t *cli_json_text(const char *text);
/* NULL = it could not be made: NOMEM where memory was wanted. */
RTX_MUST_CHECK rtx_status cli_put_json(json_t *taken, rtx_err *err);
/* The same to a file, published atomically; "-" = stdout. */
RTX_MUST_CHECK rtx_status cli_write_json(json_t *taken, const char *path, rtx_err *err);
RTX_MUST_CHECK rtx_status cli_write_file(const char *path, const void *data, size_t bytes,
                                         rtx_err *err); /* "-" = stdout */
/* Every print is checked once, at the end. */
RTX_MUST_CHECK rtx_status cli_flush(rtx_err *err);
void cli_progress(void *ctx, const tun_progress *p); /* for pipe_options.progress */
void cli_step(const char *stage, const char *what, uint32_t done, uint32_t total);
void cli_progress_end(void);
void cli_log(void *user, int level, const char *line); /* for rtx_log_to */
void cli_warnings(json_t *into); /* the log's warnings go there too; NULL = no longer */
void cli_error(const rtx_err *e, const char *command);
const char *cli_human(double bytes, char out[16]); /* "91.2 MB" */
/* A name out of a file, padded to width: control bytes become spaces, as in errors. */
void cli_put_name(const char *name, int width);
void cli_make_printable(json_t *v); /* the same for all texts inside, keys left out */
/* Text wrapped at 80 columns with a hanging indent; _at goes on where `column` characters of the line stand already. */
void cli_wrap(FILE *to, int indent, const char *text);
void cli_wrap_at(FILE *to, int column, int indent, const char *text);

/* ---- files (cli_file.c) ---- */

/* Bytes of a folder's path, the closing NUL among them; the tuner keeps no longer one of a cache. */
enum { CLI_DIR_MAX = 512, CLI_CACHE_MAX = 400 };
/* A private folder that disappears with cli_scratch_done; files in it are named by cli_scratch_path. */
typedef struct cli_scratch {
    char dir[CLI_DIR_MAX];
    char path[8][CLI_DIR_MAX + 128];
    int n;
} cli_scratch;
RTX_MUST_CHECK rtx_status cli_scratch_new(cli_scratch *s, rtx_err *err);
const char *cli_scratch_path(cli_scratch *s, const char *name);
void cli_scratch_done(cli_scratch *s); /* zeroed allowed */
/* "-": standard input is spooled into the scratch folder, *path becomes its path. NULL is left alone. */
RTX_MUST_CHECK rtx_status cli_spool(const char **path, cli_scratch *s, rtx_err *err);
/* The same for a word that must be a model, or a bundle: the other of the two is refused, with what to do. An open bundle needs
 * its spooled file no longer. */
RTX_MUST_CHECK rtx_status cli_model_file(const char **path, cli_scratch *s, rtx_err *err);
RTX_MUST_CHECK rtx_status cli_bundle_file(const char **path, cli_scratch *s, rtx_err *err);
bool cli_is_bundle(const char *path);
/* If *text begins with the path of spooled input: moves behind it and gives the name to print; else "". */
const char *cli_stdin_name(const char **text);
/* Before the work: can a file be put there? "-" can. */
RTX_MUST_CHECK rtx_status cli_check_out(const char *path, rtx_err *err);
/* The same where the result is no text: neither with --json nor to a terminal. */
RTX_MUST_CHECK rtx_status cli_check_binary(const cli_args *a, const char *path, rtx_err *err);

/* ---- arrays (cli_npy.c) ---- */
#include "rtx/run.h"

/* Read a .npy file ("-" = stdin). t->data is fresh memory (base_free). */
RTX_MUST_CHECK rtx_status cli_npy_read(const char *path, rtx_tensor *out, rtx_err *err);
RTX_MUST_CHECK rtx_status cli_npy_write(const char *path, const rtx_tensor *t, rtx_err *err);
uint64_t cli_tensor_bytes(const rtx_tensor *t);

/* ---- inputs made up for a model (cli_feed.c) ---- */

typedef struct cli_rng {
    uint64_t s;
} cli_rng;
uint64_t cli_rand(cli_rng *r);
double cli_uniform(cli_rng *r); /* [0, 1) */

/* Sizes of the symbols of a model: those given, else small ones within the bounds. */
typedef struct cli_case {
    int64_t value[64];
    uint32_t n;
} cli_case;

typedef struct cli_feed {
    rtx_tensor *t;
    uint32_t n;
} cli_feed;
/* Seeded inputs of a graph: floats are normal, inputs named like a mask are ones, integers are indices that every constant
 * table they reach can answer. */
RTX_MUST_CHECK rtx_status cli_feed_make(const ir_graph *g, const cli_case *c, cli_rng *rng,
                                        cli_feed *out, rtx_err *err);
void cli_feed_done(cli_feed *f);
/* Free symbols of the inputs in the order of their axes. */
uint32_t cli_symbols(const ir_graph *g, uint32_t *out, uint32_t cap);

/* Outputs of one run, memory included. */
typedef struct cli_result {
    rtx_tensor *t;
    size_t n;
} cli_result;
RTX_MUST_CHECK rtx_status cli_result_new(rtx_program *p, const cli_feed *f, cli_result *out,
                                         rtx_err *err);
void cli_result_done(cli_result *r);

/* Difference of a tensor from its reference: norm-wise for floats, share of differing elements otherwise. NaN must meet NaN and
 * infinity the same infinity; otherwise the error is infinite. */
double cli_difference(const rtx_tensor *got, const ir_tensor *want);

/* ---- tune a bundle from its own problems (cli_retune.c) ---- */
RTX_MUST_CHECK rtx_status cli_retune(const pipe_options *o, const char *in, const char *out,
                                     json_t **out_report, rtx_err *err);

/* ---- statistics ---- */
void cli_sort(double *v, size_t n);
double cli_quantile(const double *sorted, size_t n, double q);

#endif
