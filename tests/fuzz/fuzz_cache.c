/* Fuzz target of cache entries: what passes the check must have been whole, and no bytes may be read outside.
 * With clang: -fsanitize=fuzzer -DFUZZER. Without, main replays the files of the folders and files given; with no argument
 * it makes its own corpus: an entry, its cuts and flips, and seeded changes with a hash that fits. */
#include "tun_int.h"
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
#include "fuzz_replay.h"

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
    if (argc > 1)
        return replay_all(argc, argv) == 0;
    printf("%d entries\n", own_corpus());
    return 0;
}
#endif
