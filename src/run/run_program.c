/* Opening a program: check the file, judge whether it fits, load the kernels of one level, describe the ports.
 *   layer    L3 run; may include base, format, device
 *   owner    everything hangs on rtx_program; rtx_program_close accepts a half-opened one */
#include "run_program.h"
#include "dev_cpu.h"
#include <stdio.h>

#ifndef RTX_VERSION
#define RTX_VERSION "0.1.0"
#endif
#ifndef RTX_COMMIT
#define RTX_COMMIT "unknown"
#endif

/* The two enumerations are one. */
_Static_assert((int)RTX_F32 == FMT_F32 && (int)RTX_I64 == FMT_I64 && (int)RTX_I32 == FMT_I32 &&
                   (int)RTX_BOOL == FMT_BOOL && (int)RTX_F16 == FMT_F16 &&
                   (int)RTX_BF16 == FMT_BF16 && (int)RTX_F64 == FMT_F64,
               "public element types have the values of the internal ones");
_Static_assert(RTX_RANK_MAX == FMT_RANK_MAX, "one limit on rank");

/* ---- ports ---- */

static const char *dim_text(rtx_program *p, fmt_dim d)
{
    AUTO_BUF base_buf text;
    base_buf_init(&text, BASE_TAG_RUN, SIZE_MAX);
    fmt_dim_print(p->plan->dims, d, &text);
    return text.failed ? NULL : base_arena_strn(&p->mem, text.data ? text.data : "", text.len);
}

static rtx_status describe_port(rtx_program *p, const fmt_port *from, run_port *to, rtx_err *err)
{
    const fmt_plan *plan = p->plan;
    to->pub.name = fmt_str_get(plan, from->name);
    to->pub.dtype = (rtx_dtype)from->dtype;
    to->pub.rank = from->rank;
    for (int i = 0; i < from->rank; i++) {
        fmt_dim d = to->dim[i] = from->dim[i];
        uint32_t sym;
        if (fmt_dim_is_const(plan->dims, d, &to->pub.dim[i])) {
            to->sym[i] = RUN_DIM_CONST;
            to->pub.lo[i] = to->pub.hi[i] = to->pub.dim[i];
            continue;
        }
        to->sym[i] = fmt_dim_is_sym(plan->dims, d, &sym) ? (int32_t)sym : RUN_DIM_EXPR;
        to->pub.dim[i] = -1;
        fmt_dim_range(plan->dims, d, &to->pub.lo[i], &to->pub.hi[i]);
        TRY_ALLOC(to->pub.dim_name[i] = dim_text(p, d), err);
    }
    return RTX_OK;
}

static rtx_status describe_ports(rtx_program *p, rtx_err *err)
{
    const fmt_plan *plan = p->plan;
    TRY_ALLOC(p->inputs = base_arena_array(&p->mem, plan->n_inputs, sizeof *p->inputs), err);
    TRY_ALLOC(p->outputs = base_arena_array(&p->mem, plan->n_outputs, sizeof *p->outputs), err);
    for (uint32_t i = 0; i < plan->n_inputs; i++)
        TRY(describe_port(p, &plan->inputs[i], &p->inputs[i], err));
    for (uint32_t i = 0; i < plan->n_outputs; i++)
        TRY(describe_port(p, &plan->outputs[i], &p->outputs[i], err));
    return RTX_OK;
}

/* ---- dimensions ---- */

/* All dimensions that a run evaluates, one by one; false when there are no more. */
static bool next_dim(const fmt_plan *plan, uint32_t *at, fmt_dim *out)
{
    uint32_t i = (*at)++, n_port_dims = (plan->n_inputs + plan->n_outputs) * FMT_RANK_MAX;
    if (i < plan->n_args)
        return *out = plan->args[i], true;
    i -= plan->n_args;
    if (i < plan->n_operands)
        return *out = plan->operands[i].offset, true;
    i -= plan->n_operands;
    if (i < plan->n_values)
        return *out = plan->values[i].elems, true;
    i -= plan->n_values;
    if (i >= n_port_dims)
        return false;
    uint32_t port = i / FMT_RANK_MAX, axis = i % FMT_RANK_MAX;
    const fmt_port *v =
        port < plan->n_inputs ? &plan->inputs[port] : &plan->outputs[port - plan->n_inputs];
    *out = axis < v->rank ? v->dim[axis] : FMT_DIM_BAD; /* BAD: nothing here */
    return true;
}

static bool is_input_dim(const rtx_program *p, uint32_t sym)
{
    for (uint32_t i = 0; i < p->plan->n_inputs; i++) {
        for (int d = 0; d < p->inputs[i].pub.rank; d++) {
            if (p->inputs[i].sym[d] == (int32_t)sym)
                return true;
        }
    }
    return false;
}

/* Every symbol that is used must be some input's dimension by itself, or no run could know it. */
static rtx_status check_symbols(rtx_program *p, rtx_err *err)
{
    const fmt_plan *plan = p->plan;
    p->n_syms = fmt_sym_count(plan->dims);
    fmt_dim d;
    for (uint32_t at = 0; next_dim(plan, &at, &d);)
        p->n_dims = MAX(p->n_dims, (uint32_t)(d + 1));
    for (uint32_t s = 0; s < p->n_syms; s++) {
        if (is_input_dim(p, s))
            continue;
        for (uint32_t at = 0; next_dim(plan, &at, &d);) {
            if (d >= 0 && fmt_dim_uses(plan->dims, d, s))
                return FAIL(err, CORRUPT, "no input has '%s' as a dimension of its own",
                            fmt_sym_get(plan->dims, s)->name);
        }
    }
    return RTX_OK;
}

/* ---- kernels ---- */

static bool same_blob(const fmt_kernel *a, const fmt_kernel *b)
{
    return a->code_offset == b->code_offset && a->code_bytes == b->code_bytes;
}

/* Load the blobs of the kernels marked in `used` (1 = of this level), each blob once, and set the entries. */
static rtx_status load_used(rtx_program *p, const uint8_t *used, rtx_err *err)
{
    const fmt_plan *plan = p->plan;
    AUTO_FREE dev_blob *blobs = NULL;
    AUTO_FREE const uint8_t **at = NULL;
    AUTO_FREE uint32_t *blob_kernel = NULL;
    TRY_ALLOC(blobs = base_zalloc_array(BASE_TAG_RUN, plan->n_kernels, sizeof *blobs), err);
    TRY_ALLOC(at = base_zalloc_array(BASE_TAG_RUN, plan->n_kernels, sizeof *at), err);
    TRY_ALLOC(blob_kernel = base_zalloc_array(BASE_TAG_RUN, plan->n_kernels, sizeof *blob_kernel),
              err);
    size_t n = 0;
    for (uint32_t i = 0; i < plan->n_kernels; i++) {
        const fmt_kernel *k = &plan->kernels[i];
        size_t b = 0;
        while (used[i] && b < n && !same_blob(k, &plan->kernels[blob_kernel[b]]))
            b++;
        if (!used[i] || b < n)
            continue;
        blob_kernel[n] = i;
        blobs[n++] = (dev_blob){plan->code + k->code_offset, (size_t)k->code_bytes, k->code_hash,
                                fmt_str_get(plan, k->name)};
    }
    TRY(dev_code_load(blobs, n, &p->code, at, err));
    for (uint32_t i = 0; i < plan->n_kernels; i++) {
        const fmt_kernel *k = &plan->kernels[i];
        size_t b = 0;
        while (used[i] && !same_blob(k, &plan->kernels[blob_kernel[b]]))
            b++;
        if (!used[i])
            continue;
        const uint8_t *plan_at = at[b] + k->plan_entry, *run_at = at[b] + k->run_entry;
        memcpy(&p->kernels[i].plan, &plan_at,
               sizeof plan_at); /* ISO C knows no cast from data to functions */
        memcpy(&p->kernels[i].run, &run_at, sizeof run_at);
        dev_code_perf_map(run_at, (size_t)(k->code_bytes - k->run_entry),
                          fmt_str_get(plan, k->name));
    }
    return RTX_OK;
}

static rtx_status load_kernels(rtx_program *p, rtx_err *err)
{
    const fmt_plan *plan = p->plan;
    AUTO_FREE uint8_t *used = NULL;
    TRY_ALLOC(used = base_zalloc(BASE_TAG_RUN, plan->n_kernels), err);
    TRY_ALLOC(p->kernels = base_zalloc_array(BASE_TAG_RUN, plan->n_kernels, sizeof *p->kernels),
              err);
    for (uint32_t i = 0; i < plan->n_rows; i++) {
        if (plan->rows[i].isa == p->verdict.isa)
            used[plan->rows[i].kernel] = 1;
    }
    return load_used(p, used, err);
}

/* ---- open and close ---- */

static rtx_status default_threads(int asked, int *out, rtx_err *err)
{
    if (asked < 0 || asked > BASE_POOL_MAX)
        return FAIL(err, INVALID, "%d threads; 1 to %d are possible", asked, BASE_POOL_MAX);
    int64_t env = base_env_int(BASE_ENV_THREADS, 0, BASE_POOL_MAX);
    *out = asked ? asked : env ? (int)env : MIN(base_cpu_count(), BASE_POOL_MAX);
    return RTX_OK;
}

static rtx_status open_into(rtx_program *p, const char *path, const run_machine *machine,
                            rtx_err *err)
{
    TRY(fmt_bundle_open(path, base_cpu_count(), &p->bundle, err));
    fmt_span manifest = p->bundle.section[FMT_SEC_MANIFEST];
    TRY_ALLOC(p->manifest = base_alloc(BASE_TAG_RUN, (size_t)manifest.bytes + 1), err);
    memcpy(p->manifest, manifest.data, (size_t)manifest.bytes);
    p->manifest[manifest.bytes] = '\0';
    TRY(run_verdict_of(&p->bundle, p->manifest, machine, &p->verdict, err));
    TRY(run_verdict_allows(&p->verdict, err));
    p->plan = p->verdict.plan;
    TRY(describe_ports(p, err));
    TRY(check_symbols(p, err));
    TRY(run_place_init(&p->place, p->plan, &p->mem, err));
    return load_kernels(p, err);
}

rtx_status run_program_open_on(const char *path, int threads, const run_machine *machine,
                               rtx_program **out, rtx_err *err)
{
    int n = 0;
    TRY(default_threads(threads, &n, err));
    rtx_program *p = base_zalloc(BASE_TAG_RUN, sizeof *p);
    if (!p)
        return FAIL(err, NOMEM, "out of memory");
    p->threads = n;
    base_arena_init(&p->mem, BASE_TAG_RUN, 0);
    pthread_mutex_init(&p->lock, NULL);
    rtx_status status = open_into(p, path, machine, err);
    if (status != RTX_OK) {
        rtx_program_close(p);
        return status;
    }
    *out = p;
    return RTX_OK;
}

rtx_status rtx_program_open(const char *path, int threads, rtx_program **out, rtx_err *err)
{
    fmt_isa isa;
    TRY(dev_isa_allowed(&isa, err));
    AUTO_BUF base_buf facts;
    base_buf_init(&facts, BASE_TAG_RUN, SIZE_MAX);
    dev_cpu_facts(&facts);
    TRY(base_buf_ok(&facts, err));
    return run_program_open_on(path, threads, &(run_machine){isa, facts.data}, out, err);
}

void rtx_program_close(rtx_program *p)
{
    if (!p)
        return;
    run_contexts_free(p);
    for (int i = 0; i < RUN_LAUNCHES; i++)
        run_launch_unref(p->cache[i]);
    run_place_done(&p->place);
    dev_code_unload(&p->code);
    run_verdict_done(&p->verdict);
    base_free(p->kernels);
    base_free(p->manifest);
    base_arena_done(&p->mem);
    fmt_bundle_close(&p->bundle);
    pthread_mutex_destroy(&p->lock);
    base_free(p);
}

/* ---- questions ---- */

size_t rtx_program_input_count(const rtx_program *p) { return p->plan->n_inputs; }
size_t rtx_program_output_count(const rtx_program *p) { return p->plan->n_outputs; }

rtx_status rtx_program_input(const rtx_program *p, size_t i, rtx_port *out, rtx_err *err)
{
    if (i >= p->plan->n_inputs)
        return FAIL(err, INVALID, "input %zu; the program has %u", i, p->plan->n_inputs);
    *out = p->inputs[i].pub;
    return RTX_OK;
}

rtx_status rtx_program_output(const rtx_program *p, size_t i, rtx_port *out, rtx_err *err)
{
    if (i >= p->plan->n_outputs)
        return FAIL(err, INVALID, "output %zu; the program has %u", i, p->plan->n_outputs);
    *out = p->outputs[i].pub;
    return RTX_OK;
}

int rtx_program_settled(const rtx_program *p) { return run_place_settled(&p->place); }
const char *rtx_program_manifest(const rtx_program *p) { return p->manifest; }
const run_verdict *run_program_verdict(const rtx_program *p) { return &p->verdict; }
const fmt_bundle *run_program_bundle(const rtx_program *p) { return &p->bundle; }

static char version[96];

static void make_version(void)
{
    snprintf(version, sizeof version, "%s (commit %s), isa %s", RTX_VERSION, RTX_COMMIT,
             dev_isa_name(dev_cpu_get()->isa));
}

const char *rtx_version(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, make_version);
    return version;
}
