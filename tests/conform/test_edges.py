"""Edges of ONNX operators against ONNX Runtime, through compile and run: no elements, i32 that wraps, infinities, sizes of 1
that are free, and sizes that cannot be proven equal, which are refused as UNSUPPORTED and never called wrong.
"""
import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
ort = pytest.importorskip("onnxruntime")
import rtx  # noqa: E402
from onnx import TensorProto, helper, numpy_helper  # noqa: E402

ort.set_default_logger_severity(4)
N = helper.make_node
INF = float("inf")


def model(nodes, feeds, outputs, inits=(), opset=17, shapes=()):
    """Inputs have the shapes of their data, or those given by name with free sizes; outputs declare nothing."""
    inputs = [helper.make_tensor_value_info(k, helper.np_dtype_to_tensor_dtype(v.dtype), dict(shapes).get(k, v.shape))
              for k, v in feeds.items()]
    outs = [onnx.ValueInfoProto(name=o) for o in outputs]
    g = helper.make_graph(nodes, "g", inputs, outs, [numpy_helper.from_array(np.asarray(v), k) for k, v in dict(inits).items()])
    return helper.make_model(g, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def reference(m, feeds):
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    return ort.InferenceSession(m.SerializeToString(), options, providers=["CPUExecutionProvider"]).run(None, feeds)


def program(m):
    return rtx.compile(m, tune="off", cache="")


def check(m, *runs):
    with program(m) as p:
        for feeds in runs:
            got = p.run(feeds)
            for name, want in zip([o.name for o in m.graph.output], reference(m, feeds), strict=True):
                assert got[name].shape == want.shape and got[name].dtype == want.dtype
                np.testing.assert_allclose(got[name], want, rtol=1e-5, atol=1e-5)


def zeros(*shape):
    return {"x": np.zeros(shape, np.float32)}


def normal(*shape):
    return {"x": np.random.default_rng(0).standard_normal(shape).astype(np.float32)}


def slices(*cuts):
    """Nodes and constants that cut x to y by (start, end, axis, step), one after the other."""
    nodes, inits = [], {}
    for i, cut in enumerate(cuts):
        names = [f"c{i}_{k}" for k in range(4)]
        inits |= {n: np.array([v]) for n, v in zip(names, cut)}
        nodes.append(N("Slice", [f"t{i}" if i else "x", *names], [f"t{i + 1}" if i + 1 < len(cuts) else "y"]))
    return nodes, inits


# ---- views of nothing ----

@pytest.mark.parametrize("feeds,cuts", [
    (zeros(0, 4), [(2, 9, 1, 1)]),
    (zeros(2, 0), [(1, 9, 0, 1)]),
    (zeros(0, 4), [(-1, -9, 1, -1)]),
    (zeros(0, 4), [(-1, -9, 0, -1)]),
    (zeros(3, 0, 6), [(-1, -9, 0, -2), (-1, -9, 2, -1)]),
    (normal(1, 5, 4), [(1, 1, 1, 1), (3, 9, 2, 1)]),
    (normal(5, 4), [(9, 9, 0, 1), (2, 4, 1, 1)]),
], ids=str)
def test_slice_of_nothing(feeds, cuts):
    nodes, inits = slices(*cuts)
    m = model(nodes, feeds, ["y"], inits)
    check(m, feeds)
    nodes[-1].output[0] = "t"
    check(model([*nodes, N("Neg", ["t"], ["y"])], feeds, ["y"], inits), feeds)


@pytest.mark.parametrize("node,inits", [
    (N("Split", ["x", "s"], ["y", "z"], axis=1), {"s": np.array([1, 3])}),
    (N("Split", ["x", "s"], ["y", "z"], axis=0), {"s": np.array([0, 0])}),
    (N("Concat", ["x", "w"], ["y"], axis=1), {"w": np.zeros((0, 3), np.float32)}),
    (N("Concat", ["x", "w"], ["y"], axis=0), {"w": np.ones((2, 4), np.float32)}),
    (N("Gather", ["x", "i"], ["y"], axis=1), {"i": np.array([3])}),
    (N("Gather", ["x", "i"], ["y"], axis=1), {"i": np.array(-1)}),
    (N("Expand", ["x", "s"], ["y"]), {"s": np.array([3, 0, 4])}),
    (N("Transpose", ["x"], ["y"]), {}),
    (N("Pad", ["x", "s"], ["y"]), {"s": np.array([1, 0, 0, 2])}),
], ids=lambda v: v.op_type if isinstance(v, onnx.NodeProto) else "")
@pytest.mark.parametrize("free", [False, True])
def test_moves_of_nothing(node, inits, free):
    feeds = zeros(0, 4)
    if free and (node.op_type == "Expand" or "Split" in node.op_type and not inits["s"].any()):
        pytest.skip("a free size cannot meet 0 here")
    if free and node.op_type == "Concat" and node.attribute[0].i == 1:
        pytest.skip("a free size cannot meet 0 here")
    m = model([node], feeds, list(node.output), inits, shapes={"x": ["n", 4]} if free else ())
    check(m, feeds, *([{"x": np.ones((3, 4), np.float32)}] if free else []))


@pytest.mark.parametrize("shape", [(3, 0, 2), (0, 3, 2), (2, 3, 0), (3, 0, 1)], ids=str)
@pytest.mark.parametrize("keep", [0, 1])
def test_sum_of_nothing(shape, keep):
    feeds, w = zeros(*shape), np.ones((shape[-1], 3), np.float32)
    for axis in (-3, -2, -1):
        nodes = [N("MatMul", ["x", "w"], ["t"]), N("ReduceSum", ["t", "a"], ["y"], keepdims=keep)]
        check(model(nodes, feeds, ["y"], {"w": w, "a": np.array([axis])}), feeds)


# ---- integers of 32 bits ----

@pytest.mark.parametrize("nodes,values", [
    ([N("Mul", ["a", "b"], ["c"]), N("Div", ["c", "b"], ["y"])], {"a": [2**30], "b": [4]}),
    ([N("Add", ["a", "b"], ["c"]), N("Less", ["c", "b"], ["y"])], {"a": [2**31 - 1], "b": [1]}),
    ([N("Sub", ["a", "b"], ["c"]), N("Max", ["c", "b"], ["y"])], {"a": [-2**31], "b": [1]}),
    ([N("Neg", ["a"], ["c"]), N("Add", ["c", "b"], ["y"])], {"a": [-2**31], "b": [0]}),
    ([N("Mul", ["a", "a"], ["c"]), N("Mod", ["c", "b"], ["y"])], {"a": [123456], "b": [1000]}),
    ([N("Add", ["a", "b"], ["c"]), N("Cast", ["c"], ["y"], to=TensorProto.INT64)], {"a": [2**31 - 1, 5], "b": [7, 7]}),
])
def test_i32_wraps(nodes, values):
    values = {k: np.array(v, np.int32) for k, v in values.items()}
    check(model(nodes, {}, ["y"], values), {})
    check(model(nodes, values, ["y"]), values)


def test_cast_to_i32_wraps():
    v = {"a": np.array([2**32 + 5, 2**63 - 1, -2**63, 2**31, -2**31 - 1, 7])}
    nodes = [N("Cast", ["a"], ["c"], to=TensorProto.INT32), N("Cast", ["c"], ["y"], to=TensorProto.INT64),
             N("Less", ["c", "zero"], ["z"])]
    zero = {"zero": np.array([0], np.int32)}
    check(model(nodes, {}, ["y", "z"], v | zero), {})
    check(model(nodes, v, ["y", "z"], zero), v)


def test_product_in_i32_wraps():
    """As in NumPy; ONNX Runtime's product ends at 2^31 - 1."""
    a = np.array([2**20, 2**11, 3], np.int32)
    nodes = [N("ReduceProd", ["a"], ["c"]), N("Div", ["c", "b"], ["y"])]
    with program(model(nodes, {}, ["y"], {"a": a, "b": np.array([2], np.int32)})) as p:
        assert p.run({})["y"] == [a.prod(dtype=np.int32) // 2]


def test_i32_sizes():
    """Sizes in i32 are followed; one times 2^30 is computed, where it wraps."""
    nodes = [N("Shape", ["x"], ["s"]), N("Cast", ["s"], ["i"], to=TensorProto.INT32), N("ReduceProd", ["i"], ["p"]),
             N("Cast", ["p"], ["n"], to=TensorProto.INT64), N("Reshape", ["x", "n"], ["y"]),
             N("Mul", ["i", "big"], ["w"]), N("Div", ["w", "two"], ["z"])]
    inits = {"big": np.array([2**30], np.int32), "two": np.array([2], np.int32)}
    m = model(nodes, normal(2, 3, 4), ["y", "z"], inits, shapes={"x": ["a", "b", "c"]})
    check(m, normal(2, 3, 4), normal(5, 1, 7))


# ---- infinities and large numbers ----

ENDLESS = np.array([[-INF, -INF, -INF], [INF, 1, 2], [-INF, 0, 1], [INF, INF, INF], [100, 200, 300],
                    [INF, -INF, 0]], np.float32)


@pytest.mark.parametrize("node", [
    N("ReduceLogSumExp", ["x"], ["y"], axes=[1]), N("ReduceLogSumExp", ["x"], ["y"], axes=[0, 1], keepdims=0),
    N("ReduceLogSumExp", ["x"], ["y"], axes=[0]), N("ReduceLogSum", ["x"], ["y"], axes=[1]),
    N("Softmax", ["x"], ["y"], axis=1), N("LogSoftmax", ["x"], ["y"], axis=1), N("Softmax", ["x"], ["y"], axis=0),
    N("LogSoftmax", ["x"], ["y"], axis=0), N("ReduceMax", ["x"], ["y"], axes=[1]), N("ReduceL2", ["x"], ["y"], axes=[1]),
], ids=lambda n: n.op_type)
def test_infinities(node):
    for x in (ENDLESS, ENDLESS[:4]):
        check(model([node], {"x": x}, ["y"]), {"x": x})


@pytest.mark.parametrize("k", [2**63 - 1, -2**63, 2**40, -2**62, 2**62, 1, 0, -3])
@pytest.mark.parametrize("upper", [0, 1])
def test_trilu_far_off(k, upper):
    feeds, k = normal(5, 4), {"k": np.array(k)}
    nodes = [N("Trilu", ["x", "k"], ["y"], upper=upper)]
    check(model(nodes, feeds, ["y"], k), feeds)
    check(model(nodes, feeds | k, ["y"]), feeds | k)


# ---- what a free size decides ----

def refused(m, words):
    with pytest.raises(rtx.Unsupported, match=words):
        program(m)


def test_squeeze_of_a_free_axis():
    nodes = [N("Squeeze", ["x"], ["y"])]
    refused(model(nodes, normal(1, 3), ["y"], opset=11, shapes={"x": ["b", 3]}), "free size")
    refused(model(nodes, normal(1, 3), ["y"], shapes={"x": [1, "b"]}), "free size")
    check(model(nodes, normal(1, 3), ["y"]), normal(1, 3))
    more = [N("Concat", ["x", "x"], ["t"], axis=1), N("Squeeze", ["t"], ["y"])]  # 2 b is not 1
    check(model([N("Squeeze", ["x", "a"], ["y"])], normal(1, 3), ["y"], {"a": np.array([0])}, shapes={"x": [1, "b"]}),
          normal(1, 3), normal(1, 1))
    refused(model(more, normal(2, 2), ["y"], shapes={"x": ["b", 2]}), "free size")


def test_squeeze_without_any_axis_named():
    check(model([N("Squeeze", ["x", "a"], ["y"])], normal(1, 3, 1), ["y"], {"a": np.zeros(0, np.int64)}), normal(1, 3, 1))


def test_split_of_a_free_axis():
    two, free = [N("Split", ["x"], ["y", "z"], axis=0)], {"x": ["n", 4]}
    refused(model(two, normal(4, 4), ["y", "z"], opset=13, shapes=free), "equal parts depends on a free size")
    doubled = [N("Concat", ["x", "x"], ["t"], axis=0), N("Split", ["t"], ["y", "z"], axis=0)]
    check(model(doubled, normal(4, 4), ["y", "z"], opset=13, shapes=free), normal(4, 4), normal(3, 4), zeros(0, 4))
    for count in (2, 3, 5):
        names = [f"y{i}" for i in range(count)]
        parts = [N("Split", ["x"], names, axis=0, num_outputs=count)]
        m = model(parts, normal(4, 4), names, opset=18, shapes=free)
        taken = [n for n in (1, 2, 4, 5, 8, 31) if (count - 1) * -(-n // count) <= n]  # the peer refuses others
        check(m, *(normal(n, 4) for n in taken))
    with program(m) as p:  # 11 in five parts of at most 3
        got = p.run({"x": np.arange(44, dtype=np.float32).reshape(11, 4)})
        assert [len(got[k]) for k in names] == [3, 3, 3, 2, 0]


PAIRS = {
    "MatMul": ([N("Flatten", ["x"], ["t"]), N("MatMul", ["t", "w"], ["y"])], (30, 2)),
    "batch": ([N("Flatten", ["x"], ["f"]), N("Transpose", ["f"], ["p"]), N("Unsqueeze", ["p", "one"], ["t"]),
               N("MatMul", ["t", "w"], ["y"])], (30, 2, 3)),
    "Gemm": ([N("Flatten", ["x"], ["t"]), N("Gemm", ["t", "w"], ["y"])], (30, 2)),
    "Einsum": ([N("Flatten", ["x"], ["t"]), N("Einsum", ["t", "w"], ["y"], equation="ij,jk->ik")], (30, 2)),
}


@pytest.mark.parametrize("form", PAIRS)
def test_sizes_that_may_be_equal(form):
    """s d = 30 holds for some sizes: nothing is wrong with such a model, it is only beyond what can be proven."""
    nodes, shape = PAIRS[form]
    inits = {"w": np.ones(shape, np.float32), "one": np.array([1])}
    refused(model(nodes, normal(2, 5, 6), ["y"], inits, shapes={"x": ["b", "s", "d"]}), "cannot be proven equal")
    with pytest.raises(ValueError, match="differ"):
        program(model(nodes, normal(2, 5, 7), ["y"], inits))


# ---- einsum ----

@pytest.mark.parametrize("equation,a,b", [
    ("...ij,...jk->...ik", (2, 3, 4), (2, 4, 5)),
    ("...ij,...jk->...ik", (3, 4), (4, 5)),
    ("...ij,...jk->...ik", (2, 6, 3, 4), (4, 5)),
    ("...ij,...jk->...ik", (3, 4), (2, 4, 5)),
    ("...ij,...jk->...ik", (1, 3, 4), (2, 4, 5)),
    ("...ij,...jk->...ik", (2, 1, 3, 4), (6, 4, 5)),
    ("...ij,...jk->...ik", (1, 3, 4), (1, 4, 5)),
    ("b...i,...ij->b...j", (2, 3, 4), (3, 4, 5)),
    ("i...,...->...i", (4, 3), (3,)),
    ("...ij,...jk", (2, 3, 4), (2, 4, 5)),
    ("ij,jk", (3, 4), (4, 5)),
    ("kj,ji", (3, 4), (4, 5)),
    ("...i->...", (2, 3, 4), None),
    ("ji", (3, 4), None),
    ("b...,b...->...", (2, 3), (2, 3)),
    ("ij,jk->ik", (3, 1), (4, 5)),
    ("...hd,...kd->...hk", (2, 3, 5, 4), (2, 3, 6, 4)),
])
def test_einsum(equation, a, b):
    feeds = normal(*a)
    if b:
        feeds["w"] = np.random.default_rng(1).standard_normal(b).astype(np.float32)
    with program(model([N("Einsum", list(feeds), ["y"], equation=equation)], feeds, ["y"])) as p:
        want = np.einsum(equation, *feeds.values())  # ONNX Runtime wants "..." to be as long in both
        got = p.run(feeds)["y"]
    assert got.shape == want.shape
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


def test_einsum_of_free_sizes():
    feeds = {"x": np.ones((2, 3, 4), np.float32), "w": np.ones((4, 5), np.float32)}
    node = N("Einsum", ["x", "w"], ["y"], equation="...j,jk->...k")
    check(model([node], feeds, ["y"], shapes={"x": ["b", "s", 4]}), feeds, {**feeds, "x": np.ones((1, 7, 4), np.float32)})
    for equation in ("...ij,jk->ik", "ii->i", "i..,i->i", "...i...,i->..."):
        refused(model([N("Einsum", ["x", "w"], ["y"], equation=equation)], feeds, ["y"]), "products of two operands")


if __name__ == "__main__":
    raise SystemExit(pytest.main([__file__, "-q"]))


# ---- sizes as data, and sizes that cannot be ----

@pytest.fixture(scope="session")
def cache(tmp_path_factory):
    """The facts of this machine are measured once."""
    return str(tmp_path_factory.mktemp("cache"))


@pytest.mark.parametrize("tune", ["off", "quick"])
@pytest.mark.parametrize("form", ["less 8", "less 10^9", "neg", "range", "fill"])
def test_sizes_below_zero_are_data(form, tune, cache):
    """Values that stand in no input, some of them below 0; tuned, too, as their reference needs the sizes alone."""
    inits = {"c": np.int64([10**9 if "9" in form else 8]), "z": np.int64(0), "o": np.int64(1)}
    nodes = {"neg": [N("Neg", ["s"], ["y"])],
             "range": [N("Gather", ["s", "z"], ["n"]), N("Range", ["z", "n", "o"], ["y"])],
             "fill": [N("ConstantOfShape", ["s"], ["y"])]}.get(form, [N("Sub", ["s", "c"], ["y"])])
    m = model([N("Shape", ["x"], ["s"]), *nodes], zeros(4, 3, 5), ["y"], inits, shapes={"x": ("n", 3, 5)})
    with rtx.compile(m, tune=tune, budget=2, threads=1, cache=cache) as p:
        assert "untuned" not in p.report, p.report
        for n in (0, 4, 9):
            np.testing.assert_array_equal(p.run(zeros(n, 3, 5))["y"], reference(m, zeros(n, 3, 5))[0])


def test_tuning_backwards_through_nothing(cache):
    """A bucket at which an operand with a stride below 0 holds nothing."""
    nodes, inits = slices((5, -2**63, 2, -2))
    m = model(nodes + [N("Sign", ["y"], ["z"]), N("Floor", ["x"], ["w"])], zeros(2, 1, 6), ["z", "w"], inits, shapes={"x": ("a", 1, 6)})
    with rtx.compile(m, tune="quick", budget=2, threads=1, cache=cache) as p:
        assert "untuned" not in p.report, p.report
        for n in (0, 1, 5):
            np.testing.assert_array_equal(p.run(normal(n, 1, 6))["z"], reference(m, normal(n, 1, 6))[0])


@pytest.mark.parametrize("nodes, inits, good, bad", [
    ([N("TopK", ["x", "k"], ["v", "y"], axis=1)], {"k": np.int64([5])}, (3, 7), (3, 2)),
    ([N("Pad", ["x", "p"], ["t"]), N("Relu", ["t"], ["u"]), N("ReduceSum", ["u"], ["y"], keepdims=0)], {"p": np.int64([-5, -5, 0, 0])},
     (7, 6), (2, 2)),
    ([N("Shape", ["x"], ["s"]), N("Sub", ["s", "c"], ["m"]), N("ConstantOfShape", ["m"], ["t"]), N("Add", ["t", "o"], ["u"]),
      N("ReduceSum", ["u"], ["y"], keepdims=0)], {"c": np.int64([3, 3]), "o": np.float32(1)}, (5, 4), (0, 0))])
def test_impossible_sizes_are_refused(nodes, inits, good, bad):
    """Two sizes below 0 have a product above it; a top-k of more than there is would read on."""
    m = model(nodes, zeros(2, 2), ["y"], inits, shapes={"x": ("a", "b")})
    check(m, normal(*good))
    with program(m) as p:
        with pytest.raises(ValueError, match="a size of the program would be -3"):
            p.run(zeros(*bad))
        with pytest.raises(Exception):
            reference(m, zeros(*bad))


def test_i32_positions_wrap():
    nodes = [N("Shape", ["x"], ["s"]), N("Cast", ["s"], ["s32"], to=TensorProto.INT32), N("Squeeze", ["s32"], ["n"]),
             N("Range", ["z", "n", "o"], ["r"]), N("Add", ["r", "c"], ["a"]), N("Less", ["a", "z"], ["y"])]
    m = model(nodes, zeros(8), ["y"], {"c": np.int32(2**31 - 4), "z": np.int32(0), "o": np.int32(1)}, shapes={"x": ("n",)})
    check(m, zeros(8))


# ---- algebra that must not be taken for equal ----

@pytest.mark.parametrize("nodes", [
    [N("Reciprocal", ["x"], ["t"]), N("Sqrt", ["t"], ["y"])], [N("Sqrt", ["x"], ["t"]), N("Reciprocal", ["t"], ["y"])],
    [N("Pow", ["x", "h"], ["y"])], [N("Pow", ["x", "m"], ["y"])]], ids=lambda n: " ".join(k.op_type for k in n))
def test_roots_of_zeros_and_infinities(nodes):
    feeds = {"x": np.float32([-0.0, 0.0, -INF, INF, -1, 4, np.nan])}
    m = model(nodes, feeds, ["y"], {"h": np.float32(0.5), "m": np.float32(-0.5)})
    with program(m) as p:
        got, want = p.run(feeds)["y"], reference(m, feeds)[0]
    np.testing.assert_allclose(got, want, rtol=1e-6)
    np.testing.assert_array_equal(np.signbit(got[got == 0]), np.signbit(want[got == 0]))


@pytest.mark.parametrize("first", ["Where", "Add"])
@pytest.mark.parametrize("low", [np.finfo(np.float32).min, -INF])
def test_rows_masked_twice(low, first):
    """A finite lowest twice is not twice as low: a row that it masks altogether weighs all keys the same."""
    a = {"Where": N("Where", ["a", "s", "lo"], ["s1"]), "Add": N("Add", ["s", "m"], ["s1"])}[first]
    nodes = [N("MatMul", ["q", "k"], ["s"]), a, N("Where", ["b", "s1", "lo"], ["s2"]), N("Softmax", ["s2"], ["p"], axis=-1),
             N("MatMul", ["p", "v"], ["y"])]
    rng = np.random.default_rng(3)
    keep = np.array([[True, False], [False, False], [True, True]])
    feeds = {"q": rng.standard_normal((3, 2)).astype(np.float32), "k": rng.standard_normal((2, 2)).astype(np.float32),
             "v": np.float32([[1], [3]]), "b": np.array([[False, False], [False, False], [False, True]])}
    feeds |= {"a": keep} if first == "Where" else {"m": np.where(keep, np.float32(0), np.float32(low))}
    check(model(nodes, feeds, ["y"], {"lo": np.float32(low)}), feeds)
