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
from steptp.verify.compiled import GuardedRun, kept_run
from steptp.verify.tier4_inputs import NONFINITE, WIDE_TOP, inputs_key, make_inputs, wide_input

__all__ = ["Reference", "clear_references", "estimate_at", "exactly_computed", "reference", "reference_on", "unit"]

Array = npt.NDArray[Any]

_ODD, _SAMPLE = 3, 8  # elements of an output that are evaluated exactly: where the oracle is not finite, and of f64 programs
_LOST = 64.0  # an f64 oracle that far from an exact value, in error estimates, says nothing of the others
_DIGITS = {DType.F16: 11, DType.BF16: 8, DType.F32: 24, DType.F64: 53}


@dataclass(frozen=True, slots=True)
class Reference:
    """A root on one draw of inputs. ``oracle``: its outputs computed in f64; ``error``: the running error estimate of each float
    output; ``root``: what the compiled root gives (floats as f64); ``exact``: every + - * is exact, so equal programs agree to the bit;
    ``terms``: of the longest sum; ``open``: where the oracle left the f64 range although exact values there are finite; ``anchor``: what exact
    evaluation of sampled elements said of the oracle. ``memo``: what tier 4 has worked out from these for its next child."""

    inputs: dict[str, Array]
    oracle: dict[str, Array]
    error: dict[str, Array]
    root: dict[str, Array]
    exact: bool
    terms: int = 1
    open: dict[str, Array] = field(default_factory=dict)
    anchor: dict[str, object] = field(default_factory=dict)
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


def estimate_at(error: float, exact: float, dtype: DType) -> float:
    """The error estimate of one element, at least the rounding of its exact value."""
    return float(np.nanmax([error, unit(dtype) * abs(exact), np.finfo(np.float64).smallest_subnormal]))


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

    inputs = make_inputs(root, regime, seed)
    run = kept_run(build(root), inputs, inputs_key(root, regime, seed))
    return reference_on(root, inputs, run, regime, seed, exact=exactly_computed(root, regime, seed))


def reference_on(root: Program, inputs: dict[str, Array], run: GuardedRun, regime: str, seed: int, *, exact: bool = False) -> Reference:
    """The reference of a root on these inputs, given its own run on them; nothing is kept. ``exact``: see :func:`exactly_computed`."""
    from steptp.lower import build
    from steptp.lower.build import from_storage
    from steptp.lower.shadow import shadow

    shade = shadow(root)
    wide = build(shade.program).run({k: v.astype(np.float64) if v.dtype.kind == "f" else v for k, v in inputs.items()})
    plain: dict[str, Array] = {}
    for buffer in root.outputs:
        value = from_storage(run.outputs[buffer.name], buffer.dtype)
        plain[buffer.name] = value.astype(np.float64) if buffer.dtype.is_float else value
    oracle = {b.name: wide[b.name] for b in root.outputs}
    error = {name: wide[source] for name, source in shade.errors.items()}
    unknown, anchor = _anchored(root, regime, seed, inputs, oracle, error) if regime not in NONFINITE else ({}, {})
    return Reference(inputs, oracle, error, plain, exact, shade.terms, unknown, anchor)


def _anchored(
    root: Program, regime: str, seed: int, inputs: dict[str, Array], oracle: dict[str, Array], error: dict[str, Array]
) -> tuple[dict[str, Array], dict[str, object]]:
    """Put exact values in the place of the oracle's: some of those that are not finite, and, where the root itself computes in f64, a sample.

    An estimate that a sampled element proves too small is enlarged everywhere.
    """
    from steptp.verify.tier4_exact import ExactElements, sampled

    doubles = any(b.dtype is DType.F64 for b in buffers(root))
    exact: ExactElements | None = None
    unknown: dict[str, Array] = {}
    count, overflowed, worst_of = 0, 0, 0.0
    for buffer in root.outputs:
        if not buffer.dtype.is_float:
            continue
        want = oracle[buffer.name]
        odd = ~np.isfinite(want)
        chosen = [tuple(int(i) for i in np.unravel_index(f, want.shape)) for f in np.flatnonzero(odd)[:: max(1, int(odd.sum()) // _ODD)][:_ODD]]
        chosen += sampled(want.shape, _SAMPLE, seed) if doubles else []
        finite_after_all, worst = False, 0.0
        seen = np.zeros(want.shape, bool)
        for index in chosen:
            exact = exact or ExactElements(root, inputs)
            value = exact.value(buffer.name, index)
            if value is None:
                break
            count += 1
            if odd[index] and np.isfinite(value):
                finite_after_all, odd[index] = True, False
                overflowed += 1
                error[buffer.name][index] = np.sqrt(unit(buffer.dtype)) * abs(value)  # no estimate there
            elif np.isfinite(value) and doubles and (away := abs(value - want[index])) > 0:
                worst = max(worst, away / estimate_at(error[buffer.name][index], value, DType.F64))
            want[index], seen[index] = value, True
        worst_of = max(worst_of, worst)
        if finite_after_all:
            unknown[buffer.name] = odd
        if worst > _LOST:  # the oracle left the range on the way, without a trace
            want[~seen] = np.nan
            unknown[buffer.name] = ~seen
        elif worst > 1:
            error[buffer.name] *= worst
    return unknown, {"elements": count, "beyond_f64": overflowed, **({"worst_of_estimate": float(f"{worst_of:.3g}")} if doubles else {})} if count else {}


def exactly_computed(root: Program, regime: str, seed: int) -> bool:
    """Whether the regime draws integers, and no value on the way to an output leaves the integers that its dtype holds exactly."""
    from steptp.lower import build
    from steptp.lower.widen import magnitude

    if regime not in ("ties", "wide"):
        return False
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
