"""Steps whose child is alpha-equal to the parent teach nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from steptp.dataset.filters import Filter, Kept

__all__ = ["FILTER"]


class NoOp:
    name = "no_op"

    def reason(self, step: Mapping[str, Any], kept: Kept) -> str | None:
        return self.name if step["child"] == step["parent"] else None


FILTER: Filter = NoOp()
