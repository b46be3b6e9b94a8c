/* Kernel objects: from a shared object to one position-independent blob with known entries.
 *   layer    L0 format; may include base
 *   why      a blob needs no dynamic loader where it runs, and what is mapped is exactly what was hashed. That holds only
 *            if nothing in the object asks to be patched or written, which is checked here once, when it is made
 *   input    untrusted: a compiler may be replaced or killed half-way. All reads are bounded by the file
 *   source   System V ABI, chapters 4 and 5 (section and program headers, dynamic section) */
#include "fmt_bundle.h"
#include <elf.h>

#define BAD(...) FAIL(err, CORRUPT, "kernel object: " __VA_ARGS__)

typedef struct elf_view {
    const uint8_t *file;
    size_t bytes;
    Elf64_Ehdr head;
    Elf64_Phdr code, dynamic; /* the executable segment; the dynamic section */
    bool has_data;            /* something writable besides the dynamic section */
} elf_view;

/* Copy n bytes at file offset `at`; false outside the file. Copies, since nothing promises alignment. */
static bool get(const elf_view *v, uint64_t at, void *out, size_t n)
{
    if (at > v->bytes || n > v->bytes - at)
        return false;
    memcpy(out, v->file + at, n);
    return true;
}

#if defined(__aarch64__)
#define MACHINE EM_AARCH64
#else
#define MACHINE EM_X86_64
#endif

static rtx_status read_head(elf_view *v, rtx_err *err)
{
    if (!get(v, 0, &v->head, sizeof v->head) || memcmp(v->head.e_ident, ELFMAG, SELFMAG) != 0)
        return BAD("not an ELF file");
    const Elf64_Ehdr *h = &v->head;
    if (h->e_ident[EI_CLASS] != ELFCLASS64 || h->e_ident[EI_DATA] != ELFDATA2LSB ||
        h->e_type != ET_DYN)
        return BAD("not a 64-bit little-endian shared object");
    if (h->e_machine != MACHINE)
        return BAD("made for machine %u, wanted %u", h->e_machine, MACHINE);
    if (h->e_phentsize != sizeof(Elf64_Phdr))
        return BAD("segment headers of %u bytes", h->e_phentsize);
    return RTX_OK;
}

/* Linkers put .dynamic into a writable segment of its own; nothing else may be writable. */
static rtx_status read_segments(elf_view *v, rtx_err *err)
{
    Elf64_Phdr writable = {0};
    unsigned n_code = 0, n_writable = 0;
    for (unsigned i = 0; i < v->head.e_phnum; i++) {
        Elf64_Phdr p;
        if (!get(v, v->head.e_phoff + (uint64_t)i * sizeof p, &p, sizeof p))
            return BAD("segment headers lie outside the file");
        if (p.p_type == PT_DYNAMIC)
            v->dynamic = p;
        if (p.p_type == PT_INTERP || p.p_type == PT_TLS)
            return BAD("asks for a loader or for thread-local data");
        if (p.p_type != PT_LOAD || p.p_memsz == 0)
            continue;
        if (p.p_flags & PF_W) {
            writable = p;
            n_writable++;
        } else if (p.p_flags & PF_X) {
            v->code = p;
            n_code++;
        } else {
            return BAD("read-only data outside the code segment; link with -z noseparate-code");
        }
    }
    if (n_code != 1)
        return BAD("%u code segments, wanted 1", n_code);
    const Elf64_Phdr *c = &v->code;
    if (c->p_vaddr != 0 || c->p_memsz != c->p_filesz || c->p_filesz > UINT32_MAX ||
        c->p_offset > v->bytes || c->p_filesz > v->bytes - c->p_offset)
        return BAD("code segment lies outside the file or does not start at address 0");
    const Elf64_Phdr *d = &v->dynamic;
    v->has_data =
        n_writable > 1 ||
        (n_writable == 1 && (writable.p_vaddr < d->p_vaddr || writable.p_memsz > d->p_memsz ||
                             writable.p_vaddr - d->p_vaddr > d->p_memsz - writable.p_memsz));
    return RTX_OK;
}

/* What the dynamic section says: where symbols and strings are, and whether it asks for work at load time. */
typedef struct dyn_info {
    uint64_t symtab, strtab, strsz;
    const char *fault; /* work that it asks for, or NULL */
} dyn_info;

static rtx_status read_dynamic(const elf_view *v, dyn_info *out, rtx_err *err)
{
    *out = (dyn_info){0};
    for (uint64_t at = 0;; at += sizeof(Elf64_Dyn)) {
        Elf64_Dyn d;
        if (at >= v->dynamic.p_filesz || !get(v, v->dynamic.p_offset + at, &d, sizeof d))
            return BAD("dynamic section is missing or cut short");
        switch (d.d_tag) {
        case DT_NULL:
            return out->symtab && out->strtab ? RTX_OK : BAD("has no symbols");
        case DT_NEEDED:
            out->fault = "needs a library";
            break;
        case DT_RELA:
        case DT_REL:
        case DT_JMPREL:
        case DT_RELR:
        case DT_TEXTREL:
            out->fault = "has relocations";
            break;
        case DT_INIT:
        case DT_FINI:
        case DT_INIT_ARRAY:
        case DT_FINI_ARRAY:
            out->fault = "has code that runs on loading";
            break;
        case DT_SYMTAB:
            out->symtab = d.d_un.d_ptr;
            break;
        case DT_STRTAB:
            out->strtab = d.d_un.d_ptr;
            break;
        case DT_STRSZ:
            out->strsz = d.d_un.d_val;
            break;
        default:
            break;
        }
    }
}

/* Symbols end where their strings begin: every linker lays .dynsym right before .dynstr, and a table without a count
 * leaves nothing else to go by but the hash table, of which there are two kinds. */
static uint64_t symbol_count(const dyn_info *d)
{
    return d->strtab > d->symtab ? (d->strtab - d->symtab) / sizeof(Elf64_Sym) : 0;
}

/* Name of a symbol, or NULL if it is not closed within the string table. Addresses in the code segment, which starts at 0,
 * are offsets into it. */
static const char *symbol_name(const elf_view *v, const dyn_info *d, const Elf64_Sym *s)
{
    if (d->strtab > v->code.p_filesz || d->strsz > v->code.p_filesz - d->strtab ||
        s->st_name >= d->strsz)
        return NULL;
    const char *name = (const char *)v->file + v->code.p_offset + d->strtab + s->st_name;
    return memchr(name, 0, (size_t)(d->strsz - s->st_name)) ? name : NULL;
}

static rtx_status get_symbol(const elf_view *v, const dyn_info *d, uint64_t i, Elf64_Sym *s,
                             const char **name, rtx_err *err)
{
    uint64_t at = d->symtab + i * sizeof *s;
    if (at > v->code.p_filesz || sizeof *s > v->code.p_filesz - at ||
        !get(v, v->code.p_offset + at, s, sizeof *s))
        return BAD("symbols lie outside the code segment");
    *name = symbol_name(v, d, s);
    return *name ? RTX_OK : BAD("a symbol has no name");
}

static rtx_status check_imports(const elf_view *v, const dyn_info *d, rtx_err *err)
{
    for (uint64_t i = 1, n = symbol_count(d); i < n; i++) {
        Elf64_Sym s;
        const char *name;
        TRY(get_symbol(v, d, i, &s, &name, err));
        if (s.st_shndx == SHN_UNDEF)
            return BAD("imports '%s'", name);
        if (ELF64_ST_TYPE(s.st_info) == STT_GNU_IFUNC)
            return BAD("'%s' is resolved at load time", name);
    }
    return RTX_OK;
}

static rtx_status view_of(const void *elf, size_t bytes, elf_view *v, dyn_info *d, rtx_err *err)
{
    *v = (elf_view){.file = elf, .bytes = bytes};
    TRY(read_head(v, err));
    TRY(read_segments(v, err));
    TRY(read_dynamic(v, d, err));
    TRY(check_imports(v, d, err)); /* first: it names the culprit of what follows */
    if (d->fault)
        return BAD("%s", d->fault);
    return v->has_data ? BAD("has writable data") : RTX_OK;
}

rtx_status fmt_kobj_read(const void *elf, size_t bytes, fmt_kobj *out, rtx_err *err)
{
    elf_view v;
    dyn_info d;
    TRY(view_of(elf, bytes, &v, &d, err));
    *out = (fmt_kobj){v.file + v.code.p_offset, (size_t)v.code.p_filesz};
    return RTX_OK;
}

rtx_status fmt_kobj_entry(const void *elf, size_t bytes, const char *symbol, uint32_t *out_offset,
                          rtx_err *err)
{
    elf_view v;
    dyn_info d;
    TRY(view_of(elf, bytes, &v, &d, err));
    for (uint64_t i = 1, n = symbol_count(&d); i < n; i++) {
        Elf64_Sym s;
        const char *name;
        TRY(get_symbol(&v, &d, i, &s, &name, err));
        if (ELF64_ST_TYPE(s.st_info) != STT_FUNC || strcmp(name, symbol) != 0)
            continue;
        if (s.st_value >= v.code.p_filesz)
            return BAD("'%s' lies outside the code segment", symbol);
        *out_offset = (uint32_t)s.st_value;
        return RTX_OK;
    }
    return FAIL(err, NOT_FOUND, "kernel object: no function '%s'", symbol);
}
