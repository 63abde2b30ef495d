"""Superoptimise the expressions of a program: saturate, take the cheapest equal one, and go there by named atomic steps.

:mod:`steptp.rewrite.egraph` says which expression would be best. A best-first search then takes sites of the algebra strategies from the
expression as it stands, through expressions of the same class only, towards the best one. What no longer varies in the inner loops moves out of them
(``loop_invariant_code_motion``). Every step is taken by the engine, which proves it at its site; the graph itself is never trusted.

Cost is that of :mod:`steptp.analysis.features` (``flops``: weights of operators times instances). A result costs less than the program, or there is none.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import TypeAlias

from steptp.analysis.features import features
from steptp.ir.nodes import Cast, Expr, Op, Path, Program, Store
from steptp.ir.printer import print_expr
from steptp.ir.walk import free_vars, loads, replace_at, subexprs
from steptp.rewrite import egraph, engine, registry
from steptp.rewrite.algebra import Algebra, Here, Rewritten
from steptp.rewrite.base import Applied, NotApplicable, Site
from steptp.rewrite.context import Context, path_text
from steptp.rewrite.exprs import Place, expr_at, exprs_of, place_param, replace_expr_at, value_place
from steptp.rewrite.strategies.expression_splitting import conditional
from steptp.rewrite.trace import Trace

__all__ = ["MAX_STEPS", "MAX_STATES", "Accept", "Improved", "Saturation", "saturate"]

MAX_STEPS = 8
"""The longest path of algebra steps from an expression to the best one."""
MAX_STATES = 200
"""Expressions whose sites are listed on the way."""

Accept: TypeAlias = Callable[[Program, Applied], bool]
_CONDITIONS = ("finite", "nonnegative", "nonzero", "positive")


@dataclass(frozen=True, slots=True)
class Improved:
    """One store: ``old`` became ``new`` by ``steps`` (site ids). ``at``: its path before the first of them."""

    at: str
    old: str
    new: str
    steps: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Saturation:
    """``trace``: the named steps (none: nothing better was found). ``before``, ``after``: weighted operations; ``nodes``: the largest graph."""

    trace: Trace
    program: Program
    before: int
    after: int
    improved: tuple[Improved, ...]
    nodes: int
    complete: bool
    """Whether every graph was saturated within its bounds."""


@dataclass(frozen=True, slots=True)
class _Walk:
    """Steps taken from a program, and where the store that they are about is now."""

    program: Program
    path: Path
    accept: Accept
    sites: tuple[Site, ...] = ()
    programs: tuple[Program, ...] = ()
    moves: tuple[Callable[[Path], Path | None], ...] = ()

    @property
    def flops(self) -> int:
        return features(self.program).flops

    def take(self, site: Site, *, cheaper: bool = False) -> _Walk | None:
        """One step further, if the engine and the caller accept it."""
        step = engine.apply(self.program, site)
        if isinstance(step, NotApplicable):
            return None
        path = step.forward(self.path)
        if cheaper and features(step.program).flops >= self.flops:
            return None
        if path is None or not self.accept(self.program, step):
            return None
        return _Walk(step.program, path, self.accept, (*self.sites, site), (*self.programs, step.program), (*self.moves, step.forward))


def saturate(program: Program, *, accept: Accept = lambda parent, step: True, iterations: int = egraph.ITERATIONS, nodes: int = egraph.NODES) -> Saturation:
    """The cheapest program that equal expressions give, as a trace of named steps. Deterministic; imports egglog.

    ``accept(parent, step)`` may turn steps down (those that a verifier finds ``numerically_unsafe``, say); only steps of a path to something cheaper are shown to it.
    """
    trace, improved, largest, complete = Trace.start(program), [], 0, True
    before = features(program).flops
    pending: list[Path] = [path for path, _ in Context.of(program).stores]
    while pending:
        path = pending.pop(0)
        walk = _Walk(program, path, accept)
        for place in _regions(program, path):
            graph = _graph(walk, place, iterations, nodes)
            if graph is None:
                continue
            largest, complete = max(largest, graph.size), complete and graph.saturated
            walk = _better(walk, place, graph)
        if not walk.sites:
            continue
        improved.append(_report(program, path, walk))
        for site, child in zip(walk.sites, walk.programs, strict=True):
            trace = trace.then(site, child)
        program = walk.program
        for move in walk.moves:
            pending = [after for p in pending if (after := move(p)) is not None]
    return Saturation(trace, program, before, features(program).flops, tuple(improved), largest, complete)


def _report(program: Program, path: Path, walk: _Walk) -> Improved:
    old, new = _store(program, path).value, _store(walk.program, walk.path).value
    return Improved(path_text(path), print_expr(old, old.dtype), print_expr(new, new.dtype), tuple(s.id for s in walk.sites))


def _store(program: Program, path: Path) -> Store:
    found = Context.of(program).stmt(path)
    assert isinstance(found, Store)
    return found


def _regions(program: Program, path: Path) -> list[Place]:
    """Places of the largest expressions of one float dtype in the value: itself, and operands of casts; the innermost first."""
    store = _store(program, path)
    found = [value_place(store)] if store.value.dtype.is_float else []
    for place, expr in exprs_of(store):
        if place[0] == len(store.indices) and isinstance(expr, Cast) and expr.arg.dtype.is_float:
            found.append((*place, 0))
    return sorted((p for p in found if isinstance(expr_at(store, p), Op)), key=lambda p: (-len(p), p))


def _graph(walk: _Walk, place: Place, iterations: int, nodes: int) -> egraph.Graph | None:
    """The graph of one region, with what is proven of its parts; ``None`` where there is too little to rewrite."""
    ctx, store = Context.of(walk.program), _store(walk.program, walk.path)
    root = expr_at(store, place)
    if not isinstance(root, Op):  # an expression around it has moved out of the loops
        return None
    operators = [e.name for e in subexprs(root) if isinstance(e, Op) and e.dtype is root.dtype]
    if len(operators) < 2 and not {"/", "pow"} & set(operators):
        return None
    proven: dict[Expr, frozenset[str]] = {}
    for where, expr in exprs_of(store):
        if where[: len(place)] == place and expr.dtype is root.dtype:
            here = Here(ctx, walk.path, store, where, expr)
            mine = frozenset(c for c in _CONDITIONS if here.holds(expr, c))
            proven[expr] = proven.get(expr, mine) & mine
    return egraph.grown(root, proven, iterations, nodes)


def _better(walk: _Walk, place: Place, graph: egraph.Graph) -> _Walk:
    """The walk to the cheapest program: with expressions counted where they can move to, or where they stand."""
    best = walk
    for hoisted in (True, False):
        costs = _Costs.of(walk, place, hoisted)
        target = graph.best(costs.trips, costs.level)
        found = _towards(walk, place, graph, target, costs)
        found = _moved_out(found) if found is not None else walk
        if (found.flops, len(found.sites)) < (best.flops, len(best.sites)) and found.flops < walk.flops:
            best = found
    return best


@dataclass(frozen=True, slots=True)
class _Costs:
    """``trips``: runs of the store per level; ``level``: how many of the loops around a leaf moves with."""

    trips: tuple[int, ...]
    level: Callable[[Expr], int]

    @staticmethod
    def of(walk: _Walk, place: Place, hoisted: bool) -> _Costs:
        ctx, store = Context.of(walk.program), _store(walk.program, walk.path)
        around = ctx.enclosing_loops(walk.path)
        extents = [max(ctx.value(loop.extent) or 1, 1) for _, loop in around]
        trips = tuple(math.prod(extents[:n]) for n in range(len(around) + 1))
        if not hoisted or conditional(store, place):
            return _Costs(trips, lambda _: len(around))

        def level(leaf: Expr) -> int:
            names, read = free_vars(leaf), {e.buffer for e in loads(leaf)}
            for out, (top, loop) in enumerate(reversed(around)):
                changed = read & {s.buffer for _, s in ctx.stores_under(top)}
                if loop.var in names or changed or ctx.guards_around(walk.path) != ctx.guards_around(top):
                    return len(around) - out
            return 0

        return _Costs(trips, level)


def _towards(walk: _Walk, place: Place, graph: egraph.Graph, target: egraph.Best, costs: _Costs) -> _Walk | None:
    """At the first expression met that costs no more than the target; where there is none, at the cheapest one met."""
    store = _store(walk.program, walk.path)
    start = expr_at(store, place)
    assert start is not None
    cheapest = graph.cost_of(start, costs.trips, costs.level)
    if target.cost >= cheapest:
        return None
    wanted = set(subexprs(target.expr))
    heap: list[tuple[int, int, str, Program, tuple[Site, ...]]] = []
    heappush(heap, (0, 0, "", walk.program, ()))
    met, states, fallback = {start}, 0, None
    while heap and states < MAX_STATES:
        _, depth, _, program, sites = heappop(heap)
        states += 1
        for site, child, expr in _neighbours(program, walk.path, place):
            if expr in met or graph.class_of(expr) != graph.root:
                continue
            met.add(expr)
            path = (*sites, site)
            cost = graph.cost_of(expr, costs.trips, costs.level)
            if cost <= target.cost and (done := _taken(walk, path)) is not None:
                return done
            if cost < cheapest:
                cheapest, fallback = cost, path
            if depth + 1 < MAX_STEPS:
                apart = len(wanted ^ set(subexprs(expr)))
                heappush(heap, (apart + depth + 1, depth + 1, print_expr(expr, expr.dtype), child, path))
    return _taken(walk, fallback) if fallback is not None else None


def _neighbours(program: Program, path: Path, region: Place) -> Iterator[tuple[Site, Program, Expr]]:
    """What one step of the algebra family makes of the region."""
    ctx, store = Context.of(program), _store(program, path)
    for place, expr in exprs_of(store):
        if place[: len(region)] != region or not expr.dtype.is_float:
            continue
        here = Here(ctx, path, store, place, expr)
        for strategy in registry.all_strategies():
            if not isinstance(strategy, Algebra):
                continue
            for params in strategy.options(here):
                made = strategy.checked(here, params)
                if isinstance(made, Rewritten):
                    after = replace_expr_at(store, place, made.new)
                    whole = expr_at(after, region)
                    assert whole is not None
                    yield Site.of(strategy.name, path, at=place_param(place), **params), replace_at(program, path, after), whole


def _taken(walk: _Walk, sites: tuple[Site, ...]) -> _Walk | None:
    found: _Walk | None = walk
    for site in sites:
        found = found.take(site) if found is not None else None
    return found


def _moved_out(walk: _Walk) -> _Walk:
    """The store's invariant expressions computed in front of their loops, as long as that makes the program cheaper."""
    hoist = registry.get("loop_invariant_code_motion")
    while True:
        for site in list(hoist.sites(Context.of(walk.program))):
            after = walk.take(site, cheaper=True) if site.path == walk.path else None
            if after is not None:
                walk = after
                break
        else:
            return walk
