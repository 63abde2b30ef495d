"""Move a producer nest under a loop of its consumer, where it computes what this iteration reads."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

from steptp.analysis.expand import pure_definition
from steptp.ir import Buffer, DType, Expr, Load, Loop, LoopKind, Path, Program, Scope, Store, Var, ix, print_expr, simplify_index
from steptp.ir.facts import Fact
from steptp.ir.resets import conjuncts
from steptp.ir.sizes import shape_of
from steptp.ir.walk import body_at, buffer_table, declaring_path, free_vars, loads, map_expr, map_stmt_exprs, replace_at, replace_body, substitute
from steptp.rewrite.base import Applied, BufferMap, Exactness, Family, Forwarding, InstanceMap, NotApplicable, Outcome, Site, Strategy
from steptp.rewrite.context import Context, path_text
from steptp.rewrite.fact_kinds import fact
from steptp.rewrite.moving import (
    NewLoop,
    SingleNest,
    bounds,
    changed,
    outer_extents,
    place_param,
    read_place,
    rebuilt,
    run_count,
    scope_problem,
    single_nest,
    stores_between,
    untiled,
)
from steptp.rewrite.regions import Access, Span, covers, inner_loops, reads_of, span_of, table_problem, tiling, writes_of
from steptp.rewrite.tools import accumulation_facts, drop_unused_sizes, fold_multiples, instance_map

__all__ = ["ComputeAt", "STRATEGY"]

MAX_LOCAL = 1 << 16
_OFFERED = 4  # listed sites run the producer at most so many times as often as before
_STORAGE = ("region", "whole")
_KINDS = (LoopKind.SERIAL, LoopKind.PARALLEL, LoopKind.UNROLL)
_Spans = tuple[Span | None, ...]


class ComputeAt(Strategy):
    """Site: path of the producer nest, ``at`` = path of the consumer's loop, ``storage`` = ``region`` or ``whole``.

    With ``storage=region`` the temporary shrinks to a new one, private to an iteration, that holds what this iteration reads; elements that
    several iterations read are computed again. With ``storage=whole`` the temporary stays, and no element is computed twice.
    """

    name = "compute_at"
    family = Family.LOOP
    classes = (Exactness.BITWISE,)
    summary = "move a producer under a loop of its consumer"

    def sites(self, ctx: Context) -> Iterator[Site]:
        for path, _ in ctx.loops:
            found = _producer(ctx, path)
            if isinstance(found, NotApplicable):
                continue
            for target in _targets(ctx, found):
                for storage in _STORAGE:
                    plan = _plan(ctx, found, target, storage)
                    if isinstance(plan, NotApplicable):
                        continue
                    after, before = _runs(plan), run_count(ctx.program, found.nest.store_path)
                    if after is not None and before is not None and after <= _OFFERED * before:
                        yield Site.of(self.name, path, at=place_param(target), storage=storage)

    def apply(self, ctx: Context, site: Site) -> Outcome:
        params = dict(site.params)
        target, storage = read_place(params.get("at")), params.get("storage", "region")
        if set(params) - {"at", "storage"} or target is None or storage not in _STORAGE:
            return NotApplicable("bad-site", "compute_at takes at=<path of a loop> and storage=region or whole")
        found = _producer(ctx, site.path)
        if isinstance(found, NotApplicable):
            return found
        plan = _plan(ctx, found, target, str(storage))
        if isinstance(plan, NotApplicable):
            return plan
        child, _, forward = plan.built
        return Applied(child, Exactness.BITWISE, _facts(ctx, plan), _instances(ctx, plan), forward)


@dataclass(frozen=True)
class _Producer:
    """The nest that computes ``buffer``, its later sibling ``user`` that holds all reads, and these reads."""

    nest: SingleNest
    buffer: Buffer
    user: Path
    reads: tuple[Access, ...]


@dataclass(frozen=True)
class _Plan:
    """A move that is legal: per dimension of the buffer what an iteration reads (``None``: all). The result is built when asked for."""

    ctx: Context
    producer: _Producer
    target: Path
    storage: str
    spans: tuple[Span | None, ...]

    @cached_property
    def made(self) -> dict[str, NewLoop]:
        return _new_loops(self.ctx, self.producer, self.target, self.spans)

    @cached_property
    def local(self) -> Buffer | None:
        return _local(self.ctx, self.producer, self.target, self.spans) if self.storage == "region" else None

    @cached_property
    def built(self) -> tuple[Program, Path, Forwarding]:
        """The child, the path of the moved store in it, and where the parent's statements went."""
        return _build(self.ctx, self.producer, self.target, self.spans, self.made, self.local)

    @property
    def name(self) -> str:
        """The buffer that the child computes."""
        return self.local.name if self.local is not None else self.producer.buffer.name


def _producer(ctx: Context, path: Path) -> _Producer | NotApplicable:
    nest = single_nest(ctx, path)
    if isinstance(nest, NotApplicable):
        return nest
    store, name = nest.store, nest.store.buffer
    if name not in ctx.tmp_names:
        return NotApplicable("interface", f"{name} is an output, not a temporary")
    if (problem := table_problem(ctx, (name,))) is not None:
        return problem
    reads = tuple(reads_of(ctx.program).get(name, ()))
    depth = len(path) - 1
    places = {a.met.path[: depth + 1] for a in reads}
    if not reads:
        return NotApplicable("not-read", f"nothing reads {name}")
    if store.carry or any(e.buffer == name for x in (*store.indices, store.value) for e in loads(x)):
        return NotApplicable("recurrence", f"{name} is computed from its own elements")
    if len(places) > 1 or min(places)[:depth] != path[:depth] or min(places)[depth:] <= path[depth:]:
        return NotApplicable("several-readers", f"the reads of {name} do not all stand in one later nest beside its producer; fuse the readers first")
    if len(writes_of(ctx)[name]) > 1:
        return NotApplicable("several-writers", f"{name} is also written elsewhere")
    if store.reduce is not None and (ctx.reset_loop(nest.store_path) or ())[: len(path)] != path:
        return NotApplicable("reset", f"{name} accumulates over a loop around the nest")
    nest = untiled(ctx, nest)
    if (problem := _domain_problem(ctx, nest)) is not None:
        return problem
    (user,) = places
    inputs = {e.buffer for e in loads(store.value)}
    if (other := next((s for _, s in stores_between(ctx, path, user) if s.buffer in inputs), None)) is not None:
        return NotApplicable("changed", f"{other.buffer}, from which {name} is computed, is written before all of {name} is read")
    return _Producer(nest, buffer_table(ctx.program)[name], user, reads)


def _domain_problem(ctx: Context, nest: SingleNest) -> NotApplicable | None:
    """Why the nest does not write the same box of elements whenever it runs, each by one loop variable a dimension."""
    name, dims = nest.store.buffer, nest.dims()
    own = nest.vars
    for d, index in enumerate(nest.store.indices):
        if d not in dims and (free_vars(index) & own or any(loads(index))):
            return NotApplicable("index", f"dimension {d} of {name} is indexed by {print_expr(index, DType.I64)}, not by one loop of the nest")
    spatial = [loop.var for loop in dims.values()]
    if len(set(spatial)) < len(spatial):
        return NotApplicable("index", f"one loop indexes two dimensions of {name}")
    if not dims:
        return NotApplicable("one-element", f"the nest computes one element of {name}")
    if nest.store.reduce is None and (rest := own - set(spatial)):
        return NotApplicable("overwrites", f"the elements of {name} are written again in every iteration of {min(rest)}")
    for owner in nest.owners:
        expr = owner.extent if isinstance(owner, Loop) else owner.cond
        if any(loads(expr)):
            return NotApplicable("data", f"what the nest computes of {name} depends on data")
        if isinstance(owner, Loop) and (owner.kind.is_bound or (owner.var in spatial and free_vars(expr))):
            return NotApplicable("extent-varies", f"loop {owner.var} of the nest is bound to a GPU axis or runs a varying number of times")
        if not isinstance(owner, Loop) and free_vars(expr) - own:
            return NotApplicable("guarded", f"the guard {print_expr(expr)} depends on loops around the nest")
    return None


def _targets(ctx: Context, producer: _Producer) -> Iterator[Path]:
    """The loops of the user that are around all reads, outermost first."""
    first = producer.reads[0].met.path
    for n in range(len(producer.user), len(first)):
        if ctx.loop(first[:n]) is not None and all(len(a.met.path) > n and a.met.path[:n] == first[:n] for a in producer.reads):
            yield first[:n]


def _plan(ctx: Context, producer: _Producer, target: Path, storage: str) -> _Plan | NotApplicable:
    name, loop = producer.buffer.name, ctx.loop(target)
    if loop is None or target not in set(_targets(ctx, producer)):
        return NotApplicable("not-around", f"there is no loop at {path_text(target)} around all reads of {name}")
    if loop.kind not in _KINDS:
        return NotApplicable("loop-kind", f"{loop.var} is a {loop.kind} loop; a nest moves under serial, parallel and unrolled loops")
    if (problem := scope_problem(ctx, producer.nest, target)) is not None:
        return problem
    spans = _spans(ctx, producer, target)
    if isinstance(spans, NotApplicable):
        return spans
    if storage == "whole" and (problem := _not_a_partition(ctx, producer, target, spans)) is not None:
        return problem
    if storage == "region" and producer.buffer.scope is Scope.SHARED:
        return NotApplicable("shared", f"{name} is shared by the threads of a block")
    return _Plan(ctx, producer, target, storage, spans)


def _spans(ctx: Context, producer: _Producer, target: Path) -> _Spans | NotApplicable:
    """What an iteration of the loop at ``target`` reads; kept with the program, for both kinds of storage."""
    return ctx.kept("compute_at_spans", (producer.nest.path, target), lambda: _find_spans(ctx, producer, target))


def _find_spans(ctx: Context, producer: _Producer, target: Path) -> _Spans | NotApplicable:
    name, loop = producer.buffer.name, ctx.loop(target)
    assert loop is not None
    dims, indices = producer.nest.dims(), producer.nest.store.indices
    inside = [inner_loops(a.met, len(target)) for a in producer.reads]
    spans: list[Span | None] = []
    for d, index in enumerate(indices):
        span = span_of([(a.indices[d], loops) for a, loops in zip(producer.reads, inside, strict=True)])
        if d not in dims and (span is None or not span.single or simplify_index(span.base - index) != ix(0)):
            return NotApplicable("other-iteration", f"a read of {name} reaches elements that another iteration of the loops around has computed")
        span = None if span is None else replace(span, size=fold_multiples(ctx.program, span.size))
        all_of_it = span is not None and d in dims and span.base == ix(0) and covers(ctx.program, span.size, dims[d].extent) is not None
        spans.append(None if all_of_it else span)
    if all(spans[d] is None for d in dims):
        return NotApplicable("whole", f"an iteration of {loop.var} reads all of {name}, or what it reads is no box")
    return tuple(spans)


def _runs(plan: _Plan) -> int | None:
    """How often the moved store will run, as :func:`run_count` counts it in the result."""
    ctx, nest = plan.ctx, plan.producer.nest
    at = {loop.var: plan.spans[d] for d, loop in nest.dims().items()}
    total = run_count(ctx.program, (*plan.target, 0))
    for loop in nest.loops:
        span = at.get(loop.var)
        extent = ctx.value(loop.extent if span is None else span.size)
        if total is None or extent is None:
            return None
        total *= max(extent, 0)
    return total


def _new_loops(ctx: Context, producer: _Producer, target: Path, spans: _Spans) -> dict[str, NewLoop]:
    nest, dims = producer.nest, producer.nest.dims()
    at = {loop.var: spans[d] for d, loop in dims.items()}
    outer = outer_extents(ctx, target)
    names = dict(zip((p.var for p in nest.loops), ctx.fresh_vars((*target, 0), *(p.var for p in nest.loops)), strict=True))
    by: dict[str, Expr] = {}
    for loop in nest.loops:
        span = at.get(loop.var)
        by[loop.var] = Var(names[loop.var]) if span is None else span.base if span.single else simplify_index(span.base + Var(names[loop.var]))
    known = {c for guard in ctx.guards_around((*target, 0)) for c in conjuncts(guard)}
    out: dict[str, NewLoop] = {}
    for loop in nest.loops:
        span = at.get(loop.var)
        if span is None:
            extent = changed(Store("", (), loop.extent), by, outer)
            assert isinstance(extent, Store)
            out[loop.var] = NewLoop(names[loop.var], extent.value, by[loop.var])
        else:
            conds = tuple(c for c in bounds(ctx.program, span, names[loop.var], loop.extent, outer) if c not in known)
            out[loop.var] = NewLoop("" if span.single else names[loop.var], span.size, by[loop.var], conds)
    return out


def _not_a_partition(ctx: Context, producer: _Producer, target: Path, spans: _Spans) -> NotApplicable | None:
    """Why the regions of the iterations would not make up the buffer, each element once."""
    name, dims = producer.buffer.name, producer.nest.dims()
    outer = outer_extents(ctx, target, producer.nest.path[:-1])
    moved: list[str] = []
    for d, loop in dims.items():
        if (span := spans[d]) is None:
            continue
        found = tiling(ctx.program, span, outer)
        if found is None or covers(ctx.program, found[1], loop.extent) is None:
            return NotApplicable("recomputed", f"iterations read overlapping or incomplete parts of dimension {d} of {name}; use storage=region")
        moved += found[0]
    if len(set(moved)) < len(moved) or set(moved) != set(outer):
        rest = sorted(set(outer) - set(moved))
        return NotApplicable("recomputed", f"every iteration of {rest[0] if rest else moved[0]} would compute the same elements of {name}; use storage=region")
    return None


def _kept(producer: _Producer, spans: _Spans) -> list[int]:
    """The dimensions that the region keeps."""
    return [d for d in producer.nest.dims() if (span := spans[d]) is None or not span.single]


def _local(ctx: Context, producer: _Producer, target: Path, spans: _Spans) -> Buffer:
    old, dims = producer.buffer, producer.nest.dims()
    shape = tuple(dims[d].extent if (span := spans[d]) is None else span.size for d in _kept(producer, spans))
    crossed = {p.kind for a in producer.reads for p in a.met.parents[len(target) :] if isinstance(p, Loop)}
    alone = all(not k.is_concurrent or k is LoopKind.VECTOR for k in crossed) and math.prod(shape_of(shape, ctx.program)) <= MAX_LOCAL
    (name,) = ctx.fresh_global(f"{old.name}l")
    return Buffer(name, old.dtype, shape, Scope.LOCAL if alone else Scope.GLOBAL)


def _build(ctx: Context, producer: _Producer, target: Path, spans: _Spans, made: dict[str, NewLoop], local: Buffer | None) -> tuple[Program, Path, Forwarding]:
    nest, program, loop = producer.nest, ctx.program, ctx.loop(target)
    assert loop is not None
    kept = _kept(producer, spans)
    around = {**outer_extents(ctx, target), **{m.var: m.extent for m in made.values() if m.var}}
    store = changed(nest.store, {v: m.becomes for v, m in made.items()}, around)
    assert isinstance(store, Store)
    body = loop.body
    if local is not None:
        dims = nest.dims()
        store = replace(store, buffer=local.name, indices=tuple(Var(made[dims[d].var].var) for d in kept))

        def shrink(expr: Expr) -> Expr:
            if not (isinstance(expr, Load) and expr.buffer == producer.buffer.name):
                return expr
            places = (expr.indices[d] if (span := spans[d]) is None else simplify_index(expr.indices[d] - span.base) for d in kept)
            return Load(local.name, tuple(places), expr.type)

        body = tuple(map_stmt_exprs(s, lambda e: map_expr(e, shrink)) for s in body)
    moved, below = rebuilt(nest, store, made, outer_extents(ctx, target))
    first = min(a.met.path[len(target)] for a in producer.reads)
    child = replace_body(program, target, (*body[:first], moved, *body[first:]), (*loop.tmps, local) if local is not None else None)
    if local is not None:
        home = declaring_path(program, producer.buffer.name)
        holder = ctx.loop(home)
        tmps = child.tmps if holder is None else holder.tmps
        child = replace_body(child, home, body_at(child, home), tuple(b for b in tmps if b.name != producer.buffer.name))
    child = drop_unused_sizes(program, replace_at(child, nest.path))
    owner, n = nest.path[:-1], nest.path[-1]
    here = (*owner, target[len(owner)] - 1, *target[len(owner) + 1 :])
    siblings = range(n + 1, len(body_at(program, owner)))
    moves: list[tuple[Path, Path | None]] = [(nest.path, None), (nest.store_path, (*here, first, *below))]
    moves += [((*owner, k), (*owner, k - 1)) for k in siblings]
    moves += [((*target, k), (*here, k + (k >= first))) for k in range(len(loop.body))]
    return child, (*here, first, *below), Forwarding(tuple(moves))


def _instances(ctx: Context, plan: _Plan) -> InstanceMap | None:
    """Every store runs its own instances, each once; a pointwise producer that shrinks is read through, an accumulation that is computed again is left to tier 3."""
    child, store_path, forward = plan.built
    nest, name = plan.producer.nest, plan.producer.buffer.name
    linked = plan.local is None
    buffers: tuple[BufferMap, ...] = ()
    if plan.local is not None and nest.store.reduce is not None:
        if _not_a_partition(ctx, plan.producer, plan.target, plan.spans) is not None:
            return None
        fixed = {v: Var(f"@{v}") for v in outer_extents(ctx, plan.target)}
        kept = _kept(plan.producer, plan.spans)
        places = (Var(f"d{d}") if (span := plan.spans[d]) is None else Var(f"d{d}") - substitute(span.base, fixed) for d in kept)
        linked, buffers = True, (BufferMap(name, plan.local.name, tuple(places), per_iteration=True),)
    elif plan.local is not None and (pure_definition(ctx.program, name) is None or pure_definition(child, plan.local.name) is None):
        return None
    back = {forward(p): p for p, _ in ctx.stores}

    def source(path: Path) -> Path | None:
        return None if path == store_path and not linked else back[path]

    by = nest.iters({v: m.becomes for v, m in plan.made.items()}, ctx.program, child)
    return replace(instance_map(ctx.program, child, source, lambda p: by if p == store_path else {}), buffers=buffers)


def _facts(ctx: Context, plan: _Plan) -> tuple[Fact, ...]:
    nest, old, loop = plan.producer.nest, plan.producer.buffer, ctx.loop(plan.target)
    assert loop is not None
    child, store_path, _ = plan.built
    at = path_text(plan.target)
    elements = math.prod(shape_of(tuple(m.extent for d, p in nest.dims().items() if (m := plan.made[p.var]).var), ctx.program))
    out = [
        fact("nest_moved", "child", buffer=old.name, source=path_text(nest.path), loop=loop.var, at=at),
        fact("reads_under", "parent", buffer=old.name, count=len(plan.producer.reads), loop=loop.var, at=at),
        fact("region_computed", "child", buffer=plan.name, elements=elements, loop=loop.var),
    ]
    if inputs := tuple(sorted({e.buffer for e in loads(nest.store.value)})):
        out.append(fact("inputs_kept", "parent", buffers=inputs, first=path_text(nest.path), last=path_text(plan.producer.user)))
    out += [fact("bounds_guard", "child", cond=print_expr(c), buffer=plan.name) for m in plan.made.values() for c in m.conds]
    before, after = run_count(ctx.program, nest.store_path), run_count(child, store_path)
    if before != after and before is not None and after is not None:
        out.append(fact("runs", "child", buffer=plan.name, before=before, after=after))
    if plan.local is not None:
        size = math.prod(shape_of(plan.local.shape, ctx.program))
        out.append(fact("buffer_added", "child", name=plan.local.name, dtype=str(old.dtype), elements=size))
        out.append(fact("buffer_removed", "child", name=old.name, dtype=str(old.dtype), elements=math.prod(shape_of(old.shape, ctx.program))))
    else:
        out += accumulation_facts([nest.store])
    out.append(fact("same_operations", "dependence", buffers=tuple(b.name for b in ctx.program.outputs)))
    return tuple(out)


STRATEGY = ComputeAt()
