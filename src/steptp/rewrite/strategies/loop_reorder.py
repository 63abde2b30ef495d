"""Move one loop to another depth of its perfect nest."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from steptp.ir import Loop, LoopKind, Path, Program, Store, print_expr
from steptp.ir.facts import Fact
from steptp.ir.nodes import Body
from steptp.ir.walk import buffer_table, free_vars, replace_at
from steptp.rewrite.base import Applied, Exactness, Family, Forwarding, NotApplicable, Outcome, Site, Strategy
from steptp.rewrite.context import Context, no_loop, path_text
from steptp.rewrite.directions import Dep
from steptp.rewrite.fact_kinds import fact
from steptp.rewrite.legality import Witness
from steptp.rewrite.tools import instance_map

__all__ = ["LoopReorder", "STRATEGY", "Order", "check_order", "order_is_free", "exactness_of", "reset_problem"]

_MOVABLE = (LoopKind.SERIAL, LoopKind.PARALLEL, LoopKind.UNROLL)


@dataclass(frozen=True, slots=True)
class Order:
    """What a new order of a nest means: its class and the buffers whose accumulation order changes or is kept."""

    exactness: Exactness
    facts: tuple[Fact, ...]


class LoopReorder(Strategy):
    """Site: path of the loop, ``to`` = its new position in its maximal perfect nest (0 is outermost)."""

    name = "loop_reorder"
    family = Family.LOOP
    classes = (Exactness.BITWISE, Exactness.REASSOCIATED)
    summary = "move one loop to another depth of its perfect nest"

    def sites(self, ctx: Context) -> Iterator[Site]:
        for chain in ctx.chains:
            for position, path in enumerate(chain):
                for target in range(len(chain)):
                    if target in (position, position - 1):  # a swap of neighbours is listed once, as the outer one moving in
                        continue
                    site = Site.of(self.name, path, to=target)
                    if isinstance(_plan(ctx, site), Order):
                        yield site

    def apply(self, ctx: Context, site: Site) -> Outcome:
        plan = _plan(ctx, site)
        if isinstance(plan, NotApplicable):
            return plan
        chain = ctx.chain(site.path)
        position, target = chain.index(site.path), _target(site)
        assert target is not None
        loops = _loops(ctx, chain)
        order = _moved(len(chain), position, target)
        child = replace_at(ctx.program, chain[0], _rebuild(loops, order))
        moved = loops[position]
        return Applied(
            child,
            plan.exactness,
            (
                fact("perfect_nest", "parent", at=path_text(chain[0]), loops=tuple(loop.var for loop in loops)),
                fact("loop_moved", "parent", loop=moved.var, at=path_text(site.path), source=position, target=target, order=tuple(loops[k].var for k in order)),
                *plan.facts,
            ),
            instance_map(ctx.program, child, lambda p: p, lambda _: {}),
            forward_nest(chain, order, len(loops[-1].body)),
            (Site.of(self.name, chain[target], to=position),),
        )


def _target(site: Site) -> int | None:
    target = dict(site.params).get("to")
    return target if isinstance(target, int) and len(site.params) == 1 else None


def _moved(length: int, position: int, target: int) -> list[int]:
    order = [n for n in range(length) if n != position]
    order.insert(target, position)
    return order


def _loops(ctx: Context, chain: Sequence[Path]) -> list[Loop]:
    return [loop for path in chain if (loop := ctx.loop(path)) is not None]


def _rebuild(loops: Sequence[Loop], order: Sequence[int]) -> Loop:
    """The perfect nest of ``loops`` in another order; the innermost body and its temporaries stay innermost."""
    body: Body = loops[-1].body
    made: Loop | None = None
    for n, k in enumerate(reversed(order)):
        made = replace(loops[k], body=body, tmps=loops[-1].tmps if n == 0 else ())
        body = (made,)
    assert made is not None
    return made


def forward_nest(chain: Sequence[Path], order: Sequence[int], statements: int) -> Forwarding:
    """Loops go to their new depth; what is inside the innermost body stays."""
    body = chain[-1]
    return Forwarding((*((chain[k], chain[n]) for n, k in enumerate(order) if k != n), *(((*body, n), (*body, n)) for n in range(statements))))


def _plan(ctx: Context, site: Site) -> Order | NotApplicable:
    loop = ctx.loop(site.path)
    if loop is None:
        return no_loop(site.path)
    target = _target(site)
    if target is None:
        return NotApplicable("bad-site", "loop_reorder takes to=<position in the nest>")
    chain = ctx.chain(site.path)
    position = chain.index(site.path)
    if not 0 <= target < len(chain):
        return NotApplicable("no-such-depth", f"the perfect nest of {loop.var} has {len(chain)} loops, so there is no position {target}")
    if target == position:
        return NotApplicable("no-op", f"{loop.var} is at position {target} already")
    return check_order(ctx, chain, _moved(len(chain), position, target))


def check_order(ctx: Context, chain: Sequence[Path], order: Sequence[int]) -> Order | NotApplicable:
    """Whether the perfect nest ``chain`` may run with loop ``order[n]`` at depth ``n``, and how equal the result is."""
    loops = _loops(ctx, chain)
    changed = [n for n, k in enumerate(order) if n != k]
    low, high = changed[0], changed[-1]
    moving = loops[low : high + 1]
    for loop in moving:
        if loop.kind not in _MOVABLE:
            return NotApplicable("loop-kind", f"{loop.var} is a {loop.kind} loop, which stays where it is")
        if inside := sorted(free_vars(loop.extent) & {m.var for m in moving}):
            return NotApplicable("extent-varies", f"the extent {print_expr(loop.extent)} of {loop.var} depends on {inside[0]}, so the two cannot change places")
    if (problem := reset_problem(ctx, chain, low, high)) is not None:
        return problem
    reordered: dict[str, Witness] = {}
    conflicts: dict[str, None] = {}
    for dep in ctx.legality.through(chain[high]):
        start = _positions(dep, chain, low, high)
        if start is None:
            continue
        local = _local_order(dep, start, order, low, high)
        found = ctx.legality.reversed_by(dep, local)
        if dep.reduction:
            if found is not None:
                reordered.setdefault(dep.buffer, found)
        else:
            if dep.buffer not in conflicts and ctx.legality.exists(dep, ()) is not None:
                conflicts[dep.buffer] = None
            if found is not None:
                return NotApplicable("reversed", f"the new order runs dependent iterations the wrong way round: {found.text}")
        if found is None and not (dep.reduction and order_is_free(ctx.program, dep.source.statement.store)):
            if (once := ctx.legality.hidden_by(dep, local)) is not None:
                return NotApplicable(
                    "size-dependent",
                    f"{once} runs once at the present sizes; where it runs more often, the new order changes the order of accesses to {dep.buffer}",
                )
        for n in range(start, start + high - low + 1):
            owner = ctx.loop(dep.loops[local[n]] or ())
            if owner is not None and owner.kind.is_concurrent and (taken := ctx.legality.carried_at(dep, local, n)) is not None:
                return NotApplicable("carried", f"the {owner.kind} loop {owner.var} would carry a dependence: {taken.text}")
    return exactness_of(ctx, chain, reordered, tuple(conflicts))


def _positions(dep: Dep, chain: Sequence[Path], low: int, high: int) -> int | None:
    """Where ``chain[low]`` stands among the common loops of a dependence under ``chain[high]``; ``None`` when its order cannot change."""
    start = dep.loops.index(chain[low])
    return start if start <= dep.level <= start + high - low else None


def _local_order(dep: Dep, start: int, order: Sequence[int], low: int, high: int) -> list[int]:
    """The new order of the dependence's common loops, as positions among them."""
    out = list(range(len(dep.masks)))
    for n in range(low, high + 1):
        out[start + n - low] = start + order[n] - low
    return out


def reset_problem(ctx: Context, chain: Sequence[Path], low: int, high: int) -> NotApplicable | None:
    """An accumulation that resets at one of the moving loops must be alone with its elements there.

    Its reset moves with the order of the loops. All other accesses then need the same index, so that they touch an element only in
    iterations that come after its reset, before and after the move.
    """
    for path, store in ctx.stores_under(chain[high]):
        at = ctx.reset_loop(path)
        if at is None or not len(chain[low]) <= len(at) <= len(chain[high]):
            continue
        for other in ctx.model.statements:
            if other.is_reset or other.origin[: len(chain[low])] != chain[low]:
                continue
            for access in other.accesses:
                if access.buffer == store.buffer and access.indices != store.indices:
                    shown = f"{access.buffer}[{','.join(print_expr(i) for i in access.indices)}]"
                    return NotApplicable(
                        "reset-shared", f"moving the loop moves the reset of {store.buffer}, and the nest also touches {shown}, an element of another iteration"
                    )
    return None


def order_is_free(program: Program, store: Store) -> bool:
    """Accumulations that give the same bits in any order: integers and bools, and max and min."""
    dtype = buffer_table(program)[store.buffer].dtype
    return not dtype.is_float or store.reduce in ("max", "min", "or", "and")


def exactness_of(ctx: Context, chain: Sequence[Path], reordered: dict[str, Witness], conflicts: tuple[str, ...]) -> Order:
    facts: list[Fact] = []
    exactness = Exactness.BITWISE
    if conflicts:
        facts.append(fact("no_order_reversed", "dependence", buffers=tuple(sorted(conflicts))))
    seen: set[str] = set()
    table = buffer_table(ctx.program)
    for _, store in ctx.stores_under(chain[0]):
        if store.reduce is None or store.buffer in seen:
            continue
        seen.add(store.buffer)
        if store.buffer not in reordered:
            facts.append(fact("order_kept", "dependence", buffer=store.buffer, reduce=store.reduce))
            continue
        facts.append(fact("order_changed", "dependence", buffer=store.buffer, reduce=store.reduce))
        if order_is_free(ctx.program, store):
            facts.append(fact("order_free", "rule", buffer=store.buffer, reduce=store.reduce, dtype=str(table[store.buffer].dtype)))
        else:
            exactness = Exactness.REASSOCIATED
    return Order(exactness, tuple(facts))


STRATEGY = LoopReorder()
