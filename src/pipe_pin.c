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

/* ---- the cut ---- */

lower_deny pipe_pin_split(const json_t *choices)
{
    lower_deny d = {0};
    for (size_t i = 0; i < json_array_size(choices) && d.n < PIPE_PIN_SPLITS; i++) {
        const json_t *e = json_array_get(choices, i);
        if (strcmp(json_string_value(json_object_get(e, "chosen")), "split") == 0)
            d.text[d.n++] = json_string_value(json_object_get(e, "problem"));
    }
    return d;
}

static bool has_region(const lower_result *low, const char *text)
{
    for (uint32_t i = 0; text != NULL && i < low->n_slots; i++)
        if (low->slots[i].region != NULL && strcmp(low->slots[i].region, text) == 0)
            return true;
    return false;
}

static bool has_choice(const json_t *all, const json_t *e)
{
    for (size_t i = 0; i < json_array_size(all); i++)
        if (json_array_get(all, i) == e)
            return true;
    return false;
}

/* Until nothing new is split: what is left of a region may have been split, too. */
rtx_status pipe_pin_replay(const ir_graph *g, lower_consts *consts, const json_t *choices,
                           lower_result *low, json_t *taken, rtx_err *err)
{
    for (;;) {
        uint32_t before = pipe_pin_split(taken).n;
        for (size_t i = 0; i < json_array_size(choices); i++) {
            json_t *e = json_array_get(choices, i);
            if (has_region(low, json_string_value(json_object_get(e, "problem"))) &&
                json_string_value(json_object_get(e, "chosen")) != NULL && !has_choice(taken, e) &&
                json_array_append(taken, e) != 0)
                return FAIL(err, NOMEM, "out of memory");
        }
        lower_deny deny = pipe_pin_split(taken);
        if (deny.n == before)
            return RTX_OK;
        lower_result other;
        TRY(lower_graph_cut(g, LOWER_BAKED, &deny, consts, &other, err));
        lower_result_done(low);
        *low = other;
    }
}
