"""Random graphs with free sizes through the whole chain: equal to the evaluator, and equal bits at every number of threads.

Ops that jump (comparisons, casts to integers, argmax) only take values that fp32 holds exactly, and magnitudes are tracked, so
that the tolerance of an output follows from what it is made of: TOLERANCE times the larger of its norm and its parts'.
"""
import os
import shutil
import sys
from pathlib import Path

import numpy as np
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import op_cases

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "device"))
from device import Compiled, rtx_tool  # noqa: E402
from graphs import Graph  # noqa: E402

TOLERANCE = 1e-5
THREADS = (1, 2, 3, 7)
SIZES = ({"n": 1, "m": 1}, {"n": 5, "m": 3}, {"n": 16, "m": 17}, {"n": 33, "m": 8})
TOP = 66  # no axis is longer, but for products
SETTINGS = dict(derandomize=True, deadline=None, database=None, suppress_health_check=list(HealthCheck))
SMOOTH = ("tanh", "sigmoid", "gelu", "gelu_tanh", "silu", "erf", "sin", "cos")


class Val:
    def __init__(self, id, dtype, dims, exact=False, mag=1.0):
        self.id, self.dtype, self.dims, self.exact, self.mag = id, dtype, tuple(map(str, dims)), exact, mag


class Maker:
    """Draws one node after another; every rule returns a Val or None where it does not apply."""

    def __init__(self, draw):
        self.draw, self.g, self.vals, self.used = draw, Graph(n=(1, 512), m=(1, 512)), [], set()
        for dims in (("n", "m"), ("m", "n"), ("n", 4)):
            self.add(Val(self.g.input("f32", *dims), "f32", dims, True, 3.0))
        self.add(Val(self.g.input("i64", "n", "m"), "i64", ("n", "m"), True, 9.0))

    def add(self, v):
        self.vals.append(v)
        return v

    def pick(self, want):
        found = [v for v in self.vals if want(v)]
        return self.draw(st.sampled_from(found[-6:])) if found else None

    def node(self, op, *vals, dims, dtype=None, exact=False, mag=1.0, **attrs):
        self.used.update(v.id for v in vals)
        return self.add(Val(self.g.node(op, *[v.id for v in vals], **attrs), dtype or vals[0].dtype, dims, exact, mag))

    def axis(self, v):
        return self.draw(st.integers(0, len(v.dims) - 1))

    def weights(self, *shape):
        rng = np.random.default_rng(self.draw(st.integers(0, 99)))
        return self.g.const((rng.standard_normal(shape) / 2).astype(np.float32))

    # ---- rules ----

    def smooth(self):
        v = self.pick(lambda v: v.dtype == "f32")
        op = self.draw(st.sampled_from(SMOOTH))
        return self.node(op, v, dims=v.dims, mag=max(v.mag, 1))

    def sharp(self):
        v = self.pick(lambda v: v.dtype != "bool")
        return self.node(self.draw(st.sampled_from(("neg", "abs", "relu"))), v, dims=v.dims, exact=v.exact, mag=v.mag)

    def binary(self):
        a = self.pick(lambda v: v.dtype != "bool")
        b = self.pick(lambda v: v.dtype == a.dtype and v.dims == a.dims)
        op = self.draw(st.sampled_from(("add", "sub", "mul", "max", "min")))
        mag = a.mag * b.mag if op == "mul" else a.mag + b.mag
        if mag > 1e6:
            return None
        return self.node(op, a, b, dims=a.dims, exact=a.dtype == "i64" or (op in ("max", "min") and a.exact and b.exact), mag=mag)

    def bias(self):
        v = self.pick(lambda v: v.dtype == "f32" and v.dims and v.dims[-1] == "4")
        if v is None:
            return None
        w = Val(self.weights(4), "f32", ("4",))
        row = Val(self.g.node("broadcast", w.id, dims=v.dims), "f32", v.dims, True, 2.0)
        return self.node("add", v, row, dims=v.dims, mag=v.mag + 2)

    def turn(self):
        v = self.pick(lambda v: len(v.dims) >= 2)
        perm = self.draw(st.permutations(range(len(v.dims))))
        return self.node("permute", v, dims=[v.dims[k] for k in perm], exact=v.exact, mag=v.mag, perm=perm)

    def flatten(self):
        v = self.pick(lambda v: len(v.dims) == 2 and "*" not in "".join(v.dims))
        if v is None:
            return None
        back = (v.dims[1], v.dims[0])
        text = f"({v.dims[0]})*({v.dims[1]})"
        flat = self.g.node("reshape", v.id, dims=[text])
        self.used.add(v.id)
        return self.add(Val(self.g.node("reshape", flat, dims=back), v.dtype, back, v.exact, v.mag))

    def reverse(self):
        v = self.pick(lambda v: len(v.dims) >= 1)
        k = self.axis(v)
        start = [f"{d} - 1" if i == k else 0 for i, d in enumerate(v.dims)]
        step = [-1 if i == k else 1 for i in range(len(v.dims))]
        return self.slice(v, start, v.dims, step)

    def slice(self, v, start, size, step):
        self.used.add(v.id)
        return self.add(Val(self.g.node("slice", v.id, start=start, size=list(size), step=step), v.dtype, size, v.exact, v.mag))

    def spread(self):
        v = self.pick(lambda v: len(v.dims) in (1, 2))
        dims = ("3",) + v.dims if v is not None else None
        if v is None:
            return None
        self.used.add(v.id)
        return self.add(Val(self.g.node("broadcast", v.id, dims=dims), v.dtype, dims, v.exact, v.mag))

    def reduce(self):
        v = self.pick(lambda v: v.dtype != "bool" and len(v.dims) >= 2)
        k = self.axis(v)
        op = self.draw(st.sampled_from(("reduce_sum", "reduce_mean", "reduce_max", "reduce_min")))
        if op == "reduce_mean" and v.dtype != "f32" or v.mag * TOP > 1e6:
            return None
        dims = [d for i, d in enumerate(v.dims) if i != k]
        return self.node(op, v, dims=dims, exact=v.exact and op in ("reduce_max", "reduce_min") or v.dtype == "i64",
                         mag=v.mag * (TOP if op == "reduce_sum" else 1), axes=[k])

    def rows(self):
        v = self.pick(lambda v: v.dtype == "f32" and len(v.dims) >= 1 and v.mag < 200)
        if v is None:
            return None
        if self.draw(st.booleans()):
            return self.node("softmax", v, dims=v.dims, mag=max(1.0, v.mag))
        if v.dims[-1] == "4":
            gamma = Val(self.weights(4), "f32", ("4",))
            return self.node("layernorm", v, gamma, dims=v.dims, mag=3 * max(1.0, v.mag), eps=0.1)
        return self.node("rmsnorm", v, dims=v.dims, mag=3 * max(1.0, v.mag), eps=0.1)

    def scan(self):
        v = self.pick(lambda v: v.dtype != "bool" and len(v.dims) >= 1 and v.mag * TOP < 1e6)
        if v is None:
            return None
        return self.node("cumsum", v, dims=v.dims, exact=v.dtype == "i64", mag=v.mag * TOP, axis=self.axis(v),
                         exclusive=self.draw(st.integers(0, 1)), reverse=self.draw(st.integers(0, 1)))

    def linear(self):
        v = self.pick(lambda v: v.dtype == "f32" and len(v.dims) >= 2 and v.dims[-1] == "4" and v.mag < 1e4 and len(v.dims) <= 3)
        if v is None:
            return None
        if len(v.dims) == 3:
            w = Val(self.g.node("broadcast", self.weights(4, 4), dims=[v.dims[0], 4, 4]), "f32", (v.dims[0], "4", "4"))
        else:
            w = Val(self.weights(4, 4), "f32", ("4", "4"))
        return self.node("dot", v, w, dims=v.dims, mag=v.mag * 8)

    def product(self):
        v = self.pick(lambda v: v.dtype == "f32" and len(v.dims) == 2 and v.mag < 100)
        if v is None:
            return None
        w = Val(self.g.node("permute", v.id, perm=[1, 0]), "f32", v.dims[::-1])
        return self.node("dot", v, w, dims=(v.dims[0], v.dims[0]), mag=v.mag**2 * TOP)

    def attend(self):
        v = self.pick(lambda v: v.dtype == "f32" and len(v.dims) == 2 and v.mag <= 4)
        if v is None:
            return None
        four = Val(self.g.node("reshape", v.id, dims=["1", "1", *v.dims]), "f32", ("1", "1", *v.dims))
        return self.node("attention", four, four, four, dims=("1", "1", *v.dims), mag=8 * max(v.mag, 1), scale=0.05,
                         causal=self.draw(st.integers(0, 1)), nan_zero=0)

    def gather(self):
        v = self.pick(lambda v: len(v.dims) >= 1)
        k = self.axis(v)
        i = Val(self.g.input("i64", 3, below=v.dims[k]), "i64", ("3",))
        return self.node("gather", v, i, dims=[*v.dims[:k], "3", *v.dims[k + 1:]], exact=v.exact, mag=v.mag, axis=k)

    def join(self):
        a = self.pick(lambda v: len(v.dims) >= 1)
        b = self.pick(lambda v: v.dtype == a.dtype and v.dims == a.dims)
        k = self.axis(a)
        if len(a.dims[k]) > 12:
            return None
        dims = [*a.dims[:k], f"2*({a.dims[k]})" if not a.dims[k].isdigit() else str(2 * int(a.dims[k])), *a.dims[k + 1:]]
        return self.node("concat", a, b, dims=dims, exact=a.exact and b.exact, mag=max(a.mag, b.mag), axis=k)

    def choose(self):
        a = self.pick(lambda v: v.exact and v.dtype != "bool")
        b = self.pick(lambda v: v.exact and v.dtype == a.dtype and v.dims == a.dims)
        x = self.pick(lambda v: v.dtype == "f32" and v.dims == a.dims) or a
        y = self.pick(lambda v: v.dtype == x.dtype and v.dims == x.dims)
        c = self.node(self.draw(st.sampled_from(("lt", "ge", "eq", "ne"))), a, b, dims=a.dims, dtype="bool", exact=True)
        return self.node("select", c, x, y, dims=x.dims, dtype=x.dtype, exact=x.exact and y.exact, mag=max(x.mag, y.mag))

    def number(self):
        v = self.pick(lambda v: v.dtype in ("i64", "bool") and v.mag < 2**20)
        return v and self.node("cast", v, dims=v.dims, dtype="f32", exact=True, mag=v.mag, to="f32")

    def truncate(self):
        v = self.pick(lambda v: v.dtype == "f32" and v.exact)
        return v and self.node("cast", v, dims=v.dims, dtype="i64", exact=True, mag=v.mag, to="i64")

    RULES = (smooth, smooth, sharp, binary, binary, bias, turn, flatten, reverse, spread, reduce, rows, rows, scan, linear, linear,
             product, attend, gather, join, choose, number, truncate)


@st.composite
def graphs(draw, lo=5, hi=25):
    m, n = Maker(draw), draw(st.integers(lo, hi))
    for _ in range(4 * n):
        if len(m.g.lines) >= n:
            break
        rule = draw(st.sampled_from(Maker.RULES))
        if all(len(v.dims) <= 4 for v in m.vals[-1:]):
            rule(m)
        else:
            m.vals.pop()
    ends = [v for v in m.vals if v.id not in m.used] or m.vals[-1:]
    for v in ends[-12:]:
        m.g.out(v.id, "any")
    m.g.mags = [v.mag for v in ends[-12:]]
    m.g.drop_unused()
    return m.g


def agree(g, c, sizes, seed=1):
    rng = np.random.default_rng(seed)
    for s in sizes:
        inputs = g.feed(s, rng)
        want, _ = op_cases.run(g.text(), inputs)
        for target, got in c.run(inputs, THREADS).items():
            for k, (a, w) in enumerate(zip(got, want)):
                assert a.shape == w.shape, f"{target} {s} output {k}"
                if a.dtype.kind in "ib":
                    np.testing.assert_array_equal(a.astype(np.int64), w, err_msg=f"{target} {s} output {k}")
                    continue
                assert np.isfinite(a).all() or not np.isfinite(w).all()
                error, size = np.linalg.norm((a - w).ravel()), np.linalg.norm(w.ravel())
                room = TOLERANCE * max(size, g.mags[k] * 0.1 * a.size**0.5)
                assert error <= room, f"{target} {s} output {k}: error {error:.2e}, room {room:.2e}"


def bound(g):
    """Inputs that no output needs are gone, and with them perhaps a symbol's only place."""
    own = {str(d) for _, _, dims, _ in g.ports for d in dims}
    return all(s in own for s in g.syms if s in g.text().split("func")[1])


@settings(max_examples=int(os.environ.get("RTX_TEST_EXAMPLES", 60)), **SETTINGS)
@given(graphs())
def test_random_graphs(g):
    g.syms = {s: r for s, r in g.syms.items() if s in {str(d) for _, _, dims, _ in g.ports for d in dims}}
    if not bound(g):
        return
    with Compiled(g.text()) as c:
        agree(g, c, SIZES)


def test_one_value_in_every_place():
    """An operand that an anchor reads more than once, tuned too: kernels know operands by place."""
    g = Graph(n=(1, 64))
    x, i = g.input("f32", "n", 8), g.input("i64", 1, below="1")
    square = g.const(np.eye(8, dtype=np.float32) * 2 + 1)
    four = g.node("reshape", x, dims=[1, 1, "n", 8])
    g.out(g.node("attention", four, four, four, scale=0.1, causal=1, nan_zero=0), "any")
    g.out(g.node("rope", x, x, x, interleaved=0), "any")
    g.out(g.node("dot", square, square), "any")
    g.out(g.node("add", g.node("dot", x, square), x), "any")
    g.out(g.node("gather", i, i, axis=0), "any")
    g.out(g.node("gather_elements", i, i, axis=0), "any")
    g.out(g.node("mul", x, x), "any")
    g.out(g.node("layernorm", g.const(np.ones(8)), g.const(np.ones(8)), g.const(np.ones(8)), eps=0.1), "any")
    z = g.input("f32", 6, 6)
    g.out(g.node("dot", z, z), "any")
    g.out(g.node("add", g.node("dot", z, z), z), "any")
    g.mags = [8.0] * len(g.outputs)
    for tune in ("off", "quick"):
        with Compiled(g.text(), tune=tune, cache="", **({} if tune == "off" else {"budget": 4, "buckets": {"n": [8]}, "threads": [1]})) as c:
            assert tune == "off" or shutil.which("cc") is None or c.report["kernels"]["tuned"] > 0, c.report["warnings"]
            agree(g, c, [{"n": 1}, {"n": 7}, {"n": 33}])


@settings(max_examples=3, phases=[Phase.explicit, Phase.generate], **SETTINGS)
@given(graphs(lo=6, hi=9))
def test_random_graphs_tuned(tmp_path_factory, g):
    rtx_tool()
    g.syms = {s: r for s, r in g.syms.items() if s in {str(d) for _, _, dims, _ in g.ports for d in dims}}
    if not bound(g):
        return
    os.environ.setdefault("RTX_WORKER", str(Path(rtx_tool()).parent / "rtx-worker"))
    buckets = {s: [8] for s in g.syms}
    with Compiled(g.text(), tune="quick", budget=4, buckets=buckets, threads=[1, 2], cache=tmp_path_factory.mktemp("cache")) as c:
        agree(g, c, SIZES)
