"""Compiling from Python: options become one JSON text, Ctrl-C stops cleanly."""
import ctypes
import os
import threading

from . import _native
from ._errors import InvalidType, InvalidValue, Unsupported, raise_for
from ._program import SHORT_NAMES, Program, as_array, path_bytes, seconds, whole


def check_device(device):
    if device is not None and str(device).lower() != "cpu":
        raise Unsupported(f"device {device!r}; this build has 'cpu'")


def _text(what, value):
    """JSON and C take neither half a surrogate pair nor a NUL."""
    if not isinstance(value, str):
        raise InvalidType(f"{what}: given {value!r}, wanted text", "INVALID")
    if "\0" in value or any("\ud800" <= c <= "\udfff" for c in value):
        raise InvalidValue(f"{what}: given {value!r}, wanted text that is UTF-8 and holds no NUL", "INVALID")
    return value


def _folder(what, value):
    try:
        return _text(what, os.fsdecode(value))
    except TypeError:
        raise InvalidType(f"{what}: given {value!r}, wanted the path of a folder", "INVALID") from None


def _named(what, given, read):
    if not hasattr(given, "items"):
        raise InvalidType(f"{what}: given {given!r}, wanted a dict by name", "INVALID")
    return {_text(f"{what}: a name", name): read(what, name, value) for name, value in given.items()}


def _listed(value):
    """A list of what can be listed and is no text; else None."""
    try:
        return None if isinstance(value, (str, bytes)) else list(value)
    except TypeError:
        return None


def _bind(what, name, value):
    import numpy as np

    array = as_array(name, value)
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        raise InvalidValue(f"{what}: input '{name}' holds values that are not finite", "INVALID")
    if array.dtype.name not in SHORT_NAMES:
        raise InvalidType(f"{what}: input '{name}' has element type {array.dtype.name}", "INVALID")
    flat = array.ravel() if array.dtype.kind != "b" else array.ravel().astype(np.uint8)
    return {"dtype": SHORT_NAMES[array.dtype.name], "shape": list(array.shape), "data": flat.tolist()}


def _sizes(what, name, values):
    sizes = _listed(values)
    if sizes is None:
        raise InvalidType(f"{what}: '{name}' is given {values!r}, wanted a list of whole numbers", "INVALID")
    return [whole(what, v) for v in sizes]


def _shape_text(what, name, shape):
    return _text(what, shape) if isinstance(shape, str) else "x".join(map(str, _sizes(what, name, shape)))


def thread_counts(threads):
    listed = _listed(threads)
    counts = [whole("threads", t, 32) for t in ([threads] if listed is None else listed)]
    if not counts:
        raise InvalidValue(f"threads: given {threads!r}, which holds no count; wanted a count or a list of counts", "INVALID")
    return counts


def options_text(tune="quick", threads=None, cache=None, shapes=None, buckets=None, bounds=None, deterministic=False, binds=None,
                 budget=None, isa=None, baseline=False):
    """The JSON object of include/rtx/compile.h; absent keys are defaults."""
    import json

    options = {"tune": _text("tune", tune)}
    if threads is not None:
        options["threads"] = thread_counts(threads)
    if cache is not None:
        options["cache"] = "" if cache is False else _folder("cache", cache)
    for name, given, read in (("shapes", shapes, _shape_text), ("buckets", buckets, _sizes), ("bounds", bounds, _sizes),
                              ("binds", binds, _bind)):
        if given is not None:
            options[name] = _named(name, given, read)
    if budget is not None:
        options["budget"] = seconds("budget", budget)
    if deterministic:
        options["deterministic"] = True
    if isa is not None:
        options["isa"] = _text("isa", isa)
    if baseline:
        options["baseline"] = True
    return json.dumps(options)


def _call(model, options, out):
    report, err = ctypes.c_void_p(), _native.Err()
    status = _native.lib.rtx_compile(model, options.encode(), out, ctypes.byref(report),
                                     ctypes.byref(err))
    full = None
    if _native.STATUS[status] == "UNSUPPORTED":  # the text of this thread's last answer
        full = _native.take_text(_native.lib.rtx_unsupported_report())
    return status, err, full, _native.take_text(report.value) if status == _native.OK else None


def _call_interruptible(model, options, out):
    """The library runs on a thread of its own, so that Ctrl-C reaches Python at once and the library is asked to stop. What
    interrupts the wait is raised when the library has stopped, not before; further interrupts until then are dropped.
    No Thread.join: in Python 3.11 one that is interrupted takes the thread for ended. No Event: its lock may be left held."""
    if threading.current_thread() is not threading.main_thread():
        return _call(model, options, out)
    begun, answers, stops = [], [], []
    wake = threading.Lock()
    wake.acquire()

    def work():
        begun.append(True)
        try:
            answers.append(None if stops else _call(model, options, out))
        except BaseException as error:  # out of memory
            answers.append(error)
        wake.release()

    try:
        threading.Thread(target=work, name="rtx-compile").start()
    except BaseException as error:
        stops.append(error)
    while True:
        try:
            while not answers and (begun or not stops):  # what begins after a stop sees it and calls nothing
                if stops:
                    _native.lib.rtx_cancel()  # each time: the library forgets what came before it began
                wake.acquire(timeout=0.05)
            break
        except BaseException as error:
            stops.append(error)
    for error in stops[:1] or answers:
        if isinstance(error, BaseException):
            raise error
    return answers[0]


def compile_file(model, options, out):
    """Compile to the file `out`; the report as a dict."""
    import json

    if not hasattr(_native.lib, "rtx_compile"):
        raise Unsupported(f"{_native.path} runs programs but does not compile; librtx.so is needed")
    status, err, full, report = _call_interruptible(path_bytes(model), options, path_bytes(out, "out"))
    if status != _native.OK:
        raise_for(status, err, full)
    return json.loads(report) if report else {}


def compile(path, tune="quick", threads=None, device=None, cache=None, shapes=None, buckets=None, bounds=None,
            deterministic=False, binds=None, out=None, budget=None, isa=None, baseline=False):
    """Compile an ONNX file, a ModelProto or "zoo:NAME" and open the result.

    tune      "off", "quick" or "full"
    threads   thread counts to tune for: a number or a list; the program then runs with the largest. Default: 1 and all CPUs
    cache     folder of the tuning cache; None = the user's, "" = none
    shapes    {input: "1x128" or (1, 128)}; buckets {symbol: [sizes to tune at]}; bounds {symbol: (lowest, highest)}
    binds     {input: array}: inputs that become constants
    out       keep the compiled file here; without it the file lives only as long as the program
    budget    seconds that tuning may take

    Ctrl-C is raised when the library has stopped, which can take seconds; a second one changes nothing.
    """
    check_device(device)
    counts = None if threads is None else thread_counts(threads)
    options = options_text(tune, counts, cache, shapes, buckets, bounds, deterministic, binds, budget, isa, baseline)
    import tempfile

    with tempfile.TemporaryDirectory(prefix="rtx-") as folder:
        if hasattr(path, "SerializeToString"):
            model = os.path.join(folder, "model.onnx")
            with open(model, "wb") as file:
                file.write(path.SerializeToString())
        else:
            model = path
        target = out if out is not None else os.path.join(folder, "program.rtxgc")
        report = compile_file(model, options, target)
        program = Program(target, counts and max(counts))
    program.report = report
    return program


def load(path, threads=None, device=None):
    """Open an .rtxgc file. threads: default of its runs; else RTX_THREADS, else the CPUs this process may use."""
    check_device(device)
    return Program(path, threads)
