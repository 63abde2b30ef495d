"""Steps that undo the walk's previous step."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from steptp.dataset.filters import Filter, Kept

__all__ = ["FILTER"]


class Undo:
    name = "undo"

    def reason(self, step: Mapping[str, Any], kept: Kept) -> str | None:
        return self.name if kept.came_from.get((step["trajectory"], step["parent"])) == step["child"] else None


FILTER: Filter = Undo()
