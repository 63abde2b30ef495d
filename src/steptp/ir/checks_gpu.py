"""Validity of kernels: the limits of GPU axes, blocks and memories."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from steptp.ir.affine import is_pure
from steptp.ir.kernels import AXIS_LIMITS, LOCAL_BYTES, MAX_THREADS, SHARED_BYTES, Kernel, bytes_of, kernels, placement
from steptp.ir.nodes import Loop, Program
from steptp.ir.survey import Problem, Survey
from steptp.ir.types import Scope
from steptp.ir.walk import visit

__all__ = ["limits", "limit_problems"]


def limits(survey: Survey) -> Iterator[Problem]:
    bound = [m.stmt for m in survey.met if isinstance(m.stmt, Loop) and m.stmt.kind.is_bound]
    if bound and all(is_pure(loop.extent) for loop in bound):  # another extent is a problem of kinds
        yield from limit_problems(survey.program)


def limit_problems(program: Program) -> Iterator[Problem]:
    """What does not fit at the present sizes; extents of bound loops must hold only sizes."""
    where = placement(program)
    for kernel in kernels(program):
        for kind, extent in kernel.extents.items():
            if extent > AXIS_LIMITS[kind]:
                yield Problem(f"{kind} runs to {extent}, but a kernel has at most {AXIS_LIMITS[kind]} there", kernel.path, hint="split the loop first")
        if kernel.threads > MAX_THREADS:
            shown = " times ".join(f"{n} ({kind})" for kind, n in kernel.extents.items() if kind.is_thread)
            yield Problem(f"a block would have {kernel.threads} threads, {shown}; at most {MAX_THREADS} are allowed", kernel.path, hint="split a loop first")
        yield from _memory(program, kernel, where)


def _memory(program: Program, kernel: Kernel, where: Mapping[str, Scope]) -> Iterator[Problem]:
    inside = [b for met in visit((kernel.loop,)) if isinstance(met.stmt, Loop) for b in met.stmt.tmps]
    for scope, most, whose in ((Scope.SHARED, SHARED_BYTES, "a block"), (Scope.LOCAL, LOCAL_BYTES, "a thread")):
        mine = [b for b in inside if where[b.name] is scope]
        total = sum(bytes_of(b, program.size_env) for b in mine)
        if total > most:
            names = ", ".join(b.name for b in mine)
            yield Problem(f"{whose} would hold {total} bytes of {scope} memory ({names}); at most {most} are allowed", kernel.path)
