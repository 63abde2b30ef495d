"""Wrong initial values, identities and accumulations."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from steptp.errors import LeirError
from steptp.ir.nodes import Const, Load, Loop, Op, Program, Store, const, op
from steptp.ir.resets import materialize
from steptp.ir.types import DType
from steptp.ir.walk import body_at, replace_at, stores, visit
from steptp.mutate.registry import operator
from steptp.rewrite.context import path_text

__all__: list[str] = []

Made = Iterator[tuple[str, Program]]
_OTHER = {"+": ("max", "*"), "*": ("+",), "max": ("min", "+"), "min": ("max",), "or": ("and",), "and": ("or",)}
_WRONG = {"+": 1, "*": 0, "max": 0, "min": 0}


def _found(program: Program) -> Iterator[tuple[str, tuple[int, ...], Store]]:
    for met in stores(program):
        assert isinstance(met.stmt, Store)
        yield path_text(met.path), met.path, met.stmt


@operator("init_missing", "init", "an accumulation that starts from whatever is in memory")
def init_missing(program: Program) -> Made:
    for text, path, stmt in _found(program):
        if stmt.reduce is not None and not stmt.carry:
            yield text, replace_at(program, path, replace(stmt, carry=True))


@operator("init_repeated", "init", "a carried accumulation that starts afresh")
def init_repeated(program: Program) -> Made:
    for text, path, stmt in _found(program):
        if stmt.carry:
            yield text, replace_at(program, path, replace(stmt, carry=False))


def _resets(program: Program) -> tuple[Program, list[tuple[tuple[int, ...], Store, str]]]:
    """The program with its resets written out, and the reset stores with their reducers; none where the resets have no place."""
    try:
        made = materialize(program)
    except LeirError:
        return program, []
    reducers = {m.stmt.buffer: m.stmt.reduce for m in stores(program) if isinstance(m.stmt, Store) and m.stmt.reduce is not None}
    found = [
        (m.path, m.stmt, reducers[m.stmt.buffer])
        for m in stores(made.program)
        if isinstance(m.stmt, Store) and m.stmt.reduce is None and made.origin[m.path].is_reset
    ]
    return made.program, found


@operator("identity_wrong", "identity", "an accumulation that starts from a value which is not the identity")
def identity_wrong(program: Program) -> Made:
    explicit, found = _resets(program)
    for path, stmt, reduce in found:
        if stmt.value.dtype is DType.BOOL:
            wrong = const(not (isinstance(stmt.value, Const) and stmt.value.value), DType.BOOL)
        else:
            wrong = const(_WRONG[reduce], stmt.value.dtype)
        if wrong != stmt.value:
            yield path_text(path), replace_at(explicit, path, replace(stmt, value=wrong))


@operator("identity_finite", "identity", "a finite number for the infinity that a maximum starts from")
def identity_finite(program: Program) -> Made:
    explicit, found = _resets(program)
    for path, stmt, reduce in found:
        if reduce in ("max", "min") and stmt.value.dtype.is_float:
            for value in (10.0, 1000.0):
                wrong = const(-value if reduce == "max" else value, stmt.value.dtype)
                yield f"{path_text(path)}:{value:g}", replace_at(explicit, path, replace(stmt, value=wrong))


@operator("reset_dropped", "init", "the reset of one accumulation left out of the explicit form")
def reset_dropped(program: Program) -> Made:
    explicit, found = _resets(program)
    for path, _, _ in found:
        here = path
        while len(here) > 1 and len(body_at(explicit, here[:-1])) == 1:
            here = here[:-1]
        yield path_text(path), replace_at(explicit, here)


@operator("reset_inside", "init", "the reset moved into the reduction, so that only the last term stays")
def reset_inside(program: Program) -> Made:
    for text, path, stmt in _found(program):
        if stmt.reduce in ("+", "max", "min", "*"):
            yield text, replace_at(program, path, replace(stmt, reduce=None, carry=False))


@operator("reducer_changed", "accumulation", "another reducer")
def reducer_changed(program: Program) -> Made:
    for text, path, stmt in _found(program):
        if stmt.reduce is not None:
            for name in _OTHER.get(stmt.reduce, ()):
                yield f"{text}:{name}", replace_at(program, path, replace(stmt, reduce=name))


@operator("accumulated_twice", "accumulation", "every term accumulated twice")
def accumulated_twice(program: Program) -> Made:
    for text, path, stmt in _found(program):
        if stmt.reduce in ("+", "*"):
            again = replace(stmt, carry=True)
            yield text, replace_at(program, path, stmt, again)


@operator("accumulation_sign", "accumulation", "terms subtracted instead of added")
def accumulation_sign(program: Program) -> Made:
    for text, path, stmt in _found(program):
        if stmt.reduce == "+" and stmt.value.dtype is not DType.BOOL:
            yield text, replace_at(program, path, replace(stmt, value=op("neg", stmt.value)))


@operator("partial_lost", "accumulation", "a carried accumulation that overwrites the partial result")
def partial_lost(program: Program) -> Made:
    for text, path, stmt in _found(program):
        if stmt.carry:
            yield text, replace_at(program, path, replace(stmt, reduce=None, carry=False))


@operator("scale_missing", "stale", "a partial result carried on without its rescaling")
def scale_missing(program: Program) -> Made:
    """``X[e] = X[e]*f + v`` without ``f``, as in an online softmax that forgets to correct by the new maximum."""
    for met in stores(program):
        stmt = met.stmt
        if not isinstance(stmt, Store) or stmt.reduce is not None:
            continue
        for place, kept in _unscaled(stmt):
            yield f"{path_text(met.path)}:{place}", replace_at(program, met.path, replace(stmt, value=kept))


def _unscaled(stmt: Store) -> Iterator[tuple[int, Op]]:
    if isinstance(stmt.value, Op) and stmt.value.name == "+":
        for n, term in enumerate(stmt.value.args):
            if isinstance(term, Op) and term.name == "*":
                own = [a for a in term.args if isinstance(a, Load) and a.buffer == stmt.buffer]
                if own:
                    yield n, Op("+", tuple(own[0] if m == n else a for m, a in enumerate(stmt.value.args)), stmt.value.type)


@operator("reduction_loop_dropped", "accumulation", "a reduction over the first element only")
def reduction_loop_dropped(program: Program) -> Made:
    for met in visit(program):
        if isinstance(met.stmt, Loop) and any(isinstance(m.stmt, Store) and m.stmt.reduce is not None for m in visit(met.stmt.body)):
            yield path_text(met.path), replace_at(program, met.path, replace(met.stmt, extent=const(1, DType.I64)))
