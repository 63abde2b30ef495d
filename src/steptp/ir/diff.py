"""A readable difference of two programs: aligned lines of their canonical texts, with marks on the words that changed."""

from __future__ import annotations

import re
from dataclasses import dataclass
from difflib import SequenceMatcher
from enum import Enum

from steptp.ir.nodes import Program
from steptp.ir.printer import print_program

__all__ = ["DiffKind", "DiffLine", "diff_lines", "render_diff"]

_WORD = re.compile(r"[A-Za-z_0-9.]+|\s+|.")
_ALIKE = 0.4
_MOST_PAIRS = 600  # likeness is compared only for runs with at most this many pairs of lines


class DiffKind(str, Enum):
    """What happened to a line. The value is the mark that :func:`render_diff` prints."""

    SAME = " "
    REMOVED = "-"
    ADDED = "+"


@dataclass(frozen=True, slots=True)
class DiffLine:
    """One line. ``old`` and ``new`` are its 1-based numbers in the two texts (``None`` where it is absent).

    ``marks`` are half-open character ranges of ``text`` that differ from the line it was paired with; a line without a partner has none.
    """

    kind: DiffKind
    text: str
    old: int | None = None
    new: int | None = None
    marks: tuple[tuple[int, int], ...] = ()


def diff_lines(a: Program, b: Program, context: int | None = None) -> tuple[DiffLine, ...]:
    """The lines of ``a`` and ``b`` in one list: common lines once, changed runs as removed lines followed by added ones.

    ``context`` keeps only that many unchanged lines around each change (all by default).
    """
    old, new = print_program(a).splitlines(), print_program(b).splitlines()
    out: list[DiffLine] = []
    for tag, i, j, k, m in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if tag == "equal":
            out.extend(DiffLine(DiffKind.SAME, old[i + n], i + n + 1, k + n + 1) for n in range(j - i))
            continue
        marks_old, marks_new = _pair(old[i:j], new[k:m])
        out.extend(DiffLine(DiffKind.REMOVED, old[i + n], i + n + 1, None, marks_old.get(n, ())) for n in range(j - i))
        out.extend(DiffLine(DiffKind.ADDED, new[k + n], None, k + n + 1, marks_new.get(n, ())) for n in range(m - k))
    return tuple(out) if context is None else _near(out, context)


def render_diff(a: Program, b: Program, context: int | None = None) -> str:
    """Plain text: each line with its mark, and ``^`` under the words that changed; runs left out by ``context`` show as ``...``."""
    out: list[str] = []
    last: DiffLine | None = None
    for line in diff_lines(a, b, context):
        if context is not None and line.kind is DiffKind.SAME and _gap(last, line):
            out.append("  ...")
        out.append(f"{line.kind.value} {line.text}")
        if line.marks:
            under = [" "] * len(line.text)
            for start, end in line.marks:
                under[start:end] = "^" * (end - start)
            out.append("  " + "".join(under).rstrip())
        last = line
    return "\n".join(out)


def _gap(last: DiffLine | None, line: DiffLine) -> bool:
    if last is None:
        return line.old != 1
    return last.kind is DiffKind.SAME and last.old is not None and line.old != last.old + 1


def _near(lines: list[DiffLine], context: int) -> tuple[DiffLine, ...]:
    keep: set[int] = set()
    for position, line in enumerate(lines):
        if line.kind is not DiffKind.SAME:
            keep.update(range(position - context, position + context + 1))
    return tuple(line for position, line in enumerate(lines) if position in keep)


_Marks = tuple[tuple[int, int], ...]


def _pair(old: list[str], new: list[str]) -> tuple[dict[int, _Marks], dict[int, _Marks]]:
    """Match lines of one changed run in order, by likeness of words, and mark what differs within each pair."""
    words_old, words_new = [_WORD.findall(t) for t in old], [_WORD.findall(t) for t in new]
    marks_old: dict[int, _Marks] = {}
    marks_new: dict[int, _Marks] = {}
    start = 0
    is_long = len(old) * len(new) > _MOST_PAIRS
    for i, left in enumerate(words_old):
        best, score = -1, _ALIKE
        for k in range(start, min(start + 1, len(words_new)) if is_long else len(words_new)):
            ratio = SequenceMatcher(None, left, words_new[k], autojunk=False).ratio()
            if ratio > score:
                best, score = k, ratio
        if best >= 0:
            marks_old[i], marks_new[best] = _marks(left, words_new[best])
            start = best + 1
    return marks_old, marks_new


def _marks(left: list[str], right: list[str]) -> tuple[_Marks, _Marks]:
    old: list[tuple[int, int]] = []
    new: list[tuple[int, int]] = []
    for tag, i, j, k, m in SequenceMatcher(None, left, right, autojunk=False).get_opcodes():
        if tag != "equal":
            _add(old, sum(map(len, left[:i])), sum(map(len, left[i:j])))
            _add(new, sum(map(len, right[:k])), sum(map(len, right[k:m])))
    return tuple(old), tuple(new)


def _add(marks: list[tuple[int, int]], start: int, length: int) -> None:
    if length:
        marks.append((start, start + length))
