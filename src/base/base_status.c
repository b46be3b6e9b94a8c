/* Names of result codes, and the one function that fills an rtx_err.
 *   layer    L0 base
 *   threads  no state */
#include "base_core.h"
#include <stdio.h>

typedef struct status_row {
    const char *name, *text;
    int exit_code;
} status_row;

static const status_row status_rows[RTX_STATUS_COUNT] = {
#define ROW(name, exit_code, text) {#name, text, exit_code},
    RTX_STATUS_TABLE(ROW)
#undef ROW
};

static const status_row *status_get(rtx_status s)
{
    static const status_row unknown = {"UNKNOWN", "unknown status", 1};
    return (unsigned)s < RTX_STATUS_COUNT ? &status_rows[s] : &unknown;
}

const char *rtx_status_name(rtx_status s) { return status_get(s)->name; }

const char *rtx_status_text(rtx_status s) { return status_get(s)->text; }

int rtx_status_exit(rtx_status s) { return status_get(s)->exit_code; }

/* A cut inside a UTF-8 sequence would make the whole line undecodable for callers such as Python. */
static void drop_cut_utf8(char *text, size_t len)
{
    size_t start = len;
    while (start > 0 && len - start < 3 && ((unsigned char)text[start - 1] & 0xc0) == 0x80)
        start--;
    if (start == 0)
        return;
    unsigned char lead = (unsigned char)text[start - 1];
    size_t want = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : lead >= 0xc0 ? 2 : 1;
    if (want > 1 && len - (start - 1) < want)
        text[start - 1] = '\0';
}

rtx_status base_fail(rtx_err *err, rtx_status code, const char *file, int line, const char *fmt,
                     ...)
{
    if (!err)
        return code;
    rtx_err e = {.code = code}; /* formatted apart: arguments may point into *err */
    const char *slash = strrchr(file, '/');
    snprintf(e.where, sizeof e.where, "%s:%d", slash ? slash + 1 : file, line);
    va_list args;
    va_start(args, fmt);
    int full_len = vsnprintf(e.text, sizeof e.text, fmt, args);
    va_end(args);
    if (full_len >= (int)sizeof e.text)
        drop_cut_utf8(e.text, sizeof e.text - 1);
    base_make_printable(e.text);
    *err = e;
    return code;
}
