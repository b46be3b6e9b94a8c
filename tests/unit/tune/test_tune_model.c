/* Predictions: what must hold whatever the constants are; what pruning leaves; the order of the first candidates. */
#include "tun_session.h"
#include "tune_fixture.h"
#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

static const tun_hw machine = {
    .cores = 2,
    .isa = FMT_ISA_V4,
    .fma_gflops = {100, 200},
    .read_gbps = {10, 15},
    .handoff_ns = 300,
    .cliff_vectors = 28,
    .read_curve = {.bytes = {32768, 1 << 20, 1 << 24}, .gbps = {200, 100, 50}, .n = 3}};

static double predict(syn_problem *p, const int64_t *sym, const char *params, int ways)
{
    const syn_template *t;
    syn_variant v;
    tun_model q;
    assert_int_equal(syn_match(p, &t, NULL), RTX_OK);
    assert_true(syn_variant_parse(t, params, &v));
    tun_model_open(p, t, sym, &q);
    return tun_model_ns(&q, &machine, FMT_ISA_V4, &v, ways);
}

static void gemm_predictions_are_sane(void **state)
{
    (void)state;
    syn_problem *p = fixture_gemm(384, 1536, false, false);
    const int64_t sym[SYN_SYMS_MAX] = {128};
    const char *good = "MR=8 NP=3 MB=0 NB=3 ORDER=0 PF=3 KU=1",
               *thin = "MR=1 NP=1 MB=0 NB=1 ORDER=0 PF=3 KU=1",
               *spilled = "MR=16 NP=2 MB=0 NB=2 ORDER=0 PF=2 KU=1";
    double ns = predict(p, sym, good, 1), peak = 2.0 * 128 * 384 * 1536 / 100;
    assert_true(ns >= peak && ns < 2 * peak);
    assert_true(predict(p, sym, thin, 1) > TUN_HOPELESS * ns);
    assert_true(predict(p, sym, spilled, 1) > 1.5 * ns);
    double two = predict(p, sym, good, 2);
    assert_true(two < 0.6 * ns && two > 0.5 * peak);
    const int64_t one[SYN_SYMS_MAX] = {1}; /* weights come from memory */
    assert_true(predict(p, one, good, 1) >= 384 * 1536 * 4 / 10.0);
    syn_problem_free(p);
}

static void attention_predictions_are_sane(void **state)
{
    (void)state;
    syn_problem *p = fixture_attention(12, 32, true);
    const int64_t sym[SYN_SYMS_MAX] = {1, 128};
    const char *good = "NP=4 KR=6 QR=12 VP=2 KU=1", *thin = "NP=1 KR=1 QR=1 VP=1 KU=1";
    double ns = predict(p, sym, good, 1), peak = 4.0 * 12 * 128 * 128 * 32 / 100;
    assert_true(ns >= peak && ns < 4 * peak);
    assert_true(predict(p, sym, thin, 1) > TUN_HOPELESS * ns);
    syn_problem_free(p);
    p = fixture_layernorm(48);
    const syn_template *t;
    tun_model q;
    assert_int_equal(syn_match(p, &t, NULL), RTX_OK);
    tun_model_open(p, t, sym, &q);
    assert_true(tun_model_ns(&q, &machine, FMT_ISA_V4, &(syn_variant){.templ = t}, 1) == 0);
    syn_problem_free(p);
}

/* ---- pruning ---- */

#define N 60
static syn_variant variants[N];
static uint8_t state_of[N];
static double score[N], guess[N];

static const int64_t values[] = {1, 2, 3, 4};
static const syn_param params[] = {
    {"A", 1, values, 4, ""}, {"B", 1, values, 4, ""}, {"C", 1, values, 4, ""}};
static const syn_template templ = {.name = "cpu/formula", .params = params, .n_params = 3};

/* The first `promising` variants after two seeds are within the limit; the rest get worse and worse. */
static tun_space space_with(uint32_t promising)
{
    memset(state_of, 0, sizeof state_of);
    memset(score, 0, sizeof score);
    for (uint32_t v = 0; v < N; v++) {
        variants[v] =
            (syn_variant){.templ = &templ, .value = {v / 16 + 1, v / 4 % 4 + 1, v % 4 + 1}};
        guess[v] = v < 2 ? 9 : v < 2 + promising ? 1 + 0.01 * v : 2.1 + v;
    }
    return (tun_space){variants, state_of, score, N, 2, 42, guess};
}

static uint32_t count(uint8_t what)
{
    uint32_t n = 0;
    for (uint32_t v = 0; v < N; v++)
        n += state_of[v] == what;
    return n;
}

/* Ask for everything: seeds and what is promising stays, and never less than the floor. */
static void pruning_keeps_enough(void **state)
{
    (void)state;
    for (uint32_t promising = 0; promising <= N - 2; promising++) {
        tun_space s = space_with(promising);
        uint32_t list[N];
        for (uint32_t v = 0; v < N; v++) {
            state_of[v] = TUN_ASKED;
            list[v] = v;
        }
        uint32_t kept = tun_model_prune(&s, guess, list, N);
        assert_int_equal(kept, MAX(2 + promising, TUN_KEEP));
        assert_int_equal(count(TUN_ASKED), kept);
        assert_int_equal(count(TUN_PRUNED), N - kept);
        for (uint32_t v = 0; v < 2 + promising; v++)
            assert_int_equal(state_of[v], TUN_ASKED);
    }
    tun_space s = space_with(0);
    uint32_t list[] = {5};
    assert_int_equal(tun_model_prune(&s, NULL, list, 1), 1); /* no model, no pruning */
}

static void rejections_bring_pruned_ones_back(void **state)
{
    (void)state;
    tun_space s = space_with(3);
    memset(state_of, TUN_PRUNED, sizeof state_of);
    state_of[0] = state_of[2] = state_of[3] = TUN_GOOD;
    state_of[1] = state_of[4] = TUN_BAD;
    assert_int_equal(tun_model_reopen(&s, guess), TUN_TIMED_LEAST - 3);
    for (uint32_t v = 5; v < 10; v++)
        assert_int_equal(state_of[v], TUN_ASKED); /* the best predicted ones */
    for (uint32_t v = 0; v < N; v++)
        state_of[v] = state_of[v] == TUN_ASKED ? TUN_GOOD : state_of[v];
    assert_int_equal(tun_model_reopen(&s, guess), 0);
}

static void the_first_round_follows_the_model(void **state)
{
    (void)state;
    tun_space s = space_with(20);
    uint32_t out[12];
    assert_int_equal(tun_strategy_find("bandit")->propose(&s, 12, out), 12);
    assert_true(out[0] == 0 && out[1] == 1); /* seeds */
    for (int i = 2; i < 12; i++)
        assert_true(guess[out[i]] < TUN_HOPELESS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gemm_predictions_are_sane),
        cmocka_unit_test(attention_predictions_are_sane),
        cmocka_unit_test(pruning_keeps_enough),
        cmocka_unit_test(rejections_bring_pruned_ones_back),
        cmocka_unit_test(the_first_round_follows_the_model),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
