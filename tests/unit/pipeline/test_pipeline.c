/* The whole chain where each allocation fails once: a model of every stage, compiled without tuning, must answer NOMEM, leave
 * no file and no memory. All allocations with RTX_TEST_FULL set, else every second. */
#include "base_sys.h"
#include "pipeline.h"
#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <unistd.h>
#include <cmocka.h>

enum { STRIDE = 2 };

/* A free size, a packed weight, fusion, a norm, a scan, movement and arithmetic on sizes. */
static const char model[] =
    "sym n 0..\n"
    "func @f(%0 \"x\": f32[n,4], %1 \"i\": i64[3]) {\n"
    "  %2 = const f32[4,4] {1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2, 3, 4, 5, 6, 7}\n"
    "  %3 = const f32[4] {1, 2, 3, 4}\n"
    "  %4 = dot %0 %2\n"
    "  %5 = broadcast %3 {dims=[n,4]}\n"
    "  %6 = add %4 %5\n"
    "  %7 = gelu %6\n"
    "  %8 = layernorm %7 %3 %3 {eps=1e-5}\n"
    "  %9 = permute %8 {perm=[1,0]}\n"
    "  %10 = reduce_sum %9 {axes=[0]}\n"
    "  %11 = cumsum %10 {axis=0 exclusive=0 reverse=0}\n"
    "  %12 = gather %8 %1 {axis=1}\n"
    "  %13 = dimvals {dims=[2*n] scalar=1}\n"
    "  %14 = concat %11 %10 {axis=0}\n"
    "  return %8 \"y\", %11 \"s\", %12 \"g\", %13 \"k\", %14 \"c\"\n}\n";

static char folder[64], in_path[96], out_path[96];

static int setup(void **state)
{
    (void)state;
    snprintf(folder, sizeof folder, "%s",
             access("/dev/shm", W_OK) == 0 ? "/dev/shm/rtx-pipe-XXXXXX" : "/tmp/rtx-pipe-XXXXXX");
    if (!mkdtemp(folder))
        return -1;
    snprintf(in_path, sizeof in_path, "%s/f.rtx", folder);
    snprintf(out_path, sizeof out_path, "%s/f.rtxgc", folder);
    base_part part = {model, sizeof model - 1};
    return base_publish(in_path, &part, 1, NULL) != RTX_OK;
}

static int teardown(void **state)
{
    (void)state;
    unlink(in_path);
    unlink(out_path);
    return rmdir(folder);
}

static size_t live(void)
{
    size_t sum = 0;
    for (int t = 0; t < BASE_TAG_COUNT; t++)
        sum += base_alloc_live_bytes((base_tag)t);
    return sum;
}

static int files(void)
{
    int n = 0;
    DIR *d = opendir(folder);
    while (d && readdir(d))
        n++;
    closedir(d);
    return n - 2; /* . and .. */
}

static rtx_status compile(rtx_err *err)
{
    pipe_options o = {.tune = PIPE_OFF, .cache = ""};
    pipe_report r;
    return pipe_compile(in_path, &o, out_path, &r, err);
}

static void test_every_allocation_fails_once(void **state)
{
    (void)state;
    rtx_err err = {0};
    assert_int_equal(compile(&err), RTX_OK); /* warms what lives as long as the process */
    assert_int_equal(files(), 2);
    const int64_t stride = getenv("RTX_TEST_FULL") ? 1 : STRIDE;
    size_t before = live(), faults = 0;
    const uint64_t start = base_alloc_count();
    assert_int_equal(compile(&err), RTX_OK);
    const int64_t total = (int64_t)(base_alloc_count() - start);
    for (int64_t n = 0; n < total; n += stride) {
        unlink(out_path);
        err = (rtx_err){0};
        base_alloc_fail_at(n);
        rtx_status s = compile(&err);
        base_alloc_fail_at(-1);
        size_t now = live();
        bool nomem = s == RTX_NOMEM && err.code == RTX_NOMEM;
        if (now == before && nomem && files() == 1)
            continue;
        faults++;
        print_error("allocation %lld: %s: %s (%s); %zu bytes before, %zu after; %d files\n",
                    (long long)n, rtx_status_name(s), err.text, err.where, before, now, files());
        before = now;
    }
    assert_int_equal(faults, 0);
    base_alloc_fail_at(total); /* there are no more than that */
    assert_int_equal(compile(&err), RTX_OK);
    base_alloc_fail_at(-1);
    print_message("%lld allocations, every %lld-th failed\n", (long long)total, (long long)stride);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_every_allocation_fails_once)};
    return cmocka_run_group_tests(tests, setup, teardown);
}
