/* Choices between things that were tuned, kept beside their times. The key is everything that any of the times depends on:
 * all templates, for which of them a choice involves is part of what was chosen, and every fact of the machine's profile. */
#include "dev_cpu.h"
#include "tun_int.h"
#include <stdio.h>

static void add_hash(tun_key *k, const char *name, const uint8_t *sha)
{
    char hex[65];
    base_hex(sha, 32, hex);
    tun_key_add(k, name, hex);
}

static void add_templates(tun_key *k)
{
    size_t n;
    const syn_template *t = syn_template_table(&n);
    base_sha256 sum;
    base_sha256_init(&sum);
    for (size_t i = 0; i < n; i++)
        base_sha256_add(&sum, t[i].sha256, sizeof t[i].sha256);
    add_hash(k, "templates", base_sha256_end(&sum).b);
}

/* As the cache knows them: before the first profile there is no choice to be found either. */
static void add_facts(tun_key *k, tun_cache *c, fmt_isa isa)
{
    tun_hw hw;
    if (tun_profile_with(NULL, c, isa, false, &hw, NULL) != RTX_OK)
        return;
    hw_facts facts = tun_hw_facts(&hw);
    for (int f = 0; f < HW_FACTS; f++) {
        char text[24];
        snprintf(text, sizeof text, "%lld", (long long)hw_fact_value(&facts, isa, (hw_fact)f));
        tun_key_add(k, hw_fact_name((hw_fact)f), text);
    }
}

static void make_key(const tun_options *o, tun_cache *c, const char *question, tun_key *k)
{
    char machine[96];
    tun_key_init(k);
    tun_key_add(k, "what", "choice");
    add_hash(k, "question", base_sha256_of(question, strlen(question)).b);
    tun_key_mark_identity(k);
    add_templates(k);
    add_hash(k, "prelude and renderer", syn_prelude_sha256());
    tun_key_add(k, "flags", syn_flags(o->isa));
    snprintf(machine, sizeof machine, "%d cores, v%d, kernel interface %d, buckets %d",
             base_cpu_count(), (int)o->isa, FMT_KABI_VERSION, FMT_BUCKET_VERSION);
    tun_key_add(k, "cpu", dev_cpu_get()->name);
    tun_key_add(k, "machine", machine);
    add_facts(k, c, o->isa);
    tun_key_add(k, "search", o->mode == TUN_FULL ? "full" : "quick");
    tun_key_add(k, "strategy", o->strategy ? o->strategy : "bandit");
    tun_key_add(k, "variants hook", o->variants ? o->variants_name ? o->variants_name : "?" : "");
    tun_key_add(k, "class", o->deterministic ? "bit-stable only" : "any");
    tun_key_add(k, "model", TUN_MODEL);
    tun_key_add(k, "measurement", TUN_POLICY);
    (void)tun_have_compiler(k->compiler, sizeof k->compiler, NULL);
}

char *tun_choice_get(const tun_options *opt, const char *question)
{
    tun_key k;
    tun_cache c;
    char *answer = NULL;
    size_t n;
    tun_cache_open_quiet(&c, opt->cache, dev_cpu_get()->name);
    make_key(opt, &c, question, &k);
    if (!tun_cache_get(&c, TUN_PLAN, &k, &answer, &n, NULL, 0))
        answer = NULL;
    tun_key_done(&k);
    return answer;
}

void tun_choice_put(const tun_options *opt, const char *question, const char *answer)
{
    tun_key k;
    tun_cache c;
    tun_cache_open_quiet(&c, opt->cache, dev_cpu_get()->name);
    make_key(opt, &c, question, &k);
    (void)tun_cache_put(&c, TUN_PLAN, &k, answer, strlen(answer), &(tun_origin){true, true});
    tun_key_done(&k);
}
