"""Python callables that misbehave rather than compute something wrong: nothing of it reaches the caller, and nothing is left running."""

from __future__ import annotations

import contextlib
import ctypes
import os
import random
import signal
import sys
import threading
import time
from collections.abc import Callable
from multiprocessing import Pipe
from typing import Any, NoReturn

import numpy as np
import psutil
import pytest
import torch

import steptp
from steptp.ir import parse
from steptp.lower import Built, build
from steptp.verify.forked import Ended, Forked
from steptp.verify.verdict import Verdict, VerdictKind

REFERENCE = parse("in x f32[4,6]\nout Y[4]\nfor i k Y[i]+=x[i,k]*x[i,k]\n")
"""The squared length of every row."""


def right(x: torch.Tensor) -> torch.Tensor:
    return (x * x).sum(1)


def judged(candidate: Callable[..., Any], **how: Any) -> Verdict:
    verdict: Verdict = steptp.verify(REFERENCE, candidate, **how)  # type: ignore[operator]
    return verdict


def _state() -> dict[str, object]:
    """What a candidate may find worth changing in the process of its caller."""
    return {
        "dtype": torch.get_default_dtype(), "threads": torch.get_num_threads(), "seed": torch.initial_seed(), "draws": torch.get_rng_state().tolist(),
        "grad": torch.is_grad_enabled(), "deterministic": torch.are_deterministic_algorithms_enabled(),
        "subnormals": bool(torch.tensor(1e-40) * 2 != 0), "matmul": torch.matmul, "sum": torch.Tensor.sum, "precision": torch.get_float32_matmul_precision(),
        "numpy": str(np.random.get_state()), "errors": np.geterr(), "random": random.getstate(), "allclose": np.allclose,
        "folder": os.getcwd(), "environment": os.environ.get("STEPTP_TEST"), "recursion": sys.getrecursionlimit(), "umask": _umask(),
        "streams": (sys.stdin, sys.stdout, sys.stderr), "modules": "json" in sys.modules,
        "affinity": os.sched_getaffinity(0), "priority": os.nice(0),
    }  # fmt: skip


def _umask() -> int:
    mask = os.umask(0o022)
    os.umask(mask)
    return mask


def _turns_everything(x: torch.Tensor) -> torch.Tensor:
    result = right(x)
    torch.set_default_dtype(torch.float64)
    torch.set_num_threads(1 + torch.get_num_threads())
    torch.manual_seed(7)
    np.random.seed(7)
    random.seed(7)
    torch.set_flush_denormal(True)
    torch.use_deterministic_algorithms(True)
    torch.set_grad_enabled(not torch.is_grad_enabled())
    torch.set_float32_matmul_precision("medium")
    torch.matmul = torch.Tensor.sum = np.allclose = _raises  # type: ignore[method-assign]
    np.seterr(all="ignore")
    os.chdir("/")
    os.environ["STEPTP_TEST"] = "1"
    os.umask(0)
    os.nice(3)
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    sys.setrecursionlimit(5000)
    sys.stdout = sys.stderr = None
    sys.modules.pop("json", None)
    return result


def _raises(*_: object, **__: object) -> NoReturn:
    raise AssertionError("called what a candidate has put there")


def test_global_state_stays_in_the_child() -> None:
    before = _state()
    assert "what a candidate has put there" in judged(_turns_everything).message  # at its second call
    assert {k: v for k, v in _state().items() if v != before[k]} == {}


def test_wrapping_the_reference_is_allowed_and_judging_draws_nothing_from_the_callers_generators() -> None:
    before = _state()
    built: list[Built] = []

    def kernel(x: np.ndarray) -> np.ndarray:
        if not built:
            built.append(build(REFERENCE))
        return built[0].run({"x": x})["Y"]

    assert judged(kernel, arrays="numpy").ok
    assert {k: v for k, v in _state().items() if v != before[k]} == {}
    assert not built


def test_a_flood_of_prints_reaches_nobody(capfd: pytest.CaptureFixture[str]) -> None:
    def kernel(x: torch.Tensor) -> torch.Tensor:
        print("out" * (10 << 20), flush=True)
        print("err" * (10 << 20), file=sys.stderr, flush=True)
        sys.__stdout__.write("more" * 1000)  # type: ignore[union-attr]
        os.write(1, b"raw" * 1000)
        os._exit(5)

    verdict = judged(kernel)
    assert verdict.kind is VerdictKind.CRASHED
    assert 0 < len(str(verdict.reports[-1].evidence["log"])) <= 1000
    assert capfd.readouterr() == ("", "")


def test_a_right_kernel_may_print() -> None:
    assert judged(lambda x: (print("x" * 100_000), right(x))[1]).ok


def test_prints_without_end_do_not_fill_the_disk() -> None:
    def kernel(x: torch.Tensor) -> torch.Tensor:
        while True:
            os.write(1, b"x" * (32 << 20))

    verdict = judged(kernel)
    assert verdict.kind is VerdictKind.CRASHED
    assert "File too large" in verdict.message


def test_reading_a_line_finds_nothing() -> None:
    assert "EOFError" in judged(lambda x: input()).message


def _deaf(x: torch.Tensor) -> NoReturn:
    libc = ctypes.CDLL(None)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        libc.signal(int(number), ctypes.c_void_p(1))  # SIG_IGN, from whatever thread
    signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 32))
    while True:
        time.sleep(10)


def test_a_hang_that_ignores_signals_is_a_timeout() -> None:
    start = time.monotonic()
    assert judged(_deaf, timeout=0.5).kind is VerdictKind.TIMEOUT
    assert time.monotonic() - start < 30


def test_a_hang_that_never_lets_the_interpreter_go_is_a_timeout() -> None:
    def kernel(x: torch.Tensor) -> None:
        ctypes.PyDLL(None).sleep(600)

    assert judged(kernel, timeout=0.5).kind is VerdictKind.TIMEOUT


class _Dumb(Exception):
    def __str__(self) -> str:
        raise _Dumb


def _raising(error: BaseException) -> Callable[..., Any]:
    def kernel(x: torch.Tensor) -> NoReturn:
        raise error

    return kernel


def _signalling(whom: Callable[[], int], number: int) -> Callable[..., Any]:
    def kernel(x: torch.Tensor) -> None:
        os.kill(whom(), number)
        time.sleep(60)

    return kernel


def _closing(x: torch.Tensor) -> torch.Tensor:
    os.closerange(3, 4096)
    return right(x)


def _endless(x: torch.Tensor) -> Any:
    return _endless(x)


def _deep(x: torch.Tensor) -> Any:
    sys.setrecursionlimit(1 << 30)
    return sorted([0], key=lambda _: _deep(x))


def _inside_itself(x: torch.Tensor) -> list[Any]:
    result: list[Any] = [right(x)]
    result.append(result)
    return result


RAISING = {
    "ten megabytes": (_raising(ValueError("long" * (10 << 18))), VerdictKind.CRASHED, "ValueError: long"),
    "a name of ten megabytes": (_raising(type("Long" * (10 << 18), (Exception,), {})()), VerdictKind.CRASHED, "Long"),
    "a type of ten megabytes": (lambda x: type("Long" * (10 << 18), (), {})(), VerdictKind.MALFORMED, "Long"),
    "a verdict of its own": (_raising(Ended(VerdictKind.OK, "fine" * (10 << 18))), VerdictKind.MALFORMED, "outputs"),
    "half a surrogate pair": (_raising(ValueError("\ud800")), VerdictKind.CRASHED, "ValueError: ?"),
    "nothing printable": (_raising(_Dumb()), VerdictKind.CRASHED, "_Dumb"),
    "KeyboardInterrupt": (_raising(KeyboardInterrupt()), VerdictKind.CRASHED, "KeyboardInterrupt"),
    "SystemExit": (_raising(SystemExit(0)), VerdictKind.CRASHED, "SystemExit"),
    "GeneratorExit": (_raising(GeneratorExit()), VerdictKind.CRASHED, "GeneratorExit"),
    "interrupts itself": (_signalling(os.getpid, signal.SIGINT), VerdictKind.CRASHED, "SIGINT"),
    "recursion": (_endless, VerdictKind.CRASHED, "RecursionError"),
    "recursion through C": (_deep, VerdictKind.CRASHED, "SIGSEGV"),
    "a result inside itself": (_inside_itself, VerdictKind.MALFORMED, "contains itself"),
    "closes all files": (_closing, VerdictKind.CRASHED, ""),
}  # fmt: skip


@pytest.mark.parametrize("name", RAISING)
def test_whatever_is_raised_is_a_short_verdict(name: str) -> None:
    candidate, kind, says = RAISING[name]
    verdict = judged(candidate)
    assert verdict.kind is kind, f"{verdict.kind}: {verdict.message}"
    assert says in verdict.message
    assert len(verdict.message) <= 2000
    verdict.message.encode()


def test_a_keyboard_interrupt_of_the_caller_ends_the_child() -> None:
    """Ctrl-C while a kernel hangs: the caller gets it, and no process is left."""
    read, write = os.pipe()

    def kernel(x: torch.Tensor) -> None:
        os.write(write, os.getpid().to_bytes(4, "little"))
        time.sleep(600)

    def interrupt() -> None:
        os.read(read, 4)
        os.kill(os.getpid(), signal.SIGINT)

    timer = threading.Thread(target=interrupt)
    children = _children()
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        judged(kernel)
    timer.join()
    os.close(read)
    os.close(write)
    assert _children() == children


def _children() -> set[int]:
    return {p.pid for p in psutil.Process().children(recursive=True)}


def _leaves(session: bool, twice: bool, dies: bool) -> tuple[Callable[..., Any], Callable[[], list[int]]]:
    """A kernel that leaves a process behind, and what reads the numbers of those that it has left."""
    read, write = os.pipe()

    def kernel(x: torch.Tensor) -> torch.Tensor:
        if os.fork() == 0:
            if session:
                os.setsid()
            if twice and os.fork():
                os._exit(0)
            signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 32))
            os.write(write, os.getpid().to_bytes(4, "little"))
            time.sleep(600)
        time.sleep(0.1)
        if dies:
            os._exit(1)
        return torch.zeros(4)

    def left() -> list[int]:
        os.close(write)
        data = os.read(read, 4096)
        os.close(read)
        return [int.from_bytes(data[at : at + 4], "little") for at in range(0, len(data), 4)]

    return kernel, left


@pytest.mark.parametrize("dies", [False, True], ids=["returns", "dies"])
@pytest.mark.parametrize(("session", "twice"), [(False, False), (True, False), (True, True)], ids=["same session", "setsid", "daemon"])
def test_no_process_is_left_after_the_verdict(session: bool, twice: bool, dies: bool) -> None:
    kernel, left = _leaves(session, twice, dies)
    start = time.monotonic()
    verdict = judged(kernel)
    assert verdict.kind is (VerdictKind.CRASHED if dies else VerdictKind.NOT_EQUAL), verdict.message
    assert time.monotonic() - start < 30  # a process that still holds the pipe does not hold up the verdict
    pids = left()
    assert pids
    assert not any(psutil.pid_exists(pid) for pid in pids)


def test_both_sides_of_a_fork_may_return() -> None:
    """The copy of the child answers nothing; what the child returns is right."""
    assert judged(lambda x: (os.fork(), right(x))[1]).ok


def test_killing_the_keeper_is_no_way_out() -> None:
    children = _children()
    assert judged(_signalling(os.getppid, signal.SIGKILL)).kind is VerdictKind.CRASHED
    assert judged(_signalling(os.getppid, signal.SIGSTOP), timeout=0.5).kind is VerdictKind.TIMEOUT
    assert _children() == children


def _written_to_all_sockets(data: bytes) -> Callable[..., Any]:
    def kernel(x: torch.Tensor) -> torch.Tensor:
        for fd in os.listdir("/proc/self/fd"):
            with contextlib.suppress(OSError):
                if os.readlink(f"/proc/self/fd/{fd}").startswith("socket:"):
                    os.write(int(fd), data)
        return right(x)

    return kernel


def _framed(*frames: bytes) -> bytes:
    ours, theirs = Pipe()
    ours.send_bytes(len(frames).to_bytes(4, "little"))
    for frame in frames:
        ours.send_bytes(frame)
    ours.close()
    return os.read(theirs.fileno(), 1 << 20)


FORGED = {
    "junk": b"junk" * 100,
    "a frame of eight exabytes": b"\xff\xff\xff\xff\x7f" + b"\xff" * 7,
    "four billion frames": _framed()[:4] + b"\xff" * 4,
    "no frame": _framed(),
    "no JSON": _framed(b"\xff{"),
    "JSON of another kind": _framed(b"[1]"),
    "deep JSON": _framed(b"[" * 50_000),
    "no such verdict": _framed(b'{"kind": "splendid", "message": "", "damage": ""}'),
    "a result too short": _framed(b'{"kind": "ok", "message": "", "damage": ""}', b"\0"),
    "all zero": _framed(b'{"kind": "ok", "message": "", "damage": ""}', bytes(16)),
}


@pytest.mark.parametrize("name", FORGED)
def test_a_forged_answer_is_not_believed(name: str) -> None:
    verdict = judged(_written_to_all_sockets(FORGED[name]), timeout=5.0)
    assert verdict.kind in (VerdictKind.CRASHED, VerdictKind.MALFORMED, VerdictKind.NOT_EQUAL), f"{verdict.kind}: {verdict.message}"


def test_an_answer_without_end_does_not_fill_the_memory_of_the_caller() -> None:
    with Forked(lambda _: [bytes(1 << 20)] * 64, timeout=30, memory=1 << 30) as process, pytest.raises(Ended):
        process.ask([], most=2 << 20)


def _one_behind() -> Callable[..., Any]:
    kept = [torch.zeros(4)]

    def kernel(x: torch.Tensor) -> torch.Tensor:
        kept.append(right(x))
        return kept[-2]

    return kernel


def _keyed(key: Callable[[torch.Tensor], object]) -> Callable[..., Any]:
    kept: dict[object, torch.Tensor] = {}
    return lambda x: kept.setdefault(key(x), right(x))


def _of_the_first_call(x: torch.Tensor) -> torch.Tensor:
    """Kept where no closure is looked at."""
    return torch.__dict__.setdefault("_kept", right(x))  # type: ignore[no-any-return]


SURVIVING = {
    "the last call's": _one_behind(),
    "by shape": _keyed(lambda x: x.shape),
    "by address": _keyed(lambda x: x.data_ptr()),
    "by one element": _keyed(lambda x: x[0, 0].item()),
    "in a module": _of_the_first_call,
}


@pytest.mark.parametrize("name", SURVIVING)
def test_results_that_survive_from_an_earlier_call(name: str) -> None:
    verdict = judged(SURVIVING[name])
    assert verdict.kind in (VerdictKind.NOT_EQUAL, VerdictKind.NUMERICALLY_UNSAFE), f"{verdict.kind}: {verdict.message}"


def test_one_buffer_for_all_results_is_allowed() -> None:
    out = torch.empty(4)
    assert judged(lambda x: out.copy_(right(x))).ok
