"""Witnesses: only where a mutant really differs, of every kind, without the verifier."""

from __future__ import annotations

import sys

import pytest

from steptp.ir import parse
from steptp.mutate.registry import Mutant
from steptp.mutate.rules import Rules
from steptp.mutate.witness import Witness, Witnesses

HEAD = "in x f32[N=3,K=5]\nout Y[N,K]\n"
SUM = "in x f32[N=3,K=5]\nout Y[N]\n"


def found(parent: str, child: str, operator: str = "index_shift") -> Witness | None:
    return Witnesses(parse(parent)).of(Mutant(operator, "", parse(child)))


@pytest.mark.parametrize(
    ("parent", "child", "kind"),
    [
        (HEAD + "for i j Y[i,j]=2*x[i,j]", HEAD + "for i j Y[i,j]=x[i,j]+x[i,j]*1.001", "value"),
        (SUM + "for i j Y[i]+=x[i,j]", SUM + "for i j if j<4: Y[i]+=x[i,j]", "value"),
        (SUM + "for i j Y[i]+=x[i,j]", SUM + "for i j carry Y[i]+=x[i,j]", "memory"),
        (SUM + "for i j Y[i]+=x[i,j]", SUM + "for i j:K Y[i]+=x[i,j+1]", "memory"),
        (SUM + "for i j Y[i]+=x[i,j]", SUM + "for i par j Y[i]+=x[i,j]", "race"),
        (SUM + "for i j Y[i]+=x[i,j]", SUM + "for i tx j Y[i]+=x[i,j]", "race"),
        (HEAD + "for i j Y[i,j]=2*x[i,j]", HEAD + "for i j Y[i,j]=2*f32(f16(x[i,j]))", "precision"),
        (HEAD + "for i j Y[i,j]=2*x[i,j]", HEAD + "for i j Y[i,j]=select(1.25<x[i,j]<1.2504,0,2*x[i,j])", "solver"),
        (HEAD + "for i j Y[i,j]=2*x[i,j]", HEAD + "for i j Y[i,j]=select(x[i,j]<-4000,0,2*x[i,j])", "solver"),
    ],
)
def test_kinds_of_evidence(parent: str, child: str, kind: str) -> None:
    witness = found(parent, child)
    assert witness is not None
    assert witness.kind == kind


@pytest.mark.parametrize(
    ("parent", "child"),
    [
        (SUM + "for i j Y[i]+=x[i,j]", SUM + "for j:K i Y[i]+=x[i,4-j]"),
        (HEAD + "for i j Y[i,j]=2*x[i,j]", HEAD + "par i vec j Y[i,j]=x[i,j]+x[i,j]"),
        (
            "in x f32[N=3,K=5]\nout Y[N]\ntmp m[N]\nfor i j m[i]+=x[i,j]/5\nfor i j Y[i]+=(x[i,j]-m[i])*(x[i,j]-m[i])",
            "in x f32[N=3,K=5]\nout Y[N]\ntmp m q[N]\nfor i j m[i]+=x[i,j]/5\nfor i j q[i]+=x[i,j]*x[i,j]\nfor i Y[i]=q[i]-5*m[i]*m[i]",
        ),
        (HEAD + "for i j Y[i,j]=exp(x[i,j])", HEAD + "for i j Y[i,j]=1/exp(-x[i,j])"),
    ],
)
def test_equal_programs_have_no_value_witness(parent: str, child: str) -> None:
    """Cancellation may cost digits (that is a precision witness); it never makes equal programs count as different functions."""
    witness = found(parent, child)
    assert witness is None or witness.kind == "precision"


def test_construction_is_a_witness() -> None:
    witness = found(SUM + "for i j Y[i]+=x[i,j]", SUM + "for i j Y[i]+=x[i,j]", "interface_name")
    assert witness is not None
    assert witness.kind == "construction"


def test_the_witness_does_not_use_the_exact_tiers(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("steptp.verify.tier3", "steptp.verify.tier2", "steptp.interp.exact", "steptp.interp.reals"):
        monkeypatch.setitem(sys.modules, name, None)
    witness = found(HEAD + "for i j Y[i,j]=2*x[i,j]", HEAD + "for i j Y[i,j]=3*x[i,j]")
    assert witness is not None
    assert witness.kind == "value"


def test_the_other_rules_accept_what_is_wrong() -> None:
    parent, close = parse(HEAD + "for i j Y[i,j]=0.1*x[i,j]"), parse(HEAD + "for i j Y[i,j]=0.1*x[i,j]+0.003")
    accepted = Rules(parent).accepts(close)
    assert accepted == {"f64": True, "f32": True, "f16": True, "allclose": True}
    assert not any(Rules(parent).accepts(parse(HEAD + "for i j Y[i,j]=0.1*x[i,j]+9")).values())
    assert all(Rules(parent).accepts(parent).values())
