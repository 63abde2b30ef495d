"""Interval estimates against known values and by simulation."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steptp.measure.stats import mean_interval, median, quantile_above, t_cdf, t_quantile, trimmed_interval


@pytest.mark.parametrize(
    ("p", "df", "value"),
    [(0.975, 1, 12.7062047), (0.995, 2, 9.9248432), (0.995, 4, 4.6040949), (0.95, 5, 2.0150484),
     (0.975, 9, 2.2621572), (0.995, 15, 2.9467129), (0.975, 120, 1.9799304)],
)  # fmt: skip
def test_t_quantile_matches_tables(p: float, df: int, value: float) -> None:
    assert t_quantile(p, df) == pytest.approx(value, rel=1e-6)


@given(st.floats(-50, 50), st.integers(1, 60))
@settings(deadline=None)
def test_t_cdf_is_symmetric_and_monotone(t: float, df: int) -> None:
    assert t_cdf(t, df) + t_cdf(-t, df) == pytest.approx(1.0, abs=1e-12)
    assert t_cdf(t, df) <= t_cdf(t + 0.5, df) + 1e-12


def test_interval_covers_as_often_as_it_says() -> None:
    rng = random.Random(7)
    missed = 0
    for _ in range(4000):
        _, low, high = mean_interval([rng.gauss(0.3, 1.0) for _ in range(6)], 0.95)
        missed += not low <= 0.3 <= high
    assert 150 <= missed <= 250


@pytest.mark.parametrize(("n", "spoiled"), [(8, 0), (16, 0), (16, 2), (24, 3)])
def test_trimmed_interval_covers_with_disturbed_rounds(n: int, spoiled: int) -> None:
    rng = random.Random(n + spoiled)
    missed, width = 0, 0.0
    for _ in range(5000):
        values = [rng.gauss(0.3, 1.0) for _ in range(n)]
        for k in range(spoiled):
            values[k] += rng.choice((-1, 1)) * rng.uniform(5, 50)
        _, low, high = trimmed_interval(values, 0.95)
        missed += not low <= 0.3 <= high
        width += (high - low) / 5000
    assert 100 <= missed <= 375  # close to the 5 % it says: 2 to 7.5 %
    assert width < 3.5


def test_trimmed_interval_by_hand() -> None:
    mean, low, high = trimmed_interval([1.0, 2.0, 2.0, 3.0, 3.0, 4.0, 4.0, 100.0], 0.95)
    assert mean == 3.0  # of the inner six; winsorised 2 2 2 3 3 4 4 4 has variance 6/7
    assert high - mean == pytest.approx(t_quantile(0.975, 5) * math.sqrt(6 / 7 / 8) * 8 / 6)
    assert mean - low == pytest.approx(high - mean)
    assert trimmed_interval([1.0, 2.0, 4.0], 0.9) == mean_interval([1.0, 2.0, 4.0], 0.9)


def test_interval_of_one_value_is_unbounded() -> None:
    mean, low, high = mean_interval([2.0], 0.99)
    assert mean == 2.0
    assert (low, high) == (-math.inf, math.inf)


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=40))
def test_quantile_above_bounds_the_share(values: list[float]) -> None:
    q = quantile_above(values, 0.9)
    assert q in values
    assert sum(v <= q for v in values) >= 0.9 * len(values)
    assert sum(v < q for v in values) < 0.9 * len(values)
    assert min(values) <= median(values) <= max(values)


def test_bad_arguments() -> None:
    with pytest.raises(ValueError):
        median([])
    with pytest.raises(ValueError):
        quantile_above([], 0.5)
    with pytest.raises(ValueError):
        t_quantile(1.0, 3)
    with pytest.raises(ValueError):
        t_cdf(0.0, 0)
