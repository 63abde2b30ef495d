"""Tier 2 on arrays that become temporaries of one iteration: proven where an iteration keeps apart what it uses, never where two elements share a place."""

from __future__ import annotations

import pytest

from steptp.ir import Var, ix, parse
from steptp.ir.nodes import Expr
from steptp.rewrite.base import BufferMap, Exactness, InstanceEntry, InstanceMap
from steptp.verify.tier1 import tier1
from steptp.verify.tier2 import tier2
from steptp.verify.verdict import VerdictKind

HEAD = "size N=6 K=3 T=2\nin a f32[N,K]\nout Y f32[N]\n"
WHERE = "where N%T==0\n"
PARENT = parse(f"{HEAD}tmp d f32[N]\n{WHERE}for i:N k:K d[i]+=a[i,k]\nfor i0:N//T i1:T Y[i0*T+i1]=d[i0*T+i1]*2\n")
CHILD = f"{HEAD}{WHERE}for i0:N//T\n tmp l f32[T]\n for i:T k:K l[i]+=a[i0*T+i,k]\n for i1:T Y[i0*T+i1]=l[i1]*2\n"
START = Var("@i0") * ix(2)


def _verdict(child: str, *place: Expr, per_iteration: bool = True, produced: Expr | None = None) -> VerdictKind:
    """Tier 2 on the moved accumulation; ``produced`` says which parent iteration the child's accumulation runs."""
    program = parse(child)
    become = produced if produced is not None else Var("i0") * ix(2) + Var("i")
    entries = (
        InstanceEntry((0, 0, 0, 0), (0, 0, 0), (("i", become), ("k", Var("k")))),
        InstanceEntry((0, 1, 0), (1, 0, 0), (("i0", Var("i0")), ("i1", Var("i1")))),
    )
    maps = (BufferMap("d", "l", place or (Var("d0") - START,), per_iteration=per_iteration),)
    return tier2(PARENT, program, InstanceMap(entries, maps), Exactness.BITWISE).kind


def test_a_tile_is_proven() -> None:
    assert tier1(parse(CHILD)).kind is VerdictKind.OK
    assert _verdict(CHILD) is VerdictKind.OK


def test_a_mirrored_tile_is_proven() -> None:
    child = CHILD.replace("l[i]+=", "l[T-1-i]+=").replace("=l[i1]", "=l[T-1-i1]")
    assert _verdict(child, ix(1) - (Var("d0") - START)) is VerdictKind.OK


@pytest.mark.parametrize(
    "place",
    [(Var("d0"),), (ix(0),), (Var("d0") - Var("@i0"),), (Var("d0") * ix(0),), (Var("d0") - Var("@k0"),), (Var("d0") - Var("i0") * ix(2),)],
    ids=["whole", "one place", "wrong start", "product", "no such loop", "a loop of the parent"],
)
def test_other_places_are_not_proven(place: tuple[Expr, ...]) -> None:
    assert _verdict(CHILD, *place) is not VerdictKind.OK


def test_the_map_must_say_that_it_is_per_iteration() -> None:
    assert _verdict(CHILD, per_iteration=False) is not VerdictKind.OK


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("=l[i1]*2", "=l[T-1-i1]*2"),
        ("=l[i1]*2", "=l[0]*2"),
        ("a[i0*T+i,k]", "a[i,k]"),
        ("l[i]+=a", "l[T-1-i]+=a"),
        ("l[i]+=a", "l[0]+=a"),
        ("Y[i0*T+i1]", "Y[i0*T+T-1-i1]"),
        ("for i:T k:K l[i]+=", "for i:T-1 k:K l[i]+="),
        ("for i:T k:K l[i]+=", "for i:T k:K-1 l[i]+="),
        (" for i:T k:K l[i]+=", " for k:K i:T l[i]*="),
    ],
    ids=[
        "mirrored read",
        "one element read",
        "other terms",
        "mirrored write",
        "one element written",
        "other output",
        "element left out",
        "term left out",
        "product",
    ],
)
def test_wrong_children_are_not_proven(old: str, new: str) -> None:
    assert old in CHILD
    assert _verdict(CHILD.replace(old, new)) is not VerdictKind.OK


def test_sharing_one_place_is_not_proven_even_where_accesses_agree() -> None:
    """Child and map agree that both elements of a tile live in one place: the reads would then see the wrong sum."""
    child = CHILD.replace("l[i]+=", "l[0*i]+=").replace("=l[i1]", "=l[0*i1]").replace(" for i:T k:K", " for i:T\n  l[0]=0\n  for k:K carry")
    entries = (
        InstanceEntry((0, 0, 0), (0, 0, 0), (("i", Var("i0") * ix(2) + Var("i")), ("k", ix(0)))),
        InstanceEntry((0, 0, 1, 0), (0, 0, 0), (("i", Var("i0") * ix(2) + Var("i")), ("k", Var("k")))),
        InstanceEntry((0, 1, 0), (1, 0, 0), (("i0", Var("i0")), ("i1", Var("i1")))),
    )
    maps = (BufferMap("d", "l", (ix(0),), per_iteration=True),)
    assert tier2(PARENT, parse(child), InstanceMap(entries, maps), Exactness.BITWISE).kind is not VerdictKind.OK


def test_a_value_of_another_iteration_is_not_proven() -> None:
    """The child computes the tile behind and reads its own: the value that it needs is gone, though every element has a place of its own."""
    child = CHILD.replace("tmp l f32[T]", "tmp l f32[N]").replace("l[i]+=a[i0*T+i,k]", "l[i+T]+=a[(i0+1)%(N//T)*T+i,k]")
    other = (Var("i0") + ix(1)) % ix(3) * ix(2) + Var("i")
    assert _verdict(child, (Var("d0") - START) % ix(6), produced=other) is VerdictKind.ILLEGAL
    assert _verdict(child, (Var("d0") - START) % ix(2), produced=other) is not VerdictKind.OK


def test_a_temporary_that_outlives_the_iteration_is_not_taken_for_a_private_one() -> None:
    child = CHILD.replace(" tmp l f32[T]\n", "").replace("out Y f32[N]\n", "out Y f32[N]\ntmp l f32[T]\n")
    assert _verdict(child) is not VerdictKind.OK
    assert _verdict(child, Var("d0") % ix(2)) is not VerdictKind.OK


def test_the_loops_of_the_map_are_those_of_the_temporary() -> None:
    """A use outside of them gives no proof, and no crash."""
    entries = (
        InstanceEntry((0, 0, 0, 0), (0, 0, 0), (("i", Var("i0") * ix(2) + Var("i")), ("k", Var("k")))),
        InstanceEntry((1,), (1, 0, 0), (("i0", ix(0)), ("i1", ix(0)))),
    )
    child = parse(f"{HEAD}{WHERE}for i0:N//T\n tmp l f32[T]\n for i:T k:K l[i]+=a[i0*T+i,k]\n for i1:T Y[i0*T+i1]=l[i1]*2\nY[0]=a[0,0]\n")
    maps = (BufferMap("d", "l", (Var("d0") - START,), per_iteration=True),)
    assert tier2(PARENT, child, InstanceMap(entries, maps), Exactness.BITWISE).kind is not VerdictKind.OK
