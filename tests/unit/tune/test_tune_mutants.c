/* Mutants made by rule from the real templates go the way of every candidate: rendered, compiled, validated in the worker.
 *   rules      replace one occurrence of a token pattern, or drop one line; comments and conditions of #if are left alone
 *   beds       problems a template is tried on, at small sizes and, what survives, once at a larger one
 *   verdicts   does not compile · rejected (by which detector) · same code as the template on every bed · survivor
 * A survivor must be listed in `argued` with the reason why it computes the same. Two processes share the work. Needs
 * rtx-worker beside the test and a compiler. */
#include "mutant_beds.h"
#include "dev_cpu.h"
#include <ctype.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define MUTANTS_MAX 900
#define PROCESSES   2
#define MOST        1 /* occurrences of one rule in one template, evenly spread */
#define MOST_LARGE  2 /* in gemm and attention */
#define MOST_LINES  4 /* lines dropped of one template */
#define LAUNCH_NS   UINT64_C(500000000)
#define FASTER                                                                                     \
    "-O1" /* half of the compiler's time, and the same verdicts as with the tuner's options */
#define LEFT_OUT 4 /* every fourth is left out, for time; 0 = none */

/* ---- rules ---- */

static const char *const rule_text[][2] = {
    /* name, then pattern~replacement|... */
    {"bound", " < ~ <= | <= ~ < | > ~ >= | >= ~ > | + 1~ + 2| + 1~| - 1~| - 1~ - 2|"
              "K_MIN(~K_MAX(|K_MAX(~K_MIN(|k1~(k1 - 1)|j1~(j1 - 1)|begin~(begin + 1)|"
              "end~(end - 1)"},
    {"tail", "K_CEIL_DIV(~-1 + K_CEIL_DIV(| % ~ / |whole~p1"},
    {"K tail", "DIM_K~(DIM_K - 1)|depth~(depth - 1)|DIM_D~(DIM_D - 1)|DIM_SK~(DIM_SK - 1)|"
               "DIM_C~(DIM_C - 1)|DIM_A~(DIM_A - 1)|elems~(elems - 1)"},
    {"size", "DIM_M~(DIM_M - 1)|DIM_N~(DIM_N - 1)|DIM_I~(DIM_I - 1)|DIM_J~(DIM_J - 1)|"
             "DIM_O~(DIM_O - 1)|DIM_DV~(DIM_DV - 1)|DIM_SQ~(DIM_SQ - 1)|DIM_H~DIM_HK|"
             "DIM_B1~DIM_B0"},
    {"panel", "K_PANEL~(K_PANEL - 1)|LANES~(LANES - 1)"},
    {"initial", " = {0}~| = 0.0f;~ = 1.0f;| = 0;~ = 1;| = START;~;|-K_INF~0.0f"},
    {"sum", "+=~=|+=~-="},
    {"sign", " + ~ - | - ~ + "},
    {"mask sign", " + (mask_in_s~ - (mask_in_s"},
    {"product", " * ~ + "},
    {"stride", "A_M~A_K|A_B0~A_B1|B_B0~B_B1|B_K~B_N|B_N~B_K|ldp~K_PANEL|lda~(lda + 1)|"
               "ldb~(ldb + 1)|ldm~(ldm + 1)|TILE_LD~K_PANEL|V_LD~K_PANEL|Q_S~K_S|Q_S~Q_D|"
               "K_S~Q_S|V_S~V_H|O_S~O_H|Q_B~Q_H|K_H~K_B|V_H~V_B|O_B~O_H|M_Q~M_K|M_K~M_Q|M_B~M_H|"
               "X_A~X_I|X_I~X_A|X_O~Y_O|Y_A~X_A|Y_O~X_O|Y_J~X_A|Y_I~Y_O|IX_J~(IX_J + 1)|"
               "IX_R~IX_J|IX_B~IX_J|x_row~x_col|y_row~y_col|x_col~y_col|stride[0]~stride[1]|"
               "stride[1]~stride[0]"},
};

typedef struct rule {
    const char *name, *from, *to; /* from NULL: drop a whole statement */
} rule;
static rule rules[128];
static uint32_t n_rules;

static void read_rules(void)
{
    for (size_t g = 0; g < COUNT_OF(rule_text); g++) {
        char *save = NULL, *text = strdup(rule_text[g][1]);
        for (char *w = strtok_r(text, "|", &save); w; w = strtok_r(NULL, "|", &save)) {
            char *to = strchr(w, '~');
            *to = 0;
            rules[n_rules++] = (rule){rule_text[g][0], w, to + 1};
        }
    }
    rules[n_rules++] = (rule){"dropped line", NULL, ""};
}

/* ---- survivors, each with its reason ---- */

static const struct argument {
    const char *templ, *line, *reason; /* part of the line after the change */
} argued[] = {
    /* gemm */
    {"cpu/gemm", "if (r <= rows && p < panels) {", "stores rows of the tile that nobody reads"},
    {"cpu/gemm", "const int lines =", "prefetch only"},
    {"cpu/gemm", "if (u + 2 < end) {", "prefetch only"},
    {"cpu/gemm", "if (u < end) {", "prefetch only"},
    {"cpu/gemm", "if (u - 1 < end) {", "prefetch only"},
    {"cpu/gemm", "if (u + 1 < (end - 1)) {", "prefetch only"},
    {"cpu/gemm", "K_PREFETCH_L2(", "prefetch only"},
    {"cpu/gemm", "(DIM_M - 1) * m / nm", "a row is computed twice, alike, by two units"},
    {"cpu/gemm", "__builtin_constant_p((DIM_N - 1))", "constant exactly when DIM_N is"},
    {"cpu/gemm", "if (B_N == 1) {", "takes the general way of packing instead of the short one"},
    {"cpu/gemm", "dropped: continue;", "packs the same values a second time"},
    /* attention */
    {"cpu/attention", "if (r <= rows && p < panels) {", "stores rows that nobody reads"},
    {"cpu/attention", "if (n - i > K_PANEL &&", "a whole panel takes the way of a part"},
    {"cpu/attention", "K_MIN(keys, seen + rows)) : keys", "the condition of each row excludes it"},
    {"cpu/attention", "K_MIN((j1 - 1), seen)", "the loop after it does the last key"},
    {"cpu/attention", "__builtin_constant_p((DIM_SQ - 1))", "constant exactly when DIM_SQ is"},
    {"cpu/attention", "mask_in_s = M_K != 0;", "a mask of one row may lie in s too"},
    /* rows and reductions */
    {"cpu/reduce", "for (; j + LANES < n;", "the loop after it does the last lanes"},
    {"cpu/reduce", "if (elems >= 0) k_nest_seek", "a walk over nothing may start"},
    {"cpu/reduce", "K_FN(by_column)(o, r) ? STRIP :", "size of a unit"},
    {"cpu/reduce", "BLOCK == 0) K_FN(carry)", "cuts the same sum at other places"},
    {"cpu/reduce", "return o->dim[o->axes - 2] > 1", "chooses between two walks of one sum"},
    {"cpu/reduce", "for (int l = 1; j < n;", "other lanes take the last elements"},
    {"cpu/reduce", "dropped: k_nest_fold(", "merging axes only saves steps"},
    {"cpu/row", "for (; k + LANES < cut;", "the loop after it does the last lanes"},
    {"cpu/row", "for (int l = 1; k < cut;", "other lanes take the last elements"},
    {"cpu/row", "K_FN(share)(const int64_t *arg)", "size of a unit"},
    {"cpu/row", "dropped: k_nest_fold(", "merging axes only saves steps"},
    {"cpu/row", "K_FN(clear)(lane, 0.0f);", "any shift of a softmax that does not overflow serves"},
    {"cpu/row", "lane[l] = k_fmax(lane[l], lane[h + l]);", "as above: the shift is another score"},
    {"cpu/argreduce", "K_FN(share)(const k_nest *r)", "size of a unit"},
    {"cpu/argreduce", "dropped: n = K_MIN(n, stop - i);", "units end at multiples of share"},
    {"cpu/rope", "K_FN(share)(const int64_t *arg)", "size of a unit"},
    /* moves */
    {"cpu/copy", "for (; from <= last - 1; from++)", "another order of axes copies the same"},
    {"cpu/copy", "t->stride[0][last] != 1 && d < last", "another order of axes copies the same"},
    {"cpu/copy", "t->stride[1][last] != 1 && d < last", "another order of axes copies the same"},
    {"cpu/copy", "[d] == 1) from = d;", "another order of axes copies the same"},
    {"cpu/copy", "if (y_col == 1 || x_row != 1)", "both ways copy the tile"},
    {"cpu/copy", "dropped: k_nest_fold(", "merging axes only saves steps"},
    {"cpu/eltwise", "dropped: k_nest_fold(", "merging axes only saves steps"},
    {"cpu/eltwise", "n = K_MIN(n, stop + i);", "the line before already ends at the unit"},
    {"cpu/eltwise", "dropped: n = K_MIN(n, stop - i);", "the line before ends at the unit"},
    {"", "out->scratch_bytes = 1;", "one byte of scratch more than is used"},
    {"cpu/gather", "K_FN(share)(const int64_t *arg)", "size of a unit"},
    {"cpu/gather_nd", "K_FN(share)(const int64_t *arg)", "size of a unit"},
    {"cpu/gather_nd", "some &= space.dim[r] >", "an empty axis has no valid index"},
    {"cpu/gather_elements", "t.index[last], stop + i);", "elements are copied twice, alike"},
    {"cpu/gemm", "DIM_N >= 0 ?", "no columns are no blocks"},
    {"cpu/gemm", "ahead = step;", "prefetch only"},
    {"cpu/gemm", "ahead -= step;", "prefetch only"},
    {"cpu/gemm", "then = first == b ?", "prefetch only"},
    {"cpu/attention", "dropped: held =", "copies the same values again"},
    {"cpu/reduce", "n = K_MIN(n, BLOCK + k % BLOCK);", "cuts the same sum at other places"},
    {"cpu/reduce", "adjacent |=", "chooses between two walks of one sum"},
    {"cpu/row", "for (; k + LANES < n;", "the loop after it does the last lanes"},
    {"cpu/row", "squares + rest * shift",
     "of second order unless a row is nearly constant: not tried"},
    {"cpu/rope", "dropped: k_nest_fold(", "merging axes only saves steps"},
    {"cpu/copy", "j0 <= cols;", "one more turn over no columns"},
    {"cpu/copy", "if (x_col == 1 || x_col != 1)", "both ways copy the tile"},
    {"cpu/cumsum", "DIM_A >= 0 ?", "units that find nothing to do"},
    {"cpu/gather", "DIM_I >= 0 ?", "units that find nothing to do"},
    {"cpu/gather_nd", "DIM_I >= 0 ?", "units that find nothing to do"},
    {"cpu/eltwise", "CHUNK + i % CHUNK)", "longer pieces of the same range"},
    {"cpu/argreduce", "dropped: k_nest_fold(", "merging axes only saves steps"},
    {"cpu/copy", "dropped: t->dim[0] = 1;", "copies the same line again, by a stride of 0"},
    {"cpu/reduce", "dropped: n = K_MIN(n, BLOCK", "cuts the same sum at other places"},
    {"cpu/rope", "scratch_bytes = 4 * (DIM_D - 1)", "scratch comes in whole lines of 64 bytes"},
    {"cpu/topk", "scratch_bytes = (DIM_K - 1)", "scratch comes in whole lines of 64 bytes"},
    {"cpu/topk", "? a <= b :", "an element is never compared with itself"},
    {"cpu/topk", "K_FN(sink)(x, X_A, heap, n, 0);", "the last place holds the sinking element"},
};

/* ---- mutants ---- */

typedef enum state { SAME, NO_CODE, REJECTED, SURVIVED, TROUBLE } state;

typedef struct mutant { /* in memory that the processes share */
    const syn_template *templ;
    const rule *rule;
    size_t at, len; /* what is replaced */
    state state;
    char why[200];
} mutant;

typedef struct work {
    uint32_t n;
    fmt_isa isa;
    char trouble[PROCESSES][240];
    mutant m[MUTANTS_MAX];
} work;
static work *all;

/* 1 for each byte that a rule may start at: no comment, no condition of #if. */
static void mark_code(const char *text, size_t n, char *code)
{
    bool comment = false, line = false, condition = false, start = true;
    for (size_t i = 0; i < n; i++) {
        if (text[i] == '\n') {
            line = condition = false;
            start = true;
        } else if (start && text[i] == '#') {
            condition = strncmp(text + i, "#define", 7) != 0;
            start = false;
        } else if (text[i] != ' ') {
            start = false;
        }
        comment |= !comment && i + 1 < n && text[i] == '/' && text[i + 1] == '*';
        line |= i + 1 < n && text[i] == '/' && text[i + 1] == '/';
        code[i] = !comment && !line && !condition;
        if (comment && i > 0 && text[i] == '/' && text[i - 1] == '*')
            comment = false;
    }
}

static bool word(char c) { return isalnum((unsigned char)c) || c == '_' || c == '.'; }

/* Does the rule apply at i? Words only as a whole; a definition's own name stays. */
static size_t applies(const rule *r, const char *text, size_t n, size_t i)
{
    if (!r->from) { /* a whole statement on a line of its own */
        if (i == 0 || text[i - 1] != '\n')
            return 0;
        static const char *const kept[] = {"#",       "}",      "(",     "const ",  "int64_t ",
                                           "k_nest ", "float ", "break", "K_ALIGN", "int "};
        size_t len = strcspn(text + i, "\n"), from = strspn(text + i, " "), depth = 0;
        while (len > from && text[i + len - 1] != ';')
            len--;
        for (size_t k = from; k < len; k++)
            depth += strchr("({", text[i + k]) ? 1u : strchr(")}", text[i + k]) ? (size_t)-1 : 0;
        bool whole = from > 0 && len > from && depth == 0;
        for (size_t k = 0; k < COUNT_OF(kept); k++)
            whole &= strncmp(text + i + from, kept[k], strlen(kept[k])) != 0;
        return whole ? len : 0;
    }
    size_t len = strlen(r->from);
    if (i + len >= n || memcmp(text + i, r->from, len) != 0)
        return 0;
    if ((word(r->from[0]) && i > 0 && word(text[i - 1])) ||
        (word(r->from[len - 1]) && word(text[i + len])))
        return 0;
    size_t start = i;
    while (start > 0 && text[start - 1] != '\n')
        start--;
    if (r->from[0] == '+' && r->from[1] == '=' && memmem(text + start, i - start, "for (", 5))
        return 0; /* a counter, not a sum: hangs, as a plant does already */
    return i >= 8 && memcmp(text + i - 8, "#define ", 8) == 0 ? 0 : len;
}

static void add_mutants(const syn_template *t, const rule *r, const char *code)
{
    size_t at[400], len[400], n = 0;
    for (size_t i = 0; i < t->text_bytes && n < COUNT_OF(at); i++)
        if (code[i] && (len[n] = applies(r, t->text, t->text_bytes, i)) > 0)
            at[n++] = i;
    bool large = t->text_bytes > 8000;
    size_t most = !r->from ? MOST_LINES : large ? MOST_LARGE : MOST, take = MIN(n, most);
    static uint32_t found;
    for (size_t k = 0; k < take; k++) {
        if (LEFT_OUT && ++found % MAX(LEFT_OUT, 1) == 0)
            continue;
        assert_true(all->n < MUTANTS_MAX);
        size_t which = (2 * k + 1) * n / (2 * take);
        all->m[all->n++] = (mutant){.templ = t, .rule = r, .at = at[which], .len = len[which]};
    }
}

/* The line that holds the change, as it is afterwards. */
static void changed_line(const mutant *m, char *line, size_t cap)
{
    const char *text = m->templ->text;
    size_t from = m->at, to = m->at + m->len;
    while (from > 0 && text[from - 1] != '\n')
        from--;
    while (from < m->at && text[from] == ' ')
        from++;
    if (m->rule->from)
        snprintf(line, cap, "%.*s%s%.*s", (int)(m->at - from), text + from, m->rule->to,
                 (int)strcspn(text + to, "\n"), text + to);
    else
        snprintf(line, cap, "dropped: %.*s", (int)(m->len - strspn(text + m->at, " ")),
                 text + m->at + strspn(text + m->at, " "));
    size_t n = strlen(line);
    while (n > 0 && (line[n - 1] == ' ' || line[n - 1] == '\\'))
        line[--n] = 0;
}

/* ---- one process ---- */

typedef struct bench {
    tun_worker worker;
    tun_cc cc;
    syn_problem *p;
    syn_variant v;
    tun_code original;
    char *original_elf;
    tun_point point[1], full;
} bench;

static bool render(const bench *b, const mutant *m, base_buf *text, rtx_err *err)
{
    AUTO_BUF base_buf body;
    base_buf_init(&body, BASE_TAG_TUNE, SIZE_MAX);
    base_buf_init(text, BASE_TAG_TUNE, SIZE_MAX);
    syn_variant v = b->v;
    syn_template t = *v.templ;
    if (m) {
        base_buf_put(&body, t.text, m->at);
        base_buf_puts(&body, m->rule->to);
        base_buf_put(&body, t.text + m->at + m->len, t.text_bytes - m->at - m->len);
        t.text = body.data;
        t.text_bytes = body.len;
        v.templ = &t;
    }
    syn_unit_begin(text, all->isa);
    return syn_unit_add(text, b->p, &v, all->isa, "k0", err) == RTX_OK;
}

static bool take_code(const tun_unit *u, tun_code *code, rtx_err *err)
{
    fmt_kobj obj;
    if (fmt_kobj_read(u->elf, u->elf_bytes, &obj, err) != RTX_OK)
        return false;
    *code = (tun_code){.bytes = obj.code, .n_bytes = obj.bytes};
    memcpy(code->sha256, base_sha256_of(obj.code, obj.bytes).b, 32);
    return fmt_kobj_entry(u->elf, u->elf_bytes, "k0_plan", &code->plan_entry, err) == RTX_OK &&
           fmt_kobj_entry(u->elf, u->elf_bytes, "k0_run", &code->run_entry, err) == RTX_OK;
}

static bool is_verdict(rtx_status s)
{
    return s == RTX_NUMERIC || s == RTX_DEVICE || s == RTX_LIMIT || s == RTX_INVALID;
}

/* All units against the small cases, or the larger one. False: trouble, or the template itself is rejected. */
static bool judge(bench *b, mutant **m, const tun_code *code, uint32_t n, bool full, rtx_err *err)
{
    tun_validator v;
    rtx_status s = full ? tun_validator_init_at(&v, &b->worker, b->p, b->full.sym, err)
                        : tun_validator_init(&v, &b->worker, b->p, b->point, 1, err);
    if (s != RTX_OK)
        return false;
    double error = 0;
    v.launch_ns = LAUNCH_NS;
    s = tun_validate(&v, &b->original, &error, err);
    for (uint32_t i = 0; s == RTX_OK && i < n; i++) {
        if (m[i]->state != SURVIVED || !code[i].n_bytes)
            continue;
        rtx_err why = {0};
        s = tun_validate(&v, &code[i], &error, &why);
        if (is_verdict(s)) {
            m[i]->state = REJECTED;
            snprintf(m[i]->why, sizeof m[i]->why, "%.190s", why.text);
            s = RTX_OK;
        } else if (s != RTX_OK) {
            *err = why;
        }
    }
    tun_validator_done(&v);
    return s == RTX_OK;
}

static bool try_bed(bench *b, mutant **m, uint32_t n, rtx_err *err)
{
    static tun_unit unit[MUTANTS_MAX + 1];
    static base_buf text[MUTANTS_MAX + 1];
    static tun_code code[MUTANTS_MAX];
    memset(unit, 0, sizeof unit);
    memset(code, 0, sizeof code);
    char flags[1024];
    snprintf(flags, sizeof flags, "%s %s", syn_flags(all->isa), FASTER);
    for (uint32_t i = 0; i <= n; i++) {
        if (!render(b, i < n ? m[i] : NULL, &text[i], err))
            return false;
        unit[i].text = text[i].data;
        unit[i].flags = flags;
    }
    if (tun_cc_run(&b->cc, unit, n + 1, 1, UINT64_MAX, NULL, err) != RTX_OK)
        return false;
    bool ok = unit[n].elf && take_code(&unit[n], &b->original, err);
    for (uint32_t i = 0; ok && i < n; i++) {
        rtx_err why = unit[i].err;
        tun_code *c = &code[i];
        if (!unit[i].elf || !take_code(&unit[i], c, &why)) {
            m[i]->state = NO_CODE;
            snprintf(m[i]->why, sizeof m[i]->why, "%.190s", why.text);
        } else if (c->n_bytes == b->original.n_bytes && c->plan_entry == b->original.plan_entry &&
                   c->run_entry == b->original.run_entry &&
                   memcmp(c->bytes, b->original.bytes, c->n_bytes) == 0) {
            c->n_bytes = 0; /* nothing to judge here */
        } else {
            m[i]->state = SURVIVED;
        }
    }
    ok = ok && judge(b, m, code, n, false, err) && judge(b, m, code, n, true, err);
    for (uint32_t i = 0; i <= n; i++) {
        base_free(unit[i].elf);
        base_buf_done(&text[i]);
    }
    return ok;
}

static bool make_bed(const bed *d, bench *b, rtx_err *err)
{
    b->p = syn_problem_new();
    d->make(b->p);
    memcpy(b->point[0].sym, d->most, sizeof d->most);
    memcpy(b->full.sym, d->full, sizeof d->full);
    b->point[0].threads = 1;
    const syn_template *t;
    if (syn_problem_check(b->p, err) != RTX_OK || syn_match(b->p, &t, err) != RTX_OK)
        return false;
    if (strcmp(t->name, d->templ) != 0)
        return (void)FAIL(err, INVALID, "a bed of %s is one of %s", d->templ, t->name), false;
    syn_variant_default(b->p, all->isa, NULL, &b->v);
    syn_variant other;
    if (d->params && syn_variant_parse(t, d->params, &other) &&
        syn_variant_legal(b->p, &other, all->isa, NULL))
        b->v = other;
    return true;
}

static bool child(int which, rtx_err *err)
{
    static bench b;
    if (tun_worker_open(&b.worker, err) != RTX_OK || tun_cc_open(&b.cc, err) != RTX_OK)
        return false;
    bool ok = true;
    for (size_t d = 0; ok && d < mutant_bed_count; d++) {
        mutant *mine[MUTANTS_MAX];
        uint32_t n = 0;
        for (uint32_t i = (uint32_t)which; i < all->n; i += PROCESSES)
            if (strcmp(all->m[i].templ->name, mutant_beds[d].templ) == 0 &&
                (all->m[i].state == SAME || all->m[i].state == SURVIVED))
                mine[n++] = &all->m[i];
        ok = make_bed(&mutant_beds[d], &b, err) && try_bed(&b, mine, n, err);
        if (!ok)
            snprintf(all->trouble[which], sizeof all->trouble[which], "bed %zu: ", d);
        syn_problem_free(b.p);
    }
    tun_cc_close(&b.cc);
    tun_worker_close(&b.worker);
    return ok;
}

/* ---- report ---- */

static const char *const detectors[] = {
    "off by",
    "holds the NaN poison",
    "holds the finite poison",
    "instead of",
    "writes outside",
    "differs between",
    "crashed: signal",
    "no answer in",
    "of scratch",
    "index out of range",
    "error ",
    "",
};

static const struct argument *argument_of(const mutant *m, const char *line)
{
    for (size_t i = 0; i < COUNT_OF(argued); i++)
        if ((!argued[i].templ[0] || strcmp(argued[i].templ, m->templ->name) == 0) &&
            strstr(line, argued[i].line))
            return &argued[i];
    return NULL;
}

static void report(void)
{
    uint32_t count[TROUBLE + 1] = {0}, by[COUNT_OF(detectors)] = {0}, listed = 0, unlisted = 0;
    bool verbose = getenv("RTX_MUTANTS_PRINT") != NULL;
    for (uint32_t i = 0; i < all->n; i++) {
        const mutant *m = &all->m[i];
        char line[300];
        changed_line(m, line, sizeof line);
        count[m->state]++;
        if (m->state == REJECTED)
            for (size_t k = 0; k < COUNT_OF(detectors); k++)
                if (strstr(m->why, detectors[k])) {
                    by[k]++;
                    break;
                }
        if (verbose)
            printf("%d %s %s: %s [%s]\n", m->state, m->templ->name, m->rule->name, line, m->why);
        if (m->state != SURVIVED)
            continue;
        const struct argument *a = argument_of(m, line);
        *(a ? &listed : &unlisted) += 1;
        printf("%s: %s, %s: %s\n    %s\n", a ? "argued" : "NOT ARGUED", m->templ->name,
               m->rule->name, line, a ? a->reason : "");
    }
    uint32_t compiled = all->n - count[NO_CODE];
    printf("mutants %u: not compiling %u, compiled %u (rejected %u, same code %u, argued %u, not "
           "argued %u)\n",
           all->n, count[NO_CODE], compiled, count[REJECTED], count[SAME], listed, unlisted);
    for (size_t k = 0; k < COUNT_OF(detectors); k++)
        if (by[k])
            printf("    rejected: %-24s %u\n", detectors[k][0] ? detectors[k] : "other", by[k]);
    assert_true(compiled >= 200 && count[REJECTED] >= 200);
    assert_int_equal(unlisted, 0);
}

static void mutants_are_rejected(void **unused)
{
    (void)unused;
    char version[200];
    if (!tun_have_compiler(version, sizeof version, NULL))
        skip();
    all = mmap(NULL, sizeof *all, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(all != MAP_FAILED);
    assert_int_equal(dev_isa_allowed(&all->isa, NULL), RTX_OK);
    all->isa = MIN(all->isa, FMT_ISA_V3); /* the same mutants on most machines */
    read_rules();
    size_t n;
    const syn_template *t = syn_template_table(&n);
    for (size_t i = 0; i < n; i++) {
        char *code = calloc(1, t[i].text_bytes + 1);
        assert_non_null(code);
        mark_code(t[i].text, t[i].text_bytes, code);
        bool have = false;
        for (size_t d = 0; d < mutant_bed_count; d++)
            have |= strcmp(mutant_beds[d].templ, t[i].name) == 0;
        for (size_t r = 0; have && r < n_rules; r++)
            add_mutants(&t[i], &rules[r], code);
        free(code);
    }
    pid_t pid[PROCESSES];
    fflush(NULL);
    for (int i = 0; i < PROCESSES; i++)
        if ((pid[i] = fork()) == 0) {
            rtx_err err = {0};
            bool ok = child(i, &err);
            size_t at = strlen(all->trouble[i]);
            if (!ok)
                snprintf(all->trouble[i] + at, sizeof all->trouble[i] - at, "%s", err.text);
            _exit(ok ? 0 : 1);
        }
    for (int i = 0; i < PROCESSES; i++) {
        int status = 0;
        assert_int_equal(waitpid(pid[i], &status, 0), pid[i]);
        if (status != 0)
            fail_msg("process %d, status %d: %s", i, status, all->trouble[i]);
    }
    report();
    munmap(all, sizeof *all);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(mutants_are_rejected)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
