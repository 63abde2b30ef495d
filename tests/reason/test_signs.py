"""The checker's own bounds: sound, and as strong as what strategies prove."""

from __future__ import annotations

import random

import numpy as np
import pytest
from value_exprs import value_text

from steptp.analysis.values import scope_of
from steptp.interp import evaluate
from steptp.ir import parse
from steptp.ir.nodes import Op
from steptp.ir.walk import get, subexprs
from steptp.reason.rederive.signs import Signs

CONDITIONS = ("positive", "nonnegative", "nonzero", "finite")
REDUCTIONS = """size N=3 K=4
in x f32[N,K]
out Y f32[N,K]
tmp s f32[N] m[N] v[N] p[N] l[N]
for i:N k:K s[i] += exp(x[i,k])
for i:N k:K m[i] max= x[i,k]
for i:N k:K v[i] += (x[i,k]-m[i])*(x[i,k]-m[i])
for i:N k:K p[i] *= 1+abs(x[i,k])
for i:N k:K l[i] min= exp(x[i,k])
for i:N k:K if x[i,k]>0: Y[i,k] = (s[i]+m[i]*v[i]/p[i]+l[i])*x[i,k]/f32(K)
"""


@pytest.mark.parametrize("seed", range(60))
def test_bounds_hold_and_reach_as_far(seed: int) -> None:
    value = value_text(random.Random(seed), 3)
    program = parse(f"size N=40\nin x f64[N] y f64[N]\nout Y f64[N]\nfor i:N Y[i] = {value}+0*x[i]\n")
    expr = get(program, (0, 0)).value.args[0]  # type: ignore[union-attr]
    found, signs = scope_of(program, (0, 0)).of(expr), Signs.at(program, (0, 0)).of(expr)
    for condition in CONDITIONS:
        if found.finite and getattr(found, condition):
            assert signs.says(condition), (condition, value)
    draws = np.random.default_rng(seed)
    with np.errstate(all="ignore"):
        got = evaluate(program, {n: draws.choice([-3.0, -1.0, 0.0, 0.25, 2.0], 40) for n in ("x", "y")})["Y"]
    if signs.says("finite"):
        assert np.isfinite(got).all(), value
    for condition, holds in (("positive", got > 0), ("nonnegative", got >= -1e-12), ("nonzero", got != 0)):
        if signs.says(condition):
            assert holds.all(), (condition, value)


def test_accumulations_and_guards() -> None:
    program = parse(REDUCTIONS)
    place = (5, 0, 0, 0)
    scope, signs = scope_of(program, place), Signs.at(program, place)
    proven = 0
    for expr in subexprs(get(program, place).value):  # type: ignore[union-attr]
        if expr.dtype.is_float:
            found = scope.of(expr)
            for condition in CONDITIONS:
                if found.finite and getattr(found, condition):
                    assert signs.of(expr).says(condition), (condition, expr)
                    proven += not isinstance(expr, Op)
    assert proven >= 15


def test_what_is_not_known_is_not_said() -> None:
    program = parse("size N=3 K=2\nin x f32[N,K]\nout Y f32[N]\ntmp s f32[N]\nfor i:N k:K s[i] += exp(x[i,k])\nfor i:N Y[i] = s[i]*x[i,0]\n")
    signs = Signs.at(program, (1, 0))
    s, x = get(program, (1, 0)).value.args  # type: ignore[union-attr]
    assert signs.of(s).says("nonnegative")
    assert not signs.of(s).says("positive")
    assert not any(signs.of(x).says(c) for c in ("positive", "nonnegative", "nonzero"))
