/* NumPy's .npy files: the part of versions 1 to 3 that arrays of our element types need.
 *   layer   top
 *   trust   files are hostile: the header is a strict subset of what NumPy writes, sizes are checked against the file
 *   source  https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html */
#include "cli.h"
#include <stdlib.h>

typedef struct npy_type {
    const char *descr;
    rtx_dtype dtype;
} npy_type;
/* bool is one byte; bf16 has no NumPy name: its two bytes are stored as void. The first row of a type is what we write. */
static const npy_type npy_types[] = {
    {"<f4", RTX_F32}, {"<i8", RTX_I64},  {"<i4", RTX_I32},  {"|b1", RTX_BOOL},
    {"<f2", RTX_F16}, {"<V2", RTX_BF16}, {"|V2", RTX_BF16}, {"<f8", RTX_F64},
};

uint64_t cli_tensor_bytes(const rtx_tensor *t)
{
    uint64_t n = fmt_dtype_bytes((fmt_dtype)t->dtype);
    for (int i = 0; i < t->rank; i++)
        if (t->dim[i] < 0 || __builtin_mul_overflow(n, (uint64_t)t->dim[i], &n) ||
            n > (uint64_t)1 << 46)
            return UINT64_MAX;
    return n;
}

static const char *skip_space(const char *s)
{
    while (*s == ' ' || *s == '\n')
        s++;
    return s;
}

/* Value of a key of the header's dictionary, or NULL. */
static const char *find_key(const char *header, const char *key)
{
    char quoted[32];
    snprintf(quoted, sizeof quoted, "'%s':", key);
    const char *at = strstr(header, quoted);
    return at ? skip_space(at + strlen(quoted)) : NULL;
}

static bool parse_shape(const char *s, rtx_tensor *out)
{
    if (s == NULL || *s++ != '(')
        return false;
    for (out->rank = 0; *(s = skip_space(s)) != ')'; out->rank++) {
        char *end;
        if (out->rank == RTX_RANK_MAX || *s < '0' || *s > '9')
            return false;
        long long v = strtoll(s, &end, 10);
        if (v > FMT_DIM_LIMIT)
            return false;
        out->dim[out->rank] = v;
        s = skip_space(end);
        if (*s == ',')
            s++;
        else if (*s != ')')
            return false;
    }
    return true;
}

static rtx_status parse_header(const char *path, const char *header, rtx_tensor *out, bool *fortran,
                               rtx_err *err)
{
    const char *descr = find_key(header, "descr"), *order = find_key(header, "fortran_order");
    if (descr == NULL || order == NULL || !parse_shape(find_key(header, "shape"), out))
        return FAIL(err, CORRUPT, "%s: the .npy header is not understood: %.120s", path, header);
    *fortran = strncmp(order, "True", 4) == 0;
    for (size_t i = 0; i < COUNT_OF(npy_types); i++)
        if (*descr == '\'' && strncmp(descr + 1, npy_types[i].descr, 3) == 0 && descr[4] == '\'') {
            out->dtype = npy_types[i].dtype;
            return RTX_OK;
        }
    return FAIL(err, UNSUPPORTED,
                "UNSUPPORTED: %s holds elements of type %.12s; convert to float32, int64, int32, "
                "bool, float16 or float64 (little endian)",
                path, descr);
}

/* Column-major elements to row-major ones. */
static void to_row_major(const rtx_tensor *t, const uint8_t *from, uint8_t *to, size_t size)
{
    int64_t index[RTX_RANK_MAX] = {0}, stride[RTX_RANK_MAX], n = 1;
    for (int i = 0; i < t->rank; i++) {
        stride[i] = n;
        n *= t->dim[i];
    }
    for (int64_t e = 0; e < n; e++) {
        int64_t at = 0;
        for (int i = 0; i < t->rank; i++)
            at += index[i] * stride[i];
        memcpy(to + (size_t)e * size, from + (size_t)at * size, size);
        for (int i = t->rank; i-- > 0 && ++index[i] == t->dim[i];)
            index[i] = 0;
    }
}

rtx_status cli_npy_read(const char *path, rtx_tensor *out, rtx_err *err)
{
    AUTO_FREE char *file = NULL;
    AUTO_FREE char *header = NULL;
    size_t bytes;
    bool fortran = false;
    TRY(base_read_file(path, (size_t)16 << 30, &file, &bytes, err));
    base_reader r = base_reader_of(file, bytes);
    const uint8_t *magic = base_reader_bytes(&r, 6);
    uint8_t major = base_reader_u8(&r);
    base_reader_u8(&r);
    if (magic == NULL || memcmp(magic, "\x93NUMPY", 6) != 0 || major < 1 || major > 3)
        return FAIL(err, CORRUPT, "%s is no .npy file of version 1 to 3; write it with numpy.save",
                    path);
    size_t len = major == 1 ? base_reader_u16(&r) : base_reader_u32(&r);
    const uint8_t *text = len <= 65536 ? base_reader_bytes(&r, len) : NULL;
    if (r.failed || text == NULL)
        return FAIL(err, CORRUPT, "%s ends within its .npy header", path);
    TRY_ALLOC(header = base_alloc(BASE_TAG_CLI, len + 1), err);
    memcpy(header, text, len);
    header[len] = '\0';
    rtx_tensor t = {0};
    TRY(parse_header(path, header, &t, &fortran, err));
    uint64_t want = cli_tensor_bytes(&t);
    if (want != base_reader_left(&r))
        return FAIL(err, CORRUPT, "%s: its shape needs %llu bytes of data, the file holds %zu",
                    path, (unsigned long long)want, base_reader_left(&r));
    TRY_ALLOC(t.data = base_alloc(BASE_TAG_CLI, want + 64), err);
    if (fortran && t.rank > 1)
        to_row_major(&t, r.at, t.data, fmt_dtype_bytes((fmt_dtype)t.dtype));
    else
        memcpy(t.data, r.at, want);
    for (uint64_t i = 0; t.dtype == RTX_BOOL && i < want; i++)
        ((uint8_t *)t.data)[i] = ((uint8_t *)t.data)[i] != 0;
    *out = t;
    return RTX_OK;
}

rtx_status cli_npy_write(const char *path, const rtx_tensor *t, rtx_err *err)
{
    AUTO_BUF base_buf head;
    base_buf_init(&head, BASE_TAG_CLI, 4096);
    const char *descr = NULL;
    for (size_t i = COUNT_OF(npy_types); i-- > 0;)
        if (npy_types[i].dtype == t->dtype)
            descr = npy_types[i].descr;
    if (descr == NULL)
        return FAIL(err, UNSUPPORTED, "UNSUPPORTED: element type %d has no .npy form",
                    (int)t->dtype);
    base_buf_put(&head, "\x93NUMPY\1\0\0\0", 10);
    base_buf_printf(&head, "{'descr': '%s', 'fortran_order': False, 'shape': (", descr);
    for (int i = 0; i < t->rank; i++)
        base_buf_printf(&head,
                        i == 0            ? "%lld,"
                        : i + 1 < t->rank ? " %lld,"
                                          : " %lld",
                        (long long)t->dim[i]);
    base_buf_puts(&head, "), }");
    TRY(base_buf_ok(&head, err));
    base_buf_printf(&head, "%*s\n", (int)(63 - head.len % 64), "");
    TRY(base_buf_ok(&head, err));
    size_t len = head.len - 10;
    head.data[8] = (char)(len & 255);
    head.data[9] = (char)(len >> 8);
    base_part parts[] = {{head.data, head.len}, {t->data, cli_tensor_bytes(t)}};
    return base_publish(path, parts, 2, err);
}
