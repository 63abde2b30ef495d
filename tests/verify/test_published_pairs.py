"""Pairs in the published notation: what holds, what does not and why, and the parts that the judgement is made of."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from steptp.ir import parse
from steptp.ir.published import read_pair
from steptp.verify.copies import without_copies
from steptp.verify.middle import middle
from steptp.verify.pairing import guess_instances
from steptp.verify.published import Judgement, judge_pair
from steptp.verify.tier3 import tier3
from steptp.verify.verdict import Counterexample, VerdictKind
from steptp.verify.witness import ALL_ZERO, array_witness, confirmed, probe

ROOT = Path(__file__).parent.parent.parent
MATMUL = "B^{4}_{tx=0}L^{6}_{a=0}L^{5}_{c=0}[D^{f16,g}_{tx,a}=D^{f16,g}_{tx,a}+A^{f16,g}_{tx,c}*C^{f16,g}_{c,a};];"
RELU = MATMUL + "B^{4}_{tx=0}L^{6}_{a=0}[Y^{f16,g}_{tx,a}=max(D^{f16,g}_{tx,a},0);];"
CONV = "B^{4}_{tx=0}L^{8}_{a=0}L^{3}_{c=0}[Y^{f16,g}_{tx,a}=Y^{f16,g}_{tx,a}+X^{f16,g}_{tx,a+c}*W^{f16,g}_{c};];"
MEAN = "B^{4}_{tx=0}L^{5}_{a=0}[S^{f16,g}_{tx}=S^{f16,g}_{tx}+X^{f16,g}_{tx,a};];B^{4}_{tx=0}L^{5}_{a=0}[Y^{f16,g}_{tx,a}=X^{f16,g}_{tx,a}-S^{f16,g}_{tx}/5;];"
COPY = "B^{4}_{tx=0}L^{8}_{a=0}[Y^{f16,g}_{tx,a}=X^{f16,g}_{tx,a};];"


def judged(reference: str, candidate: str) -> Judgement:
    return judge_pair(read_pair(reference, candidate))


PROVEN = {
    "the same": (RELU, RELU),
    "split": (MATMUL, MATMUL.replace("B^{4}_{tx=0}", "L^{2}_{g=0}B^{2}_{tx=0}").replace("{tx,", "{g*2+tx,")),
    "reordered": (MATMUL, MATMUL.replace("B^{4}_{tx=0}L^{6}_{a=0}L^{5}_{c=0}", "L^{5}_{c=0}L^{6}_{a=0}B^{4}_{tx=0}")),
    "bound": (MATMUL, MATMUL.replace("L^{6}_{a=0}", "B^{6}_{bxa=0}").replace(",a}", ",bxa}")),
    "parallel": (MATMUL, MATMUL.replace("L^{6}", "P^{6}")),
    "unrolled": (MATMUL, MATMUL.replace("L^{5}", "U^{5}")),
    "another layout": (RELU, RELU.replace("D^{f16,g}_{tx,a}", "D^{f16,g}_{a,tx}")),
    "cached": (CONV, "B^{4}_{tx=0}L^{8}_{a=0}L^{3}_{c=0}[K^{f16,l}_{tx,a+c}=X^{f16,g}_{tx,a+c};];" + CONV.replace("X^{f16,g}", "K^{f16,l}")),
    "cached transposed": (CONV, "B^{4}_{tx=0}L^{10}_{a=0}[K^{f16,g}_{a,tx}=X^{f16,g}_{tx,a};];" + CONV.replace("X^{f16,g}_{tx,a+c}", "K^{f16,g}_{a+c,tx}")),
    "inlined": (MEAN, MEAN.replace("-S^{f16,g}_{tx}/5", "-T^{f16,g}_{tx}").replace(";];B", ";];B^{4}_{tx=0}[T^{f16,g}_{tx}=S^{f16,g}_{tx}/5;];B", 1)),
    "indices in a table": (CONV, "L^{8}_{a=0}L^{3}_{c=0}[E^{i64,g}_{a,c}=a+c;];" + CONV.replace("a+c}", "E^{i64,g}_{a,c}}")),
    "guarded table": (
        "L^{6}_{a=0}[Y^{f16,g}_{a}=if_then_else(1<=a,X^{f16,g}_{a-1},0);];",
        "L^{6}_{a=0}[E^{i64,g}_{a}=a-1;];L^{6}_{a=0}[Y^{f16,g}_{a}=if_then_else(1<=a,X^{f16,g}_{E^{i64,g}_{a}},0);];",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", PROVEN)
def test_schedules_are_proven(name: str) -> None:
    found = judged(*PROVEN[name])
    assert (found.verdict.kind, found.verdict.tier) == (VerdictKind.OK, 2), found.verdict.message


EQUAL = {
    "distributed": (
        "L^{8}_{a=0}[Y^{f16,g}_{a}=(X^{f16,g}_{a}+3)/6;];",
        "L^{8}_{a=0}[Y^{f16,g}_{a}=X^{f16,g}_{a}/6+1/2;];",
    ),
    "added and taken away": (COPY, COPY.replace("=X^{f16,g}_{tx,a};", "=X^{f16,g}_{tx,a}+if_then_else(a-1<0,0,X^{f16,g}_{tx,a-1})-if_then_else(a-1<0,0,X^{f16,g}_{tx,a-1});")),
    "halves of a reduction": (
        MATMUL,
        MATMUL.replace("L^{5}", "L^{3}").replace("D^", "F^")
        + MATMUL.replace("L^{5}", "L^{2}").replace("D^", "G^").replace("_{tx,c}", "_{tx,c+3}").replace("_{c,a}", "_{c+3,a}")
        + "B^{4}_{tx=0}L^{6}_{a=0}[D^{f16,g}_{tx,a}=D^{f16,g}_{tx,a}+(F^{f16,g}_{tx,a}+G^{f16,g}_{tx,a});];",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", EQUAL)
def test_algebra_is_equal_over_the_reals(name: str) -> None:
    found = judged(*EQUAL[name])
    assert (found.verdict.kind, found.verdict.tier) == (VerdictKind.OK, 3), found.verdict.message


DIFFERENT = {
    "a loop too many around the sum of the halves": (
        "L^{4}_{a=0}L^{3}_{c=0}L^{2}_{d=0}[Y^{f16,g}_{a}=Y^{f16,g}_{a}+X^{f16,g}_{a,c,d};];",
        "L^{4}_{a=0}L^{3}_{c=0}L^{2}_{d=0}[M^{f16,g}_{a}=M^{f16,g}_{a}+X^{f16,g}_{a,c,d};];L^{4}_{a=0}L^{3}_{c=0}[Y^{f16,g}_{a}=Y^{f16,g}_{a}+M^{f16,g}_{a};];",
    ),
    "a divisor that may be 0": (COPY, COPY.replace("=X^{f16,g}_{tx,a};", "=X^{f16,g}_{tx,a}/if_then_else(a-1<0,1,X^{f16,g}_{tx,a-1})*if_then_else(a-1<0,1,X^{f16,g}_{tx,a-1});")),
    "a cut that is wrong at one element": (
        "L^{500000}_{a=0}[Y^{f16,g}_{a}=X^{f16,g}_{a}+1;];",
        "L^{123400}_{a=0}[Y^{f16,g}_{a}=X^{f16,g}_{a}+1;];L^{376600}_{a=0}[Y^{f16,g}_{a+123400}=if_then_else(a<1,X^{f16,g}_{a+123400},X^{f16,g}_{a+123400}+1);];",
    ),
    "an index off by one": (CONV, CONV.replace("W^{f16,g}_{c}", "W^{f16,g}_{2-c}")),
    "a bias that counts as a reduction": (
        MATMUL + "B^{4}_{tx=0}L^{6}_{a=0}[D^{f16,g}_{tx,a}=D^{f16,g}_{tx,a}+E^{f16,g}_{a};];",
        MATMUL + "B^{4}_{tx=0}L^{6}_{a=0}L^{2}_{c=0}[D^{f16,g}_{tx,a}=D^{f16,g}_{tx,a}+E^{f16,g}_{a};];",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", DIFFERENT)
def test_another_function_comes_with_a_confirmed_counterexample(name: str) -> None:
    reference, candidate = DIFFERENT[name]
    pair = read_pair(reference, candidate)
    found = judge_pair(pair)
    assert found.verdict.kind is VerdictKind.NOT_EQUAL, found.verdict.message
    witness = found.counterexample
    assert witness is not None
    assert witness.expected != witness.actual
    assert judge_pair(read_pair(reference, reference)).verdict.ok


def test_a_race_is_apart_from_the_function() -> None:
    shared = "B^{4}_{tx=0}L^{6}_{a=0}[K^{f16,g}_{a}=W^{f16,g}_{a};];B^{4}_{tx=0}L^{6}_{a=0}[Y^{f16,g}_{tx,a}=X^{f16,g}_{tx,a}*K^{f16,g}_{a};];"
    found = judged("B^{4}_{tx=0}L^{6}_{a=0}[Y^{f16,g}_{tx,a}=X^{f16,g}_{tx,a}*W^{f16,g}_{a};];", shared)
    assert (found.verdict.kind, found.function) == (VerdictKind.ILLEGAL, VerdictKind.OK)
    assert "every iteration writes the same" in found.races[0]
    racing = MATMUL.replace("L^{5}", "P^{5}")
    assert judged(MATMUL, racing).verdict.kind is VerdictKind.ILLEGAL
    both = judged(racing, racing)
    assert both.verdict.ok
    assert len(both.shared_races) == 1


def test_reading_what_nothing_wrote_is_unsafe() -> None:
    found = judged(
        COPY,
        "B^{4}_{tx=0}L^{8}_{a=0}[K^{f16,g}_{tx,a}=X^{f16,g}_{tx,a};];B^{4}_{tx=0}L^{9}_{a=0}[M^{f16,g}_{tx,a}=K^{f16,g}_{tx,a};];" + COPY.replace("X^", "M^"),
    )
    assert (found.verdict.kind, found.function) == (VerdictKind.UNSAFE_MEMORY, VerdictKind.OK)


def test_an_unsafe_reference_decides_nothing() -> None:
    torn = "L^{4}_{a=0}[K^{f16,g}_{a}=X^{f16,g}_{a};];L^{5}_{a=0}[Y^{f16,g}_{a}=K^{f16,g}_{a};];"
    found = judged(torn, torn)
    assert found.verdict.kind is VerdictKind.UNKNOWN
    assert found.verdict.message.startswith("the reference")


def test_tiers_that_are_left_out_decide_nothing() -> None:
    assert judge_pair(read_pair(MATMUL, MATMUL), tiers=(0, 1)).verdict.kind is VerdictKind.UNKNOWN


def test_copies_are_read_through_only_where_they_stay_copies() -> None:
    text = "in X f32[N=6]\nout Y[N]\ntmp K T[N]\nfor i T[i]=X[i]*2\nfor i:N K[i]=T[N-1-i]\nfor i Y[i]=K[i]"
    program = parse(text)
    assert without_copies(program) is program  # mirrored: not a shift
    shifted = parse("in X f32[7]\nout Y[6]\ntmp K[6]\nfor i:6 K[i]=X[i+1]\nfor i:6 Y[i]=K[i]")
    assert without_copies(shifted) == parse("in X f32[7]\nout Y[6]\nfor i:6 Y[i]=X[i+1]")
    changed = parse("in X f32[N=6]\nout Y[N]\ntmp K T[N]\nfor i T[i]=X[i]\nfor i K[i]=T[i]\nfor i T[i]=X[i]+1\nfor i Y[i]=K[i]+T[i]")
    kept = without_copies(changed)
    assert any(b.name == "K" for b in kept.tmps)


def test_the_middle_is_cut_out_and_terms_of_a_sum_compared() -> None:
    parent = parse("in X f32[4,4]\nout Y[4]\ntmp T[4,4] S[4]\nfor i:4 j:4 T[i,j]=exp(X[i,j])\nfor i:4 j:4 S[i]+=T[i,j]*2\nfor i:4 Y[i]=S[i]+1")
    child = parse("in X f32[4,4]\nout Y[4]\ntmp T[4,4] S[4]\nfor i:4 j:4 T[i,j]=exp(X[i,j])\nfor i:4 j:4 S[i]+=T[i,j]+T[i,j]\nfor i:4 Y[i]=S[i]+1")
    part = middle(parent, child)
    assert part is not None
    assert part[0] == parse("in T f32[4,4]\nout S[4,4]\nfor i:4 j:4 S[i,j]=T[i,j]*2")
    assert tier3(*part).kind is VerdictKind.OK
    assert middle(parent, parent.with_(body=parent.body[::-1])) is None


def test_a_guess_need_not_be_right() -> None:
    parent = parse("in X f32[4]\nout Y[4]\nfor i:4 Y[i]=X[i]")
    assert guess_instances(parent, parse("in X f32[4]\nout Z[4]\nfor i:4 Z[i]=X[i]")) is None
    guess = guess_instances(parent, parse("in X f32[4]\nout Y[4]\nfor a:2 b:2 Y[a*2+b]=X[a*2+b]"))
    assert guess is not None
    assert [name for name, _ in guess.entries[0].iters] == ["i"]


def test_witnesses_are_confirmed_in_floats() -> None:
    a = parse("in X f32[2000,2000]\nout Y[2000,2000]\nfor i:2000 j:2000 Y[i,j]=X[i,j]*2")
    b = parse("in X f32[2000,2000]\nout Y[2000,2000]\nfor i:2000 j:2000 Y[i,j]=X[i,j]*X[i,j]")
    found = probe(a, b, ("positive",)).counterexample
    assert found is not None
    said = confirmed(a, b, found)
    assert said is not None
    assert float(said.expected) != float(said.actual)
    assert confirmed(a, a, found) is None
    assert probe(a, a, ("positive", ALL_ZERO)) == probe(a, a, ("positive", ALL_ZERO))
    assert array_witness(a, b, ("normal",), 0, 1000) == (0, None)
    count, witness = array_witness(a, b, (ALL_ZERO, "normal"), 0, 1 << 23)
    assert count == 8_000_000
    assert isinstance(witness, Counterexample)
    assert witness.regime == "normal"


def _bench(folder: Path, *args: str) -> dict[str, int]:
    done = subprocess.run([sys.executable, str(ROOT / "benchmarks" / "published.py"), str(folder), *args], capture_output=True, text=True, check=True)
    last: dict[str, int] = json.loads(done.stdout.splitlines()[-1])
    return last


def test_the_benchmark_counts_by_strategy(tmp_path: Path) -> None:
    bad = "L^{4}_{a=0}[Y^{f16,s}_{a}=X^{f16,g}_{a};];"
    steps = [("split", PROVEN["split"][1]), ("wrong", CONV), ("odd", bad)]
    rows = [{"workload": "w", "program": MATMUL, "steps": [{"strategy": s, "program": p} for s, p in steps]}]
    (tmp_path / "programs.jsonl").write_text("\n".join(map(json.dumps, rows)))
    last = _bench(tmp_path, "--table", str(tmp_path / "t.md"))
    assert (last["programs"], last["converted"], last["steps"], last["hold"], last["refused"]) == (4, 2, 3, 1, 2)
    table = (tmp_path / "t.md").read_text()
    assert "| split | 1 | 1 | 1 |" in table
    assert "| wrong | 1 |  |  |" in table or "| wrong | 1 | 0 | 0 |" in table


@pytest.mark.slow
@pytest.mark.skipif("STEPTP_PUBLISHED" not in os.environ, reason="STEPTP_PUBLISHED names the folder with programs.jsonl")
def test_every_published_step_is_judged() -> None:
    last = _bench(Path(os.environ["STEPTP_PUBLISHED"]))
    assert last["programs"] >= 300
    assert last["programs"] - last["converted"] == last["refused"]
    assert last["hold"] + last["race"] + last["unsafe"] + last["not_equal"] + last["undecided"] + last["refused"] == last["steps"]
    assert last["undecided"] <= 6
