"""cache_write: tiles and running values in local memory, written back once."""

from __future__ import annotations

import pytest
from moving_support import GEMM, MATMUL, after, check_everything
from rewrite_support import SOFTMAX, check_all, check_golden, check_no_orphans, program

from steptp.ir import print_program
from steptp.rewrite import engine

STRATEGY = "cache_write"
TAIL = after(MATMUL, "loop_tiling@0:outer=4,inner=3,tail=guard")
EPILOGUE = after(GEMM, "loop_tiling@0:outer=2,inner=4,tail=exact", "reverse_compute_at@1:at=0.0")
TAIL_EPILOGUE = after(GEMM, "loop_tiling@0:outer=4,inner=4,tail=guard", "reverse_compute_at@1:at=0.0")
ONLINE = after(SOFTMAX, "online_softmax@0")
SEVERAL = "in X f32[N=4,M=6]\nout Y[N,M]\nfor i\n for j Y[i,j]=X[i,j]*2\n for j Y[i,j]=Y[i,j]+1\n for j Y[i,j]=Y[i,j]*Y[i,j]\n"
TWO_WRITERS = SEVERAL + "for i Y[i,0]=0\n"
SCAN = "in X f32[N=4,M=6]\nout Y[N,M]\nfor i j Y[i,j]=select(j>0,Y[i,j-1],0)+X[i,j]\n"
LIVE_IN = "in X f32[N=4,M=6]\nout Y[N]\nfor i Y[i]=1\nfor i j carry Y[i]+=X[i,j]\n"
OUTER = "in X f32[N=4,M=6]\nout P[M]\nfor i:N\n for j P[j]+=X[i,j]\n"
EARLY = "in X f32[N=4,M=6]\nout Y Z[N,M]\nfor i j Y[i,j]=0\nfor i\n for j\n  Y[i,j]=X[i,j]\n  for k:M Z[i,k]=Y[i,k]\n"
HOLES = "in X f32[N=4,M=6]\nout Y[N,2*M]\nfor i j:2*M Y[i,j]=0\nfor i\n for j Y[i,2*j]=X[i,j]\n for j:M Y[i,2*j]=Y[i,2*j]*2\n"
GUARDS_DIFFER = "in X f32[N=4,M=6]\nout Y[N,M]\nfor i j Y[i,j]=1\nfor i\n for j if j<3: Y[i,j]=X[i,j]\n for j Y[i,j]=Y[i,j]*2\n"
DATA = "in X f32[N=4,M=6]\nout Y[N,M]\nfor i j Y[i,j]=1\nfor i\n for j if X[i,j]>0: Y[i,j]=X[i,j]\n for j if X[i,j]>0: Y[i,j]=Y[i,j]*2\n"
PARALLEL = "in X f32[N=4,M=6]\nout Y[N,M]\nfor i\n par j Y[i,j]=X[i,j]\n par j Y[i,j]=Y[i,j]*2\n"
ONCE = "in X f32[N=4,M=6]\nout Y[N,M]\nfor i j Y[i,j]=X[i,j]\n"
LOCAL = "in X f32[N=4,M=6]\nout Y[N]\nfor i\n tmp s[] local\n for j s[]+=X[i,j]\n Y[i]=s[]\n"
MOVING = "in X f32[N=4,M=6]\nout Y[N,M]\nfor i\n for j Y[i,j]=X[i,j]\n for j:M-1 Y[i,j]=Y[i,j]+Y[i,j+1]\n"
TABLE = "size N=6 M=4\nin X f32[N,M]\nout Y f32[N,M]\ntmp T i64[N]\nfor i:N T[i]=N-i-1\nfor i:N j:M Y[i,j]=X[T[i],j]\n"
UNGUARDED_READ = "in X f32[N=4,M=6]\nout Y Z[N,M]\nfor i j Y[i,j]=1\nfor i\n for j if j<3: Y[i,j]=X[i,j]\n for j Z[i,j]=Y[i,j]\n"
CASES = {
    "guarded_tile": (TAIL, "cache_write@0.0:buffer=Y"),
    "guarded_row": (TAIL, "cache_write@0.0.0:buffer=Y"),
    "tile_with_epilogue": (EPILOGUE, "cache_write@0.0:buffer=d"),
    "guarded_tile_with_epilogue": (TAIL_EPILOGUE, "cache_write@0.0:buffer=d"),
    "running_maximum": (ONLINE, "cache_write@0:buffer=m"),
    "running_sum": (ONLINE, "cache_write@0:buffer=s"),
    "several_stores": (SEVERAL, "cache_write@0:buffer=Y"),
    "another_writer_outside": (TWO_WRITERS, "cache_write@0:buffer=Y"),
    "refuse_scan": (SCAN, "cache_write@0:buffer=Y"),
    "refuse_live_in": (LIVE_IN, "cache_write@1:buffer=Y"),
    "refuse_reset_outside": (OUTER, "cache_write@0:buffer=P"),
    "refuse_early_read": (EARLY, "cache_write@1:buffer=Y"),
    "refuse_holes": (HOLES, "cache_write@1:buffer=Y"),
    "refuse_other_guard": (GUARDS_DIFFER, "cache_write@1:buffer=Y"),
    "refuse_unguarded_read": (UNGUARDED_READ, "cache_write@1:buffer=Y"),
    "refuse_data_guard": (DATA, "cache_write@1:buffer=Y"),
    "refuse_parallel": (PARALLEL, "cache_write@0:buffer=Y"),
    "refuse_stored_once": (ONCE, "cache_write@0:buffer=Y"),
    "refuse_local": (LOCAL, "cache_write@0:buffer=s"),
    "refuse_private": (LOCAL.replace(" local", ""), "cache_write@0:buffer=s"),
    "refuse_spans": (MOVING, "cache_write@0:buffer=Y"),
    "refuse_plain": (MATMUL, "cache_write@0.0:buffer=Y"),
    "refuse_input": (MATMUL, "cache_write@0:buffer=a"),
    "refuse_store": (MATMUL, "cache_write@0.0.0.0:buffer=Y"),
    "refuse_table": (TABLE, "cache_write@0:buffer=T"),
    "refuse_params": (MATMUL, "cache_write@0"),
}


@pytest.mark.parametrize("name", CASES)
def test_golden(name: str, update_goldens: bool) -> None:
    check_golden(STRATEGY, name, *CASES[name], update_goldens)


def test_no_orphan_goldens() -> None:
    check_no_orphans(STRATEGY, CASES)


def test_every_site_keeps_the_meaning() -> None:
    assert check_all(STRATEGY) >= 2


@pytest.mark.parametrize("text", [TAIL, EPILOGUE, TAIL_EPILOGUE, ONLINE, SEVERAL, TWO_WRITERS])
def test_sites_of_the_cases(text: str) -> None:
    assert check_everything(STRATEGY, text) >= 1


def test_a_copy_that_is_repeated_is_left_to_tier_3() -> None:
    text = "in X f32[R=2,N=4,M=6]\nout Y[N,M]\ntmp t[N,M]\nfor r i\n for j t[i,j]=X[r,i,j]*2\n for j t[i,j]=t[i,j]+1\nfor i j Y[i,j]=t[i,j]\n"
    assert check_everything(STRATEGY, text) == 2
    step = engine.applied_or_raise(program(text), "cache_write@0.0:buffer=t")
    assert step.instances is None


def test_behind_an_epilogue_the_whole_tensor_is_dead() -> None:
    subject = engine.applied_or_raise(program(EPILOGUE), "cache_write@0.0:buffer=d").program
    (site,) = engine.sites(subject, ["dead_code_elimination"]).sites
    assert " d[" not in print_program(engine.applied_or_raise(subject, site).program)
