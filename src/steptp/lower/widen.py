"""Derived f64 programs: an oracle (:func:`widen`), a bound on exact integer values (:func:`magnitude`)."""

from __future__ import annotations

from dataclasses import replace

from steptp.ir.nodes import Body, Buffer, Cast, Const, Expr, If, Load, Loop, Op, Program, Store
from steptp.ir.types import DType
from steptp.ir.walk import map_stmt_exprs, subexprs, visit

__all__ = ["magnitude", "retyped", "wide_buffer", "wide_dtype", "widen"]

_RING = frozenset({"+", "-", "*", "neg", "abs", "max", "min", "select"})


def wide_dtype(dtype: DType) -> DType:
    """f64 for a float dtype, else the dtype itself."""
    return DType.F64 if dtype.is_float else dtype


def retyped(expr: Expr) -> Expr:
    """The expression with every float computed in f64; casts between floats disappear."""
    if isinstance(expr, Const):
        return Const(expr.value, wide_dtype(expr.type))
    if isinstance(expr, Load):
        return Load(expr.buffer, tuple(retyped(i) for i in expr.indices), wide_dtype(expr.type))
    if isinstance(expr, Cast):
        arg, target = retyped(expr.arg), wide_dtype(expr.type)
        return arg if arg.dtype is target else Cast(target, arg)
    if isinstance(expr, Op):
        return Op(expr.name, tuple(retyped(a) for a in expr.args), wide_dtype(expr.type))
    return expr


def wide_buffer(buffer: Buffer) -> Buffer:
    """The declaration with a float dtype widened."""
    return replace(buffer, dtype=wide_dtype(buffer.dtype))


def widen(program: Program) -> Program:
    """The same program with f16, bf16 and f32 replaced by f64 everywhere. Literals keep their rounded values."""
    return _declared(program, tuple(_wide_tmps(map_stmt_exprs(s, retyped)) for s in program.body))


def _declared(program: Program, body: Body) -> Program:
    inputs, outputs, tmps = (tuple(wide_buffer(b) for b in group) for group in (program.inputs, program.outputs, program.tmps))
    return program.with_(inputs=inputs, outputs=outputs, tmps=tmps, body=body)


def _wide_tmps(stmt: Loop | If | Store) -> Loop | If | Store:
    if isinstance(stmt, Store):
        return stmt
    body = tuple(_wide_tmps(s) for s in stmt.body)
    return If(stmt.cond, body) if isinstance(stmt, If) else replace(stmt, body=body, tmps=tuple(wide_buffer(b) for b in stmt.tmps))


def magnitude(program: Program) -> Program | None:
    """A program whose f64 outputs bound every value that the original computes from integers of the given magnitudes.

    Each input stands for its largest magnitude; subtraction adds, negation and ``abs`` do nothing, max and min take the larger. With all
    inputs at least 1 no value on the way to an output exceeds the output. ``None`` when the program does anything else with
    floats (division, functions, fractional literals, float conditions, casts to integers).
    """
    for met in visit(program):
        if isinstance(met.stmt, Store) and not (met.stmt.value.dtype.is_float and met.stmt.reduce in (None, "+", "*", "max", "min") and _ring(met.stmt.value)):
            return None
        if isinstance(met.stmt, If) and any(e.dtype.is_float for e in subexprs(met.stmt.cond)):
            return None

    def rebuild(body: Body) -> Body:
        out: list[Loop | If | Store] = []
        for stmt in body:
            if isinstance(stmt, Store):
                reset = "max" if stmt.reduce == "min" else stmt.reduce
                out.append(replace(stmt, value=_magnitude(retyped(stmt.value)), reduce=reset))
            elif isinstance(stmt, If):
                out.append(If(stmt.cond, rebuild(stmt.body)))
            else:
                out.append(replace(stmt, body=rebuild(stmt.body), tmps=tuple(wide_buffer(b) for b in stmt.tmps)))
        return tuple(out)

    return _declared(program, rebuild(program.body))


def _ring(expr: Expr) -> bool:
    """Whether integers in give integers out through + - * max min abs select only."""
    if isinstance(expr, Const):
        value = float(expr.value)
        return value.is_integer() or value in (float("inf"), float("-inf"))
    if isinstance(expr, Load):
        return expr.type.is_float
    if isinstance(expr, Cast):
        return expr.arg.dtype.is_float and expr.type.is_float and _ring(expr.arg)
    if isinstance(expr, Op) and expr.name in _RING and expr.type.is_float:
        args = expr.args
        if expr.name == "select":
            if any(e.dtype.is_float for e in subexprs(args[0])):
                return False
            args = args[1:]
        return all(_ring(a) for a in args)
    return False


def _magnitude(expr: Expr) -> Expr:
    if isinstance(expr, Const):
        value = abs(float(expr.value))
        return Const(0.0 if value == float("inf") else value, expr.type)
    if isinstance(expr, Op):
        if expr.name == "select":
            return Op("select", (expr.args[0], *(_magnitude(a) for a in expr.args[1:])), expr.type)
        args = tuple(_magnitude(a) for a in expr.args)
        if expr.name in ("neg", "abs"):
            return args[0]
        return Op({"-": "+", "min": "max"}.get(expr.name, expr.name), args, expr.type)
    return expr
