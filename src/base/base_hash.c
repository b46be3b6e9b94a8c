/* SHA-256 from libcrypto's low-level calls and XXH3 inlined from its header.
 *   layer     L0 base
 *   why low   the EVP interface pulls 4 MB of provider code into librtx-run; these calls pull 35 KB. OpenSSL 3 marks
 *             them deprecated, so this is the one file that says it knows.
 *   no levels XXH3 at baseline SSE2 runs at 20–36 GB/s on one server core, about what memory feeds */
#define OPENSSL_SUPPRESS_DEPRECATED
#include "base_sys.h"
#include <openssl/sha.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

_Static_assert(sizeof(SHA256_CTX) <= sizeof(base_sha256), "base_sha256 has room for SHA256_CTX");
_Static_assert(_Alignof(SHA256_CTX) <= _Alignof(base_sha256), "and its alignment");

static SHA256_CTX *context(base_sha256 *h) { return (SHA256_CTX *)(void *)h->state; }

void base_sha256_init(base_sha256 *h) { SHA256_Init(context(h)); }

void base_sha256_add(base_sha256 *h, const void *p, size_t n)
{
    if (n)
        SHA256_Update(context(h), p, n);
}

base_sha256_sum base_sha256_end(base_sha256 *h)
{
    base_sha256_sum sum;
    SHA256_Final(sum.b, context(h));
    return sum;
}

base_sha256_sum base_sha256_of(const void *p, size_t n)
{
    base_sha256 h;
    base_sha256_init(&h);
    base_sha256_add(&h, p, n);
    return base_sha256_end(&h);
}

void base_hex(const uint8_t *b, size_t n, char *out_2n_plus_1)
{
    static const char digits[] = "0123456789abcdef";
    for (size_t i = 0; i < n; i++) {
        out_2n_plus_1[2 * i] = digits[b[i] >> 4];
        out_2n_plus_1[2 * i + 1] = digits[b[i] & 15];
    }
    out_2n_plus_1[2 * n] = '\0';
}

uint64_t base_xxh3(const void *p, size_t n) { return XXH3_64bits(p, n); }
