/* Results on disk: plan (the pick), meas (its evidence), bin (code), bad (rejected candidates). docs/adr/0005.
 *   layout     ROOT/v<schema>/<environment>/{plan,meas,bin,bad}/NAME, ROOT/v<schema>/{tmp,quarantine}/
 *   entry      header, key text, compiler text, payload; NAME is a hash of the key's identity, so an entry whose other
 *              fields differ is found and can say which field it was
 *   trouble    a damaged entry is a miss and moves to quarantine; a folder that cannot be used is one warning */
#include "tun_int.h"
#include "dev_cpu.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define MAGIC      "rtxcach1"
#define ENTRY_MAX  ((size_t)64 << 20)
#define KEEP_BAD   64 /* files kept in quarantine */
#define REPRO      ".repro"
#define TMP_OLD_S  3600
#define GC_DEFAULT ((uint64_t)512 << 20)

static const char *const kind_names[TUN_KINDS] = {"plan", "meas", "bin", "bad"};

typedef struct entry_head {
    char magic[8];
    uint32_t schema, kind;
    uint64_t key_bytes, compiler_bytes, payload_bytes;
    uint8_t sha256[32]; /* over this header with zeros here, then everything after it */
} entry_head;

/* ---- keys ---- */

void tun_key_init(tun_key *k)
{
    memset(k, 0, sizeof *k);
    base_buf_init(&k->text, BASE_TAG_TUNE, (size_t)4 << 20);
}

void tun_key_done(tun_key *k) { base_buf_done(&k->text); }

void tun_key_add(tun_key *k, const char *name, const char *value)
{
    base_buf_puts(&k->text, name);
    base_buf_put(&k->text, "=", 1);
    for (const char *c = value; *c; c++) /* one line a field, whatever the value holds */
        base_buf_put(&k->text, *c == '\n' ? "\v" : c, 1);
    base_buf_put(&k->text, "\n", 1);
}

void tun_key_mark_identity(tun_key *k) { k->identity = k->text.len; }

/* Name of the first field whose line differs. */
static void first_difference(const char *a, size_t a_len, const char *b, size_t b_len, char *why,
                             size_t cap)
{
    size_t line = 0, i = 0;
    while (i < a_len && i < b_len && a[i] == b[i]) {
        if (a[i] == '\n')
            line = i + 1;
        i++;
    }
    const char *from = i < a_len ? a + line : b + line;
    size_t left = (i < a_len ? a_len : b_len) - line;
    size_t n = 0;
    while (n < left && from[n] != '=' && from[n] != '\n')
        n++;
    snprintf(why, cap, "miss: %.*s differs", (int)MIN(n, (size_t)40), from);
}

/* ---- one entry ---- */

static base_sha256_sum entry_sum(const entry_head *h, const base_part *parts, size_t n)
{
    entry_head zero = *h;
    memset(zero.sha256, 0, sizeof zero.sha256);
    base_sha256 sum;
    base_sha256_init(&sum);
    base_sha256_add(&sum, &zero, sizeof zero);
    for (size_t i = 0; i < n; i++)
        base_sha256_add(&sum, parts[i].data, parts[i].bytes);
    return base_sha256_end(&sum);
}

rtx_status tun_entry_check(const void *data, size_t bytes, const tun_key *k,
                           const char **out_payload, size_t *out_bytes, char *why, size_t cap)
{
    entry_head h;
    if (cap)
        snprintf(why, cap, "miss: damaged entry");
    if (bytes < sizeof h)
        return RTX_CORRUPT;
    memcpy(&h, data, sizeof h);
    size_t left = bytes - sizeof h;
    if (memcmp(h.magic, MAGIC, 8) != 0 || h.schema != TUN_SCHEMA || h.kind >= TUN_KINDS ||
        h.key_bytes > left || h.compiler_bytes > left - h.key_bytes ||
        h.payload_bytes != left - h.key_bytes - h.compiler_bytes)
        return RTX_CORRUPT;
    const char *key = (const char *)data + sizeof h, *compiler = key + h.key_bytes;
    base_part rest = {key, left};
    if (memcmp(entry_sum(&h, &rest, 1).b, h.sha256, 32) != 0)
        return RTX_CORRUPT;
    if (k && (h.key_bytes != k->text.len || memcmp(key, k->text.data, k->text.len) != 0)) {
        first_difference(key, h.key_bytes, k->text.data, k->text.len, why, cap);
        return RTX_NOT_FOUND;
    }
    size_t cc = k ? strlen(k->compiler) : 0;
    if (cc && (cc != h.compiler_bytes || memcmp(compiler, k->compiler, cc) != 0)) {
        snprintf(why, cap, "miss: compiler differs");
        return RTX_NOT_FOUND;
    }
    *out_payload = compiler + h.compiler_bytes;
    *out_bytes = h.payload_bytes;
    return RTX_OK;
}

/* ---- places ---- */

static void entry_name(const tun_key *k, char hex[33])
{
    base_hex(base_sha256_of(k->text.data, k->identity ? k->identity : k->text.len).b, 16, hex);
}

static void name_path(const tun_cache *c, tun_kind kind, const char *name, const char *suffix,
                      char *out, size_t cap)
{
    snprintf(out, cap, "%s/v%d/%s/%s/%s%s", c->root, TUN_SCHEMA, c->env, kind_names[kind], name,
             suffix);
}

static void entry_path(const tun_cache *c, tun_kind kind, const tun_key *k, char *out, size_t cap)
{
    char name[33];
    entry_name(k, name);
    name_path(c, kind, name, "", out, cap);
}

/* Repro files lie beside entries and are none. */
static bool is_repro(const char *path)
{
    size_t n = strlen(path), m = strlen(REPRO);
    return n > m && strcmp(path + n - m, REPRO) == 0;
}

static void set_env(tun_cache *c, const char *cpu)
{
    char hex[17];
    base_hex(base_sha256_of(cpu, strlen(cpu)).b, 8, hex);
    snprintf(c->env, sizeof c->env, "%s", hex);
}

static void warn_once(tun_cache *c, const char *what, const char *path)
{
    if (!c->warned && !c->quiet)
        base_warn("cache %s: %s (%s); going on without it", c->root, what, path);
    c->warned = true;
    c->on = false;
}

/* Move a damaged entry (or a folder in its place) out of the way. */
static void quarantine(tun_cache *c, const char *path)
{
    static uint32_t serial;
    char to[640];
    const char *name = strrchr(path, '/');
    if (!c->warned && !c->quiet)
        base_warn("cache %s: damaged entries are set aside and made anew (%s)", c->root, path);
    c->warned = true;
    snprintf(to, sizeof to, "%s/v%d/quarantine/%s.%d.%u", c->root, TUN_SCHEMA,
             name ? name + 1 : path, (int)getpid(), serial++);
    if (c->quarantined >= KEEP_BAD || rename(path, to) != 0)
        if (unlink(path) != 0)
            rmdir(path);
    c->quarantined++;
}

/* Default folder; false if there is no home either. */
static bool default_root(char *out, size_t cap)
{
    const char *own = base_env(BASE_ENV_CACHE), *xdg = base_env(BASE_ENV_XDG_CACHE_HOME),
               *home = base_env(BASE_ENV_HOME);
    int n = *own          ? snprintf(out, cap, "%s", own)
            : *xdg == '/' ? snprintf(out, cap, "%s/rtx", xdg)
            : *home       ? snprintf(out, cap, "%s/.cache/rtx", home)
                          : -1;
    return n > 0 && (size_t)n < cap;
}

static bool set_root(tun_cache *c, const char *folder)
{
    if (folder && *folder)
        return (size_t)snprintf(c->root, sizeof c->root, "%s", folder) < sizeof c->root;
    return !folder && default_root(c->root, sizeof c->root);
}

/* A folder of ours that nobody else may write. */
static bool folder_ok(tun_cache *c, const char *path)
{
    struct stat st;
    if (base_mkdirs(path, NULL) != RTX_OK || stat(path, &st) != 0)
        return warn_once(c, "cannot be made", path), false;
    if (!S_ISDIR(st.st_mode))
        return warn_once(c, "is no folder", path), false;
    if (st.st_uid != geteuid())
        return warn_once(c, "belongs to another user", path), false;
    if (st.st_mode & S_IWOTH)
        return warn_once(c, "may be written by anybody", path), false;
    if (access(path, W_OK | X_OK) != 0)
        return warn_once(c, "cannot be written", path), false;
    return true;
}

static void open_folders(tun_cache *c, const char *folder, const char *cpu)
{
    if (!set_root(c, folder))
        return;
    c->on = true;
    char path[600];
    set_env(c, cpu);
    if (!folder_ok(c, c->root))
        return;
    snprintf(path, sizeof path, "%s/v%d/tmp", c->root, TUN_SCHEMA);
    if (!folder_ok(c, path))
        return;
    snprintf(path, sizeof path, "%s/v%d/quarantine", c->root, TUN_SCHEMA);
    if (!folder_ok(c, path))
        return;
    for (int k = 0; c->on && k < TUN_KINDS; k++) {
        snprintf(path, sizeof path, "%s/v%d/%s/%s", c->root, TUN_SCHEMA, c->env, kind_names[k]);
        folder_ok(c, path);
    }
}

void tun_cache_open(tun_cache *c, const char *folder, const char *cpu)
{
    memset(c, 0, sizeof *c);
    open_folders(c, folder, cpu);
}

void tun_cache_open_quiet(tun_cache *c, const char *folder, const char *cpu)
{
    *c = (tun_cache){.quiet = true};
    open_folders(c, folder, cpu);
}

/* ---- get and put ---- */

bool tun_cache_get(tun_cache *c, tun_kind kind, const tun_key *k, char **out, size_t *out_bytes,
                   char *why, size_t cap)
{
    char path[600], reason[64] = "miss";
    bool hit = false;
    if (c->on && base_buf_ok(&k->text, NULL) == RTX_OK) {
        entry_path(c, kind, k, path, sizeof path);
        AUTO_FREE char *data = NULL;
        size_t bytes = 0, n = 0;
        const char *payload;
        rtx_status s = base_read_file(path, ENTRY_MAX, &data, &bytes, NULL);
        if (s == RTX_OK)
            s = tun_entry_check(data, bytes, k, &payload, &n, reason, sizeof reason);
        if (s == RTX_CORRUPT || s == RTX_INVALID || s == RTX_LIMIT || s == RTX_IO)
            quarantine(c, path);
        if (s == RTX_OK && (*out = base_alloc(BASE_TAG_TUNE, n + 1)) != NULL) {
            memcpy(*out, payload, n);
            (*out)[n] = 0; /* text payloads read as strings */
            *out_bytes = n;
            hit = true;
        }
    }
    if (why)
        snprintf(why, cap, "%s", hit ? "hit" : reason);
    return hit;
}

static bool write_all(int fd, const void *p, size_t n)
{
    for (const char *at = p; n > 0;) {
        ssize_t put = write(fd, at, n);
        if (put < 0 && errno == EINTR)
            continue;
        if (put <= 0)
            return false;
        at += put;
        n -= (size_t)put;
    }
    return true;
}

/* A file no one else has open, whole before it gets its name. Only plans are worth waiting for the disk: after a power
 * loss a hole in another entry is a miss by its hash. */
static bool publish(const tun_cache *c, const char *path, const base_part *parts, size_t n,
                    bool sync)
{
    static uint32_t serial;
    char tmp[600];
    snprintf(tmp, sizeof tmp, "%s/v%d/tmp/%d.%u.%llx", c->root, TUN_SCHEMA, (int)getpid(), serial++,
             (unsigned long long)base_now_ns());
    int fd = open(tmp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0)
        return false;
    bool ok = true;
    for (size_t i = 0; ok && i < n; i++)
        ok = write_all(fd, parts[i].data, parts[i].bytes);
    if (sync && ok)
        ok = fdatasync(fd) == 0;
    if (close(fd) != 0)
        ok = false;
    if (ok && rename(tmp, path) != 0)
        ok = false;
    int e = errno;
    if (!ok)
        unlink(tmp);
    errno = e;
    return ok;
}

rtx_status tun_cache_put(tun_cache *c, tun_kind kind, const tun_key *k, const void *data,
                         size_t bytes, const tun_origin *origin)
{
    if (!origin || !origin->real_clock || !origin->real_device)
        return RTX_INVALID;
    if (!c->on || base_buf_ok(&k->text, NULL) != RTX_OK)
        return RTX_OK;
    entry_head h = {.magic = MAGIC,
                    .schema = TUN_SCHEMA,
                    .kind = (uint32_t)kind,
                    .key_bytes = k->text.len,
                    .compiler_bytes = strlen(k->compiler),
                    .payload_bytes = bytes};
    base_part parts[] = {{&h, sizeof h},
                         {k->text.data, k->text.len},
                         {k->compiler, strlen(k->compiler)},
                         {data, bytes}};
    base_sha256_sum sum = entry_sum(&h, parts + 1, 3);
    memcpy(h.sha256, sum.b, 32);
    char path[600];
    entry_path(c, kind, k, path, sizeof path);
    bool ok = publish(c, path, parts, COUNT_OF(parts), kind == TUN_PLAN);
    if (!ok && (errno == EISDIR || errno == ENOTEMPTY || errno == EEXIST)) {
        quarantine(c, path);
        ok = publish(c, path, parts, COUNT_OF(parts), kind == TUN_PLAN);
    }
    if (ok)
        c->written++;
    else
        warn_once(c, strerror(errno), path);
    return RTX_OK;
}

bool tun_cache_put_repro(tun_cache *c, tun_kind kind, const tun_key *k, const base_buf *text,
                         const tun_origin *origin, char *out_name)
{
    char path[600];
    if (!origin->real_clock || !origin->real_device || !c->on ||
        base_buf_ok(&k->text, NULL) != RTX_OK)
        return false;
    entry_name(k, out_name);
    name_path(c, kind, out_name, REPRO, path, sizeof path);
    return publish(c, path, &(base_part){text->data, text->len}, 1, false);
}

/* ---- housekeeping ---- */

typedef struct found {
    char *path;
    uint64_t bytes;
    int64_t mtime;
} found;

typedef struct visit {
    tun_cache_stat *stat;
    bool check, remove_bad, list;
    tun_cache_bad *bad;
    void *ctx;
    found *files;
    size_t n, cap;
    rtx_status status;
} visit;

static bool entry_whole(const char *path)
{
    AUTO_FREE char *data = NULL;
    size_t bytes = 0, n = 0;
    const char *payload;
    char why[64];
    return base_read_file(path, ENTRY_MAX, &data, &bytes, NULL) == RTX_OK &&
           tun_entry_check(data, bytes, NULL, &payload, &n, why, sizeof why) == RTX_OK;
}

static void remember(visit *v, const char *path, const struct stat *st)
{
    if (v->n == v->cap) {
        size_t cap = MAX(v->cap * 2, 256);
        found *grown = base_realloc(BASE_TAG_TUNE, v->files, cap * sizeof *grown);
        if (!grown) {
            v->status = RTX_NOMEM;
            return;
        }
        v->files = grown;
        v->cap = cap;
    }
    v->files[v->n] =
        (found){base_strdup(BASE_TAG_TUNE, path), (uint64_t)st->st_size, (int64_t)st->st_mtime};
    if (v->files[v->n].path)
        v->n++;
}

static void visit_file(visit *v, const char *path, const struct stat *st)
{
    bool repro = is_repro(path) && S_ISREG(st->st_mode);
    v->stat->entries += !repro;
    v->stat->bytes += (uint64_t)st->st_size;
    if (v->check && !repro && (!S_ISREG(st->st_mode) || !entry_whole(path))) {
        v->stat->bad++;
        bool gone = v->remove_bad && (unlink(path) == 0 || rmdir(path) == 0);
        if (v->bad)
            v->bad(v->ctx, path, gone);
    }
    if (v->list && S_ISREG(st->st_mode))
        remember(v, path, st);
}

/* Entries lie exactly at ROOT/v<schema>/<environment>/<kind>/NAME; nothing else is looked at or removed. */
static void walk(visit *v, const char *path, int depth)
{
    DIR *d = opendir(path);
    if (!d)
        return;
    for (struct dirent *e; (e = readdir(d)) != NULL;) {
        char sub[1200];
        struct stat st;
        if (e->d_name[0] == '.' ||
            (size_t)snprintf(sub, sizeof sub, "%s/%s", path, e->d_name) >= sizeof sub ||
            lstat(sub, &st) != 0 || (depth == 0 && e->d_name[0] != 'v') ||
            (depth == 1 && (strcmp(e->d_name, "tmp") == 0 || strcmp(e->d_name, "quarantine") == 0)))
            continue;
        if (depth == 3)
            visit_file(v, sub, &st);
        else if (S_ISDIR(st.st_mode))
            walk(v, sub, depth + 1);
    }
    closedir(d);
}

static rtx_status locate(const char *cache, tun_cache_stat *out, rtx_err *err)
{
    tun_cache c = {0};
    struct stat st;
    *out = (tun_cache_stat){0};
    if (!set_root(&c, cache))
        return FAIL(err, NOT_FOUND, "no cache folder: set HOME or RTX_CACHE, or give --cache");
    snprintf(out->path, sizeof out->path, "%s", c.root);
    if (stat(c.root, &st) == 0 && !S_ISDIR(st.st_mode))
        return FAIL(err, INVALID, "%s is no folder", c.root);
    return RTX_OK;
}

rtx_status tun_repro_path(const char *cache, const char *name, char *out, size_t cap, rtx_err *err)
{
    tun_cache c = {0};
    if (!set_root(&c, cache))
        return FAIL(err, NOT_FOUND, "no cache folder: set HOME or RTX_CACHE, or give --cache");
    set_env(&c, dev_cpu_get()->name);
    name_path(&c, TUN_BAD_KIND, name, REPRO, out, cap);
    return RTX_OK;
}

rtx_status tun_cache_stat_get(const char *cache, tun_cache_stat *out, rtx_err *err)
{
    TRY(locate(cache, out, err));
    visit v = {.stat = out};
    walk(&v, out->path, 0);
    return RTX_OK;
}

rtx_status tun_cache_verify(const char *cache, bool remove_bad, tun_cache_bad *bad, void *ctx,
                            tun_cache_stat *out, rtx_err *err)
{
    TRY(locate(cache, out, err));
    visit v = {.stat = out, .check = true, .remove_bad = remove_bad, .bad = bad, .ctx = ctx};
    walk(&v, out->path, 0);
    return RTX_OK;
}

/* Leftovers of processes that were killed while writing, and what quarantine holds. */
static void clear_folder(const char *root, const char *name, int64_t older_s)
{
    char dir[640], path[1200];
    snprintf(dir, sizeof dir, "%s/v%d/%s", root, TUN_SCHEMA, name);
    DIR *d = opendir(dir);
    if (!d)
        return;
    for (struct dirent *e; (e = readdir(d)) != NULL;) {
        struct stat st;
        snprintf(path, sizeof path, "%s/%s", dir, e->d_name);
        if (e->d_name[0] != '.' && lstat(path, &st) == 0 && time(NULL) - st.st_mtime >= older_s &&
            unlink(path) != 0)
            rmdir(path);
    }
    closedir(d);
}

static int by_age(const void *a, const void *b)
{
    int64_t x = ((const found *)a)->mtime, y = ((const found *)b)->mtime;
    return (x > y) - (x < y);
}

rtx_status tun_cache_gc(const char *cache, uint64_t max_bytes, tun_cache_stat *out, rtx_err *err)
{
    TRY(locate(cache, out, err));
    visit v = {.stat = out, .list = true};
    walk(&v, out->path, 0);
    clear_folder(out->path, "tmp", TMP_OLD_S);
    clear_folder(out->path, "quarantine", 0);
    if (max_bytes == 0)
        max_bytes = GC_DEFAULT;
    if (v.n)
        qsort(v.files, v.n, sizeof *v.files, by_age);
    for (size_t i = 0; i < v.n; i++) {
        if (out->bytes > max_bytes && unlink(v.files[i].path) == 0) {
            out->bytes -= v.files[i].bytes;
            out->entries -= !is_repro(v.files[i].path);
        }
        base_free(v.files[i].path);
    }
    base_free(v.files);
    return v.status == RTX_OK ? RTX_OK : FAIL(err, NOMEM, "out of memory");
}
