"""Explanations of steps that use the distributive law, unfold windows or hoist hold, and each of their claims is rejected once a name or number in it is wrong."""

from __future__ import annotations

import re

import pytest

from steptp.analysis.host import HostInfo
from steptp.errors import LeirError
from steptp.ir import parse
from steptp.reason import explain
from steptp.reason.checker import check_text
from steptp.reason.rederive.field import field_values
from steptp.rewrite import engine
from steptp.rewrite.base import Site

CHAIN = "in A f32[N=3,K=4] B[K,M=5] C[M,L=2]\nout Y[N,L]\ntmp a[N,K] d[N,M]\nfor i j a[i,j]=exp(-abs(A[i,j]))\nfor i j k d[i,j]+=a[i,k]*B[k,j]\nfor i j k Y[i,j]+=d[i,k]*C[k,j]\n"
CONV = "in x f32[C=2,W=6] w[P=3,C,S=3] g b mean var[P]\nout Y[P,OW=W-S+1]\ntmp c[P,OW]\nfor i j k s c[i,j]+=x[k,j+s]*w[i,k,s]\nfor i j Y[i,j]=(c[i,j]-mean[i])*rsqrt(var[i]+1)*g[i]+b[i]\n"
PAIR = (
    "in A f32[N=3,K=4] B C[K,M=2]\nout Y[N,M]\ntmp d e[N,M]\nfor i j k d[i,j]+=A[i,k]*B[k,j]\nfor i j k e[i,j]+=A[i,k]*C[k,j]\nfor i j Y[i,j]=d[i,j]-e[i,j]\n"
)
TERMS = "in A f32[N=3,K=4] B C[K,M=2]\nout Y[N,M]\nfor i j k Y[i,j]+=A[i,k]*(B[k,j]-C[k,j])\n"
NORM = "in X f32[N=3,M=4,L=2] v[N]\nout Y[N,M,L]\nfor i j k Y[i,j,k]=X[i,j,k]*rsqrt(v[i])\n"
REGROUP = "contraction_reassociation@2:first=1.2,through=d"
UNFOLD = "im2col@0"
FOLD = "batch_norm_folding@1.0.0:buffer=c,into=1"
MERGE = "linear_distribution@2:do=merge"
SPLIT = "linear_distribution@0:do=split"
HOIST = "loop_invariant_code_motion@0.0.0.0:at=3.1,out=2"
STEPS = {REGROUP: CHAIN, UNFOLD: CONV, FOLD: CONV, MERGE: PAIR, SPLIT: TERMS, HOIST: NORM}
HOST = HostInfo.detect()

# (site, words of the sentence, what to replace, by what)
LIES = [
    (REGROUP, "no other operand depends", r"\bY_c\b", "Y"),
    (REGROUP, "no other operand depends", r"over k\b", "over j"),
    (REGROUP, "no other operand depends", r"B\[", "C["),
    (REGROUP, "finite", r"a\[", "d["),
    (REGROUP, "finite", r"1\.0\.0\.0", "2.0.0.0"),
    (REGROUP, "multiplications and additions", r"\d+ before", "7 before"),
    (REGROUP, "real sums|distributive laws", r"\bY\b", "d"),
    (UNFOLD, "windows|window", r"\b6\b", "4"),
    (UNFOLD, "windows|window", r"\bj\b", "i"),
    (UNFOLD, "windows|window", r"c_col", "c_ker"),
    (UNFOLD, "summed loops", r"k, s", "s, k"),
    (UNFOLD, "summed loops", r"\b6\b", "5"),
    (FOLD, "in the product|into the product", r"c_w", "c_b"),
    (FOLD, "in the product|into the product", r"g\[", "b["),
    (FOLD, "scales all|as a scale", r"rsqrt", "sqrt"),
    (FOLD, "scales all|as a scale", r"of c\b", "of Y"),
    (MERGE, "which nothing else uses|Only", r"\bd\b", "Y"),
    (MERGE, "which nothing else uses|Only", r"\bY\b", "e"),
    (SPLIT, "first term", r"Y_b", "Y_c"),
    (SPLIT, "first term", r"\bY\b", "A"),
    (HOIST, "inwards", r"j, k", "k, j"),
    (HOIST, "inwards", r"0\.0\b", "0"),
    (HOIST, "inwards", r"rsqrt", "sqrt"),
    (HOIST, "computed", r"\b24\b", "12"),
]


def _explained(site: str, seed: int) -> str:
    parent = parse(STEPS[site])
    applied = engine.applied_or_raise(parent, site)
    return explain(parent, applied, Site.parse(site), rule="", host=HOST, seed=seed).text


def _problems(site: str, text: str) -> tuple[str, ...]:
    parent = parse(STEPS[site])
    return check_text(text, parent, engine.applied_or_raise(parent, site).program, site, host=HOST.to_dict())


@pytest.mark.parametrize("site", STEPS)
def test_explanations_hold(site: str) -> None:
    for seed in range(6):
        assert not _problems(site, _explained(site, seed))


@pytest.mark.parametrize(("site", "words", "old", "new"), LIES)
def test_lies_are_found(site: str, words: str, old: str, new: str) -> None:
    tried = 0
    for seed in range(6):
        lines = _explained(site, seed).splitlines()
        for n, line in enumerate(lines):
            changed = re.sub(old, new, line)
            if line.startswith("- ") and re.search(words, line) and changed != line:
                tried += 1
                assert _problems(site, "\n".join([*lines[:n], changed, *lines[n + 1 :]])), changed
    assert tried


@pytest.mark.parametrize("wrong", ["A[i,k]*(B[k,j]+C[k,j])", "A[i,k]*(B[k,j]-C[0,j])", "A[i,k]*(B[k,j]-C[k,j])*2"])
def test_a_child_with_other_values_is_not_said_to_keep_them(wrong: str) -> None:
    parent, child = parse(PAIR), parse(TERMS.replace("A[i,k]*(B[k,j]-C[k,j])", wrong))
    text = "Legal:\n- By the laws of real sums and products every element of Y keeps its value."
    found = check_text(text, parent, child, MERGE, host=HOST.to_dict())
    assert any("Y gets other values" in problem for problem in found)


def test_the_field_knows_sums_products_and_quotients() -> None:
    one = "in x y f32[N=2]\nout Y[N]\nfor i Y[i]=(x[i]*x[i]-y[i]*y[i])/(x[i]+y[i])\n"
    two = one.replace("(x[i]*x[i]-y[i]*y[i])/(x[i]+y[i])", "x[i]-y[i]")
    assert field_values(parse(one)) == field_values(parse(two))
    assert field_values(parse(one)) != field_values(parse(two.replace("x[i]-y[i]", "x[i]+y[i]")))
    halves = "in x f32[N=2]\nout Y[N]\nfor i Y[i]=exp(x[i]*0.5+x[i]*0.5)-max(x[i],1)\n"
    assert field_values(parse(halves)) == field_values(parse(halves.replace("x[i]*0.5+x[i]*0.5", "x[i]")))
    with pytest.raises(LeirError, match="division by 0"):
        field_values(parse("in x f32[N=2]\nout Y[N]\nfor i Y[i]=1/(x[i]-x[i])\n"))
