"""Intervals contain every value; value ranges of computed tables are sound."""

from __future__ import annotations

import itertools

from hypothesis import given, settings
from hypothesis import strategies as st

from steptp.analysis.affine import Frame, linear
from steptp.analysis.intervals import interval, loop_intervals, narrow, value_ranges
from steptp.ir import DType, Expr, Program
from steptp.ir.parser import parse, parse_expr
from steptp.ir.sizes import eval_index

HOME = parse("size N=7\nin A f32[9]\nout Y f32[9]\nfor i:9 Y[i] = A[i]\n")


def expr(text: str, dtype: DType = DType.I64) -> Expr:
    return parse_expr(text, HOME, ["i", "j"], dtype)


_atom = st.sampled_from(["i", "j", "N", "0", "3", "5"])
_infix = st.sampled_from(["({}+{})", "({}-{})", "({}*{})", "max({},{})", "min({},{})"])
_by = st.sampled_from(["({}//3)", "({}%4)", "({}//2)", "(-{})", "abs({})", "select(i<j, {}, 2*j-1)", "({}%(0-3))"])
_texts = st.recursive(
    _atom, lambda inner: st.one_of(st.builds(lambda f, a, b: f.format(a, b), _infix, inner, inner), st.builds(str.format, _by, inner)), max_leaves=6
)


@settings(max_examples=150, deadline=None)
@given(_texts)
def test_interval_contains_every_value(text: str) -> None:
    e = expr(f"{text}+0*i")
    values = [eval_index(e, {"i": i, "j": j, "N": 7}) for i, j in itertools.product(range(4), range(6))]
    found = interval(e, {"i": (0, 3), "j": (0, 5)}, {"N": 7})
    assert found is not None
    assert found[0] <= min(values)
    assert max(values) <= found[1]


@settings(max_examples=150, deadline=None)
@given(_texts)
def test_quasi_affine_functions_agree_with_evaluation(text: str) -> None:
    e = expr(f"{text}+0*i")
    frame = Frame(["i", "j"], {"N": 7})
    f = frame.aff(e)
    if f is None:  # a product of variables
        assert "*" in text
        return
    form = linear(e, {"N": 7})
    for i, j in itertools.product(range(4), range(6)):
        value = eval_index(e, {"i": i, "j": j, "N": 7})
        at = frame.cond(expr(f"i=={i} and j=={j}", DType.BOOL))[0]
        assert f.intersect_domain(at).eq_set(frame.constant(value)).is_equal(at)
        if form is not None:
            assert form[1] + sum(c * {"i": i, "j": j}[v] for v, c in form[0]) == value


def test_conditions_narrow_whole_expressions() -> None:
    table = parse("in T i32[9]\nout Y f32[9]\nfor i:9 Y[i] = f32(T[i])\n")
    cond = parse_expr("T[i]>=2 and not T[i]>=6", table, ["i"], DType.BOOL)
    read = parse_expr("T[i]", table, ["i"], DType.I32)
    env = {"i": (0, 8)}
    assert interval(read, env, {}, {}, narrow(cond, True, env, {}, {}, None)) == (2, 5)
    assert interval(read, env, {}, {}, narrow(cond, False, env, {}, {}, None)) == (-(1 << 31), (1 << 31) - 1)


def _ranges(text: str) -> dict[str, tuple[int, int]]:
    program: Program = parse(text)
    return value_ranges(program)


def test_ranges_of_computed_tables() -> None:
    head = "in A f32[20]\nout Y f32[20]\ntmp T i64[20] U i64[20]\n"
    tail = "for i:20 Y[i] = A[U[i]]\n"
    assert _ranges(head + "for i:20 T[i] = i//3\nfor i:20 U[i] = T[i]+T[19-i]\n" + tail) == {"T": (0, 6), "U": (0, 12)}
    assert "T" not in _ranges(head + "T[0] = 0\nfor i:19 T[i+1] = T[i]+1\nfor i:20 U[i] = i\n" + tail)
    assert _ranges(head + "for i:20 k:5 T[i] += k\nfor i:20 U[i] = min(T[i],19)\n" + tail) == {"T": (0, 20), "U": (0, 19)}


def test_guards_limit_what_is_stored_unless_they_read_memory() -> None:
    head = "in A f32[20]\nout Y f32[20]\ntmp T i64[24] U i64[20]\n"
    tail = "for i:20 Y[i] = A[U[i]]\n"
    split = "for i:8 j:3 if i*3+j<20: T[i*3+j] = i*3+j\nfor i:20 U[i] = T[i]\n"
    assert _ranges(head + split + tail) == {"T": (0, 19), "U": (0, 19)}
    changing = "for i:24 T[i] = 3\nfor i:20\n if T[i]<4:\n  T[i] = 30\n  U[i] = T[i]\n"
    assert _ranges(head + changing + tail) == {"T": (3, 30), "U": (3, 30)}


def test_extents_that_depend_on_outer_loops() -> None:
    loops = [("i", expr("4")), ("j", expr("i+2"))]
    assert loop_intervals(loops, {}) == {"i": (0, 3), "j": (0, 4)}
    assert loop_intervals([("i", expr("0"))], {}) == {"i": (0, -1)}
