/* Arena, growable bytes, and the reader of untrusted bytes.
 *   layer    L0 base
 *   threads  each object is used by one thread at a time */
#include "base_core.h"
#include <assert.h>
#include <stdio.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
               "files are little-endian and read in place");

/* ---- arena ---- */

#define ARENA_ALIGN     16
#define ARENA_BLOCK_MIN ((size_t)4 << 10)
#define ARENA_BLOCK_MAX ((size_t)1 << 20)

struct base_arena_block {
    _Alignas(ARENA_ALIGN) base_arena_block *next;
    size_t used, cap; /* bytes after this header */
};

/* Under ASan each object is its own heap block, so that an overrun hits a redzone and not a neighbour. */
#if defined(__SANITIZE_ADDRESS__)
#define ARENA_SEPARATE 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define ARENA_SEPARATE 1
#endif
#endif
#ifndef ARENA_SEPARATE
#define ARENA_SEPARATE 0
#endif

void base_arena_init(base_arena *a, base_tag tag, size_t max_bytes)
{
    *a = (base_arena){.tag = tag, .max_bytes = max_bytes};
}

void base_arena_done(base_arena *a)
{
    for (base_arena_block *b = a->head; b;) {
        base_arena_block *next = b->next;
        base_free(b);
        b = next;
    }
    *a = (base_arena){.tag = a->tag, .max_bytes = a->max_bytes};
}

/* Blocks double; an object larger than the next block gets a block of its own size. */
static base_arena_block *arena_grow(base_arena *a, size_t bytes)
{
    size_t cap = bytes;
    if (!ARENA_SEPARATE) {
        size_t step = a->head ? MIN(2 * a->head->cap, ARENA_BLOCK_MAX) : ARENA_BLOCK_MIN;
        cap = MAX(bytes, step);
    }
    if (cap > SIZE_MAX - sizeof(base_arena_block))
        return NULL;
    base_arena_block *b = base_alloc(a->tag, sizeof *b + cap);
    if (!b)
        return NULL;
    *b = (base_arena_block){.next = a->head, .cap = cap};
    a->head = b;
    return b;
}

static void *arena_fail(base_arena *a)
{
    a->failed = true;
    return NULL;
}

void *base_arena_alloc(base_arena *a, size_t bytes)
{
    if (bytes > SIZE_MAX / 2)
        return arena_fail(a);
    size_t rounded = (MAX(bytes, 1) + ARENA_ALIGN - 1) & ~(size_t)(ARENA_ALIGN - 1);
    if (a->max_bytes && rounded > a->max_bytes - a->used_bytes)
        return arena_fail(a);
    size_t take = ARENA_SEPARATE ? bytes : rounded;
    base_arena_block *b = a->head;
    if (ARENA_SEPARATE || !b || take > b->cap - b->used)
        b = arena_grow(a, take);
    if (!b)
        return arena_fail(a);
    void *p = (uint8_t *)(b + 1) + b->used;
    b->used += take;
    a->used_bytes += rounded;
    return memset(p, 0, bytes);
}

void *base_arena_array(base_arena *a, size_t count, size_t elem_bytes)
{
    size_t bytes;
    if (__builtin_mul_overflow(count, elem_bytes, &bytes))
        return arena_fail(a);
    return base_arena_alloc(a, bytes);
}

char *base_arena_strn(base_arena *a, const char *s, size_t len)
{
    if (len == SIZE_MAX)
        return arena_fail(a);
    char *copy = base_arena_alloc(a, len + 1);
    if (copy && len)
        memcpy(copy, s, len);
    return copy;
}

char *base_arena_printf(base_arena *a, const char *fmt, ...)
{
    va_list args, again;
    va_start(args, fmt);
    va_copy(again, args);
    int len = vsnprintf(NULL, 0, fmt, args);
    char *text = len < 0 ? arena_fail(a) : base_arena_alloc(a, (size_t)len + 1);
    if (text)
        vsnprintf(text, (size_t)len + 1, fmt, again);
    va_end(again);
    va_end(args);
    return text;
}

/* ---- buf ---- */

void base_buf_init(base_buf *b, base_tag tag, size_t max_bytes)
{
    *b = (base_buf){.tag = tag, .max = MIN(max_bytes, SIZE_MAX - 1)}; /* room for the NUL */
}

void base_buf_done(base_buf *b)
{
    base_free(b->data);
    base_buf_init(b, b->tag, b->max);
}

void base_auto_buf(base_buf *b) { base_buf_done(b); }

/* Room for extra more bytes and the NUL. cap counts bytes without the NUL. */
static bool buf_reserve(base_buf *b, size_t extra)
{
    if (b->failed)
        return false;
    if (extra > b->max - b->len) {
        b->failed = b->over_max = true;
        return false;
    }
    size_t need = b->len + extra;
    if (b->data && need <= b->cap)
        return true;
    size_t cap = MIN(MAX(need, MAX(b->cap + b->cap / 2, 64)), b->max);
    char *data = base_realloc(b->tag, b->data, cap + 1);
    if (!data) {
        b->failed = true;
        return false;
    }
    b->data = data;
    b->cap = cap;
    return true;
}

void base_buf_put(base_buf *b, const void *bytes, size_t len)
{
    if (!buf_reserve(b, len))
        return;
    if (len)
        memcpy(b->data + b->len, bytes, len);
    b->len += len;
    b->data[b->len] = '\0';
}

void base_buf_puts(base_buf *b, const char *s) { base_buf_put(b, s, strlen(s)); }

void base_buf_printf(base_buf *b, const char *fmt, ...)
{
    va_list args, again;
    va_start(args, fmt);
    va_copy(again, args);
    int len = vsnprintf(NULL, 0, fmt, args);
    if (len < 0)
        b->failed = true;
    else if (buf_reserve(b, (size_t)len)) {
        vsnprintf(b->data + b->len, (size_t)len + 1, fmt, again);
        b->len += (size_t)len;
    }
    va_end(again);
    va_end(args);
}

void base_buf_align(base_buf *b, size_t align)
{
    assert(align > 0);
    size_t pad = (align - b->len % align) % align;
    if (!buf_reserve(b, pad))
        return;
    memset(b->data + b->len, 0, pad + 1);
    b->len += pad;
}

rtx_status base_buf_ok(const base_buf *b, rtx_err *err)
{
    if (b->over_max)
        return FAIL(err, LIMIT, "text or data would exceed %zu bytes", b->max);
    if (b->failed)
        return FAIL(err, NOMEM, "out of memory after %zu bytes", b->len);
    return RTX_OK;
}

char *base_buf_take(base_buf *b, size_t *out_len)
{
    base_buf_put(b, "", 0); /* an empty buf still gives a string */
    char *data = NULL;
    if (!b->failed)
        data = TAKE(b->data);
    if (out_len)
        *out_len = data ? b->len : 0;
    base_buf_done(b);
    return data;
}

/* ---- reader ---- */

const uint8_t *base_reader_bytes(base_reader *r, size_t n)
{
    if (r->failed || n > base_reader_left(r)) {
        r->failed = true;
        return NULL;
    }
    const uint8_t *p = r->at;
    r->at += n;
    return p;
}

/* A failed read gives 0, so a parser may read a record whole and check failed once. */
#define READ_SCALAR(type, name)                                                                    \
    type base_reader_##name(base_reader *r)                                                        \
    {                                                                                              \
        type v = 0;                                                                                \
        const uint8_t *p = base_reader_bytes(r, sizeof v);                                         \
        if (p)                                                                                     \
            memcpy(&v, p, sizeof v);                                                               \
        return v;                                                                                  \
    }
READ_SCALAR(uint8_t, u8)
READ_SCALAR(uint16_t, u16)
READ_SCALAR(uint32_t, u32)
READ_SCALAR(uint64_t, u64)
READ_SCALAR(int64_t, i64)
