/* Fuzz target of the graph text: what parses must verify, and print to text that parses to the same text.
 * With clang: -fsanitize=fuzzer -DFUZZER. Without, main replays the files of the folders and files given. */
#include "base_sys.h"
#include "ir.h"
#include <stdio.h>
#include <stdlib.h>

#define CHECK(x)                                                                                   \
    do {                                                                                           \
        if (!(x)) {                                                                                \
            fprintf(stderr, "failed: %s\n", #x);                                                   \
            abort();                                                                               \
        }                                                                                          \
    } while (0)

static char *print(const ir_graph *g, size_t *len)
{
    base_buf b;
    base_buf_init(&b, BASE_TAG_IR, (size_t)256 << 20);
    ir_print(g, "main", IR_TEXT_DATA | IR_TEXT_NAMES, &b);
    CHECK(!b.failed);
    return base_buf_take(&b, len);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fmt_dims *dims = fmt_dims_new(), *again = fmt_dims_new();
    ir_graph *g, *h;
    rtx_err err = {0};
    CHECK(dims && again);
    if (ir_parse((const char *)data, size, dims, &g, &err) == RTX_OK) {
        size_t len, len2;
        char *text = print(g, &len);
        CHECK(ir_verify(g, &err) == RTX_OK);
        CHECK(ir_parse(text, len, again, &h, &err) == RTX_OK);
        char *text2 = print(h, &len2);
        CHECK(len == len2 && memcmp(text, text2, len) == 0);
        base_free(text);
        base_free(text2);
        ir_graph_free(g);
        ir_graph_free(h);
    } else {
        CHECK(err.code != RTX_OK && err.code != RTX_INTERNAL && *err.text);
    }
    fmt_dims_free(dims);
    fmt_dims_free(again);
    return 0;
}

#ifndef FUZZER
#include "fuzz_replay.h"

int main(int argc, char **argv) { return replay_all(argc, argv) == 0; }
#endif
