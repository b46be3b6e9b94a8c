/* The profile on a machine made of a table: best of rounds, outdated profiles, unreal ones; which facts enter a key; and what
 * a kept choice depends on. */
#include "dev_cpu.h"
#include "tun_session.h"
#include "tune_fixture.h"
#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

/* ---- a machine ---- */

typedef struct machine {
    double fma, memory; /* of an undisturbed sample */
    double slow[8];     /* factors on the following sentinels, 0 = 1 */
    uint32_t asked, fma_asked;
    int cliff; /* the last of the table's entries at full speed, 0 = 5 */
} machine;

static uint64_t ticks;
static uint64_t tick(void) { return ticks += 1000000; }
static const tun_clock clock_real = {tick, true}, clock_fake = {tick, false};

/* 32 KiB, 1 MiB and 16 MiB are the knees; 24 accumulators are the cliff. */
static double read_rate(const machine *m, int64_t bytes)
{
    return bytes <= 32 << 10 ? 200 : bytes <= 1 << 20 ? 100 : bytes <= 16 << 20 ? 50 : m->memory;
}

static rtx_status answer(void *ctx, fmt_work_probe what, int64_t a, int64_t b, fmt_work_rep *out,
                         rtx_err *err)
{
    (void)err;
    machine *m = ctx;
    memset(out, 0, sizeof *out);
    m->asked++;
    switch (what) {
    case FMT_PROBE_FMA:
        out->value[0] = m->fma * (double)a;
        if (a == 1) {
            double f = m->slow[m->fma_asked++ % COUNT_OF(m->slow)];
            out->value[0] *= f > 0 ? f : 1;
        }
        break;
    case FMT_PROBE_BUSY:
        out->value[0] = 1.05 * m->fma * (double)a;
        break;
    case FMT_PROBE_READ:
        out->value[0] = read_rate(m, b);
        break;
    case FMT_PROBE_CLIFF:
        for (int i = 0; i < TUN_CLIFFS; i++)
            out->value[i] = i <= (m->cliff ? m->cliff : 5) ? 100 : 50;
        break;
    default:
        out->value[0] = 100;
    }
    return RTX_OK;
}

static tun_prober prober(machine *m) { return (tun_prober){answer, m, &clock_real, {true, true}}; }

static char *folder;
static tun_cache cache;

static int setup(void **state)
{
    (void)state;
    folder = fixture_folder();
    if (!folder)
        return 1;
    tun_cache_open(&cache, folder, "cpu");
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    fixture_remove(folder);
    base_free(folder);
    return 0;
}

static rtx_status profile(machine *m, bool redo, tun_hw *hw)
{
    tun_prober by = prober(m);
    m->asked = 0;
    return tun_profile_with(&by, &cache, FMT_ISA_V4, redo, hw, NULL);
}

static void facts_are_the_best_of_rounds(void **state)
{
    (void)state;
    machine m = {.fma = 100, .memory = 10, .slow = {0.4, 0.5, 1, 1, 1, 1, 1, 1}};
    tun_hw hw, kept;
    assert_int_equal(profile(&m, false, &hw), RTX_OK);
    assert_true(hw.fma_gflops[0] == 100 && hw.read_gbps[0] == 10 && hw.spread == 0);
    assert_true(hw.cores == 1 || (hw.fma_gflops[1] > 104 * hw.cores &&
                                  hw.fma_gflops[1] < 106 * hw.cores)); /* of busy ones */
    assert_true(hw.l1_bytes == 32 << 10 && hw.l2_bytes == 1 << 20 && hw.l3_bytes == 16 << 20);
    assert_int_equal(hw.cliff_vectors, 24);
    assert_true(tun_floor_ns(&hw, 1000, 8, true, 1) == 10);   /* arithmetic */
    assert_true(tun_floor_ns(&hw, 10, 1000, true, 1) == 100); /* memory */
    assert_true(tun_floor_ns(&hw, 10, 1000, false, 1) < 100); /* a cache holds it */
    assert_true(tun_floor_ns(&hw, 1000, 8, true, 64) >= 1000 / MAX(hw.fma_gflops[1], 100));
    assert_int_equal(tun_profile_with(NULL, &cache, FMT_ISA_V4, false, &kept, NULL), RTX_OK);
    assert_memory_equal(&hw, &kept, sizeof hw);
    assert_int_equal(tun_profile_with(NULL, &cache, FMT_ISA_V3, false, &kept, NULL), RTX_NOT_FOUND);
}

static void a_kept_profile_costs_one_sentinel(void **state)
{
    (void)state;
    machine m = {.fma = 100, .memory = 10};
    tun_hw hw;
    assert_int_equal(profile(&m, false, &hw), RTX_OK);
    assert_true(m.asked > 50);
    m.fma = 60; /* a slower moment proves nothing */
    m.memory = 10.2;
    assert_int_equal(profile(&m, false, &hw), RTX_OK);
    assert_int_equal(m.asked, 2);
    assert_true(hw.fma_gflops[0] == 100);
}

static void a_faster_machine_is_measured_again(void **state)
{
    (void)state;
    machine m = {.fma = 100, .memory = 10};
    tun_hw hw;
    assert_int_equal(profile(&m, false, &hw), RTX_OK);
    m.fma = 104;
    assert_int_equal(profile(&m, false, &hw), RTX_OK);
    assert_true(m.asked > 50 && hw.fma_gflops[0] == 104 && hw.spread == 0);
    m.memory = 11;
    assert_int_equal(profile(&m, false, &hw), RTX_OK);
    assert_true(m.asked > 50 && hw.read_gbps[0] == 11);
    assert_int_equal(profile(&m, false, &hw), RTX_OK); /* the entry was replaced */
    assert_int_equal(m.asked, 2);
    m.fma = 50;
    assert_int_equal(profile(&m, true, &hw), RTX_OK); /* redo forgets */
    assert_true(hw.fma_gflops[0] == 50);
}

static void a_disturbed_profile_is_measured_again(void **state)
{
    (void)state;
    machine m = {.fma = 100, .memory = 10, .slow = {1, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5}};
    tun_hw hw;
    assert_int_equal(profile(&m, false, &hw), RTX_OK);
    assert_true(hw.spread == 0.5 && hw.rounds > 4);
    memset(m.slow, 0, sizeof m.slow);
    assert_int_equal(profile(&m, false, &hw), RTX_OK);
    assert_true(m.asked > 50 && hw.spread == 0);
    assert_int_equal(profile(&m, false, &hw), RTX_OK);
    assert_int_equal(m.asked, 2);
}

static void an_unreal_profile_is_not_kept(void **state)
{
    (void)state;
    machine m = {.fma = 100, .memory = 10};
    const tun_prober fake[] = {{answer, &m, &clock_fake, {false, true}},
                               {answer, &m, &clock_real, {true, false}}};
    tun_hw hw;
    for (size_t i = 0; i < COUNT_OF(fake); i++)
        assert_int_equal(tun_profile_with(&fake[i], &cache, FMT_ISA_V4, false, &hw, NULL),
                         RTX_INVALID);
    assert_int_equal(cache.written, 0);
    assert_int_equal(tun_profile_with(NULL, &cache, FMT_ISA_V4, false, &hw, NULL), RTX_NOT_FOUND);
    tun_worker none = {0};
    assert_false(tun_prober_of(&none, &clock_fake).origin.real_clock);
}

/* ---- keys ---- */

static const hw_facts usual = {.cliff_vectors = 28,
                               .l1_bytes = 32 << 10,
                               .l2_bytes = 1 << 20,
                               .l3_bytes = 16 << 20,
                               .fma_gflops = 100,
                               .read_gbps = 10};

/* Key text of a problem's only point on a machine; base_free. */
static char *key_on(syn_problem *p, const hw_facts *hw)
{
    tun_options opt = {.isa = FMT_ISA_V4};
    tun_session s = {.opt = &opt, .known = hw != NULL};
    if (hw)
        s.facts = *hw;
    tun_point point = {.sym = {64}, .threads = 1};
    tun_item item = {.problem = p, .points = &point, .n_points = 1};
    tun_job j = {.item = &item, .problem = (char *)"text", .n_spots = 1};
    tun_spot spot = {.job = &j, .point = &point};
    j.spots = &spot;
    assert_int_equal(syn_match(p, &j.templ, NULL), RTX_OK);
    assert_int_equal(tun_book_keys(&s, &j, NULL), RTX_OK);
    char *text = base_buf_take(&spot.key.text, NULL);
    tun_key_done(&spot.key);
    return text;
}

static bool same_key(syn_problem *p, const hw_facts *a, const hw_facts *b)
{
    AUTO_FREE char *x = key_on(p, a);
    AUTO_FREE char *y = key_on(p, b);
    return strcmp(x, y) == 0;
}

static void keys_hold_what_was_read(void **state)
{
    (void)state;
    syn_problem *gemm = fixture_gemm(64, 96, false, false), *add = fixture_add();
    hw_facts l2 = usual, l3 = usual, cliff = usual, noise = usual;
    l2.l2_bytes = 2 << 20;
    l3.l3_bytes = 64 << 20;
    cliff.cliff_vectors = 24;
    noise.l2_bytes = (1 << 20) * 5 / 4;
    noise.fma_gflops = 90;
    noise.read_gbps = 4;
    assert_int_equal(syn_facts_read(gemm, FMT_ISA_V4), 1u << HW_L2 | 1u << HW_CLIFF);
    assert_int_equal(syn_facts_read(add, FMT_ISA_V4), 0);
    assert_true(same_key(gemm, &usual, &usual));
    assert_false(same_key(gemm, &usual, &l2));
    assert_false(same_key(gemm, &usual, &cliff));
    assert_false(same_key(gemm, &usual, NULL)); /* 28 is not the default cliff */
    assert_true(same_key(gemm, &usual, &l3));
    assert_true(same_key(gemm, &usual, &noise));
    assert_true(same_key(add, &usual, &l2) && same_key(add, &usual, &cliff));
    assert_true(same_key(add, &usual, NULL));
    syn_problem_free(gemm);
    syn_problem_free(add);
}

/* ---- choices ---- */

static bool has_choice(const tun_options *o, const char *question)
{
    AUTO_FREE char *answer = tun_choice_get(o, question);
    assert_true(answer == NULL || strcmp(answer, "[true]") == 0);
    return answer != NULL;
}

static void a_choice_depends_on_question_search_and_machine(void **state)
{
    (void)state;
    tun_cache here;
    tun_hw hw;
    machine m = {.fma = 100, .memory = 10}, other = {.fma = 100, .memory = 10, .cliff = 3};
    tun_prober by = prober(&m), by_other = prober(&other);
    tun_cache_open(&here, folder, dev_cpu_get()->name);
    const tun_options usual_way = {.isa = FMT_ISA_V4, .cache = folder};
    tun_choice_put(&usual_way, "q", "[true]"); /* of an unknown machine */
    assert_true(has_choice(&usual_way, "q"));
    assert_int_equal(tun_profile_with(&by, &here, FMT_ISA_V4, false, &hw, NULL), RTX_OK);
    assert_false(has_choice(&usual_way, "q"));
    tun_choice_put(&usual_way, "q", "[true]");
    assert_true(has_choice(&usual_way, "q"));
    assert_false(has_choice(&usual_way, "p"));
    tun_options o[] = {usual_way, usual_way, usual_way, usual_way, usual_way};
    o[0].isa = FMT_ISA_V3;
    o[1].mode = TUN_FULL;
    o[2].deterministic = true;
    o[3].strategy = "climb";
    o[4].cache = "";
    for (size_t i = 0; i < COUNT_OF(o); i++)
        assert_false(has_choice(&o[i], "q"));
    assert_int_equal(tun_profile_with(&by_other, &here, FMT_ISA_V4, true, &hw, NULL), RTX_OK);
    assert_int_equal(hw.cliff_vectors, 16);
    assert_false(has_choice(&usual_way, "q"));
    assert_int_equal(tun_profile_with(&by, &here, FMT_ISA_V4, true, &hw, NULL), RTX_OK);
    assert_true(has_choice(&usual_way, "q"));
}

int main(void)
{
#define CASE(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        CASE(facts_are_the_best_of_rounds),       CASE(a_kept_profile_costs_one_sentinel),
        CASE(a_faster_machine_is_measured_again), CASE(a_disturbed_profile_is_measured_again),
        CASE(an_unreal_profile_is_not_kept),      cmocka_unit_test(keys_hold_what_was_read),
        CASE(a_choice_depends_on_question_search_and_machine),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
