/* Build-time program: compile a part of the precompiled set for one level and write it as C tables.
 *   usage    kgen LEVEL PART PARTS OUT.c CC [ARG…]      LEVEL 2, 3 or 4; kernels with index % PARTS == PART
 *   why      the same renderer makes these kernels and the tuned ones; parts let ninja use all cores
 *   output   syn_ready_rows_v<LEVEL>_<PART>, sorted by key; code as string literals, which compile faster than numbers */
#include "base_sys.h"
#include "fmt_bundle.h"
#include "syn_ready_set.h"
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

#define ARGS_MAX 128
#define ROWS_MAX 1024
#define SYMBOL   "kernel"

typedef struct row {
    uint64_t key[2];
    char name[96], params[256];
    const char *templ;
    uint8_t *code;
    size_t bytes;
    uint32_t plan, run;
} row;

typedef struct job {
    fmt_isa isa;
    uint32_t part, parts;
    const char *out;
    char **cc; /* compiler and its first arguments, NULL at the end */
    row *rows;
    uint32_t n;
} job;

/* cc… flags… -o so src; the flags string is cut at blanks in place. */
static rtx_status compile(const job *j, const char *src, const char *so, rtx_err *err)
{
    char *argv[ARGS_MAX], flags[2048];
    int n = 0, status;
    for (char **c = j->cc; *c && n < 16; c++)
        argv[n++] = *c;
    snprintf(flags, sizeof flags, "%s", syn_flags(j->isa));
    for (char *save = NULL, *w = strtok_r(flags, " ", &save); w && n < ARGS_MAX - 4;
         w = strtok_r(NULL, " ", &save))
        argv[n++] = w;
    argv[n++] = "-o";
    argv[n++] = (char *)(uintptr_t)so;
    argv[n++] = (char *)(uintptr_t)src;
    argv[n] = NULL;
    pid_t pid;
    if (posix_spawnp(&pid, argv[0], NULL, NULL, argv, environ) != 0 ||
        waitpid(pid, &status, 0) != pid)
        return FAIL(err, IO, "cannot run %s", argv[0]);
    return WIFEXITED(status) && WEXITSTATUS(status) == 0
               ? RTX_OK
               : FAIL(err, INTERNAL, "%s fails on %s", argv[0], src);
}

static rtx_status read_object(const char *so, row *r, rtx_err *err)
{
    AUTO_FREE char *elf = NULL;
    size_t bytes;
    fmt_kobj obj;
    TRY(base_read_file(so, 1u << 24, &elf, &bytes, err));
    TRY(fmt_kobj_read(elf, bytes, &obj, err));
    TRY(fmt_kobj_entry(elf, bytes, SYMBOL "_plan", &r->plan, err));
    TRY(fmt_kobj_entry(elf, bytes, SYMBOL "_run", &r->run, err));
    TRY_ALLOC(r->code = base_alloc(BASE_TAG_SYNTH, obj.bytes), err);
    memcpy(r->code, obj.code, obj.bytes);
    r->bytes = obj.bytes;
    return RTX_OK;
}

/* Ops of the region and the dtype of its first operand: "dot_add_gelu_f32". */
static void name_of(const syn_problem *p, char *out, size_t cap)
{
    size_t n = 0;
    const ir_graph *g = p->region;
    for (ir_id id = 1; id < g->n_nodes && n < cap; id++) {
        ir_op op = ir_op_of(g, id);
        if (op != IR_input && op != IR_const && op != IR_broadcast)
            n += (size_t)snprintf(out + n, cap - n, "%s_", ir_op_get(op)->name);
    }
    ir_id first = p->n_in ? g->inputs[0].id : g->outputs[0].id;
    if (n < cap)
        snprintf(out + n, cap - n, "%s%s", n ? "" : "copy_",
                 fmt_dtype_name(ir_type_of(g, first)->dtype));
}

/* Put the values of "NAME=v NAME=v" into a variant. */
static void override(syn_variant *v, const char *params)
{
    for (const char *w = params; *w; w += strcspn(w, " "), w += *w == ' ') {
        size_t n = strcspn(w, "=");
        for (uint32_t i = 0; i < v->templ->n_params; i++)
            if (strlen(v->templ->params[i].name) == n &&
                memcmp(v->templ->params[i].name, w, n) == 0)
                v->value[i] = atoll(w + n + 1);
    }
}

static void rare_variant(syn_variant *v)
{
#define GEMM(packed, any_k, epilogue)
#define RARE(which, params)                                                                        \
    if (strcmp(v->templ->name, which) == 0)                                                        \
        override(v, params);
#include "syn_ready.def"
#undef GEMM
#undef RARE
}

static rtx_status make(void *ctx, const syn_problem *p, uint32_t index, bool rare, rtx_err *err)
{
    job *j = ctx;
    if (index % j->parts != j->part)
        return RTX_OK;
    if (j->n == ROWS_MAX)
        return FAIL(err, LIMIT, "more than %d kernels", ROWS_MAX);
    row *r = &j->rows[j->n];
    syn_variant v;
    AUTO_BUF base_buf text, params;
    char src[4096], so[4096];
    base_buf_init(&text, BASE_TAG_SYNTH, SIZE_MAX);
    base_buf_init(&params, BASE_TAG_SYNTH, SIZE_MAX);
    syn_variant_default(p, j->isa, NULL, &v);
    if (v.templ == NULL)
        return FAIL(err, INTERNAL, "no template for kernel %u of the set", index);
    if (rare)
        rare_variant(&v);
    if (!syn_variant_legal(p, &v, j->isa, err))
        return err->code;
    syn_unit_begin(&text, j->isa);
    TRY(syn_unit_add(&text, p, &v, j->isa, SYMBOL, err));
    syn_variant_print(&v, &params);
    TRY(base_buf_ok(&params, err));
    if (!syn_ready_key(p, r->key))
        return FAIL(err, NOMEM, "out of memory");
    snprintf(r->params, sizeof r->params, "%s", params.data ? params.data : "");
    r->templ = v.templ->name;
    name_of(p, r->name, sizeof r->name);
    snprintf(src, sizeof src, "%s.%u.c", j->out, index);
    snprintf(so, sizeof so, "%s.%u.so", j->out, index);
    TRY(base_publish(src, &(base_part){text.data, text.len}, 1, err));
    TRY(compile(j, src, so, err));
    TRY(read_object(so, r, err));
    (void)unlink(src);
    (void)unlink(so);
    j->n++;
    return RTX_OK;
}

static int by_key(const void *a, const void *b)
{
    const uint64_t *x = ((const row *)a)->key, *y = ((const row *)b)->key;
    return x[0] != y[0] ? (x[0] < y[0] ? -1 : 1) : x[1] != y[1] ? (x[1] < y[1] ? -1 : 1) : 0;
}

static void put_code(base_buf *b, const row *r)
{
    for (size_t i = 0; i < r->bytes; i++) {
        if (i % 64 == 0)
            base_buf_puts(b, i ? "\"\n    \"" : "    \"");
        base_buf_printf(b, "\\%03o", r->code[i]);
    }
    base_buf_puts(b, "\"");
}

static rtx_status write_table(const job *j, rtx_err *err)
{
    AUTO_BUF base_buf b;
    base_buf_init(&b, BASE_TAG_SYNTH, SIZE_MAX);
    base_buf_puts(
        &b, "/* Made by tools/kgen_main.c. Do not edit. */\n#include \"syn_ready_set.h\"\n\n");
    for (uint32_t i = 0; i < j->n; i++) {
        base_buf_printf(&b, "static const _Alignas(64) uint8_t code_%u[%zu] =\n", i,
                        j->rows[i].bytes);
        put_code(&b, &j->rows[i]);
        base_buf_puts(&b, ";\n");
    }
    base_buf_printf(&b,
                    "\nextern const syn_ready_row syn_ready_rows_v%d_%u[];\nextern const uint32_t "
                    "syn_ready_rows_v%d_%u_n;\n",
                    j->isa, j->part, j->isa, j->part);
    base_buf_printf(&b, "const syn_ready_row syn_ready_rows_v%d_%u[] = {\n", j->isa, j->part);
    for (uint32_t i = 0; i < j->n; i++) {
        const row *r = &j->rows[i];
        base_buf_printf(
            &b, "    {{0x%016llxu, 0x%016llxu}, {\"%s\", \"%s\", \"%s\", code_%u, %zu, %u, %u}},\n",
            (unsigned long long)r->key[0], (unsigned long long)r->key[1], r->name, r->templ,
            r->params, i, r->bytes, r->plan, r->run);
    }
    base_buf_printf(&b, "};\nconst uint32_t syn_ready_rows_v%d_%u_n = %u;\n", j->isa, j->part,
                    j->n);
    TRY(base_buf_ok(&b, err));
    return base_publish(j->out, &(base_part){b.data, b.len}, 1, err);
}

static rtx_status run(job *j, rtx_err *err)
{
    TRY_ALLOC(j->rows = base_zalloc_array(BASE_TAG_SYNTH, ROWS_MAX, sizeof *j->rows), err);
    TRY(syn_ready_each(make, j, err));
    qsort(j->rows, j->n, sizeof *j->rows, by_key);
    for (uint32_t i = 1; i < j->n; i++)
        if (by_key(&j->rows[i - 1], &j->rows[i]) == 0)
            return FAIL(err, INTERNAL, "%s and %s are one problem", j->rows[i - 1].name,
                        j->rows[i].name);
    return write_table(j, err);
}

int main(int argc, char **argv)
{
    if (argc < 6) {
        fprintf(stderr, "usage: kgen LEVEL PART PARTS OUT.c CC [ARG…]\n");
        return 2;
    }
    rtx_err err = {0};
    job j = {.isa = (fmt_isa)atoi(argv[1]),
             .part = (uint32_t)atoi(argv[2]),
             .parts = (uint32_t)atoi(argv[3]),
             .out = argv[4],
             .cc = argv + 5};
    rtx_status status = j.parts > 0 ? run(&j, &err) : FAIL(&err, INVALID, "no parts");
    size_t bytes = 0;
    for (uint32_t i = 0; j.rows && i < j.n; i++) {
        bytes += j.rows[i].bytes;
        base_free(j.rows[i].code);
    }
    if (status == RTX_OK)
        printf("v%d part %u: %u kernels, %zu bytes\n", j.isa, j.part, j.n, bytes);
    else
        fprintf(stderr, "kgen: %s\n", err.text);
    base_free(j.rows);
    return status == RTX_OK ? 0 : 1;
}
