"""One timing at a time where it matters: a readers-writer lock between the workers of a pool.

A worker holds the lock shared while it runs a task. Timing a program that uses several cores takes it exclusively, so
that no other worker's compilation competes for those cores. Outside a pool nothing is locked.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

__all__ = ["configure", "shared", "exclusive"]

_files: tuple[int, int] | None = None  # (turnstile, lock): two open file descriptions of this process
_depth = 0


def configure(turnstile: str | None, lock: str | None = None) -> None:
    """Use the files at these two paths as the locks of this process; ``None`` switches locking off."""
    global _files
    if _files is not None:
        for fd in _files:
            with suppress(OSError):
                os.close(fd)
    _files = None if turnstile is None or lock is None else (os.open(turnstile, os.O_RDWR), os.open(lock, os.O_RDWR))


@contextmanager
def shared() -> Iterator[None]:
    """Hold the lock shared. A waiting exclusive holder goes first (the turnstile), so it never starves."""
    global _depth
    if _files is None or _depth:
        yield
        return
    turnstile, lock = _files
    fcntl.flock(turnstile, fcntl.LOCK_SH)
    fcntl.flock(turnstile, fcntl.LOCK_UN)
    fcntl.flock(lock, fcntl.LOCK_SH)
    _depth += 1
    try:
        yield
    finally:
        _depth -= 1
        fcntl.flock(lock, fcntl.LOCK_UN)


@contextmanager
def exclusive(patience: float = 5.0) -> Iterator[bool]:
    """Hold the lock alone: other workers have finished their present task and wait before their next one.

    Yields whether that was reached within ``patience`` seconds (a worker may hang); otherwise the body runs unprotected.
    """
    if _files is None:
        yield False
        return
    turnstile, lock = _files
    deadline = time.monotonic() + patience
    fcntl.flock(lock, fcntl.LOCK_UN)  # never wait while holding it: two upgraders would block each other
    alone = False
    try:
        alone = _try_until(turnstile, deadline) and _try_until(lock, deadline)
        yield alone
    finally:
        fcntl.flock(lock, fcntl.LOCK_UN)
        fcntl.flock(turnstile, fcntl.LOCK_UN)
        if _depth:
            fcntl.flock(lock, fcntl.LOCK_SH)


def _try_until(fd: int, deadline: float) -> bool:
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= deadline:
                return False
            time.sleep(0.001)
        else:
            return True
