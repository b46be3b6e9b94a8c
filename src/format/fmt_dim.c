/* Algebra of dimensions: the pool, interning, sums of products, exact quotients.
 *   layer    L0 format; may include base
 *   form     see fmt_dim.h
 *   method   a result is computed in an fmt_poly on the stack and interned once; failures are kept in the pool */
#include "fmt_dim.h"
#include "base_sys.h"

static fmt_dim bad(fmt_dims *p, rtx_status why)
{
    if (p->status == RTX_OK)
        p->status = why;
    return FMT_DIM_BAD;
}

/* ---- growth and interning ---- */

static bool vec_grow(fmt_dims *p, void **v, uint32_t n, uint32_t *cap, uint32_t more,
                     size_t elem_bytes)
{
    if (more <= *cap - n)
        return true;
    uint64_t want = MAX((uint64_t)n + more, MAX(UINT64_C(16), (uint64_t)*cap * 2));
    void *grown =
        want < INT32_MAX ? base_realloc(BASE_TAG_FORMAT, *v, (size_t)want * elem_bytes) : NULL;
    if (!grown)
        return bad(p, RTX_NOMEM), false;
    *v = grown;
    *cap = (uint32_t)want;
    return true;
}

#define RESERVE(p, vec, more)                                                                      \
    __extension__({                                                                                \
        void *items_ = (vec).v;                                                                    \
        bool ok_ = vec_grow((p), &items_, (vec).n, &(vec).cap, (more), sizeof *(vec).v);           \
        (vec).v = items_;                                                                          \
        ok_;                                                                                       \
    })

static uint64_t hash_atom(const fmt_dims *p, uint32_t id)
{
    return base_xxh3(&p->atoms.v[id], sizeof(fmt_atom));
}

static uint64_t hash_mono(const fmt_dims *p, uint32_t id)
{
    const fmt_mono *m = &p->monos.v[id];
    return base_xxh3(p->factors.v + m->first, m->n * sizeof(uint32_t));
}

static uint64_t hash_terms(const fmt_term *t, uint32_t n)
{
    uint64_t h = n;
    for (uint32_t i = 0; i < n; i++)
        h = (h ^ (uint64_t)t[i].coef ^ (uint64_t)t[i].mono << 40) * UINT64_C(0x9e3779b97f4a7c15),
        h ^= h >> 29;
    return h;
}

static uint64_t hash_dim(const fmt_dims *p, uint32_t id)
{
    return hash_terms(p->terms.v + p->recs.v[id].first, p->recs.v[id].n);
}

typedef uint64_t (*hash_fn)(const fmt_dims *p, uint32_t id);

/* Make room for one more id; doubling keeps the load at or below one half. */
static bool table_room(fmt_dims *p, fmt_table *t, hash_fn hash)
{
    if (2 * (t->n + 1) <= t->cap)
        return true;
    uint32_t cap = t->cap ? 2 * t->cap : 64;
    uint32_t *slots = base_zalloc_array(BASE_TAG_FORMAT, cap, sizeof *slots);
    if (!slots)
        return bad(p, RTX_NOMEM), false;
    for (uint32_t id = 0; id < t->n; id++) {
        uint64_t at = hash(p, id) & (cap - 1);
        while (slots[at])
            at = (at + 1) & (cap - 1);
        slots[at] = id + 1;
    }
    base_free(t->slots);
    t->slots = slots;
    t->cap = cap;
    return true;
}

static void table_add(fmt_table *t, uint64_t hash)
{
    uint64_t at = hash & (t->cap - 1);
    while (t->slots[at])
        at = (at + 1) & (t->cap - 1);
    t->slots[at] = ++t->n; /* ids are given in order */
}

/* Walk the ids whose slot may hold `hash`: `for (uint64_t at = hash; (id = table_next(t, &at));)`, ids are + 1. */
static uint32_t table_next(const fmt_table *t, uint64_t *at)
{
    return t->cap ? t->slots[(*at)++ & (t->cap - 1)] : 0;
}

uint32_t fmt_atom_intern(fmt_dims *p, fmt_atom atom)
{
    uint64_t hash = base_xxh3(&atom, sizeof atom);
    uint32_t id;
    for (uint64_t at = hash; (id = table_next(&p->atom_table, &at));)
        if (memcmp(&p->atoms.v[id - 1], &atom, sizeof atom) == 0)
            return id - 1;
    if (!table_room(p, &p->atom_table, hash_atom) || !RESERVE(p, p->atoms, 1))
        return UINT32_MAX;
    p->atoms.v[p->atoms.n] = atom;
    table_add(&p->atom_table, hash);
    return p->atoms.n++;
}

uint32_t fmt_mono_intern(fmt_dims *p, const uint32_t *atoms, uint32_t n)
{
    uint64_t hash = base_xxh3(atoms, n * sizeof *atoms);
    uint32_t id;
    for (uint64_t at = hash; (id = table_next(&p->mono_table, &at));) {
        const fmt_mono *m = &p->monos.v[id - 1];
        if (m->n == n && memcmp(p->factors.v + m->first, atoms, n * sizeof *atoms) == 0)
            return id - 1;
    }
    if (!table_room(p, &p->mono_table, hash_mono) || !RESERVE(p, p->monos, 1) ||
        !RESERVE(p, p->factors, n + 1))
        return UINT32_MAX;
    memcpy(p->factors.v + p->factors.n, atoms, n * sizeof *atoms);
    p->monos.v[p->monos.n] = (fmt_mono){p->factors.n, n};
    p->factors.n += n;
    table_add(&p->mono_table, hash);
    return p->monos.n++;
}

/* Size of the expression as a tree; false past the caps. */
static bool measure(const fmt_dims *p, const fmt_term *t, uint32_t n, uint32_t *out_weight,
                    uint32_t *out_depth)
{
    uint64_t weight = 1;
    uint32_t depth = 0;
    for (uint32_t i = 0; i < n; i++) {
        const fmt_mono *m = &p->monos.v[t[i].mono];
        weight++;
        for (uint32_t k = 0; k < m->n; k++) {
            const fmt_atom *atom = &p->atoms.v[p->factors.v[m->first + k]];
            weight++;
            if (atom->op == FMT_ATOM_SYM)
                continue;
            const fmt_dim_rec *a = &p->recs.v[atom->a], *b = &p->recs.v[atom->b];
            weight += a->weight + b->weight;
            depth = MAX(depth, 1 + MAX(a->depth, b->depth));
        }
    }
    *out_weight = (uint32_t)weight;
    *out_depth = depth;
    return weight <= FMT_WEIGHT_MAX && depth <= FMT_DEPTH_MAX;
}

fmt_dim fmt_dim_intern(fmt_dims *p, const fmt_term *t, uint32_t n)
{
    uint64_t hash = hash_terms(t, n);
    uint32_t id, weight, depth;
    for (uint64_t at = hash; (id = table_next(&p->dim_table, &at));) {
        const fmt_dim_rec *r = &p->recs.v[id - 1];
        const fmt_term *have = p->terms.v + r->first;
        bool same = r->n == n;
        for (uint32_t i = 0; same && i < n; i++)
            same = have[i].coef == t[i].coef && have[i].mono == t[i].mono;
        if (same)
            return (fmt_dim)(id - 1);
    }
    if (!measure(p, t, n, &weight, &depth))
        return bad(p, RTX_LIMIT);
    if (!table_room(p, &p->dim_table, hash_dim) || !RESERVE(p, p->recs, 1) ||
        !RESERVE(p, p->terms, n + 1))
        return FMT_DIM_BAD;
    if (n)
        memcpy(p->terms.v + p->terms.n, t, n * sizeof *t);
    p->recs.v[p->recs.n] = (fmt_dim_rec){p->terms.n, n, weight, depth};
    p->terms.n += n;
    table_add(&p->dim_table, hash);
    return (fmt_dim)p->recs.n++;
}

/* ---- canonical order ---- */

static int dim_cmp(const fmt_dims *p, fmt_dim a, fmt_dim b)
{
    if (a == b)
        return 0;
    const fmt_dim_rec *ra = &p->recs.v[a], *rb = &p->recs.v[b];
    for (uint32_t i = 0; i < MIN(ra->n, rb->n); i++) {
        const fmt_term *ta = p->terms.v + ra->first + i, *tb = p->terms.v + rb->first + i;
        int c = fmt_mono_cmp(p, ta->mono, tb->mono);
        if (c || ta->coef != tb->coef)
            return c ? c : ta->coef < tb->coef ? -1 : 1;
    }
    return ra->n < rb->n ? -1 : 1;
}

int fmt_atom_cmp(const fmt_dims *p, uint32_t a, uint32_t b)
{
    if (a == b)
        return 0;
    const fmt_atom *x = &p->atoms.v[a], *y = &p->atoms.v[b];
    if (x->op != y->op)
        return x->op < y->op ? -1 : 1;
    if (x->op == FMT_ATOM_SYM)
        return x->a < y->a ? -1 : 1;
    int c = dim_cmp(p, x->a, y->a);
    return c ? c : dim_cmp(p, x->b, y->b);
}

int fmt_mono_cmp(const fmt_dims *p, uint32_t a, uint32_t b)
{
    if (a == b)
        return 0;
    const fmt_mono *x = &p->monos.v[a], *y = &p->monos.v[b];
    if (x->n != y->n)
        return x->n > y->n ? -1 : 1;
    for (uint32_t i = 0; i < x->n; i++) {
        int c = fmt_atom_cmp(p, p->factors.v[x->first + i], p->factors.v[y->first + i]);
        if (c)
            return c;
    }
    return 0;
}

/* ---- polynomials ---- */

void fmt_poly_of(const fmt_dims *p, fmt_dim d, fmt_poly *out)
{
    const fmt_dim_rec *r = &p->recs.v[d];
    out->n = r->n;
    if (r->n)
        memcpy(out->t, p->terms.v + r->first, r->n * sizeof(fmt_term));
}

/* Add coef * mono at its place. */
bool fmt_poly_add(fmt_dims *p, fmt_poly *x, int64_t coef, uint32_t mono)
{
    if (coef == 0)
        return true;
    uint32_t at = 0;
    while (at < x->n && x->t[at].mono != mono && fmt_mono_cmp(p, x->t[at].mono, mono) < 0)
        at++;
    if (at < x->n && x->t[at].mono == mono) {
        if (__builtin_add_overflow(x->t[at].coef, coef, &x->t[at].coef))
            return bad(p, RTX_LIMIT), false;
        if (x->t[at].coef == 0) {
            memmove(x->t + at, x->t + at + 1, (x->n - at - 1) * sizeof *x->t);
            x->n--;
        }
        return true;
    }
    if (x->n == FMT_TERMS_MAX)
        return bad(p, RTX_LIMIT), false;
    memmove(x->t + at + 1, x->t + at, (x->n - at) * sizeof *x->t);
    x->t[at] = (fmt_term){coef, mono};
    x->n++;
    return true;
}

/* Product of two monomials: merge of their sorted factors. */
static uint32_t mono_mul(fmt_dims *p, uint32_t a, uint32_t b)
{
    fmt_mono x = p->monos.v[a], y = p->monos.v[b];
    uint32_t merged[FMT_FACTORS_MAX], n = 0, i = 0, j = 0;
    if (x.n + y.n > FMT_FACTORS_MAX)
        return bad(p, RTX_LIMIT), UINT32_MAX;
    const uint32_t *fx = p->factors.v + x.first, *fy = p->factors.v + y.first;
    while (i < x.n || j < y.n)
        merged[n++] =
            j == y.n || (i < x.n && fmt_atom_cmp(p, fx[i], fy[j]) <= 0) ? fx[i++] : fy[j++];
    return fmt_mono_intern(p, merged, n);
}

/* a / b if every factor of b is in a; UINT32_MAX if not (or on failure, which the pool keeps). */
uint32_t fmt_mono_div(fmt_dims *p, uint32_t a, uint32_t b)
{
    fmt_mono x = p->monos.v[a], y = p->monos.v[b];
    uint32_t rest[FMT_FACTORS_MAX], n = 0, j = 0;
    for (uint32_t i = 0; i < x.n; i++) {
        uint32_t f = p->factors.v[x.first + i];
        if (j < y.n && f == p->factors.v[y.first + j])
            j++;
        else
            rest[n++] = f;
    }
    return j == y.n ? fmt_mono_intern(p, rest, n) : UINT32_MAX;
}

bool fmt_poly_add_scaled(fmt_dims *p, fmt_poly *x, const fmt_poly *y, int64_t scale, uint32_t mono)
{
    for (uint32_t i = 0; i < y->n; i++) {
        int64_t coef;
        if (__builtin_mul_overflow(y->t[i].coef, scale, &coef))
            return bad(p, RTX_LIMIT), false;
        uint32_t m = mono_mul(p, y->t[i].mono, mono);
        if (m == UINT32_MAX || !fmt_poly_add(p, x, coef, m))
            return false;
    }
    return true;
}

/* Long division. True if b divides a exactly. The leading term of the rest falls with every step, so it ends. */
static bool poly_div_exact(fmt_dims *p, const fmt_poly *a, const fmt_poly *b, fmt_poly *out_q)
{
    fmt_poly rest = *a;
    out_q->n = 0;
    while (rest.n) {
        fmt_term lead = rest.t[0];
        if (b->t[0].coef == -1 ? lead.coef == INT64_MIN : lead.coef % b->t[0].coef != 0)
            return false;
        uint32_t m = fmt_mono_div(p, lead.mono, b->t[0].mono);
        int64_t coef = lead.coef / b->t[0].coef;
        if (m == UINT32_MAX || coef == INT64_MIN || rest.n + b->n > FMT_TERMS_MAX ||
            out_q->n == FMT_TERMS_MAX)
            return false;
        if (!fmt_poly_add(p, out_q, coef, m) || !fmt_poly_add_scaled(p, &rest, b, -coef, m))
            return false;
    }
    return true;
}

static bool poly_const(const fmt_poly *x, int64_t *out_v)
{
    if (x->n > 1 || (x->n == 1 && x->t[0].mono != 0))
        return false;
    *out_v = x->n ? x->t[0].coef : 0;
    return true;
}

fmt_dim fmt_poly_intern(fmt_dims *p, const fmt_poly *x) { return fmt_dim_intern(p, x->t, x->n); }

/* ---- pool ---- */

fmt_dims *fmt_dims_new(void)
{
    fmt_dims *p = base_zalloc(BASE_TAG_FORMAT, sizeof *p);
    if (p && fmt_mono_intern(p, (const uint32_t[1]){0}, 0) != 0) {
        fmt_dims_free(p);
        return NULL;
    }
    return p;
}

void fmt_dims_free(fmt_dims *p)
{
    if (!p)
        return;
    for (uint32_t i = 0; i < p->syms.n; i++)
        base_free((char *)(uintptr_t)p->syms.v[i].sym.name);
    void *parts[] = {p->syms.v,          p->atoms.v, p->monos.v,          p->factors.v,
                     p->recs.v,          p->terms.v, p->atom_table.slots, p->mono_table.slots,
                     p->dim_table.slots, p};
    for (size_t i = 0; i < COUNT_OF(parts); i++)
        base_free(parts[i]);
}

rtx_status fmt_dims_ok(const fmt_dims *p, rtx_err *err)
{
    if (p->status == RTX_LIMIT)
        return FAIL(err, LIMIT,
                    "size expression too large: more than 64-bit constants, %d terms, %d factors "
                    "or %d parts",
                    FMT_TERMS_MAX, FMT_FACTORS_MAX, FMT_WEIGHT_MAX);
    return p->status == RTX_OK ? RTX_OK : FAIL(err, NOMEM, "out of memory");
}

bool fmt_dim_bad(const fmt_dims *p, fmt_dim d)
{
    return p->status != RTX_OK || d < 0 || (uint32_t)d >= p->recs.n;
}

fmt_dim fmt_dim_const(fmt_dims *p, int64_t v)
{
    if (p->status != RTX_OK)
        return FMT_DIM_BAD;
    return fmt_dim_intern(p, &(fmt_term){v, 0}, v != 0);
}

uint32_t fmt_sym_new(fmt_dims *p, const char *name, int64_t lo, int64_t hi)
{
    if (p->status != RTX_OK || !RESERVE(p, p->syms, 1))
        return UINT32_MAX;
    char *copy = base_strdup(BASE_TAG_FORMAT, name);
    if (!copy)
        return bad(p, RTX_NOMEM), UINT32_MAX;
    fmt_sym sym = {copy, MAX(lo, 0), MIN(hi, FMT_DIM_LIMIT)};
    p->syms.v[p->syms.n] = (fmt_sym_rec){sym, FMT_DIM_BAD};
    return p->syms.n++;
}

uint32_t fmt_sym_find(const fmt_dims *p, const char *name, size_t len)
{
    for (uint32_t i = 0; i < p->syms.n; i++) {
        const char *have = p->syms.v[i].sym.name;
        if (strlen(have) == len && memcmp(have, name, len) == 0)
            return i;
    }
    return UINT32_MAX;
}

uint32_t fmt_sym_count(const fmt_dims *p) { return p->syms.n; }

const fmt_sym *fmt_sym_get(const fmt_dims *p, uint32_t sym) { return &p->syms.v[sym].sym; }

void fmt_sym_bound(fmt_dims *p, uint32_t sym, int64_t lo, int64_t hi)
{
    fmt_sym *s = &p->syms.v[sym].sym;
    s->lo = MAX(s->lo, lo);
    s->hi = MIN(s->hi, hi);
}

static fmt_dim dim_of_atom(fmt_dims *p, uint32_t atom)
{
    uint32_t mono = atom == UINT32_MAX ? atom : fmt_mono_intern(p, &atom, 1);
    return mono == UINT32_MAX ? FMT_DIM_BAD : fmt_dim_intern(p, &(fmt_term){1, mono}, 1);
}

static fmt_dim raw_sym(fmt_dims *p, uint32_t sym)
{
    return dim_of_atom(p, fmt_atom_intern(p, (fmt_atom){FMT_ATOM_SYM, (fmt_dim)sym, 0}));
}

fmt_dim fmt_dim_sym(fmt_dims *p, uint32_t sym)
{
    if (p->status != RTX_OK || sym >= p->syms.n)
        return FMT_DIM_BAD;
    fmt_dim bound = p->syms.v[sym].bound;
    return bound == FMT_DIM_BAD ? raw_sym(p, sym) : fmt_dim_resolve(p, bound);
}

/* ---- operations ---- */

int64_t fmt_floor_mod(int64_t a, int64_t b)
{
    int64_t r = b == -1 ? 0 : a % b;
    return r && (r < 0) != (b < 0) ? r + b : r;
}

bool fmt_floor_div(int64_t a, int64_t b, int64_t *out)
{
    if (b == -1)
        return !__builtin_sub_overflow(0, a, out);
    *out = a / b - (a % b && (a < 0) != (b < 0));
    return true;
}

static fmt_dim opaque(fmt_dims *p, fmt_dim_op op, fmt_dim a, fmt_dim b)
{
    if (a == FMT_DIM_BAD || b == FMT_DIM_BAD)
        return FMT_DIM_BAD;
    return dim_of_atom(p, fmt_atom_intern(p, (fmt_atom){(int32_t)op, a, b}));
}

/* If every value of d is in [0, limit). */
static bool below(const fmt_dims *p, fmt_dim d, int64_t limit)
{
    int64_t lo, hi;
    fmt_dim_range(p, d, &lo, &hi);
    return lo >= 0 && hi < limit;
}

/* Split x by a positive constant: x = out_high * c + out_low, where low keeps the terms that c does not divide and a
 * constant in [0, c). */
static bool poly_split(fmt_dims *p, const fmt_poly *x, int64_t c, fmt_poly *out_high,
                       fmt_poly *out_low)
{
    out_high->n = out_low->n = 0;
    for (uint32_t i = 0; i < x->n; i++) {
        fmt_term t = x->t[i];
        int64_t low = fmt_floor_mod(t.coef, c), high = t.coef / c - (t.coef % c < 0);
        if (low && t.mono != 0)
            high = 0, low = t.coef;
        if (!fmt_poly_add(p, out_high, high, t.mono) || !fmt_poly_add(p, out_low, low, t.mono))
            return false;
    }
    return true;
}

static int64_t gcd(int64_t a, int64_t b)
{
    uint64_t x = a < 0 ? 0 - (uint64_t)a : (uint64_t)a, y = b < 0 ? 0 - (uint64_t)b : (uint64_t)b;
    while (y) {
        uint64_t r = x % y;
        x = y;
        y = r;
    }
    return x > INT64_MAX ? 1 : (int64_t)x;
}

/* Greatest monomial of non-negative atoms that divides all terms of x and of y (y may be empty). */
uint32_t fmt_mono_common(fmt_dims *p, const fmt_poly *x, const fmt_poly *y)
{
    uint32_t common[FMT_FACTORS_MAX], n = 0, have = 0;
    fmt_mono first = p->monos.v[x->t[0].mono];
    for (uint32_t k = 0; k < first.n; k++) {
        uint32_t atom = p->factors.v[first.first + k];
        fmt_dim d = dim_of_atom(p, atom);
        if (d == FMT_DIM_BAD || !below(p, d, INT64_MAX))
            continue;
        common[n] = atom;
        uint32_t m = fmt_mono_intern(p, common, n + 1);
        bool all = m != UINT32_MAX;
        for (uint32_t i = 0; all && i < x->n + y->n; i++)
            all = fmt_mono_div(p, i < x->n ? x->t[i].mono : y->t[i - x->n].mono, m) != UINT32_MAX;
        if (all)
            have = m, n++;
    }
    return have;
}

/* Cancel what numerator and denominator share: constants and non-negative atoms. */
static bool cancel(fmt_dims *p, fmt_poly *a, fmt_poly *b)
{
    int64_t g = 0;
    for (uint32_t i = 0; i < a->n + b->n; i++)
        g = gcd(g, i < a->n ? a->t[i].coef : b->t[i - a->n].coef);
    uint32_t m = fmt_mono_common(p, a, b);
    for (uint32_t i = 0; i < a->n + b->n; i++) {
        fmt_term *t = i < a->n ? &a->t[i] : &b->t[i - a->n];
        t->coef /= g;
        t->mono = fmt_mono_div(p, t->mono, m);
        if (t->mono == UINT32_MAX)
            return false;
    }
    return true;
}

/* The operands of d if it is one bare atom of that operation. */
const fmt_atom *fmt_dim_atom(const fmt_dims *p, fmt_dim d, int32_t op)
{
    const fmt_dim_rec *r = &p->recs.v[d];
    const fmt_term *t = p->terms.v + r->first;
    if (r->n != 1 || t->coef != 1 || p->monos.v[t->mono].n != 1)
        return NULL;
    const fmt_atom *atom = &p->atoms.v[p->factors.v[p->monos.v[t->mono].first]];
    return atom->op == op ? atom : NULL;
}

/* floor(low / c) for a positive constant c, with the rules that keep one spelling. */
static fmt_dim div_rest(fmt_dims *p, fmt_dim low, int64_t c)
{
    if (below(p, low, c))
        return fmt_dim_const(p, 0);
    const fmt_atom *inner = fmt_dim_atom(p, low, FMT_DIV); /* (x / k) / c = x / (k c) */
    int64_t k, kc;
    if (inner && fmt_dim_is_const(p, inner->b, &k) && k > 0 && !__builtin_mul_overflow(k, c, &kc))
        return fmt_dim_bin(p, FMT_DIV, inner->a, fmt_dim_const(p, kc));
    return opaque(p, FMT_DIV, low, fmt_dim_const(p, c));
}

static fmt_dim dim_div(fmt_dims *p, fmt_poly *a, fmt_poly *b)
{
    fmt_poly q, low;
    int64_t c;
    if (b->n == 0)
        return opaque(p, FMT_DIV, fmt_poly_intern(p, a), fmt_poly_intern(p, b));
    if (a->n == 0 || poly_div_exact(p, a, b, &q))
        return a->n == 0 ? fmt_dim_const(p, 0) : fmt_poly_intern(p, &q);
    if (p->status != RTX_OK || !cancel(p, a, b))
        return FMT_DIM_BAD;
    int64_t v;
    if (poly_const(b, &c) && poly_const(a, &v))
        return fmt_floor_div(v, c, &v) ? fmt_dim_const(p, v) : bad(p, RTX_LIMIT);
    if (!poly_const(b, &c) || c < 0)
        return opaque(p, FMT_DIV, fmt_poly_intern(p, a), fmt_poly_intern(p, b));
    if (!poly_split(p, a, c, &q, &low))
        return FMT_DIM_BAD;
    fmt_dim rest = fmt_poly_intern(p, &low);
    if (rest != FMT_DIM_BAD && low.n)
        rest = div_rest(p, rest, c);
    return fmt_dim_add(p, fmt_poly_intern(p, &q), rest);
}

static fmt_dim dim_mod(fmt_dims *p, const fmt_poly *a, const fmt_poly *b)
{
    fmt_poly q, low = *a;
    int64_t c, v;
    if (b->n && (a->n == 0 || poly_div_exact(p, a, b, &q)))
        return fmt_dim_const(p, 0);
    if (p->status != RTX_OK)
        return FMT_DIM_BAD;
    if (b->n && poly_const(b, &c)) {
        if (poly_const(a, &v))
            return fmt_dim_const(p, fmt_floor_mod(v, c));
        if (c > 0 && !poly_split(p, a, c, &q, &low))
            return FMT_DIM_BAD;
        fmt_dim rest = fmt_poly_intern(p, &low);
        if (rest == FMT_DIM_BAD || (c > 0 && below(p, rest, c)))
            return rest;
    }
    return opaque(p, FMT_MOD, fmt_poly_intern(p, &low), fmt_poly_intern(p, b));
}

/* Ranges of the operands first: constants far outside decide even where the difference would overflow. */
static fmt_dim dim_min_max(fmt_dims *p, fmt_dim_op op, fmt_dim a, fmt_dim b)
{
    int64_t alo, ahi, blo, bhi;
    fmt_dim_range(p, a, &alo, &ahi);
    fmt_dim_range(p, b, &blo, &bhi);
    bool a_less = ahi <= blo, b_less = bhi <= alo;
    const int64_t far = INT64_MAX / 4;
    if (!a_less && !b_less && MIN(alo, blo) > -far && MAX(ahi, bhi) < far) {
        fmt_dim diff = fmt_dim_sub(p, a, b);
        if (diff == FMT_DIM_BAD)
            return FMT_DIM_BAD;
        int64_t lo, hi;
        fmt_dim_range(p, diff, &lo, &hi);
        a_less = hi <= 0;
        b_less = lo >= 0;
    }
    if (a_less || b_less)
        return a_less == (op == FMT_MIN) ? a : b;
    return dim_cmp(p, a, b) < 0 ? opaque(p, op, a, b) : opaque(p, op, b, a);
}

fmt_dim fmt_dim_bin(fmt_dims *p, fmt_dim_op op, fmt_dim a, fmt_dim b)
{
    if (fmt_dim_bad(p, a) || fmt_dim_bad(p, b))
        return FMT_DIM_BAD;
    if (op == FMT_MIN || op == FMT_MAX)
        return a == b ? a : dim_min_max(p, op, a, b);
    fmt_poly x, y, sum;
    fmt_poly_of(p, a, &x);
    fmt_poly_of(p, b, &y);
    switch (op) {
    case FMT_ADD:
    case FMT_SUB:
        return fmt_poly_add_scaled(p, &x, &y, op == FMT_ADD ? 1 : -1, 0) ? fmt_poly_intern(p, &x)
                                                                         : FMT_DIM_BAD;
    case FMT_MUL:
        sum.n = 0;
        for (uint32_t i = 0; i < x.n; i++)
            if (!fmt_poly_add_scaled(p, &sum, &y, x.t[i].coef, x.t[i].mono))
                return FMT_DIM_BAD;
        return fmt_poly_intern(p, &sum);
    case FMT_DIV:
        return dim_div(p, &x, &y);
    default:
        return dim_mod(p, &x, &y);
    }
}
