/* Text form: round trip of every op, messages with positions, memory. */
#include "base_sys.h"
#include "ir.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>

/* Text of a parsed text; NULL after a failure, which err then tells. */
static char *through(const char *text, size_t len, int flags, rtx_err *err)
{
    fmt_dims *dims = fmt_dims_new();
    ir_graph *g = NULL;
    base_buf b;
    base_buf_init(&b, BASE_TAG_IR, 1 << 20);
    if (!dims) {
        FAIL(err, NOMEM, "out of memory");
    } else if (ir_parse(text, len, dims, &g, err) == RTX_OK && ir_verify(g, err) == RTX_OK) {
        ir_print(g, "every_op", flags, &b);
        (void)base_buf_ok(&b, err);
    }
    char *out = base_buf_take(&b, NULL);
    base_buf_done(&b);
    ir_graph_free(g);
    fmt_dims_free(dims);
    if (err->code == RTX_OK)
        return out;
    base_free(out);
    return NULL;
}

static char *read_golden(size_t *out_len)
{
    char path[4096];
    char *text = NULL;
    rtx_err err = {0};
    int folder = (int)(strrchr(__FILE__, '/') - __FILE__); /* tests run where the compiler ran */
    snprintf(path, sizeof path, "%.*s/../../golden/ir/every_op.rtx", folder, __FILE__);
    if (base_read_file(path, 1 << 20, &text, out_len, &err) != RTX_OK)
        fail_msg("%s", err.text);
    return text;
}

static void test_every_op(void **state)
{
    (void)state;
    rtx_err err = {0};
    size_t len;
    char *golden = read_golden(&len);
    char *out = through(golden, len, 0, &err);
    if (!out)
        fail_msg("%s", err.text);
    assert_string_equal(out, golden + strcspn(golden, "\n") + 1); /* behind the comment */
    for (int op = IR_NONE + 1; op < IR_OP_COUNT; op++) {          /* the text has them all */
        char word[64];
        snprintf(word, sizeof word, " = %s ", ir_op_get((ir_op)op)->name);
        if (op != IR_input && !strstr(golden, word))
            fail_msg("no %s in every_op.rtx", word);
    }
    base_free(out);
    base_free(golden);
}

/* Cut anywhere: an error, never a crash. */
static void test_cut(void **state)
{
    (void)state;
    size_t len;
    char *golden = read_golden(&len);
    for (size_t n = 0; n + 2 < len; n++) {
        rtx_err err = {0};
        char *copy = base_alloc(BASE_TAG_IR, n); /* exact, so that ASan sees a read behind it */
        memcpy(copy, golden, n);
        assert_null(through(copy, n, 0, &err));
        assert_true(err.code == RTX_INVALID || err.code == RTX_UNSUPPORTED);
        base_free(copy);
    }
    base_free(golden);
}

static void test_messages(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"", "line 1, column 1: expected 'func'"},
        {"func @f() {\n  %0 = nothing\n  return\n}", "line 2, column 8: expected an operation"},
        {"func @f() {\n  %0 = exp %1\n  return\n}", "%1 is not defined before this line"},
        {"func @f(%0 \"x\": f32[2]) {\n  %0 = exp %0\n  return\n}", "%0 is defined twice"},
        {"func @f(%0 \"x\": f32[2]) {\n  %1 = exp %0 : f32[3]\n  return\n}", "exp gives f32[2]"},
        {"func @f(%0 \"x\": f32[2], %1 \"y\": f32[n]) {\n  %2 = add %0 %1\n  return\n}",
         "sizes differ"},
        {"func @f(%0 \"x\": f32[2], %1 \"y\": f32[3]) {\n  %2 = add %0 %1\n  return\n}",
         "line 2, column 8: add: shapes differ"},
        {"func @f(%0 \"x\": f32[2]) {\n  %1 = gather %0 %0 {axis=0}\n  return\n}",
         "indices are i64 or i32"},
        {"func @f(%0 \"x\": f32[2]) {\n  %1 = softmax %0 {axis=0}\n  return\n}",
         "softmax has no attribute"},
        {"func @f(%0 \"x\": f32[2]) {\n  %1 = cumsum %0 {axis=0 axis=0}\n  return\n}",
         "cumsum has no attribute"},
        {"func @f(%0 \"x\": f32[2]) {\n  return %0 \"a\", %0 \"a\"\n}", "two outputs named 'a'"},
        {"func @f() {\n  %0 = const f32[2] {1}\n  return\n}", "expected ','"},
        {"func @f() {\n  %0 = const f32[2] {1, 2, 3}\n  return\n}", "expected '}'"},
        {"func @f() {\n  %0 = const i32[1] {2147483648}\n  return\n}", "2147483648 is no i32"},
        {"func @f() {\n  %0 = const i64[1] {9223372036854775808}\n  return\n}",
         "integer does not fit 64 bits"},
        {"func @f() {\n  %0 = const f32[n] {1}\n  return\n}", "sizes that are numbers"},
        {"func @f() {\n  %0 = const f32[99999999999] {1}\n  return\n}", "expected ','"},
        {"func @f() {\n  %0 = const f32[1] hex\"00\"\n  return\n}", "expected 4 bytes"},
        {"func @f() {\n  %0 = const f32[65] #0123456789abcdef\n  return\n}", "expected '{'"},
        {"func @f(%0 \"x\": f32[1,1,1,1,1,1,1,1,1]) {\n  return\n}", "more than 8 entries"},
        {"func @f(%0 \"x\": u8[1]) {\n  return\n}", "dtype u8"},
        {"func @f(%0 \"x\": q4[1]) {\n  return\n}", "expected a dtype"},
        {"func @f(%0 \"x\": f32[1]@moon) {\n  return\n}", "expected host, pinned or device"},
        {"func @f(%0 \"x\": f32[2]@device) {\n  %1 = exp %0 : f32[2]\n  return\n}",
         "exp gives f32[2]"},
        {"func @f(%0 \"x\": f32[3 +]) {\n  return\n}", "expected a size"},
        {"func @f(%0 \"x: f32[3]) {\n  return\n}", "name with a line break"},
        {"sym n 5..2\nfunc @f() {\n  return\n}", "bounds of n leave no value"},
        {"sym 3 5..2\nfunc @f() {\n  return\n}", "expected the name of a symbol"},
        {"func @f() {\n  return\n}\nfunc", "text behind the function"},
        {"func @f() {\n  %99999999 = iota {dims=[2] axis=0}\n  return\n}", "label above"},
    };
    for (size_t k = 0; k < COUNT_OF(cases); k++) {
        rtx_err err = {0};
        char *out = through(cases[k][0], strlen(cases[k][0]), 0, &err);
        if (out || !strstr(err.text, cases[k][1]))
            fail_msg("'%s' is not in '%s'", cases[k][1], err.text);
    }
}

/* Where a value lives is part of its type, of what follows from it, and of the text; the host is not written. */
static void test_residency(void **state)
{
    (void)state;
    static const char text[] = "sym n 0..\n"
                               "func @every_op(%0 \"x\": f32[n,2]@device, %1 \"y\": f32[n,2]) {\n"
                               "  %2 = const f32[1]@pinned {1.5}\n"
                               "  %3 = exp %0 : f32[n,2]@device\n"
                               "  %4 = exp %1 : f32[n,2]\n"
                               "  return %2 \"p\", %3 \"d\", %4 \"h\"\n}\n";
    rtx_err err = {0};
    char *out = through(text, sizeof text - 1, 0, &err);
    if (!out)
        fail_msg("%s", err.text);
    assert_string_equal(out, text);
    base_free(out);
}

static void test_data(void **state)
{
    (void)state;
    rtx_err err = {0};
    fmt_dims *dims = fmt_dims_new();
    ir_graph *g = ir_graph_new(dims), *h = NULL;
    float values[65];
    for (int k = 0; k < 65; k++)
        values[k] = (float)k / 3;
    g->current_name = "weights\n1";
    ir_type t = {.dtype = FMT_F32, .rank = 1, .dim = {fmt_dim_const(dims, 65)}};
    ir_output(g, "w", ir_const_borrow(g, &t, values, sizeof values));
    AUTO_BUF base_buf full, brief;
    base_buf_init(&full, BASE_TAG_IR, 1 << 20);
    base_buf_init(&brief, BASE_TAG_IR, 1 << 20);
    ir_print(g, "a-b", IR_TEXT_DATA | IR_TEXT_NAMES, &full);
    ir_print(g, NULL, 0, &brief);
    assert_non_null(strstr(full.data, "func @a_b() {\n"));
    assert_non_null(strstr(full.data, "  # weights?1\n"));
    assert_int_equal(ir_parse(full.data, full.len, dims, &h, &err), RTX_OK);
    assert_memory_equal(ir_const_of(h, h->outputs[0].id)->data, values, sizeof values);
    assert_non_null(strstr(brief.data, "const f32[65] #"));
    ir_graph_free(h);
    assert_int_equal(ir_parse(brief.data, brief.len, dims, &h, &err), RTX_INVALID);
    ir_graph_free(g);
    fmt_dims_free(dims);
}

static void test_no_memory(void **state)
{
    (void)state;
    rtx_err err = {0};
    size_t len, before_format = base_alloc_live_bytes(BASE_TAG_FORMAT);
    char *golden = read_golden(&len);
    size_t before = base_alloc_live_bytes(BASE_TAG_IR);
    uint64_t start = base_alloc_count();
    base_free(through(golden, len, 0, &err));
    int64_t total = (int64_t)(base_alloc_count() - start);
    for (int64_t n = 0; n < total; n++) {
        err = (rtx_err){0};
        base_alloc_fail_at(n);
        char *out = through(golden, len, 0, &err);
        base_alloc_fail_at(-1);
        if (out || err.code != RTX_NOMEM)
            fail_msg("allocation %d of %d: %s %s", (int)n, (int)total, rtx_status_name(err.code),
                     err.text);
        assert_int_equal(base_alloc_live_bytes(BASE_TAG_IR), before);
        assert_int_equal(base_alloc_live_bytes(BASE_TAG_FORMAT), before_format);
    }
    base_free(golden);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_op),  cmocka_unit_test(test_cut),
        cmocka_unit_test(test_messages),  cmocka_unit_test(test_data),
        cmocka_unit_test(test_residency), cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
