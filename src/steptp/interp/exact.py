"""Programs over the reals: whole-program evaluation with rationals and balls (:mod:`steptp.interp.reals`)."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TypeVar

from flint import ctx

from steptp.interp import reals
from steptp.interp.compare import Same, compare_exact
from steptp.interp.machine import Machine, check_ranges
from steptp.interp.reals import NeedPrecision, Real, exact_const
from steptp.interp.scalars import Binary, Scalar, Unary
from steptp.ir.nodes import Program
from steptp.ir.types import DType, int_range

__all__ = [
    "PRECISIONS",
    "Undecided",
    "ExactAlgebra",
    "ExactMachine",
    "evaluate_exact",
    "at_rising_precision",
    "precision",
    "NeedPrecision",
    "Same",
    "compare_exact",
]

PRECISIONS = (256, 1024, 4096, 16384)  # tails such as 1 - tanh(1000) need thousands of bits; hardly any value needs the last step
T = TypeVar("T")
_LOCK = threading.RLock()  # python-flint keeps its precision in one global context


class Undecided(Exception):
    """A decision stayed open at the highest precision. A value of the verifier, never an error of the program."""


class ExactAlgebra:
    """Floats as exact reals; the functions are looked up in :mod:`steptp.interp.reals` when a program is compiled."""

    def const(self, value: float, dtype: DType) -> Real:
        return exact_const(value)

    def unary(self, name: str, dtype: DType) -> Unary:
        found: Unary = getattr(reals, _UNARY.get(name, name))
        return found

    def binary(self, name: str, dtype: DType) -> Binary:
        found: Binary = getattr(reals, _BINARY[name])
        return found

    def compare(self, name: str) -> Binary:
        less, equal = reals.less, reals.equal
        table: dict[str, Binary] = {
            "<": less,
            ">": lambda a, b: less(b, a),
            "<=": lambda a, b: _ordered(a, b) and not less(b, a),
            ">=": lambda a, b: _ordered(a, b) and not less(a, b),
            "==": equal,
            "!=": lambda a, b: not equal(a, b),
        }
        return table[name]

    def isnan(self) -> Unary:
        return lambda x: type(x) is float and x != x

    def cast(self, source: DType, target: DType) -> Unary:
        if target is DType.BOOL:
            equal, zero = reals.equal, exact_const(0.0)
            return lambda x: not equal(x, zero)
        if target.is_float:
            return (lambda x: x) if source.is_float else reals.rational
        low, high = int_range(target)
        truncate = reals.truncate

        def saturate(x: Real) -> int:
            if type(x) is float:
                return 0 if x != x else high if x > 0 else low
            return max(low, min(high, truncate(x)))

        return saturate


_UNARY = {"neg": "neg", "abs": "absolute", "round": "nearest"}
_BINARY = {"+": "add", "-": "sub", "*": "mul", "/": "div", "max": "maximum", "min": "minimum", "pow": "power"}


def _ordered(a: Real, b: Real) -> bool:
    return not (type(a) is float and a != a) and not (type(b) is float and b != b)


@contextmanager
def precision(bits: int) -> Iterator[None]:
    """Ball arithmetic at ``bits`` bits of precision; one thread at a time."""
    with _LOCK:
        before = ctx.prec
        ctx.prec = bits
        try:
            yield
        finally:
            ctx.prec = before


def at_rising_precision(work: Callable[[], T], precisions: Sequence[int] = PRECISIONS) -> tuple[T, int]:
    """``work()`` at the first precision that decides everything, and that precision in bits; raises :class:`Undecided`."""
    for bits in precisions:
        with precision(bits):
            try:
                return work(), bits
            except NeedPrecision:
                continue
    raise Undecided


class ExactMachine:
    """A program at its present (small) sizes, compiled once for exact evaluation."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self._machine = Machine(program, ExactAlgebra())

    def run(self, inputs: Mapping[str, list[Scalar]], precisions: Sequence[int] = PRECISIONS) -> tuple[dict[str, list[Scalar]], int]:
        """Flat inputs (rationals, kinds, ints, bools) → flat outputs and the precision in bits that was needed.

        Raises :class:`Undecided` when a branch stays open, and :class:`EvalError` as the NumPy evaluator does.
        """
        check_ranges(self.program, inputs)
        return at_rising_precision(lambda: self._machine.run(inputs), precisions)


def evaluate_exact(program: Program, inputs: Mapping[str, list[Scalar]], precisions: Sequence[int] = PRECISIONS) -> dict[str, list[Scalar]]:
    """Every output of ``program`` over the reals, as flat row-major lists; see :meth:`ExactMachine.run`."""
    return ExactMachine(program).run(inputs, precisions)[0]
