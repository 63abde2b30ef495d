"""Wrong branches: conditions on data, and faults that only some inputs reach."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from steptp.ir.nodes import Expr, Load, Op, Program, Store, call, const, op, select
from steptp.ir.types import DType
from steptp.ir.walk import replace_at, stores
from steptp.mutate.places import value_places
from steptp.mutate.registry import operator
from steptp.rewrite.context import path_text

__all__: list[str] = []

Made = Iterator[tuple[str, Program]]
_NEGATED = {"<": ">=", "<=": ">", ">": "<=", ">=": "<", "==": "!=", "!=": "=="}


@operator("comparison_negated", "guard", "a comparison of values the wrong way round")
def comparison_negated(program: Program) -> Made:
    for place in value_places(program):
        if isinstance(place.expr, Op) and place.expr.name in _NEGATED:
            yield place.text, place.put(Op(_NEGATED[place.expr.name], place.expr.args, DType.BOOL))


@operator("select_swapped", "guard", "both sides of a select exchanged")
def select_swapped(program: Program) -> Made:
    for place in value_places(program):
        if isinstance(place.expr, Op) and place.expr.name == "select":
            cond, yes, no = place.expr.args
            yield place.text, place.put(op("select", cond, no, yes))


@operator("select_dropped", "guard", "one side of a select taken always")
def select_dropped(program: Program) -> Made:
    for place in value_places(program):
        if isinstance(place.expr, Op) and place.expr.name == "select":
            for n in (1, 2):
                yield f"{place.text}:{n}", place.put(place.expr.args[n])


@operator("clamp_missing", "operand", "a clamp or maximum with a constant left out")
def clamp_missing(program: Program) -> Made:
    for place in value_places(program):
        if isinstance(place.expr, Op) and place.expr.name in ("max", "min") and len(place.expr.args) == 2:
            yield place.text, place.put(place.expr.args[0])


def _reads(program: Program) -> Iterator[tuple[str, tuple[int, ...], Store, Load]]:
    """Stores of floats with the first float read in each."""
    for met in stores(program):
        stmt = met.stmt
        if isinstance(stmt, Store) and stmt.value.dtype.is_float:
            read = next((p.expr for p in value_places(program) if p.path == met.path and isinstance(p.expr, Load) and p.expr.type is stmt.value.dtype), None)
            if isinstance(read, Load):
                yield path_text(met.path), met.path, stmt, read


def _behind(program: Program, cond_of: Callable[[Expr], Expr], wrong_of: Callable[[Expr], Expr]) -> Made:
    for text, path, stmt, read in _reads(program):
        value = select(cond_of(read), wrong_of(stmt.value), stmt.value)
        yield text, replace_at(program, path, Store(stmt.buffer, stmt.indices, value, stmt.reduce, stmt.carry))


@operator("rare_large", "guard", "a value that is wrong where an operand is above 7")
def rare_large(program: Program) -> Made:
    yield from _behind(program, lambda r: op(">", r, 7), lambda v: op("+", v, 1))


@operator("rare_far", "guard", "a value that is wrong where an operand is below -200")
def rare_far(program: Program) -> Made:
    yield from _behind(program, lambda r: op("<", r, -200), lambda v: op("*", v, 2))


@operator("rare_window", "guard", "a value that is wrong where an operand lies in a narrow window")
def rare_window(program: Program) -> Made:
    yield from _behind(program, lambda r: op("and", op(">", r, 1.25), op("<", r, 1.2578125)), lambda v: op("+", v, 1))


@operator("rare_equal", "guard", "a value that is wrong where an operand is exactly 3/4")
def rare_equal(program: Program) -> Made:
    yield from _behind(program, lambda r: op("==", r, 0.75), lambda v: op("-", v, 1))


@operator("rare_zero", "guard", "a value that is wrong where an operand is 0")
def rare_zero(program: Program) -> Made:
    yield from _behind(program, lambda r: op("==", r, 0), lambda v: op("+", v, 1))


@operator("nan_planted", "operand", "NaN where an operand is negative")
def nan_planted(program: Program) -> Made:
    yield from _behind(program, lambda r: op("<", r, 0), lambda v: call("sqrt", const(-1, v.dtype)))
