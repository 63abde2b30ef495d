"""loop_tiling: two splits and a reorder in one step."""

from __future__ import annotations

import pytest
from rewrite_support import check_all, check_golden, check_no_orphans

STRATEGY = "loop_tiling"
SQUARE = "size N=8\nin A f32[N,N] B[N,N]\nout C f32[N,N]\nfor i:N j:N k:N C[i,j] += A[i,k]*B[k,j]\n"
SKEWED = "size N=6 M=6\nin X f32[N,M]\nout S f32[N,M]\nfor i:N j:M S[i,j] = X[i,j]\nfor i:N-1 j:M-1 S[i+1,j] = S[i,j+1]*X[i,j]\n"
PARALLEL = "size N=4 M=4\nin X f32[N,M]\nout Y f32[N,M]\npar i:N for j:M Y[i,j] = X[i,j]\n"
KNOWN = "size N=8 M=4 T0=2\nwhere N%T0==0, M%T0==0\nin X f32[N,M]\nout Y f32[N,M] Z f32[M]\nfor i:N j:M Y[i,j] = X[i,j]\nfor j0:M//T0 j1:T0 Z[j0*T0+j1] = 1\n"
TRIANGLE = "size N=4\nin X f32[N,N]\nout Y f32[N,N]\nfor i:N j:i+1 Y[i,j] = X[i,j]\n"
VECTOR = "size N=4 M=6\nin X f32[N,M]\nout Y f32[N,M]\nfor i:N vec j:M Y[i,j] = X[i,j]\n"
TWICE = "size N=6 M=6 K=2 T0=3 T1=3\nwhere N%T0==0, M%T1==0\nin X f32[N,M,K]\nout C f32[N,M]\nfor i0:N//T0 j0:M//T1 i1:T0 j1:T1 k:K C[i0*T0+i1,j0*T1+j1] += X[i0*T0+i1,j0*T1+j1,k]\n"
CASES = {
    "exact": (SQUARE, "loop_tiling@0:outer=2,inner=4,tail=exact"),
    "rows_and_reduction": (SQUARE, "loop_tiling@0.0:outer=4,inner=2,tail=exact"),
    "guard_both": ("matmul", "loop_tiling@0:outer=4,inner=4,tail=guard"),
    "guard_one": ("matmul", "loop_tiling@0:outer=2,inner=2,tail=guard"),
    "reductions": ("two_reductions", "loop_tiling@0.0:outer=2,inner=2,tail=exact"),
    "integers": ("integer", "loop_tiling@0.0:outer=2,inner=2,tail=exact"),
    "parallel": (PARALLEL, "loop_tiling@0:outer=2,inner=2,tail=exact"),
    "known_sizes": (KNOWN, "loop_tiling@0:outer=T0,inner=T0,tail=exact"),
    "refuse_skewed": (SKEWED, "loop_tiling@1:outer=2,inner=2,tail=guard"),
    "refuse_imperfect": ("imperfect", "loop_tiling@0:outer=2,inner=2,tail=exact"),
    "refuse_triangle": (TRIANGLE, "loop_tiling@0:outer=2,inner=2,tail=guard"),
    "refuse_not_divisible": ("matmul", "loop_tiling@0:outer=2,inner=2,tail=exact"),
    "refuse_too_big": ("matmul", "loop_tiling@0:outer=2,inner=8,tail=guard"),
    "refuse_vector": (VECTOR, "loop_tiling@0:outer=2,inner=2,tail=exact"),
    "refuse_second_guard": (TWICE, "loop_tiling@0.0.0:outer=2,inner=2,tail=guard"),
    "refuse_params": ("matmul", "loop_tiling@0:outer=2"),
}


@pytest.mark.parametrize("name", CASES)
def test_golden(name: str, update_goldens: bool) -> None:
    check_golden(STRATEGY, name, *CASES[name], update_goldens)


def test_no_orphan_goldens() -> None:
    check_no_orphans(STRATEGY, CASES)


def test_every_site_keeps_the_meaning() -> None:
    assert check_all(STRATEGY) >= 20
