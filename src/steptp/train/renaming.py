"""Training samples and texts under other names, so that a model learns to read names from the program and not to know them.

A dataset has few families, and within one every program calls its tensors alike: a small model soon knows by heart how a line goes on, and never learns to copy.
Names are exchanged for others that the dataset uses, consistently in question and answer (cf. the identifier renaming of Jain et al. 2021, "Contrastive code representation
learning", section 3.1). Programs stay equal up to names. Names that the engine derives (``xl`` from ``x``, ``i0`` from ``i``) follow what they are derived from.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from steptp.dataset.questions import numbered
from steptp.dataset.samples import Sample
from steptp.errors import internal
from steptp.ir.edits import edit_between
from steptp.ir.lexer import RESERVED
from steptp.ir.seeds import derive_seed

__all__ = ["Pools", "other_names", "pools_of", "renamed", "renamed_group", "with_names"]

_NAME = re.compile(r"(?<!\w)[A-Za-z_]\w*")
_TENSOR = re.compile(r"(?<!\w)([A-Za-z_]\w*)\[")
_DECLARED = re.compile(r"^ *(?:size|in|out|tmp|where)\b.*$", re.MULTILINE)
_DERIVED = re.compile(r"(?:_?[lptqr]|\d)+\Z")
"""What the engine puts behind a tensor's name for a copy, a part, a transposed one."""
_OWN = re.compile(r"T\d+\Z|[cpf]\d+\Z")
"""Names of the engine's own making: tile sizes, loops of copies and of fused nests."""
_LOOP = re.compile(r"(?<=, loop )[A-Za-z_]\w*(?=\))")
_PARAMETER = re.compile(r"(?<==)[A-Za-z_]\w*")
_TRIES = 4
_LONGEST = 6
"""Characters of a name that others get: long ones only cost tokens."""


@dataclass(frozen=True, slots=True)
class Pools:
    """Names to choose from, by what they name."""

    tensors: tuple[str, ...]
    sizes: tuple[str, ...]
    loops: tuple[str, ...]


def _names(text: str) -> tuple[list[str], list[str], list[str]]:
    """Tensors, sizes and stems of loop variables of LEIR text, each in the order in which they come up."""
    found = [name for name in dict.fromkeys(_NAME.findall(text)) if name not in RESERVED and not _OWN.match(name)]
    tensors = set(_TENSOR.findall(text))
    declared = {name for line in _DECLARED.findall(text) for name in _NAME.findall(line)} - tensors
    loops = (name.rstrip("0123456789") for name in found if name not in tensors and name not in declared)
    return [n for n in found if n in tensors], [n for n in found if n in declared], list(dict.fromkeys(loops))


def pools_of(texts: Iterable[str]) -> Pools:
    """The names of programs that no step has touched yet, but for long ones."""
    kinds: tuple[dict[str, None], ...] = ({}, {}, {})
    for text in texts:
        for kind, names in zip(kinds, _names(text), strict=True):
            kind.update(dict.fromkeys(name for name in names if len(name) <= _LONGEST))
    return Pools(*(tuple(sorted(kind)) for kind in kinds))


def other_names(text: str, pools: Pools, rng: random.Random) -> dict[str, str]:
    """Old → new name for what ``text`` names; loop variables by their stems, under ``loop i``. May send two names to one."""
    tensors, sizes, loops = _names(text)
    by: dict[str, str] = {}
    taken: set[str] = set()

    def draw(pool: Sequence[str], old: str) -> str:
        free = [name for name in pool if name not in taken]
        new = rng.choice(free) if free else old
        taken.add(new)
        return new

    for kind, pool in ((sizes, pools.sizes), (tensors, pools.tensors)):
        for name in sorted(kind, key=len):
            stem = _stem(name, by)
            by[name] = by[stem] + name[len(stem) :] if stem else draw(pool, name)
    for stem in loops:
        by[f"loop {stem}"] = draw(pools.loops, stem)
    return by


def _stem(name: str, known: Mapping[str, str]) -> str:
    """The longest known name that ``name`` is derived from, or nothing."""
    for end in range(len(name) - 1, 0, -1):
        if name[:end] in known and _DERIVED.match(name, end):
            return name[:end]
    return ""


def _whole(text: str, by: Mapping[str, str]) -> dict[str, str] | None:
    """Every name of ``text`` → its new name; those unknown to ``by`` follow what they are derived from, or stay. ``None`` where two would become one."""
    tensors, sizes, _ = _names(text)
    plain = {*tensors, *sizes}
    made: dict[str, str] = {}
    for name in dict.fromkeys(_NAME.findall(text)):
        if name in RESERVED:
            continue
        if name in by:
            made[name] = by[name]
        elif _OWN.match(name):
            made[name] = name
        elif name in plain:
            stem = _stem(name, by)
            made[name] = by[stem] + name[len(stem) :] if stem else name
        else:
            stem = name.rstrip("0123456789")
            made[name] = by.get(f"loop {stem}", stem) + name[len(stem) :]
    clean = len(set(made.values())) == len(made) and not RESERVED.intersection(made.values())
    return made if clean else None


def with_names(text: str, names: Mapping[str, str]) -> str:
    """``text`` with its names exchanged."""
    return _exchanged(_NAME, text, names)


def _exchanged(pattern: re.Pattern[str], text: str, names: Mapping[str, str]) -> str:
    return pattern.sub(lambda found: names.get(found[0], found[0]), text)


def renamed(sample: Sample, pools: Pools, number: int, seed: int) -> Sample | None:
    """A *named* or *free* sample without reasons under the ``number``-th choice of names; ``None`` where no try was free of clashes. Samples of one state and number
    get the same names, wherever that does not clash."""
    for attempt in range(_TRIES):
        rng = random.Random(derive_seed("names", seed, sample.state, number, attempt))
        whole = _whole(f"{sample.program}\n{sample.child}", other_names(sample.program, pools, rng))
        if whole is None:
            continue
        parent, child = (with_names(text, whole) for text in (sample.program, sample.child))
        head, colon, parameters = sample.site.partition(":")
        site = head + colon + _exchanged(_PARAMETER, parameters, whole)
        prompt = _question(sample, parent, site, whole)
        completion = "\n".join(edit_between(parent, child)) if sample.form == "edit" else child.strip()
        return replace(
            sample,
            program=parent,
            child=child,
            site=site,
            prompt=prompt,
            completion=completion,
            id=f"{sample.id}~{number}",
            state=f"{sample.state}~{number}.{attempt}",
        )
    return None


def _question(sample: Sample, parent: str, site: str, names: Mapping[str, str]) -> str:
    """The question about ``parent``, as :func:`steptp.dataset.questions.task_prompt` puts it, without parsing anything."""
    old, new = (numbered(text) if sample.form == "edit" else text.strip() for text in (sample.program, parent))
    before, found, after = sample.prompt.partition(old)
    if not found:
        raise internal("a question does not show its program")
    after = _exchanged(_LOOP, after.replace(sample.site, site), names)
    return before + new + after


def renamed_group(texts: Sequence[str], pools: Pools, number: int, seed: int) -> list[str]:
    """The programs of a root under the ``number``-th choice of names, the same for all of them; as they are where that clashes."""
    joined = "\n".join(texts)
    for attempt in range(_TRIES):
        whole = _whole(joined, other_names(joined, pools, random.Random(derive_seed("names", seed, joined, number, attempt))))
        if whole is not None:
            return [with_names(text, whole) for text in texts]
    return list(texts)
