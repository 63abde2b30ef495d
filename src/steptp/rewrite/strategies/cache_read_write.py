"""Copy a region of a read-only buffer into local memory, or accumulate in local memory and write back once."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

from steptp.analysis.intervals import interval, loop_intervals
from steptp.ir import Buffer, Expr, If, Load, Loop, LoopKind, Op, Path, Scope, Store, Var, ix, same_index, simplify_index
from steptp.ir.index import poly_of
from steptp.ir.nodes import Body, Stmt
from steptp.ir.resets import reset_plan
from steptp.ir.sizes import eval_index, shape_of
from steptp.ir.walk import Visit, body_at, buffer_table, free_vars, loads, map_expr, replace_body, stmt_exprs
from steptp.rewrite.base import Applied, Exactness, Family, Forwarding, NotApplicable, Outcome, Site, Strategy
from steptp.rewrite.context import Context, no_loop, path_text
from steptp.rewrite.exprs import children
from steptp.rewrite.fact_kinds import fact
from steptp.rewrite.regions import accesses_under, inner_loops, split_index
from steptp.rewrite.strategies.compute_inline import reads_through
from steptp.rewrite.strategies.expression_splitting import before_insertion
from steptp.rewrite.tools import instance_map

__all__ = ["CacheReadWrite", "STRATEGY"]

MAX_ELEMENTS = 1 << 16


@dataclass(frozen=True)
class _Region:
    """Per dimension: the part of the index that the loops outside fix, and how many elements the loops inside span."""

    base: tuple[Expr, ...]
    size: tuple[Expr, ...]


class CacheReadWrite(Strategy):
    """Site for ``mode=read``: path of the loop in whose body the copy stands, ``buffer`` = what it copies.

    Site for ``mode=accumulate``: path of the loop before which ``buffer`` resets; the accumulation moves into a local temporary of the loop
    around, and one store writes the result back behind it.
    """

    name = "cache_read_write"
    family = Family.MEMORY
    classes = (Exactness.BITWISE,)
    summary = "copy a region into local memory, or accumulate there and write back"

    def sites(self, ctx: Context) -> Iterator[Site]:
        table = buffer_table(ctx.program)
        for path, loop in ctx.loops:
            for name in dict.fromkeys(e.buffer for _, e in ctx.reads_under(path)):
                if not isinstance(_read_plan(ctx, path, loop, table[name]), NotApplicable):
                    yield Site.of(self.name, path, mode="read", buffer=name)
            for name in dict.fromkeys(s.buffer for _, s in ctx.stores_under(path) if s.reduce is not None and not s.carry):
                if not isinstance(_accumulate_plan(ctx, path, loop, table[name]), NotApplicable):
                    yield Site.of(self.name, path, mode="accumulate", buffer=name)

    def apply(self, ctx: Context, site: Site) -> Outcome:
        params = dict(site.params)
        loop, buffer = ctx.loop(site.path), buffer_table(ctx.program).get(str(params.get("buffer")))
        if loop is None:
            return no_loop(site.path)
        if buffer is None or params.get("mode") not in ("read", "accumulate") or set(params) != {"mode", "buffer"}:
            return NotApplicable("bad-site", "cache_read_write takes mode=read or mode=accumulate and buffer=<name>")
        return _read(ctx, site, loop, buffer) if params["mode"] == "read" else _accumulate(ctx, site, loop, buffer)


def _read_plan(ctx: Context, path: Path, loop: Loop, buffer: Buffer) -> _Region | NotApplicable:
    name = buffer.name
    if name in ctx.touched(path)[1]:
        return NotApplicable("written", f"{name} is also written under {loop.var}, so a copy could be stale")
    if buffer.scope is Scope.LOCAL:
        return NotApplicable("local", f"{name} is local already")
    accesses = [(a.met, a.load) for a in accesses_under(ctx, path, name) if a.load is not None and len(a.met.path) > len(path)]
    if not accesses:
        return NotApplicable("not-read", f"nothing under {loop.var} reads {name}")
    if all(isinstance(v.stmt, Store) and v.stmt.reduce is None and v.stmt.value == e for v, e in accesses):
        return NotApplicable("copied", f"under {loop.var}, {name} is only copied")
    inner = {id(v): inner_loops(v, len(path)) for v, _ in accesses}
    if not any(free_vars(i) & inner[id(v)].keys() for v, e in accesses for i in e.indices):
        return NotApplicable("no-region", f"under {loop.var} only one element of {name} is read in an iteration")
    if (problem := _not_always(ctx, path, buffer, accesses)) is not None:
        return problem
    region = _region(ctx, buffer, [(e, inner[id(v)]) for v, e in accesses])
    if isinstance(region, NotApplicable):
        return region
    elements = math.prod(shape_of(region.size, ctx.program))
    if not 1 < elements <= MAX_ELEMENTS:
        return NotApplicable("region-size", f"the region has {elements} elements; a local copy holds 2 to {MAX_ELEMENTS}")
    if buffer not in ctx.program.inputs and not all(_is_dense(ctx, e, inner[id(v)]) for v, e in accesses):
        return NotApplicable("holes", f"the box around the reads of {name} holds elements that are not read, which may not be defined")
    return region


def _not_always(ctx: Context, path: Path, buffer: Buffer, accesses: list[tuple[Visit, Load]]) -> NotApplicable | None:
    """Why some read may not happen in an iteration of the loop at ``path``, or may not see a local copy made there."""
    for met in {id(met): met for met, _ in accesses}.values():
        if any(isinstance(p, If) for p in met.parents[len(path) :]):
            return NotApplicable("guarded", f"{buffer.name} is read under a guard, so a copy could read out of bounds")
        for loop in (p for p in met.parents[len(path) :] if isinstance(p, Loop)):
            if loop.kind.is_concurrent and loop.kind is not LoopKind.VECTOR:
                return NotApplicable("scope", f"{loop.kind} loop {loop.var} stands between the copy and a read, so the copy could not be local")
            if _least_runs(ctx, met, loop) < 1:
                return NotApplicable("extent-varies", f"{loop.var} may run no iteration, so a copy could read out of bounds")
        if buffer.name in _conditional(ctx, met):
            return NotApplicable("conditional", f"{buffer.name} is read under a condition, so a copy could read out of bounds")
    return None


def _conditional(ctx: Context, met: Visit) -> frozenset[str]:
    """The buffers with an element that a statement may read or not; kept with the program."""

    def found() -> frozenset[str]:
        sure = [e for x in stmt_exprs(met.stmt) for e in _evaluated(x)]
        every = [e for x in stmt_exprs(met.stmt) for e in loads(x)]
        return frozenset(e.buffer for e in set(every) - set(sure)) if len(sure) < len(every) else frozenset()

    return ctx.kept("read_conditionally", met.path, found)


def _least_runs(ctx: Context, met: Visit, loop: Loop) -> int:
    """The fewest iterations of a loop around a statement; 0 where that is not known."""
    if (runs := ctx.value(loop.extent)) is not None:
        return runs
    around = loop_intervals([(p.var, p.extent) for _, p in ctx.enclosing_loops(met.path)], ctx.env)
    runs_from = interval(loop.extent, around, ctx.env)
    return 0 if runs_from is None else runs_from[0]


def _evaluated(expr: Expr) -> Iterator[Load]:
    """The reads that every evaluation of the expression makes."""
    if isinstance(expr, Load):
        yield expr
    below = children(expr)
    if isinstance(expr, Op) and expr.name in ("select", "and", "or"):
        below = below[:1]
    for child in below:
        yield from _evaluated(child)


def _is_dense(ctx: Context, access: Load, inner: Mapping[str, Loop]) -> bool:
    """Every element of the box is read: no loop moves two dimensions, and in each the strides leave no gap."""
    used: set[str] = set()
    for index in access.indices:
        strides = [(eval_index(_factor(value, mono, v), ctx.env), v) for mono, value in poly_of(index).items() for v in _moving(mono, inner)]
        if used & {v for _, v in strides}:
            return False  # a diagonal
        used |= {v for _, v in strides}
        reach = 1
        for stride, v in sorted(strides):
            if stride > reach:
                return False
            reach += stride * (eval_index(inner[v].extent, ctx.env) - 1)
    return True


def _moving(atoms: tuple[Expr, ...], inner: Mapping[str, Loop]) -> list[str]:
    return [a.name for a in atoms if isinstance(a, Var) and a.name in inner]


def _factor(value: int, atoms: tuple[Expr, ...], var: str) -> Expr:
    """The product of a term's factors but for one loop variable."""
    out: Expr = ix(value)
    for atom in atoms:
        out = out if isinstance(atom, Var) and atom.name == var else out * atom
    return out


def _read(ctx: Context, site: Site, loop: Loop, buffer: Buffer) -> Outcome:
    path = site.path
    region = _read_plan(ctx, path, loop, buffer)
    if isinstance(region, NotApplicable):
        return region
    kept = [d for d, size in enumerate(region.size) if size != ix(1)]
    (name,) = ctx.fresh_global(f"{buffer.name}l")
    names = ctx.fresh_vars((*path, 0), *(f"c{d}" for d in kept))
    taken: dict[int, Expr] = {d: Var(v) for d, v in zip(kept, names, strict=True)}
    source = Load(buffer.name, tuple(simplify_index(b + taken[d]) if d in taken else b for d, b in enumerate(region.base)), buffer.dtype)
    made = Store(name, tuple(taken[d] for d in kept), source)
    nest: Stmt = made
    for d, var in reversed(list(zip(kept, names, strict=True))):
        nest = Loop(var, region.size[d], (nest,))

    def local(expr: Expr) -> Expr:
        if isinstance(expr, Load) and expr.buffer == buffer.name:
            return Load(name, tuple(simplify_index(expr.indices[d] - region.base[d]) for d in kept), expr.type)
        return expr

    body = tuple(_map_reads(s, local) for s in loop.body)
    copy = Buffer(name, buffer.dtype, tuple(region.size[d] for d in kept), Scope.LOCAL)
    child = replace_body(ctx.program, path, (nest, *body), (*loop.tmps, copy))
    return Applied(
        child,
        Exactness.BITWISE,
        (
            fact("buffer_added", "child", name=name, dtype=str(buffer.dtype), elements=math.prod(shape_of(copy.shape, ctx.program))),
            fact("region_copied", "child", buffer=buffer.name, into=name, loop=loop.var, at=path_text(path)),
            fact("not_written_under", "parent", buffer=buffer.name, loop=loop.var, at=path_text(path)),
        ),
        instance_map(ctx.program, child, lambda p: before_insertion(p, (*path, 0)), lambda _: {}) if reads_through(ctx, (*path, 0), made, child) else None,
        Forwarding(tuple(((*path, n), (*path, n + 1)) for n in range(len(loop.body)))),
    )


def _map_reads(stmt: Stmt, change: Callable[[Expr], Expr]) -> Stmt:
    def in_expr(expr: Expr) -> Expr:
        return map_expr(expr, change)

    if isinstance(stmt, Store):
        return replace(stmt, indices=tuple(in_expr(i) for i in stmt.indices), value=in_expr(stmt.value))
    inner = tuple(_map_reads(s, change) for s in stmt.body)
    return If(in_expr(stmt.cond), inner) if isinstance(stmt, If) else replace(stmt, extent=in_expr(stmt.extent), body=inner)


def _region(ctx: Context, buffer: Buffer, accesses: list[tuple[Load, dict[str, Loop]]]) -> _Region | NotApplicable:
    """The box that all accesses lie in; every index must be a sum of an outer part, the same for all, and inner loops with positive factors."""
    base: list[Expr] = []
    size: list[Expr] = []
    for d in range(len(buffer.shape)):
        outer: Expr | None = None
        spans: list[Expr] = []
        for access, inside in accesses:
            split = split_index(access.indices[d], inside)
            if split is None:
                return NotApplicable("region", f"the reads of {buffer.name} fill no box: index {d} is no sum of loop variables whose extents are fixed")
            mine, span = split
            if outer is not None and not same_index(outer, mine):
                return NotApplicable("region", f"reads of {buffer.name} start at different places in dimension {d}")
            outer = mine
            spans.append(span)
        largest = max(spans, key=lambda s: eval_index(s, ctx.env))
        if any(not same_index(s, largest) for s in spans):
            return NotApplicable("region", f"reads of {buffer.name} span different lengths in dimension {d}")
        assert outer is not None
        base.append(outer)
        size.append(largest)
    return _Region(tuple(base), tuple(size))


@dataclass(frozen=True)
class _Accumulation:
    """The accumulating store, the loop that will hold the local temporary, and the loops over the elements of one reset."""

    store: Store
    home: Path
    dims: tuple[Loop, ...]


def _accumulate_plan(ctx: Context, path: Path, loop: Loop, buffer: Buffer) -> _Accumulation | NotApplicable:
    found = [(p, s) for p, s in ctx.stores_under(path) if s.buffer == buffer.name]
    if len(found) != 1 or ctx.reset_loop(found[0][0]) != path:
        return NotApplicable("reset", f"{buffer.name} does not reset just before the loop {loop.var}")
    store_path, store = found[0]
    if any(e.buffer == buffer.name for _, e in ctx.reads_under(path)):
        return NotApplicable("read", f"{buffer.name} is read under {loop.var} while it is accumulated")
    if buffer.scope is Scope.LOCAL:
        return NotApplicable("local", f"{buffer.name} is local already")
    around = ctx.enclosing_loops(path)
    if not around:
        return NotApplicable("outermost", f"no loop around {loop.var} could hold a local accumulator")
    for _, inner in ctx.enclosing_loops(store_path)[len(around) :]:
        if inner.kind.is_concurrent and inner.kind is not LoopKind.VECTOR:
            return NotApplicable("scope", f"{inner.kind} loop {inner.var} stands around the accumulation, so the accumulators could not be local")
    nest: Stmt = reset_plan(ctx.program, store_path).nest
    dims: list[Loop] = []
    while not isinstance(nest, Store):
        if isinstance(nest, If):
            return NotApplicable("guarded", f"the accumulation into {buffer.name} is guarded, so the box of local accumulators would have holes")
        dims.append(nest)
        nest = nest.body[0]
    if any(free_vars(p.extent) for p in dims):
        return NotApplicable("extent-varies", f"the elements of {buffer.name} that {loop.var} accumulates form no box")
    size = math.prod(eval_index(p.extent, ctx.env) for p in dims)
    if size > MAX_ELEMENTS:
        return NotApplicable("region-size", f"{size} accumulators are more than {MAX_ELEMENTS}")
    return _Accumulation(store, around[-1][0], tuple(dims))


def _accumulate(ctx: Context, site: Site, loop: Loop, buffer: Buffer) -> Outcome:
    path, owner = site.path, site.path[:-1]
    plan = _accumulate_plan(ctx, path, loop, buffer)
    if isinstance(plan, NotApplicable):
        return plan
    store, home, dims = plan.store, plan.home, plan.dims
    size = math.prod(eval_index(p.extent, ctx.env) for p in dims)
    alone = sum(s.buffer == buffer.name for _, s in ctx.stores) == 1  # what tier 2 can read through; tier 3 decides otherwise
    (name,) = ctx.fresh_global(f"{buffer.name}l")
    inner = tuple(Var(p.var) for p in dims)
    body = _retarget(loop.body, store, replace(store, buffer=name, indices=inner))
    back: Stmt = Store(buffer.name, store.indices, Load(name, inner, buffer.dtype))
    for p in reversed(dims):
        back = Loop(p.var, p.extent, (back,))
    around = body_at(ctx.program, owner)
    n = path[-1]
    child = replace_body(ctx.program, owner, (*around[:n], replace(loop, body=body), back, *around[n + 1 :]))
    holder = ctx.loop(home)
    assert holder is not None
    local = Buffer(name, buffer.dtype, tuple(p.extent for p in dims), Scope.LOCAL)
    child = replace_body(child, home, body_at(child, home), (*holder.tmps, local))
    return Applied(
        child,
        Exactness.BITWISE,
        (
            fact("buffer_added", "child", name=name, dtype=str(buffer.dtype), elements=size),
            fact("accumulates_in", "child", buffer=buffer.name, into=name, loop=loop.var, at=path_text(path)),
            fact("written_back", "child", buffer=buffer.name, elements=size),
        ),
        instance_map(ctx.program, child, lambda p: before_insertion(p, (*owner, n + 1)), lambda _: {}) if alone else None,
        Forwarding(tuple(((*owner, k), (*owner, k + 1)) for k in range(n + 1, len(around)))),
    )


def _retarget(body: Body, old: Store, new: Store) -> Body:
    def one(stmt: Stmt) -> Stmt:
        if isinstance(stmt, Store):
            return new if stmt is old else stmt
        return replace(stmt, body=tuple(one(s) for s in stmt.body))

    return tuple(one(s) for s in body)


STRATEGY = CacheReadWrite()
