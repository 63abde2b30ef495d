"""Hangs, hunger, crashes and monstrous texts: every one ends within a stated bound, as a verdict, and leaves nothing behind."""

from __future__ import annotations

import time
from collections.abc import Iterator

import failing_candidates
import psutil
import pytest

from steptp.ir import parse
from steptp.measure import Limits, Pool
from steptp.verify.isolation import PRELOAD, check_and_measure, settle
from steptp.verify.ladder import verify_step
from steptp.verify.verdict import VerdictKind

PARENT = failing_candidates.PARENT
VALUE = "A[i]*2.0+1.0"
SIZE = "N=8"
TEXTS = {
    "10,000 parentheses": PARENT.replace(VALUE, "(" * 10_000 + VALUE + ")" * 10_000),
    "10,000 minus signs": PARENT.replace(VALUE, "-" * 10_000 + VALUE),
    "10,000 calls": PARENT.replace(VALUE, "exp(" * 10_000 + VALUE + ")" * 10_000),
    "5,000 look-ups": PARENT.replace(VALUE, "A[" * 5_000 + "i" + "]" * 5_000),
    "5,000 terms": PARENT.replace(VALUE, VALUE + "+A[i]" * 5_000),
    "10,000 loops in a line": "in A f32[N=8]\nout C[N]\nfor i " + " ".join(f"v{k}:1" for k in range(10_000)) + " C[i]=A[i]\n",
    "900 indented loops": "in A f32[N=8]\nout C[N]\n" + "".join(" " * k + f"for v{k}:1\n" for k in range(900)) + " " * 900 + "for i C[i]=A[i]\n",
    "a long literal": PARENT.replace(VALUE, "A[i]+" + "9" * 100_000),
    "a large exponent": PARENT.replace(VALUE, "A[i]+1e999999999"),
    "a long size": PARENT.replace(SIZE, "N=8 M=" + "*".join(["N"] * 5_000)),
    "a size beyond i64": PARENT.replace(SIZE, "N=8 M=N*4611686018427387904"),
    "a literal size beyond i64": PARENT.replace(SIZE, "N=8 M=99999999999999999999999"),
    "squares of squares": PARENT.replace(SIZE, "N=8 M0=N*N " + " ".join(f"M{k}=M{k - 1}*M{k - 1}" for k in range(1, 40))),
    "50 MB of comment": PARENT + "#" + "x" * 50_000_000,
    "50 MB of statements": PARENT * 1_000_000,
    "zero bytes": PARENT + "\0" * 1000,
}


@pytest.mark.parametrize("name", TEXTS)
def test_monstrous_texts_are_malformed_at_once(name: str) -> None:
    start = time.process_time()
    verdict = verify_step(parse(PARENT), TEXTS[name], build_tiers=False)
    assert (verdict.kind, verdict.tier) == (VerdictKind.MALFORMED, 0)
    assert 0 < len(verdict.message) < 500
    assert time.process_time() - start < 10


def test_loops_without_end_cost_the_evaluators_nothing() -> None:
    """Tiers 0 to 3 count their work: they do not run 2**43 operations, nor allocate a terabyte."""
    for name in ("hang", "hog"):
        start = time.process_time()
        verdict = verify_step(parse(PARENT), failing_candidates.TEXTS[name], build_tiers=False)
        assert verdict.kind is not VerdictKind.CRASHED, verdict.message
        assert time.process_time() - start < 30


@pytest.fixture(scope="module")
def pool() -> Iterator[Pool]:
    with Pool(1, limits=Limits(timeout=60, memory=2 << 30), preload=PRELOAD) as running:
        yield running


EXPECTED = {
    "segfault": (VerdictKind.CRASHED,),
    "leaves": (VerdictKind.CRASHED,),
    "raises": (VerdictKind.CRASHED,),
    "dereferences": (VerdictKind.CRASHED,),
    "forks": (VerdictKind.CRASHED,),
    "allocates": (VerdictKind.OOM,),
    "hog": (VerdictKind.OOM,),
    "hang": (VerdictKind.TIMEOUT,),
    "sleeps": (VerdictKind.TIMEOUT,),
}


@pytest.mark.parametrize("name", EXPECTED)
def test_a_candidate_costs_one_worker_at_most(pool: Pool, name: str) -> None:
    task = failing_candidates.task(name)
    result = settle(task, pool.submit(check_and_measure, task, timeout=3.0 if VerdictKind.TIMEOUT in EXPECTED[name] else 60.0).result())
    assert result is not None
    assert result.verdict.kind in EXPECTED[name], result.verdict.message
    assert not result.verdict.ok


def test_the_pool_still_works_and_holds_no_strangers(pool: Pool) -> None:
    """Runs after the candidates above; on its own it makes its own crash first."""
    task = failing_candidates.task("forks")
    pool.submit(check_and_measure, task).result()
    good = failing_candidates.StepTask(PARENT, PARENT, PARENT, tiers=(4,))
    result = settle(good, pool.submit(check_and_measure, good).result())
    assert result is not None
    assert result.verdict.ok, result.verdict.message
    assert pool.host.pid is not None
    deadline = time.monotonic() + 10
    while len(left := psutil.Process(pool.host.pid).children(recursive=True)) > 1 and time.monotonic() < deadline:
        time.sleep(0.05)
    assert len(left) <= 1, left
