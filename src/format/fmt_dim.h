/* Inside of the pool of dimensions, shared by its algebra (fmt_dim.c) and its text and records (fmt_dim_text.c).
 *   layer      L0 format, private to it; may include base
 *   form       dimension = sum of coefficient * monomial; monomial = product of atoms; atom = symbol, or one of
 *              div mod min max over two dimensions. All three are interned, so equality is equality of ids
 *   order      terms: higher degree first, then by atoms; atoms: symbols by index, then by operation and operands. The
 *              order depends on structure only, never on ids, so text is stable over print and parse. It is graded
 *              lexicographic, which is what exact division of polynomials needs
 *   threads    as fmt_type.h */
#ifndef FMT_DIM_H
#define FMT_DIM_H

#include "fmt_type.h"

#define FMT_TERMS_MAX   64   /* terms of one dimension */
#define FMT_FACTORS_MAX 16   /* atoms of one monomial */
#define FMT_WEIGHT_MAX  4096 /* atoms of one dimension as a tree: bounds text and time */
#define FMT_DEPTH_MAX   64   /* nesting of atoms */

typedef struct fmt_term {
    int64_t coef; /* never 0 */
    uint32_t mono;
} fmt_term;

typedef struct fmt_poly { /* a dimension being computed */
    uint32_t n;
    fmt_term t[FMT_TERMS_MAX];
} fmt_poly;

typedef struct fmt_atom {
    int32_t op; /* fmt_dim_op, or FMT_ATOM_SYM with a = symbol */
    fmt_dim a, b;
} fmt_atom;
#define FMT_ATOM_SYM (-1)

typedef struct fmt_mono {
    uint32_t first, n;
} fmt_mono; /* range of pool->factors; mono 0 is empty */
typedef struct fmt_dim_rec {
    uint32_t first, n, weight, depth;
} fmt_dim_rec; /* range of pool->terms */
typedef struct fmt_sym_rec {
    fmt_sym sym;
    fmt_dim bound;
} fmt_sym_rec; /* bound: FMT_DIM_BAD while free */

/* Open addressing over ids; 0 = free slot, else id + 1. */
typedef struct fmt_table {
    uint32_t *slots, cap, n;
} fmt_table;

/* Growable array of T: items, count and capacity. */
#define FMT_VEC(T)                                                                                 \
    struct {                                                                                       \
        T *v;                                                                                      \
        uint32_t n, cap;                                                                           \
    }

struct fmt_dims {
    FMT_VEC(fmt_sym_rec) syms;
    FMT_VEC(fmt_atom) atoms;
    FMT_VEC(fmt_mono) monos;
    FMT_VEC(uint32_t) factors;
    FMT_VEC(fmt_dim_rec) recs;
    FMT_VEC(fmt_term) terms;
    fmt_table atom_table, mono_table, dim_table;
    uint32_t n_bound;
    bool unproven; /* the last fmt_dim_unify failed on sizes that may be equal: */
    fmt_dim unproven_a, unproven_b;
    rtx_status status; /* OK, NOMEM or LIMIT; sticky */
};

fmt_dim fmt_dim_intern(fmt_dims *p, const fmt_term *t, uint32_t n); /* terms in canonical order */
uint32_t fmt_atom_intern(fmt_dims *p, fmt_atom atom);               /* UINT32_MAX on failure */
/* Atoms in canonical order. */
uint32_t fmt_mono_intern(fmt_dims *p, const uint32_t *atoms, uint32_t n);
int fmt_mono_cmp(const fmt_dims *p, uint32_t a, uint32_t b);
int fmt_atom_cmp(const fmt_dims *p, uint32_t a, uint32_t b);

bool fmt_dim_bad(const fmt_dims *p, fmt_dim d); /* not an id of this pool, or the pool has failed */
/* d as one bare atom of op, or NULL. */
const fmt_atom *fmt_dim_atom(const fmt_dims *p, fmt_dim d, int32_t op);
int64_t fmt_floor_mod(int64_t a, int64_t b);
bool fmt_floor_div(int64_t a, int64_t b, int64_t *out);

void fmt_poly_of(const fmt_dims *p, fmt_dim d, fmt_poly *out);
fmt_dim fmt_poly_intern(fmt_dims *p, const fmt_poly *x);
bool fmt_poly_add(fmt_dims *p, fmt_poly *x, int64_t coef, uint32_t mono); /* x += coef * mono */
/* x += scale * mono * y */
bool fmt_poly_add_scaled(fmt_dims *p, fmt_poly *x, const fmt_poly *y, int64_t scale, uint32_t mono);
/* a / b if every factor of b is in a; UINT32_MAX if not (or on failure, which the pool keeps). */
uint32_t fmt_mono_div(fmt_dims *p, uint32_t a, uint32_t b);
/* Greatest monomial of non-negative atoms that divides all terms of x and of y (y may be empty). */
uint32_t fmt_mono_common(fmt_dims *p, const fmt_poly *x, const fmt_poly *y);

#endif
