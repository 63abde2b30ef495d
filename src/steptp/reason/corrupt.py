"""Corrupting an explanation on purpose: numbers off by one, names swapped, sentences left out or exchanged with another step's."""

from __future__ import annotations

import random
import re

from steptp.reason.patterns import read_sentence

__all__ = ["corrupt_text", "KINDS"]

KINDS = ("number", "names", "sentence", "swap", "drop", "section")
_NUMBER = re.compile(r"(?<![\w.])\d+(?![\w.]|\.\d)")
_WORD = re.compile(r"(?<![\w@.])[A-Za-z_]\w*(?=\[)|(?<=loop )[A-Za-z_]\w*")


def corrupt_text(text: str, rng: random.Random, other: str, alike: str = "") -> tuple[str, str] | None:
    """(kind, corrupted text), or ``None`` when this draw changes nothing.

    ``number``: one number in one sentence moves by one. ``names``: two different names in one sentence change places. ``sentence``: a sentence
    is replaced by one of ``other``'s, same section. ``swap``: a reason is replaced by one of ``alike``, the text of another step of the strategy.
    ``drop``: a sentence is left out. ``section``: a whole section is replaced.
    """
    kind = rng.choice(KINDS)
    lines = text.splitlines()
    if kind in ("number", "names", "drop"):
        changed = {"number": _number, "names": _names, "drop": _drop}[kind](lines, rng)
    elif kind == "swap":
        changed = _exchange(lines, _legal(alike.splitlines()), rng, False) if alike else None
    else:
        changed = _exchange(lines, other.splitlines(), rng, kind == "section")
    if changed is None or _said(changed) == _said(lines):  # other words for the same claims are no corruption
        return None
    return kind, "\n".join(changed) + "\n"


def _said(lines: list[str]) -> list[tuple[str, ...]]:
    """What is claimed, apart from wording and order."""
    out = []
    for line in lines:
        claim = read_sentence(line.removeprefix("- "))
        out.append((claim.kind, *(f"{k}={v}" for k, v in sorted(claim.values.items()))) if claim else (line,))
    return sorted(out)


def _number(lines: list[str], rng: random.Random) -> list[str] | None:
    places = [(n, m) for n, line in enumerate(lines) for m in _NUMBER.finditer(line)]
    if not places:
        return None
    n, found = rng.choice(places)
    value = int(found.group()) + rng.choice((-1, 1))
    if value < 0:
        return None
    line = lines[n]
    return [*lines[:n], line[: found.start()] + str(value) + line[found.end() :], *lines[n + 1 :]]


def _names(lines: list[str], rng: random.Random) -> list[str] | None:
    options = []
    for n, line in enumerate(lines):
        found = list(_WORD.finditer(line))
        options += [(n, a, b) for a in found for b in found if a.start() < b.start() and a.group() != b.group()]
    if not options:
        return None
    n, a, b = rng.choice(options)
    line = lines[n]
    swapped = line[: a.start()] + b.group() + line[a.end() : b.start()] + a.group() + line[b.end() :]
    return [*lines[:n], swapped, *lines[n + 1 :]]


def _drop(lines: list[str], rng: random.Random) -> list[str] | None:
    sentences = [n for n, line in enumerate(lines) if line.startswith("- ")]
    if not sentences:
        return None
    n = rng.choice(sentences)
    return [*lines[:n], *lines[n + 1 :]]


def _legal(lines: list[str]) -> list[str]:
    """The section of reasons alone."""
    found = _sections(lines).get("Legal:")
    return lines[found[0] - 1 : found[1]] if found else []


def _sections(lines: list[str]) -> dict[str, tuple[int, int]]:
    heads = [n for n, line in enumerate(lines) if not line.startswith("- ") and line.endswith(":")]
    return {lines[n]: (n + 1, m) for n, m in zip(heads, [*heads[1:], len(lines)], strict=True)}


def _exchange(lines: list[str], other: list[str], rng: random.Random, whole: bool) -> list[str] | None:
    mine, theirs = _sections(lines), _sections(other)
    shared = sorted(set(mine) & set(theirs))
    if not shared:
        return None
    name = rng.choice(shared)
    (a0, a1), (b0, b1) = mine[name], theirs[name]
    if whole:
        return None if lines[a0:a1] == other[b0:b1] else [*lines[:a0], *other[b0:b1], *lines[a1:]]
    if a0 == a1 or b0 == b1:
        return None
    n, replacement = rng.randrange(a0, a1), other[rng.randrange(b0, b1)]
    return None if replacement in lines else [*lines[:n], replacement, *lines[n + 1 :]]
