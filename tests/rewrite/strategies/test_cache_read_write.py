"""cache_read_write: local copies and local accumulators."""

from __future__ import annotations

import pytest
from rewrite_support import all_applied, check_all, check_golden, check_no_orphans, check_step, program

from steptp.analysis import safety_problems
from steptp.ir import parse, rebind
from steptp.rewrite import engine
from steptp.verify.ladder import verify_step

STRATEGY = "cache_read_write"
TILED = "size N=8 K=8 T0=4\nwhere N%T0==0\nin A f32[N,K]\nout Y f32[N]\nfor i0:N//T0 i1:T0 k:K Y[i0*T0+i1] += A[i0*T0+i1,k]\n"
TAIL = "size N=7 T0=4\nin X f32[N]\nout Y f32[N]\nfor i0:(N+T0-1)//T0 i1:T0 if i0*T0+i1<N: Y[i0*T0+i1] = X[i0*T0+i1]*2\n"
STENCIL = "size N=6 R=3\nin X f32[N+R-1] W f32[R]\nout Y f32[N]\nfor i:N r:R Y[i] += X[i+r]*W[r]\n"
TWO_SIBLINGS = "size N=3 M=4 L=6\nin X f32[N,L]\nout Y f32[N,L] Z f32[N,M]\nfor i:N\n for j:L Y[i,j] = X[i,j]*2\n for j:M Z[i,j] = X[i,j]+1\n"
TRIANGLE = "size N=4 D=3\nin Q f32[N,D] K f32[N,D]\nout S f32[N,N]\nfor i:N j:N S[i,j] = 0\nfor i:N j:i+1 d:D carry S[i,j] += Q[i,d]*K[j,d]\n"
MAYBE_NONE = "size N=4 D=3\nin Q f32[N,D]\nout S f32[N,N]\nfor i:N j:N S[i,j] = 0\nfor i:N j:i d:D carry S[i,j] += Q[i-1,d]\n"
SELECT = "size N=4 M=3\nin X f32[N,M] P f32[N,M]\nout Y f32[N,M]\nfor i:N j:M Y[i,j] = select(P[i,j]>0,X[i,j]*2,0)\n"
WRITTEN = "size N=4 M=3\nin X f32[N,M]\nout Y f32[N,M]\nfor i:N j:M Y[i,j] = X[i,j]\nfor i:N-1\n for j:M Y[i+1,j] = Y[i,j]*X[i+1,j]\n"
DIAGONAL = "size N=3 R=2\nin X f32[R,N]\nout Y f32[R,N]\ntmp t f32[R,N,N]\nfor r:R i:N t[r,i,i] = X[r,i]\nfor r:R i:N Y[r,i] = t[r,i,i]*2\n"
STRIDED = "size N=3 R=2\nin X f32[R,N]\nout Y f32[R,N]\ntmp t f32[R,2*N]\nfor r:R i:N t[r,2*i] = X[r,i]\nfor r:R i:N Y[r,i] = t[r,2*i]*2\n"
TEMPORARY = "size N=3 R=2 T0=3\nin X f32[R,N,T0]\nout Y f32[R,N,T0]\ntmp t f32[R,N*T0]\nfor r:R i:N k:T0 t[r,i*T0+k] = X[r,i,k]\nfor r:R i:N k:T0 Y[r,i,k] = t[r,i*T0+k]*2\n"
PARALLEL = "size N=3 M=4\nin X f32[N,M] B f32[M]\nout Y f32[N,M]\nfor i:N par j:M Y[i,j] = X[i,j]*B[j]\n"
PARALLEL_SUM = "size N=3 M=4 K=2\nin X f32[N,K,M]\nout Y f32[N,M]\nfor i:N k:K par j:M Y[i,j] += X[i,k,j]\n"
ONE = "size B=1 M=4 N=3\nin X f32[N,B,M]\nout Y f32[N,B,M]\nfor i:N b:B j:M Y[i,b,j] = X[i,b,j]*2\n"
TABLE = "size N=4 M=3 K=5\nin X f32[K] T i64[N,M] 0..K\nout Y f32[N,M]\nfor i:N j:M Y[i,j] = X[T[i,j]]*2\n"
GUARDED_SUM = "size N=4 M=3 K=2\nin X f32[N,K,M]\nout Y f32[N,M]\nfor i:N j:M if j>0: Y[i,j] = 1\nfor i:N Y[i,0] = 1\nfor i:N\n for k:K j:M if j<2: carry Y[i,j] += X[i,k,j]\n"
RESET_GUARDED = "size N=4 M=3 K=2\nin X f32[N,K,M]\nout Y f32[N,M]\nfor i:N j:M Y[i,j] = 1\nfor i:N k:K j:M if j<2: Y[i,j] += X[i,k,j]\n"
GUARDED_TERMS = "size N=4 M=3 K=4\nin X f32[N,K,M]\nout Y f32[N,M]\nfor i:N k:K j:M if k<3: Y[i,j] += X[i,k,j]\n"
READ_BACK = "size N=4 K=3\nin X f32[N,K]\nout Y f32[N] Z f32[N,K]\nfor i:N k:K\n Y[i] += X[i,k]\n Z[i,k] = Y[i]\n"
COPY = "size N=3 M=4\nin X f32[N,M]\nout Y f32[N,M]\nfor i:N\n tmp c f32[M] local\n for j:M c[j] = X[i,j]\n for j:M Y[i,j] = c[j]*2\n"
LOCAL = "size N=3 M=4 R=2\nin X f32[N,M]\nout Y f32[N,R,M]\nfor i:N\n tmp c f32[M] local\n for j:M c[j] = X[i,j]\n for r:R j:M Y[i,r,j] = c[j]*2\n"
TWO_WRITERS = "size N=4 K=3\nin A f32[N,K]\nout C f32[N+1] D f32[N,K]\nfor i:N+1 C[i] = 1\nfor i:N\n for k:K C[i] += A[i,k]\n for k:K D[i,k] = C[i+1]\n"
CASES = {
    "row": ("matmul", "cache_read_write@0:mode=read,buffer=A"),
    "tile": (TILED, "cache_read_write@0:mode=read,buffer=A"),
    "halo": (STENCIL, "cache_read_write@0:mode=read,buffer=X"),
    "inner_loop_always_runs": (TRIANGLE, "cache_read_write@1:mode=read,buffer=Q"),
    "dense_temporary": (TEMPORARY, "cache_read_write@1:mode=read,buffer=t"),
    "condition": (SELECT, "cache_read_write@0:mode=read,buffer=P"),
    "one_batch_stays_a_dimension": (ONE, "cache_read_write@0:mode=read,buffer=X"),
    "table": (TABLE, "cache_read_write@0:mode=read,buffer=T"),
    "accumulate_scalar": ("matmul", "cache_read_write@0.0.0:mode=accumulate,buffer=C"),
    "accumulate_guarded_terms": (GUARDED_TERMS, "cache_read_write@0.0:mode=accumulate,buffer=Y"),
    "accumulate_over_other_values": (TWO_WRITERS, "cache_read_write@1.0:mode=accumulate,buffer=C"),
    "refuse_tail": (TAIL, "cache_read_write@0:mode=read,buffer=X"),
    "refuse_siblings": (TWO_SIBLINGS, "cache_read_write@0:mode=read,buffer=X"),
    "refuse_inner_loop_may_not_run": (MAYBE_NONE, "cache_read_write@1:mode=read,buffer=Q"),
    "refuse_region_varies": (TRIANGLE, "cache_read_write@1:mode=read,buffer=K"),
    "refuse_conditional": (SELECT, "cache_read_write@0:mode=read,buffer=X"),
    "refuse_written": (WRITTEN, "cache_read_write@1:mode=read,buffer=Y"),
    "refuse_diagonal": (DIAGONAL, "cache_read_write@1:mode=read,buffer=t"),
    "refuse_strided": (STRIDED, "cache_read_write@1:mode=read,buffer=t"),
    "refuse_parallel": (PARALLEL, "cache_read_write@0:mode=read,buffer=B"),
    "refuse_copied": (COPY, "cache_read_write@0:mode=read,buffer=X"),
    "refuse_local": (LOCAL, "cache_read_write@0.1:mode=read,buffer=c"),
    "refuse_look_up": (TABLE, "cache_read_write@0:mode=read,buffer=X"),
    "refuse_one_element": ("matmul", "cache_read_write@0.0.0:mode=read,buffer=A"),
    "refuse_reset_elsewhere": ("matmul", "cache_read_write@0.0:mode=accumulate,buffer=C"),
    "refuse_no_reset": (GUARDED_SUM, "cache_read_write@2.0:mode=accumulate,buffer=Y"),
    "refuse_reset_guarded": (RESET_GUARDED, "cache_read_write@1.0:mode=accumulate,buffer=Y"),
    "refuse_parallel_sum": (PARALLEL_SUM, "cache_read_write@0.0:mode=accumulate,buffer=Y"),
    "refuse_read_back": (READ_BACK, "cache_read_write@0.0:mode=accumulate,buffer=Y"),
    "refuse_outermost": ("guarded", "cache_read_write@2:mode=accumulate,buffer=P"),
    "refuse_store": ("matmul", "cache_read_write@0.0.0.0:mode=read,buffer=A"),
    "refuse_params": ("matmul", "cache_read_write@0:mode=write,buffer=C"),
}


@pytest.mark.parametrize("name", CASES)
def test_golden(name: str, update_goldens: bool) -> None:
    check_golden(STRATEGY, name, *CASES[name], update_goldens)


def test_no_orphan_goldens() -> None:
    check_no_orphans(STRATEGY, CASES)


def test_every_site_keeps_the_meaning() -> None:
    assert check_all(STRATEGY) >= 15


@pytest.mark.parametrize("text", [TILED, TAIL, STENCIL, TWO_SIBLINGS, TRIANGLE, TEMPORARY, SELECT, ONE, TABLE, GUARDED_TERMS, READ_BACK, WRITTEN])
def test_sites_of_the_cases(text: str) -> None:
    subject = program(text)
    for site, step in all_applied(STRATEGY, subject):
        check_step(subject, site, step)
        assert step.instances is not None
        assert not list(safety_problems(step.program))


def test_a_second_writer_leaves_the_proof_to_tier_3() -> None:
    subject = program(TWO_WRITERS)
    step = engine.applied_or_raise(subject, CASES["accumulate_over_other_values"][1])
    assert step.instances is None
    verdict = verify_step(subject, step.program, applied=step, build_tiers=False)
    assert verdict.ok, verdict.message


def test_a_dimension_of_one_survives_a_rebinding() -> None:
    subject = parse(ONE)
    step = engine.applied_or_raise(subject, CASES["one_batch_stays_a_dimension"][1])
    verdict = verify_step(rebind(subject, {"B": 3}), rebind(step.program, {"B": 3}), build_tiers=False)
    assert verdict.ok, verdict.message
