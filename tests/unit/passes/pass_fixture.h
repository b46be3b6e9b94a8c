/* What the tests of passes share: seeded choices, algebraically equal spellings of small pieces, comparison by ir_eval. */
#ifndef PASS_FIXTURE_H
#define PASS_FIXTURE_H

#include "pass.h"

typedef struct fx {
    fmt_dims *dims;
    ir_graph *g;
    uint64_t seed; /* choices follow from it alone */
    bool plain;    /* every choice takes the first spelling */
    bool nan;      /* inputs of comparisons hold a NaN in their second element */
} fx;

void fx_open(fx *f, uint64_t seed);
void fx_close(fx *f);
int fx_pick(fx *f, int n); /* 0 … n - 1 */
double fx_real(fx *f);     /* about normal */
fmt_dim fx_sym(fx *f, const char *name, int64_t hi);
fmt_dim fx_const(fx *f, int64_t v);

/* inputs and constants */
ir_id fx_input(fx *f, const char *name, fmt_dtype t, int rank, const fmt_dim *dim);
ir_id fx_weight(fx *f, int rank, const int64_t *dim); /* random f32 constant */
ir_id fx_num(fx *f, double v);                        /* a constant to broadcast: scalar or [1] */

/* spellings: each gives a node equal to its name in real arithmetic */
ir_id fx_same(fx *f, ir_id x); /* x behind pairs of views, casts that lose nothing, x * 1 */
ir_id fx_mul(fx *f, ir_id a, ir_id b);
ir_id fx_add(fx *f, ir_id a, ir_id b);
ir_id fx_sub(fx *f, ir_id a, ir_id b);
ir_id fx_div(fx *f, ir_id a, ir_id b);
ir_id fx_scale(fx *f, ir_id x, double c);
ir_id fx_offset(fx *f, ir_id x, double c);
ir_id fx_square(fx *f, ir_id x);
ir_id fx_mean(fx *f, ir_id x, int axis); /* keeps the axis */
ir_id fx_inv_root(fx *f, ir_id x);
ir_id fx_softmax(fx *f, ir_id x, int axis); /* raw */
ir_id fx_permute(fx *f, ir_id x, int a, int b, int c, int d);
ir_id fx_swap(fx *f, ir_id x); /* last two axes */

/* questions */
int fx_count(const ir_graph *g, ir_op op);
/* Both graphs on the same random inputs (booleans and integers 0 or 1), symbols 2, 3, 5 … in order of making. The largest
 * difference over the largest magnitude; NaN counts as equal to NaN only. */
double fx_difference(fx *f, const ir_graph *a, const ir_graph *b);
/* fold, raise [, layout]: asserts success; the caller frees. */
ir_graph *fx_raise(const ir_graph *g);
ir_graph *fx_pass(const ir_graph *g, const char *name);
uint64_t fx_digest(const ir_graph *g); /* equal for graphs that are node for node equal */

#endif
