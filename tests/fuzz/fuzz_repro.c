/* Fuzz target of repro files: bytes are refused with a reason, or give a candidate that prints to text that parses to the same
 * text, and whose C text can be asked for.
 * With clang: -fsanitize=fuzzer -DFUZZER. Without, main replays the files of the folders and files given, whole, cut and with
 * single bytes changed. */
#include "base_sys.h"
#include "tun.h"
#include <stdio.h>
#include <stdlib.h>

#define CHECK(x)                                                                                   \
    do {                                                                                           \
        if (!(x)) {                                                                                \
            fprintf(stderr, "failed: %s\n", #x);                                                   \
            abort();                                                                               \
        }                                                                                          \
    } while (0)

static char *print(const tun_repro *r, size_t *len)
{
    base_buf b;
    base_buf_init(&b, BASE_TAG_TUNE, (size_t)256 << 20);
    CHECK(tun_repro_print(r, &b, NULL) == RTX_OK);
    return base_buf_take(&b, len);
}

static void render(const tun_repro *r)
{
    base_buf b;
    rtx_err err = {0};
    base_buf_init(&b, BASE_TAG_TUNE, (size_t)256 << 20);
    CHECK(tun_repro_source(r, &b, &err) == RTX_OK || *err.text);
    base_buf_done(&b);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static tun_repro r, again;
    rtx_err err = {0};
    if (tun_repro_parse((const char *)data, size, &r, &err) == RTX_OK) {
        size_t len, len2;
        char *text = print(&r, &len);
        CHECK(tun_repro_parse(text, len, &again, &err) == RTX_OK);
        char *text2 = print(&again, &len2);
        CHECK(len == len2 && memcmp(text, text2, len) == 0);
        render(&r);
        tun_repro_done(&again);
        base_free(text);
        base_free(text2);
    } else {
        CHECK(err.code != RTX_OK && err.code != RTX_INTERNAL && *err.text);
    }
    tun_repro_done(&r);
    return 0;
}

#ifndef FUZZER
/* A copy of exactly these bytes, so that a read behind them is seen. */
static void exactly(const uint8_t *data, size_t size)
{
    uint8_t *copy = base_alloc(BASE_TAG_TUNE, size ? size : 1);
    CHECK(copy);
    if (size)
        memcpy(copy, data, size);
    LLVMFuzzerTestOneInput(copy, size);
    base_free(copy);
}

static void near(char *data, size_t size)
{
    static const char bytes[] = {0, '\n', ' ', '-', '9', 'x', '\xff'};
    for (size_t cut = 0; cut < size; cut += 1 + cut / 256)
        exactly((uint8_t *)data, cut);
    for (size_t at = 0; at < size; at += 1 + at / 256)
        for (size_t b = 0; b < sizeof bytes; b++) {
            char old = data[at];
            data[at] = bytes[b];
            exactly((uint8_t *)data, size);
            data[at] = old;
        }
}

#define REPLAY_EACH near
#include "fuzz_replay.h"

int main(int argc, char **argv) { return replay_all(argc, argv) == 0; }
#endif
