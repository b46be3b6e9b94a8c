"""Cases of every row of ops.def: a graph in text form, its inputs and the expected result in float64 or int64.

Shared by tests/conform/test_eval.py (the fp64 evaluator against NumPy) and tests/device (compiled kernels against the
evaluator). run() is the evaluator, through tests/tools/ir_eval_main.c.
"""

import atexit
import math
import os
import pathlib
import subprocess
import tempfile

import numpy as np
from built import built

NAN, INF = math.nan, math.inf
TEXT = {"float32": "f32", "float64": "f64", "float16": "f16", "int64": "i64", "int32": "i32", "bool": "bool"}


def tool():
    return built("ir_eval")


class Refused(Exception):
    pass


class Oracle:
    """One ir_eval process for the whole session; it starts anew after a crash, which is the caller's failure."""

    def __init__(self):
        shm = "/dev/shm"
        self.temp = tempfile.TemporaryDirectory(prefix="rtx-oracle-", dir=shm if os.access(shm, os.W_OK) else None)
        self.folder = pathlib.Path(self.temp.name)
        self.process = None

    def ask(self, line):
        if self.process is None or self.process.poll() is not None:
            self.process = subprocess.Popen([tool(), "--serve"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            atexit.register(self.process.stdin.close)
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        lines = []
        while True:
            line = self.process.stdout.readline()
            assert line, f"ir_eval ended with {self.process.wait()}"
            if line == "ok\n":
                return lines
            if ": " in line:
                raise Refused(line.rstrip())
            lines.append(line)


ORACLE = Oracle()


def run(text, inputs=()):
    """Outputs of a graph text as arrays of float64 or int64, and the sums of magnitudes (None where absent)."""
    folder = ORACLE.folder
    (folder / "g.rtx").write_text(text)
    args = [str(folder / "g.rtx"), str(folder)]
    for k, x in enumerate(inputs):
        (folder / f"in{k}").write_bytes(np.ascontiguousarray(x).tobytes())
        args.append(f"{TEXT[str(x.dtype)]}:{','.join(map(str, x.shape))}:{folder}/in{k}")
    outs, sums = [], []
    for k, line in enumerate(ORACLE.ask("\t".join(args))):
        dtype, _, sizes = line.strip().partition(" ")
        shape = [int(s) for s in sizes.split(",") if s]
        raw = np.dtype("f8") if dtype in ("f32", "f64", "f16", "bf16") else np.dtype("i8")
        outs.append(np.fromfile(folder / f"{k}.bin", raw).reshape(shape))
        path = folder / f"{k}.abs"
        sums.append(np.fromfile(path, raw).reshape(shape) if path.exists() else None)
        path.unlink(missing_ok=True)
    return outs, sums


def typed(x):
    return f"{TEXT[str(x.dtype)]}[{','.join(map(str, x.shape))}]"


def graph(op, inputs, attrs=""):
    ports = ", ".join(f'%{k} "in{k}": {typed(x)}' for k, x in enumerate(inputs))
    operands = "".join(f" %{k}" for k in range(len(inputs)))
    return f"func @case({ports}) {{\n  %99 = {op}{operands} {attrs}\n  return %99 \"out\"\n}}\n"


def same(got, want, what):
    want = np.asarray(want)
    assert got.shape == want.shape, f"{what}: shape {got.shape}, expected {want.shape}"
    if got.dtype == np.int64:
        np.testing.assert_array_equal(got, want.astype(np.int64), err_msg=what)
    else:
        np.testing.assert_allclose(got, want.astype(np.float64), rtol=1e-13, atol=1e-300, equal_nan=True, err_msg=what)


rng = np.random.default_rng(20240607)
SHAPES = [(), (0,), (1,), (7,), (3, 5), (2, 0, 3), (1, 1), (2, 3, 4, 5)]
SPECIAL = np.array([0.0, -0.0, 1.0, -1.0, 0.5, 1.5, 2.5, -2.5, INF, -INF, NAN, 1e-45, 3.4e38, -3.4e38, 88.7, -104.0],
                   np.float32)
EDGES = {"int64": [0, 1, -1, 2, -2, 3, -3, 7, -7, 63, 2**31, -2**31, 2**63 - 1, -2**63, 10**18],
         "int32": [0, 1, -1, 2, -2, 3, -3, 7, -7, 31, 2**31 - 1, -2**31, 46341, 10**9]}


def floats(shape):
    return (rng.standard_normal(shape) * 3).astype(np.float32)


def ints(shape, dtype, lo=-9, hi=10):
    return rng.integers(lo, hi, shape).astype(dtype)


def bools(shape):
    return rng.integers(0, 2, shape).astype(bool)


def pairs(values):
    a, b = np.meshgrid(values, values, indexing="ij")
    return np.ascontiguousarray(a.ravel()), np.ascontiguousarray(b.ravel())


def d(x):
    return np.asarray(x).astype(np.float64)


vec = np.vectorize
erf = vec(math.erf, otypes=[np.float64])
erfc = vec(math.erfc, otypes=[np.float64])


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def py_ints(fn, dtype):
    """fn over Python integers, wrapped to the width of dtype."""
    bits = 64 if dtype == "int64" else 32

    def wrap(*v):
        r = fn(*[int(x) for x in v]) & ((1 << bits) - 1)
        return r - (1 << bits) if r >> (bits - 1) else r
    return vec(wrap, otypes=[np.int64])


def trunc_div(a, b):
    return 0 if b == 0 else abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


def int_pow(a, b):
    return pow(a, b, 1 << 64) if b >= 0 else (1 if a == 1 else (-1 if b % 2 else 1) if a == -1 else 0)


F_UNARY = {
    "neg": lambda x: -x, "abs": np.abs, "sign": np.sign, "exp": np.exp, "log": np.log, "sqrt": np.sqrt,
    "rsqrt": lambda x: 1 / np.sqrt(x), "recip": lambda x: 1 / x, "erf": erf, "tanh": np.tanh, "sigmoid": sigmoid,
    "sin": np.sin, "cos": np.cos, "floor": np.floor, "ceil": np.ceil, "round": np.rint, "relu": lambda x: np.maximum(x, 0),
    "gelu": lambda x: 0.5 * x * erfc(-x / math.sqrt(2)), "silu": lambda x: x * sigmoid(x),
    "gelu_tanh": lambda x: x / (1 + np.exp(-2 * math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),  # (1 + tanh) / 2 would cancel
    "isnan": np.isnan, "isinf": np.isinf,
}
I_UNARY = {"neg": lambda a: -a, "abs": abs, "sign": lambda a: (a > 0) - (a < 0), "relu": lambda a: max(a, 0)}
F_BINARY = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide, "pow": np.power, "fmod": np.fmod,
    "min": np.minimum, "max": np.maximum, "swiglu": lambda a, b: a * sigmoid(a) * b,
    "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal,
}
I_BINARY = {
    "add": lambda a, b: a + b, "sub": lambda a, b: a - b, "mul": lambda a, b: a * b, "div": trunc_div, "pow": int_pow,
    "mod": lambda a, b: a % b if b else 0, "fmod": lambda a, b: a - trunc_div(a, b) * b if b else 0, "min": min, "max": max,
    "eq": lambda a, b: a == b, "ne": lambda a, b: a != b, "lt": lambda a, b: a < b, "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b, "ge": lambda a, b: a >= b,
}
B_BINARY = {"and": np.logical_and, "or": np.logical_or, "xor": np.logical_xor, "eq": np.equal, "ne": np.not_equal}

CASES = []  # (op, id, function of a case)


def case(op, name=""):
    def add(fn):
        CASES.append((op, name or fn.__name__, fn))
        return fn
    return add


def check(op, attrs, inputs, want):
    """A case that is one node."""
    return graph(op, inputs, attrs), inputs, [want]


def elementwise_cases():
    for op, fn in F_UNARY.items():
        for shape in SHAPES:
            case(op, f"f32{shape}")(lambda op=op, fn=fn, shape=shape: (lambda x: check(op, "", [x], fn(d(x))))(floats(shape)))
        case(op, "special")(lambda op=op, fn=fn: check(op, "", [SPECIAL], fn(d(SPECIAL))))
    for op, fn in I_UNARY.items():
        for t in ("int64", "int32"):
            x = np.array(EDGES[t], t)
            case(op, t)(lambda op=op, fn=fn, t=t, x=x: check(op, "", [x], py_ints(fn, t)(x)))
    for op, fn in F_BINARY.items():
        for shape in SHAPES:
            case(op, f"f32{shape}")(lambda op=op, fn=fn, shape=shape: (
                lambda a, b: check(op, "", [a, b], fn(d(a), d(b))))(floats(shape), floats(shape)))
        a, b = pairs(SPECIAL)
        case(op, "special")(lambda op=op, fn=fn, a=a, b=b: check(op, "", [a, b], fn(d(a), d(b))))
    for op, fn in I_BINARY.items():
        for t in ("int64", "int32"):
            a, b = pairs(np.array(EDGES[t] if op != "pow" else [0, 1, -1, 2, -2, 3, 7, 63, 64, -7], t))
            case(op, t)(lambda op=op, fn=fn, t=t, a=a, b=b: check(op, "", [a, b], py_ints(fn, t)(a, b)))
    for op, fn in B_BINARY.items():
        a, b = pairs(np.array([False, True]))
        case(op, "bool")(lambda op=op, fn=fn, a=a, b=b: check(op, "", [a, b], fn(a, b)))
    case("not", "bool")(lambda: check("not", "", [np.array([True, False])], np.array([False, True])))
    for make, name in ((floats, "f32"), (lambda s: ints(s, "int64"), "i64"), (lambda s: ints(s, "int32"), "i32"),
                       (bools, "bool")):
        for shape in SHAPES:
            case("select", f"{name}{shape}")(lambda make=make, shape=shape: (
                lambda c, a, b: check("select", "", [c, a, b], np.where(c, a, b)))(bools(shape), make(shape), make(shape)))


elementwise_cases()


def bf16(x):
    """Nearest bf16 of float64 values, ties to even, as float64."""
    x = np.asarray(x, np.float64)
    out = x.copy()
    ok = np.isfinite(x) & (x != 0)
    exponent = np.maximum(np.floor(np.log2(np.abs(x[ok]))), -126)
    unit = 2.0 ** (exponent - 7)
    out[ok] = np.rint(x[ok] / unit) * unit
    out[np.abs(out) > 3.3895313892515355e38] = np.copysign(INF, out[np.abs(out) > 3.3895313892515355e38])
    return out


def saturate(x, dtype):
    info = np.iinfo(dtype)
    clean = np.where(np.isnan(x), 0, x)
    return np.array([max(info.min, min(info.max, int(v))) if np.isfinite(v) else (info.max if v > 0 else info.min)
                     for v in clean.ravel()], np.int64).reshape(x.shape)


def cast_cases():
    sources = {"float32": np.concatenate([SPECIAL, floats(40), floats(40) * 1e5, floats(40) * 1e-6]),
               "float64": np.concatenate([rng.standard_normal(60), rng.standard_normal(30) * 1e5, [65519.999, 65520.0, 1e300,
                                          1.0 + 2**-11 + 2**-30, 1.0 + 2**-11, 1 + 2**-8 + 2**-40, NAN, -INF, 6e-8, 2.9e-8]]),
               "float16": floats(40).astype(np.float16), "int64": np.array(EDGES["int64"] + [2**24 + 1, 2**53 + 1, 2**60 + 1]),
               "int32": np.array(EDGES["int32"], np.int32), "bool": bools(5)}
    with np.errstate(all="ignore"):
        for src, x in sources.items():
            floating = x.dtype.kind == "f"
            want = {"f32": d(x.astype(np.float32)), "f64": d(x), "f16": d(x.astype(np.float16)), "bf16": bf16(d(x)),
                    "bool": x != 0}
            for t in ("int64", "int32"):
                want[TEXT[t]] = saturate(d(x), t) if floating else x.astype(t)
            for to, expected in want.items():
                case("cast", f"{src}-{to}")(lambda x=x, to=to, expected=expected:
                                            check("cast", f"{{to={to}}}", [x], expected))


cast_cases()


def lst(v):
    return "[" + ",".join(str(int(x)) for x in v) + "]"


def view_cases():
    for dtype in ("float32", "float64", "float16", "int64", "int32", "bool"):
        x = (floats((2, 3, 4)) * 3).astype(dtype)
        case("reshape", dtype)(lambda x=x: check("reshape", "{dims=[4,1,6]}", [x], x.reshape(4, 1, 6)))
        case("permute", dtype)(lambda x=x: check("permute", "{perm=[2,0,-2]}", [x], x.transpose(2, 0, 1)))
        case("broadcast", dtype)(lambda x=x: check("broadcast", "{dims=[5,2,3,4]}", [x], np.broadcast_to(x, (5, 2, 3, 4))))
        case("slice", dtype)(lambda x=x: check("slice", "{start=[1,2,0] size=[1,2,2] step=[1,-2,3]}", [x], x[1:2, 2::-2, 0::3]))
        case("concat", dtype)(lambda x=x: check("concat", "{axis=-2}", [x, x[:, :0], x[:, 1:2]],
                                                np.concatenate([x, x[:, :0], x[:, 1:2]], 1)))
        i = np.array([[0, -1], [2, 1]])
        case("gather", dtype)(lambda x=x, i=i: check("gather", "{axis=1}", [x, i], np.take(x, i, 1)))
    for shape, to in (((1,), ()), ((), (1, 1)), ((0, 3), (2, 0)), ((6,), (1, 2, 3, 1))):
        x = floats(shape)
        case("reshape", f"{shape}")(lambda x=x, to=to: check("reshape", f"{{dims={lst(to)}}}", [x], x.reshape(to)))
    for shape, to in (((), (2, 3)), ((3,), (2, 3)), ((1, 3, 1), (4, 3, 2)), ((1,), (0,)), ((0, 1), (0, 4)), ((2, 1), (2, 1))):
        x = floats(shape)
        case("broadcast", f"{shape}")(lambda x=x, to=to: check("broadcast", f"{{dims={lst(to)}}}", [x], np.broadcast_to(x, to)))
    for shape, perm in (((), ()), ((4,), (0,)), ((2, 3, 4, 5), (3, 1, 0, 2)), ((0, 3), (1, 0))):
        x = floats(shape)
        case("permute", f"{shape}")(lambda x=x, perm=perm: check("permute", f"{{perm={lst(perm)}}}", [x], x.transpose(perm)))
    x = floats((7, 6))
    for s in (np.s_[1:6:2, 5:0:-1], np.s_[6::-3, ::1], np.s_[3:3, 1:2], np.s_[::-1, ::-1], np.s_[6:7:-5, 0:6:5]):
        ranges = [k.indices(n) for k, n in zip(s, x.shape)]
        want = x[s]
        attrs = f"{{start={lst(r[0] for r in ranges)} size={lst(want.shape)} step={lst(r[2] for r in ranges)}}}"
        case("slice", f"{s}")(lambda attrs=attrs, want=want: check("slice", attrs, [x], want))
    case("slice", "scalar")(lambda: check("slice", "{start=[] size=[] step=[]}", [np.float32(2).reshape(())], np.float64(2)))


view_cases()


def gather_nd(x, idx, batch):
    """As ONNX GatherND."""
    out = np.empty(idx.shape[:-1] + x.shape[batch + idx.shape[-1]:], x.dtype)
    for at in np.ndindex(*idx.shape[:-1]):
        out[at] = x[at[:batch] + tuple(idx[at])]
    return out


def movement_cases():
    x = floats((4, 3, 5))
    for axis in (0, 1, 2, -1, -3):
        n = x.shape[axis]
        for shape in ((), (0,), (1,), (2, 3)):
            for t in ("int64", "int32"):
                i = ints(shape, t, -n, n)
                case("gather", f"axis{axis}{shape}{t}")(lambda axis=axis, i=i:
                                                        check("gather", f"{{axis={axis}}}", [x, i], np.take(x, i, axis)))
        for k in (0, 1, 6):
            shape = list(x.shape)
            shape[axis] = k
            i = ints(shape, "int64", -n, n)
            case("gather_elements", f"axis{axis}n{k}")(lambda axis=axis, i=i: check(
                "gather_elements", f"{{axis={axis}}}", [x, i], np.take_along_axis(x, i, axis)))
    y = floats((3, 4))
    j = np.array([[0, 3], [-1, 2]])
    case("gather_elements", "smaller")(lambda: check("gather_elements", "{axis=1}", [y, j],
                                                     np.take_along_axis(y[:2], j, 1)))
    for batch, shape in ((0, (2, 1)), (0, (3, 3)), (0, (2,)), (1, (4, 2)), (1, (4, 2, 1)), (2, (4, 3, 1)), (0, (0, 2))):
        depth = shape[-1]
        limits = np.array(x.shape[batch:batch + depth])
        i = (rng.integers(0, 10**6, shape) % (2 * limits) - limits).astype(np.int64)
        case("gather_nd", f"batch{batch}{shape}")(lambda batch=batch, i=i: check(
            "gather_nd", f"{{batch={batch}}}", [x, i], gather_nd(x, i, batch)))
    for axis in (0, 1, -1):
        parts = [floats((2, 3, 4)) for _ in range(3)]
        case("concat", f"axis{axis}")(lambda axis=axis, parts=parts: check("concat", f"{{axis={axis}}}", parts,
                                                                          np.concatenate(parts, axis)))
    one = floats((3,))
    case("concat", "one")(lambda: check("concat", "{axis=0}", [one], one))


movement_cases()


def int_reduce(op, x, axes):
    dtype = str(x.dtype)
    fn = {"reduce_sum": lambda v: sum(v), "reduce_prod": lambda v: math.prod(v),
          "reduce_max": lambda v: max(v, default=np.iinfo(dtype).min),
          "reduce_min": lambda v: min(v, default=np.iinfo(dtype).max)}[op]
    kept = [k for k in range(x.ndim) if k not in axes]
    rows = x.transpose(kept + list(axes)).reshape([x.shape[k] for k in kept] + [math.prod(x.shape[k] for k in axes)])
    out = np.empty(rows.shape[:-1], np.int64)
    for at in np.ndindex(*out.shape):
        out[at] = py_ints(lambda: fn([int(v) for v in rows[at]]), dtype)()
    return out


def reduce_cases():
    fns = {"reduce_sum": lambda x, a: x.sum(a), "reduce_mean": lambda x, a: x.sum(a) / np.float64(math.prod(x.shape[k] for k in a)), "reduce_prod": lambda x, a: x.prod(a),
           "reduce_max": lambda x, a: x.max(a, initial=-INF), "reduce_min": lambda x, a: x.min(a, initial=INF)}
    for op, fn in fns.items():
        for shape, axes in (((5,), (0,)), ((3, 4, 5), (1,)), ((3, 4, 5), (0, 2)), ((3, 4, 5), (0, 1, 2)), ((1, 1), (0,)),
                            ((0, 3), (0,)), ((0, 3), (1,)), ((), ()), ((2, 3), ())):
            x = floats(shape)
            case(op, f"f32{shape}{axes}")(lambda op=op, fn=fn, x=x, axes=axes: check(
                op, f"{{axes={lst(axes)}}}", [x], fn(d(x), tuple(axes))))
        for values in ([1, NAN, 2], [INF, -INF, 0], [NAN, 1, INF], [-INF, -INF, 3], [0, INF, 1]):
            x = np.array(values, np.float32)
            case(op, f"{values}")(lambda op=op, fn=fn, x=x: check(op, "{axes=[-1]}", [x], fn(d(x), (0,))))
        for t in ("int64", "int32"):
            if op == "reduce_mean":
                continue
            for x, axes in ((np.array(EDGES[t], t), (0,)), (ints((3, 4, 5), t, -9 * 10**8, 9 * 10**8), (0, 2)),
                            (ints((0, 2), t), (0,))):
                case(op, f"{t}{x.shape}")(lambda op=op, x=x, axes=axes: check(
                    op, f"{{axes={lst(axes)}}}", [x], int_reduce(op, x, axes)))


reduce_cases()


def arg(x, axis, largest, last):
    """Index of the largest or smallest; NaN counts largest; the first or the last of equals."""
    def line(v):
        keys = [(math.isnan(e), 0.0 if math.isnan(e) else e) for e in v.astype(object)] if v.dtype.kind == "f" else list(v)
        best = max(keys) if largest else min(keys)
        hits = [k for k, e in enumerate(keys) if e == best]
        return hits[-1] if last else hits[0]
    return np.apply_along_axis(line, axis, x)


def topk(x, k, axis, largest):
    """Stable order by value, ties by index, NaN largest."""
    y = np.moveaxis(x, axis, -1)
    out = np.empty(y.shape[:-1] + (k,), np.int64)
    for at in np.ndindex(*y.shape[:-1]):
        row = y[at]
        keys = [(bool(np.isnan(e)), 0.0 if np.isnan(e) else e) if row.dtype.kind == "f" else (False, int(e)) for e in row]
        sign = -1 if largest else 1
        order = sorted(range(len(keys)), key=lambda j: (sign * keys[j][0], sign * keys[j][1], j))
        out[at] = order[:k]
    return np.moveaxis(out, -1, axis)


def scan(x, axis, exclusive, reverse):
    y = np.flip(x, axis) if reverse else x
    s = np.cumsum(y, axis, dtype=np.float64 if x.dtype.kind == "f" else x.dtype)
    if exclusive:
        s = np.delete(np.insert(s, 0, 0, axis), -1, axis)
    return np.flip(s, axis) if reverse else s


def line_cases():
    inputs = [floats((5,)), floats((3, 4, 5)), np.array([[1, NAN, 3], [NAN, NAN, 0], [2, 2, 1]], np.float32),
              ints((3, 4), "int64", 0, 3), ints((4, 3), "int32", 0, 3), np.array([INF, -INF, INF, NAN], np.float32)]
    for n, x in enumerate(inputs):
        for axis in {0, -1, x.ndim - 1}:
            for flag in (0, 1):
                case("argmax", f"{n}axis{axis}last{flag}")(lambda x=x, axis=axis, flag=flag: check(
                    "argmax", f"{{axis={axis} last={flag}}}", [x], arg(x, axis, True, flag)))
                case("argmin", f"{n}axis{axis}last{flag}")(lambda x=x, axis=axis, flag=flag: check(
                    "argmin", f"{{axis={axis} last={flag}}}", [x], arg(x, axis, False, flag)))
                for k in (0, 1, x.shape[axis]):
                    case("topk", f"{n}axis{axis}k{k}largest{flag}")(lambda x=x, axis=axis, flag=flag, k=k: check(
                        "topk", f"{{axis={axis} largest={flag} k=[{k}]}}", [x], topk(x, k, axis, flag)))
                for reverse in (0, 1):
                    case("cumsum", f"{n}axis{axis}ex{flag}rev{reverse}")(
                        lambda x=x, axis=axis, flag=flag, reverse=reverse: check(
                            "cumsum", f"{{axis={axis} exclusive={flag} reverse={reverse}}}", [x], scan(x, axis, flag, reverse)))
    wrap = np.array([2**31 - 1, 1, 5], np.int32)
    case("cumsum", "wraps")(lambda: check("cumsum", "{axis=0}", [wrap], np.cumsum(wrap, dtype=np.int32)))
    empty = floats((0, 2))
    case("cumsum", "empty")(lambda: check("cumsum", "{axis=0}", [empty], d(empty)))
    case("argmax", "no lines")(lambda: check("argmax", "{axis=1}", [empty], np.zeros((0,), np.int64)))
    for m, k, n, batch in ((1, 1, 1, ()), (3, 4, 5, ()), (7, 1, 9, (2,)), (2, 0, 3, ()), (0, 3, 2, ()), (5, 8, 3, (2, 3)),
                           (33, 65, 17, ())):
        a, b = floats((*batch, m, k)), floats((*batch, k, n))
        case("dot", f"{batch}{m}x{k}x{n}")(lambda a=a, b=b: check("dot", "", [a, b], d(a) @ d(b)))
    a = np.array([[1, INF], [NAN, 2]], np.float32)
    case("dot", "special")(lambda: check("dot", "", [a, a], [[NAN, INF], [NAN, NAN]]))


line_cases()


def source_cases():
    case("dimvals", "vector")(lambda: (
        'sym n 0..\nfunc @f(%0 "x": f32[n,3]) {\n  %1 = dimvals {dims=[n*2 + 1,(n + 1)/2,7,n%3] scalar=0}\n  return %1 "o"\n}',
        [floats((5, 3))], [np.array([11, 3, 7, 2])]))
    case("dimvals", "scalar")(lambda: (
        'sym n 0..\nfunc @f(%0 "x": f32[n]) {\n  %1 = dimvals {dims=[min(n, 4)] scalar=1}\n  return %1 "o"\n}',
        [floats((9,))], [np.array(4)]))
    case("dimvals", "none")(lambda: check("dimvals", "{dims=[]}", [], np.zeros(0, np.int64)))
    for shape, axis in (((5,), 0), ((2, 3), -1), ((2, 3), 0), ((2, 0), 1)):
        want = np.broadcast_to(np.arange(shape[axis]).reshape([-1 if k == axis % len(shape) else 1 for k in range(len(shape))]),
                               shape)
        case("iota", f"{shape}{axis}")(lambda shape=shape, axis=axis, want=want: check(
            "iota", f"{{dims={lst(shape)} axis={axis}}}", [], want))
    x = floats((2, 3))
    case("input", "identity")(lambda: ('func @f(%0 "x": f32[2,3]) {\n  return %0 "a", %0 "b"\n}', [x], [x, x]))
    case("const", "list")(lambda: (
        'func @f() {\n  %0 = const f32[5] {1, -2.5, nan, inf, -inf}\n  %1 = const i32[2] {-2147483648, 7}\n'
        '  %2 = const bool[2] {1, 0}\n  %3 = const f16[1] hex"003c"\n  %4 = const f32[] {0.1}\n  %5 = const i64[0] {}\n'
        '  %6 = const bf16[2] {1.0, 3}\n  return %0 "a", %1 "b", %2 "c", %3 "d", %4 "e", %5 "f", %6 "g"\n}', [],
        [np.array([1, -2.5, NAN, INF, -INF]), np.array([-2**31, 7]), np.array([1, 0], bool), np.array([1.0]),
         d(np.float32(0.1)), np.zeros(0, np.int64), np.array([1.0, 3.0])]))


source_cases()


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def attention(q, k, v, mask=None, scale=1.0, causal=False, nan_zero=False):
    q, k, v = d(q), d(k), d(v)
    rep = q.shape[1] // k.shape[1]
    k, v = np.repeat(k, rep, 1), np.repeat(v, rep, 1)
    s = scale * np.einsum("bhid,bhjd->bhij", q, k)
    if mask is not None:
        s = s + d(mask)
    if causal:
        i, j = np.ogrid[:q.shape[2], :k.shape[2]]
        s = np.where(j <= i + k.shape[2] - q.shape[2], s, -INF)
    p = softmax(s)
    if nan_zero:
        p = np.where(np.isnan(p), 0, p)
    return np.einsum("bhij,bhjd->bhid", p, v)


def rope(x, c, s, interleaved):
    x, c, s = d(x), d(c), d(s)
    r = np.empty_like(x)
    if interleaved:
        r[..., 0::2], r[..., 1::2] = -x[..., 1::2], x[..., 0::2]
    else:
        h = x.shape[-1] // 2
        r[..., :h], r[..., h:] = -x[..., h:], x[..., :h]
    return x * c + r * s


def raised_cases():
    for shape in ((1,), (7,), (3, 5), (2, 3, 4), (2, 0), (0, 4)):
        x = floats(shape)
        if shape != (2, 0):
            case("softmax", f"{shape}")(lambda x=x: check("softmax", "", [x], softmax(d(x))))
        else:
            case("softmax", f"{shape}")(lambda x=x: check("softmax", "", [x], d(x)))
        for eps in (1e-5, 0.0, 1e-12):
            for n in (0, 1, 2):
                w = [floats(shape[-1:]) for _ in range(n)]
                y = d(x)
                with np.errstate(all="ignore"):
                    c = y - y.mean(-1, keepdims=True) if y.size else y
                    ln = c / np.sqrt((c * c).mean(-1, keepdims=True) + eps) if y.size else y
                    rms = y / np.sqrt((y * y).mean(-1, keepdims=True) + eps) if y.size else y
                scaled = [v * d(w[0]) if n else v for v in (ln, rms)]
                if eps or x.shape[-1] > 1:  # 0 / 0 is noise in the reference
                    case("layernorm", f"{shape}{eps}{n}")(lambda x=x, w=w, eps=eps, want=scaled[0] + (d(w[1]) if n > 1 else 0):
                                                          check("layernorm", f"{{eps={eps}}}", [x, *w], want))
                if n < 2:
                    case("rmsnorm", f"{shape}{eps}{n}")(lambda x=x, w=w, eps=eps, want=scaled[1]: check(
                        "rmsnorm", f"{{eps={eps}}}", [x, *w], want))
    masked = np.array([[-INF, 1, 2], [-INF, -INF, -INF], [NAN, 0, 0], [INF, 0, 0]], np.float32)
    case("softmax", "special")(lambda: check("softmax", "", [masked], softmax(d(masked))))
    for b, h, hk, sq, sk, dim, dv in ((1, 1, 1, 1, 1, 1, 1), (2, 4, 4, 5, 7, 3, 2), (2, 6, 2, 7, 5, 4, 8), (1, 4, 1, 3, 3, 2, 5),
                                      (1, 2, 2, 0, 3, 2, 2)):
        for with_mask in (False, True):
            for causal in (0, 1):
                q, k, v = floats((b, h, sq, dim)), floats((b, hk, sk, dim)), floats((b, hk, sk, dv))
                m = np.where(rng.random((b, h, sq, sk)) < 0.3, -INF, floats((b, h, sq, sk))).astype(np.float32)
                ins = [q, k, v] + ([m] if with_mask else [])
                for nan_zero in (0, 1):
                    case("attention", f"{b}{h}{hk}{sq}{sk}m{with_mask}c{causal}z{nan_zero}")(
                        lambda ins=ins, causal=causal, nan_zero=nan_zero: check(
                            "attention", f"{{scale=0.5 causal={causal} nan_zero={nan_zero}}}", ins,
                            attention(*ins[:3], ins[3] if len(ins) > 3 else None, 0.5, causal, nan_zero)))
    for shape in ((2,), (3, 4), (2, 3, 4, 6), (0, 2), (3, 0)):
        for interleaved in (0, 1):
            x, c, s = floats(shape), floats(shape), floats(shape)
            case("rope", f"{shape}{interleaved}")(lambda x=x, c=c, s=s, interleaved=interleaved: check(
                "rope", f"{{interleaved={interleaved}}}", [x, c, s], rope(x, c, s, interleaved)))


raised_cases()
