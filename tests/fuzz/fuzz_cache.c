/* Fuzz target of cache entries: what passes the check must have been whole, and no bytes may be read outside.
 * With clang: -fsanitize=fuzzer -DFUZZER. Without, main replays the files of the folders and files given; with no argument
 * it makes its own corpus: an entry, its cuts and flips, and seeded changes with a hash that fits. */
#include "tun_int.h"
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>

#define CHECK(x)                                                                                   \
    do {                                                                                           \
        if (!(x)) {                                                                                \
            fprintf(stderr, "failed: %s\n", #x);                                                   \
            abort();                                                                               \
        }                                                                                          \
    } while (0)

#define HASH_AT 40 /* of the entry's head: magic, schema, kind, three lengths, then 32 bytes */
#define HEAD    72

/* Make the hash fit, so that the lengths behind it are reached. */
static void seal(uint8_t *data, size_t size)
{
    if (size < HEAD)
        return;
    memset(data + HASH_AT, 0, 32);
    base_sha256_sum sum = base_sha256_of(data, size);
    memcpy(data + HASH_AT, sum.b, 32);
}

static void check(const uint8_t *data, size_t size)
{
    const char *payload = NULL;
    size_t n = 0;
    char why[64];
    tun_key k;
    if (tun_entry_check(data, size, NULL, &payload, &n, why, sizeof why) == RTX_OK)
        CHECK((const uint8_t *)payload >= data + HEAD &&
              (const uint8_t *)payload + n == data + size);
    tun_key_init(&k);
    tun_key_add(&k, "problem", "gemm");
    tun_key_mark_identity(&k);
    snprintf(k.compiler, sizeof k.compiler, "cc");
    rtx_status s = tun_entry_check(data, size, &k, &payload, &n, why, sizeof why);
    CHECK(s == RTX_OK || s == RTX_CORRUPT || s == RTX_NOT_FOUND);
    CHECK(s == RTX_OK || strncmp(why, "miss", 4) == 0);
    tun_key_done(&k);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    check(data, size);
    uint8_t *copy = base_alloc(BASE_TAG_TUNE, size);
    CHECK(copy);
    memcpy(copy, data, size);
    seal(copy, size);
    check(copy, size);
    base_free(copy);
    return 0;
}

#ifndef FUZZER
static int replay(const char *path)
{
    DIR *folder = opendir(path);
    int n = 0;
    if (!folder) {
        char *data;
        size_t bytes;
        CHECK(base_read_file(path, (size_t)64 << 20, &data, &bytes, NULL) == RTX_OK);
        LLVMFuzzerTestOneInput((const uint8_t *)data, bytes);
        base_free(data);
        return 1;
    }
    for (struct dirent *e; (e = readdir(folder));) {
        char file[4096];
        snprintf(file, sizeof file, "%s/%s", path, e->d_name);
        n += e->d_name[0] == '.' ? 0 : replay(file);
    }
    closedir(folder);
    return n;
}

/* A whole entry for the key of check(), then everything near it. */
static int own_corpus(void)
{
    uint8_t entry[HEAD + 13 + 2 + 7] = "rtxcach1";
    uint32_t schema = TUN_SCHEMA, kind = TUN_PLAN;
    uint64_t lengths[] = {13, 2, 7};
    memcpy(entry + 8, &schema, 4);
    memcpy(entry + 12, &kind, 4);
    memcpy(entry + 16, lengths, 24);
    memcpy(entry + HEAD, "problem=gemm\ncc1 1 1 x", 22);
    seal(entry, sizeof entry);
    const char *payload;
    size_t n;
    char why[64];
    CHECK(tun_entry_check(entry, sizeof entry, NULL, &payload, &n, why, sizeof why) == RTX_OK &&
          n == 7);
    int count = 0;
    for (size_t cut = 0; cut <= sizeof entry; cut++, count++)
        LLVMFuzzerTestOneInput(entry, cut);
    for (size_t at = 0; at < sizeof entry; at++)
        for (int value = 0; value < 256; value++, count++) {
            uint8_t old = entry[at];
            entry[at] = (uint8_t)value;
            LLVMFuzzerTestOneInput(entry, sizeof entry);
            entry[at] = old;
        }
    return count;
}

int main(int argc, char **argv)
{
    int n = argc > 1 ? 0 : own_corpus();
    for (int k = 1; k < argc; k++)
        n += replay(argv[k]);
    printf("%d files\n", n);
    return 0;
}
#endif
