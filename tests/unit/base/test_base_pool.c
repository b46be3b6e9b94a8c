/* The thread pool: every party runs once on a thread of its own, also crowded, from many callers, and after a fork. */
#include "base_sys.h"
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#if defined(__SANITIZE_THREAD__)
#define UNDER_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define UNDER_TSAN 1
#endif
#endif

typedef struct tally {
    int seen[BASE_POOL_MAX]; /* plain on purpose: TSan proves that the pool orders the accesses */
    pthread_t thread[BASE_POOL_MAX];
    int n;
} tally;

static void count_me(void *ctx, int t, int n)
{
    tally *c = ctx;
    c->seen[t]++;
    c->thread[t] = pthread_self();
    if (t == 0)
        c->n = n;
}

static void run_and_check(int n, int rounds)
{
    tally c = {0};
    for (int r = 0; r < rounds; r++)
        assert_int_equal(base_pool_run(n, count_me, &c, NULL), RTX_OK);
    assert_int_equal(c.n, n);
    assert_true(pthread_equal(c.thread[0], pthread_self()));
    for (int t = 0; t < BASE_POOL_MAX; t++)
        assert_int_equal(c.seen[t], t < n ? rounds : 0);
    for (int t = 0; t < n; t++)
        for (int u = 0; u < t; u++)
            assert_false(pthread_equal(c.thread[t], c.thread[u]));
}

static void test_every_party_runs_once(void **state)
{
    (void)state;
    static const int sizes[] = {1, 2, 3, 7, 2, 1, 7};
    for (size_t i = 0; i < COUNT_OF(sizes); i++)
        run_and_check(sizes[i], 200);
}

static void test_crowded(void **state)
{
    (void)state;
    run_and_check(40, 3);
    run_and_check(BASE_POOL_MAX, 1);
}

static void test_bad_sizes(void **state)
{
    (void)state;
    rtx_err err;
    assert_int_equal(base_pool_run(0, count_me, NULL, &err), RTX_INVALID);
    assert_int_equal(base_pool_run(BASE_POOL_MAX + 1, count_me, NULL, &err), RTX_INVALID);
}

static void nest(void *ctx, int t, int n)
{
    (void)n;
    tally inner = {0};
    rtx_status *got = ctx;
    got[2 * t] = base_pool_run(2, count_me, &inner, NULL);
    got[2 * t + 1] = base_pool_run(1, count_me, &inner, NULL);
}

static void test_run_inside_a_run_is_refused(void **state)
{
    (void)state;
    rtx_status got[6];
    assert_int_equal(base_pool_run(3, nest, got, NULL), RTX_OK);
    for (int i = 0; i < 6; i++)
        assert_int_equal(got[i], i % 2 ? RTX_OK : RTX_INVALID);
    run_and_check(3, 2);
}

static void *caller_main(void *arg)
{
    tally *c = arg;
    for (int r = 0; r < 100; r++)
        if (base_pool_run(2 + r % 3, count_me, c, NULL) != RTX_OK)
            abort();
    return NULL;
}

static void test_callers_take_turns(void **state)
{
    (void)state;
    static tally
        shared; /* every run of every caller writes it: a race unless runs are serialised */
    pthread_t callers[4];
    for (size_t i = 0; i < COUNT_OF(callers); i++)
        pthread_create(&callers[i], NULL, caller_main, &shared);
    for (size_t i = 0; i < COUNT_OF(callers); i++)
        pthread_join(callers[i], NULL);
    assert_int_equal(shared.seen[0], 400);
    assert_int_equal(shared.seen[1], 400);
    assert_int_equal(shared.seen[2], 4 * 66);
}

typedef struct phases {
    base_barrier barrier;
    int rounds;
    int at[64];
    atomic_int wrong;
} phases;

static void step_together(void *ctx, int t, int n)
{
    phases *p = ctx;
    for (int r = 1; r <= p->rounds; r++) {
        p->at[t] = r;
        base_barrier_wait(&p->barrier);
        for (int u = 0; u < n; u++)
            if (p->at[u] != r)
                atomic_fetch_add(&p->wrong, 1);
        base_barrier_wait(&p->barrier);
    }
}

static void test_barrier(void **state)
{
    (void)state;
    static const int sizes[] = {1, 2, 3, 7, 33};
    for (size_t i = 0; i < COUNT_OF(sizes); i++) {
        phases p = {.rounds = sizes[i] <= 3 ? 1000 : 50};
        base_barrier_init(&p.barrier, (uint32_t)sizes[i]);
        assert_int_equal(base_pool_run(sizes[i], step_together, &p, NULL), RTX_OK);
        assert_int_equal(p.wrong, 0);
    }
}

static double cpu_seconds(void)
{
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
           1e-6 * (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec);
}

/* ---- shares ---- */

#define MOST_UNITS 4000

typedef struct shared_work {
    base_share shares[BASE_POOL_MAX];
    base_barrier barrier;
    int64_t units;
    int done[MOST_UNITS]; /* plain on purpose, too */
    int by[MOST_UNITS];
    int sleeper;
} shared_work;

static void do_share(void *ctx, int t, int n)
{
    shared_work *w = ctx;
    int64_t begin, end;
    for (int round = 0; round < 3; round++) {
        while (base_share_take(w->shares, t, n, w->units, &begin, &end)) {
            if (t == w->sleeper)
                usleep(300000);
            for (int64_t u = begin; u < end; u++) {
                w->done[u]++;
                w->by[u] = t;
            }
        }
        base_barrier_wait(&w->barrier);
        base_share_reset(&w->shares[t]);
        base_barrier_wait(&w->barrier);
    }
}

static void test_every_unit_is_done_once(void **state)
{
    (void)state;
    static const int parties[] = {2, 3, 7, 64}, units[] = {0, 1, 2, 5, 64, 1000, MOST_UNITS};
    static shared_work w;
    for (size_t i = 0; i < COUNT_OF(parties); i++)
        for (size_t k = 0; k < COUNT_OF(units); k++) {
            memset(&w, 0, sizeof w);
            w.units = units[k];
            w.sleeper = -1;
            base_barrier_init(&w.barrier, (uint32_t)parties[i]);
            assert_int_equal(base_pool_run(parties[i], do_share, &w, NULL), RTX_OK);
            for (int u = 0; u < MOST_UNITS; u++)
                assert_int_equal(w.done[u], u < units[k] ? 3 : 0);
        }
}

/* One party sleeps over each piece that it takes: the other does some of its part, in practice three quarters. */
static void test_a_slow_party_is_helped(void **state)
{
    (void)state;
    static shared_work w;
    memset(&w, 0, sizeof w);
    w.units = MOST_UNITS;
    w.sleeper = 1;
    base_barrier_init(&w.barrier, 2);
    assert_int_equal(base_pool_run(2, do_share, &w, NULL), RTX_OK);
    int of_the_sleeper = 0;
    for (int u = 0; u < MOST_UNITS; u++)
        of_the_sleeper += w.by[u] == 1;
    assert_true(of_the_sleeper < MOST_UNITS / 2);
}

/* Alone, a party does all parts in their order, its own first; each piece lies in one part. */
static void test_parts_and_pieces(void **state)
{
    (void)state;
    base_share shares[3] = {0};
    int64_t begin, end, at = 33;
    for (int pieces = 0; pieces < 12; pieces++) {
        assert_true(base_share_take(shares, 1, 3, 100, &begin, &end));
        assert_int_equal(begin, at);
        assert_true(end <= 33 || (begin >= 33 && end <= 66) || begin >= 66);
        at = end % 100;
    }
    assert_int_equal(at, 33);
    assert_false(base_share_take(shares, 1, 3, 100, &begin, &end));
    assert_false(base_share_take(shares, 0, 3, 100, &begin, &end));
}

static void test_idle_workers_sleep(void **state)
{
    (void)state;
    run_and_check(8, 10);
    base_sleep_ns(5000000);
    double before = cpu_seconds();
    base_sleep_ns(300000000);
    assert_true(cpu_seconds() - before < 0.05);
    run_and_check(8, 10); /* and wake again */
}

static void note_mask(void *ctx, int t, int n)
{
    (void)n;
    pthread_sigmask(SIG_SETMASK, NULL, (sigset_t *)ctx + t);
}

static void test_signals_stay_with_the_caller(void **state)
{
    (void)state;
    sigset_t masks[2];
    assert_int_equal(base_pool_run(2, note_mask, masks, NULL), RTX_OK);
    assert_int_equal(sigismember(&masks[0], SIGINT), 0);
    assert_int_equal(sigismember(&masks[1], SIGINT), 1);
    assert_int_equal(sigismember(&masks[1], SIGTERM), 1);
    assert_int_equal(sigismember(&masks[1], SIGSEGV), 0);
}

static void test_fork(void **state)
{
    (void)state;
#ifdef UNDER_TSAN
    print_message("skipped: TSan ends a process that starts threads after a fork\n");
    skip();
#endif
    run_and_check(3, 5);
    pid_t child = fork();
    if (child == 0) {
        tally c = {0};
        for (int r = 0; r < 20; r++)
            if (base_pool_run(3, count_me, &c, NULL) != RTX_OK)
                _exit(1);
        _exit(c.seen[0] == 20 && c.seen[1] == 20 && c.seen[2] == 20 ? 0 : 2);
    }
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    run_and_check(3, 5);
}

static void test_cpu_count_honours_affinity(void **state)
{
    (void)state;
    cpu_set_t old, one;
    assert_int_equal(sched_getaffinity(0, sizeof old, &old), 0);
    assert_in_range(base_cpu_count(), 1, CPU_COUNT(&old));
    CPU_ZERO(&one);
    for (int i = 0; i < CPU_SETSIZE && CPU_COUNT(&one) == 0; i++)
        if (CPU_ISSET(i, &old))
            CPU_SET(i, &one);
    assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
    int count = base_cpu_count();
    assert_int_equal(sched_setaffinity(0, sizeof old, &old), 0);
    assert_int_equal(count, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_party_runs_once),
        cmocka_unit_test(test_crowded),
        cmocka_unit_test(test_bad_sizes),
        cmocka_unit_test(test_run_inside_a_run_is_refused),
        cmocka_unit_test(test_callers_take_turns),
        cmocka_unit_test(test_barrier),
        cmocka_unit_test(test_every_unit_is_done_once),
        cmocka_unit_test(test_a_slow_party_is_helped),
        cmocka_unit_test(test_parts_and_pieces),
        cmocka_unit_test(test_idle_workers_sleep),
        cmocka_unit_test(test_signals_stay_with_the_caller),
        cmocka_unit_test(test_fork),
        cmocka_unit_test(test_cpu_count_honours_affinity),
    };
    return cmocka_run_group_tests_name("base_pool", tests, NULL, NULL);
}
