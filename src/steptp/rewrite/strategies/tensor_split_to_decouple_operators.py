"""Cut a nest along one axis into two independent nests: spatial axes into halves of the result, reductions into partial results."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from steptp.ir import Buffer, DType, Expr, If, Load, Loop, Path, Program, Stmt, Store, Var, identity_of, ix, op, print_expr, simplify_cond, simplify_index
from steptp.ir.facts import Fact
from steptp.ir.resets import conjuncts
from steptp.ir.sizes import shape_of
from steptp.ir.walk import body_at, buffer_table, declaring_path, free_vars, loads, map_expr, map_program_exprs, replace_at, replace_body
from steptp.rewrite.base import Applied, Exactness, Family, Forwarding, InstanceMap, NotApplicable, Outcome, Site, Strategy
from steptp.rewrite.context import Context, path_text
from steptp.rewrite.fact_kinds import fact
from steptp.rewrite.moving import SingleNest, inputs_of, place_param, read_place, single_nest
from steptp.rewrite.regions import inner_loops, reads_of, resolved, span_of, table_problem, writes_of
from steptp.rewrite.second_copy import copy_entries, second_copy
from steptp.rewrite.tools import instance_map, lower_bound, substitute_body

__all__ = ["TensorSplit", "STRATEGY", "cut_nest"]

_CUTS = ("half", "reads")


class TensorSplit(Strategy):
    """Site: path of the nest, ``at`` = path of the loop to cut, ``cut`` = ``half`` or ``reads``.

    A loop that indexes the result is cut into two nests that compute one half each. With ``cut=reads`` the cut lies where a reader starts to read (``t[i,j+L]``); readers
    then see two tensors. A loop that accumulates is cut into two partial results, which a third nest combines.
    """

    name = "tensor_split_to_decouple_operators"
    family = Family.GRAPH
    classes = (Exactness.BITWISE, Exactness.REASSOCIATED)
    summary = "cut a nest along an axis into two independent nests"

    def sites(self, ctx: Context) -> Iterator[Site]:
        for path, _ in ctx.loops:
            nest = single_nest(ctx, path)
            if isinstance(nest, NotApplicable) or (len(path) > 1 and len(body_at(ctx.program, path[:-1])) == 1):
                continue  # inner loops of a nest are cut with all of it
            kinds: set[bool] = set()
            for target, loop in ctx.loops_under(path):
                spatial = any(loop.var in free_vars(i) for i in nest.store.indices)
                for cut in _CUTS if spatial else _CUTS[:1]:
                    if cut == "half" and spatial in kinds:
                        continue
                    if not isinstance(_plan(ctx, nest, target, cut), NotApplicable):
                        kinds |= {spatial} if cut == "half" else set()
                        yield Site.of(self.name, path, at=place_param(target), cut=cut)

    def apply(self, ctx: Context, site: Site) -> Outcome:
        params = dict(site.params)
        target, cut = read_place(params.get("at")), params.get("cut", "half")
        if set(params) - {"at", "cut"} or target is None or cut not in _CUTS:
            return NotApplicable("bad-site", "tensor_split_to_decouple_operators takes at=<path of a loop> and cut=half or reads")
        nest = single_nest(ctx, site.path)
        if isinstance(nest, NotApplicable):
            return nest
        plan = _plan(ctx, nest, target, str(cut))
        if isinstance(plan, NotApplicable):
            return plan
        return _partial(ctx, plan) if plan.dim is None else _two_tensors(ctx, plan) if plan.cut == "reads" else _halves(ctx, plan)


@dataclass(frozen=True)
class _Plan:
    """The loop at ``target`` is cut before iteration ``here``; ``dim``: the dimension that it indexes (``None``: it accumulates)."""

    nest: SingleNest
    target: Path
    loop: Loop
    cut: str
    here: Expr
    dim: int | None

    @property
    def rest(self) -> Expr:
        return simplify_index(self.loop.extent - self.here)


def _plan(ctx: Context, nest: SingleNest, target: Path, cut: str) -> _Plan | NotApplicable:
    loop, store = ctx.loop(target), nest.store
    if loop is None or target[: len(nest.path)] != nest.path:
        return NotApplicable("not-a-loop", f"there is no loop at {path_text(target)} in the nest at {path_text(nest.path)}")
    if (problem := table_problem(ctx, (store.buffer,))) is not None:
        return problem
    extent = ctx.value(loop.extent)
    if extent is None or loop.kind.is_bound:
        return NotApplicable("extent-varies", f"{loop.var} is bound to a GPU axis or runs a varying number of times")
    if extent < 2:
        return NotApplicable("extent", f"{loop.var} runs {extent} times; nothing can be cut")
    if store.buffer in inputs_of(ctx, nest) or any(True for p in nest.owners if isinstance(p, If) for _ in loads(p.cond)):
        return NotApplicable("recurrence", f"{store.buffer} is computed from its own elements, or under a guard on data")
    if any(isinstance(p, Loop) and loop.var in free_vars(p.extent) for p in nest.owners):
        return NotApplicable("extent-varies", f"a loop inside {loop.var} runs a number of times that depends on it")
    reset = ctx.reset_loop(nest.store_path)
    if store.reduce is not None and (reset is None or reset[: len(nest.path)] != nest.path):
        return NotApplicable("reset", f"{store.buffer} carries on, or accumulates over a loop around the nest")
    dims = [d for d, i in enumerate(store.indices) if i == Var(loop.var)]
    if len(dims) == 1 and not any(loop.var in free_vars(i) for d, i in enumerate(store.indices) if d != dims[0]):
        if cut == "half":
            return _Plan(nest, target, loop, cut, simplify_index(op("//", loop.extent, ix(2))), dims[0])
        here = _boundary(ctx, nest, loop, dims[0])
        return here if isinstance(here, NotApplicable) else _Plan(nest, target, loop, cut, here, dims[0])
    if any(loop.var in free_vars(i) for i in store.indices):
        return NotApplicable("index", f"{loop.var} does not index one dimension of {store.buffer} alone")
    if store.reduce is None or cut != "half":
        return NotApplicable(
            "not-a-reduction", f"{loop.var} does not index {store.buffer}, which {'is no accumulation' if store.reduce is None else 'is cut in halves only'}"
        )
    if any(free_vars(p.extent) for p in nest.loops if p.var in _indexing(store)):
        return NotApplicable("extent-varies", f"the elements of {store.buffer} form no box")
    return _Plan(nest, target, loop, cut, simplify_index(op("//", loop.extent, ix(2))), None)


def _indexing(store: Store) -> frozenset[str]:
    return frozenset().union(*(free_vars(i) for i in store.indices)) if store.indices else frozenset()


def _boundary(ctx: Context, nest: SingleNest, loop: Loop, dim: int) -> Expr | NotApplicable:
    """Where the first reader behind the start begins; every read must lie on one side."""
    name = nest.store.buffer
    if name not in ctx.tmp_names or len(writes_of(ctx)[name]) > 1:
        return NotApplicable("interface", f"{name} is no temporary with a single writer")
    spans = [span_of([(a.indices[dim], inner_loops(a.met, 0))]) for a in reads_of(ctx.program).get(name, ())]
    starts = sorted({(n, s.base) for s in spans if s is not None and (n := ctx.value(s.base)) is not None and n > 0}, key=lambda p: p[0])
    if not starts:
        return NotApplicable("no-boundary", f"no read of {name} starts inside of dimension {dim}")
    here = starts[0][1]
    if _less(ctx, loop.extent, here) or _less(ctx, here, ix(0)):
        return NotApplicable("no-boundary", f"{print_expr(here, DType.I64)} may lie outside of {loop.var} at other sizes")
    for span in spans:
        if span is None or (_less(ctx, here, span.base + span.size) and _less(ctx, span.base, here)):
            return NotApplicable("straddles", f"a read of {name} reaches across {print_expr(here, DType.I64)} in dimension {dim}")
    return here


def _less(ctx: Context, a: Expr, b: Expr) -> bool:
    """Whether ``a < b`` may hold at some sizes, as far as is seen."""
    low = lower_bound(resolved(ctx.program, a - b))
    return low is None or low < 0


def _cut_loops(stmt: Stmt, var: str, extent: Expr) -> Stmt:
    if isinstance(stmt, Store):
        return stmt
    body = tuple(_cut_loops(s, var, extent) for s in stmt.body)
    if isinstance(stmt, If):
        return If(stmt.cond, body)
    return replace(stmt, body=body, extent=extent if stmt.var == var else stmt.extent)


def _second(ctx: Context, plan: _Plan, body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
    """Statements of the copy with the loop running over the rest."""
    var = plan.loop.var
    around = {**ctx.extents_around(plan.nest.path), **{p.var: p.extent for p in plan.nest.loops}, var: plan.rest}
    return substitute_body(tuple(_cut_loops(s, var, plan.rest) for s in body), {var: simplify_index(Var(var) + plan.here)}, around)


def cut_nest(ctx: Context, nest: SingleNest, target: Path, here: Expr) -> tuple[Program, InstanceMap, int, tuple[str, ...]]:
    """The program with the nest cut before iteration ``here`` of a loop that indexes its result; how many statements come behind, and what resets are written out."""
    loop = ctx.loop(target)
    assert loop is not None
    plan = _Plan(nest, target, loop, "half", here, 0)
    stmt = ctx.stmt(nest.path)
    assert stmt is not None
    copy = second_copy(ctx, nest.path, resets=True)
    behind = _second(ctx, plan, copy.body)
    child = replace_at(ctx.program, nest.path, _cut_loops(stmt, loop.var, here), *behind)
    owner, n = nest.path[:-1], nest.path[-1]

    def back(p: Path) -> Path | None:
        if p[: len(owner)] != owner or p[len(owner)] <= n:
            return p
        k = p[len(owner)] - len(behind)
        return None if k <= n else (*owner, k, *p[len(owner) + 1 :])

    entries = instance_map(ctx.program, child, back, lambda _: {}).entries
    more = copy_entries(ctx.program, copy, lambda p: (*owner, n + 1 + p[0], *p[1:]), {loop.var: simplify_index(Var(loop.var) + here)})
    return child, InstanceMap((*entries, *more)), len(behind), copy.resets


def _forward(ctx: Context, plan: _Plan, added: int) -> Forwarding:
    owner, n = plan.nest.path[:-1], plan.nest.path[-1]
    moves: list[tuple[Path, Path | None]] = [((*owner, k), (*owner, k + added)) for k in range(n + 1, len(body_at(ctx.program, owner)))]
    return Forwarding(tuple(moves))


def _cut_facts(ctx: Context, plan: _Plan) -> list[Fact]:
    first, second = ctx.value(plan.here), ctx.value(plan.rest)
    assert first is not None
    assert second is not None
    return [fact("axis_cut", "child", loop=plan.loop.var, at=path_text(plan.target), first=first, second=second)]


def _outputs(ctx: Context) -> Fact:
    return fact("same_operations", "dependence", buffers=tuple(b.name for b in ctx.program.outputs))


def _halves(ctx: Context, plan: _Plan) -> Outcome:
    child, instances, added, resets = cut_nest(ctx, plan.nest, plan.target, plan.here)
    facts = [*_cut_facts(ctx, plan), *(fact("reset_written", "child", buffer=b) for b in resets), _outputs(ctx)]
    undo = (Site.of("tensor_concat_to_fuse_operators", plan.nest.path, at=place_param(plan.target)),)
    return Applied(child, Exactness.BITWISE, tuple(facts), instances, _forward(ctx, plan, added), undo)


def _two_tensors(ctx: Context, plan: _Plan) -> Outcome:
    program, old, dim = ctx.program, buffer_table(ctx.program)[plan.nest.store.buffer], plan.dim
    assert dim is not None
    first, second = ctx.fresh_global(f"{old.name}0", f"{old.name}1")
    stmt = ctx.stmt(plan.nest.path)
    assert stmt is not None
    behind = _second(ctx, plan, (stmt,))
    owner, n = plan.nest.path[:-1], plan.nest.path[-1]
    child = replace_at(program, plan.nest.path, _cut_loops(stmt, plan.loop.var, plan.here), *behind)

    def read(expr: Expr) -> Expr:
        def leave(e: Expr) -> Expr:
            if not (isinstance(e, Load) and e.buffer == old.name):
                return e
            upper = e.indices in uppers
            moved = simplify_index(e.indices[dim] - plan.here) if upper else e.indices[dim]
            return Load(second if upper else first, (*e.indices[:dim], moved, *e.indices[dim + 1 :]), e.type)

        return map_expr(expr, leave)

    uppers = set()
    for a in reads_of(program).get(old.name, ()):
        span = span_of([(a.indices[dim], inner_loops(a.met, 0))])
        if span is not None and not _less(ctx, span.base, plan.here):
            uppers.add(a.indices)
    child = map_program_exprs(child, read)
    child = _retarget(child, (*owner, n), first, None)
    child = _retarget(child, (*owner, n + 1), second, (dim, plan.here))
    home = declaring_path(program, old.name)
    lower = replace(old, name=first, shape=(*old.shape[:dim], plan.here, *old.shape[dim + 1 :]))
    upper_part = replace(old, name=second, shape=(*old.shape[:dim], simplify_index(old.shape[dim] - plan.here), *old.shape[dim + 1 :]))
    holder = ctx.loop(home)
    kept = tuple(x for b in (program.tmps if holder is None else holder.tmps) for x in ((lower, upper_part) if b.name == old.name else (b,)))
    child = replace_body(child, home, body_at(child, home), kept)
    facts = [*_cut_facts(ctx, plan), fact("tensor_cut", "child", buffer=old.name, lower=first, upper=second)]
    facts += [_added(ctx, b) for b in (lower, upper_part)]
    facts += [fact("buffer_removed", "child", name=old.name, dtype=str(old.dtype), elements=math.prod(shape_of(old.shape, program))), _outputs(ctx)]
    return Applied(child, Exactness.BITWISE, tuple(facts), None, _forward(ctx, plan, 1))


def _retarget(program: Program, path: Path, name: str, shift: tuple[int, Expr] | None) -> Program:
    """The store of the nest at ``path`` goes to ``name``, ``shift`` elements further down in a dimension."""

    def one(stmt: Stmt) -> Stmt:
        if not isinstance(stmt, Store):
            return replace(stmt, body=tuple(one(s) for s in stmt.body))
        indices = stmt.indices if shift is None else tuple(simplify_index(i - shift[1]) if d == shift[0] else i for d, i in enumerate(stmt.indices))
        return replace(stmt, buffer=name, indices=indices)

    return replace_at(program, path, one(body_at(program, path[:-1])[path[-1]]))


def _added(ctx: Context, buffer: Buffer) -> Fact:
    return fact("buffer_added", "child", name=buffer.name, dtype=str(buffer.dtype), elements=math.prod(shape_of(buffer.shape, ctx.program)))


def _partial(ctx: Context, plan: _Plan) -> Outcome:
    program, store = ctx.program, plan.nest.store
    old, reduce = buffer_table(program)[store.buffer], store.reduce
    assert reduce is not None
    dims = [p for p in plan.nest.loops if p.var in _indexing(store)]
    names = ctx.fresh_global(f"{old.name}p", f"{old.name}q")
    parts = [Buffer(name, old.dtype, tuple(p.extent for p in dims)) for name in names]
    places = tuple(Var(p.var) for p in dims)
    stmt = ctx.stmt(plan.nest.path)
    assert stmt is not None
    nests = [_cut_loops(_into(stmt, parts[0].name, places), plan.loop.var, plan.here), *_second(ctx, plan, (_into(stmt, parts[1].name, places),))]
    combined: list[Stmt] = [replace(store, value=identity_of(reduce, old.dtype), reduce=None, carry=False)]
    combined += [replace(store, value=Load(b.name, places, b.dtype), carry=True) for b in parts]
    gone = plan.nest.vars - {p.var for p in dims}
    conds = [c for p in plan.nest.owners if isinstance(p, If) for c in conjuncts(p.cond) if not free_vars(c) & gone]
    body = tuple(combined)
    for cond in reversed(conds):
        body = (If(simplify_cond(cond), body),)
    for p in reversed(dims):
        body = (Loop(p.var, p.extent, body, p.kind),)
    child = replace_at(program, plan.nest.path, *nests, *body)
    around = ctx.enclosing_loops(plan.nest.path)
    home: Path = around[-1][0] if around else ()
    holder = ctx.loop(home)
    child = replace_body(child, home, body_at(child, home), (*(program.tmps if holder is None else holder.tmps), *parts))
    free = reduce not in ("+", "*") or old.dtype is DType.BOOL or old.dtype.is_int
    facts = [*_cut_facts(ctx, plan), fact("partial_results", "child", buffer=old.name, lower=parts[0].name, upper=parts[1].name, reduce=reduce)]
    facts += [_added(ctx, b) for b in parts]
    if free:
        facts.append(fact("order_free", "rule", buffer=old.name, reduce=reduce, dtype=str(old.dtype)))
    else:
        facts.append(fact("order_changed", "dependence", buffer=old.name, reduce=reduce))
    moves = _forward(ctx, plan, 1 + len(body)).moves
    return Applied(child, Exactness.BITWISE if free else Exactness.REASSOCIATED, tuple(facts), None, Forwarding(moves))


def _into(stmt: Stmt, name: str, places: tuple[Expr, ...]) -> Stmt:
    if isinstance(stmt, Store):
        return replace(stmt, buffer=name, indices=places)
    return replace(stmt, body=tuple(_into(s, name, places) for s in stmt.body))


STRATEGY = TensorSplit()
