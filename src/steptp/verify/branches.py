"""Inputs for the branches that drawn inputs do not reach.

Both programs run over the reals on drawn inputs with every comparison of values noted: below, equal or above. For a comparison that never came out one way
the inputs are moved along a line to the point where its two sides meet, by secants, which for sides that are linear in the inputs is exact; that point and points just
below and above it are inputs for tier 3. Comparisons that come into reach only there are looked for again.

Such inputs add to the regimes and never replace them: what stays undecided on them counts for nothing.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any, TypeAlias

from flint import arb, fmpq

from steptp.interp.errors import EvalError
from steptp.interp.exact import PRECISIONS, ExactAlgebra, precision
from steptp.interp.machine import Machine
from steptp.interp.reals import NeedPrecision, Real
from steptp.interp.scalars import Binary
from steptp.ir.nodes import Op, Program
from steptp.ir.seeds import derive_seed
from steptp.ir.types import DType
from steptp.ir.walk import stmt_exprs, subexprs, visit
from steptp.verify.regimes import exact_inputs

__all__ = ["branch_inputs", "compares_values"]

Point: TypeAlias = dict[str, list[Any]]
_ROUNDS, _SITES, _SECANTS, _MOST, _TENSORS = 2, 6, 5, 24, 3
_PROBED = frozenset({"normal", "ties", "zeros", "clamped", "large"})
_STEPS = (fmpq(1, 512), fmpq(1, 4))  # distances from where the sides meet
_COMPARES = frozenset({"<", "<=", ">", ">=", "==", "!=", "max", "min"})
_NEEDED = {"max": {-1, 1}, "min": {-1, 1}}  # both sides; there is nothing new where they are equal


def compares_values(program: Program) -> bool:
    """Whether some expression compares floats."""
    for met in visit(program):
        for expr in stmt_exprs(met.stmt):
            if any(isinstance(e, Op) and e.name in _COMPARES and e.args[0].dtype.is_float for e in subexprs(expr)):
                return True
    return False


class _Probe(ExactAlgebra):
    """Notes both sides of every comparison, by the place in the program where it stands."""

    def __init__(self) -> None:
        self.sites: list[tuple[str, list[tuple[Real, Real]]]] = []

    def _noted(self, name: str, run: Binary) -> Binary:
        seen: list[tuple[Real, Real]] = []
        self.sites.append((name, seen))

        def probe(a: Real, b: Real) -> Any:
            seen.append((a, b))
            return run(a, b)

        return probe

    def compare(self, name: str) -> Binary:
        return self._noted(name, super().compare(name))

    def binary(self, name: str, dtype: DType) -> Binary:
        run = super().binary(name, dtype)
        return self._noted(name, run) if name in ("max", "min") else run


def _margin(pair: tuple[Real, Real]) -> Real | None:
    """The left side minus the right one, where both are numbers."""
    a, b = pair
    if type(a) is float or type(b) is float:
        return None
    return a - b if type(a) is type(b) else arb(a) - arb(b)


def _sign(margin: Real) -> int | None:
    return 1 if margin > 0 else -1 if margin < 0 else 0 if type(margin) is fmpq or margin.is_zero() else None


class _Prober:
    """One program: what each comparison has come out as so far, and where its sides came closest."""

    def __init__(self, program: Program) -> None:
        self.probe = _Probe()
        self.machine = Machine(program, self.probe)
        self.seen: list[set[int]] = [set() for _ in self.probe.sites]
        self.near: list[tuple[Real, int, Point] | None] = [None] * len(self.probe.sites)
        self.tried: set[tuple[int, int]] = set()

    def run(self, point: Point) -> None:
        """Run once; the notes are kept as far as the program came."""
        for _, seen in self.probe.sites:
            seen.clear()
        with suppress(EvalError, NeedPrecision):
            self.machine.run(point)

    def visit(self, point: Point) -> None:
        """Run and learn."""
        self.run(point)
        for site, (_, pairs) in enumerate(self.probe.sites):
            best = self.near[site]
            for number, pair in enumerate(pairs):
                if (margin := _margin(pair)) is None or (side := _sign(margin)) is None:
                    continue
                self.seen[site].add(side)
                if side and (best is None or abs(margin) < best[0]):
                    best = self.near[site] = (abs(margin), number, point)

    def missing(self) -> Iterator[tuple[int, int, Point]]:
        """Comparisons that have not come out all ways: site, number of the instance, inputs to start from."""
        for site, (name, _) in enumerate(self.probe.sites):
            lacking = _NEEDED.get(name, {-1, 0, 1}) - self.seen[site]
            found = self.near[site]
            if lacking and found is not None and (site, len(self.seen[site])) not in self.tried:
                self.tried.add((site, len(self.seen[site])))
                yield site, found[1], found[2]

    def margin(self, site: int, number: int, point: Point) -> Real | None:
        self.run(point)
        pairs = self.probe.sites[site][1]
        return _margin(pairs[number]) if number < len(pairs) else None


def branch_inputs(programs: Sequence[Program], regimes: Sequence[str], seed: int) -> Iterator[Point]:
    """Inputs near the comparisons of ``programs`` (at tiny sizes, one interface) that draws of ``regimes`` leave one-sided; at most 24."""
    drawn = [{n: d.exact_list() for n, d in exact_inputs(programs[0], r, seed).items()} for r in regimes if r in _PROBED]
    floats = [b.name for b in programs[0].inputs if b.dtype.is_float]
    if not floats or not drawn:
        return
    probers = [_Prober(p) for p in programs if compares_values(p)]
    rng = random.Random(derive_seed("branches", seed))
    left = _MOST
    fresh = drawn
    for _ in range(1 + _ROUNDS):
        with precision(PRECISIONS[0]):
            for prober in probers:
                for point in fresh:
                    prober.visit(point)
            found = [m for prober in probers for place in list(prober.missing())[:_SITES] for m in _meeting(prober, *place, floats, rng)]
        fresh = found[:left]
        left -= len(fresh)
        yield from fresh


def _meeting(prober: _Prober, site: int, number: int, start: Point, floats: Sequence[str], rng: random.Random) -> list[Point]:
    """The inputs on a line from ``start`` where both sides of a comparison meet, and points just before and behind.

    Lines along one tensor come first: many programs are linear in each of their inputs, though not in all at once.
    """
    for names in (*([n] for n in floats[:_TENSORS]), list(floats)):
        turn = {name: [fmpq(rng.randint(1, 64), 64) for _ in start[name]] for name in names}

        def at(t: Real, turn: Point = turn) -> Point:
            return {name: [v + t * d for v, d in zip(values, turn[name], strict=True)] if name in turn else values for name, values in start.items()}

        root, slope = _root(lambda t, at=at: prober.margin(site, number, at(t)))  # type: ignore[misc]
        if root is not None and slope is not None:
            return [at(root), *(at(root + sign * step / slope) for step in _STEPS for sign in (1, -1))]
    return []


def _root(margin: Callable[[Real], Real | None]) -> tuple[Real | None, Real | None]:
    """Where a function of one variable is zero, nearly, and about how steep it is there (secant method); rational arguments."""
    t, step = fmpq(0), fmpq(1, 64)
    here = margin(t)
    for _ in range(_SECANTS):
        if here is None:
            return None, None
        there = margin(t + step)
        if there is None:
            step = -step
            there = margin(t + step)
        if there is None or not (slope := _rational((there - here) / arb(step) if type(there) is arb or type(here) is arb else (there - here) / step)):
            return None, None
        if type(here) is fmpq and here == 0:
            return t, slope
        t = t - _rational(here) / slope
        value = margin(t)
        if value is None:  # the comparison is not reached there: beside it, it may be
            return t, slope
        if abs(value) < fmpq(1, 1 << 20):
            return t, slope
        here, step = value, fmpq(1, 4096)
    return None, None


def _rational(value: Real) -> Real:
    """A rational near a value: itself, or the middle of the ball as a double."""
    if type(value) is fmpq:
        return value
    numerator, denominator = float(value.mid()).as_integer_ratio()
    return fmpq(numerator, denominator)
