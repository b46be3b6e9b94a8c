/* Planted bad templates enter through the ordinary path, as files beside the real one: each is rejected, by the detector
 * that should see it, and the real template wins. Needs rtx-worker beside the test and a compiler. */
#include "tune_fixture.h"
#include "dev_cpu.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

static const struct plant {
    const char *file, *verdict; /* part of the reason that must be given */
} plants[] = {
    {"one_element", "off by"},
    {"write_past", "crashed: signal 11"},
    {"read_past", "crashed: signal 11"},
    {"vector_past", "crashed: signal 11"},
    {"writes_input", "crashed: signal 11"},
    {"before_start", "crashed: signal 11|writes outside"},
    {"uninitialised", "NaN poison"},
    {"previous_output", "finite poison"},
    {"unit_dependent", "differs between"},
    {"stalls", "no answer|stalls"},
    {"hangs", "no answer in"},
    {"crashes", "crashed: signal 4"},
    {"absurd_plan", "bytes of scratch"},
    {"scratch_past", "bytes of scratch, at byte 40"},
    {"scratch_before", "bytes of scratch, at byte -1"},
    {"local_unset", "NaN|nan"},
};

static syn_template templates[COUNT_OF(plants)];
static char files[COUNT_OF(plants)][64];

static const char *root(void)
{
    const char *here = getenv("RTX_SOURCE");
    return here ? here : "..";
}

/* What the packer does to a file: the body behind the header comment, and a hash of all. */
static bool read_plants(void)
{
    for (size_t i = 0; i < COUNT_OF(plants); i++) {
        char path[512];
        char *text;
        size_t bytes;
        snprintf(files[i], sizeof files[i], "tests/plant/%s.k.c", plants[i].file);
        snprintf(path, sizeof path, "%s/%s", root(), files[i]);
        if (base_read_file(path, 1 << 20, &text, &bytes, NULL) != RTX_OK)
            return false;
        char *body = strstr(text, "*/") + 3;
        uint32_t line = 1;
        for (const char *c = text; c < body; c++)
            line += *c == '\n';
        templates[i] = (syn_template){.name = "cpu/eltwise",
                                      .file = files[i],
                                      .text = body,
                                      .text_line = line,
                                      .text_bytes = bytes - (size_t)(body - text),
                                      .require = "1"};
        memcpy(templates[i].sha256, base_sha256_of(text, bytes).b, 32);
    }
    return true;
}

static size_t add_plants(void *ctx, const syn_problem *p, fmt_isa isa, syn_variant *list, size_t n,
                         size_t cap)
{
    (void)ctx, (void)p, (void)isa;
    n = MIN(n, 1);
    for (size_t i = 0; i < COUNT_OF(templates) && n < cap; i++)
        list[n++] = (syn_variant){.templ = &templates[i]};
    return n;
}

static bool any_of(const char *text, const char *words)
{
    char copy[128], *save = NULL;
    snprintf(copy, sizeof copy, "%s", words);
    for (char *w = strtok_r(copy, "|", &save); w; w = strtok_r(NULL, "|", &save))
        if (strstr(text, w))
            return true;
    return false;
}

static rtx_status tune_add(const char *cache, tun_item *item, tun_report *report, rtx_err *err)
{
    fmt_isa isa;
    rtx_status s = dev_isa_allowed(&isa, err);
    tun_options opt = {.isa = isa,
                       .cache = cache,
                       .variants = add_plants,
                       .variants_name = "plants",
                       .strategy = "exhaustive",
                       .mode = TUN_FULL};
    return s == RTX_OK ? tun_run(item, 1, &opt, report, err) : s;
}

static void check_verdicts(const char *evidence)
{
    for (size_t i = 0; i < COUNT_OF(plants); i++) {
        char want[96];
        snprintf(want, sizeof want, "\"file\":\"tests/plant/%s.k.c\"", plants[i].file);
        const char *at = strstr(evidence, want);
        if (!at)
            fail_msg("%s was not tried", plants[i].file);
        char verdict[300];
        const char *v = strstr(at, "\"verdict\":\"");
        snprintf(verdict, sizeof verdict, "%.*s", (int)strcspn(v + 11, "}"), v + 11);
        if (strncmp(verdict, "rejected: ", 10) != 0 || !any_of(verdict, plants[i].verdict))
            fail_msg("%s: %s, wanted %s", plants[i].file, verdict, plants[i].verdict);
    }
}

/* Files that the verdicts name: each holds a candidate that is rejected again. Two of them are run, the others only read. */
static void check_files(const char *cache, const char *evidence)
{
    static tun_repro r;
    uint32_t files = 0, run = 0;
    const char *at = evidence, *second = strstr(strstr(at, "\"sizes\"") + 1, "\"sizes\"");
    for (; (at = strstr(at, "(repro ")) != NULL && at < second; at++) {
        char name[33], path[1024], *text;
        size_t bytes;
        rtx_err err = {0};
        tun_verdict v;
        AUTO_BUF base_buf again;
        base_buf_init(&again, BASE_TAG_TUNE, SIZE_MAX);
        snprintf(name, sizeof name, "%.32s", at + 7);
        assert_int_equal(tun_repro_path(cache, name, path, sizeof path, NULL), RTX_OK);
        if (base_read_file(path, 1 << 20, &text, &bytes, &err) != RTX_OK ||
            tun_repro_parse(text, bytes, &r, &err) != RTX_OK)
            fail_msg("%s: %s", path, err.text);
        assert_int_equal(tun_repro_print(&r, &again, NULL), RTX_OK);
        assert_true(again.len == bytes && memcmp(again.data, text, bytes) == 0);
        assert_true(r.n_points == 2 && r.point[1].sym[0] == 5000);
        if (strstr(r.body, "OUT[11] *=") || strstr(r.body, "__builtin_trap")) {
            assert_int_equal(tun_repro_check(&r, &v, &err), RTX_OK);
            assert_non_null(v.why.code ? strstr(evidence, v.why.text) : NULL);
            run++;
        }
        files++;
        tun_repro_done(&r);
        base_free(text);
    }
    assert_int_equal(files, COUNT_OF(plants));
    assert_int_equal(run, 2);
}

static void each_plant_is_rejected(void **state)
{
    (void)state;
    char version[200];
    rtx_err err = {0};
    if (!tun_have_compiler(version, sizeof version, &err)) {
        print_message("skipped: %s\n", err.text);
        skip();
    }
    assert_true(read_plants());
    char *cache = fixture_folder();
    syn_problem *p = fixture_add();
    tun_point points[] = {{{100}, 1, 1}, {{5000}, 1, 1}};
    tun_item item = {.problem = p, .points = points, .n_points = 2};
    tun_report report;
    if (tune_add(cache, &item, &report, &err) != RTX_OK)
        fail_msg("%s", err.text);
    check_verdicts(item.result.evidence);
    check_files(cache, item.result.evidence);
    assert_int_equal(report.rejected, COUNT_OF(plants));
    for (uint32_t k = 0; k < 2; k++) {
        assert_int_not_equal(item.result.picks[k].kernel, FMT_NONE);
        assert_int_equal(item.result.kernels[item.result.picks[k].kernel].variant.templ->n_params,
                         1);
    }
    tun_result_done(&item.result);

    /* The rejections are remembered: another size of the problem compiles the good one only. */
    tun_point more = {{777}, 1, 1};
    item = (tun_item){.problem = p, .points = &more, .n_points = 1};
    uint64_t t_ns = base_now_ns();
    assert_int_equal(tune_add(cache, &item, &report, &err), RTX_OK);
    assert_true(report.compiled <= 3 && report.rejected == COUNT_OF(plants));
    assert_true(base_now_ns() - t_ns < UINT64_C(20000000000));
    check_verdicts(item.result.evidence);
    tun_result_done(&item.result);
    syn_problem_free(p);
    fixture_remove(cache);
    base_free(cache);
}

/* ---- right at every size that candidates are validated at, wrong above ---- */

#define GOOD_ROWS "400"
static syn_template late;

/* The real product, and one to the first column of each row past GOOD_ROWS. */
static bool make_late(void)
{
    static const char run[] = "void K_FN(run)(const k_call *c, int64_t begin, int64_t end)",
                      more[] =
                          "\n{\n    const int64_t *arg = c->arg;\n    K_FN(once)(c, begin, end);\n"
                          "    for (int64_t m = " GOOD_ROWS "; m < DIM_M && end > begin; m++)\n"
                          "        ((float *)c->buf[C_IDX])[m * C_M] += 1.0f;\n}\n";
    size_t n, i = 0;
    const syn_template *all = syn_template_table(&n);
    while (i < n && strcmp(all[i].name, "cpu/gemm") != 0)
        i++;
    const char *at = i < n ? strstr(all[i].text, run) : NULL;
    if (!at)
        return false;
    size_t bytes = strlen(all[i].text) + sizeof run + sizeof more + 64;
    char *text = base_alloc(BASE_TAG_TUNE, bytes);
    snprintf(text, bytes,
             "%.*sstatic void K_FN(once)(const k_call *c, int64_t begin, int64_t end)%s%s%s",
             (int)(at - all[i].text), all[i].text, at + sizeof run - 1, run, more);
    late = all[i];
    late.file = "tests/plant/late";
    late.text = text;
    late.text_bytes = strlen(text);
    memcpy(late.sha256, base_sha256_of(text, late.text_bytes).b, 32);
    return true;
}

/* The real template as it never is fast, and the planted one as it is. */
static size_t only_late_is_fast(void *ctx, const syn_problem *p, fmt_isa isa, syn_variant *list,
                                size_t n, size_t cap)
{
    (void)ctx, (void)p, (void)isa, (void)cap;
    syn_variant slow = list[0];
    bool found = false;
    for (size_t i = 0; i < n; i++) /* one row and one panel: a single chain of sums */
        if (list[i].value[0] == 1 && list[i].value[1] == 1 && !found) {
            slow = list[i];
            found = true;
        }
    list[1] = list[0];
    list[1].templ = &late;
    list[0] = slow;
    return 2;
}

static void a_winner_is_checked_at_its_largest_size(void **state)
{
    (void)state;
    rtx_err err = {0};
    if (!tun_have_compiler(NULL, 0, &err)) {
        print_message("no compiler: %s\n", err.text);
        skip();
    }
    assert_true(make_late());
    char *cache = fixture_folder();
    syn_problem *p = fixture_gemm(384, 512, false, false);
    tun_point points[] = {{{200}, 1, 1}, {{512}, 1, 1}};
    tun_item item = {.problem = p, .points = points, .n_points = 2};
    tun_report report;
    fmt_isa isa;
    assert_int_equal(dev_isa_allowed(&isa, NULL), RTX_OK);
    tun_options opt = {.isa = isa,
                       .cache = cache,
                       .variants = only_late_is_fast,
                       .variants_name = "late",
                       .strategy = "exhaustive"};
    if (tun_run(&item, 1, &opt, &report, &err) != RTX_OK)
        fail_msg("%s", err.text);
    const char *at = strstr(item.result.evidence, "tests/plant/late");
    assert_non_null(at);
    const char *v = strstr(at, "\"verdict\":\"") + 11;
    if (strncmp(v, "rejected: ", 10) != 0 || !strstr(v, "off by"))
        fail_msg("late: %.200s", v);
    for (uint32_t k = 0; k < 2; k++) {
        assert_int_not_equal(item.result.picks[k].kernel, FMT_NONE);
        assert_ptr_not_equal(item.result.kernels[item.result.picks[k].kernel].variant.templ, &late);
    }
    tun_result_done(&item.result);
    syn_problem_free(p);
    base_free((void *)(uintptr_t)late.text);
    fixture_remove(cache);
    base_free(cache);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(each_plant_is_rejected),
                                       cmocka_unit_test(a_winner_is_checked_at_its_largest_size)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
