"""Breadth first: states in the order in which they were found."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, ClassVar

from steptp.search.session import Search

__all__ = ["ALGORITHM", "BreadthFirst"]


@dataclass(frozen=True, slots=True)
class BreadthFirst:
    """``k`` proposals at every state, once, down to ``depth``."""

    name: ClassVar[str] = "bfs"
    k: int = 4
    depth: int = 8

    @property
    def settings(self) -> dict[str, Any]:
        return asdict(self)

    def run(self, search: Search) -> None:
        for node in search.tree.nodes:  # it grows meanwhile
            if node.depth < self.depth:
                search.expand(node, self.k)


ALGORITHM = BreadthFirst
