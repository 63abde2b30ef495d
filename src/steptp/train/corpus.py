"""What training may read: samples and program texts of the train split, and of it nothing that a held-out split also has."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from steptp.dataset.samples import Sample, samples_of
from steptp.dataset.store import Dataset
from steptp.errors import DatasetError
from steptp.ir.seeds import derive_seed, digest
from steptp.train.config import RunConfig, Source

__all__ = ["Corpus", "HeldOut", "read_corpus", "read_texts"]


@dataclass(frozen=True, slots=True)
class HeldOut:
    """Roots, families and programs that belong to other splits than ``train``; ``seen_families`` occur in ``train``."""

    roots: frozenset[str]
    programs: frozenset[str]
    new_families: frozenset[str]
    train_roots: frozenset[str]
    seen_families: frozenset[str]

    @staticmethod
    def of(data: Sequence[Dataset]) -> HeldOut:
        """Over all folders together. Raises :class:`DatasetError` ``train-leak`` for a root that one split trains on and another holds out,
        and for a train root of a family that is held out as new."""
        trained: dict[str, tuple[str, Path]] = {}
        held: dict[str, tuple[str, Path]] = {}
        families: dict[str, tuple[str, Path]] = {}
        seen: dict[str, tuple[str, Path]] = {}
        programs: set[str] = set()
        for each in data:
            for row in each.steps:
                if row["split"] == "train":
                    trained.setdefault(row["root"], (row["workload"], each.folder))
                    seen.setdefault(row["family"], (row["workload"], each.folder))
                    continue
                held.setdefault(row["root"], (row["split"], each.folder))
                programs.update(h for h in (row["parent"], row["child"]) if h)
                if row["split"] == "test_new_family":
                    families.setdefault(row["family"], (row["workload"], each.folder))
        for kind, ours, theirs in (("root", trained, held), ("family", seen, families)):
            for name in sorted(ours.keys() & theirs.keys()):
                raise DatasetError(
                    "train-leak",
                    f"{kind} {name} ({ours[name][0]}) is in the train split of {ours[name][1]} and held out by {theirs[name][1]} ({theirs[name][0]})",
                    hint="build the folders together, with one seed, so that they hold the same roots out",
                )
        return HeldOut(frozenset(held), frozenset(programs | held.keys()), frozenset(families), frozenset(trained), frozenset(seen))


@dataclass(frozen=True, slots=True)
class Corpus:
    """``train``: the samples of each source; ``validation``: samples of all sources, drawn by the seed. ``digests``: source → hash of its samples."""

    train: tuple[tuple[Source, tuple[Sample, ...]], ...]
    validation: tuple[Sample, ...]
    left_out: Counter[str] = field(default_factory=Counter)
    digests: dict[str, str] = field(default_factory=dict)


def read_corpus(config: RunConfig, data: Sequence[Dataset]) -> Corpus:
    """The samples of a run. Raises :class:`DatasetError` ``train-leak`` and, for a mix without samples, ``train-empty``."""
    held = HeldOut.of(data)
    left_out: Counter[str] = Counter()
    train: list[tuple[Source, tuple[Sample, ...]]] = []
    validation: list[Sample] = []
    digests: dict[str, str] = {}
    for number, source in enumerate(config.mix):
        found: dict[str, Sample] = {}
        for each in data:
            shared = {row["id"] for row in each.steps if row["parent"] in held.programs or row["child"] in held.programs}
            for sample in _samples(each, source, "train"):
                if sample.state in held.programs or sample.id in shared:
                    left_out["program also in a held-out split"] += 1
                elif sample.id in found:
                    left_out["in an earlier folder"] += 1
                else:
                    found[sample.id] = sample
            validation += _samples(each, source, "validation")
        kept = list(found.values())
        if source.samples is not None and source.samples < len(kept):
            drawn = random.Random(derive_seed("samples", config.seed, source.name)).sample(range(len(kept)), source.samples)
            left_out["not drawn"] += len(kept) - source.samples
            kept = [kept[n] for n in sorted(drawn)]
        train.append((source, tuple(kept)))
        digests[f"mix[{number + 1}] {source.name}"] = digest(*(part for s in kept for part in (s.id, s.prompt, s.completion)))
    if not any(samples for _, samples in train):
        folders = ", ".join(str(f) for f in config.data)
        raise DatasetError("train-empty", f"the train split of {folders} has no sample of the mix", hint="action samples need states with measured siblings")
    random.Random(derive_seed("validation", config.seed)).shuffle(validation)
    return Corpus(tuple(train), tuple(validation[: config.validation_samples]), left_out, digests)


def _samples(data: Dataset, source: Source, split: str) -> list[Sample]:
    return list(samples_of(data, source.task, source.form, reasons=source.reasons, split=split, reason_words=source.reason_words))


def read_texts(data: Sequence[Dataset], zoo: Sequence[str] = ()) -> list[list[str]]:
    """Texts of the programs that train roots reach, one list a root, and of the ``zoo`` presets' programs of families that training sees; nothing that is held
    out."""
    held = HeldOut.of(data)
    texts: dict[str, dict[str, str]] = defaultdict(dict)
    for each in data:
        for name, row in each.programs.items():
            if row["root"] in held.train_roots and name not in held.programs:
                texts[row["root"]].setdefault(name, row["text"])
    if zoo:
        from steptp.dataset.roots import make_roots
        from steptp.frontend import zoo as entries

        for root in make_roots([f"zoo:{name}@{preset}" for preset in zoo for name in entries.names(preset)], 0, 0):
            if root.family in held.seen_families - held.new_families and root.hash not in held.programs:
                texts[root.hash].setdefault(root.hash, root.text)
    return [[group[name] for name in sorted(group)] for _, group in sorted(texts.items())]
