/* Cache entries under torture: every byte flipped, every length cut, folders in their place, folders that cannot be used,
 * two writers at once; keys; results that no real clock or device made. */
#include "tune_fixture.h"
#include <setjmp.h>
#include <stdarg.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>
#include <dirent.h>

static const tun_origin real = {true, true};
static const char payload[] = "1 100.5 120.25 MR=6 NP=4";
static int warnings;

static void count_warnings(void *user, int level, const char *line)
{
    (void)user, (void)line;
    warnings += level == 0;
}

static void make_key(tun_key *k, const char *problem, const char *sha)
{
    tun_key_init(k);
    tun_key_add(k, "problem", problem);
    tun_key_add(k, "threads", "2");
    tun_key_mark_identity(k);
    tun_key_add(k, "template text", sha);
    tun_key_add(k, "flags", "-O3");
    snprintf(k->compiler, sizeof k->compiler, "cc 12.2");
}

/* The only entry of a kind below a cache folder. */
static void entry_of(const tun_cache *c, const char *kind, char *out, size_t cap)
{
    char dir[600];
    snprintf(dir, sizeof dir, "%s/v%d/%s/%s", c->root, TUN_SCHEMA, c->env, kind);
    DIR *d = opendir(dir);
    assert_non_null(d);
    out[0] = 0;
    for (struct dirent *e; (e = readdir(d)) != NULL;)
        if (e->d_name[0] != '.')
            snprintf(out, cap, "%s/%s", dir, e->d_name);
    closedir(d);
    assert_true(out[0] != 0);
}

static void write_file(const char *path, const void *data, size_t n)
{
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(data, 1, n, f), n);
    fclose(f);
}

static bool get(tun_cache *c, const tun_key *k, char *why, size_t cap)
{
    AUTO_FREE char *out = NULL;
    size_t n = 0;
    bool hit = tun_cache_get(c, TUN_PLAN, k, &out, &n, why, cap);
    if (hit) {
        assert_int_equal(n, strlen(payload));
        assert_memory_equal(out, payload, n);
    }
    return hit;
}

typedef struct box {
    char *folder;
    tun_cache c;
    tun_key k;
} box;

static int open_box(void **state)
{
    static box b;
    warnings = 0;
    base_log_set(count_warnings, NULL);
    b.folder = fixture_folder();
    tun_cache_open(&b.c, b.folder, "test cpu");
    make_key(&b.k, "gemm", "aa");
    *state = &b;
    return !b.folder || !b.c.on;
}

static int close_box(void **state)
{
    box *b = *state;
    tun_key_done(&b->k);
    fixture_remove(b->folder);
    base_free(b->folder);
    base_log_set(NULL, NULL);
    return 0;
}

static void what_was_put_is_got(void **state)
{
    box *b = *state;
    char why[64];
    assert_false(get(&b->c, &b->k, why, sizeof why));
    assert_string_equal(why, "miss");
    assert_int_equal(tun_cache_put(&b->c, TUN_PLAN, &b->k, payload, strlen(payload), &real),
                     RTX_OK);
    assert_true(get(&b->c, &b->k, why, sizeof why));
    assert_string_equal(why, "hit");
    assert_int_equal(warnings, 0);
}

static void every_flip_and_cut_is_a_miss(void **state)
{
    box *b = *state;
    char path[1024], why[64];
    assert_int_equal(tun_cache_put(&b->c, TUN_PLAN, &b->k, payload, strlen(payload), &real),
                     RTX_OK);
    entry_of(&b->c, "plan", path, sizeof path);
    AUTO_FREE char *good = NULL;
    size_t n;
    assert_int_equal(base_read_file(path, 1 << 20, &good, &n, NULL), RTX_OK);
    for (size_t i = 0; i < n; i++)
        for (int bit = 0; bit < 8; bit += 3) {
            good[i] = (char)(good[i] ^ 1 << bit);
            write_file(path, good, n);
            assert_false(get(&b->c, &b->k, why, sizeof why));
            good[i] = (char)(good[i] ^ 1 << bit);
        }
    for (size_t i = 0; i < n; i++) {
        write_file(path, good, i);
        assert_false(get(&b->c, &b->k, why, sizeof why));
    }
    write_file(path, good, n);
    assert_true(get(&b->c, &b->k, why, sizeof why));
    assert_int_equal(warnings, 1);
}

/* An entry of another schema, whole by its own sum, is no entry of ours; nor is one in the folder of another schema. */
static void other_schemas_are_ignored(void **state)
{
    box *b = *state;
    enum { SCHEMA_AT = 8, SUM_AT = 40, SUM_BYTES = 32 };
    char path[1024], why[64];
    assert_int_equal(tun_cache_put(&b->c, TUN_PLAN, &b->k, payload, strlen(payload), &real),
                     RTX_OK);
    entry_of(&b->c, "plan", path, sizeof path);
    AUTO_FREE char *entry = NULL;
    size_t n;
    assert_int_equal(base_read_file(path, 1 << 20, &entry, &n, NULL), RTX_OK);
    static const int change[] = {1, -1, 0}; /* 0 proves that sealing is right */
    for (size_t i = 0; i < COUNT_OF(change); i++) {
        uint32_t schema = (uint32_t)(TUN_SCHEMA + change[i]);
        memcpy(entry + SCHEMA_AT, &schema, sizeof schema);
        memset(entry + SUM_AT, 0, SUM_BYTES);
        base_sha256_sum sum = base_sha256_of(entry, n);
        memcpy(entry + SUM_AT, sum.b, SUM_BYTES);
        write_file(path, entry, n);
        assert_int_equal(get(&b->c, &b->k, why, sizeof why), schema == TUN_SCHEMA);
    }
    char here[1024], there[1024];
    snprintf(here, sizeof here, "%s/v%d", b->folder, TUN_SCHEMA);
    snprintf(there, sizeof there, "%s/v%d", b->folder, TUN_SCHEMA + 1);
    assert_int_equal(rename(here, there), 0);
    tun_cache_open(&b->c, b->folder, "test cpu");
    assert_false(get(&b->c, &b->k, why, sizeof why));
}

static void damaged_entries_go_to_quarantine(void **state)
{
    box *b = *state;
    char path[1024], why[64];
    assert_int_equal(tun_cache_put(&b->c, TUN_PLAN, &b->k, payload, strlen(payload), &real),
                     RTX_OK);
    entry_of(&b->c, "plan", path, sizeof path);
    write_file(path, "rubbish", 7);
    assert_false(get(&b->c, &b->k, why, sizeof why));
    assert_int_not_equal(access(path, F_OK), 0);
    assert_int_equal(b->c.quarantined, 1);
    assert_int_equal(mkdir(path, 0700), 0); /* a folder in the place of an entry */
    assert_false(get(&b->c, &b->k, why, sizeof why));
    assert_int_equal(tun_cache_put(&b->c, TUN_PLAN, &b->k, payload, strlen(payload), &real),
                     RTX_OK);
    assert_true(get(&b->c, &b->k, why, sizeof why));
    unlink(path);
    assert_int_equal(mkdir(path, 0700), 0);
    assert_int_equal(tun_cache_put(&b->c, TUN_PLAN, &b->k, payload, strlen(payload), &real),
                     RTX_OK);
    assert_true(get(&b->c, &b->k, why, sizeof why));
    assert_int_equal(warnings, 1);
}

static void keys_decide(void **state)
{
    box *b = *state;
    char why[64];
    assert_int_equal(tun_cache_put(&b->c, TUN_PLAN, &b->k, payload, strlen(payload), &real),
                     RTX_OK);
    tun_key other;
    make_key(&other, "gemm", "ab");
    assert_false(get(&b->c, &other, why, sizeof why));
    assert_string_equal(why, "miss: template text differs");
    tun_key_done(&other);
    make_key(&other, "gemm2", "aa");
    assert_false(get(&b->c, &other, why, sizeof why));
    assert_string_equal(why, "miss");
    tun_key_done(&other);
    make_key(&other, "gemm", "aa");
    snprintf(other.compiler, sizeof other.compiler, "cc 13");
    assert_false(get(&b->c, &other, why, sizeof why));
    assert_string_equal(why, "miss: compiler differs");
    other.compiler[0] = 0; /* no compiler here: what another one made serves */
    assert_true(get(&b->c, &other, why, sizeof why));
    tun_key_done(&other);
    make_key(&other, "gemm", "aa\nflags=-O0"); /* a value cannot pretend to be a field */
    assert_false(get(&b->c, &other, why, sizeof why));
    tun_key_done(&other);
    tun_cache elsewhere;
    tun_cache_open(&elsewhere, b->folder, "another cpu");
    assert_false(get(&elsewhere, &b->k, why, sizeof why));
}

static void unreal_results_are_not_kept(void **state)
{
    box *b = *state;
    const tun_origin fake[] = {{false, true}, {true, false}, {false, false}};
    char why[64];
    for (size_t i = 0; i < COUNT_OF(fake); i++)
        for (int kind = 0; kind < TUN_KINDS; kind++)
            assert_int_equal(
                tun_cache_put(&b->c, (tun_kind)kind, &b->k, payload, strlen(payload), &fake[i]),
                RTX_INVALID);
    assert_int_equal(tun_cache_put(&b->c, TUN_PLAN, &b->k, payload, strlen(payload), NULL),
                     RTX_INVALID);
    assert_false(get(&b->c, &b->k, why, sizeof why));
    assert_int_equal(b->c.written, 0);
}

static void trouble_is_one_warning(void **state)
{
    box *b = *state;
    char path[512];
    tun_cache c;
    snprintf(path, sizeof path, "%s/file", b->folder);
    write_file(path, "x", 1);
    tun_cache_open(&c, path, "cpu"); /* a file where the folder should be */
    assert_false(c.on);
    assert_int_equal(warnings, 1);
    snprintf(path, sizeof path, "%s/open", b->folder);
    assert_int_equal(mkdir(path, 0700), 0);
    assert_int_equal(chmod(path, 0777), 0); /* anybody could put code there */
    tun_cache_open(&c, path, "cpu");
    assert_false(c.on);
    assert_int_equal(warnings, 2);
    char why[64];
    assert_false(get(&c, &b->k, why, sizeof why));
    assert_int_equal(tun_cache_put(&c, TUN_PLAN, &b->k, payload, strlen(payload), &real), RTX_OK);
    assert_int_equal(warnings, 2);
    if (geteuid() != 0)
        return;
    snprintf(path, sizeof path, "%s/foreign", b->folder);
    assert_int_equal(mkdir(path, 0755), 0);
    assert_int_equal(chown(path, 12345, 12345), 0);
    tun_cache_open(&c, path, "cpu");
    assert_false(c.on);
    assert_int_equal(warnings, 3);
    tun_cache_open(&c, "", "cpu"); /* no cache wanted: nothing to say */
    assert_false(c.on);
    assert_int_equal(warnings, 3);
}

static void writers_do_not_disturb_each_other(void **state)
{
    box *b = *state;
    pid_t pid[4];
    for (int p = 0; p < 4; p++) {
        pid[p] = fork();
        if (pid[p] == 0) {
            tun_cache c;
            bool ok = true;
            tun_cache_open(&c, b->folder, "test cpu");
            for (int i = 0; i < 200; i++) {
                char why[64];
                ok &= tun_cache_put(&c, TUN_PLAN, &b->k, payload, strlen(payload), &real) == RTX_OK;
                ok &= get(&c, &b->k, why, sizeof why);
            }
            _exit(!(ok && c.quarantined == 0 && !c.warned));
        }
    }
    for (int p = 0; p < 4; p++) {
        int status;
        assert_int_equal(waitpid(pid[p], &status, 0), pid[p]);
        assert_int_equal(status, 0);
    }
}

static void housekeeping(void **state)
{
    box *b = *state;
    tun_cache_stat st;
    for (int i = 0; i < 10; i++) {
        tun_key k;
        char name[16];
        snprintf(name, sizeof name, "p%d", i);
        make_key(&k, name, "aa");
        assert_int_equal(
            tun_cache_put(&b->c, i % 2 ? TUN_BIN : TUN_MEAS, &k, payload, strlen(payload), &real),
            RTX_OK);
        tun_key_done(&k);
    }
    assert_int_equal(tun_cache_put(&b->c, TUN_PLAN, &b->k, payload, strlen(payload), &real),
                     RTX_OK);
    assert_int_equal(tun_cache_stat_get(b->folder, &st, NULL), RTX_OK);
    assert_int_equal(st.entries, 11);
    assert_int_equal(tun_cache_verify(b->folder, false, NULL, NULL, &st, NULL), RTX_OK);
    assert_int_equal(st.bad, 0);
    char path[1024];
    entry_of(&b->c, "plan", path, sizeof path);
    write_file(path, "rubbish", 7);
    assert_int_equal(tun_cache_verify(b->folder, true, NULL, NULL, &st, NULL), RTX_OK);
    assert_int_equal(st.bad, 1);
    assert_int_equal(tun_cache_verify(b->folder, false, NULL, NULL, &st, NULL), RTX_OK);
    assert_int_equal(st.entries, 10);
    assert_int_equal(st.bad, 0);
    uint64_t one = st.bytes / 10;
    assert_int_equal(tun_cache_gc(b->folder, one * 4, &st, NULL), RTX_OK);
    assert_true(st.entries <= 4 && st.bytes <= one * 4);
}

static void repro_files_lie_beside_entries(void **state)
{
    box *b = *state;
    tun_cache_stat st;
    char name[33], path[1024];
    AUTO_BUF base_buf text;
    base_buf_init(&text, BASE_TAG_TUNE, SIZE_MAX);
    base_buf_puts(&text, "rtx-repro 1\n");
    const tun_origin unreal = {false, true};
    assert_false(tun_cache_put_repro(&b->c, TUN_BAD_KIND, &b->k, &text, &unreal, name));
    assert_true(tun_cache_put_repro(&b->c, TUN_BAD_KIND, &b->k, &text, &real, name));
    entry_of(&b->c, "bad", path, sizeof path);
    assert_non_null(strstr(path, name));
    assert_string_equal(path + strlen(path) - 6, ".repro");
    assert_int_equal(tun_cache_verify(b->folder, true, NULL, NULL, &st, NULL), RTX_OK);
    assert_true(st.entries == 0 && st.bad == 0 && st.bytes == text.len);
    assert_int_equal(tun_cache_gc(b->folder, 1, &st, NULL), RTX_OK);
    assert_true(st.entries == 0 && st.bytes == 0);
}

int main(void)
{
#define CASE(f) cmocka_unit_test_setup_teardown(f, open_box, close_box)
    const struct CMUnitTest tests[] = {
        CASE(what_was_put_is_got),
        CASE(every_flip_and_cut_is_a_miss),
        CASE(other_schemas_are_ignored),
        CASE(damaged_entries_go_to_quarantine),
        CASE(keys_decide),
        CASE(unreal_results_are_not_kept),
        CASE(trouble_is_one_warning),
        CASE(writers_do_not_disturb_each_other),
        CASE(housekeeping),
        CASE(repro_files_lie_beside_entries),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
