"""Wrong storage: aliased and folded temporaries, wrong scopes, and loop kinds that claim an independence which is not there."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from steptp.ir.nodes import Expr, If, Load, Loop, Program, Stmt, Store, const, op
from steptp.ir.types import DType, LoopKind, Scope
from steptp.ir.walk import all_tmps, get, loads, map_expr, map_stmt_exprs, rename_buffer, replace_at, stmt_exprs, visit
from steptp.mutate.places import map_buffer
from steptp.mutate.registry import operator
from steptp.rewrite.context import path_text

__all__: list[str] = []

Made = Iterator[tuple[str, Program]]


@operator("alias_tmp", "alias", "two temporaries in one piece of memory")
def alias_tmp(program: Program) -> Made:
    found = list(all_tmps(program))
    for n, (path, first) in enumerate(found):
        for other, second in found[n + 1 :]:
            if path == other[: len(path)] and (first.dtype, first.shape, first.scope) == (second.dtype, second.shape, second.scope):
                merged = program.with_(body=rename_buffer(program.body, second.name, first.name))
                yield f"{first.name}={second.name}", map_buffer(merged, second.name, lambda _: None)


@operator("alias_output", "alias", "a temporary kept in an output")
def alias_output(program: Program) -> Made:
    for _, buffer in all_tmps(program):
        for output in program.outputs:
            if (output.dtype, output.shape) == (buffer.dtype, buffer.shape):
                merged = program.with_(body=rename_buffer(program.body, buffer.name, output.name))
                yield f"{output.name}={buffer.name}", map_buffer(merged, buffer.name, lambda _: None)


def _folded(program: Program, name: str, axis: int, length: int) -> Program:
    """Temporary ``name`` with an axis of ``length`` elements that wraps around."""
    rest = const(length, DType.I64)

    def wrap(indices: tuple[Expr, ...]) -> tuple[Expr, ...]:
        return tuple(op("%", i, rest) if n == axis else i for n, i in enumerate(indices))

    def in_expr(expr: Expr) -> Expr:
        return map_expr(expr, lambda e: replace(e, indices=wrap(e.indices)) if isinstance(e, Load) and e.buffer == name else e)

    def in_stmt(stmt: Stmt) -> Stmt:
        if isinstance(stmt, Store):
            made = map_stmt_exprs(stmt, in_expr)
            assert isinstance(made, Store)
            return replace(made, indices=wrap(made.indices)) if made.buffer == name else made
        return replace(stmt, body=tuple(map(in_stmt, stmt.body)))

    shaped = map_buffer(program, name, lambda b: replace(b, shape=tuple(rest if n == axis else d for n, d in enumerate(b.shape))))
    return shaped.with_(body=tuple(map(in_stmt, shaped.body)))


@operator("storage_folded", "alias", "a temporary folded into too few elements")
def storage_folded(program: Program) -> Made:
    """Plain stores keep their form; an accumulation through ``%`` is not injective, so those mutants are left out as invalid."""
    for _, buffer in all_tmps(program):
        for axis in range(len(buffer.shape)):
            for length in (1, 2):
                yield f"{buffer.name}:{axis}:{length}", _folded(program, buffer.name, axis, length)


@operator("storage_short", "bound", "a temporary one element too short")
def storage_short(program: Program) -> Made:
    for _, buffer in all_tmps(program):
        for axis in range(len(buffer.shape)):
            yield f"{buffer.name}:{axis}", map_buffer(program, buffer.name, lambda b, axis=axis: replace(b, shape=_less(b.shape, axis)))  # type: ignore[misc]


def _less(shape: tuple[Expr, ...], axis: int) -> tuple[Expr, ...]:
    return tuple(op("-", d, 1) if n == axis else d for n, d in enumerate(shape))


@operator("tmp_hoisted", "scope", "a private temporary shared by all iterations")
def tmp_hoisted(program: Program) -> Made:
    for path, buffer in all_tmps(program):
        if path:
            gone = map_buffer(program, buffer.name, lambda _: None)
            yield buffer.name, gone.with_(tmps=(*gone.tmps, replace(buffer, scope=Scope.GLOBAL)))


@operator("tmp_sunk", "scope", "a temporary that is fresh in every iteration of a loop that should keep it")
def tmp_sunk(program: Program) -> Made:
    for path, buffer in all_tmps(program):
        users = [m.path for m in visit(program) if _touches(m.stmt, buffer.name)]
        for met in visit(program):
            if isinstance(met.stmt, Loop) and len(met.path) > len(path) and users and all(u[: len(met.path)] == met.path != u for u in users):
                gone = map_buffer(program, buffer.name, lambda _: None)
                loop = get(gone, met.path)
                assert isinstance(loop, Loop)
                yield f"{buffer.name}:{path_text(met.path)}", replace_at(gone, met.path, replace(loop, tmps=(*loop.tmps, buffer)))


def _touches(stmt: Stmt, name: str) -> bool:
    return (isinstance(stmt, Store) and stmt.buffer == name) or any(r.buffer == name for e in stmt_exprs(stmt) for r in loads(e))


@operator("scope_changed", "scope", "a temporary in the memory of another scope")
def scope_changed(program: Program) -> Made:
    for _, buffer in all_tmps(program):
        for scope in Scope:
            if scope is not buffer.scope:
                yield f"{buffer.name}:{scope}", map_buffer(program, buffer.name, lambda b, scope=scope: replace(b, scope=scope))  # type: ignore[misc]


def _kinds(program: Program, kind: LoopKind) -> Made:
    for met in visit(program):
        if isinstance(met.stmt, Loop) and met.stmt.kind in (LoopKind.SERIAL, LoopKind.UNROLL):
            yield path_text(met.path), replace_at(program, met.path, replace(met.stmt, kind=kind))


@operator("kind_parallel", "kind", "a loop run by several threads")
def kind_parallel(program: Program) -> Made:
    yield from _kinds(program, LoopKind.PARALLEL)


@operator("kind_vector", "kind", "a loop run as vector lanes")
def kind_vector(program: Program) -> Made:
    yield from _kinds(program, LoopKind.VECTOR)


@operator("kind_threads", "kind", "a loop bound to the threads of a block")
def kind_threads(program: Program) -> Made:
    yield from _kinds(program, LoopKind.THREAD_X)


@operator("kind_blocks", "kind", "a loop bound to the blocks of a grid")
def kind_blocks(program: Program) -> Made:
    yield from _kinds(program, LoopKind.BLOCK_X)


@operator("kind_outward", "kind", "a concurrent loop kind on the loop outside")
def kind_outward(program: Program) -> Made:
    for met in visit(program):
        if not isinstance(met.stmt, (Store, If)):
            inner = met.stmt.body[0]
            if isinstance(inner, Loop) and len(met.stmt.body) == 1 and inner.kind is not met.stmt.kind:
                swapped = replace(met.stmt, kind=inner.kind, body=(replace(inner, kind=met.stmt.kind),))
                yield path_text(met.path), replace_at(program, met.path, swapped)
