"""Keep what an iteration works out of a buffer in local memory, and store it once at the end."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from steptp.analysis.model import Model
from steptp.analysis.promote import is_self_copy, promote
from steptp.ir import Buffer, Expr, If, Load, Loop, LoopKind, Path, Program, Scope, Store, Var, ix, op, same_index, simplify_index
from steptp.ir.nodes import Stmt
from steptp.ir.resets import conjuncts
from steptp.ir.sizes import shape_of
from steptp.ir.walk import Visit, buffer_table, free_vars, loads, map_expr, replace_body, substitute
from steptp.rewrite.base import Applied, Exactness, Family, InstanceMap, NotApplicable, Outcome, Site, Strategy
from steptp.rewrite.context import Context, no_loop, path_text
from steptp.rewrite.fact_kinds import fact
from steptp.rewrite.regions import Access, Span, accesses_under, inner_loops, span_of, table_problem
from steptp.rewrite.tools import fold_multiples, instance_map

__all__ = ["CacheWrite", "STRATEGY"]

MAX_ELEMENTS = 1 << 16
_KINDS = (LoopKind.SERIAL, LoopKind.PARALLEL, LoopKind.UNROLL)


class CacheWrite(Strategy):
    """Site: path of a loop, ``buffer`` = what its iterations initialise, update and perhaps read.

    A local temporary takes all of these accesses, over tiles with guards and several statements too; a nest at the end of the body writes it back. Plain
    accumulations before a loop are left to ``cache_read_write``.
    """

    name = "cache_write"
    family = Family.MEMORY
    classes = (Exactness.BITWISE,)
    summary = "work out a tile in local memory and write it back once"

    def sites(self, ctx: Context) -> Iterator[Site]:
        for path, _ in ctx.loops:
            for name in dict.fromkeys(s.buffer for _, s in ctx.stores_under(path)):
                if isinstance(_plan(ctx, path, name), _Plan):
                    yield Site.of(self.name, path, buffer=name)

    def apply(self, ctx: Context, site: Site) -> Outcome:
        params = dict(site.params)
        name = params.get("buffer")
        if ctx.loop(site.path) is None:
            return no_loop(site.path)
        if set(params) != {"buffer"} or not isinstance(name, str):
            return NotApplicable("bad-site", "cache_write takes buffer=<name>")
        plan = _plan(ctx, site.path, name)
        return plan if isinstance(plan, NotApplicable) else _apply(ctx, site.path, plan)


@dataclass(frozen=True)
class _Plan:
    """The accesses, the box that holds them, and the conditions (over ``#0`` … in place of the box's indices) under which it is filled."""

    buffer: Buffer
    accesses: tuple[Access, ...]
    box: tuple[Span, ...]
    conds: tuple[Expr, ...]


def _plan(ctx: Context, path: Path, name: str) -> _Plan | NotApplicable:
    loop, buffer = ctx.loop(path), buffer_table(ctx.program).get(name)
    assert loop is not None
    if buffer is None or buffer in ctx.program.inputs:
        return NotApplicable("not-written", f"nothing writes {name}")
    if (problem := table_problem(ctx, (name,))) is not None:
        return problem
    if buffer.scope is not Scope.GLOBAL:
        return NotApplicable("scope", f"{name} is {buffer.scope} already")
    if loop.kind not in _KINDS:
        return NotApplicable("loop-kind", f"{loop.var} is a {loop.kind} loop")
    if any(b.name == name for _, other in ctx.loops_under(path) for b in other.tmps):
        return NotApplicable("private", f"{name} is private to an iteration of {loop.var} already")
    accesses = tuple(a for a in accesses_under(ctx, path, name) if len(a.met.path) > len(path))
    writes = [a for a in accesses if a.load is None]
    if not writes:
        return NotApplicable("not-written", f"nothing under {loop.var} writes {name}")
    if len(accesses) == 1 and (not isinstance(writes[0].met.stmt, Store) or writes[0].met.stmt.reduce is None):
        return NotApplicable("written-once", f"under {loop.var} each element of {name} is only stored")
    if any(p.kind.is_concurrent and p.kind is not LoopKind.VECTOR for a in accesses for p in inner_loops(a.met, len(path)).values()):
        return NotApplicable("scope", f"a concurrent loop under {loop.var} would share the local copy of {name}")
    box: list[Span] = []
    for d in range(len(buffer.shape)):
        span = span_of([(a.indices[d], inner_loops(a.met, len(path))) for a in accesses])
        if span is None:
            return NotApplicable("region", f"the accesses to {name} under {loop.var} fill no box: dimension {d}")
        box.append(Span(span.base, fold_multiples(ctx.program, span.size)))
    elements = math.prod(shape_of(tuple(s.size for s in box), ctx.program))
    if not 1 <= elements <= MAX_ELEMENTS:
        return NotApplicable("region-size", f"the region has {elements} elements; a local copy holds at most {MAX_ELEMENTS}")
    conds = _first(ctx, path, writes[0], box)
    if isinstance(conds, NotApplicable):
        return conds
    if (problem := _others_problem(ctx, path, accesses, writes[0], box, conds)) is not None:
        return problem
    return _Plan(buffer, accesses, tuple(box), conds)


def _first(ctx: Context, path: Path, write: Access, box: list[Span]) -> tuple[Expr, ...] | NotApplicable:
    """The conditions under which the first store fills the box, or why it does not."""
    store, loop = write.met.stmt, ctx.loop(path)
    assert isinstance(store, Store)
    assert loop is not None
    if any(e.buffer == store.buffer for x in (*store.indices, store.value) for e in loads(x)):
        return NotApplicable("live-in", f"the first store into {store.buffer} under {loop.var} reads it")
    depth, inner = len(path), write.met.parents[len(path) :]
    if store.reduce is not None:
        before = ctx.reset_loop(write.met.path)
        if before is None or len(before) <= depth:
            return NotApplicable("live-in", f"{store.buffer} holds values from before the iteration of {loop.var}: it resets further outside")
        gone = {p.var for p in write.met.parents[len(before) - 1 :] if isinstance(p, Loop)} - frozenset().union(*(free_vars(i) for i in store.indices))
        above = write.met.parents[depth : len(before) - 1]
        within = [
            c for p in write.met.parents[len(before) - 1 :] if isinstance(p, If) for c in conjuncts(p.cond) if not free_vars(c) & gone and not any(loads(c))
        ]
        conds = [c for p in above if isinstance(p, If) for c in conjuncts(p.cond)] + within
        extra = [p.var for p in above if isinstance(p, Loop)]
    else:
        conds = [c for p in inner if isinstance(p, If) for c in conjuncts(p.cond)]
        extra = [p.var for p in inner if isinstance(p, Loop)]
    names: dict[str, Expr] = {}
    for d, span in enumerate(box):
        rest = simplify_index(store.indices[d] - span.base)
        if span.single:
            continue
        own = inner_loops(write.met, depth)
        if not (
            isinstance(rest, Var) and rest.name in own and rest.name not in names and same_index(fold_multiples(ctx.program, own[rest.name].extent), span.size)
        ):
            return NotApplicable("holes", f"the first store into {store.buffer} under {loop.var} does not fill dimension {d} of the region by one loop")
        names[rest.name] = Var(f"#{d}")
    if rest_loops := [v for v in extra if v not in names]:
        return NotApplicable("repeated", f"the first store into {store.buffer} stands under {rest_loops[0]}, which does not index it")
    own_vars = set(inner_loops(write.met, depth))
    for cond in conds:
        if any(loads(cond)) or free_vars(cond) & own_vars - names.keys():
            return NotApplicable("guarded", f"the first store into {store.buffer} is guarded by data or by another loop")
    return tuple(dict.fromkeys(substitute(c, names) for c in conds))


def _others_problem(ctx: Context, path: Path, accesses: tuple[Access, ...], first: Access, box: list[Span], conds: tuple[Expr, ...]) -> NotApplicable | None:
    """An access that may come before the element is initialised, or to elements that the first store leaves out."""
    name, depth = first.met.stmt.buffer if isinstance(first.met.stmt, Store) else "", len(path)
    loop = ctx.loop(path)
    assert loop is not None
    for a in accesses:
        later = a.met.path[depth] > first.met.path[depth]
        same = a.indices == first.indices and a.met.path > first.met.path
        if a is not first and not later and not same:
            return NotApplicable("early", f"{name} is accessed at {path_text(a.met.path)} before all of the region is initialised")
        if conds:
            rests = {d: simplify_index(a.indices[d] - span.base) for d, span in enumerate(box) if not span.single}
            by = {r.name: Var(f"#{d}") for d, r in rests.items() if isinstance(r, Var)}
            held = {substitute(c, by) for p in a.met.parents[depth:] if isinstance(p, If) for c in conjuncts(p.cond)}
            if not set(conds) <= held:
                return NotApplicable("guarded", f"the access to {name} at {path_text(a.met.path)} lacks a guard of the first store")
    only = accesses[0].met
    if len(accesses) == 1 and isinstance(only.stmt, Store) and _left_to_neighbour(ctx, path, only):
        return NotApplicable("plain", f"{name} is only accumulated there; cache_read_write with mode=accumulate does this")
    return None


def _left_to_neighbour(ctx: Context, path: Path, met: Visit) -> bool:
    """Whether ``cache_read_write`` takes this accumulation: no guard, and the reset loop stands directly in the body."""
    before = ctx.reset_loop(met.path)
    return before is not None and len(before) == len(path) + 1 and not any(isinstance(p, If) for p in met.parents[len(path) :])


def _apply(ctx: Context, path: Path, plan: _Plan) -> Outcome:
    program, loop, old = ctx.program, ctx.loop(path), plan.buffer
    assert loop is not None
    kept = [d for d, span in enumerate(plan.box) if not span.single]
    (name,) = ctx.fresh_global(f"{old.name}l")
    names = ctx.fresh_vars((*path, 0), *(f"c{d}" for d in kept))
    local = Buffer(name, old.dtype, tuple(plan.box[d].size for d in kept), Scope.LOCAL)

    def place(indices: tuple[Expr, ...]) -> tuple[Expr, ...]:
        return tuple(simplify_index(indices[d] - plan.box[d].base) for d in kept)

    def in_expr(expr: Expr) -> Expr:
        return map_expr(expr, lambda e: Load(name, place(e.indices), e.type) if isinstance(e, Load) and e.buffer == old.name else e)

    def in_stmt(stmt: Stmt) -> Stmt:
        if isinstance(stmt, Store):
            indices, value = tuple(in_expr(i) for i in stmt.indices), in_expr(stmt.value)
            if stmt.buffer == old.name:
                return replace(stmt, buffer=name, indices=place(indices), value=value)
            return replace(stmt, indices=indices, value=value)
        body = tuple(in_stmt(s) for s in stmt.body)
        return If(in_expr(stmt.cond), body) if isinstance(stmt, If) else replace(stmt, extent=in_expr(stmt.extent), body=body)

    taken: dict[int, Expr] = {d: Var(v) for d, v in zip(kept, names, strict=True)}
    target = tuple(simplify_index(span.base + taken.get(d, ix(0))) for d, span in enumerate(plan.box))
    back: Stmt = Store(old.name, target, Load(name, tuple(taken[d] for d in kept), old.dtype))
    if plan.conds:
        whole = plan.conds[0]
        for cond in plan.conds[1:]:
            whole = op("and", whole, cond)
        back = If(substitute(whole, {f"#{d}": v for d, v in taken.items()}), (back,))
    for d, var in reversed(list(zip(kept, names, strict=True))):
        back = Loop(var, plan.box[d].size, (back,))
    child = replace_body(program, path, (*(in_stmt(s) for s in loop.body), back), (*loop.tmps, local))
    written = (*path, len(loop.body))
    instances = instance_map(program, child, lambda p: None if p[: len(written)] == written else p, lambda _: {})
    elements = math.prod(shape_of(local.shape, program))
    at = path_text(path)
    return Applied(
        child,
        Exactness.BITWISE,
        (
            fact("buffer_added", "child", name=name, dtype=str(old.dtype), elements=elements),
            fact("initialised_first", "dependence", buffer=old.name, loop=loop.var, at=at),
            fact("held_in", "child", buffer=old.name, into=name, count=len(plan.accesses), loop=loop.var, at=at),
            fact("written_back", "child", buffer=old.name, elements=elements),
            fact("same_operations", "dependence", buffers=tuple(b.name for b in program.outputs)),
        ),
        instances if _reads_through(child, instances, written) else None,
    )


def _reads_through(child: Program, instances: InstanceMap, written: Path) -> bool:
    """Whether a proof can compute the temporary in place of what the nest at ``written`` stores it into; tier 3 decides otherwise."""
    promoted = promote(child, {e.child for e in instances.entries})
    return any(is_self_copy(st) for st in Model.of(promoted).statements if st.origin[: len(written)] == written)


STRATEGY = CacheWrite()
