"""Exact and alpha-equal duplicates: step identity is built from canonical hashes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from steptp.dataset.filters import Filter, Kept

__all__ = ["FILTER"]


class Duplicate:
    name = "duplicate"

    def reason(self, step: Mapping[str, Any], kept: Kept) -> str | None:
        return self.name if step["id"] in kept.ids else None


FILTER: Filter = Duplicate()
