"""Store a row maximum as prefix maxima: ``P[i,j]`` is the maximum of the first ``j`` elements, and the last one is the maximum."""

from __future__ import annotations

from steptp.ir import Load, Store, Var, call, identity_of, ix, op, print_expr
from steptp.ir.nodes import Path, Stmt
from steptp.rewrite.base import Applied, Exactness, Family, Forwarding, NotApplicable, Outcome
from steptp.rewrite.context import Context
from steptp.rewrite.fact_kinds import fact
from steptp.rewrite.loop_pattern import LoopPattern
from steptp.rewrite.online import Nest, added, declare, prefix_buffer, row_nest, size_extent, splice, wrap

__all__ = ["NormalLoopMaxToPrefixMax", "STRATEGY"]


class NormalLoopMaxToPrefixMax(LoopPattern[Nest]):
    """Site: path of a perfect nest that takes a maximum over its innermost loop.

    ``max=`` starts from -inf and takes the elements in the order of the loop, and so does the recurrence ``P[i,j+1]=max(P[i,j],x)``: the bits are the same,
    NaN included. It is the first step from a softmax in three passes to one: what needs the maximum so far no longer waits for the whole row.
    """

    name = "normal_loop_max_to_prefix_max"
    family = Family.ONLINE
    classes = (Exactness.BITWISE,)
    summary = "store the maximum of every prefix of a row"

    def match(self, ctx: Context, path: Path) -> Nest | NotApplicable:
        return _match(ctx, path)

    def rewrite(self, ctx: Context, path: Path, found: Nest) -> Outcome:
        return _apply(ctx, found)


def _match(ctx: Context, path: Path) -> Nest | NotApplicable:
    nest = row_nest(ctx, path, "max", "a maximum over its innermost loop")
    if isinstance(nest, NotApplicable):
        return nest
    if (problem := size_extent(ctx, nest.row)) is not None:
        return problem
    made = prefix_buffer(ctx, "pm", nest.store.buffer, nest.row)
    return made if isinstance(made, NotApplicable) else nest


def _apply(ctx: Context, nest: Nest) -> Outcome:
    m, row = nest.store, nest.row
    (name,) = ctx.fresh_global("pm")
    made = prefix_buffer(ctx, name, m.buffer, row)
    assert not isinstance(made, NotApplicable)
    dtype, j = made.dtype, Var(row.var)
    here, last = Load(name, (*m.indices, j), dtype), Load(name, (*m.indices, row.extent), dtype)
    block: tuple[Stmt, ...] = (
        Store(name, (*m.indices, ix(0)), identity_of("max", dtype)),
        *wrap((row,), (Store(name, (*m.indices, op("+", j, 1)), call("max", here, m.value)),)),
        Store(m.buffer, m.indices, last),
    )
    child, moves = splice(ctx.program, nest.path, 1, wrap(nest.rows, block))
    old = nest.store_path[:-1]
    child = declare(child, made, m.buffer)
    return Applied(
        child,
        Exactness.BITWISE,
        (
            fact("prefix_maximum", "child", buffer=name, of=m.buffer, loop=row.var, text=print_expr(m.value)),
            added(child, made),
        ),
        None,
        Forwarding(((old, (*old[:-1], old[-1] + 1)), *moves)),
    )


STRATEGY = NormalLoopMaxToPrefixMax()
