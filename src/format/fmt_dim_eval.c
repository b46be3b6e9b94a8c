/* Questions about dimensions: values, proven ranges, substitution, and binding of symbols.
 *   layer    L0 format; may include base
 *   form     see fmt_dim.h */
#include "fmt_dim.h"

/* ---- questions ---- */

bool fmt_dim_is_const(const fmt_dims *p, fmt_dim d, int64_t *out_v)
{
    if (d < 0)
        return false;
    const fmt_dim_rec *r = &p->recs.v[d];
    if (r->n > 1 || (r->n == 1 && p->terms.v[r->first].mono != 0))
        return false;
    if (out_v)
        *out_v = r->n ? p->terms.v[r->first].coef : 0;
    return true;
}

bool fmt_dim_is_sym(const fmt_dims *p, fmt_dim d, uint32_t *out_sym)
{
    const fmt_atom *atom = d < 0 ? NULL : fmt_dim_atom(p, d, FMT_ATOM_SYM);
    if (atom && out_sym)
        *out_sym = (uint32_t)atom->a;
    return atom != NULL;
}

/* Visit the atoms of d's terms, without their operands. */
#define FOR_ATOMS(p, d, atom)                                                                      \
    for (uint32_t t_ = 0; t_ < (p)->recs.v[d].n; t_++)                                             \
        for (uint32_t k_ = 0, m_ = (p)->terms.v[(p)->recs.v[d].first + t_].mono;                   \
             k_ < (p)->monos.v[m_].n; k_++)                                                        \
            for (const fmt_atom *atom =                                                            \
                     &(p)->atoms.v[(p)->factors.v[(p)->monos.v[m_].first + k_]];                   \
                 atom; atom = NULL)

bool fmt_dim_uses(const fmt_dims *p, fmt_dim d, uint32_t sym)
{
    if (d < 0)
        return false;
    FOR_ATOMS(p, d, atom)
    {
        if (atom->op == FMT_ATOM_SYM
                ? (uint32_t)atom->a == sym
                : fmt_dim_uses(p, atom->a, sym) || fmt_dim_uses(p, atom->b, sym))
            return true;
    }
    return false;
}

static int64_t sat_mul(int64_t a, int64_t b)
{
    int64_t v;
    return !__builtin_mul_overflow(a, b, &v) ? v : (a < 0) == (b < 0) ? INT64_MAX : INT64_MIN;
}

static int64_t sat_add(int64_t a, int64_t b)
{
    int64_t v;
    return !__builtin_add_overflow(a, b, &v) ? v : a < 0 ? INT64_MIN : INT64_MAX;
}

typedef struct range {
    int64_t lo, hi;
} range;

static range range_mul(range a, range b)
{
    int64_t c[4] = {sat_mul(a.lo, b.lo), sat_mul(a.lo, b.hi), sat_mul(a.hi, b.lo),
                    sat_mul(a.hi, b.hi)};
    return (range){MIN(MIN(c[0], c[1]), MIN(c[2], c[3])), MAX(MAX(c[0], c[1]), MAX(c[2], c[3]))};
}

static range range_div(range a, range b)
{
    range all = {INT64_MIN, INT64_MAX};
    if (b.lo < 0 || b.hi <= 0 || a.lo == INT64_MIN)
        return all;
    b.lo = MAX(b.lo, 1); /* a zero divisor is an error, not a value */
    int64_t c[4];
    const int64_t num[4] = {a.lo, a.lo, a.hi, a.hi}, den[4] = {b.lo, b.hi, b.lo, b.hi};
    for (int i = 0; i < 4; i++)
        fmt_floor_div(num[i], den[i], &c[i]);
    return (range){MIN(c[0], c[1]), MAX(c[2], c[3])};
}

static range range_of(const fmt_dims *p, fmt_dim d);

static range range_atom(const fmt_dims *p, const fmt_atom *atom)
{
    if (atom->op == FMT_ATOM_SYM)
        return (range){p->syms.v[atom->a].sym.lo, p->syms.v[atom->a].sym.hi};
    range a = range_of(p, atom->a), b = range_of(p, atom->b);
    switch (atom->op) {
    case FMT_DIV:
        return range_div(a, b);
    case FMT_MOD:
        if (b.lo < 0)
            return (range){INT64_MIN, INT64_MAX};
        return (range){0, a.lo >= 0 ? MIN(a.hi, MAX(b.hi - 1, 0)) : MAX(b.hi - 1, 0)};
    case FMT_MIN:
        return (range){MIN(a.lo, b.lo), MIN(a.hi, b.hi)};
    default:
        return (range){MAX(a.lo, b.lo), MAX(a.hi, b.hi)};
    }
}

static range range_terms(const fmt_dims *p, const fmt_term *t, uint32_t n)
{
    range sum = {0, 0};
    for (uint32_t i = 0; i < n; i++) {
        const fmt_mono *m = &p->monos.v[t[i].mono];
        range product = {t[i].coef, t[i].coef};
        for (uint32_t k = 0; k < m->n; k++)
            product = range_mul(product, range_atom(p, &p->atoms.v[p->factors.v[m->first + k]]));
        sum = (range){sat_add(sum.lo, product.lo), sat_add(sum.hi, product.hi)};
    }
    return sum;
}

static range range_of(const fmt_dims *p, fmt_dim d)
{
    const fmt_dim_rec *r = &p->recs.v[d];
    return range_terms(p, p->terms.v ? p->terms.v + r->first : NULL, r->n);
}

void fmt_dim_range(const fmt_dims *p, fmt_dim d, int64_t *out_lo, int64_t *out_hi)
{
    range r = d < 0 ? (range){INT64_MIN, INT64_MAX} : range_of(p, d);
    *out_lo = r.lo;
    *out_hi = r.hi;
}

/* ---- evaluation and substitution ---- */

static bool eval(const fmt_dims *p, fmt_dim d, const int64_t *values, int64_t *out_v);

static bool eval_atom(const fmt_dims *p, const fmt_atom *atom, const int64_t *values,
                      int64_t *out_v)
{
    if (atom->op == FMT_ATOM_SYM) {
        *out_v = values[atom->a];
        fmt_dim bound =
            p->syms.v[atom->a].bound; /* bindings are acyclic by the check in fmt_dim_unify */
        return *out_v >= 0 || (bound != FMT_DIM_BAD && eval(p, bound, values, out_v));
    }
    int64_t a, b;
    if (!eval(p, atom->a, values, &a) || !eval(p, atom->b, values, &b))
        return false;
    switch (atom->op) {
    case FMT_DIV:
        return b != 0 && fmt_floor_div(a, b, out_v);
    case FMT_MOD:
        return b != 0 && (*out_v = fmt_floor_mod(a, b), true);
    case FMT_MIN:
        return *out_v = MIN(a, b), true;
    default:
        return *out_v = MAX(a, b), true;
    }
}

static bool eval(const fmt_dims *p, fmt_dim d, const int64_t *values, int64_t *out_v)
{
    int64_t sum = 0;
    const fmt_dim_rec *r = &p->recs.v[d];
    for (uint32_t i = 0; i < r->n; i++) {
        fmt_term t = p->terms.v[r->first + i];
        const fmt_mono *m = &p->monos.v[t.mono];
        int64_t product = t.coef, v;
        for (uint32_t k = 0; k < m->n; k++)
            if (!eval_atom(p, &p->atoms.v[p->factors.v[m->first + k]], values, &v) ||
                __builtin_mul_overflow(product, v, &product))
                return false;
        if (__builtin_add_overflow(sum, product, &sum))
            return false;
    }
    *out_v = sum;
    return true;
}

bool fmt_dim_eval(const fmt_dims *p, fmt_dim d, const int64_t *sym_values, int64_t *out_v)
{
    int64_t v;
    if (d < 0 || (uint32_t)d >= p->recs.n || !eval(p, d, sym_values, &v) || v > FMT_DIM_LIMIT ||
        v < -FMT_DIM_LIMIT)
        return false;
    *out_v = v;
    return true;
}

/* Rebuild d in `to`. With map NULL symbols become what they are bound to. */
static fmt_dim rebuild(const fmt_dims *p, fmt_dim d, fmt_dims *to, const fmt_dim *map)
{
    fmt_dim sum = fmt_dim_const(to, 0);
    for (uint32_t i = 0; i < p->recs.v[d].n && sum != FMT_DIM_BAD;
         i++) { /* p may equal to: no pointers held */
        fmt_term t = p->terms.v[p->recs.v[d].first + i];
        fmt_mono m = p->monos.v[t.mono];
        fmt_dim product = fmt_dim_const(to, t.coef);
        for (uint32_t k = 0; k < m.n; k++) {
            fmt_atom atom = p->atoms.v[p->factors.v[m.first + k]];
            fmt_dim v;
            if (atom.op == FMT_ATOM_SYM)
                v = map ? map[atom.a] : fmt_dim_sym(to, (uint32_t)atom.a);
            else
                v = fmt_dim_bin(to, (fmt_dim_op)atom.op, rebuild(p, atom.a, to, map),
                                rebuild(p, atom.b, to, map));
            product = fmt_dim_mul(to, product, v);
        }
        sum = fmt_dim_add(to, sum, product);
    }
    return sum;
}

fmt_dim fmt_dim_subst(const fmt_dims *p, fmt_dim d, fmt_dims *to, const fmt_dim *map)
{
    return d < 0 || p->status != RTX_OK || to->status != RTX_OK ? FMT_DIM_BAD
                                                                : rebuild(p, d, to, map);
}

fmt_dim fmt_dim_resolve(fmt_dims *p, fmt_dim d)
{
    return p->n_bound && !fmt_dim_bad(p, d) ? rebuild(p, d, p, NULL) : d;
}

/* ---- binding ---- */

/* Make sym equal to d if ranges allow; d does not use it. */
static bool bind(fmt_dims *p, uint32_t sym, fmt_dim d)
{
    int64_t lo, hi;
    uint32_t other;
    fmt_sym *s = &p->syms.v[sym].sym;
    fmt_dim_range(p, d, &lo, &hi);
    if (hi < s->lo || lo > s->hi)
        return false;
    if (fmt_dim_is_sym(p, d, &other))
        fmt_sym_bound(p, other, s->lo, s->hi);
    fmt_sym_bound(p, sym, lo, hi);
    p->syms.v[sym].bound = d;
    p->n_bound++;
    return true;
}

/* Solve x = 0 for a symbol that stands alone in one term and nowhere else; the newest one first, so that names given
 * early stay. */
static bool solve(fmt_dims *p, fmt_poly *x)
{
    uint32_t best = UINT32_MAX, best_term = 0;
    for (uint32_t i = 0; i < x->n; i++) {
        fmt_mono m = p->monos.v[x->t[i].mono];
        const fmt_atom *atom = m.n == 1 ? &p->atoms.v[p->factors.v[m.first]] : NULL;
        if (!atom || atom->op != FMT_ATOM_SYM || (best != UINT32_MAX && (uint32_t)atom->a < best))
            continue;
        bool alone = true;
        for (uint32_t j = 0; alone && j < x->n; j++) {
            fmt_dim term = fmt_dim_intern(p, &x->t[j], 1);
            alone = term != FMT_DIM_BAD && (j == i || !fmt_dim_uses(p, term, (uint32_t)atom->a));
            alone = alone && (x->t[j].coef % x->t[i].coef == 0 || j == i);
        }
        if (alone)
            best = (uint32_t)atom->a, best_term = i;
    }
    if (best == UINT32_MAX)
        return false;
    fmt_poly value = {0};
    for (uint32_t j = 0; j < x->n; j++) {
        int64_t ratio;
        if (j != best_term &&
            (!fmt_floor_div(x->t[j].coef, x->t[best_term].coef, &ratio) || ratio == INT64_MIN ||
             !fmt_poly_add(p, &value, -ratio, x->t[j].mono)))
            return false;
    }
    fmt_dim d = fmt_poly_intern(p, &value);
    return d != FMT_DIM_BAD && bind(p, best, d);
}

/* x is 0 for no sizes: by its range, or because its constant is no multiple of what divides all else. */
static bool never_zero(const fmt_dims *p, const fmt_poly *x)
{
    range r = range_terms(p, x->t, x->n);
    uint64_t shared = 0, rest = 0;
    for (uint32_t i = 0; i < x->n; i++) {
        uint64_t c = (uint64_t)x->t[i].coef;
        c = x->t[i].coef < 0 ? 0 - c : c;
        if (x->t[i].mono == 0)
            rest = c;
        else
            while (c) { /* Euclid */
                uint64_t left = shared % c;
                shared = c, c = left;
            }
    }
    return r.lo > 0 || r.hi < 0 || (shared && rest % shared);
}

bool fmt_dim_unify(fmt_dims *p, fmt_dim a, fmt_dim b)
{
    p->unproven = false;
    if (fmt_dim_bad(p, a) || fmt_dim_bad(p, b))
        return false;
    a = fmt_dim_resolve(p, a);
    b = fmt_dim_resolve(p, b);
    if (a == b || a == FMT_DIM_BAD || b == FMT_DIM_BAD)
        return a == b && a != FMT_DIM_BAD;
    fmt_poly x, y, none = {0};
    fmt_poly_of(p, a, &x);
    fmt_poly_of(p, b, &y);
    if (!fmt_poly_add_scaled(p, &x, &y, -1, 0) || x.n == 0)
        return false;
    bool apart = never_zero(p, &x);
    if (x.n > 1) { /* sizes are taken to be positive here; a lone term is a size that must be 0 */
        uint32_t shared = fmt_mono_common(p, &x, &none);
        for (uint32_t i = 0; i < x.n; i++)
            x.t[i].mono = fmt_mono_div(p, x.t[i].mono, shared);
    }
    bool solved = p->status == RTX_OK && solve(p, &x);
    p->unproven = !solved && !apart;
    p->unproven_a = a, p->unproven_b = b;
    return solved;
}

bool fmt_dims_take_unproven(fmt_dims *p, fmt_dim *out_a, fmt_dim *out_b)
{
    bool there = p->unproven;
    *out_a = p->unproven_a, *out_b = p->unproven_b;
    p->unproven = false;
    return there;
}

uint32_t fmt_dims_bound(const fmt_dims *p) { return p->n_bound; }
