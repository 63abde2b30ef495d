"""Rounding of doubles to the float dtypes, to nearest even, for scalars and arrays.

A double holds every value of f16, bf16 and f32 and has more than twice their bits plus two, so rounding the double result of
``+ - * /`` and ``sqrt`` gives the correctly rounded result of the narrow operator (no double rounding).
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from steptp.ir.types import DType, round_literal

__all__ = ["rounder", "round_array", "numpy_dtype", "round_int", "FLOAT_NUMPY"]

FLOAT_NUMPY: dict[DType, np.dtype[np.generic]] = {
    DType.F16: np.dtype(np.float16),
    DType.BF16: np.dtype(np.float32),
    DType.F32: np.dtype(np.float32),
    DType.F64: np.dtype(np.float64),
}
_OTHER_NUMPY: dict[DType, np.dtype[np.generic]] = {
    DType.I8: np.dtype(np.int8),
    DType.I32: np.dtype(np.int32),
    DType.I64: np.dtype(np.int64),
    DType.BOOL: np.dtype(np.bool_),
}
_MANTISSA = {DType.F16: 11, DType.BF16: 8, DType.F32: 24, DType.F64: 53}


def numpy_dtype(dtype: DType) -> np.dtype[np.generic]:
    """The NumPy dtype of arrays that carry ``dtype`` (bf16 is carried by float32)."""
    return FLOAT_NUMPY[dtype] if dtype.is_float else _OTHER_NUMPY[dtype]


def _round_f16(x: float) -> float:
    return float(np.float16(x))


def _round_f32(x: float) -> float:
    return float(np.float32(x))


def _round_bf16(x: float) -> float:
    return float(round_literal(x, DType.BF16))


def rounder(dtype: DType) -> Callable[[float], float] | None:
    """Double → the nearest value of ``dtype`` as a double; ``None`` for f64, where nothing is to be done.

    The f16 and f32 closures may raise NumPy overflow warnings: callers suppress them with ``numpy.errstate``.
    """
    return {DType.F16: _round_f16, DType.F32: _round_f32, DType.BF16: _round_bf16}.get(dtype)


def round_int(value: int, dtype: DType) -> float:
    """An integer to the nearest value of a float dtype, to even, as a double; beyond the range it is an infinity."""
    bits = _MANTISSA[dtype]
    excess = abs(value).bit_length() - bits
    if excess > 0:  # drop the excess bits exactly, then nothing below rounds again (overflow apart)
        half, rest, kept = 1 << (excess - 1), abs(value) & ((1 << excess) - 1), abs(value) >> excess
        kept += rest > half or (rest == half and kept & 1)
        value = (kept << excess) * (1 if value > 0 else -1)
    try:
        wide = float(value)
    except OverflowError:
        return math.copysign(math.inf, value)
    narrow = rounder(dtype)
    return wide if narrow is None else narrow(wide)


def round_array(values: np.ndarray, dtype: DType) -> np.ndarray:
    """A float64 array rounded to ``dtype``, in the array dtype that carries it (same shape).

    bf16 is rounded from the double's bits, so that there is no double rounding through float32.
    """
    wide = np.asarray(values, dtype=np.float64)
    if dtype is not DType.BF16:
        with np.errstate(all="ignore"):
            return wide.astype(FLOAT_NUMPY[dtype])
    bits = wide.view(np.int64) if wide.ndim else wide.reshape(1).view(np.int64)
    kept = 45  # a double stores 52 fraction bits, bf16 stores 7
    half = np.int64((1 << (kept - 1)) - 1)
    rounded = ((bits + half + ((bits >> kept) & 1)) & ~np.int64((1 << kept) - 1)).view(np.float64).reshape(wide.shape)
    small = np.abs(wide) < 2.0**-126
    quantum = 2.0**-133  # spacing of subnormal bf16 values
    rounded = np.where(small, np.rint(wide / quantum) * quantum, rounded)
    rounded = np.where(np.abs(rounded) > 3.3895313892515355e38, np.copysign(np.inf, wide), rounded)
    rounded = np.where(np.isfinite(wide), rounded, wide)
    return rounded.astype(np.float32)
