"""normal_loop_summation_on_exp_to_prefix_summation_on_exp: the sum of exponentials of every prefix of a row."""

from __future__ import annotations

import numpy as np
import pytest
from rewrite_support import all_applied, check_all, check_golden, check_no_orphans, check_step, inputs_for, program

from steptp.interp import evaluate
from steptp.rewrite import engine
from steptp.verify.ladder import verify_step

STRATEGY = "normal_loop_summation_on_exp_to_prefix_summation_on_exp"
HEAD = "size N=3 L=5\nin X f32[N,L]\nout m f32[N] s f32[N]\n"
MAX = "for i:N j:L m[i] max= X[i,j]*2\n"
LOGSUMEXP = HEAD + MAX + "for a:N b:L s[a] += exp(X[a,b]*2-m[a])\n"
AFTER_PREFIX = (
    HEAD + "tmp pm f32[N,L+1]\nfor i:N\n pm[i,0] = -inf\n for j:L pm[i,j+1] = max(pm[i,j],X[i,j]*2)\n m[i] = pm[i,L]\nfor a:N b:L s[a] += exp(X[a,b]*2-m[a])\n"
)
WHOLE = "size L=6\nin X f32[L]\nout m f32[] s f32[]\nfor j:L m[] max= X[j]\nfor j:L s[] += exp(X[j]-m[])\n"
APART = "size N=3 L=5\nin X f32[N,L]\nout m f32[N] s f32[N] z f32[N]\n" + MAX + "for i:N z[i] = m[i]\nfor a:N b:L s[a] += exp(X[a,b]*2-m[a])\n"
CHANGED = (
    "size N=3 L=5\nin X f32[N,L]\nout m f32[N] s f32[N]\ntmp t f32[N,L]\nfor i:N j:L t[i,j] = X[i,j]\nfor i:N j:L m[i] max= t[i,j]\n"
    "for i:N j:L t[i,j] = X[i,j]*2\nfor i:N j:L s[i] += exp(t[i,j]-m[i])\n"
)
OTHER_ROW = HEAD + MAX + "for i:N j:L s[i] += exp(X[i,j]*2-m[0])\n"
OTHER_X = HEAD + MAX + "for i:N j:L s[i] += exp(X[i,j]-m[i])\n"
NO_MAXIMUM = "size N=3 L=5\nin X f32[N,L] m f32[N]\nout s f32[N]\nfor i:N j:L s[i] += exp(X[i,j]-m[i])\n"
NO_EXP = HEAD + MAX + "for i:N j:L s[i] += X[i,j]-m[i]\n"
SHORTER = "size N=3 L=5\nin X f32[N,L+1]\nout m f32[N] s f32[N]\nfor i:N j:L+1 m[i] max= X[i,j]\nfor i:N j:L s[i] += exp(X[i,j]-m[i])\n"
CAUSAL = "size N=4\nin X f32[N,N]\nout m f32[N] s f32[N]\nfor i:N j:i+1 m[i] max= X[i,j]\nfor i:N j:i+1 s[i] += exp(X[i,j]-m[i])\n"
FALSE_PREFIX = (
    HEAD + "tmp pm f32[N,L+1]\nfor i:N\n pm[i,0] = 0\n for j:L pm[i,j+1] = max(pm[i,j],X[i,j]*2)\n m[i] = pm[i,L]\nfor a:N b:L s[a] += exp(X[a,b]*2-m[a])\n"
)
CASES = {
    "softmax": ("softmax", "@1"),
    "after_prefix_maxima": (AFTER_PREFIX, "@1"),
    "other_names": (LOGSUMEXP, "@1"),
    "whole": (WHOLE, "@1"),
    "apart": (APART, "@2"),
    "refuse_changed_between": (CHANGED, "@3"),
    "refuse_other_row": (OTHER_ROW, "@1"),
    "refuse_other_values": (OTHER_X, "@1"),
    "refuse_no_maximum": (NO_MAXIMUM, "@0"),
    "refuse_prefix_from_zero": (FALSE_PREFIX, "@1"),
    "refuse_no_exponential": (NO_EXP, "@1"),
    "refuse_shorter": (SHORTER, "@1"),
    "refuse_varying_extent": (CAUSAL, "@1"),
    "refuse_maximum": ("softmax", "@0"),
    "refuse_params": ("softmax", "@1:at=1"),
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


def test_every_site_keeps_the_meaning() -> None:
    assert check_all(STRATEGY) == 1


@pytest.mark.parametrize("text", [LOGSUMEXP, AFTER_PREFIX, WHOLE, APART])
def test_sites_of_the_cases(text: str) -> None:
    subject = program(text)
    ((site, step),) = all_applied(STRATEGY, subject)
    check_step(subject, site, step)


@pytest.mark.parametrize("row", ROWS)
def test_special_values_come_out_like_the_parent_s(row: str) -> None:
    subject = program(HEAD.replace("N=3", "N=1") + MAX + "for i:N j:L s[i] += exp(X[i,j]*2-m[i])\n")
    child = engine.applied_or_raise(subject, f"{STRATEGY}@1").program
    inputs = {"X": np.array([ROWS[row]], np.float32)}
    with np.errstate(all="ignore"):
        want, got = evaluate(subject, inputs), evaluate(child, inputs)
    for name in want:
        np.testing.assert_allclose(got[name], want[name], rtol=1e-6, err_msg=name)


def test_prefix_maxima_and_sums_are_online_softmax_with_every_value_kept() -> None:
    subject = program("softmax")
    prefix = engine.applied_or_raise(subject, "normal_loop_max_to_prefix_max@0").program
    both = engine.applied_or_raise(prefix, f"{STRATEGY}@1").program
    online = engine.applied_or_raise(subject, "online_softmax@0").program
    inputs = inputs_for(subject)
    assert evaluate(both, inputs)["Y"].tobytes() == evaluate(online, inputs)["Y"].tobytes()
    assert [b.name for b in both.tmps] == ["m", "s", "pm", "ps"], "the stored prefix maxima are used"


def test_the_ladder_accepts_it() -> None:
    subject = program("softmax")
    step = engine.applied_or_raise(subject, f"{STRATEGY}@1")
    verdict = verify_step(subject, step.program, applied=step)
    assert verdict.ok, verdict.message
    assert verdict.tier == 4
