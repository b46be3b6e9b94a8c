/* From symbol values to resolved steps, once a distinct tuple of sizes and thread count.
 *   layer    L3 run; may include base, format
 *   cost     evaluation of every dimension of the plan, choice of a row and one plan call a step, and the memory plan: tens of
 *            microseconds for a hundred steps, paid when new sizes come; later runs find the launch in the cache
 *   threads  preparing happens outside the lock; two threads that need the same new launch may both prepare it */
#include "run_program.h"

#define DIM_UNKNOWN       INT64_MIN
#define SCRATCH_BYTES_MAX (INT64_C(1) << 32)
#define UNITS_MAX         FMT_DIM_LIMIT

/* Values of dimensions, evaluated when first asked for. */
typedef struct prep {
    const rtx_program *p;
    const fmt_plan *plan;
    run_launch *l;
    int64_t *dim;   /* n_dims */
    int64_t *args;  /* all arguments of the plan */
    int64_t *elems; /* of each value */
} prep;

static rtx_status dim_value(prep *w, fmt_dim d, int64_t *out, rtx_err *err)
{
    if (w->dim[d] == DIM_UNKNOWN && !fmt_dim_eval(w->plan->dims, d, w->l->syms, &w->dim[d]))
        return FAIL(err, INVALID,
                    "a size of the program overflows or divides by zero for these input shapes");
    *out = w->dim[d];
    return RTX_OK;
}

/* ---- sizes ---- */

static rtx_status value_sizes(prep *w, rtx_err *err)
{
    for (uint32_t i = 0; i < w->plan->n_limits; i++) {
        int64_t v = 0;
        TRY(dim_value(w, w->plan->limits[i], &v, err));
        if (v < 0)
            return FAIL(
                err, INVALID,
                "a size of the program would be %lld for these input shapes; it must not be "
                "below 0",
                (long long)v);
    }
    for (uint32_t i = 0; i < w->plan->n_values; i++) {
        TRY(dim_value(w, w->plan->values[i].elems, &w->elems[i], err));
        if (w->elems[i] < 0 || w->elems[i] > FMT_DIM_LIMIT)
            return FAIL(err, INVALID,
                        "a value of the program would have %lld elements for these input shapes",
                        (long long)w->elems[i]);
    }
    return RTX_OK;
}

/* Sizes of ports; a value that stands for a port must be exactly as large. */
static rtx_status port_size(prep *w, const run_port *port, rtx_tensor *shape, int64_t *out_bytes,
                            int64_t *out_elems, rtx_err *err)
{
    int64_t elems = 1;
    *shape = (rtx_tensor){.name = port->pub.name, .dtype = port->pub.dtype, .rank = port->pub.rank};
    for (int i = 0; i < port->pub.rank; i++) {
        TRY(dim_value(w, port->dim[i], &shape->dim[i], err));
        if (shape->dim[i] < 0 || __builtin_mul_overflow(elems, shape->dim[i], &elems) ||
            elems > FMT_DIM_LIMIT)
            return FAIL(err, INVALID, "'%s' would have an impossible size for these input shapes",
                        port->pub.name);
    }
    *out_elems = elems;
    *out_bytes = elems * (int64_t)fmt_dtype_bytes((fmt_dtype)port->pub.dtype);
    return RTX_OK;
}

static rtx_status port_sizes(prep *w, rtx_err *err)
{
    const fmt_plan *plan = w->plan;
    AUTO_FREE int64_t *elems = NULL;
    uint32_t n = plan->n_inputs + plan->n_outputs;
    TRY_ALLOC(elems = base_alloc_array(BASE_TAG_RUN, n, sizeof *elems), err);
    for (uint32_t i = 0; i < n; i++) {
        rtx_tensor input;
        bool is_input = i < plan->n_inputs;
        const run_port *port = is_input ? &w->p->inputs[i] : &w->p->outputs[i - plan->n_inputs];
        rtx_tensor *shape = is_input ? &input : &w->l->outputs[i - plan->n_inputs];
        TRY(port_size(w, port, shape, &w->l->port_bytes[i], &elems[i], err));
    }
    for (uint32_t i = 0; i < plan->n_values; i++) {
        const fmt_value *v = &plan->values[i];
        if (v->kind != FMT_VAL_INPUT && v->kind != FMT_VAL_OUTPUT)
            continue;
        if (w->elems[i] != elems[v->kind == FMT_VAL_INPUT ? v->index : plan->n_inputs + v->index])
            return FAIL(err, CORRUPT, "value %u of the plan does not have the size of its port", i);
    }
    return RTX_OK;
}

/* ---- memory ---- */

static rtx_status place_temps(prep *w, rtx_err *err)
{
    const fmt_plan *plan = w->plan;
    AUTO_FREE run_life *lives = NULL;
    TRY_ALLOC(lives = base_alloc_array(BASE_TAG_RUN, plan->n_values, sizeof *lives), err);
    uint32_t n = 0;
    for (uint32_t i = 0; i < plan->n_values; i++) {
        const fmt_value *v = &plan->values[i];
        if (v->kind == FMT_VAL_TEMP)
            lives[n++] =
                (run_life){.bytes = (uint64_t)w->elems[i] * fmt_dtype_bytes((fmt_dtype)v->dtype),
                           .first = v->first,
                           .last = v->last};
    }
    TRY(run_memory_place(lives, n, &w->l->arena_bytes, err));
    n = 0;
    for (uint32_t i = 0; i < plan->n_values; i++) {
        if (plan->values[i].kind == FMT_VAL_TEMP)
            w->l->place[i] = (int64_t)lives[n++].offset;
    }
    return RTX_OK;
}

static rtx_status place_operands(prep *w, rtx_err *err)
{
    for (uint32_t i = 0; i < w->plan->n_operands; i++) {
        const fmt_operand *o = &w->plan->operands[i];
        const fmt_value *v = &w->plan->values[o->value];
        int64_t offset = 0;
        TRY(dim_value(w, o->offset, &offset, err));
        /* a view without elements may begin outside (concat into an empty value, x[n-1::-1] with n = 0): never touched */
        offset = MAX(0, MIN(offset, w->elems[o->value]));
        w->l->operand_bytes[i] = offset * (int64_t)fmt_dtype_bytes((fmt_dtype)v->dtype);
        if (v->kind == FMT_VAL_INPUT || v->kind == FMT_VAL_OUTPUT)
            w->l->patches[w->l->n_patches++] =
                (run_patch){i, v->index, v->kind == FMT_VAL_OUTPUT, w->l->operand_bytes[i]};
    }
    return RTX_OK;
}

/* ---- steps ---- */

static rtx_status resolve_step(prep *w, uint32_t id, rtx_err *err)
{
    const fmt_plan *plan = w->plan;
    run_launch *l = w->l;
    const fmt_step *s = &plan->steps[id];
    const fmt_slot *slot = &plan->slots[s->slot];
    int64_t *arg = w->args + s->arg;
    for (uint32_t i = 0; i < s->n_args; i++)
        TRY(dim_value(w, plan->args[s->arg + i], &arg[i], err));
    int64_t measure[2];
    for (int i = 0; i < 2; i++)
        measure[i] = slot->measure[i] < 0 ? 0 : arg[slot->measure[i]];
    const fmt_row *row = fmt_plan_pick(plan, slot, w->p->verdict.isa, l->threads, measure);
    if (!row)
        return FAIL(err, INTERNAL, "step %u has no kernel for this level", id);
    const run_kernel *kernel = &w->p->kernels[row->kernel];
    int ways = row->ways == 1 ? 1 : l->threads;
    k_plan work = {0};
    kernel->plan(arg, ways, &work);
    if (work.units < 0 || work.units > UNITS_MAX || work.scratch_bytes < 0 ||
        work.scratch_bytes > SCRATCH_BYTES_MAX)
        return FAIL(err, INTERNAL, "kernel '%s' asks for %lld units and %lld bytes of scratch",
                    fmt_str_get(plan, plan->kernels[row->kernel].name), (long long)work.units,
                    (long long)work.scratch_bytes);
    if (work.units == 0)
        return RTX_OK;
    run_step *out = &l->steps[l->n_steps++];
    *out = (run_step){
        .run = kernel->run, .arg = arg, .units = work.units, .operand = s->operand, .id = id};
    out->ways = (int32_t)MIN((int64_t)ways, work.units);
    if (out->ways > 1) {
        out->share = l->n_shares;
        l->n_shares += (uint32_t)out->ways;
    }
    if (s->next != FMT_NONE)
        out->next_bytes = (int64_t)plan->values[s->next].bytes;
    l->ways = MAX(l->ways, out->ways);
    l->scratch_bytes = MAX(l->scratch_bytes, (uint64_t)work.scratch_bytes);
    return RTX_OK;
}

static rtx_status resolve_steps(prep *w, rtx_err *err)
{
    run_launch *l = w->l;
    l->ways = 1;
    for (uint32_t i = 0; i < w->plan->n_steps; i++)
        TRY(resolve_step(w, i, err));
    for (uint32_t i = 0; i < l->n_steps; i++) /* steps of thread 0 need no meeting between them */
        l->steps[i].barrier =
            l->steps[i].ways > 1 || (i + 1 < l->n_steps && l->steps[i + 1].ways > 1);
    if (l->scratch_bytes)
        l->scratch_bytes = (l->scratch_bytes + 63) / 64 * 64 + RUN_SKEW_BYTES;
    return RTX_OK;
}

/* ---- one launch ---- */

static rtx_status alloc_launch(prep *w, const int64_t *syms, int threads, rtx_err *err)
{
    const fmt_plan *plan = w->plan;
    run_launch *l = base_zalloc(BASE_TAG_RUN, sizeof *l);
    if (!l)
        return FAIL(err, NOMEM, "out of memory");
    w->l = l;
    base_arena *a = &l->mem;
    base_arena_init(a, BASE_TAG_RUN, 0);
    atomic_init(&l->refs, 1);
    l->threads = threads;
    int64_t *kept = base_arena_array(a, w->p->n_syms, sizeof *kept);
    w->args = base_arena_array(a, plan->n_args, sizeof *w->args);
    l->steps = base_arena_array(a, plan->n_steps, sizeof *l->steps);
    l->operand_bytes = base_arena_array(a, plan->n_operands, sizeof *l->operand_bytes);
    l->place = base_arena_array(a, plan->n_values, sizeof *l->place);
    l->patches = base_arena_array(a, plan->n_operands, sizeof *l->patches);
    l->outputs = base_arena_array(a, plan->n_outputs, sizeof *l->outputs);
    l->port_bytes =
        base_arena_array(a, (size_t)plan->n_inputs + plan->n_outputs, sizeof *l->port_bytes);
    if (a->failed)
        return FAIL(err, NOMEM, "out of memory");
    memcpy(kept, syms, w->p->n_syms * sizeof *kept);
    l->syms = kept;
    return RTX_OK;
}

static rtx_status fill_launch(prep *w, rtx_err *err)
{
    AUTO_FREE int64_t *dim = NULL;
    AUTO_FREE int64_t *elems = NULL;
    TRY_ALLOC(dim = base_alloc_array(BASE_TAG_RUN, w->p->n_dims, sizeof *dim), err);
    TRY_ALLOC(elems = base_alloc_array(BASE_TAG_RUN, w->plan->n_values, sizeof *elems), err);
    for (uint32_t i = 0; i < w->p->n_dims; i++)
        dim[i] = DIM_UNKNOWN;
    w->dim = dim;
    w->elems = elems;
    TRY(value_sizes(w, err));
    TRY(port_sizes(w, err));
    TRY(place_temps(w, err));
    TRY(place_operands(w, err));
    return resolve_steps(w, err);
}

static rtx_status prepare(const rtx_program *p, const int64_t *syms, int threads, run_launch **out,
                          rtx_err *err)
{
    prep w = {.p = p, .plan = p->plan};
    rtx_status status = alloc_launch(&w, syms, threads, err);
    if (status == RTX_OK)
        status = fill_launch(&w, err);
    if (status != RTX_OK) {
        run_launch_unref(w.l);
        return status;
    }
    *out = w.l;
    return RTX_OK;
}

void run_launch_unref(run_launch *l)
{
    if (!l || atomic_fetch_sub_explicit(&l->refs, 1, memory_order_acq_rel) != 1)
        return;
    base_arena_done(&l->mem);
    base_free(l);
}

/* ---- cache ---- */

static run_launch *find(rtx_program *p, const int64_t *syms, int threads)
{
    for (int i = 0; i < RUN_LAUNCHES; i++) {
        run_launch *l = p->cache[i];
        if (l && l->threads == threads && memcmp(l->syms, syms, p->n_syms * sizeof *syms) == 0) {
            l->used = ++p->tick;
            atomic_fetch_add_explicit(&l->refs, 1, memory_order_relaxed);
            return l;
        }
    }
    return NULL;
}

/* Keep a reference in a free place, else in that of the launch not used for longest, which is returned. */
static run_launch *keep(rtx_program *p, run_launch *l)
{
    int at = 0;
    for (int i = 0; i < RUN_LAUNCHES && p->cache[at]; i++) {
        if (!p->cache[i] || p->cache[i]->used < p->cache[at]->used)
            at = i;
    }
    run_launch *old = p->cache[at];
    atomic_fetch_add_explicit(&l->refs, 1, memory_order_relaxed);
    l->used = ++p->tick;
    p->cache[at] = l;
    return old;
}

rtx_status run_launch_get(rtx_program *p, const int64_t *syms, int threads, run_launch **out,
                          rtx_err *err)
{
    pthread_mutex_lock(&p->lock);
    run_launch *l = find(p, syms, threads);
    pthread_mutex_unlock(&p->lock);
    if (l) {
        *out = l;
        return RTX_OK;
    }
    TRY(prepare(p, syms, threads, &l, err));
    pthread_mutex_lock(&p->lock);
    run_launch *old = keep(p, l);
    pthread_mutex_unlock(&p->lock);
    run_launch_unref(old);
    *out = l;
    return RTX_OK;
}
