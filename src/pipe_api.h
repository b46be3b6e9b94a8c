/* Compilation with its report as JSON, for the public API and the command line.
 *   layer      top, beside pipeline.c
 *   owner      *out_report belongs to the caller (json_decref)
 *   threads    one compilation at a time; warnings of a run are collected from all its threads */
#ifndef PIPE_API_H
#define PIPE_API_H

#include "pipeline.h"
#include <jansson.h>

/* pipe_compile, plus its report: see docs/cli.md for the fields. Warnings that the log saw meanwhile are among them. */
RTX_MUST_CHECK rtx_status pipe_compile_report(const char *model, const pipe_options *opt,
                                              const char *out_path, json_t **out_report,
                                              rtx_err *err);
/* The report as an object, without warnings; NULL = out of memory. */
json_t *pipe_report_object(const pipe_report *r);

#endif
