"""Models that are wrong, or that read wrong: what the importer tells apart, refuses and says (tests/tools/onnx_eval_main.c)."""

import re
import subprocess

import numpy as np
import pytest
from built import ROOT
from test_onnx_import import Bad, N, Refused, evaluate, graph, helper, numpy_helper, onnx, runtime, tensor, tool

F, I = onnx.TensorProto.FLOAT, onnx.TensorProto.INT64
X = np.arange(6, dtype=np.float32).reshape(2, 3)
DECODER = "sequence_length_of_the_decoder_past_key_values_concatenated_with_"
WEIGHT = "model.encoder.layers.attention.self.query.weight."


def value(name, t=F, shape=None):
    return helper.make_tensor_value_info(name, t, shape)


def untyped(name):
    return onnx.ValueInfoProto(name=name)


def relu(**changes):
    """x f32[2,3] -> a -> y, with an initializer w f32[2,3] that nothing reads."""
    m = graph([N("Relu", ["x"], ["a"]), N("Relu", ["a"], ["y"])], [tensor("x", [2, 3])], [untyped("y")], [("w", X)])
    for field, values in changes.items():
        getattr(m.graph, field).extend(values)
    return m


def bad(model, *words, kind=Bad):
    with pytest.raises(kind) as caught:
        evaluate(model, {"x": X})
    for word in words:
        assert word in str(caught.value)


# ---- names are UTF-8 ----

@pytest.mark.parametrize("name,words", [
    ("INPUT", "the name of input 0 is not UTF-8"), ("INITIAL", "the name of output 1 is not UTF-8"),
    ("VALUE", "a name in node 0 of the model is not UTF-8"), ("NODE", "a name in node 1 of the model is not UTF-8")])
def test_names_are_utf8(name, words):
    bad(strange(name), words)


def test_labels_of_sizes_lend_their_letters():
    np.testing.assert_array_equal(evaluate(strange("SIZE"), {"INPUT": X})[0], X)


def strange(name):
    """A model in which the last letter of a name is no UTF-8."""
    m = graph([N("Relu", ["INPUT"], ["VALUE"]), N("Relu", ["VALUE"], ["y"], name="NODE")], [tensor("INPUT", ["SIZE", 3])],
              [untyped("y"), untyped("INITIAL")], [("INITIAL", X)])
    return m.SerializeToString().replace(name.encode(), name[:-1].encode() + b"\xe9")


# ---- sizes without a number ----

@pytest.mark.parametrize("names,sizes", [
    ((WEIGHT + "a", WEIGHT + "b"), (None, None)),
    (("a", "b"), (DECODER + "k", DECODER + "v")),
    (("a", "b"), ("seq len", "seq_len")),
    (("a", "b"), ("seq_len", "seq len")),
    (("a", "b"), ("seq-len!", "seq+len!")),
    (("x", "b"), (None, "x_0")),
    (("b", "x"), ("x_0", None)),
    (("b", "x"), ("x_0+0*x_0", None)),
    (("a-b", "c"), (None, "a")),
])
def test_sizes_are_apart(names, sizes):
    inputs = [tensor(n, [s, 3]) for n, s in zip(names, sizes)]
    m = graph([N("Relu", [n], [o]) for n, o in zip(names, "yz")], inputs, [untyped("y"), untyped("z")])
    feeds = {names[0]: X, names[1]: np.ones((5, 3), np.float32)}
    assert [r.shape for r in evaluate(m, feeds)] == [(2, 3), (5, 3)]


@pytest.mark.parametrize("size", ["seq", "seq len", DECODER + "k"])
def test_one_size_is_one(size):
    m = graph([N("Add", ["x", "b"], ["y"])], [tensor("x", [size, 3]), tensor("b", [size, 3])], [untyped("y")])
    np.testing.assert_array_equal(evaluate(m, {"x": X, "b": X})[0], X + X)


# ---- what is declared and what is there ----

@pytest.mark.parametrize("declared,words", [
    (value("w", F, [5, 5]), ["initializer 'w'", "5", "2"]),
    (value("w", I, [2, 3]), ["initializer 'w'", "i64", "f32"]),
    (value("w", F, [6]), ["initializer 'w'", "1 axes"]),
])
def test_initializer_against_input(declared, words):
    bad(relu(input=[declared]), *words, "onnx.checker")


@pytest.mark.parametrize("declared", [value("w", F, ["n", 3]), value("w", F, None), untyped("w")])
def test_initializer_fits_input(declared):
    evaluate(relu(input=[declared]), {"x": X})


@pytest.mark.parametrize("declared,words", [
    (value("a", I, [2, 3]), ["value 'a'", "i64", "f32"]),
    (value("a", F, [4, 3]), ["value 'a'", "axis 0", "4", "2"]),
])
def test_value_info(declared, words):
    bad(relu(value_info=[declared]), *words)


def test_value_info_fits():
    evaluate(relu(value_info=[value("a", F, ["n", 3]), value("elsewhere", I, [7]), untyped("a")]), {"x": X})


def test_output_of_undefined_type():
    m = relu()
    m.graph.output[0].CopyFrom(value("y", onnx.TensorProto.UNDEFINED))
    evaluate(m, {"x": X})


def test_unused_initializer_is_checked():
    m = relu()
    m.graph.initializer[0].dims[0] = 7
    bad(m, "'w'", "84 bytes", "24")
    m.graph.initializer[0].CopyFrom(helper.make_tensor("w", F, [6], range(6)))
    m.graph.initializer[0].dims[0] = 7
    bad(m, "'w'", "7 elements", "6")


def test_unused_initializers_that_pass():
    """What is not supported is no fault where nothing reads it."""
    deep = np.zeros((1,) * 9, np.float32)
    extra = [numpy_helper.from_array(np.zeros(3, np.uint8), "u"), numpy_helper.from_array(deep, "deep"),
             helper.make_tensor("text", onnx.TensorProto.STRING, [1], [b"a"])]
    m = relu(initializer=extra, input=[value("deep", F, [1] * 9), value("u", onnx.TensorProto.UINT8, [3])])
    evaluate(m, {"x": X})


@pytest.mark.parametrize("code,name", [(17, "float8e4m3fn"), (14, "complex64"), (22, "int4"), (8, "string"), (2, "u8"),
                                       (99, "99"), (0, "undefined")])
def test_types_are_named(code, name):
    m = relu()
    m.graph.input[0].type.tensor_type.elem_type = code
    bad(m, "'x'", name, kind=Refused)


# ---- attributes ----

@pytest.mark.parametrize("op,opset,name,given,words", [
    ("Softmax", 17, "axis", 1.5, ["attribute axis is a float, wanted an int"]),
    ("Softmax", 17, "axis", [1], ["axis is ints, wanted an int"]),
    ("LeakyRelu", 17, "alpha", 1, ["alpha is an int, wanted a float"]),
    ("Transpose", 17, "perm", 1, ["perm is an int, wanted ints"]),
    ("Gelu", 20, "approximate", 1, ["approximate is an int, wanted a string"]),
    ("Clip", 10, "min", 1, ["min is an int, wanted a float"]),
])
@pytest.mark.parametrize("typed", [True, False])
def test_attribute_of_another_kind(op, opset, name, given, words, typed):
    m = graph([N(op, ["x"], ["y"], **{name: given})], [tensor("x", [2, 3])], [untyped("y")], opset=opset)
    if not typed:  # as old files have it
        m.graph.node[0].attribute[0].ClearField("type")
    bad(m, "node 'y'", *words)


def test_attributes_without_a_type():
    m = graph([N("Softmax", ["x"], ["s"], axis=0), N("Transpose", ["s"], ["y"], perm=[1, 0])], [tensor("x", [2, 3])],
              [untyped("y")])
    for n in m.graph.node:
        n.attribute[0].ClearField("type")
    np.testing.assert_allclose(evaluate(m, {"x": X})[0].sum(1), np.ones(3), rtol=1e-6)


# ---- sizes that meet ----

def meets(nodes, shape, inits, x):
    return evaluate(graph(nodes, [tensor("x", shape)], [untyped("y")], inits), {"x": x})[0]


def test_free_size_meets_zero():
    x = np.zeros((0, 4), np.float32)
    assert meets([N("Add", ["x", "w"], ["y"])], ["n", 4], [("w", x)], x).shape == (0, 4)
    assert meets([N("Concat", ["x", "w"], ["y"], axis=1)], ["n", 4], [("w", x)], x).shape == (0, 8)
    one = np.ones((1, 4), np.float32)
    with pytest.raises((Bad, Refused)):  # a free size is not stretched
        meets([N("Expand", ["x", "w"], ["y"])], ["n", 4], [("w", np.array([0, 4]))], one)
    w, wide = np.zeros((0, 3), np.float32), np.zeros((2, 0), np.float32)
    np.testing.assert_array_equal(meets([N("MatMul", ["x", "w"], ["y"])], ["b", "n"], [("w", w)], wide), np.zeros((2, 3)))


@pytest.mark.parametrize("node,w", [
    (N("Mul", ["t", "w"], ["y"]), np.ones(30, np.float32)),
    (N("MatMul", ["t", "w"], ["y"]), np.ones((30, 2), np.float32)),
    (N("LayerNormalization", ["t", "w"], ["y"]), np.ones(30, np.float32)),
    (N("Concat", ["t", "w"], ["y"], axis=0), np.ones((2, 30), np.float32)),
])
def test_products_against_numbers_are_not_faults(node, w):
    with pytest.raises(Refused, match=r"sizes .*s\*d.* cannot be proven equal"):
        meets([N("Flatten", ["x"], ["t"]), node], ["b", "s", "d"], [("w", w)], np.ones((2, 5, 6), np.float32))


def test_sizes_that_differ_are_faults():
    nodes = [N("Concat", ["x", "one"], ["t"], axis=0), N("Add", ["t", "x"], ["y"])]  # n + 1 against n
    with pytest.raises(Bad, match="broadcast"):
        meets(nodes, ["n", 3], [("one", X[:1])], X)


# ---- names ----

@pytest.mark.parametrize("nodes,words", [
    ([N("Add", ["x", "b"], ["a"]), N("Relu", ["a"], ["y"]), N("Neg", ["a"], ["b"])], ["cycle", "node 'a'"]),
    ([N("Relu", ["x"], ["y"]), N("Neg", ["x"], ["y"])], ["node 'y'", "once"]),
    ([N("Add", ["x", "zz"], ["y"])], ["node 'y'", "'zz'"]),
    ([N("Add", ["x"], ["y"])], ["node 'y'", "1 inputs"]),
    ([N("Transpose", ["x"], ["y"], perm=[0, 0])], ["node 'y'", "perm"]),
    ([N("Relu", ["x"], ["a"])], ["output 'y'"]),
])
def test_faults_name_the_node_and_what_to_do(nodes, words):
    bad(graph(nodes, [tensor("x", [2, 3])], [untyped("y")]), *words, "onnx.checker")


def ints(*v):
    return np.array(v, np.int64)


def ones(*shape):
    return np.ones(shape, np.float32)


FAULTS = [  # node, shape of x, opset, initializers, words
    (N("Split", ["w", "k"], [*"yabcdefgh"], axis=0), [1], 17, {"w": np.arange(12), "k": ints(*[64] * 8, -500)}, ["part 8", "-500"]),
    (N("Split", ["x", "k"], ["y", "a"], axis=0), ["n"], 17, {"k": ints(-1, 4)}, ["part 0", "-1"]),
    (N("Split", ["x", "k"], ["y", "a"], axis=0), [4], 17, {"k": ints(3, 2)}, ["5 and 4 differ"]),
    (N("Split", ["x"], ["y", "a"]), [5], 13, {}, ["axis of 5", "2 equal parts"]),
    (N("Split", ["x"], ["y", "a"], num_outputs=3), [6], 18, {}, ["num_outputs is 3", "2 outputs"]),
    (N("Slice", ["x", "s", "e", "a"], ["y"]), [5, 5], 17, {"s": ints(0, 1), "e": ints(3, 4), "a": ints(0, -2)}, ["axis 0", "twice"]),
    (N("Slice", ["x"], ["y"], starts=[0, 1], ends=[3, 4], axes=[1, 1]), [5, 5], 9, {}, ["axis 1", "twice"]),
    (N("Transpose", ["x"], ["y"], perm=[-1, 0]), [2, 3], 17, {}, ["perm", "2 axes"]),
    (N("Gemm", ["x", "w", "c"], ["y"]), [3, 2], 17, {"w": ones(2, 4), "c": ones(1, 3, 4)}, ["C has 3 axes"]),
    (N("Gemm", ["x", "w", "c"], ["y"], beta=0.0), [3, 2], 17, {"w": ones(2, 4), "c": ones(3)}, ["f32[3,4] and f32[3]"]),
    (N("Gemm", ["x", "w", "c"], ["y"]), [1, 2], 17, {"w": ones(2, 4), "c": ones(3, 4)}, ["C", "3 and 1 differ"]),
    (N("Gemm", ["x", "w", "c"], ["y"]), ["n", 2], 17, {"w": ones(2, 1), "c": ones(1, 4)}, ["C", "4 and 1 differ"]),
]


@pytest.mark.parametrize("node,shape,opset,inits,words", FAULTS)
def test_faults_that_onnx_runtime_rejects_too(node, shape, opset, inits, words):
    x = {"x": np.ones([3 if s == "n" else s for s in shape], np.float32)}
    outs = [value(o, I if node.input[0] == "w" else F) for o in node.output]
    m = graph([node], [tensor("x", shape)], outs, inits.items(), opset=opset)
    with pytest.raises(Exception, match="ONNXRuntimeError"):
        runtime(m, x)
    with pytest.raises(Bad, match="INVALID") as caught:
        evaluate(m, x)
    for word in ("node 'y'", *words):
        assert word in str(caught.value)


# ---- limits ----

@pytest.mark.parametrize("op", ["ReduceL2", "ReduceLogSum", "ReduceLogSumExp"])
@pytest.mark.parametrize("t", ["int64", "int32"])
def test_roots_and_logarithms_of_integers(op, t):
    """Legal, and not a fault of the model."""
    m = graph([N("Cast", ["x"], ["i"], to=helper.np_dtype_to_tensor_dtype(np.dtype(t))), N(op, ["i"], ["y"])],
              [tensor("x", [2, 3])], [untyped("y")])
    bad(m, f"UNSUPPORTED: {op}", t.replace("nt", ""), "f32 is supported", "cast", kind=Refused)


def test_many_sizes_as_data():
    nodes = [N("Shape", ["x"], ["s"]), N("Concat", ["s", "k"], ["t"], axis=0), N("Cast", ["t"], ["y"], to=F)]
    m = graph(nodes, [tensor("x", ["n", 3])], [untyped("y")], [("k", np.arange(7))])
    bad(m, "UNSUPPORTED: Cast", "9 numbers", "limit is 8", "fixed sizes", kind=Refused)
    m = graph(nodes, [tensor("x", ["n", 3])], [untyped("y")], [("k", np.arange(6))])
    np.testing.assert_array_equal(evaluate(m, {"x": X})[0], [2, 3, *range(6)])


# ---- every operator on every element type ----

ROW = re.compile(r'\{"(\w+)", (\d+), (\d+), (\d+|UINT8_MAX|MANY), op_')
ROWS = [r for f in sorted((ROOT / "src/frontend").glob("fe_onnx_ops_*.c")) for r in ROW.findall(f.read_text())]
T = onnx.TensorProto
TYPES = [T.FLOAT, T.FLOAT16, T.DOUBLE, T.INT64, T.INT32, T.BOOL, T.UINT8, T.STRING]
ATTRS = {"Einsum": {"equation": "ij,ij->i"}, "Cast": {"to": F}, "Split": {"axis": 1},
         "Constant": {"value": numpy_helper.from_array(X)}}
OPERANDS = {  # behind the first one, where they say what shape comes out
    "CumSum": [1], "Expand": [[2, 3]], "Gather": [[1]], "GatherElements": [[[1, 0, 1]]], "GatherND": [[[1, 0]]],
    "Pad": [[0, 1, 0, 1]], "Reshape": [[3, -1]], "Slice": [[0, 1], [2, 3]], "Split": [[1, 2]], "Squeeze": [[0]],
    "Tile": [[2, 1]], "TopK": [[2]], "Trilu": [1], "Unsqueeze": [[0]],
    **{op: [[1]] for op, *_ in ROWS if op.startswith("Reduce")}}


def small_model(op, n_in, t, opset, given, constant):
    """One node with n_in operands of type t and shape [2,3], or those of the table behind the first one."""
    data = [helper.make_tensor("x", t, [2, 3], [b"a"] * 6 if t == T.STRING else [1] * 6)]
    data += [numpy_helper.from_array(np.array(v, np.int64), "") for v in given or []]
    data += [helper.make_tensor("", t, [2, 3], data[0].string_data or [1] * 6) for _ in range(n_in - len(data))]
    for i, x in enumerate(data[:n_in]):
        x.name = f"x{i}"
    from_file = data[0 if constant else 1:n_in] if given or constant else []
    inputs = [value(x.name, x.data_type, ["n", 3]) for x in data[:n_in] if x not in from_file]
    outs = ["y", "z"] if op in ("Split", "TopK", "Dropout") else ["y"]
    m = graph([N(op, [x.name for x in data[:n_in]], outs, **ATTRS.get(op, {}))], inputs, [untyped(o) for o in outs], opset=opset)
    m.graph.initializer.extend(from_file)
    return m.SerializeToString()


def small_models(op, since, fewest, most):
    given, fewest = OPERANDS.get(op, []), int(fewest)
    counts = {fewest, min(fewest + 1, int(most)) if most.isdigit() else 2, max(fewest, 1 + len(given))}
    for opset in sorted({o for o in (7, 11, 13, 18) if o >= int(since)} | {max(7, int(since))}):
        for t in TYPES:
            for n_in in counts:
                for constant in (False, True)[:1 + (opset >= 13)]:
                    for g in ([], given) if given else ([],):
                        yield small_model(op, n_in, t, opset, g, constant)


@pytest.mark.parametrize("row", ROWS, ids=lambda r: r[0])
def test_every_operator_answers(row, tmp_path):
    """A graph or a reason, and no crash: builders that failed return 0, which handlers must not look into."""
    for i, m in enumerate(dict.fromkeys(small_models(*row))):
        path = tmp_path / f"{i}.onnx"
        path.write_bytes(m)
        r = subprocess.run([tool(), path, tmp_path, "--print"], capture_output=True, text=True, timeout=60)
        answered = r.returncode == 0 or (r.returncode > 0 and r.stderr and "INTERNAL" not in r.stderr)
        assert answered, f"{path}: {r.returncode} {r.stderr}"
