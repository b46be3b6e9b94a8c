/* Fuzz target of what the runtime reads: by their first bytes, containers, kernel objects, else plan records.
 * With clang: -fsanitize=fuzzer -DFUZZER. Without, main replays the files of the folders and files given, each of which must be
 * accepted, and altered copies of each. tests/fuzz/make_bundle.py makes the kept files anew. */
#include "fmt_bundle.h"
#include "fmt_plan_priv.h"
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define CHECK(x)                                                                                   \
    do {                                                                                           \
        if (!(x)) {                                                                                \
            fprintf(stderr, "failed: %s\n", #x);                                                   \
            abort();                                                                               \
        }                                                                                          \
    } while (0)

static bool accepted; /* the last input */

static void refused(rtx_status status, const rtx_err *err)
{
    accepted = false;
    CHECK(status == err->code && status != RTX_OK && status != RTX_INTERNAL && *err->text);
}

static void try_container(const uint8_t *data, size_t size)
{
    char path[64];
    int fd = memfd_create("bundle", 0);
    CHECK(fd >= 0 && write(fd, data, size) == (ssize_t)size);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    fmt_bundle b;
    rtx_err err = {0};
    rtx_status status = fmt_bundle_open(path, 1, &b, &err);
    if (status == RTX_OK)
        fmt_bundle_close(&b);
    else
        refused(status, &err);
    close(fd);
}

static void try_object(const uint8_t *data, size_t size)
{
    fmt_kobj o;
    rtx_err err = {0};
    rtx_status status = fmt_kobj_read(data, size, &o, &err);
    if (status == RTX_OK)
        CHECK(o.code >= data && o.bytes <= size && (size_t)(o.code - data) <= size - o.bytes);
    else
        refused(status, &err);
    uint32_t at = 0;
    if (fmt_kobj_entry(data, size, "add_run", &at, &err) == RTX_OK)
        CHECK(at < o.bytes);
}

/* What is read must pass the check, and be written as records that are read again. */
static void try_plan(const uint8_t *data, size_t size)
{
    base_reader r = base_reader_of(data, size);
    fmt_plan *p, *again;
    rtx_err err = {0};
    rtx_status status = fmt_plan_read(&r, &p, &err);
    if (status != RTX_OK) {
        refused(status, &err);
        return;
    }
    base_buf b;
    base_buf_init(&b, BASE_TAG_FORMAT, SIZE_MAX);
    fmt_plan_write(p, &b);
    base_reader second = base_reader_of(b.data, b.len);
    CHECK(fmt_plan_read(&second, &again, &err) == RTX_OK && base_reader_left(&second) == 0);
    base_buf_done(&b);
    fmt_plan_free(p);
    fmt_plan_free(again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    accepted = true;
    if (size >= 4 && memcmp(data, "\x89RTX", 4) == 0)
        try_container(data, size);
    else if (size >= 4 && memcmp(data,
                                 "\x7f"
                                 "ELF",
                                 4) == 0)
        try_object(data, size);
    else
        try_plan(data, size);
    return 0;
}

#ifndef FUZZER
static void altered(const char *data, size_t bytes)
{
    unsigned seed = 1;
    CHECK(accepted); /* else it is of another version and alters nothing that is read */
    for (int round = 0; round < 2000 && bytes; round++) {
        size_t n = round % 8 ? bytes : (size_t)round * 977 % bytes;
        uint8_t *copy = malloc(n + 1); /* a block of its own, so that reading past it shows */
        CHECK(copy);
        memcpy(copy, data, n);
        for (int k = round % 3; k >= 0 && n > 8; k--) {
            seed = seed * 1664525u + 1013904223u;
            copy[8 + seed / 256 % (n - 8)] = (uint8_t)(seed % 5 ? seed >> 24 : 255);
        }
        LLVMFuzzerTestOneInput(copy, n);
        free(copy);
    }
}

#define REPLAY_EACH altered
#include "fuzz_replay.h"

int main(int argc, char **argv) { return replay_all(argc, argv) == 0; }
#endif
