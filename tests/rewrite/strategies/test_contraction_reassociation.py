"""contraction_reassociation: which operands of a sum of products are contracted first."""

from __future__ import annotations

import pytest
from rewrite_support import all_applied, check_golden, check_no_orphans, check_step, program

from steptp.ir import Program
from steptp.rewrite import engine
from steptp.rewrite.base import Applied

STRATEGY = "contraction_reassociation"
CHAIN = "in A f32[N=3,K=4] B[K,M=5] C[M,L=2]\nout Y[N,L]\ntmp d[N,M]\nfor i j k d[i,j]+=A[i,k]*B[k,j]\nfor i j k Y[i,j]+=d[i,k]*C[k,j]\n"
BILINEAR = "in x f32[N=3,K=4] A[K,M=5] y[N,M]\nout Y[N]\nfor i j k Y[i]+=x[i,j]*A[j,k]*y[i,k]\n"
PUSH_OUT = "in a f32[N=3] X[N,K=4]\nout Y[N]\nfor i j Y[i]+=a[i]*X[i,j]\n"
OUTER = "in x f32[R=2,N=3,K=4] A[K,M=5] y[N,M]\nout Y[R,N]\npar r\n for i j k Y[r,i]+=x[r,i,j]*A[j,k]*y[i,k]\n"
GAIN = "in x f32[N=3,K=4] g[K] w[M=5,K]\nout Y[N,M]\nfor i j k Y[i,j]+=x[i,k]*g[k]*w[j,k]\n"
USED_TWICE = CHAIN.replace("d[i,k]*C[k,j]", "d[i,k]*C[k,j]*d[i,0]")
OVERWRITTEN = "in A f32[N=3,K=4] C[K,L=2]\nout Y[N,L]\ntmp b[K,K] d[N,K]\nfor i j b[i,j]=A[0,j]\nfor i j k d[i,j]+=A[i,k]*b[k,j]\nfor i j b[i,j]=0\nfor i j k Y[i,j]+=d[i,k]*C[k,j]\n"
OUTPUT = "in A f32[N=3,K=4] B[K,M=5] C[M,L=2]\nout Y[N,L] d[N,M]\nfor i j k d[i,j]+=A[i,k]*B[k,j]\nfor i j k Y[i,j]+=d[i,k]*C[k,j]\n"
INFINITE = "in x f32[N=3,K=4] A[K,M=5] y[N,M]\nout Y[N]\nfor i j k Y[i]+=x[i,j]*A[j,k]*(1/y[i,k])\n"
TRIANGLE = "in x f32[N=3] A[N,N] y[N]\nout Y[]\nfor i j:i+1 Y[]+=x[i]*A[i,j]*y[j]\n"
GUARDED = "in x f32[N=3] A[N,M=4] y[M]\nout Y[]\nfor i j if j>=i: Y[]+=x[i]*A[i,j]*y[j]\n"
MAXIMUM = "in x f32[N=3] A[N,M=4] y[M]\nout Y[]\nfor i j Y[] max=x[i]*A[i,j]*y[j]\n"
CARRY = "in x f32[N=3] A[N,M=4] y[M]\nout Y[]\nY[]=1\nfor i j carry Y[]+=x[i]*A[i,j]*y[j]\n"
CASES = {
    "chain": (CHAIN, "contraction_reassociation@1:first=1.2,through=d"),
    "three_operands": (BILINEAR, "contraction_reassociation@0:first=0.1"),
    "the_other_pair": (BILINEAR, "contraction_reassociation@0:first=1.2"),
    "factor_out_of_the_sum": (PUSH_OUT, "contraction_reassociation@0:first=1"),
    "inside_a_loop": (OUTER, "contraction_reassociation@0.0:first=1.2"),
    "product_without_a_sum": (GAIN, "contraction_reassociation@0:first=1.2"),
    "refuse_present_grouping": (CHAIN, "contraction_reassociation@1:first=0.1,through=d"),
    "refuse_no_gain": (BILINEAR, "contraction_reassociation@0:first=0.2"),
    "refuse_one_operand_needed_elsewhere": (PUSH_OUT, "contraction_reassociation@0:first=0"),
    "refuse_all_operands": (BILINEAR, "contraction_reassociation@0:first=0.1.2"),
    "refuse_read_twice": (USED_TWICE, "contraction_reassociation@1:first=1.2,through=d"),
    "refuse_output": (OUTPUT, "contraction_reassociation@1:first=1.2,through=d"),
    "refuse_overwritten": (OVERWRITTEN, "contraction_reassociation@3:first=1.2,through=d"),
    "refuse_not_a_factor": (CHAIN, "contraction_reassociation@1:first=1.2,through=A"),
    "refuse_infinite": (INFINITE, "contraction_reassociation@0:first=0.1"),
    "refuse_varying_extent": (TRIANGLE, "contraction_reassociation@0:first=1.2"),
    "refuse_guard": (GUARDED, "contraction_reassociation@0:first=1.2"),
    "refuse_maximum": (MAXIMUM, "contraction_reassociation@0:first=1.2"),
    "refuse_carry": (CARRY, "contraction_reassociation@1:first=1.2"),
    "refuse_bad_site": (CHAIN, "contraction_reassociation@1:through=d"),
}


@pytest.mark.parametrize("name", CASES)
def test_golden(name: str, update_goldens: bool) -> None:
    check_golden(STRATEGY, name, *CASES[name], update_goldens)


def test_no_orphan_goldens() -> None:
    check_no_orphans(STRATEGY, CASES)


@pytest.mark.parametrize(("text", "sites"), [(CHAIN, 1), (BILINEAR, 4), (GAIN, 3), (PUSH_OUT, 2), (OUTER, 6), (INFINITE, 0), (USED_TWICE, 5), (OVERWRITTEN, 0)])
def test_every_site_keeps_the_meaning(text: str, sites: int) -> None:
    subject = program(text)
    found = list(all_applied(STRATEGY, subject))
    assert len(found) == sites
    for site, step in found:
        check_step(subject, site, step)


def test_a_regrouped_chain_goes_back() -> None:
    step = _step(CHAIN, "contraction_reassociation@1:first=1.2,through=d")
    assert [s.id for s in step.inverse] == ["contraction_reassociation@1:first=0.1,through=Y_c"]


def test_only_the_cheapest_groupings_of_many_are_listed() -> None:
    text = "in a f32[I=2,J=3] b[J,K=4] c[K,L=5] d[L,M=6] e[M]\nout Y[I]\nfor i j k l m Y[i]+=a[i,j]*b[j,k]*c[k,l]*d[l,m]*e[m]\n"
    top = [s.id for s in engine.sites(program(text), [STRATEGY], limit=None).sites if s.path == (0,)]
    assert len(top) == 4
    numbers = ["0.1", "1.2", "0.1.2", "2.3", "1.2.3.4", "2.3.4", "3.4"]
    others = [site for first in numbers if (site := f"contraction_reassociation@0:first={first}") not in top]
    assert others
    assert max(_cost(text, site) for site in top) <= min(_cost(text, site) for site in others)


def _cost(text: str, site: str) -> int:
    (found,) = (dict(f.values)["after"] for f in _step(text, site).facts if f.kind == "contraction_cost")
    assert isinstance(found, int)
    return found


def _step(text: str, site: str) -> Applied:
    subject: Program = program(text)
    return engine.applied_or_raise(subject, site)
