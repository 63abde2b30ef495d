"""powsimp: exponentials, roots and equal factors combined."""

from __future__ import annotations

import pytest
from algebra_support import GELU_TANH, SCALE, check_sites, stored
from rewrite_support import check_all, check_golden, check_no_orphans

STRATEGY = "powsimp"
CASES = {
    "product_of_exponentials": (stored("exp(x[i])*exp(y[i])"), f"{STRATEGY}@0.0:at=1,by=exp"),
    "quotient_of_exponentials": (stored("z[i]*exp(x[i])/exp(y[i])"), f"{STRATEGY}@0.0:at=1,by=exp"),
    "negative_exponent": (stored("exp(x[i])*exp(-y[i])"), f"{STRATEGY}@0.0:at=1,by=exp"),
    "over_exponential": (stored("x[i]/exp(y[i])"), f"{STRATEGY}@0.0:at=1,by=exp"),
    "within_divisors": (stored("x[i]/exp(y[i])*(z[i]/exp(w[i]))"), f"{STRATEGY}@0.0:at=1,by=exp"),
    "roots": (stored("sqrt(exp(x[i]))*sqrt(y[i])"), f"{STRATEGY}@0.0:at=1,by=root"),
    "roots_of_squares": (stored("sqrt(x[i]*x[i])*sqrt(abs(y[i]))"), f"{STRATEGY}@0.0:at=1,by=root"),
    "equal_roots": (stored("sqrt(abs(x[i]))*sqrt(abs(x[i]))"), f"{STRATEGY}@0.0:at=1,by=root"),
    "quotient_of_roots": (stored("sqrt(x[i])/sqrt(exp(y[i]))"), f"{STRATEGY}@0.0:at=1,by=root"),
    "reciprocal": (SCALE, f"{STRATEGY}@0.0.0:at=2.1,by=reciprocal"),
    "over_root": (stored("x[i]/sqrt(y[i])"), f"{STRATEGY}@0.0:at=1,by=reciprocal"),
    "cube": (GELU_TANH, f"{STRATEGY}@0.0:at=1.1.1.0.1.1.1,by=power"),
    "refuse_front_of_a_power": (stored("x[i]*x[i]*x[i]*x[i]"), f"{STRATEGY}@0.0:at=1.0,by=power"),
    "refuse_square": (stored("x[i]*x[i]"), f"{STRATEGY}@0.0:at=1,by=power"),
    "refuse_long": (stored("x[i]*x[i]*x[i]*x[i]*x[i]*x[i]*x[i]*x[i]*x[i]"), f"{STRATEGY}@0.0:at=1,by=power"),
    "refuse_negative": (stored("sqrt(x[i])*sqrt(y[i])"), f"{STRATEGY}@0.0:at=1,by=root"),
    "refuse_negative_equal": (stored("sqrt(x[i])*sqrt(x[i])"), f"{STRATEGY}@0.0:at=1,by=root"),
    "refuse_no_powers": (stored("x[i]*y[i]"), f"{STRATEGY}@0.0:at=1,by=exp"),
    "refuse_no_root": (stored("x[i]/exp(y[i])"), f"{STRATEGY}@0.0:at=1,by=reciprocal"),
    "refuse_sum": (stored("exp(x[i])+exp(y[i])"), f"{STRATEGY}@0.0:at=1,by=exp"),
}


@pytest.mark.parametrize("name", CASES)
def test_golden(name: str, update_goldens: bool) -> None:
    check_golden(STRATEGY, name, *CASES[name], update_goldens)


def test_no_orphan_goldens() -> None:
    check_no_orphans(STRATEGY, CASES)


def test_every_site_keeps_the_meaning() -> None:
    assert check_all(STRATEGY) == 0


def test_sites_of_the_cases() -> None:
    assert check_sites(STRATEGY, sorted({text for text, _ in CASES.values()})) >= 13
