/* The roofline of one region with the machine's own figures. */
#include "pass_cost.h"
#include "base_core.h"

#define LANES 16

/* GB/s of one core on its share. A curve that was measured may rise here and there; a larger share is never faster. */
static double core_gbps(const pass_machine *hw, double share)
{
    double rate = hw->n_curve > 0 ? hw->curve_gbps[0] : 1;
    for (int i = 1; i < hw->n_curve && hw->curve_bytes[i - 1] < share; i++)
        rate = MIN(rate, hw->curve_gbps[i]);
    return MAX(rate, 0.1);
}

double pass_cost_move_ns(const pass_machine *hw, double bytes, int threads)
{
    double rate = core_gbps(hw, bytes / threads) * threads;
    bool in_memory = bytes > (double)hw->l3_bytes;
    if (in_memory && threads > 1 && hw->read_gbps[1] > 0)
        rate = MIN(rate, hw->read_gbps[1]);
    return bytes / rate;
}

double pass_cost_step_ns(const pass_machine *hw, int threads)
{
    return threads > 1 ? hw->handoff_ns : 0;
}

static double compute_ns(const pass_machine *hw, double flops, int threads)
{
    double peak = hw->fma_gflops[0] * threads;
    if (threads > 1 && hw->fma_gflops[1] > 0)
        peak = MIN(peak, hw->fma_gflops[1]);
    return flops / MAX(peak, 0.1);
}

double pass_cost_relief_ns(const pass_machine *hw, const pass_work *w)
{
    return LANES * compute_ns(hw, w->cut_flops, w->threads);
}

void pass_cost(const pass_machine *hw, const pass_work *w, double *out_fused_ns,
               double *out_split_ns)
{
    double anchor =
        MAX(compute_ns(hw, w->flops, w->threads), pass_cost_move_ns(hw, w->bytes, w->threads));
    *out_fused_ns = anchor + compute_ns(hw, w->cut_flops, w->threads);
    *out_split_ns = *out_fused_ns + 2 * pass_cost_move_ns(hw, w->spill_bytes, w->threads) +
                    pass_cost_step_ns(hw, w->threads);
}
