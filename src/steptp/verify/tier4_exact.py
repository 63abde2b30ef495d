"""Exact values of single output elements on the inputs of a regime: what the f64 oracle itself is held against."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from flint import arb, fmpq

from steptp.errors import StepTPError
from steptp.interp.demand import BudgetExceeded, DemandEvaluator
from steptp.interp.errors import EvalError
from steptp.interp.exact import Undecided
from steptp.interp.reals import exact_const
from steptp.interp.scalars import Scalar
from steptp.ir.nodes import Program
from steptp.ir.sizes import shape_of
from steptp.verify.compiled import print_value

__all__ = ["ExactElements", "sampled"]

Array = npt.NDArray[Any]
_PRECISIONS = (256, 1024)
_TIGHT = arb(10) ** -25
_WORK = 8_000
"""Statements that one exact element may visit."""


class ExactElements:
    """Elements of one program on given inputs, over the reals. Remembers which inputs the last one read."""

    def __init__(self, program: Program, inputs: Mapping[str, Array], work: int = _WORK) -> None:
        self._inputs = {name: np.ascontiguousarray(value).reshape(-1) for name, value in inputs.items()}
        self._shapes = {b.name: shape_of(b.shape, program) for b in program.inputs}
        self._seen: dict[tuple[str, int], Any] = {}
        self._evaluator = DemandEvaluator(program, self._read, work)

    def _read(self, name: str, flat: int) -> Scalar:
        value = self._seen[name, flat] = self._inputs[name][flat]
        return exact_const(float(value)) if value.dtype.kind == "f" else value.item()

    @property
    def work(self) -> int:
        """Statements that the last element took."""
        return self._evaluator.work

    def value(self, output: str, index: Sequence[int]) -> float | None:
        """The element as the nearest double (infinite beyond their range, NaN where it has no value); ``None`` when it takes too much work."""
        self._seen.clear()
        try:
            found, _ = self._evaluator.element(output, index, _PRECISIONS)
        except (BudgetExceeded, Undecided, EvalError, StepTPError):
            return None
        return _nearest(found)

    def read(self, most: int) -> dict[str, str]:
        """The input elements that the last value depends on, or nothing when there are more than ``most``."""
        if len(self._seen) > most:
            return {}
        return {f"{name}{_index(self._shapes[name], flat)}": print_value(value) for (name, flat), value in sorted(self._seen.items())}


def _index(shape: tuple[int, ...], flat: int) -> str:
    return f"[{','.join(str(int(i)) for i in np.unravel_index(flat, shape))}]" if shape else "[]"


def _nearest(value: Scalar) -> float | None:
    """A double within rounding of an exact value; ``None`` for a ball too wide to say."""
    if isinstance(value, (bool, int, float)):
        return float(value)
    if isinstance(value, fmpq):
        try:
            return int(value.numerator) / int(value.denominator)
        except OverflowError:
            return math.copysign(math.inf, int(value.numerator))
    if not value.is_finite():
        return None
    middle = value.mid()
    if value.rad() > _TIGHT * abs(middle) and value.rad() > arb(2) ** -1100:
        return None
    return float(middle)


def sampled(shape: tuple[int, ...], count: int, seed: int) -> list[tuple[int, ...]]:
    """The last corner, the first, and random elements."""
    if 0 in shape:
        return []
    rng = np.random.default_rng(seed)
    found = [tuple(n - 1 for n in shape), tuple(0 for _ in shape)]
    found += [tuple(int(rng.integers(n)) for n in shape) for _ in range(count - 2)]
    return list(dict.fromkeys(found))
