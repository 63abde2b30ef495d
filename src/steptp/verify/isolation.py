"""One task per step for an isolated worker: compiled-code tiers and, for a verified step, the paired timing.

A task is text and plain data, so that it can be made again after a resume and sent anywhere. Tiers and timing share the builds of the
process (:func:`steptp.lower.build.build` keeps the last ones), so tasks of one root should run on one worker: see :func:`group_of`.
The timing function is passed in; this room does not know how time is measured.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from time import process_time
from typing import Any, Generic, Protocol, TypeVar

import numpy as np

from steptp.errors import LeirError, StepTPError
from steptp.ir import Loop, Program, parse
from steptp.ir.seeds import digest
from steptp.ir.walk import visit
from steptp.rewrite.base import Exactness, InstanceMap
from steptp.verify.ladder import ALL_TIERS, verify_step
from steptp.verify.verdict import TierReport, Verdict, VerdictKind

__all__ = [
    "COMPILED_TIERS",
    "PRELOAD",
    "Outcome",
    "StepResult",
    "StepTask",
    "Timer",
    "check_and_measure",
    "group_of",
    "kind_of_failure",
    "known_program",
    "settle",
]

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
COMPILED_TIERS = (4, 5)
PRELOAD = ("numpy", "tvm", "steptp.lower.compile", "steptp.verify.isolation", "steptp.verify.tier4", "steptp.verify.tier5")
"""Modules that a worker host should import before it forks workers for :func:`check_and_measure`."""

Timer = Callable[[Program, Program, Mapping[str, np.ndarray], int], T]
"""(parent, child, inputs, seed) → timing; a module-level function or a ``functools.partial`` of one."""


@dataclass(frozen=True)
class StepTask(Generic[T]):
    """A step to check, as LEIR texts. ``tiers`` to run (all of them for a step that nothing has looked at yet); ``timer`` times a verified step;
    ``input_seed``, ``proven`` and ``light`` as :func:`steptp.verify.ladder.verify_step` has them."""

    parent: str
    child: str
    root: str
    exactness: str = Exactness.ALGEBRAIC.value
    seed: int = 0
    input_seed: int | None = None
    proven: bool = False
    tiers: tuple[int, ...] = COMPILED_TIERS
    instances: InstanceMap | None = None
    timer: Timer[T] | None = None
    regime: str = "normal"
    light: bool = False


@dataclass(frozen=True)
class StepResult(Generic[T]):
    """The verdict, the timing of a verified step, and CPU seconds by stage."""

    verdict: Verdict
    timing: T | None = None
    seconds: dict[str, float] = field(default_factory=dict)


class Outcome(Protocol[T_co]):
    """How a worker's task ended, as :class:`steptp.measure.workers.TaskResult` says it."""

    @property
    def status(self) -> str: ...
    @property
    def value(self) -> StepResult[Any] | None: ...
    @property
    def code(self) -> str: ...
    @property
    def message(self) -> str: ...
    @property
    def traceback(self) -> str: ...


def group_of(task: StepTask[Any]) -> str:
    """The name that tasks which share builds have in common: their root's."""
    return digest("root", task.root)


def check_and_measure(task: StepTask[T]) -> StepResult[T]:
    """Run the task's tiers and, if they accept, its timer. Runs in a worker; raises only what the timer's own bugs raise.

    Programs with loops bound to GPU axes are checked (a CPU runs those loops in order) but not timed: the figure would mean nothing.
    """
    start = process_time()
    try:
        parent, root = known_program(task.parent), known_program(task.root)
    except LeirError as err:
        report = TierReport(0, VerdictKind.MALFORMED, f"the step's own parent or root: {err.message}", {"code": err.code})
        return StepResult(Verdict(VerdictKind.MALFORMED, 0, (report,)))
    try:
        child: Program | str = known_program(task.child)
    except LeirError:
        child = task.child  # the ladder says what is wrong with it
    verdict = verify_step(
        parent, child, root=root, exactness=Exactness(task.exactness), instances=task.instances,
        tiers=task.tiers, seed=task.seed, input_seed=task.input_seed, proven=task.proven, light=task.light,
    )  # fmt: skip
    checked = process_time()
    seconds = {"check": checked - start, **{f"tier{r.tier}": r.seconds for r in verdict.reports}}
    if not verdict.ok or task.timer is None or isinstance(child, str) or _bound(parent) or _bound(child):
        return StepResult(verdict, None, seconds)
    from steptp.verify.tier4_inputs import make_inputs

    try:
        timing = task.timer(parent, child, make_inputs(parent, task.regime, task.seed if task.input_seed is None else task.input_seed), task.seed)
    except StepTPError as err:  # a build that fails only now, or outputs that change while being timed
        kind = kind_of_failure(err.code)
        report = TierReport(4, kind, f"while timed: {err.message}", {"code": err.code}, seconds=process_time() - checked)
        return StepResult(Verdict(kind, 4, (*verdict.reports, report)), None, seconds)
    seconds["measure"] = process_time() - checked
    return StepResult(verdict, timing, seconds)


_FAILURES = {
    "build-failed": VerdictKind.BUILD_FAILED, "build-unbound": VerdictKind.BUILD_FAILED, "build-no-nvcc": VerdictKind.UNKNOWN,
    "device-missing": VerdictKind.UNKNOWN, "device-memory": VerdictKind.OOM, "device-failed": VerdictKind.CRASHED, "measure-outputs": VerdictKind.NOT_EQUAL,
}  # fmt: skip


def kind_of_failure(code: str) -> VerdictKind:
    """The verdict that an error of this code means; ``unknown`` where the machine is at fault."""
    return _FAILURES.get(code, VerdictKind.CRASHED)


@lru_cache(maxsize=64)
def known_program(text: str) -> Program:
    """The program of a well-formed text; many tasks share one."""
    return parse(text)


def _bound(program: Program) -> bool:
    return any(isinstance(v.stmt, Loop) and v.stmt.kind.is_bound for v in visit(program))


_KINDS = {"crashed": VerdictKind.CRASHED, "error": VerdictKind.CRASHED, "timeout": VerdictKind.TIMEOUT, "oom": VerdictKind.OOM}


def settle(task: StepTask[T], outcome: Outcome[T]) -> StepResult[T] | None:
    """The result of a task however its worker ended: a crash, a hang or hunger is the verdict. ``None`` when it never ran to an end (cancelled)."""
    if outcome.status == "ok" and outcome.value is not None:
        return outcome.value
    kind = _KINDS.get(outcome.status)
    if kind is None:
        return None
    tier = min((t for t in task.tiers if t >= COMPILED_TIERS[0]), default=max(task.tiers, default=ALL_TIERS[-1]))
    evidence: dict[str, object] = {"code": outcome.code, "worker": outcome.status}
    if outcome.traceback:
        evidence["log"] = outcome.traceback[-1000:]
    return StepResult(Verdict(kind, tier, (TierReport(tier, kind, outcome.message, evidence),)))
