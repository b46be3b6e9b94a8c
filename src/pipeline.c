/* The table of contents of rtx: every stage of a compilation, in order, with the reason for its place.
 *
 *   read      a model becomes a graph whose shape arithmetic is already symbolic
 *   bind      sizes the user fixes become constants before anything is folded with them
 *   passes    fold, raise, layout (see PASS_TABLE for why in this order)
 *   lower     regions become problems and buffers; constants get their packed form
 *   tune      each distinct problem gets its kernel for each bucket and thread count; the cut of the costliest regions is
 *             measured too, and lowered again where cutting is faster (pipe_cut.c)
 *   ready     the same graph again, cut to the precompiled set: serves the levels this host cannot tune for, and
 *             everything when there is no compiler
 *   seal      plans, kernels, constants, graph and evidence in one file, published atomically
 */
#include "pipeline.h"
#include "dev_cpu.h"
#include "pipe_cut.h"
#include "pipe_pin.h"
#include "pipe_seal.h"
#include <stdio.h>

static double seconds_since(uint64_t t) { return (double)(base_now_ns() - t) * 1e-9; }

/* ---- bind ---- */

typedef struct subst {
    const fmt_dim *map;
} subst;

static ir_id subst_node(void *ctx, const ir_graph *old, ir_id id, ir_graph *g, const ir_id *in)
{
    const fmt_dim *map = ((const subst *)ctx)->map;
    ir_op op = ir_op_of(old, id);
    if (op == IR_input) {
        ir_type t = *ir_type_of(old, id);
        for (int i = 0; i < t.rank; i++)
            t.dim[i] = fmt_dim_subst(old->dims, t.dim[i], g->dims, map);
        const char *name = "";
        for (uint32_t i = 0; i < old->n_inputs; i++)
            if (old->inputs[i].id == id)
                name = old->inputs[i].name;
        return ir_input(g, name, &t);
    }
    if (op == IR_const)
        return ir_copy_node(g, old, id, in);
    ir_attrs a = *ir_attrs_of(old, id);
    for (int i = 0; i < a.n_dims; i++)
        a.dims[i] = fmt_dim_subst(old->dims, a.dims[i], g->dims, map);
    for (int i = 0; i < a.n_sizes; i++)
        a.sizes[i] = fmt_dim_subst(old->dims, a.sizes[i], g->dims, map);
    return ir_emit(g, op, in, ir_node_get(old, id)->n_in, &a);
}

static rtx_status bind_shape(fmt_dims *d, const ir_graph *g, const pipe_sizes *s, rtx_err *err)
{
    for (uint32_t i = 0; i < g->n_inputs; i++) {
        const ir_type *t = ir_type_of(g, g->inputs[i].id);
        if (strcmp(g->inputs[i].name, s->name) != 0)
            continue;
        if (t->rank != s->n)
            return FAIL(err, INVALID, "--shape %s has %d sizes, the input has %d", s->name, s->n,
                        t->rank);
        for (int k = 0; k < t->rank; k++)
            if (!fmt_dim_unify(d, t->dim[k], fmt_dim_const(d, s->value[k])))
                return FAIL(err, INVALID, "--shape %s: axis %d cannot be %lld", s->name, k,
                            (long long)s->value[k]);
        return RTX_OK;
    }
    return FAIL(err, INVALID, "--shape names %s, which is no input of the model", s->name);
}

static rtx_status find_sym(const fmt_dims *d, const pipe_sizes *s, const char *flag, uint32_t *out,
                           rtx_err *err)
{
    *out = fmt_sym_find(d, s->name, strlen(s->name));
    if (*out == UINT32_MAX) {
        char names[256] = "";
        for (uint32_t i = 0, n = 0; i < fmt_sym_count(d) && n < sizeof names; i++) {
            const fmt_sym *free = fmt_sym_get(d, i);
            if (free->lo < free->hi)
                n += (uint32_t)snprintf(names + n, sizeof names - n, "%s%s", n ? ", " : "",
                                        free->name);
        }
        return FAIL(err, INVALID, "%s names %s, which is no free size of the model; it has %s",
                    flag, s->name, *names ? names : "none");
    }
    const fmt_sym *range = fmt_sym_get(d, *out);
    for (int i = 0; strcmp(flag, "--bucket") == 0 && i < s->n; i++)
        if (s->value[i] < range->lo || s->value[i] > range->hi)
            return FAIL(err, INVALID, "--bucket %s=%lld lies outside its range, %lld to %lld",
                        s->name, (long long)s->value[i], (long long)range->lo,
                        (long long)range->hi);
    return RTX_OK;
}

static rtx_status bind_sizes(const ir_graph *g, const pipe_options *opt, ir_graph **out,
                             rtx_err *err)
{
    fmt_dims *d = g->dims;
    uint32_t sym;
    for (int i = 0; i < opt->n_bounds; i++) {
        const pipe_sizes *s = &opt->bounds[i];
        TRY(find_sym(d, s, "--bound", &sym, err));
        if (s->n != 2 || s->value[0] < 0 || s->value[1] < s->value[0])
            return FAIL(err, INVALID, "--bound %s wants LO:HI with 0 <= LO <= HI", s->name);
        const fmt_sym *have = fmt_sym_get(d, sym);
        if (s->value[0] > have->hi || s->value[1] < have->lo)
            return FAIL(err, INVALID,
                        "--bound %s=%lld:%lld lies outside what the model implies, %lld:%lld",
                        s->name, (long long)s->value[0], (long long)s->value[1],
                        (long long)have->lo, (long long)have->hi);
        fmt_sym_bound(d, sym, s->value[0], s->value[1]);
    }
    for (int i = 0; i < opt->n_shapes; i++)
        TRY(bind_shape(d, g, &opt->shapes[i], err));
    uint32_t n = fmt_sym_count(d);
    AUTO_FREE fmt_dim *map = base_alloc_array(BASE_TAG_PASSES, n + 1, sizeof *map);
    if (map == NULL)
        return FAIL(err, NOMEM, "out of memory");
    for (uint32_t i = 0; i < n; i++) {
        const fmt_sym *s = fmt_sym_get(d, i);
        map[i] = s->lo == s->hi ? fmt_dim_const(d, s->lo) : fmt_dim_sym(d, i);
    }
    subst ctx = {map};
    return ir_rewrite(g, subst_node, &ctx, out, err);
}

/* ---- read and passes ---- */

rtx_status pipe_front(const char *model, const pipe_options *opt, fe_model **out_model,
                      ir_graph **out_graph, rtx_err *err)
{
    fe_options fo = {opt->binds, (size_t)opt->n_binds};
    fe_model *m = NULL;
    TRY(fe_open(model, &fo, &m, err));
    ir_graph *g = NULL;
    rtx_status s = bind_sizes(fe_graph(m), opt, &g, err);
    size_t n;
    const pass_info *pass = pass_table(&n);
    for (size_t i = 0; s == RTX_OK && i < n; i++) {
        ir_graph *next = NULL;
        if ((opt->without & PIPE_FUSION) && strcmp(pass[i].name, "layout") == 0)
            continue; /* the baseline keeps one call a model op */
        s = base_go_on(err);
        if (s == RTX_OK)
            s = pass[i].run(g, &next, err);
        if (s == RTX_OK && base_env_int(BASE_ENV_SPEC, 0, 3) > 0)
            s = ir_verify(next, err);
        if (s == RTX_OK) {
            ir_graph_free(g);
            g = next;
        }
    }
    if (s != RTX_OK) {
        ir_graph_free(g);
        fe_close(m);
        return s;
    }
    *out_model = m;
    *out_graph = g;
    return RTX_OK;
}

/* ---- buckets ---- */

static void default_sizes(const ir_graph *g, uint32_t sym, bool outermost_of_several,
                          pipe_buckets *b, int at)
{
    const fmt_sym *s = fmt_sym_get(g->dims, sym);
    b->n_size[at] = 0;
    for (int64_t v = 1; v <= 512; v *= outermost_of_several ? 8 : 2)
        if (v >= s->lo && v <= s->hi && (!outermost_of_several || v <= 8))
            b->size[at][b->n_size[at]++] = v;
    if (b->n_size[at] == 0)
        b->size[at][b->n_size[at]++] = s->lo > 512 ? s->lo : MIN(s->hi, 512);
}

/* The free sizes in the order of the inputs' axes; the first of several is the batch. */
rtx_status pipe_buckets_of(const ir_graph *g, const pipe_options *opt, pipe_buckets *out,
                           rtx_err *err)
{
    memset(out, 0, sizeof *out);
    for (uint32_t i = 0; i < g->n_inputs; i++) {
        const ir_type *t = ir_type_of(g, g->inputs[i].id);
        for (int k = 0; k < t->rank; k++)
            for (uint32_t s = 0; s < fmt_sym_count(g->dims); s++) {
                bool seen = !fmt_dim_uses(g->dims, t->dim[k], s);
                for (uint32_t j = 0; j < out->n_sym; j++)
                    seen |= out->sym[j] == s;
                if (!seen && out->n_sym < COUNT_OF(out->sym))
                    out->sym[out->n_sym++] = s;
            }
    }
    for (uint32_t j = 0; j < out->n_sym; j++)
        default_sizes(g, out->sym[j], j == 0 && out->n_sym > 1, out, (int)j);
    for (int i = 0; i < opt->n_buckets; i++) {
        uint32_t sym, j = 0;
        TRY(find_sym(g->dims, &opt->buckets[i], "--bucket", &sym, err));
        while (j < out->n_sym && out->sym[j] != sym)
            j++;
        if (j == out->n_sym)
            return FAIL(err, INVALID, "--bucket %s: the size is already fixed",
                        opt->buckets[i].name);
        memcpy(out->size[j], opt->buckets[i].value, sizeof out->size[j]);
        out->n_size[j] = opt->buckets[i].n;
    }
    return RTX_OK;
}

/* ---- tune ---- */

bool pipe_point_known(const tun_point *points, uint32_t n, const tun_point *p)
{
    for (uint32_t i = 0; i < n; i++)
        if (points[i].threads == p->threads && memcmp(points[i].sym, p->sym, sizeof p->sym) == 0)
            return true;
    return false;
}

enum { PLAN_SYMS_MAX = 256 };

uint32_t pipe_combos(const pipe_buckets *b)
{
    uint32_t n = 1;
    for (uint32_t j = 0; j < b->n_sym; j++)
        n *= (uint32_t)b->n_size[j];
    return n;
}

bool pipe_point_at(const lower_result *low, const lower_slot *s, const pipe_buckets *b,
                   uint32_t combo, tun_point *out)
{
    const fmt_dims *d = low->plan->dims;
    int64_t values[PLAN_SYMS_MAX] = {0};
    bool ok = fmt_sym_count(d) <= PLAN_SYMS_MAX;
    for (uint32_t i = 0; ok && i < fmt_sym_count(d); i++)
        values[i] = fmt_sym_get(d, i)->lo;
    for (uint32_t j = 0; ok && j < b->n_sym; combo /= (uint32_t)b->n_size[j++])
        values[b->sym[j]] = b->size[j][combo % (uint32_t)b->n_size[j]];
    *out = (tun_point){.threads = 1, .weight = s->uses};
    for (uint32_t i = 0; ok && i < s->n_sym; i++) {
        ok = fmt_dim_eval(d, s->sym[i], values, &out->sym[i]);
        out->sym[i] = MAX(out->sym[i], 0); /* below: data of a dimvals, or nothing that can run */
    }
    return ok;
}

/* Every combination of bucket sizes, as values of the plan's symbols → the distinct sizes of one slot. */
static rtx_status slot_points(const lower_result *low, const lower_slot *s, const pipe_buckets *b,
                              const pipe_options *o, tun_item *item, rtx_err *err)
{
    uint32_t total = pipe_combos(b);
    if (fmt_sym_count(low->plan->dims) > PLAN_SYMS_MAX)
        return FAIL(err, LIMIT, "the program has more than %d free sizes", PLAN_SYMS_MAX);
    tun_point *points =
        base_zalloc_array(BASE_TAG_TUNE, (size_t)total * (size_t)o->n_threads, sizeof *points);
    TRY_ALLOC(points, err);
    item->problem = s->problem;
    item->points = points;
    for (uint32_t c = 0; s->uses > 0 && c < total; c++)
        for (int t = 0; t < o->n_threads; t++) {
            tun_point p;
            bool ok = pipe_point_at(low, s, b, c, &p);
            p.threads = o->threads[t];
            if (ok && !pipe_point_known(points, item->n_points, &p))
                points[item->n_points++] = p;
        }
    return RTX_OK;
}

void pipe_tuned_done(pipe_tuned *t)
{
    for (uint32_t i = 0; i < t->n; i++) {
        tun_result_done(&t->items[i].result);
        base_free((void *)t->items[i].points);
    }
    base_free(t->items);
    memset(t, 0, sizeof *t);
}

rtx_status pipe_tune_items(const lower_result *low, const pipe_buckets *b, const pipe_options *o,
                           pipe_tuned *out, rtx_err *err)
{
    TRY_ALLOC(out->items = base_zalloc_array(BASE_TAG_TUNE, low->n_slots + 1, sizeof *out->items),
              err);
    out->n = low->n_slots;
    for (uint32_t i = 0; i < low->n_slots; i++)
        TRY(slot_points(low, &low->slots[i], b, o, &out->items[i], err));
    return RTX_OK;
}

tun_options pipe_tun_options(const pipe_options *o)
{
    return (tun_options){.mode = o->tune == PIPE_FULL ? TUN_FULL : TUN_QUICK,
                         .isa = o->isa,
                         .budget_s = o->budget_s,
                         .cache = o->cache,
                         .deterministic = o->deterministic,
                         .redo = o->redo,
                         .progress = o->progress,
                         .progress_ctx = o->progress_ctx};
}

bool pipe_tuned_whole(const tun_item *it)
{
    bool whole = it->n_points == 0 || it->result.picks != NULL;
    for (uint32_t k = 0; whole && k < it->n_points; k++)
        whole = it->result.picks[k].kernel < it->result.n_kernels;
    return whole;
}

rtx_status pipe_tuned_all(const lower_result *low, const pipe_tuned *t, const tun_report *report,
                          rtx_err *err)
{
    for (uint32_t i = 0; i < t->n; i++)
        if (!pipe_tuned_whole(&t->items[i]))
            return report->stopped[0]
                       ? FAIL(err, UNSUPPORTED, "%s", report->stopped)
                       : FAIL(err, UNSUPPORTED, "no candidate for node '%s' was accepted",
                              fmt_str_get(low->plan, low->slots[i].name));
    return RTX_OK;
}

rtx_status pipe_tune_run(const lower_result *low, const pipe_options *o, pipe_tuned *out,
                         tun_report *report, rtx_err *err)
{
    tun_options to = pipe_tun_options(o);
    pipe_pin pin = {0};
    if (o->without & PIPE_PARAMETERS) {
        to.static_rule = true;
    } else if (o->pin != NULL) {
        TRY(pipe_pin_open(o->pin, &pin, err));
        to.variants = pipe_pin_variants;
        to.variants_ctx = &pin;
        to.variants_name = pin.name;
    }
    rtx_status s = (o->tuner ? o->tuner : tun_run)(out->items, out->n, &to, report, err);
    pipe_pin_done(&pin);
    TRY(s);
    TRY(pipe_tuned_all(low, out, report, err));
    if (report->stopped[0])
        base_warn("tuning stopped: %s", report->stopped);
    return RTX_OK;
}

rtx_status pipe_tune_slots(const lower_result *low, const pipe_buckets *b, const pipe_options *o,
                           pipe_tuned *out, tun_report *report, rtx_err *err)
{
    TRY(pipe_tune_items(low, b, o, out, err));
    return pipe_tune_run(low, o, out, report, err);
}

/* ---- the chain ---- */

rtx_status pipe_defaults(pipe_options *o, rtx_err *err)
{
    if (o->n_threads == 0) {
        int all = base_cpu_count();
        o->threads[o->n_threads++] = 1;
        if (all > 1)
            o->threads[o->n_threads++] = all;
    }
    return o->isa == 0 ? dev_isa_allowed(&o->isa, err) : RTX_OK;
}

typedef struct chain {
    fe_model *model;
    ir_graph *graph;
    lower_consts consts;
    lower_result baked, ready;
    pipe_tuned tuned;
    json_t *fusion; /* what decided on the cut, for the evidence */
    seal seal;
} chain;

static void chain_done(chain *c)
{
    seal_done(&c->seal);
    pipe_tuned_done(&c->tuned);
    json_decref(c->fusion);
    lower_result_done(&c->baked);
    lower_result_done(&c->ready);
    lower_consts_done(&c->consts);
    ir_graph_free(c->graph);
    fe_close(c->model);
}

/* Without a memory plan no lifetime ends, so that no buffer serves twice. */
static void forgo_memory(fmt_plan *p, unsigned without)
{
    for (uint32_t i = 0; i < p->n_values; i++) {
        if (without & PIPE_LARGE_PAGES)
            p->values[i].huge = 0;
        if (without & PIPE_MEMORY_PLAN && p->values[i].kind == FMT_VAL_TEMP && p->n_steps > 0) {
            p->values[i].first = 0;
            p->values[i].last = p->n_steps - 1;
        }
    }
}

static rtx_status run_chain(chain *c, const char *model, const pipe_options *o,
                            const char *out_path, pipe_report *rep, rtx_err *err)
{
    uint64_t t = base_now_ns();
    pipe_buckets buckets;
    TRY(pipe_front(model, o, &c->model, &c->graph, err));
    TRY(pipe_buckets_of(c->graph, o, &buckets, err));
    rep->passes_s = seconds_since(t);
    t = base_now_ns();
    bool tune = o->tune != PIPE_OFF;
    if (tune)
        TRY(lower_graph(c->graph, o->without & PIPE_FUSION ? LOWER_UNFUSED : LOWER_BAKED,
                        &c->consts, &c->baked, err));
    rep->lower_s = seconds_since(t);
    t = base_now_ns();
    if (tune) {
        rtx_err why = {0};
        pipe_cut cut = {c->graph, &buckets, o, &c->consts};
        rtx_status s = pipe_cut_tune(&cut, &c->baked, &c->tuned, &c->fusion, &rep->tuning, &why);
        if (s == RTX_UNSUPPORTED) {
            rep->no_compiler = true;
            snprintf(rep->why_untuned, sizeof rep->why_untuned, "%.199s", why.text);
            base_warn("not tuned, precompiled kernels are used: %s", why.text);
            tune = false;
        } else if (s != RTX_OK) {
            if (err != NULL)
                *err = why;
            return s;
        }
    }
    if (tune)
        forgo_memory(c->baked.plan, o->without);
    rep->tune_s = seconds_since(t);
    t = base_now_ns();
    TRY(lower_graph(c->graph, LOWER_READY, &c->consts, &c->ready, err));
    rep->lower_s += seconds_since(t);
    t = base_now_ns();
    TRY(seal_init(&c->seal, c->graph, o, &buckets, err));
    c->seal.fusion = tune ? c->fusion : NULL;
    if (tune)
        TRY(seal_tuned(&c->seal, &c->baked, c->tuned.items, rep, err));
    TRY(seal_ready(&c->seal, &c->ready, rep, err));
    TRY(seal_write(&c->seal, &c->consts, out_path, rep, err));
    rep->write_s = seconds_since(t);
    return RTX_OK;
}

rtx_status pipe_compile(const char *model, const pipe_options *opt, const char *out_path,
                        pipe_report *report, rtx_err *err)
{
    uint64_t t = base_now_ns();
    pipe_options o = *opt;
    TRY(pipe_defaults(&o, err));
    memset(report, 0, sizeof *report);
    chain c = {0};
    rtx_status s = run_chain(&c, model, &o, out_path, report, err);
    chain_done(&c);
    report->total_s = seconds_since(t);
    return s;
}
