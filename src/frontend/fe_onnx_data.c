/* Tensors of an ONNX file as constants: raw, typed and external data, checked against the declared shape.
 * External data is opened component by component below the model's folder, never through a link. */
#include "fe_onnx.h"
#include <fcntl.h>
#include <limits.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- external files ---- */

static bool part_is(const char *p, size_t len, const char *text)
{
    return len == strlen(text) && memcmp(p, text, len) == 0;
}

/* An open regular file below folder_fd, or -1. */
static int open_below(int folder_fd, const char *path)
{
    int dir = dup(folder_fd);
    while (dir >= 0) {
        size_t len = strcspn(path, "/");
        char part[NAME_MAX + 1];
        if (part_is(path, len, ".") && path[len]) {
            path += len + 1;
            continue;
        }
        if (len == 0 || len > NAME_MAX || part_is(path, len, ".") || part_is(path, len, ".."))
            break;
        memcpy(part, path, len);
        part[len] = 0;
        bool last = path[len] == 0;
        int fd = openat(dir, part,
                        O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | (last ? 0 : O_DIRECTORY));
        close(dir);
        if (last || fd < 0)
            return fd;
        dir = fd;
        path += len + 1;
    }
    if (dir >= 0)
        close(dir);
    return -1;
}

static rtx_status map_external(fe_model *model, const char *location, fe_ext **out, rtx_err *err)
{
    for (fe_ext *e = model->external; e; e = e->next)
        if (strcmp(e->location, location) == 0) {
            *out = e;
            return RTX_OK;
        }
    if (model->folder_fd < 0)
        return FAIL(err, INVALID,
                    "external data '%.200s': a model given as bytes has no folder to read from",
                    location);
    int fd = open_below(model->folder_fd, location);
    if (fd < 0)
        return FAIL(
            err, INVALID,
            "external data '%.200s' is not a plain file inside the model's folder, reached without "
            "links; put it beside the model",
            location);
    struct stat st;
    void *p = MAP_FAILED;
    bool plain = fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_size > 0;
    if (plain)
        p = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    close(fd);
    if (p == MAP_FAILED)
        return FAIL(err, INVALID, "external data '%.200s' is empty or cannot be mapped", location);
    fe_ext *e = base_arena_alloc(&model->arena, sizeof *e);
    char *name = base_arena_strn(&model->arena, location, strlen(location));
    if (!e || !name) {
        munmap(p, (size_t)st.st_size);
        return FAIL(err, NOMEM, "out of memory");
    }
    *e = (fe_ext){model->external, name, p, (size_t)st.st_size};
    model->external = *out = e;
    return RTX_OK;
}

void fe_external_close(fe_model *model)
{
    for (fe_ext *e = model->external; e; e = e->next)
        munmap((void *)(uintptr_t)e->data, e->bytes);
    model->external = NULL;
    if (model->folder_fd >= 0)
        close(model->folder_fd);
    model->folder_fd = -1;
}

static bool parse_size(fe_span s, uint64_t *out)
{
    uint64_t v = 0;
    for (size_t i = 0; i < s.len; i++) {
        if (s.at[i] < '0' || s.at[i] > '9' || v > (UINT64_MAX - 9) / 10)
            return false;
        v = v * 10 + (uint64_t)(s.at[i] - '0');
    }
    *out = v;
    return s.len > 0;
}

static rtx_status external_bytes(fe_imp *m, const fe_pb_tensor *t, size_t want, const uint8_t **out,
                                 rtx_err *err)
{
    fe_span location = {0};
    uint64_t offset = 0, length = want;
    for (size_t i = 0; i < t->external.n; i++) {
        fe_pb_pair kv;
        TRY(fe_read_pair(t->external.at[i], &m->arena, &kv, err));
        if (fe_span_is(kv.key, "location"))
            location = kv.value;
        bool is_offset = fe_span_is(kv.key, "offset");
        if ((is_offset || fe_span_is(kv.key, "length")) &&
            !parse_size(kv.value, is_offset ? &offset : &length))
            return FAIL(err, CORRUPT,
                        "tensor '%.*s': external data offset or length is not a number",
                        FE_SHOW(t->name));
    }
    if (location.len == 0 || location.len > PATH_MAX || memchr(location.at, 0, location.len))
        return FAIL(err, CORRUPT, "tensor '%.*s': external data without a usable location",
                    FE_SHOW(t->name));
    char *path = base_arena_strn(&m->arena, (const char *)location.at, location.len);
    if (!path)
        return FAIL(err, NOMEM, "out of memory");
    fe_ext *e = NULL;
    TRY(map_external(m->model, path, &e, err));
    if (length != want || offset > e->bytes || e->bytes - offset < want)
        return FAIL(
            err, CORRUPT,
            "tensor '%.*s' needs %zu bytes, its external data '%.100s' gives %llu at %llu of %zu",
            FE_SHOW(t->name), want, path, (unsigned long long)length, (unsigned long long)offset,
            e->bytes);
    *out = e->data + offset;
    return RTX_OK;
}

/* ---- typed fields ---- */

static const fe_nums *typed_field(const fe_pb_tensor *t, fmt_dtype dt)
{
    switch (dt) {
    case FMT_F32:
        return &t->f32s;
    case FMT_F64:
        return &t->f64s;
    case FMT_I64:
        return &t->i64s;
    default:
        return &t->i32s; /* i32, bool, and the bits of half types */
    }
}

static rtx_status typed_bytes(fe_imp *m, const fe_pb_tensor *t, fmt_dtype dt, size_t elems,
                              const uint8_t **out, rtx_err *err)
{
    const fe_nums *nums = typed_field(t, dt);
    size_t each = fmt_dtype_bytes(dt);
    if (nums->elem_bytes == each && (*out = fe_nums_run(nums)) != NULL)
        return RTX_OK;
    uint8_t *p = base_arena_alloc(&m->model->arena, elems * each);
    if (!p)
        return FAIL(err, NOMEM, "out of memory for tensor '%.*s'", FE_SHOW(t->name));
    *out = p;
    fe_nums_at it = fe_nums_begin(nums);
    for (uint64_t bits; fe_nums_next(&it, &bits); p += each)
        memcpy(p, &bits, each); /* little-endian, as the file */
    return RTX_OK;
}

/* ---- values ---- */

static int64_t int_at(fmt_dtype t, const void *data, size_t i)
{
    const uint8_t *p = data;
    int64_t v64;
    int32_t v32;
    switch (t) {
    case FMT_I64:
        memcpy(&v64, p + 8 * i, 8);
        return v64;
    case FMT_I32:
        memcpy(&v32, p + 4 * i, 4);
        return v32;
    default:
        return p[i] != 0;
    }
}

static fmt_dim *content_of_data(fe_imp *m, fmt_dtype t, const void *data, size_t elems)
{
    if ((t != FMT_I64 && t != FMT_I32 && t != FMT_BOOL) || elems > FE_CONTENT_MAX)
        return NULL;
    fmt_dim *c = base_arena_array(&m->arena, elems + 1, sizeof *c);
    for (size_t i = 0; c && i < elems; i++) {
        int64_t v = int_at(t, data, i);
        if (v == INT64_MAX || v == INT64_MIN)
            v = v > 0 ? FMT_DIM_LIMIT : -FMT_DIM_LIMIT;
        else if (v >= FMT_DIM_LIMIT || v <= -FMT_DIM_LIMIT)
            return NULL;
        c[i] = fmt_dim_const(m->d, v);
    }
    return c;
}

/* Booleans of other writers may be any non-zero byte. */
static bool bools_are_clean(const uint8_t *p, size_t n)
{
    uint8_t any = 0;
    for (size_t i = 0; i < n; i++)
        any |= p[i];
    return any <= 1;
}

rtx_status fe_value_of_data(fe_imp *m, const ir_type *type, const void *data, size_t bytes,
                            bool borrow, fe_val *out, rtx_err *err)
{
    size_t each = fmt_dtype_bytes(type->dtype);
    out->type = *type;
    out->n = (uint32_t)MIN(bytes / each, UINT32_MAX);
    out->content = content_of_data(m, type->dtype, data, bytes / each);
    if (out->content)
        return RTX_OK; /* fe_id makes the node if anybody asks */
    if (type->dtype == FMT_BOOL && !bools_are_clean(data, bytes)) {
        uint8_t *clean = base_arena_alloc(&m->model->arena, bytes);
        if (!clean)
            return FAIL(err, NOMEM, "out of memory");
        for (size_t i = 0; i < bytes; i++)
            clean[i] = ((const uint8_t *)data)[i] != 0;
        data = clean;
    }
    /* large data stays in the file, which does not align it */
    out->id = borrow && bytes > 4096 ? ir_const_borrow(m->g, type, data, bytes)
                                     : ir_const_copy(m->g, type, bytes ? data : NULL, bytes);
    return ir_ok(m->g, err);
}

/* Shape of a tensor and its element count; 0 elements are legal. */
static rtx_status tensor_type(fe_imp *m, const fe_pb_tensor *t, const char *what, ir_type *type,
                              size_t *out_elems, rtx_err *err)
{
    if (t->dims.n > FMT_RANK_MAX)
        return FAIL(err, UNSUPPORTED, "%s '%.*s' has %zu axes; the limit is %d", what,
                    FE_SHOW(t->name), t->dims.n, FMT_RANK_MAX);
    size_t elems = 1;
    fe_nums_at it = fe_nums_begin(&t->dims);
    for (uint64_t v; fe_nums_next(&it, &v); type->rank++) {
        if ((int64_t)v < 0 || v > (uint64_t)FMT_DIM_LIMIT ||
            (v && elems > (size_t)FMT_DIM_LIMIT / v))
            return FAIL(err, CORRUPT, "%s '%.*s': axis %d has impossible size %lld", what,
                        FE_SHOW(t->name), type->rank, (long long)v);
        type->dim[type->rank] = fmt_dim_const(m->d, (int64_t)v);
        elems *= v;
    }
    *out_elems = elems;
    return fmt_dims_ok(m->d, err);
}

static bool in_raw(const fe_pb_tensor *t, size_t elems) { return t->has_raw || elems == 0; }

/* Data in the file is as much as the shape needs. */
static rtx_status data_fits(const fe_pb_tensor *t, const char *what, fmt_dtype dt, size_t elems,
                            rtx_err *err)
{
    size_t need = elems * fmt_dtype_bytes(dt);
    if (in_raw(t, elems))
        return t->raw.len == need
                   ? RTX_OK
                   : FAIL(err, CORRUPT,
                          "%s '%.*s': its shape needs %zu bytes, the file holds %zu" FE_ADVICE,
                          what, FE_SHOW(t->name), need, t->raw.len);
    size_t n = typed_field(t, dt)->n;
    return n == elems
               ? RTX_OK
               : FAIL(err, CORRUPT, "%s '%.*s': its shape has %zu elements, its data %zu" FE_ADVICE,
                      what, FE_SHOW(t->name), elems, n);
}

rtx_status fe_tensor_check(fe_imp *m, fe_span tensor, ir_type *out_type, rtx_err *err)
{
    fe_pb_tensor t;
    size_t elems = 0;
    TRY(fe_read_tensor(tensor, &m->arena, &t, err));
    *out_type = (ir_type){.dtype = fmt_dtype_of_onnx(t.dtype)};
    fmt_dtype dt = out_type->dtype;
    bool computed = fmt_dtype_class(dt) != 'N', sized = fmt_dtype_bytes(dt) > 0;
    if (t.dims.n > FMT_RANK_MAX) {
        out_type->dtype = FMT_NONE;
        return RTX_OK;
    }
    TRY(tensor_type(m, &t, "tensor", out_type, &elems, err));
    if (t.location != 0 || t.has_segment || !(computed || (sized && t.has_raw)))
        return RTX_OK;
    return data_fits(&t, "tensor", dt, elems, err);
}

rtx_status fe_tensor_value(fe_imp *m, fe_span tensor, const char *what, fe_val *out, rtx_err *err)
{
    fe_pb_tensor t;
    TRY(fe_read_tensor(tensor, &m->arena, &t, err));
    ir_type type = {.dtype = fmt_dtype_of_onnx(t.dtype)};
    if (fmt_dtype_class(type.dtype) == 'N')
        return FAIL(err, UNSUPPORTED, "%s '%.*s' has element type %s (ONNX code %lld)", what,
                    FE_SHOW(t.name), fmt_onnx_type_name(t.dtype), (long long)t.dtype);
    if (t.has_segment)
        return FAIL(err, UNSUPPORTED, "%s '%.*s' is stored in segments", what, FE_SHOW(t.name));
    size_t elems = 0, each = fmt_dtype_bytes(type.dtype);
    TRY(tensor_type(m, &t, what, &type, &elems, err));
    const uint8_t *data = (const uint8_t *)"";
    if (t.location != 0) {
        if (elems)
            TRY(external_bytes(m, &t, elems * each, &data, err));
    } else {
        TRY(data_fits(&t, what, type.dtype, elems, err));
        if (!in_raw(&t, elems))
            TRY(typed_bytes(m, &t, type.dtype, elems, &data, err));
        else
            data = elems ? t.raw.at : data;
    }
    return fe_value_of_data(m, &type, data, elems * each, true, out, err);
}
