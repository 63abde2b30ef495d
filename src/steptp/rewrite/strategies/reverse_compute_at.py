"""Move a consumer nest under a loop of its producer, where what an iteration has finished is used at once."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from steptp.ir import DType, If, Loop, LoopKind, Path, Program, Store, Var, print_expr, problems, simplify_index
from steptp.ir.facts import Fact
from steptp.ir.nodes import Expr
from steptp.ir.resets import conjuncts
from steptp.ir.sizes import shape_of
from steptp.ir.walk import body_at, free_vars, loads, replace_at, replace_body
from steptp.rewrite.base import Applied, Exactness, Family, Forwarding, InstanceMap, NotApplicable, Outcome, Site, Strategy
from steptp.rewrite.context import Context, path_text
from steptp.rewrite.fact_kinds import fact
from steptp.rewrite.moving import (
    NewLoop,
    SingleNest,
    bounds,
    changed,
    inputs_of,
    outer_extents,
    place_param,
    read_place,
    rebuilt,
    run_count,
    scope_problem,
    single_nest,
    untiled,
)
from steptp.rewrite.orders import order_problem
from steptp.rewrite.regions import Span, covers, inner_loops, span_of, table_problem, tiling, writes_of
from steptp.rewrite.tools import accumulation_facts, drop_unused_sizes, fold_multiples, instance_map

__all__ = ["ReverseComputeAt", "STRATEGY", "Move", "moves", "plan_move", "tied_by", "applied"]

_KINDS = (LoopKind.SERIAL, LoopKind.PARALLEL, LoopKind.UNROLL)


class ReverseComputeAt(Strategy):
    """Site: path of the consumer nest, ``at`` = path of a loop of the producer.

    All iterations of that loop together have to finish every element that the consumer reads, each in one iteration.
    """

    name = "reverse_compute_at"
    family = Family.LOOP
    classes = (Exactness.BITWISE,)
    summary = "move a consumer under a loop of its producer"

    def sites(self, ctx: Context) -> Iterator[Site]:
        for path, _ in ctx.loops:
            for target in moves(ctx, path):
                if tied_by(ctx, path, target) is not None:
                    yield Site.of(self.name, path, at=place_param(target))

    def apply(self, ctx: Context, site: Site) -> Outcome:
        target = read_place(dict(site.params).get("at"))
        if len(site.params) != 1 or target is None:
            return NotApplicable("bad-site", "reverse_compute_at takes at=<path of a loop of the producer>")
        found = plan_move(ctx, site.path, target)
        return found if isinstance(found, NotApplicable) else applied(ctx, found)


@dataclass(frozen=True)
class Move:
    """A legal move of ``nest`` under the loop at ``target``; ``buffer`` is what ties them: each iteration finishes its part of it."""

    nest: SingleNest
    target: Path
    buffer: str
    made: dict[str, NewLoop]
    child: Program
    store_path: Path
    forward: Forwarding
    instances: InstanceMap


def moves(ctx: Context, path: Path) -> Iterator[Path]:
    """Loops of earlier siblings that write what the nest at ``path`` reads, in serial order."""
    nest = single_nest(ctx, path)
    if isinstance(nest, NotApplicable):
        return
    depth, found = len(path), dict[Path, None]()
    for buffer in dict.fromkeys(e.buffer for e in loads(nest.store.value)):
        for writer, _ in writes_of(ctx).get(buffer, ()):
            if writer[: depth - 1] == path[:-1] and len(writer) > depth and writer[depth - 1] < path[-1]:
                found |= dict.fromkeys(writer[:n] for n in range(depth, len(writer)) if ctx.loop(writer[:n]) is not None)
    yield from sorted(found)


def plan_move(ctx: Context, path: Path, target: Path) -> Move | NotApplicable:
    """The move, or why there is none; kept with the program."""
    return ctx.kept("move", (path, target), lambda: _make_move(ctx, path, target))


def tied_by(ctx: Context, path: Path, target: Path) -> str | None:
    """The buffer of :func:`plan_move`, or ``None`` where there is no move; builds a child only where nothing cheaper decides."""
    tie = _tie(ctx, path, target)
    if isinstance(tie, NotApplicable):
        return None
    legal = _decided(ctx, target, tie)
    if legal is None:
        legal = isinstance(plan_move(ctx, path, target), Move)
    return tie.buffer if legal else None


def _make_move(ctx: Context, path: Path, target: Path) -> Move | NotApplicable:
    tie = _tie(ctx, path, target)
    return tie if isinstance(tie, NotApplicable) else _moved(ctx, tie.nest, target, tie.buffer, tie.spans)


@dataclass(frozen=True)
class _Tie:
    """What would move and why: ``spans`` has the part of each loop's range that belongs to an iteration, as far as ``buffer`` ties it to one."""

    nest: SingleNest
    buffer: str
    spans: dict[str, Span]


def _tie(ctx: Context, path: Path, target: Path) -> _Tie | NotApplicable:
    """All that has to hold but for dependences; kept with the program."""
    return ctx.kept("tie", (path, target), lambda: _find_tie(ctx, path, target))


def _find_tie(ctx: Context, path: Path, target: Path) -> _Tie | NotApplicable:
    nest, loop = single_nest(ctx, path), ctx.loop(target)
    if isinstance(nest, NotApplicable):
        return nest
    nest, depth = untiled(ctx, nest), len(path)
    if loop is None or len(target) < depth or target[: depth - 1] != path[:-1] or target[depth - 1] >= path[-1]:
        return NotApplicable("not-before", f"there is no loop at {path_text(target)} in an earlier nest beside the one at {path_text(path)}")
    if loop.kind not in _KINDS:
        return NotApplicable("loop-kind", f"{loop.var} is a {loop.kind} loop; a nest moves under serial, parallel and unrolled loops")
    if any(isinstance(ctx.stmt(target[:n]), If) for n in range(depth, len(target))):
        return NotApplicable("guarded", f"loop {loop.var} stands under a guard and need not run")
    if any(p.kind.is_bound for p in nest.loops):
        return NotApplicable("loop-kind", "a loop of the nest is bound to a GPU axis")
    if (problem := table_problem(ctx, (nest.store.buffer,)) or scope_problem(ctx, nest, target)) is not None:
        return problem
    candidates = dict.fromkeys(e.buffer for e in loads(nest.store.value))
    tried: NotApplicable | None = None
    for buffer in candidates:
        if not any(p[: len(target)] == target for p, _ in writes_of(ctx).get(buffer, ())):
            continue
        spans = _spans(ctx, nest, target, buffer)
        if isinstance(spans, NotApplicable):
            tried = tried or spans
        else:
            return _Tie(nest, buffer, spans)
    return tried or NotApplicable("not-read", f"the nest at {path_text(path)} reads nothing that is written under {loop.var}")


def _spans(ctx: Context, nest: SingleNest, target: Path, buffer: str) -> dict[str, Span] | NotApplicable:
    """Loop variable of the nest → the part of its range that belongs to an iteration of the target loop."""
    loop, own = ctx.loop(target), {p.var: p for p in nest.loops}
    assert loop is not None
    places = {e.indices for e in loads(nest.store.value) if e.buffer == buffer}
    if len(places) > 1:
        return NotApplicable("several-places", f"the nest reads {buffer} at more than one place in an iteration")
    (indices,) = places
    writers = writes_of(ctx).get(buffer, ())
    if any(p[: len(target)] != target for p, _ in writers):
        return NotApplicable("several-writers", f"{buffer} is also written outside of loop {loop.var}")
    writes = [ctx.by_path[p] for p, _ in writers]
    outer = outer_extents(ctx, target, nest.path[:-1])
    moved: list[str] = []
    out: dict[str, Span] = {}
    for d, index in enumerate(indices):
        found = [(met.stmt.indices[d], inner_loops(met, len(target))) for met in writes if isinstance(met.stmt, Store)]
        span = span_of(found)
        if span is None or not free_vars(span.base) & outer.keys():
            continue  # an iteration reaches along all of it, or the loops around fix it
        if not isinstance(index, Var) or index.name not in own or index.name in out or free_vars(own[index.name].extent):
            return NotApplicable("index", f"the nest reads dimension {d} of {buffer} at {print_expr(index, DType.I64)}, not by one loop of its own")
        span = Span(span.base, fold_multiples(ctx.program, span.size))
        tiles = tiling(ctx.program, span, outer)
        if tiles is None or covers(ctx.program, tiles[1], own[index.name].extent) is None:
            return NotApplicable(
                "no-tiles", f"the parts of {buffer} that iterations of {loop.var} write do not lie side by side in dimension {d}, up to its end"
            )
        moved += tiles[0]
        out[index.name] = span
    if len(set(moved)) < len(moved) or set(moved) != set(outer):
        rest = sorted(set(outer) - set(moved))
        return NotApplicable("unfinished", f"{buffer} is not finished in one iteration of {rest[0] if rest else moved[0]}, over which it accumulates")
    return out


def _moved(ctx: Context, nest: SingleNest, target: Path, buffer: str, spans: dict[str, Span]) -> Move | NotApplicable:
    program, loop = ctx.program, ctx.loop(target)
    assert loop is not None
    outer = outer_extents(ctx, target)
    names = dict(zip((p.var for p in nest.loops), ctx.fresh_vars((*target, 0), *(p.var for p in nest.loops)), strict=True))
    by: dict[str, Expr] = {}
    for var, name in names.items():
        span = spans.get(var)
        by[var] = Var(name) if span is None else span.base if span.single else simplify_index(span.base + Var(name))
    known = {c for guard in ctx.guards_around((*target, 0)) for c in conjuncts(guard)}
    made: dict[str, NewLoop] = {}
    for p in nest.loops:
        span = spans.get(p.var)
        if span is None:
            extent = changed(Store("", (), p.extent), by, outer)
            assert isinstance(extent, Store)
            made[p.var] = NewLoop(names[p.var], extent.value, by[p.var])
        else:
            conds = tuple(c for c in bounds(program, span, names[p.var], p.extent, outer) if c not in known)
            made[p.var] = NewLoop("" if span.single else names[p.var], span.size, by[p.var], conds)
    store = changed(nest.store, by, {**outer, **{m.var: m.extent for m in made.values() if m.var}})
    assert isinstance(store, Store)
    moved, below = rebuilt(nest, store, made, outer)
    child = drop_unused_sizes(program, replace_at(replace_body(program, target, (*loop.body, moved)), nest.path))
    store_path = (*target, len(loop.body), *below)
    owner, n = nest.path[:-1], nest.path[-1]
    shifts: list[tuple[Path, Path | None]] = [((*owner, k), (*owner, k - 1)) for k in range(n + 1, len(body_at(program, owner)))]
    forward = Forwarding(((nest.path, None), (nest.store_path, store_path), *shifts))
    back = {forward(p): p for p, _ in ctx.stores}
    iters = nest.iters(by, program, child)
    instances = instance_map(program, child, lambda p: back[p], lambda p: iters if p == store_path else {})
    if not _decided(ctx, target, _Tie(nest, buffer, spans)) and (problem := _dependence_problem(ctx, nest, target, child, instances)) is not None:
        return problem
    return Move(nest, target, buffer, made, child, store_path, forward, instances)


def _decided(ctx: Context, target: Path, tie: _Tie) -> bool | None:
    """Whether dependences allow the move, as far as tiles and the masks of dependences show it; ``None``: compare the programs.

    It is legal where only the tied buffer is shared with what stands between, nothing is computed from itself, and every element gets its terms as before:
    loops that move index the result, or run in the order in which they ran. It is not where a nest between both makes what this one reads, or the like.
    """
    nest, store, moved = tie.nest, tie.nest.store, tie.spans.keys()
    depth, first = len(nest.path) - 1, target[len(nest.path) - 1]
    reads, writes = _touched_between(ctx, nest.path, first)
    mine = inputs_of(ctx, nest) | {e.buffer for p in nest.owners for e in loads(p.extent if isinstance(p, Loop) else p.cond)}
    if mine & writes != {tie.buffer} or store.buffer in reads | writes:
        between = (d for d in ctx.legality.straight_into(nest.store_path) if d.source.statement.origin[:depth] == nest.path[:-1])
        return False if any(first < d.source.statement.origin[depth] and ctx.legality.exists(d, ()) is not None for d in between) else None
    resets = store.reduce is not None and not store.carry
    if store.buffer in mine or (resets and (ctx.reset_loop(nest.store_path) or ())[: len(nest.path)] != nest.path):
        return None
    fixed = {i.name for i in store.indices if isinstance(i, Var)}
    mixed = frozenset().union(*(free_vars(i) for i in store.indices if not isinstance(i, Var)))
    if any(any(loads(i)) for i in store.indices) or (resets and mixed & moved):
        return None
    return True if moved <= fixed or _same_order(ctx, target, tie, fixed) else None


def _same_order(ctx: Context, target: Path, tie: _Tie, fixed: Collection[str]) -> bool:
    """Whether the nest's loops but those in ``fixed`` run through the same sequence after the move, each loop written as digits: the loops that count its parts, then itself."""
    nest, outer = tie.nest, outer_extents(ctx, target, tie.nest.path[:-1])
    chain = [p for at, p in ctx.enclosing_loops((*target, 0)) if len(at) >= len(nest.path)]
    virtual = {v for _, e in nest.origin for v in free_vars(e)}
    if any(p.kind.is_concurrent for p in chain) or any(free_vars(p.extent) for p in (*chain, *nest.loops)) or virtual - set(fixed):
        return False
    before: list[str] = []
    inside: list[str] = []
    for p in nest.loops:
        span = tie.spans.get(p.var)
        if p.var in fixed:
            continue
        tiles = None if span is None else tiling(ctx.program, span, outer)
        own = [] if span is not None and span.single else [f"{p.var}'"]
        before += [*(tiles[0] if tiles is not None else ()), *own]
        inside += own
    return before == [*(p.var for p in chain if p.var in before), *inside]


def _touched_between(ctx: Context, path: Path, first: int) -> tuple[frozenset[str], frozenset[str]]:
    """What the siblings from position ``first`` up to the nest at ``path`` read and write."""
    touched = [ctx.touched((*path[:-1], n)) for n in range(first, path[-1])]
    return frozenset().union(*(reads for reads, _ in touched)), frozenset().union(*(writes for _, writes in touched))


def _dependence_problem(ctx: Context, nest: SingleNest, target: Path, child: Program, instances: InstanceMap) -> NotApplicable | None:
    if found := problems(child):
        return NotApplicable("reset", f"{nest.store.buffer} could not be accumulated there: {found[0].message}")
    if (problem := order_problem(ctx.program, child, instances, "moving the nest")) is not None:
        return problem
    for length in range(len(nest.path), len(target) + 1):
        p = ctx.loop(target[:length])
        if p is not None and p.kind.is_concurrent and (race := Context.of(child).legality.carried(target[:length])) is not None:
            return NotApplicable("race", f"the {p.kind} loop {p.var} would carry a dependence: {race.text}")
    return None


def applied(ctx: Context, move: Move) -> Applied:
    """The step, with its facts."""
    nest, loop, at = move.nest, ctx.loop(move.target), path_text(move.target)
    assert loop is not None
    name = nest.store.buffer
    indexing = frozenset().union(*(free_vars(i) for i in nest.store.indices))
    elements = math.prod(shape_of(tuple(m.extent for v, m in move.made.items() if m.var and v in indexing), ctx.program))
    out: list[Fact] = [
        fact("nest_moved", "child", buffer=name, source=path_text(nest.path), loop=loop.var, at=at),
        fact("final_in_iteration", "dependence", buffer=move.buffer, loop=loop.var, at=at),
        fact("region_computed", "child", buffer=name, elements=elements, loop=loop.var),
        *(fact("bounds_guard", "child", cond=print_expr(c), buffer=name) for m in move.made.values() for c in m.conds),
    ]
    before, after = run_count(ctx.program, nest.store_path), run_count(move.child, move.store_path)
    if before != after and before is not None and after is not None:
        out.append(fact("runs", "child", buffer=name, before=before, after=after))
    out.append(fact("no_order_reversed", "dependence", buffers=(name,)))
    out += accumulation_facts([nest.store])
    out.append(fact("same_operations", "dependence", buffers=tuple(b.name for b in ctx.program.outputs)))
    return Applied(move.child, Exactness.BITWISE, tuple(out), move.instances, move.forward)


STRATEGY = ReverseComputeAt()
