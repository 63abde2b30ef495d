"""Register tiles of contractions: which loop fills vectors, which one repeats them, and the steps from a plain nest to such a tile.

A tile of ``rows`` by ``columns`` accumulators stays in registers over all reduction loops; every load of one operand serves all rows, every broadcast of the
other all columns (Goto and van de Geijn, "Anatomy of high-performance matrix multiplication", 2008). The operand along the vector is packed where it is not
contiguous and is used again.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

from steptp.analysis.features import AccessFeatures, LoopFeatures
from steptp.ir.nodes import Path
from steptp.ir.sizes import shape_of
from steptp.ir.types import Scope
from steptp.ir.walk import buffer_table, declaring_path
from steptp.policy.roofline import LATENCY, LOADS, PIPES, registers
from steptp.policy.tuning.view import View, Work
from steptp.rewrite.base import Site
from steptp.rewrite.context import path_text

__all__ = ["Tile", "contractions", "moved_to", "split_to", "steps", "tile_of"]

_ROWS = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12)
_PACKED = 1.03  # a copy costs this much more than none
_FAR = 1024  # bytes between vectors from which a panel is copied: they would share few cache sets and many pages
_REUSE = 4  # uses of a packed element that pay for the copy


@dataclass(frozen=True, slots=True)
class Tile:
    """The loops (or the inner parts they will have) of a register tile. ``cost``: modelled cycles of one multiply-add."""

    along: LoopFeatures
    across: LoopFeatures
    columns: int
    rows: int
    cost: float


def contractions(view: View) -> list[Work]:
    """Accumulations of products where one operand is used again along one loop, and another along another; the heaviest first."""
    return sorted((w for w in view.works if w.reduces and any(True for _ in _pairs(w))), key=lambda w: -w.cycles)


def _pairs(work: Work) -> Iterator[tuple[LoopFeatures, LoopFeatures]]:
    """(along, across): parallel loops that some reads depend on and others do not, and the other way round; both kinds change with a reduction loop."""
    inner, outer = work.inner(), work.outer()
    loops = [ln for ln in work.parallel if ln.var not in outer and ln.extent > 1]
    over = [r.var for r in work.reductions]
    reads = [a for a in work.reads if any(a.stride(r) != 0 for r in over)]
    for a in loops:
        for b in loops:
            only_a = any(r.stride(a.var) != 0 and r.stride(b.var) == 0 for r in reads)
            only_b = any(r.stride(b.var) != 0 and r.stride(a.var) == 0 for r in reads)
            if a is not b and only_a and only_b and (a.kind != "unroll" or a.var in inner):
                yield a, b


def tile_of(view: View, work: Work) -> Tile | None:
    """The tile that this nest is to have. Parts that it has already decide; else it is the one of the view's choice."""
    tiles = _ranked(view, work)
    if not tiles:
        return None
    whole = [t for t in tiles if t.along.extent == t.columns and t.across.extent == t.rows and _tile_sized(view, work, t)]
    if whole:  # local accumulators of just this size
        return min(whole, key=lambda t: (t.along is not work.own[-1], t.cost))
    inner = work.inner()
    begun = [t for t in tiles if t.along.var in inner and t.columns == t.along.extent]
    if begun:
        return min(begun, key=lambda t: (t.across.var not in inner, t.cost))
    return tiles[min(view.choice, len(tiles) - 1)]


def _ranked(view: View, work: Work) -> list[Tile]:
    lanes, inner = view.host.lanes(work.itemsize), work.inner()
    found: list[tuple[tuple[float, ...], Tile]] = []
    for a, b in _pairs(work):
        for columns in _parts(a, inner, [n * lanes for n in (1, 2, 3, 4)]):
            for rows in _parts(b, inner, list(_ROWS)):
                if columns % lanes == 0 and (cost := _cost(view, work, Tile(a, b, columns, rows, 0.0), lanes)) is not None:
                    near = sum(abs(r.stride(b.var) or 0) for r in work.reads if r.stride(a.var) == 0)
                    order = (round(cost, 4), abs(columns / lanes - 2), float(near), -float(rows))
                    found.append((order, Tile(a, b, columns, rows, cost)))
    found.sort(key=lambda row: row[0])
    return [tile for _, tile in found]


def _parts(loop: LoopFeatures, inner: frozenset[str], sizes: list[int]) -> list[int]:
    return [loop.extent] if loop.var in inner else [s for s in sizes if loop.extent % s == 0 and s <= loop.extent]


def _cost(view: View, work: Work, tile: Tile, lanes: int) -> float | None:
    """Cycles of one multiply-add when the tile's instructions are issued as fast as possible; ``None`` when it does not fit the registers."""
    vectors = tile.columns // lanes
    held = tile.rows * vectors
    if held + vectors + 1 > registers(view.host):
        return None
    loads, factor = 0.0, 1.0
    for read in work.reads:
        a, b = read.stride(tile.along.var), read.stride(tile.across.var)
        if a != 0 and b == 0:
            loads += vectors
            factor *= 1.0 if a == 1 else _PACKED
        elif a != 0:
            loads += held * (1 if a == 1 else lanes)
        else:
            loads += tile.rows if b != 0 else 1
    if work.target.stride(tile.along.var) != 1:
        factor *= _PACKED
    return max(held / PIPES, loads / LOADS, LATENCY) / (held * lanes) * factor


def steps(view: View) -> Iterator[tuple[Site, str]]:
    """The next step of each contraction, the heaviest first."""
    for work in contractions(view):
        tile = tile_of(view, work)
        if tile is not None:
            yield from _steps(view, work, tile)


def _steps(view: View, work: Work, tile: Tile) -> Iterator[tuple[Site, str]]:
    yield from stride_first(work)
    yield from split_to(view, tile.along, tile.columns, "these columns fill vectors")
    yield from split_to(view, tile.across, tile.rows, "as many rows as the registers hold use each vector")
    if tile.along.extent != tile.columns or tile.across.extent != tile.rows:
        return
    order = [ln.var for ln in _order(work, tile)]
    yield from moved_to(view, work, order, "one pass of the reduction updates the whole tile")
    first = work.reductions[0]
    if not _tile_sized(view, work, tile):
        yield Site.of("cache_read_write", first.path, mode="accumulate", buffer=work.target.buffer), "the tile stays in registers over the reduction"
    elif work.target.stride(tile.along.var) != 1 and (dim := _dimension(view, tile, work.target)) is not None:
        yield _turned(view, work.target.buffer, dim)
    yield from _packing(view, work, tile)
    if tile.along.kind == "for":
        yield Site.of("loop_vectorization", tile.along.path), "a row of the tile is a few vectors"
    if tile.across.kind == "for":
        yield Site.of("loop_unrolling", tile.across.path), "the rows of the tile are registers of their own"


def stride_first(work: Work) -> Iterator[tuple[Site, str]]:
    """A slow scalar nest is made to run along rows before anything else: what follows is then checked and timed quickly."""
    if work.inner() or not work.reductions or work.own[-1].var != work.reductions[-1].var:
        return
    for n, ln in enumerate(work.own):
        if ln in work.parallel and work.target.stride(ln.var) == 1 and all(r.stride(ln.var) in (0, 1) for r in work.reads) and ln.kind == "for":
            yield Site.of("loop_reorder", work.own[n].path, to=len(work.loops) - 1), "neighbouring elements are computed one after another"


def split_to(view: View, loop: LoopFeatures, size: int, why: str) -> Iterator[tuple[Site, str]]:
    """Split a loop so that its inner part has ``size`` iterations, unless it has that many."""
    if loop.extent != size and loop.kind == "for":
        yield Site.of("loop_split", loop.path, factor=view.factor(size), tail="exact"), why


def moved_to(view: View, work: Work, order: list[str], why: str) -> Iterator[tuple[Site, str]]:
    """The next move towards an order of the own loops, with as few moves as possible: those of a longest increasing subsequence stay."""
    now = [ln.var for ln in work.own]
    stay = set(_increasing([order.index(v) for v in now]))
    moving = [v for n, v in enumerate(order) if n not in stay]
    if not moving:
        return
    chain = view.ctx.chain(work.own[-1].path)
    skipped = len(chain) - len(now)
    source = now.index(moving[0])
    before = {order[n] for n in stay if n < order.index(moving[0])}
    rest = [v for v in now if v != moving[0]]
    target = max((n for n, v in enumerate(rest) if v in before), default=-1) + 1
    if target == source - 1:  # a swap of neighbours is listed as the outer one moving in
        source, target = target, source
    yield Site.of("loop_reorder", work.own[source].path, to=skipped + target), why


def _increasing(values: list[int]) -> list[int]:
    """A longest increasing subsequence of distinct numbers."""
    best: list[list[int]] = []
    for v in values:
        best.append([*max((b for b in best if b[-1] < v), key=len, default=[]), v])
    return max(best, key=len, default=[])


def _order(work: Work, tile: Tile) -> list[LoopFeatures]:
    """What the operand along the vector depends on, the other parallel loops, the reductions, the rows, the columns."""
    streamed = [r for r in work.reads if r.stride(tile.along.var) != 0 and r.stride(tile.across.var) == 0]
    rest = [ln for ln in work.parallel if ln not in (tile.along, tile.across)]
    first = [ln for ln in rest if any(r.stride(ln.var) != 0 for r in streamed)]
    return [*first, *(ln for ln in rest if ln not in first), *work.reductions, tile.across, tile.along]


def _tile_sized(view: View, work: Work, tile: Tile) -> bool:
    """Whether the accumulators are a local buffer of the tile's size."""
    buffer = buffer_table(view.program)[work.target.buffer]
    return buffer.scope is Scope.LOCAL and prod(shape_of(buffer.shape, view.program)) <= tile.rows * tile.columns


def _packing(view: View, work: Work, tile: Tile) -> Iterator[tuple[Site, str]]:
    """Copy a panel of the operand along the vector where it is used again, then put the vector's dimension last."""
    table = buffer_table(view.program)
    tmps = view.ctx.tmp_names
    for read in work.reads:
        if read.stride(tile.along.var) == 0 or read.stride(tile.across.var) != 0:
            continue
        if read.buffer in tmps:
            yield from _layout(view, work, tile, read)
        elif not _panel(work, tile, read) and (home := _home(work, tile, read)) is not None:
            if home:
                yield Site.of("cache_read_write", home, mode="read", buffer=read.buffer), "a panel that is used again and again becomes contiguous"
            elif (dim := _dimension(view, tile, read)) is not None:
                perm = path_text(_last(dim, len(table[read.buffer].shape)))
                yield Site.of("layout_transformation", (), buffer=read.buffer, perm=perm, via="copy"), "a copy has the vectors' dimension last"


def _dimension(view: View, tile: Tile, read: AccessFeatures) -> int | None:
    """The dimension of the buffer that the vector runs along."""
    shape = shape_of(buffer_table(view.program)[read.buffer].shape, view.program)
    step = read.stride(tile.along.var)
    return next((d for d in range(len(shape)) if prod(shape[d + 1 :]) == step and shape[d] > 1), None)


def _home(work: Work, tile: Tile, read: AccessFeatures) -> Path | None:
    """The loop just outside the first one along which the operand is used again (``()``: the whole program); ``None`` with too little use."""
    for n, ln in enumerate(work.loops):
        if read.stride(ln.var) == 0:
            uses = prod(o.extent for o in work.loops[n:] if read.stride(o.var) == 0 and o is not tile.across)
            return (work.loops[n - 1].path if n else ()) if ln is not tile.across and uses >= _REUSE else None
    return None


def _panel(work: Work, tile: Tile, read: AccessFeatures) -> bool:
    """Whether neighbouring vectors of the operand lie close together already."""
    step = read.stride(work.reductions[-1].var)
    return read.stride(tile.along.var) == 1 and step is not None and abs(step) * work.itemsize < _FAR


def _layout(view: View, work: Work, tile: Tile, read: AccessFeatures) -> Iterator[tuple[Site, str]]:
    """A temporary whose vectors are neither contiguous nor close together gets another layout."""
    buffer, dim = buffer_table(view.program)[read.buffer], _dimension(view, tile, read)
    if dim is None or _panel(work, tile, read):
        return
    home, shape = declaring_path(view.program, buffer.name), shape_of(buffer.shape, view.program)
    last = dim == len(shape) - 1
    if last or shape[dim] != tile.columns:
        why = "panels as wide as the tile"
        yield (
            Site.of("set_storage_layout", home, buffer=buffer.name, op="block", dim=dim, factor=view.factor(tile.columns), to="first" if last else "last"),
            why,
        )
    else:
        yield _turned(view, buffer.name, dim)


def _last(dim: int, rank: int) -> Path:
    """The order of dimensions with ``dim`` last."""
    return (*(d for d in range(rank) if d != dim), dim)


def _turned(view: View, name: str, dim: int) -> tuple[Site, str]:
    perm = path_text(_last(dim, len(buffer_table(view.program)[name].shape)))
    return Site.of("layout_transformation", declaring_path(view.program, name), buffer=name, perm=perm), "the vector runs along the last dimension"
