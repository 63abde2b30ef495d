"""Comparing and showing exact values (:mod:`steptp.interp.reals`)."""

from __future__ import annotations

from enum import Enum

from flint import arb, ctx, fmpq

from steptp.interp.reals import Real, as_ball

__all__ = ["Same", "compare_exact", "shown"]

_TIGHT = arb(10) ** -30
_SMALL = arb(10) ** -12
_ENOUGH = 4096  # bits


class Same(str, Enum):
    """Outcome of comparing two exact values."""

    EQUAL = "equal"
    DIFFERENT = "different"
    UNDECIDED = "undecided"


def compare_exact(a: Real, b: Real) -> Same:
    """Compare two float values over the reals, without a tolerance.

    Disjoint balls (or different rationals, or different kinds) are different. Finite balls that overlap are equal only
    if both have a relative radius below 1e-30 and, below 4096 bits of precision, an absolute one below 1e-12: in a value
    like exp(500) an added 1 lies far below 256 bits. A ball around 0 therefore is never equal to anything but another value's own object.
    """
    if type(a) is float or type(b) is float:
        if type(a) is not type(b):
            return Same.DIFFERENT
        return Same.EQUAL if a == b or (a != a and b != b) else Same.DIFFERENT
    if type(a) is fmpq and type(b) is fmpq:
        return Same.EQUAL if a == b else Same.DIFFERENT
    left, right = as_ball(a), as_ball(b)
    if not (left.is_finite() and right.is_finite()):
        return Same.UNDECIDED
    if not left.overlaps(right):
        return Same.DIFFERENT
    return Same.EQUAL if _tight(left) and _tight(right) else Same.UNDECIDED


def _tight(x: Real) -> bool:
    if x.is_exact():
        return True
    radius = x.rad()
    return bool(radius < _TIGHT * x.abs_lower()) and (bool(radius < _SMALL) or ctx.prec >= _ENOUGH)


def shown(x: Real, digits: int = 20) -> str:
    """A value for people: exact rationals with their decimal, balls with about ``digits`` digits, kinds by name."""
    if type(x) is fmpq:
        if x.denominator == 1:
            return str(x.numerator)
        decimal = arb(x).str(digits, radius=False)
        return f"{x} = {decimal}" if len(str(x)) <= 2 * digits else str(decimal)
    if type(x) is arb:
        return str(x.str(digits, radius=False))
    return str(x).lower() if isinstance(x, (bool, float)) else str(x)
