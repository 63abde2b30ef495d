"""Algebra steps of random expressions: equal over the reals where both are defined, undone by their inverse, explained."""

from __future__ import annotations

import random

import pytest
from algebra_support import HOST
from rewrite_support import all_applied, check_step, program
from value_exprs import value_text

from steptp.reason import explain
from steptp.reason.checker import check_text
from steptp.rewrite import registry
from steptp.rewrite.algebra import Algebra
from steptp.verify.tier3 import tier3

STRATEGIES = tuple(s.name for s in registry.all_strategies() if isinstance(s, Algebra))


@pytest.mark.parametrize("seed", range(25))
def test_random_expressions(seed: int) -> None:
    rng = random.Random(seed)
    value = value_text(rng, 4)
    subject = program(f"size N=5\nin x f64[N] y f64[N]\nout Y f64[N]\nfor i:N Y[i] = {value}+x[i]*0\n")
    for strategy in STRATEGIES:
        steps = list(all_applied(strategy, subject))
        for site, step in rng.sample(steps, min(2, len(steps))):
            check_step(subject, site, step, seed=seed)
            report = tier3(subject, step.program, seed=seed)
            assert str(report.kind) in ("ok", "unknown"), f"{site.id}: {report.message}\n{value}"
            why = explain(subject, step, site, candidates=[site], rule="balanced-random", host=HOST, seed=seed)
            found = check_text(why.text, subject, step.program, site.id, candidates=[site.id], host=HOST.to_dict())
            assert [p for p in found if "no points at which" not in p] == [], why.text


def test_the_expressions_offer_sites() -> None:
    count = dict.fromkeys(STRATEGIES, 0)
    for seed in range(25):
        value = value_text(random.Random(seed), 4)
        subject = program(f"size N=5\nin x f64[N] y f64[N]\nout Y f64[N]\nfor i:N Y[i] = {value}+x[i]*0\n")
        for strategy in STRATEGIES:
            count[strategy] += len(list(all_applied(strategy, subject)))
    assert sum(c > 0 for c in count.values()) >= 9, count
