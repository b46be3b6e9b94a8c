/* The passes in default order, from PASS_TABLE in pass.h.
 *   layer    L2 passes; may include base, format, ir */
#include "pass.h"

const pass_info *pass_table(size_t *out_count)
{
    static const pass_info table[] = {
#define PASS_ROW(word, why) {#word, why, pass_##word},
        PASS_TABLE(PASS_ROW)
#undef PASS_ROW
    };
    *out_count = COUNT_OF(table);
    return table;
}
