"""expand_factorization: multiplying a sum out."""

from __future__ import annotations

import pytest
from algebra_support import NORM, check_sites, stored
from rewrite_support import check_all, check_golden, check_no_orphans

STRATEGY = "expand_factorization"
CASES = {
    "left": (stored("(x[i]+y[i])*z[i]"), f"{STRATEGY}@0.0:at=1,over=0"),
    "right": (stored("x[i]*(1-y[i])"), f"{STRATEGY}@0.0:at=1,over=1"),
    "square": (NORM, f"{STRATEGY}@2.0.0:at=1,over=0"),
    "select": (stored("x[i]*select(x[i]>0,1,0.1)"), f"{STRATEGY}@0.0:at=1,over=1"),
    "select_zero": (stored("select(x[i]>0,y[i],0)*z[i]"), f"{STRATEGY}@0.0:at=1,over=0"),
    "refuse_zero_times_infinity": (stored("select(x[i]>0,y[i],0)*log(z[i])"), f"{STRATEGY}@0.0:at=1,over=0"),
    "refuse_not_finite": (stored("(x[i]+y[i])/z[i]*(x[i]-y[i])"), f"{STRATEGY}@0.0:at=1,over=1"),
    "refuse_no_sum": (stored("x[i]*y[i]"), f"{STRATEGY}@0.0:at=1,over=0"),
    "refuse_no_product": (stored("(x[i]+y[i])/z[i]"), f"{STRATEGY}@0.0:at=1,over=0"),
}


@pytest.mark.parametrize("name", CASES)
def test_golden(name: str, update_goldens: bool) -> None:
    check_golden(STRATEGY, name, *CASES[name], update_goldens)


def test_no_orphan_goldens() -> None:
    check_no_orphans(STRATEGY, CASES)


def test_every_site_keeps_the_meaning() -> None:
    assert check_all(STRATEGY) == 0


def test_sites_of_the_cases() -> None:
    assert check_sites(STRATEGY, sorted({text for text, _ in CASES.values()})) >= 7
