"""Greedy: go to the fastest of a state's proposals as long as it is faster than the state."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from steptp.search.session import Algorithm, Search

__all__ = ["ALGORITHM", "Greedy"]


@dataclass(frozen=True, slots=True)
class Greedy(Algorithm):
    """``k`` proposals at a time; where none is faster, the same state is asked again, at most ``patience`` times in all."""

    name: ClassVar[str] = "greedy"
    k: int = 8
    patience: int = 3

    def run(self, search: Search) -> None:
        here, failures = search.tree.start, 0
        while failures < self.patience and not here.exhausted:
            search.expand(here, self.k)
            fastest = min((here, *here.children), key=lambda n: n.rank)
            here, failures = (fastest, 0) if fastest is not here else (here, failures + 1)


ALGORITHM = Greedy
