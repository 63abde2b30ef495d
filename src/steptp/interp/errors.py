"""Errors of the evaluators."""

from __future__ import annotations

from steptp.errors import StepTPError

__all__ = ["EvalError"]


class EvalError(StepTPError):
    """A program did something that LEIR leaves without a value.

    Codes: ``eval-undefined`` (an element was read, or an output left, before it was written), ``eval-bounds`` (an access
    outside its array), ``eval-overflow`` (integer arithmetic), ``eval-zero-division`` (integer ``//`` or ``%`` by 0),
    ``eval-range`` (an integer input outside its declared range), ``eval-input`` (an input is missing or has another shape).
    Only when bound loops are emulated: ``eval-race`` (two threads or blocks touch an element that one writes), ``eval-divergent`` (threads of a block wait at
    different places).
    """
