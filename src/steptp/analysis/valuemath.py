"""Interval arithmetic of :mod:`steptp.analysis.values`: ranges of reals with a sign, an infinity and a NaN in mind."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

from steptp.ir.nodes import Const, Expr

__all__ = ["ValueRange", "ANY", "REAL", "function", "hull", "meet", "point", "power", "product", "quotient", "total"]

INF = math.inf


@dataclass(frozen=True, slots=True)
class ValueRange:
    """A value that is a number lies in ``low`` .. ``high``, and is not 0 if ``nonzero``. ``finite``: it is neither infinite nor NaN;
    ``number``: it is not NaN."""

    low: float
    high: float
    nonzero: bool
    finite: bool
    number: bool = False

    def __post_init__(self) -> None:
        if self.finite:
            object.__setattr__(self, "number", True)
        if self.low > 0 or self.high < 0:
            object.__setattr__(self, "nonzero", True)

    @property
    def positive(self) -> bool:
        return self.low >= 0 and self.nonzero

    @property
    def negative(self) -> bool:
        return self.high <= 0 and self.nonzero

    @property
    def nonnegative(self) -> bool:
        return self.low >= 0

    @property
    def negated(self) -> ValueRange:
        return ValueRange(-self.high, -self.low, self.nonzero, self.finite, self.number)


ANY = ValueRange(-INF, INF, False, False)
REAL = ValueRange(-INF, INF, False, True)


def point(value: float) -> ValueRange:
    """One literal."""
    if math.isnan(value):
        return ANY
    return ValueRange(value, value, value != 0, math.isfinite(value), True)


def hull(a: ValueRange, b: ValueRange) -> ValueRange:
    return ValueRange(min(a.low, b.low), max(a.high, b.high), a.nonzero and b.nonzero, a.finite and b.finite, a.number and b.number)


def meet(a: ValueRange, b: ValueRange) -> ValueRange:
    """Both hold; where they exclude one another (dead code) the first is kept."""
    low, high = max(a.low, b.low), min(a.high, b.high)
    return a if low > high else ValueRange(low, high, a.nonzero or b.nonzero, a.finite or b.finite, a.number or b.number)


def _down(exact: Fraction) -> float:
    try:
        near = float(exact)
    except OverflowError:
        return -INF if exact < 0 else math.nextafter(INF, 0)
    return near if near <= exact else math.nextafter(near, -INF)


def _sum(a: float, b: float, up: bool) -> float:
    if math.isinf(a) or math.isinf(b):
        return a + b if a + b == a + b else INF if up else -INF
    exact = Fraction(a) + Fraction(b)
    return -_down(-exact) if up else _down(exact)


def _times(a: float, b: float, up: bool) -> float:
    if a == 0 or b == 0:
        return 0.0
    if math.isinf(a) or math.isinf(b):
        return math.copysign(INF, a) * math.copysign(1.0, b)
    exact = Fraction(a) * Fraction(b)
    return -_down(-exact) if up else _down(exact)


def total(a: ValueRange, b: ValueRange) -> ValueRange:
    """a + b."""
    same = (a.low >= 0 and b.low >= 0) or (a.high <= 0 and b.high <= 0)
    return ValueRange(_sum(a.low, b.low, False), _sum(a.high, b.high, True), same and (a.nonzero or b.nonzero), a.finite and b.finite)


def product(a: ValueRange, b: ValueRange) -> ValueRange:
    ends = [(x, y) for x in (a.low, a.high) for y in (b.low, b.high)]
    low, high = min(_times(x, y, False) for x, y in ends), max(_times(x, y, True) for x, y in ends)
    return ValueRange(low, high, a.nonzero and b.nonzero and a.finite and b.finite, a.finite and b.finite)


def quotient(a: ValueRange, b: ValueRange) -> ValueRange:
    """a / b; without a divisor that is surely not 0 only the sign is known."""
    if b.positive or b.negative:
        return product(a, _reciprocal(b))
    if b.nonnegative:
        return ValueRange(0.0 if a.low >= 0 else -INF, 0.0 if a.high <= 0 else INF, False, False)
    return ValueRange(-INF, INF, a.nonzero and b.finite and a.finite, a.finite and b.finite and b.nonzero)


def _reciprocal(b: ValueRange) -> ValueRange:
    if b.negative:
        return _reciprocal(b.negated).negated
    low = 0.0 if math.isinf(b.high) else _down(1 / Fraction(b.high))
    high = INF if b.low == 0 else -_down(-1 / Fraction(b.low)) if math.isfinite(b.low) else 0.0
    return ValueRange(max(low, 0.0), high, b.finite, b.finite)


def power(a: ValueRange, exponent: Expr, b: ValueRange) -> ValueRange:
    """pow(a, b)."""
    if a.nonnegative:
        return ValueRange(0.0, INF, a.nonzero and a.finite and b.finite, a.finite and b.finite and (a.nonzero or b.low > 0))
    if isinstance(exponent, Const) and float(exponent.value).is_integer() and exponent.value >= 0:
        even = float(exponent.value) % 2 == 0
        return ValueRange(0.0 if even else -INF, INF, a.nonzero and a.finite, a.finite)
    return ANY


_Ends = Callable[[float], float]


def _grown(value: float, up: bool) -> float:
    """An end of a library function, moved outward by more than its error; 0, 1 and infinities are exact here."""
    if value == 0 or math.isinf(value):
        return value
    return value + (1 if up else -1) * max(abs(value) * 1e-12, 5e-324)


def _monotone(how: _Ends, a: ValueRange, floor: float, ceiling: float) -> tuple[float, float]:
    low = floor if math.isinf(a.low) else max(_grown(how(a.low), False), floor)
    high = ceiling if math.isinf(a.high) else min(_grown(how(a.high), True), ceiling)
    return low, high


def _exp(x: float) -> float:
    return math.exp(x) if x < 700 else INF


def _exponential(a: ValueRange) -> ValueRange:
    low, high = _monotone(_exp, a, 0.0, INF)
    return ValueRange(max(low, 0.0), high, a.finite, a.finite)


def _logarithm(a: ValueRange, shift: float) -> ValueRange:
    """log, or log1p with ``shift`` 1."""
    defined = a.positive if not shift else a.low > -1
    bottom = a.low + shift
    low = _grown(math.log(bottom), False) if 0 < bottom < INF else -INF
    high = INF if math.isinf(a.high) or a.high + shift <= 0 else _grown(math.log(a.high + shift), True)
    if shift and a.low >= 0:
        low = max(low, 0.0)
    return ValueRange(low, high, bool(shift) and a.nonzero and a.low >= 0, a.finite and defined)


def _root(a: ValueRange, inverse: bool) -> ValueRange:
    low = _grown(math.sqrt(a.low), False) if 0 < a.low < INF else 0.0
    high = INF if math.isinf(a.high) else _grown(math.sqrt(max(a.high, 0.0)), True)
    root = ValueRange(max(low, 0.0), high, a.positive, a.finite and a.nonnegative)
    return quotient(point(1.0), root) if inverse else root


def _clipped(name: str, a: ValueRange, b: ValueRange) -> ValueRange:
    pick = max if name == "max" else min
    low, high = pick(a.low, b.low), pick(a.high, b.high)
    nonzero = (a.nonzero and b.nonzero) or (name == "max" and (a.positive or b.positive)) or (name == "min" and (a.negative or b.negative))
    return ValueRange(low, high, nonzero, a.finite and b.finite, a.number and b.number)


def _bounded(a: ValueRange, how: _Ends, floor: float, ceiling: float, nonzero: bool) -> ValueRange:
    low, high = _monotone(how, a, floor, ceiling)
    return ValueRange(low, high, nonzero, a.finite)


def function(name: str, *given: ValueRange) -> ValueRange:
    """The range of an operator that has no rule of its own above."""
    a = given[0]
    if name == "neg":
        return a.negated
    if name == "abs":
        return ValueRange(0.0 if a.low <= 0 <= a.high else min(abs(a.low), abs(a.high)), max(abs(a.low), abs(a.high)), a.nonzero, a.finite, a.number)
    if name in ("max", "min"):
        return _clipped(name, *given)
    if name == "exp":
        return _exponential(a)
    if name in ("log", "log1p"):
        return _logarithm(a, 1.0 if name == "log1p" else 0.0)
    if name in ("sqrt", "rsqrt"):
        return _root(a, name == "rsqrt")
    if name == "expm1":
        return _bounded(a, lambda x: math.expm1(x) if x < 700 else INF, -1.0, INF, a.nonzero)
    if name == "sigmoid":
        return _bounded(a, lambda x: 1 / (1 + math.exp(-x)) if x > -700 else 0.0, 0.0, 1.0, a.finite)
    if name in ("tanh", "erf"):
        return _bounded(a, math.tanh if name == "tanh" else math.erf, -1.0, 1.0, a.nonzero)
    if name in ("sin", "cos"):
        return ValueRange(-1.0, 1.0, False, a.finite)
    if name in ("floor", "ceil", "round"):
        return ValueRange(a.low - 1 if name != "ceil" else a.low, a.high + 1 if name != "floor" else a.high, False, a.finite)
    return ANY
