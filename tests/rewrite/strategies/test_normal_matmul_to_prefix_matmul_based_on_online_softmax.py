"""normal_matmul_to_prefix_matmul_based_on_online_softmax: a product with softmax weights beneath the running maximum."""

from __future__ import annotations

import numpy as np
import pytest
from rewrite_support import all_applied, check_all, check_golden, check_no_orphans, check_step, program

from steptp.interp import evaluate
from steptp.rewrite import engine
from steptp.rewrite.base import Applied
from steptp.verify.ladder import verify_step

STRATEGY = "normal_matmul_to_prefix_matmul_based_on_online_softmax"
PREFIX, SUMS = "normal_loop_max_to_prefix_max", "normal_loop_summation_on_exp_to_prefix_summation_on_exp"
HEAD = "size N=3 M=5 L=2\nin X f32[N,M] v f32[M,L]\nout Y f32[N,L]\ntmp m f32[N] s f32[N] y f32[N,M]\n"
MAX = "for i:N j:M m[i] max= X[i,j]\n"
SUM = "for i:N j:M s[i] += exp(X[i,j]-m[i])\n"
WEIGHTS = "for i:N j:M y[i,j] = exp(X[i,j]-m[i])/s[i]\n"
PRODUCT = "for i:N l:L j:M Y[i,l] += y[i,j]*v[j,l]\n"
ATTEND = HEAD + MAX + SUM + WEIGHTS + PRODUCT
SWAPPED = HEAD + MAX + SUM + WEIGHTS + "for j:M l:L i:N Y[i,l] += v[j,l]*2*y[i,j]\n"
WHOLE = (
    "size M=5\nin X f32[M] v f32[M]\nout Y f32[]\ntmp m f32[] s f32[] y f32[M]\nfor j:M m[] max= X[j]\nfor j:M s[] += exp(X[j]-m[])\n"
    "for j:M y[j] = exp(X[j]-m[])/s[]\nfor j:M Y[] += y[j]*v[j]\n"
)
HALF = (
    "size N=3 M=5 L=2\nin X f32[N,M] v f16[M,L]\nout Y f32[N,L]\ntmp m f32[N] s f32[N] y f16[N,M]\n" + MAX + SUM
    + "for i:N j:M y[i,j] = f16(exp(X[i,j]-m[i])/s[i])\nfor i:N l:L j:M Y[i,l] += f32(y[i,j])*f32(v[j,l])\n"
)  # fmt: skip
PARALLEL = HEAD + MAX + SUM + WEIGHTS + "par i:N for l:L j:M Y[i,l] += y[i,j]*v[j,l]\n"
ONLINE = (
    HEAD + "for i:N\n m[i] = -inf\n s[i] = 0\n for j:M\n  tmp p f32[] local\n  p[] = max(m[i],X[i,j])\n"
    "  s[i] = select(m[i]==-inf,0,s[i]*exp(m[i]-p[]))+exp(X[i,j]-p[])\n  m[i] = p[]\n" + WEIGHTS + PRODUCT
)
ALSO_USED = ATTEND.replace("out Y f32[N,L]", "out Y f32[N,L] y f32[N,M]").replace(" y f32[N,M]\nfor", "\nfor", 1)
PLAIN = "size N=3 M=5 L=2\nin y f32[N,M] v f32[M,L]\nout Y f32[N,L]\n" + PRODUCT
OTHER_SUM = HEAD + MAX + "for i:N j:M s[i] += X[i,j]\n" + WEIGHTS + PRODUCT
OTHER_MAX = HEAD + "for i:N j:M m[i] max= X[i,j]*2\n" + SUM + WEIGHTS + PRODUCT
TWO_SUMS = (
    "size N=3 M=5 L=2\nin X f32[N,M] v f32[M,L]\nout Y f32[N]\ntmp m f32[N] s f32[N] y f32[N,M]\n"
    + MAX
    + SUM
    + WEIGHTS
    + "for i:N l:L j:M Y[i] += y[i,j]*v[j,l]\n"
)
SCALED_LATER = HEAD + MAX + SUM + WEIGHTS + "for i:N s[i] = 1\n" + PRODUCT
CHANGED = HEAD.replace("y f32[N,M]\n", "y f32[N,M] t f32[N,M]\n") + (
    "for i:N j:M t[i,j] = X[i,j]\nfor i:N j:M m[i] max= t[i,j]\nfor i:N j:M s[i] += exp(t[i,j]-m[i])\nfor i:N j:M y[i,j] = exp(t[i,j]-m[i])/s[i]\n"
    "for i:N j:M t[i,j] = 0\n" + PRODUCT
)
HALF_SUM = HALF.replace("out Y f32", "out Y f16").replace("f32(y[i,j])*f32(v[j,l])", "y[i,j]*v[j,l]")
CAUSAL = (
    "size N=4 L=2\nin X f32[N,N] v f32[N,L]\nout Y f32[N,L]\ntmp m f32[N] s f32[N] y f32[N,N]\nfor i:N j:i+1 m[i] max= X[i,j]\n"
    "for i:N j:i+1 s[i] += exp(X[i,j]-m[i])\nfor i:N j:i+1 y[i,j] = exp(X[i,j]-m[i])/s[i]\nfor i:N l:L j:i+1 Y[i,l] += y[i,j]*v[j,l]\n"
)
CASES = {
    "attend": (ATTEND, "@3"),
    "swapped": (SWAPPED, "@3"),
    "whole": (WHOLE, "@3"),
    "half": (HALF, "@3"),
    "parallel": (PARALLEL, "@3"),
    "after_online_softmax": (ONLINE, "@2"),
    "weights_also_used": (ALSO_USED, "@3"),
    "refuse_plain_product": (PLAIN, "@0"),
    "refuse_other_sum": (OTHER_SUM, "@3"),
    "refuse_other_maximum": (OTHER_MAX, "@3"),
    "refuse_two_sums": (TWO_SUMS, "@3"),
    "refuse_sum_overwritten": (SCALED_LATER, "@4"),
    "refuse_changed_between": (CHANGED, "@5"),
    "refuse_half_sum": (HALF_SUM, "@3"),
    "refuse_varying_extent": (CAUSAL, "@3"),
    "refuse_maximum": (ATTEND, "@0"),
    "refuse_inner_loop": (ATTEND, "@3.0"),
    "refuse_params": (ATTEND, "@3:at=1"),
}
INF = float("inf")
ROWS = {
    "leading -inf": [-INF, -INF, 0.5, 2.0, -1.0],
    "-inf between": [1.0, -INF, 3.0, -INF, 2.0],
    "all -inf": [-INF] * 5,
    "NaN late": [1.0, 2.0, -INF, float("nan"), 4.0],
    "+inf late": [-INF, 2.0, 1.0, INF, 4.0],
    "falling": [80.0, 40.0, 0.0, -40.0, -80.0],
    "large": [3e38, 3e38, -3e38, 3e38, 0.0],
}


@pytest.mark.parametrize("name", CASES)
def test_golden(name: str, update_goldens: bool) -> None:
    text, place = CASES[name]
    check_golden(STRATEGY, name, text, STRATEGY + place, update_goldens)


def test_no_orphan_goldens() -> None:
    check_no_orphans(STRATEGY, CASES)


def test_small_programs_have_no_such_product() -> None:
    assert check_all(STRATEGY) == 0


@pytest.mark.parametrize("text", [ATTEND, SWAPPED, WHOLE, PARALLEL, ONLINE, ALSO_USED])
def test_sites_of_the_cases(text: str) -> None:
    subject = program(text)
    ((site, step),) = all_applied(STRATEGY, subject)
    check_step(subject, site, step)


def test_it_fits_after_any_other_online_step() -> None:
    """Prefix maxima and sums, in any order and number, still show that the weights are a softmax."""
    subject = program(ATTEND)
    for before in ([], [(PREFIX, 0)], [(SUMS, 1)], [(PREFIX, 0), (SUMS, 1)], [(SUMS, 1), (PREFIX, 0)]):
        step: Applied | None = None
        parent = subject
        for name, place in before:
            parent = engine.applied_or_raise(parent, f"{name}@{place}").program
        step = engine.applied_or_raise(parent, f"{STRATEGY}@3")
        check_step(parent, engine.sites(parent, [STRATEGY]).sites[0], step)
        new = {b.name for b in step.program.tmps} - {b.name for b in parent.tmps}
        assert new == (set() if before else {"pm"}), "stored prefix maxima are used"


@pytest.mark.parametrize("row", ROWS)
def test_special_values_come_out_like_the_parent_s(row: str) -> None:
    subject = program(ATTEND.replace("N=3", "N=1"))
    child = engine.applied_or_raise(subject, f"{STRATEGY}@3").program
    inputs = {"X": np.array([ROWS[row]], np.float32), "v": np.arange(10, dtype=np.float32).reshape(5, 2)}
    with np.errstate(all="ignore"):
        np.testing.assert_allclose(evaluate(child, inputs)["Y"], evaluate(subject, inputs)["Y"], rtol=1e-6)


@pytest.mark.parametrize("text", [ATTEND, HALF])
def test_the_ladder_accepts_it(text: str) -> None:
    subject = program(text)
    step = engine.applied_or_raise(subject, f"{STRATEGY}@3")
    verdict = verify_step(subject, step.program, applied=step)
    assert verdict.ok, verdict.message
    assert verdict.tier == 4
