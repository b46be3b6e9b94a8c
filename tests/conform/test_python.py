"""The Python package on the hand-made program of tests/unit/run: results, messages, ownership, threads, life.

The program: x f32[batch,8], ids i64[batch] -> y = x W + T[ids], z = 2 x W, both f32[batch,16]; batch at most 512.
"""
import copy
import gc
import os
import pickle
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
from built import ROOT, built

import rtx
from rtx import _compile

WEIGHTS = ((np.arange(13 * 16) * 37 % 23 - 11) / 8).astype(np.float32).reshape(13, 16)


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bundle")
    subprocess.run([built("test_run_program"), "write", "a.rtxgc"], cwd=folder, check=True)
    return folder / "a.rtxgc"


@pytest.fixture
def program(bundle):
    with rtx.load(bundle, threads=2) as p:
        yield p


def feed(batch, seed=0):
    rng = np.random.default_rng(seed)
    return {"x": rng.standard_normal((batch, 8), np.float32), "ids": rng.integers(0, 5, batch)}


def expect(f):
    h = f["x"] @ WEIGHTS[:8]
    return {"y": h + WEIGHTS[8:][f["ids"]], "z": 2 * h}


def check(result, f):
    for name, want in expect(f).items():
        assert result[name].dtype == np.float32
        np.testing.assert_allclose(result[name], want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("threads", [None, 1, 2, 3, 7])
@pytest.mark.parametrize("batch", [0, 1, 3, 64, 512])
def test_results(program, batch, threads):
    f = feed(batch, batch)
    check(program.run(f, threads=threads), f)


def test_ports(program):
    assert program.inputs == [("x", "float32", ("batch", 8)), ("ids", "int64", ("batch",))]
    assert program.outputs[1].name == "z" and program.outputs[1].shape == ("batch", 16)
    assert repr(program) == "<rtx.Program a.rtxgc: x: f32[batch,8], ids: i64[batch] -> y: f32[batch,16], z: f32[batch,16]>"
    assert program.manifest == {"format": 1}
    assert "isa v" in rtx.version()


def test_results_own_memory(bundle):
    p = rtx.load(bundle)
    f = feed(4)
    first = p.run(f)
    kept = {k: v.copy() for k, v in first.items()}
    p.run(feed(4, 9))
    p.close()
    del p
    gc.collect()
    for name in kept:
        np.testing.assert_array_equal(first[name], kept[name])
        assert first[name].flags.writeable and first[name].base is None


def test_strided_read_only_and_foreign_inputs(program):
    f = feed(6)
    wide = np.zeros((6, 16), np.float32)
    wide[:, ::2] = f["x"]
    frozen = f["ids"].copy()
    frozen.flags.writeable = False
    check(program.run({"x": wide[:, ::2], "ids": frozen}), f)
    check(program.run({"x": np.asfortranarray(f["x"]), "ids": f["ids"][::-1][::-1]}), f)
    flat = np.zeros(6 * 8 * 4 + 1, np.uint8)[1:].view(np.float32).reshape(6, 8)  # not aligned
    flat[:] = f["x"]
    check(program.run({"x": flat, "ids": f["ids"]}), f)

    class ByDlpack:
        def __init__(self, a):
            self.a = a

        def __dlpack__(self, **kwargs):
            return self.a.__dlpack__(**kwargs)

        def __dlpack_device__(self):
            return self.a.__dlpack_device__()

    class ByArray:
        def __init__(self, a):
            self.a = a

        def __array__(self, dtype=None, copy=None):
            return self.a

    check(program.run({"x": ByDlpack(f["x"]), "ids": ByArray(f["ids"])}), f)
    np.testing.assert_array_equal(np.from_dlpack(program.run(f)["y"]), program.run(f)["y"])


def test_out(program):
    f = feed(5)
    y = np.empty((5, 16), np.float32)
    result = program.run(f, out={"y": y})
    assert result["y"] is y
    check(result, f)
    with pytest.raises(ValueError, match=r"output 'y': given f32\[4,16\], wanted f32\[5,16\]"):
        program.run(f, out={"y": y[:4]})
    with pytest.raises(TypeError, match=r"output 'y': given f64\[5,16\], wanted f32\[5,16\]"):
        program.run(f, out={"y": y.astype(float)})
    with pytest.raises(TypeError, match="list"):
        program.run(f, out={"y": []})
    with pytest.raises(TypeError, match="out must be a dict.*not list"):
        program.run(f, out=[y])
    with pytest.raises(TypeError, match="foreign byte order"):
        program.run(f, out={"y": y.astype(y.dtype.newbyteorder())})
    with pytest.raises(ValueError, match="no output 'q'"):
        program.run(f, out={"q": y})
    with pytest.raises(ValueError, match="strided"):
        program.run(f, out={"y": np.empty((5, 32), np.float32)[:, ::2]})
    y.flags.writeable = False
    with pytest.raises(ValueError, match="read-only"):
        program.run(f, out={"y": y})


def test_wrong_inputs(program):
    f = feed(3)
    cases = [
        (TypeError, {**f, "x": f["x"].astype(float)}, r"input 'x': given f64\[3,8\], wanted f32\[batch,8\]"),
        (TypeError, {**f, "x": f["x"].astype(f["x"].dtype.newbyteorder())},
         r"input 'x': given f32\[3,8\] in foreign byte order, wanted f32\[batch,8\]"),
        (ValueError, {**f, "x": [[1, 2], [3]]}, "input 'x': given list, which is no array"),
        (TypeError, {**f, "ids": "text"}, r"input 'ids'.*wanted i64\[batch\]"),
        (TypeError, [f["x"], f["ids"]], "dict"),
        (ValueError, {**f, "x": f["x"][:, :7]}, r"input 'x': given f32\[3,7\], wanted f32\[batch,8\]"),
        (ValueError, {**f, "x": f["x"][0]}, r"input 'x': given f32\[8\], wanted f32\[batch,8\]"),
        (ValueError, {**f, "x": np.zeros((1,) * 12, np.float32)},
         r"input 'x': given f32\[1,1,1,1,1,1,1,1,1,1,1,1\], wanted f32\[batch,8\]"),
        (ValueError, {**f, "ids": f["ids"][:2]}, "batch = 3"),
        (ValueError, {"x": f["x"]}, r"input 'ids' is missing; wanted i64\[batch\]"),
        (ValueError, {**f, "q": 1}, "no input 'q'; the program has 'x', 'ids'"),
        (ValueError, feed(513), r"batch = 513 is outside 0\.\.512"),
        (ValueError, {**f, "ids": np.array([0, 5, 0])}, "index operand out of range in step 1"),
    ]
    for kind, inputs, text in cases:
        with pytest.raises(kind, match=text) as caught:
            program.run(inputs)
        assert isinstance(caught.value, rtx.Error) and caught.value.code == "INVALID"
    check(program.run(f), f)


def test_many_threads(program):
    faults = []

    def work(seed):
        try:
            for i in range(60):
                f = feed((seed * 7 + i) % 33, seed + i)
                check(program.run(f), f)
        except BaseException as error:  # noqa: BLE001
            faults.append(error)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(5)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not faults


def test_life(bundle):
    p = rtx.load(bundle)
    p.close()
    p.close()
    assert "closed" in repr(p)
    with pytest.raises(rtx.Error, match="closed"):
        p.run(feed(1))
    with pytest.raises(rtx.Error, match="closed"):
        with p:
            pass
    run = rtx.load(bundle).run  # a bound method keeps the program
    gc.collect()
    f = feed(2)
    check(run(f), f)


def test_no_copies(program):
    """A copy would share the handle, and both would free it."""
    for duplicate in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match="rtx.load"):
            duplicate(program)
    check(program.run(feed(2)), feed(2))


def test_damaged_and_missing_files(bundle, tmp_path):
    with pytest.raises(rtx.Error, match="nowhere.rtxgc") as caught:
        rtx.load(tmp_path / "nowhere.rtxgc")
    assert caught.value.code == "NOT_FOUND"
    data = bytearray(bundle.read_bytes())
    bad = tmp_path / "bad.rtxgc"
    for at in range(0, len(data), 97):
        data[at] ^= 1
        bad.write_bytes(data)
        data[at] ^= 1
        with pytest.raises(rtx.Error):
            rtx.load(bad)
    bad.write_bytes(data[:-1])
    with pytest.raises(rtx.Error, match="bytes"):
        rtx.load(bad)
    with pytest.raises(rtx.Unsupported, match="^UNSUPPORTED: device"):
        rtx.load(bundle, device="cuda")
    with pytest.raises(ValueError):
        rtx.load(bundle, threads=-1)
    for call in (lambda: rtx.load(f"{bundle}\0b"), lambda: rtx.compile("zoo:mlp\0b"),
                 lambda: rtx.compile("zoo:mlp", out="a\0b")):
        with pytest.raises(ValueError, match="NUL"):
            call()
    for call in (lambda: rtx.load("a\ud800"), lambda: rtx.compile("a\ud800"), lambda: rtx.compile("zoo:mlp", out="a\ud800")):
        with pytest.raises(rtx.Error, match=r"(path|out): given 'a\\ud800', wanted the path of a file"):
            call()
    for call in (lambda: rtx.load(3), lambda: rtx.compile(3), lambda: rtx.compile("zoo:mlp", out=3)):
        with pytest.raises(TypeError, match="(path|out): given 3, wanted the path of a file"):
            call()


def test_whole_numbers(program, bundle):
    for call in (lambda: program.run(feed(1), threads=2.5), lambda: rtx.load(bundle, threads=2.5),
                 lambda: _compile.options_text(threads=[1, 2.5]), lambda: _compile.options_text(threads="2"),
                 lambda: _compile.options_text(shapes={"x": (1, 2.5)}), lambda: _compile.options_text(buckets={"n": [8.5]}),
                 lambda: _compile.options_text(bounds={"n": (1, 2.5)})):
        with pytest.raises(TypeError, match="wanted a whole number"):
            call()
    with pytest.raises(TypeError, match="bounds: 'n' is given 3"):
        _compile.options_text(bounds={"n": 3})
    check(program.run(feed(1), threads=np.int64(2)), feed(1))
    for threads in (2**31, 2**32 + 1, 2**40, -2**31 - 1):  # a C int would make 1 or the default of some
        for call in (lambda: program.run(feed(1), threads=threads), lambda: rtx.load(bundle, threads=threads),
                     lambda: _compile.options_text(threads=threads)):
            with pytest.raises(ValueError, match=f"threads: given {threads}, wanted a whole number that fits 32 bits"):
                call()
    for threads in (2**31 - 1, 257, -1, -2**31):
        with pytest.raises(ValueError, match=f"{threads} threads; 1 to 256 are possible"):
            program.run(feed(1), threads=threads)
    with pytest.raises(ValueError, match="buckets: given 9223372036854775808, wanted .* 64 bits"):
        _compile.options_text(buckets={"n": [2**63]})
    for budget in (float("nan"), float("inf"), -1):
        with pytest.raises(ValueError, match="budget: given .*finite"):
            _compile.options_text(budget=budget)
    with pytest.raises(TypeError, match="budget"):
        _compile.options_text(budget="x")


def test_threads_from_environment(bundle):
    code = "import sys, rtx; rtx.load(sys.argv[1]); print('ok')"
    env = {**os.environ, "RTX_THREADS": "3", "PYTHONPATH": str(ROOT / "python"), "RTX_LIB": rtx._native.path}
    assert subprocess.run([sys.executable, "-c", code, bundle], env=env, capture_output=True, text=True).stdout == "ok\n"


def test_import_is_quick():
    """No module that the package itself pulls in costs much: json, tempfile, inspect and the like come on first use."""
    code = "import numpy, sys; before = set(sys.modules); import rtx; print(*sorted(set(sys.modules) - before))"
    env = {**os.environ, "PYTHONPATH": str(ROOT / "python"), "RTX_LIB": rtx._native.path}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
    extra = {m.split(".")[0] for m in done.stdout.split()} - {"rtx"}
    assert not extra & {"json", "inspect", "subprocess", "onnx", "asyncio"}


def compiles():
    if not hasattr(rtx._native.lib, "rtx_compile"):
        pytest.skip("a library that does not compile")


def test_options_text():
    import json

    text = _compile.options_text(threads=2, shapes={"x": (1, 8)}, buckets={"seq": [32, 64]}, bounds={"seq": (1, 512)},
                                 binds={"s": np.array([2, 3])}, budget=5, cache=False, deterministic=True)
    assert json.loads(text) == {
        "tune": "quick", "threads": [2], "shapes": {"x": "1x8"}, "buckets": {"seq": [32, 64]}, "bounds": {"seq": [1, 512]},
        "binds": {"s": {"dtype": "i64", "shape": [2], "data": [2, 3]}}, "budget": 5.0, "cache": "", "deterministic": True}
    with pytest.raises(ValueError, match="finite"):
        _compile.options_text(binds={"s": np.array([np.nan])})
    assert json.loads(_compile.options_text(threads=iter([1, 2]), cache=b"/a")) == {"tune": "quick", "threads": [1, 2], "cache": "/a"}


def test_wrong_options():
    """Told by the binding, each with its name, before anything is compiled."""
    cases = [
        (ValueError, {"threads": []}, r"threads: given \[\], which holds no count"),
        (ValueError, {"threads": (i for i in ())}, "threads: given <generator .*, which holds no count"),
        (TypeError, {"threads": b"2"}, "threads: given b'2', wanted a whole number"),
        (TypeError, {"threads": np.array(1.5)}, "threads: given .*, wanted a whole number"),
        (TypeError, {"shapes": {"x": 3}}, "shapes: 'x' is given 3, wanted a list of whole numbers"),
        (TypeError, {"shapes": {"x": b"1x8"}}, "shapes: 'x' is given b'1x8', wanted a list"),
        (TypeError, {"bounds": {"n": np.array(3)}}, "bounds: 'n' is given array.3., wanted a list"),
        (TypeError, {"cache": 3}, "cache: given 3, wanted the path of a folder"),
        (ValueError, {"cache": b"/a\xff"}, r"cache: given '/a\\udcff', wanted text that is UTF-8"),
        (ValueError, {"cache": "/a\0"}, r"cache: given '/a\\x00', wanted .* no NUL"),
        (TypeError, {"tune": b"off"}, "tune: given b'off', wanted text"),
        (ValueError, {"tune": "\ud800"}, r"tune: given '\\ud800', wanted text that is UTF-8"),
        (TypeError, {"isa": 3}, "isa: given 3, wanted text"),
    ]
    for name in ("shapes", "buckets", "bounds", "binds"):
        cases += [(TypeError, {name: [1]}, rf"{name}: given \[1\], wanted a dict by name"),
                  (TypeError, {name: {3: (1, 2)}}, f"{name}: a name: given 3, wanted text"),
                  (ValueError, {name: {"x\udcff": (1, 2)}}, rf"{name}: a name: given 'x\\udcff', wanted text that is UTF-8")]
    for kind, options, text in cases:
        with pytest.raises(kind, match=text) as caught:
            rtx.compile("zoo:mlp", **options)
        assert isinstance(caught.value, rtx.Error) and caught.value.code == "INVALID"


@pytest.mark.parametrize("name,words", [("nope", "binds names 'nope', which is no input"), ("w", "'w', which is an initializer")])
def test_binds_that_nothing_takes(name, words, tmp_path):
    compiles()
    (tmp_path / "m.onnx").write_bytes(model(["x"]).SerializeToString())
    with pytest.raises(ValueError, match=words):
        rtx.compile(tmp_path / "m.onnx", binds={name: np.ones(1, np.float32)}, tune="off", cache=False, out=tmp_path / "m.rtxgc")
    assert not (tmp_path / "m.rtxgc").exists()


@pytest.mark.parametrize("source", ["zoo:mlp", "m.rtx"])
def test_binds_are_for_onnx(source, tmp_path):
    compiles()
    if source != "zoo:mlp":
        source = tmp_path / source
        source.write_text('func @f(%0 "x": f32[4]) {\n  %1 = add %0 %0 : f32[4]\n  return %1 "y"\n}\n')
    with pytest.raises(rtx.Unsupported, match="binds of .*; they are for inputs of ONNX models"):
        rtx.compile(source, binds={"x": np.ones(4, np.float32)}, tune="off", cache=False, out=tmp_path / "m.rtxgc")


def test_unsupported_text():
    assert str(rtx.Unsupported("op Foo")) == "UNSUPPORTED: op Foo"
    assert str(rtx.Unsupported("UNSUPPORTED: op Foo")) == "UNSUPPORTED: op Foo"
    assert issubclass(rtx.Unsupported, rtx.Error) and issubclass(rtx.Error, RuntimeError)


# ---- the compiler itself ----

needs_compiler = pytest.mark.skipif(not hasattr(rtx._native.lib, "rtx_compile"), reason="a library that does not compile")


@needs_compiler
def test_bool_inputs_of_other_bytes(tmp_path):
    """NumPy takes every byte but 0 for True; kernels compute with 0 and 1."""
    (tmp_path / "f.rtx").write_text('func @f(%0 "a": bool[4], %1 "b": bool[4]) {\n  %2 = and %0 %1\n  %3 = cast %0 {to=f32}\n'
                                    '  return %2 "and", %3 "number"\n}\n')
    with rtx.compile(tmp_path / "f.rtx", tune="off", cache="") as p:
        bytes_a, bytes_b = np.array([2, 0, 255, 1], np.uint8), np.array([1, 2, 4, 0], np.uint8)
        got = p.run({"a": bytes_a.view(bool), "b": bytes_b.view(bool)})
        np.testing.assert_array_equal(got["and"].view(np.uint8), [1, 0, 1, 0])
        np.testing.assert_array_equal(got["number"], [1, 0, 1, 1])
        np.testing.assert_array_equal(bytes_a, [2, 0, 255, 1])
    (tmp_path / "f.rtx").write_text('func @f(%0 "a": bool[]) {\n  %1 = cast %0 {to=f32}\n  return %1 "number"\n}\n')
    with rtx.compile(tmp_path / "f.rtx", tune="off", cache="") as p:
        assert p.run({"a": np.array(2, np.uint8).view(bool)})["number"] == 1


INTERRUPTED = """
import os, signal, sys, time
import rtx
lib, real, ended = rtx._native.lib, rtx._native.lib.rtx_compile, []

def interrupt():
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(0.2)

def slow(*args):
    if sys.argv[1] == "early":
        interrupt()
    status = real(*args)
    if sys.argv[1] == "thrice":
        interrupt()
        interrupt()
    ended.append(status)
    return status

lib.rtx_compile = slow
print("begins", flush=True)
try:
    rtx.compile("zoo:encoder,layers=1", tune="quick", budget=20, cache="")
    print("compiled")
except KeyboardInterrupt:
    print("interrupted", [rtx._native.STATUS[s] for s in ended], os.listdir(os.environ["TMPDIR"]))
"""


@needs_compiler
@pytest.mark.parametrize("when", ["early", "once", "thrice"])
def test_interrupted_compile(tmp_path, when):
    """Ctrl-C, again while that is being obeyed, and before the library has begun: it is raised once the library has stopped."""
    env = {**os.environ, "PYTHONPATH": str(ROOT / "python"), "RTX_LIB": rtx._native.path, "TMPDIR": str(tmp_path)}
    child = subprocess.Popen([sys.executable, "-c", INTERRUPTED, when], env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                             text=True, preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))
    if when != "early":
        until = time.monotonic() + 60
        while not list(tmp_path.glob("rtx-cc-*/*.c")) and child.poll() is None and time.monotonic() < until:
            time.sleep(0.01)
        child.send_signal(signal.SIGINT)
    out, errors = child.communicate(timeout=120)
    assert out == "begins\ninterrupted ['CANCELLED'] []\n", errors
    assert child.returncode == 0 and not list(tmp_path.iterdir())


@needs_compiler
def test_cancel_is_not_taken_back(tmp_path, monkeypatch):
    """By a second compilation that begins while the first runs."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    options = _compile.options_text(budget=60, cache=False)
    answers = []
    first = threading.Thread(target=lambda: answers.append(_compile._call(b"zoo:encoder", options, bytes(tmp_path / "a"))))
    first.start()
    while not list(tmp_path.glob("rtx-cc-*/*.c")) and first.is_alive():
        time.sleep(0.01)
    rtx._native.lib.rtx_cancel()
    _compile._call(b"zoo:nothing", "{}", bytes(tmp_path / "b"))
    first.join()
    assert rtx._native.STATUS[answers[0][0]] == "CANCELLED" and not list(tmp_path.iterdir())
    with rtx.compile("zoo:mlp", tune="off", cache=""):  # nor does it outlive the first
        pass


# ---- backend, with a compiler that is a stand-in: what is bound when, and what is kept ----


def fake_compiler(monkeypatch, bundle, needs):
    """Compiles to the fixture once all of `needs` are bound; returns the list of bindings it was called with."""
    from rtx import backend

    calls = []

    def compile_(path, binds=None, **options):
        assert options == {"tune": "off"} and os.path.exists(path)
        calls.append({k: v.tolist() for k, v in (binds or {}).items()})
        missing = [n for n in needs if n not in (binds or {})]
        if missing:
            raise rtx.Unsupported("op Reshape (node 'r'): its shape is not constant; bind=" + missing[0])
        return rtx.load(bundle)

    monkeypatch.setattr(backend, "_compile", compile_)
    return backend, calls


def model(inputs):
    onnx = pytest.importorskip("onnx")
    h, t = onnx.helper, onnx.TensorProto
    values = [h.make_tensor_value_info(n, t.FLOAT if n == "x" else t.INT64, None) for n in inputs]
    nodes = [h.make_node("Identity", ["x"], [o]) for o in ("z", "y")]
    out = [h.make_tensor_value_info(o, t.FLOAT, None) for o in ("z", "y")]
    const = h.make_tensor("w", t.FLOAT, [1], [1.0])
    return h.make_model(h.make_graph(nodes, "g", values + [h.make_tensor_value_info("w", t.FLOAT, [1])], out, [const]))


def test_backend_at_once(monkeypatch, bundle):
    backend, calls = fake_compiler(monkeypatch, bundle, [])
    rep = backend.prepare(model(["x", "ids"]), "CPU")
    f = feed(3)
    for inputs in ([f["x"], f["ids"]], f):
        z, y = rep.run(inputs)  # in the order of the model's outputs
        check({"y": y, "z": z}, f)
    assert calls == [{}]
    with pytest.raises(ValueError, match="3 inputs"):
        rep.run([f["x"], f["ids"], f["ids"]])


def test_backend_binds_what_is_asked_for(monkeypatch, bundle):
    backend, calls = fake_compiler(monkeypatch, bundle, ["shape", "axes"])
    rep = backend.prepare(model(["x", "ids", "shape", "axes"]), "CPU")
    f = feed(3)
    for shape in ([3, 1], [3, 1], [1, 3]):
        z, y = rep.run([f["x"], f["ids"], np.array(shape), np.array([0])])
        check({"y": y, "z": z}, f)
    assert calls == [{}, {"shape": [3, 1]}, {"shape": [3, 1], "axes": [0]}, {"shape": [1, 3], "axes": [0]}]


def test_backend_names_what_is_missing(monkeypatch, bundle):
    backend, _ = fake_compiler(monkeypatch, bundle, ["shape"])
    rep = backend.prepare(model(["x", "shape"]), "CPU")
    with pytest.raises(ValueError, match=r"input 'shape' is missing; wanted i64\[\]"):
        rep.run([feed(1)["x"]])


def test_backend_node():
    helper = pytest.importorskip("onnx").helper
    from rtx import backend

    compiles()
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    y, = backend.run_node(helper.make_node("Add", ["a", "b"], ["c"]), [x, x], cache="")
    np.testing.assert_array_equal(y, 2 * x)


def test_backend_refuses(monkeypatch, bundle):
    backend, _ = fake_compiler(monkeypatch, bundle, ["elsewhere"])
    with pytest.raises(rtx.Unsupported, match="^UNSUPPORTED: op Reshape"):
        backend.prepare(model(["x"]), "CPU")
    with pytest.raises(rtx.Unsupported, match="device"):
        backend.prepare(model(["x"]), "CUDA")
    assert backend.supports_device("CPU") and backend.supports_device("CPU:0") and not backend.supports_device("CUDA")
    assert not backend.is_compatible(model(["x"]))
