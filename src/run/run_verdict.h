/* Does a bundle fit this machine? One table of checks, shown by `rtx inspect` and enforced by open.
 *   layer      L3 run; may include base, format, device
 *   owner      a verdict holds no heap memory besides its per-kernel array, freed by run_verdict_done
 *   rules      refuse: nothing can run. re-JIT: the kernel must be compiled again from its text (`rtx tune`). retune later: right
 *              and used, but tuned for another machine. superset: built for less than is here. exact: as built */
#ifndef RUN_VERDICT_H
#define RUN_VERDICT_H

#include "base_core.h"
#include "fmt_bundle.h"

/* In rising order: the verdict of a kernel is the highest that any check gives it. */
#define RUN_VERDICT_TABLE(X)                                                                       \
    X(EXACT, "exact", "use")                                                                       \
    X(SUPERSET, "superset", "use")                                                                 \
    X(RETUNE, "retune later", "use; `rtx tune FILE` here makes it faster")                         \
    X(REJIT, "re-JIT", "`rtx tune FILE` compiles it again here")                                   \
    X(REFUSE, "refuse", "compile the model again for this machine")

typedef enum run_fit {
#define RUN_FIT_ROW(name, text, action) RUN_##name,
    RUN_VERDICT_TABLE(RUN_FIT_ROW)
#undef RUN_FIT_ROW
} run_fit;

const char *run_fit_name(run_fit f);   /* "retune later" */
const char *run_fit_action(run_fit f); /* "use; …" */

typedef struct run_check {
    const char *field; /* "cpu" */
    char built_for[64], found[64];
    run_fit fit;     /* what this field alone gives */
    bool tuned_only; /* concerns tuned kernels; precompiled ones do not depend on it */
} run_check;

#define RUN_CHECKS_MAX 12
typedef struct run_verdict {
    run_check checks[RUN_CHECKS_MAX];
    uint32_t n_checks;
    fmt_isa isa;          /* level to run at, if worst is not REFUSE */
    const fmt_plan *plan; /* plan that serves it, borrowed from the bundle; never NULL */
    run_fit worst;        /* over the kernels of that plan and level */
    uint8_t *kernel;      /* run_fit of each kernel of the plan; kernels of other levels: EXACT */
    uint32_t n_kernels;
} run_verdict;

/* What this machine is. Tests pass others. */
typedef struct run_machine {
    fmt_isa isa;       /* allowed level */
    const char *facts; /* JSON object as dev_cpu_facts writes it */
} run_machine;

/* Choose level and plan, and judge them and the facts of the manifest (absent facts are not compared). */
RTX_MUST_CHECK rtx_status run_verdict_of(const fmt_bundle *bundle, const char *manifest,
                                         const run_machine *machine, run_verdict *out,
                                         rtx_err *err);
void run_verdict_done(run_verdict *v);
/* OK, or UNSUPPORTED with field, built for, found and action of the check that forbids a run. */
RTX_MUST_CHECK rtx_status run_verdict_allows(const run_verdict *v, rtx_err *err);
/* {"isa":"v4","fit":"exact","checks":[{"field":…,"built_for":…,"found":…,"fit":…,"action":…}],"kernels":[{"name":…,"fit":…}]} */
void run_verdict_json(const run_verdict *v, base_buf *out);

/* Text of the member at a path such as "built.cpu" of our own JSON, at most cap - 1 bytes; false if there is none. Strings come
 * without quotes, numbers as written. */
bool run_json_get(const char *json, const char *path, char *out, size_t cap);

#endif
