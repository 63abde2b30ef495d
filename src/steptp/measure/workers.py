"""Isolated workers: a task that crashes, hangs or eats memory costs one forked process and comes back as data.

A :class:`WorkerHost` owns one clean process (:mod:`steptp.measure.zygote`) that has imported the heavy modules and
started no thread; a :class:`Worker` is a slot that keeps one forked child, sends it tasks, and replaces it after a failure,
after :attr:`Limits.tasks` tasks, or when it has grown. Nothing a task does raises here: see :class:`TaskResult`.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import pickle
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Generic, ParamSpec, TypedDict, TypeVar, cast

from steptp.errors import UsageError
from steptp.measure.runner import RawResult
from steptp.measure.wire import WireClosed, recv_frame, send_frame, wait_readable

__all__ = ["DEFAULT_LIMITS", "Limits", "TaskResult", "Worker", "WorkerHost", "STATUSES", "PRELOAD", "self_test", "task_path"]

P = ParamSpec("P")
R = TypeVar("R")

STATUSES = ("ok", "error", "crashed", "timeout", "oom", "cancelled")
PRELOAD = ("numpy", "tvm", "steptp.lower")
_THREADS = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "TVM_BIND_THREADS": "0"}  # forking needs one thread
_START_S = 120.0


@dataclass(frozen=True, slots=True)
class Limits:
    """What one worker may use.

    ``timeout``: wall seconds of one task. ``memory``: resident bytes of the worker and everything it starts, looked at
    every 20 ms, and (as a limit on private memory) enforced by the kernel. ``tasks``: replaced after so many; 1 gives
    every task a fresh process. ``grow``: replaced when it holds so many more resident bytes than after its first task.
    """

    timeout: float = 60.0
    memory: int = 4 << 30
    tasks: int = 256
    grow: int = 512 << 20


DEFAULT_LIMITS = Limits()


@dataclass(frozen=True)
class TaskResult(Generic[R]):
    """How a task ended. ``value`` is set only for ``status == "ok"``.

    ``status``: ``ok``; ``error`` (it raised: ``code``, ``message``, ``traceback``); ``crashed`` (a signal or an early exit);
    ``timeout``; ``oom``; ``cancelled`` (the pool was closed). Seconds are wall and CPU time inside the worker.
    """

    status: str
    value: R | None = None
    code: str = ""
    message: str = ""
    traceback: str = ""
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    rss: int = 0

    @property
    def ok(self) -> bool:
        return self.status == "ok"


class _EndRecord(TypedDict, total=False):
    """What the host process says of an ended worker."""

    status: int
    reason: str
    maxrss: int
    log: str


def task_path(function: Callable[..., object]) -> str:
    """``module:name`` of a module-level function; raises :class:`UsageError` ``usage-task`` for anything else."""
    module, name = getattr(function, "__module__", None), getattr(function, "__qualname__", "")
    if not module or not name or "<" in name or module == "__main__":
        raise UsageError("usage-task", f"{function!r} cannot run in a worker", hint="tasks are module-level functions of an importable module")
    return f"{module}:{name}"


class WorkerHost:
    """Starts and owns the process that workers are forked from. Safe to use from several threads."""

    def __init__(
        self,
        preload: Sequence[str] = PRELOAD,
        *,
        hide: Sequence[str] = ("torch",),
        env: Mapping[str, str] | None = None,
        python: str = sys.executable,
    ) -> None:
        self._setup = {"preload": list(preload), "hide": list(hide)}
        threads = str(len(os.sched_getaffinity(0)))  # of compiled parallel loops; TVM would follow OMP_NUM_THREADS
        self._env = {**_THREADS, "TVM_NUM_THREADS": threads, **(env or {})}
        self._python = python
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        self._closed = False

    @property
    def pid(self) -> int | None:
        """The host process, when it runs."""
        return self._process.pid if self._process else None

    @property
    def closed(self) -> bool:
        return self._closed

    def start(self) -> None:
        """Start the host process if it does not run; raises :class:`UsageError` ``usage-worker`` when it cannot import its modules."""
        with self._lock:
            self._ensure()

    def _ensure(self) -> socket.socket:
        if self._closed:
            raise UsageError("usage-worker", "the worker host is closed")
        if self._control is not None and self._process is not None and self._process.poll() is None:
            return self._control
        self._drop()
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [self._python, "-m", "steptp.measure.zygote", str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                start_new_session=True,
                env={**os.environ, **self._env, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
            )
        self._control = ours
        try:
            send_frame(ours, json.dumps({"path": sys.path, **self._setup}).encode())
            answer = json.loads(recv_frame(ours, time.monotonic() + _START_S))
        except (WireClosed, TimeoutError) as err:
            self._drop()
            raise UsageError("usage-worker", f"the worker host did not start ({err or 'no answer'})") from None
        if answer["missing"]:
            self._drop()
            name, why = next(iter(answer["missing"].items()))
            raise UsageError("usage-worker", f"the worker host could not prepare {name}: {why}")
        return ours

    def spawn(self, limits: Limits) -> tuple[socket.socket, socket.socket, int]:
        """Fork a worker: its task socket, its status socket and its pid. Raises :class:`UsageError` or :class:`WireClosed`."""
        task, task_end = socket.socketpair()
        status, status_end = socket.socketpair()
        with self._lock:
            control = self._ensure()
            with task_end, status_end:
                request = json.dumps({"memory": limits.memory}).encode()
                try:
                    socket.send_fds(control, [request], [task_end.fileno(), status_end.fileno()])
                except OSError as err:
                    raise WireClosed(str(err)) from None
            answer = json.loads(recv_frame(status, time.monotonic() + _START_S))
        return task, status, int(answer["pid"])

    def _drop(self) -> None:
        if self._control is not None:
            self._control.close()
            self._control = None
        if self._process is not None:
            try:
                self._process.wait(10)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            self._process = None

    def close(self) -> None:
        """End the host and every worker below it, now."""
        with self._lock:
            self._closed = True
            self._drop()

    def __enter__(self) -> WorkerHost:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


class Worker:
    """One slot: runs tasks one after another in a forked child. Use from one thread."""

    def __init__(self, host: WorkerHost, limits: Limits = DEFAULT_LIMITS) -> None:
        self.host, self.limits = host, limits
        self._task: socket.socket | None = None
        self._status: socket.socket | None = None
        self._done, self._first_rss = 0, 0
        self.pid: int | None = None
        self.spawned = 0

    def run(self, function: Callable[P, R] | str, *args: P.args, **kwargs: P.kwargs) -> TaskResult[R]:
        """Run ``function(*args, **kwargs)`` in the child with the slot's time limit; never raises for what the task does."""
        return self.run_for(None, function, *args, **kwargs)

    def run_for(self, timeout: float | None, function: Callable[P, R] | str, *args: P.args, **kwargs: P.kwargs) -> TaskResult[R]:
        """The same with its own ``timeout`` (seconds; None: the slot's)."""
        path = function if isinstance(function, str) else task_path(function)
        payload = pickle.dumps((path, args, kwargs), pickle.HIGHEST_PROTOCOL)
        limit = self.limits.timeout if timeout is None else timeout
        for attempt in (0, 1):
            fresh = self._task is None
            try:
                if self._task is None:
                    self._task, self._status, self.pid = self.host.spawn(self.limits)
                    self._done, self.spawned = 0, self.spawned + 1
            except (WireClosed, TimeoutError) as err:
                if attempt:
                    return TaskResult("crashed", code="worker-host", message=f"no worker could be started: {err}")
                continue
            raw = self._exchange(payload, limit)
            if not isinstance(raw, TaskResult):
                if raw[0] == "fp-mode" and not fresh:
                    self.stop()
                    continue
                return self._finish(raw)
            if raw.code == "idle-death" and not fresh and not attempt:  # it died between tasks: not this task's doing
                continue
            return cast(TaskResult[R], raw)
        return TaskResult("crashed", code="fp-mode", message="workers start with subnormals flushed to zero on this host")

    def _exchange(self, payload: bytes, limit: float) -> RawResult | TaskResult[object]:
        assert self._task is not None
        deadline = time.monotonic() + limit
        try:
            send_frame(self._task, payload)
        except WireClosed:
            return self._ended("idle-death")
        try:
            blob = recv_frame(self._task, deadline)
            return cast(RawResult, pickle.loads(blob))
        except TimeoutError:
            return self._ended("timeout", f"no result after {limit:g} s")
        except WireClosed:
            return self._ended()
        except (pickle.UnpicklingError, AttributeError, ImportError, EOFError) as err:
            self.stop()
            return TaskResult("error", code="unpicklable", message=f"the result could not be read: {err}")

    def _finish(self, raw: RawResult) -> TaskResult[R]:
        status, value, code, message, trace, seconds, cpu, rss, fp_kept = raw
        self._done += 1
        self._first_rss = self._first_rss if self._done > 1 else rss
        if not fp_kept:
            status, value, code, message = "crashed", None, "fp-mode", "the task switched the floating-point mode (subnormals are flushed to zero)"
        limits = self.limits
        if status in ("oom", "crashed", "fp-mode") or self._done >= limits.tasks or (limits.grow and rss > self._first_rss + limits.grow):
            self.stop()
        if status == "fp-mode":
            status = "crashed"
        return TaskResult(status, cast("R | None", value), code, message, trace, seconds, cpu, rss)

    def _ended(self, kill: str = "", message: str = "") -> TaskResult[object]:
        """The child is gone, or goes now for the reason ``kill``: what its end says about the task."""
        record = self._end_record(kill)
        if kill == "timeout":
            return TaskResult("timeout", code="timeout", message=message, rss=record.get("maxrss", 0))
        if record.get("reason") == "oom":
            used = record.get("maxrss", 0) >> 20
            return TaskResult("oom", code="memory-limit", message=f"used {used} MiB of at most {self.limits.memory >> 20} MiB", rss=record.get("maxrss", 0))
        if kill == "idle-death":
            return TaskResult("crashed", code=kill, message="the worker had ended before the task")
        if not record or record.get("reason") == "closed":
            if self.host.closed:
                return TaskResult("cancelled", code="closed", message="the workers were closed while the task ran")
            return TaskResult("crashed", code="worker-host", message="the worker host ended while the task ran")
        status = int(record["status"])
        log = str(record.get("log", "")).strip()
        if os.WIFSIGNALED(status):
            number = os.WTERMSIG(status)
            name = signal.Signals(number).name if number in signal.valid_signals() else f"signal {number}"
            code, what = name, f"ended by {name}"
        else:
            code, what = "exit", f"the process left with status {os.WEXITSTATUS(status)}"
        oom = "bad_alloc" in log or "out of memory" in log.lower() or "MemoryError" in log
        return TaskResult("oom" if oom else "crashed", code=code, message=what, traceback=log, rss=record.get("maxrss", 0))

    def _end_record(self, kill: str) -> _EndRecord:
        assert self._status is not None
        record: _EndRecord = {}
        if kill:
            with contextlib.suppress(OSError):
                self._status.sendall(kill.encode())
        with contextlib.suppress(WireClosed, TimeoutError):
            record = json.loads(recv_frame(self._status, time.monotonic() + 30))
        self._close()
        return record

    def _close(self) -> None:
        for sock in (self._task, self._status):
            if sock is not None:
                sock.close()
        self._task = self._status = self.pid = None

    def stop(self) -> None:
        """End the child, if there is one, and wait until it is gone."""
        if self._task is not None:
            self._task.close()
            self._end_record("")

    def poke(self) -> bool:
        """True when the child is alive and idle (or none was started)."""
        return self._task is None or not wait_readable(self._task, time.monotonic())


def self_test() -> str:
    """Start a worker, run a task, crash it, run another: a line for people; raises ``RuntimeError`` when isolation does not hold."""
    with WorkerHost(("numpy",)) as host:
        worker = Worker(host, Limits(timeout=20.0, memory=1 << 30))
        if worker.run(math.factorial, 5).value != 120:
            raise RuntimeError("a worker gave a wrong value")
        crash = worker.run(os.abort)
        if crash.code != "SIGABRT" or worker.run(math.factorial, 3).value != 6:
            raise RuntimeError(f"a crashing task was reported as {crash.status} ({crash.message})")
        worker.stop()
    return "isolated workers"
