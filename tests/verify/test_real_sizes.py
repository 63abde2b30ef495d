"""Faults that exist only at real sizes are found there, at elements that the change itself points to."""

from __future__ import annotations

import numpy as np
import pytest

from steptp.ir import parse
from steptp.verify.regimes import ALL_ZERO, lazy_inputs
from steptp.verify.samples import sample_indices
from steptp.verify.tier3 import tier3
from steptp.verify.touched import touched_elements
from steptp.verify.verdict import VerdictKind

HEAD = "size N=600 K=20 M=500\nin A f32[N,K] B[K,M]\nout Y[N,M]\n"
PLAIN = HEAD + "for i j k Y[i,j]+=A[i,k]*B[k,j]\n"
COPY = "size N=600 M=500\nin x f32[N,M]\nout Y[N,M]\n"
HALVES = COPY + "for i:N//2 j Y[i,j]=2*x[i,j]\nfor i:N-N//2 j Y[i+N//2,j]=2*x[{},j]\n"
FIXED = "in x f32[600,500] y[600,500]\nout Y[600,500]\n"


@pytest.mark.parametrize(
    "value",
    ["select(i==417 and j==333,2,1)*A[i,k]", "select(i>=417,A[i,k]*2,A[i,k])", "select(i<64,A[i,k],A[max(i-1,0),k])", "select(i*M+j==123456,0,A[i,k])"],
)
def test_a_fault_at_a_few_elements_is_found_there(value: str) -> None:
    report = tier3(parse(PLAIN), parse(PLAIN.replace("A[i,k]*", value + "*")))
    assert report.kind is VerdictKind.NOT_EQUAL
    assert report.counterexample is not None
    assert dict(report.counterexample.sizes)["N"] == 600


def test_elements_are_the_ends_of_what_a_change_reaches() -> None:
    copy = HEAD + "tmp C[N,M]\nfor i j k C[i,j]+=A[i,k]*B[k,j]\n{}for i j Y[i,j]=C[i,j]\n"
    parent, child = parse(copy.format("")), parse(copy.format("for j:100 C[300,200+j]=C[300,200+j]*2\n"))
    assert touched_elements(parent, child) == {"Y": [(300, 299), (300, 200)]}
    assert touched_elements(parent, parent) == {}
    assert touched_elements(parse(PLAIN), parse(PLAIN.replace("A[i,k]*B[k,j]", "B[k,j]*A[i,k]"))) == {}  # all of it: corners do


def test_both_sides_of_a_guard_and_of_a_new_number_are_sampled() -> None:
    parent, child = parse(PLAIN), parse(PLAIN.replace("for i j k ", "for i j k if i<417: "))
    found = {index for _, index in sample_indices(parent, child, 0, 0)}
    assert found >= {(416, 499), (417, 0), (599, 499), (0, 0), (417, 499)}


@pytest.mark.parametrize(
    ("row", "kind"),
    [
        ("i+N//2", VerdictKind.OK),
        ("i+select(N>100 and i==0,N//2-1,N//2)", VerdictKind.NOT_EQUAL),
        ("i+select(N>100 and i<7,300-i,N//2)", VerdictKind.NOT_EQUAL),
    ],
)
def test_seams_of_a_split_loop(row: str, kind: VerdictKind) -> None:
    """Wrong rows that no tiny size has."""
    assert tier3(parse(COPY + "for i j Y[i,j]=2*x[i,j]\n"), parse(HALVES.format(row))).kind is kind


def test_zeros_are_tried_where_real_sizes_are_all_there_is() -> None:
    parent = parse(FIXED + "for i:600 j:500 Y[i,j]=x[i,j]\n")
    for child in ("x[i,j]*y[i,j]/y[i,j]", "x[i,j]+0/(1-select(x[i,j]==0,1,0))", "select(y[i,j]==2,0,x[i,j])", "select(x[i,j]*y[i,j]>900,0,x[i,j])"):
        assert tier3(parent, parse(FIXED + f"for i:600 j:500 Y[i,j]={child}\n")).kind is VerdictKind.NOT_EQUAL
    same = tier3(parent, parse(FIXED + "for i:600 j:500 Y[i,j]=x[i,j]+y[i,j]-y[i,j]\n"))
    assert same.kind is VerdictKind.OK
    assert same.evidence["bindings"] == []


def test_all_zero_inputs_stay_in_their_ranges() -> None:
    program = parse("size N=9 M=30\nin A f32[N] T i64[N] 2..M U i64[N] P bool[N]\nout Y f32[N]\nfor i Y[i]=A[i]\n")
    draws = lazy_inputs(program, ALL_ZERO, 0)
    assert [draws[n].exact(5) for n in ("A", "T", "U", "P")] == [0, 2, 0, False]
    assert len({lazy_inputs(program, "constant_rows", 0)["A"].exact(n) for n in range(50)}) == 1


def test_an_element_that_cancels_in_one_regime_is_tried_in_another() -> None:
    """Where all inputs are equal both sides are a ball around zero; elsewhere they are not."""
    head = "in x f32[600,500] y[600,500]\nout Y[600,500]\nfor i:600 j:500 Y[i,j]="
    report = tier3(parse(head + "max(exp(x[i,j])*y[i,j]-y[i,j]*exp(x[i,0]),-9)\n"), parse(head + "max(y[i,j]*(exp(x[i,j])-exp(x[i,0])),-9)\n"))
    assert report.kind in (VerdictKind.OK, VerdictKind.UNKNOWN)
    assert len(report.evidence["undecided"]) <= 1  # type: ignore[arg-type]


def test_index_arithmetic_beyond_32_bits_is_lowered_as_it_is_meant() -> None:
    """Indices are exact in LEIR; compiled code computes them in 64 bits."""
    from steptp.lower import build

    program = parse("size N=6\nin x f32[N]\nout Y f32[N]\nfor i Y[i]=x[i*8589934592//8589934592]+select((i+1)*3000000000>3000000000,1,0)\n")
    x = np.arange(6, dtype=np.float32)
    np.testing.assert_array_equal(build(program).run({"x": x})["Y"], x + (x > 0))
