"""Wrong bounds, tails and guards."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from steptp.ir.index import simplify_index
from steptp.ir.nodes import Const, Expr, If, Loop, Op, Program, Size, Var, const, op
from steptp.ir.types import DType
from steptp.ir.walk import get, map_expr, replace_at, replace_body, visit
from steptp.mutate.places import ExprPlace, expr_places, replace_stmt
from steptp.mutate.registry import operator
from steptp.rewrite.context import path_text

__all__: list[str] = []

Made = Iterator[tuple[str, Program]]
_STRICT = {"<": "<=", "<=": "<", ">": ">=", ">=": ">"}


def _loops(program: Program) -> Iterator[tuple[str, tuple[int, ...], Loop]]:
    for met in visit(program):
        if isinstance(met.stmt, Loop):
            yield path_text(met.path), met.path, met.stmt


def _extent(program: Program, path: tuple[int, ...], extent: Expr) -> Program:
    return replace_stmt(program, path, lambda s: replace(s, extent=extent))  # type: ignore[arg-type]


@operator("bound_short", "bound", "a loop that stops one iteration early")
def bound_short(program: Program) -> Made:
    for text, path, loop in _loops(program):
        yield text, _extent(program, path, loop.extent - 1)


@operator("bound_long", "bound", "a loop that runs one iteration too many")
def bound_long(program: Program) -> Made:
    for text, path, loop in _loops(program):
        yield text, _extent(program, path, loop.extent + 1)


@operator("bound_size", "bound", "the extent of another loop")
def bound_size(program: Program) -> Made:
    names = [s.name for s in program.sizes]
    for text, path, loop in _loops(program):
        for name in names:
            if loop.extent != Size(name):
                yield f"{text}:{name}", _extent(program, path, Size(name))


@operator("bound_start", "bound", "the first iteration left out")
def bound_start(program: Program) -> Made:
    for text, path, loop in _loops(program):
        yield text, replace_body(program, path, (If(op(">", Var(loop.var), 0), loop.body),))


@operator("tail_dropped", "tail", "only the full tiles: ceil division taken for floor division")
def tail_dropped(program: Program) -> Made:
    for text, path, loop in _loops(program):
        for whole, part in _ceilings(loop.extent):
            yield text, _extent(program, path, map_expr(loop.extent, lambda e, whole=whole, part=part: part if e == whole else e))  # type: ignore[misc]


def _ceilings(extent: Expr) -> Iterator[tuple[Expr, Expr]]:
    """(``(n-1)//t+1`` or ``(n+t-1)//t``, ``n//t``) pairs."""
    if not isinstance(extent, Op):
        return
    if extent.name == "+" and isinstance(extent.args[1], Const) and isinstance(first := extent.args[0], Op) and first.name == "//":
        top, bottom = first.args
        yield extent, simplify_index(op("//", op("+", top, extent.args[1]), bottom))
    for arg in extent.args:
        yield from _ceilings(arg)


@operator("tail_rounded", "tail", "the bound rounded down to a multiple of 2")
def tail_rounded(program: Program) -> Made:
    for text, path, loop in _loops(program):
        yield text, _extent(program, path, op("*", op("//", loop.extent, const(2, DType.I64)), const(2, DType.I64)))


def _guards(program: Program) -> Iterator[tuple[str, tuple[int, ...], If]]:
    for met in visit(program):
        if isinstance(met.stmt, If):
            yield path_text(met.path), met.path, met.stmt


@operator("guard_dropped", "guard", "a guard left out")
def guard_dropped(program: Program) -> Made:
    for text, path, guard in _guards(program):
        yield text, replace_at(program, path, *guard.body)


@operator("guard_negated", "guard", "a guard the wrong way round")
def guard_negated(program: Program) -> Made:
    for text, path, guard in _guards(program):
        yield text, replace_at(program, path, If(op("not", guard.cond), guard.body))


@operator("guard_conjunct", "guard", "one of the conditions of a guard left out")
def guard_conjunct(program: Program) -> Made:
    for place in _conditions(program):
        if isinstance(place.expr, Op) and place.expr.name in ("and", "or"):
            for n, kept in enumerate(place.expr.args):
                yield f"{place.text}:{n}", place.put(kept)


@operator("guard_strict", "guard", "< for <=, or <= for <")
def guard_strict(program: Program) -> Made:
    for place in _conditions(program):
        if isinstance(place.expr, Op) and place.expr.name in _STRICT:
            yield place.text, place.put(Op(_STRICT[place.expr.name], place.expr.args, DType.BOOL))


@operator("guard_shift", "guard", "a comparison of indices off by one")
def guard_shift(program: Program) -> Made:
    for place in _conditions(program):
        if isinstance(place.expr, Op) and place.expr.name in _STRICT and place.expr.args[0].dtype is DType.I64:
            for step in (1, -1):
                yield f"{place.text}:{step:+}", place.put(Op(place.expr.name, (place.expr.args[0], op("+", place.expr.args[1], step)), DType.BOOL))


@operator("guard_narrowed", "guard", "work done in the upper part of a loop only")
def guard_narrowed(program: Program) -> Made:
    for met in visit(program):
        if not isinstance(met.stmt, (Loop, If)) and met.loops:
            loop = met.loops[-1]
            stmt = get(program, met.path)
            cond = op("<", Var(loop.var), op("+", op("//", loop.extent, const(2, DType.I64)), 1))
            yield path_text(met.path), replace_at(program, met.path, If(cond, (stmt,)))


def _conditions(program: Program) -> Iterator[ExprPlace]:
    return (p for p in expr_places(program) if p.expr.dtype is DType.BOOL and not p.owner)
