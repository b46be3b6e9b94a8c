/* Whole tuning runs on small problems: results, evidence, second runs, a template edit, dead workers, bad compilers. Needs
 * rtx-worker beside the test and a compiler. */
#include "tune_fixture.h"
#include "dev_cpu.h"
#include <jansson.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>
#include <dirent.h>

static fmt_isa isa;
static char *cache;

static int setup(void **state)
{
    (void)state;
    cache = fixture_folder();
    return !cache || dev_isa_allowed(&isa, NULL) != RTX_OK;
}

static int teardown(void **state)
{
    (void)state;
    fixture_remove(cache);
    base_free(cache);
    unsetenv("RTX_CC");
    return 0;
}

static bool no_compiler(void)
{
    char version[200];
    if (tun_have_compiler(version, sizeof version, NULL))
        return false;
    print_message("skipped: no compiler\n");
    return true;
}

typedef struct run {
    syn_problem *problem[2];
    tun_point points[2][4];
    tun_item items[2];
    tun_report report;
    rtx_err err;
} run;

static void begin(run *r)
{
    memset(r, 0, sizeof *r);
    r->problem[0] = fixture_gemm(64, 96, true, true);
    r->problem[1] = fixture_layernorm(48);
    for (int i = 0; i < 2; i++) {
        tun_point p[4] = {{{1}, 1, 1}, {{200}, 1, 1}, {{1}, 2, 1}, {{200}, 2, 1}};
        memcpy(r->points[i], p, sizeof p);
        r->items[i] = (tun_item){.problem = r->problem[i], .points = r->points[i], .n_points = 4};
    }
}

static rtx_status go(run *r, tun_options more)
{
    more.isa = isa;
    more.cache = cache;
    if (more.budget_s == 0)
        more.budget_s = 4; /* a pick is enough */
    return tun_run(r->items, 2, &more, &r->report, &r->err);
}

static void end(run *r)
{
    for (int i = 0; i < 2; i++) {
        tun_result_done(&r->items[i].result);
        syn_problem_free(r->problem[i]);
    }
}

static void check_point(const json_t *point, bool anchor)
{
    const json_t *list = json_object_get(point, "candidates"), *c;
    size_t i, winners = 0, timed = 0;
    double best = 0, won = 0;
    json_array_foreach(list, i, c)
    {
        const char *verdict = json_string_value(json_object_get(c, "verdict"));
        double ns = json_number_value(json_object_get(c, "ns"));
        assert_true(verdict && *verdict);
        if (ns > 0 && json_object_get(c, "error")) {
            timed++;
            best = best == 0 ? ns : MIN(best, ns);
            assert_true(json_number_value(json_object_get(c, "error")) <= 1e-6);
        }
        if (strcmp(verdict, "winner") == 0) {
            winners++;
            won = ns;
        }
    }
    assert_int_equal(winners, 1);
    assert_true(won > 0 && won <= 1.1 * best);
    if (anchor)
        assert_true(timed >= 8);
}

static void evidence_says_why(void **state)
{
    (void)state;
    if (no_compiler())
        skip();
    run r;
    begin(&r);
    if (go(&r, (tun_options){.budget_s = 60}) != RTX_OK)
        fail_msg("%s", r.err.text);
    assert_int_equal(r.report.keys, 8);
    assert_int_equal(r.report.hits, 0);
    double parts = r.report.compile_s + r.report.validate_s + r.report.measure_s + r.report.other_s;
    assert_true(parts >= 0.95 * r.report.wall_s && parts <= 1.01 * r.report.wall_s);
    for (int i = 0; i < 2; i++) {
        json_t *j = json_loads(r.items[i].result.evidence, 0, NULL);
        assert_non_null(j);
        const json_t *points = json_object_get(j, "points"), *p;
        size_t k;
        assert_int_equal(json_array_size(points), 4);
        json_array_foreach(points, k, p) check_point(p, i == 0);
        json_decref(j);
    }
    end(&r);
}

/* Kernels of a second run: nothing compiled, the same code. */
static void second_run_is_the_cache(void **state)
{
    (void)state;
    if (no_compiler())
        skip();
    run a, b;
    begin(&a);
    assert_int_equal(go(&a, (tun_options){0}), RTX_OK);
    begin(&b);
    setenv("RTX_CC", "", 1); /* and needs no compiler */
    assert_int_equal(go(&b, (tun_options){0}), RTX_OK);
    unsetenv("RTX_CC");
    assert_int_equal(b.report.hits, b.report.keys);
    assert_int_equal(b.report.compiled, 0);
    for (int i = 0; i < 2; i++)
        for (int k = 0; k < 4; k++) {
            const tun_pick *p = &a.items[i].result.picks[k], *q = &b.items[i].result.picks[k];
            const tun_kernel *x = &a.items[i].result.kernels[p->kernel],
                             *y = &b.items[i].result.kernels[q->kernel];
            assert_true(q->cached && p->ways == q->ways && p->ns == q->ns);
            assert_int_equal(x->code_bytes, y->code_bytes);
            assert_memory_equal(x->code, y->code, x->code_bytes);
            assert_string_equal(x->source, y->source);
        }
    end(&b);

    /* Without a compiler, sizes that were never tuned take the kernel of the nearest ones. */
    begin(&b);
    b.points[0][0].sym[0] = 60;
    setenv("RTX_CC", "", 1);
    assert_int_equal(go(&b, (tun_options){0}), RTX_OK);
    unsetenv("RTX_CC");
    assert_int_equal(b.report.hits, b.report.keys - 1);
    assert_int_not_equal(b.items[0].result.picks[0].kernel, FMT_NONE);
    assert_true(b.items[0].result.picks[0].ns == 0);
    end(&b);
    end(&a);
}

/* A worker that dies from outside costs time only. */
static void killed_workers_are_replaced(void **state)
{
    (void)state;
    if (no_compiler())
        skip();
    pid_t self = getpid(), killer = fork();
    if (killer == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        for (int n = 0; n < 180; n++) { /* four kills: fewer than a request is repeated */
            char command[160];
            snprintf(command, sizeof command,
                     "pgrep -P %d rtx-worker 2>/dev/null | head -1 | xargs -r kill -9 2>/dev/null",
                     (int)self);
            if (n % 40 == 20 && system(command) != 0)
                break;
            base_sleep_ns(20000000);
        }
        _exit(0);
    }
    run r;
    begin(&r);
    rtx_status s = go(&r, (tun_options){0});
    kill(killer, SIGKILL);
    waitpid(killer, NULL, 0);
    if (s != RTX_OK)
        fail_msg("%s", r.err.text);
    for (int i = 0; i < 2; i++)
        for (int k = 0; k < 4; k++)
            assert_int_not_equal(r.items[i].result.picks[k].kernel, FMT_NONE);
    end(&r);
}

static int leftovers(pid_t of)
{
    int n = 0;
    char mine[32];
    snprintf(mine, sizeof mine, "rtx-cc-%d-", (int)of);
    DIR *d = opendir(base_env(BASE_ENV_TMPDIR));
    for (struct dirent *e; d && (e = readdir(d)) != NULL;)
        n += strncmp(e->d_name, mine, strlen(mine)) == 0;
    if (d)
        closedir(d);
    return n;
}

static void bad_compilers_are_answers(void **state)
{
    (void)state;
    const char *scripts[] = {"#!/bin/sh\nexit 1\n",
                             "#!/bin/sh\ncase $1 in --version) echo cc 1;; *) echo 'x.c:1: error: "
                             "no' >&2; exit 1;; esac\n"};
    for (size_t i = 0; i < COUNT_OF(scripts); i++) {
        char path[400];
        snprintf(path, sizeof path, "%s/cc%zu", cache, i);
        FILE *f = fopen(path, "w");
        assert_non_null(f);
        fputs(scripts[i], f);
        fclose(f);
        assert_int_equal(chmod(path, 0755), 0);
        setenv("RTX_CC", path, 1);
        run r;
        begin(&r);
        rtx_status s = go(&r, (tun_options){0});
        assert_true(s == RTX_UNSUPPORTED || s == RTX_OK); /* OK where a precompiled kernel serves */
        if (s == RTX_OK)
            assert_int_equal(r.items[0].result.picks[0].kernel, FMT_NONE);
        end(&r);
        unsetenv("RTX_CC");
        assert_int_equal(leftovers(getpid()), 0);
    }
}

static const char *cancel_stage;
static void stop_at(void *ctx, const tun_progress *p)
{
    (void)ctx;
    if (strcmp(p->stage, cancel_stage) == 0)
        base_cancelled = 1;
}

static void cancelling_leaves_nothing(void **state)
{
    (void)state;
    if (no_compiler())
        skip();
    const char *stages[] = {"profile", "compile", "validate", "screen", "confirm"};
    for (size_t i = 0; i < COUNT_OF(stages); i++) {
        run r;
        base_cancelled = 0;
        cancel_stage = stages[i];
        begin(&r);
        assert_int_equal(go(&r, (tun_options){.progress = stop_at}), RTX_CANCELLED);
        base_cancelled = 0;
        assert_null(r.items[0].result.picks);
        end(&r);
        assert_int_equal(leftovers(getpid()), 0);
        assert_int_equal(waitpid(-1, NULL, WNOHANG), -1); /* no child is left */
    }
}

/* Processes, zombies apart, whose command line names this PARENT argument or whose parent is pid. */
static int alive(pid_t pid)
{
    int n = 0;
    char mark[32];
    snprintf(mark, sizeof mark, "%d", (int)pid);
    DIR *d = opendir("/proc");
    for (struct dirent *e; d && (e = readdir(d)) != NULL;) {
        char path[300], *text = NULL;
        size_t bytes = 0;
        bool ours = false;
        snprintf(path, sizeof path, "/proc/%.20s/cmdline", e->d_name);
        if (e->d_name[0] < '0' || e->d_name[0] > '9' ||
            base_read_file(path, 1 << 16, &text, &bytes, NULL) != RTX_OK)
            continue;
        for (size_t i = 0; i < bytes; i += strlen(text + i) + 1) /* zombies have no command line */
            ours |= strcmp(text + i, mark) == 0;
        ours &= memmem(text, bytes, "rtx-worker", 10) != NULL;
        base_free(text);
        n += ours;
    }
    if (d)
        closedir(d);
    return n;
}

/* After kill -9 of the tuner at any moment no worker and no compiler runs on, and the next run is right. */
static void nothing_outlives_a_killed_tuner(void **state)
{
    (void)state;
    if (no_compiler())
        skip();
    const uint64_t after_ms[] = {20, 200, 700, 1500, 3000};
    pid_t killed[COUNT_OF(after_ms)];
    for (size_t i = 0; i < COUNT_OF(after_ms); i++) {
        pid_t pid = fork();
        if (pid == 0) {
            run r;
            begin(&r);
            _exit(go(&r, (tun_options){0}));
        }
        base_sleep_ns(after_ms[i] * 1000000);
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
        for (int wait = 0; alive(pid) && wait < 50; wait++)
            base_sleep_ns(10000000);
        assert_int_equal(alive(pid), 0);
        killed[i] = pid;
    }
    run r;
    begin(&r);
    assert_int_equal(go(&r, (tun_options){0}), RTX_OK);
    end(&r);
    char version[200];
    assert_true(
        tun_have_compiler(version, sizeof version, NULL)); /* sweeps the folders of the killed */
    for (size_t i = 0; i < COUNT_OF(killed); i++)
        assert_int_equal(leftovers(killed[i]), 0);
}

int main(void)
{
#define CASE(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        CASE(evidence_says_why),           CASE(second_run_is_the_cache),
        CASE(killed_workers_are_replaced), CASE(bad_compilers_are_answers),
        CASE(cancelling_leaves_nothing),   CASE(nothing_outlives_a_killed_tuner),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
