"""Compute once what is computed twice: an expression in neighbouring stores, or a whole temporary."""

from __future__ import annotations

from collections.abc import Iterator

from steptp.ir import Buffer, Expr, If, Load, Loop, LoopKind, Op, Scope, Store, Var, print_expr
from steptp.ir.nodes import Cast, Stmt
from steptp.ir.walk import all_tmps, body_at, loads, map_expr, map_stmt_exprs, rename_buffer, replace_body, stmt_exprs, subexprs, substitute, visit
from steptp.rewrite.base import Applied, Exactness, Family, Forwarding, NotApplicable, Outcome, Site, Strategy
from steptp.rewrite.context import Context, path_text
from steptp.rewrite.exprs import Place, expr_at, exprs_of, parse_place, place_text
from steptp.rewrite.fact_kinds import fact
from steptp.rewrite.strategies.expression_splitting import conditional, free_index
from steptp.rewrite.tools import buffers_touched

__all__ = ["CommonSubexpressionElimination", "STRATEGY"]


class CommonSubexpressionElimination(Strategy):
    """Site with ``at``: a store and the place of an expression that occurs again in it or in the stores right behind it.

    Site with ``buffer``: path of the nest that computes a temporary which ``other``, an earlier one, holds already.
    """

    name = "common_subexpression_elimination"
    family = Family.GRAPH
    classes = (Exactness.BITWISE,)
    summary = "compute once what is computed twice"

    def sites(self, ctx: Context) -> Iterator[Site]:
        for path, store in ctx.stores:
            seen: set[Expr] = set()
            for place, expr in _always(store):
                if expr in seen or not isinstance(expr, (Op, Cast)) or not any(loads(expr)):
                    continue
                seen.add(expr)
                site = Site.of(self.name, path, at=place_text(place))
                if isinstance(self.apply(ctx, site), Applied):
                    yield site
        names = [b.name for _, b in all_tmps(ctx.program)]
        for n in range(len(ctx.program.body)):
            for other in names:
                for name in names:
                    site = Site.of(self.name, (n,), buffer=name, other=other)
                    if name != other and isinstance(_whole(ctx, site), Applied):
                        yield site

    def apply(self, ctx: Context, site: Site) -> Outcome:
        keys = set(dict(site.params))
        if keys == {"buffer", "other"}:
            return _whole(ctx, site)
        if keys != {"at"}:
            return NotApplicable(
                "bad-site", "common_subexpression_elimination takes at=<place of an expression>, or buffer=<temporary> and other=<earlier temporary>"
            )
        store, place = ctx.stmt(site.path), parse_place(dict(site.params)["at"])
        expr = expr_at(store, place) if isinstance(store, Store) and place else None
        if not isinstance(store, Store) or expr is None or place is None or place[0] != len(store.indices):
            return NotApplicable("no-such-expression", "there is no such expression in the value of a store")
        if not isinstance(expr, (Op, Cast)) or not any(loads(expr)):
            return NotApplicable("trivial", f"`{print_expr(expr)}` is not worth a temporary")
        if not any(e == expr for _, e in _always(store)):
            return NotApplicable("conditional", f"`{print_expr(expr)}` is evaluated under a condition only")
        return _local(ctx, site, expr)


def _local(ctx: Context, site: Site, expr: Expr) -> Outcome:
    path = site.path
    around = ctx.enclosing_loops(path)
    if not around:
        return NotApplicable("outermost", "no loop around the store could hold the scalar")
    home, holder = around[-1]
    if holder.kind is LoopKind.VECTOR:
        return NotApplicable("vector", f"{holder.var} is a vector loop, whose lanes cannot share a scalar")
    owner, n = path[:-1], path[-1]
    body = body_at(ctx.program, owner)
    inputs = {e.buffer for e in loads(expr)}
    covered, count = n, 0
    for k in range(n, len(body)):
        stmt = body[k]
        if not isinstance(stmt, Store):
            break
        here = sum(e == expr for x in (stmt.value,) for e in subexprs(x))
        count += here
        covered = k if here else covered
        if stmt.buffer in inputs:
            break
    if count < 2:
        return NotApplicable("once", f"`{print_expr(expr)}` occurs only once before something it reads changes")
    (name,) = ctx.fresh_global("t")
    scalar = Load(name, (), expr.dtype)

    def swap(e: Expr) -> Expr:
        return map_expr(e, lambda x: scalar if x == expr else x)

    changed = tuple(_in_value(s, swap) if n <= k <= covered else s for k, s in enumerate(body))
    child = replace_body(ctx.program, owner, (*changed[:n], Store(name, (), expr), *changed[n:]))
    child = replace_body(child, home, body_at(child, home), (*holder.tmps, Buffer(name, expr.dtype, (), Scope.LOCAL)))
    return Applied(
        child,
        Exactness.BITWISE,
        (
            fact("named", "child", name=name, text=print_expr(expr)),
            fact("occurs", "parent", text=print_expr(expr), count=count, at=path_text(path)),
            fact("buffer_added", "child", name=name, dtype=str(expr.dtype), elements=1),
        ),
        None,
        Forwarding(tuple(((*owner, k), (*owner, k + 1)) for k in range(n, len(body)))),
    )


def _always(store: Store) -> Iterator[tuple[Place, Expr]]:
    """Places of the value that every execution of the store evaluates, indices apart."""
    for place, expr in exprs_of(store):
        if place[0] == len(store.indices) and not conditional(store, place) and not any(free_index(store, place)):
            yield place, expr


def _in_value(stmt: Stmt, change: object) -> Stmt:
    assert callable(change)
    assert isinstance(stmt, Store)
    return Store(stmt.buffer, stmt.indices, change(stmt.value), stmt.reduce, stmt.carry)


def _whole(ctx: Context, site: Site) -> Outcome:
    """Replace the reads of ``buffer`` by reads of ``other``, which an equal nest computed before."""
    params = dict(site.params)
    name, other = str(params["buffer"]), str(params["other"])
    tmps = {b.name: b for b in ctx.program.tmps}
    if name not in tmps or other not in tmps or name == other:
        return NotApplicable("bad-site", "buffer and other are two temporaries of the program")
    if tmps[name].dtype is not tmps[other].dtype or tmps[name].shape != tmps[other].shape:
        return NotApplicable("shape", f"{name} and {other} differ in dtype or shape")
    nests = {b: [n for n, s in enumerate(ctx.program.body) if b in buffers_touched(s)[1]] for b in (name, other)}
    if any(len(v) != 1 for v in nests.values()) or nests[other][0] >= nests[name][0] or site.path != (nests[name][0],):
        return NotApplicable("writers", f"{other} and {name} are not each computed by one nest, {other} first, {name} at the site")
    first, second = ctx.program.body[nests[other][0]], ctx.program.body[nests[name][0]]
    if not _same_nest(first, second, other, name):
        return NotApplicable("differs", f"{name} and {other} are not computed alike")
    inputs = (buffers_touched(first)[0] | buffers_touched(second)[0]) - {name, other}
    for n in range(nests[other][0], nests[name][0] + 1):
        if bad := buffers_touched(ctx.program.body[n])[1] & inputs:
            return NotApplicable("changed", f"{min(bad)} is written between the two nests")
    rest = ctx.program.body[nests[name][0] + 1 :]
    readers = sum(name in buffers_touched(s)[0] for s in rest)
    if not readers:
        return NotApplicable("not-read", f"nothing reads {name}")
    child = ctx.program.with_(body=(*ctx.program.body[: nests[name][0] + 1], *rename_buffer(rest, name, other)))
    count = sum(e.buffer == name for v in visit(rest) for e in _reads(v.stmt))
    return Applied(
        child,
        Exactness.BITWISE,
        (
            fact("same_value", "parent", buffer=name, other=other, first=path_text((nests[other][0],)), second=path_text((nests[name][0],))),
            fact("reads_renamed", "child", buffer=name, other=other, count=count),
        ),
    )


def _reads(stmt: Stmt) -> Iterator[Load]:
    return (e for x in stmt_exprs(stmt) for e in loads(x))


def _same_nest(first: Stmt, second: Stmt, a: str, b: str) -> bool:
    """Equal up to the names of loops and of the two targets; each writes nothing but its target."""
    if isinstance(first, Loop) and isinstance(second, Loop):
        if first.extent != second.extent or first.kind is not second.kind or first.tmps or second.tmps or len(first.body) != len(second.body):
            return False
        inner = tuple(map_stmt_exprs(s, lambda e: substitute(e, {second.var: Var(first.var)})) for s in second.body) if first.var != second.var else second.body
        return all(_same_nest(x, y, a, b) for x, y in zip(first.body, inner, strict=True))
    if isinstance(first, If) and isinstance(second, If):
        return (
            first.cond == second.cond
            and len(first.body) == len(second.body)
            and all(_same_nest(x, y, a, b) for x, y in zip(first.body, second.body, strict=True))
        )
    if isinstance(first, Store) and isinstance(second, Store):
        alike = (first.indices, first.value, first.reduce, first.carry) == (second.indices, second.value, second.reduce, second.carry)
        return alike and first.buffer == a and second.buffer == b
    return False


STRATEGY = CommonSubexpressionElimination()
