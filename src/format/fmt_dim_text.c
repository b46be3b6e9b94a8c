/* Text and bundle records of dimensions.
 *   layer    L0 format; may include base
 *   grammar  sum = product (('+' | '-') product)*     product = unary (('*' | '/' | '%') unary)*
 *            unary = '-' unary | integer | name | "name" | ('min' | 'max') '(' sum ',' sum ')' | '(' sum ')'
 *   names    letters, digits, '_' and '.'; all others, and min and max, stand in quotes with \" \\ and \xHH */
#include "fmt_dim.h"

/* ---- print ---- */

static bool name_char(char c, bool first)
{
    bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
    return letter || (!first && ((c >= '0' && c <= '9') || c == '.'));
}

static bool plain_name(const char *s)
{
    for (size_t i = 0; s[i]; i++)
        if (!name_char(s[i], i == 0))
            return false;
    return *s && strcmp(s, "min") != 0 && strcmp(s, "max") != 0;
}

static void print_name(const char *s, base_buf *b)
{
    if (plain_name(s)) {
        base_buf_puts(b, s);
        return;
    }
    base_buf_puts(b, "\"");
    for (; *s; s++) {
        if (*s == '"' || *s == '\\')
            base_buf_printf(b, "\\%c", *s);
        else if ((unsigned char)*s < 32 || *s == 127)
            base_buf_printf(b, "\\x%02x", (unsigned)*s);
        else
            base_buf_put(b, s, 1);
    }
    base_buf_puts(b, "\"");
}

static void print_dim(const fmt_dims *p, fmt_dim d, base_buf *b);

/* An operand of / or %: bare when it is one name, one call or a constant that needs no sign. */
static void print_operand(const fmt_dims *p, fmt_dim d, base_buf *b)
{
    int64_t v;
    bool bare = fmt_dim_is_const(p, d, &v)
                    ? v >= 0
                    : fmt_dim_atom(p, d, FMT_ATOM_SYM) || fmt_dim_atom(p, d, FMT_MIN) ||
                          fmt_dim_atom(p, d, FMT_MAX);
    base_buf_puts(b, bare ? "" : "(");
    print_dim(p, d, b);
    base_buf_puts(b, bare ? "" : ")");
}

static void print_atom(const fmt_dims *p, const fmt_atom *atom, bool alone, base_buf *b)
{
    if (atom->op == FMT_ATOM_SYM) {
        print_name(p->syms.v[atom->a].sym.name, b);
    } else if (atom->op == FMT_MIN || atom->op == FMT_MAX) {
        base_buf_puts(b, atom->op == FMT_MIN ? "min(" : "max(");
        print_dim(p, atom->a, b);
        base_buf_puts(b, ", ");
        print_dim(p, atom->b, b);
        base_buf_puts(b, ")");
    } else {
        base_buf_puts(b, alone ? "" : "(");
        print_operand(p, atom->a, b);
        base_buf_puts(b, atom->op == FMT_DIV ? "/" : "%");
        print_operand(p, atom->b, b);
        base_buf_puts(b, alone ? "" : ")");
    }
}

static void print_dim(const fmt_dims *p, fmt_dim d, base_buf *b)
{
    const fmt_dim_rec *r = &p->recs.v[d];
    if (r->n == 0)
        base_buf_puts(b, "0");
    for (uint32_t i = 0; i < r->n; i++) {
        fmt_term t = p->terms.v[r->first + i];
        const fmt_mono *m = &p->monos.v[t.mono];
        bool minus = t.coef < 0;
        uint64_t magnitude = minus ? 0 - (uint64_t)t.coef : (uint64_t)t.coef;
        base_buf_puts(b, i ? (minus ? " - " : " + ") : (minus ? "-" : ""));
        for (uint32_t k = 0; k < m->n; k++) {
            base_buf_puts(b, k ? "*" : "");
            print_atom(p, &p->atoms.v[p->factors.v[m->first + k]],
                       !minus && magnitude == 1 && m->n == 1, b);
        }
        if (m->n == 0 || magnitude != 1)
            base_buf_printf(b, "%s%llu", m->n ? "*" : "", (unsigned long long)magnitude);
    }
}

void fmt_dim_print(const fmt_dims *p, fmt_dim d, base_buf *b)
{
    if (d < 0 || (uint32_t)d >= p->recs.n)
        base_buf_puts(b, "?");
    else
        print_dim(p, d, b);
}

/* ---- parse ---- */

typedef struct parser {
    fmt_dims *p;
    const char *at, *end;
    int depth;
    bool failed;
} parser;

static char peek(parser *s)
{
    while (s->at < s->end && (*s->at == ' ' || *s->at == '\t'))
        s->at++;
    return s->at < s->end ? *s->at : '\0';
}

static bool accept(parser *s, char c)
{
    if (s->failed || peek(s) != c || s->at == s->end)
        return false;
    s->at++;
    return true;
}

static fmt_dim stop(parser *s)
{
    s->failed = true;
    return FMT_DIM_BAD;
}

static fmt_dim parse_sum(parser *s);

static fmt_dim parse_number(parser *s)
{
    int64_t v = 0;
    while (s->at < s->end && *s->at >= '0' && *s->at <= '9')
        if (__builtin_mul_overflow(v, 10, &v) || __builtin_add_overflow(v, *s->at++ - '0', &v))
            return stop(s);
    return fmt_dim_const(s->p, v);
}

static int hex_digit(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* The text behind the opening quote, unescaped, into out. */
static bool parse_quoted(parser *s, base_buf *out)
{
    while (s->at < s->end && *s->at != '"') {
        char c = *s->at++;
        if (c == '\\') {
            if (s->at == s->end)
                return false;
            c = *s->at++;
            if (c == 'x') {
                if (s->end - s->at < 2 || hex_digit(s->at[0]) < 0 || hex_digit(s->at[1]) < 0)
                    return false;
                c = (char)(hex_digit(s->at[0]) * 16 + hex_digit(s->at[1]));
                s->at += 2;
            }
        }
        if (c == '\0')
            return false;
        base_buf_put(out, &c, 1);
    }
    if (s->at == s->end)
        return false;
    s->at++;
    return true;
}

static fmt_dim symbol(parser *s, const char *name, size_t len)
{
    uint32_t sym = fmt_sym_find(s->p, name, len);
    if (sym == UINT32_MAX && !base_utf8_ok(name, len))
        return stop(s);
    if (sym == UINT32_MAX) {
        AUTO_BUF base_buf copy;
        base_buf_init(&copy, BASE_TAG_FORMAT, 4096);
        base_buf_put(&copy, name, len);
        if (copy.failed && !copy.over_max)
            s->p->status = RTX_NOMEM;
        if (copy.failed)
            return stop(s);
        sym = fmt_sym_new(s->p, copy.data ? copy.data : "", 0, FMT_DIM_LIMIT);
    }
    return fmt_dim_sym(s->p, sym);
}

static fmt_dim parse_call(parser *s, fmt_dim_op op)
{
    fmt_dim a = accept(s, '(') ? parse_sum(s) : stop(s);
    fmt_dim b = accept(s, ',') ? parse_sum(s) : stop(s);
    return accept(s, ')') ? fmt_dim_bin(s->p, op, a, b) : stop(s);
}

static fmt_dim parse_name(parser *s)
{
    const char *start = s->at;
    while (s->at < s->end && name_char(*s->at, s->at == start))
        s->at++;
    size_t len = (size_t)(s->at - start);
    if (len == 3 && memcmp(start, "min", 3) == 0)
        return parse_call(s, FMT_MIN);
    if (len == 3 && memcmp(start, "max", 3) == 0)
        return parse_call(s, FMT_MAX);
    return len ? symbol(s, start, len) : stop(s);
}

static fmt_dim parse_unary(parser *s)
{
    if (s->failed || s->depth >= 2 * FMT_DEPTH_MAX)
        return stop(s);
    fmt_dim d;
    s->depth++;
    char c = peek(s);
    if (accept(s, '-')) {
        d = fmt_dim_sub(s->p, fmt_dim_const(s->p, 0), parse_unary(s));
    } else if (accept(s, '(')) {
        d = parse_sum(s);
        if (!accept(s, ')'))
            d = stop(s);
    } else if (accept(s, '"')) {
        AUTO_BUF base_buf name;
        base_buf_init(&name, BASE_TAG_FORMAT, 4096);
        d = parse_quoted(s, &name) && !name.failed ? symbol(s, name.data ? name.data : "", name.len)
                                                   : stop(s);
        if (name.failed && !name.over_max)
            s->p->status = RTX_NOMEM;
    } else {
        d = c >= '0' && c <= '9' ? parse_number(s) : parse_name(s);
    }
    s->depth--;
    return s->failed ? FMT_DIM_BAD : d;
}

static fmt_dim parse_product(parser *s)
{
    fmt_dim d = parse_unary(s);
    while (!s->failed) {
        if (accept(s, '*'))
            d = fmt_dim_mul(s->p, d, parse_unary(s));
        else if (accept(s, '/'))
            d = fmt_dim_div(s->p, d, parse_unary(s));
        else if (accept(s, '%'))
            d = fmt_dim_bin(s->p, FMT_MOD, d, parse_unary(s));
        else
            break;
    }
    return d;
}

static fmt_dim parse_sum(parser *s)
{
    fmt_dim d = parse_product(s);
    while (!s->failed) {
        if (accept(s, '+'))
            d = fmt_dim_add(s->p, d, parse_product(s));
        else if (accept(s, '-'))
            d = fmt_dim_sub(s->p, d, parse_product(s));
        else
            break;
    }
    return d;
}

fmt_dim fmt_dim_parse(fmt_dims *p, const char *text, size_t len)
{
    if (p->status != RTX_OK)
        return FMT_DIM_BAD;
    parser s = {.p = p, .at = text, .end = text + len};
    fmt_dim d = parse_sum(&s);
    (void)peek(&s);
    if (s.at != s.end)
        s.failed = true;
    if (p->status == RTX_LIMIT) /* the text asked for too much; nothing in the pool is damaged */
        p->status = RTX_OK, s.failed = true;
    return s.failed || p->status != RTX_OK ? FMT_DIM_BAD : d;
}

/* ---- records ---- */

/* Layout: u32 symbols, then {i64 lo, i64 hi, i32 bound, u32 length, bytes, zeros to 4}; u32 dimensions, then one a
 * dimension: u32 new atoms, each {i32 op, i32 a, i32 b}; u32 terms, each {i64 coef, u32 n, n * u32 atom}. */

#define SYMS_MAX 1024
#define DIMS_MAX (1u << 20)

void fmt_dims_write(const fmt_dims *p, base_buf *b)
{
    base_buf_u32(b, p->syms.n);
    for (uint32_t i = 0; i < p->syms.n; i++) {
        const fmt_sym_rec *s = &p->syms.v[i];
        uint32_t len = (uint32_t)strlen(s->sym.name);
        base_buf_i64(b, s->sym.lo);
        base_buf_i64(b, s->sym.hi);
        base_buf_u32(b, (uint32_t)s->bound);
        base_buf_u32(b, len);
        base_buf_put(b, s->sym.name, len);
        base_buf_put(b, "\0\0\0", (0u - len) & 3);
    }
    base_buf_u32(b, p->recs.n);
    uint32_t atoms_done = 0;
    for (uint32_t d = 0; d < p->recs.n; d++) {
        const fmt_dim_rec *r = &p->recs.v[d];
        uint32_t atoms_need = atoms_done;
        for (uint32_t i = 0; i < r->n; i++) {
            const fmt_mono *m = &p->monos.v[p->terms.v[r->first + i].mono];
            for (uint32_t k = 0; k < m->n; k++)
                atoms_need = MAX(atoms_need, p->factors.v[m->first + k] + 1);
        }
        base_buf_u32(b, atoms_need - atoms_done);
        for (; atoms_done < atoms_need; atoms_done++)
            base_buf_put(b, &p->atoms.v[atoms_done], sizeof(fmt_atom));
        base_buf_u32(b, r->n);
        for (uint32_t i = 0; i < r->n; i++) {
            fmt_term t = p->terms.v[r->first + i];
            const fmt_mono *m = &p->monos.v[t.mono];
            base_buf_i64(b, t.coef);
            base_buf_u32(b, m->n);
            base_buf_put(b, p->factors.v + m->first, m->n * sizeof(uint32_t));
        }
    }
}

static bool read_syms(base_reader *r, fmt_dims *p)
{
    uint32_t n = base_reader_u32(r);
    if (r->failed || n > SYMS_MAX)
        return false;
    for (uint32_t i = 0; i < n; i++) {
        int64_t lo = base_reader_i64(r), hi = base_reader_i64(r);
        fmt_dim bound = (fmt_dim)base_reader_u32(r);
        uint32_t len = base_reader_u32(r);
        const uint8_t *name = r->failed || len > 4096 ? NULL : base_reader_bytes(r, len);
        if (!name || !base_reader_bytes(r, (0u - len) & 3) || memchr(name, 0, len) ||
            !base_utf8_ok((const char *)name, len) || lo < 0 || hi < lo || hi > FMT_DIM_LIMIT ||
            fmt_sym_find(p, (const char *)name, len) != UINT32_MAX)
            return false;
        char text[4097];
        memcpy(text, name, len);
        text[len] = '\0';
        if (fmt_sym_new(p, text, lo, hi) == UINT32_MAX)
            return false;
        p->syms.v[i].bound = bound; /* checked when all dimensions are there */
    }
    return true;
}

static bool read_atom(base_reader *r, fmt_dims *p)
{
    fmt_atom atom = {(int32_t)base_reader_u32(r), (fmt_dim)base_reader_u32(r),
                     (fmt_dim)base_reader_u32(r)};
    if (r->failed || atom.a < 0 || atom.b < 0)
        return false;
    uint32_t n_atoms = p->atoms.n;
    if (atom.op == FMT_ATOM_SYM
            ? (uint32_t)atom.a >= p->syms.n || atom.b != 0
            : atom.op < FMT_DIV || atom.op > FMT_MAX || (uint32_t)atom.a >= p->recs.n ||
                  (uint32_t)atom.b >= p->recs.n)
        return false;
    return fmt_atom_intern(p, atom) == n_atoms; /* each once */
}

static bool read_mono(base_reader *r, fmt_dims *p, uint32_t *out_mono)
{
    uint32_t n = base_reader_u32(r), atoms[FMT_FACTORS_MAX] = {0};
    if (r->failed || n > FMT_FACTORS_MAX)
        return false;
    for (uint32_t k = 0; k < n; k++) {
        atoms[k] = base_reader_u32(r);
        if (r->failed || atoms[k] >= p->atoms.n ||
            (k && fmt_atom_cmp(p, atoms[k - 1], atoms[k]) > 0))
            return false;
    }
    *out_mono = fmt_mono_intern(p, atoms, n);
    return *out_mono != UINT32_MAX;
}

static bool read_dim(base_reader *r, fmt_dims *p)
{
    for (uint32_t n = base_reader_u32(r); n; n--)
        if (!read_atom(r, p))
            return false;
    fmt_poly x = {.n = base_reader_u32(r)};
    if (r->failed || x.n > FMT_TERMS_MAX)
        return false;
    for (uint32_t i = 0; i < x.n; i++) {
        x.t[i].coef = base_reader_i64(r);
        if (!read_mono(r, p, &x.t[i].mono) || x.t[i].coef == 0 ||
            (i && fmt_mono_cmp(p, x.t[i - 1].mono, x.t[i].mono) >= 0))
            return false;
    }
    uint32_t n_dims = p->recs.n;
    return fmt_poly_intern(p, &x) == (fmt_dim)n_dims; /* each once */
}

/* Depth-first walk over bindings; state: 0 new, 1 open, 2 done. An open symbol met again is a cycle. */
static bool acyclic(const fmt_dims *p, uint32_t sym, uint8_t *state)
{
    if (state[sym] || p->syms.v[sym].bound == FMT_DIM_BAD)
        return state[sym] != 1;
    state[sym] = 1;
    for (uint32_t s = 0; s < p->syms.n; s++)
        if (fmt_dim_uses(p, p->syms.v[sym].bound, s) && !acyclic(p, s, state))
            return false;
    state[sym] = 2;
    return true;
}

/* What a symbol is bound to exists, and chains of bindings end. */
static bool check_bound(fmt_dims *p)
{
    uint8_t state[SYMS_MAX] = {0};
    for (uint32_t i = 0; i < p->syms.n; i++) {
        fmt_dim bound = p->syms.v[i].bound;
        if (bound < FMT_DIM_BAD || bound >= (fmt_dim)p->recs.n)
            return false;
        p->n_bound += bound != FMT_DIM_BAD;
    }
    for (uint32_t i = 0; i < p->syms.n; i++)
        if (!acyclic(p, i, state))
            return false;
    return true;
}

rtx_status fmt_dims_read(base_reader *r, fmt_dims **out, rtx_err *err)
{
    fmt_dims *p;
    TRY_ALLOC(p = fmt_dims_new(), err);
    bool good = read_syms(r, p);
    uint32_t n = good ? base_reader_u32(r) : 0;
    good = good && !r->failed && n <= DIMS_MAX;
    for (uint32_t i = 0; good && i < n; i++)
        good = read_dim(r, p);
    good = good && check_bound(p);
    if (!good) {
        bool no_memory = p->status == RTX_NOMEM;
        fmt_dims_free(p);
        return no_memory ? FAIL(err, NOMEM, "out of memory")
                         : FAIL(err, CORRUPT, "damaged size expressions");
    }
    *out = p;
    return RTX_OK;
}
