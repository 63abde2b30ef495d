"""What must hold of every site that a strategy lists: the step applies, is accepted, is as exact as it claims, and is explained truly.

An algebraic step may be numerically unsafe or undecided (records say so); it may never be unequal, illegal or unsafe."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from steptp.analysis.host import HostInfo
from steptp.interp import evaluate
from steptp.ir import Program, parse, print_program
from steptp.ir.seeds import derive_seed
from steptp.reason import explain
from steptp.reason.checker import check_text
from steptp.rewrite import engine, registry
from steptp.rewrite.base import Applied, Exactness, Site
from steptp.verify.compiled import bits_of
from steptp.verify.ladder import verify_step
from steptp.verify.tier4_inputs import make_inputs
from steptp.verify.verdict import Verdict, VerdictKind

__all__ = ["Case", "Step", "check_case", "followers"]

HOST = HostInfo.detect()


@dataclass(frozen=True)
class Case:
    """One site of a program. ``compiled`` asks for tiers 4 and 5 too; ``siblings`` are sites listed with it (the explanation names them)."""

    program: Program
    site: Site
    siblings: tuple[Site, ...] = ()
    compiled: bool = False

    @property
    def seed(self) -> int:
        return derive_seed("every-site", print_program(self.program), self.site.id)


@dataclass(frozen=True)
class Step:
    """What became of a case: every problem, as text."""

    case: Case
    problems: tuple[str, ...]
    applied: Applied | None = None
    verdict: Verdict | None = None

    def __str__(self) -> str:
        return f"{self.case.site.id}: {'; '.join(self.problems)}\n{print_program(self.case.program)}"


def check_case(case: Case) -> Step:
    """Apply, verify and explain; nothing is raised."""
    try:
        applied = engine.apply(case.program, case.site)
    except Exception as err:  # noqa: BLE001 - a strategy that raises is a finding like any other
        return Step(case, (f"apply raises {type(err).__name__}: {err}",))
    if not isinstance(applied, Applied):
        return Step(case, (f"listed, but refused as {applied.code}: {applied.message}",))
    problems: list[str] = []
    if parse(print_program(applied.program)) != applied.program:
        problems.append("the child's text reads back as another program")
    if applied.exactness not in registry.get(case.site.strategy).classes:
        problems.append(f"class {applied.exactness} is not declared")
    verdict = verify_step(case.program, applied.program, applied=applied, root=case.program, seed=case.seed, build_tiers=case.compiled)
    unsafe = applied.exactness is Exactness.ALGEBRAIC and verdict.kind in (VerdictKind.NUMERICALLY_UNSAFE, VerdictKind.UNKNOWN)
    if not verdict.ok and not unsafe:
        problems.append(f"{verdict.kind} at tier {verdict.tier}: {verdict.message} {verdict.counterexample or ''}".rstrip())
    problems += _class_problems(case, applied, verdict)
    problems += _explanation_problems(case, applied)
    return Step(case, tuple(problems), applied, verdict)


def _class_problems(case: Case, applied: Applied, verdict: Verdict) -> Iterator[str]:
    """Equal bits where they are claimed, in the evaluator always and in machine code when asked; a proof of the schedule where one is claimed."""
    if applied.exactness is Exactness.BITWISE:
        for regime in ("normal", "special"):
            inputs = make_inputs(case.program, regime, case.seed % 1000)
            want, got = evaluate(case.program, inputs), evaluate(applied.program, inputs)
            different = [b.name for b in case.program.outputs if not np.array_equal(bits_of(want[b.name]), bits_of(got[b.name]))]
            if different:
                yield f"claims bitwise, but {', '.join(different)} has other bits on {regime} inputs (evaluator)"
        if case.compiled and verdict.ok and verdict.tier != 5:
            yield f"claims bitwise, but tier {verdict.tier} decided"
    elif applied.exactness is Exactness.REASSOCIATED and not any(r.tier in (2, 3) and r.kind == "ok" for r in verdict.reports):
        yield "claims reassociated, but neither tier 2 nor tier 3 accepts it"
    elif applied.exactness is Exactness.ALGEBRAIC and not any(r.tier == 3 and r.kind in ("ok", "unknown") for r in verdict.reports):
        yield "claims algebraic, but tier 3 does not accept it"


def _explanation_problems(case: Case, applied: Applied) -> Iterator[str]:
    listed = (*case.siblings, case.site)
    try:
        why = explain(case.program, applied, case.site, candidates=listed, rule="balanced-random", host=HOST, seed=case.seed)
    except Exception as err:  # noqa: BLE001 - as above
        yield f"explain raises {type(err).__name__}: {err}"
        return
    names = [s.id for s in listed]
    for problem in check_text(why.text, case.program, applied.program, case.site.id, candidates=names, host=HOST.to_dict()):
        yield f"explanation: {problem}"


def followers(step: Step, strategies: Sequence[str]) -> Iterator[Case]:
    """Sites of ``strategies`` in the program that a step made: the only ones of strategies that naive programs offer nothing to."""
    if step.applied is not None:
        for site in engine.sites(step.applied.program, strategies, limit=4):
            yield Case(step.applied.program, site)
