"""cancellation: equal factors and divisors, opposite terms."""

from __future__ import annotations

import pytest
from algebra_support import SMOOTH, check_sites, stored
from rewrite_support import check_all, check_golden, check_no_orphans

STRATEGY = "cancellation"
CASES = {
    "literal": (SMOOTH, f"{STRATEGY}@0.0:at=1.1,first=0.0.1,second=1"),
    "exponential": (stored("x[i]*exp(y[i])/exp(y[i])"), f"{STRATEGY}@0.0:at=1,first=0.1,second=1"),
    "after_division": (stored("x[i]/(1+y[i]*y[i])*(z[i]*(1+y[i]*y[i]))"), f"{STRATEGY}@0.0:at=1,first=0.1,second=1.1"),
    "both_divided": (stored("x[i]/exp(y[i])/(z[i]/exp(y[i]))"), f"{STRATEGY}@0.0:at=1,first=0.1,second=1.1"),
    "terms": (stored("x[i]+y[i]-z[i]-y[i]"), f"{STRATEGY}@0.0:at=1,first=0.0.1,second=1"),
    "nothing_left": (stored("x[i]-x[i]"), f"{STRATEGY}@0.0:at=1,first=0,second=1"),
    "under_a_condition": (stored("select(y[i]>0,x[i]*y[i]/y[i],x[i])"), f"{STRATEGY}@0.0:at=1.1,first=0.1,second=1"),
    "refuse_zero": (stored("x[i]*y[i]/y[i]"), f"{STRATEGY}@0.0:at=1,first=0.1,second=1"),
    "refuse_other_condition": (stored("select(y[i]>0,x[i],x[i]*y[i]/y[i])"), f"{STRATEGY}@0.0:at=1.2,first=0.1,second=1"),
    "refuse_infinite_terms": (stored("x[i]+log(y[i])-log(y[i])"), f"{STRATEGY}@0.0:at=1,first=0.1,second=1"),
    "refuse_not_equal": (stored("x[i]*y[i]/z[i]"), f"{STRATEGY}@0.0:at=1,first=0.1,second=1"),
    "refuse_factors": (stored("x[i]*x[i]"), f"{STRATEGY}@0.0:at=1,first=0,second=1"),
    "refuse_sum_of_equals": (stored("x[i]+x[i]"), f"{STRATEGY}@0.0:at=1,first=0,second=1"),
    "refuse_read": (stored("x[i]"), f"{STRATEGY}@0.0:at=1,first=0,second=1"),
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
