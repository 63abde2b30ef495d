"""Elementwise arithmetic, comparisons and logic."""

from __future__ import annotations

import math
from collections.abc import Callable

from steptp.frontend.builder import MATH, Builder
from steptp.frontend.registry import Call, rule
from steptp.frontend.value import Value, as_dtype, broadcast_to
from steptp.ir import Const, DType, Expr, call, cast, const, op, select

Unary = Callable[[Expr], Expr]


def elementwise(b: Builder, c: Call, operands: list[Value], fn: Callable[..., Expr], stem: str = "t") -> Value:
    """One nest over the broadcast operands; ``fn`` must give the result dtype."""
    wide = [broadcast_to(x, c.shape) for x in operands]
    return b.pointwise(c.shape, c.dtype, lambda i: fn(*(x.at(i) for x in wide)), like=wide, stem=stem)


def unary(names: tuple[str, ...], fn: Unary, *, exact: bool = False, stem: str = "t") -> None:
    """Register ``fn`` on one operand; computed in f32 for 16-bit floats unless ``exact`` (no rounding to speak of)."""

    def apply(b: Builder, c: Call) -> Value:
        x = c.operand("self", c.promoted if exact else MATH.get(c.dtype, c.dtype) if c.dtype.is_float else c.promoted)
        return elementwise(b, c, [x], lambda e: cast(c.dtype, fn(e)), stem)

    rule(*names)(apply)


def binary(names: tuple[str, ...], fn: Callable[[Expr, Expr], Expr], *, exact: bool = True, first: str = "self", second: str = "other") -> None:
    """Register ``fn`` on two operands promoted to a common dtype.

    ``exact``: one correctly rounded operator, so f32 and then rounding gives what the 16-bit operator gives, except with a
    number operand that the 16-bit dtype cannot hold; that case is computed in f32.
    """

    def apply(b: Builder, c: Call) -> Value:
        wide = MATH.get(c.promoted, c.promoted)
        narrow = exact and all(_fits(c, name, c.promoted) for name in (first, second))
        x, y = (c.operand(name, c.promoted if narrow else wide) for name in (first, second))
        return elementwise(b, c, [x, y], lambda p, q: cast(c.dtype, fn(p, q)))

    rule(*names)(apply)


def _fits(c: Call, name: str, dtype: DType) -> bool:
    value = c.args.get(name)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not dtype.is_float:
        return not (isinstance(value, Expr) and dtype in MATH)
    return math.isnan(value) or const(value, dtype).value == value


@rule("aten.add.Tensor", "aten.add.Scalar", "aten.sub.Tensor", "aten.sub.Scalar", "aten.rsub.Scalar", "aten.rsub.Tensor")
def add(b: Builder, c: Call) -> Value:
    """``self ± alpha*other``; bool operands add as *or*."""
    sign = "+" if ".add." in c.name else "-"
    alpha = c.args.get("alpha", 1)
    plain = isinstance(alpha, (int, float)) and alpha == 1
    narrow = plain and _fits(c, "other", c.promoted)
    kind = c.promoted if narrow else MATH.get(c.promoted, c.promoted)
    x, y = c.operand("self", kind), c.operand("other", kind)
    if "rsub" in c.name:
        x, y = y, x
    if not plain:
        scale = c.literal(alpha, kind)
        if "rsub" in c.name:
            x0 = x
            y = y.map(kind, lambda e: e * scale.at(()))
            x = x0
        else:
            y0 = y
            y = y0.map(kind, lambda e: scale.at(()) * e)
    if kind is DType.BOOL:
        return elementwise(b, c, [x, y], lambda p, q: op("or", p, q))
    return elementwise(b, c, [x, y], lambda p, q: cast(c.dtype, op(sign, p, q)))


@rule("aten.mul.Tensor", "aten.mul.Scalar")
def mul(b: Builder, c: Call) -> Value:
    """Product; bool operands multiply as *and*."""
    kind = c.promoted if _fits(c, "other", c.promoted) else MATH.get(c.promoted, c.promoted)
    x, y = c.operand("self", kind), c.operand("other", kind)
    if kind is DType.BOOL:
        return elementwise(b, c, [x, y], lambda p, q: op("and", p, q))
    return elementwise(b, c, [x, y], lambda p, q: cast(c.dtype, p * q))


@rule("aten.relu.default")
def relu(b: Builder, c: Call) -> Value:
    """``max(x, 0)``, NaN stays NaN."""
    return elementwise(b, c, [c.tensor("self")], lambda x: call("max", x, 0))


__all__ = ["Const", "as_dtype", "binary", "elementwise", "select", "unary"]
