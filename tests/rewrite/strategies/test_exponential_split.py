"""exponential_split: the exponential of a difference."""

from __future__ import annotations

import pytest
from algebra_support import check_sites, stored
from rewrite_support import check_all, check_golden, check_no_orphans

STRATEGY = "exponential_split"
MASKED = "size N=3 K=4\nin x f32[N,K] h bool[N,K]\nout Y f32[N,K]\ntmp d f32[N,K] m[N]\nfor i:N k:K d[i,k] = select(h[i,k],-10000,x[i,k])\nfor i:N k:K m[i] max= d[i,k]\nfor i:N k:K Y[i,k] = exp(d[i,k]-m[i])\n"
CASES = {
    "terms": ("softmax", f"{STRATEGY}@1.0.0:at=1,by=terms"),
    "around_another_exponent": (stored("exp(x[i]-y[i])+exp(z[i]-y[i])*w[i]"), f"{STRATEGY}@0.0:at=1.0,by=1.1.0.0.0"),
    "same_minuend": (stored("exp(x[i]-y[i])+exp(x[i]-z[i])*w[i]"), f"{STRATEGY}@0.0:at=1.0,by=1.1.0.0.1"),
    "refuse_masked": (MASKED, f"{STRATEGY}@2.0.0:at=2,by=terms"),
    "refuse_not_finite": (stored("exp(x[i]-y[i])+exp(1/z[i]-y[i])"), f"{STRATEGY}@0.0:at=1.0,by=1.1.0.0"),
    "refuse_conditional": (stored("exp(x[i]-y[i])+select(w[i]>0,z[i],0)"), f"{STRATEGY}@0.0:at=1.0,by=1.1.1"),
    "refuse_own_operand": (stored("exp(x[i]-y[i])"), f"{STRATEGY}@0.0:at=1,by=1.0.0"),
    "refuse_sum": (stored("exp(x[i]+y[i])"), f"{STRATEGY}@0.0:at=1,by=terms"),
    "refuse_nothing_there": (stored("exp(x[i]-y[i])"), f"{STRATEGY}@0.0:at=1,by=7"),
}


@pytest.mark.parametrize("name", CASES)
def test_golden(name: str, update_goldens: bool) -> None:
    check_golden(STRATEGY, name, *CASES[name], update_goldens)


def test_no_orphan_goldens() -> None:
    check_no_orphans(STRATEGY, CASES)


def test_every_site_keeps_the_meaning() -> None:
    assert check_all(STRATEGY) == 2


def test_sites_of_the_cases() -> None:
    assert check_sites(STRATEGY, sorted({text for text, _ in CASES.values()})) >= 8
