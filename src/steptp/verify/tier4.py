"""Tier 4: the compiled child stays accurate at real sizes.

Every output element ``y`` of the child is compared with ``o``, the root evaluated in f64 on the same inputs:

    |y - o|  <=  C*|r - o|  +  (K + C*q)*e

``r`` is the compiled root's own result, ``e`` the running error estimate of the root at this element (``steptp.lower.shadow``:
derivatives times rounding errors, and u*sqrt(n)*sum|terms| for a sum of n terms), and ``q`` the root's own ratio |r-o|/e, its 99th percentile
over the output. So the bound follows the conditioning of each element, has no absolute tolerance, and is anchored at the
trajectory's root: errors of successive steps cannot add up. On small-integer inputs + - * are exact in any order, and nothing
but equality passes. The root defines no value where the oracle is NaN, or where the compiled root alone leaves the finite
numbers. Where the oracle is infinite the child must be so too (or what the compiled root is); on inputs that are themselves infinite
or NaN it may also be NaN, because equality over the reals says nothing about inf - inf.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from steptp.ir.nodes import Buffer, Program
from steptp.verify.compiled import POISON, GuardedRun, bits_of, guarded_run, kept_run, kinds, print_value
from steptp.verify.tier4_inputs import BENIGN, NONFINITE, default_regimes
from steptp.verify.tier4_oracle import Reference, reference, unit
from steptp.verify.verdict import Counterexample, TierReport, VerdictKind

__all__ = ["ROOT_FACTOR", "SCALE_FACTOR", "Runner", "tier4"]

Array = npt.NDArray[Any]
Runner: TypeAlias = Callable[[Mapping[str, Array], int], GuardedRun]
"""(inputs, poison byte) → a guarded run of the child somewhere else than in this machine's CPU code."""

ROOT_FACTOR = 4.0
"""C: how much worse than the compiled root a child may be."""
SCALE_FACTOR = 8.0
"""K: how many running error estimates are always allowed."""


def tier4(
    root: Program,
    parent: Program,
    child: Program,
    *,
    seed: int = 0,
    regimes: Sequence[str] | None = None,
    equal_over_reals: bool = False,
    runner: Runner | None = None,
) -> TierReport:
    """Check the compiled ``child`` against ``root``; ``parent`` only serves to say whether a failure is this step's.

    ``equal_over_reals``: tier 3 has found the step equal, so what goes far astray in floating point is a matter of rounding and range, and
    ``numerically_unsafe``; without it such a child is ``not_equal``. ``regimes`` are names of :data:`steptp.verify.tier4_inputs.TIER4_REGIMES` (default: as many as the root's size allows).
    ``runner`` runs the child in place of its CPU build (on a GPU); whose failure it is is then not asked. Verdicts:
    ``ok``, ``not_equal`` (exact inputs differ, benign inputs lose half their digits, or the outputs depend on stale memory),
    ``numerically_unsafe``, ``unsafe_memory``.
    Raises :class:`steptp.lower.BuildError` ``build-failed``.
    """
    from steptp.lower import build

    first: Callable[[Mapping[str, Array], str, int], GuardedRun]
    again: Runner
    if runner is None:
        built = build(child)
        first, again = partial(kept_run, built), partial(guarded_run, built)
    else:
        first, again = (lambda inputs, regime, seed: runner(inputs, POISON)), runner
    worst: dict[str, float] = {}
    chosen = tuple(regimes) if regimes is not None else default_regimes(root)
    for position, regime in enumerate(chosen):
        known = reference(root, regime, seed)
        run = first(known.inputs, regime, seed)
        if run.damage:
            return _report(child, VerdictKind.UNSAFE_MEMORY, f"the compiled program {run.damage}", chosen, worst)
        if position == 0 and (stale := _stale(child, run, again(known.inputs, 0x7B))):
            return _report(
                child, VerdictKind.NOT_EQUAL, f"two runs on equal inputs differ in output {stale}: it depends on unwritten memory or a race", chosen, worst
            )
        for buffer in root.outputs:
            found = _judged(buffer, run, known, regime, equal_over_reals)
            worst[regime] = max(worst.get(regime, 0.0), found.ratio)
            if found.kind is not None:
                failed = _counterexample(root, buffer, found, known, regime, seed)
                fault: dict[str, object] = {"regime": regime}
                if runner is None:
                    fault["parent_fails_too"] = _parent_fails(root, parent, buffer, known, regime, seed)
                return _report(child, found.kind, found.message, chosen, worst, failed, fault)
    return _report(child, VerdictKind.OK, f"within the root's error bound in {len(chosen)} regimes at real sizes", chosen, worst)


def _judged(buffer: Buffer, run: GuardedRun, known: Reference, regime: str, equal: bool) -> _Found:
    """:func:`_compare`, done once for a child that computes just what the root does."""
    from steptp.lower.build import from_storage

    got = from_storage(run.outputs[buffer.name], buffer.dtype)
    if not np.array_equal(got, known.root[buffer.name], equal_nan=buffer.dtype.is_float):
        return _compare(buffer, run, known, regime, equal)
    own = known.memo.get(f"own {buffer.name}")
    if own is None:
        own = known.memo[f"own {buffer.name}"] = _compare(buffer, run, known, regime)
    return own


class _Found:
    """The comparison of one output."""

    __slots__ = ("actual", "index", "kind", "message", "ratio", "tolerance")

    def __init__(self) -> None:
        self.kind: VerdictKind | None = None
        self.message = ""
        self.ratio = 0.0
        self.index: tuple[int, ...] = ()
        self.actual: Any = None
        self.tolerance = 0.0


def _compare(buffer: Buffer, run: GuardedRun, known: Reference, regime: str, equal: bool = False) -> _Found:
    from steptp.lower.build import from_storage

    got = from_storage(run.outputs[buffer.name], buffer.dtype)
    want, root = known.oracle[buffer.name], known.root[buffer.name]
    found = _Found()
    if not buffer.dtype.is_float:
        wrong = (got != want) & (got != root)
        _fail(found, wrong, got, VerdictKind.NOT_EQUAL if regime in BENIGN else VerdictKind.NUMERICALLY_UNSAFE, f"{buffer.name} differs")
        return found
    value = got.astype(np.float64)
    with np.errstate(all="ignore"):
        bound, scale = _bound(buffer, known)
        away = np.abs(value - want)
        finite = np.isfinite(want)
        known_root = np.isfinite(root)
        other_kind = (kinds(value) != kinds(want)) & (kinds(value) != kinds(root)) & ~np.isnan(want)
        if regime in NONFINITE:
            other_kind &= ~np.isnan(value)
        wrong = np.where(finite, known_root & ~(away <= bound), other_kind)
        judged = finite & known_root & (away > 0)
        if judged.any():
            found.ratio = float(np.nanmax(np.where(judged, away / np.maximum(bound, np.finfo(np.float64).tiny), 0.0)))
        if known.exact:
            _fail(found, finite & (value != want), got, VerdictKind.NOT_EQUAL, f"{buffer.name} differs on integers that + - * compute exactly")
        if found.kind is None:
            gross = wrong & finite & ~(away <= scale / np.sqrt(unit(buffer.dtype)))
            if regime in BENIGN and not equal:
                _fail(found, gross, got, VerdictKind.NOT_EQUAL, f"{buffer.name} is wrong on {regime} inputs", away)
        if found.kind is None:
            _fail(found, wrong, got, VerdictKind.NUMERICALLY_UNSAFE, f"{buffer.name} is less accurate than the root allows on {regime} inputs", away)
    if found.kind is not None:
        found.tolerance = float(bound[found.index])
    return found


def _bound(buffer: Buffer, known: Reference) -> tuple[Array, Array]:
    """The allowed distance from the oracle for each element, and the error scale ``e``."""
    if (kept := known.memo.get(f"bound {buffer.name}")) is None:
        kept = known.memo[f"bound {buffer.name}"] = _bound_of(buffer, known)
    return kept


def _bound_of(buffer: Buffer, known: Reference) -> tuple[Array, Array]:
    want, root, error = known.oracle[buffer.name], known.root[buffer.name], known.error[buffer.name]
    scale = np.where(np.isfinite(error), error, unit(buffer.dtype) * np.abs(want))
    own = np.where(np.isfinite(root) & np.isfinite(want), np.abs(root - want), 0.0)
    ratios = own[scale > 0] / scale[scale > 0]
    ratios = ratios[np.isfinite(ratios)]
    typical = float(np.quantile(ratios, 0.99)) if ratios.size else 0.0
    return ROOT_FACTOR * own + (SCALE_FACTOR + ROOT_FACTOR * typical) * scale, scale


def _fail(found: _Found, wrong: Array, got: Array, kind: VerdictKind, message: str, away: Array | None = None) -> None:
    """Record the worst wrong element (NaN first), if there is one."""
    if not wrong.any():
        return
    size = np.where(wrong, np.where(np.isnan(away), np.inf, away), -1.0) if away is not None else wrong
    place = np.unravel_index(int(np.argmax(size)), wrong.shape) if wrong.shape else ()
    found.kind, found.index = kind, tuple(int(i) for i in place)
    found.message = f"{message}: {int(np.count_nonzero(wrong))} of {wrong.size} elements"
    found.actual = got[found.index]


def _counterexample(root: Program, buffer: Buffer, found: _Found, known: Reference, regime: str, seed: int) -> Counterexample:
    expected, own = known.oracle[buffer.name][found.index], known.root[buffer.name][found.index]
    note = f"the compiled root gives {print_value(own)}; allowed distance {found.tolerance:.3g}"
    sizes = tuple(sorted(root.size_env.items()))
    return Counterexample(buffer.name, found.index, print_value(expected), print_value(found.actual), sizes, regime, seed, note)


def _stale(program: Program, first: GuardedRun, second: GuardedRun) -> str:
    """The first output whose bits differ between two runs, or the empty string."""
    for buffer in program.outputs:
        a, b = (bits_of(run.outputs[buffer.name]) for run in (first, second))
        if not np.array_equal(a, b):
            return buffer.name
    return ""


def _parent_fails(root: Program, parent: Program, buffer: Buffer, known: Reference, regime: str, seed: int) -> bool:
    from steptp.lower import BuildError, build

    if parent == root:
        return False
    try:
        run = kept_run(build(parent), known.inputs, regime, seed)
    except BuildError:
        return True
    return _compare(buffer, run, known, regime).kind is not None


def _report(
    child: Program,
    kind: VerdictKind,
    message: str,
    regimes: tuple[str, ...],
    worst: dict[str, float],
    counterexample: Counterexample | None = None,
    more: dict[str, object] | None = None,
) -> TierReport:
    evidence: dict[str, object] = {
        "build": "release",
        "regimes": list(regimes),
        "worst_ratio": {k: round(v, 4) for k, v in worst.items()},
        "root_factor": ROOT_FACTOR,
        "scale_factor": SCALE_FACTOR,
        "outputs": [b.name for b in child.outputs],
        **(more or {}),
    }
    return TierReport(4, kind, message, evidence, counterexample)
