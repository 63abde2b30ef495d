"""The ladder: tiers cheapest first, one verdict.

*Verified* means tiers 0 to 2, or 0, 1 and 3, and then 4 (and 5 when the step claims equal bits) where compiled code was asked for.
A tier that cannot decide never accepts: after an undecided tier 2 comes tier 3; an undecided tier 1 ends
as ``unknown`` unless tier 3 shows a difference; an undecided tier elsewhere ends as ``unknown``. Whatever a tier raises becomes a report; nothing is raised here.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from time import process_time
from typing import TypeAlias

from steptp.errors import LeirError, StepTPError
from steptp.ir import Program, program_hash
from steptp.rewrite.base import Applied, Exactness, InstanceMap
from steptp.verify.tier0 import parse_candidate, tier0
from steptp.verify.verdict import TierReport, Verdict, VerdictKind

__all__ = ["verify_step", "verify_pair", "run_tier", "OneStep", "ALL_TIERS", "engine_match"]

OneStep: TypeAlias = Callable[[Program, Program], Applied | None]
"""(parent, child) → the strategy step whose program has the child's hash, if the engine lists one."""

ALL_TIERS = (0, 1, 2, 3, 4, 5)
_log = logging.getLogger("steptp.verify")


def run_tier(tier: int, check: Callable[[], TierReport]) -> TierReport:
    """Run one tier, timed. What it raises becomes a report: its own kind for known errors, ``crashed`` for a bug."""
    start = process_time()
    try:
        report = check()
    except MemoryError as err:
        report = _failed(tier, VerdictKind.OOM, "MemoryError", str(err) or "out of memory")
    except TimeoutError as err:
        report = _failed(tier, VerdictKind.TIMEOUT, "TimeoutError", str(err) or "out of time")
    except StepTPError as err:
        bad_text = isinstance(err, LeirError) and tier <= 1  # later tiers get well-formed programs: their LEIR errors are their own
        kind = VerdictKind.BUILD_FAILED if err.code == "build-failed" else VerdictKind.MALFORMED if bad_text else VerdictKind.CRASHED
        report = _failed(tier, kind, err.code, err.message)
        if kind is VerdictKind.CRASHED:
            _log.warning("tier %d crashed: %s: %s", tier, err.code, err.message, exc_info=True)
    except Exception as err:  # noqa: BLE001 - the crash boundary of the verifier: a candidate must not end a run
        report = _failed(tier, VerdictKind.CRASHED, type(err).__name__, str(err))
        _log.warning("tier %d crashed: %s: %s", tier, type(err).__name__, err, exc_info=True)
    return replace(report, seconds=process_time() - start)


def _failed(tier: int, kind: VerdictKind, code: str, message: str) -> TierReport:
    return TierReport(tier, kind, f"{code}: {message}", {"code": code})


class _Ladder:
    """One climb: reports so far, and the verdict once a tier ends it."""

    def __init__(self) -> None:
        self.reports: list[TierReport] = []

    def ask(self, tier: int, check: Callable[[], TierReport]) -> TierReport:
        report = run_tier(tier, check)
        self.reports.append(report)
        return report

    def end(self, kind: VerdictKind, tier: int) -> Verdict:
        return Verdict(kind, tier, tuple(self.reports))

    def rejected(self, report: TierReport) -> Verdict:
        return self.end(report.kind, report.tier)


def verify_step(
    parent: Program,
    child: Program | str,
    *,
    applied: Applied | None = None,
    root: Program | None = None,
    exactness: Exactness | None = None,
    instances: InstanceMap | None = None,
    one_step: OneStep | None = None,
    tiers: Collection[int] = ALL_TIERS,
    seed: int = 0,
    input_seed: int | None = None,
    proven: bool = False,
    build_tiers: bool = True,
    light: bool = False,
) -> Verdict:
    """The verdict on the step ``parent`` → ``child`` (a program or its text).

    ``applied``: what the strategy returned; its instance map goes to tier 2 and its class is the claim (``exactness`` and
    ``instances`` override or replace it). Without either, ``one_step`` is asked first whether a strategy makes this very program; otherwise the
    step is a free rewrite, claims nothing about bits, and goes to tier 3. ``root`` anchors tier 4 (default: the parent).
    ``tiers`` restricts what runs: a step that no tier of 2 and 3 has accepted is ``unknown`` unless neither was asked for and the
    caller vouches for them by leaving out 0 to 3 altogether (as when only compiled code is still to be checked; ``proven`` then says that tier 2
    has accepted the step). ``build_tiers=False`` leaves out 4 and 5. ``input_seed`` draws the inputs of compiled code (default: ``seed``); steps that share it
    and the root share what the root computes. ``light``: compiled code of slow programs runs in all regimes at smaller sizes, and in one at its own.
    """
    ladder = _Ladder()
    parsed = parse_candidate(child) if isinstance(child, str) else child
    if isinstance(parsed, TierReport):
        ladder.reports.append(parsed)
        return ladder.rejected(parsed)
    from steptp.verify import tier1, tier2, tier3  # their evaluators load only when a candidate gets this far

    program = parsed
    decided = 0
    if 0 in tiers:
        report = ladder.ask(0, lambda: tier0(parent, program))
        if report.kind is not VerdictKind.OK:
            return ladder.rejected(report)
    if 1 in tiers:
        report = ladder.ask(1, lambda: tier1.tier1(program))
        if report.kind is VerdictKind.UNKNOWN and 3 in tiers:
            shown = ladder.ask(3, lambda: tier3.tier3(parent, program, seed=seed))  # it cannot accept any more, but it may refuse
            return ladder.rejected(shown if shown.kind in (VerdictKind.NOT_EQUAL, VerdictKind.UNSAFE_MEMORY) else report)
        if report.kind is not VerdictKind.OK:
            return ladder.rejected(report)
        decided = 1
    if applied is None and instances is None and one_step is not None:
        applied = _matched(one_step, parent, program)
    proof = instances if instances is not None else applied.instances if applied is not None else None
    claim = exactness if exactness is not None else applied.exactness if applied is not None else Exactness.ALGEBRAIC
    accepted = False
    if 2 in tiers and proof is not None:
        target = _target(applied, program)
        report = ladder.ask(2, lambda: tier2.tier2(parent, target, proof, claim))
        if report.kind is VerdictKind.OK:
            accepted, proven, decided = True, True, 2
        elif report.kind not in (VerdictKind.UNKNOWN, VerdictKind.CRASHED, VerdictKind.TIMEOUT):
            return ladder.rejected(report)
    if not accepted and 3 in tiers:
        report = ladder.ask(3, lambda: tier3.tier3(parent, program, seed=seed))
        if report.kind is not VerdictKind.OK:
            return ladder.rejected(report)
        accepted, decided = True, 3
    if not accepted and any(t in tiers for t in (0, 1, 2, 3)):
        last = max((r.tier for r in ladder.reports), default=0)
        return ladder.end(VerdictKind.UNKNOWN, last)
    if not build_tiers:
        return ladder.end(VerdictKind.OK, decided)
    from steptp.verify import tier4, tier5
    from steptp.verify.bindings import apply_binding
    from steptp.verify.smaller import smaller_sizes

    inputs = seed if input_seed is None else input_seed
    anchor = root or parent
    vouched = not any(t in tiers for t in (0, 1, 2, 3))
    equal = claim is Exactness.ALGEBRAIC and (accepted or vouched)
    bits = 5 in tiers and claim is Exactness.BITWISE

    def compiled(anchor: Program, parent: Program, program: Program, regimes: Sequence[str] | None = None) -> list[TierReport]:
        """Reports of tiers 4 and 5, up to the first that rejects."""
        out: list[TierReport] = []
        if 4 in tiers:
            out.append(run_tier(4, lambda: tier4.tier4(anchor, parent, program, seed=inputs, regimes=regimes, equal_over_reals=equal)))
        if bits and (not out or out[-1].kind is VerdictKind.OK):
            out.append(run_tier(5, lambda: tier5.tier5(parent, program, seed=inputs, proven=proven, regimes=regimes)))
        return out

    regimes: tuple[str, ...] | None = None
    if light and (sizes := smaller_sizes(anchor, parent, program)):
        small = compiled(apply_binding(anchor, sizes), apply_binding(parent, sizes), apply_binding(program, sizes))
        if all(r.kind is VerdictKind.OK for r in small):  # else the real sizes decide
            ladder.reports += [replace(r, message=f"{r.message}, at smaller sizes", evidence={**r.evidence, "sizes": sizes}) for r in small]
            regimes = ("normal",)
    ladder.reports += compiled(anchor, parent, program, regimes)
    if ladder.reports and (end := ladder.reports[-1]).tier >= 4:
        return ladder.end(end.kind, end.tier)
    return ladder.end(VerdictKind.OK, decided)


def _target(applied: Applied | None, child: Program) -> Program:
    """The program that a map speaks of: the child, or the strategy's own text of it (equal up to names)."""
    if applied is None or applied.program is child or program_hash(applied.program) != program_hash(child):
        return child
    return applied.program


def _matched(one_step: OneStep, parent: Program, child: Program) -> Applied | None:
    """The engine's own step to this program. A match whose hash differs, or a failing search, is no match."""
    try:
        found = one_step(parent, child)
    except Exception as err:  # noqa: BLE001 - the search runs strategies on a stranger's program; a failure there is not a verdict
        _log.warning("matching against one-step children failed: %s: %s", type(err).__name__, err, exc_info=True)
        return None
    return found if found is not None and program_hash(found.program) == program_hash(child) else None


def engine_match(parent: Program, child: Program, limit: int = 400) -> Applied | None:
    """The first strategy step from ``parent`` to a program with ``child``'s hash, among at most ``limit`` sites of the engine."""
    from steptp.rewrite import engine

    wanted = program_hash(child)
    for site in engine.sites(parent, limit=limit):
        outcome = engine.apply(parent, site)
        if isinstance(outcome, Applied) and program_hash(outcome.program) == wanted:
            return outcome
    return None


def verify_pair(reference: str, candidate: str, *, seed: int = 0, build_tiers: bool = True, one_step: OneStep | None = engine_match) -> Verdict:
    """Two ``.leir`` texts: is the second one a verified rewrite of the first? A malformed reference is ``malformed`` too, and says so."""
    parent = parse_candidate(reference)
    if isinstance(parent, TierReport):
        report = replace(parent, message=f"the reference: {parent.message}")
        return Verdict(report.kind, 0, (report,))
    own = run_tier(0, lambda: tier0(parent, parent))
    if own.kind is not VerdictKind.OK:
        return Verdict(own.kind, 0, (replace(own, message=f"the reference: {own.message}"),))
    return verify_step(parent, candidate, seed=seed, build_tiers=build_tiers, one_step=one_step)
