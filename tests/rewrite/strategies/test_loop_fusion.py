"""loop_fusion: collapsing perfectly nested pairs."""

from __future__ import annotations

import pytest
from rewrite_support import check_all, check_golden, check_no_orphans, program

from steptp.ir import print_program
from steptp.rewrite import engine

STRATEGY = "loop_fusion"
SHORT = "size N=4 M=6\nin X f32[N,M]\nout Y f32[N,M]\nfor i:N-1 j:M-1 Y[i+1,j+1] = X[i,j]\nfor i:N Y[i,0] = 0\nfor j:M-1 Y[0,j+1] = 0\n"
SPLIT = "size N=8 T0=4\nwhere N%T0==0\nin X f32[N]\nout Y f32[N]\nfor i0:N//T0 i1:T0 Y[i0*T0+i1] = X[i0*T0+i1]*f32(i0*T0+i1)\n"
GUARDED_SPLIT = "size N=6 T0=4\nin X f32[N]\nout Y f32[N]\nfor i0:(N-1)//T0+1 i1:T0 if i0*T0+i1<N: Y[i0*T0+i1] = X[i0*T0+i1]\n"
SHARED = "size N=8 M=4 T0=4\nwhere N%T0==0, M%T0==0\nin X f32[N]\nout Y f32[N] Z f32[M]\nfor i0:N//T0 i1:T0 Y[i0*T0+i1] = X[i0*T0+i1]\nfor j0:M//T0 j1:T0 Z[j0*T0+j1] = 1\n"
PARALLEL = "size N=4 M=6\nin X f32[N,M]\nout Y f32[N,M]\npar i:N for j:M Y[i,j] = X[i,j]+1\n"
PARALLEL_CARRIED = "size N=4 M=6\nin X f32[N,M]\nout Y f32[N]\npar i:N for j:M Y[i] += X[i,j]\n"
TMP_BETWEEN = "size N=4 M=6\nin X f32[N,M]\nout Y f32[N,M]\nfor i:N\n tmp t f32[M]\n for j:M\n  t[j] = X[i,j]\n  Y[i,j] = t[j]\n"
TRIANGLE = "size N=4\nin X f32[N,N]\nout Y f32[N,N]\nfor i:N j:i+1 Y[i,j] = X[i,j]\n"
VECTOR = "size N=4 M=6\nin X f32[N,M]\nout Y f32[N,M]\nfor i:N vec j:M Y[i,j] = X[i,j]\n"
CASES = {
    "pointwise": ("softmax", "loop_fusion@2"),
    "matmul_rows_columns": ("matmul", "loop_fusion@0"),
    "reductions": ("two_reductions", "loop_fusion@0.0"),
    "undo_split": (SPLIT, "loop_fusion@0"),
    "undo_guarded_split": (GUARDED_SPLIT, "loop_fusion@0"),
    "shared_tile_size": (SHARED, "loop_fusion@0"),
    "guard_inside": ("guarded", "loop_fusion@0"),
    "parallel": (PARALLEL, "loop_fusion@0"),
    "refuse_reset": ("matmul", "loop_fusion@0.0"),
    "refuse_imperfect": ("imperfect", "loop_fusion@0"),
    "refuse_innermost": ("matmul", "loop_fusion@0.0.0"),
    "refuse_tmp": (TMP_BETWEEN, "loop_fusion@0"),
    "refuse_triangle": (TRIANGLE, "loop_fusion@0"),
    "refuse_parallel_carried": (PARALLEL_CARRIED, "loop_fusion@0"),
    "refuse_kinds": (VECTOR, "loop_fusion@0"),
    "refuse_signs": (SHORT, "loop_fusion@0"),
    "refuse_params": ("matmul", "loop_fusion@0:x=1"),
}


@pytest.mark.parametrize("name", CASES)
def test_golden(name: str, update_goldens: bool) -> None:
    check_golden(STRATEGY, name, *CASES[name], update_goldens)


def test_no_orphan_goldens() -> None:
    check_no_orphans(STRATEGY, CASES)


def test_every_site_keeps_the_meaning() -> None:
    assert check_all(STRATEGY) >= 7


def test_a_guard_over_the_pair_becomes_one_comparison() -> None:
    text = print_program(engine.applied_or_raise(program(GUARDED_SPLIT), "loop_fusion@0").program)
    assert "if i<N: Y[i]=X[i]" in text.replace(" = ", "=")


def test_a_dropped_tile_size_takes_its_constraint_along() -> None:
    child = engine.applied_or_raise(program(SPLIT), "loop_fusion@0").program
    assert child.constraints == ()
    assert [s.name for s in child.sizes] == ["N"]


def test_a_tile_size_in_use_elsewhere_stays() -> None:
    child = engine.applied_or_raise(program(SHARED), "loop_fusion@0").program
    assert "T0" in {s.name for s in child.sizes}
    assert len(child.constraints) == 2
