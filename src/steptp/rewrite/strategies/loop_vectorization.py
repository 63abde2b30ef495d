"""Run the iterations of an innermost loop in SIMD lanes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from steptp.ir import DType, Expr, If, Load, Loop, LoopKind, Store, print_expr
from steptp.ir.facts import Fact
from steptp.ir.index import poly_of
from steptp.ir.nodes import Op, Size, Var
from steptp.ir.sizes import shape_of
from steptp.ir.walk import buffer_table, free_vars, loads, replace_at, stmt_exprs, subexprs, visit
from steptp.rewrite.base import Applied, Exactness, Family, NotApplicable, Outcome, Site, Strategy
from steptp.rewrite.context import Context, no_loop, path_text
from steptp.rewrite.fact_kinds import fact
from steptp.rewrite.tools import accumulation_facts, identity_map

__all__ = ["LoopVectorization", "STRATEGY", "MAX_LANES", "stride_of"]

MAX_LANES = 64


class LoopVectorization(Strategy):
    """Site: path of the loop; no parameters. Longer loops are split first."""

    name = "loop_vectorization"
    family = Family.LOOP
    classes = (Exactness.BITWISE,)
    summary = "run the iterations of an innermost loop that carries no dependence in SIMD lanes"

    def sites(self, ctx: Context) -> Iterator[Site]:
        for path, _ in ctx.loops:
            site = Site.of(self.name, path)
            if _problem(ctx, site) is None:
                yield site

    def apply(self, ctx: Context, site: Site) -> Outcome:
        if (problem := _problem(ctx, site)) is not None:
            return problem
        loop = ctx.loop(site.path)
        assert loop is not None
        child = replace_at(ctx.program, site.path, replace(loop, kind=LoopKind.VECTOR))
        at = path_text(site.path)
        extent = ctx.value(loop.extent)
        assert extent is not None
        return Applied(
            child,
            Exactness.BITWISE,
            (
                fact("loop_extent", "parent", loop=loop.var, at=at, extent=extent, text=print_expr(loop.extent, DType.I64)),
                fact("loop_kind", "child", loop=loop.var, at=at, old=str(loop.kind), new="vec"),
                fact("carries_no_dependence", "dependence", loop=loop.var, at=at),
                *_stride_facts(ctx, loop, at),
                *_guard_facts(loop, at),
                *accumulation_facts(s for _, s in ctx.stores_under(site.path)),
            ),
            identity_map(child),
        )


def _problem(ctx: Context, site: Site) -> NotApplicable | None:
    loop = ctx.loop(site.path)
    if loop is None:
        return no_loop(site.path)
    if site.params:
        return NotApplicable("bad-site", "loop_vectorization takes no parameters")
    if loop.kind is not LoopKind.SERIAL:
        return NotApplicable("loop-kind", f"{loop.var} is a {loop.kind} loop; only a serial loop can become a vector loop")
    inside = next((other for path, other in ctx.loops_under(site.path) if path != site.path), None)
    if inside is not None:
        return NotApplicable("not-innermost", f"the loop {inside.var} lies inside {loop.var}; only an innermost loop fills vector lanes")
    extent = ctx.value(loop.extent)
    if extent is None:
        return NotApplicable(
            "extent-varies", f"{loop.var} runs {print_expr(loop.extent, DType.I64)} times, which changes with the loops around it; vector lanes are fixed"
        )
    if not 2 <= extent <= MAX_LANES:
        return NotApplicable("extent", f"{loop.var} runs {extent} times; vector loops have 2 to {MAX_LANES} iterations (split it first)")
    found = ctx.legality.carried(site.path)
    if found is not None:
        return NotApplicable("carried", f"{loop.var} carries a dependence: {found.text}")
    return None


def stride_of(ctx: Context, buffer: str, indices: tuple[Expr, ...], var: str) -> int | None:
    """Elements that the access moves when ``var`` grows by one; ``None`` when that is not constant."""
    shape = shape_of(buffer_table(ctx.program)[buffer].shape, ctx.program)
    total = 0
    for position, index in enumerate(indices):
        step = _coefficient(ctx, index, var)
        if step is None:
            return None
        for extent in shape[position + 1 :]:
            step *= extent
        total += step
    return total


def _coefficient(ctx: Context, index: Expr, var: str) -> int | None:
    total = 0
    for mono, value in poly_of(index).items():
        if not any(var in free_vars(atom) for atom in mono):
            continue
        owners = [a for a in mono if var in free_vars(a)]
        if owners != [Var(var)]:
            return None
        for atom in mono:
            if isinstance(atom, (Size, Op)):
                known = ctx.value(atom)
                if known is None:
                    return None
                value *= known
            elif atom != Var(var):
                return None
        total += value
    return total


def _stride_facts(ctx: Context, loop: Loop, at: str) -> Iterator[Fact]:
    seen: set[str] = set()
    for met in visit(loop.body):
        if not isinstance(met.stmt, Store):
            continue
        accesses = [(met.stmt.buffer, met.stmt.indices)]
        accesses += [(e.buffer, e.indices) for part in stmt_exprs(met.stmt) for e in subexprs(part) if isinstance(e, Load)]
        for buffer, indices in accesses:
            text = f"{buffer}[{','.join(print_expr(i, DType.I64) for i in indices)}]"
            elements = (
                None if any(isinstance(e, Load) for i in indices for e in subexprs(i)) else stride_of(ctx, buffer, indices, loop.var)
            )  # a look-up has no stride
            if text not in seen and elements is not None:
                seen.add(text)
                yield fact("stride", "parent", loop=loop.var, at=at, access=text, elements=elements)


def _guard_facts(loop: Loop, at: str) -> Iterator[Fact]:
    for met in visit(loop.body):
        if isinstance(met.stmt, If) and (loop.var in free_vars(met.stmt.cond) or any(loads(met.stmt.cond))):
            yield fact("guard_in_vector", "parent", loop=loop.var, at=at, cond=print_expr(met.stmt.cond))


STRATEGY = LoopVectorization()
