/* Evaluates a graph in text form, for tests against NumPy.
 *   ir_eval GRAPH OUT_FOLDER [DTYPE:SIZES:FILE]…      one argument an input: f32:2,3:x.bin, raw row-major elements
 * Prints "DTYPE SIZES" for each output and writes OUT_FOLDER/<index>.bin, doubles or int64, and <index>.abs where the
 * evaluator gives sums of magnitudes. With --ops instead of GRAPH it prints the names of all ops.
 * Exit 0, or 1 with "STATUS: text" on stderr. With --serve it reads the arguments of one call a line, with tabs between,
 * and answers with the same lines followed by "ok" or "STATUS: text". */
#include "base_sys.h"
#include "ir.h"
#include <stdio.h>
#include <stdlib.h>

enum { MAX_PORTS = 256 };

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
    FILE *f = fopen(path, "wb");
    size_t n = (size_t)t->elems;
    bool ok = f && fwrite(t->f ? (void *)t->f : (void *)t->i, 8, n, f) == n;
    ok = f && fclose(f) == 0 && ok;
    return ok ? RTX_OK : FAIL(err, IO, "cannot write %s", path);
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

typedef struct call {
    fmt_dims *dims;
    ir_graph *g;
    char *text;
    ir_tensor in[MAX_PORTS], out[MAX_PORTS], abs[MAX_PORTS];
} call;

static rtx_status run_call(call *c, char **arg, int n_arg, rtx_err *err)
{
    size_t bytes;
    TRY_ALLOC(c->dims = fmt_dims_new(), err);
    TRY(base_read_file(arg[0], SIZE_MAX, &c->text, &bytes, err));
    TRY(ir_parse(c->text, bytes, c->dims, &c->g, err));
    TRY(ir_verify(c->g, err));
    uint32_t n = c->g->n_inputs;
    if ((uint32_t)(n_arg - 2) != n || n > MAX_PORTS || c->g->n_outputs > MAX_PORTS)
        return FAIL(err, INVALID, "%d inputs given, %u needed", n_arg - 2, n);
    for (uint32_t k = 0; k < n; k++)
        TRY(read_input(arg[k + 2], &c->in[k], err));
    TRY(ir_eval(c->g, c->in, NULL, c->out, c->abs, (size_t)1 << 32, NULL, NULL, err));
    for (uint32_t k = 0; k < c->g->n_outputs; k++)
        TRY(write_output(arg[1], k, &c->out[k], &c->abs[k], err));
    return RTX_OK;
}

static rtx_status run(char **arg, int n_arg, rtx_err *err)
{
    call *c = calloc(1, sizeof *c);
    TRY_ALLOC(c, err);
    rtx_status s = run_call(c, arg, n_arg, err);
    for (int k = 0; k < MAX_PORTS; k++) {
        ir_tensor_done(&c->in[k]);
        ir_tensor_done(&c->out[k]);
        ir_tensor_done(&c->abs[k]);
    }
    base_free(c->text);
    ir_graph_free(c->g);
    fmt_dims_free(c->dims);
    free(c);
    return s;
}

static int serve(void)
{
    char *line = NULL, *arg[MAX_PORTS + 2];
    size_t cap = 0;
    while (getline(&line, &cap, stdin) > 0) {
        int n = 0;
        rtx_err err = {0};
        line[strcspn(line, "\n")] = '\0';
        for (char *rest = line; rest && n < MAX_PORTS + 2;)
            arg[n++] = strsep(&rest, "\t");
        if (n < 2 || run(arg, n, &err) != RTX_OK)
            printf("%s: %s\n", rtx_status_name(err.code), err.text);
        else
            puts("ok");
        fflush(stdout);
    }
    free(line);
    return 0;
}

int main(int argc, char **argv)
{
    rtx_err err = {0};
    if (argc == 2 && strcmp(argv[1], "--ops") == 0) {
        for (int op = IR_NONE + 1; op < IR_OP_COUNT; op++)
            puts(ir_op_get((ir_op)op)->name);
        return 0;
    }
    if (argc == 2 && strcmp(argv[1], "--serve") == 0)
        return serve();
    if (argc < 3)
        return 2;
    if (run(argv + 1, argc - 1, &err) != RTX_OK)
        fprintf(stderr, "%s: %s\n", rtx_status_name(err.code), err.text);
    return err.code == RTX_OK ? 0 : 1;
}
