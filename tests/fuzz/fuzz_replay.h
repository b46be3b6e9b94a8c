/* Replay of a corpus without a fuzzer: a main() for targets that are built as plain programs.
 *   use   define nothing and include this at the end of a target; REPLAY_EACH, if defined, sees every file after the target
 *   exit  0 when every file was read without a fault; faults abort through the target's own CHECK */
#include <dirent.h>
#include <stdio.h>

static int replay(const char *path)
{
    DIR *folder = opendir(path);
    int n = 0;
    if (!folder) {
        char *data;
        size_t bytes;
        if (base_read_file(path, (size_t)64 << 20, &data, &bytes, NULL) != RTX_OK)
            return 0;
        LLVMFuzzerTestOneInput((const uint8_t *)data, bytes);
#ifdef REPLAY_EACH
        REPLAY_EACH(data, bytes);
#endif
        base_free(data);
        return 1;
    }
    for (struct dirent *e; (e = readdir(folder));) {
        char file[4096];
        snprintf(file, sizeof file, "%s/%s", path, e->d_name);
        n += e->d_name[0] == '.' ? 0 : replay(file);
    }
    closedir(folder);
    return n;
}

static int replay_all(int argc, char **argv)
{
    int n = 0;
    for (int k = 1; k < argc; k++)
        n += replay(argv[k]);
    printf("%d files\n", n);
    return n;
}
