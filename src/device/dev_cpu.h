/* What the processor is: instruction level, name, caches. Read from CPUID, so that no file is needed.
 *   layer      L2 device; may include base, format
 *   threads    all functions; facts are read once */
#ifndef DEV_CPU_H
#define DEV_CPU_H

#include "base_core.h"
#include "fmt_plan.h"

/* Registers that decide the level, apart from reading them so that tests can remove bits. */
typedef struct dev_cpu_bits {
    uint32_t ecx1, edx1; /* leaf 1 */
    uint32_t ebx7;       /* leaf 7 */
    uint32_t ecx_ext;    /* leaf 0x80000001 */
    uint64_t xcr0;       /* register state that the operating system saves; 0 without OSXSAVE */
} dev_cpu_bits;

typedef struct dev_cpu {
    char name[49]; /* "AMD EPYC 9B14"; trimmed */
    uint32_t family, model, stepping;
    int isa;                          /* fmt_isa, or 0 below x86-64-v2 or on other processors */
    uint32_t l1d_kib, l2_kib, l3_kib; /* 0 = not told */
} dev_cpu;

/* Highest level that processor and operating system both support; 0 below v2. */
int dev_cpu_level(const dev_cpu_bits *bits);
const dev_cpu *dev_cpu_get(void);

/* "v4"; "none" below v2. */
const char *dev_isa_name(int isa);
/* dev_cpu_get()->isa lowered by RTX_ISA. INVALID: RTX_ISA is no level. UNSUPPORTED: the processor is below v2. */
RTX_MUST_CHECK rtx_status dev_isa_allowed(fmt_isa *out, rtx_err *err);

/* Canonical JSON object of the facts that a tuned kernel depends on: the member "built" of a manifest. The runtime compares
 * it with the machine it finds (run_verdict.h). */
void dev_cpu_facts(base_buf *json);

#endif
