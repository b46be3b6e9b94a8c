/* Predicted times of gemm and attention kernels, good enough to order candidates and to leave hopeless ones out.
 *   step       of a register tile of r rows and p panels: max(r p FMAs, at least CHAINS, at the peak; p vector loads and r
 *              half ones at the rate of the nearest cache) + the loop; twice that beyond the register cliff
 *   unit       steps + stores of a tile; beside that, what the tiles read from the level of the read curve at which their
 *              working set lies
 *   call       max(arithmetic, near memory, far memory) of the largest share of units; far memory adds in part as far
 *              as it is not fetched ahead; one hand-off where there are threads
 *   accuracy   MiniLM's candidates at level v4 on two CPUs of a busy virtual EPYC (Zen 4), one thread, best of 25 samples.
 *              Rank correlation, median over keys: gemm 0.74 (8 keys, M = 16 and 128; constants were chosen on these), 0.42
 *              on those of M = 64 and 256 that were not disturbed; attention 0.63 (5 keys, 8 to 256 tokens, 0.32 to 0.82).
 *              Measured over predicted is 1.0-1.2 for most. Where a disturbed profile has memory too slow all candidates of
 *              small M look alike (measured 0.5-0.7 of the prediction), and nothing is pruned there */
#include "tun_session.h"
#include <math.h>

#define CHAINS    8.0  /* independent sums that fill the pipes */
#define LOOP_FMAS 0.5  /* price of a loop turn, in FMAs */
#define TILE_NS   10.0 /* call, dispatch, epilogue's set-up */
#define EXP_FMAS  14.0 /* exp, maximum and sum of one vector of scores */
#define EXPOSED   0.25 /* part of far memory that waits where nothing is fetched ahead */

/* ---- the machine ---- */

typedef struct rates { /* of one thread, in ns */
    const tun_hw *hw;
    double fma, load; /* one vector */
    double vecs;      /* vectors of a panel of 16 floats */
} rates;

/* GB/s = bytes per ns at a working set. */
static double read_rate(const tun_hw *hw, double bytes)
{
    const tun_curve *c = &hw->read_curve;
    for (int i = 0; i < c->n; i++)
        if (bytes <= c->bytes[i])
            return c->gbps[i];
    return hw->read_gbps[0];
}

double tun_floor_ns(const tun_hw *hw, double flops, double bytes, bool streams, int threads)
{
    if (hw->read_curve.n == 0 || !(hw->fma_gflops[0] > 0) || !(hw->read_gbps[0] > 0))
        return 0;
    double peak = MIN(threads * hw->fma_gflops[0], MAX(hw->fma_gflops[0], hw->fma_gflops[1])),
           memory = MIN(threads * hw->read_gbps[0], MAX(hw->read_gbps[0], hw->read_gbps[1])),
           near = read_rate(hw, bytes / threads),
           rate = streams || near <= hw->read_gbps[0] ? memory : threads * near;
    return MAX(flops / peak, bytes / rate);
}

static rates rates_of(const tun_hw *hw, fmt_isa isa)
{
    double lanes = isa == FMT_ISA_V4 ? 16 : isa == FMT_ISA_V3 ? 8 : 4;
    return (rates){hw, 2 * lanes / hw->fma_gflops[0], 4 * lanes / read_rate(hw, 8192), 16 / lanes};
}

static double step_ns(const rates *m, double rows, double panels, double turns)
{
    double sums = rows * panels * m->vecs;
    double ns = MAX(MAX(sums, CHAINS) * m->fma + LOOP_FMAS * m->fma / turns,
                    (panels * m->vecs + rows) * m->load);
    return sums > m->hw->cliff_vectors ? 2 * ns : ns;
}

static double tile_ns(const rates *m, double rows, double panels, double depth, double turns)
{
    return depth * step_ns(m, rows, panels, turns) + 3 * rows * panels * m->vecs * m->fma + TILE_NS;
}

/* ---- problems ---- */

static double value_of(const syn_variant *v, const char *name)
{
    for (uint32_t i = 0; i < v->templ->n_params; i++)
        if (strcmp(v->templ->params[i].name, name) == 0)
            return (double)v->value[i];
    return 1;
}

static bool sizes_by(const syn_problem *p, const int64_t *sym, const char *const names[5],
                     double out[5])
{
    for (int i = 0; i < 5 && names[i]; i++) {
        int64_t n;
        if (!syn_role(p, sym, names[i], &n))
            return false;
        out[i] = (double)MAX(n, 1);
    }
    return true;
}

void tun_model_open(const syn_problem *p, const syn_template *t, const int64_t *sym, tun_model *out)
{
    static const char *const gemm[5] = {"B", "M", "N", "K"}, *const attention[5] = {"B", "H", "SQ",
                                                                                    "SK", "D"};
    *out = (tun_model){0};
    if (strcmp(t->name, "cpu/gemm") == 0 && sizes_by(p, sym, gemm, out->size))
        out->kind = TUN_MODEL_GEMM;
    else if (strcmp(t->name, "cpu/attention") == 0 && sizes_by(p, sym, attention, out->size))
        out->kind = TUN_MODEL_ATTENTION;
    for (uint32_t i = 0; i < p->n_in; i++)
        out->packed |= p->packed[i];
}

static double share_of(double units, int ways) { return ceil(units / ways) / units; }

static double gemm_ns(const rates *m, const tun_model *q, const syn_variant *v, int ways)
{
    const double batch = q->size[0], rows = q->size[1], depth = q->size[3],
                 panels = ceil(q->size[2] / 16), mb = value_of(v, "MB"),
                 nb = MIN(value_of(v, "NB"), panels), np = MIN(value_of(v, "NP"), nb);
    const double nm = mb > 0 ? ceil(rows / mb) : 1, nn = ceil(panels / nb), units = batch * nm * nn;
    const double high = rows / nm, tiles = ceil(high / value_of(v, "MR")), r = high / tiles;
    const double groups = nn * ceil(nb / np), p = panels / groups,
                 count = batch * nm * tiles * groups;
    const double share = share_of(units, ways), whole = panels * 64 * depth;
    const double arithmetic = count * tile_ns(m, r, p, depth, value_of(v, "KU"));
    const double near = count * p * 64 * depth / read_rate(m->hw, (p * 64 + r * 4) * depth) +
                        batch * groups * rows * depth * 4 / read_rate(m->hw, high * depth * 4) / 4;
    const double first = q->packed ? MAX(batch * whole * share / m->hw->read_gbps[0],
                                         batch * whole / m->hw->read_gbps[ways > 1])
                                   : batch * whole * share / read_rate(m->hw, whole);
    const double held = value_of(v, "ORDER") > 0 ? whole : nb * 64 * depth;
    const double far = first + (nm - 1) * batch * whole * share / read_rate(m->hw, held);
    const double packs = q->packed ? 0 : batch * whole * (value_of(v, "ORDER") > 0 ? nm : 1);
    const double busy = MAX(arithmetic, near) * share + packs * share * 4 / read_rate(m->hw, held);
    const double ahead = q->packed ? MIN(value_of(v, "PF") * tiles / np, 1) : 0;
    return MAX(busy, far) + EXPOSED * (1 - ahead) * MIN(busy, far);
}

static double attention_ns(const rates *m, const tun_model *q, const syn_variant *v, int ways)
{
    const double sq = q->size[2], sk = q->size[3], d = q->size[4], wide = 16 * value_of(v, "NP");
    const double blocks = ceil(sq / wide), units = q->size[0] * q->size[1] * blocks,
                 n = sq / blocks;
    const double panels =
        ((blocks - 1) * wide / 16 + ceil((sq - (blocks - 1) * wide) / 16)) / blocks;
    const double turns = value_of(v, "KU"), s_tiles = ceil(sk / value_of(v, "KR"));
    const double v_panels = ceil(d / 16), groups = ceil(v_panels / value_of(v, "VP"));
    const double v_tiles = ceil(n / value_of(v, "QR"));
    const double arithmetic =
        s_tiles * tile_ns(m, sk / s_tiles, panels, d, turns) +
        v_tiles * groups * tile_ns(m, n / v_tiles, v_panels / groups, sk, turns) +
        (sk * EXP_FMAS + d * 2) * panels * m->vecs * m->fma;
    const double near = (sk * panels * 64 * (2 + groups) + v_tiles * sk * v_panels * 64) /
                        read_rate(m->hw, (d + sk) * wide * 4 + sk * d * 8);
    return units * share_of(units, ways) * MAX(arithmetic, near);
}

double tun_model_ns(const tun_model *q, const tun_hw *hw, fmt_isa isa, const syn_variant *v,
                    int ways)
{
    if (q->kind == TUN_MODEL_NONE || !(hw->fma_gflops[0] > 0) || hw->read_curve.n == 0)
        return 0;
    rates m = rates_of(hw, isa);
    double ns = q->kind == TUN_MODEL_GEMM ? gemm_ns(&m, q, v, ways) : attention_ns(&m, q, v, ways);
    return ns + (ways > 1 ? hw->handoff_ns : 0);
}

/* ---- what the tuner does with it ---- */

static rtx_status room(tun_job *j, double **ns, rtx_err *err)
{
    uint32_t n = j->space.n;
    TRY_ALLOC(*ns = base_zalloc_array(BASE_TAG_TUNE, n, sizeof **ns), err);
    TRY_ALLOC(j->guess = base_zalloc_array(BASE_TAG_TUNE, n, sizeof *j->guess), err);
    TRY_ALLOC(j->least = base_zalloc_array(BASE_TAG_TUNE, n, sizeof *j->least), err);
    return RTX_OK;
}

/* Add one size's predictions; false when the model has none. */
static bool add_spot(const tun_session *s, tun_job *j, const tun_spot *p, double *ns)
{
    tun_model q;
    double best = 0;
    tun_model_open(j->item->problem, j->templ, p->point->sym, &q);
    for (uint32_t v = 0; v < j->space.n; v++) {
        ns[v] = tun_model_ns(&q, &s->hw, s->opt->isa, &j->variants[v], p->point->threads);
        best = best == 0 ? ns[v] : MIN(best, ns[v]);
    }
    for (uint32_t v = 0; best > 0 && v < j->space.n; v++) {
        j->guess[v] += log(ns[v] / best);
        j->least[v] = j->least[v] > 0 ? MIN(j->least[v], ns[v] / best) : ns[v] / best;
    }
    return best > 0;
}

rtx_status tun_model_guess(const tun_session *s, tun_job *j, rtx_err *err)
{
    AUTO_FREE double *ns = NULL;
    uint32_t spots = 0;
    if (!j->anchor || s->opt->variants) /* a hook's variants are all wanted */
        return RTX_OK;
    TRY(room(j, &ns, err));
    for (uint32_t k = 0; k < j->n_spots; k++)
        spots += !j->spots[k].hit && add_spot(s, j, &j->spots[k], ns);
    for (uint32_t v = 0; v < j->space.n; v++)
        j->guess[v] = exp(j->guess[v] / MAX(spots, 1));
    j->space.guess = spots ? j->guess : NULL;
    return RTX_OK;
}

/* Variants in play or still to come that are not hopeless. */
static uint32_t open_count(const tun_space *sp, const double *least)
{
    uint32_t n = 0;
    for (uint32_t v = 0; v < sp->n; v++)
        n += sp->state[v] == TUN_ASKED || sp->state[v] == TUN_GOOD ||
             (sp->state[v] == TUN_UNSEEN && least[v] <= TUN_HOPELESS);
    return n;
}

uint32_t tun_model_prune(tun_space *sp, const double *least, uint32_t *list, uint32_t n)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t v = list[i];
        if (least && v >= sp->n_seeds && least[v] > TUN_HOPELESS &&
            open_count(sp, least) > TUN_KEEP)
            sp->state[v] = TUN_PRUNED;
        else
            list[kept++] = v;
    }
    return kept;
}

uint32_t tun_model_reopen(tun_space *sp, const double *least)
{
    uint32_t good = 0, asked = 0;
    for (uint32_t v = 0; v < sp->n; v++)
        good += sp->state[v] == TUN_GOOD;
    for (; good > 0 && good + asked < TUN_TIMED_LEAST; asked++) {
        uint32_t best = FMT_NONE;
        for (uint32_t v = 0; v < sp->n; v++)
            if ((sp->state[v] == TUN_PRUNED || sp->state[v] == TUN_UNSEEN) &&
                (best == FMT_NONE || (least && least[v] < least[best])))
                best = v;
        if (best == FMT_NONE)
            break;
        sp->state[best] = TUN_ASKED;
    }
    return asked;
}

void tun_model_log(const tun_session *s, const tun_spot *p)
{
    tun_model q;
    tun_model_open(p->job->item->problem, p->job->templ, p->point->sym, &q);
    for (uint32_t v = 0; q.kind && p->samples[0] && v < p->job->space.n; v++)
        if (p->samples[0][v].n)
            base_log(4, "model: %s M=%.0f N=%.0f K=%.0f x%d [%s] predicted %.0f measured %.0f",
                     p->job->templ->name, q.size[1], q.size[2], q.size[3], p->point->threads,
                     p->job->cands[v].params,
                     tun_model_ns(&q, &s->hw, s->opt->isa, &p->job->variants[v], p->point->threads),
                     p->samples[0][v].best);
}
