/* Single rules of fold and layout, random graphs before and after each pass, and every allocation of each pass failing once. */
#include "pass_fixture.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>
#include <stdio.h>

/* ---- IR text in, expected operations out ---- */

static ir_graph *parse(fx *f, const char *text)
{
    rtx_err err = {0};
    *f = (fx){.seed = 7};
    assert_non_null(f->dims = fmt_dims_new());
    if (ir_parse(text, strlen(text), f->dims, &f->g, &err) != RTX_OK)
        fail_msg("%s\n%s", err.text, text);
    return f->g;
}

static void print(const ir_graph *g, base_buf *b)
{
    base_buf_init(b, BASE_TAG_BASE, SIZE_MAX);
    ir_print(g, "f", 0, b);
}

/* A table of one graph a row: body with input(s), and the operations that may be left. */
static const struct row {
    const char *title, *text, *left; /* left: ops besides input, in order of ops.def, "" = none */
} table[] = {
    {"double negation", "%1 = neg %0 : f32[2,3]\n %2 = neg %1 : f32[2,3]\n return %2 \"y\"", ""},
    {"times one",
     "%1 = const f32[] {1}\n %2 = broadcast %1 {dims=[2,3]} : f32[2,3]\n %3 = mul %2 %0 : "
     "f32[2,3]\n return %3 \"y\"",
     ""},
    {"square",
     "%1 = const f32[] {2}\n %2 = broadcast %1 {dims=[2,3]} : f32[2,3]\n %3 = pow %0 %2 : "
     "f32[2,3]\n return %3 \"y\"",
     "mul"},
    {"widening casts",
     "%1 = cast %0 {to=f64} : f64[2,3]\n %2 = cast %1 {to=f32} : f32[2,3]\n return %2 \"y\"", ""},
    {"narrowing casts stay",
     "%1 = cast %0 {to=f16} : f16[2,3]\n %2 = cast %1 {to=f32} : f32[2,3]\n return %2 \"y\"",
     "cast cast"},
    {"permutes cancel",
     "%1 = permute %0 {perm=[1,0]} : f32[3,2]\n %2 = permute %1 {perm=[1,0]} : f32[2,3]\n return "
     "%2 \"y\"",
     ""},
    {"reshapes cancel",
     "%1 = reshape %0 {dims=[6]} : f32[6]\n %2 = reshape %1 {dims=[2,3]} : f32[2,3]\n return %2 "
     "\"y\"",
     ""},
    {"work below a broadcast",
     "%1 = broadcast %0 {dims=[9,2,3]} : f32[9,2,3]\n %2 = exp %1 : f32[9,2,3]\n return %2 \"y\"",
     "exp broadcast"},
    {"reduce of one",
     "%1 = reshape %0 {dims=[2,3,1]} : f32[2,3,1]\n %2 = reduce_sum %1 {axes=[2]} : f32[2,3]\n "
     "return %2 \"y\"",
     ""},
    {"slice of slice",
     "%1 = slice %0 {start=[0,1] size=[2,2] step=[1,1]} : f32[2,2]\n %2 = slice %1 {start=[0,1] "
     "size=[2,1] step=[1,1]} : f32[2,1]\n return %2 \"y\"",
     "slice"},
    {"piece of a concat",
     "%1 = exp %0 : f32[2,3]\n %2 = concat %0 %1 {axis=1} : f32[2,6]\n %3 = slice %2 {start=[0,0] "
     "size=[2,3] step=[1,1]} : f32[2,3]\n return %3 \"y\"",
     ""},
    {"gather by positions",
     "%1 = iota {dims=[2] axis=0} : i64[2]\n %2 = gather %0 %1 {axis=0} : f32[2,3]\n return %2 "
     "\"y\"",
     ""},
    {"gather of one row",
     "%1 = const i64[] {-1}\n %2 = gather %0 %1 {axis=0} : f32[3]\n return %2 \"y\"",
     "reshape slice"},
    {"gather out of range stays",
     "%1 = const i64[] {2}\n %2 = gather %0 %1 {axis=0} : f32[3]\n return %2 \"y\"",
     "const gather"},
    {"provable comparison",
     "%1 = iota {dims=[2,3] axis=1} : i64[2,3]\n %2 = const i64[] {0}\n %3 = broadcast %2 "
     "{dims=[2,3]} : i64[2,3]\n %4 = ge %1 %3 : bool[2,3]\n %5 = neg %0 : f32[2,3]\n %6 = select "
     "%4 %5 %0 : f32[2,3]\n return %6 \"y\"",
     "neg"},
    {"open comparison stays",
     "%1 = iota {dims=[2,3] axis=1} : i64[2,3]\n %2 = const i64[] {1}\n %3 = broadcast %2 "
     "{dims=[2,3]} : i64[2,3]\n %4 = ge %1 %3 : bool[2,3]\n %5 = neg %0 : f32[2,3]\n %6 = select "
     "%4 %5 %0 : f32[2,3]\n return %6 \"y\"",
     "const iota neg ge select broadcast"},
};

static void test_rules(void **state)
{
    (void)state;
    for (size_t k = 0; k < COUNT_OF(table); k++) {
        fx f;
        char text[2000];
        snprintf(text, sizeof text, "func @f(%%0 \"x\": f32[2,3]) {\n %s\n}\n", table[k].text);
        ir_graph *g = parse(&f, text), *r = fx_pass(g, "fold");
        AUTO_BUF base_buf left;
        base_buf_init(&left, BASE_TAG_BASE, SIZE_MAX);
        base_buf_puts(&left, "");
        for (int op = IR_input + 1; op < IR_OP_COUNT; op++)
            for (int i = fx_count(r, (ir_op)op); i > 0; i--)
                base_buf_printf(&left, "%s%s", left.len ? " " : "", ir_op_get((ir_op)op)->name);
        if (strcmp(left.len ? left.data : "", table[k].left) != 0) {
            AUTO_BUF base_buf b;
            print(r, &b);
            fail_msg("%s: left '%s', want '%s'\n%s", table[k].title, left.len ? left.data : "",
                     table[k].left, b.data);
        }
        if (!strstr(table[k].title, "out of range"))
            assert_true(fx_difference(&f, g, r) == 0);
        ir_graph_free(r);
        fx_close(&f);
    }
}

/* ---- layout ---- */

static ir_graph *projections(fx *f, bool bias_on_all)
{
    fx_open(f, 3);
    ir_graph *g = f->g;
    ir_id x = fx_input(f, "x", FMT_F32, 2, (fmt_dim[]){fx_sym(f, "M", 64), fx_const(f, 8)});
    char name[2] = "a";
    for (int k = 0; k < 3; k++, name[0]++) {
        ir_id y = ir_emit2(g, IR_dot, x, fx_weight(f, 2, (int64_t[]){8, 4 + k}));
        if (k < 2 || bias_on_all)
            y = ir_ew(g, IR_add, (ir_id[]){y, fx_weight(f, 1, (int64_t[]){4 + k})}, 2);
        ir_output(g, name, ir_emit1(g, IR_tanh, y));
    }
    return g;
}

static void test_layout_merges(void **state)
{
    (void)state;
    for (int all = 0; all < 2; all++) {
        fx f;
        ir_graph *g = projections(&f, all), *r = fx_pass(g, "layout");
        assert_int_equal(fx_count(r, IR_dot), 1);
        assert_int_equal(fx_count(r, IR_add), all ? 1 : 2);
        assert_int_equal(fx_count(r, IR_slice), 3);
        assert_true(fx_difference(&f, g, r) <= 1e-12);
        ir_graph *again = fx_pass(r, "layout");
        assert_true(fx_digest(again) == fx_digest(r));
        ir_graph_free(again);
        ir_graph_free(r);
        fx_close(&f);
    }
}

static void test_single_dot_stays(void **state)
{
    (void)state;
    fx f;
    fx_open(&f, 1);
    ir_id x = fx_input(&f, "x", FMT_F32, 2, (fmt_dim[]){fx_const(&f, 3), fx_const(&f, 8)});
    ir_output(f.g, "y", ir_emit2(f.g, IR_dot, x, fx_weight(&f, 2, (int64_t[]){8, 4})));
    ir_graph *r = fx_pass(f.g, "layout");
    assert_true(fx_digest(r) == fx_digest(f.g));
    ir_graph_free(r);
    fx_close(&f);
}

/* ---- random graphs ---- */

enum { LIVE_MAX = 24 };

static ir_id some(fx *f, const ir_id *live, int n, fmt_dtype t)
{
    for (int tries = 0; tries < 40; tries++) {
        ir_id id = live[fx_pick(f, n)];
        if (ir_type_of(f->g, id)->dtype == t)
            return id;
    }
    return live[t == FMT_F32 ? 0 : t == FMT_I64 ? 1 : 2];
}

static bool joins(const ir_graph *g, ir_id a, ir_id b)
{
    const ir_type *x = ir_type_of(g, a), *y = ir_type_of(g, b);
    for (int k = 1; k <= MIN(x->rank, y->rank); k++) {
        fmt_dim p = x->dim[x->rank - k], q = y->dim[y->rank - k];
        if (p != q && !fmt_dim_is(g->dims, p, 1) && !fmt_dim_is(g->dims, q, 1))
            return false;
    }
    return true;
}

static ir_id random_view(fx *f, ir_id x)
{
    ir_graph *g = f->g;
    ir_type t = *ir_type_of(g, x);
    fmt_dim d[FMT_RANK_MAX], n[FMT_RANK_MAX];
    int64_t list[FMT_RANK_MAX];
    int at = t.rank ? fx_pick(f, t.rank) : 0;
    switch (fx_pick(f, 6)) {
    case 0:
        for (int j = 0; j < t.rank; j++)
            list[j] = (j + at) % t.rank;
        return ir_permute(g, x, list);
    case 1:
        memcpy(d, t.dim, sizeof d);
        if (t.rank >= 5)
            return x;
        memmove(d + at + 1, d + at, (size_t)(t.rank - at) * sizeof *d);
        d[at] = fx_const(f, 1);
        return ir_reshape(g, x, d, t.rank + 1u);
    case 2:
        if (t.rank < 2)
            return x;
        memcpy(d, t.dim, sizeof d);
        at = fx_pick(f, t.rank - 1);
        d[at] = fmt_dim_mul(f->dims, d[at], d[at + 1]);
        memmove(d + at + 1, d + at + 2, (size_t)(t.rank - at - 2) * sizeof *d);
        return ir_reshape(g, x, d, t.rank - 1u);
    case 3:
        for (int j = 0; j < t.rank; j++)
            d[j] = fmt_dim_is(f->dims, t.dim[j], 1) ? fx_sym(f, "B", 64) : t.dim[j];
        return ir_broadcast(g, x, d, t.rank);
    case 4: /* the first element of an axis */
        for (int j = 0; j < t.rank; j++) {
            d[j] = fx_const(f, 0);
            n[j] = j == at ? fx_const(f, 1) : t.dim[j];
            list[j] = 1;
        }
        return ir_slice(g, x, d, n, list);
    default:
        if (t.rank == 0 || t.dtype != FMT_F32)
            return x;
        list[0] = at;
        return ir_reduce(g, fx_pick(f, 2) ? IR_reduce_sum : IR_reduce_max, x, list, 1,
                         fx_pick(f, 2) == 1);
    }
}

static ir_id random_node(fx *f, const ir_id *live, int n)
{
    static const ir_op unary[] = {IR_neg, IR_abs, IR_relu, IR_sign},
                       binary[] = {IR_add, IR_sub, IR_mul, IR_max},
                       compare[] = {IR_lt, IR_le, IR_ge, IR_eq}, logic[] = {IR_and, IR_or, IR_xor};
    ir_graph *g = f->g;
    ir_id a, b, c;
    switch (fx_pick(f, 9)) {
    case 0:
        return ir_emit1(g, unary[fx_pick(f, COUNT_OF(unary))], some(f, live, n, FMT_F32));
    case 1:
    case 2: {
        fmt_dtype t = fx_pick(f, 3) ? FMT_F32 : FMT_I64;
        a = some(f, live, n, t), b = some(f, live, n, t);
        return joins(g, a, b) ? ir_ew(g, binary[fx_pick(f, COUNT_OF(binary))], (ir_id[]){a, b}, 2)
                              : a;
    }
    case 3:
        a = some(f, live, n, FMT_I64),
        b = fx_pick(f, 2) ? some(f, live, n, FMT_I64) : ir_scalar(g, FMT_I64, fx_pick(f, 4) - 1);
        return joins(g, a, b) ? ir_ew(g, compare[fx_pick(f, COUNT_OF(compare))], (ir_id[]){a, b}, 2)
                              : a;
    case 4:
        a = some(f, live, n, FMT_BOOL), b = some(f, live, n, FMT_BOOL);
        return joins(g, a, b) ? ir_ew(g, logic[fx_pick(f, COUNT_OF(logic))], (ir_id[]){a, b}, 2)
                              : a;
    case 5:
        c = some(f, live, n, FMT_BOOL), a = some(f, live, n, FMT_F32);
        return joins(g, c, a)
                   ? ir_ew(g, IR_select, (ir_id[]){c, a, fx_num(f, fx_pick(f, 3) - 1)}, 3)
                   : a;
    case 6:
        a = some(f, live, n, FMT_F32);
        return ir_ew(g, fx_pick(f, 2) ? IR_mul : IR_add, (ir_id[]){a, fx_num(f, fx_pick(f, 4) - 1)},
                     2);
    default:
        return random_view(f, live[fx_pick(f, n)]);
    }
}

static void random_graph(fx *f, uint64_t seed)
{
    fx_open(f, seed);
    fmt_dim dim[3] = {fx_sym(f, "B", 64), fx_sym(f, "S", 512), fx_const(f, 4)};
    ir_id live[LIVE_MAX];
    int n = 0;
    live[n++] = fx_input(f, "x", FMT_F32, 3, dim);
    live[n++] = ir_emit(f->g, IR_iota, NULL, 0,
                        &(ir_attrs){.dims = {dim[1], dim[2]}, .n_dims = 2, .i = {fx_pick(f, 2)}});
    live[n++] = ir_cast(f->g, fx_input(f, "m", FMT_I64, 2, dim), FMT_BOOL);
    float eighths[4]; /* folding them rounds nothing */
    for (int k = 0; k < 4; k++)
        eighths[k] = (float)(fx_pick(f, 33) - 16) / 8;
    live[n++] = ir_const_copy(f->g, &(ir_type){.dtype = FMT_F32, .rank = 1, .dim = {dim[2]}},
                              eighths, sizeof eighths);
    while (n < LIVE_MAX)
        live[n] = random_node(f, live, n), n += live[n] != 0 || f->g->err.code != RTX_OK;
    char name[2] = "a";
    for (int k = 0; k < 4; k++, name[0]++)
        ir_output(f->g, name, live[LIVE_MAX - 1 - k * 2]);
}

static void test_random_graphs(void **state)
{
    (void)state;
    static const char *const passes[] = {"fold", "raise", "layout"};
    int kept = 0;
    for (uint64_t seed = 1; seed <= 600; seed++) {
        fx f;
        random_graph(&f, seed);
        rtx_err err = {0};
        if (ir_ok(f.g, &err) != RTX_OK)
            fail_msg("seed %llu: %s", (unsigned long long)seed, err.text);
        kept++;
        for (size_t k = 0; k < COUNT_OF(passes); k++) {
            ir_graph *r = fx_pass(f.g, passes[k]);
            double d = fx_difference(&f, f.g, r);
            if (!(d <= 1e-9)) {
                AUTO_BUF base_buf a, b;
                print(f.g, &a);
                print(r, &b);
                fail_msg("seed %llu %s: difference %g\n%s\n%s", (unsigned long long)seed, passes[k],
                         d, a.data, b.data);
            }
            ir_graph_free(r);
        }
        fx_close(&f);
    }
    printf("%d random graphs\n", kept);
}

/* ---- allocation failures ---- */

static void test_every_allocation_fails_once(void **state)
{
    (void)state;
    size_t n_passes;
    const pass_info *passes = pass_table(&n_passes);
    for (size_t k = 0; k < n_passes; k++) {
        fx f;
        if (strcmp(passes[k].name, "layout") == 0)
            projections(&f, true);
        else
            random_graph(&f, 11);
        int64_t n = 0;
        for (;; n++) {
            ir_graph *r = NULL;
            rtx_err err = {0};
            fmt_dims *dims = f.dims;
            size_t live =
                base_alloc_live_bytes(BASE_TAG_IR) + base_alloc_live_bytes(BASE_TAG_PASSES);
            base_alloc_fail_at(n);
            rtx_status s = passes[k].run(f.g, &r, &err);
            base_alloc_fail_at(-1);
            if (s == RTX_OK) {
                ir_graph_free(r);
                break;
            }
            assert_int_equal(s, RTX_NOMEM);
            assert_null(r);
            assert_int_equal(
                base_alloc_live_bytes(BASE_TAG_IR) + base_alloc_live_bytes(BASE_TAG_PASSES), live);
            if (fmt_dims_ok(dims, NULL) !=
                RTX_OK) { /* a pool that failed stays failed: start again with a new one */
                fx_close(&f);
                if (strcmp(passes[k].name, "layout") == 0)
                    projections(&f, true);
                else
                    random_graph(&f, 11);
            }
        }
        printf("%s: %lld allocations failed\n", passes[k].name, (long long)n);
        assert_true(n > 10);
        fx_close(&f);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rules),
        cmocka_unit_test(test_layout_merges),
        cmocka_unit_test(test_single_dot_stays),
        cmocka_unit_test(test_random_graphs),
        cmocka_unit_test(test_every_allocation_fails_once),
    };
    return cmocka_run_group_tests_name("pass_fold", tests, NULL, NULL);
}
