"""Isolated workers: whatever a task does comes back as data, and nothing is left running."""

from __future__ import annotations

import os
import platform
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import worker_tasks as tasks

from steptp.errors import UsageError
from steptp.measure.workers import Limits, Worker, WorkerHost, task_path

LIMITS = Limits(timeout=20.0, memory=512 << 20)


@pytest.fixture(scope="module")
def host() -> Iterator[WorkerHost]:
    with WorkerHost(("numpy",)) as running:
        yield running


@pytest.fixture
def worker(host: WorkerHost) -> Iterator[Worker]:
    slot = Worker(host, LIMITS)
    yield slot
    slot.stop()


def alive(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()[0] != b"Z"
    except OSError:
        return False


def gone(pids: list[int], patience: float = 5.0) -> bool:
    deadline = time.monotonic() + patience
    while any(alive(p) for p in pids) and time.monotonic() < deadline:
        time.sleep(0.01)
    return not any(alive(p) for p in pids)


def test_value_and_reuse(worker: Worker) -> None:
    assert worker.run(tasks.double, 21).value == 42
    first, second = worker.run(tasks.own_pid), worker.run(tasks.own_pid)
    assert first.ok
    assert first.value == second.value == worker.pid != os.getpid()
    assert first.seconds >= 0.0
    assert first.rss > 1 << 20


@pytest.mark.parametrize("number", [signal.SIGSEGV, signal.SIGKILL, signal.SIGABRT, signal.SIGFPE])
def test_signal_is_crashed(worker: Worker, number: signal.Signals) -> None:
    result = worker.run(tasks.kill_self, int(number))
    assert (result.status, result.code) == ("crashed", number.name)
    assert worker.run(tasks.double, 4).value == 8


def test_real_segfault_says_where(worker: Worker) -> None:
    result = worker.run(tasks.segfault)
    assert (result.status, result.code) == ("crashed", "SIGSEGV")
    assert "segfault" in result.traceback


def test_early_exit_is_crashed(worker: Worker) -> None:
    result = worker.run(tasks.leave, 3)
    assert (result.status, result.code) == ("crashed", "exit")
    assert "3" in result.message


def test_output_tail_is_kept(worker: Worker) -> None:
    result = worker.run(tasks.print_much, "noise ")
    assert result.status == "crashed"
    assert 0 < len(result.traceback) <= 2000


def test_hang_is_timeout(worker: Worker) -> None:
    pid = worker.run(tasks.own_pid).value
    assert pid is not None
    result = worker.run_for(0.2, tasks.hang)
    assert result.status == "timeout"
    assert gone([pid])
    assert worker.run(tasks.double, 1).value == 2


def test_slow_hog_is_oom(worker: Worker) -> None:
    result = worker.run(tasks.hog_slowly)
    assert result.status == "oom"
    assert worker.run(tasks.double, 1).value == 2


def test_large_request_is_oom(worker: Worker) -> None:
    assert worker.run(tasks.hog_at_once, 1 << 26).value == 1 << 26
    result = worker.run(tasks.hog_at_once, 8 << 30)
    assert result.status == "oom"


def test_exception_is_data(worker: Worker) -> None:
    known, plain = worker.run(tasks.raise_usage), worker.run(tasks.raise_value)
    assert (known.status, known.code) == ("error", "usage-demo")
    assert (plain.status, plain.code, plain.message) == ("error", "ValueError", "plain")
    assert "raise_value" in plain.traceback
    assert worker.run("worker_tasks:no_such_function").code == "AttributeError"
    assert worker.run("no_such_module:f").code == "ModuleNotFoundError"


def test_unpicklable_value(worker: Worker) -> None:
    assert worker.run(tasks.unpicklable).code == "unpicklable"
    with pytest.raises(UsageError):
        task_path(lambda: None)


def test_big_result(worker: Worker) -> None:
    value = worker.run(tasks.big, 64 << 20).value
    assert value is not None
    assert len(value) == 64 << 20


def test_children_of_a_crashed_task_are_gone(worker: Worker, tmp_path: Path) -> None:
    path = tmp_path / "pids"
    assert worker.run(tasks.leave_children, str(path)).ok
    pids = [int(p) for p in path.read_text().split()]
    assert alive(pids[0])
    worker.run(tasks.kill_self, int(signal.SIGKILL))
    assert gone(pids)


def test_many_forks_are_contained(worker: Worker, tmp_path: Path) -> None:
    path = tmp_path / "pids"
    result = worker.run_for(1.0, tasks.fork_until_killed, str(path))
    assert result.status == "timeout"
    pids = [int(p) for p in path.read_text().split()]
    assert len(pids) == 40
    assert gone(pids)


@pytest.mark.parametrize("again", [0, 1])
def test_floating_point_mode_is_guarded(worker: Worker, again: int) -> None:
    if platform.machine() != "x86_64":
        pytest.fail("the probe's machine code is for x86-64")
    result = worker.run(tasks.flush_to_zero)
    assert (result.status, result.code) == ("crashed", "fp-mode")
    assert worker.run(tasks.double, again).value == 2 * again


def test_fresh_process_per_task(host: WorkerHost) -> None:
    slot = Worker(host, Limits(tasks=1))
    pids = {slot.run(tasks.own_pid).value for _ in range(4)}
    assert len(pids) == 4
    assert slot.pid is None


def test_three_hundred_tasks_leave_nothing(host: WorkerHost) -> None:
    slot = Worker(host, Limits(tasks=50))
    sizes, pids = [], set()
    for number in range(300):
        assert slot.run(tasks.double, number).value == 2 * number
        if number % 10 == 0:
            sizes.append(slot.run(tasks.rss).value or 0)
            pids.add(slot.run(tasks.own_pid).value or 0)
    slot.stop()
    assert slot.spawned == 8  # 360 tasks, 50 for each process
    assert gone(list(pids))
    assert max(sizes) - min(sizes) < 8 << 20


def test_death_between_tasks_is_not_the_next_tasks_fault(worker: Worker) -> None:
    pid = worker.run(tasks.own_pid).value
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    assert gone([pid])
    assert worker.run(tasks.double, 3).value == 6


def test_host_death_and_restart() -> None:
    with WorkerHost(("numpy",)) as own:
        slot = Worker(own, LIMITS)
        child = slot.run(tasks.own_pid).value
        assert child is not None
        assert own.pid is not None
        os.kill(own.pid, signal.SIGKILL)
        assert gone([child])
        assert slot.run(tasks.double, 5).value == 10


def test_missing_module_is_a_clear_error() -> None:
    with WorkerHost(("no_such_module_here",)) as own, pytest.raises(UsageError) as caught:
        own.start()
    assert "no_such_module_here" in caught.value.message


def test_workers_die_with_their_owner(tmp_path: Path) -> None:
    script = (
        "import sys, os, signal; import worker_tasks as t; from steptp.measure.workers import *\n"
        "h = WorkerHost(('numpy',)); w = Worker(h); p = w.run(t.own_pid).value\n"
        f"open({str(tmp_path / 'pids')!r}, 'w').write(f'{{p}} {{h.pid}}'); os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    assert subprocess.run([sys.executable, "-c", script], env=env, check=False).returncode == -signal.SIGKILL
    assert gone([int(p) for p in (tmp_path / "pids").read_text().split()])
