/* rtx bench: a tuned program against the baseline, as a ratio that can be trusted.
 *   layer     top
 *   baseline  each raised operation one call of its template with the best static rule, every value with its own buffer
 *   apart     programs between baseline and tuned tell what the memory plan, large pages, fusion and parameters each
 *             gave
 *   method    pairs of runs on fresh inputs, in random order within each pair; the ratio of a pair cancels slow spells of the
 *             machine. Reported: median ratio with the 95 % bootstrap interval of that median
 *   checked   outputs of the very programs that are timed agree with each other in every pair */
#include "cli.h"
#include <math.h>
#include <stdlib.h>

const char cli_bench_usage[] = "MODEL [--size SYM=16,64]... [--apart] [--pairs N] [--json [FILE]]";
const char cli_bench_text[] =
    "Compile MODEL (or zoo:NAME) twice, tuned and as the unfused baseline, then run both in "
    "randomly "
    "interleaved pairs on fresh inputs at each size. The ratio is baseline time over tuned time, "
    "so "
    "above 1 means that tuning helped; its 95 % bootstrap interval is printed beside it.\n";
const cli_option cli_bench_options[] = {
    {"size", 0, CLI_TEXT, true, "SYM=16,64",
     "values of a free size (default: batch 1, others 16 to 256)"},
    {"pairs", 0, CLI_COUNT, false, "N", "pairs a size, at least 30 (default 40)"},
    {"baseline", 0, CLI_FLAG, false, NULL, "time the baseline alone"},
    {"apart", 0, CLI_FLAG, false, NULL,
     "also what memory plan, large pages, fusion and parameters each gave"},
    {"seed", 0, CLI_COUNT, false, "N", "seed of order and inputs (default 1)"},
    {"json", 0, CLI_FILE_OPT, false, "FILE",
     "one JSON object, to FILE (ends in .json, or -) or stdout"},
    CLI_MODEL_OPTIONS("off|quick|full"),
};
const size_t cli_bench_n_options = COUNT_OF(cli_bench_options);

enum { CASES_MAX = 64, PAIRS_MAX = 10000, RESAMPLES = 2000 };

/* Two virtual CPUs that were idle ran as if they shared a core for the first second: 3.2 ms instead of 1.8 (MiniLM, 16 tokens).
 * Weights that move to large pages take longer; a program whose weights move for a minute is timed as it is. */
#define WARM_NS      UINT64_C(2000000000)
#define WARM_MOST_NS UINT64_C(60000000000)

typedef struct timed {
    rtx_program *program;
    cli_result result;
    double *ms, *ratio; /* of each round; ratio = baseline time over this one's */
    double median_ms, median_ratio;
} timed;

/* The programs: what each leaves out of the tuned one. In the order of what is added, each gain is a ratio of neighbours. */
enum { TUNED, BASE, WITH_MEMORY, WITH_PAGES, WITH_FUSION, SIDES };
static const struct side_info {
    const char *file, *gain;
    unsigned without;
} side_info[SIDES] = {
    [TUNED] = {"tuned.rtxgc", "parameters", 0},
    [BASE] = {"baseline.rtxgc", "", PIPE_BASELINE},
    [WITH_MEMORY] = {"memory.rtxgc", "memory plan",
                     PIPE_FUSION | PIPE_PARAMETERS | PIPE_LARGE_PAGES},
    [WITH_PAGES] = {"pages.rtxgc", "large pages", PIPE_FUSION | PIPE_PARAMETERS},
    [WITH_FUSION] = {"fusion.rtxgc", "fusion", PIPE_PARAMETERS},
};

typedef struct bench {
    pipe_options o;
    fe_model *fe;
    cli_scratch scratch;
    timed side[SIDES];
    int n_sides; /* 2, or all of them for --apart */
    cli_case cases[CASES_MAX];
    uint32_t n_cases, n_sym, sym[64];
    int threads;
    int64_t pairs;
    bool alone; /* baseline only */
    cli_rng rng;
    json_t *rows;
    double log_sum, load; /* load: of the system before anything is timed, -1 = unknown */
} bench;

static void bench_done(bench *b)
{
    for (int i = 0; i < SIDES; i++) {
        cli_result_done(&b->side[i].result);
        rtx_program_close(b->side[i].program);
        base_free(b->side[i].ms);
        base_free(b->side[i].ratio);
    }
    fe_close(b->fe);
    cli_scratch_done(&b->scratch);
    json_decref(b->rows);
}

/* ---- sizes ---- */

static void default_values(const fmt_sym *s, bool batch, pipe_sizes *out)
{
    static const int64_t usual[] = {16, 64, 128, 256};
    out->n = 0;
    for (size_t i = 0; !batch && i < COUNT_OF(usual); i++)
        if (usual[i] >= s->lo && usual[i] <= s->hi)
            out->value[out->n++] = usual[i];
    if (out->n == 0)
        out->value[out->n++] = MIN(MAX(1, s->lo), s->hi);
}

static rtx_status make_cases(cli_args *a, bench *b, rtx_err *err)
{
    const ir_graph *g = fe_graph(b->fe);
    pipe_sizes *values = base_arena_array(&a->mem, COUNT_OF(b->sym), sizeof *values);
    TRY_ALLOC(values, err);
    b->n_sym = cli_symbols(g, b->sym, COUNT_OF(b->sym));
    for (uint32_t i = 0; i < b->n_sym; i++)
        default_values(fmt_sym_get(g->dims, b->sym[i]), i == 0 && b->n_sym > 1, &values[i]);
    const char *text;
    for (int at = 0; (text = cli_next(a, "size", &at)) != NULL;) {
        pipe_sizes s;
        TRY(cli_sizes(a, "size", text, ',', &s, err));
        uint32_t i = 0;
        while (i < b->n_sym && strcmp(fmt_sym_get(g->dims, b->sym[i])->name, s.name) != 0)
            i++;
        if (i == b->n_sym)
            return FAIL(err, INVALID, "--size names %s, which is no free size of the model",
                        s.name);
        if (s.n == 0)
            return cli_usage(err, "--size %s has no values", s.name);
        values[i] = s;
    }
    uint32_t total = 1;
    for (uint32_t i = 0; i < b->n_sym; i++)
        total *= (uint32_t)values[i].n;
    if (total > CASES_MAX)
        return cli_usage(err, "%u combinations of sizes; at most %d", total, CASES_MAX);
    for (uint32_t c = 0; c < total; c++) {
        cli_case *k = &b->cases[b->n_cases++];
        for (uint32_t i = 0; i < fmt_sym_count(g->dims) && i < COUNT_OF(k->value); i++)
            k->value[i] = fmt_sym_get(g->dims, i)->lo;
        for (uint32_t i = 0, rest = c; i < b->n_sym; rest /= (uint32_t)values[i++].n)
            if (b->sym[i] < COUNT_OF(k->value))
                k->value[b->sym[i]] = values[i].value[rest % (uint32_t)values[i].n];
    }
    return RTX_OK;
}

/* ---- measuring ---- */

static rtx_status time_one(const bench *b, timed *t, const cli_feed *f, double *out_ms,
                           rtx_err *err)
{
    uint64_t start = base_now_ns();
    TRY(rtx_program_run(t->program, f->t, f->n, t->result.t, t->result.n, b->threads, err));
    *out_ms = (double)(base_now_ns() - start) * 1e-6;
    return RTX_OK;
}

/* The two programs round differently; both are validated against the oracle elsewhere. A wrong one shows here at once. */
static rtx_status check_pair(const cli_result *x, const cli_result *y, double *worst, rtx_err *err)
{
    for (size_t i = 0; i < x->n; i++) {
        ir_tensor want = {0};
        TRY(ir_tensor_from(y->t[i].data, (fmt_dtype)y->t[i].dtype, y->t[i].rank, y->t[i].dim, &want,
                           err));
        double d = cli_difference(&x->t[i], &want);
        ir_tensor_done(&want);
        *worst = MAX(*worst, d);
        if (!(d <= 1e-4))
            return FAIL(err, NUMERIC,
                        "output %zu of tuned program and baseline differ by %.1e; `rtx compare` "
                        "shows where",
                        i, d);
    }
    return RTX_OK;
}

/* Median of resampled pairs, RESAMPLES times; the 2.5 and 97.5 percentiles of those medians. */
static rtx_status interval(bench *b, const double *ratio, double *lo, double *hi, rtx_err *err)
{
    size_t n = (size_t)b->pairs;
    AUTO_FREE double *draw = base_alloc_array(BASE_TAG_CLI, n, sizeof *draw);
    AUTO_FREE double *medians = base_alloc_array(BASE_TAG_CLI, RESAMPLES, sizeof *medians);
    if (draw == NULL || medians == NULL)
        return FAIL(err, NOMEM, "out of memory");
    for (int r = 0; r < RESAMPLES; r++) {
        for (size_t i = 0; i < n; i++)
            draw[i] = ratio[cli_rand(&b->rng) % n];
        cli_sort(draw, n);
        medians[r] = cli_quantile(draw, n, 0.5);
    }
    cli_sort(medians, RESAMPLES);
    *lo = cli_quantile(medians, RESAMPLES, 0.025);
    *hi = cli_quantile(medians, RESAMPLES, 0.975);
    return RTX_OK;
}

static bool warm(const bench *b, uint64_t start)
{
    uint64_t t_ns = base_now_ns() - start;
    bool settled = true;
    for (int k = b->alone ? BASE : TUNED; k < b->n_sides; k++)
        settled &= rtx_program_settled(b->side[k].program) != 0;
    return t_ns >= (settled ? WARM_NS : WARM_MOST_NS);
}

static rtx_status run_pairs(bench *b, const cli_case *c, uint32_t index, double *worst,
                            rtx_err *err)
{
    uint64_t start = base_now_ns();
    for (int64_t i = -2; i < b->pairs; i++) { /* two untimed pairs: launches, pages, and see warm */
        if (i == 0 && index == 0 && !warm(b, start))
            i = -1;
        cli_feed feed = {0};
        rtx_status s = cli_feed_make(fe_graph(b->fe), c, &b->rng, &feed, err);
        double ms[SIDES] = {0};
        int first = b->alone ? BASE : (int)(cli_rand(&b->rng) % (unsigned)b->n_sides);
        for (int k = 0; s == RTX_OK && k < (b->alone ? 1 : b->n_sides); k++) {
            int at = (first + k) % b->n_sides;
            timed *t = &b->side[at];
            if (t->result.t == NULL)
                s = cli_result_new(t->program, &feed, &t->result, err);
            if (s == RTX_OK)
                s = time_one(b, t, &feed, &ms[at], err);
        }
        for (int k = 0; s == RTX_OK && !b->alone && k < b->n_sides; k++)
            if (k != BASE)
                s = check_pair(&b->side[k].result, &b->side[BASE].result, worst, err);
        cli_feed_done(&feed);
        TRY(s);
        TRY(base_go_on(err));
        if (i < 0)
            continue;
        for (int k = 0; k < b->n_sides; k++) {
            b->side[k].ms[i] = ms[k];
            b->side[k].ratio[i] = b->alone ? 1 : ms[BASE] / ms[k];
        }
        cli_step("bench", "", index * (uint32_t)b->pairs + (uint32_t)i + 1,
                 b->n_cases * (uint32_t)b->pairs);
    }
    return RTX_OK;
}

/* What each step from baseline to tuned gave, as ratios of neighbours whose product is the whole. */
static json_t *gains(const bench *b, bool print)
{
    static const int order[] = {BASE, WITH_MEMORY, WITH_PAGES, WITH_FUSION, TUNED};
    json_t *all = json_object();
    for (size_t i = 1; i < COUNT_OF(order); i++) {
        double gain = b->side[order[i]].median_ratio / b->side[order[i - 1]].median_ratio;
        json_object_set_new(all, side_info[order[i]].gain, json_real(gain));
        if (print)
            printf("    %-12s %.3f\n", side_info[order[i]].gain, gain);
    }
    return all;
}

/* 80 columns; a label that is longer than the room for it has a line of its own. */
static void print_case(const char *label, const double median[2], double ratio, double lo,
                       double hi)
{
    bool fits = strlen(label) <= 17;
    if (!fits)
        printf("%s\n", label);
    printf("%-17s tuned %7.3f  baseline %7.3f ms  ratio %.3f [%.3f, %.3f]\n", fits ? label : "",
           median[0], median[1], ratio, lo, hi);
}

static rtx_status bench_case(bench *b, uint32_t index, bool print, rtx_err *err)
{
    const ir_graph *g = fe_graph(b->fe);
    const cli_case *c = &b->cases[index];
    double worst = 0, lo = 1, hi = 1;
    for (int k = 0; k < SIDES; k++)
        cli_result_done(&b->side[k].result);
    TRY(run_pairs(b, c, index, &worst, err));
    size_t n = (size_t)b->pairs;
    if (!b->alone)
        TRY(interval(b, b->side[TUNED].ratio, &lo, &hi, err));
    for (int k = 0; k < b->n_sides; k++) {
        cli_sort(b->side[k].ms, n);
        cli_sort(b->side[k].ratio, n);
        b->side[k].median_ms = cli_quantile(b->side[k].ms, n, 0.5);
        b->side[k].median_ratio = cli_quantile(b->side[k].ratio, n, 0.5);
    }
    double ratio = b->side[TUNED].median_ratio,
           median[2] = {b->side[TUNED].median_ms, b->side[BASE].median_ms};
    b->log_sum += log(ratio);
    json_t *sizes = json_object();
    AUTO_BUF base_buf label;
    base_buf_init(&label, BASE_TAG_CLI, 4096);
    for (uint32_t i = 0; i < b->n_sym; i++) {
        const char *name = fmt_sym_get(g->dims, b->sym[i])->name;
        json_object_set_new(sizes, name, json_integer(c->value[b->sym[i]]));
        base_buf_printf(&label, "%s%s=%lld", i ? " " : "", name, (long long)c->value[b->sym[i]]);
    }
    json_t *row = b->alone ? json_pack("{s:o, s:f}", "sizes", sizes, "baseline_ms", median[1])
                           : json_pack("{s:o, s:f, s:f, s:f, s:[f, f], s:f}", "sizes", sizes,
                                       "tuned_ms", median[0], "baseline_ms", median[1], "ratio",
                                       ratio, "interval", lo, hi, "difference", worst);
    json_array_append_new(b->rows, row);
    cli_progress_end();
    bool apart = b->n_sides == SIDES;
    if (print && b->alone)
        printf("%-24s baseline %9.3f ms\n", label.len ? label.data : "fixed sizes", median[1]);
    else if (print)
        print_case(label.len ? label.data : "fixed sizes", median, ratio, lo, hi);
    if (apart)
        json_object_set_new(row, "gains", gains(b, print));
    fflush(stdout);
    return RTX_OK;
}

/* ---- the programs ---- */

static rtx_status prepare(bench *b, const char *model, rtx_err *err)
{
    for (int k = b->alone ? BASE : TUNED; k < b->n_sides; k++) {
        pipe_report rep;
        const char *path = cli_scratch_path(&b->scratch, side_info[k].file);
        cli_step(k == BASE ? "compile baseline" : "compile", model, 0, 0);
        b->o.without = side_info[k].without;
        TRY(pipe_compile(model, &b->o, path, &rep, err));
        TRY(rtx_program_open(path, b->threads, &b->side[k].program, err));
    }
    for (int k = 0; k < b->n_sides; k++) {
        TRY_ALLOC(b->side[k].ms = base_zalloc_array(BASE_TAG_CLI, (size_t)b->pairs, sizeof(double)),
                  err);
        TRY_ALLOC(b->side[k].ratio =
                      base_zalloc_array(BASE_TAG_CLI, (size_t)b->pairs, sizeof(double)),
                  err);
    }
    return RTX_OK;
}

/* Threads that spin for each other lose many times over when others hold their CPUs, and the program with more steps loses
 * more: the interval can be narrow and the ratio meaningless. */
static void check_load(bench *b)
{
    b->load = -1;
    if (getloadavg(&b->load, 1) == 1 && b->load > 0.5 * base_cpu_count())
        base_warn("the system is busy (load %.1f on %d CPUs): ratios are not to be trusted, least "
                  "of all with several threads",
                  b->load, base_cpu_count());
}

static rtx_status bench_all(cli_args *a, bench *b, rtx_err *err)
{
    const char *model = a->pos[0], *file = cli_text(a, "json");
    TRY(cli_pipe_options(a, &b->o, err));
    b->pairs = cli_count(a, "pairs", 40);
    if (b->pairs < 30 || b->pairs > PAIRS_MAX)
        return cli_usage(err, "--pairs wants 30 to %d: fewer give no interval worth printing",
                         PAIRS_MAX);
    b->alone = cli_has(a, "baseline");
    b->n_sides = !b->alone && cli_has(a, "apart") ? SIDES : BASE + 1;
    b->rng.s = (uint64_t)cli_count(a, "seed", 1);
    b->threads = b->o.n_threads ? b->o.threads[b->o.n_threads - 1] : 0;
    if (file != NULL)
        TRY(cli_check_out(file, err));
    TRY_ALLOC(b->rows = json_array(), err);
    TRY(cli_scratch_new(&b->scratch, err));
    TRY(cli_model_file(&model, &b->scratch, err));
    TRY(fe_open(model, NULL, &b->fe, err));
    TRY(make_cases(a, b, err));
    check_load(b);
    TRY(prepare(b, model, err));
    bool print = !a->json || (file && strcmp(file, "-") != 0);
    for (uint32_t i = 0; i < b->n_cases; i++)
        TRY(bench_case(b, i, print, err));
    double mean = b->n_cases ? exp(b->log_sum / b->n_cases) : 1;
    if (print && !b->alone && b->n_cases > 1)
        printf("geometric mean of the ratios %.3f over %u sizes, %lld pairs each\n", mean,
               b->n_cases, (long long)b->pairs);
    if (!a->json)
        return RTX_OK;
    json_t *all =
        json_pack("{s:o, s:s, s:i, s:I, s:f, s:O}", "model", cli_json_text(a->pos[0]), "rtx",
                  rtx_version(), "threads", b->threads ? b->threads : base_cpu_count(), "pairs",
                  (json_int_t)b->pairs, "load", b->load, "cases", b->rows);
    if (all && !b->alone)
        json_object_set_new(all, "geometric_mean", json_real(mean));
    return cli_write_json(all, file ? file : "-", err);
}

rtx_status cli_bench(cli_args *a, rtx_err *err)
{
    bench *b = base_zalloc(BASE_TAG_CLI, sizeof *b);
    TRY_ALLOC(b, err);
    rtx_status s = bench_all(a, b, err);
    bench_done(b);
    base_free(b);
    return s;
}
