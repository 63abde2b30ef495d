"""UCT: exploration and value decide, in an exact order."""

from __future__ import annotations

from search_toy import Toy, asked, searched, words

from steptp.search.algorithms import algorithm


def test_exact_order() -> None:
    toy = Toy({"a": 1.0, "b": 0.25, "ba": 0.25, "bb": 0.5})
    _, policy = searched(algorithm("mcts", k=2), {"*": ["a", "b"]}, toy, samples=8)
    assert asked(policy) == ["", "b", "ba", "a"]


def test_without_exploration_it_follows_the_value() -> None:
    toy = Toy(lambda word: 0.5 ** word.count("b"))
    found, policy = searched(algorithm("mcts", k=2, exploration=0.0), {"*": ["a", "b"]}, toy, samples=8)
    assert asked(policy) == ["", "b", "bb", "bbb"]
    assert words([found.best]) == ["bbbb"]


def test_it_ends_when_everything_is_used_up() -> None:
    found, _ = searched(algorithm("mcts", k=2, depth=2), {"*": ["a", "b"]}, Toy({}))
    assert found.stopped == "done"
    assert len(found.tree.nodes) == 7
