"""The process that workers are forked from.

``python -m steptp.measure.zygote FD`` imports the heavy modules once, starts no thread, and then serves the control
socket ``FD``: for every request it forks a *runner* (1 to 3 ms), watches the memory of each runner and of everything
that a runner starts, kills on demand, and reports how each ended. It exits, and everything below it, when the other end of
the control socket closes or its parent dies.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import json
import os
import selectors
import signal
import socket
import sys
import time
from dataclasses import dataclass

from steptp.measure import exclusive
from steptp.measure.runner import run_tasks
from steptp.measure.wire import WireClosed, recv_frame, send_frame

__all__ = ["main"]

_POLL_S = 0.02  # how often memory is looked at
_PAGE = os.sysconf("SC_PAGE_SIZE")
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_STDERR_TAIL = 2000


@dataclass(slots=True)
class _Runner:
    pid: int
    status: socket.socket
    log: int  # memfd that takes the runner's stdout and stderr
    memory: int
    reason: str = ""
    peak: int = 0


def prctl(option: int, value: int) -> None:
    """Set a process attribute; failure is ignored (other containment remains)."""
    ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def _rss(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/statm", "rb") as file:
            return int(file.read().split()[1]) * _PAGE
    except (OSError, IndexError):
        return 0


def _share(pid: int) -> int:
    """Proportional resident bytes: a page shared by n processes counts 1/n (slower to read than :func:`_rss`)."""
    with contextlib.suppress(OSError, IndexError, ValueError), open(f"/proc/{pid}/smaps_rollup", "rb") as file:
        return next((int(line.split()[1]) << 10 for line in file if line.startswith(b"Pss:")), 0)
    return 0


def _processes() -> dict[int, tuple[int, int]]:
    """pid → (parent pid, process group) of every live process."""
    found: dict[int, tuple[int, int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError, IndexError, ValueError), open(f"/proc/{name}/stat", "rb") as file:
                rest = file.read().rpartition(b")")[2].split()
                found[int(name)] = (int(rest[1]), int(rest[2]))
    return found


class Zygote:
    """Forks, watches and reaps runners."""

    def __init__(self, control: socket.socket) -> None:
        self.control = control
        self.runners: dict[int, _Runner] = {}
        self.selector = selectors.DefaultSelector()
        self.locks = (os.memfd_create("steptp-turnstile"), os.memfd_create("steptp-lock"))
        self.next_scan = 0.0
        wake_in, wake_out = os.pipe()
        for fd in (wake_in, wake_out):
            os.set_blocking(fd, False)
        self.wake = (wake_in, wake_out)
        signal.set_wakeup_fd(wake_out, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        self.selector.register(control, selectors.EVENT_READ, "control")
        self.selector.register(wake_in, selectors.EVENT_READ, "wake")

    def serve(self) -> None:
        """Serve requests until the control socket closes or the parent goes away."""
        parent = os.getppid()
        try:
            while os.getppid() == parent:
                for key, _ in self.selector.select(_POLL_S if self.runners else 1.0):
                    if key.data == "control":
                        if not self._request():
                            return
                    elif key.data == "wake":
                        with contextlib.suppress(BlockingIOError):
                            os.read(self.wake[0], 4096)
                    else:
                        self._kill_request(key.data)
                self._reap()
                self._watch()
        finally:
            self._end_all()

    def _request(self) -> bool:
        try:
            data, fds, _, _ = socket.recv_fds(self.control, 65536, 2)
        except OSError:
            return False
        if not data:
            return False
        request = json.loads(data)
        task, status = (socket.socket(fileno=fd) for fd in fds)
        try:
            log = os.memfd_create("steptp-log")
            pid = os.fork()
        except OSError:  # no process or descriptor left: the closed sockets tell the caller
            task.close()
            status.close()
            return True
        if pid == 0:
            try:
                self._become_runner(task, log, request)
            finally:
                os._exit(70)
        task.close()
        runner = _Runner(pid, status, log, int(request["memory"]))
        self.runners[pid] = runner
        self.selector.register(status, selectors.EVENT_READ, pid)
        with contextlib.suppress(WireClosed):
            send_frame(status, json.dumps({"pid": pid}).encode())
        return True

    def _become_runner(self, task: socket.socket, log: int, request: dict[str, object]) -> None:
        zygote = os.getppid()
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        os.setsid()
        prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != zygote:
            os._exit(71)
        self.selector.close()
        self.control.close()
        for other in self.runners.values():
            other.status.close()
            os.close(other.log)
        for fd in self.wake:
            os.close(fd)
        os.dup2(log, 1)
        os.dup2(log, 2)
        exclusive.configure(f"/proc/self/fd/{self.locks[0]}", f"/proc/self/fd/{self.locks[1]}")
        for fd in self.locks:
            os.close(fd)
        run_tasks(task, int(str(request["memory"])))
        os._exit(0)

    def _kill_request(self, pid: int) -> None:
        runner = self.runners.get(pid)
        if runner is None:
            return
        try:
            word = runner.status.recv(64)
        except OSError:
            word = b""
        self._kill(runner, word.decode() or "abandoned")

    def _kill(self, runner: _Runner, reason: str) -> None:
        runner.reason = runner.reason or reason
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(runner.pid, signal.SIGKILL)
        with contextlib.suppress(ProcessLookupError):
            os.kill(runner.pid, signal.SIGKILL)
        if reason == "abandoned":
            with contextlib.suppress(KeyError, ValueError):
                self.selector.unregister(runner.status)

    def _reap(self) -> None:
        while True:
            try:
                info = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                return
            if info is None:
                return
            runner = self.runners.get(info.si_pid)
            if runner is not None:  # the group goes while its leader's pid is still ours
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(runner.pid, signal.SIGKILL)
            _, status, usage = os.wait4(info.si_pid, 0)
            if runner is not None:
                self._ended(runner, status, usage.ru_maxrss * 1024)

    def _ended(self, runner: _Runner, status: int, maxrss: int) -> None:
        del self.runners[runner.pid]
        with contextlib.suppress(KeyError, ValueError):
            self.selector.unregister(runner.status)
        size = os.lseek(runner.log, 0, os.SEEK_END)
        tail = os.pread(runner.log, _STDERR_TAIL, max(0, size - _STDERR_TAIL)).decode("utf-8", "replace")
        record = {"status": status, "reason": runner.reason, "maxrss": max(maxrss, runner.peak), "log": tail}
        with contextlib.suppress(WireClosed):
            send_frame(runner.status, json.dumps(record).encode())
        runner.status.close()
        os.close(runner.log)
        self._strangers(_processes())

    def _watch(self) -> None:
        for runner in self.runners.values():
            now = _rss(runner.pid)
            runner.peak = max(runner.peak, now)
            if runner.memory and now > runner.memory:
                self._kill(runner, "oom")
        if self.runners and time.monotonic() >= self.next_scan:
            start = time.monotonic()
            table = _processes()
            self._strangers(table)
            self._family_memory(table)
            end = time.monotonic()
            self.next_scan = end + max(0.5, 50 * (end - start))

    def _strangers(self, table: dict[int, tuple[int, int]]) -> None:
        """Kill what runners left behind: this process is the reaper of orphans, so they are its unknown children."""
        own = os.getpid()
        while True:
            lost = [pid for pid, (parent, _) in table.items() if parent == own and pid not in self.runners]
            killed = False
            for pid in lost:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                    killed = True
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(pid, 0)
            if not killed:
                return
            table = _processes()

    def _family_memory(self, table: dict[int, tuple[int, int]]) -> None:
        """Count the memory of a runner's descendants against its limit (forked copies share pages: proportionally)."""
        families: dict[int, list[int]] = {}
        for pid in table:
            seen, up = 0, pid
            while up in table and up not in self.runners and seen < 64:
                up, seen = table[up][0], seen + 1
            if up in self.runners:
                families.setdefault(up, []).append(pid)
        for owner, members in families.items():
            runner = self.runners[owner]
            if len(members) > 1 and runner.memory and sum(map(_rss, members)) > runner.memory and sum(map(_share, members)) > runner.memory:
                self._kill(runner, "oom")

    def _end_all(self) -> None:
        for runner in self.runners.values():
            self._kill(runner, "closed")
        deadline = time.monotonic() + 5
        while self.runners and time.monotonic() < deadline:
            self._reap()
            time.sleep(0.002)
        self._strangers(_processes())


def _threads() -> int:
    return len(os.listdir("/proc/self/task"))


def main() -> int:
    """Entry of the zygote process."""
    control = socket.socket(fileno=int(sys.argv[1]))
    setup = json.loads(recv_frame(control))
    sys.path[:] = setup["path"]
    hidden = [name for name in setup["hide"] if name not in sys.modules]
    for name in hidden:  # an optional import that only costs memory: 200 MB of torch inside tvm
        sys.modules[name] = None  # type: ignore[assignment]
    missing: dict[str, str] = {}
    for name in setup["preload"]:
        try:
            importlib.import_module(name)
        except ImportError as err:
            missing[name] = str(err)
    for name in hidden:
        if sys.modules.get(name, control) is None:
            del sys.modules[name]
    if not missing and _threads() != 1:
        missing["threads"] = f"{_threads()} threads after importing {setup['preload']}: forking is not safe"
    prctl(_PR_SET_CHILD_SUBREAPER, 1)
    gc.collect()
    gc.freeze()
    send_frame(control, json.dumps({"missing": missing, "rss": _rss(os.getpid())}).encode())
    if not missing:
        Zygote(control).serve()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
