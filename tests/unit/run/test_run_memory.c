/* The memory plan: no two live buffers overlap, and the arena is close to what must be alive at once. */
#include "run_program.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <cmocka.h>

static unsigned seed = 1;
static unsigned draw(unsigned n)
{
    return (seed = seed * 1664525u + 1013904223u) % 65536u * n / 65536u;
}

static uint64_t peak(const run_life *l, uint32_t n, uint32_t steps)
{
    uint64_t worst = 0;
    for (uint32_t s = 0; s < steps; s++) {
        uint64_t now = 0;
        for (uint32_t i = 0; i < n; i++)
            now += l[i].first <= s && s <= l[i].last ? l[i].bytes : 0;
        worst = MAX(worst, now);
    }
    return worst;
}

static void test_random(void **state)
{
    (void)state;
    for (int round = 0; round < 300; round++) {
        run_life l[60];
        uint32_t n = draw(60), steps = 1 + draw(40);
        uint64_t total = 0, arena;
        for (uint32_t i = 0; i < n; i++) {
            uint32_t first = draw(steps);
            l[i] = (run_life){.bytes = draw(4) ? draw(5000) : 4096 * draw(9), .first = first};
            l[i].last = MIN(steps - 1, first + draw(6));
        }
        assert_int_equal(run_memory_place(l, n, &arena, NULL), RTX_OK);
        for (uint32_t i = 0; i < n; i++) {
            total += l[i].bytes;
            assert_int_equal(l[i].offset % 64, 0);
            assert_true(l[i].offset + l[i].bytes <= arena);
            for (uint32_t k = 0; k < i; k++) {
                bool together = l[i].first <= l[k].last && l[k].first <= l[i].last;
                bool apart = l[i].offset + l[i].bytes <= l[k].offset ||
                             l[k].offset + l[k].bytes <= l[i].offset;
                assert_true(!together || apart);
            }
        }
        assert_true(arena >= peak(l, n, steps) && arena <= total);
    }
}

/* A chain of equal buffers, each read by the next step only, needs two of them, and they do not share a page offset. */
static void test_chain(void **state)
{
    (void)state;
    run_life l[10];
    uint64_t arena;
    for (uint32_t i = 0; i < 10; i++)
        l[i] = (run_life){.bytes = 8192, .first = i, .last = i + 1};
    assert_int_equal(run_memory_place(l, 10, &arena, NULL), RTX_OK);
    assert_int_equal(arena, 2 * (8192 + RUN_SKEW_BYTES));
    assert_true(l[0].offset % 4096 != l[1].offset % 4096);
}

static void test_failures(void **state)
{
    (void)state;
    run_life huge[2] = {{.bytes = INT64_MAX, .last = 1}, {.bytes = INT64_MAX, .last = 1}};
    uint64_t arena;
    assert_int_equal(run_memory_place(huge, 2, &arena, NULL), RTX_NOMEM);
    for (int i = 0; i < 2; i++) {
        run_life l = {.bytes = 1};
        base_alloc_fail_at(i);
        assert_int_equal(run_memory_place(&l, 1, &arena, NULL), RTX_NOMEM);
        base_alloc_fail_at(-1);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_random), cmocka_unit_test(test_chain),
                                       cmocka_unit_test(test_failures)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
