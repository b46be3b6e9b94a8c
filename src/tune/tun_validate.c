/* May a candidate be used at all? Three launches a size, judged here and never by the child.
 *   a  NaN poison, operands flush to the end guard page, all units in one call: reads of what was not written, and
 *      accesses past the end, show
 *   b  finite poison, operands flush to the start guard page, units spread over three threads: accesses before the
 *      start, results that stay unwritten, races
 *   c  NaN again, units in small ranges from last to first: dependence between units
 *   bits       all three must agree bit for bit
 *   redzones   what lies between operand and guard page, between strided elements, and beside scratch must keep its poison
 *   values     one of the small cases holds rows that a shortcut gets wrong (tun_values.c)
 *   numbers    error = |out - ref| / |ref| over the whole output; where terms cancel, one unit roundoff u of the sum of
 *              |terms| is always allowed. Each element alone is held to WORST u sqrt(depth), in its own magnitude plus the mean's;
 *              non-finite values must be the same ones. Large products are checked whole against a random vector (tun_vector.c) */
#include "tun_int.h"
#include <math.h>

#define POISON_NAN    0x7fd0deadu
#define POISON_FINITE 0x5e5e5e5eu /* 4e18 as float */
#define WORST         48.0
#define EXTREME       1048576.0 /* results of the awkward case above this count each alone, in no norm */
#define LAUNCH_NS     UINT64_C(2000000000)

static const struct launch {
    uint32_t layout, order, ways, poison;
} launches[] = {
    {0, FMT_WORK_WHOLE, 1, POISON_NAN},
    {1, FMT_WORK_SPLIT, 3, POISON_FINITE},
    {0, FMT_WORK_REVERSE, 1, POISON_NAN},
};

/* ---- poison ---- */

static void poison_fill(uint8_t *p, size_t bytes, uint32_t word)
{
    for (size_t i = 0; i + 4 <= bytes; i += 4)
        memcpy(p + i, &word, 4);
}

/* Poison of `bytes` bytes at `at` of pages that start with a whole word. */
static void poison_put(uint8_t *page, size_t at, size_t bytes, uint32_t word)
{
    const uint8_t *w = (const uint8_t *)&word;
    for (size_t i = at; i < at + bytes; i++)
        page[i] = w[i & 3];
}

static bool poison_is(const uint8_t *page, size_t at, size_t bytes, uint32_t word)
{
    const uint8_t *w = (const uint8_t *)&word;
    for (size_t i = at; i < at + bytes; i++)
        if (page[i] != w[i & 3])
            return false;
    return true;
}

/* First byte that is not poison, or bytes. */
static size_t poison_broken(const uint8_t *p, size_t bytes, uint32_t word)
{
    uint32_t v;
    for (size_t i = 0; i + 4 <= bytes; i += 4)
        if (memcpy(&v, p + i, 4), v != word)
            return i;
    return bytes;
}

/* ---- elements ---- */

static double load(fmt_dtype t, const void *p)
{
    switch (t) {
    case FMT_F32: {
        float f;
        memcpy(&f, p, 4);
        return f;
    }
    case FMT_F64: {
        double d;
        memcpy(&d, p, 8);
        return d;
    }
    case FMT_F16: {
        uint16_t h;
        memcpy(&h, p, 2);
        return fmt_f16_to_f32(h);
    }
    default: {
        uint16_t h;
        memcpy(&h, p, 2);
        return fmt_bf16_to_f32(h);
    }
    }
}

static double rounded(fmt_dtype t, double v)
{
    switch (t) {
    case FMT_F32:
        return (float)v;
    case FMT_F16:
        return fmt_f16_to_f32(fmt_f32_to_f16((float)v));
    case FMT_BF16:
        return fmt_bf16_to_f32(fmt_f32_to_bf16((float)v));
    default:
        return v;
    }
}

static int64_t load_int(fmt_dtype t, const void *p)
{
    int64_t i = 0;
    int32_t w;
    switch (t) {
    case FMT_I64:
        memcpy(&i, p, 8);
        return i;
    case FMT_I32:
        memcpy(&w, p, 4);
        return w;
    default:
        return *(const uint8_t *)p;
    }
}

static double unit_of(fmt_dtype t)
{
    return t == FMT_F16 ? 4.8828125e-4 : t == FMT_BF16 ? 3.90625e-3 : TUN_UNIT_F32;
}
static double allowed_of(fmt_dtype t)
{
    return t == FMT_F16 ? TUN_ERROR_F16 : t == FMT_BF16 ? 3e-3 : TUN_ERROR_F32;
}

/* ---- comparing one output ---- */

typedef struct judge {
    const tun_case *c;
    const tun_operand *o;
    uint32_t output; /* index among outputs */
    int axis;        /* sampled axis of the output, -1 = the whole is compared */
    int64_t inner;   /* elements per step of that axis */
    double rms;      /* of the reference */
} judge;

static bool extreme(const tun_case *c, double ref) { return c->shape.hard && fabs(ref) > EXTREME; }

static judge judge_of(const syn_problem *p, const tun_case *c, uint32_t output)
{
    judge j = {
        .c = c, .o = &c->shape.op[p->n_in + output], .output = output, .axis = -1, .inner = 1};
    const ir_type *t = ir_type_of(p->region, p->region->outputs[output].id);
    uint32_t sym;
    for (int d = 0; c->sampled && d < j.o->rank; d++)
        if (fmt_dim_is_sym(p->dims, t->dim[d], &sym) && sym == c->sample_sym)
            j.axis = d;
    for (int d = j.axis + 1; j.axis >= 0 && d < j.o->rank; d++)
        j.inner *= j.o->dim[d];
    const ir_tensor *ref = &c->ref[output];
    double sum = 0;
    int64_t n = 0;
    for (int64_t i = 0; ref->f && i < ref->elems; i++)
        if (isfinite(ref->f[i]) && !extreme(c, ref->f[i])) {
            sum += ref->f[i] * ref->f[i];
            n++;
        }
    j.rms = n ? sqrt(sum / (double)n) : 0;
    return j;
}

/* Index of a logical element in the reference, or -1 if it was not sampled. */
static int64_t ref_index(const judge *j, const tun_walk *w)
{
    if (j->axis < 0)
        return w->i;
    for (uint32_t k = 0; k < j->c->n_pick; k++)
        if (j->c->pick[k] == w->at[j->axis])
            return w->i / (j->o->dim[j->axis] * j->inner) * (j->c->n_pick * j->inner) +
                   k * j->inner + w->i % j->inner;
    return -1;
}

static void where(const tun_operand *o, const tun_walk *w, char *out, size_t cap)
{
    size_t n = 0;
    out[0] = 0;
    for (int d = 0; d < o->rank && n < cap; d++)
        n += (size_t)snprintf(out + n, cap - n, d ? ",%lld" : "%lld", (long long)w->at[d]);
}

typedef struct sums {
    double error, ref, mag; /* squares */
} sums;

/* One floating-point element against the reference; false = rejected, why filled. */
static bool judge_float(const judge *j, const tun_walk *w, double out, int64_t r, sums *s,
                        rtx_err *why)
{
    double ref = rounded(j->o->dtype, j->c->ref[j->output].f[r]);
    char at[80];
    if (!isfinite(ref) || !isfinite(out)) {
        if ((isnan(ref) && isnan(out)) || ref == out)
            return true;
        where(j->o, w, at, sizeof at);
        return (void)FAIL(why, NUMERIC, "element [%s] of output %u is %g instead of %g", at,
                          j->output, out, ref),
               false;
    }
    const ir_tensor *m = &j->c->mag[j->output];
    double mag = m->elems ? MAX(m->f[r], fabs(ref)) : fabs(ref) + j->rms, diff = fabs(out - ref);
    if (!isfinite(mag))
        mag = fabs(ref);
    double most = WORST * unit_of(j->o->dtype) * sqrt((double)j->c->shape.depth) * mag;
    if (diff > most) {
        where(j->o, w, at, sizeof at);
        return (void)FAIL(why, NUMERIC,
                          "element [%s] of output %u is %.9g instead of %.9g: off by %.2g > %.2g",
                          at, j->output, out, ref, diff, most),
               false;
    }
    if (extreme(j->c, ref))
        return true;
    s->error += diff * diff;
    s->ref += ref * ref;
    s->mag += m->elems ? mag * mag : 0;
    return true;
}

static bool judge_element(const judge *j, const tun_walk *w, const void *p, sums *s, rtx_err *why)
{
    int64_t r = ref_index(j, w);
    if (r < 0)
        return true;
    if (fmt_dtype_class(j->o->dtype) == 'F')
        return judge_float(j, w, load(j->o->dtype, p), r, s, why);
    int64_t out = load_int(j->o->dtype, p), ref = j->c->ref[j->output].i[r];
    if (j->o->dtype == FMT_I32)
        ref = (int32_t)ref;
    if (out == ref)
        return true;
    char at[80];
    where(j->o, w, at, sizeof at);
    (void)FAIL(why, NUMERIC, "element [%s] of output %u is %lld instead of %lld", at, j->output,
               (long long)out, (long long)ref);
    return false;
}

static rtx_status norm_error(const judge *j, const sums *s, double *out_error, rtx_err *why)
{
    double ref = sqrt(s->ref), mag = sqrt(s->mag), e = sqrt(s->error),
           by = MAX(ref, mag * unit_of(j->o->dtype) / allowed_of(j->o->dtype));
    double error = e == 0 ? 0 : by > 0 ? e / by : INFINITY;
    *out_error = MAX(*out_error, error);
    if (!(error <= allowed_of(j->o->dtype)))
        return FAIL(why, NUMERIC, "error %.2g > %.0g in output %u", error, allowed_of(j->o->dtype),
                    j->output);
    return RTX_OK;
}

static bool same_bits(fmt_dtype t, const void *a, const void *b)
{
    size_t n = fmt_dtype_bytes(t);
    return memcmp(a, b, n) == 0 ||
           (fmt_dtype_class(t) == 'F' && isnan(load(t, a)) && isnan(load(t, b)));
}

/* Row-major without gaps, and the same bytes as the first launch: the common case of the later launches. */
static bool dense_equal(const tun_operand *o, const uint8_t *first, const uint8_t *now)
{
    int64_t step = 1;
    for (int d = o->rank - 1; d >= 0; d--) {
        if (o->dim[d] != 1 && o->stride[d] != step)
            return false;
        step *= o->dim[d];
    }
    return o->extent == o->elems && memcmp(first, now, tun_operand_bytes(o)) == 0;
}

static rtx_status outside(const fmt_work_span *span, size_t at, uint32_t output, rtx_err *why)
{
    return FAIL(why, NUMERIC, "writes outside output %u: %lld bytes from its first element", output,
                (long long)at - (long long)span->first);
}

/* Only the operand itself may differ from poison. */
static rtx_status poison_around(const fmt_work_span *span, const uint8_t *page, size_t base,
                                size_t bytes, uint32_t word, uint32_t output, rtx_err *why)
{
    for (size_t i = 0; i < base; i++)
        if (!poison_is(page, i, 1, word))
            return outside(span, i, output, why);
    for (size_t i = base + bytes; i < span->bytes; i++)
        if (!poison_is(page, i, 1, word))
            return outside(span, i, output, why);
    return RTX_OK;
}

/* Judge output `k` of launch `l`; the pages hold only poison afterwards. */
static rtx_status check_output(tun_validator *v, const tun_case *c, const struct launch *l,
                               bool first, uint32_t k, double *out_error, rtx_err *why)
{
    judge j = judge_of(v->problem, c, k);
    const tun_operand *o = j.o;
    const fmt_work_span *span = &c->span[l->layout][v->problem->n_in + k];
    uint8_t *page = v->worker->mem + span->offset;
    size_t size = fmt_dtype_bytes(o->dtype), base = span->first - (size_t)o->below * size;
    char at[80];
    sums s = {0};
    if (!first && dense_equal(o, v->first[k], page + base))
        return poison_around(span, page, base, tun_operand_bytes(o), l->poison, k, why);
    tun_walk w = tun_walk_of(o);
    for (; w.i < o->elems; tun_walk_next(o, &w)) {
        size_t place = base + (size_t)w.offset * size;
        uint8_t *keep = v->first[k] + (size_t)w.i * size;
        if (size >= 4 && poison_is(page, place, size, l->poison)) {
            where(o, &w, at, sizeof at);
            return FAIL(why, NUMERIC,
                        "element [%s] of output %u holds the %s poison: not written, or made from "
                        "what was there",
                        at, k, l->poison == POISON_NAN ? "NaN" : "finite");
        }
        if (first && !judge_element(&j, &w, page + place, &s, why))
            return why ? why->code : RTX_NUMERIC;
        if (first)
            memcpy(keep, page + place, size);
        else if (!same_bits(o->dtype, keep, page + place)) {
            where(o, &w, at, sizeof at);
            return FAIL(
                why, NUMERIC,
                "element [%s] of output %u differs between %s and one call on all units", at, k,
                l->order == FMT_WORK_SPLIT ? "three threads" : "small ranges from last to first");
        }
        poison_put(page, place, size, l->poison);
    }
    size_t broken = poison_broken(page, span->bytes, l->poison);
    if (broken < span->bytes)
        return outside(span, broken, k, why);
    return first ? norm_error(&j, &s, out_error, why) : RTX_OK;
}

/* ---- launching ---- */

rtx_status tun_code_place(tun_worker *w, const tun_code *code, fmt_work_code *out, rtx_err *err)
{
    size_t at = w->mem_bytes - TUN_CODE_ROOM;
    if (code->n_bytes > TUN_CODE_ROOM)
        return FAIL(err, LIMIT, "code of %zu bytes is too large", code->n_bytes);
    memcpy(w->mem + at, code->bytes, code->n_bytes);
    *out = (fmt_work_code){.offset = at,
                           .bytes = code->n_bytes,
                           .plan_entry = code->plan_entry,
                           .run_entry = code->run_entry};
    memcpy(out->sha256, code->sha256, sizeof out->sha256);
    return RTX_OK;
}

static rtx_status launch(tun_validator *v, const tun_case *c, const struct launch *l,
                         const tun_code *code, rtx_err *why)
{
    static fmt_work_req req;
    const tun_shape *s = &c->shape;
    memset(&req, 0, sizeof req);
    req.cmd = FMT_WORK_RUN;
    req.n_operands = s->n_op;
    req.n_args = s->n_arg;
    req.order = l->order;
    req.ways = l->ways;
    req.poison = l->poison;
    memcpy(req.arg, s->arg, s->n_arg * sizeof *s->arg);
    memcpy(req.u.span, c->span[l->layout], s->n_op * sizeof *c->span[0]);
    TRY(tun_code_place(v->worker, code, &req.code, why));
    for (uint32_t k = 0; k < v->problem->n_out; k++) {
        const fmt_work_span *o = &c->span[l->layout][s->n_in + k];
        poison_fill(v->worker->mem + o->offset, o->bytes, l->poison);
    }
    fmt_work_rep rep;
    uint64_t limit_ns = (v->launch_ns ? v->launch_ns : LAUNCH_NS) + (uint64_t)(s->flops * 4);
    TRY(tun_worker_call(v->worker, &req, limit_ns, &rep, NULL, why));
    if (rep.status == FMT_WORK_BAD_PLAN)
        return FAIL(why, LIMIT, "its plan asks for %lld units and %lld bytes of scratch",
                    (long long)rep.units, (long long)rep.scratch_bytes);
    if (rep.status == FMT_WORK_STRAYED)
        return FAIL(why, NUMERIC, "writes outside its %lld bytes of scratch, at byte %lld",
                    (long long)rep.scratch_bytes, (long long)rep.stray);
    if (rep.status != FMT_WORK_OK)
        return FAIL(why, NOMEM, "the worker cannot map the operands");
    if (rep.trap)
        return FAIL(why, NUMERIC, "reports an index out of range where all are in range");
    return RTX_OK;
}

/* Where the reference is sampled, the first kernel judged is the reference for the rows between: another kernel must
 * agree with it everywhere. */
static rtx_status agree(tun_validator *v, rtx_err *why)
{
    const tun_case *c = &v->cases[0];
    for (uint32_t k = 0; k < v->problem->n_out; k++) {
        const tun_operand *o = &c->shape.op[c->shape.n_in + k];
        size_t size = fmt_dtype_bytes(o->dtype);
        if (!v->other[k]) {
            v->other[k] = TAKE(v->first[k]);
            if (!(v->first[k] = base_alloc(BASE_TAG_TUNE, v->first_bytes[k])))
                return FAIL(why, NOMEM, "out of memory");
            continue;
        }
        for (int64_t i = 0; i < o->elems; i++) {
            const uint8_t *a = v->first[k] + (size_t)i * size, *b = v->other[k] + (size_t)i * size;
            if (same_bits(o->dtype, a, b))
                continue;
            if (fmt_dtype_class(o->dtype) != 'F')
                return FAIL(why, NUMERIC, "element %lld of output %u differs from another kernel's",
                            (long long)i, k);
            double x = load(o->dtype, a), y = load(o->dtype, b);
            if (!(fabs(x - y) <=
                  2 * WORST * unit_of(o->dtype) * sqrt((double)c->shape.depth) * MAX(1.0, fabs(y))))
                return FAIL(why, NUMERIC,
                            "element %lld of output %u is %.9g, by another kernel %.9g",
                            (long long)i, k, x, y);
        }
    }
    return RTX_OK;
}

rtx_status tun_validate(tun_validator *v, const tun_code *code, double *out_error, rtx_err *why)
{
    uint64_t t_ns = base_now_ns();
    double error = 0;
    rtx_status s = RTX_OK;
    rtx_err reason = {0};
    for (uint32_t i = 0; s == RTX_OK && i < v->n_cases; i++)
        for (size_t l = 0; s == RTX_OK && l < COUNT_OF(launches); l++) {
            s = launch(v, &v->cases[i], &launches[l], code, &reason);
            for (uint32_t k = 0; s == RTX_OK && k < v->problem->n_out; k++)
                s = check_output(v, &v->cases[i], &launches[l], l == 0, k, &error, &reason);
        }
    if (s == RTX_OK && v->vector.want)
        s = tun_vector_check(&v->vector, (const float *)(const void *)v->first[0],
                             judge_of(v->problem, &v->cases[0], 0).rms, &reason);
    if (s == RTX_OK && v->n_cases && v->cases[0].sampled)
        s = agree(v, &reason);
    v->seconds += (double)(base_now_ns() - t_ns) / 1e9;
    if (s == RTX_OK)
        *out_error = error;
    else if (why)
        *why = reason;
    return s;
}

/* ---- references ---- */

/* Pages for one operand in both layouts. */
static rtx_status place(tun_validator *v, tun_case *c, uint32_t i, rtx_err *err)
{
    const tun_operand *o = &c->shape.op[i];
    size_t bytes = tun_operand_bytes(o),
           pages = MAX((bytes + FMT_WORK_PAGE - 1) / FMT_WORK_PAGE, 1) * FMT_WORK_PAGE;
    size_t room = v->worker->mem_bytes - TUN_CODE_ROOM,
           before = (size_t)o->below * fmt_dtype_bytes(o->dtype);
    for (int l = 0; l < 2; l++) {
        if (pages > room - v->mem_used)
            return FAIL(err, LIMIT, "operands do not fit into the worker's memory");
        c->span[l][i] = (fmt_work_span){.offset = v->mem_used,
                                        .bytes = pages,
                                        .first = (l ? 0 : pages - bytes) + before,
                                        .writable = o->output};
        v->mem_used += pages;
    }
    return RTX_OK;
}

/* Copy the picked rows of the sampled axis; the tensor has n_pick of them. */
static rtx_status sample(const syn_problem *p, const tun_case *c, uint32_t i,
                         const uint8_t *logical, ir_tensor *out, rtx_err *err)
{
    const tun_operand *o = &c->shape.op[i];
    const ir_type *t = ir_type_of(p->region, p->region->inputs[i].id);
    size_t size = fmt_dtype_bytes(o->dtype);
    int axis = -1;
    uint32_t sym;
    for (int d = 0; c->sampled && d < o->rank; d++)
        if (fmt_dim_is_sym(p->dims, t->dim[d], &sym) && sym == c->sample_sym)
            axis = d;
    if (axis < 0)
        return ir_tensor_from(logical, o->dtype, o->rank, o->dim, out, err);
    size_t outer = 1, inner = size;
    int64_t dim[FMT_RANK_MAX];
    memcpy(dim, o->dim, sizeof dim);
    for (int d = 0; d < o->rank; d++)
        *(d < axis ? &outer : &inner) *= d == axis ? 1 : (size_t)o->dim[d];
    AUTO_FREE uint8_t *rows = NULL;
    TRY_ALLOC(rows = base_alloc(BASE_TAG_TUNE, outer * c->n_pick * inner), err);
    for (size_t b = 0; b < outer; b++)
        for (uint32_t k = 0; k < c->n_pick; k++)
            memcpy(rows + (b * c->n_pick + k) * inner,
                   logical + (b * (size_t)dim[axis] + (size_t)c->pick[k]) * inner, inner);
    dim[axis] = c->n_pick;
    return ir_tensor_from(rows, o->dtype, o->rank, dim, out, err);
}

/* Values of one input in both layouts; out (NULL = not wanted) is what the reference sees, *out_whole (likewise) all its
 * elements: base_free. */
static rtx_status make_input(tun_validator *v, tun_case *c, uint32_t i, ir_tensor *out,
                             uint8_t **out_whole, rtx_err *err)
{
    const tun_operand *o = &c->shape.op[i];
    uint8_t *mem = v->worker->mem;
    size_t size = fmt_dtype_bytes(o->dtype), before = (size_t)o->below * size;
    AUTO_FREE uint8_t *logical = NULL;
    TRY_ALLOC(logical = base_alloc(BASE_TAG_TUNE, MAX((size_t)o->elems, 1) * size), err);
    for (int l = 0; l < 2; l++)
        poison_fill(mem + c->span[l][i].offset, c->span[l][i].bytes,
                    l ? POISON_FINITE : POISON_NAN);
    uint8_t *image[2];
    for (int l = 0; l < 2; l++)
        image[l] = mem + c->span[l][i].offset + c->span[l][i].first - before;
    TRY(tun_shape_input(&c->shape, i, c->seed, image[0], logical, err));
    if (o->packed || o->extent == o->elems)
        memcpy(image[1], image[0], tun_operand_bytes(o));
    else /* not copied: the gaps keep their own poison */
        TRY(tun_shape_input(&c->shape, i, c->seed, image[1], NULL, err));
    if (out)
        TRY(sample(v->problem, c, i, logical, out, err));
    if (out_whole)
        *out_whole = TAKE(logical);
    return RTX_OK;
}

/* Fill one case: memory, inputs, reference. */
static rtx_status prepare(tun_validator *v, tun_case *c, uint64_t seed, rtx_err *err)
{
    c->seed = seed;
    ir_tensor in[SYN_OPERANDS_MAX] = {0};
    uint8_t *whole[SYN_OPERANDS_MAX] = {0};
    int64_t sym[SYN_SYMS_MAX]; /* as the reference sees them */
    memcpy(sym, c->shape.sym, sizeof sym);
    if (c->sampled)
        sym[c->sample_sym] = c->n_pick;
    bool vector = c->sampled && tun_vector_applies(v->problem);
    rtx_status s = RTX_OK;
    for (uint32_t i = 0; s == RTX_OK && i < c->shape.n_op; i++)
        s = place(v, c, i, err);
    for (uint32_t i = 0; s == RTX_OK && i < c->shape.n_in; i++)
        s = make_input(v, c, i, &in[i], vector ? &whole[i] : NULL, err);
    if (s == RTX_OK && vector)
        s = tun_vector_init(&v->vector, v->problem, &c->shape, whole, err);
    if (s == RTX_OK)
        s = ir_eval(v->problem->region, in, sym, c->ref, c->mag, (size_t)4 << 30, NULL, NULL, err);
    for (uint32_t i = 0; i < c->shape.n_in; i++) {
        ir_tensor_done(&in[i]);
        base_free(whole[i]);
    }
    for (uint32_t k = 0; s == RTX_OK && k < v->problem->n_out; k++) {
        const tun_operand *o = &c->shape.op[c->shape.n_in + k];
        size_t bytes = MAX((size_t)o->elems, 1) * fmt_dtype_bytes(o->dtype);
        if (bytes <= v->first_bytes[k])
            continue;
        base_free(v->first[k]);
        v->first_bytes[k] = 0;
        if (!(v->first[k] = base_alloc(BASE_TAG_TUNE, bytes)))
            s = FAIL(err, NOMEM, "out of memory");
        else
            v->first_bytes[k] = bytes;
    }
    return s;
}

void tun_validator_detach(tun_validator *v)
{
    if (v->worker && v->mem_used)
        tun_worker_forget(v->worker, 0, v->mem_used);
    v->mem_used = 0;
}

rtx_status tun_validator_attach(tun_validator *v, rtx_err *err)
{
    rtx_status s = RTX_OK;
    v->mem_used = 0;
    for (uint32_t n = 0; n < v->n_cases; n++) {
        tun_case *c = &v->cases[n];
        for (uint32_t i = 0; s == RTX_OK && i < c->shape.n_op; i++)
            s = place(v, c, i, err);
        for (uint32_t i = 0; s == RTX_OK && i < c->shape.n_in; i++)
            s = make_input(v, c, i, NULL, NULL, err);
    }
    return s;
}

#define CASE_FLOPS  1e8
#define FIXED_FLOPS 8e9 /* a problem without free sizes is evaluated whole up to here */

/* Sizes of one small case: odd, 1, a power of two, one short of whole lanes, past a power of two. In the last case the
 * last symbol is 0, if it may be. */
static void case_sizes(const syn_problem *p, const tun_point *points, uint32_t n_points, uint32_t k,
                       int64_t *sym)
{
    static const int64_t sizes[TUN_CASES] = {37, 1, 16, 95, 130};
    uint32_t n = fmt_sym_count(p->dims);
    for (uint32_t j = 0; j < n; j++) {
        const fmt_sym *s = fmt_sym_get(p->dims, j);
        int64_t most = 0;
        for (uint32_t i = 0; i < n_points; i++)
            most = MAX(most, points[i].sym[j]);
        most = MAX(most, 4) + 1;
        sym[j] = MAX(MIN(MIN(sizes[(k + 3 * j) % TUN_CASES], most), s->hi), MAX(s->lo, 1));
    }
    if (k == TUN_CASES - 1 && n)
        sym[n - 1] = 0;
    for (;;) {
        double flops, bytes;
        uint32_t big = 0;
        syn_cost(p, sym, &flops, &bytes);
        for (uint32_t j = 1; j < n; j++)
            if (sym[j] > sym[big])
                big = j;
        if (flops <= CASE_FLOPS || n == 0 || sym[big] <= MAX(fmt_sym_get(p->dims, big)->lo, 1))
            return;
        sym[big] = MAX(sym[big] * 2 / 3, MAX(fmt_sym_get(p->dims, big)->lo, 1));
    }
}

/* The case without elements, left out where the operation has no meaning then. */
static void empty_case(tun_validator *v, const tun_point *points, uint32_t n_points)
{
    int64_t sym[SYN_SYMS_MAX] = {0};
    tun_case *c = &v->cases[v->n_cases];
    size_t used = v->mem_used;
    case_sizes(v->problem, points, n_points, TUN_CASES - 1, sym);
    if (tun_shape_init(v->problem, sym, 0, &c->shape, NULL) == RTX_OK &&
        prepare(v, c, 1000 + TUN_CASES, NULL) == RTX_OK) {
        v->n_cases++;
        return;
    }
    for (uint32_t k = 0; k < SYN_OPERANDS_MAX; k++) {
        ir_tensor_done(&c->ref[k]);
        ir_tensor_done(&c->mag[k]);
    }
    memset(c, 0, sizeof *c);
    v->mem_used = used;
}

rtx_status tun_validator_init(tun_validator *v, tun_worker *w, const syn_problem *p,
                              const tun_point *points, uint32_t n_points, rtx_err *err)
{
    uint64_t t_ns = base_now_ns();
    memset(v, 0, sizeof *v);
    v->worker = w;
    v->problem = p;
    uint32_t n_sym = fmt_sym_count(p->dims), n = n_sym ? TUN_CASES - 1 : 2;
    rtx_status s = RTX_OK;
    for (uint32_t k = 0; s == RTX_OK && k < n; k++) {
        int64_t sym[SYN_SYMS_MAX] = {0};
        tun_case *c = &v->cases[v->n_cases];
        case_sizes(p, points, n_points, k, sym);
        s = tun_shape_init(p, sym, k % 2 ? 0 : 3, &c->shape, err);
        if (s == RTX_OK && c->shape.flops > FIXED_FLOPS)
            s = FAIL(err, UNSUPPORTED, "the problem is too large to be checked");
        if (s != RTX_OK)
            break;
        v->n_cases++;
        c->shape.hard = k == (n_sym ? 2 : 1);
        s = prepare(v, c, 1000 + k, err);
        if (c->shape.flops > 4 * CASE_FLOPS) /* one is enough of those that cannot be made small */
            break;
    }
    if (s == RTX_OK && n_sym && v->n_cases == n && fmt_sym_get(p->dims, n_sym - 1)->lo == 0)
        empty_case(v, points, n_points);
    v->seconds = (double)(base_now_ns() - t_ns) / 1e9;
    if (s != RTX_OK)
        tun_validator_done(v);
    return s;
}

/* ---- full size ---- */

/* Where symbol `sym` is an axis of t: -1 nowhere, -2 inside an expression or twice. */
static int axis_of(const fmt_dims *dims, const ir_type *t, uint32_t sym)
{
    int axis = -1;
    for (int d = 0; d < t->rank; d++) {
        uint32_t s;
        if (fmt_dim_is_sym(dims, t->dim[d], &s) && s == sym)
            axis = axis == -1 ? d : -2;
        else if (fmt_dim_uses(dims, t->dim[d], sym))
            return -2;
    }
    return axis;
}

/* May input k of a node carry the sampled symbol at axis `in` when its output (of rank `rank`) has it at `out`? */
static bool row_kept(ir_op op, uint32_t k, int in, int in_rank, int out, int rank)
{
    if (in < 0)
        return true;
    if (out < 0)
        return false;
    if (op == IR_dot) /* not the axis that is summed over */
        return in == out && in != (k == 0 ? rank - 1 : rank - 2);
    if (op == IR_attention)
        return in == 0 && out == 0;
    if (op == IR_softmax || op == IR_layernorm || op == IR_rmsnorm || op == IR_rope)
        return in_rank == rank && in == out && out != rank - 1;
    if (op >= IR_reduce_sum && op <= IR_reduce_prod)
        return in == out; /* leading axes stay where they are */
    return (ir_op_get(op)->elementwise || op == IR_broadcast) && in_rank - in == rank - out;
}

/* Does row r of every output depend on row r of the inputs alone, along symbol sym? Then rows can be sampled. */
static bool rows_independent(const syn_problem *p, uint32_t sym)
{
    const ir_graph *g = p->region;
    for (ir_id id = 1; id < g->n_nodes; id++) {
        ir_op op = ir_op_of(g, id);
        const ir_type *t = ir_type_of(g, id);
        int out = axis_of(p->dims, t, sym);
        if (out == -2 || (op == IR_iota && out >= 0) || op == IR_dimvals)
            return false;
        for (uint32_t k = 0; k < g->nodes[id].n_in; k++) {
            const ir_type *x = ir_type_of(g, ir_in(g, id, k));
            int in = axis_of(p->dims, x, sym);
            if (in == -2 || !row_kept(op, k, in, x->rank, out, t->rank))
                return false;
        }
    }
    return true;
}

static void choose_rows(tun_case *c)
{
    int64_t rows = c->shape.sym[c->sample_sym];
    double per_row = c->shape.flops / (double)MAX(rows, 1);
    uint32_t n = (uint32_t)MIN(MAX(1.5e8 / MAX(per_row, 1), 1), (double)COUNT_OF(c->pick));
    int64_t want[] = {rows - 1, 0, rows / 2, 1, 15, 16, rows - 17, 63, 64, rows / 3, 5, rows - 6};
    uint64_t rng = 88172645463325252u;
    for (uint32_t k = 0; c->n_pick < n && k < 200; k++) {
        rng ^= rng << 13, rng ^= rng >> 7, rng ^= rng << 17;
        int64_t r = k < COUNT_OF(want) ? want[k] : (int64_t)(rng % (uint64_t)rows);
        bool seen = r < 0 || r >= rows;
        for (uint32_t i = 0; i < c->n_pick; i++)
            seen |= c->pick[i] == r;
        if (!seen)
            c->pick[c->n_pick++] = r;
    }
}

rtx_status tun_validator_init_at(tun_validator *v, tun_worker *w, const syn_problem *p,
                                 const int64_t *sym, rtx_err *err)
{
    uint64_t t_ns = base_now_ns();
    memset(v, 0, sizeof *v);
    v->worker = w;
    v->problem = p;
    tun_case *c = &v->cases[0];
    TRY(tun_shape_init(p, sym, 0, &c->shape, err));
    if (c->shape.flops > 2.5e8)
        for (uint32_t j = 0; j < c->shape.n_sym; j++)
            if (rows_independent(p, j) && (!c->sampled || sym[j] > sym[c->sample_sym])) {
                c->sampled = true;
                c->sample_sym = j;
            }
    if (c->sampled)
        choose_rows(c);
    if (!c->sampled && c->shape.flops > FIXED_FLOPS)
        return FAIL(err, UNSUPPORTED, "the largest size is too large to be checked");
    v->n_cases = 1;
    rtx_status s = prepare(v, c, 77, err);
    v->seconds = (double)(base_now_ns() - t_ns) / 1e9;
    if (s != RTX_OK)
        tun_validator_done(v);
    return s;
}

void tun_validator_done(tun_validator *v)
{
    for (uint32_t i = 0; i < TUN_CASES; i++)
        for (uint32_t k = 0; k < SYN_OPERANDS_MAX; k++) {
            ir_tensor_done(&v->cases[i].ref[k]);
            ir_tensor_done(&v->cases[i].mag[k]);
        }
    for (uint32_t k = 0; k < SYN_OPERANDS_MAX; k++) {
        base_free(v->first[k]);
        base_free(v->other[k]);
    }
    tun_vector_done(&v->vector);
    tun_validator_detach(v);
    memset(v, 0, sizeof *v);
}
