"""Validity of names, sizes, constraints and declarations."""

from __future__ import annotations

from collections.abc import Iterator

from steptp.errors import LeirError
from steptp.ir.affine import MAX_TERMS, is_pure, term_count
from steptp.ir.lexer import MAX_NAME, RESERVED, is_name
from steptp.ir.nodes import Expr, Loop, Size
from steptp.ir.sizes import eval_index
from steptp.ir.survey import Problem, Survey
from steptp.ir.types import DType
from steptp.ir.walk import free_sizes

__all__ = ["names", "sizes", "constraints", "declarations", "MAX_SIZE"]

MAX_SIZE = (1 << 63) - 1


def names(survey: Survey) -> Iterator[Problem]:
    program = survey.program
    seen: set[str] = set()
    for name in (*(s.name for s in program.sizes), *(b.name for b in (*program.inputs, *program.outputs, *survey.tmps))):
        if not is_name(name):
            yield _illegal(name, Problem("", name=name))
        if name in seen:
            yield Problem(f"{name} is declared twice", name=name, hint="every name stands for one thing")
        seen.add(name)
    for met in survey.met:
        if isinstance(met.stmt, Loop):
            var = met.stmt.var
            if not is_name(var):
                yield _illegal(var, Problem("", met.path))
            if var in seen:
                yield Problem(f"loop variable {var} has the name of a size or an array", met.path, hint="rename the loop variable")
            elif any(loop.var == var for loop in met.loops):
                yield Problem(f"loop variable {var} is already used by a loop around this one", met.path, hint="rename the inner loop variable")


def _illegal(name: str, at: Problem) -> Problem:
    why = "is reserved" if name in RESERVED else f"is not a name of ASCII letters, digits and '_' with at most {MAX_NAME} characters"
    return Problem(f"{name[:40]!r} {why}", at.path, at.name)


def sizes(survey: Survey) -> Iterator[Problem]:
    env: dict[str, int] = {}
    for decl in survey.program.sizes:
        if not isinstance(decl.value, int) or isinstance(decl.value, bool) or not 0 <= decl.value <= MAX_SIZE:
            yield Problem(f"size {decl.name} is not between 0 and 2^63-1", name=decl.name)
        elif decl.expr is not None:
            yield from _derivation(decl.name, decl.value, decl.expr, env)
        env[decl.name] = decl.value


def _derivation(name: str, value: int, expr: Expr, env: dict[str, int]) -> Iterator[Problem]:
    free = free_sizes(expr)
    if expr.dtype is not DType.I64 or not is_pure(expr):
        yield Problem(f"size {name} must be an i64 expression over sizes", name=name)
    elif not free:
        yield Problem(f"size {name} derives from no other size", name=name, hint=f"write {name}={value}")
    elif missing := sorted(free - set(env)):
        yield Problem(f"size {name} derives from {missing[0]}, which is not declared before it", name=name)
    elif term_count(expr) > MAX_TERMS:
        yield Problem(f"the derivation of size {name} has more than {MAX_TERMS} terms", name=name)
    else:
        try:
            real = eval_index(expr, env)
        except LeirError as err:
            yield Problem(f"size {name}: {err.message}", name=name)
            return
        if real != value:
            yield Problem(f"size {name} is given as {value}, but its derivation gives {real}", name=name)


def constraints(survey: Survey) -> Iterator[Problem]:
    known = set(survey.env)
    for number, cond in enumerate(survey.program.constraints, 1):
        if cond.dtype is not DType.BOOL or not is_pure(cond):
            yield Problem(f"constraint {number} must be a bool over sizes")
        elif missing := sorted(free_sizes(cond) - known):
            yield Problem(f"constraint {number} uses {missing[0]}, which is not a size")
        else:
            try:
                holds = bool(eval_index(cond, survey.env))
            except LeirError as err:
                yield Problem(f"constraint {number}: {err.message}")
                continue
            if not holds:
                shown = ", ".join(f"{n}={survey.env[n]}" for n in sorted(free_sizes(cond)))
                yield Problem(f"constraint {number} does not hold for {shown}")


def declarations(survey: Survey) -> Iterator[Problem]:
    program = survey.program
    inputs = {b.name for b in program.inputs}
    for buffer in (*program.inputs, *program.outputs, *survey.tmps):
        for dim in buffer.shape:
            yield from _size_expr(dim, f"a dimension of {buffer.name}", buffer.name, survey, low=0)
        if buffer.range is not None:
            if buffer.name not in inputs or not buffer.dtype.is_int:
                yield Problem(f"{buffer.name} has a value range, but is not an integer input", name=buffer.name)
            for bound in buffer.range:
                yield from _size_expr(bound, f"a bound of {buffer.name}", buffer.name, survey, low=None)


def _size_expr(expr: Expr, what: str, name: str, survey: Survey, low: int | None) -> Iterator[Problem]:
    if isinstance(expr, Size) and expr.name in survey.env:
        return
    if expr.dtype is not DType.I64 or not is_pure(expr):
        yield Problem(f"{what} must be an i64 expression over sizes", name=name)
    elif missing := sorted(free_sizes(expr) - set(survey.env)):
        yield Problem(f"{what} uses {missing[0]}, which is not a size", name=name)
    elif term_count(expr) > MAX_TERMS:
        yield Problem(f"{what} has more than {MAX_TERMS} terms", name=name)
    else:
        try:
            value = eval_index(expr, survey.env)
        except LeirError as err:
            yield Problem(f"{what}: {err.message}", name=name)
            return
        if (low is not None and value < low) or abs(value) > MAX_SIZE:
            yield Problem(f"{what} is {value}" if abs(value) <= MAX_SIZE else f"{what} does not fit i64", name=name)
