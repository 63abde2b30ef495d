"""Chain: exact order, patience, and the parent in or out of sight."""

from __future__ import annotations

import pytest
from search_toy import Toy, asked, searched, words

from steptp.search.algorithms import algorithm


def test_every_verified_program_is_the_next_state_faster_or_not() -> None:
    toy = Toy({"a": 2.0, "ab": 0.5})
    found, policy = searched(algorithm("chain", depth=2), {"": ["a", "c"], "a": ["b"], "c": ["d"]}, toy, samples=4)
    assert asked(policy) == ["", "a", "", "c"]
    assert words(found.tree.nodes) == ["", "a", "ab", "c", "cd"]
    assert words([found.best]) == ["ab"]
    assert found.best.speedup == pytest.approx(2.0)
    assert found.stopped == "samples"


def test_a_failed_proposal_is_asked_for_again_and_seen_by_the_policy() -> None:
    toy = Toy({}, bad={"a": "not_equal"})
    found, policy = searched(algorithm("chain", depth=1, patience=3), {"": ["a", "-", "b"]}, toy, samples=3)
    assert asked(policy) == ["", "", ""]
    assert [(f.kind, f.message) for f in policy.seen[2].failed] == [("not_equal", "not_equal"), ("refused", "no such place")]
    assert words(found.tree.nodes) == ["", "b"]


def test_the_parent_is_withheld_when_asked_to() -> None:
    for with_parent in (True, False):
        _, policy = searched(algorithm("chain", with_parent=with_parent), {"": ["a"], "a": ["b"]}, Toy({}))
        assert [s.parent is not None for s in policy.seen[:2]] == [False, with_parent]


def test_a_walk_never_returns_to_where_it_was() -> None:
    found, policy = searched(algorithm("chain", patience=1), {"": ["a"], "a": ["b"]}, Toy({}, same={"ab": ""}))
    assert asked(policy) == ["", "a", ""]
    assert found.stopped == "done"
