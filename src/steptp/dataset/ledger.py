"""Which steps a build has admitted, in the fixed order of its trajectories.

The ledger holds a few short strings per step, never programs or reasons: those stay in the journal until the tables are written.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from steptp.dataset.config import BuildConfig
from steptp.dataset.filters import Kept, admit, all_filters
from steptp.ir.seeds import digest

__all__ = ["Entry", "Ledger"]


@dataclass(slots=True)
class Entry:
    """One admitted step: where its record is in the journal, and what later stages ask about it.

    ``ok``: the verdict accepts it; ``checked``: its compiled tiers have run (steps beyond those that a build wants are never checked).
    """

    walk: str
    index: int
    id: str
    parent: str
    child: str
    root: str
    split: str
    role: str
    depth: int
    ok: bool
    checked: bool = False


@dataclass
class Ledger:
    """Admission by the filters, one text per hash, and the rule against leakage."""

    config: BuildConfig
    splits: Mapping[str, str]
    entries: list[Entry] = field(default_factory=list)
    other: list[Entry] = field(default_factory=list)
    measured: frozenset[str] = frozenset()
    shape_of: dict[str, str] = field(default_factory=dict)
    _texts: dict[str, str] = field(default_factory=dict)
    _seen: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.kept = Kept(self.config.steps, self.config.cap_share)
        self._filters = all_filters()

    @property
    def dropped(self) -> Counter[str]:
        return self.kept.dropped

    def take(self, key: str, root: str, walk: Mapping[str, Any]) -> list[Entry]:
        """Admit a finished walk's steps; returns the newly admitted verified ones, which still need their compiled checks."""
        fresh: list[Entry] = []
        named = {h: digest(p["text"]) for h, p in walk["programs"].items()}
        for index, step in enumerate(walk["steps"]):
            entry = Entry(key, index, step["id"], step["parent"], step["child"], root, self.splits[root], step["role"], step["depth"], step["verdict"] == "ok")
            if any(self._texts.get(h, named[h]) != named[h] for h in (entry.parent, entry.child) if h):
                self.dropped["renamed"] += 1  # an alpha-equal program is known under other names; one hash has one text
                continue
            if not entry.ok:
                if entry.id not in self._seen:
                    self._seen.add(entry.id)
                    self.other.append(entry)
                    self._note(entry, named, walk)
                continue
            if admit({**step, "trajectory": key}, self.kept, self._filters) is None:
                self.entries.append(entry)
                self._note(entry, named, walk)
                fresh.append(entry)
        return fresh

    def _note(self, entry: Entry, named: Mapping[str, str], walk: Mapping[str, Any]) -> None:
        for name in (entry.parent, entry.child):
            if name:
                self._texts[name] = named[name]
                self.shape_of[name] = walk["programs"][name]["shape"]

    def hidden(self) -> frozenset[str]:
        """Shape hashes that occur in ``test_new_family``."""
        return frozenset(self.shape_of[h] for e in (*self.entries, *self.other) if e.split == "test_new_family" for h in (e.parent, e.child) if h)

    def leaks(self, entry: Entry, hidden: frozenset[str]) -> bool:
        """Whether a record outside the new families shows a program of theirs (sizes aside)."""
        return entry.split != "test_new_family" and any(self.shape_of[h] in hidden for h in (entry.parent, entry.child) if h)

    def verified(self) -> Iterator[Entry]:
        """Admitted, verified steps that do not leak, in order, as many as wanted."""
        hidden, left = self.hidden(), self.config.steps
        for entry in self.entries:
            if not left:
                return
            if entry.checked and entry.ok and not self.leaks(entry, hidden):
                left -= 1
                yield entry

    def count(self) -> int:
        return sum(1 for _ in self.verified())

    def final(self) -> list[Entry]:
        """Every record of the dataset in its final order: verified steps, and the rejected and refused ones of the same walks."""
        chosen = {e.id for e in self.verified()}
        hidden = self.hidden()
        walks = {e.walk for e in self.entries if e.id in chosen}
        until = max((n for n, e in enumerate(self.entries) if e.id in chosen), default=-1)  # later ones may or may not have been looked at
        failed = [e for e in self.entries[:until] if not e.ok and e.walk in walks]
        others = [e for e in self.other if e.walk in walks]
        rest = [e for e in (*failed, *others) if not self.leaks(e, hidden)]
        return sorted([*(e for e in self.entries if e.id in chosen), *rest], key=lambda e: (e.walk, e.index))
