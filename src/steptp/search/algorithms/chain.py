"""Chain: one proposal a state; every verified program is the next state, faster or not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from steptp.search.session import Algorithm, Search

__all__ = ["ALGORITHM", "Chain"]


@dataclass(frozen=True, slots=True)
class Chain(Algorithm):
    """Walks of at most ``depth`` steps from the start, one after another. A failed proposal is asked for again at the same state, at most ``patience``
    times in a row. ``with_parent``: the policy also sees the program before."""

    name: ClassVar[str] = "chain"
    depth: int = 16
    patience: int = 4
    with_parent: bool = True

    def run(self, search: Search) -> None:
        while not search.tree.start.exhausted:
            here, passed, failures = search.tree.start, {search.tree.start.hash}, 0
            while len(passed) <= self.depth and failures < self.patience and not here.exhausted:
                attempts = search.expand(here, 1, with_parent=self.with_parent)
                child = search.child(attempts[0]) if attempts else None
                if child is None or child.hash in passed:
                    failures += 1
                else:
                    here, failures = child, 0
                    passed.add(child.hash)


ALGORITHM = Chain
