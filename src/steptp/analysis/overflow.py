"""Can integer arithmetic overflow, or a divisor be zero? Intervals only: what they cannot exclude is reported as not proven."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from steptp.analysis.intervals import Interval, Overflow, accumulation_trips, interval, narrow, value_ranges
from steptp.analysis.model import Model, Statement
from steptp.analysis.problems import Problem
from steptp.ir.nodes import Cast, Const, Expr, Load, Loop, Op, Program, Size, Var
from steptp.ir.printer import print_expr
from steptp.ir.types import int_range

__all__ = ["overflow_problems"]


def overflow_problems(program: Program) -> Iterator[Problem]:
    """Integer operators whose result may leave its dtype, accumulations that may, and divisors that may be 0."""
    model = Model.of(program)
    ranges = value_ranges(program)
    done: set[int] = set()
    for st in model.statements:
        if st.never_runs:
            continue
        known: dict[Expr, Interval] = {}
        for guard in st.guards:
            yield from _expr(st, guard, ranges, known, done)
            if guard in st.lasting:
                known = narrow(guard, True, st.intervals, model.sizes, ranges, known)
        for expr in (*st.store.indices, st.store.value):
            yield from _expr(st, expr, ranges, known, done)
        if st.store.reduce in ("+", "*") and st.store.value.dtype.is_int:
            yield from _accumulation(st, ranges, known)


def _expr(st: Statement, expr: Expr, ranges: Mapping[str, Interval], known: dict[Expr, Interval], done: set[int]) -> Iterator[Problem]:
    """Maximal integer sub-expressions of ``expr``, each under the conditions of the ``select`` around it."""
    if isinstance(expr, (Const, Var, Size)):
        return
    if expr.dtype.is_int:
        if id(expr) in done and not known:
            return
        found: list[Overflow] = []
        interval(expr, st.intervals, st.model.sizes, ranges, known, found)
        if not found and not known:
            done.add(id(expr))
        for op, values in found:
            yield _finding(st, op, values, ranges, known)
        return
    if isinstance(expr, Op) and expr.name == "select":
        sizes = st.model.sizes
        yield from _expr(st, expr.args[0], ranges, known, done)
        yield from _expr(st, expr.args[1], ranges, narrow(expr.args[0], True, st.intervals, sizes, ranges, known), done)
        yield from _expr(st, expr.args[2], ranges, narrow(expr.args[0], False, st.intervals, sizes, ranges, known), done)
        return
    children = expr.args if isinstance(expr, Op) else expr.indices if isinstance(expr, Load) else (expr.arg,) if isinstance(expr, Cast) else ()
    for child in children:
        yield from _expr(st, child, ranges, known, done)


def _finding(st: Statement, op: Op, values: Interval | None, ranges: Mapping[str, Interval], known: dict[Expr, Interval]) -> Problem:
    if op.name in ("//", "%"):
        divisor = interval(op.args[1], st.intervals, st.model.sizes, ranges, known)
        if divisor is None or divisor[0] <= 0 <= divisor[1]:
            return Problem("division", f"{st.name}: the divisor of {print_expr(op)} may be 0", st.origin, divisor == (0, 0))
    what = "values that are not bounded" if values is None else f"{values[0]} to {values[1]}"
    message = f"{st.name}: the {op.type} expression {print_expr(op)} may overflow (it can be {what})"
    return Problem("overflow", message, st.origin, False)


def _accumulation(st: Statement, ranges: Mapping[str, Interval], known: dict[Expr, Interval]) -> Iterator[Problem]:
    store = st.store
    low, high = int_range(store.value.dtype)
    stored = ranges.get(store.buffer)
    if stored is None and store.reduce == "+":
        value = interval(store.value, st.intervals, st.model.sizes, ranges, known)
        inside = [p for p in st.parents[len(st.model.declarations[store.buffer].path) :] if isinstance(p, Loop)]
        trips = accumulation_trips(store, inside, st.intervals, st.model.sizes)
        stored = None if value is None else (value[0] * trips, value[1] * trips)
        alone = sum(s.store.buffer == store.buffer and not s.is_reset for s in st.model.statements) == 1
        stored = stored if alone else None
    if stored is None or stored[0] < low or stored[1] > high:
        what = "is not bounded" if stored is None else f"can reach {stored[0]} to {stored[1]}"
        yield Problem("overflow", f"{st.name}: the {store.value.dtype} accumulation into {store.buffer} may overflow (it {what})", st.origin, False)
