"""Inputs on which two programs part, at real sizes, and the NumPy evaluator's word on them.

Exact evaluation finds a witness; floats confirm it: the same element, the same inputs, the float algebra of
:mod:`steptp.interp.numpy_eval` in f64. Where one element needs more work than a walk can do, whole arrays are evaluated.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from steptp.errors import LeirError
from steptp.interp.compare import Same, shown
from steptp.interp.cost import count_instances
from steptp.interp.demand import BudgetExceeded, DemandEvaluator
from steptp.interp.errors import EvalError
from steptp.interp.exact import Undecided, precision
from steptp.ir.nodes import Program
from steptp.ir.sizes import shape_of
from steptp.verify.findings import same_value
from steptp.verify.regimes import ALL_ZERO, LAZY_NOTE, exact_inputs, float_inputs, lazy_inputs
from steptp.verify.samples import sample_indices
from steptp.verify.verdict import Counterexample

__all__ = ["ALL_ZERO", "Probe", "probe", "confirmed", "array_witness", "source_of"]

_APART = 1e-9  # relative distance beyond which f64 results count as different: exact values differ, rounding explains less


@dataclass(frozen=True, slots=True)
class Probe:
    """What probing found: elements compared and the first one that differs."""

    elements: int
    counterexample: Counterexample | None = None


def source_of(program: Program, regime: str, seed: int) -> Callable[[str, int], Any]:
    """Exact input elements of a regime, one at a time, for demand-driven evaluation at any size."""
    draws = lazy_inputs(program, regime, seed)
    return lambda name, flat: draws[name].exact(flat)


def probe(parent: Program, child: Program, regimes: Sequence[str], *, seed: int = 0, points: int = 3, element: int = 50_000, total: int = 200_000) -> Probe:
    """Compare sampled output elements exactly, in ``regimes``; ``element`` and ``total`` bound the visited statements. Finds differences, proves nothing."""
    count = work = 0
    for regime in regimes:
        try:
            pair = [DemandEvaluator(p, source_of(p, regime, seed), element) for p in (parent, child)]
        except LeirError:
            break
        for buffer, index in sample_indices(parent, child, points, seed):
            if work > total:
                break
            values = []
            try:
                for evaluator in pair:
                    values.append(evaluator.element(buffer.name, index))
                    work += evaluator.work
            except EvalError as err:
                if values:  # only the child has no value here
                    found = Counterexample(buffer.name, index, shown(values[0][0]), err.message, (), regime, seed, LAZY_NOTE)
                    return Probe(count, found)
                continue
            except (BudgetExceeded, Undecided):
                work += element
                continue
            count += 1
            with precision(max(bits for _, bits in values)):
                (a, _), (b, _) = values
                if same_value(buffer, a, b) is Same.DIFFERENT:
                    return Probe(count, Counterexample(buffer.name, index, shown(a), shown(b), (), regime, seed, LAZY_NOTE))
    return Probe(count)


def confirmed(parent: Program, child: Program, found: Counterexample, element: int = 2_000_000) -> Counterexample | None:
    """The counterexample with both values as the NumPy evaluator has them in f64, or ``None`` where they do not differ there."""
    pair = list(_float_values(parent, child, found, element))
    if len(pair) < 2 or not _apart(pair[0], pair[1]):
        return None
    return replace(found, expected=_text(pair[0]), actual=_text(pair[1]))


def _float_values(parent: Program, child: Program, found: Counterexample, element: int) -> Iterator[float]:
    from steptp.interp.numpy_eval import FloatAlgebra, evaluate

    for program in (parent, child):
        try:
            if found.note == LAZY_NOTE:
                exact = source_of(program, found.regime, found.seed)
                evaluator = DemandEvaluator(program, lambda name, flat, get=exact: _as_float(get(name, flat)), element, FloatAlgebra(wide=True))  # type: ignore[misc]
                value, _ = evaluator.element(found.output, found.index)
            else:
                inputs = {name: draw.array() for name, draw in exact_inputs(program, found.regime, found.seed).items()}
                value = evaluate(program, inputs, dtype_override="f64")[found.output][found.index]
        except EvalError:
            value = math.nan
        except BudgetExceeded:
            return
        yield float(value)


def _as_float(value: Any) -> Any:
    return value if isinstance(value, (bool, int, float)) else int(value.numerator) / int(value.denominator)


def _apart(a: float, b: float) -> bool:
    if math.isfinite(a) and math.isfinite(b):
        return abs(a - b) > _APART * max(abs(a), abs(b))
    return not (a == b or (math.isnan(a) and math.isnan(b)))


def _text(value: float) -> str:
    return f"{value:.10g}"


def array_witness(parent: Program, child: Program, regimes: Sequence[str], seed: int, limit: int) -> tuple[int, Counterexample | None]:
    """Evaluate both programs whole, in f64 arrays: how many elements were compared, and the first that differs by far more than rounding does.

    Nothing is evaluated (0 elements) where a program has more than ``limit`` statement instances.
    """
    import numpy as np

    from steptp.interp.fast_eval import fast_evaluate

    if any(count_instances(p, p.size_env) > limit for p in (parent, child)):
        return 0, None
    count = 0
    for regime in regimes:
        inputs = float_inputs(parent, "normal" if regime == ALL_ZERO else regime, seed)
        if regime == ALL_ZERO:
            inputs = {name: np.zeros_like(value) for name, value in inputs.items()}
        ours, theirs = fast_evaluate(parent, inputs), fast_evaluate(child, inputs)
        for buffer in parent.outputs:
            a, b = np.asarray(ours[buffer.name], np.float64), np.asarray(theirs[buffer.name], np.float64)
            with np.errstate(all="ignore"):
                near = np.abs(a - b) <= 1e-6 * np.maximum(np.abs(a), np.abs(b))
            wrong = ~(near | (a == b) | (np.isnan(a) & np.isnan(b)))
            count += a.size
            if wrong.any():
                index = tuple(int(i) for i in np.unravel_index(int(wrong.argmax()), shape_of(buffer.shape, parent))) if a.ndim else ()
                return count, Counterexample(buffer.name, index, _text(float(a[index])), _text(float(b[index])), (), regime, seed, "whole arrays in f64")
    return count, None
