/* Plans: records round trip, the row rule, lies of every kind, and random damage beyond what sums would let through. */
#include "../run/run_fixture.h"
#include "fmt_plan_priv.h"
#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

static const uint32_t entries[6] = {0, 1, 2, 3, 4, 5};
static const uint8_t code[64] = {1};

static unsigned seed;
static unsigned draw(unsigned n)
{
    seed = seed * 1664525u + 1013904223u;
    return seed / 65536u % n;
}

static fmt_plan *make(void)
{
    static const fix_options none;
    fmt_plan *p = fix_plan(&none, 2, 4, (fmt_span){code, sizeof code}, entries);
    assert_non_null(p);
    return p;
}

static void write_plan(const fmt_plan *p, base_buf *b)
{
    base_buf_init(b, BASE_TAG_FORMAT, SIZE_MAX);
    fmt_plan_write(p, b);
    assert_int_equal(base_buf_ok(b, NULL), RTX_OK);
}

static void test_round_trip(void **state)
{
    (void)state;
    fmt_plan *p = make(), *q = NULL;
    AUTO_BUF base_buf first, second;
    write_plan(p, &first);
    base_reader r = base_reader_of(first.data, first.len);
    rtx_err err = {.text = ""};
    if (fmt_plan_read(&r, &q, &err) != RTX_OK)
        print_error("%s\n", err.text);
    assert_non_null(q);
    assert_int_equal(base_reader_left(&r), 0);
    write_plan(q, &second);
    assert_int_equal(first.len, second.len);
    assert_memory_equal(first.data, second.data, first.len);
    assert_string_equal(fmt_str_get(q, q->steps[1].name), "Gather_1");
    assert_int_equal(q->n_rows, p->n_rows);
    fmt_plan_free(p);
    fmt_plan_free(q);
    fmt_plan_free(NULL);
}

static void test_strings(void **state)
{
    (void)state;
    fmt_plan *p = fmt_plan_new(fmt_dims_new());
    assert_int_equal(fmt_plan_str(p, ""), 0);
    assert_string_equal(fmt_str_get(p, 0), "");
    fmt_str ids[700];
    char text[24];
    for (int pass = 0; pass < 2; pass++) {
        for (int i = 0; i < 700; i++) {
            snprintf(text, sizeof text, "text %d", i);
            fmt_str id = fmt_plan_str(p, text);
            if (pass)
                assert_int_equal(id, ids[i]);
            ids[i] = id;
            assert_string_equal(fmt_str_get(p, id), text);
        }
    }
    fmt_plan_free(p);
}

/* Kernels are taken out and put back, as tuning again does: the plan must not grow. */
static void test_trim(void **state)
{
    (void)state;
    fmt_plan *p = make(), *as_made = make();
    AUTO_BUF base_buf before, after;
    write_plan(p, &before);
    for (int round = 0; round < 3; round++) {
        uint32_t n = p->n_kernels;
        size_t len = p->strs.len;
        p->n_kernels = 0;
        assert_int_equal(fmt_plan_trim(p, NULL), RTX_OK);
        assert_true(p->strs.len < len);
        assert_string_equal(fmt_str_get(p, p->steps[1].name), "Gather_1");
        for (uint32_t i = 0; i < n; i++) {
            fmt_kernel k = as_made->kernels[i];
            k.name = fmt_plan_str(p, fmt_str_get(as_made, k.name));
            k.templ = fmt_plan_str(p, fmt_str_get(as_made, k.templ));
            k.params = fmt_plan_str(p, fmt_str_get(as_made, k.params));
            k.source = fmt_plan_str(p, fmt_str_get(as_made, k.source));
            k.flags = fmt_plan_str(p, fmt_str_get(as_made, k.flags));
            assert_int_equal(fmt_plan_add_kernel(p, &k), i);
        }
    }
    assert_int_equal(fmt_plan_trim(p, NULL), RTX_OK);
    write_plan(p, &after);
    assert_int_equal(after.len, before.len);
    base_alloc_fail_at(0);
    assert_int_equal(fmt_plan_trim(p, NULL), RTX_NOMEM);
    base_alloc_fail_at(-1);
    fmt_plan_free(p);
    fmt_plan_free(as_made);
}

/* The rule as its contract words it, over lists of distinct sizes. */
static const fmt_row *pick_by_book(const fmt_plan *p, const fmt_slot *s, fmt_isa isa, int threads,
                                   const int64_t measure[2])
{
    int count = 0, least = 0;
    for (uint32_t i = s->row; i < s->row + s->n_rows; i++) {
        const fmt_row *r = &p->rows[i];
        if (r->isa == isa && (!least || r->threads < least))
            least = r->threads;
        if (r->isa == isa && r->threads <= threads && r->threads > count)
            count = r->threads;
    }
    if (!least)
        return NULL;
    int64_t fixed[2] = {-1, -1};
    for (int k = 0; k < 2; k++) {
        int64_t sizes[64];
        size_t n = 0;
        for (uint32_t i = s->row; i < s->row + s->n_rows; i++) {
            const fmt_row *r = &p->rows[i];
            if (r->isa == isa && r->threads == (count ? count : least) &&
                (k == 0 || r->size[0] == fixed[0]) && (n == 0 || sizes[n - 1] != r->size[k]))
                sizes[n++] = r->size[k];
        }
        fixed[k] = sizes[fmt_bucket_pick(sizes, n, measure[k])];
    }
    for (uint32_t i = s->row; i < s->row + s->n_rows; i++) {
        const fmt_row *r = &p->rows[i];
        if (r->isa == isa && r->threads == (count ? count : least) && r->size[0] == fixed[0] &&
            r->size[1] == fixed[1])
            return r;
    }
    return NULL;
}

static void test_pick(void **state)
{
    (void)state;
    seed = 7;
    for (int round = 0; round < 200; round++) {
        fmt_plan *p = fmt_plan_new(fmt_dims_new());
        fmt_slot s = {.row = 0};
        for (int isa = 2; isa <= 4; isa++) {
            if (draw(4) == 0)
                continue;
            for (unsigned threads = 1 + draw(2); threads < 8; threads += 1 + draw(4)) {
                for (int64_t a = draw(5); a < 40; a += 1 + draw(20)) {
                    for (int64_t b = draw(5); b < 30; b += 1 + draw(20)) {
                        fmt_row r = {(uint8_t)isa, (uint16_t)threads, 1, {a, b}, 0};
                        fmt_plan_add_row(p, &r);
                        s.n_rows++;
                    }
                }
            }
        }
        for (int i = 0; i < 60; i++) {
            fmt_isa isa = (fmt_isa)(2 + draw(3));
            int threads = 1 + (int)draw(10);
            int64_t measure[2] = {draw(60), draw(60)};
            assert_ptr_equal(fmt_plan_pick(p, &s, isa, threads, measure),
                             pick_by_book(p, &s, isa, threads, measure));
        }
        fmt_plan_free(p);
    }
}

/* ---- lies ---- */

static void expect_refused(fmt_plan *p, const char *text, int line)
{
    rtx_err err = {.text = ""};
    rtx_status status = fmt_plan_check(p, &err);
    if (status != RTX_CORRUPT || !strstr(err.text, text))
        print_error("line %d: %s '%s', wanted '%s'\n", line, rtx_status_name(status), err.text,
                    text);
    assert_int_equal(status, RTX_CORRUPT);
    assert_non_null(strstr(err.text, text));
    fmt_plan_free(p);
}

#define LIE(change, text)                                                                          \
    do {                                                                                           \
        fmt_plan *p = make();                                                                      \
        change;                                                                                    \
        expect_refused(p, text, __LINE__);                                                         \
    } while (0)

static void test_lies(void **state)
{
    (void)state;
    LIE(p->inputs[0].name = 0, "input 0 has no name");
    LIE(p->inputs[1].name = p->inputs[0].name, "occurs twice");
    LIE(p->inputs[0].name = 1 << 30, "input 0 has no name");
    LIE(p->outputs[1].name = fmt_plan_str(p, "caf\xe9"), "the name of output 1 is not UTF-8");
    LIE(p->outputs[0].dtype = FMT_STRING, "output 0 has element type");
    LIE(p->outputs[0].rank = 9, "output 0 has rank 9");
    LIE(p->outputs[0].dim[1] = 1000, "bad dimension 1");
    LIE(p->outputs[0].dim[1] = -1, "bad dimension 1");
    LIE(p->values[0].kind = 9, "value 0 is of kind 9");
    LIE(p->values[0].index = 2, "value 0 is no input");
    LIE(p->values[0].dtype = FMT_I64, "value 0 is no input");
    LIE(p->values[0].dtype = 0, "bad element type");
    LIE(p->values[0].elems = 1000, "bad element type or size");
    LIE(p->values[3].index = 0, "repeats a port");
    LIE(p->values[3].kind = FMT_VAL_TEMP, "output 'z' has no value");
    LIE(p->values[4].offset = 8, "constant 4 lies at");
    LIE(p->values[4].offset = UINT64_MAX - 63, "constant 4 lies at");
    LIE(p->values[5].bytes = UINT64_MAX, "constant 5 lies at");
    LIE(p->values[4].bytes = 4, "constant 4 claims");
    LIE(p->values[4].elems = p->values[0].elems, "no constant size");
    LIE(p->values[6].last = 4, "lives from step 0 to 4 of 4");
    LIE(p->values[7].first = 3, "lives from step 3 to 2");
    LIE(p->values[7].first = 2, "step 1 uses value 7");
    LIE(p->kernels[1].name = p->kernels[0].name, "occurs twice");
    LIE(p->kernels[0].isa = 9, "level 9");
    LIE(p->kernels[0].code_offset = 1, "outside the code section");
    LIE(p->kernels[0].code_bytes = 0, "outside the code section");
    LIE(p->kernels[0].run_entry = 64, "entry outside");
    LIE(p->kernels[0].source = 1 << 30, "bad name or text");
    LIE(p->rows[0].kernel = 99, "row 0 names no kernel");
    LIE(p->rows[0].kernel = 2, "row 0 names no kernel"); /* of a higher level */
    LIE(p->rows[0].ways = 3, "3 parts for 1 threads");
    LIE(p->rows[0].threads = 0, "parts for 0 threads");
    LIE(p->rows[1].size[0] = 1, "out of order");
    LIE(p->slots[0].n_rows = 0, "rows outside");
    LIE(p->slots[0].row = UINT32_MAX, "rows outside");
    LIE(p->slots[0].n_rows -= 6, "lacks a kernel");
    LIE(p->slots[0].measure[0] = -2, "bad problem or measure");
    LIE(p->slots[2].measure[1] = 1, "step 2 has too few arguments");
    LIE(p->steps[0].slot = 3, "step 0 names no slot");
    LIE(p->steps[0].n_operands = 73, "operands outside");
    LIE(p->steps[0].operand = UINT32_MAX - 1, "operands outside");
    LIE(p->steps[3].n_args = 2, "arguments outside");
    LIE(p->steps[0].next = 0, "no constant");
    LIE(p->steps[0].next = 1000, "no constant");
    LIE(p->operands[0].value = 1000, "operand 0 names no value");
    LIE(p->operands[0].offset = -5, "operand 0 names no value");
    LIE(p->args[0] = 1000, "argument 0 is no dimension");
    LIE(p->operands[1].offset = fmt_dim_const(p->dims, 129), "outside its value");
    LIE(p->operands[1].offset = fmt_dim_const(p->dims, -1), "outside its value");
}

/* Bytes altered and cut at random: whatever is read is either refused or passes the check again. */
static void test_damage(void **state)
{
    (void)state;
    fmt_plan *p = make();
    AUTO_BUF base_buf b;
    write_plan(p, &b);
    unsigned accepted = 0;
    seed = 3;
    for (int round = 0; round < 20000; round++) {
        size_t n = draw(8) ? b.len : draw(65536) % b.len;
        char *copy = malloc(n + 1); /* of its own, so that reading past it shows */
        memcpy(copy, b.data, n);
        for (unsigned k = draw(3) + 1; k > 0 && n; k--) {
            size_t at = draw(65536);
            at = (at << 3 | k) % n;
            unsigned how = draw(3), byte = draw(256);
            copy[at] = (char)(how ? byte : byte & 1 ? 255 : 0);
        }
        base_reader r = base_reader_of(copy, n);
        fmt_plan *q = NULL;
        if (fmt_plan_read(&r, &q, NULL) == RTX_OK) {
            assert_int_equal(fmt_plan_check(q, NULL), RTX_OK);
            accepted++;
        }
        fmt_plan_free(q);
        free(copy);
    }
    assert_true(accepted > 0 && accepted < 19000);
    fmt_plan_free(p);
}

static void test_failed_allocations(void **state)
{
    (void)state;
    size_t live = base_alloc_live_bytes(BASE_TAG_FORMAT);
    static const fix_options none;
    fmt_span span = {code, sizeof code};
    uint64_t before = base_alloc_count();
    fmt_plan_free(fix_plan(&none, 2, 4, span, entries));
    uint64_t total = base_alloc_count() - before;
    for (uint64_t i = 0; i < total; i++) {
        base_alloc_fail_at((int64_t)i);
        fmt_plan *p = fix_plan(&none, 2, 4, span, entries);
        base_alloc_fail_at(-1);
        assert_null(p);
        assert_int_equal(base_alloc_live_bytes(BASE_TAG_FORMAT), live);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_strings),
        cmocka_unit_test(test_trim),
        cmocka_unit_test(test_pick),
        cmocka_unit_test(test_lies),
        cmocka_unit_test(test_damage),
        cmocka_unit_test(test_failed_allocations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
