"""The validity table: every row refuses what it names and nothing else."""

from __future__ import annotations

import pytest

from steptp.errors import LeirError
from steptp.ir import (
    CHECKS,
    Buffer,
    Cast,
    Const,
    DType,
    Expr,
    If,
    Load,
    Loop,
    LoopKind,
    Op,
    Program,
    Scope,
    Size,
    SizeDecl,
    Store,
    Var,
    check,
    const,
    ix,
    op,
    parse,
    problems,
)

HEAD = "size N=4 M=3 T=2 Z=0\nin A f32[N,M] B[N] t i64[N] 0..N s i32[N] 0..N p bool[N]\n"


def text(body: str, out: str = "Y f32[N]", tmp: str = "") -> str:
    return f"{HEAD}out {out}\n{f'tmp {tmp}' + chr(10) if tmp else ''}{body}\n"


GOOD = [
    text("for i:N j:M Y[i] += A[i,j]"),
    text("for j:M i:N Y[i] += A[i,j]"),
    text("for j:M par i:N Y[i] += A[i,j]"),
    text("for i:N//T u:T j:M Y[i*T+u] += A[i*T+u,j]"),
    text("for j:M f:N*M X[f//M,f%M] += A[f//M,j]", "X f32[N,M]"),
    text("for j:M f:N*M*T X[f//(M*T),f//T%M,f%T] += A[0,j]", "X f32[N,M,T]"),
    text("for j:M i:N k:M X[i,i+k] += A[i,j]", "X f32[N,N+M]"),
    text("for j:M i:N u:T X[(i*T+u)//4,(i*T+u)%4] += A[0,j]", "X f32[N,4]"),
    text("for j:M i:N X[2*i+1] += A[i,j]", "X f32[N*2]"),
    text("for j:M i:N X[N-1-i] += A[i,j]", "X f32[N]"),
    text("for i:N k:1 j:M Y[i+k] += A[i,j]"),
    text("for i:N Y[i] = 0\nfor i:N j:M k:M carry Y[i//2] += A[i,j]"),
    text("for i:N Y[i] = 0\nfor i:N carry Y[t[i]] += B[i]"),
    text("for i:N Y[i] = 0\nfor i:N carry Y[i64(s[i])] max= B[i]"),
    text("for i:N j:M Y[i] += A[i,j]\nfor i:N carry Y[i] += B[i]"),
    text("for i:N Y[i] = B[t[(i+1)%N]]*f32(i*i)"),
    text("for i:N Y[i] = B[min(i+1,N-1)]+B[select(i<2,i,0)]"),
    text("for i:N for j:i+1 Y[i] += B[j]"),
    text("for i:Z Y[i] = 1"),
    text("for i:N if p[t[i]]: Y[i] = 1"),
    text("par i:N\n tmp a f32[] local\n for j:M a[] += A[i,j]\n Y[i] = a[]"),
    text("bx i:N\n tmp a f32[M] shared\n tx j:M a[j] = A[i,j]\n tx j:M if j<1: Y[i] = a[j]"),
    text("bx i:N tx j:T for k:M\n tmp a f32[] local\n a[] = A[i,k]\n if j<1: Y[i] = a[]"),
    text("for i:N b[i] = p[i]\nfor i:N any[] or= b[i]\nfor i:N all[] and= p[i]", "b bool[N] any[] all[]"),
    text("for i:N vec j:M if j<2: X[i,j] = A[i,j]", "X f32[N,M]"),
    text("for i:N par j:M X[i,j] = 1\nfor i:N unroll u:T vec j:M X[i,j] = f32(u)", "X f32[N,M]"),
]


@pytest.mark.parametrize("source", GOOD)
def test_valid_programs_pass(source: str) -> None:
    assert problems(parse(source)) == ()


# check → (text, line of the error, part of the message)
BAD: list[tuple[str, str, int, str]] = [
    ("name", text("for i:N Y[i] = 1\nfor q:N\n tmp i f32[]\n i[] = 1"), 4, "loop variable i has the name"),
    ("where", "size N=4\nwhere N%3==0\nout Y f32[]\nY[] = 1", 1, "does not hold for N=4"),
    ("decl", "size N=4\nout Y f32[N-5]\nY[0] = 1", 2, "a dimension of Y is -1"),
    ("decl", "size N=4\nin A f32[N] 0..N\nout Y f32[N]\nfor i:N Y[i] = A[i]", 2, "not an integer input"),
    ("decl", "size N=4\nout Y i64[N] 0..N\nfor i:N Y[i] = 1", 2, "not an integer input"),
    ("index", text("for i:N j:M Y[i*j] = 1"), 4, "multiplies two loop variables"),
    ("index", text("for i:N j:M if j>0: Y[i//j] = 1"), 4, "divides (//) by something other"),
    ("index", text("for i:N Y[i%-2] = 1"), 4, "divides (%) by a negative"),
    ("index", text("for i:N Y[t[i]*i] = 1"), 4, "multiplies two"),
    ("index", text("for i:N j:M k:T Y[i*j] += 1"), 4, "multiplies two"),
    ("index", text("for i:N Y[i64(B[i])] = 1"), 4, "looks up B, which holds f32"),
    ("index", text("for i:N Y[i64(p[i])] = 1"), 4, "looks up p, which holds bool"),
    ("index", text("for i:N Y[i64(s[i]+1)] = 1"), 4, "casts something other"),
    ("index", text("for i:N Y[select(p[i],i,0)] = B[i]"), 4, "chooses by a bool"),
    ("index", text("for i:N j:i*i Y[i] = 1"), 4, "the extent of loop j multiplies"),
    ("index", text("for i:N Y[" + "*".join(["(N+M+T+i)"] * 5) + "] = 1"), 4, "more than 256 terms"),
    ("extent", text("for i:N for j:t[i] Y[i] += B[j]"), 4, "reads memory"),
    ("write", text("for i:N B[i] = 1\nfor i:N Y[i] = 1"), 4, "B is an input"),
    ("write", text("for i:N Y[i] = 1", "Y f32[N] X[N]"), 3, "output X is never written"),
    ("write", text("for i:N Y[i] = C[i]", tmp="C f32[N]"), 4, "temporary C is never written"),
    ("write", "in A f32[]\n", 1, "no output"),
    ("reduce", text("for i:N any[] max= p[i]", "any bool[]"), 4, "max= does not fit any"),
    ("reduce", text("for i:N x[] or= B[i]", "x f32[]"), 4, "or= does not fit x"),
    ("reset", text("for i:N Y[i] += B[i]"), 4, "has no enclosing loop"),
    ("reset", text("for i:N j:M k:M Y[i+k] += A[i,j]"), 4, "not injective"),
    ("reset", text("for j:M i:N Y[i//2] += A[i,j]"), 4, "not injective"),
    ("reset", text("for j:M i:N k:M X[3*i+2*k] += A[i,j]", "X f32[N*4]"), 4, "not injective"),
    ("reset", text("for j:M i:N X[i%2,i//3] += A[i,j]", "X f32[N,N]"), 4, "not injective"),
    ("reset", text("for j:M i:N Y[max(i,1)] += A[i,j]"), 4, "not injective"),
    ("reset", text("for j:M i:N Y[t[i]] += A[i,j]"), 4, "through a look-up"),
    ("reset", text("for i:N j:M Y[i] += A[i,j]\nfor i:N j:M Y[i] += A[i,j]"), 5, "a second resetting accumulation"),
    ("reset", text("for j:M i:j+1 Y[i] += A[i,j]"), 4, "extent of i changes with j"),
    ("reset", text("for i:N\n tmp a f32[]\n a[] += B[i]\n Y[i] = a[]"), 6, "has no enclosing loop"),
    ("lookup", text("for i:N Y[t[i]] = B[i]"), 4, "must carry"),
    ("lookup", text("for i:N Y[i] = 0\npar i:N carry Y[t[i]] += B[i]"), 5, "cannot stand in a par"),
    ("kind", text("vec i:N j:M Y[i] = A[i,j]"), 4, "stands inside a vec loop"),
    ("kind", text("for i:N vec j:i+1 Y[i] = A[i,j]"), 4, "must hold only sizes"),
    ("kind", text("par i:N j:M Y[i] = A[i,j]"), 4, "par loop j stands inside"),
    ("kind", text("bx i:N par j:M Y[i] = A[i,j]"), 4, "par loop j stands inside"),
    ("kind", text("par i:N bx j:M Y[i] = A[i,j]"), 4, "stands inside a par loop"),
    ("kind", text("tx i:N tx j:M Y[i] = A[i,j]"), 4, "bound twice"),
    ("kind", text("tx i:N bx j:M Y[i] = A[i,j]"), 4, "inside a thread loop"),
    ("scope", text("for i:N Y[i] = 1", "Y f32[N] shared"), 3, "must be global"),
    ("scope", text("for i:N C[i] = 1\nfor i:N Y[i] = C[i]", tmp="C f32[N] shared"), 4, "outside any block loop"),
    ("scope", text("for i:N\n tmp a f32[] shared\n a[] = 1\n Y[i] = a[]"), 4, "outside any block loop"),
    ("scope", text("bx i:N tx j:M\n tmp a f32[] shared\n a[] = 1\n Y[i] = a[]"), 4, "inside a thread loop"),
    ("scope", text("bx i:N\n tmp a f32[M] local\n tx j:M a[j] = 1\n Y[i] = 1"), 6, "belongs to one thread"),
    ("scope", text("par i:N C[i] = 1\nfor i:N Y[i] = C[i]", tmp="C f32[N] local"), 5, "belongs to one thread"),
    ("scope", text("bx i:1\n tmp a f32[M] shared\n by j:M a[j] = 1\n Y[i] = 1"), 6, "belongs to threads of one block"),
    ("limit", text("tx i:N for j:1 ty k:M tz l:300 Y[i] = 1"), 4, "tz runs to 300"),
    ("limit", text("tx i:N ty k:512 Y[i] = 1"), 4, "2048 threads, 4 (tx) times 512 (ty)"),
    ("limit", text("by i:65536 if i<N: Y[i] = 1"), 4, "by runs to 65536"),
    ("limit", text("for i:N Y[i] = 1\nbx i:N\n tmp a f32[M,4096] shared b[1]\n tx j:4\n  a[0,j] = 1\n  b[0] = 1"), 5, "49156 bytes of shared memory (a, b)"),
    ("limit", text("bx i:N\n tmp a f64[65537]\n a[0] = 1\n Y[i] = f32(a[0])"), 4, "524296 bytes of local memory"),
]


@pytest.mark.parametrize(("name", "source", "line", "message"), BAD)
def test_invalid_texts_are_refused_at_their_line(name: str, source: str, line: int, message: str) -> None:
    with pytest.raises(LeirError) as caught:
        parse(source)
    assert caught.value.code == f"check-{name}"
    assert message in caught.value.message
    assert caught.value.place is not None
    assert caught.value.place.line == line
    assert caught.value.place.render()


N = Size("N")
VAR = Var("i")
A = Buffer("A", DType.F32, (N,))
Y = Buffer("Y", DType.F32, (N,))
LOAD = Load("A", (VAR,), DType.F32)
LOCAL = Loop("i", N, (Store("C", (), LOAD),), tmps=(Buffer("C", DType.F32, ()),))


def built(value: Expr = LOAD, index: Expr = VAR, extent: Expr = N, var: str = "i", **changes: object) -> Program:
    body = (Loop(var, extent, (Store("Y", (index,), value),)),)
    return Program((SizeDecl("N", 4),), (A,), (Y,), body).with_(**changes)


def wide(expr: Expr, levels: int) -> Expr:
    for _ in range(levels):
        expr = op("+", expr, 1)
    return expr


def nest(levels: int) -> Program:
    stmt: Store | Loop = Store("Y", (ix(0),), const(1, DType.F32))
    for n in range(levels):
        stmt = Loop(f"q{n}", ix(1), (stmt,))
    return built(body=(stmt,))


BUILT: list[tuple[str, Program, str]] = [
    ("depth", built(wide(LOAD, 5000)), "deeper than 128"),
    ("depth", nest(2000), "more than 64 loops"),
    ("name", built(var="N", index=Var("N")), "has the name of a size"),
    ("name", built(var="a b", index=Var("a b")), "is not a name"),
    ("name", built(var="exp", index=Var("exp")), "is reserved"),
    ("name", built(tmps=(A,)), "declared twice"),
    ("name", built(body=(Loop("i", N, built().body),)), "already used by a loop around"),
    ("size", built(sizes=(SizeDecl("N", -1),)), "not between 0 and"),
    ("size", built(sizes=(SizeDecl("N", 1 << 63),)), "not between 0 and"),
    ("size", built(sizes=(SizeDecl("N", 4, ix(4)),)), "derives from no other size"),
    ("size", built(sizes=(SizeDecl("N", 4, Size("M")), SizeDecl("M", 4))), "not declared before"),
    ("size", built(sizes=(SizeDecl("M", 4), SizeDecl("N", 5, Size("M")))), "its derivation gives 4"),
    ("size", built(sizes=(SizeDecl("M", 4), SizeDecl("N", 4, op("//", Size("M"), ix(0))))), "division by zero"),
    ("where", built(constraints=(N,)), "must be a bool over sizes"),
    ("where", built(constraints=(op("<", Size("Q"), ix(1)),)), "Q, which is not a size"),
    ("decl", built(inputs=(Buffer("A", DType.F32, (VAR,)),)), "must be an i64 expression over sizes"),
    ("decl", built(inputs=(Buffer("A", DType.F32, (Size("Q"),)),)), "Q, which is not a size"),
    ("view", built(index=Var("j")), "no loop variable j"),
    ("view", built(extent=Size("Q")), "no size named Q"),
    ("view", built(Load("Q", (VAR,), DType.F32)), "no array named Q"),
    (
        "view",
        built(body=(LOCAL, Loop("i", N, (Store("Y", (VAR,), Load("C", (), DType.F32)),)))),
        "another loop",
    ),
    ("rank", built(Load("A", (VAR, VAR), DType.F32)), "1 dimension, but is given 2 indices"),
    ("type", built(Load("A", (VAR,), DType.F16)), "Y holds f32, but the value is f16"),
    ("type", built(Cast(DType.F32, Load("A", (VAR,), DType.F16))), "A holds f32, but is read as f16"),
    ("type", built(Op("+", (LOAD, ix(1)), DType.F32)), "+ does not take (f32, i64) to f32"),
    ("type", built(Op("exp", (LOAD, LOAD), DType.F32)), "exp with 2 operands"),
    ("type", built(Op("<", (LOAD, LOAD), DType.F32)), "to f32"),
    ("type", built(Const(1, DType.F32)), "not rounded to f32"),
    ("type", built(Const(0.1, DType.F32)), "not rounded to f32"),
    ("type", built(Cast(DType.F32, Const(300, DType.I8))), "not a value of i8"),
    ("type", built(index=LOAD), "not i64"),
    ("type", built(extent=const(4, DType.F32)), "the extent of loop i must be i64"),
    ("type", built(body=(Loop("i", N, (If(LOAD, (Store("Y", (VAR,), LOAD),)),)),)), "must be bool"),
    ("index", built(Cast(DType.F32, Load("A", (Cast(DType.I64, LOAD),), DType.F32))), "holds f32, not integers"),
    ("extent", built(body=(*built().body, Loop("i", N, ()))), "without a body"),
    ("reduce", built(body=(Loop("i", N, (Store("Y", (VAR,), LOAD, None, True),)),)), "does not accumulate"),
    ("reduce", built(body=(Loop("i", N, (Store("Y", (VAR,), LOAD, "xor", True),)),)), "no reducer named"),
    ("scope", built(inputs=(Buffer("A", DType.F32, (N,), Scope.LOCAL),)), "must be global"),
    ("kind", built(body=(Loop("i", N, (Loop("j", N, (Store("Y", (VAR,), LOAD),)),), LoopKind.VECTOR),)), "inside a vec loop"),
]


@pytest.mark.parametrize(("name", "program", "message"), BUILT)
def test_invalid_built_programs_are_refused(name: str, program: Program, message: str) -> None:
    found = problems(program)
    assert found[0].code == f"check-{name}"
    assert any(message in p.message for p in found), [p.message for p in found]
    with pytest.raises(LeirError):
        check(program)


def test_every_row_of_the_table_has_a_case_and_a_doc() -> None:
    tested = {name for name, *_ in BAD} | {name for name, *_ in BUILT}
    assert {row.name for row in CHECKS} | {"depth"} == tested
    assert all(row.doc.endswith(".") for row in CHECKS)
    assert len({row.name for row in CHECKS}) == len(CHECKS)


def test_all_problems_are_reported_up_to_a_limit() -> None:
    program = parse(text("for i:N Y[i] = 1"))
    wrong = program.with_(body=program.body + tuple(Store("B", (ix(0),), const(1, DType.F32)) for _ in range(80)))
    assert len(problems(wrong)) == 50
    assert {p.code for p in problems(wrong)} == {"check-write"}


def test_a_built_program_shows_its_canonical_text() -> None:
    error = problems(built(body=(*built().body, *built(Load("A", (ix(0),), DType.F32)).body, Store("A", (ix(1),), const(2, DType.F32)))))[0]
    assert error.place is not None
    assert "A[1]=2" in error.place.render()


def test_nothing_is_wrong_with_a_good_built_program() -> None:
    assert problems(built()) == ()
    check(built())
