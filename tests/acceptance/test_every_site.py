"""Every site that a strategy lists over the zoo is applied, verified, as exact as it says, and explained truly."""

from __future__ import annotations

import random
from collections import defaultdict

import pytest
from site_checks import Case, Step, check_case, followers

from steptp.frontend import zoo
from steptp.ir import Program
from steptp.rewrite import engine, registry
from steptp.rewrite.base import Site

NAMES = zoo.names("tiny")
FOLLOWERS = ("dead_code_elimination", "operator_fission", "padding")
"""Strategies whose sites come up after another step."""

RARE = ("softmax", "log_softmax", "smooth_l1_loss", "gelu_tanh", "softplus", "attention_single", "conv2d", "batch_norm")
"""Workloads that some strategies, of the algebra family above all, find sites in and few others do."""

AFTER = {
    "padding": ("matmul", ("loop_split", "tail=guard")),
    "loop_skewing": ("double_cumsum", ("operator_fusion", "depth=2")),
    "dead_code_elimination": ("gemm_bias_relu", ("compute_inline", "")),
    "operator_fission": ("softmax", ("operator_fusion", "")),
    "set_storage_scope": ("matmul", ("cache_write", ""), ("loop_binding", "axis=bx")),
}
"""Strategies that naive programs offer next to nothing to: a workload, and steps (strategy, part of the site's id) that lead to their sites."""

SAMPLE_SITES, SAMPLE_WORKLOADS = 120, 32


def _by_strategy(program: Program) -> dict[str, list[Site]]:
    found: dict[str, list[Site]] = defaultdict(list)
    for site in engine.sites(program, limit=None):
        found[site.strategy].append(site)
    return found


def _fail(steps: list[Step]) -> None:
    wrong = [step for step in steps if step.problems]
    assert not wrong, f"{len(wrong)} of {len(steps)} sites:\n" + "\n".join(map(str, wrong[:10]))


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_every_site_of_every_strategy(name: str) -> None:
    """All sites through tiers 0 to 3; of each strategy the first and a seeded one also as machine code; and what the first step leads to."""
    program, rng = zoo.get(name, "tiny").program, random.Random(name)
    steps: list[Step] = []
    for sites in _by_strategy(program).values():
        compiled = {sites[0], rng.choice(sites)}
        for site in sites:
            siblings = tuple(rng.sample(sites, min(len(sites), 3)))
            steps.append(check_case(Case(program, site, tuple(s for s in siblings if s != site), site in compiled)))
        steps += [check_case(case) for case in followers(steps[-1], FOLLOWERS)]
    _fail(steps)


def _sample() -> list[Case]:
    """Cases spread over workloads; strategies with few sites keep all of theirs. One of each strategy is checked as machine code too."""
    rng = random.Random(7)
    names = rng.sample(NAMES, SAMPLE_WORKLOADS)
    names += [n for n in RARE if n not in names]
    pool: dict[str, list[tuple[Program, Site]]] = defaultdict(list)
    for name in names:
        program = zoo.get(name, "tiny").program
        for strategy, sites in _by_strategy(program).items():
            pool[strategy] += [(program, s) for s in rng.sample(sites, min(len(sites), 3))]
    share = max(SAMPLE_SITES // len(pool), 1)
    cases: list[Case] = []
    for strategy in sorted(pool, key=lambda s: len(pool[s])):
        chosen = rng.sample(pool[strategy], min(len(pool[strategy]), share))
        cases += [Case(program, site, (), n == 0) for n, (program, site) in enumerate(chosen)]
    rest = [item for items in pool.values() for item in items if item not in {(c.program, c.site) for c in cases}]
    cases += [Case(program, site) for program, site in rng.sample(rest, max(min(SAMPLE_SITES - len(cases), len(rest)), 0))]
    return cases


def test_a_seeded_sample_of_sites_of_all_strategies() -> None:
    cases = _sample()
    steps = [check_case(case) for case in cases]
    seen = {case.site.strategy for case in cases}
    for missing in sorted(set(registry.names()) - seen):
        name, *leads = AFTER[missing]
        program = zoo.get(name, "tiny").program
        for strategy, part in leads:
            last = next(check_case(Case(program, s)) for s in engine.sites(program, [strategy], limit=None) if part in s.id)
            steps.append(last)
            assert last.applied is not None
            program = last.applied.program
        for case in list(followers(last, [missing]))[:1]:
            seen.add(missing)
            steps.append(check_case(case))
    _fail(steps)
    assert seen == set(registry.names()), f"no site of {set(registry.names()) - seen} in the sample"
    assert len(cases) >= SAMPLE_SITES
    assert len({case.program for case in cases}) >= 30
