"""Which samples go through the model together, and in which order: fixed before training begins, so a resumed run repeats it."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, count

from steptp.errors import UsageError
from steptp.ir.seeds import derive_seed
from steptp.train.config import Stage
from steptp.train.encode import Row
from steptp.train.trees import Tree, beginnings, computed, grow, micro_batches

__all__ = ["Plan", "make_plan"]


@dataclass(frozen=True, slots=True)
class Plan:
    """``batches``: micro-batches of trees of rows, for the whole stage; ``per_step`` of them make an optimiser step. ``limit``: tokens of a micro-batch.
    ``tokens``: tokens computed up to the end of each step, those that rows share counted once; ``alone``: as many as the rows have one by one; ``epochs``: how
    often a row of weight 1 came up."""

    batches: tuple[tuple[Tree, ...], ...]
    per_step: int
    limit: int
    tokens: tuple[int, ...]
    alone: tuple[int, ...]
    epochs: float

    @property
    def steps(self) -> int:
        """Optimiser steps."""
        return len(self.tokens)

    def tokens_after(self, step: int) -> int:
        """Tokens computed in the first ``step`` steps."""
        return self.tokens[step - 1] if step else 0


def _epoch(weights: Sequence[float], rng: random.Random) -> list[int]:
    """Rows of one epoch, shuffled: each as often as its weight says, the fraction as a probability."""
    rows = [row for row, weight in enumerate(weights) for _ in range(int(weight) + (rng.random() < weight % 1))]
    rng.shuffle(rows)
    return rows


def make_plan(rows: Sequence[Row], stage: Stage, context: int, seed: int) -> Plan:
    """The batches of a stage over ``rows``; ends with the epochs or with the batch that reaches ``max_tokens``.

    Raises :class:`UsageError` ``train-empty`` without rows.
    """
    if not rows:
        raise _empty()
    limit = stage.micro_tokens or context
    shared, weights = beginnings(rows), [row.weight for row in rows]
    batches: list[tuple[Tree, ...]] = []
    tokens = 0
    passed = 0.0
    for epoch in count():
        rng = random.Random(derive_seed("epoch", seed, epoch))
        made = micro_batches(grow(_epoch(weights, rng), rows, shared, limit), limit, rng)
        if stage.epochs is not None:
            share = min(1.0, stage.epochs - epoch)
            made = made[: max(round(len(made) * share), 1 if not epoch else 0)]
        for batch in made:
            batches.append(batch)
            tokens += computed(batch)
            passed += sum(len(tree.rows) for tree in batch)
            if stage.max_tokens is not None and tokens >= stage.max_tokens:
                break
        done = tokens >= stage.max_tokens if stage.max_tokens is not None else epoch + 1 >= (stage.epochs or 0)
        if done:
            break
    if not batches:
        raise _empty()
    per_step = max(1, stage.batch_tokens // limit)
    steps = [batches[n : n + per_step] for n in range(0, len(batches), per_step)]
    together = accumulate(sum(map(computed, step)) for step in steps)
    alone = accumulate(sum(len(rows[row].input_ids) for batch in step for tree in batch for row in tree.rows) for step in steps)
    return Plan(tuple(batches), per_step, limit, tuple(together), tuple(alone), passed / sum(weights))


def _empty() -> UsageError:
    hint = "a longer context keeps longer samples (train.json counts what was dropped); more epochs or a higher weight draws more"
    return UsageError("train-empty", "nothing is left to train on", hint=hint)
