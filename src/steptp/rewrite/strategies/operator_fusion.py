"""Fuse two neighbouring nests with equal headers into one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from steptp.analysis.mapping import check_order
from steptp.ir import Loop, LoopKind, Path, Program, Store, Var, print_expr, same_index
from steptp.ir.nodes import Body, Expr, Stmt
from steptp.ir.walk import body_at, fresh_name, replace_body, visit
from steptp.rewrite.base import Applied, Exactness, Family, Forwarding, InstanceMap, NotApplicable, Outcome, Site, Strategy
from steptp.rewrite.context import Context, path_text
from steptp.rewrite.fact_kinds import fact
from steptp.rewrite.tools import accumulation_facts, buffers_touched, instance_map, substitute_body

__all__ = ["OperatorFusion", "STRATEGY"]

_KINDS = (LoopKind.SERIAL, LoopKind.PARALLEL)


class OperatorFusion(Strategy):
    """Site: path of the first nest, ``depth`` = how many outer loops become shared."""

    name = "operator_fusion"
    family = Family.GRAPH
    classes = (Exactness.BITWISE,)
    summary = "fuse two neighbouring nests with equal loop headers"

    def sites(self, ctx: Context) -> Iterator[Site]:
        for path, _ in ctx.loops:
            for depth in range(1, _shared(ctx, path) + 1):
                site = Site.of(self.name, path, depth=depth)
                if isinstance(self.apply(ctx, site), Applied):
                    yield site

    def apply(self, ctx: Context, site: Site) -> Outcome:
        path, depth = site.path, dict(site.params).get("depth")
        if ctx.loop(path) is None:
            return NotApplicable("not-a-loop", f"there is no loop at {path_text(path)}")
        if not isinstance(depth, int) or depth < 1 or len(site.params) != 1:
            return NotApplicable("bad-site", "operator_fusion takes depth=<number of loops to share>")
        if (problem := _header_problem(ctx, path, depth)) is not None:
            return problem
        first, second = _chains(ctx, path, depth)
        names = {b.var: Var(a.var) for a, b in zip(first, second, strict=True) if a.var != b.var}
        around_vars = {*names, *ctx.owner_names(path), *(a.var for a in first), *ctx.global_names}
        body = _rename_inner(second[-1].body, {a.var for a in first}, around_vars)
        moved = substitute_body(body, names, {**ctx.extents_around(path), **{a.var: a.extent for a in first}})
        joined: Stmt = replace(first[-1], body=(*first[-1].body, *moved), tmps=(*first[-1].tmps, *second[-1].tmps))
        for outer in reversed(first[:-1]):
            joined = replace(outer, body=(joined,))
        owner, n = path[:-1], path[-1]
        around = body_at(ctx.program, owner)
        child = replace_body(ctx.program, owner, (*around[:n], joined, *around[n + 2 :]))
        inner = (*path, *(0,) * (depth - 1))
        instances = _instances(ctx.program, child, path, depth, len(first[-1].body), {b.var: a.var for a, b in zip(first, second, strict=True)})
        order = check_order(ctx.program, child, ((e.child, e.parent, dict(e.iters)) for e in instances.entries))
        if isinstance(order, str):
            return NotApplicable("undecided", f"whether the nests may be fused cannot be decided: {order}")
        if order.broken:
            return NotApplicable("dependent", f"fusing would reverse a dependence: {order.broken[0].explain()}")
        if order.reassociated:
            return NotApplicable("reassociates", f"fusing would change an order of accumulation: {order.reassociated[0].explain()}")
        for k, loop in enumerate(first):
            if loop.kind is LoopKind.PARALLEL and (race := Context.of(child).legality.carried((*path, *(0,) * k))) is not None:
                return NotApplicable("race", f"the fused {loop.kind} loop {loop.var} would carry a dependence: {race.text}")
        return Applied(
            child,
            Exactness.BITWISE,
            (
                fact("perfect_nest", "parent", at=path_text(path), loops=tuple(a.var for a in first)),
                fact("same_header", "parent", first=path_text(path), second=path_text((*owner, n + 1)), loops=tuple(a.var for a in first)),
                fact("no_order_reversed", "dependence", buffers=_written(ctx, path)),
                *accumulation_facts(s for p in (path, (*owner, n + 1)) for _, s in ctx.stores_under(p)),
            ),
            instances,
            _forwarding(path, depth, len(first[-1].body), len(second[-1].body), len(around)),
            (Site.of("operator_fission", inner, at=len(first[-1].body), depth=depth),),
        )


def _shared(ctx: Context, path: Path) -> int:
    """How many outer loops the nest at ``path`` and its right neighbour have in common."""
    depth = 0
    while _header_problem(ctx, path, depth + 1) is None:
        depth += 1
    return depth


def _chains(ctx: Context, path: Path, depth: int) -> tuple[list[Loop], list[Loop]]:
    neighbour = (*path[:-1], path[-1] + 1)
    out: list[list[Loop]] = []
    for start in (path, neighbour):
        chain = [loop for n in range(depth) if (loop := ctx.loop((*start, *(0,) * n))) is not None]
        out.append(chain)
    return out[0], out[1]


def _header_problem(ctx: Context, path: Path, depth: int) -> NotApplicable | None:
    neighbour = (*path[:-1], path[-1] + 1)
    same: dict[str, Expr] = {}
    for n in range(depth):
        a, b = ctx.loop((*path, *(0,) * n)), ctx.loop((*neighbour, *(0,) * n))
        if a is None or b is None:
            return NotApplicable("no-neighbour", f"{path_text(path)} and its right neighbour are not both nests of {depth} loops")
        if n + 1 < depth and (len(a.body) != 1 or a.tmps or len(b.body) != 1 or b.tmps):
            return NotApplicable("imperfect", f"the loops {a.var} and {b.var} hold more than the next loop, so only {n + 1} loops can be shared")
        if a.kind is not b.kind or a.kind not in _KINDS:
            return NotApplicable("loop-kind", f"{a.var} is a {a.kind} loop and {b.var} a {b.kind} loop; fused loops are both serial or both parallel")
        extent = substitute_body((Store("", (), b.extent),), same, {})[0]
        assert isinstance(extent, Store)
        if not same_index(a.extent, extent.value):
            return NotApplicable("header", f"{a.var} runs {print_expr(a.extent)} times and {b.var} {print_expr(b.extent)} times")
        same[b.var] = Var(a.var)
    return None


def _rename_inner(body: Body, taken: set[str], avoid: set[str]) -> Body:
    """Give loops in the second nest new variables where the shared headers already use theirs; ``avoid``: names not to take."""
    used = avoid | {v.stmt.var for v in visit(body) if isinstance(v.stmt, Loop)}

    def one(stmt: Stmt) -> Stmt:
        if isinstance(stmt, Store):
            return stmt
        inner = tuple(one(s) for s in stmt.body)
        if isinstance(stmt, Loop) and stmt.var in taken:
            name = fresh_name(stmt.var, used)
            used.add(name)
            return replace(stmt, var=name, body=substitute_body(inner, {stmt.var: Var(name)}, {}))
        return replace(stmt, body=inner)

    return tuple(one(s) for s in body)


def _instances(parent: Program, child: Program, path: Path, depth: int, count: int, names: Mapping[str, str]) -> InstanceMap:
    """Stores of the second nest run with the first nest's variables; inner loops correspond by position."""
    inner, neighbour = (*path, *(0,) * (depth - 1)), (*path[:-1], path[-1] + 1)
    source = (*neighbour, *(0,) * (depth - 1))

    def back(p: Path) -> Path:
        if p[: len(inner)] == inner and p[len(inner)] >= count:
            return (*source, p[len(inner)] - count, *p[len(inner) + 1 :])
        if p[: len(path) - 1] == path[:-1] and p[len(path) - 1] > path[-1]:
            return (*path[:-1], p[len(path) - 1] + 1, *p[len(path) :])
        return p

    def iters(p: Path) -> dict[str, Expr]:
        old = back(p)
        if old[: len(neighbour)] != neighbour:
            return {}
        mine = [loop.var for loop in _around(child, p)]
        theirs = [loop.var for loop in _around(parent, old)]
        return {b: Var(a) for a, b in zip(mine, theirs, strict=True) if a != b}

    return instance_map(parent, child, back, iters)


def _around(program: Program, path: Path) -> list[Loop]:
    from steptp.ir.walk import enclosing

    return [p for p in enclosing(program, path) if isinstance(p, Loop)]


def _written(ctx: Context, path: Path) -> tuple[str, ...]:
    neighbour = (*path[:-1], path[-1] + 1)
    found: set[str] = set()
    for place in (path, neighbour):
        stmt = ctx.stmt(place)
        assert stmt is not None
        found |= buffers_touched(stmt)[1]
    return tuple(sorted(found))


def _forwarding(path: Path, depth: int, first: int, second: int, siblings: int) -> Forwarding:
    owner, n = path[:-1], path[-1]
    inner, source = (*path, *(0,) * (depth - 1)), (*owner, n + 1, *(0,) * (depth - 1))
    moves: list[tuple[Path, Path | None]] = [((*source, k), (*inner, first + k)) for k in range(second)]
    moves += [((*owner, n + 1, *(0,) * k), (*path, *(0,) * k)) for k in range(depth)]
    moves += [((*owner, k), (*owner, k - 1)) for k in range(n + 2, siblings)]
    return Forwarding(tuple(moves))


STRATEGY = OperatorFusion()
