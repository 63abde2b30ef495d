"""The executable specification of LEIR: any valid program, any dtype, in serial order.

Floats are computed as doubles and rounded to the dtype of every operator. For ``+ - * / sqrt`` that is the correctly rounded
result (see :mod:`steptp.interp.rounding`); the other functions are evaluated in double precision and rounded once, so an f16,
bf16 or f32 result may differ from the correctly rounded one only where the double lies within its own error of a tie.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np

from steptp.interp.errors import EvalError
from steptp.interp.machine import Machine, check_ranges
from steptp.interp.rounding import numpy_dtype, round_array, round_int, rounder
from steptp.interp.scalars import INT_COMPARE, Binary, Unary
from steptp.ir.nodes import Program
from steptp.ir.sizes import shape_of
from steptp.ir.types import DType, int_range

__all__ = ["evaluate", "FloatAlgebra", "prepare_inputs"]

_NAN, _INF = math.nan, math.inf


def _div(a: float, b: float) -> float:
    try:
        return a / b
    except ZeroDivisionError:
        return _NAN if a == 0 or a != a else math.copysign(_INF, a) * math.copysign(1.0, b)


def _max(a: float, b: float) -> float:
    if a != a or b != b:
        return _NAN
    return a if a > b or (a == b and math.copysign(1.0, a) > 0) else b


def _min(a: float, b: float) -> float:
    if a != a or b != b:
        return _NAN
    return a if a < b or (a == b and math.copysign(1.0, a) < 0) else b


def _exp(x: float) -> float:
    try:
        return math.exp(x)
    except OverflowError:
        return _INF


def _expm1(x: float) -> float:
    try:
        return math.expm1(x)
    except OverflowError:
        return _INF


def _log(x: float) -> float:
    return math.log(x) if x > 0 else (-_INF if x == 0 else _NAN)


def _log1p(x: float) -> float:
    return math.log1p(x) if x > -1 else (-_INF if x == -1 else _NAN)


def _sqrt(x: float) -> float:
    return math.sqrt(x) if x >= 0 else _NAN


def _rsqrt(x: float) -> float:
    if x > 0:
        return 1.0 / math.sqrt(x)
    return math.copysign(_INF, x) if x == 0 else _NAN


def _sigmoid(x: float) -> float:
    if x >= 0:
        return 1.0 / (1.0 + _exp(-x))
    e = _exp(x)  # NaN falls through here too
    return e / (1.0 + e)


def _whole(how: Callable[[float], int]) -> Unary:
    def run(x: float) -> float:
        return x if not math.isfinite(x) else math.copysign(float(how(x)), x)

    return run


def _periodic(how: Callable[[float], float]) -> Unary:
    return lambda x: how(x) if math.isfinite(x) else _NAN


def _pow(a: float, b: float) -> float:
    try:
        return math.pow(a, b)
    except (OverflowError, ValueError):
        with np.errstate(all="ignore"):
            return float(np.power(np.float64(a), np.float64(b)))


_UNARY: dict[str, Unary] = {
    "neg": lambda x: -x, "abs": abs, "exp": _exp, "expm1": _expm1, "log": _log, "log1p": _log1p, "sqrt": _sqrt, "rsqrt": _rsqrt,
    "tanh": math.tanh, "sigmoid": _sigmoid, "erf": math.erf, "sin": _periodic(math.sin), "cos": _periodic(math.cos),
    "floor": _whole(math.floor), "ceil": _whole(math.ceil), "round": _whole(round),
}  # fmt: skip
_BINARY: dict[str, Binary] = {
    "+": lambda a, b: a + b, "-": lambda a, b: a - b, "*": lambda a, b: a * b, "/": _div, "max": _max, "min": _min, "pow": _pow,
}  # fmt: skip
_EXACT = frozenset({"neg", "abs", "max", "min", "floor", "ceil", "round"})  # results are already values of the dtype


class FloatAlgebra:
    """IEEE floats as Python doubles. With ``wide``, every operator stays in f64 whatever its dtype (the f64 oracle)."""

    def __init__(self, wide: bool = False) -> None:
        self.wide = wide

    def _rounder(self, dtype: DType) -> Unary | None:
        return None if self.wide else rounder(dtype)

    def const(self, value: float, dtype: DType) -> float:
        return value

    def unary(self, name: str, dtype: DType) -> Unary:
        run, narrow = _UNARY[name], self._rounder(dtype)
        return run if narrow is None or name in _EXACT else lambda x: narrow(run(x))

    def binary(self, name: str, dtype: DType) -> Binary:
        run, narrow = _BINARY[name], self._rounder(dtype)
        if narrow is None or name in _EXACT:
            return run
        if name == "+":
            return lambda a, b: narrow(a + b)
        if name == "*":
            return lambda a, b: narrow(a * b)
        return lambda a, b: narrow(run(a, b))

    def compare(self, name: str) -> Binary:
        return INT_COMPARE[name]

    def isnan(self) -> Unary:
        return lambda x: x != x

    def cast(self, source: DType, target: DType) -> Unary:
        if target is DType.BOOL:
            return lambda x: x != 0
        if target.is_float:
            if not source.is_float:
                to = DType.F64 if self.wide else target
                return lambda x: round_int(int(x), to)
            narrow = self._rounder(target)
            return narrow if narrow is not None else lambda x: x
        low, high = int_range(target)

        def saturate(x: float) -> int:
            if x != x:
                return 0
            return low if x <= low else high if x >= high else int(x)

        return saturate


def prepare_inputs(program: Program, inputs: Mapping[str, np.ndarray], wide: bool = False) -> dict[str, np.ndarray]:
    """Check names and shapes; round floats to their dtype (not with ``wide``, where they become float64).

    Raises :class:`EvalError` ``eval-input``: an input is missing, unknown, or has another shape or kind of values.
    """
    names = [b.name for b in program.inputs]
    if set(names) != set(inputs):
        raise EvalError("eval-input", f"inputs are {', '.join(sorted(inputs)) or 'none'}; the program takes {', '.join(names) or 'none'}")
    out: dict[str, np.ndarray] = {}
    for buffer in program.inputs:
        value = np.asarray(inputs[buffer.name])
        shape = shape_of(buffer.shape, program)
        if value.shape != shape:
            raise EvalError("eval-input", f"input {buffer.name} has shape {value.shape}, the program takes {shape}")
        if buffer.dtype.is_float:
            out[buffer.name] = value.astype(np.float64) if wide else round_array(value, buffer.dtype)
        elif buffer.dtype is DType.BOOL:
            out[buffer.name] = value != 0
        elif value.dtype.kind not in "iub":
            raise EvalError("eval-input", f"input {buffer.name} is {buffer.dtype}, got an array of {value.dtype}")
        else:
            out[buffer.name] = value
    return out


def evaluate(program: Program, inputs: Mapping[str, np.ndarray], *, dtype_override: str | None = None) -> dict[str, np.ndarray]:
    """Run ``program`` in serial order and return its outputs by name.

    ``inputs`` are arrays of the declared shapes; bf16 is carried by float32 arrays of rounded values, in and out. With
    ``dtype_override="f64"`` all float arithmetic is f64 and float outputs are float64: literals and inputs keep their values, casts between
    float dtypes do nothing. Raises :class:`EvalError` (see its codes) and :class:`LeirError` ``check-reset``.
    """
    if dtype_override not in (None, "f64"):
        raise EvalError("eval-input", f"dtype_override is 'f64' or None, not {dtype_override!r}")
    wide = dtype_override == "f64"
    arrays = prepare_inputs(program, inputs, wide)
    with np.errstate(all="ignore"):
        machine = Machine(program, FloatAlgebra(wide))
        flat = {name: [float(x) for x in a.ravel().tolist()] if a.dtype.kind == "f" else a.ravel().tolist() for name, a in arrays.items()}
        check_ranges(program, flat)
        results = machine.run(flat)
        out: dict[str, np.ndarray] = {}
        for buffer in program.outputs:
            shape = shape_of(buffer.shape, program)
            dtype = np.dtype(np.float64) if wide and buffer.dtype.is_float else numpy_dtype(buffer.dtype)
            out[buffer.name] = np.array(results[buffer.name], dtype=dtype).reshape(shape)
    return out
