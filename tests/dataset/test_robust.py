"""Walks go on from algebraic steps that floating point bears, and not from those that overflow."""

from __future__ import annotations

import pytest

from steptp.dataset.robust import holds_up
from steptp.ir import parse

SOFTMAX = """in X f32[N=8,K=96]
out Y[N,K]
tmp m s[N]
for i j m[i] max=X[i,j]
for i j s[i]+=exp(X[i,j]-m[i])
for i j Y[i,j]=exp(X[i,j]-m[i])/s[i]
"""


@pytest.mark.parametrize(
    ("change", "good"),
    [
        (("/s[i]", "*(1/s[i])"), True),
        (("=exp(X[i,j]-m[i])/s[i]", "=exp(X[i,j])*exp(-m[i])/s[i]"), False),  # exp(100) overflows
        (("s[i]+=exp(X[i,j]-m[i])", "s[i]+=exp(X[i,j]-m[i]-1)*exp(1)"), True),
    ],
)
def test_overflow_is_seen_and_rounding_is_not(change: tuple[str, str], good: bool) -> None:
    parent, child = parse(SOFTMAX), parse(SOFTMAX.replace(*change))
    assert child != parent
    assert holds_up(parent, child) is good


def test_integers_and_unbindable_programs_say_nothing() -> None:
    counts = parse("in X i32[N=4]\nout Y[N]\nfor i Y[i]=X[i]+1\n")
    assert holds_up(counts, counts)
