/* The tables that the build makes, by level and part: the one list of their names.
 *   layer    L3 synth */
#include "syn_ready_set.h"

#define PARTS(X)                                                                                   \
    X(2, 0) X(2, 1) X(2, 2) X(2, 3) X(3, 0) X(3, 1) X(3, 2) X(3, 3) X(4, 0) X(4, 1) X(4, 2) X(4, 3)
#define DECLARE(level, part)                                                                       \
    extern const syn_ready_row syn_ready_rows_v##level##_##part[];                                 \
    extern const uint32_t syn_ready_rows_v##level##_##part##_n;
PARTS(DECLARE)

const syn_ready_part syn_ready_parts[3][SYN_READY_PARTS] = {
#define ENTRY(level, part)                                                                         \
    [level - 2][part] = {syn_ready_rows_v##level##_##part, &syn_ready_rows_v##level##_##part##_n},
    PARTS(ENTRY)};
