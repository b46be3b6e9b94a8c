/* Files of single candidates: what is refused and why, what missing lines mean, text that comes back the same, and every
 * allocation failing once. Verdicts are tested by tests/cli/test_repro.py on the files of tests/repro. */
#include "tune_fixture.h"
#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#define ADD                                                                                        \
    "problem 1\nsyms 1 free 0\nstrides 1 ; 1 ; 1 ;\nsym s0 0..\n"                                  \
    "func @region(%0 \"i0\": f32[s0], %1 \"i1\": f32[s0]) {\n"                                     \
    "  %2 = add %0 %1 : f32[s0]\n  return %2 \"o0\"\n}\n"

static tun_repro r; /* 20 KB, and not to be copied */

static rtx_status parse(const char *text, rtx_err *err)
{
    *err = (rtx_err){0};
    return tun_repro_parse(text, strlen(text), &r, err);
}

static void faults_are_named(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        rtx_status code;
        const char *words;
    } cases[] = {
        {"", RTX_INVALID, "no line `problem 1`"},
        {"variant cpu/eltwise\n" ADD, RTX_INVALID, "first line"},
        {"rtx-repro 1\nrtx-repro 1\n" ADD, RTX_INVALID, "first line"},
        {"rtx-repro 1\nvariant cpu/eltwise\nsizes 5\n", RTX_INVALID, "no line `problem 1`"},
        {"rtx-repro 1\nsizes 5\n" ADD, RTX_INVALID, "no line `variant"},
        {"rtx-repro 1\nhello\n" ADD, RTX_INVALID, "cannot read 'hello'"},
        {"rtx-repro 1\nisa v9\n" ADD, RTX_INVALID, "'v9'"},
        {"rtx-repro 1\nthreads 0\n" ADD, RTX_INVALID, "threads"},
        {"rtx-repro 1\nvariant cpu/eltwise\n" ADD, RTX_INVALID, "one number a symbol: 1"},
        {"rtx-repro 1\nvariant cpu/eltwise\nsizes 5 6\n" ADD, RTX_INVALID, "one number a symbol"},
        {"rtx-repro 1\nvariant cpu/eltwise\nsizes 5\nsizes\n" ADD, RTX_INVALID, "length"},
        {"rtx-repro 1\nvariant cpu/eltwise\nsizes -5\n" ADD, RTX_INVALID, "cannot read ' -5'"},
        {"rtx-repro 1\nvariant cpu/nothing\nsizes 5\n" ADD, RTX_UNSUPPORTED, "cpu/nothing"},
        {"rtx-repro 1\nvariant cpu/eltwise X=1\nsizes 5\n" ADD, RTX_UNSUPPORTED, "X"},
        {"rtx-repro 1\nvariant cpu/eltwise CHUNK\nsizes 5\n" ADD, RTX_INVALID, "'CHUNK'"},
        {"rtx-repro 1\nvariant cpu/eltwise\nsizes 5\nproblem 1\n", RTX_INVALID, "symbols"},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        rtx_err err;
        assert_int_equal(parse(cases[i].text, &err), cases[i].code);
        if (!strstr(err.text, cases[i].words))
            fail_msg("%zu: %s", i, err.text);
        tun_repro_done(&r);
    }
}

static void missing_lines_mean_something(void **state)
{
    (void)state;
    rtx_err err;
    assert_int_equal(parse("rtx-repro 1\n# note\nvariant cpu/eltwise\nsizes 5\n" ADD, &err),
                     RTX_OK);
    assert_int_equal(r.isa, 0);
    assert_int_equal(r.variant.value[0], r.variant.templ->params[0].def);
    assert_true(r.n_points == 1 && r.point[0].sym[0] == 5 && r.point[0].threads == 1);
    assert_true(!r.body && !r.expect[0]);
    tun_repro_done(&r);
}

static void a_body_brings_its_own_parameters(void **state)
{
    (void)state;
    rtx_err err;
    AUTO_BUF base_buf text;
    base_buf_init(&text, BASE_TAG_TUNE, SIZE_MAX);
    assert_int_equal(parse("rtx-repro 1\nvariant cpu/eltwise A=1 B=-2\nsizes 5\n" ADD
                           "body\nint K_FN(x) = A + B;\n",
                           &err),
                     RTX_OK);
    assert_int_equal(r.variant.templ->n_params, 2);
    assert_int_equal(r.variant.value[1], -2);
    assert_int_equal(tun_repro_source(&r, &text, &err), RTX_OK);
    assert_non_null(strstr(text.data, "#define B (-2)"));
    assert_non_null(strstr(text.data, "int K_FN(x) = A + B;"));
    tun_repro_done(&r);
}

static void text_comes_back_and_allocations_fail(void **state)
{
    (void)state;
    static const char text[] =
        "rtx-repro 1\nexpect rejected off by\nisa v2\nvariant cpu/eltwise A=1\n"
        "threads 2\nsizes 5\nsizes 0\n" ADD "body\nint x;\n";
    rtx_status s = RTX_NOMEM;
    for (int64_t n = 0; s == RTX_NOMEM; n++) {
        rtx_err err;
        AUTO_BUF base_buf again;
        base_buf_init(&again, BASE_TAG_TUNE, SIZE_MAX);
        base_alloc_fail_at(n);
        s = parse(text, &err);
        if (s == RTX_OK)
            s = tun_repro_print(&r, &again, &err);
        base_alloc_fail_at(-1);
        tun_repro_done(&r);
        if (s == RTX_OK)
            assert_string_equal(again.data, text);
        else if (s != RTX_NOMEM)
            fail_msg("allocation %lld: %s", (long long)n, err.text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(faults_are_named),
        cmocka_unit_test(missing_lines_mean_something),
        cmocka_unit_test(a_body_brings_its_own_parameters),
        cmocka_unit_test(text_comes_back_and_allocations_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
