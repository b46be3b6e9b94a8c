/* Pins: the kernel choices of an earlier bundle, offered to the tuner instead of its own space.
 *   layer    top, beside pipeline.c
 *   owner    a pin owns the evidence it read until pipe_pin_done
 *   threads  one thread */
#ifndef PIPE_PIN_H
#define PIPE_PIN_H

#include "syn.h"
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

#endif
