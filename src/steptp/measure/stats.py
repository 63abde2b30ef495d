"""Interval estimates for timing: exact for what they claim, no scipy."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

__all__ = ["median", "quantile_above", "t_cdf", "t_quantile", "mean_interval", "trimmed_interval"]


def median(values: Sequence[float]) -> float:
    """The median; raises ``ValueError`` for no values."""
    ordered = sorted(values)
    if not ordered:
        raise ValueError("median of nothing")
    half = len(ordered) // 2
    return ordered[half] if len(ordered) % 2 else 0.5 * (ordered[half - 1] + ordered[half])


def quantile_above(values: Sequence[float], q: float) -> float:
    """The smallest observed value that at least a share ``q`` of the values does not exceed."""
    ordered = sorted(values)
    if not ordered:
        raise ValueError("quantile of nothing")
    return ordered[max(0, min(len(ordered), math.ceil(q * len(ordered))) - 1)]


def t_cdf(t: float, df: int) -> float:
    """Student's t distribution function for an integer number of degrees of freedom (Abramowitz and Stegun 26.7.3, 26.7.4)."""
    if df < 1:
        raise ValueError(f"degrees of freedom {df}")
    theta = math.atan(t / math.sqrt(df))
    cos2 = math.cos(theta) ** 2
    if df == 1:
        inside = 2 * theta / math.pi
    elif df % 2:
        term, total = math.cos(theta), math.cos(theta)
        for k in range(3, df - 1, 2):
            term *= cos2 * (k - 1) / k
            total += term
        inside = 2 / math.pi * (theta + math.sin(theta) * total)
    else:
        term, total = 1.0, 1.0
        for k in range(2, df - 1, 2):
            term *= cos2 * (k - 1) / k
            total += term
        inside = math.sin(theta) * total
    return 0.5 * (1 + inside)


@functools.lru_cache(maxsize=4096)
def t_quantile(p: float, df: int) -> float:
    """Inverse of :func:`t_cdf` for 0.5 <= p < 1, by bisection."""
    if not 0.5 <= p < 1:
        raise ValueError(f"quantile of {p}")
    low, high = 0.0, 1.0
    while t_cdf(high, df) < p:
        low, high = high, 2 * high
    for _ in range(80):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if t_cdf(middle, df) < p else (low, middle)
    return 0.5 * (low + high)


def mean_interval(values: Sequence[float], confidence: float) -> tuple[float, float, float]:
    """Mean and its two-sided t interval, (mean, low, high); infinite below two values."""
    n = len(values)
    mean = math.fsum(values) / n
    if n < 2:
        return mean, -math.inf, math.inf
    spread = math.sqrt(math.fsum((v - mean) ** 2 for v in values) / (n - 1) / n)
    half = t_quantile(0.5 + confidence / 2, n - 1) * spread
    return mean, mean - half, mean + half


def trimmed_interval(values: Sequence[float], confidence: float, trim: float = 0.2) -> tuple[float, float, float]:
    """Trimmed mean and its interval, (mean, low, high): Student's t on the winsorised variance (Tukey and McLaughlin 1963).

    The share ``trim`` of the values at either end counts as the value next inside, so that a few disturbed rounds neither move the
    estimate nor blow the interval up. Below eight values nothing is trimmed.
    """
    n = len(values)
    cut = int(trim * n) if n >= 8 else 0
    if not cut:
        return mean_interval(values, confidence)
    ordered = sorted(values)
    inner = ordered[cut : n - cut]
    kept = len(inner)
    mean = math.fsum(inner) / kept
    winsorised = [inner[0]] * cut + inner + [inner[-1]] * cut
    centre = math.fsum(winsorised) / n
    variance = math.fsum((v - centre) ** 2 for v in winsorised) / (n - 1)
    half = t_quantile(0.5 + confidence / 2, kept - 1) * math.sqrt(variance / n) * n / kept
    return mean, mean - half, mean + half
