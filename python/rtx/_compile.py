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


def _bind(name, value):
    import numpy as np

    array = as_array(name, value)
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        raise InvalidValue(f"binds: input '{name}' holds values that are not finite", "INVALID")
    if array.dtype.name not in SHORT_NAMES:
        raise InvalidType(f"binds: input '{name}' has element type {array.dtype.name}", "INVALID")
    flat = array.ravel() if array.dtype.kind != "b" else array.ravel().astype(np.uint8)
    return {"dtype": SHORT_NAMES[array.dtype.name], "shape": list(array.shape), "data": flat.tolist()}


def _shape_text(shape):
    return shape if isinstance(shape, str) else "x".join(str(whole("shapes", d)) for d in shape)


def _sizes(what, name, values):
    if isinstance(values, str) or not hasattr(values, "__iter__"):
        raise InvalidType(f"{what}: '{name}' is given {values!r}, wanted a list of whole numbers", "INVALID")
    return [whole(what, v) for v in values]


def options_text(tune="quick", threads=None, cache=None, shapes=None, buckets=None, bounds=None, deterministic=False, binds=None,
                 budget=None, isa=None, baseline=False):
    """The JSON object of include/rtx/compile.h; absent keys are defaults."""
    import json

    options = {"tune": tune}
    if threads is not None:
        options["threads"] = [whole("threads", t) for t in (threads if hasattr(threads, "__iter__") else [threads])]
    if cache is not None:
        options["cache"] = "" if cache is False else os.fspath(cache)
    if shapes:
        options["shapes"] = {name: _shape_text(shape) for name, shape in shapes.items()}
    if buckets:
        options["buckets"] = {name: _sizes("buckets", name, values) for name, values in buckets.items()}
    if bounds:
        options["bounds"] = {name: _sizes("bounds", name, values) for name, values in bounds.items()}
    if binds:
        options["binds"] = {name: _bind(name, value) for name, value in binds.items()}
    if budget is not None:
        options["budget"] = seconds("budget", budget)
    if deterministic:
        options["deterministic"] = True
    if isa is not None:
        options["isa"] = isa
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
    status, err, full, report = _call_interruptible(path_bytes(model), options, path_bytes(out))
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
    options = options_text(tune, threads, cache, shapes, buckets, bounds, deterministic, binds, budget, isa, baseline)
    run_threads = max(threads) if hasattr(threads, "__iter__") else threads
    import tempfile

    with tempfile.TemporaryDirectory(prefix="rtx-") as folder:
        if hasattr(path, "SerializeToString"):
            model = os.path.join(folder, "model.onnx")
            with open(model, "wb") as file:
                file.write(path.SerializeToString())
        else:
            model = os.fspath(path)
        target = os.fspath(out) if out is not None else os.path.join(folder, "program.rtxgc")
        report = compile_file(model, options, target)
        program = Program(target, run_threads)
    program.report = report
    return program


def load(path, threads=None, device=None):
    """Open an .rtxgc file. threads: default of its runs; else RTX_THREADS, else the CPUs this process may use."""
    check_device(device)
    return Program(path, threads)
