"""Tier 1: is the program safe? Proven for all inputs, at its real sizes.

In-bounds accesses, defined reads, fully written outputs, no races, no integer overflow. The questions themselves are
answered by :mod:`steptp.analysis`; this module turns answers into a verdict. What the analysis suspects and cannot prove, behind a condition on data or a
look-up, is refused if a run shows it.
"""

from __future__ import annotations

import time

from steptp.analysis.problems import BudgetExceeded, Problem
from steptp.analysis.safety import safety_problems
from steptp.errors import LeirError
from steptp.ir.nodes import Program
from steptp.verify.verdict import Counterexample, TierReport, VerdictKind

__all__ = ["tier1"]

_MOST = 8


def tier1(child: Program) -> TierReport:
    """``ok``: safe for all inputs. ``illegal``: a race. ``unsafe_memory``: another violation. ``unknown``: not decidable, with the reason.

    ``evidence`` holds ``problems`` (code, message, path) and ``statements``. A program without defined resets is ``malformed``.
    """
    start = time.perf_counter()
    try:
        found = safety_problems(child)
    except LeirError as err:
        return TierReport(1, VerdictKind.MALFORMED, err.message, {"code": err.code}, seconds=time.perf_counter() - start)
    except BudgetExceeded as err:
        return TierReport(
            1, VerdictKind.UNKNOWN, "the safety proof needs more polyhedral work than its budget", {"error": str(err)}, seconds=time.perf_counter() - start
        )
    evidence: dict[str, object] = {"problems": [{"code": p.code, "message": p.message, "path": list(p.path), "certain": p.certain} for p in found[:_MOST]]}
    if not found:
        return TierReport(
            1, VerdictKind.OK, "every access in bounds, every read defined, no race, for all inputs", evidence, seconds=time.perf_counter() - start
        )
    worst = min(found, key=_rank)
    kind = VerdictKind.UNKNOWN if not worst.certain else VerdictKind.ILLEGAL if worst.code == "race" else VerdictKind.UNSAFE_MEMORY
    more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
    if kind is VerdictKind.UNKNOWN and any(p.code != "race" for p in found):
        from steptp.verify.confirm import failing_run

        if (shown := failing_run(child)) is not None:
            regime, fault = shown
            evidence["run"] = {"regime": regime, "code": fault.code, "message": fault.message}
            message = f"{worst.message}{more}; a run in regime {regime} fails: {fault.message}"
            where = Counterexample(worst.buffer, (), "a defined element in bounds", fault.message, tuple((s.name, s.value) for s in child.sizes), regime)
            return TierReport(1, VerdictKind.UNSAFE_MEMORY, message, evidence, where, time.perf_counter() - start)
    return TierReport(1, kind, worst.message + more, evidence, _counterexample(child, worst), time.perf_counter() - start)


def _rank(problem: Problem) -> tuple[bool, bool]:
    return (not problem.certain, problem.code == "race")


def _counterexample(child: Program, problem: Problem) -> Counterexample | None:
    if not problem.certain:
        return None
    instance = ",".join(f"{v}={n}" for v, n in problem.instance)
    sizes = tuple((s.name, s.value) for s in child.sizes)
    return Counterexample(problem.buffer, problem.element, "a defined element in bounds, in one order", problem.code, sizes, note=instance)
