/* Problems as text, general forms, header expressions, variants, packing and the precompiled set as a whole. */
#include "syn_case.h"
#include "base_sys.h"
#include "syn_form.h"
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>

static char *text_of(const syn_problem *p)
{
    base_buf b;
    base_buf_init(&b, BASE_TAG_SYNTH, 1u << 20);
    assert_int_equal(syn_problem_text(p, &b, NULL), RTX_OK);
    return base_buf_take(&b, NULL);
}

static void round_trip(const syn_problem *p)
{
    AUTO_FREE char *text = text_of(p);
    syn_problem *q;
    rtx_err err = {0};
    if (syn_problem_parse(text, strlen(text), &q, &err) != RTX_OK)
        fail_msg("%s\n%s", err.text, text);
    AUTO_FREE char *again = text_of(q);
    assert_string_equal(text, again);
    assert_int_equal(syn_arg_count(p), syn_arg_count(q));
    syn_problem_free(q);
}

static void test_text_round_trip(void **state)
{
    (void)state;
    rng r = {7};
    for (int f = 0; f < CASE_COUNT; f++)
        for (int i = 0; i < 30; i++) {
            test_case *c = case_new((case_family)f, i % 2, i % 3 == 0, &r);
            assert_non_null(c);
            round_trip(c->p);
            case_free(c);
        }
}

static void test_bad_text_is_refused(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "",
        "problem 1\n",
        "problem 2\nsyms 0 free 0\nstrides\n",
        "problem 1\nsyms 99 free 0\nstrides ;\n",
        "problem 1\nsyms 1 free 0\nstrides ? ? 1 ; ? ? 1 ;\nsym s0 0..\nsym s2 0..\nsym s1 0..\n"
        "func @region(%0 \"i0\": f32[s0,s1,s2]) {\n  return %0 \"o0\"\n}\n",
        "problem 1\nsyms 0 free 0\nstrides 1 ; 1\nfunc @region(%0 \"i0\": f32[4]) {\n  return %0 "
        "\"o0\"\n}\n",
        "problem 1\nsyms 0 free 0\nstrides 1 2 ; 1 ;\nfunc @region(%0 \"i0\": f32[4]) {\n  return "
        "%0 \"o0\"\n}\n",
    };
    for (size_t i = 0; i < COUNT_OF(bad); i++) {
        syn_problem *p = NULL;
        assert_int_not_equal(syn_problem_parse(bad[i], strlen(bad[i]), &p, NULL), RTX_OK);
        assert_null(p);
    }
    rng r = {11};
    test_case *c = case_new(CASE_GEMM, true, true, &r);
    AUTO_FREE char *text = text_of(c->p);
    for (size_t n = 0; n + 2 < strlen(text);
         n++) { /* cut anywhere: refused or a smaller problem, never a crash */
        syn_problem *p = NULL;
        if (syn_problem_parse(text, n, &p, NULL) == RTX_OK)
            syn_problem_free(p);
    }
    case_free(c);
}

/* The general form of a general form is itself, with every argument in its place. */
static rtx_status is_fixpoint(void *ctx, const syn_problem *p, uint32_t index, bool rare,
                              rtx_err *err)
{
    (void)index, (void)rare;
    syn_source args[512];
    uint32_t n;
    syn_problem *q;
    TRY(syn_problem_general(p, &q, args, &n, COUNT_OF(args), err));
    AUTO_FREE char *a = text_of(p), *b = text_of(q);
    assert_string_equal(a, b);
    assert_int_equal(n, syn_arg_count(p));
    for (uint32_t i = 0; i < n; i++)
        assert_true(!args[i].constant && args[i].value == i);
    syn_problem_free(q);
    round_trip(p);
    ++*(int *)ctx;
    return RTX_OK;
}

static void test_set_is_general_and_complete(void **state)
{
    (void)state;
    int n = 0;
    rtx_err err = {0};
    assert_int_equal(syn_ready_each(is_fixpoint, &n, &err), RTX_OK);
    assert_true(n > 200);
}

static rtx_status is_there(void *ctx, const syn_problem *p, uint32_t index, bool rare, rtx_err *err)
{
    (void)ctx, (void)rare, (void)err;
    for (int isa = FMT_ISA_V2; isa <= FMT_ISA_V4; isa++) {
        const syn_ready *r = syn_ready_find(p, (fmt_isa)isa);
        if (r == NULL)
            fail_msg("kernel %u is missing at v%d", index, isa);
        assert_true(r->plan_entry < r->code_bytes && r->run_entry < r->code_bytes);
        syn_variant v;
        const syn_template *t;
        assert_int_equal(syn_match(p, &t, NULL), RTX_OK);
        assert_string_equal(t->name, r->templ);
        assert_true(syn_variant_parse(t, r->params, &v));
    }
    return RTX_OK;
}

static void test_every_level_has_the_set(void **state)
{
    (void)state;
    assert_int_equal(syn_ready_each(is_there, NULL, NULL), RTX_OK);
}

static bool names(void *ctx, const char *name, size_t len, int64_t *v)
{
    (void)ctx;
    *v = len == 1 && *name == 'M' ? 16 : 4;
    return len != 3;
}

static void test_expressions(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        bool ok;
        int64_t v;
    } rows[] = {
        {"", true, 1},
        {"1 + 2 * 3", true, 7},
        {"(1 + 2) * 3", true, 9},
        {"10 - 3 - 2", true, 5},
        {"M <= 16 && LEVEL == 4", true, 1},
        {"M<16", true, 0},
        {"LEVEL == 4 ? M * 2 <= 28 : M <= 12", true, 0},
        {"!M || -1", true, 1},
        {"M % 3", true, 1},
        {"M != 16", true, 0},
        {"M / 0", false, 0},
        {"1 +", false, 0},
        {"(1", false, 0},
        {"1 2", false, 0},
        {"abc", false, 0},
        {"1 ? 2", false, 0},
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        int64_t v = -1;
        assert_int_equal(syn_eval(rows[i].text, names, NULL, &v), rows[i].ok);
        if (rows[i].ok)
            assert_int_equal(v, rows[i].v);
    }
    char deep[4096];
    memset(deep, '(', sizeof deep - 1);
    deep[sizeof deep - 1] = 0;
    int64_t v;
    assert_false(syn_eval(deep, names, NULL, &v));
}

static void test_variants(void **state)
{
    (void)state;
    rng r = {3};
    for (int f = 0; f < CASE_COUNT; f++)
        for (int isa = FMT_ISA_V2; isa <= FMT_ISA_V4; isa++) {
            test_case *c = case_new((case_family)f, false, false, &r);
            syn_variant list[64], d;
            size_t n = syn_variant_list(c->p, (fmt_isa)isa, NULL, NULL, list, COUNT_OF(list));
            syn_variant_default(c->p, (fmt_isa)isa, NULL, &d);
            assert_true(n >= 1 && n <= COUNT_OF(list));
            assert_memory_equal(list[0].value, d.value, sizeof d.value);
            for (size_t i = 0; i < n; i++) {
                assert_true(syn_variant_legal(c->p, &list[i], (fmt_isa)isa, NULL));
                for (size_t j = 0; j < i; j++)
                    assert_memory_not_equal(list[i].value, list[j].value, sizeof list[i].value);
                AUTO_BUF base_buf b;
                base_buf_init(&b, BASE_TAG_SYNTH, 4096);
                syn_variant_print(&list[i], &b);
                syn_variant back;
                assert_true(syn_variant_parse(list[i].templ, b.data ? b.data : "", &back));
                assert_memory_equal(back.value, list[i].value, sizeof back.value);
            }
            if (f == CASE_GEMM)
                assert_true(n == COUNT_OF(list));
            case_free(c);
        }
}

static void test_facts(void **state)
{
    (void)state;
    const hw_facts none = {0},
                   hw = {.cliff_vectors = 20, .l1_bytes = 48 << 10, .l2_bytes = 700 << 10};
    assert_int_equal(hw_fact_value(NULL, FMT_ISA_V4, HW_CLIFF), 32);
    assert_int_equal(hw_fact_value(&none, FMT_ISA_V3, HW_CLIFF), 14);
    assert_int_equal(hw_fact_value(&hw, FMT_ISA_V4, HW_CLIFF), 20);
    assert_int_equal(hw_fact_value(&hw, FMT_ISA_V3, HW_CLIFF),
                     16); /* there are no more registers */
    assert_int_equal(hw_fact_value(&hw, FMT_ISA_V4, HW_L1), 64 << 10);
    assert_int_equal(hw_fact_value(&hw, FMT_ISA_V4, HW_L2), 512 << 10);
    assert_int_equal(hw_fact_value(NULL, FMT_ISA_V4, HW_L2), 1 << 20);
    assert_int_equal(hw_fact_value(&hw, FMT_ISA_V4, HW_L3), 32 << 20);

    rng r = {3};
    test_case *c = case_new(CASE_GEMM, false, false, &r);
    syn_variant list[64], before, after;
    const uint32_t mr = 0, np = 1;
    syn_variant_default(c->p, FMT_ISA_V4, NULL, &before);
    size_t n = syn_variant_list(c->p, FMT_ISA_V4, &hw, NULL, list, COUNT_OF(list));
    assert_true(n > 0);
    for (size_t i = 0; i < n; i++) {
        assert_true(list[i].value[mr] * list[i].value[np] <= 20 * 7 / 8);
        assert_true(syn_variant_legal(c->p, &list[i], FMT_ISA_V4, NULL));
    }
    syn_variant_default(c->p, FMT_ISA_V4, NULL, &after); /* knows no machine */
    assert_memory_equal(before.value, after.value, sizeof before.value);
    assert_int_equal(syn_facts_read(c->p, FMT_ISA_V4), 1u << HW_L2 | 1u << HW_CLIFF);
    case_free(c);
}

static void test_packing(void **state)
{
    (void)state;
    const float b[] = {1, 2, 3, 4, 5, 6};
    float packed[48];
    assert_int_equal(syn_pack_floats(3, 2), 48);
    assert_int_equal(syn_pack_floats(3, 17), 96);
    syn_pack_b(b, 3, 2, 2, 1, packed);
    for (int k = 0; k < 3; k++)
        for (int j = 0; j < 16; j++)
            assert_true(packed[k * 16 + j] == (j < 2 ? b[k * 2 + j] : 0.0f));
}

static void test_cost_and_measure(void **state)
{
    (void)state;
    static const char gemm[] =
        "problem 1\nsyms 1 free 0\nstrides 8 1 ; ? ? packed; 4 1 ;\nsym s0 0..\n"
        "func @region(%0 \"i0\": f32[s0,8], %1 \"i1\": f32[8,4]) {\n  %2 = dot %0 %1 : f32[s0,4]\n "
        " return %2 \"o0\"\n}\n";
    syn_problem *p;
    rtx_err err = {0};
    if (syn_problem_parse(gemm, sizeof gemm - 1, &p, &err) != RTX_OK)
        fail_msg("%s", err.text);
    double flops, bytes;
    int16_t measure[2];
    syn_cost(p, (const int64_t[]){10}, &flops, &bytes);
    assert_true(flops == 2 * 10 * 8 * 4 && bytes == 4 * (10 * 8 + 8 * 4 + 10 * 4));
    assert_int_equal(syn_measure(p, measure, NULL), RTX_OK);
    assert_int_equal(measure[0], 0);
    assert_int_equal(measure[1], -1);
    assert_int_equal(syn_arg_stride(p, 1, 1), 1 + 2 + 1);
    assert_int_equal(syn_arg_count(p), 1 + 6);
    syn_problem_free(p);
}

/* An index out of range is clamped and reported, also where there is no element to clamp to. */
static void test_bad_index_traps(void **state)
{
    (void)state;
    static const char text[] =
        "problem 1\nsyms 1 free 0\nstrides 0 2 1 ; 1 ; 0 2 1 ;\nsym s0 0..\nfunc @region(%0 "
        "\"i0\": f32[1,s0,2], "
        "%1 \"i1\": i64[3]) {\n  %2 = gather %0 %1 {axis=1} : f32[1,3,2]\n  return %2 \"o0\"\n}\n";
    syn_problem *p, *q;
    syn_source from[64];
    int64_t args[64];
    uint32_t n;
    rtx_err err = {0};
    if (syn_problem_parse(text, sizeof text - 1, &p, &err) != RTX_OK ||
        syn_problem_general(p, &q, from, &n, COUNT_OF(from), &err) != RTX_OK)
        fail_msg("%s", err.text);
    for (int64_t rows = 0; rows <= 3; rows += 3) {
        const int64_t own[] = {rows, 0, 2, 1, 1, 0, 2, 1};
        for (uint32_t i = 0; i < n; i++)
            args[i] = from[i].constant ? from[i].value : own[from[i].value];
        const syn_ready *r = syn_ready_find(q, FMT_ISA_V2);
        case_code code;
        assert_non_null(r);
        assert_true(case_map(r->code, r->code_bytes, r->plan_entry, r->run_entry, &code));
        float x[] = {1, 2, 3, 4, 5, 6}, y[6] = {0};
        int64_t index[] = {5, -7, -1};
        void *buf[] = {x, index, y};
        uint32_t trap = 0;
        k_plan plan;
        code.plan(args, 1, &plan);
        code.run(&(k_call){.buf = buf, .arg = args, .trap = &trap}, 0, plan.units);
        assert_int_equal(trap, 1);
        if (rows)
            assert_memory_equal(y, ((const float[]){5, 6, 1, 2, 5, 6}), sizeof y);
        case_unmap(&code);
    }
    syn_problem_free(p);
    syn_problem_free(q);
}

/* Rendering walks through every failing allocation without a crash or a leak of what it made. */
static void test_allocation_failures(void **state)
{
    (void)state;
    rng r = {5};
    test_case *c = case_new(CASE_ROW, true, true, &r);
    syn_variant v;
    syn_variant_default(c->p, FMT_ISA_V3, NULL, &v);
    size_t live = base_alloc_live_bytes(BASE_TAG_SYNTH);
    for (int64_t n = 0; n < 10000; n++) {
        base_buf b;
        syn_source args[512];
        uint32_t n_args;
        syn_problem *q = NULL;
        base_buf_init(&b, BASE_TAG_SYNTH, SIZE_MAX);
        base_alloc_fail_at(n);
        rtx_status s = syn_unit_add(&b, c->p, &v, FMT_ISA_V3, "f", NULL);
        rtx_status g = syn_problem_general(c->p, &q, args, &n_args, COUNT_OF(args), NULL);
        base_alloc_fail_at(-1);
        base_buf_done(&b);
        syn_problem_free(q);
        assert_int_equal(base_alloc_live_bytes(BASE_TAG_SYNTH), live);
        if (s == RTX_OK && g == RTX_OK) {
            case_free(c);
            return;
        }
    }
    fail_msg("never succeeds");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_text_round_trip),
        cmocka_unit_test(test_bad_text_is_refused),
        cmocka_unit_test(test_set_is_general_and_complete),
        cmocka_unit_test(test_every_level_has_the_set),
        cmocka_unit_test(test_expressions),
        cmocka_unit_test(test_variants),
        cmocka_unit_test(test_facts),
        cmocka_unit_test(test_packing),
        cmocka_unit_test(test_cost_and_measure),
        cmocka_unit_test(test_bad_index_traps),
        cmocka_unit_test(test_allocation_failures),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
