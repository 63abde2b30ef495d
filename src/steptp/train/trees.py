"""Rows that begin alike, computed once: a stem that all rows of a kind share, a trunk for those of one group, a branch for each row.

Questions of a kind begin with the same words. The steps from one program differ in the strategy, the site and the answer, and share everything before. Position
numbers and an attention mask make every token see its stem, its trunk and its own branch and nothing else, so the loss is that of the rows one by one, for a
fraction of the tokens.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from steptp.errors import internal
from steptp.train.encode import Row

if TYPE_CHECKING:
    import torch

__all__ = ["Tree", "beginnings", "computed", "grow", "laid_out", "micro_batches"]

_WINDOW = 512
"""Trees among which those that fill a micro-batch together are looked for."""


@dataclass(frozen=True, slots=True)
class Tree:
    """``rows``, of which the first ``trunk`` tokens are the same; ``size``: tokens in all, the trunk counted once. The first ``stem`` tokens of the trunk are those
    of every row of the ``kind``."""

    rows: tuple[int, ...]
    trunk: int
    size: int
    kind: str = ""
    stem: int = 0

    def beside(self, kinds: Container[str]) -> int:
        """Tokens that it adds to a micro-batch with trees of ``kinds``."""
        return self.size - (self.stem if self.kind in kinds else 0)


def beginnings(rows: Sequence[Row]) -> dict[str, int]:
    """Group or kind → how many tokens all of its rows begin with. A branch keeps at least one token of the question, so none of them predicts an answer's
    token."""
    alike: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        for name in filter(None, (row.group, row.kind)):
            alike[name].append(row)
    return {name: _common(members) for name, members in alike.items()}


def _common(rows: Sequence[Row]) -> int:
    first, most = rows[0].input_ids, min(row.asked for row in rows) - 1
    for row in rows[1:]:
        most = next((n for n in range(most) if row.input_ids[n] != first[n]), most)
    return max(most, 0)


def grow(drawn: Sequence[int], rows: Sequence[Row], shared: Mapping[str, int], limit: int) -> list[Tree]:
    """The ``drawn`` rows as trees of at most ``limit`` tokens, in the order in which their groups come up first."""
    groups: dict[tuple[str, int], list[int]] = defaultdict(list)
    for row in drawn:
        groups[(rows[row].group, -1) if rows[row].group else ("", row)].append(row)
    trees: list[Tree] = []
    for (name, _), members in groups.items():
        trunk = shared.get(name, 0)
        kind = rows[members[0]].kind
        stem = shared.get(kind, 0)
        part: list[int] = []
        size = trunk
        for row in members:
            own = len(rows[row].input_ids) - trunk
            if trunk + own > limit:
                raise internal("a row is longer than a micro-batch")
            if part and size + own > limit:
                trees.append(Tree(tuple(part), trunk, size, kind, stem))
                part, size = [], trunk
            part.append(row)
            size += own
        trees.append(Tree(tuple(part), trunk, size, kind, stem))
    return trees


def computed(batch: Iterable[Tree]) -> int:
    """Tokens of the trees of a micro-batch, every stem counted once."""
    kinds: set[str] = set()
    tokens = 0
    for tree in batch:
        tokens += tree.beside(kinds)
        kinds.add(tree.kind)
    return tokens


def micro_batches(trees: Sequence[Tree], limit: int, rng: random.Random | None = None) -> list[tuple[Tree, ...]]:
    """Trees in batches of at most ``limit`` tokens: first fit, largest first, within windows of the given order; ``rng`` shuffles the batches of a window."""
    batches: list[tuple[Tree, ...]] = []
    for start in range(0, len(trees), _WINDOW):
        made: list[list[Tree]] = []
        room: list[int] = []
        kinds: list[set[str]] = []
        for tree in sorted(trees[start : start + _WINDOW], key=lambda t: -t.size):
            place = next((n for n, left in enumerate(room) if left >= tree.beside(kinds[n])), None)
            if place is None:
                place = len(made)
                made.append([])
                room.append(limit)
                kinds.append(set())
            made[place].append(tree)
            room[place] -= tree.beside(kinds[place])
            kinds[place].add(tree.kind)
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
    previous: list[int] = []
    part_of: list[int] = []
    seen: list[list[int]] = []  # of each part: the parts that it sees
    ends: list[int] = []  # of each part: its last token

    def put(row: Row, first: int, last: int | None, after: int) -> int:
        """Lays out some tokens of a row behind the part ``after`` (−1: none) and returns their part, or ``after`` without tokens."""
        tokens = row.input_ids[first:last]
        if not tokens:
            return after
        part = len(seen)
        previous.extend([ends[after] if after >= 0 else -1, *range(len(ids), len(ids) + len(tokens) - 1)])
        ids.extend(tokens)
        labels.extend(row.labels[first:last])
        positions.extend(range(first, first + len(tokens)))
        part_of.extend([part] * len(tokens))
        seen.append([*(seen[after] if after >= 0 else ()), part])
        ends.append(len(ids) - 1)
        return part

    stems: dict[str, int] = {}
    for tree in trees:
        any_row = rows[tree.rows[0]]
        if tree.kind not in stems:
            stems[tree.kind] = put(any_row, 0, tree.stem, -1)
        trunk = put(any_row, tree.stem, tree.trunk, stems[tree.kind])
        for row in tree.rows:
            put(rows[row], tree.trunk, None, trunk)
    sees = torch.zeros(len(seen), len(seen), dtype=torch.bool)
    for part, others in enumerate(seen):
        sees[part, others] = True
    parts = torch.tensor(part_of)
    looks = sees[parts[:, None], parts]
    made: dict[str, Any] = {name: torch.tensor([values]) for name, values in (("input_ids", ids), ("labels", labels), ("position_ids", positions))}
    return made | {"attention_mask": looks.tril()[None, None], "previous": torch.tensor(previous)}
