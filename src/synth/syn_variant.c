/* Variants: which template serves a problem, which parameter values are legal, which is the static default.
 *   layer    L3 synth; may include base, format, ir
 *   header   @require and the conditions of @seed are integer expressions in C syntax over parameters, LEVEL, the role
 *            symbols below and facts of the machine (fmt_hw.h); parameters take the values that @param lists */
#include "syn_form.h"
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- integer expressions ---- */

#define EVAL_DEPTH_MAX 32

typedef struct eval {
    const char *at;
    syn_lookup lookup;
    void *ctx;
    bool failed;
    int depth;
} eval;

static int64_t eval_choice(eval *e);

static bool take(eval *e, const char *token)
{
    while (*e->at == ' ')
        e->at++;
    size_t n = strlen(token);
    if (strncmp(e->at, token, n) != 0)
        return false;
    if (n == 1 && strchr("<>!=", *token) && e->at[1] == '=') /* '<' must not take half of '<=' */
        return false;
    e->at += n;
    return true;
}

static int64_t eval_primary(eval *e)
{
    int64_t v = 0;
    if (e->failed || ++e->depth > EVAL_DEPTH_MAX) {
        e->failed = true;
        return 0;
    }
    if (take(e, "(")) {
        v = eval_choice(e);
        e->failed |= !take(e, ")");
    } else if (take(e, "!")) {
        v = !eval_primary(e);
    } else if (take(e, "-")) {
        v = -eval_primary(e);
    } else if (isdigit((unsigned char)*e->at)) {
        char *end;
        v = strtoll(e->at, &end, 10);
        e->at = end;
    } else {
        size_t n = 0;
        while (isalnum((unsigned char)e->at[n]) || e->at[n] == '_')
            n++;
        e->failed |= n == 0 || !e->lookup(e->ctx, e->at, n, &v);
        e->at += n;
    }
    e->depth--;
    return v;
}

/* Binary operators from loosest to tightest; two-character tokens before their prefixes. */
enum {
    OP_OR,
    OP_AND,
    OP_EQ,
    OP_NE,
    OP_LE,
    OP_GE,
    OP_LT,
    OP_GT,
    OP_ADD,
    OP_SUB,
    OP_MUL,
    OP_DIV,
    OP_MOD,
    OP_END
};
static const struct {
    const char *token;
    int level;
} operators[OP_END] = {
    {"||", 0}, {"&&", 1}, {"==", 2}, {"!=", 2}, {"<=", 3}, {">=", 3}, {"<", 3},
    {">", 3},  {"+", 4},  {"-", 4},  {"*", 5},  {"/", 5},  {"%", 5},
};
#define LEVELS 6

static int64_t apply(eval *e, int op, int64_t a, int64_t b)
{
    switch (op) {
    case OP_OR:
        return a || b;
    case OP_AND:
        return a && b;
    case OP_EQ:
        return a == b;
    case OP_NE:
        return a != b;
    case OP_LE:
        return a <= b;
    case OP_GE:
        return a >= b;
    case OP_LT:
        return a < b;
    case OP_GT:
        return a > b;
    case OP_ADD:
        return a + b;
    case OP_SUB:
        return a - b;
    case OP_MUL:
        return a * b;
    default:
        e->failed |= b == 0;
        return b == 0 ? 0 : op == OP_DIV ? a / b : a % b;
    }
}

static int64_t eval_level(eval *e, int level)
{
    if (level == LEVELS)
        return eval_primary(e);
    int64_t v = eval_level(e, level + 1);
    for (int op = 0; op < OP_END && !e->failed; op++)
        if (operators[op].level == level && take(e, operators[op].token)) {
            v = apply(e, op, v, eval_level(e, level + 1));
            op = -1;
        }
    return v;
}

static int64_t eval_choice(eval *e)
{
    int64_t v = eval_level(e, 0);
    if (e->failed || !take(e, "?"))
        return v;
    int64_t yes = eval_choice(e);
    e->failed |= !take(e, ":");
    int64_t no = eval_choice(e);
    return v ? yes : no;
}

bool syn_eval(const char *text, syn_lookup lookup, void *ctx, int64_t *out_v)
{
    eval e = {.at = text, .lookup = lookup, .ctx = ctx};
    *out_v = 1;
    if (*text == 0)
        return true;
    int64_t v = eval_choice(&e);
    while (*e.at == ' ')
        e.at++;
    if (e.failed || *e.at != 0)
        return false;
    *out_v = v;
    return true;
}

/* ---- names in expressions ---- */

#define LARGE (INT64_C(1) << 20) /* a size that is not given */

typedef struct scope {
    const syn_problem *p;
    const syn_form *f;
    const syn_variant *v;
    fmt_isa isa;
    const int64_t *sym; /* NULL = large sizes */
    const hw_facts *hw; /* NULL = defaults */
    uint32_t *read;     /* facts looked up; NULL = nobody asks */
} scope;

static int64_t product(const scope *s, const ir_type *t, int from, int to)
{
    int64_t n = 1, v;
    for (int k = from; k < to; k++) {
        if (fmt_dim_is_const(s->p->dims, t->dim[k], &v) ||
            (s->sym && fmt_dim_eval(s->p->dims, t->dim[k], s->sym, &v)))
            n = MIN(n * v, FMT_DIM_LIMIT);
        else
            n = MIN(n * LARGE, FMT_DIM_LIMIT);
    }
    return n;
}

/* Sizes by role: gemm B M N K; attention B H SQ SK D; rows and reductions R (outer elements) and C (along the row); other
 * families N (elements of the first output). */
static bool role(const scope *s, const char *name, int64_t *v)
{
    const syn_problem *p = s->p;
    const ir_type *out = syn_operand_type(p, p->n_in),
                  *t = s->f->anchor ? ir_type_of(p->region, s->f->anchor) : out;
    const ir_type *x = s->f->anchor && ir_node_get(p->region, s->f->anchor)->n_in
                           ? ir_type_of(p->region, ir_in(p->region, s->f->anchor, 0))
                           : t;
    int r = t->rank;
    struct {
        const char *name;
        const ir_type *t;
        int from, to;
    } gemm[] = {{"B", t, 0, r - 2},
                {"M", t, r - 2, r - 1},
                {"N", t, r - 1, r},
                {"K", x, x->rank - 1, x->rank}};
    struct {
        const char *name;
        int operand, axis;
    } attention[] = {{"B", 0, 0}, {"H", 0, 1}, {"SQ", 0, 2}, {"D", 0, 3}, {"SK", 1, 2}};
    switch (s->f->family) {
    case SYN_GEMM:
        for (size_t i = 0; i < COUNT_OF(gemm); i++)
            if (strcmp(name, gemm[i].name) == 0)
                return *v = product(s, gemm[i].t, gemm[i].from, gemm[i].to), true;
        return false;
    case SYN_ATTENTION:
        for (size_t i = 0; i < COUNT_OF(attention); i++)
            if (strcmp(name, attention[i].name) == 0)
                return *v = product(s, syn_operand_type(p, (uint32_t)attention[i].operand),
                                    attention[i].axis, attention[i].axis + 1),
                       true;
        return false;
    case SYN_ROW:
    case SYN_REDUCE:
    case SYN_ARGREDUCE:
        if (strcmp(name, "R") != 0 && strcmp(name, "C") != 0)
            return false;
        *v = name[0] == 'R' ? product(s, x, 0, s->f->outer) : product(s, x, s->f->outer, x->rank);
        return true;
    default:
        return strcmp(name, "N") == 0 ? (*v = product(s, out, 0, out->rank), true) : false;
    }
}

bool syn_role(const syn_problem *p, const int64_t *sym, const char *name, int64_t *out_v)
{
    syn_form f;
    return syn_form_of(p, &f, NULL) == RTX_OK &&
           role(&(scope){.p = p, .f = &f, .sym = sym}, name, out_v);
}

static bool fact(const scope *s, const char *name, int64_t *out_v)
{
    for (int f = 0; f < HW_FACTS; f++)
        if (strcmp(hw_fact_name((hw_fact)f), name) == 0) {
            if (s->read)
                *s->read |= 1u << f;
            return *out_v = hw_fact_value(s->hw, s->isa, (hw_fact)f), true;
        }
    return false;
}

static bool lookup(void *ctx, const char *name, size_t len, int64_t *out_v)
{
    const scope *s = ctx;
    char text[16];
    if (len >= sizeof text)
        return false;
    memcpy(text, name, len);
    text[len] = 0;
    if (strcmp(text, "LEVEL") == 0)
        return *out_v = s->isa, true;
    for (uint32_t i = 0; s->v && i < s->v->templ->n_params; i++)
        if (strcmp(s->v->templ->params[i].name, text) == 0)
            return *out_v = s->v->value[i], true;
    return fact(s, text, out_v) || role(s, text, out_v);
}

/* ---- templates and variants ---- */

static const syn_template *find_template(const char *name)
{
    size_t n;
    const syn_template *t = syn_template_table(&n);
    for (size_t i = 0; i < n; i++)
        if (strcmp(t[i].name, name) == 0)
            return &t[i];
    return NULL;
}

rtx_status syn_match(const syn_problem *p, const syn_template **out, rtx_err *err)
{
    syn_form f;
    TRY(syn_form_of(p, &f, err));
    *out = find_template(syn_family_template(f.family));
    return *out ? RTX_OK : FAIL(err, UNSUPPORTED, "no template %s", syn_family_template(f.family));
}

static bool in_list(const syn_param *q, int64_t v)
{
    for (uint32_t i = 0; i < q->n_values; i++)
        if (q->values[i] == v)
            return true;
    return q->n_values == 0 && v == q->def;
}

static bool satisfies(const scope *s)
{
    int64_t ok;
    return syn_eval(s->v->templ->require, lookup, (void *)(uintptr_t)s, &ok) && ok;
}

bool syn_variant_legal(const syn_problem *p, const syn_variant *v, fmt_isa isa, rtx_err *err)
{
    syn_form f;
    if (syn_form_of(p, &f, err) != RTX_OK)
        return false;
    if (strcmp(v->templ->name, syn_family_template(f.family)) != 0) {
        (void)FAIL(err, UNSUPPORTED, "%s does not serve this form", v->templ->name);
        return false;
    }
    for (uint32_t i = 0; i < v->templ->n_params; i++)
        if (!in_list(&v->templ->params[i], v->value[i])) {
            (void)FAIL(err, INVALID, "%s=%lld is not in its list", v->templ->params[i].name,
                       (long long)v->value[i]);
            return false;
        }
    static const hw_facts widest = {.cliff_vectors = 32};
    if (satisfies(&(scope){.p = p, .f = &f, .v = v, .isa = isa, .hw = &widest}))
        return true;
    (void)FAIL(err, INVALID, "@require %s", v->templ->require);
    return false;
}

static void defaults_of(const syn_template *t, syn_variant *out)
{
    *out = (syn_variant){.templ = t};
    for (uint32_t i = 0; i < t->n_params; i++)
        out->value[i] = t->params[i].def;
}

/* The k-th seed that applies; false when there are fewer. */
static bool seed_at(const scope *s, const syn_template *t, uint32_t *k, syn_variant *out)
{
    for (; *k < t->n_seeds; (*k)++) {
        int64_t holds;
        syn_variant v = {.templ = t};
        memcpy(v.value, t->seeds[*k].value, sizeof v.value);
        scope with = *s;
        with.v = &v;
        if (!syn_eval(t->seeds[*k].condition, lookup, &with, &holds) || !holds || !satisfies(&with))
            continue;
        *out = v;
        (*k)++;
        return true;
    }
    return false;
}

void syn_variant_default(const syn_problem *p, fmt_isa isa, const int64_t *sym, syn_variant *out)
{
    const syn_template *t = NULL;
    syn_form f;
    uint32_t k = 0;
    *out = (syn_variant){0};
    if (syn_match(p, &t, NULL) != RTX_OK || syn_form_of(p, &f, NULL) != RTX_OK)
        return;
    defaults_of(t, out);
    (void)seed_at(&(scope){.p = p, .f = &f, .isa = isa, .sym = sym}, t, &k, out);
}

typedef struct listing {
    scope s;
    const syn_template *t;
    syn_variant *out;
    size_t n, cap;
} listing;

static void add(listing *l, const syn_variant *v)
{
    scope s = l->s;
    s.v = v;
    if (l->n == l->cap || !satisfies(&s))
        return;
    for (size_t i = 0; i < l->n; i++)
        if (memcmp(l->out[i].value, v->value, sizeof v->value) == 0)
            return;
    l->out[l->n++] = *v;
}

/* All combinations in order, the last parameter fastest; false at the end. */
static bool next_combination(const syn_template *t, uint32_t at[SYN_PARAMS_MAX], syn_variant *v)
{
    for (uint32_t i = t->n_params; i-- > 0;) {
        const syn_param *q = &t->params[i];
        if (++at[i] < q->n_values) {
            v->value[i] = q->values[at[i]];
            return true;
        }
        at[i] = 0;
        v->value[i] = q->n_values ? q->values[0] : q->def;
    }
    return false;
}

static void first_combination(const syn_template *t, uint32_t at[SYN_PARAMS_MAX], syn_variant *v)
{
    defaults_of(t, v);
    memset(at, 0, SYN_PARAMS_MAX * sizeof *at);
    for (uint32_t i = 0; i < t->n_params; i++)
        if (t->params[i].n_values)
            v->value[i] = t->params[i].values[0];
}

/* The legal combinations in order, evenly thinned to the room that is left. */
static void add_spread(listing *l)
{
    uint32_t at[SYN_PARAMS_MAX];
    syn_variant v;
    uint64_t legal = 0, seen = 0, room = l->cap - l->n;
    first_combination(l->t, at, &v);
    do {
        scope s = l->s;
        s.v = &v;
        legal += satisfies(&s);
    } while (next_combination(l->t, at, &v));
    first_combination(l->t, at, &v);
    do {
        scope s = l->s;
        s.v = &v;
        if (!satisfies(&s))
            continue;
        seen++;
        if (legal <= room || seen * room / legal != (seen - 1) * room / legal)
            add(l, &v);
    } while (next_combination(l->t, at, &v));
}

uint32_t syn_facts_read(const syn_problem *p, fmt_isa isa)
{
    syn_form f;
    const syn_template *t;
    syn_variant v;
    uint32_t read = 0;
    int64_t unused;
    if (syn_match(p, &t, NULL) != RTX_OK || syn_form_of(p, &f, NULL) != RTX_OK)
        return 0;
    defaults_of(t, &v);
    scope s = {.p = p, .f = &f, .v = &v, .isa = isa, .read = &read};
    (void)syn_eval(t->require, lookup, &s, &unused);
    for (uint32_t k = 0; k < t->n_seeds; k++)
        (void)syn_eval(t->seeds[k].condition, lookup, &s, &unused);
    return read;
}

size_t syn_variant_list(const syn_problem *p, fmt_isa isa, const hw_facts *hw, const int64_t *sym,
                        syn_variant *out, size_t cap)
{
    syn_form f;
    const syn_template *t;
    if (syn_match(p, &t, NULL) != RTX_OK || syn_form_of(p, &f, NULL) != RTX_OK)
        return 0;
    listing l = {
        .s = {.p = p, .f = &f, .isa = isa, .sym = sym, .hw = hw}, .t = t, .out = out, .cap = cap};
    syn_variant v;
    for (uint32_t k = 0; seed_at(&l.s, t, &k, &v);)
        add(&l, &v);
    defaults_of(t, &v);
    add(&l, &v);
    size_t seeds = l.n;
    for (size_t s = 0; s < seeds; s++) /* one parameter away from a seed */
        for (uint32_t i = 0; i < t->n_params; i++)
            for (uint32_t j = 0; j < t->params[i].n_values; j++) {
                v = out[s];
                v.value[i] = t->params[i].values[j];
                add(&l, &v);
            }
    add_spread(&l);
    return l.n;
}

void syn_variant_print(const syn_variant *v, base_buf *b)
{
    for (uint32_t i = 0; i < v->templ->n_params; i++)
        base_buf_printf(b, "%s%s=%lld", i ? " " : "", v->templ->params[i].name,
                        (long long)v->value[i]);
}

bool syn_variant_parse(const syn_template *t, const char *text, syn_variant *out)
{
    syn_variant v = {.templ = t};
    for (uint32_t i = 0; i < t->n_params; i++) {
        size_t n = strlen(t->params[i].name);
        text += i && *text == ' ';
        if (strncmp(text, t->params[i].name, n) != 0 || text[n] != '=')
            return false;
        char *end;
        v.value[i] = strtoll(text + n + 1, &end, 10);
        if (end == text + n + 1 || !in_list(&t->params[i], v.value[i]))
            return false;
        text = end;
    }
    if (*text != 0)
        return false;
    *out = v;
    return true;
}
