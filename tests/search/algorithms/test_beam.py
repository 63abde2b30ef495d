"""Beam: the fastest few of a level go on, and older programs follow when a level is barren."""

from __future__ import annotations

from search_toy import Toy, asked, searched, words

from steptp.search.algorithms import algorithm


def test_exact_order() -> None:
    toy = Toy({"a": 3.0, "b": 2.0, "c": 4.0, "ba": 0.5})
    script = {"": ["a", "b", "c"], "a": ["a"], "b": ["a", "b"], "c": ["a"]}
    found, policy = searched(algorithm("beam", width=2, k=3), script, toy)
    assert asked(policy) == [
        *["", "b", "a"],  # slower than the start, and still the two fastest of their level
        *["ba", "bb"],  # no child is left, so the rest of the tree has its turn
        *["", "aa", "b", "a", "c", "ca", "c"],
    ]
    assert words([found.best]) == ["ba"]
    assert found.stopped == "done"


def test_depth_is_a_limit() -> None:
    found, _ = searched(algorithm("beam", width=1, k=1, depth=3), {"*": ["a"]}, Toy({}))
    assert max(n.depth for n in found.tree.nodes) == 3
    assert found.stopped == "done"
