/* Facts of the processor by CPUID and XGETBV.
 *   layer    L2 device; may include base
 *   source   System V ABI, x86-64 micro-architecture levels; Intel SDM vol. 2 and AMD APM vol. 3, CPUID */
#include "dev_cpu.h"
#include "base_sys.h"
#include <pthread.h>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

/* ---- level ---- */

#define V2_ECX1                                                                                    \
    (1u << 0 | 1u << 9 | 1u << 13 | 1u << 19 | 1u << 20 |                                          \
     1u << 23)               /* SSE3 SSSE3 CX16 SSE4.1 SSE4.2 POPCNT */
#define V2_ECX_EXT (1u << 0) /* LAHF */
#define V3_ECX1                                                                                    \
    (1u << 12 | 1u << 22 | 1u << 27 | 1u << 28 | 1u << 29) /* FMA MOVBE OSXSAVE AVX F16C */
#define V3_EBX7    (1u << 3 | 1u << 5 | 1u << 8)           /* BMI1 AVX2 BMI2 */
#define V3_ECX_EXT (1u << 5)                               /* LZCNT */
#define V3_XCR0    0x6u                                    /* SSE and AVX registers */
#define V4_EBX7    (1u << 16 | 1u << 17 | 1u << 28 | 1u << 30 | 1u << 31) /* AVX-512 F DQ CD BW VL */
#define V4_XCR0    0xe6u /* and masks, upper halves, upper 16 */

#define HAS(word, mask) (((word) & (mask)) == (mask))

int dev_cpu_level(const dev_cpu_bits *b)
{
    if (!HAS(b->ecx1, V2_ECX1) || !HAS(b->ecx_ext, V2_ECX_EXT))
        return 0;
    if (!HAS(b->ecx1, V3_ECX1) || !HAS(b->ebx7, V3_EBX7) || !HAS(b->ecx_ext, V3_ECX_EXT) ||
        !HAS(b->xcr0, V3_XCR0))
        return FMT_ISA_V2;
    return HAS(b->ebx7, V4_EBX7) && HAS(b->xcr0, V4_XCR0) ? FMT_ISA_V4 : FMT_ISA_V3;
}

const char *dev_isa_name(int isa)
{
    return isa == FMT_ISA_V2 ? "v2" : isa == FMT_ISA_V3 ? "v3" : isa == FMT_ISA_V4 ? "v4" : "none";
}

/* ---- facts ---- */

static dev_cpu cpu;

#if defined(__x86_64__)
static uint64_t read_xcr0(uint32_t ecx1)
{
    if (!(ecx1 & (1u << 27))) /* OSXSAVE: without it the instruction faults */
        return 0;
    uint32_t lo, hi;
    __asm__ volatile("xgetbv" : "=a"(lo), "=d"(hi) : "c"(0));
    return (uint64_t)hi << 32 | lo;
}

static void read_name(dev_cpu *c)
{
    uint32_t word[12] = {0};
    for (uint32_t i = 0; i < 3; i++)
        (void)__get_cpuid(0x80000002u + i, &word[4 * i], &word[4 * i + 1], &word[4 * i + 2],
                          &word[4 * i + 3]);
    memcpy(c->name, word, sizeof word);
    c->name[48] = '\0';
    size_t start = strspn(c->name, " "), end = strlen(c->name);
    while (end > start && c->name[end - 1] == ' ')
        end--;
    memmove(c->name, c->name + start, end - start);
    c->name[end - start] = '\0';
}

static void read_signature(dev_cpu *c, uint32_t eax)
{
    uint32_t family = eax >> 8 & 15, model = eax >> 4 & 15;
    c->stepping = eax & 15;
    c->model = family == 6 || family == 15 ? model | (eax >> 12 & 0xf0) : model;
    c->family = family == 15 ? family + (eax >> 20 & 0xff) : family;
}

/* Leaf 4 (Intel) and 0x8000001d (AMD) list the caches in one format. */
static bool read_caches(dev_cpu *c, uint32_t leaf)
{
    for (uint32_t i = 0; i < 16; i++) {
        uint32_t a, b, count, d;
        if (!__get_cpuid_count(leaf, i, &a, &b, &count, &d) || (a & 31) == 0)
            return i > 0;
        uint64_t bytes = (uint64_t)((b >> 22) + 1) * ((b >> 12 & 1023) + 1) * ((b & 4095) + 1) *
                         ((uint64_t)count + 1);
        uint32_t kib = (uint32_t)(bytes / 1024), level = a >> 5 & 7;
        if ((a & 31) == 2) /* instructions */
            continue;
        if (level == 1)
            c->l1d_kib = kib;
        else if (level == 2)
            c->l2_kib = kib;
        else if (level == 3)
            c->l3_kib = kib;
    }
    return true;
}

static void read_cpu(void)
{
    dev_cpu_bits bits = {0};
    uint32_t a = 0, b = 0, c = 0, d = 0;
    if (__get_cpuid(1, &a, &b, &bits.ecx1, &bits.edx1))
        read_signature(&cpu, a);
    if (__get_cpuid_count(7, 0, &a, &b, &c, &d))
        bits.ebx7 = b;
    if (__get_cpuid(0x80000001u, &a, &b, &c, &d))
        bits.ecx_ext = c;
    bits.xcr0 = read_xcr0(bits.ecx1);
    cpu.isa = dev_cpu_level(&bits);
    read_name(&cpu);
    if (!read_caches(&cpu, 4))
        (void)read_caches(&cpu, 0x8000001du);
}
#else
static void read_cpu(void) { memcpy(cpu.name, "unknown", 8); }
#endif

const dev_cpu *dev_cpu_get(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, read_cpu);
    return &cpu;
}

rtx_status dev_isa_allowed(fmt_isa *out, rtx_err *err)
{
    int have = dev_cpu_get()->isa;
    if (have == 0)
        return FAIL(err, UNSUPPORTED, "isa: kernels need at least x86-64-v2, found %s",
                    dev_cpu_get()->name);
    const char *want = base_env(BASE_ENV_ISA);
    if (!*want) {
        *out = (fmt_isa)have;
        return RTX_OK;
    }
    for (int isa = FMT_ISA_V2; isa <= FMT_ISA_V4; isa++) {
        if (strcmp(want, dev_isa_name(isa)) != 0)
            continue;
        *out = (fmt_isa)MIN(isa, have);
        return RTX_OK;
    }
    return FAIL(err, INVALID, "RTX_ISA is '%s'; v2, v3 and v4 are known", want);
}

void dev_cpu_facts(base_buf *json)
{
    const dev_cpu *c = dev_cpu_get();
    base_buf_printf(json, "{\"arch\":\"x86-64\",\"cores\":%d,\"cpu\":\"", base_cpu_count());
    for (const char *s = c->name; *s; s++) {
        if (*s != '"' && *s != '\\' && *s >= ' ')
            base_buf_put(json, s, 1);
    }
    base_buf_printf(json, "\",\"isa\":\"%s\",\"l2_kib\":%u,\"l3_kib\":%u,\"model\":\"%u-%u-%u\"}",
                    dev_isa_name(c->isa), c->l2_kib, c->l3_kib, c->family, c->model, c->stepping);
}
