/* Files and time: mapping, whole-file reads, atomic publication, folders.
 *   layer    L0 base
 *   threads  all functions; no state but a counter for temporary names */
#include "base_sys.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define NS_PER_S    1000000000ull
#define WRITE_BYTES ((size_t)32 << 20)
#define TEMP_NAME   80 /* room for the name of a temporary file */

/* ---- time ---- */

uint64_t base_now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * NS_PER_S + (uint64_t)t.tv_nsec;
}

void base_sleep_ns(uint64_t ns)
{
    struct timespec left = {(time_t)(ns / NS_PER_S), (long)(ns % NS_PER_S)};
    while (nanosleep(&left, &left) != 0 && errno == EINTR)
        ;
}

/* ---- stopping ---- */

atomic_int base_cancelled;

rtx_status base_go_on(rtx_err *err)
{
    return base_cancelled ? FAIL(err, CANCELLED, "cancelled") : RTX_OK;
}

/* ---- reading ---- */

static void auto_fd(const int *fd)
{
    if (*fd >= 0)
        close(*fd);
}
#define AUTO_FD __attribute__((cleanup(auto_fd)))

static rtx_status fail_open(rtx_err *err, const char *path)
{
    int e = errno;
    if (e == ENOENT || e == ENOTDIR)
        return FAIL(err, NOT_FOUND, "%s: %s", path, strerror(e));
    return FAIL(err, IO, "%s: cannot open: %s", path, strerror(e));
}

static int64_t mtime_ns(const struct stat *st)
{
    return (int64_t)st->st_mtim.tv_sec * (int64_t)NS_PER_S + st->st_mtim.tv_nsec;
}

rtx_status base_map_open(const char *path, base_map *out, rtx_err *err)
{
    AUTO_FD int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a FIFO must not hang us */
    if (fd < 0)
        return fail_open(err, path);
    struct stat st;
    if (fstat(fd, &st) != 0)
        return FAIL(err, IO, "%s: cannot stat: %s", path, strerror(errno));
    if (!S_ISREG(st.st_mode))
        return FAIL(err, INVALID, "%s: not a regular file", path);
    size_t bytes = (size_t)st.st_size;
    const void *data = ""; /* mmap refuses length 0 */
    if (bytes) {
        data = mmap(NULL, bytes, PROT_READ, MAP_PRIVATE, fd, 0);
        if (data == MAP_FAILED)
            return FAIL(err, IO, "%s: cannot map %zu bytes: %s", path, bytes, strerror(errno));
    }
    *out = (base_map){data, bytes, mtime_ns(&st), (uint64_t)st.st_ino, fd};
    fd = -1;
    return RTX_OK;
}

void base_map_close(base_map *m)
{
    if (!m->data)
        return;
    if (m->bytes)
        munmap((void *)(uintptr_t)m->data, m->bytes);
    close(m->fd);
    *m = (base_map){0};
}

void base_map_forget(const base_map *m, const void *at, size_t bytes)
{
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), base = (uintptr_t)m->data,
                    from = ((uintptr_t)at + page - 1) / page * page,
                    to = ((uintptr_t)at + bytes) / page * page;
    if (from >= base && to > from && to <= base + m->bytes)
        (void)madvise((void *)from, to - from, MADV_DONTNEED); /* a failure only costs memory */
}

bool base_map_changed(const base_map *m)
{
    struct stat st;
    return fstat(m->fd, &st) != 0 || (size_t)st.st_size != m->bytes || mtime_ns(&st) != m->mtime_ns;
}

/* Read to the end of fd. Growth is geometric from the size hint, and one byte past max tells LIMIT from exact fit. */
static rtx_status read_all(int fd, const char *path, size_t hint, size_t max, base_buf *b,
                           rtx_err *err)
{
    AUTO_FREE char *chunk = NULL;
    size_t chunk_bytes = MIN(MAX(hint, 4096), (size_t)1 << 20);
    TRY_ALLOC(chunk = base_alloc(BASE_TAG_BASE, chunk_bytes), err);
    for (;;) {
        ssize_t got = read(fd, chunk, chunk_bytes);
        if (got < 0 && errno == EINTR) { /* a pipe may stay silent for ever */
            TRY(base_go_on(err));
            continue;
        }
        if (got < 0 && errno == EISDIR)
            return FAIL(err, INVALID, "%s: is a folder", path);
        if (got < 0)
            return FAIL(err, IO, "%s: cannot read: %s", path, strerror(errno));
        if (got == 0)
            return RTX_OK;
        base_buf_put(b, chunk, (size_t)got);
        if (b->over_max)
            return FAIL(err, LIMIT, "%s: more than the allowed %zu bytes", path, max);
        TRY(base_buf_ok(b, err));
    }
}

rtx_status base_read_file(const char *path, size_t max_bytes, char **out_data, size_t *out_bytes,
                          rtx_err *err)
{
    AUTO_FD int opened = -1;
    int fd = STDIN_FILENO;
    if (strcmp(path, "-") != 0) {
        fd = opened = open(path, O_RDONLY | O_CLOEXEC);
        if (fd < 0)
            return fail_open(err, path);
    }
    struct stat st;
    size_t hint = fstat(fd, &st) == 0 && S_ISREG(st.st_mode) ? (size_t)st.st_size : 0;
    if (hint > max_bytes)
        return FAIL(err, LIMIT, "%s: %zu bytes, more than the allowed %zu", path, hint, max_bytes);
    AUTO_BUF base_buf b;
    base_buf_init(&b, BASE_TAG_BASE, max_bytes);
    TRY(read_all(fd, path, hint, max_bytes, &b, err));
    size_t bytes;
    char *data;
    TRY_ALLOC(data = base_buf_take(&b, &bytes), err);
    *out_data = data;
    *out_bytes = bytes;
    return RTX_OK;
}

/* ---- writing ---- */

/* Small parts are finished also by work that was told to stop: what it has learnt is kept. */
static rtx_status write_all(int fd, const char *path, const base_part *part, rtx_err *err)
{
    const char *at = part->data;
    for (size_t left = part->bytes; left > 0;) {
        if (at != part->data)
            TRY(base_go_on(err));
        ssize_t put = write(fd, at, MIN(left, WRITE_BYTES));
        if (put < 0 && errno == EINTR)
            continue;
        if (put < 0)
            return FAIL(err, IO, "%s: cannot write: %s", path, strerror(errno));
        at += put;
        left -= (size_t)put;
    }
    return RTX_OK;
}

/* Length of the folder part of path, with its last slash; 0 for a plain name. */
static size_t folder_len(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? (size_t)(slash - path) + 1 : 0;
}

/* The rename itself is on disk only once its folder is. Some file systems cannot sync folders and say EINVAL. */
static rtx_status sync_folder(const char *path, const char *folder, rtx_err *err)
{
    AUTO_FD int fd = open(*folder ? folder : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0 || (fsync(fd) != 0 && errno != EINVAL))
        return FAIL(err, IO, "%s: cannot sync its folder: %s", path, strerror(errno));
    return RTX_OK;
}

static rtx_status fail_temp(const char *path, const char *folder, rtx_err *err)
{
    int e = errno;
    if (!*folder)
        folder = ".";
    if (e == ENOENT || e == ENOTDIR)
        return FAIL(err, NOT_FOUND, "%s: cannot make a file in folder %s: %s", path, folder,
                    strerror(e));
    return FAIL(err, IO, "%s: cannot make a file in folder %s: %s", path, folder, strerror(e));
}

/* Messages name path, which the user knows, not temp. */
static rtx_status write_temp(const char *temp, const char *path, const char *folder,
                             const mode_t *mode, const base_part *parts, size_t n_parts,
                             rtx_err *err)
{
    /* 0666 under the umask, as a plain open by the user would give; mkstemp would force 0600 */
    AUTO_FD int fd =
        open(temp, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode ? *mode : 0666);
    if (fd < 0)
        return fail_temp(path, folder, err);
    if (mode)
        (void)fchmod(fd, *mode); /* not all file systems can: then the umask has made it narrower */
    for (size_t i = 0; i < n_parts; i++)
        TRY(write_all(fd, path, &parts[i], err));
    if (fsync(fd) != 0)
        return FAIL(err, IO, "%s: cannot sync: %s", path, strerror(errno));
    return RTX_OK;
}

/* Where a file published at a path goes. */
typedef struct place {
    char path[PATH_MAX];
    mode_t mode; /* permission bits of the file that it replaces */
    bool there;
} place;

static rtx_status fail_long(const char *what, size_t bytes, size_t most, rtx_err *err)
{
    return FAIL(err, LIMIT, "the %s of the file to write has %zu bytes; at most %zu fit", what,
                bytes, most);
}

/* A link is followed, so that the file behind it is replaced and not the link. */
static rtx_status find_place(const char *path, place *out, rtx_err *err)
{
    struct stat st;
    size_t len = strlen(path);
    if (len == 0)
        return FAIL(err, INVALID, "the name of the file to write is empty");
    if (len >= PATH_MAX)
        return fail_long("path", len, PATH_MAX - 1, err);
    memcpy(out->path, path, len + 1);
    if (lstat(path, &st) == 0 && S_ISLNK(st.st_mode) && realpath(path, out->path) == NULL)
        return FAIL(err, NOT_FOUND, "%s is a link to what cannot be found (%s); remove the link",
                    path, strerror(errno));
    size_t folder = folder_len(out->path);
    if (folder >= PATH_MAX - TEMP_NAME)
        return fail_long("folder", folder, PATH_MAX - 1 - TEMP_NAME, err);
    out->there = stat(out->path, &st) == 0;
    out->mode = out->there ? st.st_mode & 0777 : 0;
    if (out->there && !S_ISREG(st.st_mode)) /* rename would replace /dev/null by a file */
        return FAIL(err, INVALID, "%s: exists and is not a regular file", path);
    return RTX_OK;
}

rtx_status base_publish_check(const char *path, rtx_err *err)
{
    place to;
    TRY(find_place(path, &to, err));
    char *name = to.path + folder_len(to.path), first = *name;
    *name = '\0'; /* the folder is left */
    const char *folder = *to.path ? to.path : ".";
    if (access(folder, W_OK | X_OK) != 0)
        return fail_temp(path, folder, err);
    long most = pathconf(folder, _PC_NAME_MAX);
    size_t fit = most > 0 ? (size_t)most : NAME_MAX;
    *name = first;
    return strlen(name) <= fit ? RTX_OK : fail_long("name", strlen(name), fit, err);
}

rtx_status base_publish(const char *given, const base_part *parts, size_t n_parts, rtx_err *err)
{
    static atomic_uint serial;
    place to;
    TRY(find_place(given, &to, err));
    const char *path = to.path;
    AUTO_BUF base_buf temp;
    base_buf_init(&temp, BASE_TAG_BASE, SIZE_MAX);
    base_buf_put(&temp, path, folder_len(path));
    base_buf_printf(&temp, ".rtx-%ld-%u-%llx.tmp", (long)getpid(), atomic_fetch_add(&serial, 1),
                    (unsigned long long)base_now_ns());
    TRY(base_buf_ok(&temp, err));
    AUTO_FREE char *folder =
        base_strdup(BASE_TAG_BASE, path); /* before anything can be seen at path */
    if (!folder)
        return FAIL(err, NOMEM, "out of memory");
    folder[folder_len(path)] = '\0';
    rtx_status status =
        write_temp(temp.data, path, folder, to.there ? &to.mode : NULL, parts, n_parts, err);
    if (status == RTX_OK && rename(temp.data, path) != 0)
        status = FAIL(err, IO, "%s: cannot rename into place: %s", path, strerror(errno));
    if (status != RTX_OK) {
        unlink(temp.data);
        return status;
    }
    return sync_folder(path, folder, err);
}

static rtx_status make_folder(const char *path, rtx_err *err)
{
    struct stat st;
    if (mkdir(path, 0700) == 0)
        return RTX_OK;
    int e = errno;
    if (stat(path, &st) == 0 &&
        S_ISDIR(st.st_mode)) /* also where mkdir says EROFS or EACCES first */
        return RTX_OK;
    return FAIL(err, IO, "%s: cannot create folder: %s", path, strerror(e));
}

rtx_status base_mkdirs(const char *path, rtx_err *err)
{
    AUTO_FREE char *prefix = base_strdup(BASE_TAG_BASE, path);
    if (!prefix)
        return FAIL(err, NOMEM, "out of memory");
    for (char *c = prefix + 1; *prefix && *c; c++) {
        if (*c != '/')
            continue;
        *c = '\0';
        TRY(make_folder(prefix, err));
        *c = '/';
    }
    return make_folder(prefix, err);
}
