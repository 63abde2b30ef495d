"""Depth first."""

from __future__ import annotations

from search_toy import Toy, asked, searched

from steptp.search.algorithms import algorithm


def test_exact_order() -> None:
    found, policy = searched(algorithm("dfs", k=2, depth=3), {"*": ["a", "b"]}, Toy({}))
    assert asked(policy) == ["", "a", "aa", "ab", "b", "ba", "bb"]
    assert found.stopped == "done"
    assert len(found.tree.nodes) == 15
