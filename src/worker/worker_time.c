/* Timing samples: the deployment's launch mode on buffers that nobody looks at.
 *   pages      large ones, as programs use
 *   weights    walk through an arena larger than the usable L3, as the layers of a network do; the next copy is the
 *              prefetch hint
 *   inputs     and outputs walk over a few copies and stay in the nearer caches, as activations do
 *   sample     one untimed call (it also tells how many calls fill the wanted time), then a run of calls between two
 *              clock reads. A call longer than the wanted time is the sample itself */
#include "worker.h"
#include <sys/mman.h>

#define WEIGHT_ARENA ((size_t)96 << 20)
#define NEAR_BYTES   ((size_t)2 << 20) /* copies of one activation operand together */
#define NEAR_COPIES  4
#define SETS         128 /* operand sets prepared before the clock starts */
#define BLOCK        ((size_t)1 << 18)
#define SKEW         ((size_t)68 << 10 | 320) /* operands do not begin in the same sets of a cache */

/* ---- arenas ---- */

typedef struct arena {
    uint8_t *data;
    size_t bytes, cursor;
    int64_t bound;
} arena;

static uint64_t mix(uint64_t *s)
{
    *s += 0x9e3779b97f4a7c15u;
    uint64_t z = *s;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static void fill_block(uint8_t *p, size_t bytes, uint32_t fill, int64_t bound)
{
    uint64_t s = 12345, range = (uint64_t)MAX(bound, 1);
    for (size_t i = 0; i + 8 <= bytes; i += 8) {
        uint64_t r = mix(&s);
        float f[2] = {(float)((double)(r & 0xffffff) / 8388608.0 - 1.0),
                      (float)((double)(r >> 40) / 8388608.0 - 1.0)};
        uint32_t w[2] = {(uint32_t)(r % range), (uint32_t)((r >> 32) % range)};
        uint64_t wide = r % range, bits = r & 0x0101010101010101u,
                 half = (r & 0x03ff03ff03ff03ffu) | 0x3800380038003800u;
        const void *from = fill == FMT_FILL_F32   ? (const void *)f
                           : fill == FMT_FILL_I64 ? (const void *)&wide
                           : fill == FMT_FILL_I32 ? (const void *)w
                           : fill == FMT_FILL_F16 ? (const void *)&half
                                                  : (const void *)&bits;
        memcpy(p + i, from, 8);
    }
}

/* At least `bytes` of content; the old content may move. */
static bool arena_reserve(arena *a, size_t bytes, uint32_t fill, int64_t bound)
{
    if (bytes <= a->bytes && a->bound == bound)
        return true;
    bytes = (MAX(bytes, a->bytes) + LARGE_PAGE - 1) / LARGE_PAGE * LARGE_PAGE;
    uint8_t *fresh = worker_pages(bytes);
    if (!fresh)
        return false;
    if (fill != FMT_FILL_ZERO) {
        fill_block(fresh, BLOCK, fill, bound);
        for (size_t i = BLOCK; i < bytes; i += BLOCK)
            memcpy(fresh + i, fresh, BLOCK);
    }
    if (a->data)
        munmap(a->data, a->bytes);
    *a = (arena){fresh, bytes, 0, bound};
    return true;
}

/* One arena a weight, one an activation operand: no two operands of a call share memory. */
static arena arenas[FMT_WORK_OPERANDS][3][8];

/* Next copy of operand i, or NULL. */
static uint8_t *next_copy(uint32_t i, const fmt_work_made *m)
{
    arena *a = &arenas[i][m->role % 3][m->fill % 8];
    size_t one =
        (MAX(m->bytes, 1) + 127) / 64 * 64; /* vector loads of the last elements stay inside */
    size_t copies = m->role == FMT_WORK_WEIGHT ? MAX(WEIGHT_ARENA / one, 2)
                                               : MIN(MAX(NEAR_BYTES / one, 1), NEAR_COPIES);
    if (!arena_reserve(a, one * copies + i * SKEW, m->fill, m->bound))
        return NULL;
    if (a->cursor + one > one * copies)
        a->cursor = 0;
    uint8_t *p = a->data + i * SKEW + a->cursor;
    a->cursor += one;
    return p + m->first;
}

/* ---- samples ---- */

typedef struct sets {
    void *buf[SETS][FMT_WORK_OPERANDS];
    uint32_t weight; /* operand that streams, or n_operands */
} sets;

static bool make_sets(const fmt_work_req *req, uint64_t n, sets *out)
{
    out->weight = req->n_operands;
    for (uint32_t i = 0; i < req->n_operands; i++)
        if (req->u.made[i].role == FMT_WORK_WEIGHT &&
            (out->weight == req->n_operands ||
             req->u.made[i].bytes > req->u.made[out->weight].bytes))
            out->weight = i;
    for (uint64_t s = 0; s < n; s++)
        for (uint32_t i = 0; i < req->n_operands; i++)
            if (!(out->buf[s][i] = next_copy(i, &req->u.made[i])))
                return false;
    return true;
}

/* Make calls [from, to) of the sequence; each sees the next set's weights as the hint. */
static bool call_range(worker_launch *l, const sets *s, uint64_t n_sets, uint64_t from, uint64_t to,
                       uint32_t n_operands)
{
    for (uint64_t c = from; c < to; c++) {
        l->buf = s->buf[c % n_sets];
        if (s->weight < n_operands)
            l->next = s->buf[(c + 1) % n_sets][s->weight];
        if (!worker_go(l))
            return false;
    }
    return true;
}

uint32_t worker_time(const worker_kernel *k, const fmt_work_req *req, worker_scratch *scratch,
                     fmt_work_rep *rep)
{
    static sets s;
    static base_share shares[BASE_POOL_MAX];
    uint32_t trap = 0;
    worker_launch l = {.kernel = k,
                       .arg = req->arg,
                       .scratch = scratch,
                       .ways = MAX(req->ways, 1),
                       .shares = req->ways <= BASE_POOL_MAX ? shares : NULL,
                       .trap = &trap};
    uint32_t status = worker_plan(&l, l.ways);
    rep->units = l.units;
    rep->scratch_bytes = l.scratch_bytes;
    if (status != FMT_WORK_OK)
        return status;
    if (!make_sets(req, 2, &s))
        return FMT_WORK_NO_MEMORY;
    if (s.weight < req->n_operands)
        l.next_bytes = (int64_t)req->u.made[s.weight].bytes;
    uint64_t t_ns = base_now_ns();
    if (!call_range(&l, &s, 2, 0, 1, req->n_operands))
        return FMT_WORK_NO_MEMORY;
    rep->first_ns = base_now_ns() - t_ns;
    if (rep->first_ns >= req->least_ns * 4) { /* long enough to be its own sample */
        rep->ns = rep->first_ns;
        rep->calls = 1;
        return FMT_WORK_OK;
    }
    uint64_t calls = MIN(MAX(req->least_ns / MAX(rep->first_ns, 50), 2), MAX(req->max_calls, 2));
    uint64_t n_sets = MIN(calls + 1, SETS);
    if (!make_sets(req, n_sets, &s))
        return FMT_WORK_NO_MEMORY;
    t_ns = base_now_ns();
    if (!call_range(&l, &s, n_sets, 0, calls, req->n_operands))
        return FMT_WORK_NO_MEMORY;
    rep->ns = base_now_ns() - t_ns;
    rep->calls = calls;
    return FMT_WORK_OK;
}
