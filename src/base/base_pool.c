/* The one thread pool of the process, and the barrier for its parties.
 *   layer      L0 base
 *   threads    see base_sys.h
 *   waiting    everybody waits on a 32-bit word whose bit 0 says "someone sleeps here". A waiter spins for a bounded
 *              time, then sets the bit and sleeps in the kernel; who changes the word clears the bit and wakes only
 *              if it was set. One word carries both, so no wake-up can fall between the test and the sleep.
 *   why spin   waking a halted CPU costs 45 µs typically; a layer of a network runs shorter. A virtual CPU that halts is given
 *              away, and comes back milliseconds later: meanwhile the others wait, halt, and are given away too (MiniLM at
 *              128 tokens, two threads, loud neighbours: 40 ms, and 28 with what follows, 2026-12-01). So parties of a run
 *              hardly ever sleep, and between runs workers spin for a while
 *   manners    who has waited for a moment yields at each look, so others that want the CPU get it; with more parties than
 *              CPUs nobody spins */
#include "base_sys.h"
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <unistd.h>

#define SPIN_NS         10000000 /* in a run */
#define SPIN_IDLE_NS    1000000  /* between runs */
#define SPIN_ALONE_NS   100000   /* from then on it yields */
#define SPIN_CROWDED_NS 1000
#define SLEEPER         1u

typedef _Atomic uint32_t word;

/* ---- waiting on a word ---- */

static void cpu_relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static void futex_sleep(word *w, uint32_t expected)
{
    syscall(SYS_futex, w, FUTEX_WAIT_PRIVATE, expected, NULL, NULL, 0);
}

static void futex_wake_all(word *w)
{
    syscall(SYS_futex, w, FUTEX_WAKE_PRIVATE, INT32_MAX, NULL, NULL, 0);
}

/* Wait until *w, without the sleeper bit, differs from seen; returns the new value. */
static uint32_t word_wait(word *w, uint32_t seen, uint32_t spin_ns)
{
    uint32_t now;
    uint64_t start_ns = 0;
    for (uint32_t i = 1; (now = atomic_load_explicit(w, memory_order_acquire) & ~SLEEPER) == seen;
         i++) {
        cpu_relax();
        if (i % 32)
            continue;
        uint64_t t_ns = base_now_ns();
        if (!start_ns)
            start_ns = t_ns;
        else if (t_ns - start_ns >= spin_ns)
            break;
        else if (t_ns - start_ns >= SPIN_ALONE_NS)
            sched_yield();
    }
    while (now == seen) {
        uint32_t raw = seen;
        if (atomic_compare_exchange_strong(w, &raw, seen | SLEEPER) || raw == (seen | SLEEPER))
            futex_sleep(w, seen | SLEEPER);
        now = atomic_load_explicit(w, memory_order_acquire) & ~SLEEPER;
    }
    return now;
}

static void word_set(word *w, uint32_t value)
{
    if (atomic_exchange(w, value) & SLEEPER)
        futex_wake_all(w);
}

/* ---- state ---- */

/* go and runs_done move in steps of 2 and may wrap: a waiter only asks whether its word changed. */
typedef struct worker {
    _Alignas(64) word go;
    pthread_t thread;
} worker;

static struct {
    pthread_mutex_t lock; /* held for a whole run; guards all below but the words */
    base_pool_fn fn;
    void *ctx;
    int n;
    int n_workers;
    int shunned_cpu; /* the workers may use every CPU of the caller but this one; -1 = all */
    int n_shunning;  /* workers that know */
    uint32_t spin_ns;
    _Alignas(64) _Atomic uint32_t cpus; /* 0 = not counted yet */
    _Alignas(64) _Atomic uint32_t left; /* workers still inside fn */
    _Alignas(64) word runs_done;
    worker workers[BASE_POOL_MAX - 1];
} pool = {.lock = PTHREAD_MUTEX_INITIALIZER, .shunned_cpu = -1};

static _Thread_local bool inside_run;

/* Counting reads a dozen files, so it is done once; a mask changed later only shifts how long we spin. */
static uint32_t spin_ns_for(uint32_t parties)
{
    uint32_t cpus = atomic_load_explicit(&pool.cpus, memory_order_relaxed);
    if (!cpus) {
        cpus = (uint32_t)base_cpu_count();
        atomic_store_explicit(&pool.cpus, cpus, memory_order_relaxed);
    }
    return parties > cpus ? SPIN_CROWDED_NS : SPIN_NS;
}

/* ---- barrier ---- */

void base_barrier_init(base_barrier *b, uint32_t parties)
{
    atomic_init(&b->arrived, 0);
    atomic_init(&b->phase, 0);
    b->parties = parties;
    b->spin_ns = spin_ns_for(parties);
}

void base_barrier_wait(base_barrier *b)
{
    uint32_t phase = atomic_load_explicit(&b->phase, memory_order_relaxed) & ~SLEEPER;
    if (atomic_fetch_add_explicit(&b->arrived, 1, memory_order_acq_rel) + 1 < b->parties) {
        word_wait(&b->phase, phase, b->spin_ns);
        return;
    }
    atomic_store_explicit(&b->arrived, 0, memory_order_relaxed); /* before anyone can come again */
    word_set(&b->phase, phase + 2);
}

/* ---- shares ---- */

#define PIECES 4 /* of a part: what waits for a slow party is a quarter of its part at most */
#define HELPED 8 /* parts that a party looks into: each look is a transfer between caches */

bool base_share_take(base_share *shares, int t, int parties, int64_t units, int64_t *begin,
                     int64_t *end)
{
    for (int i = 0; i < MIN(parties, HELPED); i++) {
        int p = t + i < parties ? t + i : t + i - parties;
        int64_t first = units * p / parties, last = units * (p + 1) / parties;
        int64_t piece = (last - first + PIECES - 1) / PIECES;
        _Atomic int64_t *taken = &shares[p].taken;
        if (atomic_load_explicit(taken, memory_order_relaxed) >= last - first)
            continue;
        int64_t at = atomic_fetch_add_explicit(taken, piece, memory_order_relaxed);
        if (at < last - first) {
            *begin = first + at;
            *end = MIN(first + at + piece, last);
            return true;
        }
    }
    return false;
}

void base_share_reset(base_share *share)
{
    atomic_store_explicit(&share->taken, 0, memory_order_relaxed);
}

/* ---- workers ---- */

static void *worker_main(void *arg)
{
    worker *w = arg;
    int t = (int)(w - pool.workers) + 1;
    uint32_t seen = 0, spin_ns = SPIN_NS;
    inside_run = true;
    for (;;) {
        seen = word_wait(&w->go, seen, MIN(spin_ns, SPIN_IDLE_NS));
        spin_ns = pool.spin_ns; /* the fields belong to the next run once left has been lowered */
        pool.fn(pool.ctx, t, pool.n);
        if (atomic_fetch_sub_explicit(&pool.left, 1, memory_order_acq_rel) == 1)
            word_set(&pool.runs_done, (atomic_load(&pool.runs_done) & ~SLEEPER) + 2);
    }
    return NULL;
}

/* Signals such as Ctrl-C belong to the program's own threads. Those that report a fault of this thread must stay
 * open, or the kernel kills without calling the program's handler; SIGPROF lets profilers see the workers. */
static void block_signals(sigset_t *old)
{
    static const int open_signals[] = {SIGSEGV, SIGBUS, SIGFPE,  SIGILL,
                                       SIGTRAP, SIGSYS, SIGABRT, SIGPROF};
    sigset_t all;
    sigfillset(&all);
    for (size_t i = 0; i < COUNT_OF(open_signals); i++)
        sigdelset(&all, open_signals[i]);
    pthread_sigmask(SIG_SETMASK, &all, old);
}

static rtx_status start_workers(int count, rtx_err *err)
{
    if (pool.n_workers >= count)
        return RTX_OK;
    int fault = 0;
    sigset_t old;
    pthread_attr_t attr;
    pthread_attr_init(&attr);
    pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    block_signals(&old);
    while (pool.n_workers < count && !fault) {
        worker *w = &pool.workers[pool.n_workers];
        fault = pthread_create(&w->thread, &attr, worker_main, w);
        if (!fault)
            pool.n_workers++;
    }
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    pthread_attr_destroy(&attr);
    if (fault)
        return FAIL(err, LIMIT, "cannot start thread %d of %d: %s; use fewer threads",
                    pool.n_workers + 2, count + 1, strerror(fault));
    return RTX_OK;
}

/* Threads do not survive a fork, and the lock may have been held by one of them. */
static void restart_in_child(void)
{
    pool.lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    for (int i = 0; i < pool.n_workers; i++)
        atomic_store(&pool.workers[i].go, 0);
    pool.n_workers = pool.n_shunning = 0;
    pool.shunned_cpu = -1;
    atomic_store(&pool.left, 0);
    atomic_store(&pool.cpus, 0);
    inside_run = false;
}

static void watch_forks(void) { pthread_atfork(NULL, NULL, restart_in_child); }

/* ---- run ---- */

/* Keep workers off the CPU that the caller runs on. After a pause the kernel likes to wake a worker beside its waker; two
 * threads that spin for each other on one CPU then run many times slower, for as long as they stay there (MiniLM at 16
 * tokens: 0.9 ms became 5.6, 2026-11-30). With more threads than CPUs there is no such choice. Costs one system call a
 * worker, when the caller has moved; a failure only costs speed. */
static void keep_apart(int n)
{
    bool crowded = (uint32_t)n > atomic_load_explicit(&pool.cpus, memory_order_relaxed);
    int cpu = crowded ? -1 : sched_getcpu();
    if (cpu == pool.shunned_cpu && (cpu < 0 || pool.n_shunning == pool.n_workers))
        return;
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) != 0)
        return;
    if (cpu >= 0 && cpu < CPU_SETSIZE)
        CPU_CLR(cpu, &set);
    for (int i = 0; CPU_COUNT(&set) > 0 && i < pool.n_workers; i++)
        pthread_setaffinity_np(pool.workers[i].thread, sizeof set, &set);
    pool.shunned_cpu = cpu;
    pool.n_shunning = pool.n_workers;
}

static void run_all(int n, base_pool_fn fn, void *ctx)
{
    uint32_t done = atomic_load(&pool.runs_done) & ~SLEEPER;
    pool.fn = fn;
    pool.ctx = ctx;
    pool.n = n;
    pool.spin_ns = spin_ns_for((uint32_t)n);
    keep_apart(n);
    atomic_store(&pool.left, (uint32_t)n - 1);
    for (int i = 0; i < n - 1; i++) {
        word *go = &pool.workers[i].go;
        word_set(go, (atomic_load(go) & ~SLEEPER) + 2);
    }
    inside_run = true;
    fn(ctx, 0, n);
    inside_run = false;
    word_wait(&pool.runs_done, done, pool.spin_ns);
}

rtx_status base_pool_run(int n, base_pool_fn fn, void *ctx, rtx_err *err)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    if (n < 1 || n > BASE_POOL_MAX)
        return FAIL(err, INVALID, "%d threads; 1 to %d are possible", n, BASE_POOL_MAX);
    if (n == 1) {
        fn(ctx, 0, 1);
        return RTX_OK;
    }
    if (inside_run)
        return FAIL(err, INVALID, "a pool function may not start another run of %d threads", n);
    pthread_once(&once, watch_forks);
    pthread_mutex_lock(&pool.lock);
    rtx_status status = start_workers(n - 1, err);
    if (status == RTX_OK)
        run_all(n, fn, ctx);
    pthread_mutex_unlock(&pool.lock);
    return status;
}
