/* Whole models: the zoo and, where RTX_TEST_MINILM names a folder with its four exports, MiniLM. Each must reach its raised
 * operations with no part left, and keep its values. tests/conform/test_minilm.py sets it, and compares the exports' graphs. */
#include "fe.h"
#include "pass_fixture.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>

typedef struct want {
    ir_op op;
    int count;
} want;

static ir_graph *all_passes(const ir_graph *g)
{
    ir_graph *raised = fx_raise(g), *r = fx_pass(raised, "layout");
    ir_graph_free(raised);
    return r;
}

static void check_counts(const char *name, const ir_graph *g, const want *w)
{
    static const ir_op gone[] = {IR_softmax, IR_erf,  IR_tanh,     IR_exp,
                                 IR_sigmoid, IR_sqrt, IR_rsqrt,    IR_reduce_mean,
                                 IR_isnan,   IR_iota, IR_gather_nd};
    for (; w->op; w++)
        if (fx_count(g, w->op) != w->count)
            fail_msg("%s: %d %s, want %d", name, fx_count(g, w->op), ir_op_get(w->op)->name,
                     w->count);
    for (size_t i = 0; i < COUNT_OF(gone); i++)
        if (fx_count(g, gone[i]))
            fail_msg("%s: %s is left", name, ir_op_get(gone[i])->name);
}

static void test_zoo(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        want want[6];
    } table[] = {
        {"zoo:llama-block,hidden=32",
         {{IR_attention, 1}, {IR_rmsnorm, 2}, {IR_rope, 2}, {IR_swiglu, 1}, {IR_dot, 4}}},
        {"zoo:gpt-block,hidden=32",
         {{IR_attention, 1}, {IR_layernorm, 2}, {IR_gelu_tanh, 1}, {IR_dot, 4}}},
        {"zoo:gpt-block,hidden=32,tanh=0",
         {{IR_attention, 1}, {IR_layernorm, 2}, {IR_gelu, 1}, {IR_dot, 4}}},
        {"zoo:encoder,hidden=32",
         {{IR_attention, 4}, {IR_layernorm, 8}, {IR_gelu, 4}, {IR_dot, 16}}},
        {"zoo:vit,hidden=32,patch=24",
         {{IR_attention, 4}, {IR_layernorm, 9}, {IR_gelu, 4}, {IR_dot, 17}}},
    };
    for (size_t k = 0; k < COUNT_OF(table); k++) {
        fe_model *m = NULL;
        rtx_err err = {0};
        if (fe_open(table[k].name, NULL, &m, &err) != RTX_OK)
            fail_msg("%s: %s", table[k].name, err.text);
        fx f = {.dims = fe_dims(m), .seed = 5};
        ir_graph *r = all_passes(fe_graph(m));
        check_counts(table[k].name, r, table[k].want);
        double d = fx_difference(&f, fe_graph(m), r);
        printf("%-32s difference %.1e\n", table[k].name, d);
        assert_true(d <= 1e-6);
        ir_graph_free(r);
        fe_close(m);
    }
}

static void test_minilm(void **state)
{
    (void)state;
    static const char *const exports[] = {"eager-legacy", "sdpa-legacy", "eager-dynamo",
                                          "sdpa-dynamo"};
    static const want wants[] = {{IR_attention, 6}, {IR_layernorm, 13}, {IR_gelu, 6},
                                 {IR_dot, 24},      {IR_gather, 2},     {0}};
    const char *folder = getenv("RTX_TEST_MINILM");
    if (!folder) {
        print_message("skipped: needs the exports in RTX_TEST_MINILM; tests/conform/test_minilm.py "
                      "makes them and runs this\n");
        skip();
    }
    for (size_t k = 0; k < COUNT_OF(exports); k++) {
        char path[1024];
        fe_model *m = NULL;
        rtx_err err = {0};
        snprintf(path, sizeof path, "%s/minilm-%s.onnx", folder, exports[k]);
        if (fe_open(path, NULL, &m, &err) != RTX_OK)
            fail_msg("%s: %s", path, err.text);
        fx f = {.dims = fe_dims(m), .seed = 5};
        ir_graph *r = all_passes(fe_graph(m));
        check_counts(exports[k], r, wants);
        for (ir_id id = 1; id < r->n_nodes; id++) {
            if (ir_op_of(r, id) != IR_attention)
                continue;
            assert_int_equal(ir_node_get(r, id)->n_in, 4); /* the mask is [B,1,1,S], spread */
            const ir_type *mask = ir_type_of(r, ir_in(r, ir_in(r, id, 3), 0));
            assert_true(mask->rank == 4 && fmt_dim_is(f.dims, mask->dim[1], 1) &&
                        fmt_dim_is(f.dims, mask->dim[2], 1));
        }
        double d = fx_difference(&f, fe_graph(m), r); /* 2 x 3 tokens, about half of them padding */
        printf("%-32s difference %.1e\n", exports[k], d);
        assert_true(d <= 1e-6);
        ir_graph_free(r);
        fe_close(m);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_zoo), cmocka_unit_test(test_minilm)};
    return cmocka_run_group_tests_name("pass_models", tests, NULL, NULL);
}
