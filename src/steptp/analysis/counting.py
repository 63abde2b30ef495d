"""How often statements run and how much memory accesses touch: closed forms and boxes, no polyhedral counting."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from itertools import product

from steptp.analysis.affine import linear
from steptp.analysis.intervals import interval
from steptp.analysis.model import Access, Statement
from steptp.errors import LeirError
from steptp.ir.nodes import Expr, Op
from steptp.ir.sizes import eval_index
from steptp.ir.walk import free_vars, loads

__all__ = ["instances", "footprint", "stride"]

_ENUMERATE = 4096


def instances(st: Statement) -> tuple[int, bool]:
    """How often a statement runs, and whether that is exact; otherwise the bounding box counts, guards not excluded."""
    if st.never_runs:
        return 0, True
    extents = {v: high + 1 for v, (_, high) in st.intervals.items()}
    total, exact = math.prod(extents.values()), True
    used: set[str] = set()
    scale = 1.0
    for loop in st.loops:  # triangular and tail extents: the mean over the one variable they depend on
        names = free_vars(loop.extent)
        if not names:
            continue
        share = _extent_share(st, loop.extent, names, extents, extents[loop.var]) if len(names) == 1 and not names & used else None
        if share is None:
            exact = False
            continue
        scale *= share
        used |= names | {loop.var}
    for guard in st.guards:
        names = free_vars(guard)
        share = None if names & used or any(loads(guard)) else _guard_share(st, guard, sorted(names), extents)
        if share is None:
            exact = False
            continue
        scale *= share
        used |= names
    return round(total * scale), exact


def _extent_share(st: Statement, extent: Expr, names: Iterable[str], extents: Mapping[str, int], largest: int) -> float | None:
    (name,) = names
    if extents[name] > _ENUMERATE or largest == 0:
        return None
    env = dict(st.model.sizes)
    trips = 0
    for value in range(extents[name]):
        env[name] = value
        trips += max(eval_index(extent, env), 0)
    return trips / (extents[name] * largest)


def _guard_share(st: Statement, guard: Expr, names: list[str], extents: Mapping[str, int]) -> float | None:
    """The share of iterations that pass a guard: mixed-radix comparisons in closed form, others by enumerating up to 4096 points."""
    points = math.prod(extents[n] for n in names)
    if isinstance(guard, Op) and guard.name in ("<", "<="):
        left, right = linear(guard.args[0], st.model.sizes), linear(guard.args[1], st.model.sizes)
        if left is not None and right is not None and not right[0]:
            reach = 1
            for c, name in sorted((c, v) for v, c in left[0]):
                if c != reach:
                    break
                reach *= extents[name]
            else:
                limit = right[1] - left[1] + (guard.name == "<=")
                return min(max(limit, 0), reach) / reach
    if points > _ENUMERATE:
        return None
    env = dict(st.model.sizes)
    passed = 0
    try:
        for values in product(*(range(extents[n]) for n in names)):
            env.update(zip(names, values, strict=True))
            passed += bool(eval_index(guard, env))
    except LeirError:
        return None
    return passed / points


def footprint(access: Access, moving: frozenset[str] | None = None) -> int:
    """Elements that an access touches while the loop variables in ``moving`` (default: all) run: a bounding box per dimension."""
    st = access.statement
    total = 1
    for index, form, size in zip(access.indices, access.forms, st.model.declarations[access.buffer].shape, strict=True):
        if form is not None:
            span, points = 1, 1
            for var, c in form[0]:
                if moving is None or var in moving:
                    high = max(st.intervals[var][1], 0)
                    span += abs(c) * high
                    points *= high + 1
            touched = min(span, points)
        else:
            env = {v: b if moving is None or v in moving else (0, 0) for v, b in st.intervals.items()}
            found = interval(index, env, st.model.sizes)
            touched = size if found is None else found[1] - found[0] + 1
        total *= max(min(touched, size), 0)
    return total


def stride(access: Access, var: str) -> int | None:
    """Elements between the accesses of neighbouring iterations of ``var`` (row-major); ``None`` for indices that are not linear."""
    step, total = 1, 0
    shape = access.statement.model.declarations[access.buffer].shape
    for form, size in zip(reversed(access.forms), reversed(shape), strict=True):
        if form is None:
            return None
        total += step * next((c for v, c in form[0] if v == var), 0)
        step *= size
    return total
