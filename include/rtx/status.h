/* Result codes and the caller-owned error record used by every rtx function.
 *   layer     public; includes nothing of the project
 *   owner     the caller owns an rtx_err; it holds no heap memory, so out-of-memory can be reported
 *   threads   values only; one record per thread of calls */
#ifndef RTX_STATUS_H
#define RTX_STATUS_H

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define RTX_API          __attribute__((visibility("default")))
#define RTX_MUST_CHECK   __attribute__((warn_unused_result))
#define RTX_PRINTF(f, a) __attribute__((format(printf, f, a)))
#else
#define RTX_API
#define RTX_MUST_CHECK
#define RTX_PRINTF(f, a)
#endif

/* One row a code: X(NAME, exit code of the command line, text). UNSUPPORTED is an answer, not a fault. */
#define RTX_STATUS_TABLE(X)                                                                        \
    X(OK, 0, "ok")                                                                                 \
    X(INVALID, 1, "invalid argument or model")                                                     \
    X(NOMEM, 1, "out of memory")                                                                   \
    X(UNSUPPORTED, 3, "unsupported")                                                               \
    X(NOT_FOUND, 1, "not found")                                                                   \
    X(IO, 1, "input or output failed")                                                             \
    X(CORRUPT, 1, "damaged data")                                                                  \
    X(UNTRUSTED, 4, "signature or policy")                                                         \
    X(DEVICE, 1, "device fault")                                                                   \
    X(COMPILE, 1, "compiler failed")                                                               \
    X(NUMERIC, 1, "wrong numbers")                                                                 \
    X(LIMIT, 1, "limit exceeded")                                                                  \
    X(CANCELLED, 130, "cancelled")                                                                 \
    X(INTERNAL, 1, "internal error")

typedef enum rtx_status {
#define RTX_STATUS_ROW(name, exit_code, text) RTX_##name,
    RTX_STATUS_TABLE(RTX_STATUS_ROW)
#undef RTX_STATUS_ROW
        RTX_STATUS_COUNT
} rtx_status;

/* What went wrong, where in rtx, in one line. 512 bytes. Passing NULL instead is always allowed. */
typedef struct rtx_err {
    rtx_status code;
    char where[60]; /* "onnx_import.c:214" */
    char text[448]; /* names op, shape, file or field, the limit and the next step */
} rtx_err;

/* Name ("CORRUPT"), text and exit code of a status; never NULL, also for values out of range. */
RTX_API const char *rtx_status_name(rtx_status s);
RTX_API const char *rtx_status_text(rtx_status s);
RTX_API int rtx_status_exit(rtx_status s);

#ifdef __cplusplus
}
#endif
#endif
