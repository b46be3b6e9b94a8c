/* How many processors this process may use: affinity mask, then cgroup quotas.
 *   layer    L0 base
 *   threads  no state
 *   rules    a quota of 1.9 CPUs gives 1: a second thread would be throttled in the middle of a run. A quota set on
 *            any ancestor group binds, so the whole path up to the mount point is read. In a container the path of
 *            /proc/self/cgroup may be the host's and absent here; the walk then ends at the mount point, which is
 *            the container's own group. */
#include "base_sys.h"
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdlib.h>
#include <unistd.h>

#define MILLI 1000

/* ---- text ---- */

static bool parse_positive(const char *text, int64_t *out)
{
    char *end;
    errno = 0;
    long long v = strtoll(text, &end, 10);
    if (end == text || errno || v <= 0)
        return false;
    *out = v;
    return true;
}

int64_t base_cgroup_quota(const char *quota, const char *period)
{
    int64_t q, p;
    if (!parse_positive(quota, &q) || !parse_positive(period, &p) || q > INT64_MAX / MILLI)
        return 0;
    return MAX(q * MILLI / p, 1);
}

int64_t base_cgroup_cpu_max(const char *text)
{
    const char *space = strchr(text, ' ');
    return space ? base_cgroup_quota(text, space + 1) : 0;
}

static bool list_has(const char *list, size_t len, const char *name)
{
    size_t name_len = strlen(name);
    for (const char *at = list, *end = list + len; at <= end;) {
        const char *comma = memchr(at, ',', (size_t)(end - at));
        size_t item_len = (size_t)((comma ? comma : end) - at);
        if (item_len == name_len && memcmp(at, name, name_len) == 0)
            return true;
        at += item_len + 1;
    }
    return false;
}

/* Lines are "id:controllers:path"; the v2 line has no controllers. */
bool base_cgroup_path(const char *text, const char *controller, char *out, size_t cap)
{
    for (const char *line = text; *line;) {
        size_t len = strcspn(line, "\n");
        const char *list = memchr(line, ':', len);
        const char *path = list ? memchr(list + 1, ':', len - (size_t)(list + 1 - line)) : NULL;
        if (path && list_has(list + 1, (size_t)(path - list) - 1, controller)) {
            size_t path_len = len - (size_t)(path + 1 - line);
            if (path_len >= cap)
                return false;
            memcpy(out, path + 1, path_len);
            out[path_len] = '\0';
            return true;
        }
        line += len + (line[len] == '\n');
    }
    return false;
}

/* ---- files; stack buffers only, so that this never fails for memory ---- */

static bool read_small(const char *path, char *out, size_t cap)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    size_t len = 0;
    ssize_t got;
    while (len < cap - 1 && (got = read(fd, out + len, cap - 1 - len)) > 0)
        len += (size_t)got;
    close(fd);
    out[len] = '\0';
    return len > 0;
}

static bool read_in(const char *mount, const char *group, const char *name, char *out, size_t cap)
{
    char path[1200];
    int len = snprintf(path, sizeof path, "%s%s/%s", mount, group, name);
    return len > 0 && (size_t)len < sizeof path && read_small(path, out, cap);
}

static int64_t group_quota(const char *mount, const char *group, bool v2)
{
    char quota[64], period[64];
    if (v2)
        return read_in(mount, group, "cpu.max", quota, sizeof quota) ? base_cgroup_cpu_max(quota)
                                                                     : 0;
    if (!read_in(mount, group, "cpu.cfs_quota_us", quota, sizeof quota) ||
        !read_in(mount, group, "cpu.cfs_period_us", period, sizeof period))
        return 0;
    return base_cgroup_quota(quota, period);
}

/* Smallest quota from the group of this process up to the mount point; 0 = none. */
static int64_t tree_quota(const char *mount, const char *controller, const char *groups)
{
    char group[1024];
    int64_t least = 0;
    if (!base_cgroup_path(groups, controller, group, sizeof group))
        return 0;
    for (;;) {
        int64_t quota =
            group_quota(mount, strcmp(group, "/") == 0 ? "" : group, *controller == '\0');
        if (quota && (!least || quota < least))
            least = quota;
        char *slash = strrchr(group, '/');
        if (!slash || !slash[1])
            return least;
        slash[slash == group] = '\0'; /* "/a/b" → "/a" → "/" */
    }
}

static int64_t cpu_quota(void)
{
    static const struct {
        const char *mount, *controller;
    } trees[] = {
        {"/sys/fs/cgroup", ""},
        {"/sys/fs/cgroup/unified", ""},
        {"/sys/fs/cgroup/cpu", "cpu"},
        {"/sys/fs/cgroup/cpu,cpuacct", "cpu"},
    };
    char groups[8192];
    int64_t least = 0;
    if (!read_small("/proc/self/cgroup", groups, sizeof groups))
        return 0;
    for (size_t i = 0; i < COUNT_OF(trees); i++) {
        int64_t quota = tree_quota(trees[i].mount, trees[i].controller, groups);
        if (quota && (!least || quota < least))
            least = quota;
    }
    return least;
}

static int affinity_count(void)
{
    static const int max_cpus[] = {1024,
                                   65536}; /* the kernel refuses a mask smaller than its own */
    for (size_t i = 0; i < COUNT_OF(max_cpus); i++) {
        unsigned long mask[65536 / (8 * sizeof(long))] = {0};
        size_t bytes = (size_t)max_cpus[i] / 8;
        if (sched_getaffinity(0, bytes, (cpu_set_t *)mask) == 0)
            return CPU_COUNT_S(bytes, (cpu_set_t *)mask);
    }
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    return online > 0 ? (int)online : 1;
}

int base_cpu_count(void)
{
    int count = affinity_count();
    int64_t quota = cpu_quota();
    if (quota && quota / MILLI < count)
        count = (int)(quota / MILLI);
    return MAX(count, 1);
}

bool base_huge_pages(void)
{
    char text[64];
    return !read_small("/sys/kernel/mm/transparent_hugepage/enabled", text, sizeof text) ||
           strstr(text, "[never]") == NULL;
}
