"""No strategy may fill more than its share of the wanted steps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from steptp.dataset.filters import Filter, Kept

__all__ = ["FILTER", "cap_of"]


def cap_of(target: int, share: float) -> int:
    """Steps of one strategy at most: its share of the wanted steps, at least one."""
    return max(1, int(target * share))


class StrategyCap:
    name = "strategy_cap"

    def reason(self, step: Mapping[str, Any], kept: Kept) -> str | None:
        return self.name if kept.by_strategy[step["strategy"]] >= cap_of(kept.target, kept.cap_share) else None


FILTER: Filter = StrategyCap()
