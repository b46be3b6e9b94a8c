/* Linked into rtx for tests/cli/test_memory.py: allocation number RTX_TEST_FAIL_AT of the process fails; at its end the number of
 * allocations goes to the file RTX_TEST_COUNT. */
#include "base_core.h"
#include <stdio.h>
#include <stdlib.h>

__attribute__((constructor)) static void begin(void)
{
    const char *at = getenv("RTX_TEST_FAIL_AT");
    if (at)
        base_alloc_fail_at(atoll(at));
}

__attribute__((destructor)) static void end(void)
{
    const char *path = getenv("RTX_TEST_COUNT");
    FILE *f = path ? fopen(path, "w") : NULL;
    if (!f)
        return;
    fprintf(f, "%llu\n", (unsigned long long)base_alloc_count());
    fclose(f);
}
