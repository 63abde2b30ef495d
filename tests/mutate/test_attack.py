"""The verifier under attack: mutants with a witness are refused, and a verifier that computes wrongly shows it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from steptp.interp import reals
from steptp.ir import Program, parse
from steptp.mutate.registry import Mutant, get, sample_mutants
from steptp.mutate.report import judge, mutate, summary
from steptp.mutate.witness import Witness, Witnesses
from steptp.rewrite import engine
from steptp.rewrite.base import Applied
from steptp.verify import tier3
from steptp.verify.ladder import verify_step

MATMUL = "in A f32[N=3,K=5] B[K,M=2]\nout Y[N,M]\ntmp C[N,M]\nfor i j k C[i,j]+=A[i,k]*B[k,j]\nfor i j Y[i,j]=max(C[i,j]-0.5,0)\n"
EQUAL = "in A f32[N=3,K=5] B[K,M=2]\nout Y[N,M]\ntmp C[N,M]\nfor i j k C[i,j]+=B[k,j]*A[i,k]\nfor i j Y[i,j]=-min(0.5-C[i,j],0)\n"


def test_mutants_of_a_program_are_killed() -> None:
    groups = mutate(parse(MATMUL), limit=60, seed=3, build_tiers=False)
    report = summary(judged for _, judged in groups)
    assert report.mutants >= 30
    over_reals = [j.name for _, judged in groups for j in judged if j.outcome == "survived" and j.witness is not None and j.witness.kind != "precision"]
    assert over_reals == []
    assert report.killed + len(report.survived) + len(report.undecided) == report.mutants


def test_mutants_of_a_step_face_the_proof_and_the_evaluation() -> None:
    parent = parse(MATMUL)
    applied = engine.apply(parent, next(s for s in engine.sites(parent) if s.strategy == "loop_split"))
    assert isinstance(applied, Applied)
    groups = mutate(parent, applied, limit=40, seed=1, build_tiers=False)
    assert all([j.claimed for j in judged] == [True, False] for _, judged in groups)
    tiers = {j.tier for _, judged in groups for j in judged if j.outcome == "killed"}
    assert {1, 2, 3} <= tiers
    assert not [j.name for _, judged in groups for j in judged if j.outcome == "survived" and j.witness is not None and j.witness.kind != "precision"]


def test_a_mutant_that_loses_digits_is_killed_by_compiled_code() -> None:
    parent = parse(MATMUL)
    mutant = next(get("accumulation_narrow").mutants(parent))
    witness = Witnesses(parent).of(mutant)
    assert witness is not None
    assert witness.kind == "precision"
    assert judge(parent, mutant, witness, build_tiers=False).outcome == "survived"
    assert judge(parent, mutant, witness).outcome == "killed"


def _outcomes(parent: Program, found: list[tuple[Mutant, Witness]]) -> int:
    tier3.clear_cache()
    return sum(judge(parent, m, w, build_tiers=False).outcome == "killed" for m, w in found)


def _accepted(parent: Program) -> bool:
    tier3.clear_cache()
    return verify_step(parent, parse(EQUAL), build_tiers=False).ok


@pytest.mark.parametrize(
    ("name", "broken", "moves"),
    [
        ("mul", lambda a, b: reals.exact_const(0.0), "kills"),
        ("maximum", lambda a, b: reals.exact_const(0.0), "both"),
        ("sub", lambda a, b: b, "rejections"),
    ],
)
def test_one_wrong_ball_operation_shows(monkeypatch: pytest.MonkeyPatch, name: str, broken: Callable[..., object], moves: str) -> None:
    """The evaluator of tier 3 with one operation broken: fewer mutants are killed, or an equal pair is rejected."""
    parent = parse(MATMUL)
    known = Witnesses(parent)
    chosen = ("constant_scaled", "constant_negated", "operand_repeated", "operator_changed", "rounded", "index_mirror", "operand_dropped", "truncated")
    found = [(m, w) for m in sample_mutants(parent, 24, 0, chosen) if (w := known.of(m)) is not None and w.kind == "value"]
    assert len(found) >= 12
    killed, accepted = _outcomes(parent, found), _accepted(parent)
    assert killed == len(found)
    assert accepted
    monkeypatch.setattr(reals, name, broken)
    if moves in ("kills", "both"):
        assert _outcomes(parent, found) < killed
    if moves in ("rejections", "both"):
        assert not _accepted(parent)
    tier3.clear_cache()
