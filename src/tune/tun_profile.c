/* Hardware facts, kept by processor: peaks, the read curve and its knees, latency, the price of threads, and how many
 * accumulators registers can hold.
 *   rounds     every fact is measured once a round; the best of all rounds counts. Rounds follow one another, so the
 *              samples of one fact lie seconds apart and a busy second spoils one of them
 *   sentinel   arithmetic and memory speed before and after each round; how far their median lies below their best is the
 *              spread of the profile. More rounds are taken while it is too wide and there is time
 *   all cores  idle virtual processors share a core for about a second: their common rates are also taken after they have
 *              been busy for that long
 *   age        a kept profile is measured again, on top of what it knows, where the machine is faster than it says or
 *              where its own spread was too wide. A slower machine proves nothing: somebody else is at work */
#include "tun_int.h"
#include "dev_cpu.h"
#include <math.h>

#define PROBE_NS                                                                                   \
    UINT64_C(10000000000) /* silent for so long: it hangs; a busy machine is only late */
#define ROUNDS      4
#define ROUNDS_MOST 12
#define LIMIT_NS                                                                                   \
    UINT64_C(4000000000) /* no round begins later: the whole takes less than ten seconds */
#define SPREAD_MOST 0.15
#define FASTER      1.03
#define MEMORY      ((int64_t)128 << 20) /* bytes behind all caches */

static const int cliff_steps[TUN_CLIFFS] = {8,  12, 14, 16,
                                            20, 24, 28, 32}; /* order of FMT_PROBE_CLIFF */
static const double curve_kib[] = {8,    16,   24,   32,   48,    64,    128,   256,   384,   512,
                                   1024, 2048, 4096, 8192, 16384, 24576, 32768, 65536, 131072};

/* ---- probes ---- */

static rtx_status ask_worker(void *ctx, fmt_work_probe what, int64_t a, int64_t b,
                             fmt_work_rep *out, rtx_err *err)
{
    fmt_work_req req = {.cmd = FMT_WORK_PROBE, .order = what, .a = a, .b = b};
    TRY(tun_worker_ask(ctx, &req, PROBE_NS, out, err));
    TRY(base_go_on(err)); /* also after the last one, which takes a second */
    return out->status == FMT_WORK_OK
               ? RTX_OK
               : FAIL(err, DEVICE, "probe %d of the machine failed", (int)what);
}

tun_prober tun_prober_of(tun_worker *w, const tun_clock *clock)
{
    return (tun_prober){.ask = ask_worker,
                        .ctx = w,
                        .clock = clock,
                        .origin = {.real_clock = clock->real, .real_device = true}};
}

static rtx_status probe_one(const tun_prober *by, fmt_work_probe what, int64_t a, int64_t b,
                            double *out, rtx_err *err)
{
    fmt_work_rep rep;
    TRY(by->ask(by->ctx, what, a, b, &rep, err));
    *out = rep.value[0];
    return RTX_OK;
}

/* Keep the higher rate, or the shorter time. */
static rtx_status best_rate(const tun_prober *by, fmt_work_probe what, int64_t a, int64_t b,
                            double *best, rtx_err *err)
{
    double v;
    TRY(probe_one(by, what, a, b, &v, err));
    *best = MAX(*best, v);
    return RTX_OK;
}

static rtx_status best_time(const tun_prober *by, fmt_work_probe what, int64_t a, int64_t b,
                            double *best, rtx_err *err)
{
    double v;
    TRY(probe_one(by, what, a, b, &v, err));
    *best = *best > 0 ? MIN(*best, v) : v;
    return RTX_OK;
}

/* ---- what follows from the figures ---- */

/* Caches from the curve, never from CPUID: a level ends where the rate has fallen halfway (on a log scale) to the next
 * plateau. The curve's shape is three falls at most; the largest drops in their size ranges are taken. */
static void knees(tun_hw *hw)
{
    static const double from[3] = {8e3, 96e3, 1e6}, to[3] = {96e3, 1.6e6, 1e9};
    int64_t *const out[3] = {&hw->l1_bytes, &hw->l2_bytes, &hw->l3_bytes};
    const tun_curve *c = &hw->read_curve;
    for (int level = 0; level < 3; level++) {
        double drop = 0;
        *out[level] = (int64_t)(level ? *out[level - 1] : 32768);
        for (int i = 0; i + 1 < c->n; i++) {
            double fall = log(c->gbps[i] / c->gbps[i + 1]);
            if (c->bytes[i] >= from[level] && c->bytes[i] <= to[level] && fall > drop) {
                drop = fall;
                *out[level] = (int64_t)c->bytes[i];
            }
        }
    }
}

/* Last step before the rate falls below nine tenths of the best so far. */
static void cliff(tun_hw *hw)
{
    double best = 0;
    hw->cliff_vectors = cliff_steps[0];
    for (size_t i = 0; i < TUN_CLIFFS && hw->cliff_gflops[i] >= 0.9 * best; i++) {
        best = MAX(best, hw->cliff_gflops[i]);
        hw->cliff_vectors = cliff_steps[i];
    }
}

/* ---- rounds ---- */

typedef struct watch { /* sentinels of one profile: arithmetic, memory */
    double rate[2][2 * ROUNDS_MOST];
    int n;
} watch;

static rtx_status look(const tun_prober *by, watch *w, tun_hw *hw, rtx_err *err)
{
    TRY(probe_one(by, FMT_PROBE_FMA, 1, hw->isa, &w->rate[0][w->n], err));
    TRY(probe_one(by, FMT_PROBE_READ, 1, MEMORY, &w->rate[1][w->n], err));
    hw->fma_gflops[0] = MAX(hw->fma_gflops[0], w->rate[0][w->n]);
    hw->read_gbps[0] = MAX(hw->read_gbps[0], w->rate[1][w->n]);
    w->n++;
    return RTX_OK;
}

static double median(const double *v, int n)
{
    double sorted[2 * ROUNDS_MOST];
    for (int i = 0; i < n; i++) {
        int j = i;
        for (; j > 0 && sorted[j - 1] > v[i]; j--)
            sorted[j] = sorted[j - 1];
        sorted[j] = v[i];
    }
    return n % 2 ? sorted[n / 2] : (sorted[n / 2 - 1] + sorted[n / 2]) / 2;
}

static void judge(const watch *w, tun_hw *hw)
{
    hw->spread = 0;
    for (int i = 0; i < 2; i++) {
        double best = 0;
        for (int k = 0; k < w->n; k++)
            best = MAX(best, w->rate[i][k]);
        hw->sentinel[i] = median(w->rate[i], w->n);
        hw->spread = MAX(hw->spread, best > 0 ? 1 - hw->sentinel[i] / best : 1);
    }
}

static rtx_status read_curve(const tun_prober *by, tun_hw *hw, rtx_err *err)
{
    tun_curve *c = &hw->read_curve;
    c->n = (int)COUNT_OF(curve_kib);
    for (int i = 0; i < c->n; i++) {
        c->bytes[i] = curve_kib[i] * 1024;
        TRY(best_rate(by, FMT_PROBE_READ, 1, (int64_t)c->bytes[i], &c->gbps[i], err));
    }
    hw->read_gbps[0] = c->gbps[c->n - 1] = MAX(hw->read_gbps[0], c->gbps[c->n - 1]);
    return best_rate(by, FMT_PROBE_READ, hw->cores, MEMORY / hw->cores, &hw->read_gbps[1], err);
}

static rtx_status one_round(const tun_prober *by, tun_hw *hw, rtx_err *err)
{
    fmt_work_rep rep;
    TRY(best_rate(by, FMT_PROBE_FMA, hw->cores, hw->isa, &hw->fma_gflops[1], err));
    TRY(read_curve(by, hw, err));
    TRY(best_time(by, FMT_PROBE_LATENCY, 1, (int64_t)64 << 20, &hw->latency_ns, err));
    if (hw->cores > 1) {
        TRY(best_time(by, FMT_PROBE_HANDOFF, hw->cores, 0, &hw->handoff_ns, err));
        TRY(best_time(by, FMT_PROBE_WAKE, hw->cores, 0, &hw->wake_ns, err));
    }
    TRY(by->ask(by->ctx, FMT_PROBE_CLIFF, 1, hw->isa, &rep, err));
    for (size_t i = 0; i < TUN_CLIFFS; i++)
        hw->cliff_gflops[i] = MAX(hw->cliff_gflops[i], rep.value[i]);
    return RTX_OK;
}

static rtx_status busy_cores(const tun_prober *by, tun_hw *hw, rtx_err *err)
{
    fmt_work_rep rep;
    TRY(by->ask(by->ctx, FMT_PROBE_BUSY, hw->cores, hw->isa, &rep, err));
    hw->fma_gflops[1] = MAX(hw->fma_gflops[1], rep.value[0]);
    hw->read_gbps[1] = MAX(hw->read_gbps[1], rep.value[1]);
    return RTX_OK;
}

/* hw holds what is known so far: zeros, or an older profile. */
static rtx_status measure(const tun_prober *by, tun_hw *hw, rtx_err *err)
{
    watch w = {.n = 0};
    uint64_t began_ns = by->clock->now_ns();
    for (int r = 0; r < ROUNDS_MOST; r++) {
        if (r > 0 && by->clock->now_ns() - began_ns > LIMIT_NS)
            break;
        TRY(look(by, &w, hw, err));
        TRY(one_round(by, hw, err));
        TRY(look(by, &w, hw, err));
        judge(&w, hw);
        hw->rounds = r + 1;
        if (r + 1 >= ROUNDS && hw->spread <= SPREAD_MOST)
            break;
    }
    if (hw->cores > 1)
        TRY(busy_cores(by, hw, err));
    knees(hw);
    cliff(hw);
    return RTX_OK;
}

/* ---- the kept profile ---- */

static rtx_status outdated(const tun_prober *by, tun_hw *hw, bool *out, rtx_err *err)
{
    double fma, memory;
    *out = hw->spread > SPREAD_MOST;
    if (*out)
        return RTX_OK;
    TRY(probe_one(by, FMT_PROBE_FMA, 1, hw->isa, &fma, err));
    TRY(probe_one(by, FMT_PROBE_READ, 1, MEMORY, &memory, err));
    *out = fma > FASTER * hw->fma_gflops[0] || memory > FASTER * hw->read_gbps[0];
    if (*out)
        base_log(1, "profile: measured again: %.1f GFLOP/s and %.1f GB/s, kept %.1f and %.1f", fma,
                 memory, hw->fma_gflops[0], hw->read_gbps[0]);
    return RTX_OK;
}

static void profile_key(const tun_hw *hw, tun_key *k)
{
    char facts[96], model[40];
    const dev_cpu *cpu = dev_cpu_get();
    snprintf(facts, sizeof facts, "%d cores, v%d, %zu bytes", hw->cores, (int)hw->isa, sizeof *hw);
    snprintf(model, sizeof model, "%u-%u-%u", cpu->family, cpu->model, cpu->stepping);
    tun_key_init(k);
    tun_key_add(k, "what", "profile 3");
    tun_key_add(k, "cpu", hw->cpu);
    tun_key_add(k, "model", model);
    tun_key_add(k, "facts", facts);
    tun_key_mark_identity(k);
}

static bool load(tun_cache *c, const tun_key *k, tun_hw *out)
{
    AUTO_FREE char *data = NULL;
    size_t bytes = 0;
    if (!tun_cache_get(c, TUN_MEAS, k, &data, &bytes, NULL, 0) || bytes != sizeof *out)
        return false;
    memcpy(out, data, sizeof *out);
    return true;
}

static rtx_status load_or_measure(const tun_prober *by, tun_cache *c, const tun_key *k, bool redo,
                                  tun_hw *hw, rtx_err *err)
{
    bool have = !redo && load(c, k, hw), old = false;
    if (!by)
        return have ? RTX_OK : FAIL(err, NOT_FOUND, "no profile in the cache");
    if (have)
        TRY(outdated(by, hw, &old, err));
    if (have && !old)
        return RTX_OK;
    TRY(measure(by, hw, err));
    if (tun_cache_put(c, TUN_MEAS, k, hw, sizeof *hw, &by->origin) != RTX_OK)
        return FAIL(err, INVALID, "a profile that was not measured on this machine cannot be kept");
    return RTX_OK;
}

rtx_status tun_profile_with(const tun_prober *by, tun_cache *c, fmt_isa isa, bool redo, tun_hw *out,
                            rtx_err *err)
{
    tun_key key;
    tun_hw hw;
    memset(&hw, 0, sizeof hw); /* it is stored as bytes */
    hw.cores = base_cpu_count();
    hw.isa = isa;
    snprintf(hw.cpu, sizeof hw.cpu, "%s", dev_cpu_get()->name);
    profile_key(&hw, &key);
    rtx_status s = load_or_measure(by, c, &key, redo, &hw, err);
    tun_key_done(&key);
    if (s == RTX_OK)
        *out = hw;
    return s;
}

hw_facts tun_hw_facts(const tun_hw *hw)
{
    return (hw_facts){.cliff_vectors = hw->cliff_vectors,
                      .l1_bytes = hw->l1_bytes,
                      .l2_bytes = hw->l2_bytes,
                      .l3_bytes = hw->l3_bytes,
                      .fma_gflops = hw->fma_gflops[0],
                      .read_gbps = hw->read_gbps[0],
                      .latency_ns = hw->latency_ns,
                      .handoff_ns = hw->handoff_ns};
}

rtx_status tun_profile(const char *cache, bool redo, tun_hw *out, rtx_err *err)
{
    fmt_isa isa;
    tun_cache c;
    tun_worker w;
    TRY(dev_isa_allowed(&isa, err));
    tun_cache_open(&c, cache, dev_cpu_get()->name);
    if (!redo && tun_profile_with(NULL, &c, isa, false, out, NULL) == RTX_OK)
        return RTX_OK;
    TRY(tun_worker_open(&w, err));
    tun_prober by = tun_prober_of(&w, tun_real_clock());
    rtx_status s = tun_profile_with(&by, &c, isa, redo, out, err);
    tun_worker_close(&w);
    return s;
}

void tun_profile_json(const tun_hw *hw, base_buf *out)
{
    base_buf_printf(out, "{\"cpu\":\"");
    for (const char *c = hw->cpu; *c; c++)
        if (*c >= ' ' && *c != '"' && *c != '\\')
            base_buf_put(out, c, 1);
    base_buf_printf(
        out,
        "\",\"cores\":%d,\"isa\":\"v%d\",\"fma_gflops\":[%.1f,%.1f],\"read_gbps\":[%.2f,%.2f],",
        hw->cores, (int)hw->isa, hw->fma_gflops[0], hw->fma_gflops[1], hw->read_gbps[0],
        hw->read_gbps[1]);
    base_buf_printf(
        out, "\"latency_ns\":%.1f,\"handoff_ns\":%.0f,\"wake_ns\":%.0f,\"cliff_vectors\":%d,",
        hw->latency_ns, hw->handoff_ns, hw->wake_ns, hw->cliff_vectors);
    base_buf_printf(out, "\"rounds\":%d,\"spread\":%.4f,\"sentinel\":[%.1f,%.2f],", hw->rounds,
                    hw->spread, hw->sentinel[0], hw->sentinel[1]);
    base_buf_printf(out, "\"l1_bytes\":%lld,\"l2_bytes\":%lld,\"l3_bytes\":%lld,\"read_curve\":[",
                    (long long)hw->l1_bytes, (long long)hw->l2_bytes, (long long)hw->l3_bytes);
    for (int i = 0; i < hw->read_curve.n; i++)
        base_buf_printf(out, "%s{\"bytes\":%.0f,\"gbps\":%.2f}", i ? "," : "",
                        hw->read_curve.bytes[i], hw->read_curve.gbps[i]);
    base_buf_puts(out, "]}");
}
