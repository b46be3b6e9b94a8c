/* Places of temporary values in the arena.
 *   layer    L3 run; may include base
 *   method   greedy by size, as offset assignment for inference engines does it (Pisarchyk and Lee, 2020). Within a few percent
 *            of the lower bound on chains, and fast enough to run when a new shape comes */
#include "run_program.h"
#include <stdlib.h>

typedef struct order {
    uint64_t bytes;
    uint32_t id;
} order;

static int by_size(const void *a, const void *b)
{
    const order *x = a, *y = b;
    if (x->bytes != y->bytes)
        return x->bytes > y->bytes ? -1 : 1;
    return x->id < y->id ? -1 : x->id > y->id;
}

/* Lowest offset at which life l fits beside the placed ones, which are sorted by offset. */
static uint64_t find_gap(const run_life *lives, const uint32_t *placed, uint32_t n_placed,
                         const run_life *l, uint64_t bytes)
{
    uint64_t at = 0;
    for (uint32_t i = 0; i < n_placed; i++) {
        const run_life *other = &lives[placed[i]];
        if (other->last < l->first || l->last < other->first)
            continue;
        if (other->offset >= at && other->offset - at >= bytes)
            return at;
        at = MAX(at, other->offset + other->bytes);
    }
    return at;
}

static void insert_sorted(const run_life *lives, uint32_t *placed, uint32_t n_placed, uint32_t id)
{
    uint32_t i = n_placed;
    for (; i > 0 && lives[placed[i - 1]].offset > lives[id].offset; i--)
        placed[i] = placed[i - 1];
    placed[i] = id;
}

rtx_status run_memory_place(run_life *lives, uint32_t n, uint64_t *out_bytes, rtx_err *err)
{
    AUTO_FREE order *todo = NULL;
    AUTO_FREE uint32_t *placed = NULL;
    TRY_ALLOC(todo = base_alloc_array(BASE_TAG_RUN, n, sizeof *todo), err);
    TRY_ALLOC(placed = base_alloc_array(BASE_TAG_RUN, n, sizeof *placed), err);
    for (uint32_t i = 0; i < n; i++) {
        lives[i].bytes = (lives[i].bytes + 63) / 64 * 64 + RUN_SKEW_BYTES;
        todo[i] = (order){lives[i].bytes, i};
    }
    qsort(todo, n, sizeof *todo, by_size);
    uint64_t end = 0;
    for (uint32_t i = 0; i < n; i++) {
        run_life *l = &lives[todo[i].id];
        l->offset = find_gap(lives, placed, i, l, l->bytes);
        if (l->offset > (uint64_t)INT64_MAX / 2)
            return FAIL(err, NOMEM, "temporary values do not fit into memory");
        end = MAX(end, l->offset + l->bytes);
        insert_sorted(lives, placed, i, todo[i].id);
    }
    *out_bytes = end;
    return RTX_OK;
}
