"""Fuse a softmax and the product with its weights into one pass over the keys: FlashAttention with tiles of one key.

Dao et al., "FlashAttention: fast and memory-efficient exact attention with IO-awareness" (2022), algorithm 1; the running maximum and sum are those of
Milakov and Gimelshein, "Online normalizer calculation for softmax" (2018). The division by the sum is deferred to the end of the row.
"""

from __future__ import annotations

from dataclasses import replace

from steptp.ir import Buffer, Load, Path, Scope, Store, Var, call, const, print_expr
from steptp.ir.facts import Fact
from steptp.ir.nodes import Program, Stmt
from steptp.ir.walk import body_at, buffer_table, drop_unused_tmps, loads, substitute
from steptp.rewrite.base import Applied, Exactness, Family, Forwarding, NotApplicable, Outcome
from steptp.rewrite.context import Context, path_text
from steptp.rewrite.fact_kinds import fact
from steptp.rewrite.loop_pattern import LoopPattern
from steptp.rewrite.online import Nest, added, bind, minus_infinity, rescaled, row_nest, splice, wrap
from steptp.rewrite.online_products import Product, divided_once, finish_outputs, product_at, product_facts, scalars, start_outputs, step_outputs
from steptp.rewrite.tools import buffers_touched

__all__ = ["FlashAttention", "STRATEGY"]


class FlashAttention(LoopPattern[Product]):
    """Site: path of the nest that takes the maximum; its right neighbours sum the exponentials, store the weights, and sum the product with them.

    One nest over the rows takes their place. It keeps a running maximum, sum and output row, so the weights are never stored. A row in which all ``x`` are
    -inf comes out NaN, as before; rows must not be empty, which the header states. An infinite factor beside a weight of 0 gives NaN, but beside
    leading ``x`` of -inf it is left out.
    """

    name = "flashattention_wo_tiling"
    family = Family.ONLINE
    classes = (Exactness.ALGEBRAIC,)
    summary = "compute attention in one pass over the keys, without storing the weights"

    def match(self, ctx: Context, path: Path) -> Product | NotApplicable:
        return _match(ctx, path)

    def rewrite(self, ctx: Context, path: Path, found: Product) -> Outcome:
        return _apply(ctx, path, found)


def _match(ctx: Context, path: Path) -> Product | NotApplicable:
    top = row_nest(ctx, path, "max", "a maximum over its innermost loop")
    if isinstance(top, NotApplicable):
        return top
    second, third, fourth = ((*path[:-1], path[-1] + k) for k in (1, 2, 3))
    if ctx.loop(fourth) is None:
        return NotApplicable("pattern", f"no three nests follow the maximum at {path_text(path)}")
    bottom = row_nest(ctx, second, "+", "a sum over its innermost loop")
    if isinstance(bottom, NotApplicable):
        return bottom
    found = product_at(ctx, fourth)
    if isinstance(found, NotApplicable):
        return found
    if (found.peak.buffer, found.total.buffer, found.made) != (top.store.buffer, bottom.store.buffer, third):
        return NotApplicable(
            "pattern", f"the nests from {path_text(path)} on are not the maximum, the sum and the weights of the product at {path_text(fourth)}"
        )
    if found.reads != 1 or found.weights in {b.name for b in ctx.program.outputs}:
        return NotApplicable("weights-used", f"the weights {found.weights} are needed beside the product, so they have to be stored")
    for nest, load in ((top, found.peak), (bottom, found.total)):
        if (problem := _all_rows(nest, load, found)) is not None:
            return problem
    between = {top.store.buffer, bottom.store.buffer}
    if between & {e.buffer for e in loads(found.factor)}:
        return NotApplicable("pattern", f"{found.store.buffer} sums values that depend on the maximum or the sum themselves")
    return found


def _all_rows(nest: Nest, load: Load, found: Product) -> NotApplicable | None:
    """The product's loops over rows are those of the nest, one for one: then the fused nest computes all of ``load``'s buffer."""
    by = bind(nest.store.indices, load.indices, [loop.var for loop in nest.rows]) or {}
    extents = {Var(loop.var): loop.extent for loop in found.rows}
    same = all(extents.get(by[loop.var]) == substitute(loop.extent, by) for loop in nest.rows if loop.var in by)  # type: ignore[call-overload]
    if len(by) == len(nest.rows) == len(found.rows) == len(set(by.values())) and same:
        return None
    return NotApplicable("rows", f"the product at {path_text(found.nest.path)} does not run over all rows of {load.buffer}, and over those only")


def _apply(ctx: Context, path: Path, found: Product) -> Outcome:
    m, s, dtype = found.peak, found.total, found.peak.dtype
    local = scalars(ctx, found)
    (name,) = ctx.fresh_global("p")
    peak = Load(name, (), dtype)
    steps: tuple[Stmt, ...] = (
        Store(name, (), call("max", m, found.x)),
        *local.stores(m, found.x, peak),
        Store(s.buffer, s.indices, rescaled(m, s, local.scale) + local.weight),
        *step_outputs(found, m, local),
        Store(m.buffer, m.indices, peak),
    )
    tmps = (Buffer(name, dtype, (), Scope.LOCAL), *local.buffers)
    block: tuple[Stmt, ...] = (
        Store(m.buffer, m.indices, minus_infinity(dtype)),
        Store(s.buffer, s.indices, const(0, dtype)),
        *start_outputs(found),
        replace(found.row, body=steps, tmps=tmps),
        *finish_outputs(found),
    )
    child, moves = splice(ctx.program, path, 4, wrap(found.rows, block))
    child = drop_unused_tmps(child)
    if found.constraint is not None:
        child = child.with_(constraints=(*child.constraints, found.constraint))
    gone = buffer_table(ctx.program)[found.weights]
    nest = row_nest(ctx, path, "max", "")
    assert isinstance(nest, Nest)
    owner, n = path[:-1], path[-1]
    return Applied(
        child,
        Exactness.ALGEBRAIC,
        (
            fact("running_maximum", "parent", buffer=m.buffer, sum=s.buffer, loop=nest.row.var, text=print_expr(nest.store.value)),
            *product_facts(found),
            fact("rescaled", "child", sum=s.buffer, peak=name),
            fact("rescaled", "child", sum=found.store.buffer, peak=name),
            divided_once(child, found),
            *_passes(ctx, child, path, found),
            *(added(child, b) for b in tmps),
            replace(added(ctx.program, gone), kind="buffer_removed"),
        ),
        None,
        Forwarding((*(((*owner, n + k), None) for k in range(4)), *moves)),
    )


def _passes(ctx: Context, child: Program, path: Path, found: Product) -> tuple[Fact, ...]:
    """How many nests beside the site read each array of the row, before and after."""
    every = [[buffers_touched(stmt)[0] for stmt in body_at(program, path[:-1])] for program in (ctx.program, child)]
    out = []
    for name in sorted({e.buffer for e in loads(found.x)}):
        before, after = (sum(name in reads for reads in program) for program in every)
        out.append(fact("passes_over", "child", buffer=name, before=before, after=after))
    return tuple(out)


STRATEGY = FlashAttention()
