/* Table of the zoo's models and their options, the text form of both, and the weight generator. */
#include "fe_zoo.h"
#include "base_sys.h"
#include <stdlib.h>

/* ---- the table ---- */

#define SEED                                                                                       \
    {                                                                                              \
        "seed", 1, "seed of all weights"                                                           \
    }
#define LAYERS(n)                                                                                  \
    {                                                                                              \
        "layers", n, "number of blocks"                                                            \
    }
#define WIDTHS                                                                                     \
    {"hidden", 256, "width of the residual stream"}, {"heads", 4, "attention heads"},              \
    {                                                                                              \
        "ffn", 1024, "inner width"                                                                 \
    }

static const fe_zoo_option mlp_options[] = {{"in", 256, "width of the input"},
                                            {"hidden", 512, "inner width"},
                                            {"out", 64, "width of the output"},
                                            {"layers", 3, "number of linear layers"},
                                            SEED};
static const fe_zoo_option encoder_options[] = {WIDTHS, LAYERS(4), SEED};
static const fe_zoo_option gpt_options[] = {
    WIDTHS, LAYERS(1), {"tanh", 1, "1: GELU by tanh, 0: by erf"}, SEED};
static const fe_zoo_option llama_options[] = {WIDTHS,
                                              {"kv-heads", 2, "heads of keys and values"},
                                              LAYERS(1),
                                              {"positions", 512, "longest sequence"},
                                              {"theta", 10000, "base of the rotary frequencies"},
                                              SEED};
static const fe_zoo_option vit_options[] = {{"patch", 768, "values of one patch"},
                                            WIDTHS,
                                            LAYERS(4),
                                            {"positions", 512, "most patches"},
                                            {"class", 1, "1: a class token goes first"},
                                            SEED};

#define ENTRY(name, doc, options)                                                                  \
    {                                                                                              \
        name, doc, options, COUNT_OF(options)                                                      \
    }
static const fe_zoo_entry entries[] = {
    ENTRY("mlp", "x[batch,in]: linear layers with ReLU between", mlp_options),
    ENTRY("encoder", "x[batch,seq,hidden], attention_mask: BERT-like encoder, norm after each part",
          encoder_options),
    ENTRY("gpt-block", "x[batch,seq,hidden]: causal decoder, norm before each part", gpt_options),
    ENTRY("llama-block",
          "x[batch,seq,hidden]: causal decoder with RMSNorm, rope, grouped heads, SwiGLU",
          llama_options),
    ENTRY("vit", "x[batch,n,patch]: vision transformer over flattened patches", vit_options)};
static const fe_zoo_builder builders[] = {fe_zoo_mlp, fe_zoo_encoder, fe_zoo_gpt_block,
                                          fe_zoo_llama_block, fe_zoo_vit};
_Static_assert(COUNT_OF(entries) == COUNT_OF(builders), "one builder an entry");

const fe_zoo_entry *fe_zoo_table(size_t *out_count)
{
    *out_count = COUNT_OF(entries);
    return entries;
}

/* ---- options ---- */

static int find_option(const fe_zoo_entry *e, const char *name, size_t len)
{
    for (size_t i = 0; i < e->n_options; i++)
        if (strlen(e->options[i].name) == len && memcmp(e->options[i].name, name, len) == 0)
            return (int)i;
    return -1;
}

int64_t fe_zoo_get(const fe_zoo *z, const char *option)
{
    int i = find_option(z->entry, option, strlen(option));
    return i < 0 ? 0 : z->value[i];
}

static rtx_status bad_option(const fe_zoo_entry *e, const char *text, size_t len, rtx_err *err)
{
    AUTO_BUF base_buf b;
    base_buf_init(&b, BASE_TAG_FRONTEND, 300);
    for (size_t i = 0; i < e->n_options; i++)
        base_buf_printf(&b, " %s=%lld", e->options[i].name, (long long)e->options[i].value);
    return FAIL(err, INVALID, "zoo:%s has no option '%.*s' of that form; options with defaults:%s",
                e->name, (int)MIN(len, 60), text, b.data ? b.data : "");
}

static rtx_status parse_options(fe_zoo *z, const char *s, rtx_err *err)
{
    for (size_t i = 0; i < z->entry->n_options; i++)
        z->value[i] = z->entry->options[i].value;
    while (*s == ',') {
        size_t len = strcspn(++s, ","), name = strcspn(s, "=,");
        int k = find_option(z->entry, s, name);
        char *end = NULL;
        long long v = name < len ? strtoll(s + name + 1, &end, 10) : 0;
        if (k < 0 || !end || end != s + len || end == s + name + 1)
            return bad_option(z->entry, s, len, err);
        bool flag = z->entry->options[k].value <= 1;
        if (v < (flag ? 0 : 1) ||
            v > (strcmp(z->entry->options[k].name, "seed") == 0 ? INT32_MAX : 1 << 20))
            return FAIL(err, INVALID, "zoo:%s: %s = %lld is out of range", z->entry->name,
                        z->entry->options[k].name, v);
        z->value[k] = v;
        s += len;
    }
    return *s == 0 ? RTX_OK : bad_option(z->entry, s, strlen(s), err);
}

static rtx_status check_heads(const fe_zoo *z, rtx_err *err)
{
    int64_t hidden = fe_zoo_get(z, "hidden"), heads = fe_zoo_get(z, "heads"),
            kv = fe_zoo_get(z, "kv-heads");
    if (heads && hidden % heads)
        return FAIL(err, INVALID, "zoo:%s: hidden = %lld is not a multiple of heads = %lld",
                    z->entry->name, (long long)hidden, (long long)heads);
    if (kv && (heads % kv || hidden / heads % 2))
        return FAIL(err, INVALID,
                    "zoo:%s: heads must be a multiple of kv-heads, and hidden / heads even",
                    z->entry->name);
    return RTX_OK;
}

/* ---- weights ---- */

static uint64_t splitmix64(uint64_t x)
{
    x += UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}

ir_id fe_zoo_weight(fe_zoo *z, const int64_t *dims, uint32_t rank, double base, double scale)
{
    ir_type t = {.dtype = FMT_F32, .rank = (uint8_t)rank};
    uint64_t elems = 1,
             start = z->seed * UINT64_C(0x9e3779b97f4a7c15) + ((uint64_t)z->n_tensors++ << 40);
    for (uint32_t i = 0; i < rank; i++) {
        t.dim[i] = fmt_dim_const(z->d, dims[i]);
        elems *= (uint64_t)dims[i];
    }
    if (elems > UINT64_C(1) << 32)
        return ir_bad(z->g, RTX_LIMIT, "zoo:%s: a weight of %llu elements; the limit is 2^32",
                      z->entry->name, (unsigned long long)elems);
    if (z->g->err.code != RTX_OK)
        return 0;
    if (base_cancelled)
        return ir_bad(z->g, RTX_CANCELLED, "cancelled");
    float *w = base_arena_array(&z->g->arena, elems, sizeof *w);
    if (!w)
        return ir_bad(z->g, RTX_NOMEM, "out of memory");
    for (uint64_t i = 0; i < elems; i++) {
        double u = (double)(splitmix64(start + i) >> 40) * 0x1p-23 - 1;
        w[i] = (float)(base + scale * u);
    }
    return ir_const_borrow(z->g, &t, w, elems * sizeof *w);
}

/* ---- building ---- */

rtx_status fe_zoo_build(const char *spec, fmt_dims *dims, ir_graph **out, rtx_err *err)
{
    size_t len = strcspn(spec, ","), at = COUNT_OF(entries);
    for (size_t i = 0; i < COUNT_OF(entries); i++)
        if (strlen(entries[i].name) == len && memcmp(entries[i].name, spec, len) == 0)
            at = i;
    if (at == COUNT_OF(entries))
        return FAIL(err, NOT_FOUND,
                    "no model zoo:%.*s; there are mlp, encoder, gpt-block, llama-block and vit",
                    (int)MIN(len, 60), spec);
    fe_zoo z = {.d = dims, .entry = &entries[at]};
    TRY(parse_options(&z, spec + len, err));
    TRY(check_heads(&z, err));
    z.seed = (uint64_t)fe_zoo_get(&z, "seed");
    TRY_ALLOC(z.g = ir_graph_new(dims), err);
    builders[at](&z);
    rtx_status st = ir_ok(z.g, err);
    if (st == RTX_OK)
        *out = z.g;
    else
        ir_graph_free(z.g);
    return st;
}
