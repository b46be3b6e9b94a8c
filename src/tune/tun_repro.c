/* One candidate on its own: the file that holds it, and the verdict that a tuning run gives.
 *   file     docs/tuning.md; lines up to the problem's text, then that, then, for a template that is not in this version's
 *            table, a line "body" and the template's body to the end
 *   verdict  the small cases around the points, the largest point, then one sample a point as in screening */
#include "tun_int.h"
#include "dev_cpu.h"
#include <ctype.h>
#include <stdlib.h>

#define HEAD       "rtx-repro 1"
#define LINE_BYTES 1024
#define TEXT_MAX   ((size_t)16 << 20)
#define KERNEL     "repro"
#define SAMPLE_NS  UINT64_C(1000000)

/* ---- reading ---- */

static bool is_listed(const syn_template *t)
{
    size_t n;
    const syn_template *all = syn_template_table(&n);
    return t >= all && t < all + n;
}

static const syn_template *find_listed(const char *name)
{
    size_t n;
    const syn_template *all = syn_template_table(&n);
    for (size_t i = 0; i < n; i++)
        if (strcmp(all[i].name, name) == 0)
            return &all[i];
    return NULL;
}

/* An integer of lo…hi behind blanks; *at moves behind it. */
static bool take_int(const char **at, int64_t lo, int64_t hi, int64_t *out)
{
    char *end;
    const char *from = *at + strspn(*at, " ");
    if (!isdigit((unsigned char)*from) && *from != '-')
        return false;
    *out = strtoll(from, &end, 10);
    if (end == from || *out < lo || *out > hi)
        return false;
    *at = end;
    return true;
}

static rtx_status parse_sizes(tun_repro *r, const char *at, uint32_t *n_sym, rtx_err *err)
{
    if (r->n_points == TUN_REPRO_POINTS)
        return FAIL(err, INVALID, "more than %d lines of sizes", TUN_REPRO_POINTS);
    tun_point *p = &r->point[r->n_points];
    uint32_t n = 0;
    *p = (tun_point){.threads = 1, .weight = 1};
    while (n < SYN_SYMS_MAX && take_int(&at, 0, FMT_DIM_LIMIT, &p->sym[n]))
        n++;
    if (*at)
        return FAIL(err, INVALID, "sizes: cannot read '%.40s'", at);
    if (r->n_points && n != *n_sym)
        return FAIL(err, INVALID, "lines of sizes differ in length");
    *n_sym = n;
    r->n_points++;
    return RTX_OK;
}

/* One "NAME=v" and the blank behind it; *at moves behind both. */
static bool take_param(const char **at, char *name, size_t cap, int64_t *out)
{
    size_t n = strcspn(*at, "= ");
    if (n == 0 || n >= cap || (*at)[n] != '=')
        return false;
    for (size_t i = 0; i < n; i++)
        if (!isalnum((unsigned char)(*at)[i]) && (*at)[i] != '_')
            return false;
    memcpy(name, *at, n);
    name[n] = 0;
    *at += n + 1;
    return take_int(at, -FMT_DIM_LIMIT, FMT_DIM_LIMIT, out) && (!**at || *(*at)++ == ' ');
}

/* The values of a template of the file's own: they are the only ones of its parameters. */
static rtx_status own_params(tun_repro *r, const char *at, rtx_err *err)
{
    r->own = (syn_template){.name = r->templ,
                            .file = KERNEL,
                            .text = r->body,
                            .text_bytes = strlen(r->body),
                            .text_line = 1,
                            .params = r->param,
                            .require = ""};
    r->variant.templ = &r->own;
    for (uint32_t i = 0; *at; i++) {
        const char *word = at;
        if (i == SYN_PARAMS_MAX ||
            !take_param(&at, r->name[i], sizeof r->name[i], &r->variant.value[i]))
            return FAIL(err, INVALID, "cannot read parameter '%.60s'", word);
        r->param[i] = (syn_param){r->name[i], r->variant.value[i], &r->variant.value[i], 1, ""};
        r->own.n_params = i + 1;
    }
    return RTX_OK;
}

/* Parameters that the line leaves out have their default, so that kept files outlive new ones. */
static rtx_status listed_params(tun_repro *r, const char *at, rtx_err *err)
{
    const syn_template *t = find_listed(r->templ);
    if (!t)
        return FAIL(err, UNSUPPORTED, "this version has no template %s", r->templ);
    r->variant.templ = t;
    for (uint32_t i = 0; i < t->n_params; i++)
        r->variant.value[i] = t->params[i].def;
    while (*at) {
        const char *word = at;
        char name[32];
        int64_t v;
        uint32_t i = 0;
        if (!take_param(&at, name, sizeof name, &v))
            return FAIL(err, INVALID, "cannot read parameter '%.60s'", word);
        while (i < t->n_params && strcmp(t->params[i].name, name) != 0)
            i++;
        if (i == t->n_params)
            return FAIL(err, UNSUPPORTED, "%s has no parameter %s in this version", t->name, name);
        r->variant.value[i] = v;
    }
    return RTX_OK;
}

/* The line of the variant, read last: whether there is a body decides what its names mean. */
static rtx_status parse_variant(tun_repro *r, const char *line, rtx_err *err)
{
    size_t n = strcspn(line, " ");
    const char *params = line + n + (line[n] == ' ');
    if (n == 0 || n >= sizeof r->templ)
        return FAIL(err, INVALID, "no line `variant TEMPLATE PARAMS`");
    memcpy(r->templ, line, n);
    r->templ[n] = 0;
    return r->body ? own_params(r, params, err) : listed_params(r, params, err);
}

static rtx_status parse_isa(tun_repro *r, const char *name, rtx_err *err)
{
    for (int isa = FMT_ISA_V2; isa <= FMT_ISA_V4; isa++)
        if (strcmp(name, dev_isa_name(isa)) == 0)
            return r->isa = (fmt_isa)isa, RTX_OK;
    return FAIL(err, INVALID, "level '%.20s' is none of v2, v3, v4", name);
}

typedef struct head { /* what is read only once all lines are known */
    char variant[LINE_BYTES];
    int64_t threads;
    uint32_t n_sym;
} head;

/* What stands behind a word that the line begins with; NULL if it does not. */
static const char *after(const char *line, const char *word)
{
    size_t n = strlen(word);
    return strncmp(line, word, n) == 0 ? line + n : NULL;
}

/* One line before the problem's text. */
static rtx_status parse_line(tun_repro *r, const char *line, head *h, rtx_err *err)
{
    const char *rest;
    if (*line == 0 || *line == '#')
        return RTX_OK;
    if ((rest = after(line, "isa ")))
        return parse_isa(r, rest, err);
    if ((rest = after(line, "sizes")))
        return parse_sizes(r, rest, &h->n_sym, err);
    if ((rest = after(line, "threads ")))
        return take_int(&rest, 1, BASE_POOL_MAX, &h->threads) && !*rest
                   ? RTX_OK
                   : FAIL(err, INVALID, "threads: wanted 1 to %d", BASE_POOL_MAX);
    if ((rest = after(line, "variant ")))
        snprintf(h->variant, sizeof h->variant, "%s", rest);
    else if ((rest = after(line, "expect ")))
        snprintf(r->expect, sizeof r->expect, "%.255s", rest);
    else
        return FAIL(err, INVALID, "cannot read '%.60s'", line);
    return RTX_OK;
}

/* Lines up to the one that begins the problem's text, where *at then stands. */
static rtx_status parse_head(tun_repro *r, const char **at, const char *end, head *h, rtx_err *err)
{
    for (bool first = true;; first = false) {
        char line[LINE_BYTES];
        const char *nl = *at < end ? memchr(*at, '\n', (size_t)(end - *at)) : NULL;
        size_t n = nl ? (size_t)(nl - *at) : 0;
        if (!nl || n >= sizeof line || memchr(*at, 0, n))
            return FAIL(err, INVALID, "no repro file: no line `problem 1`");
        memcpy(line, *at, n);
        line[n] = 0;
        if (first != (strcmp(line, HEAD) == 0))
            return FAIL(err, INVALID, "no repro file: its first line must be `%s`", HEAD);
        if (strcmp(line, "problem 1") == 0)
            return RTX_OK;
        if (!first)
            TRY(parse_line(r, line, h, err));
        *at = nl + 1;
    }
}

static rtx_status parse_into(tun_repro *r, const char *text, size_t len, rtx_err *err)
{
    static const char mark[] = "\nbody\n";
    const char *at = text, *end = text + len;
    head h = {.threads = 1};
    if (len > TEXT_MAX)
        return FAIL(err, LIMIT, "a repro file of more than %zu bytes", TEXT_MAX);
    TRY(parse_head(r, &at, end, &h, err));
    const char *body = memmem(at, (size_t)(end - at), mark, sizeof mark - 1),
               *stop = body ? body + 1 : end;
    if (body) {
        body += sizeof mark - 1;
        TRY_ALLOC(r->body = base_zalloc(BASE_TAG_TUNE, (size_t)(end - body) + 1), err);
        memcpy(r->body, body, (size_t)(end - body));
    }
    TRY(parse_variant(r, h.variant, err));
    syn_problem *p = NULL;
    TRY(syn_problem_parse(at, (size_t)(stop - at), &p, err));
    r->problem = p;
    if (r->n_points == 0 || h.n_sym != fmt_sym_count(p->dims))
        return FAIL(err, INVALID, "wanted lines `sizes` with one number a symbol: %u",
                    fmt_sym_count(p->dims));
    for (uint32_t i = 0; i < r->n_points; i++)
        r->point[i].threads = (int)h.threads;
    return RTX_OK;
}

rtx_status tun_repro_parse(const char *text, size_t len, tun_repro *out, rtx_err *err)
{
    memset(out, 0, sizeof *out);
    rtx_status s = parse_into(out, text, len, err);
    if (s != RTX_OK)
        tun_repro_done(out);
    return s;
}

void tun_repro_done(tun_repro *r)
{
    syn_problem_free((syn_problem *)(uintptr_t)r->problem);
    base_free(r->body);
    memset(r, 0, sizeof *r);
}

/* ---- writing ---- */

rtx_status tun_repro_print(const tun_repro *r, base_buf *out, rtx_err *err)
{
    base_buf_puts(out, HEAD "\n");
    if (r->expect[0])
        base_buf_printf(out, "expect %s\n", r->expect);
    if (r->isa)
        base_buf_printf(out, "isa %s\n", dev_isa_name(r->isa));
    base_buf_printf(out, "variant %s ", r->variant.templ->name);
    syn_variant_print(&r->variant, out);
    base_buf_printf(out, "\nthreads %d\n", r->n_points ? r->point[0].threads : 1);
    for (uint32_t i = 0; i < r->n_points; i++) {
        base_buf_puts(out, "sizes");
        for (uint32_t k = 0; k < fmt_sym_count(r->problem->dims); k++)
            base_buf_printf(out, " %lld", (long long)r->point[i].sym[k]);
        base_buf_puts(out, "\n");
    }
    TRY(syn_problem_text(r->problem, out, err));
    if (!is_listed(r->variant.templ)) {
        base_buf_puts(out, "body\n");
        base_buf_put(out, r->variant.templ->text, r->variant.templ->text_bytes);
    }
    return base_buf_ok(out, err);
}

/* ---- the verdict ---- */

static rtx_status level_of(const tun_repro *r, fmt_isa *out, rtx_err *err)
{
    fmt_isa host;
    TRY(dev_isa_allowed(&host, err));
    if (r->isa > host)
        return FAIL(err, UNSUPPORTED, "level %s: this machine does at most %s",
                    dev_isa_name(r->isa), dev_isa_name(host));
    *out = r->isa ? r->isa : host;
    return RTX_OK;
}

rtx_status tun_repro_source(const tun_repro *r, base_buf *out, rtx_err *err)
{
    fmt_isa isa = FMT_ISA_V2;
    rtx_err why = {0};
    TRY(level_of(r, &isa, err));
    TRY(syn_problem_check(r->problem, err));
    if (!syn_variant_legal(r->problem, &r->variant, isa, &why))
        return FAIL(err, UNSUPPORTED, "the variant is not legal for the problem at %s: %.300s",
                    dev_isa_name(isa), why.text);
    syn_unit_begin(out, isa);
    TRY(syn_unit_add(out, r->problem, &r->variant, isa, KERNEL, err));
    return base_buf_ok(out, err);
}

/* A rejection is an answer and goes into the verdict; everything else stays a failure. */
static rtx_status settle(rtx_status s, const rtx_err *why, tun_verdict *out, rtx_err *err)
{
    if (s != RTX_OK && !tun_is_verdict(s) && s != RTX_COMPILE) {
        if (err)
            *err = *why;
        return s;
    }
    if (s != RTX_OK)
        out->why = *why;
    return RTX_OK;
}

/* The object (base_free) and the code in it; NULL when the verdict is there already. */
static rtx_status compile(const tun_repro *r, fmt_isa isa, char **out_elf, tun_code *out,
                          tun_verdict *verdict, rtx_err *err)
{
    fmt_kobj obj;
    rtx_err why = {0};
    tun_cc cc;
    AUTO_BUF base_buf text;
    base_buf_init(&text, BASE_TAG_TUNE, SIZE_MAX);
    TRY(tun_repro_source(r, &text, err));
    TRY(tun_cc_open(&cc, err));
    tun_unit u = {.text = text.data, .flags = syn_flags(isa)};
    rtx_status s = tun_cc_run(&cc, &u, 1, 1, UINT64_MAX, err);
    tun_cc_close(&cc);
    AUTO_FREE char *elf = u.elf;
    TRY(s);
    if (!elf)
        return settle(u.err.code, &u.err, verdict, err);
    if (fmt_kobj_read(elf, u.elf_bytes, &obj, &why) != RTX_OK ||
        fmt_kobj_entry(elf, u.elf_bytes, KERNEL "_plan", &out->plan_entry, &why) != RTX_OK ||
        fmt_kobj_entry(elf, u.elf_bytes, KERNEL "_run", &out->run_entry, &why) != RTX_OK)
        return settle(RTX_COMPILE, &why, verdict, err);
    out->bytes = obj.code;
    out->n_bytes = obj.bytes;
    memcpy(out->sha256, base_sha256_of(obj.code, obj.bytes).b, sizeof out->sha256);
    *out_elf = TAKE(elf);
    return RTX_OK;
}

static rtx_status judge(tun_validator *v, const tun_code *code, tun_verdict *out, rtx_err *err)
{
    double error = 0;
    rtx_err why = {0};
    rtx_status s = tun_validate(v, code, &error, &why);
    out->error = MAX(out->error, error);
    return settle(s, &why, out, err);
}

static rtx_status judge_small(const tun_repro *r, tun_worker *w, const tun_code *code,
                              tun_verdict *out, rtx_err *err)
{
    tun_validator v;
    TRY(tun_validator_init(&v, w, r->problem, r->point, r->n_points, err));
    rtx_status s = judge(&v, code, out, err);
    tun_validator_done(&v);
    return s;
}

static const int64_t *largest(const tun_repro *r)
{
    uint32_t best = 0;
    double most = -1, flops, bytes;
    for (uint32_t i = 0; i < r->n_points; i++) {
        syn_cost(r->problem, r->point[i].sym, &flops, &bytes);
        if (flops + bytes > most) {
            most = flops + bytes;
            best = i;
        }
    }
    return r->point[best].sym;
}

/* As for a winner: what is too large to check is left to the small sizes. */
static rtx_status judge_largest(const tun_repro *r, tun_worker *w, const tun_code *code,
                                tun_verdict *out, rtx_err *err)
{
    tun_validator v;
    rtx_err why = {0};
    rtx_status s = tun_validator_init_at(&v, w, r->problem, largest(r), &why);
    if (s == RTX_UNSUPPORTED || s == RTX_LIMIT)
        return RTX_OK;
    if (s != RTX_OK) {
        if (err)
            *err = why;
        return s;
    }
    s = judge(&v, code, out, err);
    tun_validator_done(&v);
    return s;
}

static rtx_status time_points(const tun_repro *r, tun_timer *t, const tun_code *code,
                              tun_verdict *out, rtx_err *err)
{
    for (uint32_t i = 0; i < r->n_points && out->why.code == RTX_OK; i++) {
        tun_shape shape;
        rtx_err why = {0};
        TRY(tun_shape_init(r->problem, r->point[i].sym, 0, &shape, err));
        rtx_status s = tun_time(t, &shape, code, MIN(r->point[i].threads, base_cpu_count()),
                                SAMPLE_NS, &out->ns, &why);
        TRY(settle(s, &why, out, err));
    }
    return RTX_OK;
}

rtx_status tun_repro_check(const tun_repro *r, tun_verdict *out, rtx_err *err)
{
    AUTO_FREE char *elf = NULL;
    tun_code code = {0};
    tun_worker w = {.sock = -1, .mem_fd = -1};
    tun_timer timer;
    fmt_isa isa = FMT_ISA_V2;
    *out = (tun_verdict){0};
    TRY(level_of(r, &isa, err));
    TRY(compile(r, isa, &elf, &code, out, err));
    if (!elf)
        return RTX_OK;
    TRY(tun_worker_open(&w, err));
    rtx_status s = judge_small(r, &w, &code, out, err);
    if (s == RTX_OK && out->why.code == RTX_OK && fmt_sym_count(r->problem->dims))
        s = judge_largest(r, &w, &code, out, err);
    tun_timer_init(&timer, &w, isa);
    if (s == RTX_OK && out->why.code == RTX_OK)
        s = time_points(r, &timer, &code, out, err);
    tun_worker_close(&w);
    return s;
}
