"""logsimp: sums with logarithms."""

from __future__ import annotations

import pytest
from algebra_support import LOG_SOFTMAX, check_sites, stored
from rewrite_support import check_all, check_golden, check_no_orphans

STRATEGY = "logsimp"
CASES = {
    "log_softmax": (LOG_SOFTMAX, f"{STRATEGY}@2.0.0:at=2,by=product"),
    "sum": (stored("log(exp(x[i]))+log(y[i])"), f"{STRATEGY}@0.0:at=1,by=product"),
    "difference": (stored("log(x[i])-log(1+abs(y[i]))"), f"{STRATEGY}@0.0:at=1,by=product"),
    "left": (stored("log(x[i])+y[i]"), f"{STRATEGY}@0.0:at=1,by=product"),
    "softplus": (stored("x[i]+log1p(exp(-x[i]))"), f"{STRATEGY}@0.0:at=1,by=product"),
    "inverse": (LOG_SOFTMAX, f"{STRATEGY}@2.0.0:at=2,by=inverse"),
    "negated": (stored("-log(1+abs(x[i]))"), f"{STRATEGY}@0.0:at=1,by=inverse"),
    "refuse_no_inverse": (stored("x[i]+log(y[i])"), f"{STRATEGY}@0.0:at=1,by=inverse"),
    "refuse_negation": (stored("-log(x[i])"), f"{STRATEGY}@0.0:at=1,by=product"),
    "refuse_signs": (stored("log(x[i])+log(y[i])"), f"{STRATEGY}@0.0:at=1,by=product"),
    "refuse_infinite": (stored("log(x[i])+y[i]/z[i]"), f"{STRATEGY}@0.0:at=1,by=product"),
    "refuse_none": (stored("x[i]+y[i]"), f"{STRATEGY}@0.0:at=1,by=product"),
    "refuse_product": (stored("x[i]*log(y[i])"), f"{STRATEGY}@0.0:at=1,by=product"),
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
