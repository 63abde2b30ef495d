"""The validity table: what every LEIR program must satisfy, one named check a row.

The table runs at the end of parsing and before and after every rewrite. Bounds, dependences and undefined reads need the polyhedral
model and belong to the verifier.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice

from steptp.errors import LeirError
from steptp.ir import checks_decls as decls
from steptp.ir import checks_exprs as exprs
from steptp.ir import checks_gpu as gpu
from steptp.ir import checks_stmts as stmts
from steptp.ir.nodes import Program
from steptp.ir.sourcemap import SourceMap
from steptp.ir.survey import Problem, Survey

__all__ = ["Check", "CHECKS", "check", "problems"]

_MOST = 50


@dataclass(frozen=True, slots=True)
class Check:
    """One row. Its problems carry the code ``check-<name>``. A row runs only when all rows of lower stages have passed."""

    name: str
    doc: str
    run: Callable[[Survey], Iterator[Problem]]
    stage: int = 2


CHECKS: tuple[Check, ...] = (
    Check("name", "Names are legal and stand for one thing; a loop variable shadows nothing.", decls.names, 0),
    Check("size", "Sizes lie in 0 .. 2^63-1, derive from earlier sizes, and have the value of their derivation.", decls.sizes, 0),
    Check("where", "Constraints are bools over sizes, and hold.", decls.constraints, 0),
    Check("decl", "Shapes and value ranges are i64 expressions over sizes; ranges belong to integer inputs.", decls.declarations, 0),
    Check("view", "Sizes, loop variables and arrays are used only where they are in view.", exprs.views, 0),
    Check("rank", "An access has one index per dimension.", exprs.ranks, 0),
    Check("type", "Operands, reads, writes, conditions and indices have the dtypes that their places ask for.", exprs.types, 0),
    Check("index", "Indices and extents are quasi-affine in loop variables and sizes, or look-ups into integer arrays.", exprs.indices, 1),
    Check("extent", "Extents read no memory; loops and guards have a body.", stmts.extents),
    Check("write", "Inputs are never written, outputs are, and every temporary is written.", stmts.writes),
    Check("reduce", "A reducer fits the dtype of its target, and only accumulations carry.", stmts.reducers),
    Check("reset", "A resetting accumulation has a reset loop, is injective, and is the only one of its buffer.", stmts.resets),
    Check("lookup", "Writes through look-ups carry and stand in serial loops.", stmts.lookup_writes),
    Check("kind", "vec loops are innermost; par and GPU axes nest in the one order that can run.", stmts.kinds),
    Check("scope", "Who accesses a shared or local temporary may do so; interface tensors are global.", stmts.scopes),
    Check("limit", "GPU axes, threads and the memories of blocks and threads stay within their limits.", gpu.limits),
)


def problems(program: Program) -> tuple[LeirError, ...]:
    """What the validity table finds wrong, at most 50 problems, with places in the text where there is one.

    A broken declaration or type hides the problems of what builds on it.
    """
    cached = program._cache.get("problems")
    if isinstance(cached, tuple):
        return cached
    found = tuple(islice(_find(program), _MOST))
    program._cache["problems"] = found
    return found


def _find(program: Program) -> Iterator[LeirError]:
    if (deep := exprs.too_deep(program)) is not None:
        yield LeirError("check-depth", deep.message, hint=deep.hint)
        return
    survey = Survey(program)
    failed: int | None = None  # the lowest stage with a problem
    for row in CHECKS:
        if failed is not None and row.stage > failed:
            return
        for problem in row.run(survey):
            failed = row.stage
            source = SourceMap.of(program)
            place = source.name(problem.name) if problem.name else source.place(problem.path)
            yield LeirError(f"check-{row.name}", problem.message, place=place, hint=problem.hint)


def check(program: Program) -> None:
    """Raise the first problem of a program (:class:`LeirError` ``check-*``); do nothing for a valid one."""
    for problem in problems(program):
        raise problem.with_traceback(None)  # the error is kept with the program and may be raised again
