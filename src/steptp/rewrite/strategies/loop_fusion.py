"""Collapse a perfectly nested pair of loops into one: ``i`` becomes ``f//M`` and ``j`` becomes ``f%M``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from steptp.ir import Expr, Loop, LoopKind, Op, Path, Program, Size, Var, ix, op, print_expr, same_index, simplify_cond, simplify_index
from steptp.ir.index import poly_of
from steptp.ir.types import DType
from steptp.ir.walk import free_vars, loads, replace_at
from steptp.rewrite.base import Applied, Exactness, Family, Forwarding, NotApplicable, Outcome, Site, Strategy
from steptp.rewrite.context import Context, no_loop, path_text
from steptp.rewrite.exprs import children, with_children
from steptp.rewrite.fact_kinds import fact
from steptp.rewrite.injective import reset_index_problem
from steptp.rewrite.tools import accumulation_facts, change_body, drop_unused_sizes, fold_multiples, instance_map, lower_bound, tidy

__all__ = ["LoopFusion", "STRATEGY"]


class LoopFusion(Strategy):
    """Site: path of the outer loop of the pair; no parameters."""

    name = "loop_fusion"
    family = Family.LOOP
    classes = (Exactness.BITWISE,)
    summary = "collapse a perfectly nested pair of loops into one loop"

    def sites(self, ctx: Context) -> Iterator[Site]:
        for path, loop in ctx.loops:
            inner = loop.body[0]
            if isinstance(inner, Loop) and isinstance(_check(ctx, path, loop), _Pair):
                yield Site.of(self.name, path)

    def apply(self, ctx: Context, site: Site) -> Outcome:
        loop = ctx.loop(site.path)
        if loop is None:
            return no_loop(site.path)
        if site.params:
            return NotApplicable("bad-site", "loop_fusion takes no parameters")
        pair = _check(ctx, site.path, loop)
        return pair if isinstance(pair, NotApplicable) else _apply(ctx, site.path, pair)


@dataclass(frozen=True, slots=True)
class _Pair:
    """A pair that collapses: both loops, and the new loop's kind, variable and extent."""

    outer: Loop
    inner: Loop
    kind: LoopKind
    var: Var
    extent: Expr

    def change(self, expr: Expr, around: Mapping[str, Expr]) -> Expr:
        """An expression of the body over the new variable; ``around`` holds the loops around it, the new one included."""
        if not free_vars(expr) & {self.outer.var, self.inner.var}:
            return expr
        new = tidy(_collapse(expr, self.outer.var, self.inner.var, self.inner.extent, self.var), around)
        return simplify_cond(new, around) if new.dtype is DType.BOOL else new


def _check(ctx: Context, path: Path, outer: Loop) -> _Pair | NotApplicable:
    """The pair at ``path``, or why it is not collapsed."""
    inner = outer.body[0]
    if len(outer.body) != 1 or not isinstance(inner, Loop):
        what = "more than one statement" if len(outer.body) > 1 else "no loop"
        return NotApplicable("not-perfect", f"the body of {outer.var} holds {what}; only a loop with nothing beside it can be collapsed with {outer.var}")
    if outer.tmps:
        return NotApplicable("tmp-between", f"{outer.var} declares the temporary {outer.tmps[0].name}, which lives across the iterations of {inner.var}")
    rows, columns = ctx.value(outer.extent), ctx.value(inner.extent)
    if rows is None or columns is None:
        which = outer if rows is None else inner
        return NotApplicable(
            "extent-varies",
            f"{which.var} runs {print_expr(which.extent, DType.I64)} times, which changes with the loops around it; only rectangular pairs are collapsed",
        )
    if all((low := lower_bound(loop.extent)) is None or low < 0 for loop in (outer, inner)):
        return NotApplicable(
            "extent-sign",
            f"at other sizes both {print_expr(outer.extent, DType.I64)} and {print_expr(inner.extent, DType.I64)} may be negative, and their product would then run",
        )
    kind = _kind(ctx, path, outer, inner)
    if isinstance(kind, NotApplicable):
        return kind
    (name,) = ctx.fresh_vars(path, _stem(outer.var, inner.var))
    pair = _Pair(outer, inner, kind, Var(name), fold_multiples(ctx.program, op("*", outer.extent, inner.extent)))
    for _, store in ctx.stores_under(path):
        if store.reduce is None or store.carry:
            continue
        mine = frozenset().union(*(free_vars(i) for i in store.indices))
        if (outer.var in mine) != (inner.var in mine):
            yes, no = (outer.var, inner.var) if outer.var in mine else (inner.var, outer.var)
            return NotApplicable(
                "reset-changes", f"{store.buffer} is indexed by {yes} and accumulates over {no}, so one loop for both would change where it resets"
            )
    new = {pair.var.name: pair.extent}
    return reset_index_problem(ctx, {path: new, (*path, 0): new}, pair.change) or pair


def _kind(ctx: Context, path: Path, outer: Loop, inner: Loop) -> LoopKind | NotApplicable:
    if outer.kind is LoopKind.SERIAL and inner.kind is LoopKind.SERIAL:
        return LoopKind.SERIAL
    if outer.kind is LoopKind.PARALLEL and inner.kind is LoopKind.SERIAL:
        found = ctx.legality.carried((*path, 0))
        if found is None:
            return LoopKind.PARALLEL
        return NotApplicable("carried", f"the collapsed loop would be parallel, but {inner.var} carries a dependence: {found.text}")
    return NotApplicable(
        "loop-kind", f"a {outer.kind} loop around a {inner.kind} loop is not collapsed; serial pairs are, and a parallel loop around a serial one"
    )


def _stem(outer: str, inner: str) -> str:
    """``i0, i1`` collapse to ``i`` again; other pairs to ``f``."""
    base = outer.rstrip("0123456789")
    return base if base and base == inner.rstrip("0123456789") and outer != base else "f"


def _collapse(expr: Expr, outer: str, inner: str, width: Expr, var: Var) -> Expr:
    """``expr`` with ``outer`` = ``var//width`` and ``inner`` = ``var%width``; ``width*outer+inner`` becomes ``var`` itself."""
    if not free_vars(expr) & {outer, inner}:
        return expr
    if expr.dtype is not DType.I64 or any(loads(expr)) or (isinstance(expr, Op) and expr.name == "select"):
        return with_children(expr, tuple(_collapse(c, outer, inner, width, var) for c in children(expr)))
    rows: Expr = ix(0)
    columns: Expr = ix(0)
    rest: Expr = ix(0)
    plain = True
    for mono, value in poly_of(expr).items():
        term: Expr = ix(value)
        owners = []
        for atom in mono:
            if isinstance(atom, Var) and atom.name in (outer, inner):
                owners.append(atom.name)
            elif isinstance(atom, (Var, Size)):
                term = op("*", term, atom)
            else:
                term = op("*", term, with_children(atom, tuple(_collapse(c, outer, inner, width, var) for c in children(atom))))
        if len(owners) > 1:
            plain = False
        for owner in owners[1:]:
            term = op("*", term, _part(owner, outer, width, var))
        if not owners:
            rest = op("+", rest, term)
        elif owners[0] == outer:
            rows = op("+", rows, term)
        else:
            columns = op("+", columns, term)
    if plain and same_index(rows, op("*", columns, width)):
        return simplify_index(op("+", op("*", columns, var), rest))
    split = op("+", op("*", rows, _part(outer, outer, width, var)), op("*", columns, _part(inner, outer, width, var)))
    return simplify_index(op("+", split, rest))


def _part(name: str, outer: str, width: Expr, var: Var) -> Expr:
    return op("//" if name == outer else "%", var, width)


def _apply(ctx: Context, path: Path, pair: _Pair) -> Applied:
    outer, inner = pair.outer, pair.inner
    program: Program = ctx.program
    extents = {**ctx.extents_around(path), pair.var.name: pair.extent}
    made = Loop(pair.var.name, pair.extent, change_body(inner.body, pair.change, extents), pair.kind, inner.tmps)
    child = drop_unused_sizes(program, replace_at(program, path, made))
    rows, columns = ctx.value(outer.extent), ctx.value(inner.extent)
    assert rows is not None
    assert columns is not None
    inverse: tuple[Site, ...] = ()
    kept, gone = False, 0
    if isinstance(inner.extent, Size):
        kept = any(s.name == inner.extent.name for s in child.sizes)
        gone = len(program.constraints) - len(child.constraints)
    if isinstance(inner.extent, Size) and 2 <= columns < rows * columns and gone <= 1:  # a split states one constraint again, not more
        inverse = (Site.of("loop_split", path, factor=inner.extent.name if kept else columns, tail="exact"),)
    # a size that the step dropped lives on in the map as its value
    known = {s.name for s in child.sizes}
    width: Expr = inner.extent if {s.name for s in program.sizes} <= known else ix(columns)
    row, column = op("//", Var(made.var), width), op("%", Var(made.var), width)
    return Applied(
        child,
        Exactness.BITWISE,
        (
            fact("perfect_nest", "parent", at=path_text(path), loops=(outer.var, inner.var)),
            fact("loops_collapsed", "child", outer=rows, inner=columns, extent=rows * columns),
            fact("index_map", "child", loop=outer.var, becomes=print_expr(row)),
            fact("index_map", "child", loop=inner.var, becomes=print_expr(column)),
            *accumulation_facts(s for _, s in ctx.stores_under(path)),
        ),
        instance_map(
            program,
            child,
            lambda p: (*path, 0, *p[len(path) :]) if p[: len(path)] == path else p,
            lambda p: {outer.var: row, inner.var: column} if p[: len(path)] == path else {},
        ),
        Forwarding((((*path, 0), path),)),
        inverse,
    )


STRATEGY = LoopFusion()
