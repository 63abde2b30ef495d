"""Hoist an expression out of the loops that it does not depend on: loop-invariant code motion."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from steptp.ir import Buffer, Expr, Load, Loop, LoopKind, Op, Path, Scope, Store, print_expr
from steptp.ir.walk import body_at, declaring_path, free_vars, loads, replace_at, replace_body, subexprs
from steptp.rewrite.base import Applied, Exactness, Family, Forwarding, NotApplicable, Outcome, Site, Strategy
from steptp.rewrite.context import Context, path_text
from steptp.rewrite.exprs import Place, expr_at, exprs_of, parse_place, place_param, place_text, replace_expr_at
from steptp.rewrite.fact_kinds import fact
from steptp.rewrite.moving import run_count
from steptp.rewrite.strategies.compute_inline import MAX_NODES, may_be_overwritten, reads_through
from steptp.rewrite.strategies.expression_splitting import before_insertion, conditional, free_index
from steptp.rewrite.tools import instance_map

__all__ = ["LoopInvariantCodeMotion", "STRATEGY"]


@dataclass(frozen=True, slots=True)
class _Plan:
    """``top``: the outermost of the loops that the expression leaves; ``loops``: all of them, outermost first."""

    store: Store
    place: Place
    expr: Expr
    top: Path
    loops: tuple[Loop, ...]


class LoopInvariantCodeMotion(Strategy):
    """Site: path of a store, ``at`` = place of the expression, ``out`` = how many of the innermost loops it leaves.

    A scalar in front of these loops holds the value. Listed are the largest expressions that leave a loop, as far out as they can go.
    """

    name = "loop_invariant_code_motion"
    family = Family.GRAPH
    classes = (Exactness.BITWISE,)
    summary = "compute an expression once in front of the loops that it does not depend on"

    def sites(self, ctx: Context) -> Iterator[Site]:
        for path, store in ctx.stores:
            reach: dict[Place, int] = {}
            for place, expr in exprs_of(store):
                reach[place] = out = _reach(ctx, path, store, place, expr)
                if out and out > reach.get(place[:-1], 0):
                    yield Site.of(self.name, path, at=place_param(place), out=out)

    def apply(self, ctx: Context, site: Site) -> Outcome:
        params = dict(site.params)
        store, place, out = ctx.stmt(site.path), parse_place(params.get("at", "")), params.get("out")
        if not isinstance(store, Store) or place is None or not isinstance(out, int) or out < 1 or set(params) != {"at", "out"}:
            return NotApplicable("bad-site", f"{self.name} takes the path of a store, at=<place of an expression> and out=<number of loops>")
        expr = expr_at(store, place)
        if expr is None or place[0] != len(store.indices):
            return NotApplicable("no-such-expression", f"the value stored at {path_text(site.path)} has no expression at {place_text(place)}")
        plan = _plan(ctx, site.path, store, place, expr, out)
        return plan if isinstance(plan, NotApplicable) else _apply(ctx, site.path, plan)


def _reach(ctx: Context, path: Path, store: Store, place: Place, expr: Expr) -> int:
    """The most loops that the expression can leave."""
    if place[0] != len(store.indices) or not isinstance(expr, Op):
        return 0
    best = 0
    for out in range(1, len(ctx.enclosing_loops(path)) + 1):
        if isinstance(_plan(ctx, path, store, place, expr, out), NotApplicable):
            break
        best = out
    return best


def _plan(ctx: Context, path: Path, store: Store, place: Place, expr: Expr, out: int) -> _Plan | NotApplicable:
    around = ctx.enclosing_loops(path)
    text = print_expr(expr, expr.dtype)
    if not isinstance(expr, Op) or not expr.dtype.is_float:
        return NotApplicable("trivial", f"`{text}` is no floating-point operation")
    if out > len(around):
        return NotApplicable("too-far", f"{len(around)} loops stand around the store, not {out}")
    if conditional(store, place):
        return NotApplicable("conditional", f"`{text}` is evaluated under a condition only")
    if any(free_index(store, place)):
        return NotApplicable("index", f"`{text}` is part of an index")
    top, loops = around[-out][0], tuple(loop for _, loop in around[-out:])
    for loop in loops:
        if loop.var in free_vars(expr):
            return NotApplicable("varies", f"`{text}` depends on {loop.var}")
        if (ctx.value(loop.extent) or 0) < 1:
            return NotApplicable("never", f"{loop.var} runs {print_expr(loop.extent)} times, which may be none; then `{text}` is not evaluated now")
    if any(loop.kind.is_bound for _, loop in around):
        return NotApplicable("kernel", "the store belongs to a kernel, where a scalar needs an owner among its blocks and threads")
    if ctx.guards_around(path) != ctx.guards_around(top):
        return NotApplicable("guarded", f"a guard inside of {loops[0].var} decides whether `{text}` is evaluated")
    read = {e.buffer for e in loads(expr)}
    if private := sorted(b for b in read if len(home := declaring_path(ctx.program, b)) >= len(top) and home[: len(top)] == top):
        return NotApplicable("private", f"{private[0]} exists only inside of {loops[0].var}")
    if written := sorted(read & {s.buffer for _, s in ctx.stores_under(top)}):
        return NotApplicable("written", f"{written[0]} is written inside of {loops[0].var}")
    return _Plan(store, place, expr, top, loops)


def _apply(ctx: Context, path: Path, plan: _Plan) -> Applied:
    program, top, expr = ctx.program, plan.top, plan.expr
    (name,) = ctx.fresh_global("t")
    owner, n = top[:-1], top[-1]
    outer = ctx.enclosing_loops(top)
    shared = not outer or any(loop.kind is LoopKind.PARALLEL for loop in plan.loops)
    made = Store(name, (), expr)
    child = replace_at(program, path, replace_expr_at(plan.store, plan.place, Load(name, (), expr.dtype)))
    body = body_at(child, owner)
    child = replace_body(child, owner, (*body[:n], made, *body[n:]))
    home = outer[-1][0] if outer else ()
    holder = ctx.loop(home)
    buffer = Buffer(name, expr.dtype, (), Scope.GLOBAL if shared else Scope.LOCAL)
    child = replace_body(child, home, body_at(child, home), (*(holder.tmps if holder is not None else child.tmps), buffer))
    text = print_expr(expr)
    facts = [
        fact("named", "child", name=name, text=text),
        fact("invariant_over", "parent", text=text, loops=tuple(loop.var for loop in plan.loops), at=path_text(top)),
        fact("buffer_added", "child", name=name, dtype=str(expr.dtype), elements=1),
    ]
    before, after = run_count(program, path), run_count(program, top)
    if before is not None and after is not None:
        facts.append(fact("evaluated", "child", name=name, before=before, after=after))
    return Applied(
        child,
        Exactness.BITWISE,
        tuple(facts),
        instance_map(program, child, lambda p: before_insertion(p, top), lambda _: {}) if reads_through(ctx, top, made, child) else None,
        Forwarding(tuple(((*owner, k), (*owner, k + 1)) for k in range(n, len(body)))),
        _inverse(ctx, path, plan, made),
    )


def _inverse(ctx: Context, path: Path, plan: _Plan, made: Store) -> tuple[Site, ...]:
    nodes = sum(1 for _ in subexprs(plan.store.value)) + 1
    if may_be_overwritten(ctx, plan.top, made) or nodes > MAX_NODES:
        return ()
    owner, n = plan.top[:-1], plan.top[-1]
    consumer = (*owner, n + 1, *path[len(plan.top) :])
    return Site.of("compute_inline", consumer, buffer=made.buffer), Site.of("dead_code_elimination", plan.top, buffer=made.buffer)


STRATEGY = LoopInvariantCodeMotion()
