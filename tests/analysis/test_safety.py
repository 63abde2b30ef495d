"""Safety proofs: what is safe is accepted, what is not is found with the exact instance."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steptp.analysis import BudgetExceeded, Problem, budget, safety_problems
from steptp.analysis.bounds import bounds_problems
from steptp.analysis.model import Model
from steptp.ir.parser import parse
from steptp.ir.sizes import eval_index


def problems(text: str) -> list[Problem]:
    return list(safety_problems(parse(text)))


def only(text: str) -> Problem:
    (found,) = problems(text)
    return found


SAFE = [
    "in A f32[20,30] B[30,10]\nout C f32[20,10]\nfor i:20 j:10 k:30 C[i,j] += A[i,k]*B[k,j]\n",
    # padding by select, also through short-circuit logic
    "in A f32[9]\nout Y f32[9]\nfor i:9 Y[i] = select(i>0 and i<8, A[i-1]+A[i+1], 0)\n",
    "in A f32[9]\nout Y f32[9]\nfor i:9 Y[i] = select(i==0, 0, A[i-1])\n",
    "in A f32[9]\nout Y f32[9]\nfor i:9 Y[i] = select(i<8 and A[i+1]>0, 1, 0)\n",
    # guarded tail
    "in A f32[100]\nout Y f32[100]\nfor i0:13 i1:8 if i0*8+i1<100: Y[i0*8+i1] = A[i0*8+i1]\n",
    # clamped and wrapped indices
    "in A f32[9]\nout Y f32[9]\nfor i:9 Y[i] = A[max(i-2,0)]+A[(i+5)%9]+A[i//2]\n",
    # triangular
    "in A f32[9]\nout Y f32[9,9]\nfor i:9 j:9 Y[i,j] = 0\nfor i:9 j:i+1 Y[i,j] = A[i-j]\n",
    # declared look-ups, and tables computed by the program
    "in A f32[9] T i32[4] 0..9\nout Y f32[4]\nfor i:4 Y[i] = A[i64(T[i])]\n",
    "in A f32[9]\nout Y f32[18]\ntmp T i64[18]\nfor i:18 T[i] = i//2\nfor i:18 Y[i] = A[T[i]]\n",
    "in A f32[9] T i32[4]\nout Y f32[4]\nfor i:4 Y[i] = select(T[i]>=0 and T[i]<9, A[i64(T[i])], 0)\n",
    # running state, prefix arrays
    "in A f32[9]\nout Y f32[9]\ntmp m f32[1]\nm[0] = -inf\nfor i:9\n m[0] = max(m[0],A[i])\n Y[i] = m[0]\n",
    "in A f32[9]\nout Y f32[9]\ntmp P f32[9]\nP[0] = A[0]\nfor i:8 P[i+1] = max(P[i],A[i+1])\nfor i:9 Y[i] = P[i]\n",
    "in A f32[9]\nout Y f32[9]\ntmp P f32[9]\nfor i:9\n if i==0: P[i] = A[i]\n if i>0: P[i] = max(P[i-1],A[i])\n Y[i] = P[i]\n",
    # private temporaries in a parallel loop
    "in A f32[9]\nout Y f32[9]\npar i:9\n tmp t f32[1]\n t[0] = A[i]\n Y[i] = t[0]\n",
    # outputs written in parts
    "in A f32[9]\nout Y f32[9]\nfor i:4 Y[i] = A[i]\nfor i:5 Y[i+4] = A[i]\n",
    "in A f32[9]\nout Y f32[9,2]\nfor i:9\n Y[i,1] = A[i]\n Y[i,0] = A[i]\n",
    # integers that fit
    "in A i8[100] B[100]\nout S i32[1]\nfor i:100 S[0] += i32(A[i])*i32(B[i])\n",
    # a loop that never runs
    "size Z=0\nin A f32[4]\nout Y f32[4]\nfor i:Z Y[i+99] = A[i]\nfor i:4 Y[i] = A[i]\n",
]


@pytest.mark.parametrize("text", SAFE)
def test_safe_programs_have_no_problems(text: str) -> None:
    assert problems(text) == []


def test_off_by_one_read() -> None:
    found = only("in A f32[9]\nout Y f32[9]\nfor i:9 Y[i] = A[i+1]\n")
    assert (found.code, found.certain, found.instance, found.element) == ("bounds", True, (("i", 8),), (9,))
    assert found.message == "S0(i=8) reads A[9], outside of its shape [9]"
    assert found.path == (0, 0)


def test_negative_index_and_write() -> None:
    found = only("in A f32[9]\nout Y f32[9]\nfor i:9 Y[i] = 0\nfor i:9 Y[i-1] = A[i]\n")
    assert found.message == "S1(i=0) writes Y[-1], outside of its shape [9]"


def test_guard_that_misses_one_iteration() -> None:
    text = "in A f32[100]\nout Y f32[100]\nfor i0:13 i1:8 if i0*8+i1<={}: Y[i0*8+i1] = A[i0*8+i1]\n"
    assert problems(text.format(99)) == []
    assert {p.instance for p in problems(text.format(100))} == {(("i0", 12), ("i1", 4))}


def test_wrong_side_of_a_select() -> None:
    found = only("in A f32[9]\nout Y f32[9]\nfor i:9 Y[i] = select(i>0, 0, A[i-1])\n")
    assert found.instance == (("i", 0),)


def test_guard_reads_also_where_a_later_conjunct_is_false() -> None:
    head = "in A f32[9]\nout Y f32[9]\nfor i:9 Y[i] = 0\n"
    assert problems(head + "for i:9 if i<8 and A[i+1]>0: Y[i] = 1\n") == []
    found = only(head + "for i:9 if A[i+1]>0 and i<8: Y[i] = 1\n")
    assert (found.code, found.instance) == ("bounds", (("i", 8),))


def test_a_guard_proves_nothing_once_its_body_overwrites_what_it_read() -> None:
    head = "in A f32[9] B i64[4] 0..40\nout Y f32[4]\ntmp T i64[4]\nfor i:4 Y[i] = 0\nfor i:4 T[i] = B[i]\nfor i:4 if T[i]<9:\n"
    assert problems(head + "  Y[i] = A[T[i]]\n") == []
    assert only(head + "  T[i] = 30\n  Y[i] = A[T[i]]\n").code == "bounds"
    assert only(head + "  for j:2\n    Y[i] = A[T[i]]\n    T[i] = 30\n").code == "bounds"  # a later iteration reads what an earlier one wrote


def test_lookup_without_a_range() -> None:
    found = only("in A f32[9] T i32[4]\nout Y f32[4]\nfor i:4 Y[i] = A[i64(T[i])]\n")
    assert found.code == "bounds"
    assert found.certain
    assert "T declares no range" in found.message
    found = only("in A f32[9] T i32[4] 0..10\nout Y f32[4]\nfor i:4 Y[i] = A[i64(T[i])]\n")
    assert "which can be 0 to 9, outside of 0 to 8" in found.message


def test_read_before_write() -> None:
    found = only("in A f32[9]\nout Y f32[9]\ntmp T f32[9]\nfor i:9 Y[i] = T[i]\nfor i:9 T[i] = A[i]\n")
    assert found.message == "S0(i=0) reads T[0], that nothing has written yet"
    found = only("in A f32[9]\nout Y f32[9]\ntmp P f32[9]\nfor i:8 P[i+1] = max(P[i],A[i])\nfor i:9 Y[i] = A[i]\n")
    assert (found.instance, found.element) == ((("i", 0),), (0,))


def test_partial_write_before_a_read() -> None:
    found = only("in A f32[9]\nout Y f32[9]\ntmp T f32[9]\nfor i:8 T[i] = A[i]\nfor i:9 Y[i] = T[i]\n")
    assert (found.instance, found.element) == ((("i", 8),), (8,))


def test_private_temporaries_forget() -> None:
    found = only("in A f32[9]\nout Y f32[9]\nfor i:9\n tmp t f32[1]\n if i==0: t[0] = A[i]\n Y[i] = t[0]\n")
    assert (found.code, found.instance) == ("undefined", (("i", 1),))


def test_carry_without_a_start() -> None:
    found = problems("in A f32[9]\nout Y f32[1]\nfor i:9 carry Y[0] += A[i]\n")
    assert [p.code for p in found] == ["undefined"]


def test_conditions_on_data_are_not_certain() -> None:
    found = only("in A f32[9]\nout Y f32[9]\nfor i:9 if A[i]>0: Y[i] = A[i]\n")
    assert (found.code, found.certain) == ("unwritten", False)
    both = "in A f32[9]\nout Y f32[9]\nfor i:9\n if A[i]>0: Y[i] = A[i]\n if not A[i]>0: Y[i] = 0\n"
    assert not only(both).certain


def test_output_with_a_hole() -> None:
    found = only("in A f32[9]\nout Y f32[9]\nfor i:9 if i!=4: Y[i] = A[i]\n")
    assert found.message == "output element Y[4] is never written"
    assert found.element == (4,)


def test_racing_accumulation() -> None:
    found = only("in A f32[9]\nout Y f32[1]\npar i:9 Y[0] += A[i]\n")
    assert found.code == "race"
    assert found.message.startswith("par loop i carries a dependence on Y: S1(i=0) accumulates into Y[0], which S1(i=1)")


def test_racing_temporaries_and_neighbours() -> None:
    shared = "in A f32[9]\nout Y f32[9]\ntmp t f32[1]\n{} i:9\n t[0] = A[i]\n Y[i] = t[0]\n"
    assert {p.code for p in problems(shared.format("par"))} == {"race"}
    assert problems(shared.format("for")) == []
    recurrence = "in A f32[9]\nout Y f32[9]\nY[0] = 0\nvec i:8 Y[i+1] = Y[i]+A[i]\n"
    assert only(recurrence).code == "race"
    both_write = "in A f32[9]\nout Y f32[9]\nfor i:9 Y[i] = 0\npar i:8\n for j:2 Y[i+j] = A[i]\n"
    assert {p.code for p in problems(both_write)} == {"race"}


def test_dependences_across_blocks_of_one_kernel() -> None:
    head = "in A f32[64]\nout Y f32[64]\ntmp T f32[64]\n"
    two_kernels = head + "bx b:4 tx t:16 T[b*16+t] = A[b*16+t]\nbx b:4 tx t:16 Y[b*16+t] = T[63-b*16-t]\n"
    assert problems(two_kernels) == []
    one_block = head + "bx b:4\n tx t:16 T[b*16+t] = A[b*16+t]\n tx t:16 Y[b*16+t] = T[b*16+15-t]\n"
    assert problems(one_block) == []
    crossing = head + "bx b:4\n tx t:16 T[b*16+t] = A[b*16+t]\n tx t:16 Y[b*16+t] = T[(b*16+t+16)%64]\n"
    assert "race" in {p.code for p in problems(crossing)}


def test_integer_overflow() -> None:
    text = "in A i8[{n}] B[{n}]\nout S i32[1]\nfor i:{n} S[0] += i32(A[i])*i32(B[i])\n"
    assert problems(text.format(n=131071)) == []
    found = only(text.format(n=131072))  # 131072 * (-128)^2 = 2^31
    assert (found.code, found.certain) == ("overflow", False)
    found = only("in A i32[9] 0..50000\nout Y i32[9]\nfor i:9 Y[i] = A[i]*A[i]\n")
    assert "A[i]*A[i] may overflow (it can be 0 to 2499900001)" in found.message
    assert problems("in A i32[9] 0..40000\nout Y i32[9]\nfor i:9 Y[i] = A[i]*A[i]\n") == []
    assert problems("in A i32[9]\nout Y i32[9]\nfor i:9 Y[i] = select(A[i]<100 and A[i]>-100, A[i]*A[i], 0)\n") == []


def test_division_by_zero() -> None:
    found = only("in A i32[9] 0..5\nout Y i32[9]\nfor i:9 Y[i] = 7//A[i]\n")
    assert found.code == "division"
    assert problems("in A i32[9] 1..5\nout Y i32[9]\nfor i:9 Y[i] = 7//A[i]+7%A[i]\n") == []


def test_budget_is_a_count_and_is_given_back() -> None:
    p = parse("in A f32[9]\nout Y f32[9]\nfor i:9 Y[i] = select((i*5+3)%9>0 and i>0, A[(i*5+3)%9-1], 0)\n")
    with pytest.raises(BudgetExceeded), budget(3):
        list(bounds_problems(p.with_()))
    assert safety_problems(p) == ()


_index = st.sampled_from(["i", "j", "i+1", "j-1", "i+j", "5-i", "i//2", "(i+2)%4", "2*j", "max(i-1,0)", "min(i,j)", "select(i<j, i, j+1)"])
_cond = st.sampled_from(["i<3", "i+j<5 and i>0", "i!=j", "not (i==1 or j==2)", "i*2+j>=3"])


@settings(max_examples=60, deadline=None)
@given(_index, _index, _cond, _cond)
def test_bounds_equal_brute_force(a: str, b: str, guard: str, cond: str) -> None:
    p = parse(f"in A f32[5,4]\nout Y f32[5,4]\nfor i:5 j:4 if {guard}: Y[i,j] = select({cond}, A[{a},{b}], 0)\n")
    (s,) = Model.of(p).statements
    (read,) = s.reads
    bad = []
    for i in range(5):
        for j in range(4):
            env = {"i": i, "j": j}
            if all(eval_index(g, env) for g in s.guards) and eval_index(read.conditions[0].expr, env):
                element = tuple(eval_index(x, env) for x in read.indices)
                if not (0 <= element[0] < 5 and 0 <= element[1] < 4):
                    bad.append(((("i", i), ("j", j)), element))
    found = [(x.instance, x.element) for x in bounds_problems(p)]
    assert found == bad[:1]
