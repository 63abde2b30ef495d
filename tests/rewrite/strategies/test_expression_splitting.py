"""expression_splitting: naming sub-expressions."""

from __future__ import annotations

import pytest
from rewrite_support import all_applied, check_all, check_golden, check_no_orphans, check_step, program

STRATEGY = "expression_splitting"
BILINEAR = "size N=4 M=3\nin X f32[N,M] b f32[N]\nout Y f32[N,M]\nfor i:N j:M Y[i,j] = (X[i,j]+1)*exp(b[i])\n"
GUARDED = "size N=4\nin X f32[N]\nout Y f32[N]\nfor i:N Y[i] = 0\nfor i:N if i+1<N: Y[i] = X[i+1]*2+1\n"
SELECT = "size N=4\nin X f32[N+1]\nout Y f32[N]\nfor i:N Y[i] = select(X[i]*2>1,X[i+1]*3,0)\n"
TRIANGLE = "size N=4\nin X f32[N]\nout Y f32[N,N]\nfor i:N j:N Y[i,j] = 0\nfor i:N j:i Y[i,j] = X[i-1]*2+1\n"
NEVER = "size N=4 M=0\nin X f32[N] Z f32[N,M]\nout Y f32[N,M]\nfor i:N j:M Y[i,j] = X[i+9]*2+Z[i,j]\n"
SELF = "size N=4\nin X f32[N]\nout S f32[N+1]\nS[0] = 1\nfor i:N S[i+1] = S[i]*2+X[i]\n"
IN_PLACE = "size N=4 R=2\nin X f32[N]\nout Y f32[N]\nfor i:N Y[i] = X[i]\nfor r:R i:N Y[i] = Y[i]*2+1\n"
PRIVATE = "size N=4\nin X f32[N]\nout Y f32[N]\nfor i:N\n tmp u f32[]\n u[] = X[i]\n Y[i] = (u[]+X[i])*2\n"
VECTOR = "size N=4\nin X f32[N]\nout Y f32[N]\nvec i:N Y[i] = (X[i]+1)*2\n"
TABLE = "size N=4 M=3\nin X f32[M] T i64[N] 0..M-1\nout Y f32[N]\nfor i:N Y[i] = X[T[i]+1]*2+1\n"
BOUNDED = "size N=4\nin X f32[N] W f32[N]\nout Y f32[N]\ntmp T i64[N]\nfor i:N T[i] = i-1\nfor i:N Y[i] = select(0<=T[i] and W[i]>1,X[T[i]],0)\n"
HELD = BOUNDED.replace("T[i] = i-1", "T[i] = N-i-1").replace("0<=T[i]", "1<=T[i]")
SCALARS = "in a f32[] b f32[]\nout c f32[]\nc[] = (a[]+b[])*2\n"
CASES = {
    "scalar": (BILINEAR, "expression_splitting@0.0.0:at=2.0,into=scalar"),
    "tensor": (BILINEAR, "expression_splitting@0.0.0:at=2.0,into=tensor"),
    "row_tensor": (BILINEAR, "expression_splitting@0.0.0:at=2.1,into=tensor"),
    "summand": ("matmul", "expression_splitting@0.0.0.0:at=2,into=tensor"),
    "under_a_guard": (GUARDED, "expression_splitting@1.0.0:at=1.0,into=scalar"),
    "condition": (SELECT, "expression_splitting@0.0:at=1.0.0,into=scalar"),
    "running_value": (SELF, "expression_splitting@1.0:at=1.0,into=scalar"),
    "in_place": (IN_PLACE, "expression_splitting@1.0.0:at=1.0,into=scalar"),
    "refuse_guarded_tensor": (GUARDED, "expression_splitting@1.0.0:at=1.0,into=tensor"),
    "refuse_side_of_select": (SELECT, "expression_splitting@0.0:at=1.1,into=scalar"),
    "refuse_triangle": (TRIANGLE, "expression_splitting@1.0.0:at=2.0,into=tensor"),
    "refuse_never_evaluated": (NEVER, "expression_splitting@0.0.0:at=2.0,into=tensor"),
    "refuse_written": (SELF, "expression_splitting@1.0:at=1.0,into=tensor"),
    "refuse_private": (PRIVATE, "expression_splitting@0.1:at=1.0,into=tensor"),
    "refuse_vector": (VECTOR, "expression_splitting@0.0:at=1.0,into=scalar"),
    "refuse_index": (TABLE, "expression_splitting@0.0:at=1.0.0.0,into=scalar"),
    "refuse_whole": (BILINEAR, "expression_splitting@0.0.0:at=2,into=scalar"),
    "refuse_read_alone": (BILINEAR, "expression_splitting@0.0.0:at=2.1.0,into=scalar"),
    "condition_on_a_table": (HELD, "expression_splitting@1.0:at=1.0.0,into=scalar"),
    "refuse_bounds": (BOUNDED, "expression_splitting@1.0:at=1.0.0,into=scalar"),
    "refuse_outermost": (SCALARS, "expression_splitting@0:at=0.0,into=scalar"),
    "refuse_no_place": (BILINEAR, "expression_splitting@0.0.0:at=2.5,into=scalar"),
    "refuse_params": (BILINEAR, "expression_splitting@0.0.0:at=2.0"),
}


@pytest.mark.parametrize("name", CASES)
def test_golden(name: str, update_goldens: bool) -> None:
    check_golden(STRATEGY, name, *CASES[name], update_goldens)


def test_no_orphan_goldens() -> None:
    check_no_orphans(STRATEGY, CASES)


def test_every_site_keeps_the_meaning() -> None:
    assert check_all(STRATEGY) >= 8


@pytest.mark.parametrize("text", [BILINEAR, GUARDED, SELECT, TRIANGLE, SELF, PRIVATE, VECTOR, TABLE, BOUNDED, HELD])
def test_sites_of_the_cases(text: str) -> None:
    subject = program(text)
    for site, step in all_applied(STRATEGY, subject):
        check_step(subject, site, step)


def test_an_overwritten_operand_leaves_the_proof_to_tier_3() -> None:
    from steptp.verify.ladder import verify_step

    subject = program(IN_PLACE)
    steps = [step for site, step in all_applied(STRATEGY, subject) if site.path == (1, 0, 0)]
    assert steps
    assert not steps[0].inverse
    verdict = verify_step(subject, steps[0].program, applied=steps[0], build_tiers=False)
    assert verdict.ok, verdict.message


def test_a_whole_tensor_can_be_undone() -> None:
    undone = [site.id for site, step in all_applied(STRATEGY, program(BILINEAR)) if step.inverse]
    assert undone == [site.id for site, _ in all_applied(STRATEGY, program(BILINEAR))]
