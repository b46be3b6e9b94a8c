/* Hardware facts, measured in the worker in about three seconds and kept by processor name: peaks, the read curve and
 * its knees, latency, the price of threads, and how many accumulators registers can hold. */
#include "tun_int.h"
#include "dev_cpu.h"
#include <math.h>

#define PROBE_NS UINT64_C(3000000000)

static const int cliff_steps[] = {8, 12, 14, 16, 20, 24, 28, 32}; /* order of FMT_PROBE_CLIFF */

static rtx_status probe(tun_worker *w, fmt_work_probe what, int64_t a, int64_t b, fmt_work_rep *out,
                        rtx_err *err)
{
    fmt_work_req req = {.cmd = FMT_WORK_PROBE, .order = what, .a = a, .b = b};
    TRY(tun_worker_call(w, &req, PROBE_NS, out, NULL, err));
    return out->status == FMT_WORK_OK
               ? RTX_OK
               : FAIL(err, DEVICE, "probe %d of the machine failed", (int)what);
}

static rtx_status probe_one(tun_worker *w, fmt_work_probe what, int64_t a, int64_t b, double *out,
                            rtx_err *err)
{
    fmt_work_rep rep;
    TRY(probe(w, what, a, b, &rep, err));
    *out = rep.value[0];
    return RTX_OK;
}

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

static rtx_status read_curve(tun_worker *w, tun_hw *hw, rtx_err *err)
{
    static const double kib[] = {8,    16,   24,   32,   48,    64,    128,   256,   384,   512,
                                 1024, 2048, 4096, 8192, 16384, 24576, 32768, 65536, 131072};
    tun_curve *c = &hw->read_curve;
    for (size_t i = 0; i < COUNT_OF(kib); i++) {
        c->bytes[i] = kib[i] * 1024;
        TRY(probe_one(w, FMT_PROBE_READ, 1, (int64_t)c->bytes[i], &c->gbps[i], err));
        c->n = (int)i + 1;
    }
    hw->read_gbps[0] = c->gbps[c->n - 1];
    knees(hw);
    return probe_one(w, FMT_PROBE_READ, hw->cores, (int64_t)(131072 * 1024.0 / hw->cores),
                     &hw->read_gbps[1], err);
}

/* Last step before the rate falls below nine tenths of the best so far. */
static rtx_status register_cliff(tun_worker *w, tun_hw *hw, rtx_err *err)
{
    fmt_work_rep rep;
    TRY(probe(w, FMT_PROBE_CLIFF, 1, hw->isa, &rep, err));
    double best = 0;
    hw->cliff_vectors = cliff_steps[0];
    for (size_t i = 0; i < COUNT_OF(cliff_steps) && rep.value[i] >= 0.9 * best; i++) {
        best = MAX(best, rep.value[i]);
        hw->cliff_vectors = cliff_steps[i];
    }
    return RTX_OK;
}

static rtx_status measure(tun_worker *w, tun_hw *hw, rtx_err *err)
{
    TRY(probe_one(w, FMT_PROBE_FMA, 1, hw->isa, &hw->fma_gflops[0], err));
    TRY(probe_one(w, FMT_PROBE_FMA, hw->cores, hw->isa, &hw->fma_gflops[1], err));
    TRY(read_curve(w, hw, err));
    TRY(probe_one(w, FMT_PROBE_LATENCY, 1, (int64_t)64 << 20, &hw->latency_ns, err));
    if (hw->cores > 1) {
        TRY(probe_one(w, FMT_PROBE_HANDOFF, hw->cores, 0, &hw->handoff_ns, err));
        TRY(probe_one(w, FMT_PROBE_WAKE, hw->cores, 0, &hw->wake_ns, err));
    }
    return register_cliff(w, hw, err);
}

rtx_status tun_profile_with(tun_worker *w, tun_cache *c, fmt_isa isa, bool redo, tun_hw *out,
                            rtx_err *err)
{
    tun_hw hw = {.cores = base_cpu_count(), .isa = isa};
    snprintf(hw.cpu, sizeof hw.cpu, "%s", dev_cpu_get()->name);
    char facts[96];
    snprintf(facts, sizeof facts, "%d cores, v%d, %zu bytes", hw.cores, (int)isa, sizeof hw);
    tun_key key;
    tun_key_init(&key);
    tun_key_add(&key, "what", "profile");
    tun_key_add(&key, "cpu", hw.cpu);
    tun_key_add(&key, "facts", facts);
    tun_key_mark_identity(&key);
    AUTO_FREE char *data = NULL;
    size_t bytes = 0;
    rtx_status s = RTX_OK;
    if (!redo && tun_cache_get(c, TUN_MEAS, &key, &data, &bytes, NULL, 0) && bytes == sizeof hw) {
        memcpy(out, data, sizeof hw);
    } else if (!w) {
        s = FAIL(err, NOT_FOUND, "no profile in the cache");
    } else if ((s = measure(w, &hw, err)) == RTX_OK) {
        s = tun_cache_put(c, TUN_MEAS, &key, &hw, sizeof hw, &(tun_origin){true, true});
        *out = hw;
    }
    tun_key_done(&key);
    return s;
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
    rtx_status s = tun_profile_with(&w, &c, isa, redo, out, err);
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
    base_buf_printf(out, "\"l1_bytes\":%lld,\"l2_bytes\":%lld,\"l3_bytes\":%lld,\"read_curve\":[",
                    (long long)hw->l1_bytes, (long long)hw->l2_bytes, (long long)hw->l3_bytes);
    for (int i = 0; i < hw->read_curve.n; i++)
        base_buf_printf(out, "%s{\"bytes\":%.0f,\"gbps\":%.2f}", i ? "," : "",
                        hw->read_curve.bytes[i], hw->read_curve.gbps[i]);
    base_buf_puts(out, "]}");
}
