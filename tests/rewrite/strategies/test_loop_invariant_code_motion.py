"""loop_invariant_code_motion: expressions leave the loops that they do not depend on."""

from __future__ import annotations

import pytest
from rewrite_support import all_applied, check_all, check_golden, check_no_orphans, check_step, program

from steptp.rewrite import engine

STRATEGY = "loop_invariant_code_motion"
NORM = "in X f32[N=3,M=4] v[N] w[M]\nout Y[N,M]\nfor i j Y[i,j]=X[i,j]*rsqrt(v[i]/f32(M)+1)*w[j]\n"
SCALE = "in X f32[N=3,M=4]\nout Y[N,M]\nfor i j Y[i,j]=X[i,j]*(1/sqrt(f32(M)))\n"
SUM = "size M=4\nin v f32[N=3]\nout Y[N]\nfor i j:M Y[i]+=exp(v[i])\n"
TWO_DEEP = "in X f32[N=3,M=4,K=2] v[N]\nout Y[N,M,K]\nfor i j k Y[i,j,k]=X[i,j,k]*exp(v[i])\n"
PARALLEL = "in X f32[N=3,M=4] v[N]\nout Y[N,M]\nfor i par j Y[i,j]=X[i,j]*exp(v[i])\n"
VECTOR = "in X f32[N=3,M=4] v[N]\nout Y[N,M]\nfor i vec j Y[i,j]=X[i,j]*exp(v[i])\n"
MASK = "in X f32[N=3,M=4] v[N]\nout Y[N,M]\nfor i j Y[i,j]=select(j<2,exp(v[i]),X[i,j])\n"
GUARD = "in X f32[N=3,M=4] v[N]\nout Y[N,M]\nfor i j Y[i,j]=0\nfor i j if j<2: Y[i,j]=X[i,j]*exp(v[i])\n"
WRITTEN = "in X f32[N=3,M=4]\nout Y[N,M]\ntmp t[N]\nfor i t[i]=0\nfor i j\n Y[i,j]=X[i,j]*exp(t[i])\n t[i]=Y[i,j]\n"
PRIVATE = "in X f32[N=3,M=4]\nout Y[N,M]\nfor i j\n tmp t[]\n t[]=X[i,j]\n Y[i,j]=exp(t[])\n"
KERNEL = "in X f32[N=3,M=4] v[N]\nout Y[N,M]\nbx i tx j Y[i,j]=X[i,j]*exp(v[i])\n"
EMPTY = "size N=3 M=0\nin X f32[N,M] v[N]\nout Y[N,M]\nfor i j Y[i,j]=X[i,j]*exp(v[i])\n"
CASES = {
    "out_of_the_row": (NORM, "loop_invariant_code_motion@0.0.0:at=2.0.1,out=1"),
    "out_of_the_nest": (SCALE, "loop_invariant_code_motion@0.0.0:at=2.1,out=2"),
    "one_loop_only": (SCALE, "loop_invariant_code_motion@0.0.0:at=2.1,out=1"),
    "whole_value_of_a_sum": (SUM, "loop_invariant_code_motion@0.0.0:at=1,out=1"),
    "two_loops": (TWO_DEEP, "loop_invariant_code_motion@0.0.0.0:at=3.1,out=2"),
    "out_of_a_parallel_loop": (PARALLEL, "loop_invariant_code_motion@0.0.0:at=2.1,out=1"),
    "out_of_a_vector_loop": (VECTOR, "loop_invariant_code_motion@0.0.0:at=2.1,out=1"),
    "refuse_varies": (NORM, "loop_invariant_code_motion@0.0.0:at=2.0.1,out=2"),
    "refuse_too_far": (SCALE, "loop_invariant_code_motion@0.0.0:at=2.1,out=3"),
    "refuse_select": (MASK, "loop_invariant_code_motion@0.0.0:at=2.1,out=1"),
    "refuse_guard": (GUARD, "loop_invariant_code_motion@1.0.0.0:at=2.1,out=1"),
    "refuse_written": (WRITTEN, "loop_invariant_code_motion@1.0.0:at=2.1,out=1"),
    "refuse_private": (PRIVATE, "loop_invariant_code_motion@0.0.1:at=2,out=1"),
    "refuse_kernel": (KERNEL, "loop_invariant_code_motion@0.0.0:at=2.1,out=1"),
    "refuse_empty_loop": (EMPTY, "loop_invariant_code_motion@0.0.0:at=2.1,out=1"),
    "refuse_read": (NORM, "loop_invariant_code_motion@0.0.0:at=2.1,out=1"),
    "refuse_no_expression": (NORM, "loop_invariant_code_motion@0.0.0:at=2.7,out=1"),
    "refuse_bad_site": (NORM, "loop_invariant_code_motion@0.0.0:at=2.0.1"),
}


@pytest.mark.parametrize("name", CASES)
def test_golden(name: str, update_goldens: bool) -> None:
    check_golden(STRATEGY, name, *CASES[name], update_goldens)


def test_no_orphan_goldens() -> None:
    check_no_orphans(STRATEGY, CASES)


def test_every_site_keeps_the_bits() -> None:
    check_all(STRATEGY)
    for text in (NORM, SCALE, SUM, TWO_DEEP, PARALLEL, VECTOR, MASK, GUARD, WRITTEN, PRIVATE):
        subject = program(text)
        for site, step in all_applied(STRATEGY, subject):
            check_step(subject, site, step)
            assert step.instances is not None
            assert step.inverse


def test_the_largest_expression_is_listed_as_far_out_as_it_goes() -> None:
    found = [s.id for s in engine.sites(program(TWO_DEEP), [STRATEGY], limit=None).sites]
    assert found == ["loop_invariant_code_motion@0.0.0.0:at=3.1,out=2"]
    assert [s.id for s in engine.sites(program(NORM), [STRATEGY], limit=None).sites] == [
        "loop_invariant_code_motion@0.0.0:at=2.0.1,out=1",
    ]
