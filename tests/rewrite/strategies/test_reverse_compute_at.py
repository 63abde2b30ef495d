"""reverse_compute_at: consumers under the loops of their producers, once these have finished what is read."""

from __future__ import annotations

import pytest
from moving_support import GEMM, after, check_everything
from rewrite_support import check_all, check_golden, check_no_orphans, program

from steptp.rewrite import engine

STRATEGY = "reverse_compute_at"
TILED = after(GEMM, "loop_tiling@0:outer=2,inner=4,tail=exact")
BOTH = after(GEMM, "loop_tiling@0:outer=2,inner=4,tail=exact", "loop_tiling@1:outer=4,inner=3,tail=guard")
TAIL = after(GEMM, "loop_tiling@0:outer=4,inner=4,tail=guard")
KTILED = after(TILED, "loop_split@0.0.0.0.0:factor=2,tail=guard", "loop_reorder@0.0.0.0.0:to=2")
CHAIN = "in a f32[N=6,K=3] b[K,M=8] c[M,L=4]\nout Y[N,L]\ntmp d[N,M]\nfor i j k d[i,j]+=a[i,k]*b[k,j]\nfor i l j Y[i,l]+=d[i,j]*c[j,l]\n"
MAXIMUM = "in X f32[N=4,M=6]\nout m[N]\ntmp t[N,M]\nfor i j t[i,j]=X[i,j]*2\nfor i j m[i] max=t[i,j]\n"
PARALLEL = "in X f32[N=4,M=6]\nout m[M]\ntmp t[N,M]\npar i for j t[i,j]=X[i,j]*2\nfor i j m[j] max=t[i,j]\n"
PARALLEL_ROWS = PARALLEL.replace("out m[M]", "out m[N]").replace("m[j]", "m[i]")
STENCIL = "in X f32[N=8]\nout Y[M=N-2]\ntmp t[N]\nfor i t[i]=X[i]*2\nfor i:M Y[i]=t[i]+t[i+2]\n"
SHIFTED = "in X f32[N=8]\nout Y[M=N-2]\ntmp t[N]\nfor i t[i]=X[i]*2\nfor i Y[i]=t[i+2]\n"
BETWEEN = "in X f32[N=4,M=6]\nout Y Z[N,M]\ntmp t[N,M]\nfor i j t[i,j]=X[i,j]*2\nfor i j Z[i,j]=X[i,j]\nfor i j Y[i,j]=t[i,j]+Z[i,j]\n"
WRITTEN_TWICE = "in X f32[N=4]\nout Y[N]\ntmp t[N]\nfor i t[i]=X[i]*2\nfor i t[i]=t[i]+1\nfor i Y[i]=t[i]\n"
GUARDED = "in X f32[N=4,M=6]\nout Y[N,M]\ntmp t[N,M]\nfor i if i<3: for j t[i,j]=X[i,j]\nfor j if 3<N: t[3,j]=0\nfor i j Y[i,j]=t[i,j]\n"
TRANSPOSED = "in X f32[N=4,M=6]\nout s[M]\ntmp t[N,M]\nfor j:M i t[i,j]=X[i,j]*2\nfor i j s[j]+=t[i,j]\n"
SCANNED = "in X f32[N=4,M=6]\nout Y[N,M]\ntmp t[N,M]\nfor j:M i t[i,j]=X[i,j]*2\nfor i j Y[i,j]=select(j>0,Y[i,j-1],0)+t[i,j]\n"
SCOPE = "in X f32[N=4,M=6]\nout Y[N,M]\nfor i\n tmp c[M] local t[M]\n for j c[j]=X[i,j]*2\n par j t[j]=X[i,j]+1\n for j Y[i,j]=t[j]*c[j]\n"
TABLE = "size N=6 M=4\nin X f32[N,M]\nout Y f32[N,M]\ntmp S T i64[N]\nfor i:N S[i]=N-i-1\nfor i:N T[i]=S[i]\nfor i:N j:M Y[i,j]=X[T[i],j]\n"
DIAGONAL = "in X f32[N=4,M=6]\nout Y[N,M]\ntmp t[N,M]\nfor j:M i t[i,j]=X[i,j]*2\nfor i j Y[i,j]=select(0<i and j<M-1,Y[i-1,j+1],0)+t[i,j]\n"
CASES = {
    "row": (GEMM, "reverse_compute_at@1:at=0"),
    "tile": (TILED, "reverse_compute_at@1:at=0.0"),
    "tail": (TAIL, "reverse_compute_at@1:at=0.0"),
    "tiled_consumer": (BOTH, "reverse_compute_at@1:at=0.0"),
    "behind_the_reduction": (KTILED, "reverse_compute_at@1:at=0.0"),
    "accumulation": (CHAIN, "reverse_compute_at@1:at=0"),
    "maximum": (MAXIMUM, "reverse_compute_at@1:at=0.0"),
    "parallel_rows": (PARALLEL_ROWS, "reverse_compute_at@1:at=0"),
    "past_a_neighbour": (BETWEEN.replace("+Z[i,j]", ""), "reverse_compute_at@2:at=0.0"),
    "scan": (SCANNED, "reverse_compute_at@1:at=0"),
    "column_sums": (TRANSPOSED, "reverse_compute_at@1:at=0"),
    "refuse_unfinished": (KTILED, "reverse_compute_at@1:at=0.0.0"),
    "refuse_race": (PARALLEL, "reverse_compute_at@1:at=0"),
    "refuse_stencil": (STENCIL, "reverse_compute_at@1:at=0"),
    "refuse_shifted": (SHIFTED, "reverse_compute_at@1:at=0"),
    "refuse_dependent": (BETWEEN, "reverse_compute_at@2:at=0.0"),
    "refuse_two_writers": (WRITTEN_TWICE, "reverse_compute_at@2:at=0"),
    "refuse_guarded": (GUARDED, "reverse_compute_at@2:at=0.0.0"),
    "refuse_behind": (GEMM, "reverse_compute_at@0:at=1"),
    "refuse_not_read": (BETWEEN, "reverse_compute_at@1:at=0"),
    "refuse_scope": (SCOPE, "reverse_compute_at@0.2:at=0.1"),
    "refuse_table": (TABLE, "reverse_compute_at@1:at=0"),
    "refuse_reversed_scan": (DIAGONAL, "reverse_compute_at@1:at=0"),
    "refuse_params": (GEMM, "reverse_compute_at@1"),
}


@pytest.mark.parametrize("name", CASES)
def test_golden(name: str, update_goldens: bool) -> None:
    check_golden(STRATEGY, name, *CASES[name], update_goldens)


def test_no_orphan_goldens() -> None:
    check_no_orphans(STRATEGY, CASES)


def test_every_site_keeps_the_meaning() -> None:
    assert check_all(STRATEGY) >= 3


@pytest.mark.parametrize("text", [GEMM, TILED, TAIL, BOTH, KTILED, CHAIN, MAXIMUM, PARALLEL_ROWS, BETWEEN, TRANSPOSED, SCANNED])
def test_sites_of_the_cases(text: str) -> None:
    assert check_everything(STRATEGY, text) >= 1


def test_every_step_has_a_proof() -> None:
    for text in (GEMM, TILED, TAIL, CHAIN):
        subject = program(text)
        for site in engine.sites(subject, [STRATEGY]):
            assert engine.applied_or_raise(subject, site).instances is not None
