"""Real numbers for exact evaluation: rationals, balls, and the special kinds ±inf and NaN.

A float value of a program is one of

* ``fmpq``: an exact rational;
* ``arb``: a finite ball that contains the real value (``python-flint``; F. Johansson, *Arb: efficient arbitrary-precision
  midpoint-radius interval arithmetic*, IEEE Trans. Computers 66, 2017);
* a Python ``float`` that is inf, -inf or NaN: a kind, never a number.

Rounding is ignored: casts between float dtypes are the identity. Zero has no sign, so ``x/0`` is inf for x > 0. A decision
(comparison, floor, division, domain of a function) that a ball does not settle raises :class:`NeedPrecision`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any, TypeAlias

from flint import arb, fmpq, fmpz

__all__ = ["Real", "NeedPrecision", "exact_const", "rational", "as_ball", "sign", "less", "equal", "MAX_BITS"]

Real: TypeAlias = Any  # fmpq | arb | float (special kinds only); python-flint has no type stubs

MAX_BITS = 1024  # an exact rational that grows beyond this many bits becomes a ball
ZERO, ONE = fmpq(0), fmpq(1)
_HUGE = arb(2) ** 20_000
INF, NAN = math.inf, math.nan


class NeedPrecision(Exception):
    """A ball was too wide for a decision. Evaluate again with more bits; if that never helps, the result is undecided."""


def exact_const(value: float) -> Real:
    """A double as its exact value or kind."""
    if not math.isfinite(value):
        return value
    return fmpq(*value.as_integer_ratio())


def finite(value: Real) -> Real:
    """``value``, a fresh ball; raises :class:`NeedPrecision` if it is not finite (the operation was not defined on the whole ball)."""
    if value.is_finite():
        return value
    raise NeedPrecision


def sign(x: Real) -> int:
    """-1, 0 or 1 of a finite value or infinity; raises :class:`NeedPrecision` when a ball contains 0 and more."""
    if x > 0:
        return 1
    if x < 0:
        return -1
    if type(x) is arb and not x.is_zero():
        raise NeedPrecision
    return 0


def as_ball(x: Real) -> Real:
    """A finite value as a ball at the present precision."""
    return x if type(x) is arb else arb(x)


def as_rational(x: Real) -> Real | None:
    """The rational that a finite value is known to be, else ``None``."""
    if type(x) is fmpq:
        return x
    if x.is_exact() and _moderate(x):
        return x.fmpq()
    return None


def _moderate(x: Real) -> bool:
    """Whether a ball's exponents are small enough to write it out in digits (those of ``exp(exp(20))`` are not)."""
    return bool(x.is_zero() or (x.abs_upper() < _HUGE and x.abs_lower() * _HUGE > 1))


def less(a: Real, b: Real) -> bool:
    """``a < b`` with NaN false; raises :class:`NeedPrecision` when balls overlap."""
    if type(a) is float or type(b) is float:
        return _less_special(a, b)
    if a < b:
        return True
    if a >= b:
        return False
    if a is b:
        return False
    raise NeedPrecision


def _less_special(a: Real, b: Real) -> bool:
    if a != a or b != b:
        return False
    left = a if type(a) is float else 0.0
    right = b if type(b) is float else 0.0
    return left < right


def equal(a: Real, b: Real) -> bool:
    """``a == b`` with NaN false; raises :class:`NeedPrecision` when balls overlap and are not exact."""
    if type(a) is float or type(b) is float:
        return type(a) is type(b) and bool(a == b)
    if a is b or a == b:
        return True
    if a < b or a > b:
        return False
    raise NeedPrecision


def rational(value: int | bool) -> Real:
    """An integer or bool as a rational."""
    return fmpq(int(value))


# arithmetic


def _bounded(q: Real) -> Real:
    return q if q.height_bits() <= MAX_BITS else arb(q)


def add(a: Real, b: Real) -> Real:
    if type(a) is arb and type(b) is arb:
        return a + b
    if type(a) is float or type(b) is float:
        return _number(a) + _number(b)
    c = a + b
    return c if type(c) is arb else _bounded(c)


def sub(a: Real, b: Real) -> Real:
    if type(a) is float or type(b) is float:
        return _number(a) - _number(b)
    if a is b:
        return ZERO
    c = a - b
    return c if type(c) is arb else _bounded(c)


def mul(a: Real, b: Real) -> Real:
    if type(a) is arb and type(b) is arb:
        return a * b
    if type(a) is float or type(b) is float:
        return _signed(a) * _signed(b)
    c = a * b
    return c if type(c) is arb else _bounded(c)


def div(a: Real, b: Real) -> Real:
    if type(a) is float or type(b) is float:
        if a != a or b != b or (type(a) is float and type(b) is float):
            return NAN
        if type(b) is float:
            return ZERO
        return a if sign(b) >= 0 else -a
    below = sign(b)
    if below == 0:
        above = sign(a)
        return NAN if above == 0 else above * INF
    c = a / b
    return c if type(c) is arb else _bounded(c)


def _number(x: Real) -> float:
    """For sums with a special kind: any finite value does as 0."""
    return x if type(x) is float else 0.0


def _signed(x: Real) -> float:
    """For products with a special kind: only the sign of a finite value matters."""
    return x if type(x) is float else float(sign(x))


def maximum(a: Real, b: Real) -> Real:
    """``max`` is continuous, so for overlapping balls the ball of the maximum is itself an answer (no branch is guessed)."""
    if type(a) is float or type(b) is float:
        if a != a or b != b:
            return NAN
        return b if _less_special(a, b) else a
    if a >= b or a is b:
        return a
    if a < b:
        return b
    return as_ball(a).max(as_ball(b))


def minimum(a: Real, b: Real) -> Real:
    if type(a) is float or type(b) is float:
        if a != a or b != b:
            return NAN
        return a if _less_special(a, b) else b
    if a <= b or a is b:
        return a
    if a > b:
        return b
    return as_ball(a).min(as_ball(b))


def neg(x: Real) -> Real:
    return -x


def absolute(x: Real) -> Real:
    return abs(x)


# functions: (ball function, exact value at rationals where it is rational, values at inf and -inf)


def _function(how: Callable[[Any], Any], at_zero: Real | None, at_inf: Real, at_minus_inf: Real) -> Callable[[Real], Real]:
    def run(x: Real) -> Real:
        if type(x) is float:
            return x if x != x else at_inf if x > 0 else at_minus_inf
        if at_zero is not None and x == 0:
            return at_zero
        value = how(x if type(x) is arb else arb(x))
        return value if value.is_finite() else finite(value)

    return run


def _sigmoid(x: Any) -> Any:
    return 1 / (1 + (-x).exp())


exp = _function(lambda x: x.exp(), ONE, INF, ZERO)
expm1 = _function(lambda x: x.expm1(), ZERO, INF, fmpq(-1))
tanh = _function(lambda x: x.tanh(), ZERO, ONE, fmpq(-1))
erf = _function(lambda x: x.erf(), ZERO, ONE, fmpq(-1))
sin = _function(lambda x: x.sin(), ZERO, NAN, NAN)
cos = _function(lambda x: x.cos(), ONE, NAN, NAN)
sigmoid = _function(_sigmoid, fmpq(1, 2), ONE, ZERO)


def log(x: Real) -> Real:
    if type(x) is float:
        return x if x != x or x > 0 else NAN
    side = sign(x)
    if side <= 0:
        return -INF if side == 0 else NAN
    return ZERO if x == 1 else finite(as_ball(x).log())


def log1p(x: Real) -> Real:
    if type(x) is float or x == -1:
        return log(add(ONE, x))
    if x == 0:
        return ZERO
    return log(ONE + x) if not x > -1 else finite(as_ball(x).log1p())


def sqrt(x: Real) -> Real:
    """Exact where the operand is the square of a rational."""
    if type(x) is float:
        return x if x != x or x > 0 else NAN
    side = sign(x)
    if side <= 0:
        return ZERO if side == 0 else NAN
    exact = as_rational(x)
    if exact is not None:
        root = fmpq(exact.numerator.isqrt(), exact.denominator.isqrt())
        if root * root == exact:
            return root
    return finite(as_ball(x).sqrt())


def rsqrt(x: Real) -> Real:
    return div(ONE, sqrt(x))


def _whole(x: Real, how: Callable[[Real], int]) -> Real:
    if type(x) is float:
        return x
    exact = as_rational(x)
    if exact is not None:
        return fmpq(how(exact))
    if not x.abs_upper() < _HUGE:
        raise NeedPrecision  # no precision in use reaches the units digit
    low, high = how(_end(x.lower())), how(_end(x.upper()))
    if low != high:
        raise NeedPrecision
    return fmpq(low)


def _end(x: Real) -> Real:
    """An end of a ball as a rational; one that is too small to write out is replaced by a larger number of its sign below 1/2."""
    return x.fmpq() if _moderate(x) else fmpq(1 if x > 0 else -1, 4)


def _floor(q: Real) -> int:
    return int(q.numerator // q.denominator)


def _nearest_even(q: Real) -> int:
    return round(Fraction(int(q.numerator), int(q.denominator)))


def floor(x: Real) -> Real:
    return _whole(x, _floor)


def ceil(x: Real) -> Real:
    return _whole(x, lambda q: -_floor(-q))


def nearest(x: Real) -> Real:
    return _whole(x, _nearest_even)


def truncate(x: Real) -> int:
    """Toward zero, as an integer; raises :class:`NeedPrecision` where a ball reaches over an integer."""
    return int(_whole(x, lambda q: _floor(q) if q >= 0 else -_floor(-q)).numerator)


def power(a: Real, b: Real) -> Real:
    """IEEE ``pow`` over the reals: an exact integer or half-integer exponent stays exact where it can."""
    if type(b) is not float and (exponent := as_rational(b)) is not None:
        if exponent == 0:
            return ONE
        if type(a) is float:
            return exact_const(math.pow(a, float(exponent)))
        if exponent.denominator == 1 and abs(exponent) <= 64:
            whole = int(exponent.numerator)
            return div(ONE, _integer_power(a, -whole)) if whole < 0 else _integer_power(a, whole)
        side = sign(a)
        if side == 0:
            return ZERO if exponent > 0 else INF
        if side > 0:
            return sqrt(a) if exponent == fmpq(1, 2) else finite(as_ball(a) ** arb(exponent))
        if exponent.denominator != 1:
            return NAN
        return finite(as_ball(a) ** fmpz(exponent.numerator))
    if type(a) is float or type(b) is float:
        return _power_special(a, b)
    side = sign(a)
    if side < 0:
        raise NeedPrecision  # defined only where the exponent is an integer, which an inexact ball cannot tell
    if side == 0:
        return ZERO if sign(b) > 0 else INF
    return ONE if a == 1 else finite(as_ball(a) ** b)


def _power_special(a: Real, b: Real) -> Real:
    if type(a) is not float and a == 1:
        return ONE
    if type(b) is float:
        if a != a or b != b:
            return NAN
        size = INF if type(a) is float else None
        if size is None:
            magnitude = absolute(a)
            size = 2.0 if less(ONE, magnitude) else 1.0 if equal(magnitude, ONE) else 0.5
        return exact_const(math.pow(size, b))
    return NAN if a != a else exact_const(math.pow(a, float(sign(b)) * 0.5 if a < 0 else float(sign(b))))


def _integer_power(a: Real, n: int) -> Real:
    result = a
    for _ in range(n - 1):
        result = mul(result, a)
    return result
