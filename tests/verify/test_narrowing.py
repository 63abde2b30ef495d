"""A type narrower than all of the root's is refused unless nothing is rounded, whether or not the inputs drawn show it."""

from __future__ import annotations

import pytest

from steptp.ir import parse
from steptp.verify.explain import explain
from steptp.verify.narrowing import Rounding, narrowest, rounded_away
from steptp.verify.tier4 import tier4
from steptp.verify.verdict import Verdict, VerdictKind

SOFTMAX = """in x f32[N=4,L=6]
out Y[N,L]
tmp {m} s f32[N]
for i j m[i] max={x}
for i j s[i]+=exp(x[i,j]-{read})
for i j Y[i,j]=exp(x[i,j]-{read})/s[i]
"""
ROOT = parse(SOFTMAX.format(m="m f32[N]", x="x[i,j]", read="m[i]"))
ROUNDED = parse(SOFTMAX.format(m="m bf16[N]", x="bf16(x[i,j])", read="f32(m[i])"))


def test_a_rounding_that_cancels_is_refused() -> None:
    """The maximum of a softmax cancels, so no benign input shows that it is rounded."""
    report = tier4(ROOT, ROOT, ROUNDED, regimes=("normal", "mixed"), equal_over_reals=True)
    assert report.kind is VerdictKind.NUMERICALLY_UNSAFE
    assert report.counterexample is None
    assert report.message.startswith("`bf16(x[i,j])` is rounded to bf16, narrower than every type of the root")
    told = explain(ROOT, ROUNDED, Verdict(report.kind, 4, (report,)))
    assert [(s.line, s.column) for s in told.spots] == [(4, 18)]
    assert told.render().endswith("^^^^^^^^^^^^")
    shown = tier4(ROOT, ROOT, ROUNDED, equal_over_reals=True)  # "huge" inputs overflow what it leaves: a failure that is seen comes with its element
    assert shown.kind is VerdictKind.NUMERICALLY_UNSAFE
    assert shown.counterexample is not None
    assert tier4(ROOT, ROOT, ROOT).kind is VerdictKind.OK


def test_a_mask_in_a_narrow_type_is_accepted() -> None:
    root = parse("in x f32[N=8]\nout Y[N]\nfor i Y[i]=select(x[i]>0,x[i],0)\n")
    child = parse("in x f32[N=8]\nout Y[N]\ntmp p f16[N]\nfor i p[i]=f16(x[i]>0)\nfor i Y[i]=select(p[i]>0,x[i],0)\n")
    assert narrowest(child) < narrowest(root)
    assert rounded_away(root, child) is None
    assert tier4(root, root, child).kind is VerdictKind.OK


@pytest.mark.parametrize(
    ("value", "lost"),
    [
        ("f32(f16(x[i]))", "`f16(x[i])` is rounded to f16"),
        ("f32(f16(select(x[i]>0,f32(1.5),-2)))", None),
        ("f32(f16(select(x[i]>0,f32(0.1),1)))", "is rounded to f16"),
        ("f32(f16(f32(x[i]>0))*f16(2))", "is rounded to f16"),
        ("f32(max(f16(x[i]>0),f16(x[i]<1)))", None),
        ("f32(f16(f32(f16(x[i]>0))))", None),
        ("f32(f16(i))", "`f16(i)` is rounded to f16"),
    ],
)
def test_what_is_exact(value: str, lost: str | None) -> None:
    root, child = (parse(f"in x f32[N=8]\nout Y[N]\nfor i Y[i]={v}\n") for v in ("x[i]", value))
    found = rounded_away(root, child)
    assert (found is None) == (lost is None), found
    assert lost is None or (found is not None and lost in found.text)


def test_a_narrow_accumulator_and_a_root_that_is_as_narrow() -> None:
    child = parse("in x f32[N=8]\nout Y[]\ntmp s f16[]\nfor i s[]+=f16(x[i]>0)\nY[]=f32(s[])\n")
    wide, narrow = (parse(f"in x f32[N=8]\nout Y[]\nfor i Y[]+={v}\n") for v in ("x[i]", "f32(f16(x[i]))"))
    assert rounded_away(wide, child) == Rounding((0, 0), None, "s accumulates in f16")
    assert rounded_away(narrow, child) is None
