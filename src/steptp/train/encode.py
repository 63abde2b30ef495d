"""Samples as token ids with the labels that bear loss: the answer and the end of its turn, nothing else."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from steptp.dataset.samples import Sample
from steptp.policy.chat import Chat

__all__ = ["IGNORED", "Row", "encode", "encode_all", "pack"]

IGNORED = -100
"""The label of a token that bears no loss."""


@dataclass(frozen=True, slots=True)
class Row:
    """One training sequence. ``labels``: the ids, or :data:`IGNORED` (always at the first, which nothing predicts); ``weight``: how often it comes up in an
    epoch; rows of one ``group`` begin alike, and, less far, those of one ``kind``."""

    input_ids: list[int]
    labels: list[int]
    weight: float = 1.0
    group: str = ""
    kind: str = ""

    @property
    def answer(self) -> int:
        """Tokens that bear loss."""
        return sum(label != IGNORED for label in self.labels)

    @property
    def asked(self) -> int:
        """Tokens before the first that bears loss."""
        return next((n for n, label in enumerate(self.labels) if label != IGNORED), len(self.labels))


def encode(chat: Chat, sample: Sample, weight: float = 1.0) -> Row:
    """The question in the tokens that a model is asked with, then the answer in its own tokens: nothing merges across the place where writing begins."""
    asked = chat.encoded(sample.asked())
    answer = [*chat.tokenizer(sample.completion, add_special_tokens=False).input_ids, chat.end_of_turn]
    kind = f"{sample.task}/{sample.form}/{sample.reasons}"
    return Row([*asked, *answer], [IGNORED] * len(asked) + answer, weight, f"{kind}/{sample.state}", kind)


def encode_all(chat: Chat, samples: Iterable[tuple[Sample, float]], context: int, dropped: Counter[str]) -> list[Row]:
    """Every sample that fits the context. One that does not is counted in ``dropped`` and never cut."""
    rows: list[Row] = []
    for sample, weight in samples:
        row = encode(chat, sample, weight)
        if len(row.input_ids) <= context:
            rows.append(row)
        else:
            dropped[f"longer than the context ({sample.task}/{sample.form})"] += 1
    return rows


def pack(texts: Iterable[Sequence[int]], end: int, context: int) -> list[Row]:
    """Token lists behind one another, each closed by ``end``, cut into rows of ``context`` tokens; every token but a row's first bears loss."""
    line = [token for text in texts for token in (*text, end)]
    rows = (line[n : n + context] for n in range(0, len(line), context))
    return [Row(row, [IGNORED, *row[1:]]) for row in rows if len(row) > 1]
