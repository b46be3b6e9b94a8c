"""Limits of what ships: the runtime library and what it must not hold, the program, and the file beside its weights."""
import json
import re
import subprocess

import pytest
from built import BUILD

MB = 1_000_000
COMPILER = re.compile(r"^(ir|pass|syn|tun|lower|fe|pipe|cli|k[0-9]+)_")


def tool(*words):
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout


def stripped(name, folder):
    tool("strip", "-o", folder / name, BUILD / name)
    return (folder / name).stat().st_size


def test_runtime_library(tmp_path):
    assert stripped("librtx-run.so", tmp_path) <= 1 * MB


def test_program_and_libraries(tmp_path):
    sizes = {name: stripped(name, tmp_path) for name in ("rtx", "rtx-worker", "librtx-run.so")}
    assert sum(sizes.values()) <= 6 * MB, sizes  # rtx holds its libraries
    assert stripped("librtx.so", tmp_path) <= 6 * MB


def symbols(library, *options):
    return {line.split()[-1] for line in tool("nm", "--defined-only", *options, BUILD / library).splitlines()}


def test_runtime_holds_no_compiler():
    inside = symbols("librtx-run.so")
    assert {s for s in symbols("librtx.so") if COMPILER.match(s)}, "the pattern finds nothing where there is a compiler"
    assert {s for s in inside if s.startswith("run_")}, "no symbols to look at"
    assert not {s for s in inside if COMPILER.match(s)}
    exports = symbols("librtx-run.so", "-D")
    assert exports and all(s.startswith("rtx_") for s in exports), exports


def test_runtime_needs_libc_only():
    needed = set(re.findall(r"\(NEEDED\).*\[(.*)\]", tool("readelf", "-d", BUILD / "librtx-run.so")))
    assert needed <= {"libc.so.6", "libm.so.6", "ld-linux-x86-64.so.2"}, needed


@pytest.mark.parametrize("model", ["zoo:mlp,in=1001,hidden=1501,out=1003,layers=3", "zoo:encoder,hidden=512,layers=2"])
def test_file_beside_its_weights(model, tmp_path):
    onnx = pytest.importorskip("onnx")
    name, _, options = model.partition(",")
    words = [w for option in options.split(",") for w in ("--" + option.split("=")[0], option.split("=")[1])]
    tool(BUILD / "rtx", "zoo", "export", name, *words, "-o", tmp_path / "m.onnx")
    weights = sum(len(i.raw_data) for i in onnx.load(tmp_path / "m.onnx").graph.initializer)
    assert weights >= 16 * MB, "the model is too small for the promise"
    said = json.loads(tool(BUILD / "rtx", "compile", tmp_path / "m.onnx", "-o", tmp_path / "m.rtxgc", "--tune", "off", "--json"))
    assert said["file_bytes"] == (tmp_path / "m.rtxgc").stat().st_size <= 1.2 * weights
