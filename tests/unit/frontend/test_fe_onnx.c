/* The ONNX importer on small models written here: what it makes of them, how it refuses, and that hostile bytes cost
 * neither memory nor a crash. */
#include "base_sys.h"
#include "fe_onnx_emit.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

/* ---- models ---- */

typedef struct model {
    base_buf graph, rest; /* rest: other fields of ModelProto */
} model;

static model begin(int64_t opset)
{
    model m = {fe_message(), fe_message()};
    base_buf o = fe_message();
    fe_put_int(&o, 2, opset);
    fe_put_message(&m.rest, 8, &o);
    return m;
}

/* dims: sizes, or 0 for the symbol s<i>. */
static void port(model *m, uint32_t field, const char *name, int elem, const int64_t *dims,
                 int rank)
{
    base_buf shape = fe_message(), tensor = fe_message(), type = fe_message(), value = fe_message();
    for (int i = 0; i < rank; i++) {
        base_buf dim = fe_message();
        char sym[16];
        snprintf(sym, sizeof sym, "s%d", i);
        if (dims[i])
            fe_put_int(&dim, 1, dims[i]);
        else
            fe_put_text(&dim, 2, sym);
        fe_put_message(&shape, 1, &dim);
    }
    fe_put_int(&tensor, 1, elem);
    fe_put_message(&tensor, 2, &shape);
    fe_put_message(&type, 1, &tensor);
    fe_put_text(&value, 1, name);
    fe_put_message(&value, 2, &type);
    fe_put_message(&m->graph, field, &value);
}

#define DIMS(...) (const int64_t[]){__VA_ARGS__}, (int)COUNT_OF(((const int64_t[]){__VA_ARGS__}))
static void input(model *m, const char *name, const int64_t *dims, int rank)
{
    port(m, 11, name, 1, dims, rank);
}
static void output(model *m, const char *name, const int64_t *dims, int rank)
{
    port(m, 12, name, 1, dims, rank);
}

/* in: names apart by spaces. */
static void node(model *m, const char *op, const char *in, const char *out)
{
    base_buf n = fe_message();
    for (size_t len; *in; in += len + (in[len] == ' ')) {
        len = strcspn(in, " ");
        fe_put_bytes(&n, 1, in, len);
    }
    fe_put_text(&n, 2, out);
    fe_put_text(&n, 3, out);
    fe_put_text(&n, 4, op);
    fe_put_message(&m->graph, 1, &n);
}

static void ints(model *m, const char *name, const int64_t *v, int n, int64_t declared)
{
    base_buf t = fe_message();
    fe_put_int(&t, 1, declared);
    fe_put_int(&t, 2, 7);
    fe_put_text(&t, 8, name);
    fe_put_bytes(&t, 9, v, (size_t)n * sizeof *v);
    fe_put_message(&m->graph, 5, &t);
}

static base_buf finish(model *m)
{
    base_buf all = fe_message();
    base_buf_put(&all, m->rest.data, m->rest.len);
    base_buf_done(&m->rest);
    fe_put_message(&all, 7, &m->graph);
    assert_int_equal(base_buf_ok(&all, NULL), RTX_OK);
    return all;
}

static rtx_status open_model(base_buf *b, fe_model **out, rtx_err *err)
{
    return fe_open_bytes(b->data, b->len, NULL, NULL, out, err);
}

/* Opening fails with this status and a text that has every word (apart by '|'). */
static void assert_refused(model m, rtx_status want, const char *words)
{
    base_buf b = finish(&m);
    fe_model *out = NULL;
    rtx_err err = {0};
    size_t live = base_alloc_live_bytes(BASE_TAG_FRONTEND) - b.cap;
    rtx_status st = open_model(&b, &out, &err);
    if (st != want)
        fail_msg("%s instead of %s: %s", rtx_status_name(st), rtx_status_name(want), err.text);
    assert_null(out);
    for (size_t len; *words; words += len + (words[len] == '|')) {
        char word[64];
        len = strcspn(words, "|");
        snprintf(word, sizeof word, "%.*s", (int)len, words);
        if (!strstr(err.text, word))
            fail_msg("no '%s' in: %s", word, err.text);
    }
    base_free(fe_take_report());
    base_buf_done(&b);
    assert_true(base_alloc_live_bytes(BASE_TAG_FRONTEND) <= live);
}

static fe_model *assert_opens(model m, base_buf *keep)
{
    fe_model *out = NULL;
    rtx_err err = {0};
    *keep = finish(&m);
    if (open_model(keep, &out, &err) != RTX_OK)
        fail_msg("%s", err.text);
    assert_int_equal(ir_verify(fe_graph(out), &err), RTX_OK);
    return out;
}

static void assert_shape(const fe_model *m, const char *want)
{
    const ir_graph *g = fe_graph(m);
    base_buf b = fe_message();
    ir_type_print(g->dims, ir_type_of(g, g->outputs[0].id), &b);
    assert_string_equal(b.data, want);
    base_buf_done(&b);
}

/* ---- what it makes ---- */

static void test_symbols(void **state)
{
    (void)state;
    model m = begin(17);
    base_buf b;
    input(&m, "x", DIMS(0, 4));
    node(&m, "Relu", "x", "y");
    output(&m, "y", DIMS(0, 4));
    fe_model *out = assert_opens(m, &b);
    assert_shape(out, "f32[s0,4]");
    fe_close(out);
    base_buf_done(&b);
}

/* Reshape by [Shape(x)[0], -1], the shape computed in the model; ConstantOfShape and Range of a free size. */
static void test_shape_arithmetic(void **state)
{
    (void)state;
    model m = begin(17);
    base_buf b;
    input(&m, "x", DIMS(0, 4, 6));
    ints(&m, "zero", DIMS(0), 1);
    ints(&m, "minus", DIMS(-1), 1);
    node(&m, "Shape", "x", "shape");
    node(&m, "Gather", "shape zero", "rows");
    base_buf c = fe_message();
    fe_put_text(&c, 1, "rows");
    fe_put_text(&c, 1, "minus");
    fe_put_text(&c, 2, "target");
    fe_put_text(&c, 4, "Concat");
    fe_put_attr_i(&c, "axis", 0);
    fe_put_message(&m.graph, 1, &c);
    node(&m, "Reshape", "x target", "y");
    output(&m, "y", DIMS(0, 24));
    fe_model *out = assert_opens(m, &b);
    assert_shape(out, "f32[s0,24]");
    fe_close(out);
    base_buf_done(&b);
}

/* A size that meets a constant becomes it, in the inputs too: the model is read again. */
static void test_learned_constant(void **state)
{
    (void)state;
    model m = begin(17);
    base_buf b;
    input(&m, "x", DIMS(0, 0));
    input(&m, "w", DIMS(314, 5));
    node(&m, "MatMul", "x w", "y");
    output(&m, "y", DIMS(0, 5));
    fe_model *out = assert_opens(m, &b);
    const ir_graph *g = fe_graph(out);
    assert_true(fmt_dim_is(g->dims, ir_type_of(g, g->inputs[0].id)->dim[1], 314));
    fe_close(out);
    base_buf_done(&b);
}

/* table[0:s1] + x[s0,s1] proves s1 <= 8. */
static void test_learned_bound(void **state)
{
    (void)state;
    model m = begin(17);
    base_buf b;
    const int64_t one[] = {1};
    input(&m, "x", DIMS(0, 0));
    input(&m, "table", DIMS(8));
    ints(&m, "zero", DIMS(0), 1);
    ints(&m, "one", one, 1, 1);
    node(&m, "Shape", "x", "shape");
    node(&m, "Gather", "shape one", "end");
    node(&m, "Slice", "table zero end", "part");
    node(&m, "Add", "x part", "y");
    output(&m, "y", DIMS(0, 0));
    fe_model *out = assert_opens(m, &b);
    assert_int_equal(fmt_sym_get(fe_dims(out), fmt_sym_find(fe_dims(out), "s1", 2))->hi, 8);
    fe_close(out);
    base_buf_done(&b);
}

/* Nodes out of order are sorted. */
static void test_order(void **state)
{
    (void)state;
    model m = begin(17);
    base_buf b;
    input(&m, "x", DIMS(0, 4));
    node(&m, "Exp", "c", "y");
    node(&m, "Neg", "a", "c");
    node(&m, "Abs", "x", "a");
    output(&m, "y", DIMS(0, 4));
    fe_model *out = assert_opens(m, &b);
    assert_int_equal(ir_op_of(fe_graph(out), fe_graph(out)->outputs[0].id), IR_exp);
    fe_close(out);
    base_buf_done(&b);
}

static void test_bind(void **state)
{
    (void)state;
    model m = begin(17);
    input(&m, "x", DIMS(0, 4));
    port(&m, 11, "shape", 7, DIMS(2));
    node(&m, "Reshape", "x shape", "y");
    output(&m, "y", DIMS(2, 6));
    base_buf b = finish(&m);
    fe_model *out = NULL;
    rtx_err err = {0};
    assert_int_equal(open_model(&b, &out, &err), RTX_UNSUPPORTED);
    assert_non_null(strstr(err.text, "bind=shape"));
    base_free(fe_take_report());
    const int64_t shape[] = {2, 6};
    fe_bind bind = {.name = "shape", .data = shape, .dtype = FMT_I64, .rank = 1, .dim = {2}};
    assert_int_equal(fe_open_bytes(b.data, b.len, NULL, &(fe_options){&bind, 1}, &out, &err),
                     RTX_OK);
    assert_int_equal(fe_graph(out)->n_inputs, 1);
    assert_shape(out, "f32[2,6]");
    fe_close(out);
    bind.name = "nope";
    assert_int_equal(fe_open_bytes(b.data, b.len, NULL, &(fe_options){&bind, 1}, &out, &err),
                     RTX_INVALID);
    assert_non_null(strstr(err.text, "binds names 'nope', which is no input of the model"));
    base_buf_done(&b);
    assert_int_equal(fe_open("zoo:mlp", &(fe_options){&bind, 1}, &out, &err), RTX_UNSUPPORTED);
    assert_non_null(strstr(err.text, "binds of zoo:mlp"));
}

/* ---- refusals ---- */

static model base_model(int64_t opset)
{
    model m = begin(opset);
    input(&m, "x", DIMS(0, 4));
    return m;
}

static void test_refusals(void **state)
{
    (void)state;
    model m = base_model(17);
    node(&m, "NoSuchOp", "x", "a");
    node(&m, "Another", "a", "b");
    node(&m, "Exp", "b", "y");
    output(&m, "y", DIMS(0, 4));
    assert_refused(m, RTX_UNSUPPORTED,
                   "UNSUPPORTED: NoSuchOp, opset 17|(node 'a')|UNSUPPORTED: Another");

    m = base_model(9999);
    node(&m, "Exp", "x", "y");
    output(&m, "y", DIMS(0, 4));
    assert_refused(m, RTX_UNSUPPORTED, "9999");

    m = base_model(17);
    node(&m, "Exp", "b", "a");
    node(&m, "Neg", "a", "b");
    output(&m, "b", DIMS(0, 4));
    assert_refused(m, RTX_INVALID, "cycle");

    m = base_model(17);
    node(&m, "Exp", "nothing", "y");
    output(&m, "y", DIMS(0, 4));
    assert_refused(m, RTX_INVALID, "'nothing'|'y'");

    m = base_model(17);
    node(&m, "Exp", "x", "y");
    node(&m, "Neg", "x", "y");
    output(&m, "y", DIMS(0, 4));
    assert_refused(m, RTX_INVALID, "'y'|once");

    m = base_model(17);
    node(&m, "Exp", "x", "y");
    output(&m, "y", DIMS(0, 5));
    assert_refused(m, RTX_INVALID, "'y'|5|4");

    m = base_model(17);
    node(&m, "Exp", "x", "y");
    output(&m, "z", DIMS(0, 4));
    assert_refused(m, RTX_INVALID, "'z'");

    m = base_model(17);
    port(&m, 11, "s", 8, DIMS(0));
    node(&m, "Add", "x s", "y");
    output(&m, "y", DIMS(0, 4));
    assert_refused(m, RTX_UNSUPPORTED, "'s'|string");

    m = base_model(17);
    ints(&m, "w", DIMS(1, 2, 3), 3);
    node(&m, "Identity", "w", "y");
    port(&m, 12, "y", 7, DIMS(3));
    base_buf keep;
    fe_close(assert_opens(m, &keep));
    base_buf_done(&keep);

    m = base_model(17);
    ints(&m, "w", (const int64_t[]){1, 2, 3}, 3, 5);
    node(&m, "Identity", "w", "y");
    port(&m, 12, "y", 7, DIMS(5));
    assert_refused(m, RTX_CORRUPT, "'w'|40 bytes|24");

    m = base_model(17);
    ints(&m, "w", (const int64_t[]){1}, 1, -7);
    node(&m, "Identity", "w", "y");
    port(&m, 12, "y", 7, DIMS(5));
    assert_refused(m, RTX_CORRUPT, "'w'|-7");
}

/* External data: only plain files below the model's folder. */
static model external_model(const char *location)
{
    model m = begin(17);
    base_buf t = fe_message(), kv = fe_message();
    fe_put_int(&t, 1, 2);
    fe_put_int(&t, 2, 7);
    fe_put_text(&t, 8, "w");
    fe_put_text(&kv, 1, "location");
    fe_put_text(&kv, 2, location);
    fe_put_message(&t, 13, &kv);
    fe_put_int(&t, 14, 1);
    fe_put_message(&m.graph, 5, &t);
    node(&m, "Identity", "w", "y");
    port(&m, 12, "y", 7, DIMS(2));
    return m;
}

static rtx_status open_external(const char *folder, const char *location)
{
    model m = external_model(location);
    base_buf b = finish(&m);
    fe_model *out = NULL;
    rtx_status st = fe_open_bytes(b.data, b.len, folder, NULL, &out, NULL);
    fe_close(out);
    base_buf_done(&b);
    return st;
}

static void test_external(void **state)
{
    (void)state;
    char folder[] = "/tmp/rtx-test-ext-XXXXXX", path[96], link_path[96];
    const int64_t data[2] = {1, 2};
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/w.bin", folder);
    FILE *f = fopen(path, "wb");
    assert_int_equal(fwrite(data, 1, 16, f), 16);
    fclose(f);
    snprintf(link_path, sizeof link_path, "%s/link", folder);
    assert_int_equal(symlink("w.bin", link_path), 0);
    assert_int_equal(open_external(folder, "w.bin"), RTX_OK);
    assert_int_equal(open_external(folder, "././w.bin"), RTX_OK);
    const char *const bad[] = {"link",   "/etc/passwd", "../w.bin", "./../w.bin", "a/../w.bin",
                               "w.bin/", "w.bin/.",     "",         "none",       "//w.bin",
                               "./link", ".",           "./",       "./."};
    for (size_t i = 0; i < COUNT_OF(bad); i++)
        assert_int_not_equal(open_external(folder, bad[i]), RTX_OK);
    assert_int_equal(open_external(NULL, "w.bin"), RTX_INVALID);
    assert_int_equal(truncate(path, 15), 0);
    assert_int_equal(open_external(folder, "w.bin"), RTX_CORRUPT);
    unlink(link_path);
    unlink(path);
    rmdir(folder);
}

/* ---- hostile bytes ---- */

static base_buf zoo_bytes(const char *spec)
{
    fe_model *m = NULL;
    base_buf b = fe_message();
    assert_int_equal(fe_open(spec, NULL, &m, NULL), RTX_OK);
    assert_int_equal(fe_onnx_write(fe_graph(m), "g", &b, NULL), RTX_OK);
    fe_close(m);
    return b;
}

static void try_bytes(const void *p, size_t n)
{
    fe_model *m = NULL;
    (void)!fe_open_bytes(p, n, NULL, NULL, &m, NULL);
    fe_close(m);
    base_free(fe_take_report());
}

/* A copy of exactly n bytes, so that sanitizers see a read past the end. */
static void test_truncation_and_flips(void **state)
{
    (void)state;
    base_buf b = zoo_bytes("zoo:gpt-block,hidden=2,heads=1,ffn=1");
    for (size_t n = 0; n < b.len; n++) {
        void *copy = base_alloc(BASE_TAG_CLI, n);
        memcpy(copy, b.data, n);
        try_bytes(copy, n);
        base_free(copy);
    }
    for (size_t i = 0; i < b.len; i++)
        for (int bit = 0; bit < 8; bit += 3) {
            b.data[i] ^= (char)(1 << bit);
            try_bytes(b.data, b.len);
            b.data[i] ^= (char)(1 << bit);
        }
    base_buf_done(&b);
}

/* `unit` repeated to about 4 MB, as the content of field `wrap` of the model (0: at the top). */
static void bomb(const char *unit, size_t unit_bytes, uint32_t wrap, size_t max_peak)
{
    base_buf all = fe_message(), inner = fe_message(), o = fe_message();
    for (size_t i = 0; i < ((size_t)4 << 20) / unit_bytes; i++)
        base_buf_put(&inner, unit, unit_bytes);
    fe_put_int(&o, 2, 17);
    fe_put_message(&all, 8, &o);
    if (wrap) {
        fe_put_message(&all, wrap, &inner);
    } else {
        base_buf_put(&all, inner.data, inner.len);
        base_buf_done(&inner);
    }
    size_t before = base_alloc_live_bytes(BASE_TAG_FRONTEND);
    fe_model *m = NULL;
    uint64_t start = base_now_ns();
    rtx_status st = fe_open_bytes(all.data, all.len, NULL, NULL, &m, NULL);
    assert_int_not_equal(st, RTX_OK);
    assert_true(base_now_ns() - start < UINT64_C(10000000000));
    assert_true(base_alloc_peak_bytes(BASE_TAG_FRONTEND) - before < max_peak);
    base_buf_done(&all);
}

static void test_bombs(void **state)
{
    (void)state;
    size_t mb = (size_t)1 << 20;
    bomb("\x3a\x00", 2, 0, 64 * mb);           /* the graph again and again */
    bomb("\x0a\x00", 2, 7, 64 * mb);           /* empty nodes */
    bomb("\x2a\x00", 2, 7, 64 * mb);           /* empty initializers */
    bomb("\x5a\x00", 2, 7, 64 * mb);           /* empty inputs */
    bomb("\xca\x01\x00", 3, 0, 400 * mb);      /* empty functions */
    bomb("\x42\x00", 2, 0, 64 * mb);           /* empty opsets */
    bomb("\x0a\x03\x22\x01X", 5, 7, 400 * mb); /* nodes without inputs or outputs */
    /* one node: inputs, outputs, attributes without end */
    base_buf node_bomb = fe_message(), unit = fe_message();
    for (int i = 0; i < 1 << 20; i++)
        fe_put_text(&unit, 5, "");
    fe_put_text(&unit, 4, "Exp");
    fe_put_message(&node_bomb, 1, &unit);
    bomb(node_bomb.data, node_bomb.len, 7, 200 * mb);
    base_buf_done(&node_bomb);
}

/* Attributes that hold graphs that hold nodes with attributes …, 100,000 deep. */
static void test_nesting(void **state)
{
    (void)state;
    enum { DEPTH = 100000 };
    size_t cap = (size_t)DEPTH * 30, at = cap;
    char *buf = base_alloc(BASE_TAG_CLI, cap), head[16];
    for (int i = 0; i < DEPTH; i++) {
        static const char tags[] = {0x0a, 0x2a, 0x32}; /* graph.node, node.attribute, attribute.g */
        base_buf h = fe_message();
        fe_put_bytes(&h, (uint32_t)(uint8_t)tags[i % 3] >> 3, "", 0);
        base_buf_done(&h);
        uint64_t len = cap - at;
        size_t n = 0;
        head[n++] = tags[i % 3];
        for (; len >= 0x80; len >>= 7)
            head[n++] = (char)(len | 0x80);
        head[n++] = (char)len;
        at -= n;
        memcpy(buf + at, head, n);
    }
    bomb(buf + at, cap - at, 7, (size_t)64 << 20);
    base_free(buf);
}

/* Functions that call functions twice each: 2^30 nodes from a small file. */
static void test_function_bomb(void **state)
{
    (void)state;
    model m = begin(17);
    for (int i = 0; i < 30; i++) {
        base_buf f = fe_message();
        char name[16], callee[16];
        snprintf(name, sizeof name, "f%d", i);
        snprintf(callee, sizeof callee, "f%d", i + 1);
        fe_put_text(&f, 1, name);
        fe_put_text(&f, 4, "x");
        fe_put_text(&f, 5, "y");
        for (int k = 0; k < 2; k++) {
            base_buf n = fe_message();
            fe_put_text(&n, 1, k ? "t" : "x");
            fe_put_text(&n, 2, k ? "y" : "t");
            fe_put_text(&n, 4, i == 29 ? "Exp" : callee);
            fe_put_message(&f, 7, &n);
        }
        fe_put_message(&m.rest, 25, &f);
    }
    input(&m, "x", DIMS(0, 4));
    node(&m, "f0", "x", "y");
    output(&m, "y", DIMS(0, 4));
    assert_refused(m, RTX_LIMIT, "nodes");

    m = begin(17);
    base_buf f = fe_message(), n = fe_message();
    fe_put_text(&f, 1, "f");
    fe_put_text(&f, 4, "x");
    fe_put_text(&f, 5, "y");
    fe_put_text(&n, 1, "x");
    fe_put_text(&n, 2, "y");
    fe_put_text(&n, 4, "f");
    fe_put_message(&f, 7, &n);
    fe_put_message(&m.rest, 25, &f);
    input(&m, "x", DIMS(0, 4));
    node(&m, "f", "x", "y");
    output(&m, "y", DIMS(0, 4));
    assert_refused(m, RTX_INVALID, "'f' calls itself");
}

/* Each allocation of an import fails once: the answer is NOMEM, and nothing stays. */
static void test_allocation_failures(void **state)
{
    (void)state;
    base_buf b = zoo_bytes("zoo:llama-block,hidden=4,heads=2,kv-heads=1,ffn=2,positions=4");
    size_t live[2] = {base_alloc_live_bytes(BASE_TAG_FRONTEND), base_alloc_live_bytes(BASE_TAG_IR)};
    for (int64_t i = 0;; i++) {
        fe_model *m = NULL;
        rtx_err err = {0};
        base_alloc_fail_at(i);
        rtx_status st = open_model(&b, &m, &err);
        base_alloc_fail_at(-1);
        fe_close(m);
        if (st == RTX_OK)
            break;
        if (st != RTX_NOMEM)
            fail_msg("allocation %lld: %s: %s", (long long)i, rtx_status_name(st), err.text);
        assert_int_equal(base_alloc_live_bytes(BASE_TAG_FRONTEND), live[0]);
        assert_int_equal(base_alloc_live_bytes(BASE_TAG_IR), live[1]);
    }
    base_buf_done(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_symbols),
                                       cmocka_unit_test(test_shape_arithmetic),
                                       cmocka_unit_test(test_learned_constant),
                                       cmocka_unit_test(test_learned_bound),
                                       cmocka_unit_test(test_order),
                                       cmocka_unit_test(test_bind),
                                       cmocka_unit_test(test_refusals),
                                       cmocka_unit_test(test_external),
                                       cmocka_unit_test(test_truncation_and_flips),
                                       cmocka_unit_test(test_bombs),
                                       cmocka_unit_test(test_nesting),
                                       cmocka_unit_test(test_function_bomb),
                                       cmocka_unit_test(test_allocation_failures)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
