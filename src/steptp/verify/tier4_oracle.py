"""What a root program should compute on given inputs, and how far a rounded program may be from it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from steptp.ir.nodes import Program
from steptp.ir.types import DType
from steptp.ir.walk import buffers
from steptp.verify.cache import ByteLru, program_key
from steptp.verify.compiled import kept_run
from steptp.verify.tier4_inputs import WIDE_TOP, make_inputs, wide_input

__all__ = ["Reference", "clear_references", "reference", "unit"]

Array = npt.NDArray[Any]

_DIGITS = {DType.F16: 11, DType.BF16: 8, DType.F32: 24, DType.F64: 53}


@dataclass(frozen=True, slots=True)
class Reference:
    """A root on one draw of inputs. ``oracle``: its outputs computed in f64; ``error``: the running error estimate of each float
    output; ``root``: what the compiled root gives (floats as f64); ``exact``: every + - * is exact, so equal programs agree to the bit.
    ``memo``: what tier 4 has worked out from these for its next child."""

    inputs: dict[str, Array]
    oracle: dict[str, Array]
    error: dict[str, Array]
    root: dict[str, Array]
    exact: bool
    memo: dict[str, Any] = field(default_factory=dict, compare=False)

    @property
    def nbytes(self) -> int:
        """Bytes held, two arrays for each output in ``memo`` among them."""
        return sum(a.nbytes for group in (self.inputs, self.oracle, self.error, self.root) for a in group.values()) + 2 * sum(
            a.nbytes for a in self.error.values()
        )


_CACHE: ByteLru[Reference] = ByteLru(384 * 2**20, lambda reference: reference.nbytes)


def unit(dtype: DType) -> float:
    """Unit roundoff."""
    return 2.0 ** -_DIGITS[dtype]


def clear_references() -> None:
    """Forget cached oracles."""
    _CACHE.clear()


def reference(root: Program, regime: str, seed: int) -> Reference:
    """The reference of a root, kept while its trajectory is being checked (at most 384 MiB a process).

    Raises :class:`steptp.lower.BuildError` when the root cannot be built.
    """
    return _CACHE.get((program_key(root), regime, seed), lambda: _compute(root, regime, seed))


def _compute(root: Program, regime: str, seed: int) -> Reference:
    from steptp.lower import build
    from steptp.lower.build import from_storage
    from steptp.lower.shadow import shadow

    inputs = make_inputs(root, regime, seed)
    shade = shadow(root)
    wide = build(shade.program).run({k: v.astype(np.float64) if v.dtype.kind == "f" else v for k, v in inputs.items()})
    run = kept_run(build(root), inputs, regime, seed)
    plain: dict[str, Array] = {}
    for buffer in root.outputs:
        value = from_storage(run.outputs[buffer.name], buffer.dtype)
        plain[buffer.name] = value.astype(np.float64) if buffer.dtype.is_float else value
    oracle = {b.name: wide[b.name] for b in root.outputs}
    error = {name: wide[source] for name, source in shade.errors.items()}
    return Reference(inputs, oracle, error, plain, regime in ("ties", "wide") and _exact(root, regime, seed))


def _exact(root: Program, regime: str, seed: int) -> bool:
    """Whether no value on the way to an output leaves the integers that its dtype holds exactly."""
    from steptp.lower import build
    from steptp.lower.widen import magnitude

    bound = magnitude(root)
    if bound is None:
        return False
    digits = min(_DIGITS[b.dtype] for b in buffers(root) if b.dtype.is_float)
    given = make_inputs(root, regime, seed)
    chosen = wide_input(root, seed)
    tops: dict[str, Array] = {}
    for buffer in bound.inputs:
        if buffer.dtype.is_float:
            top = (float(WIDE_TOP) if buffer.name == chosen else 1.0) if regime == "wide" else 2.0
            tops[buffer.name] = np.full(given[buffer.name].shape, top)
        else:
            tops[buffer.name] = given[buffer.name]
    out = build(bound).run(tops)
    return all(bool((v <= 2.0**digits).all()) for v in out.values())
