"""Local accumulators: a temporary that is only copied out (``Y[f] = T[g]``) is computed in place of what it is copied to.

The rewritten program keeps each element of ``T`` in the element of ``Y`` that it will be copied to, so the copy becomes
``Y[f] = Y[f]``, which does nothing. This is the same program when the copy is the only store into ``Y``, reaches every
element of every copy of ``T`` that is written, sends no two of them to one place, and ``T`` does not change after it.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from steptp.analysis.definedness import copies
from steptp.analysis.dependence import dependences
from steptp.analysis.model import Model, Statement
from steptp.ir.nodes import Body, Expr, If, Load, Path, Program, Stmt, Store, Var
from steptp.ir.walk import map_expr, substitute

__all__ = ["promote", "is_self_copy"]


def is_self_copy(st: Statement) -> bool:
    """``X[e] = X[e]``: it does nothing."""
    store = st.store
    return store.reduce is None and isinstance(store.value, Load) and store.value.buffer == store.buffer and store.value.indices == store.indices


def promote(program: Program, linked: Collection[Path]) -> Program:
    """Rewrite every copy-out among the stores outside of ``linked`` (paths). Nothing moves, so paths stay valid."""
    for st in Model.of(program).statements:
        value = st.store.value
        if st.origin in linked or st.is_reset or st.store.reduce is not None or not isinstance(value, Load):
            continue
        current = next(s for s in Model.of(program).statements if s.id == st.id)
        if isinstance(current.store.value, Load) and _is_copy_out(program, current, current.store.value):
            program = _in_place(program, current, current.store.value)
    return program


def _is_copy_out(program: Program, st: Statement, read: Load) -> bool:
    model = Model.of(program)
    source, target = model.declarations[read.buffer], model.declarations[st.store.buffer]
    if source.role != "tmp" or target.role == "in" or read.buffer == st.store.buffer or source.buffer.dtype is not target.buffer.dtype:
        return False
    if target.path != source.path[: len(target.path)]:
        return False  # not in view wherever the temporary is
    inner = st.vars[model.private_depth(st, read.buffer) :]
    names = [i.name for i in read.indices if isinstance(i, Var)]
    if not (len(names) == len(read.indices) == len(inner) and set(names) == set(inner)):
        return False
    if sum(s.store.buffer == st.store.buffer for s in model.statements) != 1 or not st.write.must:
        return False
    if any(d.src.id == st.id and d.buffer == read.buffer and "anti" in d.kinds for d in dependences(program)):
        return False
    access = next(a for a in st.reads if a.load is read)
    reached = copies(model, access).range()
    writes = [copies(model, s.write) for s in model.statements if s.store.buffer == read.buffer]
    return bool(copies(model, st.write).is_injective()) and all(w.range().is_subset(reached) for w in writes)


def _in_place(program: Program, st: Statement, read: Load) -> Program:
    names = [i.name for i in read.indices if isinstance(i, Var)]
    target = st.store

    def place(indices: tuple[Expr, ...]) -> tuple[Expr, ...]:
        by = dict(zip(names, indices, strict=True))
        return tuple(substitute(i, by) for i in target.indices)

    def in_expr(expr: Expr) -> Expr:
        return map_expr(expr, lambda e: Load(target.buffer, place(e.indices), e.type) if isinstance(e, Load) and e.buffer == read.buffer else e)

    def in_body(body: Body) -> Body:
        return tuple(in_stmt(s) for s in body)

    def in_stmt(stmt: Stmt) -> Stmt:
        if isinstance(stmt, If):
            return If(in_expr(stmt.cond), in_body(stmt.body))
        if not isinstance(stmt, Store):
            return replace(stmt, body=in_body(stmt.body))
        indices = tuple(in_expr(i) for i in stmt.indices)
        if stmt.buffer == read.buffer:
            return replace(stmt, buffer=target.buffer, indices=place(indices), value=in_expr(stmt.value))
        return replace(stmt, indices=indices, value=in_expr(stmt.value))

    return program.with_(body=in_body(program.body))
