/* Loader of kernel code: hashed bytes become executable memory, without a dynamic loader, a file or /proc.
 *   layer      L2 device; may include base, format
 *   owner      dev_code owns its mapping; blobs are only read during the load
 *   threads    a loaded dev_code is read-only and may be used from any thread
 *   safety     bytes are copied first and hashed where they will run, so that a file changed in between is noticed; memory is
 *              never writable and executable at once */
#ifndef DEV_CODE_H
#define DEV_CODE_H

#include "base_sys.h"

typedef struct dev_blob {
    const void *bytes;
    size_t n_bytes;
    const uint8_t *sha256; /* 32 bytes */
    const char *name;      /* for messages and profilers */
} dev_blob;

typedef struct dev_code {
    uint8_t *base;
    size_t bytes;
} dev_code;

/* Map n blobs, each at the start of a page; out_at[i] is the address of blob i. CORRUPT: a blob does not have its sum;
 * UNSUPPORTED: the system allows no executable memory; NOMEM. */
RTX_MUST_CHECK rtx_status dev_code_load(const dev_blob *blobs, size_t n, dev_code *out,
                                        const uint8_t **out_at, rtx_err *err);
void dev_code_unload(dev_code *c); /* zeroed allowed */

/* Append "address size name" of one function to /tmp/perf-PID.map if RTX_PERF_MAP is 1; failure to write is ignored. */
void dev_code_perf_map(const uint8_t *at, size_t bytes, const char *name);

/* For tests: take the way of systems that refuse to turn written memory executable. */
void dev_code_use_memfd(bool always);

#endif
