/* Safetensors files, repeated numbers of the wire format, and the zoo's options and weights. */
#include "base_sys.h"
#include "fe_onnx_emit.h"
#include "fe_onnx_wire.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <cmocka.h>

/* ---- safetensors ---- */

static rtx_status open_text(const char *header, size_t data_bytes, fe_st **out, rtx_err *err)
{
    char path[] = "/tmp/rtx-test-st-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    uint64_t len = strlen(header);
    static const char data[64] = {1, 2, 3, 4};
    assert_int_equal(write(fd, &len, 8), 8);
    assert_int_equal(write(fd, header, len), len);
    assert_int_equal(write(fd, data, data_bytes), data_bytes);
    close(fd);
    rtx_status st = fe_st_open(path, out, err);
    unlink(path);
    return st;
}

#define A "\"a\":{\"dtype\":\"F32\",\"shape\":[2,2],\"data_offsets\":[0,16]}"
#define B "\"b\":{\"dtype\":\"I64\",\"shape\":[],\"data_offsets\":[16,24]}"

static void test_safetensors(void **state)
{
    (void)state;
    fe_st *s = NULL;
    size_t n;
    assert_int_equal(open_text("{\"__metadata__\":{\"k\":\"v\"}," B "," A "}", 24, &s, NULL),
                     RTX_OK);
    assert_string_equal(fe_st_table(s, &n)[0].name, "a");
    assert_int_equal(n, 2);
    const fe_st_tensor *a = fe_st_find(s, "a");
    assert_true(a && a->dtype == FMT_F32 && a->rank == 2 && a->dim[1] == 2 && a->bytes == 16);
    assert_memory_equal(a->data, "\1\2\3\4", 4);
    assert_null(fe_st_find(s, "c"));
    fe_st_close(s);
}

static void test_safetensors_refusals(void **state)
{
    (void)state;
    static const struct {
        const char *header;
        size_t data_bytes;
    } bad[] = {
        {"{" A "," B "}", 23}, /* cut short */
        {"{" A "," B "}", 25}, /* bytes nobody owns */
        {"{" B "}", 24},       /* a gap */
        {"{" A "," A "}", 16}, /* a name twice */
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[0,16]}}",
         16}, /* size and data */
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[-2,-2],\"data_offsets\":[0,16]}}",
         16}, /* negative */
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[4294967296,4294967296,4],\"data_offsets\":[0,0]}}",
         0},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2,2],\"data_offsets\":[16,0]}}", 16},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2,2],\"data_offsets\":[0]}}", 16},
        {"{\"a\":{\"dtype\":\"F4\",\"shape\":[2,2],\"data_offsets\":[0,16]}}", 16},
        {"{\"a\":7}", 0},
        {"[]", 0},
        {"{", 0}};
    for (size_t i = 0; i < COUNT_OF(bad); i++) {
        fe_st *s = NULL;
        rtx_err err = {0};
        assert_int_not_equal(open_text(bad[i].header, bad[i].data_bytes, &s, &err), RTX_OK);
        assert_true(s == NULL && *err.text);
    }
}

/* ---- repeated numbers ---- */

static size_t walk(base_buf *b, uint64_t *out)
{
    base_arena a;
    fe_pb_tensor t;
    base_arena_init(&a, BASE_TAG_FRONTEND, 0);
    assert_int_equal(fe_read_tensor((fe_span){(uint8_t *)b->data, b->len}, &a, &t, NULL), RTX_OK);
    size_t n = 0;
    fe_nums_at it = fe_nums_begin(&t.dims);
    while (fe_nums_next(&it, &out[n]))
        n++;
    assert_int_equal(n, t.dims.n);
    base_arena_done(&a);
    return n;
}

/* Packed runs, single numbers and other fields between them give one list, in order. */
static void test_packed_and_not(void **state)
{
    (void)state;
    uint64_t v[8];
    base_buf b = fe_message();
    fe_put_int(&b, 1, 1);
    fe_put_bytes(&b, 1, "\x02\xac\x02", 3);
    fe_put_text(&b, 8, "name");
    fe_put_bytes(&b, 1, "", 0);
    fe_put_int(&b, 1, -4);
    assert_int_equal(walk(&b, v), 4);
    assert_true(v[0] == 1 && v[1] == 2 && v[2] == 300 && (int64_t)v[3] == -4);
    base_buf_done(&b);
}

static void test_wire_refusals(void **state)
{
    (void)state;
    static const struct {
        const char *bytes;
        size_t n;
    } bad[] = {{"\x08", 1},           /* a number is missing */
               {"\x0a\x02\x80", 3},   /* a packed run ends inside a number */
               {"\x42\x05x", 3},      /* a name longer than the file */
               {"\x45\0\0\0\0", 5},   /* a name as a 4-byte number */
               {"\x22\x03\0\0\0", 5}, /* 3 bytes of floats */
               {"\x0b", 1},           /* a group */
               {"\x00\x00", 2},       /* field 0 */
               {"\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02", 11}, /* beyond 64 bits */
               {"\x1a\x00\x1a\x00", 4}};                             /* a single message twice */
    for (size_t i = 0; i < COUNT_OF(bad); i++) {
        base_arena a;
        fe_pb_tensor t;
        base_arena_init(&a, BASE_TAG_FRONTEND, 0);
        assert_int_equal(
            fe_read_tensor((fe_span){(const uint8_t *)bad[i].bytes, bad[i].n}, &a, &t, NULL),
            RTX_CORRUPT);
        base_arena_done(&a);
    }
}

/* ---- zoo ---- */

static rtx_status zoo(const char *spec, uint64_t *out_hash)
{
    fe_model *m = NULL;
    rtx_status st = fe_open(spec, NULL, &m, NULL);
    if (st == RTX_OK) {
        const ir_graph *g = fe_graph(m);
        assert_int_equal(ir_verify(g, NULL), RTX_OK);
        *out_hash = 0;
        for (ir_id id = 1; id < g->n_nodes; id++)
            if (ir_op_of(g, id) == IR_const)
                *out_hash =
                    *out_hash * 31 + base_xxh3(ir_const_of(g, id)->data, ir_const_of(g, id)->bytes);
    }
    fe_close(m);
    return st;
}

static void test_zoo(void **state)
{
    (void)state;
    size_t n;
    const fe_zoo_entry *e = fe_zoo_table(&n);
    assert_int_equal(n, 5);
    for (size_t i = 0; i < n; i++) {
        char spec[64];
        uint64_t once, again, other;
        snprintf(spec, sizeof spec, "zoo:%s", e[i].name);
        assert_int_equal(zoo(spec, &once), RTX_OK);
        assert_int_equal(zoo(spec, &again), RTX_OK);
        snprintf(spec, sizeof spec, "zoo:%s,seed=2", e[i].name);
        assert_int_equal(zoo(spec, &other), RTX_OK);
        assert_true(once == again && once != other);
    }
    uint64_t h;
    const char *const bad[] = {"zoo:mlp,",
                               "zoo:mlp,in",
                               "zoo:mlp,in=",
                               "zoo:mlp,in=x",
                               "zoo:mlp,in=0",
                               "zoo:mlp,foo=1",
                               "zoo:mlp,in=99999999999",
                               "zoo:encoder,heads=3",
                               "zoo:llama-block,kv-heads=3"};
    for (size_t i = 0; i < COUNT_OF(bad); i++)
        assert_int_equal(zoo(bad[i], &h), RTX_INVALID);
    assert_int_equal(zoo("zoo:nothing", &h), RTX_NOT_FOUND);
    assert_int_equal(zoo("zoo:", &h), RTX_NOT_FOUND);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_safetensors), cmocka_unit_test(test_safetensors_refusals),
        cmocka_unit_test(test_packed_and_not), cmocka_unit_test(test_wire_refusals),
        cmocka_unit_test(test_zoo)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
