"""A pool of isolated workers: submit, iterate as completed or in order, survive whatever tasks do.

Tasks with the same ``group`` run on one worker, one after another, as long as others have work of their own, so that a
worker's caches (built parents) are used.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures import wait as wait_futures
from dataclasses import dataclass, replace
from types import TracebackType
from typing import TypeVar, cast

from steptp.errors import StepTPError, UsageError
from steptp.measure.workers import DEFAULT_LIMITS, PRELOAD, Limits, TaskResult, Worker, WorkerHost, task_path

__all__ = ["Pool", "Progress"]

T = TypeVar("T")
R = TypeVar("R")
Progress = Callable[[int, int, "TaskResult[object]"], None]
"""Called with (finished, submitted so far, the result just finished) in the caller's thread."""


@dataclass(slots=True)
class _Job:
    path: str
    args: tuple[object, ...]
    timeout: float | None
    future: Future[TaskResult[object]]


class _Slot(threading.Thread):
    def __init__(self, pool: Pool, number: int) -> None:
        super().__init__(name=f"steptp-slot-{number}", daemon=True)
        self.pool = pool
        self.worker = Worker(pool.host, pool.limits)
        self.group: str | None = None

    def run(self) -> None:
        while (job := self.pool._next(self)) is not None:
            if not job.future.set_running_or_notify_cancel():
                continue
            try:
                result: TaskResult[object] = self.worker.run_for(job.timeout, job.path, *job.args)
            except (StepTPError, OSError, TypeError, AttributeError, ValueError) as err:  # no host, or arguments that cannot be pickled
                code = err.code if isinstance(err, StepTPError) else type(err).__name__
                result = TaskResult("cancelled" if self.pool.closed else "error", code=code, message=str(err))
            job.future.set_result(result)
        if not self.pool.closed:
            self.worker.stop()


class Pool:
    """``slots`` workers (default: one per core). Use as a context manager; leaving it by an exception kills what runs."""

    def __init__(
        self,
        slots: int | None = None,
        *,
        limits: Limits = DEFAULT_LIMITS,
        preload: Sequence[str] = PRELOAD,
        env: Mapping[str, str] | None = None,
    ) -> None:
        count = slots if slots is not None else len(os.sched_getaffinity(0))
        if count < 1:
            raise UsageError("usage-workers", f"a pool needs at least one worker, not {count}")
        share = int(0.8 * os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / count)  # all workers together fit the machine
        self.limits = replace(limits, memory=min(limits.memory, share)) if limits.memory else limits
        self.host = WorkerHost(preload, env=env)
        self.closed = False
        self._ending = False
        self._groups: OrderedDict[str, deque[_Job]] = OrderedDict()
        self._homes: dict[str, _Slot] = {}
        self._wake = threading.Condition()
        self._anonymous = 0
        self.host.start()
        self._slots = [_Slot(self, n) for n in range(count)]
        for slot in self._slots:
            slot.start()

    @property
    def slots(self) -> int:
        return len(self._slots)

    def submit(self, function: Callable[[T], R], arg: T, *, group: str | None = None, timeout: float | None = None) -> Future[TaskResult[R]]:
        """Queue ``function(arg)``; ``function`` is module-level. The future always ends with a :class:`TaskResult`."""
        job = _Job(task_path(function), (arg,), timeout, Future())
        with self._wake:
            if self.closed or self._ending:
                raise UsageError("usage-workers", "the pool is closed")
            if group is None:
                self._anonymous += 1
                group = f"\0{self._anonymous}"
            self._groups.setdefault(group, deque()).append(job)
            self._wake.notify()
        return cast("Future[TaskResult[R]]", job.future)

    def _next(self, slot: _Slot) -> _Job | None:
        with self._wake:
            while True:
                if self.closed:
                    return None
                name = self._choose(slot)
                if name is not None:
                    queue = self._groups[name]
                    job = queue.popleft()
                    if not queue:
                        del self._groups[name]
                    slot.group = name
                    if not name.startswith("\0"):
                        self._homes.setdefault(name, slot)
                    return job
                if self._ending:
                    return None
                self._wake.wait()

    def _choose(self, slot: _Slot) -> str | None:
        """The present group, then one that this worker has had before, a new one, one that nobody works on, the longest queue."""
        if slot.group in self._groups:
            return slot.group
        owned = {other.group for other in self._slots if other is not slot}
        free = [name for name in self._groups if name not in owned]
        for wanted in (slot, None):
            for name in free:
                if self._homes.get(name) is wanted:
                    return name
        if free:
            return free[0]
        return max(self._groups, key=lambda name: len(self._groups[name]), default=None)

    def map(
        self,
        function: Callable[[T], R],
        items: Iterable[T],
        *,
        ordered: bool = True,
        group: Callable[[T], str] | None = None,
        timeout: float | None = None,
        window: int | None = None,
        progress: Progress | None = None,
    ) -> Generator[tuple[T, TaskResult[R]], None, None]:
        """(item, result) of every item: in the items' order, or (``ordered=False``) as they finish.

        ``items`` may be an endless generator: at most ``window`` (default 8 per worker) are in flight or waiting to be taken.
        """
        limit = window or 8 * self.slots
        source = iter(items)
        flying: OrderedDict[Future[TaskResult[R]], T] = OrderedDict()
        finished = submitted = 0
        more = True
        while more or flying:
            while more and len(flying) < limit:
                try:
                    item = next(source)
                except StopIteration:
                    more = False
                    break
                flying[self.submit(function, item, group=group(item) if group else None, timeout=timeout)] = item
                submitted += 1
            if not flying:
                break
            for future in [next(iter(flying))] if ordered else list(wait_futures(flying, return_when="FIRST_COMPLETED").done):
                item = flying[future]
                result = future.result()
                del flying[future]
                finished += 1
                if progress is not None:
                    progress(finished, submitted, cast("TaskResult[object]", result))
                yield item, result

    def close(self, *, kill: bool = False) -> None:
        """Finish what is queued, then end every worker; with ``kill`` end them now (unfinished tasks become ``cancelled``)."""
        with self._wake:
            self._ending = True
            if kill:
                self.closed = True
                waiting = [job for queue in self._groups.values() for job in queue]
                self._groups.clear()
            else:
                waiting = []
            self._wake.notify_all()
        for job in waiting:
            if job.future.set_running_or_notify_cancel():
                job.future.set_result(TaskResult("cancelled", code="closed", message="the pool was closed"))
        if kill:
            self.host.close()
        for slot in self._slots:
            slot.join(None if not kill else 10)
        self.closed = True
        self.host.close()

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close(kill=kind is not None)
