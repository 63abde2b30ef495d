"""Edits of a program's text by its numbered lines.

``4| text`` takes the place of line 4, ``4+ text`` comes in behind it (``0+ text`` before the first line), ``4-`` takes line 4 out. Every number is of the text
before the edit. Lines of an edit may stand in any order: a line that several stand for becomes all of them, in their order, and what comes in behind a line
follows what stands for it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from difflib import SequenceMatcher
from typing import NamedTuple

from steptp.errors import UsageError

__all__ = ["EditLine", "apply_edit", "edit_between", "edit_line", "edited_places"]

_LINE = re.compile(r"[ \t]*(?P<number>\d{1,6})(?:(?P<op>\|) ?(?P<new>.*)|(?P<plus>\+)(?:[ ](?P<more>.*))?|-[ \t]*)\Z")
_COMPARED = 400
"""Pairs of lines of one changed stretch that are compared; of a larger one, lines are matched by their order."""


class EditLine(NamedTuple):
    """``op``: ``|`` (in place of ``number``), ``+`` (behind it) or ``-`` (taken out; without ``text``)."""

    number: int
    op: str
    text: str

    def fits(self, lines: int) -> bool:
        """Whether a text of so many lines has the place; line 0 is none, but something can come in behind it."""
        return (0 if self.op == "+" else 1) <= self.number <= lines

    def __str__(self) -> str:
        return f"{self.number}-" if self.op == "-" else f"{self.number}{self.op} {self.text}"


def edit_line(line: str) -> EditLine | None:
    """What one line of an edit says, or ``None`` where it is none."""
    found = _LINE.match(line)
    return None if found is None else EditLine(int(found["number"]), found["op"] or found["plus"] or "-", found["new"] or found["more"] or "")


def edited_places(edit: Sequence[str]) -> str:
    """Where the lines of an edit change the text, each place once: ``0+, 4, 5-``."""
    lines = [line for given in edit if (line := edit_line(given)) is not None]
    return ", ".join(dict.fromkeys(f"{line.number}{line.op.strip('|')}" for line in lines))


def apply_edit(text: str, edit: Sequence[str]) -> str:
    """The text after an edit. Raises :class:`UsageError` ``usage-edit`` for a line that is none of an edit, or a number that no line of the text has."""
    lines = text.splitlines()
    placed: dict[int, list[str]] = {}
    behind: dict[int, list[str]] = {}
    for given in edit:
        line = edit_line(given)
        if line is None:
            raise UsageError(
                "usage-edit", f"{given[:60]!r} is no line of an edit", hint='"4| text" stands for line 4, "4+ text" comes in behind it, "4-" takes it out'
            )
        if not line.fits(len(lines)):
            raise UsageError("usage-edit", f"the program has lines 1 to {len(lines)}, the edit names line {line.number}")
        stands = (behind if line.op == "+" else placed).setdefault(line.number, [])
        if line.op != "-":
            stands.append(line.text)
    made = list(behind.get(0, ()))
    for number, own in enumerate(lines, 1):
        made += [*placed.get(number, [own]), *behind.get(number, ())]
    return "".join(f"{line}\n" for line in made)


def edit_between(parent: str, child: str) -> list[str]:
    """The lines of an edit that makes ``child`` of ``parent``, in the order of their numbers. Unequal lines are matched by likeness, so that a changed line keeps
    its number and only the others come in or go."""
    old, new = parent.splitlines(), child.splitlines()
    made: list[EditLine] = []
    for tag, i1, i2, j1, j2 in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if tag == "equal":
            continue
        partner = {j: i for i, j in _matched(old[i1:i2], new[j1:j2])}
        made += [EditLine(i1 + i + 1, "-", "") for i in set(range(i2 - i1)).difference(partner.values())]
        number = i1
        for j, text in enumerate(new[j1:j2]):
            if j in partner:
                number = i1 + partner[j] + 1
            made.append(EditLine(number, "|" if j in partner else "+", text))
    return [str(line) for line in sorted(made, key=lambda line: line.number)]


def _matched(old: Sequence[str], new: Sequence[str]) -> list[tuple[int, int]]:
    """All lines of the shorter side, each with one of the other, in order, as like as can be (Ratcliff and Obershelp's likeness, as :mod:`difflib` has it)."""
    few, many = len(old), len(new)
    if few == many or few * many > _COMPARED:
        return [(n, n) for n in range(min(few, many))]
    if few > many:
        return [(i, j) for j, i in _matched(new, old)]
    best: list[tuple[float, tuple[int, ...]]] = [(0.0, ())] * (many + 1)  # of the first lines of ``old``, with the first of ``new``
    for i in range(few):
        row: list[tuple[float, tuple[int, ...]]] = [(-1.0, ())] * (many + 1)
        for j in range(i, many):
            like = SequenceMatcher(None, old[i], new[j], autojunk=False).ratio()
            with_it = (best[j][0] + like, (*best[j][1], j))
            row[j + 1] = with_it if row[j][0] < with_it[0] else row[j]
        best = row
    return list(enumerate(best[many][1]))
