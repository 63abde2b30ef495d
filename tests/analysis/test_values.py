"""Ranges of float expressions: signs and bounds that hold for all inputs."""

from __future__ import annotations

import math
import random
from fractions import Fraction

import numpy as np
import pytest
from value_exprs import value_text

from steptp.analysis.values import ValueRange, scope_of, value_range
from steptp.interp import evaluate
from steptp.ir import Program, parse
from steptp.ir.walk import get, stores

NORM = """size N=3 K=4
in x f32[N,K]
out Y f32[N,K]
tmp s f32[N] m[N] v[N] p[N] q[N]
for i:N k:K s[i] += exp(x[i,k])
for i:N k:K m[i] max= x[i,k]
for i:N k:K v[i] += (x[i,k]-m[i])*(x[i,k]-m[i])
for i:N k:K p[i] *= 1+abs(x[i,k])
for i:N q[i] = min(s[i],2)
for i:N k:K Y[i,k] = s[i]+m[i]+v[i]+p[i]+q[i]
"""


def _range(value: str, header: str = "", setup: str = "", where: str = "for i:N ") -> ValueRange:
    text = f"size N=3\nin x f32[N] y f32[N] n i32[N] 1..9 h f16[N]\nout Y f32[N]\n{header}{setup}{where}Y[i] = {value}\n"
    program = parse(text)
    met = list(stores(program))[-1]
    return value_range(program, met.path, met.stmt.value)  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("value", "low", "high", "nonzero", "finite"),
    [
        ("x[i]", -math.inf, math.inf, False, True),
        ("2.5*x[i]", -math.inf, math.inf, False, True),
        ("x[i]*x[i]", 0, math.inf, False, True),
        ("x[i]*y[i]", -math.inf, math.inf, False, True),
        ("exp(x[i])", 0, math.inf, True, True),
        ("1+exp(x[i])", 1, math.inf, True, True),
        ("exp(x[i])-1", -1, math.inf, False, True),
        ("-exp(x[i])", -math.inf, 0, True, True),
        ("abs(x[i])+abs(y[i])", 0, math.inf, False, True),
        ("abs(x[i])+0.5", 0.5, math.inf, True, True),
        ("min(max(x[i],-1),3)", -1, 3, False, True),
        ("max(x[i],0.5)", 0.5, math.inf, True, True),
        ("min(exp(x[i]),exp(y[i]))", 0, math.inf, True, True),
        ("1/x[i]", -math.inf, math.inf, True, False),
        ("1/(2+x[i]*x[i])", 0, 0.5, True, True),
        ("x[i]/exp(y[i])", -math.inf, math.inf, False, True),
        ("exp(x[i])/exp(y[i])", 0, math.inf, True, True),
        ("exp(1/x[i])", 0, math.inf, False, False),
        ("log(x[i])", -math.inf, math.inf, False, False),
        ("log1p(exp(x[i]))", 0, math.inf, True, True),
        ("sqrt(x[i])", 0, math.inf, False, False),
        ("sqrt(abs(x[i]))", 0, math.inf, False, True),
        ("rsqrt(1+x[i]*x[i])", 0, 1, True, True),
        ("sigmoid(x[i])", 0, 1, True, True),
        ("tanh(x[i])", -1, 1, False, True),
        ("pow(abs(x[i]),0.5)", 0, math.inf, False, True),
        ("pow(x[i],2)", 0, math.inf, False, True),
        ("pow(x[i],y[i])", -math.inf, math.inf, False, False),
        ("f32(h[i])*f32(h[i])", 0, math.inf, False, True),
        ("f32(n[i])", 1, math.inf, True, True),
        ("f32(i)", 0, math.inf, False, True),
        ("f32(N)", 1, math.inf, True, True),
        ("f32(N-1)", 0, math.inf, False, True),
        ("select(x[i]>0,x[i],1)", 0, math.inf, True, True),
        ("select(x[i]==0,1,x[i])", -math.inf, math.inf, True, True),
        ("select(x[i]>=2,x[i],exp(y[i]))", 0, math.inf, True, True),
        ("select(not(x[i]<1) and y[i]>0,x[i]*y[i],1)", 0, math.inf, True, True),
        ("select(x[i]>0 or y[i]>0,1,x[i])", -math.inf, 1, False, True),
        ("select(x[i]<1/y[i],1,x[i])", -math.inf, math.inf, False, True),
        ("inf*x[i]", -math.inf, math.inf, False, False),
    ],
)
def test_one_expression(value: str, low: float, high: float, nonzero: bool, finite: bool) -> None:
    found = _range(value)
    assert (found.low, found.high) == (pytest.approx(low, rel=1e-9), pytest.approx(high, rel=1e-9))
    assert (found.nonzero, found.finite) == (nonzero, finite)


def test_bounds_are_rounded_outward() -> None:
    assert Fraction(_range("1/(3+abs(x[i]))").high) >= Fraction(1, 3)
    assert Fraction(_range("0.1+abs(x[i])+0.2").low) <= Fraction(float(np.float32(0.1))) + Fraction(float(np.float32(0.2)))


def test_a_guard_holds_in_its_body_unless_the_body_changes_it() -> None:
    assert _range("x[i]", where="for i:N if x[i]>0: ").positive
    text = "size N=3\nin x f32[N]\nout Y f32[N]\ntmp t f32[N]\nfor i:N t[i] = x[i]\nfor i:N if t[i]>0:\n t[i] = x[i]-5\n Y[i] = t[i]\n"
    assert not value_range(parse(text), (1, 0, 1), get(parse(text), (1, 0, 1)).value).nonnegative  # type: ignore[union-attr]


def _stored(program: Program, buffer: str, path: tuple[int, ...]) -> ValueRange:
    return next(scope_of(program, path).of(e) for e in _loads(program, path) if e.buffer == buffer)


def _loads(program: Program, path: tuple[int, ...]):  # type: ignore[no-untyped-def]
    from steptp.ir.walk import loads

    return loads(get(program, path).value)  # type: ignore[union-attr]


def test_temporaries_have_the_hull_of_what_is_stored() -> None:
    program = parse(NORM)
    last = (5, 0, 0)
    assert _stored(program, "s", last).positive  # the reader's loop k:K shows that there is a term
    assert _stored(program, "m", last).finite
    assert _stored(program, "v", last).nonnegative
    assert not _stored(program, "v", last).nonzero
    assert _stored(program, "p", last).positive
    q = _stored(program, "q", last)
    assert (q.low, q.high, q.nonzero) == (0, 2, True)


def test_an_accumulation_of_nothing_is_the_identity() -> None:
    program = parse(NORM)
    alone = (4, 0)  # q[i] = min(s[i],2): no loop over K around, and K may be 0
    found = _stored(program, "s", alone)
    assert found.nonnegative
    assert not found.nonzero
    text = "size N=3 K=4\nin x f32[N,K]\nout Y f32[N]\ntmp m f32[N]\nfor i:N k:K m[i] max= x[i,k]\nfor i:N Y[i] = m[i]\n"
    assert not value_range(parse(text), (1, 0), get(parse(text), (1, 0)).value).finite  # type: ignore[union-attr]


def test_several_writers_and_recurrences() -> None:
    text = "size N=3\nin x f32[N]\nout S f32[N+1] Y f32[N]\nS[0] = 1\nfor i:N S[i+1] = S[i]*exp(x[i])\nfor i:N Y[i] = S[i]\n"
    assert not value_range(parse(text), (2, 0), get(parse(text), (2, 0)).value).nonnegative  # type: ignore[union-attr]
    text = "size N=3\nin x f32[N]\nout Y f32[N]\ntmp t f32[N]\nfor i:N t[i] = exp(x[i])\nfor i:N carry t[i] += x[i]\nfor i:N Y[i] = t[i]\n"
    assert not value_range(parse(text), (2, 0), get(parse(text), (2, 0)).value).nonnegative  # type: ignore[union-attr]


@pytest.mark.parametrize("seed", range(60))
def test_values_lie_in_their_range(seed: int) -> None:
    rng = random.Random(seed)
    value = value_text(rng, 3)
    text = f"size N=40\nin x f64[N] y f64[N]\nout Y f64[N]\nfor i:N Y[i] = {value}+0*x[i]\n"
    program = parse(text)
    store = get(program, (0, 0))
    found = value_range(program, (0, 0), store.value.args[0])  # type: ignore[union-attr]
    draws = np.random.default_rng(seed)
    inputs = {n: draws.choice([-3.0, -1.0, -0.5, 0.0, 0.25, 1.0, 2.0, 5.0], 40) for n in ("x", "y")}
    with np.errstate(all="ignore"):
        got = evaluate(program, inputs)["Y"]
    numbers = got[~np.isnan(got)]
    slack = 1e-9 * (1 + np.abs(numbers))
    assert (numbers >= found.low - slack).all(), value
    assert (numbers <= found.high + slack).all(), value
    if found.finite:
        assert np.isfinite(got).all(), value
    if found.nonzero and found.finite:
        assert (np.abs(got) > 0).all(), value
