/* Every element of a large matrix product takes part in a check that costs no second product: for x of random signs
 * C x must be A (B x) + D x, row by row.
 *   applies    to regions that are one f32 product and sums with other inputs of its shape
 *   bound      an honest element is off by about u sqrt(K) of its magnitude (each of the K roundings is a step of a random
 *              walk); signs chosen without knowledge of the kernel make the sum over a row a walk again: beyond
 *              SIGMA u sqrt(K) |row| lies less than 2 exp(-SIGMA^2 / 2) = 3e-14 (Hoeffding). |row| is the norm of the row's
 *              magnitudes, |c| + the root mean square of the reference */
#include "tun_int.h"
#include <math.h>

#define SIGMA 8.0

static double sign_of(int64_t n) { return tun_hash(0x7369676e, (uint64_t)n) >> 63 ? 1.0 : -1.0; }

static bool is_input(const ir_graph *g, ir_id id) { return ir_op_of(g, id) == IR_input; }

static uint32_t number_of(const ir_graph *g, ir_id id)
{
    uint32_t k = 0;
    while (k < g->n_inputs && g->inputs[k].id != id)
        k++;
    return k;
}

/* The product, if the output is it and sums with inputs; their numbers in `added`. */
static ir_id product_of(const ir_graph *g, uint32_t *added, uint32_t *n_added)
{
    ir_id id = g->n_outputs == 1 ? g->outputs[0].id : 0;
    *n_added = 0;
    while (id && ir_op_of(g, id) == IR_add) {
        ir_id a = ir_in(g, id, 0), b = ir_in(g, id, 1);
        if (is_input(g, a) == is_input(g, b))
            return 0;
        added[(*n_added)++] = number_of(g, is_input(g, a) ? a : b);
        id = is_input(g, a) ? b : a;
    }
    bool plain = id && ir_op_of(g, id) == IR_dot && is_input(g, ir_in(g, id, 0)) &&
                 is_input(g, ir_in(g, id, 1)) && ir_type_of(g, id)->dtype == FMT_F32;
    return plain ? id : 0;
}

bool tun_vector_applies(const syn_problem *p)
{
    uint32_t added[SYN_OPERANDS_MAX], n;
    return p->region->n_nodes <= SYN_OPERANDS_MAX && product_of(p->region, added, &n) != 0;
}

/* out[rows] += m[rows][cols] x */
static void times(const float *m, int64_t rows, int64_t cols, const double *x, double *out)
{
    for (int64_t r = 0; r < rows; r++, m += cols) {
        double sum = 0;
        for (int64_t c = 0; c < cols; c++)
            sum += (double)m[c] * x[c];
        out[r] += sum;
    }
}

rtx_status tun_vector_init(tun_vector *v, const syn_problem *p, const tun_shape *s,
                           uint8_t *const *logical, rtx_err *err)
{
    uint32_t added[SYN_OPERANDS_MAX], n_added;
    const ir_graph *g = p->region;
    ir_id dot = product_of(g, added, &n_added);
    uint32_t ia = number_of(g, ir_in(g, dot, 0)), ib = number_of(g, ir_in(g, dot, 1));
    const tun_operand *a = &s->op[ia], *c = &s->op[s->n_in];
    int64_t k = a->dim[a->rank - 1], n = c->dim[c->rank - 1], m = c->dim[c->rank - 2];
    int64_t rows = c->elems / MAX(n, 1), batches = rows / MAX(m, 1);
    AUTO_FREE double *x = NULL, *bx = NULL, *want = NULL;
    TRY_ALLOC(x = base_alloc_array(BASE_TAG_TUNE, (size_t)n, sizeof *x), err);
    TRY_ALLOC(bx = base_zalloc_array(BASE_TAG_TUNE, (size_t)(batches * k), sizeof *bx), err);
    TRY_ALLOC(want = base_zalloc_array(BASE_TAG_TUNE, (size_t)rows, sizeof *want), err);
    for (int64_t i = 0; i < n; i++)
        x[i] = sign_of(i);
    times((const float *)(const void *)logical[ib], batches * k, n, x, bx);
    for (int64_t b = 0; b < batches; b++)
        times((const float *)(const void *)logical[ia] + b * m * k, m, k, bx + b * k, want + b * m);
    for (uint32_t i = 0; i < n_added; i++)
        times((const float *)(const void *)logical[added[i]], rows, n, x, want);
    *v = (tun_vector){.want = TAKE(want), .rows = rows, .cols = n, .depth = k};
    return RTX_OK;
}

void tun_vector_done(tun_vector *v)
{
    base_free(v->want);
    *v = (tun_vector){0};
}

rtx_status tun_vector_check(const tun_vector *v, const float *c, double rms, rtx_err *why)
{
    for (int64_t r = 0; r < v->rows; r++, c += v->cols) {
        double sum = 0, squares = 0;
        for (int64_t n = 0; n < v->cols; n++) {
            double mag = fabs((double)c[n]) + rms;
            sum += sign_of(n) * (double)c[n];
            squares += mag * mag;
        }
        double most = SIGMA * TUN_UNIT_F32 * sqrt((double)v->depth * squares);
        if (!isfinite(sum) || fabs(sum - v->want[r]) > most)
            return FAIL(
                why, NUMERIC,
                "row %lld times a random vector is %.9g instead of %.9g: off by %.2g > %.2g",
                (long long)r, sum, v->want[r], fabs(sum - v->want[r]), most);
    }
    return RTX_OK;
}
