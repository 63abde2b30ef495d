"""Integer intervals of index and value expressions at real sizes.

The cheap half of the safety proofs: most accesses are in bounds by intervals alone, and only the rest goes to isl.
An interval is a closed pair ``(low, high)``; ``None`` means that nothing is known.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from steptp.ir.index import poly_of
from steptp.ir.nodes import Cast, Const, Expr, Load, Loop, Op, Program, Size, Store, Var, identity_of
from steptp.ir.sizes import eval_index
from steptp.ir.types import DType, int_range
from steptp.ir.walk import all_tmps, declaring_path, loads, stores

__all__ = ["Interval", "interval", "hull", "narrow", "loop_intervals", "value_ranges", "accumulation_trips"]

Interval = tuple[int, int]
Overflow = tuple[Op, Interval | None]
_Write = tuple[Store, dict[str, Interval], int, dict[Expr, Interval]]  # with bounds of variables and trips, and what its guards bound
_ARITHMETIC = frozenset({"+", "-", "*", "neg", "abs", "//", "%"})
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
    overflows: list[Overflow] | None = None,
) -> Interval | None:
    """Bounds of an integer expression, or ``None``.

    ``env`` bounds the loop variables, ``ranges`` the elements of integer buffers, ``known`` whole sub-expressions (from
    conditions that hold). Arithmetic is not clipped to its dtype; with ``overflows``, every operator whose result may
    leave its dtype is appended there with what it can be.
    """
    if isinstance(expr, Const):
        return (int(expr.value), int(expr.value)) if isinstance(expr.value, (int, bool)) else None
    if isinstance(expr, Size):
        value = sizes.get(expr.name)
        return None if value is None else (value, value)
    if isinstance(expr, Var):
        found = env.get(expr.name)
    else:
        found = _compute(expr, env, sizes, ranges, known, overflows)
        if overflows is not None and isinstance(expr, Op) and expr.name in _ARITHMETIC and expr.type.is_int:
            low, high = int_range(expr.type)
            if found is None or found[0] < low or found[1] > high:
                overflows.append((expr, found))
                found = (low, high)  # report the innermost operator only
    if known:
        limit = known.get(expr)
        if limit is not None:
            low, high = found if found is not None else limit
            return (max(low, limit[0]), max(min(high, limit[1]), max(low, limit[0])))
    return found


def _compute(
    expr: Expr,
    env: Mapping[str, Interval],
    sizes: Mapping[str, int],
    ranges: Mapping[str, Interval],
    known: Mapping[Expr, Interval] | None,
    overflows: list[Overflow] | None,
) -> Interval | None:
    if isinstance(expr, Load):
        if overflows is not None:
            for index in expr.indices:
                interval(index, env, sizes, ranges, known, overflows)
        if expr.buffer in ranges:
            return ranges[expr.buffer]
        return (0, 1) if expr.type is DType.BOOL else _type_range(expr.type)
    if isinstance(expr, Cast):
        if expr.type is DType.BOOL:
            return (0, 1)
        if not expr.type.is_int:
            return None
        inner = interval(expr.arg, env, sizes, ranges, known, overflows) if not expr.arg.dtype.is_float else None
        low, high = int_range(expr.type)
        return (low, high) if inner is None else (min(max(inner[0], low), high), min(max(inner[1], low), high))
    if not isinstance(expr, Op):
        return None
    if expr.type is DType.BOOL and expr.name != "select":
        return (0, 1)
    if expr.name == "select":
        yes = interval(expr.args[1], env, sizes, ranges, narrow(expr.args[0], True, env, sizes, ranges, known), overflows)
        return hull(yes, interval(expr.args[2], env, sizes, ranges, narrow(expr.args[0], False, env, sizes, ranges, known), overflows))
    args = [interval(a, env, sizes, ranges, known, overflows) for a in expr.args]
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
    if name == "%" and d < 0:
        return (c + 1, 0)
    return None


def narrow(
    cond: Expr, holds: bool, env: Mapping[str, Interval], sizes: Mapping[str, int], ranges: Mapping[str, Interval], known: Mapping[Expr, Interval] | None
) -> dict[Expr, Interval]:
    """Bounds of the compared sub-expressions where ``cond`` is true (or false)."""
    out: dict[Expr, Interval] = dict(known or {})
    if not isinstance(cond, Op):
        return out
    if cond.name == "not":
        return narrow(cond.args[0], not holds, env, sizes, ranges, out)
    if cond.name == ("and" if holds else "or"):
        return narrow(cond.args[1], holds, env, sizes, ranges, narrow(cond.args[0], holds, env, sizes, ranges, out))
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


def accumulation_trips(store: Store, loops: Iterable[Loop], env: Mapping[str, Interval], sizes: Mapping[str, int]) -> int:
    """At most how many accumulations hit one element: the product of the extents of loops that do not index it injectively."""
    extents = {loop.var: env[loop.var][1] + 1 for loop in loops}
    free = set(extents)
    for index in store.indices:
        free -= _injective_vars(index, extents, sizes)
    return math.prod(extents[v] for v in free)


def _injective_vars(index: Expr, extents: Mapping[str, int], sizes: Mapping[str, int]) -> set[str]:
    """The variables of a linear index when its coefficients are a mixed radix (one value of the index fixes them all)."""
    terms: dict[str, int] = {}
    for mono, c in poly_of(index).items():
        variables = [a.name for a in mono if isinstance(a, Var)]
        scale = c * math.prod(sizes[a.name] for a in mono if isinstance(a, Size))
        if len(variables) > 1 or any(not isinstance(a, (Var, Size)) for a in mono):
            return set()
        if variables:
            terms[variables[0]] = terms.get(variables[0], 0) + scale
    reach = 0
    for scale, name in sorted((abs(c), v) for v, c in terms.items()):
        if scale <= reach or name not in extents:
            return set()
        reach += scale * (extents[name] - 1)
    return set(terms)


def _stored_ranges(program: Program, waiting: set[str], out: dict[str, Interval]) -> None:
    """Fixpoint from below over a few rounds; what still moves after them is left unknown."""
    sizes = program.size_env
    writes: dict[str, list[_Write]] = {name: [] for name in waiting}
    for met in stores(program):
        if isinstance(met.stmt, Store) and met.stmt.buffer in waiting:
            depth = len(declaring_path(program, met.stmt.buffer))
            inside = [p for p in met.parents[depth:] if isinstance(p, Loop)]
            env = loop_intervals(((p.var, p.extent) for p in met.loops), sizes)
            known: dict[Expr, Interval] = {}
            for guard in (g for g in met.guards if not any(loads(g))):  # what a guard reads may change before the store
                known = narrow(guard, True, env, sizes, out, known)
            writes[met.stmt.buffer].append((met.stmt, env, accumulation_trips(met.stmt, inside, env, sizes), known))
    found: dict[str, Interval] = {}
    unknown: set[str] = set()
    for _ in range(len(waiting) + 4):
        changed = False
        for name in sorted(waiting - unknown):
            value = _stored(writes[name], sizes, {**out, **found}, waiting - unknown - set(found))
            if value is None:
                unknown.add(name)
                found.pop(name, None)
                changed = True
            elif value and (merged := hull(found.get(name, value[0]), value[0])) != found.get(name):
                assert merged is not None
                found[name] = merged
                changed = True
        if not changed:
            out.update(found)
            return


def _stored(writes: list[_Write], sizes: Mapping[str, int], ranges: Mapping[str, Interval], empty: set[str]) -> list[Interval] | None:
    """Hull of what is set plus the sum of what is added; nothing while all values read buffers without a value yet; ``None``: unknown."""
    base: Interval | None = None
    low = high = 0
    for store, env, trips, known in writes:
        if {e.buffer for e in loads(store.value)} & empty:
            continue
        value = interval(store.value, env, sizes, ranges, known)
        if value is None or store.reduce in ("*", "or", "and"):
            return None
        if store.reduce is not None and not store.carry:
            start = int(identity_of(store.reduce, store.value.dtype).value)
            base = hull(base or (start, start), (start, start))
        if store.reduce == "+":
            low, high = low + min(0, value[0] * trips), high + max(0, value[1] * trips)
        else:
            base = hull(base or value, value)
    return [] if base is None else [(base[0] + low, base[1] + high)]
