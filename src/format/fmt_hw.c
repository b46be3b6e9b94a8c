/* Facts as expressions and keys see them: rounded, with defaults. */
#include "fmt_hw.h"

const char *hw_fact_name(hw_fact f)
{
    static const char *const names[HW_FACTS] = {
#define HW_NAME(name, value) #name,
        HW_FACT_TABLE(HW_NAME)
#undef HW_NAME
    };
    return names[f];
}

static int64_t measured(const hw_facts *hw, hw_fact f)
{
    if (!hw)
        return 0;
    switch (f) {
    case HW_L1:
        return hw->l1_bytes;
    case HW_L2:
        return hw->l2_bytes;
    case HW_L3:
        return hw->l3_bytes;
    default:
        return hw->cliff_vectors;
    }
}

/* Halfway on a log scale, by squares: no rounding of floating point decides a key. */
static int64_t nearest_power(int64_t v)
{
    int64_t p = 1;
    while (p < (INT64_C(1) << 50) && 2 * (double)p * (double)p <= (double)v * (double)v)
        p *= 2;
    return p;
}

int64_t hw_fact_value(const hw_facts *hw, fmt_isa isa, hw_fact f)
{
    static const int64_t defaults[HW_FACTS] = {
#define HW_DEFAULT(name, value) value,
        HW_FACT_TABLE(HW_DEFAULT)
#undef HW_DEFAULT
    };
    int64_t v = measured(hw, f);
    if (f == HW_CLIFF)
        return v > 0 ? MIN(v, isa == FMT_ISA_V4 ? 32 : 16) : isa == FMT_ISA_V4 ? 32 : 14;
    return v > 0 ? nearest_power(v) : defaults[f];
}
