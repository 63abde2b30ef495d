"""Filters decide, in the fixed order of the records, which verified steps count. One file and one test file each.

A filter module exposes ``FILTER``. It sees every verified step once, together with what was kept before it, and
says why the step is not kept, or ``None``.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

__all__ = ["Filter", "Kept", "all_filters", "admit"]


@dataclass
class Kept:
    """What was kept so far. ``target`` is the number of steps the build wants; ``cap_share`` its largest strategy share."""

    target: int
    cap_share: float
    ids: set[str] = field(default_factory=set)
    by_strategy: Counter[str] = field(default_factory=Counter)
    by_state: Counter[tuple[str, str]] = field(default_factory=Counter)
    came_from: dict[tuple[str, str], str] = field(default_factory=dict)  # (trajectory, program) -> the program before it
    dropped: Counter[str] = field(default_factory=Counter)

    @property
    def total(self) -> int:
        return len(self.ids)

    def add(self, step: Mapping[str, Any]) -> None:
        self.ids.add(step["id"])
        self.by_strategy[step["strategy"]] += 1
        self.by_state[step["parent"], step["strategy"]] += 1

    def walked(self, step: Mapping[str, Any]) -> None:
        """Note where a walk went, whether or not its step is kept."""
        if step["role"] == "walk":
            self.came_from.setdefault((step["trajectory"], step["child"]), step["parent"])


class Filter(Protocol):
    """``reason`` returns a short stable word, or ``None`` to keep."""

    name: str

    def reason(self, step: Mapping[str, Any], kept: Kept) -> str | None: ...


def all_filters() -> tuple[Filter, ...]:
    """Every filter of this package, by name."""
    found: list[Filter] = [importlib.import_module(f"{__name__}.{m.name}").FILTER for m in pkgutil.iter_modules(__path__)]
    return tuple(sorted(found, key=lambda f: f.name))


def admit(step: Mapping[str, Any], kept: Kept, filters: tuple[Filter, ...]) -> str | None:
    """Keep the step, or say which filter dropped it and why."""
    for each in filters:
        why = each.reason(step, kept)
        if why is not None:
            kept.dropped[why] += 1
            kept.walked(step)
            return why
    kept.add(step)
    kept.walked(step)
    return None
