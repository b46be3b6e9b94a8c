/* Safetensors: 8 bytes of header length, a JSON header, then the data; tensors point into the mapping.
 * Checked at open: every offset, size and type; tensors fill the data without gaps or overlap, as the format demands. */
#include "base_sys.h"
#include "fe.h"
#include <jansson.h>
#include <stdlib.h>

enum { HEADER_MAX = 16 << 20 }; /* the parsed header takes some 20 times its text */

struct fe_st {
    base_map map;
    base_arena arena; /* names and the table */
    fe_st_tensor *tensor;
    size_t n;
};

static const struct {
    const char *text;
    fmt_dtype t;
} types[] = {{"F32", FMT_F32},  {"F16", FMT_F16}, {"BF16", FMT_BF16}, {"F64", FMT_F64},
             {"I64", FMT_I64},  {"I32", FMT_I32}, {"I16", FMT_I16},   {"I8", FMT_I8},
             {"U8", FMT_U8},    {"U16", FMT_U16}, {"U32", FMT_U32},   {"U64", FMT_U64},
             {"BOOL", FMT_BOOL}};

static void auto_json(json_t **j) { json_decref(*j); }

static rtx_status read_shape(const json_t *shape, fe_st_tensor *t, size_t *out_elems, rtx_err *err)
{
    if (!json_is_array(shape) || json_array_size(shape) > FMT_RANK_MAX)
        return FAIL(err, CORRUPT, "tensor '%.80s' has no shape of at most %d axes", t->name,
                    FMT_RANK_MAX);
    size_t elems = 1;
    t->rank = (int)json_array_size(shape);
    for (int i = 0; i < t->rank; i++) {
        const json_t *v = json_array_get(shape, (size_t)i);
        json_int_t d = json_is_integer(v) ? json_integer_value(v) : -1;
        if (d < 0 || d > FMT_DIM_LIMIT || (d && elems > (size_t)FMT_DIM_LIMIT / (size_t)d))
            return FAIL(err, CORRUPT, "tensor '%.80s': axis %d has an impossible size", t->name, i);
        t->dim[i] = d;
        elems *= (size_t)d;
    }
    *out_elems = elems;
    return RTX_OK;
}

static rtx_status read_tensor(const json_t *j, const uint8_t *data, size_t data_bytes,
                              fe_st_tensor *t, rtx_err *err)
{
    const json_t *offsets = json_object_get(j, "data_offsets"), *from = json_array_get(offsets, 0),
                 *to = json_array_get(offsets, 1);
    const char *dtype = json_string_value(json_object_get(j, "dtype"));
    size_t elems = 0;
    for (size_t i = 0; dtype && i < COUNT_OF(types); i++)
        if (strcmp(types[i].text, dtype) == 0)
            t->dtype = types[i].t;
    if (t->dtype == FMT_NONE)
        return FAIL(err, UNSUPPORTED, "tensor '%.80s' has element type '%.20s'", t->name,
                    dtype ? dtype : "");
    TRY(read_shape(json_object_get(j, "shape"), t, &elems, err));
    json_int_t b = json_is_integer(from) ? json_integer_value(from) : -1;
    json_int_t e = json_is_integer(to) ? json_integer_value(to) : -1;
    if (json_array_size(offsets) != 2 || b < 0 || e < b || (uint64_t)e > data_bytes)
        return FAIL(err, CORRUPT, "tensor '%.80s': its data lies outside the file", t->name);
    t->data = data + b;
    t->bytes = (size_t)(e - b);
    if (t->bytes / fmt_dtype_bytes(t->dtype) != elems || t->bytes % fmt_dtype_bytes(t->dtype))
        return FAIL(err, CORRUPT, "tensor '%.80s': its shape has %zu elements, its data %zu bytes",
                    t->name, elems, t->bytes);
    return RTX_OK;
}

static int by_place(const void *a, const void *b)
{
    const fe_st_tensor *x = a, *y = b;
    uintptr_t p = (uintptr_t)x->data, q = (uintptr_t)y->data;
    return p != q ? (p > q) - (p < q) : (x->bytes > y->bytes) - (x->bytes < y->bytes);
}

static rtx_status read_table(fe_st *s, const json_t *root, const uint8_t *data, size_t data_bytes,
                             rtx_err *err)
{
    const char *key;
    json_t *value;
    TRY_ALLOC(s->tensor =
                  base_arena_array(&s->arena, json_object_size(root) + 1, sizeof *s->tensor),
              err);
    json_object_foreach((json_t *)(uintptr_t)root, key, value)
    {
        if (strcmp(key, "__metadata__") == 0)
            continue;
        fe_st_tensor *t = &s->tensor[s->n++];
        TRY_ALLOC(t->name = base_arena_strn(&s->arena, key, strlen(key)), err);
        TRY(read_tensor(value, data, data_bytes, t, err));
    }
    qsort(s->tensor, s->n, sizeof *s->tensor, by_place);
    const uint8_t *at = data;
    for (size_t i = 0; i < s->n; i++) {
        if (s->tensor[i].data != (const void *)at)
            return FAIL(err, CORRUPT, "tensor '%.80s' overlaps another one or follows a gap",
                        s->tensor[i].name);
        at += s->tensor[i].bytes;
    }
    return at == data + data_bytes ? RTX_OK : FAIL(err, CORRUPT, "data after the last tensor");
}

static rtx_status open_into(fe_st *s, const char *path, rtx_err *err)
{
    TRY(base_map_open(path, &s->map, err));
    base_reader r = base_reader_of(s->map.data, s->map.bytes);
    uint64_t header = base_reader_u64(&r);
    if (r.failed || header > base_reader_left(&r))
        return FAIL(err, CORRUPT, "'%.200s' is cut short, or no safetensors file", path);
    if (header > HEADER_MAX)
        return FAIL(err, LIMIT, "'%.200s': a header of %llu bytes; the limit is %d", path,
                    (unsigned long long)header, HEADER_MAX);
    json_error_t why;
    __attribute__((cleanup(auto_json))) json_t *root =
        json_loadb((const char *)r.at, (size_t)header, JSON_REJECT_DUPLICATES, &why);
    if (!json_is_object(root))
        return FAIL(err, CORRUPT, "'%.200s': its header is no JSON object (%.100s)", path,
                    root ? "" : why.text);
    return read_table(s, root, r.at + header, base_reader_left(&r) - (size_t)header, err);
}

rtx_status fe_st_open(const char *path, fe_st **out, rtx_err *err)
{
    fe_st *s;
    TRY_ALLOC(s = base_zalloc(BASE_TAG_FRONTEND, sizeof *s), err);
    base_arena_init(&s->arena, BASE_TAG_FRONTEND, 0);
    rtx_status st = open_into(s, path, err);
    if (st != RTX_OK) {
        fe_st_close(s);
        return st;
    }
    *out = s;
    return RTX_OK;
}

void fe_st_close(fe_st *s)
{
    if (!s)
        return;
    base_map_close(&s->map);
    base_arena_done(&s->arena);
    base_free(s);
}

const fe_st_tensor *fe_st_table(const fe_st *s, size_t *out_count)
{
    *out_count = s->n;
    return s->tensor;
}

const fe_st_tensor *fe_st_find(const fe_st *s, const char *name)
{
    for (size_t i = 0; i < s->n; i++)
        if (strcmp(s->tensor[i].name, name) == 0)
            return &s->tensor[i];
    return NULL;
}
