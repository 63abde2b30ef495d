"""Inputs on the other side of a branch, found by z3: dynamic symbolic execution over the rationals.

Both programs run once on concrete rationals that carry z3 expressions along (Godefroid, Klarlund and Sen, "DART", 2005). For every comparison that only the
mutant makes, z3 is asked for inputs on which it goes the other way. Covers ``+ - *``, division by constants, ``max min abs`` and comparisons; programs
with other functions, or too large ones, give nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from steptp.errors import LeirError
from steptp.interp.cost import count_instances
from steptp.interp.errors import EvalError
from steptp.interp.machine import Machine
from steptp.interp.scalars import Binary, Unary
from steptp.ir.nodes import Op, Program
from steptp.ir.sizes import shape_of
from steptp.ir.types import DType
from steptp.ir.walk import stmt_exprs, subexprs, visit
from steptp.mutate.inputs import Inputs, draw

__all__ = ["branch_inputs"]

_MOST_INSTANCES, _MOST_INPUTS, _MOST_QUERIES, _MOST_HERE = 3000, 120, 12, 4
_BOUND, _TIMEOUT_MS = 4096, 250
_KNOWN = frozenset({"+", "-", "*", "/", "max", "min", "abs", "neg", "select", "and", "or", "not", "<", "<=", ">", ">=", "==", "!=", "//", "%"})


class _Beyond(Exception):
    """The program computes something that is not followed symbolically."""


@dataclass(frozen=True, slots=True)
class _Value:
    """A rational, and the expression over the inputs that it is the value of."""

    number: Fraction
    term: Any


class _Algebra:
    """Floats as :class:`_Value`; comparisons note their condition and go the way of the numbers."""

    def __init__(self) -> None:
        self.conditions: dict[str, tuple[Any, bool]] = {}

    def const(self, value: float, dtype: DType) -> _Value:
        import z3

        if not np.isfinite(value):
            return _Value(Fraction(10**30 if value > 0 else -(10**30)), z3.RealVal(10**30 if value > 0 else -(10**30)))
        number = Fraction(value)
        return _Value(number, z3.RealVal(f"{number.numerator}/{number.denominator}"))

    def unary(self, name: str, dtype: DType) -> Unary:
        if name == "neg":
            return lambda a: _Value(-a.number, -a.term)
        if name == "abs":
            return lambda a: a if self._holds("<=", self.const(0.0, dtype), a) else _Value(-a.number, -a.term)
        raise _Beyond

    def binary(self, name: str, dtype: DType) -> Binary:
        def run(a: _Value, b: _Value) -> _Value:
            if name == "+":
                return _Value(a.number + b.number, a.term + b.term)
            if name == "-":
                return _Value(a.number - b.number, a.term - b.term)
            if name == "*":
                return _Value(a.number * b.number, a.term * b.term)
            if name in ("max", "min"):
                first = self._holds("<=", b, a)
                return a if first == (name == "max") else b
            if name == "/" and b.number:
                return _Value(a.number / b.number, a.term / b.term)
            raise _Beyond

        return run

    def compare(self, name: str) -> Binary:
        return lambda a, b: self._holds(name, a, b)

    def _holds(self, name: str, a: _Value, b: _Value) -> bool:
        x, y = a.number, b.number
        held = {"<": x < y, "<=": x <= y, ">": x > y, ">=": x >= y, "==": x == y, "!=": x != y}[name]
        s, t = a.term, b.term
        term = {"<": lambda: s < t, "<=": lambda: s <= t, ">": lambda: s > t, ">=": lambda: s >= t, "==": lambda: s == t, "!=": lambda: s != t}[name]()
        self.conditions.setdefault(str(term.sexpr()) if hasattr(term, "sexpr") else str(term), (term, held))
        return held

    def isnan(self) -> Unary:
        return lambda a: False

    def cast(self, source: DType, target: DType) -> Unary:
        if source.is_float and target.is_float:
            return lambda a: a
        if not source.is_float and target.is_float:
            return lambda n: self.const(float(n), target)
        raise _Beyond


def _followed(program: Program) -> bool:
    names = {e.name for m in visit(program) for x in stmt_exprs(m.stmt) for e in subexprs(x) if isinstance(e, Op)}
    return names <= _KNOWN and count_instances(program, program.size_env) <= _MOST_INSTANCES


def _conditions(program: Program, inputs: Inputs) -> dict[str, tuple[Any, bool]]:
    """Conditions on the inputs that one run decides, and how."""
    import z3

    algebra = _Algebra()
    flat: dict[str, list[Any]] = {}
    for name, array in inputs.items():
        if array.dtype.kind == "f":
            flat[name] = [_Value(Fraction(float(v)), z3.Real(f"{name}.{n}")) for n, v in enumerate(array.ravel().tolist())]
        else:
            flat[name] = array.ravel().tolist()
    Machine(program, algebra).run(flat)
    return algebra.conditions


def branch_inputs(parent: Program, mutant: Program, seed: int) -> Iterator[Inputs]:
    """Inputs on which a comparison of the mutant, which the parent does not make, goes the other way than on one draw; and, where that
    leads to further comparisons, on which those go the other way too."""
    floats = sum(int(np.prod(shape_of(b.shape, parent))) for b in parent.inputs if b.dtype.is_float)
    if not 0 < floats <= _MOST_INPUTS or not _followed(parent) or not _followed(mutant):
        return
    pending: list[tuple[Inputs, list[Any]]] = [(draw(parent, "whole", seed), [])]
    known: set[str] = set()
    queries = 0
    while pending and queries < _MOST_QUERIES:
        inputs, path = pending.pop()
        try:
            own, others = _conditions(mutant, inputs), _conditions(parent, inputs)
        except (_Beyond, EvalError, LeirError):
            return
        fresh = {text: found for text, found in own.items() if text not in others and text not in known}
        known |= fresh.keys()
        step = max(len(fresh) // _MOST_HERE, 1)
        for term, held in list(fresh.values())[::step][:_MOST_HERE]:
            queries += 1
            here = [*path, _not(term) if held else term]
            if (model := _model(here, inputs)) is not None:
                yield model
                pending.append((model, here))


def _not(term: Any) -> Any:
    import z3

    return z3.Not(term)


def _model(path: list[Any], base: Inputs) -> Inputs | None:
    import z3

    solver = z3.Solver()
    solver.set("timeout", _TIMEOUT_MS)
    solver.add(*path)
    names = {f"{name}.{n}": (name, n) for name, array in base.items() if array.dtype.kind == "f" for n in range(array.size)}
    for text in names:
        solver.add(z3.Real(text) <= _BOUND, z3.Real(text) >= -_BOUND)
    if solver.check() != z3.sat:
        return None
    found = {name: array.copy() for name, array in base.items()}
    for variable in solver.model().decls():
        if variable.name() not in names:  # z3's own functions, such as division by zero
            continue
        name, position = names[variable.name()]
        value = solver.model()[variable]
        number = value.as_fraction() if hasattr(value, "as_fraction") else Fraction(value.approx(20).as_fraction())
        found[name].reshape(-1)[position] = float(number)
    return found
