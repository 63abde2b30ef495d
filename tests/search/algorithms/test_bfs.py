"""Breadth first."""

from __future__ import annotations

from search_toy import Toy, asked, searched

from steptp.search.algorithms import algorithm


def test_exact_order() -> None:
    toy = Toy({}, same={"ba": "ab"})
    found, policy = searched(algorithm("bfs", k=2, depth=2), {"*": ["a", "b"]}, toy)
    assert asked(policy) == ["", "a", "b"]
    assert toy.judged == ["a", "b", "aa", "ab", "bb"]  # ba was there already
    assert [a.kind for a in found.tree.nodes[2].attempts] == ["known", "ok"]
    assert found.stopped == "done"
