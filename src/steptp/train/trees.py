"""Rows that begin alike, computed once: a trunk of shared tokens with a branch for each row.

The steps from one program differ in the strategy, the site and the answer, and share everything before. Position numbers and an attention mask make every
token see its trunk and its own branch and nothing else, so the loss is that of the rows one by one, for a fraction of the tokens.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from steptp.errors import internal
from steptp.train.encode import IGNORED, Row

if TYPE_CHECKING:
    import torch

__all__ = ["Tree", "grow", "laid_out", "micro_batches", "trunks"]

_WINDOW = 512
"""Trees among which those that fill a micro-batch together are looked for."""


@dataclass(frozen=True, slots=True)
class Tree:
    """``rows``, of which the first ``trunk`` tokens are the same; ``size``: tokens in all, the trunk counted once."""

    rows: tuple[int, ...]
    trunk: int
    size: int


def trunks(rows: Sequence[Row]) -> dict[str, int]:
    """Group → how many tokens all of its rows begin with. A branch keeps at least one token of the question, so no trunk predicts an answer's token."""
    groups: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        if row.group:
            groups[row.group].append(row)
    return {name: _common(members) for name, members in groups.items()}


def _common(rows: Sequence[Row]) -> int:
    first, most = rows[0].input_ids, min(row.asked for row in rows) - 1
    for row in rows[1:]:
        most = next((n for n in range(most) if row.input_ids[n] != first[n]), most)
    return max(most, 0)


def grow(drawn: Sequence[int], rows: Sequence[Row], beginnings: Mapping[str, int], limit: int) -> list[Tree]:
    """The ``drawn`` rows as trees of at most ``limit`` tokens, in the order in which their groups come up first."""
    groups: dict[tuple[str, int], list[int]] = defaultdict(list)
    for row in drawn:
        groups[(rows[row].group, -1) if rows[row].group else ("", row)].append(row)
    trees: list[Tree] = []
    for (name, _), members in groups.items():
        trunk = beginnings.get(name, 0)
        part: list[int] = []
        size = trunk
        for row in members:
            own = len(rows[row].input_ids) - trunk
            if trunk + own > limit:
                raise internal("a row is longer than a micro-batch")
            if part and size + own > limit:
                trees.append(Tree(tuple(part), trunk, size))
                part, size = [], trunk
            part.append(row)
            size += own
        trees.append(Tree(tuple(part), trunk, size))
    return trees


def micro_batches(trees: Sequence[Tree], limit: int, rng: random.Random | None = None) -> list[tuple[Tree, ...]]:
    """Trees in batches of at most ``limit`` tokens: first fit, largest first, within windows of the given order; ``rng`` shuffles the batches of a window."""
    batches: list[tuple[Tree, ...]] = []
    for start in range(0, len(trees), _WINDOW):
        made: list[list[Tree]] = []
        room: list[int] = []
        for tree in sorted(trees[start : start + _WINDOW], key=lambda t: -t.size):
            place = next((n for n, left in enumerate(room) if left >= tree.size), None)
            if place is None:
                made.append([tree])
                room.append(limit - tree.size)
            else:
                made[place].append(tree)
                room[place] -= tree.size
        if rng is not None:
            rng.shuffle(made)
        batches += map(tuple, made)
    return batches


def laid_out(trees: Sequence[Tree], rows: Sequence[Row]) -> dict[str, torch.Tensor]:
    """The inputs of a forward pass over a micro-batch of L tokens: ``input_ids``, ``labels``, ``position_ids`` (int64[1, L]), ``attention_mask``
    (bool[1, 1, L, L], true where a query may look) and ``previous`` (int64[L], where the token before on the own path is, −1 for none)."""
    import torch

    ids: list[int] = []
    labels: list[int] = []
    positions: list[int] = []
    tree_of: list[int] = []
    branch_of: list[int] = []
    previous: list[int] = []

    def put(tokens: Sequence[int], marks: Sequence[int], first: int, tree: int, branch: int, after: int) -> None:
        if tokens:
            previous.extend([after, *range(len(ids), len(ids) + len(tokens) - 1)])
        ids.extend(tokens)
        labels.extend(marks)
        positions.extend(range(first, first + len(tokens)))
        tree_of.extend([tree] * len(tokens))
        branch_of.extend([branch] * len(tokens))

    for number, tree in enumerate(trees):
        put(rows[tree.rows[0]].input_ids[: tree.trunk], [IGNORED] * tree.trunk, 0, number, 0, -1)
        end = len(ids) - 1 if tree.trunk else -1
        for branch, row in enumerate(tree.rows, 1):
            own = rows[row]
            put(own.input_ids[tree.trunk :], own.labels[tree.trunk :], tree.trunk, number, branch, end)
    trees_at, branches = torch.tensor(tree_of), torch.tensor(branch_of)
    looks = (trees_at[:, None] == trees_at) & ((branches == 0) | (branches[:, None] == branches))
    made: dict[str, Any] = {name: torch.tensor([values]) for name, values in (("input_ids", ids), ("labels", labels), ("position_ids", positions))}
    return made | {"attention_mask": looks.tril()[None, None], "previous": torch.tensor(previous)}
