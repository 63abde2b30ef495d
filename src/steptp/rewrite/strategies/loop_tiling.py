"""Tile a perfectly nested pair: two splits and a reorder in one step, ``i j`` becomes ``i0 j0 i1 j1``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from steptp.ir import DType, Expr, If, Loop, LoopKind, Path, Size, Var, ix, op, print_expr, simplify_cond, simplify_index
from steptp.ir.facts import Fact
from steptp.ir.walk import replace_at
from steptp.rewrite.base import Applied, Exactness, Family, Forwarding, NotApplicable, Outcome, Site, Strategy
from steptp.rewrite.context import Context, no_loop, path_text
from steptp.rewrite.fact_kinds import fact
from steptp.rewrite.legality import Witness
from steptp.rewrite.strategies.loop_reorder import Order, exactness_of, reset_problem
from steptp.rewrite.strategies.loop_split import FACTORS, Factor, guard_problem, read_factor
from steptp.rewrite.tools import add_constraint, add_size, instance_map, quotient, substitute_body

__all__ = ["LoopTiling", "STRATEGY"]

_KINDS = (LoopKind.SERIAL, LoopKind.PARALLEL)
_OFFERED = 3  # divisors offered for each loop of the pair


class LoopTiling(Strategy):
    """Site: path of the outer loop, ``outer`` and ``inner`` = tile sizes, ``tail`` = ``exact`` or ``guard``."""

    name = "loop_tiling"
    family = Family.LOOP
    classes = (Exactness.BITWISE, Exactness.REASSOCIATED)
    summary = "tile a perfectly nested pair of loops"

    def sites(self, ctx: Context) -> Iterator[Site]:
        for path, loop in ctx.loops:
            pair = _pair(ctx, path)
            if isinstance(pair, NotApplicable) or isinstance(check_tiling(ctx, path), NotApplicable):
                continue
            rows, columns = ctx.value(loop.extent), ctx.value(pair.extent)
            assert rows is not None
            assert columns is not None
            for a in _divisors(rows):
                for b in _divisors(columns):
                    yield Site.of(self.name, path, outer=a, inner=b, tail="exact")
            uneven = next(((f, f) for f in (8, 4, 3, 2) if f < min(rows, columns) and (rows % f or columns % f)), None)
            if uneven is not None and _guard_problem(ctx, path, (rows, columns), uneven) is None:
                yield Site.of(self.name, path, outer=uneven[0], inner=uneven[1], tail="guard")

    def apply(self, ctx: Context, site: Site) -> Outcome:
        loop = ctx.loop(site.path)
        if loop is None:
            return no_loop(site.path)
        params = dict(site.params)
        tail = params.get("tail", "exact")
        if set(params) - {"outer", "inner", "tail"} or not {"outer", "inner"} <= set(params) or tail not in ("exact", "guard"):
            return NotApplicable("bad-site", "loop_tiling takes outer=<size>, inner=<size> and tail=exact or guard")
        inner = _pair(ctx, site.path)
        if isinstance(inner, NotApplicable):
            return inner
        a = read_factor(ctx, params["outer"])
        if isinstance(a, NotApplicable):
            return a
        b = read_factor(ctx, params["inner"], (a.new,) if a.new else ())
        if isinstance(b, NotApplicable):
            return b
        extents: list[int] = []
        for one, factor in ((loop, a), (inner, b)):
            extent = ctx.value(one.extent)
            assert extent is not None
            extents.append(extent)
            if factor.value >= extent:
                return NotApplicable("factor", f"{one.var} runs {extent} times, so a tile of {factor.value} would hold the whole loop")
            if tail == "exact" and extent % factor.value:
                return NotApplicable("not-divisible", f"{factor.value} does not divide the {extent} iterations of {one.var}; use tail=guard")
        order = check_tiling(ctx, site.path)
        if isinstance(order, NotApplicable):
            return order
        if tail == "guard" and (problem := _guard_problem(ctx, site.path, extents, (a.value, b.value))) is not None:
            return problem
        return _tile(ctx, site, loop, inner, a, b, order)


def _guard_problem(ctx: Context, path: Path, extents: Sequence[int], factors: tuple[int, int]) -> NotApplicable | None:
    tiles = dict(zip((path, (*path, 0)), factors, strict=True))
    return guard_problem(ctx, tiles, exact=[p for p, extent in zip(tiles, extents, strict=True) if extent % tiles[p] == 0])


def _divisors(extent: int) -> tuple[int, ...]:
    """The largest powers of two below the extent that divide it, in growing order."""
    return tuple(f for f in FACTORS if f < extent and extent % f == 0)[-_OFFERED:]


def _pair(ctx: Context, path: Path) -> Loop | NotApplicable:
    """The inner loop of the pair at ``path``, or why there is none."""
    outer = ctx.loop(path)
    assert outer is not None
    inner = outer.body[0]
    if (*path, 0) not in ctx.chain(path) or not isinstance(inner, Loop):
        return NotApplicable("not-perfect", f"{outer.var} is not directly around another loop; a pair with nothing between is tiled")
    for loop in (outer, inner):
        if ctx.value(loop.extent) is None:
            return NotApplicable(
                "extent-varies",
                f"{loop.var} runs {print_expr(loop.extent, DType.I64)} times, which changes with the loops around it; only rectangular pairs are tiled",
            )
    if outer.kind not in _KINDS or inner.kind is not LoopKind.SERIAL:
        return NotApplicable(
            "loop-kind", f"a {outer.kind} loop around a {inner.kind} loop is not tiled; the inner loop must be serial, the outer one serial or parallel"
        )
    return inner


def check_tiling(ctx: Context, path: Path) -> Order | NotApplicable:
    """Legality of tiling the pair at ``path`` with any sizes.

    Illegal is a dependence that goes forwards in the outer loop and backwards in the inner one: inside of one row of tiles it
    would be reversed. An accumulation meeting itself this way only changes its order.
    """
    pair = (path, (*path, 0))
    if (problem := reset_problem(ctx, pair, 0, 1)) is not None:
        return problem
    reordered: dict[str, Witness] = {}
    conflicts: dict[str, None] = {}
    for dep in ctx.legality.through(pair[1]):
        k = dep.loops.index(path)
        if not k <= dep.level <= k + 1:
            continue
        found = ctx.legality.exists(dep, [(k, "<"), (k + 1, ">")]) if dep.level == k else None
        if not dep.reduction:
            if dep.buffer not in conflicts and ctx.legality.exists(dep, ()) is not None:
                conflicts[dep.buffer] = None
            if found is not None:
                return NotApplicable("reversed", f"tiles would run dependent iterations the wrong way round: {found.text}")
        elif found is not None:
            reordered.setdefault(dep.buffer, found)
    return exactness_of(ctx, pair, reordered, tuple(conflicts))


def _tile(ctx: Context, site: Site, loop: Loop, inner: Loop, a: Factor, b: Factor, order: Order) -> Applied:
    path, program = site.path, ctx.program
    guarded = dict(site.params).get("tail") == "guard"
    stems = [f"{var.rstrip('0123456789') or var}{n}" for n in (0, 1) for var in (loop.var, inner.var)]
    i0, j0, i1, j1 = ctx.fresh_vars(path, *stems)
    declared = program
    facts: list[Fact] = [fact("perfect_nest", "parent", at=path_text(path), loops=(loop.var, inner.var))]
    becomes: dict[str, Expr] = {}
    extents: dict[str, Expr] = {}
    conds: list[Expr] = []
    for one, factor, first, second in ((loop, a, i0, i1), (inner, b, j0, j1)):
        extent = ctx.value(one.extent)
        assert extent is not None
        becomes[one.var] = simplify_index(Var(first) * factor.size + Var(second))
        if factor.new:
            declared = add_size(declared, factor.new, factor.value)
            facts.append(fact("tile_size", "child", name=factor.new, value=factor.value))
        if guarded and extent % factor.value:
            extents[first] = simplify_index(op("//", one.extent + factor.size - ix(1), factor.size))
            conds.append(simplify_cond(becomes[one.var] < one.extent))
            facts.append(fact("tail_guard", "child", cond=print_expr(conds[-1]), extent=extent, factor=factor.value, idle=-extent % factor.value))
        else:
            count = len(declared.constraints)
            declared = add_constraint(declared, one.extent, factor.size)
            trips = quotient(declared, one.extent, factor.size)
            assert trips is not None
            extents[first] = trips
            stated = print_expr(declared.constraints[-1]) if len(declared.constraints) > count else ""
            facts.append(fact("divides", "parent", extent=extent, factor=factor.value, constraint=stated))
        extents[second] = factor.size
        facts.append(fact("index_map", "child", loop=one.var, becomes=print_expr(becomes[one.var])))
    body = substitute_body(inner.body, becomes, {**ctx.extents_around(path), **extents})
    if conds:
        whole = conds[0]
        for cond in conds[1:]:
            whole = op("and", whole, cond)
        body = (If(whole, body),)
    nest = Loop(j1, extents[j1], body, LoopKind.SERIAL, inner.tmps)
    for var, kind in ((i1, LoopKind.SERIAL), (j0, LoopKind.SERIAL), (i0, loop.kind)):
        nest = Loop(var, extents[var], (nest,), kind)
    child = replace_at(declared, path, nest)
    deeper = (0, 0, 0) + ((0,) if conds else ())  # from the outer loop to the owner of the body
    start = len(path)

    def inside(p: Path) -> bool:
        return p[:start] == path

    return Applied(
        child,
        order.exactness,
        (*facts, *order.facts),
        instance_map(
            program,
            child,
            lambda p: (*path, 0, *p[start + len(deeper) :]) if inside(p) else p,
            lambda p: becomes if inside(p) else {},
        ),
        Forwarding((((*path, 0), (*path, 0)), *(((*path, 0, n), (*path, *deeper, n)) for n in range(len(inner.body))))),
        () if conds or not _fresh(a, b) else _undo(ctx, path),
    )


def _fresh(*sizes: Factor) -> bool:
    return all(f.new is not None and isinstance(f.size, Size) for f in sizes)


def _undo(ctx: Context, path: Path) -> tuple[Site, ...]:
    """Bring the inner tile loop of the first pair back, then collapse both pairs."""
    depth = ctx.chain(path).index(path)
    return (
        Site.of("loop_reorder", (*path, 0, 0), to=depth + 1),
        Site.of("loop_fusion", path),
        Site.of("loop_fusion", (*path, 0)),
    )


STRATEGY = LoopTiling()
