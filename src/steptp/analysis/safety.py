"""All safety questions about one program in one list."""

from __future__ import annotations

from steptp.analysis.bounds import bounds_problems
from steptp.analysis.definedness import definedness_problems
from steptp.analysis.overflow import overflow_problems
from steptp.analysis.problems import Problem, budget
from steptp.analysis.races import race_problems
from steptp.ir.nodes import Program

__all__ = ["safety_problems"]


def safety_problems(program: Program) -> tuple[Problem, ...]:
    """Out-of-bounds accesses, undefined reads, unwritten outputs, races and overflows, at the program's real sizes, for all inputs.

    Empty means proven safe. Raises :class:`LeirError` ``check-reset`` when resets are not defined, and
    :class:`steptp.analysis.problems.BudgetExceeded` when a question needs too much work. Cached on the program.
    """
    cached = program._cache.get("safety")
    if isinstance(cached, tuple):
        return cached

    with budget():
        found = (*bounds_problems(program), *definedness_problems(program), *race_problems(program), *overflow_problems(program))
    program._cache["safety"] = found
    return found
