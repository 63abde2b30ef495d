"""Places inside a statement: expression paths such as ``1.0.2``.

The first number picks one of the statement's own expressions in the order of :func:`steptp.ir.walk.stmt_exprs` (a store's
indices, then its value; a guard's condition; a loop's extent). Every further number picks an operand: an
operator's argument, a read's index, or the operand of a cast (0).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from steptp.ir.nodes import Cast, Expr, If, Load, Op, Stmt, Store
from steptp.ir.walk import stmt_exprs

__all__ = ["children", "with_children", "expr_at", "replace_expr_at", "exprs_of", "value_place", "parse_place", "place_text", "place_param"]

Place = tuple[int, ...]


def children(expr: Expr) -> tuple[Expr, ...]:
    """Direct operands: an operator's arguments, a read's indices, a cast's operand."""
    if isinstance(expr, Op):
        return expr.args
    if isinstance(expr, Load):
        return expr.indices
    return (expr.arg,) if isinstance(expr, Cast) else ()


def with_children(expr: Expr, new: tuple[Expr, ...]) -> Expr:
    """The same node over other operands (of the same dtypes)."""
    if isinstance(expr, Op):
        return Op(expr.name, new, expr.type)
    if isinstance(expr, Load):
        return Load(expr.buffer, new, expr.type)
    return Cast(expr.type, new[0]) if isinstance(expr, Cast) else expr


def place_text(place: Place) -> str:
    """``(1, 0, 2)`` → ``"1.0.2"``."""
    return ".".join(map(str, place))


def place_param(place: Place) -> int | str:
    """The place as a site parameter reads back: a lone number is an integer."""
    return place[0] if len(place) == 1 else place_text(place)


def parse_place(text: object) -> Place | None:
    """``"1.0.2"`` (or the number ``1``, which a site id reads back as an integer) → ``(1, 0, 2)``; ``None`` when it is not a place."""
    parts = str(text).split(".")
    return tuple(map(int, parts)) if all(p.isdigit() for p in parts) else None


def value_place(stmt: Store) -> Place:
    """The place of a store's value."""
    return (len(stmt.indices),)


def expr_at(stmt: Stmt, place: Place) -> Expr | None:
    """The expression at ``place`` in the statement, or ``None`` when there is none."""
    here = stmt_exprs(stmt)
    found: Expr | None = None
    for step in place:
        if not 0 <= step < len(here):
            return None
        found = here[step]
        here = children(found)
    return found


def replace_expr_at(stmt: Stmt, place: Place, new: Expr) -> Stmt:
    """The statement with the expression at ``place`` replaced; the place must exist."""

    def put(expr: Expr, rest: Place) -> Expr:
        if not rest:
            return new
        below = children(expr)
        return with_children(expr, tuple(put(c, rest[1:]) if n == rest[0] else c for n, c in enumerate(below)))

    whole = tuple(put(e, place[1:]) if n == place[0] else e for n, e in enumerate(stmt_exprs(stmt)))
    if isinstance(stmt, Store):
        return replace(stmt, indices=whole[:-1], value=whole[-1])
    return If(whole[0], stmt.body) if isinstance(stmt, If) else replace(stmt, extent=whole[0])


def exprs_of(stmt: Stmt) -> Iterator[tuple[Place, Expr]]:
    """Every expression in the statement itself (not in its body) with its place, top first."""
    pending: list[tuple[Place, Expr]] = []
    pending += [((n,), whole) for n, whole in enumerate(stmt_exprs(stmt))][::-1]
    while pending:
        here = pending.pop()
        yield here
        if below := children(here[1]):
            pending += [((*here[0], n), child) for n, child in enumerate(below)][::-1]
