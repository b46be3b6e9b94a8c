/* Opening and running a hand-made program: results, threads, messages, traps, damage, failed allocations. */
#include "run_fixture.h"
#include "run_program.h"
#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <cmocka.h>

static rtx_program *open_fixture(int threads)
{
    rtx_err err;
    rtx_program *p = NULL;
    fix_write("a.rtxgc", NULL);
    rtx_status status = rtx_program_open("a.rtxgc", threads, &p, &err);
    if (status != RTX_OK)
        print_error("%s: %s\n", err.where, err.text);
    assert_int_equal(status, RTX_OK);
    return p;
}

typedef struct data {
    float x[FIX_MAX * FIX_K], y[FIX_MAX * FIX_N], z[FIX_MAX * FIX_N], want_y[FIX_MAX * FIX_N],
        want_z[FIX_MAX * FIX_N];
    int64_t ids[FIX_MAX];
} data;

static rtx_status run(rtx_program *p, data *d, int64_t batch, int threads, rtx_err *err)
{
    rtx_tensor in[] = {fix_x(d->x, batch), fix_ids(d->ids, batch)};
    rtx_tensor out[] = {fix_out("y", d->y, batch), fix_out("z", d->z, batch)};
    return rtx_program_run(p, in, 2, out, 2, threads, err);
}

static bool near(const float *a, const float *b, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        if (!(fabsf(a[i] - b[i]) <= 1e-4f))
            return false;
    }
    return true;
}

static void test_results(void **state)
{
    (void)state;
    rtx_program *p = open_fixture(1);
    static data d, first;
    static const int64_t sizes[] = {0, 1, 2, 3, 5, 17, 64, 100, FIX_MAX};
    for (size_t i = 0; i < COUNT_OF(sizes); i++) {
        int64_t n = sizes[i];
        fix_fill(d.x, d.ids, n, (unsigned)n);
        fix_expect(d.x, d.ids, n, d.want_y, d.want_z);
        static const int threads[] = {1, 2, 3, 7, 0};
        for (size_t t = 0; t < COUNT_OF(threads); t++) {
            memset(d.y, 0xff, sizeof d.y);
            memset(d.z, 0xff, sizeof d.z);
            assert_int_equal(run(p, &d, n, threads[t], NULL), RTX_OK);
            assert_true(near(d.y, d.want_y, n * FIX_N));
            assert_true(near(d.z, d.want_z, n * FIX_N));
            if (t == 0)
                first = d;
            assert_memory_equal(first.y, d.y,
                                sizeof d.y); /* the same bits, and nothing past the end */
            assert_memory_equal(first.z, d.z, sizeof d.z);
        }
    }
    rtx_program_close(p);
}

static void test_ports(void **state)
{
    (void)state;
    rtx_program *p = open_fixture(0);
    rtx_port port;
    assert_int_equal(rtx_program_input_count(p), 2);
    assert_int_equal(rtx_program_output_count(p), 2);
    assert_int_equal(rtx_program_input(p, 0, &port, NULL), RTX_OK);
    assert_string_equal(port.name, "x");
    assert_int_equal(port.dtype, RTX_F32);
    assert_int_equal(port.rank, 2);
    assert_true(port.dim[0] < 0);
    assert_string_equal(port.dim_name[0], "batch");
    assert_int_equal(port.hi[0], FIX_MAX);
    assert_int_equal(port.dim[1], FIX_K);
    assert_int_equal(rtx_program_input(p, 2, &port, NULL), RTX_INVALID);
    assert_int_equal(rtx_program_output(p, 2, &port, NULL), RTX_INVALID);
    assert_string_equal(rtx_program_manifest(p), "{}");
    assert_non_null(strstr(rtx_version(), "isa v"));
    rtx_program_close(p);
    rtx_program_close(NULL);
}

static void test_shapes_and_positions(void **state)
{
    (void)state;
    rtx_program *p = open_fixture(1);
    static data d;
    fix_fill(d.x, d.ids, 3, 1);
    fix_expect(d.x, d.ids, 3, d.want_y, d.want_z);
    rtx_tensor in[] = {fix_ids(d.ids, 3), fix_x(d.x, 3)}; /* by name, other order */
    rtx_tensor out[2] = {0};
    assert_int_equal(rtx_program_shapes(p, in, 2, out, 2, NULL), RTX_OK);
    assert_string_equal(out[0].name, "y");
    assert_int_equal(out[1].dim[0], 3);
    assert_int_equal(out[1].dim[1], FIX_N);
    out[0].data = d.y;
    out[1].data = d.z;
    assert_int_equal(rtx_program_run(p, in, 2, out, 2, 0, NULL), RTX_OK);
    assert_true(near(d.y, d.want_y, 3 * FIX_N));
    rtx_tensor by_place[] = {fix_x(d.x, 3), fix_ids(d.ids, 3)};
    by_place[0].name = by_place[1].name = out[0].name = out[1].name = NULL;
    memset(d.y, 0, sizeof d.y);
    assert_int_equal(rtx_program_run(p, by_place, 2, out, 2, 2, NULL), RTX_OK);
    assert_true(near(d.y, d.want_y, 3 * FIX_N));
    rtx_program_close(p);
}

static void expect_text(rtx_program *p, const rtx_tensor *in, size_t n_in, rtx_tensor *out,
                        size_t n_out, const char *text)
{
    rtx_err err = {.text = ""};
    assert_int_equal(rtx_program_run(p, in, n_in, out, n_out, 0, &err), RTX_INVALID);
    if (strcmp(err.text, text) != 0)
        print_error("got  %s\nwant %s\n", err.text, text);
    assert_string_equal(err.text, text);
}

static void test_messages(void **state)
{
    (void)state;
    rtx_program *p = open_fixture(1);
    static data d;
    rtx_tensor x = fix_x(d.x, 3), ids = fix_ids(d.ids, 3), y = fix_out("y", d.y, 3),
               z = fix_out("z", d.z, 3);
    rtx_tensor out[] = {y, z};
    rtx_tensor bad = x;
    bad.dtype = RTX_F64;
    expect_text(p, (rtx_tensor[]){bad, ids}, 2, out, 2,
                "input 'x': given f64[3,8], wanted f32[batch,8]");
    bad = x;
    bad.dim[1] = 9;
    expect_text(p, (rtx_tensor[]){bad, ids}, 2, out, 2,
                "input 'x': given f32[3,9], wanted f32[batch,8]");
    bad = x;
    bad.rank = 1;
    expect_text(p, (rtx_tensor[]){bad, ids}, 2, out, 2,
                "input 'x': given f32[3], wanted f32[batch,8]");
    bad = ids;
    bad.dim[0] = 4;
    expect_text(
        p, (rtx_tensor[]){x, bad}, 2, out, 2,
        "input 'ids': given i64[4], wanted i64[batch] with batch = 3 as in another dimension");
    bad = x;
    bad.dim[0] = 513;
    expect_text(p, (rtx_tensor[]){bad, ids}, 2, out, 2,
                "batch = 513 is outside 0..512 (input 'x', dimension 0)");
    bad = x;
    bad.name = "q";
    expect_text(p, (rtx_tensor[]){bad, ids}, 2, out, 2, "no input 'q'; the program has 'x', 'ids'");
    expect_text(p, &ids, 1, out, 2, "input 'x' is missing; wanted f32[batch,8]");
    expect_text(p, (rtx_tensor[]){x, x}, 2, out, 2, "input 'x' is given twice");
    bad = x;
    bad.data = NULL;
    expect_text(p, (rtx_tensor[]){bad, ids}, 2, out, 2, "input 'x' has no data");
    rtx_tensor in[] = {x, ids};
    bad = y;
    bad.dim[0] = 2;
    expect_text(p, in, 2, (rtx_tensor[]){bad, z}, 2,
                "output 'y': given f32[2,16], wanted f32[3,16]");
    bad = y;
    bad.data = NULL;
    expect_text(p, in, 2, (rtx_tensor[]){bad, z}, 2, "output 'y' has no buffer");
    bad = z;
    bad.data = d.y + 1;
    expect_text(p, in, 2, (rtx_tensor[]){y, bad}, 2, "output 'z' overlaps output 'y'");
    bad.data = d.x;
    expect_text(p, in, 2, (rtx_tensor[]){y, bad}, 2, "output 'z' overlaps input 'x'");
    expect_text(p, in, 2, &y, 1, "output 'z' is missing; wanted f32[batch,16]");
    assert_int_equal(rtx_program_run(p, in, 2, out, 2, -1, NULL), RTX_INVALID);
    assert_int_equal(rtx_program_run(p, in, 2, out, 2, 1000, NULL), RTX_INVALID);
    rtx_program_close(p);
}

static void test_trap(void **state)
{
    (void)state;
    rtx_program *p = open_fixture(1);
    static data d;
    fix_fill(d.x, d.ids, 20, 5);
    d.ids[13] = FIX_ROWS;
    for (int threads = 1; threads <= 3; threads++) {
        rtx_err err;
        assert_int_equal(run(p, &d, 20, threads, &err), RTX_INVALID);
        assert_string_equal(err.text, "index operand out of range in step 1 (Gather_1)");
    }
    d.ids[13] = 0;
    assert_int_equal(run(p, &d, 20, 1, NULL), RTX_OK);
    rtx_program_close(p);
}

static void test_changed_file(void **state)
{
    (void)state;
    rtx_program *p = open_fixture(1);
    static data d;
    assert_int_equal(run(p, &d, 2, 1, NULL), RTX_OK);
    FILE *f = fopen("a.rtxgc", "ab");
    fputc('x', f);
    fclose(f);
    rtx_err err;
    assert_int_equal(run(p, &d, 2, 1, &err), RTX_CORRUPT);
    rtx_program_close(p);
    assert_int_equal(rtx_program_open("a.rtxgc", 1, &p, &err), RTX_CORRUPT);
    assert_int_equal(rtx_program_open("none.rtxgc", 1, &p, &err), RTX_NOT_FOUND);
    assert_int_equal(rtx_program_open(".", 1, &p, &err), RTX_INVALID);
}

static void test_wrong_code_hash(void **state)
{
    (void)state;
    fix_write("bad.rtxgc", &(fix_options){.bad_code_hash = true});
    rtx_program *p;
    rtx_err err;
    assert_int_equal(rtx_program_open("bad.rtxgc", 1, &p, &err), RTX_CORRUPT);
    assert_non_null(strstr(err.text, "sum does not match"));
}

/* A root that holds the bundle and nothing else: no /proc, no libraries, no compiler, no folder to write to. */
static int in_empty_root(void)
{
    static data d;
    rtx_program *p;
    if (mkdir("root", 0755) != 0 || rename("a.rtxgc", "root/a.rtxgc") != 0)
        return 1;
    if (geteuid() != 0 && unshare(CLONE_NEWUSER) != 0)
        return 77;
    if (chroot("root") != 0 || chdir("/") != 0)
        return 77;
    if (rtx_program_open("/a.rtxgc", 0, &p, NULL) != RTX_OK)
        return 2;
    fix_fill(d.x, d.ids, 50, 4);
    fix_expect(d.x, d.ids, 50, d.want_y, d.want_z);
    for (int threads = 0; threads < 4; threads++) {
        if (run(p, &d, 50, threads, NULL) != RTX_OK || !near(d.y, d.want_y, 50 * FIX_N))
            return 3;
    }
    rtx_program_close(p);
    return 0;
}

static void test_empty_root(void **state)
{
    (void)state;
#ifdef __SANITIZE_THREAD__
    print_message("skipped: TSan allows no threads after a fork\n");
    skip();
#endif
    rtx_program_close(open_fixture(1));
    pid_t child = fork();
    if (child == 0)
        _exit(in_empty_root());
    int status;
    waitpid(child, &status, 0);
    assert_true(WIFEXITED(status));
    if (WEXITSTATUS(status) == 77) {
        print_message("skipped: the system lets us change no root\n");
        skip();
    }
    assert_int_equal(WEXITSTATUS(status), 0);
}

/* ---- many threads ---- */

typedef struct job {
    rtx_program *p;
    unsigned seed;
    int failures;
} job;

static void *run_many(void *arg)
{
    job *j = arg;
    data *d = malloc(sizeof *d);
    for (int i = 0; i < 150; i++) {
        int64_t n = (int64_t)((j->seed = j->seed * 1664525u + 1013904223u) >> 16) % 40;
        fix_fill(d->x, d->ids, n, j->seed);
        fix_expect(d->x, d->ids, n, d->want_y, d->want_z);
        int threads = 1 + i % 3;
        if (run(j->p, d, n, threads, NULL) != RTX_OK || !near(d->y, d->want_y, n * FIX_N) ||
            !near(d->z, d->want_z, n * FIX_N))
            j->failures++;
    }
    free(d);
    return NULL;
}

static void run_at_once(rtx_program *p)
{
    job jobs[6];
    pthread_t threads[COUNT_OF(jobs)];
    for (unsigned i = 0; i < COUNT_OF(jobs); i++) {
        jobs[i] = (job){p, i * 77 + 1, 0};
        assert_int_equal(pthread_create(&threads[i], NULL, run_many, &jobs[i]), 0);
    }
    for (unsigned i = 0; i < COUNT_OF(jobs); i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(jobs[i].failures, 0);
    }
}

static void test_concurrent(void **state)
{
    (void)state;
    rtx_program *p = open_fixture(2);
    run_at_once(p);
    rtx_program_close(p);
}

/* ---- weights on large pages ---- */

#define STREAM_BYTES (9u << 19) /* not a whole number of pieces */
#define W_VALUE      4          /* of the fixture's plan */

static rtx_program *open_streamed(bool allowed)
{
    rtx_program *p = NULL;
    fix_write("s.rtxgc", &(fix_options){.stream_bytes = STREAM_BYTES});
    setenv("RTX_HUGE_PAGES", allowed ? "1" : "0", 1);
    assert_int_equal(rtx_program_open("s.rtxgc", 1, &p, NULL), RTX_OK);
    unsetenv("RTX_HUGE_PAGES");
    return p;
}

/* Run until the weights have moved or `most` runs are over; every result has the bits of the first. */
static int runs_until_moved(rtx_program *p, int most)
{
    static data d, first;
    fix_fill(d.x, d.ids, 40, 9);
    int n = 0;
    do {
        memset(d.y, 0xff, sizeof d.y);
        assert_int_equal(run(p, &d, 40, 1 + n % 2, NULL), RTX_OK);
        if (n == 0)
            first = d;
        assert_memory_equal(d.y, first.y, sizeof d.y);
        assert_memory_equal(d.z, first.z, sizeof d.z);
    } while (++n < most && !(p->place.moved && p->place.moved[W_VALUE]));
    return n;
}

static void test_weights_move(void **state)
{
    (void)state;
    if (!base_huge_pages()) {
        print_message("skipped: this system gives no large pages\n");
        skip();
    }
    rtx_program *p = open_streamed(true);
    p->place.credit_ns = INT64_MAX / 2; /* as fast as may be */
    assert_false(rtx_program_settled(p));
    assert_int_equal(runs_until_moved(p, 100), 20); /* none by the first, then 19 pieces */
    assert_true(rtx_program_settled(p));
    assert_ptr_equal(p->place.moved[W_VALUE], p->place.to - (STREAM_BYTES + FIX_K * FIX_N * 4));
    assert_memory_equal(p->place.moved[W_VALUE], p->plan->consts, STREAM_BYTES);
    assert_int_equal(runs_until_moved(p, 3), 1);
    rtx_program_close(p);

    p = open_streamed(false);
    assert_true(rtx_program_settled(p));
    assert_int_equal(runs_until_moved(p, 10), 10);
    rtx_program_close(p);

    p = open_streamed(true); /* in its own time */
    assert_int_equal(runs_until_moved(p, 2), 2);
    assert_true(p->place.started && p->place.credit_ns < 0 && !p->place.idle);
    rtx_program_close(p);

    p = open_streamed(true); /* without memory they stay where they are */
    assert_int_equal(runs_until_moved(p, 1), 1);
    static data d;
    fix_fill(d.x, d.ids, 40, 9);
    p->place.credit_ns = 1;
    base_alloc_fail_at(0); /* the context has all it needs */
    assert_int_equal(run(p, &d, 40, 1, NULL), RTX_OK);
    base_alloc_fail_at(-1);
    assert_true(p->place.idle);
    assert_int_equal(runs_until_moved(p, 10), 10);
    rtx_program_close(p);
}

static void test_weights_move_while_others_run(void **state)
{
    (void)state;
    rtx_program *p = open_streamed(true);
    p->place.credit_ns = INT64_MAX / 2;
    run_at_once(p);
    assert_true(p->place.idle || !base_huge_pages());
    rtx_program_close(p);
}

/* ---- failed allocations ---- */

static rtx_status open_and_run(data *d, rtx_err *err)
{
    rtx_program *p;
    TRY(rtx_program_open("a.rtxgc", 1, &p, err));
    rtx_status status = run(p, d, 7, 2, err);
    if (status == RTX_OK)
        status = run(p, d, 30, 2, err);
    rtx_program_close(p);
    return status;
}

static void test_failed_allocations(void **state)
{
    (void)state;
    rtx_program_close(open_fixture(1));
    static data d;
    fix_fill(d.x, d.ids, 30, 3);
    size_t live_run = base_alloc_live_bytes(BASE_TAG_RUN),
           live_format = base_alloc_live_bytes(BASE_TAG_FORMAT);
    uint64_t before = base_alloc_count();
    assert_int_equal(open_and_run(&d, NULL), RTX_OK);
    uint64_t total = base_alloc_count() - before;
    assert_true(total > 20);
    for (uint64_t i = 0; i < total; i++) {
        rtx_err err = {.code = RTX_OK};
        base_alloc_fail_at((int64_t)i);
        rtx_status status = open_and_run(&d, &err);
        base_alloc_fail_at(-1);
        if (status != RTX_NOMEM)
            print_error("allocation %llu: %s %s\n", (unsigned long long)i, rtx_status_name(status),
                        err.text);
        assert_int_equal(status, RTX_NOMEM);
        assert_int_equal(base_alloc_live_bytes(BASE_TAG_RUN), live_run);
        assert_int_equal(base_alloc_live_bytes(BASE_TAG_FORMAT), live_format);
    }
}

/* `test_run_program write FILE`: only write the program, for the Python tests. Works in the current folder. */
int main(int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[1], "write") == 0) {
        fix_write(argv[2], &(fix_options){.manifest = "{\"format\":1}"});
        return 0;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_results),
        cmocka_unit_test(test_ports),
        cmocka_unit_test(test_messages),
        cmocka_unit_test(test_shapes_and_positions),
        cmocka_unit_test(test_trap),
        cmocka_unit_test(test_changed_file),
        cmocka_unit_test(test_concurrent),
        cmocka_unit_test(test_weights_move),
        cmocka_unit_test(test_weights_move_while_others_run),
        cmocka_unit_test(test_wrong_code_hash),
        cmocka_unit_test(test_failed_allocations),
        cmocka_unit_test(test_empty_root),
    };
    return cmocka_run_group_tests(tests, fix_enter, fix_leave);
}
