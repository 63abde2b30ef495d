"""Verdicts on pairs in the published notation (:mod:`steptp.ir.published`), by the tiers of the ladder.

What a pair computes and what its loop kinds claim are judged apart. The function is judged on serial readings: tier 0 and 1, then tier 2
on a guessed instance map, then tier 3 on the part that differs and on the whole. Loop kinds are claims: where a concurrent loop of the candidate
carries a dependence and none of the reference's does on that tensor, the candidate is ``illegal``. A difference counts only where the
NumPy evaluator confirms it at the program's own sizes.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

from steptp.analysis.expand import expand
from steptp.analysis.problems import BudgetExceeded, budget
from steptp.analysis.races import race_problems
from steptp.errors import LeirError
from steptp.ir.nodes import Path, Program, Store
from steptp.ir.published import Pair
from steptp.ir.walk import free_vars, get, loads
from steptp.rewrite.base import Exactness
from steptp.verify.copies import without_copies
from steptp.verify.ladder import run_tier
from steptp.verify.middle import middle
from steptp.verify.pairing import guess_instances
from steptp.verify.tier0 import tier0
from steptp.verify.tier1 import tier1
from steptp.verify.tier2 import tier2
from steptp.verify.tier3 import Budget, tier3
from steptp.verify.verdict import Counterexample, TierReport, Verdict, VerdictKind
from steptp.verify.witness import ALL_ZERO, array_witness, confirmed, probe

__all__ = ["Judgement", "judge_pair"]

_PROBED = (ALL_ZERO, "ties", "zeros", "normal")
_SOME, _MANY = 1 << 23, 150_000_000  # statement instances for whole-array evaluation: seconds, or minutes
_WHOLE = Budget(element=20_000, real=200_000)
"""One element of a whole program may visit 30 times ``element`` statements where no tiny binding exists."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """The verdict, and apart from it: what the function alone is, and which tensors concurrent loops race on.

    ``races`` are the candidate's own, ``shared_races`` those that the reference has as well.
    """

    verdict: Verdict
    function: VerdictKind
    races: tuple[str, ...] = ()
    shared_races: tuple[str, ...] = ()

    @property
    def counterexample(self) -> Counterexample | None:
        return self.verdict.counterexample


def judge_pair(pair: Pair, *, seed: int = 0, tiers: Collection[int] = (0, 1, 2, 3), arrays: bool = False) -> Judgement:
    """Judge the candidate of a pair against its reference; ``tiers`` leaves some of 0 to 3 out, and then nothing may be decided.

    ``arrays``: where exact evaluation cannot reach, evaluate both programs whole in f64 (minutes, gigabytes) to look for a difference.
    """
    parent, child = pair.reference.serial, pair.candidate.serial
    reports: list[TierReport] = []
    unsafe: TierReport | None = None
    if 0 in tiers:
        reports.append(run_tier(0, lambda: tier0(parent, child)))
        if reports[-1].kind is not VerdictKind.OK:
            return Judgement(Verdict(reports[-1].kind, 0, tuple(reports)), reports[-1].kind)
    if 1 in tiers:
        own = run_tier(1, lambda: _safe(parent))
        if own.kind is not VerdictKind.OK:  # nothing to compare with
            reports.append(replace(own, kind=VerdictKind.UNKNOWN, message=f"the reference: {own.message}", counterexample=None))
            return Judgement(Verdict(VerdictKind.UNKNOWN, 1, tuple(reports)), VerdictKind.UNKNOWN)
        reports.append(run_tier(1, lambda: _safe(child)))
        unsafe = reports[-1] if reports[-1].kind is not VerdictKind.OK else None
    function = _function(parent, child, seed, tiers, reports, arrays)
    races, shared = _claims(pair) if 1 in tiers else ((), ())
    if function.kind is VerdictKind.NOT_EQUAL or (function.kind is not VerdictKind.OK and unsafe is None):
        return Judgement(Verdict(function.kind, function.tier, tuple(reports)), function.kind, races, shared)
    if unsafe is not None:
        return Judgement(Verdict(unsafe.kind, 1, tuple(reports)), function.kind, races, shared)
    if races:
        reports.append(TierReport(1, VerdictKind.ILLEGAL, races[0], {"claims": list(races)}))
        kept = tuple(r for r in reports if r.tier != 1 or r.kind is not VerdictKind.OK)
        return Judgement(Verdict(VerdictKind.ILLEGAL, 1, kept), function.kind, races, shared)
    return Judgement(Verdict(VerdictKind.OK, function.tier, tuple(reports)), VerdictKind.OK, races, shared)


def _safe(child: Program) -> TierReport:
    """Tier 1; a table of indices that it cannot bound is written out and asked again."""
    report = tier1(child)
    if report.kind is not VerdictKind.UNKNOWN:
        return report
    plain = expand(child, [b.name for b in child.tmps if b.dtype.is_int])
    again = tier1(plain) if plain is not child else report
    return replace(again, message=f"{again.message}, with tables of indices written out") if again.kind is VerdictKind.OK else report


def _function(parent: Program, child: Program, seed: int, tiers: Collection[int], reports: list[TierReport], arrays: bool) -> TierReport:
    """The report that decides what the candidate computes; all of them go to ``reports``."""
    plain = without_copies(parent), without_copies(child)
    if 2 in tiers:
        reports.append(_proven((parent, child), plain))
        if reports[-1].kind is VerdictKind.OK:
            return reports[-1]
    parent, child = plain
    if 3 not in tiers:
        return TierReport(2, VerdictKind.UNKNOWN, "not decided by the tiers that were asked")
    part = middle(parent, child)
    inner: Counterexample | None = None
    if part is not None:
        report = run_tier(3, lambda: tier3(*part, seed=seed))
        inner = report.counterexample or (probe(*part, _PROBED, seed=seed).counterexample if report.kind is VerdictKind.OK else None)
        if report.kind is VerdictKind.OK and inner is None:
            reports.append(replace(report, message=f"the part that differs is {report.message}"))
            return reports[-1]
    whole = run_tier(3, lambda: tier3(parent, child, seed=seed, budget=None if inner else _WHOLE))
    reports.append(_settled(parent, child, whole, seed, inner, arrays))
    return reports[-1]


def _proven(pair: tuple[Program, Program], plain: tuple[Program, Program]) -> TierReport:
    """Tier 2 on guessed maps: of the programs, then of ``plain``, which have no copies. A guess that fails says nothing about the pair."""
    report = TierReport(2, VerdictKind.UNKNOWN, "no store of the candidate resembles one of the reference")
    for number, (a, b) in enumerate((pair, plain)):
        if number and plain[0] is pair[0] and plain[1] is pair[1]:
            break
        guess = guess_instances(a, b)
        if guess is None:
            continue
        found = run_tier(2, lambda a=a, b=b, guess=guess: tier2(a, b, guess, Exactness.REASSOCIATED))  # type: ignore[misc]
        if found.kind is VerdictKind.OK:
            return replace(found, message=f"{found.message}, with copies read through" if number else found.message)
        report = replace(found, kind=VerdictKind.UNKNOWN, message=f"no schedule proof: {found.message}", counterexample=None)
    return report


def _settled(parent: Program, child: Program, whole: TierReport, seed: int, inner: Counterexample | None, arrays: bool) -> TierReport:
    """Tier 3's report on whole programs, with a difference confirmed, or looked for where the part that differs shows one."""
    if whole.kind is VerdictKind.NOT_EQUAL and whole.counterexample is not None:
        return _confirmed(parent, child, whole, whole.counterexample)
    if whole.kind not in (VerdictKind.OK, VerdictKind.UNKNOWN):
        return whole
    if inner is None:
        light = probe(parent, child, _PROBED, seed=seed).counterexample if whole.kind is VerdictKind.OK else None
    else:
        light = probe(parent, child, _PROBED, seed=seed, points=0, element=100_000, total=200_000).counterexample
    if light is not None:
        return _confirmed(parent, child, whole, light)
    count = 0
    if whole.kind is VerdictKind.UNKNOWN or inner is not None:
        count, witness = array_witness(parent, child, (ALL_ZERO, "ties") if inner else ("normal",), seed, _MANY if arrays else _SOME)
        if witness is not None:
            return _differs(whole, witness)
    if inner is not None:
        told = f"the part that differs gives {inner.actual} instead of {inner.expected} on inputs of its own ({inner.regime})"
        return replace(whole, kind=VerdictKind.UNKNOWN, message=f"{told}, but no input of the whole program was found that leads there")
    if count:
        return replace(whole, message=f"{whole.message}; {count} elements agree in f64, which proves nothing", evidence={**whole.evidence, "f64_agree": count})
    return whole


def _confirmed(parent: Program, child: Program, whole: TierReport, found: Counterexample) -> TierReport:
    said = confirmed(parent, child, found)
    if said is None:
        message = f"exact values differ ({found.expected} and {found.actual}), but the NumPy evaluator does not confirm it"
        return replace(whole, kind=VerdictKind.UNKNOWN, message=message, counterexample=None)
    return _differs(whole, said)


def _differs(whole: TierReport, found: Counterexample) -> TierReport:
    at = f"{found.output}[{','.join(map(str, found.index))}]"
    message = f"{at} is {found.expected} in the reference and {found.actual} in the candidate (inputs '{found.regime}', seed {found.seed})"
    return replace(whole, kind=VerdictKind.NOT_EQUAL, message=message, counterexample=found)


def _claims(pair: Pair) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Races of the candidate's loops as written: those of its own, and those on tensors that the reference races on too."""
    known = set(_races(pair.reference.claimed))
    found = _races(pair.candidate.claimed)
    return tuple(m for b, m in found.items() if b not in known), tuple(m for b, m in found.items() if b in known)


def _races(program: Program) -> dict[str, str]:
    """Tensor → the first race on it; a race of equal writes is said to be one."""
    out: dict[str, str] = {}
    try:
        with budget():
            for problem in race_problems(program):
                if problem.certain:
                    equal = "; every iteration writes the same" if _writes_the_same(program, problem.path) else ""
                    out.setdefault(problem.buffer, problem.message + equal)
    except (LeirError, BudgetExceeded):
        return out
    return out


def _writes_the_same(program: Program, path: Path) -> bool:
    """Whether the store assigns a value that depends on the loops that index it, and on no tensor that the program writes."""
    store = get(program, path)
    if not isinstance(store, Store) or store.reduce is not None:
        return False
    inputs = {b.name for b in program.inputs}
    inside = frozenset().union(*(free_vars(i) for i in store.indices))
    return free_vars(store.value) <= inside and all(load.buffer in inputs for load in loads(store.value))
