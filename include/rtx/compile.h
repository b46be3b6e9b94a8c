/* Compile a model into an .rtxgc file: the whole chain from reading to sealing, in one call.
 *   layer      public; includes rtx/status.h
 *   owner      texts given back are freed with rtx_free
 *   threads    one compilation at a time per process; it may use every CPU
 *   links      librtx (not in librtx-run) */
#ifndef RTX_COMPILE_H
#define RTX_COMPILE_H

#include "rtx/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Compile model (an ONNX file, or "zoo:NAME[,key=value…]") to out_path, which is replaced atomically and only on success.
 *   options    JSON object, NULL = defaults. Keys: tune "off"|"quick"|"full"; threads [1,2]; budget (seconds); cache
 *              (folder, "" = none); shapes {input: "1x128"}; buckets {symbol: [..]}; bounds {symbol: [lo,hi]};
 *              deterministic (bool); isa "v2"|"v3"|"v4"; baseline (bool: no fusion, static parameters, no reuse of buffers);
 *              binds {input: {"dtype","shape","data"}}: inputs that become constants
 *   report     JSON object with cache_keys, cache_hits, kernels, seconds and warnings; NULL allowed
 *   errors     UNSUPPORTED lists every unsupported node; CANCELLED after rtx_cancel; see docs/cli.md */
RTX_API RTX_MUST_CHECK rtx_status rtx_compile(const char *model, const char *options,
                                              const char *out_path, char **out_report,
                                              rtx_err *err);
/* Full text of this thread's last UNSUPPORTED answer (rtx_err holds its first lines); NULL if none. */
RTX_API char *rtx_unsupported_report(void);
/* Ask all compilations running now to stop cleanly, and any that begins before the last of them has stopped;
 * async-signal-safe. Without one running it does nothing. */
RTX_API void rtx_cancel(void);
RTX_API void rtx_free(void *text);
/* Warnings and debug text go to fn; NULL = silent. level 0 is a warning. */
RTX_API void rtx_log_to(void (*fn)(void *user, int level, const char *line), void *user);

#ifdef __cplusplus
}
#endif
#endif
