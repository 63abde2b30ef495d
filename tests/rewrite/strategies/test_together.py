"""together: one denominator."""

from __future__ import annotations

import pytest
from algebra_support import NORM, SCALE, check_sites, stored
from rewrite_support import check_all, check_golden, check_no_orphans

STRATEGY = "together"
CASES = {
    "same_denominator": (stored("x[i]/exp(z[i])-y[i]/exp(z[i])"), f"{STRATEGY}@0.0:at=1"),
    "two_denominators": (stored("x[i]/exp(z[i])+y[i]/3"), f"{STRATEGY}@0.0:at=1"),
    "norm": (NORM, f"{STRATEGY}@3.0.0:at=2.0.0.1.0"),
    "reciprocal": (SCALE, f"{STRATEGY}@0.0.0:at=2"),
    "product": (stored("x[i]*(y[i]/z[i])"), f"{STRATEGY}@0.0:at=1"),
    "two_fractions": (stored("x[i]/exp(y[i])*(z[i]/exp(w[i]))"), f"{STRATEGY}@0.0:at=1"),
    "nested": (stored("x[i]/2/exp(y[i])"), f"{STRATEGY}@0.0:at=1"),
    "inverted": (stored("x[i]/(exp(y[i])/3)"), f"{STRATEGY}@0.0:at=1"),
    "refuse_zero": (stored("x[i]/y[i]+z[i]"), f"{STRATEGY}@0.0:at=1"),
    "refuse_nested_zero": (stored("x[i]/y[i]/z[i]"), f"{STRATEGY}@0.0:at=1"),
    "refuse_no_fraction": (stored("x[i]+y[i]"), f"{STRATEGY}@0.0:at=1"),
    "refuse_read": (stored("x[i]"), f"{STRATEGY}@0.0:at=1"),
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
