"""The loop of one forked worker: read a task, run it under limits, send the result."""

from __future__ import annotations

import faulthandler
import functools
import gc
import importlib
import os
import pickle
import resource
import socket
import sys
import time
import traceback
from collections.abc import Callable
from typing import TypeAlias

from steptp.errors import StepTPError
from steptp.measure import exclusive
from steptp.measure.fpmode import denormals_work
from steptp.measure.wire import WireClosed, recv_frame, send_frame

__all__ = ["run_tasks", "resolve", "RawResult"]

RawResult: TypeAlias = tuple[str, object, str, str, str, float, float, int, bool]
"""status, value, error code, message, traceback, wall seconds, CPU seconds, resident bytes, floating-point mode kept."""

_LOG_LIMIT = 1 << 16
_HEADROOM = 512 << 20  # thread stacks and allocator arenas are reserved, not used
_GARBAGE = 20_000  # containers made before cycles are looked for: at Python's 700 that is a tenth of a worker's time


def resolve(path: str) -> Callable[..., object]:
    """The function at ``module:qualified.name``; raises ``ImportError`` or ``AttributeError``."""
    module, _, name = path.partition(":")
    found: object = functools.reduce(getattr, name.split("."), importlib.import_module(module))
    if not callable(found):
        raise AttributeError(f"{path} is not callable")
    return found


def _limit(memory: int) -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if memory:
        with open("/proc/self/status", encoding="ascii") as file:
            fields = dict(line.split(":", 1) for line in file if ":" in line)
        data = int(fields["VmData"].split()[0]) << 10
        resource.setrlimit(resource.RLIMIT_DATA, (data + memory + _HEADROOM,) * 2)
        resource.setrlimit(resource.RLIMIT_FSIZE, (max(memory, 1 << 28),) * 2)


def run_tasks(sock: socket.socket, memory: int) -> None:
    """Serve tasks until the socket closes. ``memory`` (bytes, 0: none) bounds private memory beyond the forked image."""
    _limit(memory)
    gc.set_threshold(_GARBAGE, *gc.get_threshold()[1:])
    faulthandler.enable(sys.stderr)
    while True:
        try:
            payload = recv_frame(sock)
        except WireClosed:
            return
        with exclusive.shared():
            result = _run(payload)
        try:
            blob = pickle.dumps(result, pickle.HIGHEST_PROTOCOL)
        except Exception as err:  # noqa: BLE001 - the value is the task's own: whatever pickling it raises is its failure
            blob = pickle.dumps(("error", None, "unpicklable", f"the task's value cannot be sent back: {err}", "", *result[5:]))
        send_frame(sock, blob)
        if os.fstat(1).st_size > _LOG_LIMIT:
            sys.stdout.flush()
            os.ftruncate(1, 0)
            os.lseek(1, 0, os.SEEK_SET)


def _run(payload: bytes) -> RawResult:
    status, value, code, message, trace = "ok", None, "", "", ""
    if not denormals_work():
        return ("fp-mode", None, "fp-mode", "floating point flushes subnormals to zero before the task", "", 0.0, 0.0, 0, False)
    start, cpu = time.perf_counter(), time.process_time()
    try:
        path, args, kwargs = pickle.loads(payload)
        value = resolve(path)(*args, **kwargs)
    except MemoryError as err:
        status, code, message = "oom", "MemoryError", str(err) or "out of memory"
    except (KeyboardInterrupt, SystemExit) as err:
        status, code, message = "error", type(err).__name__, f"the task ended with {err!r}"
    except Exception as err:  # noqa: BLE001 - the process boundary: a failing task is data for the caller
        status, code, message = "error", type(err).__name__, str(err)
        if isinstance(err, StepTPError):
            code = err.code
        if "bad_alloc" in message:
            status = "oom"
        trace = "".join(traceback.format_exception(err)[-12:])[-4000:]
    seconds, used = time.perf_counter() - start, time.process_time() - cpu
    with open("/proc/self/statm", "rb") as file:
        rss = int(file.read().split()[1]) * resource.getpagesize()
    return (status, value, code, message, trace, seconds, used, rss, denormals_work())
