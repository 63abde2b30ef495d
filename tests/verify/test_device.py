"""Tiers 4 and 5 judge a run from somewhere else by the same bounds. Here "somewhere else" is another CPU build: no GPU has run this."""

from __future__ import annotations

from functools import partial

import pytest

from steptp.ir import parse
from steptp.lower import BuildOptions, build
from steptp.verify.compiled import guarded_run
from steptp.verify.tier4 import tier4
from steptp.verify.tier5 import same_bits
from steptp.verify.verdict import VerdictKind

HEAD = "size N=16 K=32\nin A f32[N,K] x f32[K]\nout y f32[N]\n"
NAIVE = HEAD + "for i:N k:K y[i] += A[i,k]*x[k]\n"
BOUND = HEAD + "tx i:N for k:K y[i] += A[i,k]*x[k]\n"
SHORT = HEAD + "tx i:N for k:K-1 y[i] += A[i,k]*x[k]\n"
BACKWARDS = HEAD + "tx i:N for k:K y[i] += A[i,K-1-k]*x[K-1-k]\n"


@pytest.mark.parametrize(("run", "kind"), [(BOUND, VerdictKind.OK), (BACKWARDS, VerdictKind.OK), (SHORT, VerdictKind.NOT_EQUAL)])
def test_tier4_judges_what_the_runner_returns(run: str, kind: VerdictKind) -> None:
    root, child = parse(NAIVE), parse(BOUND)
    report = tier4(root, root, child, seed=1, runner=partial(guarded_run, build(parse(run))))
    assert report.kind is kind, report.message


@pytest.mark.parametrize(("after", "kind"), [(BOUND, VerdictKind.OK), (BACKWARDS, VerdictKind.NOT_EQUAL)])
def test_tier5_compares_the_bits_of_two_runs(after: str, kind: VerdictKind) -> None:
    plain = BuildOptions(fma=False)
    first, second = (build(parse(text), plain) for text in (NAIVE, after))
    report = same_bits(parse(NAIVE), lambda i, _: guarded_run(first, i), lambda i, _: guarded_run(second, i), ("normal",), 0, {"build": "device no-fma"})
    assert report.kind is kind, report.message
