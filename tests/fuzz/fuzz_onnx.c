/* Fuzz target of the ONNX importer: bytes are refused with a reason, or give a graph that the verifier accepts and that
 * reads back when written as ONNX.
 * With clang: -fsanitize=fuzzer -DFUZZER. Without, main replays the files of the folders and files given. */
#include "base_sys.h"
#include "fe.h"
#include <stdio.h>
#include <stdlib.h>

#define CHECK(x)                                                                                   \
    do {                                                                                           \
        if (!(x)) {                                                                                \
            fprintf(stderr, "failed: %s\n", #x);                                                   \
            abort();                                                                               \
        }                                                                                          \
    } while (0)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void write_and_read(const ir_graph *g)
{
    base_buf b;
    fe_model *m = NULL;
    base_buf_init(&b, BASE_TAG_FRONTEND, (size_t)64 << 20);
    if (fe_onnx_write(g, "g", &b, NULL) == RTX_OK)
        (void)!fe_open_bytes(b.data, b.len, NULL, NULL, &m, NULL);
    fe_close(m);
    base_buf_done(&b);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fe_model *m = NULL;
    rtx_err err = {0};
    if (fe_open_bytes(data, size, NULL, NULL, &m, &err) == RTX_OK) {
        CHECK(ir_verify(fe_graph(m), &err) == RTX_OK);
        write_and_read(fe_graph(m));
    } else {
        CHECK(err.code != RTX_OK && err.code != RTX_INTERNAL && *err.text);
    }
    fe_close(m);
    base_free(fe_take_report());
    return 0;
}

#ifndef FUZZER
#include "fuzz_replay.h"

int main(int argc, char **argv) { return replay_all(argc, argv) == 0; }
#endif
