"""Exact evaluation: rationals, balls and kinds; decisions are made, or reported open, never guessed."""

from __future__ import annotations

import math

import numpy as np
import pytest
from eval_programs import PROGRAMS
from flint import arb, ctx, fmpq
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from leir_gen import random_program

from steptp.interp import EvalError, evaluate, reals
from steptp.interp.exact import (
    PRECISIONS,
    ExactAlgebra,
    ExactMachine,
    NeedPrecision,
    Same,
    Undecided,
    at_rising_precision,
    compare_exact,
    evaluate_exact,
    precision,
)
from steptp.ir import OPS, DType, parse, print_program
from steptp.ir.ops import OpRule
from steptp.verify.regimes import exact_inputs

INF, NAN = math.inf, math.nan


@pytest.fixture(autouse=True)
def _bits() -> object:
    with precision(256):
        yield


def _float(value: object) -> float:
    return float(value) if isinstance(value, (bool, int, float)) else float(arb(value))


def _third() -> object:
    return arb(1) / 3


# values


def test_comparison_of_values_has_no_tolerance() -> None:
    third = _third()
    assert compare_exact(third, fmpq(1, 3)) is Same.EQUAL
    assert compare_exact(third, third + arb(2) ** -200) is Same.DIFFERENT
    assert compare_exact(fmpq(1, 3), fmpq(1, 3) + fmpq(1, 1 << 900)) is Same.DIFFERENT
    assert compare_exact(arb(0, 1), arb(0, 1)) is Same.UNDECIDED
    with precision(256):
        assert compare_exact(arb(500).exp(), arb(500).exp() + 1) is Same.UNDECIDED
    with precision(1024):
        assert compare_exact(arb(500).exp(), arb(500).exp() + 1) is Same.DIFFERENT
        assert compare_exact(arb(500).exp(), arb(250).exp() * arb(250).exp()) is Same.EQUAL
    assert compare_exact(arb(1, 1e-20), fmpq(1)) is Same.UNDECIDED
    assert compare_exact(third - arb(1) / 3, fmpq(0)) is Same.UNDECIDED  # a ball around zero proves nothing
    assert compare_exact(arb("nan"), fmpq(1)) is Same.UNDECIDED


def test_kinds_match_by_kind() -> None:
    for a in (INF, -INF, NAN):
        assert compare_exact(a, a) is Same.EQUAL
        assert compare_exact(a, fmpq(1)) is Same.DIFFERENT
        assert compare_exact(_third(), a) is Same.DIFFERENT
    assert compare_exact(INF, -INF) is Same.DIFFERENT
    assert compare_exact(INF, NAN) is Same.DIFFERENT


def test_decisions_on_overlapping_balls_ask_for_precision() -> None:
    a, b = _third(), arb(1) / 3
    for decide in (reals.less, reals.equal):
        with pytest.raises(NeedPrecision):
            decide(a, b)
    assert reals.equal(a, a)  # one object is one real number
    assert not reals.less(a, a)
    with pytest.raises(NeedPrecision):
        reals.sign(a - b)
    with pytest.raises(NeedPrecision):
        reals.div(fmpq(1), a - b)
    with pytest.raises(NeedPrecision):
        reals.log(a - b)
    with pytest.raises(NeedPrecision):
        reals.floor(3 * a)
    with pytest.raises(NeedPrecision):
        reals.truncate(3 * a)


def test_maximum_of_overlapping_balls_is_tight_and_contains_both_cases() -> None:
    a, b = _third(), arb(1) / 3 + arb(2) ** -256
    top = reals.maximum(a, b)
    assert top.overlaps(a)
    assert top.overlaps(b)
    assert float(top.rad()) < 1e-70
    assert reals.maximum(fmpq(1), _third()) == fmpq(1)


@pytest.mark.parametrize("a", [INF, -INF, NAN, 2.0, -2.0, 0.0])
@pytest.mark.parametrize("b", [INF, -INF, NAN, 3.0, -0.5, 0.0])
@pytest.mark.parametrize("name", ["+", "-", "*", "/", "max", "min", "pow"])
def test_binary_operators_on_kinds_follow_ieee(name: str, a: float, b: float) -> None:
    from steptp.interp.numpy_eval import FloatAlgebra

    wanted = FloatAlgebra().binary(name, DType.F64)(a, b)
    run = ExactAlgebra().binary(name, DType.F64)
    for make in (reals.exact_const, lambda v: arb(v) if math.isfinite(v) else v):
        got = _float(run(make(a), make(b)))
        assert got == wanted or (math.isnan(got) and math.isnan(wanted)) or math.isclose(got, wanted), (name, a, b)
    for op in ("<", "<=", ">", ">=", "==", "!="):
        assert ExactAlgebra().compare(op)(reals.exact_const(a), reals.exact_const(b)) == FloatAlgebra().compare(op)(a, b)


@pytest.mark.parametrize("name", [n for n, r in OPS.items() if r.arity == 1 and r.rule in (OpRule.FLOAT, OpRule.NUMERIC)])
def test_functions_agree_with_doubles(name: str) -> None:
    from steptp.interp.numpy_eval import FloatAlgebra

    exact, double = ExactAlgebra().unary(name, DType.F64), FloatAlgebra().unary(name, DType.F64)
    for x in (INF, -INF, NAN, 0.0, 1.0, -1.0, 0.5, 2.5, -0.5, -3.75, 1.5, 20.0, 1e-5):
        wanted = double(x)
        forms = [reals.exact_const(x)] if not math.isfinite(x) else [reals.exact_const(x), arb(x)]
        for form in forms:
            got = _float(exact(form))
            assert math.isclose(got, wanted, rel_tol=1e-12) or (math.isnan(got) and math.isnan(wanted)), (name, x, got, wanted)


def test_rationals_stay_exact_and_bounded() -> None:
    assert reals.add(fmpq(1, 3), fmpq(1, 6)) == fmpq(1, 2)
    assert type(reals.sqrt(fmpq(9, 16))) is fmpq
    assert type(reals.sqrt(fmpq(2))) is arb
    assert type(reals.power(fmpq(3), fmpq(2))) is fmpq
    grown = fmpq(1, 3)
    for _ in range(20):
        grown = reals.mul(grown, grown)
    assert type(grown) is arb


def test_numbers_too_large_to_write_out_are_undecided_not_written_out() -> None:
    tower = reals.exp(reals.exp(fmpq(20)))
    for decide in (reals.floor, reals.truncate):
        with pytest.raises(NeedPrecision):
            decide(tower)
    tiny = reals.div(fmpq(1), tower)
    assert reals.floor(tiny) == 0
    assert reals.ceil(tiny) == 1
    assert reals.floor(-tiny) == -1
    assert reals.nearest(tiny) == 0
    assert reals.truncate(-tiny) == 0
    assert type(reals.sqrt(arb(2) ** 100_000)) is arb


def test_casts_decide_the_integer() -> None:
    to_int = ExactAlgebra().cast(DType.F32, DType.I8)
    assert [to_int(v) for v in (fmpq(-7, 2), fmpq(1000), -INF, NAN, arb(2).sqrt())] == [-3, 127, -128, 0, 1]
    assert ExactAlgebra().cast(DType.F16, DType.F64)(fmpq(1, 3)) == fmpq(1, 3)
    assert ExactAlgebra().cast(DType.F16, DType.BOOL)(_third()) is True
    assert ExactAlgebra().cast(DType.I64, DType.F16)(2049) == fmpq(2049)  # rounding is ignored


# precision


def test_precision_rises_only_as_needed_and_is_restored() -> None:
    def work() -> object:
        tail = reals.sigmoid(arb(400))  # 1 - 1e-174: at 256 bits indistinguishable from 1
        return reals.log(reals.sub(fmpq(1), tail))

    before = ctx.prec
    value, bits = at_rising_precision(work)
    assert bits == PRECISIONS[1]
    assert float(value) == pytest.approx(-400)
    assert ctx.prec == before
    with pytest.raises(Undecided):
        at_rising_precision(lambda: reals.log(reals.sub(_third(), _third())))
    assert ctx.prec == before


# programs


@pytest.mark.parametrize("regime", ["normal", "ties"])
@pytest.mark.parametrize("name", sorted(PROGRAMS))
def test_programs_agree_with_their_formulas(name: str, regime: str) -> None:
    program = parse(PROGRAMS[name][0])
    draws = exact_inputs(program, regime, 7)
    out = evaluate_exact(program, {n: d.exact_list() for n, d in draws.items()})
    wanted = PROGRAMS[name][1]({n: d.array() for n, d in draws.items()})
    for output, values in out.items():
        np.testing.assert_allclose([_float(v) for v in values], np.asarray(wanted[output], float).ravel(), rtol=1e-12, atol=1e-12)


def test_masked_rows_keep_their_kinds() -> None:
    results = []
    for name in ("softmax", "online_softmax"):
        program = parse(PROGRAMS[name][0])
        draws = exact_inputs(program, "masked", 3)
        x = draws["X"].array()
        assert np.isneginf(x).any(axis=1).any()
        out = evaluate_exact(program, {n: d.exact_list() for n, d in draws.items()})["Y"]
        dead = np.isneginf(x).all(axis=1)
        assert [all(isinstance(v, float) and math.isnan(v) for v in out[5 * i : 5 * i + 5]) for i in range(4)] == dead.tolist()
        results.append(out)
    assert all(compare_exact(a, b) is Same.EQUAL for a, b in zip(*results, strict=True))


def test_errors_are_those_of_the_specification() -> None:
    program = parse("size N=3\nin A f32[N]\nout Y f32[N]\nfor i:N if i>0: Y[i] = A[i]\n")
    with pytest.raises(EvalError, match="never written"):
        ExactMachine(program).run({"A": [fmpq(1)] * 3})
    program = parse(PROGRAMS["lookup"][0])
    with pytest.raises(EvalError, match="range"):
        evaluate_exact(program, {"T": [9] * 5, "E": [fmpq(0)] * 21})


@given(st.integers(0, 10**6), st.sampled_from(["normal", "ties", "positive", "zeros"]))
@settings(max_examples=80, deadline=None)
def test_random_programs_agree_with_f64(seed: int, regime: str) -> None:
    program = random_program(seed)
    assume("-0.0" not in print_program(program))  # over the reals zero has no sign
    draws = exact_inputs(program, regime, seed)
    inputs = {n: d.array() for n, d in draws.items()}
    rows = {n: d.exact_list() for n, d in draws.items()}
    assume(all(np.array_equal(inputs[n].ravel().astype(float), [_float(v) for v in rows[n]]) for n in rows))
    try:
        out = evaluate_exact(program, rows)
    except Undecided:
        return
    wanted = evaluate(program, inputs, dtype_override="f64")
    for name, values in out.items():
        got, double = np.array([_float(v) for v in values]), np.asarray(wanted[name], float).ravel()
        close = np.isclose(got, double, rtol=1e-6, atol=1e-8, equal_nan=True) | (np.abs(got) > 1e300)
        assert close.all(), print_program(program)


def test_every_operator_has_an_exact_handler() -> None:
    algebra = ExactAlgebra()
    for name, row in OPS.items():
        if row.rule in (OpRule.NUMERIC, OpRule.FLOAT):
            run = algebra.unary(name, DType.F64) if row.arity == 1 else algebra.binary(name, DType.F64)
            assert math.isfinite(_float(run(*([fmpq(3, 4)] * row.arity))))
