/* Fit of a bundle and a machine.
 *   layer    L3 run; may include base, format, device
 *   input    the manifest is checked by its sum but still only text: the scanner never reads past its end and never recurses */
#include "run_verdict.h"
#include "dev_cpu.h"
#include <stdio.h>

/* ---- names ---- */

static const struct {
    const char *name, *action;
} fits[] = {
#define ROW(name, text, action) {text, action},
    RUN_VERDICT_TABLE(ROW)
#undef ROW
};

const char *run_fit_name(run_fit f) { return fits[f].name; }
const char *run_fit_action(run_fit f) { return fits[f].action; }

/* ---- a member of a JSON text ---- */

static const char *skip_space(const char *s) { return s + strspn(s, " \t\r\n"); }

/* Past the closing quote of a string that starts at s, or NULL. */
static const char *skip_string(const char *s)
{
    for (s++; *s && *s != '"'; s++) {
        if (*s == '\\' && *++s == '\0')
            return NULL;
    }
    return *s ? s + 1 : NULL;
}

/* Past the value that starts at s, or NULL. Brackets are counted, not matched: this is our own text. */
static const char *skip_value(const char *s)
{
    int depth = 0;
    do {
        if (*s == '"') {
            s = skip_string(s);
            if (!s)
                return NULL;
            continue;
        }
        if (*s == '\0')
            return NULL;
        if (*s == '{' || *s == '[')
            depth++;
        else if (*s == '}' || *s == ']')
            depth--;
        s++;
    } while (depth > 0 || (depth == 0 && *s && !strchr(",}] \t\r\n", *s)));
    return s;
}

/* Start of the value of member key[0..len) of the object at s, or NULL. */
static const char *find_member(const char *s, const char *key, size_t len)
{
    if (*s != '{')
        return NULL;
    s = skip_space(s + 1);
    while (*s == '"') {
        const char *name = s + 1, *after = skip_string(s);
        if (!after)
            return NULL;
        s = skip_space(after);
        if (*s != ':')
            return NULL;
        s = skip_space(s + 1);
        if ((size_t)(after - 1 - name) == len && memcmp(name, key, len) == 0)
            return s;
        s = skip_value(s);
        if (!s)
            return NULL;
        s = skip_space(s);
        if (*s != ',')
            return NULL;
        s = skip_space(s + 1);
    }
    return NULL;
}

bool run_json_get(const char *json, const char *path, char *out, size_t cap)
{
    const char *s = skip_space(json);
    for (const char *part = path; part;) {
        const char *dot = strchr(part, '.');
        s = find_member(s, part, dot ? (size_t)(dot - part) : strlen(part));
        if (!s)
            return false;
        part = dot ? dot + 1 : NULL;
    }
    const char *end = skip_value(s);
    if (!end || cap == 0)
        return false;
    bool quoted = *s == '"';
    size_t n = 0;
    for (s += quoted; s < end - quoted && n + 1 < cap; s++) {
        if (quoted && *s == '\\')
            s++;
        out[n++] = *s;
    }
    out[n] = '\0';
    return true;
}

/* ---- checks ---- */

static run_check *add_check(run_verdict *v, const char *field, const char *built_for,
                            const char *found, run_fit fit, bool tuned_only)
{
    run_check *c = &v->checks[v->n_checks++];
    c->field = field;
    snprintf(c->built_for, sizeof c->built_for, "%s", built_for);
    snprintf(c->found, sizeof c->found, "%s", found);
    c->fit = fit;
    c->tuned_only = tuned_only;
    return c;
}

/* The levels present in any plan, the highest that the machine allows, and the plan that serves it. */
static void check_level(run_verdict *v, const fmt_bundle *b, fmt_isa allowed)
{
    char built[64] = "";
    v->isa = allowed;
    v->plan = NULL;
    for (int isa = FMT_ISA_V4; isa >= FMT_ISA_V2; isa--) {
        const fmt_plan *plan = fmt_bundle_plan(b, (fmt_isa)isa);
        if (!plan)
            continue;
        snprintf(built + strlen(built), sizeof built - strlen(built), "%s%s", *built ? " " : "",
                 dev_isa_name(isa));
        if (isa <= (int)allowed && !v->plan) {
            v->isa = (fmt_isa)isa;
            v->plan = plan;
        }
    }
    run_fit fit = !v->plan ? RUN_REFUSE : v->isa == allowed ? RUN_EXACT : RUN_SUPERSET;
    add_check(v, "isa", built, dev_isa_name(allowed), fit, false);
    if (!v->plan)
        v->plan = b->plan[0];
    if (fit != RUN_REFUSE && v->plan != b->plan[0])
        add_check(v, "level of the preferred plan",
                  dev_isa_name(b->plan[0]->n_rows ? b->plan[0]->rows[0].isa : 0),
                  dev_isa_name(allowed), RUN_RETUNE, false);
}

static void check_kabi(run_verdict *v, const fmt_plan *p)
{
    char built[16], found[16];
    snprintf(built, sizeof built, "%u", p->kabi);
    snprintf(found, sizeof found, "%d", FMT_KABI_VERSION);
    add_check(v, "kernel call contract", built, found,
              p->kabi == FMT_KABI_VERSION ? RUN_EXACT : RUN_REJIT, false);
}

static void check_facts(run_verdict *v, const char *manifest, const char *facts)
{
    static const struct {
        const char *field, *path;
        run_fit differs;
        bool tuned_only;
    } table[] = {
        {"processor architecture", "built.arch", RUN_REFUSE, false},
        {"processor", "built.cpu", RUN_RETUNE, true},
        {"processor model", "built.model", RUN_RETUNE, true},
        {"processors to use", "built.cores", RUN_RETUNE, true},
        {"L2 cache, KiB", "built.l2_kib", RUN_RETUNE, true},
        {"L3 cache, KiB", "built.l3_kib", RUN_RETUNE, true},
    };
    _Static_assert(COUNT_OF(table) + 3 <= RUN_CHECKS_MAX, "all checks fit");
    for (size_t i = 0; i < COUNT_OF(table); i++) {
        char built[64], found[64];
        if (!run_json_get(manifest, table[i].path, built, sizeof built) ||
            !run_json_get(facts, strchr(table[i].path, '.') + 1, found, sizeof found))
            continue;
        add_check(v, table[i].field, built, found,
                  strcmp(built, found) == 0 ? RUN_EXACT : table[i].differs, table[i].tuned_only);
    }
}

static run_fit fit_of_kernel(const run_verdict *v, const fmt_kernel *k)
{
    run_fit fit = RUN_EXACT;
    for (uint32_t i = 0; i < v->n_checks; i++) {
        if (!v->checks[i].tuned_only || k->origin == FMT_TUNED)
            fit = MAX(fit, v->checks[i].fit);
    }
    if (fit == RUN_REJIT && k->source == 0) /* nothing to compile it from */
        fit = RUN_REFUSE;
    return fit;
}

rtx_status run_verdict_of(const fmt_bundle *bundle, const char *manifest,
                          const run_machine *machine, run_verdict *out, rtx_err *err)
{
    run_verdict v = {0};
    check_level(&v, bundle, machine->isa);
    check_kabi(&v, v.plan);
    check_facts(&v, manifest, machine->facts);
    v.n_kernels = v.plan->n_kernels;
    TRY_ALLOC(v.kernel = base_zalloc(BASE_TAG_RUN, v.n_kernels), err);
    for (uint32_t i = 0; i < v.n_checks;
         i++) { /* a refusal holds even for a program without kernels */
        if (v.checks[i].fit == RUN_REFUSE)
            v.worst = RUN_REFUSE;
    }
    for (uint32_t i = 0; i < v.plan->n_rows; i++) {
        const fmt_row *row = &v.plan->rows[i];
        if (row->isa != v.isa)
            continue;
        run_fit fit = fit_of_kernel(&v, &v.plan->kernels[row->kernel]);
        v.kernel[row->kernel] = (uint8_t)fit;
        v.worst = MAX(v.worst, fit);
    }
    *out = v;
    return RTX_OK;
}

void run_verdict_done(run_verdict *v)
{
    base_free(v->kernel);
    v->kernel = NULL;
}

rtx_status run_verdict_allows(const run_verdict *v, rtx_err *err)
{
    if (v->worst < RUN_REJIT)
        return RTX_OK;
    const run_check *worst = &v->checks[0];
    for (uint32_t i = 1; i < v->n_checks; i++) {
        if (v->checks[i].fit > worst->fit)
            worst = &v->checks[i];
    }
    return FAIL(err, UNSUPPORTED, "%s: built for %s, found %s; %s", worst->field, worst->built_for,
                worst->found, run_fit_action(v->worst));
}

/* ---- report ---- */

static void json_string(base_buf *b, const char *s)
{
    base_buf_put(b, "\"", 1);
    for (; *s; s++) {
        unsigned char c = (unsigned char)*s;
        if (c == '"' || c == '\\')
            base_buf_printf(b, "\\%c", c);
        else if (c < ' ')
            base_buf_printf(b, "\\u%04x", c);
        else
            base_buf_put(b, s, 1);
    }
    base_buf_put(b, "\"", 1);
}

void run_verdict_json(const run_verdict *v, base_buf *out)
{
    base_buf_printf(out, "{\"isa\":\"%s\",\"fit\":\"%s\",\"checks\":[", dev_isa_name(v->isa),
                    run_fit_name(v->worst));
    for (uint32_t i = 0; i < v->n_checks; i++) {
        const run_check *c = &v->checks[i];
        base_buf_puts(out, i ? ",{\"field\":" : "{\"field\":");
        json_string(out, c->field);
        base_buf_puts(out, ",\"built_for\":");
        json_string(out, c->built_for);
        base_buf_puts(out, ",\"found\":");
        json_string(out, c->found);
        base_buf_printf(out, ",\"fit\":\"%s\",\"action\":", run_fit_name(c->fit));
        json_string(out, run_fit_action(c->fit));
        base_buf_puts(out, "}");
    }
    base_buf_puts(out, "],\"kernels\":[");
    for (uint32_t i = 0; i < v->n_kernels; i++) {
        base_buf_puts(out, i ? ",{\"name\":" : "{\"name\":");
        json_string(out, fmt_str_get(v->plan, v->plan->kernels[i].name));
        base_buf_printf(out, ",\"fit\":\"%s\"}", run_fit_name((run_fit)v->kernel[i]));
    }
    base_buf_puts(out, "]}");
}
