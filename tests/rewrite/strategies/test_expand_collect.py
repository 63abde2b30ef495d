"""expand_collect: a term of a longer sum multiplied out."""

from __future__ import annotations

import pytest
from algebra_support import NORM, check_sites, stored
from rewrite_support import check_all, check_golden, check_no_orphans

STRATEGY = "expand_collect"
CASES = {
    "factor": (stored("(x[i]-y[i])*z[i]+w[i]"), f"{STRATEGY}@0.0:at=1,term=0,sum=0"),
    "one": (stored("w[i]-(1+x[i])*y[i]"), f"{STRATEGY}@0.0:at=1,term=1,sum=0"),
    "norm": (NORM, f"{STRATEGY}@3.0.0:at=2,term=0,sum=0.0"),
    "signs": (stored("x[i]-(y[i]-z[i])"), f"{STRATEGY}@0.0:at=1,term=1,sum=whole"),
    "plain_parentheses": (stored("x[i]+(y[i]-z[i])"), f"{STRATEGY}@0.0:at=1,term=1,sum=whole"),
    "over_a_divisor": (stored("(x[i]+y[i])/exp(z[i])*w[i]+1"), f"{STRATEGY}@0.0:at=1,term=0,sum=0.0"),
    "refuse_zero_divisor": (stored("(x[i]+y[i])/z[i]*w[i]+1"), f"{STRATEGY}@0.0:at=1,term=0,sum=0.0"),
    "refuse_not_finite": (stored("(x[i]-y[i])*log(z[i])+w[i]"), f"{STRATEGY}@0.0:at=1,term=0,sum=0"),
    "refuse_front": (stored("(x[i]-y[i])*z[i]+w[i]-x[i]"), f"{STRATEGY}@0.0:at=1.0,term=0,sum=0"),
    "refuse_no_sum": (stored("x[i]*y[i]"), f"{STRATEGY}@0.0:at=1,term=0,sum=0"),
    "refuse_no_term": (stored("x[i]*y[i]+z[i]"), f"{STRATEGY}@0.0:at=1,term=2,sum=0"),
    "refuse_no_parentheses": (stored("x[i]*y[i]+z[i]"), f"{STRATEGY}@0.0:at=1,term=0,sum=whole"),
    "refuse_place": (stored("x[i]*y[i]+z[i]"), f"{STRATEGY}@0.0:at=1,term=0,sum=0"),
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
