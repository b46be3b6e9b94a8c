/* The container: what is written comes back; every altered byte and every cut is refused; failed allocations are reported. */
#include "../run/run_fixture.h"
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <cmocka.h>

static char *file;
static size_t file_bytes;

static void load_small(void)
{
    if (file)
        return;
    fix_write("small.rtxgc", NULL);
    assert_int_equal(base_read_file("small.rtxgc", SIZE_MAX, &file, &file_bytes, NULL), RTX_OK);
}

static void put(const char *path, const void *data, size_t n)
{
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(data, 1, n, f), n);
    fclose(f);
}

static void test_round_trip(void **state)
{
    (void)state;
    load_small();
    fmt_bundle b;
    assert_int_equal(fmt_bundle_open("small.rtxgc", 2, &b, NULL), RTX_OK);
    assert_int_equal(b.n_plans, 1);
    assert_int_equal(b.section[FMT_SEC_GRAPH].bytes, 5);
    assert_memory_equal(b.section[FMT_SEC_GRAPH].data, "graph", 5);
    assert_memory_equal(b.section[FMT_SEC_EVIDENCE].data, "evidence", 8);
    assert_int_equal((uintptr_t)b.section[FMT_SEC_CODE].data % 4096, 0);
    assert_int_equal((uintptr_t)b.section[FMT_SEC_CONSTS].data % 4096, 0);
    assert_ptr_equal(fmt_bundle_plan(&b, FMT_ISA_V3), b.plan[0]);
    fmt_bundle_close(&b);
    fix_write("again.rtxgc", NULL); /* the same plan gives the same bytes */
    char *other;
    size_t n;
    assert_int_equal(base_read_file("again.rtxgc", SIZE_MAX, &other, &n, NULL), RTX_OK);
    assert_int_equal(n, file_bytes);
    assert_memory_equal(other, file, n);
    base_free(other);
}

static void test_two_plans(void **state)
{
    (void)state;
    fmt_bundle b;
    fix_write("two.rtxgc", &(fix_options){.lowest = 4, .second_lowest = 3});
    assert_int_equal(fmt_bundle_open("two.rtxgc", 1, &b, NULL), RTX_OK);
    assert_int_equal(b.n_plans, 2);
    assert_ptr_equal(fmt_bundle_plan(&b, FMT_ISA_V4), b.plan[0]);
    assert_ptr_equal(fmt_bundle_plan(&b, FMT_ISA_V3), b.plan[1]);
    assert_null(fmt_bundle_plan(&b, FMT_ISA_V2));
    fmt_bundle_close(&b);
}

static rtx_status try_open(const char *path)
{
    fmt_bundle b;
    rtx_err err = {.text = ""};
    rtx_status status = fmt_bundle_open(path, 1, &b, &err);
    if (status == RTX_OK)
        fmt_bundle_close(&b);
    else
        assert_int_not_equal(err.text[0], 0);
    return status;
}

/* Altered in place, one byte at a time; every bit of every byte in turn over the whole file. */
static void test_every_byte(void **state)
{
    (void)state;
    load_small();
    put("bad.rtxgc", file, file_bytes);
    int fd = open("bad.rtxgc", O_WRONLY);
    for (size_t i = 0; i < file_bytes; i++) {
        char altered = (char)(file[i] ^ 1 << i % 8);
        assert_int_equal(pwrite(fd, &altered, 1, (off_t)i), 1);
        rtx_status status = try_open("bad.rtxgc");
        if (status == RTX_OK)
            print_error("byte %zu of %zu altered: accepted\n", i, file_bytes);
        assert_int_not_equal(status, RTX_OK);
        assert_int_equal(pwrite(fd, &file[i], 1, (off_t)i), 1);
    }
    close(fd);
    assert_int_equal(try_open("bad.rtxgc"), RTX_OK);
}

static void test_every_length(void **state)
{
    (void)state;
    load_small();
    put("bad.rtxgc", file, file_bytes);
    for (size_t n = file_bytes; n-- > 0;) {
        assert_int_equal(truncate("bad.rtxgc", (off_t)n), 0);
        assert_int_equal(try_open("bad.rtxgc"), RTX_CORRUPT);
    }
    char *longer = malloc(file_bytes + 1);
    memcpy(longer, file, file_bytes);
    longer[file_bytes] = 0;
    put("bad.rtxgc", longer, file_bytes + 1);
    free(longer);
    assert_int_equal(try_open("bad.rtxgc"), RTX_CORRUPT);
}

/* Large enough for chunks and threads; samples over the whole length. */
static void test_large(void **state)
{
    (void)state;
    fix_write("large.rtxgc", &(fix_options){.pad_consts_bytes = (9 << 20) + 777});
    struct stat st;
    assert_int_equal(stat("large.rtxgc", &st), 0);
    int fd = open("large.rtxgc", O_RDWR);
    for (int threads = 1; threads <= 3; threads++) {
        fmt_bundle b;
        assert_int_equal(fmt_bundle_open("large.rtxgc", threads, &b, NULL), RTX_OK);
        fmt_bundle_close(&b);
    }
    for (off_t at = st.st_size - 1; at > 0; at -= 99991) {
        char c, altered;
        assert_int_equal(pread(fd, &c, 1, at), 1);
        altered = (char)(c ^ 4);
        assert_int_equal(pwrite(fd, &altered, 1, at), 1);
        fmt_bundle b;
        assert_int_equal(fmt_bundle_open("large.rtxgc", 2, &b, NULL), RTX_CORRUPT);
        assert_int_equal(pwrite(fd, &c, 1, at), 1);
    }
    close(fd);
}

/* Sums of pieces do not depend on where the pieces are cut. */
static void test_pieces(void **state)
{
    (void)state;
    size_t n = (3 << 20) + 100;
    char *bytes = malloc(n);
    for (size_t i = 0; i < n; i++)
        bytes[i] = (char)(i * 7 + (i >> 9));
    fmt_plan *p = fmt_plan_new(fmt_dims_new());
    p->consts_bytes = n;
    const fmt_plan *plans[] = {p};
    static const size_t cuts[][2] = {
        {0, 0}, {1, 2}, {1 << 20, 2 << 20}, {(1 << 20) + 5, (1 << 20) + 6}, {7, (3 << 20) + 99}};
    for (size_t i = 0; i < COUNT_OF(cuts); i++) {
        fmt_span items[] = {{bytes, cuts[i][0]},
                            {bytes + cuts[i][0], cuts[i][1] - cuts[i][0]},
                            {bytes + cuts[i][1], n - cuts[i][1]}};
        assert_int_equal(fmt_bundle_write("p.rtxgc", plans, 1, (fmt_pieces){items, 3},
                                          (fmt_span){"", 0}, "", NULL, NULL, NULL),
                         RTX_OK);
        assert_int_equal(try_open("p.rtxgc"), RTX_OK);
    }
    fmt_span short_item = {bytes, n - 1};
    assert_int_equal(fmt_bundle_write("p.rtxgc", plans, 1, (fmt_pieces){&short_item, 1},
                                      (fmt_span){"", 0}, "", "", "", NULL),
                     RTX_INTERNAL);
    fmt_plan_free(p);
    free(bytes);
}

/* Writing to standard output gives the same bytes; a full disk is an error. */
static void test_stdout(void **state)
{
    (void)state;
    load_small();
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        int fd = open("out.rtxgc", O_CREAT | O_WRONLY, 0600);
        dup2(fd, 1);
        fix_write("-", NULL);
        _exit(0);
    }
    int status;
    waitpid(child, &status, 0);
    assert_int_equal(status, 0);
    char *other;
    size_t n;
    assert_int_equal(base_read_file("out.rtxgc", SIZE_MAX, &other, &n, NULL), RTX_OK);
    assert_int_equal(n, file_bytes);
    assert_memory_equal(other, file, n);
    base_free(other);
}

static void test_failed_allocations(void **state)
{
    (void)state;
    load_small();
    size_t live = base_alloc_live_bytes(BASE_TAG_FORMAT);
    uint64_t before = base_alloc_count();
    assert_int_equal(try_open("small.rtxgc"), RTX_OK);
    uint64_t total = base_alloc_count() - before;
    for (uint64_t i = 0; i < total; i++) {
        base_alloc_fail_at((int64_t)i);
        rtx_status status = try_open("small.rtxgc");
        base_alloc_fail_at(-1);
        assert_int_equal(status, RTX_NOMEM);
        assert_int_equal(base_alloc_live_bytes(BASE_TAG_FORMAT), live);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip), cmocka_unit_test(test_two_plans),
        cmocka_unit_test(test_every_byte), cmocka_unit_test(test_every_length),
        cmocka_unit_test(test_large),      cmocka_unit_test(test_pieces),
        cmocka_unit_test(test_stdout),     cmocka_unit_test(test_failed_allocations),
    };
    int status = cmocka_run_group_tests(tests, fix_enter, fix_leave);
    base_free(file);
    return status;
}
