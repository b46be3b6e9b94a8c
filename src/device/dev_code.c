/* Loader of kernel code.
 *   layer    L2 device; may include base
 *   two ways anonymous memory, written, then switched to read-execute; where a policy forbids that switch (SELinux execmem,
 *            PaX), a sealed memory file mapped read-execute from the start */
#include "dev_code.h"
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#define PAGE_BYTES 4096u

static atomic_bool always_memfd;

void dev_code_use_memfd(bool always) { atomic_store(&always_memfd, always); }

static size_t page_up(size_t n) { return (n + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES; }

static rtx_status write_sealed(int fd, const uint8_t *bytes, size_t n, rtx_err *err)
{
    for (size_t at = 0; at < n;) {
        ssize_t put = write(fd, bytes + at, n - at);
        if (put < 0 && errno == EINTR)
            continue;
        if (put <= 0)
            return FAIL(err, NOMEM, "cannot fill a memory file of %zu bytes: %s", n,
                        strerror(errno));
        at += (size_t)put;
    }
    if (fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0)
        return FAIL(err, UNSUPPORTED, "cannot seal a memory file: %s", strerror(errno));
    return RTX_OK;
}

/* Replace the written pages of c by the same bytes from a sealed file. */
static rtx_status remap_sealed(dev_code *c, rtx_err *err)
{
    int fd = memfd_create("rtx-kernels", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0)
        return FAIL(err, UNSUPPORTED, "the system allows no executable memory: %s",
                    strerror(errno));
    rtx_status status = write_sealed(fd, c->base, c->bytes, err);
    if (status == RTX_OK) {
        void *at = mmap(NULL, c->bytes, PROT_READ | PROT_EXEC, MAP_SHARED, fd, 0);
        if (at == MAP_FAILED) {
            status = FAIL(err, UNSUPPORTED, "the system allows no executable memory: %s",
                          strerror(errno));
        } else {
            munmap(c->base, c->bytes);
            c->base = at;
        }
    }
    close(fd);
    return status;
}

static rtx_status make_executable(dev_code *c, rtx_err *err)
{
    if (!atomic_load(&always_memfd) && mprotect(c->base, c->bytes, PROT_READ | PROT_EXEC) == 0)
        return RTX_OK;
    return remap_sealed(c, err);
}

static rtx_status check_blobs(const dev_code *c, const dev_blob *blobs, size_t n, rtx_err *err)
{
    const uint8_t *at = c->base;
    for (size_t i = 0; i < n; i++) {
        base_sha256_sum sum = base_sha256_of(at, blobs[i].n_bytes);
        if (memcmp(sum.b, blobs[i].sha256, sizeof sum.b) != 0)
            return FAIL(err, CORRUPT, "code of kernel '%s': sum does not match", blobs[i].name);
        at += page_up(blobs[i].n_bytes);
    }
    return RTX_OK;
}

rtx_status dev_code_load(const dev_blob *blobs, size_t n, dev_code *out, const uint8_t **out_at,
                         rtx_err *err)
{
    dev_code c = {0};
    for (size_t i = 0; i < n; i++)
        c.bytes += page_up(blobs[i].n_bytes);
    if (c.bytes == 0) {
        *out = c;
        return RTX_OK;
    }
    void *pages = mmap(NULL, c.bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (pages == MAP_FAILED)
        return FAIL(err, NOMEM, "no memory for %zu bytes of kernel code: %s", c.bytes,
                    strerror(errno));
    c.base = pages;
    size_t at = 0;
    for (size_t i = 0; i < n; i++) {
        memcpy(c.base + at, blobs[i].bytes, blobs[i].n_bytes);
        at += page_up(blobs[i].n_bytes);
    }
    rtx_status status = make_executable(&c, err);
    if (status == RTX_OK)
        status = check_blobs(&c, blobs, n, err);
    if (status != RTX_OK) {
        dev_code_unload(&c);
        return status;
    }
    at = 0;
    for (size_t i = 0; i < n; i++) {
        out_at[i] = c.base + at;
        at += page_up(blobs[i].n_bytes);
    }
    *out = c;
    return RTX_OK;
}

void dev_code_unload(dev_code *c)
{
    if (c->base)
        munmap(c->base, c->bytes);
    *c = (dev_code){0};
}

void dev_code_perf_map(const uint8_t *at, size_t bytes, const char *name)
{
    if (base_env_int(BASE_ENV_PERF_MAP, 0, 1) == 0)
        return;
    char path[64];
    snprintf(path, sizeof path, "/tmp/perf-%ld.map", (long)getpid());
    int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | O_CLOEXEC, 0644);
    if (fd < 0)
        return;
    dprintf(fd, "%lx %zx rtx:%s\n", (unsigned long)(uintptr_t)at, bytes, name);
    close(fd);
}
