"""loop_peeling: first and last iterations, and guarded tiles."""

from __future__ import annotations

import pytest
from moving_support import MATMUL, after, check_everything
from rewrite_support import check_all, check_golden, check_no_orphans, program

from steptp.ir import print_program
from steptp.rewrite import engine

STRATEGY = "loop_peeling"
ROWS = after(MATMUL, "loop_split@0:factor=4,tail=guard")
REDUCTION = after(MATMUL, "loop_split@0.0.0:factor=3,tail=guard")
TILED = after(MATMUL, "loop_tiling@0:outer=4,inner=3,tail=guard")
CUMSUM = "in x f32[N=3,K=7]\nout Y[N,K]\nfor i j Y[i,j]=select(j>0,Y[i,j-1],0)+x[i,j]\n"
LAST = "in x f32[N=7]\nout Y[N]\nfor i Y[i]=select(i<N-1,x[i+1],0)+x[i]\n"
TMPS = after("in X f32[N=6,M=5]\nout Y[N]\nfor i\n tmp t[M] s[]\n for j t[j]=X[i,j]*X[i,j]\n for j s[]+=t[j]\n Y[i]=s[]\n", "loop_split@0:factor=4,tail=guard")
PARTLY = "size N=6 T0=4\nin X f32[N]\nout Y f32[N] Z f32[(N-1)//T0+1]\nfor i0:(N-1)//T0+1\n Z[i0]=0\n for i1:T0 if i0*T0+i1<N: Y[i0*T0+i1]=X[i0*T0+i1]\n"
LOOSE = "size N=6 T0=4\nin X f32[N]\nout Y f32[N] Z f32[(N-1)//T0+1,T0]\nfor i0:(N-1)//T0+1 i1:T0\n Z[i0,i1]=0\n if i0*T0+i1<N: Y[i0*T0+i1]=X[i0*T0+i1]\n"
EVEN = "size N=8 T0=4\nin X f32[N]\nout Y f32[N]\nfor i0:(N-1)//T0+1 i1:T0 if i0*T0+i1<N: Y[i0*T0+i1]=X[i0*T0+i1]\n"
SMALL = EVEN.replace("N=8", "N=3")
OUTER_RESET = "in X f32[N=6,M=4]\nout P[N]\nfor j:M i P[i]+=X[i,j]\n"
TRIANGLE = "in X f32[N=4,N]\nout Y[N,N]\nfor i j:N Y[i,j]=0\nfor i j:i+1 Y[i,j]=X[i,j]\n"
TABLE = "size N=6 M=4\nin X f32[N,M]\nout Y f32[N,M]\ntmp T i64[N]\nfor i:N T[i]=N-i-1\nfor i:N j:M Y[i,j]=X[T[i],j]\n"
CASES = {
    "tile_rows": (ROWS, "loop_peeling@0:part=tile"),
    "tile_reduction": (REDUCTION, "loop_peeling@0.0.0:part=tile"),
    "tile_of_two": (TILED, "loop_peeling@0:part=tile"),
    "tile_columns": (TILED, "loop_peeling@0.0:part=tile"),
    "tile_with_temporaries": (TMPS, "loop_peeling@0:part=tile"),
    "tile_with_an_unguarded_store": (PARTLY, "loop_peeling@0:part=tile"),
    "first_decides_a_choice": (CUMSUM, "loop_peeling@0.0:part=first,count=1"),
    "last_decides_a_choice": (LAST, "loop_peeling@0:part=last,count=1"),
    "last_three": (MATMUL, "loop_peeling@0:part=last,count=3"),
    "last_terms": (MATMUL, "loop_peeling@0.0.0:part=last,count=2"),
    "temporaries": (TMPS, "loop_peeling@0.0:part=first,count=1"),
    "refuse_even": (EVEN, "loop_peeling@0:part=tile"),
    "refuse_only_tile": (SMALL, "loop_peeling@0:part=tile"),
    "refuse_no_guard": (MATMUL, "loop_peeling@0:part=tile"),
    "refuse_loose_store": (LOOSE, "loop_peeling@0:part=tile"),
    "refuse_outer_reset": (OUTER_RESET, "loop_peeling@0.0:part=last,count=2"),
    "refuse_triangle": (TRIANGLE, "loop_peeling@1.0:part=last,count=1"),
    "refuse_all": (MATMUL, "loop_peeling@0:part=last,count=7"),
    "refuse_store": (MATMUL, "loop_peeling@0.0.0.0:part=last,count=1"),
    "refuse_table": (TABLE, "loop_peeling@0:part=last,count=2"),
    "refuse_params": (MATMUL, "loop_peeling@0:part=tile,count=1"),
}


@pytest.mark.parametrize("name", CASES)
def test_golden(name: str, update_goldens: bool) -> None:
    check_golden(STRATEGY, name, *CASES[name], update_goldens)


def test_no_orphan_goldens() -> None:
    check_no_orphans(STRATEGY, CASES)


def test_every_site_keeps_the_meaning() -> None:
    assert check_all(STRATEGY) >= 10


@pytest.mark.parametrize("text", [ROWS, REDUCTION, TILED, CUMSUM, LAST, TMPS, PARTLY, MATMUL])
def test_sites_of_the_cases(text: str) -> None:
    assert check_everything(STRATEGY, text) >= 1


def test_full_tiles_lose_their_guard() -> None:
    step = engine.applied_or_raise(program(ROWS), "loop_peeling@0:part=tile")
    assert "if" not in print_program(step.program)


def test_the_choice_of_a_scan_goes() -> None:
    step = engine.applied_or_raise(program(CUMSUM), "loop_peeling@0.0:part=first,count=1")
    assert "select" not in print_program(step.program)
