/* Where values lie: temporary ones and the weights that a run streams belong on large pages.
 *   layer    L3 run; may include base, format
 *   why      small pages lie where chance puts them, and collide in the second-level cache; each costs a walk through nested page
 *            tables when weights stream past. MiniLM at 16 tokens on one thread, Zen 4: 3.35 ms on small pages, 3.22 so
 *   weights  stay in the mapped file until the program has run once, so that opening and the first result are not slower. Then
 *            runs copy them piece by piece, in the order in which steps read them, in 1/32 of their time; the file's pages
 *            are given back. 12 MB a second of running on a virtual machine whose host must find the memory first
 *   threads  one thread copies at a time, others go on; a context points to what had arrived when it last looked
 *   failure  of an allocation, or a system without large pages: the weights stay in the file */
#include "run_program.h"
#include <sys/mman.h>

#define HUGE_PAGE     ((uint64_t)2 << 20)
#define TEMPS_WORTH   ((uint64_t)64 << 10)
#define WEIGHTS_WORTH ((uint64_t)4 << 20) /* less stays in the second-level cache of page numbers */
#define PIECE_BYTES   ((uint64_t)1 << 18)
#define MOVE_SHARE    32 /* of the time of runs, one part for moving */

/* ---- blocks ---- */

static uint64_t pages_up(uint64_t bytes) { return (bytes + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE; }

static uint8_t *on_pages(uint8_t *block, uint64_t bytes)
{
    uint8_t *at = block + (-(uintptr_t)block & (HUGE_PAGE - 1));
    (void)madvise(at, (size_t)pages_up(bytes), MADV_HUGEPAGE); /* a failure only costs speed */
    return at;
}

uint64_t run_place_room(const run_place *w, uint64_t bytes)
{
    return w->temps && bytes >= TEMPS_WORTH ? pages_up(bytes) + HUGE_PAGE : bytes;
}

uint8_t *run_place_temps(const run_place *w, uint8_t *block, uint64_t bytes)
{
    return w->temps && bytes >= TEMPS_WORTH ? on_pages(block, bytes) : block;
}

/* ---- weights ---- */

/* Constants do not overlap; a file where they do would ask for more than it holds. */
static void list_weights(run_place *w, const fmt_plan *plan, uint8_t *listed)
{
    for (uint32_t s = 0; s < plan->n_steps; s++) {
        for (uint32_t k = 0; k < plan->steps[s].n_operands; k++) {
            uint32_t value = plan->operands[plan->steps[s].operand + k].value;
            const fmt_value *v = &plan->values[value];
            if (v->kind != FMT_VAL_CONST || !v->huge || listed[value])
                continue;
            listed[value] = 1;
            w->todo[w->n_todo++] = value;
            w->bytes += (v->bytes + 63) / 64 * 64;
        }
    }
    if (w->bytes < WEIGHTS_WORTH || w->bytes > (plan->consts_bytes + 63) / 64 * 64)
        w->n_todo = 0;
}

rtx_status run_place_init(run_place *w, const fmt_plan *plan, base_arena *mem, rtx_err *err)
{
    if (base_env_int(BASE_ENV_HUGE_PAGES, 0, 1) == 0 || !base_huge_pages())
        return RTX_OK;
    for (uint32_t i = 0; i < plan->n_values; i++)
        w->temps |= plan->values[i].kind == FMT_VAL_TEMP && plan->values[i].huge;
    TRY_ALLOC(w->moved = base_arena_array(mem, plan->n_values, sizeof *w->moved), err);
    AUTO_FREE uint8_t *listed = NULL; /* a value: in todo */
    TRY_ALLOC(listed = base_zalloc(BASE_TAG_RUN, plan->n_values), err);
    TRY_ALLOC(w->todo = base_arena_array(mem, plan->n_values, sizeof *w->todo), err);
    list_weights(w, plan, listed);
    return RTX_OK;
}

void run_place_done(run_place *w) { base_free(w->block); }

const uint8_t *run_place_const(run_place *w, const fmt_plan *plan, uint32_t value)
{
    const uint8_t *at =
        w->moved ? atomic_load_explicit(&w->moved[value], memory_order_acquire) : NULL;
    return at ? at : plan->consts + plan->values[value].offset;
}

bool run_place_settled(const run_place *w)
{
    return w->n_todo == 0 || atomic_load_explicit(&w->idle, memory_order_relaxed);
}

/* Copy the next piece; called by the one thread that holds `busy`. */
static void move_piece(run_place *w, const fmt_plan *plan, const base_map *file)
{
    if (!w->block) {
        w->block = base_alloc(BASE_TAG_RUN, (size_t)(pages_up(w->bytes) + HUGE_PAGE));
        if (!w->block) {
            atomic_store_explicit(&w->idle, true, memory_order_relaxed);
            return;
        }
        w->to = on_pages(w->block, w->bytes);
    }
    for (uint64_t left = PIECE_BYTES; left > 0 && w->at < w->n_todo;) {
        const fmt_value *v = &plan->values[w->todo[w->at]];
        const uint8_t *from = plan->consts + v->offset;
        uint64_t n = MIN(left, v->bytes - w->copied);
        memcpy(w->to + w->copied, from + w->copied, (size_t)n);
        w->copied += n;
        left -= n;
        if (w->copied < v->bytes)
            return;
        atomic_store_explicit(&w->moved[w->todo[w->at]], w->to, memory_order_release);
        atomic_fetch_add_explicit(&w->generation, 1, memory_order_release);
        base_map_forget(file, from, (size_t)v->bytes);
        w->to += (v->bytes + 63) / 64 * 64;
        w->copied = 0;
        w->at++;
    }
    if (w->at == w->n_todo)
        atomic_store_explicit(&w->idle, true, memory_order_relaxed);
}

void run_place_more(run_place *w, const fmt_plan *plan, const base_map *file, uint64_t run_ns)
{
    if (run_place_settled(w) || atomic_exchange_explicit(&w->busy, true, memory_order_acquire))
        return;
    if (w->started) { /* not after the first run: someone may wait for its result only */
        w->credit_ns += (int64_t)(run_ns / MOVE_SHARE);
        uint64_t t_ns = base_now_ns();
        if (w->credit_ns > 0) {
            move_piece(w, plan, file);
            w->credit_ns -= (int64_t)(base_now_ns() - t_ns);
        }
    }
    w->started = true;
    atomic_store_explicit(&w->busy, false, memory_order_release);
}
