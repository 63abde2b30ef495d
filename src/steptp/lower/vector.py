"""Vectorised loops.

A ``vec`` loop holds only stores and guards. It is cut into chunks of a fixed lane count (and power-of-two remainders), and each
chunk is distributed over the stores, which is legal because the loop carries no dependence; temporaries declared inside get one copy for each lane. A guard
or ``select`` that depends on the lane would scalarise a vector, so a store under such conditions becomes: test them for the first and
the last lane (they are linear, so they then hold for all lanes between), run unguarded vectors if both hold, single
lanes otherwise. Whatever does not fit this form runs as a serial loop; the meaning is the same.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import reduce
from typing import TYPE_CHECKING

from steptp.ir.index import poly_of
from steptp.ir.nodes import Body, Cast, Expr, If, Load, Loop, Op, Store
from steptp.ir.nodes import Var as LeirVar
from steptp.ir.resets import conjuncts
from steptp.ir.types import DType
from steptp.ir.walk import free_vars, subexprs
from steptp.lower import nodes as n
from steptp.lower import vecmath

if TYPE_CHECKING:
    from steptp.lower.tir import Emitter

__all__ = ["Lanes", "guard", "loop", "store"]

_CHUNK, _WHOLE = 16, 64  # lanes of a chunk; longest power of two that stays one vector
_COPIES = 64  # stores: larger bodies get no copies for remainders
_LINEAR = frozenset({"<", "<=", ">", ">="})


@dataclass(slots=True)
class Lanes:
    """The chunk being emitted: loop variable = ``base`` + lane; ``private`` names the temporaries with a copy for each lane."""

    var: str
    base: n.Expr
    count: int
    private: frozenset[str]
    guards: list[Expr] = field(default_factory=list)


def loop(emitter: Emitter, stmt: Loop, span: tuple[int, int]) -> list[n.Stmt] | None:
    """The TIR of a vectorised loop whose extent lies in ``span``, or ``None`` when it must run as a serial loop."""
    trips = span[1]
    names = frozenset(b.name for b in stmt.tmps)
    if span[0] != span[1] or trips < 2 or not _eligible(stmt.body, stmt.var, names):
        return None
    width = trips if trips & (trips - 1) == 0 and trips <= _WHOLE else min(_CHUNK, 1 << (trips.bit_length() - 1))
    full, rest = divmod(trips, width)
    if rest and _count(stmt.body) > _COPIES:
        return None
    out = _chunks(emitter, stmt, 0, width, full)
    start = full * width
    while rest:
        piece = 1 << (rest.bit_length() - 1)
        out += _chunks(emitter, stmt, start, piece, 1)
        start, rest = start + piece, rest - piece
    return out


def _chunks(emitter: Emitter, stmt: Loop, start: int, width: int, count: int) -> list[n.Stmt]:
    """``count`` chunks of ``width`` lanes from iteration ``start``."""
    emitter.declare(stmt.tmps, lanes=width)
    chunk = n.tirx.Var(f"{stmt.var}_chunk", "int32")
    base = n.tirx.Mul(chunk, n.i32(width)) if count > 1 else n.i32(start)
    emitter.vector = Lanes(stmt.var, base, width, frozenset(b.name for b in stmt.tmps))
    with emitter.bound(stmt.var, base, (start, start + width * count - 1)):
        inner = emitter.body(stmt.body)
    emitter.vector = None
    if count == 1 or not inner:
        return inner
    return [n.tirx.For(chunk, n.i32(0), n.i32(count), n.tirx.ForKind.SERIAL, n.sequence(inner))]


def _count(body: Body) -> int:
    return sum(1 if isinstance(s, Store) else _count(s.body) for s in body)


def _eligible(body: Body, var: str, private: frozenset[str]) -> bool:
    """Only stores and guards, and every store writes its own lane's element."""
    for stmt in body:
        if isinstance(stmt, Store):
            if stmt.buffer not in private and not any(var in free_vars(i) for i in stmt.indices):
                return False
        elif isinstance(stmt, Loop) or not _eligible(stmt.body, var, private):
            return False
    return True


def _varies(expr: Expr, lanes: Lanes) -> bool:
    """Whether the value may differ between lanes."""
    return any((isinstance(e, LeirVar) and e.name == lanes.var) or (isinstance(e, Load) and e.buffer in lanes.private) for e in subexprs(expr))


def guard(emitter: Emitter, lanes: Lanes, stmt: If) -> list[n.Stmt]:
    """A guard inside a vectorised loop: one that varies by lane moves inwards to the stores."""
    if not _varies(stmt.cond, lanes):
        return emitter.guarded(stmt)
    lanes.guards.append(stmt.cond)
    inner = emitter.body(stmt.body)
    lanes.guards.pop()
    return inner


def store(emitter: Emitter, lanes: Lanes, stmt: Store) -> list[n.Stmt]:
    """One store for all lanes of the chunk."""
    conds = [c for g in lanes.guards for c in conjuncts(g)]
    value, inner = _without_unsafe(emitter, lanes, stmt.value)
    conds += inner
    if value is None or not all(_linear(emitter, lanes, c) for c in conds):
        return [_lane_loop(emitter, lanes, stmt)]
    whole = Store(stmt.buffer, stmt.indices, value, stmt.reduce, stmt.carry)
    vector = _vector_store(emitter, lanes, whole)
    if not conds:
        return vector
    bindings: list[n.Stmt] = []
    ends: list[n.Expr] = []
    for cond in conds:
        for at in sorted({0, lanes.count - 1}) if _varies(cond, lanes) else (0,):
            _enter(emitter, lanes, n.i32(at))
            before, value_at = emitter.condition(cond)
            bindings += before
            ends.append(value_at)
    return [*bindings, n.tirx.IfThenElse(reduce(n.tirx.And, ends), n.sequence(vector), _lane_loop(emitter, lanes, stmt))]


def _vector_store(emitter: Emitter, lanes: Lanes, stmt: Store) -> list[n.Stmt]:
    """The unguarded store as one vector (or as a scalar for a single lane)."""
    if lanes.count == 1:
        _enter(emitter, lanes, n.i32(0))
        return emitter.plain_store(stmt)
    lane = n.tirx.Var(lanes.var, "int32")
    _enter(emitter, lanes, lane)
    scalar, emitter.scalars.lane = emitter.scalars.lane, (lane, lanes.count)
    body = n.sequence(emitter.plain_store(stmt))
    emitter.scalars.lane = scalar
    return [n.tirx.For(lane, n.i32(0), n.i32(lanes.count), n.tirx.ForKind.VECTORIZED, body)]


def _enter(emitter: Emitter, lanes: Lanes, lane: n.Expr) -> None:
    scope = emitter.scalars
    scope.variables[lanes.var] = lane if isinstance(lanes.base, n.tirx.IntImm) and int(lanes.base.value) == 0 else n.tirx.Add(lanes.base, lane)
    for name in lanes.private:
        scope.slots[name].lanes = (lane,)


def _lane_loop(emitter: Emitter, lanes: Lanes, stmt: Store) -> n.Stmt:
    """The store lane by lane, with its guards."""
    lane = n.tirx.Var(lanes.var, "int32")
    _enter(emitter, lanes, lane)
    body = emitter.plain_store(stmt)
    for cond in reversed(lanes.guards):
        before, value = emitter.condition(cond)
        body = [*before, n.tirx.IfThenElse(value, n.sequence(body), None)]
    return n.tirx.For(lane, n.i32(0), n.i32(lanes.count), n.tirx.ForKind.SERIAL, n.sequence(body))


def _linear(emitter: Emitter, lanes: Lanes, cond: Expr) -> bool:
    """Whether the condition, if it holds at two lanes, holds at all lanes between, and may be evaluated at any time."""
    if not emitter.scalars.ranges.safe(cond):
        return False
    if not _varies(cond, lanes):
        return True
    if not isinstance(cond, Op) or cond.name not in _LINEAR or cond.args[0].dtype is not DType.I64:
        return False
    for atoms in poly_of(cond.args[0] - cond.args[1]):
        plain = [a for a in atoms if isinstance(a, LeirVar) and a.name == lanes.var]
        if len(plain) > 1 or any(_varies(a, lanes) for a in atoms if not isinstance(a, LeirVar)):
            return False
    return True


def _without_unsafe(emitter: Emitter, lanes: Lanes, expr: Expr) -> tuple[Expr | None, list[Expr]]:
    """Replace ``select(c, unsafe, b)`` by its first side; the conditions come back. ``None``: the value has no vector form."""
    ranges = emitter.scalars.ranges
    if isinstance(expr, Op):
        if expr.name == "select" and not (ranges.safe(expr.args[1]) and ranges.safe(expr.args[2])):
            if not _varies(expr.args[0], lanes):
                plain = [_without_unsafe(emitter, lanes, a) for a in expr.args]  # one scalar branch around vector operands
                return (expr, []) if all(value is not None and not conds for value, conds in plain) else (None, [])
            if not ranges.safe(expr.args[2]):
                return None, []
            value, inner = _without_unsafe(emitter, lanes, expr.args[1])
            return value, [*conjuncts(expr.args[0]), *inner]
        if expr.name in ("and", "or") and not ranges.safe(expr.args[1]) and _varies(expr, lanes):
            return None, []
        if _calls_library(emitter, expr):
            return None, []
        parts = [_without_unsafe(emitter, lanes, a) for a in expr.args]
        args = tuple(value for value, _ in parts if value is not None)
        conds = [c for _, found in parts for c in found]
        return (Op(expr.name, args, expr.type), conds) if len(args) == len(parts) else (None, [])
    if isinstance(expr, Cast):
        value, conds = _without_unsafe(emitter, lanes, expr.arg)
        return (None if value is None else Cast(expr.type, value)), conds
    if isinstance(expr, Load):
        inner_parts = [_without_unsafe(emitter, lanes, i) for i in expr.indices]
        return (expr, []) if all(value == i and not conds for (value, conds), i in zip(inner_parts, expr.indices, strict=True)) else (None, [])
    return expr, []


def _calls_library(emitter: Emitter, expr: Op) -> bool:
    if expr.name not in vecmath.FUNCTIONS:
        return False
    return expr.type is DType.F64 or emitter.scalars.math == "libm"
