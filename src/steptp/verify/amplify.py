"""Where a rounding error is born: the subterm whose error its operands do not explain.

One element is evaluated twice, in the program's own dtypes and exactly, and both unfoldings are read side by side (shadow execution, as in
F. Benz, A. Hildebrandt and S. Hack, *A dynamic program analysis to find floating-point accuracy problems*, PLDI 2012).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from flint import arb, fmpq

from steptp.interp.demand import BudgetExceeded
from steptp.interp.exact import Undecided, precision
from steptp.interp.numpy_eval import FloatAlgebra
from steptp.interp.reals import exact_const
from steptp.interp.trace import Term, Tracer
from steptp.ir.nodes import Program
from steptp.ir.types import DType
from steptp.verify.explain_text import decimal

__all__ = ["Birth", "birth"]

_UNIT = {DType.F16: 2.0**-11, DType.BF16: 2.0**-8, DType.F32: 2.0**-24, DType.F64: 2.0**-53}
_PART = 0.1  # share of a term's error that an operand must have to be the reason
_BUDGET = 60_000
_LEAVES = 400


@dataclass(frozen=True, slots=True)
class Birth:
    """A subterm of the rounded evaluation: both its values, and how many times its operands' error (or one rounding) its own is.

    ``trail`` are the terms from the element, which comes out as ``result``, down to it.
    """

    term: Term
    own: str
    exact: str
    amplified: float
    result: float
    inputs: tuple[tuple[str, tuple[int, ...], str], ...]
    trail: tuple[Term, ...]


def birth(program: Program, source: Callable[[str, int], Any], output: str, index: Sequence[int]) -> Birth | None:
    """The birth of the error of one element; ``source`` gives input elements as Python numbers.

    Nothing where the element needs too much work or exact evaluation stays undecided.
    """
    rounded = Tracer(program, source, _BUDGET, FloatAlgebra())
    real = Tracer(program, lambda name, flat: _exact(source(name, flat)), _BUDGET)
    try:
        value, _ = rounded.element(output, index)
        _, bits = real.element(output, index)
    except (BudgetExceeded, Undecided):
        return None
    with precision(bits):
        return _followed(rounded.trace(output, index), real.trace(output, index), float(value))


def _followed(here: Term, there: Term, result: float) -> Birth:
    """Down both unfoldings, to the operand with the largest error, as long as one has its share of it."""
    trail = [here]
    while True:
        pairs = [(a, b) for a, b in zip(here.args, there.args, strict=False) if a.dtype.is_float and a.head == b.head]
        away = _absolute if here.folded else _relative  # one term of many, or an operand whose error the operator may amplify
        own, errors = away(here.value, there.value), [away(a.value, b.value) for a, b in pairs]
        worst = max(range(len(pairs)), key=errors.__getitem__, default=None)
        if worst is None or not (errors[worst] >= _PART * own and own > 0):
            break
        here, there = pairs[worst]
        trail.append(here)
    unit = _UNIT.get(here.dtype, 2.0**-53)
    own, before = _relative(here.value, there.value), max((_relative(a.value, b.value) for a, b in pairs), default=0.0)
    amplified = own / max(before, unit) if math.isfinite(own) else math.inf
    inputs = tuple((*leaf.element, repr(leaf.value)) for leaf in (here.leaves() or [])[:_LEAVES] if leaf.element is not None)
    return Birth(here, decimal(float(here.value), 10), decimal(there.value, 10), amplified, result, inputs, tuple(trail))


def _exact(value: Any) -> Any:
    return exact_const(value) if isinstance(value, float) else value


def _relative(own: Any, exact: Any) -> float:
    """The relative error of a rounded value."""
    away = _absolute(own, exact)
    return away if exact == 0 or not math.isfinite(away) or isinstance(exact, float) else away / abs(float(arb(exact).mid()) or 1.0)


def _absolute(own: Any, exact: Any) -> float:
    """The error of a rounded value; infinite where one side is no number and the other is."""
    if isinstance(exact, float) or not math.isfinite(own):
        same = isinstance(exact, float) and (own == exact or (own != own and exact != exact))
        return 0.0 if same else math.inf
    if not isinstance(exact, (fmpq, arb)):
        return 0.0 if own == exact else math.inf
    return float(abs(arb(exact) - arb(own)).mid())
