"""collect: terms of a longer sum."""

from __future__ import annotations

import pytest
from algebra_support import LOG_SOFTMAX, check_sites, stored
from rewrite_support import check_all, check_golden, check_no_orphans

STRATEGY = "collect"
CASES = {
    "factor": (stored("x[i]*y[i]+z[i]-w[i]*y[i]"), f"{STRATEGY}@0.0:at=1,by=0.0.1"),
    "three_of_four": (stored("x[i]*y[i]-y[i]*z[i]+w[i]+y[i]"), f"{STRATEGY}@0.0:at=1,by=0.0.0.1"),
    "subtracted_first": (stored("z[i]-x[i]*y[i]-w[i]*y[i]"), f"{STRATEGY}@0.0:at=1,by=0.1.1"),
    "signs": (LOG_SOFTMAX, f"{STRATEGY}@2.0.0:at=2,by=minus"),
    "refuse_front": (stored("x[i]*y[i]+z[i]-w[i]*y[i]+x[i]"), f"{STRATEGY}@0.0:at=1.0,by=0.0.1"),
    "refuse_short": (stored("x[i]*y[i]+z[i]*y[i]"), f"{STRATEGY}@0.0:at=1,by=0.1"),
    "refuse_not_shared": (stored("x[i]*y[i]+z[i]-w[i]"), f"{STRATEGY}@0.0:at=1,by=0.0.1"),
    "refuse_not_finite": (stored("x[i]*log(y[i])+z[i]-w[i]*log(y[i])"), f"{STRATEGY}@0.0:at=1,by=0.0.1"),
    "refuse_one_minus": (stored("x[i]*y[i]+z[i]-w[i]"), f"{STRATEGY}@0.0:at=1,by=minus"),
    "refuse_place": (stored("x[i]*y[i]+z[i]-w[i]"), f"{STRATEGY}@0.0:at=1,by=5"),
}


@pytest.mark.parametrize("name", CASES)
def test_golden(name: str, update_goldens: bool) -> None:
    check_golden(STRATEGY, name, *CASES[name], update_goldens)


def test_no_orphan_goldens() -> None:
    check_no_orphans(STRATEGY, CASES)


def test_every_site_keeps_the_meaning() -> None:
    assert check_all(STRATEGY) == 0


def test_sites_of_the_cases() -> None:
    assert check_sites(STRATEGY, sorted({text for text, _ in CASES.values()})) >= 5
