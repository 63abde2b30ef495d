"""Tier 5: schedules keep every bit without FMA contraction; reassociated sums do not."""

from __future__ import annotations

import pytest

from steptp.ir import parse
from steptp.rewrite.base import Exactness
from steptp.verify.ladder import verify_step
from steptp.verify.tier5 import tier5
from steptp.verify.verdict import VerdictKind

MM = "size N=24 K=64 L=40 T=16\nin A {t}[N,K] B[K,L]\nout C {t}[N,L]\n"
MATMUL = MM + "for i:N j:L k:K C[i,j] += A[i,k]*B[k,j]\n"
MLP = "size N=70\nin A f32[N] B[N] C[N]\nout Y f32[N]\n"
SAME = {
    "vectorised": MM + "par i:N for k:K vec j:L C[i,j] += A[i,k]*B[k,j]\n",
    "tiled": MM + "par i:N for jo:(L+T-1)//T for k:K vec j:T if jo*T+j<L: C[i,jo*T+j] += A[i,k]*B[k,jo*T+j]\n",
    "register tile": MM + "for i:N\n  tmp R {t}[L] local\n  for k:K vec j:L R[j] += A[i,k]*B[k,j]\n  vec j:L C[i,j] = R[j]\n",
}


@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16"])
@pytest.mark.parametrize("name", SAME)
def test_schedules_keep_every_bit(name: str, dtype: str) -> None:
    report = tier5(parse(MATMUL.format(t=dtype)), parse(SAME[name].format(t=dtype)), seed=2)
    assert report.kind is VerdictKind.OK, report
    assert report.evidence["build"] == "no-fma"


def test_inlined_products_and_functions_keep_every_bit() -> None:
    parent = parse(MLP + "tmp P f32[N] E[N]\nfor i:N P[i] = A[i]*B[i]\nfor i:N E[i] = exp(C[i])\nfor i:N Y[i] = P[i]+tanh(E[i])*E[i]\n")
    child = parse(MLP + "vec i:N Y[i] = A[i]*B[i]+tanh(exp(C[i]))*exp(C[i])\n")
    assert tier5(parent, child).kind is VerdictKind.OK


def test_other_orders_and_other_operations_differ() -> None:
    parent = parse(MATMUL.format(t="f32"))
    backwards = tier5(parent, parse(MM.format(t="f32") + "for i:N j:L k:K C[i,j] += A[i,K-1-k]*B[K-1-k,j]\n"))
    assert backwards.kind is VerdictKind.NOT_EQUAL
    assert backwards.counterexample is not None
    assert backwards.counterexample.regime == "normal"
    assert backwards.counterexample.expected != backwards.counterexample.actual
    halves = parse(MLP + "for i:N Y[i] = A[i]/B[i]\n"), parse(MLP + "for i:N Y[i] = A[i]*(1/B[i])\n")
    assert tier5(*halves).kind is VerdictKind.NOT_EQUAL


def test_nan_payloads_do_not_matter_but_signed_zeros_do() -> None:
    nan = parse(MLP + "for i:N Y[i] = A[i]-A[i]\n"), parse(MLP + "for i:N Y[i] = select(A[i]-A[i]==0,0,-(A[i]-A[i]))\n")
    assert tier5(*nan).kind is VerdictKind.OK
    zero = parse(MLP + "for i:N Y[i] = A[i]*0\n"), parse(MLP + "for i:N Y[i] = abs(A[i])*0\n")
    assert tier5(*zero).kind is VerdictKind.NOT_EQUAL


def test_runs_on_other_inputs_of_the_same_regime_and_seed_are_not_mixed_up() -> None:
    """Extreme inputs follow the sums of the program that they are drawn for: of the root in tier 4, of the parent here."""
    head = "in a f32[N=8,K=8] b[K,M=8]\nout Y[N,M]\n"
    root = parse(head + "for i j k Y[i,j]+=a[i,k]*b[k,j]\n")
    parent = parse(head + "tmp t[N,M,K]\nfor i j k t[i,j,k]=a[i,k]*b[k,j]\nfor i j k Y[i,j]+=t[i,j,k]\n")
    child = parse(head + "tmp t[N,M,K]\nfor i j k t[i,j,k]=a[i,k]*b[k,j]\nfor i j k Y[i,j]+=a[i,k]*b[k,j]\n")
    for _ in range(2):
        assert verify_step(root, parent, seed=3, tiers=(4, 5), exactness=Exactness.BITWISE).ok
        assert verify_step(parent, child, root=root, seed=3, tiers=(4, 5), exactness=Exactness.BITWISE).ok
