"""Places in a program that a mutation can change: expressions of statements, by statement path and position inside the expression."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

from steptp.ir.nodes import Buffer, Expr, If, Load, Loop, Path, Program, Stmt, Store, cast
from steptp.ir.types import DType
from steptp.ir.walk import enclosing, get, map_expr, map_stmt_exprs, replace_at, visit
from steptp.rewrite.context import path_text
from steptp.rewrite.exprs import Place, children, place_text, replace_expr_at, value_place

__all__ = ["ExprPlace", "expr_places", "value_places", "index_places", "chain_of", "replace_stmt", "map_buffer", "loops_around", "retyped"]


@dataclass(frozen=True, slots=True)
class ExprPlace:
    """One sub-expression. ``role``: ``value``, ``index``, ``cond`` or ``extent`` of the statement; ``place`` as in :mod:`steptp.rewrite.exprs`;
    ``owner`` is the access whose index it belongs to, if any; ``parent`` the expression around it."""

    program: Program
    path: Path
    role: str
    place: Place
    expr: Expr
    owner: str = ""
    parent: Expr | None = None

    @property
    def text(self) -> str:
        inner = place_text(self.inside)
        position = str(self.place[0]) if self.role == "index" else ""
        return f"{path_text(self.path)}/{self.role}{position}{'.' + inner if inner else ''}"

    @property
    def inside(self) -> Place:
        """Where it stands within the whole index, value, condition or extent; empty for the whole."""
        return self.place[1:]

    def put(self, new: Expr) -> Program:
        """The program with this sub-expression replaced. Types are not checked here: invalid programs are left out later."""
        return replace_stmt(self.program, self.path, lambda stmt: replace_expr_at(stmt, self.place, new))


def _below(place: ExprPlace) -> Iterator[ExprPlace]:
    yield place
    for n, child in enumerate(children(place.expr)):
        owner = place.expr.buffer if isinstance(place.expr, Load) else place.owner
        yield from _below(replace(place, place=(*place.place, n), expr=child, owner=owner, parent=place.expr))


def expr_places(program: Program) -> Iterator[ExprPlace]:
    """Every sub-expression of every statement, in serial order, outer before inner."""
    for met in visit(program):
        stmt = met.stmt
        if isinstance(stmt, Store):
            for n, index in enumerate(stmt.indices):
                yield from _below(ExprPlace(program, met.path, "index", (n,), index, stmt.buffer))
            yield from _below(ExprPlace(program, met.path, "value", value_place(stmt), stmt.value))
        elif isinstance(stmt, If):
            yield from _below(ExprPlace(program, met.path, "cond", (0,), stmt.cond))
        else:
            yield from _below(ExprPlace(program, met.path, "extent", (0,), stmt.extent))


def value_places(program: Program) -> Iterator[ExprPlace]:
    """Sub-expressions of stored values that are values themselves, not indices."""
    return (p for p in expr_places(program) if p.role == "value" and not p.owner)


def index_places(program: Program) -> Iterator[ExprPlace]:
    """Whole indices of accesses, of the store's target and of reads."""
    for place in expr_places(program):
        if (place.role == "index" and not place.inside) or isinstance(place.parent, Load):
            yield place


def chain_of(stmt: Stmt) -> tuple[list[Loop | If], Store] | None:
    """The loops and guards of a perfect nest and its one store."""
    owners: list[Loop | If] = []
    while not isinstance(stmt, Store):
        if len(stmt.body) != 1 or (isinstance(stmt, Loop) and stmt.tmps):
            return None
        owners.append(stmt)
        stmt = stmt.body[0]
    return owners, stmt


def replace_stmt(program: Program, path: Path, change: Callable[[Stmt], Stmt]) -> Program:
    """The program with the statement at ``path`` changed."""
    return replace_at(program, path, change(get(program, path)))


def map_buffer(program: Program, name: str, change: Callable[[Buffer], Buffer | None]) -> Program:
    """The program with the declaration of a temporary or output changed (``None`` removes it)."""

    def among(found: tuple[Buffer, ...]) -> tuple[Buffer, ...]:
        made = [change(b) if b.name == name else b for b in found]
        return tuple(b for b in made if b is not None)

    def inside(stmt: Stmt) -> Stmt:
        if isinstance(stmt, Store):
            return stmt
        body = tuple(inside(s) for s in stmt.body)
        return replace(stmt, body=body) if isinstance(stmt, If) else replace(stmt, body=body, tmps=among(stmt.tmps))

    return program.with_(body=tuple(inside(s) for s in program.body), tmps=among(program.tmps), outputs=among(program.outputs))


def loops_around(program: Program, path: Path) -> Mapping[str, Loop]:
    """Variables in view at ``path`` with their loops, outermost first."""
    return {owner.var: owner for owner in enclosing(program, path) if isinstance(owner, Loop)}


def retyped(program: Program, name: str, dtype: DType) -> Program:
    """The program with temporary or output ``name`` kept as ``dtype``; values are cast on the way in and back."""

    def in_expr(expr: Expr) -> Expr:
        return map_expr(expr, lambda e: cast(e.type, replace(e, type=dtype)) if isinstance(e, Load) and e.buffer == name else e)

    def in_stmt(stmt: Stmt) -> Stmt:
        if isinstance(stmt, Store):
            made = map_stmt_exprs(stmt, in_expr)
            assert isinstance(made, Store)
            return replace(made, value=cast(dtype, made.value)) if made.buffer == name else made
        body = tuple(map(in_stmt, stmt.body))
        return replace(stmt, cond=in_expr(stmt.cond), body=body) if isinstance(stmt, If) else replace(stmt, body=body)

    return map_buffer(program.with_(body=tuple(map(in_stmt, program.body))), name, lambda b: replace(b, dtype=dtype))
