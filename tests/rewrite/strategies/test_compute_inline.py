"""compute_inline: reading through a pointwise temporary."""

from __future__ import annotations

import pytest
from rewrite_support import all_applied, check_all, check_golden, check_no_orphans, check_step, program

STRATEGY = "compute_inline"
CHAIN = "size N=5 M=4\nin X f32[N,M]\nout Y f32[N,M]\ntmp t f32[N,M]\nfor i:N j:M t[i,j] = X[i,j]*2\nfor a:N b:M Y[a,b] = t[a,b]+t[a,0]\n"
TRANSPOSED = "size N=4 M=3\nin X f32[N,M]\nout Y f32[M,N]\ntmp t f32[N,M]\nfor i:N j:M t[i,j] = X[i,j]+f32(i)\nfor j:M i:N Y[j,i] = t[N-1-i,j]\n"
INTO_SUM = "size N=4 M=3\nin X f32[N,M]\nout Y f32[N]\ntmp e f32[N,M]\nfor i:N j:M e[i,j] = exp(X[i,j])\nfor i:N j:M Y[i] += e[i,j]\n"
OVERWRITTEN = "size N=4\nin X f32[N]\nout Y f32[N] Z f32[N]\ntmp a f32[N] t f32[N]\nfor i:N a[i] = X[i]\nfor i:N t[i] = a[i]*2\nfor i:N Z[i] = a[i]\nfor i:N a[i] = 0\nfor i:N Y[i] = t[i]+a[i]\n"
SHARED_LOOP = "size R=3 N=4\nin X f32[R,N]\nout Y f32[R,N]\ntmp a f32[N]\nfor i:N a[i] = 0\nfor r:R\n tmp t f32[N]\n for i:N t[i] = a[i]*2\n for i:N a[i] = X[r,i]\n for i:N Y[r,i] = t[i]\n"
GUARDED_PRODUCER = "size N=4\nin X f32[N]\nout Y f32[N]\ntmp t f32[]\nfor i:N\n tmp u f32[]\n u[] = X[i]*2\n if i<1: t[] = u[]\n Y[i] = t[]\n"
AFTER_CONSUMER = "size N=4\nin X f32[N]\nout Y f32[N] Z f32[N]\ntmp a f32[N] t f32[N]\nfor i:N a[i] = X[i]\nfor i:N t[i] = a[i]*2\nfor i:N Y[i] = t[i]\nfor i:N a[i] = 0\nfor i:N Z[i] = a[i]\n"
REDUCTION = "size N=4 M=3\nin X f32[N,M]\nout Y f32[N]\ntmp s f32[N]\nfor i:N j:M s[i] += X[i,j]\nfor i:N Y[i] = s[i]*2\n"
TWICE = "size N=4\nin X f32[N]\nout Y f32[N]\ntmp t f32[N]\nfor i:N t[i] = X[i]\nfor i:N if X[i]>0: t[i] = 1\nfor i:N Y[i] = t[i]\n"
PRIVATE = "size N=4 M=3\nin X f32[N,M]\nout Y f32[N,M]\nfor i:N\n tmp t f32[M] u f32[M]\n for j:M t[j] = X[i,j]*2\n for j:M u[j] = t[j]+1\n for j:M Y[i,j] = u[j]*u[0]\n"
TABLE = "size N=4 M=3\nin X f32[M] T i64[N] 0..M\nout Y f32[N]\ntmp q i64[N]\nfor i:N q[i] = M-1-T[i]\nfor i:N Y[i] = X[q[i]]\n"
GUARD_READS = "size N=4\nin X f32[N]\nout Y f32[N]\ntmp t f32[N]\nfor i:N t[i] = X[i]*2\nfor i:N Y[i] = 0\nfor i:N if t[i]>0: Y[i] = t[i]\n"
RECURRENCE = "size N=4\nin X f32[N]\nout Y f32[N]\ntmp t f32[N+1]\nt[0] = 0\nfor i:N t[i+1] = t[i]+X[i]\nfor i:N Y[i] = t[i+1]\n"
ONE_ROW = "size B=1 N=4\nin X f32[B,N]\nout Y f32[B,N]\ntmp a f32[N] t f32[B,N]\nfor b:B\n for i:N a[i] = X[b,i]\n for i:N t[b,i] = a[i]*2\nfor b:B i:N Y[b,i] = t[b,i]\n"
LOCAL_INPUT = "size N=4\nin X f32[N]\nout Y f32[N]\ntmp a f32[N] local t f32[N]\nfor i:N a[i] = X[i]\nfor i:N t[i] = a[i]*2\npar i:N Y[i] = t[i]\n"
CASES = {
    "refuse_scope": (LOCAL_INPUT, "compute_inline@2.0:buffer=t"),
    "two_reads": (CHAIN, "compute_inline@1.0.0:buffer=t"),
    "other_indices": (TRANSPOSED, "compute_inline@1.0.0:buffer=t"),
    "into_a_sum": (INTO_SUM, "compute_inline@1.0.0:buffer=e"),
    "private": (PRIVATE, "compute_inline@0.1.0:buffer=t"),
    "value_under_its_own_guard": (GUARD_READS, "compute_inline@2.0.0:buffer=t"),
    "refuse_operand_overwritten": (OVERWRITTEN, "compute_inline@4.0:buffer=t"),
    "refuse_operand_overwritten_in_shared_loop": (SHARED_LOOP, "compute_inline@1.2.0:buffer=t"),
    "refuse_guarded_producer": (GUARDED_PRODUCER, "compute_inline@0.2:buffer=t"),
    "refuse_operand_overwritten_later": (AFTER_CONSUMER, "compute_inline@2.0:buffer=t"),
    "refuse_hidden_by_one_iteration": (ONE_ROW, "compute_inline@1.0.0:buffer=t"),
    "refuse_reduction": (REDUCTION, "compute_inline@1.0:buffer=s"),
    "refuse_two_writers": (TWICE, "compute_inline@2.0:buffer=t"),
    "into_a_look_up": (TABLE, "compute_inline@1.0:buffer=q"),
    "refuse_running_value": (RECURRENCE, "compute_inline@2.0:buffer=t"),
    "refuse_input": (CHAIN, "compute_inline@0.0.0:buffer=X"),
    "refuse_not_read": (CHAIN, "compute_inline@0.0.0:buffer=t"),
    "refuse_loop": (CHAIN, "compute_inline@0:buffer=t"),
}


@pytest.mark.parametrize("name", CASES)
def test_golden(name: str, update_goldens: bool) -> None:
    check_golden(STRATEGY, name, *CASES[name], update_goldens)


def test_no_orphan_goldens() -> None:
    check_no_orphans(STRATEGY, CASES)


def test_every_site_keeps_the_meaning() -> None:
    assert check_all(STRATEGY) >= 2


@pytest.mark.parametrize("text", [CHAIN, TRANSPOSED, INTO_SUM, PRIVATE, GUARD_READS, OVERWRITTEN, SHARED_LOOP, GUARDED_PRODUCER, AFTER_CONSUMER, TABLE])
def test_sites_of_the_cases(text: str) -> None:
    subject = program(text)
    for site, step in all_applied(STRATEGY, subject):
        check_step(subject, site, step)
        assert step.instances is not None


def test_long_expressions_are_not_grown() -> None:
    value = "+".join(f"X[i]*{n}" for n in range(1, 15))
    text = f"size N=3\nin X f32[N]\nout Y f32[N]\ntmp t f32[N]\nfor i:N t[i] = {value}\nfor i:N Y[i] = t[i]*t[i]*2\n"
    assert not list(all_applied(STRATEGY, program(text)))
