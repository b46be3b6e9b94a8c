/* The parent's end of rtx-worker: find it, start it, talk to it, and never wait longer than allowed.
 *   watchdog   each exchange has a time limit; a worker that overruns it is killed. A dead worker costs the candidate
 *              that killed it and nothing else: requests are complete, so the next one starts a new process
 *   lifetime   the socket's end-of-file and the parent-death signal end the worker, whatever ends us */
#include "tun_int.h"
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define ATTEMPTS 6 /* of a request whose worker was killed by somebody else */

extern char **environ;

/* ---- finding the program ---- */

static bool runnable(const char *path) { return access(path, X_OK) == 0; }

static char own_folder[PATH_MAX]; /* of the library or program that holds this code; "" = unknown */

/* At load, as a relative path means another place once somebody has changed the folder. */
__attribute__((constructor)) static void find_own_folder(void)
{
    Dl_info info;
    bool named = dladdr(own_folder, &info) && info.dli_fname && strchr(info.dli_fname, '/');
    char *slash = NULL;
    if (realpath(named ? info.dli_fname : "/proc/self/exe", own_folder))
        slash = strrchr(own_folder, '/');
    *(slash ? slash : own_folder) = 0;
}

rtx_status tun_worker_find(char *out, size_t cap, rtx_err *err)
{
    const char *named = base_env(BASE_ENV_WORKER);
    if (*named) {
        if (!runnable(named))
            return FAIL(err, NOT_FOUND, "RTX_WORKER=%s: %s", named, strerror(errno));
        snprintf(out, cap, "%s", named);
        return RTX_OK;
    }
    static const char *const places[] = {"", "/../libexec/rtx", "/../bin", "/../../libexec/rtx",
                                         "/../../bin"};
    const char *dir = own_folder;
    if (!*dir)
        return FAIL(err, NOT_FOUND,
                    "cannot find rtx-worker: where this library lies is unknown; set RTX_WORKER");
    for (size_t i = 0; i < COUNT_OF(places); i++)
        if ((size_t)snprintf(out, cap, "%s%s/rtx-worker", dir, places[i]) < cap && runnable(out))
            return RTX_OK;
    return FAIL(err, NOT_FOUND,
                "rtx-worker is neither in %s nor in %s/../libexec/rtx; set RTX_WORKER", dir, dir);
}

/* ---- process ---- */

void tun_spawn_attr(posix_spawnattr_t *at)
{
    sigset_t all, none;
    sigfillset(&all);
    sigdelset(&all, SIGKILL);
    sigdelset(&all, SIGSTOP);
    sigemptyset(&none);
    posix_spawnattr_init(at);
    posix_spawnattr_setsigdefault(at, &all);
    posix_spawnattr_setsigmask(at, &none);
    posix_spawnattr_setflags(at,
                             POSIX_SPAWN_SETSID | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK);
}

static void reap(tun_worker *w, int *out_status)
{
    int status = 0;
    while (waitpid(w->pid, &status, 0) < 0 && errno == EINTR)
        ;
    w->pid = 0;
    if (w->sock >= 0)
        close(w->sock);
    w->sock = -1;
    if (out_status)
        *out_status = status;
}

void tun_worker_restart(tun_worker *w)
{
    if (w->pid <= 0)
        return;
    kill(w->pid, SIGKILL);
    reap(w, NULL);
}

static rtx_status start(tun_worker *w, rtx_err *err)
{
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0)
        return FAIL(err, IO, "cannot make a socket pair: %s", strerror(errno));
    /* Both go to their fixed numbers through high ones, so that neither dup2 hits the other's source. */
    int sock = fcntl(pair[1], F_DUPFD_CLOEXEC, 100), mem = fcntl(w->mem_fd, F_DUPFD_CLOEXEC, 100);
    posix_spawn_file_actions_t fa;
    posix_spawnattr_t at;
    tun_spawn_attr(&at); /* our death it learns from the system */
    posix_spawn_file_actions_init(&fa);
    posix_spawn_file_actions_addopen(&fa, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_addopen(&fa, 1, "/dev/null", O_WRONLY, 0);
    posix_spawn_file_actions_adddup2(&fa, sock, FMT_WORK_SOCK_FD);
    posix_spawn_file_actions_adddup2(&fa, mem, FMT_WORK_MEM_FD);
    char parent[24];
    snprintf(parent, sizeof parent, "%d", (int)getpid());
    char *argv[] = {w->path, parent, NULL};
    pid_t pid = 0;
    int e = sock < 0 || mem < 0 ? errno : posix_spawn(&pid, w->path, &fa, &at, argv, environ);
    posix_spawn_file_actions_destroy(&fa);
    posix_spawnattr_destroy(&at);
    close(pair[1]);
    if (sock >= 0)
        close(sock);
    if (mem >= 0)
        close(mem);
    if (e != 0) {
        close(pair[0]);
        return FAIL(err, IO, "cannot start %s: %s", w->path, strerror(e));
    }
    w->pid = pid;
    w->sock = pair[0];
    return RTX_OK;
}

rtx_status tun_worker_open(tun_worker *w, rtx_err *err)
{
    *w = (tun_worker){.sock = -1, .mem_fd = -1};
    TRY(tun_worker_find(w->path, sizeof w->path, err));
    w->mem_fd = memfd_create("rtx-tune", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (w->mem_fd < 0)
        return FAIL(err, IO, "cannot make a memory file: %s", strerror(errno));
    w->mem_bytes = TUN_WORKER_MEM;
    if (ftruncate(w->mem_fd, (off_t)w->mem_bytes) != 0 ||
        fcntl(w->mem_fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
        tun_worker_close(w);
        return FAIL(err, IO, "cannot size the memory file: %s", strerror(errno));
    }
    void *mem =
        mmap(NULL, w->mem_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, w->mem_fd, 0);
    if (mem == MAP_FAILED) {
        tun_worker_close(w);
        return FAIL(err, NOMEM, "cannot map %zu bytes for the worker: %s", TUN_WORKER_MEM,
                    strerror(errno));
    }
    w->mem = mem;
    fmt_work_req req = {.cmd = FMT_WORK_PING};
    fmt_work_rep rep;
    rtx_status s = tun_worker_ask(w, &req, UINT64_C(5000000000), &rep, err);
    if (s == RTX_OK && rep.status != FMT_WORK_OK)
        s = FAIL(err, UNSUPPORTED, "%s is of another version", w->path);
    if (s != RTX_OK)
        tun_worker_close(w);
    return s;
}

void tun_worker_close(tun_worker *w)
{
    if (!w->path[0])
        return;
    tun_worker_restart(w);
    if (w->mem)
        munmap(w->mem, w->mem_bytes);
    if (w->mem_fd >= 0)
        close(w->mem_fd);
    *w = (tun_worker){.sock = -1, .mem_fd = -1};
}

void tun_worker_forget(tun_worker *w, size_t offset, size_t bytes)
{
    size_t from = (offset + FMT_WORK_PAGE - 1) / FMT_WORK_PAGE * FMT_WORK_PAGE;
    size_t to = (offset + bytes) / FMT_WORK_PAGE * FMT_WORK_PAGE;
    if (to > from && madvise(w->mem + from, to - from, MADV_REMOVE) != 0)
        memset(w->mem + from, 0, to - from);
}

/* ---- one exchange ---- */

/* The worker is gone or overdue: end it and say why. */
static rtx_status lost(tun_worker *w, bool overdue, double limit_s, rtx_err *err)
{
    w->respawns++;
    if (overdue) {
        tun_worker_restart(w);
        return FAIL(err, DEVICE, "no answer in %.1f s", limit_s);
    }
    int status = 0;
    kill(w->pid, SIGKILL); /* it closed the socket; make sure that it is no more */
    reap(w, &status);
    if (WIFSIGNALED(status) && WTERMSIG(status) != SIGKILL)
        return FAIL(err, DEVICE, "crashed: signal %d (%s)", WTERMSIG(status),
                    strsignal(WTERMSIG(status)));
    if (WIFEXITED(status))
        return FAIL(err, DEVICE, "crashed: it ended the worker with exit code %d",
                    WEXITSTATUS(status));
    w->killed++;
    return FAIL(err, IO,
                "the worker was killed from outside"); /* no verdict: the caller asks again */
}

/* Wait for the reply; false = overdue. End-of-file counts as readable. */
static bool await(int sock, uint64_t deadline_ns)
{
    for (;;) {
        uint64_t now = base_now_ns();
        if (now >= deadline_ns)
            return false;
        uint64_t left_ms = (deadline_ns - now) / 1000000 + 1;
        struct pollfd p = {sock, POLLIN, 0};
        int r = poll(&p, 1, (int)MIN(left_ms, 1000));
        if (r > 0)
            return true;
        if (r < 0 && errno != EINTR)
            return true;
    }
}

static rtx_status exchange(tun_worker *w, fmt_work_req *req, uint64_t timeout_ns, fmt_work_rep *out,
                           uint64_t *out_wall_ns, rtx_err *err)
{
    if (w->pid <= 0)
        TRY(start(w, err));
    req->version = FMT_WORK_VERSION;
    uint64_t t_ns = base_now_ns();
    double limit_s = (double)timeout_ns / 1e9;
    fmt_work_rep rep;
    if (send(w->sock, req, sizeof *req, MSG_NOSIGNAL) != (ssize_t)sizeof *req)
        return lost(w, false, limit_s, err);
    if (!await(w->sock, t_ns + timeout_ns))
        return lost(w, true, limit_s, err);
    ssize_t got;
    while ((got = recv(w->sock, &rep, sizeof rep, 0)) < 0 && errno == EINTR)
        ;
    if (got != (ssize_t)sizeof rep)
        return lost(w, false, limit_s, err);
    if (out_wall_ns)
        *out_wall_ns = base_now_ns() - t_ns;
    *out = rep;
    return RTX_OK;
}

rtx_status tun_worker_call(tun_worker *w, fmt_work_req *req, uint64_t timeout_ns, fmt_work_rep *out,
                           uint64_t *out_wall_ns, rtx_err *err)
{
    rtx_status s = RTX_IO;
    rtx_err why = {0};
    for (int attempt = 0; attempt < ATTEMPTS && s == RTX_IO; attempt++)
        s = exchange(w, req, timeout_ns, out, out_wall_ns, &why);
    if (s != RTX_OK && err)
        *err = why;
    return s;
}

rtx_status tun_worker_ask(tun_worker *w, fmt_work_req *req, uint64_t timeout_ns, fmt_work_rep *out,
                          rtx_err *err)
{
    rtx_err why = {0};
    rtx_status s = tun_worker_call(w, req, timeout_ns, out, NULL, &why);
    return s == RTX_OK ? s : base_fail(err, s, __FILE__, __LINE__, "%s: %s", w->path, why.text);
}
