"""Store a row's sum of exponentials as prefix sums, each beneath the maximum of its own prefix.

``S[i,j]`` is the sum of ``exp(x-P[i,j])`` over the first ``j`` elements, ``P[i,j]`` their maximum: the normaliser recurrence of Milakov and Gimelshein,
"Online normalizer calculation for softmax" (2018), section 3, with every intermediate value kept.
"""

from __future__ import annotations

from dataclasses import dataclass

from steptp.ir import Buffer, Expr, Load, Store, Var, call, const, ix, op, print_expr
from steptp.ir.nodes import Path, Stmt
from steptp.rewrite.base import Applied, Exactness, Family, Forwarding, NotApplicable, Outcome
from steptp.rewrite.context import Context, path_text
from steptp.rewrite.fact_kinds import fact
from steptp.rewrite.loop_pattern import LoopPattern
from steptp.rewrite.online import (
    Nest,
    added,
    declare,
    exponent_parts,
    exponential,
    find_row,
    minus_infinity,
    prefix_buffer,
    prefix_of,
    rescaled,
    row_nest,
    size_extent,
    splice,
    wrap,
)

__all__ = ["PrefixSummationOnExp", "STRATEGY"]


@dataclass(frozen=True, slots=True)
class _Match:
    """``nest`` sums ``exp(x-peak)``; ``maxima`` holds the prefix maxima of ``x``, or is still to be made (``new``); ``sums`` is to be made."""

    nest: Nest
    x: Expr
    peak: Load
    maxima: str
    new: Buffer | None
    sums: Buffer


class PrefixSummationOnExp(LoopPattern[_Match]):
    """Site: path of a perfect nest that sums ``exp(x-m)`` over its innermost loop, where ``m`` is the maximum of the same ``x``.

    Prefix maxima of ``x`` that an earlier nest has stored are used (``normal_loop_max_to_prefix_max`` stores them); without any they are taken in the same loop.
    """

    name = "normal_loop_summation_on_exp_to_prefix_summation_on_exp"
    family = Family.ONLINE
    classes = (Exactness.ALGEBRAIC,)
    summary = "store the sum of exponentials of every prefix of a row"

    def match(self, ctx: Context, path: Path) -> _Match | NotApplicable:
        return _match(ctx, path)

    def rewrite(self, ctx: Context, path: Path, found: _Match) -> Outcome:
        return _apply(ctx, found)


def _match(ctx: Context, path: Path) -> _Match | NotApplicable:
    nest = row_nest(ctx, path, "+", "a sum over its innermost loop")
    if isinstance(nest, NotApplicable):
        return nest
    parts = exponent_parts(nest.store.value)
    if parts is None:
        return NotApplicable("pattern", f"{nest.store.buffer} does not sum exp(x-m[...])")
    x, peak = parts
    top = find_row(ctx, path, peak.buffer, "max")
    if top is None or not top.agrees(peak.indices, x, nest.row):
        return NotApplicable(
            "not-the-maximum", f"no statement beside {path_text(path)} shows that {print_expr(peak)} is the maximum of {print_expr(x)} over {nest.row.var}"
        )
    if (problem := size_extent(ctx, nest.row)) is not None:
        return problem
    maxima, (new_maxima, new_sums) = prefix_of(ctx, path, peak.indices, x, nest.row), ctx.fresh_global("pm", "ps")
    new = None if maxima is not None else prefix_buffer(ctx, new_maxima, peak.buffer, nest.row)
    sums = prefix_buffer(ctx, new_sums, nest.store.buffer, nest.row)
    for made in (new, sums):
        if isinstance(made, NotApplicable):
            return made
    assert not isinstance(new, NotApplicable)
    assert not isinstance(sums, NotApplicable)
    return _Match(nest, x, peak, maxima or new_maxima, new, sums)


def _apply(ctx: Context, found: _Match) -> Outcome:
    nest, s, x = found.nest, found.nest.store, found.x
    dtype, j = found.sums.dtype, Var(nest.row.var)

    def at(buffer: str, indices: tuple[Expr, ...], last: Expr) -> Load:
        return Load(buffer, (*indices, last), dtype)

    old, now = at(found.maxima, found.peak.indices, j), at(found.maxima, found.peak.indices, op("+", j, 1))
    held, after, last = (at(found.sums.name, s.indices, e) for e in (j, op("+", j, 1), nest.row.extent))
    zero = ix(0)
    starts: list[Stmt] = [Store(found.sums.name, (*s.indices, zero), const(0, dtype))]
    steps: list[Stmt] = [Store(after.buffer, after.indices, rescaled(old, held, exponential(old, now)) + exponential(x, now))]
    if found.new is not None:
        starts.insert(0, Store(found.maxima, (*found.peak.indices, zero), minus_infinity(dtype)))
        steps.insert(0, Store(now.buffer, now.indices, call("max", old, x)))
    block: tuple[Stmt, ...] = (*starts, *wrap((nest.row,), tuple(steps)), Store(s.buffer, s.indices, last))
    child, moves = splice(ctx.program, nest.path, 1, wrap(nest.rows, block))
    if found.new is not None:
        child = declare(child, found.new, found.peak.buffer)
    child = declare(child, found.sums, s.buffer)
    loop = nest.store_path[:-1]
    new_loop = (*loop[:-1], loop[-1] + len(starts))
    return Applied(
        child,
        Exactness.ALGEBRAIC,
        (
            fact("sum_of_exponentials", "parent", sum=s.buffer, buffer=found.peak.buffer, loop=nest.row.var, text=print_expr(x)),
            *((fact("prefix_maximum", "child", buffer=found.maxima, of=found.peak.buffer, loop=nest.row.var, text=print_expr(x)),) if found.new else ()),
            fact("prefix_sum", "child", buffer=found.sums.name, of=s.buffer, peak=found.maxima, loop=nest.row.var),
            fact("rescaled", "child", sum=found.sums.name, peak=found.maxima),
            *(added(child, b) for b in (found.new, found.sums) if b is not None),
        ),
        None,
        Forwarding(((loop, new_loop), (nest.store_path, (*new_loop, len(steps) - 1)), *moves)),
    )


STRATEGY = PrefixSummationOnExp()
