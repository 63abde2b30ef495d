"""Beam: the fastest few programs of every level go on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from steptp.search.session import Algorithm, Search
from steptp.search.tree import Node

__all__ = ["ALGORITHM", "Beam"]


@dataclass(frozen=True, slots=True)
class Beam(Algorithm):
    """Levels of at most ``width`` programs with ``k`` proposals each. A level need not be faster than the one before: many steps pay off later. When
    no child is left, or at ``depth``, the fastest programs of the tree that still have proposals make the next level."""

    name: ClassVar[str] = "beam"
    width: int = 3
    k: int = 4
    depth: int = 24

    def run(self, search: Search) -> None:
        level = [search.tree.start]
        while level:
            children: list[Node] = []
            for node in level:
                children += search.fresh(search.expand(node, self.k))
            level = sorted((c for c in children if c.depth < self.depth), key=lambda n: n.rank)[: self.width]
            if not level:
                level = sorted((n for n in search.tree.nodes if not n.exhausted and n.depth < self.depth), key=lambda n: n.rank)[: self.width]


ALGORITHM = Beam
