"""expand_cancellation: a term gets the denominator beside it."""

from __future__ import annotations

import pytest
from algebra_support import NORM, check_sites, stored
from rewrite_support import check_all, check_golden, check_no_orphans

STRATEGY = "expand_cancellation"
CASES = {
    "norm": (NORM, f"{STRATEGY}@3.0.0:at=2.0.0.1.0.1,by=2.0.0.1.0.0.1"),
    "one": (stored("1-x[i]/exp(y[i])"), f"{STRATEGY}@0.0:at=1.0,by=1.1.1"),
    "fraction": (stored("x[i]/(2+exp(z[i]))+y[i]/exp(z[i])"), f"{STRATEGY}@0.0:at=1.0,by=1.1.1"),
    "anywhere": (stored("x[i]*exp(y[i])"), f"{STRATEGY}@0.0:at=1.0,by=1.1"),
    "refuse_zero": (stored("x[i]+y[i]/z[i]"), f"{STRATEGY}@0.0:at=1.0,by=1.1.1"),
    "refuse_conditional": (stored("x[i]+select(y[i]>0,z[i]/y[i],0)"), f"{STRATEGY}@0.0:at=1.0,by=1.1.1.1"),
    "refuse_size_that_may_be_0": (
        "size N=3 K=4\nin x f32[N,K]\nout Y f32[N]\ntmp s f32[N]\nfor i:N k:K s[i] += x[i,k]\nfor i:N Y[i] = s[i]/f32(K)+1\n",
        f"{STRATEGY}@1.0:at=1.1,by=1.0.1",
    ),
    "refuse_nothing_there": (stored("x[i]+y[i]/exp(z[i])"), f"{STRATEGY}@0.0:at=1.0,by=1.1.1.7"),
    "refuse_index": (stored("x[i]+y[i]/exp(z[i])"), f"{STRATEGY}@0.0:at=1.0,by=0"),
    "refuse_one": (stored("x[i]*1"), f"{STRATEGY}@0.0:at=1.0,by=1.1"),
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
