/* The environment table and the log.
 *   layer    L0 base; the only file that calls getenv
 *   threads  all functions; a host that calls setenv while others read races, as everywhere in C */
#include "base_sys.h"
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

static const base_env_row rows[BASE_ENV_COUNT] = {
#define ENV(id, name, default_text, code, doc) {name, default_text, doc, code},
#include "base_env.def"
#undef ENV
};

const base_env_row *base_env_table(size_t *out_count)
{
    *out_count = BASE_ENV_COUNT;
    return rows;
}

bool base_env_is_set(base_env_id id) { return getenv(rows[id].name) != NULL; }

const char *base_env(base_env_id id)
{
    const char *text = getenv(rows[id].name);
    return text ? text : rows[id].default_text;
}

static bool parse_int(const char *text, int64_t *out)
{
    char *end;
    errno = 0;
    long long v =
        strtoll(text, &end, 10); /* saturates on overflow, which clamping then treats right */
    if (end == text || *end != '\0')
        return false;
    *out = v;
    return true;
}

int64_t base_env_int(base_env_id id, int64_t lo, int64_t hi)
{
    int64_t v = 0;
    if (!parse_int(base_env(id), &v) && !parse_int(rows[id].default_text, &v))
        v = 0;
    return MAX(lo, MIN(v, hi));
}

static struct {
    pthread_mutex_t lock;
    base_log_fn fn;
    void *user;
} sink = {.lock = PTHREAD_MUTEX_INITIALIZER};

void base_log_set(base_log_fn fn, void *user)
{
    pthread_mutex_lock(&sink.lock);
    sink.fn = fn;
    sink.user = user;
    pthread_mutex_unlock(&sink.lock);
}

/* The sink is called outside the lock: it may log or replace itself. Hence one line may still reach a sink that
 * another thread is just replacing. */
void base_log(int level, const char *fmt, ...)
{
    pthread_mutex_lock(&sink.lock);
    base_log_fn fn = sink.fn;
    void *user = sink.user;
    pthread_mutex_unlock(&sink.lock);
    if (!fn || (level > 0 && level > base_env_int(BASE_ENV_DEBUG, 0, 7)))
        return;
    char line[1024];
    va_list args;
    va_start(args, fmt);
    vsnprintf(line, sizeof line, fmt, args);
    va_end(args);
    fn(user, level, line);
}
