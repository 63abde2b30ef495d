"""Bounds of index expressions hold, and are exact at a point."""

from __future__ import annotations

import itertools

import pytest

from steptp.interp.cost import index_bounds
from steptp.ir.nodes import Const, Expr, Var
from steptp.ir.types import DType

ROW, COL = Var("i"), Var("j")


def _c(value: int) -> Const:
    return Const(value, DType.I64)


EXPRS: tuple[tuple[Expr, object], ...] = (
    (ROW + COL, lambda i, j: i + j),
    (ROW - COL * 3, lambda i, j: i - 3 * j),
    (ROW // _c(3), lambda i, j: i // 3),
    (ROW % _c(3), lambda i, j: i % 3),
    ((ROW + COL) % _c(4), lambda i, j: (i + j) % 4),
    ((ROW - COL) % _c(4) + ROW // _c(2), lambda i, j: (i - j) % 4 + i // 2),
)


@pytest.mark.parametrize("spans", [((0, 6), (0, 4)), ((3, 5), (2, 2)), ((10, 10), (7, 7))])
@pytest.mark.parametrize(("expr", "value"), EXPRS)
def test_every_value_lies_within(expr: Expr, value: object, spans: tuple[tuple[int, int], tuple[int, int]]) -> None:
    assert callable(value)
    low, high = index_bounds(expr, {"i": spans[0], "j": spans[1]})
    reached = [value(i, j) for i, j in itertools.product(*(range(a, b + 1) for a, b in spans))]
    assert low <= min(reached)
    assert max(reached) <= high
    if len(reached) == 1:
        assert low == high


def test_a_remainder_within_one_period_is_exact() -> None:
    assert index_bounds(Var("i") % _c(3), {"i": (10, 10)}) == (1, 1)
    assert index_bounds(Var("i") % _c(8), {"i": (9, 12)}) == (1, 4)
    assert index_bounds(Var("i") % _c(8), {"i": (6, 9)}) == (0, 7)
