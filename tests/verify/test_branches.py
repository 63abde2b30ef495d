"""Tier 3 reaches branches that drawn inputs do not."""

from __future__ import annotations

import pytest

from steptp.ir import parse
from steptp.verify.branches import branch_inputs, compares_values
from steptp.verify.tier3 import tier3
from steptp.verify.verdict import VerdictKind

HEAD = "in x f32[N=3,K=5]\nout Y[N,K]\n"
PLAIN = HEAD + "for i j Y[i,j]=2*x[i,j]\n"
SUMS = "in x f32[N=3,K=5]\nout Y[N]\ntmp s[N]\nfor i j s[i]+=x[i,j]\n"


def behind(condition: str) -> str:
    return HEAD + f"for i j Y[i,j]=select({condition},2*x[i,j]-1,2*x[i,j])\n"


@pytest.mark.parametrize(
    "condition",
    ["x[i,j]==0.75", "x[i,j]<-200", "x[i,j]>1000", "x[i,j]>1.25 and x[i,j]<1.2578125", "x[i,j]*x[i,j]>500", "exp(x[i,j])>1e9", "x[i,j]>30 and x[i,j]<30.0625"],
)
def test_a_fault_behind_a_rare_branch_is_found(condition: str) -> None:
    report = tier3(parse(PLAIN), parse(behind(condition)))
    assert report.kind is VerdictKind.NOT_EQUAL
    assert report.counterexample is not None


@pytest.mark.parametrize("condition", ["s[i]==0.75", "s[i]>300.5"])
def test_branches_on_intermediates_are_reached(condition: str) -> None:
    parent, child = SUMS + "for i Y[i]=s[i]\n", SUMS + f"for i Y[i]=select({condition},s[i]+1,s[i])\n"
    assert tier3(parse(parent), parse(child)).kind is VerdictKind.NOT_EQUAL


def test_a_tie_of_a_product_of_inputs_is_reached() -> None:
    head = "in A f32[N=3,K=2] B[K,M=2]\nout Y[N,M]\ntmp C[N,M]\nfor i j k C[i,j]+=A[i,k]*B[k,j]\n"
    parent, child = head + "for i j Y[i,j]=C[i,j]\n", head + "for i j Y[i,j]=select(C[i,j]==0.8125,C[i,j]-1,C[i,j])\n"
    assert tier3(parse(parent), parse(child)).kind is VerdictKind.NOT_EQUAL


def test_equal_programs_with_branches_stay_equal() -> None:
    parent = HEAD + "for i j Y[i,j]=select(x[i,j]>700,x[i,j],2*x[i,j])\n"
    child = HEAD + "for i j Y[i,j]=select(x[i,j]<=700,2*x[i,j],x[i,j])\n"
    report = tier3(parse(parent), parse(child))
    assert report.kind is VerdictKind.OK
    assert isinstance(count := report.evidence["branch_points"], int)
    assert count >= 3


def test_comparisons_that_draws_decide_both_ways_cost_nothing() -> None:
    program = parse(HEAD + "for i j Y[i,j]=max(x[i,j],0)\n")
    assert compares_values(program)
    assert list(branch_inputs((program, program), ("normal", "ties"), 0)) == []
    assert not compares_values(parse(PLAIN))


def test_points_depend_on_the_seed_alone() -> None:
    program = parse(behind("x[i,j]>1000"))
    first, again = (list(branch_inputs((program, program), ("normal",), 3)) for _ in range(2))
    assert first
    assert first == again
