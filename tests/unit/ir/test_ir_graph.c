/* Builder, shape rules, interning, rewriting, verifier, evaluator errors and memory. Numbers: tests/conform/test_eval.py. */
#include "ir.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>

typedef struct fixture {
    fmt_dims *dims;
    ir_graph *g;
    rtx_err err;
} fixture;

static int setup(void **state)
{
    static fixture f;
    f = (fixture){.dims = fmt_dims_new()};
    f.g = ir_graph_new(f.dims);
    *state = &f;
    return 0;
}

static int teardown(void **state)
{
    fixture *f = *state;
    ir_graph_free(f->g);
    fmt_dims_free(f->dims);
    assert_int_equal(base_alloc_live_bytes(BASE_TAG_IR), 0);
    assert_int_equal(base_alloc_live_bytes(BASE_TAG_FORMAT), 0);
    return 0;
}

/* "f32[b,4]" */
static ir_type type_of(fixture *f, const char *text)
{
    const char *at = strchr(text, '[');
    ir_type t = {.dtype = fmt_dtype_parse(text, (size_t)(at - text))};
    for (at++; *at && *at != ']'; t.rank++) {
        size_t n = strcspn(at, ",]");
        t.dim[t.rank] = fmt_dim_parse(f->dims, at, n);
        at += n + (at[n] == ',');
    }
    return t;
}

static ir_id input(fixture *f, const char *name, const char *type)
{
    ir_type t = type_of(f, type);
    return ir_input(f->g, name, &t);
}

static void assert_type(fixture *f, ir_id id, const char *want)
{
    AUTO_BUF base_buf b;
    base_buf_init(&b, BASE_TAG_IR, 1000);
    if (ir_ok(f->g, &f->err) != RTX_OK)
        fail_msg("%s", f->err.text);
    ir_type_print(f->dims, ir_type_of(f->g, id), &b);
    assert_string_equal(b.data, want);
}

static void assert_fails(fixture *f, rtx_status code, const char *part)
{
    assert_int_equal(ir_ok(f->g, &f->err), code);
    if (!strstr(f->err.text, part))
        fail_msg("'%s' is not in '%s'", part, f->err.text);
    f->g->err.code = RTX_OK; /* go on with the next case */
}

#define EMIT(f, op, attrs, ...)                                                                    \
    ir_emit((f)->g, IR_##op, (const ir_id[]){__VA_ARGS__},                                         \
            sizeof((const ir_id[]){__VA_ARGS__}) / sizeof(ir_id), (attrs))

static void test_interning(void **state)
{
    fixture *f = *state;
    ir_id x = input(f, "x", "f32[b,4]"), y = input(f, "y", "f32[b,4]");
    assert_int_not_equal(x, y);
    assert_int_equal(ir_emit2(f->g, IR_add, x, y), ir_emit2(f->g, IR_add, x, y));
    assert_int_not_equal(ir_emit2(f->g, IR_add, x, y), ir_emit2(f->g, IR_add, y, x));
    assert_int_equal(ir_scalar(f->g, FMT_F32, 2), ir_scalar(f->g, FMT_F32, 2));
    assert_int_not_equal(ir_scalar(f->g, FMT_F32, 0.0), ir_scalar(f->g, FMT_F32, -0.0));
    assert_int_not_equal(ir_scalar(f->g, FMT_F32, 0), ir_scalar(f->g, FMT_I32, 0));
    static const float big[2][2000];
    ir_type t = type_of(f, "f32[2000]");
    ir_id a = ir_const_borrow(f->g, &t, big[0], sizeof big[0]),
          b = ir_const_borrow(f->g, &t, big[1], sizeof big[1]);
    assert_int_not_equal(a, b); /* large: by address */
    assert_int_equal(a, ir_const_borrow(f->g, &t, big[0], sizeof big[0]));
    ir_id last = EMIT(f, reduce_sum, (&(ir_attrs){.n_list = 1, .list = {-1}}), x);
    assert_int_equal(last,
                     EMIT(f, reduce_sum, (&(ir_attrs){.n_list = 1, .list = {1}, .i = {77}}), x));
    assert_int_equal(ir_ok(f->g, NULL), RTX_OK);
    assert_int_equal(ir_verify(f->g, NULL), RTX_OK);
}

static void test_shorthands(void **state)
{
    fixture *f = *state;
    ir_graph *g = f->g;
    ir_id x = input(f, "x", "f32[b,4,6]"), row = input(f, "row", "f32[6]");
    fmt_dim b = ir_type_of(g, x)->dim[0], c4 = fmt_dim_const(f->dims, 4),
            c6 = fmt_dim_const(f->dims, 6);
    fmt_dim zero = fmt_dim_const(f->dims, 0);
    assert_int_equal(ir_reshape(g, x, (fmt_dim[]){b, c4, c6}, 3), x);
    assert_int_equal(ir_broadcast(g, x, (fmt_dim[]){b, c4, c6}, 3), x);
    assert_int_equal(ir_permute(g, x, (int64_t[]){0, -2, 2}), x);
    assert_int_equal(
        ir_slice(g, x, (fmt_dim[]){zero, zero, zero}, (fmt_dim[]){b, c4, c6}, (int64_t[]){1, 1, 1}),
        x);
    assert_int_equal(ir_cast(g, x, FMT_F32), x);
    assert_int_equal(ir_reduce(g, IR_reduce_sum, x, NULL, 0, true), x);
    assert_type(f, ir_reshape(g, x, (fmt_dim[]){fmt_dim_mul(f->dims, c4, b), c6}, 2), "f32[b*4,6]");
    assert_type(f, ir_permute(g, x, (int64_t[]){2, 0, 1}), "f32[6,b,4]");
    assert_type(f, ir_reduce(g, IR_reduce_max, x, (int64_t[]){-1, 0}, 2, true), "f32[1,4,1]");
    assert_type(f, ir_reduce(g, IR_reduce_max, x, (int64_t[]){-1, 0}, 2, false), "f32[4]");
    assert_type(f, ir_ew(g, IR_add, (ir_id[]){row, x}, 2), "f32[b,4,6]");
    assert_type(f, ir_dimvals(g, (fmt_dim[]){b}, 1, true), "i64[]");
    double v = 0;
    ir_id splat =
        ir_cast(g, ir_broadcast(g, ir_scalar(g, FMT_F32, 2.5), (fmt_dim[]){b, c4}, 2), FMT_I32);
    assert_true(ir_is_splat(g, splat, &v));
    assert_true(v == 2);
    assert_false(ir_is_splat(g, x, &v));
    assert_int_equal(ir_verify(g, NULL), RTX_OK);
}

static void test_binding(void **state)
{
    fixture *f = *state;
    ir_id x = input(f, "x", "f32[b,s]"), y = input(f, "y", "f32[c,12]");
    ir_id sum = ir_emit2(f->g, IR_add, x, y);
    assert_type(f, sum, "f32[b,12]"); /* the symbol that came later goes */
    assert_int_equal(fmt_dims_bound(f->dims), 2);
    assert_int_equal(ir_verify(f->g, &f->err), RTX_OK);
    ir_output(f->g, "sum", sum);
    int64_t values[3];
    ir_tensor in[2] = {{.dtype = FMT_F32, .rank = 2, .dim = {5, 12}},
                       {.dtype = FMT_F32, .rank = 2, .dim = {5, 12}}};
    assert_int_equal(ir_bind(f->g, in, values, &f->err), RTX_OK);
    assert_int_equal(values[0], 5);
    in[1].dim[0] = 6;
    assert_int_equal(ir_bind(f->g, in, values, &f->err), RTX_INVALID);
    assert_non_null(strstr(f->err.text, "input 'y': axis 0 has size 6"));
    in[1].dim[0] = 5;
    in[0].dim[1] = 13;
    assert_int_equal(ir_bind(f->g, in, values, &f->err), RTX_INVALID);
    in[0].dim[1] = 12;
    in[0].dtype = FMT_I64;
    assert_int_equal(ir_bind(f->g, in, values, &f->err), RTX_INVALID);
}

static void test_refusals(void **state)
{
    fixture *f = *state;
    ir_id x = input(f, "x", "f32[2,3]"), y = input(f, "y", "f32[4]"), i = input(f, "i", "i64[2,3]");
    ir_id h = input(f, "h", "f16[2,3]"), b = input(f, "b", "bool[2,3]");
    f->g->current_name = "layer/node";
    ir_emit2(f->g, IR_add, x, y);
    assert_fails(f, RTX_INVALID, "add 'layer/node': shapes differ; inputs f32[2,3], f32[4]");
    ir_ew(f->g, IR_add, (ir_id[]){x, y}, 2);
    assert_fails(f, RTX_INVALID, "f32[2,3] and f32[4] do not broadcast");
    ir_emit2(f->g, IR_add, x, i);
    assert_fails(f, RTX_INVALID, "dtypes differ");
    ir_emit2(f->g, IR_add, h, h);
    assert_fails(f, RTX_UNSUPPORTED, "dtype f16");
    ir_emit2(f->g, IR_add, b, b);
    assert_fails(f, RTX_INVALID, "not defined for bool");
    ir_emit1(f->g, IR_exp, i);
    assert_fails(f, RTX_INVALID, "needs a float, not i64");
    ir_emit2(f->g, IR_mod, x, x);
    assert_fails(f, RTX_INVALID, "not defined for f32");
    ir_emit1(f->g, IR_add, x);
    assert_fails(f, RTX_INVALID, "1 inputs, needs 2 to 2");
    ir_emit2(f->g, IR_add, x, 999);
    assert_fails(f, RTX_INVALID, "input 1 is not a node");
    ir_emit2(f->g, IR_dot, x, x);
    assert_fails(f, RTX_INVALID, "inner sizes differ");
    ir_permute(f->g, x, (int64_t[]){1, 1});
    assert_fails(f, RTX_INVALID, "names an axis twice");
    ir_reduce(f->g, IR_reduce_sum, x, (int64_t[]){2}, 1, false);
    assert_fails(f, RTX_INVALID, "axis 2 is not in [-2, 2)");
    ir_reshape(f->g, x, (fmt_dim[]){fmt_dim_const(f->dims, 7)}, 1);
    assert_fails(f, RTX_INVALID, "to f32[7] changes the number of elements");
    input(f, "x", "f32[1]");
    assert_fails(f, RTX_INVALID, "two inputs named 'x'");
    input(f, "u8", "u8[1]");
    assert_fails(f, RTX_UNSUPPORTED, "dtype u8");
    ir_const_borrow(f->g, ir_type_of(f->g, x), NULL, 0);
    assert_fails(f, RTX_INVALID, "0 bytes for 6 elements");
    EMIT(f, slice,
         (&(ir_attrs){.n_dims = 2,
                      .n_sizes = 2,
                      .n_list = 2,
                      .list = {1, -1},
                      .dims = {fmt_dim_const(f->dims, 0), fmt_dim_const(f->dims, 1)},
                      .sizes = {fmt_dim_const(f->dims, 2), fmt_dim_const(f->dims, 3)}}),
         x);
    assert_fails(f, RTX_INVALID, "reaches outside axis 1");
    ir_id big = input(f, "big", "f32[1000000000000,1000000000000]");
    assert_int_equal(big, 0);
    assert_fails(f, RTX_LIMIT, "elements");
    assert_int_equal(ir_bad(f->g, RTX_COMPILE, "first %d", 1), 0);
    ir_bad(f->g, RTX_IO, "second");
    assert_int_equal(ir_emit1(f->g, IR_neg, x), 0);
    assert_fails(f, RTX_COMPILE, "first 1");
}

/* ---- verifier ---- */

static void test_verifier(void **state)
{
    fixture *f = *state;
    ir_graph *g = f->g;
    ir_id x = input(f, "x", "f32[b,4]"), c = ir_scalar(g, FMT_F32, 3),
          y = ir_ew(g, IR_mul, (ir_id[]){x, c}, 2);
    ir_id z = ir_reduce(g, IR_reduce_sum, y, (int64_t[]){1}, 1, false);
    ir_output(g, "z", z);
    assert_int_equal(ir_verify(g, &f->err), RTX_OK);
#define BROKEN(place, wrong)                                                                       \
    do {                                                                                           \
        __typeof__(place) old_ = (place);                                                          \
        (place) = (wrong);                                                                         \
        assert_int_not_equal(ir_verify(g, &f->err), RTX_OK);                                       \
        (place) = old_;                                                                            \
        assert_int_equal(ir_verify(g, &f->err), RTX_OK);                                           \
    } while (0)
    BROKEN(g->nodes[y].type.dtype, FMT_I64);
    BROKEN(g->nodes[y].type.rank, 1);
    BROKEN(g->nodes[y].type.residency, IR_DEVICE);
    BROKEN(g->nodes[x].type.residency, IR_PINNED);
    BROKEN(g->nodes[y].type.dim[0], fmt_dim_const(f->dims, 9));
    BROKEN(g->nodes[y].op, IR_exp);
    BROKEN(g->nodes[y].op, 999);
    BROKEN(g->nodes[y].op, IR_input);
    BROKEN(g->nodes[y].n_in, 1);
    BROKEN(g->nodes[y].n_in, 60000);
    BROKEN(g->nodes[y].in, UINT32_MAX);
    BROKEN(g->refs[g->nodes[y].in], y);
    BROKEN(g->refs[g->nodes[y].in], z);
    BROKEN(g->refs[g->nodes[y].in], 0);
    BROKEN(g->nodes[z].attr, g->n_attrs);
    BROKEN(g->nodes[z].name, g->n_names);
    BROKEN(g->attrs[g->nodes[z].attr].list[0], -1);
    BROKEN(g->attrs[g->nodes[z].attr].list[0], 5);
    BROKEN(g->consts[g->nodes[c].data].bytes, 8);
    BROKEN(g->nodes[c].data, g->n_consts);
    BROKEN(g->outputs[0].id, g->n_nodes);
    BROKEN(g->inputs[0].id, y);
    BROKEN(g->n_inputs, 0);
}

/* ---- rewriting ---- */

static ir_id neg_is_abs(void *ctx, const ir_graph *old, ir_id id, ir_graph *g, const ir_id *in)
{
    ++*(int *)ctx;
    return ir_op_of(old, id) == IR_neg ? ir_emit1(g, IR_abs, in[0]) : ir_copy_node(g, old, id, in);
}

static ir_id refuse(void *ctx, const ir_graph *old, ir_id id, ir_graph *g, const ir_id *in)
{
    (void)ctx, (void)old, (void)id, (void)g, (void)in;
    return 0;
}

static void test_rewrite(void **state)
{
    fixture *f = *state;
    ir_graph *g = f->g, *h;
    ir_id dead_in = input(f, "dead", "f32[3]"), x = input(f, "x", "f32[b]");
    g->current_name = "the neg";
    ir_id n = ir_emit1(g, IR_neg, x);
    g->current_name = "the abs";
    ir_id a = ir_emit1(g, IR_abs, x);
    g->current_name = NULL;
    ir_emit1(g, IR_exp, dead_in); /* dead */
    static float weights[3000];
    ir_type t = type_of(f, "f32[3000]");
    ir_id w = ir_const_copy(g, &t, weights, sizeof weights),
          v = ir_const_borrow(g, &t, weights, sizeof weights);
    ir_output(g, "sum", ir_emit2(g, IR_add, n, a));
    ir_output(g, "neg", n);
    ir_output(g, "w", w);
    ir_output(g, "v", v);
    int calls = 0;
    assert_int_equal(ir_rewrite(g, neg_is_abs, &calls, &h, &f->err), RTX_OK);
    assert_int_equal(calls, 6);
    assert_int_equal(ir_verify(h, &f->err), RTX_OK);
    assert_int_equal(h->n_inputs, 2);
    assert_string_equal(h->inputs[0].name, "dead");
    assert_string_equal(h->outputs[1].name, "neg");
    ir_id abs_id = h->outputs[1].id, sum = h->outputs[0].id;
    assert_int_equal(ir_op_of(h, abs_id), IR_abs);
    assert_string_equal(ir_name_of(h, abs_id), "the neg");
    assert_int_equal(ir_in(h, sum, 0), abs_id); /* both became one node */
    assert_int_equal(ir_in(h, sum, 1), abs_id);
    assert_int_equal(h->n_nodes, 1 + 2 + 1 + 1 + 2);
    assert_ptr_equal(ir_const_of(h, h->outputs[3].id)->data, weights);
    assert_ptr_not_equal(ir_const_of(h, h->outputs[2].id)->data,
                         ir_const_of(g, w)->data); /* owned: copied */
    uint32_t *uses = ir_use_counts(h);
    assert_int_equal(uses[abs_id], 3);
    base_free(uses);
    ir_graph_free(h);
    assert_int_equal(ir_rewrite(g, refuse, NULL, &h, &f->err), RTX_INTERNAL);
}

/* ---- evaluator: limits, visits, memory ---- */

static bool stop_at(void *ctx, ir_id id, const ir_tensor *value)
{
    (void)value;
    return id != *(ir_id *)ctx;
}

static void test_eval_limits(void **state)
{
    fixture *f = *state;
    ir_graph *g = f->g;
    ir_id x = input(f, "x", "f32[b]"), y = x;
    for (int k = 0; k < 20; k++)
        y = ir_emit1(g, k % 2 ? IR_neg : IR_exp, y);
    ir_output(g, "y", y);
    ir_output(g, "x", x);
    ir_output(g, "y again", y);
    float data[1000] = {0};
    ir_tensor in, out[3] = {0};
    assert_int_equal(ir_tensor_from(data, FMT_F32, 1, (int64_t[]){1000}, &in, &f->err), RTX_OK);
    assert_int_equal(ir_eval(g, &in, NULL, out, NULL, 16000, NULL, NULL, &f->err),
                     RTX_OK); /* two values at once, not twenty */
    assert_true(out[0].f[5] == out[2].f[5] && out[0].f != out[2].f && out[1].f[5] == 0);
    for (int k = 0; k < 3; k++)
        ir_tensor_done(&out[k]);
    assert_int_equal(ir_eval(g, &in, NULL, out, NULL, 15999, NULL, NULL, &f->err), RTX_LIMIT);
    assert_non_null(strstr(f->err.text, "cap of 15999"));
    assert_int_equal(ir_eval(g, &in, NULL, out, NULL, 0, stop_at, &(ir_id){5}, &f->err),
                     RTX_CANCELLED);
    assert_null(out[0].f);
    ir_tensor_done(&in);
}

/* Build, rewrite and evaluate a small graph; every allocation fails once. */
static rtx_status whole_job(void)
{
    fmt_dims *dims = fmt_dims_new();
    ir_graph *g = dims ? ir_graph_new(dims) : NULL, *h = NULL;
    ir_tensor in = {0}, out[2] = {0}, abs[2] = {0};
    rtx_status status = RTX_NOMEM;
    int calls = 0;
    if (g) {
        fixture f = {.dims = dims, .g = g};
        g->current_name = "node";
        ir_id x = input(&f, "x", "f32[b,3]");
        ir_id y = ir_ew(g, IR_mul, (ir_id[]){x, ir_scalar(g, FMT_F32, 3)}, 2);
        ir_output(g, "sum",
                  ir_reduce(g, IR_reduce_sum, ir_emit1(g, IR_neg, y), (int64_t[]){0}, 1, true));
        ir_output(g, "top",
                  EMIT(&f, topk,
                       (&(ir_attrs){.n_dims = 1, .dims = {fmt_dim_const(dims, 2)}, .i = {1, 1}}),
                       y));
        status = ir_ok(g, NULL);
        status = status == RTX_OK ? ir_verify(g, NULL) : status;
        status = status == RTX_OK ? ir_rewrite(g, neg_is_abs, &calls, &h, NULL) : status;
        float data[6] = {1, 2, 3, 4, 5, 6};
        status = status == RTX_OK ? ir_tensor_from(data, FMT_F32, 2, (int64_t[]){2, 3}, &in, NULL)
                                  : status;
        status = status == RTX_OK ? ir_eval(h, &in, NULL, out, abs, 0, NULL, NULL, NULL) : status;
        if (status == RTX_OK)
            assert_true(out[0].f[0] == 15 && abs[0].f[0] == 15 && out[1].i[0] == 2 && !abs[1].f);
    }
    for (int k = 0; k < 2; k++) {
        ir_tensor_done(&out[k]);
        ir_tensor_done(&abs[k]);
    }
    ir_tensor_done(&in);
    ir_graph_free(h);
    ir_graph_free(g);
    fmt_dims_free(dims);
    return status;
}

static void test_no_memory(void **state)
{
    (void)state;
    uint64_t start = base_alloc_count();
    size_t before = base_alloc_live_bytes(BASE_TAG_IR),
           before_format = base_alloc_live_bytes(BASE_TAG_FORMAT);
    assert_int_equal(whole_job(), RTX_OK);
    int64_t total = (int64_t)(base_alloc_count() - start);
    for (int64_t n = 0; n < total; n++) {
        base_alloc_fail_at(n);
        rtx_status status = whole_job();
        base_alloc_fail_at(-1);
        if (status != RTX_NOMEM)
            fail_msg("allocation %d of %d: %s", (int)n, (int)total, rtx_status_name(status));
        assert_int_equal(base_alloc_live_bytes(BASE_TAG_IR), before);
        assert_int_equal(base_alloc_live_bytes(BASE_TAG_FORMAT), before_format);
    }
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(test_interning), TEST(test_shorthands), TEST(test_binding),     TEST(test_refusals),
        TEST(test_verifier),  TEST(test_rewrite),    TEST(test_eval_limits), TEST(test_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
