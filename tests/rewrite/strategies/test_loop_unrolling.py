"""loop_unrolling: small constant extents only."""

from __future__ import annotations

import pytest
from rewrite_support import check_all, check_golden, check_no_orphans

STRATEGY = "loop_unrolling"
TILE = "size N=128 T0=4\nwhere N%T0==0\nin X f32[N]\nout Y f32[N]\nfor i0:N//T0 i1:T0 Y[i0*T0+i1] = X[i0*T0+i1]\n"
NESTED = "size N=4 M=3\nin X f32[N,M]\nout Y f32[N,M]\nfor i:N unroll j:M Y[i,j] = X[i,j]\n"
LONG = "size N=65\nin X f32[N]\nout Y f32[N]\nfor i:N Y[i] = X[i]\n"
TRIANGLE = "size N=4\nin X f32[N,N]\nout Y f32[N,N]\nfor i:N j:i+1 Y[i,j] = X[i,j]\n"
CASES = {
    "reduction": ("matmul", "loop_unrolling@0.0.0"),
    "tile": (TILE, "loop_unrolling@0.0"),
    "nested": (NESTED, "loop_unrolling@0"),
    "refuse_long": (LONG, "loop_unrolling@0"),
    "refuse_varies": (TRIANGLE, "loop_unrolling@0.0"),
    "refuse_again": (NESTED, "loop_unrolling@0.0"),
    "refuse_store": ("matmul", "loop_unrolling@0.0.0.0"),
    "refuse_root": ("matmul", "loop_unrolling@"),
}


@pytest.mark.parametrize("name", CASES)
def test_golden(name: str, update_goldens: bool) -> None:
    check_golden(STRATEGY, name, *CASES[name], update_goldens)


def test_no_orphan_goldens() -> None:
    check_no_orphans(STRATEGY, CASES)


def test_every_site_keeps_the_meaning() -> None:
    assert check_all(STRATEGY) >= 20
