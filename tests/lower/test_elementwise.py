"""Operators and casts bit for bit against the NumPy evaluator, on NaN, infinities, signed zeros, subnormals and ties."""

from __future__ import annotations

import numpy as np
import pytest

from steptp.interp import evaluate
from steptp.ir import parse
from steptp.ir.types import DType
from steptp.lower import BuildOptions, build
from steptp.lower.build import from_storage, to_storage

VALUES = [
    0.0, -0.0, np.inf, -np.inf, np.nan, 1, -1, 1e-40, -1e-40, 65504, 65520, 1e-8, 6e-8, 3.4e38, -3.4e38, 0.5, 1.5, 2.5, -0.5, -1.5,
    127.5, -128.7, 2147483648.0, -3e9, 9.3e18, 1e-30, 7, 3, 1.0039, 2049,
]  # fmt: skip
EXPRESSIONS = [
    "A[i]+B[i]", "A[i]-B[i]", "A[i]*B[i]", "A[i]/B[i]", "max(A[i],B[i])", "min(A[i],B[i])", "max(A[i],0)", "min(A[i],0)", "max(A[i],1)", "-A[i]",
    "abs(A[i])", "sqrt(A[i])", "floor(A[i])", "ceil(A[i])", "round(A[i])", "select(A[i]<B[i],A[i],B[i])", "select(A[i]==A[i],A[i],B[i])", "A[i]*0",
    "A[i]-A[i]", "0/A[i]", "A[i]+0", "A[i]*B[i]+A[i]", "select(isnan(A[i]),1,B[i])", "select(A[i]!=B[i],1,0)", "select(not A[i]>=B[i],1,0)",
]  # fmt: skip
CASTS = ("f16", "bf16", "f32", "f64", "i8", "i32", "i64", "bool")


def arrays(dtype: str) -> tuple[np.ndarray, np.ndarray]:
    a, b = (np.array(x, np.float64) for x in ([v for v in VALUES for _ in VALUES], VALUES * len(VALUES)))
    if dtype == "bf16":
        return tuple(from_storage(to_storage(x.astype(np.float32), DType.BF16), DType.BF16) for x in (a, b))  # type: ignore[return-value]
    kind = {"f16": np.float16, "f32": np.float32, "f64": np.float64}[dtype]
    with np.errstate(over="ignore"):
        return a.astype(kind), b.astype(kind)


def differences(got: np.ndarray, want: np.ndarray) -> int:
    if got.dtype.kind != "f":
        return int(np.count_nonzero(got != want))
    assert got.dtype == want.dtype
    bits = {2: np.uint16, 4: np.uint32, 8: np.uint64}[got.dtype.itemsize]
    same = (np.ascontiguousarray(got).view(bits) == np.ascontiguousarray(want).view(bits)) | (np.isnan(got) & np.isnan(want))
    return int(np.count_nonzero(~same))


@pytest.mark.parametrize("dtype", ["f16", "bf16", "f32", "f64"])
@pytest.mark.parametrize("kind", ["for", "vec"])
def test_operators_and_casts(dtype: str, kind: str) -> None:
    a, b = arrays(dtype)
    lines = [f"{kind} i:N O{k}[i] = {e}" for k, e in enumerate(EXPRESSIONS)]
    lines += [f"{kind} i:N C{c}[i] = {'A[i]' if c == dtype else f'{c}(A[i])'}" for c in CASTS]
    outs = " ".join([*(f"O{k} {dtype}[N]" for k in range(len(EXPRESSIONS))), *(f"C{c} {c}[N]" for c in CASTS)])
    program = parse(f"size N={a.size}\nin A {dtype}[N] B[N]\nout {outs}\n" + "\n".join(lines) + "\n")
    want = evaluate(program, {"A": a, "B": b})
    for level in (0, 3):
        got = build(program, BuildOptions(fma=False, opt_level=level)).run({"A": a, "B": b})
        wrong = {name: n for name, value in want.items() if (n := differences(got[name], value))}
        assert not wrong


def test_integer_casts_saturate() -> None:
    text = "size N=6\nin X i64[N] -5000000000..5000000000\nout A i8[N] B i32[N] C f16[N] D bf16[N] E bool[N]\n"
    program = parse(
        text + "for i:N A[i] = i8(X[i])\nvec i:N B[i] = i32(X[i])\nfor i:N C[i] = f16(X[i])\nfor i:N D[i] = bf16(X[i])\nfor i:N E[i] = bool(X[i])\n"
    )
    given = {"X": np.array([-4999999999, -129, 0, 127, 2049, 4999999999])}
    want, got = evaluate(program, given), build(program).run(given)
    for name, value in want.items():
        assert differences(got[name], value) == 0, name


def test_products_are_contracted_only_when_asked() -> None:
    rng = np.random.default_rng(0)
    given = {k: rng.standard_normal(4096).astype(np.float32) for k in "ABC"}
    fused = parse("size N=4096\nin A f32[N] B[N] C[N]\nout Y f32[N]\nvec i:N Y[i] = A[i]*B[i]+C[i]\n")
    split = parse("size N=4096\nin A f32[N] B[N] C[N]\nout Y f32[N]\ntmp P f32[N]\nfor i:N P[i] = A[i]*B[i]\nfor i:N Y[i] = P[i]+C[i]\n")
    plain = given["A"] * given["B"] + given["C"]
    for program in (fused, split):
        for level in (0, 1, 2, 3):
            assert np.array_equal(build(program, BuildOptions(fma=False, opt_level=level)).run(given)["Y"], plain)
    assert not np.array_equal(build(fused).run(given)["Y"], plain)
