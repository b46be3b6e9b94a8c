/* The cut follows planted times: a tuner of the test answers from a table, so no clock decides. */
#include "pipe_cut.h"
#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

static const char model[] =
    "sym n 1..64\n"
    "func @f(%0 \"x\": f32[n,4], %1 \"r\": f32[n,4]) {\n"
    "  %2 = const f32[4,4] {1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2, 3, 4, 5, 6, 7}\n"
    "  %3 = const f32[4] {1, 2, 3, 4}\n"
    "  %4 = dot %0 %2\n"
    "  %5 = broadcast %3 {dims=[n,4]}\n"
    "  %6 = add %4 %5\n"
    "  %7 = add %6 %1\n"
    "  %8 = layernorm %7 %3 %3 {eps=1e-5}\n"
    "  return %8 \"y\"\n}\n";

/* ---- the planted tuner: ns by anchor and number of additions ---- */

static struct plan_of_times {
    double dot[3], norm[3];
    double gbps;   /* of the machine: low = fusing saves much */
    double gflops; /* high = cutting can save nothing */
    int rejects;   /* every candidate of a dot with so many additions or more; 0 = none */
    rtx_status fails;
    int fails_at; /* call number; 0 = never */
    int calls, items;
} times;

static int ops(const syn_problem *p, ir_op op)
{
    int n = 0;
    for (ir_id id = 1; id < p->region->n_nodes; id++)
        n += ir_op_of(p->region, id) == op;
    return n;
}

static rtx_status plant(tun_item *it, rtx_err *err)
{
    int adds = ops(it->problem, IR_add);
    double ns = ops(it->problem, IR_dot) ? times.dot[adds] : times.norm[adds];
    tun_result *r = &it->result;
    *r = (tun_result){0};
    TRY_ALLOC(r->picks = base_zalloc_array(BASE_TAG_TUNE, it->n_points, sizeof *r->picks), err);
    TRY_ALLOC(r->kernels = base_zalloc_array(BASE_TAG_TUNE, 1, sizeof *r->kernels), err);
    r->n_kernels = 1;
    if (ops(it->problem, IR_dot) && times.rejects > 0 && adds >= times.rejects) {
        r->n_kernels = 0;
        r->rejected = true;
        for (uint32_t k = 0; k < it->n_points; k++)
            r->picks[k] = (tun_pick){.kernel = FMT_NONE};
        return RTX_OK;
    }
    for (uint32_t k = 0; k < it->n_points; k++)
        r->picks[k] = (tun_pick){.ways = 1, .ns = ns, .default_ns = ns};
    return syn_match(it->problem, &r->kernels[0].variant.templ, err);
}

static rtx_status tuner(tun_item *items, uint32_t n, const tun_options *opt, tun_report *report,
                        rtx_err *err)
{
    *report = (tun_report){.compiled = n, .budget_s = opt->budget_s};
    for (uint32_t i = 0; i < n; i++)
        report->keys += items[i].n_points;
    report->hw = (tun_hw){.cores = 1,
                          .fma_gflops = {times.gflops, times.gflops},
                          .read_curve = {{1e9}, {times.gbps}, 1}};
    times.items += (int)n;
    rtx_status s = RTX_OK;
    if (++times.calls == times.fails_at)
        s = times.fails == RTX_CANCELLED ? FAIL(err, CANCELLED, "planted")
                                         : FAIL(err, UNSUPPORTED, "planted");
    for (uint32_t i = 0; s == RTX_OK && i < n; i++)
        s = plant(&items[i], err);
    for (uint32_t i = 0; s != RTX_OK && i < n; i++)
        tun_result_done(&items[i].result);
    return s;
}

/* ---- the bed ---- */

typedef struct bed {
    ir_graph *graph;
    fmt_dims *dims;
    pipe_buckets buckets;
    pipe_options o;
    lower_consts consts;
    lower_result low;
    pipe_tuned tuned;
    json_t *fusion;
    tun_report report;
    size_t live;
} bed;

static size_t live(void)
{
    size_t sum = 0;
    for (int t = 0; t < BASE_TAG_COUNT; t++)
        sum += base_alloc_live_bytes((base_tag)t);
    return sum;
}

static void prepare(bed *b, struct plan_of_times t)
{
    times = t;
    memset(b, 0, sizeof *b);
    b->live = live();
    b->dims = fmt_dims_new();
    b->o = (pipe_options){.tune = PIPE_QUICK,
                          .threads = {1},
                          .n_threads = 1,
                          .budget_s = 100,
                          .cache = "",
                          .isa = FMT_ISA_V3,
                          .tuner = tuner};
    rtx_err err = {0};
    assert_int_equal(ir_parse(model, sizeof model - 1, b->dims, &b->graph, &err), RTX_OK);
    assert_int_equal(pipe_buckets_of(b->graph, &b->o, &b->buckets, &err), RTX_OK);
    assert_int_equal(lower_graph(b->graph, LOWER_BAKED, &b->consts, &b->low, &err), RTX_OK);
}

static rtx_status decide(bed *b)
{
    rtx_err err = {0};
    pipe_cut c = {b->graph, &b->buckets, &b->o, &b->consts};
    return pipe_cut_tune(&c, &b->low, &b->tuned, &b->fusion, &b->report, &err);
}

static rtx_status run(bed *b, struct plan_of_times t)
{
    prepare(b, t);
    return decide(b);
}

static void done(bed *b)
{
    pipe_tuned_done(&b->tuned);
    lower_result_done(&b->low);
    lower_consts_done(&b->consts);
    json_decref(b->fusion);
    ir_graph_free(b->graph);
    fmt_dims_free(b->dims);
    assert_int_equal(live(), b->live);
}

static json_t *about_dot(const bed *b)
{
    assert_int_equal(json_array_size(b->fusion), 1);
    return json_array_get(b->fusion, 0);
}

static const char *said(const bed *b, const char *key)
{
    return json_string_value(json_object_get(about_dot(b), key));
}

/* Additions that the dot of the plan kept, every slot served. */
static int dot_adds(const bed *b)
{
    int adds = -1;
    assert_int_equal(b->tuned.n, b->low.n_slots);
    for (uint32_t i = 0; i < b->low.n_slots; i++) {
        assert_ptr_equal(b->tuned.items[i].problem, b->low.slots[i].problem);
        assert_non_null(b->tuned.items[i].result.picks);
        if (ops(b->low.slots[i].problem, IR_dot))
            adds = ops(b->low.slots[i].problem, IR_add);
    }
    return adds;
}

/* ---- cases ---- */

static void test_a_faster_cut_is_taken(void **state)
{
    (void)state;
    bed b;
    assert_int_equal(
        run(&b, (struct plan_of_times){{0, 500, 1000}, {100, 110}, .gbps = 100, .gflops = 1}),
        RTX_OK);
    assert_string_equal(said(&b, "chosen"), "split");
    assert_true(json_real_value(json_object_get(about_dot(&b), "fused_ns")) > 1099);
    assert_true(json_real_value(json_object_get(about_dot(&b), "split_ns")) < 611);
    assert_int_equal(dot_adds(&b), 1);
    assert_int_equal(times.calls, 3); /* all; what differs, as a trial; the parts for good */
    assert_int_equal(times.items, 2 + 4 + 2);
    done(&b);
}

static void test_a_slower_or_equal_cut_is_not(void **state)
{
    (void)state;
    for (int k = 0; k < 2; k++) { /* slower; 1 % faster, inside the tie band */
        bed b;
        double part = k ? 979 : 1000;
        assert_int_equal(
            run(&b, (struct plan_of_times){{0, part, 1000}, {100, 110}, .gbps = 100, .gflops = 1}),
            RTX_OK);
        assert_string_equal(said(&b, "chosen"), "fused");
        assert_string_equal(said(&b, "why"), "measured");
        assert_int_equal(dot_adds(&b), 2);
        assert_int_equal(times.calls, 2);
        done(&b);
    }
}

static void test_a_clear_fusion_is_not_measured(void **state)
{
    (void)state;
    bed b;
    assert_int_equal(
        run(&b, (struct plan_of_times){{0, 1, 1000}, {100, 1}, .gbps = 0.1, .gflops = 1}), RTX_OK);
    assert_string_equal(said(&b, "chosen"), "fused");
    assert_int_equal(times.calls, 1);
    assert_int_equal(dot_adds(&b), 2);
    done(&b);
    assert_int_equal(
        run(&b, (struct plan_of_times){{0, 1, 1000}, {100, 1}, .gbps = 100, .gflops = 1000}),
        RTX_OK);
    assert_string_equal(said(&b, "why"), "clear: cutting cannot save enough");
    assert_int_equal(times.calls, 1);
    done(&b);
}

static void test_trouble_leaves_the_first_cut(void **state)
{
    (void)state;
    for (int at = 2; at <= 3; at++) {
        bed b;
        struct plan_of_times t = {{0, 500, 1000},           {100, 110},    .gbps = 100, .gflops = 1,
                                  .fails = RTX_UNSUPPORTED, .fails_at = at};
        assert_int_equal(run(&b, t), RTX_OK);
        assert_string_equal(said(&b, "chosen"), "fused");
        assert_int_equal(dot_adds(&b), 2);
        done(&b);
        t.fails = RTX_CANCELLED;
        assert_int_equal(run(&b, t), RTX_CANCELLED);
        done(&b);
    }
}

static void test_a_region_without_a_kernel_is_cut(void **state)
{
    (void)state;
    bed b;
    struct plan_of_times t = {
        {400, 500, 1000}, {100, 110, 120}, .gbps = 100, .gflops = 1000, .rejects = 2};
    assert_int_equal(run(&b, t), RTX_OK);
    json_t *first = json_array_get(b.fusion, 0);
    assert_string_equal(json_string_value(json_object_get(first, "chosen")), "split");
    assert_string_equal(json_string_value(json_object_get(first, "why")),
                        "no candidate was accepted");
    assert_int_equal(dot_adds(&b), 1);
    assert_int_equal(times.calls, 2); /* all; what is new */
    for (uint32_t i = 0; i < b.tuned.n; i++)
        b.report.keys -= b.tuned.items[i].n_points;
    assert_int_equal(b.report.keys, 0);
    done(&b);
    t.rejects = 1; /* its part, too */
    assert_int_equal(run(&b, t), RTX_OK);
    assert_int_equal(dot_adds(&b), 0);
    assert_int_equal(times.calls, 3);
    done(&b);
    t.gflops = 1; /* a search goes on from that cut: the norm lets go of what it took */
    assert_int_equal(run(&b, t), RTX_OK);
    assert_int_equal(dot_adds(&b), 0);
    done(&b);
    t.fails = RTX_UNSUPPORTED, t.fails_at = 2; /* the parts cannot be tuned */
    assert_int_equal(run(&b, t), RTX_UNSUPPORTED);
    done(&b);
}

/* NOMEM, or the choice that is made otherwise; nothing is left. */
static void every_allocation_fails_once(struct plan_of_times t, int adds)
{
    int survived = 0;
    for (int64_t n = 0;; n++) {
        bed b;
        prepare(&b, t);
        uint64_t start = base_alloc_count();
        base_alloc_fail_at(n);
        rtx_status s = decide(&b);
        base_alloc_fail_at(-1);
        bool beyond = (int64_t)(base_alloc_count() - start) <= n;
        if (s == RTX_OK) {
            json_t *first = json_array_get(b.fusion, 0);
            assert_string_equal(json_string_value(json_object_get(first, "chosen")), "split");
            assert_int_equal(dot_adds(&b), adds);
            survived++;
        } else {
            assert_int_equal(s, RTX_NOMEM);
        }
        done(&b);
        if (beyond) {
            print_message("%lld allocations, %d not needed\n", (long long)n, survived - 1);
            assert_true(s == RTX_OK && n > 100);
            return;
        }
    }
}

static void test_every_allocation_fails_once(void **state)
{
    (void)state;
    struct plan_of_times t = {{0, 500, 1000}, {100, 110, 120}, .gbps = 100, .gflops = 1};
    every_allocation_fails_once(t, 1);
    t.rejects = 1;
    every_allocation_fails_once(t, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_faster_cut_is_taken),
        cmocka_unit_test(test_a_slower_or_equal_cut_is_not),
        cmocka_unit_test(test_a_clear_fusion_is_not_measured),
        cmocka_unit_test(test_trouble_leaves_the_first_cut),
        cmocka_unit_test(test_a_region_without_a_kernel_is_cut),
        cmocka_unit_test(test_every_allocation_fails_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
