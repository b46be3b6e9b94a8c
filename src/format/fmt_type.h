/* Element types, dimensions as expressions over symbols, and the bucket function: shared by compiler and runtime.
 *   layer      L0 format; may include base
 *   owner      a dimension is an id into its pool; ids live as long as the pool
 *   threads    a pool is used by one thread while it grows; evaluation of a finished pool from any thread
 *   sticky     after an allocation failure or an overflow of constants every call returns FMT_DIM_BAD; fmt_dims_ok reports it */
#ifndef FMT_TYPE_H
#define FMT_TYPE_H

#include "base_core.h"

/* X(NAME, text, bytes, class, ONNX code). Class: F float, I integer, B bool, N = known by name only (UNSUPPORTED). */
#define FMT_DTYPE_TABLE(X)                                                                         \
    X(NONE, "none", 0, N, 0)                                                                       \
    X(F32, "f32", 4, F, 1)                                                                         \
    X(I64, "i64", 8, I, 7)                                                                         \
    X(I32, "i32", 4, I, 6)                                                                         \
    X(BOOL, "bool", 1, B, 9)                                                                       \
    X(F16, "f16", 2, F, 10)                                                                        \
    X(BF16, "bf16", 2, F, 16)                                                                      \
    X(F64, "f64", 8, F, 11)                                                                        \
    X(U8, "u8", 1, N, 2)                                                                           \
    X(I8, "i8", 1, N, 3)                                                                           \
    X(U16, "u16", 2, N, 4)                                                                         \
    X(I16, "i16", 2, N, 5)                                                                         \
    X(STRING, "string", 0, N, 8)                                                                   \
    X(U32, "u32", 4, N, 12)                                                                        \
    X(U64, "u64", 8, N, 13)

typedef enum fmt_dtype {
#define FMT_DTYPE_ROW(name, text, bytes, cls, onnx) FMT_##name,
    FMT_DTYPE_TABLE(FMT_DTYPE_ROW)
#undef FMT_DTYPE_ROW
        FMT_DTYPE_COUNT
} fmt_dtype;

const char *fmt_dtype_name(fmt_dtype t);              /* "f32"; never NULL */
size_t fmt_dtype_bytes(fmt_dtype t);                  /* 0 for NONE and STRING */
char fmt_dtype_class(fmt_dtype t);                    /* 'F' 'I' 'B' 'N' */
fmt_dtype fmt_dtype_parse(const char *s, size_t len); /* NONE if unknown */
fmt_dtype fmt_dtype_of_onnx(int64_t code);            /* NONE if unknown */
int fmt_dtype_to_onnx(fmt_dtype t);
const char *
fmt_onnx_type_name(int64_t code); /* also of types unknown here: "complex64"; never NULL */

/* Half types in software (round to nearest even, NaN stays NaN). */
float fmt_f16_to_f32(uint16_t h);
uint16_t fmt_f32_to_f16(float f);
static inline float fmt_bf16_to_f32(uint16_t h)
{
    uint32_t u = (uint32_t)h << 16;
    float f;
    memcpy(&f, &u, 4);
    return f;
}
uint16_t fmt_f32_to_bf16(float f);

/* ---- dimensions ---- */

#define FMT_RANK_MAX  8
#define FMT_DIM_BAD   (-1)
#define FMT_DIM_LIMIT (INT64_C(1) << 48) /* no dimension or element count beyond this */

typedef int32_t fmt_dim; /* id in a pool; equal ids <=> equal canonical expressions */
typedef struct fmt_dims fmt_dims;

/* A free size of the model. lo/hi are inclusive; hi = FMT_DIM_LIMIT when the model implies no bound. */
typedef struct fmt_sym {
    const char *name; /* owned by the pool */
    int64_t lo, hi;
} fmt_sym;

typedef enum { FMT_ADD, FMT_SUB, FMT_MUL, FMT_DIV, FMT_MOD, FMT_MIN, FMT_MAX } fmt_dim_op;
/* DIV and MOD floor; a zero divisor evaluates to an error. Canonical form is a sum of products with sorted factors, so
 * B*S*384 has one id whatever the order; exact quotients (B*S*384/384, (B*S)/B) simplify (dimensions are ≥ 0). */

fmt_dims *fmt_dims_new(void); /* NULL = out of memory */
void fmt_dims_free(fmt_dims *p);
rtx_status fmt_dims_ok(const fmt_dims *p, rtx_err *err);

fmt_dim fmt_dim_const(fmt_dims *p, int64_t v);
/* UINT32_MAX on failure, and if absent. */
uint32_t fmt_sym_new(fmt_dims *p, const char *name, int64_t lo, int64_t hi);
uint32_t fmt_sym_find(const fmt_dims *p, const char *name, size_t len);
uint32_t fmt_sym_count(const fmt_dims *p);
const fmt_sym *fmt_sym_get(const fmt_dims *p, uint32_t sym);
void fmt_sym_bound(fmt_dims *p, uint32_t sym, int64_t lo, int64_t hi); /* narrows */
fmt_dim fmt_dim_sym(fmt_dims *p, uint32_t sym);
fmt_dim fmt_dim_bin(fmt_dims *p, fmt_dim_op op, fmt_dim a, fmt_dim b);
#define fmt_dim_add(p, a, b) fmt_dim_bin((p), FMT_ADD, (a), (b))
#define fmt_dim_sub(p, a, b) fmt_dim_bin((p), FMT_SUB, (a), (b))
#define fmt_dim_mul(p, a, b) fmt_dim_bin((p), FMT_MUL, (a), (b))
#define fmt_dim_div(p, a, b) fmt_dim_bin((p), FMT_DIV, (a), (b))

bool fmt_dim_is_const(const fmt_dims *p, fmt_dim d, int64_t *out_v); /* out_v may be NULL */
bool fmt_dim_is_sym(const fmt_dims *p, fmt_dim d, uint32_t *out_sym);
static inline bool fmt_dim_is(const fmt_dims *p, fmt_dim d, int64_t v)
{
    int64_t c;
    return fmt_dim_is_const(p, d, &c) && c == v;
}
bool fmt_dim_uses(const fmt_dims *p, fmt_dim d, uint32_t sym);
/* Make a and b equal: true if they are one id already, or if one of them is a free symbol that can be bound to the other
 * (a constant within its bounds, or an expression not using it). A binding takes effect for later fmt_dim_sym calls;
 * fmt_dims_bound counts bindings made, so that a reader of models can start again with what it has learned. False if
 * both are different constants or no symbol can be solved for. */
bool fmt_dim_unify(fmt_dims *p, fmt_dim a, fmt_dim b);
uint32_t fmt_dims_bound(const fmt_dims *p);
/* The two sizes that the last fmt_dim_unify could neither make equal nor prove different; asking forgets. */
bool fmt_dims_take_unproven(fmt_dims *p, fmt_dim *out_a, fmt_dim *out_b);
/* d with bound symbols replaced by what they are bound to; d itself while nothing is bound. */
fmt_dim fmt_dim_resolve(fmt_dims *p, fmt_dim d);
/* Proven range from the bounds of the symbols; conservative. */
void fmt_dim_range(const fmt_dims *p, fmt_dim d, int64_t *out_lo, int64_t *out_hi);
/* Value for given symbol values; false on overflow past FMT_DIM_LIMIT in magnitude, or division by zero. */
bool fmt_dim_eval(const fmt_dims *p, fmt_dim d, const int64_t *sym_values, int64_t *out_v);
/* The same expression in pool `to`, with symbol s of p replaced by map[s]. p may equal to. */
fmt_dim fmt_dim_subst(const fmt_dims *p, fmt_dim d, fmt_dims *to, const fmt_dim *map);

/* Text: "384", "batch", "batch*seq*384", "(seq + 3)/2". Print appends to b; parse creates unknown symbols with
 * lo 0 and gives FMT_DIM_BAD on bad text (the pool stays good). */
void fmt_dim_print(const fmt_dims *p, fmt_dim d, base_buf *b);
fmt_dim fmt_dim_parse(fmt_dims *p, const char *s, size_t len);

/* Records for a bundle: whole pool, symbols first; read validates every index and caps counts. */
void fmt_dims_write(const fmt_dims *p, base_buf *b);
RTX_MUST_CHECK rtx_status fmt_dims_read(base_reader *r, fmt_dims **out, rtx_err *err);

/* ---- buckets ---- */
#define FMT_BUCKET_VERSION 1
/* Of the n sorted tuned sizes, the index of the smallest ≥ v; beyond the last, the last. n ≥ 1. */
size_t fmt_bucket_pick(const int64_t *sizes, size_t n, int64_t v);

#endif
