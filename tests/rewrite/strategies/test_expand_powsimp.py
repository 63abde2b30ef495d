"""expand_powsimp: exponentials, roots and powers split."""

from __future__ import annotations

import pytest
from algebra_support import NORM, check_sites, stored
from rewrite_support import check_all, check_golden, check_no_orphans

STRATEGY = "expand_powsimp"
MASKED = "size N=3 K=4\nin x f32[N,K] h bool[N,K]\nout Y f32[N,K]\ntmp d f32[N,K] m[N]\nfor i:N k:K d[i,k] = select(h[i,k],-10000,x[i,k])\nfor i:N k:K m[i] max= d[i,k]\nfor i:N k:K Y[i,k] = exp(d[i,k]-m[i])\n"
CASES = {
    "difference": ("softmax", f"{STRATEGY}@1.0.0:at=1,by=exp"),
    "sum": (stored("exp(x[i]+y[i])"), f"{STRATEGY}@0.0:at=1,by=exp"),
    "negated": (stored("exp(-x[i])"), f"{STRATEGY}@0.0:at=1,by=exp"),
    "root": (stored("sqrt(x[i]*exp(y[i]))"), f"{STRATEGY}@0.0:at=1,by=root"),
    "root_of_quotient": (stored("sqrt(x[i]/exp(y[i]))"), f"{STRATEGY}@0.0:at=1,by=root"),
    "root_of_square": (stored("sqrt(x[i]*x[i])"), f"{STRATEGY}@0.0:at=1,by=root"),
    "reciprocal": (NORM, f"{STRATEGY}@3.0.0:at=2.0.0.1,by=reciprocal"),
    "quotient": (NORM, f"{STRATEGY}@3.0.0:at=2.0.0,by=quotient"),
    "power": (stored("pow(x[i],3)"), f"{STRATEGY}@0.0:at=1,by=power"),
    "refuse_masked": (MASKED, f"{STRATEGY}@2.0.0:at=2,by=exp"),
    "refuse_power": (stored("pow(x[i],0.5)"), f"{STRATEGY}@0.0:at=1,by=power"),
    "refuse_negative": (stored("sqrt(x[i]*y[i])"), f"{STRATEGY}@0.0:at=1,by=root"),
    "refuse_root_of_a_sum": (stored("sqrt(x[i]+y[i])"), f"{STRATEGY}@0.0:at=1,by=root"),
    "refuse_product_in_exponent": (stored("exp(x[i]*y[i])"), f"{STRATEGY}@0.0:at=1,by=exp"),
    "refuse_other_function": (stored("exp(x[i]+y[i])"), f"{STRATEGY}@0.0:at=1,by=root"),
    "refuse_no_rsqrt": (stored("rsqrt(x[i])*y[i]"), f"{STRATEGY}@0.0:at=1,by=quotient"),
}


@pytest.mark.parametrize("name", CASES)
def test_golden(name: str, update_goldens: bool) -> None:
    check_golden(STRATEGY, name, *CASES[name], update_goldens)


def test_no_orphan_goldens() -> None:
    check_no_orphans(STRATEGY, CASES)


def test_every_site_keeps_the_meaning() -> None:
    assert check_all(STRATEGY) == 2


def test_sites_of_the_cases() -> None:
    assert check_sites(STRATEGY, sorted({text for text, _ in CASES.values()})) >= 9
