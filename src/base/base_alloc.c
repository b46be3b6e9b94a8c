/* Tagged allocation with counters and fault injection. The only file that calls the C heap.
 *   layer      L0 base
 *   layout     [64-byte header | caller's bytes]; the caller's end is the heap block's end, so that ASan sees overruns
 *   threads    any; counters are relaxed atomics, exact once the threads that allocate have been joined */
#include "base_core.h"
#include <assert.h>
#include <stdatomic.h>
#include <stdlib.h>

#define ALIGN_BYTES 64
#define MAGIC_LIVE  0x52545862u
#define MAGIC_FREE  0xdeadf5eeu

typedef struct header {
    _Alignas(ALIGN_BYTES) size_t bytes;
    uint32_t magic, tag;
} header;
_Static_assert(sizeof(header) == ALIGN_BYTES,
               "the caller's pointer keeps the alignment of the block");

static struct {
    _Alignas(64) atomic_size_t live_bytes;
    atomic_size_t peak_bytes;
} counters[BASE_TAG_COUNT];

#define NEVER UINT64_MAX
static atomic_uint_fast64_t alloc_count;
static atomic_uint_fast64_t fail_index = NEVER;

static header *header_of(void *p)
{
    header *h = (header *)p - 1;
    assert(h->magic == MAGIC_LIVE &&
           "not from base_alloc, or freed twice, or overwritten from below");
    return h;
}

static void count_up(base_tag tag, size_t bytes)
{
    size_t live =
        atomic_fetch_add_explicit(&counters[tag].live_bytes, bytes, memory_order_relaxed) + bytes;
    size_t peak = atomic_load_explicit(&counters[tag].peak_bytes, memory_order_relaxed);
    while (live > peak &&
           !atomic_compare_exchange_weak_explicit(&counters[tag].peak_bytes, &peak, live,
                                                  memory_order_relaxed, memory_order_relaxed))
        ;
}

void *base_alloc(base_tag tag, size_t bytes)
{
    uint64_t index = atomic_fetch_add_explicit(&alloc_count, 1, memory_order_relaxed);
    if (index == atomic_load_explicit(&fail_index, memory_order_relaxed))
        return NULL;
    if (bytes > PTRDIFF_MAX - sizeof(header))
        return NULL;
    void *block = NULL;
    if (posix_memalign(&block, ALIGN_BYTES, sizeof(header) + bytes) != 0)
        return NULL;
    header *h = block;
    *h = (header){.bytes = bytes, .magic = MAGIC_LIVE, .tag = (uint32_t)tag};
    count_up(tag, bytes);
    return h + 1;
}

void base_free(void *p)
{
    if (!p)
        return;
    header *h = header_of(p);
    atomic_fetch_sub_explicit(&counters[h->tag].live_bytes, h->bytes, memory_order_relaxed);
    h->magic = MAGIC_FREE;
    free(h);
}

/* The heap's own realloc does not keep the alignment, so a block moves by copy. */
void *base_realloc(base_tag tag, void *p, size_t bytes)
{
    void *fresh = base_alloc(tag, bytes);
    if (fresh && p) {
        memcpy(fresh, p, MIN(bytes, header_of(p)->bytes));
        base_free(p);
    }
    return fresh;
}

void *base_zalloc(base_tag tag, size_t bytes)
{
    void *p = base_alloc(tag, bytes);
    return p ? memset(p, 0, bytes) : NULL;
}

/* A product that overflows becomes a size that base_alloc refuses; it still counts as one allocation. */
static size_t array_bytes(size_t count, size_t elem_bytes)
{
    size_t bytes;
    return __builtin_mul_overflow(count, elem_bytes, &bytes) ? SIZE_MAX : bytes;
}

void *base_alloc_array(base_tag tag, size_t count, size_t elem_bytes)
{
    return base_alloc(tag, array_bytes(count, elem_bytes));
}

void *base_zalloc_array(base_tag tag, size_t count, size_t elem_bytes)
{
    return base_zalloc(tag, array_bytes(count, elem_bytes));
}

char *base_strdup(base_tag tag, const char *s)
{
    size_t bytes = strlen(s) + 1;
    char *copy = base_alloc(tag, bytes);
    return copy ? memcpy(copy, s, bytes) : NULL;
}

void base_auto_free(void *pp)
{
    void *p;
    memcpy(&p, pp,
           sizeof p); /* pp is a T ** of any T: reading it as void ** would break aliasing */
    base_free(p);
}

size_t base_alloc_live_bytes(base_tag tag)
{
    return atomic_load_explicit(&counters[tag].live_bytes, memory_order_relaxed);
}

size_t base_alloc_peak_bytes(base_tag tag)
{
    return atomic_load_explicit(&counters[tag].peak_bytes, memory_order_relaxed);
}

const char *base_tag_name(base_tag tag)
{
    static const char *const names[BASE_TAG_COUNT] = {
#define ROW(n) #n,
        BASE_TAG_TABLE(ROW)
#undef ROW
    };
    return (unsigned)tag < BASE_TAG_COUNT ? names[tag] : "UNKNOWN";
}

void base_alloc_fail_at(int64_t n)
{
    uint64_t now = atomic_load_explicit(&alloc_count, memory_order_relaxed);
    atomic_store_explicit(&fail_index, n < 0 ? NEVER : now + (uint64_t)n, memory_order_relaxed);
}

uint64_t base_alloc_count(void) { return atomic_load_explicit(&alloc_count, memory_order_relaxed); }
