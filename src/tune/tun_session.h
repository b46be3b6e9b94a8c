/* State of one tun_run: problems with their candidates, points with their samples.
 *   layer      L4 tune
 *   owner      the session; tun_run.c makes and frees it, the phases fill it */
#ifndef TUN_SESSION_H
#define TUN_SESSION_H

#include "tun_int.h"

#define TUN_CANDS 96 /* per problem, compiled ones */

typedef struct tun_cand {
    syn_variant variant;
    char params[200]; /* "MR=6 NP=4" */
    rtx_err why;      /* of a rejection */
    double error;     /* norm-wise; < 0 = not checked */
    tun_code code;    /* n_bytes 0 = not compiled */
    char *source;     /* of the winner's own unit */
    bool sealed;      /* compiled alone and checked at full size */
} tun_cand;

typedef struct tun_job tun_job; /* one item */

typedef struct tun_spot { /* one point */
    tun_job *job;
    const tun_point *point;
    tun_shape shape;
    tun_key key;
    char cache[64]; /* "hit", "miss", "miss: field differs" */
    bool hit, done;
    tun_samples
        *samples[2];   /* [0]: ways = threads, [1]: one way; an entry a variant of the space */
    double *predicted; /* > 0: pruned, the factor predicted */
    uint32_t base;     /* variant of the static rule */
    uint32_t winner;   /* FMT_NONE = none */
    int ways;
    double ns, base_ns;
    char *evidence; /* the "candidates" array: base_free */
    char params[200];
} tun_spot;

struct tun_job {
    tun_item *item;
    const syn_template *templ;
    char *problem; /* canonical text */
    bool anchor;   /* contains a dot or attention: many candidates */
    bool fixed;    /* each spot takes its static choice */
    bool missing;  /* some spot is not in the cache */
    rtx_err why;   /* why it has no candidate */
    syn_variant *variants;
    uint8_t *state;
    double *score;
    double *guess,
        *least; /* predicted time / best prediction: mean and least over open spots; NULL = no model */
    tun_cand *cands;         /* one a variant */
    tun_validator validator; /* references are made once */
    tun_space space;
    tun_spot *spots;
    uint32_t n_spots;
};

typedef struct tun_blob { /* code of one compiled unit */
    uint8_t *bytes;
    size_t n_bytes;
} tun_blob;

typedef struct tun_session {
    const tun_options *opt;
    tun_report *report;
    tun_cache cache;
    tun_cc cc;
    bool have_cc;
    rtx_err cc_why;
    tun_worker worker;
    bool have_worker;
    tun_timer timer;
    tun_hw hw;
    hw_facts facts;
    bool known;   /* facts are of a profile, kept or measured */
    bool checked; /* and this run's worker agrees */
    tun_origin origin;
    tun_job *jobs;
    uint32_t n_jobs;
    tun_blob *blobs;
    uint32_t n_blobs, cap_blobs;
    uint64_t start_ns, lap_ns;
    double budget_s;
} tun_session;

/* ---- tun_book.c: keys, cache records, evidence ---- */
rtx_status tun_book_keys(tun_session *s, tun_job *j, rtx_err *err);
bool tun_book_load(tun_session *s, tun_spot *p); /* plan and evidence of a spot */
bool tun_book_code(tun_session *s,
                   tun_spot *p); /* the code that its plan names; needs the space of the job */
void tun_book_store(tun_session *s, tun_spot *p); /* plan and evidence of a finished spot */
bool tun_book_bin_get(tun_session *s, tun_job *j, tun_cand *c); /* sealed code of a variant */
void tun_book_bin_put(tun_session *s, tun_job *j, const tun_cand *c);
bool tun_book_bad_get(tun_session *s, tun_job *j, tun_cand *c); /* fills why */
/* Entry and repro file of a rejection; its reason then names the file. */
void tun_book_bad_put(tun_session *s, tun_job *j, tun_cand *c);
rtx_status tun_book_candidates(const tun_spot *p, char **out, rtx_err *err); /* JSON array */
rtx_status tun_book_evidence(const tun_job *j, char **out,
                             rtx_err *err); /* JSON object of the item */
uint8_t *tun_blob_keep(tun_session *s, const void *bytes,
                       size_t n); /* copy that lives with the session */

/* ---- tun_model.c: predictions of a job's variants at its open spots ---- */
rtx_status tun_model_guess(const tun_session *s, tun_job *j, rtx_err *err);
void tun_model_log(const tun_session *s, const tun_spot *p); /* what it was worth, at RTX_DEBUG=4 */

/* ---- tun_phase.c: compile, validate, time ---- */
rtx_status tun_phase_compile(tun_session *s,
                             rtx_err *err); /* every TUN_ASKED variant without code */
rtx_status tun_phase_validate(tun_session *s,
                              rtx_err *err); /* those with code: TUN_GOOD or TUN_BAD */
rtx_status tun_phase_screen(tun_session *s, double until_s, rtx_err *err);
rtx_status tun_phase_confirm(tun_session *s, double until_s, rtx_err *err);
rtx_status
tun_phase_seal(tun_session *s,
               rtx_err *err); /* winners alone, fresh worker, full size; picks again if one falls */
void tun_phase_scores(tun_session *s);
void tun_spot_pick(tun_spot *p);
double tun_spot_ns(const tun_spot *p, uint32_t v, int *out_ways); /* 0 = not timed */
/* Is v, by its time faster than the static choice, also so in almost all rounds? Gives their number and v's part of it. */
bool tun_spot_sure(const tun_spot *p, uint32_t v, uint32_t *out_rounds, uint32_t *out_faster);
double tun_elapsed(const tun_session *s);
void tun_lap(tun_session *s, double *bucket); /* time since the last lap goes into bucket */
rtx_status tun_tick(tun_session *s, const char *stage, const char *op, uint32_t done,
                    uint32_t total, rtx_err *err);

#endif
