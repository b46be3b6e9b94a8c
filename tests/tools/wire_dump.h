/* Line format shared by the two dumps of an ONNX file that tests compare: our reader's and protobuf-c's. */
#ifndef WIRE_DUMP_H
#define WIRE_DUMP_H

#include <stdint.h>
#include <stdio.h>
#include <string.h>

/* Long bytes as a hash. Text is cut at its first NUL, as C strings are. */
static inline void dump_bytes(const char *label, const void *p, size_t n)
{
    uint64_t h = UINT64_C(14695981039346656037);
    for (size_t i = 0; i < n; i++)
        h = (h ^ ((const uint8_t *)p)[i]) * UINT64_C(1099511628211);
    printf(" %s=%zu:%016llx", label, n, (unsigned long long)h);
}

static inline void dump_text(const char *label, const void *p, size_t n)
{
    const void *nul = n ? memchr(p, 0, n) : NULL;
    dump_bytes(label, p, nul ? (size_t)((const char *)nul - (const char *)p) : n);
}

static inline void dump_int(const char *label, int64_t v)
{
    printf(" %s=%lld", label, (long long)v);
}

static inline uint64_t dump_bits(float f)
{
    uint32_t u;
    memcpy(&u, &f, 4);
    return u;
}

#endif
