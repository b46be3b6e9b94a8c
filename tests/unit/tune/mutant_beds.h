/* The problems on which mutants of a template are tried: odd sizes, tails, strides of every kind. */
#ifndef MUTANT_BEDS_H
#define MUTANT_BEDS_H

#include "tun_int.h"

typedef struct bed {
    const char *templ; /* beds of one template are neighbours */
    void (*make)(syn_problem *p);
    const char *params; /* NULL = the static rule's */
    int64_t most[3];    /* largest sizes of the small cases */
    int64_t full[3];    /* the larger case */
} bed;
extern const bed mutant_beds[];
extern const size_t mutant_bed_count;

#endif
