/* Status, allocator, arena, buf and reader; every allocation of a small job fails once. */
#include "base_core.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>

#define LIVE() base_alloc_live_bytes(BASE_TAG_IR)

static void test_status_table(void **state)
{
    (void)state;
    assert_string_equal(rtx_status_name(RTX_CORRUPT), "CORRUPT");
    assert_string_equal(rtx_status_text(RTX_NOMEM), "out of memory");
    assert_int_equal(rtx_status_exit(RTX_OK), 0);
    assert_int_equal(rtx_status_exit(RTX_UNSUPPORTED), 3);
    assert_string_equal(rtx_status_name((rtx_status)99), "UNKNOWN");
    assert_string_equal(rtx_status_name((rtx_status)-1), "UNKNOWN");
    assert_int_equal(sizeof(rtx_err), 512);
}

static void test_fail_fills_the_record(void **state)
{
    (void)state;
    rtx_err err;
    assert_int_equal(base_fail(&err, RTX_IO, "../src/base/x.c", 7, "n = %d\n\x1b[31m", 3), RTX_IO);
    assert_int_equal(err.code, RTX_IO);
    assert_string_equal(err.where, "x.c:7");
    assert_string_equal(err.text, "n = 3  [31m");
    FAIL(&err, INVALID, "outer: %s", err.text); /* arguments may point into the record */
    assert_string_equal(err.text, "outer: n = 3  [31m");
    assert_int_equal(FAIL(NULL, LIMIT, "nobody reads this"), RTX_LIMIT);
}

static void test_fail_cuts_between_characters(void **state)
{
    (void)state;
    rtx_err err;
    char text[600];
    for (size_t shift = 0; shift < 3; shift++) {
        memset(text, 'x', shift);
        for (size_t i = shift; i + 3 < sizeof text; i += 3)
            memcpy(text + i, "\u2026", 4);
        FAIL(&err, INVALID, "%s", text);
        size_t len = strlen(err.text);
        assert_in_range(len, sizeof err.text - 3, sizeof err.text - 1);
        assert_int_equal((len - shift) % 3, 0);
    }
}

static void test_utf8(void **state)
{
    (void)state;
    static const char *const good[] = {"",
                                       "a",
                                       "\x7f",
                                       "\xc2\x80",
                                       "\xe0\xa0\x80",
                                       "\xed\x9f\xbf",
                                       "\xee\x80\x80",
                                       "\xf0\x90\x80\x80",
                                       "\xf4\x8f\xbf\xbf",
                                       "a\xc3\xa9z"};
    static const char *const bad[] = {"\x80",
                                      "\xbf",
                                      "\xc1\xbf",
                                      "\xc3",
                                      "\xc3z",
                                      "\xe0\x9f\xbf",
                                      "\xe2\x82",
                                      "\xed\xa0\x80",
                                      "\xf0\x8f\xbf\xbf",
                                      "\xf4\x90\x80\x80",
                                      "\xf5\x80\x80\x80",
                                      "a\xff",
                                      "\xfe"};
    for (size_t i = 0; i < COUNT_OF(good); i++)
        assert_true(base_utf8_ok(good[i], strlen(good[i])));
    for (size_t i = 0; i < COUNT_OF(bad); i++)
        assert_false(base_utf8_ok(bad[i], strlen(bad[i])));
    assert_true(base_utf8_ok("a\0b", 3));
    assert_int_equal(base_utf8_size("\xe2\x82\xac", 3), 3);
    assert_int_equal(base_utf8_size("\xe2\x82\xac", 2), 0);
    assert_int_equal(base_utf8_size("", 0), 0);
    char text[] = "a\033[0m\n\x7f\xc3\xa9";
    base_make_printable(text);
    assert_string_equal(text, "a [0m  \xc3\xa9");
}

static void test_alloc_basics(void **state)
{
    (void)state;
    size_t before = LIVE();
    for (size_t n = 0; n < 300; n += 7) {
        uint8_t *p = base_zalloc(BASE_TAG_IR, n);
        assert_non_null(p);
        assert_int_equal((uintptr_t)p % 64, 0);
        for (size_t i = 0; i < n; i++)
            assert_int_equal(p[i], 0);
        assert_int_equal(LIVE(), before + n);
        base_free(p);
    }
    base_free(NULL);
    assert_int_equal(LIVE(), before);
    assert_true(base_alloc_peak_bytes(BASE_TAG_IR) >= 294);
    assert_string_equal(base_tag_name(BASE_TAG_DEVICE), "DEVICE");
    assert_null(base_alloc_array(BASE_TAG_IR, SIZE_MAX / 2, 3));
    assert_null(base_zalloc_array(BASE_TAG_IR, SIZE_MAX / 8, 8));
    assert_null(base_alloc(BASE_TAG_IR, SIZE_MAX));
}

static void test_realloc_keeps_content(void **state)
{
    (void)state;
    char *p = base_strdup(BASE_TAG_IR, "tensor");
    p = base_realloc(BASE_TAG_IR, p, 1 << 20);
    assert_string_equal(p, "tensor");
    base_alloc_fail_at(0);
    assert_null(base_realloc(BASE_TAG_IR, p, 1 << 21));
    assert_string_equal(p, "tensor");
    p = base_realloc(BASE_TAG_IR, p, 3);
    assert_memory_equal(p, "ten", 3);
    base_free(p);
    p = base_realloc(BASE_TAG_IR, NULL, 5);
    assert_non_null(p);
    base_free(p);
}

static char *scoped(bool keep)
{
    AUTO_FREE char *p = base_strdup(BASE_TAG_IR, "scope");
    return keep ? TAKE(p) : NULL;
}

static void test_scope_cleanup(void **state)
{
    (void)state;
    size_t before = LIVE();
    assert_null(scoped(false));
    assert_int_equal(LIVE(), before);
    char *kept = scoped(true);
    assert_string_equal(kept, "scope");
    base_free(kept);
    assert_int_equal(LIVE(), before);
}

/* A job as modules write it: arena, buf and plain blocks, one status at the end. */
static rtx_status small_job(rtx_err *err)
{
    base_arena a;
    base_arena_init(&a, BASE_TAG_IR, 0);
    AUTO_BUF base_buf b;
    base_buf_init(&b, BASE_TAG_IR, 1 << 20);
    for (int i = 0; i < 300; i++) {
        char *s = base_arena_printf(&a, "value%d", i);
        base_buf_puts(&b, s ? s : "");
        base_arena_array(&a, 40, 8);
    }
    bool failed = a.failed;
    base_arena_done(&a);
    if (failed)
        return FAIL(err, NOMEM, "out of memory");
    TRY(base_buf_ok(&b, err));
    AUTO_FREE char *copy = NULL;
    TRY_ALLOC(copy = base_strdup(BASE_TAG_IR, b.data), err);
    return strlen(copy) == b.len ? RTX_OK : FAIL(err, INTERNAL, "text lost");
}

static void test_every_allocation_fails_once(void **state)
{
    (void)state;
    size_t before = LIVE();
    uint64_t start = base_alloc_count();
    assert_int_equal(small_job(NULL), RTX_OK);
    int64_t total = (int64_t)(base_alloc_count() - start);
    assert_true(total > 5);
    for (int64_t i = 0; i < total; i++) {
        rtx_err err = {0};
        base_alloc_fail_at(i);
        assert_int_equal(small_job(&err), RTX_NOMEM);
        assert_int_equal(err.code, RTX_NOMEM);
        assert_int_equal(LIVE(), before);
    }
    base_alloc_fail_at(-1);
    assert_int_equal(small_job(NULL), RTX_OK);
}

static void test_arena(void **state)
{
    (void)state;
    size_t before = LIVE();
    base_arena a;
    base_arena_init(&a, BASE_TAG_IR, 0);
    for (size_t n = 0; n < 5000; n += 13) {
        uint8_t *p = base_arena_alloc(&a, n);
        assert_non_null(p);
        assert_int_equal((uintptr_t)p % 16, 0);
        for (size_t i = 0; i < n; i++)
            assert_int_equal(p[i], 0);
        memset(p, 0xff, n);
    }
    assert_string_equal(base_arena_strn(&a, "abcdef", 3), "abc");
    assert_string_equal(base_arena_strn(&a, NULL, 0), "");
    assert_string_equal(base_arena_printf(&a, "%s-%d", "x", 5), "x-5");
    assert_false(a.failed);
    assert_null(base_arena_array(&a, SIZE_MAX, 2));
    assert_true(a.failed);
    base_arena_done(&a);
    assert_int_equal(LIVE(), before);
    assert_non_null(base_arena_alloc(&a, 1)); /* done leaves a usable arena */
    assert_false(a.failed);
    base_arena_done(&a);
    base_arena_done(&a);
}

static void test_arena_cap(void **state)
{
    (void)state;
    base_arena a;
    base_arena_init(&a, BASE_TAG_IR, 64);
    assert_non_null(base_arena_alloc(&a, 33)); /* 48 with rounding */
    assert_null(base_arena_alloc(&a, 17));
    assert_true(a.failed);
    assert_non_null(base_arena_alloc(&a, 16));
    assert_int_equal(a.used_bytes, 64);
    assert_null(base_arena_alloc(&a, 0));
    assert_null(base_arena_alloc(&a, SIZE_MAX));
    base_arena_done(&a);
}

static void test_buf(void **state)
{
    (void)state;
    base_buf b;
    base_buf_init(&b, BASE_TAG_IR, 1000);
    base_buf_puts(&b, "ab");
    base_buf_align(&b, 8);
    base_buf_u32(&b, 0x04030201);
    base_buf_u64(&b, 5);
    base_buf_i64(&b, -1);
    base_buf_printf(&b, "%03d", 7);
    assert_int_equal(b.len, 31);
    assert_memory_equal(b.data,
                        "ab\0\0\0\0\0\0\1\2\3\4\5\0\0\0\0\0\0\0\xff\xff\xff\xff\xff\xff\xff\xff"
                        "007",
                        32);
    assert_int_equal(base_buf_ok(&b, NULL), RTX_OK);
    size_t len;
    char *data = base_buf_take(&b, &len);
    assert_int_equal(len, 31);
    base_free(data);
    data = base_buf_take(&b, &len);
    assert_string_equal(data, "");
    assert_int_equal(len, 0);
    base_free(data);
    base_buf_done(&b);
}

static void test_buf_cap_is_exact_and_sticky(void **state)
{
    (void)state;
    rtx_err err;
    AUTO_BUF base_buf b;
    base_buf_init(&b, BASE_TAG_IR, 5);
    base_buf_puts(&b, "12345");
    assert_int_equal(base_buf_ok(&b, NULL), RTX_OK);
    base_buf_printf(&b, "%d", 6);
    base_buf_put(&b, "", 0);
    assert_int_equal(base_buf_ok(&b, &err), RTX_LIMIT);
    assert_non_null(strstr(err.text, "5 bytes"));
    assert_string_equal(b.data, "12345");
    assert_null(base_buf_take(&b, NULL));
    assert_int_equal(base_buf_ok(&b, NULL), RTX_OK); /* empty again, same cap */
    base_alloc_fail_at(0);
    base_buf_puts(&b, "x");
    base_buf_puts(&b, "y");
    assert_int_equal(base_buf_ok(&b, NULL), RTX_NOMEM);
}

static void test_reader_bounds(void **state)
{
    (void)state;
    const uint8_t bytes[] = {1,    2,    0,    3,    0,    0,    0,    0xfe,
                             0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 9};
    base_reader r = base_reader_of(bytes, sizeof bytes);
    assert_int_equal(base_reader_u8(&r), 1);
    assert_int_equal(base_reader_u16(&r), 2);
    assert_int_equal(base_reader_u32(&r), 3);
    assert_int_equal(base_reader_i64(&r), -2);
    assert_int_equal(base_reader_left(&r), 1);
    assert_null(base_reader_bytes(&r, SIZE_MAX)); /* at + n would wrap */
    assert_true(r.failed);
    assert_int_equal(base_reader_u8(&r), 0); /* sticky, though a byte is left */
    assert_int_equal(base_reader_u64(&r), 0);

    r = base_reader_of(NULL, 0);
    assert_non_null(base_reader_bytes(&r, 0));
    assert_false(r.failed);
    base_reader_u16(&r);
    assert_true(r.failed);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_status_table),
        cmocka_unit_test(test_fail_fills_the_record),
        cmocka_unit_test(test_fail_cuts_between_characters),
        cmocka_unit_test(test_utf8),
        cmocka_unit_test(test_alloc_basics),
        cmocka_unit_test(test_realloc_keeps_content),
        cmocka_unit_test(test_scope_cleanup),
        cmocka_unit_test(test_every_allocation_fails_once),
        cmocka_unit_test(test_arena),
        cmocka_unit_test(test_arena_cap),
        cmocka_unit_test(test_buf),
        cmocka_unit_test(test_buf_cap_is_exact_and_sticky),
        cmocka_unit_test(test_reader_bounds),
    };
    return cmocka_run_group_tests_name("base_mem", tests, NULL, NULL);
}
