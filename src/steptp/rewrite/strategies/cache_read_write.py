"""Copy a region of a read-only buffer into local memory, or accumulate in local memory and write back once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from steptp.ir import Buffer, Expr, If, Load, Loop, Op, Path, Scope, Store, Var, ix, same_index, simplify_index
from steptp.ir.index import poly_of
from steptp.ir.nodes import Body, Stmt
from steptp.ir.resets import reset_plan
from steptp.ir.sizes import eval_index, shape_of
from steptp.ir.walk import body_at, buffer_table, free_vars, loads, map_expr, replace_body, stmt_exprs, subexprs, visit
from steptp.rewrite.base import Applied, Exactness, Family, Forwarding, NotApplicable, Outcome, Site, Strategy
from steptp.rewrite.context import Context, path_text
from steptp.rewrite.fact_kinds import fact
from steptp.rewrite.tools import buffers_touched

__all__ = ["CacheReadWrite", "STRATEGY"]

MAX_ELEMENTS = 1 << 16


@dataclass(frozen=True)
class _Region:
    """Per dimension: the part of the index that the loops outside fix, and how many elements the loops inside span."""

    base: tuple[Expr, ...]
    size: tuple[Expr, ...]


class CacheReadWrite(Strategy):
    """Site for ``mode=read``: path of the loop in whose body the copy stands, ``buffer`` = what it copies.

    Site for ``mode=accumulate``: path of the loop before which ``buffer`` resets; the accumulation moves into a local temporary of the loop
    around, and one store writes the result back behind it.
    """

    name = "cache_read_write"
    family = Family.MEMORY
    classes = (Exactness.BITWISE,)
    summary = "copy a region into local memory, or accumulate there and write back"

    def sites(self, ctx: Context) -> Iterator[Site]:
        for path, loop in ctx.loops:
            reads = dict.fromkeys(e.buffer for v in visit(loop.body) for x in stmt_exprs(v.stmt) for e in loads(x))
            for mode, names in (("read", reads), ("accumulate", dict.fromkeys(s.buffer for _, s in ctx.stores_under(path)))):
                for name in names:
                    site = Site.of(self.name, path, mode=mode, buffer=name)
                    if isinstance(self.apply(ctx, site), Applied):
                        yield site

    def apply(self, ctx: Context, site: Site) -> Outcome:
        params = dict(site.params)
        loop, buffer = ctx.loop(site.path), buffer_table(ctx.program).get(str(params.get("buffer")))
        if loop is None:
            return NotApplicable("not-a-loop", f"there is no loop at {path_text(site.path)}")
        if buffer is None or params.get("mode") not in ("read", "accumulate") or set(params) != {"mode", "buffer"}:
            return NotApplicable("bad-site", "cache_read_write takes mode=read or mode=accumulate and buffer=<name>")
        return _read(ctx, site, loop, buffer) if params["mode"] == "read" else _accumulate(ctx, site, loop, buffer)


def _read(ctx: Context, site: Site, loop: Loop, buffer: Buffer) -> Outcome:
    path = site.path
    touched = [buffers_touched(s) for s in loop.body]
    if any(buffer.name in writes for _, writes in touched):
        return NotApplicable("written", f"{buffer.name} is also written under {loop.var}, so a copy could be stale")
    if buffer.scope is Scope.LOCAL or buffer in loop.tmps:
        return NotApplicable("local", f"{buffer.name} is local already")
    accesses = [(v, e) for v in visit(loop.body) for x in stmt_exprs(v.stmt) for e in loads(x) if e.buffer == buffer.name]
    if not accesses:
        return NotApplicable("not-read", f"nothing under {loop.var} reads {buffer.name}")
    inside = {v.stmt.var: v.stmt for v in visit(loop.body) if isinstance(v.stmt, Loop)}
    if not any(free_vars(i) & set(inside) for _, e in accesses for i in e.indices):
        return NotApplicable("no-region", f"under {loop.var} only one element of {buffer.name} is read in an iteration")
    region = _region(ctx, buffer, [e for _, e in accesses], inside)
    if isinstance(region, NotApplicable):
        return region
    if any(
        isinstance(x, Op) and x.name in ("select", "and", "or") and any(e.buffer == buffer.name for e in loads(x))
        for v, _ in accesses
        for w in stmt_exprs(v.stmt)
        for x in subexprs(w)
    ):
        return NotApplicable("conditional", f"{buffer.name} is read under a condition, so a copy could read out of bounds")
    if any(isinstance(p, If) for v, _ in accesses for p in v.parents) or any(isinstance(v.stmt, If) for v, _ in accesses):
        return NotApplicable("guarded", f"{buffer.name} is read under a guard, so a copy could read out of bounds")
    sizes = shape_of(region.size, ctx.program)
    elements = 1
    for n in sizes:
        elements *= n
    if not 1 < elements <= MAX_ELEMENTS:
        return NotApplicable("region-size", f"the region has {elements} elements; a local copy holds 2 to {MAX_ELEMENTS}")
    if (problem := _inside_bounds(ctx, path, buffer, region, sizes)) is not None:
        return problem
    (name,) = ctx.fresh_global(f"{buffer.name}l")
    names = ctx.fresh_vars((*path, 0), *(f"c{d}" for d in range(len(sizes)) if sizes[d] > 1))
    kept = [d for d in range(len(sizes)) if sizes[d] > 1]
    taken: dict[int, Expr] = {d: Var(v) for d, v in zip(kept, names, strict=True)}
    source = Load(buffer.name, tuple(simplify_index(b + taken[d]) if d in taken else b for d, b in enumerate(region.base)), buffer.dtype)
    nest: Stmt = Store(name, tuple(taken[d] for d in kept), source)
    for d, var in reversed(list(zip(kept, names, strict=True))):
        nest = Loop(var, region.size[d], (nest,))

    def local(expr: Expr) -> Expr:
        if isinstance(expr, Load) and expr.buffer == buffer.name:
            return Load(name, tuple(simplify_index(expr.indices[d] - region.base[d]) for d in kept), expr.type)
        return expr

    body = tuple(_map_reads(s, local) for s in loop.body)
    copy = Buffer(name, buffer.dtype, tuple(region.size[d] for d in kept), Scope.LOCAL)
    child = replace_body(ctx.program, path, (nest, *body), (*loop.tmps, copy))
    return Applied(
        child,
        Exactness.BITWISE,
        (
            fact("buffer_added", "child", name=name, dtype=str(buffer.dtype), elements=elements),
            fact("region_copied", "child", buffer=buffer.name, into=name, loop=loop.var, at=path_text(path)),
            fact("not_written_under", "parent", buffer=buffer.name, loop=loop.var, at=path_text(path)),
        ),
        None,
        Forwarding(tuple(((*path, n), (*path, n + 1)) for n in range(len(loop.body)))),
    )


def _map_reads(stmt: Stmt, change: object) -> Stmt:
    assert callable(change)

    def in_expr(expr: Expr) -> Expr:
        return map_expr(expr, change)

    if isinstance(stmt, Store):
        return replace(stmt, indices=tuple(in_expr(i) for i in stmt.indices), value=in_expr(stmt.value))
    inner = tuple(_map_reads(s, change) for s in stmt.body)
    return If(in_expr(stmt.cond), inner) if isinstance(stmt, If) else replace(stmt, extent=in_expr(stmt.extent), body=inner)


def _region(ctx: Context, buffer: Buffer, accesses: list[Load], inside: dict[str, Loop]) -> _Region | NotApplicable:
    """The box that all accesses lie in; every index must be a sum of an outer part, the same for all, and inner loops with positive factors."""
    base: list[Expr] = []
    size: list[Expr] = []
    for d in range(len(buffer.shape)):
        outer: Expr | None = None
        spans: list[Expr] = []
        for access in accesses:
            split = _split(access.indices[d], inside)
            if split is None:
                return NotApplicable("region", f"the region of {buffer.name} read there is no box: its index {d} is not a sum of loop variables")
            mine, span = split
            if outer is not None and not same_index(outer, mine):
                return NotApplicable("region", f"reads of {buffer.name} start at different places in dimension {d}")
            outer = mine
            spans.append(span)
        largest = max(spans, key=lambda s: eval_index(s, ctx.env))
        if any(not same_index(s, largest) for s in spans):
            return NotApplicable("region", f"reads of {buffer.name} span different lengths in dimension {d}")
        assert outer is not None
        base.append(outer)
        size.append(largest)
    return _Region(tuple(base), tuple(size))


def _split(index: Expr, inside: dict[str, Loop]) -> tuple[Expr, Expr] | None:
    """(outer part, number of values the inner part spans), or ``None``."""
    if any(loads(index)):
        return None
    outer: Expr = ix(0)
    span: Expr = ix(1)
    for mono, value in poly_of(index).items():
        term: Expr = ix(value)
        for atom in mono:
            term = term * atom
        mine = free_vars(term) & set(inside)
        if not mine:
            outer = outer + term
            continue
        found = [a for a in mono if isinstance(a, Var) and a.name in inside]
        if len(found) != 1 or free_vars(term) != {found[0].name} or value < 0 or any(free_vars(a) for a in mono if a is not found[0]):
            return None
        loop = inside[found[0].name]
        if free_vars(loop.extent):
            return None
        rest: Expr = ix(value)
        for atom in mono:
            if atom is not found[0]:
                rest = rest * atom
        span = span + rest * (loop.extent - ix(1))
    return simplify_index(outer), simplify_index(span)


def _inside_bounds(ctx: Context, path: Path, buffer: Buffer, region: _Region, sizes: tuple[int, ...]) -> NotApplicable | None:
    """The last element of the box must exist in every iteration of the loops around; extents around may only depend on sizes."""
    around = {loop.var: loop.extent for _, loop in ctx.enclosing_loops((*path, 0))}
    if any(free_vars(e) for e in around.values()):
        return NotApplicable("extent-varies", f"the loops around {path_text(path)} have extents that vary")
    top = {v: max(eval_index(e, ctx.env) - 1, 0) for v, e in around.items()}
    for base, span, extent in zip(region.base, sizes, shape_of(buffer.shape, ctx.program), strict=True):
        lowest, highest = 0, 0
        for mono, value in poly_of(base).items():
            product = value
            for atom in mono:
                product *= eval_index(atom, {**ctx.env, **top})
            lowest, highest = lowest + min(product, 0), highest + max(product, 0)
        if lowest < 0 or highest + span > extent:
            return NotApplicable("out-of-bounds", f"the box around the reads reaches outside of {buffer.name}")
    return None


def _accumulate(ctx: Context, site: Site, loop: Loop, buffer: Buffer) -> Outcome:
    path = site.path
    found = [(p, s) for p, s in ctx.stores_under(path) if s.buffer == buffer.name]
    if len(found) != 1 or ctx.reset_loop(found[0][0]) != path:
        return NotApplicable("reset", f"{buffer.name} does not reset just before the loop {loop.var}")
    store_path, store = found[0]
    if _read_in(loop.body, buffer.name):
        return NotApplicable("read", f"{buffer.name} is read under {loop.var} while it is accumulated")
    if buffer.scope is Scope.LOCAL:
        return NotApplicable("local", f"{buffer.name} is local already")
    owner = path[:-1]
    home = owner
    while home and ctx.loop(home) is None:
        home = home[:-1]
    if not home:
        return NotApplicable("outermost", f"no loop around {loop.var} could hold a local accumulator")
    plan = reset_plan(ctx.program, store_path)
    dims = _loops_of(plan.nest)
    if any(free_vars(p.extent) for p in dims):
        return NotApplicable("extent-varies", f"the elements of {buffer.name} that {loop.var} accumulates form no box")
    if any(isinstance(p, If) for p in _owners(plan.nest)):
        return NotApplicable("guarded", f"the accumulation into {buffer.name} is guarded, so the box of local accumulators would have holes")
    size = 1
    for p in dims:
        size *= eval_index(p.extent, ctx.env)
    if size > MAX_ELEMENTS:
        return NotApplicable("region-size", f"{size} accumulators are more than {MAX_ELEMENTS}")
    (name,) = ctx.fresh_global(f"{buffer.name}l")
    inner = tuple(Var(p.var) for p in dims)
    body = _retarget(loop.body, store, replace(store, buffer=name, indices=inner))
    back: Stmt = Store(buffer.name, store.indices, Load(name, inner, buffer.dtype))
    for p in reversed(dims):
        back = Loop(p.var, p.extent, (back,))
    around = body_at(ctx.program, owner)
    n = path[-1]
    child = replace_body(ctx.program, owner, (*around[:n], replace(loop, body=body), back, *around[n + 1 :]))
    holder = ctx.loop(home)
    assert holder is not None
    local = Buffer(name, buffer.dtype, tuple(p.extent for p in dims), Scope.LOCAL)
    child = replace_body(child, home, body_at(child, home), (*holder.tmps, local))
    return Applied(
        child,
        Exactness.BITWISE,
        (
            fact("buffer_added", "child", name=name, dtype=str(buffer.dtype), elements=size),
            fact("accumulates_in", "child", buffer=buffer.name, into=name, loop=loop.var, at=path_text(path)),
            fact("written_back", "child", buffer=buffer.name, elements=size),
        ),
        None,
        Forwarding(tuple(((*owner, k), (*owner, k + 1)) for k in range(n + 1, len(around)))),
    )


def _loops_of(stmt: Stmt) -> list[Loop]:
    out: list[Loop] = []
    while not isinstance(stmt, Store):
        if isinstance(stmt, Loop):
            out.append(stmt)
        stmt = stmt.body[0]
    return out


def _owners(stmt: Stmt) -> list[Stmt]:
    out: list[Stmt] = []
    while not isinstance(stmt, Store):
        out.append(stmt)
        stmt = stmt.body[0]
    return out


def _read_in(body: Body, name: str) -> bool:
    return any(e.buffer == name for v in visit(body) for x in stmt_exprs(v.stmt) for e in loads(x))


def _retarget(body: Body, old: Store, new: Store) -> Body:
    def one(stmt: Stmt) -> Stmt:
        if isinstance(stmt, Store):
            return new if stmt is old else stmt
        return replace(stmt, body=tuple(one(s) for s in stmt.body))

    return tuple(one(s) for s in body)


STRATEGY = CacheReadWrite()
