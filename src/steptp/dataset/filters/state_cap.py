"""At most three steps of one strategy at one state."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from steptp.dataset.filters import Filter, Kept

__all__ = ["FILTER", "MOST"]

MOST = 3


class StateCap:
    name = "state_cap"

    def reason(self, step: Mapping[str, Any], kept: Kept) -> str | None:
        return self.name if kept.by_state[step["parent"], step["strategy"]] >= MOST else None


FILTER: Filter = StateCap()
