"""reduction_factorization: partial accumulators."""

from __future__ import annotations

import pytest
from rewrite_support import check_all, check_golden, check_no_orphans, check_step, program

from steptp.rewrite import engine
from steptp.rewrite.base import Site

STRATEGY = "reduction_factorization"
SPLIT = "size N=4 K=8 L=3 T0=4\nwhere K%T0==0\nin A f32[N,K] B[K,L]\nout C f32[N,L]\nfor i:N j:L k0:K//T0 k1:T0 C[i,j] += A[i,k0*T0+k1]*B[k0*T0+k1,j]\n"
GUARDED = "size N=4 K=7 T0=4\nin A f32[N,K]\nout C f32[N]\nfor i:N k0:(K-1)//T0+1 k1:T0 if k0*T0+k1<K: C[i] += A[i,k0*T0+k1]\n"
OUTER = "size N=4 K=6 L=5\nin A f32[N,K,L]\nout C f32[N]\nfor k:K l:L i:N C[i] += A[i,k,l]\n"
TMPS = "size N=4 K=6 L=2\nin A f32[N,K,L]\nout Y f32[N]\npar i:N\n tmp s f32[]\n for k:K l:L s[] += A[i,k,l]\n Y[i] = s[]*2\n"
ROWS = "size N=4 K=3 L=2 R=6\nin A f32[N,K,L]\nout C f32[N]\nfor i:R if i<N: for k:K l:L C[i] += A[i,k,l]\n"
CARRY = "size N=4 K=3 L=2\nin A f32[N,K,L]\nout C f32[N]\nfor i:N C[i] = 1\nfor i:N k:K l:L carry C[i] += A[i,k,l]\n"
PARTIAL = "size N=4 K=6\nin A f32[N,K]\nout C f32[N] D[N,K]\nfor i:N k:K\n C[i] += A[i,k]\n D[i,k] = C[i]\n"
ITSELF = "size N=4 K=3 L=2\nin A f32[N,K,L]\nout C f32[N]\nfor i:N k:K l:L C[i] += A[i,k,l]*C[i]\n"
CASES = {
    "inner": ("two_reductions", "reduction_factorization@0.0.0"),
    "outer": ("two_reductions", "reduction_factorization@0.0"),
    "split_reduction": (SPLIT, "reduction_factorization@0.0.0.0"),
    "guarded_tail": (GUARDED, "reduction_factorization@0.0.0"),
    "reset_outermost": (OUTER, "reduction_factorization@0"),
    "inside_a_loop_with_tmps": (TMPS, "reduction_factorization@0.0.0"),
    "integers": ("integer", "reduction_factorization@0.0.0"),
    "maximum": ("integer", "reduction_factorization@1.0"),
    "condition_on_rows": (ROWS, "reduction_factorization@0.0.0.0"),
    "refuse_one_loop": ("matmul", "reduction_factorization@0.0.0"),
    "refuse_row_loop": ("matmul", "reduction_factorization@0"),
    "refuse_carry": (CARRY, "reduction_factorization@1.0.0"),
    "refuse_many": (PARTIAL, "reduction_factorization@0.0"),
    "refuse_reads_itself": (ITSELF, "reduction_factorization@0.0"),
}


@pytest.mark.parametrize("name", CASES)
def test_golden(name: str, update_goldens: bool) -> None:
    check_golden(STRATEGY, name, *CASES[name], update_goldens)


def test_no_orphan_goldens() -> None:
    check_no_orphans(STRATEGY, CASES)


def test_every_site_keeps_the_meaning() -> None:
    assert check_all(STRATEGY) >= 6


@pytest.mark.parametrize("name", [n for n in CASES if not n.startswith("refuse")])
def test_golden_cases_keep_the_meaning(name: str) -> None:
    subject = program(CASES[name][0])
    step = engine.applied_or_raise(subject, CASES[name][1])
    check_step(subject, Site.parse(CASES[name][1]), step)
