"""Which states are asked about: the same for every policy, whatever it is shown of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from steptp.dataset.questions import Form, Task
from steptp.dataset.samples import Sample, examples_for, samples_of
from steptp.dataset.store import Dataset
from steptp.errors import UsageError
from steptp.ir.seeds import derive_seed

__all__ = ["Asked", "Selection", "select"]

_GAIN = 1.05
"""A state is asked for an action only where a sibling gains this much: elsewhere regret is noise."""


@dataclass(frozen=True, slots=True)
class Selection:
    """``states`` of a split at most, ``per_root`` of one root; ``reasons``, ``shuffle``, ``blind``: as :func:`steptp.dataset.samples.samples_of` has them;
    ``shots``: examples from the train split before each question."""

    task: Task
    form: Form
    split: str
    states: int = 100
    per_root: int = 5
    seed: int = 0
    reasons: bool = False
    reason_words: int | None = None
    shuffle: int = 0
    blind: bool = False
    shots: int = 0


@dataclass(frozen=True, slots=True)
class Asked:
    """A question with its known answer, and the examples shown before it."""

    sample: Sample
    examples: tuple[Sample, ...] = ()

    @property
    def messages(self) -> list[dict[str, str]]:
        """The conversation up to where the answer begins."""
        return self.sample.asked(self.examples)


def select(data: Dataset, wanted: Selection) -> list[Asked]:
    """The questions in the order in which they are drawn. Raises :class:`UsageError` ``usage-split`` where the split has none."""
    found = _samples(data, wanted, wanted.split, wanted.shuffle)
    if wanted.task == "action":
        found = [s for s in found if max(s.ratios.values(), default=0.0) >= _GAIN]
    kept: list[Sample] = []
    roots: Counter[str] = Counter()
    for sample in sorted(found, key=lambda s: derive_seed("state", wanted.seed, s.id)):
        if len(kept) < wanted.states and roots[sample.root] < wanted.per_root:
            kept.append(sample)
            roots[sample.root] += 1
    if not kept:
        splits = ", ".join(sorted({s["split"] for s in data.steps}))
        raise UsageError(
            "usage-split", f"the split {wanted.split} of {data.folder} has no sample of the task {wanted.task}", hint=f"splits with steps: {splits}"
        )
    if not wanted.shots:
        return [Asked(s) for s in kept]
    pool = _samples(data, wanted, "train", 0)
    return [Asked(s, tuple(examples_for(s, pool, wanted.shots, seed=wanted.seed))) for s in kept]


def _samples(data: Dataset, wanted: Selection, split: str, shuffle: int) -> Sequence[Sample]:
    words = wanted.reason_words
    return list(samples_of(data, wanted.task, wanted.form, reasons=wanted.reasons, split=split, shuffle=shuffle, blind=wanted.blind, reason_words=words))
