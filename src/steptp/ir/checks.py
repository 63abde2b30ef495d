"""The validity table of programs."""

from __future__ import annotations

from steptp.errors import LeirError
from steptp.ir.nodes import Program

__all__ = ["check", "problems"]


def problems(program: Program) -> tuple[LeirError, ...]:
    """Everything that is wrong with a program."""
    return ()


def check(program: Program) -> None:
    """Raise the first problem of a program."""
    for problem in problems(program):
        raise problem
