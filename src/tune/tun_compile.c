/* The system's C compiler as a child: found, timed, killed when it hangs, and never left behind.
 *   which      RTX_CC, else CC (set to nothing = no compiler), else cc, gcc, clang on PATH
 *   scratch    one folder of mode 0700 under TMPDIR; removed by tun_cc_close. Its owner holds a lock on it (flock, which
 *              also other containers see), so the next open can sweep what killed processes left
 *   children   run under `rtx-worker --exec`, in a session of their own, so that a driver dies with what it started
 *              and all of it with us */
#include "tun_int.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define ASK_NS     UINT64_C(5000000000)  /* for --version */
#define COMPILE_NS UINT64_C(20000000000) /* for one unit */
#define ARGS_MAX   96
#define ELF_MAX    ((size_t)16 << 20)

extern char **environ;

/* ---- finding it ---- */

static bool is_program(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISREG(st.st_mode) && access(path, X_OK) == 0;
}

/* Path of a program named without a slash, as a shell would find it. */
static bool on_path(const char *name, size_t name_len, char *out, size_t cap)
{
    const char *path = base_env(BASE_ENV_PATH);
    while (*path) {
        size_t n = strcspn(path, ":");
        if (n > 0 &&
            (size_t)snprintf(out, cap, "%.*s/%.*s", (int)n, path, (int)name_len, name) < cap &&
            is_program(out))
            return true;
        path += n + (path[n] == ':');
    }
    return false;
}

static rtx_status named(const char *value, const char *knob, char *out, size_t cap, rtx_err *err)
{
    size_t n = strcspn(value, " ");
    if (n == 0)
        return FAIL(err, UNSUPPORTED, "no compiler: %s is set to nothing", knob);
    if (memchr(value, '/', n)) {
        if ((size_t)snprintf(out, cap, "%.*s", (int)n, value) < cap && is_program(out))
            return RTX_OK;
    } else if (on_path(value, n, out, cap)) {
        return RTX_OK;
    }
    return FAIL(err, UNSUPPORTED, "no compiler: %s=%s is not a program", knob, value);
}

rtx_status tun_cc_find(char *out, size_t cap, rtx_err *err)
{
    if (base_env_is_set(BASE_ENV_CC))
        return named(base_env(BASE_ENV_CC), "RTX_CC", out, cap, err);
    if (base_env_is_set(BASE_ENV_CC_PLAIN))
        return named(base_env(BASE_ENV_CC_PLAIN), "CC", out, cap, err);
    static const char *const names[] = {"cc", "gcc", "clang"};
    for (size_t i = 0; i < COUNT_OF(names); i++)
        if (on_path(names[i], strlen(names[i]), out, cap))
            return RTX_OK;
    return FAIL(err, UNSUPPORTED, "no compiler: none of cc, gcc, clang is on PATH; set RTX_CC");
}

/* ---- children ---- */

/* Start argv with stdout and stderr in `log`; TMPDIR points into the scratch folder. 0 = could not. */
static pid_t launch(const tun_cc *cc, char *const *argv, const char *log)
{
    posix_spawn_file_actions_t fa;
    posix_spawnattr_t at;
    posix_spawn_file_actions_init(&fa);
    tun_spawn_attr(&at);
    posix_spawn_file_actions_addopen(&fa, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_addopen(&fa, 1, log, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    posix_spawn_file_actions_adddup2(&fa, 1, 2);
    char tmp[540];
    snprintf(tmp, sizeof tmp, "TMPDIR=%s", cc->dir);
    size_t n = 0;
    while (environ[n])
        n++;
    AUTO_FREE char **envp = base_alloc_array(BASE_TAG_TUNE, n + 3, sizeof *envp);
    n = 0;
    for (char **e = environ; envp && *e; e++)
        if (strncmp(*e, "TMPDIR=", 7) != 0 && strncmp(*e, "LC_", 3) != 0 &&
            strncmp(*e, "LANG", 4) != 0)
            envp[n++] = *e;
    pid_t pid = 0;
    if (envp) {
        envp[n++] = tmp;
        envp[n++] = (char[]){"LC_ALL=C"};
        envp[n] = NULL;
        if (posix_spawn(&pid, argv[0], &fa, &at, argv, envp) != 0)
            pid = 0;
    }
    posix_spawn_file_actions_destroy(&fa);
    posix_spawnattr_destroy(&at);
    return pid;
}

static void end_group(pid_t pid)
{
    kill(-pid, SIGKILL);
    kill(pid, SIGKILL);
    while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
        ;
}

/* First line of a log with an error in it, else its first line. */
static void log_line(const char *path, char *out, size_t cap)
{
    AUTO_FREE char *text = NULL;
    size_t bytes = 0;
    out[0] = 0;
    if (base_read_file(path, (size_t)1 << 20, &text, &bytes, NULL) != RTX_OK || !text || bytes == 0)
        return;
    const char *at = memmem(text, bytes, "error", 5);
    if (!at)
        at = text;
    while (at > text && at[-1] != '\n')
        at--;
    snprintf(out, cap, "%.*s", (int)strcspn(at, "\n"), at);
}

/* ---- scratch folder ---- */

static void remove_folder(const char *dir)
{
    DIR *d = opendir(dir);
    if (!d)
        return;
    for (struct dirent *e; (e = readdir(d)) != NULL;)
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0)
            unlinkat(dirfd(d), e->d_name, 0);
    closedir(d);
    rmdir(dir);
}

/* A folder's lock, held as long as the descriptor is open; -1 = somebody else has it, or the folder is gone. */
static int lock_folder(int at, const char *name)
{
    struct stat st;
    int fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd >= 0 && (flock(fd, LOCK_EX | LOCK_NB) != 0 || fstat(fd, &st) != 0 || st.st_nlink == 0 ||
                    st.st_uid != geteuid())) {
        close(fd);
        fd = -1;
    }
    return fd;
}

/* Folders "rtx-cc-PID-XXXXXX" of ours that nobody holds. */
static void sweep(const char *tmp)
{
    DIR *d = opendir(tmp);
    if (!d)
        return;
    for (struct dirent *e; (e = readdir(d)) != NULL;) {
        if (strncmp(e->d_name, "rtx-cc-", 7) != 0)
            continue;
        char path[1024];
        int lock = lock_folder(dirfd(d), e->d_name);
        if (lock >= 0 && (size_t)snprintf(path, sizeof path, "%s/%s", tmp, e->d_name) < sizeof path)
            remove_folder(path);
        if (lock >= 0)
            close(lock);
    }
    closedir(d);
}

static rtx_status make_folder(tun_cc *cc, rtx_err *err)
{
    const char *tmp = base_env(BASE_ENV_TMPDIR);
    if (!*tmp)
        tmp = "/tmp";
    sweep(tmp);
    if ((size_t)snprintf(cc->dir, sizeof cc->dir, "%s/rtx-cc-%d-XXXXXX", tmp, (int)getpid()) >=
        sizeof cc->dir)
        return FAIL(err, LIMIT, "TMPDIR is too long");
    const size_t random = strlen(cc->dir) - 6;
    for (int tries = 0; tries < 100; tries++) {
        if (!mkdtemp(cc->dir))
            break;
        cc->lock = lock_folder(AT_FDCWD, cc->dir);
        if (cc->lock >= 0)
            return RTX_OK;
        memcpy(cc->dir + random, "XXXXXX", 6); /* another's sweep was faster than our lock */
    }
    cc->dir[0] = 0;
    return FAIL(err, IO, "cannot make a folder in %s: %s", tmp, strerror(errno));
}

/* ---- open ---- */

/* Wait until pid ends; -1 = it overran and was killed. Where the caller's process ignores SIGCHLD nobody learns how a child
 * ended: 0, and what it left tells. */
static int wait_for(pid_t pid, uint64_t limit_ns)
{
    uint64_t stop = base_now_ns() + limit_ns;
    for (int status;;) {
        pid_t r = waitpid(pid, &status, WNOHANG);
        if (r == pid)
            return WIFEXITED(status) ? WEXITSTATUS(status) : 128;
        if (r < 0 && errno != EINTR)
            return 0;
        if (base_now_ns() >= stop) {
            end_group(pid);
            return -1;
        }
        base_sleep_ns(500000);
    }
}

static rtx_status ask_version(tun_cc *cc, rtx_err *err)
{
    char log[560], parent[24], line[128];
    snprintf(log, sizeof log, "%s/version", cc->dir);
    snprintf(parent, sizeof parent, "%d", (int)getpid());
    char *argv[] = {cc->supervisor, (char[]){"--exec"},    parent,
                    cc->path,       (char[]){"--version"}, NULL};
    pid_t pid = launch(cc, argv, log);
    int rc = pid > 0 ? wait_for(pid, ASK_NS) : 127;
    if (rc != 0)
        return FAIL(err, UNSUPPORTED, "no compiler: %s --version %s", cc->path,
                    rc < 0 ? "does not answer" : "fails");
    log_line(log, line, sizeof line);
    if (!line[0])
        return FAIL(err, UNSUPPORTED, "no compiler: %s --version says nothing", cc->path);
    struct stat st;
    snprintf(cc->version, sizeof cc->version, "%s, %lld bytes", line,
             stat(cc->path, &st) == 0 ? (long long)st.st_size : 0);
    return RTX_OK;
}

rtx_status tun_cc_open(tun_cc *cc, rtx_err *err)
{
    *cc = (tun_cc){0};
    TRY(tun_cc_find(cc->path, sizeof cc->path, err));
    TRY(tun_worker_find(cc->supervisor, sizeof cc->supervisor, err));
    TRY(make_folder(cc, err));
    rtx_status s = ask_version(cc, err);
    if (s != RTX_OK)
        tun_cc_close(cc);
    return s;
}

void tun_cc_close(tun_cc *cc)
{
    if (!cc->dir[0])
        return;
    remove_folder(cc->dir);
    close(cc->lock);
    cc->dir[0] = 0;
}

bool tun_have_compiler(char *out_version, size_t cap, rtx_err *why)
{
    tun_cc cc;
    if (tun_cc_open(&cc, why) != RTX_OK)
        return false;
    snprintf(out_version, cap, "%s", cc.version);
    tun_cc_close(&cc);
    return true;
}

/* ---- compiling ---- */

static void unit_path(const tun_cc *cc, size_t i, const char *ext, char *out, size_t cap)
{
    snprintf(out, cap, "%s/u%zu.%s", cc->dir, i, ext);
}

static rtx_status write_text(const char *path, const char *text, rtx_err *err)
{
    FILE *f = fopen(path, "we");
    size_t n = strlen(text);
    bool ok = f && fwrite(text, 1, n, f) == n;
    int e = errno;
    if (f && fclose(f) != 0)
        ok = false;
    return ok ? RTX_OK : FAIL(err, IO, "%s: cannot write: %s", path, strerror(e));
}

static bool begin(const tun_cc *cc, tun_unit *u, size_t i)
{
    char c[560], so[560], log[560], parent[24], flags[1024];
    unit_path(cc, i, "c", c, sizeof c);
    unit_path(cc, i, "so", so, sizeof so);
    unit_path(cc, i, "log", log, sizeof log);
    if (write_text(c, u->text, &u->err) != RTX_OK)
        return false;
    snprintf(parent, sizeof parent, "%d", (int)getpid());
    char *argv[ARGS_MAX + 8] = {(char *)(uintptr_t)cc->supervisor, (char[]){"--exec"}, parent,
                                (char *)(uintptr_t)cc->path};
    size_t n = 4;
    if ((size_t)snprintf(flags, sizeof flags, "%s", u->flags) >= sizeof flags) {
        (void)FAIL(&u->err, LIMIT, "compiler options are too long");
        return false;
    }
    char *save = NULL;
    for (char *f = strtok_r(flags, " ", &save); f && n < ARGS_MAX; f = strtok_r(NULL, " ", &save))
        argv[n++] = f;
    argv[n++] = (char[]){"-o"};
    argv[n++] = so;
    argv[n++] = c;
    u->start_ns = base_now_ns();
    u->pid = launch(cc, argv, log);
    if (u->pid <= 0)
        (void)FAIL(&u->err, COMPILE, "cannot start %s", cc->path);
    return u->pid > 0;
}

static void finish(const tun_cc *cc, tun_unit *u, size_t i, int status)
{
    char c[560], so[560], log[560], line[256];
    unit_path(cc, i, "c", c, sizeof c);
    unit_path(cc, i, "so", so, sizeof so);
    unit_path(cc, i, "log", log, sizeof log);
    u->done = true;
    u->pid = 0;
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) {
        if (base_read_file(so, ELF_MAX, &u->elf, &u->elf_bytes, &u->err) != RTX_OK)
            u->elf = NULL;
    } else if (WIFSIGNALED(status) || WEXITSTATUS(status) > 128) { /* as its supervisor says it */
        (void)FAIL(&u->err, IO, "the compiler was killed from outside");
    } else {
        log_line(log, line, sizeof line);
        (void)FAIL(&u->err, COMPILE, "compiler: %s", line[0] ? line : "failed without a message");
    }
    unlink(c);
    unlink(so);
    unlink(log);
}

static void stop_all(tun_unit *units, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (units[i].pid > 0) {
            end_group(units[i].pid);
            units[i].pid = 0;
        }
}

/* Look at the running compilers once. Returns how many still run; -1 if one of them overran its time. */
static int poll_units(const tun_cc *cc, tun_unit *units, size_t n)
{
    int running = 0;
    for (size_t i = 0; i < n; i++) {
        int status = 0;
        if (units[i].pid <= 0)
            continue;
        pid_t r = waitpid(units[i].pid, &status, WNOHANG);
        if (r == units[i].pid || (r < 0 && errno == ECHILD))
            finish(cc, &units[i], i, r < 0 ? 0 : status);
        else if (base_now_ns() - units[i].start_ns > COMPILE_NS)
            return -1;
        else
            running++;
    }
    return running;
}

rtx_status tun_cc_run(tun_cc *cc, tun_unit *units, size_t n, int parallel, uint64_t deadline_ns,
                      rtx_err *err)
{
    uint64_t t_ns = base_now_ns();
    rtx_status s = cc->dead ? FAIL(err, COMPILE, "%s hung before", cc->path) : RTX_OK;
    size_t next = 0;
    for (int running = 0; s == RTX_OK && (next < n || running > 0);) {
        while (next < n && running < parallel) {
            if (base_now_ns() > deadline_ns && !units[next].must)
                (void)FAIL(&units[next].err, CANCELLED, "no time left to compile");
            else if (begin(cc, &units[next], next))
                running++;
            units[next].done = units[next].pid <= 0;
            next++;
        }
        base_sleep_ns(300000);
        running = poll_units(cc, units, n);
        if (running < 0) {
            cc->dead = true;
            s = FAIL(err, COMPILE, "%s gave no answer in %.0f s", cc->path,
                     (double)COMPILE_NS / 1e9);
        } else {
            s = base_go_on(err);
        }
    }
    if (s != RTX_OK)
        stop_all(units, n);
    cc->seconds += (double)(base_now_ns() - t_ns) / 1e9;
    return s;
}
