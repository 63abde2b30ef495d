"""loop_binding: loops on GPU axes."""

from __future__ import annotations

import random

import numpy as np
import pytest
from rewrite_support import PROGRAMS, all_applied, check_all, check_golden, check_no_orphans, check_step, inputs_for, program

from steptp.analysis import safety_problems
from steptp.analysis.host import HostInfo
from steptp.errors import LeirError
from steptp.interp import evaluate
from steptp.interp.emulate import emulate
from steptp.ir import Program, print_program, problems, rebind
from steptp.ir.kernels import kernels
from steptp.lower.cuda import lower_to_cuda_tir
from steptp.reason import explain
from steptp.reason.checker import check_text
from steptp.rewrite import engine
from steptp.rewrite.base import Applied, NotApplicable

STRATEGY = "loop_binding"
PLAIN = "size N=4 M=6\nin X f32[N,M]\nout Y f32[N,M]\nfor i:N j:M Y[i,j] = X[i,j]*2\n"
GRID = "size N=4 M=6\nin X f32[N,M]\nout Y f32[N,M]\nbx i:N for j:M Y[i,j] = X[i,j]*2\n"
BLOCK = "size N=4 M=6\nin X f32[N,M]\nout Y f32[N,M]\nfor i:N tx j:M Y[i,j] = X[i,j]*2\n"
TWO = "size N=4 M=6\nin X f32[N,M]\nout Y f32[N,M] Z[N,M]\nbx i:N\n for j:M Y[i,j] = X[i,j]*2\n for j:M Z[i,j] = Y[i,M-1-j]\n"
TWO_BOUND = TWO.replace(" for j:M Y", " tx j:M Y")
TWO_GRIDS = TWO.replace(" for j:M Y", " by j:M Y")
STENCIL = "size T=3 N=6\nin X f32[N]\nout Y f32[T+1,N]\nfor i:N Y[0,i] = X[i]\nfor t:T i:N Y[t+1,i] = Y[t,(i+1)%N]\n"
STENCIL_KERNEL = "size R=2 T=3 N=6\nin X f32[R,N]\nout Y f32[R,T+1,N]\nfor r:R i:N Y[r,0,i] = X[r,i]\nbx r:R for t:T i:N Y[r,t+1,i] = Y[r,t,(i+1)%N]\n"
SHARED = "size N=3 M=4\nin X f32[N,M]\nout Y f32[N,M]\nbx i:N\n tmp t f32[M] shared\n for j:M t[j] = X[i,j]\n for j:M Y[i,j] = t[M-1-j]\n"
LOCAL = "size N=3 M=4\nin X f32[N,M]\nout Y f32[N,M]\nfor i:N\n tmp c f32[M] local\n for j:M c[j] = X[i,j]\n for j:M Y[i,j] = c[j]*2\n"
WIDE = "size N=4 M=1500\nin X f32[N,M]\nout Y f32[N,M]\nfor i:N j:M Y[i,j] = X[i,j]*2\n"
DEEP = "size N=40 M=40\nin X f32[N,M]\nout Y f32[N,M]\nfor i:N tx j:M Y[i,j] = X[i,j]*2\n"
BIG_TMP = (
    "size N=3 M=13000\nin X f32[N,M]\nout Y f32[N,M]\nfor i:N\n tmp t f32[M]\n tx j:4 if j<1: t[j] = X[i,j]\n for j:M t[j] = X[i,j]\n for j:M Y[i,j] = t[j]\n"
)
TRIANGLE = "size N=4\nin X f32[N]\nout Y f32[N,N]\nfor i:N j:N Y[i,j] = 0\nfor i:N j:i+1 Y[i,j] = X[j]\n"
SCATTER = "size N=8 B=4\nin T i32[N] 0..B X f32[N]\nout H f32[B]\nfor b:B H[b] = 0\nfor i:N carry H[i64(T[i])] += X[i]\n"
PARALLEL = "size N=4 M=6\nin X f32[N,M]\nout Y f32[N,M]\npar i:N for j:M Y[i,j] = X[i,j]\n"
OUTER_PARALLEL = "size N=4 M=6\nin X f32[N,M]\nout Y f32[N,M]\nfor i:N par j:M Y[i,j] = X[i,j]\n"
DIVERGENT = "size N=2 M=4 S=2\nin X f32[N,M]\nout Y f32[N,M]\nbx i:N\n tmp B f32[S,M] shared\n for j:M Y[i,j] = 0\n ty k:S\n  if k<1:\n   tx j:2 B[k,j] = X[i,j]\n   tx j:2 Y[i,j] = B[k,1-j]\n for k:4\n  if k>=2: Y[i,k] = X[i,k]\n"
FIXED = "in X f32[8,4]\nout Y f32[8,4]\nfor i:8 j:4 Y[i,j] = X[i,j]\n"
CASES = {
    "block": (PLAIN, "loop_binding@0:axis=bx"),
    "thread": (GRID, "loop_binding@0.0:axis=tx"),
    "second_axis": (BLOCK, "loop_binding@0:axis=ty"),
    "third_axis": (PLAIN, "loop_binding@0:axis=tz"),
    "matmul_rows": ("matmul", "loop_binding@0:axis=bx"),
    "private_tmp": ("tmps", "loop_binding@0:axis=tx"),
    "neighbours": (TWO_BOUND, "loop_binding@0.1:axis=tx"),
    "steps_of_a_kernel": (STENCIL_KERNEL, "loop_binding@1.0.0:axis=tx"),
    "launched_in_a_loop": (STENCIL, "loop_binding@1.0:axis=bx"),
    "fixed_sizes": (FIXED, "loop_binding@0.0:axis=tx"),
    "unbound": (GRID, "loop_binding@0:axis=none"),
    "refuse_reduction": ("matmul", "loop_binding@0.0.0:axis=tx"),
    "refuse_axis_taken": (GRID, "loop_binding@0.0:axis=bx"),
    "refuse_block_inside": (BLOCK.replace("tx", "for").replace("for i", "tx i"), "loop_binding@0.0:axis=bx"),
    "refuse_thread_outside": (BLOCK.replace("tx", "by"), "loop_binding@0:axis=tx"),
    "refuse_between_blocks": (TWO_GRIDS, "loop_binding@0.1:axis=by"),
    "refuse_steps_of_blocks": (STENCIL_KERNEL, "loop_binding@1.0.0:axis=by"),
    "refuse_local_outside": (LOCAL, "loop_binding@0.1:axis=tx"),
    "refuse_shared_inside": (SHARED.replace("bx i:N\n", "bx r:1 for i:N\n"), "loop_binding@0.0:axis=ty"),
    "refuse_too_many_threads": (WIDE, "loop_binding@0.0:axis=tx"),
    "refuse_too_many_together": (DEEP, "loop_binding@0:axis=ty"),
    "refuse_memory": (BIG_TMP, "loop_binding@0:axis=bx"),
    "refuse_triangle": (TRIANGLE, "loop_binding@1.0:axis=tx"),
    "refuse_look_up": (SCATTER, "loop_binding@1:axis=tx"),
    "refuse_parallel": (PARALLEL, "loop_binding@0:axis=bx"),
    "refuse_inside_parallel": (PARALLEL, "loop_binding@0.0:axis=tx"),
    "refuse_around_parallel": (OUTER_PARALLEL, "loop_binding@0:axis=bx"),
    "refuse_divergent": (DIVERGENT, "loop_binding@0.0:axis=tx"),
    "refuse_not_bound": (PLAIN, "loop_binding@0:axis=none"),
    "refuse_unbinding_blocks": (SHARED, "loop_binding@0:axis=none"),
    "refuse_params": (PLAIN, "loop_binding@0:axis=warp"),
}


@pytest.mark.parametrize("name", CASES)
def test_golden(name: str, update_goldens: bool) -> None:
    check_golden(STRATEGY, name, *CASES[name], update_goldens)


def test_no_orphan_goldens() -> None:
    check_no_orphans(STRATEGY, CASES)


def test_every_site_keeps_the_meaning() -> None:
    assert check_all(STRATEGY) >= 30


def _emulated(subject: Program) -> None:
    """The kernels, run thread by thread in two orders, give the bits of serial order and show no race; they can be lowered."""
    inputs = inputs_for(subject)
    want = evaluate(subject, inputs)
    for seed in (1, 2):
        got = emulate(subject, inputs, seed=seed)
        assert all(np.array_equal(got[name], value, equal_nan=True) for name, value in want.items()), print_program(subject)
    lower_to_cuda_tir(subject)


@pytest.mark.parametrize("text", [*PROGRAMS, TWO, TWO_BOUND, STENCIL, STENCIL_KERNEL, SHARED, LOCAL, DIVERGENT])
def test_bound_programs_run_as_kernels(text: str) -> None:
    subject, host = program(text), HostInfo.detect()
    for site, step in all_applied(STRATEGY, subject):
        check_step(subject, site, step)
        assert list(safety_problems(subject)) or not list(safety_problems(step.program)), print_program(step.program)
        _emulated(step.program)
        why = explain(subject, step, site, candidates=[site], rule="balanced-random", host=host)
        assert check_text(why.text, subject, step.program, site.id, candidates=[site.id], host=host.to_dict()) == ()


@pytest.mark.parametrize("text", [*PROGRAMS, TWO, STENCIL_KERNEL])
def test_several_bindings_together(text: str) -> None:
    """Random bindings, scopes and fusions on top of one another: proven safe, emulated without a race, and lowered."""
    subject, rng = program(text), random.Random(text)
    for _ in range(8):
        listed = [s for s in engine.sites(subject, [STRATEGY, "set_storage_scope", "operator_fusion", "cache_read_write"]).sites if "none" not in s.id]
        if not listed:
            break
        before, subject = subject, engine.applied_or_raise(subject, rng.choice(listed)).program
        assert list(safety_problems(before)) or not list(safety_problems(subject)), print_program(subject)
        _emulated(subject)
    assert kernels(subject)


def test_limits_hold_at_every_binding_that_the_header_allows() -> None:
    bound = engine.applied_or_raise(engine.applied_or_raise(program(PLAIN), "loop_binding@0.0:axis=tx").program, "loop_binding@0:axis=ty").program
    with pytest.raises(LeirError):
        rebind(bound, {"N": 100, "M": 11})
    assert not problems(rebind(bound, {"N": 64, "M": 16}))


@pytest.mark.parametrize(("text", "site"), [(TWO_GRIDS, "loop_binding@0.1:axis=by"), (STENCIL_KERNEL, "loop_binding@1.0.0:axis=by")])
def test_refused_crossings_are_races(text: str, site: str) -> None:
    """What is refused between blocks, the race proof and the emulator find in the program that the step would give."""
    from dataclasses import replace

    from steptp.interp.errors import EvalError
    from steptp.ir import Loop, LoopKind
    from steptp.ir.walk import get, replace_at
    from steptp.rewrite.base import Site

    subject, path = program(text), Site.parse(site).path
    assert isinstance(engine.apply(subject, site), NotApplicable)
    loop = get(subject, path)
    assert isinstance(loop, Loop)
    wrong = replace_at(subject, path, replace(loop, kind=LoopKind.BLOCK_Y))
    assert any(p.code == "race" for p in safety_problems(wrong))
    with pytest.raises(EvalError) as caught:
        emulate(wrong, inputs_for(wrong))
    assert caught.value.code in ("eval-race", "eval-undefined")


def test_bindings_are_undone() -> None:
    for text in (PLAIN, GRID, STENCIL_KERNEL):
        assert all(isinstance(step, Applied) and step.inverse for _, step in all_applied(STRATEGY, program(text)))
