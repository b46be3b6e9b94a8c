/* Evaluates an ONNX file (or zoo name) with the fp64 evaluator, for tests against ONNX Runtime.
 *   onnx_eval MODEL OUT_FOLDER [--bind NAME]… [--print] [NAME=FILE.npy]…
 * Writes OUT_FOLDER/<index>.npy for each output. Without inputs, --print only shows the graph. --onnx FILE exports it.
 * Exit 0, 1 with the error on stderr, or 3 with the UNSUPPORTED report. */
#include "base_sys.h"
#include "fe.h"
#include <stdio.h>
#include <stdlib.h>

enum { MAX_FILES = 64 };
typedef struct npy {
    char *name;
    char *file;
    const char *data;
    fe_bind shape;
} npy;

static bool read_npy(const char *path, npy *out)
{
    static const struct {
        const char *descr;
        fmt_dtype t;
    } types[] = {{"<f4", FMT_F32},  {"<i8", FMT_I64}, {"<i4", FMT_I32},
                 {"|b1", FMT_BOOL}, {"<f8", FMT_F64}, {"<f2", FMT_F16}};
    size_t bytes;
    if (base_read_file(path, SIZE_MAX, &out->file, &bytes, NULL) != RTX_OK || bytes < 10)
        return false;
    uint16_t header;
    memcpy(&header, out->file + 8, 2);
    char *text = base_strdup(BASE_TAG_CLI, out->file + 10), *at;
    text[header - 1] = 0;
    for (size_t i = 0; i < COUNT_OF(types); i++)
        if (strstr(text, types[i].descr))
            out->shape.dtype = types[i].t;
    at = strstr(text, "'shape': (");
    for (at += 10; *at && *at != ')';) {
        out->shape.dim[out->shape.rank++] = strtoll(at, &at, 10);
        at += strspn(at, ", ");
    }
    base_free(text);
    out->data = out->file + 10 + header;
    return true;
}

static rtx_status write_npy(const char *folder, uint32_t index, const ir_tensor *t, rtx_err *err)
{
    const char *descr = t->dtype == FMT_F32    ? "<f4"
                        : t->dtype == FMT_I64  ? "<i8"
                        : t->dtype == FMT_I32  ? "<i4"
                        : t->dtype == FMT_BOOL ? "|b1"
                        : t->dtype == FMT_F64  ? "<f8"
                                               : "<f2";
    AUTO_BUF base_buf b;
    base_buf_init(&b, BASE_TAG_CLI, SIZE_MAX);
    base_buf_printf(&b, "{'descr': '%s', 'fortran_order': False, 'shape': (", descr);
    for (int i = 0; i < t->rank; i++)
        base_buf_printf(&b, "%lld,", (long long)t->dim[i]);
    base_buf_puts(&b, ")}\n");
    AUTO_FREE char *data = base_alloc(BASE_TAG_CLI, (size_t)t->elems * fmt_dtype_bytes(t->dtype));
    ir_tensor_store(t, data);
    uint16_t len = (uint16_t)b.len;
    char path[512];
    snprintf(path, sizeof path, "%s/%u.npy", folder, index);
    base_part parts[] = {{"\x93NUMPY\x01\x00", 8},
                         {&len, 2},
                         {b.data, b.len},
                         {data, (size_t)t->elems * fmt_dtype_bytes(t->dtype)}};
    return base_publish(path, parts, COUNT_OF(parts), err);
}

static rtx_status evaluate(const ir_graph *g, const npy *files, int n_files, const char *folder,
                           rtx_err *err)
{
    ir_tensor in[MAX_FILES] = {0}, out[MAX_FILES] = {0};
    rtx_status st = RTX_OK;
    for (uint32_t i = 0; i < g->n_inputs && st == RTX_OK; i++) {
        const npy *f = NULL;
        for (int k = 0; k < n_files; k++)
            if (strcmp(files[k].name, g->inputs[i].name) == 0)
                f = &files[k];
        if (!f)
            return FAIL(err, INVALID, "input '%s' is not given", g->inputs[i].name);
        st = ir_tensor_from(f->data, f->shape.dtype, f->shape.rank, f->shape.dim, &in[i], err);
    }
    if (st == RTX_OK)
        st = ir_eval(g, in, NULL, out, NULL, (size_t)4 << 30, NULL, NULL, err);
    for (uint32_t i = 0; i < g->n_outputs && st == RTX_OK; i++)
        st = write_npy(folder, i, &out[i], err);
    for (int i = 0; i < MAX_FILES; i++) {
        ir_tensor_done(&in[i]);
        ir_tensor_done(&out[i]);
    }
    return st;
}

static rtx_status print_graph(const ir_graph *g)
{
    AUTO_BUF base_buf b;
    base_buf_init(&b, BASE_TAG_CLI, SIZE_MAX);
    ir_print(g, "main", 0, &b);
    for (uint32_t s = 0; s < fmt_sym_count(g->dims); s++) {
        const fmt_sym *sym = fmt_sym_get(g->dims, s);
        base_buf_printf(&b, "# %s %lld..%lld\n", sym->name, (long long)sym->lo, (long long)sym->hi);
    }
    fputs(b.data, stdout);
    return RTX_OK;
}

static rtx_status export_onnx(const ir_graph *g, const char *path, rtx_err *err)
{
    AUTO_BUF base_buf b;
    base_buf_init(&b, BASE_TAG_CLI, SIZE_MAX);
    TRY(fe_onnx_write(g, "exported", &b, err));
    return base_publish(path, &(base_part){b.data, b.len}, 1, err);
}

int main(int argc, char **argv)
{
    npy files[MAX_FILES] = {0};
    fe_bind binds[MAX_FILES];
    fe_options opt = {binds, 0};
    const char *want[MAX_FILES], *export_to = NULL;
    int n_files = 0, n_want = 0;
    bool print = false;
    if (argc < 3)
        return 2;
    for (int i = 3; i < argc; i++) {
        char *eq = strchr(argv[i], '=');
        if (strcmp(argv[i], "--print") == 0) {
            print = true;
        } else if (strcmp(argv[i], "--bind") == 0) {
            want[n_want++] = argv[++i];
        } else if (strcmp(argv[i], "--onnx") == 0) {
            export_to = argv[++i];
        } else if (eq) {
            *eq = 0;
            files[n_files].name = argv[i];
            if (!read_npy(eq + 1, &files[n_files++]))
                return 2;
        }
    }
    for (int k = 0; k < n_want; k++)
        for (int i = 0; i < n_files; i++)
            if (strcmp(files[i].name, want[k]) == 0) {
                fe_bind b = files[i].shape;
                b.name = files[i].name, b.data = files[i].data;
                binds[opt.n_binds++] = b;
            }
    fe_model *m = NULL;
    rtx_err err = {0};
    rtx_status st = fe_open(argv[1], &opt, &m, &err);
    if (st == RTX_OK)
        st = ir_verify(fe_graph(m), &err);
    if (st == RTX_OK && print)
        st = print_graph(fe_graph(m));
    if (st == RTX_OK && export_to)
        st = export_onnx(fe_graph(m), export_to, &err);
    if (st == RTX_OK && (n_files || (!print && !export_to)))
        st = evaluate(fe_graph(m), files, n_files, argv[2], &err);
    char *report = st == RTX_UNSUPPORTED ? fe_take_report() : NULL;
    if (st != RTX_OK)
        fprintf(stderr, "%s: %s (%s)\n", rtx_status_name(st), report ? report : err.text,
                err.where);
    base_free(report);
    fe_close(m);
    for (int i = 0; i < n_files; i++)
        base_free(files[i].file);
    return rtx_status_exit(st);
}
