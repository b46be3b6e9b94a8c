/* Kernel objects: what compilers make of kernel text is taken; anything that would need a loader is refused. */
#include "../run/run_fixture.h"
#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

#define EXPORT "__attribute__((visibility(\"default\"))) "
#define GOOD                                                                                       \
    EXPORT "float f_run(float x) { return x * 1.25f; }\n" EXPORT                                   \
           "int f_plan(int x) { return x + 3; }\n"

static void test_good(void **state)
{
    (void)state;
    size_t n;
    char *elf = fix_compile(GOOD, "", &n);
    assert_non_null(elf);
    fmt_kobj o;
    uint32_t run = 0, plan = 0;
    assert_int_equal(fmt_kobj_read(elf, n, &o, NULL), RTX_OK);
    assert_true(o.code >= (uint8_t *)elf && o.bytes < n);
    assert_int_equal(fmt_kobj_entry(elf, n, "f_run", &run, NULL), RTX_OK);
    assert_int_equal(fmt_kobj_entry(elf, n, "f_plan", &plan, NULL), RTX_OK);
    assert_true(run > 0 && plan > 0 && run != plan && run < o.bytes);
    rtx_err err;
    assert_int_equal(fmt_kobj_entry(elf, n, "f", &run, &err), RTX_NOT_FOUND);
    assert_string_equal(err.text, "kernel object: no function 'f'");
    base_free(elf);
}

static void refuse(const char *text, const char *flags, const char *reason)
{
    size_t n;
    char *elf = fix_compile(text, flags, &n);
    assert_non_null(elf);
    fmt_kobj o;
    rtx_err err = {.text = ""};
    rtx_status status = fmt_kobj_read(elf, n, &o, &err);
    if (status != RTX_CORRUPT || !strstr(err.text, reason))
        print_error("%s: '%s', wanted '%s'\n", rtx_status_name(status), err.text, reason);
    assert_int_equal(status, RTX_CORRUPT);
    assert_non_null(strstr(err.text, reason));
    base_free(elf);
}

static void test_refused(void **state)
{
    (void)state;
    refuse("extern float expf(float);" EXPORT "float f_run(float x) { return expf(x); }", "",
           "imports 'expf'");
    refuse(GOOD "static int counter;" EXPORT "int g(void) { return ++counter; }", "",
           "has writable data");
    refuse(GOOD EXPORT "int counter = 3;", "", "has writable data");
    refuse(GOOD "static const int a = 1; " EXPORT "const int *const p = &a;", "",
           "has relocations");
    refuse(GOOD "static __thread int t;" EXPORT "int g(void) { return ++t; }",
           "-ftls-model=initial-exec", "");
    refuse(GOOD, "-Wl,-z,separate-code", "noseparate-code");
    refuse(GOOD "__attribute__((constructor)) static void c(void) { volatile int x = 1; (void)x; }",
           "", "has ");
    refuse(GOOD, "-Wl,--no-as-needed -lc", "needs a library");
}

static void test_other_files(void **state)
{
    (void)state;
    fmt_kobj o;
    uint32_t at;
    assert_int_equal(fmt_kobj_read("", 0, &o, NULL), RTX_CORRUPT);
    assert_int_equal(fmt_kobj_read("#!/bin/sh\n", 10, &o, NULL), RTX_CORRUPT);
    size_t n;
    char *elf = fix_compile(GOOD, "", &n);
    assert_non_null(elf);
    for (size_t cut = 0; cut < n;
         cut++) { /* cut files; each a block of its own, so that reading past it shows */
        char *copy = malloc(cut + 1);
        memcpy(copy, elf, cut);
        if (fmt_kobj_read(copy, cut, &o, NULL) == RTX_OK)
            assert_true(o.code + o.bytes <= (uint8_t *)copy + cut);
        (void)!fmt_kobj_entry(copy, cut, "f_run", &at, NULL);
        free(copy);
    }
    for (size_t i = 0; i < n; i++) { /* altered files: anything but a crash */
        char kept = elf[i];
        for (int bit = 0; bit < 8; bit++) {
            elf[i] = (char)(kept ^ 1 << bit);
            if (fmt_kobj_read(elf, n, &o, NULL) == RTX_OK)
                assert_true(o.code + o.bytes <= (uint8_t *)elf + n);
            (void)!fmt_kobj_entry(elf, n, "f_run", &at, NULL);
        }
        elf[i] = kept;
    }
    base_free(elf);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_good), cmocka_unit_test(test_refused),
                                       cmocka_unit_test(test_other_files)};
    return cmocka_run_group_tests(tests, fix_enter, fix_leave);
}
