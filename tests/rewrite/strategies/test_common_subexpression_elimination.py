"""common_subexpression_elimination: computing once what is computed twice."""

from __future__ import annotations

import pytest
from rewrite_support import all_applied, check_all, check_golden, check_no_orphans, check_step, program

from steptp.verify.ladder import verify_step

STRATEGY = "common_subexpression_elimination"
NEIGHBOURS = "size N=4\nin X f32[N] b f32[N]\nout Y f32[N] Z f32[N]\nfor i:N\n Y[i] = (X[i]+b[i])*2\n Z[i] = exp(X[i]+b[i])\n"
WITHIN = "size N=4\nin X f32[N]\nout Y f32[N]\nfor i:N Y[i] = exp(X[i]*2)/(1+exp(X[i]*2))\n"
WRITTEN = "size N=4\nin X f32[N]\nout Y f32[N] Z f32[N]\nfor i:N\n Y[i] = X[i]\n Y[i] = Y[i]*2+1\n Z[i] = Y[i]*2+3\n"
WRITE_LAST = "size N=4\nin X f32[N]\nout Y f32[N] Z f32[N]\nfor i:N\n Y[i] = X[i]\n Z[i] = Y[i]*2+1\n Y[i] = Y[i]*2+3\n"
SIDES = "size N=4\nin X f32[N]\nout Y f32[N] Z f32[N]\nfor i:N\n Y[i] = select(X[i]>0,X[i]*2,0)\n Z[i] = X[i]*2\n"
SURE_FIRST = "size N=4\nin X f32[N]\nout Y f32[N] Z f32[N]\nfor i:N\n Z[i] = X[i]*2+1\n Y[i] = select(X[i]>0,X[i]*2,0)\n"
NEST_BETWEEN = "size N=4 M=2\nin X f32[N] A f32[M]\nout Y f32[N] Z f32[N]\nfor i:N\n Y[i] = X[i]*2+1\n for j:M carry Y[i] += A[j]\n Z[i] = X[i]*2+3\n"
TABLE = "size N=4 M=3\nin X f32[M] T i64[N] 0..M-1\nout Y i64[N] Z f32[N]\nfor i:N\n Y[i] = (T[i]+1)*(T[i]+1)\n Z[i] = X[T[i]+1]\n"
TWINS = "size N=4 M=3\nin X f32[N,M]\nout Y f32[N,M]\ntmp t f32[N,M] u f32[N,M]\nfor i:N j:M t[i,j] = exp(X[i,j])\nfor a:N b:M u[a,b] = exp(X[a,b])\nfor i:N j:M Y[i,j] = t[i,j]*u[i,j]\n"
SUMS = "size N=4 M=3\nin X f32[N,M]\nout Y f32[N]\ntmp t f32[N] u f32[N]\nfor i:N j:M t[i] += X[i,j]\nfor i:N j:M u[i] += X[i,j]\nfor i:N Y[i] = t[i]*u[i]\n"
CHANGED = "size N=4\nin X f32[N]\nout Y f32[N]\ntmp a f32[N] t f32[N] u f32[N]\nfor i:N a[i] = X[i]\nfor i:N t[i] = a[i]*2\nfor i:N a[i] = 0\nfor i:N u[i] = a[i]*2\nfor i:N Y[i] = t[i]+u[i]\n"
READS_TWIN = "size N=4\nin X f32[N]\nout Y f32[N]\ntmp t f32[N] u f32[N]\nfor i:N\n t[i] = X[i]\n t[i] = t[i]*2\nfor i:N\n u[i] = X[i]\n u[i] = t[i]*2\nfor i:N Y[i] = t[i]+u[i]\n"
SWAPPED = "size N=4 M=3\nin X f32[N]\nout Y f32[N]\ntmp t f32[N] u f32[N]\nfor i:N j:M t[i] += X[i]\nfor j:M i:N u[i] += X[i]\nfor i:N Y[i] = t[i]*u[i]\n"
CAPTURED = (
    "size N=3 M=3\nin X f32[N]\nout Y f32[N]\ntmp t f32[N] u f32[N]\nfor i:N j:M t[j] += X[j]+X[i]\nfor j:N i:M u[j] += X[j]+X[i]\nfor i:N Y[i] = t[i]*u[i]\n"
)
SPLIT_WRITERS = "size N=4\nin X f32[N]\nout Y f32[N]\ntmp t f32[N] u f32[N]\nfor i:N t[i] = X[i]\nfor i:N u[i] = X[i]\nfor i:N if X[i]>0: t[i] = 0\nfor i:N Y[i] = t[i]+u[i]\n"
VECTOR = "size N=4\nin X f32[N]\nout Y f32[N]\nvec i:N Y[i] = (X[i]*2)/(1+X[i]*2)\n"
BOUNDED = (
    "size N=4\nin X f32[N]\nout Y f32[N] Z f32[N]\ntmp T i64[N]\nfor i:N T[i] = i-1\nfor i:N\n Y[i] = select(0<=T[i],X[T[i]],0)\n Z[i] = select(0<=T[i],1,0)\n"
)
CASES = {
    "refuse_bounds": (BOUNDED, "common_subexpression_elimination@1.0:at=1.0"),
    "neighbouring_stores": (NEIGHBOURS, "common_subexpression_elimination@0.0:at=1.0"),
    "within_a_store": (WITHIN, "common_subexpression_elimination@0.0:at=1.0"),
    "write_behind_the_last": (WRITE_LAST, "common_subexpression_elimination@0.1:at=1.0"),
    "conditional_second": (SURE_FIRST, "common_subexpression_elimination@0.0:at=1.0"),
    "index_left_alone": (TABLE, "common_subexpression_elimination@0.0:at=1.0"),
    "twin_nests": (TWINS, "common_subexpression_elimination@1:buffer=u,other=t"),
    "twin_sums": (SUMS, "common_subexpression_elimination@1:buffer=u,other=t"),
    "refuse_write_between": (WRITTEN, "common_subexpression_elimination@0.1:at=1.0"),
    "refuse_conditional_first": (SIDES, "common_subexpression_elimination@0.0:at=1.1"),
    "refuse_nest_between": (NEST_BETWEEN, "common_subexpression_elimination@0.0:at=1.0"),
    "refuse_vector": (VECTOR, "common_subexpression_elimination@0.0:at=1.0"),
    "refuse_operand_changed": (CHANGED, "common_subexpression_elimination@3:buffer=u,other=t"),
    "refuse_reads_its_twin": (READS_TWIN, "common_subexpression_elimination@1:buffer=u,other=t"),
    "refuse_loops_swapped": (SWAPPED, "common_subexpression_elimination@1:buffer=u,other=t"),
    "refuse_loops_captured": (CAPTURED, "common_subexpression_elimination@1:buffer=u,other=t"),
    "refuse_second_writer": (SPLIT_WRITERS, "common_subexpression_elimination@1:buffer=u,other=t"),
    "refuse_order": (TWINS, "common_subexpression_elimination@0:buffer=t,other=u"),
    "refuse_read_alone": (NEIGHBOURS, "common_subexpression_elimination@0.0:at=1.0.0"),
    "refuse_once": ("softmax", "common_subexpression_elimination@2.0.0:at=2.0"),
    "refuse_params": (TWINS, "common_subexpression_elimination@1:buffer=u"),
}


@pytest.mark.parametrize("name", CASES)
def test_golden(name: str, update_goldens: bool) -> None:
    check_golden(STRATEGY, name, *CASES[name], update_goldens)


def test_no_orphan_goldens() -> None:
    check_no_orphans(STRATEGY, CASES)


def test_the_small_programs_repeat_nothing() -> None:
    assert check_all(STRATEGY) == 0


@pytest.mark.parametrize(
    "text",
    [NEIGHBOURS, WITHIN, WRITTEN, WRITE_LAST, SIDES, SURE_FIRST, NEST_BETWEEN, TABLE, TWINS, SUMS, CHANGED, READS_TWIN, SWAPPED, CAPTURED, SPLIT_WRITERS],
)
def test_sites_of_the_cases(text: str) -> None:
    subject = program(text)
    for site, step in all_applied(STRATEGY, subject):
        check_step(subject, site, step)


def test_an_operand_overwritten_behind_leaves_the_proof_to_tier_3() -> None:
    subject = program(WRITE_LAST)
    ((_, step),) = all_applied(STRATEGY, subject)
    assert step.instances is None
    verdict = verify_step(subject, step.program, applied=step, build_tiers=False)
    assert verdict.ok, verdict.message


def test_twin_reductions_are_left_to_tier_3() -> None:
    subject = program(SUMS)
    ((_, step),) = all_applied(STRATEGY, subject)
    assert step.instances is None
    verdict = verify_step(subject, step.program, applied=step, build_tiers=False)
    assert verdict.ok, verdict.message
    assert verdict.tier == 3
