"""The derived f64 programs: they are valid LEIR, agree with the widened program, and cover the real rounding error."""

from __future__ import annotations

import numpy as np
import pytest

from steptp.interp import evaluate
from steptp.ir import check, parse
from steptp.lower import BuildOptions, build, magnitude, widen
from steptp.lower.shadow import shadow

HEAD = "size N=16 K=200\nin X {t}[N,K]\nout Y {t}[N]\n"
PROGRAMS = {
    "sum": "for i:N k:K Y[i] += X[i,k]\n",
    "variance": "tmp m {t}[N]\nfor i:N k:K m[i] += X[i,k]\nfor i:N k:K Y[i] += (X[i,k]-m[i]/{t}(K))*(X[i,k]-m[i]/{t}(K))\n",
    "logsumexp": "tmp m {t}[N] s[N]\nfor i:N k:K m[i] max= X[i,k]\nfor i:N k:K s[i] += exp(X[i,k]-m[i])\nfor i:N Y[i] = m[i]+log(s[i])\n",
    "product": "for i:N k:K Y[i] *= 1+X[i,k]*0.01\n",
    "functions": "for i:N Y[i] = tanh(X[i,0])+sigmoid(X[i,1])*erf(X[i,2])+sqrt(abs(X[i,3]))-rsqrt(1+abs(X[i,4]))+log1p(abs(X[i,5]))+sin(X[i,6])\n",
    "rounding": "for i:N Y[i] = floor(X[i,0]*3)+round(X[i,1])+pow(abs(X[i,2]),1.5)+min(X[i,3],0)/2+expm1(X[i,4])\n",
}


def draw(dtype: str) -> np.ndarray:
    return np.random.default_rng(5).standard_normal((16, 200)).astype({"f16": np.float16, "f32": np.float32}[dtype])


@pytest.mark.parametrize("dtype", ["f32", "f16"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_error_estimate_covers_the_compiled_program(name: str, dtype: str) -> None:
    program = parse((HEAD + PROGRAMS[name]).format(t=dtype))
    made = shadow(program)
    check(made.program)
    wide = {"X": draw(dtype).astype(np.float64)}
    out = build(made.program, BuildOptions(opt_level=1)).run(wide)
    oracle = build(widen(program), BuildOptions(opt_level=1)).run(wide)["Y"]
    np.testing.assert_allclose(out["Y"], oracle, rtol=1e-12)
    np.testing.assert_allclose(oracle, evaluate(program, {"X": draw(dtype)}, dtype_override="f64")["Y"], rtol=1e-12)
    estimate = out[made.errors["Y"]]
    error = np.abs(build(program).run({"X": draw(dtype)})["Y"].astype(np.float64) - oracle)
    assert np.all(error <= 2 * estimate)
    assert np.all(estimate <= 3000 * np.maximum(error.max(), np.spacing(np.abs(oracle).astype(draw(dtype).dtype)).astype(np.float64)))


def test_estimate_follows_conditioning() -> None:
    program = parse("size N=2\nin X f32[N] Y[N]\nout Z f32[N]\nfor i:N Z[i] = X[i]*X[i]-Y[i]*Y[i]\n")
    made = shadow(program)
    run = build(made.program).run({"X": np.array([1000.0, 1000.0]), "Y": np.array([999.0, 1.0])})
    relative = run[made.errors["Z"]] / np.abs(run["Z"])
    assert relative[0] > 100 * relative[1]


def test_magnitude_bounds_integer_programs_only() -> None:
    matmul = parse("size N=3 K=5 L=4\nin A f32[N,K] B[K,L]\nout C f32[N,L]\nfor i:N j:L k:K C[i,j] += A[i,k]*B[k,j]-A[i,k]\n")
    bound = magnitude(matmul)
    assert bound is not None
    out = build(bound).run({"A": np.full((3, 5), 7.0), "B": np.full((5, 4), 2.0)})["C"]
    assert np.all(out == 5 * (7 * 2 + 7))
    for text in ("for i:N Y[i] = X[i,0]/2\n", "for i:N Y[i] = X[i,0]*0.5\n", "for i:N Y[i] = exp(X[i,0])\n", "for i:N if X[i,0]>0: Y[i] = 1\n"):
        assert magnitude(parse((HEAD + text).format(t="f32"))) is None
