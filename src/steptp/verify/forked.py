"""A forked process that runs somebody else's code, request after request.

Kernels are closures, modules and compiled functions, which no pickle carries to a clean process; a fork has them as they are. What they do to
their process (patched functions, exhausted memory, a crash) stays in the child. The child is forked before the parent has computed anything that the
candidate should compute, so that nothing of it lies in the child's memory. Thread pools do not survive a fork, but those of OpenMP and TVM belong
to the thread that started them: requests are answered in a thread of its own, which starts new ones. Answers are bytes of a bounded number, never
pickles: a candidate that writes to the pipe cannot run code in the parent. Between the two stands a keeper, the subreaper of everything that
the child starts, in whatever session: when the child ends or is to end, the keeper ends them all before it reports. This is no sandbox against a
program that attacks the machine.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import signal
import socket
import sys
import tempfile
import threading
from collections.abc import Callable
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from time import monotonic
from types import TracebackType
from typing import TypeAlias

import psutil

from steptp.verify.verdict import VerdictKind

__all__ = ["Ended", "Forked", "Frames", "out_of_memory"]

Frames: TypeAlias = list[bytes]
_PDEATHSIG, _CHILD_SUBREAPER = 1, 36
_STACK = 64 << 20  # for the code of deep recursions
_FILE = 256 << 20  # bytes that the child may write into one file, what it prints among them
_ANSWER = 64 << 20
_WATCHED = {signal.SIGCHLD, signal.SIGTERM}
_FORKING = threading.Lock()  # no other child inherits the ends of a pipe that are not its own


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
        with _FORKING:
            self._pipe, theirs = Pipe()
            self._report, report = os.pipe()
            self.pid = os.fork()
            if self.pid == 0:
                _FORKING.release()
                self._pipe.close()
                os.close(self._report)
                _keep(serve, theirs, report, self._log.fileno(), memory)
            theirs.close()
            os.close(report)
        os.set_blocking(self._report, False)

    def ask(self, request: Frames, most: int = _ANSWER) -> Frames:
        """The answer to one request, of at most ``most`` bytes; raises :class:`Ended`."""
        start, late = monotonic(), threading.Event()

        def expire() -> None:
            late.set()
            self._kill()
            with contextlib.suppress(OSError), socket.socket(fileno=os.dup(self._pipe.fileno())) as end:
                end.shutdown(socket.SHUT_RDWR)  # whoever else holds the other end

        timer = threading.Timer(max(self._left, 0.0), expire)
        timer.daemon = True
        timer.start()
        try:
            _send(self._pipe, request)
            return _receive(self._pipe, most)
        except (EOFError, OSError, ValueError):
            self._kill()
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
        """Tell the keeper to end the child and all that it has started."""
        if self.pid:
            for number in (signal.SIGTERM, signal.SIGCONT):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(self.pid, number)

    def _reap(self) -> int:
        """The status that the child ended with; of its processes none is left then."""
        pid, self.pid = self.pid, 0
        if not pid:
            return 0
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, 0)
        try:
            status = os.read(self._report, 4)
        except BlockingIOError:
            status = b""
        os.close(self._report)
        return int.from_bytes(status, "little") if status else int(signal.SIGKILL)  # somebody has killed the keeper

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


def _receive(pipe: Connection, most: int | None = None) -> Frames:
    """Frames; raises :class:`OSError` or :class:`ValueError` where they have more than ``most`` bytes."""
    frames: Frames = []
    count = int.from_bytes(pipe.recv_bytes(4), "little")
    if most is not None and count > most:
        raise ValueError(f"{count} frames")
    for _ in range(count):
        frames.append(pipe.recv_bytes(most))
        most = None if most is None else most - len(frames[-1]) - 1
    return frames


def _keep(serve: Callable[[Frames], Frames], pipe: Connection, report: int, log: int, memory: int) -> None:
    """The life of the keeper; never returns."""
    try:
        os.setsid()
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_BLOCK, _WATCHED)
        _prctl(_CHILD_SUBREAPER, 1)
        _prctl(_PDEATHSIG, signal.SIGTERM)
        child = os.fork()
        if child == 0:
            os.close(report)
            _child(serve, pipe, log, memory)
        pipe.close()
        os.write(report, _ended(child).to_bytes(4, "little"))
    finally:
        os._exit(0)


def _ended(child: int) -> int:
    """The status of the child, after its end and that of all processes that it has left."""
    found = None
    while found is None:
        if signal.sigwait(_WATCHED) == signal.SIGTERM:
            os.kill(child, signal.SIGKILL)
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            if ended[0] == child:
                found = ended[1]
                break
    with contextlib.suppress(ChildProcessError):
        while True:
            if os.waitpid(-1, os.WNOHANG)[0] == 0:
                for orphan in psutil.Process().children(recursive=True):
                    with contextlib.suppress(psutil.Error):
                        orphan.kill()
                os.waitpid(-1, 0)
    return found


def _prctl(option: int, value: int) -> None:
    ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def _child(serve: Callable[[Frames], Frames], pipe: Connection, log: int, memory: int) -> None:
    """The life of the child; never returns."""
    status = 70
    try:
        os.setsid()
        _prctl(_PDEATHSIG, signal.SIGKILL)
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGINT, signal.SIGTERM):  # the caller's handlers are not for the child
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _WATCHED)
        _redirect(log)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_FSIZE, (_FILE, _FILE))
        most = _private() + memory
        resource.setrlimit(resource.RLIMIT_DATA, (most, most))
        threading.stack_size(_STACK)
        thread = threading.Thread(target=_answer, args=(serve, pipe))
        thread.start()
        thread.join()
        status = 1  # it leaves by itself when there is nothing more to answer
    finally:
        os._exit(status)


def _redirect(log: int) -> None:
    """Nothing to read, and prints into the log, also where the caller has put streams of its own in the place of Python's."""
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(log, 1)
    os.dup2(log, 2)
    for fd, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        stream = open(fd, mode, 1, errors="backslashreplace", closefd=False)  # noqa: SIM115
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)


def _answer(serve: Callable[[Frames], Frames], pipe: Connection) -> None:
    own = os.getpid()
    while True:
        try:
            request = _receive(pipe)
        except (EOFError, OSError):
            os._exit(0)
        answer = serve(request)
        if os.getpid() != own:  # the candidate has forked, and this is the copy
            os._exit(0)
        _send(pipe, answer)


def _private() -> int:
    """Bytes of this process that count against its limit on private memory."""
    with open("/proc/self/status", encoding="ascii") as status:
        return next((int(line.split()[1]) << 10 for line in status if line.startswith("VmData:")), 0)
