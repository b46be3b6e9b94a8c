/* Runs passes over a graph and prints it: opt [--pass=fold,raise,…] [--count] FILE.rtx|MODEL.onnx|zoo:NAME
 * --count prints how often each operation occurs instead. Serves golden tests (tools/irck.py reads the output). */
#include "base_sys.h"
#include "fe.h"
#include "pass.h"
#include <stdio.h>

static rtx_status run_pass(const ir_graph *g, const char *word, size_t len, ir_graph **out,
                           rtx_err *err)
{
    size_t n;
    const pass_info *table = pass_table(&n);
    for (size_t i = 0; i < n; i++)
        if (strlen(table[i].name) == len && memcmp(table[i].name, word, len) == 0)
            return table[i].run(g, out, err);
    return FAIL(err, NOT_FOUND, "no pass '%.*s'", (int)len, word);
}

static rtx_status run_list(const ir_graph *g, const char *list, ir_graph **out, rtx_err *err)
{
    *out = NULL;
    while (*list) {
        size_t len = strcspn(list, ",");
        ir_graph *next = NULL;
        rtx_status s = run_pass(*out ? *out : g, list, len, &next, err);
        ir_graph_free(*out);
        *out = next;
        TRY(s);
        TRY(ir_verify(next, err));
        list += len + (list[len] == ',');
    }
    return RTX_OK;
}

static void show(const ir_graph *g, bool count)
{
    if (count) {
        uint32_t n[IR_OP_COUNT] = {0};
        for (ir_id id = 1; id < g->n_nodes; id++)
            n[ir_op_of(g, id)]++;
        for (int op = 1; op < IR_OP_COUNT; op++)
            if (n[op])
                printf("%-16s %u\n", ir_op_get((ir_op)op)->name, n[op]);
        return;
    }
    AUTO_BUF base_buf b;
    base_buf_init(&b, BASE_TAG_CLI, SIZE_MAX);
    ir_print(g, "main", 0, &b);
    fwrite(b.data, 1, b.len, stdout);
}

static rtx_status run(const char *path, const char *list, bool count, rtx_err *err)
{
    size_t len = strlen(path), bytes;
    ir_graph *out = NULL;
    if (strncmp(path, "zoo:", 4) == 0 || (len > 5 && strcmp(path + len - 5, ".onnx") == 0)) {
        fe_model *m;
        TRY(fe_open(path, NULL, &m, err));
        rtx_status s = run_list(fe_graph(m), list, &out, err);
        if (s == RTX_OK)
            show(out ? out : fe_graph(m), count);
        ir_graph_free(out);
        fe_close(m);
        return s;
    }
    AUTO_FREE char *text = NULL;
    TRY(base_read_file(path, 1 << 24, &text, &bytes, err));
    fmt_dims *dims = fmt_dims_new();
    ir_graph *g = NULL;
    rtx_status s = dims ? ir_parse(text, bytes, dims, &g, err) : FAIL(err, NOMEM, "out of memory");
    s = s == RTX_OK ? run_list(g, list, &out, err) : s;
    if (s == RTX_OK)
        show(out ? out : g, count);
    ir_graph_free(out);
    ir_graph_free(g);
    fmt_dims_free(dims);
    return s;
}

int main(int argc, char **argv)
{
    const char *list = "", *path = NULL;
    bool count = false;
    rtx_err err = {0};
    for (int i = 1; i < argc; i++)
        if (strncmp(argv[i], "--pass=", 7) == 0)
            list = argv[i] + 7;
        else if (strcmp(argv[i], "--count") == 0)
            count = true;
        else
            path = argv[i];
    if (!path) {
        fprintf(stderr, "usage: opt [--pass=LIST] [--count] FILE\n");
        return 2;
    }
    rtx_status s = run(path, list, count, &err);
    if (s != RTX_OK)
        fprintf(stderr, "%s: %s: %s\n", err.where, rtx_status_name(s), err.text);
    return rtx_status_exit(s);
}
