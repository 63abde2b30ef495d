"""A quick look at two programs: can they be the same up to names?

The outline holds what :func:`steptp.ir.canonical.canonical` leaves alone: the tree of statements, kinds and reducers, temporaries, extents at the present
sizes, and the floating-point operators of values in order.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from steptp.errors import LeirError
from steptp.ir.canonical import program_hash
from steptp.ir.nodes import Body, Buffer, Cast, Const, Expr, If, Load, Op, Program, Store
from steptp.ir.sizes import eval_index, shape_of

__all__ = ["same_up_to_names", "surely_differ"]


def same_up_to_names(a: Program, b: Program) -> bool:
    """Whether the programs have one canonical form; hashes it only where nothing cheaper decides."""
    return a == b or (not surely_differ(a, b) and program_hash(a) == program_hash(b))


def surely_differ(a: Program, b: Program) -> bool:
    """Whether the programs have different canonical forms for certain; ``False`` says nothing."""
    (tree, extents), (other, others) = _outline(a), _outline(b)
    return tree != other or (None not in (*extents, *others) and extents != others)


def _outline(program: Program) -> tuple[tuple[object, ...], tuple[int | None, ...]]:
    """The tree, and every loop's extent, ``None`` where it depends on other loops."""
    cached = program._cache.get("outline")
    if not isinstance(cached, tuple):
        interface = frozenset(b.name for b in (*program.inputs, *program.outputs))
        extents: list[int | None] = []
        sizes = program.size_env

        def body(statements: Body) -> Iterator[object]:
            for stmt in statements:
                if isinstance(stmt, Store):
                    target = stmt.buffer if stmt.buffer in interface else ""
                    yield target, len(stmt.indices), stmt.reduce, stmt.carry, tuple(_value(stmt.value, interface))
                elif isinstance(stmt, If):
                    yield "if", tuple(body(stmt.body))
                else:
                    extents.append(_runs(stmt.extent, sizes))
                    yield stmt.kind, _tmps(stmt.tmps, program), tuple(body(stmt.body))

        cached = (_tmps(program.tmps, program), *body(program.body)), tuple(extents)
        program._cache["outline"] = cached
    return cached


def _runs(extent: Expr, sizes: Mapping[str, int]) -> int | None:
    try:
        return eval_index(extent, sizes)
    except LeirError:
        return None


def _tmps(tmps: tuple[Buffer, ...], program: Program) -> tuple[object, ...]:
    return tuple(sorted((str(b.dtype), str(b.scope), shape_of(b.shape, program)) for b in tmps))


def _value(expr: Expr, interface: frozenset[str]) -> Iterator[object]:
    """Operators, literals and reads, down to what is no floating-point value."""
    if not expr.dtype.is_float:
        return
    if isinstance(expr, Op):
        yield expr.name
        for arg in expr.args:
            yield from _value(arg, interface)
    elif isinstance(expr, Load):
        yield expr.buffer if expr.buffer in interface else "", len(expr.indices)
    elif isinstance(expr, Const):
        yield repr(expr.value)
    elif isinstance(expr, Cast):
        yield expr.type
        yield from _value(expr.arg, interface)
