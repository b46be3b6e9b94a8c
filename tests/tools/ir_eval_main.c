/* Evaluates a graph in text form, for tests against NumPy.
 *   ir_eval GRAPH OUT_FOLDER [DTYPE:SIZES:FILE]…      one argument an input: f32:2,3:x.bin, raw row-major elements
 * Prints "DTYPE SIZES" for each output and writes OUT_FOLDER/<index>.bin, doubles or int64, and <index>.abs where the
 * evaluator gives sums of magnitudes. With --ops instead of GRAPH it prints the names of all ops.
 * Exit 0, or 1 with "STATUS: text" on stderr. */
#include "base_sys.h"
#include "ir.h"
#include <stdio.h>
#include <stdlib.h>

enum { MAX_PORTS = 64 };

static rtx_status read_input(char *arg, ir_tensor *out, rtx_err *err)
{
    int64_t dim[FMT_RANK_MAX];
    int rank = 0;
    char *sizes = strchr(arg, ':'), *path = sizes ? strchr(sizes + 1, ':') : NULL;
    if (!path)
        return FAIL(err, INVALID, "input '%s' is not DTYPE:SIZES:FILE", arg);
    for (char *at = sizes + 1; at < path && rank < FMT_RANK_MAX; at++)
        dim[rank++] = strtoll(at, &at, 10);
    char *data;
    size_t bytes;
    TRY(base_read_file(path + 1, SIZE_MAX, &data, &bytes, err));
    rtx_status status =
        ir_tensor_from(data, fmt_dtype_parse(arg, (size_t)(sizes - arg)), rank, dim, out, err);
    base_free(data);
    return status;
}

static rtx_status write_values(const char *folder, uint32_t index, const char *suffix,
                               const ir_tensor *t, rtx_err *err)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%u.%s", folder, index, suffix);
    base_part part = {t->f ? (void *)t->f : (void *)t->i, (size_t)t->elems * 8};
    return base_publish(path, &part, 1, err);
}

static rtx_status write_output(const char *folder, uint32_t index, const ir_tensor *t,
                               const ir_tensor *abs, rtx_err *err)
{
    printf("%s ", fmt_dtype_name(t->dtype));
    for (int k = 0; k < t->rank; k++)
        printf("%s%lld", k ? "," : "", (long long)t->dim[k]);
    printf("\n");
    TRY(write_values(folder, index, "bin", t, err));
    return abs->elems ? write_values(folder, index, "abs", abs, err) : RTX_OK;
}

static rtx_status run(const char *path, const char *folder, char **inputs, int n_inputs,
                      rtx_err *err)
{
    static ir_tensor in[MAX_PORTS], out[MAX_PORTS], abs[MAX_PORTS];
    char *text;
    size_t bytes;
    ir_graph *g;
    fmt_dims *dims;
    TRY_ALLOC(dims = fmt_dims_new(), err);
    TRY(base_read_file(path, SIZE_MAX, &text, &bytes, err));
    TRY(ir_parse(text, bytes, dims, &g, err));
    TRY(ir_verify(g, err));
    if ((uint32_t)n_inputs != g->n_inputs || g->n_inputs > MAX_PORTS || g->n_outputs > MAX_PORTS)
        return FAIL(err, INVALID, "%d inputs given, %u needed", n_inputs, g->n_inputs);
    for (int k = 0; k < n_inputs; k++)
        TRY(read_input(inputs[k], &in[k], err));
    TRY(ir_eval(g, in, out, abs, (size_t)1 << 32, NULL, NULL, err));
    for (uint32_t k = 0; k < g->n_outputs; k++)
        TRY(write_output(folder, k, &out[k], &abs[k], err));
    return RTX_OK; /* the process ends here; nothing is freed */
}

int main(int argc, char **argv)
{
    rtx_err err = {0};
    if (argc == 2 && strcmp(argv[1], "--ops") == 0) {
        for (int op = IR_NONE + 1; op < IR_OP_COUNT; op++)
            puts(ir_op_get((ir_op)op)->name);
        return 0;
    }
    if (argc < 3)
        return 2;
    if (run(argv[1], argv[2], argv + 3, argc - 3, &err) != RTX_OK)
        fprintf(stderr, "%s: %s\n", rtx_status_name(err.code), err.text);
    return err.code == RTX_OK ? 0 : 1;
}
