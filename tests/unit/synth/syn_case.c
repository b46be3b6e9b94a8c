/* Instances, buffers and comparison; structures are in syn_case_make.c. */
#include "syn_case.h"
#include "base_sys.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define SLOT      (1u << 20) /* bytes of one operand between its guard pages */
#define PAGE      4096u
#define ELEMS_MAX (1 << 17) /* of one operand; keeps the evaluator quick */
#define POISON    0xA5

const char *case_name(case_family f)
{
    static const char *const names[] = {
#define CASE_ROW(name, text) text,
        CASE_TABLE(CASE_ROW)
#undef CASE_ROW
    };
    return names[f];
}

/* ---- code ---- */

bool case_map(const uint8_t *code, size_t bytes, uint32_t plan, uint32_t run, case_code *out)
{
    void *m = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (m == MAP_FAILED)
        return false;
    memcpy(m, code, bytes);
    mprotect(m, bytes, PROT_READ | PROT_EXEC);
    *out = (case_code){m, bytes, (k_plan_fn)(uintptr_t)((char *)m + plan),
                       (k_run_fn)(uintptr_t)((char *)m + run)};
    return true;
}

void case_unmap(case_code *c) { munmap(c->map, c->bytes); }

int case_levels(fmt_isa out[3])
{
    int n = 0;
    out[n++] = FMT_ISA_V2;
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        out[n++] = FMT_ISA_V3;
    else
        printf("level v3: not on this CPU, not run\n");
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq"))
        out[n++] = FMT_ISA_V4;
    else
        printf("level v4: not on this CPU, not run\n");
    return n;
}

bool case_compile(const char *text, size_t len, fmt_isa isa, char **out_elf, size_t *out_bytes)
{
    char dir[] = "/tmp/rtx_syn_XXXXXX", src[64], so[64], command[2048];
    if (mkdtemp(dir) == NULL)
        return false;
    snprintf(src, sizeof src, "%s/k.c", dir);
    snprintf(so, sizeof so, "%s/k.so", dir);
    FILE *f = fopen(src, "w");
    bool ok = f && fwrite(text, 1, len, f) == len;
    ok = f && fclose(f) == 0 && ok;
    snprintf(command, sizeof command, "cc %s -o %s %s", syn_flags(isa), so, src);
    ok = ok && system(command) == 0 &&
         base_read_file(so, 1u << 26, out_elf, out_bytes, NULL) == RTX_OK;
    if (!ok)
        printf("cannot compile %s\n", src);
    else if (unlink(src) == 0 && unlink(so) == 0)
        rmdir(dir);
    return ok;
}

/* ---- buffers ---- */

static uint8_t *slot_at(uint32_t i)
{
    static uint8_t *base;
    const size_t pitch = SLOT + 2 * PAGE;
    if (base == NULL) {
        base = mmap(NULL, pitch * (SYN_OPERANDS_MAX + 1), PROT_NONE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        for (uint32_t k = 0; k <= SYN_OPERANDS_MAX; k++)
            mprotect(base + k * pitch + PAGE, SLOT, PROT_READ | PROT_WRITE);
    }
    return base + i * pitch + PAGE;
}

typedef struct operand {
    fmt_dtype dtype;
    int rank;
    int64_t dim[FMT_RANK_MAX], stride[FMT_RANK_MAX], elems;
    size_t size;
    uint8_t *lo, *first; /* lowest byte; first logical element */
    size_t bytes;        /* from lo to the end of the highest element */
} operand;

static uint8_t *element(const operand *o, int64_t number)
{
    int64_t at = 0;
    for (int k = o->rank - 1; k >= 0; k--) {
        at += number % o->dim[k] * o->stride[k];
        number /= o->dim[k];
    }
    return o->first + at * (int64_t)o->size;
}

/* Sizes and strides of one instance, and a place against a guard page. */
static bool place(const test_case *c, uint32_t index, const int64_t *sym, operand *o)
{
    const syn_problem *p = c->p;
    ir_id id =
        index < p->n_in ? p->region->inputs[index].id : p->region->outputs[index - p->n_in].id;
    const ir_type *t = ir_type_of(p->region, id);
    const case_layout *l = &c->lay[index];
    *o = (operand){
        .dtype = t->dtype, .rank = t->rank, .elems = 1, .size = fmt_dtype_bytes(t->dtype)};
    int64_t step = 1, low = 0, high = 0;
    for (int k = 0; k < t->rank; k++) {
        (void)fmt_dim_eval(p->dims, t->dim[k], sym, &o->dim[k]);
        o->elems *= o->dim[k];
    }
    for (int i = 0; i < t->rank; i++) {
        int k = l->order[i];
        if (l->zero[k]) {
            o->stride[k] = 0;
            continue;
        }
        step += l->gap[k];
        o->stride[k] = l->negative[k] ? -step : step;
        step *= MAX(o->dim[k], 1);
        if (o->dim[k] > 1)
            *(l->negative[k] ? &low : &high) += (o->dim[k] - 1) * o->stride[k];
    }
    o->bytes = o->elems ? (size_t)(high - low + 1) * o->size : 0;
    if (p->packed[index]) {
        o->bytes = 4 * syn_pack_floats(o->dim[o->rank - 2], o->dim[o->rank - 1]);
        low = 0;
    }
    if (o->bytes > SLOT || o->elems > ELEMS_MAX)
        return false;
    size_t room = SLOT - o->bytes;
    if (p->packed[index])
        room &= ~(size_t)63;
    o->lo = slot_at(index) + (rng_one_in(c->r, 4) ? 0 : room);
    o->first = o->lo + (uint64_t)-low * o->size;
    return true;
}

static void put_random(test_case *c, uint32_t index, const int64_t *sym, uint8_t *at, fmt_dtype t,
                       bool special)
{
    rng *r = c->r;
    double u = (double)(rng_next(r) >> 11) * 0x1p-53 * 4 - 2;
    int64_t i = rng_int(r, -9, 9);
    if (c->index_limit[index] != FMT_DIM_BAD) {
        int64_t n = 1;
        (void)fmt_dim_eval(c->p->dims, c->index_limit[index], sym, &n);
        i = n > 0 ? rng_int(r, (int)-n, (int)n - 1) : 0;
    }
    float f = special     ? (rng_one_in(r, 3)   ? NAN
                             : rng_one_in(r, 2) ? INFINITY
                                                : -INFINITY)
              : c->powers ? 1 - 2 * (float)(i & 1)
              : c->exact  ? (float)rng_int(r, -4, 4)
                          : (float)u;
    double d = f;
    int32_t i32 = (int32_t)i;
    uint16_t h = t == FMT_F16 ? fmt_f32_to_f16(f) : fmt_f32_to_bf16(f);
    switch (t) {
    case FMT_F32:
        memcpy(at, &f, 4);
        break;
    case FMT_F64:
        memcpy(at, &d, 8);
        break;
    case FMT_I64:
        memcpy(at, &i, 8);
        break;
    case FMT_I32:
        memcpy(at, &i32, 4);
        break;
    case FMT_F16:
    case FMT_BF16:
        memcpy(at, &h, 2);
        break;
    default:
        *at = (uint8_t)(rng_next(r) & 1);
        break;
    }
}

/* ---- comparison ---- */

typedef struct scale {
    const ir_graph *g;
    int64_t depth;
    double largest;
} scale; /* root mean square of the largest intermediate */

static bool see(void *ctx, ir_id id, const ir_tensor *v)
{
    scale *s = ctx;
    double sum = 0;
    int64_t n = 0;
    /* The terms of a dot are about 1 each; ir_eval gives their sums only where the dot is the output. */
    if (ir_op_of(s->g, id) == IR_dot && s->depth > 0)
        s->largest = MAX(s->largest, (double)s->depth / 2);
    for (int64_t i = 0; v->f && i < v->elems; i++)
        if (isfinite(v->f[i]))
            sum += v->f[i] * v->f[i], n++;
    if (n > 0)
        s->largest = MAX(s->largest, sqrt(sum / (double)n));
    return true;
}

static bool compare(const operand *o, const ir_tensor *want, double largest)
{
    AUTO_FREE uint8_t *bytes = base_alloc(BASE_TAG_SYNTH, (size_t)want->elems * o->size);
    ir_tensor_store(want, bytes);
    double err = 0, ref = 0;
    for (int64_t i = 0; i < o->elems; i++) {
        const uint8_t *got = element(o, i);
        if (o->dtype != FMT_F32) {
            bool half = o->dtype == FMT_F16 || o->dtype == FMT_BF16 || o->dtype == FMT_F64;
            bool both_nan = half && memcmp(got, bytes + (size_t)i * o->size, o->size) != 0 &&
                            !isfinite(want->f[i]);
            if (memcmp(got, bytes + (size_t)i * o->size, o->size) != 0 && !both_nan) {
                printf("  element %lld: bits differ (wanted %g)\n", (long long)i,
                       want->f ? want->f[i] : (double)want->i[i]);
                return false;
            }
            continue;
        }
        float g, w;
        memcpy(&g, got, 4);
        memcpy(&w, bytes + 4 * i, 4);
        if (isnan(w) ? !isnan(g) : isinf(w) ? g != w : !isfinite(g)) {
            printf("  element %lld: %g, wanted %g\n", (long long)i, (double)g, (double)w);
            return false;
        }
        if (isfinite(w)) {
            err += ((double)g - want->f[i]) * ((double)g - want->f[i]);
            ref += want->f[i] * want->f[i];
        }
    }
    double bound = 1e-6 * MAX(sqrt(ref), largest * sqrt((double)o->elems));
    if (sqrt(err) <= bound)
        return true;
    printf("  error %.3g, allowed %.3g\n", sqrt(err), bound);
    return false;
}

/* Bytes of an output that belong to no element still hold the poison. */
static bool untouched(const operand *o)
{
    AUTO_FREE uint8_t *own = base_zalloc(BASE_TAG_SYNTH, o->bytes + 1);
    for (int64_t i = 0; i < o->elems; i++)
        memset(own + (element(o, i) - o->lo), 1, o->size);
    for (size_t i = 0; i < o->bytes; i++)
        if (!own[i] && o->lo[i] != POISON)
            return false;
    return true;
}

static void dump(const test_case *c, const operand *o, uint32_t n)
{
    AUTO_BUF base_buf text;
    base_buf_init(&text, BASE_TAG_SYNTH, SIZE_MAX);
    (void)syn_problem_text(c->p, &text, NULL);
    printf("%s", text.data);
    for (uint32_t i = 0; i < n; i++) {
        printf("  operand %u:", i);
        for (int k = 0; k < o[i].rank; k++)
            printf(" %lld(%lld)", (long long)o[i].dim[k], (long long)o[i].stride[k]);
        printf("\n");
    }
    fflush(stdout);
}

/* ---- one instance ---- */

static uint32_t arguments(const test_case *c, const int64_t *sym, const operand *o,
                          const syn_source *from, uint32_t n_from, int64_t *out)
{
    int64_t own[512];
    uint32_t n = fmt_sym_count(c->p->dims), n_ops = c->p->n_in + c->p->n_out;
    memcpy(own, sym, n * sizeof *own);
    for (uint32_t i = 0; i < n_ops; i++)
        for (int k = 0; k < o[i].rank; k++)
            own[n++] = o[i].stride[k];
    for (uint32_t i = 0; from && i < n_from; i++)
        out[i] = from[i].constant ? from[i].value : own[from[i].value];
    if (from == NULL)
        memcpy(out, own, n * sizeof *own);
    return from ? n_from : n;
}

/* Scratch that ends at a guard page, but for the bytes below 64 that its alignment takes: those hold poison. */
static uint8_t *scratch_of(size_t bytes)
{
    static uint8_t *end;
    static size_t have;
    if (end == NULL || bytes > have) {
        if (end)
            munmap(end - have - PAGE, have + 2 * PAGE);
        have = (2 * bytes + 2 * PAGE - 1) & ~(size_t)(PAGE - 1);
        uint8_t *m = mmap(NULL, have + 2 * PAGE, PROT_NONE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (m == MAP_FAILED || mprotect(m + PAGE, have, PROT_READ | PROT_WRITE) != 0) {
            printf("no memory for %zu bytes of scratch\n", bytes);
            exit(1);
        }
        end = m + PAGE + have;
    }
    memset(end - 64, POISON, 64);
    return end - ((bytes + 63) & ~(size_t)63);
}

static bool scratch_kept(const uint8_t *scratch, size_t bytes)
{
    for (size_t i = bytes; i % 64 != 0; i++)
        if (scratch[i] != POISON)
            return false;
    return true;
}

static bool call(test_case *c, const case_code *code, const k_call *call_in)
{
    k_plan plan = {-1, -1};
    code->plan(call_in->arg, rng_int(c->r, 1, 8), &plan);
    size_t bytes = (size_t)plan.scratch_bytes;
    uint8_t *scratch = scratch_of(bytes);
    memset(scratch, 0xFF, bytes); /* NaN */
    k_call k = *call_in;
    k.scratch = scratch;
    for (int64_t at = 0; at < plan.units;) { /* a random split, in random pieces */
        int64_t n = rng_one_in(c->r, 2) ? plan.units - at : rng_int(c->r, 1, 3);
        n = MIN(n, plan.units - at);
        code->run(&k, at, at + n);
        at += n;
    }
    if (!scratch_kept(scratch, bytes)) {
        printf("  wrote behind its %zu bytes of scratch\n", bytes);
        return false;
    }
    return true;
}

/* Another split gives equal bits. */
static bool same_again(test_case *c, const case_code *code, const k_call *k, const operand *outputs)
{
    AUTO_BUF base_buf before;
    base_buf_init(&before, BASE_TAG_SYNTH, SIZE_MAX);
    for (uint32_t i = 0; i < c->p->n_out; i++) {
        base_buf_put(&before, outputs[i].lo, outputs[i].bytes);
        memset(outputs[i].lo, POISON, outputs[i].bytes);
    }
    if (!call(c, code, k))
        return false;
    const char *at = before.data;
    for (uint32_t i = 0; i < c->p->n_out; at += outputs[i].bytes, i++)
        if (outputs[i].bytes && memcmp(at, outputs[i].lo, outputs[i].bytes) != 0) {
            printf("  output %u: another split gives other bits\n", i);
            return false;
        }
    return true;
}

bool case_check(test_case *c, const case_code *code, const syn_source *from, uint32_t n_from)
{
    const syn_problem *p = c->p;
    int64_t sym[SYN_SYMS_MAX] = {0}, args[512];
    operand o[SYN_OPERANDS_MAX];
    uint32_t n_ops = p->n_in + p->n_out;
    for (int tries = 0, fits = 0; !fits; tries++) {
        for (uint32_t s = 0; s < fmt_sym_count(p->dims); s++) {
            int64_t hi = rng_one_in(c->r, 3) && tries < 20 ? c->large[s] : MIN(c->large[s], 5);
            sym[s] = rng_int(c->r, (int)c->small[s], (int)MAX(c->small[s], hi));
        }
        if (c->k_of != FMT_NONE && c->k_sym != FMT_NONE)
            sym[c->k_sym] = MIN(sym[c->k_sym], sym[c->k_of]);
        fits = 1;
        for (uint32_t i = 0; i < n_ops; i++)
            fits &= place(c, i, sym, &o[i]);
        if (!fits && tries == 100) {
            dump(c, o, n_ops);
            return false;
        }
    }
    ir_tensor in[SYN_OPERANDS_MAX + SYN_SYMS_MAX] = {0}, out[SYN_OPERANDS_MAX] = {0},
                                    sums[SYN_OPERANDS_MAX] = {0};
    AUTO_FREE uint8_t *flat = base_alloc(BASE_TAG_SYNTH, SLOT * 2);
    bool ok = true, special = rng_one_in(c->r, 10) && c->family != CASE_ATTENTION;
    for (uint32_t i = 0; i < n_ops; i++)
        memset(o[i].lo, POISON, o[i].bytes);
    for (uint32_t i = 0; i < p->n_in && ok; i++) {
        if (p->packed[i]) {
            for (int64_t e = 0; e < o[i].elems; e++)
                put_random(c, i, sym, flat + 4 * e, FMT_F32, special && rng_one_in(c->r, 50));
            int64_t one =
                o[i].dim[o[i].rank - 2] * o[i].dim[o[i].rank - 1]; /* one matrix for every batch */
            for (int64_t e = one; e < o[i].elems; e++)
                memcpy(flat + 4 * e, flat + 4 * (e - one), 4);
            syn_pack_b((const float *)(void *)flat, o[i].dim[o[i].rank - 2],
                       o[i].dim[o[i].rank - 1], o[i].dim[o[i].rank - 1], 1,
                       (float *)(void *)o[i].lo);
        } else {
            for (int64_t e = 0; e < o[i].elems; e++)
                put_random(c, i, sym, element(&o[i], e), o[i].dtype,
                           special && rng_one_in(c->r, 50) && (c->family != CASE_ROW || i == 0));
            for (int64_t e = 0; e < o[i].elems; e++)
                memcpy(flat + (size_t)e * o[i].size, element(&o[i], e), o[i].size);
        }
        ok = ir_tensor_from(flat, o[i].dtype, o[i].rank, o[i].dim, &in[i], NULL) == RTX_OK;
    }
    scale s = {.g = c->eval, .depth = o[0].rank ? o[0].dim[o[0].rank - 1] : 0};
    rtx_err err = {0};
    for (uint32_t k = 0; ok && k < fmt_sym_count(p->dims); k++)
        ok = ir_tensor_from(flat, FMT_BOOL, 1, &sym[k], &in[p->n_in + k], NULL) == RTX_OK;
    if (ok && ir_eval(c->eval, in, NULL, out, sums, 1u << 28, see, &s, &err) != RTX_OK) {
        printf("  ir_eval: %s\n", err.text);
        ok = false;
    }
    for (uint32_t i = 0; ok && i < p->n_out; i++) {
        double sum = 0;
        for (int64_t e = 0; sums[i].f && e < sums[i].elems; e++)
            sum += isfinite(sums[i].f[e]) ? sums[i].f[e] * sums[i].f[e] : 0;
        s.largest = sums[i].elems ? MAX(s.largest, sqrt(sum / (double)sums[i].elems)) : s.largest;
    }
    uint32_t n_args = arguments(c, sym, o, from, n_from, args), trap = 0;
    for (uint32_t i = n_args; i < COUNT_OF(args); i++)
        args[i] = INT64_MIN;
    void *buf[SYN_OPERANDS_MAX];
    for (uint32_t i = 0; i < n_ops; i++)
        buf[i] = o[i].first;
    ok = ok && call(c, code, &(k_call){.buf = buf, .arg = args, .trap = &trap});
    ok =
        ok && (!rng_one_in(c->r, 4) ||
               same_again(c, code, &(k_call){.buf = buf, .arg = args, .trap = &trap}, o + p->n_in));
    for (uint32_t i = 0; ok && i < p->n_out; i++)
        ok = (untouched(&o[p->n_in + i]) ||
              (printf("  output %u: wrote between elements\n", i), false)) &&
             compare(&o[p->n_in + i], &out[i], s.largest);
    if (trap) {
        printf("  trap without a reason\n");
        ok = false;
    }
    if (!ok)
        dump(c, o, n_ops);
    for (uint32_t i = 0; i < COUNT_OF(in); i++)
        ir_tensor_done(&in[i]);
    for (uint32_t i = 0; i < n_ops; i++) {
        ir_tensor_done(&out[i]);
        ir_tensor_done(&sums[i]);
    }
    return ok;
}
