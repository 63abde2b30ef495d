"""factorization: one factor of two terms."""

from __future__ import annotations

import pytest
from algebra_support import GELU_TANH, LEAKY, check_sites, stored
from rewrite_support import check_all, check_golden, check_no_orphans

STRATEGY = "factorization"
PADDED = "size N=4 K=3\nin x f32[N] w f32[K]\nout Y f32[N]\nfor i:N k:K Y[i] += select(0<=i+k-1<N,x[i+k-1]*w[k],0)\n"
CASES = {
    "left": (stored("x[i]*y[i]+x[i]*z[i]"), f"{STRATEGY}@0.0:at=1,first=0.0,second=1.0,side=left"),
    "right": (stored("y[i]*x[i]-z[i]*x[i]"), f"{STRATEGY}@0.0:at=1,first=0.1,second=1.1,side=right"),
    "whole_term": (GELU_TANH, f"{STRATEGY}@0.0:at=1.1.1.0.1,first=0,second=1.1.0.0,side=left"),
    "deep": (stored("2*x[i]*y[i]/3+z[i]*x[i]"), f"{STRATEGY}@0.0:at=1,first=0.0.0.1,second=1.1,side=right"),
    "select": (LEAKY, f"{STRATEGY}@0.0:at=1,first=1,second=2.0,side=left"),
    "select_zero": (stored("select(x[i]>0,x[i]*y[i],0)"), f"{STRATEGY}@0.0:at=1,first=1.1,second=2,side=right"),
    "select_padding": (PADDED, f"{STRATEGY}@0.0.0:at=1,first=1.1,second=2,side=right"),
    "refuse_padding": (PADDED, f"{STRATEGY}@0.0.0:at=1,first=1.0,second=2,side=left"),
    "refuse_zero_times_infinity": (stored("select(x[i]==0,0,x[i]*log(x[i]))"), f"{STRATEGY}@0.0:at=1,first=1,second=2.1,side=right"),
    "refuse_not_finite": (stored("log(x[i])*y[i]+log(x[i])*z[i]"), f"{STRATEGY}@0.0:at=1,first=0.0,second=1.0,side=left"),
    "refuse_divisor": (stored("y[i]/x[i]+z[i]*x[i]"), f"{STRATEGY}@0.0:at=1,first=0.1,second=1.1,side=left"),
    "refuse_other_factor": (stored("x[i]*y[i]+x[i]*z[i]"), f"{STRATEGY}@0.0:at=1,first=0.0,second=1.1,side=left"),
    "refuse_double": (stored("x[i]+x[i]"), f"{STRATEGY}@0.0:at=1,first=0,second=1,side=left"),
    "refuse_product": (stored("x[i]*y[i]"), f"{STRATEGY}@0.0:at=1,first=0,second=1,side=left"),
    "refuse_place": (LEAKY, f"{STRATEGY}@0.0:at=1.7,first=0,second=1,side=left"),
    "refuse_params": (LEAKY, f"{STRATEGY}@0.0:at=1"),
    "refuse_index": (LEAKY, f"{STRATEGY}@0.0:at=0,first=1,second=2.0,side=left"),
}


@pytest.mark.parametrize("name", CASES)
def test_golden(name: str, update_goldens: bool) -> None:
    check_golden(STRATEGY, name, *CASES[name], update_goldens)


def test_no_orphan_goldens() -> None:
    check_no_orphans(STRATEGY, CASES)


def test_every_site_keeps_the_meaning() -> None:
    assert check_all(STRATEGY) == 0


def test_sites_of_the_cases() -> None:
    assert check_sites(STRATEGY, sorted({text for text, _ in CASES.values()})) >= 8
