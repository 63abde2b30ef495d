"""Estimates over states, with intervals from resampling roots."""

from __future__ import annotations

import math
import random
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

__all__ = ["Estimate", "mean_by_root", "pass_at_k", "regret"]

_RESAMPLES = 2000


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean over states with its 95 % interval; ``count``: states."""

    mean: float
    low: float
    high: float
    count: int

    def to_dict(self) -> dict[str, float | int | None]:
        """Plain JSON data: without states, no figures."""
        names = ("mean", "low", "high")
        return {name: round(getattr(self, name), 4) if self.count else None for name in names} | {"count": self.count}


def pass_at_k(samples: int, passed: int, k: int) -> float:
    """The unbiased estimate of the chance that one of ``k`` samples passes, from ``samples`` of which ``passed`` did (Chen et al. 2021, section 2.1)."""
    if not 1 <= k <= samples:
        raise ValueError(f"k = {k} of {samples} samples")
    return 1.0 - math.comb(samples - passed, k) / math.comb(samples, k)


def mean_by_root(values: Sequence[tuple[str, float]], seed: int = 0) -> Estimate:
    """The mean of (root, value) with the percentile interval of a bootstrap over roots: states of one root are not independent."""
    if not values:
        return Estimate(math.nan, math.nan, math.nan, 0)
    groups: dict[str, list[float]] = defaultdict(list)
    for root, value in values:
        groups[root].append(value)
    sums = [(sum(group), len(group)) for _, group in sorted(groups.items())]
    rng = random.Random(seed)
    means = []
    for _ in range(_RESAMPLES):
        drawn = rng.choices(sums, k=len(sums))
        means.append(sum(total for total, _ in drawn) / sum(count for _, count in drawn))
    means.sort()
    low, high = means[int(0.025 * _RESAMPLES)], means[int(0.975 * _RESAMPLES) - 1]
    return Estimate(sum(value for _, value in values) / len(values), low, high, len(values))


def regret(chosen: float | None, ratios: Mapping[str, float]) -> float | None:
    """What a choice leaves of the best measured sibling's gain: 1 − log ``chosen`` / log best, both times before over times after.

    Staying put (``None``) has regret 1, the best sibling 0; a slowdown more than 1, but never above 2, so that one bad step weighs no more than a good one
    would have gained twice. ``None`` where no sibling is faster: nothing can be gained there.
    """
    best = max(ratios.values(), default=1.0)
    if best <= 1.0:
        return None
    return 1.0 if chosen is None else min(2.0, 1.0 - math.log(chosen) / math.log(best))
