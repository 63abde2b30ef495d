"""Integer intervals of index and value expressions at real sizes.

The cheap half of the safety proofs: most accesses are in bounds by intervals alone, and only the rest goes to isl.
An interval is a closed pair ``(low, high)``; ``None`` means that nothing is known.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from steptp.ir.nodes import Cast, Const, Expr, Load, Op, Program, Size, Store, Var
from steptp.ir.sizes import eval_index
from steptp.ir.types import DType, int_range
from steptp.ir.walk import all_tmps, free_vars, loads, stores

__all__ = ["Interval", "interval", "hull", "loop_intervals", "value_ranges", "int_values"]

Interval = tuple[int, int]
_EMPTY: dict[str, Interval] = {}


def hull(a: Interval | None, b: Interval | None) -> Interval | None:
    """The smallest interval around both."""
    return None if a is None or b is None else (min(a[0], b[0]), max(a[1], b[1]))


def interval(
    expr: Expr,
    env: Mapping[str, Interval],
    sizes: Mapping[str, int],
    ranges: Mapping[str, Interval] = _EMPTY,
    known: Mapping[Expr, Interval] | None = None,
) -> Interval | None:
    """Bounds of an integer expression, or ``None``.

    ``env`` bounds the loop variables, ``ranges`` the elements of integer buffers, ``known`` whole sub-expressions (from
    conditions that hold). The result of i8 and i32 arithmetic is not clipped: overflow is for the caller to find.
    """
    if isinstance(expr, Const):
        return (int(expr.value), int(expr.value)) if isinstance(expr.value, (int, bool)) else None
    if isinstance(expr, Size):
        value = sizes.get(expr.name)
        return None if value is None else (value, value)
    found = env.get(expr.name) if isinstance(expr, Var) else _compute(expr, env, sizes, ranges, known)
    if known:
        limit = known.get(expr)
        if limit is not None:
            low, high = found if found is not None else limit
            return (max(low, limit[0]), max(min(high, limit[1]), max(low, limit[0])))
    return found


def _compute(
    expr: Expr, env: Mapping[str, Interval], sizes: Mapping[str, int], ranges: Mapping[str, Interval], known: Mapping[Expr, Interval] | None
) -> Interval | None:
    if isinstance(expr, Load):
        if expr.buffer in ranges:
            return ranges[expr.buffer]
        return (0, 1) if expr.type is DType.BOOL else _type_range(expr.type)
    if isinstance(expr, Cast):
        if expr.type is DType.BOOL:
            return (0, 1)
        if not expr.type.is_int:
            return None
        inner = interval(expr.arg, env, sizes, ranges, known) if not expr.arg.dtype.is_float else None
        low, high = int_range(expr.type)
        return (low, high) if inner is None else (min(max(inner[0], low), high), min(max(inner[1], low), high))
    if not isinstance(expr, Op):
        return None
    if expr.type is DType.BOOL and expr.name != "select":
        return (0, 1)
    if expr.name == "select":
        yes = interval(expr.args[1], env, sizes, ranges, _narrow(expr.args[0], True, env, sizes, ranges, known))
        return hull(yes, interval(expr.args[2], env, sizes, ranges, _narrow(expr.args[0], False, env, sizes, ranges, known)))
    args = [interval(a, env, sizes, ranges, known) for a in expr.args]
    if any(a is None for a in args):
        return _partial(expr.name, args)
    return _apply(expr.name, [a for a in args if a is not None])


def _type_range(dtype: DType) -> Interval | None:
    return int_range(dtype) if dtype.is_int and dtype is not DType.I64 else None


def _partial(name: str, args: list[Interval | None]) -> Interval | None:
    """What can be said with one operand unknown: a remainder by a known positive divisor is bounded."""
    if name == "%" and (divisor := args[1]) is not None and divisor[0] > 0:
        return (0, divisor[1] - 1)
    return None


def _apply(name: str, args: list[Interval]) -> Interval | None:
    (a, b), rest = args[0], args[1:]
    if name == "neg":
        return (-b, -a)
    if name == "abs":
        return (0 if a <= 0 <= b else min(abs(a), abs(b)), max(abs(a), abs(b)))
    if not rest:
        return None
    c, d = rest[0]
    if name == "+":
        return (a + c, b + d)
    if name == "-":
        return (a - d, b - c)
    if name == "*":
        ends = (a * c, a * d, b * c, b * d)
        return (min(ends), max(ends))
    if name == "max":
        return (max(a, c), max(b, d))
    if name == "min":
        return (min(a, c), min(b, d))
    if name == "//" and not c <= 0 <= d:
        ends = (a // c, a // d, b // c, b // d)
        return (min(ends), max(ends))
    if name == "%" and c > 0:
        return (a, b) if a >= 0 and b < c else (a % c, b % c) if c == d and a // c == b // c else (0, d - 1)
    return None


def _narrow(
    cond: Expr, holds: bool, env: Mapping[str, Interval], sizes: Mapping[str, int], ranges: Mapping[str, Interval], known: Mapping[Expr, Interval] | None
) -> dict[Expr, Interval]:
    """Bounds of the compared sub-expressions where ``cond`` is true (or false)."""
    out: dict[Expr, Interval] = dict(known or {})
    if not isinstance(cond, Op):
        return out
    if cond.name == "not":
        return _narrow(cond.args[0], not holds, env, sizes, ranges, out)
    if cond.name == ("and" if holds else "or"):
        return _narrow(cond.args[1], holds, env, sizes, ranges, _narrow(cond.args[0], holds, env, sizes, ranges, out))
    name = cond.name if holds else _OPPOSITE.get(cond.name, "")
    if name not in _OPPOSITE or not cond.args[0].dtype.is_int:
        return out
    left, right = cond.args
    a, b = interval(left, env, sizes, ranges, out), interval(right, env, sizes, ranges, out)
    big = 1 << 70
    a, b = a or (-big, big), b or (-big, big)
    step = 1 if name in ("<", ">") else 0
    if name in ("<", "<=", "=="):
        out[left] = (a[0], min(a[1], b[1] - step))
        out[right] = (max(b[0], a[0] + step), b[1])
    if name in (">", ">=", "=="):
        low, high = out.get(left, a)
        out[left] = (max(low, b[0] + step), high)
        low, high = out.get(right, b)
        out[right] = (low, min(high, a[1] - step))
    return {k: v for k, v in out.items() if v[0] <= v[1] and (-big < v[0] or v[1] < big) and not isinstance(k, Const)}


_OPPOSITE = {"<": ">=", "<=": ">", ">": "<=", ">=": "<", "==": "!=", "!=": "=="}


def loop_intervals(loops: Iterable[tuple[str, Expr]], sizes: Mapping[str, int]) -> dict[str, Interval]:
    """Loop variable → ``(0, largest extent - 1)`` for loops given outermost first; a high end of -1 means no iteration."""
    env: dict[str, Interval] = {}
    for var, extent in loops:
        if isinstance(extent, Size):
            high: int = sizes[extent.name]
        else:
            found = interval(extent, env, sizes)
            high = found[1] if found is not None else 1 << 62
        env[var] = (0, max(high, 0) - 1)
    return env


def value_ranges(program: Program) -> dict[str, Interval]:
    """Integer (and bool) buffer → interval of its elements, where one can be proven.

    Inputs use their declared range (checked at entry) or that of their dtype; other buffers the hull of what is stored in them.
    """
    cached = program._cache.get("value_ranges")
    if isinstance(cached, dict):
        return cached
    sizes = program.size_env
    out: dict[str, Interval] = {}
    for buffer in program.inputs:
        if buffer.range is not None:
            out[buffer.name] = (eval_index(buffer.range[0], sizes), eval_index(buffer.range[1], sizes) - 1)
    waiting = {b.name for b in (*program.outputs, *(b for _, b in all_tmps(program))) if b.dtype.is_int}
    if waiting:
        _stored_ranges(program, waiting, out)
    program._cache["value_ranges"] = out
    return out


def _stored_ranges(program: Program, waiting: set[str], out: dict[str, Interval]) -> None:
    """Fixpoint from below over at most a few rounds; what still moves is left unknown."""
    sizes = program.size_env
    writes: list[tuple[Store, dict[str, Interval], int]] = []
    for met in stores(program):
        if isinstance(met.stmt, Store) and met.stmt.buffer in waiting:
            env = loop_intervals(((p.var, p.extent) for p in met.loops), sizes)
            outside = {v for i in met.stmt.indices for v in free_vars(i)}
            trips = math.prod(hi + 1 for v, (_, hi) in env.items() if v not in outside)
            writes.append((met.stmt, env, trips))
    found: dict[str, Interval] = {}
    dead: set[str] = {s.buffer for s, _, _ in writes if s.reduce in ("or", "and", "*") or (s.reduce == "+" and s.carry)}
    for _ in range(4):
        changed = False
        for store, env, trips in writes:
            name = store.buffer
            if name in dead:
                continue
            ranges = {**out, **{k: v for k, v in found.items() if k not in dead}}
            reads = {e.buffer for e in loads(store.value)} & waiting
            if any(r in dead for r in reads):
                dead.add(name)
                changed = True
                continue
            if any(r not in found for r in reads):
                continue
            value = interval(store.value, env, sizes, ranges)
            if value is None:
                dead.add(name)
                changed = True
                continue
            if store.reduce == "+":
                value = (min(0, value[0] * trips), max(0, value[1] * trips))
            merged = value if name not in found else hull(found[name], value)
            assert merged is not None
            if merged != found.get(name):
                found[name] = merged
                changed = True
        if not changed:
            out.update({k: v for k, v in found.items() if k not in dead})
            return


def int_values(expr: Expr, env: Mapping[str, Interval], program: Program) -> Interval | None:
    """:func:`interval` with the program's sizes and value ranges."""
    return interval(expr, env, program.size_env, value_ranges(program))
