"""loop_split: exact, guarded and peeled splits."""

from __future__ import annotations

from itertools import product

import pytest
from rewrite_support import check_all, check_golden, check_no_orphans, program, refusal

from steptp.errors import LeirError
from steptp.ir import print_program, problems, program_hash, rebind
from steptp.ir.sizes import free_size_names
from steptp.rewrite import engine
from steptp.rewrite.base import Applied

STRATEGY = "loop_split"
PARALLEL = "size N=8\nin X f32[N]\nout Y f32[N]\npar i:N Y[i] = X[i]*2\n"
TRIANGLE = "size N=8\nin X f32[N,N]\nout Y f32[N,N]\nfor i:N j:N Y[i,j] = 0\nfor i:N j:i+1 Y[i,j] = X[i,j]\n"
TILED = "size N=8 M=16 T0=4\nwhere N%T0==0\nin X f32[N] Z[M]\nout Y f32[N] W[M]\nfor i0:N//T0 i1:T0 Y[i0*T0+i1] = X[i0*T0+i1]\nfor j:M W[j] = Z[j]\n"
GUARDED_TILE = "size N=6 K=8 T0=4\nin A f32[N,K]\nout C f32[N]\nfor i0:(N-1)//T0+1 i1:T0 if i0*T0+i1<N: for k:K C[i0*T0+i1] += A[i0*T0+i1,k]\n"
VECTOR = "size N=8\nin X f32[N]\nout Y f32[N]\nvec i:N Y[i] = X[i]*2\n"
CASES = {
    "exact": ("matmul", "loop_split@0:factor=2,tail=exact"),
    "exact_reduction": ("matmul", "loop_split@0.0.0:factor=4,tail=exact"),
    "guard": ("matmul", "loop_split@0.0:factor=2,tail=guard"),
    "guard_reduction": ("matmul", "loop_split@0.0.0:factor=3,tail=guard"),
    "peel_reduction": ("matmul", "loop_split@0.0.0:factor=3,tail=peel"),
    "peel_pointwise": ("imperfect", "loop_split@0.1:factor=4,tail=peel"),
    "tmps_guard": ("tmps", "loop_split@0:factor=3,tail=guard"),
    "parallel": (PARALLEL, "loop_split@0:factor=4,tail=exact"),
    "known_size": (TILED, "loop_split@1:factor=T0,tail=exact"),
    "twice": (TILED, "loop_split@0.0:factor=2,tail=guard"),
    "refuse_guard_twice": (GUARDED_TILE, "loop_split@0.0:factor=2,tail=guard"),
    "refuse_peel_reset": ("matmul", "loop_split@0:factor=4,tail=peel"),
    "refuse_peel_tmp": ("tmps", "loop_split@0:factor=3,tail=peel"),
    "refuse_not_divisible": ("matmul", "loop_split@0.0:factor=2,tail=exact"),
    "refuse_no_tail": ("matmul", "loop_split@0:factor=2,tail=peel"),
    "refuse_too_big": ("matmul", "loop_split@0:factor=8,tail=guard"),
    "refuse_one": ("matmul", "loop_split@0:factor=1,tail=exact"),
    "refuse_unknown_size": ("matmul", "loop_split@0:factor=Q,tail=exact"),
    "refuse_triangle": (TRIANGLE, "loop_split@1.0:factor=2,tail=guard"),
    "refuse_store": ("matmul", "loop_split@0.0.0.0:factor=2,tail=exact"),
    "refuse_nowhere": ("matmul", "loop_split@7:factor=2,tail=exact"),
    "refuse_tail": ("matmul", "loop_split@0:factor=2,tail=wing"),
    "refuse_vector": (VECTOR, "loop_split@0:factor=4,tail=exact"),
}


@pytest.mark.parametrize("name", CASES)
def test_golden(name: str, update_goldens: bool) -> None:
    check_golden(STRATEGY, name, *CASES[name], update_goldens)


def test_no_orphan_goldens() -> None:
    check_no_orphans(STRATEGY, CASES)


def test_every_site_keeps_the_meaning() -> None:
    assert check_all(STRATEGY) > 100


def test_splitting_twice_and_undoing_twice() -> None:
    subject = program("matmul")
    first = engine.applied_or_raise(subject, "loop_split@0.0.0:factor=4,tail=exact")
    second = engine.applied_or_raise(first.program, "loop_split@0.0.0.0:factor=2,tail=exact")
    back = engine.applied_or_raise(second.program, second.inverse[0])
    assert program_hash(back.program) == program_hash(first.program)
    assert isinstance(engine.apply(back.program, first.inverse[0]), Applied)


def test_a_tile_of_the_whole_loop_is_refused() -> None:
    assert refusal("matmul", "loop_split@0:factor=6,tail=exact").code == "factor"


@pytest.mark.parametrize("first", ["tail=guard", "tail=exact"])
def test_a_tile_split_again_is_valid_at_every_tile_size(first: str) -> None:
    """Also where the second tile is larger than the first, or does not divide it."""
    outer = engine.applied_or_raise(program("matmul"), f"loop_split@0:factor=3,{first}").program
    inner = [engine.applied_or_raise(outer, s).program for s in engine.sites(outer, [STRATEGY], limit=None) if "T0" not in s.id]
    outer = engine.applied_or_raise(program("matmul"), "loop_split@0:factor=4,tail=guard").program
    inner += [engine.applied_or_raise(outer, s).program for s in engine.sites(outer, [STRATEGY, "loop_tiling"], limit=None)]
    tried = 0
    for child in inner:
        tiles = [s for s in free_size_names(child) if s.startswith("T")]
        for values in product(range(1, 7), repeat=len(tiles)):
            try:
                again = rebind(child, dict(zip(tiles, values, strict=True)))
            except LeirError:
                continue  # the header forbids these sizes
            tried += 1
            assert not problems(again), print_program(again)
    assert tried > 200
