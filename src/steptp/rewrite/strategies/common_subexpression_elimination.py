"""Compute once what is computed twice: an expression in neighbouring stores, or a whole temporary."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from steptp.analysis.expand import pure_definition
from steptp.ir import Buffer, Expr, If, Load, Loop, LoopKind, Op, Path, Scope, Store, Var, print_expr
from steptp.ir.nodes import Cast, Stmt
from steptp.ir.walk import body_at, loads, rename_buffer, replace_body, stmt_exprs, substitute, visit
from steptp.rewrite.base import Applied, Exactness, Family, Forwarding, NotApplicable, Outcome, Site, Strategy
from steptp.rewrite.context import Context, path_text
from steptp.rewrite.exprs import Place, children, expr_at, exprs_of, parse_place, place_param, with_children
from steptp.rewrite.fact_kinds import fact
from steptp.rewrite.strategies.compute_inline import reads_through
from steptp.rewrite.strategies.expression_splitting import before_insertion, bounds_problem, conditional, free_index
from steptp.rewrite.tools import buffers_touched, identity_map, instance_map

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
                if not isinstance(_repeats(ctx, path, expr), NotApplicable):
                    yield Site.of(self.name, path, at=place_param(place))
        nests = _nests(ctx)
        for name, second in nests.items():
            for other, first in nests.items():
                site = Site.of(self.name, (second,), buffer=name, other=other)
                if first < second and not isinstance(_equal_nests(ctx, site), NotApplicable):
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


def _repeats(ctx: Context, path: Path, expr: Expr) -> tuple[int, int] | NotApplicable:
    """How often the expression occurs in the run of stores that starts at ``path``, and the last store that it occurs in."""
    around = ctx.enclosing_loops(path)
    if not around:
        return NotApplicable("outermost", "no loop around the store could hold the scalar")
    if around[-1][1].kind is LoopKind.VECTOR:
        return NotApplicable("vector", f"{around[-1][1].var} is a vector loop, whose lanes cannot share a scalar")
    inputs = {e.buffer for e in loads(expr)}
    last, count = path[-1], 0
    hidden: NotApplicable | None = None
    for k, stmt in enumerate(body_at(ctx.program, path[:-1])[path[-1] :], path[-1]):
        if not isinstance(stmt, Store):
            break
        here = sum(e == expr for e in _outside_indices(stmt.value))
        count += here
        last = k if here else last
        if here and not expr.dtype.is_float:
            where = (*path[:-1], k)
            found = (bounds_problem(ctx, where, stmt, p) for p, e in exprs_of(stmt) if e == expr and p[0] == len(stmt.indices) and not any(free_index(stmt, p)))
            hidden = hidden or next((problem for problem in found if problem is not None), None)
        if stmt.buffer in inputs:
            break
    if count < 2:
        return NotApplicable("once", f"`{print_expr(expr)}` occurs only once before something it reads may change")
    return hidden or (count, last)


def _local(ctx: Context, site: Site, expr: Expr) -> Outcome:
    path = site.path
    found = _repeats(ctx, path, expr)
    if isinstance(found, NotApplicable):
        return found
    count, last = found
    home, holder = ctx.enclosing_loops(path)[-1]
    owner, n = path[:-1], path[-1]
    body = body_at(ctx.program, owner)
    (name,) = ctx.fresh_global("t")
    scalar = Load(name, (), expr.dtype)

    def swap(e: Expr) -> Expr:
        if e == expr:
            return scalar
        if isinstance(e, Load):
            return e
        below = children(e)
        new = tuple(map(swap, below))
        return e if all(a is b for a, b in zip(below, new, strict=True)) else with_children(e, new)

    changed = tuple(replace(s, value=swap(s.value)) if n <= k <= last and isinstance(s, Store) else s for k, s in enumerate(body))
    made = Store(name, (), expr)
    child = replace_body(ctx.program, owner, (*changed[:n], made, *changed[n:]))
    child = replace_body(child, home, body_at(child, home), (*holder.tmps, Buffer(name, expr.dtype, (), Scope.LOCAL)))
    return Applied(
        child,
        Exactness.BITWISE,
        (
            fact("named", "child", name=name, text=print_expr(expr)),
            fact("occurs", "parent", text=print_expr(expr), count=count, at=path_text(path)),
            fact("buffer_added", "child", name=name, dtype=str(expr.dtype), elements=1),
        ),
        instance_map(ctx.program, child, lambda p: before_insertion(p, path), lambda _: {}) if reads_through(ctx, path, made, child) else None,
        Forwarding(tuple(((*owner, k), (*owner, k + 1)) for k in range(n, len(body)))),
    )


def _outside_indices(expr: Expr) -> Iterator[Expr]:
    """The expression and what is below it, but not what indexes a read: bounds of look-ups are proven from their tables."""
    yield expr
    if not isinstance(expr, Load):
        for child in children(expr):
            yield from _outside_indices(child)


def _always(store: Store) -> Iterator[tuple[Place, Expr]]:
    """Places of the value that every execution of the store evaluates, indices apart."""
    for place, expr in exprs_of(store):
        if place[0] == len(store.indices) and not conditional(store, place) and not any(free_index(store, place)):
            yield place, expr


def _nests(ctx: Context) -> dict[str, int]:
    """Temporary of the program → the one statement of the program's body that writes it; in order of those."""
    known = ctx.program._cache.get("cse_nests")
    if not isinstance(known, dict):
        writers: dict[str, set[int]] = {b.name: set() for b in ctx.program.tmps}
        for path, store in ctx.stores:
            if store.buffer in writers:
                writers[store.buffer].add(path[0])
        single = {name: min(found) for name, found in writers.items() if len(found) == 1}
        known = ctx.program._cache["cse_nests"] = dict(sorted(single.items(), key=lambda item: item[1]))
    return known


def _equal_nests(ctx: Context, site: Site) -> tuple[int, int] | NotApplicable:
    """Positions of the nests that compute ``other`` and ``buffer`` alike."""
    params = dict(site.params)
    name, other = str(params["buffer"]), str(params["other"])
    tmps = {b.name: b for b in ctx.program.tmps}
    if name not in tmps or other not in tmps or name == other:
        return NotApplicable("bad-site", "buffer and other are two temporaries of the program")
    if tmps[name].dtype is not tmps[other].dtype or tmps[name].shape != tmps[other].shape:
        return NotApplicable("shape", f"{name} and {other} differ in dtype or shape")
    nests = _nests(ctx)
    if name not in nests or other not in nests or nests[other] >= nests[name] or site.path != (nests[name],):
        return NotApplicable("writers", f"{other} and {name} are not each computed by one nest, {other} first, {name} at the site")
    body = ctx.program.body
    first, second = body[nests[other]], body[nests[name]]
    if not _same_nest(first, second, other, name, {}, {}):
        return NotApplicable("differs", f"{name} and {other} are not computed alike")
    inputs = {e.buffer for nest in (first, second) for v in visit((nest,)) for e in _reads(v.stmt)}
    if inputs & {name, other}:
        return NotApplicable("recurrence", f"the nests read elements of {min(inputs & {name, other})}, which they compute")
    for stmt in body[nests[other] : nests[name] + 1]:
        if bad := buffers_touched(stmt)[1] & inputs:
            return NotApplicable("changed", f"{min(bad)}, from which both are computed, is written in or between the two nests")
    if not any(e.buffer == name for v in visit(body[nests[name] + 1 :]) for e in _reads(v.stmt)):
        return NotApplicable("not-read", f"nothing behind its nest reads {name}")
    return nests[other], nests[name]


def _whole(ctx: Context, site: Site) -> Outcome:
    """Replace the reads of ``buffer`` by reads of ``other``, which an equal nest computed before."""
    found = _equal_nests(ctx, site)
    if isinstance(found, NotApplicable):
        return found
    first, second = found
    params = dict(site.params)
    name, other = str(params["buffer"]), str(params["other"])
    rest = ctx.program.body[second + 1 :]
    child = ctx.program.with_(body=(*ctx.program.body[: second + 1], *rename_buffer(rest, name, other)))
    count = sum(e.buffer == name for v in visit(rest) for e in _reads(v.stmt))
    pure = all(pure_definition(ctx.program, b) is not None for b in (name, other))
    return Applied(
        child,
        Exactness.BITWISE,
        (
            fact("same_value", "parent", buffer=name, other=other, first=path_text((first,)), second=path_text((second,))),
            fact("reads_renamed", "child", buffer=name, other=other, count=count),
        ),
        identity_map(child) if pure else None,
    )


def _reads(stmt: Stmt) -> Iterator[Load]:
    return (e for x in stmt_exprs(stmt) for e in loads(x))


def _same_nest(first: Stmt, second: Stmt, a: str, b: str, names_a: Mapping[str, Expr], names_b: Mapping[str, Expr]) -> bool:
    """Equal up to the names of loops and of the two targets; each writes nothing but its target.

    ``names_a`` and ``names_b`` give the loops around the two, by depth, one common name each.
    """

    def same(x: Expr, y: Expr) -> bool:
        return substitute(x, names_a) == substitute(y, names_b)

    if isinstance(first, Store) and isinstance(second, Store):
        alike = (first.reduce, first.carry, len(first.indices)) == (second.reduce, second.carry, len(second.indices))
        return alike and (first.buffer, second.buffer) == (a, b) and all(map(same, (*first.indices, first.value), (*second.indices, second.value)))
    if isinstance(first, Store) or isinstance(second, Store) or len(first.body) != len(second.body):
        return False
    if isinstance(first, Loop) and isinstance(second, Loop):
        if not same(first.extent, second.extent) or first.kind is not second.kind or first.tmps or second.tmps:
            return False
        common = Var(f"#{len(names_a)}")
        names_a, names_b = {**names_a, first.var: common}, {**names_b, second.var: common}
    elif not (isinstance(first, If) and isinstance(second, If) and same(first.cond, second.cond)):
        return False
    return all(_same_nest(x, y, a, b, names_a, names_b) for x, y in zip(first.body, second.body, strict=True))


STRATEGY = CommonSubexpressionElimination()
