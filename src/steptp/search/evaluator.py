"""Carry proposals out and judge them, all in isolated workers: the ladder's tiers, then paired timing against the parent.

A candidate that crashes, hangs or eats memory costs one worker, and that is its verdict. Checks and timing are those of a dataset's steps
(:func:`steptp.verify.isolation.check_and_measure`, :func:`steptp.measure.subjects.time_programs`), lighter where programs are slow.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, wait
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any, Protocol

from steptp.errors import UsageError
from steptp.ir import Program, print_program, program_hash
from steptp.ir.edits import apply_edit
from steptp.ir.seeds import derive_seed, digest
from steptp.measure.pool import Pool
from steptp.measure.subjects import time_programs
from steptp.measure.timing import PairedTiming, TimingOptions
from steptp.measure.workers import Limits, TaskResult
from steptp.rewrite import engine
from steptp.rewrite.base import Exactness, InstanceMap, NotApplicable
from steptp.search.moves import Action, Edit, Move
from steptp.verify.isolation import StepResult, StepTask, Timer, check_and_measure, known_program, settle
from steptp.verify.ladder import ALL_TIERS
from steptp.verify.tier0 import parse_candidate
from steptp.verify.verdict import TierReport, report_json

__all__ = ["DEFAULT_LIMITS", "PRELOAD", "Evaluator", "Judge", "Made", "OutOfTime", "judged_json", "make"]

PRELOAD = (
    "numpy", "islpy", "flint", "tvm", "steptp.lower", "steptp.verify.tier1", "steptp.verify.tier2", "steptp.verify.tier3", "steptp.verify.tier4",
    "steptp.search.evaluator",
)  # fmt: skip
DEFAULT_LIMITS = Limits(timeout=120.0, memory=4 << 30, tasks=4096, grow=3 << 29)  # a worker's caches are worth keeping
_MAKE_S = 30.0
_FEW = 2


class OutOfTime(Exception):
    """The search's seconds ran out while workers were busy; what had not finished is not known."""


@dataclass(frozen=True, slots=True)
class Made:
    """The program that a move leads to, or why there is none: ``refused`` (``refused`` or ``malformed``) and ``message``."""

    text: str = ""
    hash: str = ""
    exactness: str = Exactness.ALGEBRAIC.value
    instances: InstanceMap | None = None
    refused: str = ""
    message: str = ""


class Evaluator(Protocol):
    """What a search needs: programs of moves, and verdicts with timings as plain data."""

    def make(self, parent: str, moves: Sequence[Move], left: float | None) -> list[Made]:
        """The programs of the moves, in their order; ``left`` seconds at most, then :class:`OutOfTime`."""
        ...

    def judge(self, parent: str, found: Sequence[Made], left: float | None, done: Callable[[int, dict[str, Any]], None]) -> None:
        """Call ``done(index, judged)`` for each program as it is judged (:func:`judged_json`); raises :class:`OutOfTime` like ``make``."""
        ...


def make(task: tuple[str, tuple[Move, ...]]) -> list[Made]:
    """Carry out moves on a program's text. Runs in a worker."""
    parent = known_program(task[0])
    return [_made(parent, task[0], move) for move in task[1]]


def _made(parent: Program, text: str, move: Move) -> Made:
    if isinstance(move, Action):
        outcome = engine.apply(parent, move.site)
        if isinstance(outcome, NotApplicable):
            return Made(refused="refused", message=outcome.message)
        return Made(print_program(outcome.program), program_hash(outcome.program), str(outcome.exactness), outcome.instances)
    try:
        wanted = apply_edit(text, move.lines) if isinstance(move, Edit) else move.text
    except UsageError as err:
        return Made(refused="refused", message=err.message)
    child = parse_candidate(wanted)
    if isinstance(child, TierReport):
        return Made(refused="malformed", message=child.message)
    return Made(print_program(child), program_hash(child))


def judged_json(result: StepResult[PairedTiming]) -> dict[str, Any]:
    """Verdict, evidence and the figures of the timing (without its samples) as plain JSON data."""
    verdict, timing = result.verdict, result.timing
    figures = None
    if timing is not None:
        kept = ("ratio", "ci_low", "ci_high", "label", "rounds", "threads", "clock", "exclusive", "host_margin")
        figures = {**{k: v for k, v in asdict(timing).items() if k in kept}, "parent_us": timing.parent_us, "child_us": timing.child_us}
    return {
        "kind": str(verdict.kind), "tier": verdict.tier, "message": verdict.message, "evidence": [report_json(r) for r in verdict.reports],
        "timing": figures, "seconds": {k: round(s, 4) for k, s in result.seconds.items()},
    }  # fmt: skip


class Judge:
    """The evaluator of real searches. ``start`` anchors every check of compiled code. Workers start on entering the context, or on first use.

    ``threads``: of compiled parallel loops; ``jobs``: workers. ``budget_s``: seconds of one timing. ``timer`` replaces the paired timing (tests).
    """

    def __init__(
        self, start: str, *, threads: int, jobs: int = 1, limits: Limits = DEFAULT_LIMITS, seed: int = 0, budget_s: float = 0.25,
        timer: Timer[PairedTiming] | None = None,
    ) -> None:  # fmt: skip
        self.start, self.threads, self.jobs, self.limits, self.seed = start, threads, jobs, limits, seed
        self._options = TimingOptions(budget_s=budget_s)
        self._timer = timer
        self._pool: Pool | None = None

    def margin(self, value: float) -> None:
        """Label timings by this host's measured margin from now on."""
        self._options = replace(self._options, margin=value)

    def timer(self, *, light: bool = False) -> Timer[PairedTiming]:
        """The paired timing; ``light``: with fewer rounds where those of slow programs take far beyond the budget."""
        return self._timer or partial(time_programs, options=replace(self._options, few=_FEW) if light else self._options)

    @property
    def pool(self) -> Pool:
        """The running workers."""
        if self._pool is None:
            self._pool = Pool(self.jobs, limits=self.limits, preload=PRELOAD, env={"TVM_NUM_THREADS": str(self.threads)})
        return self._pool

    def make(self, parent: str, moves: Sequence[Move], left: float | None) -> list[Made]:
        deadline = None if left is None else time.monotonic() + left
        future = self.pool.submit(make, (parent, tuple(moves)), timeout=_MAKE_S)
        self._first({future: 0}, deadline)
        whole = future.result()
        if whole.ok and whole.value is not None:
            return whole.value
        if len(moves) == 1:
            return [Made(refused=_ended(whole), message=f"{whole.status} while it was carried out: {whole.message}")]
        return [self.make(parent, [move], None if deadline is None else max(0.0, deadline - time.monotonic()))[0] for move in moves]

    def judge(self, parent: str, found: Sequence[Made], left: float | None, done: Callable[[int, dict[str, Any]], None]) -> None:
        deadline = None if left is None else time.monotonic() + left
        tasks = [self.task(parent, made) for made in found]
        flying = {self.submit(task): n for n, task in enumerate(tasks)}
        while flying:
            for future in self._first(flying, deadline):
                n = flying.pop(future)
                result = settle(tasks[n], future.result())
                if result is None:
                    raise OutOfTime
                done(n, judged_json(result))

    def submit(self, task: StepTask[PairedTiming]) -> Future[TaskResult[StepResult[PairedTiming]]]:
        """Hand a task to the workers; those of one start go to one worker, which keeps what they share."""
        return self.pool.submit(check_and_measure, task, group=digest("root", self.start))

    def task(self, parent: str, made: Made) -> StepTask[PairedTiming]:
        """The task that checks one step on every tier and times it, slow programs lightly: the closing check makes up for it."""
        return StepTask(
            parent=parent, child=made.text, root=self.start, exactness=made.exactness, seed=derive_seed("step", self.seed, parent, made.hash),
            input_seed=derive_seed("inputs", self.seed), tiers=ALL_TIERS, instances=made.instances, timer=self.timer(light=True), light=True,
        )  # fmt: skip

    def _first(self, flying: dict[Future[TaskResult[Any]], int], deadline: float | None) -> list[Future[TaskResult[Any]]]:
        """What has finished, in order; ends the workers and raises when the deadline passes first."""
        left = None if deadline is None else max(0.0, deadline - time.monotonic())
        ready = wait(flying, timeout=left, return_when="FIRST_COMPLETED").done
        if not ready:
            self.close()
            raise OutOfTime
        return sorted(ready, key=flying.__getitem__)

    def close(self) -> None:
        """End the workers, busy or not."""
        if self._pool is not None:
            self._pool.close(kill=True)
            self._pool = None

    def __enter__(self) -> Judge:
        _ = self.pool
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _ended(outcome: TaskResult[Any]) -> str:
    return "crashed" if outcome.status == "error" else outcome.status
