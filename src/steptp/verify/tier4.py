"""Tier 4: the compiled child stays accurate at real sizes.

Every output element ``y`` of the child is compared with ``o``, the root evaluated in f64 on the same inputs:

    |y - o|  <=  C*|r - o|  +  (K + C*q)*e

``r`` is the compiled root's own result, ``e`` the running error estimate of the root at this element (``steptp.lower.shadow``:
derivatives times rounding errors, and u*sqrt(n)*sum|terms| for a sum of n terms), and ``q`` the root's own ratio |r-o|/e, its 99th percentile
over the output. ``e`` is at least u*|o|, and infinite where rounding could make a denominator 0. So the bound follows the conditioning of each
element, has no absolute tolerance, and is anchored at the trajectory's root: errors of successive steps cannot add up. On small-integer inputs
+ - * are exact in any order, and nothing but equality passes. Where the oracle is infinite or NaN the child must be so too, or what the compiled root is
(:mod:`steptp.verify.tier4_compare`). The oracle is itself held against exact evaluation: at sampled elements of f64
programs, and where it is not finite. The regimes depend on the operators of root and child; the evidence says which ran and why.
A child that rounds to a type narrower than all of the root's is refused even where no regime shows it (:mod:`steptp.verify.narrowing`).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt

from steptp.ir.nodes import Buffer, Program
from steptp.verify.compiled import POISON, GuardedRun, bits_of, guarded_run, kept_run, print_value
from steptp.verify.narrowing import narrowest, rounded_away
from steptp.verify.races import race
from steptp.verify.tier4_compare import ROOT_FACTOR, SCALE_FACTOR, Found, compare
from steptp.verify.tier4_inputs import BENIGN, default_regimes, inputs_key
from steptp.verify.tier4_oracle import Reference, reference
from steptp.verify.verdict import Counterexample, TierReport, VerdictKind

if TYPE_CHECKING:
    from steptp.lower.build import Built

__all__ = ["ROOT_FACTOR", "SCALE_FACTOR", "Runner", "counterexample", "failure_record", "tier4"]

Array = npt.NDArray[Any]
Runner: TypeAlias = Callable[[Mapping[str, Array], int], GuardedRun]
"""(inputs, poison byte) → a guarded run of the child somewhere else than in this machine's CPU code."""
_FEW = 8  # input values that a failure lists

MORE_DRAWS = 6
"""Further draws of each benign regime for a child that computes in a narrower type than the root."""


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
    ``numerically_unsafe``, ``unsafe_memory``, ``illegal`` (the bits depend on the number of threads).
    Raises :class:`steptp.lower.BuildError` ``build-failed``.
    """
    from steptp.lower import build

    first: Callable[[Mapping[str, Array], Hashable], GuardedRun]
    again: Runner
    built: Built | None = None
    if runner is None:
        built = build(child)
        first, again = partial(kept_run, built), partial(guarded_run, built)
    else:
        first, again = (lambda inputs, key: runner(inputs, POISON)), runner
    worst: dict[str, float] = {}
    chosen = dict.fromkeys(regimes, "asked for") if regimes is not None else default_regimes(root, child)
    opened: dict[str, int] = {}
    anchors: dict[str, object] = {}

    def report(kind: VerdictKind, message: str, failed: Counterexample | None = None, more: dict[str, object] | None = None) -> TierReport:
        evidence: dict[str, object] = {
            "build": "release",
            "regimes": list(chosen),
            "why": chosen,
            "worst_ratio": {k: round(v, 4) for k, v in worst.items()},
            "root_factor": ROOT_FACTOR,
            "scale_factor": SCALE_FACTOR,
            "outputs": [b.name for b in child.outputs],
            "undetermined": opened,
            "exact": anchors,
            **(more or {}),
        }
        return TierReport(4, kind, message, evidence, failed)

    draws = [(regime, seed) for regime in chosen]
    if narrowest(child) < narrowest(root):
        draws += [(regime, seed + 1_000_003 * n) for n in range(1, 1 + MORE_DRAWS) for regime in chosen if regime in BENIGN | {"mixed", "wide"}]
    for position, (regime, drawn) in enumerate(draws):
        known = reference(root, regime, drawn)
        if known.anchor:
            anchors[regime] = known.anchor
        run = first(known.inputs, inputs_key(root, regime, drawn))
        if run.damage:
            return report(VerdictKind.UNSAFE_MEMORY, f"the compiled program {run.damage}")
        if position == 0:
            second = again(known.inputs, 0x7B)
            if second.damage:
                return report(VerdictKind.UNSAFE_MEMORY, f"the compiled program {second.damage}")
            if stale := _stale(child, run, second):
                return report(VerdictKind.NOT_EQUAL, f"two runs on equal inputs differ in output {stale}: it depends on unwritten memory or a race")
            if built is not None and (raced := race(built, known.inputs, run)):
                return report(VerdictKind.ILLEGAL, f"the result depends on the number of threads: other bits in output {raced}")
        for buffer in root.outputs:
            found = _judged(buffer, run, known, regime, equal_over_reals)
            worst[regime] = max(worst.get(regime, 0.0), found.ratio)
            if found.open:
                opened[regime] = opened.get(regime, 0) + found.open
            if found.kind is not None:
                failed = counterexample(root, buffer, found, known, regime, drawn)
                fault: dict[str, object] = {"regime": regime, "failure": failure_record(root, buffer, found, known, regime)}
                if runner is None:
                    fault["parent_fails_too"] = _parent_fails(root, parent, buffer, known, regime, drawn)
                return report(found.kind, found.message, failed, fault)
    if (lost := rounded_away(root, child)) is not None:
        return report(VerdictKind.NUMERICALLY_UNSAFE, f"{lost.text}, narrower than every type of the root; the inputs drawn do not show what that loses")
    return report(VerdictKind.OK, f"within the root's error bound in {len(chosen)} regimes")


def _judged(buffer: Buffer, run: GuardedRun, known: Reference, regime: str, equal: bool) -> Found:
    """:func:`compare`, done once for a child that computes just what the root does."""
    from steptp.lower.build import from_storage

    got = from_storage(run.outputs[buffer.name], buffer.dtype)
    if not np.array_equal(got, known.root[buffer.name], equal_nan=buffer.dtype.is_float):
        return compare(buffer, run, known, regime, equal)
    own = known.memo.get(f"own {buffer.name}")
    if own is None:
        own = known.memo[f"own {buffer.name}"] = compare(buffer, run, known, regime)
    return own


def counterexample(root: Program, buffer: Buffer, found: Found, known: Reference, regime: str, seed: int) -> Counterexample:
    expected, own = known.oracle[buffer.name][found.index], known.root[buffer.name][found.index]
    note = f"the compiled root gives {print_value(own)}; allowed distance {found.tolerance:.3g}"
    sizes = tuple(sorted(root.size_env.items()))
    return Counterexample(buffer.name, found.index, print_value(expected), print_value(found.actual), sizes, regime, seed, note)


def failure_record(root: Program, buffer: Buffer, found: Found, known: Reference, regime: str) -> dict[str, object]:
    """The failing element as a record, with the inputs it reads where these are few."""
    from steptp.verify.tier4_exact import ExactElements

    exact = ExactElements(root, known.inputs)
    true = exact.value(buffer.name, found.index)
    return {
        "regime": regime,
        "output": buffer.name,
        "element": list(found.index),
        "oracle": print_value(known.oracle[buffer.name][found.index]),
        "exact": None if true is None else repr(true),
        "root": print_value(known.root[buffer.name][found.index]),
        "child": print_value(found.actual),
        "allowed": found.tolerance,
        "condition": found.condition,
        "inputs": exact.read(_FEW) if true is not None else {},
    }


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
        run = kept_run(build(parent), known.inputs, inputs_key(root, regime, seed))
    except BuildError:
        return True
    return compare(buffer, run, known, regime).kind is not None
