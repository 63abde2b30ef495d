"""Which dependences another order of execution would break."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias, Union

import islpy as isl

from steptp.analysis.affine import DIM, Frame, sample
from steptp.analysis.dependence import Dependence, dependences
from steptp.analysis.model import Model, Statement
from steptp.errors import internal
from steptp.ir.nodes import Expr, Loop, Path, Program, Stmt, Var
from steptp.ir.walk import get, replace_at

__all__ = ["Time", "Violation", "Order", "violated", "can_reorder", "later_or_equal", "swap_headers"]

Time: TypeAlias = Sequence[Union[int, str, Expr]]
"""A date: integers, loop variable names and index expressions over them, compared lexicographically (shorter ones padded with 0)."""


@dataclass(frozen=True)
class Violation:
    """A dependence with one pair of instances (loop variables of its source and sink) that would run in the wrong order."""

    dependence: Dependence
    pair: tuple[tuple[int, ...], tuple[int, ...]]

    def explain(self) -> str:
        """A sentence."""
        return self.dependence.explain(self.pair)


@dataclass(frozen=True)
class Order:
    """What a new order breaks: ``broken`` real dependences, and ``reassociated`` ones between accumulations with one reducer."""

    broken: tuple[Violation, ...]
    reassociated: tuple[Violation, ...]
    checked: int

    @property
    def legal(self) -> bool:
        """No dependence other than the order of one accumulation changes."""
        return not self.broken


def later_or_equal(pairs: isl.Map, first: tuple[Frame, Time], second: tuple[Frame, Time]) -> isl.Map | None:
    """The pairs whose first end is dated at or after the second; ``None`` when there are none.

    ``pairs`` relates points of the first frame to points of the second. Raises ``AssertionError`` for a date outside
    of the quasi-affine fragment.
    """
    (fa, ta), (fb, tb) = first, second
    length = max(len(ta), len(tb))
    wrong: isl.Map | None = None
    current = pairs
    for n in range(length):
        x, y = (t[n] if n < len(t) else 0 for t in (ta, tb))
        if isinstance(x, int) and isinstance(y, int):
            if x == y:
                continue
            if x > y:
                wrong = current if wrong is None else wrong.union(current)
            return _some(wrong)
        bad, current = _compare(current, fa, x, fb, y)
        if not bad.is_empty():
            wrong = bad if wrong is None else wrong.union(bad)
        if current.is_empty():
            return wrong
    return _some(current if wrong is None else wrong.union(current))


def _some(relation: isl.Map | None) -> isl.Map | None:
    return None if relation is None or relation.is_empty() else relation


def _compare(pairs: isl.Map, fa: Frame, x: int | str | Expr, fb: Frame, y: int | str | Expr) -> tuple[isl.Map, isl.Map]:
    """Pairs with x > y, and pairs with x == y."""
    a, b = _position(fa, x), _position(fb, y)
    if a is not None and b is not None:
        return pairs.order_gt(DIM.in_, a, DIM.out, b), pairs.equate(DIM.in_, a, DIM.out, b)
    left, right = _function(fa, x), _function(fb, y)
    return pairs.intersect(left.gt_map(right)), pairs.intersect(left.eq_map(right))


def _position(frame: Frame, date: int | str | Expr) -> int | None:
    name = date if isinstance(date, str) else date.name if isinstance(date, Var) else None
    return frame.names.index(name) if name in frame.names else None


def _function(frame: Frame, date: int | str | Expr) -> isl.PwAff:
    if isinstance(date, int):
        return frame.constant(date)
    found = frame.aff(Var(date) if isinstance(date, str) else date)
    if found is None:
        raise internal(f"a date outside of the quasi-affine fragment: {date!r}")
    return found


def violated(program: Program, dates: Mapping[int, Time]) -> Order:
    """Check new dates of statements (by ``Statement.id``) against every dependence; statements not named keep their own order."""
    broken: list[Violation] = []
    soft: list[Violation] = []
    checked = 0
    for d in dependences(program):
        if d.src.id not in dates and d.dst.id not in dates:
            continue
        checked += 1
        first, second = dates.get(d.src.id, d.src.time), dates.get(d.dst.id, d.dst.time)
        wrong = later_or_equal(d.relation, (d.src.frame, first), (d.dst.frame, second))
        if wrong is not None:
            pair = sample(wrong)
            assert pair is not None
            (soft if d.reduction else broken).append(Violation(d, pair))
    return Order(tuple(broken), tuple(soft), checked)


def swap_headers(program: Program, path: Path, order: Sequence[int]) -> Program:
    """The program with the headers of a chain of perfectly nested loops at ``path`` permuted; ``order[k]`` is the old depth of the new loop ``k``.

    Raises ``ValueError`` when the loops at ``path`` are not such a chain or declare temporaries.
    """
    chain: list[Loop] = []
    stmt: Stmt = get(program, path)
    for _ in order:
        if not isinstance(stmt, Loop) or (len(chain) < len(order) - 1 and (len(stmt.body) != 1 or stmt.tmps)):
            raise ValueError("not a chain of perfectly nested loops")
        chain.append(stmt)
        stmt = stmt.body[0]
    new: Stmt | None = None
    for depth in reversed(range(len(order))):
        header = chain[order[depth]]
        if new is None:
            new = replace(header, body=chain[-1].body, tmps=chain[-1].tmps)
        else:
            new = replace(header, body=(new,), tmps=())
    assert new is not None
    return replace_at(program, path, new)


def can_reorder(program: Program, path: Path, order: Sequence[int]) -> Order:
    """What permuting a chain of perfectly nested loops at ``path`` breaks (see :func:`swap_headers`; extents must not depend on moved loops).

    Resets move with their accumulations, as the permuted program's own rule places them. Raises ``ValueError`` (no such
    chain) and :class:`LeirError` ``check-reset`` (the permuted program has no defined reset).
    """
    child = swap_headers(program, path, order)
    parent, moved = Model.of(program), Model.of(child)
    dates: dict[int, Time] = {}
    for st in parent.statements:
        twin: Statement = moved.at(st.origin, reset=st.is_reset)
        if twin.time != st.time or st.origin[: len(path)] == path:
            dates[st.id] = twin.time
    return violated(program, dates)
