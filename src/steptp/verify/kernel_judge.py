"""Tiers 4, 3 and 5 for a kernel that can only be run.

*Tier 4* is that of :mod:`steptp.verify.tier4`: the same regimes, oracle and bounds, anchored at the reference. Each regime is drawn from two seeds;
the second draw lies in the memory of the first. *Tier 3* puts exact values in the place of the oracle's at corners, edges of the usual tiles and
random elements, compares again by the same bounds, and holds the oracle itself against them. *Tier 5* wants the reference's own bits: those of
the PyTorch module, or of one of the two builds of a LEIR program (with and without FMA contraction).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from time import process_time
from typing import Any

import numpy as np
import numpy.typing as npt

from steptp.frontend import Workload
from steptp.ir.nodes import Buffer, Program
from steptp.ir.sizes import shape_of
from steptp.lower import BuildOptions, Built, build
from steptp.lower.build import to_storage
from steptp.verify.compiled import GuardedRun, guarded_run
from steptp.verify.forked import Ended
from steptp.verify.kernel_calls import Kernel
from steptp.verify.samples import sample_indices
from steptp.verify.tier4 import ROOT_FACTOR, SCALE_FACTOR, counterexample, failure_record
from steptp.verify.tier4_compare import compare
from steptp.verify.tier4_exact import ExactElements
from steptp.verify.tier4_inputs import TIER4_REGIMES, default_regimes, make_inputs, work
from steptp.verify.tier4_oracle import Reference, estimate_at, exactly_computed, reference_on
from steptp.verify.tier5 import TIER5_REGIMES, same_bits
from steptp.verify.verdict import TierReport, Verdict, VerdictKind

__all__ = ["GIVEN", "Subject", "judge"]

Array = npt.NDArray[Any]
GIVEN = "given"
"""The regime of the inputs that the caller has passed."""
_DRAWS = 2
_SMALL, _MEDIUM = 2e7, 5e8  # stores of the reference
_EXACT_REGIMES = ("normal", "mixed")
_TILES = (8, 16, 32, 64, 128)
_POINTS, _ELEMENTS, _WORK = 6, 24, 60_000
"""Random elements, all elements, and statements visited, of exact evaluation in one regime."""


@dataclass(frozen=True)
class Subject:
    """What a kernel is compared with. ``fixed``: inputs that are never drawn (a module's own weights); ``given``: the caller's inputs."""

    root: Program
    workload: Workload | None = None
    fixed: Mapping[str, Array] = field(default_factory=dict)
    given: Mapping[str, Array] | None = None

    def inputs(self, regime: str, seed: int) -> dict[str, Array]:
        """The inputs of a regime at the program's sizes."""
        if regime == GIVEN and self.given is not None:
            return dict(self.given)
        return {**make_inputs(self.root, regime, seed), **self.fixed}

    def regimes(self) -> dict[str, str]:
        """Regimes with the reason for each: those of the reference's operators and, where the reference is cheap, all others, as nobody knows the kernel's."""
        why = default_regimes(self.root)
        if work(self.root) < _SMALL:
            why = {r: why.get(r, "the kernel may contain any operator") for r in TIER4_REGIMES}
        return {**why, GIVEN: "given"} if self.given is not None else why

    def known(self, inputs: dict[str, Array], regime: str, seed: int) -> Reference:
        """What the reference computes on them; never kept."""
        exact = not self.fixed and regime != GIVEN and exactly_computed(self.root, regime, seed)
        return reference_on(self.root, inputs, guarded_run(build(self.root), inputs), regime, seed, exact=exact)


def judge(subject: Subject, kernel: Kernel, *, seed: int = 0, bitwise: bool = False) -> Verdict:
    """The verdict on a kernel by tiers 4 and 3, and 5 where equal bits are asked for.

    Raises :class:`steptp.lower.BuildError` when the reference cannot be built.
    """
    reports = _numbers(subject, kernel, seed)
    if bitwise and reports[-1].kind is VerdictKind.OK:
        reports.append(_bits(subject, kernel, seed))
    last = reports[-1]
    return Verdict(last.kind, last.tier if last.kind is not VerdictKind.OK else max(r.tier for r in reports), tuple(reports))


def _numbers(subject: Subject, kernel: Kernel, seed: int) -> list[TierReport]:
    """The reports of tiers 4 and 3, up to the first that rejects."""
    root, chosen = subject.root, subject.regimes()
    worst: dict[str, float] = {}
    exact, start = _Exact(), process_time()
    evidence: dict[str, object] = {
        "build": "opaque", "regimes": list(chosen), "why": chosen, "seeds": [seed, seed + _DRAWS - 1], "worst_ratio": worst, "root_factor": ROOT_FACTOR,
        "scale_factor": SCALE_FACTOR, "outputs": [b.name for b in root.outputs], "fixed": sorted(subject.fixed),
    }  # fmt: skip
    for regime in chosen:
        for draw in range(1 if regime == GIVEN else _DRAWS):
            inputs, own = subject.inputs(regime, seed + draw), seed + draw
            at: dict[str, object] = {**evidence, "regime": regime, "seed": own}
            try:
                run = kernel.run(inputs, again=draw > 0)
            except Ended as err:
                return [TierReport(4, err.kind, err.message, {**at, "log": err.log} if err.log else at)]
            if run.damage:
                return [TierReport(4, VerdictKind.UNSAFE_MEMORY, f"the kernel {run.damage}", at)]
            known = subject.known(inputs, regime, own)
            if (failed := _compared(4, root, run, known, regime, own, at, worst)) is not None:
                return [failed]
            if regime in _EXACT_REGIMES and not draw:
                began = process_time()
                anchored, wrong = exact.put(root, known, own)
                exact.seconds += process_time() - began
                if wrong:
                    return [TierReport(3, VerdictKind.UNKNOWN, f"the f64 oracle is astray at {wrong}: it says nothing about the kernel", at)]
                if (failed := _compared(3, root, run, anchored, regime, own, at, {})) is not None:
                    return [failed]
    evidence["worst_ratio"] = {k: round(v, 4) for k, v in worst.items()}
    sampled = TierReport(
        3, VerdictKind.OK, f"within the bound of the exact value at {exact.elements} sampled elements", exact.evidence(), seconds=exact.seconds
    )
    spent = process_time() - start - exact.seconds
    return [sampled, TierReport(4, VerdictKind.OK, f"within the reference's error bound in {len(chosen)} regimes", evidence, seconds=spent)]


def _compared(
    tier: int, root: Program, run: GuardedRun, known: Reference, regime: str, seed: int, evidence: dict[str, object], worst: dict[str, float]
) -> TierReport | None:
    for buffer in root.outputs:
        found = compare(buffer, run, known, regime)
        worst[regime] = max(worst.get(regime, 0.0), found.ratio)
        if found.kind is not None:
            failure = {"failure": failure_record(root, buffer, found, known, regime)}
            return TierReport(tier, found.kind, found.message, {**evidence, **failure}, counterexample(root, buffer, found, known, regime, seed))
    return None


@dataclass
class _Exact:
    """Exact values in the place of an oracle's, and what putting them there has shown."""

    elements: int = 0
    beyond: int = 0
    worst: float = 0.0
    seconds: float = 0.0

    def put(self, root: Program, known: Reference, seed: int) -> tuple[Reference, str]:
        """``known`` with exact values where they can be had, and the element at which the oracle was wrong, if any."""
        evaluator = ExactElements(root, known.inputs)
        oracle = {name: value.copy() for name, value in known.oracle.items()}
        spent = 0
        for buffer, index in _places(root, seed):
            if spent > _WORK:
                break
            value = evaluator.value(buffer.name, index)
            spent += evaluator.work
            if value is None:
                self.beyond += 1
                continue
            self.elements += 1
            said = oracle[buffer.name][index]
            if not buffer.dtype.is_float:
                if said != value:
                    return known, f"{buffer.name}{list(index)}"
                continue
            error = estimate_at(known.error[buffer.name][index], value, buffer.dtype)
            away = 0.0 if said == value or (np.isnan(said) and np.isnan(value)) else abs(float(said) - value) / error
            if away > SCALE_FACTOR or np.isnan(away):
                return known, f"{buffer.name}{list(index)}"
            self.worst = max(self.worst, away)
            oracle[buffer.name][index] = value
        return replace(known, oracle=oracle, memo={}), ""

    def evidence(self) -> dict[str, object]:
        return {"elements": self.elements, "beyond_budget": self.beyond, "regimes": list(_EXACT_REGIMES), "oracle_off": float(f"{self.worst:.3g}")}


def _places(root: Program, seed: int) -> Iterator[tuple[Buffer, tuple[int, ...]]]:
    """Corners, edges of tiles of usual widths, and random elements; outputs take turns."""
    found = list(sample_indices(root, root, _POINTS, seed))
    for width in _TILES:
        for buffer in root.outputs:
            shape = shape_of(buffer.shape, root)
            found += [(buffer, tuple(min(at, n - 1) for n in shape)) for at in (width - 1, width) if any(n > at for n in shape)]
    return iter(list(dict.fromkeys(found))[:_ELEMENTS])


def _bits(subject: Subject, kernel: Kernel, seed: int) -> TierReport:
    root = subject.root
    regimes = TIER5_REGIMES if work(root) < _MEDIUM else TIER5_REGIMES[:2]

    def after(_: Mapping[str, Array], regime: str) -> GuardedRun:
        return kernel.run(subject.inputs(regime, seed))

    try:
        if subject.workload is not None:
            return same_bits(root, lambda _, regime: _of_module(subject, regime, seed), after, regimes, seed, {"build": "PyTorch"})
        report = None
        for name, options in (("release", BuildOptions()), ("no-fma", BuildOptions(fma=False))):
            runs = partial(_of_build, build(root, options), subject, seed)
            report = same_bits(root, runs, after, regimes, seed, {"build": name})
            if report.kind is VerdictKind.OK:
                break
        assert report is not None
        return report
    except Ended as err:
        return TierReport(5, err.kind, err.message, {"log": err.log} if err.log else {})


def _of_build(built: Built, subject: Subject, seed: int, _: Mapping[str, Array], regime: str) -> GuardedRun:
    return guarded_run(built, subject.inputs(regime, seed))


def _of_module(subject: Subject, regime: str, seed: int) -> GuardedRun:
    """The bits of the PyTorch module itself."""
    workload = subject.workload
    assert workload is not None
    inputs = {**workload.example_inputs(0), **subject.inputs(regime, seed)}
    found = workload.reference(inputs)
    return GuardedRun({b.name: to_storage(found[b.name], b.dtype) for b in subject.root.outputs})
