/* include/rtx/compile.h: JSON options in, JSON report out, around pipe_compile.
 *   layer      top, beside pipeline.c
 *   owner      texts that leave are base_alloc memory, freed by rtx_free
 *   rule       an unknown or ill-typed key is INVALID and named: a misspelt option must not be a silent default */
#include "pipe_api.h"
#include "rtx/compile.h"
#include <locale.h>
#include <math.h>
#include <pthread.h>

/* ---- the log: forwarded to the user, warnings kept for the report ---- */

enum { WARNINGS_MAX = 100 };

static struct {
    pthread_mutex_t lock;
    void (*fn)(void *user, int level, const char *line);
    void *user;
    json_t *warnings; /* NULL while no compilation runs */
} sink = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void on_log(void *unused, int level, const char *line)
{
    (void)unused;
    pthread_mutex_lock(&sink.lock);
    if (level == 0 && sink.warnings && json_array_size(sink.warnings) < WARNINGS_MAX)
        json_array_append_new(sink.warnings, json_string(line));
    void (*fn)(void *, int, const char *) = sink.fn;
    void *user = sink.user;
    pthread_mutex_unlock(&sink.lock);
    if (fn != NULL)
        fn(user, level, line);
}

void rtx_log_to(void (*fn)(void *user, int level, const char *line), void *user)
{
    pthread_mutex_lock(&sink.lock);
    sink.fn = fn;
    sink.user = user;
    pthread_mutex_unlock(&sink.lock);
    base_log_set(on_log, NULL);
}

static void collect_warnings(json_t *into)
{
    pthread_mutex_lock(&sink.lock);
    sink.warnings = into;
    pthread_mutex_unlock(&sink.lock);
    base_log_set(on_log, NULL);
}

/* ---- report ---- */

json_t *pipe_report_object(const pipe_report *r)
{
    const tun_report *t = &r->tuning;
    double other = t->wall_s - t->compile_s - t->validate_s - t->measure_s - t->other_s;
    json_t *ledger = json_pack("{s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f}", "passes",
                               r->passes_s, "lower", r->lower_s, "tune", r->tune_s, "tune_compile",
                               t->compile_s, "tune_validate", t->validate_s, "tune_measure",
                               t->measure_s, "tune_other", t->other_s, "tune_unaccounted",
                               MAX(other, 0.0), "write", r->write_s, "total", r->total_s);
    json_t *kernels = json_pack("{s:i, s:i}", "tuned", (int)r->n_kernels_tuned, "precompiled",
                                (int)r->n_kernels_ready);
    json_t *o = json_pack(
        "{s:i, s:i, s:i, s:i, s:i, s:i, s:o, s:I, s:I, s:I, s:f, s:o, s:f}", "cache_keys",
        (int)t->keys, "cache_hits", (int)t->hits, "problems", (int)r->n_slots, "candidates",
        (int)t->candidates, "rejected", (int)t->rejected, "compiled", (int)t->compiled, "kernels",
        kernels, "file_bytes", (json_int_t)r->file_bytes, "const_bytes", (json_int_t)r->const_bytes,
        "code_bytes", (json_int_t)r->code_bytes, "seconds", r->total_s, "ledger", ledger,
        "predicted_ms", r->predicted_ns * 1e-6);
    if (o && r->no_compiler)
        json_object_set_new(o, "untuned", json_string(r->why_untuned));
    return o;
}

static int put_chunk(const char *data, size_t n, void *buf)
{
    base_buf_put(buf, data, n);
    return 0;
}

void pipe_report_json(const pipe_report *r, base_buf *out)
{
    json_t *o = pipe_report_object(r);
    if (o == NULL || json_dump_callback(o, put_chunk, out, JSON_COMPACT) != 0)
        out->failed = true;
    json_decref(o);
}

rtx_status pipe_compile_report(const char *model, const pipe_options *opt, const char *out_path,
                               json_t **out_report, rtx_err *err)
{
    pipe_report r = {0};
    json_t *warnings = json_array(), *o;
    locale_t c = newlocale(LC_NUMERIC_MASK, "C", (locale_t)0);
    if (c == (locale_t)0) {
        json_decref(warnings);
        return FAIL(err, NOMEM, "out of memory");
    }
    locale_t callers = uselocale(c); /* every stage writes numbers: kernels, keys, evidence */
    collect_warnings(warnings);
    rtx_status s = pipe_compile(model, opt, out_path, &r, err);
    collect_warnings(NULL);
    uselocale(callers);
    freelocale(c);
    o = s == RTX_OK ? pipe_report_object(&r) : NULL;
    if (s == RTX_OK && (o == NULL || json_object_set_new(o, "warnings", warnings) != 0)) {
        json_decref(o);
        return FAIL(err, NOMEM, "out of memory");
    }
    if (s != RTX_OK)
        json_decref(warnings);
    *out_report = o;
    return s;
}

/* ---- options ---- */

typedef struct opts {
    pipe_options o;
    base_arena mem; /* data of binds; names lie in the parsed JSON */
} opts;

#define WANT(cond, ...)                                                                            \
    do {                                                                                           \
        if (!(cond))                                                                               \
            return FAIL(err, INVALID, __VA_ARGS__);                                                \
    } while (0)

static rtx_status read_tune(opts *s, json_t *v, rtx_err *err)
{
    static const char *const names[] = {"off", "quick", "full"};
    for (int i = 0; i < 3; i++)
        if (json_is_string(v) && strcmp(json_string_value(v), names[i]) == 0) {
            s->o.tune = (pipe_tune)i;
            return RTX_OK;
        }
    return FAIL(err, INVALID, "option tune wants \"off\", \"quick\" or \"full\"");
}

static rtx_status read_isa(opts *s, json_t *v, rtx_err *err)
{
    const char *t = json_string_value(v);
    WANT(t && t[0] == 'v' && t[1] >= '2' && t[1] <= '4' && t[2] == '\0',
         "option isa wants \"v2\", \"v3\" or \"v4\"");
    s->o.isa = (fmt_isa)(t[1] - '0');
    return RTX_OK;
}

static rtx_status read_threads(opts *s, json_t *v, rtx_err *err)
{
    size_t n = json_is_integer(v) ? 1 : json_array_size(v);
    WANT(n > 0 && n <= PIPE_VALUES_MAX, "option threads wants a count, or a list of 1 to %d counts",
         PIPE_VALUES_MAX);
    s->o.n_threads = 0;
    for (size_t i = 0; i < n; i++) {
        json_t *e = json_is_integer(v) ? v : json_array_get(v, i);
        json_int_t t = json_integer_value(e);
        WANT(json_is_integer(e) && t >= 1 && t <= BASE_POOL_MAX,
             "option threads wants counts from 1 to %d", BASE_POOL_MAX);
        int at = s->o.n_threads;
        while (at > 0 && s->o.threads[at - 1] >= t)
            at--;
        if (at < s->o.n_threads && s->o.threads[at] == t)
            continue;
        memmove(&s->o.threads[at + 1], &s->o.threads[at],
                (size_t)(s->o.n_threads - at) * sizeof s->o.threads[0]);
        s->o.threads[at] = (int)t;
        s->o.n_threads++;
    }
    return RTX_OK;
}

static rtx_status read_budget(opts *s, json_t *v, rtx_err *err)
{
    s->o.budget_s = json_number_value(v);
    WANT(json_is_number(v) && s->o.budget_s >= 0 && isfinite(s->o.budget_s),
         "option budget wants seconds, 0 = the default");
    return RTX_OK;
}

static rtx_status read_cache(opts *s, json_t *v, rtx_err *err)
{
    WANT(json_is_string(v) || json_is_null(v),
         "option cache wants a folder, \"\" for none, or null for the default");
    s->o.cache = json_string_value(v);
    return RTX_OK;
}

static rtx_status read_bool(const char *key, bool *out, json_t *v, rtx_err *err)
{
    WANT(json_is_boolean(v), "option %s wants true or false", key);
    *out = json_is_true(v);
    return RTX_OK;
}

static rtx_status read_deterministic(opts *s, json_t *v, rtx_err *err)
{
    return read_bool("deterministic", &s->o.deterministic, v, err);
}
static rtx_status read_baseline(opts *s, json_t *v, rtx_err *err)
{
    bool on = false;
    TRY(read_bool("baseline", &on, v, err));
    s->o.without = on ? PIPE_BASELINE : 0;
    return RTX_OK;
}
static rtx_status read_redo(opts *s, json_t *v, rtx_err *err)
{
    return read_bool("redo", &s->o.redo, v, err);
}

/* "1x128" or [1, 128]. */
static rtx_status read_size_list(const char *key, const char *name, json_t *v, pipe_sizes *out,
                                 rtx_err *err)
{
    *out = (pipe_sizes){.name = name};
    const char *t = json_string_value(v);
    while (t && *t) {
        int64_t n = 0;
        WANT(*t >= '0' && *t <= '9' && out->n < PIPE_VALUES_MAX,
             "option %s.%s wants sizes such as \"1x128\"", key, name);
        for (; *t >= '0' && *t <= '9'; t++) {
            n = n * 10 + (*t - '0');
            WANT(n <= FMT_DIM_LIMIT, "option %s.%s: a size is too large", key, name);
        }
        out->value[out->n++] = n;
        WANT(*t == '\0' || (*t == 'x' && t[1]), "option %s.%s wants sizes such as \"1x128\"", key,
             name);
        t += *t == 'x';
    }
    WANT(t || (json_is_array(v) && json_array_size(v) <= PIPE_VALUES_MAX),
         "option %s.%s wants a list of at most %d sizes", key, name, PIPE_VALUES_MAX);
    for (size_t i = 0; i < json_array_size(v); i++) {
        json_t *e = json_array_get(v, i);
        WANT(json_is_integer(e) && json_integer_value(e) >= 0 &&
                 json_integer_value(e) <= FMT_DIM_LIMIT,
             "option %s.%s wants sizes of at least 0", key, name);
        out->value[out->n++] = json_integer_value(e);
    }
    return RTX_OK;
}

static rtx_status read_sizes(const char *key, json_t *v, pipe_sizes *out, int *out_n, rtx_err *err)
{
    const char *name;
    json_t *e;
    WANT(json_is_object(v) && json_object_size(v) <= PIPE_LIST_MAX,
         "option %s wants an object of at most %d members", key, PIPE_LIST_MAX);
    json_object_foreach(v, name, e) TRY(read_size_list(key, name, e, &out[(*out_n)++], err));
    return RTX_OK;
}

static rtx_status read_shapes(opts *s, json_t *v, rtx_err *err)
{
    return read_sizes("shapes", v, s->o.shapes, &s->o.n_shapes, err);
}

static rtx_status read_buckets(opts *s, json_t *v, rtx_err *err)
{
    TRY(read_sizes("buckets", v, s->o.buckets, &s->o.n_buckets, err));
    for (int i = 0; i < s->o.n_buckets; i++) {
        pipe_sizes *b = &s->o.buckets[i];
        for (int k = 0; k < b->n; k++)
            WANT(b->value[k] >= 1 && (k == 0 || b->value[k] > b->value[k - 1]),
                 "option buckets.%s wants rising sizes of at least 1", b->name);
        WANT(b->n > 0, "option buckets.%s is empty", b->name);
    }
    return RTX_OK;
}

static rtx_status read_bounds(opts *s, json_t *v, rtx_err *err)
{
    TRY(read_sizes("bounds", v, s->o.bounds, &s->o.n_bounds, err));
    for (int i = 0; i < s->o.n_bounds; i++)
        WANT(s->o.bounds[i].n == 2, "option bounds.%s wants [lo, hi]", s->o.bounds[i].name);
    return RTX_OK;
}

static void store(fmt_dtype t, void *data, size_t i, json_t *e)
{
    double d = json_is_boolean(e) ? json_is_true(e) : json_number_value(e);
    int64_t n = json_is_integer(e)   ? json_integer_value(e)
                : json_is_boolean(e) ? json_is_true(e)
                                     : (int64_t)d;
    switch (t) {
    case FMT_F32:
        ((float *)data)[i] = (float)d;
        break;
    case FMT_F64:
        ((double *)data)[i] = d;
        break;
    case FMT_I64:
        ((int64_t *)data)[i] = n;
        break;
    case FMT_I32:
        ((int32_t *)data)[i] = (int32_t)n;
        break;
    default:
        ((uint8_t *)data)[i] = n != 0;
        break;
    }
}

static rtx_status read_bind(opts *s, const char *name, json_t *v, rtx_err *err)
{
    const char *key;
    json_t *e, *data = json_object_get(v, "data"), *shape = json_object_get(v, "shape");
    const char *dtype = json_string_value(json_object_get(v, "dtype"));
    WANT(json_is_object(v), "option binds.%s wants an object with dtype, shape and data", name);
    json_object_foreach(v, key, e)
        WANT(strcmp(key, "dtype") == 0 || strcmp(key, "shape") == 0 || strcmp(key, "data") == 0,
             "option binds.%s has no member %s", name, key);
    fe_bind b = {.name = name, .dtype = dtype ? fmt_dtype_parse(dtype, strlen(dtype)) : FMT_NONE};
    WANT(b.dtype == FMT_F32 || b.dtype == FMT_F64 || b.dtype == FMT_I64 || b.dtype == FMT_I32 ||
             b.dtype == FMT_BOOL,
         "option binds.%s.dtype wants f32, f64, i64, i32 or bool", name);
    pipe_sizes dims;
    TRY(read_size_list("binds", name, shape ? shape : json_null(), &dims, err));
    WANT(dims.n <= FMT_RANK_MAX, "option binds.%s.shape has more than %d sizes", name,
         FMT_RANK_MAX);
    size_t n = 1, given = json_is_array(data) ? json_array_size(data) : 1;
    b.rank = dims.n;
    for (int i = 0; i < b.rank; i++) {
        b.dim[i] = dims.value[i];
        WANT(!__builtin_mul_overflow(n, (size_t)b.dim[i], &n), "option binds.%s.shape is too large",
             name);
    }
    WANT(data && given == n, "option binds.%s.data has %zu values, its shape needs %zu", name,
         data ? given : 0, n);
    void *bytes = base_arena_alloc(&s->mem, (n + 1) * fmt_dtype_bytes(b.dtype));
    TRY_ALLOC(bytes, err);
    for (size_t i = 0; i < n; i++) {
        e = json_is_array(data) ? json_array_get(data, i) : data;
        WANT(json_is_number(e) || json_is_boolean(e),
             "option binds.%s.data wants a flat list of numbers", name);
        store(b.dtype, bytes, i, e);
    }
    b.data = bytes;
    s->o.binds[s->o.n_binds++] = b;
    return RTX_OK;
}

static rtx_status read_binds(opts *s, json_t *v, rtx_err *err)
{
    const char *name;
    json_t *e;
    WANT(json_is_object(v) && json_object_size(v) <= PIPE_LIST_MAX,
         "option binds wants an object of at most %d members", PIPE_LIST_MAX);
    json_object_foreach(v, name, e) TRY(read_bind(s, name, e, err));
    return RTX_OK;
}

#define OPTION_TABLE(X)                                                                            \
    X(tune)                                                                                        \
    X(threads)                                                                                     \
    X(budget)                                                                                      \
    X(cache) X(shapes) X(buckets) X(bounds) X(deterministic) X(isa) X(baseline) X(redo) X(binds)

static const struct option_row {
    const char *name;
    rtx_status (*read)(opts *s, json_t *v, rtx_err *err);
} option_rows[] = {
#define ROW(name) {#name, read_##name},
    OPTION_TABLE(ROW)
#undef ROW
};

static rtx_status read_options(json_t *root, opts *s, rtx_err *err)
{
    const char *key;
    json_t *v;
    json_object_foreach(root, key, v)
    {
        size_t i = 0;
        while (i < COUNT_OF(option_rows) && strcmp(option_rows[i].name, key) != 0)
            i++;
        WANT(i < COUNT_OF(option_rows),
             "there is no option %.60s; known are tune, threads, budget, cache, shapes, buckets, "
             "bounds, deterministic, isa, baseline, redo and binds",
             key);
        TRY(option_rows[i].read(s, v, err));
    }
    return RTX_OK;
}

/* ---- public ---- */

static struct {
    pthread_mutex_t lock;
    int n;
} running = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* A request to cancel holds for all that run: the first to begin and the last to end clear it. */
static void count_running(int by)
{
    pthread_mutex_lock(&running.lock);
    running.n += by;
    if (running.n == (by > 0))
        base_cancelled = 0;
    pthread_mutex_unlock(&running.lock);
}

RTX_API rtx_status rtx_compile(const char *model, const char *options, const char *out_path,
                               char **out_report, rtx_err *err)
{
    json_error_t je;
    if (model == NULL || out_path == NULL)
        return FAIL(err, INVALID, "rtx_compile wants a model and an output path");
    json_t *root = json_loads(options && *options ? options : "{}", JSON_REJECT_DUPLICATES, &je),
           *report = NULL;
    if (!json_is_object(root)) {
        rtx_status bad = root ? FAIL(err, INVALID, "options must be a JSON object")
                              : FAIL(err, INVALID, "options are no JSON: %s (line %d, column %d)",
                                     je.text, je.line, je.column);
        json_decref(root);
        return bad;
    }
    opts s = {.o = {.tune = PIPE_QUICK}};
    base_arena_init(&s.mem, BASE_TAG_CLI, (size_t)1 << 30);
    count_running(1);
    rtx_status st = read_options(root, &s, err);
    if (st == RTX_OK)
        st = pipe_compile_report(model, &s.o, out_path, &report, err);
    count_running(-1);
    if (st == RTX_OK && out_report != NULL) {
        base_buf text;
        base_buf_init(&text, BASE_TAG_CLI, (size_t)1 << 26);
        json_dump_callback(report, put_chunk, &text, JSON_COMPACT);
        *out_report = base_buf_take(&text, NULL);
        base_buf_done(&text);
        if (*out_report == NULL)
            st = FAIL(err, NOMEM, "compiled, but there is no memory for the report");
    }
    json_decref(report);
    json_decref(root);
    base_arena_done(&s.mem);
    return st;
}

RTX_API char *rtx_unsupported_report(void)
{
    char *t = fe_take_report();
    return t;
}

RTX_API void rtx_cancel(void) { base_cancelled = 1; }

RTX_API void rtx_free(void *text) { base_free(text); }
