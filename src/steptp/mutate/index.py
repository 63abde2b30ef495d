"""Wrong indices, axes and layout maps."""

from __future__ import annotations

from collections.abc import Iterator

from steptp.ir.nodes import Cast, Const, Expr, Load, Op, Program, Size, Store, Var, const, op
from steptp.ir.types import DType
from steptp.ir.walk import replace_at, stores
from steptp.mutate.places import expr_places, index_places, loops_around, value_places
from steptp.mutate.registry import operator
from steptp.rewrite.context import path_text

__all__: list[str] = []

Made = Iterator[tuple[str, Program]]


@operator("index_shift", "index", "an index one too far or too near")
def index_shift(program: Program) -> Made:
    for place in index_places(program):
        for step in (1, -1):
            yield f"{place.text}:{step:+}", place.put(place.expr + step)


@operator("index_mirror", "index", "an index counted from the other end")
def index_mirror(program: Program) -> Made:
    for place in expr_places(program):
        if isinstance(place.expr, Var) and place.owner and (loop := loops_around(program, place.path).get(place.expr.name)) is not None:
            yield place.text, place.put(loop.extent - 1 - place.expr)


@operator("index_term_dropped", "index", "a term of an index left out")
def index_term_dropped(program: Program) -> Made:
    for place in expr_places(program):
        if place.owner and isinstance(place.expr, Op) and place.expr.name in ("+", "-"):
            for n, kept in enumerate(place.expr.args):
                if not (n == 1 and place.expr.name == "-"):
                    yield f"{place.text}:{n}", place.put(kept)


@operator("index_clamped", "index", "an index held at the last but one position")
def index_clamped(program: Program) -> Made:
    for place in index_places(program):
        if isinstance(place.expr, Var) and (loop := loops_around(program, place.path).get(place.expr.name)) is not None and isinstance(place.parent, Load):
            yield place.text, place.put(op("max", op("min", place.expr, loop.extent - 2), const(0, DType.I64)))


@operator("axis_swapped", "axis", "two indices of an access in the wrong order")
def axis_swapped(program: Program) -> Made:
    for place in value_places(program):
        if isinstance(place.expr, Load):
            for n in range(len(place.expr.indices) - 1):
                yield f"{place.text}:{n}", place.put(Load(place.expr.buffer, _swapped(place.expr.indices, n), place.expr.type))
    for met in stores(program):
        if isinstance(met.stmt, Store):
            for n in range(len(met.stmt.indices) - 1):
                made = Store(met.stmt.buffer, _swapped(met.stmt.indices, n), met.stmt.value, met.stmt.reduce, met.stmt.carry)
                yield f"{path_text(met.path)}/target:{n}", replace_at(program, met.path, made)


def _swapped(indices: tuple[Expr, ...], n: int) -> tuple[Expr, ...]:
    return (*indices[:n], indices[n + 1], indices[n], *indices[n + 2 :])


@operator("axis_wrong", "axis", "the variable of another axis in an index")
def axis_wrong(program: Program) -> Made:
    for place in expr_places(program):
        if isinstance(place.expr, Var) and place.owner:
            for name in loops_around(program, place.path):
                if name != place.expr.name:
                    yield f"{place.text}:{name}", place.put(Var(name))


@operator("axis_broadcast", "axis", "an axis read at position 0 only")
def axis_broadcast(program: Program) -> Made:
    for place in expr_places(program):
        if isinstance(place.expr, Var) and place.owner and place.role == "value":
            yield place.text, place.put(const(0, DType.I64))


@operator("layout_stride", "layout", "a stride or tile factor of an index off by one")
def layout_stride(program: Program) -> Made:
    for place in expr_places(program):
        if place.owner and isinstance(place.expr, Op) and place.expr.name in ("*", "//", "%"):
            for n, arg in enumerate(place.expr.args):
                if isinstance(arg, (Size, Const)):
                    args = tuple(op("+", a, 1) if m == n else a for m, a in enumerate(place.expr.args))
                    yield f"{place.text}:{n}", place.put(Op(place.expr.name, args, place.expr.type))


@operator("layout_swapped", "layout", "inner and outer part of a split index exchanged")
def layout_swapped(program: Program) -> Made:
    for place in expr_places(program):
        if not (place.owner and isinstance(place.expr, Op) and place.expr.name == "+"):
            continue
        left, right = place.expr.args
        if isinstance(left, Op) and left.name == "*" and isinstance(left.args[0], Var) and isinstance(right, Var):
            yield place.text, place.put(op("+", op("*", right, left.args[1]), left.args[0]))


@operator("layout_divmod", "layout", "quotient and remainder of an index confused")
def layout_divmod(program: Program) -> Made:
    for place in expr_places(program):
        if place.owner and isinstance(place.expr, Op) and place.expr.name in ("//", "%"):
            yield place.text, place.put(op("%" if place.expr.name == "//" else "//", *place.expr.args))


@operator("lookup_shift", "index", "the neighbour of a looked-up position")
def lookup_shift(program: Program) -> Made:
    for place in index_places(program):
        inner = place.expr.arg if isinstance(place.expr, Cast) else place.expr
        if isinstance(inner, Load):
            yield place.text, place.put(op("max", place.expr - 1, const(0, DType.I64)))
