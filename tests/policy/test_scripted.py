"""The scripted policy: by the way to a state, in turn."""

from __future__ import annotations

from search_toy import Toy, searched

from steptp.search.algorithms import algorithm
from steptp.search.moves import Failed


def test_answers_are_taken_in_turn() -> None:
    script = {"": [Failed("answer-unreadable", "?"), "a", "b"], "a": ["c"]}
    found, policy = searched(algorithm("greedy", k=1), script, Toy({"a": 0.5}))
    assert [a.kind for a in found.tree.start.attempts] == ["answer-unreadable", "ok"]
    assert [len(s.history) for s in policy.seen] == [0, 0, 1, 1]
    assert policy.seen[1].failed[0].message == "?"
    assert policy.tokens_at_most(policy.seen[0], 4) == 0
