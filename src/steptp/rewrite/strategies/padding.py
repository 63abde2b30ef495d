"""Round a split axis up to whole tiles: padded tensors let the guard of the last tile go."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from steptp.ir import Buffer, Cast, DType, Expr, Load, Loop, Op, Path, Program, Stmt, Store, Var, const, ix, op, print_expr, same_index, select, simplify_index
from steptp.ir.facts import Fact
from steptp.ir.sizes import shape_of
from steptp.ir.walk import all_tmps, body_at, buffer_table, declaring_path, free_vars, loads, map_expr, map_stmt_exprs, rename_buffer, replace_body, stmt_exprs
from steptp.rewrite.base import Applied, Exactness, Family, Forwarding, NotApplicable, Outcome, Site, Strategy
from steptp.rewrite.context import Context, no_loop
from steptp.rewrite.fact_kinds import fact
from steptp.rewrite.strategies.loop_peeling import Tile, find_tile, without_guards

__all__ = ["Padding", "STRATEGY"]


class Padding(Strategy):
    """Site: path of the loop over the tiles of a split with a guard.

    What the guarded statements read is copied into temporaries that are longer by the missing iterations and filled up with zeros; what they write is made as much
    longer. Iterations past the end compute elements that nothing else reads, or add products of zeros to a sum.
    """

    name = "padding"
    family = Family.MEMORY
    classes = (Exactness.BITWISE, Exactness.ALGEBRAIC)
    summary = "pad tensors to whole tiles, so that a guard goes"

    def sites(self, ctx: Context) -> Iterator[Site]:
        for path, _ in ctx.loops:
            if isinstance(_plan(ctx, path), _Plan):
                yield Site.of(self.name, path)

    def apply(self, ctx: Context, site: Site) -> Outcome:
        if ctx.loop(site.path) is None:
            return no_loop(site.path)
        if site.params:
            return NotApplicable("bad-site", "padding takes no parameters")
        plan = _plan(ctx, site.path)
        return plan if isinstance(plan, NotApplicable) else _apply(ctx, site.path, plan)


@dataclass(frozen=True)
class _Plan:
    """Which buffers grow, and in which dimension: ``copied`` are only read, ``grown`` are written there (interface tensors through a copy).

    ``sums`` get products of zeros as further terms.
    """

    tile: Tile
    copied: tuple[tuple[Buffer, int], ...]
    grown: tuple[tuple[Buffer, int], ...]
    sums: tuple[str, ...]


def _plan(ctx: Context, path: Path) -> _Plan | NotApplicable:
    loop = ctx.loop(path)
    assert loop is not None
    tile = find_tile(ctx, path, loop)
    if isinstance(tile, NotApplicable):
        return tile
    if tile.unguarded:
        return NotApplicable("partly-guarded", f"not every store under {loop.var} stands under the guard of its tiles")
    along = {loop.var, *tile.inner}
    table = buffer_table(ctx.program)
    places: dict[str, int] = {}
    sums: dict[str, None] = {}
    under = [v for v in ctx.visits if len(v.path) > len(path) and v.path[: len(path)] == path]
    written = {v.stmt.buffer for v in under if isinstance(v.stmt, Store)}
    for met in under:
        accesses = [(e.buffer, e.indices) for x in stmt_exprs(met.stmt) for e in loads(x)]
        if isinstance(met.stmt, Store):
            accesses.append((met.stmt.buffer, met.stmt.indices))
            if not any(along & free_vars(i) for i in met.stmt.indices):
                ends = all(_ends(table[e.buffer], e.indices, loop, tile) for e in loads(met.stmt.value))
                if met.stmt.reduce != "+" or not _product_of_reads(met.stmt.value, along) or not ends:
                    return NotApplicable("reduction", f"{met.stmt.buffer} accumulates over the tiles of {loop.var}; iterations past the end would change it")
                sums[met.stmt.buffer] = None
        for name, indices in accesses:
            found = _place(table[name], indices, loop, tile, name in written)
            if isinstance(found, NotApplicable):
                return found
            if found is not None and places.setdefault(name, found) != found:
                return NotApplicable("index", f"the tiles of {loop.var} run along two dimensions of {name}")
    if not places:
        return NotApplicable("index", f"nothing is indexed by the tiles of {loop.var}")
    for name in dict.fromkeys((*places, *written)):
        if not table[name].dtype.is_float:
            return NotApplicable("dtype", f"{name} holds {table[name].dtype}; only floating-point tensors are padded")
    if any(name in written for name in places) and sums:
        return NotApplicable("mixed", f"some statements sum over the tiles of {loop.var}, others store along them")
    return _checked(ctx, path, tile, places, written, tuple(sums))


def _product_of_reads(value: Expr, along: set[str]) -> bool:
    """A product of reads (or casts of them) that all move with the tiles: past the end it is a product of zeros."""
    if isinstance(value, Cast):
        return value.type.is_float and _product_of_reads(value.arg, along)
    if isinstance(value, Op):
        return value.name == "*" and all(_product_of_reads(a, along) for a in value.args)
    return isinstance(value, Load) and any(along & free_vars(i) for i in value.indices)


def _shift(index: Expr, loop: Loop, tile: Tile) -> Expr:
    """What an index adds to the iteration that the tile and the place in it make."""
    mine = free_vars(index) & tile.inner
    return simplify_index(index - Var(loop.var) * tile.size - Var(min(mine, default=loop.var)))


def _ends(buffer: Buffer, indices: tuple[Expr, ...], loop: Loop, tile: Tile) -> bool:
    """The iterations past the end read past the end of the buffer, where its padded copy holds zeros: no window that slides over it, no part of it."""
    moved = [d for d, i in enumerate(indices) if free_vars(i) & {loop.var, *tile.inner}]
    if len(moved) != 1:
        return False
    return same_index(_shift(indices[moved[0]], loop, tile), ix(0)) and same_index(buffer.shape[moved[0]], tile.whole)


def _place(buffer: Buffer, indices: tuple[Expr, ...], loop: Loop, tile: Tile, written: bool) -> int | NotApplicable | None:
    """The dimension that the tiles run along (``None``: they don't index the buffer past its end)."""
    along = {loop.var, *tile.inner}
    moved = [d for d, i in enumerate(indices) if free_vars(i) & along]
    if any(any(loads(i)) for i in indices):
        return NotApplicable("look-up", f"{buffer.name} is indexed through memory")
    if len(moved) == 1:
        rest = _shift(indices[moved[0]], loop, tile)
        if not free_vars(rest) & along:
            if written and not same_index(rest, ix(0)):
                return NotApplicable("index", f"{buffer.name} is written in the nest and read at other iterations of it")
            return moved[0]
    for d in moved:
        inside = indices[d] in {Var(v) for v in tile.inner} and same_index(buffer.shape[d], tile.size)
        if not written or not (inside or (indices[d] == Var(loop.var) and same_index(buffer.shape[d], loop.extent))):
            return NotApplicable(
                "index", f"dimension {d} of {buffer.name} is indexed by {print_expr(indices[d], DType.I64)}, not along the tiles of {loop.var}"
            )
    return None


def _checked(ctx: Context, path: Path, tile: Tile, places: dict[str, int], written: set[str], sums: tuple[str, ...]) -> _Plan | NotApplicable:
    table, root = buffer_table(ctx.program), path[:1]
    copied, grown = [], []
    local = {b.name for p, b in all_tmps(ctx.program) if p}
    for name in sorted(written - set(sums)):
        if any(s.buffer == name and p[: len(path)] != path for p, s in ctx.stores):
            return NotApplicable("several-writers", f"{name} is also written outside of the loop")
    for name, dim in places.items():
        if name in written and declaring_path(ctx.program, name)[: len(path)] == path:
            return NotApplicable("private", f"{name} is private to a tile, but indexed along all of them")
        if name in written:
            grown.append((table[name], dim))
        elif name in local or any(s.buffer == name and p[:1] == root for p, s in ctx.stores):
            return NotApplicable("changed", f"{name} is written in the same nest, so it cannot be copied before")
        else:
            copied.append((table[name], dim))
    for b, _ in grown:
        if b in ctx.program.outputs and any(v.path[:1] != root for v in ctx.visits for x in stmt_exprs(v.stmt) for e in loads(x) if e.buffer == b.name):
            return NotApplicable("read-elsewhere", f"the output {b.name} is read in other nests")
    return _Plan(tile, tuple(copied), tuple(grown), sums)


def _apply(ctx: Context, path: Path, plan: _Plan) -> Outcome:
    program, tile, root, loop = ctx.program, plan.tile, path[0], ctx.loop(path)
    assert loop is not None
    whole = simplify_index(op("*", op("//", tile.whole + tile.size - ix(1), tile.size), tile.size))
    missing = simplify_index(whole - tile.whole)
    body, moved = without_guards(loop.body, tile.conds)
    outer = body_at(program, path[:-1])
    child = replace_body(program, path[:-1], (*outer[: path[-1]], replace(loop, body=body), *outer[path[-1] + 1 :]))
    through = [(b, d) for b, d in plan.grown if b in program.outputs]
    names = ctx.fresh_global(*(f"{b.name}p" for b, _ in (*plan.copied, *through)))
    new = {b.name: replace(b, name=n, shape=_longer(b, d, missing), range=None) for n, (b, d) in zip(names, (*plan.copied, *through), strict=True)}
    stmt = child.body[root]
    for b, _ in plan.copied:
        stmt = map_stmt_exprs(stmt, _reading(b.name, new[b.name].name))
    for b, _ in through:
        (stmt,) = rename_buffer((stmt,), b.name, new[b.name].name)
    copies = tuple(_fill(ctx, b, new[b.name], d) for b, d in plan.copied)
    backs = tuple(_back(ctx, b, new[b.name]) for b, _ in through)
    child = child.with_(body=(*child.body[:root], *copies, stmt, *backs, *child.body[root + 1 :]), tmps=(*child.tmps, *new.values()))
    enlarged = [(b, d) for b, d in plan.grown if b not in program.outputs]
    for b, d in enlarged:
        child = _redeclared(ctx, child, declaring_path(program, b.name), replace(b, shape=_longer(b, d, missing)), root, len(copies))
    first = len(copies)
    moves: list[tuple[Path, Path | None]] = [((*path, *p), (root + first, *path[1:], *q)) for p, q in moved.items()]
    moves += [((k,), (k + first + (len(backs) if k > root else 0),)) for k in range(root, len(program.body))]
    exactness = Exactness.ALGEBRAIC if plan.sums else Exactness.BITWISE  # a sum of nothing but -0 becomes 0
    return Applied(child, exactness, _facts(ctx, plan, loop, whole, missing, new), None, Forwarding(tuple(moves)))


def _longer(buffer: Buffer, dim: int, missing: Expr) -> tuple[Expr, ...]:
    return tuple(simplify_index(s + missing) if d == dim else s for d, s in enumerate(buffer.shape))


def _reading(old: str, new: str) -> Callable[[Expr], Expr]:
    def change(expr: Expr) -> Expr:
        return map_expr(expr, lambda e: Load(new, e.indices, e.type) if isinstance(e, Load) and e.buffer == old else e)

    return change


def _fill(ctx: Context, source: Buffer, into: Buffer, dim: int) -> Stmt:
    names = ctx.fresh_vars((0,), *(f"c{d}" for d in range(len(source.shape))))
    places = tuple(Var(v) for v in names)
    value = select(op("<", places[dim], source.shape[dim]), Load(source.name, places, source.dtype), const(0, source.dtype))
    out: Stmt = Store(into.name, places, value)
    for var, extent in reversed(list(zip(names, into.shape, strict=True))):
        out = Loop(var, extent, (out,))
    return out


def _back(ctx: Context, target: Buffer, source: Buffer) -> Stmt:
    names = ctx.fresh_vars((0,), *(f"c{d}" for d in range(len(target.shape))))
    places = tuple(Var(v) for v in names)
    out: Stmt = Store(target.name, places, Load(source.name, places, source.dtype))
    for var, extent in reversed(list(zip(names, target.shape, strict=True))):
        out = Loop(var, extent, (out,))
    return out


def _redeclared(ctx: Context, child: Program, home: Path, buffer: Buffer, root: int, shift: int) -> Program:
    holder = ctx.loop(home)
    if holder is None:
        return child.with_(tmps=tuple(buffer if b.name == buffer.name else b for b in child.tmps))
    here = (home[0] + shift, *home[1:]) if home[0] >= root else home
    return replace_body(child, here, body_at(child, here), tuple(buffer if b.name == buffer.name else b for b in holder.tmps))


def _facts(ctx: Context, plan: _Plan, loop: Loop, whole: Expr, missing: Expr, new: dict[str, Buffer]) -> tuple[Fact, ...]:
    program = ctx.program
    total = ctx.value(whole)
    assert total is not None
    out = [fact("guard_padded", "child", cond=print_expr(c), loop=loop.var, iterations=total) for c in sorted(plan.tile.conds, key=print_expr)]
    for b, d in (*plan.copied, *plan.grown):
        made = new.get(b.name)
        sizes = shape_of(b.shape, program)[d], shape_of(_longer(b, d, missing), program)[d]
        out.append(fact("padded", "child", buffer=b.name, into=made.name if made is not None else b.name, dim=d, before=sizes[0], after=sizes[1]))
    out += [fact("buffer_added", "child", name=b.name, dtype=str(b.dtype), elements=math.prod(shape_of(b.shape, program))) for b in new.values()]
    out += [fact("zero_terms", "child", buffer=name, loop=loop.var) for name in plan.sums]
    if not plan.sums:
        out.append(fact("same_operations", "dependence", buffers=tuple(b.name for b in program.outputs)))
    return tuple(out)


STRATEGY = Padding()
