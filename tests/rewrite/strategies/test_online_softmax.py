"""online_softmax: maximum and sum of exponentials in one pass."""

from __future__ import annotations

import numpy as np
import pytest
from rewrite_support import all_applied, check_all, check_golden, check_no_orphans, check_step, program

from steptp.interp import evaluate
from steptp.rewrite import engine
from steptp.verify.ladder import verify_step

STRATEGY = "online_softmax"
LOGSUMEXP = "size N=3 L=5\nin X f32[N,L]\nout m f32[N] s f32[N]\nfor i:N j:L m[i] max= X[i,j]*2\nfor a:N b:L s[a] += exp(X[a,b]*2-m[a])\n"
WHOLE = "size L=6\nin X f32[L]\nout m f32[] s f32[]\nfor j:L m[] max= X[j]\nfor j:L s[] += exp(X[j]-m[])\n"
BATCHES = (
    "size B=2 N=3 L=5\nin X f32[B,N,L]\nout m f32[B,N] s f32[B,N]\nfor b:B\n for i:N j:L m[b,i] max= X[b,i,j]\n for i:N j:L s[b,i] += exp(X[b,i,j]-m[b,i])\n"
)
ACROSS = "size B=2 N=3 L=5\nin X f32[B,N,L]\nout Y f32[B,N]\ntmp m f32[N] s f32[N]\nfor b:B\n for i:N j:L m[i] max= X[b,i,j]\n for i:N j:L s[i] += exp(X[b,i,j]-m[i])\n for i:N Y[b,i] = s[i]\n"
PRIVATE = "size B=2 N=3 L=5\nin X f32[B,N,L]\nout Y f32[B,N]\nfor b:B\n tmp m f32[N] s f32[N]\n for i:N j:L m[i] max= X[b,i,j]\n for i:N j:L s[i] += exp(X[b,i,j]-m[i])\n for i:N Y[b,i] = s[i]\n"
CAUSAL = "size N=4\nin X f32[N,N]\nout m f32[N] s f32[N]\nfor i:N j:i+1 m[i] max= X[i,j]\nfor i:N j:i+1 s[i] += exp(X[i,j]-m[i])\n"
PARALLEL = "size N=3 L=4\nin X f32[N,L]\nout m f32[N] s f32[N]\npar i:N for j:L m[i] max= X[i,j]\npar i:N for j:L s[i] += exp(X[i,j]-m[i])\n"
OTHER_ROW = "size N=3 L=3\nin X f32[N,L]\nout m f32[N] s f32[N]\nfor i:N j:L m[i] max= X[i,j]\nfor i:N j:L s[i] += exp(X[i,j]-m[0])\n"
OTHER_X = "size N=3 L=3\nin X f32[N,L]\nout m f32[N] s f32[N]\nfor i:N j:L m[i] max= X[i,j]\nfor i:N j:L s[i] += exp(X[j,i]-m[i])\n"
SHORTER = "size N=3 L=3\nin X f32[N,L+1]\nout m f32[N] s f32[N]\nfor i:N j:L+1 m[i] max= X[i,j]\nfor i:N j:L s[i] += exp(X[i,j]-m[i])\n"
COLUMN = "size N=3 L=3\nin X f32[N,L]\nout m f32[L] s f32[L]\nfor i:N j:L m[j] max= X[i,j]\nfor i:N j:L s[j] += exp(X[i,j]-m[j])\n"
PARALLEL_ROW = "size N=3 L=4\nin X f32[N,L]\nout m f32[N] s f32[N]\nfor i:N unroll j:L m[i] max= X[i,j]\nfor i:N unroll j:L s[i] += exp(X[i,j]-m[i])\n"
CASES = {
    "softmax": ("softmax", "online_softmax@0"),
    "other_names": (LOGSUMEXP, "online_softmax@0"),
    "no_rows": (WHOLE, "online_softmax@0"),
    "inside_a_batch": (BATCHES, "online_softmax@0.0"),
    "private": (PRIVATE, "online_softmax@0.0"),
    "causal": (CAUSAL, "online_softmax@0"),
    "parallel_rows": (PARALLEL, "online_softmax@0"),
    "refuse_maximum_across_batches": (ACROSS, "online_softmax@0.0"),
    "refuse_other_row": (OTHER_ROW, "online_softmax@0"),
    "refuse_other_values": (OTHER_X, "online_softmax@0"),
    "refuse_shorter": (SHORTER, "online_softmax@0"),
    "refuse_columns": (COLUMN, "online_softmax@0"),
    "refuse_unrolled": (PARALLEL_ROW, "online_softmax@0"),
    "refuse_no_neighbour": ("softmax", "online_softmax@1"),
    "refuse_root": ("softmax", "online_softmax@"),
    "refuse_params": ("softmax", "online_softmax@0:at=1"),
}
INF = float("inf")
ROWS = {
    "leading -inf": [-INF, -INF, 0.5, 2.0, -1.0],
    "-inf between": [1.0, -INF, 3.0, -INF, 2.0],
    "all -inf": [-INF] * 5,
    "NaN first": [float("nan"), 1.0, 2.0, 3.0, 4.0],
    "NaN late": [1.0, 2.0, -INF, float("nan"), 4.0],
    "+inf first": [INF, 1.0, 2.0, 3.0, 4.0],
    "+inf late": [-INF, 2.0, 1.0, INF, 4.0],
    "+inf and -inf": [-INF, INF, -INF, INF, 0.0],
    "rising": [-80.0, -40.0, 0.0, 40.0, 80.0],
    "falling": [80.0, 40.0, 0.0, -40.0, -80.0],
    "large": [3e38, 3e38, -3e38, 3e38, 0.0],
    "equal": [7.0] * 5,
}


@pytest.mark.parametrize("name", CASES)
def test_golden(name: str, update_goldens: bool) -> None:
    check_golden(STRATEGY, name, *CASES[name], update_goldens)


def test_no_orphan_goldens() -> None:
    check_no_orphans(STRATEGY, CASES)


def test_every_site_keeps_the_meaning() -> None:
    assert check_all(STRATEGY) == 1


@pytest.mark.parametrize("text", [LOGSUMEXP, WHOLE, BATCHES, PRIVATE, CAUSAL, PARALLEL])
def test_sites_of_the_cases(text: str) -> None:
    subject = program(text)
    ((site, step),) = all_applied(STRATEGY, subject)
    check_step(subject, site, step)


@pytest.mark.parametrize("row", ROWS)
def test_special_values_come_out_like_the_parent_s(row: str) -> None:
    subject = program(
        "size N=1 L=5\nin X f32[N,L]\nout m f32[N] s f32[N] Y f32[N,L]\nfor i:N j:L m[i] max= X[i,j]\nfor i:N j:L s[i] += exp(X[i,j]-m[i])\nfor i:N j:L Y[i,j] = exp(X[i,j]-m[i])/s[i]\n"
    )
    step = engine.applied_or_raise(subject, "online_softmax@0")
    inputs = {"X": np.array([ROWS[row]], np.float32)}
    with np.errstate(all="ignore"):
        want, got = evaluate(subject, inputs), evaluate(step.program, inputs)
    for name in want:
        np.testing.assert_allclose(got[name], want[name], rtol=1e-6, err_msg=name)


def test_the_ladder_accepts_it() -> None:
    subject = program("softmax")
    step = engine.applied_or_raise(subject, "online_softmax@0")
    verdict = verify_step(subject, step.program, applied=step, build_tiers=False)
    assert verdict.ok, verdict.message
    assert verdict.tier == 3
