/* Choices of an earlier compilation taken again: the kernels of a bundle, offered to the tuner instead of its own space, and where
 * regions were cut.
 *   layer    top, beside pipeline.c
 *   owner    a pin owns the evidence it read until pipe_pin_done
 *   threads  one thread */
#ifndef PIPE_PIN_H
#define PIPE_PIN_H

#include "lower.h"
#include <jansson.h>

typedef struct pipe_pin {
    json_t *kernels; /* the evidence of the earlier bundle */
    json_t *fusion;  /* its choices about the cut; NULL = none */
    char name[32];   /* "pin:" and a digest of it: part of every tuning key */
} pipe_pin;

/* path is an .rtxgc file, or what `rtx explain --json` printed of one. */
RTX_MUST_CHECK rtx_status pipe_pin_open(const char *path, pipe_pin *out, rtx_err *err);
void pipe_pin_done(pipe_pin *p); /* zeroed allowed */
/* The tuner's variants hook: only what won for this problem in the pinned file, in the order of its sizes. A problem that
 * the file does not know keeps its own list. ctx = pipe_pin *. */
size_t pipe_pin_variants(void *ctx, const syn_problem *p, fmt_isa isa, syn_variant *list, size_t n,
                         size_t cap);

/* ---- the cut: choices as `rtx explain --json` prints them, an array of objects with "problem" and "chosen" ---- */

#define PIPE_PIN_SPLITS 13 /* a deny set has room for the trials of a search beside them */
/* The regions that they say to split, the first so many; the texts stay theirs. */
lower_deny pipe_pin_split(const json_t *choices);
/* *low, where every legal fusion was taken, is lowered again as they say. Those about regions that the program has join `taken`; the
 * rest belongs to other programs. */
RTX_MUST_CHECK rtx_status pipe_pin_replay(const ir_graph *g, lower_consts *consts,
                                          const json_t *choices, lower_result *low, json_t *taken,
                                          rtx_err *err);

#endif
