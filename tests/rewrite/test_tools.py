"""Expression places, size arithmetic with constraints, contexts, forwarding."""

from __future__ import annotations

import pytest
from rewrite_support import PROGRAMS, program

from steptp.ir import DType, Var, const, parse, print_expr
from steptp.ir.nodes import Expr, Program
from steptp.ir.walk import visit
from steptp.rewrite.base import Forwarding
from steptp.rewrite.context import Context
from steptp.rewrite.exprs import expr_at, exprs_of, parse_place, place_text, replace_expr_at
from steptp.rewrite.tools import drop_unused_sizes, fold_multiples, is_multiple, quotient, tile_sizes

HEAD = "size N=8 M=12 T0=4 T1=2\nwhere N%T0==0, M%T1==0\nin X f32[N,M]\nout Y f32[N,M]\nfor i:N j:M Y[i,j] = X[i,j]\n"


def _size(text: str) -> Expr:
    """A size expression over N, M, T0 and T1, read as an extent."""
    made = parse(HEAD.replace("for i:N j:M", f"for i:{text} j:M"))
    stmt = made.body[0]
    assert hasattr(stmt, "extent")
    extent: Expr = stmt.extent
    return extent


@pytest.mark.parametrize("name", PROGRAMS)
def test_every_place_leads_to_its_expression(name: str) -> None:
    for met in visit(program(name)):
        for place, expr in exprs_of(met.stmt):
            assert expr_at(met.stmt, place) == expr
            assert parse_place(place_text(place)) == place
            assert replace_expr_at(met.stmt, place, expr) == met.stmt


def test_replacing_an_operand() -> None:
    store = program("matmul").body[0]
    for _ in range(3):
        store = store.body[0]  # type: ignore[union-attr]
    changed = replace_expr_at(store, (2, 1), const(2, DType.F32))
    assert print_expr(expr_at(changed, (2,)) or Var("none")) == "A[i,k]*2"
    assert expr_at(store, (2, 2)) is None
    assert expr_at(store, (7,)) is None


@pytest.mark.parametrize("text", ["", "a", "1.", "1..2", "-1", "1.x"])
def test_places_that_are_none(text: str) -> None:
    assert parse_place(text) is None


@pytest.mark.parametrize(
    ("whole", "part", "want"),
    [
        ("N", "T0", "N//T0"), ("N*T0", "T0", "N"), ("M*T0", "T1", "T0*(M//T1)"), ("M", "T0", None), ("N", "T1", None), ("N*M", "T0", "M*(N//T0)"),
        ("N+T0", "T0", "N//T0+1"), ("N+M", "T0", None), ("8*M", "4", "2*M"), ("N//T0", "T0", None), ("N+1", "T0", None),
    ],
)  # fmt: skip
def test_quotients(whole: str, part: str, want: str | None) -> None:
    subject = parse(HEAD)
    got = quotient(subject, _size(whole), _size(part))
    assert (None if got is None else print_expr(got)) == want
    assert is_multiple(subject, _size(whole), _size(part)) == (want is not None)


@pytest.mark.parametrize(
    ("expr", "want"),
    [("N//T0*T0", "N"), ("N//T0*T0*M", "M*N"), ("M//T0*T0", "T0*(M//T0)"), ("N//T0*T0+M//T1*T1", "M+N"), ("N//T0*T0*T0", "N*T0"), ("N//T0", "N//T0")],
)
def test_folding_uses_the_header(expr: str, want: str) -> None:
    assert print_expr(fold_multiples(parse(HEAD), _size(expr))) == want


def _without_use(subject: Program) -> Program:
    return drop_unused_sizes(parse(HEAD.replace("i:N j", "i0:N//T0 i1:T0 j").replace("[i,", "[i0*T0+i1,")), subject)


def test_a_size_without_use_goes_with_its_constraint() -> None:
    left = _without_use(parse(HEAD))
    assert [s.name for s in left.sizes] == ["N", "M", "T1"]
    assert [print_expr(c) for c in left.constraints] == ["M%T1==0"]


def test_a_size_that_another_constraint_divides_stays() -> None:
    kept = _without_use(parse(HEAD.replace("M%T1==0", "T0%T1==0")))
    assert "T0" in {s.name for s in kept.sizes}


def test_tile_sizes_are_the_divisors() -> None:
    assert tile_sizes(parse(HEAD)) == ("T0", "T1")


def test_chains_stop_at_temporaries_guards_and_siblings() -> None:
    assert Context(program("matmul")).chain((0, 0)) == ((0,), (0, 0), (0, 0, 0))
    assert Context(program("tmps")).chain((0,)) == ((0,),)
    assert Context(program("imperfect")).chain((0,)) == ((0,),)
    assert Context(program("matmul")).chain((3,)) == ()


def test_fresh_names_avoid_what_can_be_seen() -> None:
    ctx = Context(parse("size i1=4 N=8\nin X f32[N]\nout Y f32[N]\nfor i0:N Y[i0] = X[i0]\nfor j:N Y[j] = X[j]\n"))
    assert ctx.fresh_vars((1,), "i0", "i1") == ("i0", "i2")
    assert ctx.fresh_vars((0,), "i0", "j") == ("i2", "j")
    assert ctx.fresh_global("T0", "T0", "Y") == ("T0", "T1", "Y0")
    assert ctx.fresh_vars((0,), "i8") == ("i2",)  # i8 is a dtype


def test_forwarding_takes_the_longest_prefix() -> None:
    moves = Forwarding((((0,), (1,)), ((0, 1), None), ((0, 1, 2), (5,))))
    assert moves((0, 3)) == (1, 3)
    assert moves((0, 1)) is None
    assert moves((0, 1, 0)) is None
    assert moves((0, 1, 2, 7)) == (5, 7)
    assert moves((4,)) == (4,)


def test_contexts_are_kept_with_the_program() -> None:
    subject = program("matmul")
    assert Context.of(subject) is Context.of(subject)
    assert Context.of(subject).legality is Context.of(subject).legality
