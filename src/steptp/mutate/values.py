"""Wrong constants, operands and operators in stored values."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from steptp.ir.nodes import Const, Expr, Load, Op, Program, Size, Store, cast, const, op
from steptp.ir.ops import OPS, OpRule
from steptp.ir.types import DType
from steptp.ir.walk import buffer_table, map_expr, map_program_exprs, replace_at, stores
from steptp.mutate.places import expr_places, value_places
from steptp.mutate.registry import operator

__all__: list[str] = []

Made = Iterator[tuple[str, Program]]
_OTHER = {
    "+": ("-", "*"), "-": ("+",), "*": ("+", "/"), "/": ("*",), "max": ("min", "+"), "min": ("max",), "exp": ("expm1", "sigmoid"), "expm1": ("exp",),
    "log": ("log1p",), "log1p": ("log",), "sqrt": ("rsqrt",), "rsqrt": ("sqrt",), "tanh": ("sigmoid", "erf"), "sigmoid": ("tanh",), "erf": ("tanh",),
    "sin": ("cos",), "cos": ("sin",), "floor": ("ceil", "round"), "ceil": ("floor",), "round": ("floor",), "neg": ("abs",), "abs": ("neg",), "pow": ("*",),
}  # fmt: skip


@operator("constant_scaled", "constant", "a constant a little too large")
def constant_scaled(program: Program) -> Made:
    for place in value_places(program):
        if isinstance(place.expr, Const) and place.expr.type.is_float and place.expr.value:
            yield place.text, place.put(const(float(place.expr.value) * 1.01, place.expr.type))


@operator("constant_shifted", "constant", "a constant off by one")
def constant_shifted(program: Program) -> Made:
    for place in value_places(program):
        if isinstance(place.expr, Const) and place.expr.type is not DType.BOOL:
            yield place.text, place.put(const(place.expr.value + 1, place.expr.type))


@operator("constant_negated", "constant", "a constant with the wrong sign")
def constant_negated(program: Program) -> Made:
    for place in value_places(program):
        if isinstance(place.expr, Const) and place.expr.type is not DType.BOOL and place.expr.value:
            yield place.text, place.put(const(-place.expr.value, place.expr.type))


@operator("constant_size", "constant", "another size as divisor or scale")
def constant_size(program: Program) -> Made:
    for place in expr_places(program):
        if place.role == "value" and not place.owner and isinstance(place.expr, Size):
            for size in program.sizes:
                if size.name != place.expr.name:
                    yield f"{place.text}:{size.name}", place.put(Size(size.name))
            yield f"{place.text}:-1", place.put(place.expr - 1)


@operator("store_constant", "constant", "an output or temporary that is constant")
def store_constant(program: Program) -> Made:
    for met in stores(program):
        if isinstance(met.stmt, Store) and not isinstance(met.stmt.value, Const):
            zero = const(0, met.stmt.value.dtype)
            yield ".".join(map(str, met.path)), replace_at(program, met.path, replace(met.stmt, value=zero))


@operator("operand_swapped", "operand", "the operands of an operator that does not commute exchanged")
def operand_swapped(program: Program) -> Made:
    for place in value_places(program):
        if isinstance(place.expr, Op) and place.expr.name in ("-", "/", "pow"):
            yield place.text, place.put(Op(place.expr.name, place.expr.args[::-1], place.expr.type))


@operator("operand_dropped", "operand", "one operand left out: a dropped bias, scale or maximum")
def operand_dropped(program: Program) -> Made:
    for place in value_places(program):
        if isinstance(place.expr, Op) and place.expr.name in ("+", "-", "*", "/", "max", "min"):
            for n, kept in enumerate(place.expr.args):
                yield f"{place.text}:{n}", place.put(kept)


@operator("operand_other", "operand", "a read of another tensor of the same rank")
def operand_other(program: Program) -> Made:
    table = buffer_table(program)
    for place in value_places(program):
        if isinstance(place.expr, Load):
            for other in table.values():
                if other.name != place.expr.buffer and other.dtype is place.expr.type and len(other.shape) == len(place.expr.indices):
                    yield f"{place.text}:{other.name}", place.put(replace(place.expr, buffer=other.name))


@operator("operand_repeated", "operand", "one operand used twice, the other never")
def operand_repeated(program: Program) -> Made:
    for place in value_places(program):
        if isinstance(place.expr, Op) and place.expr.name in ("*", "+") and place.expr.args[0] != place.expr.args[1]:
            for n, kept in enumerate(place.expr.args):
                yield f"{place.text}:{n}", place.put(op(place.expr.name, kept, kept))


@operator("maximum_ignored", "operand", "exp(x - m) without its m, everywhere: equal over the reals where m cancels, and unsafe")
def maximum_ignored(program: Program) -> Made:
    def strip(expr: Expr) -> Expr:
        if isinstance(expr, Op) and expr.name == "exp" and isinstance(inner := expr.args[0], Op) and inner.name == "-":
            return op("exp", inner.args[0])
        return expr

    yield "", map_program_exprs(program, lambda e: map_expr(e, strip))


@operator("operator_changed", "operator", "a related operator or function")
def operator_changed(program: Program) -> Made:
    for place in value_places(program):
        if isinstance(place.expr, Op):
            for name in _OTHER.get(place.expr.name, ()):
                if OPS[name].rule is OpRule.FLOAT and not place.expr.type.is_float:
                    continue
                yield f"{place.text}:{name}", place.put(Op(name, place.expr.args, place.expr.type))


@operator("function_dropped", "operator", "a function of one operand left out")
def function_dropped(program: Program) -> Made:
    for place in value_places(program):
        if isinstance(place.expr, Op) and len(place.expr.args) == 1 and place.expr.args[0].dtype is place.expr.type:
            yield place.text, place.put(place.expr.args[0])


@operator("function_repeated", "operator", "a factor or term applied once more")
def function_repeated(program: Program) -> Made:
    for place in value_places(program):
        if isinstance(place.expr, Op) and place.expr.name in ("*", "/", "+", "-") and isinstance(place.expr.args[1], Load):
            yield place.text, place.put(op(place.expr.name, place.expr, place.expr.args[1]))


@operator("rounded", "operator", "a value rounded to a whole number")
def rounded(program: Program) -> Made:
    for place in value_places(program):
        if isinstance(place.expr, Load) and place.expr.type.is_float:
            yield place.text, place.put(op("round", place.expr))


@operator("truncated", "operator", "a value that took the way over an integer")
def truncated(program: Program) -> Made:
    for place in value_places(program):
        if isinstance(place.expr, Load) and place.expr.type.is_float:
            yield place.text, place.put(cast(place.expr.type, cast(DType.I32, place.expr)))
