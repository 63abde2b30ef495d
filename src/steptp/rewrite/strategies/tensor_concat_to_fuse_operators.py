"""Join two nests of one computation into one nest over a longer axis."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from steptp.ir import Buffer, Cast, Expr, Load, Loop, Op, Path, Program, Size, Stmt, Store, Var, ix, op, same_index, simplify_index
from steptp.ir.facts import Fact
from steptp.ir.sizes import shape_of
from steptp.ir.walk import all_tmps, body_at, buffer_table, declaring_path, free_vars, loads, map_expr, map_program_exprs, replace_at, replace_body, subexprs
from steptp.rewrite.base import Applied, Exactness, Family, Forwarding, NotApplicable, Outcome, ParamValue, Site, Strategy
from steptp.rewrite.context import Context, path_text
from steptp.rewrite.fact_kinds import fact
from steptp.rewrite.moving import SingleNest, place_param, read_place, single_nest, stores_between
from steptp.rewrite.outline import same_up_to_names
from steptp.rewrite.regions import reads_of, table_problem
from steptp.rewrite.strategies.tensor_split_to_decouple_operators import cut_nest

__all__ = ["TensorConcat", "STRATEGY"]


class TensorConcat(Strategy):
    """Site: path of the first nest, ``at`` = path of the loop of it that becomes longer, ``other`` = path of the second nest, or nothing.

    With ``other`` the nests compute two temporaries from other operands (``X*W`` and ``X*V``); operands and results become one tensor each. Without, the
    statements behind the nest compute the rest of the same result, as ``tensor_split_to_decouple_operators`` leaves it.
    """

    name = "tensor_concat_to_fuse_operators"
    family = Family.GRAPH
    classes = (Exactness.BITWISE,)
    summary = "join two nests of one computation over a longer axis"

    def sites(self, ctx: Context) -> Iterator[Site]:
        roots = [found for p, _ in ctx.loops if isinstance(found := single_nest(ctx, p), SingleNest)]
        for n, nest in enumerate(roots):
            for target, _ in ctx.loops_under(nest.path):
                if isinstance(_rest(ctx, nest, target), _Rest):
                    yield Site.of(self.name, nest.path, at=place_param(target))
            for other in roots[n + 1 :]:
                if other.path[:-1] == nest.path[:-1] and other.path > nest.path and _outline(other) == _outline(nest):
                    for target, _ in ctx.loops_under(nest.path):
                        if isinstance(_pair(ctx, nest, other, target), _Pair):
                            yield Site.of(self.name, nest.path, at=place_param(target), other=place_param(other.path))

    def apply(self, ctx: Context, site: Site) -> Outcome:
        params: dict[str, ParamValue] = dict(site.params)
        target, other = read_place(params.get("at")), read_place(params.get("other"))
        if set(params) - {"at", "other"} or target is None or ("other" in params) != (other is not None):
            return NotApplicable("bad-site", "tensor_concat_to_fuse_operators takes at=<path of a loop>, and other=<path of a nest> where operands are joined")
        nest = single_nest(ctx, site.path)
        if isinstance(nest, NotApplicable):
            return nest
        if ctx.loop(target) is None or target[: len(nest.path)] != nest.path:
            return NotApplicable("not-a-loop", f"there is no loop at {path_text(target)} in the nest at {path_text(nest.path)}")
        if other is None:
            rest = _rest(ctx, nest, target)
            return rest if isinstance(rest, NotApplicable) else _join_halves(ctx, rest)
        second = single_nest(ctx, other)
        if isinstance(second, NotApplicable):
            return second
        pair = _pair(ctx, nest, second, target)
        return pair if isinstance(pair, NotApplicable) else _join_operands(ctx, pair)


def _outline(nest: SingleNest) -> tuple[object, ...]:
    """What two nests of one computation have in common at least."""
    tree = tuple(e.name if isinstance(e, Op) else type(e).__name__ for e in subexprs(nest.store.value) if not isinstance(e, (Var, Size)))
    return len(nest.owners), nest.store.reduce, tree


# two halves of one result


@dataclass(frozen=True)
class _Rest:
    """``count`` statements behind the nest do what the ``longer`` loop would do from iteration ``here`` on; ``second`` is their loop's path."""

    nest: SingleNest
    target: Path
    here: Expr
    longer: Program
    count: int
    second: Path


def _rest(ctx: Context, nest: SingleNest, target: Path) -> _Rest | NotApplicable:
    """Joined, and cut again: if that gives the program back, the statements behind are the rest of the nest."""
    loop, owner, n = ctx.loop(target), nest.path[:-1], nest.path[-1]
    assert loop is not None
    nothing = NotApplicable("not-halves", f"the statements behind the nest at {path_text(nest.path)} are not the rest of it along {loop.var}")
    if Var(loop.var) not in nest.store.indices or ctx.value(loop.extent) is None:
        return nothing
    body = body_at(ctx.program, owner)
    for count in (1, 2):
        last = (*owner, n + count)
        if len(body) <= n + count:
            break
        twin = next((p for p, s in ctx.loops_under(last) if s.var == loop.var), None)
        behind = ctx.loop(twin or ())
        if twin is None or behind is None or all(s.buffer != nest.store.buffer for _, s in ctx.stores_under(last)):
            continue
        whole = simplify_index(loop.extent + behind.extent)
        joined = _with_extent(ctx.program, target, whole)
        joined = replace_body(joined, owner, (*body_at(joined, owner)[: n + 1], *body[n + count + 1 :]))
        again = Context.of(joined)
        made = single_nest(again, nest.path)
        if isinstance(made, SingleNest):
            back = cut_nest(again, made, target, loop.extent)
            if back[2] == count and same_up_to_names(back[0], ctx.program):
                return _Rest(nest, target, loop.extent, joined, count, twin)
    return nothing


def _with_extent(program: Program, path: Path, extent: Expr) -> Program:
    loop = body_at(program, path[:-1])[path[-1]]
    assert isinstance(loop, Loop)
    return replace_at(program, path, replace(loop, extent=extent))


def _join_halves(ctx: Context, rest: _Rest) -> Outcome:
    again = Context.of(rest.longer)
    owner, n = rest.nest.path[:-1], rest.nest.path[-1]
    long = again.loop(rest.target)
    assert long is not None
    siblings = range(n + rest.count + 1, len(body_at(ctx.program, owner)))
    gone: list[tuple[Path, Path | None]] = [((*owner, k), None) for k in range(n + 1, n + rest.count + 1)]
    facts = [
        fact("axis_joined", "child", first=path_text(rest.target), second=path_text(rest.second), extent=again.value(long.extent) or 0),
        fact("same_operations", "dependence", buffers=tuple(b.name for b in ctx.program.outputs)),
    ]
    undo = (Site.of("tensor_split_to_decouple_operators", rest.nest.path, at=place_param(rest.target), cut="half"),)
    halves = same_index(rest.here, simplify_index(op("//", long.extent, ix(2))))
    forward = Forwarding((*gone, *(((*owner, k), (*owner, k - rest.count)) for k in siblings)))
    return Applied(rest.longer, Exactness.BITWISE, tuple(facts), None, forward, undo if halves else ())


# two results of the same computation


@dataclass
class _Match:
    """Comparing two expressions: loops of the first → of the second; operands that differ and the dimension in which the axis indexes them."""

    names: dict[str, str]
    axis: str
    pairs: dict[str, tuple[str, int]] = field(default_factory=dict)
    shared: set[str] = field(default_factory=set)

    def same(self, a: Expr, b: Expr) -> bool:
        if isinstance(a, Load) and isinstance(b, Load):
            return self.load(a, b)
        if isinstance(a, Var) and isinstance(b, Var):
            return self.names.get(a.name, a.name) == b.name
        if isinstance(a, Op) and isinstance(b, Op):
            return a.name == b.name and a.type is b.type and len(a.args) == len(b.args) and all(map(self.same, a.args, b.args))
        if isinstance(a, Cast) and isinstance(b, Cast):
            return a.type is b.type and self.same(a.arg, b.arg)
        return a == b and self.axis not in free_vars(a)

    def load(self, a: Load, b: Load) -> bool:
        if a.type is not b.type or len(a.indices) != len(b.indices):
            return False
        moved = [d for d, i in enumerate(a.indices) if self.axis in free_vars(i)]
        if not moved:
            self.shared.add(a.buffer)
            return a.buffer == b.buffer and all(map(self.same, a.indices, b.indices))
        if len(moved) != 1 or a.indices[moved[0]] != Var(self.axis) or a.buffer == b.buffer:
            return False
        known = self.pairs.setdefault(a.buffer, (b.buffer, moved[0]))
        return known == (b.buffer, moved[0]) and all(map(self.same, a.indices, b.indices))


@dataclass(frozen=True)
class _Pair:
    first: SingleNest
    second: SingleNest
    target: Path
    loops: tuple[Loop, Loop]
    dim: int
    operands: tuple[tuple[Buffer, Buffer, int], ...]


def _pair(ctx: Context, first: SingleNest, second: SingleNest, target: Path) -> _Pair | NotApplicable:
    table, program = buffer_table(ctx.program), ctx.program
    one, two = table[first.store.buffer], table[second.store.buffer]
    loop = ctx.loop(target)
    assert loop is not None
    if second.path[:-1] != first.path[:-1] or second.path <= first.path:
        return NotApplicable("not-beside", f"the nest at {path_text(second.path)} does not follow beside the one at {path_text(first.path)}")
    if (problem := table_problem(ctx, (one.name, two.name))) is not None:
        return problem
    tmps = {b.name for _, b in all_tmps(program)}
    if one.name == two.name or not {one.name, two.name} <= tmps or any(sum(s.buffer == b.name for _, s in ctx.stores) > 1 for b in (one, two)):
        return NotApplicable("interface", f"{one.name} and {two.name} are no two temporaries with a single writer each")
    if declaring_path(program, one.name) != declaring_path(program, two.name) or one.dtype is not two.dtype or one.scope is not two.scope:
        return NotApplicable("declarations", f"{one.name} and {two.name} live in different places, or hold different types")
    if len(first.loops) != len(first.owners) or len(second.loops) != len(second.owners) or len(first.loops) != len(second.loops):
        return NotApplicable("loops", "the nests have guards, or different numbers of loops")
    loops = next(((a, b) for a, b in zip(first.loops, second.loops, strict=True) if a is loop), None)
    if loops is None:
        return NotApplicable("not-a-loop", f"there is no loop at {path_text(target)} in the nest")
    for a, b in zip(first.loops, second.loops, strict=True):
        if a.kind is not b.kind or a.kind.is_bound or free_vars(a.extent) or free_vars(b.extent) or (a is not loop and not same_index(a.extent, b.extent)):
            return NotApplicable("loops", f"loop {a.var} of the first nest and {b.var} of the second differ")
    dims = [d for d, i in enumerate(first.store.indices) if i == Var(loop.var)]
    names = {a.var: b.var for a, b in zip(first.loops, second.loops, strict=True)}
    match = _Match(names, loop.var)
    stores = (first.store, second.store)
    if len(dims) != 1 or any(loop.var in free_vars(i) for d, i in enumerate(first.store.indices) if d != dims[0]):
        return NotApplicable("index", f"{loop.var} does not index one dimension of {one.name} alone")
    if stores[0].reduce != stores[1].reduce or stores[0].carry or stores[1].carry or len(stores[0].indices) != len(stores[1].indices):
        return NotApplicable("stores", f"{one.name} and {two.name} are not stored alike")
    if not all(
        match.same(i, j) if d != dims[0] else j == Var(names[loop.var]) for d, (i, j) in enumerate(zip(stores[0].indices, stores[1].indices, strict=True))
    ):
        return NotApplicable("stores", f"{one.name} and {two.name} are not indexed alike")
    if not match.same(stores[0].value, stores[1].value) or not match.pairs:
        return NotApplicable("computation", f"{one.name} and {two.name} are not the same computation of operands that {loop.var} indexes")
    if match.shared & (match.pairs.keys() | {b for b, _ in match.pairs.values()}):
        return NotApplicable("shared", f"{min(match.pairs)} is also read without {loop.var}")
    if {one.name, two.name} & {e.buffer for s in stores for e in loads(s.value)}:
        return NotApplicable("recurrence", f"one of {one.name} and {two.name} is computed from the other, or from itself")
    for nest in (first, second):
        reset = ctx.reset_loop(nest.store_path)
        if nest.store.reduce is not None and (reset is None or reset[: len(nest.path)] != nest.path):
            return NotApplicable("reset", f"{nest.store.buffer} accumulates over a loop around the nest")
    operands = []
    for mine, (theirs, d) in match.pairs.items():
        if (problem := _operand_problem(table[mine], table[theirs], d, loops)) is not None:
            return problem
        operands.append((table[mine], table[theirs], d))
    if (problem := _between(ctx, first, second, one, two)) is not None:
        return problem
    return _Pair(first, second, target, loops, dims[0], tuple(operands))


def _operand_problem(a: Buffer, b: Buffer, dim: int, loops: tuple[Loop, Loop]) -> NotApplicable | None:
    if a.dtype is not b.dtype or len(a.shape) != len(b.shape) or a.range is not None or b.range is not None:
        return NotApplicable("operands", f"{a.name} and {b.name} have different types or ranks")
    if any(not same_index(x, y) for d, (x, y) in enumerate(zip(a.shape, b.shape, strict=True)) if d != dim):
        return NotApplicable("operands", f"{a.name} and {b.name} differ in other dimensions than {dim}")
    if not same_index(a.shape[dim], loops[0].extent) or not same_index(b.shape[dim], loops[1].extent):
        return NotApplicable("operands", f"{loops[0].var} does not run over all of dimension {dim} of {a.name} and {b.name}")
    return None


def _between(ctx: Context, first: SingleNest, second: SingleNest, one: Buffer, two: Buffer) -> NotApplicable | None:
    """What stands between the nests must not make the second one's operands, nor read its result."""
    inputs = {e.buffer for e in loads(second.store.value)}
    for path, store in stores_between(ctx, first.path, second.path):
        if store.buffer in inputs:
            return NotApplicable("changed", f"{store.buffer}, an operand of {two.name}, is written at {path_text(path)}, behind the first nest")
    owner = first.path[:-1]
    for b, nest in ((one, first), (two, second)):
        for a in reads_of(ctx.program).get(b.name, ()):
            if a.met.path[: len(owner)] != owner or a.met.path <= nest.path:
                return NotApplicable("read-before", f"{b.name} is read where its nest has not run yet, or has run before")
    return None


def _join_operands(ctx: Context, pair: _Pair) -> Outcome:
    program, table = ctx.program, buffer_table(ctx.program)
    one, two = table[pair.first.store.buffer], table[pair.second.store.buffer]
    names = ctx.fresh_global(*(f"{a.name[0]}{b.name[0]}" for a, b in ((one, two), *((a, b) for a, b, _ in pair.operands))))
    whole = simplify_index(pair.loops[0].extent + pair.loops[1].extent)
    both = replace(one, name=names[0], shape=_longer(one.shape, pair.dim, whole))
    joined = [Buffer(n, a.dtype, _longer(a.shape, d, simplify_index(a.shape[d] + b.shape[d]))) for n, (a, b, d) in zip(names[1:], pair.operands, strict=True)]
    copies: list[Stmt] = []
    for buffer, (a, b, d) in zip(joined, pair.operands, strict=True):
        for source, shift in ((a, None), (b, a.shape[d])):
            copies.append(_copy(ctx, pair.first.path, buffer, source, d, shift))
    renamed = {a.name: buffer.name for buffer, (a, _, _) in zip(joined, pair.operands, strict=True)}
    stmt = ctx.stmt(pair.first.path)
    assert stmt is not None
    nest = _joined_nest(stmt, pair, whole, both.name, renamed)
    child = replace_at(replace_at(program, pair.second.path), pair.first.path, *copies, nest)

    def read(expr: Expr) -> Expr:
        def leave(e: Expr) -> Expr:
            if isinstance(e, Load) and e.buffer in (one.name, two.name):
                at = e.indices[pair.dim] if e.buffer == one.name else simplify_index(e.indices[pair.dim] + pair.loops[0].extent)
                return Load(both.name, (*e.indices[: pair.dim], at, *e.indices[pair.dim + 1 :]), e.type)
            return e

        return map_expr(expr, leave)

    child = map_program_exprs(child, read)
    home = declaring_path(program, one.name)
    holder = ctx.loop(home)
    old = program.tmps if holder is None else holder.tmps
    kept = tuple(both if b.name == one.name else b for b in old if b.name != two.name)
    child = replace_body(child, home, body_at(child, home), (*kept, *joined))
    owner, n, m = pair.first.path[:-1], pair.first.path[-1], pair.second.path[-1]
    added = len(copies)
    moves: list[tuple[Path, Path | None]] = [((*owner, n), (*owner, n + added)), ((*owner, m), None)]
    moves += [((*owner, k), (*owner, k + added - (k > m))) for k in range(n + 1, len(body_at(program, owner))) if k != m]
    return Applied(child, Exactness.BITWISE, _pair_facts(ctx, pair, both, joined, whole), None, Forwarding(tuple(moves)))


def _longer(shape: tuple[Expr, ...], dim: int, extent: Expr) -> tuple[Expr, ...]:
    return (*shape[:dim], extent, *shape[dim + 1 :])


def _copy(ctx: Context, path: Path, into: Buffer, source: Buffer, dim: int, shift: Expr | None) -> Stmt:
    names = ctx.fresh_vars((*path, 0), *(f"c{d}" for d in range(len(source.shape))))
    places: tuple[Expr, ...] = tuple(Var(v) for v in names)
    target = places if shift is None else (*places[:dim], simplify_index(places[dim] + shift), *places[dim + 1 :])
    out: Stmt = Store(into.name, target, Load(source.name, places, source.dtype))
    for var, extent in reversed(list(zip(names, source.shape, strict=True))):
        out = Loop(var, extent, (out,))
    return out


def _joined_nest(stmt: Stmt, pair: _Pair, whole: Expr, name: str, renamed: dict[str, str]) -> Stmt:
    if isinstance(stmt, Store):
        value = map_expr(stmt.value, lambda e: Load(renamed[e.buffer], e.indices, e.type) if isinstance(e, Load) and e.buffer in renamed else e)
        return replace(stmt, buffer=name, value=value)
    body = tuple(_joined_nest(s, pair, whole, name, renamed) for s in stmt.body)
    return replace(stmt, body=body, extent=whole) if stmt is pair.loops[0] else replace(stmt, body=body)


def _pair_facts(ctx: Context, pair: _Pair, both: Buffer, joined: list[Buffer], whole: Expr) -> tuple[Fact, ...]:
    table = buffer_table(ctx.program)
    one, two = table[pair.first.store.buffer], table[pair.second.store.buffer]
    depth = len(pair.target) - len(pair.first.path)
    twin = (*pair.second.path, *(0,) * depth)
    operands = tuple(name for a, b, _ in pair.operands for name in (a.name, b.name))
    out = [
        fact("same_computation", "parent", first=path_text(pair.first.path), second=path_text(pair.second.path), operands=operands),
        fact("axis_joined", "child", first=path_text(pair.target), second=path_text(twin), extent=ctx.value(whole) or 0),
        fact("tensors_joined", "child", into=both.name, lower=one.name, upper=two.name, dim=pair.dim),
    ]
    out += [fact("tensors_joined", "child", into=n.name, lower=a.name, upper=b.name, dim=d) for n, (a, b, d) in zip(joined, pair.operands, strict=True)]
    for b in (both, *joined):
        out.append(fact("buffer_added", "child", name=b.name, dtype=str(b.dtype), elements=math.prod(shape_of(b.shape, ctx.program))))
    for b in (one, two):
        out.append(fact("buffer_removed", "child", name=b.name, dtype=str(b.dtype), elements=math.prod(shape_of(b.shape, ctx.program))))
    out.append(fact("same_operations", "dependence", buffers=tuple(b.name for b in ctx.program.outputs)))
    return tuple(out)


STRATEGY = TensorConcat()
