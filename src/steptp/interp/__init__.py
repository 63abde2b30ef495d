"""Evaluators of LEIR: the NumPy specification (:func:`evaluate`), a vectorised f64 oracle (:func:`fast_evaluate`), and, in
:mod:`steptp.interp.exact` and :mod:`steptp.interp.demand`, exact evaluation with rationals and balls."""

from __future__ import annotations

from steptp.interp.errors import EvalError
from steptp.interp.fast_eval import fast_evaluate
from steptp.interp.numpy_eval import evaluate

__all__ = ["EvalError", "evaluate", "fast_evaluate"]
