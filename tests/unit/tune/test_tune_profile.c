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

/* ---- every field of a kernel's key ---- */

typedef struct bed {
    tun_options opt;
    tun_session s;
    tun_point point[2];
    tun_item item;
    tun_job j;
    tun_spot spot;
    syn_template templ;
} bed;

static size_t keep_all(void *ctx, const syn_problem *p, fmt_isa isa, syn_variant *list, size_t n,
                       size_t cap)
{
    (void)ctx, (void)p, (void)isa, (void)list, (void)cap;
    return n;
}

/* Each changes one thing; the field that then differs, NULL = it is no part of the key. */
#define KEY_CHANGES(X)                                                                             \
    X(size, b->point[0].sym[0] = 65, "size")                                                       \
    X(threads, b->point[0].threads = 2, "threads")                                                 \
    X(isa, b->opt.isa = FMT_ISA_V3, "isa")                                                         \
    X(problem, b->j.problem = (char *)"other", "problem")                                          \
    X(template, b->templ.name = "cpu/other", "template")                                           \
    X(template_text, b->templ.sha256[31] ^= 1, "template text")                                    \
    X(cpu, b->s.hw.cpu[0] = 'x', "cpu")                                                            \
    X(cores, b->s.hw.cores = 3, "cores")                                                           \
    X(l2, b->s.facts.l2_bytes *= 2, "L2")                                                          \
    X(cliff, b->s.facts.cliff_vectors = 16, "CLIFF")                                               \
    X(mode, b->opt.mode = TUN_FULL, "search")                                                      \
    X(strategy, b->opt.strategy = "climb", "strategy")                                             \
    X(static_rule, b->opt.static_rule = true, "variants hook")                                     \
    X(hook, (b->opt.variants = keep_all, b->opt.variants_name = "pin a"), "variants hook")         \
    X(deterministic, b->opt.deterministic = true, "class")                                         \
    X(budget, b->opt.budget_s = 7, NULL)                                                           \
    X(redo, b->opt.redo = true, NULL)                                                              \
    X(cache, b->opt.cache = "elsewhere", NULL)                                                     \
    X(quiet, b->opt.quiet = true, NULL)                                                            \
    X(weight, b->point[0].weight = 9, NULL)                                                        \
    X(points, b->j.n_spots = 1, NULL)                                                              \
    X(l3, b->s.facts.l3_bytes *= 4, NULL)                                                          \
    X(speed, b->s.facts.fma_gflops /= 2, NULL)
#define KEY_CHANGE(name, what, field)                                                              \
    static void change_##name(bed *b) { what; }
KEY_CHANGES(KEY_CHANGE)
static const struct key_change {
    void (*change)(bed *b);
    const char *field;
} key_changes[] = {
#define KEY_ROW(name, what, field) {change_##name, field},
    KEY_CHANGES(KEY_ROW)};

static void bed_key(syn_problem *p, void (*change)(bed *b), tun_key *out)
{
    static bed b;
    memset(&b, 0, sizeof b);
    const syn_template *templ;
    assert_int_equal(syn_match(p, &templ, NULL), RTX_OK);
    b.templ = *templ;
    b.opt.isa = FMT_ISA_V4;
    b.point[0] = (tun_point){.sym = {64}, .threads = 1};
    b.item = (tun_item){.problem = p, .points = b.point, .n_points = 1};
    b.j = (tun_job){.item = &b.item, .templ = &b.templ, .problem = (char *)"text", .n_spots = 1};
    b.j.spots = &b.spot;
    b.spot = (tun_spot){.job = &b.j, .point = b.point, .shape.n_sym = 1};
    b.s = (tun_session){.opt = &b.opt, .known = true, .facts = usual};
    b.s.hw.cores = 2;
    strcpy(b.s.hw.cpu, "cpu");
    if (change)
        change(&b);
    assert_int_equal(tun_book_keys(&b.s, &b.j, NULL), RTX_OK);
    *out = b.spot.key;
}

static void each_field_alone_decides(void **state)
{
    (void)state;
    syn_problem *gemm = fixture_gemm(64, 96, false, false);
    tun_cache here;
    tun_key k, other;
    const tun_origin real = {true, true};
    tun_cache_open(&here, folder, "cpu");
    bed_key(gemm, NULL, &k);
    assert_int_equal(tun_cache_put(&here, TUN_PLAN, &k, "pick", 4, &real), RTX_OK);
    for (size_t i = 0; i < COUNT_OF(key_changes); i++) {
        char why[96] = "", want[96];
        AUTO_FREE char *data = NULL;
        size_t n;
        const char *field = key_changes[i].field;
        bed_key(gemm, key_changes[i].change, &other);
        bool same = strcmp(k.text.data, other.text.data) == 0;
        assert_int_equal(same, field == NULL);
        bool got = tun_cache_get(&here, TUN_PLAN, &other, &data, &n, why, sizeof why);
        assert_int_equal(got, field == NULL);
        snprintf(want, sizeof want, "miss: %s differs", field ? field : "");
        if (!got && strcmp(why, "miss") != 0) /* an identity of its own finds no entry to compare */
            assert_string_equal(why, want);
        tun_key_done(&other);
    }
    const char *const told[] = {
        "prelude and renderer=", "flags=", "kernel interface=", "model=", "buckets=",
        "measurement="};
    for (size_t i = 0; i < COUNT_OF(told); i++)
        assert_non_null(strstr(k.text.data, told[i]));
    tun_key_done(&k);
    syn_problem_free(gemm);
}

int main(void)
{
#define CASE(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        CASE(facts_are_the_best_of_rounds),
        CASE(a_kept_profile_costs_one_sentinel),
        CASE(a_faster_machine_is_measured_again),
        CASE(a_disturbed_profile_is_measured_again),
        CASE(an_unreal_profile_is_not_kept),
        cmocka_unit_test(keys_hold_what_was_read),
        CASE(a_choice_depends_on_question_search_and_machine),
        CASE(each_field_alone_decides),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
