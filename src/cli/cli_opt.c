/* rtx opt: single passes on IR text.
 *   layer   top */
#include "cli.h"

const char cli_opt_usage[] = "--pass=P [--pass=Q]... FILE.rtx";
const char cli_opt_text[] =
    "Read IR text (- for standard input), run the passes in the given order, print IR text. "
    "Without "
    "--pass, only parse and print. Passes, in the order of a compilation:\n"
    "  fold    shape arithmetic and constants disappear, views compose\n"
    "  raise   softmax, norms, attention and others are recognised by meaning\n"
    "  layout  dots that share an operand merge, weights get their packed form\n"
    "  cse     equal nodes become one, dead ones go (a rebuild does both)\n";
const cli_option cli_opt_options[] = {
    {"pass", 'p', CLI_TEXT, true, "P", "pass to run, or `all`"},
    {"out", 'o', CLI_TEXT, false, "FILE", "where the text goes (default standard output)"},
    {"verify", 0, CLI_FLAG, false, NULL, "check every node after each pass"},
    {"names", 0, CLI_FLAG, false, NULL, "print model node names as comments"},
};
const size_t cli_opt_n_options = COUNT_OF(cli_opt_options);

static ir_id keep(void *ctx, const ir_graph *old, ir_id id, ir_graph *g, const ir_id *in)
{
    (void)ctx;
    return ir_copy_node(g, old, id, in);
}

static rtx_status rebuild(const ir_graph *g, ir_graph **out, rtx_err *err)
{
    return ir_rewrite(g, keep, NULL, out, err);
}

typedef rtx_status (*pass_fn)(const ir_graph *g, ir_graph **out, rtx_err *err);

static rtx_status find_pass(const char *name, pass_fn *out, rtx_err *err)
{
    size_t n;
    const pass_info *p = pass_table(&n);
    *out = strcmp(name, "cse") == 0 ? rebuild : NULL;
    for (size_t i = 0; i < n; i++)
        if (strcmp(p[i].name, name) == 0)
            *out = p[i].run;
    return *out ? RTX_OK
                : cli_usage(err, "there is no pass '%.60s'; `rtx opt --help` lists them", name);
}

static rtx_status apply(ir_graph **g, pass_fn run, bool verify, rtx_err *err)
{
    ir_graph *next = NULL;
    rtx_status s = run(*g, &next, err);
    if (s == RTX_OK && verify)
        s = ir_verify(next, err);
    if (s != RTX_OK) {
        ir_graph_free(next);
        return s;
    }
    ir_graph_free(*g);
    *g = next;
    return RTX_OK;
}

static rtx_status apply_all(const cli_args *a, ir_graph **g, rtx_err *err)
{
    const char *name;
    bool verify = cli_has(a, "verify");
    if (verify)
        TRY(ir_verify(*g, err));
    for (int at = 0; (name = cli_next(a, "pass", &at)) != NULL;) {
        size_t n = 0;
        const pass_info *p = pass_table(&n);
        if (strcmp(name, "all") != 0) {
            pass_fn run;
            TRY(find_pass(name, &run, err));
            TRY(apply(g, run, verify, err));
            continue;
        }
        for (size_t i = 0; i < n; i++)
            TRY(apply(g, p[i].run, verify, err));
    }
    return RTX_OK;
}

static rtx_status check_names(const cli_args *a, rtx_err *err)
{
    const char *name;
    pass_fn run;
    for (int at = 0; (name = cli_next(a, "pass", &at)) != NULL;)
        if (strcmp(name, "all") != 0)
            TRY(find_pass(name, &run, err));
    return RTX_OK;
}

/* The word after "func @", so that text in and out keep their name. */
static void func_name(const char *text, char *out, size_t cap)
{
    const char *at = strstr(text, "func @");
    size_t n = at ? strcspn(at + 6, "( \n") : 0;
    snprintf(out, cap, "%.*s", (int)MIN(n, cap - 1), at ? at + 6 : "");
}

rtx_status cli_opt(cli_args *a, rtx_err *err)
{
    AUTO_FREE char *text = NULL;
    AUTO_BUF base_buf out;
    base_buf_init(&out, BASE_TAG_CLI, (size_t)2 << 30);
    size_t len;
    char name[128];
    TRY(check_names(a, err));
    const char *to = cli_text(a, "out") ? cli_text(a, "out") : "-";
    TRY(cli_check_out(to, err));
    TRY(base_read_file(a->pos[0], (size_t)1 << 30, &text, &len, err));
    func_name(text, name, sizeof name);
    fmt_dims *dims = fmt_dims_new();
    TRY_ALLOC(dims, err);
    ir_graph *g = NULL;
    rtx_status s = ir_parse(text, len, dims, &g, err);
    if (s == RTX_OK)
        s = apply_all(a, &g, err);
    if (s == RTX_OK)
        ir_print(g, name, IR_TEXT_DATA | (cli_has(a, "names") ? IR_TEXT_NAMES : 0), &out);
    ir_graph_free(g);
    fmt_dims_free(dims);
    TRY(s);
    TRY(base_buf_ok(&out, err));
    if (a->json)
        return cli_write_json(
            json_pack("{s:o, s:o}", "func", cli_json_text(name), "text", cli_json_text(out.data)),
            to, err);
    return cli_write_file(to, out.data, out.len, err);
}
