/* Which variants to compile and time next, and which of the timed ones wins.
 *   space      all legal variants of one problem in canonical order; a score is the geometric mean over the tuned sizes
 *              of time / best time at that size, so 1.0 is a variant that is best everywhere
 *   strategy   one row of a table; each sees scores only and never a device, so tests feed it a formula */
#include "tun_int.h"
#include <math.h>

static uint64_t next_random(tun_space *s)
{
    s->rng ^= s->rng << 13;
    s->rng ^= s->rng >> 7;
    s->rng ^= s->rng << 17;
    return s->rng;
}

static uint32_t ask(tun_space *s, uint32_t v, uint32_t *out, uint32_t n)
{
    s->state[v] = TUN_ASKED;
    out[n] = v;
    return n + 1;
}

/* ---- exhaustive: in canonical order ---- */

static uint32_t propose_all(tun_space *s, uint32_t want, uint32_t *out)
{
    uint32_t n = 0;
    for (uint32_t v = 0; v < s->n && n < want; v++)
        if (s->state[v] == TUN_UNSEEN)
            n = ask(s, v, out, n);
    return n;
}

/* ---- random: seeds, then any ---- */

static uint32_t unseen_count(const tun_space *s)
{
    uint32_t n = 0;
    for (uint32_t v = 0; v < s->n; v++)
        n += s->state[v] == TUN_UNSEEN;
    return n;
}

static uint32_t nth_unseen(const tun_space *s, uint32_t nth)
{
    for (uint32_t v = 0; v < s->n; v++)
        if (s->state[v] == TUN_UNSEEN && nth-- == 0)
            return v;
    return 0;
}

static uint32_t propose_seeds(tun_space *s, uint32_t want, uint32_t *out)
{
    uint32_t n = 0;
    for (uint32_t v = 0; v < s->n_seeds && v < s->n && n < want; v++)
        if (s->state[v] == TUN_UNSEEN)
            n = ask(s, v, out, n);
    return n;
}

static uint32_t propose_random(tun_space *s, uint32_t want, uint32_t *out)
{
    uint32_t n = propose_seeds(s, want, out);
    for (uint32_t left = unseen_count(s); n < want && left > 0; left--)
        n = ask(s, nth_unseen(s, (uint32_t)(next_random(s) % left)), out, n);
    return n;
}

/* ---- hill-climb: neighbours of the best ---- */

static uint32_t best_scored(const tun_space *s)
{
    uint32_t best = UINT32_MAX;
    for (uint32_t v = 0; v < s->n; v++)
        if (s->state[v] == TUN_GOOD && s->score[v] > 0 &&
            (best == UINT32_MAX || s->score[v] < s->score[best]))
            best = v;
    return best;
}

static uint32_t differing(const syn_variant *a, const syn_variant *b)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < a->templ->n_params; i++)
        n += a->value[i] != b->value[i];
    return a->templ == b->templ ? n : UINT32_MAX;
}

/* Unseen variants nearest to `from`; the distance is the number of parameters that differ. */
static uint32_t propose_near(tun_space *s, uint32_t from, uint32_t want, uint32_t *out, uint32_t n)
{
    for (uint32_t reach = 1; reach <= 3 && n < want; reach++) {
        uint32_t start = (uint32_t)(next_random(s) % MAX(s->n, 1));
        for (uint32_t i = 0; i < s->n && n < want; i++) {
            uint32_t v = (start + i) % s->n;
            if (s->state[v] == TUN_UNSEEN && differing(&s->variant[v], &s->variant[from]) == reach)
                n = ask(s, v, out, n);
        }
    }
    return n;
}

static uint32_t propose_climb(tun_space *s, uint32_t want, uint32_t *out)
{
    uint32_t best = best_scored(s);
    uint32_t n = propose_seeds(s, want, out);
    if (best != UINT32_MAX)
        n = propose_near(s, best, want, out, n);
    return n + (n < want ? propose_random(s, want - n, out + n) : 0);
}

/* ---- grid, then bandit ----
 * First a spread over the space: each variant taken is the one farthest from those taken before; where a model predicts, a
 * near one must promise more (see spread_cost). Once scores exist, each
 * parameter value is an arm: its mean log score, less a bonus for being rarely seen; a variant's promise is the sum over
 * its values (an additive surrogate), and the most promising unseen ones are tried. */

/* Less is better. d parameters away from the nearest one taken: a variant that differs in one only must be predicted 1.6
 * times faster than one that differs in four. */
static double spread_cost(const tun_space *s, uint32_t v, uint32_t d)
{
    return s->guess ? s->guess[v] * (1 + 1.0 / d) : 1.0 / d;
}

static uint32_t farthest(const tun_space *s)
{
    uint32_t best = UINT32_MAX;
    double best_cost = 0;
    for (uint32_t v = 0; v < s->n; v++) {
        if (s->state[v] != TUN_UNSEEN)
            continue;
        uint32_t d = UINT32_MAX;
        for (uint32_t u = 0; u < s->n; u++)
            if (s->state[u] != TUN_UNSEEN)
                d = MIN(d, differing(&s->variant[v], &s->variant[u]));
        double cost = spread_cost(s, v, MAX(d, 1));
        if (best == UINT32_MAX || cost < best_cost) {
            best = v;
            best_cost = cost;
        }
    }
    return best;
}

typedef struct arm {
    double sum;
    uint32_t n;
} arm;

static arm arm_of(const tun_space *s, const syn_template *t, uint32_t param, int64_t value)
{
    arm a = {0, 0};
    for (uint32_t v = 0; v < s->n; v++)
        if (s->variant[v].templ == t && s->variant[v].value[param] == value && s->score[v] > 0) {
            a.sum += log(s->score[v]);
            a.n++;
        }
    return a;
}

static double promise(const tun_space *s, uint32_t v, double mean, double total)
{
    const syn_variant *x = &s->variant[v];
    double sum = 0;
    for (uint32_t i = 0; i < x->templ->n_params; i++) {
        arm a = arm_of(s, x->templ, i, x->value[i]);
        double m = (a.sum + mean) / (a.n + 1); /* one pretended sample at the overall mean */
        sum += m - mean - 0.05 * sqrt(log(total + 1) / (a.n + 1));
    }
    return sum;
}

static uint32_t most_promising(const tun_space *s)
{
    double mean = 0, best_p = 0;
    uint32_t timed = 0, best = UINT32_MAX;
    for (uint32_t v = 0; v < s->n; v++)
        if (s->score[v] > 0) {
            mean += log(s->score[v]);
            timed++;
        }
    mean /= MAX(timed, 1);
    for (uint32_t v = 0; v < s->n; v++) {
        if (s->state[v] != TUN_UNSEEN)
            continue;
        double p = promise(s, v, mean, timed);
        if (best == UINT32_MAX || p < best_p) {
            best = v;
            best_p = p;
        }
    }
    return best;
}

static uint32_t propose_bandit(tun_space *s, uint32_t want, uint32_t *out)
{
    uint32_t n = propose_seeds(s, want, out), best = best_scored(s);
    if (best != UINT32_MAX) /* a quarter of the moves stays beside the best */
        n = propose_near(s, best, MIN(want, n + (want + 3) / 4), out, n);
    while (n < want) {
        uint32_t v = best == UINT32_MAX ? farthest(s) : most_promising(s);
        if (v == UINT32_MAX)
            break;
        n = ask(s, v, out, n);
    }
    return n;
}

static const tun_strategy strategies[] = {
    {"bandit", "seeds, a spread over the space, then the most promising parameter values",
     propose_bandit, false},
    {"climb", "seeds, then neighbours of the best", propose_climb, false},
    {"random", "seeds, then any", propose_random, false},
    {"exhaustive", "all in canonical order", propose_all, true},
};

const tun_strategy *tun_strategy_table(size_t *out_count)
{
    *out_count = COUNT_OF(strategies);
    return strategies;
}

const tun_strategy *tun_strategy_find(const char *name)
{
    for (size_t i = 0; i < COUNT_OF(strategies); i++)
        if (strcmp(strategies[i].name, name) == 0)
            return &strategies[i];
    return NULL;
}

/* ---- samples and winners ---- */

void tun_samples_add(tun_samples *s, double ns)
{
    s->best = s->n == 0 ? ns : MIN(s->best, ns);
    s->sum += ns;
    s->last[s->n % COUNT_OF(s->last)] = ns;
    s->n++;
}

uint32_t tun_samples_rounds(const tun_samples *a, const tun_samples *b, uint32_t *out_faster)
{
    uint32_t both = 0;
    *out_faster = 0;
    for (uint32_t r = 0; r < TUN_ROUNDS; r++)
        if (a->round[r] > 0 && b->round[r] > 0) {
            both++;
            *out_faster += a->round[r] < b->round[r];
        }
    return both;
}

static double median_of(double *v, uint32_t n)
{
    for (uint32_t i = 1; i < n; i++)
        for (uint32_t j = i; j > 0 && v[j - 1] > v[j]; j--) {
            double t = v[j];
            v[j] = v[j - 1];
            v[j - 1] = t;
        }
    return n % 2 ? v[n / 2] : (v[n / 2 - 1] + v[n / 2]) / 2;
}

double tun_samples_spread(const tun_samples *s)
{
    double v[COUNT_OF(s->last)];
    uint32_t n = MIN(s->n, (uint32_t)COUNT_OF(s->last));
    if (n < 2)
        return 0;
    memcpy(v, s->last, n * sizeof *v);
    double mid = median_of(v, n);
    for (uint32_t i = 0; i < n; i++)
        v[i] = fabs(v[i] - mid);
    return mid > 0 ? median_of(v, n) / mid : 0;
}

#define TIE_MOST 0.01 /* however noisy the samples */

uint32_t tun_winner(const double *ns, const double *spread, uint32_t n, uint32_t base)
{
    uint32_t best = UINT32_MAX;
    for (uint32_t i = 0; i < n; i++)
        if (ns[i] > 0 && (best == UINT32_MAX || ns[i] < ns[best]))
            best = i;
    if (best == UINT32_MAX)
        return best;
    double band = MIN(MAX(TUN_TIE, 3 * spread[best]), TIE_MOST);
    if (base < n && ns[base] > 0 && ns[base] <= ns[best] * (1 + band))
        return base;
    for (uint32_t i = 0; i < n; i++)
        if (ns[i] > 0 && ns[i] <= ns[best] * (1 + band))
            return i;
    return best;
}
