"""operator_fusion: joining neighbouring nests."""

from __future__ import annotations

import pytest
from rewrite_support import all_applied, check_all, check_golden, check_no_orphans, check_step, program

from steptp.ir import Loop
from steptp.ir.walk import visit

STRATEGY = "operator_fusion"
CHAIN = "size N=5 M=4\nin X f32[N,M]\nout Y f32[N,M]\ntmp t f32[N,M]\nfor i:N j:M t[i,j] = X[i,j]*2\nfor a:N b:M Y[a,b] = t[a,b]+1\n"
AHEAD = "size N=5\nin X f32[N+1]\nout Y f32[N]\ntmp t f32[N+1]\nfor i:N+1 t[i] = X[i]\nfor i:N Y[i] = t[i+1]\n"
AHEAD_EQUAL = "size N=5\nin X f32[N]\nout Y f32[N]\ntmp t f32[N+1]\nt[0] = 0\nfor i:N t[i+1] = X[i]\nfor i:N Y[i] = t[i]\n"
NEEDS_NEXT = "size N=5\nin X f32[N]\nout Y f32[N]\ntmp t f32[N+1]\nt[N] = 0\nfor i:N t[i] = X[i]\nfor i:N Y[i] = t[i+1]\n"
PARALLEL_SHIFT = "size N=5\nin X f32[N]\nout Y f32[N]\ntmp t f32[N+1]\nt[0] = 0\npar i:N t[i+1] = X[i]\npar i:N Y[i] = t[i]\n"
PARALLEL = "size N=5 M=3\nin X f32[N,M]\nout Y f32[N]\ntmp s f32[N]\npar i:N for j:M s[i] += X[i,j]\npar i:N Y[i] = s[i]*2\n"
SHARED_RESET = "size N=4 M=3\nin A f32[N,M]\nout C f32[M] D f32[N,M]\nfor i:N j:M C[j] += A[i,j]\nfor i:N j:M D[i,j] = C[j]\n"
CAPTURE = "size N=4 M=3 R=2\nin X f32[N] A f32[N,M]\nout Y f32[N] Z f32[R,N,M]\nfor i1:R\n for i:N Y[i] = X[i]\n for i0:N i:M Z[i1,i0,i] = A[i0,i]*X[i0]\n"
TMPS = "size N=4\nin X f32[N]\nout Y f32[N] Z f32[N]\nfor i:N\n tmp t f32[]\n t[] = X[i]*2\n Y[i] = t[]+1\nfor i:N\n tmp u f32[]\n u[] = Y[i]*3\n Z[i] = u[]\n"
OVERWRITES = "size N=4\nin X f32[N]\nout Y f32[N]\ntmp t f32[N]\nfor i:N t[i] = X[i]\nfor i:N Y[i] = t[N-1-i]\nfor i:N t[i] = 0\nfor i:N if t[i]<0: Y[i] = 1\n"
TRIANGLES = "size N=4\nin X f32[N,N]\nout Y f32[N,N]\nfor i:N j:N Y[i,j] = 0\nfor i:N j:i+1 Y[i,j] = X[i,j]\n"
ONE_ROW = "size B=1 N=4\nin X f32[B,N]\nout Y f32[B,N] Z f32[N]\nfor b:B i:N Z[i] = X[b,i]\nfor b:B i:N Y[b,i] = Z[i]\n"
VECTORS = "size N=4 M=8\nin X f32[N,M]\nout Y f32[N,M] Z f32[N,M]\nfor i:N vec j:M Y[i,j] = X[i,j]*2\nfor i:N vec j:M Z[i,j] = Y[i,j]+1\n"
CASES = {
    "pointwise": (CHAIN, "operator_fusion@0:depth=2"),
    "outer_only": (CHAIN, "operator_fusion@0:depth=1"),
    "softmax_rows": ("softmax", "operator_fusion@0:depth=1"),
    "parallel": (PARALLEL, "operator_fusion@0:depth=1"),
    "value_of_the_iteration_before": (AHEAD_EQUAL, "operator_fusion@1:depth=1"),
    "temporaries": (TMPS, "operator_fusion@0:depth=1"),
    "renamed_inside": (CAPTURE, "operator_fusion@0.0:depth=1"),
    "triangle_rows": (TRIANGLES, "operator_fusion@0:depth=1"),
    "vectors": (VECTORS, "operator_fusion@0:depth=2"),
    "refuse_next_iteration": (NEEDS_NEXT, "operator_fusion@1:depth=1"),
    "refuse_maximum_unfinished": ("softmax", "operator_fusion@0:depth=2"),
    "refuse_parallel_race": (PARALLEL_SHIFT, "operator_fusion@1:depth=1"),
    "refuse_sum_unfinished": (SHARED_RESET, "operator_fusion@0:depth=1"),
    "refuse_overwritten": (OVERWRITES, "operator_fusion@1:depth=1"),
    "refuse_hidden_by_one_iteration": (ONE_ROW, "operator_fusion@0:depth=1"),
    "refuse_extents": (AHEAD, "operator_fusion@0:depth=1"),
    "refuse_triangle": (TRIANGLES, "operator_fusion@0:depth=2"),
    "refuse_imperfect": ("imperfect", "operator_fusion@0.1:depth=1"),
    "refuse_temporaries_outside": (TMPS, "operator_fusion@0:depth=2"),
    "refuse_last": ("softmax", "operator_fusion@2:depth=1"),
    "refuse_store": ("imperfect", "operator_fusion@0.0:depth=1"),
    "refuse_params": ("softmax", "operator_fusion@0"),
}


@pytest.mark.parametrize("name", CASES)
def test_golden(name: str, update_goldens: bool) -> None:
    check_golden(STRATEGY, name, *CASES[name], update_goldens)


def test_no_orphan_goldens() -> None:
    check_no_orphans(STRATEGY, CASES)


def test_every_site_keeps_the_meaning() -> None:
    assert check_all(STRATEGY) >= 6


@pytest.mark.parametrize("text", [CHAIN, PARALLEL, AHEAD_EQUAL, TMPS, CAPTURE, TRIANGLES, OVERWRITES])
def test_sites_of_the_cases(text: str) -> None:
    subject = program(text)
    found = list(all_applied(STRATEGY, subject))
    assert found
    for site, step in found:
        check_step(subject, site, step)


def test_inner_loops_take_no_name_in_use() -> None:
    (step,) = (s for i, s in all_applied(STRATEGY, program(CAPTURE)) if i.path == (0, 0))
    assert [v.stmt.var for v in visit(step.program) if isinstance(v.stmt, Loop)] == ["i1", "i", "i2"]
