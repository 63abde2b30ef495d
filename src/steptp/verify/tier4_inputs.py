"""Input regimes of compiled code: those of the exact tiers, and three that only rounded arithmetic can tell apart."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from steptp.interp.rounding import round_array
from steptp.ir.nodes import Loop, Program, Store
from steptp.ir.seeds import derive_seed
from steptp.ir.sizes import shape_of
from steptp.ir.types import DType
from steptp.ir.walk import buffer_table, visit
from steptp.lower.ranges import Ranges
from steptp.verify.cache import ByteLru
from steptp.verify.regimes import float_inputs

__all__ = ["BENIGN", "NONFINITE", "TIER4_REGIMES", "default_regimes", "make_inputs", "wide_input", "work"]

Array = npt.NDArray[np.generic]

TIER4_REGIMES = ("normal", "ties", "wide", "large", "offset", "constant_rows", "special", "mixed", "positive", "tiny", "masked", "denormal")
"""In order of use. ``ties`` draws integers from -2 to 2; ``wide`` gives one float input odd integers of up to 12 bits and the others
-1, 0 or 1, so that + - * stay exact in f32 but not in a smaller type; ``offset`` has a mean far above its spread;
``special`` has infinities and NaN."""

BENIGN = frozenset({"normal", "ties", "positive", "constant_rows"})

NONFINITE = frozenset({"special", "masked"})

WIDE_TOP = 4095


def wide_input(program: Program, seed: int) -> str:
    """The input that gets wide integers; it rotates with the seed. Empty when no input is a float."""
    names = [b.name for b in program.inputs if b.dtype.is_float]
    return names[seed % len(names)] if names else ""


def make_inputs(program: Program, regime: str, seed: int) -> dict[str, Array]:
    """Inputs at the program's present sizes (bf16 as rounded float32). Streams depend on seed, regime and input name only; programs
    with one interface share the arrays, which nobody writes (at most 128 MiB are kept)."""
    described = tuple((b.name, b.dtype, shape_of(b.shape, program), shape_of(b.range, program) if b.range is not None else None) for b in program.inputs)
    key = (described, regime, seed)
    return _INPUTS.get(key, lambda: _draw(program, regime, seed))


_INPUTS: ByteLru[dict[str, Array]] = ByteLru(128 * 2**20, lambda inputs: sum(a.nbytes for a in inputs.values()))


def _draw(program: Program, regime: str, seed: int) -> dict[str, Array]:
    if regime not in ("wide", "offset", "special"):
        return {k: np.asarray(v) for k, v in float_inputs(program, regime, seed).items()}
    made: dict[str, Array] = {k: np.asarray(v) for k, v in float_inputs(program, "normal", seed).items()}
    for buffer in program.inputs:
        if not buffer.dtype.is_float:
            continue
        rng = np.random.default_rng(derive_seed("tier4", seed, regime, buffer.name))
        shape = shape_of(buffer.shape, program)
        if regime == "wide":
            top = {DType.F16: 1023, DType.BF16: 127}.get(buffer.dtype, WIDE_TOP)
            chosen = buffer.name == wide_input(program, seed)
            values = (rng.integers(0, (top + 1) // 2, shape) * 2 + 1) * rng.choice([-1, 1], shape) if chosen else rng.integers(-1, 2, shape)
            values = values.astype(np.float64)
        elif regime == "offset":
            values = 100.0 + 0.25 * rng.standard_normal(shape)
        else:
            values = rng.standard_normal(shape)
            draw = rng.random(shape)
            for low, special in ((0.0, np.inf), (0.01, -np.inf), (0.02, np.nan)):
                values = np.where((draw >= low) & (draw < low + 0.01), special, values)
        made[buffer.name] = np.asarray(round_array(values, buffer.dtype))
    return made


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


def default_regimes(program: Program) -> tuple[str, ...]:
    """All regimes, or the first few for programs whose oracle takes long: fewer above 20 and above 500 million stores."""
    load = work(program)
    return TIER4_REGIMES if load < 2e7 else TIER4_REGIMES[:7] if load < 5e8 else TIER4_REGIMES[:4]
