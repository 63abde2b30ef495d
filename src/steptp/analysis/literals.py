"""The exact value of expressions over literals and sizes, where IEEE arithmetic reaches it without rounding.

Every operator's exact result must be a value of its dtype. Then the literal has the bits that the expression has, and is
equal to it over the reals too: a rounded result is only the first.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import TypeAlias

from steptp.errors import LeirError
from steptp.ir.nodes import Cast, Const, Expr, Load, Op, Var
from steptp.ir.sizes import eval_index
from steptp.ir.types import DType, round_literal
from steptp.ir.walk import subexprs

__all__ = ["exact_literal", "reads_only_sizes", "is_power_of_two"]

Number: TypeAlias = "Fraction | bool"

_COMPARE: dict[str, Callable[[Fraction, Fraction], bool]] = {
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge, "==": operator.eq, "!=": operator.ne,
}  # fmt: skip
_ARITHMETIC: dict[str, Callable[[Fraction, Fraction], Fraction]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv, "max": max, "min": min,
}  # fmt: skip


def exact_literal(expr: Expr, sizes: Mapping[str, int]) -> Const | None:
    """The literal that a float or bool expression is at these sizes; ``None`` when it is none, or would be rounded on the way."""
    found = _value(expr, sizes)
    if found is None:
        return None
    return Const(found if isinstance(found, bool) else float(found), expr.dtype)


def reads_only_sizes(expr: Expr) -> bool:
    """Whether the expression has neither loop variables nor reads."""
    return not any(isinstance(e, (Var, Load)) for e in subexprs(expr))


def is_power_of_two(value: float) -> bool:
    return math.isfinite(value) and value != 0 and abs(math.frexp(value)[0]) == 0.5


def _held(value: Fraction, dtype: DType) -> Fraction | None:
    """The value, if the dtype holds it exactly."""
    try:
        near = float(value)
    except OverflowError:
        return None
    return value if Fraction(near) == value and round_literal(near, dtype) == near else None


def _value(expr: Expr, sizes: Mapping[str, int]) -> Number | None:
    if isinstance(expr, Const):
        if expr.type is DType.BOOL:
            return bool(expr.value)
        negative_zero = expr.value == 0 and math.copysign(1.0, expr.value) < 0
        return Fraction(expr.value) if math.isfinite(expr.value) and not negative_zero else None
    if isinstance(expr, Cast):
        return _cast(expr, sizes)
    if not isinstance(expr, Op) or expr.dtype.is_int:
        return None
    if expr.name == "select":
        chosen = _value(expr.args[0], sizes)
        return None if chosen is None else _value(expr.args[1 if chosen else 2], sizes)
    if expr.name in _COMPARE and expr.args[0].dtype.is_int:
        left, right = (_whole(a, sizes) for a in expr.args)
        return None if left is None or right is None else _COMPARE[expr.name](left, right)
    given = [_value(a, sizes) for a in expr.args]
    known = [g for g in given if g is not None]
    return _applied(expr, known) if len(known) == len(given) else None


def _whole(expr: Expr, sizes: Mapping[str, int]) -> Fraction | None:
    if expr.dtype is not DType.I64 or not reads_only_sizes(expr):
        return None
    try:
        return Fraction(eval_index(expr, sizes))
    except LeirError:  # a size that is 0 divides
        return None


def _cast(expr: Cast, sizes: Mapping[str, int]) -> Number | None:
    if not expr.type.is_float:
        return None
    inner = _whole(expr.arg, sizes) if expr.arg.dtype.is_int else _value(expr.arg, sizes)
    return None if inner is None else _held(Fraction(inner), expr.type)


def _applied(expr: Op, given: list[Number]) -> Number | None:
    name = expr.name
    if name in ("and", "or", "not"):
        return (all(given) if name == "and" else any(given)) if name != "not" else not given[0]
    args = [Fraction(g) for g in given]
    if name in _COMPARE:
        return _COMPARE[name](args[0], args[1])
    if name in ("neg", "abs", "sqrt", "rsqrt"):
        found = _unary(name, args[0])
    elif name not in _ARITHMETIC or (name == "/" and args[1] == 0):
        return None
    else:
        found = _ARITHMETIC[name](args[0], args[1])
    if found == 0 and name in ("neg", "*", "/"):
        return None  # the sign of a zero
    return None if found is None else _held(found, expr.dtype)


def _unary(name: str, value: Fraction) -> Fraction | None:
    if name in ("neg", "abs"):
        return -value if name == "neg" else abs(value)
    if value <= 0:
        return None
    root = Fraction(math.isqrt(value.numerator), math.isqrt(value.denominator))
    if root * root != value:
        return None
    return root if name == "sqrt" else 1 / root
