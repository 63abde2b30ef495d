"""One step, one task: verdict and timing together, and every way in which a worker can end."""

from __future__ import annotations

import os
import pickle
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

import numpy as np
import pytest

from steptp.ir import Program
from steptp.measure.pool import Pool
from steptp.measure.workers import Limits, TaskResult
from steptp.verify.isolation import StepResult, StepTask, check_and_measure, group_of, settle
from steptp.verify.verdict import VerdictKind

MATMUL = "size N=24 K=16 L=20\nin A f32[N,K] B[K,L]\nout C f32[N,L]\nfor i:N j:L k:K C[i,j] += A[i,k]*B[k,j]\n"
REORDERED = MATMUL.replace("for i:N j:L k:K", "for i:N k:K j:L")
WRONG = MATMUL.replace("A[i,k]*B[k,j]", "A[i,k]*B[k,j]+A[i,0]")
ALL = (0, 1, 2, 3, 4, 5)


def note(parent: Program, child: Program, inputs: Mapping[str, np.ndarray], seed: int) -> tuple[int, list[str]]:
    """A timer that only says what it was given."""
    return seed, sorted(inputs)


def crash(parent: Program, child: Program, inputs: Mapping[str, np.ndarray], seed: int) -> None:
    os.kill(os.getpid(), signal.SIGSEGV)


def hang(parent: Program, child: Program, inputs: Mapping[str, np.ndarray], seed: int) -> None:
    time.sleep(60)


def hungry(parent: Program, child: Program, inputs: Mapping[str, np.ndarray], seed: int) -> None:
    np.ones(1 << 40, np.uint8)


def changing(parent: Program, child: Program, inputs: Mapping[str, np.ndarray], seed: int) -> None:
    from steptp.measure.subjects import TimingError

    raise TimingError("measure-outputs", "the output C changed between timed runs on equal inputs")


def task(**changes: object) -> StepTask[tuple[int, list[str]]]:
    return replace(StepTask(MATMUL, REORDERED, MATMUL, exactness="bitwise", seed=3, timer=note), **changes)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def pool() -> Iterator[Pool]:
    with Pool(1, limits=Limits(timeout=60, memory=2 << 30)) as running:
        yield running


def run(pool: Pool, step: StepTask[tuple[int, list[str]]], timeout: float | None = None) -> StepResult[tuple[int, list[str]]]:
    result = settle(step, pool.submit(check_and_measure, step, timeout=timeout).result())
    assert result is not None
    return result


def test_tasks_and_results_are_plain_data() -> None:
    step = task()
    assert pickle.loads(pickle.dumps(step)) == step
    assert group_of(step) == group_of(task(child=WRONG)) != group_of(task(root=REORDERED))


def test_a_verified_step_is_timed(pool: Pool) -> None:
    result = run(pool, task())
    assert (result.verdict.kind, result.verdict.tier) == (VerdictKind.OK, 5), result.verdict
    assert result.timing == (3, ["A", "B"])
    assert {"check", "measure", "tier4", "tier5"} <= result.seconds.keys()


def test_a_claim_of_equal_bits_is_checked_only_when_made(pool: Pool) -> None:
    assert run(pool, task(exactness="reassociated")).verdict.tier == 4


def test_a_wrong_step_is_not_timed(pool: Pool) -> None:
    for tiers in ((4, 5), ALL):
        result = run(pool, task(child=WRONG, tiers=tiers))
        assert result.verdict.kind in (VerdictKind.NOT_EQUAL, VerdictKind.NUMERICALLY_UNSAFE)
        assert result.timing is None


def test_nonsense_is_a_verdict(pool: Pool) -> None:
    assert run(pool, task(child="for for for")).verdict.kind is VerdictKind.MALFORMED
    assert run(pool, task(parent="", root="")).verdict.kind is VerdictKind.MALFORMED


@pytest.mark.parametrize(("timer", "kind"), [(crash, VerdictKind.CRASHED), (hungry, VerdictKind.OOM), (changing, VerdictKind.NOT_EQUAL)])
def test_what_goes_wrong_while_timed_is_a_verdict(pool: Pool, timer: Callable[..., None], kind: VerdictKind) -> None:
    result = run(pool, task(timer=timer))
    assert (result.verdict.kind, result.verdict.tier, result.timing) == (kind, 4, None)
    assert run(pool, task()).verdict.ok


def test_a_hang_is_a_verdict(pool: Pool) -> None:
    assert run(pool, task(timer=hang), timeout=1.0).verdict.kind is VerdictKind.TIMEOUT


def test_bound_loops_are_checked_but_not_timed(pool: Pool) -> None:
    result = run(pool, task(child=MATMUL.replace("for i:N j:L k:K", "bx i:N tx j:L for k:K")))
    assert result.verdict.ok, result.verdict
    assert result.timing is None


def test_all_tiers_in_one_task(pool: Pool) -> None:
    result = run(pool, task(tiers=ALL))
    assert result.verdict.ok, result.verdict
    assert [r.tier for r in result.verdict.reports] == [0, 1, 3, 4, 5]


@pytest.mark.parametrize(
    ("status", "kind"), [("crashed", VerdictKind.CRASHED), ("error", VerdictKind.CRASHED), ("timeout", VerdictKind.TIMEOUT), ("oom", VerdictKind.OOM)]
)
def test_worker_ends_become_verdicts(status: str, kind: VerdictKind) -> None:
    result = settle(task(), TaskResult[StepResult[tuple[int, list[str]]]](status, code="SIGSEGV", message="ended by SIGSEGV", traceback="x" * 5000))
    assert result is not None
    assert (result.verdict.kind, result.verdict.tier, result.verdict.message) == (kind, 4, "ended by SIGSEGV")
    assert len(str(result.verdict.reports[0].evidence["log"])) == 1000
    assert not result.verdict.ok


def test_a_cancelled_task_has_no_verdict() -> None:
    assert settle(task(), TaskResult[StepResult[tuple[int, list[str]]]]("cancelled")) is None
