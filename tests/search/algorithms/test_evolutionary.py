"""Ageing evolution: seeded, bounded, with steps borrowed from others."""

from __future__ import annotations

import pytest
from search_toy import Toy, asked, searched, words

from steptp.search.algorithms import algorithm

SCRIPT = {"*": ["a", "b", "c"]}


def test_exact_order_without_crossover() -> None:
    toy = Toy(lambda word: 0.5 ** word.count("c"))
    script = {"": ["c", "a"], "*": ["a", "b"]}
    found, policy = searched(algorithm("evolutionary", population=2, tournament=2, crossover=0.0), script, toy, samples=5)
    assert asked(policy) == ["", "c", "c", "ca", "cb"]  # the fastest, the earliest of equals; the oldest goes whatever its speed
    assert words(found.tree.nodes) == ["", "c", "ca", "cb", "caa", "cba"]


def test_a_step_of_another_program_is_borrowed_and_counts() -> None:
    toy = Toy({})
    found, _ = searched(algorithm("evolutionary", population=6, tournament=3, crossover=1.0), {"": ["a", "b"], "*": []}, toy, samples=4, seed=1)
    borrowed = [n for n in found.tree.nodes if n.reason == "a step of another program"]
    assert borrowed
    assert found.spent["samples"] == 4 == sum(len(n.attempts) for n in found.tree.nodes)
    assert words(borrowed) == [w + b for w, b in zip(words([n.parent for n in borrowed if n.parent]), ["b", "a"], strict=False)]


def test_exact_order_with_crossover() -> None:
    script = {"": ["a", "b"], "a": ["c"], "b": ["d"], "*": []}
    found, policy = searched(algorithm("evolutionary", population=6, tournament=3, crossover=0.5), script, Toy({}), samples=7, seed=1)
    assert asked(policy) == ["", "", "", "a", "b", "a", "ac", "ab", "b"]
    assert words(found.tree.nodes) == ["", "a", "b", "ac", "ab", "bd", "ba", "bda"]
    assert words(n for n in found.tree.nodes if n.reason) == ["ab", "ba", "bda"]  # borrowed


@pytest.mark.parametrize("seed", [0, 5])
def test_same_seed_same_tree(seed: int) -> None:
    runs = [searched(algorithm("evolutionary"), SCRIPT, Toy(lambda w: 0.9 ** len(w)), samples=30, seed=seed)[0] for _ in (0, 1)]
    assert words(runs[0].tree.nodes) == words(runs[1].tree.nodes)
    other, _ = searched(algorithm("evolutionary"), SCRIPT, Toy(lambda w: 0.9 ** len(w)), samples=30, seed=seed + 1)
    assert words(other.tree.nodes) != words(runs[0].tree.nodes)
