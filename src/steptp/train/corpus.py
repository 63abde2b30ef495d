"""What training may read: samples and program texts of the train split, and of it nothing that a held-out split also has."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from steptp.dataset.questions import numbered
from steptp.dataset.samples import Sample, samples_of
from steptp.dataset.store import Dataset
from steptp.errors import DatasetError
from steptp.ir.seeds import derive_seed, digest
from steptp.train.config import RunConfig, Source
from steptp.train.renaming import Pools, pools_of, renamed, renamed_group

__all__ = ["Corpus", "HeldOut", "read_corpus", "read_texts", "recited"]

_RECITED = 4


@dataclass(frozen=True, slots=True)
class HeldOut:
    """Roots, families and programs that any folder keeps from training; ``train_roots`` are of no other split anywhere, ``seen_families`` theirs."""

    roots: frozenset[str]
    programs: frozenset[str]
    new_families: frozenset[str]
    train_roots: frozenset[str]
    seen_families: frozenset[str]

    @staticmethod
    def of(data: Sequence[Dataset]) -> HeldOut:
        """Over all folders together: what one holds out, no other may train on.

        Raises :class:`DatasetError` ``train-leak`` for a folder that trains on a root or family that it holds out itself.
        """
        held: set[str] = set()
        families: set[str] = set()
        programs: set[str] = set()
        trained: dict[str, str] = {}
        for each in data:
            own: dict[str, dict[str, str]] = {"root": {}, "family": {}}
            for row in each.steps:
                if row["split"] == "train":
                    trained[row["root"]] = row["family"]
                    continue
                own["root"][row["root"]] = row["split"]
                programs.update(h for h in (row["parent"], row["child"]) if h)
                if row["split"] == "test_new_family":
                    own["family"][row["family"]] = row["split"]
            for kind, names in own.items():
                for row in each.steps:
                    if row["split"] == "train" and row[kind] in names:
                        raise DatasetError(
                            "train-leak", f"{kind} {row[kind]} ({row['workload']}) of {each.folder} is in the splits train and {names[row[kind]]} at once",
                            hint="build the folder anew: steptp build gives a root one split",
                        )  # fmt: skip
            held |= own["root"].keys()
            families |= own["family"].keys()
        clean = {root: family for root, family in trained.items() if root not in held and family not in families}
        return HeldOut(frozenset(held), frozenset(programs | held), frozenset(families), frozenset(clean), frozenset(clean.values()))


@dataclass(frozen=True, slots=True)
class Corpus:
    """``train``: the samples of each source; ``validation``: samples of all sources, drawn by the seed. ``digests``: source → hash of its samples. ``held``: what
    was kept away."""

    train: tuple[tuple[Source, tuple[Sample, ...]], ...]
    validation: tuple[Sample, ...]
    left_out: Counter[str] = field(default_factory=Counter)
    digests: dict[str, str] = field(default_factory=dict)
    held: HeldOut | None = None


def read_corpus(config: RunConfig, data: Sequence[Dataset]) -> Corpus:
    """The samples of a run. Raises :class:`DatasetError` ``train-leak`` and, for a mix without samples, ``train-empty``."""
    held = HeldOut.of(data)
    pools = _pools(data, held)
    left_out: Counter[str] = Counter()
    train: list[tuple[Source, tuple[Sample, ...]]] = []
    validation: list[Sample] = []
    digests: dict[str, str] = {}
    for number, source in enumerate(config.mix):
        found: dict[str, Sample] = {}
        for each in data:
            shared = {row["id"] for row in each.steps if row["parent"] in held.programs or row["child"] in held.programs}
            for order, sample in _ordered(each, source):
                name = f"{sample.id}/{order}"
                if sample.root not in held.train_roots:
                    left_out["root or family that another folder holds out"] += 1
                elif sample.state in held.programs or sample.id in shared:
                    left_out["program also in a held-out split"] += 1
                elif name in found:
                    left_out["in an earlier folder"] += 1
                else:
                    found[name] = sample
            validation += _samples(each, source, "validation")
        kept = list(found.values())
        if source.samples is not None and source.samples < len(kept):
            drawn = random.Random(derive_seed("samples", config.seed, source.name)).sample(range(len(kept)), source.samples)
            left_out["not drawn"] += len(kept) - source.samples
            kept = [kept[n] for n in sorted(drawn)]
        kept += _under_other_names(kept, source, config.seed, pools, left_out)
        train.append((source, tuple(kept)))
        digests[f"mix[{number + 1}] {source.name}"] = digest(*(part for s in kept for part in (s.id, s.prompt, s.completion)))
    if not any(samples for _, samples in train):
        folders = ", ".join(str(f) for f in config.data)
        raise DatasetError("train-empty", f"the train split of {folders} has no sample of the mix", hint="action samples need states with measured siblings")
    random.Random(derive_seed("validation", config.seed)).shuffle(validation)
    return Corpus(tuple(train), tuple(validation[: config.validation_samples]), left_out, digests, held)


def _ordered(data: Dataset, source: Source) -> Iterator[tuple[int, Sample]]:
    for order in range(source.orders):
        for sample in _samples(data, source, "train", order):
            yield order, sample


def _samples(data: Dataset, source: Source, split: str, order: int = 0) -> list[Sample]:
    return list(samples_of(data, source.task, source.form, reasons=source.reasons, split=split, reason_words=source.reason_words, shuffle=order))


def _pools(data: Sequence[Dataset], held: HeldOut) -> Pools:
    return pools_of(row["text"] for each in data for name, row in sorted(each.programs.items()) if name in held.train_roots)


def _under_other_names(samples: Sequence[Sample], source: Source, seed: int, pools: Pools, left_out: Counter[str]) -> list[Sample]:
    made: list[Sample] = []
    for number in range(1, source.names):
        for sample in samples:
            if (other := renamed(sample, pools, number, seed)) is None:
                left_out["names clash"] += 1
            else:
                made.append(other)
    return made


def read_texts(data: Sequence[Dataset], zoo: Sequence[str] = (), names: int = 1, seed: int = 0, held: HeldOut | None = None) -> list[list[str]]:
    """Texts of the programs that train roots reach, one list a root and choice of ``names``, and of the ``zoo`` presets' programs of families that training
    sees; nothing that is held out (``held``: of these folders, where it is known already)."""
    held = held or HeldOut.of(data)
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
    groups = [[group[name] for name in sorted(group)] for _, group in sorted(texts.items())]
    pools = _pools(data, held)
    return groups + [renamed_group(group, pools, number, seed) for number in range(1, names) for group in groups]


def recited(text: str, count: int, seed: int) -> str:
    """A program with the numbers of its lines, as questions show it, and behind it ``count`` runs of one to four of its lines, numbered as answers number
    them: every token there has been read before, at a place that the numbers tell. ``count`` 0: the text alone."""
    if not count:
        return text
    rng = random.Random(derive_seed("recited", seed, text))
    shown = numbered(text)
    lines = shown.splitlines()
    parts = [shown]
    for _ in range(count):
        first = rng.randrange(len(lines))
        parts.append("\n".join(lines[first : first + rng.randint(1, _RECITED)]))
    return "\n\n".join(parts)
