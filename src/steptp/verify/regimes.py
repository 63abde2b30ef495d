"""Named, seeded regimes of inputs: the parts of input space that a program's branches and functions tell apart.

Every float value is a small integer times a power of two (or an infinity, in ``masked``), so one draw serves exact evaluation, as
rationals, and compiled code, as floats. The stream of an input depends on the seed, the regime and the input's name only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from steptp.interp.rounding import numpy_dtype, round_array
from steptp.ir.nodes import Buffer, Expr, Op, Program, Store
from steptp.ir.seeds import derive_seed
from steptp.ir.sizes import shape_of
from steptp.ir.types import DType, int_range
from steptp.ir.walk import loads, stmt_exprs, subexprs, visit

__all__ = ["ALL_ZERO", "LAZY_NOTE", "REGIMES", "SPECIAL_REGIMES", "Draw", "LazyDraw", "exact_inputs", "lazy_inputs", "float_inputs", "relevant_regimes"]

REGIMES = ("normal", "ties", "zeros", "negatives", "positive", "large", "tiny", "mixed", "clamped", "constant_rows", "unit")
SPECIAL_REGIMES = ("masked", "denormal")  # beyond the reals, or pointless over them: for compiled code and for asking
ALL_ZERO = "all zero"
"""A regime of lazy inputs only: every float input is 0, every integer 0 or the lowest of its range, every bool false."""

LAZY_NOTE = "one element at real sizes (lazy inputs)"
"""The note of a counterexample on lazy inputs."""

_EXACT_BITS, _FLOAT_BITS = 6, 20
_TABLE = 1021
_DECIDES = frozenset({"<", "<=", ">", ">=", "==", "!=", "max", "min", "abs", "floor", "ceil", "round", "isnan"})
_DOMAIN = frozenset({"/", "log", "log1p", "sqrt", "rsqrt", "pow"})
_LOGARITHMS = frozenset({"log", "log1p"})


@dataclass(frozen=True, slots=True)
class Draw:
    """The values of one input: ``numerators * 2**-shift``; where ``special`` is not 0 it is the value (inf, -inf)."""

    dtype: DType
    numerators: np.ndarray
    shift: int = 0
    special: np.ndarray | None = None

    def exact(self, flat: int) -> Any:
        """One element, row-major: ``fmpq``, kind, int or bool."""
        number = self.numerators.flat[flat]
        if self.dtype is DType.BOOL:
            return bool(number)
        if not self.dtype.is_float:
            return int(number)
        if self.special is not None and self.special.flat[flat] != 0:
            return float(self.special.flat[flat])
        from flint import fmpq

        return fmpq(int(number), 1 << self.shift)

    def exact_list(self) -> list[Any]:
        """All elements, row-major."""
        numbers = self.numerators.ravel().tolist()
        if not self.dtype.is_float:
            return numbers
        from flint import fmpq

        unit = 1 << self.shift
        values: list[Any] = [fmpq(n, unit) for n in numbers]
        if self.special is not None:
            for flat in np.flatnonzero(self.special):
                values[flat] = float(self.special.flat[flat])
        return values

    def array(self) -> np.ndarray:
        """The values in the array dtype that carries ``dtype`` (bf16 as rounded float32)."""
        if not self.dtype.is_float:
            return self.numerators.astype(numpy_dtype(self.dtype))
        values = np.ldexp(self.numerators.astype(np.float64), -self.shift)
        if self.special is not None:
            values = np.where(self.special != 0, self.special, values)
        return round_array(values, self.dtype)


@dataclass(frozen=True, slots=True)
class LazyDraw:
    """An input of any shape, one element at a time: a table of values from the regime, spread over the elements by a hash."""

    table: list[Any]
    salt: int

    def exact(self, flat: int) -> Any:
        """One element, row-major; the same for equal seeds, regimes and names."""
        mixed = (flat * 0x9E3779B97F4A7C15 + self.salt) & 0xFFFFFFFFFFFFFFFF
        mixed = ((mixed ^ (mixed >> 31)) * 0xBF58476D1CE4E5B9) & 0xFFFFFFFFFFFFFFFF
        return self.table[(mixed ^ (mixed >> 29)) % _TABLE]


def _signs(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    return rng.integers(0, 2, shape) * 2 - 1


def _spread(low: float, high: float) -> Callable[[np.random.Generator, tuple[int, ...]], np.ndarray]:
    return lambda rng, shape: rng.uniform(low, high, shape)


def _zeros(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    values = rng.normal(size=shape) * (rng.random(shape) < 0.5)
    if shape:
        values *= rng.random((*shape[:-1], 1)) < 0.8  # some rows are zero altogether
    return values


def _constant_rows(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    return np.broadcast_to(rng.normal(size=(*shape[:-1], 1)), shape) if shape else rng.normal(size=shape)


_FLOATS: dict[str, Callable[[np.random.Generator, tuple[int, ...]], np.ndarray]] = {
    "normal": lambda rng, shape: rng.normal(size=shape),
    "ties": lambda rng, shape: rng.integers(-2, 3, shape).astype(np.float64),
    "zeros": _zeros,
    "negatives": _spread(-4.0, -0.125),
    "positive": _spread(0.125, 4.0),
    "large": lambda rng, shape: _signs(rng, shape) * rng.uniform(50.0, 100.0, shape),
    "tiny": lambda rng, shape: rng.normal(size=shape),
    "mixed": lambda rng, shape: rng.normal(size=shape) * 2.0 ** rng.integers(-4, 5, shape),
    "clamped": lambda rng, shape: _signs(rng, shape) * rng.choice(np.array([0.5, 2.5, 3.0, 6.0, 7.0, 12.0]), shape),
    "constant_rows": _constant_rows,
    "unit": _spread(0.05, 0.95),
    "masked": lambda rng, shape: rng.normal(size=shape),
    "denormal": lambda rng, shape: rng.normal(size=shape) * 4.0,
}
_EXTRA_SHIFT = {"tiny": 20, "denormal": 130}  # further powers of two below 1


def _draw(program: Program, buffer: Buffer, shape: tuple[int, ...], regime: str, seed: int, bits: int) -> Draw:
    rng = np.random.default_rng(derive_seed("input", seed, regime, buffer.name))
    if buffer.dtype is DType.BOOL:
        return Draw(buffer.dtype, _bools(rng, shape, regime))
    if buffer.dtype.is_int:
        low, high = shape_of(buffer.range, program) if buffer.range is not None else _free_range(buffer.dtype, regime)
        if high <= low:
            return Draw(buffer.dtype, np.full(shape, low, np.int64))
        values = rng.integers(low, high, shape)
        if regime in ("ties", "constant_rows", "zeros"):  # few distinct values, the ends of the range among them
            values = rng.choice(np.array([low, high - 1, int(rng.integers(low, high))]), shape)
        return Draw(buffer.dtype, np.asarray(values, dtype=np.int64))
    scale = float(1 << bits)
    if regime == "large" and bits == _EXACT_BITS:  # over the reals nothing overflows, and the tails of exp need digits in proportion
        scale *= 0.25
    numerators = np.asarray(np.rint(_FLOATS[regime](rng, shape) * scale), dtype=np.int64)
    special = None
    if regime == "masked":
        hidden = rng.random(shape) < 0.3
        if shape:
            hidden = hidden | (rng.random((*shape[:-1], 1)) < 0.2)
        special = np.where(hidden, -np.inf, 0.0)
    return Draw(buffer.dtype, numerators, bits + _EXTRA_SHIFT.get(regime, 0), special)


def _bools(rng: np.random.Generator, shape: tuple[int, ...], regime: str) -> np.ndarray:
    """What *any* and *all* over an axis tell apart: few true ones, few false ones, exactly one along every axis of the longest length, equal rows."""
    few = 0.5 / max(shape, default=1)
    if regime in ("ties", "clamped") and shape:
        alone = np.equal((np.indices(shape).sum(0) - shape[-1] + 1) % max(shape), 0)
        return np.asarray(np.logical_xor(alone, regime == "clamped"))
    if regime == "constant_rows" and shape:
        return np.broadcast_to(rng.random((*shape[:-1], 1)) < 0.5, shape).copy()
    return rng.random(shape) < {"zeros": 0.0, "positive": 1.0, "negatives": few, "mixed": 1.0 - few}.get(regime, 0.5)


def _free_range(dtype: DType, regime: str) -> tuple[int, int]:
    low, high = {"negatives": (-9, 0), "positive": (1, 10), "zeros": (0, 1)}.get(regime, (-9, 10))
    least, most = int_range(dtype)
    return max(low, least), min(high, most + 1)


def exact_inputs(program: Program, regime: str, seed: int) -> dict[str, Draw]:
    """Inputs of ``program`` at its present sizes for exact evaluation: rationals with denominator 64 (smaller in ``tiny``)."""
    return {b.name: _draw(program, b, shape_of(b.shape, program), regime, seed, _EXACT_BITS) for b in program.inputs}


def lazy_inputs(program: Program, regime: str, seed: int) -> dict[str, LazyDraw]:
    """Inputs for demand-driven evaluation at real sizes: cheap whatever the shapes. Rows have no structure: in ``constant_rows`` all elements of an
    input are equal, and ``masked`` hides no whole rows."""
    return {b.name: LazyDraw(_lazy_table(program, b, regime, seed), derive_seed("lazy", seed, b.name)) for b in program.inputs}


def _lazy_table(program: Program, buffer: Buffer, regime: str, seed: int) -> list[Any]:
    if regime == ALL_ZERO:
        low, high = shape_of(buffer.range, program) if buffer.range is not None else (0, 1)
        zero = 0 if low <= 0 < high or high <= low else low
        return Draw(buffer.dtype, np.full((_TABLE,), zero, bool if buffer.dtype is DType.BOOL else np.int64)).exact_list()
    if regime == "constant_rows":
        return _draw(program, buffer, (), regime, seed, _EXACT_BITS).exact_list() * _TABLE
    return _draw(program, buffer, (_TABLE,), regime, seed, _EXACT_BITS).exact_list()


def float_inputs(program: Program, regime: str, seed: int) -> dict[str, np.ndarray]:
    """Inputs of ``program`` at its present sizes as arrays of the declared shapes; bf16 as float32 arrays of rounded values."""
    return {b.name: _draw(program, b, shape_of(b.shape, program), regime, seed, _FLOAT_BITS).array() for b in program.inputs}


def _value_exprs(program: Program) -> Iterator[Expr]:
    """Expressions that compute with data: stored values, and conditions that read arrays."""
    for met in visit(program):
        if isinstance(met.stmt, Store):
            yield met.stmt.value
        else:
            yield from (e for e in stmt_exprs(met.stmt) if any(loads(e)))


def relevant_regimes(*programs: Program) -> tuple[str, ...]:
    """The regimes that can tell programs with these operators apart, in the order of :data:`REGIMES`.

    Polynomials need two regimes. Comparisons on data, ``max`` and the like add ties, zeros, both signs, values beyond clamps and constant rows, and so do
    inputs that are true or false; divisions and functions with a domain add positive values, constant rows and zeros; logarithms add the unit interval; other functions add large and tiny values.
    """
    names: set[str] = set()
    for program in programs:
        for expr in _value_exprs(program):
            for part in subexprs(expr):
                if isinstance(part, Op) and (part.type.is_float or any(a.dtype.is_float or any(loads(a)) for a in part.args)):
                    names.add(part.name)
        names.update(m.stmt.reduce for m in visit(program) if isinstance(m.stmt, Store) and m.stmt.reduce in ("max", "min"))
    wanted = {"normal", "ties"}
    if names & _DECIDES:
        wanted |= {"zeros", "negatives", "positive", "clamped", "constant_rows"}
    if any(b.dtype is DType.BOOL for p in programs for b in p.inputs):
        wanted |= {"zeros", "positive", "negatives", "mixed", "clamped", "constant_rows"}
    if names & _DOMAIN:
        wanted |= {"positive", "constant_rows", "zeros"}
    if names & _LOGARITHMS:
        wanted |= {"unit"}
    if names - _DECIDES - _DOMAIN - {"+", "-", "*", "neg", "select", "and", "or", "not", "//", "%"}:
        wanted |= {"large", "tiny"}
    return tuple(r for r in REGIMES if r in wanted)
