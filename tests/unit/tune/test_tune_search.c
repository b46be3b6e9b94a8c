/* Strategies on a formula instead of a machine; ties and winners. */
#include "tune_fixture.h"
#include "tun_session.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

static const int64_t values[] = {1, 2, 3, 4, 5, 6};
static const syn_param params[] = {
    {"A", 1, values, 6, ""}, {"B", 1, values, 6, ""}, {"C", 1, values, 6, ""}};
static const syn_template templ = {.name = "cpu/formula", .params = params, .n_params = 3};

#define N 216
static syn_variant variants[N];
static uint8_t state[N];
static double score[N];

/* Best at A=4 B=2 C=5, rough around it. */
static double cost(const syn_variant *v)
{
    double a = (double)v->value[0] - 4, b = (double)v->value[1] - 2, c = (double)v->value[2] - 5;
    return 1 + 0.1 * a * a + 0.2 * b * b + 0.05 * c * c + 0.02 * fabs(a * b);
}

static tun_space fresh(void)
{
    for (int i = 0; i < N; i++)
        variants[i] =
            (syn_variant){.templ = &templ, .value = {i / 36 + 1, i / 6 % 6 + 1, i % 6 + 1}};
    memset(state, 0, sizeof state);
    memset(score, 0, sizeof score);
    return (tun_space){variants, state, score, N, 2, 42, NULL};
}

/* Run a strategy for a number of trials; the best cost that it found. */
static double run(const tun_strategy *how, uint32_t trials)
{
    tun_space s = fresh();
    double best = INFINITY;
    for (uint32_t done = 0; done < trials;) {
        uint32_t out[8], n = how->propose(&s, MIN(8, trials - done), out);
        if (n == 0)
            break;
        for (uint32_t i = 0; i < n; i++) {
            assert_int_equal(state[out[i]], TUN_ASKED); /* never the same twice */
            state[out[i]] = TUN_GOOD;
            score[out[i]] = cost(&variants[out[i]]);
            best = MIN(best, score[out[i]]);
        }
        done += n;
    }
    return best;
}

static void all_strategies_end_and_find(void **unused)
{
    (void)unused;
    size_t n;
    const tun_strategy *table = tun_strategy_table(&n);
    for (size_t i = 0; i < n; i++) {
        assert_ptr_equal(tun_strategy_find(table[i].name), &table[i]);
        assert_true(run(&table[i], N + 10) == 1.0);
    }
    assert_null(tun_strategy_find("none"));
}

static void bandit_and_climb_need_few_trials(void **unused)
{
    (void)unused;
    assert_true(run(tun_strategy_find("bandit"), 40) <= 1.1);
    assert_true(run(tun_strategy_find("climb"), 40) <= 1.1);
}

static void seeds_come_first(void **unused)
{
    (void)unused;
    size_t n;
    const tun_strategy *table = tun_strategy_table(&n);
    for (size_t i = 0; i < n; i++) {
        tun_space s = fresh();
        uint32_t out[4];
        assert_int_equal(table[i].propose(&s, 4, out), 4);
        assert_int_equal(out[0], 0);
        assert_int_equal(out[1], 1);
    }
}

static void ties_go_to_the_default_then_to_order(void **unused)
{
    (void)unused;
    const double none[5] = {0};
    assert_int_equal(tun_winner((double[]){99.4, 99.3, 99, 300, 0}, none, 5, 4), 0);
    assert_int_equal(tun_winner((double[]){99.3, 99.4, 99, 300, 0}, none, 5, 1), 1);
    assert_int_equal(tun_winner((double[]){110, 99.4, 99, 300, 0}, none, 5, 0), 1);
    assert_int_equal(tun_winner((double[]){0, 0, 0, 0, 0}, none, 5, 0), UINT32_MAX);
    /* Noise widens the band, but never past what the evidence promises. */
    assert_int_equal(tun_winner((double[]){100.9, 100}, (double[]){0.01, 0.01}, 2, 5), 0);
    assert_int_equal(tun_winner((double[]){101.1, 100}, (double[]){0.5, 0.5}, 2, 5), 1);
}

static void samples_keep_best_and_spread(void **unused)
{
    (void)unused;
    tun_samples s = {0};
    for (int i = 0; i < 20; i++)
        tun_samples_add(&s, i % 2 ? 101 : 99);
    assert_true(s.best == 99 && s.n == 20);
    assert_true(tun_samples_spread(&s) > 0.009 && tun_samples_spread(&s) < 0.011);
}

/* The static choice takes 100, another one `ns`, which is less in `faster` of eight rounds. Who wins? */
static uint32_t winner_of(double ns, uint32_t faster)
{
    uint8_t state[2] = {TUN_GOOD, TUN_GOOD};
    tun_cand cands[2] = {0};
    tun_samples samples[2] = {0};
    tun_samples_add(&samples[0], 100);
    tun_samples_add(&samples[1], ns);
    for (uint32_t r = 0; r < 8; r++) {
        samples[0].round[r] = 110;
        samples[1].round[r] = r < faster ? 109 : 111;
    }
    tun_job job = {.space.n = 2, .state = state, .cands = cands};
    tun_point point = {.threads = 1};
    tun_spot spot = {.job = &job, .point = &point, .samples = {samples, samples}};
    tun_spot_pick(&spot);
    return spot.winner;
}

static void a_default_is_left_for_what_almost_all_rounds_prefer(void **unused)
{
    (void)unused;
    assert_int_equal(winner_of(97, 8), 1);
    assert_int_equal(winner_of(97, 7), 1);
    assert_int_equal(winner_of(97, 6), 0);
    assert_int_equal(winner_of(97, 0), 0);
    assert_int_equal(winner_of(99.6, 8), 0); /* a tie all the same */
    assert_int_equal(winner_of(90, 0), 1);   /* too much for noise to be the reason */
    assert_int_equal(winner_of(101, 8), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_strategies_end_and_find),
        cmocka_unit_test(bandit_and_climb_need_few_trials),
        cmocka_unit_test(seeds_come_first),
        cmocka_unit_test(ties_go_to_the_default_then_to_order),
        cmocka_unit_test(samples_keep_best_and_spread),
        cmocka_unit_test(a_default_is_left_for_what_almost_all_rounds_prefer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
