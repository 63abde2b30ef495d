"""Lower precision than the program has: narrow accumulators, narrow operators, values on the way through a narrow type.

Over the reals such a mutant is equal to its parent; its witness is a run in the program's own dtypes.
"""

from __future__ import annotations

from collections.abc import Iterator

from steptp.ir.nodes import Load, Op, Program, cast
from steptp.ir.types import DType
from steptp.ir.walk import all_tmps
from steptp.mutate.places import retyped, value_places
from steptp.mutate.registry import operator

__all__: list[str] = []

Made = Iterator[tuple[str, Program]]
_NARROWER = {DType.F64: (DType.F32, DType.F16), DType.F32: (DType.F16, DType.BF16)}


@operator("accumulation_narrow", "dtype", "a temporary kept in a narrower type")
def accumulation_narrow(program: Program) -> Made:
    for _, buffer in all_tmps(program):
        for narrow in _NARROWER.get(buffer.dtype, ()):
            yield f"{buffer.name}:{narrow}", retyped(program, buffer.name, narrow)


@operator("value_narrow", "dtype", "an operand rounded to a narrower type")
def value_narrow(program: Program) -> Made:
    for place in value_places(program):
        if isinstance(place.expr, Load):
            for narrow in _NARROWER.get(place.expr.dtype, ()):
                yield f"{place.text}:{narrow}", place.put(cast(place.expr.dtype, cast(narrow, place.expr)))


@operator("operator_narrow", "dtype", "an operator computed in a narrower type")
def operator_narrow(program: Program) -> Made:
    for place in value_places(program):
        if isinstance(place.expr, Op) and all(a.dtype is place.expr.type for a in place.expr.args):
            for narrow in _NARROWER.get(place.expr.type, ()):
                args = tuple(cast(narrow, a) for a in place.expr.args)
                yield f"{place.text}:{narrow}", place.put(cast(place.expr.type, Op(place.expr.name, args, narrow)))
