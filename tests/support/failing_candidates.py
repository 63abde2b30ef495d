"""Candidates that end badly, for isolated workers: as LEIR texts that only tier 4 sees, and as timers, which run after a verified step."""

from __future__ import annotations

import ctypes
import os
import time
from collections.abc import Mapping
from typing import Any

import numpy as np

from steptp.ir import Program
from steptp.verify.isolation import StepTask

PARENT = "size N=8\nin A f32[N]\nout C f32[N]\nfor i:N C[i] = A[i]*2.0+1.0\n"
TEXTS = {
    "segfault": PARENT.replace("C[i] =", "C[i+1000000000000] ="),
    "hang": PARENT.replace("N=8", "N=8 H=1099511627776") + "for h:H\n  for i:N C[i] = C[i]*0.5+A[i]\n",
    "hog": "size N=8 H=274877906944\nin A f32[N]\nout C f32[N]\ntmp t f32[H]\nfor h:H t[h] = 1.0\nfor i:N C[i] = A[i]*2.0+t[i]\n",
}
"""Each beside :data:`PARENT`: a store 4 TB away, 2**43 multiplications in sequence, a temporary of 1 TiB."""


def leaves(parent: Program, child: Program, inputs: Mapping[str, np.ndarray], seed: int) -> None:
    os._exit(3)


def raises(parent: Program, child: Program, inputs: Mapping[str, np.ndarray], seed: int) -> None:
    raise ArithmeticError("no such tile" * 1000)


def dereferences(parent: Program, child: Program, inputs: Mapping[str, np.ndarray], seed: int) -> None:
    ctypes.string_at(0)


def allocates(parent: Program, child: Program, inputs: Mapping[str, np.ndarray], seed: int) -> None:
    kept = [np.ones(1 << 27, np.uint8) for _ in range(1 << 10)]
    raise AssertionError(len(kept))


def sleeps(parent: Program, child: Program, inputs: Mapping[str, np.ndarray], seed: int) -> None:
    time.sleep(600)


def forks(parent: Program, child: Program, inputs: Mapping[str, np.ndarray], seed: int) -> None:
    """Leaves a grandchild behind and crashes."""
    if os.fork() == 0:
        time.sleep(600)
        os._exit(0)
    os.abort()


def task(name: str) -> StepTask[Any]:
    """The candidate of this name: a text of :data:`TEXTS` or a timer of this module."""
    if name in TEXTS:
        return StepTask(PARENT, TEXTS[name], PARENT, tiers=(4,))
    return StepTask(PARENT, PARENT.replace("A[i]*2.0+1.0", "1.0+2.0*A[i]"), PARENT, tiers=(4,), timer=globals()[name])
