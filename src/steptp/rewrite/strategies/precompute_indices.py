"""Look an index up in a table that is computed once: ``X[f//K]`` becomes ``X[idx[f]]``."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from steptp.analysis.intervals import Interval, interval, loop_intervals, narrow, value_ranges
from steptp.ir import Buffer, DType, Expr, Load, Loop, Op, Path, Store, Var, print_expr
from steptp.ir.nodes import Stmt
from steptp.ir.sizes import eval_index, shape_of
from steptp.ir.walk import buffer_table, free_vars, loads, map_expr, replace_at, subexprs
from steptp.rewrite.base import Applied, Exactness, Family, Forwarding, NotApplicable, Outcome, Site, Strategy
from steptp.rewrite.context import Context, path_text
from steptp.rewrite.exprs import Place, children, expr_at, parse_place, place_param, place_text
from steptp.rewrite.fact_kinds import fact
from steptp.rewrite.strategies.compute_inline import MAX_NODES
from steptp.rewrite.strategies.expression_splitting import before_insertion
from steptp.rewrite.tools import instance_map, lower_bound

__all__ = ["PrecomputeIndices", "STRATEGY"]

MAX_ELEMENTS = 1 << 20
_COSTLY = frozenset({"//", "%", "max", "min", "abs", "select"})


@dataclass(frozen=True, slots=True)
class _Plan:
    """The expression, the loops that it depends on (outermost first), the table's read in its place, the new store, and what the store reads by look-ups."""

    expr: Expr
    loops: tuple[Loop, ...]
    entry: Load
    changed: Store
    reads: tuple[tuple[str, int], ...]


class PrecomputeIndices(Strategy):
    """Site: path of a store, ``at`` = place of an index expression in the value that it stores.

    The table is a temporary of the whole program, filled before everything else, with one dimension for each loop that the expression depends on. The
    value reads it wherever the expression stood, in indices and in the conditions that keep them in bounds. The table holds ``i64``, as indices are, so it is
    right at every re-binding of sizes. Where the store writes stays as it is: a store through a look-up could not be shown to hit every element once.
    """

    name = "precompute_indices"
    family = Family.MEMORY
    classes = (Exactness.BITWISE,)
    summary = "look an index expression up in a table that is computed once"

    def sites(self, ctx: Context) -> Iterator[Site]:
        seen: set[tuple[Path, Expr]] = set()
        for path, store, place, expr in ctx.values:
            if not isinstance(expr, Op) or expr.dtype is not DType.I64 or len(place) < 2 or (path, expr) in seen:
                continue
            if not isinstance(_plan(ctx, path, store, place), NotApplicable):
                seen.add((path, expr))
                yield Site.of(self.name, path, at=place_param(place))

    def apply(self, ctx: Context, site: Site) -> Outcome:
        params = dict(site.params)
        store, place = ctx.stmt(site.path), parse_place(params.get("at", ""))
        if not isinstance(store, Store) or place is None or set(params) != {"at"}:
            return NotApplicable("bad-site", "precompute_indices takes the path of a store and at=<place of an index expression>")
        plan = _plan(ctx, site.path, store, place)
        return plan if isinstance(plan, NotApplicable) else _apply(ctx, site.path, plan)


def _plan(ctx: Context, path: Path, store: Store, place: Place) -> _Plan | NotApplicable:
    expr = expr_at(store, place)
    if expr is None or place[0] != len(store.indices):
        return NotApplicable("no-such-expression", f"the value stored at {path_text(path)} has no expression at {place_text(place)}")
    if not any(isinstance(expr_at(store, place[:n]), Load) for n in range(1, len(place))):
        return NotApplicable("not-an-index", f"`{print_expr(expr)}` is not part of an index of a read")
    if any(loads(expr)):
        return NotApplicable("reads-memory", f"`{print_expr(expr)}` reads memory, so its values are not known before the program runs")
    if not isinstance(expr, Op) or not free_vars(expr):
        return NotApplicable("trivial", f"`{print_expr(expr)}` is not worth a table")
    around = [loop for _, loop in ctx.enclosing_loops(path)]
    loops = tuple(loop for loop in around if loop.var in free_vars(expr))
    whole = isinstance(expr_at(store, place[:-1]), Load)
    if expr.name not in _COSTLY and not (whole and (len(loops) > 1 or any(isinstance(e, Op) and e.name in _COSTLY for e in subexprs(expr)))):
        return NotApplicable("trivial", f"`{print_expr(expr)}` is as cheap to compute as to look up")
    for loop in loops:
        if free_vars(loop.extent):
            return NotApplicable("extent-varies", f"{loop.var} runs {print_expr(loop.extent, DType.I64)} times, which varies, so the table would have no shape")
        if (low := lower_bound(loop.extent)) is None or low < 0:
            return NotApplicable("extent-sign", f"at other sizes {print_expr(loop.extent, DType.I64)} may be negative, and a table cannot have such a shape")
    elements = math.prod(shape_of(tuple(loop.extent for loop in loops), ctx.program))
    if not 1 <= elements <= MAX_ELEMENTS:
        return NotApplicable("table-size", f"the table would have {elements} elements; it holds 1 to {MAX_ELEMENTS}")
    (name,) = ctx.fresh_global("idx")
    entry = Load(name, tuple(Var(loop.var) for loop in loops), DType.I64)
    changed = replace(store, value=map_expr(store.value, lambda e: entry if e == expr else e))
    reads = tuple(dict.fromkeys((e.buffer, d) for e in loads(changed.value) for d, index in enumerate(e.indices) if _looks_up(index, name)))
    return _unsafe(ctx, path, expr, changed, name) or _Plan(expr, loops, entry, changed, reads)


def _looks_up(index: Expr, name: str) -> bool:
    return any(e.buffer == name for e in loads(index))


def _unsafe(ctx: Context, path: Path, expr: Expr, changed: Store, name: str) -> NotApplicable | None:
    """Why a look-up could not be shown to be in bounds or to read what was written: all that is known of a table is the range of its values."""
    table = buffer_table(ctx.program)
    env = loop_intervals([(loop.var, loop.extent) for _, loop in ctx.enclosing_loops(path)], ctx.env)
    held = interval(expr, env, ctx.env)
    ranges = {**value_ranges(ctx.program), **({name: held} if held is not None else {})}
    for read, known in _conditioned(ctx, changed.value, env, ranges, {}):
        for dim, index in enumerate(read.indices):
            if not _looks_up(index, name):
                continue
            size = shape_of(table[read.buffer].shape, ctx.program)[dim]
            span = interval(index, env, ctx.env, ranges, known)
            if span is None or span[0] < 0 or span[1] >= size:
                values = "any value" if span is None else f"{span[0]} to {span[1]}"
                return NotApplicable(
                    "bounds", f"index {dim} of {read.buffer}, looked up, can be {values} by its range alone, which leaves the {size} elements there"
                )
            if table[read.buffer] not in ctx.program.inputs and (problem := _maybe_unwritten(ctx, path, read.buffer)) is not None:
                return problem
    return None


def _conditioned(
    ctx: Context, expr: Expr, env: Mapping[str, Interval], ranges: Mapping[str, Interval], known: dict[Expr, Interval]
) -> Iterator[tuple[Load, dict[Expr, Interval]]]:
    """Every read with what the conditions around it bound."""
    if isinstance(expr, Load):
        yield expr, known
    parts = [(e, known) for e in children(expr)]
    if isinstance(expr, Op) and expr.name in ("select", "and", "or"):
        sides = [narrow(expr.args[0], holds, env, ctx.env, ranges, known) for holds in (True, False)]
        parts[1] = (parts[1][0], sides[expr.name == "or"])
        if expr.name == "select":
            parts[2] = (parts[2][0], sides[1])
    for part, bounds in parts:
        yield from _conditioned(ctx, part, env, ranges, bounds)


def _maybe_unwritten(ctx: Context, path: Path, buffer: str) -> NotApplicable | None:
    """A look-up may read any element, so all of them must have been written by a nest before, and none may be written in this one."""
    size = shape_of(buffer_table(ctx.program)[buffer].shape, ctx.program)
    whole = False
    for p, s in ctx.stores:
        if s.buffer != buffer:
            continue
        if p[:1] == path[:1]:
            return NotApplicable("written-here", f"{buffer} is written in the same nest, where a look-up could not be told from what was written before")
        extents = {loop.var: ctx.value(loop.extent) for _, loop in ctx.enclosing_loops(p)}
        full = all(isinstance(i, Var) and extents.get(i.name) == n for i, n in zip(s.indices, size, strict=True))
        whole |= p < path and full and len(set(s.indices)) == len(size) and not ctx.guards_around(p) and 0 not in extents.values()
    return None if whole else NotApplicable("undefined", f"no nest before writes all of {buffer}, and a look-up may read any element of it")


def _apply(ctx: Context, path: Path, plan: _Plan) -> Outcome:
    name, table = plan.entry.buffer, buffer_table(ctx.program)
    nest: Stmt = Store(name, plan.entry.indices, plan.expr)
    for loop in reversed(plan.loops):
        nest = Loop(loop.var, loop.extent, (nest,))
    made = Buffer(name, DType.I64, tuple(loop.extent for loop in plan.loops))
    child = replace_at(ctx.program, path, plan.changed)
    child = child.with_(body=(nest, *child.body), tmps=(*child.tmps, made))
    elements = math.prod(shape_of(made.shape, child))
    return Applied(
        child,
        Exactness.BITWISE,
        (
            fact("pure_index", "parent", text=print_expr(plan.expr), at=path_text(path), loops=tuple(loop.var for loop in plan.loops)),
            fact("named", "child", name=name, text=print_expr(plan.expr)),
            fact("buffer_added", "child", name=name, dtype="i64", elements=elements),
            *(fact("index_inside", "parent", buffer=b, dim=d, extent=shape_of(table[b].shape, ctx.program)[d]) for b, d in plan.reads),
            fact("table_reused", "child", name=name, elements=elements, reads=_times(ctx, path) * _uses(plan)),
        ),
        instance_map(ctx.program, child, lambda p: before_insertion(p, (0,)), lambda _: {}),
        Forwarding(tuple(((n,), (n + 1,)) for n in range(len(ctx.program.body)))),
        _inverse((path[0] + 1, *path[1:]), plan),
    )


def _uses(plan: _Plan) -> int:
    return sum(e == plan.entry for e in subexprs(plan.changed.value))


def _times(ctx: Context, path: Path) -> int:
    """How often the store at ``path`` runs, guards not counted."""

    def count(loops: tuple[Loop, ...], env: dict[str, int]) -> int:
        if not loops:
            return 1
        trips = max(eval_index(loops[0].extent, env), 0)
        if not any(loops[0].var in free_vars(loop.extent) for loop in loops[1:]):
            return trips * count(loops[1:], env) if trips else 0
        return sum(count(loops[1:], {**env, loops[0].var: n}) for n in range(trips))

    return count(tuple(loop for _, loop in ctx.enclosing_loops(path)), dict(ctx.env))


def _inverse(consumer: Path, plan: _Plan) -> tuple[Site, ...]:
    """Compute the index where it is used again, then drop the table."""
    if sum(1 for _ in subexprs(plan.changed.value)) + _uses(plan) * sum(1 for _ in subexprs(plan.expr)) > MAX_NODES:
        return ()
    producer, name = (0,) * (len(plan.loops) + 1), plan.entry.buffer
    return Site.of("compute_inline", consumer, buffer=name), Site.of("dead_code_elimination", producer, buffer=name)


STRATEGY = PrecomputeIndices()
