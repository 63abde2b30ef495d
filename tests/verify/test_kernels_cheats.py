"""``steptp.verify`` against kernels that look right without being right: each ends as the verdict it deserves."""

from __future__ import annotations

import ctypes
import os
import signal
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import steptp
from steptp.ir import parse
from steptp.verify.verdict import Verdict, VerdictKind

REFERENCE = parse("in x f32[12,20] w[20,8]\nout Y[12,8]\ntmp y[12,8]\nfor i j k y[i,j]+=x[i,k]*w[k,j]\nfor i j Y[i,j]=y[i,j]*y[i,j]+1\n")
"""Rows times a matrix, squared and shifted."""


def right(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    y = x @ w
    return y * y + 1.0


def judged(candidate: Callable[..., Any], **how: Any) -> Verdict:
    verdict: Verdict = steptp.verify(REFERENCE, candidate, **how)  # type: ignore[operator]
    return verdict


def _caches_by_address() -> Callable[..., Any]:
    kept: dict[tuple[int, int], torch.Tensor] = {}

    def kernel(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return kept.setdefault((x.data_ptr(), w.data_ptr()), right(x, w)).clone()

    return kernel


def _first_answer_for_ever() -> Callable[..., Any]:
    kept: list[torch.Tensor] = []

    def kernel(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        if not kept:
            kept.append(right(x, w))
        return kept[0]

    return kernel


def _later(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    out = torch.zeros(12, 8)
    threading.Timer(0.005, lambda: out.copy_(right(x, w))).start()
    return out


def _in_place(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    y = right(x, w)
    x.mul_(2)
    return y


def _past_the_end(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    ctypes.memset(x.data_ptr() + x.numel() * 4, 0, 64)
    return right(x, w)


def _half_sum(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    y = (x.half() @ w.half()).float()
    return y * y + 1.0


def _last_row_missing(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    out = torch.empty(12, 8)
    out[:-1] = right(x[:-1], w)
    return out


class _Lazy(torch.Tensor):
    pass


BOGUS = {
    "constant": (lambda x, w: torch.ones(12, 8), VerdictKind.NOT_EQUAL),
    "an input": (lambda x, w: x[:, :8].clone(), VerdictKind.NOT_EQUAL),
    "fresh memory": (lambda x, w: torch.empty(12, 8), VerdictKind.NOT_EQUAL),
    "fresh array": (lambda x, w: np.empty((12, 8), np.float32), VerdictKind.NOT_EQUAL),
    "NaN as a wildcard": (lambda x, w: torch.full((12, 8), float("nan")), VerdictKind.NOT_EQUAL),
    "NaN in one place": (lambda x, w: right(x, w).index_put((torch.tensor([3]), torch.tensor([4])), torch.tensor(float("nan"))), VerdictKind.NOT_EQUAL),
    "a row left out": (_last_row_missing, VerdictKind.NOT_EQUAL),
    "cached by address": (_caches_by_address(), VerdictKind.NOT_EQUAL),
    "cached once": (_first_answer_for_ever(), VerdictKind.NOT_EQUAL),
    "work after the return": (_later, VerdictKind.NOT_EQUAL),
    "slightly scaled": (lambda x, w: right(x, w) * 1.00001, VerdictKind.NUMERICALLY_UNSAFE),
    "f16 inside": (_half_sum, VerdictKind.NUMERICALLY_UNSAFE),
    "bf16 inside": (lambda x, w: right(x.bfloat16(), w.bfloat16()).float(), VerdictKind.NOT_EQUAL),
    "clamped": (lambda x, w: right(x, w).clamp(max=1e6), VerdictKind.NUMERICALLY_UNSAFE),
    "f16 output": (lambda x, w: right(x, w).half(), VerdictKind.MALFORMED),
    "f64 output": (lambda x, w: right(x.double(), w.double()), VerdictKind.MALFORMED),
    "transposed shape": (lambda x, w: right(x, w).T, VerdictKind.MALFORMED),
    "flat shape": (lambda x, w: right(x, w).flatten(), VerdictKind.MALFORMED),
    "one element expanded": (lambda x, w: right(x, w)[:1, :1].expand(12, 8), VerdictKind.MALFORMED),
    "two outputs": (lambda x, w: (right(x, w), right(x, w)), VerdictKind.MALFORMED),
    "no output": (lambda x, w: None, VerdictKind.MALFORMED),
    "a number": (lambda x, w: 1.0, VerdictKind.MALFORMED),
    "a subclass": (lambda x, w: right(x, w).as_subclass(_Lazy), VerdictKind.MALFORMED),
    "a parameter": (lambda x, w: torch.nn.Parameter(right(x, w)), VerdictKind.MALFORMED),
    "a sparse tensor": (lambda x, w: right(x, w).to_sparse(), VerdictKind.MALFORMED),
    "on no device": (lambda x, w: torch.empty(12, 8, device="meta"), VerdictKind.MALFORMED),
    "changed input": (_in_place, VerdictKind.UNSAFE_MEMORY),
    "written past the end": (_past_the_end, VerdictKind.UNSAFE_MEMORY),
    "raises": (lambda x, w: 1 // 0, VerdictKind.CRASHED),
    "leaves": (lambda x, w: os._exit(0), VerdictKind.CRASHED),
    "leaves politely": (lambda x, w: exit(), VerdictKind.CRASHED),
    "segfault": (lambda x, w: ctypes.string_at(0), VerdictKind.CRASHED),
    "killed": (lambda x, w: os.kill(os.getpid(), signal.SIGKILL), VerdictKind.CRASHED),
}  # fmt: skip


@pytest.mark.parametrize("name", BOGUS)
def test_a_bogus_kernel_gets_its_verdict(name: str) -> None:
    candidate, kind = BOGUS[name]
    verdict = judged(candidate)
    assert verdict.kind is kind, f"{verdict.kind}: {verdict.message}"
    assert verdict.message


def test_the_right_one_passes_even_with_a_strided_result() -> None:
    assert judged(right).ok
    assert judged(lambda x, w: right(x, w).T.contiguous().T).ok


def test_a_crash_says_what_was_raised_and_printed() -> None:
    def kernel(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        raise ValueError("no such tile")

    assert "ValueError: no such tile" in judged(kernel).message
    assert "SIGSEGV" in judged(lambda x, w: ctypes.string_at(0)).message


def test_a_hang_is_a_timeout() -> None:
    start = time.monotonic()
    assert judged(lambda x, w: time.sleep(600), timeout=1.0).kind is VerdictKind.TIMEOUT
    assert time.monotonic() - start < 60


@pytest.mark.parametrize("hog", [lambda x, w: torch.ones(1 << 30), lambda x, w: [bytearray(1 << 26) for _ in range(1 << 10)]])
def test_a_memory_hog_is_oom(hog: Callable[..., Any]) -> None:
    assert judged(hog, memory=1 << 30).kind is VerdictKind.OOM


def test_patches_stay_in_the_child(monkeypatch: pytest.MonkeyPatch) -> None:
    untouched = torch.matmul, np.array_equal, time.sleep

    def kernel(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        torch.matmul = torch.Tensor.__matmul__ = torch.zeros_like  # type: ignore[assignment, method-assign]
        np.array_equal = lambda *a, **k: True  # type: ignore[assignment]
        np.abs = np.zeros_like  # type: ignore[assignment]
        time.sleep = lambda s: None  # type: ignore[assignment]
        torch.allclose = lambda *a, **k: True  # type: ignore[assignment]
        return torch.zeros(12, 8)

    assert judged(kernel).kind is VerdictKind.NOT_EQUAL
    assert (torch.matmul, np.array_equal, time.sleep) == untouched
    assert judged(right).ok


def test_children_of_the_candidate_are_ended_with_it() -> None:
    read, write = os.pipe()

    def kernel(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        if (pid := os.fork()) == 0:
            time.sleep(600)
            os._exit(0)
        os.write(write, pid.to_bytes(4, "little"))
        return torch.zeros(12, 8)

    assert judged(kernel).kind is VerdictKind.NOT_EQUAL
    pid = int.from_bytes(os.read(read, 4), "little")
    os.close(read)
    os.close(write)
    for _ in range(100):
        if not _alive(pid):
            return
        time.sleep(0.02)
    raise AssertionError(f"process {pid} still runs")


def _alive(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii") as stat:
            return stat.read().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_earlier_results_of_the_reference_are_not_in_the_childs_memory() -> None:
    """A kernel that searches the verifier's caches finds nothing there."""
    from steptp.verify import compiled, tier4_oracle
    from steptp.verify.tier4 import tier4

    def kernel(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        if tier4_oracle._CACHE._items or compiled._RUNS._items:
            os._exit(3)
        return right(x, w)

    assert tier4(REFERENCE, REFERENCE, REFERENCE, regimes=("normal",)).kind is VerdictKind.OK
    assert tier4_oracle._CACHE._items
    verdict = judged(kernel)
    assert verdict.ok, verdict.message
