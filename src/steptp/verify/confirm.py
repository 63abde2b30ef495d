"""A run that shows what tier 1 suspects: inputs on which a program reads, writes or computes something that is not defined.

Proofs of safety stop at conditions on data and at look-ups. A program that is suspected there is run, whole where that is little work and element by
element otherwise, over the reals in every regime of inputs; the first run that fails is evidence, and none proves nothing.
"""

from __future__ import annotations

from steptp.errors import LeirError
from steptp.interp.cost import count_instances
from steptp.interp.demand import BudgetExceeded, DemandEvaluator
from steptp.interp.errors import EvalError
from steptp.interp.exact import PRECISIONS, ExactMachine, Undecided
from steptp.ir.nodes import Program
from steptp.verify.regimes import ALL_ZERO, REGIMES, exact_inputs, lazy_inputs
from steptp.verify.samples import sample_indices

__all__ = ["failing_run"]

_REGIMES = tuple(r for r in REGIMES if r not in ("tiny", "large", "unit"))
_WHOLE = 20_000  # instances of a program that is run whole
_ELEMENT, _TOTAL = 3_000, 20_000  # visited statements of one element and of all


def failing_run(program: Program, seed: int = 0) -> tuple[str, EvalError] | None:
    """The regime of inputs and the error of the first run that fails, or ``None``."""
    try:
        whole = count_instances(program, program.size_env) <= _WHOLE
        return _whole(program, seed) if whole else _elements(program, seed)
    except LeirError:
        return None


def _whole(program: Program, seed: int) -> tuple[str, EvalError] | None:
    machine = ExactMachine(program)
    for regime in _REGIMES:
        inputs = {name: draw.exact_list() for name, draw in exact_inputs(program, regime, seed).items()}
        try:
            machine.run(inputs, PRECISIONS[:2])
        except Undecided:
            continue
        except EvalError as err:
            return regime, err
    return None


def _elements(program: Program, seed: int) -> tuple[str, EvalError] | None:
    work = 0
    places = list(sample_indices(program, program, 2, seed))
    for regime in (*_REGIMES, ALL_ZERO):
        draws = lazy_inputs(program, regime, seed)
        evaluator = DemandEvaluator(program, lambda name, flat, draws=draws: draws[name].exact(flat), _ELEMENT)  # type: ignore[misc]
        for buffer, index in places:
            try:
                evaluator.element(buffer.name, index, PRECISIONS[:2])
            except (BudgetExceeded, Undecided):
                pass
            except EvalError as err:
                return regime, err
            work += evaluator.work
            if work > _TOTAL:
                return None
    return None
