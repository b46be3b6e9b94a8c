/* rtx, the program: find the command, stop cleanly, turn a status into an exit code.
 *   layer    top
 *   signals  long commands ask base_go_on and clean up, a second Ctrl-C ends them at once; short ones end at once */
#include "cli.h"
#include "rtx/compile.h"
#include <signal.h>
#include <unistd.h>

enum { EXIT_USAGE = 2, EXIT_INTERRUPTED = 130 };

static void stop_later(int sig)
{
    (void)sig;
    rtx_cancel();
}

static void stop_now(int sig)
{
    (void)sig;
    _exit(EXIT_INTERRUPTED);
}

static void install_signals(bool clean_stop)
{
    struct sigaction a = {.sa_handler = clean_stop ? stop_later : stop_now,
                          .sa_flags = (int)SA_RESETHAND};
    sigemptyset(&a.sa_mask);
    const int stops[] = {SIGINT, SIGTERM};
    for (size_t i = 0; i < COUNT_OF(stops); i++) {
        struct sigaction had;
        if (sigaction(stops[i], NULL, &had) != 0 ||
            had.sa_handler != SIG_IGN) /* as nohup and `trap ''` want it */
            sigaction(stops[i], &a, NULL);
    }
    if (clean_stop)
        signal(SIGPIPE, SIG_IGN); /* a worker that went away is an error of write, not our end */
}

/* A command that tunes into a cache leaves there what it finished before it was stopped. */
static bool keeps_kernels(const cli_args *a)
{
    const char *tune = cli_text(a, "tune"), *cache = cli_text(a, "cache");
    bool tunes = false;
    for (size_t i = 0; i < a->command->n_options; i++)
        tunes |= strcmp(a->command->options[i].name, "tune") == 0;
    return tunes && !(tune && strcmp(tune, "off") == 0) && !(cache && *cache == '\0');
}

static int finish(rtx_status s, rtx_err *err, const cli_args *a)
{
    cli_progress_end();
    rtx_err late = {0};
    if (cli_flush(&late) != RTX_OK && s == RTX_OK) {
        s = late.code;
        *err = late;
    }
    if (s == RTX_OK)
        return 0;
    if (base_cancelled) {
        fprintf(stderr, "rtx: stopped%s\n",
                a && keeps_kernels(a) ? "; finished kernels are kept in the cache" : "");
        return EXIT_INTERRUPTED;
    }
    err->code = s;
    cli_error(err, a ? a->command->name : NULL);
    return cli_usage_failed() ? EXIT_USAGE : rtx_status_exit(s);
}

static int run_command(const cli_command *c, int argc, char **argv)
{
    static cli_args a;
    rtx_err err = {0};
    rtx_status s = cli_parse(c, argc, argv, &a, &err);
    cli_out_init(a.quiet);
    if (s == RTX_OK && cli_has(&a, "help")) {
        cli_help(stdout, c);
        return finish(RTX_OK, &err, &a);
    }
    if (s == RTX_OK) {
        install_signals(c->clean_stop);
        rtx_log_to(cli_log, NULL);
        s = c->run(&a, &err);
        rtx_log_to(NULL, NULL);
    }
    int code = finish(s, &err, &a);
    base_arena_done(&a.mem);
    return code;
}

/* rtx_version: "0.1.0 (commit abc1234), isa v4" */
static rtx_status put_version(bool json, rtx_err *err)
{
    const char *v = rtx_version(), *close = strchr(v, ')');
    if (json) {
        char commit[64] = "", isa[16] = "";
        sscanf(v, "%*s (commit %63[^)]), isa %15s", commit, isa);
        return cli_put_json(
            json_pack("{s:s, s:s, s:s}", "version", v, "commit", commit, "isa", isa), err);
    }
    if (close && close[1] == ',')
        printf("rtx %.*s%s)\n", (int)(close - v), v, close + 1);
    else
        printf("rtx %s\n", v);
    return RTX_OK;
}

int main(int argc, char **argv)
{
    rtx_err err = {0};
    if (argc < 2) {
        cli_help(stderr, NULL);
        return EXIT_USAGE;
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 ||
        (strcmp(argv[1], "help") == 0 && argc == 2)) {
        cli_help(stdout, NULL);
        return finish(RTX_OK, &err, NULL);
    }
    if (strcmp(argv[1], "--version") == 0 || strcmp(argv[1], "version") == 0) {
        rtx_status s = put_version(argc > 2 && strcmp(argv[2], "--json") == 0, &err);
        return finish(s, &err, NULL);
    }
    bool help = strcmp(argv[1], "help") == 0;
    const char *name = argv[help ? 2 : 1], *near;
    const cli_command *c = cli_command_find(name, &near);
    if (c == NULL) {
        fprintf(stderr, "rtx: error: '%.60s' is no command\n", name);
        if (near != NULL)
            fprintf(stderr, "rtx: hint: did you mean `rtx %s`?\n", near);
        else
            fputs("rtx: hint: `rtx --help` lists the commands\n", stderr);
        return EXIT_USAGE;
    }
    if (help) {
        cli_help(stdout, c);
        return finish(RTX_OK, &err, NULL);
    }
    return run_command(c, argc - 2, argv + 2);
}
