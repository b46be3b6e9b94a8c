"""The ONNX backend interface: prepare(model, device).run(inputs).

Models whose result shapes depend on input values (a Reshape to a given shape, say) cannot be compiled before those values are
known. The compiler names such inputs; they are bound to the values of each run, and programs are kept by those values.
"""
import os
import re
import tempfile

import numpy as np

from ._compile import compile as _compile
from ._errors import InvalidValue, Unsupported
from ._program import type_text

_BIND = re.compile(r"bind=([^\s,;]+)")
_PROGRAMS_MAX = 32


def _names(model):
    constants = {t.name for t in model.graph.initializer} | {t.values.name for t in model.graph.sparse_initializer}
    inputs = {i.name: _wanted(i) for i in model.graph.input if i.name not in constants}
    return inputs, [o.name for o in model.graph.output]


def _wanted(value):
    """The declared type of an input, as messages show it."""
    from onnx import TensorProto

    tensor = value.type.tensor_type
    dtype = TensorProto.DataType.Name(tensor.elem_type).lower()
    dtype = {"float": "float32", "double": "float64"}.get(dtype, dtype)
    return type_text(dtype, [d.dim_param or (d.dim_value if d.HasField("dim_value") else "?") for d in tensor.shape.dim])


class BackendRep:
    """A prepared model. Compiled at once where possible, else at the first run."""

    def __init__(self, model, **options):
        self._folder = tempfile.TemporaryDirectory(prefix="rtx-backend-")
        self._model = os.path.join(self._folder.name, "model.onnx")
        with open(self._model, "wb") as file:
            file.write(model if isinstance(model, bytes) else model.SerializeToString())
        self._wanted, self._outputs = _names(model)
        self._inputs = list(self._wanted)
        self._options = options
        self._bound = []  # inputs that must be known to compile, in order of discovery
        self._programs = {}
        try:
            self._program({})
        except Unsupported as error:
            if not self._learn(error):
                raise

    def _learn(self, error):
        """Remember inputs that the compiler asks for; False if it asks for none that are new."""
        new = [n for n in _BIND.findall(str(error)) if n in self._inputs and n not in self._bound]
        self._bound += dict.fromkeys(new)
        return bool(new)

    def _program(self, feed):
        for name in self._bound:
            if name not in feed:
                raise InvalidValue(f"input '{name}' is missing; wanted {self._wanted[name]}", "INVALID")
        binds = {name: np.array(feed[name], order="C") for name in self._bound}
        key = tuple((name, a.dtype.str, a.shape, a.tobytes()) for name, a in binds.items())
        program = self._programs.get(key)
        if program is None:
            program = _compile(self._model, binds=binds, **self._options)
            while len(self._programs) >= _PROGRAMS_MAX:
                self._programs.pop(next(iter(self._programs)))
            self._programs[key] = program
        return program

    def run(self, inputs, **_):
        """Results in the order of the model's outputs, for inputs in the order of its inputs (or by name)."""
        if hasattr(inputs, "keys"):
            feed = dict(inputs)
        elif isinstance(inputs, np.ndarray):
            feed = {self._inputs[0]: inputs}
        else:
            feed = dict(zip(self._inputs, inputs))
            if len(inputs) > len(self._inputs):
                raise InvalidValue(f"{len(inputs)} inputs given, the model has {len(self._inputs)}", "INVALID")
        while True:
            try:
                program = self._program(feed)
                break
            except Unsupported as error:
                if not self._learn(error):
                    raise
        names = {p.name for p in program.inputs}
        results = program.run({name: value for name, value in feed.items() if name in names or name not in self._bound})
        return [results[name] for name in self._outputs]


def supports_device(device):
    return device.split(":")[0].upper() == "CPU"


def is_compatible(model, device="CPU", **_):
    """Whether prepare would succeed."""
    try:
        prepare(model, device)
    except Unsupported:
        return False
    return True


def prepare(model, device="CPU", **options):
    """A BackendRep of an onnx.ModelProto. options: those of rtx.compile; nothing is tuned unless they ask for it."""
    if not supports_device(device):
        raise Unsupported(f"device {device!r}; this build has 'CPU'")
    options.setdefault("tune", "off")
    return BackendRep(model, **options)


def run_model(model, inputs, device="CPU", **options):
    return prepare(model, device, **options).run(inputs)


def run_node(node, inputs, device="CPU", outputs_info=None, **options):
    """Run one NodeProto. Types and shapes of its inputs are those of the arrays."""
    from onnx import ValueInfoProto, helper

    arrays = [np.asarray(a) for a in inputs]
    names = [n for n in node.input if n]
    values = [helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape) for n, a in zip(names, arrays)]
    results = [ValueInfoProto(name=n) for n in node.output if n]  # of any type
    for value, info in zip(results, outputs_info or []):
        value.CopyFrom(helper.make_tensor_value_info(value.name, helper.np_dtype_to_tensor_dtype(np.dtype(info[0])), info[1]))
    opset = [helper.make_opsetid(node.domain, options.pop("opset_version", 17))]
    model = helper.make_model(helper.make_graph([node], "node", values, results), opset_imports=opset)
    return prepare(model, device, **options).run(arrays)
