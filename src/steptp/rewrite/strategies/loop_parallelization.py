"""Run the iterations of a loop on several threads."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from steptp.ir import LoopKind, Scope
from steptp.ir.walk import replace_at
from steptp.rewrite.base import Applied, Exactness, Family, NotApplicable, Outcome, Site, Strategy
from steptp.rewrite.context import Context, no_loop, path_text
from steptp.rewrite.fact_kinds import fact
from steptp.rewrite.tools import accumulation_facts, identity_map

__all__ = ["LoopParallelization", "STRATEGY"]


class LoopParallelization(Strategy):
    """Site: path of the loop; no parameters."""

    name = "loop_parallelization"
    family = Family.LOOP
    classes = (Exactness.BITWISE,)
    summary = "run the iterations of a loop that carries no dependence on several threads"

    def sites(self, ctx: Context) -> Iterator[Site]:
        for path, _ in ctx.loops:
            site = Site.of(self.name, path)
            if _problem(ctx, site) is None:
                yield site

    def apply(self, ctx: Context, site: Site) -> Outcome:
        if (problem := _problem(ctx, site)) is not None:
            return problem
        loop = ctx.loop(site.path)
        assert loop is not None
        child = replace_at(ctx.program, site.path, replace(loop, kind=LoopKind.PARALLEL))
        at = path_text(site.path)
        iterations = ctx.value(loop.extent)
        facts = [
            fact("loop_kind", "child", loop=loop.var, at=at, old=str(loop.kind), new="par"),
            fact("carries_no_dependence", "dependence", loop=loop.var, at=at),
        ]
        if iterations is not None:
            facts.append(fact("parallel_iterations", "parent", loop=loop.var, at=at, iterations=iterations))
        facts += accumulation_facts(s for _, s in ctx.stores_under(site.path))
        return Applied(child, Exactness.BITWISE, tuple(facts), identity_map(child))


def _problem(ctx: Context, site: Site) -> NotApplicable | None:
    loop = ctx.loop(site.path)
    if loop is None:
        return no_loop(site.path)
    if site.params:
        return NotApplicable("bad-site", "loop_parallelization takes no parameters")
    if loop.kind is not LoopKind.SERIAL:
        return NotApplicable("loop-kind", f"{loop.var} is a {loop.kind} loop; only a serial loop can become parallel")
    for _, other in ctx.enclosing_loops(site.path):
        if other.kind.is_concurrent or other.kind is LoopKind.UNROLL:
            return NotApplicable("nested", f"{loop.var} lies inside the {other.kind} loop {other.var}; threads are started by one outer loop only")
    for path, other in ctx.loops_under(site.path):
        if path != site.path and (other.kind is LoopKind.PARALLEL or other.kind.is_bound):
            return NotApplicable("nested", f"the {other.kind} loop {other.var} lies inside {loop.var}; threads are started by one outer loop only")
    outside = (*ctx.program.tmps, *(b for _, other in ctx.enclosing_loops(site.path) for b in other.tmps))
    narrow = {b.name for b in outside if b.scope is not Scope.GLOBAL}
    if seen := sorted(narrow & frozenset().union(*ctx.touched(site.path))):
        return NotApplicable("scope", f"{seen[0]}, declared outside of {loop.var}, belongs to one thread, so the iterations of {loop.var} could not share it")
    extent = ctx.value(loop.extent)
    if extent is not None and extent < 2:
        return NotApplicable("extent", f"{loop.var} runs {extent} times, which leaves nothing to run at once")
    found = ctx.legality.carried(site.path)
    if found is not None:
        return NotApplicable("carried", f"{loop.var} carries a dependence: {found.text}")
    return None


STRATEGY = LoopParallelization()
