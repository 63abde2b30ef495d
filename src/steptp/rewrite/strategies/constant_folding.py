"""Expressions of literals and sizes become literals (``1/sqrt(f32(C))`` becomes ``0.125`` for C = 64), and operands that change nothing go.

Only what is exact is folded: a literal that the parent's arithmetic would have rounded is another real number than the expression.
What has a size in it holds for the present value only, so the child's header states that value.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

from steptp.analysis.literals import exact_literal, is_power_of_two, reads_only_sizes
from steptp.ir import Expr, Op, Size, print_expr
from steptp.ir.nodes import Const, Program, const, op
from steptp.ir.sizes import eval_index
from steptp.ir.types import DType
from steptp.ir.walk import subexprs
from steptp.rewrite.algebra import Algebra, Here, Params, Rewritten, Undo, refused, shown
from steptp.rewrite.base import Applied, Exactness, NotApplicable, Outcome, Site
from steptp.rewrite.context import Context, path_text
from steptp.rewrite.exprs import children, with_children
from steptp.rewrite.fact_kinds import fact
from steptp.rewrite.tools import identity_map

__all__ = ["ConstantFolding", "STRATEGY"]

_WAYS = ("literal", "size", "identity", "reciprocal", "divisor")
_SMALLEST = {DType.F16: 2.0**-14, DType.BF16: 2.0**-126, DType.F32: 2.0**-126, DType.F64: 2.0**-1022}


class ConstantFolding(Algebra):
    """``by``: ``literal`` (of literals), ``size`` (a size has its present value), ``identity`` (``x*1``, ``x-0``, ``--x``, a decided ``select``),
    ``reciprocal`` (``x/256`` becomes ``x*0.00390625``) or ``divisor`` (back; no site, as it makes a program slower)."""

    name = "constant_folding"
    summary = "fold what literals and sizes give exactly, and operands that change nothing"
    classes = (Exactness.BITWISE,)
    keys = ("by",)

    def options(self, here: Here) -> Iterator[Params]:
        expr = here.expr
        if isinstance(expr, Const):
            return
        if reads_only_sizes(expr):
            if not _within(here):
                yield {"by": "size" if _sizes_of(expr) else "literal"}
        elif isinstance(expr, Op):
            yield {"by": "reciprocal" if expr.name == "/" and not _is(expr.args[1], 1) else "identity"}

    def rewrite(self, here: Here, params: Params) -> Rewritten | NotApplicable:
        how, expr = params["by"], here.expr
        if how not in _WAYS:
            return refused("bad-site", f"constant_folding takes by={', '.join(_WAYS[:-1])} or {_WAYS[-1]}")
        if how == "identity":
            kept = _kept(expr)
            return Rewritten(kept) if kept is not None else refused("no-identity", f"no operand of `{shown(expr)}` is one that changes nothing")
        if how in ("reciprocal", "divisor"):
            return _scaled(expr, how)
        return _folded(here, how == "size")

    def apply(self, ctx: Context, site: Site) -> Outcome:
        step = super().apply(ctx, site)
        if isinstance(step, NotApplicable):
            return step
        how = dict(site.params)["by"]
        step = replace(step, exactness=Exactness.BITWISE)
        if how != "size":
            return replace(step, instances=identity_map(step.program)) if how == "literal" else step
        return self._stated(ctx, site, step)

    def _stated(self, ctx: Context, site: Site, step: Applied) -> Applied:
        made = self._at(ctx, site)
        assert not isinstance(made, NotApplicable)
        here, done = made
        size = _sizes_of(here.expr)[0]
        condition = op("==", size, eval_index(size, ctx.env))
        child = _with(step.program, condition)
        what = fact("literal_at_size", "child", at=path_text(here.path), old=shown(here.expr), new=shown(done.new), constraint=print_expr(condition))
        return Applied(child, Exactness.BITWISE, (what,), identity_map(child))


def _within(here: Here) -> bool:
    """Whether the expression above folds as a whole."""
    above = here.above
    return (
        above is not None and above.dtype.is_float and reads_only_sizes(above) and len(_sizes_of(above)) <= 1 and exact_literal(above, here.ctx.env) is not None
    )


def _with(program: Program, condition: Expr) -> Program:
    return program if condition in program.constraints else program.with_(constraints=(*program.constraints, condition))


def _sizes_of(expr: Expr) -> list[Expr]:
    """The largest integer expressions with a size in them, each once."""
    if expr.dtype is DType.I64:
        return [expr] if any(isinstance(e, Size) for e in subexprs(expr)) else []
    return list(dict.fromkeys(found for part in children(expr) for found in _sizes_of(part)))


def _folded(here: Here, sized: bool) -> Rewritten | NotApplicable:
    expr = here.expr
    if isinstance(expr, Const) or not reads_only_sizes(expr):
        return refused(
            "not-literal", f"`{shown(expr)}` is a literal already" if isinstance(expr, Const) else f"`{shown(expr)}` reads more than literals and sizes"
        )
    sizes = _sizes_of(expr)
    if sized and len(sizes) != 1:
        return refused("sizes", f"`{shown(expr)}` has {len(sizes)} sizes; by=size takes one")
    if not sized and sizes:
        return refused("sizes", f"`{shown(expr)}` changes with `{print_expr(sizes[0])}`; by=size folds it for the present value")
    found = exact_literal(expr, here.ctx.env)
    if found is None:
        return refused("rounded", f"`{shown(expr)}` is rounded in {expr.dtype} or is no finite number: as a literal it would be another real number")
    return Rewritten(found)


def _scaled(expr: Expr, how: object) -> Rewritten | NotApplicable:
    """Multiplication by a power of two and division by its inverse round the same real number."""
    name, other, back = ("/", "*", "divisor") if how == "reciprocal" else ("*", "/", "reciprocal")
    by = expr.args[1] if isinstance(expr, Op) and expr.name == name else None
    if not isinstance(by, Const) or not is_power_of_two(float(by.value)) or abs(float(by.value)) == 1:
        return refused("not-a-power", f"the right operand of `{shown(expr)}` must be a power of two in a {'quotient' if name == '/' else 'product'}")
    inverse = const(1.0 / float(by.value), expr.dtype)
    if not math.isfinite(inverse.value) or abs(float(inverse.value)) < _SMALLEST[expr.dtype] or abs(float(by.value)) < _SMALLEST[expr.dtype]:
        return refused("rounded", f"1/{shown(by)} is out of the range of normal {expr.dtype} numbers")
    assert isinstance(expr, Op)
    return Rewritten(op(other, expr.args[0], inverse), (), Undo("constant_folding", {"by": back}))


def _is(expr: Expr, value: float) -> bool:
    """Whether the expression is this literal, with the sign of a zero."""
    return isinstance(expr, Const) and expr.value == value and math.copysign(1.0, expr.value) == math.copysign(1.0, value)


def _kept(expr: Expr) -> Expr | None:
    """The operand whose bits the expression has."""
    if not isinstance(expr, Op):
        return None
    left, right = expr.args[0], expr.args[-1]
    if expr.name in ("*", "max", "min", "+"):
        neutral = {"*": 1.0, "max": -math.inf, "min": math.inf, "+": -0.0}[expr.name]
        return left if _is(right, neutral) else right if _is(left, neutral) else None
    if (expr.name == "/" and _is(right, 1)) or (expr.name == "-" and _is(right, 0.0)):
        return left
    if expr.name == "neg" and isinstance(left, Op) and left.name == "neg":
        return left.args[0]
    if expr.name == "abs" and isinstance(left, Op) and left.name in ("neg", "abs"):
        return with_children(expr, (left.args[0],))
    if expr.name == "select":
        chosen = exact_literal(left, {}) if not _sizes_of(left) and reads_only_sizes(left) else None
        return expr.args[1] if expr.args[1] == right else None if chosen is None else expr.args[1 if chosen.value else 2]
    return None


STRATEGY = ConstantFolding()
