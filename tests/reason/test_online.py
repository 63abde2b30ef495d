"""Explanations of the online strategies hold, and each of their claims is rejected once a name or number in it is wrong."""

from __future__ import annotations

import re

import pytest

from steptp.analysis.host import HostInfo
from steptp.ir import parse
from steptp.reason import explain
from steptp.reason.checker import check_text
from steptp.rewrite import engine
from steptp.rewrite.base import Site

ATTEND = """in X f32[N=3,M=5] v[M,L=2]
out Y[N,L]
tmp m s[N] y[N,M]
for i j m[i] max=X[i,j]
for i j s[i]+=exp(X[i,j]-m[i])
for i j y[i,j]=exp(X[i,j]-m[i])/s[i]
for i l j Y[i,l]+=y[i,j]*v[j,l]
"""
POOL = """in x f32[C=2,H=7,W=6]
out Y[C,OH=(H+1)//2,W]
for i j k l:3 p:3 Y[i,j,k]+=select(0<=2*j+l-1<H and 0<=k+p-1<W,x[i,2*j+l-1,k+p-1],0)
"""
PREFIX = "normal_loop_max_to_prefix_max@0"
SUMS = "normal_loop_summation_on_exp_to_prefix_summation_on_exp@1"
MATMUL = "normal_matmul_to_prefix_matmul_based_on_online_softmax@3"
FLASH = "flashattention_wo_tiling@0"
CORRECT = "partially_equivalent_then_correct@0"
STEPS = {PREFIX: ATTEND, SUMS: ATTEND, MATMUL: ATTEND, FLASH: ATTEND, CORRECT: POOL}
HOST = HostInfo.detect()

# (site, words of the sentence, what to replace, by what)
LIES = [
    (PREFIX, "0, 1, ... values|every prefix of", r"\bm\b", "s"),
    (PREFIX, "0, 1, ... values|every prefix of", r"X\[i,j\]", "X[j,i]"),
    (SUMS, "differences|minus", r"\bm\b", "s"),
    (SUMS, "differences|minus", r"X\[i,j\]", "X[i,j]*2"),
    (SUMS, "beneath", r"\bps\b", "pm"),
    (SUMS, "beneath", r"\bs\b", "m"),
    (SUMS, "scaled", r"\bpm\b", "ps"),
    (MATMUL, "softmax weights|beneath the maximum", r"\bs\b", "m"),
    (MATMUL, "softmax weights|beneath the maximum", r"\by\b", "v"),
    (MATMUL, "softmax weights|beneath the maximum", r"v\[j,l\]", "v[l,j]"),
    (MATMUL, "scaled", r"\bY\b", "s"),
    (MATMUL, "divi.*(once|summation)", r"\b6\b", "7"),
    (FLASH, "divi.*(once|summation)", r"\bs\b", "m"),
    (FLASH, "at least once", "M", "N"),
    (FLASH, "read", r"\b3\b", "2"),
    (FLASH, "read", "X", "v"),
    (FLASH, "scaled", r"\bp\b", "w"),
    (CORRECT, "every term", r"\b3\b", "2"),
    (CORRECT, "every term", r"\b1\b", "0"),
    (CORRECT, "every term", r"\bj\b", "i"),
    (CORRECT, "elements of Y", r"\b32\b", "31"),
]


def _explained(site: str, seed: int) -> str:
    parent = parse(STEPS[site])
    applied = engine.applied_or_raise(parent, site)
    return explain(parent, applied, Site.parse(site), rule="", host=HOST, seed=seed).text


def _problems(site: str, text: str) -> tuple[str, ...]:
    parent = parse(STEPS[site])
    return check_text(text, parent, engine.applied_or_raise(parent, site).program, site, host=HOST.to_dict())


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("site", STEPS)
def test_the_checker_confirms_every_sentence(site: str, seed: int) -> None:
    assert _problems(site, _explained(site, seed)) == ()


@pytest.mark.parametrize(("site", "about", "old", "new"), LIES)
def test_a_wrong_name_or_number_is_found(site: str, about: str, old: str, new: str) -> None:
    text = _explained(site, 0)
    lines = text.splitlines()
    legal = range(lines.index("Legal:"), lines.index("Effect:"))
    chosen = next(n for n in legal if re.search(about, lines[n]) and re.search(old, lines[n]))
    lines[chosen] = re.sub(old, new, lines[chosen])
    assert _problems(site, "\n".join(lines) + "\n")


def test_prefix_maxima_of_something_else_are_not_accepted() -> None:
    """The child is right in form, but keeps the maxima of other values than the parent's."""
    parent = parse(ATTEND)
    step = engine.applied_or_raise(parent, SUMS)
    text = explain(parent, step, Site.parse(SUMS), rule="", host=HOST).text
    assert check_text(text, parent, step.program, SUMS, host=HOST.to_dict()) == ()
    other = parse(ATTEND.replace("m[i] max=X[i,j]", "m[i] max=X[i,j]*2"))
    assert any("maximum" in p for p in check_text(text, other, step.program, SUMS, host=HOST.to_dict()))
