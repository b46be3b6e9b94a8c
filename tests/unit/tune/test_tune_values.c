/* Which operands get awkward rows, and that these are fair: sums before a norm or softmax lose nothing in fp32. */
#include "tune_fixture.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

enum { ROWS = 32, COLS = 48 };

static void shape_of(const syn_problem *p, tun_shape *s)
{
    const int64_t sym[SYN_SYMS_MAX] = {ROWS, 3};
    assert_int_equal(tun_shape_init(p, sym, 3, s, NULL), RTX_OK);
    s->hard = true;
}

static float *values_of(const tun_shape *s, uint32_t i)
{
    const tun_operand *o = &s->op[i];
    float *logical = base_alloc(BASE_TAG_TUNE, (size_t)o->elems * 4);
    char *image = base_alloc(BASE_TAG_TUNE, tun_operand_bytes(o));
    assert_true(logical && image);
    assert_int_equal(tun_shape_input(s, i, 7, image, logical, NULL), RTX_OK);
    base_free(image);
    return logical;
}

static void what_an_operand_meets_decides(void **unused)
{
    (void)unused;
    const struct {
        syn_problem *p;
        tun_hard hard[4];
    } want[] = {
        {fixture_layernorm(COLS), {TUN_HARD_NORM, TUN_HARD_NORM}},
        {fixture_attention(2, 32, false), {TUN_HARD_QUERY, TUN_HARD_KEY}},
        {fixture_gemm(COLS, 64, true, true), {TUN_HARD_LEFT}},
        {fixture_add(), {TUN_HARD_MOVED, TUN_HARD_MOVED}},
        {fixture_gather(10, COLS), {TUN_HARD_MOVED}},
    };
    for (size_t k = 0; k < COUNT_OF(want); k++) {
        tun_shape s;
        shape_of(want[k].p, &s);
        for (uint32_t i = 0; i < s.n_in; i++)
            assert_int_equal(s.op[i].hard, want[k].hard[i]);
        syn_problem_free(want[k].p);
    }
}

/* out = softmax(x op y), both of [s0,48]. */
static syn_problem *softmax_of(ir_op op, bool broadcast)
{
    syn_problem *p = syn_problem_new();
    fmt_sym_new(p->dims, "s0", 0, FMT_DIM_LIMIT);
    ir_type t = {.dtype = FMT_F32,
                 .rank = 2,
                 .dim = {fmt_dim_sym(p->dims, 0), fmt_dim_const(p->dims, COLS)}};
    for (uint32_t i = 0; i < 3; i++) {
        p->stride[i][0] = fmt_dim_const(p->dims, i == 1 && broadcast ? 0 : COLS);
        p->stride[i][1] = fmt_dim_const(p->dims, 1);
    }
    ir_id x = ir_input(p->region, syn_port_name(false, p->n_in++), &t),
          y = ir_input(p->region, syn_port_name(false, p->n_in++), &t);
    x = ir_emit1(p->region, IR_softmax, ir_emit2(p->region, op, x, y));
    ir_output(p->region, syn_port_name(true, p->n_out++), x);
    return p;
}

static void nothing_is_awkward_behind_a_rounding(void **unused)
{
    (void)unused;
    tun_shape s;
    syn_problem *p[] = {softmax_of(IR_add, false), softmax_of(IR_add, true),
                        softmax_of(IR_mul, false)};
    const tun_hard want[][2] = {{TUN_HARD_SOFTMAX, TUN_HARD_SOFTMAX},
                                {TUN_HARD_SOFTMAX, TUN_HARD_PLAIN},
                                {TUN_HARD_NONE, TUN_HARD_NONE}};
    for (size_t k = 0; k < COUNT_OF(p); k++) {
        shape_of(p[k], &s);
        assert_int_equal(s.op[0].hard, want[k][0]);
        assert_int_equal(s.op[1].hard, want[k][1]);
        syn_problem_free(p[k]);
    }
}

/* Exact, or off by so much less than the row's deviation that it does not show. */
static void check_sums(const float *x, const float *y, double allowed)
{
    for (int i = 0; i < ROWS * COLS; i++) {
        double sum = (double)x[i] + (double)y[i];
        assert_true(fabs((double)(x[i] + y[i]) - sum) <= allowed * fabs(sum));
    }
}

static void sums_before_rows_are_exact(void **unused)
{
    (void)unused;
    syn_problem *p[] = {fixture_layernorm(COLS), softmax_of(IR_add, false)};
    for (size_t k = 0; k < COUNT_OF(p); k++) {
        tun_shape s;
        shape_of(p[k], &s);
        float *x = values_of(&s, 0), *y = values_of(&s, 1);
        /* beside 2^101 nothing else counts, neither here nor in the reference */
        check_sums(x, y, k ? 0x1p-53 : 0);
        base_free(x);
        base_free(y);
        syn_problem_free(p[k]);
    }
}

static void rows_are_of_every_kind(void **unused)
{
    (void)unused;
    syn_problem *p = fixture_layernorm(COLS);
    tun_shape s;
    shape_of(p, &s);
    float *x = values_of(&s, 0);
    bool far = false, equal = false, zero = false, near_eps = false;
    for (int r = 0; r < ROWS; r++) {
        double mean = 0, square = 0;
        for (int c = 0; c < COLS; c++)
            mean += (double)x[r * COLS + c] / COLS;
        for (int c = 0; c < COLS; c++)
            square += ((double)x[r * COLS + c] - mean) * ((double)x[r * COLS + c] - mean) / COLS;
        far |= fabs(mean) >= 99 && fabs(mean) < 1002 && square < 2;
        equal |= mean != 0 && square == 0;
        zero |= mean == 0 && square == 0;
        near_eps |= square > 1e-13 && square < 1e-11;
    }
    assert_true(far && equal && zero && near_eps);
    base_free(x);
    syn_problem_free(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_an_operand_meets_decides),
        cmocka_unit_test(nothing_is_awkward_behind_a_rounding),
        cmocka_unit_test(sums_before_rows_are_exact),
        cmocka_unit_test(rows_are_of_every_kind),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
