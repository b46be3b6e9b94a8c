"""How far a compiled result may lie from the double-precision evaluator; docs/numerics.md derives the numbers.

EXACT     integers, bool, moved data and ops that choose among their inputs: equal bits (NaN payloads aside)
ULP       elementwise float ops: each element alone, in units of the last place of its own magnitude, plus FLOOR where the
          exact result is denormal or the kernel flushes it
ABSOLUTE  formulas that cancel: each element alone, absolute for results of order one, else relative to the input
the rest  norm-wise NORM: |got - want| / |want| over the tensor. Where terms cancel, one unit roundoff of the sum of their
          magnitudes is always granted: |want| is at least CANCEL sum |terms|, CANCEL = 2^-24 / NORM
"""
import numpy as np

NORM = 1e-6
EQUAL_TERMS = 1e-5  # sums of equal terms: the roundings of a chain have one sign and add up
CANCEL = 2.0**-24 / NORM
UNDERFLOW = 1e-30  # of a product: a partial product may leave the range before the rest brings it back
FLOOR = {"exp": 1.2e-38, "sigmoid": 1.2e-38, "silu": 3e-37, "recip": 1.2e-38, "div": 1.2e-38, "pow": 1.2e-38}
EXACT = {"neg", "abs", "sign", "floor", "ceil", "round", "relu", "min", "max", "select", "fmod", "reshape", "broadcast",
         "permute", "slice", "concat", "gather", "gather_nd", "gather_elements", "reduce_max", "reduce_min", "input", "const"}
# kernels/prelude/cpu.h states these; half an ulp is correct rounding
ULP = {"add": 0.5, "sub": 0.5, "mul": 0.5, "div": 0.5, "sqrt": 0.5, "recip": 0.5, "cast": 0.5, "rsqrt": 1.5, "exp": 1.0,
       "log": 0.9, "erf": 1.9, "tanh": 2.5, "sigmoid": 2.4, "silu": 2.4, "sin": 0.53, "cos": 0.53, "pow": 1.0}
ABSOLUTE = {"gelu": 5e-7, "gelu_tanh": 5e-7}
FLT_MAX = float(np.finfo(np.float32).max)


def round_to(x, like):
    """The evaluator's float64 as the type of `like`; overflow is infinite, as in the kernel."""
    with np.errstate(over="ignore", invalid="ignore"):
        return x.astype(like.dtype)


def same_class(got, want, slack):
    """NaN meets NaN and infinity the same infinity; where rounding decides between infinity and the largest, either."""
    nan = np.isnan(want)
    if not np.array_equal(np.isnan(got), nan):
        return f"NaN at {np.argwhere(np.isnan(got) != nan)[:3].tolist()} of one only"
    big = np.abs(np.where(nan, 0, want))
    near = (big > FLT_MAX * (1 - slack)) & (big < FLT_MAX * (1 + slack)) if got.dtype == np.float32 else big < 0
    inf = np.isinf(round_to(want, got)) & ~near
    fault = (inf & (got != round_to(want, got))) | (np.isinf(got) & ~inf & ~near)
    if fault.any():
        k = tuple(np.argwhere(fault)[0])
        return f"at {k}: {got[k]!r}, expected {want[k]!r}"
    return None


def worst(got, want, bound, what):
    error = np.abs(got - want)
    fault = ~(error <= bound)
    if not fault.any():
        return None
    k = np.unravel_index(np.argmax(np.where(fault, error / np.maximum(bound, 1e-300), 0)), want.shape)
    return f"{fault.sum()} of {want.size} elements, worst at {tuple(map(int, k))}: {got[k]!r}, expected {want[k]!r} ({what})"


def judge(op, got, want, terms=None, limit=NORM):
    """None, or what is wrong. want: float64 or int64 of the evaluator; terms: its sums of magnitudes or None."""
    if got.shape != want.shape:
        return f"shape {got.shape}, expected {want.shape}"
    if got.dtype.kind in "iub":
        return None if np.array_equal(got.astype(np.int64), want) else worst(
            got.astype(np.float64), want.astype(np.float64), 0.0, "exact")
    fault = same_class(got, want, 1e-5)
    if fault or got.size == 0:
        return fault
    ok = np.isfinite(round_to(want, got)) & np.isfinite(got)
    g, w = np.where(ok, got, 0).astype(np.float64), np.where(ok, want, 0.0)
    if op in EXACT or (op == "cast" and got.dtype != np.float32):
        return None if np.array_equal(g, round_to(w, got).astype(np.float64)) else worst(
            g, round_to(w, got).astype(np.float64), 0.0, "exact")
    if op in ULP:
        bound = (ULP[op] * 2.0**-23 * 1.001) * np.abs(w) + FLOOR.get(op, 0.0) + 2.0**-149
        return worst(g, w, bound, f"{ULP[op]} ulp")
    if op in ABSOLUTE:
        return worst(g, w, ABSOLUTE[op] * np.maximum(1, np.abs(w)), f"{ABSOLUTE[op]} absolute")
    w = round_to(w, got).astype(np.float64)
    if op == "layernorm" and np.abs(w).max() < 1e-6:  # equal values: eps magnifies what rounding leaves of the mean
        return worst(g, w, 1e-4, "rows of equal values")
    if op == "reduce_prod":
        return norm_wise(g, w, limit=limit, floor=UNDERFLOW)
    return norm_wise(g, w, None if terms is None else np.where(np.isfinite(terms), terms, 0), limit)


def norm_wise(g, w, terms=None, limit=NORM, floor=0.0):
    with np.errstate(over="ignore"):
        error, size = np.linalg.norm((g - w).ravel()), np.linalg.norm(w.ravel())
        if terms is not None:
            size = max(size, CANCEL * np.linalg.norm(terms.ravel()))
    if error <= limit * size + floor:
        return None
    return f"norm-wise error {error / size if size else np.inf:.2e}, at most {limit:.0e}"
