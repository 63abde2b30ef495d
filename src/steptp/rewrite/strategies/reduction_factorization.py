"""Split an accumulation into partial accumulators, one per iteration of a reduction loop, and a final accumulation (rfactor)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from steptp.ir import Buffer, DType, Expr, If, Load, Loop, LoopKind, Path, Stmt, Store, Var, print_expr
from steptp.ir.facts import Fact
from steptp.ir.resets import conjuncts
from steptp.ir.walk import body_at, buffer_table, free_vars, loads, replace_at, replace_body
from steptp.rewrite.base import Applied, Exactness, Family, Forwarding, NotApplicable, Outcome, Site, Strategy
from steptp.rewrite.context import Context, no_loop
from steptp.rewrite.fact_kinds import fact
from steptp.rewrite.strategies.loop_reorder import order_is_free

__all__ = ["ReductionFactorization", "STRATEGY", "MAX_OFFERED"]

MAX_OFFERED = 64


@dataclass(frozen=True, slots=True)
class _Nest:
    """A nest with one store: its top, the owners on the way down, the store, and the loop that gets accumulators of its own."""

    top: Path
    owners: tuple[Loop | If, ...]
    store: Store
    loop: Loop
    inner: tuple[Loop, ...]  # loops of the nest that index the target
    rest: tuple[Loop, ...]  # reduction loops that stay


class ReductionFactorization(Strategy):
    """Site: path of the reduction loop whose iterations get accumulators of their own; no parameters."""

    name = "reduction_factorization"
    family = Family.LOOP
    classes = (Exactness.BITWISE, Exactness.REASSOCIATED)
    summary = "accumulate into one partial accumulator per iteration of a reduction loop, then accumulate those"

    def sites(self, ctx: Context) -> Iterator[Site]:
        for path, loop in ctx.loops:
            extent = ctx.value(loop.extent)
            site = Site.of(self.name, path)
            if extent is not None and extent <= MAX_OFFERED and isinstance(_nest(ctx, site), _Nest):
                yield site

    def apply(self, ctx: Context, site: Site) -> Outcome:
        nest = _nest(ctx, site)
        return nest if isinstance(nest, NotApplicable) else _apply(ctx, nest)


def _nest(ctx: Context, site: Site) -> _Nest | NotApplicable:
    loop = ctx.loop(site.path)
    if loop is None:
        return no_loop(site.path)
    if site.params:
        return NotApplicable("bad-site", "reduction_factorization takes no parameters")
    inside = ctx.stores_under(site.path)
    if len(inside) != 1:
        return NotApplicable("many-stores", f"the body of {loop.var} holds {len(inside)} stores; a loop around one accumulation is factored")
    ((path, store),) = inside
    indexing = frozenset().union(*(free_vars(i) for i in store.indices))
    if store.reduce is None or loop.var in indexing:
        return NotApplicable("not-a-reduction", f"{loop.var} is not a reduction loop of {store.buffer}")
    top = ctx.reset_loop(path)
    if top is None:
        return NotApplicable("carry", f"the accumulation into {store.buffer} carries on from an earlier value; one that resets is factored")
    if any(e.buffer == store.buffer for e in (*loads(store.value), *(x for i in store.indices for x in loads(i)))):
        return NotApplicable("reads-itself", f"the accumulated value reads {store.buffer} itself")
    owners: list[Loop | If] = []
    for n in range(len(top), len(path)):
        owner = ctx.stmt(path[:n])
        assert isinstance(owner, (Loop, If))
        if len(owner.body) > 1 or (isinstance(owner, Loop) and owner.tmps):
            return NotApplicable("not-perfect", f"between the reset of {store.buffer} and its accumulation stand other statements or temporaries")
        owners.append(owner)
    loops = [o for o in owners if isinstance(o, Loop)]
    inner = tuple(o for o in loops if o.var in indexing)
    rest = tuple(o for o in loops if o.var not in indexing and o.var != loop.var)
    if not rest:
        return NotApplicable(
            "one-loop", f"{loop.var} is the only reduction loop of {store.buffer}; split it first, so that every accumulator has several terms"
        )
    for one in (loop, *inner):
        if ctx.value(one.extent) is None:
            return NotApplicable(
                "extent-varies",
                f"{one.var} runs {print_expr(one.extent, DType.I64)} times, which changes with the loops around it; the accumulators need a fixed shape",
            )
    extent = ctx.value(loop.extent)
    assert extent is not None
    if extent < 2:
        return NotApplicable("extent", f"{loop.var} runs {extent} times, which gives no partial accumulators")
    return _Nest(top, tuple(owners), store, loop, inner, rest)


def _apply(ctx: Context, nest: _Nest) -> Applied:
    store, loop, program = nest.store, nest.loop, ctx.program
    dtype = buffer_table(program)[store.buffer].dtype
    (name,) = ctx.fresh_global(f"{store.buffer}_p")
    shape = (*(o.extent for o in nest.inner), loop.extent)
    cell: tuple[Expr, ...] = (*(Var(o.var) for o in nest.inner), Var(loop.var))
    partial: Stmt = Store(name, cell, store.value, store.reduce)
    for owner in reversed(nest.owners):
        partial = replace(owner, body=(partial,))
    final: Stmt = Store(store.buffer, store.indices, Load(name, cell, dtype), store.reduce)
    gone = {o.var for o in nest.rest}
    for owner in reversed(nest.owners):  # the guards that restrict the partial accumulators' reset
        if isinstance(owner, If):
            for cond in reversed([c for c in conjuncts(owner.cond) if not free_vars(c) & gone and not any(loads(c))]):
                final = If(cond, (final,))
    final = Loop(loop.var, loop.extent, (final,))
    for one in reversed(nest.inner):
        final = Loop(one.var, one.extent, (final,), one.kind if one.kind is LoopKind.PARALLEL else LoopKind.SERIAL)
    child = replace_at(program, nest.top, partial, final)
    home = next((nest.top[:n] for n in range(len(nest.top) - 1, 0, -1) if ctx.loop(nest.top[:n]) is not None), ())
    holder = ctx.loop(home)
    tmps = holder.tmps if holder is not None else program.tmps
    child = replace_body(child, home, body_at(child, home), (*tmps, Buffer(name, dtype, shape)))
    after = [((*nest.top[:-1], n), (*nest.top[:-1], n + 1)) for n in range(nest.top[-1] + 1, len(body_at(program, nest.top[:-1])))]
    free = order_is_free(program, store)
    return Applied(child, Exactness.BITWISE if free else Exactness.REASSOCIATED, _facts(ctx, nest, name, free), None, Forwarding(tuple(after)))


def _facts(ctx: Context, nest: _Nest, name: str, free: bool) -> tuple[Fact, ...]:
    store, dtype = nest.store, str(buffer_table(ctx.program)[nest.store.buffer].dtype)
    copies = ctx.value(nest.loop.extent) or 0
    elements = copies
    for one in nest.inner:
        elements *= ctx.value(one.extent) or 0
    assert store.reduce is not None
    out = [fact("buffer_added", "child", name=name, dtype=dtype, elements=elements)]
    terms = [ctx.value(one.extent) for one in nest.rest]
    if all(t is not None for t in terms):
        total = 1
        for t in terms:
            total *= t or 0
        out.append(fact("partial_accumulators", "child", buffer=store.buffer, copies=copies, terms=total))
    out.append(fact("order_changed", "dependence", buffer=store.buffer, reduce=store.reduce))
    if free:
        out.append(fact("order_free", "rule", buffer=store.buffer, reduce=store.reduce, dtype=dtype))
    return tuple(out)


STRATEGY = ReductionFactorization()
