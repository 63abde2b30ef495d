"""How far indices reach: intervals of terms over loop variables, narrowed by the conditions of ``if_then_else`` around them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias

from steptp.ir.published.tree import Access, Binary, Call, Name, Number, Term, Unary, children

__all__ = ["Interval", "Guard", "Linear", "Table", "linear", "interval", "accesses", "same_term"]

Interval: TypeAlias = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Table:
    """What is known of an integer tensor's values: their bounds, and the one term over index variables that defines them all."""

    bounds: Interval
    formals: tuple[str, ...] = ()
    value: Term | None = None


@dataclass(frozen=True, slots=True)
class Linear:
    """``sum of coefficient * variable + base``; ``parts`` sorted, without zeros."""

    parts: tuple[tuple[str, int], ...]
    base: int


Guard: TypeAlias = Linear
"""A linear form that is at most 0."""


def linear(term: Term) -> Linear | None:
    """The linear form of an integer term, or ``None``."""
    if isinstance(term, Number):
        return Linear((), term.value) if isinstance(term.value, int) else None
    if isinstance(term, Name):
        return Linear(((term.name, 1),), 0)
    if isinstance(term, Unary):
        inner = linear(term.arg)
        return None if inner is None else _scaled(inner, -1)
    if not isinstance(term, Binary) or term.op not in ("+", "-", "*"):
        return None
    left, right = linear(term.left), linear(term.right)
    if left is None or right is None:
        return None
    if term.op == "*":
        if left.parts and right.parts:
            return None
        return _scaled(left, right.base) if left.parts else _scaled(right, left.base)
    return _sum(left, right if term.op == "+" else _scaled(right, -1))


def _scaled(form: Linear, by: int) -> Linear:
    return Linear(tuple((v, c * by) for v, c in form.parts if c * by), form.base * by)


def _sum(a: Linear, b: Linear) -> Linear:
    total = dict(a.parts)
    for v, c in b.parts:
        total[v] = total.get(v, 0) + c
    return Linear(tuple(sorted((v, c) for v, c in total.items() if c)), a.base + b.base)


def guards_of(cond: Term, holds: bool) -> tuple[Guard, ...]:
    """What a condition says of loop variables where it holds (or does not); what is not linear says nothing."""
    if not isinstance(cond, Binary):
        return ()
    if cond.op == "&":
        return (*guards_of(cond.left, True), *guards_of(cond.right, True)) if holds else ()
    op = cond.op if holds else {"<": ">=", "<=": ">", ">": "<=", ">=": "<", "==": "!=", "!=": "=="}.get(cond.op, "")
    left, right = linear(cond.left), linear(cond.right)
    if left is None or right is None:
        return ()
    below, above = _sum(left, _scaled(right, -1)), _sum(right, _scaled(left, -1))
    one = Linear((), 1)
    table: dict[str, tuple[Guard, ...]] = {
        "<": (_sum(below, one),), "<=": (below,), ">": (_sum(above, one),), ">=": (above,), "==": (below, above),
    }  # fmt: skip
    return table.get(op, ())


def interval(term: Term, ranges: Mapping[str, Interval], guards: tuple[Guard, ...], tables: Mapping[str, Table]) -> Interval | None:
    """Least and greatest value of an integer term; ``None`` where unknown. ``tables`` tell of integer tensors."""
    form = linear(term)
    if form is not None:
        return _narrowed(form, _refined(ranges, guards), guards)
    if isinstance(term, Access):
        table = tables.get(term.name)
        if table is None or table.value is None:
            return None if table is None else table.bounds
        return interval(_with(table.value, dict(zip(table.formals, term.indices, strict=True))), ranges, guards, tables)
    if isinstance(term, Call) and term.name == "if_then_else":
        cond, yes, no = term.args
        a = interval(yes, ranges, (*guards, *guards_of(cond, True)), tables)
        b = interval(no, ranges, (*guards, *guards_of(cond, False)), tables)
        return None if a is None or b is None else (min(a[0], b[0]), max(a[1], b[1]))
    parts = [interval(inner, ranges, guards, tables) for inner in children(term)]
    known = [p for p in parts if p is not None]
    if len(known) < len(parts) or not known:
        return None
    if isinstance(term, Call):
        return _called(term.name, known)
    if isinstance(term, Unary):
        return -known[0][1], -known[0][0]
    assert isinstance(term, Binary)
    return _combined(term.op, known[0], known[1])


def _with(term: Term, by: Mapping[str, Term]) -> Term:
    """``term`` with index variables replaced."""
    if isinstance(term, Name):
        return by.get(term.name, term)
    if isinstance(term, Unary):
        return replace(term, arg=_with(term.arg, by))
    if isinstance(term, Binary):
        return replace(term, left=_with(term.left, by), right=_with(term.right, by))
    if isinstance(term, Access):
        return replace(term, indices=tuple(_with(i, by) for i in term.indices))
    return replace(term, args=tuple(_with(a, by) for a in term.args)) if isinstance(term, Call) else term


def _called(name: str, parts: list[Interval]) -> Interval | None:
    if name == "max":
        return max(p[0] for p in parts), max(p[1] for p in parts)
    if name == "min":
        return min(p[0] for p in parts), min(p[1] for p in parts)
    if name == "abs":
        low, high = parts[0]
        return (0 if low <= 0 <= high else min(abs(low), abs(high))), max(abs(low), abs(high))
    return None


def _combined(op: str, a: Interval, b: Interval) -> Interval | None:
    if op == "+":
        return a[0] + b[0], a[1] + b[1]
    if op == "-":
        return a[0] - b[1], a[1] - b[0]
    if op == "*":
        corners = [x * y for x in a for y in b]
        return min(corners), max(corners)
    if op == "//" and b[0] == b[1] > 0:
        return a[0] // b[0], a[1] // b[0]
    if op == "%" and b[0] == b[1] > 0:
        return a if a[0] >= 0 and a[1] < b[0] else (0, b[0] - 1)
    return None


def _refined(ranges: Mapping[str, Interval], guards: tuple[Guard, ...]) -> dict[str, Interval]:
    out = dict(ranges)
    for guard in guards:
        if len(guard.parts) == 1 and abs(guard.parts[0][1]) == 1:
            var, coef = guard.parts[0]
            low, high = out.get(var, (0, 0))
            out[var] = (low, min(high, -guard.base)) if coef > 0 else (max(low, guard.base), high)
    return out


def _narrowed(form: Linear, ranges: Mapping[str, Interval], guards: tuple[Guard, ...]) -> Interval:
    low = high = form.base
    for var, coef in form.parts:
        a, b = ranges.get(var, (0, 0))
        low += min(coef * a, coef * b)
        high += max(coef * a, coef * b)
    for guard in guards:
        if guard.parts == form.parts:
            high = min(high, form.base - guard.base)
        elif guard.parts == _scaled(form, -1).parts:
            low = max(low, form.base + guard.base)
    return low, high


def accesses(term: Term, guards: tuple[Guard, ...] = ()) -> Iterator[tuple[Access, tuple[Guard, ...]]]:
    """Every access in ``term`` with what surely holds where it is evaluated (only the chosen side of ``if_then_else`` is)."""
    if isinstance(term, Access):
        yield term, guards
    if isinstance(term, Call) and term.name == "if_then_else":
        cond, yes, no = term.args
        yield from accesses(cond, guards)
        yield from accesses(yes, (*guards, *guards_of(cond, True)))
        yield from accesses(no, (*guards, *guards_of(cond, False)))
        return
    for inner in children(term):
        yield from accesses(inner, guards)


def same_term(a: Term, b: Term) -> bool:
    """Equal up to their places in the text."""
    if type(a) is not type(b) or len(children(a)) != len(children(b)):
        return False
    if not all(same_term(x, y) for x, y in zip(children(a), children(b), strict=True)):
        return False
    return all(getattr(a, part, None) == getattr(b, part, None) for part in ("op", "name", "value", "dtype", "scope"))
