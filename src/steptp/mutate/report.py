"""Mutants judged by the ladder, and what comes out: kills by tier, time by tier, survivors, unknowns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from statistics import median

from steptp.ir.nodes import Program
from steptp.mutate.registry import Mutant, get, sample_mutants
from steptp.mutate.witness import Witness, Witnesses
from steptp.rewrite.base import Applied
from steptp.verify.explain import explain
from steptp.verify.explanation import Explanation
from steptp.verify.ladder import verify_step
from steptp.verify.verdict import Verdict

__all__ = ["Judged", "Report", "judge", "mutate", "summary"]


@dataclass(frozen=True, slots=True)
class Judged:
    """One mutant, its witness (nothing: unknown) and the verdict. ``claimed``: judged with the instance map of the step that it was made from.

    ``told`` explains a verdict other than ``ok``, where that was asked for.
    """

    operator: str
    family: str
    place: str
    witness: Witness | None
    verdict: str
    tier: int
    message: str
    claimed: bool
    ms: tuple[tuple[int, float], ...]
    told: Explanation | None = None

    @property
    def name(self) -> str:
        return f"{self.operator}@{self.place}"

    @property
    def outcome(self) -> str:
        """``killed``, ``survived`` or ``undecided``; ``unknown`` without a witness."""
        if self.witness is None:
            return "unknown"
        return "survived" if self.verdict == "ok" else "undecided" if self.verdict in ("unknown", "timeout", "oom", "crashed") else "killed"

    def as_dict(self) -> dict[str, object]:
        """The record as JSON-like values."""
        record = {"name": self.name, "outcome": self.outcome, **asdict(replace(self, told=None))}
        del record["told"]
        return record if self.told is None else {**record, "explanation": self.told.as_dict()}


def judge(
    parent: Program,
    mutant: Mutant,
    witness: Witness | None,
    applied: Applied | None = None,
    *,
    seed: int = 0,
    build_tiers: bool = True,
    explained: bool = False,
) -> Judged:
    """The ladder's verdict on parent → mutant. With ``applied`` the mutant claims to be that step's program: its instance map and class go along."""
    claim = None if applied is None else replace(applied, program=mutant.program)
    verdict: Verdict = verify_step(parent, mutant.program, applied=claim, seed=seed, build_tiers=build_tiers)
    ms = tuple((r.tier, round(r.seconds * 1e3, 3)) for r in verdict.reports)
    family = get(mutant.operator).family
    told = explain(parent, mutant.program, verdict, seed=seed) if explained and not verdict.ok else None
    return Judged(mutant.operator, family, mutant.place, witness, str(verdict.kind), verdict.tier, verdict.message, applied is not None, ms, told)


def mutate(
    parent: Program,
    applied: Applied | None = None,
    *,
    limit: int = 50,
    seed: int = 0,
    chosen: Sequence[str] | None = None,
    build_tiers: bool = True,
    witnesses: Witnesses | None = None,
    explained: bool = False,
) -> list[tuple[Mutant, list[Judged]]]:
    """Sample mutants of a program, or of the program of a step from it, look for witnesses and judge each.

    A mutant of a step with an instance map is judged twice: as that step, map and all, and as a free rewrite. ``explained`` adds where it differs.
    """
    source = parent if applied is None else applied.program
    known = witnesses or Witnesses(parent, seed)
    out: list[tuple[Mutant, list[Judged]]] = []
    for mutant in sample_mutants(source, limit, seed, chosen):
        witness = known.of(mutant)
        claims = [None] if applied is None or applied.instances is None else [applied, None]
        out.append((mutant, [judge(parent, mutant, witness, c, seed=seed, build_tiers=build_tiers, explained=explained) for c in claims]))
    return out


@dataclass(frozen=True, slots=True)
class Report:
    """Counts of a set of judged mutants; a mutant that was judged twice counts once, and is killed only where both refuse it."""

    mutants: int
    killed: int
    survived: tuple[str, ...]
    undecided: tuple[str, ...]
    unknown: tuple[str, ...]
    by_tier: dict[str, int]
    by_operator: dict[str, tuple[int, int]]
    by_witness: dict[str, int]
    median_ms: dict[str, float]


def summary(groups: Iterable[Sequence[Judged]]) -> Report:
    """Counts over mutants, each with its one or two verdicts."""
    rows = list(groups)
    real = [g for g in rows if g[0].witness is not None]
    named: dict[str, list[str]] = {"survived": [], "undecided": [], "killed": []}
    operators: dict[str, list[int]] = {}
    for group in real:
        outcomes = {j.outcome for j in group}
        outcome = next(o for o in named if o in outcomes)  # the worst of its verdicts
        named[outcome].append(group[0].name)
        counts = operators.setdefault(group[0].operator, [0, 0])
        counts[0] += 1
        counts[1] += outcome == "killed"
    spent: dict[int, list[float]] = {}
    for group in rows:
        for judged in group:
            for tier, ms in judged.ms:
                spent.setdefault(tier, []).append(ms)
    return Report(
        len(real),
        len(named["killed"]),
        tuple(named["survived"]),
        tuple(named["undecided"]),
        tuple(g[0].name for g in rows if g[0].witness is None),
        dict(sorted(Counter(f"{j.verdict} at tier {j.tier}" for g in real for j in g).items())),
        {name: (c[0], c[1]) for name, c in sorted(operators.items())},
        dict(sorted(Counter(g[0].witness.kind for g in real if g[0].witness is not None).items())),
        {str(t): round(median(v), 2) for t, v in sorted(spent.items())},
    )
