"""Where an answer that is being written leaves what a program may be.

A grammar (:mod:`steptp.policy.grammars`) knows no names, ranks or dtypes, and not which lines are left as they were. Here the change so far is carried out and the
program read: what is wrong in a finished line stays wrong, for lines are written from top to bottom; what is wrong below it, or missing, may still be mended. Whether
the program computes the same is not asked.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from steptp.errors import LeirError
from steptp.ir import parse, program_hash
from steptp.ir.edits import EditLine, edit_line
from steptp.ir.parser import parse_unchecked
from steptp.policy.prompting import Question

__all__ = ["Fault", "Faults", "faults_of"]

_EDIT = re.compile(r"^Edit:[ \t]*\n", re.MULTILINE)
_PROGRAM = re.compile(r"^Next program:[ \t]*\n", re.MULTILINE)
_DECLARING = frozenset({"size", "in", "out", "tmp", "where"})
_MENDED_BELOW = frozenset({"syntax-extent", "syntax-indent", "syntax-body"})  # by lines to come


@dataclass(frozen=True, slots=True)
class Fault:
    """Characters ``start`` to ``end`` of an answer, one of which must be another; one behind its end: it must go on."""

    start: int
    end: int
    message: str


Faults = Callable[[str, bool], "Fault | None"]
"""The first fault of an answer so far; ``True``: it is meant to be whole."""


def faults_of(question: Question) -> Faults | None:
    """Who finds the faults of answers to a question; ``None`` for *action*, where the grammar says all."""
    if question.format == "action":
        return None
    mark = (_EDIT if question.format == "edit" else _PROGRAM) if question.reasons else None
    return partial(_fault, _edit_fault if question.format == "edit" else _rewrite_fault, question.program, mark)


def _fault(find: Callable[[str, _Said, bool], Fault | None], parent: str, mark: re.Pattern[str] | None, text: str, whole: bool) -> Fault | None:
    begin = 0
    if mark is not None:
        found = list(mark.finditer(text))
        if not found:
            return Fault(len(text), len(text), "the answer has no program") if whole else None
        begin = found[-1].end()
    said = _Said.of(text, begin, whole)
    if not said.lines:
        return Fault(begin, begin, "nothing is changed") if whole else None
    return find(parent, said, whole)


@dataclass(frozen=True, slots=True)
class _Said:
    """The finished lines of an answer; ``starts``: where each begins; ``end``: of the answer."""

    lines: tuple[str, ...]
    starts: tuple[int, ...]
    end: int

    @classmethod
    def of(cls, text: str, begin: int, whole: bool) -> _Said:
        parts = text[begin:].split("\n")
        if not whole or not parts[-1]:
            parts.pop()
        starts = []
        for part in parts:
            starts.append(begin)
            begin += len(part) + 1
        return cls(tuple(parts), tuple(starts), len(text))

    def line(self, n: int, message: str) -> Fault:
        return Fault(self.starts[n], self.starts[n] + len(self.lines[n]), message)

    def begin(self, n: int, message: str) -> Fault:
        """At what a line begins with, or that it begins at all."""
        return Fault(self.starts[n] - (n > 0), self.starts[n] + 1, message)

    def within(self, n: int, offset: int, length: int, message: str) -> Fault:
        """At ``length`` characters from ``offset`` in a line, as far as it has them; its end, if it has none."""
        size = len(self.lines[n])
        start = min(offset, size)
        return Fault(self.starts[n] + start, self.starts[n] + min(start + max(length, 1), size), message)


def _rewrite_fault(parent: str, said: _Said, whole: bool) -> Fault | None:
    error = _error("".join(f"{line}\n" for line in said.lines), whole, parent)
    if error is None:
        return None
    place = error.place
    if place is None or not 0 < place.line <= len(said.lines):
        return Fault(said.starts[0], said.end, error.message) if whole else None
    if not whole and (error.code in _MENDED_BELOW or (place.line == len(said.lines) and place.column > len(said.lines[-1]))):
        return None
    return said.within(place.line - 1, place.column - 1, place.length, error.message)


def _edit_fault(parent: str, said: _Said, whole: bool) -> Fault | None:
    own = parent.splitlines()
    edits: list[EditLine] = []
    for n, line in enumerate(said.lines):
        read = edit_line(line)
        if read is None:
            return said.line(n, "a line of an edit begins with a number and |, + or -")
        number = len(str(read.number))
        if not read.fits(len(own)):
            return said.begin(n, f"the program has lines 1 to {len(own)}")
        if (edits and (read.number, read.op == "+") < (edits[-1].number, edits[-1].op == "+")) or (
            edits and read.op != "+" and read.number == edits[-1].number
        ):
            return said.begin(n, "lines are changed once, from top to bottom")
        if read.op == "|" and read.text == own[read.number - 1]:
            return said.within(n, number + 1, len(line), "the line is as it was")
        edits.append(read)
    text, origins = _carried_out(own, edits)
    error = _error(text, whole, parent)
    if error is None:
        return None
    place = error.place
    origin = origins[place.line - 1] if place is not None and 0 < place.line <= len(origins) else None
    if place is None or origin is None or (origin < 0 and own[-origin - 1].split()[0] in _DECLARING):  # what is wrong is how it is used
        return Fault(said.starts[0], said.end, error.message) if whole else None
    if origin >= 0:  # a line of the answer
        if error.code == "syntax-body" and (whole or _stands_beside(text, place.line, origins)):  # this line or the next is at fault
            next_end = said.starts[origin + 1] + len(said.lines[origin + 1]) if origin + 1 < len(edits) else said.end + 1
            return Fault(said.starts[origin], next_end, error.message)
        if not whole and error.code in _MENDED_BELOW:
            return None
        return said.within(origin, len(said.lines[origin]) - len(edits[origin].text) + place.column - 1, place.length, error.message)
    return _unchanged(-origin, edits, said, whole, error.message)


def _stands_beside(text: str, line: int, origins: list[int]) -> bool:
    """Whether what comes after a line of the program is written, and not inside."""
    first, after = text.splitlines()[line - 1 : line + 1] if line < len(origins) else ("", " ")
    return line < len(origins) and origins[line] >= 0 and len(after) - len(after.lstrip()) <= len(first) - len(first.lstrip())


def _unchanged(number: int, edits: list[EditLine], said: _Said, whole: bool, message: str) -> Fault | None:
    """A fault in a line that the answer leaves as it was: it must come to that line before it comes to a later one."""
    at = bisect_left(edits, number, key=lambda line: line.number)
    if at == len(edits):
        return Fault(said.end, said.end, message) if whole else None
    digits = len(str(edits[at].number))
    return said.within(at, digits, 1, message) if edits[at].number == number else said.within(at, 0, digits, message)


def _carried_out(own: list[str], edits: list[EditLine]) -> tuple[str, list[int]]:
    """The text after an edit, and of each of its lines where it is from: a line of the edit from 0, or minus the number of a line of the program."""
    replaced: dict[int, int] = {}
    behind: dict[int, list[int]] = {}
    for n, line in enumerate(edits):
        if line.op == "+":
            behind.setdefault(line.number, []).append(n)
        else:
            replaced[line.number] = n
    origins = list(behind.get(0, ()))
    for number in range(1, len(own) + 1):
        by = replaced.get(number)
        if by is None or edits[by].op == "|":
            origins.append(-number if by is None else by)
        origins += behind.get(number, ())
    return "".join(f"{own[-n - 1] if n < 0 else edits[n].text}\n" for n in origins), origins


def _error(text: str, whole: bool, parent: str) -> LeirError | None:
    """What is wrong with a program; a whole one must also be another than its parent."""
    try:
        if not whole:
            parse_unchecked(text)
        elif program_hash(parse(text)) == program_hash(parse(parent)):
            return LeirError("same", "the program is as it was")
    except LeirError as err:
        return err
    return None
