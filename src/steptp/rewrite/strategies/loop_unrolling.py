"""Mark a loop with a small constant extent as unrolled."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from steptp.ir import DType, LoopKind, print_expr
from steptp.ir.walk import replace_at
from steptp.rewrite.base import Applied, Exactness, Family, NotApplicable, Outcome, Site, Strategy
from steptp.rewrite.context import Context, no_loop, path_text
from steptp.rewrite.fact_kinds import fact
from steptp.rewrite.tools import accumulation_facts, identity_map

__all__ = ["LoopUnrolling", "STRATEGY", "MAX_COPIES"]

MAX_COPIES = 16


class LoopUnrolling(Strategy):
    """Site: path of the loop; no parameters."""

    name = "loop_unrolling"
    family = Family.LOOP
    classes = (Exactness.BITWISE,)
    summary = "unroll a loop with a small constant extent"

    def sites(self, ctx: Context) -> Iterator[Site]:
        for path, _ in ctx.loops:
            site = Site.of(self.name, path)
            if isinstance(_copies(ctx, site), int):
                yield site

    def apply(self, ctx: Context, site: Site) -> Outcome:
        copies = _copies(ctx, site)
        if isinstance(copies, NotApplicable):
            return copies
        loop = ctx.loop(site.path)
        assert loop is not None
        child = replace_at(ctx.program, site.path, replace(loop, kind=LoopKind.UNROLL))
        at = path_text(site.path)
        return Applied(
            child,
            Exactness.BITWISE,
            (
                fact("loop_extent", "parent", loop=loop.var, at=at, extent=copies, text=print_expr(loop.extent, DType.I64)),
                fact("loop_kind", "child", loop=loop.var, at=at, old=str(loop.kind), new="unroll"),
                fact("body_copies", "parent", loop=loop.var, at=at, copies=_nested_copies(ctx, site)),
                *accumulation_facts(s for _, s in ctx.stores_under(site.path)),
            ),
            identity_map(child),
        )


def _copies(ctx: Context, site: Site) -> int | NotApplicable:
    loop = ctx.loop(site.path)
    if loop is None:
        return no_loop(site.path)
    if site.params:
        return NotApplicable("bad-site", "loop_unrolling takes no parameters")
    if loop.kind is not LoopKind.SERIAL:
        return NotApplicable("loop-kind", f"{loop.var} is a {loop.kind} loop; only serial loops are unrolled")
    extent = ctx.value(loop.extent)
    if extent is None:
        return NotApplicable(
            "extent-varies",
            f"{loop.var} runs {print_expr(loop.extent, DType.I64)} times, which changes with the loops around it; only a constant number of iterations is unrolled",
        )
    if not 2 <= extent <= MAX_COPIES:
        return NotApplicable("extent", f"{loop.var} runs {extent} times; loops of 2 to {MAX_COPIES} iterations are unrolled (split it first)")
    return extent


def _nested_copies(ctx: Context, site: Site) -> int:
    """How often the innermost body stands in the unrolled text: with the unrolled loops inside and around."""
    total = 1
    around = [loop for _, loop in ctx.enclosing_loops(site.path) if loop.kind is LoopKind.UNROLL]
    mine = ctx.loop(site.path)
    assert mine is not None
    for loop in (*around, mine):
        total *= ctx.value(loop.extent) or 1
    return total


STRATEGY = LoopUnrolling()
