"""Block, split or fuse dimensions of a temporary: ``t[i,j]`` becomes ``t[i//T,j,i%T]``."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

from steptp.ir import Buffer, Expr, If, Load, Op, Path, Program, Size, Store, Var, ix, op, print_expr, simplify_index
from steptp.ir.facts import Fact
from steptp.ir.index import poly_of
from steptp.ir.nodes import Body, Stmt
from steptp.ir.sizes import shape_of
from steptp.ir.walk import all_tmps, declaring_path, free_vars, map_expr
from steptp.rewrite.base import Applied, BufferMap, Exactness, Family, InstanceMap, NotApplicable, Outcome, Site, Strategy
from steptp.rewrite.context import Context
from steptp.rewrite.fact_kinds import fact
from steptp.rewrite.injective import reset_layout_problem
from steptp.rewrite.outline import same_up_to_names
from steptp.rewrite.regions import writes_of
from steptp.rewrite.strategies.layout_transformation import _accesses, _redeclare, rewrite_accesses
from steptp.rewrite.strategies.loop_split import read_factor
from steptp.rewrite.tools import add_constraint, add_size, drop_unused_sizes, fold_multiples, identity_map, quotient, tile_sizes

__all__ = ["SetStorageLayout", "STRATEGY"]

FACTORS = (2, 4, 8, 16, 32)
MAX_RANK = 6


@dataclass(frozen=True, slots=True)
class _Layout:
    """A new layout: the program that declares its sizes, the shape, where an element goes, and what the site says of it."""

    program: Program
    shape: tuple[Expr, ...]
    place: Callable[[tuple[Expr, ...], Mapping[str, Expr]], tuple[Expr, ...]]
    map: tuple[Expr, ...]
    facts: tuple[Fact, ...]
    inverse: tuple[Site, ...]


class SetStorageLayout(Strategy):
    """Site: path of the loop that declares ``buffer`` (empty: the program), ``op`` and ``dim``.

    ``op=block`` cuts dimension ``dim`` into tiles of ``factor``; ``to=last`` puts the position within a tile last, so that a tile is
    contiguous (packing), ``to=first`` puts the number of the tile first, so that a tile with all other dimensions is (panels).
    ``op=split`` cuts a dimension where it stands, and ``op=fuse`` makes dimensions ``dim`` and ``dim``\\ +1 one: neither moves an element.

    layout_transformation permutes whole dimensions; this strategy changes which dimensions there are. Tiles always divide their dimension, so
    nothing is padded.
    """

    name = "set_storage_layout"
    family = Family.MEMORY
    classes = (Exactness.BITWISE,)
    summary = "block, split or fuse dimensions of a temporary"

    def sites(self, ctx: Context) -> Iterator[Site]:
        read = ctx.touched(())[0]
        tiles = [name for name in tile_sizes(ctx.program) if ctx.env[name] >= 2]
        for home, buffer in ctx.tmps:
            if buffer.name not in read or not buffer.shape:
                continue
            rank, sizes = len(buffer.shape), shape_of(buffer.shape, ctx.program)
            resets = [s.indices for _, s in writes_of(ctx).get(buffer.name, ()) if s.reduce is not None and not s.carry]
            factors: tuple[int | str, ...] = (*FACTORS, *tiles)
            for dim in range(rank):
                cuts: dict[int | str, bool] = {}  # where the parts go does not matter to a reset
                for factor in factors:
                    value = factor if isinstance(factor, int) else ctx.env[factor]
                    if rank >= MAX_RANK or sizes[dim] % value or value >= sizes[dim]:
                        continue
                    split = Site.of(self.name, home, buffer=buffer.name, op="split", dim=dim, factor=factor)
                    plain = all(isinstance(i[dim], Var) or not free_vars(i[dim]) for i in resets)  # i//T and i%T show i
                    cuts[factor] = plain or isinstance(_layout(ctx, buffer, split), _Layout)
                    for how in ("last", "first"):
                        if cuts[factor] and dim != (rank - 1 if how == "last" else 0):
                            yield Site.of(self.name, home, buffer=buffer.name, op="block", dim=dim, factor=factor, to=how)
                for factor in tiles or [f for f in FACTORS if f in cuts][-1:]:
                    if cuts.get(factor):
                        yield Site.of(self.name, home, buffer=buffer.name, op="split", dim=dim, factor=factor)
            for dim in range(rank - 1):
                site = Site.of(self.name, home, buffer=buffer.name, op="fuse", dim=dim)
                if not resets or isinstance(_layout(ctx, buffer, site), _Layout):
                    yield site

    def apply(self, ctx: Context, site: Site) -> Outcome:
        params = dict(site.params)
        found = next(((home, b) for home, b in all_tmps(ctx.program) if b.name == params.get("buffer")), None)
        wanted = {"block": {"factor", "to"}, "split": {"factor"}, "fuse": set[str]()}.get(str(params.get("op")))
        if (
            wanted is None
            or set(params) != {"buffer", "op", "dim"} | wanted
            or not isinstance(params["dim"], int)
            or params.get("to", "last") not in ("last", "first")
        ):
            return NotApplicable(
                "bad-site",
                "set_storage_layout takes buffer=<name>, op=block, split or fuse, dim=<number>, factor=<number or size> unless op=fuse, and to=last or first with op=block",
            )
        if found is None:
            return NotApplicable("not-a-tmp", f"{params['buffer']} is no temporary, and only temporaries may change their layout")
        if site.path != declaring_path(ctx.program, found[1].name):
            return NotApplicable("bad-site", f"{found[1].name} is not declared there")
        layout = _layout(ctx, found[1], site)
        return layout if isinstance(layout, NotApplicable) else _apply(ctx, found[1], site, layout)


def _layout(ctx: Context, buffer: Buffer, site: Site) -> _Layout | NotApplicable:
    params = dict(site.params)
    dim, rank = params["dim"], len(buffer.shape)
    assert isinstance(dim, int)
    if not 0 <= dim < rank:
        return NotApplicable("no-such-dimension", f"{buffer.name} has {rank} dimensions, numbered from 0, so there is no dimension {dim}")
    layout = _fuse(ctx, buffer, site, dim) if params["op"] == "fuse" else _cut(ctx, buffer, site, dim)
    if isinstance(layout, NotApplicable):
        return layout
    return reset_layout_problem(ctx, buffer.name, layout.place, layout.program.size_env) or layout


def _cut(ctx: Context, buffer: Buffer, site: Site, dim: int) -> _Layout | NotApplicable:
    """``op=block`` and ``op=split``."""
    params = dict(site.params)
    name, rank, whole = buffer.name, len(buffer.shape), buffer.shape[dim]
    extent = shape_of(buffer.shape, ctx.program)[dim]
    if rank >= MAX_RANK:
        return NotApplicable("rank", f"{name} has {rank} dimensions already; at most {MAX_RANK} are made")
    at = {"last": rank, "first": 0}[str(params["to"])] if params["op"] == "block" else None
    if at == rank and dim == rank - 1:
        return NotApplicable("no-move", f"dimension {dim} of {name} is the last one, so its tiles are contiguous already; use op=split")
    if at == 0 and dim == 0:
        return NotApplicable("no-move", f"dimension 0 of {name} is the first one already; use op=split")
    factor = read_factor(ctx, params["factor"])
    if isinstance(factor, NotApplicable):
        return factor
    if factor.value >= extent:
        return NotApplicable("factor", f"dimension {dim} of {name} has {extent} elements, so a tile of {factor.value} would hold them all")
    if extent % factor.value:
        return NotApplicable("not-divisible", f"{factor.value} does not divide the {extent} elements of dimension {dim} of {name}, and nothing is padded")
    declared = add_size(ctx.program, factor.new, factor.value) if factor.new else ctx.program
    limited = add_constraint(declared, whole, factor.size)
    tiles = quotient(limited, whole, factor.size)
    assert tiles is not None
    by = factor.size

    def arranged(items: tuple[Expr, ...], outer: Expr, inner: Expr) -> tuple[Expr, ...]:
        if at is None:
            return (*items[:dim], outer, inner, *items[dim + 1 :])
        if at == 0:
            return (outer, *items[:dim], inner, *items[dim + 1 :])
        return (*items[:dim], outer, *items[dim + 1 :], inner)

    def place(indices: tuple[Expr, ...], around: Mapping[str, Expr]) -> tuple[Expr, ...]:
        return arranged(indices, simplify_index(op("//", indices[dim], by), around), simplify_index(op("%", indices[dim], by), around))

    slots = tuple(Var(f"d{d}") for d in range(rank))
    number = ix(factor.value)
    stated = print_expr(limited.constraints[-1]) if len(limited.constraints) > len(declared.constraints) else ""
    shape = arranged(buffer.shape, tiles, by)
    facts = [fact("tile_size", "child", name=factor.new, value=factor.value)] if factor.new else []
    facts.append(fact("dimension_split", "child", buffer=name, dim=dim, extent=extent, factor=factor.value, constraint=stated))
    if at is not None:
        run = factor.value if at else math.prod(shape_of(shape[1:], limited))
        facts.append(fact("tile_contiguous", "child", buffer=name, dim=dim, elements=run))
    undo = _uncut(buffer, site, dim, at, rank) if factor.new or not stated else ()
    return _Layout(limited, shape, place, arranged(slots, op("//", slots[dim], number), op("%", slots[dim], number)), tuple(facts), undo)


def _uncut(buffer: Buffer, site: Site, dim: int, at: int | None, rank: int) -> tuple[Site, ...]:
    """Bring the two parts of a dimension together, then fuse them."""
    fuse = Site.of(site.strategy, site.path, buffer=buffer.name, op="fuse", dim=dim)
    if at is None:
        return (fuse,)
    if at == 0:
        perm = [*range(1, dim + 1), 0, *range(dim + 1, rank + 1)]
    else:
        perm = [*range(dim + 1), rank, *range(dim + 1, rank)]
    return (Site.of("layout_transformation", site.path, buffer=buffer.name, perm=".".join(map(str, perm))), fuse)


def _fuse(ctx: Context, buffer: Buffer, site: Site, dim: int) -> _Layout | NotApplicable:
    name, rank = buffer.name, len(buffer.shape)
    if dim + 1 >= rank:
        return NotApplicable("no-such-dimension", f"{name} has no dimension behind {dim} to fuse it with")
    first, second = buffer.shape[dim : dim + 2]
    extent = fold_multiples(ctx.program, op("*", first, second))

    def joined(a: Expr, b: Expr) -> Expr:
        return op("+", op("*", a, second), b)

    def place(indices: tuple[Expr, ...], around: Mapping[str, Expr]) -> tuple[Expr, ...]:
        return (*indices[:dim], _rejoin(simplify_index(joined(indices[dim], indices[dim + 1]), around)), *indices[dim + 2 :])

    slots = tuple(Var(f"d{d}") for d in range(rank))
    rows, columns = shape_of((first, second), ctx.program)
    facts = (fact("dimensions_fused", "child", buffer=name, dim=dim, rows=rows, columns=columns, extent=rows * columns),)
    undo: tuple[Site, ...] = ()
    if isinstance(second, Size) and 2 <= columns < rows * columns:
        undo = (Site.of(site.strategy, site.path, buffer=name, op="split", dim=dim, factor=second.name),)
    made = (*slots[:dim], op("+", op("*", slots[dim], ix(columns)), slots[dim + 1]), *slots[dim + 2 :])
    return _Layout(ctx.program, (*buffer.shape[:dim], extent, *buffer.shape[dim + 2 :]), place, made, facts, undo)


def _rejoin(expr: Expr) -> Expr:
    """``x//T*T + x%T`` is ``x``, for every part of a sum and every positive ``T``."""
    poly = poly_of(expr)
    for mono, count in poly.items():
        rest = mono[0] if len(mono) == 1 else None
        if not (isinstance(rest, Op) and rest.name == "%"):
            continue
        whole, part = rest.args
        tiles = op("*", op("//", whole, part), part)
        if all(poly.get(k) == count * v for k, v in poly_of(tiles).items()):
            return _rejoin(simplify_index(op("+", op("-", expr, op("*", op("+", tiles, rest), count)), op("*", whole, count))))
    return expr


def _apply(ctx: Context, buffer: Buffer, site: Site, layout: _Layout) -> Outcome:
    name = buffer.name
    child = _changed(site.path, buffer, layout)
    after = replace(buffer, shape=layout.shape)
    return Applied(
        child,
        Exactness.BITWISE,
        (
            fact("dimensions", "child", buffer=name, old=_dims(buffer, ctx.program), new=_dims(after, layout.program)),
            *layout.facts,
            fact("accesses_rewritten", "child", buffer=name, count=len(_accesses(ctx, name))),
        ),
        InstanceMap(identity_map(ctx.program).entries, (BufferMap(name, name, layout.map),)),
        inverse=layout.inverse if _leads_back(ctx, child, name, layout.inverse) else (),
    )


def _changed(home: Path, buffer: Buffer, layout: _Layout) -> Program:
    body = _relaid(layout.program.body, buffer.name, layout.place)
    made = _redeclare(layout.program.with_(body=body), home, replace(buffer, shape=layout.shape))
    return drop_unused_sizes(layout.program, made)


def _leads_back(ctx: Context, child: Program, name: str, inverse: tuple[Site, ...]) -> bool:
    """Whether the sites really undo the step: a parent's indices that were not in canonical form, or met a tile's border, may not come back."""
    here = child
    for undo in inverse:
        buffer = next(b for _, b in all_tmps(here) if b.name == name)
        if undo.strategy == "layout_transformation":
            perm = tuple(int(d) for d in str(undo.param("perm")).split("."))
            permuted = replace(buffer, shape=tuple(buffer.shape[d] for d in perm))
            here = _redeclare(here.with_(body=rewrite_accesses(here.body, name, name, perm)), undo.path, permuted)
            continue
        layout = _layout(Context.of(here), buffer, undo)
        if isinstance(layout, NotApplicable):
            return False
        here = _changed(undo.path, buffer, layout)
    return bool(inverse) and same_up_to_names(here, ctx.program)


def _relaid(body: Body, name: str, place: Callable[[tuple[Expr, ...], Mapping[str, Expr]], tuple[Expr, ...]]) -> Body:
    """Every read and write of ``name`` goes to the new place; indices that hold reads of it change inside first."""

    def in_expr(expr: Expr, around: Mapping[str, Expr]) -> Expr:
        return map_expr(expr, lambda e: Load(name, place(e.indices, around), e.type) if isinstance(e, Load) and e.buffer == name else e)

    def one(stmt: Stmt, around: Mapping[str, Expr]) -> Stmt:
        if isinstance(stmt, Store):
            indices = tuple(in_expr(i, around) for i in stmt.indices)
            return replace(stmt, indices=place(indices, around) if stmt.buffer == name else indices, value=in_expr(stmt.value, around))
        if isinstance(stmt, If):
            return If(in_expr(stmt.cond, around), tuple(one(s, around) for s in stmt.body))
        inner = {**around, stmt.var: stmt.extent}
        return replace(stmt, body=tuple(one(s, inner) for s in stmt.body))

    return tuple(one(s, {}) for s in body)


def _dims(buffer: Buffer, program: Program) -> str:
    return "x".join(map(str, shape_of(buffer.shape, program)))


STRATEGY = SetStorageLayout()
