"""Places of statements and declarations, in the text a program was read from or in its canonical text."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from steptp.errors import Place
from steptp.ir.nodes import Path, Program
from steptp.ir.printer import print_program, program_lines

__all__ = ["SourceMap"]


@dataclass(frozen=True, slots=True)
class SourceMap:
    """``spans`` and ``names`` hold (character offset, length) of statements by path and of declarations by name."""

    source: str
    filename: str
    spans: Mapping[Path | str, tuple[int, int]]
    names: Mapping[Path | str, tuple[int, int]]

    @staticmethod
    def of(program: Program) -> SourceMap:
        """The map kept by the parser; for a built program, one over its canonical text."""
        kept = program._cache.get("source")
        return kept if isinstance(kept, SourceMap) else _of_canonical(program)

    def kept_for(self, program: Program) -> Program:
        """``program``, which has its statements at the same paths, with this map as its own."""
        program._cache["source"] = self
        return program

    def place(self, path: Path) -> Place:
        """The place of the statement at ``path``; of the whole text for ``()`` or an unknown path."""
        return self._at(self.spans.get(path))

    def name(self, name: str) -> Place:
        """The place of the declaration of a size or buffer; of the whole text for an unknown name."""
        return self._at(self.names.get(name))

    def _at(self, span: tuple[int, int] | None) -> Place:
        offset, length = span or (len(self.source) - len(self.source.lstrip()), 1)
        line = self.source.count("\n", 0, offset) + 1
        return Place(self.source, line, offset - (self.source.rfind("\n", 0, offset) + 1) + 1, max(length, 1), self.filename)


def _of_canonical(program: Program) -> SourceMap:
    lines, at = program_lines(program)
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line) + 1)
    spans: dict[Path | str, tuple[int, int]] = {}
    for path, number in at.items():
        text = lines[number - 1]
        indent = len(text) - len(text.lstrip(" "))
        spans[path] = (starts[number - 1] + indent, len(text) - indent)
    return SourceMap(print_program(program), "<canonical>", spans, {})
