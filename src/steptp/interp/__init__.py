"""Evaluators of LEIR: the NumPy specification, a vectorised f64 oracle, and exact evaluation in ball arithmetic."""

from __future__ import annotations

from steptp.interp.errors import EvalError
from steptp.interp.numpy_eval import evaluate

__all__ = ["EvalError", "evaluate"]
