"""Accuracy of the f32 polynomials, their special values, and equal bits scalar, vector, with and without FMA contraction."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from steptp.ir import parse
from steptp.lower import BuildOptions, build

COUNT = 1 << 17
SPECIAL = [0.0, -0.0, math.inf, -math.inf, math.nan, 1.0, -1.0, 88.72, 88.73, -87.4, -103.9, -104.1, 1e-40, -1e-40, 3e38, -3e38]


def _sigmoid(x: np.ndarray) -> np.ndarray:
    t = np.exp(-np.abs(x))
    return np.where(x < 0, t, 1.0) / (1.0 + t)


def _erf(x: np.ndarray) -> np.ndarray:
    return np.array([math.erf(v) for v in x.tolist()])


CASES: dict[str, tuple[Callable[[np.ndarray], np.ndarray], float]] = {
    "exp": (np.exp, 1.0), "expm1": (np.expm1, 1.6), "log": (np.log, 0.8), "log1p": (np.log1p, 1.3), "tanh": (np.tanh, 1.4),
    "sigmoid": (_sigmoid, 2.4), "erf": (_erf, 1.5),
}  # fmt: skip


def samples() -> np.ndarray:
    rng = np.random.default_rng(7)
    x = rng.integers(0, 1 << 32, COUNT, dtype=np.uint64).astype(np.uint32).view(np.float32).copy()
    half = COUNT // 2
    x[:half] = rng.standard_normal(half) * rng.choice([1e-3, 0.1, 1, 5, 20, 60], half)
    x[-len(SPECIAL) :] = SPECIAL
    return x


def run(expr: str, x: np.ndarray, kind: str, options: BuildOptions) -> np.ndarray:
    return build(parse(f"size N={x.size}\nin X f32[N]\nout Y f32[N]\n{kind} i:N Y[i] = {expr}\n"), options).run({"X": x})["Y"]


@pytest.mark.parametrize("name", CASES)
def test_accuracy_and_special_values(name: str) -> None:
    exact, allowed = CASES[name]
    x = samples()
    got = run(f"{name}(X[i])", x, "vec", BuildOptions())
    with np.errstate(all="ignore"):
        want = exact(x.astype(np.float64))
        rounded = want.astype(np.float32)
        finite = np.isfinite(rounded) & np.isfinite(got)
        ulps = np.abs(got.astype(np.float64) - want) / np.spacing(np.abs(rounded)).astype(np.float64)
    special = ~finite
    assert np.array_equal(got[special], rounded[special], equal_nan=True)
    assert float(ulps[finite].max()) <= allowed


@pytest.mark.parametrize("name", CASES)
def test_same_bits_in_every_build(name: str) -> None:
    x = samples()[: 1 << 13]
    first: np.ndarray | None = None
    for kind in ("for", "vec"):
        for options in (BuildOptions(), BuildOptions(fma=False), BuildOptions(opt_level=0)):
            bits = run(f"{name}(X[i])", x, kind, options)
            bits = np.where(np.isnan(bits), np.float32(0), bits).view(np.uint32)
            first = bits if first is None else first
            assert np.array_equal(bits, first)


def test_signed_zero_and_tiny_arguments_survive() -> None:
    x = np.array([-0.0, 1e-8, -1e-8, 1e-30, 1e-42], np.float32)
    for name in ("tanh", "expm1", "log1p"):
        got = run(f"{name}(X[i])", x, "for", BuildOptions())
        assert np.array_equal(got.view(np.uint32), x.view(np.uint32)), name


def test_the_c_library_option_is_close() -> None:
    x = np.linspace(-4, 4, 999, dtype=np.float32)
    for name in ("exp", "tanh", "erf", "sigmoid"):
        a, b = (run(f"{name}(X[i])", x, "vec", BuildOptions(math=m)) for m in ("vector", "libm"))
        np.testing.assert_allclose(a, b, rtol=5e-7)
