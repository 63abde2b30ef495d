"""Reading LEIR text: what is accepted, what is refused, and where errors point."""

from __future__ import annotations

import pytest

from steptp.errors import LeirError
from steptp.ir import Cast, Const, DType, Load, LoopKind, Op, Program, Scope, Size, Store, Var, ix, op, parse, parse_expr, place_of, print_expr, print_program
from steptp.ir.nodes import If, Loop
from steptp.ir.parser import parse_unchecked

EXPLICIT = """size N=64 K=128 L=32
in A f32[N,K] B f32[K,L]
out Y f32[N,L]
tmp C f32[N,L] m f32[N] s f32[N]
for i:N for j:L for k:K C[i,j] += A[i,k] * B[k,j]
for i:N j:L m[i] max= C[i,j]
for i:N j:L s[i] += exp(C[i,j] - m[i])
for i:N j:L Y[i,j] = exp(C[i,j]-m[i])/s[i]
"""

SOFTMAX = """in A f32[N=64,K=128] B[K,L=32]
out Y[N,L]
tmp C[N,L] m s[N]
for i j k C[i,j]+=A[i,k]*B[k,j]
for i j m[i] max=C[i,j]
for i j s[i]+=exp(C[i,j]-m[i])
for i j Y[i,j]=exp(C[i,j]-m[i])/s[i]
"""

EVERYTHING = """size H=8 T=3 OH=H-T+1 V=10
in A f32[H,T] I i64[OH] 0..V J i32[OH] -1..V+1 b bool[]
out Y f32[OH] z i32[]
tmp h f32[V]
where H%2==0, T>=1 and OH>0
for i:OH if 0<=i<T and b[]: par j for q
 tmp w[] local u f16[4]
 w[]=select(A[i,j]>0 and not b[],-(1),-A[i,j]*2+1e-5)
 u[q]=1/2-f16(w[])
 Y[i]+=f32(u[q])*A[I[i]%H,j]*f32(i64(1)<2)
 if isnan(w[]): carry z[]+=1
for i h[i]=inf
for i carry h[i64(J[i])] min=-0.0
for i:3
 Y[i]=-inf
 par k:2 unroll g:2 vec e:1 carry Y[k] min=max(f32(i),-1--A[i,k])
"""


def header(body: str, extra: str = "") -> str:
    return f"size N=4 M=3\nin A f32[N,M] h f16[N] t i64[N] 0..N b bool[N]\nout Y f32[N]{extra}\n{body}"


@pytest.mark.parametrize("text", [SOFTMAX, EVERYTHING])
def test_canonical_text_reads_back_as_itself(text: str) -> None:
    program = parse(text)
    assert print_program(program) == text
    assert parse(print_program(program)) == program


def test_tree_of_a_small_program() -> None:
    program = parse("size N=4\nin A f32[N]\nout Y f32[N]\npar i:N if i<3: Y[i] = A[i]*2\n")
    store = Store("Y", (Var("i"),), Op("*", (Load("A", (Var("i"),), DType.F32), Const(2.0, DType.F32)), DType.F32))
    assert program.body == (Loop("i", Size("N"), (If(op("<", Var("i"), ix(3)), (store,)),), LoopKind.PARALLEL),)


def test_blanks_comments_and_indentation_are_free() -> None:
    loose = (
        "# softmax\nsize   N = 4\n\nin A f32 [ N ]\t# input\r\nout Y f32[N] s[]\nfor i : N\n      s [ ] += A[ i ]  # sum\n\n"
        "for i:N\n   # a comment is not a line\n   Y[i]=A[i] / s[ ]\n"
    )
    tight = "in A f32[N=4]\nout Y[N] s[]\nfor i s[]+=A[i]\nfor i Y[i]=A[i]/s[]\n"
    assert parse(loose) == parse(tight)
    assert print_program(parse(loose)) == tight


def test_no_final_newline_is_needed() -> None:
    assert parse(SOFTMAX.rstrip("\n")) == parse(SOFTMAX)


def test_declarations_carry_scope_range_and_dtype() -> None:
    program = parse(EVERYTHING)
    assert [b.dtype for b in program.inputs] == [DType.F32, DType.I64, DType.I32, DType.BOOL]
    assert program.inputs[2].range == (ix(-1), op("+", Size("V"), ix(1)))
    loop = next(s for s in program.body[0].body[0].body[0].body if isinstance(s, Loop))  # type: ignore[union-attr]
    assert [(b.name, b.scope) for b in loop.tmps] == [("w", Scope.LOCAL), ("u", Scope.GLOBAL)]
    assert program.size_env == {"H": 8, "T": 3, "OH": 6, "V": 10}


def test_what_can_be_inferred_may_be_left_out_or_stand() -> None:
    """Extents that are indexed dimensions, dtypes equal to the one before, shapes of neighbours, and sizes declared in shapes."""
    assert parse(EXPLICIT) == parse(SOFTMAX)
    assert print_program(parse(EXPLICIT)) == SOFTMAX


def test_neighbours_share_dtype_shape_scope_and_range() -> None:
    text = "in a b i64[N=4] 0..N c[N] 0..N+1 d[N] e f32[N]\nout Y Z[N]\nfor i\n tmp p q[] local r[]\n p[]=e[i]\n q[]=p[]\n r[]=q[]\n Y[i]=r[]\n Z[i]=1\n"
    program = parse(text)
    assert print_program(program) == text
    assert [(b.name, b.dtype, b.range is None) for b in program.inputs[:4]] == [(n, DType.I64, n == "d") for n in "abcd"]
    loop = program.body[0]
    assert isinstance(loop, Loop)
    assert [(b.name, b.scope) for b in loop.tmps] == [("p", Scope.LOCAL), ("q", Scope.LOCAL), ("r", Scope.GLOBAL)]


def test_a_name_like_a_dtype_is_not_read_as_a_neighbour() -> None:
    program = parse("in f31 f32[N=4] a[N]\nout Y[N]\nfor i Y[i]=a[i]+f31[i]\n")
    assert print_program(program).startswith("in f31 a f32[N=4]\n")
    swapped = program.with_(inputs=program.inputs[::-1])
    assert print_program(swapped).startswith("in a f32[N=4] f31[N]\n")
    assert parse(print_program(swapped)) == swapped


INFERRED = [
    ("for i Y[i] = 0", "N"),
    ("for i k Y[i] += A[i,k]", "N"),
    ("par i for k Y[i] += A[i,k]", "N"),
    ("for i Y[t[i]%N] = 0", "N"),  # from the look-up table
    ("for i Y[N-1-i] = A[i,0]", "N"),  # from the read: the target does not have i on its own
    ("for i if b[i]: Y[i] = 0", "N"),
    ("for i\n tmp q[M]\n for j q[j] = 0\n Y[i] = q[0]", "N"),
]


@pytest.mark.parametrize(("line", "extent"), INFERRED)
def test_extents_are_the_dimensions_that_variables_index_first(line: str, extent: str) -> None:
    loop = parse_unchecked(header(line)).body[0]
    assert isinstance(loop, Loop)
    assert loop.extent == Size(extent)


def test_sizes_may_be_declared_and_derived_in_shapes() -> None:
    text = "in A f32[H=8] w[R=3]\nout Y[P=H-R+1]\nwhere H>=R\nfor i r Y[i]+=A[i+r]*w[r]\n"
    program = parse(text)
    assert print_program(program) == text
    assert parse("size H=8 R=3 P=H-R+1\nwhere H>=R\nin A f32[H] w[R]\nout Y f32[P]\nfor i:P r:R Y[i] += A[i+r]*w[r]\n") == program


def test_sizes_that_no_shape_can_declare_stand_on_the_size_line() -> None:
    for text in (
        "size N=4\nin A f32[2*N,N]\nout Y[N]\nfor i Y[i]=A[0,i]\n",  # first met inside a dimension
        "size T=2\nin A f32[N=4]\nout Y[N]\nfor i:N//T j:T Y[i*T+j]=A[i*T+j]\n",  # no dimension
        "size N=4\nin A f32[M=3] B[N]\nout Y[N]\nfor i Y[i]=A[0]+B[i]\n",  # another order
    ):
        assert print_program(parse(text)) == text


def test_comparisons_chain_upwards() -> None:
    a, b = (parse_expr(t, context(), ["i"]) for t in ("b[i] and 0<=i<N", "b[i] and 0<=i and i<N"))
    assert a == b
    assert print_expr(b) == "b[i] and 0<=i<N"
    assert parse_expr("b[i] and (0<=i<N)", context(), ["i"]) != a


LITERALS = [
    ("Y[i] = 1", Const(1.0, DType.F32)),
    ("Y[i] = -1", Const(-1.0, DType.F32)),
    ("Y[i] = -(1)", Op("neg", (Const(1.0, DType.F32),), DType.F32)),
    ("Y[i] = 0.1", Const(0.10000000149011612, DType.F32)),
    ("Y[i] = -0.0", Const(-0.0, DType.F32)),
    ("Y[i] = nan", Const(float("nan"), DType.F32)),
    ("Y[i] = f32(h[i]*3)", Cast(DType.F32, Op("*", (Load("h", (Var("i"),), DType.F16), Const(3.0, DType.F16)), DType.F16))),
    ("Y[i] = f32(i*3)", Cast(DType.F32, Op("*", (Var("i"), ix(3)), DType.I64))),
    ("Y[i] = f32(i64(7))", Cast(DType.F32, ix(7))),
    ("Y[i] = f32(7)", Const(7.0, DType.F32)),
    ("Y[i] = 1+2", Op("+", (Const(1.0, DType.F32), Const(2.0, DType.F32)), DType.F32)),
]


@pytest.mark.parametrize(("line", "value"), LITERALS)
def test_literals_take_their_dtype_from_the_context(line: str, value: object) -> None:
    loop = parse(header(f"for i:N {line}")).body[0]
    assert isinstance(loop, Loop)
    store = loop.body[0]
    assert isinstance(store, Store)
    assert store.value == value


# (text, code, line, column, part of the message, part of the hint)
ERRORS = [
    (header("for i:N Y[i] = Q[i,0]"), "check-name", 4, 16, "no array named Q", ""),
    (header("for i:N Y[i] = exq(A[i,0])"), "syntax-function", 4, 16, "exq", "did you mean exp?"),
    (header("for i:N Y[i] = A[i,j]"), "check-name", 4, 20, "no loop variable or size named j", ""),
    (header("for iter:N Y[iter] = A[itr,0]"), "check-name", 4, 24, "itr", "did you mean iter?"),
    (header("for i:N Y[i] = N[i]"), "check-name", 4, 16, "N is a size, not an array", ""),
    (header("for i:N Y[i] = A"), "check-rank", 4, 16, "A is an array", "A[?,?]"),
    (header("for i:N Y[i] = A[i]"), "check-rank", 4, 16, "2 dimensions, but is given 1 index", ""),
    (header("for i:N Y[i] = A[i,0]+h[i]"), "type-operand", 4, 16, "A[i,0] is f32 and h[i] is f16", "f32(h[i])"),
    (header("for i:N Y[i] = h[i]"), "type-store", 4, 16, "Y holds f32, but the value is f16", "f32(...)"),
    (header("for i:N Y[i] = i/2"), "type-operand", 4, 16, "/ does not take i64", "//"),
    (header("for i:N Y[i] = i"), "type-store", 4, 16, "the value is i64", ""),
    (header("for i:N Y[i] = A[h[i],0]"), "type-index", 4, 18, "h[i] is f16", ""),
    (header("for i:N Y[i] = 1<2"), "type-literal", 4, 16, "nothing here gives the literal a dtype", "f32(1)"),
    (header("for i:N if i: Y[i] = 1"), "type-cond", 4, 12, "this is i64", ""),
    (header("for i:N Y[i] = 1e39"), "type-literal", 4, 16, "1e39 does not fit f32", "inf"),
    (header("for i:N*1.5 Y[i] = 1"), "type-literal", 4, 9, "1.5 is not a literal of i64", "digits"),
    (header("for i:9223372036854775808 Y[i] = 1"), "type-literal", 4, 7, "does not fit i64", ""),
    (header("for i:N Y[i] = b[i] + 1"), "type-operand", 4, 16, "+ does not take bool", "or"),
    (header("for i:N Y[i] = select(i<2>1,1,0)"), "syntax-chain", 4, 26, "with < stands before >", "only < and <= chain"),
    (header("for i:N Y[i] = select(i==2==b[i],1,0)"), "syntax-chain", 4, 27, "with == stands before ==", "parentheses"),
    (header("for i:N Y[i] = select(i<2<A[i,0],1,0)"), "type-operand", 4, 23, "i64(2) is i64 and A[i,0] is f32", "cast"),
    (header("for i:N Y[i] = select((i<2)<i,1,0)"), "type-operand", 4, 23, "i<2 is bool", "only < and <= chain"),
    (header("for i:N Y[i] = max(A[i,0])"), "type-operand", 4, 16, "max takes 2", ""),
    (header("for i:N Y[i] = exp"), "syntax-expected", 4, 16, "exp needs an argument", ""),
    (header("for i:N Y[i] = (A[i,0]"), "syntax-expected", 4, 23, "expected ')'", ""),
    (header("for i:N Y[i] = A[i,0] A[i,1]"), "syntax-expected", 4, 23, "end of the line", ""),
    (header("for i:N Y[i] == 1"), "syntax-expected", 4, 14, "expected an assignment", "max="),
    (header("for i:N carry Y[i] = 1"), "syntax-carry", 4, 9, "carry", "drop"),
    (header("for i j Y[i] = 1"), "syntax-extent", 4, 7, "the extent of loop j cannot be inferred: no access indexes a dimension by j alone", "write j:J"),
    (header("for i m Y[i] += A[i,m+1]"), "syntax-extent", 4, 7, "by m alone", "write m:M"),
    (header("for i j Y[i] += A[j,j]"), "syntax-extent", 4, 7, "it indexes dimension N of A and dimension M of A", "write j:N or j:M"),
    (header("for i jj Y[i] += A[i,j]"), "check-name", 4, 22, "named j", "did you mean jj?"),
    ("in A B f32[3] C u8[3]", "type-dtype", 1, 17, "no dtype named u8", "dtypes: f16"),
    ("in A B C A f32[3]", "check-name", 1, 10, "already declared in line 1", ""),
    ("in A B f32", "syntax-expected", 1, 11, "dtype of B", "scalar"),
    (header("for i N Y[i] = 1"), "check-name", 4, 7, "N is already declared", ""),
    (header("for i\n tmp q f32[P=3]\n q[0] = 1\n Y[i] = q[0]"), "check-name", 5, 12, "named P", ""),
    ("out Y f32[4,]", "syntax-expected", 1, 13, "expected an expression", ""),
    ("where 1==1\nwhere true", "type-literal", 1, 7, "", ""),
    ("where true\nwhere true", "syntax-order", 2, 1, "second 'where' line", ""),
    (header("for i:N"), "syntax-body", 4, 7, "without a body", ""),
    (header("fro i:N Y[i] = 1"), "syntax-expected", 4, 1, "expected a loop", "did you mean for?"),
    (header("for i:N\n Y[i] = 1\n  Y[i] = 2"), "syntax-indent", 6, 3, "without a loop", ""),
    (header("for i:N\n   Y[i] = 1\n  Y[i] = 2"), "syntax-indent", 6, 3, "matches no open block", "0"),
    (header("for i:N\n\tY[i] = 1"), "syntax-indent", 5, 1, "tab", "blanks"),
    (header("for i:N\n \tY[i] = 1"), "syntax-indent", 5, 2, "tab", "blanks"),
    (header("for i:N if i<2:\n tmp q f32[]\n q[] = 1"), "syntax-order", 5, 2, "not to a guard", ""),
    (header("for i:N for i:M Y[i] = 1"), "check-name", 4, 13, "already a loop variable", ""),
    (header("for A:N Y[A] = 1"), "check-name", 4, 5, "already declared in line 2", ""),
    (header("for max:N Y[max] = 1"), "check-name", 4, 5, "max is reserved", ""),
    (header("for i:N\n tmp q f32[]\n q[] = 1\nfor i:N Y[i] = q[]"), "check-name", 7, 16, "inside the loop of line 4", ""),
    (header("for i:N Y[i] = 1 ;"), "syntax-char", 4, 18, "';'", "one statement a line"),
    (header("for i:N Y[i] = é"), "syntax-char", 4, 16, "'é'", ""),
    (header("for i:N Y[i] = 2x"), "syntax-number", 4, 16, "not a number", "digit"),
    ("size N=4 M=K+1\nout Y f32[N]", "check-name", 1, 12, "K", ""),
    ("size N=-1\nout Y f32[N]", "check-size", 1, 8, "size N is -1", ""),
    ("size N=4//0\nout Y f32[N]", "check-index", 1, 8, "division by zero", ""),
    ("size N=4, M=3", "syntax-expected", 1, 9, "end of the line", "blanks"),
    ("size N=4\nsize M=3", "syntax-order", 2, 1, "second 'size' line", ""),
    ("out Y f32[]\nin A f32[]", "syntax-order", 2, 1, "'in' stands after 'out'", "size, in, out, tmp"),
    ("in A[3]\nout Y f32[]", "type-dtype", 1, 4, "must state its dtype", "A f32"),
    ("in A f31[3]", "type-dtype", 1, 6, "no dtype named f31", "did you mean f32?"),
    ("in A f32 3", "syntax-expected", 1, 10, "expected '['", "scalar"),
    ("in A f32[3] A i64[]", "check-name", 1, 13, "already declared in line 1", ""),
    ("where 1==1", "type-literal", 1, 7, "nothing here gives", ""),
    ("if", "syntax-expected", 1, 3, "expected an expression", ""),
    ("x", "syntax-expected", 1, 1, "found 'x'", "statements look like"),
]


@pytest.mark.parametrize(("text", "code", "line", "column", "message", "hint"), ERRORS)
def test_errors_have_code_place_and_hint(text: str, code: str, line: int, column: int, message: str, hint: str) -> None:
    with pytest.raises(LeirError) as caught:
        parse(text, "model.leir")
    error = caught.value
    assert error.place is not None
    assert (error.code, error.place.line, error.place.column) == (code, line, column)
    assert message in error.message
    assert hint in error.hint
    assert f"model.leir:{line}:{column}" in error.render()
    assert "^" in error.place.render()


def nested(levels: int) -> str:
    return header("for q:N Y[q] = 1\n" + "".join(f"{' ' * n}for i{n}x:1\n" for n in range(levels)) + " " * levels + "Y[0] = 1")


DEEP = [
    (header("for i:N Y[i] = " + "(" * 4000 + "1" + ")" * 4000), "syntax-depth"),
    (header("for i:N Y[i] = " + "-" * 4000 + "A[i,0]"), "syntax-depth"),
    (header("for i:N if " + "not " * 4000 + "b[i]: Y[i] = 1"), "syntax-depth"),
    (header("for i:N Y[i] = " + "+".join(["A[i,0]"] * 4000)), "syntax-depth"),
    (header("for i:N Y[i] = " + "+".join(["1"] * 4000)), "syntax-depth"),
    (header("for i:N Y[i" + "//2" * 400 + "] = 1"), "syntax-depth"),
    (header("for i:N Y[" + "t[" * 4000 + "0" + "]" * 4000 + "] = 1"), "syntax-depth"),
    (header("for i:N " + " ".join(f"for j{n}x:1" for n in range(400)) + " Y[i] = 1"), "syntax-depth"),
    (nested(70), "syntax-depth"),
    (nested(400), "syntax-depth"),
    (header("for i:N Y[i] = " + "9" * 5000), "syntax-number"),
    ("size " + "N" * 5000 + "=1", "syntax-name"),
    ("#" * 600_000, "syntax-size"),
    ("size A=3037000500 B=A*A C=B*B D=C*C", "check-size"),
]


@pytest.mark.parametrize(("text", "code"), DEEP)
def test_deep_and_huge_texts_are_refused_with_a_code(text: str, code: str) -> None:
    with pytest.raises(LeirError) as caught:
        parse(text)
    assert caught.value.code == code
    assert caught.value.place is not None
    assert caught.value.place.line >= 1


@pytest.mark.parametrize("levels", [20, 60])
def test_deep_but_legal_programs_read_back(levels: int) -> None:
    program = parse(nested(levels))
    assert parse(print_program(program)) == program


@pytest.mark.parametrize("shape", ["left", "right", "paren"])
def test_expressions_of_the_greatest_depth_read_back(shape: str) -> None:
    if shape == "left":
        text = "+".join(["A[i,0]"] * 127)
    elif shape == "right":
        text = "A[i,0]-(" * 126 + "A[i,0]" + ")" * 126
    else:
        text = "exp(" * 126 + "A[i,0]" + ")" * 126
    program = parse(header(f"for i:N Y[i] = {text}"))
    assert parse(print_program(program)) == program


def context() -> Program:
    return parse(header("for i:N Y[i] = 1"))


def test_parse_expr_reads_one_expression() -> None:
    assert parse_expr("i*2+N", context(), ["i"]) == op("+", op("*", Var("i"), ix(2)), Size("N"))
    assert parse_expr("1", context(), expected=DType.F16) == Const(1.0, DType.F16)
    assert parse_expr("A[i,0]<1", context(), ["i"]).dtype is DType.BOOL


@pytest.mark.parametrize(
    ("text", "code"), [("i", "check-name"), ("1", "type-literal"), ("N N", "syntax-expected"), ("", "syntax-expected"), ("N\nN", "syntax-expected")]
)
def test_parse_expr_refuses(text: str, code: str) -> None:
    with pytest.raises(LeirError) as caught:
        parse_expr(text, context())
    assert caught.value.code == code


def test_place_of_points_into_the_text_that_was_read() -> None:
    program = parse(EVERYTHING, "x.leir")
    place = place_of(program, (1, 0))
    assert (place.filename, place.line, place.column) == ("x.leir", 12, 7)
    built = program.with_(body=program.body[1:])
    assert place_of(built, (0, 0)).line == 6
    assert "h[i]=inf" in place_of(built, (0, 0)).render()
