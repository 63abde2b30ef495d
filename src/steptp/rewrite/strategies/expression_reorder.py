"""Swap two neighbouring statements that do not depend on each other."""

from __future__ import annotations

from collections.abc import Iterator

from steptp.analysis.model import Access
from steptp.ir import Path
from steptp.ir.walk import body_at, replace_body
from steptp.rewrite.base import Applied, Exactness, Family, Forwarding, NotApplicable, Outcome, Site, Strategy
from steptp.rewrite.context import Context, path_text
from steptp.rewrite.fact_kinds import fact
from steptp.rewrite.tools import instance_map

__all__ = ["ExpressionReorder", "STRATEGY"]


class ExpressionReorder(Strategy):
    """Site: path of the first statement of the pair; no parameters."""

    name = "expression_reorder"
    family = Family.GRAPH
    classes = (Exactness.BITWISE,)
    summary = "swap two neighbouring independent statements or nests"

    def sites(self, ctx: Context) -> Iterator[Site]:
        for met in ctx.visits:
            site = Site.of(self.name, met.path)
            if met.path[-1] + 1 < len(body_at(ctx.program, met.path[:-1])) and _problem(ctx, met.path) is None:
                yield site

    def apply(self, ctx: Context, site: Site) -> Outcome:
        path = site.path
        if not path:
            return NotApplicable("bad-site", "expression_reorder needs the path of a statement")
        if site.params:
            return NotApplicable("bad-site", "expression_reorder takes no parameters")
        if (problem := _problem(ctx, path)) is not None:
            return problem
        owner, n = path[:-1], path[-1]
        body = body_at(ctx.program, owner)
        child = replace_body(ctx.program, owner, (*body[:n], body[n + 1], body[n], *body[n + 2 :]))
        after = (*owner, n + 1)

        def swap(p: Path) -> Path:
            if p[: len(path)] == path:
                return after + p[len(path) :]
            return path + p[len(path) :] if p[: len(path)] == after else p

        return Applied(
            child,
            Exactness.BITWISE,
            (fact("independent", "dependence", first=path_text(path), second=path_text(after), shared=tuple(sorted(_shared(ctx, path, after)))),),
            instance_map(ctx.program, child, swap, lambda _: {}),
            Forwarding(((path, after), (after, path))),
            (site,),
        )


def _problem(ctx: Context, path: Path) -> NotApplicable | None:
    owner, n = path[:-1], path[-1]
    body = body_at(ctx.program, owner)
    if n + 1 >= len(body):
        return NotApplicable("no-neighbour", f"no statement follows the one at {path_text(path)}")
    if body[n] == body[n + 1]:
        return NotApplicable("no-op", "the two statements are the same")
    after = (*owner, n + 1)
    if _shared(ctx, path, after):
        depth = len(ctx.enclosing_loops(path))
        for dep in ctx.legality.straight:
            if dep.level == depth and _under(dep.source, path) and _under(dep.sink, after):
                if (found := ctx.legality.exists(dep, ())) is not None:
                    return NotApplicable("dependent", f"the statements at {path_text(path)} and {path_text(after)} depend on each other: {found.text}")
    return None


def _shared(ctx: Context, first: Path, second: Path) -> frozenset[str]:
    """Buffers that both touch and at least one writes."""
    (reads, writes), (next_reads, next_writes) = ctx.touched(first), ctx.touched(second)
    return (writes & (next_reads | next_writes)) | (reads & next_writes)


def _under(access: Access, path: Path) -> bool:
    return access.statement.origin[: len(path)] == path


STRATEGY = ExpressionReorder()
