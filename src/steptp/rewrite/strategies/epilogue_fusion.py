"""Move a pointwise consumer to where the producer's accumulation has just finished: a composite of one reverse_compute_at."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from steptp.ir import Path
from steptp.ir.walk import free_vars
from steptp.rewrite.base import Applied, Exactness, Family, NotApplicable, Outcome, Site, Strategy
from steptp.rewrite.context import Context, path_text
from steptp.rewrite.fact_kinds import fact
from steptp.rewrite.moving import single_nest
from steptp.rewrite.regions import writes_of
from steptp.rewrite.strategies.reverse_compute_at import Move, applied, moves, plan_move, tied_by

__all__ = ["EpilogueFusion", "STRATEGY"]


class EpilogueFusion(Strategy):
    """Site: path of the pointwise nest; no parameters. It moves under the innermost loop that still finishes what it reads."""

    name = "epilogue_fusion"
    family = Family.LOOP
    classes = (Exactness.BITWISE,)
    summary = "move a pointwise consumer behind the accumulation that it reads"

    def sites(self, ctx: Context) -> Iterator[Site]:
        for path, _ in ctx.loops:
            if _is_epilogue(ctx, path):
                yield Site.of(self.name, path)

    def apply(self, ctx: Context, site: Site) -> Outcome:
        if site.params:
            return NotApplicable("bad-site", "epilogue_fusion takes no parameters")
        found = _innermost(ctx, site.path)
        if isinstance(found, NotApplicable):
            return found
        step: Applied = applied(ctx, found)
        more = fact("pointwise", "parent", buffer=found.nest.store.buffer, accumulator=found.buffer)
        return replace(step, facts=(step.facts[0], more, *step.facts[1:]))


def _is_epilogue(ctx: Context, path: Path) -> bool:
    """Whether :func:`_innermost` finds a move."""
    if _nest_problem(ctx, path) is not None:
        return False
    tied = (tied_by(ctx, path, target) for target in moves(ctx, path))
    return any(buffer is not None and _accumulates(ctx, buffer) for buffer in tied)


def _nest_problem(ctx: Context, path: Path) -> NotApplicable | None:
    nest = single_nest(ctx, path)
    if isinstance(nest, NotApplicable):
        return nest
    store = nest.store
    indexing = frozenset().union(*(free_vars(i) for i in store.indices))
    if store.reduce is not None or nest.vars - indexing:
        return NotApplicable("not-pointwise", f"the nest at {path_text(path)} accumulates {store.buffer} or writes its elements more than once")
    return None


def _accumulates(ctx: Context, buffer: str) -> bool:
    return any(s.reduce is not None for _, s in writes_of(ctx)[buffer])


def _innermost(ctx: Context, path: Path) -> Move | NotApplicable:
    """The move under the innermost loop, or why the nest is no epilogue."""
    if (problem := _nest_problem(ctx, path)) is not None:
        return problem
    refused: NotApplicable | None = None
    for target in sorted(moves(ctx, path), key=lambda p: (p[len(path) - 1], len(p)), reverse=True):
        found = plan_move(ctx, path, target)
        if isinstance(found, NotApplicable):
            refused = found
        elif _accumulates(ctx, found.buffer):
            return found
    return refused or NotApplicable("no-accumulation", f"the nest at {path_text(path)} reads no accumulation of an earlier nest beside it")


STRATEGY = EpilogueFusion()
