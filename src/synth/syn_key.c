/* The key under which a problem is found in the precompiled set.
 *   layer    L3 synth; apart from syn_ready.c, since the program that makes the set needs the key but not the set */
#include "base_sys.h"
#include "syn_ready_set.h"

bool syn_ready_key(const syn_problem *p, uint64_t out[2])
{
    AUTO_BUF base_buf text;
    base_buf_init(&text, BASE_TAG_SYNTH, 1u << 20);
    if (syn_problem_text(p, &text, NULL) != RTX_OK)
        return false;
    base_sha256_sum sum = base_sha256_of(text.data, text.len);
    memcpy(out, sum.b, 2 * sizeof *out);
    return true;
}
