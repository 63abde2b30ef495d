"""compute_at: producers under the loops of their consumers, tiled ones too."""

from __future__ import annotations

import pytest
from moving_support import GEMM, after, check_everything
from rewrite_support import check_all, check_golden, check_no_orphans, program

from steptp.ir import print_program
from steptp.rewrite import engine
from steptp.verify.ladder import verify_step

STRATEGY = "compute_at"
TILED = after(GEMM, "loop_tiling@1:outer=2,inner=4,tail=exact")
BOTH = after(GEMM, "loop_tiling@0:outer=4,inner=3,tail=guard", "loop_tiling@1:outer=2,inner=4,tail=exact")
TWICE = after(GEMM, "loop_split@0:factor=4,tail=guard", "loop_split@0.0:factor=2,tail=exact")
ROW_INDEX = "size N=6 T=2\nwhere N%T==0\nin X f32[N] w[T]\nout Y f32[N]\ntmp t f32[N]\nfor i0:N//T i1:T t[i0*T+i1]=X[i0*T+i1]*w[i1]\nfor i:N Y[i]=t[i]\n"
TAIL = after(GEMM, "loop_tiling@1:outer=4,inner=4,tail=guard")
HALO = "size P=12 R=3 M=P-R+1 N=M-R+1\nin X f32[P] W V[R]\nout Y f32[N]\ntmp t f32[M]\nfor i:M r:R t[i]+=X[i+r]*W[r]\nfor i:N r:R Y[i]+=t[i+r]*V[r]\n"
OFFSETS = "in X f32[N=6,M=8]\nout Y[N,L=M-2]\ntmp t[N,M]\nfor i j t[i,j]=X[i,j]*2\nfor i j:L Y[i,j]=t[i,j+2]-t[i,j]\n"
PADDED = "in X f32[N=5,M=6]\nout Y[N,M]\ntmp t[N,M]\nfor i j t[i,j]=exp(X[i,j])\nfor i j Y[i,j]=select(0<i,t[i-1,j],0)\n"
LOOKUP = "size N=5 K=4 M=6\nin X f32[N,M] T i64[K] 0..N\nout Y f32[K,M]\ntmp t f32[N,M]\nfor i:N j:M t[i,j]=X[i,j]*2\nfor k:K j:M Y[k,j]=t[T[k],j]\n"
BATCH = "in q f32[B=2,N=3,C=4] k[B,M=5,C]\nout Y[B,N,M]\ntmp s[B,N,M]\nfor b\n for i j c s[b,i,j]+=q[b,i,c]*k[b,j,c]\n for i j Y[b,i,j]=s[b,i,j]*2\n"
ROWS = "in X f32[N=4,M=6]\nout Y[N,M]\ntmp s[N]\nfor i j s[i]+=X[i,j]\nfor i j Y[i,j]=X[i,j]/s[i]\n"
PARALLEL = ROWS.replace("for i j Y", "par i for j Y")
OTHER_ROW = BATCH.replace("Y[b,i,j]=s[b,i,j]*2", "Y[b,i,j]=select(b>0,s[b-1,i,j],0)+s[b,i,j]")
SHARED_ROW = "in X f32[N=4] Z[N,M=6]\nout Y[N,M]\ntmp s[N]\nfor i s[i]=exp(X[i])\nfor i j Y[i,j]=Z[i,j]*s[i]\n"
TWO_READERS = "in X f32[N=4,M=6]\nout Y Z[N,M]\ntmp t[N,M]\nfor i j t[i,j]=X[i,j]*2\nfor i j Y[i,j]=t[i,j]\nfor i j Z[i,j]=t[i,j]+1\n"
CHANGED = "in X f32[N=4,M=6]\nout Y U[N,M]\ntmp t[N,M]\nfor i j U[i,j]=X[i,j]\nfor i j t[i,j]=U[i,j]*2\nfor i j U[i,j]=1\nfor i j Y[i,j]=t[i,j]\n"
SCAN = "in X f32[N=4,M=6]\nout Y[N,M]\ntmp t[N,M]\nfor i j t[i,j]=select(j>0,t[i,j-1],0)+X[i,j]\nfor i j Y[i,j]=t[i,j]\n"
OVERWRITES = "in X f32[N=4,M=6]\nout Y[N]\ntmp t[N]\nfor i j t[i]=X[i,j]\nfor i Y[i]=t[i]\n"
DIAGONAL = "in X f32[N=4]\nout Y[N]\ntmp t[N,N]\nfor i t[i,i]=X[i]\nfor i Y[i]=t[i,i]\n"
OUTER_RESET = "in A f32[R=3,N=4]\nout D[R,N]\ntmp C[N]\nfor r\n for i C[i]+=A[r,i]\n for i D[r,i]=C[i]\n"
VECTOR = "in X f32[N=4,M=6]\nout Y[N,M]\ntmp t[N,M]\nfor i j t[i,j]=X[i,j]*2\nfor i vec j Y[i,j]=t[i,j]\n"
SCOPE = "in X f32[N=4,M=6]\nout Y[N,M]\nfor i\n tmp c[M] local t[M]\n for j c[j]=X[i,j]*2\n for j t[j]=c[j]+1\n par j Y[i,j]=t[j]\n"
TABLE = "size N=6 M=4\nin X f32[N,M]\nout Y f32[N,M]\ntmp T i64[N]\nfor i:N T[i]=N-i-1\nfor i:N j:M Y[i,j]=X[T[i],j]\n"
CASES = {
    "tile": (TILED, "compute_at@0:at=1.0,storage=region"),
    "tile_whole": (TILED, "compute_at@0:at=1.0,storage=whole"),
    "tail": (TAIL, "compute_at@0:at=1.0,storage=region"),
    "tail_row": (TAIL, "compute_at@0:at=1.0.0,storage=whole"),
    "tiled_producer": (BOTH, "compute_at@0:at=1.0,storage=region"),
    "producer_split_twice": (TWICE, "compute_at@0:at=1,storage=whole"),
    "halo": (HALO, "compute_at@0:at=1,storage=region"),
    "offsets": (OFFSETS, "compute_at@0:at=1.0,storage=region"),
    "before_the_start": (PADDED, "compute_at@0:at=1,storage=region"),
    "look_up_keeps_the_dimension": (LOOKUP, "compute_at@0:at=1.0,storage=region"),
    "inside_a_loop": (BATCH, "compute_at@0.0:at=0.1,storage=region"),
    "row_sum": (ROWS, "compute_at@0:at=1,storage=region"),
    "parallel": (PARALLEL, "compute_at@0:at=1,storage=whole"),
    "refuse_output": (GEMM, "compute_at@1:at=0,storage=region"),
    "refuse_readers": (TWO_READERS, "compute_at@0:at=1,storage=region"),
    "refuse_changed": (CHANGED, "compute_at@1:at=3,storage=region"),
    "refuse_scan": (SCAN, "compute_at@0:at=1,storage=region"),
    "refuse_overwrites": (OVERWRITES, "compute_at@0:at=1,storage=region"),
    "refuse_diagonal": (DIAGONAL, "compute_at@0:at=1,storage=region"),
    "refuse_outer_reset": (OUTER_RESET, "compute_at@0.0:at=0.1,storage=region"),
    "refuse_other_iteration": (OTHER_ROW, "compute_at@0.0:at=0.1,storage=region"),
    "refuse_all_of_it": (LOOKUP, "compute_at@0:at=1,storage=region"),
    "refuse_overlap": (HALO, "compute_at@0:at=1,storage=whole"),
    "refuse_shared_columns": (SHARED_ROW, "compute_at@0:at=1.0,storage=whole"),
    "refuse_not_around": (TILED, "compute_at@0:at=0,storage=region"),
    "refuse_scope": (SCOPE, "compute_at@0.1:at=0.2,storage=region"),
    "refuse_tile_index": (ROW_INDEX, "compute_at@0:at=1,storage=region"),
    "refuse_vector": (VECTOR, "compute_at@0:at=1.0,storage=region"),
    "refuse_store": (GEMM, "compute_at@0.0.0.0:at=1,storage=region"),
    "refuse_table": (TABLE, "compute_at@0:at=1,storage=region"),
    "refuse_params": (GEMM, "compute_at@0:to=1"),
}


@pytest.mark.parametrize("name", CASES)
def test_golden(name: str, update_goldens: bool) -> None:
    check_golden(STRATEGY, name, *CASES[name], update_goldens)


def test_no_orphan_goldens() -> None:
    check_no_orphans(STRATEGY, CASES)


def test_every_site_keeps_the_meaning() -> None:
    assert check_all(STRATEGY) >= 2


@pytest.mark.parametrize("text", [TILED, TAIL, BOTH, TWICE, HALO, OFFSETS, PADDED, LOOKUP, BATCH, ROWS, PARALLEL])
def test_sites_of_the_cases(text: str) -> None:
    assert check_everything(STRATEGY, text) >= 1


def test_recomputing_is_offered_up_to_four_times() -> None:
    subject = program(HALO)  # three elements of t for each of Y
    assert "compute_at@0:at=1,storage=region" in {s.id for s in engine.sites(subject, [STRATEGY])}
    wide = "in X f32[N=9] W[N]\nout Y[N]\ntmp s[N]\nfor i s[i]=exp(X[i])\nfor i j Y[i]+=s[j]*W[i]\n"
    assert not engine.sites(program(wide), [STRATEGY]).sites
    assert engine.apply(program(wide), "compute_at@0:at=1.0,storage=region").program  # type: ignore[union-attr]


@pytest.mark.parametrize("storage", ["region", "whole"])
def test_the_verifier_accepts_tiles(storage: str) -> None:
    subject = program(TAIL)
    step = engine.applied_or_raise(subject, f"compute_at@0:at=1.0,storage={storage}")
    verdict = verify_step(subject, step.program, applied=step, build_tiers=False)
    assert verdict.ok, verdict.message


def test_the_scores_of_tiled_attention_live_in_one_tile() -> None:
    subject = "in q f32[N=8,C=3] k[M=8,C] v[M,L=4]\nout Y[N,L]\ntmp s[N,M]\nfor i j c s[i,j]+=q[i,c]*k[j,c]\nfor i l j Y[i,l]+=exp(s[i,j])*v[j,l]\n"
    tiled = after(subject, "loop_split@1:factor=4,tail=exact", "loop_split@1.0.0.0:factor=4,tail=exact", "loop_reorder@1.0.0.0:to=1")
    step = engine.applied_or_raise(program(tiled), "compute_at@0:at=1.0,storage=region")
    assert "tmp sl[T0,T1] local" in print_program(step.program)
