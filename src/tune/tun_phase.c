/* The work of a tuning run, one function a phase: compile, validate, screen, confirm, seal. tun_run.c has the order. */
#include "tun_session.h"
#include <math.h>

#define UNIT_KERNELS                                                                               \
    8 /* kernels of one problem in a compilation unit: 50-75 ms, then 8-15 ms each */
#define MUST_KERNELS 2 /* of a problem, compiled whatever the budget */
#define COMPILE_SHARE                                                                              \
    0.6 /* of the budget: compilations that begin later get no candidate timed in time */
#define SCREEN_NS  UINT64_C(1000000)
#define CONFIRM_NS UINT64_C(2000000)
#define DROP       3.0  /* a screened candidate this much slower is not timed at larger sizes */
#define WAYS_GAIN  0.97 /* more threads must be this much faster to be used */

/* ---- clocks ---- */

double tun_elapsed(const tun_session *s) { return (double)(base_now_ns() - s->start_ns) / 1e9; }

void tun_lap(tun_session *s, double *bucket)
{
    uint64_t now = base_now_ns();
    *bucket += (double)(now - s->lap_ns) / 1e9;
    s->lap_ns = now;
}

rtx_status tun_tick(tun_session *s, const char *stage, const char *op, uint32_t done,
                    uint32_t total, rtx_err *err)
{
    TRY(base_go_on(err));
    if (s->opt->progress) {
        tun_progress p = {stage, op, done, total, MAX(s->budget_s - tun_elapsed(s), 0)};
        s->opt->progress(s->opt->progress_ctx, &p);
    }
    return RTX_OK;
}

/* Out of the search: with a reason that counts against it, or because the time to compile it ran out. */
static void reject(tun_session *s, tun_job *j, uint32_t v)
{
    j->state[v] = TUN_BAD;
    if (j->cands[v].why.code == RTX_CANCELLED)
        return;
    s->report->rejected++;
    tun_book_bad_put(s, j, &j->cands[v]);
    j->why = j->cands[v].why;
    base_log(3, "tune: %s %s rejected: %s", j->templ->name, j->cands[v].params, j->why.text);
}

/* ---- compile ---- */

typedef struct batch { /* what a unit holds */
    tun_job *job;
    uint32_t v[UNIT_KERNELS], n;
    bool must; /* without it a problem has no kernel: the budget's end does not count */
    base_buf text;
    rtx_err err; /* it could not be rendered */
} batch;

static rtx_status render(const tun_session *s, batch *b, rtx_err *err)
{
    base_buf_init(&b->text, BASE_TAG_TUNE, SIZE_MAX);
    syn_unit_begin(&b->text, s->opt->isa);
    for (uint32_t i = 0; i < b->n; i++) {
        char name[24];
        snprintf(name, sizeof name, "k%u", i);
        TRY(syn_unit_add(&b->text, b->job->item->problem, &b->job->cands[b->v[i]].variant,
                         s->opt->isa, name, err));
    }
    return base_buf_ok(&b->text, err);
}

/* Take the kernels out of a compiled unit. */
static rtx_status take_code(tun_session *s, batch *b, const tun_unit *u, rtx_err *err)
{
    fmt_kobj obj;
    TRY(fmt_kobj_read(u->elf, u->elf_bytes, &obj, err));
    tun_code code = {.n_bytes = obj.bytes};
    TRY_ALLOC(code.bytes = tun_blob_keep(s, obj.code, obj.bytes), err);
    memcpy(code.sha256, base_sha256_of(obj.code, obj.bytes).b, 32);
    for (uint32_t i = 0; i < b->n; i++) {
        char name[40];
        snprintf(name, sizeof name, "k%u_plan", i);
        TRY(fmt_kobj_entry(u->elf, u->elf_bytes, name, &code.plan_entry, err));
        snprintf(name, sizeof name, "k%u_run", i);
        TRY(fmt_kobj_entry(u->elf, u->elf_bytes, name, &code.run_entry, err));
        b->job->cands[b->v[i]].code = code;
    }
    return RTX_OK;
}

/* Compile batches. Failures of units end in their candidates' `why`. With keep_text the candidate, alone in its unit, owns
 * the text afterwards. */
static rtx_status compile_batches(tun_session *s, batch *batches, uint32_t n, bool keep_text,
                                  rtx_err *err)
{
    AUTO_FREE tun_unit *units = NULL;
    TRY_ALLOC(units = base_zalloc_array(BASE_TAG_TUNE, MAX(n, 1), sizeof *units), err);
    rtx_status status = RTX_OK;
    for (uint32_t i = 0; i < n; i++) {
        units[i].flags = syn_flags(s->opt->isa);
        units[i].must = batches[i].must;
        bool rendered = render(s, &batches[i], &batches[i].err) == RTX_OK;
        units[i].text = rendered ? batches[i].text.data : "#error not rendered\n";
    }
    uint64_t limit = s->start_ns + (uint64_t)(COMPILE_SHARE * s->budget_s * 1e9);
    status = tun_cc_run(&s->cc, units, n, MIN(s->hw.cores, 8), limit, err);
    for (uint32_t i = 0; i < n; i++) {
        batch *b = &batches[i];
        rtx_err why = b->err.code ? b->err : units[i].err;
        if (status == RTX_OK && units[i].elf && take_code(s, b, &units[i], &why) == RTX_OK) {
            s->report->compiled += b->n;
            if (keep_text)
                b->job->cands[b->v[0]].source = base_buf_take(&b->text, NULL);
        } else
            for (uint32_t k = 0; k < b->n; k++)
                b->job->cands[b->v[k]].why = why;
        base_free(units[i].elf);
        base_buf_done(&b->text);
    }
    return status;
}

static bool needs_code(const tun_job *j, uint32_t v)
{
    return j->state[v] == TUN_ASKED && !j->cands[v].code.n_bytes;
}

static bool has_code(const tun_job *j)
{
    for (uint32_t v = 0; v < j->space.n; v++)
        if (j->cands[v].code.n_bytes)
            return true;
    return false;
}

/* Batches of up to `most` kernels for all candidates without code. First come a few of each problem that has none at all. */
static rtx_status make_batches(tun_session *s, uint32_t most, batch **out, uint32_t *out_n,
                               rtx_err *err)
{
    uint32_t n = 0, cap = 0;
    for (uint32_t i = 0; i < s->n_jobs; i++)
        for (uint32_t v = 0; v < s->jobs[i].space.n; v++)
            cap += needs_code(&s->jobs[i], v);
    batch *list;
    TRY_ALLOC(list = base_zalloc_array(BASE_TAG_TUNE, MAX(cap, 1), sizeof *list), err);
    for (int must = 1; must >= 0; must--)
        for (uint32_t i = 0; i < s->n_jobs; i++) {
            tun_job *j = &s->jobs[i];
            uint32_t seen = 0, first = has_code(j) ? 0 : MIN(most, MUST_KERNELS);
            batch *b = NULL;
            for (uint32_t v = 0; v < j->space.n; v++) {
                if (!needs_code(j, v) || (seen++ < first) != must)
                    continue;
                if (!b || b->n == most) {
                    b = &list[n++];
                    *b = (batch){.job = j, .must = must};
                }
                b->v[b->n++] = v;
            }
        }
    *out = list;
    *out_n = n;
    return RTX_OK;
}

rtx_status tun_phase_compile(tun_session *s, rtx_err *err)
{
    for (uint32_t i = 0; i < s->n_jobs && !s->opt->redo;
         i++) /* what failed before is not tried again */
        for (uint32_t v = 0; v < s->jobs[i].space.n; v++)
            if (needs_code(&s->jobs[i], v) &&
                tun_book_bad_get(s, &s->jobs[i], &s->jobs[i].cands[v])) {
                s->jobs[i].state[v] = TUN_BAD;
                s->report->rejected++;
            }
    for (uint32_t most = UNIT_KERNELS;; most = 1) { /* then alone what failed in company */
        AUTO_FREE batch *list = NULL;
        uint32_t n = 0;
        TRY(make_batches(s, most, &list, &n, err));
        TRY(tun_tick(s, "compile", n ? list[0].job->templ->name : "", 0, n, err));
        if (n)
            TRY(compile_batches(s, list, n, false, err));
        if (most == 1 || n == 0)
            break;
    }
    for (uint32_t i = 0; i < s->n_jobs; i++)
        for (uint32_t v = 0; v < s->jobs[i].space.n; v++)
            if (needs_code(&s->jobs[i], v))
                reject(s, &s->jobs[i], v);
    tun_lap(s, &s->report->compile_s);
    return RTX_OK;
}

/* ---- validate ---- */

/* The small cases of a job, made on first use. */
static rtx_status attach(tun_session *s, tun_job *j, rtx_err *err)
{
    tun_validator *v = &j->validator;
    rtx_status status = v->n_cases ? tun_validator_attach(v, err)
                                   : tun_validator_init(v, &s->worker, j->item->problem,
                                                        j->item->points, j->item->n_points, err);
    if (status != RTX_OK)
        tun_validator_done(v);
    return status;
}

/* Without a reference nothing can be judged: all of the job's candidates fall. */
static void none_can(tun_job *j)
{
    for (uint32_t v = 0; v < j->space.n; v++)
        if (j->state[v] == TUN_ASKED) {
            j->state[v] = TUN_BAD;
            j->cands[v].why = j->why;
        }
}

static rtx_status validate_job(tun_session *s, tun_job *j, rtx_err *err)
{
    bool any = false;
    for (uint32_t v = 0; v < j->space.n; v++)
        any |= j->state[v] == TUN_ASKED;
    if (!any)
        return RTX_OK;
    if (attach(s, j, &j->why) != RTX_OK) {
        base_log(1, "tune: %s: %s", j->templ->name, j->why.text);
        none_can(j);
        return RTX_OK;
    }
    rtx_status status = RTX_OK;
    for (uint32_t v = 0; status == RTX_OK && v < j->space.n; v++) {
        tun_cand *c = &j->cands[v];
        if (j->state[v] != TUN_ASKED)
            continue;
        s->report->candidates++;
        status = tun_validate(&j->validator, &c->code, &c->error, &c->why);
        if (status == RTX_OK)
            j->state[v] = TUN_GOOD;
        else
            reject(s, j, v);
        if (tun_is_verdict(status))
            status = RTX_OK;
        else if (status != RTX_OK && err)
            *err = c->why;
        if (status == RTX_OK)
            status = tun_tick(s, "validate", j->templ->name, v, j->space.n, err);
    }
    tun_validator_detach(&j->validator);
    return status;
}

rtx_status tun_phase_validate(tun_session *s, rtx_err *err)
{
    for (uint32_t i = 0; i < s->n_jobs; i++)
        TRY(validate_job(s, &s->jobs[i], err));
    tun_lap(s, &s->report->validate_s);
    return RTX_OK;
}

/* ---- times of a spot ---- */

double tun_spot_ns(const tun_spot *p, uint32_t v, int *out_ways)
{
    if (!p->samples[0])
        return 0;
    const tun_samples *all = &p->samples[0][v], *one = &p->samples[1][v];
    bool single = one->n && (!all->n || all->best > WAYS_GAIN * one->best);
    if (out_ways)
        *out_ways = single ? 1 : p->point->threads;
    return single ? one->best : all->n ? all->best : 0;
}

static double best_ns(const tun_spot *p)
{
    double best = 0;
    for (uint32_t v = 0; v < p->job->space.n; v++) {
        double ns = p->job->state[v] == TUN_GOOD ? tun_spot_ns(p, v, NULL) : 0;
        if (ns > 0 && (best == 0 || ns < best))
            best = ns;
    }
    return best;
}

/* One sample (round TUN_ROUNDS: not of confirmation); a candidate that fails here is rejected everywhere. */
static rtx_status take_sample(tun_session *s, tun_spot *p, uint32_t v, bool one_way, uint32_t round,
                              uint64_t least_ns, rtx_err *err)
{
    tun_job *j = p->job;
    double ns = 0;
    rtx_status status = tun_time(&s->timer, &p->shape, &j->cands[v].code,
                                 one_way ? 1 : p->point->threads, least_ns, &ns, &j->cands[v].why);
    if (status == RTX_OK) {
        tun_samples_add(&p->samples[one_way][v], ns);
        if (round < TUN_ROUNDS)
            p->samples[one_way][v].round[round] = (float)ns;
        return RTX_OK;
    }
    if (!tun_is_verdict(status)) {
        if (err)
            *err = j->cands[v].why;
        return status;
    }
    reject(s, j, v);
    return RTX_OK;
}

/* ---- screen ---- */

/* The same problem and threads at the next smaller amount of work. */
static const tun_spot *smaller(const tun_spot *p)
{
    const tun_spot *best = NULL;
    for (uint32_t i = 0; i < p->job->n_spots; i++) {
        const tun_spot *q = &p->job->spots[i];
        if (!q->hit && q->point->threads == p->point->threads && q->shape.flops < p->shape.flops &&
            (!best || q->shape.flops > best->shape.flops))
            best = q;
    }
    return best;
}

static uint32_t timed_count(const tun_spot *p, uint32_t *out_left)
{
    uint32_t timed = 0;
    *out_left = 0;
    for (uint32_t v = 0; v < p->job->space.n; v++) {
        if (p->job->state[v] != TUN_GOOD)
            continue;
        bool have = p->samples[0][v].n > 0;
        timed += have;
        *out_left += !have && p->predicted[v] == 0;
    }
    return timed;
}

/* Is v hopeless at p, to judge by the next smaller size? Enough candidates are always kept. */
static bool hopeless(tun_spot *p, uint32_t v)
{
    const tun_spot *q = smaller(p);
    uint32_t left, timed = timed_count(p, &left);
    if (!q || v == p->base || timed + left <= TUN_TIMED_LEAST)
        return false;
    double best = best_ns(q), ns = tun_spot_ns(q, v, NULL);
    if (!(best > 0 && ns > DROP * best))
        return false;
    p->predicted[v] = ns / best;
    return true;
}

rtx_status tun_phase_screen(tun_session *s, double until_s, rtx_err *err)
{
    uint32_t most = 0;
    for (uint32_t i = 0; i < s->n_jobs; i++)
        most = MAX(most, s->jobs[i].space.n);
    for (uint32_t v = 0; v < most;
         v++) /* candidates outside, keys inside: neighbours in time are different keys */
        for (uint32_t i = 0; i < s->n_jobs; i++) {
            tun_job *j = &s->jobs[i];
            if (v >= j->space.n || j->state[v] != TUN_GOOD)
                continue;
            TRY(tun_tick(s, "screen", j->templ->name, v, most, err));
            for (uint32_t k = 0; k < j->n_spots && j->state[v] == TUN_GOOD; k++) {
                tun_spot *p = &j->spots[k];
                bool late = tun_elapsed(s) > until_s && best_ns(p) > 0;
                if (p->hit || p->samples[0][v].n || late || hopeless(p, v))
                    continue;
                TRY(take_sample(s, p, v, false, TUN_ROUNDS, SCREEN_NS, err));
            }
        }
    tun_lap(s, &s->report->measure_s);
    return RTX_OK;
}

void tun_phase_scores(tun_session *s)
{
    for (uint32_t i = 0; i < s->n_jobs; i++) {
        tun_job *j = &s->jobs[i];
        for (uint32_t v = 0; v < j->space.n; v++) {
            double sum = 0;
            uint32_t n = 0;
            for (uint32_t k = 0; k < j->n_spots; k++) {
                double ns = j->spots[k].hit ? 0 : tun_spot_ns(&j->spots[k], v, NULL);
                if (ns > 0) {
                    sum += log(ns / best_ns(&j->spots[k]));
                    n++;
                }
            }
            j->score[v] = n && j->state[v] == TUN_GOOD ? exp(sum / n) : 0;
        }
    }
}

/* ---- confirm ---- */

/* One thread's times at the same sizes serve as the one-way times of more threads. */
static const tun_spot *single_thread(const tun_spot *p)
{
    for (uint32_t i = 0; i < p->job->n_spots; i++) {
        const tun_spot *q = &p->job->spots[i];
        if (!q->hit && q->point->threads == 1 &&
            memcmp(q->point->sym, p->point->sym, p->shape.n_sym * sizeof *p->point->sym) == 0)
            return q;
    }
    return NULL;
}

static void share_single(tun_spot *p)
{
    const tun_spot *q = p->point->threads > 1 ? single_thread(p) : NULL;
    for (uint32_t v = 0; q && v < p->job->space.n; v++)
        if (q->samples[0][v].n)
            p->samples[1][v] = q->samples[0][v];
}

/* The `want` fastest and the static rule's choice. */
static uint32_t finalists(const tun_spot *p, uint32_t want, double within, uint32_t *out)
{
    uint32_t n = 0;
    double best = best_ns(p);
    while (n < want) {
        uint32_t next = FMT_NONE;
        double next_ns = 0;
        for (uint32_t v = 0; v < p->job->space.n; v++) {
            double ns = p->job->state[v] == TUN_GOOD ? tun_spot_ns(p, v, NULL) : 0;
            bool taken = false;
            for (uint32_t i = 0; i < n; i++)
                taken |= out[i] == v;
            if (ns > 0 && ns < within * best && !taken && (next == FMT_NONE || ns < next_ns)) {
                next = v;
                next_ns = ns;
            }
        }
        if (next == FMT_NONE)
            break;
        out[n++] = next;
    }
    bool has_base = false;
    for (uint32_t i = 0; i < n; i++)
        has_base |= out[i] == p->base;
    if (!has_base && p->job->state[p->base] == TUN_GOOD)
        out[n++] = p->base;
    return n;
}

/* Early rounds find who is in it at all; late ones settle between those that are close, where that is worth time. */
#define EARLY        3
#define EARLY_WITHIN 1.3
#define LATE_WITHIN  1.03

static rtx_status confirm_round(tun_session *s, uint32_t want, uint32_t round, uint32_t rounds,
                                rtx_err *err)
{
    bool late = round >= EARLY;
    for (uint32_t i = 0; i < s->n_jobs; i++) {
        tun_job *j = &s->jobs[i];
        TRY(tun_tick(s, "confirm", j->templ->name, round * s->n_jobs + i, rounds * s->n_jobs, err));
        for (uint32_t k = 0; k < j->n_spots; k++) {
            tun_spot *p = &j->spots[k];
            uint32_t list[16],
                n = p->hit ? 0 : finalists(p, want, late ? LATE_WITHIN : EARLY_WITHIN, list);
            if (late && (n < 2 || !j->anchor))
                continue;
            for (uint32_t c = 0; c < n; c++) {
                uint32_t v = list[(c + round) % n];
                if (j->state[v] == TUN_GOOD)
                    TRY(take_sample(s, p, v, false, round, CONFIRM_NS, err));
                if (j->state[v] == TUN_GOOD && p->point->threads > 1 && !single_thread(p))
                    TRY(take_sample(s, p, v, true, round, CONFIRM_NS, err));
            }
        }
    }
    return RTX_OK;
}

rtx_status tun_phase_confirm(tun_session *s, double until_s, rtx_err *err)
{
    uint32_t rounds = s->opt->mode == TUN_FULL ? 20 : EARLY + 5,
             want = s->opt->mode == TUN_FULL ? 5 : 3, extra = 2;
    for (uint32_t r = 0; r < rounds; r++) {
        double began = tun_elapsed(s);
        bool before = tun_sentinel_ok(&s->timer);
        TRY(confirm_round(s, want, r, rounds, err));
        bool after = tun_sentinel_ok(&s->timer);
        double took = tun_elapsed(s) - began;
        if ((!before || !after) && extra > 0) { /* a neighbour slowed this round: take one more */
            extra--;
            rounds++;
        }
        if (tun_elapsed(s) + took > until_s)
            break;
    }
    for (uint32_t i = 0; i < s->n_jobs; i++)
        for (uint32_t k = 0; k < s->jobs[i].n_spots; k++)
            if (!s->jobs[i].spots[k].hit) {
                share_single(&s->jobs[i].spots[k]);
                tun_spot_pick(&s->jobs[i].spots[k]);
            }
    tun_lap(s, &s->report->measure_s);
    return RTX_OK;
}

bool tun_spot_sure(const tun_spot *p, uint32_t v, uint32_t *out_rounds, uint32_t *out_faster)
{
    int ways = 1;
    double base_ns = tun_spot_ns(p, p->base, NULL), ns = tun_spot_ns(p, v, &ways);
    const tun_samples *of = p->samples[p->point->threads > 1 && ways == 1];
    *out_rounds = tun_samples_rounds(&of[v], &of[p->base], out_faster);
    return v == p->base || *out_rounds == 0 || 4 * *out_faster > 3 * *out_rounds ||
           !(base_ns > 0 && base_ns <= ns * (1 + TUN_UNSURE));
}

/* Winner among the good candidates of a spot, in canonical order within the tie band. */
void tun_spot_pick(tun_spot *p)
{
    tun_job *j = p->job;
    p->winner = FMT_NONE;
    p->ns = p->base_ns = 0;
    p->ways = 1;
    double best = best_ns(p);
    if (best == 0) { /* nothing timed: the first good one, the static rule's if it is */
        for (uint32_t v = j->space.n; v-- > 0;)
            if (j->state[v] == TUN_GOOD && (p->winner == FMT_NONE || p->winner != p->base))
                p->winner = v;
    } else {
        double ns[256], sp[256];
        uint32_t n = MIN(j->space.n, 256);
        for (uint32_t v = 0; v < n; v++) {
            int ways;
            uint32_t rounds, faster;
            ns[v] = j->state[v] == TUN_GOOD ? tun_spot_ns(p, v, &ways) : 0;
            if (ns[v] > 0 && j->state[p->base] == TUN_GOOD &&
                !tun_spot_sure(p, v, &rounds, &faster))
                ns[v] = 0;
            sp[v] = ns[v] > 0
                        ? tun_samples_spread(&p->samples[p->point->threads > 1 && ways == 1][v])
                        : 0;
        }
        p->winner = j->fixed && ns[p->base] > 0 ? p->base : tun_winner(ns, sp, n, p->base);
    }
    if (p->winner == FMT_NONE)
        return;
    p->ns = tun_spot_ns(p, p->winner, &p->ways);
    p->base_ns = j->state[p->base] == TUN_GOOD ? tun_spot_ns(p, p->base, NULL) : 0;
    snprintf(p->params, sizeof p->params, "%s", j->cands[p->winner].params);
}

/* ---- seal ---- */

static bool wins_somewhere(const tun_job *j, uint32_t v)
{
    for (uint32_t k = 0; k < j->n_spots; k++)
        if (!j->spots[k].hit && j->spots[k].winner == v)
            return true;
    return false;
}

/* A winner whose code is still that of its compilation unit. */
static bool is_open(const tun_job *j, uint32_t v)
{
    return j->state[v] == TUN_GOOD && !j->cands[v].source && wins_somewhere(j, v);
}

/* Compile open winners alone: that is what a bundle carries. Those that failed stay open. */
static rtx_status compile_alone(tun_session *s, rtx_err *err)
{
    uint32_t n = 0, cap = 0;
    for (uint32_t i = 0; i < s->n_jobs; i++)
        cap += s->jobs[i].space.n;
    AUTO_FREE batch *list = NULL;
    TRY_ALLOC(list = base_zalloc_array(BASE_TAG_TUNE, MAX(cap, 1), sizeof *list), err);
    for (uint32_t i = 0; i < s->n_jobs; i++)
        for (uint32_t v = 0; v < s->jobs[i].space.n; v++)
            if (is_open(&s->jobs[i], v)) {
                s->jobs[i].cands[v].code.n_bytes = 0;
                list[n++] = (batch){.job = &s->jobs[i], .v = {v}, .n = 1, .must = true};
            }
    return n ? compile_batches(s, list, n, true, err) : RTX_OK;
}

/* Twice, since a compiler may be killed from outside; then a winner without code falls. */
static rtx_status compile_winners(tun_session *s, bool *all_good, rtx_err *err)
{
    TRY(compile_alone(s, err));
    TRY(compile_alone(s, err));
    for (uint32_t i = 0; i < s->n_jobs; i++)
        for (uint32_t v = 0; v < s->jobs[i].space.n; v++)
            if (is_open(&s->jobs[i], v)) {
                reject(s, &s->jobs[i], v);
                *all_good = false;
            }
    tun_lap(s, &s->report->compile_s);
    return RTX_OK;
}

static const int64_t *largest(const tun_job *j)
{
    const tun_spot *best = &j->spots[0];
    for (uint32_t k = 1; k < j->n_spots; k++)
        if (j->spots[k].shape.flops + j->spots[k].shape.bytes >
            best->shape.flops + best->shape.bytes)
            best = &j->spots[k];
    return best->point->sym;
}

/* Judge all unsealed winners of a job with one validator; false in *all_good if one falls. */
static rtx_status judge_winners(tun_session *s, tun_job *j, tun_validator *val, bool *all_good,
                                rtx_err *err)
{
    for (uint32_t v = 0; v < j->space.n; v++) {
        tun_cand *c = &j->cands[v];
        if (c->sealed || j->state[v] != TUN_GOOD || !wins_somewhere(j, v))
            continue;
        double error = 0;
        rtx_status status = tun_validate(val, &c->code, &error, &c->why);
        if (status == RTX_OK)
            c->error = MAX(c->error, error);
        else if (!tun_is_verdict(status)) {
            if (err)
                *err = c->why;
            return status;
        } else {
            *all_good = false;
            reject(s, j, v);
        }
    }
    return tun_tick(s, "validate", j->templ->name, 0, 1, err);
}

/* The sealed code on the small sizes again, then at the largest; both in a process that no candidate has touched. */
static rtx_status seal_job(tun_session *s, tun_job *j, bool *all_good, rtx_err *err)
{
    bool any = false;
    for (uint32_t v = 0; v < j->space.n; v++)
        any |= !j->cands[v].sealed && j->state[v] == TUN_GOOD && wins_somewhere(j, v);
    if (!any)
        return RTX_OK;
    tun_validator val;
    rtx_status status = attach(s, j, err);
    if (status == RTX_OK) {
        status = judge_winners(s, j, &j->validator, all_good, err);
        tun_validator_detach(&j->validator);
    }
    rtx_err why = {0};
    if (status == RTX_OK &&
        fmt_sym_count(j->item->problem->dims)) { /* else the small sizes were the only one */
        status = tun_validator_init_at(&val, &s->worker, j->item->problem, largest(j), &why);
        if (status == RTX_UNSUPPORTED ||
            status == RTX_LIMIT) { /* too large to check: the small sizes must do */
            base_log(2, "tune: %s: %s", j->templ->name, why.text);
            status = RTX_OK;
        } else if (status == RTX_OK) {
            status = judge_winners(s, j, &val, all_good, err);
            tun_validator_done(&val);
        } else if (err) {
            *err = why;
        }
    }
    for (uint32_t v = 0; status == RTX_OK && v < j->space.n; v++)
        if (j->state[v] == TUN_GOOD && wins_somewhere(j, v) && !j->cands[v].sealed) {
            j->cands[v].sealed = true;
            tun_book_bin_put(s, j, &j->cands[v]);
        }
    return status;
}

rtx_status tun_phase_seal(tun_session *s, rtx_err *err)
{
    for (int attempt = 0; attempt < 4; attempt++) {
        bool all_good = true;
        TRY(compile_winners(s, &all_good, err));
        tun_worker_restart(&s->worker);
        for (uint32_t i = 0; i < s->n_jobs; i++)
            TRY(seal_job(s, &s->jobs[i], &all_good, err));
        tun_lap(s, &s->report->validate_s);
        if (all_good)
            break;
        for (uint32_t i = 0; i < s->n_jobs; i++)
            for (uint32_t k = 0; k < s->jobs[i].n_spots; k++)
                if (!s->jobs[i].spots[k].hit)
                    tun_spot_pick(&s->jobs[i].spots[k]);
    }
    return RTX_OK;
}
