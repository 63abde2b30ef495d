"""Inputs for comparisons that only the candidate makes.

A step of a strategy compares what its parent compares. A candidate that compares something else may hide a wrong branch behind it, and what the branch does may be
hidden in turn, by a maximum over many, by a relu, by a saturated tanh. So such a candidate gets more: points at which a comparison ties with everything else
held simple (all inputs equal, one tensor moving, one element moving), so that all instances tie or nothing else matters; and points whose tensors
differ in scale and in how many elements are zero.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias

from flint import fmpq

from steptp.interp.exact import PRECISIONS, precision
from steptp.interp.reals import Real
from steptp.ir.nodes import Const, Op, Program, Store
from steptp.ir.seeds import derive_seed
from steptp.ir.walk import loads, stmt_exprs, subexprs, visit

__all__ = ["COMPARES", "comparisons", "novel", "scaled_points", "tie_points"]

Point: TypeAlias = dict[str, list[Any]]
COMPARES = frozenset({"<", "<=", ">", ">=", "==", "!=", "max", "min"})
_SITES, _TENSORS, _MIXED = 12, 4, 32
_BESIDE = fmpq(1, 1 << 16)
_SCALES = tuple(fmpq(1 << k) / 64 for k in (0, 4, 6, 9, 13, 17))


def comparisons(program: Program) -> Counter[tuple[str, tuple[float | None, ...]]]:
    """Comparisons of floats or looked-up integers by operator and constant operands, and starts of running maxima and minima other than infinities."""
    kept = program._cache.get("comparisons")
    if isinstance(kept, Counter):
        return kept
    running = {m.stmt.buffer for m in visit(program) if isinstance(m.stmt, Store) and m.stmt.value.dtype.is_float and m.stmt.reduce in ("max", "min")}
    found: Counter[tuple[str, tuple[float | None, ...]]] = Counter()
    for met in visit(program):
        if isinstance(met.stmt, Store) and met.stmt.reduce is None and met.stmt.buffer in running:
            start = float(met.stmt.value.value) if isinstance(met.stmt.value, Const) else None
            if start is None or not math.isinf(start):
                found["start", (start,)] += 1
        for expr in (e for x in stmt_exprs(met.stmt) for e in subexprs(x)):
            if isinstance(expr, Op) and expr.name in COMPARES and (expr.args[0].dtype.is_float or any(loads(expr))):
                found[expr.name, tuple(float(a.value) if isinstance(a, Const) else None for a in expr.args)] += 1
    program._cache["comparisons"] = found
    return found


def novel(parent: Program, child: Program) -> bool:
    """Whether the child compares something that the parent does not."""
    return bool(comparisons(child) - comparisons(parent))


def tie_points(
    sites: Sequence[str],
    margin: Callable[[int, Point], Real | None],
    root: Callable[[Callable[[Real], Real | None], Real], tuple[Real | None, Real | None]],
    start: Point,
    floats: Sequence[str],
) -> Iterator[Point]:
    """Points at which the first instance of a comparison is a tie, and just beside.

    ``sites`` are the operators of the comparisons, ``margin(site, point)`` is the difference of the sides of the first instance, ``root`` solves for its zero.
    """
    order = sorted(range(len(sites)), key=lambda n: sites[n] not in ("==", "!="))[:_SITES]
    for site in order:
        for at in _lines(start, floats):

            def along(t: Real, at: Callable[[Real], Point] = at, site: int = site) -> Real | None:
                return margin(site, at(t))

            with precision(PRECISIONS[0]):
                t, slope = root(along, fmpq(1, 3))
            if t is not None and slope is not None:
                yield from (at(t + sign * _BESIDE / slope) for sign in (0, 1, -1))


def _lines(start: Point, floats: Sequence[str]) -> Iterator[Callable[[Real], Point]]:
    """All inputs equal; one tensor equal throughout and the others one, or zero; the first element alone moving between ones."""

    def moving(names: Sequence[str], others: Real, count: int | None = None) -> Callable[[Real], Point]:
        """The first ``count`` elements of ``names`` (default: all) are the variable, what is left of them one, and every other tensor ``others``."""
        still = {name: values if name not in floats else [others] * len(values) for name, values in start.items()}

        def at(t: Real) -> Point:
            first = {name: len(start[name]) if count is None else count for name in names}
            return {**still, **{name: [t] * n + [fmpq(1)] * (len(start[name]) - n) for name, n in first.items()}}

        return at

    yield moving(floats, fmpq(1))
    for name in floats[:_TENSORS]:
        if len(floats) > 1:
            yield moving([name], fmpq(1))
            yield moving([name], fmpq(0))
        if len(start[name]) > 1:
            yield moving([name], fmpq(1), 1)


def scaled_points(start: Point, floats: Sequence[str], seed: int) -> Iterator[Point]:
    """Drawn points whose tensors each have a scale, a sign and a share of zeros of their own."""
    rng = random.Random(derive_seed("novel", seed))
    for _ in range(_MIXED):
        point = dict(start)
        for name in floats:
            scale, low, zeros = rng.choice(_SCALES), rng.choice((-64, -64, 1, -256)), rng.choice((0.0, 0.0, 0.5, 0.9))
            high = 0 if low == -256 else 64
            point[name] = [fmpq(0) if rng.random() < zeros else scale * fmpq(rng.randint(low, high), 64) for _ in start[name]]
        yield point
