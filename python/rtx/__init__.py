"""rtx: compile a model for this machine, run it anywhere alike.

    program = rtx.compile("model.onnx")            # or rtx.load("model.rtxgc")
    result = program.run({"x": x})["y"]
"""
from . import _native
from ._compile import compile, load
from ._errors import Error, Unsupported
from ._program import Port, Program

__all__ = ["Error", "Port", "Program", "Unsupported", "compile", "load", "version"]


def version():
    """For example "0.1.0 (commit abc1234), isa v4"."""
    return _native.lib.rtx_version().decode()
