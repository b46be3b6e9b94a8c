/* rtx repro: one candidate of the tuner again, from its file.
 *   layer   top
 *   exit    0 accepted, 1 rejected (then there is a result) or no such file or a damaged one, 3 not by this version or machine */
#include "cli.h"

const char cli_repro_usage[] = "FILE";
const char cli_repro_text[] =
    "Compile, validate and time the one candidate that FILE holds, as tuning would, and print the "
    "verdict. FILE may be the name that `rtx explain` gives for a rejected candidate: then it is "
    "taken from the tuning cache. A file with a body runs that text: use only files you trust.\n";
const cli_option cli_repro_options[] = {
    {"source", 0, CLI_FLAG, false, NULL, "print the rendered C text only"},
    {"cache", 0, CLI_TEXT, false, "DIR", "tuning cache in which names are looked up"},
};
const size_t cli_repro_n_options = COUNT_OF(cli_repro_options);

#define NAME_LEN 32

static bool is_cache_name(const char *word)
{
    return strlen(word) == NAME_LEN && strspn(word, "0123456789abcdef") == NAME_LEN;
}

/* The candidate could not be judged: messages name the file, and a part of rtx that is not there is no fault of it. */
static rtx_status unusable(const char *path, bool parsed, const rtx_err *why, rtx_err *err)
{
    bool unsupported = why->code == RTX_UNSUPPORTED || (parsed && why->code == RTX_NOT_FOUND);
    if (unsupported)
        return FAIL(err, UNSUPPORTED, "UNSUPPORTED: %.300s", why->text);
    if (parsed || strncmp(why->text, path, strlen(path)) == 0)
        return base_fail(err, why->code, __FILE__, __LINE__, "%s", why->text);
    return base_fail(err, why->code, __FILE__, __LINE__, "%.200s: %.180s", path, why->text);
}

static const char *params_of(const tun_repro *r, base_buf *b)
{
    base_buf_init(b, BASE_TAG_CLI, 4096);
    syn_variant_print(&r->variant, b);
    return b->data ? b->data : "";
}

static rtx_status show(const cli_args *a, const tun_repro *r, const tun_verdict *v, rtx_err *err)
{
    AUTO_BUF base_buf params;
    const char *text = params_of(r, &params), *word = v->why.code ? "rejected" : "accepted";
    TRY(base_buf_ok(&params, err));
    if (a->json)
        return cli_put_json(json_pack("{s:s, s:s, s:s, s:o, s:f, s:f, s:o}", "template",
                                      r->variant.templ->name, "params", text, "verdict", word,
                                      "reason", cli_json_text(v->why.text), "error", v->error, "ns",
                                      v->ns, "expect", cli_json_text(r->expect)),
                            err);
    printf("%s%s%s: %s", r->variant.templ->name, *text ? " " : "", text, word);
    if (v->why.code)
        printf(": %s\n", v->why.text);
    else
        printf(", error %.1e, %.2f us\n", v->error, v->ns * 1e-3);
    return RTX_OK;
}

static rtx_status print_source(const cli_args *a, const tun_repro *r, rtx_err *err)
{
    AUTO_BUF base_buf text, params;
    const char *with = params_of(r, &params);
    base_buf_init(&text, BASE_TAG_CLI, (size_t)1 << 26);
    TRY(tun_repro_source(r, &text, err));
    TRY(base_buf_ok(&text, err));
    TRY(base_buf_ok(&params, err));
    if (a->json)
        return cli_put_json(json_pack("{s:s, s:s, s:o}", "template", r->variant.templ->name,
                                      "params", with, "source", cli_json_text(text.data)),
                            err);
    return cli_write_file("-", text.data, text.len, err);
}

static rtx_status read_repro(const char *path, tun_repro *r, rtx_err *err)
{
    AUTO_FREE char *text = NULL;
    size_t len;
    TRY(base_read_file(path, (size_t)64 << 20, &text, &len, err));
    return tun_repro_parse(text, len, r, err);
}

static rtx_status try_it(const cli_args *a, const tun_repro *r, tun_verdict *v, rtx_err *err)
{
    if (cli_has(a, "source"))
        return print_source(a, r, err);
    TRY(tun_repro_check(r, v, err));
    return show(a, r, v, err);
}

rtx_status cli_repro(cli_args *a, rtx_err *err)
{
    char found[CLI_CACHE_MAX + 200];
    const char *path = a->pos[0], *cache;
    static tun_repro r;
    tun_verdict v = {0};
    rtx_err why = {0};
    TRY(cli_cache_dir(a, &cache, err));
    bool in_cache = is_cache_name(path);
    if (in_cache && cache && *cache == '\0')
        return cli_usage(err, "--cache '' means no cache; name the folder in which to look");
    if (in_cache) {
        TRY(tun_repro_path(cache, path, found, sizeof found, err));
        path = found;
    }
    rtx_status s = read_repro(path, &r, &why);
    bool parsed = s == RTX_OK;
    if (parsed)
        s = try_it(a, &r, &v, &why);
    tun_repro_done(&r);
    if (s != RTX_OK)
        return unusable(path, parsed, &why, err);
    return v.why.code ? FAIL(err, NUMERIC, "the candidate is rejected") : RTX_OK;
}
