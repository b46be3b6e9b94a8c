/* Mutants made by rule from the real templates go the way of every candidate: rendered, compiled, validated in the worker.
 *   rules      replace one occurrence of a token pattern, or drop one line; comments and conditions of #if are left alone
 *   beds       problems a template is tried on, at small sizes and, what survives, once at a larger one
 *   verdicts   does not compile · rejected (by which detector) · same code as the template on every bed · survivor
 * A survivor must be listed in `argued` with the reason why it computes the same. Two processes share the work.
 * RTX_MUTANTS_ALL=1 or RTX_TEST_FULL=1 tries more than twice as many, and no entry of `argued` may go unused then;
 * RTX_MUTANTS_PRINT=1 prints each. Needs rtx-worker beside the test and a compiler. */
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

#define MUTANTS_MAX 2000
#define PROCESSES   2
#define MOST        1 /* occurrences of one rule in one template, evenly spread */
#define MOST_LARGE  2 /* in gemm and attention */
#define MOST_LINES  4 /* lines dropped of one template */
#define LAUNCH_NS   UINT64_C(500000000)
#define FASTER                                                                                     \
    "-O1" /* half of the compiler's time, and the same verdicts as with the tuner's options */
#define LEFT_OUT 4 /* every fourth is left out, for time */

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

/* ---- survivors, each with its reason ----
 * EQUAL: the same values go to the same places. ORDER: the terms of a sum in another order, within the same bound.
 * SPEED: only time is lost. LOCALS: an array on the kernel's own stack is left by one element that nothing else uses.
 * OUT OF CONTRACT: another result, for inputs that have none by contract. */

static const struct argument {
    const char *templ, *line, *reason; /* part of what changed_line gives; templ "": any */
} argued[] = {
    /* all */
    {"", "K_MAX(1, WORK / (DIM_",
     "EQUAL: units of another size, at least 1; plans of empty rows never ask"},
    {"", "K_MAX(1, WORK / ((DIM_I - 1) + 1))", "EQUAL: units of another size, at least 1"},
    {"", "K_MIN(STRIP, WORK / (r->dim[0]",
     "EQUAL: units of 1 to STRIP rows; argmax of nothing has no meaning"},
    {"", "WORK / (k_nest_elems(r) + 2)", "EQUAL: units of 1 to STRIP outputs"},
    {"", "dropped: k_nest_fold(", "EQUAL: unmerged axes visit the same offsets in the same order"},
    {"", "out->scratch_bytes = 1;", "EQUAL: asks for a byte that it does not use"},
    {"", "DIM_I >= 0 ?", "EQUAL: units of rows without elements write nothing"},
    {"", "DIM_A >= 0 ?", "EQUAL: units of columns without elements write nothing"},
    {"", "DIM_C >= 0 ?", "EQUAL: units of rows without elements write nothing"},
    /* gemm */
    {"cpu/gemm", "if (r <= rows && p < panels) {",
     "EQUAL: r < MR: the row lies in the tile; the epilogue reads rows"},
    {"cpu/gemm",
     "const int lines =", "SPEED: lines and step feed prefetches only, which cannot fault"},
    {"cpu/gemm", "if (u + 2 < end) {", "SPEED: guards `then`, which feeds prefetches only"},
    {"cpu/gemm", "if (u < end) {", "SPEED: guards `then`, which feeds prefetches only"},
    {"cpu/gemm", "if (u - 1 < end) {", "SPEED: guards `then`, which feeds prefetches only"},
    {"cpu/gemm", "if (u + 1 < (end - 1)) {", "SPEED: guards `then`, which feeds prefetches only"},
    {"cpu/gemm", "K_PREFETCH_L2(", "SPEED: a prefetch cannot fault"},
    {"cpu/gemm", "int i = 1; i < PF", "SPEED: one prefetch less"},
    {"cpu/gemm", "ahead = step;", "SPEED: an address of prefetches"},
    {"cpu/gemm", "ahead -= step;", "SPEED: an address of prefetches"},
    {"cpu/gemm", "const char *next = c->next ?", "SPEED: an address of prefetches"},
    {"cpu/gemm", "const float *first = b_all", "SPEED: an address of prefetches"},
    {"cpu/gemm", "const K_FN(unit_t) v = K_FN(unit)(arg, u", "SPEED: an address of prefetches"},
    {"cpu/gemm", "p + NP <= w.p1 ?", "SPEED: an address of prefetches"},
    {"cpu/gemm", "(DIM_M - 1) * m / nm",
     "EQUAL: blocks begin earlier and end as before; rows that two units do get equal values"},
    {"cpu/gemm", "__builtin_constant_p((DIM_", "EQUAL: constant exactly when the size is"},
    {"cpu/gemm", "if (B_N == 1) {", "EQUAL: B_N is not 1 there; the general loop packs the same"},
    {"cpu/gemm", "DIM_N >= 0 ?", "EQUAL: no columns are no blocks: the product is 0"},
    {"cpu/gemm", "k_splits_to((DIM_M - 1) / nm",
     "EQUAL: another size only where nm divides DIM_M, which the next line covers"},
    {"cpu/gemm", "int64_t j = 0; j < (K_PANEL - 1); j++)",
     "EQUAL: the last column of a panel that N cuts is behind N: its sums are not stored"},
    /* attention */
    {"cpu/attention", "if (r <= rows && p < panels) {",
     "EQUAL: r < QR: the row lies in the tile; n rows are read"},
    {"cpu/attention", "if (n - i > K_PANEL &&",
     "EQUAL: the loop copies a whole panel as the transposition does"},
    {"cpu/attention", "K_MIN(keys, seen + rows)) : keys",
     "EQUAL: `j < seen + r` excludes the key for each row"},
    {"cpu/attention", "K_MIN(first + n, DIM_SK)",
     "EQUAL: `j < first + l` excludes the key for each query"},
    {"cpu/attention", "K_MIN((j1 - 1), seen)", "EQUAL: the loop after it takes the key, in order"},
    {"cpu/attention", "__builtin_constant_p((DIM_SQ - 1))",
     "EQUAL: constant exactly when the size is"},
    {"cpu/attention", "K_MIN(first + n + 1, DIM_SK)",
     "EQUAL: `j < first + l` excludes the keys for each query"},
    {"cpu/attention", "K_MAX(first + n - 1, DIM_SK)",
     "EQUAL: `j < first + l` excludes the keys for each query"},
    {"cpu/attention", "if (p <= panels)", "EQUAL: accumulators of a panel that is not stored"},
    {"cpu/attention", "DIM_DV > (VP - 2) * K_PANEL",
     "EQUAL: one literal tile more, which no values take"},
    {"cpu/attention", "held = n_b * DIM_HK - g;",
     "SPEED: names no block that may follow: copies values that are there"},
    {"cpu/attention", "(rest != (DIM_SQ - 1)", "EQUAL: rest is never that: no tile is ruled out"},
    {"cpu/attention", "x >= top[l] ? x", "EQUAL: the same value is taken"},
    /* rows and reductions */
    {"cpu/reduce", "for (; j + LANES < n;",
     "EQUAL: the loop after it takes the last 32, each in its lane"},
    {"cpu/reduce", "BLOCK == 0) K_FN(carry)", "ORDER: partial sums join their totals elsewhere"},
    {"cpu/reduce", "return o->dim[o->axes - 2] > 1",
     "EQUAL: both walks take a term in the same lane"},
    {"cpu/reduce", "for (int l = 1; j < n;", "ORDER: at most 31 elements go to lanes 1 to 31"},
    {"cpu/reduce", "n = K_MIN(n, BLOCK + k % BLOCK);",
     "ORDER: partial sums join their totals elsewhere"},
    {"cpu/reduce", "dropped: n = K_MIN(n, BLOCK",
     "ORDER: partial sums join their totals elsewhere"},
    {"cpu/argreduce", "dropped: n = K_MIN(n, stop - i);", "EQUAL: n ends with the unit already"},
    {"cpu/argreduce", "share + i % share",
     "LOCALS: the same rows in longer pieces; a staged one leaves buf"},
    {"cpu/row", "for (; k + LANES < cut;",
     "EQUAL: the loop after it takes the last 32, each in its lane"},
    {"cpu/row", "for (; k + LANES < n;",
     "EQUAL: the loop after it takes the last 32, each in its lane"},
    {"cpu/row", "k + LANES <= n; k += (LANES - 1))",
     "EQUAL: an element seen twice has the same maximum"},
    {"cpu/row", "for (int l = 1; k < cut;", "ORDER: at most 31 elements go to lanes 1 to 31"},
    {"cpu/reduce", "lane[(LANES - 1) * STRIP]",
     "LOCALS: lane 31 lies in the first total; carrying moves one into the other"},
    {"cpu/row", "l <= LANES; l++) total[l] += lane[l];",
     "LOCALS: an element behind total and behind lane, which nothing reads afterwards"},
    {"cpu/row", "first[(LANES - 1)]", "LOCALS: 124 bytes, of which alignment makes 128"},
    {"cpu/cumsum", "j <= n; j++) sum[j] = 0;", "LOCALS: 0 to a place behind the last sum"},
    /* moves */
    {"cpu/copy", "from <= last - 1; from++)", "EQUAL: any order of the axes visits every element"},
    {"cpu/copy", "t->stride[0][last] != 1 && d < last",
     "EQUAL: any order of the axes visits every element"},
    {"cpu/copy", "t->stride[1][last] != 1 && d < last",
     "EQUAL: any order of the axes visits every element"},
    {"cpu/copy", "[d] == 1) from = d;", "EQUAL: any order of the axes visits every element"},
    {"cpu/copy", "if (y_col == 1 || x_row != 1)",
     "EQUAL: either branch copies rows x cols elements"},
    {"cpu/copy", "if (x_col == 1 || x_col != 1)",
     "EQUAL: either branch copies rows x cols elements"},
    {"cpu/copy", "j0 <= cols;", "EQUAL: one more turn over 0 columns"},
    {"cpu/copy", "dropped: t->dim[0] = 1;",
     "EQUAL: the line goes to its place again, by a stride of 0"},
    {"cpu/eltwise", "n = K_MIN(n, stop + i);", "EQUAL: n ends with the unit already"},
    {"cpu/eltwise", "dropped: n = K_MIN(n, stop - i);", "EQUAL: n ends with the unit already"},
    {"cpu/eltwise", "CHUNK + i % CHUNK)", "EQUAL: n ends with the range by the next line"},
    {"cpu/gather_nd", "some &= space.dim[r] >",
     "OUT OF CONTRACT: no index into an empty axis is valid"},
    {"cpu/gather_elements", "t.index[last], stop + i);",
     "EQUAL: goes on into the next unit with its values"},
    {"cpu/topk", "? a <= b :", "EQUAL: no element is compared with itself"},
    {"cpu/topk", "K_FN(sink)(x, X_A, heap, n, 0);",
     "EQUAL: the last place holds the sinking element"},
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

static bool every(void) { return getenv("RTX_MUTANTS_ALL") || getenv("RTX_TEST_FULL"); }

static void add_mutants(const syn_template *t, const rule *r, const char *code)
{
    size_t at[400], len[400], n = 0;
    for (size_t i = 0; i < t->text_bytes && n < COUNT_OF(at); i++)
        if (code[i] && (len[n] = applies(r, t->text, t->text_bytes, i)) > 0)
            at[n++] = i;
    bool large = t->text_bytes > 8000;
    size_t most = !r->from ? MOST_LINES : large ? MOST_LARGE : MOST, first = all->n;
    static uint32_t found;
    for (int twice = 0; twice <= every(); twice++) { /* all has what the quick set has, and more */
        size_t take = MIN(n, most << twice);
        for (size_t k = 0; k < take; k++) {
            size_t which = (2 * k + 1) * n / (2 * take);
            bool there = !every() && ++found % LEFT_OUT == 0;
            for (size_t i = first; i < all->n; i++)
                there |= all->m[i].at == at[which];
            if (there)
                continue;
            assert_true(all->n < MUTANTS_MAX);
            all->m[all->n++] = (mutant){.templ = t, .rule = r, .at = at[which], .len = len[which]};
        }
    }
}

/* The line that holds the change, as it is afterwards; of a dropped one also the line before. */
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
    else {
        const char *drop = text + m->at + strspn(text + m->at, " "), *before = text + m->at - 1;
        while (before > text && before[-1] != '\n')
            before--;
        before += strspn(before, " ");
        snprintf(line, cap, "dropped: %.*s after %.*s", (int)(text + m->at + m->len - drop), drop,
                 (int)strcspn(before, "\n"), before);
    }
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
    if (tun_cc_run(&b->cc, unit, n + 1, 1, UINT64_MAX, err) != RTX_OK)
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

static bool used[COUNT_OF(argued)]; /* by a mutant that is not rejected */

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
        const struct argument *a = argument_of(m, line);
        if (a && (m->state == SAME || m->state == SURVIVED))
            used[a - argued] = true;
        if (m->state != SURVIVED)
            continue;
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
    uint32_t idle = 0;
    for (size_t i = 0; every() && i < COUNT_OF(argued); i++)
        if (!used[i])
            idle++, printf("argued but not there: %s, %s\n", argued[i].templ, argued[i].line);
    assert_true(compiled >= 200 && count[REJECTED] >= 200);
    assert_int_equal(unlisted, 0);
    assert_int_equal(idle, 0);
}

static void mutants_are_rejected(void **unused)
{
    (void)unused;
    char version[200];
    if (!tun_have_compiler(version, sizeof version, NULL)) {
        print_message("skipped: no compiler\n");
        skip();
    }
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
