"""Breadth first: states in the order in which they were found."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from steptp.search.session import Algorithm, Search

__all__ = ["ALGORITHM", "BreadthFirst"]


@dataclass(frozen=True, slots=True)
class BreadthFirst(Algorithm):
    """``k`` proposals at every state, once, down to ``depth``."""

    name: ClassVar[str] = "bfs"
    k: int = 4
    depth: int = 8

    def run(self, search: Search) -> None:
        for node in search.tree.nodes:  # it grows meanwhile
            if node.depth < self.depth:
                search.expand(node, self.k)


ALGORITHM = BreadthFirst
