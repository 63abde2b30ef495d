"""additive_split: an expression through a difference that its statement computes."""

from __future__ import annotations

import pytest
from algebra_support import check_sites, stored
from rewrite_support import check_all, check_golden, check_no_orphans

STRATEGY = "additive_split"
CASES = {
    "minus": (stored("y[i]*max(x[i]-y[i],0)*x[i]"), f"{STRATEGY}@0.0:at=1.1,by=1.0.1.0.1,sign=minus"),
    "plus": (stored("x[i]*min(max(x[i]+3,0),6)/6"), f"{STRATEGY}@0.0:at=1.0.0,by=1.0.1.0.0.1,sign=plus"),
    "by_hand": (stored("exp(x[i])*y[i]"), f"{STRATEGY}@0.0:at=1.0.0,by=1.1,sign=minus"),
    "refuse_not_finite": (stored("x[i]*(x[i]-1/y[i])"), f"{STRATEGY}@0.0:at=1.0,by=1.1.1,sign=minus"),
    "refuse_conditional": (stored("x[i]*select(y[i]>0,x[i]-y[i],0)"), f"{STRATEGY}@0.0:at=1.0,by=1.1.1.1,sign=minus"),
    "refuse_own_operand": (stored("x[i]*y[i]+z[i]"), f"{STRATEGY}@0.0:at=1.0,by=1.0.1,sign=minus"),
    "refuse_sign": (stored("x[i]*(x[i]-y[i])"), f"{STRATEGY}@0.0:at=1.0,by=1.1.1,sign=times"),
}


@pytest.mark.parametrize("name", CASES)
def test_golden(name: str, update_goldens: bool) -> None:
    check_golden(STRATEGY, name, *CASES[name], update_goldens)


def test_no_orphan_goldens() -> None:
    check_no_orphans(STRATEGY, CASES)


def test_every_site_keeps_the_meaning() -> None:
    assert check_all(STRATEGY) == 0


def test_sites_of_the_cases() -> None:
    assert check_sites(STRATEGY, sorted({text for text, _ in CASES.values()})) >= 3
