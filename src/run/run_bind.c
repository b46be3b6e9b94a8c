/* The caller's tensors against the ports of a program.
 *   layer    L3 run; may include base, format
 *   messages name the port, what was given and what is wanted, since this is where most users meet an error */
#include "run_program.h"
#include <stdio.h>

/* ---- texts for messages ---- */

#define TEXT_BYTES 200

static void shape_end(char *text, size_t len)
{
    if (len + 5 > TEXT_BYTES) /* cut */
        len = TEXT_BYTES - 5, memcpy(text + len - 3, "...", 3);
    memcpy(text + len, "]", 2);
}

static const char *given_text(const rtx_tensor *t, char text[TEXT_BYTES])
{
    const char *dtype =
        (unsigned)t->dtype < FMT_DTYPE_COUNT ? fmt_dtype_name((fmt_dtype)t->dtype) : "unknown type";
    size_t len = (size_t)snprintf(text, TEXT_BYTES, "%s[", dtype);
    for (int i = 0; i < t->rank && i < RTX_RANK_MAX && len < TEXT_BYTES; i++)
        len += (size_t)snprintf(text + len, TEXT_BYTES - len, "%s%lld", i ? "," : "",
                                (long long)t->dim[i]);
    shape_end(text, len);
    return text;
}

static const char *wanted_text(const rtx_port *p, char text[TEXT_BYTES])
{
    size_t len = (size_t)snprintf(text, TEXT_BYTES, "%s[", fmt_dtype_name((fmt_dtype)p->dtype));
    for (int i = 0; i < p->rank && len < TEXT_BYTES; i++) {
        if (p->dim[i] < 0)
            len += (size_t)snprintf(text + len, TEXT_BYTES - len, "%s%s", i ? "," : "",
                                    p->dim_name[i]);
        else
            len += (size_t)snprintf(text + len, TEXT_BYTES - len, "%s%lld", i ? "," : "",
                                    (long long)p->dim[i]);
    }
    shape_end(text, len);
    return text;
}

static rtx_status fail_port(const char *what, const rtx_port *port, const rtx_tensor *t,
                            const char *why, rtx_err *err)
{
    char given[TEXT_BYTES], wanted[TEXT_BYTES];
    return FAIL(err, INVALID, "%s '%s': given %s, wanted %s%s", what, port->name,
                given_text(t, given), wanted_text(port, wanted), why);
}

static rtx_status fail_unknown(const char *what, const char *name, const run_port *ports,
                               uint32_t n, rtx_err *err)
{
    char list[300] = "";
    size_t len = 0;
    for (uint32_t i = 0; i < n && len < sizeof list; i++)
        len += (size_t)snprintf(list + len, sizeof list - len, "%s'%s'", i ? ", " : "",
                                ports[i].pub.name);
    return FAIL(err, INVALID, "no %s '%s'; the program has %s", what, name, n ? list : "none");
}

/* ---- which tensor is for which port ---- */

/* Tensor for port i, or NULL. Without a name the position counts. */
static const rtx_tensor *find_given(const char *name, uint32_t i, const rtx_tensor *given, size_t n)
{
    if (i < n && (!given[i].name || strcmp(given[i].name, name) == 0))
        return &given[i];
    for (size_t k = 0; k < n; k++) {
        if (given[k].name && strcmp(given[k].name, name) == 0)
            return &given[k];
    }
    return NULL;
}

/* Called when the counts differ or a port found nothing: say which name is wrong. */
static rtx_status explain_names(const char *what, const run_port *ports, uint32_t n_ports,
                                const rtx_tensor *given, size_t n, rtx_err *err)
{
    for (size_t k = 0; k < n; k++) {
        if (!given[k].name)
            continue;
        bool known = false;
        for (uint32_t i = 0; i < n_ports; i++)
            known |= strcmp(ports[i].pub.name, given[k].name) == 0;
        if (!known)
            return fail_unknown(what, given[k].name, ports, n_ports, err);
        for (size_t j = 0; j < k; j++) {
            if (given[j].name && strcmp(given[j].name, given[k].name) == 0)
                return FAIL(err, INVALID, "%s '%s' is given twice", what, given[k].name);
        }
    }
    for (uint32_t i = 0; i < n_ports; i++) {
        char wanted[TEXT_BYTES];
        if (!find_given(ports[i].pub.name, i, given, n))
            return FAIL(err, INVALID, "%s '%s' is missing; wanted %s", what, ports[i].pub.name,
                        wanted_text(&ports[i].pub, wanted));
    }
    return FAIL(err, INVALID, "%zu %ss given, wanted %u", n, what, n_ports);
}

static bool same_dims(const rtx_tensor *a, const int64_t *dim, int rank)
{
    return a->rank == rank && memcmp(a->dim, dim, (size_t)rank * sizeof *dim) == 0;
}

/* ---- inputs ---- */

#define UNBOUND INT64_MIN

static rtx_status bind_sym(const rtx_program *p, const run_port *port, const rtx_tensor *t,
                           int axis, int64_t *syms, rtx_err *err)
{
    int32_t id = port->sym[axis];
    int64_t v = t->dim[axis];
    if (syms[id] == v)
        return RTX_OK;
    const fmt_sym *sym = fmt_sym_get(p->plan->dims, (uint32_t)id);
    if (syms[id] != UNBOUND) {
        char why[120];
        snprintf(why, sizeof why, " with %.60s = %lld as in another dimension", sym->name,
                 (long long)syms[id]);
        return fail_port("input", &port->pub, t, why, err);
    }
    if (v < sym->lo || v > sym->hi) {
        char hi[32] = "";
        if (sym->hi < FMT_DIM_LIMIT)
            snprintf(hi, sizeof hi, "%lld", (long long)sym->hi);
        return FAIL(err, INVALID, "%s = %lld is outside %lld..%s (input '%s', dimension %d)",
                    sym->name, (long long)v, (long long)sym->lo, hi, port->pub.name, axis);
    }
    syms[id] = v;
    return RTX_OK;
}

static rtx_status bind_input(const rtx_program *p, const run_port *port, const rtx_tensor *t,
                             int64_t *syms, rtx_err *err)
{
    if (t->dtype != port->pub.dtype || t->rank != port->pub.rank)
        return fail_port("input", &port->pub, t, "", err);
    for (int i = 0; i < t->rank; i++) {
        if (t->dim[i] < 0 || t->dim[i] > FMT_DIM_LIMIT)
            return fail_port("input", &port->pub, t, "", err);
        if (port->sym[i] >= 0)
            TRY(bind_sym(p, port, t, i, syms, err));
        else if (port->sym[i] == RUN_DIM_CONST && t->dim[i] != port->pub.dim[i])
            return fail_port("input", &port->pub, t, "", err);
    }
    return RTX_OK;
}

/* Dimensions that are expressions, once all symbols are known. */
static rtx_status check_exprs(const rtx_program *p, const run_port *port, const rtx_tensor *t,
                              const int64_t *syms, rtx_err *err)
{
    for (int i = 0; i < t->rank; i++) {
        int64_t v;
        if (port->sym[i] == RUN_DIM_EXPR &&
            (!fmt_dim_eval(p->plan->dims, port->dim[i], syms, &v) || v != t->dim[i]))
            return fail_port("input", &port->pub, t, "", err);
    }
    return RTX_OK;
}

static bool is_empty(const rtx_tensor *t)
{
    for (int i = 0; i < t->rank; i++) {
        if (t->dim[i] == 0)
            return true;
    }
    return false;
}

rtx_status run_bind_inputs(const rtx_program *p, const rtx_tensor *given, size_t n, bool need_data,
                           int64_t *syms, const void **in, rtx_err *err)
{
    const fmt_plan *plan = p->plan;
    if (n != plan->n_inputs)
        return explain_names("input", p->inputs, plan->n_inputs, given, n, err);
    for (uint32_t s = 0; s < p->n_syms; s++)
        syms[s] = UNBOUND;
    for (uint32_t i = 0; i < plan->n_inputs; i++) {
        const run_port *port = &p->inputs[i];
        const rtx_tensor *t = find_given(port->pub.name, i, given, n);
        if (!t)
            return explain_names("input", p->inputs, plan->n_inputs, given, n, err);
        TRY(bind_input(p, port, t, syms, err));
        if (need_data && !t->data && !is_empty(t))
            return FAIL(err, INVALID, "input '%s' has no data", port->pub.name);
        in[i] = t->data;
    }
    for (uint32_t s = 0; s < p->n_syms; s++) {
        if (syms[s] == UNBOUND) /* open made sure that nothing depends on it */
            syms[s] = 0;
    }
    for (uint32_t i = 0; i < plan->n_inputs; i++)
        TRY(check_exprs(p, &p->inputs[i], find_given(p->inputs[i].pub.name, i, given, n), syms,
                        err));
    return RTX_OK;
}

/* ---- outputs ---- */

static bool overlap(const void *a, int64_t a_bytes, const void *b, int64_t b_bytes)
{
    uintptr_t x = (uintptr_t)a, y = (uintptr_t)b;
    return a_bytes > 0 && b_bytes > 0 && x < y + (uintptr_t)b_bytes && y < x + (uintptr_t)a_bytes;
}

static rtx_status check_overlap(const rtx_program *p, const run_launch *l, uint32_t i,
                                const void *const *in, void *const *out, rtx_err *err)
{
    const fmt_plan *plan = p->plan;
    const int64_t *in_bytes = l->port_bytes, *out_bytes = l->port_bytes + plan->n_inputs;
    for (uint32_t k = 0; k < plan->n_inputs; k++) {
        if (overlap(out[i], out_bytes[i], in[k], in_bytes[k]))
            return FAIL(err, INVALID, "output '%s' overlaps input '%s'", p->outputs[i].pub.name,
                        p->inputs[k].pub.name);
    }
    for (uint32_t k = 0; k < i; k++) {
        if (overlap(out[i], out_bytes[i], out[k], out_bytes[k]))
            return FAIL(err, INVALID, "output '%s' overlaps output '%s'", p->outputs[i].pub.name,
                        p->outputs[k].pub.name);
    }
    return RTX_OK;
}

rtx_status run_bind_outputs(const rtx_program *p, const run_launch *l, const rtx_tensor *given,
                            size_t n, const void *const *in, void **out, rtx_err *err)
{
    const fmt_plan *plan = p->plan;
    if (n != plan->n_outputs)
        return explain_names("output", p->outputs, plan->n_outputs, given, n, err);
    for (uint32_t i = 0; i < plan->n_outputs; i++) {
        const rtx_port *port = &p->outputs[i].pub;
        const rtx_tensor *t = find_given(port->name, i, given, n), *want = &l->outputs[i];
        if (!t)
            return explain_names("output", p->outputs, plan->n_outputs, given, n, err);
        if (t->dtype != want->dtype || !same_dims(t, want->dim, want->rank)) {
            char a[TEXT_BYTES], b[TEXT_BYTES];
            return FAIL(err, INVALID, "output '%s': given %s, wanted %s", port->name,
                        given_text(t, a), given_text(want, b));
        }
        if (!t->data && !is_empty(t))
            return FAIL(err, INVALID, "output '%s' has no buffer", port->name);
        out[i] = t->data;
        TRY(check_overlap(p, l, i, in, out, err));
    }
    return RTX_OK;
}
