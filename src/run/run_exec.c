/* One run: bind, find the launch, point the steps at this run's memory, execute, look for traps.
 *   layer     L3 run; may include base, format
 *   memory    a context holds what one run at a time needs and is kept for the next one, so that a run of known sizes
 *             allocates nothing
 *   threads   every thread walks the same list of steps; they meet after a step if it or the next one is shared */
#include "run_program.h"

/* ---- contexts ---- */

static void context_free(run_context *c)
{
    if (!c)
        return;
    run_launch_unref(c->launch);
    base_free(c->syms);
    base_free(c->in);
    base_free(c->out);
    base_free(c->bufs);
    base_free(c->ahead);
    base_free(c->trap);
    base_free(c->arena);
    base_free(c->scratch);
    base_free(c->shares);
    base_free(c);
}

void run_contexts_free(rtx_program *p)
{
    while (p->contexts) {
        run_context *c = p->contexts;
        p->contexts = c->next;
        context_free(c);
    }
}

static run_context *context_new(const rtx_program *p)
{
    const fmt_plan *plan = p->plan;
    run_context *c = base_zalloc(BASE_TAG_RUN, sizeof *c);
    if (!c)
        return NULL;
    c->syms = base_zalloc_array(BASE_TAG_RUN, p->n_syms, sizeof *c->syms);
    c->in = base_zalloc_array(BASE_TAG_RUN, plan->n_inputs, sizeof *c->in);
    c->out = base_zalloc_array(BASE_TAG_RUN, plan->n_outputs, sizeof *c->out);
    c->bufs = base_zalloc_array(BASE_TAG_RUN, plan->n_operands, sizeof *c->bufs);
    c->ahead = base_zalloc_array(BASE_TAG_RUN, plan->n_steps, sizeof *c->ahead);
    c->trap = base_zalloc_array(BASE_TAG_RUN, plan->n_steps, sizeof *c->trap);
    if (!c->syms || !c->in || !c->out || !c->bufs || !c->ahead || !c->trap) {
        context_free(c);
        return NULL;
    }
    return c;
}

static rtx_status context_take(rtx_program *p, run_context **out, rtx_err *err)
{
    pthread_mutex_lock(&p->lock);
    run_context *c = p->contexts;
    if (c)
        p->contexts = c->next;
    pthread_mutex_unlock(&p->lock);
    if (!c)
        TRY_ALLOC(c = context_new(p), err);
    *out = c;
    return RTX_OK;
}

static void context_give(rtx_program *p, run_context *c)
{
    pthread_mutex_lock(&p->lock);
    c->next = p->contexts;
    p->contexts = c;
    pthread_mutex_unlock(&p->lock);
}

/* At least `need` bytes, content lost; on failure *block is NULL and *have 0. */
static rtx_status fit_block(uint8_t **block, uint64_t *have, uint64_t need, const char *what,
                            rtx_err *err)
{
    if (need <= *have)
        return RTX_OK;
    base_free(*block);
    *have = 0;
    *block = base_alloc(BASE_TAG_RUN, (size_t)need);
    if (!*block)
        return FAIL(err, NOMEM, "out of memory: %llu bytes for %s", (unsigned long long)need, what);
    *have = need;
    return RTX_OK;
}

/* Take the constants from where they lie now. */
static void context_point(rtx_program *p, run_context *c)
{
    const fmt_plan *plan = p->plan;
    c->placed = atomic_load_explicit(&p->place.generation, memory_order_acquire);
    for (uint32_t i = 0; i < plan->n_operands; i++) {
        uint32_t value = plan->operands[i].value;
        if (plan->values[value].kind == FMT_VAL_CONST)
            c->bufs[i] = (void *)(uintptr_t)(run_place_const(&p->place, plan, value) +
                                             c->launch->operand_bytes[i]);
    }
    for (uint32_t i = 0; i < plan->n_steps; i++) {
        if (plan->steps[i].next != FMT_NONE)
            c->ahead[i] = (const char *)run_place_const(&p->place, plan, plan->steps[i].next);
    }
}

/* Make c ready for launch l (whose reference it takes): memory, and all pointers that do not depend on the caller. */
static rtx_status context_fit(rtx_program *p, run_context *c, run_launch *l_taken, rtx_err *err)
{
    const fmt_plan *plan = p->plan;
    run_launch_unref(c->launch);
    c->launch = NULL; /* set at the end: bufs is valid only then */
    rtx_status status =
        fit_block(&c->arena, &c->arena_bytes, run_place_room(&p->place, l_taken->arena_bytes),
                  "temporary values", err);
    if (status == RTX_OK)
        status = fit_block(&c->scratch, &c->scratch_bytes,
                           l_taken->scratch_bytes * (uint64_t)l_taken->ways, "scratch", err);
    if (status == RTX_OK)
        status = fit_block((uint8_t **)&c->shares, &c->shares_bytes,
                           l_taken->n_shares * sizeof *c->shares, "shares of threads", err);
    if (status != RTX_OK) {
        run_launch_unref(l_taken);
        return status;
    }
    uint8_t *temps = run_place_temps(&p->place, c->arena, l_taken->arena_bytes);
    for (uint32_t i = 0; i < plan->n_operands; i++) {
        if (plan->values[plan->operands[i].value].kind == FMT_VAL_TEMP)
            c->bufs[i] =
                temps + l_taken->place[plan->operands[i].value] + l_taken->operand_bytes[i];
    }
    for (uint32_t i = 0; i < l_taken->n_shares; i++)
        base_share_reset(&c->shares[i]);
    c->launch = l_taken;
    context_point(p, c);
    return RTX_OK;
}

static rtx_status find_launch(rtx_program *p, run_context *c, int threads, rtx_err *err)
{
    run_launch *l = c->launch;
    if (l && l->threads == threads && memcmp(l->syms, c->syms, p->n_syms * sizeof *c->syms) == 0) {
        if (c->placed != atomic_load_explicit(&p->place.generation, memory_order_relaxed))
            context_point(p, c);
        return RTX_OK;
    }
    TRY(run_launch_get(p, c->syms, threads, &l, err));
    return context_fit(p, c, l, err);
}

/* ---- execution ---- */

static void exec_steps(void *ctx, int t, int n)
{
    run_context *c = ctx;
    const run_launch *l = c->launch;
    k_call call = {.scratch = c->scratch ? c->scratch + (uint64_t)t * l->scratch_bytes : NULL};
    for (uint32_t i = 0; i < l->n_steps; i++) {
        const run_step *s = &l->steps[i];
        if (t < s->ways) {
            call.buf = c->bufs + s->operand;
            call.arg = s->arg;
            call.next = c->ahead[s->id];
            call.next_bytes = s->next_bytes;
            call.trap = &c->trap[s->id];
            int64_t begin = 0, end = s->units;
            if (s->ways == 1)
                s->run(&call, begin, end);
            else
                while (base_share_take(&c->shares[s->share], t, s->ways, s->units, &begin, &end))
                    s->run(&call, begin, end);
        }
        if (!s->barrier || n == 1)
            continue;
        base_barrier_wait(&c->barrier);
        if (t < s->ways && s->ways > 1)
            base_share_reset(
                &c->shares[s->share + (uint32_t)t]); /* nobody takes from it any more */
    }
}

static rtx_status check_traps(const rtx_program *p, run_context *c, rtx_err *err)
{
    const fmt_plan *plan = p->plan;
    uint32_t any = 0;
    for (uint32_t i = 0; i < plan->n_steps; i++)
        any |= c->trap[i];
    if (!any)
        return RTX_OK;
    uint32_t first = 0;
    while (!c->trap[first])
        first++;
    memset(c->trap, 0, plan->n_steps * sizeof *c->trap);
    return FAIL(err, INVALID, "index operand out of range in step %u (%s)", first,
                fmt_str_get(plan, plan->steps[first].name));
}

static rtx_status run_in(rtx_program *p, run_context *c, const rtx_tensor *inputs, size_t n_inputs,
                         rtx_tensor *outputs, size_t n_outputs, int threads, rtx_err *err)
{
    TRY(run_bind_inputs(p, inputs, n_inputs, true, c->syms, c->in, err));
    TRY(find_launch(p, c, threads, err));
    run_launch *l = c->launch;
    TRY(run_bind_outputs(p, l, outputs, n_outputs, c->in, c->out, err));
    for (uint32_t i = 0; i < l->n_patches; i++) {
        const run_patch *patch = &l->patches[i];
        uint8_t *base =
            patch->output ? c->out[patch->port] : (uint8_t *)(uintptr_t)c->in[patch->port];
        c->bufs[patch->operand] = base ? base + patch->offset_bytes : NULL;
    }
    if (l->ways > 1)
        base_barrier_init(&c->barrier, (uint32_t)l->ways);
    uint64_t t_ns = base_now_ns();
    TRY(base_pool_run(l->ways, exec_steps, c, err));
    run_place_more(&p->place, p->plan, &p->bundle.map, base_now_ns() - t_ns);
    return check_traps(p, c, err);
}

/* ---- public ---- */

rtx_status rtx_program_run(rtx_program *p, const rtx_tensor *inputs, size_t n_inputs,
                           rtx_tensor *outputs, size_t n_outputs, int threads, rtx_err *err)
{
    if (threads < 0 || threads > BASE_POOL_MAX)
        return FAIL(err, INVALID, "%d threads; 1 to %d are possible", threads, BASE_POOL_MAX);
    if (base_map_changed(&p->bundle.map))
        return FAIL(err, CORRUPT, "the bundle's file changed after it was opened; open it again");
    run_context *c;
    TRY(context_take(p, &c, err));
    rtx_status status =
        run_in(p, c, inputs, n_inputs, outputs, n_outputs, threads ? threads : p->threads, err);
    context_give(p, c);
    return status;
}

rtx_status rtx_program_shapes(rtx_program *p, const rtx_tensor *inputs, size_t n_inputs,
                              rtx_tensor *out_outputs, size_t n_outputs, rtx_err *err)
{
    uint32_t n = p->plan->n_outputs;
    if (n_outputs != n)
        return FAIL(err, INVALID, "room for %zu outputs; the program has %u", n_outputs, n);
    run_context *c;
    TRY(context_take(p, &c, err));
    rtx_status status = run_bind_inputs(p, inputs, n_inputs, false, c->syms, c->in, err);
    if (status == RTX_OK)
        status = find_launch(p, c, p->threads, err);
    if (status == RTX_OK) {
        for (uint32_t i = 0; i < n; i++) {
            void *data = out_outputs[i].data;
            out_outputs[i] = c->launch->outputs[i];
            out_outputs[i].data = data;
        }
    }
    context_give(p, c);
    return status;
}
