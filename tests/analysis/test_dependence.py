"""Dependences: exact pairs at the right loops, checked against brute-force enumeration."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steptp.analysis import Model, can_reorder, carried_by, check_order, dependences, is_parallel, violated
from steptp.analysis.dependence import Dependence, may_carry
from steptp.analysis.model import Statement
from steptp.ir import DType, Program
from steptp.ir.parser import parse, parse_expr
from steptp.ir.sizes import eval_index

MM = "in A f32[20,30] B[30,10]\nout C f32[20,10]\nfor i:20 j:10 k:30 C[i,j] += A[i,k]*B[k,j]\n"
SKEWED = "in A f32[6,6]\nout Y f32[7,7]\nfor i:7 j:7 Y[i,j] = 0\nfor i:6 j:5 Y[i+1,j] = Y[i,j+1]+A[i,j]\n"


def _kinds(found: tuple[Dependence, ...]) -> set[tuple[int, int, tuple[str, ...], str | None]]:
    return {(d.src.id, d.dst.id, d.kinds, d.loop.var if d.loop else None) for d in found}


def test_matmul_has_a_reset_and_one_reduction() -> None:
    found = dependences(parse(MM))
    assert _kinds(found) == {(0, 1, ("flow", "output"), None), (1, 1, ("flow", "anti", "output"), "k")}
    reduction = next(d for d in found if d.reduction)
    assert reduction.carrier == (0, 0, 0)
    assert reduction.sample == ((0, 0, 0), (0, 0, 1))
    assert reduction.explain() == "S1(i=0,j=0,k=0) accumulates into C[0,0], which S1(i=0,j=0,k=1) accumulates into later (carried by loop k)"


def test_parallel_loops_of_a_matmul() -> None:
    p = parse(MM)
    assert is_parallel(p, (0,)) == (True, None)
    assert is_parallel(p, (0, 0))[0]
    ok, why = is_parallel(p, (0, 0, 0))
    assert not ok
    assert why is not None
    assert why.reduction


def test_skewed_dependence_forbids_interchange() -> None:
    p = parse(SKEWED)
    order = can_reorder(p, (1,), (1, 0))
    assert not order.legal
    assert order.broken[0].explain() == "S1(i=0,j=1) writes Y[1,1], which S1(i=1,j=0) reads later (carried by loop i)"
    assert can_reorder(p, (1,), (0, 1)).legal
    straight = parse(SKEWED.replace("Y[i,j+1]", "Y[i,j]"))
    assert can_reorder(straight, (1,), (1, 0)).legal


def test_reordering_reductions_reassociates() -> None:
    p = parse("in A f32[4,5,6]\nout S f32[4]\nfor i:4 j:5 k:6 S[i] += A[i,j,k]\n")
    order = can_reorder(p, (0,), (0, 2, 1))
    assert order.legal
    assert len(order.reassociated) == 1
    assert can_reorder(p, (0,), (1, 2, 0)).reassociated == ()


def test_interchange_that_moves_a_reset_past_a_reader() -> None:
    p = parse("in A f32[4,5]\nout Y f32[4,5]\ntmp s f32[4]\nfor i:4 j:5\n s[i] += A[i,j]\n Y[i,j] = s[i]\n")
    assert can_reorder(p, (0,), (1, 0)).legal
    q = parse("in A f32[4,5]\nout Y f32[4,5]\ntmp s f32[1]\nfor i:4\n s[0] = 0\n for j:5\n  carry s[0] += A[i,j]\n  Y[i,j] = s[0]\n")
    loops = parse("in A f32[4,5]\nout Y f32[4,5]\ntmp s f32[1]\ns[0] = 0\nfor i:4 j:5\n s[0] = s[0]+A[i,j]\n Y[i,j] = s[0]\n")
    assert not can_reorder(loops, (1,), (1, 0)).legal
    with pytest.raises(ValueError, match="perfectly nested"):
        can_reorder(q, (0,), (1, 0))


def test_dates_of_a_fusion() -> None:
    p = parse("in A f32[9]\nout Y f32[9]\ntmp T f32[9]\nfor i:9 T[i] = A[i]\nfor i:9 Y[i] = T[8-i]\n")
    order = violated(p, {0: (0, "i", 0), 1: (0, "i", 1)})
    assert [v.pair for v in order.broken] == [((5,), (3,))] or order.broken[0].pair[0] > order.broken[0].pair[1]
    assert violated(p, {0: (0, "i", 0), 1: (1, "i", 0)}).legal


def test_private_temporaries_carry_nothing() -> None:
    shared = parse("in A f32[9]\nout Y f32[9]\ntmp t f32[1]\nfor i:9\n t[0] = A[i]\n Y[i] = t[0]\n")
    private = parse("in A f32[9]\nout Y f32[9]\nfor i:9\n tmp t f32[1]\n t[0] = A[i]\n Y[i] = t[0]\n")
    assert {k for d in carried_by(shared, (0,)) for k in d.kinds} == {"flow", "anti", "output"}
    assert carried_by(private, (0,)) == ()
    assert is_parallel(private, (0,))[0]
    assert carried_by(shared, (0,), kinds=("anti",))[0].kinds == ("anti",)


def test_tiled_loops_carry_only_what_they_should() -> None:
    p = parse("in A f32[64]\nout Y f32[64]\nfor i0:8 i1:8 Y[i0*8+i1] = A[i0*8+i1]\n")
    assert dependences(p) == ()
    p = parse("in A f32[64]\nout Y f32[64]\nfor i0:8 i1:9 if i0*8+i1<64: Y[i0*8+i1] = A[i0*8+i1]\n")
    (d,) = dependences(p)
    assert d.carrier == (0,)
    assert d.sample == ((0, 8), (1, 0))


def test_lookups_depend_on_the_whole_dimension() -> None:
    p = parse("in A f32[9] T i64[9] 0..5\nout Y f32[9]\nfor i:9 Y[i] = 0\nfor i:9 carry Y[T[i]] += A[i]\n")
    found = [d for d in dependences(p) if d.carrier == (1,)]
    assert found
    assert not found[0].exact
    assert found[0].reduction
    q = parse("in A f32[9] T i64[9] 0..5\nout Y f32[9]\ntmp X f32[9]\nfor i:4 X[i+5] = A[i]\nfor i:5 X[i] = A[i]\nfor i:9 Y[i] = X[T[i]]\n")
    assert {(d.src.id, d.dst.id) for d in dependences(q)} == {(1, 2)}


def test_padding_select_restricts_the_read() -> None:
    p = parse("in A f32[9]\nout Y f32[9]\ntmp X f32[9]\nfor i:9 X[i] = A[i]\nfor i:9 Y[i] = select(i<4, X[i], 0)\n")
    (d,) = dependences(p)
    assert d.relation.range().is_equal(d.relation.range().upper_bound_val(3, 0, 3))


def test_cheap_tests_never_miss_a_carrying_loop() -> None:
    for text in (MM, SKEWED):
        p = parse(text)
        cheap = may_carry(p)
        assert {d.loop.path for d in dependences(p) if d.loop} <= set(cheap)


def test_check_order_of_a_split() -> None:
    child = parse(MM.replace("k:30", "k0:5 k1:6").replace(",k]", ",k0*6+k1]").replace("B[k,", "B[k0*6+k1,"))
    k = parse_expr("k0*6+k1", child, ["k0", "k1"], DType.I64)
    names = {n: parse_expr(n, child, ["i", "j"], DType.I64) for n in "ij"}
    order = check_order(parse(MM), child, [((0, 0, 0, 0, 0), (0, 0, 0, 0), {**names, "k": k})])
    assert not isinstance(order, str)
    assert order.legal
    assert order.reassociated == ()
    assert "no value for loop k" in str(check_order(parse(MM), child, [((0, 0, 0, 0, 0), (0, 0, 0, 0), names)]))


# brute force


def _instances(s: Statement, sizes: dict[str, int]) -> list[tuple[int, ...]]:
    out: list[tuple[int, ...]] = []

    def walk(k: int, env: dict[str, int], point: tuple[int, ...]) -> None:
        if k == len(s.loops):
            if all(eval_index(g, env) for g in s.guards):
                out.append(point)
            return
        for value in range(eval_index(s.loops[k].extent, env)):
            walk(k + 1, {**env, s.loops[k].var: value}, (*point, value))

    walk(0, dict(sizes), ())
    return out


def _brute(p: Program) -> set[tuple[int, tuple[int, ...], int, tuple[int, ...]]]:
    """All pairs (statement, instance) that touch one element, one writing, in order of execution. Program-level buffers only."""
    events = []
    for s in Model.of(p).statements:
        for point in _instances(s, p.size_env):
            env = {**p.size_env, **dict(zip(s.vars, point, strict=True))}
            date = tuple(env[t] if isinstance(t, str) else t for t in s.time)
            touched = {(a.buffer, tuple(eval_index(i, env) for i in a.indices), a.is_write) for a in s.accesses}
            events.append((date, s.id, point, touched))
    events.sort()
    out = set()
    for (_, a, x, left), (_, b, y, right) in itertools.combinations(events, 2):
        if any(n == m and e == f and (w or v) for n, e, w in left for m, f, v in right):
            out.add((a, x, b, y))
    return out


def _pairs(d: Dependence) -> set[tuple[int, tuple[int, ...], int, tuple[int, ...]]]:
    found = set()
    ins, total = len(d.src.vars), len(d.src.vars) + len(d.dst.vars)
    d.relation.wrap().flatten().foreach_point(lambda p: found.add(tuple(p.get_coordinate_val(3, k).to_python() for k in range(total))))
    return {(d.src.id, c[:ins], d.dst.id, c[ins:]) for c in found}


_index = st.sampled_from(["i", "j", "i+1", "j+1", "i+j", "4-i", "i//2", "(i+1)%3", "2*j", "max(i-1,0)", "min(i,j)", "3"])
_guard = st.sampled_from(["", "if i<3: ", "if i+j<5: ", "if i!=j: ", "if not (i==1 or j==2): "])


@settings(max_examples=40, deadline=None)
@given(_index, _index, _index, _index, _guard, _guard, st.booleans())
def test_dependences_equal_brute_force(w1: str, w2: str, r1: str, r2: str, g1: str, g2: str, fused: bool) -> None:
    head = "in A f32[20,20]\nout Y f32[20,20] Z[20,20]\n"
    one, two = f"{g1}Y[{w1},{w2}] = A[i,j]+Y[{r1},{r2}]", f"{g2}Z[{r2},{r1}] = Y[{w2},{r1}]"
    body = f"for i:4 j:i+2\n {one}\n {two}\n" if fused else f"for i:4 j:3 {one}\nfor j:4 i:j+1 {two}\n"
    p = parse(head + body)
    mine = set().union(*(_pairs(d) for d in dependences(p))) if dependences(p) else set()
    assert mine == _brute(p)
    assert all(d.exact for d in dependences(p))
