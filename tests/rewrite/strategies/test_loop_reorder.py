"""loop_reorder: moving a loop in its perfect nest."""

from __future__ import annotations

from dataclasses import replace

import pytest
from rewrite_support import all_applied, check_all, check_golden, check_no_orphans, inputs_for, program

from steptp.interp import evaluate
from steptp.ir import Loop, program_hash
from steptp.ir.walk import replace_at
from steptp.rewrite import engine
from steptp.rewrite.base import Exactness, NotApplicable
from steptp.rewrite.context import Context

STRATEGY = "loop_reorder"
ONE_ROW = "size B=1 M=6\nin X f32[B,M]\nout Y f32[B,M]\nfor b:B j:M Y[b,j] = X[b,j]\n"
HIDDEN = "size N=4 K=3 T0=2\nin A f32[N,K]\nout C f32[N]\nfor i:N k0:K//T0 k1:T0 C[i] += A[i,k0*T0+k1]\n"
OUTER = "size N=4 K=6 L=5\nin A f32[N,K] B[K,L]\nout C f32[N,L]\nfor k:K i:N j:L C[i,j] += A[i,k]*B[k,j]\n"
TILED = "size N=8 M=4 T0=4\nwhere N%T0==0\nin X f32[N,M]\nout Y f32[N,M]\nfor i0:N//T0 i1:T0 j:M Y[i0*T0+i1,j] = X[i0*T0+i1,j]\n"
TMPS = "size N=4 M=6\nin X f32[N,M]\nout Y f32[N,M]\nfor i:N j:M\n tmp t f32[]\n t[] = X[i,j]\n Y[i,j] = t[]*t[]\n"
PARALLEL = "size N=4 K=6\nin A f32[N,K]\nout C f32[N]\npar i:N for k:K C[i] += A[i,k]\n"
PARTIAL = "size N=4 K=6\nin A f32[N,K]\nout C f32[N] D[N,K]\nfor i:N k:K\n C[i] += A[i,k]\n D[i,k] = C[i]\n"
PARTIAL_TWO = "size N=4 K=3 L=2\nin A f32[N,K,L]\nout C f32[N] D[N,K,L]\nfor i:N k:K l:L\n C[i] += A[i,k,l]\n D[i,k,l] = C[i]\n"
SKEWED = "size N=6 M=6\nin X f32[N,M]\nout S f32[N,M]\nfor i:N j:M S[i,j] = X[i,j]\nfor i:N-1 j:M-1 S[i+1,j] = S[i,j+1]*X[i,j]\n"
SHARED_RESET = "size N=4 K=3\nin A f32[N,K]\nout C f32[N+1] D[N,K]\nfor i:N+1 C[i] = 1\nfor i:N k:K\n C[i] += A[i,k]\n D[i,k] = C[i+1]\n"
TRIANGLE = "size N=4\nin X f32[N,N]\nout Y f32[N,N]\nfor i:N j:i+1 Y[i,j] = X[i,j]\n"
PARALLEL_STEP = "size N=4 M=4\nin X f32[N,M]\nout S f32[N,M]\nfor i:N j:M S[i,j] = X[i,j]\nfor i:N-1 par j:M-1 S[i+1,j+1] = S[i,j]*X[i,j]\n"
VECTOR = "size N=4 M=6\nin X f32[N,M]\nout Y f32[N,M]\nfor i:N vec j:M Y[i,j] = X[i,j]\n"
CASES = {
    "reduction_out": ("matmul", "loop_reorder@0.0.0:to=0"),
    "rows_in": ("matmul", "loop_reorder@0:to=2"),
    "reset_moves_in": (OUTER, "loop_reorder@0:to=2"),
    "two_reductions": ("two_reductions", "loop_reorder@0.0:to=2"),
    "integers": ("integer", "loop_reorder@0.0:to=2"),
    "maximum": ("integer", "loop_reorder@1.0:to=2"),
    "tile_loops": (TILED, "loop_reorder@0.0:to=2"),
    "body_keeps_its_tmps": (TMPS, "loop_reorder@0:to=1"),
    "recurrence_inwards": ("recurrence", "loop_reorder@1:to=1"),
    "parallel_outwards": (PARALLEL, "loop_reorder@0.0:to=0"),
    "partial_sums_kept": (PARTIAL, "loop_reorder@0.0:to=0"),
    "refuse_skewed": (SKEWED, "loop_reorder@1:to=1"),
    "refuse_partial_sums": (PARTIAL_TWO, "loop_reorder@0.0:to=2"),
    "refuse_shared_reset": (SHARED_RESET, "loop_reorder@1.0:to=0"),
    "refuse_triangle": (TRIANGLE, "loop_reorder@0:to=1"),
    "refuse_parallel_carries": (PARALLEL_STEP, "loop_reorder@1:to=1"),
    "refuse_vector": (VECTOR, "loop_reorder@0:to=1"),
    "one_row": (ONE_ROW, "loop_reorder@0:to=1"),
    "refuse_hidden_by_one_iteration": (HIDDEN, "loop_reorder@0.0:to=2"),
    "refuse_depth": ("matmul", "loop_reorder@0:to=3"),
    "refuse_same": ("matmul", "loop_reorder@0:to=0"),
    "refuse_params": ("matmul", "loop_reorder@0"),
}


@pytest.mark.parametrize("name", CASES)
def test_golden(name: str, update_goldens: bool) -> None:
    check_golden(STRATEGY, name, *CASES[name], update_goldens)


def test_no_orphan_goldens() -> None:
    check_no_orphans(STRATEGY, CASES)


def test_every_site_keeps_the_meaning() -> None:
    assert check_all(STRATEGY) >= 20


def test_neighbours_are_swapped_by_one_site_only() -> None:
    moved = [step.program for _, step in all_applied(STRATEGY, program("matmul"))]
    assert len({program_hash(p) for p in moved}) == len(moved) == 4


def test_a_reassociated_move_says_so() -> None:
    steps = {site.id: step for site, step in all_applied(STRATEGY, program("two_reductions"))}
    assert steps["loop_reorder@0.0:to=2"].exactness is Exactness.REASSOCIATED
    assert steps["loop_reorder@0:to=1"].exactness is Exactness.BITWISE


@pytest.mark.parametrize("seed", range(3))
def test_refused_orders_really_differ(seed: int) -> None:
    for text in (SKEWED, PARTIAL_TWO):
        subject = program(text)
        for path, loop in Context(subject).loops:
            if isinstance(engine.apply(subject, f"{STRATEGY}@{'.'.join(map(str, path))}:to=1"), NotApplicable) and loop.body[0].__class__ is Loop:
                inner = loop.body[0]
                swapped = replace(inner, body=(replace(loop, body=inner.body),))
                inputs = inputs_for(subject, seed)
                want, got = evaluate(subject, inputs), evaluate(replace_at(subject, path, swapped), inputs)
                if path in ((1,), (0, 0)):
                    assert any(want[n].tobytes() != got[n].tobytes() for n in want)
