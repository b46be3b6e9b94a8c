/* Every template against ir_eval: the precompiled set on random shapes, strides and alignments, and rendered variants (sizes
 * and strides compiled in, work fused, random parameters) on random problems each. Prints both counts.
 *   usage   test_syn_random [problems a template and level] [variants a template] [template] */
#include "syn_case.h"
#include "base_sys.h"
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#define PER_VARIANT 100
#define UNIT        15 /* kernels compiled together */

static int failures;

static bool ready_one(case_family f, fmt_isa isa, rng *r, uint64_t *done)
{
    uint64_t seed = r->s;
    test_case *c = case_new(f, false, false, r);
    if (c == NULL)
        return false;
    syn_source from[512];
    uint32_t n_from = 0;
    syn_problem *q = NULL;
    rtx_err err = {0};
    bool ok = syn_problem_general(c->p, &q, from, &n_from, COUNT_OF(from), &err) == RTX_OK;
    const syn_ready *k = ok ? syn_ready_find(q, isa) : NULL;
    case_code code;
    if (k == NULL) {
        AUTO_BUF base_buf text;
        base_buf_init(&text, BASE_TAG_SYNTH, SIZE_MAX);
        if (q)
            (void)syn_problem_text(q, &text, NULL);
        printf("%s v%d: not in the precompiled set: %s\n%s", case_name(f), isa, err.text,
               text.data ? text.data : "");
        ok = false;
    } else if (case_map(k->code, k->code_bytes, k->plan_entry, k->run_entry, &code)) {
        for (int i = 0; i < 8 && ok; i++, (*done)++)
            ok = case_check(c, &code, from, n_from);
        case_unmap(&code);
    }
    if (!ok)
        printf("FAILED %s v%d precompiled, seed %llu\n", case_name(f), isa,
               (unsigned long long)seed);
    syn_problem_free(q);
    case_free(c);
    return ok;
}

static void run_ready(case_family f, fmt_isa isa, uint64_t want)
{
    rng r = {(uint64_t)f * 1000 + isa};
    uint64_t done = 0;
    for (int bad = 0; done < want && bad < 3;)
        if (!ready_one(f, isa, &r, &done)) {
            bad++;
            failures++;
        }
    printf("%-16s v%d precompiled: %llu random problems\n", case_name(f), isa,
           (unsigned long long)done);
    fflush(stdout);
}

static bool is_legal(const test_case *c, syn_variant *v, fmt_isa isa)
{
    return syn_variant_legal(c->p, v, isa, NULL);
}

/* A random legal variant; the default when none is found soon. */
static syn_variant random_variant(const test_case *c, fmt_isa isa)
{
    syn_variant v, d;
    syn_variant_default(c->p, isa, NULL, &d);
    for (int tries = 0; tries < 200; tries++) {
        v = d;
        for (uint32_t i = 0; i < d.templ->n_params; i++)
            v.value[i] =
                d.templ->params[i].values[rng_int(c->r, 0, (int)d.templ->params[i].n_values - 1)];
        if (is_legal(c, &v, isa))
            return v;
    }
    return d;
}

static int run_unit(case_family f, fmt_isa isa, rng *r, int n, uint64_t *problems)
{
    test_case *c[UNIT];
    AUTO_BUF base_buf text;
    AUTO_FREE char *elf = NULL;
    size_t bytes;
    int good = 0;
    base_buf_init(&text, BASE_TAG_SYNTH, SIZE_MAX);
    syn_unit_begin(&text, isa);
    uint64_t seed = r->s;
    for (int i = 0; i < n; i++) {
        char name[16];
        rtx_err err = {0};
        snprintf(name, sizeof name, "f%d", i);
        c[i] = case_new(f, true, true, r);
        syn_variant v;
        if (c[i] && (v = random_variant(c[i], isa),
                     syn_unit_add(&text, c[i]->p, &v, isa, name, &err) != RTX_OK))
            printf("%s: %s\n", case_name(f), err.text);
    }
    fmt_kobj obj;
    rtx_err err = {0};
    bool ok = case_compile(text.data, text.len, isa, &elf, &bytes) &&
              fmt_kobj_read(elf, bytes, &obj, &err) == RTX_OK;
    if (!ok)
        printf("%s v%d: %s\n", case_name(f), isa, err.text);
    for (int i = 0; i < n; i++) {
        char plan[24], run[24];
        uint32_t at_plan, at_run;
        case_code code;
        snprintf(plan, sizeof plan, "f%d_plan", i);
        snprintf(run, sizeof run, "f%d_run", i);
        bool fine = ok && c[i] && fmt_kobj_entry(elf, bytes, plan, &at_plan, NULL) == RTX_OK &&
                    fmt_kobj_entry(elf, bytes, run, &at_run, NULL) == RTX_OK &&
                    case_map(obj.code, obj.bytes, at_plan, at_run, &code);
        if (fine) {
            for (int k = 0; k < PER_VARIANT && fine; k++, (*problems)++)
                fine = case_check(c[i], &code, NULL, 0);
            case_unmap(&code);
        }
        good += fine;
        if (!fine)
            printf("FAILED %s v%d rendered %d, seed %llu\n", case_name(f), isa, i,
                   (unsigned long long)seed);
        case_free(c[i]);
    }
    failures += n - good;
    return good;
}

static void run_rendered(case_family f, fmt_isa isa, int want)
{
    rng r = {(uint64_t)f * 7919 + isa};
    uint64_t problems = 0;
    int done = 0;
    for (int n; done < want; done += n) {
        n = want - done < UNIT ? want - done : UNIT;
        if (run_unit(f, isa, &r, n, &problems) < n)
            break;
    }
    printf("%-16s v%d rendered: %d variants, %llu random problems\n", case_name(f), isa, done,
           (unsigned long long)problems);
    fflush(stdout);
}

static void run_family(case_family f, const fmt_isa *levels, int n, uint64_t problems, int variants)
{
    for (int l = 0; l < n && problems; l++)
        run_ready(f, levels[l], problems);
    for (int l = 0; l < n && variants; l++) /* shared out over the levels */
        run_rendered(f, levels[l], (variants + n - 1) / n);
}

/* One process a template, as many at once as there are CPUs: a crash costs one of them. */
int main(int argc, char **argv)
{
    uint64_t problems = argc > 1 ? (uint64_t)atoll(argv[1]) : 10000;
    int variants = argc > 2 ? atoi(argv[2]) : 60, running = 0, bad = 0, status;
    fmt_isa levels[3];
    int n = case_levels(levels), cpus = base_cpu_count();
    fflush(stdout);
    for (int f = 0; f < CASE_COUNT; f++) {
        if (argc > 3 && strcmp(argv[3], case_name((case_family)f)) != 0)
            continue;
        if (running == cpus && wait(&status) > 0) {
            bad += !WIFEXITED(status) || WEXITSTATUS(status) != 0;
            running--;
        }
        pid_t pid = fork();
        if (pid == 0) {
            run_family((case_family)f, levels, n, problems, variants);
            fflush(stdout);
            _exit(failures != 0);
        }
        running += pid > 0;
        bad += pid < 0;
    }
    for (; running > 0 && wait(&status) > 0; running--)
        bad += !WIFEXITED(status) || WEXITSTATUS(status) != 0;
    printf("%d templates failed\n", bad);
    return bad != 0;
}
