"""Is every access inside its buffer, for every instance and every input?

Intervals decide most accesses; the rest is decided exactly by isl with guards and ``select`` conditions. A look-up is bounded
by the declared range of its integer input (checked at entry) or by the values that the program stores in its table.
"""

from __future__ import annotations

from collections.abc import Iterator

import islpy as isl

from steptp.analysis.affine import point_of
from steptp.analysis.intervals import Interval, interval, value_ranges
from steptp.analysis.model import Access, Model, Statement
from steptp.analysis.problems import Problem
from steptp.ir.nodes import Cast, Expr, Load, Program
from steptp.ir.printer import print_expr
from steptp.ir.sizes import eval_index

__all__ = ["bounds_problems"]


def bounds_problems(program: Program) -> Iterator[Problem]:
    """Accesses that leave, or may leave, their buffer; at most one problem for each access."""
    model = Model.of(program)
    ranges = value_ranges(program)
    for st in (*model.statements, *model.conditions):
        if st.never_runs:
            continue
        seen: set[tuple[object, ...]] = set()
        for access in st.accesses if st.store.buffer else st.reads:
            key = (access.buffer, access.indices, access.conditions)
            if access.in_guard or key in seen or _fast(access, ranges):
                continue
            seen.add(key)
            yield from _exact(st, access)


def _fast(access: Access, ranges: dict[str, Interval]) -> bool:
    st = access.statement
    shape = st.model.declarations[access.buffer].shape
    for index, form, size in zip(access.indices, access.forms, shape, strict=True):
        if form is not None:
            low = high = form[1]
            for var, c in form[0]:
                start, end = st.intervals[var]
                low += min(c * start, c * end)
                high += max(c * start, c * end)
            if low < 0 or high >= size:
                return False
        else:
            found = interval(index, st.intervals, st.model.sizes, ranges)
            if found is None or found[0] < 0 or found[1] >= size:
                return False
    return True


def _exact(st: Statement, access: Access) -> Iterator[Problem]:
    shape = st.model.declarations[access.buffer].shape
    happens, sure = access.happens
    if happens.is_empty():
        return
    outside = isl.Set.empty(happens.get_space())
    for k, (index, size) in enumerate(zip(access.indices, shape, strict=True)):
        f = st.frame.aff(index)
        if f is not None:
            low, high = st.frame.constant(0), st.frame.constant(size)
            outside = outside.union(f.lt_set(low).union(f.ge_set(high)))
            continue
        found = st.index_bounds(index, access.conditions)
        if found is None or found[0] < 0 or found[1] >= size:
            yield _lookup(st, access, k, index, size, found, happens, sure)
            return
    outside = outside.intersect(happens)
    if outside.is_empty():
        return
    yield _problem(st, access, outside, sure)


def _problem(st: Statement, access: Access, outside: isl.Set, sure: bool) -> Problem:
    point = point_of(outside.lexmin().sample_point(), len(st.vars))
    env = {**st.model.sizes, **dict(zip(st.vars, point, strict=True))}
    element = tuple(eval_index(i, env) if st.frame.aff(i) is not None else -1 for i in access.indices)
    shape = st.model.declarations[access.buffer].shape
    does = "writes" if access.is_write else "reads"
    shown = ",".join(map(str, element)) if -1 not in element or all(st.frame.aff(i) is not None for i in access.indices) else "…"
    dims = ",".join(map(str, shape))
    may = "" if sure else " (unless a condition on data prevents it)"
    message = f"{st.instance(point)} {does} {access.buffer}[{shown}], outside of its shape [{dims}]{may}"
    return Problem("bounds", message, st.origin, sure, tuple(zip(st.vars, point, strict=True)), access.buffer, element)


def _lookup(st: Statement, access: Access, k: int, index: Expr, size: int, found: Interval | None, happens: isl.Set, sure: bool) -> Problem:
    point = point_of(happens.lexmin().sample_point(), len(st.vars))
    text = print_expr(index)
    does = "writes" if access.is_write else "reads"
    values = "any value" if found is None else f"{found[0]} to {found[1]}"
    table = index.arg if isinstance(index, Cast) else index
    plain = isinstance(table, Load) and st.model.declarations[table.buffer].role == "in"
    message = f"{st.instance(point)} {does} {access.buffer} at index {k} = {text}, which can be {values}, outside of 0 to {size - 1}"
    if plain and found is not None and isinstance(table, Load) and st.model.declarations[table.buffer].buffer.range is None:
        message += f"; {table.buffer} declares no range"
    return Problem("bounds", message, st.origin, plain and sure and not access.conditions, tuple(zip(st.vars, point, strict=True)), access.buffer)
