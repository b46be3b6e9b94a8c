/* The loader: blobs run where they are mapped, by both ways; wrong sums are refused; pages are not writable. */
#include "dev_code.h"
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

/* int f(void) { return N; } */
static uint8_t ret1[] = {0xb8, 1, 0, 0, 0, 0xc3}, ret2[5000] = {0xb8, 2, 0, 0, 0, 0xc3};

typedef int (*fn)(void);

static int call(const uint8_t *at)
{
    fn f;
    memcpy(&f, &at, sizeof f);
    return f();
}

static void load_both(void)
{
    base_sha256_sum a = base_sha256_of(ret1, sizeof ret1), b = base_sha256_of(ret2, sizeof ret2);
    dev_blob blobs[] = {{ret1, sizeof ret1, a.b, "one"},
                        {ret2, sizeof ret2, b.b, "two"},
                        {ret1, sizeof ret1, a.b, "again"}};
    const uint8_t *at[3];
    dev_code c;
    assert_int_equal(dev_code_load(blobs, 3, &c, at, NULL), RTX_OK);
    for (int i = 0; i < 3; i++)
        assert_int_equal((uintptr_t)at[i] % 4096, 0);
    assert_int_equal(call(at[0]), 1);
    assert_int_equal(call(at[1]), 2);
    assert_int_equal(call(at[2]), 1);
    pid_t child = fork();
    if (child == 0) {
        signal(SIGSEGV, SIG_DFL); /* the test runner catches it */
        *(volatile uint8_t *)(uintptr_t)at[0] = 0;
        _exit(0);
    }
    int status;
    waitpid(child, &status, 0);
    assert_true(status != 0); /* killed, or stopped by a sanitizer */
    dev_code_unload(&c);
    dev_code_unload(&c);
    a.b[3] ^= 1;
    rtx_err err;
    assert_int_equal(dev_code_load(blobs, 3, &c, at, &err), RTX_CORRUPT);
    assert_string_equal(err.text, "code of kernel 'one': sum does not match");
    assert_int_equal(dev_code_load(blobs, 0, &c, at, NULL), RTX_OK);
    dev_code_unload(&c);
}

static void test_load(void **state)
{
    (void)state;
    load_both();
}

static void test_memfd(void **state)
{
    (void)state;
    dev_code_use_memfd(true);
    load_both();
    dev_code_use_memfd(false);
}

static void test_perf_map(void **state)
{
    (void)state;
    char path[64], text[200] = "";
    snprintf(path, sizeof path, "/tmp/perf-%ld.map", (long)getpid());
    unlink(path);
    dev_code_perf_map(ret1, 6, "off");
    assert_int_equal(access(path, F_OK), -1);
    setenv("RTX_PERF_MAP", "1", 1);
    dev_code_perf_map((const uint8_t *)0x1000, 0x20, "gemm.1");
    unsetenv("RTX_PERF_MAP");
    int fd = open(path, O_RDONLY);
    assert_true(read(fd, text, sizeof text - 1) > 0);
    close(fd);
    unlink(path);
    assert_string_equal(text, "1000 20 rtx:gemm.1\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_load), cmocka_unit_test(test_memfd),
                                       cmocka_unit_test(test_perf_map)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
