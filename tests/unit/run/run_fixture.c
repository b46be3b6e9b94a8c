/* The hand-made program of run_fixture.h. */
#include "run_fixture.h"

static const char kernels_text[] =
    "typedef long int64_t; typedef unsigned uint32_t;\n"
    "typedef struct { void *const *buf; const int64_t *arg; void *scratch; const char *next; "
    "int64_t next_bytes;\n"
    "    uint32_t *trap; } k_call;\n"
    "typedef struct { int64_t units, scratch_bytes; } k_plan;\n"
    "#define E __attribute__((visibility(\"default\"))) void\n"
    /* args: batch, K, N. One row a unit; the row is built in scratch. */
    "E mm_plan(const int64_t *a, int64_t w, k_plan *o) { (void)w; o->units = a[0]; "
    "o->scratch_bytes = a[2] * 4; }\n"
    "E mm_run(const k_call *c, int64_t b, int64_t e) {\n"
    "    const float *x = c->buf[0], *w = c->buf[1]; float *y = c->buf[2], *s = c->scratch;\n"
    "    int64_t K = c->arg[1], N = c->arg[2];\n"
    "    for (int64_t i = b; i < e; i++) {\n"
    "        for (int64_t n = 0; n < N; n++) s[n] = 0;\n"
    "        for (int64_t k = 0; k < K; k++) for (int64_t n = 0; n < N; n++) s[n] += x[i * K + k] "
    "* w[k * N + n];\n"
    "        for (int64_t n = 0; n < N; n++) y[i * N + n] = s[n];\n"
    "    } }\n"
    /* args: batch, rows, N. Three rows a unit. */
    "E gather_plan(const int64_t *a, int64_t w, k_plan *o) { (void)w; o->units = (a[0] + 2) / 3; "
    "o->scratch_bytes = 0; }\n"
    "E gather_run(const k_call *c, int64_t b, int64_t e) {\n"
    "    const float *t = c->buf[0]; const int64_t *ids = c->buf[1]; float *y = c->buf[2]; int64_t "
    "N = c->arg[2];\n"
    "    for (int64_t i = b * 3; i < e * 3 && i < c->arg[0]; i++) {\n"
    "        int64_t r = ids[i];\n"
    "        if (r < 0 || r >= c->arg[1]) { __atomic_store_n(c->trap, 1, __ATOMIC_RELAXED); r = 0; "
    "}\n"
    "        for (int64_t n = 0; n < N; n++) y[i * N + n] = t[r * N + n];\n"
    "    } }\n"
    /* args: elements. */
    "E add_plan(const int64_t *a, int64_t w, k_plan *o) { (void)w; o->units = (a[0] + 31) / 32; "
    "o->scratch_bytes = 0; }\n"
    "E add_run(const k_call *c, int64_t b, int64_t e) {\n"
    "    const float *x = c->buf[0], *y = c->buf[1]; float *z = c->buf[2];\n"
    "    for (int64_t i = b * 32; i < e * 32 && i < c->arg[0]; i++) z[i] = x[i] + y[i];\n"
    "}\n";

static char scratch_folder[64];

int fix_enter(void **state)
{
    (void)state;
    snprintf(scratch_folder, sizeof scratch_folder, "/tmp/rtx-test-run-XXXXXX");
    return !mkdtemp(scratch_folder) || chdir(scratch_folder) != 0;
}

int fix_leave(void **state)
{
    (void)state;
    char command[100];
    snprintf(command, sizeof command, "rm -rf %s", scratch_folder);
    return chdir("/") != 0 || system(command) != 0;
}

char *fix_compile(const char *text, const char *extra_flags, size_t *out_bytes)
{
    FILE *f = fopen("fixture.c", "w");
    if (!f)
        return NULL;
    fputs(text, f);
    fclose(f);
    char command[400];
    snprintf(command, sizeof command,
             "gcc -O2 -std=gnu17 -shared -nostdlib -fPIC -fvisibility=hidden -fno-ident "
             "-fno-builtin -s -Wl,--build-id=none "
             "-Wl,-z,noseparate-code %s -o fixture.so fixture.c",
             extra_flags);
    char *data;
    if (system(command) != 0 ||
        base_read_file("fixture.so", 1 << 22, &data, out_bytes, NULL) != RTX_OK)
        return NULL;
    return data;
}

/* ---- plan ---- */

enum { S_MM, S_GATHER, S_ADD, N_SLOTS };

static void add_slot(fmt_plan *p, const fix_options *o, int lowest, int highest, int which,
                     fmt_span code, const uint32_t entries[6])
{
    static const char *const names[] = {"mm", "gather", "add"};
    fmt_slot slot = {
        .problem = fmt_plan_str(p, names[which]), .measure = {0, -1}, .row = p->n_rows};
    for (int isa = lowest; isa <= highest; isa++) {
        char name[32];
        snprintf(name, sizeof name, "%s.v%d", names[which], isa);
        fmt_kernel k = {.name = fmt_plan_str(p, name),
                        .templ = fmt_plan_str(p, "test/plain"),
                        .source = o->source ? fmt_plan_str(p, kernels_text) : 0,
                        .isa = (uint8_t)isa,
                        .origin = o->tuned ? FMT_TUNED : FMT_PRECOMPILED,
                        .code_bytes = code.bytes,
                        .plan_entry = entries[2 * which],
                        .run_entry = entries[2 * which + 1]};
        base_sha256_sum sum = base_sha256_of(code.data, code.bytes);
        memcpy(k.code_hash, sum.b, sizeof sum.b);
        k.code_hash[0] ^= o->bad_code_hash;
        uint32_t kernel = fmt_plan_add_kernel(p, &k);
        for (int threads = 1; threads <= 2; threads++) {
            for (int64_t size = 4; size <= 64; size *= 4) {
                fmt_row row = {
                    (uint8_t)isa, (uint16_t)threads, (uint16_t)threads, {size, 0}, kernel};
                fmt_plan_add_row(p, &row);
                slot.n_rows++;
            }
        }
    }
    fmt_plan_add_slot(p, &slot);
}

static void add_step(fmt_plan *p, uint32_t slot, const char *name, uint32_t a, uint32_t b,
                     fmt_dim b_offset, uint32_t c, fmt_dim c_offset, const fmt_dim *args,
                     uint32_t n_args, uint32_t next)
{
    fmt_dim zero = fmt_dim_const(p->dims, 0);
    fmt_operand operands[] = {{a, zero}, {b, b_offset}, {c, c_offset}};
    fmt_step s = {.slot = slot,
                  .n_operands = 3,
                  .n_args = n_args,
                  .next = next,
                  .name = fmt_plan_str(p, name)};
    fmt_plan_add_step(p, &s, operands, args);
}

fmt_plan *fix_plan(const fix_options *o, int lowest, int highest, fmt_span code,
                   const uint32_t entries[6])
{
    fmt_dims *d = fmt_dims_new();
    fmt_plan *p = d ? fmt_plan_new(d) : NULL;
    if (!p) {
        fmt_dims_free(d);
        return NULL;
    }
    fmt_dim batch = fmt_dim_sym(d, fmt_sym_new(d, "batch", 0, FIX_MAX));
    fmt_dim k = fmt_dim_const(d, FIX_K), n = fmt_dim_const(d, FIX_N),
            rows = fmt_dim_const(d, FIX_ROWS);
    fmt_dim zero = fmt_dim_const(d, 0), elems = fmt_dim_mul(d, batch, n);
    fmt_plan_add_port(p, false, &(fmt_port){fmt_plan_str(p, "x"), FMT_F32, 2, {batch, k}});
    fmt_plan_add_port(p, false, &(fmt_port){fmt_plan_str(p, "ids"), FMT_I64, 1, {batch}});
    fmt_plan_add_port(p, true, &(fmt_port){fmt_plan_str(p, "y"), FMT_F32, 2, {batch, n}});
    fmt_plan_add_port(p, true, &(fmt_port){fmt_plan_str(p, "z"), FMT_F32, 2, {batch, n}});
    uint32_t x = fmt_plan_add_value(
        p, &(fmt_value){FMT_VAL_INPUT, FMT_F32, 0, fmt_dim_mul(d, batch, k), 0, 0, 0, 0, 0});
    uint32_t ids =
        fmt_plan_add_value(p, &(fmt_value){FMT_VAL_INPUT, FMT_I64, 1, batch, 0, 0, 0, 0, 0});
    uint32_t y =
        fmt_plan_add_value(p, &(fmt_value){FMT_VAL_OUTPUT, FMT_F32, 0, elems, 0, 0, 0, 0, 0});
    uint32_t z =
        fmt_plan_add_value(p, &(fmt_value){FMT_VAL_OUTPUT, FMT_F32, 1, elems, 0, 0, 0, 0, 0});
    fmt_dim w_elems = fmt_dim_const(d, FIX_K * FIX_N), t_elems = fmt_dim_const(d, FIX_ROWS * FIX_N);
    uint32_t w = fmt_plan_add_value(p, &(fmt_value){FMT_VAL_CONST, FMT_F32, 0, w_elems, 0,
                                                    FIX_K * FIX_N * 4 + o->stream_bytes, 0, 0,
                                                    o->stream_bytes > 0});
    uint32_t t =
        fmt_plan_add_value(p, &(fmt_value){FMT_VAL_CONST, FMT_F32, 0, t_elems, FIX_K * FIX_N * 4,
                                           FIX_ROWS * FIX_N * 4, 0, 0, 0});
    uint32_t h =
        fmt_plan_add_value(p, &(fmt_value){FMT_VAL_TEMP, FMT_F32, 0, elems, 0, 0, 0, 3, 0});
    uint32_t g = /* the second half is used */
        fmt_plan_add_value(
            p, &(fmt_value){FMT_VAL_TEMP, FMT_F32, 0, fmt_dim_add(d, elems, elems), 0, 0, 1, 2, 0});
    for (int s = 0; s < N_SLOTS; s++)
        add_slot(p, o, lowest, highest, s, code, entries);
    add_step(p, S_MM, "MatMul_0", x, w, zero, h, zero, (fmt_dim[]){batch, k, n}, 3, t);
    add_step(p, S_GATHER, "Gather_1", t, ids, zero, g, elems, (fmt_dim[]){batch, rows, n}, 3,
             FMT_NONE);
    add_step(p, S_ADD, "Add_2", h, g, elems, y, zero, (fmt_dim[]){elems}, 1, FMT_NONE);
    add_step(p, S_ADD, "Add_3", h, h, zero, z, zero, (fmt_dim[]){elems}, 1, FMT_NONE);
    p->consts_bytes = (FIX_K + FIX_ROWS) * FIX_N * 4 + o->pad_consts_bytes + o->stream_bytes;
    p->code_bytes = code.bytes;
    if (o->kabi)
        p->kabi = o->kabi;
    if (fmt_plan_ok(p, NULL) != RTX_OK) {
        fmt_plan_free(p);
        return NULL;
    }
    return p;
}

/* ---- file ---- */

static float weight(int i) { return (float)((i * 37) % 23 - 11) / 8.0f; }

static void must(bool ok, const char *what)
{
    if (!ok) {
        fprintf(stderr, "fixture: %s failed\n", what);
        _exit(99);
    }
}

void fix_write(const char *path, const fix_options *o)
{
    static const fix_options none;
    static char *elf; /* one compilation a process */
    static size_t elf_bytes;
    o = o ? o : &none;
    if (!elf)
        elf = fix_compile(kernels_text, "", &elf_bytes);
    must(elf != NULL, "compiling kernels");
    fmt_kobj object = {0};
    rtx_err err = {.text = ""};
    uint32_t entries[6];
    static const char *const names[] = {"mm_plan",    "mm_run",   "gather_plan",
                                        "gather_run", "add_plan", "add_run"};
    must(fmt_kobj_read(elf, elf_bytes, &object, &err) == RTX_OK, err.text);
    for (int i = 0; i < 6; i++)
        must(fmt_kobj_entry(elf, elf_bytes, names[i], &entries[i], &err) == RTX_OK, err.text);
    float w[FIX_K * FIX_N + FIX_ROWS * FIX_N];
    for (size_t i = 0; i < COUNT_OF(w); i++)
        w[i] = weight((int)i);
    uint32_t pad_bytes = o->pad_consts_bytes + o->stream_bytes;
    char *pad = base_zalloc(BASE_TAG_BASE, pad_bytes);
    fmt_span items[] = {{w, sizeof w}, {pad, pad_bytes}}, code = {object.code, object.bytes};
    int lowest = o->lowest ? o->lowest : FMT_ISA_V2, highest = o->highest ? o->highest : FMT_ISA_V4;
    fmt_plan *plans[2] = {fix_plan(o, lowest, highest, code, entries)};
    if (o->second_lowest)
        plans[1] = fix_plan(&none, o->second_lowest, lowest - 1, code, entries);
    must(plans[0] != NULL, "building the plan");
    for (int i = 0; plans[1] && i < 2; i++) /* two plans share code and constants */
        plans[i]->consts_bytes = plans[0]->consts_bytes;
    must(fmt_bundle_write(path, (const fmt_plan *const *)plans, plans[1] ? 2 : 1,
                          (fmt_pieces){items, 2}, code, o->manifest ? o->manifest : "{}", "graph",
                          "evidence", &err) == RTX_OK,
         err.text);
    base_free(pad);
    fmt_plan_free(plans[0]);
    fmt_plan_free(plans[1]);
}

/* ---- numbers ---- */

void fix_fill(float *x, int64_t *ids, int64_t batch, unsigned seed)
{
    for (int64_t i = 0; i < batch * FIX_K; i++)
        x[i] = (float)((int)((seed = seed * 1664525u + 1013904223u) >> 20) - 2048) / 512.0f;
    for (int64_t i = 0; i < batch; i++)
        ids[i] = (int64_t)((seed = seed * 1664525u + 1013904223u) >> 16) % FIX_ROWS;
}

void fix_expect(const float *x, const int64_t *ids, int64_t batch, float *y, float *z)
{
    for (int64_t i = 0; i < batch * FIX_N; i++) {
        double sum = 0;
        for (int k = 0; k < FIX_K; k++)
            sum += (double)x[i / FIX_N * FIX_K + k] * weight(k * FIX_N + (int)(i % FIX_N));
        z[i] = (float)(2 * sum);
        y[i] = (float)(sum + weight(FIX_K * FIX_N + (int)(ids[i / FIX_N] * FIX_N + i % FIX_N)));
    }
}
