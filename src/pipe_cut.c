/* The search for the cut, in order: what no candidate was accepted for is cut; what is fused and doubtful; the lowerings with one
 * region cut; regions and their parts timed in one run; then, region by region, the plan with it cut as well against the best
 * so far; the parts of what was chosen tuned in earnest. A plan's time is the sum over its steps at one combination of bucket
 * sizes and threads; plans compare by the geometric mean of those sums. */
#include "pipe_cut.h"
#include "pipe_pin.h"
#include "pipe_seal.h"
#include <math.h>
#include <stdlib.h>

#define TRIALS_MAX 3
#define SAMPLES    4  /* combinations of bucket sizes at which plans are compared */
#define ITEMS_MAX  32 /* problems that are timed for it */
#define NEIGHBOURS 2  /* candidates of each, besides the static choice */
_Static_assert(PIPE_PIN_SPLITS + TRIALS_MAX <= sizeof((lower_deny *)0)->text / sizeof(char *), "");
/* Seconds, as a share of the first run's: for all trials, and again for the parts of what they chose. */
#define BUDGET_SHARE   0.10
#define BUDGET_LEAST_S 5.0  /* parts that are not compiled in time look slow */
#define TIE            0.98 /* a cut must be this much faster */

typedef struct region { /* of the first lowering; equal ones once */
    const char *text, *name;
    const char *why;
    uint32_t uses;
    double ns, saves;          /* over all sizes; predicted share of it that fusing saves */
    double bound;              /* share of the program's time that a cut can save at most */
    double fused_ns, split_ns; /* of the program with and without it, where it was tried */
    bool split;
} region;

typedef struct search {
    const pipe_cut *c;
    const lower_result *low; /* the first lowering and its results */
    const pipe_tuned *tuned;
    const json_t *fusion; /* choices made before the search: cut is what they say */
    pass_machine hw;
    region *regions;
    uint32_t n_regions;
    region *trial[TRIALS_MAX];
    lower_result side[TRIALS_MAX]; /* with one trial cut each */
    uint32_t n_trials;
    uint32_t combo[SAMPLES], n_combos; /* sizes at which plans are compared */
    tun_item *item; /* the trials' regions and their parts at these sizes; problems are borrowed */
    const char **item_text;
    uint32_t n_items;
    bool tried; /* nothing but the budget kept the parts from being measured */
} search;

/* ---- plans ---- */

static const char *text_of(const lower_result *low, uint32_t slot)
{
    return fmt_str_get(low->plan, low->plan->slots[slot].problem);
}

/* Time of one call at a point; false when it is not known. */
static bool item_ns(const tun_item *it, const tun_point *p, double *out)
{
    for (uint32_t i = 0; it->result.picks != NULL && i < it->n_points; i++)
        if (it->points[i].threads == p->threads &&
            memcmp(it->points[i].sym, p->sym, sizeof p->sym) == 0) {
            *out = it->result.picks[i].ns;
            return *out > 0 && it->result.picks[i].kernel != FMT_NONE;
        }
    return false;
}

/* What the trials measured, side by side, counts before what the first run did. */
static bool problem_ns(const search *s, const char *text, const tun_point *p, double *out)
{
    for (uint32_t i = 0; i < s->n_items; i++)
        if (strcmp(s->item_text[i], text) == 0)
            return item_ns(&s->item[i], p, out);
    for (uint32_t i = 0; i < s->low->n_slots; i++)
        if (strcmp(text_of(s->low, i), text) == 0)
            return item_ns(&s->tuned->items[i], p, out);
    return false;
}

static bool plan_ns_at(const search *s, const lower_result *low, uint32_t combo, int threads,
                       double *out)
{
    *out = low->plan->n_steps * pass_cost_step_ns(&s->hw, threads);
    for (uint32_t i = 0; i < low->n_slots; i++) {
        tun_point at;
        double ns;
        if (low->slots[i].uses == 0)
            continue;
        if (!pipe_point_at(low, &low->slots[i], s->c->buckets, combo, &at))
            return false;
        at.threads = threads;
        if (!problem_ns(s, text_of(low, i), &at, &ns))
            return false;
        *out += low->slots[i].uses * ns;
    }
    return *out > 0;
}

typedef struct timing {                         /* of one plan at the sampled sizes and threads */
    double ns[SAMPLES * PIPE_VALUES_MAX], mean; /* geometric */
    uint32_t n;                                 /* 0 = some time is not known */
} timing;

static timing plan_timing(const search *s, const lower_result *low)
{
    const pipe_options *o = s->c->opt;
    timing t = {0};
    double sum = 0;
    for (uint32_t k = 0; k < s->n_combos; k++)
        for (int i = 0; i < o->n_threads; i++) {
            if (!plan_ns_at(s, low, s->combo[k], o->threads[i], &t.ns[t.n]))
                return (timing){0};
            sum += log(t.ns[t.n++]);
        }
    t.mean = exp(sum / t.n);
    return t;
}

/* By more than the tie band, and by more than three standard errors of the mean gain: the spread over sizes and threads shows
 * what a neighbour's load did to single times. */
static bool clearly_faster(const timing *now, const timing *before)
{
    uint32_t n = MIN(now->n, before->n);
    double sum = 0, squares = 0;
    for (uint32_t i = 0; i < n; i++)
        sum += log(before->ns[i] / now->ns[i]);
    for (uint32_t i = 0; i < n; i++) {
        double d = log(before->ns[i] / now->ns[i]) - sum / n;
        squares += d * d;
    }
    double error = n > 1 ? sqrt(squares / (n - 1) / n) : 0;
    return n > 0 && sum / n > MAX(-log(TIE), 3 * error);
}

/* ---- what is doubtful ---- */

static region *region_of(search *s, const lower_slot *slot)
{
    for (uint32_t i = 0; i < s->n_regions; i++)
        if (strcmp(s->regions[i].text, slot->region) == 0)
            return &s->regions[i];
    region *r = &s->regions[s->n_regions++];
    *r = (region){.text = slot->region, .name = fmt_str_get(s->low->plan, slot->name)};
    return r;
}

/* Add what a slot takes at all sizes and threads, and what the model says that its fusion saves and a cut could (left as ns). */
static bool weigh(search *s, uint32_t at)
{
    const lower_slot *slot = &s->low->slots[at];
    const pipe_options *o = s->c->opt;
    region *r = region_of(s, slot);
    r->uses += slot->uses;
    for (uint32_t k = 0; k < pipe_combos(s->c->buckets); k++)
        for (int t = 0; t < o->n_threads; t++) {
            tun_point p;
            pass_work w;
            double ns, fused, split;
            if (!pipe_point_at(s->low, slot, s->c->buckets, k, &p))
                return false;
            p.threads = o->threads[t];
            if (!item_ns(&s->tuned->items[at], &p, &ns) ||
                !lower_region_work(slot->problem, p.sym, &w))
                return false;
            w.threads = p.threads;
            pass_cost(&s->hw, &w, &fused, &split);
            r->ns += slot->uses * ns;
            r->saves += slot->uses * (split - fused);
            r->bound += slot->uses * pass_cost_relief_ns(&s->hw, &w);
        }
    return true;
}

/* Of all steps at all sizes and threads; 0 = some time is not known. */
static double program_ns(const search *s)
{
    const pipe_options *o = s->c->opt;
    double sum = 0, ns;
    for (uint32_t k = 0; k < pipe_combos(s->c->buckets); k++)
        for (int t = 0; t < o->n_threads; t++) {
            if (!plan_ns_at(s, s->low, k, o->threads[t], &ns))
                return 0;
            sum += ns;
        }
    return sum;
}

static int costliest_first(const void *a, const void *b)
{
    const region *x = a, *y = b;
    return x->ns != y->ns ? (x->ns < y->ns) - (x->ns > y->ns) : strcmp(x->text, y->text);
}

static rtx_status list_regions(search *s, bool *out_known, rtx_err *err)
{
    TRY_ALLOC(s->regions =
                  base_zalloc_array(BASE_TAG_TUNE, s->low->n_slots + 1, sizeof *s->regions),
              err);
    double all = program_ns(s);
    *out_known = all > 0;
    for (uint32_t i = 0; *out_known && i < s->low->n_slots; i++)
        if (s->low->slots[i].anchored && s->low->slots[i].uses > 0)
            *out_known = weigh(s, i);
    qsort(s->regions, s->n_regions, sizeof *s->regions, costliest_first);
    for (uint32_t i = 0; i < s->n_regions; i++) {
        region *r = &s->regions[i];
        r->saves = MIN(r->saves / MAX(r->ns, 1), 1);
        r->bound /= MAX(all, 1);
        r->why = r->saves >= PASS_COST_CLEAR ? "clear: fusing saves much"
                 : r->bound < 1 - TIE        ? "clear: cutting cannot save enough"
                 : s->n_trials == TRIALS_MAX ? "not among the costliest"
                                             : "";
        if (r->why[0] == 0)
            s->trial[s->n_trials++] = r;
    }
    return RTX_OK;
}

/* ---- trials ---- */

/* The middle of each equal part of all combinations. */
static void sample_sizes(search *s)
{
    uint32_t all = pipe_combos(s->c->buckets);
    s->n_combos = MIN(all, SAMPLES);
    for (uint32_t k = 0; k < s->n_combos; k++)
        s->combo[k] = (2 * k + 1) * all / (2 * s->n_combos);
}

static bool has_item(const search *s, const char *text)
{
    for (uint32_t i = 0; i < s->n_items; i++)
        if (strcmp(s->item_text[i], text) == 0)
            return true;
    return false;
}

static rtx_status add_item(search *s, const lower_result *low, uint32_t slot, rtx_err *err)
{
    const pipe_options *o = s->c->opt;
    if (has_item(s, text_of(low, slot)) || low->slots[slot].uses == 0)
        return RTX_OK;
    if (s->n_items == ITEMS_MAX)
        return FAIL(err, LIMIT, "cutting regions makes more than %d new problems", ITEMS_MAX);
    tun_point *points =
        base_zalloc_array(BASE_TAG_TUNE, SAMPLES * (size_t)o->n_threads, sizeof *points);
    TRY_ALLOC(points, err);
    tun_item *it = &s->item[s->n_items];
    *it = (tun_item){.problem = low->slots[slot].problem, .points = points};
    s->item_text[s->n_items++] = text_of(low, slot);
    for (uint32_t k = 0; k < s->n_combos; k++)
        for (int t = 0; t < o->n_threads; t++) {
            tun_point p;
            bool ok = pipe_point_at(low, &low->slots[slot], s->c->buckets, s->combo[k], &p);
            p.threads = o->threads[t];
            if (ok && !pipe_point_known(points, it->n_points, &p))
                points[it->n_points++] = p;
        }
    return RTX_OK;
}

static uint32_t uses_of(const lower_result *low, const char *text)
{
    for (uint32_t i = 0; i < low->n_slots; i++)
        if (strcmp(text_of(low, i), text) == 0)
            return low->slots[i].uses;
    return 0;
}

/* The slots of one lowering that another has not, or not as often. */
static rtx_status add_difference(search *s, const lower_result *low, const lower_result *other,
                                 rtx_err *err)
{
    for (uint32_t i = 0; i < low->n_slots; i++)
        if (uses_of(other, text_of(low, i)) != low->slots[i].uses)
            TRY(add_item(s, low, i, err));
    return RTX_OK;
}

/* Each trial's region and its parts, timed side by side: a machine that is slower now than in the first run is so for both. */
static rtx_status list_items(search *s, rtx_err *err)
{
    TRY_ALLOC(s->item = base_zalloc_array(BASE_TAG_TUNE, ITEMS_MAX, sizeof *s->item), err);
    TRY_ALLOC(s->item_text = base_zalloc_array(BASE_TAG_TUNE, ITEMS_MAX, sizeof *s->item_text),
              err);
    for (uint32_t t = 0; t < s->n_trials; t++) {
        lower_deny deny = pipe_pin_split(s->fusion);
        deny.text[deny.n++] = s->trial[t]->text;
        TRY(lower_graph_cut(s->c->graph, LOWER_BAKED, &deny, NULL, &s->side[t], err));
        TRY(add_difference(s, s->low, &s->side[t], err));
        TRY(add_difference(s, &s->side[t], s->low, err));
    }
    return RTX_OK;
}

static void add_report(tun_report *to, const tun_report *more)
{
    to->candidates += more->candidates;
    to->rejected += more->rejected;
    to->compiled += more->compiled;
    to->wall_s += more->wall_s;
    to->compile_s += more->compile_s;
    to->validate_s += more->validate_s;
    to->measure_s += more->measure_s;
    to->other_s += more->other_s;
}

/* Constant sizes in which two problems differ, of the operands that both have. */
static uint32_t unlikeness(const syn_problem *a, const syn_problem *b)
{
    uint32_t n = 0;
    for (uint32_t o = 0; o < MIN(a->n_in, b->n_in); o++) {
        const ir_type *x = ir_type_of(a->region, a->region->inputs[o].id),
                      *y = ir_type_of(b->region, b->region->inputs[o].id);
        n += x->rank != y->rank;
        for (int k = 0; k < MIN(x->rank, y->rank); k++) {
            int64_t v = -1, w = -1;
            (void)fmt_dim_is_const(a->dims, x->dim[k], &v);
            (void)fmt_dim_is_const(b->dims, y->dim[k], &w);
            n += v != w;
        }
    }
    return n;
}

static const tun_item *nearest(const search *s, const syn_problem *p, const syn_template *t)
{
    const tun_item *best = NULL;
    for (uint32_t i = 0; i < s->tuned->n; i++) {
        const tun_item *it = &s->tuned->items[i];
        if (it->result.n_kernels > 0 && it->result.kernels[0].variant.templ == t &&
            (best == NULL || unlikeness(p, it->problem) < unlikeness(p, best->problem)))
            best = it;
    }
    return best;
}

/* The kernel that won at most points, of those not in the list. */
static const syn_variant *winner(const tun_item *it, const syn_variant *list, size_t n)
{
    const syn_variant *best = NULL;
    uint32_t most = 0;
    for (uint32_t k = 0; k < it->result.n_kernels; k++) {
        const syn_variant *v = &it->result.kernels[k].variant;
        uint32_t wins = 0;
        for (uint32_t i = 0; i < it->n_points; i++)
            wins += it->result.picks[i].kernel == k;
        for (size_t i = 0; i < n; i++)
            if (memcmp(list[i].value, v->value, sizeof v->value) == 0)
                wins = 0;
        if (wins > most) {
            most = wins;
            best = v;
        }
    }
    return best;
}

/* The tuner's hook in trials: the static choice, and what won for the problem most alike. A part is a region less one operation:
 * what suits the one suits the other nearly as well, at a fraction of a search's price. */
static size_t neighbours(void *ctx, const syn_problem *p, fmt_isa isa, syn_variant *list, size_t n,
                         size_t cap)
{
    const search *s = ctx;
    size_t kept = MIN(n, 1);
    const tun_item *like = n > 0 ? nearest(s, p, list[0].templ) : NULL;
    while (like != NULL && kept < MIN(cap, 1 + NEIGHBOURS)) {
        const syn_variant *v = winner(like, list, kept);
        if (v == NULL || !syn_variant_legal(p, v, isa, NULL))
            break;
        list[kept++] = *v; /* the space before kept is spent */
    }
    return kept;
}

/* The tuner on problems of parts. Its trouble is no failure but an answer, unless memory or the user ends it all. */
static rtx_status tune_parts(const search *s, tun_item *items, uint32_t n, tun_options *to,
                             tun_report *total, tun_report *out, bool *out_done, rtx_err *err)
{
    rtx_err why = {0};
    *out = (tun_report){0};
    *out_done = true;
    to->budget_s = MAX(BUDGET_SHARE * total->budget_s, BUDGET_LEAST_S);
    to->hw = total->hw.read_curve.n > 0 ? &total->hw : NULL;
    rtx_status st =
        n == 0 ? RTX_OK : (s->c->opt->tuner ? s->c->opt->tuner : tun_run)(items, n, to, out, &why);
    add_report(total, out);
    *out_done = st == RTX_OK && out->stopped[0] == 0;
    if (!*out_done)
        base_log(1, "cut: parts were not tuned: %s%s", why.text, out->stopped);
    if (st != RTX_CANCELLED && st != RTX_NOMEM)
        return RTX_OK;
    if (err != NULL)
        *err = why;
    return st;
}

/* One run that leaves nothing in the cache: a later search there must not find so narrow a one's answers. */
static rtx_status time_items(search *s, tun_report *report, rtx_err *err)
{
    tun_options to = pipe_tun_options(s->c->opt);
    tun_report got;
    to.cache = "";
    to.variants = neighbours;
    to.variants_ctx = s;
    to.variants_name = "neighbours";
    TRY(tune_parts(s, s->item, s->n_items, &to, report, &got, &s->tried, err));
    s->tried &= s->n_items == 0 || got.compiled > 0;
    return RTX_OK;
}

static bool any_split(const search *s)
{
    bool any = false;
    for (uint32_t i = 0; i < s->n_trials; i++)
        any |= s->trial[i]->split;
    return any;
}

static lower_deny denied(const search *s)
{
    lower_deny d = pipe_pin_split(s->fusion);
    for (uint32_t i = 0; i < s->n_trials; i++)
        if (s->trial[i]->split)
            d.text[d.n++] = s->trial[i]->text;
    return d;
}

static rtx_status choose(search *s, rtx_err *err)
{
    timing best = plan_timing(s, s->low);
    for (uint32_t i = 0; i < s->n_trials;
         i++) { /* costliest first, on top of what was cut before */
        region *r = s->trial[i];
        r->split = true;
        lower_deny deny = denied(s);
        lower_result low;
        TRY(lower_graph_cut(s->c->graph, LOWER_BAKED, &deny, NULL, &low, err));
        timing now = plan_timing(s, &low);
        lower_result_done(&low);
        bool measured = best.n > 0 && now.n > 0;
        r->fused_ns = best.mean;
        r->split_ns = measured ? now.mean : 0;
        r->split = clearly_faster(&now, &best);
        r->why = measured ? "measured" : "no time for its parts";
        best = r->split ? now : best;
    }
    return RTX_OK;
}

/* ---- results ---- */

static rtx_status region_json(const region *r, json_t *all, rtx_err *err)
{
    json_t *o = json_pack("{s:s, s:s, s:i, s:f, s:f, s:f, s:s, s:s}", "region", r->name, "problem",
                          r->text, "uses", (int)r->uses, "ns", r->ns, "saves", r->saves, "bound",
                          r->bound, "chosen", r->split ? "split" : "fused", "why", r->why);
    if (o != NULL && r->split_ns > 0) {
        json_object_set_new(o, "fused_ns", json_real(r->fused_ns));
        json_object_set_new(o, "split_ns", json_real(r->split_ns));
    }
    return json_array_append_new(all, o) == 0 ? RTX_OK : FAIL(err, NOMEM, "out of memory");
}

typedef struct plan { /* the chosen one, and who serves its slots */
    lower_result low;
    pipe_tuned asked;
    tun_item **first; /* the first run's item of a slot, or NULL */
} plan;

static void plan_done(plan *p)
{
    pipe_tuned_done(&p->asked);
    base_free(p->first);
    lower_result_done(&p->low);
}

static bool same_points(const tun_item *a, const tun_item *b)
{
    bool same = a->n_points == b->n_points;
    for (uint32_t i = 0; same && i < a->n_points; i++)
        same = pipe_point_known(a->points, a->n_points, &b->points[i]);
    return same;
}

static rtx_status plan_open(const search *s, const lower_deny *deny, plan *out, rtx_err *err)
{
    const pipe_cut *c = s->c;
    TRY(lower_graph_cut(c->graph, LOWER_BAKED, deny, c->consts, &out->low, err));
    TRY(pipe_tune_items(&out->low, c->buckets, c->opt, &out->asked, err));
    TRY_ALLOC(out->first =
                  base_zalloc_array(BASE_TAG_TUNE, out->low.n_slots + 1, sizeof *out->first),
              err);
    for (uint32_t i = 0; i < out->low.n_slots; i++)
        for (uint32_t k = 0; k < s->low->n_slots; k++)
            if (strcmp(text_of(&out->low, i), text_of(s->low, k)) == 0 &&
                same_points(&out->asked.items[i], &s->tuned->items[k]))
                out->first[i] = &s->tuned->items[k];
    return RTX_OK;
}

/* Kernels for what the chosen plan does not share with the first; from a search as wide as any. */
static rtx_status tune_chosen(search *s, plan *p, tun_report *report, bool *out_done, rtx_err *err)
{
    AUTO_FREE tun_item *items = NULL;
    AUTO_FREE uint32_t *slot = NULL;
    uint32_t n = 0;
    TRY_ALLOC(items = base_zalloc_array(BASE_TAG_TUNE, p->low.n_slots + 1, sizeof *items), err);
    TRY_ALLOC(slot = base_zalloc_array(BASE_TAG_TUNE, p->low.n_slots + 1, sizeof *slot), err);
    for (uint32_t i = 0; i < p->low.n_slots; i++)
        if (p->low.slots[i].uses > 0 && p->first[i] == NULL) {
            slot[n] = i;
            items[n++] = p->asked.items[i];
        }
    tun_options to = pipe_tun_options(s->c->opt);
    tun_report got;
    to.quiet = report->warnings > 0;
    TRY(tune_parts(s, items, n, &to, report, &got, out_done, err));
    report->keys += got.keys;
    report->hits += got.hits;
    for (uint32_t i = 0; i < n; i++) {
        p->asked.items[slot[i]].result = items[i].result;
        *out_done &= pipe_tuned_whole(&items[i]);
    }
    return RTX_OK;
}

/* The plan of what was chosen, with kernels; in trouble nothing is cut. */
static rtx_status open_chosen(search *s, plan *out, tun_report *report, rtx_err *err)
{
    lower_deny deny = denied(s);
    bool done = false;
    if (!any_split(s))
        return RTX_OK;
    TRY(plan_open(s, &deny, out, err));
    TRY(tune_chosen(s, out, report, &done, err));
    for (uint32_t i = 0; !done && i < s->n_trials; i++)
        if (s->trial[i]->split) {
            s->trial[i]->split = false;
            s->trial[i]->why = "faster cut, but its parts could not be tuned";
            s->tried = false;
        }
    return RTX_OK;
}

/* The chosen plan takes the place of the first, and over from it what both use; the rest was never asked for. */
static void take_plan(plan *p, lower_result *low, pipe_tuned *tuned, tun_report *report)
{
    for (uint32_t i = 0; i < p->low.n_slots; i++)
        if (p->first[i] != NULL) {
            p->asked.items[i].result = p->first[i]->result;
            p->first[i]->result = (tun_result){0};
        }
    for (uint32_t i = 0; i < tuned->n; i++) {
        const tun_item *it = &tuned->items[i];
        for (uint32_t k = 0; it->result.picks != NULL && k < it->n_points; k++) {
            report->keys--;
            report->hits -= it->result.picks[k].cached;
        }
    }
    pipe_tuned_done(tuned);
    lower_result_done(low);
    *tuned = p->asked;
    *low = p->low;
    p->asked = (pipe_tuned){0};
    p->low = (lower_result){0};
}

static void search_done(search *s)
{
    for (uint32_t i = 0; i < s->n_items; i++) {
        tun_result_done(&s->item[i].result);
        base_free((void *)s->item[i].points);
    }
    for (uint32_t i = 0; i < s->n_trials; i++)
        lower_result_done(&s->side[i]);
    base_free(s->item);
    base_free(s->item_text);
    base_free(s->regions);
}

static pass_machine facts_of(const tun_hw *h)
{
    pass_machine f = {.n_curve = MIN(h->read_curve.n, PASS_CURVE),
                      .l3_bytes = h->l3_bytes,
                      .handoff_ns = h->handoff_ns};
    memcpy(f.fma_gflops, h->fma_gflops, sizeof f.fma_gflops);
    memcpy(f.read_gbps, h->read_gbps, sizeof f.read_gbps);
    memcpy(f.curve_bytes, h->read_curve.bytes, sizeof f.curve_bytes);
    memcpy(f.curve_gbps, h->read_curve.gbps, sizeof f.curve_gbps);
    return f;
}

/* From times of the first cut to the choice. */
static rtx_status run_search(search *s, lower_result *low, pipe_tuned *tuned, json_t *fusion,
                             tun_report *report, rtx_err *err)
{
    bool known = false;
    TRY(list_regions(s, &known, err));
    if (!known)
        return RTX_OK;
    sample_sizes(s);
    TRY(list_items(s, err));
    TRY(time_items(s, report, err));
    TRY(choose(s, err));
    plan chosen = {0};
    rtx_status st = open_chosen(s, &chosen, report, err);
    for (uint32_t i = 0; st == RTX_OK && i < s->n_regions; i++)
        st = region_json(&s->regions[i], fusion, err);
    if (st == RTX_OK && any_split(s))
        take_plan(&chosen, low, tuned, report);
    plan_done(&chosen);
    return st;
}

/* ---- regions without a kernel ---- */

/* Those of which every candidate was rejected join the choices, as cut. */
static rtx_status list_rejected(const lower_result *low, const pipe_tuned *tuned, json_t *fusion,
                                rtx_err *err)
{
    for (uint32_t i = 0; i < low->n_slots; i++) {
        const lower_slot *slot = &low->slots[i];
        lower_deny known = pipe_pin_split(fusion);
        bool ask = slot->region != NULL && tuned->items[i].result.rejected;
        for (uint32_t k = 0; ask && k < known.n; k++)
            ask = strcmp(known.text[k], slot->region) != 0;
        region r = {.text = slot->region,
                    .name = fmt_str_get(low->plan, slot->name),
                    .uses = slot->uses,
                    .split = true,
                    .why = "no candidate was accepted"};
        if (ask)
            TRY(region_json(&r, fusion, err));
    }
    return RTX_OK;
}

/* Lower again as the choices say and tune what is new. */
static rtx_status cut_again(const pipe_cut *c, lower_result *low, pipe_tuned *tuned,
                            const json_t *fusion, tun_report *report, rtx_err *err)
{
    search s = {.c = c, .low = low, .tuned = tuned};
    lower_deny deny = pipe_pin_split(fusion);
    plan p = {0};
    bool done; /* the caller looks at each slot */
    rtx_status st = plan_open(&s, &deny, &p, err);
    if (st == RTX_OK)
        st = tune_chosen(&s, &p, report, &done, err);
    if (st == RTX_OK)
        take_plan(&p, low, tuned, report);
    plan_done(&p);
    return st;
}

/* Kernels for every slot. A region that no candidate passes is cut: its parts are other problems, each rounded by itself. */
static rtx_status tune_slots(const pipe_cut *c, lower_result *low, pipe_tuned *tuned,
                             json_t *fusion, tun_report *report, rtx_err *err)
{
    rtx_status st = pipe_tune_slots(low, c->buckets, c->opt, tuned, report, err);
    while (st == RTX_UNSUPPORTED && report->stopped[0] == 0) {
        uint32_t known = pipe_pin_split(fusion).n;
        TRY(list_rejected(low, tuned, fusion, err));
        if (pipe_pin_split(fusion).n == known)
            break;
        TRY(cut_again(c, low, tuned, fusion, report, err));
        st = pipe_tuned_all(low, tuned, report, NULL); /* the first reason stays */
    }
    return st;
}

/* ---- replay ---- */

/* The first lowering as text: with other problems, sizes or weights the question is another. */
static rtx_status question_of(const pipe_cut *c, const lower_result *low, base_buf *out,
                              rtx_err *err)
{
    base_buf_puts(out, "fusion cut 1\n");
    for (uint32_t i = 0; i < low->n_slots; i++)
        base_buf_printf(out, "%u %s\n", low->slots[i].uses, text_of(low, i));
    for (uint32_t i = 0; i < low->n_slots; i++)
        for (uint32_t k = 0; k < pipe_combos(c->buckets); k++) {
            tun_point p;
            bool ok = pipe_point_at(low, &low->slots[i], c->buckets, k, &p);
            for (uint32_t j = 0; ok && j < low->slots[i].n_sym; j++)
                base_buf_printf(out, "%lld ", (long long)p.sym[j]);
            base_buf_puts(out, "\n");
        }
    for (int t = 0; t < c->opt->n_threads; t++)
        base_buf_printf(out, "threads %d\n", c->opt->threads[t]);
    return base_buf_ok(out, err);
}

static rtx_status pinned(const pipe_cut *c, lower_result *low, json_t *fusion, rtx_err *err)
{
    pipe_pin pin;
    TRY(pipe_pin_open(c->opt->pin, &pin, err));
    rtx_status s = pipe_pin_replay(c->graph, c->consts, pin.fusion, low, fusion, err);
    pipe_pin_done(&pin);
    return s;
}

/* Tune with every fusion, then search, and keep what was chosen where all of it was measured. */
static rtx_status tune_and_search(const pipe_cut *c, const char *question, lower_result *low,
                                  pipe_tuned *tuned, json_t *fusion, tun_report *report,
                                  rtx_err *err)
{
    TRY(tune_slots(c, low, tuned, fusion, report, err));
    if (report->stopped[0])
        return RTX_OK;
    if (report->hw.read_curve.n == 0 &&
        (c->opt->tuner || tun_profile(c->opt->cache, false, &report->hw, NULL) != RTX_OK))
        return RTX_OK;
    search s = {.c = c, .low = low, .tuned = tuned, .fusion = fusion};
    s.hw = facts_of(&report->hw);
    rtx_status st = run_search(&s, low, tuned, fusion, report, err);
    bool keep = st == RTX_OK && s.tried && c->opt->tuner == NULL;
    search_done(&s);
    TRY(st);
    if (!keep)
        return RTX_OK;
    tun_options to = pipe_tun_options(c->opt);
    AUTO_BUF base_buf answer;
    base_buf_init(&answer, BASE_TAG_TUNE, (size_t)4 << 20);
    TRY(pipe_json_text(json_incref(fusion), JSON_COMPACT, &answer, err));
    tun_choice_put(&to, question, answer.data);
    return RTX_OK;
}

rtx_status pipe_cut_tune(const pipe_cut *c, lower_result *low, pipe_tuned *tuned,
                         json_t **out_fusion, tun_report *report, rtx_err *err)
{
    const pipe_options *o = c->opt;
    if (o->without & (PIPE_FUSION | PIPE_PARAMETERS))
        return pipe_tune_slots(low, c->buckets, o, tuned, report, err);
    json_t *fusion;
    TRY_ALLOC(fusion = *out_fusion = json_array(), err);
    if (o->pin != NULL) {
        TRY(pinned(c, low, fusion, err));
        return pipe_tune_slots(low, c->buckets, o, tuned, report, err);
    }
    AUTO_BUF base_buf question;
    base_buf_init(&question, BASE_TAG_TUNE, (size_t)64 << 20);
    TRY(question_of(c, low, &question, err));
    tun_options to = pipe_tun_options(o);
    AUTO_FREE char *answer = o->redo ? NULL : tun_choice_get(&to, question.data);
    json_t *choices = answer ? json_loads(answer, 0, NULL) : NULL;
    if (choices == NULL)
        return tune_and_search(c, question.data, low, tuned, fusion, report, err);
    rtx_status s = pipe_pin_replay(c->graph, c->consts, choices, low, fusion, err);
    json_decref(choices);
    TRY(s);
    return tune_slots(c, low, tuned, fusion, report, err);
}
