/* `.rtxgc`: the sectioned container, written atomically and checked byte for byte; and kernel objects made from ELF files.
 *   layer      L0 format; may include base, fmt_plan.h
 *   owner      fmt_bundle owns the mapping and the plan read from it
 *   threads    open may use the pool for hashing; an open bundle is read-only
 *   layout     docs/adr/0004-artifact-format.md */
#ifndef FMT_BUNDLE_H
#define FMT_BUNDLE_H

#include "base_sys.h"
#include "fmt_plan.h"

#define FMT_BUNDLE_MAGIC "\x89RTXGC\r\n" /* shows damage by text-mode transfers */

typedef enum fmt_section {
    FMT_SEC_MANIFEST =
        1, /* canonical JSON: inputs, outputs, buckets, threads, levels, compiler, provenance */
    FMT_SEC_PLAN = 2,
    FMT_SEC_CODE = 3,     /* 4 KiB aligned blobs */
    FMT_SEC_CONSTS = 4,   /* 4 KiB aligned; each constant 64-byte aligned */
    FMT_SEC_GRAPH = 5,    /* canonical IR text without large data */
    FMT_SEC_EVIDENCE = 6, /* tuning evidence, one text record a kernel slot (JSON lines) */
    FMT_SEC_COUNT
} fmt_section;

typedef struct fmt_span {
    const void *data;
    uint64_t bytes;
} fmt_span;

/* Pieces of the constant section, written without building one copy: constants may be borrowed from the model file. */
typedef struct fmt_pieces {
    const fmt_span *items;
    size_t n;
} fmt_pieces;

/* Most plans a bundle holds: the tuned one for the host's level, and the precompiled one that serves every level. Each is a
 * section of type PLAN; ports are equal in all; constants and code are shared. */
#define FMT_PLANS_MAX 4

/* Write a bundle of n_plans plans, the preferred first. plan->consts may be NULL here: pieces give the constant bytes, already padded to the offsets in the
 * plan's values. path "-" writes stdout. Nothing half-written is left at path. */
RTX_MUST_CHECK rtx_status fmt_bundle_write(const char *path, const fmt_plan *const *plans,
                                           size_t n_plans, fmt_pieces consts, fmt_span code,
                                           const char *manifest, const char *graph_text,
                                           const char *evidence, rtx_err *err);

typedef struct fmt_bundle {
    base_map map;
    fmt_span section[FMT_SEC_COUNT];
    fmt_plan *plan[FMT_PLANS_MAX]; /* in file order; consts and code point into the mapping */
    size_t n_plans;
} fmt_bundle;

/* The plan to run at a level: the first whose slots all have rows for it; NULL if none has. The runtime tries the machine's
 * level first, then the lower ones. */
const fmt_plan *fmt_bundle_plan(const fmt_bundle *b, fmt_isa isa);

/* Map, check every byte (SHA-256 over header, plan and code, XXH3 over the rest in 1 MiB chunks on `threads` threads, zero
 * padding), read the plan. CORRUPT names the section. */
RTX_MUST_CHECK rtx_status fmt_bundle_open(const char *path, int threads, fmt_bundle *out,
                                          rtx_err *err);
void fmt_bundle_close(fmt_bundle *b);

/* ---- kernel objects (fmt_kobj.c) ---- */

/* A shared object made from kernel text → position-independent blobs. Refuses (CORRUPT, with the reason) anything with
 * imports, relocations, a needed library, writable data or more than one loadable code segment. The blob is the loadable
 * segment; entries are found by symbol name. */
typedef struct fmt_kobj {
    const uint8_t *code;
    size_t bytes;
} fmt_kobj; /* borrows the file's bytes */
RTX_MUST_CHECK rtx_status fmt_kobj_read(const void *elf, size_t bytes, fmt_kobj *out, rtx_err *err);
/* Offset of an exported function in the blob; NOT_FOUND names it. */
RTX_MUST_CHECK rtx_status fmt_kobj_entry(const void *elf, size_t bytes, const char *symbol,
                                         uint32_t *out_offset, rtx_err *err);

#endif
