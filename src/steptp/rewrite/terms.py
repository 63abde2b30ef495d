"""Sums and products as algebra reads them: terms of a sum, factors of a product, each with its place and sign."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from steptp.ir.nodes import Const, Expr, Op, const, op
from steptp.ir.types import DType
from steptp.rewrite.exprs import Place

__all__ = [
    "Factor", "Term", "at_place", "divided", "factors", "fraction", "is_literal", "one", "put_at", "spine", "spine_of", "spine_place", "times", "without", "built",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Term:
    """A term of a sum: -1 or 1, its place below the sum, and the expression."""

    sign: int
    place: Place
    expr: Expr


@dataclass(frozen=True, slots=True)
class Factor:
    """A factor (``power`` 1) or divisor (-1) of a product, with its place below the product."""

    power: int
    place: Place
    expr: Expr


def is_literal(expr: Expr, value: float) -> bool:
    """Whether the expression is this number (-0.0 is 0 too)."""
    return isinstance(expr, Const) and not isinstance(expr.value, bool) and expr.value == value


def one(dtype: DType) -> Const:
    return const(1.0, dtype)


def times(left: Expr, right: Expr) -> Expr:
    """``left*right``; a literal 1 disappears."""
    if is_literal(left, 1):
        return right
    return left if is_literal(right, 1) else op("*", left, right)


def divided(top: Expr, bottom: Expr) -> Expr:
    """``top/bottom``; a divisor 1 disappears."""
    return top if is_literal(bottom, 1) else op("/", top, bottom)


def fraction(expr: Expr) -> tuple[Expr, Expr] | None:
    """``(a, b)`` of ``a/b``."""
    return (expr.args[0], expr.args[1]) if isinstance(expr, Op) and expr.name == "/" else None


def at_place(expr: Expr, place: Sequence[int]) -> Expr | None:
    """What stands at a place below an expression, through operators only."""
    for step in place:
        if not isinstance(expr, Op) or step >= len(expr.args):
            return None
        expr = expr.args[step]
    return expr


def put_at(expr: Expr, place: Sequence[int], new: Expr) -> Expr:
    """The expression with another one at a place below it."""
    if not place:
        return new
    assert isinstance(expr, Op)
    return Op(expr.name, tuple(put_at(a, place[1:], new) if n == place[0] else a for n, a in enumerate(expr.args)), expr.type)


def factors(expr: Expr, place: Place = (), power: int = 1) -> Iterator[Factor]:
    """Everything that multiplies or divides the expression, the largest first: itself, and what stands below ``*`` and ``/``."""
    yield Factor(power, place, expr)
    if isinstance(expr, Op) and expr.name in ("*", "/"):
        yield from factors(expr.args[0], (*place, 0), power)
        yield from factors(expr.args[1], (*place, 1), -power if expr.name == "/" else power)


def without(expr: Expr, place: Sequence[int]) -> Expr:
    """The product without the factor (or divisor) at ``place``; a 1 stands where nothing is left.

    A literal 0 is 0 times anything: it stays.
    """
    if not place:
        return expr if is_literal(expr, 0) else one(expr.dtype)
    assert isinstance(expr, Op)
    left, right = expr.args
    if place[0] == 0:
        rest = without(left, place[1:])
        return divided(rest, right) if expr.name == "/" else times(rest, right)
    rest = without(right, place[1:])
    return divided(left, rest) if expr.name == "/" else times(left, rest)


def spine(expr: Expr) -> list[Term]:
    """The terms of a sum, along its left operands: ``a-b+(c+d)`` has three."""
    found: list[Term] = []
    place: Place = ()
    while isinstance(expr, Op) and expr.name in ("+", "-"):
        found.append(Term(1 if expr.name == "+" else -1, (*place, 1), expr.args[1]))
        expr, place = expr.args[0], (*place, 0)
    found.append(Term(1, place, expr))
    return found[::-1]


def built(terms: Sequence[tuple[int, Expr]]) -> Expr:
    """The sum of signed terms, from the left. The first one is not subtracted, unless there is no other sign: then it is negated."""
    sign, total = terms[0]
    if sign < 0:
        total = op("neg", total)
    for sign, term in terms[1:]:
        total = op("+" if sign > 0 else "-", total, term)
    return total


def spine_of(expr: Expr, name: str) -> list[Expr]:
    """The operands of a chain of one operator, along its left operands: ``x*y*z`` has three."""
    found: list[Expr] = []
    while isinstance(expr, Op) and expr.name == name:
        found.append(expr.args[1])
        expr = expr.args[0]
    return [*found, expr][::-1]


def spine_place(count: int, n: int) -> Place:
    """Where operand ``n`` of a chain of ``count`` stands."""
    return (0,) * (count - 1) if n == 0 else (*(0,) * (count - 1 - n), 1)
