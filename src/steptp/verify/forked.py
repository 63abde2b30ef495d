"""A forked process that runs somebody else's code, request after request.

Kernels are closures, modules and compiled functions, which no pickle carries to a clean process; a fork has them as they are. What they do to
their process (patched functions, exhausted memory, a crash) stays in the child. The child is forked before the parent has computed anything that the
candidate should compute, so that nothing of it lies in the child's memory. Thread pools do not survive a fork, but those of OpenMP and TVM belong
to the thread that started them: requests are answered in a thread of its own, which starts new ones. Answers are bytes, never pickles: a
candidate that writes to the pipe cannot run code in the parent. This is no sandbox against a program that attacks the machine.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import signal
import tempfile
import threading
from collections.abc import Callable
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from time import monotonic
from types import TracebackType
from typing import TypeAlias

from steptp.verify.verdict import VerdictKind

__all__ = ["Ended", "Forked", "Frames", "out_of_memory"]

Frames: TypeAlias = list[bytes]
_PDEATHSIG = 1
_STACK = 64 << 20  # for the code of deep recursions


class Ended(Exception):
    """There is no usable answer: the verdict that this is, and the tail of what the process printed."""

    def __init__(self, kind: VerdictKind, message: str, log: str = "") -> None:
        super().__init__(message)
        self.kind, self.message, self.log = kind, message, log


def out_of_memory(text: str) -> bool:
    """Whether the text of an error or a log says so."""
    lower = text.lower()
    return any(sign in lower for sign in ("out of memory", "memoryerror", "bad_alloc", "can't allocate memory", "cannot allocate memory", "not enough memory"))


class Forked:
    """``serve`` answers requests in a child process. ``timeout``: wall seconds that all answers together may take; ``memory``: private bytes beyond
    what this process has mapped already."""

    def __init__(self, serve: Callable[[Frames], Frames], *, timeout: float, memory: int) -> None:
        self._left, self._timeout, self._memory = timeout, timeout, memory
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the process
        self._pipe, theirs = Pipe()
        self.pid = os.fork()
        if self.pid == 0:
            _child(serve, theirs, self._pipe, self._log.fileno(), memory)
        theirs.close()

    def ask(self, request: Frames) -> Frames:
        """The answer to one request; raises :class:`Ended`."""
        start, late = monotonic(), threading.Event()

        def expire() -> None:
            late.set()
            self._kill()

        timer = threading.Timer(max(self._left, 0.0), expire)
        timer.daemon = True
        timer.start()
        try:
            _send(self._pipe, request)
            return _receive(self._pipe)
        except (EOFError, OSError):
            raise self._end(late.is_set()) from None
        finally:
            timer.cancel()
            self._left -= monotonic() - start

    def _end(self, late: bool) -> Ended:
        status = self._reap()
        log = self._printed()
        if late:
            return Ended(VerdictKind.TIMEOUT, f"no result after {self._timeout:g} s", log)
        if out_of_memory(log):
            return Ended(VerdictKind.OOM, f"ran out of memory ({self._memory >> 20} MiB allowed)", log)
        if os.WIFSIGNALED(status):
            number = os.WTERMSIG(status)
            name = signal.Signals(number).name if number in signal.valid_signals() else f"signal {number}"
            return Ended(VerdictKind.CRASHED, f"ended by {name}", log)
        return Ended(VerdictKind.CRASHED, f"the process left with status {os.WEXITSTATUS(status)}", log)

    def _printed(self) -> str:
        if self._log.closed:
            return ""
        self._log.seek(max(0, self._log.seek(0, os.SEEK_END) - 1000))
        return self._log.read().decode(errors="replace").strip()

    def _kill(self) -> None:
        """End the child and all of its process group, whose number stays taken until it is waited for."""
        if self.pid:
            for end in (os.killpg, os.kill):
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    end(self.pid, signal.SIGKILL)

    def _reap(self) -> int:
        pid, self.pid = self.pid, 0
        if not pid:
            return 0
        status = os.waitpid(pid, 0)[1]
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(pid, signal.SIGKILL)  # what it has started
        return status

    def close(self) -> None:
        """End the child and everything that it has started."""
        self._kill()
        self._reap()
        self._pipe.close()
        self._log.close()

    def __enter__(self) -> Forked:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


def _send(pipe: Connection, frames: Frames) -> None:
    pipe.send_bytes(len(frames).to_bytes(4, "little"))
    for frame in frames:
        pipe.send_bytes(frame)


def _receive(pipe: Connection) -> Frames:
    return [pipe.recv_bytes() for _ in range(int.from_bytes(pipe.recv_bytes(4), "little"))]


def _child(serve: Callable[[Frames], Frames], pipe: Connection, parents: Connection, log: int, memory: int) -> None:
    """The life of the child; never returns."""
    status = 70
    try:
        parents.close()
        os.setsid()
        ctypes.CDLL(None).prctl(_PDEATHSIG, signal.SIGKILL)
        os.dup2(log, 1)
        os.dup2(log, 2)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        most = _private() + memory
        resource.setrlimit(resource.RLIMIT_DATA, (most, most))
        threading.stack_size(_STACK)
        thread = threading.Thread(target=_answer, args=(serve, pipe))
        thread.start()
        thread.join()
        status = 1  # it leaves by itself when there is nothing more to answer
    finally:
        os._exit(status)


def _answer(serve: Callable[[Frames], Frames], pipe: Connection) -> None:
    while True:
        try:
            request = _receive(pipe)
        except (EOFError, OSError):
            os._exit(0)
        _send(pipe, serve(request))


def _private() -> int:
    """Bytes of this process that count against its limit on private memory."""
    with open("/proc/self/status", encoding="ascii") as status:
        return next((int(line.split()[1]) << 10 for line in status if line.startswith("VmData:")), 0)
