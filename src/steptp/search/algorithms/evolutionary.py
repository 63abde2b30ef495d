"""Ageing evolution (Real et al. 2019): the winner of a tournament has a child, and the oldest individual goes."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import ClassVar

from steptp.search.moves import Action
from steptp.search.session import Algorithm, Search
from steptp.search.tree import Node

__all__ = ["ALGORITHM", "Evolutionary"]


@dataclass(frozen=True, slots=True)
class Evolutionary(Algorithm):
    """A mutation is a proposal of the policy; a crossover (a share ``crossover`` of the children) tries a step of another individual that this one does
    not have. ``population`` individuals; the fastest of ``tournament`` random ones is the parent."""

    name: ClassVar[str] = "evolutionary"
    population: int = 12
    tournament: int = 4
    crossover: float = 0.25

    def run(self, search: Search) -> None:
        living: deque[Node] = deque([search.tree.start])
        fruitless = 0
        while fruitless < 4 * self.population:
            parent = self._winner(search, living)
            move = self._borrowed(search, parent, living) if search.rng.random() < self.crossover else None
            attempts = search.attempt(parent, [move], "a step of another program") if move is not None else search.expand(parent, 1)
            children = search.fresh(attempts)
            fruitless = 0 if children else fruitless + 1
            living += children
            while len(living) > self.population:
                living.popleft()
            if parent.exhausted and parent in living and len(living) > 1:
                living.remove(parent)

    def _winner(self, search: Search, living: deque[Node]) -> Node:
        return min(search.rng.sample(list(living), min(self.tournament, len(living))), key=lambda n: n.rank)

    def _borrowed(self, search: Search, parent: Node, living: deque[Node]) -> Action | None:
        """A site action of another individual that neither led here nor was tried here."""
        mine = {n.move for n in parent.path()} | {a.move for a in parent.attempts}
        theirs = dict.fromkeys(n.move for other in living for n in other.path() if isinstance(n.move, Action) and n.move not in mine)
        return search.rng.choice(list(theirs)) if theirs else None


ALGORITHM = Evolutionary
