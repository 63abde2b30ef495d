"""Sum a product with softmax weights beneath the running maximum: outputs so far are rescaled when it moves, and divided once at the end.

Over the reals ``sum_j exp(x_j-m)/s*v_j`` is ``(sum_j exp(x_j-P_j)*v_j*prod_{k>j} exp(P_{k-1}-P_k))/s`` with ``P_j`` the maximum of the first ``j`` elements: Dao et
al., "FlashAttention" (2022), algorithm 1.
"""

from __future__ import annotations

from dataclasses import replace

from steptp.ir import Buffer, Load, Store, Var, call, ix, op, print_expr
from steptp.ir.facts import Fact
from steptp.ir.nodes import Path, Stmt
from steptp.rewrite.base import Applied, Exactness, Family, Forwarding, NotApplicable, Outcome
from steptp.rewrite.context import Context
from steptp.rewrite.fact_kinds import fact
from steptp.rewrite.loop_pattern import LoopPattern
from steptp.rewrite.online import added, declare, minus_infinity, prefix_buffer, prefix_of, size_extent, splice, wrap
from steptp.rewrite.online_products import Product, divided_once, finish_outputs, product_at, product_facts, scalars, start_outputs, step_outputs

__all__ = ["PrefixMatmul", "STRATEGY"]


class PrefixMatmul(LoopPattern[tuple[Product, str, Buffer | None]]):
    """Site: path of a nest that sums a stored softmax weight times something else over one loop.

    Prefix maxima that an earlier nest has stored are used; without any they are taken in the same loop. The nest no longer reads the weights; where
    nothing else does, ``dead_code_elimination`` removes them.
    """

    name = "normal_matmul_to_prefix_matmul_based_on_online_softmax"
    family = Family.ONLINE
    classes = (Exactness.ALGEBRAIC,)
    summary = "sum a product with softmax weights beneath the running maximum"

    def match(self, ctx: Context, path: Path) -> tuple[Product, str, Buffer | None] | NotApplicable:
        return _match(ctx, path)

    def rewrite(self, ctx: Context, path: Path, found: tuple[Product, str, Buffer | None]) -> Outcome:
        return _apply(ctx, *found)


def _match(ctx: Context, path: tuple[int, ...]) -> tuple[Product, str, Buffer | None] | NotApplicable:
    """The product, the buffer with the prefix maxima, and its declaration if it is new."""
    found = product_at(ctx, path)
    if isinstance(found, NotApplicable):
        return found
    maxima = prefix_of(ctx, path, found.peak.indices, found.x, found.row)
    if maxima is not None:
        return found, maxima, None
    if (problem := size_extent(ctx, found.row)) is not None:
        return problem
    (name,) = ctx.fresh_global("pm")
    made = prefix_buffer(ctx, name, found.peak.buffer, found.row)
    return made if isinstance(made, NotApplicable) else (found, name, made)


def _apply(ctx: Context, found: Product, maxima: str, new: Buffer | None) -> Outcome:
    row, peak, dtype = found.row, found.peak, found.peak.dtype
    old, now = (Load(maxima, (*peak.indices, e), dtype) for e in (Var(row.var), op("+", Var(row.var), 1)))
    local = scalars(ctx, found)
    starts: tuple[Stmt, ...] = start_outputs(found)
    steps: tuple[Stmt, ...] = (*local.stores(old, found.x, now), *step_outputs(found, old, local))
    if new is not None:
        starts = (Store(maxima, (*peak.indices, ix(0)), minus_infinity(dtype)), *starts)
        steps = (Store(maxima, now.indices, call("max", old, found.x)), *steps)
    block = (*starts, replace(row, body=steps, tmps=local.buffers), *finish_outputs(found))
    child, moves = splice(ctx.program, found.nest.path, 1, wrap(found.rows, block))
    if new is not None:
        child = declare(child, new, peak.buffer)
    if found.constraint is not None:
        child = child.with_(constraints=(*child.constraints, found.constraint))
    made: tuple[Fact, ...] = ()
    if new is not None:
        made = (fact("prefix_maximum", "child", buffer=maxima, of=peak.buffer, loop=row.var, text=print_expr(found.x)),)
    return Applied(
        child,
        Exactness.ALGEBRAIC,
        (
            *product_facts(found),
            *made,
            fact("rescaled", "child", sum=found.store.buffer, peak=maxima),
            divided_once(child, found),
            *(added(child, b) for b in (*((new,) if new else ()), *local.buffers)),
        ),
        None,
        Forwarding(((found.nest.path, None), *moves)),
    )


STRATEGY = PrefixMatmul()
