/* Files: mapping, reading, atomic publication on a full disk, folders. Works in a scratch folder of its own. */
#include "base_sys.h"
#include <dirent.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

static char scratch[] = "/tmp/rtx-test-file-XXXXXX";

static int enter_scratch(void **state)
{
    (void)state;
    return !mkdtemp(scratch) || chdir(scratch) != 0;
}

static int leave_scratch(void **state)
{
    (void)state;
    char command[80];
    snprintf(command, sizeof command, "rm -rf %s", scratch);
    return chdir("/") != 0 || system(command) != 0;
}

static void put(const char *path, const void *data, size_t bytes)
{
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(data, 1, bytes, f), bytes);
    fclose(f);
}

static int names_in(const char *folder)
{
    int count = 0;
    DIR *d = opendir(folder);
    assert_non_null(d);
    for (struct dirent *e; (e = readdir(d));)
        count += strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0;
    closedir(d);
    return count;
}

static void test_map(void **state)
{
    (void)state;
    rtx_err err;
    base_map m = {0};
    put("map", "hello", 5);
    assert_int_equal(base_map_open("map", &m, &err), RTX_OK);
    assert_int_equal(m.bytes, 5);
    assert_memory_equal(m.data, "hello", 5);
    assert_false(base_map_changed(&m));
    base_sleep_ns(20000000); /* beyond the file clock's tick */
    put("map", "world", 5);
    assert_true(base_map_changed(&m));
    base_map_close(&m);
    base_map_close(&m);

    put("empty", "", 0);
    assert_int_equal(base_map_open("empty", &m, &err), RTX_OK);
    assert_non_null(m.data);
    assert_int_equal(m.bytes, 0);
    put("empty", "x", 1);
    assert_true(base_map_changed(&m));
    base_map_close(&m);
}

static void test_map_refuses(void **state)
{
    (void)state;
    rtx_err err;
    base_map m = {.bytes = 77};
    assert_int_equal(base_map_open("absent", &m, &err), RTX_NOT_FOUND);
    assert_non_null(strstr(err.text, "absent"));
    assert_int_equal(base_map_open("absent/x", &m, NULL), RTX_NOT_FOUND);
    assert_int_equal(base_map_open(".", &m, &err), RTX_INVALID);
    assert_int_equal(base_map_open("/dev/null", &m, &err), RTX_INVALID);
    assert_int_equal(mkfifo("fifo", 0600), 0);
    assert_int_equal(base_map_open("fifo", &m, &err), RTX_INVALID); /* and does not hang */
    assert_int_equal(m.bytes, 77);                                  /* untouched on failure */
}

static void test_read_file(void **state)
{
    (void)state;
    rtx_err err;
    char *data = NULL;
    size_t bytes = 0;
    put("ten", "0123456789", 10);
    assert_int_equal(base_read_file("ten", 10, &data, &bytes, &err), RTX_OK);
    assert_int_equal(bytes, 10);
    assert_string_equal(data, "0123456789");
    base_free(data);
    assert_int_equal(base_read_file("ten", 9, &data, &bytes, &err), RTX_LIMIT);
    assert_int_equal(base_read_file("absent", 9, &data, &bytes, &err), RTX_NOT_FOUND);
    assert_int_equal(base_read_file(".", 1 << 20, &data, &bytes, &err), RTX_INVALID);
    assert_int_equal(base_read_file("/dev/zero", 100000, &data, &bytes, &err), RTX_LIMIT);
    assert_int_equal(base_read_file("/proc/self/stat", 1 << 20, &data, &bytes, &err), RTX_OK);
    assert_true(bytes > 10); /* stat says size 0 */
    base_free(data);
}

static void test_read_stdin(void **state)
{
    (void)state;
    put("piped", "abc", 3);
    int saved = dup(STDIN_FILENO), fd = open("piped", O_RDONLY);
    dup2(fd, STDIN_FILENO);
    close(fd);
    char *data;
    size_t bytes;
    rtx_status status = base_read_file("-", 3, &data, &bytes, NULL);
    dup2(saved, STDIN_FILENO);
    close(saved);
    assert_int_equal(status, RTX_OK);
    assert_string_equal(data, "abc");
    base_free(data);
}

static void test_publish(void **state)
{
    (void)state;
    rtx_err err;
    const base_part parts[] = {{"head", 4}, {NULL, 0}, {"tail", 4}};
    assert_int_equal(mkdir("pub", 0700), 0);
    mode_t old = umask(027);
    assert_int_equal(base_publish("pub/file", parts, 3, &err), RTX_OK);
    umask(old);
    struct stat st;
    assert_int_equal(stat("pub/file", &st), 0);
    assert_int_equal(st.st_mode & 0777, 0640);
    assert_int_equal(base_publish("pub/file", parts, 1, &err), RTX_OK);
    char *data;
    size_t bytes;
    assert_int_equal(base_read_file("pub/file", 100, &data, &bytes, &err), RTX_OK);
    assert_string_equal(data, "head");
    base_free(data);
    assert_int_equal(names_in("pub"), 1);
    assert_int_equal(base_publish("plain-name", parts, 1, &err), RTX_OK);
    assert_int_equal(base_publish("absent/file", parts, 1, &err), RTX_NOT_FOUND);
    assert_non_null(strstr(err.text, "absent/file: cannot make a file in folder absent/"));
    assert_int_equal(base_publish("/dev/null", parts, 1, &err), RTX_INVALID);
    assert_int_equal(base_publish("pub", parts, 1, &err), RTX_INVALID);
}

static void test_publish_behind_links(void **state)
{
    (void)state;
    rtx_err err;
    struct stat st;
    const base_part part = {"new", 3};
    assert_int_equal(mkdir("behind", 0700), 0);
    assert_int_equal(mkdir("before", 0700), 0);
    put("behind/file", "old one", 7);
    assert_int_equal(chmod("behind/file", 0751), 0);
    assert_int_equal(symlink("../behind/file", "before/link"), 0);
    assert_int_equal(symlink("nothing", "before/broken"), 0);
    assert_int_equal(base_publish_check("before/link", &err), RTX_OK);
    assert_int_equal(base_publish("before/link", &part, 1, &err), RTX_OK);
    assert_int_equal(lstat("before/link", &st), 0);
    assert_true(S_ISLNK(st.st_mode));
    assert_int_equal(stat("behind/file", &st), 0);
    assert_int_equal(st.st_size, 3);
    assert_int_equal(st.st_mode & 07777, 0751);
    assert_int_equal(base_publish_check("before/broken", &err), RTX_NOT_FOUND);
    assert_int_equal(base_publish("before/broken", &part, 1, &err), RTX_NOT_FOUND);
    assert_int_equal(names_in("behind"), 1);
    assert_int_equal(names_in("before"), 2);
}

static void test_publish_check(void **state)
{
    (void)state;
    rtx_err err;
    static char text[5000];
    assert_int_equal(base_publish_check("some-name", &err), RTX_OK);
    assert_int_equal(base_publish_check("/tmp/some-name", &err), RTX_OK);
    assert_int_equal(base_publish_check("", &err), RTX_INVALID);
    assert_int_equal(base_publish_check("absent/file", &err), RTX_NOT_FOUND);
    assert_int_equal(base_publish_check("/dev/null", &err), RTX_INVALID);
    memset(text, 'n', 255);
    assert_int_equal(base_publish_check(text, &err), RTX_OK);
    text[255] = 'n';
    assert_int_equal(base_publish_check(text, &err), RTX_LIMIT);
    for (size_t i = 0; i < 4094;
         i++) /* the path fits, that of a temporary file beside it would not */
        text[i] = i % 2 ? '/' : '.';
    assert_int_equal(base_publish_check(text, &err), RTX_LIMIT);
    memset(text, 'n', sizeof text - 1);
    assert_int_equal(base_publish_check(text, &err), RTX_LIMIT);
    assert_int_equal(base_publish(text, NULL, 0, &err), RTX_LIMIT);
}

/* A file size limit stops the write half way, as a full disk would. */
static void test_publish_on_full_disk_leaves_nothing(void **state)
{
    (void)state;
    rtx_err err;
    assert_int_equal(mkdir("full", 0700), 0);
    assert_int_equal(base_publish("full/file", &(base_part){"old", 3}, 1, &err), RTX_OK);
    static char big[100000];
    struct rlimit before;
    getrlimit(RLIMIT_FSIZE, &before);
    signal(SIGXFSZ, SIG_IGN);
    setrlimit(RLIMIT_FSIZE, &(struct rlimit){50000, before.rlim_max});
    rtx_status status = base_publish("full/file", &(base_part){big, sizeof big}, 1, &err);
    setrlimit(RLIMIT_FSIZE, &before);
    signal(SIGXFSZ, SIG_DFL);
    assert_int_equal(status, RTX_IO);
    assert_int_equal(names_in("full"), 1);
    char *data;
    size_t bytes;
    assert_int_equal(base_read_file("full/file", 100, &data, &bytes, &err), RTX_OK);
    assert_string_equal(data, "old");
    base_free(data);
}

static void test_publish_survives_failed_allocations(void **state)
{
    (void)state;
    assert_int_equal(mkdir("torture", 0700), 0);
    size_t live = base_alloc_live_bytes(BASE_TAG_BASE);
    rtx_status status = RTX_NOMEM;
    for (int64_t i = 0; status == RTX_NOMEM; i++) {
        base_alloc_fail_at(i);
        status = base_publish("torture/file", &(base_part){"x", 1}, 1, NULL);
        assert_true(names_in("torture") <= 1);
        assert_int_equal(base_alloc_live_bytes(BASE_TAG_BASE), live);
    }
    base_alloc_fail_at(-1);
    assert_int_equal(status, RTX_OK);
}

static void test_mkdirs(void **state)
{
    (void)state;
    rtx_err err;
    char path[100];
    snprintf(path, sizeof path, "%s/a/b//c/", scratch);
    assert_int_equal(base_mkdirs(path, &err), RTX_OK);
    assert_int_equal(base_mkdirs(path, &err), RTX_OK);
    assert_int_equal(base_mkdirs("d/e", &err), RTX_OK);
    struct stat st;
    assert_int_equal(stat("d", &st), 0);
    assert_int_equal(st.st_mode & 07777, 0700);
    put("in-the-way", "", 0);
    assert_int_equal(base_mkdirs("in-the-way/x", &err), RTX_IO);
    assert_non_null(strstr(err.text, "in-the-way"));
    assert_int_equal(base_mkdirs("", &err), RTX_IO);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_map),
        cmocka_unit_test(test_map_refuses),
        cmocka_unit_test(test_read_file),
        cmocka_unit_test(test_read_stdin),
        cmocka_unit_test(test_publish),
        cmocka_unit_test(test_publish_behind_links),
        cmocka_unit_test(test_publish_check),
        cmocka_unit_test(test_publish_on_full_disk_leaves_nothing),
        cmocka_unit_test(test_publish_survives_failed_allocations),
        cmocka_unit_test(test_mkdirs),
    };
    return cmocka_run_group_tests_name("base_file", tests, enter_scratch, leave_scratch);
}
