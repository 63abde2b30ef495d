"""Regimes are what they say, are seeded by name, and are chosen by what a program does."""

from __future__ import annotations

import numpy as np
import pytest
from eval_programs import ARGMAX, CONV, LAYERNORM, LOOKUP, MATMUL, SOFTMAX
from flint import fmpq

from steptp.ir import parse
from steptp.verify.regimes import REGIMES, SPECIAL_REGIMES, exact_inputs, float_inputs, lazy_inputs, relevant_regimes

WIDE = parse("size N=40 M=30\nin A f64[N,M] B f32[N,M] H f16[N,M] S bf16[N,M] T i64[N] 2..M U i8[N] P bool[N] z f64[]\nout Y f64[N]\nfor i:N Y[i] = A[i,0]\n")

PROPERTIES = {
    "normal": lambda a: abs(a.mean()) < 0.2 and 0.8 < a.std() < 1.2,
    "ties": lambda a: len(np.unique(a)) == 5,
    "zeros": lambda a: 0.3 < (a == 0).mean() < 0.9 and (a == 0).all(axis=1).any(),
    "negatives": lambda a: (a < 0).all(),
    "positive": lambda a: (a > 0).all(),
    "unit": lambda a: (a > 0).all() and (a < 1).all(),
    "large": lambda a: (abs(a) >= 50).all() and (abs(a) <= 100).all() and (a < 0).any() and (a > 0).any(),
    "tiny": lambda a: (abs(a) < 1e-4).all() and (a != 0).any(),
    "mixed": lambda a: abs(a).max() > 10 and abs(a[a != 0]).min() < 0.1,
    "clamped": lambda a: (abs(a) > 6).any() and (abs(a) < 6).any() and (abs(a) == 6).any() and (abs(a) == 3).any(),
    "constant_rows": lambda a: (a == a[:, :1]).all() and len(np.unique(a)) > 20,
    "masked": lambda a: np.isneginf(a).any() and np.isneginf(a).all(axis=1).any() and np.isfinite(a).any(),
    "denormal": lambda a: (abs(a) < 1.2e-38).all() and (a != 0).any(),
}


@pytest.mark.parametrize("regime", [*REGIMES, *SPECIAL_REGIMES])
def test_regimes_are_what_they_say(regime: str) -> None:
    arrays = float_inputs(WIDE, regime, 0)
    assert PROPERTIES[regime](arrays["A"])
    assert {n: a.dtype for n, a in arrays.items()} == {
        "A": np.float64, "B": np.float32, "H": np.float16, "S": np.float32, "T": np.int64, "U": np.int8, "P": np.bool_, "z": np.float64,
    }  # fmt: skip
    assert ((arrays["T"] >= 2) & (arrays["T"] < 30)).all()
    bits = arrays["S"].view(np.uint32)
    assert ((bits & 0xFFFF) == 0).all()  # rounded to bf16


@pytest.mark.parametrize("regime", [*REGIMES, *SPECIAL_REGIMES])
def test_exact_inputs_have_small_denominators_and_equal_their_arrays(regime: str) -> None:
    for draw in exact_inputs(WIDE, regime, 1).values():
        values = draw.exact_list()
        assert [draw.exact(n) for n in range(len(values))] == values
        array = draw.array()
        if draw.dtype.value == "f64":
            assert [float(v.numerator) / float(v.denominator) if isinstance(v, fmpq) else v for v in values] == array.ravel().tolist()
            assert all(v.denominator <= 64 for v in values if isinstance(v, fmpq)) or regime in ("tiny", "denormal")
        elif not draw.dtype.is_float:
            assert values == array.ravel().tolist()
            assert all(type(v) in (int, bool) for v in values)


def test_streams_depend_on_seed_regime_and_name_only() -> None:
    a, b = float_inputs(WIDE, "normal", 0), float_inputs(WIDE, "normal", 0)
    assert all(np.array_equal(a[n], b[n]) for n in a)
    assert not np.array_equal(a["A"], float_inputs(WIDE, "normal", 1)["A"])
    assert not np.array_equal(a["A"], a["B"].astype(np.float64))
    fewer = parse("size N=40 M=30\nin A f64[N,M]\nout Y f64[N]\nfor i:N Y[i] = A[i,0]\n")
    assert np.array_equal(a["A"], float_inputs(fewer, "normal", 0)["A"])


def test_lazy_inputs_are_in_range_repeatable_and_spread() -> None:
    draws, again = lazy_inputs(WIDE, "normal", 3), lazy_inputs(WIDE, "normal", 3)
    values = [draws["A"].exact(n) for n in range(2000)]
    assert values == [again["A"].exact(n) for n in range(2000)]
    doubles = np.array([float(v.numerator) / float(v.denominator) for v in values])
    assert abs(doubles.mean()) < 0.1
    assert 0.9 < doubles.std() < 1.1
    assert len(set(values[:64])) > 40
    assert abs(np.corrcoef(doubles[:-1], doubles[1:])[0, 1]) < 0.1
    assert all(2 <= draws["T"].exact(n) < 30 for n in range(500))
    assert draws["A"].exact(10**12) is not None


def test_regimes_follow_from_the_operators() -> None:
    assert relevant_regimes(parse(MATMUL)) == ("normal", "ties")
    assert relevant_regimes(parse(LOOKUP)) == ("normal", "ties")
    assert relevant_regimes(parse(CONV)) == ("normal", "ties")  # its select looks at indices only
    assert set(relevant_regimes(parse(ARGMAX))) >= {"ties", "zeros", "negatives", "positive", "clamped", "constant_rows"}
    assert "large" not in relevant_regimes(parse(ARGMAX))
    assert set(relevant_regimes(parse(SOFTMAX))) >= {"large", "tiny", "ties"}
    assert set(relevant_regimes(parse(LAYERNORM))) >= {"positive", "constant_rows", "zeros"}
    assert set(relevant_regimes(parse(MATMUL), parse(MATMUL.replace("A[i,k]*B", "max(A[i,k],0)*B")))) >= {"negatives"}
    assert all(relevant_regimes(parse(t))[0] == "normal" for t in (MATMUL, ARGMAX, SOFTMAX))


def test_unranged_integers_and_bools_cover_both_sides() -> None:
    draws = exact_inputs(WIDE, "normal", 0)
    assert {True, False} == set(draws["P"].exact_list())
    assert min(draws["U"].exact_list()) < 0 < max(draws["U"].exact_list())
    assert set(exact_inputs(WIDE, "positive", 0)["P"].exact_list()) == {True}
    ends = set(exact_inputs(WIDE, "ties", 0)["T"].exact_list())
    assert ends >= {2, 29}
