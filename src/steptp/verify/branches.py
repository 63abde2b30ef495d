"""Inputs for the branches that drawn inputs do not reach.

Both programs run over the reals on drawn inputs with every comparison of values noted: below, equal or above. For a comparison that never came out one way
the inputs are moved along a line to the point where its two sides meet, by secants, which for sides that are linear in the inputs is exact, and by halving
where a side has steps; that point and points just below and above it are inputs for tier 3. Comparisons that come into reach only there are looked for again.
At tiny sizes a point is all inputs, at real sizes a function that gives the elements that one output element asks for.

Such inputs add to the regimes and never replace them: what stays undecided on them counts for nothing.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from fractions import Fraction
from typing import Any, Generic, TypeAlias, TypeVar

from flint import arb, fmpq

from steptp.interp.demand import BudgetExceeded, DemandEvaluator, Source
from steptp.interp.errors import EvalError
from steptp.interp.exact import PRECISIONS, ExactAlgebra, Undecided, precision
from steptp.interp.machine import Machine
from steptp.interp.reals import NeedPrecision, Real
from steptp.interp.scalars import Binary, Unary
from steptp.ir.nodes import Const, Op, Program
from steptp.ir.seeds import derive_seed
from steptp.ir.sizes import shape_of
from steptp.ir.types import DType, int_range
from steptp.ir.walk import loads, stmt_exprs, subexprs, visit
from steptp.verify.novel import COMPARES, comparisons, novel, scaled_points, tie_points
from steptp.verify.regimes import LazyDraw, exact_inputs, lazy_inputs

__all__ = ["branch_inputs", "branch_sources", "compares_values"]

Point: TypeAlias = dict[str, list[Any]]
_P = TypeVar("_P")
_ROUNDS, _SITES, _SECANTS, _MOST, _TENSORS = 2, 6, 5, 30, 3
_PROBED = frozenset({"normal", "ties", "zeros", "clamped", "large"})
_WHOLE_POINTS = 3
_RUNS = 240  # of one program, in search of meetings
_FAR = 4  # times the way to where the sides meet
_REACH, _HALVINGS, _DENOMINATOR = 10, 28, 4096
_STEPS = (fmpq(1, 1 << 16), fmpq(1, 4))  # distances from where the sides meet
_NEEDED = {"max": {-1, 1}, "min": {-1, 1}}  # both sides; there is nothing new where they are equal


def compares_values(program: Program) -> bool:
    """Whether some expression compares floats or looked-up integers, or a running maximum or minimum starts from something else than an infinity."""
    return bool(comparisons(program))


class _Probe(ExactAlgebra):
    """Notes both sides of every comparison, by the place in the program where it stands, and which values are the program's own constants."""

    def __init__(self) -> None:
        self.sites: list[tuple[str, list[tuple[Real, Real]]]] = []
        self.constants: dict[int, Real] = {}
        self.negated: dict[int, Real] = {}

    def const(self, value: float, dtype: DType) -> Real:
        number = super().const(value, dtype)
        self.constants[id(number)] = number
        return number

    def unary(self, name: str, dtype: DType) -> Unary:
        run = super().unary(name, dtype)
        if name != "neg":
            return run

        def negated(a: Real) -> Any:
            if id(a) not in self.constants:
                return run(a)
            value = self.negated.setdefault(id(a), run(a))
            self.constants[id(value)] = value
            return value

        return negated

    def constant(self, pair: tuple[Real, Real]) -> bool:
        """Whether a side is a constant itself; of a running maximum, say, only what it starts from is."""
        return id(pair[0]) in self.constants or id(pair[1]) in self.constants

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


class _Prober(Generic[_P]):
    """One program: what each comparison has come out as so far, and where its sides came closest. ``execute`` runs it with ``probe`` as its algebra."""

    def __init__(self, probe: _Probe, execute: Callable[[_P], object]) -> None:
        self.probe, self.execute = probe, execute
        self.seen: list[set[int]] = [set() for _ in 2 * self.probe.sites]  # twice: with a constant on one side, and without
        self.near: list[tuple[Real, int, _P] | None] = [None] * len(self.seen)
        self.first = self.near.copy()  # the same at the first point that reached the comparison: no special values there
        self.tried: set[tuple[int, int]] = set()
        self.runs = 0

    def run(self, point: _P) -> None:
        """Run once; the notes are kept as far as the program came."""
        for _, seen in self.probe.sites:
            seen.clear()
        with suppress(EvalError, NeedPrecision, BudgetExceeded, Undecided):
            self.execute(point)

    def visit(self, point: _P) -> None:
        """Run and learn."""
        self.run(point)
        for site, (_, pairs) in enumerate(self.probe.sites):
            here: list[tuple[Real, int, _P] | None] = [None, None]
            for number, pair in enumerate(pairs):
                if (margin := _margin(pair)) is None or (side := _sign(margin)) is None:
                    continue
                which = self.probe.constant(pair)
                self.seen[2 * site + which].add(side)
                closest = here[which]
                if side and (closest is None or abs(margin) < closest[0]):
                    here[which] = (abs(margin), number, point)
            for place, found in zip((2 * site, 2 * site + 1), here, strict=True):
                best = self.near[place]
                if found is not None and (best is None or found[0] < best[0]):
                    self.near[place] = found
                self.first[place] = self.first[place] or found

    def missing(self) -> Iterator[tuple[int, list[tuple[int, _P]]]]:
        """Comparisons that have not come out all ways: site, and numbers of the instance with inputs to start from."""
        for place, seen in enumerate(self.seen):
            site = place // 2
            lacking = _NEEDED.get(self.probe.sites[site][0], {-1, 0, 1}) - seen
            starts = [s for s in (self.first[place], self.near[place]) if s is not None]
            if lacking and starts and (place, len(seen)) not in self.tried:
                self.tried.add((place, len(seen)))
                yield site, [(number, point) for _, number, point in starts]

    def margin(self, site: int, number: int, point: _P) -> Real | None:
        """The difference of both sides of one instance; nothing where it is not reached, or after too many runs."""
        self.runs += 1
        if self.runs > _RUNS:
            return None
        self.run(point)
        pairs = self.probe.sites[site][1]
        return _margin(pairs[number]) if number < len(pairs) else None


def branch_inputs(programs: Sequence[Program], regimes: Sequence[str], seed: int) -> Iterator[Point]:
    """Inputs near the comparisons of ``programs`` (at tiny sizes, one interface) that draws of ``regimes`` leave one-sided; at most 30."""
    drawn = [{n: d.exact_list() for n, d in exact_inputs(programs[0], r, seed).items()} for r in regimes if r in _PROBED]
    probers: list[_Prober[Point]] = []
    for program in programs:
        if compares_values(program):
            probe = _Probe()
            machine = Machine(program, probe)
            if probe.sites:
                probers.append(_Prober(probe, machine.run))
    if drawn:
        yield from _integer_points(programs, drawn[0], seed)
        if probers and novel(programs[0], programs[-1]):
            yield from _novel_points(probers[-1], drawn[0], _floats(programs[0]), seed)
    yield from _search(probers, drawn, _floats(programs[0]), _line, seed)


def _novel_points(prober: _Prober[Point], start: Point, floats: Sequence[str], seed: int) -> Iterator[Point]:
    """More points where the last program compares what the first does not (:mod:`steptp.verify.novel`)."""

    def margin(site: int, point: Point) -> Real | None:
        prober.run(point)
        pairs = prober.probe.sites[site][1]
        return _margin(pairs[0]) if pairs else None

    yield from tie_points([name for name, _ in prober.probe.sites], margin, _secant, start, floats)
    yield from scaled_points(start, floats, seed)


def _integer_points(programs: Sequence[Program], start: Point, seed: int) -> Iterator[Point]:
    """``start`` with integer inputs drawn from the numbers that look-ups are compared with, and their neighbours."""
    known: set[int] = set()
    for expr in (e for p in programs for met in visit(p) for x in stmt_exprs(met.stmt) for e in subexprs(x)):
        if isinstance(expr, Op) and expr.name in COMPARES and expr.args[0].dtype.is_int and any(loads(expr)):
            known |= {sign * int(e.value) for a in expr.args for e in subexprs(a) if isinstance(e, Const) and e.type.is_int for sign in (1, -1)}
    if not known:
        return
    rng = random.Random(derive_seed("integers", seed))
    near = sorted({n + d for n in known for d in (-1, 0, 1)})
    chosen: dict[str, list[int]] = {}
    for buffer in programs[0].inputs:
        if buffer.dtype.is_int:
            low, high = shape_of(buffer.range, programs[0]) if buffer.range is not None else (int_range(buffer.dtype)[0], int_range(buffer.dtype)[1] + 1)
            chosen[buffer.name] = [n for n in near if low <= n < high]
    for _ in range(_WHOLE_POINTS if any(chosen.values()) else 0):
        yield {name: rng.choices(chosen[name], k=len(values)) if chosen.get(name) else values for name, values in start.items()}


def branch_sources(programs: Sequence[Program], output: str, index: tuple[int, ...], regimes: Sequence[str], seed: int, effort: int) -> Iterator[Source]:
    """The same for one output element at real sizes; ``effort`` bounds the statements visited by one evaluation."""
    drawn = [_element_source(lazy_inputs(programs[0], r, seed)) for r in regimes if r in _PROBED]
    probers = [_on_demand(p, output, index, effort) for p in programs if compares_values(p)]
    line: _Line[Source] = _lazy_line
    yield from _search(probers, drawn, _floats(programs[0]), line, seed)


def _floats(program: Program) -> list[str]:
    return [b.name for b in program.inputs if b.dtype.is_float]


def _element_source(draws: dict[str, LazyDraw]) -> Source:
    return lambda name, flat: draws[name].exact(flat)


def _on_demand(program: Program, output: str, index: tuple[int, ...], effort: int) -> _Prober[Source]:
    probe = _Probe()
    here: list[Source] = []
    evaluator = DemandEvaluator(program, lambda name, flat: here[0](name, flat), effort, probe)

    def execute(source: Source) -> None:
        here[:] = [source]
        evaluator.element(output, index, PRECISIONS[:1])

    return _Prober(probe, execute)


def _search(probers: Sequence[_Prober[_P]], drawn: list[_P], floats: Sequence[str], line: _Line[_P], seed: int) -> Iterator[_P]:
    if not floats or not drawn:
        return
    rng = random.Random(derive_seed("branches", seed))
    left = _MOST
    fresh = drawn
    for _ in range(1 + _ROUNDS):
        with precision(PRECISIONS[0]):
            for prober in probers:
                for point in fresh:
                    prober.visit(point)
            found = [m for prober in probers for place in list(prober.missing())[:_SITES] for m in _meeting(prober, *place, floats, line, rng)]
        fresh = found[:left]
        left -= len(fresh)
        yield from fresh


_Line: TypeAlias = Callable[[_P, Sequence[str], random.Random], Callable[[Real], _P]]
"""(start, names of the inputs that move, seeded choice of a direction) → the point at a distance."""


def _line(start: Point, names: Sequence[str], rng: random.Random) -> Callable[[Real], Point]:
    turn = {name: [fmpq(rng.randint(32, 64), 64) for _ in start[name]] for name in names}
    return lambda t: {name: [v + t * d for v, d in zip(values, turn[name], strict=True)] if name in turn else values for name, values in start.items()}


def _lazy_line(start: Source, names: Sequence[str], rng: random.Random) -> Callable[[Real], Source]:
    steps = [fmpq(n, 64) for n in range(32, 65)]
    turn = {name: LazyDraw(rng.choices(steps, k=1021), rng.getrandbits(60)) for name in names}
    return lambda t: lambda name, flat: start(name, flat) + t * turn[name].exact(flat) if name in turn else start(name, flat)


def _meeting(prober: _Prober[_P], site: int, starts: Sequence[tuple[int, _P]], floats: Sequence[str], line: _Line[_P], rng: random.Random) -> list[_P]:
    """The inputs on a line where both sides of a comparison meet, points just before and behind, and one where all its instances are likely to be behind.

    Lines along one tensor come first: many programs are linear in each of their inputs, though not in all at once. From the second start, the nearest
    point, only all inputs are moved together.
    """
    every = list(floats)
    alone = [[n] for n in floats[:_TENSORS]] if len(floats) > 1 else []
    for (number, start), ways in zip(starts, ([*alone, every], [every]), strict=False):
        for names in ways:
            at = line(start, names, rng)

            def margin(t: Real, at: Callable[[Real], _P] = at, number: int = number) -> Real | None:
                return prober.margin(site, number, at(t))

            root, slope = _secant(margin)
            if root is None and names is every and (between := _halved(margin)) is not None:
                root, slope = _secant(margin, between)
                if root is None:
                    root, slope = between, fmpq(1)
            if root is not None and slope is not None:
                return [at(root), *(at(root + sign * step / slope) for step in _STEPS for sign in (1, -1)), at(_FAR * root)]
    return []


def _secant(margin: Callable[[Real], Real | None], start: Real | None = None) -> tuple[Real | None, Real | None]:
    """Where a function of one variable is zero, nearly, and about how steep it is there (secant method); rational arguments."""
    t, step = (fmpq(0), fmpq(1, 64)) if start is None else (start, fmpq(1, 1 << 20))
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
        if (away := _rational(here)) is None:
            return None, None
        t = t - away / slope
        value = margin(t)
        if value is None:  # the comparison is not reached there: beside it, it may be
            return t, slope
        if abs(value) < fmpq(1, 1 << 20):
            closer = _rational(value)
            return _simple(margin, t, t if closer is None else t - closer / slope), slope
        here, step = value, fmpq(1, 4096)
    return None, None


def _simple(margin: Callable[[Real], Real | None], t: Real, closer: Real) -> Real:
    """The rational of small denominator beside a root (``closer``) if it is the root itself, as of ``x*x - 9/4``; else the root as it was found."""
    near = Fraction(int(closer.numerator), int(closer.denominator)).limit_denominator(_DENOMINATOR)
    simple = fmpq(near.numerator, near.denominator)
    value = margin(simple)
    return simple if type(value) is fmpq and value == 0 else t


def _halved(margin: Callable[[Real], Real | None]) -> Real | None:
    """Where a function of one variable changes its sign, by halving; for functions with steps, on which secants fail."""
    low = fmpq(0)
    start = margin(low)
    if start is None or (side := _sign(start)) is None:
        return None
    for high in (sign * fmpq(4**k, 64) for k in range(_REACH) for sign in (1, -1)):
        value = margin(high)
        if value is None or (other := _sign(value)) is None or other == side:
            continue
        for _ in range(_HALVINGS if other else 0):
            middle = (low + high) / 2
            value = margin(middle)
            found = None if value is None else _sign(value)
            if found is None:
                break
            if found == 0:
                return middle
            low, high = (middle, high) if found == side else (low, middle)
        return high
    return None


def _rational(value: Real) -> Real | None:
    """A rational near a value: itself, or the middle of the ball as a double; nothing where that is not finite."""
    if type(value) is fmpq:
        return value
    number = float(value.mid())
    return fmpq(*number.as_integer_ratio()) if math.isfinite(number) else None
