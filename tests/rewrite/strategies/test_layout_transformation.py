"""layout_transformation: permuted temporaries and permuted copies of inputs."""

from __future__ import annotations

import pytest
from rewrite_support import all_applied, check_all, check_golden, check_no_orphans, check_step, program

from steptp.analysis import safety_problems

STRATEGY = "layout_transformation"
TWO_STEPS = "size N=4 M=3 K=2\nin X f32[N,M,K]\nout Y f32[N,M,K]\ntmp t f32[N,M,K]\nfor i:N j:M k:K t[i,j,k] = X[i,j,k]*2\nfor i:N j:M k:K Y[i,j,k] = t[i,j,k]+t[i,0,k]\n"
PRIVATE = (
    "size R=2 N=4 M=3\nin X f32[R,N,M]\nout Y f32[R,M,N]\nfor r:R\n tmp t f32[N,M] local\n for i:N j:M t[i,j] = X[r,i,j]\n for j:M i:N Y[r,j,i] = t[i,j]\n"
)
SUM = "size N=4 M=3 K=2\nin X f32[N,M,K]\nout Y f32[N,M]\ntmp t f32[N,M]\nfor i:N j:M k:K t[i,j] += X[i,j,k]\nfor i:N j:M Y[i,j] = 0\nfor i:N j:M if t[i,j]>=1: Y[i,j] = t[i,j]\n"
TABLE = "size N=4 M=3 K=5\nin X f32[K] T i64[N,M] 0..K\nout Y f32[N,M]\nfor i:N j:M Y[i,j] = X[T[i,j]]\n"
DIAGONAL = "size N=4\nin X f32[N]\nout Y f32[N]\ntmp t f32[N,N]\nfor i:N t[i,i] = X[i]\nfor i:N Y[i] = t[i,i]\n"
RANK4 = "size A=2 B=2 C=2 D=3\nin X f32[A,B,C,D]\nout Y f32[A,B,C,D]\nfor a:A b:B c:C d:D Y[a,b,c,d] = X[a,b,c,d]*2\n"
COPIED = "size N=4 M=3\nin X f32[N,M]\nout Y f32[M,N]\ntmp Xt f32[M,N]\nfor p0:M p1:N Xt[p0,p1] = X[p1,p0]\nfor i:M j:N Y[i,j] = Xt[i,j]*2\n"
VARIES = "size N=4\nin X f32[N,N]\nout Y f32[N,N]\ntmp t f32[N,N]\nfor i:N j:N Y[i,j] = 0\nfor i:N j:i+1 t[j,i] = X[i,j]\nfor i:N j:i+1 Y[i,j] = t[j,i]*2\n"
CASES = {
    "temporary": (TWO_STEPS, "layout_transformation@:buffer=t,perm=2.0.1"),
    "private": (PRIVATE, "layout_transformation@0:buffer=t,perm=1.0"),
    "accumulator": (SUM, "layout_transformation@:buffer=t,perm=1.0"),
    "copy_of_an_input": ("matmul", "layout_transformation@:buffer=B,perm=1.0,via=copy"),
    "copy_of_a_table": (TABLE, "layout_transformation@:buffer=T,perm=1.0,via=copy"),
    "triangle": (VARIES, "layout_transformation@:buffer=t,perm=1.0"),
    "refuse_output": ("matmul", "layout_transformation@:buffer=C,perm=1.0"),
    "refuse_input_in_place": ("matmul", "layout_transformation@:buffer=B,perm=1.0"),
    "refuse_copy_of_a_temporary": (TWO_STEPS, "layout_transformation@:buffer=t,perm=2.0.1,via=copy"),
    "refuse_copied_already": (COPIED, "layout_transformation@:buffer=X,perm=1.0,via=copy"),
    "refuse_identity": (TWO_STEPS, "layout_transformation@:buffer=t,perm=0.1.2"),
    "refuse_no_permutation": (TWO_STEPS, "layout_transformation@:buffer=t,perm=0.1.1"),
    "refuse_symmetric": (DIAGONAL, "layout_transformation@:buffer=t,perm=1.0"),
    "refuse_place": (PRIVATE, "layout_transformation@:buffer=t,perm=1.0"),
    "refuse_params": (TWO_STEPS, "layout_transformation@:buffer=t"),
}


@pytest.mark.parametrize("name", CASES)
def test_golden(name: str, update_goldens: bool) -> None:
    check_golden(STRATEGY, name, *CASES[name], update_goldens)


def test_no_orphan_goldens() -> None:
    check_no_orphans(STRATEGY, CASES)


def test_every_site_keeps_the_meaning() -> None:
    assert check_all(STRATEGY) >= 10


@pytest.mark.parametrize("text", [TWO_STEPS, PRIVATE, SUM, TABLE, DIAGONAL, RANK4, COPIED, VARIES])
def test_sites_of_the_cases(text: str) -> None:
    subject = program(text)
    for site, step in all_applied(STRATEGY, subject):
        check_step(subject, site, step)
        assert step.instances is not None
        assert not list(safety_problems(step.program))


def test_sites_are_few_and_never_symmetric() -> None:
    assert len(list(all_applied(STRATEGY, program(RANK4)))) == 9  # one dimension moves
    assert not list(all_applied(STRATEGY, program(DIAGONAL)))
    assert [s.id for s, _ in all_applied(STRATEGY, program(COPIED))] == ["layout_transformation@:buffer=Xt,perm=1.0"]
