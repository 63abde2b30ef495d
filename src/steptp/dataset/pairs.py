"""Verify one pair of programs with the compiled tiers in an isolated worker, so that a crashing or hanging candidate is a verdict."""

from __future__ import annotations

from typing import Any

from steptp.dataset.stages import PRELOAD
from steptp.ir import Program, print_program
from steptp.measure import Limits, Pool
from steptp.rewrite.base import Applied, Exactness
from steptp.verify.isolation import StepTask, check_and_measure, settle
from steptp.verify.ladder import verify_step
from steptp.verify.verdict import Verdict, VerdictKind

__all__ = ["verify_isolated", "then_compiled"]


def verify_isolated(
    parent: Program, child: Program, *, applied: Applied | None = None, seed: int = 0, timeout_s: float = 600.0, memory: int = 6 << 30
) -> Verdict:
    """The verdict of every tier on ``child`` as a rewrite of ``parent``; ``applied`` is what a strategy returned for it, if one did.

    Tiers 0 to 3 run nothing of the candidate's and stay in this process; 4 and 5 get a worker. ``timeout_s`` seconds and ``memory`` bytes
    at most; beyond them the verdict is ``timeout`` or ``oom``.
    """
    first = verify_step(parent, child, applied=applied, root=parent, seed=seed, build_tiers=False)
    exactness = applied.exactness if applied is not None else Exactness.ALGEBRAIC
    return then_compiled(first, parent, child, exactness=exactness, seed=seed, timeout_s=timeout_s, memory=memory) if first.ok else first


def then_compiled(
    first: Verdict,
    parent: Program,
    child: Program,
    *,
    exactness: Exactness = Exactness.ALGEBRAIC,
    seed: int = 0,
    timeout_s: float = 600.0,
    memory: int = 6 << 30,
) -> Verdict:
    """``first``, an accepting verdict of tiers 0 to 3, continued by tiers 4 and 5 in a worker."""
    text = print_program(parent)
    task: StepTask[Any] = StepTask(parent=text, child=print_program(child), root=text, exactness=str(exactness), seed=seed)
    with Pool(1, limits=Limits(timeout=timeout_s, memory=memory), preload=PRELOAD) as pool:
        result = settle(task, pool.submit(check_and_measure, task).result())
    if result is None:
        return Verdict(VerdictKind.UNKNOWN, first.tier, first.reports)
    return Verdict(result.verdict.kind, result.verdict.tier, (*first.reports, *result.verdict.reports))
