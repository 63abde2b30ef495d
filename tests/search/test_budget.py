"""Budgets are asked first and never exceeded."""

from __future__ import annotations

import pytest
from search_toy import LETTERS, Slow, Toy, program_of, searched

from steptp.errors import UsageError
from steptp.policy.scripted import Scripted
from steptp.search.algorithms import algorithm
from steptp.search.budget import Budget, Limits, Spent
from steptp.search.session import Search, run_search

EVERY = {"*": list(LETTERS)}


@pytest.mark.parametrize("name", ["beam", "bfs", "chain", "dfs", "evolutionary", "greedy", "mcts"])
@pytest.mark.parametrize("samples", [1, 7, 10])
def test_samples_are_exact(name: str, samples: int) -> None:
    found, _ = searched(algorithm(name), EVERY, Toy(lambda word: 0.9 ** len(word)), samples=samples)
    assert found.spent["samples"] == samples == sum(len(n.attempts) for n in found.tree.nodes)
    assert found.stopped == "samples"


@pytest.mark.parametrize("measurements", [0, 1, 3, 6])
def test_measurements_are_exact_and_rejected_programs_cost_none(measurements: int) -> None:
    toy = Toy({}, bad={"a": "not_equal", "b": "crashed"})
    found, policy = searched(algorithm("bfs", k=4), EVERY, toy, limits=Limits(samples=None, measurements=measurements))
    assert found.spent["measurements"] == measurements == len(found.tree.nodes) - 1
    assert found.stopped == "measurements"
    assert len(policy.seen) == -(-measurements // 2) if measurements < 3 else policy.seen


def test_tokens_are_bounded_before_asking() -> None:
    policy = Scripted(EVERY, tokens=10)
    search = Search(program_of(""), policy, Toy({}), limits=Limits(samples=None, tokens=59), clock=lambda: 0.0)
    found = run_search(algorithm("bfs", k=4), search)
    assert (found.stopped, found.spent["tokens"], found.spent["samples"]) == ("tokens", 50, 5)


def test_seconds_end_a_batch_that_is_under_way() -> None:
    slow = Slow(1.0)
    found, _ = searched(algorithm("bfs", k=4), EVERY, slow, limits=Limits(samples=None, seconds=6.5), clock=lambda: slow.now)
    assert (found.stopped, found.spent["seconds"]) == ("seconds", 6.5)
    assert len(found.tree.nodes) == 7


def test_a_search_needs_a_limit() -> None:
    with pytest.raises(UsageError, match="needs a limit"):
        Limits(samples=None)
    with pytest.raises(UsageError, match="negative"):
        Limits(samples=-1)


def test_more_tokens_than_announced_are_a_bug() -> None:
    budget = Budget(Limits(tokens=5))
    with pytest.raises(AssertionError, match="6 of 5 tokens"):
        budget.spend(tokens=6)


def test_a_grant_names_what_is_missing() -> None:
    budget = Budget(Limits(samples=4, tokens=10))
    assert budget.grant(8, lambda n: n) == 4
    assert budget.grant(8, lambda n: 4 * n) == 2
    with pytest.raises(Spent, match="tokens"):
        budget.grant(1, lambda n: 11)
    budget.spend(samples=4)
    with pytest.raises(Spent, match="samples"):
        budget.grant(1, lambda n: 0)
