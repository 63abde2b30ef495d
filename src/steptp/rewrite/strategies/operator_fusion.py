"""Fuse two neighbouring nests with equal headers into one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from steptp.ir import Loop, LoopKind, Path, Program, Store, Var, print_expr, same_index
from steptp.ir.nodes import Body, Expr, Stmt
from steptp.ir.walk import body_at, enclosing, fresh_name, replace_body, visit
from steptp.rewrite.base import Applied, Exactness, Family, Forwarding, InstanceMap, NotApplicable, Outcome, Site, Strategy
from steptp.rewrite.context import Context, no_loop, path_text
from steptp.rewrite.fact_kinds import fact
from steptp.rewrite.orders import order_problem
from steptp.rewrite.regions import accesses_under
from steptp.rewrite.tools import accumulation_facts, instance_map, substitute_body, substitute_expr

__all__ = ["OperatorFusion", "STRATEGY"]

_KINDS = (LoopKind.SERIAL, LoopKind.PARALLEL, LoopKind.VECTOR, LoopKind.UNROLL)


class OperatorFusion(Strategy):
    """Site: path of the first nest, ``depth`` = how many outer loops become shared."""

    name = "operator_fusion"
    family = Family.GRAPH
    classes = (Exactness.BITWISE,)
    summary = "fuse two neighbouring nests with equal loop headers"

    def sites(self, ctx: Context) -> Iterator[Site]:
        for path, _ in ctx.loops:
            for depth in range(1, _shared(ctx, path) + 1):
                if _problem(ctx, path, depth) is None:
                    yield Site.of(self.name, path, depth=depth)

    def apply(self, ctx: Context, site: Site) -> Outcome:
        path, depth = site.path, dict(site.params).get("depth")
        if ctx.loop(path) is None:
            return no_loop(path)
        if not isinstance(depth, int) or depth < 1 or len(site.params) != 1:
            return NotApplicable("bad-site", "operator_fusion takes depth=<number of loops to share>")
        if (problem := _header_problem(ctx, path, depth)) is not None:
            return problem
        if (problem := _problem(ctx, path, depth)) is not None:
            return problem
        first, _ = _chains(ctx, path, depth)
        child, instances = _fused(ctx, path, depth)
        owner, n = path[:-1], path[-1]
        inner, source = (*path, *(0,) * (depth - 1)), (*owner, n + 1, *(0,) * (depth - 1))
        front, back = len(body_at(ctx.program, inner)), len(body_at(ctx.program, source))
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
            _forwarding(path, depth, front, back, len(body_at(ctx.program, owner))),
            (Site.of("operator_fission", inner, at=front, depth=depth),),
        )


def _fused(ctx: Context, path: Path, depth: int) -> tuple[Program, InstanceMap]:
    """The program with the two nests fused, and which stores of it run which of the parent's."""
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
    return child, _instances(ctx.program, child, path, depth, len(first[-1].body))


def _problem(ctx: Context, path: Path, depth: int) -> NotApplicable | None:
    """Why nests with equal headers may not be fused; kept with the program."""
    return ctx.kept("fusion_problem", (path, depth), lambda: None if _same_iteration_only(ctx, path, depth) else _dependence_problem(ctx, path, depth))


def _same_iteration_only(ctx: Context, path: Path, depth: int) -> bool:
    """Cheap proof: whatever both nests touch and one writes is indexed, at one place, by each of the shared loops: nothing crosses iterations."""
    first, second = _chains(ctx, path, depth)
    beside = (*path[:-1], path[-1] + 1)
    (reads_a, writes_a), (reads_b, writes_b) = ctx.touched(path), ctx.touched(beside)
    shared = (writes_a & (reads_b | writes_b)) | (writes_b & reads_a)
    if not shared:
        return True
    places: dict[tuple[str, int], set[int]] = {}
    for start, chain in ((path, first), (beside, second)):
        numbers = {loop.var: k for k, loop in enumerate(chain)}
        inner = {loop.var for p, loop in ctx.loops_under(start) if len(p) >= len(path) + depth}
        if inner & numbers.keys():
            return False  # a variable that means two loops
        for name in shared:
            for access in accesses_under(ctx, start, name):
                at = {(k, d) for d, i in enumerate(access.indices) if isinstance(i, Var) and (k := numbers.get(i.name)) is not None}
                for k in range(depth):
                    found = {d for j, d in at if j == k}
                    places[name, k] = places[name, k] & found if (name, k) in places else found
    return all(places.values())


def _dependence_problem(ctx: Context, path: Path, depth: int) -> NotApplicable | None:
    child, instances = _fused(ctx, path, depth)
    if (problem := order_problem(ctx.program, child, instances, "fusing")) is not None:
        return problem
    for k in range(depth):
        loop = ctx.loop((*path, *(0,) * k))
        if loop is not None and loop.kind.is_concurrent and (race := Context.of(child).legality.carried((*path, *(0,) * k))) is not None:
            return NotApplicable("race", f"the fused {loop.kind} loop {loop.var} would carry a dependence: {race.text}")
    return None


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
        if a.kind is not b.kind:
            return NotApplicable("loop-kind", f"{a.var} is a {a.kind} loop and {b.var} a {b.kind} loop")
        if a.kind not in _KINDS:
            return NotApplicable("loop-kind", f"{a.var} is a {a.kind} loop; GPU axes are not fused")
        if not same_index(a.extent, substitute_expr(b.extent, same, {})):
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


def _instances(parent: Program, child: Program, path: Path, depth: int, count: int) -> InstanceMap:
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
    return [p for p in enclosing(program, path) if isinstance(p, Loop)]


def _written(ctx: Context, path: Path) -> tuple[str, ...]:
    return tuple(sorted(ctx.touched(path)[1] | ctx.touched((*path[:-1], path[-1] + 1))[1]))


def _forwarding(path: Path, depth: int, first: int, second: int, siblings: int) -> Forwarding:
    owner, n = path[:-1], path[-1]
    inner, source = (*path, *(0,) * (depth - 1)), (*owner, n + 1, *(0,) * (depth - 1))
    moves: list[tuple[Path, Path | None]] = [((*source, k), (*inner, first + k)) for k in range(second)]
    moves += [((*owner, n + 1, *(0,) * k), (*path, *(0,) * k)) for k in range(depth)]
    moves += [((*owner, k), (*owner, k - 1)) for k in range(n + 2, siblings)]
    return Forwarding(tuple(moves))


STRATEGY = OperatorFusion()
