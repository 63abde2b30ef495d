"""Rounding to a type narrower than all of the root's. What it loses may cancel in the inputs drawn, so it is read off the program."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from steptp.ir.nodes import Cast, Const, Expr, Load, Op, Path, Program, Store
from steptp.ir.printer import print_expr
from steptp.ir.types import DType, round_literal
from steptp.ir.walk import buffer_table, buffers, stmt_exprs, subexprs, visit

__all__ = ["Rounding", "narrowest", "rounded_away"]

_PICKS = frozenset({"select", "max", "min", "neg", "abs"})
"""Operators whose result is one of their operands, up to its sign."""


@dataclass(frozen=True, slots=True)
class Rounding:
    """Where a value is rounded: the statement, the expression (``None``: its target accumulates), and one clause."""

    path: Path
    expr: Expr | None
    text: str


def narrowest(program: Program) -> int:
    """Bytes of the narrowest float type that the program stores or computes in; 8 without floats."""
    types = {b.dtype for b in buffers(program)} | {e.dtype for e in _exprs(program)}
    return min((t.itemsize for t in types if t.is_float), default=8)


def rounded_away(root: Program, child: Program) -> Rounding | None:
    """The first place where the child may round a value to a float type narrower than all of the root's; ``None`` where nothing is lost.

    Choosing, comparing and storing keep a narrow value; arithmetic rounds it. A conversion is exact for bools, for literals that the type holds, and for
    what is chosen among such values.
    """
    least = narrowest(root)
    if narrowest(child) >= least:
        return None
    table = buffer_table(child)
    for met in visit(child):
        stmt = met.stmt
        if isinstance(stmt, Store) and stmt.reduce in ("+", "*") and _narrow(table[stmt.buffer].dtype, least):
            return Rounding(met.path, None, f"{stmt.buffer} accumulates in {table[stmt.buffer].dtype}")
        for expr in (e for whole in stmt_exprs(stmt) for e in subexprs(whole)):
            if _narrow(expr.dtype, least) and not _keeps(expr):
                return Rounding(met.path, expr, f"`{print_expr(expr, expr.dtype)}` is rounded to {expr.dtype}")
    return None


def _exprs(program: Program) -> Iterator[Expr]:
    return (e for met in visit(program) for whole in stmt_exprs(met.stmt) for e in subexprs(whole))


def _narrow(dtype: DType, least: int) -> bool:
    return dtype.is_float and dtype.itemsize < least


def _keeps(expr: Expr) -> bool:
    """Whether a narrow node is what its operands are."""
    if isinstance(expr, Cast):
        return _held(expr.arg, expr.type)
    return isinstance(expr, (Const, Load)) or (isinstance(expr, Op) and expr.name in _PICKS)


def _held(expr: Expr, dtype: DType) -> bool:
    """Whether ``dtype`` holds every value that the expression may have."""
    if expr.dtype in (dtype, DType.BOOL):
        return True
    if isinstance(expr, Const):
        return float(round_literal(float(expr.value), dtype)) == float(expr.value)
    if isinstance(expr, Cast):
        return _held(expr.arg, dtype)
    return isinstance(expr, Op) and expr.name in _PICKS and all(_held(a, dtype) for a in (expr.args[1:] if expr.name == "select" else expr.args))
