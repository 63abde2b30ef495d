"""The syntax tree of the published notation. Every node knows its span, ``(offset, length)`` in the source text."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias, Union

from steptp.errors import LeirError, Place

__all__ = ["Span", "Number", "Name", "Access", "Unary", "Binary", "Call", "Term", "Statement", "LoopHead", "Nest", "Text", "walk"]

Span: TypeAlias = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Number:
    """A literal; ``inf`` and ``nan`` are floats."""

    value: int | float
    span: Span


@dataclass(frozen=True, slots=True)
class Name:
    """A loop variable."""

    name: str
    span: Span


@dataclass(frozen=True, slots=True)
class Access:
    """``Name^{dtype,scope}_{indices}``; a scalar has no indices. ``word`` is the span of the name alone."""

    name: str
    dtype: str
    scope: str
    indices: tuple[Term, ...]
    span: Span
    word: Span


@dataclass(frozen=True, slots=True)
class Unary:
    """``-x`` or ``+x``."""

    op: str
    arg: Term
    span: Span


@dataclass(frozen=True, slots=True)
class Binary:
    """Arithmetic, a comparison or ``&``. A chain ``a<=b<c`` is read as ``(a<=b)&(b<c)``."""

    op: str
    left: Term
    right: Term
    span: Span


@dataclass(frozen=True, slots=True)
class Call:
    """A function on its arguments."""

    name: str
    args: tuple[Term, ...]
    span: Span


Term: TypeAlias = Union[Number, Name, Access, Unary, Binary, Call]


@dataclass(frozen=True, slots=True)
class Statement:
    """``target=value;``"""

    target: Access
    value: Term
    span: Span


@dataclass(frozen=True, slots=True)
class LoopHead:
    """``K^{extent}_{var=0}`` with kind ``L``, ``P``, ``V``, ``B`` or ``U``."""

    kind: str
    extent: int
    var: str
    span: Span


@dataclass(frozen=True, slots=True)
class Nest:
    """Loops, outermost first, around a row of statements."""

    loops: tuple[LoopHead, ...]
    statements: tuple[Statement, ...]
    span: Span


@dataclass(frozen=True, slots=True)
class Text:
    """A whole program and the text that it was read from."""

    nests: tuple[Nest, ...]
    source: str
    filename: str

    def place(self, span: Span) -> Place:
        """The line and column of a span."""
        offset, length = span
        line = self.source.count("\n", 0, offset) + 1
        return Place(self.source, line, offset - self.source.rfind("\n", 0, offset), max(length, 1), self.filename)

    def error(self, code: str, message: str, span: Span, hint: str = "") -> LeirError:
        """A :class:`LeirError` at a span."""
        return LeirError(code, message, place=self.place(span), hint=hint)


def walk(term: Term) -> Iterator[Term]:
    """``term`` and everything in it, indices included."""
    yield term
    for inner in children(term):
        yield from walk(inner)


def children(term: Term) -> tuple[Term, ...]:
    """The terms directly inside ``term``."""
    if isinstance(term, Access):
        return term.indices
    if isinstance(term, Unary):
        return (term.arg,)
    if isinstance(term, Binary):
        return (term.left, term.right)
    return term.args if isinstance(term, Call) else ()
