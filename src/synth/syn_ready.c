/* Looking up precompiled kernels.
 *   layer    L3 synth
 *   key      half of the SHA-256 of the general problem's canonical text */
#include "syn_ready_set.h"
#include "base_sys.h"

const syn_ready *syn_ready_find(const syn_problem *general, fmt_isa isa)
{
    uint64_t key[2];
    if (isa < FMT_ISA_V2 || isa > FMT_ISA_V4 || !syn_ready_key(general, key))
        return NULL;
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
