"""What a safety analysis found, as data."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import islpy as isl

from steptp.analysis.affine import CTX
from steptp.ir.nodes import Path

__all__ = ["Problem", "budget", "BudgetExceeded", "BUDGET"]

BUDGET = 30_000_000
"""isl operations (of its own counter) that one safety or schedule check may use: some seconds."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One violation, or one question without an answer.

    ``code``: ``bounds``, ``undefined``, ``unwritten``, ``race``, ``overflow`` or ``division``. ``path`` is the store in the program.
    ``certain`` is unset when the analysis could only not prove the opposite (data-dependent conditions, unknown values).
    ``instance`` are the loop variables of the smallest instance that shows it, ``element`` what it touches.
    """

    code: str
    message: str
    path: Path = ()
    certain: bool = True
    instance: tuple[tuple[str, int], ...] = ()
    buffer: str = ""
    element: tuple[int, ...] = ()


class BudgetExceeded(Exception):
    """A polyhedral computation needed more than its budget of operations; the answer is unknown."""


@contextmanager
def budget(operations: int = BUDGET) -> Iterator[None]:
    """Bound the isl operations inside the block; raises :class:`BudgetExceeded`. Counted, not timed, so it is deterministic."""
    previous = CTX.get_max_operations()
    CTX.reset_operations()
    CTX.set_max_operations(operations)
    try:
        yield
    except isl.Error as err:
        if "operations exceeded" not in str(err):
            raise
        raise BudgetExceeded(str(err)) from err
    finally:
        CTX.reset_operations()
        CTX.set_max_operations(previous)
