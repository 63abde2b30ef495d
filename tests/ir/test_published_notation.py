"""The published notation: every construct, every open point, every refusal."""

from __future__ import annotations

import math

import numpy as np
import pytest
from published_oracle import run_text

from steptp.errors import LeirError
from steptp.interp import evaluate
from steptp.ir import DType, parse, print_program, problems
from steptp.ir.published import OPEN_POINTS, REFUSALS, read, read_pair
from steptp.ir.published import parse as parse_published
from steptp.ir.types import LoopKind
from steptp.ir.walk import visit

MATMUL = "B^{4}_{tx=0}L^{3}_{a=0}L^{5}_{c=0}[D^{f32,g}_{tx,a}=D^{f32,g}_{tx,a}+A^{f32,g}_{tx,c}*C^{f32,g}_{c,a};];"
BIAS = MATMUL + "B^{4}_{tx=0}L^{3}_{a=0}[D^{f32,g}_{tx,a}=D^{f32,g}_{tx,a}+E^{f32,g}_{a};];"
INF = math.inf

# text, what tensors start as, the open points that must be named
PROGRAMS = {
    "matmul": (MATMUL, {"D": 0.0}, {"shape-inferred"}),
    "bias after a reduction": (BIAS, {"D": 0.0}, {"init-continue"}),
    "update of nothing": ("L^{4}_{a=0}[Y^{f32,g}_{a}=Y^{f32,g}_{a}+X^{f32,g}_{a};];", {"Y": 0.0}, {"init-update"}),
    "product of nothing": ("L^{4}_{a=0}[Y^{f32,g}_{a}=Y^{f32,g}_{a}*X^{f32,g}_{a};];", {"Y": 1.0}, {"init-update"}),
    "reduction of a part": (
        "L^{3}_{a=0}L^{2}_{c=0}[T^{f32,g}_{a}=T^{f32,g}_{a}+X^{f32,g}_{a,c};];L^{5}_{a=0}[Y^{f32,g}_{a}=T^{f32,g}_{a}+1;];", {"T": 0.0}, {"init-partial"},
    ),
    "reduction into overlapping places": ("L^{3}_{a=0}L^{2}_{c=0}L^{2}_{d=0}[Y^{f32,g}_{a+c}=Y^{f32,g}_{a+c}+X^{f32,g}_{a,c,d};];", {"Y": 0.0}, {"init-partial"}),
    "two reductions into one": (
        "L^{2}_{a=0}L^{3}_{c=0}[Y^{f32,g}_{a}=max(Y^{f32,g}_{a},X^{f32,g}_{a,c});];L^{2}_{a=0}L^{3}_{c=0}[Y^{f32,g}_{a}=max(Y^{f32,g}_{a},Z^{f32,g}_{a,c});];",
        {"Y": -INF}, {"init-continue"},
    ),
    "minimum with a literal": ("L^{2}_{a=0}L^{3}_{c=0}[Y^{f32,g}_{a}=min(X^{f32,g}_{a,c},Y^{f32,g}_{a});];", {"Y": INF}, set()),
    "sum of several terms": ("L^{2}_{a=0}L^{3}_{c=0}[Y^{f32,g}_{a}=Y^{f32,g}_{a}+X^{f32,g}_{a,c}-2*X^{f32,g}_{a,c}**2;];", {"Y": 0.0}, {"sum-rest"}),
    "position of the last maximum": (
        "B^{2}_{tx=0}L^{4}_{a=0}[D^{f32,g}_{tx}=max(D^{f32,g}_{tx},X^{f32,g}_{tx,a});C^{i64,g}_{tx}=0;];"
        "B^{2}_{tx=0}L^{4}_{a=0}[C^{i64,g}_{tx}=if_then_else(X^{f32,g}_{tx,a}>=D^{f32,g}_{tx},a,C^{i64,g}_{tx});];",
        {"D": -INF}, {"order-serial"},
    ),
    "padding": (
        "L^{6}_{a=0}[P^{f32,g}_{a}=if_then_else(1<=a<5,X^{f32,g}_{a-1},0);];L^{4}_{a=0}L^{3}_{c=0}[Y^{f32,g}_{a}=Y^{f32,g}_{a}+P^{f32,g}_{a+c};];", {"Y": 0.0}, set(),
    ),
    "joined conditions": ("L^{4}_{a=0}L^{4}_{c=0}[Y^{f32,g}_{a,c}=if_then_else(1<=a<3&c>=1,X^{f32,g}_{a-1,c-1},-X^{f32,g}_{a,c});];", {}, {"condition"}),
    "guard over two variables": ("L^{3}_{a=0}L^{3}_{c=0}[Y^{f32,g}_{a,c}=if_then_else(a+c-1<0,0,X^{f32,g}_{a+c-1});];", {}, set()),
    "table of indices": (
        "L^{4}_{a=0}L^{2}_{c=0}[E^{i64,g}_{a,c}=a+c;];L^{4}_{a=0}L^{2}_{c=0}[Y^{f32,g}_{a}=Y^{f32,g}_{a}+X^{f32,g}_{E^{i64,g}_{a,c}};];", {"Y": 0.0}, set(),
    ),
    "guarded table of indices": ("L^{4}_{a=0}[E^{i64,g}_{a}=a-1;];L^{4}_{a=0}[Y^{f32,g}_{a}=if_then_else(1<=a,X^{f32,g}_{E^{i64,g}_{a}},0);];", {}, set()),
    "whole numbers divided": ("L^{3}_{a=0}[Y^{f32,g}_{a}=X^{f32,g}_{a}**(1/2)+7/4;];", {}, {"division"}),
    "whole numbers in an index": ("L^{6}_{a=0}[Y^{f32,g}_{a}=X^{f32,g}_{a//2,a%2};];", {}, set()),
    "variables as numbers": ("L^{3}_{a=0}[Y^{f32,g}_{a}=X^{f32,g}_{a}/(min(2,7-a*3)+1);];", {}, {"dtype-mixed"}),
    "scalars": ("L^{3}_{a=0}[S^{f32,g}=S^{f32,g}+X^{f32,g}_{a};];B^{1}_{tx=0}[Y^{f32,g}=sqrt(S^{f32,g}*S^{f32,g});];", {"S": 0.0}, set()),
    "functions": ("L^{3}_{a=0}[Y^{f32,g}_{a}=exp(X^{f32,g}_{a})*0.5*(1+erf(X^{f32,g}_{a}/sqrt(2)))-abs(-X^{f32,g}_{a})*log(2);];", {}, set()),
    "literals that are not exact": ("L^{3}_{a=0}[Y^{f32,g}_{a}=0.25*X^{f32,g}_{a}+524288.1;];", {}, {"dtype-literal"}),
    "minus before a power": ("L^{3}_{a=0}[Y^{f32,g}_{a}=-X^{f32,g}_{a}**2;];", {}, set()),
    "another dtype": (
        "L^{3}_{a=0}[T^{f64,g}_{a}=4*a;];L^{3}_{a=0}[Y^{f32,g}_{a}=X^{f32,g}_{a}*T^{i32,g}_{a};];", {}, {"dtype-read", "dtype-mixed"},
    ),
    "scope across nests": ("B^{3}_{tx=0}[T^{f32,s}_{tx}=X^{f32,g}_{tx};];B^{3}_{tx=0}[Y^{f32,g}_{tx}=T^{f32,s}_{tx};];", {}, {"scope-across"}),
    "scope in a nest": ("B^{3}_{tx=0}[T^{f32,l}_{tx}=X^{f32,g}_{tx};Y^{f32,g}_{tx}=T^{f32,l}_{tx};];", {}, {"scope-dropped"}),
    "tiled": ("L^{2}_{f=0}B^{3}_{tx=0}[Y^{f32,g}_{f*3+tx}=X^{f32,g}_{f*3+tx};];", {}, set()),
}  # fmt: skip


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_program_computes_what_the_text_says(name: str) -> None:
    text, starts, codes = PROGRAMS[name]
    reading = read(text)
    program = reading.program
    assert not problems(program)
    assert codes <= set(reading.codes) <= set(OPEN_POINTS)
    rng = np.random.default_rng(7)
    shapes = {b.name: tuple(d.value for d in b.shape) for b in program.inputs}  # type: ignore[attr-defined]
    inputs = {n: rng.integers(1, 9, s).astype(np.float32) for n, s in shapes.items()}
    wanted = run_text(text, inputs, starts)
    found = evaluate(program, inputs, dtype_override="f64")
    assert found
    for out, array in found.items():
        assert wanted[out] == pytest.approx(dict(np.ndenumerate(array)), rel=1e-12)  # in f64 throughout
    assert parse(print_program(program)) == program
    for got, again in zip(evaluate(reading.serial, inputs).values(), evaluate(program, inputs).values(), strict=True):
        np.testing.assert_array_equal(got, again)


def test_interface_and_shapes() -> None:
    program = parse_published(BIAS)
    assert [(b.name, [d.value for d in b.shape]) for b in program.inputs] == [("A", [4, 5]), ("C", [5, 3]), ("E", [3])]  # type: ignore[attr-defined]
    assert [b.name for b in program.outputs] == ["D"]
    assert program.tmps == ()


def test_a_bias_is_added_once() -> None:
    inputs = {"A": np.ones((4, 5), np.float32), "C": np.ones((5, 3), np.float32), "E": np.full(3, 100, np.float32)}
    assert (evaluate(parse_published(BIAS), inputs)["D"] == 105).all()


def test_a_literal_that_its_partner_cannot_hold_is_not_lost() -> None:
    program = parse_published("L^{2}_{a=0}[Y^{f16,g}_{a}=X^{f16,g}_{a}/524288+0.01;];")
    value = evaluate(program, {"X": np.full(2, 32768, np.float16)})["Y"]
    assert value[0] == np.float16(32768 / 524288 + 0.01)


@pytest.mark.parametrize(
    ("text", "kinds", "dropped"),
    [
        ("P^{4}_{a=0}V^{4}_{c=0}[Y^{f32,g}_{a,c}=X^{f32,g}_{a,c};];", ["par", "vec"], 0),
        ("B^{4}_{bx=0}B^{4}_{tya=0}U^{2}_{c=0}[Y^{f32,g}_{bx,tya,c}=X^{f32,g}_{bx,tya,c};];", ["bx", "ty", "unroll"], 0),
        ("B^{4}_{tx=0}P^{4}_{a=0}[Y^{f32,g}_{tx,a}=X^{f32,g}_{tx,a};];", ["tx", "for"], 1),
        ("V^{4}_{a=0}L^{4}_{c=0}[Y^{f32,g}_{a,c}=X^{f32,g}_{a,c};];", ["for", "for"], 1),
        ("B^{4}_{tx=0}B^{4}_{bxa=0}[Y^{f32,g}_{tx,bxa}=X^{f32,g}_{tx,bxa};];", ["tx", "for"], 1),
        ("B^{4}_{txa=0}B^{4}_{txc=0}[Y^{f32,g}_{txa,txc}=X^{f32,g}_{txa,txc};];", ["tx", "for"], 1),
        ("B^{2000}_{tx=0}[Y^{f32,g}_{tx}=X^{f32,g}_{tx};];", ["for"], 1),
        ("B^{64}_{tx=0}B^{64}_{tya=0}[Y^{f32,g}_{tx,tya}=X^{f32,g}_{tx,tya};];", ["tx", "for"], 1),
    ],
)
def test_loop_kinds(text: str, kinds: list[str], dropped: int) -> None:
    reading = read(text)
    loops = [m.stmt for m in visit(reading.program) if hasattr(m.stmt, "kind")]
    assert [str(loop.kind) for loop in loops] == kinds
    assert sum(n.code == "kind-dropped" for n in reading.notes) == dropped
    claimed = [m.stmt for m in visit(reading.claimed) if hasattr(m.stmt, "kind")]
    assert all(loop.kind is not LoopKind.SERIAL for loop in claimed if loop.var not in ("a", "c") or dropped == 0)  # type: ignore[union-attr]


def test_reserved_names_are_changed() -> None:
    reading = read("B^{3}_{tx=0}[max^{f32,g}_{tx}=X^{f32,g}_{tx};];")
    assert "name-changed" in reading.codes
    assert [b.name for b in reading.program.outputs] == ["max_"]


BROKEN = [
    ("", "syntax-expected", 1),
    ("L^{4}_{a=0}[];", "syntax-expected", 13),
    ("L^{4}_{a=0}[Y^{f32,g}_{a}=X^{f32,g}_{a}", "syntax-expected", 40),
    ("Q^{4}_{a=0}[Y^{f32,g}_{a}=1;];", "syntax-loop", 1),
    ("L^{4}_{a=1}[Y^{f32,g}_{a}=1;];", "syntax-loop", 10),
    ("L^{0}_{a=0}[Y^{f32,g}_{a}=1;];", "syntax-extent", 4),
    ("L^{4}_{a=0}L^{4}_{a=0}[Y^{f32,g}_{a}=1;];", "check-name", 19),
    ("L^{4}_{a=0}[Y^{f32,q}_{a}=1;];", "syntax-scope", 20),
    ("L^{4}_{a=0}[Y^{f31,g}_{a}=1;];", "type-dtype", 16),
    ("L^{4}_{a=0}[Y^{f32,g}_{a}=b;];", "check-view", 27),
    ("L^{4}_{a=0}[Y^{f32,g}_{a}=expp(1);];", "syntax-function", 27),
    ("L^{4}_{a=0}[Y^{f32,g}_{a}=exp(1,2);];", "syntax-function", 27),
    ("L^{4}_{a=0}[Y^{f32,g}_{a}=1|2;];", "syntax-char", 28),
    ("L^{4}_{a=0}[Y^{f32,g}_{a}=2x;];", "syntax-number", 27),
    ("L^{4}_{a=0}[a=1;];", "syntax-expected", 13),
    ("L^{4}_{a=0}[Y^{f32,g}_{a}=if_then_else(0<a>1,1,2);];", "syntax-expected", 43),
    ("L^{4}_{a=0}[Y^{f32,g}_{a}=" + "(" * 120 + "1" + ")" * 120 + ";];", "syntax-depth", 127),
    ("L^{4}_{a=0}[Y^{f32,g}_{a}=X^{f32,g}_{a-1};];", "published-bounds", 38),
    ("L^{4}_{a=0}[Y^{f32,g}_{a}=X^{f32,g}_{a}+X^{f32,g}_{a,a};];", "published-rank", 41),
    ("L^{4}_{a=0}[Y^{f32,g}_{a}=X^{f32,g}_{a}+X^{f16,g}_{a};];", "published-dtype", 41),
    ("L^{4}_{a=0}[Y^{f32,g}_{a}=X^{f32,g}_{a/2};];", "published-index", 38),
    ("L^{4}_{a=0}[Y^{f32,g}_{a}=X^{f32,g}_{K^{i64,g}_{a}};];", "published-index", 38),
    ("L^{4}_{a=0}[Y^{f32,g}_{a}=if_then_else(X^{f32,g}_{a}>0,a,Y^{f32,g}_{a});];", "published-init", 13),
    ("L^{2}_{a=0}[Y^{f32,g}_{a}=Y^{f32,g}_{a}+1;];L^{2}_{a=0}L^{2}_{c=0}[Y^{f32,g}_{a}=max(Y^{f32,g}_{a},X^{f32,g}_{c});];", "published-init", 13),
    ("L^{4}_{a=0}[Y^{f32,g}_{a}=X^{f32,g}_{a};];L^{4}_{a=0}[X^{f32,g}_{a}=Y^{f32,g}_{a};];", "published-output", 43),
    ("L^{4}_{a=0}[Y^{f32,s}_{a}=X^{f32,g}_{a};];", "published-scope", 13),
    ("L^{4}_{a=0}[Y^{f32,g}_{a}=X^{f32,g}_{a}>0;];", "published-type", 27),
    ("L^{4}_{a=0}[Y^{f32,g}_{a}=if_then_else(X^{f32,g}_{a},1,2);];", "published-type", 40),
    ("L^{4}_{a=0}[Y^{f32,g}_{a}=X^{f32,g}_{a}%2;];", "published-type", 27),
]


@pytest.mark.parametrize(("text", "code", "column"), BROKEN)
def test_errors_have_a_code_and_a_place(text: str, code: str, column: int) -> None:
    with pytest.raises(LeirError) as caught:
        read(text, "x.txt")
    error = caught.value
    assert (error.code, error.place and error.place.column) == (code, column)
    assert "x.txt:1:" in error.render()
    assert "^" in error.render()
    if code.startswith("published-"):
        assert code in REFUSALS


@pytest.mark.parametrize("value", ["-" * 5000 + "1", "1+" * 5000 + "1", "X^{f16,g}_{a}*" * 3000 + "1", "2**" * 3000 + "1", "1+" * 200 + "1"])
def test_high_trees_are_errors_and_never_crashes(value: str) -> None:
    with pytest.raises(LeirError) as caught:
        read("L^{2}_{a=0}[Y^{f16,g}_{a}=" + value + ";];")
    assert caught.value.code in ("syntax-depth", "check-depth")


def test_places_count_lines() -> None:
    with pytest.raises(LeirError) as caught:
        read("L^{4}_{a=0}[\n  Y^{f32,g}_{a}=1;\n  Z^{f32,g}_{a}=b;\n];")
    assert caught.value.place is not None
    assert (caught.value.place.line, caught.value.place.column) == (3, 17)


def test_a_pair_shares_the_interface_of_its_reference() -> None:
    text = "L^{4}_{a=0}[Y^{f32,g}_{a}=X^{f32,g}_{a};];"
    wide = "L^{4}_{a=0}[Y^{f32,g}_{a}=X^{f32,g}_{a}+0*X^{f32,g}_{a+1};];"
    pair = read_pair(text, wide)
    assert [b.shape[0].value for b in (*pair.reference.program.inputs, *pair.candidate.program.inputs)] == [5, 5]  # type: ignore[attr-defined]
    fewer = read_pair(wide.replace("X^{f32,g}_{a+1}", "W^{f32,g}_{a}"), text)
    assert [b.name for b in fewer.candidate.program.inputs] == ["X", "W"]


def test_an_output_of_another_name_is_matched_where_that_is_unique() -> None:
    text = "L^{4}_{a=0}[Y^{f32,g}_{a}=X^{f32,g}_{a};];"
    pair = read_pair(text, text.replace("Y", "Z"))
    assert pair.matched == ("Z of the candidate is Y of the reference",)
    assert pair.candidate.program.outputs == pair.reference.program.outputs


@pytest.mark.parametrize(
    ("candidate", "code"),
    [
        ("L^{4}_{a=0}[Z^{f32,g}_{a}=X^{f32,g}_{a};W^{f32,g}_{a}=X^{f32,g}_{a};];", "published-interface"),
        ("L^{4}_{a=0}[Z^{f32,g}_{a,a}=X^{f32,g}_{a};];", "published-output"),
        ("L^{4}_{a=0}[Y^{f32,g}_{a}=X^{f32,g}_{a}+V^{f32,g}_{a};];", "published-interface"),
        ("L^{4}_{a=0}[Y^{f32,g}_{a}=X^{f16,g}_{a};];", "published-interface"),
        ("L^{4}_{a=0}[X^{f32,g}_{a}=1;Y^{f32,g}_{a}=X^{f32,g}_{a};];", "published-input"),
        ("L^{4}_{a=0}[Y^{f32,l}_{a}=X^{f32,g}_{a};];", "published-scope"),
    ],
)
def test_a_candidate_that_does_not_offer_the_interface(candidate: str, code: str) -> None:
    with pytest.raises(LeirError) as caught:
        read_pair("L^{4}_{a=0}[Y^{f32,g}_{a}=X^{f32,g}_{a};];", candidate)
    assert caught.value.code == code


def test_dtypes_stay() -> None:
    program = parse_published("L^{2}_{a=0}L^{3}_{c=0}[Y^{f16,g}_{a}=Y^{f16,g}_{a}+X^{f16,g}_{a,c}*X^{f16,g}_{a,c};];")
    assert {b.dtype for b in (*program.inputs, *program.outputs)} == {DType.F16}
    assert "f64" not in print_program(program)


def test_several_outputs_are_noted() -> None:
    reading = read("L^{2}_{a=0}[Y^{f32,g}_{a}=X^{f32,g}_{a};Z^{f32,g}_{a}=2*X^{f32,g}_{a};];")
    assert [b.name for b in reading.program.outputs] == ["Y", "Z"]
    assert "output-chosen" in reading.codes
