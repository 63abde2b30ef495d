"""Monte Carlo tree search with upper confidence bounds (UCT; Kocsis and Szepesvári 2006), without rollouts: a program's own time is its value."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass
from typing import ClassVar

from steptp.search.session import Algorithm, Search
from steptp.search.tree import Node

__all__ = ["ALGORITHM", "Uct"]


@dataclass(frozen=True, slots=True)
class Uct(Algorithm):
    """Every round goes from the start to a leaf by UCB1, asks for ``k`` proposals there, and passes the new programs' values up. The value is the
    log of the speedup over the log of the best one so far, so between 0 and 1. A state is asked again once all below it are used up."""

    name: ClassVar[str] = "mcts"
    k: int = 4
    exploration: float = math.sqrt(2)
    depth: int = 24

    def run(self, search: Search) -> None:
        visits: dict[int, int] = defaultdict(int)
        totals: dict[int, float] = defaultdict(float)
        closed: set[int] = set()
        while search.tree.start.number not in closed:
            node = self._leaf(search, visits, totals, closed)
            fresh = search.fresh(search.expand(node, self.k)) if node.depth < self.depth else []
            if not fresh and (node.exhausted or node.depth >= self.depth):
                self._close(node, closed)
            for value in [math.log(max(c.speedup or 1.0, 1.0)) for c in fresh] or [0.0]:
                for passed in node.path():
                    visits[passed.number] += 1
                    totals[passed.number] += value
            for child in fresh:
                visits[child.number] += 1
                totals[child.number] += math.log(max(child.speedup or 1.0, 1.0))

    def _leaf(self, search: Search, visits: dict[int, int], totals: dict[int, float], closed: set[int]) -> Node:
        scale = math.log(max(search.best.speedup or 1.0, 1.0)) or 1.0
        node = search.tree.start
        while open_children := [c for c in node.children if c.number not in closed]:
            bound = math.log(max(visits[node.number], 1))
            node = max(
                open_children,
                key=lambda c: (totals[c.number] / visits[c.number] / scale + self.exploration * math.sqrt(bound / visits[c.number]), -c.number),
            )
        return node

    @staticmethod
    def _close(node: Node, closed: set[int]) -> None:
        """Nothing new comes from ``node``; nor from those above it that are used up and have no open child."""
        for here in node.path():
            if here is not node and (not here.exhausted or any(c.number not in closed for c in here.children)):
                return
            closed.add(here.number)


ALGORITHM = Uct
