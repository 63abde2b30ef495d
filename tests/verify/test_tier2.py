"""Tier 2 accepts correct instance maps and rejects wrong ones, with the instance that shows it."""

from __future__ import annotations

import pytest
from instance_maps import check, instance_entries

from steptp.ir import DType, Store
from steptp.ir.parser import parse, parse_expr
from steptp.ir.walk import stores
from steptp.rewrite.base import BufferMap, Exactness, InstanceMap
from steptp.verify.tier2 import tier2
from steptp.verify.verdict import VerdictKind

ADD = "in A f32[100]\nout Y f32[100]\n"
MATMUL = "in A f32[20,30] B[30,10]\nout C f32[20,10]\n"
MM = MATMUL + "for i:20 j:10 k:30 C[i,j] += A[i,k]*B[k,j]\n"


def test_split_with_guard_is_the_same_schedule() -> None:
    child = ADD + "for i0:13 i1:8 if i0*8+i1<100: Y[i0*8+i1] = A[i0*8+i1]+1\n"
    report = check(ADD + "for i:100 Y[i] = A[i]+1\n", child, ((0, 0, 0, 0), (0, 0), "i=i0*8+i1"))
    assert report.kind is VerdictKind.OK, report.message
    assert report.evidence["class"] == "bitwise"


def test_split_with_peeled_tail() -> None:
    child = ADD + "for i0:12 i1:8 Y[i0*8+i1] = A[i0*8+i1]+1\nfor i:4 Y[96+i] = A[i+96]+1\n"
    pairs = (((0, 0, 0), (0, 0), "i=i0*8+i1"), ((1, 0), (0, 0), "i=i+96"))
    assert check(ADD + "for i:100 Y[i] = A[i]+1\n", child, *pairs).kind is VerdictKind.OK


def test_dropped_tail_names_the_first_missing_instance() -> None:
    child = ADD + "for i0:12 i1:8 Y[i0*8+i1] = A[i0*8+i1]+1\n"
    report = check(ADD + "for i:100 Y[i] = A[i]+1\n", child, ((0, 0, 0), (0, 0), "i=i0*8+i1"))
    assert report.kind is VerdictKind.NOT_EQUAL
    assert "S0(i=96)" in report.message


def test_missing_guard_runs_instances_outside_of_the_parent() -> None:
    child = "in A f32[100]\nout Y f32[104]\nfor i0:13 i1:8 Y[i0*8+i1] = A[i0*8+i1]+1\n"
    parent = "in A f32[100]\nout Y f32[104]\nfor i:100 Y[i] = A[i]+1\n"
    report = check(parent, child, ((0, 0, 0), (0, 0), "i=i0*8+i1"))
    assert report.kind is VerdictKind.NOT_EQUAL
    assert "S0(i=100)" in report.message


def test_overlapping_tiles_run_an_instance_twice() -> None:
    child = ADD + "for i0:14 i1:9 if i0*8+i1<100: Y[i0*8+i1] = A[i0*8+i1]+1\n"
    report = check(ADD + "for i:100 Y[i] = A[i]+1\n", child, ((0, 0, 0, 0), (0, 0), "i=i0*8+i1"))
    assert report.kind is VerdictKind.NOT_EQUAL
    assert "S0(i=8) more than once" in report.message


def test_two_stores_running_the_same_instance() -> None:
    child = ADD + "for i:100 Y[i] = A[i]+1\nfor i:4 Y[96+i] = A[i+96]+1\n"
    report = check(ADD + "for i:100 Y[i] = A[i]+1\n", child, ((0, 0), (0, 0), ""), ((1, 0), (0, 0), "i=i+96"))
    assert report.kind is VerdictKind.NOT_EQUAL
    assert "S0(i=96) more than once" in report.message


@pytest.mark.parametrize(
    ("store", "say"),
    [
        ("Y[i] = 1+A[i]", "f32(1) where the parent computes A[i]"),  # swapped operands
        ("Y[i] = A[i]-1", "A[i]-1"),
        ("Y[i] = A[99-i]+1", "at S0(i=0)"),
        ("Y[99-i] = A[i]+1", "at S0(i=0)"),
        ("Y[i] = A[i]+2", "2"),
        ("Y[i] = A[max(i,1)]+1", "at S0(i=0)"),
    ],
)
def test_another_computation_is_not_equal(store: str, say: str) -> None:
    report = check(ADD + "for i:100 Y[i] = A[i]+1\n", ADD + f"for i:100 {store}\n")
    assert report.kind is VerdictKind.NOT_EQUAL
    assert say in report.message


def test_swapped_products_of_a_matmul_are_not_the_same_tree() -> None:
    assert check(MM, MATMUL + "for i:20 j:10 k:30 C[i,j] += B[k,j]*A[i,k]\n").kind is VerdictKind.NOT_EQUAL


def test_spatial_reorder_is_bitwise() -> None:
    report = check(MM, MATMUL + "for j:10 k:30 i:20 C[i,j] += A[i,k]*B[k,j]\n")
    assert report.kind is VerdictKind.OK, report.message
    assert report.evidence["class"] == "bitwise"


def test_reversed_reduction_is_reassociated_and_never_bitwise() -> None:
    child = MATMUL + "for i:20 j:10 k:30 C[i,j] += A[i,29-k]*B[29-k,j]\n"
    pair = ((0, 0, 0, 0), (0, 0, 0, 0), "k=29-k")
    report = check(MM, child, pair, exactness=Exactness.REASSOCIATED)
    assert report.kind is VerdictKind.OK, report.message
    assert report.evidence["class"] == "reassociated"
    report = check(MM, child, pair)
    assert report.kind is VerdictKind.ILLEGAL
    assert "another order" in report.message


def test_integer_and_max_reductions_have_no_order() -> None:
    for text in ("in A i64[8,9] 0..50\nout S i64[8]\nfor i:8 k:9 S[i] += A[i,{}]\n", "in A f32[8,9]\nout S f32[8]\nfor i:8 k:9 S[i] max= A[i,{}]\n"):
        report = check(text.format("k"), text.format("8-k"), ((0, 0, 0), (0, 0, 0), "k=8-k"))
        assert report.kind is VerdictKind.OK, report.message
        assert report.evidence["class"] == "bitwise"


def test_reduction_split_with_peeled_tail_carries() -> None:
    child = MATMUL + "for i:20 j:10\n for k0:3 k1:8 C[i,j] += A[i,k0*8+k1]*B[k0*8+k1,j]\n for k:6 carry C[i,j] += A[i,24+k]*B[24+k,j]\n"
    pairs = (((0, 0, 0, 0, 0), (0, 0, 0, 0), "k=k0*8+k1"), ((0, 0, 1, 0), (0, 0, 0, 0), "k=24+k"))
    report = check(MM, child, *pairs)
    assert report.kind is VerdictKind.OK, report.message
    assert report.evidence["class"] == "bitwise"
    wrong = MATMUL + "for i:20 j:10\n for k:6 carry C[i,j] += A[i,24+k]*B[24+k,j]\n for k0:3 k1:8 C[i,j] += A[i,k0*8+k1]*B[k0*8+k1,j]\n"
    report = check(MM, wrong, ((0, 0, 1, 0, 0), (0, 0, 0, 0), "k=k0*8+k1"), ((0, 0, 0, 0), (0, 0, 0, 0), "k=24+k"), exactness=Exactness.REASSOCIATED)
    assert report.kind is VerdictKind.ILLEGAL  # the reset would come after the tail
    assert "reset" in report.message


def test_explicit_initial_store_stands_for_the_reset() -> None:
    child = MATMUL + "for i:20 j:10\n C[i,j] = 0\n for k:30 carry C[i,j] += A[i,k]*B[k,j]\n"
    pairs = (((0, 0, 0), (0, 0, 0, 0), ""), ((0, 0, 1, 0), (0, 0, 0, 0), ""))
    report = check(MM, child, (pairs[0][0], pairs[0][1], "k=0"), pairs[1])
    assert report.kind is VerdictKind.OK, report.message
    report = check(MM, child.replace("= 0", "= 1"), (pairs[0][0], pairs[0][1], "k=0"), pairs[1])
    assert report.kind in (VerdictKind.NOT_EQUAL, VerdictKind.ILLEGAL)


CHAIN = "in A f32[50]\nout Y f32[50]\ntmp T f32[50]\n"


def test_fusion() -> None:
    parent = CHAIN + "for i:50 T[i] = A[i]*2\nfor i:50 Y[i] = T[i]+1\n"
    assert check(parent, CHAIN + "for i:50\n T[i] = A[i]*2\n Y[i] = T[i]+1\n").kind is VerdictKind.OK


def test_fusion_that_reads_ahead_breaks_a_dependence() -> None:
    parent = CHAIN + "for i:50 T[i] = A[i]*2\nfor i:50 Y[i] = T[49-i]+1\n"
    report = check(parent, CHAIN + "for i:50\n T[i] = A[i]*2\n Y[i] = T[49-i]+1\n")
    assert report.kind is VerdictKind.ILLEGAL
    assert "S0(i=25) writes T[25], which S1(i=24) reads later" in report.message


def test_fusion_into_a_reduction_breaks_a_dependence() -> None:
    head = "in A f32[8,8]\nout Y f32[8,8]\ntmp S f32[8]\n"
    parent = head + "for i:8 j:8 S[i] += A[i,j]\nfor i:8 j:8 Y[i,j] = A[i,j]/S[i]\n"
    report = check(parent, head + "for i:8 j:8\n S[i] += A[i,j]\n Y[i,j] = A[i,j]/S[i]\n")
    assert report.kind is VerdictKind.ILLEGAL
    assert "S" in report.message


def test_skewed_dependence_forbids_the_interchange() -> None:
    head = "in A f32[16,16]\nout Y f32[17,17]\n"
    init = "for i:17 j:17 Y[i,j] = 0\n"
    parent = head + init + "for i:16 j:15 Y[i+1,j] = Y[i,j+1]+A[i,j]\n"
    report = check(parent, head + init + "for j:15 i:16 Y[i+1,j] = Y[i,j+1]+A[i,j]\n")
    assert report.kind is VerdictKind.ILLEGAL
    straight = head + init + "for i:16 j:15 Y[i+1,j] = Y[i,j]+A[i,j]\n"
    assert check(straight, head + init + "for j:15 i:16 Y[i+1,j] = Y[i,j]+A[i,j]\n").kind is VerdictKind.OK


def test_tiling_both_loops() -> None:
    child = MATMUL + "for i0:5 j0:3 i1:4 j1:4 if j0*4+j1<10: for k:30 C[i0*4+i1,j0*4+j1] += A[i0*4+i1,k]*B[k,j0*4+j1]\n"
    report = check(MM, child, ((0, 0, 0, 0, 0, 0, 0), (0, 0, 0, 0), "i=i0*4+i1 j=j0*4+j1"))
    assert report.kind is VerdictKind.OK, report.message


def test_wrong_map_for_a_right_program_is_rejected() -> None:
    child = ADD + "for i0:10 i1:10 Y[i0*10+i1] = A[i0*10+i1]+1\n"
    parent = ADD + "for i:100 Y[i] = A[i]+1\n"
    assert check(parent, child, ((0, 0, 0), (0, 0), "i=i0*10+i1")).kind is VerdictKind.OK
    report = check(parent, child, ((0, 0, 0), (0, 0), "i=i1*10+i0"))
    assert report.kind is VerdictKind.NOT_EQUAL
    assert report.counterexample is not None
    assert check(parent, child, ((0, 0, 0), (0, 0), "i=i0*9+i1")).kind is VerdictKind.NOT_EQUAL


def test_collapsed_loops_use_division() -> None:
    head = "in A f32[6,7]\nout Y f32[6,7]\n"
    child = head + "for f:42 Y[f//7,f%7] = A[f//7,f%7]\n"
    report = check(head + "for i:6 j:7 Y[i,j] = A[i,j]\n", child, ((0, 0), (0, 0, 0), "i=f//7 j=f%7"))
    assert report.kind is VerdictKind.OK, report.message
    report = check(head + "for i:6 j:7 Y[i,j] = A[i,j]\n", child, ((0, 0), (0, 0, 0), "i=f//6 j=f%6"))
    assert report.kind is VerdictKind.NOT_EQUAL


def test_layout_map() -> None:
    parent = "in A f32[8,6]\nout Y f32[8,6]\ntmp T f32[8,6]\nfor i:8 j:6 T[i,j] = A[i,j]\nfor i:8 j:6 Y[i,j] = T[i,j]\n"
    child = "in A f32[8,6]\nout Y f32[8,6]\ntmp U f32[6,8]\nfor i:8 j:6 U[j,i] = A[i,j]\nfor i:8 j:6 Y[i,j] = U[j,i]\n"
    p, c = parse(parent), parse(child)
    transposed = BufferMap("T", "U", (parse_expr("d1", p, ["d0", "d1"], DType.I64), parse_expr("d0", p, ["d0", "d1"], DType.I64)))
    entries = instance_entries(p, c, [((0, 0, 0), (0, 0, 0), ""), ((1, 0, 0), (1, 0, 0), "")])
    assert tier2(p, c, InstanceMap(entries, (transposed,)), Exactness.BITWISE).kind is VerdictKind.OK
    folded = BufferMap("T", "U", (parse_expr("d1", p, ["d0", "d1"], DType.I64), parse_expr("d0//2", p, ["d0", "d1"], DType.I64)))
    assert tier2(p, c, InstanceMap(entries, (folded,)), Exactness.BITWISE).kind is VerdictKind.UNKNOWN
    straight = BufferMap("T", "U", (parse_expr("d0", p, ["d0", "d1"], DType.I64), parse_expr("d1", p, ["d0", "d1"], DType.I64)))
    assert tier2(p, c, InstanceMap(entries, (straight,)), Exactness.BITWISE).kind is VerdictKind.NOT_EQUAL
    assert tier2(p, c, InstanceMap(entries), Exactness.BITWISE).kind is VerdictKind.NOT_EQUAL


def test_privatising_a_temporary() -> None:
    head = "in A f32[9]\nout Y f32[9]\n"
    shared = head + "tmp t f32[1]\nfor i:9\n t[0] = A[i]*2\n Y[i] = t[0]\n"
    private = head + "for i:9\n tmp t f32[1]\n t[0] = A[i]*2\n Y[i] = t[0]\n"
    assert check(shared, private).kind is VerdictKind.OK
    assert check(private, shared).kind is VerdictKind.OK


def test_layout_of_a_private_temporary() -> None:
    text = "in A f32[3,4,5]\nout Y f32[3,4,5]\nfor i:3\n tmp t f32[{}]\n for j:4 k:5 t[{}] = A[i,j,k]\n for j:4 k:5 Y[i,j,k] = t[{}]\n"
    p, c = parse(text.format("4,5", "j,k", "j,k")), parse(text.format("5,4", "k,j", "k,j"))
    entries = instance_entries(p, c, [((0, 0, 0, 0), (0, 0, 0, 0), ""), ((0, 1, 0, 0), (0, 1, 0, 0), "")])
    transposed = BufferMap("t", "t", (parse_expr("d1", p, ["d1"], DType.I64), parse_expr("d0", p, ["d0"], DType.I64)))
    report = tier2(p, c, InstanceMap(entries, (transposed,)), Exactness.BITWISE)
    assert report.kind is VerdictKind.OK, report.message


def test_scalar_expansion() -> None:
    p = parse("in A f32[9]\nout Y f32[9]\nfor i:9\n tmp t f32[1]\n t[0] = A[i]*2\n Y[i] = t[0]+1\n")
    c = parse("in A f32[9]\nout Y f32[9]\ntmp T f32[9,1]\nfor i:9 T[i,0] = A[i]*2\nfor i:9 Y[i] = T[i,0]+1\n")
    entries = instance_entries(p, c, [((0, 0), (0, 0), ""), ((1, 0), (0, 1), "")])
    by_iteration = BufferMap("t", "T", (parse_expr("i", p, ["i", "d0"], DType.I64), parse_expr("d0", p, ["i", "d0"], DType.I64)))
    report = tier2(p, c, InstanceMap(entries, (by_iteration,)), Exactness.BITWISE)
    assert report.kind is VerdictKind.OK, report.message
    folded = BufferMap("t", "T", (parse_expr("i//2", p, ["i", "d0"], DType.I64), parse_expr("d0", p, ["i", "d0"], DType.I64)))
    assert tier2(p, c, InstanceMap(entries, (folded,)), Exactness.BITWISE).kind is VerdictKind.UNKNOWN
    mixed = parse("in A f32[9]\nout Y f32[9]\ntmp T f32[9,1]\nfor i:9 T[i,0] = A[i]*2\nfor i:9 Y[i] = T[8-i,0]+1\n")
    assert tier2(p, mixed, InstanceMap(entries, (by_iteration,)), Exactness.BITWISE).kind is VerdictKind.NOT_EQUAL


def test_privatising_running_state_loses_values() -> None:
    head = "in A f32[9]\nout Y f32[9]\n"
    shared = head + "tmp t f32[1]\nt[0] = 0\nfor i:9\n t[0] = t[0]+A[i]\n Y[i] = t[0]\n"
    report = check(shared, shared)
    assert report.kind is VerdictKind.OK
    private = head + "for i:9\n tmp t f32[1]\n if i==0: t[0] = 0\n t[0] = t[0]+A[i]\n Y[i] = t[0]\n"
    report = check(shared, private, ((0, 0, 0), (0,), ""), ((0, 1), (1, 0), ""), ((0, 2), (1, 1), ""))
    assert report.kind is VerdictKind.ILLEGAL
    assert "private" in report.message


def test_shared_temporary_overwritten_before_it_is_read() -> None:
    head = "in A f32[9]\nout Y f32[9]\n"
    private = head + "for i:9\n tmp t f32[1]\n t[0] = A[i]*2\n Y[i] = t[0]\n"
    child = head + "tmp t f32[1]\nfor i:9 t[0] = A[i]*2\nfor i:9 Y[i] = t[0]\n"
    assert check(private, child).kind is not VerdictKind.OK


def test_padding_select_resolved_by_peeling() -> None:
    head = "in A f32[10]\nout Y f32[10]\n"
    parent = head + "for i:10 Y[i] = select(i>=1, A[i-1], 0)\n"
    child = head + "for i:1 Y[i] = 0\nfor i:9 Y[i+1] = A[i]\n"
    report = check(parent, child, ((0, 0), (0, 0), ""), ((1, 0), (0, 0), "i=i+1"))
    assert report.kind is VerdictKind.OK, report.message
    wrong = head + "for i:2 Y[i] = 0\nfor i:8 Y[i+2] = A[i+1]\n"
    assert check(parent, wrong, ((0, 0), (0, 0), ""), ((1, 0), (0, 0), "i=i+2")).kind is VerdictKind.NOT_EQUAL


def test_dead_store_may_go_but_a_live_one_may_not() -> None:
    parent = CHAIN + "for i:50 T[i] = A[i]*2\nfor i:50 Y[i] = A[i]+1\n"
    child = "in A f32[50]\nout Y f32[50]\nfor i:50 Y[i] = A[i]+1\n"
    report = check(parent, child, ((0, 0), (1, 0), ""))
    assert report.kind is VerdictKind.OK, report.message
    assert report.evidence["dropped"] == ["S0"]
    live = CHAIN + "for i:50 T[i] = A[i]*2\nfor i:50 Y[i] = T[i]+1\n"
    assert check(live, child, ((0, 0), (1, 0), "")).kind is VerdictKind.NOT_EQUAL


def test_store_without_a_counterpart_is_left_to_tier_3() -> None:
    parent = ADD + "for i:100 Y[i] = A[i]+1\n"
    child = "in A f32[100]\nout Y f32[100]\ntmp T f32[100]\nfor i:100 T[i] = A[i]\nfor i:100 T[i] = A[i]+2\nfor i:100 Y[i] = {}\n"
    assert check(parent, child.format("T[i]-1"), ((2, 0), (0, 0), "")).kind is VerdictKind.UNKNOWN
    assert check(parent, child.format("A[i]+1"), ((2, 0), (0, 0), "")).kind is VerdictKind.OK  # nobody reads it
    overwritten = "in A f32[100]\nout Y f32[100]\nfor i:100 Y[i] = A[i]+1\nfor i:100 Y[i] = A[i]+1\n"
    assert check(parent, overwritten, ((0, 0), (0, 0), "")).kind is VerdictKind.UNKNOWN


INLINE = "in A f32[8,9]\nout Y f32[8,9]\ntmp T f32[8,9]\n"


def test_inlined_and_split_off_temporaries() -> None:
    two = INLINE + "for i:8 j:9 T[i,j] = A[i,j]*2\nfor i:8 j:9 Y[i,j] = T[i,8-j]+T[7-i,j]\n"
    one = "in A f32[8,9]\nout Y f32[8,9]\nfor i:8 j:9 Y[i,j] = A[i,8-j]*2+A[7-i,j]*2\n"
    assert check(two, one, ((0, 0, 0), (1, 0, 0), "")).kind is VerdictKind.OK
    assert check(one, two, ((1, 0, 0), (0, 0, 0), "")).kind is VerdictKind.OK
    assert check(one, two.replace("T[7-i,j]", "T[i,j]"), ((1, 0, 0), (0, 0, 0), "")).kind is VerdictKind.NOT_EQUAL
    kept = INLINE + "for i:8 j:9 T[i,j] = A[i,j]*2\nfor i:8 j:9 Y[i,j] = A[i,8-j]*2+T[7-i,j]\n"
    report = check(two, kept)
    assert report.kind is VerdictKind.OK
    assert report.evidence["expanded"] is True


def test_copies_in_a_tile() -> None:
    parent = MM
    child = MATMUL + "for i:20\n tmp P f32[30]\n for k:30 P[k] = A[i,k]\n for j:10 k:30 C[i,j] += P[k]*B[k,j]\n"
    report = check(parent, child, ((0, 1, 0, 0), (0, 0, 0, 0), ""))
    assert report.kind is VerdictKind.OK, report.message
    stale = MATMUL + "tmp P f32[30]\nfor k:30 P[k] = A[0,k]\nfor i:20 j:10 k:30 C[i,j] += P[k]*B[k,j]\n"
    assert check(parent, stale, ((1, 0, 0, 0), (0, 0, 0, 0), "")).kind is VerdictKind.NOT_EQUAL


def test_local_accumulator_is_copied_out() -> None:
    child = MATMUL + "for i:20 j:10\n tmp c f32[]\n for k:30 c[] += A[i,k]*B[k,j]\n C[i,j] = c[]\n"
    report = check(MM, child, ((0, 0, 0, 0), (0, 0, 0, 0), ""))
    assert report.kind is VerdictKind.OK, report.message
    assert check(child, MM, ((0, 0, 0, 0), (0, 0, 0, 0), "")).kind is VerdictKind.OK
    tile = MATMUL + "for i:20 j0:5\n tmp c f32[2]\n for k:30 j1:2 c[j1] += A[i,k]*B[k,j0*2+j1]\n for j:2 C[i,j0*2+j] = c[j]\n"
    report = check(MM, tile, ((0, 0, 0, 0, 0), (0, 0, 0, 0), "j=j0*2+j1"))
    assert report.kind is VerdictKind.OK, report.message
    assert report.evidence["class"] == "bitwise"


@pytest.mark.parametrize(
    "body",
    [
        "for i:20 j0:5\n tmp c f32[2]\n for k:30 j1:2 c[j1] += A[i,k]*B[k,j0*2+j1]\n for j:2 C[i,j0*2+1-j] = c[j]\n",  # swapped places
        "for i:20 j0:5\n tmp c f32[2]\n for k:30 j1:2 c[j1] += A[i,k]*B[k,j0*2+j1]\n for j:2 C[i,j0*2] = c[j]\n",  # two to one place
        "for i:20 j0:5\n tmp c f32[2]\n for j1:2 c[j1] = 0\n for k:30 j1:2\n  carry c[j1] += A[i,k]*B[k,j0*2+j1]\n  C[i,j0*2+j1] = c[j1]\n",
        "for i:20 j0:5\n tmp c f32[2]\n for k:30 j1:2 c[j1] += A[i,k]*B[k,j0*2+j1]\n for j:1 C[i,j0*2+j] = c[j]\n",  # one is lost
    ],
)
def test_wrong_copies_out_are_not_accepted(body: str) -> None:
    parent, child = parse(MM), parse(MATMUL + body)
    accumulation = next(m.path for m in stores(child) if isinstance(m.stmt, Store) and m.stmt.reduce)
    entries = instance_entries(parent, child, [(accumulation, (0, 0, 0, 0), "j=j0*2+j1")])
    assert tier2(parent, child, InstanceMap(entries), Exactness.REASSOCIATED).kind is not VerdictKind.OK


def test_a_definition_whose_operands_change_is_not_read_through() -> None:
    head = "in A f32[9]\nout Y f32[9]\n"
    parent = head + "tmp T f32[9]\nfor i:9 Y[i] = A[i]\nfor i:9 T[i] = Y[i]*2\nfor i:9 Y[i] = Y[i]+1\nfor i:9 Y[i] = Y[i]+T[i]\n"
    child = head + "for i:9 Y[i] = A[i]\nfor i:9 Y[i] = Y[i]+1\nfor i:9 Y[i] = Y[i]+Y[i]*2\n"
    pairs = (((0, 0), (0, 0), ""), ((1, 0), (2, 0), ""), ((2, 0), (3, 0), ""))
    assert check(parent, child, *pairs).kind is not VerdictKind.OK
    scalar = head + "for i:9\n tmp t f32[1]\n t[0] = A[i]\n Y[i] = t[0]\n"
    moved = "in A f32[9]\nout Y f32[9]\ntmp T f32[9]\nfor i:9\n tmp t f32[1]\n t[0] = A[i]\n T[i] = t[0]\nfor i:9 Y[i] = T[8-i]\n"
    assert check(scalar, moved, ((1, 0), (0, 1), "")).kind is not VerdictKind.OK


def test_data_dependent_guards_must_be_the_same() -> None:
    head = "in A f32[10]\nout Y f32[10]\n"
    parent = head + "for i:10 Y[i] = 0\nfor i:10 if A[i]>0: Y[i] = A[i]\n"
    assert check(parent, parent).kind is VerdictKind.OK
    assert check(parent, parent.replace("A[i]>0", "A[i]>=0")).kind is VerdictKind.NOT_EQUAL
    assert check(parent, parent.replace("if A[i]>0: ", "")).kind is VerdictKind.NOT_EQUAL


def test_guard_that_reads_what_its_body_writes_is_not_decided() -> None:
    head = "in A f32[10]\nout Y f32[10] Z[10]\n"
    parent = head + "for i:10 Y[i] = A[i]\nfor i:10 if Y[i]>0:\n Y[i] = -A[i]\n Z[i] = 1\n"
    child = head + "for i:10 Y[i] = A[i]\nfor i:10\n if Y[i]>0: Y[i] = -A[i]\n if Y[i]>0: Z[i] = 1\n"
    assert check(parent, child).kind is VerdictKind.UNKNOWN


def test_lookups_compare_as_trees() -> None:
    head = "in A f32[10] T i64[20] 0..10\nout Y f32[20]\n"
    parent = head + "for i:20 Y[i] = A[T[i]]\n"
    child = head + "for i0:5 i1:4 Y[i0*4+i1] = A[T[i0*4+i1]]\n"
    assert check(parent, child, ((0, 0, 0), (0, 0), "i=i0*4+i1")).kind is VerdictKind.OK
    wrong = child.replace("A[T[i0*4+i1]]", "A[T[i0*4+3-i1]]")
    assert check(parent, wrong, ((0, 0, 0), (0, 0), "i=i0*4+i1")).kind is VerdictKind.NOT_EQUAL


# mutants: whatever tier 2 accepts computes the same numbers
