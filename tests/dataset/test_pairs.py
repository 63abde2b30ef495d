"""Pairs are judged with the compiled tiers in a worker."""

from __future__ import annotations

from steptp.dataset.pairs import verify_isolated
from steptp.ir import parse
from steptp.rewrite import engine
from steptp.rewrite.base import Applied
from steptp.verify.verdict import VerdictKind

PARENT = "in A f32[N=12,K=8] B[K,L=6]\nout Y[N,L]\nfor i j k Y[i,j]+=A[i,k]*B[k,j]\n"


def test_a_step_passes_every_tier() -> None:
    parent = parse(PARENT)
    applied = engine.apply(parent, "loop_reorder@0.0.0:to=0")
    assert isinstance(applied, Applied)
    verdict = verify_isolated(parent, applied.program, applied=applied)
    assert verdict.ok, verdict.message
    assert [r.tier for r in verdict.reports] == [0, 1, 2, 4, 5]


def test_a_wrong_rewrite_is_rejected_before_anything_is_compiled() -> None:
    verdict = verify_isolated(parse(PARENT), parse(PARENT.replace("A[i,k]*B[k,j]", "A[i,k]-B[k,j]")))
    assert verdict.kind is VerdictKind.NOT_EQUAL
    assert verdict.tier == 3
    assert verdict.counterexample is not None


def test_a_hanging_or_greedy_candidate_is_a_verdict() -> None:
    parent = parse(PARENT)
    assert verify_isolated(parent, parent, timeout_s=0.05).kind is VerdictKind.TIMEOUT
