/* Denied regions: they are cut at their last step of growth, exactly they, and what is left joins whom it can. */
#include "lower.h"
#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

/* dot, bias, residual, norm: the residual fits the end of the dot and the start of the norm. */
static const char model[] =
    "sym n 0..\n"
    "func @f(%0 \"x\": f32[n,4], %1 \"r\": f32[n,4]) {\n"
    "  %2 = const f32[4,4] {1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2, 3, 4, 5, 6, 7}\n"
    "  %3 = const f32[4] {1, 2, 3, 4}\n"
    "  %4 = dot %0 %2\n"
    "  %5 = broadcast %3 {dims=[n,4]}\n"
    "  %6 = add %4 %5\n"
    "  %7 = add %6 %1\n"
    "  %8 = layernorm %7 %3 %3 {eps=1e-5}\n"
    "  return %8 \"y\"\n}\n";

typedef struct bed {
    fmt_dims *dims;
    ir_graph *graph;
} bed;

static int setup(void **state)
{
    static bed b;
    b.dims = fmt_dims_new();
    *state = &b;
    return ir_parse(model, sizeof model - 1, b.dims, &b.graph, NULL) != RTX_OK;
}

static int teardown(void **state)
{
    bed *b = *state;
    ir_graph_free(b->graph);
    fmt_dims_free(b->dims);
    return 0;
}

static void lower(bed *b, const lower_deny *deny, lower_result *out)
{
    rtx_err err = {0};
    if (lower_graph_cut(b->graph, LOWER_BAKED, deny, NULL, out, &err) != RTX_OK)
        fail_msg("%s", err.text);
}

static int ops(const lower_slot *s, ir_op op)
{
    int n = 0;
    for (ir_id id = 1; id < s->problem->region->n_nodes; id++)
        n += ir_op_of(s->problem->region, id) == op;
    return n;
}

/* The slot of an anchor. */
static const lower_slot *slot_of(const lower_result *r, ir_op anchor)
{
    for (uint32_t i = 0; i < r->n_slots; i++)
        if (ops(&r->slots[i], anchor))
            return &r->slots[i];
    fail();
    return NULL;
}

static void expect(const lower_result *r, uint32_t steps, int dot_adds, int norm_adds)
{
    assert_int_equal(r->plan->n_steps, steps);
    assert_int_equal(ops(slot_of(r, IR_dot), IR_add), dot_adds);
    assert_int_equal(ops(slot_of(r, IR_layernorm), IR_add), norm_adds);
}

static void test_work_joins_the_neighbour(void **state)
{
    lower_result all, one, two, three;
    lower(*state, NULL, &all);
    expect(&all, 2, 2, 0);
    assert_non_null(slot_of(&all, IR_dot)->region);
    assert_null(slot_of(&all, IR_layernorm)->region); /* nothing is fused with it */
    lower_deny deny = {{slot_of(&all, IR_dot)->region}, 1};
    lower(*state, &deny, &one);
    expect(&one, 2, 1, 1);
    deny.text[deny.n++] = slot_of(&one, IR_layernorm)->region;
    lower(*state, &deny, &two);
    expect(&two, 3, 1, 0);
    deny.text[deny.n++] = slot_of(&one, IR_dot)->region;
    lower(*state, &deny, &three);
    expect(&three, 2, 0, 2);
    lower_result_done(&all);
    lower_result_done(&one);
    lower_result_done(&two);
    lower_result_done(&three);
}

/* What a region was on the way is not what it is. */
static void test_only_finished_regions_are_denied(void **state)
{
    lower_result all, one, same;
    lower(*state, NULL, &all);
    lower_deny deny = {{slot_of(&all, IR_dot)->region}, 1};
    lower(*state, &deny, &one);
    lower_deny on_the_way = {{slot_of(&one, IR_dot)->region}, 1};
    lower(*state, &on_the_way, &same);
    expect(&same, 2, 2, 0);
    lower_result_done(&all);
    lower_result_done(&one);
    lower_result_done(&same);
}

static void test_work_of_a_region(void **state)
{
    lower_result all;
    pass_work w, larger;
    lower(*state, NULL, &all);
    const lower_slot *s = slot_of(&all, IR_dot);
    assert_true(lower_region_work(s->problem, (int64_t[]){8}, &w));
    assert_true(w.cut_flops == 8 * 4 && w.spill_bytes == 8 * 4 * 4); /* the residual alone */
    assert_true(w.flops == 2 * 8 * 4 * 4 + 8 * 4);
    assert_true(lower_region_work(s->problem, (int64_t[]){16}, &larger));
    assert_true(larger.flops > w.flops && larger.bytes > w.bytes);
    assert_false(lower_region_work(slot_of(&all, IR_layernorm)->problem, (int64_t[]){8}, &w));
    lower_result_done(&all);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_work_joins_the_neighbour, setup, teardown),
        cmocka_unit_test_setup_teardown(test_only_finished_regions_are_denied, setup, teardown),
        cmocka_unit_test_setup_teardown(test_work_of_a_region, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
