"""The pool: order, groups, survival, closing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import Future
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import worker_tasks as tasks
from test_workers import gone

from steptp.errors import UsageError
from steptp.measure.pool import Pool
from steptp.measure.workers import Limits, TaskResult


@pytest.fixture(scope="module")
def pool() -> Iterator[Pool]:
    with Pool(2, preload=("numpy",), limits=Limits(timeout=20, memory=512 << 20)) as running:
        yield running


def test_map_keeps_order_and_reports_progress(pool: Pool) -> None:
    seen: list[tuple[int, int]] = []
    delays = [0.05, 0.0, 0.03, 0.0, 0.0, 0.01]
    results = list(pool.map(tasks.sleep, delays, progress=lambda done, of, _: seen.append((done, of))))
    assert [item for item, _ in results] == delays
    assert [r.value for _, r in results] == delays
    assert [done for done, _ in seen] == list(range(1, 7))


def test_map_as_completed_gives_every_item_once(pool: Pool) -> None:
    items = list(range(300))
    got = [(item, r.value) for item, r in pool.map(tasks.double, items, ordered=False)]
    assert sorted(got) == [(n, 2 * n) for n in items]


def test_endless_source_is_read_lazily(pool: Pool) -> None:
    taken: list[int] = []

    def source() -> Iterator[int]:
        for number in count():
            taken.append(number)
            yield number

    results = pool.map(tasks.double, source(), window=4)
    assert [next(results)[1].value for _ in range(10)] == [2 * n for n in range(10)]
    assert len(taken) <= 14
    results.close()


def test_failures_do_not_disturb_neighbours(pool: Pool) -> None:
    jobs: list[Future[Any]] = []
    for number in range(60):
        if number % 10 == 3:
            jobs.append(pool.submit(tasks.kill_self, int(signal.SIGSEGV)))
        elif number % 10 == 7:
            jobs.append(pool.submit(tasks.raise_value, None))
        elif number == 15:
            jobs.append(pool.submit(tasks.hang, None, timeout=0.2))
        else:
            jobs.append(pool.submit(tasks.double, number))
    for number, job in enumerate(jobs):
        result = job.result(timeout=30)
        assert isinstance(result, TaskResult)
        expected = {3: "crashed", 7: "error"}.get(number % 10, "timeout" if number == 15 else "ok")
        assert result.status == expected
        if expected == "ok":
            assert result.value == 2 * number


def test_group_stays_on_one_worker(pool: Pool) -> None:
    both = [pool.submit(tasks.own_pid, None, group=str(n % 2)) for n in range(40)]
    pids = [job.result().value for job in both]
    # an idle worker may help with the rest of the other's group, never alternate over it
    assert len(set(pids)) <= 2
    changes = sum(a != b for a, b in zip(pids[::2], pids[2::2], strict=False))
    assert changes <= 20


def test_arguments_that_cannot_be_pickled_are_an_error(pool: Pool) -> None:
    assert pool.submit(tasks.own_pid, lambda: 1).result().status == "error"


def test_exclusive_runs_alone(pool: Pool) -> None:
    spans = [pool.submit(tasks.span, 0.03) for _ in range(4)]
    alone = [pool.submit(tasks.alone, 0.03) for _ in range(3)]
    spans += [pool.submit(tasks.span, 0.03) for _ in range(4)]
    others = [s.result().value for s in spans]
    for job in alone:
        value = job.result().value
        assert isinstance(value, tuple)
        reached, start, end = value
        assert reached
        for other in others:
            assert isinstance(other, tuple)
            assert other[1] <= start or other[0] >= end


def test_close_with_kill_cancels() -> None:
    pool = Pool(2, preload=("numpy",))
    pid = pool.submit(tasks.own_pid, None).result().value
    assert isinstance(pid, int)
    jobs = [pool.submit(tasks.sleep, 30.0) for _ in range(5)]
    time.sleep(0.1)
    start = time.monotonic()
    pool.close(kill=True)
    assert time.monotonic() - start < 10
    assert [job.result(timeout=5).status for job in jobs] == ["cancelled"] * 5
    assert gone([pid])
    with pytest.raises(UsageError):
        pool.submit(tasks.double, 1)


def test_interrupt_leaves_nothing(tmp_path: Path) -> None:
    script = tmp_path / "interrupted.py"
    script.write_text(
        "import worker_tasks as t\nfrom steptp.measure.pool import Pool\n"
        "with Pool(2, preload=('numpy',)) as pool:\n"
        "    pids = [pool.submit(t.own_pid, None, group=str(n)).result().value for n in range(2)]\n"
        f"    open({str(tmp_path / 'pids')!r}, 'w').write(' '.join(map(str, [*pids, pool.host.pid])))\n"
        "    for _ in pool.map(t.sleep, [30.0] * 9): pass\n"
    )
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    run = subprocess.Popen([sys.executable, str(script)], env=env, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 20
    while not ((tmp_path / "pids").exists() and (tmp_path / "pids").read_text()) and time.monotonic() < deadline:
        time.sleep(0.02)
    time.sleep(0.1)
    run.send_signal(signal.SIGINT)
    _, errors = run.communicate(timeout=20)
    assert run.returncode != 0
    assert "KeyboardInterrupt" in errors
    assert gone([int(p) for p in (tmp_path / "pids").read_text().split()])


def test_a_pool_needs_a_worker() -> None:
    with pytest.raises(UsageError):
        Pool(0)
