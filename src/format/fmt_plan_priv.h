/* The plan's tables seen as one list, shared by its builder (fmt_plan.c), its records (fmt_plan_io.c) and its check.
 *   layer    L0 format, private to the plan; may include base
 *   order    of X below = order of fmt_plan.cap = order in the file */
#ifndef FMT_PLAN_PRIV_H
#define FMT_PLAN_PRIV_H

#include "fmt_plan.h"

/* X(table, element type, smallest number of bytes that one record takes in a file) */
#define FMT_PLAN_TABLES(X)                                                                         \
    X(inputs, fmt_port, 6)                                                                         \
    X(outputs, fmt_port, 6)                                                                        \
    X(values, fmt_value, 35)                                                                       \
    X(operands, fmt_operand, 8)                                                                    \
    X(args, fmt_dim, 4)                                                                            \
    X(limits, fmt_dim, 4)                                                                          \
    X(steps, fmt_step, 32)                                                                         \
    X(slots, fmt_slot, 16)                                                                         \
    X(rows, fmt_row, 25)                                                                           \
    X(kernels, fmt_kernel, 78)

typedef enum fmt_table_id {
#define FMT_PLAN_ROW(table, type, bytes) FMT_TABLE_##table,
    FMT_PLAN_TABLES(FMT_PLAN_ROW)
#undef FMT_PLAN_ROW
        FMT_TABLE_COUNT
} fmt_table_id;

/* Room for `more` further records; false and plan->failed when there is none. */
bool fmt_plan_reserve(fmt_plan *p, fmt_table_id table, uint32_t more);

/* Every index, count, name and range of a finished plan; CORRUPT names the record. Takes nothing on trust, so that a
 * plan that passes can be run without further checks other than those on shapes. */
RTX_MUST_CHECK rtx_status fmt_plan_check(const fmt_plan *p, rtx_err *err);

#endif
