"""Quasi-affine forms, intervals and injectivity, against enumeration."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steptp.ir import Expr, Size, Var, eval_index, ix, op, parse_expr
from steptp.ir.affine import MAX_TERMS, NotAffine, form_of, interval, is_injective, term_count
from steptp.ir.nodes import Program, SizeDecl

ENV = {"N": 4, "M": 3, "T": 2}
CONTEXT = Program(tuple(SizeDecl(k, v) for k, v in ENV.items()), (), (), ())
Ranges = dict[str, tuple[int, int]]


def read(text: str) -> Expr:
    return parse_expr(text, CONTEXT, ["i", "j", "k", "f"])


def brute(indices: list[Expr], ranges: Ranges) -> bool:
    points = [dict(zip(ranges, values, strict=True)) for values in product(*(range(low, high + 1) for low, high in ranges.values()))]
    images = {tuple(eval_index(e, {**ENV, **point}) for e in indices) for point in points}
    return len(images) == len(points)


def decide(indices: list[Expr], ranges: Ranges) -> bool:
    return is_injective([form_of(e, ENV, ranges) for e in indices], ranges, ranges)


INJECTIVE = [
    ("i", {"i": 4}),
    ("i*T+j", {"i": 4, "j": 2}),
    ("j*5+i", {"i": 4, "j": 3}),
    ("i;j;k", {"i": 4, "j": 3, "k": 2}),
    ("3*i+1", {"i": 4}),
    ("N-1-i", {"i": 4}),
    ("i;i+j", {"i": 4, "j": 3}),
    ("i+j;j", {"i": 4, "j": 3}),
    ("f//M;f%M", {"f": 12}),
    ("f//(M*T);f//T%M;f%T", {"f": 24}),
    ("(i*T+j)//4;(i*T+j)%4", {"i": 6, "j": 2}),
    ("(i*6+j)//3;(i*6+j)%3", {"i": 4, "j": 6}),
    ("f//M*M+f%M", {"f": 12}),
    ("f%M+f//M*4", {"f": 12}),
    ("i+k", {"i": 4, "k": 1}),
    ("(f+1)//M;(f+1)%M", {"f": 12}),
]


@pytest.mark.parametrize(("text", "extents"), INJECTIVE)
def test_injective_normal_forms_are_recognised(text: str, extents: dict[str, int]) -> None:
    ranges = {v: (0, n - 1) for v, n in extents.items()}
    indices = [read(t) for t in text.split(";")]
    assert brute(indices, ranges)
    assert decide(indices, ranges)


@pytest.mark.parametrize("text", ["i+j", "i//2", "i%2", "2*i+j", "i;i", "f//M;f%2", "max(i,j)", "f%M", "i*0+j", "i-j"])
def test_other_forms_are_refused(text: str) -> None:
    ranges = {v: (0, 5) for v in "ijf" if v in text}
    indices = [read(t) for t in text.split(";")]
    if text != "i;i":
        assert not brute(indices, ranges)
    assert decide(indices, ranges) == (text == "i;i")


def index_exprs() -> st.SearchStrategy[Expr]:
    numbers = st.integers(1, 6).map(ix)
    leaves = st.one_of(st.sampled_from([Var("i"), Var("j"), Size("T"), Size("M")]), st.integers(-3, 6).map(ix))
    return st.recursive(
        leaves,
        lambda inner: st.one_of(
            st.tuples(st.sampled_from(["+", "-"]), inner, inner).map(lambda t: op(t[0], t[1], t[2])),
            st.tuples(inner, numbers).map(lambda t: op("*", t[0], t[1])),
            st.tuples(st.sampled_from(["//", "%"]), inner, numbers).map(lambda t: op(t[0], t[1], t[2])),
            st.tuples(st.sampled_from(["max", "min"]), inner, inner).map(lambda t: op(t[0], t[1], t[2])),
        ),
        max_leaves=5,
    )


@given(st.lists(index_exprs(), min_size=1, max_size=3), st.integers(1, 6), st.integers(1, 5))
def test_injectivity_is_never_claimed_wrongly(indices: list[Expr], i: int, j: int) -> None:
    ranges = {"i": (0, i - 1), "j": (0, j - 1)}
    if decide(indices, ranges):
        assert brute(indices, ranges)


@given(index_exprs(), st.integers(1, 6), st.integers(1, 5))
def test_intervals_hold_every_value(expr: Expr, i: int, j: int) -> None:
    span = interval(expr, ENV, {"i": (0, i - 1), "j": (0, j - 1)})
    values = [eval_index(expr, {**ENV, "i": a, "j": b}) for a in range(i) for b in range(j)]
    if span is not None:
        assert span[0] <= min(values)
        assert max(values) <= span[1]


@pytest.mark.parametrize(("text", "why"), [("i*j", "multiplies two"), ("i//j", "divides"), ("N//i", "divides"), ("i%(0-2)", "negative")])
def test_what_is_not_quasi_affine_says_why(text: str, why: str) -> None:
    with pytest.raises(NotAffine, match=why):
        form_of(read(text), ENV, {})


def test_term_count_bounds_products() -> None:
    assert term_count(read("(N+M)*(N+T)")) == 4
    assert term_count(read("*".join(["(N+M)"] * 20))) == MAX_TERMS + 1
