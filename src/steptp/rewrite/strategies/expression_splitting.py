"""Name a sub-expression: a scalar in the loop around, or a temporary computed by a nest of its own."""

from __future__ import annotations

from collections.abc import Iterator

from steptp.ir import Buffer, Expr, If, Load, Loop, LoopKind, Op, Path, Scope, Store, Var, print_expr
from steptp.ir.nodes import Cast, Stmt
from steptp.ir.sizes import shape_of
from steptp.ir.walk import body_at, enclosing, free_vars, loads, replace_at, replace_body
from steptp.rewrite.base import Applied, Exactness, Family, Forwarding, NotApplicable, Outcome, Site, Strategy
from steptp.rewrite.context import Context, path_text
from steptp.rewrite.exprs import Place, expr_at, exprs_of, parse_place, place_text, replace_expr_at
from steptp.rewrite.fact_kinds import fact

__all__ = ["ExpressionSplitting", "STRATEGY", "conditional", "free_index"]

MAX_ELEMENTS = 1 << 24


class ExpressionSplitting(Strategy):
    """Site: path of a store, ``at`` = place of the sub-expression, ``into=scalar`` or ``into=tensor``."""

    name = "expression_splitting"
    family = Family.GRAPH
    classes = (Exactness.BITWISE,)
    summary = "compute a sub-expression into a temporary of its own"

    def sites(self, ctx: Context) -> Iterator[Site]:
        for path, store in ctx.stores:
            for place, expr in exprs_of(store):
                if place[0] != len(store.indices) or not isinstance(expr, (Op, Cast)) or not any(loads(expr)):
                    continue
                if len(place) == 1 and store.reduce is None:
                    continue
                for into in ("scalar", "tensor"):
                    site = Site.of(self.name, path, at=place_text(place), into=into)
                    if isinstance(self.apply(ctx, site), Applied):
                        yield site

    def apply(self, ctx: Context, site: Site) -> Outcome:
        params = dict(site.params)
        store, place = ctx.stmt(site.path), parse_place(params.get("at", ""))
        if not isinstance(store, Store) or place is None or set(params) != {"at", "into"} or params["into"] not in ("scalar", "tensor"):
            return NotApplicable("bad-site", "expression_splitting takes the path of a store, at=<place of an expression> and into=scalar or into=tensor")
        expr = expr_at(store, place)
        if expr is None or place[0] != len(store.indices):
            return NotApplicable("no-such-expression", f"the value stored at {path_text(site.path)} has no expression at {place_text(place)}")
        if not isinstance(expr, (Op, Cast)) or not any(loads(expr)):
            return NotApplicable("trivial", f"`{print_expr(expr)}` is not worth a temporary")
        if len(place) == 1 and store.reduce is None:
            return NotApplicable("whole", "the whole value of an assignment is computed into its target already")
        if conditional(store, place):
            return NotApplicable("conditional", f"`{print_expr(expr)}` is evaluated under a condition only")
        if any(free_index(store, place)):
            return NotApplicable("index", f"`{print_expr(expr)}` is part of an index")
        return _scalar(ctx, site, store, place, expr) if params["into"] == "scalar" else _tensor(ctx, site, store, place, expr)


def free_index(store: Store, place: Place) -> Iterator[bool]:
    """True for every read whose index the place lies in."""
    for n in range(1, len(place)):
        yield isinstance(expr_at(store, place[:n]), Load)


def conditional(store: Store, place: Place) -> bool:
    """Whether the place is on a side of a ``select``, or on the right of ``and`` or ``or``: evaluated only sometimes."""
    for n in range(1, len(place)):
        above = expr_at(store, place[:n])
        if isinstance(above, Op) and ((above.name == "select" and place[n] > 0) or (above.name in ("and", "or") and place[n] == 1)):
            return True
    return False


def _scalar(ctx: Context, site: Site, store: Store, place: Place, expr: Expr) -> Outcome:
    path = site.path
    around = ctx.enclosing_loops(path)
    if not around:
        return NotApplicable("outermost", "no loop around the store could hold the scalar")
    home, holder = around[-1]
    if holder.kind is LoopKind.VECTOR:
        return NotApplicable("vector", f"{holder.var} is a vector loop, whose lanes cannot share a scalar")
    (name,) = ctx.fresh_global("t")
    owner, n = path[:-1], path[-1]
    body = body_at(ctx.program, owner)
    first = Store(name, (), expr)
    second = replace_expr_at(store, place, Load(name, (), expr.dtype))
    child = replace_body(ctx.program, owner, (*body[:n], first, second, *body[n + 1 :]))
    child = replace_body(child, home, body_at(child, home), (*holder.tmps, Buffer(name, expr.dtype, (), Scope.LOCAL)))
    return Applied(
        child,
        Exactness.BITWISE,
        (
            fact("named", "child", name=name, text=print_expr(expr)),
            fact("buffer_added", "child", name=name, dtype=str(expr.dtype), elements=1),
        ),
        None,
        Forwarding(((path, (*owner, n + 1)), *(((*owner, k), (*owner, k + 1)) for k in range(n + 1, len(body))))),
    )


def _tensor(ctx: Context, site: Site, store: Store, place: Place, expr: Expr) -> Outcome:
    path = site.path
    around = enclosing(ctx.program, path)
    if any(isinstance(p, If) for p in around):
        return NotApplicable("guarded", "the store is guarded, so the expression is not evaluated everywhere")
    loops = [p for p in around if isinstance(p, Loop)]
    if not loops:
        return NotApplicable("outermost", "the store stands in no loop")
    top = path[:1]
    used = [loop for loop in loops if loop.var in free_vars(expr)]
    names = {loop.var for loop in loops}
    if free_vars(expr) - names:
        return NotApplicable("scope", "the expression depends on something declared inside")
    for loop in used:
        if free_vars(loop.extent):
            return NotApplicable("extent-varies", f"{loop.var} runs {print_expr(loop.extent)} times, which varies")
    if not used:
        return NotApplicable("constant", "the expression does not depend on a loop")
    written = {s.buffer for _, s in ctx.stores_under(top)}
    private = {b.name for _, loop in ctx.loops_under(top) for b in loop.tmps}
    for load in loads(expr):
        if load.buffer in private:
            return NotApplicable("private", f"{load.buffer} exists only inside the nest")
        if load.buffer in written:
            return NotApplicable("written", f"{load.buffer} is written in the same nest")
    shape = tuple(loop.extent for loop in used)
    (name,) = ctx.fresh_global("t")
    elements = 1
    for extent in shape_of(shape, ctx.program):
        elements *= extent
    if elements > MAX_ELEMENTS:
        return NotApplicable("too-big", f"the temporary would have {elements} elements")
    nest: Stmt = Store(name, tuple(Var(loop.var) for loop in used), expr)
    for loop in reversed(used):
        nest = Loop(loop.var, loop.extent, (nest,))
    second = replace_expr_at(store, place, Load(name, tuple(Var(loop.var) for loop in used), expr.dtype))
    child = replace_at(ctx.program, path, second)
    body = child.body
    child = child.with_(body=(*body[: top[0]], nest, *body[top[0] :]), tmps=(*child.tmps, Buffer(name, expr.dtype, shape)))
    return Applied(
        child,
        Exactness.BITWISE,
        (
            fact("named", "child", name=name, text=print_expr(expr)),
            fact("buffer_added", "child", name=name, dtype=str(expr.dtype), elements=elements),
            fact("not_written_in", "parent", buffers=tuple(sorted({e.buffer for e in loads(expr)})), at=path_text(top)),
        ),
        None,
        Forwarding(tuple(((k,), (k + 1,)) for k in range(top[0], len(body)))),
        (Site.of("compute_inline", (path[0] + 1, *path[1:]), buffer=name), Site.of("dead_code_elimination", _store_path(top, len(used)), buffer=name)),
    )


def _store_path(top: Path, depth: int) -> Path:
    return (*top, *(0,) * depth)


STRATEGY = ExpressionSplitting()
