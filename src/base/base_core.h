/* Status helpers, tagged allocation with fault injection, arena, growable bytes: what every file needs.
 *   layer        L0 base; may include rtx/status.h and the C library only
 *   owner        base_alloc memory belongs to the caller until base_free; arena memory dies with its arena
 *   threads      base_alloc/base_free from any thread; arena and buf are used by one thread at a time
 *   invariant    malloc, calloc, realloc and free are called in base_alloc.c and nowhere else */
#ifndef BASE_CORE_H
#define BASE_CORE_H

#include "rtx/status.h"
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define COUNT_OF(a) (sizeof(a) / sizeof((a)[0]))
#define MIN(a, b)   ((a) < (b) ? (a) : (b))
#define MAX(a, b)   ((a) > (b) ? (a) : (b))

/* ---- status ---- */

/* Fill err (NULL allowed) and return code, so that a failing function ends with `return FAIL(err, INVALID, "…")`. */
rtx_status base_fail(rtx_err *err, rtx_status code, const char *file, int line, const char *fmt,
                     ...) RTX_PRINTF(5, 6);
#define FAIL(err, code, ...) base_fail((err), RTX_##code, __FILE__, __LINE__, __VA_ARGS__)

/* Return from the enclosing function if a call did not give RTX_OK; the callee has filled err. */
#define TRY(call)                                                                                  \
    do {                                                                                           \
        rtx_status try_status_ = (call);                                                           \
        if (try_status_ != RTX_OK)                                                                 \
            return try_status_;                                                                    \
    } while (0)

/* The same with one return for a failed allocation: `TRY_ALLOC(p = base_alloc(…), err)`. */
#define TRY_ALLOC(assignment, err)                                                                 \
    do {                                                                                           \
        if ((assignment) == NULL)                                                                  \
            return FAIL((err), NOMEM, "out of memory");                                            \
    } while (0)

/* ---- allocation ---- */

/* One tag a module: shown in metrics, counted apart. */
#define BASE_TAG_TABLE(X)                                                                          \
    X(BASE) X(FORMAT) X(IR) X(FRONTEND) X(PASSES) X(SYNTH) X(TUNE) X(RUN) X(DEVICE) X(CLI)
typedef enum base_tag {
#define BASE_TAG_ROW(n) BASE_TAG_##n,
    BASE_TAG_TABLE(BASE_TAG_ROW)
#undef BASE_TAG_ROW
        BASE_TAG_COUNT
} base_tag;

/* 64-byte aligned memory, or NULL. bytes == 0 gives a valid pointer. zalloc clears it; array forms check the product. */
void *base_alloc(base_tag tag, size_t bytes);
void *base_zalloc(base_tag tag, size_t bytes);
void *base_alloc_array(base_tag tag, size_t count, size_t elem_bytes);
void *base_zalloc_array(base_tag tag, size_t count, size_t elem_bytes);
/* Grow or shrink, keeping content; on failure NULL and the old block stays valid. p == NULL allocates. */
void *base_realloc(base_tag tag, void *p, size_t bytes);
void base_free(void *p); /* NULL allowed */
char *base_strdup(base_tag tag, const char *s);

/* Live and highest bytes of one tag, as asked for by callers. */
size_t base_alloc_live_bytes(base_tag tag);
size_t base_alloc_peak_bytes(base_tag tag);
const char *base_tag_name(base_tag tag);
/* Fault injection for tests: the n-th allocation from now (0 = the next) fails once, all later ones work. -1 turns it off.
 * base_alloc_count gives the number of allocations so far, so that a test can walk through all of them. */
void base_alloc_fail_at(int64_t n);
uint64_t base_alloc_count(void);

/* Scope-bound cleanup: AUTO_FREE void *p = NULL;  TAKE(p) hands the pointer on and disarms the cleanup. */
void base_auto_free(void *pp);
#define AUTO_FREE __attribute__((cleanup(base_auto_free)))
#define TAKE(p)                                                                                    \
    __extension__({                                                                                \
        __typeof__(p) take_ = (p);                                                                 \
        (p) = NULL;                                                                                \
        take_;                                                                                     \
    })

/* ---- arena: many small objects with one end ---- */

typedef struct base_arena_block base_arena_block;
typedef struct base_arena {
    base_arena_block *head;
    base_tag tag;
    size_t used_bytes, max_bytes; /* max_bytes 0 = no cap */
    bool failed; /* an allocation failed since init: checked once at the end of a job */
} base_arena;

void base_arena_init(base_arena *a, base_tag tag, size_t max_bytes);
void base_arena_done(base_arena *a); /* frees everything; the arena may be used again after init */
/* 16-byte aligned, zeroed; NULL on failure or past max_bytes. */
void *base_arena_alloc(base_arena *a, size_t bytes);
void *base_arena_array(base_arena *a, size_t count, size_t elem_bytes);
char *base_arena_strn(base_arena *a, const char *s, size_t len); /* NUL-terminated copy */
char *base_arena_printf(base_arena *a, const char *fmt, ...) RTX_PRINTF(2, 3);

/* ---- buf: growable bytes or text, capped at birth ---- */

typedef struct base_buf {
    char *data; /* NUL-terminated whenever data != NULL */
    size_t len, cap, max;
    base_tag tag;
    bool failed;   /* sticky: later appends do nothing; check once with base_buf_ok */
    bool over_max; /* the failure was the cap, not memory */
} base_buf;

/* max_bytes is a hard cap on len, the closing NUL not counted; 0 allows nothing, SIZE_MAX everything. */
void base_buf_init(base_buf *b, base_tag tag, size_t max_bytes);
void base_buf_done(base_buf *b);
void base_buf_put(base_buf *b, const void *bytes, size_t len);
void base_buf_puts(base_buf *b, const char *s);
void base_buf_printf(base_buf *b, const char *fmt, ...) RTX_PRINTF(2, 3);
void base_buf_align(base_buf *b, size_t align); /* zero bytes up to a multiple */
static inline void base_buf_u32(base_buf *b, uint32_t v) { base_buf_put(b, &v, 4); }
static inline void base_buf_u64(base_buf *b, uint64_t v) { base_buf_put(b, &v, 8); }
static inline void base_buf_i64(base_buf *b, int64_t v) { base_buf_put(b, &v, 8); }
rtx_status base_buf_ok(const base_buf *b, rtx_err *err); /* NOMEM or LIMIT if any append failed */
/* Caller frees with base_free; buf is empty after. NULL if an append failed. out_len may be NULL. */
char *base_buf_take(base_buf *b, size_t *out_len);
void base_auto_buf(base_buf *b);
#define AUTO_BUF __attribute__((cleanup(base_auto_buf)))

/* ---- text from untrusted files (base_text.c) ---- */

/* Bytes of the well-formed UTF-8 character at s; 0 if there is none, or none whole. */
size_t base_utf8_size(const char *s, size_t left);
bool base_utf8_ok(const char *s, size_t len);
/* Control bytes could break a line or drive a terminal: they become spaces. */
static inline char base_printable(char c) { return (unsigned char)c < 0x20 || c == 0x7f ? ' ' : c; }
void base_make_printable(char *text);

/* ---- reading untrusted bytes: bounds by subtraction, sticky failure ---- */

typedef struct base_reader {
    const uint8_t *at, *end;
    bool failed;
} base_reader;

static inline base_reader base_reader_of(const void *p, size_t n)
{
    const uint8_t *at = p ? (const uint8_t *)p : (const uint8_t *)""; /* no NULL + 0 */
    return (base_reader){at, at + n, false};
}
static inline size_t base_reader_left(const base_reader *r) { return (size_t)(r->end - r->at); }
/* Borrow n bytes, or NULL and failed. */
const uint8_t *base_reader_bytes(base_reader *r, size_t n);
uint8_t base_reader_u8(base_reader *r);
uint16_t base_reader_u16(base_reader *r);
uint32_t base_reader_u32(base_reader *r);
uint64_t base_reader_u64(base_reader *r);
int64_t base_reader_i64(base_reader *r);

#endif
