/* Inside rtx-worker: the parts behind each request.
 *   layer      worker; may include base, format, device
 *   threads    the main thread only; kernels run on the pool */
#ifndef WORKER_H
#define WORKER_H

#include "dev_code.h"
#include "fmt_work.h"

/* A loaded kernel. */
typedef struct worker_kernel {
    k_plan_fn plan;
    k_run_fn run;
} worker_kernel;

/* Per-thread scratch between guard pages; grows, never shrinks. */
typedef struct worker_scratch {
    uint8_t *map;
    size_t map_bytes, room; /* room: usable bytes of each thread */
    int threads;
} worker_scratch;
bool worker_scratch_reserve(worker_scratch *s, int threads, size_t bytes);
uint8_t *worker_scratch_of(const worker_scratch *s, int thread, size_t bytes);

/* One execution: the plan is made, units are spread over `ways` pool threads: in equal ranges, or shared as a program does. */
typedef struct worker_launch {
    const worker_kernel *kernel;
    const int64_t *arg;
    void *const *buf;
    const char *next;
    int64_t next_bytes, units, scratch_bytes;
    worker_scratch *scratch;
    uint32_t ways;
    base_share *shares; /* one a way; NULL = equal ranges */
    uint32_t *trap;
    const uint32_t *
        poison; /* two words: of the stack below the plan, below a thread's first run; NULL: as it is */
} worker_launch;
/* Ask the kernel's plan and reserve scratch; a status of fmt_work_status. */
uint32_t worker_plan(worker_launch *l, uint32_t plan_ways);
void worker_range(const worker_launch *l, int thread, int64_t begin, int64_t end);
bool worker_go(
    const worker_launch *l); /* all units on l->ways threads; false = no threads to be had */

uint32_t worker_time(const worker_kernel *k, const fmt_work_req *req, worker_scratch *scratch,
                     fmt_work_rep *rep);
uint32_t worker_probe(const fmt_work_req *req, fmt_work_rep *rep);

#define LARGE_PAGE ((size_t)2 << 20)
/* Fresh private memory, or NULL; on large pages from one of them on, as programs use them (run_place.c). */
void *worker_pages(size_t bytes);

#endif
