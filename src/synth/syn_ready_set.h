/* The precompiled set, for the build-time program that compiles it and for tests that run all of it.
 *   layer    L3 synth, private to it */
#ifndef SYN_READY_SET_H
#define SYN_READY_SET_H

#include "syn.h"

/* One general problem of the set; the order is fixed, most expensive to compile first. The problem is borrowed. rare: see
 * RARE in syn_ready.def. */
typedef rtx_status (*syn_ready_fn)(void *ctx, const syn_problem *general, uint32_t index, bool rare,
                                   rtx_err *err);
RTX_MUST_CHECK rtx_status syn_ready_each(syn_ready_fn fn, void *ctx, rtx_err *err);

/* ---- tables made by the build (one a level), sorted by key ---- */
typedef struct syn_ready_row {
    uint64_t key[2]; /* first half of SHA-256 of the problem's text */
    syn_ready ready;
} syn_ready_row;
#define SYN_READY_PARTS 4 /* tables a level; meson.build counts the same */
typedef struct syn_ready_part {
    const syn_ready_row *rows;
    const uint32_t *n;
} syn_ready_part;
extern const syn_ready_part syn_ready_parts[3][SYN_READY_PARTS]; /* v2, v3, v4 */

/* The key of a problem; false when memory ran out. */
bool syn_ready_key(const syn_problem *p, uint64_t out[2]);

#endif
