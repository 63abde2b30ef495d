"""Name a sub-expression: a scalar in the loop around, or a temporary computed by a nest of its own."""

from __future__ import annotations

import math
from collections.abc import Iterator

from steptp.ir import Buffer, DType, Expr, Load, Loop, LoopKind, Op, Path, Scope, Store, Var, print_expr
from steptp.ir.nodes import Cast, Stmt
from steptp.ir.sizes import shape_of
from steptp.ir.walk import body_at, free_vars, loads, replace_at, replace_body, subexprs
from steptp.rewrite.base import Applied, Exactness, Family, Forwarding, NotApplicable, Outcome, Site, Strategy
from steptp.rewrite.context import Context, path_text
from steptp.rewrite.exprs import Place, expr_at, exprs_of, parse_place, place_param, place_text, replace_expr_at
from steptp.rewrite.fact_kinds import fact
from steptp.rewrite.strategies.compute_inline import MAX_NODES, may_be_overwritten, reads_through
from steptp.rewrite.tools import instance_map

__all__ = ["ExpressionSplitting", "STRATEGY", "before_insertion", "bounds_problem", "conditional", "free_index"]

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
                if (len(place) == 1 and store.reduce is None) or conditional(store, place) or any(free_index(store, place)):
                    continue
                if bounds_problem(ctx, path, store, place) is not None:
                    continue
                for into in ("scalar", "tensor"):
                    refused = _scalar_problem(ctx, path) if into == "scalar" else _tensor_problem(ctx, path, expr)
                    if refused is None:
                        yield Site.of(self.name, path, at=place_param(place), into=into)

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
        if (problem := bounds_problem(ctx, site.path, store, place)) is not None:
            return problem
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


def bounds_problem(ctx: Context, path: Path, store: Store, place: Place) -> NotApplicable | None:
    """Whether the place lies in a condition on integers without which a read that it guards might leave its array: named, it would no longer show."""
    expr = expr_at(store, place)
    assert expr is not None
    if not expr.dtype.is_int and not any(isinstance(e, Op) and e.dtype is DType.BOOL and e.args[0].dtype.is_int for e in subexprs(expr)):
        return None
    for n in range(1, len(place)):
        above = expr_at(store, place[:n])
        if isinstance(above, Op) and above.name in ("select", "and", "or") and place[n] == 0:
            for read in (e for arg in above.args[1:] for e in loads(arg)):
                if not _surely_inside(ctx, path, read):
                    text = print_expr(expr, expr.dtype)
                    return NotApplicable("bounds", f"`{text}` keeps the index of {print_expr(read)} in bounds, which a temporary would hide")
    return None


def _surely_inside(ctx: Context, path: Path, read: Load) -> bool:
    st = ctx.model.at(path)
    spans = [st.index_bounds(index) for index in read.indices]
    shape = ctx.model.declarations[read.buffer].shape
    return all(span is not None and span[0] >= 0 and span[1] < size for span, size in zip(spans, shape, strict=True))


def _scalar_problem(ctx: Context, path: Path) -> NotApplicable | None:
    around = ctx.enclosing_loops(path)
    if not around:
        return NotApplicable("outermost", "no loop around the store could hold the scalar")
    if around[-1][1].kind is LoopKind.VECTOR:
        return NotApplicable("vector", f"{around[-1][1].var} is a vector loop, whose lanes cannot share a scalar")
    return None


def _scalar(ctx: Context, site: Site, store: Store, place: Place, expr: Expr) -> Outcome:
    path = site.path
    if (problem := _scalar_problem(ctx, path)) is not None:
        return problem
    home, holder = ctx.enclosing_loops(path)[-1]
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
        instance_map(ctx.program, child, lambda p: before_insertion(p, path), lambda _: {}) if reads_through(ctx, path, first, child) else None,
        Forwarding(((path, (*owner, n + 1)), *(((*owner, k), (*owner, k + 1)) for k in range(n + 1, len(body))))),
        () if may_be_overwritten(ctx, path, first) else _undo((*owner, n + 1), path, name, store, expr),
    )


def before_insertion(path: Path, new: Path) -> Path | None:
    """Where a statement of the child stood before one was inserted at ``new``; ``None`` for that one."""
    if path[: len(new)] == new:
        return None
    n = len(new) - 1
    return (*path[:n], path[n] - 1, *path[n + 1 :]) if path[:n] == new[:n] and path[n] > new[n] else path


def _undo(consumer: Path, producer: Path, name: str, store: Store, expr: Expr) -> tuple[Site, ...]:
    if sum(1 for _ in subexprs(store.value)) + 1 + sum(1 for e in loads(expr) for _ in e.indices) + len(store.indices) > MAX_NODES:
        return ()
    return Site.of("compute_inline", consumer, buffer=name), Site.of("dead_code_elimination", producer, buffer=name)


def _tensor_problem(ctx: Context, path: Path, expr: Expr) -> NotApplicable | None:
    loops = [loop for _, loop in ctx.enclosing_loops(path)]
    if ctx.guards_around(path):
        return NotApplicable("guarded", "the store is guarded, so the expression is not evaluated everywhere")
    if not loops:
        return NotApplicable("outermost", "the store stands in no loop")
    names = free_vars(expr)
    for loop in loops:
        if free_vars(loop.extent):
            return NotApplicable("extent-varies", f"{loop.var} runs {print_expr(loop.extent)} times, which varies")
        if loop.var not in names and (ctx.value(loop.extent) or 0) < 1:
            return NotApplicable(
                "never", f"{loop.var} runs {print_expr(loop.extent)} times, which is none at the present sizes, so the expression is never evaluated"
            )
    if not names:
        return NotApplicable("constant", "the expression does not depend on a loop")
    read, top = {e.buffer for e in loads(expr)}, path[:1]
    if private := sorted(read & {b.name for _, loop in ctx.loops_under(top) for b in loop.tmps}):
        return NotApplicable("private", f"{private[0]} exists only inside the nest")
    if written := sorted(read & {s.buffer for _, s in ctx.stores_under(top)}):
        return NotApplicable("written", f"{written[0]} is written in the same nest")
    elements = math.prod(shape_of(tuple(loop.extent for loop in loops if loop.var in names), ctx.program))
    return NotApplicable("too-big", f"the temporary would have {elements} elements, more than {MAX_ELEMENTS}") if elements > MAX_ELEMENTS else None


def _tensor(ctx: Context, site: Site, store: Store, place: Place, expr: Expr) -> Outcome:
    path, top = site.path, site.path[:1]
    if (problem := _tensor_problem(ctx, path, expr)) is not None:
        return problem
    names = free_vars(expr)
    used = [loop for _, loop in ctx.enclosing_loops(path) if loop.var in names]
    shape = tuple(loop.extent for loop in used)
    (name,) = ctx.fresh_global("t")
    nest_store = Store(name, tuple(Var(loop.var) for loop in used), expr)
    nest: Stmt = nest_store
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
            fact("buffer_added", "child", name=name, dtype=str(expr.dtype), elements=math.prod(shape_of(shape, ctx.program))),
            fact("not_written_in", "parent", buffers=tuple(sorted({e.buffer for e in loads(expr)})), at=path_text(top)),
        ),
        instance_map(ctx.program, child, lambda p: before_insertion(p, top), lambda _: {}),
        Forwarding(tuple(((k,), (k + 1,)) for k in range(top[0], len(body)))),
        () if may_be_overwritten(ctx, path, nest_store) else _undo((path[0] + 1, *path[1:]), (*top, *(0,) * len(used)), name, store, expr),
    )


STRATEGY = ExpressionSplitting()
