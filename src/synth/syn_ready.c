/* Looking up precompiled kernels.
 *   layer    L3 synth
 *   key      half of the SHA-256 of the general problem's canonical text */
#include "syn_ready_set.h"
#include "base_sys.h"

static const syn_ready *find(const uint64_t key[2], fmt_isa isa)
{
    for (int i = 0; i < SYN_READY_PARTS; i++) {
        const syn_ready_part *part = &syn_ready_parts[isa - FMT_ISA_V2][i];
        uint32_t lo = 0, hi = *part->n;
        while (lo < hi) {
            uint32_t mid = lo + (hi - lo) / 2;
            const uint64_t *k = part->rows[mid].key;
            if (k[0] < key[0] || (k[0] == key[0] && k[1] < key[1]))
                lo = mid + 1;
            else
                hi = mid;
        }
        if (lo < *part->n && part->rows[lo].key[0] == key[0] && part->rows[lo].key[1] == key[1])
            return &part->rows[lo].ready;
    }
    return NULL;
}

rtx_status syn_ready_lookup(const syn_problem *general, fmt_isa isa, const syn_ready **out,
                            rtx_err *err)
{
    uint64_t key[2];
    if (!syn_ready_key(general, key))
        return FAIL(err, NOMEM, "out of memory");
    *out = isa < FMT_ISA_V2 || isa > FMT_ISA_V4 ? NULL : find(key, isa);
    return RTX_OK;
}

const syn_ready *syn_ready_find(const syn_problem *general, fmt_isa isa)
{
    const syn_ready *r = NULL;
    return syn_ready_lookup(general, isa, &r, NULL) == RTX_OK ? r : NULL;
}
