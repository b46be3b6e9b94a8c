/* rtx compare: where do results differ? Every output of the compiled program, and every node of the graph on its own.
 *   layer    top
 *   outputs  the bundle's results against ir_eval of the model as it was read, before any pass
 *   nodes    the graph after fold and raise, with every node made an output, run by the precompiled kernels, unfused; each
 *            node's own value against ir_eval of the same graph. Errors accumulate along the graph: the first jump is the culprit */
#include "cli.h"
#include "pipe_seal.h"
#include <math.h>
#include <stdlib.h>

const char cli_compare_usage[] = "MODEL [BUNDLE] [--size SYM=N]... [--tolerance X]";
const char cli_compare_text[] =
    "Run MODEL with seeded inputs through the double-precision evaluator and through BUNDLE "
    "(without one, "
    "through a compilation without tuning), and print the norm-wise error of every output and "
    "node. "
    "Free sizes are small unless --size gives them. Exit 1 if an output exceeds the tolerance.\n";
const cli_option cli_compare_options[] = {
    {"size", 0, CLI_TEXT, true, "SYM=N", "value of a free size"},
    {"shape", 0, CLI_TEXT, true, "NAME=1x128", "fix the shape of an input"},
    {"tolerance", 0, CLI_SECONDS, false, "X",
     "largest error of an output that is fine (default 1e-5)"},
    {"seed", 0, CLI_COUNT, false, "N", "seed of the inputs (default 1)"},
    {"threads", 0, CLI_TEXT, false, "N", "threads of the run"},
    {"no-nodes", 0, CLI_FLAG, false, NULL, "outputs only"},
    {"top", 0, CLI_COUNT, false, "N", "print the N worst nodes only (default all)"},
};
const size_t cli_compare_n_options = COUNT_OF(cli_compare_options);

#define EVAL_BYTES ((size_t)8 << 30)

typedef struct row {
    const char *name;
    char op[24];
    uint32_t order;
    double error, norm;
} row;

typedef struct compare {
    const char *model;
    pipe_options o;
    fe_model *fe, *front;
    ir_graph *graph, *exposed;
    cli_case sizes;
    cli_feed feed;
    cli_scratch scratch;
    row *outputs, *nodes;
    uint32_t n_outputs, n_nodes;
    lower_consts consts;
    lower_result low;
    seal seal;
} compare;

static void compare_done(compare *c)
{
    seal_done(&c->seal);
    lower_result_done(&c->low);
    lower_consts_done(&c->consts);
    cli_feed_done(&c->feed);
    ir_graph_free(c->exposed);
    ir_graph_free(c->graph);
    fe_close(c->front);
    fe_close(c->fe);
    base_free(c->outputs);
    base_free(c->nodes);
    cli_scratch_done(&c->scratch);
}

/* ---- sizes ---- */

/* The first free size is small, the others a little larger, none a power of two. */
static rtx_status choose_sizes(cli_args *a, const ir_graph *g, cli_case *out, rtx_err *err)
{
    uint32_t sym[64], n = cli_symbols(g, sym, COUNT_OF(sym));
    memset(out, 0, sizeof *out);
    for (uint32_t i = 0; i < fmt_sym_count(g->dims) && i < COUNT_OF(out->value); i++)
        out->value[i] = fmt_sym_get(g->dims, i)->lo;
    for (uint32_t i = 0; i < n; i++) {
        const fmt_sym *s = fmt_sym_get(g->dims, sym[i]);
        if (sym[i] < COUNT_OF(out->value))
            out->value[sym[i]] = MIN(MAX(i == 0 ? 2 : 9, s->lo), s->hi);
    }
    const char *text;
    for (int at = 0; (text = cli_next(a, "size", &at)) != NULL;) {
        pipe_sizes s;
        TRY(cli_sizes(a, "size", text, ',', &s, err));
        uint32_t id = fmt_sym_find(g->dims, s.name, strlen(s.name));
        if (s.n != 1)
            return cli_usage(err, "--size wants SYM=N, not '%.100s'", text);
        if (id == UINT32_MAX || id >= COUNT_OF(out->value))
            return FAIL(
                err, INVALID,
                "--size names %s, which is no free size of the model; `rtx run BUNDLE` shows them",
                s.name);
        out->value[id] = s.value[0];
    }
    return RTX_OK;
}

static rtx_status tensors_of(const cli_feed *f, ir_tensor *out, rtx_err *err)
{
    for (uint32_t i = 0; i < f->n; i++)
        TRY(ir_tensor_from(f->t[i].data, (fmt_dtype)f->t[i].dtype, f->t[i].rank, f->t[i].dim,
                           &out[i], err));
    return RTX_OK;
}

static bool keep_going(void *ctx, ir_id id, const ir_tensor *value)
{
    const ir_graph *g = ctx;
    (void)value;
    cli_step("oracle", ir_name_of(g, id), id, g->n_nodes);
    return !base_cancelled;
}

/* ---- one program against one graph ---- */

static double norm_of(const ir_tensor *t)
{
    double s = 0;
    for (int64_t i = 0; i < t->elems; i++) {
        double v = t->f ? t->f[i] : (double)t->i[i];
        s += isfinite(v) ? v * v : 0;
    }
    return sqrt(s);
}

static void tensor_text(fmt_dtype dtype, int rank, const int64_t *dim, char *out, size_t cap)
{
    size_t n = (size_t)snprintf(out, cap, "%s[", fmt_dtype_name(dtype));
    for (int k = 0; k < rank && n < cap; k++)
        n += (size_t)snprintf(out + n, cap - n, "%s%lld", k ? "," : "", (long long)dim[k]);
    if (n < cap)
        snprintf(out + n, cap - n, "]");
}

/* Of another shape than the model's output: the bundle was made from another model. */
static rtx_status check_shapes(const cli_result *got, const ir_tensor *want, const ir_graph *g,
                               rtx_err *err)
{
    for (uint32_t i = 0; i < g->n_outputs; i++) {
        const rtx_tensor *t = &got->t[i];
        char x[160], y[160];
        tensor_text((fmt_dtype)t->dtype, t->rank, t->dim, x, sizeof x);
        tensor_text(want[i].dtype, want[i].rank, want[i].dim, y, sizeof y);
        if (strcmp(x, y) != 0)
            return FAIL(err, NUMERIC,
                        "output %.60s is %s from the bundle and %s from the model: the bundle was "
                        "made from another model; compile this one",
                        g->outputs[i].name, x, y);
    }
    return RTX_OK;
}

static rtx_status check_program(rtx_program *p, const ir_graph *g, const cli_feed *feed, row *rows,
                                rtx_err *err)
{
    ir_tensor *in = base_zalloc_array(BASE_TAG_CLI, g->n_inputs + 1, sizeof *in),
              *want = base_zalloc_array(BASE_TAG_CLI, g->n_outputs + 1, sizeof *want);
    cli_result got = {0};
    rtx_status s = in && want ? tensors_of(feed, in, err) : FAIL(err, NOMEM, "out of memory");
    if (s == RTX_OK)
        s = ir_eval(g, in, NULL, want, NULL, EVAL_BYTES, keep_going, (void *)g, err);
    if (s == RTX_OK)
        s = cli_result_new(p, feed, &got, err);
    if (s == RTX_OK && got.n != g->n_outputs)
        s = FAIL(err, INVALID,
                 "the bundle has %zu outputs, the model %u: they are not of one model", got.n,
                 g->n_outputs);
    if (s == RTX_OK)
        s = check_shapes(&got, want, g, err);
    if (s == RTX_OK)
        s = rtx_program_run(p, feed->t, feed->n, got.t, got.n, 0, err);
    for (uint32_t i = 0; s == RTX_OK && i < g->n_outputs; i++) {
        ir_id id = g->outputs[i].id;
        rows[i].error = cli_difference(&got.t[i], &want[i]);
        rows[i].norm = norm_of(&want[i]);
        rows[i].name = g->outputs[i].name;
        snprintf(rows[i].op, sizeof rows[i].op, "%s", ir_op_get(ir_op_of(g, id))->name);
        rows[i].order = i;
    }
    cli_result_done(&got);
    for (uint32_t i = 0; in && i < g->n_inputs; i++)
        ir_tensor_done(&in[i]);
    for (uint32_t i = 0; want && i < g->n_outputs; i++)
        ir_tensor_done(&want[i]);
    base_free(in);
    base_free(want);
    return s;
}

static rtx_status open_and_check(const char *path, int threads, const ir_graph *g,
                                 const cli_feed *feed, row *rows, rtx_err *err)
{
    rtx_program *p = NULL;
    TRY(rtx_program_open(path, threads, &p, err));
    rtx_status s = check_program(p, g, feed, rows, err);
    rtx_program_close(p);
    return s;
}

/* ---- every node an output ---- */

static ir_id keep(void *ctx, const ir_graph *old, ir_id id, ir_graph *g, const ir_id *in)
{
    (void)ctx;
    return ir_copy_node(g, old, id, in);
}

/* Values that kernels compute; views and constants repeat others. Names must outlive the graph, so they lie in its arena. */
static rtx_status expose(compare *c, rtx_err *err)
{
    TRY(ir_rewrite(c->graph, keep, NULL, &c->exposed, err));
    ir_graph *g = c->exposed;
    g->n_outputs = 0;
    for (ir_id id = 1; id < g->n_nodes; id++) {
        const ir_op_info *op = ir_op_get(ir_op_of(g, id));
        fmt_dtype t = ir_type_of(g, id)->dtype;
        if (op->view || op == ir_op_get(IR_input) || op == ir_op_get(IR_const) ||
            op == ir_op_get(IR_dimvals) || fmt_dtype_class(t) == 'N')
            continue;
        const char *name = base_arena_printf(&g->arena, "n%u", id);
        TRY_ALLOC(name, err);
        ir_output(g, name, id);
    }
    return ir_ok(g, err);
}

static rtx_status compile_exposed(compare *c, const char *path, rtx_err *err)
{
    pipe_buckets b;
    pipe_report rep = {0};
    TRY(pipe_buckets_of(c->exposed, &c->o, &b, err));
    TRY(lower_graph(c->exposed, LOWER_READY, &c->consts, &c->low, err));
    TRY(seal_init(&c->seal, c->exposed, &c->o, &b, err));
    TRY(seal_ready(&c->seal, &c->low, &rep, err));
    return seal_write(&c->seal, &c->consts, path, &rep, err);
}

static rtx_status check_nodes(compare *c, int threads, rtx_err *err)
{
    pipe_options o = c->o;
    o.without = PIPE_FUSION;
    TRY(pipe_front(c->model, &o, &c->front, &c->graph, err));
    TRY(expose(c, err));
    c->n_nodes = c->exposed->n_outputs;
    TRY_ALLOC(c->nodes = base_zalloc_array(BASE_TAG_CLI, c->n_nodes + 1, sizeof *c->nodes), err);
    const char *path = cli_scratch_path(&c->scratch, "nodes.rtxgc");
    TRY(compile_exposed(c, path, err));
    TRY(open_and_check(path, threads, c->exposed, &c->feed, c->nodes, err));
    for (uint32_t i = 0; i < c->n_nodes; i++) {
        const char *name = ir_name_of(c->exposed, c->exposed->outputs[i].id);
        if (*name)
            c->nodes[i].name = name;
    }
    return RTX_OK;
}

/* ---- output ---- */

static int worst_first(const void *a, const void *b)
{
    const row *x = a, *y = b;
    return x->error > y->error ? -1 : x->error < y->error ? 1 : x->order < y->order ? -1 : 1;
}

static json_t *rows_json(const row *rows, uint32_t n)
{
    json_t *all = json_array();
    for (uint32_t i = 0; i < n; i++) {
        json_t *e = isfinite(rows[i].error) ? json_real(rows[i].error)
                                            : json_string("inf"); /* JSON has no infinity */
        json_array_append_new(all,
                              json_pack("{s:o, s:s, s:o, s:f}", "name", cli_json_text(rows[i].name),
                                        "op", rows[i].op, "error", e, "norm", rows[i].norm));
    }
    return all;
}

static void print_rows(const char *title, const row *rows, uint32_t n)
{
    printf("%s\n", title);
    for (uint32_t i = 0; i < n; i++) {
        printf("  %9.2e  %-16s ", rows[i].error, rows[i].op);
        cli_put_name(rows[i].name, 0);
        puts("");
    }
}

/* Nodes run unfused, by precompiled kernels, from the model: they cannot show what only the bundle does. */
static const char *where_next(const cli_args *a, const compare *c, double tolerance)
{
    if (c->nodes == NULL)
        return "without --no-nodes the nodes are compared too";
    for (uint32_t i = 0; i < c->n_nodes; i++)
        if (!(c->nodes[i].error <= tolerance))
            return "the node list shows where it begins";
    return a->n_pos > 1
               ? "every node alone is right, so the bundle is of another model, or a fused or "
                 "tuned kernel of it is wrong: compile it again with --tune off and compare"
               : "every node alone is right, so a fused kernel is wrong: please report it with the "
                 "model";
}

static rtx_status report(const cli_args *a, compare *c, double tolerance, rtx_err *err)
{
    double worst = 0;
    const char *name = "";
    for (uint32_t i = 0; i < c->n_outputs; i++)
        if (!(c->outputs[i].error <= worst)) {
            worst = c->outputs[i].error;
            name = c->outputs[i].name;
        }
    int64_t top = cli_count(a, "top", 0);
    if (top > 0 && c->nodes)
        qsort(c->nodes, c->n_nodes, sizeof *c->nodes, worst_first);
    uint32_t n_shown = top > 0 && top < c->n_nodes ? (uint32_t)top : c->n_nodes;
    cli_progress_end();
    if (a->json) {
        json_t *sizes = json_object();
        uint32_t sym[64], n = cli_symbols(fe_graph(c->fe), sym, COUNT_OF(sym));
        for (uint32_t i = 0; i < n; i++)
            json_object_set_new(sizes, fmt_sym_get(fe_graph(c->fe)->dims, sym[i])->name,
                                json_integer(c->sizes.value[sym[i]]));
        TRY(cli_put_json(json_pack("{s:o, s:o, s:o, s:f, s:b}", "sizes", sizes, "outputs",
                                   rows_json(c->outputs, c->n_outputs), "nodes",
                                   rows_json(c->nodes, n_shown), "tolerance", tolerance, "ok",
                                   worst <= tolerance),
                         err));
    } else {
        print_rows("outputs, norm-wise error against the oracle", c->outputs, c->n_outputs);
        if (n_shown > 0)
            print_rows(top > 0 ? "nodes, unfused, worst first"
                               : "nodes, unfused, in order: look for the first jump",
                       c->nodes, n_shown);
    }
    if (!(worst <= tolerance))
        return FAIL(err, NUMERIC, "output %.100s differs by %.2e, more than %.1e; %s", name, worst,
                    tolerance, where_next(a, c, tolerance));
    return RTX_OK;
}

static rtx_status compare_all(cli_args *a, compare *c, rtx_err *err)
{
    cli_rng rng = {(uint64_t)cli_count(a, "seed", 1)};
    int threads = c->o.n_threads ? c->o.threads[0] : 0;
    const char *bundle = a->n_pos > 1 ? a->pos[1] : NULL;
    TRY(cli_scratch_new(&c->scratch, err));
    TRY(cli_model_file(&c->model, &c->scratch, err));
    if (bundle != NULL)
        TRY(cli_bundle_file(&bundle, &c->scratch, err));
    TRY(fe_open(c->model, NULL, &c->fe, err));
    const ir_graph *g = fe_graph(c->fe);
    TRY(choose_sizes(a, g, &c->sizes, err));
    TRY(cli_feed_make(g, &c->sizes, &rng, &c->feed, err));
    if (bundle == NULL) {
        pipe_report rep;
        bundle = cli_scratch_path(&c->scratch, "compare.rtxgc");
        cli_step("compile", c->model, 0, 0);
        TRY(pipe_compile(c->model, &c->o, bundle, &rep, err));
    }
    c->n_outputs = g->n_outputs;
    TRY_ALLOC(c->outputs = base_zalloc_array(BASE_TAG_CLI, c->n_outputs + 1, sizeof *c->outputs),
              err);
    TRY(open_and_check(bundle, threads, g, &c->feed, c->outputs, err));
    if (!cli_has(a, "no-nodes"))
        TRY(check_nodes(c, threads, err));
    return report(a, c, cli_seconds(a, "tolerance", 1e-5), err);
}

rtx_status cli_compare(cli_args *a, rtx_err *err)
{
    compare *c = base_zalloc(BASE_TAG_CLI, sizeof *c);
    TRY_ALLOC(c, err);
    rtx_status s = cli_pipe_options(a, &c->o, err);
    c->o.tune = PIPE_OFF;
    c->model = a->pos[0];
    if (s == RTX_OK && c->o.isa == 0)
        s = cli_host_isa(&c->o.isa, err);
    if (s == RTX_OK && c->o.n_threads > 1)
        s = cli_usage(err, "--threads takes one count here");
    if (s == RTX_OK && c->o.n_threads == 0)
        c->o.threads[c->o.n_threads++] = base_cpu_count();
    if (s == RTX_OK)
        s = compare_all(a, c, err);
    compare_done(c);
    base_free(c);
    return s;
}
