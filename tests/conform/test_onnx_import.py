"""The ONNX importer against ONNX Runtime and ONNX's own node cases, through the fp64 evaluator (tests/tools/onnx_eval_main.c)."""

import os
import pathlib
import re
import subprocess
import tempfile

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
ort = pytest.importorskip("onnxruntime")
from onnx import TensorProto, helper, numpy_helper  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
ort.set_default_logger_severity(4)


def tool():
    given = os.environ.get("RTX_ONNX_EVAL")
    found = [given] if given else sorted(ROOT.glob("build*/**/onnx_eval"))
    if not found:
        pytest.skip("onnx_eval is not built")
    return str(found[0])


class Refused(Exception):
    """UNSUPPORTED, with its report."""


class Bad(Exception):
    """Any other refusal."""


def evaluate(model, feeds, folder=None, flags=()):
    """Outputs of a model (bytes, ModelProto, path or zoo name); inputs whose content shapes depend on are bound."""
    with tempfile.TemporaryDirectory() as tmp:
        path = model
        if isinstance(model, onnx.ModelProto):
            model = model.SerializeToString()
        if isinstance(model, bytes):
            path = os.path.join(folder or tmp, "m.onnx")
            pathlib.Path(path).write_bytes(model)
        args = []
        for i, (name, x) in enumerate(feeds.items()):
            np.save(f"{tmp}/in{i}.npy", np.asarray(x, order="C"))
            args.append(f"{name}={tmp}/in{i}.npy")
        binds = []
        for _ in range(4):
            extra = [a for b in binds for a in ("--bind", b)]
            r = subprocess.run([tool(), path, tmp, *extra, *flags, *args], capture_output=True, text=True, timeout=60)
            more = [b for b in re.findall(r"bind=(\S+?)(?=[\s)]|$)", r.stderr) if b not in binds]
            if r.returncode != 3 or not more:
                break
            binds += more
        if r.returncode == 3:
            raise Refused(r.stderr)
        if r.returncode:
            raise Bad(f"exit {r.returncode}: {r.stderr}")
        files = sorted(pathlib.Path(tmp).glob("[0-9]*.npy"), key=lambda p: int(p.stem))
        return [np.load(p) for p in files]


def runtime(model, feeds):
    data = model if isinstance(model, (str, bytes)) else model.SerializeToString()
    return ort.InferenceSession(data, providers=["CPUExecutionProvider"]).run(None, feeds)


def check(model, feeds, tol=1e-5):
    for got, want in zip(evaluate(model, feeds), runtime(model, feeds), strict=True):
        assert got.shape == want.shape and got.dtype == want.dtype
        np.testing.assert_allclose(got, want, rtol=tol, atol=tol)


def graph(nodes, inputs, outputs, inits=(), opset=17, functions=(), domains=()):
    g = helper.make_graph(nodes, "g", inputs, outputs, [numpy_helper.from_array(a, n) for n, a in inits])
    imports = [helper.make_opsetid("", opset)] + [helper.make_opsetid(d, 1) for d in domains]
    m = helper.make_model(g, opset_imports=imports, functions=list(functions), ir_version=9)
    return m


def tensor(name, shape, t=TensorProto.FLOAT):
    return helper.make_tensor_value_info(name, t, shape)


def one_op(op, shapes, opset=17, out=None, **attrs):
    """A model of one node with f32 inputs of free sizes, and matching data."""
    rng = np.random.default_rng(0)
    names = [f"x{i}" for i in range(len(shapes))]
    free = [[f"d{i}_{k}" for k in range(len(s))] for i, s in enumerate(shapes)]
    m = graph([helper.make_node(op, names, ["y"], **attrs)], [tensor(n, f) for n, f in zip(names, free)],
              [out or tensor("y", None)], opset=opset)
    return m, {n: rng.standard_normal(s).astype(np.float32) for n, s in zip(names, shapes)}


# ---- ONNX's own node cases ----

FAMILIES = """add sub mul div matmul gemm softmax layer_normalization gather gathernd transpose reshape squeeze unsqueeze
concat slice split where equal less greater and or not isnan erf tanh sigmoid gelu relu sqrt pow exp log neg abs max min
reduce_sum reduce_mean reduce_max expand shape range constant cast clip cumsum trilu triu topk top_k argmax flatten
identity""".split()
COMPUTED = {TensorProto.FLOAT, TensorProto.INT64, TensorProto.INT32, TensorProto.BOOL}


def node_cases():
    from onnx.backend.test.loader import load_model_tests
    for t in load_model_tests(kind="node"):
        if t.model is None or "_expanded" in t.name:
            continue
        values = list(t.model.graph.input) + list(t.model.graph.output)
        if all(v.type.WhichOneof("value") == "tensor_type" and v.type.tensor_type.elem_type in COMPUTED for v in values):
            yield t


def as_array(x):
    return numpy_helper.to_array(x) if isinstance(x, TensorProto) else np.asarray(x)


def run_case(t):
    for ins, outs in t.data_sets:
        feeds = {i.name: as_array(x) for i, x in zip(t.model.graph.input, ins)}
        got = evaluate(t.model, feeds)
        for a, b in zip(got, map(as_array, outs), strict=True):
            assert a.shape == b.shape and a.dtype == b.dtype, f"{a.dtype}{a.shape} for {b.dtype}{b.shape}"
            np.testing.assert_allclose(a, b, rtol=max(t.rtol, 1e-3), atol=max(t.atol, 1e-6))


def test_node_cases():
    """None is wrong; what is not passed is refused by name; of the transformer families at least 90 % pass."""
    counts, family, bad, refused = {"pass": 0, "refused": 0}, [0, 0], [], []
    for t in node_cases():
        in_family = any(re.fullmatch(f"test_{f}(_.*)?", t.name) for f in FAMILIES)
        family[1] += in_family
        try:
            run_case(t)
            counts["pass"] += 1
            family[0] += in_family
        except Refused as e:
            counts["refused"] += 1
            refused.append(f"{t.name}: {str(e)[:150]}")
        except Exception as e:  # noqa: BLE001
            bad.append(f"{t.name}: {type(e).__name__} {str(e)[:200]}")
    print(f"node cases {counts}, families {family[0]} of {family[1]}")
    if os.environ.get("RTX_TEST_VERBOSE"):
        print("\n".join(refused))
    assert not bad, "\n".join(bad)
    assert family[0] >= 0.9 * family[1]


if __name__ == "__main__":
    raise SystemExit(pytest.main([__file__, "-q", "-s"]))
