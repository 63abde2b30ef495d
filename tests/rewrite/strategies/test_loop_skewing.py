"""loop_skewing: wavefronts."""

from __future__ import annotations

import pytest
from moving_support import MATMUL, after, check_everything
from rewrite_support import check_all, check_golden, check_no_orphans, program

from steptp.ir import print_program
from steptp.rewrite import engine
from steptp.rewrite.base import Applied

STRATEGY = "loop_skewing"
DOUBLE_CUMSUM = "in x f32[N=4,K=3]\nout Y[N,K]\ntmp s[N,K]\nfor i j\n s[i,j]=select(i>0,s[i-1,j],0)+x[i,j]\n Y[i,j]=select(j>0,Y[i,j-1],0)+s[i,j]\n"
BACKWARDS = "in X f32[N=6,M=6]\nout S[N,M]\nfor i j S[i,j]=X[i,j]\nfor i:N-1 j:M-1 S[i+1,j]=S[i,j+1]*X[i,j]\n"
HEAT = "size S=3\nin X f32[N=7]\nout Y[N]\ntmp U[S+1,N]\nfor j U[0,j]=X[j]\nfor t:S j:N U[t+1,j]=(select(j>0,U[t,j-1],0)+U[t,j])+select(j<N-1,U[t,j+1],0)\nfor j Y[j]=U[S,j]\n"
SWEEPS = "size S=3\nin X f32[N=7]\nout Y[N]\nfor j Y[j]=X[j]\nfor t:S j:N-2 Y[j+1]=Y[j]+Y[j+1]+Y[j+2]\n"
CUMSUM = "in x f32[N=3,K=7]\nout Y[N,K]\nfor i j Y[i,j]=select(j>0,Y[i,j-1],0)+x[i,j]\n"
COLUMN_SUM = "in X f32[N=4,M=6]\nout P[M]\nfor i:N j P[j]+=X[i,j]\n"
TRIANGLE = "in X f32[N=4,N]\nout Y[N,N]\nfor i j:N Y[i,j]=0\nfor i j:i+1 Y[i,j]=X[i,j]\n"
VECTOR = "in X f32[N=4,M=6]\nout Y[N,M]\nfor i vec j Y[i,j]=X[i,j]\n"
CASES = {
    "double_cumsum": (DOUBLE_CUMSUM, "loop_skewing@0:factor=1"),
    "backwards": (BACKWARDS, "loop_skewing@1:factor=2"),
    "backwards_just_permutable": (BACKWARDS, "loop_skewing@1:factor=1"),
    "heat": (HEAT, "loop_skewing@1:factor=2"),
    "sweeps": (SWEEPS, "loop_skewing@1:factor=2"),
    "row_sums": (MATMUL, "loop_skewing@0.0:factor=1"),
    "refuse_column_sum": (COLUMN_SUM, "loop_skewing@0:factor=1"),
    "refuse_triangle": (TRIANGLE, "loop_skewing@1:factor=1"),
    "refuse_vector": (VECTOR, "loop_skewing@0:factor=1"),
    "refuse_innermost": (MATMUL, "loop_skewing@0.0.0:factor=1"),
    "refuse_store": (MATMUL, "loop_skewing@0.0.0.0:factor=1"),
    "refuse_factor": (MATMUL, "loop_skewing@0:factor=0"),
}


@pytest.mark.parametrize("name", CASES)
def test_golden(name: str, update_goldens: bool) -> None:
    check_golden(STRATEGY, name, *CASES[name], update_goldens)


def test_no_orphan_goldens() -> None:
    check_no_orphans(STRATEGY, CASES)


def test_every_site_keeps_the_meaning() -> None:
    assert check_all(STRATEGY) == 0  # none of the small programs carries dependences in both loops of a pair


@pytest.mark.parametrize("text", [DOUBLE_CUMSUM, BACKWARDS, HEAT, SWEEPS])
def test_sites_of_the_cases(text: str) -> None:
    assert check_everything(STRATEGY, text) == 1


def test_sites_are_listed_for_wavefronts_only() -> None:
    for text in (CUMSUM, MATMUL, COLUMN_SUM):
        assert not engine.sites(program(text), [STRATEGY]).sites


@pytest.mark.parametrize("text", [DOUBLE_CUMSUM, HEAT, SWEEPS])
def test_swapped_the_other_loop_runs_in_parallel(text: str) -> None:
    (site,) = engine.sites(program(text), [STRATEGY]).sites
    path = ".".join(map(str, site.path))
    wave = after(text, site.id, f"loop_reorder@{path}:to=1")
    outcome = engine.apply(program(wave), f"loop_parallelization@{path}.0")
    assert isinstance(outcome, Applied), outcome
    assert "par" in print_program(outcome.program)
