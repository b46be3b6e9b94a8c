/* rtx-worker: runs candidate kernels so that nothing they do can hurt the tuner.
 *   usage      rtx-worker PARENT             serve requests on descriptor 3, memory file on 4 (fmt_work.h)
 *              rtx-worker --exec PARENT CC … run a compiler that dies together with the parent
 *   guards     every operand of a checked launch lies between two unmapped pages, inputs are mapped read-only, scratch
 *              lies between guard pages too. A stray access ends the process, which the parent sees
 *   lifetime   ends at end-of-file of the socket, and by the kernel's parent-death signal even when a kernel hangs */
#include "worker.h"
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define KERNELS          64 /* loaded at a time */
#define SCRATCH_MARGIN   INT64_C(4096)
#define STACK_BYTES      32768
#define EXIT_NOT_STARTED 127

/* ---- memory ---- */

static size_t page_up(size_t n) { return (n + FMT_WORK_PAGE - 1) / FMT_WORK_PAGE * FMT_WORK_PAGE; }

void *worker_pages(size_t bytes)
{
    size_t more = bytes < LARGE_PAGE ? 0 : LARGE_PAGE;
    uint8_t *p = mmap(NULL, bytes + more, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED)
        return NULL;
    size_t before = -(uintptr_t)p & (LARGE_PAGE - 1);
    if (more == 0)
        return p;
    if (before)
        munmap(p, before);
    if (more > before)
        munmap(p + before + page_up(bytes), more - before);
    (void)madvise(p + before, bytes, MADV_HUGEPAGE); /* a failure only costs speed */
    return p + before;
}

bool worker_scratch_reserve(worker_scratch *s, int threads, size_t bytes)
{
    size_t room = page_up(MAX(bytes, 1));
    if (threads <= s->threads && room <= s->room)
        return true;
    room = MAX(room, s->room);
    threads = MAX(threads, s->threads);
    if (s->map)
        munmap(s->map, s->map_bytes);
    *s = (worker_scratch){0};
    size_t stride = room + FMT_WORK_PAGE, total = (size_t)threads * stride + FMT_WORK_PAGE;
    uint8_t *map = mmap(NULL, total, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (map == MAP_FAILED)
        return false;
    for (int t = 0; t < threads; t++)
        if (mprotect(map + FMT_WORK_PAGE + (size_t)t * stride, room, PROT_READ | PROT_WRITE) != 0) {
            munmap(map, total);
            return false;
        }
    *s = (worker_scratch){map, total, room, threads};
    return true;
}

/* The last `bytes` before the guard page, kept at 64-byte alignment. */
uint8_t *worker_scratch_of(const worker_scratch *s, int thread, size_t bytes)
{
    uint8_t *first = s->map + FMT_WORK_PAGE + (size_t)thread * (s->room + FMT_WORK_PAGE);
    return first + s->room - (bytes + 63) / 64 * 64;
}

/* The bytes of the scratch memory that a launch may not touch but could: a margin before the scratch, and what
 * alignment leaves between its last byte and the guard page. */
typedef struct margin {
    uint8_t *scratch;
    int64_t before, bytes, after; /* before < 0 */
} margin;

static margin margin_of(const worker_scratch *s, int thread, size_t bytes)
{
    uint8_t *p = worker_scratch_of(s, thread, bytes);
    int64_t whole = (int64_t)(bytes + 63) / 64 * 64, rest = (int64_t)s->room - whole;
    return (margin){p, -MIN(rest, SCRATCH_MARGIN), (int64_t)bytes, whole};
}

static void scratch_fill(const worker_scratch *s, int threads, size_t bytes, uint32_t word)
{
    for (int t = 0; t < threads; t++) {
        margin m = margin_of(s, t, bytes);
        for (int64_t i = m.before; i < m.after; i += 4)
            memcpy(m.scratch + i, &word, 4);
    }
}

/* First byte of [from, to) that is no longer poison, or to. */
static int64_t broken(const uint8_t *p, int64_t from, int64_t to, uint32_t word)
{
    while (from < to && p[from] == (uint8_t)(word >> (from & 3) * 8))
        from++;
    return from;
}

/* Is the margin of every thread still poison? Else *out_at is a byte that is not. */
static bool margin_whole(const worker_scratch *s, int threads, size_t bytes, uint32_t word,
                         int64_t *out_at)
{
    for (int t = 0; t < threads; t++) {
        margin m = margin_of(s, t, bytes);
        if ((*out_at = broken(m.scratch, m.before, 0, word)) < 0 ||
            (*out_at = broken(m.scratch, m.bytes, m.after, word)) < m.after)
            return false;
    }
    return true;
}

/* What a kernel finds in locals that it did not set. */
static __attribute__((noinline)) void stack_fill(uint32_t word)
{
    uint32_t stack[STACK_BYTES / 4];
    for (size_t i = 0; i < COUNT_OF(stack); i++)
        stack[i] = word;
    __asm__ volatile("" : : "r"(stack) : "memory");
}

/* ---- code ---- */

typedef struct loaded {
    uint8_t sha256[32];
    dev_code code;
    const uint8_t *at;
    uint64_t used;
} loaded;

static loaded cache[KERNELS];
static uint64_t cache_clock;

static uint32_t kernel_get(const uint8_t *mem, size_t mem_bytes, const fmt_work_code *c,
                           worker_kernel *out)
{
    if (c->offset > mem_bytes || c->bytes > mem_bytes - c->offset || c->plan_entry >= c->bytes ||
        c->run_entry >= c->bytes)
        return FMT_WORK_BAD_REQUEST;
    loaded *l = &cache[0];
    for (loaded *i = cache; i < cache + KERNELS; i++) {
        if (i->at && memcmp(i->sha256, c->sha256, 32) == 0) {
            l = i;
            break;
        }
        if (i->used < l->used)
            l = i;
    }
    if (!l->at || memcmp(l->sha256, c->sha256, 32) != 0) {
        dev_code_unload(&l->code);
        *l = (loaded){0};
        dev_blob blob = {mem + c->offset, c->bytes, c->sha256, "candidate"};
        if (dev_code_load(&blob, 1, &l->code, &l->at, NULL) != RTX_OK) {
            *l = (loaded){0};
            return FMT_WORK_NO_MEMORY;
        }
        memcpy(l->sha256, c->sha256, 32);
    }
    l->used = ++cache_clock;
    uintptr_t at = (uintptr_t)l->at;
    *out = (worker_kernel){(k_plan_fn)(at + c->plan_entry), (k_run_fn)(at + c->run_entry)};
    return FMT_WORK_OK;
}

/* ---- launches ---- */

uint32_t worker_plan(worker_launch *l, uint32_t plan_ways)
{
    k_plan p = {-1, -1};
    if (l->poison)
        stack_fill(l->poison[0]);
    l->kernel->plan(l->arg, plan_ways, &p);
    l->units = p.units;
    l->scratch_bytes = p.scratch_bytes;
    if (p.units < 0 || p.units > FMT_WORK_UNITS_MAX || p.scratch_bytes < 0 ||
        p.scratch_bytes > FMT_WORK_SCRATCH_MAX)
        return FMT_WORK_BAD_PLAN;
    if (!worker_scratch_reserve(l->scratch, (int)l->ways, (size_t)p.scratch_bytes))
        return FMT_WORK_NO_MEMORY;
    return FMT_WORK_OK;
}

void worker_range(const worker_launch *l, int thread, int64_t begin, int64_t end)
{
    k_call c = {.buf = l->buf,
                .arg = l->arg,
                .next = l->next,
                .next_bytes = l->next_bytes,
                .trap = l->trap,
                .scratch = worker_scratch_of(l->scratch, thread, (size_t)l->scratch_bytes)};
    if (begin < end)
        l->kernel->run(&c, begin, end);
}

static void party(void *ctx, int t, int n)
{
    const worker_launch *l = ctx;
    if (l->poison)
        stack_fill(l->poison[1]);
    int64_t begin = l->units * t / n, end = l->units * (t + 1) / n;
    if (!l->shares || n == 1)
        worker_range(l, t, begin, end);
    else
        while (base_share_take(l->shares, t, n, l->units, &begin, &end))
            worker_range(l, t, begin, end);
}

bool worker_go(const worker_launch *l)
{
    if (l->ways <= 1) {
        party((void *)(uintptr_t)l, 0, 1);
        return true;
    }
    for (uint32_t t = 0; l->shares && t < l->ways; t++)
        base_share_reset(&l->shares[t]);
    return base_pool_run((int)l->ways, party, (void *)(uintptr_t)l, NULL) == RTX_OK;
}

static void go_reverse(const worker_launch *l)
{
    int64_t parts = MIN(l->units, 61); /* prime: ranges of uneven length */
    stack_fill(l->poison[1]);
    for (int64_t i = parts; i-- > 0;)
        worker_range(l, 0, l->units * i / parts, l->units * (i + 1) / parts);
}

/* Map one operand between guard pages; NULL on failure. */
static uint8_t *map_span(const fmt_work_span *s, size_t mem_bytes)
{
    if (s->offset % FMT_WORK_PAGE || s->bytes % FMT_WORK_PAGE || !s->bytes ||
        s->offset > mem_bytes || s->bytes > mem_bytes - s->offset || s->first > s->bytes)
        return NULL;
    uint8_t *map = mmap(NULL, s->bytes + 2 * FMT_WORK_PAGE, PROT_NONE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (map == MAP_FAILED)
        return NULL;
    int prot = s->writable ? PROT_READ | PROT_WRITE : PROT_READ;
    if (mmap(map + FMT_WORK_PAGE, s->bytes, prot, MAP_SHARED | MAP_FIXED, FMT_WORK_MEM_FD,
             (off_t)s->offset) == MAP_FAILED) {
        munmap(map, s->bytes + 2 * FMT_WORK_PAGE);
        return NULL;
    }
    return map;
}

/* Mappings of the latest launches, kept while requests repeat them: two layouts of a few shapes. */
typedef struct mapped {
    fmt_work_span span;
    uint8_t *map;
    uint64_t used;
} mapped;
static mapped maps[512];
static uint64_t map_clock;

static uint8_t *span_get(const fmt_work_span *s, size_t mem_bytes)
{
    mapped *m = &maps[0];
    for (mapped *i = maps; i < maps + COUNT_OF(maps); i++) {
        if (i->map && memcmp(&i->span, s, sizeof *s) == 0) {
            i->used = ++map_clock;
            return i->map + FMT_WORK_PAGE + s->first;
        }
        if (i->used < m->used)
            m = i;
    }
    if (m->map)
        munmap(m->map, m->span.bytes + 2 * FMT_WORK_PAGE);
    *m = (mapped){*s, map_span(s, mem_bytes), ++map_clock};
    return m->map ? m->map + FMT_WORK_PAGE + s->first : NULL;
}

static uint32_t run(const worker_kernel *k, const fmt_work_req *req, size_t mem_bytes,
                    worker_scratch *scratch, fmt_work_rep *rep)
{
    void *buf[FMT_WORK_OPERANDS];
    for (uint32_t i = 0; i < req->n_operands; i++)
        if (!(buf[i] = span_get(&req->u.span[i], mem_bytes)))
            return FMT_WORK_NO_MEMORY;
    uint32_t trap = 0, ways = req->order == FMT_WORK_SPLIT ? MAX(req->ways, 1) : 1;
    /* a plan and its runs never find the same in locals, and once the plan finds more */
    uint32_t plan = req->order == FMT_WORK_REVERSE ? req->poison : ~req->poison;
    worker_launch l = {.kernel = k,
                       .arg = req->arg,
                       .buf = buf,
                       .scratch = scratch,
                       .ways = ways,
                       .trap = &trap,
                       .poison = (uint32_t[]){plan, ~plan}};
    uint32_t status = worker_plan(&l, ways);
    rep->units = l.units;
    rep->scratch_bytes = l.scratch_bytes;
    if (status != FMT_WORK_OK)
        return status;
    scratch_fill(scratch, (int)ways, (size_t)l.scratch_bytes, req->poison);
    if (req->order == FMT_WORK_REVERSE)
        go_reverse(&l);
    else if (!worker_go(&l))
        return FMT_WORK_NO_MEMORY;
    rep->trap = trap;
    bool whole =
        margin_whole(scratch, (int)ways, (size_t)l.scratch_bytes, req->poison, &rep->stray);
    return whole ? FMT_WORK_OK : FMT_WORK_STRAYED;
}

/* ---- service ---- */

static uint32_t serve(const fmt_work_req *req, const uint8_t *mem, size_t mem_bytes,
                      fmt_work_rep *rep)
{
    static worker_scratch scratch;
    if (req->version != FMT_WORK_VERSION || req->n_operands > FMT_WORK_OPERANDS ||
        req->n_args > FMT_WORK_ARGS || req->ways > BASE_POOL_MAX)
        return FMT_WORK_BAD_REQUEST;
    if (req->cmd == FMT_WORK_PING)
        return FMT_WORK_OK;
    if (req->cmd == FMT_WORK_PROBE)
        return worker_probe(req, rep);
    worker_kernel k;
    uint32_t status = kernel_get(mem, mem_bytes, &req->code, &k);
    if (status != FMT_WORK_OK)
        return status;
    if (req->cmd == FMT_WORK_RUN)
        return run(&k, req, mem_bytes, &scratch, rep);
    if (req->cmd == FMT_WORK_TIME)
        return worker_time(&k, req, &scratch, rep);
    return FMT_WORK_BAD_REQUEST;
}

static int serve_all(void)
{
    off_t mem_bytes = lseek(FMT_WORK_MEM_FD, 0, SEEK_END);
    if (mem_bytes <= 0)
        return 1;
    const uint8_t *mem = mmap(NULL, (size_t)mem_bytes, PROT_READ, MAP_SHARED, FMT_WORK_MEM_FD, 0);
    if (mem == MAP_FAILED)
        return 1;
    static fmt_work_req req;
    for (;;) {
        ssize_t got = recv(FMT_WORK_SOCK_FD, &req, sizeof req, 0);
        if (got < 0 && errno == EINTR)
            continue;
        if (got != (ssize_t)sizeof req)
            return got != 0;
        uint64_t t_ns = base_now_ns();
        fmt_work_rep rep = {0};
        rep.status = serve(&req, mem, (size_t)mem_bytes, &rep);
        rep.total_ns = base_now_ns() - t_ns;
        if (send(FMT_WORK_SOCK_FD, &rep, sizeof rep, MSG_NOSIGNAL) != (ssize_t)sizeof rep)
            return 0;
    }
}

/* ---- compilers under supervision ---- */

static void end_group(int sig)
{
    (void)sig;
    kill(0, SIGKILL); /* ourselves, the driver and everything it started */
}

/* We lead a process group of our own; the parent's end or its SIGTERM ends the group. */
static int supervise(char **argv)
{
    signal(SIGINT, SIG_IGN);
    pid_t pid = fork();
    if (pid == 0) {
        signal(SIGINT, SIG_DFL);
        signal(SIGTERM, SIG_DFL);
        execv(argv[0], argv);
        _exit(EXIT_NOT_STARTED);
    }
    if (pid < 0)
        return EXIT_NOT_STARTED;
    int status;
    while (waitpid(pid, &status, 0) < 0)
        if (errno != EINTR)
            return EXIT_NOT_STARTED;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

int main(int argc, char **argv)
{
    bool exec = argc > 1 && strcmp(argv[1], "--exec") == 0;
    const char *parent = argc > 1 + exec ? argv[1 + exec] : NULL;
    if (!parent || (exec && argc < 4))
        return 2;
    if (exec)
        signal(SIGTERM, end_group);
    prctl(PR_SET_PDEATHSIG, exec ? SIGTERM : SIGKILL);
    if (getppid() != (pid_t)strtol(parent, NULL, 10)) /* it died before the line above */
        return 1;
    if (exec)
        return supervise(argv + 3);
    struct rlimit none = {0, 0};
    setrlimit(RLIMIT_CORE, &none);
    prctl(PR_SET_DUMPABLE, 0);
    signal(SIGINT, SIG_IGN); /* Ctrl-C is the parent's to handle */
    const int faults[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT, SIGTRAP};
    for (size_t i = 0; i < COUNT_OF(faults);
         i++) /* sanitizers install handlers of their own: a fault must end us */
        signal(faults[i], SIG_DFL);
    return serve_all();
}
