/* The baseline: each raised operation one call of its template with the best static rule, unfused. Nothing is chosen by
 * measuring: the tuner is given one variant a problem, the default, and still validates it.
 *   layer   top */
#include "cli.h"
#include "pipe_seal.h"

typedef struct baseline {
    pipe_options o;
    fe_model *model;
    ir_graph *graph;
    pipe_buckets buckets;
    lower_consts consts;
    lower_result alone, ready;
    tun_item *items;
    seal seal;
    pipe_report report;
} baseline;

static void baseline_done(baseline *b)
{
    for (uint32_t i = 0; b->items && i < b->alone.n_slots; i++) {
        tun_result_done(&b->items[i].result);
        base_free((void *)b->items[i].points);
    }
    base_free(b->items);
    seal_done(&b->seal);
    lower_result_done(&b->alone);
    lower_result_done(&b->ready);
    lower_consts_done(&b->consts);
    ir_graph_free(b->graph);
    fe_close(b->model);
}

/* The first variant of a list is the static rule's. */
static size_t only_default(void *ctx, const syn_problem *p, fmt_isa isa, syn_variant *list,
                           size_t n, size_t cap)
{
    (void)ctx, (void)p, (void)isa, (void)list, (void)cap;
    return MIN(n, 1);
}

static rtx_status compile_alone(baseline *b, const char *model, const char *out, rtx_err *err)
{
    TRY(pipe_front(model, &b->o, &b->model, &b->graph, err));
    TRY(pipe_buckets_of(b->graph, &b->o, &b->buckets, err));
    TRY(lower_graph(b->graph, LOWER_UNFUSED, &b->consts, &b->alone, err));
    TRY_ALLOC(b->items = base_zalloc_array(BASE_TAG_CLI, b->alone.n_slots + 1, sizeof *b->items),
              err);
    for (uint32_t i = 0; i < b->alone.n_slots; i++)
        TRY(cli_slot_points(&b->alone, i, &b->buckets, &b->o, &b->items[i], err));
    tun_options to = {.mode = TUN_QUICK,
                      .isa = b->o.isa,
                      .cache = b->o.cache,
                      .progress = cli_progress,
                      .cancel = &pipe_cancelled,
                      .variants = only_default,
                      .variants_name = "static"};
    TRY(tun_run(b->items, b->alone.n_slots, &to, &b->report.tuning, err));
    TRY(cli_all_picked(b->items, b->alone.n_slots, err));
    b->report.tune_s = b->report.tuning.wall_s;
    TRY(lower_graph(b->graph, LOWER_READY, &b->consts, &b->ready, err));
    TRY(seal_init(&b->seal, b->graph, &b->o, &b->buckets, err));
    TRY(seal_tuned(&b->seal, &b->alone, b->items, &b->report, err));
    TRY(seal_ready(&b->seal, &b->ready, &b->report, err));
    return seal_write(&b->seal, &b->consts, out, &b->report, err);
}

rtx_status cli_compile_baseline(const char *model, const pipe_options *given, const char *out_path,
                                pipe_report *report, rtx_err *err)
{
    uint64_t t = base_now_ns();
    baseline *b = base_zalloc(BASE_TAG_CLI, sizeof *b);
    TRY_ALLOC(b, err);
    b->o = *given;
    b->o.unfused = true;
    b->o.tune = PIPE_QUICK;
    if (b->o.n_threads == 0) {
        int all = base_cpu_count();
        b->o.threads[b->o.n_threads++] = 1;
        if (all > 1)
            b->o.threads[b->o.n_threads++] = all;
    }
    rtx_err why = {0};
    rtx_status s = b->o.isa == 0 ? cli_host_isa(&b->o.isa, err) : RTX_OK;
    if (s == RTX_OK)
        s = compile_alone(b, model, out_path, &why);
    if (s == RTX_UNSUPPORTED &&
        b->items != NULL) { /* no compiler: the precompiled set is the best baseline there is */
        base_warn("the baseline uses precompiled kernels: %s", why.text);
        pipe_options o = *given;
        o.unfused = true;
        o.tune = PIPE_OFF;
        s = pipe_compile(model, &o, out_path, &b->report, err);
    } else if (s != RTX_OK && why.code != RTX_OK && err != NULL) {
        *err = why;
    }
    *report = b->report;
    report->total_s = (double)(base_now_ns() - t) * 1e-9;
    baseline_done(b);
    base_free(b);
    return s;
}
