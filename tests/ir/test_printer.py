"""The canonical text of expressions and statements."""

from __future__ import annotations

import pytest

from steptp.ir import DType, Expr, Load, Op, Program, Size, Var, call, const, ix, op, parse, parse_expr, print_expr, print_stmt, select
from steptp.ir.nodes import Cast, Const, Loop
from steptp.ir.types import LoopKind

CONTEXT: Program = parse("size N=4\nin a f32[N] b[N] c[N] h f16[N] p bool[N] q[N] t i64[N] 0..N\nout Y f32[N]\nfor i:N Y[i] = 0")


def load(name: str, dtype: DType = DType.F32) -> Expr:
    return Load(name, (Var("i"),), dtype)


A, B, C = load("a"), load("b"), load("c")
P, Q = load("p", DType.BOOL), load("q", DType.BOOL)
H = load("h", DType.F16)

CASES: list[tuple[Expr, str]] = [
    (A + B * C, "a[i]+b[i]*c[i]"),
    ((A + B) * C, "(a[i]+b[i])*c[i]"),
    (A - (B - C), "a[i]-(b[i]-c[i])"),
    (A - B - C, "a[i]-b[i]-c[i]"),
    (A / (B * C), "a[i]/(b[i]*c[i])"),
    (A * (B / C), "a[i]*(b[i]/c[i])"),
    (-A * B, "-a[i]*b[i]"),
    (-(A * B), "-(a[i]*b[i])"),
    (op("neg", -A), "--a[i]"),
    (A - (-B), "a[i]--b[i]"),
    (-const(1, DType.F32) + A, "-(1)+a[i]"),
    (A * -1, "a[i]*-1"),
    (-const(-1, DType.F32) * A, "-(-1)*a[i]"),
    (op("not", op("and", P, Q)), "not (p[i] and q[i])"),
    (op("and", op("not", P), Q), "not p[i] and q[i]"),
    (op("or", op("and", P, Q), P), "p[i] and q[i] or p[i]"),
    (op("and", P, op("or", P, Q)), "p[i] and (p[i] or q[i])"),
    (op("and", P, op("and", P, Q)), "p[i] and (p[i] and q[i])"),
    (op("==", op("not", P), Q), "(not p[i])==q[i]"),
    (op("not", A < B), "not a[i]<b[i]"),
    (op("==", A < B, P), "(a[i]<b[i])==p[i]"),
    (op("==", P, A < B), "p[i]==(a[i]<b[i])"),
    (op("<", op("<", P, Q), P), "(p[i]<q[i])<p[i]"),
    (op("and", A < B, B < C), "a[i]<b[i]<c[i]"),
    (op("and", op("and", A < B, B <= C), C < 2), "a[i]<b[i]<=c[i]<2"),
    (op("and", op("and", P, ix(0) <= Var("i")), Var("i") < Size("N")), "p[i] and 0<=i<N"),
    (op("and", op("and", ix(0) <= Var("i"), Var("i") < Size("N")), P), "0<=i<N and p[i]"),
    (op("and", P, op("and", A < B, B < C)), "p[i] and (a[i]<b[i]<c[i])"),
    (op("not", op("and", A < B, B < C)), "not (a[i]<b[i]<c[i])"),
    (op("or", P, op("and", A < B, B < C)), "p[i] or a[i]<b[i]<c[i]"),
    (op("and", A < B + 1, B + 1 < C), "a[i]<b[i]+1<c[i]"),
    (op("and", A < 2, const(2, DType.F32) < B), "a[i]<2<b[i]"),
    (op("and", A < 2, const(2, DType.F32) < const(3, DType.F32)), "a[i]<2<3"),
    (op("and", ix(1) < ix(2), ix(2) < Var("i")), "i64(1)<2<i"),
    (op("and", A < B, op(">", B, C)), "a[i]<b[i] and b[i]>c[i]"),
    (op("and", op(">=", A, const(0, DType.F32)), A < B), "a[i]>=0 and a[i]<b[i]"),
    (select(A < 1, A, 0), "select(a[i]<1,a[i],0)"),
    (call("max", A, call("exp", B)), "max(a[i],exp(b[i]))"),
    (Cast(DType.F32, H * 2), "f32(h[i]*2)"),
    (Cast(DType.F32, Const(2, DType.I64)), "f32(i64(2))"),
    (Cast(DType.F32, Op("+", (ix(1), ix(2)), DType.I64)), "f32(i64(1)+2)"),
    (Op("<", (ix(1), ix(2)), DType.BOOL), "i64(1)<2"),
    (Op("<", (ix(1), Var("i")), DType.BOOL), "1<i"),
    (call("isnan", const(1, DType.F32)), "isnan(f32(1))"),
    (Op("<", (Op("exp", (const(1, DType.F16),), DType.F16), const(2, DType.F16)), DType.BOOL), "exp(f16(1))<2"),
    (Op("==", (Op("select", (P, const(1, DType.F16), const(0, DType.F16)), DType.F16), const(2, DType.F16)), DType.BOOL), "select(p[i],f16(1),0)==2"),
    (const(True, DType.BOOL), "true"),
    (const(float("-inf"), DType.F32) + A, "-inf+a[i]"),
    (A + const(1e-5, DType.F32), "a[i]+1e-5"),
    (H + const(65504, DType.F16), "h[i]+65500"),
    (op("//", Var("i") * Size("N") + 1, ix(2)), "(i*N+1)//2"),
    (Load("a", (Load("t", (Var("i"),), DType.I64),), DType.F32), "a[t[i]]"),
]


@pytest.mark.parametrize(("expr", "text"), CASES)
def test_expression_text(expr: Expr, text: str) -> None:
    assert print_expr(expr) == text
    assert parse_expr(text, CONTEXT, ["i"]) == expr


@pytest.mark.parametrize("dtype", list(DType))
def test_a_literal_alone_states_its_dtype_unless_the_context_does(dtype: DType) -> None:
    one = const(1, dtype)
    assert print_expr(one) == ("true" if dtype is DType.BOOL else f"{dtype}(1)")
    assert print_expr(one, dtype) == ("true" if dtype is DType.BOOL else "1")
    assert parse_expr(print_expr(one), CONTEXT) == one
    assert parse_expr(print_expr(one, dtype), CONTEXT, expected=dtype) == one


@pytest.mark.parametrize("value", [0.1, -0.0, 1e-45, 3.4028234663852886e38, 16777216.0, 1.0000001, float("nan"), float("inf"), 65504.0, 6e-8, 123456789.0])
@pytest.mark.parametrize("dtype", [DType.F16, DType.BF16, DType.F32, DType.F64])
def test_float_literals_keep_their_bits(value: float, dtype: DType) -> None:
    literal = const(value, dtype)
    assert parse_expr(print_expr(literal), CONTEXT) == literal


def test_keywords_are_written_once_for_neighbouring_loops_of_a_kind() -> None:
    body = parse("size N=4\nout Y f32[N,N,N]\nfor i:N for j:N par k:N Y[i,j,k] = 1").body
    assert print_stmt(body[0]) == "for i:N j:N par k:N Y[i,j,k]=1"


def test_several_statements_make_an_indented_block() -> None:
    text = "for i:N\n for j:N Y[i,j]=1\n if i<2: Z[i]=2"
    body = parse(f"size N=4\nout Y f32[N,N] Z[N]\nfor i:N Z[i] = 0\n{text}").body
    assert print_stmt(body[1]) == text
    assert print_stmt(body[1], 2) == "\n".join("  " + line for line in text.splitlines())


def test_a_loop_with_temporaries_ends_its_line() -> None:
    text = "for i:N\n tmp s f32[]\n for j:N s[]+=a[j]\n Y[i]=s[]"
    body = parse(f"size N=4\nin a f32[N]\nout Y f32[N]\n{text}").body
    assert print_stmt(body[0]) == text


def test_programs_that_are_not_valid_print_too() -> None:
    assert print_stmt(Loop("i", ix(3), (), LoopKind.VECTOR)) == "vec i:3"
