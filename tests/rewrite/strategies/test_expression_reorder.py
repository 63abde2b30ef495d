"""expression_reorder: swapping independent neighbours."""

from __future__ import annotations

import pytest
from rewrite_support import all_applied, check_all, check_golden, check_no_orphans, program

STRATEGY = "expression_reorder"
OVERLAP = "size N=4\nin X f32[N]\nout Y f32[N]\nfor i:N Y[i] = 0\nfor i:N if i>1: Y[i] = X[i]\n"
RESET_OUTSIDE = "size R=2 N=3\nin A f32[R,N]\nout C f32[N] D f32[R,N]\nfor r:R\n for i:N C[i] += A[r,i]\n for i:N D[r,i] = A[r,i]\n"
RESET_INSIDE = "size R=2 N=3\nin A f32[R,N]\nout C f32[R] D f32[R]\nfor r:R\n for i:N C[r] += A[r,i]\n D[r] = C[r]\n"
ANTI = "size N=4\nin X f32[N]\nout Y f32[N] Z f32[N]\ntmp t f32[N]\nfor i:N t[i] = X[i]\nfor i:N Y[i] = t[i]\nfor i:N t[i] = X[i]*2\nfor i:N Z[i] = t[i]\n"
CASES = {
    "nests": ("integer", "expression_reorder@0"),
    "inside": ("imperfect", "expression_reorder@0.1.0"),
    "refuse_flow": ("softmax", "expression_reorder@0"),
    "disjoint_elements": ("guarded", "expression_reorder@0"),
    "refuse_both_write": (OVERLAP, "expression_reorder@0"),
    "reset_outside": (RESET_OUTSIDE, "expression_reorder@0.0"),
    "refuse_reset_inside": (RESET_INSIDE, "expression_reorder@0.0"),
    "refuse_anti": (ANTI, "expression_reorder@1"),
    "refuse_last": ("softmax", "expression_reorder@2"),
    "refuse_root": ("softmax", "expression_reorder@"),
}


@pytest.mark.parametrize("name", CASES)
def test_golden(name: str, update_goldens: bool) -> None:
    check_golden(STRATEGY, name, *CASES[name], update_goldens)


def test_no_orphan_goldens() -> None:
    check_no_orphans(STRATEGY, CASES)


def test_every_site_keeps_the_meaning() -> None:
    assert check_all(STRATEGY) >= 3


def test_the_inverse_is_the_same_site() -> None:
    for site, step in all_applied(STRATEGY, program("integer")):
        assert step.inverse == (site,)
