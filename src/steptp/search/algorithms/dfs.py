"""Depth first: the policy's first choice all the way down, then its second."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from steptp.search.session import Algorithm, Search

__all__ = ["ALGORITHM", "DepthFirst"]


@dataclass(frozen=True, slots=True)
class DepthFirst(Algorithm):
    """``k`` proposals at every state, once, down to ``depth``; children are visited in the order of proposal."""

    name: ClassVar[str] = "dfs"
    k: int = 4
    depth: int = 8

    def run(self, search: Search) -> None:
        stack = [search.tree.start]
        while stack:
            node = stack.pop()
            if node.depth < self.depth:
                stack += search.fresh(search.expand(node, self.k))[::-1]


ALGORITHM = DepthFirst
