"""Greedy: the fastest child, as long as it is faster."""

from __future__ import annotations

from search_toy import Toy, asked, searched, words

from steptp.search.algorithms import algorithm


def test_exact_order() -> None:
    toy = Toy({"a": 0.9, "b": 0.5, "ba": 0.7, "bb": 0.6, "bc": 0.4})
    found, policy = searched(algorithm("greedy", k=2), {"": ["a", "b"], "b": ["a", "b", "c", "d"]}, toy)
    assert asked(policy) == ["", "b", "b", "bc"]  # nothing faster among the first two, so b is asked again
    assert toy.judged == ["a", "b", "ba", "bb", "bc", "bd"]
    assert words([found.best]) == ["bc"]
    assert found.stopped == "done"


def test_patience_ends_it() -> None:
    toy = Toy(lambda word: 1.0 + len(word))
    found, policy = searched(algorithm("greedy", k=1, patience=2), {"": ["a", "b", "c"]}, toy)
    assert asked(policy) == ["", ""]
    assert found.best is found.tree.start
