"""Runs a program at tiny sizes in a finite field, where sums and products are exact and everything else is an unknown function.

Two programs that store equal values are equal as rational functions of what the unknown functions give, but for a chance of about 2^-40 (the lemma
of Schwartz and Zippel): so they are equal over the reals wherever both are defined.
"""

from __future__ import annotations

import math

from steptp.errors import LeirError
from steptp.ir.nodes import Cast, Const, Expr, Load, Op, Program, Size, Var
from steptp.reason.rederive.symbolic import Element, Value, _Code, _Executor, _hash, _Multiset, _select

__all__ = ["field_values"]

PRIME = (1 << 61) - 1


def field_values(program: Program, limit: int = 60_000) -> dict[Element, Value]:
    """The last value of every element that is stored to. Raises :class:`LeirError` where a divisor is 0 or the work too much."""
    return {element: history[-1] for element, history in _Field(program, True, None, limit).run().histories.items() if history}


def _as(number: int) -> str:
    return f"={number % PRIME}"


def _number(value: Value) -> int:
    """A value as an element of the field; an unknown one is a fixed random element."""
    if isinstance(value, int):
        return value % PRIME
    return int(value[1:]) if value.startswith("=") else int(_hash(value), 16) % PRIME


def _inverse(number: int) -> int:
    if number % PRIME == 0:
        raise LeirError("check-budget", "a division by 0 in the field")
    return pow(number, PRIME - 2, PRIME)


def _literal(value: float) -> str:
    if not math.isfinite(value):
        return _as(_number(_hash("const", repr(value))))
    top, bottom = value.as_integer_ratio()
    return _as(top * _inverse(bottom))


def _combined(name: str, a: int, b: int) -> str:
    if name == "+":
        return _as(a + b)
    if name == "-":
        return _as(a - b)
    return _as(a * (b if name == "*" else _inverse(b)))


class _Field(_Executor):
    """Floats are elements of the field; integers, conditions and indices are as in the symbolic run."""

    def _given(self, element: Element) -> Value:
        source = self.inputs.get(element[0])
        if source is not None and source.dtype.is_float:
            return _as(_number(_hash("input", *element)))
        return super()._given(element)

    def _accumulate(
        self,
        held: dict[tuple[int, ...], Value | _Multiset],
        index: tuple[int, ...],
        reduce: str,
        value: Value | _Multiset,
        history: list[Value],
    ) -> None:
        old = held.get(index, "undefined")
        if isinstance(old, str) and old.startswith("=") and isinstance(value, str):
            a, b = _number(old), _number(value)
            after = _combined(reduce, a, b) if reduce in ("+", "*") else _as(_number(_hash(reduce, a, b)))
            held[index] = after
            history.append(after)
        else:
            super()._accumulate(held, index, reduce, value, history)

    def _compile(self, expr: Expr) -> _Code:
        if not expr.dtype.is_float or isinstance(expr, (Load, Var, Size)):
            return super()._compile(expr)
        if isinstance(expr, Const):
            constant = _literal(float(expr.value))
            return lambda: constant
        if isinstance(expr, Cast):
            arg = self._code(expr.arg)
            return lambda: _as(_number(arg()))
        assert isinstance(expr, Op)
        args = [self._code(a) for a in expr.args]
        if expr.name == "select":
            return lambda: _as(_number(_select(*args)))
        if expr.name in ("+", "-", "*", "/"):
            return lambda: _combined(expr.name, _number(args[0]()), _number(args[1]()))
        if expr.name == "neg":
            return lambda: _as(-_number(args[0]()))
        return lambda: _as(_number(_hash(expr.name, *(_number(a()) for a in args))))
