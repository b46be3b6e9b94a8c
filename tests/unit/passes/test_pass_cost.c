/* The cost model of fusion: more bytes or work never take less time, and what fusing saves is what the cut moves. */
#include "pass_cost.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

static const pass_machine hw = {
    .fma_gflops = {100, 350},
    .read_gbps = {10, 25},
    .curve_bytes = {8e3, 32e3, 256e3, 1e6, 16e6, 128e6},
    .curve_gbps = {200, 190, 100, 110, 30, 10}, /* one rise, as measured curves have */
    .n_curve = 6,
    .l3_bytes = 16000000,
    .handoff_ns = 500};

static void test_moving_more_takes_longer(void **state)
{
    (void)state;
    for (int threads = 1; threads <= 4; threads++)
        for (double bytes = 64; bytes < 1e9; bytes *= 1.07) {
            double less = pass_cost_move_ns(&hw, bytes, threads),
                   more = pass_cost_move_ns(&hw, bytes * 1.07, threads);
            assert_true(less > 0 && more > less);
        }
    assert_true(pass_cost_move_ns(&hw, 1e8, 4) >=
                1e8 / 25); /* memory serves all threads together */
    assert_true(pass_cost_move_ns(&hw, 1e5, 4) < pass_cost_move_ns(&hw, 1e5, 1));
}

static void costs(pass_work w, double *fused, double *split) { pass_cost(&hw, &w, fused, split); }

static void test_more_work_takes_longer(void **state)
{
    (void)state;
    const pass_work base = {1e6, 1e5, 1e4, 4e4, 1};
    double f0, s0, f, s;
    costs(base, &f0, &s0);
    for (int field = 0; field < 3; field++) {
        pass_work w = base;
        double *const grows[] = {&w.flops, &w.bytes, &w.cut_flops};
        *grows[field] *= 100;
        costs(w, &f, &s);
        assert_true(f > f0 && s > s0);
    }
    pass_work w = base;
    w.cut_flops *= 2;
    assert_true(pass_cost_relief_ns(&hw, &w) > pass_cost_relief_ns(&hw, &base));
    assert_true(pass_cost_relief_ns(&hw, &base) > f0 - base.flops / 100);
    w = base;
    w.spill_bytes *= 100;
    costs(w, &f, &s);
    assert_true(f == f0 && s > s0);
}

static void test_a_cut_moves_its_value_twice_and_is_a_step(void **state)
{
    (void)state;
    for (int threads = 1; threads <= 4; threads += 3) {
        double fused, split;
        pass_work w = {1e9, 1e6, 1e6, 4e6, threads};
        costs(w, &fused, &split);
        double want = 2 * pass_cost_move_ns(&hw, 4e6, threads) + pass_cost_step_ns(&hw, threads);
        assert_true(split - fused > 0.999 * want && split - fused < 1.001 * want);
    }
    assert_true(pass_cost_step_ns(&hw, 1) == 0 && pass_cost_step_ns(&hw, 4) == 500);
}

static void test_no_facts(void **state)
{
    (void)state;
    const pass_machine none = {0};
    double fused, split;
    pass_cost(&none, &(pass_work){1, 1, 1, 1, 2}, &fused, &split);
    assert_true(fused > 0 && split > fused && split < 1e9);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_moving_more_takes_longer),
        cmocka_unit_test(test_more_work_takes_longer),
        cmocka_unit_test(test_a_cut_moves_its_value_twice_and_is_a_step),
        cmocka_unit_test(test_no_facts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
