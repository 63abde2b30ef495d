"""Real workers: moves carried out, verdicts, and candidates that crash, hang or eat memory."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pytest

from steptp.analysis.host import HostInfo
from steptp.ir import Program, parse, print_program
from steptp.measure.timing import PairedTiming
from steptp.measure.workers import Limits as WorkerLimits
from steptp.policy.scripted import Scripted
from steptp.rewrite.trace import replay
from steptp.search.algorithms import algorithm
from steptp.search.budget import Limits
from steptp.search.evaluator import Judge, OutOfTime
from steptp.search.finish import chain_json, close, trace_of
from steptp.search.moves import Action, Edit, Rewrite
from steptp.search.session import Search, run_search

START = print_program(parse("size N=24 K=16 L=20\nin A f32[N,K] B[K,L]\nout C f32[N,L]\nfor i:N j:L k:K C[i,j] += A[i,k]*B[k,j]\n"))
CRASH, HANG, EAT = "loop_parallelization@0", "loop_split@0:factor=2,tail=exact", "loop_split@0:factor=4,tail=exact"
FINE = "loop_reorder@0.0:to=2"


def misbehave(parent: Program, child: Program, inputs: Mapping[str, np.ndarray], seed: int) -> PairedTiming:
    """A timer under which some programs do what compiled code may do."""
    text = print_program(child)
    if text.startswith("par") or "\npar" in text:
        os.kill(os.getpid(), signal.SIGSEGV)
    if "=2\n" in text:
        time.sleep(60)
    if "=4\n" in text:
        raise MemoryError
    return PairedTiming((2e3,), (1e3,), (1,), 2.0, 1.9, 2.1, "faster", 1, (1, 1), "warm", 0.05, 0.99, 0, "rounds", 0.0)


@pytest.fixture(scope="module")
def judge() -> Iterator[Judge]:
    with Judge(START, threads=1, limits=WorkerLimits(timeout=20, memory=2 << 30), timer=misbehave) as running:
        yield running


def test_moves_become_programs_or_reasons(judge: Judge) -> None:
    lines = START.splitlines()
    moves = [
        Action(FINE), Action("loop_reorder@7:to=1"), Action("nothing@0"), Edit((f"{len(lines)}| for i k j C[i,j]+=A[i,k]*B[k,j]",)), Edit(("9-",)),
        Rewrite("for for"), Rewrite(START),
    ]  # fmt: skip
    made = judge.make(START, moves, None)
    assert [m.refused for m in made] == ["", "refused", "refused", "", "refused", "malformed", ""]
    assert made[0].hash == made[3].hash
    assert made[0].instances is not None
    assert "lines 1 to" in made[4].message


def test_bad_candidates_do_not_end_a_search(judge: Judge) -> None:
    judge.limits = WorkerLimits(timeout=4, memory=2 << 30)
    judge.close()
    wrong = Rewrite(START.replace("A[i,k]*B[k,j]", "A[i,k]*B[k,j]+A[i,0]"))
    policy = Scripted({"": [CRASH, HANG, EAT, wrong, FINE]})
    search = Search(parse(START), policy, judge, limits=Limits(samples=5, seconds=300.0), host=HostInfo.detect())
    found = run_search(algorithm("bfs", k=5), search)
    assert [a.kind for a in found.tree.start.attempts] == ["crashed", "timeout", "oom", "not_equal", "ok"]
    assert found.spent["measurements"] == 1
    assert found.best.speedup == 2.0
    answer = close(found, judge)
    assert answer.node is found.best
    assert answer.judged is not None
    assert [r["tier"] for r in answer.judged["evidence"]] == [0, 1, 3, 4]
    assert answer.speedup == 2.0
    trace = trace_of(parse(START), answer.node)
    assert trace is not None
    assert print_program(replay(trace).last) == answer.node.text
    steps: list[dict[str, Any]] = chain_json(answer.node, HostInfo.detect(), "scripted")
    assert steps[0]["judged"]["kind"] == "ok"
    assert "Legal:" in steps[0]["reason"]


def test_time_runs_out_under_a_busy_worker(judge: Judge) -> None:
    made = judge.make(START, [Action(HANG)], None)
    began = time.monotonic()
    with pytest.raises(OutOfTime):
        judge.judge(START, made, 0.5, lambda n, judged: None)
    assert time.monotonic() - began < 10
    assert judge.make(START, [Action(FINE)], None)[0].refused == ""
