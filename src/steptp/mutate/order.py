"""Wrong order of statements, and reads of intermediates that are not finished."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from steptp.ir.nodes import Body, If, Loop, Path, Program, Stmt, Store, Var, op
from steptp.ir.walk import get, loads, map_stmt_exprs, replace_at, replace_body, stmt_exprs, substitute, visit
from steptp.mutate.places import chain_of
from steptp.mutate.registry import operator
from steptp.rewrite.context import path_text

__all__: list[str] = []

Made = Iterator[tuple[str, Program]]


def _bodies(program: Program) -> Iterator[tuple[Path, Body]]:
    yield (), program.body
    for met in visit(program):
        if not isinstance(met.stmt, Store):
            yield met.path, met.stmt.body


@operator("statement_swapped", "order", "two neighbouring statements exchanged")
def statement_swapped(program: Program) -> Made:
    for path, body in _bodies(program):
        for n in range(len(body) - 1):
            yield path_text((*path, n)), replace_body(program, path, (*body[:n], body[n + 1], body[n], *body[n + 2 :]))


@operator("statement_dropped", "order", "a statement left out")
def statement_dropped(program: Program) -> Made:
    for path, body in _bodies(program):
        for n in range(len(body)):
            if len(body) > 1:
                yield path_text((*path, n)), replace_at(program, (*path, n))


@operator("statement_repeated", "order", "a statement run twice")
def statement_repeated(program: Program) -> Made:
    for path, body in _bodies(program):
        for n, stmt in enumerate(body):
            yield path_text((*path, n)), replace_at(program, (*path, n), stmt, stmt)


@operator("statement_late", "order", "a statement moved to the end of its block")
def statement_late(program: Program) -> Made:
    for path, body in _bodies(program):
        for n in range(len(body) - 2):
            yield path_text((*path, n)), replace_body(program, path, (*body[:n], *body[n + 1 :], body[n]))


@operator("loop_reversed", "order", "a loop that runs backwards")
def loop_reversed(program: Program) -> Made:
    for met in visit(program):
        if isinstance(met.stmt, Loop):
            turned = {met.stmt.var: op("-", op("-", met.stmt.extent, 1), Var(met.stmt.var))}
            body = tuple(map_stmt_exprs(s, lambda e, turned=turned: substitute(e, turned)) for s in met.stmt.body)  # type: ignore[misc]
            yield path_text(met.path), replace_body(program, met.path, body)


@operator("fused_too_far", "stale", "a consumer fused into the loops that still compute what it reads")
def fused_too_far(program: Program) -> Made:
    for path, body in _bodies(program):
        for n in range(len(body) - 1):
            first, second = chain_of(body[n]), chain_of(body[n + 1])
            if first is None or second is None or not _reads(second[1], first[1].buffer):
                continue
            merged = _merged(body[n], body[n + 1])
            if merged is not None:
                yield path_text((*path, n)), replace_body(program, path, (*body[:n], merged, *body[n + 2 :]))


def _reads(stmt: Stmt, name: str) -> bool:
    return any(read.buffer == name for expr in stmt_exprs(stmt) for read in loads(expr))


def _merged(first: Stmt, second: Stmt) -> Stmt | None:
    """Both nests under the loops that they have in common, as far as these go."""
    if not (isinstance(first, Loop) and isinstance(second, Loop) and first.extent == second.extent and first.kind is second.kind):
        return None
    renamed = {second.var: Var(first.var)}
    inner = tuple(map_stmt_exprs(s, lambda e: substitute(e, renamed)) for s in second.body)
    deeper = _merged(first.body[0], inner[0]) if len(first.body) == 1 and len(inner) == 1 else None
    return replace(first, body=(deeper,) if deeper is not None else (*first.body, *inner))


@operator("producer_late", "stale", "a consumer that runs before the last writer of what it reads")
def producer_late(program: Program) -> Made:
    for path, body in _bodies(program):
        for n in range(1, len(body)):
            written = {m.stmt.buffer for m in visit((body[n],)) if isinstance(m.stmt, Store)}
            for later in range(n + 1, len(body)):
                reads = {r.buffer for m in visit((body[later],)) for e in stmt_exprs(m.stmt) for r in loads(e)}
                if written & reads:
                    yield path_text((*path, later)), replace_body(program, path, (*body[:n], body[later], *body[n:later], *body[later + 1 :]))
                    break


@operator("guarded_once", "stale", "an intermediate computed in the first iteration only")
def guarded_once(program: Program) -> Made:
    for path, body in _bodies(program):
        owner = get(program, path) if path else None
        for n, stmt in enumerate(body[:-1]):
            if isinstance(owner, Loop):
                made = If(op("==", Var(owner.var), 0), (stmt,))
                yield path_text((*path, n)), replace_at(program, (*path, n), made)
