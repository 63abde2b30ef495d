"""flashattention_wo_tiling: attention in one pass over the keys."""

from __future__ import annotations

import numpy as np
import pytest
from rewrite_support import all_applied, check_all, check_golden, check_no_orphans, check_step, inputs_for, program

from steptp.interp import evaluate
from steptp.ir import print_program
from steptp.ir.sizes import constraint_holds
from steptp.rewrite import engine
from steptp.verify.ladder import verify_step
from steptp.verify.tier3 import tier3

STRATEGY = "flashattention_wo_tiling"
HEAD = "size N=3 M=5 L=2\nin X f32[N,M] v f32[M,L]\nout Y f32[N,L]\ntmp m f32[N] s f32[N] y f32[N,M]\n"
MAX = "for i:N j:M m[i] max= X[i,j]\n"
SUM = "for i:N j:M s[i] += exp(X[i,j]-m[i])\n"
WEIGHTS = "for i:N j:M y[i,j] = exp(X[i,j]-m[i])/s[i]\n"
PRODUCT = "for i:N l:L j:M Y[i,l] += y[i,j]*v[j,l]\n"
ATTEND = HEAD + MAX + SUM + WEIGHTS + PRODUCT
ATTENTION = """size N=4 K=4 M=6 L=3
in q f32[N,K] k f32[M,K] v f32[M,L]
out Y f32[N,L]
tmp c f32[N,M] t f32[N,M] m f32[N] s f32[N] y f32[N,M]
for i:N j:M l:K c[i,j] += q[i,l]*k[j,l]
for i:N j:M t[i,j] = c[i,j]*(1/sqrt(f32(K)))
for i:N j:M m[i] max= t[i,j]
for i:N j:M s[i] += exp(t[i,j]-m[i])
for i:N j:M y[i,j] = exp(t[i,j]-m[i])/s[i]
for i:N j:L l:M Y[i,j] += y[i,l]*v[l,j]
"""
MASKED = (
    "size N=3 M=5 L=2\nin X f32[N,M] v f32[M,L] hide bool[N,M]\nout Y f32[N,L]\ntmp d f32[N,M] m f32[N] s f32[N] y f32[N,M]\n"
    "for i:N j:M d[i,j] = select(hide[i,j],-inf,X[i,j])\n" + (MAX + SUM + WEIGHTS).replace("X[", "d[") + PRODUCT
)
HEADS = (
    "size B=2 H=2 N=3 M=5 L=2\nin X f32[B,H,N,M] v f32[B,M,L]\nout Y f32[B,N,H*L]\ntmp m f32[B,H,N] s f32[B,H,N] y f32[B,H,N,M]\n"
    "for b:B h:H i:N j:M m[b,h,i] max= X[b,h,i,j]\nfor b:B h:H i:N j:M s[b,h,i] += exp(X[b,h,i,j]-m[b,h,i])\n"
    "for b:B h:H i:N j:M y[b,h,i,j] = exp(X[b,h,i,j]-m[b,h,i])/s[b,h,i]\nfor b:B i:N h:H l:L j:M Y[b,i,h*L+l] += y[b,h,i,j]*v[b,j,l]\n"
)
TRANSPOSED = HEAD.replace("y f32[N,M]", "y f32[M,N]") + MAX + SUM + "for j:M i:N y[j,i] = exp(X[i,j]-m[i])/s[i]\nfor l:L j:M i:N Y[i,l] += y[j,i]*v[j,l]\n"
WHOLE = (
    "size M=5 L=2\nin X f32[M] v f32[M,L]\nout Y f32[L]\ntmp m f32[] s f32[] y f32[M]\nfor j:M m[] max= X[j]\nfor j:M s[] += exp(X[j]-m[])\n"
    "for j:M y[j] = exp(X[j]-m[])/s[]\nfor l:L j:M Y[l] += y[j]*v[j,l]\nfor l:L Y[l] = Y[l]*2\n"
)
CAUSAL = (
    "size N=4 L=2\nin X f32[N,N] v f32[N,L]\nout Y f32[N,L]\ntmp m f32[N] s f32[N] y f32[N,N]\nfor i:N j:i+1 m[i] max= X[i,j]\n"
    "for i:N j:i+1 s[i] += exp(X[i,j]-m[i])\nfor i:N j:i+1 y[i,j] = exp(X[i,j]-m[i])/s[i]\nfor i:N l:L j:i+1 Y[i,l] += y[i,j]*v[j,l]\n"
)
STRICTLY_CAUSAL = CAUSAL.replace("i+1", "i")
STATED = ATTEND.replace("\nfor", "\nwhere 0<M\nfor", 1)
SUMS_OUT = HEAD.replace("out Y f32[N,L]\ntmp m f32[N] s f32[N]", "out Y f32[N,L] m f32[N] s f32[N]\ntmp") + MAX + SUM + WEIGHTS + PRODUCT
WEIGHTS_OUT = HEAD.replace("Y f32[N,L]\n", "Y f32[N,L] y f32[N,M]\n").replace("s f32[N] y f32[N,M]", "s f32[N]") + MAX + SUM + WEIGHTS + PRODUCT
WEIGHTS_READ = HEAD.replace("Y f32[N,L]\n", "Y f32[N,L] Z f32[N]\n") + MAX + SUM + WEIGHTS + PRODUCT + "for i:N Z[i] = y[i,0]\n"
SOME_ROWS = (
    HEAD.replace("Y f32[N,L]", "Y f32[N,L] s f32[N]").replace("s f32[N] y", "y")
    + MAX
    + SUM
    + WEIGHTS
    + "for i:N-1 l:L j:M Y[i,l] += y[i,j]*v[j,l]\nfor l:L Y[N-1,l] = 0\n"
)
APART = HEAD.replace("Y f32[N,L]\n", "Y f32[N,L] Z f32[N]\n") + MAX + SUM + "for i:N Z[i] = s[i]\n" + WEIGHTS + PRODUCT
SCALED = HEAD + MAX + SUM + WEIGHTS + "for i:N l:L j:M Y[i,l] += y[i,j]*v[j,l]*s[i]\n"
CASES = {
    "attention": (ATTENTION, "@2"),
    "masked": (MASKED, "@1"),
    "heads": (HEADS, "@0"),
    "transposed": (TRANSPOSED, "@0"),
    "whole": (WHOLE, "@0"),
    "causal": (CAUSAL, "@0"),
    "row_stated_not_empty": (STATED, "@0"),
    "maximum_and_sum_are_outputs": (SUMS_OUT, "@0"),
    "refuse_weights_are_an_output": (WEIGHTS_OUT, "@0"),
    "refuse_weights_read": (WEIGHTS_READ, "@0"),
    "refuse_some_rows": (SOME_ROWS, "@0"),
    "refuse_apart": (APART, "@0"),
    "refuse_sum_in_product": (SCALED, "@0"),
    "refuse_empty_rows": (STRICTLY_CAUSAL, "@0"),
    "refuse_softmax_alone": ("softmax", "@0"),
    "refuse_sum": (ATTEND, "@1"),
    "refuse_root": (ATTEND, "@"),
    "refuse_params": (ATTEND, "@0:at=1"),
}
INF = float("inf")
ROWS = {
    "leading -inf": [-INF, -INF, 0.5, 2.0, -1.0],
    "-inf between": [1.0, -INF, 3.0, -INF, 2.0],
    "trailing -inf": [1.0, 2.0, -INF, -INF, -INF],
    "all -inf": [-INF] * 5,
    "NaN first": [float("nan"), 1.0, 2.0, 3.0, 4.0],
    "NaN late": [1.0, 2.0, -INF, float("nan"), 4.0],
    "+inf first": [INF, 1.0, 2.0, 3.0, 4.0],
    "+inf late": [-INF, 2.0, 1.0, INF, 4.0],
    "rising": [-80.0, -40.0, 0.0, 40.0, 80.0],
    "falling": [80.0, 40.0, 0.0, -40.0, -80.0],
    "large": [3e38, 3e38, -3e38, 3e38, 0.0],
}


@pytest.mark.parametrize("name", CASES)
def test_golden(name: str, update_goldens: bool) -> None:
    text, place = CASES[name]
    check_golden(STRATEGY, name, text, STRATEGY + place, update_goldens)


def test_no_orphan_goldens() -> None:
    check_no_orphans(STRATEGY, CASES)


def test_small_programs_have_no_attention() -> None:
    assert check_all(STRATEGY) == 0


@pytest.mark.parametrize("text", [ATTENTION, MASKED, HEADS, TRANSPOSED, WHOLE, CAUSAL, STATED])
def test_sites_of_the_cases(text: str) -> None:
    subject = program(text)
    ((site, step),) = all_applied(STRATEGY, subject)
    check_step(subject, site, step)


@pytest.mark.parametrize("row", ROWS)
def test_special_values_come_out_like_the_parent_s(row: str) -> None:
    subject = program(SUMS_OUT.replace("N=3", "N=1"))
    child = engine.applied_or_raise(subject, f"{STRATEGY}@0").program
    inputs = {"X": np.array([ROWS[row]], np.float32), "v": np.arange(10, dtype=np.float32).reshape(5, 2)}
    with np.errstate(all="ignore"):
        want, got = evaluate(subject, inputs), evaluate(child, inputs)
    for name in want:
        np.testing.assert_allclose(got[name], want[name], rtol=1e-6, err_msg=name)


def test_masked_rows_are_equal_over_the_reals() -> None:
    """Rows that are hidden in part (normal, ties), altogether (positive) and not at all (zeros)."""
    subject = program(MASKED)
    report = tier3(subject, engine.applied_or_raise(subject, f"{STRATEGY}@1").program, regimes=("normal", "ties", "positive", "zeros"))
    assert str(report.kind) == "ok", report.message
    assert not report.evidence["undecided"]


def test_the_header_excludes_empty_rows() -> None:
    child = engine.applied_or_raise(program(ATTEND), f"{STRATEGY}@0").program
    assert constraint_holds(child, {"N": 3, "M": 1, "L": 2})
    assert not constraint_holds(child, {"N": 3, "M": 0, "L": 2})


def test_weights_are_no_longer_stored_and_rows_can_run_in_parallel() -> None:
    subject = program(ATTENTION)
    child = engine.applied_or_raise(subject, f"{STRATEGY}@2").program
    assert "y[" not in print_program(child)
    parallel = engine.applied_or_raise(child, "loop_parallelization@2").program
    inputs = inputs_for(subject)
    assert evaluate(parallel, inputs)["Y"].tobytes() == evaluate(child, inputs)["Y"].tobytes()


@pytest.mark.parametrize("text", [ATTENTION, MASKED, CAUSAL])
def test_the_ladder_accepts_it(text: str) -> None:
    subject = program(text)
    ((_, step),) = all_applied(STRATEGY, subject)
    verdict = verify_step(subject, step.program, applied=step)
    assert verdict.ok, verdict.message
    assert verdict.tier == 4
