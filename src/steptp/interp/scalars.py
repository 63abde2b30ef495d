"""What the evaluators share: integers, bools, and the algebra of floats that each evaluator plugs in.

Integers are Python integers with the range of their dtype checked after every operator; bools are Python bools.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, TypeAlias

from steptp.interp.errors import EvalError
from steptp.ir.types import DType, int_range

__all__ = ["Scalar", "Unary", "Binary", "Algebra", "int_binary", "int_unary", "INT_COMPARE", "int_cast"]

Scalar: TypeAlias = Any  # int, bool, or whatever an algebra uses for floats: closures do not look inside
Unary: TypeAlias = Callable[[Any], Any]
Binary: TypeAlias = Callable[[Any, Any], Any]


class Algebra(Protocol):
    """Float values and their operators. ``unary`` and ``binary`` cover arithmetic and functions, ``compare`` gives bools."""

    def const(self, value: float, dtype: DType) -> Scalar: ...

    def unary(self, name: str, dtype: DType) -> Unary: ...

    def binary(self, name: str, dtype: DType) -> Binary: ...

    def compare(self, name: str) -> Binary: ...

    def isnan(self) -> Unary: ...

    def cast(self, source: DType, target: DType) -> Unary:
        """A cast where at least one side is a float dtype (bools and integers arrive and leave as Python values)."""
        ...


def _overflow(name: str, dtype: DType) -> EvalError:
    return EvalError("eval-overflow", f"integer overflow: the result of {name} does not fit {dtype}")


def _floordiv(a: int, b: int) -> int:
    if b == 0:
        raise EvalError("eval-zero-division", "integer division by zero")
    return a // b


def _mod(a: int, b: int) -> int:
    if b == 0:
        raise EvalError("eval-zero-division", "integer remainder by zero")
    return a % b


def int_binary(name: str, dtype: DType) -> Binary:
    """``+ - * // % max min`` on ``dtype``; the closures raise :class:`EvalError` on overflow and division by zero."""
    low, high = int_range(dtype)
    if name == "+":

        def add(a: int, b: int) -> int:
            c = a + b
            if low <= c <= high:
                return c
            raise _overflow(name, dtype)

        return add
    if name == "-":

        def sub(a: int, b: int) -> int:
            c = a - b
            if low <= c <= high:
                return c
            raise _overflow(name, dtype)

        return sub
    if name == "*":

        def mul(a: int, b: int) -> int:
            c = a * b
            if low <= c <= high:
                return c
            raise _overflow(name, dtype)

        return mul
    if name == "//":

        def div(a: int, b: int) -> int:
            c = _floordiv(a, b)
            if c <= high:
                return c
            raise _overflow(name, dtype)

        return div
    table: dict[str, Binary] = {"%": _mod, "max": max, "min": min}
    return table[name]


def int_unary(name: str, dtype: DType) -> Unary:
    """``neg`` and ``abs`` on ``dtype``."""
    high = int_range(dtype)[1]

    def run(a: int) -> int:
        c = -a if name == "neg" else abs(a)
        if c <= high:
            return c
        raise _overflow(name, dtype)

    return run


INT_COMPARE: dict[str, Binary] = {
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
    "==": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
}


def int_cast(source: DType, target: DType) -> Unary:
    """Casts among integers and bool: int to int saturates, anything to bool is ``!= 0``, bool to int is 0 or 1."""
    if target is DType.BOOL:
        return bool
    if source is DType.BOOL:
        return int
    low, high = int_range(target)

    def saturate(a: int) -> int:
        return low if a < low else high if a > high else a

    return saturate
