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
    [
        "x[i,j]==0.75",
        "x[i,j]<-200",
        "x[i,j]>1000",
        "x[i,j]>1.25 and x[i,j]<1.2578125",
        "x[i,j]*x[i,j]>500",
        "exp(x[i,j])>1e9",
        "x[i,j]>30 and x[i,j]<30.0625",
        "x[i,j]*x[i,j]==2.25*169",
        "floor(3*x[i,j])==170",
        "exp(exp(x[i,j]))>1e30",
    ],
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


def test_branches_in_a_nest_that_the_smallest_sizes_leave_empty_are_reached() -> None:
    head = "in x f32[N=2] y[M=1]\nout Y[N,M]\n"
    rest = "for i:N-N//2 j Y[i+N//2,j]=x[i+N//2]*y[j]\n"
    parent = head + "for i:N//2 j Y[i,j]=x[i]*y[j]\n" + rest
    child = head + "for i:N//2 j Y[i,j]=select(x[i]>1.25 and x[i]<1.2578125,x[i]*y[j]+1,x[i]*y[j])\n" + rest
    assert tier3(parse(parent), parse(child)).kind is VerdictKind.NOT_EQUAL


def test_what_a_running_maximum_starts_from_is_tried_from_below() -> None:
    head = "in x f32[N=3,K=4] w[N]\nout Y[N]\n"
    start, loop = "for i Y[i]={}\n", "for i j carry Y[i] max=x[i,j]*w[i]-3\n"
    parent = parse(head + start.format("-inf") + loop)
    assert tier3(parent, parse(head + start.format("-1000") + loop)).kind is VerdictKind.NOT_EQUAL
    assert tier3(parent, parse(head + start.format("x[i,0]*w[i]-3") + loop)).kind is VerdictKind.OK


@pytest.mark.parametrize("condition", ["T[i]==500", "T[i]>500 and T[i]<502", "U[i]+1>300", "not (U[i]!=-77)"])
def test_branches_on_looked_up_integers_are_reached(condition: str) -> None:
    head = "in x f32[N=3] T i64[N] 0..1000 U i64[N]\nout Y f32[N]\n"
    parent, child = head + "for i Y[i]=x[i]\n", head + f"for i Y[i]=select({condition},x[i]+1,x[i])\n"
    assert tier3(parse(parent), parse(child)).kind is VerdictKind.NOT_EQUAL
    assert tier3(parse(child), parse(child)).kind is VerdictKind.OK


@pytest.mark.parametrize(
    "condition", ["max(s[i],0)>77", "min(max(x[i,0],-5),50)>=50", "s[i]>x[i,0]*9 and s[i]<x[i,0]*9+0.001", "select(s[i]>40,select(x[i,1]>30,f32(1),0),0)==1"]
)
def test_nested_clamped_and_computed_comparisons_are_reached(condition: str) -> None:
    parent, child = SUMS + "for i Y[i]=s[i]\n", SUMS + f"for i Y[i]=select({condition},s[i]+1,s[i])\n"
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


HIDDEN = "in x f32[B=2,T=3,C=4]\nout Y[B]\ntmp s[B,T] pm[B,T+1] sp sq[B,T]\nfor i j k:C//2 sp[i,j]+=x[i,j,k]\nfor i j k:C-C//2 sq[i,j]+=x[i,j,k+C//2]\n"


def hidden(value: str) -> str:
    """Sums in two halves, and the largest of them."""
    return HIDDEN + f"for i j s[i,j]=sp[i,j]+{value}\nfor i\n pm[i,0]=-inf\n for j:T pm[i,j+1]=max(pm[i,j],s[i,j])\n Y[i]=pm[i,T]\n"


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        (hidden("sq[i,j]"), hidden("select(sq[i,j]==0.75,sq[i,j]-1,sq[i,j])")),
        (HEAD + "for i k:N j Y[i,j] max=x[k,j]\n", HEAD + "for i j\n Y[i,j]=-10\n for k:N carry Y[i,j] max=x[k,j]\n"),
    ],
)
def test_what_one_instance_does_is_not_hidden_by_a_maximum_over_all(right: str, wrong: str) -> None:
    report = tier3(parse(right), parse(wrong))
    assert report.kind is VerdictKind.NOT_EQUAL
    assert report.counterexample is not None
    assert report.counterexample.regime == "branches"
