/* The operating system seen by the rest: hashes, files, time, environment table, log, thread pool.
 *   layer      L0 base; may include base_core.h
 *   owner      noted per function
 *   threads    all functions are thread-safe unless they say otherwise */
#ifndef BASE_SYS_H
#define BASE_SYS_H

#include "base_core.h"
#include <stdatomic.h>
#include <stdio.h>

/* ---- hashes (base_hash.c) ---- */
typedef struct base_sha256_sum {
    uint8_t b[32];
} base_sha256_sum;
typedef struct base_sha256 {
    _Alignas(8) uint8_t state[128];
} base_sha256; /* libcrypto's SHA256_CTX inside */
void base_sha256_init(base_sha256 *h);
void base_sha256_add(base_sha256 *h, const void *p, size_t n);
base_sha256_sum base_sha256_end(base_sha256 *h);
base_sha256_sum base_sha256_of(const void *p, size_t n);
void base_hex(const uint8_t *b, size_t n, char *out_2n_plus_1);
uint64_t base_xxh3(const void *p, size_t n); /* XXH3-64, seed 0 */

/* ---- time ---- */
uint64_t base_now_ns(void); /* CLOCK_MONOTONIC */
void base_sleep_ns(uint64_t ns);

/* ---- stopping (base_file.c): one wish for the whole process; long work asks between its steps ---- */
extern atomic_int base_cancelled;                   /* 1 = stop; a signal handler may set it */
RTX_MUST_CHECK rtx_status base_go_on(rtx_err *err); /* CANCELLED once somebody asked to stop */

/* ---- files (base_file.c) ---- */
typedef struct base_map {
    const uint8_t *data;
    size_t bytes;
    int64_t mtime_ns;
    uint64_t inode;
    int fd;
} base_map;
/* Map a regular file read-only (fd kept open to detect later change). An empty file maps to data != NULL, bytes 0.
 * NOT_FOUND (no file), INVALID (folder or device), IO. Messages name the path. */
RTX_MUST_CHECK rtx_status base_map_open(const char *path, base_map *out, rtx_err *err);
void base_map_close(base_map *m); /* zeroed maps allowed */
/* The whole pages inside these bytes of the map are not needed for now: they leave this process, and come back when touched. */
void base_map_forget(const base_map *m, const void *at, size_t bytes);
/* True if size or mtime of the open file changed since base_map_open. */
bool base_map_changed(const base_map *m);
/* Whole file into fresh memory (base_free), at most max_bytes (LIMIT); "-" reads stdin. */
RTX_MUST_CHECK rtx_status base_read_file(const char *path, size_t max_bytes, char **out_data,
                                         size_t *out_bytes, rtx_err *err);
/* Publish atomically: exclusive temp in the same folder, write, fsync, rename, fsync folder. Nothing half-written is left.
 * A link is followed to the file that it stands for, one to nothing is NOT_FOUND; a file that is replaced hands on its permissions. */
typedef struct base_part {
    const void *data;
    size_t bytes;
} base_part;
RTX_MUST_CHECK rtx_status base_publish(const char *path, const base_part *parts, size_t n_parts,
                                       rtx_err *err);
/* Before the work: can a file be published there? LIMIT: the path or name is longer than the system takes. */
RTX_MUST_CHECK rtx_status base_publish_check(const char *path, rtx_err *err);
/* With parents; mode 0700 for what is created. */
RTX_MUST_CHECK rtx_status base_mkdirs(const char *path, rtx_err *err);

/* ---- environment: one table, nothing else calls getenv (base_env.c, base_env.def) ---- */
typedef enum base_env_id {
#define ENV(id, name, default_text, code, doc) BASE_ENV_##id,
#include "base_env.def"
#undef ENV
    BASE_ENV_COUNT
} base_env_id;
/* Text of a knob, or its default ("" when it has none). Borrowed; valid until the process changes its environment. */
const char *base_env(base_env_id id);
bool base_env_is_set(base_env_id id); /* set in the environment, even if to nothing */
/* Clamped; the default when unset or not a number. */
int64_t base_env_int(base_env_id id, int64_t lo, int64_t hi);
typedef struct base_env_row {
    const char *name, *default_text, *doc;
    bool changes_code;
} base_env_row;
const base_env_row *base_env_table(size_t *out_count);

/* ---- log: warnings and debug text of the library go to one callback, never to a stream by themselves ---- */
/* Level 0 is a warning, 1…7 debug text, which RTX_DEBUG lets through up to its level. */
typedef void (*base_log_fn)(void *user, int level, const char *line);
void base_log_set(base_log_fn fn, void *user); /* NULL = silent (default) */
void base_log(int level, const char *fmt, ...) RTX_PRINTF(2, 3);
#define base_warn(...) base_log(0, __VA_ARGS__)

/* ---- processors and the one thread pool of the process (base_pool.c) ---- */
#define BASE_POOL_MAX 256 /* parties of one run, the caller included */

/* CPUs this process may use: affinity mask and cgroup v2/v1 quota, rounded down, at least 1. Reads files. */
int base_cpu_count(void);
/* False if the system never gives large pages to those who ask; true where it does not say. */
bool base_huge_pages(void);

/* Run fn(ctx, t, n) for t = 0…n-1 at once: t = 0 on the caller, others on pool workers, each on a thread of its own.
 * n may exceed the CPU count. Returns when all are done. Workers spin a bounded time after a run, then park.
 * Calls from several threads at once are serialised, except n == 1, which runs on the caller without waiting.
 * Workers block all signals but those raised by faults. In a forked child the pool starts anew.
 * INVALID: n outside 1…BASE_POOL_MAX, or n > 1 from inside fn. LIMIT: the system gives no more threads. */
typedef void (*base_pool_fn)(void *ctx, int t, int n);
RTX_MUST_CHECK rtx_status base_pool_run(int n, base_pool_fn fn, void *ctx, rtx_err *err);

/* Joins all parties of a run (bounded spin, then futex). Lives outside the run that uses it; reusable at once. */
typedef struct base_barrier {
    _Alignas(64) _Atomic uint32_t arrived;
    _Alignas(64) _Atomic uint32_t phase; /* bit 0: someone sleeps */
    uint32_t parties, spin_ns;
} base_barrier;
void base_barrier_init(base_barrier *b, uint32_t parties);
void base_barrier_wait(base_barrier *b);

/* Units of a step, handed out to the parties of a run. Each party begins with a part of its own, the same one in each run,
 * which it takes in pieces; then it helps others with what they have left, so that one that is slower or interrupted holds
 * nobody up longer than a piece takes. One base_share a party, all zero before the step. */
typedef struct base_share {
    _Alignas(64) _Atomic int64_t taken;
} base_share;
/* Next piece [*begin, *end) of party t < parties; false = nothing is left to begin, though others may still be at work. */
bool base_share_take(base_share *shares, int t, int parties, int64_t units, int64_t *begin,
                     int64_t *end);
void base_share_reset(base_share *share); /* when no party takes from it any more */

/* Text of the kernel's control files, apart from reading them so that tests need no cgroup. Quotas count thousandths
 * of a CPU; 0 = no limit or not understood. */
int64_t base_cgroup_cpu_max(const char *text);                    /* v2: cpu.max */
int64_t base_cgroup_quota(const char *quota, const char *period); /* v1: cpu.cfs_…_us */
/* Path of this process in /proc/self/cgroup text; controller "" asks for v2. False if absent or longer than cap. */
bool base_cgroup_path(const char *text, const char *controller, char *out, size_t cap);

#endif
