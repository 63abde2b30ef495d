"""set_storage_scope: local, shared and global temporaries."""

from __future__ import annotations

import numpy as np
import pytest
from rewrite_support import PROGRAMS, all_applied, check_golden, check_no_orphans, check_step, inputs_for, program

from steptp.analysis import safety_problems
from steptp.analysis.host import HostInfo
from steptp.interp import evaluate
from steptp.interp.emulate import emulate
from steptp.ir import Program, print_program
from steptp.lower.cuda import lower_to_cuda_tir
from steptp.reason import explain
from steptp.reason.checker import check_text
from steptp.rewrite import engine
from steptp.rewrite.base import NotApplicable

STRATEGY = "set_storage_scope"
REVERSE = "size N=3 M=4\nin X f32[N,M]\nout Y f32[N,M]\nbx i:N\n tmp t f32[M]\n tx j:M t[j] = X[i,j]\n tx j:M Y[i,j] = t[M-1-j]\n"
SAME = "size N=3 M=4\nin X f32[N,M]\nout Y f32[N,M]\nbx i:N tx j:M\n tmp t f32[2]\n for k:2 t[k] = X[i,j]+f32(k)\n Y[i,j] = t[0]*t[1]\n"
BOTH = "size N=3 M=4\nin X f32[N,M]\nout Y f32[N,M]\nbx i:N\n tmp t f32[M] shared\n tx j:M t[j] = X[i,j]\n tx j:M Y[i,j] = t[j]\n"
OUTSIDE = "size N=3 M=4\nin X f32[N,M]\nout Y f32[N,M]\ntmp t f32[N,M]\nbx i:N tx j:M t[i,j] = X[i,j]\nbx i:N tx j:M Y[i,j] = t[i,j]\n"
PAR = "size N=3 M=4\nin X f32[N,M]\nout Y f32[N,M]\ntmp t f32[N,M]\npar i:N for j:M t[i,j] = X[i,j]\nfor i:N j:M Y[i,j] = t[i,j]\n"
LARGE = "size N=3 M=10000\nin X f32[N,M]\nout Y f32[N,M]\nbx i:N\n tmp t f32[M]\n for j:M t[j] = X[i,j]\n for j:M Y[i,j] = t[M-1-j]\n"
SHORT = "size N=3 M=4 S=3\nin X f32[N,M]\nout Y f32[N,M] Z[N]\nbx i:N\n tmp t f32[S] local\n tx j:M Y[i,j] = X[i,j]\n for j:S t[j] = X[i,j]\n Z[i] = t[S-1]\n"
ALONE = "size N=3 M=4\nin X f32[N,M]\nout Y f32[N,M]\nbx i:N\n tmp t f32[M]\n for j:M t[j] = X[i,j]\n for j:M Y[i,j] = t[M-1-j]\n"
CASES = {
    "local": ("tmps", "set_storage_scope@0:buffer=t,scope=local"),
    "of_the_program": ("softmax", "set_storage_scope@:buffer=m,scope=local"),
    "shared": (REVERSE, "set_storage_scope@0:buffer=t,scope=shared"),
    "local_in_a_thread": (SAME, "set_storage_scope@0.0:buffer=t,scope=local"),
    "global_again": (BOTH, "set_storage_scope@0:buffer=t,scope=global"),
    "global_from_local": (SHORT, "set_storage_scope@0:buffer=t,scope=global"),
    "refuse_other_threads": (REVERSE, "set_storage_scope@0:buffer=t,scope=local"),
    "refuse_no_block": ("tmps", "set_storage_scope@0:buffer=t,scope=shared"),
    "refuse_in_a_thread": (SAME, "set_storage_scope@0.0:buffer=t,scope=shared"),
    "refuse_kernels": (OUTSIDE, "set_storage_scope@:buffer=t,scope=local"),
    "refuse_parallel": (PAR, "set_storage_scope@:buffer=t,scope=local"),
    "refuse_size": (LARGE, "set_storage_scope@0:buffer=t,scope=local"),
    "refuse_output": ("matmul", "set_storage_scope@:buffer=C,scope=local"),
    "refuse_same": (BOTH, "set_storage_scope@0:buffer=t,scope=shared"),
    "refuse_place": (BOTH, "set_storage_scope@:buffer=t,scope=global"),
    "refuse_params": (BOTH, "set_storage_scope@0:buffer=t,scope=register"),
}


@pytest.mark.parametrize("name", CASES)
def test_golden(name: str, update_goldens: bool) -> None:
    check_golden(STRATEGY, name, *CASES[name], update_goldens)


def test_no_orphan_goldens() -> None:
    check_no_orphans(STRATEGY, CASES)


@pytest.mark.parametrize("text", [*PROGRAMS, OUTSIDE, PAR])
def test_outside_of_kernels_nothing_is_listed(text: str) -> None:
    """There a scope changes no code: not on a CPU, and not on a GPU either."""
    assert not list(all_applied(STRATEGY, program(text)))


def test_what_is_listed_moves_the_temporary_in_the_kernel() -> None:
    listed = {text: [site.id for site, _ in all_applied(STRATEGY, program(text))] for text in (REVERSE, SAME, BOTH, SHORT, ALONE)}
    assert listed == {
        REVERSE: [],  # the block's already
        SAME: [],  # the thread's already
        BOTH: [],
        SHORT: [f"set_storage_scope@0:buffer=t,scope={scope}" for scope in ("shared", "global")],  # unnamed, it is the block's
        ALONE: ["set_storage_scope@0:buffer=t,scope=shared"],
    }
    for text, sites in listed.items():
        for site in sites:
            step = engine.applied_or_raise(program(text), site)
            assert _cuda(program(text)) != _cuda(step.program)


def _cuda(subject: Program) -> str:
    return str(lower_to_cuda_tir(subject))


@pytest.mark.parametrize("text", [REVERSE, SAME, BOTH, OUTSIDE, LARGE, SHORT, ALONE])
def test_sites_of_the_cases(text: str) -> None:
    subject, host = program(text), HostInfo.detect()
    for site, step in all_applied(STRATEGY, subject):
        if text is not LARGE:
            check_step(subject, site, step)
            inputs = inputs_for(subject)
            want = evaluate(subject, inputs)
            assert all(np.array_equal(v, want[k]) for k, v in emulate(step.program, inputs).items())
        assert not list(safety_problems(step.program)), print_program(step.program)
        why = explain(subject, step, site, candidates=[site], rule="balanced-random", host=host)
        assert check_text(why.text, subject, step.program, site.id, candidates=[site.id], host=host.to_dict()) == ()


def test_what_is_refused_between_threads_would_be_a_race() -> None:
    """The refusal and the race proof agree on the program that the step would give."""
    from dataclasses import replace

    from steptp.ir import Loop, Scope
    from steptp.ir.walk import replace_at

    subject = program(REVERSE)
    outcome = engine.apply(subject, "set_storage_scope@0:buffer=t,scope=local")
    assert isinstance(outcome, NotApplicable)
    loop = subject.body[0]
    assert isinstance(loop, Loop)
    wrong = replace_at(subject, (0,), replace(loop, tmps=(replace(loop.tmps[0], scope=Scope.LOCAL),)))
    assert any(p.code == "race" for p in safety_problems(wrong))
