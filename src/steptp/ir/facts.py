"""A *fact*: one claim about a step, as data, with where its evidence comes from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias, Union

__all__ = ["Fact", "FactValue"]

FactValue: TypeAlias = Union[int, float, str, bool, tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class Fact:
    """``kind`` names a row of the fact table in ``docs/reasoning.md``; ``values`` fill its template.

    ``evidence`` says what proves it: ``parent``, ``child``, ``dependence``, ``bounds``, ``host`` or ``rule``.
    """

    kind: str
    values: tuple[tuple[str, FactValue], ...]
    evidence: str = "parent"

    @staticmethod
    def of(kind: str, evidence: str = "parent", **values: FactValue) -> Fact:
        return Fact(kind, tuple(sorted(values.items())), evidence)

    def __getitem__(self, name: str) -> FactValue:
        return dict(self.values)[name]
