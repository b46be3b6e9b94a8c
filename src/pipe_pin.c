/* Pins. What they offer is validated and timed like any other candidate: a pin narrows the choice, it proves nothing. */
#include "pipe_pin.h"
#include "base_sys.h"
#include "fmt_bundle.h"
#include <stdio.h>

enum { PIN_BYTES_MAX = 64 << 20 };

static rtx_status parse(const char *path, const void *text, size_t bytes, pipe_pin *out,
                        rtx_err *err)
{
    json_error_t why;
    json_t *all = json_loadb(text, bytes, 0, &why), *kernels = json_object_get(all, "kernels");
    if (!json_is_array(kernels)) {
        json_decref(all);
        return FAIL(err, INVALID,
                    "--pin %s holds no kernels; give a bundle or the output of rtx explain --json",
                    path);
    }
    out->kernels = json_incref(kernels);
    out->fusion = json_incref(json_object_get(all, "fusion"));
    json_decref(all);
    snprintf(out->name, sizeof out->name, "pin:%016llx",
             (unsigned long long)base_xxh3(text, bytes));
    return RTX_OK;
}

rtx_status pipe_pin_open(const char *path, pipe_pin *out, rtx_err *err)
{
    memset(out, 0, sizeof *out);
    fmt_bundle b;
    size_t n = strlen(path);
    if (n > 6 && strcmp(path + n - 6, ".rtxgc") == 0) {
        TRY(fmt_bundle_open(path, base_cpu_count(), &b, err));
        fmt_span ev = b.section[FMT_SEC_EVIDENCE];
        rtx_status s = parse(path, ev.data, ev.bytes, out, err);
        fmt_bundle_close(&b);
        return s;
    }
    AUTO_FREE char *text = NULL;
    size_t bytes;
    TRY(base_read_file(path, PIN_BYTES_MAX, &text, &bytes, err));
    return parse(path, text, bytes, out, err);
}

void pipe_pin_done(pipe_pin *p)
{
    json_decref(p->kernels);
    json_decref(p->fusion);
    p->kernels = p->fusion = NULL;
}

static bool known(const syn_variant *list, size_t n, const syn_variant *v)
{
    for (size_t i = 0; i < n; i++)
        if (memcmp(list[i].value, v->value, sizeof v->value) == 0)
            return true;
    return false;
}

size_t pipe_pin_variants(void *ctx, const syn_problem *p, fmt_isa isa, syn_variant *list, size_t n,
                         size_t cap)
{
    const pipe_pin *pin = ctx;
    AUTO_BUF base_buf text;
    base_buf_init(&text, BASE_TAG_TUNE, 1 << 20);
    if (n == 0 || syn_problem_text(p, &text, NULL) != RTX_OK)
        return n;
    const syn_template *templ = list[0].templ;
    size_t at, kept = 0;
    json_t *k;
    json_array_foreach(pin->kernels, at, k)
    {
        const char *problem = json_string_value(json_object_get(k, "problem"));
        const char *params = json_string_value(json_object_get(k, "params"));
        syn_variant v = {0};
        if (problem == NULL || params == NULL || strcmp(problem, text.data) != 0 ||
            !syn_variant_parse(templ, params, &v) || !syn_variant_legal(p, &v, isa, NULL) ||
            kept == cap || known(list, kept, &v))
            continue;
        list[kept++] = v; /* the space before kept is spent */
    }
    return kept ? kept : n;
}
