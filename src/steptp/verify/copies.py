"""Reading through copies: a temporary that holds elements of another tensor in their own or a permuted or shifted place.

``K[f(v)] = X[g(v)]`` where every index of ``X`` is one of ``K``'s plus a number means that each written element of ``K`` is the element of ``X`` at
that place, however often it is written. So a defined read of ``K`` is a read of ``X``, as long as ``X`` is not written any more.
"""

from __future__ import annotations

from dataclasses import replace

from steptp.ir.index import simplify_index
from steptp.ir.nodes import Const, Expr, If, Load, Loop, Program, Stmt, Store, op
from steptp.ir.types import DType
from steptp.ir.walk import loads, map_expr, map_program_exprs, stmt_exprs, visit

__all__ = ["without_copies"]


def without_copies(program: Program) -> Program:
    """``program`` with reads of copies turned into reads of what they copy, and without the copies that nothing reads any more.

    Equal to ``program`` where that reads no undefined element (tier 1).
    """
    for buffer in program.tmps:
        program = _through(program, buffer.name) or program
    return program


def _through(program: Program, name: str) -> Program | None:
    writers = [(m.path, m.stmt) for m in visit(program) if isinstance(m.stmt, Store) and m.stmt.buffer == name]
    if len(writers) != 1:
        return None
    path, store = writers[0]
    source = store.value
    if store.reduce is not None or not isinstance(source, Load) or source.buffer == name or not _plain(store.indices, source.indices):
        return None
    if any(isinstance(m.stmt, Store) and m.stmt.buffer == source.buffer and m.path[:1] >= path[:1] for m in visit(program)):
        return None  # the source changes while or after it is copied
    if any(e.buffer == name and m.path[:1] <= path[:1] and m.path != path for m in visit(program) for x in stmt_exprs(m.stmt) for e in loads(x)):
        return None
    places = [_place(index, store.indices) for index in source.indices]
    if None in places:
        return None

    def leave(e: Expr) -> Expr:
        if not isinstance(e, Load) or e.buffer != name:
            return e
        indices = tuple(e.indices[p[0]] if not p[1] else op("+", e.indices[p[0]], p[1]) for p in places if p is not None)
        return Load(source.buffer, indices, source.type)

    changed = map_program_exprs(program, lambda e: map_expr(e, leave))
    body = tuple(s for s in (_pruned(s, name) for s in changed.body) if s is not None)
    return changed.with_(body=body, tmps=tuple(b for b in changed.tmps if b.name != name))


def _plain(*indices: tuple[Expr, ...]) -> bool:
    """No look-up in any index."""
    return not any(True for row in indices for index in row for _ in loads(index))


def _place(index: Expr, of: tuple[Expr, ...]) -> tuple[int, int] | None:
    """Which of the copy's indices this one is, and how far it is shifted."""
    for dim, other in enumerate(of):
        gap = simplify_index(op("-", index, other))
        if isinstance(gap, Const) and gap.type is DType.I64:
            return dim, int(gap.value)
    return None


def _pruned(stmt: Stmt, name: str) -> Stmt | None:
    """``stmt`` without stores into ``name``; ``None`` when nothing is left."""
    if isinstance(stmt, Store):
        return None if stmt.buffer == name else stmt
    body = tuple(s for s in (_pruned(s, name) for s in stmt.body) if s is not None)
    if not body:
        return None
    return replace(stmt, body=body) if isinstance(stmt, (Loop, If)) else stmt
