"""Rows that share a beginning give the loss and the gradient that they give one by one."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from row_loss import summed_loss

from steptp.dataset.samples import samples_of
from steptp.dataset.store import Dataset
from steptp.policy.chat import Chat
from steptp.policy.weights import find_weights, load_model, load_tokenizer
from steptp.train.encode import IGNORED, Row, encode
from steptp.train.trees import Tree, beginnings, computed, grow, laid_out, micro_batches


def _row(text: str, asked: int, group: str) -> Row:
    ids = list(text.encode())
    return Row(ids, [IGNORED] * asked + ids[asked:], group=group)


ROWS = [_row("program ab!", 10, "g"), _row("program ac?", 10, "g"), _row("program ac:", 10, "g"), _row("program", 5, "h"), _row("alone", 2, "")]


def test_a_trunk_is_what_all_rows_of_a_group_begin_with() -> None:
    assert beginnings(ROWS) == {"g": len("program a"), "h": len("prog")}
    assert beginnings([_row("same", 3, "g"), _row("same", 3, "g")]) == {"g": 2}  # a branch keeps a token of the question


def test_trees_hold_what_fits() -> None:
    shared = beginnings(ROWS)
    assert grow([1, 4, 0, 2, 3], ROWS, shared, 100) == [Tree((1, 0, 2), 9, 15), Tree((4,), 0, 5), Tree((3,), 4, 7)]
    assert grow([1, 0, 2], ROWS, shared, 13) == [Tree((1, 0), 9, 13), Tree((2,), 9, 11)]
    assert grow([4, 4], ROWS, shared, 100) == [Tree((4, 4), 0, 10)]


def test_batches_are_full_and_lose_nothing() -> None:
    rng = random.Random(0)
    trees = [Tree((n,), 0, rng.randint(3, 100)) for n in range(1500)]
    batches = micro_batches(trees, 100, rng)
    assert Counter(tree for batch in batches for tree in batch) == Counter(trees)
    assert all(sum(tree.size for tree in batch) <= 100 for batch in batches)
    assert sum(tree.size for tree in trees) > 0.9 * 100 * len(batches)


def test_a_token_sees_its_trunk_and_its_branch() -> None:
    made = laid_out([Tree((0, 1), 9, 13), Tree((4,), 0, 5)], ROWS)
    assert bytes(made["input_ids"][0].tolist()) == b"program ab!c?alone"
    assert made["position_ids"][0].tolist() == [*range(9), 9, 10, 9, 10, *range(5)]
    sees = made["attention_mask"][0, 0]
    assert sees[10].nonzero()[:, 0].tolist() == [*range(9), 9, 10]
    assert sees[12].nonzero()[:, 0].tolist() == [*range(9), 11, 12]
    assert sees[15].nonzero()[:, 0].tolist() == [13, 14, 15]


KINDS = [replace(row, kind=kind) for row, kind in zip(ROWS, ("k", "k", "k", "k", ""), strict=True)]


def test_a_stem_is_what_all_rows_of_a_kind_begin_with_and_counts_once_a_batch() -> None:
    shared = beginnings(KINDS)
    assert shared == {"g": len("program a"), "h": len("prog"), "k": len("prog")}
    trees = grow(range(5), KINDS, shared, 100)
    assert trees == [Tree((0, 1, 2), 9, 15, "k", 4), Tree((3,), 4, 7, "k", 4), Tree((4,), 0, 5)]
    assert computed(trees) == 15 + 3 + 5
    assert micro_batches(trees, 23) == [tuple(trees)]
    assert micro_batches(trees, 22) == [(trees[0], trees[1]), (trees[2],)]


def test_a_token_sees_its_stem_too() -> None:
    trees = grow(range(5), KINDS, beginnings(KINDS), 100)
    made = laid_out([*trees, trees[0]], KINDS)
    assert bytes(made["input_ids"][0].tolist()) == b"program ab!c?c:ramaloneram ab!c?c:"
    assert made["position_ids"][0].tolist() == [*range(9), 9, 10, 9, 10, 9, 10, 4, 5, 6, *range(5), *range(4, 9), 9, 10, 9, 10, 9, 10]
    assert [made["previous"][n] for n in (9, 11, 13, 15, 18, 23, 28)] == [8, 8, 8, 3, -1, 3, 27]
    sees = made["attention_mask"][0, 0]
    assert sees[17].nonzero()[:, 0].tolist() == [*range(4), 15, 16, 17]
    assert sees[31].nonzero()[:, 0].tolist() == [*range(4), *range(23, 28), 30, 31]


def test_loss_and_gradient_are_those_of_the_rows_one_by_one(data: Dataset, model: Path) -> None:
    weights = find_weights(str(model))
    chat = Chat(load_tokenizer(weights))
    rows = [encode(chat, s) for s in samples_of(data, "named", "edit", reasons=False, split="train")]
    rows = [row for row in rows if len(row.input_ids) <= 900]
    trees = grow(range(len(rows)), rows, beginnings(rows), 2048)
    assert max(len(tree.rows) for tree in trees) > 2
    assert len({tree.kind for tree in trees}) == 1
    assert trees[0].stem > 100
    assert all(rows[a].group == rows[b].group for tree in trees for a, b in pairwise(tree.rows))
    assert sum(tree.size for tree in trees) < 0.8 * sum(len(row.input_ids) for row in rows)
    batch = micro_batches(sorted(trees, key=lambda t: -len(t.rows))[:4], 4096)[0]
    assert len(batch) > 1
    loaded = load_model(weights, torch.float32)
    together = summed_loss(loaded, laid_out(batch, rows))
    together.backward()  # type: ignore[no-untyped-call]
    grads = [p.grad.clone() for p in loaded.parameters() if p.grad is not None]
    loaded.zero_grad()
    alone = torch.zeros(())
    for tree in batch:
        for row in tree.rows:
            one = rows[row]
            loss = summed_loss(loaded, {"input_ids": torch.tensor([one.input_ids]), "labels": torch.tensor([one.labels])})
            loss.backward()  # type: ignore[no-untyped-call]
            alone = alone + loss.detach()
    assert float(together.detach()) == pytest.approx(float(alone), rel=1e-5)
    for ours, theirs in zip(grads, (p.grad for p in loaded.parameters() if p.grad is not None), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-5)
