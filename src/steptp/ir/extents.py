"""Extents that a text may leave out: ``for i j k C[i,j] += A[i,k]*B[k,j]`` runs each variable over the dimension it indexes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from steptp.ir.nodes import Body, Cast, Expr, If, Load, Op, Store, Var

__all__ = ["indexed_dimension"]


def indexed_dimension(var: str, body: Body, shapes: Mapping[str, tuple[Expr, ...]]) -> Expr | None:
    """The dimension at the first access, in the order of the text, that has ``var`` alone as an index; ``None`` where there is no such access."""
    for buffer, indices in _accesses(body):
        for position, index in enumerate(indices):
            if isinstance(index, Var) and index.name == var:
                shape = shapes.get(buffer, ())
                return shape[position] if position < len(shape) else None
    return None


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
