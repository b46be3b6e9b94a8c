/* Fit of bundle and machine: each verdict is reached by altering one real field of a bundle or of the machine. */
#include "run_fixture.h"
#include "dev_cpu.h"
#include "run_program.h"
#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

#define BUILT                                                                                      \
    "{\"arch\":\"x86-64\",\"cores\":2,\"cpu\":\"Some "                                             \
    "\\\"CPU\\\"\",\"isa\":\"v3\",\"l2_kib\":1024,\"l3_kib\":32768,"                               \
    "\"model\":\"25-17-1\"}"
#define MANIFEST "{\"a\":[1,{\"built\":\"no\"}],\"built\":" BUILT ",\"z\":null}"

static const run_machine same = {FMT_ISA_V3, BUILT};

/* Verdict over the machine that a file meets, and the status of opening it there. */
static rtx_status open_on(const fix_options *o, const run_machine *m, run_fit want, rtx_err *err)
{
    fix_write("v.rtxgc", o);
    fmt_bundle b;
    run_verdict v;
    assert_int_equal(fmt_bundle_open("v.rtxgc", 1, &b, NULL), RTX_OK);
    assert_int_equal(run_verdict_of(&b, o->manifest ? o->manifest : "{}", m, &v, NULL), RTX_OK);
    assert_int_equal(v.worst, want);
    run_verdict_done(&v);
    fmt_bundle_close(&b);
    rtx_program *p = NULL;
    rtx_status status = run_program_open_on("v.rtxgc", 1, m, &p, err);
    if (status == RTX_OK) {
        assert_int_equal(run_program_verdict(p)->worst, want);
        AUTO_BUF base_buf json;
        base_buf_init(&json, BASE_TAG_RUN, SIZE_MAX);
        run_verdict_json(run_program_verdict(p), &json);
        char text[32];
        assert_true(run_json_get(json.data, "fit", text, sizeof text));
        assert_string_equal(text, run_fit_name(want));
        rtx_program_close(p);
    }
    return status;
}

static void test_exact(void **state)
{
    (void)state;
    fix_options o = {.manifest = MANIFEST, .highest = 3, .tuned = true};
    assert_int_equal(open_on(&o, &same, RUN_EXACT, NULL), RTX_OK);
}

static void test_superset(void **state)
{
    (void)state;
    fix_options o = {.manifest = MANIFEST, .highest = 2};
    assert_int_equal(open_on(&o, &same, RUN_SUPERSET, NULL), RTX_OK);
}

static void test_retune_later(void **state)
{
    (void)state;
    fix_options o = {.highest = 3, .tuned = true};
    static const char *const changes[][2] = {
        {"\"cores\":2", "\"cores\":4"},
        {"Some", "Other"},
        {"\"l2_kib\":1024", "\"l2_kib\":2048"},
        {"\"l3_kib\":32768", "\"l3_kib\":0"},
        {"\"model\":\"25-17", "\"model\":\"25-1"},
    };
    for (size_t i = 0; i < COUNT_OF(changes); i++) {
        char manifest[400];
        const char *at = strstr(MANIFEST, changes[i][0]);
        assert_non_null(at);
        snprintf(manifest, sizeof manifest, "%.*s%s%s", (int)(at - MANIFEST), MANIFEST,
                 changes[i][1], at + strlen(changes[i][0]));
        o.manifest = manifest;
        o.tuned = true;
        assert_int_equal(open_on(&o, &same, RUN_RETUNE, NULL), RTX_OK);
        o.tuned = false; /* a precompiled kernel does not care */
        assert_int_equal(open_on(&o, &same, RUN_EXACT, NULL), RTX_OK);
    }
}

/* The preferred plan is for a level that is not here; another plan serves. */
static void test_second_plan(void **state)
{
    (void)state;
    fix_options o = {.lowest = 4, .highest = 4, .second_lowest = 2};
    assert_int_equal(open_on(&o, &same, RUN_RETUNE, NULL), RTX_OK);
    run_machine v4 = {FMT_ISA_V4, "{}"};
    if (dev_cpu_get()->isa == FMT_ISA_V4)
        assert_int_equal(open_on(&o, &v4, RUN_EXACT, NULL), RTX_OK);
}

static void test_rejit_and_refuse(void **state)
{
    (void)state;
    rtx_err err;
    fix_options o = {.manifest = MANIFEST, .highest = 3, .kabi = 99, .source = true};
    assert_int_equal(open_on(&o, &same, RUN_REJIT, &err), RTX_UNSUPPORTED);
    assert_string_equal(
        err.text,
        "kernel call contract: built for 99, found 1; `rtx tune FILE` compiles it again here");
    o.source = false;
    assert_int_equal(open_on(&o, &same, RUN_REFUSE, &err), RTX_UNSUPPORTED);
    o = (fix_options){.lowest = 4};
    assert_int_equal(open_on(&o, &same, RUN_REFUSE, &err), RTX_UNSUPPORTED);
    assert_string_equal(err.text,
                        "isa: built for v4, found v3; compile the model again for this machine");
    o = (fix_options){.manifest = "{\"built\":{\"arch\":\"aarch64\"}}", .highest = 3};
    assert_int_equal(open_on(&o, &same, RUN_REFUSE, &err), RTX_UNSUPPORTED);
    assert_string_equal(err.text, "processor architecture: built for aarch64, found x86-64; "
                                  "compile the model again for this machine");
}

static void test_own_facts(void **state)
{
    (void)state;
    AUTO_BUF base_buf facts;
    base_buf_init(&facts, BASE_TAG_RUN, SIZE_MAX);
    dev_cpu_facts(&facts);
    char manifest[512];
    snprintf(manifest, sizeof manifest, "{\"built\":%s}", facts.data);
    fix_write("own.rtxgc", &(fix_options){.manifest = manifest, .tuned = true});
    rtx_program *p;
    assert_int_equal(rtx_program_open("own.rtxgc", 1, &p, NULL), RTX_OK);
    assert_int_equal(run_program_verdict(p)->worst, RUN_EXACT);
    assert_int_equal(run_program_verdict(p)->n_checks, 8);
    rtx_program_close(p);
}

/* RTX_ISA lowers the level; all levels give the same results. */
static void test_levels(void **state)
{
    (void)state;
    static float x[7 * FIX_K], y[7 * FIX_N], z[7 * FIX_N], first[7 * FIX_N];
    static int64_t ids[7];
    fix_fill(x, ids, 7, 1);
    fix_write("l.rtxgc", NULL);
    for (int isa = FMT_ISA_V2; isa <= FMT_ISA_V4; isa++) {
        setenv("RTX_ISA", dev_isa_name(isa), 1);
        rtx_program *p;
        assert_int_equal(rtx_program_open("l.rtxgc", 1, &p, NULL), RTX_OK);
        assert_int_equal(run_program_verdict(p)->isa, MIN(isa, dev_cpu_get()->isa));
        rtx_tensor in[] = {fix_x(x, 7), fix_ids(ids, 7)},
                   out[] = {fix_out("y", y, 7), fix_out("z", z, 7)};
        assert_int_equal(rtx_program_run(p, in, 2, out, 2, 2, NULL), RTX_OK);
        if (isa == FMT_ISA_V2)
            memcpy(first, y, sizeof y);
        assert_memory_equal(first, y, sizeof y);
        rtx_program_close(p);
    }
    rtx_program *p;
    setenv("RTX_ISA", "v9", 1);
    assert_int_equal(rtx_program_open("l.rtxgc", 1, &p, NULL), RTX_INVALID);
    unsetenv("RTX_ISA");
}

static void test_json(void **state)
{
    (void)state;
    char text[16];
    static const char json[] = " { \"a\" : { \"b\" : [1, \"}\", {\"c\": 2}] , \"d\" : \"x\\\"y\" "
                               "}, \"e\" : -12.5 , \"f\":{} } ";
    assert_true(run_json_get(json, "a.d", text, sizeof text));
    assert_string_equal(text, "x\"y");
    assert_true(run_json_get(json, "e", text, sizeof text));
    assert_string_equal(text, "-12.5");
    assert_true(run_json_get(json, "f", text, sizeof text));
    assert_string_equal(text, "{}");
    assert_true(run_json_get(json, "a.d", text, 3)); /* cut */
    assert_string_equal(text, "x\"");
    assert_false(run_json_get(json, "a.x", text, sizeof text));
    assert_false(run_json_get(json, "b", text, sizeof text));
    assert_false(run_json_get("", "a", text, sizeof text));
    for (size_t n = 0; n < sizeof json - 1; n++) { /* any cut text: no reading past its end */
        char *cut = malloc(n + 1);
        memcpy(cut, json, n);
        cut[n] = '\0';
        run_json_get(cut, "a.d", text, sizeof text);
        run_json_get(cut, "e", text, sizeof text);
        free(cut);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_exact),
        cmocka_unit_test(test_superset),
        cmocka_unit_test(test_retune_later),
        cmocka_unit_test(test_second_plan),
        cmocka_unit_test(test_rejit_and_refuse),
        cmocka_unit_test(test_own_facts),
        cmocka_unit_test(test_levels),
        cmocka_unit_test(test_json),
    };
    return cmocka_run_group_tests(tests, fix_enter, fix_leave);
}
