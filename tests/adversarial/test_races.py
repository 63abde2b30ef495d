"""Races: proven by tier 1, and noticed in compiled code under several thread counts without its help."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest

from steptp.ir import parse
from steptp.lower import build
from steptp.lower.build import Built
from steptp.verify import races
from steptp.verify.compiled import POISON, GuardedRun, guarded_run
from steptp.verify.races import race
from steptp.verify.tier1 import tier1
from steptp.verify.tier4 import tier4
from steptp.verify.verdict import VerdictKind

HEAD = "size N=16 M=8\nin A f32[N,M]\nout C f32[M] D[N]\n"
SUM = "for n:N m:M C[m] += A[n,m]\n"
ROWS = "for n:N D[n] = A[n,0]\n"
RACES = {
    "one accumulator": "par n:N for m:M C[m] += A[n,m]\n" + ROWS,
    "one element overwritten": SUM + "par n:N D[n-n] = A[n,0]\n",
    "vector lanes": "for m:M vec n:N C[m] += A[n,m]\n" + ROWS,
    "threads of a block": "tx n:N for m:M C[m] += A[n,m]\n" + ROWS,
    "a scan": SUM + "for n:1 D[n] = A[n,0]\npar n:N-1 D[n+1] = D[n]+A[n+1,0]\n",
    "a shared temporary": "tmp t f32[1]\n" + SUM + "par n:N\n  t[0] = A[n,0]\n  D[n] = t[0]\n",
}


@pytest.mark.parametrize("name", RACES)
def test_tier_1_proves_the_race(name: str) -> None:
    assert tier1(parse(HEAD + RACES[name])).kind in (VerdictKind.ILLEGAL, VerdictKind.UNSAFE_MEMORY)


def test_threads_of_one_loop_overtake_each_other() -> None:
    """Long enough for two threads to run at once, or at least to be interrupted in the middle; some tries are allowed to miss it."""
    text = "size N=40000 K=64 M=64\nin A f32[M]\nout C f32[M]\npar n:N for k:K m:M C[m] += A[m]*f32(k+1)\n"
    built = build(parse(text))
    if built.threads < 2:
        pytest.skip("one processor")
    inputs = {"A": np.linspace(0.1, 1.7, 64, dtype=np.float32)}
    known = guarded_run(built, inputs)
    assert any(race(built, inputs, known) for _ in range(4))


def test_no_race_no_difference() -> None:
    built = build(parse("size N=64 M=32\nin A f32[N,M]\nout C f32[N]\npar n:N for m:M C[n] += A[n,m]\n"))
    inputs = {"A": np.random.default_rng(0).standard_normal((64, 32), np.float32)}
    assert race(built, inputs, guarded_run(built, inputs)) == ""


def test_tier_4_reports_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """What tier 4 makes of a run that differs: an output of the run with one thread is changed on the way."""
    program = parse("size N=64\nin A f32[N]\nout C f32[N]\npar n:N C[n] = A[n]*2.0\n")

    def other(built: Built, inputs: Mapping[str, np.ndarray], poison: int = POISON) -> GuardedRun:
        run = guarded_run(built, inputs, poison)
        if built.threads == 1:
            run.outputs["C"][3] += 1
        return run

    if build(program).threads < 2:
        pytest.skip("one processor")
    assert tier4(program, program, program, regimes=("normal",)).kind is VerdictKind.OK
    monkeypatch.setattr(races, "guarded_run", other)
    report = tier4(program, program, program, regimes=("normal",))
    assert report.kind is VerdictKind.ILLEGAL
    assert "C under 1 thread" in report.message
