"""Every op at sizes 0, 1, odd and beside powers of two, on every element type it has, and over every kind of view.

Each test is one graph of many ops with free sizes, compiled once and run at all sizes on all targets; the evaluator judges.
"""
import numpy as np
import pytest

import op_cases
from built import ROOT
from device import Compiled, rtx, targets_cached
from graphs import Graph, edges, rows_of
from tolerance import EQUAL_TERMS, NORM, judge

ROWS = {name: (int(lo), int(hi), rule, level) for name, lo, hi, rule, level in rows_of(ROOT / "src/ir/ops.def")}
FLOAT_RULES, LOGIC = ("same_float", "test_float"), "logic"
ELEMENTWISE = {n: r for n, r in ROWS.items() if r[2] in ("same", "same_float", "test_float", "logic", "compare", "select", "cast")}
COVERED = set()


def sweep(g, sizes, seed=1, limit=NORM):
    """Runs one graph at each of `sizes` on all targets. Collects all faults, so that one bad op does not hide others."""
    rng, faults = np.random.default_rng(seed), []
    COVERED.update(op for _, op in g.outputs)
    COVERED.update(t.split()[0] for _, t in g.lines)
    with Compiled(g.text()) as c:
        for s in sizes:
            inputs = g.feed(s, rng)
            want, terms = op_cases.run(g.text(), inputs)
            for target, got in c.run(inputs).items():
                for k, (_, op) in enumerate(g.outputs):
                    factors = np.prod(list(s.values()), dtype=float) + 2  # of a product, each rounds twice
                    fault = judge(op, got[k], want[k], terms[k], factors * 2.0**-23 if op == "reduce_prod" else limit)
                    if fault:
                        faults.append(f"{target} {s} output {k} {op}: {fault}")
    if faults:
        pytest.fail(f"{len(faults)} faults\n" + "\n".join(faults[:12]) + "\n" + g.text()[:4000], pytrace=False)


def elementwise(dtype):
    g = Graph(n=(0, None))
    a, b, c = g.input(dtype, "n"), g.input(dtype, "n"), g.input("bool", "n")
    pos = g.node("abs", a) if dtype == "f32" else None
    for op, (lo, hi, rule, _) in ELEMENTWISE.items():
        if (dtype == "f32") == (rule == LOGIC) and dtype != "bool" or (dtype != "f32" and rule in FLOAT_RULES):
            continue
        if rule == "cast":
            for to in ("f32", "i64", "i32", "bool"):
                if to != dtype:
                    g.ops("cast", a, to=to)
        elif op == "select":
            g.ops(op, c, a, b)
        elif dtype == "f32" and op == "mod" or (dtype == "bool") != (rule == LOGIC or op in ("eq", "ne")) and dtype == "bool":
            continue
        elif dtype not in ("f32", "bool") and rule == LOGIC:
            continue
        elif lo == 1:
            g.ops(op, pos if op in ("log", "sqrt", "rsqrt") else a)
        elif op == "pow" and dtype == "f32":
            g.ops(op, pos, b)
        else:
            g.ops(op, a, b)
    return g


@pytest.mark.parametrize("dtype", ["f32", "i64", "i32", "bool"])
def test_elementwise_sizes(dtype):
    sweep(elementwise(dtype), [{"n": n} for n in [*edges(4096), 1000, 20011]])


PAIRS = [(0, 5), (5, 0), (0, 0), (1, 1), (1, 7), (7, 1), (3, 5), (15, 17), (16, 16), (17, 15), (31, 33), (63, 64), (65, 63), (2, 513),
         (129, 127), (511, 3), (257, 40)]


def views(g, dtype):
    """{kind: value of shape [n, m]}: strided in every way a consumer may meet."""
    def x(*dims):
        return g.input(dtype, *dims)

    turned = g.node("permute", x("m", "n"), perm=[1, 0])
    every = g.node("slice", x("2*n + 1", "m + 3"), start=[1, 2], size=["n", "m"], step=[2, 1])
    back = g.node("slice", x("n + 1", "3*m + 1"), start=["n", "3*m"], size=["n", "m"], step=[-1, -3])
    row = g.node("broadcast", x("m"), dims=["n", "m"])
    column = g.node("broadcast", x("n", 1), dims=["n", "m"])
    one = g.node("broadcast", x(1, 1), dims=["n", "m"])
    joined = g.node("reshape", g.node("permute", x("m", 2, "n"), perm=[2, 0, 1]), dims=["n", "2*m"])
    half = g.node("slice", joined, start=[0, "m"], size=["n", "m"], step=[1, 1])
    split = g.node("reshape", g.node("permute", x("m", "n"), perm=[1, 0]), dims=["n*m"])
    split = g.node("reshape", split, dims=["n", "m"])
    back_row = g.node("slice", g.node("broadcast", x("m + 1"), dims=["n + 2", "m + 1"]), start=["n", "m"], size=["n", "m"], step=[-1, -1])
    deep = g.node("permute", g.node("slice", g.node("permute", x("n", 3, "m"), perm=[2, 1, 0]), start=[0, 2, 0],
                                    size=["m", 1, "n"], step=[1, -1, 1]), perm=[1, 2, 0])
    deep = g.node("reshape", deep, dims=["n", "m"])
    return {"whole": x("n", "m"), "permute": turned, "every second": every, "backwards": back, "row": row, "column": column,
            "one": one, "half of a joined": half, "split": split, "backwards row": back_row, "deep": deep}


KINDS = list(views(Graph(n=(0, None), m=(0, None)), "f32"))


def consumers_of_any(g, v, dtype):
    g.out(v, "reshape")  # the view itself is an output
    w = g.input(dtype, "n", "m")
    g.ops("concat", v, w, axis=0)
    g.ops("concat", w, v, v, axis=1)
    g.ops("reshape", v, dims=["n*m"])
    g.ops("permute", v, perm=[1, 0])
    g.ops("broadcast", v, dims=[3, "n", "m"])
    c = g.input("bool", "n", "m")
    g.ops("select", c, v, w)
    g.ops("select", g.node("permute", g.input("bool", "m", "n"), perm=[1, 0]), w, v)
    g.ops("cast", v, to="f32" if dtype != "f32" else "i32")
    g.ops("eq", v, w)


def indexed(g, v):
    g.ops("slice", v, start=[0, "m - 1"], size=["n", "m"], step=[1, -1])
    g.ops("gather_elements", v, g.input("i64", "n", 5, below="m"), axis=1)
    g.ops("gather_elements", v, g.input("i32", 3, "m", below="n"), axis=0)
    g.ops("gather", v, g.input("i64", 4, below="n"), axis=0)
    g.ops("gather", v, g.input("i32", 2, 2, below="m"), axis=1)
    g.ops("gather_nd", v, g.input("i64", 6, 1, below="n"), batch=0)
    g.ops("gather_nd", v, g.input("i64", "n", 2, 1, below="m"), batch=1)


def consumers_of_numbers(g, v, dtype):
    w = g.input(dtype, "n", "m")
    for op in ("neg", "abs", "sign", "relu"):
        g.ops(op, v)
    for op in ("add", "sub", "mul", "div", "max", "lt", "ge"):
        g.ops(op, v, w) if op != "sub" else g.ops(op, w, v)
    near_one = v  # products of many factors leave the range
    if dtype == "f32":
        dims = ["n", "m"]
        near_one = g.node("add", g.node("mul", v, g.node("broadcast", g.const(np.float32(0.03125)), dims=dims)),
                          g.node("broadcast", g.const(np.float32(1)), dims=dims))
    for axes in ([0], [1], [0, 1], []):
        for op in ("reduce_sum", "reduce_max", "reduce_min"):
            g.ops(op, v, axes=axes)
        g.ops("reduce_prod", near_one, axes=axes)
    for axis in (0, 1):
        g.ops("cumsum", v, axis=axis, exclusive=axis, reverse=1 - axis)


def lines_of_numbers(g, v):
    for axis in (0, 1):
        for flag in (0, 1):
            g.ops("argmax", v, axis=axis, last=flag)
            g.ops("argmin", v, axis=axis, last=1 - flag)
            g.ops("topk", v, axis=axis, largest=flag, k=[1])


def consumers_of_floats(g, v):
    m = g.input("f32", "m", 6)
    for op in ("exp", "tanh", "gelu", "gelu_tanh", "silu", "erf", "sigmoid"):
        g.ops(op, v)
    g.ops("swiglu", v, g.input("f32", "n", "m"))
    for axes in ([0], [1], [0, 1]):
        g.ops("reduce_mean", v, axes=axes)
    g.ops("dot", v, m)
    g.ops("dot", g.input("f32", 5, "n"), v)
    g.ops("dot", v, g.node("permute", v, perm=[1, 0]))
    g.ops("softmax", v)
    g.ops("layernorm", v, g.input("f32", "m"), g.input("f32", "m"), eps=1e-5)
    g.ops("layernorm", v, eps=1e-5)
    g.ops("rmsnorm", v, g.input("f32", "m"), eps=1e-6)
    q = g.node("reshape", v, dims=[1, 1, "n", "m"])
    g.ops("attention", q, q, g.input("f32", 1, 1, "n", 7), scale=0.01, causal=1, nan_zero=0)
    turned = g.node("reshape", g.node("permute", v, perm=[1, 0]), dims=[1, 1, "m", "n"])
    g.ops("attention", g.input("f32", 1, 2, 9, "n"), turned, g.input("f32", 1, 1, "m", 4),
          g.node("broadcast", g.input("f32", 1, 1, 1, "m"), dims=[1, 2, 9, "m"]), scale=0.01, causal=0, nan_zero=1)
    even = g.node("concat", v, v, axis=1)
    for interleaved in (0, 1):
        g.ops("rope", even, g.input("f32", "n", "2*m"), g.node("broadcast", g.input("f32", "2*m"), dims=["n", "2*m"]),
              interleaved=interleaved)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", ["f32", "i64", "i32", "bool"])
def test_views(kind, dtype):
    g = Graph(n=(0, None), m=(0, None))
    v = views(g, dtype)[kind]
    consumers_of_any(g, v, dtype)
    if dtype != "bool":
        consumers_of_numbers(g, v, dtype)
    if dtype == "f32":
        consumers_of_floats(g, v)
    g.drop_unused()
    sweep(g, [dict(zip("nm", p)) for p in (PAIRS if dtype == "f32" else PAIRS[::2])],
          limit=EQUAL_TERMS if kind in ("row", "column", "one", "backwards row") else NORM)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", ["f32", "i64"])
def test_views_of_lines(kind, dtype):
    """What needs at least one element along the axis."""
    g = Graph(n=(1, None), m=(1, None))
    v = views(g, dtype)[kind]
    indexed(g, v)
    lines_of_numbers(g, v)
    g.drop_unused()
    sweep(g, [dict(zip("nm", p)) for p in PAIRS[3:]])


def test_dot_sizes():
    """Weights as constants (packed) and as inputs, batches, both operands turned."""
    rng = np.random.default_rng(3)
    for k, n in ((1, 1), (3, 17), (16, 16), (33, 15), (64, 65), (0, 4), (257, 48)):
        g = Graph(m=(0, None))
        x, w = g.input("f32", "m", k), rng.standard_normal((k, n)).astype(np.float32)
        g.ops("dot", x, g.const(w))
        g.ops("dot", x, g.input("f32", k, n))
        g.ops("dot", g.node("permute", g.input("f32", k, "m"), perm=[1, 0]), g.const(w))
        g.ops("dot", x, g.node("permute", g.const(w.T), perm=[1, 0]))
        h = g.node("add", g.node("dot", x, g.const(w)), g.node("broadcast", g.const(w[0] if k else np.ones(n)), dims=["m", n]))
        g.out(g.node("relu", h), "dot")
        sweep(g, [{"m": m} for m in (0, 1, 2, 5, 15, 16, 17, 33, 65, 128, 131)])
    g = Graph(b=(0, None), m=(0, None), k=(0, None), n=(0, None))
    g.ops("dot", g.input("f32", "b", 2, "m", "k"), g.input("f32", "b", 2, "k", "n"))
    g.ops("dot", g.node("permute", g.input("f32", "b", "m", 3, "k"), perm=[0, 2, 1, 3]),
          g.node("permute", g.input("f32", "b", "n", 3, "k"), perm=[0, 2, 3, 1]))
    g.ops("dot", g.node("broadcast", g.input("f32", "m", "k"), dims=["b", "m", "k"]), g.input("f32", "b", "k", "n"))
    sweep(g, [dict(zip("bmkn", s)) for s in ((0, 1, 1, 1), (1, 0, 3, 2), (2, 3, 0, 5), (1, 1, 1, 1), (2, 17, 33, 15), (3, 5, 600, 31),
                                             (1, 65, 64, 129))])


@pytest.mark.parametrize("dim,value", [(1, 1), (8, 8), (17, 5), (32, 64), (65, 16)])
def test_attention_sizes(dim, value):
    g = Graph(b=(0, None), s=(0, None), t=(0, None))
    q, k, v = g.input("f32", "b", 4, "s", dim), g.input("f32", "b", 2, "t", dim), g.input("f32", "b", 2, "t", value)
    turned = [g.node("permute", g.input("f32", "b", "t", 4, e), perm=[0, 2, 1, 3]) for e in (dim, value)]
    mask = g.node("broadcast", g.input("f32", "b", 1, 1, "t"), dims=["b", 4, "s", "t"])
    for causal in (0, 1):
        g.ops("attention", q, k, v, scale=dim**-0.5, causal=causal, nan_zero=causal)
        g.ops("attention", q, *turned, mask, scale=dim**-0.5, causal=causal, nan_zero=0)
    sizes = ((0, 3, 3), (1, 0, 4), (1, 1, 1), (2, 3, 3), (1, 16, 17), (1, 15, 16), (1, 33, 31), (2, 7, 65), (1, 1, 513), (1, 64, 64))
    sweep(g, [dict(zip("bst", s)) for s in sizes])


def test_sources():
    g = Graph(n=(0, None), m=(1, None))
    g.input("f32", "n", "m")
    g.ops("dimvals", dims=["n", "2*m", "n + m", 7], scalar=0)
    g.ops("dimvals", dims=["n*m"], scalar=1)
    for axis in (0, 1, -1):
        g.ops("iota", dims=["n", "m"], axis=axis)
    g.ops("add", g.node("iota", dims=["n", "m"], axis=0), g.node("iota", dims=["n", "m"], axis=1))
    g.out(g.const([1.5, -2]), "const")
    g.out(0, "input")
    sweep(g, [dict(zip("nm", p)) for p in PAIRS if p[1]])


def test_special_values_reach_every_reduction():
    """NaN and infinities anywhere in a row or tile."""
    g = Graph(n=(0, None), m=(0, None))
    x = g.input("f32", "n", "m")
    for axis in (0, 1):
        for op in ("reduce_sum", "reduce_mean", "reduce_max", "reduce_min"):
            g.ops(op, x, axes=[axis])
        g.ops("cumsum", x, axis=axis)
    g.ops("softmax", x)
    g.ops("layernorm", x, eps=1e-5)
    g.ops("rmsnorm", x, eps=1e-5)
    g.ops("dot", x, g.input("f32", "m", 17))
    rng, faults = np.random.default_rng(5), []
    with Compiled(g.text()) as c:
        for s in ((3, 5), (4, 33), (2, 700), (33, 4), (65, 64)):
            x, w = g.feed(dict(zip("nm", s)), rng)
            x[0, s[1] // 2], x[1, 0], x[-1, -1] = np.nan, np.inf, -np.inf
            want, terms = op_cases.run(g.text(), [x, w])
            for target, got in c.run([x, w]).items():
                faults += [f"{target} {s} {op}: {f}" for k, (_, op) in enumerate(g.outputs)
                           if (f := judge(op, got[k], want[k], terms[k]))]
    assert not faults, "\n".join(faults)


ATTRS = {"reshape": dict(dims=[6]), "broadcast": dict(dims=[2, 2, 3]), "permute": dict(perm=[1, 0]),
         "slice": dict(start=[1, 2], size=[2, 2], step=[-1, -1]), "concat": dict(axis=0), "gather": dict(axis=0),
         "gather_nd": dict(batch=0), "gather_elements": dict(axis=0), "argmax": dict(axis=0, last=0), "argmin": dict(axis=0, last=0),
         "cumsum": dict(axis=0, exclusive=0, reverse=0), "topk": dict(axis=0, largest=1, k=[1]), "layernorm": dict(eps=1e-5),
         "rmsnorm": dict(eps=1e-5), "attention": dict(scale=1.0, causal=0, nan_zero=0), "rope": dict(interleaved=0),
         **{f"reduce_{r}": dict(axes=[0]) for r in ("sum", "mean", "max", "min", "prod")}}
DTYPES = ("f32", "i64", "i32", "bool", "f16", "bf16", "f64")


def one_node(op, dtype, to=None):
    """The smallest graph of an op on a type; None where the op has no typed input."""
    lo, _, rule, _ = ROWS[op]
    if lo == 0:
        return None
    g, shape = Graph(), {"attention": (1, 1, 2, 3), "rope": (2, 4), "dot": (2, 2)}.get(op, (2, 3))
    ids = [g.input("bool", *shape)] if op == "select" else [g.input(dtype, *shape)]
    while len(ids) < lo:
        index = op.startswith("gather")
        ids.append(g.input("i64", *((1, 1) if op == "gather_nd" else shape), below=1) if index else g.input(dtype, *shape))
    g.ops(op, *ids, **(dict(to=to) if op == "cast" else ATTRS.get(op, {})))
    return g


def test_every_type_is_served_or_refused():
    """Whatever the evaluator takes compiles, or is UNSUPPORTED with a reason; f32, i64, i32 and bool always compile."""
    refused, served = [], 0
    for op in ROWS:
        for dtype in DTYPES:
            for to in DTYPES if op == "cast" else (None,):
                g = one_node(op, dtype, to)
                if g is None or dtype == to:
                    continue
                rng = np.random.default_rng(1)
                try:
                    inputs = g.feed({}, rng) if dtype != "bf16" else None
                    if inputs is not None:
                        want, terms = op_cases.run(g.text(), inputs)
                except op_cases.Refused:
                    continue
                try:
                    with Compiled(g.text()) as c:
                        if inputs is not None:
                            for target, got in c.run(inputs).items():
                                fault = judge(op, got[0].astype(np.float32) if got[0].dtype == np.uint16 else got[0], want[0], terms[0]) \
                                    if to != "bf16" else None
                                assert fault is None, f"{op} {dtype} {to or ''} on {target}: {fault}"
                        served += 1
                except rtx.Unsupported as e:
                    assert len(str(e)) > 20
                    refused.append((op, dtype, to))
                except rtx.Error as e:
                    assert dtype == "bf16", f"{op} {dtype} {to}: {e}"
    print(f"{served} pairs of op and type compile; refused: {refused}")
    assert not [r for r in refused if r[1] in DTYPES[:4] and r[2] in (None, *DTYPES[:4])], refused


def test_targets():
    """Says what ran; on this kind of device the levels must really differ."""
    run, missing = targets_cached()
    print("ran on", [n for n, _ in run], "; not on this machine:", missing)
    assert run


def test_every_op_has_a_case():
    """Both suites: the shared cases and the sweeps of this file (run alone, this test sees only the first)."""
    cases = {op for op, _, _ in op_cases.CASES}
    assert set(ROWS) == cases | (set(ROWS) & COVERED)
    assert set(ROWS) == cases, set(ROWS) - cases
