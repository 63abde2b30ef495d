"""Tier 1 turns safety findings into verdicts."""

from __future__ import annotations

import pytest

from steptp.ir.parser import parse, parse_unchecked
from steptp.verify.tier1 import tier1
from steptp.verify.verdict import VerdictKind

HEAD = "in A f32[9]\nout Y f32[9]\n"


@pytest.mark.parametrize(
    ("body", "kind", "say"),
    [
        ("for i:9 Y[i] = A[i]\n", VerdictKind.OK, "for all inputs"),
        ("for i:9 Y[i] = A[i+1]\n", VerdictKind.UNSAFE_MEMORY, "S0(i=8) reads A[9]"),
        ("for i:8 Y[i] = A[i]\n", VerdictKind.UNSAFE_MEMORY, "Y[8] is never written"),
        ("tmp T f32[9]\nfor i:9 Y[i] = T[i]\nfor i:9 T[i] = A[i]\n", VerdictKind.UNSAFE_MEMORY, "nothing has written"),
        ("for i:9 Y[i] = 0\npar i:9 Y[0] = A[i]\n", VerdictKind.ILLEGAL, "par loop i carries"),
        ("for i:9 if A[i]*A[i]>=0: Y[i] = A[i]\n", VerdictKind.UNKNOWN, "not proven"),
        ("for i:9 if A[i]>0: Y[i] = A[i]\n", VerdictKind.UNSAFE_MEMORY, "is never written"),
        ("for i:9 Y[i] = select(A[i]>1, A[i+1], 0)\n", VerdictKind.UNSAFE_MEMORY, "index 9 of dimension 0"),
        ("for i:9 Y[i] = select(A[i]*A[i]<0, A[i+1], 0)\n", VerdictKind.UNKNOWN, "unless a condition on data prevents it"),
    ],
)
def test_kinds(body: str, kind: VerdictKind, say: str) -> None:
    report = tier1(parse(HEAD + body))
    assert report.kind is kind
    assert say in report.message
    assert report.tier == 1


def test_counterexample_names_instance_and_element() -> None:
    report = tier1(parse("size N=9\nin A f32[N]\nout Y f32[N]\nfor i:N Y[i] = A[i+1]\n"))
    found = report.counterexample
    assert found is not None
    assert (found.output, found.index, found.sizes, found.note) == ("A", (9,), (("N", 9),), "i=8")


def test_memory_violations_outrank_races_and_open_questions() -> None:
    report = tier1(parse(HEAD + "for i:9 Y[i] = 0\npar i:9 Y[0] = A[i+1]\n"))
    assert report.kind is VerdictKind.UNSAFE_MEMORY
    assert "(and 1 more)" in report.message
    report = tier1(parse(HEAD + "for i:9 if A[i]*A[i]>=0: Y[i] = 1\npar i:9 Y[0] = A[i]\n"))
    assert report.kind is VerdictKind.ILLEGAL


LOOKUP = "in A f32[N]\nout Y f32[N]\ntmp I i64[N]\nfor i:N I[i] = {}\nfor i:N Y[i] = A[I[i]]\n"


@pytest.mark.parametrize("n", [9, 40_000])
def test_a_look_up_that_leaves_its_array_is_shown_by_a_run(n: int) -> None:
    """The second size is run element by element."""
    bad = tier1(parse(f"size N={n}\n" + LOOKUP.format("select(A[i]>-100, i+1, 0)")))
    assert bad.kind is VerdictKind.UNSAFE_MEMORY
    assert bad.evidence["run"]["code"] == "eval-bounds"  # type: ignore[index]
    assert bad.counterexample is not None
    assert bad.counterexample.regime
    good = tier1(parse(f"size N={n}\n" + LOOKUP.format("select(A[i]>-100, i, N+1)")))
    assert good.kind is VerdictKind.UNKNOWN  # nothing that is drawn is so far below 0


def test_undefined_reset_is_malformed() -> None:
    report = tier1(parse_unchecked(HEAD + "for i:9 Y[i] += A[i]\n"))
    assert report.kind is VerdictKind.MALFORMED
    assert report.evidence["code"] == "check-reset"
