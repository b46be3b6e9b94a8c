/* The random-vector check on products made here: an honest one passes, one wrong element anywhere does not. */
#include "tune_fixture.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

enum { M = 24, K = 384, N = 200 };

typedef struct bed {
    syn_problem *p;
    tun_shape shape;
    uint8_t *logical[3], *image[3];
    float *c;
    double rms;
    tun_vector vector;
} bed;

/* fp32 accumulators, one chain in k: the least exact kernel that is honest. */
static void multiply(bed *b)
{
    const float *a = (const float *)(const void *)b->logical[0],
                *w = (const float *)(const void *)b->logical[1],
                *d = (const float *)(const void *)b->logical[2];
    double squares = 0;
    for (int m = 0; m < M; m++)
        for (int n = 0; n < N; n++) {
            float sum = 0;
            for (int k = 0; k < K; k++)
                sum += a[m * K + k] * w[k * N + n];
            b->c[m * N + n] = sum + d[m * N + n];
            squares += (double)b->c[m * N + n] * (double)b->c[m * N + n];
        }
    b->rms = sqrt(squares / (M * N));
}

static void begin(bed *b, uint64_t seed)
{
    *b = (bed){.p = fixture_gemm(K, N, true, false)};
    assert_int_equal(tun_shape_init(b->p, (int64_t[SYN_SYMS_MAX]){M}, 0, &b->shape, NULL), RTX_OK);
    for (uint32_t i = 0; i < 3; i++) {
        const tun_operand *o = &b->shape.op[i];
        b->logical[i] = base_alloc(BASE_TAG_TUNE, (size_t)o->elems * 4);
        b->image[i] = base_alloc(BASE_TAG_TUNE, tun_operand_bytes(o));
        assert_true(b->logical[i] && b->image[i]);
        assert_int_equal(tun_shape_input(&b->shape, i, seed, b->image[i], b->logical[i], NULL),
                         RTX_OK);
    }
    assert_non_null(b->c = base_alloc_array(BASE_TAG_TUNE, M * N, sizeof *b->c));
    multiply(b);
    assert_int_equal(tun_vector_init(&b->vector, b->p, &b->shape, b->logical, NULL), RTX_OK);
}

static void end(bed *b)
{
    for (uint32_t i = 0; i < 3; i++) {
        base_free(b->logical[i]);
        base_free(b->image[i]);
    }
    base_free(b->c);
    tun_vector_done(&b->vector);
    syn_problem_free(b->p);
}

static rtx_status verdict(const bed *b) { return tun_vector_check(&b->vector, b->c, b->rms, NULL); }

static void honest_products_pass(void **unused)
{
    (void)unused;
    for (uint64_t seed = 1; seed <= 8; seed++) {
        bed b;
        begin(&b, seed);
        assert_int_equal(verdict(&b), RTX_OK);
        end(&b);
    }
}

static void one_wrong_element_does_not(void **unused)
{
    (void)unused;
    bed b;
    begin(&b, 1);
    for (int i = 0; i < M * N; i += 37) {
        const float was = b.c[i];
        const float wrong[] = {was + (float)(b.rms / 200), 0.0f, NAN, INFINITY};
        for (size_t k = 0; k < COUNT_OF(wrong); k++) {
            b.c[i] = wrong[k];
            if (fabs((double)was - (double)b.c[i]) < b.rms / 250)
                continue;
            assert_int_equal(verdict(&b), RTX_NUMERIC);
        }
        b.c[i] = was;
    }
    assert_int_equal(verdict(&b), RTX_OK);
    end(&b);
}

static void applies_to_plain_products(void **unused)
{
    (void)unused;
    syn_problem *p[] = {fixture_gemm(K, N, false, false), fixture_gemm(K, N, true, false),
                        fixture_gemm(K, N, true, true), fixture_layernorm(48), fixture_add()};
    const bool want[] = {true, true, false, false, false};
    for (size_t i = 0; i < COUNT_OF(p); i++) {
        assert_int_equal(tun_vector_applies(p[i]), want[i]);
        syn_problem_free(p[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(honest_products_pass),
        cmocka_unit_test(one_wrong_element_does_not),
        cmocka_unit_test(applies_to_plain_products),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
