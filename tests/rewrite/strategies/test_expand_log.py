"""expand_log: logarithms of products."""

from __future__ import annotations

import pytest
from algebra_support import check_sites, stored
from rewrite_support import check_all, check_golden, check_no_orphans

STRATEGY = "expand_log"
CASES = {
    "product": (stored("log(x[i]*exp(y[i]))"), f"{STRATEGY}@0.0:at=1"),
    "quotient": (stored("log(x[i]/(1+y[i]*y[i]))"), f"{STRATEGY}@0.0:at=1"),
    "exponential": (stored("log(exp(x[i]))"), f"{STRATEGY}@0.0:at=1"),
    "root": (stored("log(sqrt(x[i]))"), f"{STRATEGY}@0.0:at=1"),
    "power": (stored("log(pow(1+x[i]*x[i],3))"), f"{STRATEGY}@0.0:at=1"),
    "softplus": (stored("select(x[i]>20,x[i],log1p(exp(x[i])))"), f"{STRATEGY}@0.0:at=1.2"),
    "softplus_of_a_negative": (stored("log1p(exp(-x[i]))"), f"{STRATEGY}@0.0:at=1"),
    "reciprocal": (stored("log(1/x[i])"), f"{STRATEGY}@0.0:at=1"),
    "refuse_signs": (stored("log(x[i]*y[i])"), f"{STRATEGY}@0.0:at=1"),
    "refuse_power_sign": (stored("log(pow(x[i],2))"), f"{STRATEGY}@0.0:at=1"),
    "refuse_sum": (stored("log(x[i]+y[i])"), f"{STRATEGY}@0.0:at=1"),
    "refuse_read": (stored("log(x[i])"), f"{STRATEGY}@0.0:at=1"),
    "refuse_log1p": (stored("log1p(x[i]*y[i])"), f"{STRATEGY}@0.0:at=1"),
    "refuse_no_logarithm": (stored("exp(x[i])"), f"{STRATEGY}@0.0:at=1"),
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
