/* The zoo: named models built with the C builder, and what their builders share.
 *   layer      L2 frontend, private to it; may include base, format, ir
 *   owner      the caller owns the graph (ir_graph_free); its weights are inside
 *   threads    one thread a model
 *   weights    tensor number t (counted from 0 in build order), element i:
 *              u = top 24 bits of splitmix64(seed * 0x9e3779b97f4a7c15 + (t << 40) + i), scaled to [-1, 1);
 *              matrices hold u * sqrt(3 / fan-in) (variance 1/fan-in), biases 0.1 u, scales 1 + 0.1 u */
#ifndef FE_ZOO_H
#define FE_ZOO_H

#include "fe.h"

enum { FE_ZOO_OPTIONS_MAX = 16 };

typedef struct fe_zoo {
    ir_graph *g;
    fmt_dims *d;
    const fe_zoo_entry *entry;
    int64_t value[FE_ZOO_OPTIONS_MAX]; /* in the order of entry->options */
    uint64_t seed;
    uint32_t n_tensors;
} fe_zoo;

int64_t fe_zoo_get(const fe_zoo *z, const char *option);
/* A seeded tensor of constant sizes: base + scale * u. */
ir_id fe_zoo_weight(fe_zoo *z, const int64_t *dims, uint32_t rank, double base, double scale);

/* One builder a row of the table; errors are sticky in z->g. */
typedef void (*fe_zoo_builder)(fe_zoo *z);
void fe_zoo_mlp(fe_zoo *z);
void fe_zoo_encoder(fe_zoo *z);
void fe_zoo_gpt_block(fe_zoo *z);
void fe_zoo_llama_block(fe_zoo *z);
void fe_zoo_vit(fe_zoo *z);

/* spec: "mlp" or "encoder,layers=2,hidden=64". NOT_FOUND lists the names, INVALID the options. */
RTX_MUST_CHECK rtx_status fe_zoo_build(const char *spec, fmt_dims *dims, ir_graph **out,
                                       rtx_err *err);

#endif
