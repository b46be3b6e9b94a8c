/* Hashes against published vectors, environment table, log, and the text of cgroup files. */
#include "base_sys.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <cmocka.h>

static void expect_sha256(const void *p, size_t n, const char *hex)
{
    char text[65];
    base_sha256_sum sum = base_sha256_of(p, n);
    base_hex(sum.b, 32, text);
    assert_string_equal(text, hex);
}

static void test_sha256(void **state)
{
    (void)state; /* FIPS 180-4 examples */
    expect_sha256("", 0, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    expect_sha256("abc", 3, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    char *million = base_alloc(BASE_TAG_BASE, 1000000);
    memset(million, 'a', 1000000);
    expect_sha256(million, 1000000,
                  "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
    base_sha256 h;
    base_sha256_init(&h);
    for (size_t at = 0, step = 1; at < 1000000; at += step, step = MIN(step * 3, 1000000 - at))
        base_sha256_add(&h, million + at, MIN(step, 1000000 - at));
    base_sha256_sum parts = base_sha256_end(&h), whole = base_sha256_of(million, 1000000);
    assert_memory_equal(parts.b, whole.b, 32);
    base_free(million);
}

static void test_xxh3(void **state)
{
    (void)state; /* values of the reference implementation, seed 0 */
    assert_true(base_xxh3(NULL, 0) == 0x2d06800538d394c2ull);
    assert_true(base_xxh3("abc", 3) == 0x78af5f94892f3950ull);
    uint8_t a[1000] = {0}, b[1001] = {0};
    memcpy(b + 1, a, sizeof a);
    assert_true(base_xxh3(a, sizeof a) == base_xxh3(b + 1, sizeof a));
    b[500] = 1;
    assert_true(base_xxh3(a, sizeof a) != base_xxh3(b + 1, sizeof a));
}

static void test_env(void **state)
{
    (void)state;
    unsetenv("CC");
    assert_string_equal(base_env(BASE_ENV_CC_PLAIN), "cc");
    assert_false(base_env_is_set(BASE_ENV_CC_PLAIN));
    setenv("CC", "", 1);
    assert_string_equal(base_env(BASE_ENV_CC_PLAIN), "");
    assert_true(base_env_is_set(BASE_ENV_CC_PLAIN));

    static const struct {
        const char *text;
        int64_t want;
    } rows[] = {{"3", 3}, {"-5", 0}, {"99", 7}, {"99999999999999999999", 7},
                {"x", 0}, {"3x", 0}, {"", 0}};
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        setenv("RTX_DEBUG", rows[i].text, 1);
        assert_int_equal(base_env_int(BASE_ENV_DEBUG, 0, 7), rows[i].want);
    }
    unsetenv("RTX_DEBUG");
    assert_int_equal(base_env_int(BASE_ENV_THREADS, 1, 256), 1); /* no default: clamped 0 */

    size_t count;
    const base_env_row *table = base_env_table(&count);
    assert_int_equal(count, BASE_ENV_COUNT);
    for (size_t i = 0; i < count; i++) {
        assert_true(table[i].doc[0] != '\0');
        for (size_t j = 0; j < i; j++)
            assert_string_not_equal(table[i].name, table[j].name);
    }
}

static void keep_line(void *user, int level, const char *line)
{
    snprintf(user, 100, "%d:%s", level, line);
}

static void test_log(void **state)
{
    (void)state;
    char line[100] = "";
    base_warn("nobody listens");
    base_log_set(keep_line, line);
    unsetenv("RTX_DEBUG");
    base_warn("n = %d", 4);
    assert_string_equal(line, "0:n = 4");
    base_log(2, "hidden");
    assert_string_equal(line, "0:n = 4");
    setenv("RTX_DEBUG", "2", 1);
    base_log(2, "shown");
    assert_string_equal(line, "2:shown");
    base_log(3, "hidden");
    assert_string_equal(line, "2:shown");
    base_log_set(NULL, NULL);
    base_warn("silent again");
    assert_string_equal(line, "2:shown");
}

static void test_cgroup_quota(void **state)
{
    (void)state;
    assert_int_equal(base_cgroup_cpu_max("max 100000\n"), 0);
    assert_int_equal(base_cgroup_cpu_max("150000 100000\n"), 1500);
    assert_int_equal(base_cgroup_cpu_max("400000 100000"), 4000);
    assert_int_equal(base_cgroup_cpu_max("1 1000000"), 1); /* tiny is still a limit */
    assert_int_equal(base_cgroup_cpu_max(""), 0);
    assert_int_equal(base_cgroup_cpu_max("100000"), 0);
    assert_int_equal(base_cgroup_cpu_max("100000 0"), 0);
    assert_int_equal(base_cgroup_cpu_max("9223372036854775807 1"), 0);
    assert_int_equal(base_cgroup_quota("-1\n", "100000\n"), 0);
    assert_int_equal(base_cgroup_quota("250000\n", "100000\n"), 2500);
}

static void test_cgroup_path(void **state)
{
    (void)state;
    const char *text =
        "12:cpuset:/set\n4:cpu,cpuacct:/docker/abc\n1:name=systemd:/a:b\n0::/user.slice\n";
    char path[32];
    assert_true(base_cgroup_path(text, "cpu", path, sizeof path));
    assert_string_equal(path, "/docker/abc");
    assert_true(base_cgroup_path(text, "cpuacct", path, sizeof path));
    assert_true(base_cgroup_path(text, "", path, sizeof path));
    assert_string_equal(path, "/user.slice");
    assert_true(base_cgroup_path(text, "name=systemd", path, sizeof path));
    assert_string_equal(path, "/a:b");
    assert_false(base_cgroup_path(text, "cp", path, sizeof path));
    assert_false(base_cgroup_path(text, "memory", path, sizeof path));
    assert_false(base_cgroup_path(text, "cpu", path, 11));
    assert_true(base_cgroup_path(text, "cpu", path, 12));
    assert_false(base_cgroup_path("", "", path, sizeof path));
    assert_false(base_cgroup_path("junk\n5:\n", "", path, sizeof path));
    assert_true(base_cgroup_path("0::/no-newline", "", path, sizeof path));
    assert_string_equal(path, "/no-newline");
}

static void test_clock(void **state)
{
    (void)state;
    uint64_t start = base_now_ns();
    base_sleep_ns(2000000);
    assert_true(base_now_ns() - start >= 2000000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sha256),       cmocka_unit_test(test_xxh3),
        cmocka_unit_test(test_env),          cmocka_unit_test(test_log),
        cmocka_unit_test(test_cgroup_quota), cmocka_unit_test(test_cgroup_path),
        cmocka_unit_test(test_clock),
    };
    return cmocka_run_group_tests_name("base_sys", tests, NULL, NULL);
}
