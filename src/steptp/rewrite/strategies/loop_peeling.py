"""Give the first or last iterations of a loop, or the last, incomplete tile, a nest of their own."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from steptp.ir import Body, DType, Expr, If, Loop, Op, Path, Program, Stmt, Store, Var, ix, op, print_expr, same_index, simplify_index
from steptp.ir.facts import Fact
from steptp.ir.resets import conjuncts
from steptp.ir.sizes import shape_of
from steptp.ir.walk import body_at, buffer_table, free_vars, replace_at, stmt_exprs, subexprs, visit
from steptp.rewrite.base import Applied, Exactness, Family, Forwarding, InstanceEntry, InstanceMap, NotApplicable, Outcome, Site, Strategy
from steptp.rewrite.context import Context, no_loop, path_text
from steptp.rewrite.fact_kinds import fact
from steptp.rewrite.regions import table_problem
from steptp.rewrite.second_copy import SecondCopy, copy_entries, decided, fold_choices, second_copy
from steptp.rewrite.tools import instance_map, lower_bound, substitute_body, substitute_expr

__all__ = ["LoopPeeling", "STRATEGY", "Tile", "find_tile", "without_guards"]

_PARTS = ("first", "last", "tile")
_LANES = 4  # what is left of groups of so many iterations is offered to be peeled


class LoopPeeling(Strategy):
    """Site: path of the loop, ``part`` = ``first`` or ``last`` with ``count`` = how many iterations, or ``part=tile``.

    ``part=tile`` wants the loop over the tiles of a split with a guard: full tiles lose the guard, the incomplete one becomes a nest behind them.
    """

    name = "loop_peeling"
    family = Family.LOOP
    classes = (Exactness.BITWISE,)
    summary = "give the first or last iterations of a loop a nest of their own"

    def sites(self, ctx: Context) -> Iterator[Site]:
        for path, loop in ctx.loops:
            extent = ctx.value(loop.extent)
            if extent is None or loop.kind.is_bound:
                continue
            if _reset_problem(ctx, path, loop) is not None:
                continue
            if isinstance(find_tile(ctx, path, loop), Tile):
                yield Site.of(self.name, path, part="tile")
            if extent < 3:
                continue
            useful = _decisive(ctx, path, loop)
            for part in useful:
                yield Site.of(self.name, path, part=part, count=1)
            if extent > _LANES and extent % _LANES > ("last" in useful):
                yield Site.of(self.name, path, part="last", count=extent % _LANES)

    def apply(self, ctx: Context, site: Site) -> Outcome:
        loop, params = ctx.loop(site.path), dict(site.params)
        part, count = params.get("part"), params.get("count")
        if loop is None:
            return no_loop(site.path)
        if part not in _PARTS or set(params) - {"part", "count"} or (part == "tile") == isinstance(count, int):
            return NotApplicable("bad-site", "loop_peeling takes part=first or last with count=<iterations>, or part=tile")
        if loop.kind.is_bound:
            return NotApplicable("loop-kind", f"{loop.var} is bound to a GPU axis")
        if (problem := _reset_problem(ctx, site.path, loop)) is not None:
            return problem
        if part == "tile":
            tile = find_tile(ctx, site.path, loop)
            return tile if isinstance(tile, NotApplicable) else _peel_tile(ctx, site.path, loop, tile)
        extent = ctx.value(loop.extent)
        if extent is None:
            return NotApplicable("extent-varies", f"{loop.var} runs a number of times that changes with the loops around it")
        assert isinstance(count, int)
        if not 1 <= count < extent:
            return NotApplicable("count", f"{loop.var} runs {extent} times; 1 to {extent - 1} iterations can be peeled")
        return _peel(ctx, site.path, loop, str(part), count)


def _reset_problem(ctx: Context, path: Path, loop: Loop) -> NotApplicable | None:
    """An accumulation whose reset, outside of the loop, covers what all iterations of the loop write; or a table, which needs one definition."""
    if (problem := table_problem(ctx, (s.buffer for _, s in ctx.stores_under(path)))) is not None:
        return problem
    for store_path, store in ctx.stores_under(path):
        before = ctx.reset_loop(store_path)
        if before is not None and path[: len(before)] == before and len(before) < len(path) and any(loop.var in free_vars(i) for i in store.indices):
            return NotApplicable("reset-outside", f"{store.buffer} resets outside of {loop.var}, for all of its iterations at once")
    return None


def _decisive(ctx: Context, path: Path, loop: Loop) -> list[str]:
    """The parts of one iteration, of ``first`` and ``last``, that decide a choice below, in either loop."""
    conds = dict[tuple[tuple[str, Expr], ...], dict[Expr, None]]()  # by the loops between
    for met in ctx.visits_under(path)[1:]:
        for expr in stmt_exprs(met.stmt):
            for e in subexprs(expr):
                if isinstance(e, Op) and e.name == "select" and loop.var in free_vars(e.args[0]):
                    conds.setdefault(tuple((p.var, p.extent) for p in met.parents[len(path) :] if isinstance(p, Loop)), {})[e.args[0]] = None
    out = []
    kept = dict[object, dict[Expr, bool | None]]()  # answers about the other loops
    for part in ("first", "last") if conds else ():
        becomes, front, back = _ranges(loop, part, 1)
        around = ctx.extents_around(path)
        for inner, some in conds.items():
            known = kept.setdefault(inner, {})
            before = {**around, loop.var: front, **dict(inner)}
            behind = {**around, loop.var: back}
            for var, extent in inner:
                behind[var] = substitute_expr(extent, {loop.var: becomes}, behind)
            if _decides(some, loop.var, before, None, known) or _decides(some, loop.var, behind, becomes, known):
                out.append(part)
                break
    return out


def _decides(conds: Iterable[Expr], var: str, extents: Mapping[str, Expr], becomes: Expr | None, known: dict[Expr, bool | None]) -> bool:
    """Whether a choice on ``var`` is decided where that is another value and the loops run as in ``extents``."""
    if any(var in free_vars(e) for e in extents.values()):
        known.clear()
    for cond in [c for c in known if var in free_vars(c)]:
        del known[cond]
    for cond in conds:
        if becomes is not None:
            for part in _comparisons(cond):
                if part not in known and var in free_vars(part):
                    known[part] = decided(substitute_expr(part, {var: becomes}, extents), extents)
        if decided(cond, extents, known) is not None:
            return True
    return False


def _comparisons(cond: Expr) -> Iterator[Expr]:
    if isinstance(cond, Op) and cond.name in ("and", "or"):
        for part in cond.args:
            yield from _comparisons(part)
    else:
        yield cond


def _ranges(loop: Loop, part: str, count: int) -> tuple[Expr, Expr, Expr]:
    """What the variable becomes in the second loop, and both extents."""
    rest = simplify_index(loop.extent - ix(count))
    start, front, back = (rest, rest, ix(count)) if part == "last" else (ix(count), ix(count), rest)
    return simplify_index(Var(loop.var) + start), front, back


@dataclass(frozen=True)
class _Parts:
    """Both loops, and the constraint that they need (if it does not follow)."""

    front: Loop
    back: Loop
    becomes: Expr
    need: Expr | None
    copy: SecondCopy


def _parts(ctx: Context, path: Path, loop: Loop, part: str, count: int) -> _Parts:
    var, around = loop.var, ctx.extents_around(path)
    becomes, *extents = _ranges(loop, part, count)
    low = lower_bound(loop.extent)
    need = op(">=", loop.extent, ix(count))
    copy = second_copy(ctx, path, resets=False)
    twin = copy.body[0]
    assert isinstance(twin, Loop)
    inside = {**around, var: extents[1]}
    moved = substitute_body(twin.body, {var: becomes}, inside)
    bodies = fold_choices(loop.body, var, {**around, var: extents[0]}), fold_choices(moved, var, inside)
    stated = (low is None or low < count) and need not in ctx.program.constraints
    front, back = replace(loop, extent=extents[0], body=bodies[0]), replace(twin, extent=extents[1], body=bodies[1])
    return _Parts(front, back, becomes, need if stated else None, copy)


def _peel(ctx: Context, path: Path, loop: Loop, part: str, count: int) -> Outcome:
    program, parts = ctx.program, _parts(ctx, path, loop, part, count)
    limited = program if parts.need is None else program.with_(constraints=(*program.constraints, parts.need))
    child = replace_at(limited, path, parts.front, parts.back)
    facts = [
        fact("loop_extent", "parent", loop=loop.var, at=path_text(path), extent=ctx.value(loop.extent) or 0, text=print_expr(loop.extent, DType.I64)),
        fact("peeled", "child", loop=loop.var, part=part, count=count, constraint="" if parts.need is None else print_expr(parts.need)),
    ]
    return _done(ctx, path, child, parts.copy, facts, 1, lambda p: p, lambda p: (*path[:-1], path[-1] + 1, *p[1:]), {loop.var: parts.becomes})


@dataclass(frozen=True)
class Tile:
    """``conds`` hold in full tiles of ``size``; ``inner``: variables of the loops inside the tile; ``unguarded``: some store runs in every tile."""

    size: Expr
    whole: Expr
    conds: frozenset[Expr]
    inner: frozenset[str]
    unguarded: bool


def find_tile(ctx: Context, path: Path, loop: Loop) -> Tile | NotApplicable:
    """The split that the loop at ``path`` comes from: ``i0*T+i1<N`` guards what runs in tiles of ``T``."""
    found: dict[Expr, tuple[Expr, Expr, str]] = {}
    for met in visit(loop.body) if any(isinstance(v.stmt, If) for v in ctx.visits_under(path)) else ():
        if isinstance(met.stmt, If):
            loops = {p.var: p for p in met.parents if isinstance(p, Loop)}
            found |= {c: match for c in conjuncts(met.stmt.cond) if (match := _tail_guard(c, loop, loops)) is not None}
    if len({(size, whole) for size, whole, _ in found.values()}) != 1:
        return NotApplicable("no-tail-guard", f"no guard below {loop.var} cuts off the last of its tiles (or several do, differently)")
    size, whole, _ = next(iter(found.values()))
    have, part = ctx.value(whole), ctx.value(size)
    if have is None or part is None or have % part == 0:
        return NotApplicable("no-tail", f"{print_expr(size)} divides {print_expr(whole)}, so no tile is incomplete")
    if have < part:
        return NotApplicable("no-full-tile", f"the only tile of {loop.var} is incomplete")
    inner, unguarded = frozenset(v for _, _, v in found.values()), False
    for met in visit(loop.body):
        if isinstance(met.stmt, Store):
            guards = {found[c][2] for g in met.guards for c in conjuncts(g) if c in found}
            unguarded |= not guards
            if loose := {p.var for p in met.loops if p.var in inner} - guards:
                return NotApplicable("partly-guarded", f"a store under {min(loose)} runs past the end of the last tile")
    return Tile(size, whole, frozenset(found), inner, unguarded)


def _tail_guard(cond: Expr, loop: Loop, loops: dict[str, Loop]) -> tuple[Expr, Expr, str] | None:
    """Tile size, whole extent and inner variable where ``cond`` is the guard of a split of ``loop``."""
    if not (isinstance(cond, Op) and cond.name == "<" and not free_vars(cond.args[1])):
        return None
    others = free_vars(cond.args[0]) - {loop.var}
    if len(others) != 1 or not others <= loops.keys():
        return None
    (inner,) = others
    size, whole = loops[inner].extent, cond.args[1]
    same = same_index(cond.args[0], Var(loop.var) * size + Var(inner)) and same_index(loop.extent, op("//", whole + size - ix(1), size))
    return (size, whole, inner) if same and not free_vars(size) else None


def _peel_tile(ctx: Context, path: Path, loop: Loop, tile: Tile) -> Outcome:
    program, around = ctx.program, ctx.extents_around(path)
    full, rest = simplify_index(op("//", tile.whole, tile.size)), simplify_index(op("%", tile.whole, tile.size))
    body, moved = without_guards(loop.body, tile.conds)
    copy = second_copy(ctx, path, resets=False)
    twin = copy.body[0]
    assert isinstance(twin, Loop)
    shorter, below = without_guards(twin.body, tile.conds)
    shorter = tuple(_shortened(s, tile.inner, rest) for s in shorter)
    last = substitute_body(shorter, {loop.var: full}, around)
    main: Stmt = replace(loop, extent=full, body=body)
    wrapped = bool(loop.tmps) or tile.unguarded
    tail: Body = (replace(twin, extent=op("min", rest, ix(1)), body=last),) if wrapped else last
    child = replace_at(program, path, main, *tail)
    behind = path[-1] + 1

    def place(p: Path) -> Path:
        inside = below[p[1:]]
        return (*path[:-1], behind, *inside) if wrapped else (*path[:-1], behind + inside[0], *inside[1:])

    have, part = ctx.value(tile.whole), ctx.value(tile.size)
    assert have is not None
    assert part is not None
    facts = [
        fact("tile_peeled", "child", loop=loop.var, at=path_text(path), full=have // part, rest=have % part),
        *(fact("guard_dropped", "child", cond=print_expr(c), loop=loop.var) for c in sorted(tile.conds, key=print_expr)),
    ]
    return _done(ctx, path, child, copy, facts, len(tail), lambda p: (*path, *moved[p[len(path) :]]), place, {loop.var: full})


def without_guards(body: Body, conds: frozenset[Expr]) -> tuple[Body, dict[Path, Path]]:
    """The statements without these conditions, and where the stores went (paths from the body on)."""
    moved: dict[Path, Path] = {}

    def into(stmts: Body, old: Path, new: Path, out: list[Stmt]) -> None:
        for n, stmt in enumerate(stmts):
            here, there = (*old, n), (*new, len(out))
            if isinstance(stmt, Store):
                moved[here] = there
                out.append(stmt)
                continue
            inner: list[Stmt] = []
            if isinstance(stmt, If):
                left = [c for c in conjuncts(stmt.cond) if c not in conds]
                if not left:
                    into(stmt.body, here, new, out)
                    continue
                cond = left[0]
                for other in left[1:]:
                    cond = op("and", cond, other)
                into(stmt.body, here, there, inner)
                out.append(If(cond, tuple(inner)))
            else:
                into(stmt.body, here, there, inner)
                out.append(replace(stmt, body=tuple(inner)))

    made: list[Stmt] = []
    into(body, (), (), made)
    return tuple(made), moved


def _shortened(stmt: Stmt, names: frozenset[str], extent: Expr) -> Stmt:
    if isinstance(stmt, Store):
        return stmt
    body = tuple(_shortened(s, names, extent) for s in stmt.body)
    if isinstance(stmt, If):
        return If(stmt.cond, body)
    return replace(stmt, body=body, extent=extent if stmt.var in names else stmt.extent)


def _done(
    ctx: Context,
    path: Path,
    child: Program,
    copy: SecondCopy,
    facts: list[Fact],
    added: int,
    forth: Callable[[Path], Path],
    place: Callable[[Path], Path],
    by: dict[str, Expr],
) -> Applied:
    """The step: ``forth`` says where a store of the loop stands in front, ``place`` where one of the copy stands behind; ``added`` statements are new."""
    owner, n = path[:-1], path[-1]
    siblings = range(n + 1, len(body_at(ctx.program, owner)))
    moves: list[tuple[Path, Path | None]] = [(p, forth(p)) for p, _ in ctx.stores_under(path)]
    moves += [((*owner, k), (*owner, k + added)) for k in siblings]
    forward = Forwarding(tuple(moves))
    back = {there: p for p, _ in ctx.stores if (there := forward(p)) is not None}
    entries: tuple[InstanceEntry, ...] = instance_map(ctx.program, child, lambda p: back.get(p), lambda _: {}).entries
    instances = None if copy.renamed else InstanceMap((*entries, *copy_entries(ctx.program, copy, place, by)))
    facts += [fact("reset_written", "child", buffer=b) for b in copy.resets]
    facts += [fact("renamed_copy", "child", name=new, old=old, elements=_elements(ctx, old)) for old, new in copy.renamed]
    facts.append(fact("same_operations", "dependence", buffers=tuple(b.name for b in ctx.program.outputs)))
    return Applied(child, Exactness.BITWISE, tuple(facts), instances, forward)


def _elements(ctx: Context, name: str) -> int:
    return math.prod(shape_of(buffer_table(ctx.program)[name].shape, ctx.program))


STRATEGY = LoopPeeling()
