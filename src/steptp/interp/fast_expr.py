"""Expressions evaluated on a grid of loop iterations with NumPy.

Axis ``a`` of a grid (axes are numbered from the outermost) is dimension ``-1-a`` of every array, so that values computed with fewer axes
broadcast as they are. A *mask* says where evaluation is live; elsewhere indices are clipped and the values mean nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeAlias, Union

import numpy as np

from steptp.errors import internal
from steptp.interp.errors import EvalError
from steptp.interp.fast_plan import Planner
from steptp.ir.nodes import Cast, Const, Expr, Load, Op, Size, Var
from steptp.ir.types import DType, int_range

__all__ = ["Grid", "Value", "GridEvaluator", "Storage"]

Value: TypeAlias = Union[np.ndarray, int, float, bool]
Place: TypeAlias = tuple[Any, ...]  # what NumPy takes as an index: arrays and ints
Mask: TypeAlias = Union[np.ndarray, None]


@dataclass(frozen=True, slots=True)
class Storage:
    """A buffer: ``data`` has one leading dimension per axis of the grid at its declaration (``lead``), reversed like a grid's."""

    name: str
    dtype: DType
    data: np.ndarray
    lead: int = 0


@dataclass(frozen=True, slots=True)
class Grid:
    """The live loop axes: ranges of values by axis, and the variables' values."""

    spans: tuple[tuple[int, int], ...] = ()  # half-open range of each axis
    axis_of: dict[str, int] = field(default_factory=dict)
    values: dict[str, Value] = field(default_factory=dict)

    def with_axis(self, var: str, low: int, high: int) -> Grid:
        """The grid with one more axis, for ``var`` in ``low`` … ``high - 1``."""
        number = len(self.spans)
        points = np.arange(low, high, dtype=np.int64).reshape((high - low,) + (1,) * number)
        return Grid((*self.spans, (low, high)), {**self.axis_of, var: number}, {**self.values, var: points})

    def with_value(self, var: str, value: int) -> Grid:
        """The grid with a serial loop variable fixed."""
        return Grid(self.spans, {k: a for k, a in self.axis_of.items() if k != var}, {**self.values, var: value})

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of a full array over the grid."""
        return tuple(b - a for a, b in reversed(self.spans))

    @property
    def volume(self) -> int:
        return math.prod(b - a for a, b in self.spans)


def _erf(x: np.ndarray) -> np.ndarray:
    flat = np.asarray(x, dtype=np.float64)
    return np.fromiter(map(math.erf, flat.ravel().tolist()), np.float64, flat.size).reshape(flat.shape)


def _sigmoid(x: np.ndarray) -> np.ndarray:
    e = np.exp(-np.abs(x))
    return np.asarray(np.where(x >= 0, 1.0, e) / (1.0 + e))


_UNARY: dict[str, Callable[..., Value]] = {
    "neg": np.negative, "abs": np.abs, "exp": np.exp, "expm1": np.expm1, "log": np.log, "log1p": np.log1p, "sqrt": np.sqrt,
    "rsqrt": lambda x: 1.0 / np.sqrt(x), "tanh": np.tanh, "sigmoid": _sigmoid, "erf": _erf, "sin": np.sin, "cos": np.cos,
    "floor": np.floor, "ceil": np.ceil, "round": np.rint, "isnan": np.isnan, "not": np.logical_not,
}  # fmt: skip
_BINARY: dict[str, Callable[..., Value]] = {
    "+": np.add, "-": np.subtract, "*": np.multiply, "/": np.divide, "//": np.floor_divide, "%": np.remainder,
    "max": np.maximum, "min": np.minimum, "pow": np.power,
    "<": np.less, "<=": np.less_equal, ">": np.greater, ">=": np.greater_equal, "==": np.equal, "!=": np.not_equal,
}  # fmt: skip


def both(a: Mask, b: Value) -> Mask:
    """A mask narrowed by a condition."""
    return np.asarray(b) if a is None else np.logical_and(a, b)


def _plain(result: Value | np.generic) -> Value:
    """A result of NumPy with zero-dimensional values as Python scalars."""
    if isinstance(result, np.ndarray) and result.ndim:
        return result
    scalar: int | float | bool = result.item() if isinstance(result, (np.generic, np.ndarray)) else result
    return scalar


class GridEvaluator:
    """Evaluates expressions in f64, ``i64`` and bool over the storages of one run."""

    def __init__(self, planner: Planner) -> None:
        self.planner = planner
        self.storage: dict[str, Storage] = {}

    def value(self, expr: Expr, grid: Grid, mask: Mask) -> Value:
        """The value over ``grid``: a scalar, or an array that broadcasts to the grid's shape."""
        if isinstance(expr, Const):
            return float(expr.value) if expr.type.is_float else expr.value
        if isinstance(expr, Var):
            return grid.values[expr.name]
        if isinstance(expr, Size):
            return self.planner.sizes[expr.name]
        if isinstance(expr, Load):
            return self._load(expr, grid, mask)
        if isinstance(expr, Cast):
            return _cast(expr.arg.dtype, expr.type, self.value(expr.arg, grid, mask))
        if isinstance(expr, Op):
            return self._operator(expr, grid, mask)
        raise internal(f"no evaluation of {expr!r}")

    def _operator(self, expr: Op, grid: Grid, mask: Mask) -> Value:
        name, args = expr.name, expr.args
        if name in ("and", "or", "select"):
            first = self.value(args[0], grid, mask)
            if not isinstance(first, np.ndarray):  # one answer for the whole grid
                if name == "select":
                    return self.value(args[1 if first else 2], grid, mask)
                return self.value(args[1], grid, mask) if bool(first) is (name == "and") else bool(first)
            if name == "select":
                yes = self.value(args[1], grid, both(mask, first))
                return np.where(first, yes, self.value(args[2], grid, both(mask, np.logical_not(first))))
            live = first if name == "and" else np.logical_not(first)
            second = self.value(args[1], grid, both(mask, live))
            return np.logical_and(first, second) if name == "and" else np.logical_or(first, second)
        values = [self.value(a, grid, mask) for a in args]
        run = _UNARY[name] if len(values) == 1 else _BINARY[name]
        result = run(*(np.float64(v) if isinstance(v, float) else v for v in values))
        return _plain(result)

    # array elements

    def place(self, name: str, indices: tuple[Expr, ...], grid: Grid, mask: Mask) -> Place:
        """Index values for every dimension of the storage, private axes first; clipped under a mask, else checked."""
        store = self.storage[name]
        found: list[np.ndarray | int] = []
        for axis in range(store.lead - 1, -1, -1):
            low, high = grid.spans[axis]
            found.append(np.arange(high - low).reshape((high - low,) + (1,) * axis))
        for index, size in zip(indices, store.data.shape[store.lead :], strict=True):
            at = self.value(index, grid, mask)
            if isinstance(at, np.ndarray):
                if mask is not None:
                    at = np.clip(at, 0, max(size - 1, 0))
                elif at.size and not (at.min() >= 0 and at.max() < size):
                    raise EvalError("eval-bounds", f"{name}: an index is outside 0..{size - 1}")
            else:
                at = int(at)
                if not 0 <= at < size:
                    if mask is None:
                        raise EvalError("eval-bounds", f"{name}: index {at} is outside 0..{size - 1}")
                    at = 0
            found.append(at)
        return tuple(found)

    def view(self, name: str, indices: tuple[Expr, ...], grid: Grid) -> np.ndarray | None:
        """The elements as a strided view that broadcasts to the grid, if every index is a number or its own axis."""
        store = self.storage[name]
        picks: list[slice | int] = []
        axes: list[int] = []
        for axis in range(store.lead - 1, -1, -1):
            picks.append(slice(None))
            axes.append(axis)
        for index, size in zip(indices, store.data.shape[store.lead :], strict=True):
            form = self.planner.form(index)
            if form is None:
                return None
            base, moving = form.constant, []
            for atom, coef in form.terms:
                if not isinstance(atom, str):
                    return None
                if atom in grid.axis_of:
                    moving.append((grid.axis_of[atom], coef))
                else:
                    base += coef * int(grid.values[atom])
            if not moving:
                if not 0 <= base < size:
                    return None
                picks.append(base)
                continue
            if len(moving) > 1 or moving[0][1] < 1 or moving[0][0] in axes:
                return None
            axis, step = moving[0]
            low, high = grid.spans[axis]
            first, last = base + step * low, base + step * (high - 1)
            if first < 0 or last >= size:
                return None
            picks.append(slice(first, last + 1, step))
            axes.append(axis)
        part: np.ndarray = store.data[(*picks, ...)]  # the ellipsis keeps a single element a view
        if not axes:
            return part
        order = sorted(range(len(axes)), key=lambda n: -axes[n])
        spread = tuple(slice(None) if a in axes else None for a in range(max(axes), -1, -1))
        return part.transpose(order)[spread]

    def _load(self, expr: Load, grid: Grid, mask: Mask) -> Value:
        store = self.storage[expr.buffer]
        found = self.view(expr.buffer, expr.indices, grid)
        if found is None:
            if 0 in store.data.shape:
                return _plain(np.zeros((), store.data.dtype))
            found = np.asarray(store.data[self.place(expr.buffer, expr.indices, grid, mask)])
        return _plain(found)


def _cast(source: DType, target: DType, value: Value) -> Value:
    if target is DType.BOOL:
        return np.not_equal(value, 0) if isinstance(value, np.ndarray) else value != 0
    array = np.asarray(value)
    if target.is_float:
        result = array.astype(np.float64)
    else:
        low, high = int_range(target)
        if source.is_float:
            whole = np.trunc(np.where(np.isnan(array), 0.0, array))
            inside = np.clip(whole, float(low), np.nextafter(float(high), 0.0) if target is DType.I64 else float(high)).astype(np.int64)
            result = np.where(whole >= float(high), high, inside)
        else:
            result = np.clip(array.astype(np.int64), low, high)
    return _plain(result)
