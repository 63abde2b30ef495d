"""operator_fission: cutting a nest between statements."""

from __future__ import annotations

import pytest
from rewrite_support import all_applied, check_all, check_golden, check_no_orphans, check_step, program

from steptp.ir import parse
from steptp.ir.types import Scope

STRATEGY = "operator_fission"
TWO = "size N=4 M=3\nin X f32[N,M]\nout Y f32[N,M] Z f32[N,M]\nfor i:N j:M\n Y[i,j] = X[i,j]*2\n Z[i,j] = Y[i,j]+X[i,j]\n"
SCALAR = (
    "size N=4 M=3\nin X f32[N,M]\nout Y f32[N,M] Z f32[N]\nfor i:N\n tmp s f32[] local\n for j:M s[] += X[i,j]\n Z[i] = s[]\n for j:M Y[i,j] = X[i,j]/s[]\n"
)
OUTER_SCALAR = "size N=4 M=3\nin X f32[N,M]\nout Y f32[N,M]\nfor i:N\n tmp s f32[]\n for j:M\n  s[] = X[i,j]*2\n  Y[i,j] = s[]+1\n"
FORWARD_TOO = "size N=4 M=3\nin X f32[N,M]\nout Y f32[N,M] Z f32[N,M]\nfor i:N\n tmp t f32[M]\n for j:M t[j] = X[i,j]*2\n for j:M Y[i,j] = t[j]\n for j:M Z[i,j] = Y[i,j]+t[j]\n"
PARALLEL = "size N=4\nin X f32[N]\nout Y f32[N] Z f32[N]\npar i:N\n tmp s f32[] local\n s[] = X[i]*2\n Y[i] = s[]\n Z[i] = s[]+1\n"
BACK = "size N=5\nin X f32[N]\nout S f32[N+1] T f32[N]\nS[0] = 0\nfor i:N\n T[i] = S[i]*2\n S[i+1] = T[i]+X[i]\n"
TRIANGLE = "size N=4\nin X f32[N,N]\nout Y f32[N,N]\nfor i:N j:N Y[i,j] = 0\nfor i:N j:i+1\n tmp s f32[]\n s[] = X[i,j]*2\n Y[i,j] = s[]+1\n"
PARTIAL = "size N=4 K=3\nin A f32[N,K]\nout C f32[N] D f32[N,K]\nfor i:N k:K\n C[i] += A[i,k]\n D[i,k] = C[i]\n"
NESTED = "size R=2 N=4\nin X f32[R,N]\nout Y f32[R,N] Z f32[R,N]\nfor r:R\n for i:N\n  tmp s f32[2]\n  s[0] = X[r,i]\n  s[1] = X[r,i]*2\n  Y[r,i] = s[0]+s[1]\n  Z[r,i] = s[1]\n"
ONE_ROW = "size B=1\nin X f32[B]\nout Y f32[B] Z f32[]\nfor b:B\n Z[] = X[b]\n Y[b] = Z[]*2\n"
CASES = {
    "two_statements": (TWO, "operator_fission@0.0:at=1,depth=1"),
    "both_loops": (TWO, "operator_fission@0.0:at=1,depth=2"),
    "private_scalar": (SCALAR, "operator_fission@0:at=1,depth=1"),
    "scalar_used_behind_only_after": (SCALAR, "operator_fission@0:at=2,depth=1"),
    "private_array": ("tmps", "operator_fission@0:at=2,depth=1"),
    "other_buffer_flows_too": (FORWARD_TOO, "operator_fission@0:at=2,depth=1"),
    "parallel_local_becomes_global": (PARALLEL, "operator_fission@0:at=1,depth=1"),
    "inside_another_loop": (NESTED, "operator_fission@0.0:at=2,depth=1"),
    "through_both_loops": (NESTED, "operator_fission@0.0:at=3,depth=2"),
    "refuse_scalar_of_the_outer_loop": (OUTER_SCALAR, "operator_fission@0.0:at=1,depth=2"),
    "refuse_scalar_overwritten": (OUTER_SCALAR, "operator_fission@0.0:at=1,depth=1"),
    "refuse_recurrence": (BACK, "operator_fission@1:at=1,depth=1"),
    "refuse_varying_extent": (TRIANGLE, "operator_fission@1.0:at=1,depth=2"),
    "refuse_partial_sums": (PARTIAL, "operator_fission@0.0:at=1,depth=1"),
    "refuse_hidden_by_one_iteration": (ONE_ROW, "operator_fission@0:at=1,depth=1"),
    "refuse_imperfect": (SCALAR, "operator_fission@0.0:at=1,depth=2"),
    "refuse_nothing_left": (TWO, "operator_fission@0.0:at=2,depth=1"),
    "refuse_store": (TWO, "operator_fission@0.0.0:at=1,depth=1"),
    "refuse_depth": (TWO, "operator_fission@0.0:at=1,depth=3"),
    "refuse_params": (TWO, "operator_fission@0.0:at=1,to=1"),
}


@pytest.mark.parametrize("name", CASES)
def test_golden(name: str, update_goldens: bool) -> None:
    check_golden(STRATEGY, name, *CASES[name], update_goldens)


def test_no_orphan_goldens() -> None:
    check_no_orphans(STRATEGY, CASES)


def test_every_site_keeps_the_meaning() -> None:
    assert check_all(STRATEGY) >= 4


@pytest.mark.parametrize("text", [TWO, SCALAR, FORWARD_TOO, PARALLEL, NESTED, PARTIAL, BACK, TRIANGLE, OUTER_SCALAR])
def test_sites_of_the_cases(text: str) -> None:
    subject = program(text)
    for site, step in all_applied(STRATEGY, subject):
        check_step(subject, site, step)
        assert step.instances is not None


def test_an_expanded_temporary_can_be_seen_by_every_iteration() -> None:
    (step, *_) = (s for i, s in all_applied(STRATEGY, parse(PARALLEL)))
    assert [(b.name, b.scope) for b in step.program.tmps] == [("s", Scope.GLOBAL)]
