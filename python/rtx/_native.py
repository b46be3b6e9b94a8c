"""The C library seen from Python: search, declarations, status codes. Nothing here knows about NumPy."""
import ctypes
import os

RANK_MAX = 8

# dtype codes of include/rtx/run.h
DTYPE_NAMES = {1: "float32", 2: "int64", 3: "int32", 4: "bool", 5: "float16", 6: "bfloat16", 7: "float64"}

OK = 0
STATUS = ("OK", "INVALID", "NOMEM", "UNSUPPORTED", "NOT_FOUND", "IO", "CORRUPT", "UNTRUSTED", "DEVICE", "COMPILE", "NUMERIC",
          "LIMIT", "CANCELLED", "INTERNAL")


class Err(ctypes.Structure):
    _fields_ = [("code", ctypes.c_int), ("where", ctypes.c_char * 60), ("text", ctypes.c_char * 448)]


class Tensor(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("data", ctypes.c_void_p), ("dtype", ctypes.c_int), ("rank", ctypes.c_int),
                ("dim", ctypes.c_int64 * RANK_MAX)]


class Port(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("dtype", ctypes.c_int), ("rank", ctypes.c_int), ("dim", ctypes.c_int64 * RANK_MAX),
                ("dim_name", ctypes.c_char_p * RANK_MAX), ("lo", ctypes.c_int64 * RANK_MAX), ("hi", ctypes.c_int64 * RANK_MAX)]


def _candidates():
    """RTX_LIB alone if set; else beside the package, in the build folder of a checkout, in the prefix it is installed to."""
    named = os.environ.get("RTX_LIB")
    if named:
        yield named
        return
    here = os.path.dirname(os.path.realpath(__file__))
    folders = [here, os.path.join(here, "..", "..", "build")]
    prefix = here
    for _ in range(5):
        prefix = os.path.dirname(prefix)
        folders += [os.path.join(prefix, "lib"), os.path.join(prefix, "lib64")]
    for name in ("librtx.so", "librtx-run.so"):  # the second runs bundles but compiles nothing
        for folder in folders:
            yield os.path.normpath(os.path.join(folder, name))


def _find():
    tried = []
    for path in _candidates():
        tried.append(path)
        if os.path.exists(path):
            return ctypes.CDLL(path), path
    for name in ("librtx.so", "librtx-run.so"):
        try:
            return ctypes.CDLL(name), name
        except OSError:
            pass
    raise ImportError("the rtx library was not found; build it (./dev build) or set RTX_LIB. Tried: " + ", ".join(tried))


def _declare(lib):
    err, void, size, text = ctypes.POINTER(Err), ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p
    tensors = ctypes.POINTER(Tensor)
    table = {
        "rtx_version": (text, []),
        "rtx_program_open": (ctypes.c_int, [text, ctypes.c_int, ctypes.POINTER(void), err]),
        "rtx_program_close": (None, [void]),
        "rtx_program_input_count": (size, [void]),
        "rtx_program_output_count": (size, [void]),
        "rtx_program_input": (ctypes.c_int, [void, size, ctypes.POINTER(Port), err]),
        "rtx_program_output": (ctypes.c_int, [void, size, ctypes.POINTER(Port), err]),
        "rtx_program_shapes": (ctypes.c_int, [void, tensors, size, tensors, size, err]),
        "rtx_program_run": (ctypes.c_int, [void, tensors, size, tensors, size, ctypes.c_int, err]),
        "rtx_program_settled": (ctypes.c_int, [void]),
        "rtx_program_manifest": (text, [void]),
        # librtx only
        "rtx_compile": (ctypes.c_int, [text, text, text, ctypes.POINTER(void), err]),
        "rtx_unsupported_report": (void, []),
        "rtx_cancel": (None, []),
        "rtx_free": (None, [void]),
    }
    for name, (result, args) in table.items():
        function = getattr(lib, name, None)
        if function is not None:
            function.restype, function.argtypes = result, args


lib, path = _find()
_declare(lib)


def take_text(pointer):
    """Text of a pointer that the library hands over, which is freed; None for NULL."""
    if not pointer:
        return None
    text = ctypes.string_at(pointer).decode("utf-8", "replace")
    lib.rtx_free(pointer)
    return text
