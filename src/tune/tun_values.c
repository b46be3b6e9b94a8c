/* What a test puts into operands: seeded values, ordinary ones and, for one case of each problem, awkward ones.
 *   values     are a function of seed, place in memory and row: broadcast and overlapping elements agree by themselves
 *   awkward    rows that a shortcut would get wrong and an honest fp32 kernel gets right: what it meets decides which.
 *              They are multiples of powers of two so that the sums before a softmax or norm are exact; else the rounding of
 *              a large offset would be all that is seen, and the validator's bound would be unfair */
#include "tun_int.h"
#include <math.h>

#define REGION 256 /* nodes; larger regions get ordinary values */

/* ---- which rows are awkward for what ---- */

typedef enum row_kind {
    PLAIN,
    SHIFTED, /* 100 … 1000 of either sign, and deviation 1 */
    EQUAL,   /* all elements alike */
    ZERO,    /* zeros of both signs */
    WIDE,    /* up to 450 apart: exp overflows unless shifted */
    ONE,     /* one element 1000 above the rest */
    HUGE_ONE,
    TINY,  /* times 2^-40: squares are normal numbers */
    LARGE, /* times 2^30: products of three do not overflow */
    LEVEL, /* variance about eps */
    NEAR,  /* variance about eps, and a mean so far that its rounding counts */
    MIXED, /* zeros, 2^101 and 2^-100 among the rest */
    TIES,  /* few different values, and infinities */
    NANS   /* as TIES, and NaN */
} row_kind;

static const uint8_t rows_of[][8] = {
    [TUN_HARD_SOFTMAX] = {WIDE, SHIFTED, PLAIN, HUGE_ONE, EQUAL, ZERO, ONE, SHIFTED},
    [TUN_HARD_NORM] = {SHIFTED, LEVEL, NEAR, EQUAL, ZERO, SHIFTED, LARGE, TINY},
    [TUN_HARD_SUM] = {PLAIN, SHIFTED, ZERO, LARGE, EQUAL, TINY, ONE, PLAIN},
    [TUN_HARD_ORDER] = {TIES, MIXED, NANS, PLAIN, EQUAL, ZERO, TIES, SHIFTED},
    [TUN_HARD_MOVED] = {MIXED, MIXED, MIXED, MIXED, MIXED, MIXED, MIXED, MIXED},
    [TUN_HARD_PLAIN] = {PLAIN, PLAIN, PLAIN, PLAIN, PLAIN, PLAIN, PLAIN, PLAIN},
    [TUN_HARD_LEFT] = {PLAIN, ZERO, PLAIN, PLAIN, EQUAL, PLAIN, PLAIN, PLAIN},
    [TUN_HARD_QUERY] = {LEVEL, PLAIN, LEVEL, ZERO, PLAIN, LEVEL, EQUAL, PLAIN},
};

/* ops that do not round such values: moves, sums and choices */
static bool exact(ir_op op)
{
    switch (op) {
    case IR_add:
    case IR_sub:
    case IR_neg:
    case IR_abs:
    case IR_min:
    case IR_max:
    case IR_relu:
    case IR_select:
    case IR_concat:
    case IR_gather:
    case IR_gather_nd:
    case IR_gather_elements:
        return true;
    default:
        return ir_op_get(op)->view;
    }
}

/* ops that neither magnify an error nor leave the range of fp32 behind one of the awkward */
static bool tame(ir_op op)
{
    return exact(op) || op == IR_mul || op == IR_gelu || op == IR_gelu_tanh || op == IR_silu ||
           op == IR_swiglu || op == IR_sigmoid || op == IR_tanh || op == IR_erf;
}

/* ops whose result is that of one correct rounding, or of a function that is right everywhere */
static bool single(ir_op op)
{
    return op == IR_mul || op == IR_div || op == IR_recip || op == IR_sqrt || op == IR_floor ||
           op == IR_ceil || op == IR_sign || op == IR_exp || op == IR_tanh || op == IR_sigmoid ||
           op == IR_erf;
}

/* What input k of the op that a region is about may hold. */
static tun_hard hard_of(ir_op op, uint32_t k)
{
    switch (op) {
    case IR_softmax:
        return TUN_HARD_SOFTMAX;
    case IR_layernorm:
    case IR_rmsnorm:
        return k == 0 ? TUN_HARD_NORM : TUN_HARD_NONE;
    case IR_reduce_sum:
    case IR_reduce_mean:
    case IR_cumsum:
        return TUN_HARD_SUM;
    case IR_topk:
    case IR_argmax:
    case IR_argmin:
    case IR_reduce_max:
    case IR_reduce_min:
        return TUN_HARD_ORDER;
    case IR_dot:
        return k == 0 ? TUN_HARD_LEFT : TUN_HARD_NONE;
    case IR_attention:
        return k == 0 ? TUN_HARD_QUERY : k == 1 ? TUN_HARD_KEY : TUN_HARD_NONE;
    default:
        return TUN_HARD_NONE;
    }
}

static bool is_output(const ir_graph *g, ir_id id)
{
    for (uint32_t k = 0; k < g->n_outputs; k++)
        if (g->outputs[k].id == id)
            return true;
    return false;
}

/* The node that the region is about: the only one with awkward values of its own. 0: there is none, all is moved; -1:
 * they would be unfair. */
static int64_t subject(const ir_graph *g)
{
    int64_t about = 0;
    uint32_t rounding = 0, rough = 0;
    for (ir_id id = 1; id < g->n_nodes; id++) {
        ir_op op = ir_op_of(g, id);
        if (g->nodes[id].n_in == 0 || exact(op))
            continue;
        rounding++;
        if (hard_of(op, 0) != TUN_HARD_NONE && about == 0)
            about = id;
        else if (single(op))
            rough++;
        else if (!tame(op))
            return -1;
    }
    if (about == 0)
        return rounding <= 1 ? 0 : -1;
    bool sum = hard_of(ir_op_of(g, (ir_id)about), 0) == TUN_HARD_SUM;
    return rough || (sum && !is_output(g, (ir_id)about)) ? -1 : about; /* else no sum of |terms| */
}

typedef struct slot { /* an input of the subject */
    const ir_graph *g;
    ir_id about;
    uint32_t k;
    tun_hard hard;
    bool above[REGION]; /* nodes that it is made from */
} slot;

static bool passes(const slot *s, ir_id id)
{
    ir_op op = ir_op_of(s->g, id);
    return op == IR_input || exact(op) || (op == IR_mul && s->hard == TUN_HARD_SUM);
}

/* Is everything above it exact? */
static bool look_above(slot *s)
{
    s->above[ir_in(s->g, s->about, s->k)] = true;
    for (ir_id id = s->about; id-- > 1;) {
        if (!s->above[id])
            continue;
        if (!passes(s, id))
            return false;
        for (uint32_t k = 0; k < s->g->nodes[id].n_in; k++)
            s->above[ir_in(s->g, id, k)] = true;
    }
    return true;
}

/* Does a value go nowhere but to the slot and, moved, to outputs? */
static bool for_slot_only(const slot *s, ir_id from)
{
    bool on[REGION] = {false};
    on[from] = true;
    for (ir_id id = 1; id < s->g->n_nodes; id++)
        for (uint32_t k = 0; k < s->g->nodes[id].n_in; k++)
            if (on[ir_in(s->g, id, k)] && !(id == s->about && k == s->k)) {
                if (!passes(s, id))
                    return false;
                on[id] = true;
            }
    return true;
}

/* Are the rows of an input those of the slot? Before a softmax or norm, other rows would round away what matters. */
static bool same_rows(const syn_problem *p, const tun_shape *shape, const tun_operand *o,
                      const slot *s)
{
    const ir_type *t = ir_type_of(s->g, ir_in(s->g, s->about, s->k));
    if (s->hard != TUN_HARD_SOFTMAX && s->hard != TUN_HARD_NORM)
        return true;
    bool same = t->rank == o->rank;
    for (int d = 0; same && d < o->rank; d++) {
        int64_t n = -1;
        same = fmt_dim_eval(p->dims, t->dim[d], shape->sym, &n) && n == o->dim[d] &&
               (o->stride[d] != 0 || n <= 1);
    }
    return same;
}

static bool may_be_hard(const tun_operand *o)
{
    return o->dtype == FMT_F32 && o->values == TUN_NORMAL && !o->packed;
}

/* All inputs of the slot are awkward together, or none is. */
static bool fill_slot(const syn_problem *p, tun_shape *shape, slot *s)
{
    if (!look_above(s))
        return false;
    for (uint32_t pass = 0; pass < 2; pass++)
        for (uint32_t i = 0; i < p->n_in; i++) {
            tun_operand *o = &shape->op[i];
            if (!s->above[s->g->inputs[i].id] || fmt_dtype_class(o->dtype) != 'F')
                continue;
            if (!may_be_hard(o) || !for_slot_only(s, s->g->inputs[i].id))
                return false;
            if (pass)
                o->hard = same_rows(p, shape, o, s) ? s->hard : TUN_HARD_PLAIN;
        }
    return true;
}

/* Power of two: for norms sqrt(eps); for attention what sets scores so far apart that only equal ones share. */
static int level_of(const syn_problem *p, ir_id about)
{
    double f = about ? ir_attrs_of(p->region, about)->f[0] : 0;
    if (p->free_attrs || !(f > 1e-14) || f > 1e3)
        return 0;
    return (int)lrint(ir_op_of(p->region, about) == IR_attention ? ceil(log2(128 / f))
                                                                 : log2(f) / 2);
}

void tun_values_classify(const syn_problem *p, tun_shape *s)
{
    int64_t about = p->region->n_nodes > REGION ? -1 : subject(p->region);
    bool fair = about >= 0;
    for (uint32_t k = 0; about > 0 && k < p->region->nodes[about].n_in; k++) {
        slot slot = {.g = p->region, .about = (ir_id)about, .k = k};
        slot.hard = hard_of(ir_op_of(p->region, slot.about), k);
        if (slot.hard != TUN_HARD_NONE)
            fair &= fill_slot(p, s, &slot);
    }
    for (uint32_t i = 0; i < p->n_in; i++) {
        tun_operand *o = &s->op[i];
        if (!fair)
            o->hard = TUN_HARD_NONE;
        else if (about == 0 && may_be_hard(o))
            o->hard = TUN_HARD_MOVED;
        o->level = level_of(p, (ir_id)MAX(about, 0));
    }
}

/* ---- values ---- */

uint64_t tun_hash(uint64_t seed, uint64_t place)
{
    uint64_t z = seed + place * 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

/* About normal: the sum of four uniforms has variance 1/3; no denormals, no surprises. */
static double normal(uint64_t h)
{
    double s = 0;
    for (int i = 0; i < 4; i++)
        s += (double)(h >> (16 * i) & 0xffff) / 65536.0 - 0.5;
    return s * 1.7320508;
}

static double step_of(double v, double steps) { return rint(v * steps) / steps; }

/* Place of an element: a row is what lies along the last axis. */
typedef struct spot {
    uint64_t seed, h; /* of the operand; of the element */
    int64_t row, col, cols;
} spot;

static double mixed(uint64_t h, double plain)
{
    switch (h >> 60) {
    case 0:
        return 0.0;
    case 1:
        return -0.0;
    case 2:
        return ldexp(plain, 101);
    case 3:
        return ldexp(plain, -100);
    default:
        return plain;
    }
}

static double tied(uint64_t h, bool nans)
{
    switch (h >> 59) {
    case 0:
        return INFINITY;
    case 1:
        return -INFINITY;
    case 2:
        return nans ? NAN : -0.0;
    default:
        return (double)(h % 5) - 2;
    }
}

static double hard_row(const tun_operand *o, const spot *at)
{
    double plain = step_of(normal(at->h), 64);
    uint64_t r = tun_hash(at->seed ^ 0x726f77, (uint64_t)at->row);
    bool chosen = (uint64_t)at->col == r % (uint64_t)MAX(at->cols, 1);
    switch ((row_kind)rows_of[o->hard][at->row & 7]) {
    case SHIFTED:
        return plain + (r >> 63 ? 1.0 : -1.0) * (double)(100 + r % 901);
    case EQUAL: /* no variance and no eps would be 0 / 0 */
        return o->hard == TUN_HARD_NORM && o->level == 0 ? plain : (double)(r % 31) / 4 - 4;
    case ZERO:
        return at->h & 1 ? -0.0 : 0.0;
    case WIDE:
        return plain * 128;
    case ONE:
        return chosen ? 1000 : plain;
    case HUGE_ONE:
        return chosen ? ldexp(1, 101) : at->h % 3 ? plain : -ldexp(1, 101);
    case TINY:
        return ldexp(plain, -40);
    case LARGE:
        return ldexp(plain, 30);
    case LEVEL:
        return ldexp(o->hard == TUN_HARD_QUERY ? step_of(plain, 4) : plain, o->level);
    case NEAR: /* 23 bits */
        return ldexp(step_of(plain, 16) + (r >> 63 ? 262144 : -262144), o->level);
    case MIXED:
        return mixed(at->h, plain);
    case TIES:
    case NANS:
        return tied(at->h, rows_of[o->hard][at->row & 7] == NANS);
    default:
        return o->hard == TUN_HARD_LEFT ? normal(at->h) : plain;
    }
}

/* Attention masks: mostly zero, some biases, some excluded keys in both spellings that exporters use. */
static double mask_value(uint64_t h)
{
    switch (h % 16) {
    case 0:
    case 1:
        return -INFINITY;
    case 2:
        return -3.4028234663852886e38;
    case 3:
    case 4:
    case 5:
        return normal(h >> 4);
    default:
        return 0;
    }
}

/* Rows with nothing visible in either spelling, with one key, up to a border, with all. No biases: beside scores of
 * thousands they would only be rounded. */
static double hard_mask(const spot *at)
{
    uint64_t r = tun_hash(at->seed ^ 0x6d61736b, (uint64_t)at->row);
    int64_t key = (int64_t)(r % (uint64_t)MAX(at->cols, 1));
    double out = r >> 63 ? -INFINITY : -3.4028234663852886e38;
    switch (at->row % 6) {
    case 0:
        return at->col == key ? 0 : out;
    case 1:
        return -INFINITY;
    case 2:
        return at->col <= at->row % MAX(at->cols, 1) ? 0 : out;
    case 3:
        return -3.4028234663852886e38;
    case 4:
        return at->col <= key ? 0 : out;
    default:
        return 0;
    }
}

static double float_value(const tun_operand *o, const spot *at, bool hard)
{
    if (o->values == TUN_MASK)
        return hard ? hard_mask(at) : mask_value(at->h);
    if (hard && o->hard == TUN_HARD_KEY)
        return step_of(normal(at->h), 4);
    return hard && o->hard != TUN_HARD_NONE ? hard_row(o, at) : normal(at->h);
}

static void put_value(const tun_operand *o, const spot *at, bool hard, void *to)
{
    uint64_t h = at->h;
    int64_t i = o->values == TUN_BIT     ? (int64_t)(h & 1)
                : o->values == TUN_INDEX ? (int64_t)(h % (uint64_t)MAX(2 * o->bound, 1)) - o->bound
                                         : (int64_t)(h % 17) - 8;
    double f = fmt_dtype_class(o->dtype) == 'F' ? float_value(o, at, hard) : 0;
    switch (o->dtype) {
    case FMT_F32:
        memcpy(to, &(float){(float)f}, 4);
        break;
    case FMT_F64:
        memcpy(to, &f, 8);
        break;
    case FMT_F16:
        memcpy(to, &(uint16_t){fmt_f32_to_f16((float)f)}, 2);
        break;
    case FMT_BF16:
        memcpy(to, &(uint16_t){fmt_f32_to_bf16((float)f)}, 2);
        break;
    case FMT_I64:
        memcpy(to, &i, 8);
        break;
    case FMT_I32:
        memcpy(to, &(int32_t){(int32_t)i}, 4);
        break;
    default:
        memset(to, (int)(i & 1), fmt_dtype_bytes(o->dtype));
        break;
    }
}

static rtx_status pack_input(const tun_operand *o, const void *logical, void *image, rtx_err *err)
{
    if (o->dtype != FMT_F32 || o->rank < 2)
        return FAIL(err, UNSUPPORTED, "packed operands are f32 matrices");
    int64_t k = o->dim[o->rank - 2], n = o->dim[o->rank - 1];
    int64_t batch = k && n ? o->elems / (k * n) : 0;
    for (int64_t b = 0; b < batch; b++)
        syn_pack_b((const float *)logical + b * k * n, k, n, n, 1,
                   (float *)image + b * (int64_t)syn_pack_floats(k, n));
    return RTX_OK;
}

rtx_status tun_shape_input(const tun_shape *s, uint32_t index, uint64_t seed, void *image,
                           void *logical, rtx_err *err)
{
    const tun_operand *o = &s->op[index];
    size_t size = fmt_dtype_bytes(o->dtype);
    spot at = {.seed = tun_hash(seed, index + 1)};
    if (o->packed) {
        if (!logical)
            return FAIL(err, INTERNAL, "packed operands need their logical form");
        for (int64_t i = 0; i < o->elems; i++) {
            at.h = tun_hash(at.seed, (uint64_t)i);
            put_value(o, &at, false, (char *)logical + (size_t)i * size);
        }
        return pack_input(o, logical, image, err);
    }
    tun_operand once = *o; /* each place in memory once, however often it is read */
    for (int d = 0; d < o->rank; d++)
        if (o->stride[d] == 0 && o->dim[d] > 1) {
            once.elems /= o->dim[d];
            once.dim[d] = 1;
        }
    at.cols = o->rank ? once.dim[o->rank - 1] : 1;
    tun_walk w = tun_walk_of(&once);
    for (; w.i < once.elems; tun_walk_next(&once, &w)) {
        at.h = tun_hash(at.seed, (uint64_t)w.offset);
        at.row = w.i / at.cols;
        at.col = w.i % at.cols;
        put_value(o, &at, s->hard, (char *)image + (size_t)w.offset * size);
    }
    if (!logical)
        return RTX_OK;
    for (w = tun_walk_of(o); w.i < o->elems; tun_walk_next(o, &w))
        memcpy((char *)logical + (size_t)w.i * size, (char *)image + (size_t)w.offset * size, size);
    return RTX_OK;
}
