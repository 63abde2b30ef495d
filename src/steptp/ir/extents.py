"""What a text may leave out: extents of loops (``for i j k C[i,j]+=A[i,k]*B[k,j]`` runs each variable over the dimension it indexes), and the
``size`` line, for sizes that a shape can declare (``in A f32[N=64,K=128]``)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from steptp.ir.nodes import Body, Cast, Expr, If, Load, Op, Program, Size, SizeDecl, Store, Var
from steptp.ir.walk import free_sizes

__all__ = ["declared_in_shapes", "indexed_dimensions", "shape_order"]


def indexed_dimensions(var: str, body: Body, shapes: Mapping[str, tuple[Expr, ...]]) -> dict[Expr, str]:
    """The different dimensions that ``var`` alone indexes in ``body``, in the order of the text, each with the first buffer that has it there.

    A text may leave the extent of loop ``var`` out where there is exactly one.
    """
    found: dict[Expr, str] = {}
    for buffer, indices in _accesses(body):
        shape = shapes.get(buffer, ())
        for position, index in enumerate(indices):
            if isinstance(index, Var) and index.name == var and position < len(shape):
                found.setdefault(shape[position], buffer)
    return found


def _accesses(body: Body) -> Iterator[tuple[str, tuple[Expr, ...]]]:
    for stmt in body:
        if isinstance(stmt, Store):
            yield stmt.buffer, stmt.indices
            for expr in (*stmt.indices, stmt.value):
                yield from _reads(expr)
            continue
        yield from _reads(stmt.cond if isinstance(stmt, If) else stmt.extent)
        yield from _accesses(stmt.body)


def _reads(expr: Expr) -> Iterator[tuple[str, tuple[Expr, ...]]]:
    if isinstance(expr, Load):
        yield expr.buffer, expr.indices
        for index in expr.indices:
            yield from _reads(index)
    elif isinstance(expr, Op):
        for arg in expr.args:
            yield from _reads(arg)
    elif isinstance(expr, Cast):
        yield from _reads(expr.arg)


def _whole_dimensions(program: Program) -> list[str]:
    """Sizes whose first use in the declarations is a whole dimension, in order of that use."""
    met: dict[str, bool] = {}
    for b in (*program.inputs, *program.outputs, *program.tmps):
        for expr in b.shape:
            if isinstance(expr, Size):
                met.setdefault(expr.name, True)
            for name in free_sizes(expr):
                met.setdefault(name, False)
        for expr in b.range or ():
            for name in free_sizes(expr):
                met.setdefault(name, False)
    return [name for name, whole in met.items() if whole]


def declared_in_shapes(program: Program) -> tuple[SizeDecl, ...]:
    """The sizes that canonical text declares in shapes: the longest tail of ``program.sizes`` whose first uses are whole dimensions in that order."""
    order = {name: position for position, name in enumerate(_whole_dimensions(program))}
    tail: list[SizeDecl] = []
    for decl in reversed(program.sizes):
        if decl.name not in order or (tail and order[decl.name] > order[tail[0].name]):
            break
        tail.insert(0, decl)
    return tuple(tail)


def shape_order(program: Program, sizes: Sequence[SizeDecl]) -> tuple[SizeDecl, ...]:
    """``sizes`` in an order in which shapes declare as many as they can: first those that no shape of ``program`` can declare, then the others."""
    table = {s.name: s for s in sizes}
    needs = {s.name: free_sizes(s.expr) if s.expr is not None else set() for s in sizes}
    order = [name for name in _whole_dimensions(program) if name in table]
    early = set(table) - set(order)
    while True:
        seen, more = set(early), {n for name in early for n in needs[name]} - early
        for name in order:
            more |= (needs[name] - seen) if name not in early else set()
            seen.add(name)
        if not more:
            return (*(s for s in sizes if s.name in early), *(table[n] for n in order if n not in early))
        early |= more
