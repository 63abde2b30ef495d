"""The NumPy evaluator is the executable specification: formulas, rounding, special values, and every error."""

from __future__ import annotations

import math

import numpy as np
import pytest
from eval_programs import ONLINE_SOFTMAX, PROGRAMS, SOFTMAX

from steptp.interp import EvalError, evaluate
from steptp.interp.numpy_eval import FloatAlgebra
from steptp.interp.rounding import round_array, round_int, rounder
from steptp.ir import OPS, DType, parse
from steptp.ir.ops import OpRule
from steptp.ir.types import round_literal
from steptp.verify.regimes import float_inputs


@pytest.mark.parametrize("regime", ["normal", "ties", "constant_rows"])
@pytest.mark.parametrize("name", sorted(PROGRAMS))
def test_programs_compute_their_formulas(name: str, regime: str) -> None:
    text, formula = PROGRAMS[name]
    program = parse(text)
    inputs = float_inputs(program, regime, 3)
    wanted = formula(inputs)
    for output, value in evaluate(program, inputs).items():
        np.testing.assert_allclose(value, wanted[output], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("text", [SOFTMAX, ONLINE_SOFTMAX])
def test_softmax_of_rows_with_minus_infinity(text: str) -> None:
    x = np.array([[-np.inf, 1.0, 2.0, -np.inf, 0.0], [-np.inf] * 5, [0.0] * 5, [3.0, -np.inf, -np.inf, -np.inf, -np.inf]])
    y = evaluate(parse(text), {"X": x})["Y"]
    assert np.isnan(y[1]).all()
    np.testing.assert_allclose(y[[0, 2, 3]], PROGRAMS["softmax"][1]({"X": x})["Y"][[0, 2, 3]], rtol=1e-15)


def _binary(dtype: str, body: str, a: np.ndarray, b: np.ndarray, **kwargs: str) -> np.ndarray:
    text = f"size N={len(a)}\nin A {dtype}[N] B[N]\nout Y {dtype}[N]\nfor i:N Y[i] = {body}\n"
    return evaluate(parse(text), {"A": a, "B": b}, **kwargs)["Y"]  # type: ignore[arg-type]


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("symbol", ["+", "-", "*", "/"])
def test_arithmetic_is_correctly_rounded(dtype: type[np.floating], symbol: str) -> None:
    rng = np.random.default_rng(1)
    a, b = (rng.normal(size=300) * 2.0 ** rng.integers(-18, 9, 300) for _ in range(2))
    a, b = a.astype(dtype), b.astype(dtype)
    with np.errstate(all="ignore"):
        wanted = {"+": a + b, "-": a - b, "*": a * b, "/": a / b}[symbol]
    np.testing.assert_array_equal(_binary({2: "f16", 4: "f32", 8: "f64"}[a.itemsize], f"A[i]{symbol}B[i]", a, b), wanted)


def test_every_operator_rounds_not_only_the_last() -> None:
    a, b = np.array([2048.0], np.float16), np.array([1.0], np.float16)
    assert _binary("f16", "A[i]+B[i]-A[i]", a, b)[0] == 0  # 2049 is a tie and goes to even
    assert _binary("f16", "A[i]+B[i]-A[i]", a, b, dtype_override="f64")[0] == 1


def test_f64_override_keeps_literals_and_widens_outputs() -> None:
    y = _binary("f32", "A[i]*0.1", np.array([1.0]), np.array([1.0]), dtype_override="f64")
    assert y.dtype == np.float64
    assert y[0] == float(np.float32(0.1))
    with pytest.raises(EvalError, match="dtype_override"):
        _binary("f32", "A[i]", np.array([1.0]), np.array([1.0]), dtype_override="f32")


def test_bf16_rounding_agrees_with_the_literal_rule_and_goes_to_even() -> None:
    rng = np.random.default_rng(2)
    values = np.concatenate(
        [
            rng.normal(size=400) * 2.0 ** rng.integers(-140, 128, 400),
            np.array([0.0, -0.0, np.inf, -np.inf, 3.4e38, 3.39e38, 2.0**-133, 2.0**-134, 3 * 2.0**-134, 2.0**-126, 1e-45, -(2.0**-130)]),
        ]
    )
    got = round_array(values, DType.BF16)
    assert [float(x) for x in got] == [float(round_literal(float(x), DType.BF16)) for x in values]
    assert float(round_array(np.array(1 + 2.0**-8), DType.BF16)) == 1.0
    assert float(round_array(np.array(1 + 3 * 2.0**-8), DType.BF16)) == 1 + 2 * 2.0**-7
    assert math.isnan(float(round_array(np.array(np.nan), DType.BF16)))
    assert np.signbit(round_array(np.array([-0.0]), DType.BF16))[0]


def test_bf16_rounds_after_each_operator() -> None:
    y = _binary("bf16", "A[i]+B[i]", np.array([256.0, 1.0]), np.array([1.0, 2.0**-9]))
    assert y.dtype == np.float32
    assert y.tolist() == [256.0, 1.0]


@pytest.mark.parametrize("dtype", [DType.F16, DType.BF16, DType.F32, DType.F64])
def test_integers_round_once(dtype: DType) -> None:
    assert round_int(0, dtype) == 0
    assert round_int(2**40 + 1, dtype if dtype is not DType.F16 else DType.F32) == 2.0**40 + (dtype is DType.F64)
    tie = (1 << 60) + (1 << 36)  # a tie for f32; the extra 1 is lost in a double
    assert round_int(tie, DType.F32) == float(1 << 60)
    assert round_int(tie + 1, DType.F32) == float((1 << 60) + (1 << 37))
    assert round_int(-(tie + 1), DType.F32) == -float((1 << 60) + (1 << 37))
    with np.errstate(over="ignore"):
        assert round_int(10**6, DType.F16) == math.inf


def test_max_and_min_propagate_nan_and_select_is_lazy() -> None:
    a, b = np.array([np.nan, 1.0, 2.0]), np.array([1.0, np.nan, 3.0])
    np.testing.assert_array_equal(_binary("f64", "max(A[i],B[i])", a, b), [np.nan, np.nan, 3])
    np.testing.assert_array_equal(_binary("f64", "min(A[i],B[i])", a, b), [np.nan, np.nan, 2])
    y = _binary("f64", "select(i>=1 and A[i-1]!=B[i],A[i-1],B[i])", np.arange(3.0), np.arange(3.0) + 7)
    assert y.tolist() == [7, 0, 1]
    assert _binary("f64", "select(i==0 or A[i-1]<0,1,2)", np.arange(3.0), np.arange(3.0)).tolist() == [1, 2, 2]


def test_special_values_of_functions() -> None:
    points = {
        "log(A[i])": ([0.0, -1.0, math.inf], [-math.inf, math.nan, math.inf]),
        "sqrt(A[i])": ([-1.0, -0.0, math.inf], [math.nan, 0.0, math.inf]),
        "rsqrt(A[i])": ([0.0, -1.0, 4.0], [math.inf, math.nan, 0.5]),
        "exp(A[i])": ([1000.0, -1000.0, math.nan], [math.inf, 0.0, math.nan]),
        "expm1(A[i])": ([1000.0, -math.inf, 1e-300], [math.inf, -1.0, 1e-300]),
        "log1p(A[i])": ([-1.0, -2.0, 1e-300], [-math.inf, math.nan, 1e-300]),
        "sigmoid(A[i])": ([-1000.0, 1000.0, 0.0], [0.0, 1.0, 0.5]),
        "sin(A[i])": ([math.inf, -math.inf, 0.0], [math.nan, math.nan, 0.0]),
        "round(A[i])": ([0.5, 1.5, -2.5], [0.0, 2.0, -2.0]),
        "floor(A[i])": ([-0.5, math.inf, 2.5], [-1.0, math.inf, 2.0]),
        "1/A[i]": ([0.0, -0.0, math.inf], [math.inf, -math.inf, 0.0]),
        "pow(A[i],0.5)": ([-4.0, 0.0, 4.0], [math.nan, 0.0, 2.0]),
        "pow(A[i],-1)": ([-0.0, 0.0, 4.0], [-math.inf, math.inf, 0.25]),
        "tanh(A[i])": ([math.inf, 0.0, -math.inf], [1.0, 0.0, -1.0]),
        "erf(A[i])": ([math.inf, 0.0, math.nan], [1.0, 0.0, math.nan]),
    }
    for body, (given, wanted) in points.items():
        np.testing.assert_array_equal(_binary("f64", body, np.array(given), np.zeros(3)), wanted, err_msg=body)


def _cast(source: str, target: str, values: np.ndarray) -> list[object]:
    text = f"size N={len(values)}\nin A {source}[N]\nout Y {target}[N]\nfor i:N Y[i] = {target}(A[i])\n"
    found: list[object] = evaluate(parse(text), {"A": values})["Y"].tolist()
    return found


def test_casts_saturate_truncate_and_map_nan_to_zero() -> None:
    assert _cast("f32", "i8", np.array([1.9, -1.9, 300, -300, np.nan, np.inf])) == [1, -1, 127, -128, 0, 127]
    assert _cast("f64", "i64", np.array([1e30, -np.inf, 2.0**62])) == [2**63 - 1, -(2**63), 2**62]
    assert _cast("i64", "i8", np.array([1000, -1000, 5])) == [127, -128, 5]
    assert _cast("f64", "bool", np.array([0.0, -0.0, np.nan, 0.5])) == [False, False, True, True]
    assert _cast("bool", "f16", np.array([True, False])) == [1.0, 0.0]
    assert _cast("f64", "f16", np.array([1e6, 1 + 2.0**-11])) == [math.inf, 1.0]


def test_floor_division_and_remainder_follow_the_divisor() -> None:
    text = "size N=4\nin A i32[N] B[N]\nout Q i32[N] R i32[N]\nfor i:N Q[i] = A[i]//B[i]\nfor i:N R[i] = A[i]%B[i]\n"
    out = evaluate(parse(text), {"A": np.array([7, -7, 7, -7]), "B": np.array([2, 2, -2, -2])})
    assert out["Q"].tolist() == [3, -4, -4, 3]
    assert out["R"].tolist() == [1, 1, -1, -1]


def test_accumulation_resets_once_per_entry_and_at_zero_trips() -> None:
    text = "size N=2 K=0\nin A f32[N,K]\nout Y f32[N] M[N]\nfor i:N k:K Y[i] += A[i,k]\nfor i:N k:K M[i] max= A[i,k]\n"
    out = evaluate(parse(text), {"A": np.zeros((2, 0))})
    assert out["Y"].tolist() == [0, 0]
    assert out["M"].tolist() == [-math.inf] * 2
    text = "size N=3 K=2\nin A f32[N,K]\nout Y f32[N]\nfor i:N\n tmp s f32[]\n for k:K s[] += A[i,k]\n Y[i] = s[]\n"
    assert evaluate(parse(text), {"A": np.ones((3, 2))})["Y"].tolist() == [2, 2, 2]


ERRORS = [
    ("eval-undefined", "for i:N if i>0: Y[i] = A[i]"),
    ("eval-undefined", "for i:N\n tmp t f32[]\n if i==0: t[] = A[i]\n Y[i] = t[]"),  # temporaries are fresh in every iteration
    ("eval-bounds", "for i:N Y[i] = A[i+1]"),
    ("eval-bounds", "for i:N+1 Y[i] = 1"),
    ("eval-overflow", "for i:N Y[i] = f32(T[i]*T[i])"),
    ("eval-zero-division", "for i:N Y[i] = f32(T[i]//i32(i))"),
]


@pytest.mark.parametrize(("code", "body"), ERRORS)
def test_undefined_evaluation_is_an_error_with_a_code(code: str, body: str) -> None:
    program = parse(f"size N=3\nin A f32[N] T i32[N]\nout Y f32[N]\n{body}\n")
    with pytest.raises(EvalError) as caught:
        evaluate(program, {"A": np.ones(3), "T": np.full(3, 100_000)})
    assert caught.value.code == code


def test_inputs_are_checked() -> None:
    program = parse(PROGRAMS["lookup"][0])
    good = float_inputs(program, "normal", 0)
    for bad, code in (
        ({"T": good["T"]}, "eval-input"),
        ({**good, "E": good["E"][:3]}, "eval-input"),
        ({**good, "T": good["T"].astype(float)}, "eval-input"),
        ({**good, "T": good["T"] + 7}, "eval-range"),
        ({**good, "T": good["T"] - 7}, "eval-range"),
    ):
        with pytest.raises(EvalError) as caught:
            evaluate(program, bad)
        assert caught.value.code == code


def test_every_operator_has_a_float_handler() -> None:
    algebra = FloatAlgebra()
    for name, row in OPS.items():
        if row.rule in (OpRule.NUMERIC, OpRule.FLOAT):
            run = algebra.unary(name, DType.F16) if row.arity == 1 else algebra.binary(name, DType.F16)
            value = run(*([0.75] * row.arity))
            narrow = rounder(DType.F16)
            assert narrow is not None
            assert value == narrow(value)
        elif row.rule is OpRule.COMPARE:
            assert algebra.compare(name)(1.0, 1.0) in (True, False)
