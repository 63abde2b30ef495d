"""Inputs of the witness: drawn here and not by the verifier, so that the two have no blind spot in common."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from steptp.interp.rounding import numpy_dtype, round_array
from steptp.ir.nodes import Program
from steptp.ir.seeds import derive_seed
from steptp.ir.sizes import shape_of
from steptp.ir.types import DType, int_range

__all__ = ["REGIMES", "Inputs", "draw", "draws"]

Array = npt.NDArray[Any]
Inputs = dict[str, Array]
_Draw = Callable[[np.random.Generator, tuple[int, ...]], npt.NDArray[np.float64]]


def _whole(rng: np.random.Generator, shape: tuple[int, ...]) -> npt.NDArray[np.float64]:
    return rng.integers(-3, 4, shape).astype(np.float64)


def _sparse(rng: np.random.Generator, shape: tuple[int, ...]) -> npt.NDArray[np.float64]:
    return np.asarray(rng.normal(size=shape) * (rng.random(shape) < 0.4))


def _rows(rng: np.random.Generator, shape: tuple[int, ...]) -> npt.NDArray[np.float64]:
    return np.array(np.broadcast_to(rng.normal(size=(*shape[:-1], 1)), shape)) if shape else np.asarray(rng.normal())


def _magnitudes(rng: np.random.Generator, shape: tuple[int, ...]) -> npt.NDArray[np.float64]:
    return np.asarray(rng.choice(np.array([-1.0, 1.0]), shape) * 2.0 ** rng.uniform(-10, 10, shape))


REGIMES: dict[str, _Draw] = {
    "normal": lambda rng, shape: rng.normal(size=shape),
    "uniform": lambda rng, shape: rng.random(shape),
    "whole": _whole,
    "quarters": lambda rng, shape: rng.integers(-12, 13, shape) / 4.0,
    "positive": lambda rng, shape: rng.gamma(2.0, 1.0, shape) + 0.05,
    "negative": lambda rng, shape: -rng.gamma(2.0, 1.0, shape) - 0.05,
    "sparse": _sparse,
    "rows": _rows,
    "wide": lambda rng, shape: rng.normal(size=shape) * 8.0,
    "large": lambda rng, shape: rng.choice(np.array([-1.0, 1.0]), shape) * rng.uniform(40.0, 100.0, shape),
    "magnitudes": _magnitudes,
    "huge": lambda rng, shape: rng.normal(size=shape) * 600.0,
}
EXACT = frozenset({"whole", "quarters"})
"""Regimes of small dyadic numbers, on which ``+ - * max min`` and comparisons are exact in f64."""


def draw(program: Program, regime: str, seed: int) -> Inputs:
    """Inputs at the program's present sizes; floats are values of their dtype, carried as float64."""
    made: Inputs = {}
    for buffer in program.inputs:
        rng = np.random.default_rng(derive_seed("witness", seed, regime, buffer.name))
        shape = shape_of(buffer.shape, program)
        if buffer.dtype is DType.BOOL:
            made[buffer.name] = np.asarray(rng.random(shape) < 0.5)
        elif buffer.dtype.is_int:
            low, high = shape_of(buffer.range, program) if buffer.range is not None else (max(-5, int_range(buffer.dtype)[0]), 10)
            made[buffer.name] = np.asarray(rng.integers(low, max(high, low + 1), shape), dtype=numpy_dtype(buffer.dtype))
        else:
            made[buffer.name] = np.asarray(round_array(np.asarray(REGIMES[regime](rng, shape)), buffer.dtype), dtype=np.float64)
    return made


def draws(seed: int, count: int) -> Iterator[tuple[str, int]]:
    """``count`` (regime, seed) pairs: every regime once, then all again with further seeds."""
    names = list(REGIMES)
    for n in range(count):
        yield names[n % len(names)], seed + n // len(names)
