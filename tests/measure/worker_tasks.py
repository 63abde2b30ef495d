"""Tasks that the worker tests send: well-behaved and hostile ones."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time

import numpy as np

from steptp.errors import UsageError


def double(x: int) -> int:
    return 2 * x


def own_pid(_: object = None) -> int:
    return os.getpid()


def segfault(_: object = None) -> None:
    ctypes.string_at(0)


def kill_self(number: int) -> None:
    os.kill(os.getpid(), number)
    time.sleep(10)


def leave(code: int) -> None:
    os._exit(code)


def hang(_: object = None) -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    while True:
        pass


def hog_slowly(_: object = None) -> None:
    held = []
    while True:
        held.append(np.ones(4 << 20, dtype=np.uint8))
        time.sleep(0.0005)


def hog_at_once(size: int) -> int:
    return int(np.ones(size, dtype=np.uint8).sum())


def raise_usage(_: object = None) -> None:
    raise UsageError("usage-demo", "a clear error")


def raise_value(_: object = None) -> None:
    raise ValueError("plain")


def unpicklable(_: object = None) -> object:
    return lambda: 1


def big(size: int) -> bytes:
    return bytes(size)


def leave_children(path: str) -> int:
    """Start children in the group, in a session of their own, and orphans; write their pids to ``path`` and return."""
    code = "import time; time.sleep(60)"
    plain = subprocess.Popen([sys.executable, "-S", "-c", code])
    session = subprocess.Popen([sys.executable, "-S", "-c", code], start_new_session=True)
    read, write = os.pipe()
    if os.fork() == 0:
        os.setsid()
        orphan = os.fork()
        if orphan == 0:
            time.sleep(60)
            os._exit(0)
        os.write(write, str(orphan).encode())
        os._exit(0)
    orphan_pid = int(os.read(read, 32))
    with open(path, "w", encoding="ascii") as file:
        file.write(f"{plain.pid} {session.pid} {orphan_pid}")
    return os.getpid()


def fork_until_killed(path: str) -> None:
    """Fork sleeping children, a few of them in sessions of their own, and hang."""
    pids = []
    for number in range(40):
        pid = os.fork()
        if pid == 0:
            if number % 2:
                os.setsid()
            time.sleep(60)
            os._exit(0)
        pids.append(pid)
    with open(path, "w", encoding="ascii") as file:
        file.write(" ".join(map(str, pids)))
    time.sleep(60)


def flush_to_zero(_: object = None) -> int:
    """Switch the flush-to-zero and denormals-are-zero bits on, as fast-math libraries do."""
    code = bytes.fromhex("4883ec080fae1c24810c24408000000fae14244883c408c3")
    import mmap

    page = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    page.write(code)
    address = ctypes.addressof(ctypes.c_char.from_buffer(page))
    ctypes.CFUNCTYPE(None)(address)()
    return 1


def print_much(text: str) -> None:
    print(text * 1000, flush=True)
    os.abort()


def rss(_: object = None) -> int:
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * 4096


def sleep(seconds: float) -> float:
    time.sleep(seconds)
    return seconds


def alone(seconds: float) -> tuple[bool, float, float]:
    from steptp.measure.exclusive import exclusive

    with exclusive() as reached:
        start = time.monotonic()
        time.sleep(seconds)
        return reached, start, time.monotonic()


def span(seconds: float) -> tuple[float, float]:
    start = time.monotonic()
    time.sleep(seconds)
    return start, time.monotonic()
