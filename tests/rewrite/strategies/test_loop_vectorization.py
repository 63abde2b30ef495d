"""loop_vectorization: innermost loops that carry no dependence."""

from __future__ import annotations

import pytest
from rewrite_support import check_all, check_golden, check_no_orphans

STRATEGY = "loop_vectorization"
STRIDED = "size N=4 M=6\nin X f32[M,N]\nout Y f32[N,M]\nfor i:N j:M Y[i,j] = X[j,i]\n"
BROADCAST = "size N=4 K=6 L=8\nin A f32[N,K] B[K,L]\nout C f32[N,L]\nfor i:N k:K j:L C[i,j] += A[i,k]*B[k,j]\n"
LONG = "size N=128\nin X f32[N]\nout Y f32[N]\nfor i:N Y[i] = X[i]\n"
TRIANGLE = "size N=4\nin X f32[N,N]\nout Y f32[N,N]\nfor i:N j:i+1 Y[i,j] = X[i,j]\n"
SCAN = "size N=8\nin X f32[N]\nout S f32[N]\nS[0] = X[0]\nfor i:N-1 S[i+1] = S[i]+X[i+1]\n"
VECTOR = "size N=4\nin X f32[N]\nout Y f32[N]\nvec i:N Y[i] = X[i]\n"
CASES = {
    "contiguous": ("softmax", "loop_vectorization@2.0"),
    "strided": (STRIDED, "loop_vectorization@0.0"),
    "guarded": ("guarded", "loop_vectorization@0.0"),
    "broadcast": (BROADCAST, "loop_vectorization@0.0.0"),
    "refuse_reduction": ("matmul", "loop_vectorization@0.0.0"),
    "refuse_outer": ("matmul", "loop_vectorization@0"),
    "refuse_long": (LONG, "loop_vectorization@0"),
    "refuse_varies": (TRIANGLE, "loop_vectorization@0.0"),
    "refuse_recurrence": (SCAN, "loop_vectorization@1"),
    "refuse_again": (VECTOR, "loop_vectorization@0"),
}


@pytest.mark.parametrize("name", CASES)
def test_golden(name: str, update_goldens: bool) -> None:
    check_golden(STRATEGY, name, *CASES[name], update_goldens)


def test_no_orphan_goldens() -> None:
    check_no_orphans(STRATEGY, CASES)


def test_every_site_keeps_the_meaning() -> None:
    assert check_all(STRATEGY) >= 8
