"""Every row of ops.def: the fp64 evaluator against NumPy.

Values are compared exactly for integers and to 1e-13 relative for floats: the evaluator rounds nothing between input and
output. Formulas that cancel (gelu below zero) and sums, whose order differs, get room of that size relative to the tensor.
"""

import subprocess

import numpy as np
import pytest

from op_cases import CASES, Refused, d, floats, graph, run, same, tool


@pytest.mark.parametrize("op,name,make", CASES, ids=[f"{op}-{name}" for op, name, _ in CASES])
def test_case(op, name, make):
    with np.errstate(all="ignore"):
        text, inputs, wants = make()
        wants = [np.asarray(w) for w in wants]
    got, _ = run(text, inputs)
    for k, want in enumerate(wants):
        if op in ("gelu", "gelu_tanh", "softmax", "layernorm", "rmsnorm", "attention", "rope", "dot", "reduce_sum", "reduce_mean", "cumsum"):
            scale = np.abs(want[np.isfinite(want)]).max(initial=1e-30)  # order of summation differs
            assert got[k].shape == want.shape
            np.testing.assert_allclose(got[k], want, rtol=1e-9, atol=1e-12 * scale, equal_nan=True)
        else:
            same(got[k], want, f"{op} {name}")


def test_every_op_has_a_case():
    ops = subprocess.run([tool(), "--ops"], capture_output=True, text=True, check=True).stdout.split()
    assert set(ops) == {op for op, _, _ in CASES}


BAD_INDEX = [("gather", "{axis=0}", (3,), [[3]], "index 3 is not in [-3, 3)"),
             ("gather", "{axis=0}", (3,), [[-4]], "index -4 is not in [-3, 3)"),
             ("gather", "{axis=0}", (0,), [[0]], "index 0 is not in [0, 0)"),
             ("gather_nd", "{batch=0}", (2, 3), [[1, 3]], "index 3 is not in [-3, 3)"),
             ("gather_elements", "{axis=0}", (2,), [5], "index 5 is not in [-2, 2)")]


@pytest.mark.parametrize("op,attrs,shape,index,message", BAD_INDEX)
def test_bad_index(op, attrs, shape, index, message):
    inputs = [floats(shape), np.array(index)]
    with pytest.raises(Refused, match="^INVALID") as e:
        run(graph(op, inputs, attrs), inputs)
    assert message in str(e.value)


def test_sums_of_magnitudes():
    a, b = floats((4, 6)), floats((6, 3))
    text = ('func @f(%0 "a": f32[4,6], %1 "b": f32[6,3]) {\n  %2 = dot %0 %1\n  %3 = reduce_mean %0 {axes=[1]}\n'
            '  %4 = cumsum %0 {axis=1}\n  %5 = permute %2 {perm=[1,0]}\n  %6 = exp %2\n  %7 = permute %6 {perm=[1,0]}\n'
            '  return %2 "dot", %3 "mean", %4 "cumsum", %5 "view", %6 "exp", %7 "view of exp"\n}')
    got, sums = run(text, [a, b])
    magnitude = np.abs(d(a)) @ np.abs(d(b))
    np.testing.assert_allclose(sums[0], magnitude)
    np.testing.assert_allclose(sums[1], np.abs(d(a)).mean(1))
    np.testing.assert_allclose(sums[2], np.abs(d(a)).cumsum(1))
    np.testing.assert_allclose(sums[3], magnitude.T)
    np.testing.assert_allclose(got[3], (d(a) @ d(b)).T)
    assert sums[4] is None and sums[5] is None


def test_dot_is_fast_enough():
    a, b = floats((512, 384)), floats((384, 1536))
    (got,), _ = run(graph("dot", [a, b]), [a, b])
    np.testing.assert_allclose(got, d(a) @ d(b), atol=1e-9)
