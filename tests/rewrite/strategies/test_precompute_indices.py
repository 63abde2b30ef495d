"""precompute_indices: tables of index expressions."""

from __future__ import annotations

import numpy as np
import pytest
from rewrite_support import all_applied, check_golden, check_no_orphans, check_step, inputs_for, program

from steptp.analysis import safety_problems
from steptp.analysis.host import HostInfo
from steptp.interp import evaluate
from steptp.ir import print_program
from steptp.lower import BuildOptions, build
from steptp.reason import explain
from steptp.reason.checker import check_text
from steptp.rewrite import engine
from steptp.rewrite.base import Applied

STRATEGY = "precompute_indices"
FUSED = "size N=4 M=6\nin X f32[N,M]\nout Y f32[N,M]\nfor f:N*M Y[f//M,f%M] = X[f//M,f%M]*X[f//M,0]\n"
RING = "size N=6 S=4 L=5\nin X f32[L] W[N]\nout Y f32[N]\nfor i:N s:S Y[i] += X[(i*S+s)%L]*W[i]\n"
CONV = "size C=2 O=3 H=4 K=3\nin X f32[C,H+K-1] F f32[O,C,K]\nout Y f32[O,H]\nfor o:O h:H c:C r:K Y[o,h] += X[c,h+r]*F[o,c,r]\n"
PADDED = "size H=4 K=3\nin X f32[H] F f32[K]\nout Y f32[H]\nfor h:H k:K Y[h] += select(0<=h+k-1<H,X[h+k-1],0)*F[k]\n"
STRIDED = "size T=2 K=3 M=4\nin X f32[T] F f32[K]\nout Y f32[M]\nfor j:M k:K Y[j] += select(0<=j-k and (j-k)%2==0 and j-k<2*T,X[(j-k)//2],0)*F[k]\n"
INTERMEDIATE = "size N=6 M=3\nin X f32[N]\nout Y f32[N,M]\ntmp t f32[N]\nfor i:N t[i] = X[i]*2\nfor i:N j:M Y[i,j] = t[(i*2+j)%N]\n"
HOLES = "size N=6\nin X f32[N]\nout Y f32[N]\ntmp t f32[N]\nfor i:N//2 t[2*i] = X[i]\nfor i:N Y[i] = t[i//2*2]\n"
RUNNING = "size N=7\nin X f32[N]\nout S f32[N]\nS[0] = X[0]\nfor i:N-1 S[i+1] = S[(i+1)//2]*X[i]\n"
LOOKED_UP = "size N=4 M=5\nin X f32[M] T i64[N] 0..M\nout Y f32[N]\nfor i:N Y[i] = X[T[i]%M]\n"
TRIANGLE = "size N=5\nin X f32[N]\nout Y f32[N]\nfor i:N j:i+1 Y[i] += X[(i+j)//2]\n"
VECTOR = "size N=4 M=8\nin X f32[N,M]\nout Y f32[N,M]\nfor i:N vec j:M Y[i,j] = X[(i+j)%N,j]\n"
CASES = {
    "quotient": (FUSED, "precompute_indices@0.0:at=2.0.0"),
    "remainder": (RING, "precompute_indices@0.0.0:at=1.0.0"),
    "window": (CONV, "precompute_indices@0.0.0.0.0:at=2.0.1"),
    "part_of_an_index": ("size N=4 K=3\nin X f32[2*N+K]\nout Y f32[N]\nfor i:N k:K Y[i] += X[i//2+k]\n", "precompute_indices@0.0.0:at=1.0.0"),
    "temporary": (INTERMEDIATE, "precompute_indices@1.0.0:at=2.0"),
    "condition": (PADDED, "precompute_indices@0.0.0:at=1.0.1.0"),
    "refuse_other_condition": (STRIDED, "precompute_indices@0.0.0:at=1.0.1.0"),
    "refuse_holes": (HOLES, "precompute_indices@1.0:at=1.0"),
    "refuse_recurrence": (RUNNING, "precompute_indices@1.0:at=1.0.0"),
    "refuse_memory": (LOOKED_UP, "precompute_indices@0.0:at=1.0"),
    "refuse_triangle": (TRIANGLE, "precompute_indices@0.0.0:at=1.0"),
    "refuse_extent_sign": (
        "size N=4 M=3\nin X f32[N]\nout Y f32[M]\nfor i:N-2 if i<M: Y[i] = X[i//2]\nfor i:M if i>=N-2: Y[i] = 0\n",
        "precompute_indices@0.0.0:at=1.0",
    ),
    "refuse_target": (FUSED, "precompute_indices@0.0:at=0"),
    "refuse_value": (CONV, "precompute_indices@0.0.0.0.0:at=2"),
    "refuse_trivial": (CONV, "precompute_indices@0.0.0.0.0:at=2.0.0"),
    "refuse_plain_sum": ("size N=4\nin X f32[N+1]\nout Y f32[N]\nfor i:N Y[i] = X[i+1]\n", "precompute_indices@0.0:at=1.0"),
    "refuse_no_expression": (CONV, "precompute_indices@0.0.0.0.0:at=2.7"),
    "refuse_params": (CONV, "precompute_indices@0"),
}


@pytest.mark.parametrize("name", CASES)
def test_golden(name: str, update_goldens: bool) -> None:
    check_golden(STRATEGY, name, *CASES[name], update_goldens)


def test_no_orphan_goldens() -> None:
    check_no_orphans(STRATEGY, CASES)


@pytest.mark.parametrize("text", [FUSED, RING, CONV, PADDED, INTERMEDIATE, RUNNING, TRIANGLE, VECTOR])
def test_sites_of_the_cases(text: str) -> None:
    subject, host = program(text), HostInfo.detect()
    for site, step in all_applied(STRATEGY, subject):
        check_step(subject, site, step)
        assert step.instances is not None
        assert not list(safety_problems(step.program)), print_program(step.program)
        why = explain(subject, step, site, candidates=[site], rule="balanced-random", host=host)
        assert check_text(why.text, subject, step.program, site.id, candidates=[site.id], host=host.to_dict()) == ()


def test_every_expression_once_and_undone() -> None:
    listed = [(site.id, [s.strategy for s in step.inverse]) for site, step in all_applied(STRATEGY, program(FUSED))]
    assert [s.id for s, _ in all_applied(STRATEGY, program(PADDED))] == ["precompute_indices@0.0.0:at=1.0.1.0"]  # not where a condition has it
    assert listed == [(f"precompute_indices@0.0:at={at}", ["compute_inline", "dead_code_elimination"]) for at in ("2.0.0", "2.0.1")]


def test_a_table_read_by_vector_lanes_compiles() -> None:
    subject = program(VECTOR)
    (found,) = [step for _, step in all_applied(STRATEGY, subject)]
    inputs = inputs_for(subject)
    got = build(found.program, BuildOptions(fma=False)).run(inputs)
    assert np.array_equal(got["Y"], evaluate(subject, inputs)["Y"])


def test_the_range_of_the_whole_index_counts() -> None:
    text = "size N=4 K=3\nin X f32[K+1]\nout Y f32[N]\nfor i:N k:K Y[i] += X[i-i//2*2+k]\n"
    outcome = engine.apply(program(text), "precompute_indices@0.0.0:at=1.0")
    assert not isinstance(outcome, Applied)
    assert outcome.code == "bounds"
