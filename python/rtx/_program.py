"""An open program: ports, runs, results."""
import ctypes
import math
import operator
import os
import threading
from collections import namedtuple

import numpy as np

from . import _native
from ._errors import Error, InvalidType, InvalidValue, raise_for

_KNOWN_SHAPES_MAX = 64
_CODES = {name: code for code, name in _native.DTYPE_NAMES.items()}
SHORT_NAMES = {"float32": "f32", "int64": "i64", "int32": "i32", "bool": "bool", "float16": "f16", "bfloat16": "bf16",
               "float64": "f64"}


class Port(namedtuple("Port", "name dtype shape")):
    """An input or output: name, NumPy name of the element type, and dimensions, each a number or an expression of symbols."""

    __slots__ = ()

    def __str__(self):
        return f"{self.name}: {type_text(self.dtype, self.shape)}"


def type_text(dtype, shape):
    return f"{SHORT_NAMES.get(dtype, dtype)}[{','.join(str(d) for d in shape)}]"


def _given_text(array):
    order = "" if array.dtype.isnative else " in foreign byte order"
    return type_text(array.dtype.name, array.shape) + order


def whole(what, value, bits=64):
    """An int, of nothing that would have to be rounded or cut by the C type of so many bits."""
    try:
        number = operator.index(value)
    except TypeError:
        raise InvalidType(f"{what}: given {value!r}, wanted a whole number", "INVALID") from None
    if not -1 << bits - 1 <= number < 1 << bits - 1:
        raise InvalidValue(f"{what}: given {value!r}, wanted a whole number that fits {bits} bits", "INVALID")
    return number


def thread_count(threads):
    return 0 if threads is None else whole("threads", threads, 32)


def seconds(what, value):
    if isinstance(value, (str, bytes)) or not hasattr(value, "__float__"):
        raise InvalidType(f"{what}: given {value!r}, wanted a number of seconds", "INVALID")
    if not 0 <= float(value) < math.inf:
        raise InvalidValue(f"{what}: given {value!r}, wanted a finite number of seconds from 0", "INVALID")
    return float(value)


def path_bytes(path, what="path"):
    """For the library, which takes a NUL for the end."""
    try:
        data = os.fsencode(path)
    except TypeError:
        raise InvalidType(f"{what}: given {path!r}, wanted the path of a file", "INVALID") from None
    except UnicodeEncodeError as error:
        raise InvalidValue(f"{what}: given {path!r}, wanted the path of a file; {error.reason}", "INVALID") from None
    if b"\0" in data:
        raise InvalidValue(f"the path {path!r} holds a NUL byte; no file has such a name", "INVALID")
    return data


def _numpy_dtype(name):
    if name != "bfloat16":
        return np.dtype(name)
    try:
        import ml_dtypes
    except ImportError:
        return np.dtype(np.uint16)  # the bits
    return np.dtype(ml_dtypes.bfloat16)


def as_array(name, value):
    """An ndarray over the caller's memory where that is possible."""
    if isinstance(value, np.ndarray):
        return value
    if hasattr(value, "__dlpack__"):
        try:
            return np.from_dlpack(value)
        except (BufferError, RuntimeError, TypeError, ValueError):
            if not hasattr(value, "__array__"):
                raise InvalidType(f"input '{name}': its DLPack data cannot be read as a CPU array", "INVALID") from None
    try:
        return np.asarray(value)
    except (TypeError, ValueError) as error:
        raise InvalidValue(f"input '{name}': given {type(value).__name__}, which is no array: {error}", "INVALID") from None


class Program:
    """A compiled model. run() works from many threads and releases the interpreter lock; results own their memory."""

    def __init__(self, path, threads=None):
        self._handle = None
        self._lock = threading.Lock()
        self._running = 0
        self._closing = False
        self._known_shapes = {}
        name = path_bytes(path)
        self.path = os.fspath(path)
        self.report = None  # what rtx.compile had to say, if it made this program
        handle, err = ctypes.c_void_p(), _native.Err()
        status = _native.lib.rtx_program_open(name, thread_count(threads), ctypes.byref(handle), ctypes.byref(err))
        if status != _native.OK:
            raise_for(status, err)
        self._handle = handle
        lib = _native.lib
        self.inputs = self._ports(lib.rtx_program_input_count, lib.rtx_program_input)
        self.outputs = self._ports(lib.rtx_program_output_count, lib.rtx_program_output)
        self._in = [(p.name, p.name.encode(), _numpy_dtype(p.dtype), _CODES[p.dtype]) for p in self.inputs]
        self._out = [(p.name, p.name.encode(), _numpy_dtype(p.dtype), _CODES[p.dtype]) for p in self.outputs]
        self._in_names = frozenset(p.name for p in self.inputs)
        self._out_names = frozenset(p.name for p in self.outputs)

    def _ports(self, count, get):
        ports = []
        for i in range(count(self._handle)):
            port, err = _native.Port(), _native.Err()
            status = get(self._handle, i, ctypes.byref(port), ctypes.byref(err))
            if status != _native.OK:
                raise_for(status, err)
            shape = tuple(port.dim_name[k].decode() if port.dim[k] < 0 else port.dim[k] for k in range(port.rank))
            ports.append(Port(port.name.decode(), _native.DTYPE_NAMES[port.dtype], shape))
        return ports

    @property
    def manifest(self):
        """What the file says about itself, as a dict."""
        import json

        with self._use() as handle:
            return json.loads(_native.lib.rtx_program_manifest(handle).decode() or "{}")

    @property
    def settled(self):
        """True once no weights are left to move to large pages: runs then cost what they will go on costing."""
        with self._use() as handle:
            return bool(_native.lib.rtx_program_settled(handle))

    # ---- run ----

    def run(self, inputs, out=None, threads=None):
        """Results by name. inputs: {name: array}. out: {name: array} to write into instead of fresh memory. threads: for this
        run only."""
        threads = thread_count(threads)
        arrays = self._input_arrays(inputs)
        given = self._tensors(self._in, arrays)
        with self._use() as handle:
            results = self._output_arrays(handle, given, arrays, out)
            wanted = self._tensors(self._out, results)
            err = _native.Err()
            status = _native.lib.rtx_program_run(handle, given, len(arrays), wanted, len(results), threads,
                                                 ctypes.byref(err))
        if status != _native.OK:
            raise_for(status, err)
        return {port[0]: array for port, array in zip(self._out, results)}

    __call__ = run

    def _input_arrays(self, inputs):
        if not hasattr(inputs, "keys"):
            raise InvalidType(f"inputs must be a dict of name and array, not {type(inputs).__name__}", "INVALID")
        if inputs.keys() != self._in_names:
            self._explain_names(inputs, self.inputs, "input")
        arrays = []
        for (name, _, dtype, _), port in zip(self._in, self.inputs):
            array = as_array(name, inputs[name])
            if array.dtype != dtype or array.ndim > _native.RANK_MAX:
                kind = InvalidType if array.dtype != dtype else InvalidValue
                raise kind(f"input '{name}': given {_given_text(array)}, wanted {type_text(port.dtype, port.shape)}", "INVALID")
            if not array.flags.c_contiguous:
                array = np.ascontiguousarray(array).reshape(array.shape)
            if dtype.kind == "b":  # kernels rely on 0 and 1; a view of other bytes holds what it likes
                bits = array.view(np.uint8)
                if bits.max(initial=0) > 1:
                    array = np.asarray(bits != 0)
            arrays.append(array)
        return arrays

    @staticmethod
    def _explain_names(given, ports, what):
        names = [p.name for p in ports]
        unknown = [str(k) for k in given.keys() if k not in names]
        if unknown:
            raise InvalidValue(f"no {what} '{unknown[0]}'; the program has {', '.join(map(repr, names)) or 'none'}", "INVALID")
        for port in ports:
            if port.name not in given:
                raise InvalidValue(f"{what} '{port.name}' is missing; wanted {type_text(port.dtype, port.shape)}", "INVALID")

    @staticmethod
    def _tensors(ports, arrays):
        tensors = (_native.Tensor * len(ports))()
        for tensor, (_, name, _, code), array in zip(tensors, ports, arrays):
            shape = array.shape
            tensor.name, tensor.dtype, tensor.rank = name, code, len(shape)
            tensor.data = array.__array_interface__["data"][0]  # twice as quick as array.ctypes.data
            tensor.dim[: len(shape)] = shape
        return tensors

    def _output_shapes(self, handle, given, arrays):
        """Shapes of the results; those of input shapes seen lately are remembered."""
        key = tuple([a.shape for a in arrays])
        dims = self._known_shapes.get(key)
        if dims is None:
            n = len(self._out)
            shapes, err = (_native.Tensor * n)(), _native.Err()
            status = _native.lib.rtx_program_shapes(handle, given, len(arrays), shapes, n, ctypes.byref(err))
            if status != _native.OK:
                raise_for(status, err)
            dims = [tuple(shape.dim[: shape.rank]) for shape in shapes]
            if len(self._known_shapes) >= _KNOWN_SHAPES_MAX:
                self._known_shapes = {}
            self._known_shapes[key] = dims
        return dims

    def _output_arrays(self, handle, given, arrays, out):
        if out is not None and not hasattr(out, "keys"):
            raise InvalidType(f"out must be a dict of name and array, not {type(out).__name__}", "INVALID")
        if out:
            unknown = [k for k in out if k not in self._out_names]
            if unknown:
                self._explain_names(out, self.outputs, "output")
        results = []
        for dims, (name, _, dtype, _) in zip(self._output_shapes(handle, given, arrays), self._out):
            if out and name in out:
                results.append(self._check_out(name, out[name], dtype, dims))
            else:
                results.append(np.empty(dims, dtype))
        return results

    @staticmethod
    def _check_out(name, array, dtype, dims):
        if not isinstance(array, np.ndarray):
            raise InvalidType(f"output '{name}': given {type(array).__name__}, wanted a NumPy array", "INVALID")
        given, wanted = _given_text(array), type_text(dtype.name, dims)
        if array.dtype != dtype:
            raise InvalidType(f"output '{name}': given {given}, wanted {wanted}", "INVALID")
        if array.shape != dims:
            raise InvalidValue(f"output '{name}': given {given}, wanted {wanted}", "INVALID")
        if not array.flags.c_contiguous or not array.flags.writeable:
            raise InvalidValue(f"output '{name}': given a strided or read-only array, wanted a contiguous one", "INVALID")
        return array

    # ---- life ----

    def _use(self):
        return _Use(self)

    def close(self):
        """Free the program; runs in progress in other threads finish first. Closing twice is allowed."""
        with self._lock:
            self._closing = True
            handle = None if self._running else self._handle
            if not self._running:
                self._handle = None
        if handle is not None:
            _native.lib.rtx_program_close(handle)

    def __enter__(self):
        with self._use():
            return self

    def __exit__(self, *_):
        self.close()

    def __del__(self):
        if getattr(self, "_lock", None) is not None:  # else __init__ failed early
            self.close()

    def __reduce__(self):
        raise InvalidType("a Program cannot be copied or pickled; open its file again with rtx.load", "INVALID")

    def __repr__(self):
        def ports(items):
            return ", ".join(map(str, items))

        state = " (closed)" if self._closing else ""
        return f"<rtx.Program {os.path.basename(self.path)}{state}: {ports(self.inputs)} -> {ports(self.outputs)}>"


class _Use:
    """Keeps a program open while a call is inside the library."""

    __slots__ = ("program",)

    def __init__(self, program):
        self.program = program

    def __enter__(self):
        p = self.program
        with p._lock:
            if p._closing or p._handle is None:
                raise Error("the program is closed", "INVALID")
            p._running += 1
            return p._handle

    def __exit__(self, *_):
        p = self.program
        with p._lock:
            p._running -= 1
            last = p._closing and p._running == 0
        if last:
            p.close()
