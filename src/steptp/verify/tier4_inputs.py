"""Input regimes of compiled code: those of the exact tiers, and some that only rounded arithmetic can tell apart."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import numpy as np
import numpy.typing as npt

from steptp.interp.rounding import round_array
from steptp.ir.nodes import Load, Loop, Op, Program, Store
from steptp.ir.seeds import derive_seed
from steptp.ir.sizes import shape_of
from steptp.ir.types import DType
from steptp.ir.walk import buffer_table, buffers, free_vars, loads, stmt_exprs, subexprs, visit
from steptp.lower.ranges import Ranges
from steptp.verify.cache import ByteLru
from steptp.verify.regimes import float_inputs

__all__ = ["BENIGN", "EXTREME", "NONFINITE", "TIER4_REGIMES", "default_regimes", "inputs_key", "make_inputs", "summed_dims", "wide_input", "work"]

Array = npt.NDArray[np.generic]

TIER4_REGIMES = (
    "normal", "ties", "wide", "large", "offset", "cancel", "swamped", "huge", "special", "denormal", "constant_rows", "mixed", "positive", "tiny", "masked",
)  # fmt: skip
"""In order of use. ``ties`` draws integers from -2 to 2; ``wide`` gives one float input odd integers of up to 12 bits and the others
-1, 0 or 1, so that + - * stay exact in f32 but not in a smaller type; ``offset`` has a mean far above its spread; ``cancel`` lets the second half
of a reduction take away the first; ``swamped`` starts and ends a reduction with terms beside which the others are less than half a unit in the last
place of a half-width type; in ``huge`` and ``denormal`` each row has a scale of its own, up to the largest finite and down to the subnormal
numbers of its dtype; ``special`` has infinities and NaN."""

BENIGN = frozenset({"normal", "ties", "positive", "constant_rows"})

NONFINITE = frozenset({"special", "masked"})

EXTREME = frozenset({"huge", "denormal"})

WIDE_TOP = 4095


def wide_input(program: Program, seed: int) -> str:
    """The input that gets wide integers; it rotates with the seed. Empty when no input is a float."""
    names = [b.name for b in program.inputs if b.dtype.is_float]
    return names[seed % len(names)] if names else ""


def make_inputs(program: Program, regime: str, seed: int) -> dict[str, Array]:
    """Inputs at the program's present sizes (bf16 as rounded float32). Streams depend on seed, regime and input name only; programs
    with one :func:`inputs_key` share the arrays, which nobody writes (at most 128 MiB are kept)."""
    return _INPUTS.get(inputs_key(program, regime, seed), lambda: _draw(program, regime, seed))


def inputs_key(program: Program, regime: str, seed: int) -> Hashable:
    """What :func:`make_inputs` depends on: the inputs' declarations, and in some regimes how the program sums and divides them."""
    described = tuple((b.name, b.dtype, shape_of(b.shape, program), shape_of(b.range, program) if b.range is not None else None) for b in program.inputs)
    used = _uses(program) if regime in _STRUCTURED else ()
    return described, regime, seed, used


_INPUTS: ByteLru[dict[str, Array]] = ByteLru(128 * 2**20, lambda inputs: sum(a.nbytes for a in inputs.values()))


def _draw(program: Program, regime: str, seed: int) -> dict[str, Array]:
    base = regime if regime not in _DRAWN else "normal"
    made: dict[str, Array] = {k: np.asarray(v) for k, v in float_inputs(program, base, seed).items()}
    if regime not in _DRAWN and not any(b.dtype is DType.F64 for b in program.inputs):
        return made
    sums, divisors = (dict(_uses(program)[0]), _uses(program)[1]) if regime in _STRUCTURED else ({}, frozenset())
    widest = max((len(b.shape) for b in program.inputs if b.dtype.is_float), default=0)
    values: npt.NDArray[Any]
    for buffer in program.inputs:
        if not buffer.dtype.is_float:
            continue
        rng = np.random.default_rng(derive_seed("tier4", seed, regime, buffer.name))
        shape = shape_of(buffer.shape, program)
        if regime not in _DRAWN:
            if buffer.dtype is not DType.F64 or regime not in _FULL:
                continue
            values = np.asarray(made[buffer.name], np.float64) * (
                1 + 2.0**-22 * rng.random(shape)
            )  # f64 adds and multiplies the 20 bits of a draw without an error
            values = values * 10 if regime == "large" else values  # exp overflows from 710 on
        elif regime == "wide":
            top = {DType.F16: 1023, DType.BF16: 127}.get(buffer.dtype, WIDE_TOP)
            chosen = buffer.name == wide_input(program, seed)
            values = (rng.integers(0, (top + 1) // 2, shape) * 2 + 1) * rng.choice([-1, 1], shape) if chosen else rng.integers(-1, 2, shape)
        elif regime == "offset":
            values = 100.0 + 0.25 * rng.standard_normal(shape)
        elif regime in EXTREME and shape and len(shape) < widest and buffer.name in divisors:  # as small as what they divide, row by row
            values = rng.choice([-1.0, 1.0], shape) * rng.uniform(1.0, 1.98, shape) * _row_scales(buffer.dtype, regime, (*shape, 1), seed)[..., 0]
        elif regime in EXTREME and (sums.get(buffer.name, ((), 1))[1] == 0 or len(shape) < widest):
            continue  # cofactors, scales and shifts stay normal, else every product is out of range
        elif regime in EXTREME:
            values = rng.choice([-1.0, 1.0], shape) * rng.uniform(1.0, 1.98, shape) * _row_scales(buffer.dtype, regime, shape, seed)
        elif regime in _PATTERNS:
            values = _PATTERNS[regime](rng, shape, *sums.get(buffer.name, ((), 0)), buffer.dtype)
        else:
            values = rng.standard_normal(shape)
            draw = rng.random(shape)
            for low, special in ((0.0, np.inf), (0.01, -np.inf), (0.02, np.nan)):
                values = np.where((draw >= low) & (draw < low + 0.01), special, values)
        made[buffer.name] = np.asarray(round_array(values, buffer.dtype))
    return made


_EXPONENTS = {DType.F16: (-24, 16), DType.BF16: (-133, 128), DType.F32: (-149, 128), DType.F64: (-1074, 1024)}


def _row_scales(dtype: DType, regime: str, shape: tuple[int, ...], seed: int) -> npt.NDArray[np.float64]:
    """A power of two for each row, the same for row ``i`` of every input; the last row has the outermost."""
    low, high = _EXPONENTS[dtype]
    ends = (high // 4, high) if regime == "huge" else (low // 4, low + 2)
    rows = shape[:-1]
    share = np.random.default_rng(derive_seed("tier4 rows", seed, regime)).random(int(np.prod(rows, dtype=np.int64)))
    share[-1:] = 1.0
    exponents = np.rint(ends[0] + share * (ends[1] - ends[0])).astype(np.int64).reshape(rows)
    scales = np.ldexp(1.0, exponents - 1)
    return np.asarray(scales[..., None] if shape else scales)


def _uses(program: Program) -> tuple[tuple[tuple[str, tuple[tuple[int, ...], int]], ...], frozenset[str]]:
    """:func:`summed_dims`, hashable, and :func:`_divisors`; kept with the program."""
    kept = program._cache.get("tier4-uses")
    if not isinstance(kept, tuple):
        kept = program._cache["tier4-uses"] = tuple(sorted(summed_dims(program).items())), _divisors(program)
    return kept


def _divisors(program: Program) -> frozenset[str]:
    """Inputs that something is divided by as they are."""
    exprs = (e for met in visit(program) for x in stmt_exprs(met.stmt) for e in subexprs(x))
    return frozenset(e.args[1].buffer for e in exprs if isinstance(e, Op) and e.name == "/" and isinstance(e.args[1], Load))


def _flat_sum(shape: tuple[int, ...], dims: tuple[int, ...]) -> npt.NDArray[np.int64]:
    """The position of each element along the dimensions that a reduction runs over."""
    position = np.zeros(shape, np.int64)
    for dim in dims:
        position = position * shape[dim] + np.arange(shape[dim]).reshape([-1 if d == dim else 1 for d in range(len(shape))])
    return position


def _cancel(rng: np.random.Generator, shape: tuple[int, ...], dims: tuple[int, ...], degree: int, dtype: DType) -> npt.NDArray[np.float64]:
    if not dims:
        return rng.standard_normal(shape)
    terms = int(np.prod([shape[d] for d in dims]))
    position = _flat_sum(shape, dims)
    if not degree:
        return np.broadcast_to(rng.choice([1.0, 2.0], [1 if d in dims else n for d, n in enumerate(shape)]), shape)
    size = rng.uniform(1.0, 4.0, terms)
    half = terms // 2
    size[terms - half :] = -size[:half]
    return size[position] * (1.0 + 2.0**-6 * rng.standard_normal(shape) * (position < half))


def _swamped(rng: np.random.Generator, shape: tuple[int, ...], dims: tuple[int, ...], degree: int, dtype: DType) -> npt.NDArray[np.float64]:
    if not dims:
        return np.abs(rng.standard_normal(shape))
    terms = int(np.prod([shape[d] for d in dims]))
    position = _flat_sum(shape, dims)
    small = rng.uniform(0.55, 0.9, shape) * (2.0**-8 if dtype is DType.BF16 else 2.0**-11)
    if not degree:
        return np.ones(shape)
    return np.where((position == 0) | (position == terms - 1), 1.0, small ** (1.0 / degree))


_PATTERNS = {"cancel": _cancel, "swamped": _swamped}
_FULL = frozenset({"normal", "mixed", "positive", "tiny", "large"})
_STRUCTURED = frozenset({*EXTREME, *_PATTERNS})
_DRAWN = frozenset({"wide", "offset", "special", *EXTREME, *_PATTERNS})


def summed_dims(program: Program) -> dict[str, tuple[tuple[int, ...], int]]:
    """Float input → the dimensions that a sum runs over, and its degree in the terms: 2 where it is read twice in one, 1 for the first input that is
    not, 0 for a cofactor of that."""
    found: dict[str, tuple[tuple[int, ...], int]] = {}
    inputs = {b.name for b in program.inputs if b.dtype.is_float}
    for met in visit(program):
        if not (isinstance(met.stmt, Store) and met.stmt.reduce == "+" and met.stmt.value.dtype.is_float):
            continue
        kept = frozenset().union(*(free_vars(i) for i in met.stmt.indices))
        summed = frozenset(owner.var for owner in met.parents if isinstance(owner, Loop)) - kept
        read = [(load.buffer, tuple(d for d, i in enumerate(load.indices) if free_vars(i) & summed)) for load in loads(met.stmt.value)]
        first = 1
        for name, dims in read:
            if name in inputs and dims and name not in found:
                twice = read.count((name, dims)) > 1
                found[name] = dims, 2 if twice else first
                first = first if twice else 0
    return found


def work(program: Program) -> int:
    """Store executions of one run at the present sizes (an upper bound)."""
    env, table = program.size_env, buffer_table(program)
    total = 0
    for met in visit(program):
        if isinstance(met.stmt, Store):
            spans: dict[str, tuple[int, int]] = {}
            trips = 1
            for owner in met.parents:
                if isinstance(owner, Loop):
                    span = Ranges(spans, env, table).of(owner.extent)
                    top = max(span[1], 0) if span else 1
                    spans[owner.var] = (0, max(top, 1) - 1)
                    trips *= top
            total += trips
    return total


def default_regimes(root: Program, child: Program | None = None) -> dict[str, str]:
    """The regimes in which what ``root`` or ``child`` contain can go wrong, each with the reason, in the order of use.

    Fewer for programs whose oracle takes long: above 20 and above 500 million stores.
    """
    names: set[str] = set()
    for program in (root,) if child is None else (root, child):
        names |= _operators(program)
    why = {"normal": "always", "ties": "always", "special": "always"}
    if arithmetic := names & {"+", "-", "*", "/", "pow", "sqrt", "rsqrt", "sum"}:
        used = ", ".join(sorted(arithmetic))
        why |= {"wide": used, "huge": f"{used} can overflow", "denormal": f"{used} can underflow", "mixed": used}
    if terms := names & {"+", "-", "sum"}:
        why |= {"offset": f"{', '.join(sorted(terms))} can cancel"}
    if "sum" in names:
        why |= {"cancel": "a sum"}
        if any(b.dtype in (DType.F16, DType.BF16) for b in buffers(root)):
            why |= {"swamped": "a sum beside a half-width type"}
    if functions := names & _FUNCTIONS:
        used = ", ".join(sorted(functions))
        why |= {"large": used, "tiny": used}
    if domain := names & {"/", "log", "log1p", "sqrt", "rsqrt", "pow"}:
        why |= {"positive": ", ".join(sorted(domain))}
    if ("sum" in names and "-" in names) or "/" in names:
        why |= {"constant_rows": "differences and quotients of equal values"}
    if choices := names & {"select", "max", "exp", "isnan"}:
        why |= {"masked": ", ".join(sorted(choices))}
    load = work(root)
    most = len(TIER4_REGIMES) if load < 2e7 else 8 if load < 5e8 else 4
    chosen = [r for r in TIER4_REGIMES if r in why][:most]
    return {r: why[r] for r in chosen}


_FUNCTIONS = frozenset({"exp", "expm1", "log", "log1p", "pow", "sigmoid", "tanh", "erf", "sin", "cos", "/", "rsqrt", "sqrt", "floor", "ceil", "round"})


def _operators(program: Program) -> frozenset[str]:
    """Names of the operators on floats, and ``sum`` and ``max`` for accumulations."""
    kept = program._cache.get("tier4-operators")
    if isinstance(kept, frozenset):
        return kept
    names: set[str] = set()
    for met in visit(program):
        if isinstance(met.stmt, Store) and met.stmt.value.dtype.is_float and met.stmt.reduce is not None:
            names.add({"+": "sum", "min": "max"}.get(met.stmt.reduce, met.stmt.reduce))
        for expr in stmt_exprs(met.stmt):
            for part in subexprs(expr):
                if isinstance(part, Op) and (part.type.is_float or any(a.dtype.is_float for a in part.args)):
                    names.add("max" if part.name == "min" else part.name)
    found = program._cache["tier4-operators"] = frozenset(names)
    return found
