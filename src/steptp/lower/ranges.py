"""Intervals of integer expressions: which index arithmetic fits 32 bits, which reads are surely in bounds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from steptp.ir.nodes import Buffer, Cast, Const, Expr, Load, Op, Size, Var
from steptp.ir.sizes import eval_index
from steptp.ir.types import DType, int_range

__all__ = ["Interval", "Ranges"]

Interval = tuple[int, int]
_I32 = int_range(DType.I32)


@dataclass(frozen=True, slots=True)
class Ranges:
    """Known intervals (both ends included) of loop variables, with size values and buffers."""

    variables: Mapping[str, Interval]
    sizes: Mapping[str, int]
    buffers: Mapping[str, Buffer]

    def of(self, expr: Expr) -> Interval | None:
        """An interval that contains every value of the expression, or ``None`` where none is known (floats, bools)."""
        if isinstance(expr, Const):
            return (int(expr.value), int(expr.value)) if expr.type.is_int else None
        if isinstance(expr, Size):
            return (self.sizes[expr.name], self.sizes[expr.name])
        if isinstance(expr, Var):
            return self.variables.get(expr.name)
        if isinstance(expr, Load):
            return self._load(expr)
        if isinstance(expr, Cast):
            return self._cast(expr)
        if isinstance(expr, Op) and expr.type.is_int:
            return self._op(expr)
        return None

    def _load(self, expr: Load) -> Interval | None:
        if not expr.type.is_int:
            return None
        declared = self.buffers[expr.buffer].range
        if declared is None:
            return int_range(expr.type)
        return (eval_index(declared[0], self.sizes), eval_index(declared[1], self.sizes) - 1)

    def _cast(self, expr: Cast) -> Interval | None:
        if not expr.type.is_int:
            return None
        low, high = int_range(expr.type)
        if expr.arg.dtype is DType.BOOL:
            return (0, 1)
        inner = self.of(expr.arg) if expr.arg.dtype.is_int else None
        return (low, high) if inner is None else (min(max(inner[0], low), high), min(max(inner[1], low), high))

    def _op(self, expr: Op) -> Interval | None:
        if expr.name == "select":
            sides = [self.of(a) for a in expr.args[1:]]
            known = [s for s in sides if s is not None]
            return (min(s[0] for s in known), max(s[1] for s in known)) if len(known) == 2 else None
        args = [self.of(a) for a in expr.args]
        if any(a is None for a in args):
            return None
        given = [a for a in args if a is not None]
        if expr.name == "neg":
            return (-given[0][1], -given[0][0])
        if expr.name == "abs":
            low, high = given[0]
            return (0 if low <= 0 <= high else min(abs(low), abs(high)), max(abs(low), abs(high)))
        (a0, a1), (b0, b1) = given
        if expr.name == "+":
            return (a0 + b0, a1 + b1)
        if expr.name == "-":
            return (a0 - b1, a1 - b0)
        if expr.name == "max":
            return (max(a0, b0), max(a1, b1))
        if expr.name == "min":
            return (min(a0, b0), min(a1, b1))
        if expr.name == "*":
            corners = [a0 * b0, a0 * b1, a1 * b0, a1 * b1]
            return (min(corners), max(corners))
        if expr.name == "//" and b0 > 0:
            corners = [a0 // b0, a0 // b1, a1 // b0, a1 // b1]
            return (min(corners), max(corners))
        if expr.name == "%" and b0 > 0:
            return (a0, a1) if a0 >= 0 and a1 < b0 else (0, b1 - 1)
        return None

    def fits32(self, expr: Expr) -> bool:
        """Whether every integer value computed on the way to an ``i64`` expression fits 32 bits."""
        span = self.of(expr)
        if span is None or span[0] < _I32[0] or span[1] > _I32[1]:
            return False
        if isinstance(expr, Op):
            return all(self.fits32(a) for a in expr.args if a.dtype is DType.I64)
        return True

    def safe(self, expr: Expr) -> bool:
        """Whether the expression may be evaluated unconditionally: all reads in bounds, no zero divisor."""
        if isinstance(expr, Load):
            shape = self.buffers[expr.buffer].shape
            for index, extent in zip(expr.indices, shape, strict=True):
                span = self.of(index)
                if span is None or span[0] < 0 or span[1] >= eval_index(extent, self.sizes) or not self.safe(index):
                    return False
            return True
        if isinstance(expr, Cast):
            return self.safe(expr.arg)
        if isinstance(expr, Op):
            if expr.name in ("//", "%"):
                span = self.of(expr.args[1])
                if span is None or span[0] <= 0 <= span[1]:
                    return False
            return all(self.safe(a) for a in expr.args)
        return True
