"""multiplicative_split: a term gets the factor of the one beside it."""

from __future__ import annotations

import pytest
from algebra_support import NORM, check_sites, stored
from rewrite_support import check_all, check_golden, check_no_orphans

STRATEGY = "multiplicative_split"
CASES = {
    "exponential": (stored("x[i]+y[i]*exp(z[i])"), f"{STRATEGY}@0.0:at=1.0,by=1.1.1"),
    "norm": (NORM, f"{STRATEGY}@3.0.0:at=2.1,by=2.0.0.1"),
    "literal": (stored("x[i]*0.9+y[i]*0.1"), f"{STRATEGY}@0.0:at=1.0,by=1.1.1"),
    "refuse_zero": (stored("x[i]+y[i]*z[i]"), f"{STRATEGY}@0.0:at=1.0,by=1.1.1"),
    "refuse_conditional": (stored("x[i]+select(y[i]>0,exp(z[i]),0)"), f"{STRATEGY}@0.0:at=1.0,by=1.1.1"),
    "refuse_one": (stored("x[i]+1"), f"{STRATEGY}@0.0:at=1.0,by=1.1"),
    "refuse_nothing_there": (stored("x[i]+1"), f"{STRATEGY}@0.0:at=1.0,by=1.3"),
}


@pytest.mark.parametrize("name", CASES)
def test_golden(name: str, update_goldens: bool) -> None:
    check_golden(STRATEGY, name, *CASES[name], update_goldens)


def test_no_orphan_goldens() -> None:
    check_no_orphans(STRATEGY, CASES)


def test_every_site_keeps_the_meaning() -> None:
    assert check_all(STRATEGY) == 0


def test_sites_of_the_cases() -> None:
    assert check_sites(STRATEGY, sorted({text for text, _ in CASES.values()})) >= 4
