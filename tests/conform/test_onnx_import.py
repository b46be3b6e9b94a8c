"""The ONNX importer against ONNX Runtime and ONNX's own node cases, through the fp64 evaluator (tests/tools/onnx_eval_main.c)."""

import os
import pathlib
import re
import subprocess
import tempfile

import minilm_files
import numpy as np
import pytest
from built import built

onnx = pytest.importorskip("onnx")
ort = pytest.importorskip("onnxruntime")
from onnx import TensorProto, helper, numpy_helper  # noqa: E402

ort.set_default_logger_severity(4)


def tool():
    return built("onnx_eval")


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
    """A model of one node with f32 inputs of free sizes (1 stays 1: a free size never stretches), and matching data."""
    rng = np.random.default_rng(0)
    names = [f"x{i}" for i in range(len(shapes))]
    free = [[1 if n == 1 else f"d{i}_{k}" for k, n in enumerate(s)] for i, s in enumerate(shapes)]
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


N = helper.make_node


# ---- ops with free sizes, older opsets, and forms that the node cases lack ----

F, I, B = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
FREE = [
    ("MatMul", [(2, 3, 4), (4, 5)], {}),
    ("MatMul", [(2, 3, 4), (2, 4, 5)], {}),
    ("MatMul", [(2, 1, 3, 4), (3, 4, 5)], {}),
    ("MatMul", [(4,), (4,)], {}),
    ("MatMul", [(4,), (2, 4, 3)], {}),
    ("MatMul", [(2, 3, 4), (4,)], {}),
    ("Gemm", [(3, 4), (5, 4), (5,)], {"transB": 1, "alpha": 0.5, "beta": 2.0}),
    ("Gemm", [(4, 3), (4, 5)], {"transA": 1}),
    ("Gemm", [(3, 4), (4, 5), (3, 1)], {}),
    ("Gemm", [(3, 4), (4, 5), (1,)], {}),
    ("Add", [(2, 3), (2, 3)], {}),
    ("Sum", [(2, 3), (3,), (1, 3)], {}),
    ("Mean", [(2, 3), (2, 3)], {}),
    ("Softmax", [(2, 3, 4)], {"axis": 1}),
    ("LogSoftmax", [(2, 3, 4)], {"axis": -1}),
    ("LogSoftmax", [(2, 3, 4)], {"axis": 0}),
    ("Transpose", [(2, 3, 4)], {"perm": [2, 0, 1]}),
    ("Flatten", [(2, 3, 4)], {"axis": 2}),
    ("Concat", [(2, 3), (4, 3)], {"axis": 0}),
    ("ReduceMean", [(2, 3, 4)], {"axes": [0, -1], "keepdims": 0}),
    ("ReduceL1", [(2, 3, 4)], {"axes": [1]}),
    ("ReduceL2", [(2, 3, 4)], {"axes": [1]}),
    ("ReduceLogSumExp", [(2, 3, 4)], {"axes": [1, 2], "keepdims": 0}),
    ("ReduceMax", [(2, 3, 4)], {}),
    ("ReduceProd", [(2, 3)], {"axes": [1]}),
    ("ArgMax", [(2, 3)], {"axis": 1}),
    ("ArgMin", [(2, 3)], {"axis": 0, "keepdims": 0}),
    ("LayerNormalization", [(2, 3, 4), (4,), (4,)], {"epsilon": 1e-3}),
    ("LayerNormalization", [(2, 3, 4), (4,)], {}),
    ("LeakyRelu", [(2, 3)], {"alpha": 0.2}),
    ("Split", [(2, 6)], {"axis": 1}),
    ("Shape", [(2, 3)], {"start": -1}),
    ("Size", [(2, 3)], {}),
    ("Einsum", [(2, 3, 4), (2, 4, 5)], {"equation": "bij,bjk->bik"}),
    ("Einsum", [(2, 3, 4, 5), (2, 6, 4, 5)], {"equation": "bnhd, bmhd -> bhnm"}),
    ("Einsum", [(3, 4), (5, 4)], {"equation": "ik,jk->ji"}),
    ("Einsum", [(3,), (4,)], {"equation": "i,j->ij"}),
    ("Einsum", [(3, 4), (3, 4)], {"equation": "ij,ij->"}),
    ("Einsum", [(3, 4)], {"equation": "ij->j"}),
    ("Einsum", [(2, 3, 4), (4, 5)], {"equation": "abc,cd->adb"}),
]


@pytest.mark.parametrize("op,shapes,attrs", FREE, ids=[f"{i}-{f[0]}" for i, f in enumerate(FREE)])
def test_free_sizes(op, shapes, attrs):
    t = I if op in ("ArgMax", "ArgMin", "Shape", "Size") else F
    m, feeds = one_op(op, shapes, out=helper.make_tensor_value_info("y", t, None), **attrs)
    check(m, feeds)


def test_softmax_before_opset_13_flattens():
    for axis in (0, 1, 2):
        for op in ("Softmax", "LogSoftmax"):
            check(*one_op(op, [(2, 3, 4)], opset=12, axis=axis))


def test_attribute_forms_of_old_opsets():
    x = tensor("x", ["a", 4, 6])
    feeds = {"x": np.random.default_rng(0).standard_normal((3, 4, 6)).astype(np.float32)}
    forms = [
        helper.make_node("Slice", ["x"], ["y"], starts=[1, 0], ends=[9223372036854775807, -2], axes=[1, 2]),
        helper.make_node("Clip", ["x"], ["y"], min=-0.5, max=0.5),
        helper.make_node("Unsqueeze", ["x"], ["y"], axes=[0, 4]),
        helper.make_node("ReduceSum", ["x"], ["y"], axes=[1], keepdims=0),
        helper.make_node("Split", ["x"], ["y", "z"], axis=1, split=[1, 3]),
        helper.make_node("Dropout", ["x"], ["y"], ratio=0.5),
        helper.make_node("Pad", ["x"], ["y"], pads=[0, 1, 0, 0, 0, 2], value=3.0),
        helper.make_node("TopK", ["x"], ["y", "z"], axis=2, k=2),
    ]
    for n in forms:
        outs = [tensor("y", None)]
        if len(n.output) > 1:
            outs.append(helper.make_tensor_value_info("z", I if n.op_type == "TopK" else F, None))
        check(graph([n], [x], outs, opset=9), feeds)


@pytest.mark.parametrize("bounds", [{}, {"min": 0.0}, {"max": 0.0}])
def test_clip_of_infinities_before_opset_11(bounds):
    x = np.array([np.inf, -np.inf, 3e38, np.nan], np.float32)
    for opset in (7, 10):
        m = graph([N("Clip", ["x"], ["y"], **bounds)], [tensor("x", [4])], [tensor("y", None)], opset=opset)
        check(m, {"x": x})


def test_gemm_without_its_bias():
    m, feeds = one_op("Gemm", [(3, 4), (4, 2), (1, 2)], beta=0.0)
    feeds["x2"][:] = np.nan, np.inf
    check(m, feeds)


FAR = [2**31, 2**40, 2**62, 2**63 - 1]


@pytest.mark.parametrize("size", [5, "n"])
@pytest.mark.parametrize("start,end,step", [
    *[(0, far, 1) for far in FAR], *[(-far, far, 2) for far in FAR], *[(4, -far, -1) for far in FAR],
    *[(1, 5, far) for far in FAR], *[(-1, -9, -far) for far in FAR], (2**62, 2**62, 1), (-2**63, 2**62, -2**63)])
def test_slices_far_beyond_the_axis(start, end, step, size):
    operands = [(k, np.array([v], np.int64)) for k, v in zip("seat", (start, end, 0, step))]
    twice = [N("Slice", ["x", *"seat"], ["y"]), N("Slice", ["y", *"seat"], ["z"])]
    x = {"x": np.arange(5, dtype=np.float32)}
    check(graph(twice, [tensor("x", [size])], [tensor("y", None), tensor("z", None)], operands), x)
    cast = [N("Cast", ["e"], ["far"], to=I), N("Slice", ["x", "s", "far", *"at"], ["y"])]
    check(graph(cast, [tensor("x", [size])], [tensor("y", None)], operands), x)
    old = N("Slice", ["x"], ["y"], starts=[start], ends=[end])
    check(graph([old], [tensor("x", [size])], [tensor("y", None)], opset=9), x)


def shape_graph(nodes, extra=(), opset=17, out=F):
    inits = [("zero", np.array([0])), ("one", np.array([1])), ("two", np.array([2])), ("minus", np.array([-1]))]
    inits = [(n, a.astype(np.int64)) for n, a in inits] + list(extra)
    x = tensor("x", ["batch", "seq", 8])
    m = graph(nodes, [x], [helper.make_tensor_value_info("y", out, None)], inits, opset=opset)
    return m, {"x": np.random.default_rng(0).standard_normal((2, 5, 8)).astype(np.float32)}


@pytest.mark.parametrize("nodes,out", [
    ([N("Shape", ["x"], ["s"]), N("Gather", ["s", "zero"], ["b"]), N("Concat", ["b", "minus", "two"], ["t"], axis=0),
      N("Reshape", ["x", "t"], ["y"])], F),
    ([N("Shape", ["x"], ["s"]), N("Slice", ["s", "zero", "two"], ["lead"]), N("ReduceProd", ["lead"], ["n"], keepdims=1),
      N("Concat", ["n", "minus"], ["t"], axis=0), N("Reshape", ["x", "t"], ["y"])], F),
    ([N("Shape", ["x"], ["s"]), N("Gather", ["s", "one"], ["n"]), N("Squeeze", ["n", "zero"], ["k"]),
      N("Constant", [], ["o"], value_int=0), N("Constant", [], ["i"], value_int=2), N("Range", ["o", "k", "i"], ["y"])], I),
    ([N("Shape", ["x"], ["s"]), N("ConstantOfShape", ["s"], ["c"], value=numpy_helper.from_array(np.array([1.5], np.float32))),
      N("Add", ["x", "c"], ["y"])], F),
    ([N("Shape", ["x"], ["s"]), N("Gather", ["s", "one"], ["n"]), N("Div", ["n", "two"], ["half"]),
      N("Slice", ["x", "half", "n", "one"], ["y"])], F),
    ([N("Slice", ["x", "minus", "zero", "one", "minus"], ["y"])], F),
    ([N("Shape", ["x"], ["s"]), N("Equal", ["s", "minus"], ["q"]), N("Where", ["q", "one", "s"], ["t"]),
      N("Expand", ["one", "t"], ["y"])], I),
    ([N("Size", ["x"], ["n"]), N("Mul", ["n", "two"], ["y"])], I),
    ([N("Shape", ["x"], ["s"]), N("Sign", ["s"], ["y"])], I),
    ([N("Shape", ["x"], ["s"]), N("Add", ["s", "one"], ["n"]), N("Sign", ["n"], ["p"]), N("Neg", ["n"], ["m"]),
      N("Sign", ["m"], ["q"]), N("Concat", ["p", "q"], ["y"], axis=0)], I),
    ([N("Shape", ["x"], ["s"]), N("Cast", ["s"], ["f"], to=F), N("ReduceSum", ["f"], ["y"])], F),
])
def test_shape_arithmetic(nodes, out):
    check(*shape_graph(nodes, out=out))


def test_sizes_are_followed_not_fixed():
    """One import serves every size: the evaluator binds the symbols."""
    nodes = [N("Shape", ["x"], ["s"]), N("Gather", ["s", "one"], ["n"]), N("Concat", ["n", "minus"], ["t"], axis=0),
             N("Transpose", ["x"], ["p"], perm=[1, 0, 2]), N("Reshape", ["p", "t"], ["y"])]
    m, _ = shape_graph(nodes)
    for shape in ((1, 1, 8), (3, 7, 8), (2, 1, 8)):
        check(m, {"x": np.arange(np.prod(shape), dtype=np.float32).reshape(shape)})


# ---- functions, external data, models ----

def test_functions_are_inlined():
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("my", 1)]
    scale = N("Constant", [], ["c"])
    scale.attribute.add(name="value_float", ref_attr_name="by", type=onnx.AttributeProto.FLOAT)
    inner = helper.make_function("my", "Scale", ["v"], ["w"], [scale, N("Mul", ["v", "c"], ["w"])], imports, ["by"])
    outer = helper.make_function("my", "Twice", ["a"], ["b"], [
        N("Scale", ["a"], ["t"], domain="my", by=2.0), N("Scale", ["t"], ["b"], domain="my", by=0.25)], imports, [])
    m = graph([N("Exp", ["x"], ["e"]), N("Twice", ["e"], ["y"], domain="my")], [tensor("x", ["n", 3])], [tensor("y", None)],
              functions=[inner, outer], domains=["my"])
    check(m, {"x": np.linspace(-1, 1, 6, dtype=np.float32).reshape(2, 3)})


def test_external_data(tmp_path):
    w = np.arange(3000, dtype=np.float32).reshape(1000, 3) / 1000
    m = graph([N("MatMul", ["x", "w"], ["y"])], [tensor("x", ["n", 1000])], [tensor("y", None)], [("w", w)])
    (tmp_path / "sub").mkdir()
    onnx.save(m, tmp_path / "m.onnx", save_as_external_data=True, location="sub/w.bin", size_threshold=0)
    x = np.ones((2, 1000), np.float32)
    np.testing.assert_allclose(evaluate(str(tmp_path / "m.onnx"), {"x": x})[0], x @ w, rtol=1e-5)
    (tmp_path / "sub" / "w.bin").rename(tmp_path / "w.bin")
    (tmp_path / "sub" / "w.bin").symlink_to("../w.bin")
    with pytest.raises(Bad, match="links"):
        evaluate(str(tmp_path / "m.onnx"), {"x": x})


@pytest.mark.parametrize("spec", [
    "mlp,in=8,hidden=16,out=4", "encoder,layers=2,hidden=64,ffn=96", "gpt-block,hidden=64,ffn=80",
    "gpt-block,hidden=64,ffn=80,tanh=0,layers=2", "llama-block,hidden=64,ffn=80,layers=2",
    "llama-block,hidden=64,heads=8,kv-heads=8", "vit,hidden=64,patch=48,layers=1", "vit,hidden=64,patch=48,layers=1,class=0"])
def test_zoo_export(spec, tmp_path):
    """The zoo's graph, its ONNX file in ONNX Runtime, and that file read back agree."""
    path = str(tmp_path / "zoo.onnx")
    subprocess.run([tool(), "zoo:" + spec, str(tmp_path), "--onnx", path], check=True)
    onnx.checker.check_model(path, full_check=True)
    session = ort.InferenceSession(path, providers=["CPUExecutionProvider"])
    rng = np.random.default_rng(0)
    for batch, seq in ((2, 7), (1, 1)):
        sizes, feeds = {"batch": batch, "seq": seq, "n": seq}, {}
        for i in session.get_inputs():
            shape = [sizes.get(d, d) for d in i.shape]
            real = i.type == "tensor(float)"
            feeds[i.name] = rng.standard_normal(shape).astype(np.float32) if real else np.ones(shape, np.int64)
        if "attention_mask" in feeds:
            feeds["attention_mask"][0, seq // 2 + 1:] = 0
        want = session.run(None, feeds)[0]
        for model in ("zoo:" + spec, path):
            got = evaluate(model, feeds)[0]
            assert np.linalg.norm(got - want) <= 1e-6 * np.linalg.norm(want)


@pytest.mark.parametrize("name", minilm_files.EXPORTS)
def test_minilm(name):
    try:
        path = pathlib.Path(minilm_files.model(name))
    except minilm_files.Missing as e:
        pytest.skip(str(e))
    rng = np.random.default_rng(1)
    feeds = {"input_ids": rng.integers(1, 30000, (2, 9)), "attention_mask": np.ones((2, 9), np.int64),
             "token_type_ids": np.zeros((2, 9), np.int64)}
    feeds["attention_mask"][1, 6:] = 0
    want = ort.InferenceSession(str(path), providers=["CPUExecutionProvider"]).run(None, feeds)[0]
    got = evaluate(str(path), feeds)[0]
    assert np.linalg.norm(got - want) <= 1e-5 * np.linalg.norm(want)
    shown = subprocess.run([tool(), str(path), "/tmp", "--print"], capture_output=True, text=True, check=True).stdout
    assert "# seq 0..512" in shown


if __name__ == "__main__":
    raise SystemExit(pytest.main([__file__, "-q", "-s"]))
