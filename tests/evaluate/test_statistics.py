"""Estimates by hand."""

from __future__ import annotations

import math
from itertools import combinations

import pytest

from steptp.evaluate.statistics import mean_by_root, pass_at_k, regret


@pytest.mark.parametrize(("n", "c", "k"), [(8, 0, 1), (8, 3, 1), (8, 3, 4), (8, 8, 2), (5, 1, 5), (6, 2, 3)])
def test_pass_at_k_is_the_share_of_draws_that_hold_a_pass(n: int, c: int, k: int) -> None:
    draws = list(combinations([True] * c + [False] * (n - c), k))
    assert pass_at_k(n, c, k) == pytest.approx(sum(any(d) for d in draws) / len(draws))


def test_pass_at_k_needs_as_many_samples() -> None:
    with pytest.raises(ValueError, match="k = 9"):
        pass_at_k(8, 1, 9)


def test_regret_by_hand() -> None:
    ratios = {"a": 4.0, "b": 2.0, "c": 0.5}
    assert regret(4.0, ratios) == 0.0
    assert regret(2.0, ratios) == pytest.approx(0.5)
    assert regret(None, ratios) == 1.0
    assert regret(0.5, ratios) == pytest.approx(1.5)
    assert regret(0.01, ratios) == 2.0
    assert regret(8.0, ratios) == pytest.approx(-0.5)
    assert regret(2.0, {"a": 0.9}) is None


def test_the_interval_is_over_roots() -> None:
    together = mean_by_root([("one", 1.0)] * 50 + [("two", 0.0)] * 50)
    apart = mean_by_root([(str(n), float(n < 50)) for n in range(100)])
    assert together.mean == apart.mean == 0.5
    assert (together.low, together.high) == (0.0, 1.0)
    assert 0.38 < apart.low < 0.45 < 0.55 < apart.high < 0.62
    assert mean_by_root([("a", 1.0), ("b", 0.0)], seed=3) == mean_by_root([("a", 1.0), ("b", 0.0)], seed=3)
    assert math.isnan(mean_by_root([]).mean)
