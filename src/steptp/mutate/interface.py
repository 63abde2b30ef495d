"""Another interface than the parent's: wrong whatever the program computes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from steptp.ir.nodes import Load, Program, Store, const, op
from steptp.ir.types import DType, Scope
from steptp.ir.walk import map_expr, map_program_exprs, rename_buffer, stores
from steptp.mutate.places import map_buffer, retyped
from steptp.mutate.registry import operator

__all__: list[str] = []

Made = Iterator[tuple[str, Program]]


@operator("interface_dtype", "interface", "an output of another dtype", construction="an output has another dtype")
def interface_dtype(program: Program) -> Made:
    for buffer in program.outputs:
        if buffer.dtype.is_float:
            other = DType.F64 if buffer.dtype is not DType.F64 else DType.F32
            yield buffer.name, retyped(program, buffer.name, other)


@operator("interface_shape", "interface", "an output one element longer", construction="an output has another shape")
def interface_shape(program: Program) -> Made:
    for buffer in program.outputs:
        for n in range(len(buffer.shape)):
            shape = tuple(op("+", d, 1) if m == n else d for m, d in enumerate(buffer.shape))
            yield f"{buffer.name}:{n}", map_buffer(program, buffer.name, lambda b, shape=shape: replace(b, shape=shape))  # type: ignore[misc]


@operator("interface_name", "interface", "an output of another name", construction="an output has another name")
def interface_name(program: Program) -> Made:
    for buffer in program.outputs:
        new = f"{buffer.name}_other"
        renamed = program.with_(body=rename_buffer(program.body, buffer.name, new))
        yield buffer.name, map_buffer(renamed, buffer.name, lambda b, new=new: replace(b, name=new))  # type: ignore[misc]


@operator("interface_order", "interface", "inputs in another order", construction="the inputs stand in another order")
def interface_order(program: Program) -> Made:
    if len(program.inputs) > 1:
        yield "", program.with_(inputs=program.inputs[::-1])


@operator("input_missing", "interface", "an input that is not taken", construction="an input is missing")
def input_missing(program: Program) -> Made:
    for buffer in program.inputs:
        zero = const(0, buffer.dtype)
        gone = map_program_exprs(
            program.with_(inputs=tuple(b for b in program.inputs if b is not buffer)),
            lambda e, name=buffer.name, zero=zero: map_expr(e, lambda x: zero if isinstance(x, Load) and x.buffer == name else x),  # type: ignore[misc]
        )
        yield buffer.name, gone


@operator("output_scope", "scope", "an output in shared memory", construction="an output is not global")
def output_scope(program: Program) -> Made:
    for buffer in program.outputs:
        yield buffer.name, map_buffer(program, buffer.name, lambda b: replace(b, scope=Scope.SHARED))


@operator("input_written", "alias", "an input used as scratch memory", construction="an input is written")
def input_written(program: Program) -> Made:
    for buffer in program.inputs:
        for stmt in program.body:
            first = next((m.stmt for m in stores((stmt,))), None)
            if isinstance(first, Store) and first.value.dtype is buffer.dtype and len(buffer.shape) == len(first.indices):
                yield buffer.name, program.with_(body=rename_buffer(program.body, first.buffer, buffer.name))
                break
