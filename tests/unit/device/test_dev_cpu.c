/* Levels follow from register bits: taking any one away lowers the level. */
#include "dev_cpu.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <cmocka.h>

static const dev_cpu_bits all = {.ecx1 = UINT32_MAX,
                                 .edx1 = UINT32_MAX,
                                 .ebx7 = UINT32_MAX,
                                 .ecx_ext = UINT32_MAX,
                                 .xcr0 = 0xe7};

static int without(int word, uint64_t bits)
{
    dev_cpu_bits b = all;
    if (word == 1)
        b.ecx1 &= (uint32_t)~bits;
    else if (word == 7)
        b.ebx7 &= (uint32_t)~bits;
    else if (word == 8)
        b.ecx_ext &= (uint32_t)~bits;
    else
        b.xcr0 &= ~bits;
    return dev_cpu_level(&b);
}

static void test_levels(void **state)
{
    (void)state;
    assert_int_equal(dev_cpu_level(&all), FMT_ISA_V4);
    static const int v2[] = {0, 9, 13, 19, 20, 23}, v3[] = {12, 22, 27, 28, 29}, v3_7[] = {3, 5, 8},
                     v4_7[] = {16, 17, 28, 30, 31};
    for (size_t i = 0; i < COUNT_OF(v2); i++)
        assert_int_equal(without(1, UINT64_C(1) << v2[i]), 0);
    for (size_t i = 0; i < COUNT_OF(v3); i++)
        assert_int_equal(without(1, UINT64_C(1) << v3[i]), FMT_ISA_V2);
    for (size_t i = 0; i < COUNT_OF(v3_7); i++)
        assert_int_equal(without(7, UINT64_C(1) << v3_7[i]), FMT_ISA_V2);
    for (size_t i = 0; i < COUNT_OF(v4_7); i++)
        assert_int_equal(without(7, UINT64_C(1) << v4_7[i]), FMT_ISA_V3);
    assert_int_equal(without(8, 1), 0);
    assert_int_equal(without(8, 1 << 5), FMT_ISA_V2);
    assert_int_equal(without(0, 0xe0),
                     FMT_ISA_V3); /* the system does not save what AVX-512 needs */
    assert_int_equal(without(0, 4), FMT_ISA_V2);
}

static void test_this_machine(void **state)
{
    (void)state;
    const dev_cpu *c = dev_cpu_get();
    assert_true(c->isa == 0 || (c->isa >= FMT_ISA_V2 && c->isa <= FMT_ISA_V4));
    assert_true(c->name[0] > ' ');
#if defined(__x86_64__)
    __builtin_cpu_init();
    assert_int_equal(c->isa >= FMT_ISA_V3,
                     __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"));
    assert_int_equal(c->isa >= FMT_ISA_V4,
                     __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512bw"));
#endif
    AUTO_BUF base_buf b;
    base_buf_init(&b, BASE_TAG_DEVICE, SIZE_MAX);
    dev_cpu_facts(&b);
    assert_int_equal(base_buf_ok(&b, NULL), RTX_OK);
    assert_memory_equal(b.data, "{\"arch\":\"x86-64\",\"cores\":", 25);
}

static void test_allowed(void **state)
{
    (void)state;
    fmt_isa isa;
    int have = dev_cpu_get()->isa;
    setenv("RTX_ISA", "v2", 1);
    assert_int_equal(dev_isa_allowed(&isa, NULL), RTX_OK);
    assert_int_equal(isa, FMT_ISA_V2);
    setenv("RTX_ISA", "v4", 1);
    assert_int_equal(dev_isa_allowed(&isa, NULL), RTX_OK);
    assert_int_equal(isa, have);
    setenv("RTX_ISA", "avx2", 1);
    rtx_err err;
    assert_int_equal(dev_isa_allowed(&isa, &err), RTX_INVALID);
    assert_string_equal(err.text, "RTX_ISA is 'avx2'; v2, v3 and v4 are known");
    unsetenv("RTX_ISA");
    assert_int_equal(dev_isa_allowed(&isa, NULL), RTX_OK);
    assert_int_equal(isa, have);
    assert_string_equal(dev_isa_name(0), "none");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_levels),
                                       cmocka_unit_test(test_this_machine),
                                       cmocka_unit_test(test_allowed)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
