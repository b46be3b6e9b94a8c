"""Graphs of many ops with free sizes, built by hand: text, and inputs for given sizes."""
import itertools
import re

import numpy as np

NP = {"f32": np.float32, "i64": np.int64, "i32": np.int32, "bool": bool, "f16": np.float16, "f64": np.float64}
EXPR = re.compile(r"[A-Za-z_]\w*")


def size_of(expr, sizes):
    return int(eval(EXPR.sub(lambda m: str(sizes[m.group()]), str(expr)).replace("/", "//"), {"__builtins__": {}}))


class Graph:
    """syms: {"n": (lo, hi or None)}. Values are numbers; feed() makes inputs, index inputs within their limit."""

    def __init__(self, **syms):
        self.syms, self.ports, self.lines, self.outputs, self.next = syms, [], [], [], 0

    def input(self, dtype, *dims, below=None):
        """below: the size that index values must stay under, both signs."""
        self.ports.append((self.next, dtype, dims, below))
        self.next += 1
        return self.next - 1

    def const(self, values, dtype="f32"):
        a = np.asarray(values, NP[dtype], order="C")
        return self.line(f"const {dtype}[{','.join(map(str, a.shape))}] hex\"{a.tobytes().hex()}\"" if a.size else
                         f"const {dtype}[{','.join(map(str, a.shape))}] {{}}")

    def line(self, text):
        self.lines.append((self.next, text))
        self.next += 1
        return self.next - 1

    def node(self, op, *ids, **attrs):
        text = " ".join(f"{k}=[{','.join(map(str, v))}]" if isinstance(v, (list, tuple)) else f"{k}={v}" for k, v in attrs.items())
        return self.line(f"{op}{''.join(f' %{i}' for i in ids)}" + (f" {{{text}}}" if text else ""))

    def out(self, value, op):
        self.outputs.append((value, op))

    def ops(self, op, *ids, **attrs):
        self.out(self.node(op, *ids, **attrs), op)

    def drop_unused(self):
        """Keeps what outputs need: views() makes more than one test asks for."""
        need = {v for v, _ in self.outputs}
        for i, text in reversed(self.lines):
            if i in need:
                need |= {int(k) for k in re.findall(r"%(\d+)", text)}
        self.lines = [l for l in self.lines if l[0] in need]
        self.ports = [p for p in self.ports if p[0] in need]

    def text(self):
        syms = "".join(f"sym {s} {lo}..{'' if hi is None else hi}\n" for s, (lo, hi) in self.syms.items())
        # constants have no inputs and may stand anywhere before their use; ids are already in order after the ports
        order = {old: k for k, old in enumerate([p[0] for p in self.ports] + [l[0] for l in self.lines])}
        fix = lambda t: re.sub(r"%(\d+)", lambda m: f"%{order[int(m.group(1))]}", t)
        ports = ", ".join(f'%{order[i]} "in{k}": {t}[{",".join(map(str, dims))}]' for k, (i, t, dims, _) in enumerate(self.ports))
        body = "".join(f"  %{order[i]} = {fix(t)}\n" for i, t in self.lines)
        outs = ", ".join(f'%{order[v]} "o{k}"' for k, (v, _) in enumerate(self.outputs))
        return f"{syms}func @f({ports}) {{\n{body}  return {outs}\n}}\n"

    def feed(self, sizes, rng):
        arrays = []
        for _, dtype, dims, below in self.ports:
            shape = [size_of(x, sizes) for x in dims]
            if below is not None:
                n = size_of(below, sizes)
                a = rng.integers(-n, max(n, 1 - n), shape)
            elif dtype == "bool":
                a = rng.integers(0, 2, shape)
            elif dtype in ("i64", "i32"):
                a = rng.integers(-9, 10, shape)
            else:
                a = rng.standard_normal(shape)
            arrays.append(np.ascontiguousarray(a.astype(NP[dtype])))
        return arrays


def edges(top):
    """0, 1, and the neighbours of powers of two up to top."""
    return sorted({0, 1, 2, 3, *itertools.chain(*((2**k - 1, 2**k, 2**k + 1) for k in range(2, top.bit_length())))})


def rows_of(path):
    """(name, least inputs, most inputs, shape rule, level) of ops.def."""
    return re.findall(r"^OP\((\w+), (\d+), (\d+), (\w+), \"[^\"]*\", (\w+),", path.read_text(), re.M)
