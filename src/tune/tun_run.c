/* One tuning run, in order: answers from the cache; for the rest candidates, compile, validate, screen, a second round of
 * moves, confirm, seal; then records, results and the ledger.
 *   budget     shares of the whole: moves stop at 40 %, screening at 55 %, confirmation at 70 %; what is needed to have
 *              one validated kernel a problem is always done
 *   no compiler, or one that hangs: a kernel of another size of the same problem serves, else the precompiled one */
#include "tun_session.h"
#include "dev_cpu.h"

#define QUICK_S      90.0
#define FULL_S       1800.0
#define SPACE_MAX    256
#define FIRST_ANCHOR 11 /* candidates of the first round: eight must survive */
#define FIRST_OTHER  5
#define MOVES        4    /* candidates of each later round, anchors only */
#define MORE_UNTIL   0.40 /* of the budget: no new candidates after */
#define FILL_UNTIL   0.60 /* but for those in place of rejected ones */
#define GAIN_LEAST   0.01

/* ---- setting up ---- */

static bool has_anchor(const syn_problem *p)
{
    for (ir_id id = 1; id < p->region->n_nodes; id++)
        if (ir_op_of(p->region, id) == IR_dot || ir_op_of(p->region, id) == IR_attention)
            return true;
    return false;
}

static uint32_t find_variant(const tun_job *j, const syn_variant *v)
{
    for (uint32_t i = 0; i < j->space.n; i++)
        if (j->variants[i].templ == v->templ &&
            memcmp(j->variants[i].value, v->value, v->templ->n_params * sizeof *v->value) == 0)
            return i;
    return FMT_NONE;
}

/* Forget the space, keeping nothing; records in the cache name variants by their parameters. */
static void drop_space(tun_job *j)
{
    for (uint32_t v = 0; j->cands && v < j->space.n; v++)
        base_free(j->cands[v].source);
    base_free(j->cands);
    base_free(j->state);
    base_free(j->score);
    base_free(j->guess);
    base_free(j->least);
    base_free(j->variants);
    j->guess = j->least = NULL;
    j->cands = NULL;
    j->state = NULL;
    j->score = NULL;
    j->variants = NULL;
    j->space = (tun_space){.rng = j->space.rng};
}

static void add_variant(tun_job *j, const syn_variant *v)
{
    if (v->templ && j->space.n < SPACE_MAX && find_variant(j, v) == FMT_NONE)
        j->variants[j->space.n++] = *v;
}

/* Variants of the problem: each size's static choice, then, if `full`, the list at the largest size (enumerating it takes a
 * while), else what the records name. */
static rtx_status list_variants(tun_session *s, tun_job *j, bool full, rtx_err *err)
{
    const tun_item *it = j->item;
    const int64_t *big = it->points[0].sym;
    TRY_ALLOC(j->variants = base_zalloc_array(BASE_TAG_TUNE, SPACE_MAX, sizeof *j->variants), err);
    for (uint32_t k = 0; k < it->n_points; k++) {
        syn_variant v = {0};
        syn_variant_default(it->problem, s->opt->isa, it->points[k].sym, &v);
        if (j->space.n < 32)
            add_variant(j, &v);
        if (j->spots[k].shape.flops + j->spots[k].shape.bytes >= 0 && it->points[k].sym[0] > big[0])
            big = it->points[k].sym;
    }
    j->space.n_seeds = j->space.n;
    if (full) {
        AUTO_FREE syn_variant *list = NULL;
        TRY_ALLOC(list = base_zalloc_array(BASE_TAG_TUNE, SPACE_MAX, sizeof *list), err);
        size_t n = syn_variant_list(it->problem, s->opt->isa, s->known ? &s->facts : NULL, big,
                                    list, SPACE_MAX);
        for (size_t i = 0; i < n; i++)
            add_variant(j, &list[i]);
    }
    for (uint32_t k = 0; !full && !s->opt->static_rule && k < j->n_spots; k++) {
        syn_variant v = {0};
        if (j->spots[k].params[0] && syn_variant_parse(j->templ, j->spots[k].params, &v))
            add_variant(j, &v);
    }
    if (s->opt->variants)
        j->space.n = (uint32_t)s->opt->variants(s->opt->variants_ctx, it->problem, s->opt->isa,
                                                j->variants, j->space.n, SPACE_MAX);
    if (j->space.n == 0)
        return FAIL(err, UNSUPPORTED, "%s has no legal variant for this problem", j->templ->name);
    return RTX_OK;
}

static rtx_status make_space(tun_session *s, tun_job *j, bool full, rtx_err *err)
{
    drop_space(j);
    TRY(list_variants(s, j, full, err));
    j->space.n_seeds = MAX(MIN(j->space.n_seeds, j->space.n), 1);
    j->space.variant = j->variants;
    TRY_ALLOC(j->space.state = j->state = base_zalloc_array(BASE_TAG_TUNE, j->space.n, 1), err);
    TRY_ALLOC(j->space.score = j->score =
                  base_zalloc_array(BASE_TAG_TUNE, j->space.n, sizeof *j->score),
              err);
    TRY_ALLOC(j->cands = base_zalloc_array(BASE_TAG_TUNE, j->space.n, sizeof *j->cands), err);
    for (uint32_t v = 0; v < j->space.n; v++) {
        AUTO_BUF base_buf b;
        base_buf_init(&b, BASE_TAG_TUNE, sizeof j->cands[v].params - 1);
        syn_variant_print(&j->variants[v], &b);
        TRY(base_buf_ok(&b, err));
        j->cands[v] = (tun_cand){.variant = j->variants[v], .error = -1};
        snprintf(j->cands[v].params, sizeof j->cands[v].params, "%s", b.data ? b.data : "");
    }
    for (uint32_t k = 0; k < j->n_spots; k++) {
        syn_variant v = {0};
        syn_variant_default(j->item->problem, s->opt->isa, j->spots[k].point->sym, &v);
        uint32_t base = v.templ && !s->opt->variants ? find_variant(j, &v) : 0;
        j->spots[k].base = base == FMT_NONE ? 0 : base;
    }
    return RTX_OK;
}

/* ---- tools and facts ---- */

static void use_profile(tun_session *s, const tun_hw *hw)
{
    s->hw = s->report->hw = *hw;
    s->facts = tun_hw_facts(hw);
    s->known = true;
}

/* A worker, and the profile that it agrees with. */
static rtx_status open_tools(tun_session *s, rtx_err *err)
{
    tun_hw hw;
    if (!s->have_worker) {
        TRY(tun_worker_open(&s->worker, err));
        s->have_worker = true;
        tun_timer_init(&s->timer, &s->worker, s->opt->isa);
        s->origin = (tun_origin){.real_clock = s->timer.clock->real, .real_device = true};
    }
    if (s->checked)
        return RTX_OK;
    TRY(tun_tick(s, "profile", "cpu", 0, 1, err));
    tun_prober by = tun_prober_of(&s->worker, s->timer.clock);
    TRY(tun_profile_with(&by, &s->cache, s->opt->isa, false, &hw, err));
    use_profile(s, &hw);
    s->checked = true;
    tun_lap(s, &s->report->other_s);
    return RTX_OK;
}

/* Before any key is made. Where nothing can be measured, keys are those of an unknown machine; what is in the way is said
 * once something must be measured. */
static rtx_status learn_facts(tun_session *s, rtx_err *err)
{
    tun_hw hw;
    rtx_err why = {0};
    rtx_status status = RTX_OK;
    if (s->opt->hw) {
        use_profile(s, s->opt->hw);
        s->checked = true;
    } else if (tun_profile_with(NULL, &s->cache, s->opt->isa, false, &hw, NULL) == RTX_OK)
        use_profile(s, &hw);
    else if (s->have_cc)
        status = open_tools(s, &why);
    if (status != RTX_CANCELLED && status != RTX_NOMEM)
        return RTX_OK;
    if (err)
        *err = why;
    return status;
}

static rtx_status init_job(tun_session *s, tun_job *j, tun_item *it, rtx_err *err)
{
    j->item = it;
    if (it->n_points == 0)
        return FAIL(err, INVALID, "a problem without sizes to tune");
    TRY(syn_match(it->problem, &j->templ, err));
    AUTO_BUF base_buf b;
    base_buf_init(&b, BASE_TAG_TUNE, (size_t)1 << 20);
    TRY(syn_problem_text(it->problem, &b, err));
    TRY_ALLOC(j->problem = base_buf_take(&b, NULL), err);
    j->anchor = has_anchor(it->problem);
    j->fixed = s->opt->static_rule;
    TRY_ALLOC(j->spots = base_zalloc_array(BASE_TAG_TUNE, it->n_points, sizeof *j->spots), err);
    j->n_spots = it->n_points;
    for (uint32_t k = 0; k < j->n_spots; k++) {
        tun_spot *p = &j->spots[k];
        *p = (tun_spot){.job = j, .point = &it->points[k], .winner = FMT_NONE, .ways = 1};
        TRY(tun_shape_init(it->problem, p->point->sym, 0, &p->shape, err));
    }
    j->space.rng = base_xxh3(j->problem, strlen(j->problem)) | 1;
    return tun_book_keys(s, j, err);
}

static void free_job(tun_job *j)
{
    for (uint32_t k = 0; k < j->n_spots; k++) {
        tun_key_done(&j->spots[k].key);
        base_free(j->spots[k].samples[0]);
        base_free(j->spots[k].samples[1]);
        base_free(j->spots[k].predicted);
        base_free(j->spots[k].evidence);
    }
    drop_space(j);
    tun_validator_done(&j->validator);
    base_free(j->spots);
    base_free(j->problem);
}

static void close_session(tun_session *s)
{
    tun_worker_close(&s->worker);
    if (s->have_cc)
        tun_cc_close(&s->cc);
    for (uint32_t i = 0; s->jobs && i < s->n_jobs; i++)
        free_job(&s->jobs[i]);
    for (uint32_t i = 0; i < s->n_blobs; i++)
        base_free(s->blobs[i].bytes);
    base_free(s->blobs);
    base_free(s->jobs);
}

static rtx_status open_session(tun_session *s, tun_item *items, uint32_t n, rtx_err *err)
{
    s->budget_s = s->opt->budget_s > 0       ? s->opt->budget_s
                  : s->opt->mode == TUN_FULL ? FULL_S
                                             : QUICK_S;
    s->report->budget_s = s->budget_s;
    (s->opt->quiet ? tun_cache_open_quiet : tun_cache_open)(&s->cache, s->opt->cache,
                                                            dev_cpu_get()->name);
    s->report->warnings += s->cache.warned;
    s->have_cc = tun_cc_open(&s->cc, &s->cc_why) == RTX_OK;
    s->hw.cores = base_cpu_count();
    snprintf(s->hw.cpu, sizeof s->hw.cpu, "%s", dev_cpu_get()->name);
    TRY(learn_facts(s, err));
    TRY_ALLOC(s->jobs = base_zalloc_array(BASE_TAG_TUNE, MAX(n, 1), sizeof *s->jobs), err);
    for (uint32_t i = 0; i < n; i++) {
        s->n_jobs = i + 1;
        TRY(init_job(s, &s->jobs[i], &items[i], err));
    }
    return RTX_OK;
}

/* ---- answers from the cache ---- */

/* Records first: only where one is missing the whole space is needed, to search it. */
static rtx_status look_up_job(tun_session *s, tun_job *j, rtx_err *err)
{
    bool full = s->opt->redo;
    for (uint32_t k = 0; k < j->n_spots; k++) {
        tun_spot *p = &j->spots[k];
        p->hit = !s->opt->redo && tun_book_load(s, p);
        if (s->opt->redo)
            snprintf(p->cache, sizeof p->cache, "miss: measured again as asked");
        full |= !p->hit;
    }
    for (;;) {
        bool again = full;
        TRY(make_space(s, j, full && s->have_cc && !s->opt->static_rule, err));
        for (uint32_t k = 0; k < j->n_spots; k++)
            if (j->spots[k].hit && !tun_book_code(s, &j->spots[k])) {
                j->spots[k].hit = false;
                full = true;
            }
        if (again == full)
            break;
    }
    for (uint32_t k = 0; k < j->n_spots; k++) {
        j->spots[k].done = j->spots[k].hit;
        j->missing |= !j->spots[k].hit;
        s->report->keys++;
        s->report->hits += j->spots[k].hit;
    }
    return RTX_OK;
}

static rtx_status look_up(tun_session *s, bool *out_missing, rtx_err *err)
{
    for (uint32_t i = 0; i < s->n_jobs; i++) {
        TRY(look_up_job(s, &s->jobs[i], err));
        *out_missing |= s->jobs[i].missing;
    }
    tun_lap(s, &s->report->other_s);
    return RTX_OK;
}

/* The worker found another machine than the kept profile says: other keys, other answers. */
static rtx_status look_up_again(tun_session *s, bool *out_missing, rtx_err *err)
{
    s->report->keys = s->report->hits = 0;
    *out_missing = false;
    for (uint32_t i = 0; i < s->n_jobs; i++) {
        tun_job *j = &s->jobs[i];
        for (uint32_t k = 0; k < j->n_spots; k++)
            tun_key_done(&j->spots[k].key);
        j->missing = false;
        TRY(tun_book_keys(s, j, err));
    }
    return look_up(s, out_missing, err);
}

static bool same_facts(const hw_facts *a, const hw_facts *b, fmt_isa isa)
{
    for (int f = 0; f < HW_FACTS; f++)
        if (hw_fact_value(a, isa, (hw_fact)f) != hw_fact_value(b, isa, (hw_fact)f))
            return false;
    return true;
}

/* ---- searching ---- */

static rtx_status room_for_samples(tun_session *s, rtx_err *err)
{
    for (uint32_t i = 0; i < s->n_jobs; i++)
        for (uint32_t k = 0; k < s->jobs[i].n_spots; k++) {
            tun_spot *p = &s->jobs[i].spots[k];
            uint32_t n = s->jobs[i].space.n;
            if (p->hit)
                continue;
            TRY_ALLOC(p->samples[0] = base_zalloc_array(BASE_TAG_TUNE, n, sizeof *p->samples[0]),
                      err);
            TRY_ALLOC(p->samples[1] = base_zalloc_array(BASE_TAG_TUNE, n, sizeof *p->samples[1]),
                      err);
            TRY_ALLOC(p->predicted = base_zalloc_array(BASE_TAG_TUNE, n, sizeof *p->predicted),
                      err);
        }
    for (uint32_t i = 0; i < s->n_jobs; i++)
        if (s->jobs[i].missing)
            TRY(tun_model_guess(s, &s->jobs[i], err));
    return RTX_OK;
}

/* What the strategy wants, less what is predicted hopeless; in its place more is asked for. */
static uint32_t ask_for(const tun_strategy *how, tun_job *j, uint32_t want)
{
    uint32_t asked = 0, out[SPACE_MAX];
    for (int again = 0; again < 8 && asked < want; again++) {
        uint32_t n = how->propose(&j->space, MIN(want - asked, SPACE_MAX), out);
        if (n == 0)
            break;
        asked += tun_model_prune(&j->space, j->least, out, n);
    }
    return asked;
}

/* Ask each job with open sizes for more candidates. Returns how many were asked for in all. */
static uint32_t propose(tun_session *s, bool first)
{
    const tun_strategy *how = tun_strategy_find(s->opt->strategy ? s->opt->strategy : "bandit");
    uint32_t asked = 0;
    for (uint32_t i = 0; i < s->n_jobs; i++) {
        tun_job *j = &s->jobs[i];
        uint32_t want = first ? j->anchor ? FIRST_ANCHOR : FIRST_OTHER : j->anchor ? MOVES : 0;
        if (!j->missing || !how)
            continue;
        for (uint32_t k = 0; first && k < j->n_spots; k++)
            if (!j->spots[k].hit)
                j->state[j->spots[k].base] = TUN_ASKED;
        if (s->opt->mode == TUN_FULL)
            want *= 3;
        if (first && how->all)
            want = SPACE_MAX;
        if (want)
            asked += ask_for(how, j, want);
    }
    return asked;
}

/* Geometric mean over open spots of the best time: what a round of moves must improve. */
static double standing(const tun_session *s)
{
    double sum = 0;
    uint32_t n = 0;
    for (uint32_t i = 0; i < s->n_jobs; i++)
        for (uint32_t k = 0; s->jobs[i].anchor && k < s->jobs[i].n_spots; k++) {
            const tun_spot *p = &s->jobs[i].spots[k];
            double best = 0;
            for (uint32_t v = 0; !p->hit && v < s->jobs[i].space.n; v++) {
                double ns = s->jobs[i].state[v] == TUN_GOOD ? tun_spot_ns(p, v, NULL) : 0;
                if (ns > 0 && (best == 0 || ns < best))
                    best = ns;
            }
            if (best > 0) {
                sum += __builtin_log(best);
                n++;
            }
        }
    return n ? __builtin_exp(sum / n) : 0;
}

static rtx_status try_candidates(tun_session *s, rtx_err *err)
{
    TRY(tun_phase_compile(s, err));
    TRY(tun_phase_validate(s, err));
    return tun_phase_screen(s, 0.55 * s->budget_s, err);
}

/* Candidates in place of those that validation rejected, where too few are left. */
static uint32_t fill_up(tun_session *s)
{
    uint32_t asked = 0;
    for (uint32_t i = 0; i < s->n_jobs; i++)
        if (s->jobs[i].missing && s->jobs[i].anchor && !s->opt->variants)
            asked += tun_model_reopen(&s->jobs[i].space, s->jobs[i].least);
    return asked;
}

static rtx_status search(tun_session *s, rtx_err *err)
{
    TRY(room_for_samples(s, err));
    (void)propose(s, true);
    TRY(try_candidates(s, err));
    for (int again = 0; again < 3 && tun_elapsed(s) < FILL_UNTIL * s->budget_s && fill_up(s);
         again++)
        TRY(try_candidates(s, err));
    uint32_t rounds = s->opt->mode == TUN_FULL ? 1000 : 1;
    for (uint32_t r = 0; r < rounds && tun_elapsed(s) < MORE_UNTIL * s->budget_s; r++) {
        double before = standing(s);
        tun_phase_scores(s);
        if (!propose(s, false))
            break;
        TRY(try_candidates(s, err));
        if (!(standing(s) < before * (1 - GAIN_LEAST)))
            break;
    }
    TRY(tun_phase_confirm(s, 0.7 * s->budget_s, err));
    return tun_phase_seal(s, err);
}

/* ---- results ---- */

/* A kernel that was tuned for another size of the problem, nearest in work. */
static uint32_t borrowed(const tun_spot *p)
{
    uint32_t v = FMT_NONE;
    double best = 0;
    for (uint32_t k = 0; k < p->job->n_spots; k++) {
        const tun_spot *q = &p->job->spots[k];
        double far = (q->shape.flops + 1) / (p->shape.flops + 1);
        if (far < 1)
            far = 1 / far;
        if (q->winner != FMT_NONE && p->job->cands[q->winner].sealed &&
            (v == FMT_NONE || far < best)) {
            v = q->winner;
            best = far;
        }
    }
    return v;
}

static rtx_status give_kernel(const tun_cand *c, tun_kernel *out, rtx_err *err)
{
    *out = (tun_kernel){.variant = c->variant,
                        .code_bytes = c->code.n_bytes,
                        .plan_entry = c->code.plan_entry,
                        .run_entry = c->code.run_entry};
    out->source = base_strdup(BASE_TAG_TUNE, c->source ? c->source : "");
    out->code = base_alloc(BASE_TAG_TUNE, MAX(c->code.n_bytes, 1));
    if (!out->source || !out->code) {
        base_free(out->source);
        base_free(out->code);
        return FAIL(err, NOMEM, "out of memory");
    }
    memcpy(out->code, c->code.bytes, c->code.n_bytes);
    return RTX_OK;
}

/* Something was tried, and trouble with tools kept nothing from being judged. */
static bool judged(const tun_job *j)
{
    bool any = false;
    for (uint32_t v = 0; v < j->space.n; v++) {
        rtx_status why = j->cands[v].why.code;
        if (j->state[v] != TUN_BAD || why == RTX_CANCELLED)
            continue;
        if (!tun_is_verdict(why))
            return false;
        any = true;
    }
    return any;
}

static rtx_status give_result(tun_job *j, rtx_err *err)
{
    tun_result *r = &j->item->result;
    *r = (tun_result){0};
    TRY_ALLOC(r->picks = base_zalloc_array(BASE_TAG_TUNE, j->n_spots, sizeof *r->picks), err);
    TRY_ALLOC(r->kernels = base_zalloc_array(BASE_TAG_TUNE, j->n_spots, sizeof *r->kernels), err);
    uint32_t at[SPACE_MAX];
    memset(at, 0xff, sizeof at);
    for (uint32_t k = 0; k < j->n_spots; k++) {
        tun_spot *p = &j->spots[k];
        uint32_t v = p->done ? p->winner : borrowed(p);
        r->picks[k] = (tun_pick){.kernel = FMT_NONE,
                                 .ways = p->done ? p->ways : p->point->threads,
                                 .ns = p->done ? p->ns : 0,
                                 .default_ns = p->done ? p->base_ns : 0,
                                 .cached = p->hit};
        if (v == FMT_NONE)
            continue;
        if (at[v] == FMT_NONE) {
            TRY(give_kernel(&j->cands[v], &r->kernels[r->n_kernels], err));
            at[v] = r->n_kernels++;
        }
        r->picks[k].kernel = at[v];
    }
    r->rejected = r->n_kernels == 0 && judged(j);
    return tun_book_evidence(j, &r->evidence, err);
}

static bool has_ready(const tun_job *j, fmt_isa isa)
{
    syn_problem *general = NULL;
    syn_source args[FMT_WORK_ARGS];
    uint32_t n;
    if (syn_problem_general(j->item->problem, &general, args, &n, COUNT_OF(args), NULL) != RTX_OK)
        return false;
    bool ready = syn_ready_find(general, isa) != NULL;
    syn_problem_free(general);
    return ready;
}

/* Evidence and records of what was measured now. */
static rtx_status record(tun_session *s, rtx_err *err)
{
    for (uint32_t i = 0; i < s->n_jobs; i++)
        for (uint32_t k = 0; k < s->jobs[i].n_spots; k++) {
            tun_spot *p = &s->jobs[i].spots[k];
            if (p->hit || p->winner == FMT_NONE || !s->jobs[i].cands[p->winner].sealed)
                continue;
            TRY(tun_book_candidates(p, &p->evidence, err));
            tun_model_log(s, p);
            p->done = true;
            if (p->ns > 0)
                tun_book_store(s, p);
        }
    return RTX_OK;
}

/* Fill all results; an item without any kernel needs a precompiled one. */
static rtx_status finish(tun_session *s, const rtx_err *trouble, rtx_err *err)
{
    rtx_status status = RTX_OK;
    TRY(record(s, err));
    for (uint32_t i = 0; i < s->n_jobs; i++) {
        tun_job *j = &s->jobs[i];
        TRY(give_result(j, err));
        if (status == RTX_OK && j->item->result.n_kernels == 0 && !has_ready(j, s->opt->isa)) {
            const char *why = j->why.text[0] ? j->why.text : trouble->text;
            status =
                FAIL(err, UNSUPPORTED, "%s: no kernel for this problem: %s", j->templ->name, why);
        }
    }
    tun_lap(s, &s->report->other_s);
    s->report->wall_s = tun_elapsed(s);
    s->report->warnings += s->cache.warned && !s->report->warnings;
    if (s->worker.killed && !s->report->warnings && !s->opt->quiet) {
        base_warn("rtx-worker was killed from outside (%u times) and started again",
                  s->worker.killed);
        s->report->warnings++;
    }
    return status;
}

/* Search for what is missing; trouble with tools leaves what the cache had and says why. */
static rtx_status search_missing(tun_session *s, rtx_err *trouble, rtx_err *err)
{
    const bool known = s->known;
    const hw_facts before = s->facts;
    bool missing = true;
    rtx_status status = s->have_cc ? open_tools(s, trouble) : s->cc_why.code;
    if (!s->have_cc)
        *trouble = s->cc_why;
    if (status == RTX_OK && !same_facts(known ? &before : NULL, &s->facts, s->opt->isa))
        status = look_up_again(s, &missing, trouble);
    if (status == RTX_OK && missing)
        status = search(s, trouble);
    if (!s->have_cc || status == RTX_COMPILE || status == RTX_NOT_FOUND ||
        status == RTX_UNSUPPORTED || status == RTX_IO || status == RTX_DEVICE) {
        snprintf(s->report->stopped, sizeof s->report->stopped, "%s: %.180s",
                 rtx_status_text(status), trouble->text);
        s->report->warnings++;
        return RTX_OK;
    }
    if (status != RTX_OK && err)
        *err = *trouble;
    return status;
}

rtx_status tun_run(tun_item *items, uint32_t n_items, const tun_options *opt, tun_report *report,
                   rtx_err *err)
{
    tun_report unused;
    tun_session s = {.opt = opt,
                     .report = report ? report : &unused,
                     .start_ns = base_now_ns(),
                     .lap_ns = base_now_ns()};
    s.worker = (tun_worker){.sock = -1, .mem_fd = -1};
    *s.report = (tun_report){0};
    for (uint32_t i = 0; i < n_items; i++)
        items[i].result = (tun_result){0};
    rtx_err trouble = {0};
    rtx_status status = open_session(&s, items, n_items, err);
    bool missing = false;
    if (status == RTX_OK)
        status = look_up(&s, &missing, err);
    if (status == RTX_OK && missing)
        status = search_missing(&s, &trouble, err);
    if (status == RTX_OK)
        status = finish(&s, &trouble, err);
    close_session(&s);
    for (uint32_t i = 0; status != RTX_OK && status != RTX_UNSUPPORTED && i < n_items; i++)
        tun_result_done(&items[i].result);
    return status;
}

void tun_result_done(tun_result *r)
{
    for (uint32_t k = 0; k < r->n_kernels; k++) {
        base_free(r->kernels[k].source);
        base_free(r->kernels[k].code);
    }
    base_free(r->kernels);
    base_free(r->picks);
    base_free(r->evidence);
    *r = (tun_result){0};
}
