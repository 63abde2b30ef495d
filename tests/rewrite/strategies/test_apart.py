"""apart: one fraction becomes simpler ones."""

from __future__ import annotations

import pytest
from algebra_support import check_sites, stored
from rewrite_support import check_all, check_golden, check_no_orphans

STRATEGY = "apart"
CASES = {
    "reciprocal": ("softmax", f"{STRATEGY}@2.0.0:at=2,by=reciprocal"),
    "literal": (stored("x[i]*y[i]/6"), f"{STRATEGY}@0.0:at=1,by=reciprocal"),
    "sum": (stored("(x[i]+y[i])/exp(z[i])"), f"{STRATEGY}@0.0:at=1,by=sum"),
    "difference": (stored("(x[i]-1)/3"), f"{STRATEGY}@0.0:at=1,by=sum"),
    "refuse_zero": (stored("(x[i]+y[i])/z[i]"), f"{STRATEGY}@0.0:at=1,by=sum"),
    "refuse_no_sum": (stored("x[i]*y[i]/3"), f"{STRATEGY}@0.0:at=1,by=sum"),
    "refuse_simple": (stored("1/x[i]"), f"{STRATEGY}@0.0:at=1,by=reciprocal"),
    "refuse_no_fraction": (stored("x[i]*y[i]"), f"{STRATEGY}@0.0:at=1,by=sum"),
}


@pytest.mark.parametrize("name", CASES)
def test_golden(name: str, update_goldens: bool) -> None:
    check_golden(STRATEGY, name, *CASES[name], update_goldens)


def test_no_orphan_goldens() -> None:
    check_no_orphans(STRATEGY, CASES)


def test_every_site_keeps_the_meaning() -> None:
    assert check_all(STRATEGY) == 2


def test_sites_of_the_cases() -> None:
    assert check_sites(STRATEGY, sorted({text for text, _ in CASES.values()})) >= 7
