"""A quick look at whether an algebraic step survives floating point, so that walks do not go on from programs that do not.

The verdict on the step stays with tier 4; this only saves a walk from states whose every child would be rejected.
"""

from __future__ import annotations

import numpy as np

from steptp.errors import StepTPError
from steptp.ir import Program

__all__ = ["holds_up"]

_REGIMES = ("normal", "large", "offset")
_ASTRAY = {2: 0.1, 4: 0.01, 8: 0.01}  # distance over the largest value, by bytes of the dtype


def holds_up(parent: Program, child: Program) -> bool:
    """Whether the NumPy evaluator gives nearly the same for both at a tiny binding, in the programs' own dtypes. True where nothing can be said."""
    from steptp.interp import evaluate
    from steptp.verify.bindings import apply_binding, tiny_bindings
    from steptp.verify.tier4_inputs import make_inputs

    found = tiny_bindings(parent, child).found
    if not found:
        return True
    try:
        before, after = apply_binding(parent, found[0].values), apply_binding(child, found[0].values)
        for regime in _REGIMES:
            inputs = make_inputs(before, regime, 0)
            want, got = evaluate(before, inputs), evaluate(after, inputs)
            for buffer in before.outputs:
                if buffer.dtype.is_float and not _near(want[buffer.name], got[buffer.name], _ASTRAY[buffer.dtype.itemsize]):
                    return False
    except StepTPError:
        return True
    return True


def _near(want: np.ndarray, got: np.ndarray, share: float) -> bool:
    known = np.isfinite(want)
    if not known.any():
        return True
    with np.errstate(all="ignore"):
        away = np.abs(got.astype(np.float64) - want)[known]
        return bool((away <= share * np.abs(want[known]).max()).all())
