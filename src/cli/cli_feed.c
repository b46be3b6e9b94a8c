/* Inputs made up for a model, and how far a result is from its reference: shared by compare and bench.
 *   layer   top
 *   why     an index must lie in every table it looks up, so the graph is followed from each gather back to its inputs */
#include "cli.h"
#include <math.h>

/* ---- random numbers: splitmix64, so that a seed gives the same inputs everywhere ---- */

uint64_t cli_rand(cli_rng *r)
{
    uint64_t z = r->s += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

double cli_uniform(cli_rng *r) { return (double)(cli_rand(r) >> 11) * 0x1p-53; }

static double normal(cli_rng *r)
{
    double u = 1.0 - cli_uniform(r), v = cli_uniform(r);
    return sqrt(-2.0 * log(u)) * cos(6.283185307179586 * v);
}

/* ---- what inputs may hold ---- */

enum { INPUTS_MAX = 64, INDEX_DEFAULT = 50 };

/* Smallest number of rows among constant tables that each input's integers reach as indices. */
static rtx_status index_limits(const ir_graph *g, int64_t limit[INPUTS_MAX], rtx_err *err)
{
    AUTO_FREE uint64_t *from = base_zalloc_array(BASE_TAG_CLI, g->n_nodes + 1, sizeof *from);
    TRY_ALLOC(from, err);
    for (uint32_t i = 0; i < INPUTS_MAX; i++)
        limit[i] = INDEX_DEFAULT;
    for (uint32_t i = 0; i < g->n_inputs && i < INPUTS_MAX; i++)
        from[g->inputs[i].id] |= UINT64_C(1) << i;
    for (ir_id id = 1; id < g->n_nodes; id++) {
        const ir_node *n = ir_node_get(g, id);
        ir_op op = ir_op_of(g, id);
        if (op == IR_gather || op == IR_gather_nd || op == IR_gather_elements) {
            const ir_type *table = ir_type_of(g, ir_in(g, id, 0));
            int64_t axis = op == IR_gather_nd ? 0 : ir_attrs_of(g, id)->i[0], rows;
            if (axis < table->rank && fmt_dim_is_const(g->dims, table->dim[axis], &rows))
                for (uint32_t i = 0; i < g->n_inputs && i < INPUTS_MAX; i++)
                    if (from[ir_in(g, id, 1)] >> i & 1)
                        limit[i] = MAX(1, MIN(limit[i], rows));
        }
        char cls = fmt_dtype_class(n->type.dtype);
        if (cls != 'I')
            continue; /* a float no longer is an index */
        for (uint32_t k = 0; k < n->n_in; k++)
            from[id] |= from[ir_in(g, id, k)];
    }
    return RTX_OK;
}

static void fill(rtx_tensor *t, int64_t n, bool mask, int64_t limit, cli_rng *rng)
{
    for (int64_t i = 0; i < n; i++) {
        int64_t v = mask ? 1 : (int64_t)(cli_rand(rng) % (uint64_t)limit);
        switch (t->dtype) {
        case RTX_F32:
            ((float *)t->data)[i] = mask ? 1 : (float)normal(rng);
            break;
        case RTX_F64:
            ((double *)t->data)[i] = mask ? 1 : normal(rng);
            break;
        case RTX_F16:
            ((uint16_t *)t->data)[i] = fmt_f32_to_f16(mask ? 1 : (float)normal(rng));
            break;
        case RTX_BF16:
            ((uint16_t *)t->data)[i] = fmt_f32_to_bf16(mask ? 1 : (float)normal(rng));
            break;
        case RTX_I64:
            ((int64_t *)t->data)[i] = v;
            break;
        case RTX_I32:
            ((int32_t *)t->data)[i] = (int32_t)v;
            break;
        case RTX_BOOL:
            ((uint8_t *)t->data)[i] = mask ? 1 : v & 1;
            break;
        }
    }
}

rtx_status cli_feed_make(const ir_graph *g, const cli_case *c, cli_rng *rng, cli_feed *out,
                         rtx_err *err)
{
    int64_t limit[INPUTS_MAX];
    TRY(index_limits(g, limit, err));
    out->n = g->n_inputs;
    TRY_ALLOC(out->t = base_zalloc_array(BASE_TAG_CLI, g->n_inputs + 1, sizeof *out->t), err);
    for (uint32_t i = 0; i < g->n_inputs; i++) {
        const ir_type *type = ir_type_of(g, g->inputs[i].id);
        rtx_tensor *t = &out->t[i];
        t->name = g->inputs[i].name;
        t->dtype = (rtx_dtype)type->dtype;
        t->rank = type->rank;
        for (int k = 0; k < t->rank; k++)
            if (!fmt_dim_eval(g->dims, type->dim[k], c->value, &t->dim[k]) || t->dim[k] < 0)
                return FAIL(err, INVALID,
                            "input %s: axis %d has no size here; give --size or --shape", t->name,
                            k);
        uint64_t bytes = cli_tensor_bytes(t);
        if (bytes > (uint64_t)8 << 30)
            return FAIL(err, LIMIT, "input %s would take more than 8 GB; give smaller --size",
                        t->name);
        TRY_ALLOC(t->data = base_alloc(BASE_TAG_CLI, bytes + 64), err);
        fill(t, (int64_t)(bytes / fmt_dtype_bytes(type->dtype)), strstr(t->name, "mask") != NULL,
             limit[MIN(i, INPUTS_MAX - 1)], rng);
    }
    return RTX_OK;
}

void cli_feed_done(cli_feed *f)
{
    for (uint32_t i = 0; f->t && i < f->n; i++)
        base_free(f->t[i].data);
    base_free(f->t);
    memset(f, 0, sizeof *f);
}

uint32_t cli_symbols(const ir_graph *g, uint32_t *out, uint32_t cap)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < g->n_inputs; i++) {
        const ir_type *t = ir_type_of(g, g->inputs[i].id);
        for (int k = 0; k < t->rank; k++)
            for (uint32_t s = 0; s < fmt_sym_count(g->dims); s++) {
                bool seen = !fmt_dim_uses(g->dims, t->dim[k], s);
                for (uint32_t j = 0; j < n; j++)
                    seen |= out[j] == s;
                if (!seen && n < cap)
                    out[n++] = s;
            }
    }
    return n;
}

/* ---- results ---- */

rtx_status cli_result_new(rtx_program *p, const cli_feed *f, cli_result *out, rtx_err *err)
{
    out->n = rtx_program_output_count(p);
    TRY_ALLOC(out->t = base_zalloc_array(BASE_TAG_CLI, out->n + 1, sizeof *out->t), err);
    TRY(rtx_program_shapes(p, f->t, f->n, out->t, out->n, err));
    for (size_t i = 0; i < out->n; i++)
        TRY_ALLOC(out->t[i].data = base_alloc(BASE_TAG_CLI, cli_tensor_bytes(&out->t[i]) + 64),
                  err);
    return RTX_OK;
}

void cli_result_done(cli_result *r)
{
    for (size_t i = 0; r->t && i < r->n; i++)
        base_free(r->t[i].data);
    base_free(r->t);
    memset(r, 0, sizeof *r);
}

static double element(const rtx_tensor *t, int64_t i)
{
    switch (t->dtype) {
    case RTX_F32:
        return ((const float *)t->data)[i];
    case RTX_F64:
        return ((const double *)t->data)[i];
    case RTX_F16:
        return fmt_f16_to_f32(((const uint16_t *)t->data)[i]);
    case RTX_BF16:
        return fmt_bf16_to_f32(((const uint16_t *)t->data)[i]);
    default:
        return 0;
    }
}

static int64_t integer(const rtx_tensor *t, int64_t i)
{
    return t->dtype == RTX_I64   ? ((const int64_t *)t->data)[i]
           : t->dtype == RTX_I32 ? ((const int32_t *)t->data)[i]
                                 : ((const uint8_t *)t->data)[i] != 0;
}

double cli_difference(const rtx_tensor *got, const ir_tensor *want)
{
    if ((int)got->dtype != (int)want->dtype || got->rank != want->rank)
        return INFINITY;
    for (int k = 0; k < got->rank; k++)
        if (got->dim[k] != want->dim[k])
            return INFINITY;
    double diff = 0, norm = 0, wrong = 0;
    for (int64_t i = 0; i < want->elems; i++) {
        if (fmt_dtype_class(want->dtype) != 'F') {
            wrong += integer(got, i) != want->i[i];
            continue;
        }
        double x = element(got, i), y = want->f[i];
        if (isnan(x) != isnan(y) || ((isinf(x) || isinf(y)) && x != y))
            return INFINITY;
        if (!isfinite(y))
            continue;
        diff += (x - y) * (x - y);
        norm += y * y;
    }
    if (fmt_dtype_class(want->dtype) != 'F')
        return want->elems ? wrong / (double)want->elems : 0;
    return norm > 0 ? sqrt(diff / norm) : sqrt(diff);
}
