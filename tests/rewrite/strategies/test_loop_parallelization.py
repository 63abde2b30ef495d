"""loop_parallelization: loops that carry no dependence."""

from __future__ import annotations

import pytest
from rewrite_support import check_all, check_golden, check_no_orphans

STRATEGY = "loop_parallelization"
FUSED = "size N=4 M=6\nin X f32[N,M]\nout Y f32[N,M]\nfor f:N*M Y[f//M,f%M] = X[f//M,f%M]*2\n"
HALVES = "size N=4\nin X f32[2*N]\nout Y f32[2*N]\nfor i:N\n Y[i] = X[i]\n Y[i+N] = Y[i]*2\n"
SHARED_TMP = "size N=4\nin X f32[N]\nout Y f32[N]\ntmp t f32[]\nfor i:N\n t[] = X[i]\n Y[i] = t[]*2\n"
SCATTER = "size N=8 B=4\nin T i32[N] 0..B X f32[N]\nout H f32[B]\nfor b:B H[b] = 0\nfor i:N carry H[i64(T[i])] += X[i]\n"
NESTED = "size N=4 M=6\nin X f32[N,M]\nout Y f32[N,M]\npar i:N for j:M Y[i,j] = X[i,j]\n"
INNER_PARALLEL = "size N=4 M=6\nin X f32[N,M]\nout Y f32[N,M]\nfor i:N par j:M Y[i,j] = X[i,j]\n"
ONE = "size N=1\nin X f32[N]\nout Y f32[N]\nfor i:N Y[i] = X[i]\n"
LOCAL = "size N=3 M=4\nin X f32[N,M]\nout Y f32[N,M]\nfor i:N\n tmp c f32[M] local\n for j:M c[j] = X[i,j]\n for j:M Y[i,j] = c[j]*2\n"
LOCAL_OF_ALL = "size N=3 M=4\nin X f32[N,M]\nout Y f32[N,M]\ntmp c f32[N,M] local\nfor i:N j:M c[i,j] = X[i,j]\nfor i:N j:M Y[i,j] = c[i,j]*2\n"
CASES = {
    "refuse_local_of_the_program": (LOCAL_OF_ALL, "loop_parallelization@0"),
    "refuse_local_outside": (LOCAL, "loop_parallelization@0.1"),
    "rows": ("matmul", "loop_parallelization@0"),
    "inner": ("matmul", "loop_parallelization@0.0"),
    "private_tmp": ("tmps", "loop_parallelization@0"),
    "recurrence_columns": ("recurrence", "loop_parallelization@1.0"),
    "fused": (FUSED, "loop_parallelization@0"),
    "disjoint_halves": (HALVES, "loop_parallelization@0"),
    "refuse_reduction": ("matmul", "loop_parallelization@0.0.0"),
    "refuse_recurrence": ("recurrence", "loop_parallelization@1"),
    "refuse_shared_tmp": (SHARED_TMP, "loop_parallelization@0"),
    "refuse_look_up": (SCATTER, "loop_parallelization@1"),
    "refuse_nested_inside": (NESTED, "loop_parallelization@0.0"),
    "refuse_nested_outside": (INNER_PARALLEL, "loop_parallelization@0"),
    "refuse_again": (NESTED, "loop_parallelization@0"),
    "refuse_one_iteration": (ONE, "loop_parallelization@0"),
}


@pytest.mark.parametrize("name", CASES)
def test_golden(name: str, update_goldens: bool) -> None:
    check_golden(STRATEGY, name, *CASES[name], update_goldens)


def test_no_orphan_goldens() -> None:
    check_no_orphans(STRATEGY, CASES)


def test_every_site_keeps_the_meaning() -> None:
    assert check_all(STRATEGY) >= 15
